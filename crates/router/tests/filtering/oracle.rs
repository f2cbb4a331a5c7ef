//! What a router may let pass, read from the bytes of a frame by the words of RFCs and of `brickway help ACL`. It shares
//! no code with the router.

use std::fmt::Write;

/// An IP packet as filters see it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) is_ipv6: bool,
    pub(crate) source: u128,
    pub(crate) destination: u128,
    /// Protocol, or next header, of the fixed header.
    pub(crate) first: u8,
    /// The part of the datagram that the packet is, in octets; of an IPv6 packet all behind the fixed header.
    pub(crate) begin: usize,
    pub(crate) end: usize,
    pub(crate) identification: u32,
    /// The first octets of that part.
    start: Vec<u8>,
    /// Of what is behind all headers of the network layer; none: that cannot be told, or must not pass.
    transport: Option<Transport>,
    /// Whether routers forward such a packet at all: whole, with time to live, right checksum.
    is_fit: bool,
}

#[derive(Clone, Debug)]
struct Transport {
    protocol: u8,
    /// A fragment other than the first.
    is_later: bool,
    start: Vec<u8>,
}

impl Seen {
    /// Whether this may be `sent`, or a piece of it.
    pub(crate) fn is_of(&self, sent: &Seen) -> bool {
        let is_same =
            (self.source, self.destination, self.first) == (sent.source, sent.destination, sent.first);
        let is_within = |more: usize| sent.begin <= self.begin + more && self.end + more <= sent.end;
        // The offset of a piece behind the longest datagram starts again at 0.
        let is_piece = is_within(0) || sent.end > 65_535 && is_within(65_536);
        is_same && is_piece && (self.begin != sent.begin || sent.start.starts_with(&self.start))
    }
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u128::from(byte))
}

/// The IP packet that a host with this link address takes a frame for; its priority tags do not matter.
pub(crate) fn packet_of(frame: &[u8], mac: [u8; 6]) -> Option<Seen> {
    if frame.get(..6)? != mac {
        return None;
    }
    let mut rest = &frame[12..];
    loop {
        let (kind, behind) = rest.split_at_checked(2)?;
        rest = behind;
        match kind {
            [0x81, 0x00] | [0x88, 0xa8] => {
                let (control, behind) = rest.split_at_checked(2)?;
                if number(control) & 0xfff != 0 {
                    return None;
                }
                rest = behind;
            }
            [0x08, 0x00] => return ipv4(rest),
            [0x86, 0xdd] => return ipv6(rest),
            _ => return None,
        }
    }
}

fn ipv4(bytes: &[u8]) -> Option<Seen> {
    let header = usize::from(bytes.first()? & 15) * 4;
    let total = number(bytes.get(2..4)?) as usize;
    if bytes.len() < 20 || header < 20 || total < header || total > bytes.len() {
        return None;
    }
    let words = bytes[..header].chunks(2).map(|word| number(word) as u32);
    let sum = words.fold(0, |sum, word| (sum + word) % 0xffff);
    let fragment = number(&bytes[6..8]) as usize;
    let (offset, payload) = ((fragment & 0x1fff) * 8, &bytes[header..total]);
    Some(Seen {
        is_ipv6: false,
        source: number(&bytes[12..16]),
        destination: number(&bytes[16..20]),
        first: bytes[9],
        begin: offset,
        end: offset + payload.len(),
        identification: number(&bytes[4..6]) as u32,
        start: payload[..payload.len().min(8)].to_vec(),
        transport: transport(bytes[9], offset, payload),
        is_fit: bytes[0] >> 4 == 4 && bytes[8] > 1 && sum == 0,
    })
}

fn ipv6(bytes: &[u8]) -> Option<Seen> {
    let payload = bytes.get(40..)?;
    let payload = payload.get(..number(&bytes[4..6]) as usize)?;
    Some(Seen {
        is_ipv6: true,
        source: number(&bytes[8..24]),
        destination: number(&bytes[24..40]),
        first: bytes[6],
        begin: 0,
        end: payload.len(),
        identification: number(&bytes[1..4]) as u32 & 0xf_ffff,
        start: payload[..payload.len().min(8)].to_vec(),
        transport: behind_extensions(bytes[6], payload),
        is_fit: bytes[0] >> 4 == 6 && bytes[7] > 1,
    })
}

/// RFC 8200, 4; RFC 4302, 2.2.
fn behind_extensions(mut next: u8, mut rest: &[u8]) -> Option<Transport> {
    let mut count = 0;
    while matches!(next, 0 | 43 | 44 | 51 | 60) {
        // "at most eight"; hop-by-hop options come first or not at all (4.1).
        if count == 8 || next == 0 && count > 0 {
            return None;
        }
        count += 1;
        let length = usize::from(*rest.get(1)?);
        let length = match next {
            44 => 8,
            51 if length == 0 => return None,
            51 => (length + 2) * 4,
            _ => (length + 1) * 8,
        };
        let (header, behind) = rest.split_at_checked(length)?;
        let offset = if next == 44 { number(&header[2..4]) as usize & !7 } else { 0 };
        (next, rest) = (header[0], behind);
        if offset > 0 {
            // What the protocol is, the first fragment says.
            let is_extension = matches!(next, 0 | 43 | 44 | 51 | 60);
            return transport(next, offset, rest).filter(|_| !is_extension);
        }
    }
    transport(next, 0, rest)
}

/// RFC 1858, 3; RFC 3128: none without what rules look at, or where a second fragment would change it. RFC 791, 3.1: nor
/// behind the longest datagram.
fn transport(protocol: u8, offset: usize, bytes: &[u8]) -> Option<Transport> {
    let least = match protocol {
        6 => 16,
        17 | 33 | 132 | 136 => 4,
        1 | 58 => 2,
        _ => 0,
    };
    let is_right = match offset {
        0 => bytes.len() >= least,
        _ => !(protocol == 6 && offset == 8) && offset + bytes.len() <= 65_535,
    };
    let start = bytes[..bytes.len().min(16)].to_vec();
    is_right.then_some(Transport { protocol, is_later: offset > 0, start })
}

/// A prefix of either family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefix {
    pub(crate) is_ipv6: bool,
    pub(crate) address: u128,
    pub(crate) length: u32,
}

impl Prefix {
    pub(crate) fn holds(self, is_ipv6: bool, address: u128) -> bool {
        let bits = if self.is_ipv6 { 128 } else { 32 };
        let differ = (self.address ^ address).checked_shr(bits - self.length).unwrap_or(0);
        self.is_ipv6 == is_ipv6 && differ == 0
    }
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.is_ipv6 {
            true => write!(f, "{}/{}", std::net::Ipv6Addr::from_bits(self.address), self.length),
            false => write!(f, "{}/{}", std::net::Ipv4Addr::from_bits(self.address as u32), self.length),
        }
    }
}

/// A rule of an access list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rule {
    pub(crate) permits: bool,
    pub(crate) protocol: Option<u8>,
    pub(crate) from: Option<Prefix>,
    pub(crate) to: Option<Prefix>,
    pub(crate) from_ports: Option<(u16, u16)>,
    pub(crate) to_ports: Option<(u16, u16)>,
    /// The number of the port that the packet came in by, from 1.
    pub(crate) input: Option<usize>,
    pub(crate) icmp_type: Option<u8>,
    pub(crate) is_established: bool,
    pub(crate) is_fragment: bool,
}

impl Rule {
    fn text(&self) -> String {
        let prefix = |prefix: &Option<Prefix>| prefix.map_or("any".to_owned(), |prefix| prefix.to_string());
        let ports = |ports: &Option<(u16, u16)>| {
            ports.map_or(String::new(), |(first, last)| format!(" port {first}-{last}"))
        };
        let protocol = match self.protocol {
            None => "any".to_owned(),
            Some(1) => "icmp".to_owned(),
            Some(58) => "icmp6".to_owned(),
            Some(number) => number.to_string(),
        };
        let mut text = format!(
            "{} {protocol} {}{} {}{}",
            if self.permits { "permit" } else { "deny" },
            prefix(&self.from),
            ports(&self.from_ports),
            prefix(&self.to),
            ports(&self.to_ports),
        );
        for (word, number) in [("in eth", self.input), ("icmp-type ", self.icmp_type.map(usize::from))] {
            if let Some(number) = number {
                let _ = write!(text, " {word}{number}");
            }
        }
        text += if self.is_established { " established" } else { "" };
        text + if self.is_fragment { " fragment" } else { "" }
    }

    fn matches(&self, packet: &Seen, transport: &Transport, input: usize) -> bool {
        let start = |at: usize| transport.start.get(at..at + 2).map(|bytes| number(bytes) as u16);
        let is_in = |ports: Option<(u16, u16)>, at: usize| match ports {
            None => true,
            Some((first, last)) => {
                let has_ports = matches!(transport.protocol, 6 | 17 | 33 | 132 | 136) && !transport.is_later;
                has_ports && start(at).is_some_and(|port| (first..=last).contains(&port))
            }
        };
        let is_of = |prefix: Option<Prefix>, address| {
            prefix.is_none_or(|prefix| prefix.holds(packet.is_ipv6, address))
        };
        let has_type = |wanted: u8| !transport.is_later && transport.start.first() == Some(&wanted);
        let has_flags = || {
            let flags = transport.start.get(13).is_some_and(|flags| flags & 0x14 != 0);
            transport.protocol == 6 && !transport.is_later && flags
        };
        self.protocol.is_none_or(|protocol| {
            let is_of_family = match protocol {
                1 => !packet.is_ipv6,
                58 => packet.is_ipv6,
                _ => true,
            };
            protocol == transport.protocol && is_of_family
        }) && is_of(self.from, packet.source)
            && is_of(self.to, packet.destination)
            && is_in(self.from_ports, 0)
            && is_in(self.to_ports, 2)
            && self.input.is_none_or(|wanted| wanted == input)
            && self.icmp_type.is_none_or(has_type)
            && (!self.is_established || has_flags())
            && (!self.is_fragment || transport.is_later)
    }
}

/// What decides which packets may pass.
#[derive(Clone, Debug)]
pub(crate) enum Policy {
    /// An access list. Its first rule asks for ports, so that it denies whatever hides its transport header.
    List(Vec<Rule>),
    /// The route to the source has to lead back. Prefixes with the port that they are behind, or none: these are no
    /// sources.
    Sources(Vec<(Prefix, Option<usize>)>),
    /// A script, or a configuration: UDP passes, right behind the IP header.
    Udp,
}

impl Policy {
    /// The rules, one a line.
    pub(crate) fn text(&self) -> String {
        match self {
            Policy::List(rules) => rules.iter().map(|rule| rule.text() + "\n").collect(),
            Policy::Sources(_) | Policy::Udp => String::new(),
        }
    }

    /// Whether a packet that came in by the port of this number may leave.
    pub(crate) fn permits(&self, packet: &Seen, input: usize) -> bool {
        packet.is_fit
            && match self {
                Policy::List(rules) => packet.transport.as_ref().is_some_and(|transport| {
                    let rule = rules.iter().find(|rule| rule.matches(packet, transport, input));
                    rule.is_some_and(|rule| rule.permits)
                }),
                Policy::Sources(routes) => {
                    let known =
                        routes.iter().filter(|(prefix, _)| prefix.holds(packet.is_ipv6, packet.source));
                    let best = known.max_by_key(|(prefix, _)| prefix.length);
                    best.is_some_and(|&(_, port)| port == Some(input))
                }
                Policy::Udp => packet.first == 17,
            }
    }
}
