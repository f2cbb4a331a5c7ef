//! =c
//! FabricEncap(FABRIC, KIND, I<keywords> NODE, LABEL)
//!
//! =s fabric
//! puts whole Ethernet frames into the fabric, to one node
//!
//! =d
//! FABRIC names a Fabric element. Puts the fabric's header before each frame, for input 0 of ToFabric. KIND says what
//! the node does with it:
//!
//! =item to-host
//! gives it to the cluster's host, as if it came in by port LABEL of the cluster;
//!
//! =item from-host
//! sends it out by its port LABEL;
//!
//! =item to-route
//! routes it, as if it came in by port LABEL of the cluster.
//!
//! =back
//!
//! LABEL is the packet's paint, unless it is given. NODE can be changed at run time, as the cluster's leader changes. Without one frames are
//! dropped as "no node". What is for this very node leaves by output 1 as it came, or is dropped as "for this node" without it.
//!
//! =h node read/write
//! The NODE argument; empty without one.
//!
//! =e
//!   Paint(3) -> host :: FabricEncap(fabric, to-host, NODE 0) -> to;  host[1] -> ...
//!
//! =a Fabric, ToFabric, FromFabric

use std::sync::Arc;

use fabric::{Header, Kind, Label, NodeId};
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Handler, Verdict};
use packet::Batch;

use super::node::Node;
use super::wire::Wire;

pub(super) static CLASS: Class = Class {
    name: "FabricEncap",
    ports: "1/1-2",
    processing: Class::PUSH,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("fabric_encap.rs"),
    make: |setup| {
        let node = Node::of_argument(setup)?;
        let KindArgument(kind) = setup.arguments.required("KIND")?;
        let to: Option<u16> = setup.arguments.keyword("NODE")?;
        let label: Option<u32> = setup.arguments.keyword("LABEL")?;
        setup.arguments.finish()?;
        let label = label.map(|number| {
            Label::new(number)
                .ok_or_else(|| ConfigError::new(format!("LABEL: {number}; at most {}", Label::MAX)))
        });
        let mut encap =
            FabricEncap { wire: Wire::of(&node), kind, to: None, label: label.transpose()?, node };
        if let Some(number) = to {
            encap.to = Some(encap.find(number)?);
        }
        Ok(Box::new(encap))
    },
};

/// "Transparent Ethernet bridging" (IANA, "IEEE 802 Numbers"): an Ethernet frame follows.
const ETHERNET: [u8; 2] = [0x65, 0x58];

struct KindArgument(Kind);

impl FromArgument for KindArgument {
    const EXPECTED: &'static str = "to-host, from-host or to-route";

    fn from_argument(text: &str) -> Option<Self> {
        Some(Self(match text {
            "to-host" => Kind::ToHost,
            "from-host" => Kind::FromHost,
            "to-route" => Kind::ToRoute,
            _ => return None,
        }))
    }
}

struct FabricEncap {
    node: Arc<Node>,
    wire: Wire,
    kind: Kind,
    to: Option<NodeId>,
    label: Option<Label>,
}

impl FabricEncap {
    fn find(&self, number: u16) -> Result<NodeId, String> {
        let nodes = self.node.topology.nodes();
        NodeId::new(number).filter(|node| node.index() < nodes).ok_or_else(|| {
            format!("NODE: {number}; the nodes of {} are 0 to {}", self.node.topology.shape(), nodes - 1)
        })
    }
}

impl Element for FabricEncap {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let FabricEncap { ref node, wire, kind, to, label } = *self;
        cx.filter(batch, |packet| {
            let Some(to) = to else { return Verdict::Drop("no node") };
            if to == node.here {
                return Verdict::Divert(1, "for this node");
            }
            let paint = Label::new(packet.annotations().paint().into());
            let Some(label) = label.or(paint) else { return Verdict::Drop("no such port") };
            let Some(room) = packet.prepend(wire.length()) else {
                return Verdict::Drop("no room for an Ethernet header");
            };
            if let Wire::Link = wire {
                room[Header::LEN..Header::LEN + 2].copy_from_slice(&ETHERNET);
            }
            packet.set_link_header(0);
            wire.write(packet, &Header::new(kind, to, label, node.here, node.cluster), node.here);
            Verdict::Keep
        });
    }

    fn handlers(&self) -> &'static [Handler] {
        const { &[Handler::read_write("node", Combine::First)] }
    }

    fn read(&mut self, _name: &str, _argument: &str) -> Result<String, String> {
        Ok(self.to.map_or_else(String::new, |node| node.to_string()))
    }

    fn write(&mut self, _cx: &mut Context, _name: &str, value: &str) -> Result<(), String> {
        self.to = if value.trim().is_empty() { None } else { Some(self.find(u16::from_value(value)?)?) };
        Ok(())
    }
}
