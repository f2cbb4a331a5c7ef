//! =c
//! FIBLookup6(PORT0, PORT1, ...)
//!
//! =s ip6
//! forwards IPv6 packets by the router's forwarding tables
//!
//! =d
//! FIBLookup for IPv6: the same arguments, outputs, drop reasons and handlers. Expects packets as CheckIP6Header leaves them.
//! Packets with hop-by-hop options go to Linux. The hash that chooses among several next hops takes in the flow label
//! (RFC 6438).
//!
//! =e
//!   ... -> CheckIP6Header -> rt6 :: FIBLookup6(eth1, eth2);
//!   rt6[0] -> DecIP6HLIM -> UnstripToMACHeader -> ToDevice(eth1);
//!   rt6[1] -> DecIP6HLIM -> UnstripToMACHeader -> ToDevice(eth2);
//!   rt6[2] -> Punt -> ...
//!
//! =a FIBLookup, LookupIP6Route

use graph::Class;

use super::fib_lookup::{self, FibLookup};

pub(crate) static CLASS: Class = Class {
    name: "FIBLookup6",
    ports: fib_lookup::PORTS,
    processing: Class::PUSH,
    capabilities: &[super::FORWARDS, graph::KEEPS_ALL, graph::TAKES_MERGED],
    handlers: FibLookup::<u128>::HANDLERS,
    manual: graph::manual!("fib_lookup_6.rs"),
    make: fib_lookup::make::<u128>,
    ..Class::DEFAULT
};
