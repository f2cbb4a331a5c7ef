//! A folder for the files of a test, gone with the test; a network namespace for its interfaces, gone likewise; waiting.

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

/// Runs the graph until `done`, some seconds at most.
pub(crate) fn until(bench: &mut Bench, mut done: impl FnMut(&mut Bench) -> bool) {
    for _ in 0..400 {
        bench.run(4);
        if done(bench) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("it did not happen");
}

/// Runs `test` on a thread of its own inside a fresh network namespace, which goes away with the thread; needs root.
pub(crate) fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: making network namespaces needs root");
        return;
    }
    let thread = std::thread::spawn(move || {
        #[allow(unsafe_code, reason = "leaving a network namespace")]
        // SAFETY: only NEWNET, so the thread goes on sharing files and memory with the others.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.unwrap();
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `ip` with these words in the thread's namespace; what it says.
pub(crate) fn ip(words: &str) -> String {
    let output = std::process::Command::new("ip").args(words.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
