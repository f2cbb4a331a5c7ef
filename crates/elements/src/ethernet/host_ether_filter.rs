//! =c
//! HostEtherFilter(ETHER [, DROP_OWN, DROP_OTHER, I<keywords> OFFSET])
//!
//! =s ethernet
//! drops Ethernet packets for other hosts
//!
//! =d
//! Filters packets as the hardware of an interface with the address ETHER does. Sets the packet
//! type annotation to HOST, BROADCAST, MULTICAST or OTHERHOST by the Ethernet destination. Drops
//! packets of type OTHERHOST unless DROP_OTHER is false, and packets from ETHER itself if DROP_OWN
//! is true (it is false by default). If output 1 is in use, packets leave by it instead of being
//! dropped. The Ethernet header starts OFFSET bytes into the packet.
//!
//! Handler C<stations> has further addresses, at most 32 of them, separated by blanks: packets to these are of type HOST too. `brickway run` writes those
//! of interfaces above a port, such as VRRP's.
//!
//! Dropped packets are counted as "to another host", "from our own address", and "truncated Ethernet header" if there is
//! no whole header.
//!
//! =e
//!   FromDevice(eth0, PROMISC true) -> HostEtherFilter(00-00-C0-AE-67-EF) -> ...
//!
//! =a Classifier, DropBroadcasts

use graph::runs::Ordinary;
use graph::{Class, Combine, Context, Element, FromArgument, Get, Handler, Put, Verdict};
use packet::wire::ethernet::{HEADER_LEN, MacAddr};
use packet::{Batch, PacketType};

use super::header::TRUNCATED;
use crate::runs::{self, Step};

pub(crate) static CLASS: Class = Class {
    name: "HostEtherFilter",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[
        Handler::read_write(
            "ether",
            Combine::First,
            "The ETHER argument.",
            &Get(|e: &mut HostEtherFilter| e.own.to_string()),
            &Put(|e: &mut HostEtherFilter, _, value| {
                e.own = MacAddr::from_value(value)?;
                Ok(())
            }),
        ),
        Handler::read_write(
            "stations",
            Combine::First,
            "Further addresses, separated by blanks.",
            &Get(|e: &mut HostEtherFilter| {
                e.stations.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            }),
            &Put(|e: &mut HostEtherFilter, _, value| {
                let stations: Vec<MacAddr> =
                    value.split_whitespace().map(MacAddr::from_value).collect::<Result<_, _>>()?;
                if stations.len() > MOST_STATIONS {
                    return Err(format!(
                        "{} addresses are too many; expected {MOST_STATIONS} at most",
                        stations.len()
                    ));
                }
                e.stations = stations;
                Ok(())
            }),
        ),
    ],
    manual: graph::manual!("host_ether_filter.rs"),
    make: |setup| {
        let own: MacAddr = setup.arguments.required("ETHER")?;
        let drop_own = setup.arguments.optional("DROP_OWN")?.unwrap_or(false);
        let drop_other = setup.arguments.optional("DROP_OTHER")?.unwrap_or(true);
        let offset = setup.arguments.keyword_or("OFFSET", 0)?;
        setup.arguments.finish()?;
        Ok(Box::new(HostEtherFilter { own, stations: Vec::new(), drop_own, drop_other, offset }))
    },
    ..Class::DEFAULT
};

struct HostEtherFilter {
    own: MacAddr,
    /// Looked at where a packet is neither to the own address nor to a group.
    stations: Vec<MacAddr>,
    drop_own: bool,
    drop_other: bool,
    offset: usize,
}

/// Addresses beside the own one.
const MOST_STATIONS: usize = 32;

/// The first six bytes of a little-endian word.
const SIX_BYTES: u64 = (1 << 48) - 1;
/// The group bit of an address in such a word: the lowest bit of its first byte.
const GROUP: u64 = 1;

/// An address as the first six bytes of a little-endian word.
fn word(address: MacAddr) -> u64 {
    let [a, b, c, d, e, f] = address.0;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

impl Element for HostEtherFilter {
    /// An ordinary packet is addressed to us.
    fn ordinary(&self) -> Option<Ordinary> {
        if self.drop_own {
            return None;
        }
        let [a, b, c, d, e, f] = self.own.0;
        let offset = self.offset;
        runs::ordinary([
            Step::AtLeast(offset + HEADER_LEN),
            Step::Match { offset, mask: u32::MAX, value: u32::from_be_bytes([a, b, c, d]) },
            Step::Match { offset: offset + 4, mask: 0xffff_0000, value: u32::from_be_bytes([e, f, 0, 0]) },
            Step::SetType(PacketType::Host),
        ])
    }

    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let own = word(self.own);
        let &mut Self { drop_own, drop_other, offset, ref stations, .. } = self;
        cx.filter(batch, |packet| {
            let header = packet.data().get(offset..).and_then(|data| data.first_chunk::<HEADER_LEN>());
            let Some(&[a, b, c, d, e, f, g, h, i, j, k, l, m, n]) = header else {
                return Verdict::Drop(TRUNCATED);
            };
            // Eight bytes in one load: the address and the first two of the source, which the mask takes off.
            let destination = u64::from_le_bytes([a, b, c, d, e, f, g, h]) & SIX_BYTES;
            let source = u64::from_le_bytes([g, h, i, j, k, l, m, n]) & SIX_BYTES;
            if drop_own && source == own {
                return Verdict::Divert(1, "from our own address");
            }
            if destination == own {
                packet.set_packet_type(PacketType::Host);
            } else if destination == SIX_BYTES {
                packet.set_packet_type(PacketType::Broadcast);
            } else if destination & GROUP != 0 {
                packet.set_packet_type(PacketType::Multicast);
            } else if stations.iter().any(|&station| word(station) == destination) {
                packet.set_packet_type(PacketType::Host);
            } else {
                packet.set_packet_type(PacketType::OtherHost);
                if drop_other {
                    return Verdict::Divert(1, "to another host");
                }
            }
            Verdict::Keep
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::Bench;
    use proptest::prelude::*;

    const OWN: [u8; 6] = [2, 3, 4, 5, 6, 7];
    const OTHER: [u8; 6] = [2, 3, 4, 5, 6, 8];
    const GROUP_ADDRESS: [u8; 6] = [3, 3, 4, 5, 6, 7];

    fn frame(destination: [u8; 6], source: [u8; 6]) -> Vec<u8> {
        [&destination[..], &source, &[8, 0]].concat()
    }

    fn types(bench: &mut Bench, output: &str) -> Vec<PacketType> {
        bench.taken_packets(output).iter().map(|packet| packet.packet_type()).collect()
    }

    #[test]
    fn types_and_drops() {
        let frames = [OWN, [0xff; 6], GROUP_ADDRESS, OTHER].map(|to| frame(to, OTHER));
        let frames: Vec<&[u8]> = frames.iter().map(|frame| &frame[..]).collect();
        let mut bench = Bench::element(&crate::registry(), "HostEtherFilter(2:3:4:5:6:7)", 1, 1);
        bench.push("in0", &frames);
        let kept = [PacketType::Host, PacketType::Broadcast, PacketType::Multicast];
        assert_eq!(types(&mut bench, "out0"), kept);
        assert_eq!(bench.drops("e", "to another host"), 1);
        bench.push("in0", &[&frames[0][..13], b""]);
        assert_eq!(bench.drops("e", TRUNCATED), 2);

        let text = "HostEtherFilter(2:3:4:5:6:7, true, false, OFFSET 2)";
        let mut bench = Bench::element(&crate::registry(), text, 1, 2);
        let shifted = |to, from| [&[0xff, 0xff][..], &frame(to, from)].concat();
        bench.push("in0", &[&shifted(OTHER, OTHER), &shifted(OWN, OTHER), &shifted(OTHER, OWN)]);
        assert_eq!(types(&mut bench, "out0"), [PacketType::OtherHost, PacketType::Host]);
        assert_eq!(bench.taken("out1").len(), 1);
        bench.write("e.ether", "2:3:4:5:6:8").unwrap();
        assert_eq!(bench.read("e.ether"), "02-03-04-05-06-08");
        bench.push("in0", &[&shifted(OTHER, OWN)]);
        assert_eq!(types(&mut bench, "out0"), [PacketType::Host]);

        let mut bench = Bench::element(&crate::registry(), "HostEtherFilter(2:3:4:5:6:7)", 1, 2);
        let sent = |bench: &mut Bench| {
            bench.push("in0", &[&frame(OTHER, OWN), &frame(OWN, OTHER), &frame([2, 3, 4, 5, 6, 9], OWN)]);
            (types(bench, "out0").len(), bench.taken("out1").len())
        };
        assert_eq!(sent(&mut bench), (1, 2));
        bench.write("e.stations", "2:3:4:5:6:8 0:0:5e:0:1:7").unwrap();
        assert_eq!(bench.read("e.stations"), "02-03-04-05-06-08 00-00-5E-00-01-07");
        assert_eq!(sent(&mut bench), (2, 1));
        bench.write("e.stations", "").unwrap();
        assert_eq!(sent(&mut bench), (1, 2));
        assert!(bench.write("e.stations", &"2:3:4:5:6:8 ".repeat(33)).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Against the plain comparison of addresses; near misses differ from ours in one bit.
        #[test]
        fn agrees_with_plain_comparison(bits in proptest::collection::vec((0usize..49, 0usize..49, 0usize..16), 1..30)) {
            let flipped = |bit: usize| {
                let mut address = OWN;
                if bit < 48 {
                    address[bit / 8] ^= 1 << (bit % 8);
                }
                address
            };
            let mut bench = Bench::element(&crate::registry(), "HostEtherFilter(2:3:4:5:6:7, true)", 1, 2);
            for (to, from, length) in bits {
                let frame = frame(flipped(to), flipped(from));
                bench.push("in0", &[&frame[..length.min(14)]]);
                let (kept, sent_off) = (bench.taken("out0").len(), bench.taken("out1").len());
                let keep = flipped(from) != OWN && (flipped(to) == OWN || flipped(to)[0] & 1 != 0);
                let expected = if length < 14 { (0, 0) } else if keep { (1, 0) } else { (0, 1) };
                prop_assert_eq!((kept, sent_off), expected);
            }
        }
    }
}
