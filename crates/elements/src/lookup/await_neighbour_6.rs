//! =c
//! AwaitNeighbour6(PORT0, PORT1, ... [, I<keywords> CAPACITY, EACH])
//!
//! =s ip6
//! keeps IPv6 packets until the link address of their neighbour is known
//!
//! =d
//! AwaitNeighbour for IPv6: the same arguments, outputs, drop reasons and handlers. Belongs behind FIBLookup6.
//!
//! =a AwaitNeighbour, FIBLookup6, ICMP6Error

use graph::Class;

use super::await_neighbour::{self, AwaitNeighbour};

pub(crate) static CLASS: Class = Class {
    name: "AwaitNeighbour6",
    capabilities: &[graph::KEEPS_ALL],
    ports: await_neighbour::PORTS,
    processing: Class::PUSH,
    handlers: AwaitNeighbour::<u128>::HANDLERS,
    manual: graph::manual!("await_neighbour_6.rs"),
    make: await_neighbour::make::<u128>,
    ..Class::DEFAULT
};
