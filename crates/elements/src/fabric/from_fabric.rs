//! =c
//! FromFabric(FABRIC, LINK, PORT0, PORT1, ...)
//!
//! =s fabric
//! takes packets from another node of the cluster: relays them, or sends them to their next hop
//!
//! =d
//! FABRIC names a Fabric element; LINK is the number of this node's link that the frames come by; the ports are this node's own. Reads
//! nothing but the fabric's header: the input node has done all the rest. Outputs are:
//!
//! =item 0
//! frames for other nodes, for input 1 of ToFabric;
//!
//! =item 1
//! hellos, painted with LINK, for FabricHello (over a Punt);
//!
//! =item 2
//! Ethernet frames for the cluster's host, painted with the number of the cluster's port that they came in by;
//!
//! =item 3
//! Ethernet frames that this node has to route, painted likewise;
//!
//! =item 4+i
//! what leaves by PORTI<i>: packets with the Ethernet header of their next hop, frames of the cluster's host as they are.
//!
//! =back
//!
//! Dropped and counted are frames of others ("no fabric header", "of another cluster", "for another node"), those that mean nothing here ("unknown
//! kind of fabric frame", "no node in fabric header", "unknown adjacency", "no such port"), and those that have
//! passed too many nodes ("circles").
//!
//! =e
//!   FromDevice(fab0) -> from0 :: FromFabric(fabric, 0, eth1);
//!   from0[0] -> [1] to;  from0[1] -> hellos;  from0[4] -> ToDevice(eth1);
//!
//! =a Fabric, ToFabric, FabricHello

use std::sync::Arc;

use fabric::{Header, Hello, Kind, Label};
use fib::Adjacency;
use fib::publish::Reader;
use graph::{Class, ConfigError, Context, Element, Setup};
use packet::wire::ethernet::HEADER_LEN;
use packet::{Batch, Packet};

use super::adjacencies::FabricAdjacencies;
use super::node::Node;
use super::wire::{FOR_ANOTHER, NO_HEADER, Wire};

pub(super) static CLASS: Class = Class {
    name: "FromFabric",
    ports: "1/-",
    processing: Class::PUSH,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("from_fabric.rs"),
    make,
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let node = Node::of_argument(setup)?;
    let link: u16 = setup.arguments.required("LINK")?;
    let ports = setup.arguments.rest();
    setup.arguments.finish()?;
    if usize::from(link) >= node.links() {
        let highest = node.links().saturating_sub(1);
        return Err(ConfigError::new(format!(
            "LINK: {link}; the links of node {} are 0 to {highest}",
            node.here
        )));
    }
    if setup.outputs() > PORTS + ports.len() {
        let message =
            format!("{} outputs; {PORTS} and one for each of {} ports", setup.outputs(), ports.len());
        return Err(ConfigError::new(message));
    }
    if setup.is_check() {
        return Ok(Box::new(Unfilled));
    }
    let adjacencies = FabricAdjacencies::of_ports(setup, &ports)?;
    Ok(Box::new(FromFabric {
        reader: adjacencies.readers.register(),
        wire: Wire::of(&node),
        link: link as u8,
        ports: ports.len(),
        node,
    }))
}

const RELAYED: usize = 0;
const HELLOS: usize = 1;
const TO_HOST: usize = 2;
const TO_ROUTE: usize = 3;
const PORTS: usize = 4;

/// Stands for the element when a configuration is only checked.
struct Unfilled;

impl Element for Unfilled {}

struct FromFabric {
    node: Arc<Node>,
    wire: Wire,
    reader: Reader<Vec<Option<Adjacency>>>,
    link: u8,
    ports: usize,
}

/// The output of a frame; it leaves as it is to leave.
#[inline(always)]
fn judge(
    packet: &mut Packet,
    node: &Node,
    wire: Wire,
    link: u8,
    ports: usize,
    adjacencies: &[Option<Adjacency>],
) -> Result<usize, &'static str> {
    let here = node.here;
    let mut header = match wire.read(packet, here) {
        Ok(header) => header,
        Err(reason) => return other(packet, link, reason),
    };
    if header.cluster != node.cluster {
        return Err("of another cluster");
    }
    if header.via == Some(here) {
        header.via = None;
    } else if header.via.is_none() && header.output != here && matches!(wire, Wire::Switch { .. }) {
        return Err(FOR_ANOTHER);
    }
    if header.via.is_none() && header.output == here {
        return deliver(packet, &header, wire.length(), ports, adjacencies);
    }
    header.hops = header.hops.checked_sub(1).ok_or("circles")?;
    wire.write(packet, &header, here);
    Ok(RELAYED)
}

/// What is no packet of the fabric.
#[cold]
fn other(packet: &mut Packet, link: u8, reason: &'static str) -> Result<usize, &'static str> {
    let is_hello = reason == NO_HEADER && packet.data().starts_with(&Hello::DESTINATION);
    if !is_hello {
        return Err(reason);
    }
    packet.annotations_mut().set_paint(link);
    Ok(HELLOS)
}

/// The output of a frame that has arrived.
#[inline(always)]
fn deliver(
    packet: &mut Packet,
    header: &Header,
    length: usize,
    ports: usize,
    adjacencies: &[Option<Adjacency>],
) -> Result<usize, &'static str> {
    if header.kind != Kind::Routed {
        return frame(packet, header.kind, header.label, length, ports);
    }
    let known = adjacencies.get(header.label.number() as usize).and_then(Option::as_ref);
    let adjacency = known.ok_or("unknown adjacency")?;
    let port = usize::from(adjacency.port());
    if port >= ports {
        return Err("no such port");
    }
    let rewrite = adjacency.rewrite();
    if let (Ok(rewrite), Some(place)) =
        (<&[u8; HEADER_LEN]>::try_from(rewrite), packet.data_mut().first_chunk_mut::<HEADER_LEN>())
        && length == HEADER_LEN
    {
        *place = *rewrite;
        return Ok(PORTS + port);
    }
    packet.strip(length);
    let room = packet.prepend(rewrite.len()).ok_or("no room for an Ethernet header")?;
    room[..rewrite.len()].copy_from_slice(rewrite);
    Ok(PORTS + port)
}

/// The output of a whole Ethernet frame.
#[cold]
fn frame(
    packet: &mut Packet,
    kind: Kind,
    label: Label,
    length: usize,
    ports: usize,
) -> Result<usize, &'static str> {
    packet.strip(length);
    packet.set_link_header(0);
    let number = label.number();
    if kind == Kind::FromHost {
        return if (number as usize) < ports { Ok(PORTS + number as usize) } else { Err("no such port") };
    }
    packet.annotations_mut().set_paint(u8::try_from(number).map_err(|_| "no such port")?);
    Ok(if kind == Kind::ToHost { TO_HOST } else { TO_ROUTE })
}

impl Element for FromFabric {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let adjacencies = self.reader.enter();
        let (node, wire, link, ports) = (&*self.node, self.wire, self.link, self.ports);
        let outputs = cx.outputs();
        cx.classify(batch, |packet| {
            let output = judge(packet, node, wire, link, ports, &adjacencies)?;
            if output < outputs { Ok(output) } else { Err("not for this node's role") }
        });
    }
}
