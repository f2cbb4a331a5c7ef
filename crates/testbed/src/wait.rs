//! Waiting for an event. The deadline is for machines whose cores are all busy: no test fails because it is late.

use std::time::{Duration, Instant};

/// How long a test waits for an event.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Calls `holds` until it returns `true`, for [`DEADLINE`] at most. Returns whether it did.
pub fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + DEADLINE;
    while !holds() {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// Waits until `holds` returns `true`.
///
/// # Panics
///
/// After [`DEADLINE`], with the name of the event.
pub fn wait_until(event: &str, holds: impl FnMut() -> bool) {
    assert!(eventually(holds), "not within {} s: {event}", DEADLINE.as_secs());
}
