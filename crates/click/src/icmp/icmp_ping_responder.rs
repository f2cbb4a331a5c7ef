//! =c
//! ICMPPingResponder()
//!
//! =s icmp
//! answers pings
//!
//! =d
//! Turns ICMP echo requests, whose IP header must be marked, into their replies and emits them on output 0. A
//! reply's destination annotation is its destination, its paint is 0, its time that of now; the other
//! annotations are the request's. All other packets leave by output 1 if that is connected and are dropped
//! otherwise.
//!
//! Other than in Click, fragments, and requests to a multicast or broadcast address, are not answered (RFC 1122,
//! 3.2.2.6). Source routes are not reversed, as in Click.
//!
//! Drop reasons: not an ICMP echo request.
//!
//! =a ICMPPingSource, ICMPError

use elements::icmp::names;
use graph::{Class, Context, Element, Verdict};
use packet::wire::IpProtocol;
use packet::wire::icmp::{Icmp, IcmpType};
use packet::wire::ipv4::Ipv4;
use packet::{Batch, Packet, checksum};

pub(crate) static CLASS: Class = Class {
    name: "ICMPPingResponder",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    manual: graph::manual!("icmp_ping_responder.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(ICMPPingResponder))
    },
    ..Class::DEFAULT
};

struct ICMPPingResponder;

/// Whether it is a request that is to be answered.
fn is_request(packet: &Packet) -> Option<()> {
    let header = Ipv4::new_unchecked(packet.network()?.first_chunk::<20>()?);
    let message = Icmp::new_unchecked(packet.transport()?.first_chunk::<8>()?);
    // RFC 1122, 3.2.2.6: a request to a multicast or broadcast address "MAY be silently discarded"; its address
    // may not be the source of the reply (3.2.1.3).
    let to_many = header.destination().is_multicast() || header.destination().is_broadcast();
    let is_echo = header.protocol() == IpProtocol::ICMP && message.icmp_type() == IcmpType::ECHO_REQUEST;
    (is_echo && !header.is_fragment() && !to_many).then_some(())
}

/// Makes the request its reply. Addresses change places, which leaves the checksum as it is.
fn answer(packet: &mut Packet, now_ns: u64) -> Option<()> {
    is_request(packet)?;
    let header = packet.network_mut()?.first_chunk_mut::<20>()?;
    let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
    header[12..].copy_from_slice(&[d0, d1, d2, d3, s0, s1, s2, s3]);
    let mut check = u16::from_be_bytes([header[10], header[11]]);
    check = checksum::update_u16(check, u16::from_be_bytes([header[6], header[7]]), 0);
    header[6..8].fill(0);
    check = checksum::update_u16(
        check,
        u16::from_be_bytes([header[8], header[9]]),
        u16::from_be_bytes([u8::MAX, header[9]]),
    );
    header[8] = u8::MAX;
    header[10..12].copy_from_slice(&check.to_be_bytes());

    let message = packet.transport_mut()?;
    let head = message.first_chunk_mut::<4>()?;
    let old = u16::from_be_bytes([head[0], head[1]]);
    let check = checksum::update_u16(u16::from_be_bytes([head[2], head[3]]), old, 0);
    *head = [names::ECHO_REPLY, 0, 0, 0];
    // The update cannot tell the two zeros apart when nothing but zeros is left; the sum of nothing is 0, and
    // its check 0xffff.
    let check = if check == 0 { checksum::compute(message) } else { check };
    message.get_mut(2..4)?.copy_from_slice(&check.to_be_bytes());

    packet.annotations_mut().set_destination_ip(u32::from_be_bytes([s0, s1, s2, s3]));
    packet.annotations_mut().set_paint(0);
    packet.set_timestamp_ns(now_ns);
    Some(())
}

impl Element for ICMPPingResponder {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let now_ns = cx.now_ns();
        cx.filter(batch, |packet| match answer(packet, now_ns) {
            Some(()) => Verdict::Keep,
            None => Verdict::Divert(1, "not an ICMP echo request"),
        });
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use proptest::prelude::*;
    use testbed::ipv4::{ipv4, refresh};

    use super::*;

    fn bench() -> Bench {
        let config = "in :: TestInput -> MarkIPHeader -> e :: ICMPPingResponder -> out :: TestOutput;
            e[1] -> other :: TestOutput;";
        Bench::new(&crate::registry(), config)
    }

    fn echo(kind: u8, rest: &[u8]) -> Vec<u8> {
        let mut message = vec![kind, 0, 0, 0];
        message.extend(rest);
        let check = checksum::compute(&message);
        message[2..4].copy_from_slice(&check.to_be_bytes());
        message
    }

    #[test]
    fn to_the_byte() {
        let mut request = ipv4([10, 0, 0, 2], [10, 0, 0, 1], 1, &echo(8, b"\x12\x34\x00\x01odd"));
        request[6] = 0x40;
        refresh(&mut request);
        let mut bench = bench();
        let mut packet = bench.packet(&request);
        packet.annotations_mut().set_paint(9);
        bench.push_packets("in", vec![packet]);
        let replies = bench.taken_packets("out");
        let mut expected = ipv4([10, 0, 0, 1], [10, 0, 0, 2], 1, &echo(0, b"\x12\x34\x00\x01odd"));
        expected[8] = 255;
        refresh(&mut expected);
        assert_eq!(replies[0].data(), expected);
        assert_eq!(replies[0].annotations().destination_ip(), 0x0a00_0002);
        assert_eq!(replies[0].annotations().paint(), 0);
        assert_ne!(replies[0].timestamp_ns(), 0);
    }

    #[test]
    fn only_requests() {
        let mut fragment = ipv4([10, 0, 0, 2], [10, 0, 0, 1], 1, &echo(8, &[0; 4]));
        fragment[6] = 0x20;
        let others = [
            ipv4([10, 0, 0, 2], [10, 0, 0, 1], 1, &echo(0, &[0; 4])),
            ipv4([10, 0, 0, 2], [10, 0, 0, 1], 17, &echo(8, &[0; 4])),
            ipv4([10, 0, 0, 2], [10, 0, 0, 1], 1, &echo(8, &[0; 3])),
            ipv4([10, 0, 0, 2], [224, 0, 0, 1], 1, &echo(8, &[0; 4])),
            ipv4([10, 0, 0, 2], [255, 255, 255, 255], 1, &echo(8, &[0; 4])),
            fragment,
        ];
        let mut bench = bench();
        bench.push("in", &others.each_ref().map(Vec::as_slice));
        assert_eq!(bench.taken("other"), others);
        let mut alone = Bench::element(&crate::registry(), "ICMPPingResponder", 1, 1);
        alone.push("in0", &[b"x"]);
        assert_eq!(alone.drops("e", "not an ICMP echo request"), 1);
    }

    proptest! {
        /// The updated checksum is the computed one, also of a reply that is all zero.
        #[test]
        fn checksums(code: u8, zero: bool, rest in proptest::collection::vec(any::<u8>(), 4..40)) {
            let rest = if zero { vec![0; rest.len()] } else { rest };
            let mut message = echo(8, &rest);
            message[1] = code;
            message[2..4].fill(0);
            let check = checksum::compute(&message);
            message[2..4].copy_from_slice(&check.to_be_bytes());
            let mut bench = bench();
            bench.push("in", &[&ipv4([10, 0, 0, 2], [10, 0, 0, 1], 1, &message)]);
            let reply = &bench.taken("out")[0];
            prop_assert!(checksum::ipv4_header_valid(&reply[..20]));
            prop_assert_eq!(&reply[20..], &echo(0, &rest)[..]);
        }
    }
}
