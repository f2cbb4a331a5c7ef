//! =c
//! IPGWOptions(MYADDR [, OTHERADDRS, I<keywords> SOURCE_ROUTE])
//!
//! =s ip
//! processes the IP options that concern routers
//!
//! =d
//! Processes Record Route and Internet Timestamp (RFC 791, 3.1) in packets whose IP header is marked, and
//! updates the checksum. MYADDR is the address of the interface that the packets leave by, so the element
//! belongs into the output path. OTHERADDRS are the router's other addresses, separated by spaces; a timestamp
//! option that names its routers is filled in where it names one of them.
//!
//! A packet with malformed options leaves by output 1 if that is connected and is dropped otherwise. Its parameter
//! problem annotation then points at the wrong byte of the header: connect ICMPError(ADDR, parameterproblem).
//!
//! Source routes are left alone, as in Click. With `SOURCE_ROUTE drop` a packet that has one is
//! dropped as "source route", as Linux does by default (RFC 7126, 4.3 and 4.4). With
//! `SOURCE_ROUTE true`, a packet to MYADDR or one of OTHERADDRS that has a source route goes on to
//! the next address of the route. Its destination field and destination annotation are set, and
//! MYADDR is recorded.
//!
//! Different from Click: RFC 791 decides about full options. A timestamp option with some room, but
//! not enough, is an error. A full one that names its routers is not.
//!
//! Drop reasons: bad IP option, source route, no IP header.
//!
//! =a ICMPError

use std::net::Ipv4Addr;
use std::ops::Range;

use graph::runs::Ordinary;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup, Verdict};
use packet::wire::ipv4::field::{CHECKSUM, DESTINATION};
use packet::wire::ipv4::{Ipv4, MIN_HEADER_LEN};
use packet::wire::ipv4_option::field::{LENGTH, OVERFLOW_FLAGS, POINTER};
use packet::wire::ipv4_option::{Ipv4Option, kind as option_kind};
use packet::{Batch, Packet, checksum};

use super::addresses::AddressList;
use super::rejects::list_text;
use crate::runs::{self, Step};

pub(crate) static CLASS: Class = Class {
    name: "IPGWOptions",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[
        Handler::read(
            "drops",
            Combine::Sum,
            "Packets with malformed options so far.",
            &Get(|e: &mut IPGWOptions| e.drops().to_string()),
        ),
        Handler::read_write(
            "addresses",
            Combine::First,
            "MYADDR and OTHERADDRS, separated by spaces.",
            &Get(|e: &mut IPGWOptions| e.addresses_text()),
            &Put(|e: &mut IPGWOptions, _, value| e.set_addresses(value)),
        ),
    ],
    manual: graph::manual!("ip_gw_options.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let own = setup.arguments.required::<Ipv4Addr>("MYADDR")?.to_bits();
    let others = setup.arguments.optional::<AddressList>("OTHERADDRS")?.unwrap_or_default().0;
    let source_route = setup.arguments.keyword_or("SOURCE_ROUTE", SourceRoute::Leave)?;
    setup.arguments.finish()?;
    let addresses = [vec![own], others].concat();
    Ok(Box::new(IPGWOptions { router: Router { own, addresses, source_route }, drops: 0 }))
}

/// What is done with source routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceRoute {
    Leave,
    Follow,
    Drop,
}

impl FromArgument for SourceRoute {
    const EXPECTED: &'static str = "true, false or drop";
    fn from_argument(text: &str) -> Option<Self> {
        if text == "drop" {
            return Some(Self::Drop);
        }
        bool::from_argument(text).map(|follows| if follows { Self::Follow } else { Self::Leave })
    }
}

/// What the router says of itself in options.
struct Router {
    own: u32,
    /// With `own` at first.
    addresses: Vec<u32>,
    source_route: SourceRoute,
}

/// What was done to a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Changes {
    any: bool,
    destination: Option<u32>,
    /// There is a source route, and packets that have one are dropped.
    is_refused: bool,
}

/// Where the octet stands that makes an option malformed, counted within the option.
type BadOctet = usize;

impl Router {
    /// Processes all options of `header`; `time` is that of RFC 791, milliseconds since midnight UT. An error
    /// is the place of the malformed octet in the header.
    fn process(&self, header: &mut [u8], time: u32) -> Result<Changes, BadOctet> {
        let mut changes = Changes::default();
        let mut at = MIN_HEADER_LEN;
        while let Some(option) = Ipv4Option::next(header, at) {
            let Ipv4Option { kind, place: Range { start, end } } = option?;
            at = end;
            let destination = Ipv4::new_unchecked(&*header).destination().to_bits();
            let option = &mut header[start..end];
            let changed = match kind {
                option_kind::RECORD_ROUTE => self.record_route(option),
                option_kind::TIMESTAMP => self.timestamp(option, time),
                option_kind::LOOSE_SOURCE_ROUTE | option_kind::STRICT_SOURCE_ROUTE
                    if self.source_route == SourceRoute::Drop =>
                {
                    changes.is_refused = true;
                    Ok(false)
                }
                option_kind::LOOSE_SOURCE_ROUTE | option_kind::STRICT_SOURCE_ROUTE
                    if self.source_route == SourceRoute::Follow && self.is_own(destination) =>
                {
                    match self.follow_route(option).map_err(|bad| start + bad)? {
                        Some(next) => {
                            header[DESTINATION].copy_from_slice(&next.to_be_bytes());
                            changes.destination = Some(next);
                            Ok(true)
                        }
                        None => Ok(false),
                    }
                }
                _ => Ok(false),
            };
            changes.any |= changed.map_err(|bad| start + bad)?;
        }
        if changes.any {
            let check = checksum::ipv4_header_compute(header);
            header[CHECKSUM].copy_from_slice(&check.to_be_bytes());
        }
        Ok(changes)
    }

    fn is_own(&self, address: u32) -> bool {
        self.addresses.contains(&address)
    }

    /// The octets behind the pointer's place, if any are left: RFC 791 counts the pointer from 1, and "if the
    /// route data area is already full (the pointer exceeds the length)" nothing is written.
    fn room(option: &mut [u8], smallest: usize) -> Result<Option<&mut [u8]>, BadOctet> {
        let pointer = usize::from(*option.get(POINTER).ok_or(LENGTH)?);
        if pointer < smallest {
            return Err(POINTER);
        }
        Ok(option.get_mut(pointer - 1..).filter(|room| !room.is_empty()))
    }

    /// RFC 791: "the router inserts its own internet address as known in the environment into which this
    /// datagram is being forwarded"; RFC 1812, 4.2.2.2: that of the interface it leaves by.
    fn record_route(&self, option: &mut [u8]) -> Result<bool, BadOctet> {
        // "The smallest legal value for the pointer is 4."
        let Some(room) = Self::room(option, 4)? else { return Ok(false) };
        // "If there is some room but not enough room for a full address to be inserted, the original datagram
        // is considered to be in error".
        *room.first_chunk_mut::<4>().ok_or(POINTER)? = self.own.to_be_bytes();
        option[POINTER] += 4;
        Ok(true)
    }

    /// Takes the next address out of a source route and leaves ours in its place. `None` at the route's end.
    fn follow_route(&self, option: &mut [u8]) -> Result<Option<u32>, BadOctet> {
        let Some(room) = Self::room(option, 4)? else { return Ok(None) };
        let slot = room.first_chunk_mut::<4>().ok_or(POINTER)?;
        let next = u32::from_be_bytes(*slot);
        *slot = self.own.to_be_bytes();
        option[POINTER] += 4;
        Ok(Some(next))
    }

    fn timestamp(&self, option: &mut [u8], time: u32) -> Result<bool, BadOctet> {
        let overflow_flag = *option.get(OVERFLOW_FLAGS).ok_or(LENGTH)?;
        // "The smallest legal value is 5."
        let room = Self::room(option, 5)?;
        let advance = match (overflow_flag & 0x0f, room) {
            // Times only.
            (0, Some(room)) => {
                *room.first_chunk_mut::<4>().ok_or(POINTER)? = time.to_be_bytes();
                4
            }
            // Address and time.
            (1, Some(room)) => {
                let slot = room.first_chunk_mut::<8>().ok_or(POINTER)?;
                slot[..4].copy_from_slice(&self.own.to_be_bytes());
                slot[4..].copy_from_slice(&time.to_be_bytes());
                8
            }
            // "An IP module only registers its timestamp if it matches its own address with the next
            // specified internet address."
            (3, Some(room)) => {
                let slot = room.first_chunk_mut::<8>().ok_or(POINTER)?;
                if !self.is_own(u32::from_be_bytes([slot[0], slot[1], slot[2], slot[3]])) {
                    return Ok(false);
                }
                slot[4..].copy_from_slice(&time.to_be_bytes());
                8
            }
            (3, None) => return Ok(false),
            // "If the timestamp data area is already full [...] the overflow count is incremented by one." It
            // has 4 bits; "if [...] the overflow count itself overflows, the original datagram is considered
            // to be in error".
            (0 | 1, None) => {
                option[OVERFLOW_FLAGS] = overflow_flag.checked_add(0x10).ok_or(OVERFLOW_FLAGS)?;
                return Ok(true);
            }
            _ => return Err(OVERFLOW_FLAGS),
        };
        option[POINTER] += advance;
        Ok(true)
    }
}

/// The element `IPGWOptions`, for elements that hold one.
pub struct IPGWOptions {
    router: Router,
    drops: u64,
}

/// Length in words of a header without options.
const PLAIN_WORDS: u8 = 5;

#[inline(always)]
/// Returns whether the packet has no IPv4 options.
pub fn is_plain(packet: &Packet) -> bool {
    matches!(packet.network(), Some([first, ..]) if first & 0x0f == PLAIN_WORDS)
}

impl IPGWOptions {
    /// For a router with a single address.
    pub fn new(address: Ipv4Addr) -> Self {
        let own = address.to_bits();
        let source_route = SourceRoute::Leave;
        Self { router: Router { own, addresses: vec![own], source_route }, drops: 0 }
    }

    /// Packets with malformed options so far: the handler `drops`.
    pub fn drops(&self) -> u64 {
        self.drops
    }

    /// The handler `addresses`.
    pub fn addresses_text(&self) -> String {
        list_text(self.router.addresses.iter().copied().map(Ipv4Addr::from_bits))
    }

    /// Writes the handler `addresses`.
    pub fn set_addresses(&mut self, value: &str) -> Result<(), String> {
        let AddressList(addresses) = AddressList::from_value(value)?;
        self.router.own = *addresses.first().ok_or("expected at least one IP address")?;
        self.router.addresses = addresses;
        Ok(())
    }

    /// Processes the options of a packet that may have some.
    #[cold]
    #[inline(never)]
    pub fn process_packet(&mut self, packet: &mut Packet, now_ns: u64) -> Verdict {
        let time = (now_ns / 1_000_000 % 86_400_000) as u32;
        let Some(bytes) = packet.network_mut() else { return Verdict::Drop("no IP header") };
        let Ok(header_len) = Ipv4::new_checked(&*bytes).map(|view| view.header_len()) else {
            return Verdict::Drop("no IP header");
        };
        match self.router.process(&mut bytes[..header_len], time) {
            Ok(Changes { is_refused: true, .. }) => Verdict::Drop("source route"),
            Ok(changes) => {
                if let Some(next) = changes.destination {
                    packet.annotations_mut().set_destination_ip(next);
                }
                Verdict::Keep
            }
            Err(offset) => {
                self.drops += packet.pieces();
                // A header has at most 60 octets.
                packet.annotations_mut().set_parameter_problem(offset as u16);
                Verdict::Divert(1, "bad IP option")
            }
        }
    }
}

impl Element for IPGWOptions {
    fn ordinary(&self) -> Option<Ordinary> {
        runs::ordinary([Step::NoOptions])
    }

    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        // One byte of a packet tells that there is nothing to do.
        if batch.packets().iter().all(is_plain) {
            return;
        }
        let now_ns = cx.now_ns();
        cx.filter(
            batch,
            |packet| {
                if is_plain(packet) { Verdict::Keep } else { self.process_packet(packet, now_ns) }
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};

    use super::*;
    use testbed::ipv4::with_options;

    const OWN: [u8; 4] = [10, 0, 0, 1];

    fn router(source_route: SourceRoute) -> Router {
        let addresses = vec![u32::from_be_bytes(OWN), u32::from_be_bytes([192, 168, 7, 1])];
        Router { own: u32::from_be_bytes(OWN), addresses, source_route }
    }

    /// Runs `options` through; what they are afterwards. The checksum must be right.
    fn processed(options: &[u8]) -> Result<Vec<u8>, BadOctet> {
        let mut header = with_options([1, 2, 3, 4], [5, 6, 7, 8], 17, options, b"");
        router(SourceRoute::Leave).process(&mut header, 0x0102_0304)?;
        assert!(checksum::ipv4_header_valid(&header));
        Ok(header.split_off(20))
    }

    #[test]
    fn record_route() {
        assert_eq!(
            processed(&[7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap(),
            [7, 11, 8, 10, 0, 0, 1, 0, 0, 0, 0, 0]
        );
        // No-operations before it; then the last slot.
        assert_eq!(processed(&[1, 7, 7, 4, 9, 9, 9, 9]).unwrap(), [1, 7, 7, 8, 10, 0, 0, 1]);
        // Full: forwarded as it is.
        assert_eq!(processed(&[7, 7, 8, 9, 9, 9, 9, 0]).unwrap(), [7, 7, 8, 9, 9, 9, 9, 0]);
        // Some room, but not enough; a pointer below 4; no pointer at all.
        assert_eq!(processed(&[7, 7, 6, 9, 9, 9, 9, 0]), Err(22));
        assert_eq!(processed(&[7, 7, 3, 9, 9, 9, 9, 0]), Err(22));
        assert_eq!(processed(&[7, 2, 0, 0]), Err(21));
    }

    #[test]
    fn timestamps() {
        assert_eq!(processed(&[68, 8, 5, 0, 0, 0, 0, 0]).unwrap(), [68, 8, 9, 0, 1, 2, 3, 4]);
        assert_eq!(
            processed(&[68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap(),
            [68, 12, 13, 1, 10, 0, 0, 1, 1, 2, 3, 4]
        );
        // Ours among the named ones, and not ours.
        assert_eq!(
            processed(&[68, 12, 5, 3, 192, 168, 7, 1, 0, 0, 0, 0]).unwrap(),
            [68, 12, 13, 3, 192, 168, 7, 1, 1, 2, 3, 4]
        );
        let other = [68, 12, 5, 3, 192, 168, 7, 2, 0, 0, 0, 0];
        assert_eq!(processed(&other).unwrap(), other);
        // Full: the overflow count grows until it cannot.
        assert_eq!(processed(&[68, 4, 5, 0x00]).unwrap(), [68, 4, 5, 0x10]);
        assert_eq!(processed(&[68, 4, 5, 0xe1]).unwrap(), [68, 4, 5, 0xf1]);
        assert_eq!(processed(&[68, 4, 5, 0xf0]), Err(23));
        assert_eq!(processed(&[68, 4, 5, 0x03]).unwrap(), [68, 4, 5, 0x03]);
        // An unknown flag, a pointer below 5, too little room.
        assert_eq!(processed(&[68, 8, 5, 2, 0, 0, 0, 0]), Err(23));
        assert_eq!(processed(&[68, 8, 4, 0, 0, 0, 0, 0]), Err(22));
        assert_eq!(processed(&[68, 8, 5, 1, 0, 0, 0, 0]), Err(22));
    }

    #[test]
    fn lengths() {
        assert_eq!(processed(&[0x94, 1, 0, 0]), Err(21));
        assert_eq!(processed(&[0x94, 5, 0, 0]), Err(21));
        assert_eq!(processed(&[1, 1, 1, 0x94]), Err(24));
        // Behind the end of the list nothing counts.
        assert_eq!(processed(&[0, 7, 1, 1]).unwrap(), [0, 7, 1, 1]);
    }

    #[test]
    fn source_routes_only_when_asked() {
        let options = [131, 11, 4, 9, 9, 9, 9, 8, 8, 8, 8, 0];
        let mut header = with_options([1, 2, 3, 4], [192, 168, 7, 1], 17, &options, b"");
        let before = header.clone();
        assert_eq!(router(SourceRoute::Leave).process(&mut header, 0), Ok(Changes::default()));
        assert_eq!(header, before);
        let changes = router(SourceRoute::Follow).process(&mut header, 0).unwrap();
        assert_eq!(changes.destination, Some(0x0909_0909));
        assert_eq!(header[16..20], [9, 9, 9, 9]);
        assert_eq!(header[20..], [131, 11, 8, 10, 0, 0, 1, 8, 8, 8, 8, 0]);
        assert!(checksum::ipv4_header_valid(&header));
        // Now it is not addressed to us.
        assert_eq!(router(SourceRoute::Follow).process(&mut header, 0), Ok(Changes::default()));
        assert!(router(SourceRoute::Drop).process(&mut header, 0).unwrap().is_refused);
    }

    #[test]
    fn errors_carry_the_pointer() {
        let config = "in :: TestInput -> MarkIPHeader -> e :: IPGWOptions(10.0.0.1, 10.0.1.1 10.0.2.1)
                -> out :: TestOutput; e[1] -> bad :: TestOutput;";
        let mut bench = Bench::new(&crate::registry(), config);
        let plain = with_options([1, 2, 3, 4], [5, 6, 7, 8], 17, &[], b"data");
        let good = with_options([1, 2, 3, 4], [5, 6, 7, 8], 17, &[7, 7, 4, 0, 0, 0, 0, 0], b"data");
        let wrong = with_options([1, 2, 3, 4], [5, 6, 7, 8], 17, &[1, 7, 7, 5, 0, 0, 0, 0], b"data");
        bench.push("in", &[&plain, &wrong, &good]);
        let out = bench.taken("out");
        assert_eq!(out[0], plain);
        assert_eq!(out[1][20..28], [7, 7, 8, 10, 0, 0, 1, 0]);
        let bad = bench.taken_packets("bad");
        assert_eq!(bad[0].data(), wrong);
        assert_eq!(bad[0].annotations().parameter_problem(), 23);
        assert_eq!(bench.read("e.drops"), "1");
    }

    #[test]
    fn addresses_change_and_source_routes_are_dropped_when_asked() {
        let config = "in :: TestInput -> MarkIPHeader -> e :: IPGWOptions(10.0.0.1, SOURCE_ROUTE drop) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        let record = with_options([1, 2, 3, 4], [5, 6, 7, 8], 17, &[7, 7, 4, 0, 0, 0, 0, 0], b"data");
        let route = with_options([1, 2, 3, 4], [5, 6, 7, 8], 17, &[131, 7, 4, 9, 9, 9, 9, 0], b"data");
        assert_eq!(bench.read("e.addresses"), "10.0.0.1");
        bench.write("e.addresses", "10.0.0.9 10.0.0.1").unwrap();
        bench.push("in", &[&record, &route]);
        assert_eq!(bench.taken("out")[0][20..28], [7, 7, 8, 10, 0, 0, 9, 0]);
        assert_eq!(
            (bench.drops("e", "source route"), bench.read("e.addresses").as_str()),
            (1, "10.0.0.9 10.0.0.1")
        );
        assert!(bench.write("e.addresses", "").is_err());
    }

    #[test]
    fn configuration_mistakes() {
        assert!(configure(&CLASS, "").is_err());
        assert!(configure(&CLASS, "10.0.0.1, 10.0.0").is_err());
        assert!(configure(&CLASS, "10.0.0.1, OTHERADDRS 10.0.1.1").is_ok());
    }
}
