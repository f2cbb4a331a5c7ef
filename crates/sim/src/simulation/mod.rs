//! The simulation: events in the order of time, one for each packet at each node.
//!
//! A node is a server of its own time, a link and a port are servers of their rate, all first in, first out. What happens
//! to a packet at a node (its turn, its path, its turn on the link) is all decided when it arrives there: no packet that
//! comes later can change it, because servers take packets in the order of their arrival. So a hop is one event, and what
//! waits in a queue is not a list, but a time at which the server is free.

mod failures;
mod hellos;
mod wiring;

use std::sync::Arc;

use fabric::{Balancer, NodeId, Paths, Settings, Topology};

use self::failures::Failures;
use self::hellos::Hellos;
use self::wiring::{To, Wiring};
use crate::Scenario;
use crate::calendar::Calendar;
use crate::event::{Event, Kind, NOBODY};
use crate::histogram::Histogram;
use crate::matrix::Rows;
use crate::order::Order;
use crate::report::{self, Latency, Losses, Packets, Reordering, Report, Throughput, Use};
use crate::traffic::{self, Arrival, Source};

/// Picoseconds of a nanosecond, in which simulated time is counted: 64 bytes at 100 Gb/s are not a whole number of nanoseconds.
const PS: u64 = 1000;

struct Node {
    /// Of nodes with ports.
    balancer: Option<Balancer>,
    paths: Arc<Paths>,
    /// When it has done what it has.
    free_ps: u64,
    port_free_ps: u64,
    source: Source,
    next: Option<Arrival>,
    /// Bytes of packets that it handled, that came in by its port, those of them that were delivered; that came in for its
    /// port, and that this sent.
    handled: u64,
    offered: u64,
    got: u64,
    asked: u64,
    sent: u64,
}

/// What a packet costs, in picoseconds.
struct Costs {
    input: u64,
    relay: u64,
    output: u64,
    queue: u64,
}

struct Simulation {
    topology: Arc<Topology>,
    settings: Settings,
    nodes: Vec<Node>,
    wiring: Wiring,
    events: Calendar,
    order: Order,
    costs: Costs,
    port_ps_per_byte: f64,
    port_queue_ps: u64,
    warm_ps: u64,
    end_ps: u64,
    failures: Failures,
    hellos: Option<Hellos>,
    latency: Histogram,
    losses: Losses,
    packets: Packets,
    hops: u64,
}

/// Why a packet is lost.
#[derive(Clone, Copy)]
enum Loss {
    Overloaded,
    LinkFull,
    PortFull,
    /// By the failure of this number.
    Cut(u16),
    Dead(u16),
    Unreachable,
}

/// Simulates; `tell` hears now and then how far it is, as a share.
///
/// # Panics
/// If [`Scenario::check`] finds something wrong.
pub fn simulate(scenario: &Scenario, mut tell: impl FnMut(f64)) -> Report {
    let rows = scenario.checked().expect("a scenario is checked before it is simulated");
    let mut simulation = Simulation::new(scenario, &rows);
    let mut is_warm = false;
    let mut steps: u32 = 0;
    while let Some(event) = simulation.events.pop() {
        if event.at_ps >= simulation.end_ps {
            // It is still on its way.
            simulation.packets.in_flight += u64::from(event.kind.is_packet());
            break;
        }
        if !is_warm && event.at_ps >= simulation.warm_ps {
            is_warm = true;
            simulation
                .nodes
                .iter_mut()
                .filter_map(|node| node.balancer.as_mut())
                .for_each(Balancer::reset_counts);
        }
        simulation.happens(event);
        steps = steps.wrapping_add(1);
        if steps.is_multiple_of(1 << 18) {
            tell(event.at_ps as f64 / simulation.end_ps as f64);
        }
    }
    simulation.report(scenario, &rows)
}

fn node_id(index: u16) -> NodeId {
    NodeId::new(index).expect("a topology has no more nodes than there are numbers")
}

impl Simulation {
    fn new(scenario: &Scenario, rows: &Rows) -> Simulation {
        let topology = Arc::new(Topology::new(scenario.shape.clone()));
        let ps = |ns: f64| (ns * PS as f64).round() as u64;
        let settings = Settings {
            mode: scenario.mode,
            delta_ns: scenario.delta_ns,
            flowlets: scenario.flowlets,
            ports_rate: scenario.ports_rate,
            link_rate: scenario.link_rate,
            nodes: scenario.ports(),
            seed: scenario.seed,
        };
        let mut order = Order::default();
        let mut sources = Source::all(scenario, rows, &mut order);
        sources.resize(topology.nodes(), Source::Silent);
        let wiring = Wiring::new(&topology, scenario);
        let mean_bytes = traffic::mean_bytes(&scenario.flows);
        let asked: f64 = (0..rows.rows.len()).map(|input| rows.row_sum(input)).sum();
        let packets_per_second = asked * scenario.load * scenario.ports_rate as f64 / mean_bytes;
        let mut simulation = Simulation {
            // Most packets are handled three times; an event's successor is behind a link's queue.
            events: Calendar::new(packets_per_second * 3.0, wiring.reach_ps()),
            settings,
            nodes: Vec::with_capacity(topology.nodes()),
            wiring,
            order,
            costs: Costs {
                input: ps(scenario.costs.input_ns),
                relay: ps(scenario.costs.relay_ns),
                output: ps(scenario.costs.output_ns),
                queue: scenario.costs.queue_ns.saturating_mul(PS),
            },
            port_ps_per_byte: 1e12 / scenario.ports_rate as f64,
            port_queue_ps: (scenario.port_queue_bytes as f64 * 1e12 / scenario.ports_rate as f64) as u64,
            warm_ps: scenario.warm_ns * PS,
            end_ps: scenario.end_ns * PS,
            failures: Failures::new(scenario, &topology),
            hellos: None,
            latency: Histogram::default(),
            losses: Losses::default(),
            packets: Packets::default(),
            hops: 0,
            topology: Arc::clone(&topology),
        };
        for (here, source) in NodeId::first(topology.nodes()).zip(sources) {
            let paths = Arc::new(Paths::new(Arc::clone(&topology), here));
            let balancer = topology.may_have_ports(here).then(|| simulation.balancer(&paths, 0));
            simulation.nodes.push(Node {
                balancer,
                paths,
                free_ps: 0,
                port_free_ps: 0,
                source,
                next: None,
                handled: 0,
                offered: 0,
                got: 0,
                asked: 0,
                sent: 0,
            });
            simulation.await_next(here.number());
        }
        if !scenario.failures.is_empty() {
            simulation.begin_hellos(scenario);
        }
        simulation
    }

    /// A balancer of the node whose paths these are.
    fn balancer(&self, paths: &Arc<Paths>, now_ns: u64) -> Balancer {
        let seed = crate::random::mixed(self.settings.seed) ^ paths.here().index() as u64;
        Balancer::new(&Settings { seed, ..self.settings.clone() }, Arc::clone(paths), now_ns)
    }

    fn happens(&mut self, event: Event) {
        match event.kind {
            Kind::Comes => self.comes(event),
            Kind::Enters => self.enters(event),
            Kind::Switch => self.leaves_switch(event),
            Kind::Says => self.says(event),
            Kind::Heard => self.heard(event),
            Kind::Starts => self.starts(event),
        }
    }

    /// Has the next packet of a node's port come when it comes.
    fn await_next(&mut self, here: u16) {
        let node = &mut self.nodes[usize::from(here)];
        node.next = node.source.next(&mut self.order);
        if let Some(arrival) = &mut node.next {
            // What will be looked up then is not in the cache; asked for now, it is. Half of a run's time in a large mesh was waiting for it.
            arrival.sequence = self.order.went(arrival.flow);
            if let Some(balancer) = &node.balancer {
                let _ = balancer.place(node_id(arrival.output), arrival.hash);
            }
            self.events.push(Event { at_ps: arrival.at_ps, node: here, ..Event::default() });
        }
    }

    /// A packet comes by a node's port: the node chooses its path.
    fn enters(&mut self, event: Event) {
        let here = event.node;
        let Some(arrival) = self.nodes[usize::from(here)].next else { return };
        self.await_next(here);
        let Arrival { flow, sequence, hash, output, bytes, is_last, .. } = arrival;
        if is_last {
            self.order.end(flow);
        }
        self.packets.entered += 1;
        if event.at_ps >= self.warm_ps {
            self.nodes[usize::from(here)].offered += u64::from(bytes);
            self.nodes[usize::from(output)].asked += u64::from(bytes);
        }
        let mut packet = Event {
            at_ps: event.at_ps,
            entered_ps: event.at_ps,
            flow,
            sequence,
            bytes,
            node: here,
            link: 0,
            input: here,
            output,
            via: NOBODY,
            entropy: (hash >> 24) as u8,
            kind: Kind::Comes,
        };
        let Some(done_ps) = self.handle(&packet, self.costs.input) else { return };
        if output == here {
            return self.leaves(&packet, done_ps);
        }
        let Some(balancer) = &mut self.nodes[usize::from(here)].balancer else { return };
        let target = node_id(output);
        balancer.begin(done_ps / PS);
        let place = balancer.place(target, hash);
        match balancer.choose(place, target, hash, bytes.into()) {
            Some(choice) => {
                packet.via = choice.via.map_or(NOBODY, NodeId::number);
                self.send(packet, choice.link, done_ps);
            }
            None => self.lose(&packet, Loss::Unreachable, done_ps),
        }
    }

    /// A packet comes by a link: to its output, or to be passed on.
    fn comes(&mut self, mut packet: Event) {
        let here = packet.node;
        if packet.output == here {
            if let Some(done_ps) = self.handle(&packet, self.costs.output) {
                self.leaves(&packet, done_ps);
            }
            return;
        }
        if packet.via == here {
            packet.via = NOBODY;
        }
        let Some(done_ps) = self.handle(&packet, self.costs.relay) else { return };
        let target = if packet.via == NOBODY { packet.output } else { packet.via };
        let node = &mut self.nodes[usize::from(here)];
        let Some(link) = node.paths.link_towards(node_id(target), packet.entropy) else {
            return self.lose(&packet, Loss::Unreachable, done_ps);
        };
        if let Some(balancer) = &mut node.balancer {
            balancer.begin(done_ps / PS);
            balancer.relayed(link.into(), packet.bytes.into());
        }
        self.send(packet, link, done_ps);
    }

    /// A packet's turn at a node: when it is done. `None`: it is lost.
    fn handle(&mut self, packet: &Event, cost_ps: u64) -> Option<u64> {
        let now_ps = packet.at_ps;
        self.hops += 1;
        let node = &mut self.nodes[usize::from(packet.node)];
        let begins_ps = node.free_ps.max(now_ps);
        let done_ps = begins_ps + cost_ps;
        if let Some(failure) =
            self.failures.of_node(packet.node, now_ps).or(self.failures.of_node(packet.node, done_ps))
        {
            self.lose(packet, Loss::Dead(failure), now_ps);
            return None;
        }
        if begins_ps - now_ps > self.costs.queue {
            self.lose(packet, Loss::Overloaded, now_ps);
            return None;
        }
        node.free_ps = done_ps;
        if done_ps >= self.warm_ps && done_ps < self.end_ps {
            node.handled += u64::from(packet.bytes);
        }
        Some(done_ps)
    }

    /// A packet's turn on a link of its node.
    fn send(&mut self, packet: Event, link: u16, now_ps: u64) {
        let number = self.wiring.number(packet.node, link);
        let wire = &mut self.wiring.wires[number];
        let Some(gone_ps) = wire.carry(now_ps, packet.bytes.into(), &self.wiring.rates) else {
            return self.lose(&packet, Loss::LinkFull, now_ps);
        };
        if gone_ps >= self.warm_ps && gone_ps < self.end_ps {
            wire.bytes += u64::from(packet.bytes);
        }
        let to = wire.to;
        if let Some(failure) = self.failures.of_node(packet.node, gone_ps) {
            return self.lose(&packet, Loss::Dead(failure), gone_ps);
        }
        if let Some(failure) = self.failures.of_wire(number, gone_ps) {
            return self.lose(&packet, Loss::Cut(failure), gone_ps);
        }
        let at_ps = gone_ps + self.wiring.rates.delay_ps;
        self.events.push(match to {
            To::Node { node, link } => Event { at_ps, node, link, kind: Kind::Comes, ..packet },
            To::Switch(switch) => {
                let node = if packet.via == NOBODY { packet.output } else { packet.via };
                Event { at_ps, node, link: switch, kind: Kind::Switch, ..packet }
            }
        });
    }

    /// A packet's turn on the link from a switch to a node, whose number there is the switch's.
    fn leaves_switch(&mut self, packet: Event) {
        let now_ps = packet.at_ps;
        let number = self.wiring.number_from_switch(packet.node, packet.link);
        let wire = &mut self.wiring.wires[number];
        let Some(gone_ps) = wire.carry(now_ps, packet.bytes.into(), &self.wiring.rates) else {
            return self.lose(&packet, Loss::LinkFull, now_ps);
        };
        if gone_ps >= self.warm_ps && gone_ps < self.end_ps {
            wire.bytes += u64::from(packet.bytes);
        }
        if let Some(failure) = self.failures.of_wire(number, gone_ps) {
            return self.lose(&packet, Loss::Cut(failure), gone_ps);
        }
        let at_ps = gone_ps + self.wiring.rates.delay_ps;
        self.events.push(Event { at_ps, kind: Kind::Comes, ..packet });
    }

    /// A packet's turn on its output node's port.
    fn leaves(&mut self, packet: &Event, now_ps: u64) {
        let node = &mut self.nodes[usize::from(packet.node)];
        let begins_ps = node.port_free_ps.max(now_ps);
        if begins_ps - now_ps > self.port_queue_ps {
            return self.lose(packet, Loss::PortFull, now_ps);
        }
        let gone_ps = begins_ps + (f64::from(packet.bytes) * self.port_ps_per_byte) as u64;
        node.port_free_ps = gone_ps;
        if let Some(failure) = self.failures.of_node(packet.node, gone_ps) {
            return self.lose(packet, Loss::Dead(failure), gone_ps);
        }
        if gone_ps >= self.end_ps {
            self.packets.in_flight += 1;
            return self.order.lost(packet.flow);
        }
        self.packets.delivered += 1;
        if gone_ps < self.warm_ps {
            return self.order.lost(packet.flow);
        }
        node.sent += u64::from(packet.bytes);
        self.nodes[usize::from(packet.input)].got += u64::from(packet.bytes);
        self.latency.add((gone_ps - packet.entered_ps) / PS);
        self.order.came(packet.flow, packet.sequence);
    }

    fn lose(&mut self, packet: &Event, loss: Loss, at_ps: u64) {
        self.order.lost(packet.flow);
        self.packets.dropped += 1;
        let losses = &mut self.losses;
        let (count, failure) = match loss {
            Loss::Overloaded => (&mut losses.node_overloaded, None),
            Loss::LinkFull => (&mut losses.link_queue_full, None),
            Loss::PortFull => (&mut losses.port_queue_full, None),
            Loss::Cut(failure) => (&mut losses.link_cut, Some(failure)),
            Loss::Dead(failure) => (&mut losses.node_dead, Some(failure)),
            Loss::Unreachable => (&mut losses.unreachable, self.failures.last_begun(at_ps)),
        };
        *count += u64::from(at_ps >= self.warm_ps);
        if let Some(failure) = failure {
            self.failures.cost(failure, packet, at_ps);
        }
    }

    fn report(mut self, scenario: &Scenario, rows: &Rows) -> Report {
        let still = self.events.rest().filter(|event| event.kind.is_packet()).count();
        self.packets.in_flight += still as u64;
        let measured_ns = scenario.end_ns - scenario.warm_ns;
        let rate = |bytes: u64| bytes as f64 * 1e9 / measured_ns as f64;
        let asked = |share: f64| share * scenario.load * scenario.ports_rate as f64;
        let ports = &self.nodes[..rows.rows.len()];
        let input = |(input, node): (usize, &Node)| Throughput {
            asked: asked(rows.row_sum(input)),
            offered: rate(node.offered),
            delivered: rate(node.got),
        };
        let inputs: Vec<Throughput> = ports.iter().enumerate().map(input).collect();
        let output = |(sum, node): (f64, &Node)| Throughput {
            asked: asked(sum),
            offered: rate(node.asked),
            delivered: rate(node.sent),
        };
        let counts: Vec<_> =
            self.nodes.iter().filter_map(|node| Some(node.balancer.as_ref()?.counts())).collect();
        let direct: u64 = counts.iter().map(|counts| counts.direct_bytes).sum();
        let balanced: u64 = counts.iter().map(|counts| counts.balanced_bytes).sum();
        let all = direct + balanced;
        Report {
            measured_ns,
            fairness: report::fairness(&inputs),
            outputs: rows.column_sums().into_iter().zip(ports).map(output).collect(),
            inputs,
            processing: self
                .nodes
                .iter()
                .map(|node| rate(node.handled) / scenario.ports_rate as f64)
                .collect(),
            direct_share: if all > 0 { direct as f64 / all as f64 } else { 1.0 },
            moved: counts.iter().map(|counts| counts.moved).sum(),
            link_full: counts.iter().map(|counts| counts.link_full).sum(),
            links: Use::of(self.wiring.wires.iter().map(|wire| rate(wire.bytes) / scenario.link_rate as f64)),
            losses: self.losses,
            reordering: Reordering {
                packets: self.order.packets,
                sequences: self.order.sequences,
                late_packets: self.order.late_packets,
            },
            latency: Latency::of(&self.latency),
            recoveries: self.failures.recoveries(),
            packets: self.packets,
            hops: self.hops,
        }
    }
}
