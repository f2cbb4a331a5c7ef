//! Compares the forwarding tables with Linux's routes every so often, on a thread of its own that lets others go first.

use packet::sync::lock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use control::drift::{Checked, check};
use control::supervisor::Pulse;

use super::live::Live;
use crate::settings::Period;

/// The nice value of the thread.
const PRIORITY: i32 = 10;

/// When checks were begun, and the one that is under way.
pub(super) struct Checker {
    last: Instant,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Checker {
    pub(super) fn new() -> Self {
        Self { last: Instant::now(), ends: Arc::default(), thread: None }
    }

    /// Begins a check if one is due, and none is under way.
    pub(super) fn look(&mut self, live: &Arc<Live>, period: Period) {
        let is_due = period.0 > 0.0 && self.last.elapsed() >= Duration::from_secs_f64(period.0);
        let is_idle = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        // The leader tells a node of a cluster its routes, and compares tables by the log.
        let follows_linux = live.service.as_ref().is_some_and(|service| service.lock().kernel.is_some());
        if !is_due || !is_idle || !follows_linux {
            return;
        }
        self.last = Instant::now();
        let (live, ends) = (live.clone(), self.ends.clone());
        let supervisor = live.supervisor.clone();
        let spawned = supervisor.spawn("drift", move |pulse| check_and_report(&live, &ends, pulse));
        match spawned {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => tracing::error!(event = "drift", "drift: {error}"),
        }
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic was printed when it happened.
            let _ = thread.join();
        }
    }
}

fn check_and_report(live: &Live, ends: &AtomicBool, pulse: &Pulse) {
    let Some(service) = &live.service else { return };
    // A kernel that refuses leaves the thread as it is. Linux gives each thread a priority of its own.
    let _ = rustix::process::setpriority_process(None, PRIORITY);
    pulse.beat();
    match check(service, ends) {
        Ok(Checked { found, example, left }) => {
            if let Some(example) = example {
                tracing::warn!(
                    event = "drift",
                    differences = found,
                    "drift: {found} routes differed from Linux's ({example}); all were read again, {left} differ now"
                );
            }
            let mut known = lock(&live.drift);
            let drift = known.get_or_insert_default();
            drift.checked_at =
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
            drift.differing = left;
            drift.healed += found.saturating_sub(left);
        }
        Err(_) if ends.load(Ordering::Relaxed) => {}
        Err(error) => tracing::error!(event = "drift", "drift: Linux does not report its routes: {error}"),
    }
}
