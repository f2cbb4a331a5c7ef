//! Where programs are: the router's beside this one, others in PATH.

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

/// Returns whether a program is installed, also one that only root has in its PATH.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")])
        .any(|folder| folder.join(program).is_file())
}
