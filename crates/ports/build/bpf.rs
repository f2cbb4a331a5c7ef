//! Compiles the BPF program of AF_XDP ports with clang, into `steer.o` of the build's output folder.

use std::path::Path;
use std::process::Command;

const SOURCE: &str = "bpf/steer.c";

/// Compiles; ends the build with what to do when that cannot be.
pub(crate) fn build() {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = std::env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let out = std::env::var_os("OUT_DIR").expect("cargo says where the output goes");
    let mut command = Command::new(&clang);
    command
        .args(["-target", "bpf", "-mcpu=v2", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-c", SOURCE, "-o"]);
    command.arg(Path::new(&out).join("steer.o"));
    // Debian keeps <asm/types.h> in the folder of the machine's name, where clang does not look for another target.
    if let Ok(machine) = std::env::var("CARGO_CFG_TARGET_ARCH") {
        command.arg(format!("-I/usr/include/{machine}-linux-gnu"));
    }
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!(
            "{} could not compile {SOURCE} for BPF ({status}); clang 11 or newer and the kernel's headers are needed: \
             `apt install clang linux-libc-dev`",
            clang.display()
        ),
        Err(error) => panic!(
            "{} cannot be run: {error}; the BPF program of AF_XDP ports is compiled with it: `apt install clang`, or \
             name another one in CLANG",
            clang.display()
        ),
    }
}
