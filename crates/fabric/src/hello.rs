//! What a node says on every link every few milliseconds: who it is, whom it hears there, and what it and others have lost.
//!
//! ```text
//! destination 6 | source 6 | EtherType 2
//! version 1 | length 2 | cluster 2 | node 2 | link 2 | incarnation 8 | sequence 8 | wiring 4
//! n 1 | heard n bytes, a bit for each node
//! echoes 1 | each: node 2 | incarnation 8
//! reports 1 | each: node 2 | incarnation 8 | counter 4 | flags 1 | lost 2 | lost nodes 2 each; 0xffff: all neighbours
//! tag 32
//! ```
//!
//! All numbers are big-endian. The length counts the bytes from the version up to the tag. The tag covers everything before it,
//! the Ethernet header included, so the source address is the sender's by proof. Who receives a hello follows from the sender, its
//! link and the wiring.
//!
//! Hellos go to a group address that switches flood and no [`Header`](crate::Header) or [`Shim`](crate::Shim) begins with, and come
//! from the node's address on a switch.

use crate::{Keys, NodeId, NodeSet, Shim};

const VERSION: u8 = 2;
const ALL: u16 = 0xffff;
const DRAINING: u8 = 1;
const ETHERNET_LEN: usize = 14;
/// Of a report without names.
const REPORT_LEN: usize = 17;

/// Returns whether `number` is newer than `other`. Numbers go round (RFC 1982), so there is a newer one than any.
pub(crate) fn is_newer(number: u64, other: u64) -> bool {
    number != other && number.wrapping_sub(other) <= 1 << 63
}

/// Which of two reports of a node is the newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The node's incarnation when it began to count.
    pub incarnation: u64,
    /// Grows with every change.
    pub counter: u32,
}

impl Version {
    /// Returns whether it is newer than `other`.
    pub fn is_newer_than(self, other: Version) -> bool {
        if self.incarnation == other.incarnation {
            let ahead = self.counter.wrapping_sub(other.counter);
            return ahead != 0 && ahead <= 1 << 31;
        }
        is_newer(self.incarnation, other.incarnation)
    }

    /// The next one.
    #[must_use]
    pub fn next(self) -> Version {
        Version { counter: self.counter.wrapping_add(1), ..self }
    }
}

/// What is known of a node's neighbours, told by itself and carried on by others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whose it is.
    pub node: NodeId,
    /// Newer with every change.
    pub version: Version,
    /// Whether it is about to leave, and wants to relay nothing.
    pub is_draining: bool,
    /// The neighbours with which it has no working link. `None`: so many that it has none worth naming.
    pub lost: Option<Vec<NodeId>>,
}

/// The incarnation of a neighbour that a node knows, which proves that the hello was said after that neighbour started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The neighbour.
    pub node: NodeId,
    /// Its newest incarnation.
    pub incarnation: u64,
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
    /// Drawn when the node started, and newer than any before: see [`Links::new`](crate::Links::new).
    pub incarnation: u64,
    /// Grows with every hello of the incarnation, on all links.
    pub sequence: u64,
    /// A digest of the topology that the node believes in.
    pub wiring: u32,
    /// The nodes that it hears on this link, and that have proved that they are there now.
    pub heard: NodeSet,
    /// The neighbours on this link whose incarnation it knows; where they are many, other ones each time.
    pub echoes: Vec<Echo>,
    /// What it knows of others, its own report first.
    pub reports: Vec<Report>,
}

/// Why a frame is not a hello of this cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// It ends too early, or goes on where it should have ended.
    #[error("hello of a wrong length")]
    Length,
    /// Another version.
    #[error("hello of version {0}; this node speaks version 2")]
    Version(u8),
    /// A number that no node has.
    #[error("hello names node {0}; the highest is {max}", max = NodeId::MAX)]
    Node(u16),
    /// Its tag was made with none of this cluster's keys. The cluster's number is what the frame says.
    #[error("hello of cluster {cluster} with another key")]
    Key {
        /// The number of the cluster that it claims to be of.
        cluster: u16,
    },
    /// It comes from another address than that of the node.
    #[error("hello from another address than its node's")]
    Source,
}

impl Hello {
    /// The EtherType of its frames: IEEE 802's "local experimental" one, which no standard uses.
    pub const ETHER_TYPE: u16 = 0x88b5;
    /// The longest hello, its Ethernet header not counted, so that it fits any link.
    pub const LONGEST: usize = 1400;

    /// Where hellos are sent: "bwfab" after the first byte of a locally administered group address.
    pub const DESTINATION: [u8; 6] = [0x03, b'b', b'w', b'f', b'a', b'b'];

    /// Writes the frame to send.
    pub fn frame(&self, keys: &Keys) -> Vec<u8> {
        let source = Shim::address(self.node);
        let mut frame =
            [&Self::DESTINATION[..], &source, &Self::ETHER_TYPE.to_be_bytes(), &self.write()].concat();
        keys.seal(&mut frame);
        frame
    }

    /// Reads a frame; what follows the tag (padding) is ignored. `None`: that is not a hello.
    ///
    /// Nothing but the version, the length and the cluster's number is looked at before the tag.
    pub fn from_frame(frame: &[u8], keys: &Keys) -> Option<Result<Hello, HelloError>> {
        let (header, rest) = frame.split_first_chunk::<ETHERNET_LEN>()?;
        (header[12..] == Self::ETHER_TYPE.to_be_bytes()).then(|| {
            let length = said(rest)?;
            let (covered, after) = frame.split_at(ETHERNET_LEN + length);
            let tag = after.get(..Keys::TAG_LEN).ok_or(HelloError::Length)?;
            if !keys.are_of(covered, tag) {
                let cluster = rest.get(3..).and_then(<[u8]>::first_chunk);
                let cluster = cluster.map_or(0, |&bytes| u16::from_be_bytes(bytes));
                return Err(HelloError::Key { cluster });
            }
            let hello = Hello::parse(&rest[..length])?;
            if header[6..12] != Shim::address(hello.node) {
                return Err(HelloError::Source);
            }
            Ok(hello)
        })
    }

    /// Writes what it says, without Ethernet header and tag. Reports that make the hello longer than [`Hello::LONGEST`] are left out,
    /// which the next hellos make up for; a node that lost so many neighbours that their names have no room has lost all.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, 0, 0];
        bytes.extend(self.cluster.to_be_bytes());
        bytes.extend(self.node.number().to_be_bytes());
        bytes.extend(self.link.to_be_bytes());
        bytes.extend(self.incarnation.to_be_bytes());
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(self.wiring.to_be_bytes());
        let last = self.heard.iter().last().map_or(0, |node| node.index() / 8 + 1);
        bytes.push(last as u8);
        let start = bytes.len();
        bytes.resize(start + last, 0);
        self.heard.iter().for_each(|node| bytes[start + node.index() / 8] |= 1 << (node.index() % 8));
        let echoes = &self.echoes[..self.echoes.len().min(Self::MOST_ECHOES)];
        bytes.push(echoes.len() as u8);
        for echo in echoes {
            bytes.extend(echo.node.number().to_be_bytes());
            bytes.extend(echo.incarnation.to_be_bytes());
        }
        let count_at = bytes.len();
        bytes.push(0);
        for report in &self.reports {
            let room = Self::LONGEST - Keys::TAG_LEN;
            let names = report.lost.as_ref().filter(|lost| lost.len() * 2 + 100 < room - count_at);
            let length = REPORT_LEN + names.map_or(0, |lost| lost.len() * 2);
            if bytes.len() + length > room || bytes[count_at] == u8::MAX {
                break;
            }
            bytes.extend(report.node.number().to_be_bytes());
            bytes.extend(report.version.incarnation.to_be_bytes());
            bytes.extend(report.version.counter.to_be_bytes());
            bytes.push(if report.is_draining { DRAINING } else { 0 });
            bytes.extend(names.map_or(ALL, |lost| lost.len() as u16).to_be_bytes());
            names.into_iter().flatten().for_each(|node| bytes.extend(node.number().to_be_bytes()));
            bytes[count_at] += 1;
        }
        let length = bytes.len() as u16;
        bytes[1..3].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    /// Most echoes in a hello.
    pub(crate) const MOST_ECHOES: usize = 32;

    /// Reads what a hello says, from its version to its tag; says nothing of who has written it.
    ///
    /// # Errors
    /// [`HelloError`] for what no node of this version writes.
    pub fn parse(bytes: &[u8]) -> Result<Hello, HelloError> {
        let mut rest = &bytes[..said(bytes)?];
        if rest.len() < bytes.len() {
            return Err(HelloError::Length);
        }
        // The version and the length, which were looked at.
        take::<3>(&mut rest)?;
        let cluster = u16::from_be_bytes(take(&mut rest)?);
        let node = node(&mut rest)?;
        let link = u16::from_be_bytes(take(&mut rest)?);
        let incarnation = u64::from_be_bytes(take(&mut rest)?);
        let sequence = u64::from_be_bytes(take(&mut rest)?);
        let wiring = u32::from_be_bytes(take(&mut rest)?);
        let [bitmap_len] = take(&mut rest)?;
        let bitmap = rest.get(..bitmap_len.into()).ok_or(HelloError::Length)?;
        rest = &rest[bitmap_len.into()..];
        let is_heard = |node: &NodeId| {
            bitmap.get(node.index() / 8).is_some_and(|byte| byte >> (node.index() % 8) & 1 == 1)
        };
        let heard = NodeId::first(bitmap.len() * 8).filter(is_heard).collect();
        let [count] = take(&mut rest)?;
        let echoes = (0..count).map(|_| echo(&mut rest)).collect::<Result<_, _>>()?;
        let [count] = take(&mut rest)?;
        let reports = (0..count).map(|_| report(&mut rest)).collect::<Result<_, _>>()?;
        if !rest.is_empty() {
            return Err(HelloError::Length);
        }
        Ok(Hello { cluster, node, link, incarnation, sequence, wiring, heard, echoes, reports })
    }

    /// The incarnation of `node` that it knows.
    pub(crate) fn echo_of(&self, node: NodeId) -> Option<u64> {
        self.echoes.iter().find(|echo| echo.node == node).map(|echo| echo.incarnation)
    }
}

/// How many bytes a hello says that it has, of those that are there.
fn said(mut bytes: &[u8]) -> Result<usize, HelloError> {
    let all = bytes.len();
    let [version] = take(&mut bytes)?;
    if version != VERSION {
        return Err(HelloError::Version(version));
    }
    let length = usize::from(u16::from_be_bytes(take(&mut bytes)?));
    if length > all { Err(HelloError::Length) } else { Ok(length) }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], HelloError> {
    let (bytes, after) = rest.split_first_chunk().ok_or(HelloError::Length)?;
    *rest = after;
    Ok(*bytes)
}

fn node(rest: &mut &[u8]) -> Result<NodeId, HelloError> {
    let number = u16::from_be_bytes(take(rest)?);
    NodeId::new(number).ok_or(HelloError::Node(number))
}

fn echo(rest: &mut &[u8]) -> Result<Echo, HelloError> {
    Ok(Echo { node: node(rest)?, incarnation: u64::from_be_bytes(take(rest)?) })
}

fn report(rest: &mut &[u8]) -> Result<Report, HelloError> {
    let origin = node(rest)?;
    let incarnation = u64::from_be_bytes(take(rest)?);
    let counter = u32::from_be_bytes(take(rest)?);
    let [flags] = take(rest)?;
    let count = u16::from_be_bytes(take(rest)?);
    let lost =
        if count == ALL { None } else { Some((0..count).map(|_| node(rest)).collect::<Result<_, _>>()?) };
    Ok(Report {
        node: origin,
        version: Version { incarnation, counter },
        is_draining: flags & DRAINING != 0,
        lost,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(number: u16) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn version(counter: u32) -> Version {
        Version { incarnation: 0x0a, counter }
    }

    fn hello() -> Hello {
        Hello {
            cluster: 0x1234,
            node: id(2),
            link: 1,
            incarnation: 0x0102_0304_0506_0708,
            sequence: 0x99,
            wiring: 0xdead_beef,
            heard: [id(0), id(9)].into_iter().collect(),
            echoes: vec![Echo { node: id(9), incarnation: 0x77 }],
            reports: vec![
                Report { node: id(2), version: version(7), is_draining: true, lost: Some(vec![id(3)]) },
                Report { node: id(0), version: version(1), is_draining: false, lost: None },
            ],
        }
    }

    fn keys(byte: u8) -> Keys {
        Keys::new(&[[byte; 32]])
    }

    #[test]
    fn the_bytes_are_those_of_the_picture() {
        let bytes = [
            [2, 0, 80, 0x12, 0x34, 0, 2, 0, 1].as_slice(),
            &[1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0x99, 0xde, 0xad, 0xbe, 0xef, 2, 0x01, 0x02],
            &[1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0x77],
            &[2, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0x0a, 0, 0, 0, 7, 1, 0, 1, 0, 3],
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0a, 0, 0, 0, 1, 0, 0xff, 0xff],
        ]
        .concat();
        assert_eq!(hello().write(), bytes);
        assert_eq!(Hello::parse(&bytes), Ok(hello()));
        for end in 0..bytes.len() {
            assert_eq!(Hello::parse(&bytes[..end]), Err(HelloError::Length), "{end} bytes");
        }
        let frame = hello().frame(&keys(1));
        assert_eq!(frame[..14], [3, 98, 119, 102, 97, 98, 0x42, 0, 0x80, 0, 0, 0, 0x88, 0xb5]);
        assert_eq!(frame[14..frame.len() - 32], bytes);
        let padded = [frame.as_slice(), &[0; 20]].concat();
        assert_eq!(Hello::from_frame(&padded, &keys(1)), Some(Ok(hello())), "short frames are padded");
        assert_eq!(Hello::from_frame(&frame[..frame.len() - 1], &keys(1)), Some(Err(HelloError::Length)));
    }

    #[test]
    fn tags_are_hmac_sha_256() {
        // RFC 4231, 4.3, whose key is shorter than ours and filled up with zeros by HMAC itself.
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let mut bytes = b"what do ya want for nothing?".to_vec();
        Keys::new(&[key]).seal(&mut bytes);
        assert_eq!(bytes[28..36], [0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e]);
        assert_eq!(bytes.len(), 28 + 32);
    }

    #[test]
    fn any_of_the_keys_is_believed_and_the_first_one_used() {
        let both = Keys::new(&[[2; 32], [1; 32]]);
        for (said_with, heard_with, is_believed) in [
            (&keys(1), &both, true),
            (&keys(2), &both, true),
            (&both, &keys(2), true),
            (&both, &keys(1), false),
            (&keys(3), &both, false),
            (&Keys::public(), &both, false),
            (&Keys::new(&[]), &Keys::new(&[]), false),
        ] {
            let heard = Hello::from_frame(&hello().frame(said_with), heard_with);
            let other = HelloError::Key { cluster: 0x1234 };
            assert_eq!(heard, Some(if is_believed { Ok(hello()) } else { Err(other) }));
        }
    }

    #[test]
    fn another_source_than_the_node_is_refused_whoever_has_the_key() {
        let mut frame = hello().frame(&keys(1));
        frame.truncate(frame.len() - 32);
        frame[7] ^= 1;
        keys(1).seal(&mut frame);
        assert_eq!(Hello::from_frame(&frame, &keys(1)), Some(Err(HelloError::Source)));
    }

    #[test]
    fn what_has_no_room_is_left_out() {
        let many = |count| Report {
            node: id(1),
            version: version(1),
            is_draining: false,
            lost: Some(NodeId::first(count).collect()),
        };
        let echoes = vec![Echo { node: id(3), incarnation: 1 }; 100];
        let long = Hello { reports: vec![many(1000); 3], echoes, ..hello() };
        let frame = long.frame(&keys(1));
        assert!(frame.len() <= Hello::LONGEST + ETHERNET_LEN);
        let read = Hello::from_frame(&frame, &keys(1)).unwrap().unwrap();
        assert_eq!(read.reports.iter().map(|report| report.lost.clone()).collect::<Vec<_>>(), vec![None; 3]);
        assert_eq!(read.echoes.len(), Hello::MOST_ECHOES);
        let read = Hello::parse(&Hello { reports: vec![many(300); 5], ..hello() }.write()).unwrap();
        assert_eq!(read.reports, vec![many(300); 2]);
    }

    #[test]
    fn other_versions_and_nodes_are_named() {
        let mut bytes = hello().write();
        bytes[0] = 1;
        assert_eq!(Hello::parse(&bytes), Err(HelloError::Version(1)));
        bytes[0] = 2;
        bytes[5..7].fill(0xff);
        assert_eq!(Hello::parse(&bytes), Err(HelloError::Node(0xffff)));
    }

    #[test]
    fn every_version_has_a_newer_one() {
        for incarnation in [0, 1, 1 << 63, u64::MAX] {
            for counter in [0, 1 << 31, u32::MAX] {
                let version = Version { incarnation, counter };
                let next = version.next();
                assert!(next.is_newer_than(version) && !version.is_newer_than(next), "{version:?}");
                let later = Version { incarnation: incarnation.wrapping_add(1), counter: 0 };
                assert!(later.is_newer_than(version) && !version.is_newer_than(later), "{version:?}");
                assert!(!version.is_newer_than(version));
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_mean_what_is_written_back(mut bytes: Vec<u8>) {
            let length = (bytes.len() as u16).to_be_bytes();
            if let Some(first) = bytes.first_chunk_mut() { *first = [2, length[0], length[1]]; }
            if let Ok(hello) = Hello::parse(&bytes) {
                prop_assert_eq!(Hello::parse(&hello.write()), Ok(hello));
            }
        }

        #[test]
        fn no_changed_hello_is_believed(flips in prop::collection::vec(any::<prop::sample::Index>(), 1..4)) {
            let right = hello().frame(&keys(1));
            let mut frame = right.clone();
            let bits = frame.len() * 8;
            for flip in flips {
                let bit = flip.index(bits);
                frame[bit / 8] ^= 1 << (bit % 8);
            }
            let is_believed = matches!(Hello::from_frame(&frame, &keys(1)), Some(Ok(_)));
            prop_assert_eq!(is_believed, frame == right);
        }
    }
}
