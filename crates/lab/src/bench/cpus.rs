//! A CPU for the worker and another one for the control thread, as in a router.
//!
//! Where both float, the scheduler sometimes puts the control thread on the worker's CPU, mostly when it wakes while
//! another program has its own. Then the worker's burst is interrupted for milliseconds, and the publication
//! waits for it: a figure of the scheduler, not of the tables.
//!
//! Other programs may still want these CPUs. [`waited`] says how long they had them instead of us.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Two CPUs that this thread may use; `None` where it has just one, or the system does not say.
#[derive(Clone, Copy)]
pub(super) struct Apart {
    control: usize,
    worker: usize,
    allowed: CpuSet,
}

/// Keeps the control thread on its CPU until it is dropped.
pub(super) struct ControlPlace(Option<CpuSet>);

impl Apart {
    pub(super) fn find() -> Option<Apart> {
        let allowed = sched_getaffinity(None).ok()?;
        let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
        let control = cpus.next()?;
        // The last one: interrupts of devices go to the first ones.
        Some(Apart { control, worker: cpus.next_back()?, allowed })
    }
}

impl Apart {
    /// Number of the CPU for the control thread.
    pub(super) fn control(self) -> usize {
        self.control
    }

    /// Number of the CPU for the worker.
    pub(super) fn worker(self) -> usize {
        self.worker
    }
}

/// The CPUs that this thread may use; just the first where the system does not say.
pub(super) fn allowed() -> Vec<usize> {
    let Ok(allowed) = sched_getaffinity(None) else { return vec![0] };
    (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect()
}

/// Puts the calling thread, the control thread, on its CPU.
pub(super) fn place_control(apart: Option<Apart>) -> ControlPlace {
    if let Some(apart) = apart {
        move_to(apart.control);
    }
    ControlPlace(apart.map(|apart| apart.allowed))
}

/// Puts the calling thread, the worker, on its CPU.
pub(super) fn place_worker(apart: Option<Apart>) {
    if let Some(apart) = apart {
        move_to(apart.worker);
    }
}

/// Puts another thread, by its number, on a CPU.
pub(super) fn place_thread(thread: i32, cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    // One that has just ended needs no place.
    let _ = sched_setaffinity(rustix::process::Pid::from_raw(thread), &set);
}

/// What the processor calls itself.
pub(super) fn model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or("unknown processor", |(_, name)| name.trim()).to_owned()
}

/// CPU time that a thread has had, by the path of its folder in /proc; zero where the kernel does not say.
pub(super) fn ran(thread: &Path) -> Duration {
    let text = fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
    let nanoseconds = text.split_whitespace().next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

fn move_to(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    // A system that refuses has its reasons; the figures are worth a little less.
    let _ = sched_setaffinity(None, &set);
}

impl Drop for ControlPlace {
    fn drop(&mut self) {
        if let Some(allowed) = &self.0 {
            let _ = sched_setaffinity(None, allowed);
        }
    }
}

/// How long a thread of this process has waited for a CPU that another program had (Linux's `schedstat`; zero where
/// there is none). Time that interrupts take is not in it.
pub(super) fn waited(thread: i32) -> Duration {
    let text = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap_or_default();
    let nanoseconds = text.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// The number of the calling thread.
pub(super) fn this_thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn the_control_thread_may_go_everywhere_again() {
        let before = sched_getaffinity(None).unwrap();
        let apart = Apart::find();
        let place = place_control(apart);
        if let Some(apart) = apart {
            assert_ne!(apart.control, apart.worker);
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        }
        drop(place);
        assert!(sched_getaffinity(None).unwrap() == before);
    }

    #[test]
    fn nobody_waits_backwards() {
        let before = waited(this_thread());
        std::thread::yield_now();
        assert!(waited(this_thread()) >= before);
        assert_eq!(waited(0), Duration::ZERO, "there is no such thread");
    }
}
