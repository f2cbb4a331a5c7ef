//! Rules of access lists, and frames that they are for. Rules are drawn as those of real lists are: prefixes of
//! all lengths, a quarter of the sources and a sixth of the destinations any, single ports, ranges, all high
//! ports, a few without; one in ten denies.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use packet::checksum;
use packet::random::SplitMix64;

fn draw_port(random: &mut SplitMix64, (first, last): (u16, u16)) -> u16 {
    first + random.below(u64::from(last - first) + 1) as u16
}

/// Lengths of prefixes, as often as they stand here. The networks are those of one large site: inside
/// 10.0.0.0/8 and 2001:db8::/32, with others around.
const LENGTHS_V4: [u8; 16] = [8, 16, 16, 19, 20, 22, 23, 24, 24, 24, 24, 26, 28, 30, 32, 32];
const LENGTHS_V6: [u8; 16] = [32, 32, 40, 44, 48, 48, 48, 52, 56, 56, 64, 64, 64, 64, 128, 128];
const PORTS: [u16; 16] = [22, 25, 53, 80, 110, 123, 143, 161, 179, 389, 443, 445, 993, 3306, 5432, 8080];
const ALL: (u16, u16) = (0, u16::MAX);
const HIGH: (u16, u16) = (1024, u16::MAX);

/// A prefix: its bits at the top of 128, and its length.
type Prefix = (u128, u8);

pub(super) struct Rule {
    pub(super) permits: bool,
    protocol: Option<u8>,
    source: Option<Prefix>,
    destination: Option<Prefix>,
    source_ports: (u16, u16),
    destination_ports: (u16, u16),
}

impl Rule {
    pub(super) fn draw(random: &mut SplitMix64, is_ipv6: bool) -> Self {
        let protocol = match random.below(20) {
            0..11 => Some(6),
            11..16 => Some(17),
            16 => Some(if is_ipv6 { 58 } else { 1 }),
            17 => Some(47),
            18 => Some(50),
            _ => None,
        };
        let has_ports = matches!(protocol, Some(6 | 17));
        let mut source = (!random.one_in(4)).then(|| prefix(random, is_ipv6));
        let destination = (!random.one_in(6)).then(|| prefix(random, is_ipv6));
        if destination.is_none() && source.is_none() {
            // A rule for everything would hide all behind it.
            source = Some(prefix(random, is_ipv6));
        }
        let source_ports = match random.below(20) {
            0 | 1 if has_ports => HIGH,
            2 if has_ports => single(random),
            _ => ALL,
        };
        let destination_ports = match random.below(20) {
            0..10 if has_ports => single(random),
            10..14 if has_ports => {
                let first = random.below(60_000) as u16;
                (first, first + random.below(5_000) as u16)
            }
            14..16 if has_ports => HIGH,
            _ => ALL,
        };
        Self { permits: !random.one_in(10), protocol, source, destination, source_ports, destination_ports }
    }

    /// As an ACL has it.
    pub(super) fn text(&self, is_ipv6: bool) -> String {
        let prefix = |prefix: Option<Prefix>| match prefix {
            None => "any".to_owned(),
            Some((bits, length)) if is_ipv6 => format!("{}/{length}", Ipv6Addr::from(bits)),
            Some((bits, length)) => format!("{}/{length}", Ipv4Addr::from((bits >> 96) as u32)),
        };
        let ports = |ports: (u16, u16)| match ports {
            ALL => String::new(),
            (first, last) => format!(" port {first}-{last}"),
        };
        format!(
            "{} {} {}{} {}{}",
            if self.permits { "permit" } else { "deny" },
            self.protocol.map_or_else(|| "any".to_owned(), |protocol| protocol.to_string()),
            prefix(self.source),
            ports(self.source_ports),
            prefix(self.destination),
            ports(self.destination_ports)
        )
    }

    /// As nftables have it.
    pub(super) fn nftables(&self, is_ipv6: bool) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        if let Some(protocol) = self.protocol {
            let _ = write!(text, "meta l4proto {protocol} ");
        }
        for (direction, prefix, ports) in
            [("s", self.source, self.source_ports), ("d", self.destination, self.destination_ports)]
        {
            match prefix {
                None => {}
                Some((bits, length)) if is_ipv6 => {
                    _ = write!(text, "ip6 {direction}addr {}/{length} ", Ipv6Addr::from(bits));
                }
                Some((bits, length)) => {
                    _ = write!(text, "ip {direction}addr {}/{length} ", Ipv4Addr::from((bits >> 96) as u32));
                }
            }
            if ports != ALL {
                let _ = write!(text, "th {direction}port {}-{} ", ports.0, ports.1);
            }
        }
        text + if self.permits { "accept" } else { "drop" }
    }

    /// As an IPFilter has it, for IPv4.
    pub(super) fn expression(&self) -> String {
        let mut text = if self.permits { "allow" } else { "deny" }.to_owned();
        // Writing to a string does not fail.
        if let Some(protocol) = self.protocol {
            let _ = write!(text, " ip proto {protocol}");
        }
        for (direction, prefix, ports) in
            [("src", self.source, self.source_ports), ("dst", self.destination, self.destination_ports)]
        {
            if let Some((bits, length)) = prefix {
                let _ = write!(text, " {direction} net {}/{length}", Ipv4Addr::from((bits >> 96) as u32));
            }
            match ports {
                ALL => {}
                (first, last) if first == last => _ = write!(text, " {direction} port {first}"),
                (first, last) => _ = write!(text, " {direction} port {first}-{last}"),
            }
        }
        text
    }
}

fn single(random: &mut SplitMix64) -> (u16, u16) {
    let port = random.choice(&PORTS).copied().unwrap_or_default();
    (port, port)
}

/// A prefix whose network is inside the site's, mostly.
fn prefix(random: &mut SplitMix64, is_ipv6: bool) -> Prefix {
    let lengths = if is_ipv6 { &LENGTHS_V6 } else { &LENGTHS_V4 };
    let length = random.choice(lengths).copied().unwrap_or_default();
    let address = address(random, None, is_ipv6);
    (address & u128::MAX << (128 - u32::from(length)), length)
}

/// An address inside a prefix, or one of the site's, or, one in four, any at all.
fn address(random: &mut SplitMix64, inside: Option<Prefix>, is_ipv6: bool) -> u128 {
    let bits = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
    let site = if is_ipv6 { (0x2001_0db8 << 96, 32) } else { (10 << 120, 8) };
    let any = if is_ipv6 { (1 << 125, 3) } else { (0, 0) };
    let (network, length) = inside.unwrap_or(if random.one_in(4) { any } else { site });
    network | if length == 128 { 0 } else { bits >> length }
}

/// A frame that a rule matches if those before it do not, or any frame.
pub(super) fn frame(random: &mut SplitMix64, inside: Option<&Rule>, is_ipv6: bool) -> Vec<u8> {
    let protocol = inside.and_then(|rule| rule.protocol);
    let protocol = protocol.unwrap_or(if random.one_in(3) { 17 } else { 6 });
    let source = address(random, inside.and_then(|rule| rule.source), is_ipv6);
    let destination = address(random, inside.and_then(|rule| rule.destination), is_ipv6);
    let source_port =
        draw_port(random, inside.map(|rule| rule.source_ports).filter(|&ports| ports != ALL).unwrap_or(HIGH));
    let ports = inside.map(|rule| rule.destination_ports).filter(|&ports| ports != ALL);
    let destination_port = {
        let usual = single(random);
        draw_port(random, ports.unwrap_or(usual))
    };
    let mut bytes = vec![0; 14];
    if is_ipv6 {
        bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
        bytes.extend([0x60, 0, 0, 0, 0, 30, protocol, 64]);
        bytes.extend(source.to_be_bytes());
        bytes.extend(destination.to_be_bytes());
    } else {
        bytes[12..14].copy_from_slice(&[8, 0]);
        bytes.extend([0x45, 0, 0, 50, 0, 0, 0, 0, 64, protocol, 0, 0]);
        bytes.extend(((source >> 96) as u32).to_be_bytes());
        bytes.extend(((destination >> 96) as u32).to_be_bytes());
        let sum = checksum::ipv4_header_compute(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    bytes.extend(source_port.to_be_bytes());
    bytes.extend(destination_port.to_be_bytes());
    bytes.extend([0; 26]);
    bytes
}
