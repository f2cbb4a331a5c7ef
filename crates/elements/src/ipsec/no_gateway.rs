//! =c
//! NoGateway
//!
//! =s ipsec
//! drops ESP packets that cannot reach the other gateway
//!
//! =d
//! Drops all packets as "IPsec: no way to the other gateway". It is for packets of EspEncap for
//! which the lookup finds no route, or no neighbour. No ICMP error is sent, since the packet is
//! sealed.
//!
//! =e
//!   encap -> gateway :: FIBLookup(eth1, eth2);
//!   gateway[3] -> NoGateway;
//!
//! =a EspEncap, FIBLookup, AwaitNeighbour

use graph::{Class, Context, Element};
use packet::Batch;

pub(super) static CLASS: Class = Class {
    name: "NoGateway",
    capabilities: &[graph::KEEPS_ALL],
    ports: "1/0",
    processing: Class::PUSH,
    manual: graph::manual!("no_gateway.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(NoGateway))
    },
    ..Class::DEFAULT
};

struct NoGateway;

impl Element for NoGateway {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        cx.drop_batch(batch, "IPsec: no way to the other gateway");
    }
}
