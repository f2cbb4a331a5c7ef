//! Ethernet headers, ARP and neighbour discovery.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `querier` and its parts `address`, `next_hop_cache`, `neighbour_table`, `waiting_room` | resolution of next hops |
//! | `arp_querier`, `ip6_nd_solicitor` | its two protocols |
//! | `address_owners` | the tables of `arp_responder` and `ip6_nd_advertiser` |
//! | `arp_frame`, `nd_frame` | ARP and neighbour discovery in Ethernet frames, read and written |
//! | the others | one element each |

mod address;
mod address_owners;
mod arp_advertiser;
mod arp_faker;
mod arp_frame;
mod arp_print;
mod arp_querier;
mod arp_responder;
mod arp_table;
mod check_arp_header;
mod ensure_ether;
mod ether_mirror;
mod ether_pause_source;
mod ether_rewrite;
mod ether_switch;
mod ether_vlan_encap;
mod get_ether_address;
mod ip6_nd_advertiser;
mod ip6_nd_solicitor;
pub mod nd_frame;
mod neighbour_table;
mod next_hop_cache;
mod querier;
mod set_ether_address;
mod set_vlan_anno;
mod store_ether_address;
mod strip_ether_vlan_header;
mod waiting_room;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &arp_advertiser::CLASS,
    &arp_faker::CLASS,
    &arp_print::CLASS,
    &arp_querier::CLASS,
    &arp_responder::CLASS,
    &arp_table::CLASS,
    &check_arp_header::CLASS,
    &ensure_ether::CLASS,
    &ether_mirror::CLASS,
    &ether_pause_source::CLASS,
    &ether_rewrite::CLASS,
    &ether_switch::CLASS,
    &ether_vlan_encap::CLASS,
    &get_ether_address::CLASS,
    &ip6_nd_advertiser::CLASS,
    &ip6_nd_solicitor::CLASS,
    &ether_switch::LISTENING,
    &set_ether_address::CLASS,
    &set_vlan_anno::CLASS,
    &store_ether_address::CLASS,
    &strip_ether_vlan_header::CLASS,
];
