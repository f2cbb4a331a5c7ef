//! =c
//! FabricEncap(FABRIC, KIND, I<keywords> NODE, LABEL)
//!
//! =s fabric
//! puts whole Ethernet frames into the fabric, to one node or several
//!
//! =d
//! FABRIC names a Fabric element. Puts the fabric's header before each frame, for input 0 of
//! ToFabric. KIND is the task of the node that gets the frame:
//!
//! =item to-host
//! gives it to the cluster's host, as if it came in by port LABEL of the cluster;
//!
//! =item from-host
//! sends it out by its port LABEL;
//!
//! =item to-route
//! routes it, as if it came in by port LABEL of the cluster;
//!
//! =item to-leader
//! does the same on the leader. NODE is the leader. A frame that was carried so once is dropped as
//! "carried to the leader already". So nodes that do not know the leader yet do not send it back
//! and forth.
//!
//! =back
//!
//! LABEL is the packet's paint, unless it is given. NODE is a node's number, or several with
//! weights, "NODE WEIGHT, NODE WEIGHT ...", among which flows are divided. It can be changed at run
//! time, as the cluster's leader changes, or routing nodes come and go. Nodes that cannot be
//! reached, and those of weight 0, get no flows meanwhile. In each case only as many flows change
//! their node as must. If no node can be reached, frames are dropped as "no node". A frame for this
//! very node leaves by output 1 as it came, or is dropped as "for this node" without it.
//!
//! B<Classes.> "NODE WEIGHT serves RULE; RULE ..." makes a node one for these flows only. A rule is
//! one of ACL without number and action, such as C<udp any any port 53>; C<in NUMBER> is the
//! packet's paint. The first rule that matches decides the class of a packet. Rules are tried in
//! the order in which NODE names them first.
//!
//! Flows of a class are divided among the nodes that serve it. While none of these can be reached,
//! the flows go to the general nodes, which serve nothing. Flows of no class are divided among the
//! general nodes, and among all nodes while there is no general one. Rules with ports, icmp-type or
//! established match no fragment, not even the first one, so that all fragments of a packet go to
//! one node. A packet without a proper IP header is of no class.
//!
//! =e
//!   Paint(3) -> host :: FabricEncap(fabric, to-host, NODE 0) -> to;  host[1] -> ...
//!   Paint(1) -> front :: FabricEncap(fabric, to-route, NODE "2 1, 3 1, 4 2") -> to;
//!   Paint(1) -> front :: FabricEncap(fabric, to-route,
//!       NODE "2 1, 3 1, 4 1 serves udp any any port 53; tcp any any port 53") -> to;
//!
//! =a Fabric, ToFabric, FromFabric, ACL

use std::fmt::Write;
use std::sync::Arc;

use fabric::{Front, Fronts, Header, Keys, Kind, Label, NodeId, RoutingNode};
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Verdict};
use packet::flow::{FlowFields, FlowHash, FlowKey};
use packet::{Batch, Packet};

use super::fabric_share;
use super::keys::FabricKeys;
use super::node::Node;
use super::traffic::{Classifier, check_traffic_rules};
use super::wire::{NO_ROOM, TO_LEADER, Wire};
use crate::acl::TrafficRule;

pub(super) static CLASS: Class = Class {
    name: "FabricEncap",
    ports: "1/1-2",
    processing: Class::PUSH,
    handlers: &[
        Handler::read(
            "classes",
            Combine::Join,
            "For each class of each worker: packets, the shares of nodes in 1024th parts as NODE:SHARE,NODE:SHARE or -, and the \
             rule, or `others` for flows of no class.",
            &Get(|e: &mut FabricEncap| {
                e.follow_paths();
                e.classes_text()
            }),
        ),
        Handler::read_write(
            "node",
            Combine::First,
            "The NODE argument; empty without one.",
            &Get(|e: &mut FabricEncap| e.text.clone()),
            &Put(|e: &mut FabricEncap, _, value| e.set_nodes(&String::from_value(value).unwrap_or_default())),
        ),
    ],
    manual: graph::manual!("fabric_encap.rs"),
    make: |setup| {
        let node = Node::of_argument(setup)?;
        let KindArgument { kind, is_to_leader } = setup.arguments.required("KIND")?;
        let nodes: Option<String> = setup.arguments.keyword("NODE")?;
        let label: Option<u32> = setup.arguments.keyword("LABEL")?;
        setup.arguments.finish()?;
        let label = label.map(|number| {
            Label::new(if is_to_leader { number | TO_LEADER } else { number })
                .ok_or_else(|| ConfigError::new(format!("LABEL: {number}; at most {}", Label::MAX)))
        });
        let mut encap = FabricEncap {
            wire: Wire::of(&node),
            kind,
            is_to_leader,
            text: String::new(),
            nodes: Vec::new(),
            reachable: Vec::new(),
            fronts: Fronts::default(),
            classifier: None,
            counts: vec![0],
            version: node.version(),
            label: label.transpose()?,
            hash: FlowHash {
                fields: FlowFields::Flow,
                key: FlowKey::from_bytes(Keys::public().secret(FLOWS)),
            },
            keys_version: 0,
            keys: setup.shared().get::<FabricKeys>(FabricKeys::KEY),
            node,
        };
        encap.take_key();
        encap.set_nodes(nodes.as_deref().unwrap_or_default())?;
        Ok(Box::new(encap))
    },
    ..Class::DEFAULT
};

struct KindArgument {
    kind: Kind,
    /// Whether the node is the leader, which does what others cannot.
    is_to_leader: bool,
}

impl FromArgument for KindArgument {
    const EXPECTED: &'static str = "to-host, from-host, to-route or to-leader";

    fn from_argument(text: &str) -> Option<Self> {
        let kind = match text {
            "to-host" => Kind::ToHost,
            "from-host" => Kind::FromHost,
            "to-route" | "to-leader" => Kind::ToRoute,
            _ => return None,
        };
        Some(Self { kind, is_to_leader: text == "to-leader" })
    }
}

struct FabricEncap {
    node: Arc<Node>,
    wire: Wire,
    kind: Kind,
    is_to_leader: bool,
    /// The nodes as they were written.
    text: String,
    nodes: Vec<RoutingNode<TrafficRule>>,
    /// Those of them that can be reached.
    reachable: Vec<NodeId>,
    fronts: Fronts<TrafficRule>,
    /// Of the classes of `fronts`; `None` without any.
    classifier: Option<Classifier>,
    /// Packets of each class, and behind them those of none.
    counts: Vec<u64>,
    /// Of the paths by which they are reached.
    version: u64,
    label: Option<Label>,
    /// All nodes of a cluster have the same, since both ways of a flow may come in by two of them and must meet at the node that has
    /// the flow's state.
    hash: FlowHash,
    /// Of the keys that `hash` is made with.
    keys_version: u64,
    keys: Option<Arc<FabricKeys>>,
}

/// What the secret of `hash` is for.
const FLOWS: &str = "flows among routing nodes";

impl FabricEncap {
    /// Takes the nodes that `text` names.
    fn set_nodes(&mut self, text: &str) -> Result<(), String> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let nodes = entries.map(|entry| self.entry(entry)).collect::<Result<Vec<_>, _>>()?;
        let mut rules: Vec<TrafficRule> = Vec::new();
        for rule in nodes.iter().flat_map(|node| &node.serves) {
            if !rules.contains(rule) {
                rules.push(*rule);
            }
        }
        check_traffic_rules(rules.len()).map_err(|problem| format!("NODE: {problem}"))?;
        (self.nodes, self.text) = (nodes, text.trim().to_owned());
        let before: Vec<TrafficRule> = self.fronts.classes().copied().collect();
        self.reachable = self.reachable_now();
        self.divide();
        if rules != before {
            let count = |rule| before.iter().position(|known| known == rule).map_or(0, |at| self.counts[at]);
            let others = self.counts.last().copied().unwrap_or(0);
            self.counts = rules.iter().map(count).chain([others]).collect();
            self.classifier = (!rules.is_empty()).then(|| Classifier::new(&rules));
        }
        Ok(())
    }

    /// Divides flows by the keys that are in force.
    #[cold]
    fn take_key(&mut self) {
        if let Some(keys) = &self.keys {
            // Read first, so that a change meanwhile is found at the next batch.
            self.keys_version = keys.version();
            self.hash.key = FlowKey::from_bytes(keys.keys().secret(FLOWS));
        }
    }

    /// Returns the nodes that can be reached now.
    fn reachable_now(&mut self) -> Vec<NodeId> {
        // Read first, so that a change meanwhile is found at the next batch.
        self.version = self.node.version();
        let (paths, here) = (self.node.paths(), self.node.here);
        let nodes = self.nodes.iter().map(|known| known.node);
        nodes.filter(|&node| node == here || paths.is_reachable(node)).collect()
    }

    /// Divides flows anew if paths have changed.
    #[inline]
    fn follow_paths(&mut self) {
        if self.node.version() != self.version {
            self.look();
        }
    }

    /// Looks which nodes can be reached now.
    #[cold]
    fn look(&mut self) {
        let reachable = self.reachable_now();
        if reachable != self.reachable {
            self.reachable = reachable;
            self.divide();
        }
    }

    /// Divides flows among the nodes that can be reached.
    fn divide(&mut self) {
        let FabricEncap { nodes, reachable, fronts, .. } = self;
        fronts.divide(nodes, |node| reachable.contains(&node));
    }

    /// A node, its weight, and what it serves.
    fn entry(&self, entry: &str) -> Result<RoutingNode<TrafficRule>, String> {
        let (node, serves) =
            entry.split_once(" serves ").map_or((entry, None), |(node, serves)| (node, Some(serves)));
        let mut words = node.split_whitespace();
        let number = words.next().and_then(|word| word.parse::<u16>().ok());
        let weight = words.next().map_or(Some(1), |word| word.parse().ok());
        let (Some(number), Some(weight), None) = (number, weight, words.next()) else {
            return Err(format!(
                "NODE: expected a node, or nodes with weights as in '1 2, 3 1 serves udp any any port 53', got '{entry}'"
            ));
        };
        let topology = &self.node.topology;
        let node = NodeId::new(number).filter(|node| node.index() < topology.nodes()).ok_or_else(|| {
            format!("NODE: {number}; the nodes of {} are 0 to {}", topology.shape(), topology.nodes() - 1)
        })?;
        let rules = serves.into_iter().flat_map(|serves| serves.split(';'));
        let serves = rules
            .map(|rule| {
                rule.parse().map_err(|problem| format!("NODE: {number}: '{}': {problem}", rule.trim()))
            })
            .collect::<Result<_, _>>()?;
        Ok(RoutingNode { node, weight, serves })
    }

    /// The handler `classes`.
    fn classes_text(&self) -> String {
        let mut text = String::new();
        let names = self.fronts.classes().map(TrafficRule::to_string).chain(["others".to_owned()]);
        for (class, (name, packets)) in names.zip(&self.counts).enumerate() {
            let front = self.fronts.of_class(class);
            let shares = self.nodes.iter().map(|known| (known.node, front.share(known.node)));
            let shares: Vec<String> = shares.map(|(node, share)| format!("{node}:{share}")).collect();
            let shares = if shares.is_empty() { "-".to_owned() } else { shares.join(",") };
            // Writing to a string does not fail.
            let _ = writeln!(text, "{packets} {shares} {name}");
        }
        text
    }
}

impl Element for FabricEncap {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        self.follow_paths();
        if self.keys.as_ref().is_some_and(|keys| keys.version() != self.keys_version) {
            self.take_key();
        }
        let FabricEncap { node, fronts, wire, kind, is_to_leader, label, hash, classifier, counts, .. } =
            self;
        let (node, wire, kind, is_to_leader, label, hash) =
            (&**node, *wire, *kind, *is_to_leader, *label, *hash);
        let carry = |packet: &mut Packet, front: &Front| {
            let Some(to) = front.node(hash.of(packet.data())) else { return Verdict::Drop("no node") };
            if to == node.here {
                return Verdict::Divert(1, "for this node");
            }
            if is_to_leader && fabric_share::is_carried(packet) {
                return Verdict::Drop("carried to the leader already");
            }
            let paint = u32::from(packet.annotations().paint());
            let paint = Label::new(if is_to_leader { paint | TO_LEADER } else { paint });
            let Some(label) = label.or(paint) else { return Verdict::Drop("no such port") };
            let header = Header::new(kind, to, label, node.here, node.cluster);
            if wire.enclose(packet, &header, node.here) { Verdict::Keep } else { Verdict::Drop(NO_ROOM) }
        };
        match classifier {
            None => {
                counts[0] += batch.len() as u64;
                let front = fronts.of_class(0);
                cx.filter(batch, |packet| carry(packet, front));
            }
            Some(classifier) => {
                let others = counts.len() - 1;
                let mut answers = classifier.classify(batch).iter();
                cx.filter(batch, |packet| {
                    let class = answers.next().map_or(others, |answer| answer.rule().min(others));
                    counts[class] += 1;
                    carry(packet, fronts.of_class(class))
                });
            }
        }
    }
}
