//! IPv6 headers.

mod get_ip6_address;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[&get_ip6_address::CLASS];
