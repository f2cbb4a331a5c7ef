//! =c
//! LookupIPRouteMP(ADDR1/MASK1 [GW1] OUT1, ADDR2/MASK2 [GW2] OUT2, ... [, I<keywords> FILE, VIA])
//!
//! =s iproute
//! looks up the route of packets
//!
//! =d
//! LookupIPRoute under the name that Click has for several threads. Here every lookup is for several threads: all workers
//! share the tables, and none waits for another.
//!
//! Drop reasons: no route.
//!
//! =a LookupIPRoute, RadixIPLookup

use graph::Class;

use super::lookup_ip_route;

pub(crate) static CLASS: Class = Class {
    name: "LookupIPRouteMP",
    manual: graph::manual!("lookup_ip_route_mp.rs"),
    ..lookup_ip_route::CLASS
};
