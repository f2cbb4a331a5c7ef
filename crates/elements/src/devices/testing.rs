//! A folder for the files of a test, gone with the test; waiting.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use graph::testing::Bench;

pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("brickway-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

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
