//! Beats: how a thread shows that it is at work, in whatever crate its work is.
//!
//! Long jobs call [`beat`] from within. Who waits for a lock that a long job holds is at work too, as long as the holder beats: a
//! [`Holder`] beside the lock says who that is.

use std::cell::RefCell;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::sync::lock;

/// A sleep or a wait is divided into pieces of this length, so that it beats.
pub const PIECE: Duration = Duration::from_millis(250);

/// How long what is done aside is waited for without suspicion.
pub const LONGEST_ASIDE: Duration = Duration::from_secs(30);

/// A thread that waits for one that waits for another is followed so far.
const LONGEST_CHAIN: usize = 4;

/// What a thread counts, and where it waits.
#[derive(Debug, Default)]
pub struct Beats {
    count: AtomicU64,
    /// The thread's number in Linux; 0 before its first beat.
    thread: AtomicI32,
    waits_for: Mutex<Option<Holder>>,
}

thread_local! {
    static OWN: RefCell<Option<Arc<Beats>>> = const { RefCell::new(None) };
}

impl Beats {
    /// Makes these the beats of the calling thread.
    pub fn attach(self: &Arc<Self>) {
        self.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
        // A thread that ends beats no more.
        let _ = OWN.try_with(|own| *own.borrow_mut() = Some(self.clone()));
    }

    /// Counts one more. The first one attaches the beats to the calling thread.
    pub fn beat(self: &Arc<Self>) {
        if self.thread.load(Ordering::Relaxed) == 0 {
            self.attach();
        }
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the count itself, for a thread that stores to it.
    pub fn count(&self) -> &AtomicU64 {
        &self.count
    }

    /// Returns the thread's number in Linux; 0 before its first beat.
    pub fn thread(&self) -> i32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// Returns a number that changes while the thread is at work, or while the one that it waits for is.
    pub fn progress(&self) -> u64 {
        self.progress_within(LONGEST_CHAIN)
    }

    fn progress_within(&self, chain: usize) -> u64 {
        let own = self.count.load(Ordering::Relaxed);
        let waits_for = if chain == 0 { None } else { lock(&self.waits_for).clone() };
        let holder = waits_for.and_then(|holder| lock(&holder.0).clone());
        own.wrapping_add(holder.map_or(0, |holder| holder.progress_within(chain - 1)))
    }
}

/// Returns the beats of this thread, which gets some if it has none.
fn own() -> Arc<Beats> {
    let known = OWN.try_with(|own| own.borrow().clone()).ok().flatten();
    known.unwrap_or_else(|| {
        let beats = Arc::<Beats>::default();
        beats.attach();
        beats
    })
}

/// Counts a beat of this thread, if somebody looks at it: from within a job that may take long.
#[inline]
pub fn beat() {
    let _ = OWN.try_with(|own| {
        if let Some(beats) = &*own.borrow() {
            beats.count.fetch_add(1, Ordering::Relaxed);
        }
    });
}

/// Sleeps, and beats meanwhile.
pub fn sleep(duration: Duration) {
    let mut left = duration;
    while !left.is_zero() {
        beat();
        let piece = left.min(PIECE);
        std::thread::sleep(piece);
        left -= piece;
    }
    beat();
}

/// Waits for an answer, and beats meanwhile and once it is there; `None` when nobody can give it any more. A thread that hangs is found
/// by its own beats.
pub fn answer<T>(answers: &Receiver<T>) -> Option<T> {
    loop {
        let answer = answers.recv_timeout(PIECE);
        // One that asks much and is answered soon is at work too.
        beat();
        match answer {
            Err(RecvTimeoutError::Timeout) => {}
            answer => return answer.ok(),
        }
    }
}

/// Waits at `condvar` while `waits` holds, for `timeout` at most, and beats meanwhile. Returns whether that was long enough.
pub fn wait_while<'a, T>(
    condvar: &Condvar,
    mut guard: MutexGuard<'a, T>,
    timeout: Duration,
    mut waits: impl FnMut(&mut T) -> bool,
) -> (MutexGuard<'a, T>, bool) {
    let begin = Instant::now();
    loop {
        beat();
        let left = timeout.saturating_sub(begin.elapsed());
        let waited = condvar.wait_timeout_while(guard, left.min(PIECE), &mut waits);
        let result;
        (guard, result) = waited.unwrap_or_else(PoisonError::into_inner);
        if !result.timed_out() || left <= PIECE {
            return (guard, !result.timed_out());
        }
    }
}

/// Does something that Linux may take its time for, such as loading a module, on a thread of its own, and beats meanwhile for
/// [`LONGEST_ASIDE`] at most.
pub fn aside<R: Send>(act: impl FnOnce() -> R + Send) -> R {
    let (mut act, mut result) = (Some(act), None);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let run = || result = act.take().map(|act| act());
        // Without a thread it is done on this one.
        let Ok(thread) = std::thread::Builder::new().name("aside".to_owned()).spawn_scoped(scope, run) else {
            return;
        };
        while !thread.is_finished() {
            if begin.elapsed() < LONGEST_ASIDE {
                beat();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    result.or_else(|| act.take().map(|act| act())).expect("it was done once, here or there")
}

/// Who holds a lock.
#[derive(Clone, Debug, Default)]
pub struct Holder(Arc<Mutex<Option<Arc<Beats>>>>);

impl Holder {
    /// Takes the lock that this belongs to. A thread that waits for it is at work as long as the holder is.
    pub fn lock<'a, T: ?Sized>(&self, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        let own = own();
        let guard = match mutex.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                *lock(&own.waits_for) = Some(self.clone());
                let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
                *lock(&own.waits_for) = None;
                guard
            }
        };
        *lock(&self.0) = Some(own);
        guard
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn who_waits_for_a_lock_is_at_work_while_its_holder_is() {
        let (mutex, holder) = (Arc::new(Mutex::new(())), Holder::default());
        let (holds, waits) = (Arc::<Beats>::default(), Arc::<Beats>::default());
        holds.attach();
        let guard = holder.lock(&mutex);
        let (sender, receiver) = channel();
        let thread = {
            let (mutex, holder, waits) = (mutex.clone(), holder.clone(), waits.clone());
            std::thread::spawn(move || {
                waits.beat();
                sender.send(()).unwrap();
                drop(holder.lock(&mutex));
            })
        };
        receiver.recv().unwrap();
        while lock(&waits.waits_for).is_none() {
            std::thread::yield_now();
        }
        let before = waits.progress();
        assert_eq!(waits.progress(), before);
        beat();
        assert_ne!(waits.progress(), before);
        drop(guard);
        thread.join().unwrap();
        assert!(lock(&waits.waits_for).is_none());
    }

    #[test]
    fn answers_that_come_at_once_are_beats_too() {
        let beats = Arc::<Beats>::default();
        beats.beat();
        let (sender, answers) = channel();
        for number in 0..3 {
            let before = beats.progress();
            sender.send(number).unwrap();
            assert_eq!(answer(&answers), Some(number));
            assert_ne!(beats.progress(), before);
        }
        drop(sender);
        assert_eq!(answer(&answers), None);
    }

    #[test]
    fn who_waits_for_a_condition_beats() {
        let beats = Arc::<Beats>::default();
        beats.beat();
        let (state, condvar) = (Mutex::new(0), Condvar::new());
        let before = beats.progress();
        let (guard, was_enough) = wait_while(&condvar, lock(&state), 3 * PIECE, |_| true);
        assert!(!was_enough && beats.progress() > before + 2);
        drop(guard);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *lock(&state) = 1;
                condvar.notify_all();
            });
            let (guard, was_enough) = wait_while(&condvar, lock(&state), LONGEST_ASIDE, |state| *state == 0);
            assert!(was_enough && *guard == 1);
        });
    }

    #[test]
    fn what_is_done_aside_beats_and_has_its_result() {
        let beats = Arc::<Beats>::default();
        beats.beat();
        let before = beats.progress();
        let seen = aside(|| {
            while beats.progress() == before {
                std::thread::yield_now();
            }
            7
        });
        assert_eq!(seen, 7);
    }

    #[test]
    fn two_that_wait_for_each_other_make_no_progress() {
        let [first, second] = [(); 2].map(|()| (Arc::<Beats>::default(), Holder::default()));
        *lock(&first.1.0) = Some(first.0.clone());
        *lock(&second.1.0) = Some(second.0.clone());
        *lock(&first.0.waits_for) = Some(second.1);
        *lock(&second.0.waits_for) = Some(first.1);
        assert_eq!(first.0.progress(), first.0.progress());
        // Nobody keeps the other for ever.
        *lock(&second.0.waits_for) = None;
    }
}
