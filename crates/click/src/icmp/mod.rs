//! Ping, of both versions.

mod icmp6_ping_responder;
mod icmp_ping_encap;
mod icmp_ping_responder;
mod icmp_ping_source;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &icmp6_ping_responder::CLASS,
    &icmp_ping_encap::ANY,
    &icmp_ping_encap::CLASS,
    &icmp_ping_responder::CLASS,
    &icmp_ping_source::CLASS,
];
