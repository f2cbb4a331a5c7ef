//! One network namespace for one test, and programs that run in it.

use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A namespace that goes away at the end.
struct Namespace(String);

impl Namespace {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let namespace = Self(format!("testbed-{}-{number}", std::process::id()));
        ip(&format!("netns add {}", namespace.0));
        namespace
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// Runs `test` on a thread of its own inside a new network namespace with a loopback interface. The namespace goes away
/// with its links at the end. See [`is_root`](crate::is_root) for machines without root.
///
/// # Panics
///
/// Where the test panics or the namespace cannot be made.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !crate::is_root() {
        return;
    }
    let namespace = Namespace::new();
    let path = format!("/run/netns/{}", namespace.0);
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let thread = std::thread::spawn(move || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("root may enter a namespace");
        ip("link set lo up");
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `ip` with these words in the thread's namespace; returns its output.
///
/// # Panics
///
/// Where `ip` fails.
pub fn ip(words: &str) -> String {
    run("ip", words)
}

/// Runs a program with these words in the thread's namespace; returns its output.
///
/// # Panics
///
/// Where the program is not installed or fails.
pub fn run(program: &str, words: &str) -> String {
    let output = Command::new(program).args(words.split_whitespace()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; run 'make packages-test'"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Makes a veth pair with `queues` queues in each direction, both ends up, without IPv6 addresses of their own.
///
/// # Panics
///
/// Where `ip` fails.
pub fn veth_pair(left: &str, right: &str, queues: u32) {
    let number = format!("numrxqueues {queues} numtxqueues {queues}");
    ip(&format!("link add {left} {number} type veth peer name {right} {number}"));
    for name in [left, right] {
        ip(&format!("link set {name} addrgenmode none"));
        ip(&format!("link set {name} up"));
    }
}
