//! Compiles the shim around DPDK.

pub(crate) fn build() {}
