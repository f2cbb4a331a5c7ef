//! =c
//! DecIPTTL([I<keywords> ACTIVE, MULTICAST])
//!
//! =s ip
//! takes one off the time to live
//!
//! =d
//! Expects packets with the IP header marked. A packet whose time to live is 0 or 1 leaves by
//! output 1 if that is connected (usually to an ICMPError). Otherwise it is dropped. The time to
//! live of all other packets is decremented by one and their checksum updated. They leave by output
//! 0.
//!
//! Keyword arguments are:
//!
//! =item ACTIVE
//! whether the element does anything; true by default.
//!
//! =item MULTICAST
//! whether packets to multicast destinations are handled like others; true by default.
//!
//! =back
//!
//! Drop reasons: time to live expired, no IP header.
//!
//! =e
//!   ... -> CheckIPHeader -> dt :: DecIPTTL -> ...
//!   dt[1] -> ICMPError(18.26.4.24, timeexceeded) -> ...
//!
//! =a ICMPError, CheckIPHeader

use std::cell::Cell;

use graph::runs::Ordinary;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup};
use packet::wire::ipv4::field;
use packet::{Batch, Packet, checksum};

use crate::runs::{self, Step};

pub(crate) static CLASS: Class = Class {
    name: "DecIPTTL",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[
        Handler::read(
            "drops",
            Combine::Sum,
            "Packets that expired so far.",
            &Get(|e: &mut DecIPTTL| e.expired.to_string()),
        ),
        Handler::read_write(
            "active",
            Combine::First,
            "The ACTIVE argument.",
            &Get(|e: &mut DecIPTTL| e.active.to_string()),
            &Put(|e: &mut DecIPTTL, _, value| {
                e.active = bool::from_argument(value.trim())
                    .ok_or_else(|| format!("active: expected {}, got '{value}'", bool::EXPECTED))?;
                Ok(())
            }),
        ),
    ],
    manual: graph::manual!("dec_ip_ttl.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let active = setup.arguments.keyword_or("ACTIVE", true)?;
    let multicast = setup.arguments.keyword_or("MULTICAST", true)?;
    setup.arguments.finish()?;
    Ok(Box::new(DecIPTTL { active, multicast, expired: 0 }))
}

struct DecIPTTL {
    active: bool,
    multicast: bool,
    expired: u64,
}

/// Why a packet does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The TTL ends here.
    Expired,
    /// The packet has no IP header.
    NoHeader,
}

/// Takes one hop off.
#[inline(always)]
pub fn decrement(packet: &mut Packet) -> Result<(), Flaw> {
    let Some(header) =
        packet.network_mut().and_then(|bytes| bytes.first_chunk_mut::<{ field::CHECKSUM.end }>())
    else {
        return Err(Flaw::NoHeader);
    };
    // RFC 1812, 5.3.1: "If the TTL is reduced to zero (or less), the packet MUST be discarded".
    if header[field::TTL] <= 1 {
        return Err(Flaw::Expired);
    }
    checksum::decrement_ttl(header);
    Ok(())
}

fn is_multicast(packet: &Packet) -> bool {
    let first = packet.network().and_then(|header| header.get(field::DESTINATION.start));
    first.is_some_and(|octet| octet >> 4 == 0xe)
}

impl Element for DecIPTTL {
    fn ordinary(&self) -> Option<Ordinary> {
        match (self.active, self.multicast) {
            (false, _) => runs::ordinary([]),
            (true, true) => runs::ordinary([Step::DecrementTtl]),
            (true, false) => None,
        }
    }

    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        if !self.active {
            return;
        }
        let Self { multicast, expired, .. } = self;
        let flaw = Cell::new(Flaw::Expired);
        batch.extract(
            |packet| {
                if !*multicast && is_multicast(packet) {
                    return true;
                }
                match decrement(packet) {
                    Ok(()) => true,
                    Err(found) => {
                        flaw.set(found);
                        false
                    }
                }
            },
            |packet| match flaw.get() {
                Flaw::Expired => {
                    *expired += packet.pieces();
                    cx.divert(1, packet, "time to live expired");
                }
                Flaw::NoHeader => cx.drop(packet, "no IP header"),
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use packet::checksum;
    use proptest::prelude::*;

    use super::*;
    use testbed::ipv4::{ipv4, refresh};

    fn bench(arguments: &str) -> Bench {
        let config = format!(
            "in :: TestInput -> MarkIPHeader -> e :: DecIPTTL({arguments}) -> out :: TestOutput;
             e[1] -> expired :: TestOutput;"
        );
        Bench::new(&crate::registry(), &config)
    }

    fn with_ttl(ttl: u8, destination: [u8; 4]) -> Vec<u8> {
        let mut packet = ipv4([1, 2, 3, 4], destination, 17, b"x");
        packet[8] = ttl;
        refresh(&mut packet);
        packet
    }

    #[test]
    fn counts_down_and_expires() {
        let mut bench = bench("");
        let packets: Vec<_> = [0, 1, 2, 64, 255].map(|ttl| with_ttl(ttl, [5, 6, 7, 8])).into();
        bench.push("in", &packets.iter().map(Vec::as_slice).collect::<Vec<_>>());
        assert_eq!(bench.taken("expired"), packets[..2]);
        let expected: Vec<_> = [1, 63, 254].map(|ttl| with_ttl(ttl, [5, 6, 7, 8])).into();
        assert_eq!(bench.taken("out"), expected);
        assert_eq!(bench.read("e.drops"), "2");
        bench.push("in", &[b"short"]);
        assert_eq!(bench.drops("e", "no IP header"), 1);
        assert_eq!(bench.read("e.drops"), "2");
    }

    #[test]
    fn multicast_can_be_left_alone() {
        let packet = with_ttl(1, [224, 0, 0, 5]);
        let mut left = bench("MULTICAST false");
        left.push("in", &[&packet, &with_ttl(1, [223, 0, 0, 5])]);
        assert_eq!(left.taken("out"), [&packet[..]]);
        assert_eq!(left.taken("expired").len(), 1);
        let mut treated = bench("");
        treated.push("in", &[&packet]);
        assert_eq!(treated.taken("expired"), [packet]);
    }

    #[test]
    fn it_can_be_switched_off() {
        let mut bench = bench("ACTIVE false");
        let packet = with_ttl(1, [5, 6, 7, 8]);
        bench.push("in", &[&packet]);
        assert_eq!(bench.taken("out"), [&packet[..]]);
        assert!(bench.write("e.active", "maybe").is_err());
        bench.write("e.active", "true").unwrap();
        bench.push("in", &[&packet]);
        assert_eq!(bench.taken("out").len(), 0);
    }

    proptest! {
        /// The update is what a recomputation gives, also where the sum crosses one of the two zeros: the
        /// identification is chosen so that the checksum is `corner` before the update.
        #[test]
        fn update_equals_recomputation(
            header in any::<[u8; 20]>(),
            ttl in 2u8..,
            corner in prop_oneof![Just(None), (0xfef0u16..=0xff0f).prop_map(Some), Just(Some(0)), Just(Some(1)),
                                  Just(Some(0xfffe))],
        ) {
            let mut header = header;
            header[0] = 0x45;
            header[8] = ttl;
            if let Some(corner) = corner {
                header[4..6].fill(0);
                let rest = !checksum::ipv4_header_compute(&header);
                header[4..6].copy_from_slice(&checksum::combine(!corner, !rest).to_be_bytes());
            }
            refresh(&mut header);
            if let Some(corner) = corner {
                prop_assert_eq!(u16::from_be_bytes([header[10], header[11]]), corner);
            }
            let mut pool = packet::Pool::new(packet::PoolOptions { frames: 1, data_bytes: 64 }).unwrap();
            let mut packet = pool.allocate().unwrap();
            packet.set_data(&header);
            packet.set_network_header(0);
            prop_assert_eq!(decrement(&mut packet), Ok(()));
            header[8] -= 1;
            refresh(&mut header);
            prop_assert_eq!(packet.data(), &header[..]);
        }
    }
}
