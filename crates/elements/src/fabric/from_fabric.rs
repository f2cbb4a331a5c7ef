//! =c
//! FromFabric(FABRIC, LINK, PORT0, PORT1, ...)
//!
//! =s fabric
//! takes packets from another node of the cluster, to relay them or to send them to their next hop
//!
//! =d
//! FABRIC names a Fabric element. LINK is the number of this node's link that the frames come by.
//! The ports are this node's own. Reads only the fabric's header, because the input node has done
//! all the rest. With I<n> links of this node the outputs are:
//!
//! =item i, less than n
//! frames for other nodes, which go on by link I<i>;
//!
//! =item n
//! hellos, painted with LINK, for FabricHello (over a Punt);
//!
//! =item n+1
//! Ethernet frames for the cluster's host, painted with the number of the cluster's port that they came in by;
//!
//! =item n+2
//! Ethernet frames that this node has to route, painted likewise. Frames that FabricEncap carried
//! to the leader are not carried again;
//!
//! =item n+3+i
//! output of PORTI<i>: packets with the Ethernet header of their next hop, frames of the cluster's
//! host as they are.
//!
//! =back
//!
//! Packets that have arrived carry the number of their input node, for FabricShare.
//!
//! Packets are accepted only from a neighbour that has proved its identity by its hellos. On a
//! switch, that is the node that the frame's source address names. On a dedicated link, it is the
//! node that the topology names. All other packets are dropped as "from a stranger".
//!
//! These frames are dropped and counted too:
//!
//! =item *
//! frames of others: `no fabric header`, `of another cluster`, `for another node`
//!
//! =item *
//! frames that mean nothing here: `unknown kind of fabric frame`, `no node in fabric header`,
//! `unknown adjacency`, `no such port`
//!
//! =item *
//! frames of Linux from a node that does not lead: `not from the leader`
//!
//! =item *
//! frames that have passed too many nodes (`circles`) or whose path is cut (`link is down`)
//!
//! =item *
//! hellos by a switch beyond the places of each proven neighbour and of strangers (`too many hellos`)
//!
//! =back
//!
//! =e
//!   fabric :: Fabric(mesh(3), 0);
//!   FromDevice(fab0) -> from0 :: FromFabric(fabric, 0, eth1);
//!   from0[0] -> Discard;  from0[1] -> link1;  from0[2] -> hellos;  from0[5] -> ToDevice(eth1);
//!
//! =a Fabric, ToFabric, FabricHello, FabricShare

use std::sync::Arc;

use fabric::{Header, Hello, Kind, Label, NodeId, NodeSet, Paths, Shim, Words};
use fib::Adjacency;
use fib::publish::Reader;
use graph::{Class, ConfigError, Context, Element, Setup};
use packet::wire::ethernet::HEADER_LEN;
use packet::{Batch, MAX_BATCH, Packet};

use super::adjacencies::FabricAdjacencies;
use super::fabric_share;
use super::node::Node;
use super::wire::{self, FOR_ANOTHER, NO_HEADER, TO_LEADER, Wire};

pub(super) static CLASS: Class = Class {
    name: "FromFabric",
    ports: "1/-",
    processing: Class::PUSH,
    manual: graph::manual!("from_fabric.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let node = Node::of_argument(setup)?;
    let link: u16 = setup.arguments.required("LINK")?;
    let ports = setup.arguments.names();
    setup.arguments.finish()?;
    let links = node.links();
    if usize::from(link) >= links {
        let highest = links.saturating_sub(1);
        return Err(ConfigError::new(format!(
            "LINK: {link}; the links of node {} are 0 to {highest}",
            node.here
        )));
    }
    let most = links + BEYOND + ports.len();
    if setup.outputs() > most {
        let outputs = setup.outputs();
        let message =
            format!("{outputs} outputs; with {links} links and {} ports there are {most}", ports.len());
        return Err(ConfigError::new(message));
    }
    if setup.is_check() {
        return Ok(Box::new(super::Checked));
    }
    let adjacencies = FabricAdjacencies::of_ports(setup, &ports)?;
    let place =
        Place { wire: Wire::of(&node), link: link as u8, links: links as u16, ports: ports.len() as u16 };
    let mut element = FromFabric {
        reader: adjacencies.readers.register(),
        version: 0,
        believed: NodeSet::default(),
        believes_nobody: true,
        paths: node.paths(),
        copy: setup.copy().index,
        room: Room::new(node.topology.nodes()),
        outputs: Box::new([0; MAX_BATCH]),
        place,
        node,
    };
    element.look();
    Ok(Box::new(element))
}

/// Outputs behind those of the links and before those of the ports.
const BEYOND: usize = 3;
const HELLOS: u16 = 0;
const TO_HOST: u16 = 1;
const TO_ROUTE: u16 = 2;
const PORTS: u16 = 3;

/// Instead of an output.
const DROPPED: u16 = 0x8000;
const REASONS: [&str; 13] = [
    NO_HEADER,
    "unknown kind of fabric frame",
    "no node in fabric header",
    "of another cluster",
    FOR_ANOTHER,
    "circles",
    "link is down",
    "unknown adjacency",
    "no such port",
    "no room for an Ethernet header",
    "not from the leader",
    "from a stranger",
    "too many hellos",
];

/// The number that drops a packet for `reason`.
const fn dropped(reason: usize) -> u16 {
    DROPPED | reason as u16
}

const OTHER_CLUSTER: u16 = dropped(3);
const ANOTHER_NODE: u16 = dropped(4);
const CIRCLES: u16 = dropped(5);
const LINK_DOWN: u16 = dropped(6);
const UNKNOWN_ADJACENCY: u16 = dropped(7);
const NO_SUCH_PORT: u16 = dropped(8);
const NO_ROOM: u16 = dropped(9);
const NOT_FROM_THE_LEADER: u16 = dropped(10);
const STRANGER: u16 = dropped(11);
const TOO_MANY_HELLOS: u16 = dropped(12);

struct FromFabric {
    node: Arc<Node>,
    place: Place,
    reader: Reader<Vec<Option<Adjacency>>>,
    paths: Arc<Paths>,
    /// The neighbours on the link whose frames are believed.
    believed: NodeSet,
    /// Whether there is none.
    believes_nobody: bool,
    /// Of the paths and of whom is believed.
    version: u64,
    copy: usize,
    room: Room,
    outputs: Box<[u16; MAX_BATCH]>,
}

/// Where frames come from, and what the outputs are.
#[derive(Clone, Copy)]
struct Place {
    wire: Wire,
    link: u8,
    links: u16,
    ports: u16,
}

type Adjacencies<'a> = &'a [Option<Adjacency>];

/// The output of a frame from a dedicated link; it leaves as it is to leave.
#[inline(always)]
fn from_link(packet: &mut Packet, node: &Node, place: Place, paths: &Paths, known: Adjacencies<'_>) -> u16 {
    let Some(header) = packet.data_mut().first_chunk_mut::<{ Header::LEN }>() else { return dropped(0) };
    let mut words = Words::read(header);
    if !words.are_of(node.cluster) {
        return other(packet, node, place);
    }
    let target = words.advance(node.here);
    if target == node.here.number() {
        fabric_share::set_input_node(packet, words.input());
        return deliver(packet, words.kind(), words.label(), node, place, known);
    }
    if !words.hop() {
        return CIRCLES;
    }
    words.write(header);
    paths.link_towards_bits(target, words.entropy()).unwrap_or(LINK_DOWN)
}

/// The same from a switch.
fn from_switch(
    packet: &mut Packet,
    node: &Node,
    place: Place,
    paths: &Paths,
    believed: &NodeSet,
    known: Adjacencies<'_>,
) -> u16 {
    let here = node.here;
    let mut header = match place.wire.read(packet, here) {
        Ok(header) if header.cluster == node.cluster => header,
        _ => return other(packet, node, place),
    };
    if !wire::sender(packet).is_some_and(|sender| believed.contains(sender)) {
        return STRANGER;
    }
    if header.output == here && header.via.is_none() {
        fabric_share::set_input_node(packet, header.input.number());
        return deliver(packet, header.kind as u8, header.label.number(), node, place, known);
    }
    if header.via.take().is_none() {
        return ANOTHER_NODE;
    }
    let Some(hops) = header.hops.checked_sub(1) else { return CIRCLES };
    header.hops = hops;
    place.wire.write(packet, &header, here);
    paths.link_towards(header.output, header.entropy).unwrap_or(LINK_DOWN)
}

/// What comes by a dedicated link on which nobody is believed.
#[cold]
fn from_stranger(packet: &mut Packet, node: &Node, place: Place) -> u16 {
    match other(packet, node, place) {
        OTHER_CLUSTER => STRANGER,
        output => output,
    }
}

/// What is not a packet of this fabric.
#[cold]
fn other(packet: &mut Packet, node: &Node, place: Place) -> u16 {
    if packet.data().starts_with(&Hello::DESTINATION) {
        packet.annotations_mut().set_paint(place.link);
        return place.links + HELLOS;
    }
    let reason = match place.wire.read(packet, node.here) {
        Ok(_) => return OTHER_CLUSTER,
        Err(reason) => reason,
    };
    dropped(REASONS.iter().position(|&known| known == reason).unwrap_or(0))
}

/// The output of a frame that has arrived.
#[inline(always)]
fn deliver(
    packet: &mut Packet,
    kind: u8,
    label: u32,
    node: &Node,
    place: Place,
    known: Adjacencies<'_>,
) -> u16 {
    if kind != Kind::Routed as u8 {
        return frame(packet, kind, label, node, place);
    }
    let Some(Some(adjacency)) = known.get(label as usize) else { return UNKNOWN_ADJACENCY };
    if adjacency.port() >= place.ports {
        return NO_SUCH_PORT;
    }
    let output = place.links + PORTS + adjacency.port();
    let rewrite = adjacency.rewrite();
    if let Wire::Link = place.wire
        && let Ok(rewrite) = <&[u8; HEADER_LEN]>::try_from(rewrite)
        && let Some(header) = packet.data_mut().first_chunk_mut::<HEADER_LEN>()
    {
        *header = *rewrite;
        return output;
    }
    packet.strip(place.wire.length());
    let Some(room) = packet.prepend(rewrite.len()) else { return NO_ROOM };
    room[..rewrite.len()].copy_from_slice(rewrite);
    output
}

/// The output of a whole Ethernet frame.
#[cold]
fn frame(packet: &mut Packet, kind: u8, label: u32, node: &Node, place: Place) -> u16 {
    if kind == Kind::FromHost as u8 {
        // One that was cut off from the others may not know yet that it leads no more.
        let input = fabric_share::input_node(packet);
        if node.leader().is_some_and(|leader| input != Some(leader)) {
            return NOT_FROM_THE_LEADER;
        }
    }
    packet.strip(place.wire.length());
    packet.set_link_header(0);
    let Some(label) = Label::new(label).map(Label::number) else { return NO_SUCH_PORT };
    if kind == Kind::FromHost as u8 {
        return if label < u32::from(place.ports) {
            place.links + PORTS + label as u16
        } else {
            NO_SUCH_PORT
        };
    }
    let is_to_leader = kind == Kind::ToRoute as u8 && label & TO_LEADER != 0;
    let port = if is_to_leader { label & !TO_LEADER } else { label };
    let Ok(paint) = u8::try_from(port) else { return NO_SUCH_PORT };
    packet.annotations_mut().set_paint(paint);
    if is_to_leader {
        fabric_share::set_carried(packet);
    }
    place.links + if kind == Kind::ToHost as u8 { TO_HOST } else { TO_ROUTE }
}

/// Hellos of each proven neighbour, and of all strangers together, that go to the slow thread in a [`PERIOD_NS`]: fewer than its ring
/// holds, so that strangers on a switch do not push out what neighbours send. Neighbours send one a few milliseconds.
const OF_NEIGHBOUR: u8 = 16;
const OF_STRANGERS: u8 = 64;
const PERIOD_NS: u64 = 10_000_000;

/// The places of hellos that come by a switch.
struct Room {
    ends_ns: u64,
    strangers: u8,
    /// By node.
    neighbours: Box<[u8]>,
}

impl Room {
    fn new(nodes: usize) -> Self {
        Self { ends_ns: 0, strangers: 0, neighbours: vec![0; nodes].into() }
    }

    /// Takes a place for a hello of a neighbour that is believed, or of a stranger. Returns whether there is one.
    fn takes(&mut self, sender: Option<NodeId>, now_ns: u64) -> bool {
        if now_ns >= self.ends_ns {
            self.ends_ns = now_ns + PERIOD_NS;
            self.strangers = 0;
            self.neighbours.fill(0);
        }
        let (taken, most) = match sender.and_then(|sender| self.neighbours.get_mut(sender.index())) {
            Some(taken) => (taken, OF_NEIGHBOUR),
            None => (&mut self.strangers, OF_STRANGERS),
        };
        let has_room = *taken < most;
        *taken += u8::from(has_room);
        has_room
    }
}

impl FromFabric {
    /// Learns which ways are alive and whose frames are believed.
    #[cold]
    fn look(&mut self) {
        // Read first, so that a change meanwhile is found at the next batch.
        self.version = self.node.version();
        let ways = self.node.ways();
        self.paths = ways.paths;
        self.believed = ways.believed.get(usize::from(self.place.link)).cloned().unwrap_or_default();
        self.believes_nobody = self.believed.is_empty();
    }
}

impl Element for FromFabric {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        if self.node.version() != self.version {
            self.look();
        }
        let Self { node, place, reader, paths, believed, believes_nobody, copy, room, outputs, .. } = self;
        let outputs = &mut outputs[..batch.len()];
        let known = reader.enter();
        match place.wire {
            Wire::Link if *believes_nobody => {
                for (packet, output) in batch.packets_mut().iter_mut().zip(&mut *outputs) {
                    *output = from_stranger(packet, node, *place);
                }
            }
            Wire::Link => {
                for (packet, output) in batch.packets_mut().iter_mut().zip(&mut *outputs) {
                    *output = from_link(packet, node, *place, paths, &known);
                }
            }
            Wire::Switch { .. } => {
                for (packet, output) in batch.packets_mut().iter_mut().zip(&mut *outputs) {
                    *output = from_switch(packet, node, *place, paths, believed, &known);
                }
            }
        }
        drop(known);
        for (packet, output) in batch.packets().iter().zip(&mut *outputs) {
            if *output < place.links {
                node.count_relayed(*copy, usize::from(*output), packet.len() as u64);
            } else if *output == place.links + HELLOS && matches!(place.wire, Wire::Switch { .. }) {
                // Other stations' addresses have the number of a node in them, too.
                let is_sender = |node: &NodeId| {
                    believed.contains(*node) && packet.data().get(6..12) == Some(&Shim::address(*node)[..])
                };
                let sender = wire::sender(packet).filter(is_sender);
                if !room.takes(sender, cx.now_ns()) {
                    *output = TOO_MANY_HELLOS;
                }
            }
        }
        super::send(cx, batch, outputs, |code| REASONS[usize::from(code & !DROPPED)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_do_not_take_the_places_of_neighbours() {
        let mut room = Room::new(2);
        let neighbour = NodeId::new(1);
        let all = |room: &mut Room, sender, now_ns| (0..1_000).filter(|_| room.takes(sender, now_ns)).count();
        assert_eq!(all(&mut room, None, 5), usize::from(OF_STRANGERS));
        assert_eq!(all(&mut room, neighbour, 6), usize::from(OF_NEIGHBOUR));
        // A neighbour that floods takes nobody's place but its own.
        assert!(room.takes(NodeId::new(0), 7) && !room.takes(neighbour, 7) && !room.takes(None, 7));
        assert!(room.takes(None, 5 + PERIOD_NS) && room.takes(neighbour, 5 + PERIOD_NS));
    }
}
