//! Programs that run until they are stopped.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

use crate::eventually;

/// A program that runs. It is killed when dropped, and with it its process group if it leads one.
#[derive(Debug)]
pub struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts it; what it prints goes to the file `log`.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written or the program cannot be run.
    pub fn start(command: &mut Command, log: PathBuf) -> Result<Self> {
        let file = File::create(&log).with_context(|| format!("cannot write '{}'", log.display()))?;
        command.stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        Ok(Self { child, log })
    }

    /// What it printed so far.
    pub fn printed(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its exit code if it ended, -1 after a signal. It stays a zombie, so that its number and its group's are its own until it is
    /// dropped.
    pub fn ended(&self) -> Option<i32> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(Pid::from_child(&self.child)), options).expect("the process is ours");
        status.map(|status| status.exit_status().unwrap_or(-1))
    }

    /// Waits until it ends, for `limit` at most; its exit code.
    pub fn wait(&self, limit: Duration) -> Option<i32> {
        let end = Instant::now() + limit;
        while self.ended().is_none() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.ended()
    }

    /// Waits until `holds` returns `true` while it runs.
    ///
    /// # Panics
    ///
    /// Where it ends, and after [`DEADLINE`](crate::DEADLINE), with the name of the event and what it printed.
    pub fn wait_until(&self, event: &str, mut holds: impl FnMut() -> bool) {
        let is_over = eventually(|| holds() || self.ended().is_some());
        assert!(is_over && self.ended().is_none(), "waited for: {event}\n{}", self.printed());
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process is ours");
    }

    /// Presses Ctrl-C and waits; the exit code.
    ///
    /// # Panics
    ///
    /// Where it does not end within a minute.
    pub fn interrupt(&self) -> i32 {
        self.signal(Signal::INT);
        self.wait(crate::DEADLINE).expect("it ends on SIGINT")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself, and need not lead a group.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends SIGINT and waits for the end, at most a minute; returns the exit code.
///
/// # Panics
///
/// Where it does not end.
pub fn interrupt(child: &mut Child) -> i32 {
    kill_process(Pid::from_child(child), Signal::INT).expect("the process is ours");
    let mut status = None;
    crate::wait_until("the end after SIGINT", || {
        status = child.try_wait().expect("the process is ours");
        status.is_some()
    });
    status.and_then(|status| status.code()).unwrap_or(-1)
}
