//! The 18 bytes that make a packet ours, and how a received frame is judged.
//!
//! ```text
//!  0       2           4       8           12             18
//!  +-------+-----------+-------+-----------+--------------+
//!  | magic | generator | flow  | sequence  | time stamp   |
//!  +-------+-----------+-------+-----------+--------------+
//! ```
//!
//! All big-endian, at the start of the payload of UDP, TCP or an ICMP echo; a UDP packet of IPv4 with them fills the smallest
//! Ethernet frame exactly. In frames of a trace they are at the end of the payload, whose start often says what it is. The generator's number is another one at each trial, so that a straggler of the last trial is
//! not taken for a packet of this one. The time stamp counts nanoseconds of the sender's clock modulo 2^48 (78 hours).
//!
//! Everything behind the Ethernet header is covered by the checksums of IPv4 and the transport, so a frame with one
//! changed bit there is never taken for a good one. IPv6 has no checksum of its own: there a changed traffic class, flow
//! label or hop limit is not found. Such a frame is ours all the same if magic and generator stand where
//! they should, one wrong bit allowed: then it counts as corrupted, any other frame as foreign.

use std::net::{IpAddr, Ipv6Addr};

use packet::wire::ethernet::{self, EtherType};
use packet::wire::icmp::{Icmp, IcmpType};
use packet::wire::icmpv6::{Icmpv6, Icmpv6Type};
use packet::wire::ipv4::Ipv4;
use packet::wire::ipv6::{self, Ipv6};
use packet::wire::tcp::Tcp;
use packet::wire::udp::Udp;
use packet::wire::{IpProtocol, PseudoHeader};

pub(crate) const SIGNATURE_BYTES: usize = 18;
pub(crate) const TIMESTAMP_MASK: u64 = (1 << 48) - 1;
const MAGIC: u16 = 0xb71c;

/// By which the packets of a trial are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) generator: u16,
    /// Whether signatures are at the end of payloads, not at the start.
    pub(crate) is_at_end: bool,
}

impl Mark {
    /// Of packets that we make.
    pub(crate) const fn of(generator: u16) -> Self {
        Self { generator, is_at_end: false }
    }
}

/// The first bytes of the signatures of a trial.
pub(crate) fn head(generator: u16) -> [u8; 4] {
    (u32::from(MAGIC) << 16 | u32::from(generator)).to_be_bytes()
}

/// What a packet of ours says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) generator: u16,
    pub(crate) flow: u32,
    /// Number in the flow, modulo 2^32.
    pub(crate) sequence: u32,
    /// When it was sent, modulo 2^48.
    pub(crate) sent_ns: u64,
}

impl Signature {
    pub(crate) fn bytes(&self) -> [u8; SIGNATURE_BYTES] {
        let mut bytes = [0; SIGNATURE_BYTES];
        bytes[..2].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.generator.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.flow.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[12..].copy_from_slice(&self.sent_ns.to_be_bytes()[2..]);
        bytes
    }

    /// The signature in a payload, if there is one.
    #[inline]
    fn parse(payload: &[u8], mark: Mark) -> Option<Self> {
        let payload = if mark.is_at_end { payload.last_chunk() } else { payload.first_chunk() };
        let [m0, m1, g0, g1, f0, f1, f2, f3, s0, s1, s2, s3, t0, t1, t2, t3, t4, t5] = *payload?;
        (u16::from_be_bytes([m0, m1]) == MAGIC).then_some(Self {
            generator: u16::from_be_bytes([g0, g1]),
            flow: u32::from_be_bytes([f0, f1, f2, f3]),
            sequence: u32::from_be_bytes([s0, s1, s2, s3]),
            sent_ns: u64::from_be_bytes([0, 0, t0, t1, t2, t3, t4, t5]),
        })
    }
}

/// What a received frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// One of ours, all checksums right.
    Ours(Signature),
    /// One of ours, changed on its way.
    Corrupted,
    /// ARP or neighbour discovery.
    Neighbour,
    /// An ICMP error, perhaps about a packet of ours.
    IcmpError,
    /// Anything else.
    Foreign,
}

/// Judges a frame for the sink of a trial. Any bytes give a verdict.
#[inline]
pub(crate) fn judge(frame: &[u8], mark: Mark) -> Verdict {
    match intact(frame, mark) {
        Some(Verdict::Ours(signature)) if signature.generator != mark.generator => Verdict::Foreign,
        Some(verdict) => verdict,
        None => damaged(frame, mark),
    }
}

/// Judges a frame as if nothing could have happened to it; `None` where a checksum is wrong, or where there is none to
/// tell that nothing happened.
#[inline]
fn intact(frame: &[u8], mark: Mark) -> Option<Verdict> {
    let payload = ethernet::payload_type(frame).ok()?;
    let packet = &frame[payload.offset..];
    match payload.ethertype {
        EtherType::ARP => Some(Verdict::Neighbour),
        EtherType::IPV4 => {
            let ip = Ipv4::new_checked(packet).ok()?;
            if !ip.is_checksum_valid() {
                return None;
            }
            if ip.is_fragment() {
                return Some(Verdict::Foreign);
            }
            let addresses = (ip.source().into(), ip.destination().into());
            match ip.protocol() {
                IpProtocol::ICMP => icmp(ip.payload(), mark),
                protocol @ (IpProtocol::UDP | IpProtocol::TCP) => {
                    transport(protocol, ip.payload(), addresses, mark)
                }
                _ => Some(Verdict::Foreign),
            }
        }
        EtherType::IPV6 => {
            ipv6::check_header(packet).ok()?;
            let ip = Ipv6::new_checked(packet).ok()?;
            let (source, destination) = (ip.source(), ip.destination());
            match ip.next_header() {
                IpProtocol::ICMPV6 => icmpv6(ip.payload(), source, destination, mark),
                // Ours have no extension headers.
                protocol => transport(protocol, ip.payload(), (source.into(), destination.into()), mark),
            }
        }
        _ => None,
    }
}

#[inline]
fn transport(
    protocol: IpProtocol,
    bytes: &[u8],
    (source, destination): (IpAddr, IpAddr),
    mark: Mark,
) -> Option<Verdict> {
    let pseudo = PseudoHeader::new(source, destination)?;
    let signature = match protocol {
        IpProtocol::UDP => {
            let udp = Udp::new_checked(bytes).ok()?;
            // Ours always have a checksum, so 0 ("none", RFC 768) is a damage.
            if udp.length() != bytes.len() || !udp.is_checksum_valid(&pseudo) {
                return None;
            }
            Signature::parse(udp.payload(), mark)
        }
        IpProtocol::TCP => {
            let tcp = Tcp::new_checked(bytes).ok()?;
            if !tcp.is_checksum_valid(&pseudo) {
                return None;
            }
            Signature::parse(tcp.payload(), mark)
        }
        _ => return None,
    };
    Some(signature.map_or(Verdict::Foreign, Verdict::Ours))
}

#[inline]
fn icmp(bytes: &[u8], mark: Mark) -> Option<Verdict> {
    let icmp = Icmp::new_checked(bytes).ok()?;
    if !icmp.is_checksum_valid() {
        return None;
    }
    let signature = match icmp.icmp_type() {
        IcmpType::ECHO_REQUEST | IcmpType::ECHO_REPLY => Signature::parse(icmp.payload(), mark),
        error if error.is_error() => return Some(Verdict::IcmpError),
        _ => None,
    };
    Some(signature.map_or(Verdict::Foreign, Verdict::Ours))
}

#[inline]
fn icmpv6(bytes: &[u8], source: Ipv6Addr, destination: Ipv6Addr, mark: Mark) -> Option<Verdict> {
    let icmp = Icmpv6::new_checked(bytes).ok()?;
    if !icmp.is_checksum_valid(source, destination) {
        return None;
    }
    let signature = match icmp.icmp_type() {
        Icmpv6Type::ECHO_REQUEST | Icmpv6Type::ECHO_REPLY => Signature::parse(icmp.payload(), mark),
        Icmpv6Type::NEIGHBOUR_SOLICITATION | Icmpv6Type::NEIGHBOUR_ADVERTISEMENT => {
            return Some(Verdict::Neighbour);
        }
        error if error.is_error() => return Some(Verdict::IcmpError),
        _ => None,
    };
    Some(signature.map_or(Verdict::Foreign, Verdict::Ours))
}

/// Where the packet of IP in a frame ends, as its header says.
fn packet_end(frame: &[u8]) -> Option<usize> {
    let payload = ethernet::payload_type(frame).ok()?;
    let packet = &frame[payload.offset..];
    let bytes = match payload.ethertype {
        EtherType::IPV4 => Ipv4::new_checked(packet).ok()?.total_len(),
        EtherType::IPV6 => ipv6::HEADER_LEN + Ipv6::new_checked(packet).ok()?.payload_len(),
        _ => return None,
    };
    Some(payload.offset + bytes)
}

/// Whether a frame that is not intact was ours.
#[cold]
fn damaged(frame: &[u8], mark: Mark) -> Verdict {
    let expected = u32::from(MAGIC) << 16 | u32::from(mark.generator);
    // Behind Ethernet (with a tag: 4 more), IP without options (20 bytes or 40), and 8 bytes of UDP or ICMP or 20 of TCP.
    let at_start = [42, 54, 46, 58, 62, 74, 66, 78];
    // At the end of the packet, if its header still says where that is; Ethernet may have added to it.
    let at_end = [packet_end(frame).unwrap_or(0), frame.len()].map(|end| end.wrapping_sub(SIGNATURE_BYTES));
    let places: &[usize] = if mark.is_at_end { &at_end } else { &at_start };
    for offset in places {
        if let Some(word) = frame.get(*offset..).and_then(|rest| rest.first_chunk::<4>())
            && (u32::from_be_bytes(*word) ^ expected).count_ones() <= 1
        {
            return Verdict::Corrupted;
        }
    }
    Verdict::Foreign
}

#[cfg(test)]
mod tests {
    use super::super::source::Source;
    use super::super::traffic::{Kind, Traffic, TrafficOptions};
    use super::*;
    use packet::{IpVersion, Pool, PoolOptions};
    use proptest::prelude::*;

    const MARK: Mark = Mark::of(0xabcd);

    fn frame(kind: Kind, number: u64) -> Vec<u8> {
        let traffic = Traffic::new(&TrafficOptions::for_tests(kind, 3), MARK.generator);
        let mut pool = Pool::new(PoolOptions { frames: 1, ..PoolOptions::default() }).unwrap();
        let mut packet = pool.allocate().unwrap();
        assert!(traffic.write(number, 0x0012_3456_789a_bcde, &mut packet));
        packet.data().to_vec()
    }

    #[test]
    fn a_foreign_generator_is_foreign() {
        let bytes = frame(Kind::UDP, 7);
        let signature = Signature { generator: 0xabcd, flow: 1, sequence: 2, sent_ns: 0x3456_789a_bcde };
        assert_eq!(judge(&bytes, MARK), Verdict::Ours(signature));
        assert_eq!(judge(&bytes, Mark::of(0xabce)), Verdict::Foreign);
        let mut fragment = bytes;
        fragment[20] = 0x20;
        let check = packet::checksum::ipv4_header_compute(&fragment[14..34]);
        fragment[24..26].copy_from_slice(&check.to_be_bytes());
        assert_eq!(judge(&fragment, MARK), Verdict::Foreign);
    }

    #[test]
    fn every_changed_bit_behind_the_addresses_is_found() {
        for kind in Kind::ALL {
            let good = frame(kind, 4);
            let expected = judge(&good, MARK);
            assert!(matches!(expected, Verdict::Ours(_)), "{kind:?}: {expected:?}");
            for bit in 0..good.len() * 8 {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                let verdict = judge(&bad, MARK);
                // Link addresses are covered by the FCS alone, which the card checks; and so are the traffic class, flow
                // label and hop limit of IPv6.
                let is_free = matches!(bit, 112..116 | 120..144 | 168..176);
                let is_unseen = bit < 96 || kind.version == IpVersion::V6 && is_free;
                let right = if is_unseen { expected } else { Verdict::Corrupted };
                assert_eq!(verdict, right, "{kind:?}, bit {bit}");
            }
        }
    }

    #[test]
    fn a_tag_does_not_hide_a_packet() {
        let mut bytes = frame(Kind::UDP, 0);
        bytes.splice(12..12, [0x81, 0, 0, 5]);
        assert!(matches!(judge(&bytes, MARK), Verdict::Ours(_)));
        bytes[30] ^= 1;
        assert_eq!(judge(&bytes, MARK), Verdict::Corrupted);
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_verdict(
            bytes in prop::collection::vec(any::<u8>(), 0..120),
            number in 0u64..100, changes in prop::collection::vec((0usize..80, any::<u8>()), 0..6), cut in 0usize..90,
        ) {
            let _ = judge(&bytes, Mark::of(1));
            for kind in Kind::ALL {
                let mut near = frame(kind, number);
                for (at, byte) in &changes {
                    if let Some(old) = near.get_mut(*at) {
                        *old = *byte;
                    }
                }
                near.truncate(cut);
                let _ = judge(&near, MARK);
            }
        }
    }
}
