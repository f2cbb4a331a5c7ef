//! =c
//! ARPQuerier(IP, ETH, I<keywords> CAPACITY, ENTRY_CAPACITY, ENTRY_PACKET_CAPACITY, TIMEOUT, POLL_TIMEOUT, BROADCAST, BROADCAST_POLL)
//!
//! =s arp
//! encapsulates IP packets in Ethernet headers found via ARP
//!
//! =d
//! Speaks ARP (RFC 826) for an interface with the address IP and the Ethernet address ETH. Input 0 takes IP packets whose
//! destination annotation is the next hop. If its Ethernet address is known, the packet gets an Ethernet header and
//! leaves by output 0; otherwise it waits, and an ARP query is sent: by output 1 if that is in use, else by output 0.
//! Input 1 takes ARP packets with their Ethernet header; when one answers a query, what waits for it leaves, in order.
//!
//! Packets for 255.255.255.255, and for the BROADCAST address, go to FF-FF-FF-FF-FF-FF without a query, multicast packets
//! to the group's Ethernet address (RFC 1112), and packets for 0.0.0.0 are dropped. IP may be a prefix such as
//! C<10.0.0.1/24>; then BROADCAST is the last address of its network unless it is given.
//!
//! At most one query a second is sent for an address (RFC 1122, 2.3.2.1), and repeated while packets wait. A packet waits at
//! most three seconds.
//!
//! Only packets with a sender that was asked for, or that is known already, are learned from, requests included (RFC 826).
//! A sender with our own IP address is reported as a conflict, at most once in ten seconds.
//!
//! Keyword arguments are:
//!
//! =over 8
//!
//! =item CAPACITY
//!
//! Most packets that wait, on all workers together; 0 is no limit. When there are more, the oldest one is dropped.
//! 2048 by default.
//!
//! =item ENTRY_CAPACITY
//!
//! Most addresses in the table, those without an answer included; 0 is no limit. Those without an answer make room first,
//! then the one not heard of for longest. 65536 by default.
//!
//! =item ENTRY_PACKET_CAPACITY
//!
//! Most packets that wait for one address, on each worker; 0 is no limit, and the default. When there are more, the
//! oldest is dropped, since RFC 1122, 2.3.2.2, wants the latest to be kept.
//!
//! =item TIMEOUT
//!
//! How long an address is known after its last answer; 0 is for ever. 5 minutes by default.
//!
//! =item POLL_TIMEOUT
//!
//! How long after its last answer a neighbour that is in use is asked again, at its Ethernet address; 0 is never. 1 minute by
//! default.
//!
//! =item BROADCAST
//!
//! The broadcast address of the local network.
//!
//! =item BROADCAST_POLL
//!
//! Whether known neighbours are asked again by broadcast; false by default.
//!
//! =back
//!
//! All workers share one table. Each has its own copy of what it needs to forward, so that packets cost no lock.
//!
//! Different from Click: one query a second instead of ten; queries are repeated without further packets; packets wait three
//! seconds and not as long as TIMEOUT; answers that nobody asked for are not learned; ENTRY_CAPACITY has a limit by default.
//! TABLE, CAPACITY_SLIM_FACTOR and the one-argument form are not supported.
//!
//! Dropped packets are counted as "ARP queue full", "ARP timeout", "ARP table cleared", "no next hop address", "no room for
//! an Ethernet header", "no own IP address", "unsolicited ARP packet", "ARP sender is not a unicast address", "ARP
//! packet with our own IP address", "not an ARP packet", or by what is wrong with the ARP packet.
//!
//! =h ipaddr read/write
//! The IP argument.
//!
//! =h broadcast read/write
//! The broadcast address.
//!
//! =h table read-only
//! The table: IP address, 1 if it is resolved, else 0, Ethernet address, seconds since the last answer.
//!
//! =h stats read-only
//! Packets dropped and queries sent, in words.
//!
//! =h queries read-only
//! Number of queries sent.
//!
//! =h responses read-only
//! Number of ARP packets received.
//!
//! =h count read-only
//! Number of addresses in the table.
//!
//! =h length read-only
//! Number of packets that wait.
//!
//! =h insert write-only
//! Takes C<IP ETH> into the table, as if it had answered.
//!
//! =h delete write-only
//! Takes an IP address out of the table.
//!
//! =h clear write-only
//! Empties the table, drops what waits and sets the counters to zero.
//!
//! =e
//!   c :: Classifier(12/0806 20/0002, 12/0800, -);
//!   arpq :: ARPQuerier(18.26.4.24/24, 00-00-C0-AE-67-EF);
//!   c[0] -> [1]arpq;
//!   c[1] -> Strip(14) -> CheckIPHeader -> [0]arpq -> ToDevice(eth0);
//!
//! =a ARPResponder, ARPFaker, EtherEncap

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use graph::arguments::{Interval, Raw};
use graph::runs::{Departure, Ordinary, Step};
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Handler, Setup, Verdict};
use ipnet::Ipv4Net;
use packet::wire::arp::ArpRepr;
use packet::wire::ethernet::{EtherType, HEADER_LEN, MacAddr};
use packet::{Batch, MAX_BATCH, Packet};

use super::arp_frame;
use super::header::{self, NO_ROOM, prepend};
use super::neighbour_table::{Answer, Known, Learned, Limits, NeighbourTable, QUERY_INTERVAL_NS};
use super::next_hop_cache::NextHopCache;
use super::waiting_room::WaitingRoom;

pub(crate) static CLASS: Class = Class {
    name: "ARPQuerier",
    ports: "2/1-2",
    processing: Class::PUSH,
    flow: "xy/x",
    manual: include_str!("arp_querier.rs"),
    make,
};

const SECOND_NS: u64 = 1_000_000_000;

/// How long a packet waits for an answer.
const WAIT_LIMIT_NS: u64 = 3 * QUERY_INTERVAL_NS;

/// How often a copy whose packets wait looks whether another copy got the answer.
const CHECK_INTERVAL_NS: u64 = 1_000_000;

/// Shortest time between two messages about a conflict: DEFEND_INTERVAL of RFC 5227, 1.1.
const CONFLICT_INTERVAL_NS: u64 = 10 * SECOND_NS;

/// Timer: look after the packets that wait.
const CHECK: u32 = 0;
/// Timer: look after the table.
const TICK: u32 = 1;

const QUEUE_FULL: &str = "ARP queue full";

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let arguments = &mut setup.arguments;
    let capacity: usize = arguments.keyword_or("CAPACITY", 2048)?;
    let entries: usize = arguments.keyword_or("ENTRY_CAPACITY", 65_536)?;
    let entry_packets: usize = arguments.keyword_or("ENTRY_PACKET_CAPACITY", 0)?;
    let timeout = arguments.keyword_or("TIMEOUT", Interval { ns: 300 * SECOND_NS })?;
    let poll_timeout = arguments.keyword_or("POLL_TIMEOUT", Interval { ns: 60 * SECOND_NS })?;
    let broadcast: Option<Ipv4Addr> = arguments.keyword("BROADCAST")?;
    let broadcast_poll = arguments.keyword_or("BROADCAST_POLL", false)?;
    let Raw(own) = arguments.required("IP")?;
    let own = Ipv4Net::from_argument(&own).ok_or_else(|| {
        ConfigError::new(format!(
            "IP: expected {}, got '{own}'; names are not supported here, write ARPQuerier(IP, ETH)",
            Ipv4Net::EXPECTED
        ))
    })?;
    let mac: MacAddr = arguments.required("ETH")?;
    arguments.finish()?;
    if mac.is_multicast() {
        return Err(format!("ETH: expected the Ethernet address of an interface, got the group {mac}").into());
    }
    // A network of two addresses has none for broadcast (RFC 3021, 2.2).
    let last = if own.prefix_len() < 31 { own.broadcast() } else { Ipv4Addr::BROADCAST };
    let broadcast = broadcast.unwrap_or(if last == own.addr() { Ipv4Addr::BROADCAST } else { last });
    let limits = Limits { entries, timeout_ns: timeout.ns, poll_timeout_ns: poll_timeout.ns };
    let table = setup.shared_by_copies(|| Ok::<_, ConfigError>(NeighbourTable::new(limits)))?;
    Ok(Box::new(ArpQuerier {
        cache: NextHopCache::new(),
        // No generation: the first look finds the whole table, for a copy that starts late.
        seen: u64::MAX,
        table,
        missed: Vec::with_capacity(MAX_BATCH),
        waiting: WaitingRoom::default(),
        retry_at_ns: u64::MAX,
        ip: own.addr(),
        mac,
        broadcast: broadcast.to_bits(),
        broadcast_poll,
        capacity,
        entry_packets,
        now_ns: 0,
        zero_reported: false,
        conflict_at_ns: None,
        name: setup.name().to_owned(),
    }))
}

struct ArpQuerier {
    cache: NextHopCache,
    /// Generation of the table up to which `cache` is right.
    seen: u64,
    table: Arc<NeighbourTable>,
    /// Packets of a batch that `cache` did not help; empty between batches.
    missed: Vec<Packet>,
    waiting: WaitingRoom,
    /// When the first query has to be repeated.
    retry_at_ns: u64,
    ip: Ipv4Addr,
    mac: MacAddr,
    broadcast: u32,
    broadcast_poll: bool,
    capacity: usize,
    entry_packets: usize,
    /// Time of the last call, for handlers.
    now_ns: u64,
    zero_reported: bool,
    conflict_at_ns: Option<u64>,
    name: String,
}

/// The header of an IPv4 packet.
fn header(destination: MacAddr, source: MacAddr) -> [u8; HEADER_LEN] {
    header::bytes(destination, source, EtherType::IPV4.0)
}

impl ArpQuerier {
    // ---- packets for known neighbours -------------------------------------------------------------------

    /// The fast path: all that most packets meet.
    #[inline(always)]
    fn encapsulate(cache: &NextHopCache, packet: &mut Packet, now_ns: u64) -> bool {
        match cache.find(packet.annotations().destination_ip()) {
            Some(hop) if now_ns < hop.ask_at_ns => prepend(packet, &hop.header),
            _ => false,
        }
    }

    fn send(&mut self, cx: &mut Context, mut packet: Packet, header: &[u8; HEADER_LEN]) {
        if prepend(&mut packet, header) {
            cx.emit(0, packet);
        } else {
            self.drop(cx, packet, NO_ROOM);
        }
    }

    fn drop(&mut self, cx: &mut Context, packet: Packet, reason: &'static str) {
        self.table.drops.fetch_add(1, Relaxed);
        cx.drop(packet, reason);
    }

    // ---- packets for the others -------------------------------------------------------------------------

    #[inline(never)]
    fn handle_missed(&mut self, cx: &mut Context) {
        let mut missed = std::mem::take(&mut self.missed);
        for packet in missed.drain(..) {
            self.handle_miss(cx, packet);
        }
        self.missed = missed;
    }

    fn handle_miss(&mut self, cx: &mut Context, packet: Packet) {
        let now_ns = self.now_ns;
        let address = packet.annotations().destination_ip();
        // A packet before this one may have settled it.
        if let Some(hop) = self.cache.find(address)
            && now_ns < hop.ask_at_ns
        {
            let header = hop.header;
            return self.send(cx, packet, &header);
        }
        if address == 0 {
            if !std::mem::replace(&mut self.zero_reported, true) {
                let name = &self.name;
                cx.message(&format!(
                    "{name}: would query for 0.0.0.0; missing destination IP address annotation?"
                ));
            }
            return self.drop(cx, packet, "no next hop address");
        }
        let ip = Ipv4Addr::from_bits(address);
        if ip.is_broadcast() || address == self.broadcast {
            return self.send(cx, packet, &header(MacAddr::BROADCAST, self.mac));
        }
        if ip.is_multicast() {
            return self.send(cx, packet, &header(MacAddr::for_ipv4_multicast(ip), self.mac));
        }
        if self.waiting.ask_at_ns(address).is_some_and(|ask_at_ns| now_ns < ask_at_ns) {
            return self.wait(cx, address, packet);
        }
        match self.ask(cx, address) {
            Ok(known) => self.send(cx, packet, &header(known.mac, self.mac)),
            Err(ask_at_ns) => {
                self.wait(cx, address, packet);
                self.waiting.set_ask_at_ns(address, ask_at_ns);
                self.retry_at_ns = self.retry_at_ns.min(ask_at_ns);
            }
        }
    }

    /// Asks the table about `address` and sends the query that it wants; what waits leaves if it is known,
    /// and the error is when to ask again if not.
    fn ask(&mut self, cx: &mut Context, address: u32) -> Result<Known, u64> {
        let answer = self.table.ask(address, self.now_ns);
        let known = match answer {
            Answer::Known(known) | Answer::Poll(known) => known,
            Answer::Query | Answer::Wait(_) => {
                // What has expired must not be used for what waits from now on.
                self.cache.forget(address);
                let Answer::Wait(ask_at_ns) = answer else {
                    self.query(cx, address, MacAddr::BROADCAST);
                    return Err(self.now_ns.saturating_add(QUERY_INTERVAL_NS));
                };
                return Err(ask_at_ns);
            }
        };
        self.cache.set(address, header(known.mac, self.mac), known.ask_at_ns);
        self.release(cx, address);
        if matches!(answer, Answer::Poll(_)) {
            // RFC 1122, 2.3.2.1 (2): "Unicast Poll -- Actively poll the remote host by periodically sending a
            // point-to-point ARP Request to it".
            self.query(cx, address, if self.broadcast_poll { MacAddr::BROADCAST } else { known.mac });
        }
        Ok(known)
    }

    fn query(&mut self, cx: &mut Context, address: u32, destination: MacAddr) {
        let request = ArpRepr::request(self.mac, self.ip, Ipv4Addr::from_bits(address));
        let frame = arp_frame::build(&request, destination);
        let query = cx.allocate().and_then(|mut packet| packet.set_data(&frame).then_some(packet));
        let Some(mut packet) = query else { return cx.count_drop("no frame for an ARP query", 1) };
        packet.set_link_header(0);
        self.table.queries.fetch_add(1, Relaxed);
        let output = cx.outputs().saturating_sub(1);
        cx.emit(output, packet);
    }

    // ---- packets that wait ------------------------------------------------------------------------------

    fn wait(&mut self, cx: &mut Context, address: u32, packet: Packet) {
        // RFC 1122, 2.3.2.2: "save (rather than discard) at least one (the latest) packet of each set".
        if self.entry_packets != 0 && self.waiting.len_for(address) >= self.entry_packets {
            let oldest = self.waiting.take_oldest_for(address);
            self.drop_waiting(cx, oldest, QUEUE_FULL);
        }
        if self.capacity != 0 && self.table.waiting.load(Relaxed) >= self.capacity {
            let Some(oldest) = self.waiting.take_oldest() else {
                // Other workers have all the places.
                return self.drop(cx, packet, QUEUE_FULL);
            };
            self.drop_waiting(cx, Some(oldest), QUEUE_FULL);
        }
        if self.waiting.len() == 0 {
            cx.set_timer(CHECK, self.now_ns + CHECK_INTERVAL_NS);
        }
        // The line's time is lost when its only packet made room for this one.
        let ask_at_ns = self.waiting.ask_at_ns(address).unwrap_or(0);
        self.table.waiting.fetch_add(1, Relaxed);
        self.waiting.add(address, packet, self.now_ns);
        self.waiting.set_ask_at_ns(address, ask_at_ns);
    }

    fn drop_waiting(&mut self, cx: &mut Context, packet: Option<Packet>, reason: &'static str) {
        if let Some(packet) = packet {
            self.table.waiting.fetch_sub(1, Relaxed);
            self.drop(cx, packet, reason);
        }
    }

    /// Sends what waits for `address` if that is known.
    fn release(&mut self, cx: &mut Context, address: u32) {
        let Some(hop) = self.cache.find(address).filter(|hop| hop.ask_at_ns != 0) else { return };
        let header = hop.header;
        let before = self.waiting.len();
        let packets = self.waiting.take_all(address);
        let mut without_room = Vec::new();
        for mut packet in packets {
            if prepend(&mut packet, &header) { cx.emit(0, packet) } else { without_room.push(packet) }
        }
        self.table.waiting.fetch_sub(before - self.waiting.len(), Relaxed);
        for packet in without_room {
            self.drop(cx, packet, NO_ROOM);
        }
    }

    /// Takes in what changed in the table, and sends what waited for it.
    #[inline(never)]
    fn catch_up(&mut self, cx: &mut Context) {
        let mac = self.mac;
        let tell = |cache: &mut NextHopCache, address, known: Option<Known>| match known {
            Some(known) => cache.set(address, header(known.mac, mac), known.ask_at_ns),
            None => cache.forget(address),
        };
        self.seen = self.table.catch_up(self.seen, &mut self.cache, NextHopCache::clear, tell);
        let addresses: Vec<u32> = self.waiting.addresses().collect();
        for address in addresses {
            self.release(cx, address);
        }
    }

    fn check_waiting(&mut self, cx: &mut Context) {
        while let Some(packet) = self.waiting.take_oldest_until(self.now_ns.saturating_sub(WAIT_LIMIT_NS)) {
            self.drop_waiting(cx, Some(packet), "ARP timeout");
        }
        if self.now_ns >= self.retry_at_ns {
            self.retry_at_ns = u64::MAX;
            let addresses: Vec<u32> = self.waiting.addresses().collect();
            for address in addresses {
                let mut ask_at_ns = self.waiting.ask_at_ns(address).unwrap_or(u64::MAX);
                if self.now_ns >= ask_at_ns {
                    let Err(again_at_ns) = self.ask(cx, address) else { continue };
                    ask_at_ns = again_at_ns;
                    self.waiting.set_ask_at_ns(address, ask_at_ns);
                }
                self.retry_at_ns = self.retry_at_ns.min(ask_at_ns);
            }
        }
        if self.waiting.len() > 0 {
            cx.set_timer(CHECK, self.now_ns + CHECK_INTERVAL_NS);
        }
    }

    // ---- ARP packets ------------------------------------------------------------------------------------

    fn receive(&mut self, cx: &mut Context, batch: &mut Batch) {
        self.table.responses.fetch_add(batch.len() as u64, Relaxed);
        let mut rival = None;
        cx.filter(batch, |packet| match self.learn(packet.data(), &mut rival) {
            Ok(()) => Verdict::Keep,
            Err(reason) => Verdict::Drop(reason),
        });
        cx.free(batch);
        if let Some(rival) = rival
            && self.conflict_at_ns.is_none_or(|at| self.now_ns >= at.saturating_add(CONFLICT_INTERVAL_NS))
        {
            self.conflict_at_ns = Some(self.now_ns);
            cx.message(&format!("{}: address conflict: {rival} uses our address {}", self.name, self.ip));
        }
        if self.table.generation() != self.seen {
            self.catch_up(cx);
        }
    }

    /// Learns from one ARP packet; the error is the reason why not.
    fn learn(&mut self, frame: &[u8], rival: &mut Option<MacAddr>) -> Result<(), &'static str> {
        let arp = arp_frame::parse(frame)?;
        // RFC 1812, 3.3.2: "A router MUST not believe any ARP reply that claims that the Link Layer address of
        // another host or router is a broadcast or multicast address."
        if arp.sender_mac.is_multicast() || arp.sender_mac == MacAddr::ZERO {
            return Err("ARP sender is not a unicast address");
        }
        if arp.sender_ip == self.ip {
            if arp.sender_mac != self.mac {
                *rival = Some(arp.sender_mac);
            }
            return Err("ARP packet with our own IP address");
        }
        match self.table.learn(arp.sender_ip.to_bits(), arp.sender_mac, self.now_ns) {
            Learned::Yes => Ok(()),
            Learned::Unsolicited => Err("unsolicited ARP packet"),
        }
    }
}

impl Element for ArpQuerier {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        self.now_ns = cx.now_ns();
        cx.set_timer(TICK, self.now_ns + SECOND_NS);
        Ok(())
    }

    fn ordinary(&self) -> Option<Ordinary> {
        Ordinary::steps([Step::Finish])
    }

    /// An ordinary packet goes to a known neighbour.
    fn finish(&mut self, departure: &mut Departure, packets: &mut [Packet], now_ns: u64) -> bool {
        if self.table.generation() != self.seen || self.ip.is_unspecified() {
            return false;
        }
        let cache = &self.cache;
        let encapsulate = |packet: &mut Packet| Self::encapsulate(cache, packet, now_ns);
        let take_back = |packet: &mut Packet| {
            packet.strip(HEADER_LEN);
        };
        let done = departure.apply_and(packets, encapsulate, take_back);
        if done {
            self.now_ns = now_ns;
        }
        done
    }

    fn push(&mut self, cx: &mut Context, input: usize, batch: &mut Batch) {
        let now_ns = cx.now_ns();
        self.now_ns = now_ns;
        if self.table.generation() != self.seen {
            self.catch_up(cx);
        }
        if input != 0 {
            return self.receive(cx, batch);
        }
        if self.ip.is_unspecified() {
            self.table.drops.fetch_add(batch.len() as u64, Relaxed);
            return cx.drop_batch(batch, "no own IP address");
        }
        let Self { cache, missed, .. } = self;
        batch.extract(|packet| Self::encapsulate(cache, packet, now_ns), |packet| missed.push(packet));
        if !self.missed.is_empty() {
            self.handle_missed(cx);
        }
    }

    fn timer(&mut self, cx: &mut Context, key: u32) {
        self.now_ns = cx.now_ns();
        if self.table.generation() != self.seen {
            self.catch_up(cx);
        }
        if key == TICK {
            self.table.expire(self.now_ns);
            cx.set_timer(TICK, self.now_ns + SECOND_NS);
        } else {
            self.check_waiting(cx);
        }
    }

    fn handlers(&self) -> &'static [Handler] {
        const {
            &[
                Handler::read_write("ipaddr", Combine::First),
                Handler::read_write("broadcast", Combine::First),
                Handler::read("table", Combine::First),
                Handler::read("stats", Combine::First),
                Handler::read("queries", Combine::First),
                Handler::read("responses", Combine::First),
                Handler::read("count", Combine::First),
                Handler::read("length", Combine::First),
                Handler::write("insert"),
                Handler::write("delete"),
                Handler::write("clear"),
            ]
        }
    }

    fn read(&mut self, name: &str, _argument: &str) -> Result<String, String> {
        let table = &self.table;
        Ok(match name {
            "ipaddr" => self.ip.to_string(),
            "broadcast" => Ipv4Addr::from_bits(self.broadcast).to_string(),
            "table" => table.text(self.now_ns),
            "stats" => format!(
                "{} packets killed\n{} ARP queries sent\n",
                table.drops.load(Relaxed),
                table.queries.load(Relaxed)
            ),
            "queries" => table.queries.load(Relaxed).to_string(),
            "responses" => table.responses.load(Relaxed).to_string(),
            "count" => table.count().to_string(),
            _ => table.waiting.load(Relaxed).to_string(),
        })
    }

    fn write(&mut self, cx: &mut Context, name: &str, value: &str) -> Result<(), String> {
        self.now_ns = cx.now_ns();
        match name {
            "ipaddr" => self.ip = Ipv4Addr::from_value(value)?,
            "broadcast" => self.broadcast = Ipv4Addr::from_value(value)?.to_bits(),
            "insert" => {
                let words: Vec<&str> = value.split_whitespace().collect();
                let &[ip, mac] = &words[..] else {
                    return Err(format!("expected IP address and Ethernet address, got '{value}'"));
                };
                let (ip, mac) = (Ipv4Addr::from_value(ip)?, MacAddr::from_value(mac)?);
                if mac.is_broadcast() || ip.is_unspecified() {
                    return Err(format!("expected the addresses of one host, got '{value}'"));
                }
                self.table.insert(ip.to_bits(), mac, self.now_ns);
            }
            "delete" => self.table.delete(Ipv4Addr::from_value(value)?.to_bits()),
            _ => {
                while let Some(packet) = self.waiting.take_oldest() {
                    self.drop_waiting(cx, Some(packet), "ARP table cleared");
                }
                self.table.clear();
            }
        }
        if self.table.generation() != self.seen {
            self.catch_up(cx);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "arp_querier_tests.rs"]
mod tests;
