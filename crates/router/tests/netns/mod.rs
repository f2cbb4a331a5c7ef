//! A drop-in router and a cluster, each in network namespaces, for the tests of both.

#![allow(dead_code, unused_imports, reason = "each test program uses its part of this")]

pub(crate) mod cluster;
pub(crate) mod router;

pub(crate) use testbed::{Network, Running, eventually, is_root, reply_number};
