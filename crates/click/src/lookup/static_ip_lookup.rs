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
//! =a RadixIPLookup, DirectIPLookup, LinearIPLookup, RangeIPLookup, SortedIPLookup

use graph::Class;

use super::ip_lookup::IpLookup;
use super::radix_ip_lookup;

pub(crate) static CLASS: Class = Class {
    name: "StaticIPLookup",
    aliases: &[],
    handlers: IpLookup::<u32>::FIXED_HANDLERS,
    manual: graph::manual!("static_ip_lookup.rs"),
    ..radix_ip_lookup::CLASS
};
