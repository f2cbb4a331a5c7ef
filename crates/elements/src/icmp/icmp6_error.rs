//! =c
//! ICMP6Error(SRC, TYPE [, CODE, BADADDRS, I<keywords> MTU, PMTU, RATE, BURST])
//!
//! =s icmp
//! answers packets with ICMPv6 errors
//!
//! =d
//! Makes an ICMPv6 error (RFC 4443) of TYPE and CODE about each packet, whose IPv6 header must be
//! marked. Emits the error in place of the packet, addressed to the packet's source. The error
//! comes from SRC and quotes as much of the packet as fits MTU.
//!
//! SRC is an address, or several separated by spaces. Of several, the n-th is for packets painted
//! with colour n, and the first for all others. If the packet was sent to one of them, the error
//! comes from that one (RFC 4443, 2.2).
//!
//! TYPE and CODE are numbers or names; CODE is 0 by default. The types, and the names of their
//! codes, are:
//!
//!   unreachable [1]       noroute [0], prohibited [1], beyondscope [2], address [3], port [4],
//!                         sourcepolicy [5], rejectroute [6]
//!   packettoobig [2]
//!   timeexceeded [3]      hoplimit [0], reassembly [1]
//!   parameterproblem [4]  erroratptr [0], nextheader [1], option [2]
//!
//! A parameter problem points at the byte that the parameter problem annotation names. A
//! packettoobig reports PMTU.
//!
//! Some packets get no error (RFC 4443, 2.4 (e)). They are dropped:
//!
//! =item *
//! ICMPv6 errors and redirects
//!
//! =item *
//! packets to a group, and packets that came as a link-level broadcast or multicast, except for
//! packettoobig and parameterproblem with code option
//!
//! =item *
//! packets whose source is not a single host
//!
//! =item *
//! packets with malformed extension headers, and later fragments of ICMPv6 messages, because these
//! may be such packets too
//!
//! =back
//!
//! Anycast addresses must be given in BADADDRS, separated by spaces.
//!
//! The destination annotation of an error is its destination. Its paint is that of the packet, so
//! an error to a link-local address can be sent where the packet came from. Connect the output to
//! the route lookup.
//!
//! =item MTU
//! longest error to make, in bytes with its IPv6 header; 1280 by default and at most (RFC 4443, 2.4
//! (c)), 96 at least.
//!
//! =item PMTU
//! the MTU that packettoobig reports, 1280 by default.
//!
//! =item RATE
//! most errors a second, on all workers together; 0 sets no limit. 1000 by default (RFC 4443, 2.4
//! (f)).
//!
//! =item BURST
//! most errors at once after a time without errors; 100 by default.
//!
//! =back
//!
//! Different from Click: the rate limit and the keywords are additions, and redirects are not made.
//!
//! Drop reasons: `no IPv6 header`, `about an ICMPv6 error`, `about a truncated ICMPv6 message`,
//! `about a fragment of an ICMPv6 message`, `about malformed extension headers`,
//! `about an IP multicast`, `about a link-level broadcast`, `about a packet from a bad source`,
//! `too many ICMP errors`, `no frame for an ICMP error`.
//!
//! =e
//!   hl :: DecIP6HLIM;
//!   hl[1] -> ICMP6Error(2001:db8::1, timeexceeded) -> [0]rt;
//!
//! =a ICMPError, DecIP6HLIM, CheckLength, CheckIP6Scope, IP6NDSolicitor

use std::net::Ipv6Addr;
use std::ops::RangeInclusive;

use graph::arguments::Arguments;
use graph::{Class, ConfigError, Context};
use packet::wire::IpProtocol;
use packet::wire::icmpv6::{Icmpv6, Icmpv6Message, Icmpv6Repr, Icmpv6Type, parameter_problem_code};
use packet::wire::ipv6::{HEADER_LEN, Ipv6, Ipv6Repr};
use packet::{Packet, PacketType};

use super::errors::{self, ErrorFamily, Errors};
use super::icmp6_names;
use super::names::Codes;
use crate::ip6::AddressList6;

pub(crate) static CLASS: Class = Class {
    name: "ICMP6Error",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    handlers: Errors::<Ipv6Errors>::HANDLERS,
    manual: graph::manual!("icmp6_error.rs"),
    make: errors::make::<Ipv6Errors>,
    ..Class::DEFAULT
};

const HOP_LIMIT: u8 = 64;
const NO_HEADER: &str = "no IPv6 header";

/// The IPv6 part, which has no state of its own.
struct Ipv6Errors;

impl ErrorFamily for Ipv6Errors {
    type Ip = Ipv6Addr;
    type Addresses = AddressList6;
    type Type = Icmpv6Type;
    type PathMtu = u32;

    const TYPES: &'static str =
        "ICMPv6 error type (unreachable, packettoobig, timeexceeded or parameterproblem)";
    const TYPE_NUMBER: fn(&str) -> Option<Icmpv6Type> = icmp6_names::type_number;
    const CODES: fn(Icmpv6Type) -> Codes = icmp6_names::codes;
    /// At least room for two IPv6 headers, the ICMPv6 header and 8 bytes.
    const MTU: RangeInclusive<usize> = 96..=1280;
    const MTU_EXPECTED: &'static str = "integer from 96 to 1280";
    /// RFC 4443, 2.4 (c): "as much of the IPv6 offending (invoking) packet [...] as possible without making
    /// the error message packet exceed the minimum IPv6 MTU".
    const DEFAULT_MTU: usize = 1280;
    const DEFAULT_PATH_MTU: u32 = 1280;

    fn read(_arguments: &mut Arguments) -> Result<Self, ConfigError> {
        Ok(Self)
    }

    fn answer(errors: &mut Errors<Self>, cx: &mut Context, packet: &Packet) -> Result<Packet, &'static str> {
        let bytes = packet.network().ok_or(NO_HEADER)?;
        let offender = Ipv6::new_checked(bytes).map_err(|_| NO_HEADER)?;
        if offender.version() != 6 {
            return Err(NO_HEADER);
        }
        errors.judge(packet, &offender)?;
        let destination = offender.source();
        let (source, quoted) = errors.quote(cx, packet, offender.destination(), HEADER_LEN)?;
        let repr = Icmpv6Repr { message: errors.message(packet), data: quoted };
        let header = Ipv6Repr {
            source,
            destination,
            next_header: IpProtocol::ICMPV6,
            hop_limit: HOP_LIMIT,
            traffic_class: 0,
            flow_label: 0,
            payload_len: repr.message_len(),
        };
        errors::frame(cx, HEADER_LEN, |error| {
            let mut view = Ipv6::new_unchecked(error.reset(HEADER_LEN + repr.message_len())?);
            header.emit(&mut view).ok()?;
            repr.emit(&mut Icmpv6::new_unchecked(view.payload_mut()), source, destination).ok()?;
            error.annotations_mut().set_destination_ip6(destination.to_bits());
            error.annotations_mut().set_paint(packet.annotations().paint());
            Some(())
        })
    }
}

impl Errors<Ipv6Errors> {
    /// Whether the error may be about a packet for many: "the Packet Too Big Message [...] to allow Path MTU
    /// discovery to work for IPv6 multicast", and a parameter problem "reporting an unrecognized IPv6 option"
    /// whose type asks for it.
    fn may_be_about_groups(&self) -> bool {
        self.kind == Icmpv6Type::PACKET_TOO_BIG
            || self.kind == Icmpv6Type::PARAMETER_PROBLEM && self.code == parameter_problem_code::OPTION
    }

    /// Whether an error may be sent about the packet; else why not. RFC 4443, 2.4 (e): "An ICMPv6 error
    /// message MUST NOT be originated as a result of receiving the following:".
    fn judge(&self, packet: &Packet, offender: &Ipv6<&[u8]>) -> Result<(), &'static str> {
        // "(e.1) An ICMPv6 error message." "(e.2) An ICMPv6 redirect message."
        let upper = offender.upper_layer().map_err(|_| "about malformed extension headers")?;
        if upper.protocol == IpProtocol::ICMPV6 {
            if upper.fragment.is_some_and(|fragment| fragment.offset > 0) {
                return Err("about a fragment of an ICMPv6 message");
            }
            let message = offender.bytes().get(upper.offset..).and_then(|message| message.first());
            match message.map(|&kind| Icmpv6Type(kind)) {
                None => return Err("about a truncated ICMPv6 message"),
                Some(kind) if kind.is_error() || kind == Icmpv6Type::REDIRECT => {
                    return Err("about an ICMPv6 error");
                }
                Some(_) => {}
            }
        }
        if !self.may_be_about_groups() {
            // "(e.3) A packet destined to an IPv6 multicast address."
            if offender.destination().is_multicast() {
                return Err("about an IP multicast");
            }
            // "(e.4) A packet sent as a link-layer multicast" and "(e.5) [...] broadcast".
            if matches!(packet.packet_type(), PacketType::Broadcast | PacketType::Multicast) {
                return Err("about a link-level broadcast");
            }
        }
        // "(e.6) A packet whose source address does not uniquely identify a single node -- e.g., the IPv6
        // Unspecified Address, an IPv6 multicast address, or an address known by the ICMP message originator
        // to be an IPv6 anycast address."
        let source = offender.source();
        if source.is_unspecified()
            || source.is_multicast()
            || source.is_loopback()
            || self.bad.0.contains(&source.to_bits())
        {
            return Err("about a packet from a bad source");
        }
        Ok(())
    }

    /// What the error says.
    fn message(&self, packet: &Packet) -> Icmpv6Message {
        let code = self.code;
        match self.kind {
            Icmpv6Type::PACKET_TOO_BIG => Icmpv6Message::PacketTooBig { mtu: self.path_mtu },
            Icmpv6Type::TIME_EXCEEDED => Icmpv6Message::TimeExceeded { code },
            Icmpv6Type::PARAMETER_PROBLEM => {
                let pointer = packet.annotations().parameter_problem().into();
                Icmpv6Message::ParameterProblem { code, pointer }
            }
            _ => Icmpv6Message::DestinationUnreachable { code },
        }
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};
    use proptest::prelude::*;

    use super::*;
    use crate::icmp::error_rate::TOO_MANY;
    use testbed::ipv6::{FAR, HOST, any_packet, icmpv6, ipv6};

    const OUR_IP: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);

    fn bench(arguments: &str) -> Bench {
        let config =
            format!("in :: TestInput -> MarkIP6Header -> e :: ICMP6Error({arguments}) -> out :: TestOutput;");
        Bench::new(&crate::registry(), &config)
    }

    /// The message of a packet that is right in every way.
    fn valid(packet: &[u8]) -> Icmpv6Message {
        let view = Ipv6::new_checked(packet).unwrap();
        let header = Ipv6Repr::parse(&view).unwrap();
        assert_eq!(HEADER_LEN + header.payload_len, packet.len());
        let icmpv6 = Icmpv6::new_checked(view.payload()).unwrap();
        Icmpv6Repr::parse(&icmpv6, header.source, header.destination).unwrap().message
    }

    #[test]
    fn to_the_byte() {
        let mut bench = bench("2001:db8:1::1, timeexceeded");
        let packet = ipv6(HOST, FAR, 17, b"\x00\x07\x00\x09\x00\x0c\x00\x00data");
        let mut marked = bench.packet(&packet);
        marked.annotations_mut().set_paint(3);
        bench.push_packets("in", vec![marked]);
        let errors = bench.taken_packets("out");
        let message = icmpv6(OUR_IP, HOST, 3, &[&[0; 4], &packet[..]].concat());
        assert_eq!(errors[0].data(), ipv6(OUR_IP, HOST, 58, &message));
        assert_eq!(errors[0].annotations().destination_ip6(), HOST.to_bits());
        assert_eq!(errors[0].annotations().paint(), 3);
        assert_eq!((errors[0].network_offset(), errors[0].transport_offset()), (Some(0), Some(40)));
    }

    #[test]
    fn every_type() {
        let packet = ipv6(HOST, FAR, 17, b"12345678");
        let expected = [
            ("unreachable, address", Icmpv6Message::DestinationUnreachable { code: 3 }),
            ("packettoobig, PMTU 1400", Icmpv6Message::PacketTooBig { mtu: 1400 }),
            ("timeexceeded, reassembly", Icmpv6Message::TimeExceeded { code: 1 }),
            ("parameterproblem, nextheader", Icmpv6Message::ParameterProblem { code: 1, pointer: 6 }),
        ];
        for (arguments, message) in expected {
            let mut bench = bench(&format!("2001:db8:1::1, {arguments}"));
            let mut marked = bench.packet(&packet);
            marked.annotations_mut().set_parameter_problem(6);
            bench.push_packets("in", vec![marked]);
            assert_eq!(valid(&bench.taken("out")[0]), message);
        }
    }

    #[test]
    fn as_much_as_fits_the_least_mtu() {
        let mut bench = bench("2001:db8:1::1, packettoobig");
        let packet = ipv6(HOST, FAR, 17, &[7; 1460]);
        bench.push("in", &[&packet]);
        let error = &bench.taken("out")[0];
        assert_eq!(error.len(), 1280);
        assert_eq!(error[48..], packet[..1232]);
        assert_eq!(valid(error), Icmpv6Message::PacketTooBig { mtu: 1280 });
    }

    #[test]
    fn sources() {
        let mut bench = bench("\"2001:db8:1::1 2001:db8:2::1\", unreachable, port");
        for (destination, colour, last) in [(FAR, 0, 1), (FAR, 2, 2), (OUR_IP, 2, 1)] {
            let mut packet = bench.packet(&ipv6(HOST, destination, 17, b"12345678"));
            packet.annotations_mut().set_paint(colour);
            bench.push_packets("in", vec![packet]);
            assert_eq!(bench.taken("out")[0][13], last, "{destination} {colour}");
        }
        assert_eq!(bench.read("e.src"), "2001:db8:1::1 2001:db8:2::1");
    }

    #[test]
    fn no_error_about_these() {
        let group = "ff0e::1".parse().unwrap();
        let icmp = |kind| ipv6(HOST, FAR, 58, &[kind, 0, 0, 0, 0, 0, 0, 0]);
        let from = |source: &str| ipv6(source.parse().unwrap(), FAR, 17, b"12345678");
        let behind_options = ipv6(HOST, FAR, 60, &[58, 0, 1, 4, 0, 0, 0, 0, 1, 0, 0, 0]);
        let fragment = ipv6(HOST, FAR, 44, &[58, 0, 0, 8, 0, 0, 0, 5, 128, 0, 0, 0]);
        let cases = [
            (icmp(1), "about an ICMPv6 error"),
            (icmp(127), "about an ICMPv6 error"),
            (icmp(137), "about an ICMPv6 error"),
            (behind_options, "about an ICMPv6 error"),
            (ipv6(HOST, FAR, 58, b""), "about a truncated ICMPv6 message"),
            (fragment, "about a fragment of an ICMPv6 message"),
            (ipv6(HOST, FAR, 60, &[58, 9]), "about malformed extension headers"),
            (ipv6(HOST, group, 17, b"12345678"), "about an IP multicast"),
            (from("::"), "about a packet from a bad source"),
            (from("ff02::1"), "about a packet from a bad source"),
            (from("::1"), "about a packet from a bad source"),
            (from("2001:db8::a"), "about a packet from a bad source"),
            (b"short".to_vec(), "no IPv6 header"),
        ];
        for (packet, reason) in cases {
            let mut bench = bench("2001:db8:1::1, unreachable, noroute, 2001:db8::a");
            bench.push("in", &[&packet]);
            assert_eq!((bench.taken("out").len(), bench.drops("e", reason)), (0, 1), "{reason}");
        }
        let mut bench = bench("2001:db8:1::1, unreachable");
        let mut packet = bench.packet(&ipv6(HOST, FAR, 17, b""));
        packet.set_packet_type(PacketType::Multicast);
        bench.push_packets("in", vec![packet]);
        assert_eq!(bench.drops("e", "about a link-level broadcast"), 1);
        // Echo requests, and later fragments of anything else, are like any packet.
        let fragment = ipv6(HOST, FAR, 44, &[17, 0, 0, 8, 0, 0, 0, 5, 1, 2, 3, 4]);
        bench.push("in", &[&icmp(128), &fragment]);
        assert_eq!(bench.taken("out").len(), 2);
    }

    #[test]
    fn two_errors_are_about_groups_too() {
        for arguments in ["packettoobig", "parameterproblem, option"] {
            let mut bench = bench(&format!("2001:db8:1::1, {arguments}"));
            let mut packet = bench.packet(&ipv6(HOST, "ff0e::1".parse().unwrap(), 17, b""));
            packet.set_packet_type(PacketType::Multicast);
            bench.push_packets("in", vec![packet]);
            assert_eq!(bench.taken("out").len(), 1, "{arguments}");
        }
    }

    #[test]
    fn the_rate_is_limited() {
        let mut bench = bench("2001:db8:1::1, unreachable, RATE 10, BURST 3");
        let packet = ipv6(HOST, FAR, 17, b"");
        let send = |bench: &mut Bench| {
            bench.push("in", &[&packet[..]; 5]);
            bench.taken("out").len()
        };
        assert_eq!((send(&mut bench), bench.drops("e", TOO_MANY)), (3, 2));
        bench.advance_ns(200_000_000);
        assert_eq!(send(&mut bench), 2);
        bench.write("e.rate", "0").unwrap();
        assert_eq!(send(&mut bench), 5);
        assert_eq!(bench.read("e.rate"), "0");
    }

    #[test]
    fn configuration_mistakes() {
        assert!(configure(&CLASS, "2001:db8::1, 1, 3").is_ok());
        let error = |config| configure(&CLASS, config).unwrap_err().remove(0);
        assert!(error("2001:db8::1, redirect").starts_with("TYPE: expected an ICMPv6 error type"));
        assert_eq!(
            error("2001:db8::1, timeexceeded, host"),
            "CODE: expected an integer from 0 to 255, or one of hoplimit, reassembly; got 'host'"
        );
        assert!(error("2001:db8::1, 1, MTU 1281").starts_with("MTU: expected integer from 96 to 1280"));
        assert!(error("2001:db8::1, 1, BURST 0").starts_with("BURST: "));
        assert!(error("10.0.0.1, 1").starts_with("SRC"));
    }

    proptest! {
        /// Every error is a valid packet that quotes the start of what it is about, and there is none about
        /// an error.
        #[test]
        fn errors_are_valid(packet in any_packet(), mtu in 96usize..200) {
            let mut bench = bench(&format!("2001:db8:1::1, parameterproblem, MTU {mtu}"));
            bench.push("in", &[&packet]);
            for error in bench.taken("out") {
                valid(&error);
                prop_assert!(error.len() <= mtu);
                prop_assert!(packet.starts_with(&error[48..]));
                bench.push("in", &[&error]);
                prop_assert_eq!(bench.taken("out").len(), 0);
            }
        }
    }
}
