//! In what the rewriters differ: what of a packet names its flow, and what patterns they take.

use packet::Packet;
use packet::wire::IpProtocol;
use packet::wire::icmp::{Icmp, IcmpType};
use packet::wire::ipv4::Ipv4;
use packet::wire::udp::Udp;

use super::flow::{Flow, Key, Tuple};
use super::pattern::Pattern;

/// A class of rewriters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// IPRewriter: TCP and UDP.
    Both,
    /// TCPRewriter.
    Tcp,
    /// UDPRewriter: UDP, and TCP and DCCP as if they were UDP.
    Udp,
    /// IPAddrRewriter: source addresses.
    Address,
    /// IPAddrPairRewriter: both addresses.
    Pair,
    /// ICMPPingRewriter: addresses and identifiers of echoes.
    Ping,
}

pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const DCCP: u8 = 33;

/// ICMP types (RFC 792).
pub(super) const ECHO_REPLY: u8 = 0;
pub(super) const ECHO: u8 = 8;

/// A packet as rewriters see it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sight {
    pub(super) tuple: Tuple,
    pub(super) protocol: u8,
    /// Whether it may make a mapping: a reply to a ping may not.
    pub(super) begins: bool,
}

impl Kind {
    /// The class of that name.
    pub(super) fn of(class: &str) -> Option<Self> {
        Some(match class {
            "IPRewriter" => Self::Both,
            "TCPRewriter" => Self::Tcp,
            "UDPRewriter" => Self::Udp,
            "IPAddrRewriter" => Self::Address,
            "IPAddrPairRewriter" => Self::Pair,
            "ICMPPingRewriter" => Self::Ping,
            _ => return None,
        })
    }

    /// Whether packets of `protocol` are translated.
    pub(super) fn takes(self, protocol: u8) -> bool {
        match self {
            Self::Both => matches!(protocol, TCP | UDP),
            Self::Tcp => protocol == TCP,
            Self::Udp => matches!(protocol, TCP | UDP | DCCP),
            Self::Ping => protocol == ICMP,
            Self::Address | Self::Pair => true,
        }
    }

    /// Returns what was expected instead of a pattern that this class cannot use.
    pub(super) fn accepts(self, pattern: &Pattern) -> Result<(), String> {
        match self {
            Self::Address if pattern.has_ports() || pattern.has_destination() => {
                Err("patterns of IPAddrRewriter are 'SADDR -'".to_owned())
            }
            Self::Pair if pattern.has_ports() => {
                Err("patterns of IPAddrPairRewriter are 'SADDR DADDR'".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// What a packet's flow is; an error is why it is not translated.
    #[inline(always)]
    pub(super) fn sight(self, packet: &Packet) -> Result<Sight, &'static str> {
        let header = packet.network().and_then(|bytes| bytes.first_chunk::<20>()).ok_or("no IP header")?;
        let header = Ipv4::new_unchecked(header);
        let (source, destination) = (header.source().to_bits(), header.destination().to_bits());
        let mut tuple = Tuple { source, destination, ..Tuple::default() };
        if matches!(self, Self::Address | Self::Pair) {
            return Ok(Sight { tuple, protocol: 0, begins: true });
        }
        let IpProtocol(protocol) = header.protocol();
        if !self.takes(protocol) {
            return Err(match self {
                Self::Tcp => "not TCP",
                Self::Ping => "not ICMP",
                _ => "not TCP or UDP",
            });
        }
        if header.fragment_offset() != 0 {
            return Err("fragment without ports");
        }
        let start = packet
            .transport()
            .and_then(|bytes| bytes.first_chunk::<8>())
            .ok_or("transport header cut off")?;
        if self != Self::Ping {
            // TCP and DCCP have their ports where UDP has them.
            let ports = Udp::new_unchecked(start);
            (tuple.source_port, tuple.destination_port) = (ports.source_port(), ports.destination_port());
            return Ok(Sight { tuple, protocol, begins: true });
        }
        let message = Icmp::new_unchecked(start);
        let IcmpType(kind) = message.icmp_type();
        if !matches!(kind, ECHO | ECHO_REPLY) {
            return Err("not an echo");
        }
        Ok(echo(source, destination, message.identifier(), kind == ECHO))
    }

    /// A flow's tuple among those of its kind, for a packet seen so.
    #[inline(always)]
    pub(super) fn tuple(self, tuple: Tuple) -> Tuple {
        match self {
            Self::Address => Tuple { source: tuple.source, ..Tuple::default() },
            Self::Pair => Tuple { source_port: 0, destination_port: 0, ..tuple },
            _ => tuple,
        }
    }

    /// By what else a flow may be found: IPAddrRewriter looks for the destination where it does not know the source.
    #[inline(always)]
    pub(super) fn second_key(self, sight: &Sight, map: u32) -> Option<Key> {
        let tuple = Tuple { destination: sight.tuple.destination, ..Tuple::default() };
        (self == Self::Address).then_some(Key { tuple, map })
    }

    /// Makes of what a pattern gave a flow of this kind.
    pub(super) fn settle(self) -> fn(Tuple) -> Tuple {
        match self {
            Self::Ping => |tuple| Tuple { destination_port: tuple.source_port.wrapping_add(1), ..tuple },
            _ => |tuple| tuple,
        }
    }

    /// What a packet of the flow becomes as a whole.
    #[inline(always)]
    pub(super) fn translated(self, flow: &Flow, reply: bool, packet: Tuple) -> Tuple {
        let target = flow.target(reply);
        match (self, reply) {
            (Self::Address, false) => Tuple { source: target.source, ..packet },
            (Self::Address, true) => Tuple { destination: target.destination, ..packet },
            (Self::Pair, _) => Tuple { source: target.source, destination: target.destination, ..packet },
            _ => target,
        }
    }
}

/// An echo's flow. The port that is the identifier's successor stands on the side of who is asked, so that no request
/// looks like a reply to one.
pub(super) fn echo(source: u32, destination: u32, identifier: u16, request: bool) -> Sight {
    let successor = identifier.wrapping_add(1);
    let (source_port, destination_port) =
        if request { (identifier, successor) } else { (successor, identifier) };
    Sight {
        tuple: Tuple { source, destination, source_port, destination_port },
        protocol: ICMP,
        begins: request,
    }
}
