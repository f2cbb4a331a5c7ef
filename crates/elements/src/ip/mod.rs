//! IPv4 headers, fragments and options.

mod addresses;
mod check_ip_header;
mod check_ip_header_2;
mod check_tcp_header;
mod check_udp_header;
#[cfg(test)]
mod conservation;
mod dec_ip_ttl;
mod drop_broadcasts;
mod fix_ip_src;
mod get_ip_address;
mod ip_encap;
mod ip_fragmenter;
mod ip_gw_options;
mod ip_print;
mod ip_reassembler;
mod mark_ip_header;
mod rejects;
#[cfg(test)]
pub(crate) mod samples;
mod set_ip_address;
mod set_ip_checksum;
mod set_ip_dscp;
mod store_ip_address;
mod strip_ip_header;
mod udp_ip_encap;

pub(crate) use addresses::{AddressList, OctetSet};
pub(crate) use rejects::Rejects;
pub(crate) use udp_ip_encap::prepend_header;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &check_ip_header::CLASS,
    &check_ip_header_2::CLASS,
    &check_tcp_header::CLASS,
    &check_udp_header::CLASS,
    &dec_ip_ttl::CLASS,
    &drop_broadcasts::CLASS,
    &fix_ip_src::CLASS,
    &get_ip_address::CLASS,
    &ip_encap::CLASS,
    &ip_fragmenter::CLASS,
    &ip_gw_options::CLASS,
    &ip_print::CLASS,
    &ip_reassembler::CLASS,
    &mark_ip_header::CLASS,
    &set_ip_address::CLASS,
    &set_ip_checksum::CLASS,
    &set_ip_dscp::CLASS,
    &store_ip_address::CLASS,
    &strip_ip_header::CLASS,
    &udp_ip_encap::CLASS,
];
