//! What a node says on every link every few milliseconds: who it is, whom it hears there, and what it and others have lost.
//!
//! ```text
//! version 1 | cluster 2 | node 2 | link 2 | incarnation 8 | wiring 4 | n 1 | heard n bytes, a bit for each node
//! reports 1 | each: node 2 | version 4 | flags 1 | lost 2 | lost nodes 2 each; 0xffff: all neighbours
//! ```
//!
//! All numbers are big-endian. A hello follows an Ethernet header of the type [`Hello::ETHER_TYPE`], to a group address that
//! switches flood and no [`Header`](crate::Header) or [`Shim`](crate::Shim) begins with, and from the node's address on a switch.

use crate::{NodeId, NodeSet, Shim};

const VERSION: u8 = 1;
const ALL: u16 = 0xffff;
const RESTS: u8 = 1;

/// What is known of a node's neighbours, told by itself and carried on by others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whose it is.
    pub node: NodeId,
    /// Grows with every change.
    pub version: u32,
    /// Whether it is about to leave, and wants to relay nothing.
    pub rests: bool,
    /// The neighbours with which it has no working link. `None`: so many that it has none worth naming.
    pub lost: Option<Vec<NodeId>>,
}

/// One hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Which cluster.
    pub cluster: u16,
    /// Who says it.
    pub node: NodeId,
    /// The number of the link, as this node counts them.
    pub link: u16,
    /// Drawn at random when the node started: two with the same number are told apart by it.
    pub incarnation: u64,
    /// A digest of the topology that the node believes in.
    pub wiring: u32,
    /// The nodes that it hears on this link.
    pub heard: NodeSet,
    /// What it knows of others, its own report first.
    pub reports: Vec<Report>,
}

/// Why bytes are no hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// They end too early.
    #[error("hello is cut short")]
    Short,
    /// Another version.
    #[error("hello of version {0}; this node speaks version 1")]
    Version(u8),
    /// A number that no node has.
    #[error("hello names node {0}; the highest is {max}", max = NodeId::MAX)]
    Node(u16),
}

impl Hello {
    /// The EtherType of its frames: IEEE 802's "local experimental" one, which no standard uses.
    pub const ETHER_TYPE: u16 = 0x88b5;
    /// The longest hello, so that it fits any link.
    pub const LONGEST: usize = 1400;

    /// Where hellos are sent: "bwfab" after the first byte of a locally administered group address.
    pub const DESTINATION: [u8; 6] = [0x03, b'b', b'w', b'f', b'a', b'b'];

    /// The frame to send.
    pub fn frame(&self) -> Vec<u8> {
        let source = Shim::address(self.node);
        [&Self::DESTINATION[..], &source, &Self::ETHER_TYPE.to_be_bytes(), &self.write()].concat()
    }

    /// Reads a frame. `None`: that is no hello.
    pub fn from_frame(frame: &[u8]) -> Option<Result<Hello, HelloError>> {
        let (header, rest) = frame.split_first_chunk::<14>()?;
        (header[12..] == Self::ETHER_TYPE.to_be_bytes()).then(|| Hello::parse(rest))
    }

    /// Writes it, without the Ethernet header. Reports that make it longer than [`Hello::LONGEST`] are left out, which the next
    /// hellos make up for; a node that lost so many neighbours that their names have no room has lost all.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend(self.cluster.to_be_bytes());
        bytes.extend(self.node.number().to_be_bytes());
        bytes.extend(self.link.to_be_bytes());
        bytes.extend(self.incarnation.to_be_bytes());
        bytes.extend(self.wiring.to_be_bytes());
        let last = self.heard.iter().last().map_or(0, |node| node.index() / 8 + 1);
        bytes.push(last as u8);
        let start = bytes.len();
        bytes.resize(start + last, 0);
        self.heard.iter().for_each(|node| bytes[start + node.index() / 8] |= 1 << (node.index() % 8));
        let count_at = bytes.len();
        bytes.push(0);
        for report in &self.reports {
            let names = report.lost.as_ref().filter(|lost| lost.len() * 2 + 100 < Self::LONGEST - count_at);
            let length = 9 + names.map_or(0, |lost| lost.len() * 2);
            if bytes.len() + length > Self::LONGEST || bytes[count_at] == u8::MAX {
                break;
            }
            bytes.extend(report.node.number().to_be_bytes());
            bytes.extend(report.version.to_be_bytes());
            bytes.push(if report.rests { RESTS } else { 0 });
            bytes.extend(names.map_or(ALL, |lost| lost.len() as u16).to_be_bytes());
            names.into_iter().flatten().for_each(|node| bytes.extend(node.number().to_be_bytes()));
            bytes[count_at] += 1;
        }
        bytes
    }

    /// Reads one; what follows it (padding) is ignored.
    ///
    /// # Errors
    /// [`HelloError`] for what no node of this version writes.
    pub fn parse(bytes: &[u8]) -> Result<Hello, HelloError> {
        let mut rest = bytes;
        let [version] = take(&mut rest)?;
        if version != VERSION {
            return Err(HelloError::Version(version));
        }
        let cluster = u16::from_be_bytes(take(&mut rest)?);
        let node = node(&mut rest)?;
        let link = u16::from_be_bytes(take(&mut rest)?);
        let incarnation = u64::from_be_bytes(take(&mut rest)?);
        let wiring = u32::from_be_bytes(take(&mut rest)?);
        let [bitmap_len] = take(&mut rest)?;
        let bitmap = rest.get(..bitmap_len.into()).ok_or(HelloError::Short)?;
        rest = &rest[bitmap_len.into()..];
        let is_heard = |node: &NodeId| {
            bitmap.get(node.index() / 8).is_some_and(|byte| byte >> (node.index() % 8) & 1 == 1)
        };
        let heard = NodeId::first(bitmap.len() * 8).filter(is_heard).collect();
        let [count] = take(&mut rest)?;
        let reports = (0..count).map(|_| report(&mut rest)).collect::<Result<_, _>>()?;
        Ok(Hello { cluster, node, link, incarnation, wiring, heard, reports })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], HelloError> {
    let (bytes, after) = rest.split_first_chunk().ok_or(HelloError::Short)?;
    *rest = after;
    Ok(*bytes)
}

fn node(rest: &mut &[u8]) -> Result<NodeId, HelloError> {
    let number = u16::from_be_bytes(take(rest)?);
    NodeId::new(number).ok_or(HelloError::Node(number))
}

fn report(rest: &mut &[u8]) -> Result<Report, HelloError> {
    let origin = node(rest)?;
    let version = u32::from_be_bytes(take(rest)?);
    let [flags] = take(rest)?;
    let count = u16::from_be_bytes(take(rest)?);
    let lost =
        if count == ALL { None } else { Some((0..count).map(|_| node(rest)).collect::<Result<_, _>>()?) };
    Ok(Report { node: origin, version, rests: flags & RESTS != 0, lost })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(number: u16) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn hello() -> Hello {
        Hello {
            cluster: 0x1234,
            node: id(2),
            link: 1,
            incarnation: 0x0102_0304_0506_0708,
            wiring: 0xdead_beef,
            heard: [id(0), id(9)].into_iter().collect(),
            reports: vec![
                Report { node: id(2), version: 7, rests: true, lost: Some(vec![id(3)]) },
                Report { node: id(0), version: 1, rests: false, lost: None },
            ],
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_picture() {
        let bytes = [
            [1, 0x12, 0x34, 0, 2, 0, 1].as_slice(),
            &[1, 2, 3, 4, 5, 6, 7, 8, 0xde, 0xad, 0xbe, 0xef, 2, 0x01, 0x02],
            &[2, 0, 2, 0, 0, 0, 7, 1, 0, 1, 0, 3],
            &[0, 0, 0, 0, 0, 1, 0, 0xff, 0xff],
        ]
        .concat();
        assert_eq!(hello().write(), bytes);
        assert_eq!(Hello::parse(&bytes), Ok(hello()));
        let padded = [bytes.as_slice(), &[0; 20]].concat();
        assert_eq!(Hello::parse(&padded), Ok(hello()), "short frames are padded");
        for end in 0..bytes.len() {
            assert_eq!(Hello::parse(&bytes[..end]), Err(HelloError::Short), "{end} bytes");
        }
    }

    #[test]
    fn what_has_no_room_is_left_out() {
        let many = |count| Report {
            node: id(1),
            version: 1,
            rests: false,
            lost: Some(NodeId::first(count).collect()),
        };
        let long = Hello { reports: vec![many(1000); 3], ..hello() };
        let read = Hello::parse(&long.write()).unwrap();
        assert!(long.write().len() <= Hello::LONGEST);
        assert_eq!(read.reports.iter().map(|report| report.lost.clone()).collect::<Vec<_>>(), vec![None; 3]);
        let read = Hello::parse(&Hello { reports: vec![many(300); 5], ..hello() }.write()).unwrap();
        assert_eq!(read.reports, vec![many(300); 2]);
    }

    #[test]
    fn other_versions_and_nodes_are_named() {
        let mut bytes = hello().write();
        bytes[0] = 2;
        assert_eq!(Hello::parse(&bytes), Err(HelloError::Version(2)));
        bytes[0] = 1;
        bytes[3..5].fill(0xff);
        assert_eq!(Hello::parse(&bytes), Err(HelloError::Node(0xffff)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_mean_what_is_written_back(mut bytes: Vec<u8>) {
            if let Some(first) = bytes.first_mut() { *first = 1; }
            if let Ok(hello) = Hello::parse(&bytes) {
                prop_assert_eq!(Hello::parse(&hello.write()), Ok(hello));
            }
        }
    }
}
