//! ICMP errors and ping, of both versions.

mod check_icmp_header;
mod error_rate;
mod error_source;
mod icmp6_error;
mod icmp6_names;
mod icmp6_ping_responder;
mod icmp_error;
mod icmp_ip_encap;
mod icmp_ping_encap;
mod icmp_ping_responder;
mod icmp_ping_source;
pub(crate) mod names;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &check_icmp_header::CLASS,
    &icmp6_error::CLASS,
    &icmp6_ping_responder::CLASS,
    &icmp_error::CLASS,
    &icmp_ip_encap::CLASS,
    &icmp_ping_encap::CLASS,
    &icmp_ping_responder::CLASS,
    &icmp_ping_source::CLASS,
];
