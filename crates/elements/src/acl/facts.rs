//! What rules look at in a packet, of either family, in one pass over its headers.
//!
//! Of a fragment other than the first there is no transport header, so it has no ports, ICMP type or TCP
//! flags and no rule that asks for one matches it. The two tricks of RFC 1858 against that are answered here:
//! a first fragment that is too short to hold what rules ask for, and a second one that begins inside the TCP
//! header, are *flaws*, and so is a chain of IPv6 extension headers that does not lead to a transport header.

use std::hint::select_unpredictable;

use packet::Packet;
use packet::wire::ipv4::{self, Ipv4};
use packet::wire::ipv6::{self, Ipv6};
use packet::wire::ipv6_extension::{Ipv6Extension, Ipv6ExtensionBody, Ipv6Fragment};
use packet::wire::tcp::{Tcp, TcpFlags};
use packet::wire::{IpProtocol, WireError};

use super::rule::has_ports;

/// Number of values of [`Facts::kind`].
pub(super) const KINDS: usize = 513;
/// Added to the protocol for a fragment other than the first.
pub(super) const LATER: u16 = 256;
/// TCP with the ACK or RST bit.
pub(super) const ESTABLISHED: u16 = 512;

/// As much of a TCP header as rules look at, and what RFC 1858, section 3.1, wants of a first fragment.
const TCP_MINIMUM: usize = 16;
/// RFC 791, section 3.1: total length is a field of 16 bits.
const MAX_DATAGRAM: usize = 65_535;
const ACK_OR_RST: u16 = TcpFlags::ACK.0 | TcpFlags::RST.0;

/// Why a packet cannot be judged by rules that ask for its protocol or its transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// Neither an IPv4 nor an IPv6 header where the network header should be.
    NoHeader,
    /// A first fragment without its transport header, or a second one that would overwrite it.
    TinyFragment,
    /// A fragment that ends behind the longest datagram. Cut again for a smaller link, its offset starts again at 0, and
    /// its end becomes a first fragment that nobody has judged.
    BeyondEnd,
    /// A whole packet without its transport header.
    NoTransport,
    /// The extension headers lead nowhere.
    Extensions(WireError),
    /// A fragment other than the first, of a packet whose first one goes on with extension headers. They say the protocol.
    HiddenProtocol,
}

impl Flaw {
    /// The reason for which it is dropped.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::NoHeader => "no IP header",
            Self::TinyFragment => "tiny fragment",
            Self::BeyondEnd => "fragment beyond 65535 octets",
            Self::NoTransport => "truncated transport header",
            Self::Extensions(error) => error.reason(),
            Self::HiddenProtocol => "fragment of a hidden protocol",
        }
    }

    /// Whether already the protocol is unknown, and not only the transport header.
    pub(super) fn hides_protocol(self) -> bool {
        matches!(self, Self::NoHeader | Self::Extensions(_) | Self::HiddenProtocol)
    }
}

/// What rules look at, apart from addresses and input interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// The protocol, [`LATER`] more for a fragment other than the first; [`ESTABLISHED`] for TCP with ACK or
    /// RST.
    pub(super) kind: u16,
    /// Source port; means something only where `kind` has ports.
    pub(super) source_port: u16,
    /// Destination port; for ICMP the type in the high octet and the code in the low one.
    pub(super) destination_port: u16,
    pub(super) flaw: Option<Flaw>,
    in_common: InCommon,
}

/// What a packet has in common with the other fragments of its datagram, apart from addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum InCommon {
    /// All: there are no others.
    #[default]
    All,
    Protocol,
    /// Not even the protocol, which extension headers in the first fragment say.
    Nothing,
}

impl Facts {
    /// Returns what holds for all fragments of the datagram.
    #[inline(always)]
    pub(super) fn of_all_fragments(self) -> Self {
        if self.in_common == InCommon::All {
            return self;
        }
        let protocol =
            if self.kind == ESTABLISHED { u16::from(IpProtocol::TCP.0) } else { self.kind % LATER };
        let is_hidden = self.in_common == InCommon::Nothing;
        let flaw = if is_hidden { Some(Flaw::HiddenProtocol) } else { None };
        Self { kind: LATER + protocol, source_port: 0, destination_port: 0, flaw, ..self }
    }
}

/// Addresses in host order, and the rest.
pub(super) type Judged<A> = (A, A, Facts);

/// How much of a datagram a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Whole,
    First,
    /// Where it begins, in units of 8 octets.
    Later(u16),
}

/// The version of the IP header, if there is one.
#[inline(always)]
pub(super) fn version(packet: &Packet) -> Option<u8> {
    packet.network()?.first().map(|first| first >> 4)
}

/// The facts of an IPv4 packet whose header was checked.
#[inline(always)]
pub(super) fn of_ipv4(packet: &Packet) -> Option<Judged<u32>> {
    let network = packet.network()?;
    let header = Ipv4::new_unchecked(network.first_chunk::<{ ipv4::MIN_HEADER_LEN }>()?);
    let transport = network.get(header.header_len()..).unwrap_or_default();
    let protocol = header.protocol().0;
    let facts = match transport.first_chunk().filter(|_| !header.is_fragment()) {
        Some(start) => of_start(protocol, start),
        None => of_part(protocol, part(header.fragment_offset(), header.more_fragments()), transport),
    };
    Some((header.source().to_bits(), header.destination().to_bits(), facts))
}

/// The facts of an IPv6 packet whose header was checked.
#[inline(always)]
pub(super) fn of_ipv6(packet: &Packet) -> Option<Judged<u128>> {
    let network = packet.network()?;
    let header = Ipv6::new_unchecked(network.first_chunk::<{ ipv6::HEADER_LEN }>()?);
    let next_header = header.next_header();
    let facts = match network[ipv6::HEADER_LEN..].first_chunk() {
        Some(start) if !next_header.is_ipv6_extension() => of_start(next_header.0, start),
        _ => of_chain(network),
    };
    Some((header.source().to_bits(), header.destination().to_bits(), facts))
}

/// The ordinary case: the transport header of a whole packet, without a branch on the protocol.
#[inline(always)]
fn of_start(protocol: u8, start: &[u8; TCP_MINIMUM]) -> Facts {
    let start = Tcp::new_unchecked(start);
    let (first, second) = (start.source_port(), start.destination_port());
    // Not `&&` and `||`: nobody could predict the protocol.
    let is_icmp = (protocol == IpProtocol::ICMP.0) | (protocol == IpProtocol::ICMPV6.0);
    let is_established = (protocol == IpProtocol::TCP.0) & (start.flags().0 & ACK_OR_RST != 0);
    Facts {
        kind: select_unpredictable(is_established, ESTABLISHED, u16::from(protocol)),
        source_port: first,
        destination_port: select_unpredictable(is_icmp, first, second),
        flaw: None,
        in_common: InCommon::All,
    }
}

/// `offset` is in octets.
fn part(offset: u16, more: bool) -> Part {
    match (offset, more) {
        (0, false) => Part::Whole,
        (0, true) => Part::First,
        (offset, _) => Part::Later(offset / 8),
    }
}

/// Any packet whose protocol is known.
#[inline(never)]
fn of_part(protocol: u8, part: Part, transport: &[u8]) -> Facts {
    let is_tcp = protocol == IpProtocol::TCP.0;
    if let Part::Later(offset) = part {
        // RFC 1858, section 3.2.2, and RFC 3128: "IF FO=1 and PROTOCOL=TCP THEN DROP PACKET".
        let flaw = if is_tcp && offset == 1 {
            Some(Flaw::TinyFragment)
        } else {
            (usize::from(offset) * 8 + transport.len() > MAX_DATAGRAM).then_some(Flaw::BeyondEnd)
        };
        return Facts {
            kind: LATER + u16::from(protocol),
            flaw,
            in_common: InCommon::Protocol,
            ..Facts::default()
        };
    }
    let needed = match protocol {
        // RFC 1858, section 3.2.1: "IF FO=0 and PROTOCOL=TCP and TRANSPORTLEN < tmin THEN DROP PACKET"; so
        // that ports and flags are in the first fragment.
        6 => TCP_MINIMUM,
        _ if has_ports(protocol) => 4,
        1 | 58 => 2,
        _ => 0,
    };
    let mut start = [0; TCP_MINIMUM];
    let length = transport.len().min(TCP_MINIMUM);
    start[..length].copy_from_slice(&transport[..length]);
    let flaw = (transport.len() < needed).then_some(if part == Part::First {
        Flaw::TinyFragment
    } else {
        Flaw::NoTransport
    });
    let in_common = if part == Part::First { InCommon::Protocol } else { InCommon::All };
    Facts { flaw, in_common, ..of_start(protocol, &start) }
}

/// An IPv6 packet with extension headers, or a short one.
#[inline(never)]
fn of_chain(network: &[u8]) -> Facts {
    let view = Ipv6::new_unchecked(network);
    let upper = match view.upper_layer() {
        Ok(upper) => upper,
        Err(error) => return Facts { flaw: Some(Flaw::Extensions(error)), ..Facts::default() },
    };
    let end = network.len().min(ipv6::HEADER_LEN + view.payload_len());
    let transport = network.get(upper.offset..end).unwrap_or_default();
    let part = upper.fragment.map_or(Part::Whole, |fragment| part(fragment.offset, fragment.more_fragments));
    let facts = if matches!(part, Part::Later(_)) && upper.protocol.is_ipv6_extension() {
        Facts { flaw: Some(Flaw::HiddenProtocol), ..Facts::default() }
    } else {
        of_part(upper.protocol.0, part, transport)
    };
    let hides = |extension: Ipv6Extension<'_>| match extension.body {
        Ipv6ExtensionBody::Fragment(Ipv6Fragment { offset, more_fragments, .. }) => {
            (offset > 0 || more_fragments) && extension.next_header.is_ipv6_extension()
        }
        _ => false,
    };
    if upper.fragment.is_some() && view.extensions().flatten().any(hides) {
        return Facts { in_common: InCommon::Nothing, ..facts };
    }
    facts
}
