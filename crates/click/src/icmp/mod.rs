//! Ping, of both versions.

mod check_icmp_header;
mod icmp6_ping_responder;
mod icmp_ip_encap;
mod icmp_ping_encap;
mod icmp_ping_responder;
mod icmp_ping_source;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &check_icmp_header::CLASS,
    &icmp6_ping_responder::CLASS,
    &icmp_ip_encap::CLASS,
    &icmp_ping_encap::CLASS,
    &icmp_ping_responder::CLASS,
    &icmp_ping_source::CLASS,
];
