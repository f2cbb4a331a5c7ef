//! IPv4 headers, fragments and options.

mod addresses;
pub mod check_ip_header;
pub mod dec_ip_ttl;
mod drop_broadcasts;
pub mod get_ip_address;
mod ip_fragmenter;
pub mod ip_gw_options;
mod mark_ip_header;
pub mod rejects;
pub mod set_ip_dscp;

pub use addresses::AddressList;
pub(crate) use rejects::MARTIAN;
pub use rejects::Rejects;
pub use set_ip_dscp::CodePoint;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &check_ip_header::CLASS,
    &dec_ip_ttl::CLASS,
    &drop_broadcasts::CLASS,
    &get_ip_address::CLASS,
    &ip_fragmenter::CLASS,
    &ip_gw_options::CLASS,
    &mark_ip_header::CLASS,
    &set_ip_dscp::CLASS,
];
