//! Compiles the shim around DPDK's inline functions and names the libraries to link, as pkg-config gives them.

use std::process::Command;

/// The release of DPDK that the shim is written for, as in Debian 12.
const RELEASE: &str = "22.11";

pub(crate) fn build() {
    for file in ["shim/dpdk.c", "shim/dpdk.h", "build/dpdk.rs"] {
        println!("cargo::rerun-if-changed={file}");
    }
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    let version = pkg_config("--modversion");
    if !version.trim().starts_with(RELEASE) {
        fail(&format!(
            "the feature `dpdk` is written for libdpdk {RELEASE}, and {} is installed",
            version.trim()
        ));
    }
    let mut compiler = cc::Build::new();
    compiler.file("shim/dpdk.c").opt_level(3).warnings(true).extra_warnings(true).warnings_into_errors(true);
    // Debian's flags name the oldest processor that its DPDK runs on; the shim's own loops gain nothing from a newer.
    for flag in pkg_config("--cflags").split_whitespace() {
        match flag.strip_prefix("-I") {
            Some(folder) => compiler.flag(format!("-isystem{folder}")),
            None => compiler.flag(flag),
        };
    }
    compiler.compile("brickway_dpdk");
    for flag in pkg_config("--libs").split_whitespace() {
        if let Some(folder) = flag.strip_prefix("-L") {
            println!("cargo::rustc-link-search=native={folder}");
        }
        // Of the many libraries the linker keeps those that are used (--as-needed is rustc's own flag).
        if let Some(library) = flag.strip_prefix("-l").filter(|library| library.starts_with("rte_")) {
            println!("cargo::rustc-link-lib=dylib={library}");
        }
    }
}

fn pkg_config(question: &str) -> String {
    match Command::new("pkg-config").args([question, "libdpdk"]).output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(output) => fail(String::from_utf8_lossy(&output.stderr).trim()),
        Err(error) => fail(&format!("pkg-config cannot be run: {error}")),
    }
}

fn fail(problem: &str) -> ! {
    println!(
        "cargo::error=the feature `dpdk` needs DPDK {RELEASE}: on Debian `apt install libdpdk-dev pkg-config`, or \
         build without the feature ({})",
        problem.lines().next().unwrap_or_default()
    );
    std::process::exit(1);
}
