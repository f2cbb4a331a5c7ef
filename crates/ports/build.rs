//! What has to be compiled beside Rust: the BPF program of AF_XDP ports, and with the feature `dpdk` the shim around
//! DPDK's inline functions.

#[path = "build/bpf.rs"]
mod bpf;
#[cfg(feature = "dpdk")]
#[path = "build/dpdk.rs"]
mod dpdk;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    bpf::build();
    #[cfg(feature = "dpdk")]
    dpdk::build();
}
