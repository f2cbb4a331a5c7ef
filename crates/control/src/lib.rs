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
//! | [`change`] | what can change: links, addresses, routes, next-hop objects, neighbours, rules; plain data |
//! | [`netlink`] | messages of rtnetlink from and to bytes; the kernel's state, dumped and followed |
//! | [`fpm`] | the server for FRR's forwarding plane manager protocol |
//! | [`mirror`] | from changes to routes and next hops of the forwarding tables |

#![forbid(unsafe_code)]

pub mod change;
