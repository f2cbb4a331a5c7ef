//! The processes that a bench starts, and the promise that all of them end with it.
//!
//! A child belongs to a list that Ctrl-C, SIGTERM and SIGHUP can reach: their handler kills what is in it. The bench
//! then meets the end of the child's output, or [`stop_if_interrupted`], returns an error, and everything is put back by
//! destructors as after any other error: processes, huge pages, the folder of temporary files. (A child dies with a
//! parent that is killed outright, too; the kernel sees to that, see `PR_SET_PDEATHSIG` in dpdk_tables.c.)

use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

static CHILDREN: Mutex<Vec<Child>> = Mutex::new(Vec::new());
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

fn children() -> MutexGuard<'static, Vec<Child>> {
    CHILDREN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Makes Ctrl-C and its like end the bench in an orderly way.
pub(super) fn end_on_signals() -> Result<()> {
    router::interrupt::on_interrupt(|| {
        INTERRUPTED.store(true, Ordering::SeqCst);
        for child in children().iter_mut() {
            // A child that has ended already needs no killing.
            let _ = child.kill();
        }
    })
    .context("cannot catch Ctrl-C")
}

/// An error if Ctrl-C was pressed; asked between any two steps of the bench.
pub(crate) fn stop_if_interrupted() -> Result<()> {
    if INTERRUPTED.load(Ordering::SeqCst) {
        bail!("interrupted");
    }
    Ok(())
}

/// A child in the list; it ends when this is dropped.
pub(super) struct Reachable(u32);

impl Reachable {
    pub(super) fn new(child: Child) -> Self {
        let id = child.id();
        children().push(child);
        Self(id)
    }

    /// Number of the process.
    pub(super) fn id(&self) -> u32 {
        self.0
    }

    /// Whether it has ended by itself.
    pub(super) fn has_ended(&self) -> bool {
        let mut children = children();
        let child = children.iter_mut().find(|child| child.id() == self.0);
        child.is_none_or(|child| child.try_wait().is_ok_and(|status| status.is_some()))
    }

    /// Presses Ctrl-C for it, and gives it this time to put things back.
    pub(super) fn interrupt(self, limit: Duration) {
        let process = i32::try_from(self.0).ok().and_then(Pid::from_raw);
        if let Some(process) = process.filter(|_| !self.has_ended()) {
            // If it ends this instant it has what it was told.
            let _ = kill_process(process, Signal::INT);
        }
        let begin = Instant::now();
        while !self.has_ended() && begin.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Reachable {
    fn drop(&mut self) {
        let mut children = children();
        if let Some(place) = children.iter().position(|child| child.id() == self.0) {
            let mut child = children.swap_remove(place);
            // It has nothing to lose; and its huge pages are free only when it is gone.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
