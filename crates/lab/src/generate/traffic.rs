//! What is sent: packet number `n` of a trial, for any `n`, without a memory of those before.
//!
//! Flows take turns: packet `n` has number `n / flows` of flow `n % flows`. So how many packets a flow has sent follows
//! from `n` alone, and a packet that the port did not take is taken back by counting `n` down.
//!
//! A flow has a template: its headers with lengths, checksums and signature fields at zero, and the sums over them.
//! Sending copies it, fills the rest with zeros (which no checksum sees) and adds the few changing words to the sums.

use std::net::IpAddr;
use std::ops::Range;

use packet::checksum::{self, combine};
use packet::wire::ethernet::{self, Ethernet, EthernetRepr, MacAddr};
use packet::wire::icmp::{self, IcmpType};
use packet::wire::icmpv6::Icmpv6Type;
use packet::wire::ipv4::{self, Ipv4, Ipv4Repr};
use packet::wire::ipv6::{self, Ipv6, Ipv6Repr};
use packet::wire::tcp::{self, TcpFlags};
use packet::wire::{IpProtocol, OptionOctets, PseudoHeader, udp};
use packet::{IpVersion, Packet};

use super::signature::{Mark, SIGNATURE_BYTES, Signature, TIMESTAMP_MASK};
use super::source::Source;
use super::values::{FCS_BYTES, FrameSize, Hosts, PortRange};

/// The protocol of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protocol {
    /// UDP datagrams
    Udp,
    /// TCP segments of no connection (ACK, PSH)
    Tcp,
    /// Echo requests of ICMP or ICMPv6; echo replies count as received
    Icmp,
}

/// What the packets are: a family and a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) version: IpVersion,
    pub(crate) protocol: Protocol,
}

/// The longest template: Ethernet, IPv6, TCP, signature.
const LONGEST_TEMPLATE: usize =
    ethernet::HEADER_LEN + ipv6::HEADER_LEN + tcp::MIN_HEADER_LEN + SIGNATURE_BYTES;
/// Where lengths and checksums are in the frame.
const IPV4_LENGTH: Range<usize> = 16..18;
const IPV4_CHECK: Range<usize> = 24..26;
const IPV6_LENGTH: Range<usize> = 18..20;
/// Where they are in the transport header.
const UDP_LENGTH: usize = 4;
const ICMP_SEQUENCE: usize = 6;
/// Hops that a packet may take; RFC 1700's recommended default.
const TTL: u8 = 64;

impl Kind {
    #[cfg(test)]
    pub(crate) const UDP: Self = Self { version: IpVersion::V4, protocol: Protocol::Udp };
    #[cfg(test)]
    pub(crate) const ALL: [Self; 6] = [
        Self { version: IpVersion::V4, protocol: Protocol::Udp },
        Self { version: IpVersion::V4, protocol: Protocol::Tcp },
        Self { version: IpVersion::V4, protocol: Protocol::Icmp },
        Self { version: IpVersion::V6, protocol: Protocol::Udp },
        Self { version: IpVersion::V6, protocol: Protocol::Tcp },
        Self { version: IpVersion::V6, protocol: Protocol::Icmp },
    ];

    const fn number(self) -> IpProtocol {
        match (self.protocol, self.version) {
            (Protocol::Udp, _) => IpProtocol::UDP,
            (Protocol::Tcp, _) => IpProtocol::TCP,
            (Protocol::Icmp, IpVersion::V4) => IpProtocol::ICMP,
            (Protocol::Icmp, IpVersion::V6) => IpProtocol::ICMPV6,
        }
    }

    const fn network_bytes(self) -> usize {
        match self.version {
            IpVersion::V4 => ipv4::MIN_HEADER_LEN,
            IpVersion::V6 => ipv6::HEADER_LEN,
        }
    }

    /// Where the transport header starts.
    const fn transport(self) -> usize {
        ethernet::HEADER_LEN + self.network_bytes()
    }

    const fn transport_bytes(self) -> usize {
        match self.protocol {
            Protocol::Udp => udp::HEADER_LEN,
            Protocol::Tcp => tcp::MIN_HEADER_LEN,
            Protocol::Icmp => icmp::HEADER_LEN,
        }
    }

    const fn template_bytes(self) -> usize {
        self.transport() + self.transport_bytes() + SIGNATURE_BYTES
    }

    /// The smallest frame that holds the signature, FCS counted.
    pub(crate) const fn smallest_frame(self) -> u16 {
        (self.template_bytes() + FCS_BYTES) as u16
    }

    /// Where the transport's checksum is in the frame.
    const fn check(self) -> Range<usize> {
        let at = self.transport()
            + match self.protocol {
                Protocol::Udp => 6,
                Protocol::Tcp => 16,
                Protocol::Icmp => 2,
            };
        at..at + 2
    }

    /// Whether the transport's checksum covers addresses and length too.
    const fn has_pseudo_header(self) -> bool {
        !matches!((self.protocol, self.version), (Protocol::Icmp, IpVersion::V4))
    }
}

/// Where flows go.
#[derive(Clone, Debug)]
pub(crate) enum Destinations {
    Hosts(Hosts),
    /// One address a flow.
    Drawn(Vec<IpAddr>),
}

/// What to send.
#[derive(Clone, Debug)]
pub(crate) struct TrafficOptions {
    pub(crate) flows: u32,
    pub(crate) source_mac: MacAddr,
    pub(crate) destination_mac: MacAddr,
    pub(crate) sources: Hosts,
    pub(crate) destinations: Destinations,
    pub(crate) source_ports: PortRange,
    pub(crate) destination_ports: PortRange,
    pub(crate) kind: Kind,
    pub(crate) size: FrameSize,
    pub(crate) seed: u64,
}

impl TrafficOptions {
    /// How many different flows the addresses and ports give.
    pub(crate) fn possible_flows(&self) -> u64 {
        let destinations = match &self.destinations {
            Destinations::Hosts(hosts) => hosts.count(),
            // As many as are wanted were drawn.
            Destinations::Drawn(_) => return u64::MAX,
        };
        [self.sources.count(), self.source_port_count(), self.destination_port_count()]
            .into_iter()
            .fold(destinations, u64::saturating_mul)
    }

    fn source_port_count(&self) -> u64 {
        self.source_ports.count()
    }

    /// An ICMP echo has one number only, its identifier; it stands for the source port.
    fn destination_port_count(&self) -> u64 {
        if self.kind.protocol == Protocol::Icmp { 1 } else { self.destination_ports.count() }
    }
}

/// Headers of a flow.
#[derive(Clone, Copy, Debug)]
struct Template {
    bytes: [u8; LONGEST_TEMPLATE],
    /// Sum over the IPv4 header, length and checksum zero; of no use in IPv6.
    ip_sum: u16,
    /// Sum over pseudo-header, transport header and signature; lengths, checksum, sequence and time stamp zero.
    transport_sum: u16,
}

/// The packets of a trial that we make.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    generator: u16,
    templates: Vec<Template>,
    kind: Kind,
    size: FrameSize,
    seed: u64,
}

impl Traffic {
    /// The traffic of `options` with `generator` in its signatures.
    pub(crate) fn new(options: &TrafficOptions, generator: u16) -> Self {
        let templates = (0..options.flows).map(|flow| template(options, generator, flow)).collect();
        Self { generator, templates, kind: options.kind, size: options.size.clone(), seed: options.seed }
    }
}

impl Source for Traffic {
    fn mark(&self) -> Mark {
        Mark::of(self.generator)
    }

    fn flows(&self) -> usize {
        self.templates.len()
    }

    fn count(&self) -> Option<u64> {
        None
    }

    fn largest(&self) -> u16 {
        self.size.largest().max(self.kind.smallest_frame())
    }

    fn prepare(&mut self, _numbers: Range<u64>) -> anyhow::Result<()> {
        Ok(())
    }

    fn due_ns(&self, _number: u64) -> Option<u64> {
        None
    }

    fn note_sent(&mut self, _numbers: Range<u64>) {}

    fn judged(&self, count: u64) -> u64 {
        count
    }

    /// Sizes of a mix in which the headers have no room grow.
    #[inline]
    fn size(&self, number: u64) -> u16 {
        let flows = self.templates.len() as u64;
        self.size.of(number % flows, number / flows, self.seed).max(self.kind.smallest_frame())
    }

    #[inline]
    fn sent_of_flow(&self, flow: u32, count: u64) -> u64 {
        let flows = self.templates.len() as u64;
        count / flows + u64::from(u64::from(flow) < count % flows)
    }

    #[inline]
    fn write(&self, number: u64, now_ns: u64, packet: &mut Packet) -> bool {
        let flows = self.templates.len() as u64;
        let template = &self.templates[(number % flows) as usize];
        let sequence = (number / flows) as u32;
        let kind = self.kind;
        let head = kind.template_bytes();
        let length = usize::from(self.size(number)) - FCS_BYTES;
        let Some(data) = packet.reset(length) else { return false };
        data[..head].copy_from_slice(&template.bytes[..head]);
        data[head..].fill(0);

        let transport_length = (length - kind.transport()) as u16;
        match kind.version {
            IpVersion::V4 => {
                let ip_length = (length - ethernet::HEADER_LEN) as u16;
                data[IPV4_LENGTH].copy_from_slice(&ip_length.to_be_bytes());
                let ip_check = checksum::finish(combine(template.ip_sum, ip_length));
                data[IPV4_CHECK].copy_from_slice(&ip_check.to_be_bytes());
            }
            IpVersion::V6 => data[IPV6_LENGTH].copy_from_slice(&transport_length.to_be_bytes()),
        }

        let timestamp = now_ns & TIMESTAMP_MASK;
        data[head - 10..head - 6].copy_from_slice(&sequence.to_be_bytes());
        data[head - 6..head].copy_from_slice(&timestamp.to_be_bytes()[2..]);
        let mut sum = template.transport_sum;
        for word in
            [sequence >> 16, sequence, (timestamp >> 32) as u32, (timestamp >> 16) as u32, timestamp as u32]
        {
            sum = combine(sum, word as u16);
        }
        if kind.has_pseudo_header() {
            sum = combine(sum, transport_length);
        }
        let transport = &mut data[kind.transport()..];
        let check = match kind.protocol {
            Protocol::Udp => {
                transport[UDP_LENGTH..UDP_LENGTH + 2].copy_from_slice(&transport_length.to_be_bytes());
                checksum::finish_udp(combine(sum, transport_length))
            }
            Protocol::Tcp => checksum::finish(sum),
            Protocol::Icmp => {
                let sequence = sequence as u16;
                transport[ICMP_SEQUENCE..ICMP_SEQUENCE + 2].copy_from_slice(&sequence.to_be_bytes());
                checksum::finish(combine(sum, sequence))
            }
        };
        data[kind.check()].copy_from_slice(&check.to_be_bytes());
        packet.set_link_header(0);
        packet.set_network_and_transport_header(ethernet::HEADER_LEN, kind.network_bytes());
        true
    }
}

fn template(options: &TrafficOptions, generator: u16, flow: u32) -> Template {
    // The flows count through destinations, then sources, then ports, like the digits of a number.
    let mut rest = u64::from(flow);
    let mut digit = |count: u64| {
        let digit = rest % count;
        rest /= count;
        digit
    };
    let destination = match &options.destinations {
        Destinations::Hosts(hosts) => hosts.get(digit(hosts.count())),
        Destinations::Drawn(drawn) => drawn[flow as usize % drawn.len()],
    };
    let source = options.sources.get(digit(options.sources.count()));
    let source_port = options.source_ports.get(digit(options.source_port_count()));
    let destination_port = options.destination_ports.get(digit(options.destination_port_count()));

    let kind = options.kind;
    let mut bytes = [0; LONGEST_TEMPLATE];
    let fits = "the template has room for its headers";
    let link = EthernetRepr {
        destination: options.destination_mac,
        source: options.source_mac,
        ethertype: kind.version.ethertype(),
    };
    link.emit(&mut Ethernet::new_unchecked(&mut bytes)).expect(fits);
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ip = Ipv4Repr {
                source,
                destination,
                protocol: kind.number(),
                ttl: TTL,
                dscp: 0,
                ecn: 0,
                // "Sources emitting atomic datagrams MAY set the IPv4 ID field to any value" (RFC 6864, section 4.1).
                identification: 0,
                dont_fragment: true,
                more_fragments: false,
                fragment_offset: 0,
                options: OptionOctets::EMPTY,
                payload_len: 0,
            };
            let mut view = Ipv4::new_unchecked(&mut bytes[ethernet::HEADER_LEN..]);
            ip.emit(&mut view).expect(fits);
            view.set_total_len(0);
            view.set_checksum(0);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let ip = Ipv6Repr {
                source,
                destination,
                next_header: kind.number(),
                hop_limit: TTL,
                traffic_class: 0,
                flow_label: 0,
                payload_len: 0,
            };
            ip.emit(&mut Ipv6::new_unchecked(&mut bytes[ethernet::HEADER_LEN..])).expect(fits);
        }
        // Addresses of two families are refused before.
        _ => {}
    }
    let ip_sum = checksum::sum(&bytes[ethernet::HEADER_LEN..kind.transport()]);

    let header = &mut bytes[kind.transport()..];
    match kind.protocol {
        Protocol::Udp => {
            header[..2].copy_from_slice(&source_port.to_be_bytes());
            header[2..4].copy_from_slice(&destination_port.to_be_bytes());
        }
        Protocol::Tcp => {
            let mut segment = tcp::Tcp::new_unchecked(&mut header[..]);
            segment.set_source_port(source_port);
            segment.set_destination_port(destination_port);
            segment.set_sequence(1);
            segment.set_acknowledgment(1);
            segment.set_header_len_and_flags(tcp::MIN_HEADER_LEN, TcpFlags::ACK | TcpFlags::PSH);
            segment.set_window(u16::MAX);
        }
        Protocol::Icmp => {
            header[0] = match kind.version {
                IpVersion::V4 => IcmpType::ECHO_REQUEST.0,
                IpVersion::V6 => Icmpv6Type::ECHO_REQUEST.0,
            };
            header[4..6].copy_from_slice(&source_port.to_be_bytes());
        }
    }
    let signature = Signature { generator, flow, sequence: 0, sent_ns: 0 };
    let end = kind.transport_bytes() + SIGNATURE_BYTES;
    header[kind.transport_bytes()..end].copy_from_slice(&signature.bytes());
    let mut transport_sum = checksum::sum(&header[..end]);
    if kind.has_pseudo_header()
        && let Some(pseudo) = PseudoHeader::new(source, destination)
    {
        transport_sum = combine(transport_sum, pseudo.sum(kind.number(), 0));
    }
    Template { bytes, ip_sum, transport_sum }
}

#[cfg(test)]
impl TrafficOptions {
    /// So many flows of the smallest frames.
    pub(crate) fn for_tests(kind: Kind, flows: u32) -> Self {
        let (sources, destinations) = match kind.version {
            IpVersion::V4 => ("198.18.0.0/24", "198.19.0.0/24"),
            IpVersion::V6 => ("2001:2::/64", "2001:2:0:1::/64"),
        };
        Self {
            flows,
            source_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            destination_mac: MacAddr([2, 0, 0, 0, 0, 2]),
            sources: sources.parse().unwrap(),
            destinations: Destinations::Hosts(destinations.parse().unwrap()),
            source_ports: "1024-2047".parse().unwrap(),
            destination_ports: "9".parse().unwrap(),
            kind,
            size: FrameSize::Fixed(kind.smallest_frame()),
            seed: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::signature::{Mark, Verdict, judge};
    use super::*;
    use packet::{Pool, PoolOptions};
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn the_smallest_udp_packet_fills_the_smallest_frame() {
        assert_eq!(Kind::ALL.map(Kind::smallest_frame), [64, 76, 64, 84, 96, 84]);
    }

    #[test]
    fn flows_differ() {
        let mut options = TrafficOptions::for_tests(Kind::UDP, 1_000);
        options.destinations = Destinations::Hosts("198.19.0.0/30".parse().unwrap());
        options.sources = "198.18.0.0/31".parse().unwrap();
        options.source_ports = "1-125".parse().unwrap();
        options.destination_ports = "1-2".parse().unwrap();
        assert_eq!(options.possible_flows(), 1_000);
        let traffic = Traffic::new(&options, 1);
        let different: HashSet<[u8; 12]> =
            traffic.templates.iter().map(|template| *template.bytes[26..].first_chunk().unwrap()).collect();
        assert_eq!(different.len(), 1_000);
    }

    #[test]
    fn drawn_destinations_are_used() {
        let mut options = TrafficOptions::for_tests(Kind::UDP, 2);
        options.destinations =
            Destinations::Drawn(["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap()).to_vec());
        let traffic = Traffic::new(&options, 1);
        assert_eq!(traffic.templates[1].bytes[30..34], [10, 0, 0, 2]);
    }

    #[test]
    fn an_echo_request_of_icmpv6_is_right_to_the_byte() {
        let kind = Kind { version: IpVersion::V6, protocol: Protocol::Icmp };
        let traffic = Traffic::new(&TrafficOptions::for_tests(kind, 1), 0x1234);
        let mut pool = Pool::new(PoolOptions { frames: 1, ..PoolOptions::default() }).unwrap();
        let mut packet = pool.allocate().unwrap();
        assert!(traffic.write(5, 0x0102_0304_0506, &mut packet));
        let expected = [
            &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 26, 58, 64][..],
            &[0x20, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            &[0x20, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1],
            // Type 128; the checksum is a sum by hand; the first source port as identifier; number 5.
            &[128, 0, 0x69, 0x3b, 4, 0, 0, 5],
            &[0xb7, 0x1c, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 5, 1, 2, 3, 4, 5, 6],
        ];
        assert_eq!(packet.data(), expected.concat());
    }

    #[test]
    fn a_packet_too_long_for_its_frame_is_not_written() {
        let mut options = TrafficOptions::for_tests(Kind::UDP, 1);
        options.size = FrameSize::Fixed(9_000);
        let mut pool = Pool::new(PoolOptions { frames: 1, ..PoolOptions::default() }).unwrap();
        assert!(!Traffic::new(&options, 1).write(0, 0, &mut pool.allocate().unwrap()));
    }

    proptest! {
        #[test]
        fn each_packet_is_right_and_numbered(
            kind in prop::sample::select(Kind::ALL.to_vec()),
            flows in 1u32..50, number in 0u64..1 << 40, now: u64, size in 96u16..1_500, generator: u16,
        ) {
            let mut options = TrafficOptions::for_tests(kind, flows);
            options.size = FrameSize::Fixed(size);
            let traffic = Traffic::new(&options, generator);
            let mut pool = Pool::new(PoolOptions { frames: 1, ..PoolOptions::default() }).unwrap();
            let mut packet = pool.allocate().unwrap();
            // Frames hold what others left.
            packet.reset(1_800).unwrap().fill(0xee);
            prop_assert!(traffic.write(number, now, &mut packet));
            prop_assert_eq!(packet.len() + 4, usize::from(size));
            let flow = (number % u64::from(flows)) as u32;
            let sequence = number / u64::from(flows);
            let signature =
                Signature { generator, flow, sequence: sequence as u32, sent_ns: now & TIMESTAMP_MASK };
            prop_assert_eq!(judge(packet.data(), Mark::of(generator)), Verdict::Ours(signature));
            prop_assert_eq!(traffic.sent_of_flow(flow, number), sequence);
            prop_assert_eq!(traffic.sent_of_flow(flow, number + 1), sequence + 1);
        }
    }
}
