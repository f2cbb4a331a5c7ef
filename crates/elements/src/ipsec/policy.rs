//! Policies (RFC 4301, section 4.4.1): which packets have to be protected, and how.

use std::fmt;

use ipnet::IpNet;
use ipsec::Endpoints;
use ipsec::association::Mode;
use packet::IpVersion;
use packet::wire::IpProtocol;

use crate::acl::{Action, PortRange, Rule, has_ports};

/// What a policy asks of a packet. Source and destination are of one family.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    /// Source addresses.
    pub source: IpNet,
    /// Destination addresses.
    pub destination: IpNet,
    /// Protocol behind the IP header and its extensions; `None` for all.
    pub protocol: Option<u8>,
    /// First and last source port; of ICMP the type. `None` for all.
    pub source_ports: Option<(u16, u16)>,
    /// First and last destination port; of ICMP the code. `None` for all.
    pub destination_ports: Option<(u16, u16)>,
}

impl Selector {
    /// Returns the selector of all packets between two prefixes.
    pub fn between(source: IpNet, destination: IpNet) -> Self {
        Self { source, destination, protocol: None, source_ports: None, destination_ports: None }
    }

    /// Whether the fast path can match packets by it: ports of protocols that have ports, whole types and codes of ICMP.
    pub fn can_match(&self) -> bool {
        self.rule(0).is_some()
    }

    /// Whether it asks for something that only the first fragment of a packet has.
    pub(super) fn asks_ports(&self) -> bool {
        self.source_ports.is_some() || self.destination_ports.is_some()
    }

    /// Returns the rule that matches the same packets; `None` if there is none.
    pub(super) fn rule(&self, sequence: u32) -> Option<Rule> {
        let version = match (self.source, self.destination) {
            (IpNet::V4(_), IpNet::V4(_)) => IpVersion::V4,
            (IpNet::V6(_), IpNet::V6(_)) => IpVersion::V6,
            _ => return None,
        };
        let net = |net: IpNet| (net.prefix_len() != 0).then_some(net.trunc());
        let mut rule = Rule {
            sequence,
            action: Action::Permit,
            version: Some(version),
            protocol: self.protocol,
            source: net(self.source),
            source_ports: None,
            destination: net(self.destination),
            destination_ports: None,
            input: None,
            icmp_type: None,
            established: false,
            fragment: false,
        };
        let ports = |ports: Option<(u16, u16)>| ports.map(|(first, last)| PortRange { first, last });
        match (self.protocol, self.source_ports, self.destination_ports) {
            (_, None, None) => {}
            (Some(protocol), ..) if has_ports(protocol) => {
                rule.source_ports = ports(self.source_ports);
                rule.destination_ports = ports(self.destination_ports);
            }
            (Some(protocol), Some((kind, last)), code) if is_icmp(protocol) && kind == last => {
                let code = match code {
                    None => None,
                    Some((first, last)) if first == last => Some(u8::try_from(first).ok()?),
                    Some(_) => return None,
                };
                rule.icmp_type = Some((u8::try_from(kind).ok()?, code));
            }
            _ => return None,
        }
        Some(rule)
    }
}

fn is_icmp(protocol: u8) -> bool {
    [IpProtocol::ICMP.0, IpProtocol::ICMPV6.0].contains(&protocol)
}

impl Selector {
    /// Returns what it asks of packets beside addresses: `tcp to port 80`.
    pub fn conditions(&self) -> String {
        let mut parts: Vec<String> =
            self.protocol.iter().map(|protocol| IpProtocol(*protocol).to_string()).collect();
        let names =
            if self.protocol.is_some_and(is_icmp) { ["type", "code"] } else { ["from port", "to port"] };
        for (name, numbers) in names.into_iter().zip([self.source_ports, self.destination_ports]) {
            match numbers {
                None => {}
                Some((first, last)) if first == last => parts.push(format!("{name} {first}")),
                Some((first, last)) => parts.push(format!("{name} {first}-{last}")),
            }
        }
        parts.join(" ")
    }

    /// Returns its source and its destination, each with its ports, as text.
    fn ends(&self) -> [String; 2] {
        [(self.source, self.source_ports), (self.destination, self.destination_ports)].map(|(net, ports)| {
            match ports {
                None => net.to_string(),
                Some((first, last)) if first == last => format!("{net} port {first}"),
                Some((first, last)) => format!("{net} port {first}-{last}"),
            }
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            None => f.write_str("any")?,
            Some(protocol) => write!(f, "{}", IpProtocol(protocol))?,
        }
        let [from, to] = self.ends();
        write!(f, " {from} {to}")
    }
}

/// Which packets a policy is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Packets that are sent: what has to be done to them.
    Out,
    /// Packets that were received, and are for others: what must have been done to them.
    Forward,
}

impl Direction {
    /// Returns the word that `ip xfrm` has for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::Forward => "fwd",
        }
    }
}

/// The associations that a policy accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Template {
    /// Outer addresses.
    pub endpoints: Endpoints,
    /// The number that ties associations to policies; 0 for all.
    pub request: u32,
    /// The SPI of the only association; 0 for all.
    pub spi: u32,
    /// What is protected.
    pub mode: Mode,
    /// Whether a received packet may also come unprotected.
    pub is_optional: bool,
}

/// What a policy says about its packets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PolicyAction {
    /// They pass unprotected.
    Bypass,
    /// They are dropped.
    Discard,
    /// They are protected by the newest association that fits.
    Protect(Template),
    /// Linux handles them. The text says what the fast path lacks.
    Linux(String),
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// Which packets are asked about.
    pub direction: Direction,
    /// Which of these it is for.
    pub selector: Selector,
    /// What it says.
    pub action: PolicyAction,
}
