//! Ethernet headers and VLAN tags: read, checked, put before packets, taken off.

mod ether_encap;
pub mod header;
mod host_ether_filter;
mod vlan_decap;
pub mod vlan_encap;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] =
    &[&ether_encap::CLASS, &host_ether_filter::CLASS, &vlan_decap::CLASS, &vlan_encap::CLASS];
