//! Which flow a frame belongs to, as a number: what receive-side scaling of cards does, in software.
//!
//! The hash is symmetric: both directions of a flow have the same. Fragments are distinguished by their
//! addresses alone, as cards do it, because only the first has ports: all fragments of a packet then go the
//! same way. IPv6 extension headers are looked behind.
//!
//! **The hash has a key** ([`FlowKey`]), which every process draws for itself. So two routers in a row
//! choose independently, and a sender who does not know the key cannot pick flows that all go one way. What
//! is hashed enters a product of 64 by 64 bits with a secret word in each factor, whose halves are folded
//! (as in wyhash and the fallback of ahash): a multiplication with secrets on one side only, or a sum with
//! them, has collisions that hold for every key. This is not a cryptographic function. An observer of which
//! way each of many flows went can tell two groups of them apart, and could so before.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::str::FromStr;
use std::sync::LazyLock;

use crate::random::SplitMix64;
use crate::wire::IpProtocol;
use crate::wire::ipv6::{HEADER_LEN, Ipv6};
use crate::wire::ipv6_extension::UpperLayer;

/// What of a packet makes its flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowFields {
    /// Both addresses, the protocol and, of TCP, UDP and SCTP, both ports.
    #[default]
    Flow,
    /// Both addresses.
    Addresses,
    /// The source address.
    Source,
    /// The destination address.
    Destination,
}

impl FlowFields {
    const NAMES: [(&'static str, Self); 4] = [
        ("flow", Self::Flow),
        ("addresses", Self::Addresses),
        ("source", Self::Source),
        ("destination", Self::Destination),
    ];
}

impl fmt::Display for FlowFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(_, fields)| fields == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for FlowFields {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, fields)| *fields).ok_or_else(|| {
            format!("'{text}' is not what a hash can be of: flow, addresses, source or destination")
        })
    }
}

/// The secret of a [`FlowHash`]: another key, another distribution.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FlowKey([u64; 2]);

impl FlowKey {
    /// Returns this process's key, which the first call draws from the operating system's random numbers.
    pub fn of_process() -> Self {
        static KEY: LazyLock<FlowKey> = LazyLock::new(|| {
            // The standard library keys its hash maps by them.
            let word = || RandomState::new().build_hasher().finish();
            FlowKey([word(), word()])
        });
        *KEY
    }

    /// Makes a key of random bytes, for a hash that several routers have in common.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        let both = u128::from_be_bytes(bytes);
        Self([(both >> 64) as u64, both as u64])
    }

    /// Makes a key of a number, for tests and benches.
    pub const fn from_seed(seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        Self([random.next_u64(), random.next_u64()])
    }

    /// Returns the secret itself, for who computes the same hash elsewhere.
    pub const fn words(self) -> [u64; 2] {
        self.0
    }

    /// Multiplies two words, each with a secret of its own, and folds the halves of the product.
    #[inline(always)]
    pub fn product(self, a: u64, b: u64) -> u64 {
        let Self([first, second]) = self;
        folded(a ^ first, b ^ second)
    }

    /// Folds the product of two words once more, to 32 bits that are all equally good.
    #[inline(always)]
    pub(crate) fn folded_product(self, a: u64, b: u64) -> u32 {
        let Self([first, _]) = self;
        folded(self.product(a, b) ^ first.rotate_left(32), 0xe703_7ed1_a0b4_28db) as u32
    }
}

impl fmt::Debug for FlowKey {
    /// Prints no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlowKey(..)")
    }
}

/// The product of 64 by 64 bits, its halves folded.
#[inline(always)]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

/// A hash of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowHash {
    /// What is hashed.
    pub fields: FlowFields,
    /// What nobody outside knows.
    pub key: FlowKey,
}

/// EtherTypes (IANA, "IEEE 802 Numbers").
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const QINQ: u16 = 0x88a8;

/// Protocols whose first four bytes are two ports: TCP, UDP, SCTP.
const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 132)
}

/// Protocol and upper layer of an IPv6 packet with extension headers. Fragments all have the same protocol,
/// whatever it is that was cut up; so have packets whose headers are malformed.
#[cold]
fn behind_extensions(packet: &[u8]) -> (u8, Option<&[u8]>) {
    match Ipv6::new_unchecked(packet).upper_layer() {
        Ok(UpperLayer { protocol, offset, fragment: None }) => (protocol.0, packet.get(offset..)),
        _ => (IpProtocol::FRAGMENT.0, None),
    }
}

impl FlowHash {
    /// The hash of an Ethernet frame; all bits are equally good. What is not IP goes by its link addresses.
    #[inline]
    pub fn of(&self, frame: &[u8]) -> u32 {
        let mut offset = 12;
        loop {
            let Some(&[high, low]) = frame.get(offset..offset + 2).and_then(|bytes| bytes.first_chunk())
            else {
                return self.of_link(frame);
            };
            match u16::from_be_bytes([high, low]) {
                IPV4 => return self.of_ipv4(&frame[offset + 2..]).unwrap_or_else(|| self.of_link(frame)),
                IPV6 => return self.of_ipv6(&frame[offset + 2..]).unwrap_or_else(|| self.of_link(frame)),
                // At most two tags.
                VLAN | QINQ if offset < 20 => offset += 4,
                _ => return self.of_link(frame),
            }
        }
    }

    /// The hash of an IPv4 or IPv6 packet without a link header. 0 for what is neither.
    #[inline(always)]
    pub fn of_ip(&self, packet: &[u8]) -> u32 {
        // Most packets are IPv4 without options, whole, and have ports.
        if let Some(start) = packet.first_chunk::<24>()
            && self.fields == FlowFields::Flow
            && start[0] == 0x45
            && u16::from_be_bytes([start[6], start[7]]) & 0x3fff == 0
            && has_ports(start[9])
        {
            let word = |at: usize| start[at..].first_chunk().map_or(0, |&word| u32::from_be_bytes(word));
            let ports = word(20);
            let source = u64::from(word(12)) ^ u64::from(ports >> 16) << 40;
            let destination = u64::from(word(16)) ^ u64::from(ports & 0xffff) << 40;
            return self.fold(source, destination, start[9]);
        }
        self.of_any_ip(packet)
    }

    #[inline(never)]
    fn of_any_ip(&self, packet: &[u8]) -> u32 {
        match packet.first().map(|first| first >> 4) {
            Some(4) => self.of_ipv4(packet),
            Some(6) => self.of_ipv6(packet),
            _ => None,
        }
        .unwrap_or(0)
    }

    #[inline]
    fn of_ipv4(&self, packet: &[u8]) -> Option<u32> {
        let header = packet.first_chunk::<20>()?;
        let word =
            |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        // More fragments, or not the first.
        let is_fragment = header[6] & 0x3f != 0 || header[7] != 0;
        let transport = usize::from(header[0] & 15) * 4;
        let ports = if is_fragment { None } else { packet.get(transport..) };
        Some(self.mix(word(12).into(), word(16).into(), header[9], ports))
    }

    #[inline]
    fn of_ipv6(&self, packet: &[u8]) -> Option<u32> {
        let header = packet.first_chunk::<40>()?;
        let address = |at: usize| {
            let half =
                |at: usize| u64::from_be_bytes(*header[at..].first_chunk().expect("within the header"));
            self.key.product(half(at), half(at + 8))
        };
        let next_header = IpProtocol(header[6]);
        let (protocol, transport) = if next_header.is_ipv6_extension() {
            behind_extensions(packet)
        } else {
            (next_header.0, packet.get(HEADER_LEN..))
        };
        Some(self.mix(address(8), address(24), protocol, transport))
    }

    #[cold]
    fn of_link(&self, frame: &[u8]) -> u32 {
        let address = |at: usize| {
            let bytes = frame.get(at..at + 6).unwrap_or_default();
            bytes.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
        };
        self.fold(address(0), address(6), 0)
    }

    #[inline]
    fn mix(&self, source: u64, destination: u64, protocol: u8, transport: Option<&[u8]>) -> u32 {
        match self.fields {
            FlowFields::Source => self.fold(source, source, 0),
            FlowFields::Destination => self.fold(destination, destination, 0),
            FlowFields::Addresses => self.fold(source, destination, 0),
            FlowFields::Flow => {
                let ports =
                    transport.filter(|_| has_ports(protocol)).and_then(|bytes| bytes.first_chunk::<4>());
                let &[a, b, c, d] = ports.unwrap_or(&[0; 4]);
                let port = |high: u8, low: u8| u64::from(u16::from_be_bytes([high, low])) << 40;
                self.fold(source ^ port(a, b), destination ^ port(c, d), protocol)
            }
        }
    }

    /// The same for both orders of `a` and `b`.
    #[inline]
    fn fold(&self, a: u64, b: u64, protocol: u8) -> u32 {
        self.key.folded_product(a.min(b), a.max(b) ^ u64::from(protocol) << 56)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ipv4(source: u32, destination: u32, protocol: u8, ports: (u16, u16), fragment: u16) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20 + 8];
        frame[12..14].copy_from_slice(&[8, 0]);
        let header = &mut frame[14..];
        header[0] = 0x45;
        header[6..8].copy_from_slice(&fragment.to_be_bytes());
        header[9] = protocol;
        header[12..16].copy_from_slice(&source.to_be_bytes());
        header[16..20].copy_from_slice(&destination.to_be_bytes());
        header[20..22].copy_from_slice(&ports.0.to_be_bytes());
        header[22..24].copy_from_slice(&ports.1.to_be_bytes());
        frame
    }

    fn flows(seed: u64) -> FlowHash {
        FlowHash { fields: FlowFields::Flow, key: FlowKey::from_seed(seed) }
    }

    fn tagged(frame: &[u8]) -> Vec<u8> {
        [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat()
    }

    proptest! {
        #[test]
        fn any_bytes(frame in prop::collection::vec(any::<u8>(), 0..100), seed: u64) {
            for (_, fields) in FlowFields::NAMES {
                FlowHash { fields, key: FlowKey::from_seed(seed) }.of(&frame);
            }
        }

        #[test]
        fn both_directions_are_one_flow(a: u32, b: u32, ports: (u16, u16), seed: u64) {
            for fields in [FlowFields::Flow, FlowFields::Addresses] {
                let hash = FlowHash { fields, key: FlowKey::from_seed(seed) };
                let there = ipv4(a, b, 17, ports, 0);
                let back = ipv4(b, a, 17, (ports.1, ports.0), 0);
                prop_assert_eq!(hash.of(&there), hash.of(&back));
                prop_assert_eq!(hash.of(&there), hash.of(&tagged(&there)));
            }
        }

        #[test]
        fn a_packet_has_the_hash_of_its_frame(a: u32, b: u32, ports: (u16, u16), seed: u64) {
            let hash = flows(seed);
            let frame = ipv4(a, b, 17, ports, 0);
            prop_assert_eq!(hash.of(&frame), hash.of_ip(&frame[14..]));
        }

        #[test]
        fn only_the_chosen_fields_count(a: u32, b: u32, c: u32, ports: (u16, u16)) {
            let of = |fields, source, destination, ports| {
                FlowHash { fields, key: FlowKey::from_seed(1) }.of(&ipv4(source, destination, 6, ports, 0))
            };
            use FlowFields::{Addresses, Destination, Source};
            prop_assert_eq!(of(Source, a, b, ports), of(Source, a, c, (0, 0)));
            prop_assert_eq!(of(Destination, a, c, ports), of(Destination, b, c, (0, 0)));
            prop_assert_eq!(of(Addresses, a, b, ports), of(Addresses, a, b, (0, 0)));
        }

        #[test]
        fn fragments_stay_together(a: u32, b: u32, ports: (u16, u16)) {
            let hash = flows(0);
            let first = hash.of(&ipv4(a, b, 17, ports, 0x2000));
            let last = hash.of(&ipv4(a, b, 17, (99, 3), 185));
            prop_assert_eq!(first, last);
        }
    }

    /// An IPv6 frame between two fixed hosts.
    fn ipv6(next_header: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, payload.len() as u8, next_header, 64]);
        frame.extend([[0x20, 1, 1], [0x20, 1, 2]].map(|head| [&head[..], &[0; 13]].concat()).concat());
        frame.extend(payload);
        frame
    }

    #[test]
    fn ipv6_extensions_are_looked_behind() {
        let hash = |next_header, payload: &[u8]| flows(0).of(&ipv6(next_header, payload));
        let udp = [0x10, 0, 0, 9, 0, 8, 0, 0];
        let options = [&[17, 0, 1, 4, 0, 0, 0, 0][..], &udp].concat();
        assert_eq!(hash(60, &options), hash(17, &udp));
        assert_ne!(hash(17, &[0x10, 1, 0, 9, 0, 8, 0, 0]), hash(17, &udp));
        // Only the first fragment has ports, so they do not count in any.
        let fragment =
            |protocol, flags, rest: &[u8]| [&[protocol, 0, 0, flags, 0, 0, 0, 5][..], rest].concat();
        let first = hash(44, &fragment(17, 1, &udp));
        assert_eq!(hash(44, &fragment(60, 8, b"anything")), first);
        assert_eq!(hash(0, &[&[44, 0, 1, 4, 0, 0, 0, 0][..], &fragment(17, 1, &udp)].concat()), first);
        // Cut off or too long: the addresses still tell.
        assert_eq!(hash(60, &[17, 9]), hash(60, &[60, 0, 1, 4, 0, 0, 0, 0].repeat(20)));
    }

    #[test]
    fn flows_spread_evenly() {
        // Hosts and ports counted up, as in real networks; 256 buckets by the highest bits.
        for seed in [0, 1, u64::MAX] {
            let hash = flows(seed);
            let mut buckets = [0u32; 256];
            for host in 0..256 {
                for port in 0..256 {
                    let frame = ipv4(0x0a00_0000 + host, 0xc000_0201, 6, (1024 + port, 80), 0);
                    buckets[(hash.of(&frame) >> 24) as usize] += 1;
                }
            }
            // 256 expected, standard deviation 16.
            assert!(buckets.iter().all(|&count| (170..350).contains(&count)), "{buckets:?}");
        }
    }

    /// Flows with the highest bits of one bucket of 256 at a router with one key.
    fn aimed(seed: u64, frames: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
        let hash = flows(seed);
        frames.filter(|frame| hash.of(frame) >> 24 == 7).take(512).collect()
    }

    fn buckets(seed: u64, frames: &[Vec<u8>]) -> usize {
        let used: std::collections::HashSet<u32> =
            frames.iter().map(|frame| flows(seed).of(frame) >> 24).collect();
        used.len()
    }

    #[test]
    fn flows_aimed_at_one_bucket_of_one_key_are_scattered_by_another() {
        let ipv4 = |number: u32| ipv4(0x0a00_0000 + (number >> 12), 0xc000_0201, 6, (number as u16, 80), 0);
        let ipv6 = |number: u32| {
            let mut frame = ipv6(17, &[0x10, 0, 0, 9, 0, 8, 0, 0]);
            frame[26..30].copy_from_slice(&number.to_be_bytes());
            frame
        };
        for frames in [aimed(1, (0..1 << 18).map(ipv4)), aimed(1, (0..1 << 18).map(ipv6))] {
            assert_eq!((frames.len(), buckets(1, &frames)), (512, 1));
            // Of 256 buckets, 512 flows miss one in e squared.
            for seed in [0, 2, 3, u64::MAX] {
                assert!(buckets(seed, &frames) > 180);
            }
        }
    }

    #[test]
    fn no_ipv6_addresses_are_alike_for_every_key() {
        // Sums of their halves, shifted or not, that are the same; and a factor that would be zero without
        // a key.
        let with = |high: u64, low: u64| {
            let mut frame = ipv6(17, &[0x10, 0, 0, 9, 0, 8, 0, 0]);
            frame[22..30].copy_from_slice(&high.to_be_bytes());
            frame[30..38].copy_from_slice(&low.to_be_bytes());
            frame
        };
        let mixed: Vec<_> = (0..512_u64).map(|number| with(number, 99 ^ number.rotate_left(21))).collect();
        let zero: Vec<_> = (0..512_u64).map(|number| with(number << 32, 0)).collect();
        for frames in [mixed, zero] {
            for seed in [0, 1, 2] {
                assert!(buckets(seed, &frames) > 180);
            }
        }
    }

    #[test]
    fn a_process_has_one_key_and_prints_none() {
        assert_eq!(FlowKey::of_process(), FlowKey::of_process());
        assert_eq!(format!("{:?}", FlowKey::of_process()), "FlowKey(..)");
    }

    #[test]
    fn names_go_round() {
        for (name, fields) in FlowFields::NAMES {
            assert_eq!((name.parse(), fields.to_string()), (Ok(fields), name.to_owned()));
        }
        assert!("port".parse::<FlowFields>().unwrap_err().contains("destination"));
    }
}
