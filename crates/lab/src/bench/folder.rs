//! A folder for the temporary files of a bench.

use anyhow::{Context, Result};
use tempfile::TempDir;

/// Makes a folder that nobody else may enter, for benches run programs out of it; removed at the end.
pub(super) fn folder() -> Result<TempDir> {
    tempfile::Builder::new().prefix("brickway-bench-").tempdir().context("cannot make a temporary folder")
}
