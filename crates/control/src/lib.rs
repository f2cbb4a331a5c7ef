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
//! | `above` | which interfaces stand above others, so that their packets came in by these |
//! | [`accounts`] | users and groups of this machine |
//! | [`api`] | the control socket: what `brickway show` asks a running router, and the answers |
//! | [`backstop`] | rules of nftables that drop what Linux would forward past the router's filters |
//! | [`change`] | what can change: links, addresses, routes, next-hop objects, neighbours, rules; plain data |
//! | [`cluster`] | many servers, one router: what the leader tells the nodes, and what they make of it |
//! | [`doors`] | who is at the other end of a connection, and how many each may have |
//! | [`drift`] | whether the mirror has the routes that Linux has |
//! | [`netlink`] | messages of rtnetlink from and to bytes; the kernel's state, dumped and followed |
//! | [`fpm`] | the server for FRR's forwarding plane manager protocol |
//! | [`esp_hooks`] | ESP of Linux's, caught before it leaves or is opened, for us to judge or replace |
//! | `interner` | what many routes have in common, once: for the mirror and for what a leader has told |
//! | [`mirror`] | from changes to routes and next hops of the forwarding tables |
//! | `netfilter` | tables of nftables: their rules, and the transactions that make and remove them |
//! | `port_names` | which interface of Linux a port is, however that is renamed |
//! | [`store`] | the key-value store behind a cluster: etcd, or one that a node hosts itself |
//! | [`service`] | the control thread that drives all of it |
//! | [`supervisor`] | watches the threads: one that has ended or hangs ends the router |

#![forbid(unsafe_code)]
// A reader that went away must not end the router.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod above;
pub mod accounts;
pub mod api;
pub mod backstop;
mod bounded;
pub mod change;
pub mod cluster;
pub mod doors;
pub mod drift;
pub mod esp_hooks;
pub mod fpm;
mod interner;
pub mod mirror;
mod netfilter;
pub mod netlink;
mod port_names;
mod readiness;
pub mod service;
pub mod store;
pub mod supervisor;
pub mod switches;
