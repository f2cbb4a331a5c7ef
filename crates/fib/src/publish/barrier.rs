//! The barrier between a store and a load that must not change places, on the reader's and on the writer's side.
//!
//! Both kinds keep one promise: of two threads that store, pass their barrier and load what the other one stores, at
//! least one sees the other's store. With [`Barrier::Membarrier`] the writer pays for both; `publish.rs` says why that
//! is enough.

#[cfg(all(test, loom))]
use loom::sync::atomic::fence;
#[cfg(not(all(test, loom)))]
use std::sync::atomic::fence;

use std::sync::atomic::{Ordering, compiler_fence};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Barrier {
    /// The reader keeps the compiler in order; the writer makes the kernel fence all threads of the process.
    Membarrier,
    /// Both sides fence.
    Fence,
}

impl Barrier {
    /// Membarrier where the kernel grants it to this process, which a model checker does not.
    pub(super) fn cheapest_for_readers() -> Barrier {
        let granted = cfg!(not(all(test, loom))) && membarrier::register().is_ok();
        if granted { Barrier::Membarrier } else { Barrier::Fence }
    }

    #[inline(always)]
    pub(super) fn reader(self) {
        match self {
            Barrier::Membarrier => compiler_fence(Ordering::SeqCst),
            Barrier::Fence => fence(Ordering::SeqCst),
        }
    }

    /// # Panics
    /// If the kernel refuses a membarrier to a process that it registered: readers have no fence, so nothing else is
    /// safe. A seccomp filter that is installed later must allow it.
    pub(super) fn writer(self) {
        match self {
            Barrier::Membarrier => {
                // The kernel makes nobody fence in a process of one thread, whose readers elsewhere are none of its threads.
                fence(Ordering::SeqCst);
                membarrier::execute().expect("a process registered for membarrier may use it");
                compiler_fence(Ordering::SeqCst);
            }
            Barrier::Fence => fence(Ordering::SeqCst),
        }
    }
}

/// `membarrier(2)`, the private expedited kind; Linux 4.14.
#[cfg(target_os = "linux")]
mod membarrier {
    use rustix::io;
    use rustix::thread::{MembarrierCommand, membarrier};

    pub(super) fn register() -> io::Result<()> {
        membarrier(MembarrierCommand::RegisterPrivateExpedited)
    }

    pub(super) fn execute() -> io::Result<()> {
        membarrier(MembarrierCommand::PrivateExpedited)
    }
}

#[cfg(not(target_os = "linux"))]
mod membarrier {
    use std::io;

    pub(super) fn register() -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn execute() -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::thread;
    use std::time::{Duration, Instant};

    const ROUNDS: u64 = 200_000;
    const LONGEST: Duration = Duration::from_millis(200);
    const STOP: u64 = u64::MAX;

    /// A number in a cache line of its own.
    #[derive(Default)]
    #[repr(align(128))]
    struct Word(AtomicU64);

    impl Word {
        fn load(&self) -> u64 {
            self.0.load(Ordering::Acquire)
        }

        fn store(&self, value: u64) {
            self.0.store(value, Ordering::Release);
        }

        /// The first value other than `old`.
        fn next_after(&self, old: u64) -> u64 {
            for look in 1_u32.. {
                if self.load() != old {
                    break;
                }
                if look.is_multiple_of(4096) {
                    thread::yield_now();
                }
            }
            self.load()
        }
    }

    /// The store buffer at work: in each round two threads store, pass their barriers and load what the other one
    /// stores. Returns the rounds in which both loads missed the other's store, as some do without barriers.
    fn rounds_in_which_neither_saw_the_other(barrier: Barrier) -> u64 {
        let [reader_word, writer_word, start, done, seen_by_reader] =
            std::array::from_fn(|_| Word::default());
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut round = start.next_after(0);
                while round != STOP {
                    reader_word.store(round);
                    barrier.reader();
                    seen_by_reader.store(writer_word.load());
                    done.store(round);
                    round = start.next_after(round);
                }
            });
            let (begin, mut missed) = (Instant::now(), 0);
            for round in 1..=ROUNDS {
                start.store(round);
                // The reader hears of it a cache miss later: meet it at a different point each time.
                for step in 0..round % 512 {
                    std::hint::black_box(step);
                }
                writer_word.store(round);
                barrier.writer();
                let seen = reader_word.load();
                done.next_after(round - 1);
                missed += u64::from(seen != round && seen_by_reader.load() != round);
                if begin.elapsed() > LONGEST {
                    break;
                }
            }
            start.store(STOP);
            missed
        })
    }

    /// One test for both: the two threads need a CPU each to meet. On a machine without two idle CPUs this may pass
    /// where it should not, and never the other way round.
    #[test]
    fn at_least_one_sees_the_other() {
        for barrier in [Barrier::cheapest_for_readers(), Barrier::Fence] {
            assert_eq!(rounds_in_which_neither_saw_the_other(barrier), 0, "{barrier:?}");
        }
    }
}
