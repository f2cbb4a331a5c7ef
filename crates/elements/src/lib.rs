//! The elements of the router's own graphs, those of `brickway run PORT...` and of a cluster's nodes, and what classes of other
//! crates share with them: one file an element, in folders by subject.
//!
//! | folder | what lives there |
//! | --- | --- |
//! | [`devices`] | ports and the host |
//! | [`ethernet`] | Ethernet headers, VLAN tags |
//! | [`ip`] | IPv4 headers, fragments, options |
//! | [`ip6`] | IPv6 headers |
//! | [`icmp`] | ICMP errors |
//! | [`lookup`] | forwarding by the router's tables, sources that are believed |
//! | [`acl`] | access control lists |
//! | [`ipsec`](mod@ipsec) | IPsec: policies, ESP |
//! | [`classifying`] | Classifier, CheckLength |
//! | [`decision`] | Click's languages of tests on packets, compiled to a decision program |
//! | `first_match` | the first of many rules by classes of fields, for `acl` and `decision` |
//! | [`marking`] | annotations and bytes: Paint, Strip |
//! | [`runs`] | what elements of a router do to plain packets, fused |
//! | [`token_bucket`] | the token bucket of rates |
//! | [`sources`] | Discard, Idle |
//! | [`switching`] | one way in, several out: PaintSwitch, Tee |
//! | [`fabric`] | links to the other servers of a cluster |
//!
//! Each folder's `mod.rs` lists its classes; [`registry`] is all of them. The Click library adds the others.

#![cfg_attr(not(test), forbid(unsafe_code))]
// A reader that went away must not end the router: `graph::messages` writes.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]
#![allow(
    rustdoc::invalid_html_tags,
    rustdoc::broken_intra_doc_links,
    reason = "the manuals at the top of the elements' files are in Click's markup, for `brickway help`"
)]

pub mod acl;
pub mod classifying;
pub mod decision;
pub mod devices;
pub mod ethernet;
pub mod fabric;
mod first_match;
pub mod icmp;
pub mod ip;
pub mod ip6;
pub mod ipsec;
pub mod lookup;
pub mod marking;
pub mod runs;
pub mod sources;
pub mod switching;
pub mod token_bucket;

use graph::graph::Registry;

/// All classes of this library, and those that the graph itself brings.
pub fn registry() -> Registry {
    graph::names::set_interfaces(devices::interface_addresses);
    let mut registry = Registry::new();
    for classes in [
        sources::CLASSES,
        switching::CLASSES,
        marking::CLASSES,
        classifying::CLASSES,
        ethernet::CLASSES,
        ip::CLASSES,
        ip6::CLASSES,
        icmp::CLASSES,
        lookup::CLASSES,
        acl::CLASSES,
        self::ipsec::CLASSES,
        fabric::CLASSES,
        devices::CLASSES,
    ] {
        registry.add(classes);
    }
    registry
}
