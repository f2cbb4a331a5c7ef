//! =c
//! ICMP6PingResponder()
//!
//! =s icmp
//! answers IPv6 pings
//!
//! =d
//! Turns ICMPv6 echo requests, whose IPv6 header must be marked, into their replies and emits them on output
//! 0. A reply's destination annotation is its destination, its time that of now; the other annotations are
//! the request's, the paint too, so that what goes to a link-local address can be sent where the request came
//! from. All other packets leave by output 1 if that is connected and are dropped otherwise.
//!
//! Requests with extension headers, and those to a group or from an address that is not a host's, are not
//! answered. Click has no such element; it is made like ICMPPingResponder.
//!
//! Drop reasons: not an ICMPv6 echo request.
//!
//! =a ICMPPingResponder, ICMP6Error

use std::net::Ipv6Addr;

use graph::{Class, Context, Element, Verdict};
use packet::wire::IpProtocol;
use packet::wire::icmpv6::{self, Icmpv6, Icmpv6Type};
use packet::wire::ipv6::{HEADER_LEN, Ipv6};
use packet::{Batch, Packet, checksum};

pub(crate) static CLASS: Class = Class {
    name: "ICMP6PingResponder",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    manual: graph::manual!("icmp6_ping_responder.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(Icmp6PingResponder))
    },
    ..Class::DEFAULT
};

struct Icmp6PingResponder;

const HOP_LIMIT: u8 = 64;

/// Makes the request its reply. Addresses change places, which leaves the checksum as it is. `None`, and no
/// change, if it is none.
fn answer(packet: &mut Packet, now_ns: u64) -> Option<()> {
    let (header, message) = packet.network_mut()?.split_at_mut_checked(HEADER_LEN)?;
    let mut header = Ipv6::new_unchecked(header);
    let (source, destination) = (header.source(), header.destination());
    let is_host = |address: Ipv6Addr| !address.is_multicast() && !address.is_unspecified();
    let is_request = header.next_header() == IpProtocol::ICMPV6
        && message.len() >= icmpv6::HEADER_LEN
        && Icmpv6::new_unchecked(&*message).icmp_type() == Icmpv6Type::ECHO_REQUEST;
    if !is_request || !is_host(source) || !is_host(destination) {
        return None;
    }
    header.set_source(destination);
    header.set_destination(source);
    header.set_hop_limit(HOP_LIMIT);
    let mut message = Icmpv6::new_unchecked(message);
    let word = |kind: Icmpv6Type, code| u16::from_be_bytes([kind.0, code]);
    let old = word(Icmpv6Type::ECHO_REQUEST, message.code());
    let check = checksum::update_u16(message.checksum(), old, word(Icmpv6Type::ECHO_REPLY, 0));
    message.set_icmp_type(Icmpv6Type::ECHO_REPLY);
    message.set_code(0);
    message.set_checksum(check);
    packet.annotations_mut().set_destination_ip6(source.to_bits());
    packet.set_timestamp_ns(now_ns);
    Some(())
}

impl Element for Icmp6PingResponder {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let now_ns = cx.now_ns();
        cx.filter(batch, |packet| match answer(packet, now_ns) {
            Some(()) => Verdict::Keep,
            None => Verdict::Divert(1, "not an ICMPv6 echo request"),
        });
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use proptest::prelude::*;
    use testbed::ipv6::{FAR, HOST, icmpv6, ipv6};

    fn bench() -> Bench {
        let config = "in :: TestInput -> MarkIP6Header -> e :: ICMP6PingResponder -> out :: TestOutput;
            e[1] -> other :: TestOutput;";
        Bench::new(&crate::registry(), config)
    }

    #[test]
    fn only_requests() {
        let request = |source: &str, destination: &str| {
            let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
            ipv6(source, destination, 58, &icmpv6(source, destination, 128, &[0; 4]))
        };
        let others = [
            ipv6(HOST, FAR, 58, &icmpv6(HOST, FAR, 129, &[0; 4])),
            ipv6(HOST, FAR, 17, &[128, 0, 0, 0, 0, 0, 0, 0]),
            ipv6(HOST, FAR, 58, &[128, 0, 0, 0, 0, 0, 0]),
            request("2001:db8::1", "ff02::1"),
            request("::", "2001:db8::1"),
            b"x".to_vec(),
        ];
        let mut bench = bench();
        bench.push("in", &others.each_ref().map(Vec::as_slice));
        assert_eq!(bench.taken("other"), others);
        let mut alone = Bench::element(&crate::registry(), "ICMP6PingResponder", 1, 1);
        alone.push("in0", &[b"x"]);
        assert_eq!(alone.drops("e", "not an ICMPv6 echo request"), 1);
    }

    proptest! {
        /// The reply is what it would be if it were made anew.
        #[test]
        fn replies(rest in proptest::collection::vec(any::<u8>(), 4..40), paint: u8) {
            let mut bench = bench();
            let request = ipv6(HOST, FAR, 58, &icmpv6(HOST, FAR, 128, &rest));
            let mut packet = bench.packet(&request);
            packet.annotations_mut().set_paint(paint);
            bench.push_packets("in", vec![packet]);
            let reply = bench.taken_packets("out").remove(0);
            prop_assert_eq!(reply.data(), ipv6(FAR, HOST, 58, &icmpv6(FAR, HOST, 129, &rest)));
            prop_assert_eq!(reply.annotations().destination_ip6(), HOST.to_bits());
            prop_assert_eq!(reply.annotations().paint(), paint);
        }
    }
}
