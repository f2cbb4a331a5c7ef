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
//! Compares the tables with the routes, without disturbing packets: a line for each of the two copies, the one in use
//! and the one that takes changes, with its routes, ranges of addresses with one next hop, a digest that equal routes
//! have in common, bytes of memory, and `ok` or the first address on which table and routes disagree.
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
//! =e
//! Packets to the router itself leave by output 0, those to two networks by outputs 1 and 2, all others by way of a
//! gateway in the first:
//!
//!   ... -> GetIP6Address(24) -> rt;
//!   rt :: LookupIP6Route(2001:db8:1::1/128 0, 2001:db8:1::/64 1, 2001:db8:2::/64 2, ::/0 2001:db8:1::2 1);
//!
//! =a GetIP6Address, RadixIPLookup

use graph::Class;

use super::ip_lookup;

pub(crate) static CLASS: Class = Class {
    name: "LookupIP6Route",
    ports: ip_lookup::PORTS,
    processing: Class::PUSH,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("lookup_ip6_route.rs"),
    make: ip_lookup::make::<u128>,
};
