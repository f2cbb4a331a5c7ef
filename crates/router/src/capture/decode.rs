//! What people want to read of a packet's headers, of as many bytes as there are.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use control::change::mac_text;

/// The headers of a packet: names and values, from the outside to the inside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Headers(Vec<(&'static str, String)>);

const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// A tag of 802.1Q or 802.1ad follows.
const TAGS: [u16; 2] = [0x8100, 0x88a8];

fn half(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?.first_chunk().map(|&bytes| u16::from_be_bytes(bytes))
}

fn ipv4(data: &[u8], at: usize) -> Option<IpAddr> {
    data.get(at..)?.first_chunk::<4>().map(|&bytes| Ipv4Addr::from(bytes).into())
}

fn ipv6(data: &[u8], at: usize) -> Option<IpAddr> {
    data.get(at..)?.first_chunk::<16>().map(|&bytes| Ipv6Addr::from(bytes).into())
}

impl Headers {
    /// Reads the headers of a packet that begins with an Ethernet header, or with an IP header.
    pub(crate) fn of(is_ethernet: bool, data: &[u8]) -> Self {
        let mut headers = Self::default();
        // Nothing more is known where the bytes end.
        let _ = if is_ethernet { headers.ethernet(data) } else { headers.ip(data) };
        headers
    }

    /// Returns the value of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// Returns what is there or other than before, and what is gone, each in words.
    pub(crate) fn changes(&self, before: &Self) -> Vec<String> {
        let now = self.0.iter().filter_map(|(name, value)| match before.get(name) {
            Some(old) if old == value => None,
            Some(old) => Some(format!("{name} {old} -> {value}")),
            None => Some(format!("{name} {value}")),
        });
        let gone = before.0.iter().filter(|(name, _)| self.get(name).is_none());
        now.chain(gone.map(|(name, value)| format!("no {name} {value}"))).collect()
    }

    fn put(&mut self, name: &'static str, value: impl ToString) {
        self.0.push((name, value.to_string()));
    }

    fn ethernet(&mut self, data: &[u8]) -> Option<()> {
        let mac = |at: usize| data.get(at..)?.first_chunk::<6>().map(|&bytes| mac_text(bytes));
        self.put("to", mac(0)?);
        self.put("from", mac(6)?);
        let (mut kind, mut rest) = (half(data, 12)?, data.get(14..)?);
        while TAGS.contains(&kind) {
            self.put("VLAN", half(rest, 0)? & 0xfff);
            (kind, rest) = (half(rest, 2)?, rest.get(4..)?);
        }
        match kind {
            IPV4 | IPV6 => self.ip(rest),
            ARP => self.arp(rest),
            _ => {
                self.put("ethertype", format!("0x{kind:04x}"));
                None
            }
        }
    }

    fn arp(&mut self, data: &[u8]) -> Option<()> {
        let (sender, target) = (ipv4(data, 14)?, ipv4(data, 24)?);
        self.put(
            "ARP",
            match half(data, 6)? {
                1 => format!("who has {target}, tell {sender}"),
                2 => format!("{sender} is here"),
                other => format!("operation {other}"),
            },
        );
        Some(())
    }

    fn ip(&mut self, data: &[u8]) -> Option<()> {
        let first = *data.first()?;
        match first >> 4 {
            4 => {
                self.put("source", ipv4(data, 12)?);
                self.put("destination", ipv4(data, 16)?);
                self.put("TTL", data.get(8)?);
                self.traffic_class(*data.get(1)?);
                let fragment = half(data, 6)? & 0x1fff;
                if fragment != 0 {
                    self.put("fragment", format!("at {}", fragment * 8));
                    return None;
                }
                self.inner(*data.get(9)?, data.get(usize::from(first & 0xf) * 4..)?, "ICMP")
            }
            6 => {
                self.put("source", ipv6(data, 8)?);
                self.put("destination", ipv6(data, 24)?);
                self.put("hop limit", data.get(7)?);
                self.traffic_class((half(data, 0)? >> 4) as u8);
                self.inner(*data.get(6)?, data.get(40..)?, "ICMPv6")
            }
            _ => None,
        }
    }

    fn traffic_class(&mut self, class: u8) {
        if class != 0 {
            self.put("traffic class", format!("0x{class:02x}"));
        }
    }

    fn inner(&mut self, protocol: u8, data: &[u8], icmp: &'static str) -> Option<()> {
        let name = match protocol {
            1 | 58 => icmp,
            6 => "TCP",
            17 => "UDP",
            50 => "ESP",
            _ => {
                self.put("protocol", protocol);
                return None;
            }
        };
        self.put("protocol", name);
        match protocol {
            6 | 17 => {
                self.put("source port", half(data, 0)?);
                self.put("destination port", half(data, 2)?);
                if protocol == 6 {
                    let (flags, mut set) = (*data.get(13)?, String::new());
                    let letters = "FSRP.UEW".chars().enumerate();
                    set.extend(letters.filter(|(bit, _)| flags >> bit & 1 != 0).map(|(_, letter)| letter));
                    self.put("flags", set);
                }
            }
            50 => self.put("SPI", format!("0x{:04x}{:04x}", half(data, 0)?, half(data, 2)?)),
            _ => {
                let (kind, code) = (*data.first()?, *data.get(1)?);
                self.put("type", icmp_kind(protocol == 58, kind, code));
                if [0, 8].contains(&kind) && protocol == 1 || [128, 129].contains(&kind) && protocol == 58 {
                    self.put("id", half(data, 4)?);
                    self.put("seq", half(data, 6)?);
                }
            }
        }
        Some(())
    }

    /// Describes the packet in a line, as short as possible.
    pub(crate) fn line(&self) -> String {
        let mut line = String::new();
        if let Some(vlan) = self.get("VLAN") {
            // Writing to a string does not fail.
            let _ = write!(line, "VLAN {vlan}, ");
        }
        let (Some(source), Some(destination)) = (self.get("source"), self.get("destination")) else {
            let (from, to) = (self.get("from").unwrap_or("?"), self.get("to").unwrap_or("?"));
            let what = match (self.get("ARP"), self.get("ethertype")) {
                (Some(arp), _) => return line + "ARP " + arp,
                (None, Some(kind)) => format!("ethertype {kind}"),
                (None, None) => "too short to read".to_owned(),
            };
            return line + &format!("{from} > {to} {what}");
        };
        let with_port = |address: &str, port: &str| match self.get(port) {
            Some(port) if address.contains(':') => format!("[{address}]:{port}"),
            Some(port) => format!("{address}:{port}"),
            None => address.to_owned(),
        };
        line +=
            &format!("{} > {}", with_port(source, "source port"), with_port(destination, "destination port"));
        match self.get("protocol") {
            Some(number) if number.starts_with(|c: char| c.is_ascii_digit()) => {
                line += &format!(" protocol {number}")
            }
            Some(name) => line += &format!(" {name}"),
            None => {}
        }
        for (name, words) in [
            ("flags", ""),
            ("type", ""),
            ("id", "id "),
            ("seq", "seq "),
            ("SPI", "SPI "),
            ("fragment", "fragment "),
        ] {
            if let Some(value) = self.get(name) {
                line += &format!(" {words}{value}");
            }
        }
        for (name, words) in [("TTL", "ttl"), ("hop limit", "hlim"), ("traffic class", "class")] {
            if let Some(value) = self.get(name) {
                line += &format!(" {words} {value}");
            }
        }
        line
    }
}

/// Types of ICMP and ICMPv6 (IANA, "ICMP Parameters" and "ICMPv6 Parameters").
fn icmp_kind(is_ipv6: bool, kind: u8, code: u8) -> String {
    let name = match (is_ipv6, kind) {
        (false, 8) | (true, 128) => "echo request",
        (false, 0) | (true, 129) => "echo reply",
        (false, 3) | (true, 1) => "unreachable",
        (false, 11) | (true, 3) => "time exceeded",
        (true, 2) => "packet too big",
        (false, 5) | (true, 137) => "redirect",
        (true, 135) => "neighbour solicitation",
        (true, 136) => "neighbour advertisement",
        _ => return format!("type {kind} code {code}"),
    };
    if code == 0 { name.to_owned() } else { format!("{name} code {code}") }
}

/// The time of day, in UTC, to the nanosecond.
pub(crate) fn time(time_ns: u64) -> String {
    let (seconds, ns) = (time_ns / 1_000_000_000 % 86_400, time_ns % 1_000_000_000);
    format!("{:02}:{:02}:{:02}.{ns:09}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Bytes out of hexadecimal digits, as far as they are such.
pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let pairs = hex.as_bytes().as_chunks::<2>().0.iter();
    pairs.map_while(|&[high, low]| Some((digit(high)? << 4 | digit(low)?) as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: &str = "02000000010102000000010208004500005400004000400122a90a0001020a0002020800f7ff00050001";

    #[test]
    fn a_line_has_addresses_protocol_and_what_tells_packets_apart() {
        let line = |is_ethernet, hex: &str| Headers::of(is_ethernet, &bytes(hex)).line();
        assert_eq!(line(true, PING), "10.0.1.2 > 10.0.2.2 ICMP echo request id 5 seq 1 ttl 64");
        assert_eq!(line(false, &PING[28..]), line(true, PING));
        let tagged = format!("{}8100006408004500{}", &PING[..24], &PING[32..]);
        assert_eq!(line(true, &tagged), format!("VLAN 100, {}", line(true, PING)));
        let tcp = "45000028000040004006000001020304050607081f900050000000000000000050120000";
        assert_eq!(line(false, tcp), "1.2.3.4:8080 > 5.6.7.8:80 TCP S. ttl 64");
        let udp6 = format!("6000000000081140{}{}003500350008", "0".repeat(31) + "1", "0".repeat(31) + "2");
        assert_eq!(line(false, &udp6), "[::1]:53 > [::2]:53 UDP hlim 64");
        let arp = "ffffffffffff02000000010208060001080006040001020000000102 0a000102 000000000000 0a000101"
            .replace(' ', "");
        assert_eq!(line(true, &arp), "ARP who has 10.0.1.1, tell 10.0.1.2");
        assert_eq!(
            line(true, "0200000001010200000001028863"),
            "02:00:00:00:01:02 > 02:00:00:00:01:01 ethertype 0x8863"
        );
        assert_eq!(line(true, "0200"), "? > ? too short to read");
    }

    #[test]
    fn no_length_of_a_packet_is_too_short() {
        for end in (0..PING.len()).step_by(2) {
            let _ = Headers::of(true, &bytes(&PING[..end])).line();
            let _ = Headers::of(false, &bytes(&PING[..end])).line();
        }
    }

    #[test]
    fn changes_are_what_differs_what_is_new_and_what_is_gone() {
        let before = Headers::of(true, &bytes(PING));
        let mut data = bytes(PING)[14..].to_vec();
        data[8] -= 1;
        let after = Headers::of(false, &data);
        assert_eq!(
            after.changes(&before),
            ["TTL 64 -> 63", "no to 02:00:00:00:01:01", "no from 02:00:00:00:01:02"]
        );
        assert!(before.changes(&before).is_empty());
    }

    #[test]
    fn times_are_those_of_a_day() {
        assert_eq!(time(86_400_000_000_000 + 3_723_000_000_007), "01:02:03.000000007");
    }
}
