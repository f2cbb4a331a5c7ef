//! =c
//! AwaitNeighbour6(PORT0, PORT1, ... [, I<keywords> CAPACITY, EACH])
//!
//! =s ip6
//! keeps IPv6 packets until the link address of their neighbour is known
//!
//! =d
//! AwaitNeighbour for IPv6: the same arguments, outputs, drop reasons and handlers. Belongs behind FIBLookup6.
//!
//! =h length read-only
//! Packets that wait.
//!
//! =a AwaitNeighbour, FIBLookup6, ICMP6Error

use graph::Class;

use super::await_neighbour;

pub(crate) static CLASS: Class = Class {
    name: "AwaitNeighbour6",
    ports: await_neighbour::PORTS,
    processing: Class::PUSH,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("await_neighbour_6.rs"),
    make: await_neighbour::make::<u128>,
};
