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
//! =a RadixIPLookup, DirectIPLookup, LinearIPLookup, SortedIPLookup, StaticIPLookup

use graph::Class;

use super::radix_ip_lookup;

pub(crate) static CLASS: Class =
    Class { name: "RangeIPLookup", manual: graph::manual!("range_ip_lookup.rs"), ..radix_ip_lookup::CLASS };
