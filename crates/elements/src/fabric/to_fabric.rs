//! =c
//! ToFabric(FABRIC)
//!
//! =s fabric
//! sends packets to other nodes of the cluster, directly or over a third
//!
//! =d
//! FABRIC names a Fabric element. Packets come in by input 0 with the fabric's header before them, which says to which node
//! and what happens there: FIBLookup puts it there like any next hop's, FabricEncap around whole frames. ToFabric adds the path.
//! Up to R/N of what goes to a node goes directly, the rest over an intermediate node; packets of a flow that come
//! within DELTA of each other keep their path while its first link has room. Input 1 takes what FromFabric relays.
//!
//! Output I<i> is link I<i> of this node. A packet for a node that cannot be reached is dropped as "node is not
//! reachable"; one for this node as "for this node".
//!
//! =h direct read-only
//! Packets sent directly.
//!
//! =h balanced read-only
//! Packets sent over an intermediate node.
//!
//! =h moved read-only
//! Packets that left the path of the packet of the same flow before them.
//!
//! =h without_room read-only
//! Packets sent although no link had room.
//!
//! =h direct_bytes read-only
//! Bytes sent directly.
//!
//! =h balanced_bytes read-only
//! Bytes sent over an intermediate node.
//!
//! =e
//!   fabric :: Fabric(mesh(3), 0);
//!   rt :: FIBLookup(eth1, fabric);
//!   rt[1] -> DecIPTTL -> UnstripToMACHeader -> to :: ToFabric(fabric);
//!   to[0] -> ToDevice(fab0);  to[1] -> ToDevice(fab1);
//!
//! =a Fabric, FromFabric, FabricEncap

use std::sync::Arc;

use fabric::Balancer;
use graph::{Class, Combine, Context, Element, Handler};
use packet::flow::FlowHash;
use packet::{Batch, MAX_BATCH, Packet};

use super::node::Node;
use super::wire::Wire;

pub(super) static CLASS: Class = Class {
    name: "ToFabric",
    ports: "1-2/-",
    processing: Class::PUSH,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("to_fabric.rs"),
    make: |setup| {
        let node = Node::of_argument(setup)?;
        setup.arguments.finish()?;
        let (links, outputs) = (node.links(), setup.outputs());
        if outputs != links {
            let message = format!("{outputs} outputs; this node has {links} links, an output for each");
            return Err(graph::ConfigError::new(message));
        }
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
            hash: FlowHash::default(),
            outputs: Box::new([0; MAX_BATCH]),
            node,
        }))
    },
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
    hash: FlowHash,
    outputs: Box<[u16; MAX_BATCH]>,
}

impl ToFabric {
    /// The link of a packet that enters the fabric here.
    #[inline(always)]
    fn enter(&mut self, packet: &mut Packet, now_ns: u64) -> u16 {
        let here = self.node.here;
        let Ok(mut header) = self.wire.read(packet, here) else { return NO_HEADER };
        if header.output == here {
            return HERE;
        }
        let inside = packet.data().get(self.wire.length()..).unwrap_or_default();
        let flow = if header.kind.holds_frame() { self.hash.of(inside) } else { self.hash.of_ip(inside) };
        let Some(choice) = self.balancer.choose(header.output, flow, packet.len() as u32, now_ns) else {
            return UNREACHABLE;
        };
        header.via = choice.via;
        header.entropy = (flow >> 24) as u8;
        self.wire.write(packet, &header, here);
        choice.link
    }

    /// The link of a packet that is relayed.
    #[inline(always)]
    fn pass(&mut self, packet: &Packet) -> u16 {
        let Ok(header) = self.wire.read(packet, self.node.here) else { return NO_HEADER };
        let target = header.via.unwrap_or(header.output);
        self.balancer.relay(target, header.entropy, packet.len() as u32).unwrap_or(UNREACHABLE)
    }
}

impl Element for ToFabric {
    fn push(&mut self, cx: &mut Context, input: usize, batch: &mut Batch) {
        let version = self.node.version();
        if version != self.version {
            self.version = version;
            self.balancer.set_paths(self.node.paths());
        }
        let now_ns = cx.now_ns();
        let mut difference = 0;
        for (place, packet) in batch.packets_mut().iter_mut().enumerate() {
            let output = if input == 0 { self.enter(packet, now_ns) } else { self.pass(packet) };
            self.outputs[place] = output;
            difference |= output ^ self.outputs[0];
        }
        let outputs = &self.outputs[..batch.len()];
        match outputs[0] {
            0 if difference == 0 => {}
            output if difference == 0 && output < DROPPED => cx.emit_batch(usize::from(output), batch),
            _ if outputs.iter().all(|&output| output < DROPPED) => cx.scatter(batch, outputs),
            _ => {
                for (packet, &output) in batch.drain().zip(outputs) {
                    match REASONS.get(usize::from(output.wrapping_sub(DROPPED))) {
                        Some(reason) => cx.drop(packet, reason),
                        None => cx.emit(usize::from(output), packet),
                    }
                }
            }
        }
    }

    fn handlers(&self) -> &'static [Handler] {
        const {
            &[
                Handler::read("direct", Combine::Sum),
                Handler::read("balanced", Combine::Sum),
                Handler::read("moved", Combine::Sum),
                Handler::read("without_room", Combine::Sum),
                Handler::read("direct_bytes", Combine::Sum),
                Handler::read("balanced_bytes", Combine::Sum),
            ]
        }
    }

    fn read(&mut self, name: &str, _argument: &str) -> Result<String, String> {
        let counts = self.balancer.counts();
        Ok(match name {
            "direct" => counts.direct,
            "balanced" => counts.balanced,
            "moved" => counts.moved,
            "without_room" => counts.without_room,
            "direct_bytes" => counts.direct_bytes,
            _ => counts.balanced_bytes,
        }
        .to_string())
    }
}
