//! Which flow a packet belongs to, by as many of its first bytes as there are.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use packet::wire::ipv4::Ipv4;
use packet::wire::ipv6::{HEADER_LEN, Ipv6};
use packet::wire::ipv6_extension::UpperLayer;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// A tag of 802.1Q or 802.1ad follows.
const TAGS: [u16; 2] = [0x8100, 0x88a8];

/// What packets of a flow have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Flow {
    /// Addresses, protocol and, where the packet has them, ports: of TCP, UDP and SCTP, of whole packets and first fragments.
    Ip { source: IpAddr, destination: IpAddr, protocol: u8, ports: Option<(u16, u16)> },
    /// What is not IP, or too short: the type of the frame, 0 where there is none.
    Other { ethertype: u16 },
}

/// What a packet's headers say beside its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) flow: Flow,
    /// Where the IP header begins; 0 where there is none.
    pub(crate) network: usize,
    /// The number of the outermost tag's VLAN.
    pub(crate) vlan: Option<u16>,
}

impl Parsed {
    /// Reads the headers of a packet that begins with an Ethernet header, or with an IP header.
    pub(crate) fn of(is_ethernet: bool, data: &[u8]) -> Self {
        let half = |at: usize| data.get(at..)?.first_chunk().map(|&bytes| u16::from_be_bytes(bytes));
        let (mut network, mut vlan) = (0, None);
        let ethertype = if is_ethernet {
            let mut at = 12;
            let mut kind = half(at).unwrap_or(0);
            while TAGS.contains(&kind) {
                vlan = vlan.or(half(at + 2).map(|tag| tag & 0xfff));
                at += 4;
                kind = half(at).unwrap_or(0);
            }
            network = at + 2;
            kind
        } else {
            match data.first().map_or(0, |first| first >> 4) {
                4 => IPV4,
                6 => IPV6,
                _ => 0,
            }
        };
        let flow = data.get(network..).and_then(|packet| ip(ethertype, packet));
        let network = if flow.is_some() { network } else { 0 };
        Self { flow: flow.unwrap_or(Flow::Other { ethertype }), network, vlan }
    }
}

/// Reads the flow of an IP packet of which there are these bytes.
fn ip(ethertype: u16, packet: &[u8]) -> Option<Flow> {
    let (source, destination, protocol, upper) = match ethertype {
        IPV4 if packet.len() >= 20 => {
            let header = Ipv4::new_unchecked(packet);
            let begin = (header.fragment_offset() == 0).then(|| header.header_len());
            let (source, destination) = (header.source().into(), header.destination().into());
            (source, destination, header.protocol().0, begin.and_then(|begin| packet.get(begin..)))
        }
        IPV6 if packet.len() >= HEADER_LEN => {
            let header = Ipv6::new_unchecked(packet);
            let upper = header.upper_layer().ok();
            let protocol = upper.as_ref().map_or(header.next_header(), |upper| upper.protocol);
            let has_header = |upper: &UpperLayer| upper.fragment.is_none_or(|fragment| fragment.offset == 0);
            let upper = upper.filter(has_header).and_then(|upper| packet.get(upper.offset..));
            (header.source().into(), header.destination().into(), protocol.0, upper)
        }
        _ => return None,
    };
    let ports = upper.filter(|_| [6, 17, 132].contains(&protocol)).and_then(|upper| {
        let &[a, b, c, d] = upper.first_chunk()?;
        Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    });
    Some(Flow::Ip { source, destination, protocol, ports })
}

/// The name of a protocol (IANA, "Assigned Internet Protocol Numbers"), or its number.
pub(crate) fn protocol_name(protocol: u8) -> String {
    let name = match protocol {
        1 => "ICMP",
        2 => "IGMP",
        4 => "IPIP",
        6 => "TCP",
        17 => "UDP",
        41 => "IPv6",
        47 => "GRE",
        50 => "ESP",
        51 => "AH",
        58 => "ICMPv6",
        89 => "OSPF",
        112 => "VRRP",
        132 => "SCTP",
        other => return format!("protocol {other}"),
    };
    name.to_owned()
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ip { source, destination, protocol, ports } => {
                write!(f, "{} ", protocol_name(protocol))?;
                match ports {
                    Some((from, to)) => {
                        write!(f, "{} > {}", SocketAddr::new(source, from), SocketAddr::new(destination, to))
                    }
                    None => write!(f, "{source} > {destination}"),
                }
            }
            Self::Other { ethertype: 0 } => f.write_str("too short to read"),
            Self::Other { ethertype: 0x0806 } => f.write_str("ARP"),
            Self::Other { ethertype } => write!(f, "ethertype 0x{ethertype:04x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETHERNET: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    const IPV4_UDP: [u8; 28] = [
        0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 1, 2, 10, 0, 2, 2, // IP
        0, 53, 0x30, 0x39, 0, 8, 0, 0, // ports 53 and 12345
    ];

    fn frame(before: &[u8], packet: &[u8]) -> Vec<u8> {
        [&ETHERNET[..], before, packet].concat()
    }

    #[test]
    fn addresses_protocol_and_ports_make_a_flow_with_tags_or_without_a_frame() {
        let text = "UDP 10.0.1.2:53 > 10.0.2.2:12345";
        let tagged = Parsed::of(true, &frame(&[0x88, 0xa8, 0, 7, 0x81, 0, 0x20, 100, 8, 0], &IPV4_UDP));
        assert_eq!((tagged.flow.to_string().as_str(), tagged.network, tagged.vlan), (text, 22, Some(7)));
        let plain = Parsed::of(false, &IPV4_UDP);
        assert_eq!((plain.flow, plain.network, plain.vlan), (tagged.flow, 0, None));
        let mut later = IPV4_UDP;
        later[7] = 1;
        assert_eq!(Parsed::of(false, &later).flow.to_string(), "UDP 10.0.1.2 > 10.0.2.2");
    }

    #[test]
    fn ipv6_is_looked_at_behind_its_extensions() {
        let mut packet = vec![0x60, 0, 0, 0, 0, 16, 60, 64];
        packet.extend("2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
        packet.extend("2001:db8::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
        packet.extend([6, 0, 1, 4, 0, 0, 0, 0, 0x1f, 0x90, 0, 80, 0, 0, 0, 0]);
        let text = "TCP [2001:db8::1]:8080 > [2001:db8::2]:80";
        assert_eq!(Parsed::of(true, &frame(&[0x86, 0xdd], &packet)).flow.to_string(), text);
        // Cut off inside the extension.
        assert_eq!(
            Parsed::of(false, &packet[..44]).flow.to_string(),
            "protocol 60 2001:db8::1 > 2001:db8::2"
        );
    }

    #[test]
    fn what_is_not_ip_or_too_short_has_its_type() {
        let flow = |data: &[u8]| Parsed::of(true, data).flow.to_string();
        assert_eq!(flow(&frame(&[0x88, 0xcc], &[1, 2])), "ethertype 0x88cc");
        assert_eq!(flow(&frame(&[8, 6], &[])), "ARP");
        assert_eq!(flow(&frame(&[8, 0], &IPV4_UDP[..19])), "ethertype 0x0800");
        assert_eq!(flow(&ETHERNET[..4]), "too short to read");
        assert_eq!(Parsed::of(false, &[]).flow, Flow::Other { ethertype: 0 });
    }
}
