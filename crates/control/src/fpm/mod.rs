//! The server side of FRR's forwarding plane manager (FPM): zebra connects to it and sends its routes and
//! next-hop objects, those of every protocol, as they change. Tested with FRR 8.4's module `dplane_fpm_nl`:
//!
//! ```text
//! zebra -M dplane_fpm_nl     and in its configuration: fpm address 127.0.0.1
//! ```
//!
//! | file | what lives there |
//! | --- | --- |
//! | `server` | [`Server`]: the socket, one peer at a time, its events |
//! | `stream` | [`Stream`]: from bytes to changes, and what is wrong with them |
//!
//! **The protocol.** Each message has a header of four bytes (version 1, type 1 for netlink, the length with
//! the header, big end first) and messages of rtnetlink behind it, two when a route is replaced:
//! `RTM_DELROUTE`, `RTM_NEWROUTE`. Nothing is ever sent back: not to read is the only way to slow zebra down,
//! and it waits.
//!
//! **What zebra sends** differs in places from the kernel: the metric of every route is 20; next-hop groups
//! may come before their members, and so may routes before their objects; `RTM_DELROUTE` names the key only;
//! a connected network is a route to an object without a gateway; the host's own addresses are not there. A
//! static route of another table than main was not sent again on connecting.
//!
//! **After a restart.** zebra sends everything when it connects, and nothing says that it is done. A zebra
//! that was restarted begins with what it found in the kernel; then come the routes of each daemon as it
//! connects to the new zebra (staticd after some ten seconds, `zclient.c`) and has converged. So what was
//! known is kept, and taken to be told again when nothing came for a while: [`Event::ReplayEnds`] after
//! [`ServerOptions::quiet`]. Too short a time costs a short outage of the routes that come later, too long a
//! one keeps routes that are gone.
//!
//! **Who may connect.** The protocol knows no authentication, so the kernel is asked whose the connection is: root's, FRR's and
//! those of users that are named may make routes ([`Peers`]). Programs of other hosts may not, unless anybody may.

mod server;
mod stream;
#[cfg(test)]
mod tests;

pub use server::{Counters, Event, Peers, Server, ServerOptions};
pub use stream::{EndReason, Stream};
