//! What tests with a real kernel share: network namespaces, programs in them, and a follower that keeps what
//! it is told.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::change::{
    Address, Change, InterfaceIndex, Link, Neighbour, Object, ObjectKind, Part, Route, RouteKey, Rule,
};
use crate::netlink::{Event, Kernel, KernelOptions};

static NAMESPACES: AtomicU32 = AtomicU32::new(0);

/// A namespace that goes away at the end.
struct Namespace(String);

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// Runs `test` on a thread of its own inside a fresh network namespace.
pub(crate) fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: making network namespaces needs root");
        return;
    }
    let number = NAMESPACES.fetch_add(1, Ordering::Relaxed);
    let namespace = Namespace(format!("brickway-control-{}-{number}", std::process::id()));
    run("ip", &format!("netns add {}", namespace.0));
    let file = std::fs::File::open(format!("/run/netns/{}", namespace.0)).unwrap();
    let thread = std::thread::spawn(move || {
        use std::os::fd::AsFd;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        ip("link set lo up");
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `ip` with these words in the thread's namespace.
pub(crate) fn ip(words: &str) {
    run("ip", words);
}

/// Runs a program with these words in the thread's namespace; its output.
pub(crate) fn run(program: &str, words: &str) -> String {
    let output = Command::new(program).args(words.split_whitespace()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; install it"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs many commands of `ip` at once.
pub(crate) fn ip_batch(lines: &str) {
    use std::io::Write;
    let mut child =
        Command::new("ip").args(["-batch", "-"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// A veth pair, both ends up, without IPv6 addresses of their own.
pub(crate) fn veth_pair(left: &str, right: &str) {
    ip(&format!("link add {left} type veth peer name {right}"));
    for name in [left, right] {
        ip(&format!("link set dev {name} addrgenmode none"));
        ip(&format!("link set dev {name} up"));
    }
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
        let deadline = Instant::now() + Duration::from_secs(10);
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
