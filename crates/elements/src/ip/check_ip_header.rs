//! =c
//! CheckIPHeader([OFFSET, I<keywords> INTERFACES, BADSRC, GOODDST, MARTIANS, OFFSET, VERBOSE, DETAILS, CHECKSUM])
//!
//! =s ip
//! checks IP headers
//!
//! =d
//! Expects an IP header OFFSET bytes into each packet (0 by default). Checks version, header length, total length and
//! checksum, and that the source address is not one that no host may use. Good packets leave by output 0. They are
//! cut to the IP length (Ethernet padding goes), network and transport header are set, and the destination annotation
//! is the destination address. Bad packets leave by output 1 if that is connected, and are dropped otherwise.
//!
//! Source addresses are checked only when INTERFACES, BADSRC, GOODDST or MARTIANS asks for it (RFC 1812, 5.3.7).
//! Keyword arguments are:
//!
//! =item INTERFACES
//! this router's addresses with their prefixes, separated by spaces. `18.26.4.9/24 18.32.9.44/28` stands for
//! BADSRC `18.26.4.255 18.32.9.47 0.0.0.0 255.255.255.255` and GOODDST `18.26.4.9 18.32.9.44`.
//!
//! =item BADSRC
//! source addresses to refuse, separated by spaces.
//!
//! =item GOODDST
//! destination addresses, separated by spaces, for which BADSRC does not count.
//!
//! =item MARTIANS
//! whether sources that no forwarded packet may have are refused: 0/8, 127/8, 224/4, 240/4 with
//! 255.255.255.255, and the addresses of the C<own> handler. Packets to a group or to
//! 255.255.255.255 pass, as they are not forwarded by address, and one from 0.0.0.0 may ask for an
//! address. False by default.
//!
//! =item CHECKSUM
//! whether the checksum is checked; true by default.
//!
//! =item VERBOSE
//! whether every refused packet gives a message, not only the first; false by default.
//!
//! =item DETAILS
//! whether there is a C<drop_details> handler; false by default.
//!
//! =back
//!
//! The old form CheckIPHeader(BADSRC, OFFSET) works too; there, 0.0.0.0 and 255.255.255.255 are bad sources
//! beside those given.
//!
//! Drop reasons: tiny packet, bad IP version, bad IP header length, bad IP length, bad IP checksum, bad source
//! address, martian source.
//!
//! Other than in Click, a network of INTERFACES with a prefix of 31 or 32 bits has no broadcast address (RFC
//! 3021).
//!
//! =e
//!   ... -> Strip(14) -> CheckIPHeader(INTERFACES 18.26.4.9/24 18.32.9.44/28) -> ...
//!
//! =a CheckIPHeader2, MarkIPHeader, SetIPChecksum, StripIPHeader

use std::net::Ipv4Addr;
use std::sync::Arc;

use graph::runs::Ordinary;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup};
use packet::wire::WireError;
use packet::wire::ipv4::{self, MIN_HEADER_LEN};
use packet::{Batch, Packet, PlainHeader};

use super::addresses::{AddressList, InterfaceList};
use super::rejects::{MARTIAN, Rejects, list_text};
use crate::runs::{self, BadSources, IpCheck, Step};

/// The class `CheckIPHeader`.
pub static CLASS: Class = Class {
    name: "CheckIPHeader",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[
        Handler::read(
            "drops",
            Combine::Sum,
            "Packets refused so far.",
            &Get(|e: &mut CheckIPHeader| e.rejects.total().to_string()),
        ),
        Handler::read(
            "drop_details",
            Combine::Join,
            "Packets refused, by reason. Only with DETAILS.",
            &Get(|e: &mut CheckIPHeader| e.rejects.details_text()),
        ),
        Handler::read_write(
            "own",
            Combine::First,
            "This router's addresses and the broadcast addresses of its networks, separated by spaces. Only \
             with MARTIANS.",
            &Get(|e: &mut CheckIPHeader| e.own_text()),
            &Put(|e: &mut CheckIPHeader, _, value| e.set_own(value)),
        ),
    ],
    manual: graph::manual!("check_ip_header.rs"),
    make: |setup| make(setup, true),
    ..Class::DEFAULT
};

/// What is wrong with a header; the number of the reason in [`REASONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    Tiny,
    Version,
    HeaderLength,
    Length,
    Checksum,
    Source,
    Martian,
}

impl Flaw {
    fn of(error: WireError) -> Self {
        match error {
            WireError::TruncatedIpv4 => Self::Tiny,
            WireError::Ipv4Version => Self::Version,
            WireError::Ipv4HeaderLength => Self::HeaderLength,
            WireError::Ipv4Checksum => Self::Checksum,
            _ => Self::Length,
        }
    }
}

/// The texts of [`Flaw`], which are Click's but for the last.
const REASONS: [&str; 7] = [
    "tiny packet",
    "bad IP version",
    "bad IP header length",
    "bad IP length",
    "bad IP checksum",
    "bad source address",
    MARTIAN,
];

const UNSPECIFIED: u32 = 0;
const LIMITED_BROADCAST: u32 = u32::MAX;

/// First octets of addresses that no packet to be forwarded comes from (RFC 6890): this network, loopback, groups, reserved.
fn martian_octets() -> impl Iterator<Item = u8> {
    [0, 127].into_iter().chain(224..=255)
}

/// Whether a packet to this address is not forwarded by its address: a group, limited broadcast.
fn is_group_or_broadcast(destination: u32) -> bool {
    destination >> 28 == 0xe || destination == LIMITED_BROADCAST
}

/// Makes the element; `checksum` is the default of CHECKSUM.
pub fn make(setup: &mut Setup<'_>, checksum: bool) -> Result<Box<dyn Element>, ConfigError> {
    Ok(Box::new(from_setup(setup, checksum)?))
}

/// Reads the arguments that are left; `checksum` is the default of CHECKSUM.
pub fn from_setup(setup: &mut Setup<'_>, checksum: bool) -> Result<CheckIPHeader, ConfigError> {
    let name = setup.name();
    let arguments = &mut setup.arguments;
    let (mut bad, mut good) = (Vec::new(), Vec::new());
    if let Some(interfaces) = arguments.keyword::<InterfaceList>("INTERFACES")? {
        bad.extend(interfaces.broadcasts);
        bad.extend([UNSPECIFIED, LIMITED_BROADCAST]);
        good.extend(interfaces.addresses);
    }
    bad.extend(arguments.keyword_or("BADSRC", AddressList::default())?.0);
    good.extend(arguments.keyword_or("GOODDST", AddressList::default())?.0);
    let mut offset = arguments.keyword_or("OFFSET", 0usize)?;
    let verbose = arguments.keyword_or("VERBOSE", false)?;
    let details = arguments.keyword_or("DETAILS", false)?;
    let checksum = arguments.keyword_or("CHECKSUM", checksum)?;
    let martians = arguments.keyword_or("MARTIANS", false)?;
    match arguments.rest().as_slice() {
        [] => {}
        // A lone number is an offset; an address list is the old form.
        [number] if usize::from_argument(number).is_some() => {
            offset = usize::from_argument(number).unwrap_or(offset);
        }
        [addresses, rest @ ..] if rest.len() < 2 => {
            let Some(AddressList(list)) = AddressList::from_argument(addresses) else {
                let message = format!("expected OFFSET or {}, got '{addresses}'", AddressList::EXPECTED);
                return Err(message.into());
            };
            bad.extend(list);
            bad.extend([UNSPECIFIED, LIMITED_BROADCAST]);
            if let [text] = rest {
                offset = usize::from_argument(text)
                    .ok_or_else(|| format!("OFFSET: expected {}, got '{text}'", usize::EXPECTED))?;
            }
        }
        _ => return Err(ConfigError::new("too many arguments: expected OFFSET, or BADSRC and OFFSET")),
    }
    arguments.finish()?;
    Ok(CheckIPHeader {
        rules: Rules { offset, checksum, sources: Sources::new(bad, good, martians) },
        rejects: Rejects::new(name, "IP", &REASONS, verbose, details).with_martians(martians),
    })
}

/// Makes an element, for an element of this name that holds it, which checks the headers in Ethernet frames and refuses martians.
pub(crate) fn frames_without_martians(name: &str) -> CheckIPHeader {
    let sources = Sources::new(Vec::new(), Vec::new(), true);
    CheckIPHeader {
        rules: Rules { offset: packet::wire::ethernet::HEADER_LEN, checksum: true, sources },
        rejects: Rejects::new(name, "IP", &REASONS, false, false).with_martians(true),
    }
}

/// Source addresses that are refused.
struct Sources {
    /// All of them.
    refused: Arc<BadSources<u32>>,
    /// Those of BADSRC and INTERFACES.
    bad: Box<[u32]>,
    good_destinations: Box<[u32]>,
    /// With MARTIANS: the router's own addresses.
    own: Option<Vec<u32>>,
}

impl Sources {
    fn new(bad: Vec<u32>, good_destinations: Vec<u32>, martians: bool) -> Self {
        let own = martians.then(Vec::new);
        let mut sources = Self {
            refused: Arc::default(),
            bad: bad.into(),
            good_destinations: good_destinations.into(),
            own,
        };
        sources.gather();
        sources
    }

    /// Puts all that is refused together.
    fn gather(&mut self) {
        let single = self.bad.iter().chain(self.own.iter().flatten()).copied();
        let octets = self.own.iter().flat_map(|_| martian_octets());
        self.refused = Arc::new(BadSources::new(single, octets));
    }

    /// What is wrong with a source that is among those refused.
    fn flaw(&self, source: u32, destination: u32) -> Option<Flaw> {
        if self.bad.contains(&source) && !self.good_destinations.contains(&destination) {
            return Some(Flaw::Source);
        }
        let own = self.own.as_ref()?;
        let first = (source >> 24) as u8;
        let is_martian = matches!(first, 0 | 127 | 224..) || own.contains(&source);
        (is_martian && !is_group_or_broadcast(destination)).then_some(Flaw::Martian)
    }
}

struct Rules {
    offset: usize,
    /// Whether the checksum counts.
    checksum: bool,
    sources: Sources,
}

impl Rules {
    /// Checks one packet and marks what it found.
    ///
    /// All tests of an ordinary header are one condition, so that the ordinary packet costs one branch that
    /// is always predicted. What fails it is looked at again, slowly and in order.
    #[inline(always)]
    fn check(&self, packet: &mut Packet) -> Result<(), Flaw> {
        let Some(bytes) = packet.data().get(self.offset..) else { return Err(Flaw::Tiny) };
        let Some(plain) = PlainHeader::at(bytes, 0) else { return Err(Flaw::Tiny) };
        let total = plain.total_length();
        let ordinary =
            plain.is_good(self.checksum) & (total <= bytes.len()) & !self.sources.refused.has(plain.source());
        let header_len = if ordinary { MIN_HEADER_LEN } else { self.check_in_order(bytes, plain)? };
        packet.set_network_and_transport_header(self.offset, header_len);
        packet.truncate(self.offset + total);
        packet.annotations_mut().set_destination_ip(plain.destination());
        Ok(())
    }

    /// The checks one by one; the length of the header if all is well.
    #[inline(never)]
    fn check_in_order(&self, bytes: &[u8], header: PlainHeader) -> Result<usize, Flaw> {
        let header_len = ipv4::check_header(bytes, self.checksum).map_err(Flaw::of)?;
        // RFC 1812, 5.3.7: "A router SHOULD NOT forward any packet that has an invalid IP source address"; a
        // broadcast address is one (4.2.2.11), and so is 0.0.0.0 unless the packet is for the router itself.
        if self.sources.refused.has(header.source())
            && let Some(flaw) = self.sources.flaw(header.source(), header.destination())
        {
            return Err(flaw);
        }
        Ok(header_len)
    }
}

/// The element `CheckIPHeader`, for elements that hold one.
pub struct CheckIPHeader {
    rules: Rules,
    rejects: Rejects,
}

impl CheckIPHeader {
    /// What it does to an ordinary packet, whose header has no options, and a source that is not a bad one.
    pub fn step(&self) -> Step {
        let Rules { offset, checksum, sources } = &self.rules;
        Step::CheckIp(IpCheck { offset: *offset, checksum: *checksum, sources: sources.refused.clone() })
    }

    /// Checks one packet and marks what it found.
    ///
    /// # Errors
    ///
    /// The reason to drop it.
    #[inline(always)]
    pub fn check(&self, packet: &mut Packet) -> Result<(), &'static str> {
        self.rules.check(packet).map_err(|flaw| REASONS[flaw as usize])
    }

    /// The sources that it refuses.
    pub(crate) fn refused_sources(&self) -> &BadSources<u32> {
        &self.rules.sources.refused
    }

    /// The packets that it refused.
    pub fn rejects(&self) -> &Rejects {
        &self.rejects
    }

    /// The handler `own`.
    pub fn own_text(&self) -> String {
        list_text(self.rules.sources.own.iter().flatten().copied().map(Ipv4Addr::from_bits))
    }

    /// Writes the handler `own`.
    pub fn set_own(&mut self, value: &str) -> Result<(), String> {
        self.rules.sources.own = Some(AddressList::from_value(value)?.0);
        self.rules.sources.gather();
        Ok(())
    }
}

impl Element for CheckIPHeader {
    fn ordinary(&self) -> Option<Ordinary> {
        runs::ordinary([self.step()])
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
    use proptest::prelude::*;

    use super::*;
    use testbed::ipv4::{any_packet, ipv4, refresh, with_options};

    fn bench(text: &str) -> Bench {
        Bench::element(&crate::registry(), text, 1, 2)
    }

    const SOURCE: [u8; 4] = [18, 26, 4, 9];
    const DESTINATION: [u8; 4] = [10, 0, 0, 2];

    /// RFC 1812, 5.3.7, in a run and without one: two steps are a run.
    #[test]
    fn martian_sources_are_refused_unless_nobody_forwards_the_packet() {
        for before in ["", "Paint(1) ->"] {
            let config =
                format!("in :: TestInput -> {before} e :: CheckIPHeader(MARTIANS true) -> out :: TestOutput");
            let mut bench = Bench::new(&crate::registry(), &config);
            bench.write("e.own", "18.26.4.1 18.26.4.255").unwrap();
            assert_eq!(bench.read("e.own"), "18.26.4.1 18.26.4.255");
            let fate = |bench: &mut Bench, source: [u8; 4], destination: [u8; 4]| {
                let before = bench.drops("e", "martian source");
                bench.push("in", &[&ipv4(source, destination, 17, b"12345678")]);
                (bench.taken("out").len(), bench.drops("e", "martian source") - before)
            };
            let martians = [
                [0, 0, 0, 0],
                [0, 1, 2, 3],
                [127, 0, 0, 1],
                [224, 0, 0, 5],
                [239, 255, 255, 255],
                [240, 0, 0, 1],
                [255, 255, 255, 255],
                [18, 26, 4, 1],
                [18, 26, 4, 255],
            ];
            for source in martians {
                assert_eq!(fate(&mut bench, source, DESTINATION), (0, 1), "{source:?}");
                for group in [[224, 0, 0, 1], [255; 4]] {
                    assert_eq!(fate(&mut bench, source, group), (1, 0), "{source:?} to {group:?}");
                }
            }
            for source in
                [[1, 0, 0, 0], [126, 0, 0, 1], [128, 0, 0, 127], [223, 255, 255, 255], [19, 26, 4, 1]]
            {
                assert_eq!(fate(&mut bench, source, DESTINATION), (1, 0), "{source:?}");
            }
            bench.write("e.own", "").unwrap();
            assert_eq!(fate(&mut bench, [18, 26, 4, 1], DESTINATION), (1, 0));
            assert!(bench.write("e.own", "18.26.4").is_err());
        }
        // Without MARTIANS nobody asks.
        let mut bench = bench("CheckIPHeader");
        bench.push("in0", &[&ipv4([127, 0, 0, 1], DESTINATION, 17, b"12345678")]);
        assert_eq!(bench.taken("out0").len(), 1);
    }

    #[test]
    fn a_good_packet_is_marked_and_cut() {
        let mut bench = bench("CheckIPHeader");
        let good = ipv4(SOURCE, DESTINATION, 17, b"payload");
        let mut padded = good.clone();
        padded.resize(46, 0xaa);
        bench.push("in0", &[&padded]);
        let packets = bench.taken_packets("out0");
        assert_eq!(packets.len(), 1);
        assert_eq!(packets[0].data(), good);
        assert_eq!(packets[0].network_offset(), Some(0));
        assert_eq!(packets[0].transport(), Some(&b"payload"[..]));
        assert_eq!(packets[0].annotations().destination_ip(), u32::from_be_bytes(DESTINATION));
    }

    #[test]
    fn options_and_offset() {
        let mut bench = bench("CheckIPHeader(14)");
        let mut frame = vec![0; 14];
        frame.extend(with_options(SOURCE, DESTINATION, 17, &[1, 1, 1, 0], b"data"));
        bench.push("in0", &[&frame]);
        let packets = bench.taken_packets("out0");
        assert_eq!(packets[0].network_offset(), Some(14));
        assert_eq!(packets[0].transport(), Some(&b"data"[..]));
    }

    /// The headers of RFC 1812, 5.2.2, each with one mistake.
    fn flawed() -> Vec<(Vec<u8>, &'static str)> {
        let good = ipv4(SOURCE, DESTINATION, 17, b"12345678");
        let change = |at: usize, value: u8| {
            let mut packet = good.clone();
            packet[at] = value;
            packet
        };
        let mut short_total = change(3, 19);
        refresh(&mut short_total);
        let mut long_total = change(3, 29);
        refresh(&mut long_total);
        vec![
            (good[..19].to_vec(), "tiny packet"),
            (Vec::new(), "tiny packet"),
            (change(0, 0x65), "bad IP version"),
            (change(0, 0x44), "bad IP header length"),
            (change(0, 0x48), "bad IP length"),
            (short_total, "bad IP length"),
            (long_total, "bad IP length"),
            (change(11, good[11] ^ 1), "bad IP checksum"),
            (change(8, good[8] ^ 0x80), "bad IP checksum"),
        ]
    }

    #[test]
    fn each_flaw_has_its_reason() {
        for (packet, reason) in flawed() {
            let mut bench = Bench::element(&crate::registry(), "CheckIPHeader(DETAILS true)", 1, 1);
            bench.push("in0", &[&packet]);
            assert_eq!(bench.taken("out0").len(), 0, "{reason}");
            assert_eq!(bench.drops("e", reason), 1, "{reason}");
            assert_eq!(bench.read("e.drops"), "1");
            assert!(bench.read("e.drop_details").contains(&format!("1\t{reason}\n")));
            assert_eq!(bench.messages(), [format!("e: IP header check failed: {reason}")]);
        }
    }

    #[test]
    fn flawed_packets_leave_by_output_1() {
        let mut bench = bench("CheckIPHeader");
        let packets: Vec<_> = flawed().into_iter().map(|(packet, _)| packet).collect();
        let slices: Vec<_> = packets.iter().map(Vec::as_slice).collect();
        bench.push("in0", &slices);
        assert_eq!(bench.taken("out1"), packets);
        assert_eq!(bench.read("e.drops"), packets.len().to_string());
        assert_eq!(bench.messages().len(), 1);
    }

    #[test]
    fn bad_sources() {
        let mut bench =
            bench("CheckIPHeader(INTERFACES 18.26.4.9/24 18.32.9.44/28, BADSRC 1.2.3.4, VERBOSE true)");
        for (source, passes) in [
            ([18, 26, 4, 255], false),
            ([18, 32, 9, 47], false),
            ([0, 0, 0, 0], false),
            ([255, 255, 255, 255], false),
            ([1, 2, 3, 4], false),
            ([18, 26, 4, 254], true),
            ([18, 26, 5, 255], true),
            ([0, 0, 0, 1], true),
        ] {
            bench.push("in0", &[&ipv4(source, DESTINATION, 17, b"")]);
            assert_eq!(bench.taken("out0").len(), usize::from(passes), "{source:?}");
            // For the router's own address any source will do.
            bench.push("in0", &[&ipv4(source, [18, 32, 9, 44], 17, b"")]);
            assert_eq!(bench.taken("out0").len(), 1, "{source:?}");
        }
        assert_eq!(bench.messages().len(), 5);
    }

    #[test]
    fn sources_are_free_by_default_and_checked_in_the_old_form() {
        let packet = ipv4([255, 255, 255, 255], DESTINATION, 17, b"");
        let mut free = bench("CheckIPHeader");
        free.push("in0", &[&packet]);
        assert_eq!(free.taken("out0").len(), 1);
        let mut old = bench("CheckIPHeader(18.26.4.255 18.26.7.255, 2)");
        let shifted = [&[0, 0], &packet[..]].concat();
        let listed = [&[0, 0], &ipv4([18, 26, 7, 255], DESTINATION, 17, b"")[..]].concat();
        old.push("in0", &[&shifted, &listed]);
        assert_eq!(old.taken("out1").len(), 2);
    }

    #[test]
    fn the_checksum_can_be_left_out() {
        let mut packet = ipv4(SOURCE, DESTINATION, 17, b"");
        packet[10] ^= 0xff;
        let mut bench = bench("CheckIPHeader(CHECKSUM false)");
        bench.push("in0", &[&packet]);
        assert_eq!(bench.taken("out0").len(), 1);
    }

    #[test]
    fn configuration_mistakes() {
        assert!(configure(&CLASS, "14").is_ok());
        assert!(configure(&CLASS, "1.2.3.4, 14, VERBOSE true").is_ok());
        let errors = configure(&CLASS, "nonsense").unwrap_err();
        assert_eq!(errors, ["expected OFFSET or IP addresses separated by spaces, got 'nonsense'"]);
        assert!(configure(&CLASS, "1.2.3.4, x").is_err());
        assert!(configure(&CLASS, "1.2.3.4, 1, 2").is_err());
        assert!(configure(&CLASS, "INTERFACES 1.2.3.4/40").is_err());
    }

    proptest! {
        /// The one condition of the fast path says what the checks in order say.
        #[test]
        fn fast_equals_in_order(
            bytes in any_packet(), bad in proptest::collection::vec(any::<u32>(), 0..3), listed: bool,
        ) {
            let mut bad = bad;
            if let Some(source) = bytes.get(12..16).filter(|_| listed) {
                bad.push(u32::from_be_bytes(source.try_into().unwrap()));
            }
            let rules = Rules { offset: 0, checksum: true, sources: Sources::new(bad, Vec::new(), false) };
            let expected = match PlainHeader::at(&bytes, 0) {
                None => Err(Flaw::Tiny),
                Some(header) => rules.check_in_order(&bytes, header),
            };
            let mut pool = packet::Pool::new(packet::PoolOptions { frames: 1, data_bytes: 256 }).unwrap();
            let mut packet = pool.allocate().unwrap();
            packet.set_data(&bytes);
            let found = rules.check(&mut packet);
            prop_assert_eq!(found, expected.map(|_| ()));
            if let Ok(header_len) = expected {
                prop_assert_eq!(packet.transport_offset(), Some(header_len as isize));
            }
        }
    }
}
