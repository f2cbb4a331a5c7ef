//! =c
//! LookupIP6Route(ADDR1/MASK1 [GW1] OUT1, ADDR2/MASK2 [GW2] OUT2, ... [, I<keywords> FILE, VIA])
//!
//! =s ip6
//! looks up the route of IPv6 packets
//!
//! =d
//! Expects the destination IPv6 address annotation on each packet. Looks it up among the routes; the longest prefix that
//! contains the address wins. Sets the annotation to the route's gateway, if it has one, and emits the packet on the
//! route's output.
//!
//! Each argument is a route: an address and a prefix length or mask (`2001:db8::/32`, `::/0`; a bare address is a
//! `/128`; bits beyond the mask are ignored), a gateway (`-`, `::` or left out for none), and an output. Of two routes for
//! one prefix the first counts, with a message.
//!
//! Keyword arguments, which Click does not have, are those of RadixIPLookup: FILE is a table of IPv6 prefixes.
//!
//! The table is a tree of address ranges, sixteen a node. All workers share it; changes work as in RadixIPLookup.
//!
//! Other than in Click, an address that was not set (`::`) is looked up like any other and nothing is remembered between
//! packets; `add` fails if there is a route for the prefix; and there are the handlers set, flush, lookup, check and
//! memory, and many lines in ctrl.
//!
//! Drop reasons: no route.
//!
//! =e
//! Packets to the router itself leave by output 0, those to two networks by outputs 1 and 2, all others by way of a
//! gateway in the first:
//!
//!   ... -> GetIP6Address(24) -> rt;
//!   rt :: LookupIP6Route(2001:db8:1::1/128 0, 2001:db8:1::/64 1, 2001:db8:2::/64 2, ::/0 2001:db8:1::2 1);
//!
//! =a GetIP6Address, RadixIPLookup

use graph::Class;

use super::ip_lookup::{self, IpLookup};

pub(crate) static CLASS: Class = Class {
    name: "LookupIP6Route",
    ports: ip_lookup::PORTS,
    processing: Class::PUSH,
    handlers: IpLookup::<u128>::HANDLERS,
    manual: graph::manual!("lookup_ip6_route.rs"),
    make: ip_lookup::make::<u128>,
    ..Class::DEFAULT
};
