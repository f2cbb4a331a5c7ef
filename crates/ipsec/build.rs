//! Compiles the shim around intel-ipsec-mb where that library is there. Without it aws-lc-rs does all the work.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=shim");
    println!("cargo::rustc-check-cfg=cfg(multi_buffer)");
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        return;
    }
    let mut build = cc::Build::new();
    build.file("shim/multi_buffer.c").opt_level(3).warnings(true).flag("-Werror").cargo_warnings(false);
    match build.try_compile("brickway_multi_buffer") {
        Ok(()) => {
            println!("cargo::rustc-link-lib=IPSec_MB");
            println!("cargo::rustc-cfg=multi_buffer");
        }
        Err(_) => println!(
            "cargo::warning=intel-ipsec-mb: not found, so IPsec will be slower; run 'apt install libipsec-mb-dev' and build again"
        ),
    }
}
