//! IPv4 headers, fragments and options.

mod check_gre_header;
mod check_ip_header_2;
mod check_transport_header;
#[cfg(test)]
mod conservation;
mod fix_ip_src;
mod gre;
mod gre_encap;
pub(crate) mod header_check;
mod ip_encap;
mod ip_input_combo;
mod ip_mirror;
mod ip_output_combo;
mod ip_print;
mod ip_reassembler;
mod mark_ip_ce;
mod set_ip_address;
mod set_ip_checksum;
mod set_ip_ecn;
mod set_transport_checksum;
mod store_ip_address;
mod strip_gre_header;
mod strip_ip_header;
mod strip_tcp_header;
mod udp_ip_encap;

pub(crate) use ip_encap::Protocol;
pub(crate) use ip_print::{Contents, write_bytes};
pub(crate) use udp_ip_encap::{NO_ROOM, prepend_header};

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &check_gre_header::CLASS,
    &check_ip_header_2::CLASS,
    &check_transport_header::TCP,
    &check_transport_header::UDP,
    &check_transport_header::ICMP,
    &udp_ip_encap::DYNAMIC,
    &fix_ip_src::CLASS,
    &gre_encap::CLASS,
    &ip_encap::CLASS,
    &ip_input_combo::CLASS,
    &ip_mirror::CLASS,
    &ip_mirror::IP6,
    &ip_output_combo::CLASS,
    &ip_print::CLASS,
    &ip_reassembler::CLASS,
    &mark_ip_ce::CLASS,
    &set_ip_address::CLASS,
    &set_ip_checksum::CLASS,
    &set_ip_ecn::CLASS,
    &set_transport_checksum::TCP,
    &set_transport_checksum::UDP,
    &store_ip_address::CLASS,
    &strip_gre_header::CLASS,
    &strip_ip_header::CLASS,
    &strip_tcp_header::CLASS,
    &udp_ip_encap::CLASS,
    &strip_ip_header::UNDO,
];
