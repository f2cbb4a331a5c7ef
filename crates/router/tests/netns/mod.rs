//! A drop-in router, a cluster and IPsec gateways, each in network namespaces, for their tests.

#![allow(dead_code, unused_imports, reason = "each test program uses its part of this")]

pub(crate) mod cluster;
pub(crate) mod ipsec;
pub(crate) mod router;
pub(crate) mod wire;

pub(crate) use testbed::{Network, Running, eventually, is_root, reply_number};
