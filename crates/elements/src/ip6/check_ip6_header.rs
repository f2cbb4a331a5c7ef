//! =c
//! CheckIP6Header([BADADDRS, OFFSET, I<keywords> BADADDRS, OFFSET, MARTIANS, VERBOSE, DETAILS])
//!
//! =s ip6
//! checks IPv6 headers
//!
//! =d
//! Expects an IPv6 header OFFSET bytes into each packet (0 by default). Checks version, payload
//! length and both addresses (RFC 4291, 2.5.2, 2.5.3 and 2.7). The source must not be a group, the
//! unspecified address (::) or loopback (::1). The destination must not be :: or ::1, or a group of
//! scope 0. Good packets leave by output 0. They are cut to the IPv6 length (Ethernet padding
//! goes), network and transport header are set, and the destination annotation is the destination
//! address. Bad packets leave by output 1 if that is connected, and are dropped otherwise.
//!
//! The transport header is behind all extension headers, of which up to eight are walked. Their
//! content is not checked, as it is not a matter of routers (RFC 8200, 4). In a packet whose
//! extension headers are malformed, the transport header is set to the packet's end.
//!
//! Keyword arguments are:
//!
//! =item BADADDRS
//! more source addresses to refuse, separated by spaces.
//!
//! =item MARTIANS
//! whether mapped IPv4 addresses (::ffff:0:0/96, RFC 4291, 2.5.5.2) are refused as sources too. A packet to a group passes, from :: as well. It is not
//! forwarded by address, and may ask whether an address is free (RFC 4862, 5.4). False by default.
//!
//! =item VERBOSE
//! whether every refused packet gives a message, not only the first; false by default.
//!
//! =item DETAILS
//! whether there is a C<drop_details> handler; false by default.
//!
//! =back
//!
//! Other than in Click, :: and ::1 are bad sources without being named. Solicitations of hosts without an
//! address come from ::, so neighbour discovery is sorted out before this element (see IP6NDAdvertiser).
//! Jumbograms (RFC 2675) are refused.
//!
//! Drop reasons: tiny packet, bad IPv6 version, bad IPv6 length, bad source address, bad destination address,
//! martian source.
//!
//! =e
//!   ... -> Strip(14) -> CheckIP6Header -> ...
//!
//! =a CheckIPHeader, MarkIP6Header, CheckIP6Scope, DecIP6HLIM

use std::net::Ipv6Addr;
use std::sync::Arc;

use graph::runs::Ordinary;
use graph::{Class, Combine, ConfigError, Context, Element, Get, Handler, Setup};
use packet::wire::ipv6::{self, HEADER_LEN, Ipv6};
use packet::wire::{IpProtocol, WireError};
use packet::{Batch, Packet, PlainIpv6Header};

use super::AddressList6;
use crate::ip::{MARTIAN, Rejects};
use crate::runs::{self, BadSources, Ip6Check, Step};

pub(crate) static CLASS: Class = Class {
    name: "CheckIP6Header",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[
        Handler::read(
            "drops",
            Combine::Sum,
            "Packets refused so far.",
            &Get(|e: &mut CheckIp6Header| e.rejects.total().to_string()),
        ),
        Handler::read(
            "drop_details",
            Combine::Join,
            "Packets refused, by reason. Only with DETAILS.",
            &Get(|e: &mut CheckIp6Header| e.rejects.details_text()),
        ),
    ],
    manual: graph::manual!("check_ip6_header.rs"),
    make,
    ..Class::DEFAULT
};

/// What is wrong with a header; the number of the reason in [`REASONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    Tiny,
    Version,
    Length,
    Source,
    Destination,
    Martian,
}

const REASONS: [&str; 6] = [
    "tiny packet",
    "bad IPv6 version",
    "bad IPv6 length",
    "bad source address",
    "bad destination address",
    MARTIAN,
];

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let name = setup.name();
    let arguments = &mut setup.arguments;
    let AddressList6(bad) = arguments.optional("BADADDRS")?.unwrap_or_default();
    let offset = arguments.optional("OFFSET")?.unwrap_or(0usize);
    let verbose = arguments.keyword_or("VERBOSE", false)?;
    let details = arguments.keyword_or("DETAILS", false)?;
    let martians = arguments.keyword_or("MARTIANS", false)?;
    arguments.finish()?;
    let rules = Rules::new(offset, bad, martians);
    Ok(Box::new(CheckIp6Header {
        rules,
        rejects: Rejects::new(name, "IP6", &REASONS, verbose, details).with_martians(martians),
    }))
}

struct Rules {
    offset: usize,
    /// Source addresses that are refused.
    bad: Vec<u128>,
    /// MARTIANS.
    refuses_martians: bool,
    /// `bad`, for the fast path.
    refused: Arc<BadSources<u128>>,
}

impl Rules {
    fn new(offset: usize, bad: Vec<u128>, refuses_martians: bool) -> Self {
        let refused = Arc::new(BadSources::new(bad.iter().copied(), []));
        Self { offset, bad, refuses_martians, refused }
    }

    /// What is wrong with these addresses.
    fn flaw(&self, source: Ipv6Addr, destination: Ipv6Addr) -> Option<Flaw> {
        let is_to_group = destination.is_multicast();
        // RFC 4291, 2.7: "Multicast addresses must not be used as source addresses in IPv6 packets". 2.5.2:
        // "An IPv6 packet with a source address of unspecified must never be forwarded by an IPv6 router."
        // 2.5.3: "The loopback address must not be used as the source address in IPv6 packets that are sent
        // outside of a single node."
        if source.is_multicast()
            || source.is_loopback()
            || source.is_unspecified() && !(self.refuses_martians && is_to_group)
            || self.bad.contains(&source.to_bits())
        {
            return Some(Flaw::Source);
        }
        let is_martian = self.refuses_martians && !is_to_group && source.to_ipv4_mapped().is_some();
        is_martian.then_some(Flaw::Martian)
    }

    /// Checks one packet and marks what it found. As in CheckIPHeader, all tests of an ordinary header are
    /// one condition; what fails it is looked at again, in order.
    #[inline(always)]
    fn check(&self, packet: &mut Packet) -> Result<(), Flaw> {
        let Some(header) = PlainIpv6Header::at(packet.data(), self.offset) else { return Err(Flaw::Tiny) };
        let end = self.offset + header.total_length();
        let ordinary = header.is_ipv6()
            & (end <= packet.len())
            & header.has_plain_addresses()
            & !header.next_header().is_ipv6_extension()
            & !self.refused.has(header.source());
        let header_len =
            if ordinary { HEADER_LEN } else { self.check_in_order(&packet.data()[self.offset..], header)? };
        packet.set_network_and_transport_header(self.offset, header_len);
        packet.truncate(end);
        packet.annotations_mut().set_destination_ip6(header.destination());
        Ok(())
    }

    /// The checks one by one; the length of all headers if all is well.
    #[inline(never)]
    fn check_in_order(&self, bytes: &[u8], header: PlainIpv6Header) -> Result<usize, Flaw> {
        ipv6::check_header(bytes).map_err(|error| match error {
            WireError::Ipv6Version => Flaw::Version,
            _ => Flaw::Length,
        })?;
        let whole = &bytes[..header.total_length()];
        // RFC 8200, 3, and RFC 2675: a payload length of zero with hop-by-hop options is a jumbogram, or
        // nothing.
        if whole.len() == HEADER_LEN && header.next_header() == IpProtocol::HOP_BY_HOP {
            return Err(Flaw::Length);
        }
        let source = Ipv6Addr::from_bits(header.source());
        let destination = Ipv6Addr::from_bits(header.destination());
        if let Some(flaw) = self.flaw(source, destination) {
            return Err(flaw);
        }
        // RFC 4291, 2.5.2 and 2.5.3 say the same of destinations. 2.7: packets to a group of scope 0 "must be
        // silently dropped".
        let is_scope_zero = destination.segments()[0] & 0xff0f == 0xff00;
        if destination.is_unspecified() || destination.is_loopback() || is_scope_zero {
            return Err(Flaw::Destination);
        }
        Ok(Ipv6::new_unchecked(whole).upper_layer_offset())
    }
}

/// Makes an element, for an element of this name that holds it, which checks the headers in Ethernet frames and refuses martians.
pub(crate) fn frames_without_martians(name: &str) -> CheckIp6Header {
    let offset = packet::wire::ethernet::HEADER_LEN;
    let rules = Rules::new(offset, Vec::new(), true);
    CheckIp6Header { rules, rejects: Rejects::new(name, "IP6", &REASONS, false, false).with_martians(true) }
}

/// The element, which others can hold.
pub(crate) struct CheckIp6Header {
    rules: Rules,
    rejects: Rejects,
}

impl CheckIp6Header {
    /// Checks one packet and marks what it found.
    ///
    /// # Errors
    ///
    /// The reason to drop it.
    #[inline(always)]
    pub(crate) fn check(&self, packet: &mut Packet) -> Result<(), &'static str> {
        self.rules.check(packet).map_err(|flaw| REASONS[flaw as usize])
    }

    /// The sources that it refuses.
    pub(crate) fn refused_sources(&self) -> &BadSources<u128> {
        &self.rules.refused
    }
}

impl Element for CheckIp6Header {
    /// An ordinary packet has no extension headers and addresses that are not bad.
    fn ordinary(&self) -> Option<Ordinary> {
        let Rules { offset, refused, .. } = &self.rules;
        runs::ordinary([Step::CheckIp6(Ip6Check { offset: *offset, sources: refused.clone() })])
    }

    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let Self { rules, rejects } = self;
        rejects.filter(cx, batch, |packet| rules.check(packet).map_err(|flaw| flaw as usize));
    }

    fn has_handler(&self, name: &str) -> bool {
        self.rejects.has_handler(name)
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};
    use packet::wire::ipv6::Ipv6Repr;
    use proptest::prelude::*;

    use super::*;
    use testbed::ipv6::{FAR, HOST, any_packet, ipv6};

    fn bench(text: &str) -> Bench {
        Bench::element(&crate::registry(), text, 1, 2)
    }

    #[test]
    fn martian_sources_are_refused_unless_nobody_forwards_the_packet() {
        for before in ["", "Paint(1) ->"] {
            let config = format!(
                "in :: TestInput -> {before} e :: CheckIP6Header(MARTIANS true) -> out :: TestOutput"
            );
            let mut bench = Bench::new(&crate::registry(), &config);
            let passes = |bench: &mut Bench, source: &str, destination: &str| {
                let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
                bench.push("in", &[&ipv6(source, destination, 17, b"payload")]);
                bench.taken("out").len() == 1
            };
            for source in ["::ffff:192.0.2.1", "::"] {
                assert!(!passes(&mut bench, source, "2001:db8:2::1"), "{source}");
                assert!(passes(&mut bench, source, "ff02::1"), "{source}");
            }
            for source in ["::1", "ff02::1"] {
                assert!(!passes(&mut bench, source, "2001:db8:2::1"), "{source}");
                assert!(!passes(&mut bench, source, "ff02::1"), "{source}");
            }
            assert!(passes(&mut bench, "2001:db8:2::1", "2001:db8:3::1"));
            assert_eq!(bench.drops("e", "martian source"), 1);
        }
    }

    #[test]
    fn a_good_packet_is_marked_and_cut() {
        let mut bench = bench("CheckIP6Header(OFFSET 2)");
        let good = [&[0, 0], &ipv6(HOST, FAR, 17, b"payload")[..]].concat();
        let padded = [&good[..], &[0xaa; 9]].concat();
        bench.push("in0", &[&padded]);
        let packets = bench.taken_packets("out0");
        assert_eq!(packets[0].data(), good);
        assert_eq!(packets[0].network_offset(), Some(2));
        assert_eq!(packets[0].transport(), Some(&b"payload"[..]));
        assert_eq!(packets[0].annotations().destination_ip6(), FAR.to_bits());
    }

    #[test]
    fn the_transport_header_is_behind_the_extensions() {
        let mut bench = bench("CheckIP6Header");
        let options = [17, 0, 1, 4, 0, 0, 0, 0];
        let good = ipv6(HOST, FAR, 60, &[&options[..], b"datagram"].concat());
        let beyond = ipv6(HOST, FAR, 60, &[17, 9, 1, 4]);
        let endless = ipv6(HOST, FAR, 60, &[60, 0, 1, 4, 0, 0, 0, 0].repeat(12));
        bench.push("in0", &[&good, &beyond, &endless]);
        let transports: Vec<_> =
            bench.taken_packets("out0").iter().map(|packet| packet.transport().unwrap().to_vec()).collect();
        assert_eq!(transports, [&b"datagram"[..], b"", b""]);
    }

    /// Headers with one mistake each.
    fn flawed() -> Vec<(Vec<u8>, &'static str)> {
        let good = ipv6(HOST, FAR, 17, b"12345678");
        let change = |at: usize, value: u8| {
            let mut packet = good.clone();
            packet[at] = value;
            packet
        };
        let between = |source: &str, destination: &str| {
            ipv6(source.parse().unwrap(), destination.parse().unwrap(), 17, b"")
        };
        vec![
            (good[..39].to_vec(), "tiny packet"),
            (Vec::new(), "tiny packet"),
            (change(0, 0x45), "bad IPv6 version"),
            (change(5, 9), "bad IPv6 length"),
            (ipv6(HOST, FAR, 0, b""), "bad IPv6 length"),
            (between("ff02::1", "2001:db8::1"), "bad source address"),
            (between("::", "2001:db8::1"), "bad source address"),
            (between("::1", "2001:db8::1"), "bad source address"),
            (between("2001:db8::bad", "2001:db8::1"), "bad source address"),
            (between("2001:db8::1", "::"), "bad destination address"),
            (between("2001:db8::1", "::1"), "bad destination address"),
            (between("2001:db8::1", "ff10::1"), "bad destination address"),
        ]
    }

    #[test]
    fn each_flaw_has_its_reason() {
        for (packet, reason) in flawed() {
            let text = "CheckIP6Header(2001:db8::bad 2001:db8::2:bad, DETAILS true)";
            let mut bench = Bench::element(&crate::registry(), text, 1, 1);
            bench.push("in0", &[&packet]);
            assert_eq!(bench.taken("out0").len(), 0, "{reason}");
            assert_eq!(bench.drops("e", reason), 1, "{reason}");
            assert!(bench.read("e.drop_details").contains(&format!("1\t{reason}\n")));
            assert_eq!(bench.messages(), [format!("e: IP6 header check failed: {reason}")]);
        }
    }

    #[test]
    fn flawed_packets_leave_by_output_1() {
        let mut bench = bench("CheckIP6Header(BADADDRS 2001:db8::bad)");
        let packets: Vec<_> = flawed().into_iter().map(|(packet, _)| packet).collect();
        bench.push("in0", &packets.iter().map(Vec::as_slice).collect::<Vec<_>>());
        assert_eq!(bench.taken("out1"), packets);
        assert_eq!(bench.read("e.drops"), packets.len().to_string());
    }

    #[test]
    fn unusual_and_right() {
        let mut bench = bench("CheckIP6Header(2001:db8::bad)");
        for (source, destination) in [
            ("fe80::1", "ff02::1"),
            ("2001:db8::1:bad", "64:ff9b::192.0.2.1"),
            ("64:ff9b::192.0.2.1", "ff0e::1"),
        ] {
            let packet = ipv6(source.parse().unwrap(), destination.parse().unwrap(), 59, b"");
            bench.push("in0", &[&packet]);
            assert_eq!(bench.taken("out0"), [packet], "{source} {destination}");
        }
    }

    #[test]
    fn arguments() {
        assert!(configure(&CLASS, "\"3ffe::1 ::2\", 14").is_ok());
        assert!(configure(&CLASS, "BADADDRS 3ffe::1, OFFSET 14, VERBOSE true").is_ok());
        assert!(configure(&CLASS, "14").is_err());
    }

    proptest! {
        /// What passes is what the wire library finds right, and nothing is lost.
        #[test]
        fn agrees_with_the_wire_library(packet in any_packet()) {
            let mut bench = bench("CheckIP6Header");
            bench.push("in0", &[&packet]);
            let (passed, refused) = (bench.taken_packets("out0"), bench.taken("out1"));
            prop_assert_eq!(passed.len() + refused.len(), 1);
            let view = Ipv6::new_checked(&packet);
            let repr = view.as_ref().map_err(|error| *error).and_then(Ipv6Repr::parse);
            match (passed.first(), repr) {
                (Some(passed), repr) => {
                    let repr = repr.unwrap();
                    prop_assert_eq!(passed.data(), &packet[..40 + repr.payload_len]);
                    let view = Ipv6::new_unchecked(passed.data());
                    let upper = view.upper_layer().map_or(passed.len(), |upper| upper.offset);
                    prop_assert_eq!(passed.transport_offset(), Some(upper as isize));
                }
                (None, Ok(repr)) => {
                    let bad = |address: Ipv6Addr| address.is_unspecified() || address.is_loopback();
                    let jumbo = repr.payload_len == 0 && repr.next_header == IpProtocol::HOP_BY_HOP;
                    let scope = repr.destination.segments()[0] & 0xff0f == 0xff00;
                    let is_bad_source = bad(repr.source) || repr.source.is_multicast();
                    prop_assert!(is_bad_source || bad(repr.destination) || scope || jumbo);
                }
                (None, Err(_)) => {}
            }
        }
    }
}
