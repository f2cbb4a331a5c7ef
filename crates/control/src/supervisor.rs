//! Watches the router's threads: each of them beats, and one that has ended or is silent for too long is a [`Fault`].
//!
//! A router whose control thread is dead forwards by stale routes, and looks healthy from outside. So every thread that the
//! router needs takes a [`Pulse`] and beats once a round. A thread of its own looks at all pulses, because the main thread
//! may itself wait for a thread that hangs.
//!
//! A thread that may block without bound announces it ([`Pulse::waits`]); others wake up every few seconds ([`LONGEST_WAIT`]).
//!
//! Silence is added up look by look. That of the supervisor's own thread is added up whenever somebody asks for a fault. Each step
//! counts for at most [`LONGEST_LOOK`]. So time in which the whole process
//! stood still, such as a virtual machine that was suspended, is not held against its threads.

use packet::sync::lock;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The usual limit: a thread that has not beaten for so long hangs.
pub const LONGEST_SILENCE: Duration = Duration::from_secs(10);

/// The limit for a thread that compiles or writes whole tables, which takes seconds on a busy machine.
pub const LONGEST_SILENCE_WITH_TABLES: Duration = Duration::from_secs(30);

/// An idle thread wakes up after this time to beat.
pub const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(250);

/// The most that a look adds to the silence of a thread.
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// What is wrong with a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It panicked, or returned before its time.
    Ended,
    /// It has not beaten for this time.
    Silent(Duration),
}

/// A thread that the router cannot do without is not at work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// The thread's name.
    pub thread: String,
    /// What is wrong with it.
    pub problem: Problem,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.problem {
            Problem::Ended => write!(f, "the thread '{}' has ended", self.thread),
            Problem::Silent(limit) => {
                write!(f, "the thread '{}' has not answered for {} s", self.thread, limit.as_secs())
            }
        }
    }
}

/// How a thread is: what its [`Pulse`] writes and the supervisor reads.
#[derive(Debug, Default)]
struct Signs {
    beats: Arc<AtomicU64>,
    waits: AtomicBool,
    end: AtomicU8,
}

/// Values of `Signs::end`.
const RUNS: u8 = 0;
const RETIRED: u8 = 1;
const ENDED: u8 = 2;

/// What a supervised thread holds. Dropping it, by a panic or otherwise, says that the thread has ended, which is a fault.
#[derive(Debug)]
#[must_use = "a pulse that is dropped is a fault"]
pub struct Pulse(Arc<Signs>);

impl Pulse {
    /// Says that the thread is at work.
    pub fn beat(&self) {
        self.0.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// Does something that may take any time, such as reading from a client: silence is not a fault meanwhile, an end is.
    pub fn waits<R>(&self, act: impl FnOnce() -> R) -> R {
        self.0.waits.store(true, Ordering::Relaxed);
        let result = act();
        self.beat();
        self.0.waits.store(false, Ordering::Relaxed);
        result
    }

    /// Ends the supervision: the thread ends because it was asked to.
    pub fn retire(self) {
        self.0.end.store(RETIRED, Ordering::Release);
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        // One that has retired stays so.
        let _ = self.0.end.compare_exchange(RUNS, ENDED, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// A thread as the supervisor sees it.
#[derive(Debug)]
struct Watched {
    name: String,
    limit: Duration,
    signs: Arc<Signs>,
    /// Beats at the last look.
    beats: u64,
    silent: Duration,
}

impl Watched {
    /// Looks at it after `elapsed`.
    fn look(&mut self, elapsed: Duration) -> Option<Problem> {
        if self.signs.end.load(Ordering::Acquire) == ENDED {
            return Some(Problem::Ended);
        }
        let beats = self.signs.beats.load(Ordering::Relaxed);
        if beats != self.beats || self.signs.waits.load(Ordering::Relaxed) {
            (self.beats, self.silent) = (beats, Duration::ZERO);
            return None;
        }
        self.silent += elapsed.min(LONGEST_LOOK);
        (self.silent >= self.limit).then_some(Problem::Silent(self.limit))
    }
}

#[derive(Debug, Default)]
struct State {
    threads: Vec<Watched>,
    fault: Option<Fault>,
    /// The silence of the supervisor's own thread; `None` while there is none.
    own: Option<OwnSilence>,
    is_over: bool,
}

/// How long the supervisor's own thread has not looked, added up by the threads that ask for a fault.
#[derive(Clone, Copy, Debug)]
struct OwnSilence {
    /// When a thread asked last.
    asked: Instant,
    /// The sum since the last look.
    silent: Duration,
}

impl OwnSilence {
    fn new(now: Instant) -> Self {
        Self { asked: now, silent: Duration::ZERO }
    }

    /// Adds the time since the last question. Returns whether the sum is too long.
    fn is_late(&mut self, now: Instant) -> bool {
        self.silent += now.saturating_duration_since(self.asked).min(LONGEST_LOOK);
        self.asked = now;
        self.silent >= LONGEST_SILENCE
    }
}

#[derive(Debug, Default)]
struct Common {
    state: Mutex<State>,
    changed: Condvar,
}

impl Common {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// The supervisor; clones are the same one. Until [`Supervisor::begin`] nobody looks at the threads.
#[derive(Clone, Debug, Default)]
pub struct Supervisor(Arc<Common>);

impl Supervisor {
    /// Supervises a thread, which may be silent for at most `limit`.
    pub fn watch(&self, name: impl Into<String>, limit: Duration) -> Pulse {
        let signs = Arc::<Signs>::default();
        self.add(name.into(), limit, signs.clone());
        Pulse(signs)
    }

    /// Supervises a thread that beats by counting in `beats`; its end is somebody else's to see.
    pub fn watch_count(&self, name: impl Into<String>, limit: Duration, beats: Arc<AtomicU64>) {
        self.add(name.into(), limit, Arc::new(Signs { beats, ..Signs::default() }));
    }

    fn add(&self, name: String, limit: Duration, signs: Arc<Signs>) {
        let beats = signs.beats.load(Ordering::Relaxed);
        self.0.lock().threads.push(Watched { name, limit, signs, beats, silent: Duration::ZERO });
    }

    /// Begins to look, on a thread of its own, which calls `on_fault` with the first fault and ends.
    ///
    /// # Errors
    ///
    /// There is no thread to be had.
    pub fn begin(&self, on_fault: impl FnOnce(&Fault) + Send + 'static) -> io::Result<()> {
        let supervisor = self.clone();
        self.0.lock().own = Some(OwnSilence::new(Instant::now()));
        std::thread::Builder::new().name("supervisor".to_owned()).spawn(move || {
            if let Some(fault) = supervisor.look_until_fault() {
                on_fault(&fault);
            }
        })?;
        Ok(())
    }

    /// The fault that ended the supervision; to others the supervisor's own thread is one of the router's threads too.
    pub fn fault(&self) -> Option<Fault> {
        let mut state = self.0.lock();
        let is_late = !state.is_over && state.own.as_mut().is_some_and(|own| own.is_late(Instant::now()));
        let own = || Fault { thread: "supervisor".to_owned(), problem: Problem::Silent(LONGEST_SILENCE) };
        state.fault.clone().or_else(|| is_late.then(own))
    }

    /// Ends the supervision: the router ends, and its threads with it.
    pub fn end(&self) {
        self.0.lock().is_over = true;
        self.0.changed.notify_all();
    }

    fn look_until_fault(&self) -> Option<Fault> {
        let mut state = self.0.lock();
        loop {
            let before = Instant::now();
            state = self
                .0
                .changed
                .wait_timeout_while(state, LOOK, |state| !state.is_over)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            if state.is_over {
                return None;
            }
            if let Some(fault) = state.look(before.elapsed()) {
                state.fault = Some(fault.clone());
                return Some(fault);
            }
        }
    }
}

impl State {
    /// Looks at all threads after `elapsed`.
    fn look(&mut self, elapsed: Duration) -> Option<Fault> {
        self.own = Some(OwnSilence::new(Instant::now()));
        self.threads.retain(|thread| thread.signs.end.load(Ordering::Acquire) != RETIRED);
        self.threads.iter_mut().find_map(|thread| {
            let problem = thread.look(elapsed)?;
            Some(Fault { thread: thread.name.clone(), problem })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};

    use super::*;

    /// Longer than anything takes that is not stuck.
    const DEADLINE: Duration = Duration::from_secs(60);

    fn look(supervisor: &Supervisor, seconds: f64) -> Option<String> {
        supervisor.0.lock().look(Duration::from_secs_f64(seconds)).map(|fault| fault.to_string())
    }

    #[test]
    fn a_thread_that_panics_is_reported_at_once() {
        let supervisor = Supervisor::default();
        let (sender, faults) = channel();
        supervisor.begin(move |fault| sender.send(fault.clone()).unwrap()).unwrap();
        let pulse = supervisor.watch("control", LONGEST_SILENCE);
        let thread = std::thread::spawn(move || {
            pulse.beat();
            panic!("a fault that the test injects");
        });
        let fault = faults.recv_timeout(DEADLINE).unwrap();
        assert_eq!(fault.to_string(), "the thread 'control' has ended");
        assert_eq!(supervisor.fault(), Some(fault));
        assert!(thread.join().is_err());
    }

    #[test]
    fn a_thread_that_returns_before_its_time_is_a_fault_and_one_that_retires_is_none() {
        let supervisor = Supervisor::default();
        supervisor.watch("asked to end", LONGEST_SILENCE).retire();
        assert_eq!(look(&supervisor, 0.25), None);
        drop(supervisor.watch("member", LONGEST_SILENCE));
        assert_eq!(look(&supervisor, 0.25).unwrap(), "the thread 'member' has ended");
    }

    #[test]
    fn a_silent_thread_is_a_fault_after_its_limit() {
        let supervisor = Supervisor::default();
        let pulse = supervisor.watch("control", Duration::from_secs(3));
        for _ in 0..20 {
            pulse.beat();
            assert_eq!(look(&supervisor, 0.9), None);
        }
        assert_eq!(look(&supervisor, 1.0), None);
        assert_eq!(look(&supervisor, 1.0), None);
        assert_eq!(look(&supervisor, 1.0).unwrap(), "the thread 'control' has not answered for 3 s");
    }

    #[test]
    fn a_thread_that_waits_may_be_silent() {
        let supervisor = Supervisor::default();
        let pulse = supervisor.watch("messages", Duration::from_secs(2));
        pulse.waits(|| (0..20).for_each(|_| assert_eq!(look(&supervisor, 1.0), None)));
        assert_eq!(look(&supervisor, 1.0), None);
        assert_eq!(look(&supervisor, 1.0), None);
        assert!(look(&supervisor, 1.0).is_some());
    }

    #[test]
    fn a_pause_of_the_whole_process_is_not_held_against_its_threads() {
        let supervisor = Supervisor::default();
        let _pulse = supervisor.watch("control", LONGEST_SILENCE);
        assert_eq!(look(&supervisor, 3_600.0), None);
        // Nor is it held against the supervisor's own thread, if another thread wakes up before it.
        let begin = Instant::now();
        let mut own = OwnSilence::new(begin);
        assert!(!own.is_late(begin + Duration::from_secs(3_600)));
        let late = |second: u64| own.is_late(begin + Duration::from_secs(3_600 + second));
        assert_eq!((1..=9).map(late).position(|is_late| is_late), Some(8));
    }

    #[test]
    fn a_count_that_stands_still_is_silence() {
        let supervisor = Supervisor::default();
        let beats = Arc::new(AtomicU64::new(7));
        supervisor.watch_count("worker 0", Duration::from_secs(1), beats.clone());
        beats.store(8, Ordering::Relaxed);
        assert_eq!(look(&supervisor, 1.0), None);
        assert_eq!(look(&supervisor, 1.0).unwrap(), "the thread 'worker 0' has not answered for 1 s");
    }

    #[test]
    fn after_the_end_of_the_supervision_a_thread_may_end() {
        let supervisor = Supervisor::default();
        let (sender, faults) = channel::<Fault>();
        supervisor.begin(move |fault| sender.send(fault.clone()).unwrap()).unwrap();
        supervisor.end();
        drop(supervisor.watch("control", LONGEST_SILENCE));
        // The sender goes with the supervisor's thread.
        assert_eq!(faults.recv_timeout(DEADLINE), Err(RecvTimeoutError::Disconnected));
        assert_eq!(supervisor.fault(), None);
    }
}
