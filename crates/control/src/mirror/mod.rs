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
//! | `above.rs` | what stands above ports |
//! | `exits.rs` | in a cluster: which ports are those of other nodes |
//! | `news.rs` | what the log hears of ports and neighbours |
//! | `fixed.rs` | destinations that no route may change: loopback, multicast, link-local |
//! | `rules.rs` | policy rules |
//! | `history.rs` | what routes were and became, and when |
//! | `dumps.rs` | what a source does not name when it tells all that it has is gone |
//! | `counters.rs` | what was counted, and what could not be done |
//! | `show.rs`, `drift.rs` | for people; whether the mirror has what the kernel has |
//!
//! It is pure logic: no sockets, no threads, no clock ([`Mirror::set_time`] says what time it is). What sources say is never trusted to make sense: what does not is
//! counted, and the nearest sensible thing is done, which is mostly to *punt*, to leave packets to the kernel. Wherever
//! the fast path cannot do what the kernel would, packets are punted; so nothing here has to be complete to be right.
//!
//! Changes gather until [`Mirror::publish`]; workers then see all of them in one step.
//!
//! # Costs
//!
//! `examples/mirror.rs`, 1,000,000 IPv4 routes in no order through 64 gateways, seconds of one core of an AMD EPYC (Zen 5)
//! that others were using too:
//!
//! | | |
//! | --- | --- |
//! | first told, with publication | 1.5 s |
//! | all of them told again, and the end of that dump | 0.7 s |
//! | told by a second source too | 1.1 s |
//! | 64 gateways with other Ethernet addresses | under 1 ms |
//! | one source forgotten, the other one's routes put in force | 0.4 s |
//! | memory, that of the FIB, its two tables and the history included | 108 MB; 149 MB with both sources |

mod above;
mod counters;
mod drift;
mod dumps;
mod exits;
mod fixed;
mod history;
mod hops;
mod links;
#[cfg(test)]
mod model_tests;
mod neighbours;
mod news;
mod objects;
mod routes;
mod rules;
mod show;
mod tables;
mod targets;
#[cfg(test)]
mod tests;

pub use counters::Problem;
pub use drift::{Difference, Digest, DigestOf, Drift, Told};
pub use exits::{ClusterExits, Exit};
pub use history::{MOST as MOST_CHANGES, Reach, RouteChange, Subject, Way};
pub use links::VlanPort;
pub use show::{Found, FoundBy, NeighbourReport, NextHopReport, PortReport, RouteReport, Ruled};

use crate::change::{Address, Change, InterfaceIndex, Link, Part, Route, RouteKey, Source};
use crate::switches::Switches;
use counters::{Count, Counters};
use dumps::Epochs;
use fib::publish::Readers;
use fib::{Adjacency, CheckReport, Fib, Kinds, MAIN, Region, State, TableError};
use history::History;
use hops::Hops;
use ipnet::IpNet;
use links::Links;
use neighbours::Neighbours;
use objects::{ObjectKey, Objects};
use routes::{Key, MirrorFamily, Stored};
use rules::KernelRules;
use std::sync::Arc;
use tables::Tables;
use targets::{Content, TargetId, Targets};

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
    counters: Counters,
    history: History,
}

impl Mirror {
    /// The mirror of a router with these ports: names of their interfaces in Linux, with the ports' numbers. It has the usual
    /// tables.
    ///
    /// # Errors
    ///
    /// [`TableError`] if there is no memory for the main table.
    pub fn new(ports: impl IntoIterator<Item = (String, u16)>) -> Result<Mirror, TableError> {
        Self::of_kinds(ports, Kinds::default())
    }

    /// The same with tables of these kinds.
    ///
    /// # Errors
    ///
    /// As [`Mirror::new`].
    pub fn of_kinds(
        ports: impl IntoIterator<Item = (String, u16)>,
        kinds: Kinds,
    ) -> Result<Mirror, TableError> {
        let mut mirror = Mirror {
            fib: Fib::of_kinds(kinds)?,
            links: Links::default(),
            neighbours: Neighbours::default(),
            hops: Hops::default(),
            objects: Objects::default(),
            targets: Targets::default(),
            tables: Tables { most_fib_tables: tables::MOST_FIB_TABLES, ..Tables::default() },
            policy: KernelRules::default(),
            exits: None,
            epochs: Epochs::default(),
            counters: Counters::default(),
            history: History::default(),
        };
        mirror.links.ports.set(ports);
        mirror.add_fixed_hops();
        mirror.add_fixed_routes(MAIN);
        mirror.ensure_table(MAIN);
        mirror.publish();
        Ok(mirror)
    }

    /// Says what Linux calls a port's interface, if that is not the name of the port. To be called before any change.
    pub fn set_interface(&mut self, port: u16, name: &str) {
        self.links.ports.set_last(port, name);
    }

    /// Says that a port is a VLAN of another. To be called before any change: packets to its neighbours get a link
    /// header with a tag.
    pub fn set_vlan(&mut self, vlan: VlanPort) {
        self.links.vlans.push(vlan);
    }

    /// The forwarding tables, with what is not published yet in their routes and next hops.
    pub fn fib(&self) -> &Fib<Adjacency> {
        &self.fib
    }

    /// Publishes, and lets readers outside the process read the forwarding tables; see [`Fib::share`].
    ///
    /// # Errors
    ///
    /// As [`Fib::share`].
    pub fn share_tables(
        &mut self,
        region: Option<(&Arc<Region>, usize)>,
        exchange: impl FnOnce(),
    ) -> Result<(), TableError> {
        self.publish();
        self.fib.share(region, exchange)
    }

    /// Where workers get their readers of the forwarding tables.
    pub fn readers(&self) -> &Readers<State<Adjacency>> {
        self.fib.readers()
    }

    /// Takes in the settings of a port's interface.
    pub fn set_switches(&mut self, index: InterfaceIndex, switches: Switches) {
        self.links.put_switches(index, switches);
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
        packet::pulse::beat();
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

    /// Lets workers see all changes so far, in one step. Returns whether there were any.
    pub fn publish(&mut self) -> bool {
        if self.targets.condemned > 0 {
            self.remove_routes::<u32>(|mirror, _, stored| {
                mirror.targets.get(stored.target).value.is_condemned
            });
            self.remove_routes::<u128>(|mirror, _, stored| {
                mirror.targets.get(stored.target).value.is_condemned
            });
        }
        self.remove_unneeded_tables();
        self.open_refused_tables();
        self.free_retired();
        let is_dirty = std::mem::take(&mut self.policy.is_dirty);
        let policy = is_dirty.then(|| self.compile_policy()).filter(|policy| policy != self.policy());
        if let Some(policy) = &policy {
            self.fib.set_shared_policy(policy);
        }
        let has_fib = self.fib.has_unpublished();
        if has_fib {
            self.fib.publish();
        }
        // After the FIB, which has the tables that the rules lead to.
        let has_policy = policy.is_some();
        if let Some(policy) = policy {
            self.publish_policy(policy);
        }
        self.count_more(Count::Publications, usize::from(has_fib || has_policy));
        has_fib || has_policy
    }

    /// Publishes, and compares what workers have with the routes; see [`Fib::check`].
    pub fn check(&mut self) -> CheckReport {
        self.publish();
        self.fib.check()
    }

    fn put_link(&mut self, link: Link) -> bool {
        let epoch = self.epochs.of(Source::Netlink, Part::Links);
        let (index, new) = (link.index, link.clone());
        let before = self.links.put(link, epoch);
        let port = self.links.port(index);
        if before.as_ref().is_some_and(|before| before.link == new && before.port == port) {
            return true;
        }
        self.links.generation += 1;
        self.policy.is_dirty = true;
        self.report_link(before.as_ref(), self.links.get(index));
        self.refresh_link(index);
        if let Some(port) = port {
            self.refresh_vlans_of(port);
        }
        if before.map(|before| before.port) != Some(port) {
            self.evaluate_hosts_of(index);
        }
        if let Some(table) = new.vrf_table {
            self.ensure_table(table);
        }
        true
    }

    /// A link is gone, with its addresses and neighbours.
    fn remove_link(&mut self, index: InterfaceIndex) -> bool {
        let removed = self.links.remove(index);
        let was_there = removed.is_some();
        self.report_link(removed.as_ref(), None);
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
            if let Some(heir) = self.links.heir().cloned() {
                self.put_link(heir);
            }
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

    fn put_route_of<A: MirrorFamily>(&mut self, source: Source, route: Route) {
        let (key, protocol) = (route.key, route.protocol);
        let target = self.acquire_target(Content::of(source, route));
        self.put_route_to::<A>(source, &key, protocol, target);
    }

    /// Those of the prefixes that are of one family.
    fn put_routes_of<A: MirrorFamily>(&mut self, source: Source, route: &Route, prefixes: &[IpNet]) {
        let keys = || {
            let of_family = prefixes.iter().filter(|prefix| A::from_net(**prefix).is_some());
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
    fn put_route_to<A: MirrorFamily>(
        &mut self,
        source: Source,
        key: &RouteKey,
        protocol: u8,
        target: TargetId,
    ) {
        let Some((table, stored_key)) = Key::<A>::of(source, key) else {
            return self.release_target(target);
        };
        if stored_key.prefix() != key.prefix {
            self.count(Count::HostBits);
        }
        self.ensure_table(table);
        let epoch = self.epochs.of_routes(source, A::VERSION);
        self.change_route(table, stored_key, Some(Stored { target, protocol, epoch }));
    }

    fn remove_route(&mut self, source: Source, key: &RouteKey) -> bool {
        match key.prefix {
            IpNet::V4(_) => self.remove_route_of::<u32>(source, key),
            IpNet::V6(_) => self.remove_route_of::<u128>(source, key),
        }
    }

    fn remove_route_of<A: MirrorFamily>(&mut self, source: Source, key: &RouteKey) -> bool {
        let Some((table, key)) = Key::<A>::of(source, key) else { return false };
        self.tables.tables.contains_key(&table) && self.change_route(table, key, None)
    }
}
