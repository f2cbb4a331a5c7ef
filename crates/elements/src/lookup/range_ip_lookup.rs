//! =c
//! RangeIPLookup(ADDR1/MASK1 [GW1] OUT1, ADDR2/MASK2 [GW2] OUT2, ... [, I<keywords> FILE, VIA])
//!
//! =s iproute
//! looks up the route of packets
//!
//! =d
//! Looks up the destination IP address annotation of each packet, sets it to the gateway of the route, if that has one,
//! and emits the packet on the route's output. Arguments, keywords and handlers are those of RadixIPLookup.
//!
//! In Click this element searches address ranges, built anew from a DIR-24-8 table after each change. Here it uses
//! RadixIPLookup's table.
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
//! =h add write-only
//!
//! Adds a route, `ADDR/MASK [GATEWAY] OUTPUT`. Fails if there is one for `ADDR/MASK`.
//!
//! =h set write-only
//!
//! Sets a route, whether or not there is one for `ADDR/MASK`.
//!
//! =h remove write-only
//!
//! Removes a route, `ADDR/MASK [GATEWAY OUTPUT]`. If gateway and output are given they must be those of the route.
//!
//! =h ctrl write-only
//!
//! Changes many routes at once: lines of `add ROUTE`, `set ROUTE` or `remove ROUTE`. If one of them fails, nothing is
//! changed, and packets see all changes or none.
//!
//! =h flush write-only
//!
//! Removes all routes.
//!
//! =a RadixIPLookup, DirectIPLookup, LinearIPLookup, SortedIPLookup, StaticIPLookup

use graph::Class;

use super::ip_lookup;

pub(crate) static CLASS: Class = Class {
    name: "RangeIPLookup",
    ports: ip_lookup::PORTS,
    processing: Class::PUSH,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("range_ip_lookup.rs"),
    make: ip_lookup::make::<u32>,
};
