//! The mirror: from what the kernel and routing daemons tell ([`Change`]) to the forwarding tables of the workers.
//!
//! ```text
//!  links, addresses --> links.rs ------+   which interface is which port, whether it is up
//!  neighbours --------> neighbours.rs -+   who has which Ethernet address; host routes for them
//!                                      v
//!  objects -----------> objects.rs --> hops.rs       numbers of next hops: gateways, groups
//!                                      ^
//!  routes ------------> targets.rs ----+             what happens to packets, shared by many routes
//!                \----> routes.rs ---> tables.rs --> fib::Fib       of each prefix the best route
//!  rules -------------> rules.rs ------------------> fib::Policy
//! ```
//!
//! | file | what lives there |
//! | --- | --- |
//! | `routes.rs` | all routes of all sources, compactly, the best of each prefix first |
//! | `targets.rs`, `hops.rs`, `objects.rs` | what stands behind routes; why a changed gateway or object is one edit |
//! | `neighbours.rs` | neighbours, and the host routes that they get on connected networks |
//! | `tables.rs` | which of the routes the FIB gets: the best of each prefix; and which tables it has |
//! | `exits.rs` | in a cluster: which ports are those of other nodes |
//! | `fixed.rs` | destinations that no route may change: loopback, multicast, link-local |
//! | `rules.rs` | policy rules |
//! | `show.rs`, `drift.rs` | for people; whether the mirror has what the kernel has |
//!
//! It is pure logic: no sockets, no threads, no time. What sources say is never trusted to make sense: what does not is
//! counted, and the nearest sensible thing is done, which is mostly to *punt*, to leave packets to the kernel. Wherever
//! the fast path cannot do what the kernel would, packets are punted; so nothing here has to be complete to be right.
//!
//! Changes gather until [`Mirror::publish`]; workers then see all of them in one step.
//!
//! # Dumps
//!
//! A source dumps its state at the beginning, and again when it may have missed something: [`Mirror::dump_begins`], the
//! changes, [`Mirror::dump_ends`]. Everything carries the *epoch* (the number of the dump) in which it was last told;
//! what has another than the present one when a dump ends is gone. Until then it stays, so a daemon that is restarted
//! disturbs nobody.
//!
//! # Costs
//!
//! `examples/mirror.rs`, 1,000,000 IPv4 routes in no order through 64 gateways, seconds of one core of an AMD EPYC (Zen 5)
//! that others were using too:
//!
//! | | |
//! | --- | --- |
//! | first told, with publication | 2.9 s |
//! | all of them told again, and the end of that dump | 0.9 s |
//! | told by a second source too | 1.3 s |
//! | 64 gateways with other Ethernet addresses | under 1 ms |
//! | one source forgotten, the other one's routes put in force | 0.4 s |
//! | memory, that of the FIB and its two tables included | 103 MB; 143 MB with both sources |

mod drift;
mod exits;
mod fixed;
mod hops;
mod links;
#[cfg(test)]
mod model_tests;
mod neighbours;
mod objects;
mod routes;
mod rules;
mod show;
mod tables;
mod targets;
#[cfg(test)]
mod tests;

pub use drift::{Difference, Digest, DigestOf, Drift, digests_of};
pub use exits::{ClusterExits, Exit};
pub use links::VlanPort;
pub use show::{Found, FoundBy, NeighbourReport, NextHopReport, PortReport, RouteReport, Ruled};

use crate::change::{Address, Change, InterfaceIndex, Link, Part, Route, RouteKey, Source};
use fib::publish::Readers;
use fib::{Adjacency, CheckReport, EditError, Fib, MAIN, NextHopError, State, TableError};
use hops::Hops;
use ipnet::IpNet;
use links::Links;
use neighbours::Neighbours;
use objects::{ObjectKey, Objects};
use routes::{Family, Key, Stored};
use rules::KernelRules;
use std::collections::VecDeque;
use tables::Tables;
use targets::{Content, TargetId, Targets};

/// How many problems are remembered.
const MOST_PROBLEMS: usize = 64;

/// The forwarding tables of a router, kept as its sources say. See the top of its file.
pub struct Mirror {
    fib: Fib<Adjacency>,
    links: Links,
    neighbours: Neighbours,
    hops: Hops,
    objects: Objects,
    targets: Targets,
    tables: Tables,
    policy: KernelRules,
    /// On a node of a cluster.
    exits: Option<ClusterExits>,
    epochs: Epochs,
    counts: [u64; COUNTS.len()],
    problems: VecDeque<Problem>,
}

/// Something that could not be done as a source wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The table and prefix of the route, if it is about one.
    pub route: Option<(u32, IpNet)>,
    /// What is wrong, and what would be right.
    pub reason: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some((table, prefix)) = self.route {
            write!(f, "{prefix} in table {table}: ")?;
        }
        f.write_str(&self.reason)
    }
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
enum Count {
    Changes,
    Publications,
    NextHopChanges,
    Swept,
    GoneUnknown,
    HostBits,
    NotForSource,
    RoutesWithoutPath,
    NextHopsRefused,
    Refused,
    TablesRefused,
}

/// By [`Count`]: what people read.
const COUNTS: [&str; 11] = [
    "changes",
    "publications",
    "changes of next hops",
    "removed because a dump did not name them",
    "gone that were not there",
    "prefixes with host bits",
    "changes that their source has no say in",
    "routes without a path",
    "next hops that there was no number for",
    "routes that the forwarding table refused",
    "tables that there was no room for",
];

/// The number of the present dump of each source and part.
#[derive(Debug, Default)]
struct Epochs([[u8; 7]; 2]);

impl Epochs {
    fn of(&self, source: Source, part: Part) -> u8 {
        self.0[source as usize][part as usize]
    }

    fn next(&mut self, source: Source, part: Part) {
        let epoch = &mut self.0[source as usize][part as usize];
        *epoch = epoch.wrapping_add(1);
    }

    fn of_objects(&self, source: Source) -> u8 {
        self.of(source, Part::Objects)
    }

    fn of_neighbours(&self) -> u8 {
        self.of(Source::Netlink, Part::Neighbours)
    }

    fn of_rules(&self) -> u8 {
        self.of(Source::Netlink, Part::Rules)
    }

    fn of_routes(&self, source: Source, is_ipv6: bool) -> u8 {
        self.of(source, if is_ipv6 { Part::Routes6 } else { Part::Routes4 })
    }
}

impl Mirror {
    /// The mirror of a router with these ports: names of their interfaces in Linux, with the ports' numbers.
    ///
    /// # Errors
    ///
    /// [`TableError`] if there is no memory for the main table.
    pub fn new(ports: impl IntoIterator<Item = (String, u16)>) -> Result<Mirror, TableError> {
        let mut mirror = Mirror {
            fib: Fib::new()?,
            links: Links { ports: ports.into_iter().collect(), ..Links::default() },
            neighbours: Neighbours::default(),
            hops: Hops::default(),
            objects: Objects::default(),
            targets: Targets::default(),
            tables: Tables { most_fib_tables: tables::MOST_FIB_TABLES, ..Tables::default() },
            policy: KernelRules::default(),
            exits: None,
            epochs: Epochs::default(),
            counts: [0; COUNTS.len()],
            problems: VecDeque::new(),
        };
        mirror.add_fixed_hops();
        mirror.add_fixed_routes(MAIN);
        mirror.ensure_table(MAIN);
        mirror.publish();
        Ok(mirror)
    }

    /// Says that a port is a VLAN of another. To be called before anything is told: packets to its neighbours get a link
    /// header with a tag.
    pub fn set_vlan(&mut self, vlan: VlanPort) {
        self.links.vlans.push(vlan);
    }

    /// The forwarding tables, with what is not published yet in their routes and next hops.
    pub fn fib(&self) -> &Fib<Adjacency> {
        &self.fib
    }

    /// Where workers get their readers of the forwarding tables.
    pub fn readers(&self) -> &Readers<State<Adjacency>> {
        self.fib.readers()
    }

    /// Takes in one change. Workers see it after the next [`Mirror::publish`].
    pub fn apply(&mut self, source: Source, change: Change) {
        self.count(Count::Changes);
        let is_kernels = !matches!(
            change,
            Change::Route(_) | Change::RouteGone(_) | Change::Object(_) | Change::ObjectGone(_)
        );
        if is_kernels && source != Source::Netlink {
            self.count(Count::NotForSource);
            return;
        }
        let was_there = match change {
            Change::Link(link) => self.put_link(link),
            Change::LinkGone(index) => self.remove_link(index),
            Change::Address(address) => self.put_address(address),
            Change::AddressGone(address) => self.links.remove_address(&address),
            Change::Route(route) => self.put_route(source, route),
            Change::RouteGone(key) => self.remove_route(source, &key),
            Change::Object(object) => {
                self.set_object(ObjectKey { source, id: object.id }, Some(object.kind));
                true
            }
            Change::ObjectGone(id) => self.remove_object(ObjectKey { source, id }),
            Change::Neighbour(neighbour) => {
                self.put_neighbour(neighbour);
                true
            }
            Change::NeighbourGone(index, address) => self.remove_neighbour(index, address),
            Change::Rule(rule) => {
                self.put_rule(rule);
                true
            }
            Change::RuleGone(rule) => self.remove_rule(&rule),
        };
        if !was_there {
            self.count(Count::GoneUnknown);
        }
    }

    /// Takes in routes that differ in nothing but their destinations; that of `route` itself means nothing. As many changes, in less
    /// time.
    pub fn apply_routes(&mut self, source: Source, route: &Route, prefixes: &[IpNet]) {
        self.put_routes_of::<u32>(source, route, prefixes);
        self.put_routes_of::<u128>(source, route, prefixes);
    }

    /// A source is about to tell all that it has of a part.
    pub fn dump_begins(&mut self, source: Source, part: Part) {
        self.epochs.next(source, part);
    }

    /// A source has told all that it has of a part: what it did not name since [`Mirror::dump_begins`] is gone.
    pub fn dump_ends(&mut self, source: Source, part: Part) {
        let epoch = self.epochs.of(source, part);
        let is_kernels = !matches!(part, Part::Routes4 | Part::Routes6 | Part::Objects);
        if is_kernels && source != Source::Netlink {
            return;
        }
        let swept = match part {
            Part::Links => {
                let all = self.links.interfaces.iter().filter(|(_, interface)| interface.epoch != epoch);
                let gone: Vec<InterfaceIndex> = all.map(|(&index, _)| index).collect();
                gone.iter().filter(|index| self.remove_link(**index)).count()
            }
            Part::Addresses => {
                let all = self.links.addresses.iter().filter(|(_, seen)| **seen != epoch);
                let gone: Vec<Address> = all.map(|(address, _)| address.clone()).collect();
                gone.iter().filter(|address| self.links.remove_address(address)).count()
            }
            Part::Neighbours => {
                let all = self.neighbours.known.iter().filter(|(_, entry)| entry.epoch != epoch);
                let gone: Vec<_> = all.map(|(&key, _)| key).collect();
                gone.iter().filter(|(address, index)| self.remove_neighbour(*index, *address)).count()
            }
            Part::Rules => {
                let before = self.policy.list.len();
                self.policy.list.retain(|(_, seen)| *seen == epoch);
                let gone = before - self.policy.list.len();
                self.policy.is_dirty |= gone > 0;
                gone
            }
            Part::Objects => {
                let all = self.objects.known.iter();
                let all = all.filter(|(key, known)| key.source == source && known.epoch != epoch);
                let gone: Vec<ObjectKey> =
                    all.filter(|(_, known)| known.kind.is_some()).map(|(&key, _)| key).collect();
                gone.iter().filter(|key| self.remove_object(**key)).count()
            }
            Part::Routes4 => {
                self.remove_routes::<u32>(|_, key, stored| key.source == source && stored.epoch != epoch)
            }
            Part::Routes6 => {
                self.remove_routes::<u128>(|_, key, stored| key.source == source && stored.epoch != epoch)
            }
        };
        self.counts[Count::Swept as usize] += swept as u64;
    }

    /// Lets workers see all changes so far, in one step. Returns whether there were any.
    pub fn publish(&mut self) -> bool {
        if self.targets.condemned > 0 {
            self.remove_routes::<u32>(|mirror, _, stored| mirror.targets.get(stored.target).is_condemned);
            self.remove_routes::<u128>(|mirror, _, stored| mirror.targets.get(stored.target).is_condemned);
        }
        self.remove_unneeded_tables();
        self.open_refused_tables();
        self.free_retired();
        let is_dirty = std::mem::take(&mut self.policy.is_dirty);
        let policy = is_dirty.then(|| self.compile_policy());
        let has_fib = self.fib.has_unpublished();
        if has_fib {
            self.fib.publish();
        }
        // After the FIB, which has the tables that the rules lead to.
        let has_policy = policy.is_some_and(|policy| self.publish_policy(policy));
        self.counts[Count::Publications as usize] += u64::from(has_fib || has_policy);
        has_fib || has_policy
    }

    /// Publishes, and compares what workers have with the routes; see [`Fib::check`].
    pub fn check(&mut self) -> CheckReport {
        self.publish();
        self.fib.check()
    }

    /// What has been counted, and what is there now.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let waiting = |target: &&targets::Target| {
            target.content.object().is_some_and(|object| !self.objects.is_there(object))
        };
        let waiting = self.targets.iter().filter(waiting).map(targets::Target::routes).sum();
        let counted = COUNTS.iter().copied().zip(self.counts);
        counted.chain([("routes that wait for a next-hop object", waiting)]).collect()
    }

    /// The last problems, the newest last.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter()
    }

    fn count(&mut self, what: Count) {
        self.counts[what as usize] += 1;
    }

    fn note(&mut self, route: Option<(u32, IpNet)>, reason: String) {
        if self.problems.len() == MOST_PROBLEMS {
            self.problems.pop_front();
        }
        self.problems.push_back(Problem { route, reason });
    }

    fn note_edit_error(&mut self, fib_table: u32, prefix: IpNet, error: &EditError) {
        self.count(Count::Refused);
        self.note(Some((fib_table, prefix)), error.to_string());
    }

    fn note_next_hop_error(&mut self, error: NextHopError) {
        self.count(Count::NextHopsRefused);
        self.note(None, error.to_string());
    }

    fn put_link(&mut self, link: Link) -> bool {
        let epoch = self.epochs.of(Source::Netlink, Part::Links);
        let (index, new) = (link.index, link.clone());
        let before = self.links.put(link, epoch);
        if before.as_ref().is_some_and(|before| before.link == new) {
            return true;
        }
        self.links.generation += 1;
        self.policy.is_dirty = true;
        self.refresh_link(index);
        if let Some(port) = self.links.port(index) {
            self.refresh_vlans_of(port);
        }
        if before.map(|before| before.port) != self.links.get(index).map(|now| now.port) {
            self.evaluate_hosts_of(index);
        }
        if let Some(table) = new.vrf_table {
            self.ensure_table(table);
        }
        true
    }

    /// A link is gone, with its addresses and neighbours.
    fn remove_link(&mut self, index: InterfaceIndex) -> bool {
        let removed = self.links.interfaces.remove(&index);
        let was_there = removed.is_some();
        self.policy.is_dirty |= was_there;
        self.links.generation += u64::from(was_there);
        let addresses: Vec<Address> =
            self.links.addresses.keys().filter(|address| address.index == index).cloned().collect();
        addresses.iter().for_each(|address| {
            self.links.remove_address(address);
        });
        let neighbours = self.neighbours.known.keys().filter(|(_, of)| *of == index);
        for (address, _) in neighbours.copied().collect::<Vec<_>>() {
            self.remove_neighbour(index, address);
        }
        self.refresh_link(index);
        if let Some(port) = removed.and_then(|interface| interface.port) {
            self.refresh_vlans_of(port);
        }
        was_there
    }

    fn put_address(&mut self, address: Address) -> bool {
        let epoch = self.epochs.of(Source::Netlink, Part::Addresses);
        self.links.put_address(address, epoch);
        true
    }

    fn put_route(&mut self, source: Source, route: Route) -> bool {
        match route.key.prefix {
            IpNet::V4(_) => self.put_route_of::<u32>(source, route),
            IpNet::V6(_) => self.put_route_of::<u128>(source, route),
        }
        true
    }

    fn put_route_of<A: Family>(&mut self, source: Source, route: Route) {
        let (key, protocol) = (route.key, route.protocol);
        let target = self.acquire_target(Content::of(source, route));
        self.put_route_to::<A>(source, &key, protocol, target);
    }

    /// Those of the prefixes that are of one family.
    fn put_routes_of<A: Family>(&mut self, source: Source, route: &Route, prefixes: &[IpNet]) {
        let keys = || {
            let of_family = prefixes.iter().filter(|prefix| A::split(**prefix).is_some());
            of_family.map(|&prefix| RouteKey { prefix, ..route.key })
        };
        let Some(key) = keys().next() else { return };
        let target = self.acquire_target(Content::of(source, Route { key, ..route.clone() }));
        for key in keys() {
            self.count(Count::Changes);
            self.share_target(target);
            self.put_route_to::<A>(source, &key, route.protocol, target);
        }
        self.release_target(target);
    }

    /// Takes over one user of the target.
    fn put_route_to<A: Family>(&mut self, source: Source, key: &RouteKey, protocol: u8, target: TargetId) {
        let Some((table, stored_key)) = Key::<A>::of(source, key) else {
            return self.release_target(target);
        };
        if stored_key.prefix() != key.prefix {
            self.count(Count::HostBits);
        }
        self.ensure_table(table);
        let epoch = self.epochs.of_routes(source, A::IS_IPV6);
        self.change_route(table, stored_key, Some(Stored { target, protocol, epoch }));
    }

    fn remove_route(&mut self, source: Source, key: &RouteKey) -> bool {
        match key.prefix {
            IpNet::V4(_) => self.remove_route_of::<u32>(source, key),
            IpNet::V6(_) => self.remove_route_of::<u128>(source, key),
        }
    }

    fn remove_route_of<A: Family>(&mut self, source: Source, key: &RouteKey) -> bool {
        let Some((table, key)) = Key::<A>::of(source, key) else { return false };
        self.tables.tables.contains_key(&table) && self.change_route(table, key, None)
    }
}
