//! Names in the language of `IPClassifier` and `IPFilter`: the built-in tables, and the trait by
//! which a configuration adds its own (`AddressInfo`, `PortInfo`).

use std::net::Ipv4Addr;

use graph::{names, services};

/// Names that a configuration defines. Each method returns `None` for a name it does not know.
pub trait Names {
    /// The address of a host.
    fn address(&self, _name: &str) -> Option<Ipv4Addr> {
        None
    }

    /// The address and mask of a network.
    fn network(&self, _name: &str) -> Option<(Ipv4Addr, Ipv4Addr)> {
        None
    }

    /// The Ethernet address of a host.
    fn ether(&self, _name: &str) -> Option<[u8; 6]> {
        None
    }

    /// The number of a TCP port.
    fn tcp_port(&self, _name: &str) -> Option<u16> {
        None
    }

    /// The number of a UDP port.
    fn udp_port(&self, _name: &str) -> Option<u16> {
        None
    }
}

/// The names of the configuration one of whose elements is being made ([`graph::names`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct Configured;

impl Names for Configured {
    fn address(&self, name: &str) -> Option<Ipv4Addr> {
        names::address(name)
    }

    fn network(&self, name: &str) -> Option<(Ipv4Addr, Ipv4Addr)> {
        names::network(name).map(|network| (network.network(), network.netmask()))
    }

    fn ether(&self, name: &str) -> Option<[u8; 6]> {
        names::ether(name).map(|address| address.0)
    }

    fn tcp_port(&self, name: &str) -> Option<u16> {
        names::port(name, "tcp")
    }

    fn udp_port(&self, name: &str) -> Option<u16> {
        names::port(name, "udp")
    }
}

/// The number that stands for "TCP or UDP" among protocol numbers.
pub const TCP_OR_UDP: u32 = 256;
/// The number that stands for any transport protocol, as in `transp[0:2]`.
pub const ANY_TRANSPORT: u32 = 257;
/// ICMP's protocol number.
pub const ICMP: u32 = 1;
/// TCP's.
pub const TCP: u32 = 6;
/// UDP's.
pub const UDP: u32 = 17;

fn find(table: &[(&str, u32)], name: &str) -> Option<u32> {
    table.iter().find(|entry| entry.0 == name).map(|entry| entry.1)
}

/// IANA protocol numbers of the names that the language knows, and its own two.
pub fn protocol(name: &str) -> Option<u32> {
    const PROTOCOLS: [(&str, u32); 7] = [
        ("icmp", ICMP),
        ("igmp", 2),
        ("ipip", 4),
        ("tcp", TCP),
        ("udp", UDP),
        ("tcpudp", TCP_OR_UDP),
        ("transp", ANY_TRANSPORT),
    ];
    find(&PROTOCOLS, name)
}

/// What to call a protocol in a message.
pub fn protocol_name(protocol: u32) -> String {
    let names = ["icmp", "igmp", "ipip", "tcp", "udp", "tcpudp", "transp"];
    match names.into_iter().find(|name| self::protocol(name) == Some(protocol)) {
        Some(name) => name.to_owned(),
        None => format!("ip proto {protocol}"),
    }
}

/// Flags of the TCP header (RFC 9293, section 3.1), in byte 13.
pub fn tcp_option(name: &str) -> Option<u32> {
    find(&[("fin", 0x01), ("syn", 0x02), ("rst", 0x04), ("psh", 0x08), ("ack", 0x10), ("urg", 0x20)], name)
}

/// ICMP types (RFC 792, 950, 1256).
pub fn icmp_type(name: &str) -> Option<u32> {
    const TYPES: [(&str, u32); 15] = [
        ("echo-reply", 0),
        ("unreachable", 3),
        ("sourcequench", 4),
        ("redirect", 5),
        ("echo", 8),
        ("routeradvert", 9),
        ("routersolicit", 10),
        ("timeexceeded", 11),
        ("parameterproblem", 12),
        ("timestamp", 13),
        ("timestamp-reply", 14),
        ("inforeq", 15),
        ("inforeq-reply", 16),
        ("maskreq", 17),
        ("maskreq-reply", 18),
    ];
    find(&TYPES, name)
}

/// Well-known ports, the same for TCP and UDP.
pub fn port(name: &str) -> Option<u32> {
    services::well_known(name).map(u32::from)
}

/// The port of `protocol` (`tcp` or `udp`) that this host's list of services calls `name`.
pub fn host_port(name: &str, protocol: &str) -> Option<u32> {
    services::of_host(name, protocol).map(u32::from)
}
