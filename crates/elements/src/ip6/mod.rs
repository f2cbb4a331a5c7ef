//! IPv6 headers.

mod address_list;
mod check_ip6_header;
mod check_ip6_scope;
mod dec_ip6_hlim;
mod get_ip6_address;
mod ip6_hop_options;
mod ip6_mirror;
mod ip6_print;
mod mark_ip6_header;
#[cfg(test)]
pub(crate) mod samples;
mod set_ip6_address;
mod set_ip6_dscp;
mod udp_ip6_encap;

pub(crate) use address_list::AddressList6;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &check_ip6_header::CLASS,
    &check_ip6_scope::CLASS,
    &dec_ip6_hlim::CLASS,
    &get_ip6_address::CLASS,
    &ip6_hop_options::CLASS,
    &ip6_mirror::CLASS,
    &ip6_print::CLASS,
    &mark_ip6_header::CLASS,
    &set_ip6_address::CLASS,
    &set_ip6_dscp::CLASS,
    &udp_ip6_encap::CLASS,
];
