//! IPv6 headers.

mod address_list;
mod check_ip6_header;
mod check_ip6_scope;
mod dec_ip6_hlim;
mod get_ip6_address;
mod mark_ip6_header;
#[cfg(test)]
pub(crate) mod samples;

pub(crate) use address_list::AddressList6;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &check_ip6_header::CLASS,
    &check_ip6_scope::CLASS,
    &dec_ip6_hlim::CLASS,
    &get_ip6_address::CLASS,
    &mark_ip6_header::CLASS,
];
