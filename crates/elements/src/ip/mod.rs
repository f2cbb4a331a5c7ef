//! IPv4 headers, fragments and options.

mod addresses;
mod check_gre_header;
mod check_ip_header;
mod check_ip_header_2;
mod check_tcp_header;
mod check_udp_header;
#[cfg(test)]
mod conservation;
mod dec_ip_ttl;
mod drop_broadcasts;
mod dynamic_udp_ip_encap;
mod fix_ip_src;
mod get_ip_address;
mod gre;
mod gre_encap;
mod ip_encap;
mod ip_fragmenter;
mod ip_gw_options;
mod ip_input_combo;
pub(crate) mod ip_mirror;
mod ip_output_combo;
mod ip_print;
mod ip_reassembler;
mod mark_ip_ce;
mod mark_ip_header;
mod rejects;
mod reset_ip_checksum;
#[cfg(test)]
pub(crate) mod samples;
mod segment;
mod set_ip_address;
mod set_ip_checksum;
mod set_ip_dscp;
mod set_ip_ecn;
mod set_tcp_checksum;
mod set_udp_checksum;
mod store_ip_address;
mod strip_gre_header;
mod strip_ip_header;
mod strip_tcp_header;
mod udp_ip_encap;
mod unstrip_ip_header;

pub(crate) use addresses::AddressList;
pub(crate) use ip_print::{Contents, write_bytes};
pub(crate) use rejects::{MARTIAN, Rejects, list_text};
pub(crate) use set_ip_dscp::CodePoint;
pub(crate) use udp_ip_encap::{NO_ROOM, prepend_header};

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &check_gre_header::CLASS,
    &check_ip_header::CLASS,
    &check_ip_header_2::CLASS,
    &check_tcp_header::CLASS,
    &check_udp_header::CLASS,
    &dec_ip_ttl::CLASS,
    &drop_broadcasts::CLASS,
    &dynamic_udp_ip_encap::CLASS,
    &fix_ip_src::CLASS,
    &get_ip_address::CLASS,
    &gre_encap::CLASS,
    &ip_encap::CLASS,
    &ip_fragmenter::CLASS,
    &ip_gw_options::CLASS,
    &ip_input_combo::CLASS,
    &ip_mirror::CLASS,
    &ip_output_combo::CLASS,
    &ip_print::CLASS,
    &ip_reassembler::CLASS,
    &mark_ip_ce::CLASS,
    &mark_ip_header::CLASS,
    &reset_ip_checksum::CLASS,
    &set_ip_address::CLASS,
    &set_ip_checksum::CLASS,
    &set_ip_dscp::CLASS,
    &set_ip_ecn::CLASS,
    &set_tcp_checksum::CLASS,
    &set_udp_checksum::CLASS,
    &store_ip_address::CLASS,
    &strip_gre_header::CLASS,
    &strip_ip_header::CLASS,
    &strip_tcp_header::CLASS,
    &udp_ip_encap::CLASS,
    &unstrip_ip_header::CLASS,
];
