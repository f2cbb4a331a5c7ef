//! =c
//! RadixIPLookup(ADDR1/MASK1 [GW1] OUT1, ADDR2/MASK2 [GW2] OUT2, ... [, I<keywords> FILE, VIA])
//!
//! =s iproute
//! looks up the route of packets
//!
//! =d
//! Expects the destination IP address annotation on each packet. Looks it up among the routes; the longest prefix that
//! contains the address wins. Sets the annotation to the route's gateway, if it has one, and emits the packet on the
//! route's output.
//!
//! Each argument is a route: an address and a mask or prefix length (`18.26.4.0/24`, `18.26.4/24`, `0/0`; a bare
//! address is a `/32`; bits beyond the mask are ignored), a gateway (`-` or left out for none), and an output. Of two
//! routes for one prefix the first counts, with a message.
//!
//! Keyword arguments, which Click does not have:
//!
//! =over 8
//!
//! =item FILE
//!
//! The path of a table of routes, plain or gzip, one `PREFIX ORIGIN` a line, where ORIGIN is the number of an autonomous
//! system. Empty for none, which is the default. Rows that are not like that are counted and left out, with a message.
//! Routes given as arguments take precedence.
//!
//! =item VIA
//!
//! The next hops of the routes of FILE, in quotes: `"GW OUT, GW OUT, ..."`. Which of them a row gets is a hash of its
//! origin.
//!
//! =back
//!
//! The table is not a radix trie but one byte for each /24 (16 MB) in front of a compressed table, and for up to 1,024
//! routes the compressed table alone (4 MB). There are two copies of it, which all workers share: packets go by the
//! one, changes go into the other, and then the two change places. So a change by handler never makes a worker wait.
//!
//! Drop reasons: no route. Click prints a message for the first packets without a route; this element does not.
//!
//! =e
//! Packets to the router itself leave by output 0, those to network 18.26.4 by output 1, all others by way of the gateway
//! 18.26.4.1, by output 1, too:
//!
//!   ... -> GetIPAddress(16) -> rt;
//!   rt :: RadixIPLookup(18.26.4.24/32 0, 18.26.4.255/32 0, 18.26.4/24 1, 0/0 18.26.4.1 1);
//!
//! =a DirectIPLookup, LinearIPLookup, RangeIPLookup, SortedIPLookup, StaticIPLookup, GetIPAddress

use graph::{Alias, Class};

use super::ip_lookup::{self, IpLookup};

pub(crate) static CLASS: Class = Class {
    name: "RadixIPLookup",
    aliases: &[
        Alias {
            name: "DirectIPLookup",
            difference: "In Click it has a DIR-24-8 table (Gupta, Lin, McKeown, \"Routing lookups in hardware \
                at memory access speeds\", INFOCOM 1998). Here it uses the table of RadixIPLookup, \
                which is one of that kind at half the size.",
        },
        Alias {
            name: "LinearIPLookup",
            difference: "In Click it searches its routes one by one. Here it uses the table of RadixIPLookup.",
        },
        Alias {
            name: "RangeIPLookup",
            difference: "In Click it searches address ranges, built anew from a DIR-24-8 table after each \
                change. Here it uses the table of RadixIPLookup.",
        },
        Alias {
            name: "SortedIPLookup",
            difference: "In Click it searches its routes one by one, the longest first. Here it uses the table \
                of RadixIPLookup.",
        },
    ],
    ports: ip_lookup::PORTS,
    processing: Class::PUSH,
    handlers: IpLookup::<u32>::HANDLERS,
    manual: graph::manual!("radix_ip_lookup.rs"),
    make: ip_lookup::make::<u32>,
    ..Class::DEFAULT
};
