//! The decision of the input node in the Ethernet addresses of a frame: on a dedicated link these are free, because
//! nobody but the two nodes at its ends reads them. So it costs no byte.
//!
//! ```text
//! destination  kkkk0010 | output node 10 | intermediate node 10, or all ones | label 20
//! source       00000010 | input node 10  | hops left 6 | entropy 8 | cluster 16
//! EtherType    the packet's own; 0x6558 (a whole Ethernet frame follows) where Kind says so
//! ```
//!
//! The low four bits of both first bytes make these unicast addresses of the "administratively assigned" quarter of the locally
//! administered ones (IEEE 802c-2017, 4.2). No station's manufacturer gives such, so a capture shows what it is.

use crate::NodeId;

/// Nodes that a packet may pass at most behind its input node, before it is dropped as circling. A 2-ary 9-fly has twenty.
pub const LONGEST_WAY: u8 = 63;

/// The low four bits of the first byte.
const ADMINISTRATIVELY_ASSIGNED: u64 = 0x2;
/// In place of an intermediate node.
const NONE: u64 = 0x3ff;

/// What is in a frame, and what its label means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A packet that was routed: the label is the adjacency at the output node.
    Routed = 0,
    /// A frame for the cluster's host (the leader's Linux): the label is the port of the cluster that it came in by.
    ToHost = 1,
    /// A frame of the cluster's host: the label is the port of the output node that it leaves by.
    FromHost = 2,
    /// A frame that is still to be routed: the label is the port of the cluster that it came in by.
    ToRoute = 3,
}

impl Kind {
    /// All of them, by their number.
    pub const ALL: [Kind; 4] = [Kind::Routed, Kind::ToHost, Kind::FromHost, Kind::ToRoute];

    /// The kind of this number.
    pub const fn from_number(number: u8) -> Option<Kind> {
        if (number as usize) < Self::ALL.len() { Some(Self::ALL[number as usize]) } else { None }
    }

    /// Whether a whole Ethernet frame follows the header, and not a packet.
    pub const fn holds_frame(self) -> bool {
        matches!(self, Kind::ToHost | Kind::FromHost | Kind::ToRoute)
    }
}

/// A number of 20 bits whose meaning is the [`Kind`]'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(u32);

impl Label {
    /// The highest one.
    pub const MAX: u32 = 0xf_ffff;

    /// The label of this number, if there is one.
    pub const fn new(number: u32) -> Option<Label> {
        if number <= Self::MAX { Some(Label(number)) } else { None }
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// What the addresses of a frame on a dedicated link say.
///
/// ```
/// use fabric::{Header, Kind, Label, NodeId};
///
/// let node = |number| NodeId::new(number).expect("a node");
/// let header = Header::new(Kind::Routed, node(3), Label::new(77).expect("a label"), node(1), 9);
/// let via_two = header.with_via(Some(node(2)));
/// assert_eq!(Header::parse(&via_two.bytes()), Ok(via_two));
/// assert_eq!(via_two.bytes()[0], 0x02);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the frame is.
    pub kind: Kind,
    /// Where it leaves the fabric.
    pub output: NodeId,
    /// The intermediate node, until the packet was there.
    pub via: Option<NodeId>,
    /// What the output node does with it.
    pub label: Label,
    /// Where it entered the fabric.
    pub input: NodeId,
    /// Nodes that it may still go to.
    pub hops: u8,
    /// Bits of the flow's hash, by which nodes on the way choose among parallel links.
    pub entropy: u8,
    /// Whose it is: links are wired wrongly now and then.
    pub cluster: u16,
}

/// Why a frame begins with no [`Header`] or [`Shim`](crate::Shim).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Not made by a node.
    #[error("no fabric header")]
    Foreign,
    /// By a node that knows more kinds than this one.
    #[error("unknown kind of fabric frame")]
    UnknownKind,
    /// The output, input or next node is not a number of a node.
    #[error("no node in fabric header")]
    NoNode,
}

impl Header {
    /// Length in bytes.
    pub const LEN: usize = 12;

    /// A header of a frame that takes the direct path, and has all its hops before it.
    pub const fn new(kind: Kind, output: NodeId, label: Label, input: NodeId, cluster: u16) -> Header {
        Header { kind, output, via: None, label, input, hops: LONGEST_WAY, entropy: 0, cluster }
    }

    /// The same over another intermediate node, or none.
    #[must_use]
    pub const fn with_via(mut self, via: Option<NodeId>) -> Header {
        self.via = via;
        self
    }

    /// Its bytes: destination and source address.
    #[inline]
    pub fn bytes(&self) -> [u8; Self::LEN] {
        let via = self.via.map_or(NONE, |node| u64::from(node.number()));
        let destination = (((self.kind as u64) << 4) | ADMINISTRATIVELY_ASSIGNED) << 40
            | u64::from(self.output.number()) << 30
            | via << 20
            | u64::from(self.label.0);
        let source = ADMINISTRATIVELY_ASSIGNED << 40
            | u64::from(self.input.number()) << 30
            | u64::from(self.hops & LONGEST_WAY) << 24
            | u64::from(self.entropy) << 16
            | u64::from(self.cluster);
        let mut bytes = [0; Self::LEN];
        bytes[..6].copy_from_slice(&destination.to_be_bytes()[2..]);
        bytes[6..].copy_from_slice(&source.to_be_bytes()[2..]);
        bytes
    }

    /// Reads the first [`Header::LEN`] bytes of a frame.
    ///
    /// # Errors
    /// [`HeaderError`] for what no node of this version writes.
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Result<Header, HeaderError> {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *bytes;
        let destination = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        let source = u64::from_be_bytes([0, 0, g, h, i, j, k, l]);
        if a & 0xf != ADMINISTRATIVELY_ASSIGNED as u8 || u64::from(g) != ADMINISTRATIVELY_ASSIGNED {
            return Err(HeaderError::Foreign);
        }
        let kind = Kind::from_number(a >> 4).ok_or(HeaderError::UnknownKind)?;
        let node = |bits: u64| NodeId::new((bits & NONE) as u16);
        Ok(Header {
            kind,
            output: node(destination >> 30).ok_or(HeaderError::NoNode)?,
            via: node(destination >> 20),
            label: Label(destination as u32 & Label::MAX),
            input: node(source >> 30).ok_or(HeaderError::NoNode)?,
            hops: (source >> 24) as u8 & LONGEST_WAY,
            entropy: (source >> 16) as u8,
            cluster: source as u16,
        })
    }
}

/// A [`Header`] as two numbers: what relays read and change, without taking it apart.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    destination: u64,
    source: u64,
}

const OUTPUT_SHIFT: u32 = 30;
const VIA_SHIFT: u32 = 20;
const INPUT_SHIFT: u32 = 30;
const HOP: u64 = 1 << 24;

impl Words {
    /// Reads the first bytes of a frame.
    #[inline(always)]
    pub fn read(bytes: &[u8; Header::LEN]) -> Words {
        // Two loads that overlap. Slices, because of an array taken apart the compiler makes loads of one and two bytes.
        let word = |at: usize| bytes[at..].first_chunk().map_or(0, |&bytes| u64::from_be_bytes(bytes));
        let destination = word(0) >> 16;
        let source = word(4) & 0xffff_ffff_ffff;
        Words { destination, source }
    }

    /// Writes them back.
    #[inline(always)]
    pub fn write(self, bytes: &mut [u8; Header::LEN]) {
        let high = (self.destination << 16) | (self.source >> 32);
        bytes[..8].copy_from_slice(&high.to_be_bytes());
        bytes[8..].copy_from_slice(&(self.source as u32).to_be_bytes());
    }

    /// Whether a node of `cluster` wrote them, of any kind known. Where not, [`Header::parse`] says why.
    #[inline(always)]
    pub fn are_of(self, cluster: u16) -> bool {
        const FIRST: u64 = 0xcf << 40;
        let is_ours = self.destination & FIRST == ADMINISTRATIVELY_ASSIGNED << 40;
        let expected = ADMINISTRATIVELY_ASSIGNED << 40 | u64::from(cluster);
        is_ours & (self.source & 0xff00_0000_ffff == expected)
    }

    /// The kind, as a number.
    #[inline(always)]
    pub fn kind(self) -> u8 {
        (self.destination >> 44) as u8
    }

    /// The ten bits of the output node.
    #[inline(always)]
    pub fn output(self) -> u16 {
        (self.destination >> OUTPUT_SHIFT & NONE) as u16
    }

    /// The ten bits of the intermediate node.
    #[inline(always)]
    pub fn via(self) -> u16 {
        (self.destination >> VIA_SHIFT & NONE) as u16
    }

    /// The label's number.
    #[inline(always)]
    pub fn label(self) -> u32 {
        self.destination as u32 & Label::MAX
    }

    /// The ten bits of the input node.
    #[inline(always)]
    pub fn input(self) -> u16 {
        (self.source >> INPUT_SHIFT & NONE) as u16
    }

    /// Bits of the flow's hash.
    #[inline(always)]
    pub fn entropy(self) -> u8 {
        (self.source >> 16) as u8
    }

    /// The node that `here` has to send the frame to next, in the ten bits of a header; `here` itself if it has arrived. Reaching
    /// the intermediate node is noted.
    #[inline(always)]
    pub fn advance(&mut self, here: NodeId) -> u16 {
        let via = self.via();
        let is_there = via == here.number();
        if is_there {
            self.destination |= NONE << VIA_SHIFT;
        }
        if is_there || u64::from(via) == NONE { self.output() } else { via }
    }

    /// Counts a hop. False: there was none left.
    #[inline(always)]
    pub fn hop(&mut self) -> bool {
        let has_some = self.source >> 24 & u64::from(LONGEST_WAY) != 0;
        if has_some {
            self.source -= HOP;
        }
        has_some
    }
}

/// The first four bytes of a [`Header`]: what an input node reads and changes of one that its own lookup has written.
#[derive(Clone, Copy, Debug)]
pub struct Lead(u32);

impl Lead {
    /// The place of the byte for [`Header::entropy`].
    const ENTROPY: usize = 9;
    const VIA_SHIFT: u32 = 4;

    /// Reads the first bytes of a frame. `None`: that is not a header.
    #[inline(always)]
    pub fn read(bytes: &[u8; Header::LEN]) -> Option<Lead> {
        let lead = Lead(bytes.first_chunk().map_or(0, |&bytes| u32::from_be_bytes(bytes)));
        (lead.0 >> 24 & 0xf == ADMINISTRATIVELY_ASSIGNED as u32).then_some(lead)
    }

    /// The kind, as a number.
    #[inline(always)]
    pub fn kind(self) -> u8 {
        (self.0 >> 28) as u8
    }

    /// The output node.
    #[inline(always)]
    pub fn output(self) -> Option<NodeId> {
        NodeId::new((self.0 >> 14) as u16 & NONE as u16)
    }

    /// Sets out, over `via` or directly: changes the header's bytes.
    #[inline(always)]
    pub fn set_out(bytes: &mut [u8; Header::LEN], via: Option<NodeId>, entropy: u8) {
        bytes[Self::ENTROPY] = entropy;
        if let Some(lead) = bytes.first_chunk_mut::<4>() {
            let via = via.map_or(NONE as u32, |via| u32::from(via.number()));
            let others = u32::from_be_bytes(*lead) & !((NONE as u32) << Self::VIA_SHIFT);
            *lead = (others | via << Self::VIA_SHIFT).to_be_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes_are_those_of_the_picture() {
        let header = Header {
            kind: Kind::FromHost,
            output: NodeId::new(0x155).unwrap(),
            via: NodeId::new(0x0ff),
            label: Label::new(0xabcde).unwrap(),
            input: NodeId::new(1).unwrap(),
            hops: 5,
            entropy: 0x77,
            cluster: 0x1234,
        };
        // 0101010101 0011111111 10101011110011011110
        let destination = [0x22, 0x55, 0x4f, 0xfa, 0xbc, 0xde];
        let source = [0x02, 0x00, 0x45, 0x77, 0x12, 0x34];
        assert_eq!(header.bytes(), [destination, source].concat()[..]);
        assert_eq!(Header::parse(&header.bytes()), Ok(header));
    }

    #[test]
    fn what_no_node_writes_is_refused() {
        let bytes =
            Header::new(Kind::ToRoute, NodeId::new(0).unwrap(), Label(0), NodeId::new(0).unwrap(), 0).bytes();
        let with = |at: usize, byte: u8| {
            let mut bytes = bytes;
            bytes[at] = byte;
            Header::parse(&bytes)
        };
        assert_eq!(with(0, 0x33), Err(HeaderError::Foreign), "a group address");
        assert_eq!(with(0, 0x30), Err(HeaderError::Foreign), "a manufacturer's");
        assert_eq!(with(6, 0x12), Err(HeaderError::Foreign), "no source of ours");
        assert_eq!(with(0, 0x52), Err(HeaderError::UnknownKind));
        let mut none = bytes;
        none[1..3].fill(0xff);
        assert_eq!(Header::parse(&none), Err(HeaderError::NoNode));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_written_back(bytes: [u8; 12]) {
            let mut bytes = bytes;
            (bytes[0], bytes[6]) = (bytes[0] & 0xf0 | 2, 2);
            if let Ok(header) = Header::parse(&bytes) {
                prop_assert_eq!(header.bytes(), bytes);
            }
        }

        #[test]
        fn words_are_the_same_as_the_header(
            (kind, output, via, label) in (0..4u8, 0..=NodeId::MAX, 0..=1023u16, 0..=Label::MAX),
            (input, hops, entropy, cluster) in (0..=NodeId::MAX, 0..=LONGEST_WAY, any::<u8>(), any::<u16>()),
            (here, other_cluster, new_via) in (0..=NodeId::MAX, any::<u16>(), 0..=1023u16),
        ) {
            let node = |number| NodeId::new(number).unwrap();
            let header = Header {
                kind: Kind::from_number(kind).unwrap(),
                output: node(output),
                via: NodeId::new(via),
                label: Label::new(label).unwrap(),
                input: node(input),
                hops,
                entropy,
                cluster,
            };
            let words = Words::read(&header.bytes());
            prop_assert!(words.are_of(cluster));
            prop_assert_eq!(words.are_of(other_cluster), cluster == other_cluster);
            prop_assert_eq!((words.kind(), words.output(), words.via()), (kind, output, via));
            prop_assert_eq!((words.label(), words.input(), words.entropy()), (label, input, entropy));
            let written = |words: Words| {
                let mut bytes = [0; Header::LEN];
                words.write(&mut bytes);
                Header::parse(&bytes)
            };
            let mut moved = words;
            let next = moved.advance(node(here));
            let left = header.via.filter(|via| via.number() != here);
            prop_assert_eq!(next, left.map_or(output, NodeId::number));
            prop_assert_eq!(written(moved), Ok(header.with_via(left)));
            let mut hopped = words;
            prop_assert_eq!(hopped.hop(), hops > 0);
            prop_assert_eq!(written(hopped), Ok(Header { hops: hops.saturating_sub(1), ..header }));
            let mut out = header.bytes();
            let lead = Lead::read(&out).expect("the lead of a header");
            prop_assert_eq!((lead.kind(), lead.output()), (kind, Some(header.output)));
            Lead::set_out(&mut out, NodeId::new(new_via), 0x5a);
            let expected = Header { entropy: 0x5a, ..header.with_via(NodeId::new(new_via)) };
            prop_assert_eq!(Header::parse(&out), Ok(expected));
        }

        #[test]
        fn words_are_of_a_cluster_only_where_a_header_is(mut bytes: [u8; 12], first: u8, sixth: u8) {
            (bytes[0], bytes[6]) = (first, if sixth < 128 { 2 } else { sixth });
            let cluster = u16::from_be_bytes([bytes[10], bytes[11]]);
            let is_foreign = matches!(Header::parse(&bytes), Err(HeaderError::Foreign | HeaderError::UnknownKind));
            prop_assert_eq!(Words::read(&bytes).are_of(cluster), !is_foreign);
        }
    }
}
