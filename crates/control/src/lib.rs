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
//! | [`api`] | the control socket: what `brickway show` asks a running router, and the answers |
//! | [`change`] | what can change: links, addresses, routes, next-hop objects, neighbours, rules; plain data |
//! | [`netlink`] | messages of rtnetlink from and to bytes; the kernel's state, dumped and followed |
//! | [`fpm`] | the server for FRR's forwarding plane manager protocol |
//! | [`mirror`] | from changes to routes and next hops of the forwarding tables |
//! | [`service`] | the control thread that drives all of it |

#![forbid(unsafe_code)]

pub mod api;
pub mod change;
pub mod fpm;
pub mod mirror;
pub mod netlink;
mod readiness;
pub mod service;
