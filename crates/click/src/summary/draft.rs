//! A packet that is being made from the fields of a line.
//!
//! Headers come to be when a field needs them, with the protocol and the addresses that hold for the whole dump. What no
//! field says is zero, except for the time to live, which is 100.

use std::net::Ipv4Addr;

use packet::wire::IpProtocol;
use packet::{Annotations, Packet, checksum};

use super::field::{put, word};
use super::ip_options::{LOOSE_ROUTE, STRICT_ROUTE};
use super::view::{DCCP, UDP_LITE, has_ports};
use super::{MINOR_VERSION, annotations, options, payload};

/// Addresses and ports of packets that do not say theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    pub(super) source: Ipv4Addr,
    pub(super) source_port: u16,
    pub(super) destination: Ipv4Addr,
    pub(super) destination_port: u16,
}

const TTL: u8 = 100;

/// A packet in the making.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// Of the dump.
    pub(super) minor_version: u32,
    pub(super) default_protocol: u8,
    pub(super) flow: Option<Flow>,

    pub(super) timestamp_ns: u64,
    pub(super) first_timestamp_ns: u64,
    pub(super) extra_packets: u32,
    pub(super) paint: u8,
    pub(super) aggregate: u32,
    /// How long the packet says it is, with its link header; 0 when it does not.
    pub(super) length: usize,
    /// Whether an IP header follows the link header.
    pub(super) is_ip: bool,
    pub(super) icmp_type: Option<u8>,
    pub(super) icmp_code: Option<u8>,

    link: Option<[u8; 14]>,
    /// The IP header, empty until a field needs it.
    ip: Vec<u8>,
    /// What is behind the IP header.
    transport: Vec<u8>,
    transport_made: bool,
    /// How much of it is there even if the packet says it is shorter.
    transport_least: usize,
    /// Whether a field says how long the header is.
    ip_length_known: bool,
    tcp_length_known: bool,
    payload_length_known: bool,
    /// The bytes of a packet that is not IP.
    whole: Vec<u8>,
}

impl Draft {
    /// Of a dump of the newest version, whose packets are of `protocol` unless they say otherwise.
    pub(super) fn new(protocol: u8) -> Self {
        Self { minor_version: MINOR_VERSION, default_protocol: protocol, is_ip: true, ..Self::default() }
    }

    /// Begins anew; what holds for the dump stays.
    pub(super) fn clear(&mut self) {
        let Self { minor_version, default_protocol, flow, mut ip, mut transport, .. } = std::mem::take(self);
        ip.clear();
        transport.clear();
        *self = Self { minor_version, default_protocol, flow, ip, transport, is_ip: true, ..Self::default() };
    }

    /// The link header.
    pub(super) fn link_header(&mut self) -> &mut [u8; 14] {
        self.link.get_or_insert([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0])
    }

    pub(super) fn link_length(&self) -> usize {
        self.link.map_or(0, |link| link.len())
    }

    fn protocol(&self) -> u8 {
        self.ip.get(9).copied().unwrap_or(0)
    }

    fn is_first_fragment(&self) -> bool {
        word(&self.ip, 6).is_some_and(|flags| flags & 0x1fff == 0)
    }

    /// The IP header, if the packet can have one and, where `protocol` is given, is of it.
    pub(super) fn ip(&mut self, protocol: Option<IpProtocol>) -> Option<&mut [u8]> {
        if !self.is_ip {
            return None;
        }
        if self.ip.is_empty() {
            self.ip.resize(20, 0);
            put(&mut self.ip, 0, [0x45]);
            put(&mut self.ip, 8, [TTL, self.default_protocol]);
            if let Some(flow) = self.flow {
                put(&mut self.ip, 12, flow.source.octets());
                put(&mut self.ip, 16, flow.destination.octets());
            }
        }
        protocol.is_none_or(|protocol| self.protocol() == protocol.0).then_some(&mut self.ip[..])
    }

    /// Makes the transport header that the protocol asks for. False behind the first fragment, where none is.
    fn make_transport(&mut self) -> bool {
        if self.ip(None).is_none() || !self.is_first_fragment() {
            return false;
        }
        if std::mem::replace(&mut self.transport_made, true) {
            return true;
        }
        let protocol = self.protocol();
        let length = match IpProtocol(protocol) {
            IpProtocol::TCP => 20,
            IpProtocol::UDP | IpProtocol(UDP_LITE) | IpProtocol::ICMP => 8,
            IpProtocol(DCCP) => 12,
            _ => return true,
        };
        self.transport.resize(length, 0);
        if protocol == IpProtocol::TCP.0 {
            put(&mut self.transport, 12, [5 << 4]);
        }
        if let Some(flow) = self.flow
            && has_ports(protocol)
        {
            put(&mut self.transport, 0, flow.source_port.to_be_bytes());
            put(&mut self.transport, 2, flow.destination_port.to_be_bytes());
        }
        true
    }

    /// The transport header, if the packet is of a protocol that is `right`; `least` bytes of it are there at any rate.
    pub(super) fn transport(&mut self, right: impl Fn(u8) -> bool, least: usize) -> Option<&mut [u8]> {
        if !self.make_transport() || !right(self.protocol()) {
            return None;
        }
        if self.transport.len() < least {
            self.transport.resize(least, 0);
        }
        self.transport_least = self.transport_least.max(least);
        Some(&mut self.transport)
    }

    /// The TCP header, if the packet is TCP.
    pub(super) fn tcp(&mut self) -> Option<&mut [u8]> {
        self.transport(|protocol| protocol == IpProtocol::TCP.0, 0)
    }

    /// The ICMP message, if the packet is ICMP.
    pub(super) fn icmp(&mut self, least: usize) -> Option<&mut [u8]> {
        self.transport(|protocol| protocol == IpProtocol::ICMP.0, least)
    }

    /// Makes the IP header say that it is this long.
    pub(super) fn set_ip_header_length(&mut self, length: u8) {
        let length = length.next_multiple_of(4);
        if self.ip(None).is_some() {
            self.ip_length_known = true;
            if self.ip.len() < usize::from(length) {
                self.ip.resize(usize::from(length), 0);
            }
            put(&mut self.ip, 0, [0x40 | (length / 4)]);
        }
    }

    /// Puts options into the IP header; none leave room for them as it is.
    pub(super) fn set_ip_options(&mut self, options: &[u8]) {
        if self.ip(None).is_none() {
            return;
        }
        self.ip_length_known = true;
        let length = (20 + options.len()).next_multiple_of(4);
        if !options.is_empty() && length > self.ip.len() {
            self.set_ip_header_length(length as u8);
        }
        if !options.is_empty() {
            self.ip[20..].fill(0);
            self.ip[20..20 + options.len()].copy_from_slice(options);
        }
    }

    fn tcp_header_length(&self) -> usize {
        self.transport.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4)
    }

    /// Makes the TCP header say that it is this long.
    pub(super) fn set_tcp_header_length(&mut self, length: u8) {
        let length = length.next_multiple_of(4);
        if self.tcp().is_some() {
            self.tcp_length_known = true;
            self.grow_tcp_header(usize::from(length));
            if let Some(offset) = self.transport.get_mut(12) {
                *offset = ((length / 4) << 4) | (*offset & 0x0f);
            }
        }
    }

    /// Makes room for a TCP header of `length` bytes; nothing is behind it yet.
    fn grow_tcp_header(&mut self, length: usize) {
        if self.transport.len() < length {
            self.transport.resize(length, 0);
        }
        if length > 20 {
            self.transport_least = self.transport_least.max(length);
        }
    }

    /// Puts options into the TCP header.
    pub(super) fn set_tcp_options(&mut self, options: &[u8]) {
        if self.tcp().is_none() {
            return;
        }
        self.tcp_length_known = true;
        if options.is_empty() {
            return;
        }
        let length = (20 + options.len()).next_multiple_of(4);
        self.grow_tcp_header(length);
        if length > self.tcp_header_length() {
            self.set_tcp_header_length(length as u8);
        }
        self.transport[20..].fill(0);
        self.transport[20..20 + options.len()].copy_from_slice(options);
    }

    /// Where the payload begins behind the IP header.
    fn payload_offset(&self) -> usize {
        if self.is_first_fragment() { payload::header_length(self.protocol(), &self.transport) } else { 0 }
    }

    /// Says how long the payload is. Where the packet's length is known too, the rest must be headers.
    pub(super) fn set_payload_length(&mut self, length: usize) {
        self.make_transport();
        if self.payload_length_known {
            return;
        }
        self.payload_length_known = true;
        if self.ip.is_empty() {
            if self.length == 0 {
                self.length = length;
            }
            return;
        }
        let outside = self.link_length() + self.ip.len() + self.payload_offset();
        if self.length == 0 {
            self.length = outside.saturating_add(length);
            return;
        }
        let more = self.length.saturating_sub(outside.saturating_add(length)) / 4 * 4;
        let mut more = u8::try_from(more).unwrap_or(u8::MAX);
        let bare_tcp = self.protocol() == IpProtocol::TCP.0 && self.tcp_header_length() == 20;
        if more > 0 && self.is_first_fragment() && bare_tcp && !self.tcp_length_known {
            let options = more.min(40);
            self.set_tcp_header_length(20 + options);
            more -= options;
        }
        if more > 0 && self.ip.len() == 20 && !self.ip_length_known {
            self.set_ip_header_length(20 + more.min(40));
        }
    }

    /// Puts bytes behind the headers.
    pub(super) fn set_payload(&mut self, bytes: &[u8]) {
        self.make_transport();
        if bytes.is_empty() {
            return;
        }
        self.set_payload_length(bytes.len());
        if self.ip.is_empty() {
            self.whole = bytes.to_vec();
            return;
        }
        let start = self.payload_offset();
        let end = start + bytes.len();
        if self.transport.len() < end {
            self.transport.resize(end, 0);
        }
        self.transport[start..end].copy_from_slice(bytes);
        self.transport_least = self.transport_least.max(end);
    }

    /// Writes the lengths, and with `sum` the checksums: then all bytes that the IP header speaks of are there.
    fn finish(&mut self, sum: bool) {
        if self.flow.is_some() {
            self.ip(None);
        }
        if self.ip.is_empty() {
            return;
        }
        self.make_transport();
        let headers = self.ip.len();
        let mut total = self.length.saturating_sub(self.link_length()).min(usize::from(u16::MAX));
        if total == 0 {
            total = headers + self.transport.len();
        }
        let least = self.transport_least.max(total.saturating_sub(headers));
        self.transport.truncate(least);
        put(&mut self.ip, 2, (total.min(usize::from(u16::MAX)) as u16).to_be_bytes());
        let is_udp = self.protocol() == IpProtocol::UDP.0 && self.is_first_fragment();
        if is_udp && word(&self.transport, 4) == Some(0) {
            put(&mut self.transport, 4, (total.saturating_sub(headers) as u16).to_be_bytes());
        }
        if sum {
            if headers + self.transport.len() < total {
                self.transport.resize(total - headers, 0);
            }
            self.set_checksums(total);
        }
    }

    fn set_checksums(&mut self, total: usize) {
        put(&mut self.ip, 10, [0, 0]);
        let check = checksum::compute(&self.ip);
        put(&mut self.ip, 10, check.to_be_bytes());
        let is_fragment = word(&self.ip, 6).is_some_and(|flags| flags & 0x3fff != 0);
        let protocol = IpProtocol(self.protocol());
        let place = match protocol {
            IpProtocol::TCP => 16,
            IpProtocol::UDP => 6,
            IpProtocol::ICMP => 2,
            _ => return,
        };
        let covered = total.saturating_sub(self.ip.len()).min(self.transport.len());
        if is_fragment || covered < place + 2 {
            return;
        }
        let (source, destination) = self.ends();
        put(&mut self.transport, place, [0, 0]);
        let sum = checksum::sum(&self.transport[..covered]);
        let pseudo = checksum::pseudo_v4(source, destination, protocol.0, covered as u16);
        let check = match protocol {
            IpProtocol::ICMP => checksum::finish(sum),
            IpProtocol::UDP => checksum::finish_udp(checksum::combine(sum, pseudo)),
            _ => checksum::finish(checksum::combine(sum, pseudo)),
        };
        put(&mut self.transport, place, check.to_be_bytes());
    }

    /// Source, and where the packet goes in the end: the last address of a source route that is not used up.
    fn ends(&self) -> (Ipv4Addr, Ipv4Addr) {
        let address = |at: usize| {
            let octets = self.ip.get(at..).and_then(|rest| rest.first_chunk::<4>());
            Ipv4Addr::from(octets.copied().unwrap_or_default())
        };
        let mut rest = self.ip.get(20..).unwrap_or_default();
        while let Some(Some(option)) = options::split(rest) {
            if matches!(option.kind, LOOSE_ROUTE | STRICT_ROUTE)
                && let Some((&pointer, route)) = option.body.split_first()
                && let Some(last) = route.last_chunk::<4>()
                && usize::from(pointer) <= route.len()
            {
                return (address(12), Ipv4Addr::from(*last));
            }
            rest = option.rest;
        }
        (address(12), address(16))
    }

    /// Makes the packet, with `sum` also its checksums. False when it does not fit the frame.
    pub(super) fn write(&mut self, packet: &mut Packet, sum: bool) -> bool {
        self.finish(sum);
        let link: &[u8] = self.link.as_ref().map_or(&[], |link| link);
        let headers = [link, &self.ip, &self.transport];
        // What is not IP is all payload.
        let bytes = headers.into_iter().map(<[u8]>::len).sum::<usize>().max(self.whole.len());
        let Some(data) = packet.reset(bytes) else { return false };
        let mut at = 0;
        for part in headers {
            data[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        data[..self.whole.len()].copy_from_slice(&self.whole);
        let (link_length, ip_length) = (link.len(), self.ip.len());
        if link_length > 0 {
            packet.set_link_header(0);
        }
        if ip_length > 0 {
            packet.set_network_and_transport_header(link_length, ip_length);
            let destination = self.ip[16..].first_chunk().map_or(0, |octets| u32::from_be_bytes(*octets));
            packet.annotations_mut().set_destination_ip(destination);
        }
        packet.set_timestamp_ns(self.timestamp_ns);
        annotations::set_first_timestamp_ns(packet, self.first_timestamp_ns);
        annotations::set_extra_length(packet, self.length.saturating_sub(bytes));
        packet.annotations_mut().set_paint(self.paint);
        packet.annotations_mut().set_u32_at(Annotations::AGGREGATE, self.aggregate);
        packet.annotations_mut().set_u32_at(Annotations::EXTRA_PACKETS, self.extra_packets);
        true
    }
}
