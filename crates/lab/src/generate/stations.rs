//! The generator's ends of its lines: one port that sends and, usually, one on which packets come back.
//!
//! A station is also a host of its network, as far as a router needs it: it answers ARP requests for its addresses and
//! asks for its gateway's.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use packet::wire::arp::{Arp, ArpOperation, ArpRepr};
use packet::wire::ethernet::{self, EtherType, Ethernet, EthernetRepr, MacAddr};
use packet::{Batch, Pool, PoolOptions};
use ports::{OpenOptions, QueueStats, RxQueue, TxQueue};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::signature::{Verdict, judge};
use super::sink::Sink;
use super::traffic::Traffic;
use super::values::Hosts;

/// Packets taken from a port at a time.
const RECEIVE_BURST: usize = 64;
/// Frames in the pool: those in rings, in queues and under way in memory.
const FRAMES: usize = 16_384;
const ARP_TRIES: u32 = 5;
const ARP_WAIT: Duration = Duration::from_secs(1);
/// The smallest frame in memory; IEEE 802.3 wants 64 bytes with FCS.
const SMALLEST: usize = 60;

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
    /// The addresses for which it answers ARP requests.
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

    /// Answers an ARP request for an address of ours, and hears who is where.
    #[cold]
    fn hear_arp(&mut self, packet: &[u8], pool: &mut Pool, heard: &mut dyn FnMut(Ipv4Addr, MacAddr)) {
        let Ok(arp) = Arp::new_checked(packet) else { return };
        let Ok(arp) = ArpRepr::parse(&arp) else { return };
        if !arp.sender_mac.is_multicast() && !arp.sender_ip.is_unspecified() {
            heard(arp.sender_ip, arp.sender_mac);
        }
        let asked_for_us = self.answers.iter().any(|hosts| hosts.contains(arp.target_ip));
        if arp.operation == ArpOperation::REQUEST && asked_for_us {
            self.send_arp(&arp.reply(self.mac), arp.sender_mac, pool);
        }
    }

    /// Sends an ARP packet. One that the port does not take is lost; who needs it asks again.
    fn send_arp(&mut self, arp: &ArpRepr, destination: MacAddr, pool: &mut Pool) {
        let Some(mut packet) = pool.allocate() else { return };
        let Some(data) = packet.reset(SMALLEST) else { return };
        data.fill(0);
        let link = EthernetRepr { destination, source: self.mac, ethertype: EtherType::ARP };
        let fits = "a frame of 60 bytes holds an ARP packet";
        link.emit(&mut Ethernet::new_unchecked(&mut *data)).expect(fits);
        arp.emit(&mut Arp::new_unchecked(&mut data[ethernet::HEADER_LEN..])).expect(fits);
        packet.set_link_header(0);
        let mut batch = Batch::new();
        batch.push(packet);
        self.tx.send(pool, &mut batch);
        self.tx.flush(pool);
        pool.free(&mut batch);
    }
}

/// What of a trial the sink must know to judge what comes.
pub(crate) struct Expected<'a> {
    pub(crate) sink: &'a mut Sink,
    pub(crate) traffic: &'a Traffic,
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
    pub(crate) fn receive(&mut self, expected: &mut Expected<'_>) -> usize {
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
                let arp = if self.sink_on == Some(index) {
                    expected.sink.accept(frame, now_ns, expected.traffic, expected.sent)
                } else {
                    match judge(frame, 0) {
                        Verdict::Arp(offset) => Some(offset),
                        // A router tells the sender, not the sink.
                        Verdict::IcmpError => {
                            expected.sink.counts.icmp_errors += 1;
                            None
                        }
                        _ => None,
                    }
                };
                if let Some(packet) = arp.and_then(|offset| frame.get(offset..)) {
                    station.hear_arp(packet, &mut self.pool, &mut |_, _| {});
                }
            }
            self.pool.free(&mut self.received);
        }
        count
    }

    /// Asks on the sending port who has `gateway`, from `own`, until it answers.
    pub(crate) fn resolve(
        &mut self,
        own: Ipv4Addr,
        gateway: Ipv4Addr,
        interrupted: &AtomicBool,
    ) -> Result<MacAddr> {
        for _ in 0..ARP_TRIES {
            let request = ArpRepr::request(self.all[0].mac, own, gateway);
            self.all[0].send_arp(&request, MacAddr::BROADCAST, &mut self.pool);
            let deadline = Instant::now() + ARP_WAIT;
            while Instant::now() < deadline {
                if interrupted.load(Ordering::Relaxed) {
                    bail!("interrupted while asking for the gateway {gateway}");
                }
                let mut found = None;
                let mut count = 0;
                for (index, station) in self.all.iter_mut().enumerate() {
                    count += station.receive(&mut self.pool, &mut self.received);
                    for packet in self.received.iter() {
                        let frame = packet.data();
                        if let Some(packet) = arp_offset(frame).and_then(|offset| frame.get(offset..)) {
                            station.hear_arp(packet, &mut self.pool, &mut |address, mac| {
                                if index == 0 && address == gateway {
                                    found = Some(mac);
                                }
                            });
                        }
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
            "the gateway {gateway} does not answer ARP requests on port `{}` ({ARP_TRIES} tries); check that the link is up \
             and that {own} and {gateway} are in one network, or give its link address with --dst-mac",
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

/// Where the ARP packet in a frame is, if there is one.
fn arp_offset(frame: &[u8]) -> Option<usize> {
    match judge(frame, 0) {
        Verdict::Arp(offset) => Some(offset),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stations(cable: &str) -> Stations {
        let mut sender = Station::open(&format!("memory:{cable}")).unwrap();
        let mut receiver = Station::open(&format!("memory:{cable}?end=1")).unwrap();
        sender.answer_for(["10.0.0.1".parse().unwrap()]);
        receiver.answer_for(["10.0.0.2".parse().unwrap(), "10.9.0.0/24".parse().unwrap()]);
        Stations::new(sender, Some(receiver), false, 60).unwrap()
    }

    #[test]
    fn a_gateway_is_found_and_addresses_are_answered_for() {
        let mut stations = stations("gen-arp");
        let mac = stations.all[1].mac;
        let not_interrupted = AtomicBool::new(false);
        for gateway in ["10.0.0.2", "10.9.0.200"] {
            let found =
                stations.resolve("10.0.0.1".parse().unwrap(), gateway.parse().unwrap(), &not_interrupted);
            assert_eq!(found.unwrap(), mac);
        }
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
