//! The element library: one file an element, in folders by subject.
//!
//! | folder | what lives there |
//! | --- | --- |
//! | [`sources`] | where packets begin and end: sources, Discard, Idle |
//! | [`queues`] | queues, schedulers, and what moves packets out of queues |
//! | [`switching`] | one way in, several out: Tee, Switch and their kin |
//! | [`marking`] | annotations and bytes: Paint, Strip, Counter, Print |
//! | [`shaping`] | rates and queue management: Shaper, Meter, RED |
//! | [`classifying`] | Classifier, IPClassifier, IPFilter |
//! | [`decision`] | the languages of these three, compiled to a decision program |
//! | [`ethernet`] | Ethernet headers, ARP |
//! | [`ip`] | IPv4 headers, fragments, options |
//! | [`ip6`] | IPv6 headers |
//! | [`icmp`] | ICMP errors, ping |
//! | [`lookup`] | IP route lookup |
//! | `first_match` | the first of many rules by classes of fields, for `acl` and `decision` |
//! | [`nat`] | translation of addresses and ports |
//! | [`acl`] | access control lists |
//! | [`fabric`] | links to the other servers of a cluster |
//! | [`control`] | Script and what else reads and writes handlers |
//! | [`devices`] | ports, files and the host |
//! | [`analysis`] | measuring traffic: counts by aggregate, flows, times |
//! | [`summary`] | packets as lines of text, written and read |
//!
//! Each folder's `mod.rs` lists its classes; [`registry`] is all of them.

#![cfg_attr(not(test), forbid(unsafe_code))]
// A reader that went away must not end the router: `graph::messages` writes.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]
#![allow(
    rustdoc::invalid_html_tags,
    rustdoc::broken_intra_doc_links,
    reason = "the manuals at the top of the elements' files are in Click's markup, for `brickway help`"
)]

pub mod acl;
pub mod analysis;
pub mod classifying;
pub mod control;
pub mod decision;
pub mod devices;
pub mod ethernet;
pub mod fabric;
mod first_match;
pub mod icmp;
pub mod ip;
pub mod ip6;
pub mod lookup;
pub mod marking;
pub mod nat;
pub mod queues;
pub mod shaping;
pub mod sources;
pub mod summary;
pub mod switching;

use graph::graph::Registry;

/// All classes of this library, and those that the graph itself brings.
pub fn registry() -> Registry {
    graph::names::set_interfaces(devices::interface_addresses);
    let mut registry = Registry::new();
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
        icmp::CLASSES,
        lookup::CLASSES,
        acl::CLASSES,
        fabric::CLASSES,
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
