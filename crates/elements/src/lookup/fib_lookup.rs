//! =c
//! FIBLookup(PORT0, PORT1, ... [, I<keyword> OPTIONS])
//!
//! =s ip
//! forwards IPv4 packets by the router's forwarding tables
//!
//! =d
//! Expects IPv4 packets with the destination address annotation set and the network header at the
//! start of the data, as CheckIPHeader leaves them. Looks the destination up in the forwarding
//! tables (FIB) that the router keeps in step with Linux: its routes, next hops and neighbours.
//! `brickway run` fills them for the ports that the arguments name. The section `[tables]` of its
//! settings, or `--ipv4-table` and `--ipv6-table`, choose the kinds of the tables.
//!
//! A packet with a known next hop leaves by the output whose number is the place of the next hop's
//! port among the arguments. The packet still begins with its network header. The Ethernet header
//! for the neighbour lies before it, as its MAC header, and UnstripToMACHeader makes the packet
//! begin there. Where several next hops share the traffic, a hash decides, of the fields that Linux's
//! C<net.ipv4.fib_multipath_hash_policy> and C<net.ipv6.fib_multipath_hash_policy> name. With I<n>
//! arguments the further outputs are:
//!
//! =item n
//! packets that Linux has to process: those to this router, to broadcast and multicast addresses,
//! with IP options, or with a route that the fast path cannot do. So are packets to several next
//! hops, if the policy looks into tunnels and what is in one is neither IPv4 nor IPv6.
//!
//! =item n+1
//! there is no route, which is ICMP "network unreachable" (RFC 1812, 5.2.7.1);
//!
//! =item n+2
//! the route is unreachable, or its next hop is down, which is "host unreachable";
//!
//! =item n+3
//! the route prohibits it, which is "communication administratively prohibited";
//!
//! =item n+4
//! packets to a neighbour whose link address is to be resolved first. Without this output they
//! leave by output I<n>;
//!
//! =item n+5
//! now and then one of the packets that leave by the port they came by. Its receiver forwards the
//! packet in our place, and sends a redirect (RFC 1812, 5.2.7.2; RFC 4861, 8.2). On each worker
//! there are at most five such packets a second. On the slow thread there are none, since its
//! packets are our own. Without this output all of them go on.
//!
//! =back
//!
//! Nothing is put before these packets, but the next hop's header lies before those of output
//! I<n+5>. An output that is not connected drops, with the reasons "for this host", "no route",
//! "unreachable" and "prohibited". Packets of blackhole routes are dropped as "blackhole".
//!
//! Where Linux has policy rules (`ip rule`), these choose the table. A packet with paint I<i>
//! counts as received by the I<i>-th port.
//!
//! With OPTIONS true, packets with options are forwarded as others are. In IPv6 these are the
//! options that every router looks at (RFC 8200, 4.3). Elements before this one process the options
//! then.
//!
//! FIBLookup6 is the same for IPv6.
//!
//! =e
//!   ... -> CheckIPHeader -> rt :: FIBLookup(eth1, eth2);
//!   rt[0] -> DecIPTTL -> UnstripToMACHeader -> ToDevice(eth1);
//!   rt[1] -> DecIPTTL -> UnstripToMACHeader -> ToDevice(eth2);
//!   rt[2] -> Punt -> ...
//!
//! =a FIBLookup6, RadixIPLookup, UnstripToMACHeader

use std::any::Any;

use fib::publish::Reader;
use fib::{Adjacency, Decision, NextHop, NextHopIndex, Policy, Resolver, Rules, State};
use graph::{Ask, Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Setup};
use packet::multipath::PathHash;
use packet::wire::ethernet::{HEADER_LEN, TAG_LEN};
use packet::{Batch, MAX_BATCH, Packet};

use super::FORWARDS;
use super::family::ForwardFamily;
use super::forwarding::ForwardingTables;
use super::redirects::{Redirects, input_port};
use crate::runs::{Destinations, Route, Watch};

pub(crate) static CLASS: Class = Class {
    name: "FIBLookup",
    ports: PORTS,
    processing: Class::PUSH,
    capabilities: &[FORWARDS, graph::KEEPS_ALL, graph::TAKES_MERGED],
    handlers: FibLookup::<u32>::HANDLERS,
    manual: graph::manual!("fib_lookup.rs"),
    make: make::<u32>,
    ..Class::DEFAULT
};

pub(super) const PORTS: &str = "1/-";

/// The outputs behind those of the ports, and why packets are dropped there when they are not connected.
const BEYOND: [&str; 5] =
    ["for this host", "no route", "unreachable", "prohibited", "neighbour not resolved"];
const HOST: u16 = 0;
const NO_ROUTE: u16 = 1;
const UNREACHABLE: u16 = 2;
const PROHIBITED: u16 = 3;
/// The outputs behind these.
const RESOLVE: u16 = 4;
const REDIRECTED: u16 = 5;
/// Marks packets that leave by the output for the host; the bits below say why.
const FOR_HOST: u16 = 0x4000;
const HOST_REASONS: [&str; 5] = [
    "to this host",
    "to a broadcast address",
    "with options",
    "route left to Linux",
    "neighbour not resolved",
];
const TO_THIS_HOST: u16 = FOR_HOST;
const TO_BROADCAST: u16 = FOR_HOST + 1;
const WITH_OPTIONS: u16 = FOR_HOST + 2;
const LEFT_TO_LINUX: u16 = FOR_HOST + 3;
const NOT_RESOLVED: u16 = FOR_HOST + 4;
/// Marks packets that are dropped; the low bits say why.
const DROPPED: u16 = 0x8000;
const BLACKHOLE: u16 = DROPPED;
const NO_ROOM: u16 = DROPPED + 1;
const DROP_REASONS: [&str; 2] = ["blackhole", "no room for an Ethernet header"];

/// The index of the main table in [`State`].
pub(super) const MAIN: usize = 0;

pub(super) fn make<A: ForwardFamily>(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let forwards_options = setup.arguments.keyword_or("OPTIONS", false)?;
    let ports = setup.arguments.names();
    setup.arguments.finish()?;
    let most = usize::from(REDIRECTED) + 1;
    let beyond = setup.outputs().checked_sub(ports.len()).filter(|&beyond| beyond <= most);
    if ports.is_empty() || beyond.is_none() {
        return Err(ConfigError::new(format!(
            "{} ports and {} outputs; expected the names of the ports, and an output for each and up to {} more",
            ports.len(),
            setup.outputs(),
            most
        )));
    }
    if setup.is_check() {
        return Ok(Box::new(Unfilled));
    }
    let tables = ForwardingTables::of_ports(setup, &ports)?;
    let redirects = (beyond == Some(most) && !setup.copy().is_slow())
        .then(|| Redirects::new(ports.len() as u16 + REDIRECTED));
    Ok(Box::new(FibLookup::<A> {
        policy: tables.policies.register(),
        reader: tables.readers.register(),
        ways: Ways {
            ports: ports.len() as u16,
            resolve: if beyond > Some(usize::from(RESOLVE)) { RESOLVE } else { HOST },
            forwards_options,
        },
        redirects,
        hash: PathHash { key: setup.flow_key(), policies: tables.paths.clone() },
        addresses: Box::new([A::MIN; MAX_BATCH]),
        numbers: Box::new([NextHopIndex::NONE; MAX_BATCH]),
        outputs: Box::new([0; MAX_BATCH]),
    }))
}

/// Stands for the element when a configuration is only checked.
pub(super) struct Unfilled;

impl Element for Unfilled {}

pub(super) struct FibLookup<A: ForwardFamily> {
    /// This copy's access to the rules and to the tables. Entered in this order: rules name tables that are there.
    policy: Reader<Policy>,
    reader: Reader<State<Adjacency>>,
    ways: Ways,
    redirects: Option<Redirects>,
    hash: PathHash,
    /// Room for the lookups of one batch.
    addresses: Box<[A; MAX_BATCH]>,
    numbers: Box<[NextHopIndex; MAX_BATCH]>,
    outputs: Box<[u16; MAX_BATCH]>,
}

/// Where packets leave.
#[derive(Clone, Copy)]
struct Ways {
    /// Number of ports.
    ports: u16,
    /// The output behind those of the ports for what waits for its neighbour.
    resolve: u16,
    /// Whether packets with options are forwarded.
    forwards_options: bool,
}

/// Writes Ethernet headers before packets and writes down their outputs. Returns 0 if these are all the same.
///
/// A function of its own, because only then does the compiler know that writing to packets does not change where the next
/// hops are.
#[inline]
fn forward<A: ForwardFamily>(
    next_hops: &Resolver<Adjacency>,
    hash: &PathHash,
    ways: Ways,
    numbers: &[NextHopIndex],
    packets: &mut [Packet],
    outputs: &mut [u16],
) -> u16 {
    let mut difference = 0;
    let mut first = None;
    let number = numbers.first().copied().unwrap_or_default();
    let is_same = numbers.iter().fold(0, |difference, other| difference | (other.get() ^ number.get())) == 0;
    if let Some(next_hop) = next_hops.resolve_single(number).filter(|_| is_same) {
        for (packet, place) in packets.iter_mut().zip(&mut *outputs) {
            *place = output::<A>(next_hop, ways, packet);
            difference |= *place ^ *first.get_or_insert(*place);
        }
        return difference;
    }
    for ((packet, &number), place) in packets.iter_mut().zip(numbers).zip(&mut *outputs) {
        let next_hop = next_hops.resolve_with(number, || path_hash::<A>(hash, packet));
        *place = output::<A>(next_hop, ways, packet);
        difference |= *place ^ *first.get_or_insert(*place);
    }
    difference
}

/// What the members of a group are chosen by. Not in the loop: most next hops are not groups, and it takes many registers.
#[inline(never)]
pub(super) fn path_hash<A: ForwardFamily>(hash: &PathHash, packet: &Packet) -> Option<u32> {
    A::path_hash(hash, packet.data())
}

/// The same where rules choose the tables, packet by packet.
#[cold]
fn forward_by_rules<A: ForwardFamily>(
    rules: &Rules<A>,
    state: &State<Adjacency>,
    hash: &PathHash,
    ways: Ways,
    packets: &mut [Packet],
    outputs: &mut [u16],
) -> u16 {
    for (packet, place) in packets.iter_mut().zip(&mut *outputs) {
        let port = input_port(packet);
        let destination = A::destination(packet.annotations());
        let lookup = |vrf| A::table(state, vrf).map_or(NextHopIndex::NONE, |table| table.lookup(destination));
        let next_hop = match rules.evaluate(port, A::source(packet.data()), destination, lookup) {
            Decision::Route(number) => {
                state.next_hops().resolve_with(number, || A::path_hash(hash, packet.data()))
            }
            Decision::NoRoute => &NextHop::NoRoute,
            Decision::Blackhole => &NextHop::Blackhole,
            // A rule's "unreachable" is "network unreachable" in Linux, as if there were no route.
            Decision::Unreachable => &NextHop::NoRoute,
            Decision::Prohibit => &NextHop::Prohibit,
            Decision::Punt => &NextHop::Punt,
        };
        *place = output::<A>(next_hop, ways, packet);
    }
    let first = outputs.first().copied().unwrap_or_default();
    outputs.iter().fold(0, |difference, output| difference | (output ^ first))
}

/// The number of the next hop whose neighbour a packet waits for, if it does.
pub(super) fn waits_for<A: ForwardFamily>(
    policy: &Policy,
    state: &State<Adjacency>,
    hash: &PathHash,
    packet: &Packet,
) -> Option<NextHopIndex> {
    let destination = A::destination(packet.annotations());
    let lookup = |vrf| A::table(state, vrf).map_or(NextHopIndex::NONE, |table| table.lookup(destination));
    let rules = A::rules(policy);
    let number = if rules.is_main_only() {
        lookup(MAIN)
    } else {
        match rules.evaluate(input_port(packet), A::source(packet.data()), destination, lookup) {
            Decision::Route(number) => number,
            _ => return None,
        }
    };
    let next_hop = state.next_hops().resolve_with(number, || A::path_hash(hash, packet.data()));
    matches!(next_hop, NextHop::Resolve(_)).then_some(number)
}

/// The output of a packet, which has its Ethernet header if that is a port's.
#[inline(always)]
fn output<A: ForwardFamily>(next_hop: &NextHop<Adjacency>, ways: Ways, packet: &mut Packet) -> u16 {
    match next_hop {
        NextHop::Forward(adjacency) if !A::is_odd(packet) || ways.forwards_options => {
            if encapsulate(packet, adjacency) { adjacency.port() } else { NO_ROOM }
        }
        next_hop => beyond(next_hop, ways),
    }
}

/// Where packets go that are not forwarded.
#[cold]
fn beyond(next_hop: &NextHop<Adjacency>, ways: Ways) -> u16 {
    let ports = ways.ports;
    match next_hop {
        NextHop::Forward(_) => WITH_OPTIONS,
        NextHop::Local => TO_THIS_HOST,
        NextHop::Broadcast => TO_BROADCAST,
        NextHop::Punt => LEFT_TO_LINUX,
        NextHop::Resolve(_) if ways.resolve == HOST => NOT_RESOLVED,
        NextHop::Resolve(_) => ports + ways.resolve,
        NextHop::NoRoute => ports + NO_ROUTE,
        NextHop::Unreachable => ports + UNREACHABLE,
        NextHop::Prohibit => ports + PROHIBITED,
        NextHop::Blackhole => BLACKHOLE,
    }
}

/// Counts packets that are not forwarded, and gives those of the host its output.
#[cold]
fn count_diverted(cx: &mut Context, ways: Ways, packets: &[Packet], outputs: &mut [u16]) {
    let last = cx.outputs() as u16;
    let is_diverted = |output: u16| output >= ways.ports && output < DROPPED;
    for (packet, output) in packets.iter().zip(outputs).filter(|(_, output)| is_diverted(**output)) {
        let reason = match output.checked_sub(FOR_HOST) {
            Some(reason) => {
                *output = ways.ports + HOST;
                HOST_REASONS.get(usize::from(reason))
            }
            None => BEYOND.get(usize::from(*output - ways.ports)),
        };
        if *output < last {
            cx.count_diverted(reason.copied().unwrap_or("sample for a redirect"), packet.pieces());
        }
    }
}

/// Writes the next hop's link header into the head room, right before the packet; false without room for it.
#[inline(always)]
pub(super) fn encapsulate(packet: &mut Packet, adjacency: &Adjacency) -> bool {
    let rewrite = adjacency.rewrite();
    // Nearly always: a copy of fixed size.
    if let Ok(header) = <&[u8; HEADER_LEN]>::try_from(rewrite) {
        return packet.set_link_header_before(header);
    }
    // In a VLAN.
    if let Ok(header) = <&[u8; HEADER_LEN + TAG_LEN]>::try_from(rewrite) {
        return packet.set_link_header_before(header);
    }
    let Some(data) = packet.prepend(rewrite.len()) else { return false };
    data[..rewrite.len()].copy_from_slice(rewrite);
    packet.set_link_header(0);
    packet.strip(rewrite.len())
}

impl<A: ForwardFamily> FibLookup<A> {
    pub(super) const HANDLERS: &'static [Handler] = &[
        Handler::read(
            "lookup",
            Combine::First,
            "Takes an address and says what happens to packets that go there.",
            &Ask(|e: &mut Self, _, argument| e.lookup(argument)),
        ),
        Handler::read(
            "redirects",
            Combine::Sum,
            "How many packets left by output n+5.",
            &Get(|e: &mut Self| e.redirected().to_string()),
        ),
    ];

    /// Says what happens to packets to an address.
    fn lookup(&mut self, address: &str) -> Result<String, String> {
        let address = A::Ip::from_value(address)?.into();
        let state = self.reader.enter();
        let number = A::table(&state, MAIN).map_or(NextHopIndex::NONE, |table| table.lookup(address));
        Ok(state.next_hops().resolve(number, 0).to_string())
    }

    /// How many packets left by the output for redirects.
    fn redirected(&self) -> u64 {
        self.redirects.as_ref().map_or(0, |redirects| redirects.count)
    }
}

impl<A: ForwardFamily> FibLookup<A> {
    /// The numbers of the next hops of addresses.
    fn find(&mut self, asked: &mut Destinations<A>) -> bool {
        let state = self.reader.enter();
        let Some(table) = A::table(&state, MAIN) else { return false };
        table.lookup_batch(&asked.addresses[..asked.count], &mut asked.numbers[..asked.count]);
        asked.version = state.next_hops().version();
        true
    }

    /// What happens to packets of a number, which is known where there is one neighbour.
    fn route(&mut self, asked: &mut Route<A>) -> bool {
        let state = self.reader.enter();
        asked.version = state.next_hops().version();
        let Some(NextHop::Forward(adjacency)) = state.next_hops().resolve_single(asked.number) else {
            return false;
        };
        asked.output = usize::from(adjacency.port());
        asked.header = adjacency.rewrite().try_into().ok();
        // Packets that leave by the port they came by may have to be redirected.
        asked.odd_paint = self.redirects.as_ref().map(|_| (adjacency.port() + 1) as u8);
        asked.header.is_some()
    }
}

impl<A: ForwardFamily> Element for FibLookup<A> {
    fn answer(&mut self, question: &mut dyn Any) -> bool {
        if let Some(asked) = question.downcast_mut::<Destinations<A>>() {
            return self.find(asked);
        }
        if let Some(asked) = question.downcast_mut::<Route<A>>() {
            return self.route(asked);
        }
        question.is::<Watch>() && A::rules(&self.policy.enter()).is_main_only()
    }

    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        if batch.is_empty() {
            return;
        }
        let addresses = &mut self.addresses[..batch.len()];
        let numbers = &mut self.numbers[..batch.len()];
        let outputs = &mut self.outputs[..batch.len()];
        for (packet, address) in batch.packets().iter().zip(&mut *addresses) {
            *address = A::destination(packet.annotations());
        }
        let policy = self.policy.enter();
        let rules = A::rules(&policy);
        let state = self.reader.enter();
        let mut difference = match A::table(&state, MAIN).filter(|_| rules.is_main_only()) {
            Some(table) => {
                table.lookup_batch(addresses, numbers);
                let packets = batch.packets_mut();
                forward::<A>(state.next_hops(), &self.hash, self.ways, numbers, packets, outputs)
            }
            None => forward_by_rules(rules, &state, &self.hash, self.ways, batch.packets_mut(), outputs),
        };
        drop(state);
        drop(policy);
        if let Some(redirects) = &mut self.redirects {
            let port = input_port(&batch.packets()[0]);
            if port == outputs[0] && port < self.ways.ports && redirects.takes(&mut outputs[0], cx.now_ns()) {
                difference = outputs.iter().fold(0, |difference, output| difference | (output ^ outputs[0]));
            }
        }
        let last = cx.outputs() as u16;
        let forwarded = last.min(self.ways.ports);
        match outputs[0] {
            // All by output 0: the batch goes on as it is.
            0 if difference == 0 => {}
            output if difference == 0 && output < forwarded => cx.emit_batch(usize::from(output), batch),
            _ if outputs.iter().all(|&output| output < forwarded) => cx.scatter(batch, outputs),
            _ => {
                count_diverted(cx, self.ways, batch.packets(), outputs);
                if outputs.iter().all(|&output| output < last) {
                    return cx.scatter(batch, outputs);
                }
                for (packet, &output) in batch.drain().zip(&*outputs) {
                    if output < last {
                        cx.emit(usize::from(output), packet);
                    } else if output >= DROPPED {
                        cx.drop(packet, DROP_REASONS[usize::from(output - DROPPED)]);
                    } else {
                        let place = usize::from(output.saturating_sub(self.ways.ports));
                        cx.drop(packet, BEYOND.get(place).copied().unwrap_or("no such port"));
                    }
                }
            }
        }
    }
}
