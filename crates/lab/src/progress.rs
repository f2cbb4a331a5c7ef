//! What goes on in the long steps, on standard error: one line that changes on a terminal, else plain lines, of which
//! two of one step are ten seconds apart.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const BETWEEN_PLAIN_LINES: Duration = Duration::from_secs(10);

/// The step that was printed last in plain lines, and when.
static LAST: Mutex<Option<(String, Instant)>> = Mutex::new(None);

/// Tells what goes on: the step, and how far it is.
pub(crate) fn tell(step: &str, how_far: &str) {
    let text = if how_far.is_empty() { step.to_owned() } else { format!("{step}: {how_far}") };
    let mut stderr = std::io::stderr().lock();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush());
        return;
    }
    let mut last = LAST.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if last.as_ref().is_some_and(|(known, at)| known == step && at.elapsed() < BETWEEN_PLAIN_LINES) {
        return;
    }
    *last = Some((step.to_owned(), Instant::now()));
    // Progress that nobody can read is not a reason to stop.
    let _ = writeln!(stderr, "{text}");
}

/// Removes the changing line, so that results stand in its place.
pub(crate) fn clear() {
    let mut stderr = std::io::stderr().lock();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K").and_then(|()| stderr.flush());
    }
}
