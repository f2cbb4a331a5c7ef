//! The control plane: what Linux and the routing daemons know is brought into the forwarding tables of the workers.
//!
//! ```text
//!  kernel -- netlink --> netlink::Kernel --\
//!                                           Change -> mirror::Mirror -> fib::Fib -> workers
//!  FRR ------- FPM ----> fpm::Server ------/
//! ```
//!
//! | module | what lives there |
//! | --- | --- |
//! | `accounts` | users and groups of this machine |
//! | [`api`] | the control socket: what `brickway show` asks a running router, and the answers |
//! | [`change`] | what can change: links, addresses, routes, next-hop objects, neighbours, rules; plain data |
//! | [`cluster`] | many servers, one router: what the leader tells the nodes, and what they make of it |
//! | [`netlink`] | messages of rtnetlink from and to bytes; the kernel's state, dumped and followed |
//! | [`fpm`] | the server for FRR's forwarding plane manager protocol |
//! | [`mirror`] | from changes to routes and next hops of the forwarding tables |
//! | [`store`] | the key-value store behind a cluster: etcd, or one that a node hosts itself |
//! | [`service`] | the control thread that drives all of it |

#![forbid(unsafe_code)]

mod accounts;
pub mod api;
pub mod change;
pub mod cluster;
pub mod fpm;
pub mod mirror;
pub mod netlink;
mod readiness;
pub mod service;
pub mod store;
