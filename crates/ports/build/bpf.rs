//! Compiles the BPF programs of AF_XDP ports with clang.

pub(crate) fn build() {}
