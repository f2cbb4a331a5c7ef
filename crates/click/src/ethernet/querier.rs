//! What `ARPQuerier` and `IP6NDSolicitor` have in common: packets get the Ethernet header of their next hop,
//! or wait while it is asked for. What differs between ARP and neighbour discovery is a [`Protocol`].
//!
//! Every copy of the element has its own [`NextHopCache`], which is all that packets for known neighbours
//! meet, and its own [`WaitingRoom`]; the [`NeighbourTable`] behind a lock is for all copies.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use elements::ethernet::header::{self, NO_ROOM, prepend};
use elements::runs::{self, Departure, Header, Step, Watch};
use graph::arguments::{Arguments, Interval};
use graph::runs::{Ordinary, Sieve};
use graph::{Ask, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup, Verdict};
use packet::wire::ethernet::{EtherType, HEADER_LEN, MacAddr};
use packet::{Batch, MAX_BATCH, Packet};

use super::address::Address;
use super::neighbour_table::{Answer, Claim, Known, Learned, Limits, NeighbourTable, QUERY_INTERVAL_NS};
use super::next_hop_cache::NextHopCache;
use super::waiting_room::WaitingRoom;

/// A second, in nanoseconds.
pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// How long a packet waits for an answer: three queries (RFC 4861, 10: MAX_MULTICAST_SOLICIT).
const WAIT_LIMIT_NS: u64 = 3 * QUERY_INTERVAL_NS;

/// How often a copy whose packets wait looks whether another copy got the answer.
const CHECK_INTERVAL_NS: u64 = 1_000_000;

/// Shortest time between two messages about a conflict: DEFEND_INTERVAL of RFC 5227, 1.1.
const CONFLICT_INTERVAL_NS: u64 = 10 * SECOND_NS;

/// Timer: look after the packets that wait.
const CHECK: u32 = 0;
/// Timer: look after the table.
const TICK: u32 = 1;

/// The output of queries, where there is more than one.
const QUERIES: usize = 1;
/// The output of packets whose neighbour does not answer.
const UNREACHABLE: usize = 2;

/// What differs between ARP and neighbour discovery.
pub(super) trait Protocol: Send + 'static {
    /// The addresses that are asked for.
    type Address: Address;
    /// A query, as a frame.
    type Query: AsRef<[u8]>;
    /// What the packets are that get a header.
    const ETHERTYPE: EtherType;
    /// How things are called.
    const WORDS: Words;

    /// Where packets for many go, for which nobody is asked; `None` if `address` is that of one host.
    fn group(&self, address: Self::Address) -> Option<MacAddr>;

    /// The question of `own`, our two addresses, where `address` is. It was at `known`, if we are to ask
    /// there.
    fn query(
        &self,
        own: (Self::Address, MacAddr),
        address: Self::Address,
        known: Option<MacAddr>,
    ) -> Self::Query;

    /// What a received frame says; the error is the reason to drop it.
    fn read(&self, frame: &[u8]) -> Result<Claim<Self::Address>, &'static str>;
}

/// An address of a protocol as people write it.
type Ip<P> = <<P as Protocol>::Address as Address>::Ip;

/// The words of a protocol: drop reasons, and what queries are called.
pub(super) struct Words {
    pub(super) queries: &'static str,
    pub(super) queue_full: &'static str,
    pub(super) timeout: &'static str,
    pub(super) cleared: &'static str,
    pub(super) no_frame: &'static str,
    pub(super) not_unicast: &'static str,
    pub(super) own_address: &'static str,
    pub(super) unsolicited: &'static str,
    pub(super) no_address: &'static str,
}

/// The keyword arguments that both have.
pub(super) struct Options {
    capacity: usize,
    entry_packets: usize,
    limits: Limits,
}

impl Options {
    /// Reads them; `timeout_s` and `poll_timeout_s` are the defaults of TIMEOUT and POLL_TIMEOUT.
    pub(super) fn read(
        arguments: &mut Arguments,
        timeout_s: u64,
        poll_timeout_s: u64,
    ) -> Result<Self, ConfigError> {
        let mut options = Self::of_table(arguments, timeout_s)?;
        options.limits.poll_timeout_ns = poll_timeout_s * SECOND_NS;
        if let Some(Interval { ns }) = arguments.keyword("POLL_TIMEOUT")? {
            options.limits.poll_timeout_ns = ns;
        }
        Ok(options)
    }

    /// Reads those that a table of its own has too.
    pub(super) fn of_table(arguments: &mut Arguments, timeout_s: u64) -> Result<Self, ConfigError> {
        let capacity = arguments.keyword_or("CAPACITY", 2048)?;
        let entries = arguments.keyword_or("ENTRY_CAPACITY", 65_536)?;
        let entry_packets = arguments.keyword_or("ENTRY_PACKET_CAPACITY", 0)?;
        let Interval { ns: timeout_ns } =
            arguments.keyword_or("TIMEOUT", Interval { ns: timeout_s * SECOND_NS })?;
        Ok(Self { capacity, entry_packets, limits: Limits { entries, timeout_ns, poll_timeout_ns: 0 } })
    }

    /// A table with these limits.
    pub(super) fn table<A: Address>(&self) -> NeighbourTable<A> {
        NeighbourTable::new(self.limits)
    }

    /// After how long a neighbour that is in use is asked again.
    pub(super) fn poll_timeout_ns(&self) -> u64 {
        self.limits.poll_timeout_ns
    }
}

/// What the element leaves to the one that takes its place with other arguments.
struct Left<A> {
    table: Arc<NeighbourTable<A>>,
    has_own_table: bool,
    waiting: WaitingRoom<A>,
}

/// The element.
pub(super) struct Querier<P: Protocol> {
    pub(super) protocol: P,
    cache: NextHopCache<P::Address>,
    /// Generation of the table up to which `cache` is right.
    seen: u64,
    table: Arc<NeighbourTable<P::Address>>,
    /// Whether the table is that of this element's copies alone.
    has_own_table: bool,
    /// Packets of a batch that `cache` did not help; empty between batches.
    missed: Vec<Packet>,
    waiting: WaitingRoom<P::Address>,
    /// When the first query has to be repeated.
    retry_at_ns: u64,
    own: P::Address,
    mac: MacAddr,
    capacity: usize,
    entry_packets: usize,
    /// Time of this call.
    now_ns: u64,
    nobody_reported: bool,
    conflict_at_ns: Option<u64>,
    name: String,
}

impl<P: Protocol> Querier<P> {
    /// Makes the element for the interface with the addresses `own`, once all arguments are read. Without a `table` of others'
    /// its copies have their own.
    pub(super) fn make(
        setup: &mut Setup<'_>,
        protocol: P,
        own: (P::Address, MacAddr),
        options: &Options,
        table: Option<Arc<NeighbourTable<P::Address>>>,
    ) -> Result<Box<dyn Element>, ConfigError> {
        setup.arguments.finish()?;
        let (own, mac) = own;
        if mac.is_multicast() {
            return Err(
                format!("ETH: expected the Ethernet address of an interface, got the group {mac}").into()
            );
        }
        let has_own_table = table.is_none();
        let table = match table {
            Some(table) => table,
            None => setup.shared_by_copies(|| Ok::<_, ConfigError>(options.table()))?,
        };
        Ok(Box::new(Self {
            protocol,
            cache: NextHopCache::new(setup.flow_key()),
            // No generation: the first look finds the whole table, for a copy that starts late.
            seen: u64::MAX,
            table,
            has_own_table,
            missed: Vec::with_capacity(MAX_BATCH),
            waiting: WaitingRoom::new(),
            retry_at_ns: u64::MAX,
            own,
            mac,
            capacity: options.capacity,
            entry_packets: options.entry_packets,
            now_ns: 0,
            nobody_reported: false,
            conflict_at_ns: None,
            name: setup.name().to_owned(),
        }))
    }

    /// The header of packets to `destination`.
    fn header(&self, destination: MacAddr) -> [u8; HEADER_LEN] {
        header::bytes(destination, self.mac, P::ETHERTYPE.0)
    }

    // ---- packets for known neighbours -------------------------------------------------------------------

    /// The fast path: all that most packets meet.
    #[inline(always)]
    fn encapsulate(cache: &NextHopCache<P::Address>, packet: &mut Packet, now_ns: u64) -> bool {
        match cache.find(P::Address::of(packet.annotations())) {
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
        let address = P::Address::of(packet.annotations());
        // A packet before this one may have settled it.
        if let Some(hop) = self.cache.find(address)
            && now_ns < hop.ask_at_ns
        {
            let header = hop.header;
            return self.send(cx, packet, &header);
        }
        if address == P::Address::NOBODY {
            if !std::mem::replace(&mut self.nobody_reported, true) {
                let (name, nobody) = (&self.name, Ip::<P>::from(address));
                cx.message(&format!(
                    "{name}: would query for {nobody}; missing destination IP address annotation?"
                ));
            }
            return self.drop(cx, packet, "no next hop address");
        }
        if let Some(mac) = self.protocol.group(address) {
            return self.send(cx, packet, &self.header(mac));
        }
        if self.waiting.ask_at_ns(address).is_some_and(|ask_at_ns| now_ns < ask_at_ns) {
            return self.wait(cx, address, packet);
        }
        match self.ask(cx, address, packet.timestamp_ns()) {
            Ok(known) => self.send(cx, packet, &self.header(known.mac)),
            Err(ask_at_ns) => {
                self.wait(cx, address, packet);
                self.waiting.set_ask_at_ns(address, ask_at_ns);
                self.retry_at_ns = self.retry_at_ns.min(ask_at_ns);
            }
        }
    }

    /// Asks the table about `address` and sends the query that it wants; what waits leaves if it is known,
    /// and the error is when to ask again if not.
    fn ask(&mut self, cx: &mut Context, address: P::Address, stamp_ns: u64) -> Result<Known, u64> {
        let answer = self.table.ask(address, self.now_ns);
        let known = match answer {
            Answer::Known(known) | Answer::Poll(known) => known,
            Answer::Query | Answer::Wait(_) => {
                // What has expired must not be used for what waits from now on.
                self.cache.forget(address);
                let Answer::Wait(ask_at_ns) = answer else {
                    self.query(cx, address, None, stamp_ns);
                    return Err(self.now_ns.saturating_add(QUERY_INTERVAL_NS));
                };
                return Err(ask_at_ns);
            }
        };
        self.cache.set(address, self.header(known.mac), known.ask_at_ns);
        self.release(cx, address);
        if matches!(answer, Answer::Poll(_)) {
            // RFC 1122, 2.3.2.1 (2): "Unicast Poll -- Actively poll the remote host by periodically sending a
            // point-to-point ARP Request to it". RFC 4861, 7.3.3: "the node sends a unicast Neighbor
            // Solicitation".
            self.query(cx, address, Some(known.mac), stamp_ns);
        }
        Ok(known)
    }

    /// `stamp_ns` is the time stamp of the packet that is in want of the address.
    fn query(&mut self, cx: &mut Context, address: P::Address, known: Option<MacAddr>, stamp_ns: u64) {
        let frame = self.protocol.query((self.own, self.mac), address, known);
        let query = cx.allocate().and_then(|mut packet| packet.set_data(frame.as_ref()).then_some(packet));
        let query = query.map(|mut packet| {
            packet.set_network_header(HEADER_LEN);
            packet.set_timestamp_ns(stamp_ns);
            packet
        });
        let Some(mut packet) = query else { return cx.count_drop(P::WORDS.no_frame, 1) };
        packet.set_link_header(0);
        self.table.queries.fetch_add(1, Relaxed);
        let output = QUERIES.min(cx.outputs().saturating_sub(1));
        cx.emit(output, packet);
    }

    // ---- packets that wait ------------------------------------------------------------------------------

    fn wait(&mut self, cx: &mut Context, address: P::Address, packet: Packet) {
        // RFC 1122, 2.3.2.2: "save (rather than discard) at least one (the latest) packet of each set".
        if self.entry_packets != 0 && self.waiting.len_for(address) >= self.entry_packets {
            let oldest = self.waiting.take_oldest_for(address);
            self.drop_waiting(cx, oldest, P::WORDS.queue_full);
        }
        if self.capacity != 0 && self.table.waiting.load(Relaxed) >= self.capacity {
            let Some(oldest) = self.waiting.take_oldest() else {
                // Other workers have all the places.
                return self.drop(cx, packet, P::WORDS.queue_full);
            };
            self.drop_waiting(cx, Some(oldest), P::WORDS.queue_full);
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

    /// Lets a packet go whose neighbour did not answer. RFC 1812, 3.3.2, and RFC 4861, 7.2.2: then, and only
    /// then, its sender hears that the destination is unreachable.
    fn give_up(&mut self, cx: &mut Context, packet: Packet) {
        self.table.waiting.fetch_sub(1, Relaxed);
        if cx.outputs() <= UNREACHABLE {
            self.table.drops.fetch_add(1, Relaxed);
        }
        cx.divert(UNREACHABLE, packet, P::WORDS.timeout);
    }

    /// Sends what waits for `address` if that is known.
    fn release(&mut self, cx: &mut Context, address: P::Address) {
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
        let tell = |cache: &mut NextHopCache<P::Address>, address, known: Option<Known>| match known {
            Some(known) => {
                cache.set(address, header::bytes(known.mac, mac, P::ETHERTYPE.0), known.ask_at_ns);
            }
            None => cache.forget(address),
        };
        self.seen = self.table.catch_up(self.seen, &mut self.cache, NextHopCache::clear, tell);
        let addresses: Vec<P::Address> = self.waiting.addresses().collect();
        for address in addresses {
            self.release(cx, address);
        }
    }

    fn check_waiting(&mut self, cx: &mut Context) {
        while let Some(packet) = self.waiting.take_oldest_until(self.now_ns.saturating_sub(WAIT_LIMIT_NS)) {
            self.give_up(cx, packet);
        }
        if self.now_ns >= self.retry_at_ns {
            self.retry_at_ns = u64::MAX;
            let addresses: Vec<P::Address> = self.waiting.addresses().collect();
            for address in addresses {
                let mut ask_at_ns = self.waiting.ask_at_ns(address).unwrap_or(u64::MAX);
                if self.now_ns >= ask_at_ns {
                    let Err(again_at_ns) = self.ask(cx, address, self.now_ns) else { continue };
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

    // ---- answers ----------------------------------------------------------------------------------------

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
            let own = Ip::<P>::from(self.own);
            cx.message(&format!("{}: address conflict: {rival} uses our address {own}", self.name));
        }
        if self.table.generation() != self.seen {
            self.catch_up(cx);
        }
    }

    /// Learns from one frame; the error is the reason why not.
    fn learn(&mut self, frame: &[u8], rival: &mut Option<MacAddr>) -> Result<(), &'static str> {
        let claim = self.protocol.read(frame)?;
        // RFC 1812, 3.3.2: "A router MUST not believe any ARP reply that claims that the Link Layer address
        // of another host or router is a broadcast or multicast address."
        if claim.mac.is_some_and(|mac| mac.is_multicast() || mac == MacAddr::ZERO) {
            return Err(P::WORDS.not_unicast);
        }
        if claim.address == self.own {
            *rival = claim.mac.filter(|&mac| mac != self.mac).or(*rival);
            return Err(P::WORDS.own_address);
        }
        match self.table.learn(claim, self.now_ns) {
            Learned::Yes => Ok(()),
            Learned::Unsolicited => Err(P::WORDS.unsolicited),
            Learned::NoAddress => Err(P::WORDS.no_address),
        }
    }
}

/// The handlers that both have; a class says which of them it has, and in which order.
impl<P: Protocol> Querier<P> {
    pub(super) const OWN_ADDRESS: Handler = Handler::read_write(
        "ipaddr",
        Combine::First,
        "The own IP address, the first argument.",
        &Get(|e: &mut Self| Ip::<P>::from(e.own).to_string()),
        &Put(|e: &mut Self, cx, value| {
            e.change(cx, |e, _| {
                e.own = Ip::<P>::from_value(value)?.into();
                Ok(())
            })
        }),
    );

    pub(super) const TABLE: Handler = Handler::read(
        "table",
        Combine::First,
        "The table: address, 1 if it is resolved, else 0, Ethernet address, seconds since the last answer.",
        &Ask(|e: &mut Self, cx, _| Ok(e.table.text(cx.now_ns()))),
    );

    pub(super) const STATS: Handler = Handler::read(
        "stats",
        Combine::First,
        "Packets dropped and queries sent, in words.",
        &Get(|e: &mut Self| e.stats_text()),
    );

    pub(super) const QUERIES: Handler = Handler::read(
        "queries",
        Combine::First,
        "Number of queries sent.",
        &Get(|e: &mut Self| e.table.queries.load(Relaxed).to_string()),
    );

    pub(super) const RESPONSES: Handler = Handler::read(
        "responses",
        Combine::First,
        "Number of packets received by input 1.",
        &Get(|e: &mut Self| e.table.responses.load(Relaxed).to_string()),
    );

    pub(super) const COUNT: Handler = Handler::read(
        "count",
        Combine::First,
        "Number of addresses in the table.",
        &Get(|e: &mut Self| e.table.count().to_string()),
    );

    pub(super) const LENGTH: Handler = Handler::read(
        "length",
        Combine::First,
        "Number of packets that wait.",
        &Get(|e: &mut Self| e.table.waiting.load(Relaxed).to_string()),
    );

    pub(super) const INSERT: Handler = Handler::write(
        "insert",
        "Takes an IP address and its Ethernet address into the table, as if it had answered.",
        &Put(|e: &mut Self, cx, value| e.change(cx, |e, _| e.insert(value))),
    );

    pub(super) const DELETE: Handler = Handler::write(
        "delete",
        "Takes an IP address out of the table.",
        &Put(|e: &mut Self, cx, value| {
            e.change(cx, |e, _| {
                e.table.delete(Ip::<P>::from_value(value)?.into());
                Ok(())
            })
        }),
    );

    pub(super) const CLEAR: Handler = Handler::write(
        "clear",
        "Empties the table, drops what waits and sets the counters to zero.",
        &Put(|e: &mut Self, cx, _| {
            e.change(cx, |e, cx| {
                e.clear(cx);
                Ok(())
            })
        }),
    );

    /// Does what is written to a handler, and takes in what that changed in the table.
    pub(super) fn change(
        &mut self,
        cx: &mut Context,
        change: impl FnOnce(&mut Self, &mut Context) -> Result<(), String>,
    ) -> Result<(), String> {
        self.now_ns = cx.now_ns();
        change(self, cx)?;
        if self.table.generation() != self.seen {
            self.catch_up(cx);
        }
        Ok(())
    }

    /// Takes `IP ETH`, the addresses of one host, into the table.
    fn insert(&mut self, value: &str) -> Result<(), String> {
        let words: Vec<&str> = value.split_whitespace().collect();
        let &[ip, mac] = &words[..] else {
            return Err(format!("expected IP address and Ethernet address, got '{value}'"));
        };
        let (address, mac) = (Ip::<P>::from_value(ip)?.into(), MacAddr::from_value(mac)?);
        if mac.is_broadcast() || address == P::Address::NOBODY {
            return Err(format!("expected the addresses of one host, got '{value}'"));
        }
        self.table.insert(address, mac, self.now_ns);
        Ok(())
    }

    /// Empties the table, and drops what waits.
    fn clear(&mut self, cx: &mut Context) {
        while let Some(packet) = self.waiting.take_oldest() {
            self.drop_waiting(cx, Some(packet), P::WORDS.cleared);
        }
        self.table.clear();
    }

    fn stats_text(&self) -> String {
        format!(
            "{} packets killed\n{} {} sent\n",
            self.table.drops.load(Relaxed),
            self.table.queries.load(Relaxed),
            P::WORDS.queries
        )
    }
}

impl<P: Protocol> Element for Querier<P> {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        self.now_ns = cx.now_ns();
        cx.set_timer(TICK, self.now_ns + SECOND_NS);
        Ok(())
    }

    fn ordinary(&self) -> Option<Ordinary> {
        if self.own == P::Address::NOBODY { None } else { runs::ordinary([Step::Finish]) }
    }

    /// An ordinary packet goes to a known neighbour.
    fn finish(&mut self, work: &mut dyn Any, sieve: &mut Sieve<'_>) {
        if self.table.generation() != self.seen {
            return sieve.refuse();
        }
        let (cache, now_ns) = (&self.cache, sieve.now_ns());
        // Mostly a port has one gateway, which is then looked for once.
        let address = |packet: &Packet| P::Address::of(packet.annotations());
        let first = sieve.packets().first().map_or(P::Address::NOBODY, address);
        let is_same = sieve.packets().iter().fold(true, |same, packet| same & (address(packet) == first));
        let hop = cache.find(first).filter(|hop| is_same && now_ns < hop.ask_at_ns);
        match hop.map(|hop| hop.header) {
            Some(header) => Departure::finish(work, sieve, |packet| prepend(packet, &header)),
            None => Departure::finish(work, sieve, |packet| Self::encapsulate(cache, packet, now_ns)),
        }
    }

    /// The header of a known neighbour.
    fn answer(&mut self, question: &mut dyn Any) -> bool {
        if let Some(watch) = question.downcast_mut::<Watch>() {
            watch.changes = Some(self.table.generation_cell());
            return self.table.generation() == self.seen;
        }
        let Some(asked) = question.downcast_mut::<Header<P::Address>>() else { return false };
        let Some(hop) = asked.gateway.and_then(|gateway| self.cache.find(gateway)) else { return false };
        (asked.header, asked.until_ns) = (Some(hop.header), hop.ask_at_ns);
        true
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
        if self.own == P::Address::NOBODY {
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

    fn leave(&mut self) -> Option<Box<dyn Any + Send>> {
        let waiting = std::mem::replace(&mut self.waiting, WaitingRoom::new());
        Some(Box::new(Left { table: self.table.clone(), has_own_table: self.has_own_table, waiting }))
    }

    fn inherit(&mut self, cx: &mut Context, left: Box<dyn Any + Send>) {
        let Ok(left) = left.downcast::<Left<P::Address>>() else { return };
        // An ARPTable takes care of its own.
        if self.has_own_table && left.has_own_table {
            self.table.take_from(&left.table);
        }
        self.waiting = left.waiting;
        left.table.waiting.fetch_sub(self.waiting.len(), Relaxed);
        self.table.waiting.fetch_add(self.waiting.len(), Relaxed);
        if self.waiting.len() > 0 {
            // It looks at each line then, when that is to be asked for.
            self.retry_at_ns = 0;
            cx.set_timer(CHECK, cx.now_ns() + CHECK_INTERVAL_NS);
        }
    }
}
