//! =c
//! AggregateIPFlows(I<keywords> TCP_TIMEOUT, TCP_DONE_TIMEOUT, UDP_TIMEOUT, FRAGMENT_TIMEOUT, REAP, CAPACITY, ICMP, FRAGMENTS)
//!
//! =s aggregates
//! numbers flows
//!
//! =d
//! Sets the aggregate annotation of every TCP and UDP packet over IPv4 to the number of its flow,
//! from 1 on. Sets its paint to 0 in the direction of the flow's first packet, and to 1 in the
//! other direction. Packets need a marked IP header. Packets without one, and those of other
//! protocols, leave by output 1 if that is connected. Otherwise they are dropped as "not of a
//! flow". A flow is over when it was silent for its timeout, by the packets' timestamps. Later
//! packets belong to another flow.
//!
//! Keyword arguments are:
//!
//! =over 8
//!
//! =item TCP_TIMEOUT
//!
//! The silence after which a TCP flow is over. 24 hours by default.
//!
//! =item TCP_DONE_TIMEOUT
//!
//! The same once both sides have closed, or one has reset it. 30 seconds by default.
//!
//! =item UDP_TIMEOUT
//!
//! The silence after which a UDP flow is over. 1 minute by default.
//!
//! =item FRAGMENT_TIMEOUT
//!
//! How long a fragment waits for the first one of its packet. 30 seconds by default.
//!
//! =item REAP
//!
//! How often flows that are over are forgotten. 20 minutes by default.
//!
//! =item CAPACITY
//!
//! Most flows that are known at a time. Packets of further flows count as not of a flow, for "too many flows", until
//! some are forgotten. 1,000,000 by default.
//!
//! =item ICMP
//!
//! Boolean. True gives ICMP errors the number of the flow that they are about, with 2 added to the paint that its packet had.
//! False by default.
//!
//! =item FRAGMENTS
//!
//! Boolean. True, the default where packets are pushed, keeps fragments until the first one of
//! their packet has come, because only that one has the ports. Later packets between the same
//! addresses wait with them. False treats fragments as not of a flow.
//!
//! =back
//!
//! With several workers each has flows and numbers of its own. Different from Click: there is no TRACEINFO.
//!
//! =e
//!   FromDump(f.pcap, STOP true) -> MarkIPHeader(14) -> AggregateIPFlows
//!     -> ToIPSummaryDump(-, FIELDS aggregate ip_src);
//!
//! =a AggregateCounter, FromIPSummaryDump

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};

use graph::arguments::Interval;
use graph::{Class, Combine, ConfigError, Context, Element, Get, Handler, Put, Setup};
use packet::wire::ipv4::Ipv4;
use packet::wire::tcp::{Tcp, TcpFlags};
use packet::wire::udp::Udp;
use packet::{Annotations, Batch, Packet};

pub(crate) static CLASS: Class = Class {
    name: "AggregateIPFlows",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[
        Handler::write(
            "clear",
            "Ends all flows; fragments that wait are dropped.",
            &Put(|e: &mut AggregateIpFlows, cx, _| {
                e.clear(cx);
                Ok(())
            }),
        ),
        Handler::read(
            "count",
            Combine::Sum,
            "Flows that are known.",
            &Get(|e: &mut AggregateIpFlows| e.flows.len().to_string()),
        ),
    ],
    manual: graph::manual!("aggregate_ip_flows.rs"),
    make,
    ..Class::DEFAULT
};

const SECOND_NS: u64 = 1_000_000_000;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;

const NO_FLOW: &str = "not of a flow";
const TOO_MANY: &str = "too many flows";
const TIMED_OUT: &str = "fragment timeout";

/// Most packets that wait for fragments, so that nobody fills the memory with them.
const MOST_WAITING: usize = 4096;

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let pushed = !setup.input_is_pull(0);
    let arguments = &mut setup.arguments;
    let mut time = |name, seconds| {
        arguments.keyword_or(name, Interval { ns: seconds * SECOND_NS }).map(|interval| interval.ns)
    };
    let timeouts = Timeouts {
        tcp: time("TCP_TIMEOUT", 24 * 3600)?,
        tcp_done: time("TCP_DONE_TIMEOUT", 30)?,
        udp: time("UDP_TIMEOUT", 60)?,
        fragment: time("FRAGMENT_TIMEOUT", 30)?,
        reap: time("REAP", 20 * 60)?,
    };
    let capacity = arguments.keyword_or("CAPACITY", 1_000_000_u32)? as usize;
    let icmp = arguments.keyword_or("ICMP", false)?;
    let fragments = arguments.keyword_or("FRAGMENTS", pushed)?;
    arguments.finish()?;
    if fragments && !pushed {
        return Err("FRAGMENTS: must be false where packets are pulled".to_owned().into());
    }
    Ok(Box::new(AggregateIpFlows {
        timeouts,
        capacity,
        icmp,
        fragments,
        flows: HashMap::new(),
        next: 1,
        reap_at_ns: 0,
        firsts: HashMap::new(),
        waiting: HashMap::new(),
        waiting_count: 0,
    }))
}

/// In nanoseconds.
struct Timeouts {
    tcp: u64,
    tcp_done: u64,
    udp: u64,
    fragment: u64,
    reap: u64,
}

/// Both ends of a flow, the lower one first, and its protocol.
type Key = (End, End, u8);
/// Address and port.
type End = (u32, u16);

struct Flow {
    number: u32,
    /// Whether the lower end sent the first packet.
    lower_began: bool,
    last_ns: u64,
    /// Which sides have closed, a bit each; 3 too when one reset it.
    closed: u8,
}

/// What tells the fragments of a packet: addresses, protocol, identification.
type FragmentKey = (u32, u32, u8, u16);

/// What annotations a packet gets.
#[derive(Clone, Copy)]
struct Mark {
    number: u32,
    paint: u8,
}

impl Mark {
    fn put(self, packet: &mut Packet) {
        let annotations = packet.annotations_mut();
        annotations.set_u32_at(Annotations::AGGREGATE, self.number);
        annotations.set_paint(self.paint);
    }
}

/// What becomes of a packet.
enum Fate {
    Marked(Mark),
    /// It waits for the first fragment.
    Unknown,
    /// Why it has no number.
    NoFlow(&'static str),
}

struct AggregateIpFlows {
    timeouts: Timeouts,
    capacity: usize,
    icmp: bool,
    fragments: bool,
    flows: HashMap<Key, Flow>,
    next: u32,
    reap_at_ns: u64,
    /// The marks of packets whose first fragment has come, and when.
    firsts: HashMap<FragmentKey, (Mark, u64)>,
    /// Packets that wait, by their addresses, the lower one first.
    waiting: HashMap<(u32, u32), VecDeque<Packet>>,
    waiting_count: usize,
}

/// What a packet's headers say, as far as flows are concerned.
struct Seen<'p> {
    source: u32,
    destination: u32,
    protocol: u8,
    identification: u16,
    /// In bytes.
    offset: u16,
    more: bool,
    payload: &'p [u8],
}

impl<'p> Seen<'p> {
    fn of(header: &'p [u8]) -> Option<Self> {
        let fixed = Ipv4::new_unchecked(header.first_chunk::<20>()?);
        (fixed.version() == 4).then_some(())?;
        Some(Self {
            source: fixed.source().to_bits(),
            destination: fixed.destination().to_bits(),
            protocol: fixed.protocol().0,
            identification: fixed.identification(),
            offset: fixed.fragment_offset(),
            more: fixed.more_fragments(),
            payload: header.get(fixed.header_len()..)?,
        })
    }

    fn fragment_key(&self) -> FragmentKey {
        (self.source, self.destination, self.protocol, self.identification)
    }

    fn addresses(&self) -> (u32, u32) {
        (self.source.min(self.destination), self.source.max(self.destination))
    }

    /// Both ports, which stand at the same place in TCP and UDP headers.
    fn ports(&self) -> Option<(u16, u16)> {
        let ports = Udp::new_unchecked(self.payload.first_chunk::<4>()?);
        Some((ports.source_port(), ports.destination_port()))
    }
}

impl AggregateIpFlows {
    /// The mark of a packet that is whole or begins with the first fragment.
    fn mark(&mut self, seen: &Seen<'_>, now_ns: u64) -> Result<Mark, &'static str> {
        let (source_port, destination_port) = seen.ports().ok_or(NO_FLOW)?;
        let (source, destination) = ((seen.source, source_port), (seen.destination, destination_port));
        let from_lower = source <= destination;
        let key = (source.min(destination), source.max(destination), seen.protocol);
        let timeouts = &self.timeouts;
        let is_full = self.flows.len() >= self.capacity;
        let flow = match self.flows.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if is_full => return Err(TOO_MANY),
            Entry::Vacant(free) => {
                free.insert(Flow { number: 0, lower_began: from_lower, last_ns: now_ns, closed: 0 })
            }
        };
        let timeout = match (seen.protocol, flow.closed) {
            (TCP, 3) => timeouts.tcp_done,
            (TCP, _) => timeouts.tcp,
            _ => timeouts.udp,
        };
        if flow.number == 0 || now_ns > flow.last_ns.saturating_add(timeout) {
            *flow = Flow { number: self.next, lower_began: from_lower, last_ns: now_ns, closed: 0 };
            self.next = self.next.wrapping_add(1).max(1);
        }
        flow.last_ns = now_ns;
        if seen.protocol == TCP {
            let flags = seen.payload.get(..14).map_or(TcpFlags(0), |bytes| Tcp::new_unchecked(bytes).flags());
            let [fin, syn, reset] =
                [TcpFlags::FIN, TcpFlags::SYN, TcpFlags::RST].map(|flag| flags.contains(flag));
            let side = if from_lower { 1 } else { 2 };
            flow.closed |= if reset { 3 } else { u8::from(fin) * side };
            if syn && !reset {
                flow.closed &= !side;
            }
        }
        Ok(Mark { number: flow.number, paint: u8::from(flow.lower_began != from_lower) })
    }

    /// The mark of an ICMP error: that of the packet that it is about.
    fn mark_error(&self, seen: &Seen<'_>) -> Option<Mark> {
        let is_error = matches!(seen.payload.first()?, 3 | 4 | 5 | 11 | 12);
        let about = Seen::of(seen.payload.get(8..)?).filter(|about| is_error && about.offset == 0)?;
        let (source_port, destination_port) = about.ports()?;
        let (source, destination) = ((about.source, source_port), (about.destination, destination_port));
        let key = (source.min(destination), source.max(destination), about.protocol);
        let flow = self.flows.get(&key)?;
        Some(Mark { number: flow.number, paint: 2 + u8::from(flow.lower_began != (source <= destination)) })
    }

    fn fate(&mut self, packet: &Packet, now_ns: u64) -> Fate {
        let Some(seen) = packet.network().and_then(Seen::of) else { return Fate::NoFlow(NO_FLOW) };
        let mark = match seen.protocol {
            ICMP if self.icmp => self.mark_error(&seen).ok_or(NO_FLOW),
            TCP | UDP if seen.offset == 0 => self.mark(&seen, now_ns),
            TCP | UDP if self.fragments => {
                return match self.firsts.get(&seen.fragment_key()) {
                    Some((mark, _)) => Fate::Marked(*mark),
                    None => Fate::Unknown,
                };
            }
            _ => Err(NO_FLOW),
        };
        let mark = match mark {
            Ok(mark) => mark,
            Err(reason) => return Fate::NoFlow(reason),
        };
        // Without room the others wait in vain.
        if seen.more && self.fragments && seen.protocol != ICMP && self.firsts.len() < self.capacity {
            self.firsts.insert(seen.fragment_key(), (mark, now_ns));
        }
        Fate::Marked(mark)
    }

    /// Lets go what waits between `addresses`, in order, up to the first packet of which nothing is known.
    fn release(&mut self, cx: &mut Context, addresses: (u32, u32), now_ns: u64) {
        let Some(mut waiting) = self.waiting.remove(&addresses) else { return };
        while let Some(mut packet) = waiting.pop_front() {
            match self.fate(&packet, packet.timestamp_ns()) {
                Fate::Marked(mark) => {
                    mark.put(&mut packet);
                    cx.emit(0, packet);
                }
                Fate::NoFlow(reason) => cx.divert(1, packet, reason),
                Fate::Unknown => {
                    if now_ns <= packet.timestamp_ns().saturating_add(self.timeouts.fragment) {
                        waiting.push_front(packet);
                        break;
                    }
                    cx.drop(packet, TIMED_OUT);
                }
            }
            self.waiting_count -= 1;
        }
        if !waiting.is_empty() {
            self.waiting.insert(addresses, waiting);
        }
    }

    /// Takes in one packet, in the order of its neighbours.
    fn take(&mut self, cx: &mut Context, mut packet: Packet) {
        let now_ns = packet.timestamp_ns();
        self.reap(cx, now_ns);
        let fate = self.fate(&packet, now_ns);
        if let Fate::NoFlow(reason) = fate {
            return cx.divert(1, packet, reason);
        }
        let addresses = packet.network().and_then(Seen::of).map(|seen| seen.addresses());
        let Some(addresses) = addresses else { return cx.divert(1, packet, NO_FLOW) };
        let others_wait = self.waiting.contains_key(&addresses);
        match fate {
            Fate::Marked(mark) if !others_wait => {
                mark.put(&mut packet);
                cx.emit(0, packet);
            }
            _ if self.waiting_count >= MOST_WAITING => cx.drop(packet, "too many fragments wait"),
            _ => {
                self.waiting.entry(addresses).or_default().push_back(packet);
                self.waiting_count += 1;
                self.release(cx, addresses, now_ns);
            }
        }
    }

    /// Forgets what is over, now and then.
    fn reap(&mut self, cx: &mut Context, now_ns: u64) {
        if now_ns < self.reap_at_ns {
            return;
        }
        let begins = self.reap_at_ns == 0;
        self.reap_at_ns = now_ns.saturating_add(self.timeouts.reap.max(1));
        if begins {
            return;
        }
        let Timeouts { tcp, tcp_done, udp, fragment, .. } = self.timeouts;
        self.flows.retain(|(_, _, protocol), flow| {
            let timeout = match (*protocol, flow.closed) {
                (TCP, 3) => tcp_done,
                (TCP, _) => tcp,
                _ => udp,
            };
            now_ns <= flow.last_ns.saturating_add(timeout)
        });
        self.firsts.retain(|_, (_, at_ns)| now_ns <= at_ns.saturating_add(fragment));
        let between: Vec<(u32, u32)> = self.waiting.keys().copied().collect();
        between.into_iter().for_each(|addresses| self.release(cx, addresses, now_ns));
    }

    /// Ends all flows, and drops the fragments that wait.
    fn clear(&mut self, cx: &mut Context) {
        self.flows.clear();
        self.firsts.clear();
        for (_, packets) in self.waiting.drain() {
            packets.into_iter().for_each(|packet| cx.drop(packet, TIMED_OUT));
        }
        self.waiting_count = 0;
    }
}

impl Element for AggregateIpFlows {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let mut packets = std::mem::replace(batch, cx.spare_batch());
        if self.fragments {
            packets.drain().for_each(|packet| self.take(cx, packet));
        } else {
            for mut packet in packets.drain() {
                let now_ns = packet.timestamp_ns();
                self.reap(cx, now_ns);
                match self.fate(&packet, now_ns) {
                    Fate::Marked(mark) => {
                        mark.put(&mut packet);
                        batch.push(packet);
                    }
                    Fate::NoFlow(reason) => cx.divert(1, packet, reason),
                    Fate::Unknown => cx.divert(1, packet, NO_FLOW),
                }
            }
        }
        cx.recycle(packets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    /// A packet between host 1 and host 2: source, ports, identification, fragment field, flags, second.
    fn packet(bench: &mut Bench, from: u8, protocol: u8, more: (u16, u16), flags: u8, second: u64) -> Packet {
        let mut data =
            vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, from, 10, 0, 0, 3 - from];
        data[4..6].copy_from_slice(&more.0.to_be_bytes());
        data[6..8].copy_from_slice(&more.1.to_be_bytes());
        let ports = if from == 1 { [0, 7, 0, 9] } else { [0, 9, 0, 7] };
        data.extend(ports);
        data.extend([0; 16]);
        data[33] = flags;
        let mut packet = bench.packet(&data);
        packet.set_network_and_transport_header(0, 20);
        packet.set_timestamp_ns(second * SECOND_NS);
        packet
    }

    fn marks(bench: &mut Bench) -> Vec<(u32, u8)> {
        let mark = |packet: &Packet| {
            let annotations = packet.annotations();
            (annotations.u32_at(Annotations::AGGREGATE).unwrap(), annotations.paint())
        };
        bench.taken_packets("out0").iter().map(mark).collect()
    }

    #[test]
    fn flows_have_numbers_until_they_are_over() {
        let mut bench =
            Bench::element(&crate::registry(), "AggregateIPFlows(UDP_TIMEOUT 10, REAP 100)", 1, 2);
        let packets: Vec<Packet> = [(2, UDP, 1), (1, UDP, 2), (1, UDP, 13), (2, UDP, 14), (1, 47, 14)]
            .map(|(from, protocol, second)| packet(&mut bench, from, protocol, (0, 0), 0, second))
            .into();
        bench.push_packets("in0", packets);
        assert_eq!(marks(&mut bench), [(1, 0), (1, 1), (2, 0), (2, 1)]);
        assert_eq!(bench.taken("out1").len(), 1);
        // Both sides close; then a reset.
        let packets: Vec<Packet> = [(1, 2, 20), (2, 1, 21), (1, 1, 22), (1, 0, 50), (2, 4, 90), (1, 0, 121)]
            .map(|(from, flags, second)| packet(&mut bench, from, TCP, (0, 0), flags, second))
            .into();
        bench.push_packets("in0", packets);
        assert_eq!(marks(&mut bench), [(3, 0), (3, 1), (3, 0), (3, 0), (4, 0), (5, 0)]);
        assert_eq!(bench.read("e.count"), "1");
        bench.write("e.clear", "").unwrap();
        assert_eq!(bench.read("e.count"), "0");
    }

    #[test]
    fn of_more_flows_than_there_is_room_for_none_is_numbered() {
        let text = "AggregateIPFlows(CAPACITY 1, UDP_TIMEOUT 10, REAP 20)";
        let mut bench = Bench::element(&crate::registry(), text, 1, 1);
        let packets: Vec<Packet> = [(UDP, 1), (TCP, 2), (UDP, 3), (TCP, 40)]
            .map(|(protocol, second)| packet(&mut bench, 1, protocol, (0, 0), 0, second))
            .into();
        bench.push_packets("in0", packets);
        assert_eq!(marks(&mut bench), [(1, 0), (1, 0), (2, 0)]);
        assert_eq!(bench.drops("e", TOO_MANY), 1);
    }

    #[test]
    fn fragments_wait_for_their_first() {
        let mut bench = Bench::element(&crate::registry(), "AggregateIPFlows", 1, 1);
        let packets: Vec<Packet> = [(1, 5, 3), (2, 0, 0), (1, 5, 0x2000), (1, 6, 3)]
            .map(|(from, id, fragment)| packet(&mut bench, from, UDP, (id, fragment), 0, 1))
            .into();
        bench.push_packets("in0", packets);
        // In their order; the last one goes on waiting.
        assert_eq!(marks(&mut bench), [(1, 1), (1, 0), (1, 1)]);
        let late = packet(&mut bench, 1, UDP, (7, 0x2000), 0, 40);
        bench.push_packets("in0", vec![late]);
        assert_eq!(marks(&mut bench), [(1, 1)]);
        assert_eq!(bench.drops("e", TIMED_OUT), 1);
        let error = "InfiniteSource -> Queue -> AggregateIPFlows(FRAGMENTS true) -> Discard";
        let error = Bench::try_new(&crate::registry(), error, 32, &Default::default()).unwrap_err();
        assert!(error.contains("must be false"), "{error}");
        assert!(configure(&CLASS, "ICMP maybe").is_err());
    }
}
