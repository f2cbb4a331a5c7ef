//! The generator's ends of its lines: one port that sends and, usually, one on which packets come back.
//!
//! A station is also a host of its network, as far as a router needs it: it answers requests of ARP and neighbour
//! solicitations for its addresses and asks for its gateway's.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use click::ethernet::nd_frame::NdFrame;
use packet::wire::arp::{Arp, ArpOperation, ArpRepr};
use packet::wire::ethernet::{self, EtherType, Ethernet, EthernetRepr, MacAddr};
use packet::wire::icmpv6::{Icmpv6Message, solicited_node};
use packet::{Batch, Pool, PoolOptions};
use ports::{OpenOptions, QueueStats, RxQueue, TxQueue};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::signature::{Mark, Verdict, judge};
use super::sink::Sink;
use super::source::Source;
use super::values::Hosts;

/// Packets taken from a port at a time.
const RECEIVE_BURST: usize = 64;
/// Frames in the pool: those in rings, in queues and under way in memory.
const FRAMES: usize = 16_384;
/// How often a gateway is asked for, and how long each answer may take.
const TRIES: u32 = 5;
const WAIT: Duration = Duration::from_secs(1);
/// The smallest frame in memory; IEEE 802.3 wants 64 bytes with FCS.
const SMALLEST: usize = 60;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Nanoseconds since the start; the clock of time stamps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// One port.
pub(crate) struct Station {
    /// As the command line names it.
    pub(crate) name: String,
    pub(crate) mac: MacAddr,
    pub(crate) mtu: usize,
    /// `None` on a port that only sends.
    rx: Option<Box<dyn RxQueue>>,
    tx: Box<dyn TxQueue>,
    /// The addresses for which it answers ARP requests and neighbour solicitations.
    answers: Vec<Hosts>,
}

impl Station {
    pub(crate) fn open(spec: &str) -> Result<Self> {
        let mut port = ports::open(spec, &OpenOptions::default())?;
        // Link addresses are the user's choice here, so the card's own filter must not stand in the way.
        port.set_promiscuous()?;
        let info = port.info();
        let rx = if info.rx_queues > 0 { Some(port.take_rx(0)?) } else { None };
        let tx = port.take_tx(0)?;
        let name = spec.to_owned();
        Ok(Self { name, mac: info.mac, mtu: info.mtu, rx, tx, answers: Vec::new() })
    }

    pub(crate) fn answer_for(&mut self, hosts: impl IntoIterator<Item = Hosts>) {
        self.answers.extend(hosts);
    }

    pub(crate) fn rx_stats(&self) -> QueueStats {
        self.rx.as_ref().map_or_else(QueueStats::default, |rx| rx.stats())
    }

    pub(crate) fn tx_stats(&self) -> QueueStats {
        self.tx.stats()
    }

    #[inline]
    fn receive(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        self.rx.as_mut().map_or(0, |rx| rx.receive(pool, batch, RECEIVE_BURST))
    }

    /// Puts something between the port and us.
    #[cfg(test)]
    pub(crate) fn wrap_rx(mut self, wrap: impl FnOnce(Box<dyn RxQueue>) -> Box<dyn RxQueue>) -> Self {
        self.rx = self.rx.map(wrap);
        self
    }

    /// Answers who asks for an address of ours, by ARP or neighbour discovery, and hears who is where.
    #[cold]
    fn hear(&mut self, frame: &[u8], pool: &mut Pool, heard: &mut dyn FnMut(IpAddr, MacAddr)) {
        match ethernet::payload_type(frame) {
            Ok(payload) if payload.ethertype == EtherType::ARP => {
                self.hear_arp(&frame[payload.offset..], pool, heard);
            }
            _ => {
                if let Ok(message) = NdFrame::parse(frame) {
                    self.hear_neighbour(&message, pool, heard);
                }
            }
        }
    }

    fn answers_for(&self, address: IpAddr) -> bool {
        self.answers.iter().any(|hosts| hosts.contains(address))
    }

    fn hear_arp(&mut self, packet: &[u8], pool: &mut Pool, heard: &mut dyn FnMut(IpAddr, MacAddr)) {
        let Ok(arp) = Arp::new_checked(packet) else { return };
        let Ok(arp) = ArpRepr::parse(&arp) else { return };
        if !arp.sender_mac.is_multicast() && !arp.sender_ip.is_unspecified() {
            heard(arp.sender_ip.into(), arp.sender_mac);
        }
        if arp.operation == ArpOperation::REQUEST && self.answers_for(arp.target_ip.into()) {
            self.send_arp(&arp.reply(self.mac), arp.sender_mac, pool);
        }
    }

    fn send_arp(&mut self, arp: &ArpRepr, destination: MacAddr, pool: &mut Pool) {
        let mut frame = [0; SMALLEST];
        let link = EthernetRepr { destination, source: self.mac, ethertype: EtherType::ARP };
        let fits = "a frame of 60 bytes holds an ARP packet";
        link.emit(&mut Ethernet::new_unchecked(&mut frame[..])).expect(fits);
        arp.emit(&mut Arp::new_unchecked(&mut frame[ethernet::HEADER_LEN..])).expect(fits);
        self.send_frame(&frame, pool);
    }

    fn hear_neighbour(&mut self, asked: &NdFrame, pool: &mut Pool, heard: &mut dyn FnMut(IpAddr, MacAddr)) {
        match asked.message {
            Icmpv6Message::NeighbourAdvertisement { target, .. } => {
                // "If the link layer has addresses and no Target Link-Layer Address option is included, the receiving node
                // SHOULD silently discard the received advertisement" (RFC 4861, section 7.2.5).
                if let Some(mac) = asked.mac.filter(|mac| !mac.is_multicast()) {
                    heard(target.into(), mac);
                }
            }
            Icmpv6Message::NeighbourSolicitation { target } if self.answers_for(target.into()) => {
                // One from the unspecified address asks whether somebody has the address already: all hear the answer
                // (RFC 4861, section 7.2.4).
                let is_probe = asked.source.is_unspecified();
                let (destination, link_destination) = if is_probe {
                    (ALL_NODES, MacAddr::for_ipv6_multicast(ALL_NODES))
                } else {
                    (asked.source, asked.mac.unwrap_or(asked.link.0))
                };
                let message = Icmpv6Message::NeighbourAdvertisement {
                    router: false,
                    solicited: !is_probe,
                    override_cache: true,
                    target,
                };
                let link = (self.mac, link_destination);
                let answer = NdFrame { link, source: target, destination, message, mac: Some(self.mac) };
                self.send_neighbour(&answer, pool);
            }
            _ => {}
        }
    }

    fn send_neighbour(&mut self, message: &NdFrame, pool: &mut Pool) {
        let (frame, length) = message.build();
        self.send_frame(&frame[..length], pool);
    }

    /// Asks who has `gateway`.
    fn ask_for(&mut self, own: IpAddr, gateway: IpAddr, pool: &mut Pool) {
        match (own, gateway) {
            (IpAddr::V4(own), IpAddr::V4(gateway)) => {
                self.send_arp(&ArpRepr::request(self.mac, own, gateway), MacAddr::BROADCAST, pool);
            }
            (IpAddr::V6(source), IpAddr::V6(target)) => {
                let destination = solicited_node(target);
                let link = (self.mac, MacAddr::for_ipv6_multicast(destination));
                let message = Icmpv6Message::NeighbourSolicitation { target };
                let question = NdFrame { link, source, destination, message, mac: Some(self.mac) };
                self.send_neighbour(&question, pool);
            }
            // Addresses of two families are refused before.
            _ => {}
        }
    }

    /// Sends a frame at once. One that the port does not take is lost; who needs it asks again.
    fn send_frame(&mut self, frame: &[u8], pool: &mut Pool) {
        let Some(mut packet) = pool.allocate() else { return };
        packet.set_data(frame);
        packet.set_link_header(0);
        let mut batch = Batch::new();
        batch.push(packet);
        self.tx.send(pool, &mut batch);
        self.tx.flush(pool);
        pool.free(&mut batch);
    }
}

/// What of a trial the sink must know to judge what comes.
pub(crate) struct Expected<'a, S> {
    pub(crate) sink: &'a mut Sink,
    pub(crate) source: &'a S,
    pub(crate) sent: u64,
}

/// The ports, a pool for them, and which of them is the sink.
pub(crate) struct Stations {
    /// The first one sends.
    all: Vec<Station>,
    sink_on: Option<usize>,
    pub(crate) pool: Pool,
    received: Batch,
    clock: Clock,
}

impl Stations {
    /// `sender`, and where packets come back: on another port, on the same (`back_on_sender`) or nowhere.
    pub(crate) fn new(
        sender: Station,
        receiver: Option<Station>,
        back_on_sender: bool,
        largest_frame: usize,
    ) -> Result<Self> {
        let sink_on = if receiver.is_some() { Some(1) } else { back_on_sender.then_some(0) };
        let all: Vec<Station> = std::iter::once(sender).chain(receiver).collect();
        if let Some(station) = sink_on.and_then(|index| all.get(index))
            && station.rx.is_none()
        {
            bail!(
                "nothing can come back on port `{}`: it only sends; give another one with --rx, or --rx none",
                station.name
            );
        }
        let mtu = all.iter().map(|station| station.mtu).max().unwrap_or(0);
        let default = PoolOptions::default();
        // Room for what others may send us too, with two tags.
        let data_bytes = default.data_bytes.max(largest_frame).max(mtu + 22).min(32_000);
        let pool = Pool::new(PoolOptions { frames: FRAMES, data_bytes }).context("no memory for packets")?;
        Ok(Self { all, sink_on, pool, received: Batch::new(), clock: Clock::start() })
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn has_sink(&self) -> bool {
        self.sink_on.is_some()
    }

    pub(crate) fn all(&self) -> &[Station] {
        &self.all
    }

    pub(crate) fn sender(&self) -> &Station {
        &self.all[0]
    }

    /// Sends packets from the front of `batch`, as many as the port takes.
    #[inline]
    pub(crate) fn send(&mut self, batch: &mut Batch) -> usize {
        self.all[0].tx.send(&mut self.pool, batch)
    }

    /// Pushes out what waits in the ports.
    #[inline]
    pub(crate) fn flush(&mut self) {
        for station in &mut self.all {
            station.tx.flush(&mut self.pool);
        }
    }

    /// Takes a burst from each port; how many packets came.
    #[inline]
    pub(crate) fn receive(&mut self, expected: &mut Expected<'_, impl Source>) -> usize {
        let mut count = 0;
        for (index, station) in self.all.iter_mut().enumerate() {
            let received = station.receive(&mut self.pool, &mut self.received);
            if received == 0 {
                continue;
            }
            count += received;
            let now_ns = self.clock.now_ns();
            for packet in self.received.iter() {
                let frame = packet.data();
                let is_neighbour = if self.sink_on == Some(index) {
                    expected.sink.accept(frame, now_ns, expected.source, expected.sent)
                } else {
                    let verdict = judge(frame, Mark::of(0));
                    // A router tells the sender, not the sink.
                    expected.sink.counts.icmp_errors += u64::from(verdict == Verdict::IcmpError);
                    verdict == Verdict::Neighbour
                };
                if is_neighbour {
                    station.hear(frame, &mut self.pool, &mut |_, _| {});
                }
            }
            self.pool.free(&mut self.received);
        }
        count
    }

    /// Asks on the sending port who has `gateway`, from `own`, until it answers.
    pub(crate) fn resolve(
        &mut self,
        own: IpAddr,
        gateway: IpAddr,
        interrupted: &AtomicBool,
    ) -> Result<MacAddr> {
        for _ in 0..TRIES {
            self.all[0].ask_for(own, gateway, &mut self.pool);
            let deadline = Instant::now() + WAIT;
            while Instant::now() < deadline {
                if interrupted.load(Ordering::Relaxed) {
                    bail!("interrupted while asking for the gateway {gateway}");
                }
                let mut found = None;
                let mut count = 0;
                for (index, station) in self.all.iter_mut().enumerate() {
                    count += station.receive(&mut self.pool, &mut self.received);
                    for packet in self.received.iter() {
                        station.hear(packet.data(), &mut self.pool, &mut |address, mac| {
                            if index == 0 && address == gateway {
                                found = Some(mac);
                            }
                        });
                    }
                    self.pool.free(&mut self.received);
                }
                if let Some(mac) = found {
                    return Ok(mac);
                }
                if count == 0 {
                    self.flush();
                    self.doze(1_000_000);
                }
            }
        }
        bail!(
            "the gateway {gateway} does not answer {} on port `{}` ({TRIES} tries); check that the link is up \
             and that {own} and {gateway} are in one network, or give its link address with --dst-mac",
            if gateway.is_ipv4() { "ARP requests" } else { "neighbour solicitations" },
            self.all[0].name
        )
    }

    /// Sleeps until something can be received or sent, for `ns` nanoseconds at most.
    pub(crate) fn doze(&self, ns: u64) {
        let mut ns = ns;
        let mut fds = Vec::with_capacity(2);
        for station in &self.all {
            let rx = station.rx.as_deref();
            let due = [rx.and_then(RxQueue::due_in_ns), station.tx.due_in_ns()];
            ns = due.into_iter().flatten().fold(ns, u64::min);
            match rx.and_then(RxQueue::wait_fd) {
                Some(fd) => fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN)),
                // Nobody wakes us; look again soon.
                None => ns = ns.min(100_000),
            }
        }
        if ns == 0 {
            return;
        }
        let timeout = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
        // A signal or an error wakes early, which is fine.
        let _ = poll(&mut fds, Some(&timeout));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stations(cable: &str) -> Stations {
        let mut sender = Station::open(&format!("memory:{cable}")).unwrap();
        let mut receiver = Station::open(&format!("memory:{cable}?end=1")).unwrap();
        let hosts = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Hosts>>();
        sender.answer_for(hosts(&["10.0.0.1", "2001:db8::1"]));
        receiver.answer_for(hosts(&["10.0.0.2", "10.9.0.0/24", "2001:db8::2", "2001:db8:9::/48"]));
        Stations::new(sender, Some(receiver), false, 60).unwrap()
    }

    #[test]
    fn a_gateway_is_found_and_addresses_are_answered_for() {
        let mut stations = stations("gen-arp");
        let mac = stations.all[1].mac;
        let not_interrupted = AtomicBool::new(false);
        for (own, gateway) in [
            ("10.0.0.1", "10.0.0.2"),
            ("10.0.0.1", "10.9.0.200"),
            ("2001:db8::1", "2001:db8::2"),
            ("2001:db8::1", "2001:db8:9:1::200"),
        ] {
            let found = stations.resolve(own.parse().unwrap(), gateway.parse().unwrap(), &not_interrupted);
            assert_eq!(found.unwrap(), mac);
        }
    }

    /// Bytes of a frame, from hexadecimal digits.
    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    /// What the other end of a cable receives, of which `act` uses one.
    fn frames_of(cable: &str, act: impl FnOnce(&mut Station, &mut Pool)) -> Vec<Vec<u8>> {
        let mut station = Station::open(&format!("memory:{cable}")).unwrap();
        let mut other = Station::open(&format!("memory:{cable}?end=1")).unwrap();
        station.mac = MacAddr([2, 0, 0, 0, 0, 0x0b]);
        station.answer_for(["2001:db8::2".parse().unwrap()]);
        let mut pool = Pool::new(PoolOptions { frames: 64, ..PoolOptions::default() }).unwrap();
        act(&mut station, &mut pool);
        let mut batch = Batch::new();
        other.receive(&mut pool, &mut batch);
        let frames = batch.iter().map(|packet| packet.data().to_vec()).collect();
        pool.free(&mut batch);
        frames
    }

    // The checksums below are of a sum by hand over the pseudo-header and the message (RFC 8200, section 8.1).

    /// 2001:db8::1 at 02:00:00:00:00:0a asks who has 2001:db8::2.
    const SOLICITATION: &str = "3333ff000002 02000000000a 86dd 60000000 0020 3a ff \
        20010db8000000000000000000000001 ff0200000000000000000001ff000002 \
        8700 1c1e 00000000 20010db8000000000000000000000002 0101 02000000000a";

    #[test]
    fn a_solicitation_is_right_to_the_byte() {
        let frames = frames_of("gen-ns", |station, pool| {
            station.mac = MacAddr([2, 0, 0, 0, 0, 0x0a]);
            station.ask_for("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap(), pool);
        });
        assert_eq!(frames, [bytes(SOLICITATION)]);
    }

    #[test]
    fn an_advertisement_is_right_to_the_byte() {
        let frames = frames_of("gen-na", |station, pool| {
            station.hear(&bytes(SOLICITATION), pool, &mut |_, _| panic!("nobody said where it is"));
        });
        // Solicited, and takes precedence over what the asker knew; not a router.
        let advertisement = "02000000000a 02000000000b 86dd 60000000 0020 3a ff \
            20010db8000000000000000000000002 20010db8000000000000000000000001 \
            8800 CHECK 60000000 20010db8000000000000000000000002 0201 02000000000b";
        assert_eq!(frames, [bytes(&advertisement.replace("CHECK", "8a68"))]);
    }

    #[test]
    fn a_probe_is_answered_to_all_and_others_not() {
        let probe = "3333ff000002 02000000000a 86dd 60000000 0018 3a ff \
            00000000000000000000000000000000 ff0200000000000000000001ff000002 \
            8700 CHECK 00000000 20010db8000000000000000000000002";
        let frames = frames_of("gen-dad", |station, pool| {
            station.hear(&bytes(&probe.replace("CHECK", "4ceb")), pool, &mut |_, _| {});
        });
        let answer = NdFrame::parse(&frames[0]).unwrap();
        assert_eq!((answer.destination, answer.link.1), (ALL_NODES, MacAddr([0x33, 0x33, 0, 0, 0, 1])));
        let quiet = frames_of("gen-quiet", |station, pool| {
            // A wrong checksum; another's address.
            station.hear(&bytes(&probe.replace("CHECK", "4cec")), pool, &mut |_, _| {});
            station.ask_for("2001:db8::2".parse().unwrap(), "2001:db8::3".parse().unwrap(), pool);
        });
        let heard = frames_of("gen-other", |station, pool| station.hear(&quiet[0], pool, &mut |_, _| {}));
        assert_eq!((quiet.len(), heard.len()), (1, 0));
    }

    #[test]
    fn a_gateway_that_is_not_there_is_an_error_that_helps() {
        let mut stations = stations("gen-no-arp");
        let own = "10.0.0.1".parse().unwrap();
        let interrupted = AtomicBool::new(true);
        let error = stations.resolve(own, "10.0.0.3".parse().unwrap(), &interrupted).unwrap_err();
        assert!(error.to_string().contains("interrupted"), "{error}");
    }
}
