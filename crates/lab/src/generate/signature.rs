//! The 18 bytes that make a packet ours, and how a received frame is judged.
//!
//! ```text
//!  0       2           4       8           12             18
//!  +-------+-----------+-------+-----------+--------------+
//!  | magic | generator | flow  | sequence  | time stamp   |
//!  +-------+-----------+-------+-----------+--------------+
//! ```
//!
//! All big-endian, at the start of the payload of UDP, TCP or an ICMP echo; a UDP packet with them fills the smallest
//! Ethernet frame exactly. The generator's number is another one at each trial, so that a straggler of the last trial is
//! not taken for a packet of this one. The time stamp counts nanoseconds of the sender's clock modulo 2^48 (78 hours).
//!
//! Everything behind the Ethernet header is covered by the checksums of IPv4 and the transport, so a frame with one
//! changed bit there is never taken for a good one. Such a frame is ours all the same if magic and generator stand where
//! they should, one wrong bit allowed: then it counts as corrupted, any other frame as foreign.

use packet::wire::PseudoHeader;
use packet::wire::ethernet::{self, EtherType};
use packet::wire::icmp::{Icmp, IcmpType};
use packet::wire::ipv4::Ipv4;
use packet::wire::tcp::Tcp;
use packet::wire::udp::Udp;
use packet::wire::{IpProtocol, arp};

pub(crate) const SIGNATURE_BYTES: usize = 18;
pub(crate) const TIMESTAMP_MASK: u64 = (1 << 48) - 1;
const MAGIC: u16 = 0xb71c;

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

    /// The signature at the start of a payload, if it is one.
    #[inline]
    fn parse(payload: &[u8]) -> Option<Self> {
        let [m0, m1, g0, g1, f0, f1, f2, f3, s0, s1, s2, s3, t0, t1, t2, t3, t4, t5] =
            *payload.first_chunk::<SIGNATURE_BYTES>()?;
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
    /// ARP over Ethernet; the packet starts at this offset.
    Arp(usize),
    /// An ICMP error, perhaps about a packet of ours.
    IcmpError,
    /// Anything else.
    Foreign,
}

/// Judges a frame for the sink of `generator`. Any bytes give a verdict.
#[inline]
pub(crate) fn judge(frame: &[u8], generator: u16) -> Verdict {
    match intact(frame) {
        Some(Verdict::Ours(signature)) if signature.generator != generator => Verdict::Foreign,
        Some(verdict) => verdict,
        None => damaged(frame, generator),
    }
}

/// Judges a frame as if nothing could have happened to it; `None` where a checksum is wrong, or where there is none to
/// tell that nothing happened.
#[inline]
fn intact(frame: &[u8]) -> Option<Verdict> {
    let payload = ethernet::payload_type(frame).ok()?;
    if payload.ethertype == EtherType::ARP && frame.len() >= payload.offset + arp::PACKET_LEN {
        return Some(Verdict::Arp(payload.offset));
    }
    if payload.ethertype != EtherType::IPV4 {
        return None;
    }
    let ip = Ipv4::new_checked(&frame[payload.offset..]).ok()?;
    if !ip.is_checksum_valid() {
        return None;
    }
    if ip.is_fragment() {
        return Some(Verdict::Foreign);
    }
    let transport = ip.payload();
    let pseudo = PseudoHeader::V4 { source: ip.source(), destination: ip.destination() };
    let signature = match ip.protocol() {
        IpProtocol::UDP => {
            let udp = Udp::new_checked(transport).ok()?;
            // Ours always have a checksum, so 0 ("none", RFC 768) is a damage.
            if udp.length() != transport.len() || !udp.is_checksum_valid(&pseudo) {
                return None;
            }
            Signature::parse(udp.payload())
        }
        IpProtocol::TCP => {
            let tcp = Tcp::new_checked(transport).ok()?;
            if !tcp.is_checksum_valid(&pseudo) {
                return None;
            }
            Signature::parse(tcp.payload())
        }
        IpProtocol::ICMP => {
            let icmp = Icmp::new_checked(transport).ok()?;
            if !icmp.is_checksum_valid() {
                return None;
            }
            match icmp.icmp_type() {
                IcmpType::ECHO_REQUEST | IcmpType::ECHO_REPLY => Signature::parse(icmp.payload()),
                error if error.is_error() => return Some(Verdict::IcmpError),
                _ => None,
            }
        }
        _ => None,
    };
    Some(signature.map_or(Verdict::Foreign, Verdict::Ours))
}

/// Whether a frame that is not intact was ours.
#[cold]
fn damaged(frame: &[u8], generator: u16) -> Verdict {
    let expected = u32::from(MAGIC) << 16 | u32::from(generator);
    // Behind Ethernet (with a tag: 4 more), IPv4 without options, and 8 bytes of UDP or ICMP or 20 of TCP.
    for offset in [42, 54, 46, 58] {
        if let Some(word) = frame.get(offset..).and_then(|rest| rest.first_chunk::<4>())
            && (u32::from_be_bytes(*word) ^ expected).count_ones() <= 1
        {
            return Verdict::Corrupted;
        }
    }
    Verdict::Foreign
}

#[cfg(test)]
mod tests {
    use super::super::traffic::{Protocol, Traffic, TrafficOptions};
    use super::*;
    use packet::{Pool, PoolOptions};
    use proptest::prelude::*;

    fn frame(protocol: Protocol, number: u64) -> Vec<u8> {
        let traffic = Traffic::new(&TrafficOptions::for_tests(protocol, 3), 0xabcd);
        let mut pool = Pool::new(PoolOptions { frames: 1, ..PoolOptions::default() }).unwrap();
        let mut packet = pool.allocate().unwrap();
        assert!(traffic.write(number, 0x0012_3456_789a_bcde, &mut packet));
        packet.data().to_vec()
    }

    #[test]
    fn a_foreign_generator_is_foreign() {
        let bytes = frame(Protocol::Udp, 7);
        let signature = Signature { generator: 0xabcd, flow: 1, sequence: 2, sent_ns: 0x3456_789a_bcde };
        assert_eq!(judge(&bytes, 0xabcd), Verdict::Ours(signature));
        assert_eq!(judge(&bytes, 0xabce), Verdict::Foreign);
        let mut fragment = bytes;
        fragment[20] = 0x20;
        let check = packet::checksum::ipv4_header_compute(&fragment[14..34]);
        fragment[24..26].copy_from_slice(&check.to_be_bytes());
        assert_eq!(judge(&fragment, 0xabcd), Verdict::Foreign);
    }

    #[test]
    fn every_changed_bit_behind_the_addresses_is_found() {
        for protocol in Protocol::ALL {
            let good = frame(protocol, 4);
            let expected = judge(&good, 0xabcd);
            assert!(matches!(expected, Verdict::Ours(_)), "{protocol:?}: {expected:?}");
            for bit in 0..good.len() * 8 {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                let verdict = judge(&bad, 0xabcd);
                // Link addresses are covered by the FCS alone, which the card checks.
                let right = if bit < 96 { expected } else { Verdict::Corrupted };
                assert_eq!(verdict, right, "{protocol:?}, bit {bit}");
            }
        }
    }

    #[test]
    fn a_tag_does_not_hide_a_packet() {
        let mut bytes = frame(Protocol::Udp, 0);
        bytes.splice(12..12, [0x81, 0, 0, 5]);
        assert!(matches!(judge(&bytes, 0xabcd), Verdict::Ours(_)));
        bytes[30] ^= 1;
        assert_eq!(judge(&bytes, 0xabcd), Verdict::Corrupted);
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_verdict(
            bytes in prop::collection::vec(any::<u8>(), 0..120),
            number in 0u64..100, changes in prop::collection::vec((0usize..80, any::<u8>()), 0..6), cut in 0usize..90,
        ) {
            let _ = judge(&bytes, 1);
            for protocol in Protocol::ALL {
                let mut near = frame(protocol, number);
                for (at, byte) in &changes {
                    if let Some(old) = near.get_mut(*at) {
                        *old = *byte;
                    }
                }
                near.truncate(cut);
                let _ = judge(&near, 0xabcd);
            }
        }
    }
}
