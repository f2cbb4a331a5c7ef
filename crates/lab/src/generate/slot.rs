//! Where the signature goes in a frame of others: over the end of its payload, so that the start still says what it is.

use std::net::IpAddr;

use packet::checksum::{self, combine};
use packet::wire::ethernet::{self, EtherType};
use packet::wire::icmp::{self, Icmp, IcmpType};
use packet::wire::icmpv6::{Icmpv6, Icmpv6Type};
use packet::wire::ipv4::Ipv4;
use packet::wire::ipv6::{self, Ipv6};
use packet::wire::tcp::Tcp;
use packet::wire::udp::{self, Udp};
use packet::wire::{IpProtocol, PseudoHeader};

use super::signature::{SIGNATURE_BYTES, Signature};

/// What tells a flow: addresses, protocol and ports, or the identifier of echoes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FlowKey {
    source: IpAddr,
    destination: IpAddr,
    protocol: IpProtocol,
    ports: (u16, u16),
}

/// A place for the signature in a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// Where the transport header starts, and where the packet ends.
    transport: usize,
    end: usize,
    /// Where the transport's checksum is, and the sum over what it covers beside the transport.
    check: usize,
    pseudo_sum: u16,
    is_udp: bool,
}

/// Finds the place in a frame and its flow; `None` if it has no room, or none that a checksum covers: only UDP, TCP and echoes that
/// are whole have one.
pub(crate) fn find(frame: &[u8]) -> Option<(Slot, FlowKey)> {
    let payload = ethernet::payload_type(frame).ok()?;
    let packet = &frame[payload.offset..];
    let (source, destination, protocol, transport, bytes): (IpAddr, IpAddr, _, _, _) = match payload.ethertype
    {
        EtherType::IPV4 => {
            let ip = Ipv4::new_checked(packet).ok()?;
            if ip.version() != 4 || ip.is_fragment() || ip.total_len() > packet.len() {
                return None;
            }
            let transport = payload.offset + ip.header_len();
            let length = ip.total_len().checked_sub(ip.header_len())?;
            (ip.source().into(), ip.destination().into(), ip.protocol(), transport, length)
        }
        EtherType::IPV6 => {
            ipv6::check_header(packet).ok()?;
            let ip = Ipv6::new_checked(packet).ok()?;
            let transport = payload.offset + ipv6::HEADER_LEN;
            (ip.source().into(), ip.destination().into(), ip.next_header(), transport, ip.payload_len())
        }
        _ => return None,
    };
    let end = transport + bytes;
    let segment = frame.get(transport..end)?;
    let (header_bytes, check, ports) = match (protocol, payload.ethertype) {
        (IpProtocol::UDP, _) => {
            let udp = Udp::new_checked(segment).ok().filter(|udp| udp.length() == bytes)?;
            (udp::HEADER_LEN, 6, (udp.source_port(), udp.destination_port()))
        }
        (IpProtocol::TCP, _) => {
            let tcp = Tcp::new_checked(segment).ok()?;
            (tcp.header_len(), 16, (tcp.source_port(), tcp.destination_port()))
        }
        (IpProtocol::ICMP, EtherType::IPV4) => {
            let icmp = Icmp::new_checked(segment).ok()?;
            let is_echo = matches!(icmp.icmp_type(), IcmpType::ECHO_REQUEST | IcmpType::ECHO_REPLY);
            is_echo.then_some((icmp::HEADER_LEN, 2, (icmp.identifier(), 0)))?
        }
        (IpProtocol::ICMPV6, EtherType::IPV6) => {
            let icmp = Icmpv6::new_checked(segment).ok()?;
            let is_echo = matches!(icmp.icmp_type(), Icmpv6Type::ECHO_REQUEST | Icmpv6Type::ECHO_REPLY);
            let [high, low, ..] = icmp.rest_of_header();
            is_echo.then_some((icmp::HEADER_LEN, 2, (u16::from_be_bytes([high, low]), 0)))?
        }
        _ => return None,
    };
    if bytes < header_bytes + SIGNATURE_BYTES {
        return None;
    }
    let pseudo_sum = match protocol {
        IpProtocol::ICMP => 0,
        _ => PseudoHeader::new(source, destination)?.sum(protocol, bytes),
    };
    let is_udp = protocol == IpProtocol::UDP;
    let slot = Slot { transport, end, check: transport + check, pseudo_sum, is_udp };
    Some((slot, FlowKey { source, destination, protocol, ports }))
}

/// Puts the right checksum into the IPv4 header of a frame; in captures of senders it is often missing.
pub(crate) fn mend_ipv4_checksum(frame: &mut [u8]) {
    let Ok(payload) = ethernet::payload_type(frame) else { return };
    if payload.ethertype == EtherType::IPV4
        && let Ok(mut ip) = Ipv4::new_checked(&mut frame[payload.offset..])
    {
        ip.fill_checksum();
    }
}

impl Slot {
    /// Writes the signature and the transport's checksum, a new one: that of a trace may be missing or wrong.
    #[inline]
    pub(crate) fn sign(&self, frame: &mut [u8], signature: &Signature) {
        frame[self.end - SIGNATURE_BYTES..self.end].copy_from_slice(&signature.bytes());
        frame[self.check..self.check + 2].fill(0);
        let sum = combine(self.pseudo_sum, checksum::sum(&frame[self.transport..self.end]));
        let check = if self.is_udp { checksum::finish_udp(sum) } else { checksum::finish(sum) };
        frame[self.check..self.check + 2].copy_from_slice(&check.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::super::signature::{Mark, Verdict, judge};
    use super::super::source::Source;
    use super::super::traffic::{Kind, Traffic, TrafficOptions};
    use super::super::values::FrameSize;
    use super::*;
    use packet::{IpVersion, Pool, PoolOptions};
    use proptest::prelude::*;

    const MARK: Mark = Mark { generator: 0xabcd, is_at_end: true };

    /// A frame with so many bytes of payload, and where the payload starts.
    fn frame(kind: Kind, payload: usize) -> (Vec<u8>, usize) {
        let size = usize::from(kind.smallest_frame()) - SIGNATURE_BYTES + payload;
        let mut options = TrafficOptions::for_tests(kind, 2);
        options.size = FrameSize::Fixed(size as u16);
        let mut pool = Pool::new(PoolOptions { frames: 1, ..PoolOptions::default() }).unwrap();
        let mut packet = pool.allocate().unwrap();
        assert!(Traffic::new(&options, 1).write(1, 0, &mut packet));
        (packet.data().to_vec(), packet.len() - payload)
    }

    /// A frame whose payload is one byte shorter than a signature.
    fn too_short(kind: Kind) -> Vec<u8> {
        let (mut bytes, start) = frame(kind, 40);
        bytes.truncate(start + SIGNATURE_BYTES - 1);
        let cut = (40 - SIGNATURE_BYTES + 1) as u16;
        let mut shorten = |at: usize| {
            let length = u16::from_be_bytes([bytes[at], bytes[at + 1]]) - cut;
            bytes[at..at + 2].copy_from_slice(&length.to_be_bytes());
        };
        let (length, transport) = if kind.version == IpVersion::V4 { (16, 34) } else { (18, 54) };
        shorten(length);
        if kind.protocol == super::super::traffic::Protocol::Udp {
            shorten(transport + 4);
        }
        bytes
    }

    #[test]
    fn frames_without_room_or_a_checksum_that_covers_it_have_no_place() {
        for kind in Kind::ALL {
            assert!(find(&too_short(kind)).is_none(), "{kind:?}");
            let (good, _) = frame(kind, SIGNATURE_BYTES);
            assert!(find(&good).is_some(), "{kind:?}");
            // The packet is longer than the frame.
            assert!(find(&good[..good.len() - 1]).is_none(), "{kind:?}");
            let mut other = good.clone();
            other[if kind.version == IpVersion::V4 { 23 } else { 20 }] = 47;
            assert!(find(&other).is_none(), "{kind:?}");
        }
        let (mut fragment, _) = frame(Kind::UDP, 100);
        fragment[20] = 0x20;
        assert!(find(&fragment).is_none());
        assert!(find(&[0xff; 60]).is_none());
    }

    #[test]
    fn flows_are_told_by_addresses_protocol_and_ports() {
        let keys = Kind::ALL.map(|kind| find(&frame(kind, 40).0).unwrap().1);
        let mut other = frame(Kind::UDP, 40).0;
        other[35] ^= 1;
        let keys = [&keys[..], &[find(&other).unwrap().1]].concat();
        for (place, key) in keys.iter().enumerate() {
            assert_eq!(keys.iter().position(|other| other == key), Some(place));
        }
        assert_eq!(find(&frame(Kind::UDP, 90).0).unwrap().1, keys[0]);
    }

    #[test]
    fn every_changed_bit_of_a_signed_frame_is_found() {
        for kind in Kind::ALL.into_iter().filter(|kind| kind.version == IpVersion::V4) {
            let (mut good, _) = frame(kind, 50);
            find(&good)
                .unwrap()
                .0
                .sign(&mut good, &Signature { generator: 0xabcd, flow: 1, sequence: 2, sent_ns: 3 });
            for bit in 96..good.len() * 8 {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(judge(&bad, MARK), Verdict::Corrupted, "{kind:?}, bit {bit}");
            }
        }
    }

    proptest! {
        #[test]
        fn signed_frames_are_ours_and_else_as_they_were(
            kind in prop::sample::select(Kind::ALL.to_vec()), payload in 18usize..300, tags in 0usize..3,
            trailer in 0usize..20, fill: u8, sequence: u32, sent_ns in 0u64..1 << 48,
        ) {
            let (mut bytes, mut start) = frame(kind, payload);
            // What captures of senders have: neither checksum is right.
            bytes[start..].fill(fill);
            if kind.version == IpVersion::V4 {
                bytes[24..26].fill(0);
            }
            for _ in 0..tags {
                bytes.splice(12..12, [0x81, 0, 0, 5]);
                start += 4;
            }
            let end = bytes.len();
            bytes.resize(end + trailer, 0xee);
            let before = bytes.clone();
            let (slot, _) = find(&bytes).unwrap();
            let signature = Signature { generator: 0xabcd, flow: 1, sequence, sent_ns };
            mend_ipv4_checksum(&mut bytes);
            slot.sign(&mut bytes, &signature);
            prop_assert_eq!(judge(&bytes, MARK), Verdict::Ours(signature));
            prop_assert_eq!(judge(&bytes, Mark { generator: 1, ..MARK }), Verdict::Foreign);
            prop_assert_eq!(&bytes[start..end - 18], &before[start..end - 18]);
            prop_assert_eq!(&bytes[end..], &before[end..]);
            bytes[end - 1] ^= 1;
            prop_assert_eq!(judge(&bytes, MARK), Verdict::Corrupted);
        }

        #[test]
        fn any_frame_has_a_place_or_none(bytes in prop::collection::vec(any::<u8>(), 0..120),
            kind in prop::sample::select(Kind::ALL.to_vec()),
            changes in prop::collection::vec((0usize..80, any::<u8>()), 0..6), cut in 0usize..120) {
            let (mut near, _) = frame(kind, 40);
            for (at, byte) in changes {
                near[at] = byte;
            }
            near.truncate(cut);
            for mut frame in [bytes, near] {
                mend_ipv4_checksum(&mut frame);
                if let Some((slot, _)) = find(&frame) {
                    let signature = Signature { generator: 0xabcd, flow: 1, sequence: 2, sent_ns: 3 };
                    slot.sign(&mut frame, &signature);
                    prop_assert_eq!(judge(&frame, MARK), Verdict::Ours(signature));
                }
            }
        }
    }
}
