//! Where the router's program is: beside this one.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// Finds the program `brickway`.
pub(crate) fn router() -> Result<PathBuf> {
    let this = std::env::current_exe().context("cannot find this program's own file")?;
    let program = this.with_file_name("brickway");
    if !program.is_file() {
        bail!("{}: not found; expected the router beside this program: run 'make build'", program.display());
    }
    Ok(program)
}
