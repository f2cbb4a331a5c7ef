//! Random frames near the edges of what filters look at, and random access lists for them.

use std::net::{Ipv4Addr, Ipv6Addr};

use packet::random::SplitMix64;

use super::oracle::{Prefix, Rule};

/// Random numbers.
pub(crate) struct Random(pub(crate) SplitMix64);

impl Random {
    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0.below(end as u64) as usize
    }

    /// Whether something happens that does `percent` times of a hundred.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.0.next_u64() as u8).collect()
    }
}

const IPV4: [&str; 12] = [
    "10.0.1.2",
    "10.0.2.2",
    "10.0.1.2",
    "10.0.2.2",
    "192.0.2.9",
    "198.51.100.9",
    "203.0.113.9",
    "198.51.100.77",
    "10.0.1.77",
    "10.0.2.77",
    "10.0.1.1",
    "10.0.2.1",
];
const ODD_IPV4: [&str; 12] = [
    "0.0.0.0",
    "0.1.2.3",
    "127.0.0.1",
    "169.254.1.1",
    "224.0.0.5",
    "239.1.1.1",
    "240.0.0.1",
    "255.255.255.254",
    "255.255.255.255",
    "10.0.1.255",
    "10.0.2.255",
    "10.0.2.0",
];
const IPV6: [&str; 10] = [
    "2001:db8:1::2",
    "2001:db8:2::2",
    "2001:db8:1::2",
    "2001:db8:2::2",
    "2001:db8:a::9",
    "2001:db8:b::9",
    "2001:db8:c::9",
    "2001:db8:2::77",
    "2001:db8:1::1",
    "2001:db8:2::1",
];
const ODD_IPV6: [&str; 9] = [
    "::",
    "::1",
    "fe80::2",
    "ff02::1",
    "ff0e::1",
    "::ffff:10.0.2.2",
    "2002:a00:202::1",
    "fec0::1",
    "2001:db8:2::",
];

impl Random {
    fn ipv4(&mut self) -> [u8; 4] {
        let text = if self.chance(85) { self.of(&IPV4) } else { self.of(&ODD_IPV4) };
        text.parse::<Ipv4Addr>().unwrap().octets()
    }

    fn ipv6(&mut self) -> [u8; 16] {
        let text = if self.chance(85) { self.of(&IPV6) } else { self.of(&ODD_IPV6) };
        text.parse::<Ipv6Addr>().unwrap().octets()
    }

    fn protocol(&mut self) -> u8 {
        if self.chance(95) {
            self.of(&[1, 6, 6, 17, 17, 47, 50, 58, 89, 132])
        } else {
            self.0.next_u64() as u8
        }
    }

    /// The start of what a protocol carries.
    fn transport(&mut self, protocol: u8) -> Vec<u8> {
        let length = match self.below(10) {
            0 => self.below(20),
            1 => 1_440 + self.below(70),
            _ => 20 + self.below(60),
        };
        let mut bytes = self.bytes(length);
        if matches!(protocol, 6 | 17 | 132) {
            for at in [0, 2] {
                if let Some(port) = bytes.get_mut(at..at + 2) {
                    port.copy_from_slice(&(self.of(&PORTS)).to_be_bytes());
                }
            }
        }
        if let (1 | 58, Some(kind)) = (protocol, bytes.first_mut()) {
            *kind = self.of(&ICMP_TYPES);
        }
        bytes
    }

    /// A frame to a router with this link address. Its IP packet carries `number` where routers change nothing.
    pub(crate) fn frame(&mut self, router: [u8; 6], number: u32) -> Vec<u8> {
        let destination = match self.below(100) {
            0..90 => router,
            90..93 => [0xff; 6],
            93..96 => [0x33, 0x33, 0, 0, 0, 1],
            96..98 => [0x01, 0, 0x5e, 0, 0, 5],
            _ => [2, 0, 0, 0, 9, 9],
        };
        let is_ipv6 = self.chance(50);
        let packet = if is_ipv6 { self.ipv6_packet(number) } else { self.ipv4_packet(number as u16) };
        let mut frame = [&destination[..], &[2, 0, 0, 0, 0, 0xaa]].concat();
        if self.chance(35) {
            for _ in 0..1 + self.below(3) {
                frame.extend(self.of(&[[0x81, 0x00], [0x81, 0x00], [0x88, 0xa8], [0x91, 0x00]]));
                let vlan = if self.chance(75) { 0 } else { self.of(&[1, 100, 4_095]) };
                frame.extend((vlan | (self.below(16) as u16) << 12).to_be_bytes());
            }
        }
        let kind = if is_ipv6 { [0x86, 0xdd] } else { [0x08, 0x00] };
        match self.below(50) {
            0 => {
                frame.extend(self.of(&[[0x08, 0x06], [0x88, 0x47], [0x88, 0x64], [0x88, 0xcc], [0x86, 0xdd]]))
            }
            // IEEE 802.2 with SNAP.
            1 => frame.extend([0, 200, 0xaa, 0xaa, 3, 0, 0, 0].into_iter().chain(kind)),
            _ => frame.extend(kind),
        }
        frame.extend(packet);
        if self.chance(30) {
            let trailer = 1 + self.below(46);
            frame.extend(self.bytes(trailer));
        }
        if self.chance(3) {
            frame.truncate(14 + self.below(60));
        }
        // A veth takes no more by an interface with an MTU of 1,500.
        frame.truncate(1_518);
        frame
    }

    fn ipv4_packet(&mut self, number: u16) -> Vec<u8> {
        let mut options = Vec::new();
        if self.chance(15) {
            let kind = self.of(&[0, 1, 7, 68, 131, 137, 148, 130, 200]);
            let length = 4 * (1 + self.below(10));
            options = self.bytes(length);
            (options[0], options[1], options[2]) = (kind, length as u8, 4);
        }
        let protocol = self.protocol();
        let transport = self.transport(protocol);
        let header = 20 + options.len();
        let total = match self.chance(93) {
            true => (header + transport.len()) as u16,
            false => self.of(&[0, 19, 20, 28, 1_500, 1_504, u16::MAX]),
        };
        let fragment = match self.below(100) {
            0..70 => 0,
            70..80 => 0x4000,
            80..87 => 0x2000,
            87..90 => 0x2001,
            90..93 => 1,
            _ => self.of(&[0x2002, 2, 3, 0x20b9, 185, 0x1fff]),
        };
        let version = if self.chance(98) { 4 } else { self.below(16) as u8 };
        let words = if self.chance(98) { (header / 4) as u8 } else { self.below(16) as u8 };
        let mut packet = vec![version << 4 | words, self.0.next_u64() as u8];
        packet.extend(total.to_be_bytes());
        packet.extend(number.to_be_bytes());
        packet.extend(u16::to_be_bytes(fragment));
        packet.extend([self.of(&[64, 64, 64, 255, 2, 1, 0]), protocol, 0, 0]);
        packet.extend(self.ipv4());
        packet.extend(self.ipv4());
        packet.extend(options);
        if self.chance(96) {
            let length = (usize::from(words) * 4).min(packet.len()) / 2 * 2;
            let sum = packet[..length]
                .chunks(2)
                .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
                .sum::<u32>();
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        packet.extend(transport);
        packet
    }

    fn ipv6_packet(&mut self, number: u32) -> Vec<u8> {
        let protocol = self.protocol();
        let mut payload = self.transport(protocol);
        let mut next = protocol;
        if self.chance(40) {
            for _ in 0..1 + self.below(4) {
                let kind = self.of(&[0, 43, 44, 44, 51, 60, 59, 135]);
                let units = 1 + self.below(3);
                let mut header = self.bytes(8 * units);
                header[0] = next;
                header[1] = (header.len() / 8 - 1) as u8;
                match kind {
                    44 => {
                        header.truncate(8);
                        let offset = self.of(&[0, 0, 1, 8, 9, 16, 0x5c8]);
                        header[2..4].copy_from_slice(&u16::to_be_bytes(offset));
                    }
                    51 => header[1] = (header.len() / 4).max(3) as u8 - 2,
                    // Padding, so that it is one that routers accept.
                    0 | 60 => {
                        header[2] = 1;
                        header[3] = (header.len() - 4) as u8;
                    }
                    _ => {}
                }
                if self.chance(3) {
                    header[1] = self.0.next_u64() as u8;
                }
                payload.splice(0..0, header);
                next = kind;
            }
        }
        let length = match self.chance(93) {
            true => payload.len() as u16,
            false => self.of(&[0, 1, 8, 40, 1_460, 1_464, u16::MAX]),
        };
        let hops = self.of(&[64, 64, 255, 255, 2, 1, 0]);
        let version = if self.chance(98) { 6 } else { self.below(16) as u32 };
        let mut packet = (version << 28 | number & 0xf_ffff).to_be_bytes().to_vec();
        packet.extend(length.to_be_bytes());
        packet.extend([next, hops]);
        packet.extend(self.ipv6());
        packet.extend(self.ipv6());
        packet.extend(payload);
        packet
    }

    /// An access list; the first rule lets the tests' own packets pass.
    pub(crate) fn rules(&mut self) -> Vec<Rule> {
        let sentinels = Rule {
            permits: true,
            protocol: Some(17),
            from_ports: Some((SENTINEL_PORT, SENTINEL_PORT)),
            to_ports: Some((SENTINEL_PORT, SENTINEL_PORT)),
            ..Rule::default()
        };
        let mut rules = vec![sentinels];
        for _ in 0..2 + self.below(10) {
            rules.push(self.rule());
        }
        rules.push(Rule { permits: self.chance(40), ..Rule::default() });
        rules
    }

    fn rule(&mut self) -> Rule {
        let is_ipv6 = self.chance(50);
        let protocol =
            self.chance(70).then(|| self.of(&[6, 17, if is_ipv6 { 58 } else { 1 }, 47, 132, 44, 60]));
        let mut rule = Rule { permits: self.chance(50), protocol, ..Rule::default() };
        let prefix = |random: &mut Self| {
            random.chance(50).then(|| {
                let (bits, address) = match is_ipv6 {
                    true => (128, u128::from_be_bytes(random.ipv6())),
                    false => (32, u128::from(u32::from_be_bytes(random.ipv4()))),
                };
                let length = random.of(&[0, bits / 4, bits / 2, bits * 3 / 4, bits]);
                let mask = if length == 0 { 0 } else { u128::MAX << (bits - length) };
                Prefix { is_ipv6, address: address & mask, length }
            })
        };
        (rule.from, rule.to) = (prefix(self), prefix(self));
        rule.input = self.chance(25).then(|| 1 + self.below(2));
        match protocol {
            Some(6 | 17 | 132) => {
                let ports = |random: &mut Self| {
                    random.chance(50).then(|| {
                        let (a, b) = (random.of(&PORTS), random.of(&PORTS));
                        (a.min(b), a.max(b))
                    })
                };
                (rule.from_ports, rule.to_ports) = (ports(self), ports(self));
                rule.is_established = protocol == Some(6) && self.chance(20);
            }
            Some(1 | 58) => rule.icmp_type = self.chance(60).then(|| self.of(&ICMP_TYPES)),
            _ => {}
        }
        let asks = rule.from_ports.is_some() || rule.to_ports.is_some() || rule.is_established;
        rule.is_fragment = !asks && rule.icmp_type.is_none() && self.chance(15);
        rule
    }
}

/// The port of the tests' own packets.
pub(crate) const SENTINEL_PORT: u16 = 40_000;
const PORTS: [u16; 8] = [0, 22, 53, 68, 80, 443, 40_001, 65_535];
const ICMP_TYPES: [u8; 12] = [0, 3, 5, 8, 11, 128, 129, 133, 134, 135, 136, 137];
