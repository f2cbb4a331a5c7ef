//! =c
//! AwaitNeighbour(PORT0, PORT1, ... [, I<keywords> CAPACITY, EACH])
//!
//! =s ip
//! keeps IPv4 packets until the link address of their neighbour is known
//!
//! =d
//! Expects packets as FIBLookup does, and takes the same ports. It belongs behind the output of
//! FIBLookup for packets to a neighbour that is to be resolved. Has Linux resolve it, again every
//! second, and keeps the packets meanwhile, in their order. As soon as the forwarding tables have
//! another answer for a packet, it leaves by output 0: connect that to the lookup. A packet waits
//! for 3 seconds, in which Linux asks three times (RFC 4861, 7.2.2). Then it leaves by output 1 if
//! that is connected, for "host unreachable" (RFC 1812, 5.2.7.1; RFC 4443, 3.1, code 3). It is
//! dropped otherwise.
//!
//! It looks at the tables every 5 ms while packets wait, and belongs on the slow thread, behind a
//! Punt.
//!
//! =item CAPACITY
//! most packets that wait; 1024 by default.
//!
//! =item EACH
//! most packets that wait to go to one address while no others wait; 128 by default, a little more than Linux has (RFC 1122,
//! 2.3.2.2, asks for one at least). The less room is left, the fewer: a flood to many addresses leaves room for others.
//!
//! =back
//!
//! Drop reasons: too many wait for a neighbour, neighbour does not answer.
//!
//! AwaitNeighbour6 is the same for IPv6.
//!
//! =e
//!   rt :: FIBLookup(eth1, eth2) ...
//!   rt[6] -> Punt -> wait :: AwaitNeighbour(eth1, eth2) -> rt;
//!   wait[1] -> ICMPError(10.0.0.1, unreachable, host) -> rt;
//!
//! =a AwaitNeighbour6, FIBLookup, ICMPError

use std::collections::{HashMap, VecDeque};

use fib::publish::Reader;
use fib::{Adjacency, Policy, State};
use graph::{Class, Combine, ConfigError, Context, Element, Get, Handler, Setup};
use packet::multipath::PathHash;
use packet::{Batch, Packet};

use super::family::ForwardFamily;
use super::fib_lookup::{Unfilled, waits_for};
use super::forwarding::{Asker, ForwardingTables};

pub(crate) static CLASS: Class = Class {
    name: "AwaitNeighbour",
    capabilities: &[graph::KEEPS_ALL],
    ports: PORTS,
    processing: Class::PUSH,
    handlers: AwaitNeighbour::<u32>::HANDLERS,
    manual: graph::manual!("await_neighbour.rs"),
    make: make::<u32>,
    ..Class::DEFAULT
};

pub(super) const PORTS: &str = "1/1-2";

/// Time between two looks at the tables.
const PERIOD_NS: u64 = 5_000_000;
/// Time between two questions for a neighbour.
const QUESTION_NS: u64 = 1_000_000_000;
/// How long a packet waits: three questions.
const LONGEST_NS: u64 = 3 * QUESTION_NS;

pub(super) fn make<A: ForwardFamily>(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let capacity = setup.arguments.keyword_or("CAPACITY", 1024_usize)?;
    let each = setup.arguments.keyword_or("EACH", 128_usize)?;
    let ports = setup.arguments.names();
    setup.arguments.finish()?;
    if ports.is_empty() {
        return Err(ConfigError::new("no ports; expected the names of the router's ports"));
    }
    if setup.is_check() {
        return Ok(Box::new(Unfilled));
    }
    let tables = ForwardingTables::of_ports(setup, &ports)?;
    Ok(Box::new(AwaitNeighbour::<A> {
        policy: tables.policies.register(),
        reader: tables.readers.register(),
        ask: tables.ask.clone(),
        hash: PathHash { key: setup.flow_key(), policies: tables.paths.clone() },
        capacity,
        each,
        waiting: VecDeque::new(),
        destinations: HashMap::new(),
    }))
}

struct Waiting {
    packet: Packet,
    since_ns: u64,
}

/// What is known of an address to which packets wait to go.
#[derive(Default)]
struct Destination {
    packets: usize,
    /// When its neighbour was asked for last.
    asked_ns: Option<u64>,
}

pub(super) struct AwaitNeighbour<A: ForwardFamily> {
    /// This copy's access to the rules and to the tables. Entered in this order: rules name tables that are there.
    policy: Reader<Policy>,
    reader: Reader<State<Adjacency>>,
    ask: Asker,
    hash: PathHash,
    capacity: usize,
    each: usize,
    /// Those that came first, first.
    waiting: VecDeque<Waiting>,
    destinations: HashMap<A, Destination>,
}

impl<A: ForwardFamily> AwaitNeighbour<A> {
    pub(super) const HANDLERS: &'static [Handler] = &[Handler::read(
        "length",
        Combine::Sum,
        "Packets that wait.",
        &Get(|e: &mut Self| e.waiting.len().to_string()),
    )];

    /// Most packets to one address, now: a share of the room that is left.
    fn room_for_each(&self) -> usize {
        let free = self.capacity.saturating_sub(self.waiting.len());
        (self.each * free).div_ceil(self.capacity.max(1))
    }

    /// Lets go whatever need not wait, and asks for the neighbours of the rest.
    fn look(&mut self, cx: &mut Context) {
        let now_ns = cx.now_ns();
        let policy = self.policy.enter();
        let state = self.reader.enter();
        let mut leaving = Vec::new();
        for _ in 0..self.waiting.len() {
            let Some(waiting) = self.waiting.pop_front() else { break };
            let address = A::destination(waiting.packet.annotations());
            let destination = self.destinations.entry(address).or_default();
            let number = waits_for::<A>(&policy, &state, &self.hash, &waiting.packet);
            let is_over = now_ns.saturating_sub(waiting.since_ns) >= LONGEST_NS;
            if let Some(number) = number.filter(|_| !is_over) {
                if destination.asked_ns.is_none_or(|asked| now_ns.saturating_sub(asked) >= QUESTION_NS) {
                    destination.asked_ns = Some(now_ns);
                    (self.ask.0)(number, address.to_ip());
                }
                self.waiting.push_back(waiting);
                continue;
            }
            destination.packets -= 1;
            if destination.packets == 0 {
                self.destinations.remove(&address);
            }
            leaving.push((number.is_some(), waiting.packet));
        }
        drop(state);
        drop(policy);
        for (is_unresolved, packet) in leaving {
            if is_unresolved {
                cx.divert(1, packet, "neighbour does not answer");
            } else {
                cx.emit(0, packet);
            }
        }
        if !self.waiting.is_empty() {
            cx.set_timer(0, now_ns + PERIOD_NS);
        }
    }
}

impl<A: ForwardFamily> Element for AwaitNeighbour<A> {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let since_ns = cx.now_ns();
        for packet in batch.drain() {
            let address = A::destination(packet.annotations());
            let known = self.destinations.get(&address).map_or(0, |destination| destination.packets);
            if known >= self.room_for_each() {
                cx.drop(packet, "too many wait for a neighbour");
                continue;
            }
            self.destinations.entry(address).or_default().packets += 1;
            self.waiting.push_back(Waiting { packet, since_ns });
        }
        self.look(cx);
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        self.look(cx);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::{Arc, Mutex};

    use fib::{MAIN, NextHop};
    use graph::testing::Bench;

    use super::super::fib_lookup_tests::{bench_asking, fib};
    use super::*;

    const CONFIG: &str = "in :: TestInput -> MarkIPHeader(0) -> GetIPAddress(16)
        -> wait :: AwaitNeighbour(eth1, eth2, CAPACITY 6, EACH 4) -> out :: TestOutput; wait[1] -> failed :: TestOutput;";

    fn packet(destination: [u8; 4], number: u8) -> Vec<u8> {
        [&[0x45, 0, 0, 21, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1][..], &destination, &[number]].concat()
    }

    fn numbers(bench: &mut Bench, output: &str) -> Vec<u8> {
        bench.taken(output).iter().map(|packet| packet[20]).collect()
    }

    #[test]
    fn packets_wait_in_order_for_their_neighbour_and_are_let_go_when_it_does_not_answer() {
        let mut fib = fib();
        let asked = Arc::new(Mutex::new(Vec::<IpAddr>::new()));
        let copy = asked.clone();
        let ask = Asker(Arc::new(move |_, address| copy.lock().unwrap().push(address)));
        let mut bench = bench_asking(CONFIG, &fib, ask);
        let (near, other) = ([10, 12, 0, 1], [10, 12, 0, 2]);
        // A known way, and five packets for one neighbour, of which three may wait.
        bench.push("in", &[&packet([10, 1, 0, 1], 0)]);
        assert_eq!(numbers(&mut bench, "out"), [0]);
        for number in 1..=5 {
            bench.push("in", &[&packet(near, number)]);
        }
        bench.push("in", &[&packet(other, 6), &packet(other, 7)]);
        assert_eq!(bench.drops("wait", "too many wait for a neighbour"), 2);
        assert_eq!((bench.read("wait.length").as_str(), bench.taken("out").len()), ("5", 0));
        let all: Vec<IpAddr> = [near, other].map(IpAddr::from).into();
        assert_eq!(*asked.lock().unwrap(), all);
        // One of the two is found.
        let found = fib.next_hops_mut().add(NextHop::Forward(Adjacency::new(0, &[7; 14]).unwrap())).unwrap();
        fib.insert(MAIN, "10.12.0.1/32".parse().unwrap(), found).unwrap();
        fib.publish();
        bench.advance_ns(2 * PERIOD_NS);
        assert_eq!(numbers(&mut bench, "out"), [1, 2, 3]);
        assert_eq!(bench.read("wait.length"), "2");
        // The other is asked for again, and given up.
        bench.advance_ns(QUESTION_NS);
        assert_eq!(asked.lock().unwrap().len(), 3);
        assert_eq!(bench.taken("failed").len(), 0);
        bench.advance_ns(LONGEST_NS);
        assert_eq!(numbers(&mut bench, "failed"), [6, 7]);
        assert_eq!((bench.read("wait.length").as_str(), bench.taken("out").len()), ("0", 0));
        // No more than all that may wait.
        for (number, last) in (10..=18).zip(30..) {
            bench.push("in", &[&packet([10, 12, 0, last], number)]);
        }
        assert_eq!(bench.read("wait.length"), "6");
    }

    /// Who sends to many addresses where nobody answers keeps nobody else's packets from waiting.
    #[test]
    fn a_flood_leaves_room_for_others() {
        let fib = fib();
        let config = CONFIG.replace("CAPACITY 6, EACH 4", "CAPACITY 64, EACH 8");
        let mut bench = bench_asking(&config, &fib, Asker::default());
        for round in 0..8 {
            for last in 2..22 {
                bench.push("in", &[&packet([10, 12, 0, last], round)]);
            }
        }
        let before: usize = bench.read("wait.length").parse().unwrap();
        assert!(before < 64);
        bench.push("in", &[&packet([10, 12, 0, 1], 9)]);
        assert_eq!(bench.read("wait.length"), (before + 1).to_string());
    }
}
