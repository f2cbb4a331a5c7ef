//! =c
//! DirectIPLookup(ADDR1/MASK1 [GW1] OUT1, ADDR2/MASK2 [GW2] OUT2, ... [, I<keywords> FILE, VIA])
//!
//! =s iproute
//! looks up the route of packets
//!
//! =d
//! Looks up the destination IP address annotation of each packet, sets it to the gateway of the route, if that has one,
//! and emits the packet on the route's output. Arguments, keywords and handlers are those of RadixIPLookup.
//!
//! In Click this element has a DIR-24-8 table (Gupta, Lin, McKeown, "Routing lookups in hardware at memory access
//! speeds", INFOCOM 1998). Here it uses RadixIPLookup's table, which is one of that kind at half the size.
//!
//! Drop reasons: no route.
//!
//! =a RadixIPLookup, LinearIPLookup, RangeIPLookup, SortedIPLookup, StaticIPLookup

use graph::Class;

use super::radix_ip_lookup;

pub(crate) static CLASS: Class =
    Class { name: "DirectIPLookup", manual: graph::manual!("direct_ip_lookup.rs"), ..radix_ip_lookup::CLASS };
