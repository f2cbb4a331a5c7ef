//! =c
//! StaticIPLookup(ADDR1/MASK1 [GW1] OUT1, ADDR2/MASK2 [GW2] OUT2, ... [, I<keywords> FILE, VIA])
//!
//! =s iproute
//! looks up the route of packets among routes that never change
//!
//! =d
//! Looks up the destination IP address annotation of each packet, sets it to the gateway of the route, if that has one,
//! and emits the packet on the route's output. Arguments and keywords are those of RadixIPLookup, and so is the table;
//! there are no handlers to change it.
//!
//! Drop reasons: no route.
//!
//! =h table read-only
//!
//! All routes, in the order of their addresses.
//!
//! =h lookup read-only
//!
//! Takes an address and gives the output and, if there is one, the gateway; -1 if there is no route.
//!
//! =h check read-only
//!
//! Compares the tables with the routes, as RadixIPLookup's.
//!
//! =h memory read-only
//!
//! Bytes of memory that routes, tables and next hops take.
//!
//! =a RadixIPLookup, DirectIPLookup, LinearIPLookup, RangeIPLookup, SortedIPLookup

use graph::Class;

use super::ip_lookup;

pub(crate) static CLASS: Class = Class {
    name: "StaticIPLookup",
    ports: ip_lookup::PORTS,
    processing: Class::PUSH,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("static_ip_lookup.rs"),
    make: ip_lookup::make_static,
};
