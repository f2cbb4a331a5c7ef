//! ICMP errors, ping.

mod check_icmp_header;
mod icmp_error;
mod icmp_ping_encap;
mod icmp_ping_responder;
mod icmp_ping_source;
pub(crate) mod names;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &check_icmp_header::CLASS,
    &icmp_error::CLASS,
    &icmp_ping_encap::CLASS,
    &icmp_ping_responder::CLASS,
    &icmp_ping_source::CLASS,
];
