//! Click's other classes: what a configuration may use beyond the elements of the router's own graphs (`brickway-elements`).
//! This crate adds its classes to a registry as any other crate would; one file an element, with all of its classes, in folders by
//! subject.
//!
//! | folder | what lives there |
//! | --- | --- |
//! | [`sources`] | where packets begin and end: sources, timed sinks |
//! | [`queues`] | queues, schedulers, and what moves packets out of queues |
//! | [`switching`] | one way in, several out: Switch and its kin |
//! | [`marking`] | annotations and bytes: Counter, Print, Truncate, ... |
//! | [`shaping`] | rates and queue management: Shaper, Meter, RED |
//! | [`classifying`] | IPClassifier, IPFilter |
//! | [`ethernet`] | Ethernet headers, ARP and neighbour discovery |
//! | [`ip`] | IPv4 headers, reassembly, tunnels |
//! | [`ip6`] | IPv6 headers |
//! | [`mod@ipsec`] | Click's IPsec |
//! | [`icmp`] | ping |
//! | [`lookup`] | routes of a configuration's own |
//! | [`nat`] | translation of addresses and ports |
//! | [`control`] | Script and what else reads and writes handlers |
//! | [`devices`] | files, sockets and the host |
//! | [`analysis`] | measuring traffic: counts by aggregate, flows, times |
//! | [`summary`] | packets as lines of text, written and read |
//! | `each_packet` | the element behind classes that do the same to each packet |
//!
//! Each folder's `mod.rs` lists its classes; [`registry`] is all of them and the router's.

#![cfg_attr(not(test), forbid(unsafe_code))]
// A reader that went away must not end the router: `graph::messages` writes.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]
#![allow(
    rustdoc::invalid_html_tags,
    rustdoc::broken_intra_doc_links,
    reason = "the manuals at the top of the elements' files are in Click's markup, for `brickway help`"
)]

pub mod analysis;
pub mod classifying;
pub mod control;
pub mod devices;
mod each_packet;
pub mod ethernet;
pub mod icmp;
pub mod ip;
pub mod ip6;
pub mod ipsec;
pub mod lookup;
pub mod marking;
pub mod nat;
pub mod queues;
pub mod shaping;
pub mod sources;
pub mod summary;
pub mod switching;

use graph::graph::Registry;

/// Returns the classes of this library, those of the router, and those that the graph itself brings.
pub fn registry() -> Registry {
    let mut registry = elements::registry();
    for classes in [
        sources::CLASSES,
        queues::CLASSES,
        switching::CLASSES,
        marking::CLASSES,
        shaping::CLASSES,
        classifying::CLASSES,
        ethernet::CLASSES,
        ip::CLASSES,
        ip6::CLASSES,
        ipsec::CLASSES,
        icmp::CLASSES,
        lookup::CLASSES,
        devices::CLASSES,
        control::CLASSES,
        analysis::CLASSES,
        summary::CLASSES,
        nat::CLASSES,
    ] {
        registry.add(classes);
    }
    registry
}
