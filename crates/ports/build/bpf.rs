//! Compiles the BPF programs of `bpf/` with clang, each into an object of the same name in the build's output folder.

use std::path::Path;
use std::process::Command;

const PROGRAMS: &[&str] = &["steer_xdp", "steer_skb", "host"];

/// Compiles; ends the build with what to do when that cannot be.
pub(crate) fn build() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    PROGRAMS.iter().for_each(|program| compile(program));
}

fn compile(program: &str) {
    let source = format!("bpf/{program}.c");
    let clang = std::env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let out = std::env::var_os("OUT_DIR").expect("cargo says where the output goes");
    let mut command = Command::new(&clang);
    command.args([
        "-target", "bpf", "-mcpu=v2", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-c", &source, "-o",
    ]);
    command.arg(Path::new(&out).join(format!("{program}.o")));
    // Debian keeps <asm/types.h> in the folder of the machine's name, where clang does not look for another target.
    if let Ok(machine) = std::env::var("CARGO_CFG_TARGET_ARCH") {
        command.arg(format!("-I/usr/include/{machine}-linux-gnu"));
    }
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!(
            "{} could not compile {source} for BPF ({status}); clang 11 or newer and the kernel's headers are needed: \
             `apt install clang linux-libc-dev`",
            clang.display()
        ),
        Err(error) => panic!(
            "{} cannot be run: {error}; the BPF programs of ports are compiled with it: `apt install clang`, or name \
             another one in CLANG",
            clang.display()
        ),
    }
}
