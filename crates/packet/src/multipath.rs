//! Which path of a multipath route a packet takes, as Linux's `net.ipv4.fib_multipath_hash_policy` and
//! `net.ipv6.fib_multipath_hash_policy` say (Documentation/networking/ip-sysctl.rst).
//!
//! Which path that is need not be Linux's choice. The *fields* that decide are Linux's (`fib_multipath_hash` in
//! net/ipv4/route.c, `rt6_multipath_hash` in net/ipv6/route.c): packets that Linux sends the same way go the same way here.
//!
//! | policy | IPv4 | IPv6 |
//! | --- | --- | --- |
//! | 0 | addresses | addresses, flow label, next header |
//! | 1 | addresses, protocol, ports | the same |
//! | 2 | as 0, of the innermost IP header | as 0, of the innermost IP header |
//! | 3 | those of `fib_multipath_hash_fields` | the same |
//!
//! - With policy 0, ICMP errors go by the packet inside them, so that "packet too big" reaches the server that has the flow
//!   (RFC 7690). With the others they go by their own addresses, as in Linux.
//! - Addresses are sorted, and so are ports, each by themselves: both directions of a flow go the same way.
//! - Fragments have no ports. In IPv6 their protocol is what the fragment header says, but with policy 0, where it is the
//!   first next header.
//! - The SPI of ESP and AH stands where others have ports.
//! - Tunnels are IP in IP and GRE. What is in GRE beside IP, with or without Ethernet header, is Linux's to look at: there is no
//!   hash then ([`PathHash::of_ipv4`]).
//!
//! `bpf/forward.c` in crates/ports has the same hash, of what is ordinary.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::IpVersion;
use crate::flow::FlowKey;
use crate::wire::IpProtocol;

/// What of packets of one family decides about their path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathPolicy(u32);

/// Bits of a policy. The lowest twelve are those of Linux's `fib_multipath_hash_fields`: six of the outer header, and the same
/// six of that in a tunnel. `bpf/forward.c` knows the bits too.
mod bit {
    pub(super) const SOURCE: u32 = 1;
    pub(super) const DESTINATION: u32 = 1 << 1;
    pub(super) const PROTOCOL: u32 = 1 << 2;
    pub(super) const LABEL: u32 = 1 << 3;
    pub(super) const SOURCE_PORT: u32 = 1 << 4;
    pub(super) const DESTINATION_PORT: u32 = 1 << 5;
    pub(super) const OUTER: u32 = 0x3f;
    /// How far the six of a tunnel's inside are shifted.
    pub(super) const INNER_SHIFT: u32 = 6;
    /// The first header decides, and of ICMP errors that of the packet inside.
    pub(super) const FIRST_HEADER: u32 = 1 << 16;
    /// The innermost header decides.
    pub(super) const INNERMOST: u32 = 1 << 17;
    /// Nobody here knows the policy.
    pub(super) const UNKNOWN: u32 = 1 << 18;
}

/// What decides where that is a network header.
const fn layer3(version: IpVersion) -> u32 {
    match version {
        IpVersion::V4 => bit::SOURCE | bit::DESTINATION,
        IpVersion::V6 => bit::SOURCE | bit::DESTINATION | bit::PROTOCOL | bit::LABEL,
    }
}

impl PathPolicy {
    /// Makes the policy of a family from Linux's two numbers, `fib_multipath_hash_policy` and `fib_multipath_hash_fields`.
    pub const fn new(version: IpVersion, policy: u32, fields: u32) -> Self {
        const FIVE: u32 =
            bit::SOURCE | bit::DESTINATION | bit::PROTOCOL | bit::SOURCE_PORT | bit::DESTINATION_PORT;
        Self(match policy {
            0 => layer3(version) | bit::FIRST_HEADER,
            1 => FIVE,
            2 => layer3(version) | bit::INNERMOST,
            3 => fields & (bit::OUTER | bit::OUTER << bit::INNER_SHIFT),
            _ => bit::UNKNOWN,
        })
    }

    /// Returns the policy as the program in the kernel reads it.
    pub const fn word(self) -> u32 {
        self.0
    }

    const fn has(self, bits: u32) -> bool {
        self.0 & bits != 0
    }

    const fn outer(self) -> u32 {
        self.0 & bit::OUTER
    }

    const fn inner(self) -> u32 {
        self.0 >> bit::INNER_SHIFT & bit::OUTER
    }
}

/// The policies of both families, which may change while packets flow.
#[derive(Debug)]
pub struct PathPolicies([AtomicU32; 2]);

impl Default for PathPolicies {
    /// Policy 0, as in Linux.
    fn default() -> Self {
        Self(IpVersion::ALL.map(|version| AtomicU32::new(PathPolicy::new(version, 0, 0).word())))
    }
}

impl PathPolicies {
    /// Returns that of a family.
    #[inline]
    pub fn of(&self, version: IpVersion) -> PathPolicy {
        PathPolicy(self.place(version).load(Ordering::Relaxed))
    }

    /// Replaces that of a family, and returns whether it was another one.
    pub fn set(&self, version: IpVersion, policy: PathPolicy) -> bool {
        self.place(version).swap(policy.0, Ordering::Relaxed) != policy.0
    }

    fn place(&self, version: IpVersion) -> &AtomicU32 {
        let Self([ipv4, ipv6]) = self;
        match version {
            IpVersion::V4 => ipv4,
            IpVersion::V6 => ipv6,
        }
    }
}

/// A hash by which the paths of multipath routes are chosen.
#[derive(Clone, Debug)]
pub struct PathHash {
    /// What nobody outside knows.
    pub key: FlowKey,
    /// What is hashed.
    pub policies: Arc<PathPolicies>,
}

/// What may decide about a packet's path.
#[derive(Clone, Copy, Debug)]
struct Keys {
    /// Of the addresses.
    version: IpVersion,
    /// IPv6 addresses are folded with the key.
    source: u64,
    destination: u64,
    ports: [u16; 2],
    protocol: u8,
    label: u32,
    /// Whether the packet is that of a tunnel.
    is_tunnel: bool,
}

/// How many headers Linux looks behind (`MAX_FLOW_DISSECT_HDRS`).
const MOST_HEADERS: usize = 15;

/// EtherTypes in GRE (IANA, "IEEE 802 Numbers").
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const ETHERNET: [u8; 2] = [0x65, 0x58];

/// Of a packet in GRE, what it is and where.
enum Inside<'a> {
    Packet(IpVersion, &'a [u8]),
    /// Linux does not look at it.
    Opaque,
    /// Linux may look at it.
    Unknown,
}

impl PathHash {
    /// Returns the hash of an IPv4 packet without a link header; `None` if what decides is Linux's to find.
    pub fn of_ipv4(&self, packet: &[u8]) -> Option<u32> {
        self.of(IpVersion::V4, packet)
    }

    /// The same of an IPv6 packet.
    pub fn of_ipv6(&self, packet: &[u8]) -> Option<u32> {
        self.of(IpVersion::V6, packet)
    }

    #[inline]
    fn of(&self, version: IpVersion, packet: &[u8]) -> Option<u32> {
        let policy = self.policies.of(version);
        if policy.has(bit::FIRST_HEADER) {
            let keys = self.first_header(version, packet)?;
            return Some(self.mix(&keys, policy.outer()));
        }
        if policy.has(bit::UNKNOWN) {
            return None;
        }
        if policy.has(bit::INNERMOST) {
            let keys = self.dissect(version, packet, true)?;
            return Some(self.mix(&keys, layer3(keys.version)));
        }
        let outer = self.mix(&self.dissect(version, packet, false)?, policy.outer());
        if policy.inner() == 0 {
            return Some(outer);
        }
        let inner = self.dissect(version, packet, true)?;
        if !inner.is_tunnel {
            return Some(outer);
        }
        Some(self.key.folded_product(outer.into(), self.mix(&inner, policy.inner()).into()))
    }

    /// The same for both orders of the addresses, and of the ports.
    #[inline]
    fn mix(&self, keys: &Keys, fields: u32) -> u32 {
        let kept = |bit: u32, value: u64| if fields & bit != 0 { value } else { 0 };
        let (source, destination) =
            (kept(bit::SOURCE, keys.source), kept(bit::DESTINATION, keys.destination));
        let [from, to] = keys.ports;
        let (from, to) = (kept(bit::SOURCE_PORT, from.into()), kept(bit::DESTINATION_PORT, to.into()));
        let label = if keys.version == IpVersion::V6 { kept(bit::LABEL, keys.label.into()) } else { 0 };
        let protocol = kept(bit::PROTOCOL, keys.protocol.into());
        self.key.folded_product(
            source.min(destination) ^ from.min(to) << 40,
            source.max(destination) ^ from.max(to) << 40 ^ protocol << 56 ^ label << 20,
        )
    }

    /// Reads a network header.
    #[inline]
    fn network_header(&self, version: IpVersion, packet: &[u8]) -> Option<Keys> {
        let (source, destination, protocol, label) = match version {
            IpVersion::V4 => {
                let header = packet.first_chunk::<20>()?;
                let word = |at: usize| {
                    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
                };
                (word(12).into(), word(16).into(), header[9], 0)
            }
            IpVersion::V6 => {
                let header = packet.first_chunk::<40>()?;
                let half =
                    |at: usize| u64::from_be_bytes(*header[at..].first_chunk().expect("within the header"));
                let address = |at: usize| self.key.product(half(at), half(at + 8));
                let label = u32::from_be_bytes([0, header[1] & 0xf, header[2], header[3]]);
                (address(8), address(24), header[6], label)
            }
        };
        Some(Keys { version, source, destination, protocol, label, ports: [0; 2], is_tunnel: false })
    }

    /// The first header, or that of the packet in an ICMP error (`ip_multipath_l3_keys`, `ip6_multipath_l3_keys`).
    #[inline]
    fn first_header(&self, version: IpVersion, packet: &[u8]) -> Option<Keys> {
        let outer = self.network_header(version, packet)?;
        let icmp = match version {
            IpVersion::V4 => IpProtocol::ICMP,
            IpVersion::V6 => IpProtocol::ICMPV6,
        };
        if outer.protocol != icmp.0 {
            return Some(outer);
        }
        Some(in_error(version, packet).and_then(|inner| self.network_header(version, inner)).unwrap_or(outer))
    }

    /// What Linux's flow dissector finds (`__skb_flow_dissect`), in tunnels or before them. What it cannot read it leaves as it
    /// is.
    fn dissect(&self, version: IpVersion, packet: &[u8], enters_tunnels: bool) -> Option<Keys> {
        let mut keys = self.network_header(version, packet)?;
        let (mut version, mut rest, mut headers) = (version, packet, 0);
        loop {
            // Behind the network header, of which the keys are known.
            let is_fragment;
            (rest, is_fragment) = behind(version, rest, &mut keys.protocol, &mut headers);
            let inside = match IpProtocol(keys.protocol) {
                _ if is_fragment || headers > MOST_HEADERS => return Some(keys),
                IpProtocol::IPIP => Inside::Packet(IpVersion::V4, rest),
                IpProtocol::IPV6 => Inside::Packet(IpVersion::V6, rest),
                IpProtocol::GRE if enters_tunnels => in_gre(rest),
                protocol => {
                    keys.ports = ports(protocol, rest);
                    return Some(keys);
                }
            };
            headers += 1;
            let (inner_version, inner) = match inside {
                _ if !enters_tunnels => return Some(keys),
                Inside::Packet(version, packet) => (version, packet),
                Inside::Opaque => return Some(keys),
                Inside::Unknown => return None,
            };
            keys.is_tunnel = true;
            if headers > MOST_HEADERS {
                return Some(keys);
            }
            let Some(found) = self.network_header(inner_version, inner) else { return Some(keys) };
            if inner_version == IpVersion::V4 && inner[0] & 0xf < 5 {
                return Some(keys);
            }
            // A label that is zero is none: that of the outer header stays.
            let label = if found.label == 0 { keys.label } else { found.label };
            keys = Keys { label, is_tunnel: true, ..found };
            (version, rest) = (inner_version, inner);
        }
    }
}

/// The packet in an ICMP error, if it is one: those of `icmp_is_err` and `icmpv6_is_err`.
fn in_error(version: IpVersion, packet: &[u8]) -> Option<&[u8]> {
    let (message, is_later_fragment) = match version {
        IpVersion::V4 => {
            let fragment = u16::from_be_bytes([packet[6], packet[7]]);
            (packet.get(usize::from(packet[0] & 0xf) * 4..)?, fragment & 0x1fff != 0)
        }
        IpVersion::V6 => (packet.get(40..)?, false),
    };
    let (header, inner) = message.split_first_chunk::<8>()?;
    let is_error = match version {
        // Destination unreachable, source quench, redirect, time exceeded, parameter problem.
        IpVersion::V4 => matches!(header[0], 3 | 4 | 5 | 11 | 12),
        // Destination unreachable, packet too big, time exceeded, parameter problem.
        IpVersion::V6 => matches!(header[0], 1..=4),
    };
    (is_error && !is_later_fragment).then_some(inner)
}

/// What follows a network header and its extension headers, of which the last one's protocol is left in `protocol`; and whether the
/// packet is a fragment.
fn behind<'a>(
    version: IpVersion,
    packet: &'a [u8],
    protocol: &mut u8,
    headers: &mut usize,
) -> (&'a [u8], bool) {
    if version == IpVersion::V4 {
        let is_fragment = packet[6] & 0x3f != 0 || packet[7] != 0;
        return (packet.get(usize::from(packet[0] & 0xf) * 4..).unwrap_or_default(), is_fragment);
    }
    let mut rest = &packet[40..];
    loop {
        match IpProtocol(*protocol) {
            IpProtocol::HOP_BY_HOP | IpProtocol::ROUTING | IpProtocol::DESTINATION_OPTIONS => {
                let Some(&[next, length]) = rest.first_chunk() else { return (&[], false) };
                *protocol = next;
                rest = rest.get((usize::from(length) + 1) * 8..).unwrap_or_default();
                *headers += 1;
                if *headers > MOST_HEADERS {
                    return (rest, false);
                }
            }
            IpProtocol::FRAGMENT => {
                let Some(&[next, ..]) = rest.first_chunk::<8>() else { return (&[], false) };
                *protocol = next;
                return (&[], true);
            }
            _ => return (rest, false),
        }
    }
}

/// Both ports, or what Linux takes for them (`proto_ports_offset`).
fn ports(protocol: IpProtocol, transport: &[u8]) -> [u16; 2] {
    /// Datagram Congestion Control Protocol (RFC 4340), and UDP-Lite (RFC 3828).
    const DCCP: IpProtocol = IpProtocol(33);
    const UDP_LITE: IpProtocol = IpProtocol(136);
    let at = match protocol {
        IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP | IpProtocol::ESP | DCCP | UDP_LITE => 0,
        IpProtocol::AH => 4,
        _ => return [0; 2],
    };
    let word = transport.get(at..).and_then(|bytes| bytes.first_chunk::<4>());
    word.map_or([0; 2], |&[a, b, c, d]| [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])])
}

/// What is in GRE (RFC 2784, RFC 2890), as `__skb_flow_dissect_gre` looks for it.
fn in_gre(header: &[u8]) -> Inside<'_> {
    const CHECKSUM: u8 = 0x80;
    const ROUTING: u8 = 0x40;
    const KEY: u8 = 0x20;
    const SEQUENCE: u8 = 0x10;
    let Some(&[flags, version, high, low]) = header.first_chunk() else { return Inside::Opaque };
    match version & 7 {
        _ if flags & ROUTING != 0 => return Inside::Opaque,
        0 => {}
        // That of PPTP (RFC 2637).
        1 => return Inside::Unknown,
        _ => return Inside::Opaque,
    }
    let optional = [CHECKSUM, KEY, SEQUENCE].into_iter().filter(|bit| flags & bit != 0).count();
    let (kind, inside) = ([high, low], header.get(4 + optional * 4..).unwrap_or_default());
    match kind {
        IPV4 => Inside::Packet(IpVersion::V4, inside),
        IPV6 => Inside::Packet(IpVersion::V6, inside),
        ETHERNET => match inside.split_first_chunk::<14>() {
            Some((ethernet, packet)) if ethernet[12..] == IPV4 => Inside::Packet(IpVersion::V4, packet),
            Some((ethernet, packet)) if ethernet[12..] == IPV6 => Inside::Packet(IpVersion::V6, packet),
            _ => Inside::Unknown,
        },
        _ => Inside::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TCP: u8 = 6;
    const ECHO: [u8; 8] = [8, 0, 0, 0, 0, 0, 0, 1];

    fn hash_of(policy: u32, fields: u32) -> PathHash {
        let policies = PathPolicies::default();
        for version in IpVersion::ALL {
            policies.set(version, PathPolicy::new(version, policy, fields));
        }
        PathHash { key: FlowKey::from_seed(3), policies: Arc::new(policies) }
    }

    fn ipv4(source: u8, destination: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let header = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, source, 10, 0, 0, destination];
        [&header[..], payload].concat()
    }

    fn ipv6(hosts: [u8; 2], label: u8, next_header: u8, payload: &[u8]) -> Vec<u8> {
        let addresses = hosts.map(|host| [&[0x20, 1][..], &[0; 13], &[host]].concat()).concat();
        [&[0x60, 0, 0, label, 0, 0, next_header, 64][..], &addresses, payload].concat()
    }

    fn ports(from: u8, to: u8) -> [u8; 8] {
        [9, from, 9, to, 0, 0, 0, 0]
    }

    /// Whether packets have one path by a policy.
    fn one(policy: u32, fields: u32, a: &[u8], b: &[u8]) -> bool {
        let hash = hash_of(policy, fields);
        let of =
            |packet: &[u8]| if packet[0] >> 4 == 4 { hash.of_ipv4(packet) } else { hash.of_ipv6(packet) };
        of(a).expect("it is known") == of(b).expect("it is known")
    }

    #[test]
    fn by_policy_0_addresses_decide_and_in_ipv6_label_and_next_header() {
        let flow = ipv4(1, 2, TCP, &ports(3, 4));
        assert!(one(0, 0, &flow, &ipv4(2, 1, 17, &ports(5, 6))));
        assert!(!one(0, 0, &flow, &ipv4(1, 3, TCP, &ports(3, 4))));
        let flow = ipv6([1, 2], 7, TCP, &ports(3, 4));
        assert!(one(0, 0, &flow, &ipv6([2, 1], 7, TCP, &ports(5, 6))));
        assert!(!one(0, 0, &flow, &ipv6([1, 2], 8, TCP, &ports(3, 4))));
        assert!(!one(0, 0, &flow, &ipv6([1, 2], 7, 17, &ports(3, 4))));
    }

    #[test]
    fn by_policy_0_errors_go_by_the_packet_inside() {
        let flow = ipv4(1, 2, TCP, &ports(3, 4));
        // From router 9, about what 2 sent to 1.
        let error = |kind: u8| {
            let about = ipv4(2, 1, TCP, &ports(4, 3));
            ipv4(9, 2, 1, &[&[kind, 0, 0, 0, 0, 0, 0, 0][..], &about].concat())
        };
        for kind in [3, 4, 5, 11, 12] {
            assert!(one(0, 0, &flow, &error(kind)), "{kind}");
            assert!(!one(1, 0, &flow, &error(kind)), "{kind}");
        }
        assert!(!one(0, 0, &flow, &error(8)));
        // Cut off, and not the first fragment.
        assert!(one(0, 0, &error(3)[..47], &ipv4(9, 2, 1, &ECHO)));
        let mut later = error(3);
        later[7] = 1;
        assert!(one(0, 0, &later, &ipv4(9, 2, 1, &ECHO)));
        let flow = ipv6([1, 2], 7, TCP, &ports(3, 4));
        let error = |kind: u8| {
            let about = ipv6([2, 1], 7, TCP, &ports(4, 3));
            ipv6([9, 2], 0, 58, &[&[kind, 0, 0, 0, 0, 0, 5, 0][..], &about].concat())
        };
        for kind in [1, 2, 3, 4] {
            assert!(one(0, 0, &flow, &error(kind)), "{kind}");
        }
        for kind in [0, 5, 128, 137] {
            assert!(!one(0, 0, &flow, &error(kind)), "{kind}");
        }
    }

    #[test]
    fn by_policy_1_ports_decide_but_of_fragments() {
        let flow = |a, b| ipv4(1, 2, TCP, &ports(a, b));
        assert!(!one(1, 0, &flow(3, 4), &flow(3, 5)));
        assert!(!one(1, 0, &flow(3, 4), &ipv4(1, 2, 17, &ports(3, 4))));
        // Sorted each by themselves.
        assert!(one(1, 0, &flow(3, 4), &flow(4, 3)));
        for fragment in [[0x20, 0], [0, 1], [0x20, 1]] {
            let [mut a, mut b] = [flow(3, 4), flow(5, 6)];
            a[6..8].copy_from_slice(&fragment);
            b[6..8].copy_from_slice(&[0, 9]);
            assert!(one(1, 0, &a, &b));
        }
        let fragment = |flags: u8, rest: &[u8]| {
            ipv6([1, 2], 0, 44, &[&[TCP, 0, 0, flags, 0, 0, 0, 5][..], rest].concat())
        };
        assert!(one(1, 0, &fragment(1, &ports(3, 4)), &fragment(8, b"anything")));
        // The index of security parameters.
        let ah = |index: u8| ipv4(1, 2, 51, &[TCP, 4, 0, 0, 0, 0, 0, index]);
        assert!(!one(1, 0, &ah(1), &ah(2)));
        // Behind options.
        let behind = |a, b| ipv6([1, 2], 0, 60, &[&[TCP, 0, 1, 4, 0, 0, 0, 0][..], &ports(a, b)].concat());
        assert!(one(1, 0, &behind(3, 4), &ipv6([1, 2], 9, TCP, &ports(3, 4))));
        assert!(!one(1, 0, &behind(3, 4), &behind(3, 5)));
    }

    #[test]
    fn by_policy_2_the_innermost_addresses_decide() {
        let inside = |host| ipv4(host, 2, TCP, &ports(3, 4));
        let gre = [0x20, 0, 8, 0, 0, 0, 0, 1];
        let teb = [&[0, 0, 0x65, 0x58][..], &[2; 12], &[8, 0]].concat();
        for (protocol, header) in [(4, &[][..]), (47, &gre), (47, &teb)] {
            let tunnel = |outer, host| ipv4(outer, 8, protocol, &[header, &inside(host)].concat());
            assert!(one(2, 0, &tunnel(5, 1), &tunnel(6, 1)));
            assert!(!one(2, 0, &tunnel(5, 1), &tunnel(5, 3)));
            // Only the outside, by policy 1.
            assert!(one(1, 0, &tunnel(5, 1), &tunnel(5, 3)));
        }
        // Linux may look into these.
        for header in [[0x20, 1, 0x88, 0x0b], [0, 0, 0x88, 0x64]] {
            let packet = ipv4(1, 2, 47, &[&header[..], &[0; 40]].concat());
            assert_eq!(hash_of(2, 0).of_ipv4(&packet), None);
            assert!(hash_of(1, 0).of_ipv4(&packet).is_some());
        }
    }

    #[test]
    fn by_policy_3_the_fields_decide_outside_and_inside() {
        let flow = |a, b, from, to| ipv4(a, b, TCP, &ports(from, to));
        assert!(one(3, 0x01, &flow(1, 2, 3, 4), &flow(1, 5, 6, 7)));
        assert!(!one(3, 0x01, &flow(1, 2, 3, 4), &flow(5, 2, 3, 4)));
        assert!(one(3, 0x20, &flow(1, 2, 3, 4), &flow(5, 6, 7, 4)));
        assert!(!one(3, 0x20, &flow(1, 2, 3, 4), &flow(1, 2, 3, 5)));
        let tunnel = |outer, port| ipv4(outer, 8, 4, &flow(1, 2, 3, port));
        assert!(one(3, 0x800, &tunnel(5, 4), &tunnel(6, 4)));
        assert!(!one(3, 0x800, &tunnel(5, 4), &tunnel(5, 6)));
        assert!(!one(3, 0x801, &tunnel(5, 4), &tunnel(6, 4)));
        // Without a tunnel there is no inside.
        assert!(one(3, 0x800, &flow(1, 2, 3, 4), &flow(5, 6, 7, 8)));
    }

    #[test]
    fn another_policy_is_linuxs() {
        assert_eq!(hash_of(4, 7).of_ipv4(&ipv4(1, 2, TCP, &ports(3, 4))), None);
    }

    proptest! {
        #[test]
        fn any_bytes(mut packet in prop::collection::vec(any::<u8>(), 0..120), protocol in 0_usize..12) {
            let protocols = [0, 1, 4, 6, 41, 43, 44, 47, 51, 58, 60, 137];
            for (policy, fields) in [(0, 0), (1, 0), (2, 0), (3, 0xfff)] {
                hash_of(policy, fields).of_ipv4(&packet);
                hash_of(policy, fields).of_ipv6(&packet);
            }
            if packet.len() > 20 {
                (packet[6], packet[9]) = (protocols[protocol], protocols[protocol]);
                hash_of(2, 0).of_ipv4(&packet);
                hash_of(3, 0xfff).of_ipv6(&packet);
            }
        }
    }
}
