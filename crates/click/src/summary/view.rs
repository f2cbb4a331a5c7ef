//! A packet as the fields of a dump see it: which headers it has, how much of them is there, and what is wrong.

use packet::Packet;
use packet::wire::IpProtocol;

use super::field::word;

/// How packets are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    /// Whether a packet with less data than its IP header says is a bad one.
    pub(super) careful_truncation: bool,
    /// Whether somebody wants to know what is wrong.
    pub(super) complains: bool,
    /// Whether any field lies in the IP header or behind it.
    pub(super) looks_at_ip: bool,
}

/// What a field lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Ip,
    Tcp,
    Udp,
    Icmp,
    /// The ports, which several protocols have at the same place.
    Ports,
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Self::Ip => "IP",
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Icmp => "ICMP",
            Self::Ports => "TCP/UDP",
        }
    }
}

pub(super) const UDP_LITE: u8 = 136;
pub(super) const DCCP: u8 = 33;

/// Whether the header of a protocol begins with two ports.
pub(super) fn has_ports(protocol: u8) -> bool {
    protocol == IpProtocol::TCP.0 || protocol == IpProtocol::UDP.0 || matches!(protocol, DCCP | UDP_LITE)
}

/// A packet under the eyes of a dump.
pub(super) struct View<'p> {
    pub(super) packet: &'p Packet,
    pub(super) timestamp_ns: u64,
    /// Bytes that belong to the packet and are not here, beyond what its IP header accounts for.
    pub(super) extra_length: u32,
    /// The same before the IP header was looked at.
    given_extra: u32,
    /// From the IP header to the end of the IP packet; `None` without one that is right.
    ip: Option<&'p [u8]>,
    /// Bytes behind the IP packet: the padding of a short frame.
    padding: usize,
    /// The TCP header is there but says that it ends before it should.
    bad_tcp: bool,
    complains: bool,
    bad: Option<String>,
}

impl<'p> View<'p> {
    /// Looks at `packet`, which `extra_length` bytes more belong to.
    pub(super) fn new(packet: &'p Packet, how: How, extra_length: u32, timestamp_ns: u64) -> Self {
        let mut view = Self {
            packet,
            timestamp_ns,
            extra_length,
            given_extra: extra_length,
            ip: None,
            padding: 0,
            bad_tcp: false,
            complains: how.complains,
            bad: None,
        };
        if how.looks_at_ip
            && let Some(network) = packet.network()
        {
            view.look_at_ip(network, how.careful_truncation);
        }
        view
    }

    fn look_at_ip(&mut self, network: &'p [u8], careful: bool) {
        let (Some(&first), Some(total)) = (network.first(), word(network, 2)) else {
            return self.complain(|| "truncated IP header".into());
        };
        let (version, header_words) = (first >> 4, first & 0x0f);
        if version != 4 {
            return self.complain(|| format!("IP version {version}"));
        }
        if header_words < 5 {
            return self.complain(|| format!("IP header length {header_words}"));
        }
        if total < u16::from(header_words) * 4 {
            return self.complain(|| format!("IP length {total}"));
        }
        let here = network.len().min(usize::from(total));
        self.padding = network.len() - here;
        let ip = &network[..here];
        self.ip = Some(ip);
        let missing = usize::from(total) - here;
        let extra = self.extra_length as usize + self.padding;
        if careful && extra < missing {
            self.complain(|| format!("truncated IP missing {}", missing - extra));
        }
        // The IP header accounts for what is not here, except in packets that are longer than it can say.
        let full = here + extra;
        let beyond = if total == u16::MAX { full.saturating_sub(usize::from(u16::MAX)) } else { 0 };
        self.extra_length = u32::try_from(beyond).unwrap_or(u32::MAX);
        if self.transport_of(Part::Tcp).is_some_and(|tcp| tcp.get(12).is_some_and(|offset| offset >> 4 < 5)) {
            let offset = self.transport().get(12).map_or(0, |offset| offset >> 4);
            self.complain(|| format!("TCP header length {offset}"));
            self.bad_tcp = true;
        }
    }

    fn complain(&mut self, message: impl FnOnce() -> String) {
        if self.complains && self.bad.is_none() {
            self.bad = Some(message());
        }
    }

    /// What is wrong with the packet, as far as anybody found out.
    pub(super) fn bad(&self) -> Option<&str> {
        self.bad.as_deref()
    }

    /// The bytes of the packet without padding.
    pub(super) fn data(&self) -> &'p [u8] {
        let data = self.packet.data();
        &data[..data.len().saturating_sub(self.padding)]
    }

    /// The IP packet, as far as it is here: at least four bytes.
    pub(super) fn whole_ip(&self) -> Option<&'p [u8]> {
        self.ip
    }

    /// What the IP header says of the packet's length.
    pub(super) fn ip_length(&self) -> Option<u16> {
        word(self.ip?, 2)
    }

    /// How long the IP header says it is.
    pub(super) fn ip_header_length(&self) -> usize {
        self.ip.and_then(<[u8]>::first).map_or(0, |first| usize::from(first & 0x0f) * 4)
    }

    /// The protocol, where the header reaches that far.
    pub(super) fn protocol(&self) -> Option<u8> {
        self.ip?.get(9).copied()
    }

    /// Whether the packet begins with a transport header if it has one at all.
    pub(super) fn is_first_fragment(&self) -> bool {
        self.ip.and_then(|ip| word(ip, 6)).is_some_and(|flags| flags & 0x1fff == 0)
    }

    /// What is behind the IP header, empty without one.
    pub(super) fn transport(&self) -> &'p [u8] {
        self.ip.and_then(|ip| ip.get(self.ip_header_length()..)).unwrap_or_default()
    }

    /// The transport header if it is one of `part`, and any of it is here.
    fn transport_of(&self, part: Part) -> Option<&'p [u8]> {
        let protocol = self.protocol()?;
        let right = match part {
            Part::Ip => false,
            Part::Tcp => protocol == IpProtocol::TCP.0 && !self.bad_tcp,
            Part::Udp => protocol == IpProtocol::UDP.0,
            Part::Icmp => protocol == IpProtocol::ICMP.0,
            Part::Ports => has_ports(protocol),
        };
        let transport = self.transport();
        (right && self.is_first_fragment() && !transport.is_empty()).then_some(transport)
    }

    /// The IP header, if `bytes` of it are here.
    pub(super) fn ip(&mut self, bytes: usize) -> Option<&'p [u8]> {
        let header = self.ip.filter(|ip| ip.len() >= bytes);
        self.found(header, Part::Ip, bytes)
    }

    /// The TCP header, if `bytes` of it are here.
    pub(super) fn tcp(&mut self, bytes: usize) -> Option<&'p [u8]> {
        self.transport_with(Part::Tcp, bytes)
    }

    /// The UDP header, if `bytes` of it are here.
    pub(super) fn udp(&mut self, bytes: usize) -> Option<&'p [u8]> {
        self.transport_with(Part::Udp, bytes)
    }

    /// The ICMP message, if `bytes` of it are here.
    pub(super) fn icmp(&mut self, bytes: usize) -> Option<&'p [u8]> {
        self.transport_with(Part::Icmp, bytes)
    }

    /// A transport header that begins with ports, if `bytes` of it are here.
    pub(super) fn ports(&mut self, bytes: usize) -> Option<&'p [u8]> {
        self.transport_with(Part::Ports, bytes)
    }

    fn transport_with(&mut self, part: Part, bytes: usize) -> Option<&'p [u8]> {
        let header = self.transport_of(part).filter(|header| header.len() >= bytes);
        self.found(header, part, bytes)
    }

    fn found(&mut self, header: Option<&'p [u8]>, part: Part, bytes: usize) -> Option<&'p [u8]> {
        if header.is_none() && self.complains && self.bad.is_none() {
            self.bad = self.why_missing(part, bytes);
        }
        header
    }

    /// Why `bytes` of `part` are not here; `None` where that is nothing to complain of.
    fn why_missing(&self, part: Part, bytes: usize) -> Option<String> {
        if self.ip.is_none() {
            return Some("no IP header".into());
        }
        if part == Part::Ip {
            return Some("truncated IP header capture".into());
        }
        let protocol = self.protocol().map(IpProtocol);
        let other = match part {
            Part::Tcp => protocol != Some(IpProtocol::TCP),
            Part::Udp => protocol != Some(IpProtocol::UDP),
            Part::Icmp => protocol != Some(IpProtocol::ICMP),
            _ => !matches!(protocol, Some(IpProtocol::TCP | IpProtocol::UDP)),
        };
        if protocol.is_some() && other {
            return None;
        }
        let name = part.name();
        Some(if protocol.is_some() && !self.is_first_fragment() {
            format!("fragmented {name} header")
        } else if self.transport().len() + self.given_extra as usize >= bytes {
            format!("truncated {name} header capture")
        } else {
            format!("truncated {name} header")
        })
    }

    /// The Ethernet header: the 14 bytes before the network header, or at the link header's mark where there is none.
    pub(super) fn ethernet(&mut self) -> Option<&'p [u8; 14]> {
        let network = self.packet.network_offset();
        let header = match (self.packet.link_offset(), network) {
            (Some(link), Some(network)) if network - link == 14 => self.packet.link(),
            (Some(_), None) => self.packet.link(),
            (None, Some(14)) => Some(self.packet.data()),
            _ => None,
        };
        let header = header.and_then(|bytes| bytes.first_chunk());
        if header.is_none() {
            self.complain(|| "Ethernet header".into());
        }
        header
    }
}
