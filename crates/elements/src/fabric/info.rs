//! =c
//! Fabric(TOPOLOGY, NODE, I<keywords> CLUSTER, RATE, LINK_RATE, MODE, DELTA, FLOWLETS, HELLO, DEAD)
//!
//! =s fabric
//! declares the cluster, and which of its nodes this router is
//!
//! =d
//! Several servers that are wired to each other act as one router. This element declares how they are wired, and
//! which of them this is. It sees no packets. ToFabric, FromFabric, FabricHello, FabricEncap and FabricShare name it
//! as their first argument.
//!
//! TOPOLOGY is mesh(NODES), mesh(NODES, CABLES), star(NODES), star(NODES, SWITCHES), torus(SIDE, ...),
//! fly(ARITY, STAGES), compact(SIDE), groups(SIZE), cube(DIMENSIONS) or debruijn(ARITY, DIGITS).
//! NODE is this node's number, from 0 on. Keyword arguments are:
//!
//! =over 8
//!
//! =item CLUSTER
//! Integer from 0 to 65535. Frames of other clusters are dropped. Default is 0.
//!
//! =item RATE
//! Bandwidth. R, the most that may come in by this node's ports. Default is 10Gbps.
//!
//! =item LINK_RATE
//! Bandwidth of each link. Default is RATE.
//!
//! =item MODE
//! C<direct-vlb>: up to R/N of what goes to a node goes directly, the rest over other nodes and the direct link alike.
//! C<direct-vlb-others>: the same, but the rest goes over other nodes only. C<classic-vlb>: all of it goes over another node.
//! C<single-path>: all of it goes directly. Default is C<direct-vlb>.
//!
//! =item DELTA
//! Time. A flow that pauses no longer than this keeps its path while that has room. 0: every packet for itself. Default is 100ms.
//!
//! =item FLOWLETS
//! Integer. How many flows each worker remembers, at 4 bytes each. Default is 65536.
//!
//! =item HELLO
//! Time between two hellos on each link. With 0 none are sent, and all links are taken for alive. Default is 10ms.
//!
//! =item DEAD
//! Integer. Hellos that must be missed for a link to be dead. Default is 3.
//!
//! =back
//!
//! =e
//!   fabric :: Fabric(mesh(4), 2, RATE 10Gbps, LINK_RATE 5Gbps);
//!
//! =a ToFabric, FromFabric, FabricHello, FabricEncap, FabricShare

use std::fmt::Write;
use std::sync::Arc;

use fabric::NodeId;
use graph::{Class, Combine, Element, Get, Handler, Put};

use super::node::Node;

pub(super) static CLASS: Class = Class {
    name: "Fabric",
    ports: "0/0",
    handlers: &[
        Handler::read(
            "paths",
            Combine::First,
            "For each node: whether it is reached directly, and over which others.",
            &Get(|e: &mut Info| e.paths_text()),
        ),
        Handler::read(
            "relayed",
            Combine::First,
            "For each link a line: the bytes that were relayed over it for other nodes.",
            &Get(|e: &mut Info| {
                (0..e.node.links()).map(|link| format!("{}\n", e.node.relayed_by_all(link))).collect()
            }),
        ),
        Handler::read_write(
            "leader",
            Combine::First,
            "The number of the node that leads, whose Linux is the cluster's; empty while nobody is known \
             to. FromFabric takes frames of Linux from there only.",
            &Get(|e: &mut Info| e.leader_text()),
            &Put(|e: &mut Info, _, value| e.set_leader(value)),
        ),
    ],
    manual: graph::manual!("info.rs"),
    make: |setup| {
        let node = Node::of_element(setup, setup.name(), setup.config())?;
        Ok(Box::new(Info { node }))
    },
    ..Class::DEFAULT
};

struct Info {
    node: Arc<Node>,
}

impl Info {
    /// The handler `paths`.
    fn paths_text(&self) -> String {
        let paths = self.node.paths();
        let mut text = String::new();
        for output in NodeId::first(self.node.topology.nodes()).filter(|&output| output != self.node.here) {
            let direct = if paths.is_direct(output) { "directly" } else { "not directly" };
            let vias: Vec<String> = paths.vias(output).map(|via| via.to_string()).collect();
            let vias = if vias.is_empty() { "nobody".to_owned() } else { vias.join(" ") };
            // Writing to a string does not fail.
            let _ = writeln!(text, "{output} {direct}, over {vias}");
        }
        text
    }

    /// The handler `leader`.
    fn leader_text(&self) -> String {
        self.node.leader().map_or(String::new(), |leader| leader.to_string())
    }

    /// Writes the handler `leader`.
    fn set_leader(&self, value: &str) -> Result<(), String> {
        let nodes = self.node.topology.nodes();
        let leader = match value.trim() {
            "" => None,
            text => {
                let number = text.parse().ok().and_then(NodeId::new).filter(|node| node.index() < nodes);
                Some(number.ok_or_else(|| format!("'{text}'; expected 0 to {}, or nothing", nodes - 1))?)
            }
        };
        self.node.set_leader(leader);
        Ok(())
    }
}

impl Element for Info {}
