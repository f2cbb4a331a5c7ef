//! What tests with a real kernel share: commands in bulk, and a follower that keeps every change.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use crate::change::{
    Address, Change, InterfaceIndex, Link, Neighbour, Object, ObjectKind, Part, Route, RouteKey, Rule,
};
use crate::netlink::{Event, Kernel, KernelOptions};

/// Runs many commands of `ip` at once.
pub(crate) fn ip_batch(lines: &str) {
    use std::io::Write;
    let mut child =
        Command::new("ip").args(["-batch", "-"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// Follows the kernel as the mirror does: marks, sweeps, and nothing else.
pub(crate) struct Follower {
    pub(crate) kernel: Kernel,
    pub(crate) links: BTreeMap<InterfaceIndex, (u64, Link)>,
    pub(crate) addresses: BTreeMap<Address, u64>,
    pub(crate) routes: BTreeMap<RouteKey, (u64, Route)>,
    pub(crate) objects: BTreeMap<u32, (u64, ObjectKind)>,
    pub(crate) neighbours: BTreeMap<(InterfaceIndex, std::net::IpAddr), (u64, Neighbour)>,
    pub(crate) rules: Vec<(u64, Rule)>,
    generation: u64,
    /// Parts that are being dumped, with their marks.
    pub(crate) begun: BTreeMap<Part, u64>,
    /// All parts whose dumps ended, in order.
    pub(crate) ended: Vec<Part>,
}

impl Follower {
    /// Follows from the beginning.
    pub(crate) fn new(options: &KernelOptions) -> Follower {
        Follower {
            kernel: Kernel::open(options).unwrap(),
            links: BTreeMap::new(),
            addresses: BTreeMap::new(),
            routes: BTreeMap::new(),
            objects: BTreeMap::new(),
            neighbours: BTreeMap::new(),
            rules: Vec::new(),
            generation: 1,
            begun: BTreeMap::new(),
            ended: Vec::new(),
        }
    }

    /// Follows, and has all.
    pub(crate) fn synchronised() -> Follower {
        let mut follower = Follower::new(&KernelOptions::default());
        follower.until("first dumps", |follower| follower.kernel.is_synchronised());
        follower
    }

    /// Waits for something to receive, and receives it.
    pub(crate) fn turn(&mut self) {
        let mut events = Vec::new();
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        poll(&mut [PollFd::new(&self.kernel.fd(), PollFlags::IN)], Some(&timeout)).unwrap();
        self.kernel.receive(&mut |event| events.push(event)).unwrap();
        events.into_iter().for_each(|event| self.event(event));
    }

    /// Follows until it is so, for at most ten seconds.
    pub(crate) fn until(&mut self, what: &str, mut is_so: impl FnMut(&Follower) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_so(self) {
            assert!(Instant::now() < deadline, "{what}; routes: {:#?}", self.routes.values());
            self.turn();
        }
    }

    /// Follows until nothing comes and nothing is due for a while.
    pub(crate) fn settle(&mut self) {
        let mut quiet_since = Instant::now();
        while quiet_since.elapsed() < Duration::from_millis(300) {
            let before = self.kernel.counters().clone();
            self.turn();
            if *self.kernel.counters() != before {
                quiet_since = Instant::now();
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::DumpBegins(part) => {
                self.generation += 1;
                self.begun.insert(part, self.generation);
            }
            Event::DumpEnds(part) => {
                let mark = self.begun.remove(&part).expect("a dump begins before it ends");
                self.ended.push(part);
                let is_ipv4 = part == Part::Routes4;
                match part {
                    Part::Links => self.links.retain(|_, (seen, _)| *seen >= mark),
                    Part::Addresses => self.addresses.retain(|_, seen| *seen >= mark),
                    Part::Routes4 | Part::Routes6 => {
                        self.routes
                            .retain(|key, (seen, _)| key.prefix.addr().is_ipv4() != is_ipv4 || *seen >= mark);
                    }
                    Part::Objects => self.objects.retain(|_, (seen, _)| *seen >= mark),
                    Part::Neighbours => self.neighbours.retain(|_, (seen, _)| *seen >= mark),
                    Part::Rules => self.rules.retain(|(seen, _)| *seen >= mark),
                }
            }
            Event::Change(change) => self.change(change),
        }
    }

    fn change(&mut self, change: Change) {
        let mark = self.generation;
        match change {
            Change::Link(link) => drop(self.links.insert(link.index, (mark, link))),
            Change::LinkGone(index) => drop(self.links.remove(&index)),
            Change::Address(address) => drop(self.addresses.insert(address, mark)),
            Change::AddressGone(address) => drop(self.addresses.remove(&address)),
            Change::Route(route) => drop(self.routes.insert(route.key, (mark, route))),
            Change::RouteGone(key) => drop(self.routes.remove(&key)),
            Change::Object(Object { id, kind }) => drop(self.objects.insert(id, (mark, kind))),
            Change::ObjectGone(id) => {
                self.objects.remove(&id);
                self.routes.retain(|_, (_, route)| route.hops != crate::change::Hops::Object(id));
            }
            Change::Neighbour(neighbour) => {
                self.neighbours.insert((neighbour.index, neighbour.address), (mark, neighbour));
            }
            Change::NeighbourGone(index, address) => drop(self.neighbours.remove(&(index, address))),
            Change::Rule(rule) => {
                self.rules.retain(|(_, other)| *other != rule);
                self.rules.push((mark, rule));
            }
            Change::RuleGone(rule) => self.rules.retain(|(_, other)| *other != rule),
        }
    }

    /// The route of the main table to this prefix with the lowest metric.
    pub(crate) fn route(&self, prefix: &str) -> Option<&Route> {
        let prefix: ipnet::IpNet = prefix.parse().unwrap();
        let mut routes = self.routes.values().map(|(_, route)| route);
        routes.find(|route| route.key.table == 254 && route.key.prefix == prefix)
    }

    /// The number of the link of this name.
    pub(crate) fn index(&self, name: &str) -> InterfaceIndex {
        let link = self.links.values().find(|(_, link)| link.name == name);
        link.unwrap_or_else(|| panic!("no link {name}")).1.index
    }

    /// What is followed, without the marks: to be compared with what a fresh follower finds.
    pub(crate) fn routes_and_objects(&self) -> (Vec<&Route>, BTreeMap<u32, &ObjectKind>) {
        let objects = self.objects.iter().map(|(&id, (_, kind))| (id, kind)).collect();
        (self.routes.values().map(|(_, route)| route).collect(), objects)
    }
}
