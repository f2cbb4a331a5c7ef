//! From the check of an IP header over a lookup to the port, in one go.
//!
//! Between a router's input and its ports stand a run ([`arrival`](super::arrival)), a lookup, and behind each of its outputs
//! another run ([`departure`](super::departure)). Each of them reads what the one before it wrote down: where the header is,
//! where the packet goes, by what port it came. For a packet that is plain all the way nobody needs that: the Ethernet header
//! is overwritten, the time to live is one less, and a port looks at nothing else. So a batch crosses in three passes:
//!
//! 1. Each packet is looked at, all of the run's tests and those of the runs behind the lookup that do not depend on the way:
//!    its destination goes into a list.
//! 2. The lookup finds a number for each destination.
//! 3. The number has a [`Way`]: the output, the longest packet, and the new Ethernet header.
//!
//! **Ways** are made when a number is first met, by asking the elements ([`Element::answer`](graph::Element::answer)): the
//! lookup where packets with that number go ([`Route`]), and the last element of the run there which header they get
//! ([`Header`]). They are forgotten when the tables' version changes ([`Destinations::version`]), or what an element that
//! ends a run knows ([`Watch`]), or when the time of one of them is over.
//!
//! **Odd packets.** Nothing is changed in the first two passes. What is odd in any of them, or has no way, comes to the run's
//! first element as it was, and goes through the elements themselves. After a batch without any way, the next few do not cross.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fib::NextHopIndex;
use graph::runs::{self, Asked, Laps, Sieve, Work};
use packet::plain_frames::GROUP;
use packet::wire::ethernet::HEADER_LEN as IN_FRAME;
use packet::wire::ipv4::MIN_HEADER_LEN as IP_HEADER;
use packet::wire::ipv6;
use packet::{
    Family, IpVersion, MAX_BATCH, Packet, PacketType, PlainFrames, PlainHeader, PlainIpv6Header, Seen,
    checksum,
};

use super::arrival::Usual;
use super::{BadSources, Departure};

/// Asks a lookup for the numbers of the next hops of these addresses.
#[derive(Debug)]
pub struct Destinations<A> {
    /// The addresses.
    pub addresses: Box<[A; MAX_BATCH]>,
    /// Their numbers.
    pub numbers: Box<[NextHopIndex; MAX_BATCH]>,
    /// How many there are.
    pub count: usize,
    /// Changes whenever a number may come to mean something else.
    pub version: (u64, u64),
}

/// Asks a lookup what happens to packets of this number; it does not know where that depends on the packet.
#[derive(Debug)]
pub struct Route<A> {
    /// The number.
    pub number: NextHopIndex,
    /// The output by which they go on.
    pub output: usize,
    /// The address of the neighbour they go to.
    pub gateway: Option<A>,
    /// Their Ethernet header, where the lookup knows it.
    pub header: Option<[u8; IN_FRAME]>,
    /// The paint of packets that are handled otherwise.
    pub odd_paint: Option<u8>,
    /// The version of the tables that the answer is from ([`Destinations::version`]).
    pub version: (u64, u64),
}

/// Asks the last element of a run which Ethernet header it puts before a packet.
#[derive(Debug)]
pub struct Header<A> {
    /// The address of the neighbour.
    pub gateway: Option<A>,
    /// The header that lies before the packet already; the answer.
    pub header: Option<[u8; IN_FRAME]>,
    /// Until when the answer holds.
    pub until_ns: u64,
}

/// Asks an element whether packets may pass it unseen.
#[derive(Debug, Default)]
pub struct Watch {
    /// Whether it answers this and other questions always alike.
    pub is_constant: bool,
    /// Its number changes before the element answers this or other questions otherwise. Answers whose time is over
    /// ([`Header::until_ns`]), and questions that it could not answer, are asked again anyway. Without a number, and not
    /// constant, a lookup is asked for each batch, and no packet crosses to the element at the end of a run.
    pub changes: Option<Arc<AtomicU64>>,
}

/// What happens to packets with a number.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
struct Way {
    header: [u8; IN_FRAME],
    output: u16,
    /// Longest packet, without Ethernet header; 0 without a way.
    most_bytes: u16,
    /// Whether the elements were asked.
    is_known: bool,
}

const UNKNOWN: Way = Way { header: [0; IN_FRAME], output: 0, most_bytes: 0, is_known: false };

/// What differs between IPv4 and IPv6.
pub(super) trait Kind: Send + 'static {
    type Address: Family;

    const VERSION: IpVersion;

    /// Looks at packets from the first on, and writes down their destinations, up to one that may not be plain.
    fn look(plain: &PlainFrames, packets: &[Packet], destinations: &mut [Self::Address]) -> Seen;

    /// Looks at a packet: its destination and total length, if it is plain.
    fn inspect(
        usual: &Usual,
        sources: &BadSources<Self::Address>,
        packet: &Packet,
    ) -> Option<(Self::Address, usize)>;

    /// Gives a packet that was inspected this Ethernet header, and takes one off its time to live or hop limit.
    fn rewrite(packet: &mut Packet, header: &[u8; IN_FRAME]);

    /// The length of the packet in a frame, as its header says.
    fn total_length(frame: &[u8]) -> usize;
}

/// IPv4.
pub(super) struct Ipv4;
/// IPv6.
pub(super) struct Ipv6;

impl Kind for Ipv4 {
    type Address = u32;

    const VERSION: IpVersion = IpVersion::V4;

    #[inline(always)]
    fn look(plain: &PlainFrames, packets: &[Packet], destinations: &mut [u32]) -> Seen {
        plain.look(packets, destinations)
    }

    #[inline(always)]
    fn inspect(usual: &Usual, sources: &BadSources<u32>, packet: &Packet) -> Option<(u32, usize)> {
        let frame = packet.data().first_chunk::<{ IN_FRAME + IP_HEADER }>()?;
        let header = PlainHeader::at(frame, IN_FRAME)?;
        let total = header.total_length();
        // The first bytes end with version and length of a plain header.
        let is_plain = usual.is_alike(frame)
            && header.checksum_is_right()
            && header.time_to_live() >= 2
            && usual.is_to_us(packet)
            && total >= IP_HEADER
            && IN_FRAME + total <= packet.len()
            && !sources.has(header.source());
        is_plain.then(|| (header.destination(), total))
    }

    #[inline(always)]
    fn rewrite(packet: &mut Packet, header: &[u8; IN_FRAME]) {
        let Some(frame) = packet.data_mut().first_chunk_mut::<{ IN_FRAME + IP_HEADER }>() else { return };
        let (link, network) = frame.split_at_mut(IN_FRAME);
        link.copy_from_slice(header);
        if let Some(network) = network.first_chunk_mut() {
            checksum::decrement_ttl(network);
        }
    }

    fn total_length(frame: &[u8]) -> usize {
        PlainHeader::at(frame, IN_FRAME).map_or(0, PlainHeader::total_length)
    }
}

impl Kind for Ipv6 {
    type Address = u128;

    const VERSION: IpVersion = IpVersion::V6;

    #[inline(always)]
    fn look(plain: &PlainFrames, packets: &[Packet], destinations: &mut [u128]) -> Seen {
        plain.look6(packets, destinations)
    }

    #[inline(always)]
    fn inspect(usual: &Usual, sources: &BadSources<u128>, packet: &Packet) -> Option<(u128, usize)> {
        let frame = packet.data().first_chunk::<{ IN_FRAME + ipv6::HEADER_LEN }>()?;
        let header = PlainIpv6Header::at(frame, IN_FRAME)?;
        let total = header.total_length();
        let is_plain = usual.is_alike(frame)
            && header.has_plain_addresses()
            && header.may_leave_link()
            && !header.next_header().is_ipv6_extension()
            && header.hop_limit() >= 2
            && usual.is_to_us(packet)
            && IN_FRAME + total <= packet.len()
            && !sources.has(header.source());
        is_plain.then(|| (header.destination(), total))
    }

    #[inline(always)]
    fn rewrite(packet: &mut Packet, header: &[u8; IN_FRAME]) {
        let Some(frame) = packet.data_mut().first_chunk_mut::<{ IN_FRAME + ipv6::HEADER_LEN }>() else {
            return;
        };
        let (link, network) = frame.split_at_mut(IN_FRAME);
        link.copy_from_slice(header);
        network[ipv6::field::HOP_LIMIT] -= 1;
    }

    fn total_length(frame: &[u8]) -> usize {
        PlainIpv6Header::at(frame, IN_FRAME).map_or(0, PlainIpv6Header::total_length)
    }
}

/// The run behind an output of the lookup.
struct Exit {
    most_bytes: usize,
    last: usize,
}

/// An element that may answer otherwise without the lookup, and its number when it was asked last.
struct Watched {
    element: usize,
    changes: Arc<AtomicU64>,
    seen: u64,
}

/// A run, the lookup behind it, and the runs behind that.
pub(super) struct Crossing<K: Kind> {
    usual: Usual,
    sources: Arc<BadSources<K::Address>>,
    plain_frames: Option<PlainFrames>,
    lookup: usize,
    /// Whether the lookup never refuses.
    lookup_is_constant: bool,
    exits: Vec<Option<Exit>>,
    watched: Vec<Watched>,
    destinations: Destinations<K::Address>,
    /// By number.
    ways: Vec<Way>,
    /// What `ways` were made from, and until when they hold.
    made_from: (u64, u64),
    until_ns: u64,
    /// Batches to come that do not cross.
    pauses: u8,
}

/// Batches that do not cross after one of which no packet could.
const PAUSES: u8 = 15;
/// Fewest packets that cross: fewer are not looked at as a group (`packet/plain_frames.rs`). A batch of 4 takes 850 instructions a
/// packet so, and 1,000 over runs.
const FEWEST: usize = 3;

/// Numbers for which there is room from the start.
const USUAL_NUMBERS: usize = 64;

/// When an element is asked again that did not know a header.
const ASK_AGAIN_NS: u64 = 1_000_000;

impl<K: Kind> Crossing<K> {
    pub(super) fn new(usual: Usual, sources: Arc<BadSources<K::Address>>, lookup: usize) -> Self {
        let min = <K::Address as Family>::MIN;
        let destinations = Destinations {
            addresses: Box::new([min; MAX_BATCH]),
            numbers: Box::new([NextHopIndex::NONE; MAX_BATCH]),
            count: 0,
            version: (0, 0),
        };
        let (exits, watched, ways) = (Vec::new(), Vec::new(), Vec::with_capacity(USUAL_NUMBERS));
        let plain_frames = usual.plain_frames(&sources);
        Self {
            usual,
            sources,
            plain_frames,
            lookup,
            lookup_is_constant: false,
            exits,
            watched,
            destinations,
            ways,
            made_from: (0, 0),
            until_ns: 0,
            pauses: 0,
        }
    }

    /// Asks the elements that are watched whether packets may pass them, where their numbers have changed; false if one says no.
    #[cold]
    fn look_again(&mut self, asked: &mut Asked<'_>) -> bool {
        for watched in &mut self.watched {
            let changes = watched.changes.load(Ordering::Relaxed);
            if changes != watched.seen && !asked.ask(watched.element, &mut Watch::default()) {
                return false;
            }
            watched.seen = changes;
        }
        self.forget_ways();
        true
    }

    #[cold]
    fn forget_ways(&mut self) {
        self.ways.clear();
        self.made_from = self.destinations.version;
        self.until_ns = u64::MAX;
    }

    /// The way of a number that is met for the first time.
    fn ask(&mut self, number: NextHopIndex, now_ns: u64, asked: &mut Asked<'_>) -> Way {
        let none = Way { is_known: true, ..UNKNOWN };
        let version = self.destinations.version;
        let mut route =
            Route::<K::Address> { number, output: 0, gateway: None, header: None, odd_paint: None, version };
        let is_routed = asked.ask(self.lookup, &mut route);
        if route.version != version {
            // The tables have changed since the number was found; the next batch has a newer one.
            return UNKNOWN;
        }
        if !is_routed || route.odd_paint == Some(self.usual.paint) {
            return none;
        }
        let Some(Some(exit)) = self.exits.get(route.output) else { return none };
        let Route { gateway, header, output, .. } = route;
        let mut header = Header { gateway, header, until_ns: u64::MAX };
        let is_known = asked.ask(exit.last, &mut header) && now_ns < header.until_ns;
        let Some(bytes) = header.header.filter(|_| is_known) else {
            // The element may learn it without a change of its number.
            self.until_ns = self.until_ns.min(now_ns.saturating_add(ASK_AGAIN_NS));
            return none;
        };
        self.until_ns = self.until_ns.min(header.until_ns);
        let most_bytes = exit.most_bytes.min(usize::from(u16::MAX)) as u16;
        Way { header: bytes, output: output as u16, most_bytes, is_known: true }
    }

    /// Finds ways for the numbers of packets from number `first` on that have none, and leaves packets that still have none to
    /// the elements.
    #[cold]
    fn sort_out(&mut self, first: usize, sieve: &mut Sieve<'_>, asked: &mut Asked<'_>) {
        for place in first..self.destinations.count {
            let number = self.destinations.numbers[place];
            if self.ways.len() <= number.index() {
                self.ways.resize(number.index() + 1, UNKNOWN);
            }
            if !self.ways[number.index()].is_known {
                self.ways[number.index()] = self.ask(number, sieve.now_ns(), asked);
            }
        }
        let (numbers, ways) = (&mut self.destinations.numbers, &self.ways);
        let (mut place, mut kept) = (0, 0);
        sieve.each_again(|packet| {
            let number = numbers[place];
            place += 1;
            let fits = place <= first
                || K::total_length(packet.data()) <= usize::from(ways[number.index()].most_bytes);
            numbers[kept] = number;
            kept += usize::from(fits);
            fits
        });
        self.destinations.count = kept;
    }
}

impl<K: Kind> runs::Crossing for Crossing<K> {
    fn add_exit(&mut self, output: usize, work: &dyn Work, last: usize, asked: &mut Asked<'_>) -> bool {
        let Some(departure) = (work as &dyn Any).downcast_ref::<Departure>() else { return false };
        let Some(most_bytes) = departure.most_bytes(K::VERSION, PacketType::Host, self.usual.paint) else {
            return false;
        };
        let mut watch = Watch::default();
        asked.ask(last, &mut watch);
        match watch.changes {
            Some(changes) => self.watched.push(Watched { element: last, changes, seen: u64::MAX }),
            None if !watch.is_constant => return false,
            None => {}
        }
        self.exits.resize_with(self.exits.len().max(output + 1), || None);
        self.exits[output] = Some(Exit { most_bytes, last });
        true
    }

    fn apply(
        &mut self,
        asked: &mut Asked<'_>,
        sieve: &mut Sieve<'_>,
        outputs: &mut Vec<u16>,
        laps: &mut Laps<'_>,
    ) {
        if sieve.packets().len() < FEWEST {
            return sieve.refuse();
        }
        if self.pauses > 0 {
            self.pauses -= 1;
            return sieve.refuse();
        }
        if !self.lookup_is_constant {
            let mut watch = Watch::default();
            if !asked.ask(self.lookup, &mut watch) {
                return sieve.refuse();
            }
            self.lookup_is_constant = watch.is_constant;
        }
        let is_as_seen = |watched: &Watched| watched.changes.load(Ordering::Relaxed) == watched.seen;
        if !self.watched.iter().all(is_as_seen) && !self.look_again(asked) {
            return sieve.refuse();
        }

        let seen_packets = self.look_at(sieve);
        if sieve.is_refused() {
            return;
        }
        laps.lap();

        let count = sieve.packets().len();
        self.destinations.count = count;
        if !asked.ask(self.lookup, &mut self.destinations) {
            self.destinations.numbers[..count].fill(NextHopIndex::NONE);
        }
        if self.made_from != self.destinations.version || self.until_ns <= sieve.now_ns() {
            self.forget_ways();
        }
        laps.lap();

        outputs.resize(count, 0);
        let mut done = self.send_off(0, seen_packets.longest, sieve.packets_mut(), outputs);
        if done != self.destinations.count {
            self.sort_out(done, sieve, asked);
            if sieve.is_refused() {
                self.pauses = PAUSES;
                return;
            }
            outputs.truncate(self.destinations.count);
            done = self.send_off(done, 0, sieve.packets_mut(), outputs);
            debug_assert!(done == self.destinations.count);
        }
        if seen_packets.is_padded {
            for packet in sieve.packets_mut() {
                packet.truncate(IN_FRAME + K::total_length(packet.data()));
            }
        }
        laps.lap();
    }
}

impl<K: Kind> Crossing<K> {
    /// Writes down the destinations of plain packets, and puts the others aside.
    #[inline(always)]
    fn look_at(&mut self, sieve: &mut Sieve<'_>) -> Seen {
        let (usual, sources, addresses) = (self.usual, &*self.sources, &mut *self.destinations.addresses);
        let (packets, mut seen) = (sieve.packets(), Seen::default());
        let (mut at, mut odd) = (0, [0_u64; MAX_BATCH / 64]);
        while at < packets.len() {
            let mut by_hand = packets.len();
            if let Some(plain) = &self.plain_frames {
                let found = K::look(plain, &packets[at..], &mut addresses[seen.count..]);
                at += found.count;
                seen.join(found);
                // The group that may have odd ones.
                by_hand = by_hand.min(at + GROUP);
            }
            for packet in &packets[at..by_hand] {
                match K::inspect(&usual, sources, packet) {
                    Some((address, total)) => {
                        addresses[seen.count] = address;
                        seen.add(total, packet.len());
                    }
                    // The run is not for this batch.
                    None if at == 0 && sieve.by_first() => {
                        sieve.refuse();
                        return seen;
                    }
                    None => odd[at / 64] |= 1 << (at % 64),
                }
                at += 1;
            }
        }
        if seen.count < packets.len() {
            sieve.put_aside(|number| odd[number / 64] >> (number % 64) & 1 != 0);
        }
        seen
    }

    /// Rewrites packets from number `first` on, and writes down their outputs, up to one that has no way or not one for packets
    /// of this length; how many that are with those before.
    #[inline(always)]
    fn send_off(&self, first: usize, longest: usize, packets: &mut [Packet], outputs: &mut [u16]) -> usize {
        let (ways, longest) = (&*self.ways, longest.clamp(1, usize::from(u16::MAX)) as u16);
        let numbers = self.destinations.numbers[..self.destinations.count].iter();
        let mut done = first;
        for ((packet, output), number) in packets.iter_mut().zip(outputs).zip(numbers).skip(first) {
            let Some(way) = ways.get(number.index()).filter(|way| way.most_bytes >= longest) else {
                break;
            };
            *output = way.output;
            K::rewrite(packet, &way.header);
            done += 1;
        }
        done
    }
}
