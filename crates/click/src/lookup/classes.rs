//! =c
//! RadixIPLookup(ADDR1/MASK1 [GW1] OUT1, ADDR2/MASK2 [GW2] OUT2, ... [, I<keywords> TABLE, FILE, VIA])
//!
//! =s iproute
//! looks up the route of packets
//!
//! =d
//! Expects the destination IP address annotation on each packet. Looks it up among the routes; the
//! longest prefix that contains the address wins. Sets the annotation to the route's gateway, if it
//! has one, and emits the packet on the route's output.
//!
//! Each argument is a route: an address and a mask or prefix length, a gateway, and an output.
//! Addresses are written as `18.26.4.0/24`, `18.26.4/24` or `0/0`, and a bare address is a `/32`.
//! Bits beyond the mask are ignored. The gateway is `-` or left out if there is none. Of two routes
//! for one prefix the first counts, with a message.
//!
//! Keyword arguments, which Click does not have:
//!
//! =over 8
//!
//! =item TABLE
//!
//! The table that the routes are compiled to, by its name. All find the same routes:
//!
//! =over 8
//!
//! =item byte24
//!
//! One byte for each /24 (16 MB) in front of the table rank, and up to 1,024 routes that alone (4 MB). The default.
//!
//! =item rank
//!
//! Bitmaps of where the next hop changes, 7 MB for a million routes: for small caches.
//!
//! =item dir24_8
//!
//! Two bytes for each /24, and blocks for longer prefixes, 34 MB (Gupta, Lin, McKeown, "Routing lookups in hardware at memory
//! access speeds", INFOCOM 1998).
//!
//! =item linear
//!
//! A list of routes; each lookup goes through all of it. For a few routes, and to compare with.
//!
//! =back
//!
//! A program made with Brickway's library may have more (docs/own-element.md). The handler `check` prints the table's name.
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
//! None of the tables is a radix trie. There are two copies of the table, which all workers share.
//! Packets use the one copy, and changes go into the other. Then the two change places. So a change
//! by handler never makes a worker wait.
//!
//! Drop reasons: no route. Click prints a message for the first packets without a route; this element does not.
//!
//! =e
//! Packets to the router itself leave by output 0, those to network 18.26.4 by output 1. All others
//! go by way of the gateway 18.26.4.1, by output 1 too:
//!
//!   ... -> GetIPAddress(16) -> rt;
//!   rt :: RadixIPLookup(18.26.4.24/32 0, 18.26.4.255/32 0, 18.26.4/24 1, 0/0 18.26.4.1 1);
//!
//! The same by the classical table:
//!
//!   rt :: RadixIPLookup(18.26.4.24/32 0, 18.26.4.255/32 0, 18.26.4/24 1, 0/0 18.26.4.1 1,
//!                      TABLE dir24_8);
//!
//! =a DirectIPLookup, LinearIPLookup, RangeIPLookup, SortedIPLookup, StaticIPLookup, GetIPAddress
//!
//! =c
//! StaticIPLookup(ADDR1/MASK1 [GW1] OUT1, ADDR2/MASK2 [GW2] OUT2, ... [, I<keywords> TABLE, FILE, VIA])
//!
//! =s iproute
//! looks up the route of packets among routes that never change
//!
//! =d
//! Looks up the destination IP address annotation of each packet. Sets it to the gateway of the
//! route, if that has one, and emits the packet on the route's output. Arguments and keywords are
//! those of RadixIPLookup, and so is the table. No handlers change it.
//!
//! Drop reasons: no route.
//!
//! =a RadixIPLookup, DirectIPLookup, LinearIPLookup, RangeIPLookup, SortedIPLookup
//!
//! =c
//! LookupIPRoute(ADDR1/MASK1 [GW1] OUT1, ADDR2/MASK2 [GW2] OUT2, ... [, I<keywords> TABLE, FILE, VIA])
//!
//! =s iproute
//! looks up the route of packets
//!
//! =d
//! The name of IP route lookup when the Click paper was written; it works as RadixIPLookup does. A
//! route may also be written in the form of that time: ADDR MASK GW OUT, with the mask as a word of
//! its own. A gateway of 0.0.0.0 means none.
//!
//! Drop reasons: no route.
//!
//! =e
//!   rt :: LookupIPRoute(18.26.4.24 255.255.255.255 0.0.0.0 0, 18.26.4.0/24 1);
//!
//! =a RadixIPLookup, StaticIPLookup
//!
//! =c
//! LookupIP6Route(ADDR1/MASK1 [GW1] OUT1, ADDR2/MASK2 [GW2] OUT2, ... [, I<keywords> TABLE, FILE, VIA])
//!
//! =s ip6
//! looks up the route of IPv6 packets
//!
//! =d
//! Expects the destination IPv6 address annotation on each packet. Looks it up among the routes;
//! the longest prefix that contains the address wins. Sets the annotation to the route's gateway,
//! if it has one, and emits the packet on the route's output.
//!
//! Each argument is a route: an address and a prefix length or mask, a gateway, and an output.
//! Addresses are written as `2001:db8::/32` or `::/0`, and a bare address is a `/128`. Bits beyond
//! the mask are ignored. The gateway is `-`, `::` or left out if there is none. Of two routes for
//! one prefix the first counts, with a message.
//!
//! Keyword arguments, which Click does not have, are those of RadixIPLookup. FILE is a table of
//! IPv6 prefixes. TABLE is range_tree or linear. The default, range_tree, is a tree of address
//! ranges with sixteen a node. A linear table is a list of routes that each lookup goes through.
//! All workers share the table, and changes work as in RadixIPLookup.
//!
//! Different from Click: an address that was not set (`::`) is looked up like any other. Nothing is
//! remembered between packets. `add` fails if there is a route for the prefix. The handlers set,
//! flush, lookup, check and memory, and several lines in ctrl, are additions.
//!
//! Drop reasons: no route.
//!
//! =e
//! Packets to the router itself leave by output 0, those to two networks by outputs 1 and 2. All
//! others go by way of a gateway in the first network:
//!
//!   ... -> GetIP6Address(24) -> rt;
//!   rt :: LookupIP6Route(2001:db8:1::1/128 0, 2001:db8:1::/64 1, 2001:db8:2::/64 2,
//!                        ::/0 2001:db8:1::2 1);
//!
//! =a GetIP6Address, RadixIPLookup

use graph::{Alias, Class, ConfigError, Element, Setup};

use super::ip_lookup::{IpLookup, make};

pub(crate) static RADIX: Class = Class {
    capabilities: &[graph::TAKES_MERGED],
    name: "RadixIPLookup",
    aliases: &[
        Alias {
            name: "DirectIPLookup",
            difference: "In Click it has a DIR-24-8 table (Gupta, Lin, McKeown, \"Routing lookups in hardware \
                at memory access speeds\", INFOCOM 1998). Here it uses the table of RadixIPLookup, \
                which is one of that kind at half the size; TABLE dir24_8 is that of the paper.",
        },
        Alias {
            name: "LinearIPLookup",
            difference: "In Click it searches its routes one by one. Here it uses the table of RadixIPLookup; \
                TABLE linear searches them one by one.",
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
    ports: "1/-",
    processing: Class::PUSH,
    handlers: IpLookup::<u32>::HANDLERS,
    manual: graph::manual!("classes.rs", "RadixIPLookup"),
    make: make::<u32>,
    ..Class::DEFAULT
};

pub(crate) static STATIC: Class = Class {
    capabilities: &[graph::TAKES_MERGED],
    name: "StaticIPLookup",
    aliases: &[],
    handlers: IpLookup::<u32>::FIXED_HANDLERS,
    manual: graph::manual!("classes.rs", "StaticIPLookup"),
    ..RADIX
};

pub(crate) static PAPER: Class = Class {
    capabilities: &[graph::TAKES_MERGED],
    name: "LookupIPRoute",
    aliases: &[Alias {
        name: "LookupIPRouteMP",
        difference: "In Click it is the one for several threads. Here every lookup is for several threads: \
                all workers share the tables, and none waits for another.",
    }],
    manual: graph::manual!("classes.rs", "LookupIPRoute"),
    make: make_paper,
    ..RADIX
};

pub(crate) static IP6: Class = Class {
    capabilities: &[graph::TAKES_MERGED],
    name: "LookupIP6Route",
    aliases: &[],
    handlers: IpLookup::<u128>::HANDLERS,
    manual: graph::manual!("classes.rs", "LookupIP6Route"),
    make: make::<u128>,
    ..RADIX
};

/// Makes a LookupIPRoute: a route may be written with its mask as a word of its own.
fn make_paper(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    setup.arguments.rewrite_positional(|route| {
        let words: Vec<&str> = route.split_whitespace().collect();
        match words[..] {
            [address, mask, "0.0.0.0", output] => Some(format!("{address}/{mask} {output}")),
            [address, mask, gateway, output] => Some(format!("{address}/{mask} {gateway} {output}")),
            _ => None,
        }
    });
    make::<u32>(setup)
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn routes_in_the_form_of_the_paper() {
        let text =
            "LookupIPRoute(1.0.0.1 255.255.255.255 0.0.0.0 0, 2.0.0.0 255.0.0.0 1.0.0.9 1, 3.0.0.0/8 0)";
        let mut bench = Bench::element(&crate::registry(), text, 1, 2);
        assert_eq!(bench.read("e.lookup 1.0.0.1"), "0");
        assert_eq!(bench.read("e.lookup 2.3.4.5"), "1 1.0.0.9");
        assert_eq!(bench.read("e.lookup 3.3.4.5"), "0");
        assert_eq!(bench.read("e.lookup 4.0.0.0"), "-1");
    }
}
