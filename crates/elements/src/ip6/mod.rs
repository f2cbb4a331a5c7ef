//! IPv6 headers.

mod address_list;
pub(crate) mod check_ip6_header;
pub(crate) mod dec_ip6_hlim;
mod get_ip6_address;
mod ip6_hop_options;
mod mark_ip6_header;

pub use address_list::AddressList6;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &check_ip6_header::CLASS,
    &dec_ip6_hlim::CLASS,
    &get_ip6_address::CLASS,
    &ip6_hop_options::CLASS,
    &mark_ip6_header::CLASS,
];
