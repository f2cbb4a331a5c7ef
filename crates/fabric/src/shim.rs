//! The decision of the input node in one MPLS label (RFC 3032), for a fabric over Ethernet switches: these forward by the
//! destination address, so that it has to be the next node's.
//!
//! ```text
//! destination  0x42 | next node 10  | 0 30
//! source       0x42 | this node 10  | input node 10 | 0 4 | cluster 16
//! EtherType    0x8847
//! label entry  output node n bits, label 20 - n bits | Kind 3 | bottom of stack 1 | hops left 8
//! ```
//!
//! How many bits the output node takes follows from the number of nodes. Labels below 16 are reserved (RFC 3032, 2.1): node
//! numbers start at one, so that no frame has one. A switch learns one source address for every pair of nodes.

use crate::{HeaderError, Kind, Label, NodeId};

const FIRST_BYTE: u8 = 0x42;
/// MPLS unicast (RFC 3032, 5).
const ETHER_TYPE: [u8; 2] = [0x88, 0x47];
/// Largest lifetime; the same as on dedicated links, that both end circling packets alike.
const BOTTOM: u32 = 1 << 8;

/// What a frame on a switched fabric says before its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shim {
    /// The node that the switch brings the frame to: the output node, or the intermediate one.
    pub next: NodeId,
    /// The node that sent it last.
    pub sender: NodeId,
    /// What the frame is.
    pub kind: Kind,
    /// Where it leaves the fabric.
    pub output: NodeId,
    /// What the output node does with it.
    pub label: Label,
    /// Where it entered the fabric.
    pub input: NodeId,
    /// Nodes that it may still go to.
    pub hops: u8,
    /// Whose it is.
    pub cluster: u16,
}

/// Bits of the label entry that the output node takes in a cluster of so many.
const fn node_bits(nodes: usize) -> u32 {
    // One more, because zero would make reserved labels.
    usize::BITS - nodes.leading_zeros()
}

impl Shim {
    /// Length in bytes, with the Ethernet header.
    pub const LEN: usize = 18;

    /// The address by which switches find a node. As a source it is that of hellos, which enter the fabric nowhere.
    pub fn address(node: NodeId) -> [u8; 6] {
        let number = u64::from(FIRST_BYTE) << 40 | u64::from(node.number()) << 30;
        let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
        [a, b, c, d, e, f]
    }

    /// The node that sent a frame last, from the first bytes of the frame alone.
    #[inline(always)]
    pub fn sender(bytes: &[u8; Self::LEN]) -> Option<NodeId> {
        NodeId::new(u16::from_be_bytes([bytes[7], bytes[8]]) >> 6)
    }

    /// The highest label at each node of a cluster of so many.
    pub const fn highest_label(nodes: usize) -> u32 {
        (1 << (20 - node_bits(nodes))) - 1
    }

    /// Its bytes, in a cluster of so many nodes. `None` if its label does not fit ([`Shim::highest_label`]).
    pub fn bytes(&self, nodes: usize) -> Option<[u8; Self::LEN]> {
        if self.label.number() > Self::highest_label(nodes) || self.output.index() >= nodes {
            return None;
        }
        let address = |high: NodeId, low: u32| {
            (u64::from(FIRST_BYTE) << 40 | u64::from(high.number()) << 30 | u64::from(low)).to_be_bytes()
        };
        let output = u32::from(self.output.number()) + 1;
        let label = output << (20 - node_bits(nodes)) | self.label.number();
        let entry = label << 12 | (self.kind as u32) << 9 | BOTTOM | u32::from(self.hops);
        let mut bytes = [0; Self::LEN];
        bytes[..6].copy_from_slice(&address(self.next, 0)[2..]);
        let input = u32::from(self.input.number()) << 20 | u32::from(self.cluster);
        bytes[6..12].copy_from_slice(&address(self.sender, input)[2..]);
        bytes[12..14].copy_from_slice(&ETHER_TYPE);
        bytes[14..].copy_from_slice(&entry.to_be_bytes());
        Some(bytes)
    }

    /// Reads the first [`Shim::LEN`] bytes of a frame in a cluster of so many nodes.
    ///
    /// # Errors
    /// [`HeaderError`] for what no node of such a cluster writes.
    pub fn parse(bytes: &[u8; Self::LEN], nodes: usize) -> Result<Shim, HeaderError> {
        let [a, b, c, d, e, f, g, h, i, j, k, l, t, u, w, x, y, z] = *bytes;
        let destination = u64::from_be_bytes([0, 0, 0, b, c, d, e, f]);
        let source = u64::from_be_bytes([0, 0, 0, h, i, j, k, l]);
        let entry = u32::from_be_bytes([w, x, y, z]);
        let is_ours = a == FIRST_BYTE && g == FIRST_BYTE && [t, u] == ETHER_TYPE;
        if !is_ours || entry & BOTTOM == 0 || destination & 0x3fff_ffff != 0 || source & 0xf_0000 != 0 {
            return Err(HeaderError::Foreign);
        }
        let kind = Kind::from_number((entry >> 9) as u8 & 7).ok_or(HeaderError::UnknownKind)?;
        let node = |bits: u64| {
            NodeId::new(bits as u16 & 0x3ff).filter(|node| node.index() < nodes).ok_or(HeaderError::NoNode)
        };
        let output =
            u64::from(entry >> 12 >> (20 - node_bits(nodes))).checked_sub(1).ok_or(HeaderError::NoNode)?;
        Ok(Shim {
            next: node(destination >> 30)?,
            sender: node(source >> 30)?,
            kind,
            output: node(output)?,
            label: Label::new(entry >> 12 & Self::highest_label(nodes)).ok_or(HeaderError::Foreign)?,
            input: node(source >> 20)?,
            hops: entry as u8,
            cluster: source as u16,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shim() -> Shim {
        let node = |number| NodeId::new(number).unwrap();
        Shim {
            next: node(2),
            sender: node(0),
            kind: Kind::ToHost,
            output: node(3),
            label: Label::new(5).unwrap(),
            input: node(1),
            hops: 63,
            cluster: 0x0a0b,
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_picture() {
        // Four nodes: three bits for numbers 1 to 4, seventeen for the label.
        assert_eq!(Shim::highest_label(4), 0x1_ffff);
        let bytes = shim().bytes(4).unwrap();
        assert_eq!(bytes[..6], [0x42, 0x00, 0x80, 0, 0, 0]);
        assert_eq!(bytes[6..12], [0x42, 0x00, 0x00, 0x10, 0x0a, 0x0b]);
        assert_eq!(bytes[12..14], [0x88, 0x47]);
        // 100 00000000000000101 | 001 1 | 63
        assert_eq!(bytes[14..], [0x80, 0x00, 0x53, 0x3f]);
        assert_eq!(Shim::parse(&bytes, 4), Ok(shim()));
        assert_eq!(Shim::sender(&bytes), Some(shim().sender));
    }

    #[test]
    fn the_largest_cluster_has_a_thousand_labels_a_node() {
        assert_eq!(Shim::highest_label(NodeId::COUNT), 1023);
        let high = Shim { output: NodeId::new(1022).unwrap(), label: Label::new(1023).unwrap(), ..shim() };
        assert_eq!(Shim::parse(&high.bytes(NodeId::COUNT).unwrap(), NodeId::COUNT), Ok(high));
        assert_eq!(Shim { label: Label::new(1024).unwrap(), ..high }.bytes(NodeId::COUNT), None);
    }

    #[test]
    fn no_frame_has_a_reserved_label() {
        for nodes in [1, 2, 4, 15, 16, 1023] {
            let first = Shim { output: NodeId::new(0).unwrap(), label: Label::new(0).unwrap(), ..shim() };
            let bytes = first.bytes(nodes).unwrap();
            let entry = u32::from_be_bytes([bytes[14], bytes[15], bytes[16], bytes[17]]);
            assert!(entry >> 12 >= 16, "{nodes} nodes");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_written_back(tail: [u8; 18], nodes in 1usize..1024) {
            let mut bytes = tail;
            (bytes[0], bytes[6], bytes[12], bytes[13]) = (0x42, 0x42, 0x88, 0x47);
            bytes[2] &= 0xc0;
            bytes[3..6].fill(0);
            if let Ok(shim) = Shim::parse(&bytes, nodes) {
                prop_assert_eq!(shim.bytes(nodes), Some(bytes));
                prop_assert_eq!(Shim::sender(&bytes), Some(shim.sender));
            }
        }
    }
}
