//! A folder for the files of one test.

use std::path::Path;

use tempfile::TempDir;

/// A new folder among the temporary ones, removed with all its files when dropped.
#[derive(Debug)]
pub struct Folder(TempDir);

impl Folder {
    /// Makes one.
    ///
    /// # Panics
    ///
    /// Where temporary folders cannot be made.
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        Self(
            tempfile::Builder::new()
                .prefix("brickway-test-")
                .tempdir()
                .expect("the temporary folder can be written"),
        )
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The path of a file in it, whether it is there or not.
    pub fn file(&self, name: &str) -> String {
        self.path().join(name).display().to_string()
    }

    /// Writes a file in it, and returns its path.
    ///
    /// # Panics
    ///
    /// Where it cannot be written.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.file(name);
        std::fs::write(&path, bytes).unwrap_or_else(|error| panic!("{path}: {error}"));
        path
    }
}
