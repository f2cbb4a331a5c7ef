//! The decision of the input node in a packet's first bytes, on dedicated links and over switches.

use fabric::{Header, HeaderError, NodeId, Shim};
use packet::Packet;

use super::node::Node;

/// "Transparent Ethernet bridging" (IANA, "IEEE 802 Numbers"): an Ethernet frame follows.
const ETHERNET: [u8; 2] = [0x65, 0x58];

pub(super) const NO_ROOM: &str = "no room for an Ethernet header";

/// Ethernet header of a frame on a dedicated link.
pub(super) const LINK_HEADER: usize = 14;

/// How this fabric's frames begin.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wire {
    /// With a [`Header`] and an EtherType.
    Link,
    /// With a [`Shim`] of a cluster of so many nodes.
    Switch {
        /// How many.
        nodes: usize,
    },
}

pub(super) const NO_HEADER: &str = "no fabric header";
const UNKNOWN_KIND: &str = "unknown kind of fabric frame";
/// In the label of a frame that is to be routed, above the port: it goes to the leader, who alone can do it.
pub(super) const TO_LEADER: u32 = 1 << 8;
const NO_NODE: &str = "no node in fabric header";
/// Switches flood what they do not know.
pub(super) const FOR_ANOTHER: &str = "for another node";

/// The node that a frame from a switch says it comes from.
#[inline(always)]
pub(super) fn sender(packet: &Packet) -> Option<NodeId> {
    packet.data().first_chunk::<{ Shim::LEN }>().and_then(Shim::sender)
}

/// Under which reason a frame without a header is dropped.
fn reason(error: HeaderError) -> &'static str {
    match error {
        HeaderError::Foreign => NO_HEADER,
        HeaderError::UnknownKind => UNKNOWN_KIND,
        HeaderError::NoNode => NO_NODE,
    }
}

impl Wire {
    pub(super) fn of(node: &Node) -> Wire {
        if node.is_switched() { Wire::Switch { nodes: node.topology.nodes() } } else { Wire::Link }
    }

    /// Bytes before the packet.
    #[inline(always)]
    pub(super) fn length(self) -> usize {
        match self {
            Wire::Link => LINK_HEADER,
            Wire::Switch { .. } => Shim::LEN,
        }
    }

    /// Puts a header before a whole Ethernet frame that `here` sends; false where there is no room.
    pub(super) fn enclose(self, packet: &mut Packet, header: &Header, here: NodeId) -> bool {
        let Some(room) = packet.prepend(self.length()) else { return false };
        if let Wire::Link = self {
            room[Header::LEN..Header::LEN + 2].copy_from_slice(&ETHERNET);
        }
        packet.set_link_header(0);
        self.write(packet, header, here);
        true
    }

    /// What the frame says. `here` is the node that reads, or the one that is about to send.
    #[inline(always)]
    pub(super) fn read(self, packet: &Packet, here: NodeId) -> Result<Header, &'static str> {
        match self {
            Wire::Link => {
                let bytes = packet.data().first_chunk().ok_or(NO_HEADER)?;
                Header::parse(bytes).map_err(reason)
            }
            Wire::Switch { nodes } => {
                let bytes = packet.data().first_chunk().ok_or(NO_HEADER)?;
                let shim = Shim::parse(bytes, nodes).map_err(reason)?;
                let Shim { next, kind, output, label, input, hops, cluster, .. } = shim;
                if next != here && next != output {
                    return Err(FOR_ANOTHER);
                }
                // Who reads it as the next node is where it was sent to; on its way in, that is still the output.
                let via = (next != output).then_some(next);
                Ok(Header { kind, output, via, label, input, hops, entropy: 0, cluster })
            }
        }
    }

    /// Writes what changes on the way: path, hops, entropy. `here` sends it.
    #[inline(always)]
    pub(super) fn write(self, packet: &mut Packet, header: &Header, here: NodeId) {
        match self {
            Wire::Link => {
                if let Some(bytes) = packet.data_mut().first_chunk_mut() {
                    *bytes = header.bytes();
                }
            }
            Wire::Switch { nodes } => {
                let Header { kind, output, via, label, input, hops, cluster, .. } = *header;
                let next = via.unwrap_or(output);
                let shim = Shim { next, sender: here, kind, output, label, input, hops, cluster };
                if let (Some(bytes), Some(written)) = (packet.data_mut().first_chunk_mut(), shim.bytes(nodes))
                {
                    *bytes = written;
                }
            }
        }
    }
}
