//! Compiles the BPF programs of `bpf/` with clang, into objects in the build's output folder.

use std::path::Path;
use std::process::Command;

/// The programs: object, source, and further arguments of the compiler.
const PROGRAMS: &[(&str, &str, &[&str])] = &[
    ("steer", "steer", &["-mcpu=v2"]),
    ("steer_skb", "steer_skb", &["-mcpu=v2"]),
    ("host", "host", &["-mcpu=v2"]),
    ("losses", "losses", &["-mcpu=v3"]),
    ("relay", "relay", &["-mcpu=v3"]),
    ("flood", "flood", &["-mcpu=v3"]),
    // Atomic additions that return a value are in the third version. A map has the size that is compiled in.
    ("forward_16", "forward", &["-mcpu=v3", "-DTABLE_BYTES=0x1000000"]),
    ("forward_32", "forward", &["-mcpu=v3", "-DTABLE_BYTES=0x2000000"]),
    ("forward_64", "forward", &["-mcpu=v3", "-DTABLE_BYTES=0x4000000"]),
    ("forward_128", "forward", &["-mcpu=v3", "-DTABLE_BYTES=0x8000000"]),
    ("forward_256", "forward", &["-mcpu=v3", "-DTABLE_BYTES=0x10000000"]),
    // For tests of publication.
    ("forward_slow", "forward", &["-mcpu=v3", "-DTABLE_BYTES=0x1000000", "-DSLOW=32", "-DSTAY=50000"]),
    (
        "forward_careless",
        "forward",
        &["-mcpu=v3", "-DTABLE_BYTES=0x1000000", "-DSLOW=1", "-DSTAY=5000000", "-DCARELESS"],
    ),
];

/// Compiles; ends the build with what to do when that cannot be.
pub(crate) fn build() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    PROGRAMS.iter().for_each(|(object, source, options)| compile(object, source, options));
}

fn compile(object: &str, source: &str, options: &[&str]) {
    let source = format!("bpf/{source}.c");
    let clang = std::env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let out = std::env::var_os("OUT_DIR").expect("cargo says where the output goes");
    let mut command = Command::new(&clang);
    command.args(options);
    command.args(["-target", "bpf", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-c", &source, "-o"]);
    command.arg(Path::new(&out).join(format!("{object}.o")));
    // Names of sources in the objects do not depend on the folder of the project.
    let folder = std::env::current_dir().expect("cargo runs this in the folder of the crate");
    command.arg(format!("-ffile-prefix-map={}=/usr/src/brickway/crates/ports", folder.display()));
    // Debian keeps <asm/types.h> in the folder of the machine's name, where clang does not look for another target.
    if let Ok(machine) = std::env::var("CARGO_CFG_TARGET_ARCH") {
        command.arg(format!("-I/usr/include/{machine}-linux-gnu"));
    }
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!(
            "{} could not compile {source} for BPF ({status}); clang 12 or newer and the kernel's headers are needed: \
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
