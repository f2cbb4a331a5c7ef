//! What a test requires of the machine.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use crate::Namespace;

/// The variable that leaves out tests which need root.
const NO_ROOT: &str = "BRICKWAY_NO_ROOT";
/// The variable with which tests of ESP fail where the kernel has none.
const ESP: &str = "BRICKWAY_ESP";
/// The file that `make test` reads at its end: the tests that were not run, a line each.
const LEFT_OUT: &str = "BRICKWAY_LEFT_OUT";

/// Prints that this test ends without a result, as it lacks `what`, and writes it down for the end of `make test`. `target` of the
/// Makefile has what it lacks.
///
/// # Panics
///
/// The file cannot be written.
pub fn leave_out(what: &str, target: &str) {
    eprintln!("left out: no {what}; 'make {target}' has it");
    let Some(path) = std::env::var_os(LEFT_OUT) else { return };
    let file = OpenOptions::new().create(true).append(true).open(&path);
    // In one piece, beside tests of other programs.
    let written = file.and_then(|mut file| file.write_all(format!("{what}\t{target}\n").as_bytes()));
    written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Returns whether the test may make network namespaces. Returns `false` only if `BRICKWAY_NO_ROOT=1` is set: the test
/// then ends without a result.
///
/// # Panics
///
/// Without root, unless `BRICKWAY_NO_ROOT=1` is set.
pub fn is_root() -> bool {
    let left_out = std::env::var_os(NO_ROOT).is_some_and(|value| value == "1");
    if left_out {
        leave_out("root", "test");
        return false;
    }
    assert!(
        rustix::process::geteuid().is_root(),
        "this test makes network namespaces: run it as root, or leave out all such tests by {NO_ROOT}=1"
    );
    true
}

/// Returns whether the kernel has ESP; where it has not, prints that, and the test ends without a result. To be called as root.
///
/// # Panics
///
/// Without ESP if `BRICKWAY_ESP=1` is set, as `make test-linux-esp` does; without root, unless `BRICKWAY_NO_ROOT=1` is set.
pub fn has_esp() -> bool {
    if !is_root() {
        return false;
    }
    let namespace = Namespace::new(Namespace::unique_name("esp")).expect("namespaces can be made");
    let key = "01".repeat(20);
    let words = "state add src 10.0.0.1 dst 10.0.0.2 proto esp spi 1 mode tunnel aead rfc4106(gcm(aes))";
    let state = format!("xfrm {words} 0x{key} 128");
    let Err(error) = namespace.ip(&state) else { return true };
    assert!(
        std::env::var_os(ESP).is_none_or(|value| value != "1"),
        "{ESP}=1, but the kernel has no ESP: {error:#}"
    );
    leave_out("ESP in the kernel", "test-linux-esp");
    false
}

/// Checks that a program or module is installed. Returns `true`, so that it stands beside [`is_root`] in a condition.
///
/// # Panics
///
/// Where the file does not exist.
pub fn is_installed(path: &str) -> bool {
    assert!(Path::new(path).exists(), "{path}: not installed; run 'make packages-test'");
    true
}

/// Waits until no other test on this machine, in whatever process, changes what this file or folder stands for. The turn lasts until
/// what is returned is dropped.
///
/// # Panics
///
/// Where it is not there.
pub fn turn(of: &str) -> File {
    let file = File::open(of).unwrap_or_else(|error| panic!("{of}: {error}"));
    file.lock().expect("files can be locked");
    file
}
