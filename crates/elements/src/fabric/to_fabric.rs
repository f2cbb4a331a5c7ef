//! =c
//! ToFabric(FABRIC)
//!
//! =s fabric
//! sends packets to other nodes of the cluster, directly or over a third
//!
//! =d
//! FABRIC names a Fabric element. Packets come with the fabric's header before them, which has the
//! node that they go to and the task there. FIBLookup puts the header there like any next hop's,
//! and FabricEncap around whole frames. ToFabric adds the path. Up to R/N of the traffic to a node
//! goes directly, the rest over an intermediate node. Packets of a flow that come within DELTA of
//! each other keep their path while its first link has room. Packets that FromFabric relays take
//! room too.
//!
//! Output I<i> is link I<i> of this node. A packet for a node that cannot be reached is dropped as
//! "node is not reachable", and one for this node as "for this node".
//!
//! =e
//!   fabric :: Fabric(mesh(3), 0);
//!   rt :: FIBLookup(eth1, fabric);
//!   rt[1] -> DecIPTTL -> UnstripToMACHeader -> to :: ToFabric(fabric);
//!   to[0] -> ToDevice(fab0);  to[1] -> ToDevice(fab1);
//!
//! =a Fabric, FromFabric, FabricEncap

use std::sync::Arc;

use fabric::{Balancer, Header, Kind, Lead, NodeId, Place};
use graph::{Class, Combine, Context, Element, Get, Handler};
use packet::flow::{FlowFields, FlowHash, FlowKey};
use packet::{Batch, MAX_BATCH, Packet};

use super::node::Node;
use super::wire::{LINK_HEADER, Wire};

pub(super) static CLASS: Class = Class {
    name: "ToFabric",
    ports: "1/-",
    processing: Class::PUSH,
    handlers: &[
        Handler::read(
            "direct",
            Combine::Sum,
            "Packets sent directly.",
            &Get(|e: &mut ToFabric| e.balancer.counts().direct.to_string()),
        ),
        Handler::read(
            "balanced",
            Combine::Sum,
            "Packets sent over an intermediate node.",
            &Get(|e: &mut ToFabric| e.balancer.counts().balanced.to_string()),
        ),
        Handler::read(
            "moved",
            Combine::Sum,
            "Packets that left the path of the packet of the same flow before them.",
            &Get(|e: &mut ToFabric| e.balancer.counts().moved.to_string()),
        ),
        Handler::read(
            "link_full",
            Combine::Sum,
            "Packets sent although no link had room.",
            &Get(|e: &mut ToFabric| e.balancer.counts().link_full.to_string()),
        ),
        Handler::read(
            "direct_bytes",
            Combine::Sum,
            "Bytes sent directly.",
            &Get(|e: &mut ToFabric| e.balancer.counts().direct_bytes.to_string()),
        ),
        Handler::read(
            "balanced_bytes",
            Combine::Sum,
            "Bytes sent over an intermediate node.",
            &Get(|e: &mut ToFabric| e.balancer.counts().balanced_bytes.to_string()),
        ),
        Handler::read(
            "by_link",
            Combine::Join,
            "For each link a line: its number, and the bytes that went there directly and over an intermediate node.",
            &Get(|e: &mut ToFabric| {
                let lines = e.balancer.by_link().enumerate();
                lines
                    .map(|(link, [over, direct])| format!("{link} {} {}\n", direct.bytes, over.bytes))
                    .collect()
            }),
        ),
    ],
    manual: graph::manual!("to_fabric.rs"),
    make: |setup| {
        let node = Node::with_links(setup)?;
        let mut settings = node.settings.clone();
        let copies = setup.copy().workers.max(1) as u64;
        settings.ports_rate /= copies;
        settings.link_rate /= copies;
        settings.seed += setup.copy().index as u64 + 1;
        let version = node.version();
        Ok(Box::new(ToFabric {
            balancer: Balancer::new(&settings, node.paths(), 0),
            wire: Wire::of(&node),
            version,
            key: setup.flow_key(),
            copy: setup.copy().index,
            relayed: (0..node.links()).map(|link| node.relayed(setup.copy().index, link)).collect(),
            asks: Box::new([Ask::refused(&node, 0); MAX_BATCH]),
            outputs: Box::new([0; MAX_BATCH]),
            node,
        }))
    },
    ..Class::DEFAULT
};

/// Instead of an output.
const DROPPED: u16 = 0x8000;
const REASONS: [&str; 3] = ["node is not reachable", "for this node", super::wire::NO_HEADER];
const UNREACHABLE: u16 = DROPPED;
const HERE: u16 = DROPPED + 1;
const NO_HEADER: u16 = DROPPED + 2;

struct ToFabric {
    node: Arc<Node>,
    wire: Wire,
    balancer: Balancer,
    /// Of the paths that the balancer knows.
    version: u64,
    /// Of the hash of flows. Nodes on the way read its highest bits in the header, so each node has its own
    /// key.
    key: FlowKey,
    copy: usize,
    /// By link: what had been relayed when the last batch began.
    relayed: Vec<u64>,
    asks: Box<[Ask; MAX_BATCH]>,
    outputs: Box<[u16; MAX_BATCH]>,
}

/// What makes a flow. The fields are a constant, so that the compiler leaves out what is not hashed.
#[inline(always)]
fn flows(key: FlowKey) -> FlowHash {
    FlowHash { fields: FlowFields::Flow, key }
}

/// A packet that asks for its path.
#[derive(Clone, Copy)]
struct Ask {
    flow: u32,
    place: Place,
    output: NodeId,
    bytes: u16,
    /// 0, or why it is dropped.
    refused: u16,
}

impl Ask {
    #[inline(always)]
    fn refused(node: &Node, refused: u16) -> Ask {
        Ask { flow: 0, place: Place::default(), output: node.here, bytes: 0, refused }
    }
}

/// What a packet asks for that enters the fabric by a dedicated link.
#[inline(always)]
fn ask(node: &Node, balancer: &Balancer, key: FlowKey, packet: &Packet) -> Ask {
    let Some((header, rest)) = packet.data().split_first_chunk::<{ Header::LEN }>() else {
        return Ask::refused(node, NO_HEADER);
    };
    let Some((lead, output)) = Lead::read(header).and_then(|lead| Some((lead, lead.output()?))) else {
        return Ask::refused(node, NO_HEADER);
    };
    if output == node.here {
        return Ask::refused(node, HERE);
    }
    let inside = rest.get(LINK_HEADER - Header::LEN..).unwrap_or_default();
    let hash = flows(key);
    let flow = if lead.kind() == Kind::Routed as u8 { hash.of_ip(inside) } else { hash.of(inside) };
    // Frames are shorter than 64 KiB.
    Ask { flow, place: balancer.place(output, flow), output, bytes: packet.len() as u16, refused: 0 }
}

/// The link of a packet that has asked.
#[inline(always)]
fn link(balancer: &mut Balancer, packet: &mut Packet, ask: Ask) -> u16 {
    if ask.refused != 0 {
        return ask.refused;
    }
    let Some(choice) = balancer.choose(ask.place, ask.output, ask.flow, ask.bytes.into()) else {
        return UNREACHABLE;
    };
    let Some(header) = packet.data_mut().first_chunk_mut::<{ Header::LEN }>() else { return NO_HEADER };
    Lead::set_out(header, choice.via, (ask.flow >> 24) as u8);
    choice.link
}

/// The same over a switch.
fn switched(node: &Node, wire: Wire, balancer: &mut Balancer, key: FlowKey, packet: &mut Packet) -> u16 {
    let Ok(mut header) = wire.read(packet, node.here) else { return NO_HEADER };
    if header.output == node.here {
        return HERE;
    }
    let inside = packet.data().get(wire.length()..).unwrap_or_default();
    let hash = flows(key);
    let flow = if header.kind.holds_frame() { hash.of(inside) } else { hash.of_ip(inside) };
    let place = balancer.place(header.output, flow);
    let Some(choice) = balancer.choose(place, header.output, flow, packet.len() as u32) else {
        return UNREACHABLE;
    };
    header.via = choice.via;
    wire.write(packet, &header, node.here);
    choice.link
}

impl Element for ToFabric {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let Self { node, wire, balancer, version, key, copy, relayed, asks, outputs } = self;
        let newest = node.version();
        if newest != *version {
            *version = newest;
            balancer.set_paths(node.paths());
        }
        balancer.begin(cx.now_ns());
        node.look_at_kernel(cx.now_ns());
        for (link, told) in relayed.iter_mut().enumerate() {
            let sum = node.relayed(*copy, link);
            if sum != *told {
                balancer.relayed(link, sum - std::mem::replace(told, sum));
            }
        }
        let outputs = &mut outputs[..batch.len()];
        match wire {
            Wire::Link => {
                let asks = &mut asks[..batch.len()];
                for (packet, place) in batch.packets().iter().zip(&mut *asks) {
                    *place = ask(node, balancer, *key, packet);
                }
                for ((packet, output), &ask) in batch.packets_mut().iter_mut().zip(&mut *outputs).zip(&*asks)
                {
                    *output = link(balancer, packet, ask);
                }
            }
            Wire::Switch { .. } => {
                for (packet, output) in batch.packets_mut().iter_mut().zip(&mut *outputs) {
                    *output = switched(node, *wire, balancer, *key, packet);
                }
            }
        }
        super::send(cx, batch, outputs, |code| REASONS[usize::from(code & !DROPPED)]);
    }
}
