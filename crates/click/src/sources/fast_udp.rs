//! What FastUDPSource, FastUDPSourceIP6 and FastUDPFlows have in common: frames that are made once and copied, at a rate.
//!
//! What differs is which frame comes next: a [`Frames`].

use std::net::{Ipv4Addr, Ipv6Addr};

use elements::token_bucket::TokenBucket;
use graph::lang::unquote;
use graph::services::UdpPort;
use graph::{Arguments, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup};
use packet::wire::ethernet::{EtherType, Ethernet, HEADER_LEN, MacAddr};
use packet::wire::ipv4::{Ipv4, Ipv4Repr};
use packet::wire::ipv6::{Ipv6, Ipv6Repr};
use packet::wire::udp::{self, Udp};
use packet::wire::{IpProtocol, PseudoHeader};
use packet::{Batch, Packet};

/// Shortest frame, without its checksum.
const SHORTEST: usize = 60;

/// Hop limit of the packets, Click's.
const HOPS: u8 = 250;

/// Both ends of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) enum Addresses {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

impl Addresses {
    fn header_len(self) -> usize {
        match self {
            Self::V4(..) => 20,
            Self::V6(..) => Ipv6Repr::LEN,
        }
    }

    fn pseudo_header(self) -> PseudoHeader {
        match self {
            Self::V4(source, destination) => PseudoHeader::V4 { source, destination },
            Self::V6(source, destination) => PseudoHeader::V6 { source, destination },
        }
    }
}

/// A frame with a UDP datagram.
#[derive(Clone, Debug)]
pub(super) struct UdpFrame {
    bytes: Vec<u8>,
    addresses: Addresses,
    checksum: bool,
}

impl UdpFrame {
    /// A frame of `length` bytes, with zeroes for data. `links` are source and destination.
    pub(super) fn new(
        length: usize,
        links: (MacAddr, MacAddr),
        addresses: Addresses,
        checksum: bool,
    ) -> Self {
        let (ether_type, header_len) = match addresses {
            Addresses::V4(..) => (EtherType::IPV4, 20),
            Addresses::V6(..) => (EtherType::IPV6, Ipv6Repr::LEN),
        };
        let shortest = HEADER_LEN + header_len + udp::HEADER_LEN;
        let mut bytes = vec![0; length.max(SHORTEST).max(shortest)];
        let datagram_len = bytes.len() - HEADER_LEN - header_len;
        let mut ethernet = Ethernet::new_unchecked(&mut bytes[..]);
        ethernet.set_destination(links.1);
        ethernet.set_source(links.0);
        ethernet.set_ethertype(ether_type);
        let network = ethernet.payload_mut();
        match addresses {
            Addresses::V4(source, destination) => {
                let mut header = Ipv4Repr::new(source, destination, IpProtocol::UDP, datagram_len);
                header.ttl = HOPS;
                header.dont_fragment = false;
                let fits = header.emit(&mut Ipv4::new_unchecked(network));
                debug_assert!(fits.is_ok(), "the frame is long enough for its headers");
            }
            Addresses::V6(source, destination) => {
                let header = Ipv6Repr {
                    source,
                    destination,
                    next_header: IpProtocol::UDP,
                    hop_limit: HOPS,
                    traffic_class: 0,
                    flow_label: 0,
                    payload_len: datagram_len,
                };
                let fits = header.emit(&mut Ipv6::new_unchecked(network));
                debug_assert!(fits.is_ok(), "the frame is long enough for its headers");
            }
        }
        Self { bytes, addresses, checksum }
    }

    /// Gives the datagram its ports.
    pub(super) fn set_ports(&mut self, source: u16, destination: u16) {
        let datagram = &mut self.bytes[HEADER_LEN + self.addresses.header_len()..];
        let length = datagram.len() as u16;
        let mut udp = Udp::new_unchecked(datagram);
        udp.set_source_port(source);
        udp.set_destination_port(destination);
        udp.set_length(length);
        udp.set_checksum(0);
        if self.checksum {
            udp.fill_checksum(&self.addresses.pseudo_header());
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Fills a fresh packet.
    #[inline]
    pub(super) fn fill(&self, packet: &mut Packet) {
        let fits = packet.set_data(&self.bytes);
        debug_assert!(fits, "the length was checked against the pool");
        packet.set_link_header(0);
        packet.set_network_and_transport_header(HEADER_LEN, self.addresses.header_len());
        match self.addresses {
            Addresses::V4(_, destination) => {
                packet.annotations_mut().set_destination_ip(destination.to_bits());
            }
            Addresses::V6(_, destination) => {
                packet.annotations_mut().set_destination_ip6(destination.to_bits());
            }
        }
    }
}

/// Which frame comes next.
pub(super) trait Frames: Send + 'static {
    /// Length of the frames in bytes.
    fn len(&self) -> usize;
    /// Fills a fresh packet with the next frame; `random` is as good as any number.
    fn fill(&mut self, packet: &mut Packet, random: u32);
    /// Begins with the first frame again.
    fn restart(&mut self);
}

/// The arguments with which all begin.
pub(super) struct Beginning {
    rate: u64,
    limit: Option<u64>,
    pub(super) length: usize,
}

impl Beginning {
    pub(super) fn read(arguments: &mut Arguments) -> Result<Self, ConfigError> {
        let rate: u32 = arguments.required("RATE")?;
        let limit: i64 = arguments.required("LIMIT")?;
        let length: u16 = arguments.required("LENGTH")?;
        Ok(Self { rate: rate.into(), limit: u64::try_from(limit).ok(), length: length.into() })
    }
}

/// The arguments with which FastUDPSource and FastUDPSourceIP6 go on: link and IP addresses, ports, and the rest.
pub(super) struct OneFlow {
    frame: UdpFrame,
    ports: (u16, u16),
    /// Packets after which both ports count up; 0: never.
    interval: u64,
    /// Packets with these ports, and by how much the ports have counted up.
    count: u64,
    added: u16,
}

impl OneFlow {
    pub(super) fn make<A: FromArgument>(
        setup: &mut Setup<'_>,
        names: [&'static str; 2],
        addresses: fn(A, A) -> Addresses,
    ) -> Result<Box<dyn Element>, ConfigError> {
        let arguments = &mut setup.arguments;
        let beginning = Beginning::read(arguments)?;
        let source_mac: MacAddr = arguments.required("SRCETH")?;
        let source: A = arguments.required(names[0])?;
        let UdpPort(source_port) = arguments.required("SPORT")?;
        let destination_mac: MacAddr = arguments.required("DSTETH")?;
        let destination: A = arguments.required(names[1])?;
        let UdpPort(destination_port) = arguments.required("DPORT")?;
        let checksum = arguments.optional("CHECKSUM")?.unwrap_or(true);
        let interval: u32 = arguments.optional("INTERVAL")?.unwrap_or(0);
        let active = arguments.optional("ACTIVE")?.unwrap_or(true);
        arguments.finish()?;
        let links = (source_mac, destination_mac);
        let mut frame = UdpFrame::new(beginning.length, links, addresses(source, destination), checksum);
        let ports = (source_port, destination_port);
        frame.set_ports(ports.0, ports.1);
        let flow = Self { frame, ports, interval: interval.into(), count: 0, added: 0 };
        Ok(Box::new(FastSource::new(setup, &beginning, flow, active)))
    }

    fn set_ports(&mut self) {
        let (source, destination) = self.ports;
        self.frame.set_ports(source.wrapping_add(self.added), destination.wrapping_add(self.added));
    }
}

impl Frames for OneFlow {
    fn len(&self) -> usize {
        self.frame.len()
    }

    #[inline]
    fn fill(&mut self, packet: &mut Packet, _random: u32) {
        self.frame.fill(packet);
        self.count += 1;
        if self.count == self.interval {
            self.count = 0;
            self.added = self.added.wrapping_add(1);
            self.set_ports();
        }
    }

    fn restart(&mut self) {
        (self.count, self.added) = (0, 0);
        self.set_ports();
    }
}

/// The element.
pub(super) struct FastSource<F> {
    frames: F,
    bucket: TokenBucket,
    limit: Option<u64>,
    active: bool,
    /// Whether LENGTH was too short.
    is_short: bool,
    works_here: bool,
    count: u64,
    /// When the first packet was made, and the last one that the limit allows.
    first_ns: u64,
    last_ns: u64,
}

/// Packets that it may be behind its rate.
fn burst(rate: u64) -> u64 {
    (rate / 100).max(2)
}

impl<F: Frames> FastSource<F> {
    /// The handlers of the class.
    pub(super) const HANDLERS: &'static [Handler] = &[
        Handler::read(
            "count",
            Combine::Sum,
            "Packets made since the start or the last reset.",
            &Get(|e: &mut Self| e.count.to_string()),
        ),
        Handler::read_write(
            "rate",
            Combine::Sum,
            "Read: packets a second between the first and the last packet, once LIMIT is reached, else 0. \
             Written: RATE.",
            &Get(|e: &mut Self| e.measured_rate().to_string()),
            &Put(|e: &mut Self, cx, value| e.set_rate(cx, value)),
        ),
        Handler::write(
            "reset",
            "Sets the count to zero, so that LIMIT more packets are made. Flows begin anew, a single one \
             with its first ports.",
            &Put(|e: &mut Self, cx, _| {
                e.restart(cx.now_ns());
                cx.set_signal(e.works());
                Ok(())
            }),
        ),
        Handler::write(
            "active",
            "Whether it works. Writing true resets too.",
            &Put(|e: &mut Self, cx, value| e.set_active(cx, value)),
        ),
        Handler::write(
            "limit",
            "The LIMIT argument.",
            &Put(|e: &mut Self, cx, value| e.set_limit(cx, value)),
        ),
    ];

    pub(super) fn new(setup: &Setup<'_>, beginning: &Beginning, frames: F, active: bool) -> Self {
        Self {
            frames,
            bucket: TokenBucket::new(beginning.rate, burst(beginning.rate), 1),
            limit: beginning.limit,
            active,
            is_short: beginning.length < SHORTEST,
            works_here: setup.works_here(),
            count: 0,
            first_ns: 0,
            last_ns: 0,
        }
    }

    fn left(&self) -> u64 {
        self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.count))
    }

    fn works(&self) -> bool {
        self.active && self.works_here && self.left() > 0
    }

    fn restart(&mut self, now_ns: u64) {
        (self.count, self.first_ns, self.last_ns) = (0, 0, 0);
        self.frames.restart();
        self.bucket.restart(now_ns, 1);
    }

    /// Packets a second between the first and the last; 0 before the last.
    fn measured_rate(&self) -> u64 {
        if self.last_ns == 0 {
            return 0;
        }
        let span_ns = self.last_ns.saturating_sub(self.first_ns).max(1_000_000);
        (u128::from(self.count) * 1_000_000_000 / u128::from(span_ns)) as u64
    }

    /// Takes another rate.
    fn set_rate(&mut self, cx: &mut Context, value: &str) -> Result<(), String> {
        let rate = u32::from_argument(&unquote(value.trim())).ok_or("rate parameter must be integer >= 0")?;
        self.bucket.set(cx.now_ns(), rate.into(), burst(rate.into()));
        cx.set_signal(self.works());
        Ok(())
    }

    /// Takes another limit.
    fn set_limit(&mut self, cx: &mut Context, value: &str) -> Result<(), String> {
        let limit =
            i64::from_argument(&unquote(value.trim())).ok_or("limit parameter must be integer >= 0")?;
        self.limit = u64::try_from(limit).ok();
        cx.set_signal(self.works());
        Ok(())
    }

    /// Works or pauses; to work it begins anew.
    fn set_active(&mut self, cx: &mut Context, value: &str) -> Result<(), String> {
        let value = unquote(value.trim());
        self.active = bool::from_argument(&value).ok_or("active parameter must be boolean")?;
        if self.active {
            self.restart(cx.now_ns());
        }
        cx.set_signal(self.works());
        Ok(())
    }
}

impl<F: Frames> Element for FastSource<F> {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        let room = cx.pool().data_bytes();
        if self.frames.len() > room {
            return Err(format!("LENGTH: {} bytes; a packet of this router holds {room}", self.frames.len()));
        }
        if self.is_short && self.works_here {
            cx.message("warning: packet length < 60, defaulting to 60");
        }
        cx.set_signal(self.works());
        Ok(())
    }

    fn notifies(&self) -> bool {
        true
    }

    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        if !self.works() {
            return cx.set_signal(false);
        }
        let now = cx.now_ns();
        let wanted = (max as u64).min(self.left()).min(batch.room() as u64);
        let granted = self.bucket.take_up_to(now, wanted);
        let start = batch.len();
        let made = cx.pool().allocate_batch(batch, granted as usize) as u64;
        self.bucket.give_back(granted - made);
        for packet in &mut batch.packets_mut()[start..] {
            self.frames.fill(packet, cx.random());
        }
        if self.count == 0 && made > 0 {
            self.first_ns = now;
        }
        self.count += made;
        if self.left() == 0 {
            self.last_ns = now;
            cx.set_signal(false);
        } else if granted < wanted {
            cx.set_signal(false);
            cx.set_timer(0, now.saturating_add(self.bucket.ns_until(now, 1)));
        }
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        cx.set_signal(self.works());
    }
}

/// The port of a flow by chance: never 65535, as with Click.
pub(super) fn random_port(random: u32) -> u16 {
    ((random >> 2) % 0xffff) as u16
}
