//! Where the programs of this project are.

/// Returns the path of a program of this project, in the build of the test that calls this. All are there after a build of the
/// workspace's tests; a test of one crate alone finds those of other crates as they were built last.
///
/// # Panics
///
/// Where it is not built.
pub fn program(name: &str) -> String {
    let test = std::env::current_exe().expect("a test is a file");
    let folder = test.ancestors().nth(2).expect("a test is in the folder 'deps' of its build");
    let program = folder.join(name);
    assert!(program.is_file(), "{}: not built; run 'cargo build --workspace'", program.display());
    program.display().to_string()
}
