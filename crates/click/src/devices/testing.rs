//! Waiting.

use graph::testing::Bench;

/// Runs the graph until `done`.
///
/// # Panics
///
/// After a minute.
pub(crate) fn until(bench: &mut Bench, mut done: impl FnMut(&mut Bench) -> bool) {
    testbed::wait_until("what the graph was run for", || {
        bench.run(4);
        done(bench)
    });
}
