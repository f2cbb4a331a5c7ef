//! A rule of an access control list: what it asks of a packet, and how it is written.

use std::fmt;
use std::str::FromStr;

use graph::lang::{name_argument, unquote};
use ipnet::IpNet;
use packet::IpVersion;
use packet::wire::IpProtocol;

use super::parse::parse_asked;

/// What becomes of a packet that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Permit,
    Deny,
}

impl Action {
    pub(super) fn of_permits(permits: bool) -> Self {
        if permits { Self::Permit } else { Self::Deny }
    }

    /// What becomes of packets that no rule matches, where nobody said it. A list of what is permitted denies the rest, as in other
    /// routers. A list of nothing but denials permits it: else it would be no list.
    pub(super) fn of_the_rest(rules: &[Rule]) -> Self {
        let denies_alone = !rules.is_empty() && rules.iter().all(|rule| rule.action == Self::Deny);
        if denies_alone { Self::Permit } else { Self::Deny }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Permit => "permit",
            Self::Deny => "deny",
        })
    }
}

/// The only family that a protocol is for, if it is for one.
pub(super) fn only_version(protocol: u8) -> Option<IpVersion> {
    match IpProtocol(protocol) {
        IpProtocol::ICMP => Some(IpVersion::V4),
        IpProtocol::ICMPV6 => Some(IpVersion::V6),
        _ => None,
    }
}

/// A family in a rule.
pub(super) const fn version_word(version: IpVersion) -> &'static str {
    match version {
        IpVersion::V4 => "ipv4",
        IpVersion::V6 => "ipv6",
    }
}

/// Ports from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PortRange {
    pub(crate) first: u16,
    pub(crate) last: u16,
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {}", self.first)?;
        if self.last == self.first { Ok(()) } else { write!(f, "-{}", self.last) }
    }
}

/// Names that rules have for protocols beside those of [`IpProtocol`], and instead of them: `ipv6` is a
/// family in a rule.
const MORE_PROTOCOLS: [(&str, u8); 5] =
    [("dccp", 33), ("6in4", IpProtocol::IPV6.0), ("eigrp", 88), ("vrrp", 112), ("udplite", 136)];

/// Whether a packet of the protocol begins with a source and a destination port: TCP, UDP, DCCP, SCTP,
/// UDP-Lite.
pub(crate) const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 33 | 132 | 136)
}

/// The number of a protocol's name, or of a number.
pub(crate) fn protocol_number(word: &str) -> Option<u8> {
    word.parse().ok().or_else(|| (0..=u8::MAX).find(|&number| protocol_name(number) == word))
}

/// The name of a protocol, or its number.
pub(super) fn protocol_name(protocol: u8) -> String {
    let more = MORE_PROTOCOLS.iter().find(|(_, number)| *number == protocol);
    more.map_or_else(|| IpProtocol(protocol).to_string(), |(name, _)| (*name).to_owned())
}

/// A rule. What is `None` or false is not asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rule {
    /// Its place in the list; no two rules have the same.
    pub(crate) sequence: u32,
    pub(crate) action: Action,
    /// Packets of this family only: said in words, by a prefix or by the protocol.
    pub(crate) version: Option<IpVersion>,
    pub(crate) protocol: Option<u8>,
    pub(crate) source: Option<IpNet>,
    pub(crate) source_ports: Option<PortRange>,
    pub(crate) destination: Option<IpNet>,
    pub(crate) destination_ports: Option<PortRange>,
    /// The paint of the input port.
    pub(crate) input: Option<u8>,
    /// ICMP type and, perhaps, code.
    pub(crate) icmp_type: Option<(u8, Option<u8>)>,
    /// TCP with the ACK or RST bit.
    pub(crate) established: bool,
    /// A fragment other than the first.
    pub(crate) fragment: bool,
}

impl Rule {
    /// Whether it asks for something that stands in the transport header.
    pub(super) fn needs_transport(&self) -> bool {
        self.source_ports.is_some()
            || self.destination_ports.is_some()
            || self.icmp_type.is_some()
            || self.established
    }

    /// Whether it asks for something that, in IPv6, only a walk over the extension headers tells.
    pub(super) fn needs_protocol(&self) -> bool {
        self.protocol.is_some() || self.fragment
    }
}

/// Names of input interfaces, each with the paint that its packets have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inputs(pub(super) Vec<(String, u8)>);

impl Inputs {
    /// The paint of a name, which may be quoted, or of a number.
    pub(super) fn paint(&self, word: &str) -> Option<u8> {
        let named = |word: &str| self.0.iter().find(|(name, _)| name == word).map(|(_, paint)| *paint);
        named(word).or_else(|| named(&unquote(word))).or_else(|| word.parse().ok())
    }

    /// The name of a paint, or its number.
    fn name(&self, paint: u8) -> String {
        let named = self.0.iter().find(|(_, known)| *known == paint);
        named.map_or_else(|| paint.to_string(), |(name, _)| name_argument(name))
    }
}

/// A rule as text.
pub(super) struct Written<'a> {
    pub(super) rule: &'a Rule,
    pub(super) inputs: &'a Inputs,
}

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.rule.sequence, self.rule.action)?;
        self.fmt_asked(f)
    }
}

impl Written<'_> {
    /// Writes what the rule asks of packets.
    fn fmt_asked(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = self.rule;
        let said =
            rule.source.or(rule.destination).is_some() || rule.protocol.and_then(only_version).is_some();
        if let Some(version) = rule.version.filter(|_| !said) {
            write!(f, "{} ", version_word(version))?;
        }
        f.write_str(&rule.protocol.map_or_else(|| "any".to_owned(), protocol_name))?;
        for (prefix, ports) in [(rule.source, rule.source_ports), (rule.destination, rule.destination_ports)]
        {
            match prefix {
                Some(prefix) => write!(f, " {prefix}")?,
                None => f.write_str(" any")?,
            }
            if let Some(ports) = ports {
                write!(f, " {ports}")?;
            }
        }
        if let Some(paint) = rule.input {
            write!(f, " in {}", self.inputs.name(paint))?;
        }
        match rule.icmp_type {
            Some((kind, Some(code))) => write!(f, " icmp-type {kind}/{code}")?,
            Some((kind, None)) => write!(f, " icmp-type {kind}")?,
            None => {}
        }
        if rule.established {
            f.write_str(" established")?;
        }
        if rule.fragment {
            f.write_str(" fragment")?;
        }
        Ok(())
    }
}

/// A rule without number and action: packets that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrafficRule(pub(super) Rule);

impl FromStr for TrafficRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_asked(text).map(Self)
    }
}

impl fmt::Display for TrafficRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Written { rule: &self.0, inputs: &Inputs::default() }.fmt_asked(f)
    }
}
