//! IPv6 headers.

mod check_ip6_scope;
mod ip6_print;
mod set_ip6_address;
mod set_ip6_dscp;
mod udp_ip6_encap;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &check_ip6_scope::CLASS,
    &ip6_print::CLASS,
    &set_ip6_address::CLASS,
    &set_ip6_dscp::CLASS,
    &udp_ip6_encap::CLASS,
];
