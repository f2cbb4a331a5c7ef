//! Which flow a frame belongs to, as a number: what receive-side scaling of cards does, in software.
//!
//! The hash is symmetric: both directions of a flow have the same. Fragments are told apart by their addresses
//! alone, as cards do it, because only the first has ports: all fragments of a packet then go the same way.

use std::fmt;
use std::str::FromStr;

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

/// A hash of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowHash {
    /// What is hashed.
    pub fields: FlowFields,
    /// Another key, another distribution.
    pub key: u64,
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
            half(at).rotate_left(21) ^ half(at + 8)
        };
        Some(self.mix(address(8), address(24), header[6], packet.get(40..)))
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

    /// The same for both orders of `a` and `b`: a product of 64 by 64 bits, its halves folded (as in wyhash).
    #[inline]
    fn fold(&self, a: u64, b: u64, protocol: u8) -> u32 {
        let low = a.min(b) ^ 0x9e37_79b9_7f4a_7c15 ^ self.key;
        let high = a.max(b).wrapping_add(0xd1b5_4a32_d192_ed03 ^ u64::from(protocol) << 56);
        let product = u128::from(low) * u128::from(high);
        let folded = (product >> 64) as u64 ^ product as u64;
        let again = u128::from(folded ^ self.key.rotate_left(32)) * 0xe703_7ed1_a0b4_28db_u128;
        ((again >> 64) as u64 ^ again as u64) as u32
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

    fn tagged(frame: &[u8]) -> Vec<u8> {
        [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat()
    }

    proptest! {
        #[test]
        fn any_bytes(frame in prop::collection::vec(any::<u8>(), 0..100), key: u64) {
            for (_, fields) in FlowFields::NAMES {
                FlowHash { fields, key }.of(&frame);
            }
        }

        #[test]
        fn both_directions_are_one_flow(a: u32, b: u32, ports: (u16, u16), key: u64) {
            for fields in [FlowFields::Flow, FlowFields::Addresses] {
                let hash = FlowHash { fields, key };
                let there = ipv4(a, b, 17, ports, 0);
                let back = ipv4(b, a, 17, (ports.1, ports.0), 0);
                prop_assert_eq!(hash.of(&there), hash.of(&back));
                prop_assert_eq!(hash.of(&there), hash.of(&tagged(&there)));
            }
        }

        #[test]
        fn only_the_chosen_fields_count(a: u32, b: u32, c: u32, ports: (u16, u16)) {
            let of = |fields, source, destination, ports| {
                FlowHash { fields, key: 1 }.of(&ipv4(source, destination, 6, ports, 0))
            };
            use FlowFields::{Addresses, Destination, Source};
            prop_assert_eq!(of(Source, a, b, ports), of(Source, a, c, (0, 0)));
            prop_assert_eq!(of(Destination, a, c, ports), of(Destination, b, c, (0, 0)));
            prop_assert_eq!(of(Addresses, a, b, ports), of(Addresses, a, b, (0, 0)));
        }

        #[test]
        fn fragments_stay_together(a: u32, b: u32, ports: (u16, u16)) {
            let hash = FlowHash::default();
            let first = hash.of(&ipv4(a, b, 17, ports, 0x2000));
            let last = hash.of(&ipv4(a, b, 17, (99, 3), 185));
            prop_assert_eq!(first, last);
        }
    }

    #[test]
    fn flows_spread_evenly() {
        // Hosts and ports counted up, as in real networks; 256 buckets by the highest bits.
        for key in [0, 1, u64::MAX] {
            let hash = FlowHash { key, ..FlowHash::default() };
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

    #[test]
    fn names_go_round() {
        for (name, fields) in FlowFields::NAMES {
            assert_eq!((name.parse(), fields.to_string()), (Ok(fields), name.to_owned()));
        }
        assert!("port".parse::<FlowFields>().unwrap_err().contains("destination"));
    }
}
