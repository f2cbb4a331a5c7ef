//! =c
//! ICMPError(SRC, TYPE [, CODE, BADADDRS, I<keywords> MTU, PMTU, SET_FIX_ANNO, RATE, BURST])
//!
//! =s icmp
//! answers packets with ICMP errors
//!
//! =d
//! Makes an ICMP error of TYPE and CODE about each packet, whose IP header must be marked. Emits
//! the error in place of the packet, addressed to the packet's source. The error comes from SRC. It
//! quotes the packet: its IP header and as much of the rest as fits MTU.
//!
//! SRC is an address, or several separated by spaces. Of several, the n-th is for packets painted
//! with colour n, and the first for all others. If the packet was sent to one of them, the error
//! comes from that one.
//!
//! TYPE and CODE are numbers or names; CODE is 0 by default. The types, and the names of their
//! codes, are:
//!
//!   unreachable [3]        net [0], host [1], protocol [2], port [3], needfrag [4],
//!                          srcroutefail [5], netunknown [6], hostunknown [7], isolated [8],
//!                          netprohibited [9], hostprohibited [10], tosnet [11], toshost [12],
//!                          filterprohibited [13], hostprecedence [14], precedencecutoff [15]
//!   sourcequench [4]
//!   redirect [5]           net, host, tosnet, toshost
//!   timeexceeded [11]      transit [0], reassembly [1]
//!   parameterproblem [12]  erroratptr [0], missingopt [1], length [2]
//!
//! A parameter problem with code erroratptr points at the byte that the parameter problem
//! annotation names (IPGWOptions sets it). A redirect names the gateway in the destination
//! annotation. An unreachable with code needfrag reports PMTU.
//!
//! Some packets get no error (RFC 1122, 3.2.2; RFC 1812, 4.3.2.7). They are dropped:
//!
//! =item *
//! ICMP errors
//!
//! =item *
//! fragments that are not the first
//!
//! =item *
//! link-level broadcasts and multicasts
//!
//! =item *
//! packets to an IP broadcast or multicast address
//!
//! =item *
//! packets whose source is not a single host
//!
//! =back
//!
//! Directed broadcast addresses must be given in BADADDRS, separated by spaces.
//!
//! The destination annotation of an error is its destination. Its "fix source" annotation is set,
//! so that FixIPSrc gives the error the address of the interface that it leaves by. Connect the
//! output to the route lookup.
//!
//! =item MTU
//! longest error to make, in bytes with its IP header; 576 by default (RFC 1812, 4.3.2.3), 56 at
//! least.
//!
//! =item PMTU
//! the MTU that needfrag reports, 0 by default.
//!
//! =item SET_FIX_ANNO
//! whether the "fix source" annotation is set; true by default. USE_FIX_ANNO is the same.
//!
//! =item RATE
//! most errors a second, on all workers together; 0 sets no limit. 1000 by default (RFC 1812,
//! 4.3.2.8).
//!
//! =item BURST
//! most errors at once after a time without errors; 100 by default.
//!
//! =back
//!
//! Where the packet came by a source route, the error takes the route back. It follows RFC 1122,
//! 3.2.1.8: first to the last router of the route, and to the source at its end. Click does not.
//! The rate limit, and lists of SRC, are additions too.
//!
//! Drop reasons: `no IP header`, `about an ICMP error`, `about a truncated ICMP message`,
//! `about a fragment`, `about an IP broadcast or multicast`, `about a link-level broadcast`,
//! `about a packet from a bad source`, `redirect for a source-routed packet`,
//! `too many ICMP errors`, `no frame for an ICMP error`.
//!
//! =e
//!   dt :: DecIPTTL;
//!   dt[1] -> ICMPError(18.26.4.24, timeexceeded) -> [0]rt;
//!
//! =a DecIPTTL, FixIPSrc, IPFragmenter, IPGWOptions

use std::net::Ipv4Addr;
use std::ops::{Range, RangeInclusive};

use graph::arguments::Arguments;
use graph::{Class, ConfigError, Context};
use packet::wire::icmp::{Icmp, IcmpMessage, IcmpRepr, IcmpType, parameter_problem_code, unreachable_code};
use packet::wire::ipv4::{Ipv4, Ipv4Repr, MIN_HEADER_LEN};
use packet::wire::ipv4_option::field::{LENGTH, POINTER};
use packet::wire::ipv4_option::{Ipv4Option, kind as option_kind};
use packet::wire::{IpProtocol, OptionOctets};
use packet::{Packet, PacketType};

use super::errors::{self, ErrorFamily, Errors};
use super::names::{self, Codes};
use crate::ip::AddressList;

pub(crate) static CLASS: Class = Class {
    name: "ICMPError",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    handlers: Errors::<Ipv4Errors>::HANDLERS,
    manual: graph::manual!("icmp_error.rs"),
    make: errors::make::<Ipv4Errors>,
    ..Class::DEFAULT
};

const TIME_TO_LIVE: u8 = 200;
const NO_HEADER: &str = "no IP header";

/// The IPv4 part, with the state that only ICMPError has.
struct Ipv4Errors {
    fix_source: bool,
    identification: u16,
}

impl ErrorFamily for Ipv4Errors {
    type Ip = Ipv4Addr;
    type Addresses = AddressList;
    type Type = u8;
    type PathMtu = u16;

    const TYPES: &'static str =
        "ICMP error type (unreachable, sourcequench, redirect, timeexceeded or parameterproblem)";
    const TYPE_NUMBER: fn(&str) -> Option<u8> =
        |name| names::type_number(name).filter(|kind| IcmpType(*kind).is_error());
    const CODES: fn(u8) -> Codes = names::codes;
    /// At least room for two IP headers, the ICMP header and 8 bytes (RFC 792).
    const MTU: RangeInclusive<usize> = 56..=65535;
    const MTU_EXPECTED: &'static str = "integer from 56 to 65535";
    /// RFC 1812, 4.3.2.3: "the ICMP datagram SHOULD contain as much of the original datagram as possible
    /// without the length of the ICMP datagram exceeding 576 bytes".
    const DEFAULT_MTU: usize = 576;
    const DEFAULT_PATH_MTU: u16 = 0;

    fn read(arguments: &mut Arguments) -> Result<Self, ConfigError> {
        let older = arguments.keyword_or("USE_FIX_ANNO", true)?;
        let fix_source = arguments.keyword_or("SET_FIX_ANNO", older)?;
        Ok(Self { fix_source, identification: 1 })
    }

    fn answer(errors: &mut Errors<Self>, cx: &mut Context, packet: &Packet) -> Result<Packet, &'static str> {
        let bytes = packet.network().ok_or(NO_HEADER)?;
        let offender = Ipv4::new_checked(bytes).map_err(|_| NO_HEADER)?;
        errors.judge(packet, &offender)?;
        let mut route = source_route(offender.header());
        // RFC 1812, 5.2.7.2: a redirect is sent only when "the packet contains no source route option".
        if route.is_some() && errors.kind == names::REDIRECT {
            return Err("redirect for a source-routed packet");
        }
        let message = errors.message(packet);
        // RFC 1812, 4.3.2.6: the route goes back "unless the ICMP error message is a Parameter Problem about
        // a source route option".
        if let IcmpMessage::ParameterProblem { pointer, .. } = message
            && route.as_ref().is_some_and(|place| place.contains(&pointer.into()))
        {
            route = None;
        }
        let source = offender.source();
        let way_back = route.and_then(|place| WayBack::of(offender.header().get(place)?, source));
        let options = way_back.as_ref().map_or(OptionOctets::EMPTY, |way| way.options);
        let destination = way_back.as_ref().map_or(source, |way| way.first);
        let header_len = MIN_HEADER_LEN + options.len();
        let (own, quoted) = errors.quote(cx, packet, offender.destination(), header_len)?;
        let repr = IcmpRepr { message, data: quoted };
        let state = &mut errors.family;
        let header = Ipv4Repr {
            ttl: TIME_TO_LIVE,
            identification: state.identification,
            options,
            ..Ipv4Repr::new(own, destination, IpProtocol::ICMP, repr.message_len())
        };
        errors::frame(cx, header_len, |error| {
            let mut view = Ipv4::new_unchecked(error.reset(header_len + repr.message_len())?);
            header.emit(&mut view).ok()?;
            repr.emit(&mut Icmp::new_unchecked(view.payload_mut())).ok()?;
            error.annotations_mut().set_destination_ip(destination.to_bits());
            error.annotations_mut().set_fix_source(state.fix_source);
            state.identification = state.identification.wrapping_add(1);
            Some(())
        })
    }
}

/// The place of the source route in a header, if there is one that is well formed.
fn source_route(header: &[u8]) -> Option<Range<usize>> {
    let mut at = MIN_HEADER_LEN;
    while let Some(option) = Ipv4Option::next(header, at) {
        let Ipv4Option { kind, place } = option.ok()?;
        at = place.end;
        if matches!(kind, option_kind::LOOSE_SOURCE_ROUTE | option_kind::STRICT_SOURCE_ROUTE) {
            let pointer = usize::from(*header.get(place.start + POINTER)?);
            if place.len() > POINTER
                && pointer >= 4
                && pointer.is_multiple_of(4)
                && pointer <= place.len() + 1
            {
                return Some(place);
            }
        }
    }
    None
}

/// A source route the other way round, to be written into an error.
struct WayBack {
    options: OptionOctets,
    first: Ipv4Addr,
}

impl WayBack {
    /// Of a source route option; `None` when no router was visited yet. RFC 1122, 3.2.1.8 (c): the reversed
    /// route goes back through the recorded routers, the last one first, and ends at the source.
    fn of(option: &[u8], source: Ipv4Addr) -> Option<Self> {
        let visited = usize::from(*option.get(POINTER)?).checked_sub(4)? / 4;
        let slots = option.get(3..3 + visited * 4)?;
        let (slots, _) = slots.as_chunks::<4>();
        let (last, others) = slots.split_last()?;
        let mut options = [0; OptionOctets::MAX_LEN];
        let length = 3 + visited * 4;
        options[0] = option[0];
        options[LENGTH] = length as u8;
        options[POINTER] = 4;
        let mut at = 3;
        for slot in others.iter().rev().chain([&source.octets()]) {
            options.get_mut(at..at + 4)?.copy_from_slice(slot);
            at += 4;
        }
        Some(Self { options: OptionOctets::new(&options[..length]).ok()?, first: Ipv4Addr::from(*last) })
    }
}

impl Errors<Ipv4Errors> {
    fn is_unicast(&self, address: u32) -> bool {
        // Limited broadcast, multicast (RFC 1812, 4.2.2.11), and what the configuration says.
        address != u32::MAX && address >> 28 != 0xe && !self.bad.0.contains(&address)
    }

    /// RFC 1812, 4.3.2.7: "a packet whose source address has a network prefix of zero or is an invalid source
    /// address (as defined in Section [5.3.7])".
    fn is_valid_source(&self, address: u32) -> bool {
        let network = address >> 24;
        self.is_unicast(address) && network != 0 && network != 127 && network >> 4 != 0xf
    }

    /// Whether an error may be sent about the packet; else why not. All quotations are from RFC 1812,
    /// 4.3.2.7: "An ICMP error message MUST NOT be sent as the result of receiving:".
    fn judge(&self, packet: &Packet, offender: &Ipv4<&[u8]>) -> Result<(), &'static str> {
        // "Any fragment of a datagram other than the first fragment".
        if offender.fragment_offset() != 0 {
            return Err("about a fragment");
        }
        // "An ICMP error message".
        if offender.protocol() == IpProtocol::ICMP {
            let message = offender.bytes().get(offender.header_len()..).unwrap_or(&[]);
            match message.first_chunk::<4>() {
                None => return Err("about a truncated ICMP message"),
                Some([kind, ..]) if IcmpType(*kind).is_error() => return Err("about an ICMP error"),
                Some(_) => {}
            }
        }
        // "A packet destined to an IP broadcast or IP multicast address".
        if !self.is_unicast(offender.destination().to_bits()) {
            return Err("about an IP broadcast or multicast");
        }
        // "A packet sent as a Link Layer broadcast or multicast".
        if matches!(packet.packet_type(), PacketType::Broadcast | PacketType::Multicast) {
            return Err("about a link-level broadcast");
        }
        if !self.is_valid_source(offender.source().to_bits()) {
            return Err("about a packet from a bad source");
        }
        Ok(())
    }

    /// What the error says.
    fn message(&self, packet: &Packet) -> IcmpMessage {
        let code = self.code;
        match self.kind {
            names::PARAMETER_PROBLEM if code == parameter_problem_code::POINTER => {
                // A header has at most 60 octets.
                let pointer = packet.annotations().parameter_problem() as u8;
                IcmpMessage::ParameterProblem { code, pointer }
            }
            names::REDIRECT => {
                let gateway = Ipv4Addr::from_bits(packet.annotations().destination_ip());
                IcmpMessage::Redirect { code, gateway }
            }
            // RFC 1191, section 4: the MTU of the next hop in the low half of what RFC 792 left unused.
            names::UNREACHABLE if code == unreachable_code::FRAGMENTATION_NEEDED => {
                IcmpMessage::DestinationUnreachable { code, next_hop_mtu: self.path_mtu }
            }
            kind => IcmpMessage::Other { icmp_type: IcmpType(kind), code, rest: [0; 4] },
        }
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};
    use proptest::prelude::*;

    use packet::checksum;

    use super::*;
    use crate::icmp::error_rate::TOO_MANY;
    use testbed::ipv4::{any_packet, ipv4, refresh, with_options};

    fn bench(arguments: &str) -> Bench {
        let config =
            format!("in :: TestInput -> MarkIPHeader -> e :: ICMPError({arguments}) -> out :: TestOutput;");
        Bench::new(&crate::registry(), &config)
    }

    const HOST: [u8; 4] = [10, 1, 0, 7];
    const FAR: [u8; 4] = [10, 2, 0, 8];

    fn is_valid(error: &[u8]) -> bool {
        let header_len = usize::from(error[0] & 0x0f) * 4;
        checksum::ipv4_header_valid(&error[..header_len])
            && checksum::is_valid(&error[header_len..])
            && usize::from(u16::from_be_bytes([error[2], error[3]])) == error.len()
    }

    #[test]
    fn to_the_byte() {
        let mut bench = bench("10.1.0.1, timeexceeded");
        let packet = ipv4(HOST, FAR, 17, b"\x00\x07\x00\x09\x00\x0c\x00\x00data");
        bench.push("in", &[&packet]);
        let errors = bench.taken_packets("out");
        let mut expected = vec![0x45, 0, 0, 60, 0, 1, 0, 0, 200, 1, 0, 0, 10, 1, 0, 1, 10, 1, 0, 7];
        refresh(&mut expected);
        let mut message = vec![11, 0, 0, 0, 0, 0, 0, 0];
        message.extend(&packet);
        let check = checksum::compute(&message);
        message[2..4].copy_from_slice(&check.to_be_bytes());
        expected.extend(message);
        assert_eq!(errors[0].data(), expected);
        assert_eq!(errors[0].annotations().destination_ip(), u32::from_be_bytes(HOST));
        assert!(errors[0].annotations().fix_source());
        assert_eq!(errors[0].transport_offset(), Some(20));
    }

    #[test]
    fn no_error_about_these() {
        let mut fragment = ipv4(HOST, FAR, 17, b"12345678");
        fragment[7] = 1;
        let mut low_fragment = ipv4(HOST, FAR, 17, b"12345678");
        low_fragment[6] = 0x01;
        let icmp = |kind: u8| ipv4(HOST, FAR, 1, &[kind, 0, 0, 0, 0, 0, 0, 0]);
        let from = |source| ipv4(source, FAR, 17, b"12345678");
        let to = |destination| ipv4(HOST, destination, 17, b"12345678");
        let cases = [
            (icmp(3), "about an ICMP error"),
            (icmp(4), "about an ICMP error"),
            (icmp(5), "about an ICMP error"),
            (icmp(11), "about an ICMP error"),
            (icmp(12), "about an ICMP error"),
            (ipv4(HOST, FAR, 1, &[8, 0, 0]), "about a truncated ICMP message"),
            (fragment, "about a fragment"),
            (low_fragment, "about a fragment"),
            (to([255, 255, 255, 255]), "about an IP broadcast or multicast"),
            (to([224, 0, 0, 1]), "about an IP broadcast or multicast"),
            (to([239, 255, 255, 255]), "about an IP broadcast or multicast"),
            (to([10, 2, 0, 255]), "about an IP broadcast or multicast"),
            (from([0, 0, 0, 0]), "about a packet from a bad source"),
            (from([0, 1, 2, 3]), "about a packet from a bad source"),
            (from([127, 0, 0, 1]), "about a packet from a bad source"),
            (from([224, 0, 0, 1]), "about a packet from a bad source"),
            (from([240, 0, 0, 1]), "about a packet from a bad source"),
            (from([255, 255, 255, 255]), "about a packet from a bad source"),
            (from([10, 2, 0, 255]), "about a packet from a bad source"),
            (vec![0x45; 19], "no IP header"),
            (vec![0x44; 40], "no IP header"),
        ];
        for (packet, reason) in cases {
            let mut bench = bench("10.1.0.1, unreachable, host, 10.2.0.255 10.1.0.255");
            bench.push("in", &[&packet]);
            assert_eq!(bench.taken("out").len(), 0, "{reason}");
            assert_eq!(bench.drops("e", reason), 1, "{reason}: {packet:02x?}");
        }
    }

    #[test]
    fn no_error_about_link_level_broadcasts() {
        let mut bench = bench("10.1.0.1, unreachable");
        let packets: Vec<_> =
            [PacketType::Host, PacketType::Broadcast, PacketType::Multicast, PacketType::OtherHost]
                .map(|packet_type| {
                    let mut packet = bench.packet(&ipv4(HOST, FAR, 17, b"12345678"));
                    packet.set_packet_type(packet_type);
                    packet
                })
                .into();
        bench.push_packets("in", packets);
        assert_eq!(bench.taken("out").len(), 2);
        assert_eq!(bench.drops("e", "about a link-level broadcast"), 2);
    }

    #[test]
    fn errors_about_pings_and_first_fragments() {
        let mut first = ipv4(HOST, FAR, 17, b"12345678");
        first[6] = 0x20;
        refresh(&mut first);
        let mut bench = bench("10.1.0.1, unreachable, host");
        bench.push("in", &[&ipv4(HOST, FAR, 1, &[8, 0, 0, 0]), &ipv4(HOST, FAR, 1, &[0; 8]), &first]);
        let errors = bench.taken("out");
        assert_eq!(errors.len(), 3);
        assert!(errors.iter().all(|error| is_valid(error) && error[20..22] == [3, 1]));
        assert_eq!([errors[0][5], errors[1][5], errors[2][5]], [1, 2, 3], "identifications count up");
    }

    #[test]
    fn quotes_up_to_the_mtu() {
        let packet = ipv4(HOST, FAR, 17, &[7; 1400]);
        for (arguments, length) in [("", 576), (", MTU 1500", 1448), (", MTU 56", 56)] {
            let mut bench = bench(&format!("10.1.0.1, timeexceeded, transit{arguments}"));
            bench.push("in", &[&packet]);
            let error = &bench.taken("out")[0];
            assert_eq!(error.len(), length);
            assert_eq!(error[28..], packet[..length - 28]);
            assert!(is_valid(error));
        }
    }

    #[test]
    fn particulars() {
        let packet = ipv4(HOST, FAR, 17, b"12345678");
        let mut problem = bench("10.1.0.1, parameterproblem, erroratptr");
        let mut marked = problem.packet(&packet);
        marked.annotations_mut().set_parameter_problem(22);
        problem.push_packets("in", vec![marked]);
        assert_eq!(problem.taken("out")[0][20..28][4..], [22, 0, 0, 0]);

        let mut redirect = bench("10.1.0.1, redirect, host, SET_FIX_ANNO false");
        let mut marked = redirect.packet(&packet);
        marked.annotations_mut().set_destination_ip(0x0a01_0002);
        redirect.push_packets("in", vec![marked]);
        let error = redirect.taken_packets("out").remove(0);
        assert_eq!(error.data()[20..22], [5, 1]);
        assert_eq!(error.data()[24..28], [10, 1, 0, 2]);
        assert!(!error.annotations().fix_source());

        let mut needfrag = bench("10.1.0.1, 3, 4, PMTU 1400");
        needfrag.push("in", &[&packet]);
        assert_eq!(needfrag.taken("out")[0][24..28], [0, 0, 5, 0x78]);
        needfrag.write("e.pmtu", "1280").unwrap();
        needfrag.write("e.src", "9.9.9.9").unwrap();
        assert!(needfrag.write("e.mtu", "10").is_err());
        assert_eq!(needfrag.read("e.mtu"), "576");
        needfrag.push("in", &[&packet]);
        let error = &needfrag.taken("out")[0];
        assert_eq!((&error[12..16], &error[24..28]), (&[9, 9, 9, 9][..], &[0, 0, 5, 0][..]));
    }

    #[test]
    fn the_rate_is_limited_and_the_source_chosen() {
        let mut bench = bench("10.1.0.1 10.2.0.1, unreachable, RATE 10, BURST 3");
        let packet = ipv4(HOST, FAR, 17, b"12345678");
        let packets = (0..4).map(|colour| {
            let mut packet = bench.packet(&packet);
            packet.annotations_mut().set_paint(colour);
            packet
        });
        let packets = packets.collect();
        bench.push_packets("in", packets);
        let sources: Vec<u8> = bench.taken("out").iter().map(|error| error[13]).collect();
        assert_eq!((sources, bench.drops("e", TOO_MANY)), (vec![1, 1, 2], 1));
        bench.advance_ns(100_000_000);
        bench.push("in", &[&packet, &packet]);
        assert_eq!(bench.taken("out").len(), 1);
        assert_eq!((bench.read("e.src"), bench.read("e.rate")), ("10.1.0.1 10.2.0.1".into(), "10".into()));
    }

    #[test]
    fn source_routes_go_back() {
        // Two of three routers were visited.
        let options = [1, 131, 15, 12, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3];
        let packet = with_options(HOST, FAR, 17, &options, b"12345678");
        let mut unreachable = bench("10.1.0.1, unreachable");
        unreachable.push("in", &[&packet]);
        let error = unreachable.taken_packets("out").remove(0);
        assert!(is_valid(error.data()));
        assert_eq!(error.data()[16..20], [2, 2, 2, 2]);
        assert_eq!(error.annotations().destination_ip(), 0x0202_0202);
        assert_eq!(error.data()[20..32], [131, 11, 4, 1, 1, 1, 1, 10, 1, 0, 7, 0]);

        let mut redirect = bench("10.1.0.1, redirect, host");
        redirect.push("in", &[&packet]);
        assert_eq!(redirect.drops("e", "redirect for a source-routed packet"), 1);

        let mut problem = bench("10.1.0.1, parameterproblem");
        for (pointer, words) in [(23, 0x45), (20, 0x48), (36, 0x48)] {
            let mut marked = problem.packet(&packet);
            marked.annotations_mut().set_parameter_problem(pointer);
            problem.push_packets("in", vec![marked]);
            assert_eq!(problem.taken("out")[0][0], words, "pointer {pointer}");
        }
    }

    #[test]
    fn configuration_mistakes() {
        assert!(configure(&CLASS, "18.26.4.24, 11, 0").is_ok());
        assert!(configure(&CLASS, "18.26.4.24, unreachable, needfrag, PMTU 1400, BADADDRS 1.2.3.4").is_ok());
        assert!(configure(&CLASS, "18.26.4.24").is_err());
        assert!(
            configure(&CLASS, "18.26.4.24, echo").unwrap_err()[0].starts_with("TYPE: expected an ICMP error")
        );
        assert_eq!(
            configure(&CLASS, "18.26.4.24, timeexceeded, host").unwrap_err(),
            ["CODE: expected an integer from 0 to 255, or one of transit, reassembly; got 'host'"]
        );
        assert!(configure(&CLASS, "18.26.4.24, 3, MTU 20").is_err());
    }

    proptest! {
        /// Every error is a valid packet that quotes the start of what it is about.
        #[test]
        fn errors_are_valid(packet in any_packet(), mtu in 56usize..200) {
            let mut bench = bench(&format!("10.1.0.1, parameterproblem, MTU {mtu}"));
            bench.push("in", &[&packet]);
            for error in bench.taken("out") {
                prop_assert!(is_valid(&error));
                prop_assert!(error.len() <= mtu);
                let quoted = &error[usize::from(error[0] & 0x0f) * 4 + 8..];
                prop_assert!(packet.starts_with(quoted));
                // An error about the error is never sent.
                bench.push("in", &[&error]);
                prop_assert_eq!(bench.taken("out").len(), 0);
            }
        }
    }
}
