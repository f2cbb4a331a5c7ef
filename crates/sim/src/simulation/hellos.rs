//! Who is alive, as nodes find out: their own code for that, and hellos that travel over links like packets.
//!
//! The cluster has come up before time 0: hellos are exchanged in rounds until all nodes know that all is well. A hello
//! takes its time on its link behind what waits there, is never too late for a full queue, and costs a node nothing. Behind
//! a switch all nodes hear it at once.

use std::rc::Rc;
use std::sync::Arc;

use fabric::{Far, Hello, Keys, Link, Links, NodeId, Paths, Topology};

use super::wiring::To;
use super::{PS, Simulation};
use crate::event::{Event, Kind};
use crate::random::Random;
use crate::{Broken, Scenario};

/// What all nodes know of each other, and what they say.
pub(super) struct Hellos {
    /// By node.
    links: Vec<Links>,
    /// Those on their way, by the places that events have.
    said: Vec<Option<Rc<Hello>>>,
    free: Vec<u32>,
    /// The time of the nodes' clocks at time 0.
    began_ns: u64,
    timing: fabric::Timing,
    /// Incarnations that there were.
    starts: u64,
    keys: Keys,
}

impl Hellos {
    fn say(&mut self, hello: Rc<Hello>) -> u32 {
        if let Some(place) = self.free.pop() {
            self.said[place as usize] = Some(hello);
            return place;
        }
        self.said.push(Some(hello));
        self.said.len() as u32 - 1
    }

    fn take(&mut self, place: u32) -> Option<Rc<Hello>> {
        self.free.push(place);
        self.said.get_mut(place as usize)?.take()
    }

    /// Links of a node that starts.
    fn started(&mut self, topology: &Arc<Topology>, here: NodeId) -> Links {
        self.starts += 1;
        Links::new(Arc::clone(topology), here, 1, self.starts, self.timing)
    }

    /// Lets all nodes get to know each other.
    fn come_up(&mut self, topology: &Arc<Topology>) {
        let whole = |here: NodeId, paths: &Paths| {
            let mut others =
                NodeId::first(topology.nodes()).filter(|&other| other != here && topology.may_be_via(other));
            paths.are_whole() && others.all(|other| paths.is_direct(other))
        };
        let mut is_whole = vec![false; topology.nodes()];
        // A report needs no more rounds than there are nodes, in any shape; if it does, the first hellos do the rest.
        for _ in 0..topology.nodes() + 10 {
            self.began_ns += self.timing.hello_ns;
            for from in NodeId::first(topology.nodes()) {
                self.links[from.index()].tick(self.began_ns);
                for (number, link) in (0..).zip(topology.links(from)) {
                    let hello = as_sent(&self.links[from.index()].hello(number), &self.keys).0;
                    for (to, at) in ends(topology, from, *link) {
                        hear(&mut self.links[to.index()], at, &hello, self.began_ns);
                    }
                }
            }
            for (here, links) in NodeId::first(topology.nodes()).zip(&mut self.links) {
                links.events();
                if let Some(paths) = links.changed_paths() {
                    is_whole[here.index()] = whole(here, &paths);
                }
            }
            if is_whole.iter().all(|&is_whole| is_whole) {
                break;
            }
        }
    }
}

/// A hello as others read it, and its length with the Ethernet header.
fn as_sent(hello: &Hello, keys: &Keys) -> (Hello, u32) {
    let frame = hello.frame(keys);
    let read = Hello::from_frame(&frame, keys).and_then(Result::ok).expect("what a node writes can be read");
    (read, frame.len() as u32)
}

/// A node hears a hello, which it refuses while it takes its sender for another one that has just started again.
fn hear(links: &mut Links, at: u16, hello: &Hello, now_ns: u64) {
    let _ = links.receive(at, hello, now_ns);
}

/// Who hears what a node says on a link, and as which of its links.
fn ends(topology: &Topology, from: NodeId, link: Link) -> Vec<(NodeId, u16)> {
    let number =
        |to: NodeId, is: &dyn Fn(&Link) -> bool| topology.links(to).iter().position(is).map(|at| at as u16);
    match link.far {
        Far::Node(to) => {
            number(to, &|other| other.cable == link.cable).map(|at| (to, at)).into_iter().collect()
        }
        Far::Switch(_) => NodeId::first(topology.nodes())
            .filter(|&to| to != from)
            .filter_map(|to| number(to, &|other| other.far == link.far).map(|at| (to, at)))
            .collect(),
    }
}

impl Simulation {
    /// Brings the cluster up, and has all nodes say hello from now on.
    pub(super) fn begin_hellos(&mut self, scenario: &Scenario) {
        let timing = scenario.timing;
        let (links, said, free) = (Vec::new(), Vec::new(), Vec::new());
        let keys = Keys::public();
        let mut hellos = Hellos { links, said, free, began_ns: 0, timing, starts: 0, keys };
        for here in NodeId::first(self.topology.nodes()) {
            let links = hellos.started(&self.topology, here);
            hellos.links.push(links);
        }
        hellos.come_up(&self.topology);
        self.hellos = Some(hellos);
        let mut random = Random::new(scenario.seed, u64::MAX - 1);
        for here in NodeId::first(self.topology.nodes()) {
            // Nobody's clock is another's.
            let at_ps = (random.fraction() * timing.hello_ns as f64 * PS as f64) as u64;
            self.events.push(Event { at_ps, node: here.number(), kind: Kind::Says, ..Event::default() });
        }
        for failure in &scenario.failures {
            if let Broken::Node(node) = failure.broken {
                let at_ps = failure.until_ns.saturating_mul(PS);
                self.events.push(Event {
                    at_ps,
                    node: node.number(),
                    kind: Kind::Starts,
                    ..Event::default()
                });
            }
        }
    }

    /// A node says hello on all its links, and looks whom it has not heard.
    pub(super) fn says(&mut self, event: Event) {
        let Some(mut hellos) = self.hellos.take() else { return };
        let (here, now_ps) = (node_id(event), event.at_ps);
        let next_ps = now_ps.saturating_add(hellos.timing.hello_ns.saturating_mul(PS));
        self.events.push(Event { at_ps: next_ps, ..event });
        if self.failures.of_node(event.node, now_ps).is_none() {
            let links = &mut hellos.links[here.index()];
            links.tick(hellos.began_ns + now_ps / PS);
            links.events();
            for link in 0..self.topology.links(here).len() as u16 {
                let (hello, bytes) = as_sent(&hellos.links[here.index()].hello(link), &hellos.keys);
                self.send_hello(&mut hellos, event, link, Rc::new(hello), bytes);
            }
        }
        self.hellos = Some(hellos);
        self.learn(here, now_ps);
    }

    fn send_hello(&mut self, hellos: &mut Hellos, event: Event, link: u16, hello: Rc<Hello>, bytes: u32) {
        let number = self.wiring.number(event.node, link);
        let wire = &mut self.wiring.wires[number];
        let gone_ps = wire.carry_always(event.at_ps, bytes, &self.wiring.rates);
        if self.failures.of_wire(number, gone_ps).or(self.failures.of_node(event.node, gone_ps)).is_some() {
            return;
        }
        let at_ps = gone_ps + self.wiring.rates.delay_ps;
        let heard =
            |node: u16, link: u16, flow: u32| Event { at_ps, node, link, flow, kind: Kind::Heard, ..event };
        match wire.to {
            To::Node { node, link } => self.events.push(heard(node, link, hellos.say(hello))),
            To::Switch(switch) => {
                for node in (0..self.topology.nodes() as u16).filter(|&node| node != event.node) {
                    let down = self.wiring.number_from_switch(node, switch);
                    if self.failures.of_wire(down, at_ps).is_none() {
                        self.events.push(heard(node, switch, hellos.say(Rc::clone(&hello))));
                    }
                }
            }
        }
    }

    /// A node hears a hello.
    pub(super) fn heard(&mut self, event: Event) {
        let Some(hellos) = &mut self.hellos else { return };
        let Some(hello) = hellos.take(event.flow) else { return };
        if self.failures.of_node(event.node, event.at_ps).is_some() {
            return;
        }
        let now_ns = hellos.began_ns + event.at_ps / PS;
        hear(&mut hellos.links[usize::from(event.node)], event.link, &hello, now_ns);
        self.learn(node_id(event), event.at_ps);
    }

    /// A node starts again, and knows nothing.
    pub(super) fn starts(&mut self, event: Event) {
        // Another failure may go on.
        if self.failures.of_node(event.node, event.at_ps).is_some() {
            return;
        }
        let here = node_id(event);
        let Some(hellos) = &mut self.hellos else { return };
        let links = hellos.started(&self.topology, here);
        hellos.links[here.index()] = links;
        let paths = Arc::new(hellos.links[here.index()].paths());
        let balancer = self.topology.may_have_ports(here).then(|| self.balancer(&paths, event.at_ps / PS));
        let node = &mut self.nodes[here.index()];
        (node.paths, node.balancer) = (paths, balancer);
        (node.free_ps, node.port_free_ps) = (event.at_ps, event.at_ps);
    }

    /// Takes other ways, if a node has learnt of any.
    fn learn(&mut self, here: NodeId, now_ps: u64) {
        let Some(hellos) = &mut self.hellos else { return };
        let Some(paths) = hellos.links[here.index()].changed_paths() else { return };
        let paths = Arc::new(paths);
        let node = &mut self.nodes[here.index()];
        if let Some(balancer) = &mut node.balancer {
            balancer.begin(now_ps.max(node.free_ps) / PS);
            balancer.set_paths(Arc::clone(&paths));
        }
        node.paths = paths;
    }
}

fn node_id(event: Event) -> NodeId {
    super::node_id(event.node)
}
