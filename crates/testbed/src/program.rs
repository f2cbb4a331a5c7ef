//! Where the programs of this project are.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Returns the path of a program of this project, in the build of the test that calls this. All are there after a build of the
/// workspace's tests; a test of one crate alone finds those of other crates as they were built last.
///
/// # Panics
///
/// Where it is not built, or a source of the crates that it has is newer than it: a test would pass with what it was before.
pub fn program(name: &str) -> String {
    let test = std::env::current_exe().expect("a test is a file");
    let folder = test.ancestors().nth(2).expect("a test is in the folder 'deps' of its build");
    let program = folder.join(name);
    assert!(program.is_file(), "{}: not built; run 'cargo build --workspace'", program.display());
    let built = program.metadata().and_then(|program| program.modified()).expect("a file has a time");
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate is beside the others");
    let newer = newer_source(crates, built);
    assert!(newer.is_none(), "{} is older than {newer:?}; run 'cargo build --workspace'", program.display());
    program.display().to_string()
}

/// A source of the router's crates that is newer than that.
fn newer_source(crates: &Path, built: SystemTime) -> Option<PathBuf> {
    let parts = ["packet", "fib", "graph", "ports", "fabric", "elements", "control", "click", "router"];
    let mut folders: Vec<PathBuf> = parts.iter().map(|part| crates.join(part).join("src")).collect();
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()) {
            let is_newer = || path.metadata().and_then(|file| file.modified()).is_ok_and(|time| time > built);
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && is_newer() {
                return Some(path);
            }
        }
    }
    None
}
