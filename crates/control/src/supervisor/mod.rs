//! Watches the router's threads: each of them beats, and one that has ended or is silent for too long is a [`Fault`].
//!
//! A router whose control thread is dead forwards by stale routes, and looks healthy from outside. So every thread that the
//! router needs takes a [`Pulse`] and beats once a round; long jobs beat from within ([`packet::pulse`]). A thread of its own looks at
//! all pulses, because the main thread may itself wait for a thread that hangs. An idle thread wakes up to beat
//! ([`LONGEST_WAIT`]).
//!
//! Silence is added up look by look, at most [`LONGEST_LOOK`] each, so that time in which the whole process stood still, such as a
//! virtual machine that was suspended, is not held against its threads. What is suspicious is looked at more closely: time in
//! which a thread could not have worked, because others had the CPU, does not count ([`census`](self)). Silence of the supervisor's own
//! thread is added up whenever somebody asks for a fault.

mod census;

use packet::pulse::Beats;
use packet::sync::lock;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use census::Census;

/// A thread that has been silent for so long hangs.
pub const LONGEST_SILENCE: Duration = Duration::from_millis(1_500);

/// An idle thread wakes up after this time to beat.
pub const LONGEST_WAIT: Duration = packet::pulse::PIECE;

/// From this silence on a thread is looked at more closely.
const SUSPICIOUS: Duration = Duration::from_millis(500);

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// The most that a look adds to the silence of a thread.
const LONGEST_LOOK: Duration = Duration::from_millis(250);

/// What is wrong with a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It panicked, or returned before its time.
    Ended,
    /// It has not beaten for too long.
    Silent,
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
            Problem::Silent => {
                let seconds = LONGEST_SILENCE.as_secs_f64();
                write!(f, "the thread '{}' has not answered for {seconds} s", self.thread)
            }
        }
    }
}

/// How a thread is: what its [`Pulse`] writes and the supervisor reads.
#[derive(Debug, Default)]
struct Signs {
    beats: Arc<Beats>,
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
        self.0.beats.beat();
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
    signs: Arc<Signs>,
    /// That of the last look.
    progress: u64,
    silent: Duration,
}

impl Watched {
    fn new(name: String, signs: Arc<Signs>) -> Self {
        let progress = signs.beats.progress();
        Self { name, signs, progress, silent: Duration::ZERO }
    }

    /// Forgets the silence of a thread that has made progress since the last look.
    fn notice_progress(&mut self) {
        let progress = self.signs.beats.progress();
        if progress != self.progress {
            (self.progress, self.silent) = (progress, Duration::ZERO);
        }
    }

    fn has_ended(&self) -> bool {
        self.signs.end.load(Ordering::Acquire) == ENDED
    }

    /// Adds silence, if it may have worked in a share of this time.
    fn add(&mut self, elapsed: Duration, share: impl FnOnce(i32) -> f64) {
        let is_suspicious = self.silent >= SUSPICIOUS;
        self.silent +=
            if is_suspicious { elapsed.mul_f64(share(self.signs.beats.thread())) } else { elapsed };
    }

    fn problem(&self) -> Option<Problem> {
        let is_silent = || self.silent >= LONGEST_SILENCE;
        self.has_ended().then_some(Problem::Ended).or_else(|| is_silent().then_some(Problem::Silent))
    }
}

/// The threads, and what Linux says of them while one is suspicious.
#[derive(Debug, Default)]
struct Threads {
    all: Vec<Watched>,
    census: Census,
}

impl Threads {
    /// Looks at them after `elapsed`.
    fn look(&mut self, elapsed: Duration) -> Option<Fault> {
        let elapsed = elapsed.min(LONGEST_LOOK);
        self.all.retain(|thread| thread.signs.end.load(Ordering::Acquire) != RETIRED);
        self.all.iter_mut().for_each(Watched::notice_progress);
        if self.all.iter().any(|thread| thread.silent >= SUSPICIOUS) {
            self.census.take();
        } else {
            self.census.forget();
        }
        for thread in &mut self.all {
            thread.add(elapsed, |number| self.census.share(number, elapsed));
        }
        self.all
            .iter()
            .find_map(|thread| Some(Fault { thread: thread.name.clone(), problem: thread.problem()? }))
    }
}

#[derive(Debug, Default)]
struct State {
    threads: Threads,
    fault: Option<Fault>,
    /// The supervisor's own thread, while there is one: others look at it.
    own: Option<OwnSilence>,
    is_over: bool,
}

/// The supervisor's own thread, as the threads that ask for a fault see it.
#[derive(Debug)]
struct OwnSilence {
    /// When a thread asked last.
    asked: Instant,
    threads: Threads,
}

impl OwnSilence {
    fn new(beats: Arc<Beats>, now: Instant) -> Self {
        let own = Watched::new("supervisor".to_owned(), Arc::new(Signs { beats, ..Signs::default() }));
        Self { asked: now, threads: Threads { all: vec![own], census: Census::default() } }
    }

    /// Adds the time since the last question. Returns the fault, if there is one.
    fn look(&mut self, now: Instant) -> Option<Fault> {
        let elapsed = now.saturating_duration_since(std::mem::replace(&mut self.asked, now));
        self.threads.look(elapsed)
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
    /// Supervises a thread that is there already, which beats at once.
    pub fn watch(&self, name: impl Into<String>) -> Pulse {
        let signs = Arc::<Signs>::default();
        self.0.lock().threads.all.push(Watched::new(name.into(), signs.clone()));
        Pulse(signs)
    }

    /// Starts a supervised thread of this name. Its first beat is there before `work`, so that those of long jobs count from the
    /// beginning. Once `work` is done the thread ends as it was asked to.
    ///
    /// # Errors
    ///
    /// There is no thread to be had.
    pub fn spawn(
        &self,
        name: &str,
        work: impl FnOnce(&Pulse) + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let pulse = self.watch(name);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            pulse.beat();
            work(&pulse);
            pulse.retire();
        })
    }

    /// Supervises a thread that has these beats; its end is somebody else's to see.
    pub fn watch_beats(&self, name: impl Into<String>, beats: Arc<Beats>) {
        let signs = Arc::new(Signs { beats, ..Signs::default() });
        self.0.lock().threads.all.push(Watched::new(name.into(), signs));
    }

    /// Begins to look, on a thread of its own, which calls `on_fault` with the first fault and ends.
    ///
    /// # Errors
    ///
    /// There is no thread to be had.
    pub fn begin(&self, on_fault: impl FnOnce(&Fault) + Send + 'static) -> io::Result<()> {
        let supervisor = self.clone();
        let beats = Arc::<Beats>::default();
        self.0.lock().own = Some(OwnSilence::new(beats.clone(), Instant::now()));
        std::thread::Builder::new().name("supervisor".to_owned()).spawn(move || {
            if let Some(fault) = supervisor.look_until_fault(&beats) {
                on_fault(&fault);
            }
        })?;
        Ok(())
    }

    /// The fault that ended the supervision; to others the supervisor's own thread is one of the router's threads too.
    pub fn fault(&self) -> Option<Fault> {
        let mut state = self.0.lock();
        if state.fault.is_some() || state.is_over {
            return state.fault.clone();
        }
        state.own.as_mut().and_then(|own| own.look(Instant::now()))
    }

    /// Ends the supervision: the router ends, and its threads with it.
    pub fn end(&self) {
        self.0.lock().is_over = true;
        self.0.changed.notify_all();
    }

    fn look_until_fault(&self, beats: &Arc<Beats>) -> Option<Fault> {
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
            beats.beat();
            if let Some(fault) = state.threads.look(before.elapsed()) {
                state.fault = Some(fault.clone());
                return Some(fault);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};

    use super::*;

    /// Longer than anything takes that is not stuck.
    const DEADLINE: Duration = Duration::from_secs(60);

    /// Looks as often as that takes. Those threads that are asleep all the time have a share of 1.
    fn look(supervisor: &Supervisor, seconds: f64) -> Option<String> {
        let mut looks = (seconds / LONGEST_LOOK.as_secs_f64()) as usize;
        let mut fault = None;
        while fault.is_none() && looks > 0 {
            fault = supervisor.0.lock().threads.look(LONGEST_LOOK);
            looks -= 1;
        }
        fault.map(|fault| fault.to_string())
    }

    /// A thread of no number in Linux: all its time counts.
    fn watch(supervisor: &Supervisor, name: &str) -> (Pulse, impl Fn() + use<>) {
        let pulse = supervisor.watch(name);
        let beats = pulse.0.beats.clone();
        (pulse, move || _ = beats.count().fetch_add(1, Ordering::Relaxed))
    }

    #[test]
    fn a_thread_that_hangs_is_noticed_within_2_s() {
        // The look that takes the first census, and the one that comes last.
        assert!(LONGEST_SILENCE + 3 * LOOK <= Duration::from_secs(2));
        assert!(LONGEST_WAIT < SUSPICIOUS && SUSPICIOUS < LONGEST_SILENCE);
    }

    #[test]
    fn a_thread_that_panics_is_reported_at_once() {
        let supervisor = Supervisor::default();
        let (sender, faults) = channel();
        supervisor.begin(move |fault| sender.send(fault.clone()).unwrap()).unwrap();
        let pulse = supervisor.watch("control");
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
    fn a_thread_that_hangs_is_reported() {
        let supervisor = Supervisor::default();
        let (sender, faults) = channel();
        supervisor.begin(move |fault| sender.send(fault.clone()).unwrap()).unwrap();
        let pulse = supervisor.watch("control");
        let (end, ended) = channel::<()>();
        let thread = std::thread::spawn(move || {
            pulse.beat();
            // Until the sender has gone.
            let _ = ended.recv();
            pulse.retire();
        });
        let fault = faults.recv_timeout(DEADLINE).unwrap();
        assert_eq!(fault.to_string(), "the thread 'control' has not answered for 1.5 s");
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn a_thread_that_returns_before_its_time_is_a_fault_and_one_that_retires_is_none() {
        let supervisor = Supervisor::default();
        supervisor.watch("asked to end").retire();
        assert_eq!(look(&supervisor, 0.25), None);
        drop(supervisor.watch("member"));
        assert_eq!(look(&supervisor, 0.25).unwrap(), "the thread 'member' has ended");
    }

    #[test]
    fn beats_from_within_count_from_the_first_job_on() {
        let supervisor = Supervisor::default();
        let (sender, begun) = channel();
        let (end, ends) = channel::<()>();
        let work = move |_: &Pulse| {
            packet::pulse::beat();
            sender.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let _ = ends.recv();
        };
        let thread = supervisor.spawn("control", work).unwrap();
        let number = begun.recv().unwrap();
        let signs = supervisor.0.lock().threads.all[0].signs.clone();
        assert_eq!((signs.beats.thread(), signs.beats.progress()), (number, 2));
        drop(end);
        thread.join().unwrap();
        assert_eq!(look(&supervisor, 3.0), None, "it ended as it was asked to");
    }

    #[test]
    fn silence_begins_anew_with_each_beat() {
        let supervisor = Supervisor::default();
        let (_pulse, beat) = watch(&supervisor, "control");
        for _ in 0..20 {
            beat();
            assert_eq!(look(&supervisor, 1.25), None);
        }
        beat();
        assert_eq!(look(&supervisor, 1.5), None);
        // The first look that asks Linux counts nothing.
        assert!(look(&supervisor, 0.5).is_some());
    }

    #[test]
    fn a_pause_of_the_whole_process_is_not_held_against_its_threads() {
        let supervisor = Supervisor::default();
        let (_pulse, _beat) = watch(&supervisor, "control");
        assert_eq!(supervisor.0.lock().threads.look(Duration::from_secs(3_600)), None);
        // Nor is it held against the supervisor's own thread, if another thread wakes up before it.
        let begin = Instant::now();
        let mut own = OwnSilence::new(Arc::default(), begin);
        assert_eq!(own.look(begin + Duration::from_secs(3_600)), None);
        let late = |tenth: u64| own.look(begin + Duration::from_millis(3_600_000 + tenth * 100)).is_some();
        assert!((1..=20).any(late));
    }

    #[test]
    fn a_count_that_stands_still_is_silence() {
        let supervisor = Supervisor::default();
        let beats = Arc::<Beats>::default();
        supervisor.watch_beats("worker 0", beats.clone());
        beats.count().store(8, Ordering::Relaxed);
        assert_eq!(look(&supervisor, 1.0), None);
        assert_eq!(look(&supervisor, 2.0).unwrap(), "the thread 'worker 0' has not answered for 1.5 s");
    }

    #[test]
    fn after_the_end_of_the_supervision_a_thread_may_end() {
        let supervisor = Supervisor::default();
        let (sender, faults) = channel::<Fault>();
        supervisor.begin(move |fault| sender.send(fault.clone()).unwrap()).unwrap();
        supervisor.end();
        drop(supervisor.watch("control"));
        // The sender goes with the supervisor's thread.
        assert_eq!(faults.recv_timeout(DEADLINE), Err(RecvTimeoutError::Disconnected));
        assert_eq!(supervisor.fault(), None);
    }
}
