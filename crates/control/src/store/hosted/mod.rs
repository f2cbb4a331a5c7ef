//! A store in the memory of one node, for fixed clusters without etcd. It behaves as etcd does; what it does not do is outlive
//! its process.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `memory` | keys, sessions and history; no I/O, no clock of its own |
//! | `guard` | who may speak: proofs of the cluster's key, tags of messages |
//! | `messages` | what client and server say to each other over TCP |
//! | `server` | many clients, one memory |
//! | `client` | one connection, made again whenever it is lost |

mod client;
mod guard;
mod memory;
mod messages;
mod server;

pub(super) use client::Client;
#[cfg(any(test, feature = "testing"))]
pub(super) use server::hears;
pub(super) use server::host;
