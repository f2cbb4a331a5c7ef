//! What the leader has told: all that Linux and the routing daemons say, in the cluster's numbers. From it come the records for
//! the log (only what is new), and the whole table for nodes that join.
//!
//! A new leader begins with what the last one told ([`Ledger::replay`]), so its own Linux may say it all again without a
//! record. What it does not say stays for a while ([`Ledger::hold`]): its routing daemon has only just started.
//!
//! A node that is cut off from the store forwards still, but may follow another leader: neighbours behind its ports do not hear
//! this one, which says nothing of them ([`Ledger::set_unheard`]).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use ipnet::IpNet;

use super::labels::Labels;
use super::protection::Told;
use super::record::{OTHER_INTERFACES, Record, interface_of_port};
use crate::change::{
    Address, Change, Hops, InterfaceIndex, Link, Neighbour, NeighbourState, ObjectKind, OnlyLinux, Part,
    Path, Route, RouteKey, Rule,
};
use crate::interner::Interner;
use crate::port_names::PortNames;

/// Something with the dump in which it was last told.
#[derive(Clone, Debug)]
struct Stamped<T> {
    value: T,
    epoch: u8,
}

/// Routes in one piece of a table at most.
const ROUTES_IN_A_PIECE: usize = 50_000;
/// Other things in one piece.
const THINGS_IN_A_PIECE: usize = 5_000;

/// See the top of the file.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The ports of the cluster, and which of this leader's interfaces each is.
    ports: PortNames<u8>,
    /// From the leader's numbers of interfaces to the cluster's.
    interfaces: HashMap<InterfaceIndex, InterfaceIndex>,
    links: BTreeMap<InterfaceIndex, Stamped<Link>>,
    addresses: BTreeMap<Address, u8>,
    neighbours: BTreeMap<(InterfaceIndex, std::net::IpAddr), Stamped<Neighbour>>,
    objects: BTreeMap<u32, Stamped<ObjectKind>>,
    rules: Vec<Stamped<Rule>>,
    routes: BTreeMap<RouteKey, Stamped<u32>>,
    contents: Interner<Content>,
    labels: Labels,
    epochs: [u8; 7],
    /// While held: nothing goes because a dump does not name it.
    is_held: bool,
    /// Ports behind which nobody hears this leader's Linux.
    unheard: HashSet<InterfaceIndex>,
    /// What IPsec protects, by the newest list.
    protection: Option<Told>,
    pending: Vec<Record>,
}

/// All of a route but its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Content {
    kind: crate::change::RouteKind,
    protocol: u8,
    preferred_source: Option<std::net::IpAddr>,
    mtu: Option<u32>,
    preference: u8,
    only_linux: Option<OnlyLinux>,
    hops: Hops,
}

impl Content {
    fn of(route: Route) -> (RouteKey, Content) {
        let Route { key, kind, protocol, preferred_source, mtu, preference, only_linux, hops } = route;
        (key, Content { kind, protocol, preferred_source, mtu, preference, only_linux, hops })
    }

    fn route(&self, key: RouteKey) -> Route {
        let Content { kind, protocol, preferred_source, mtu, preference, only_linux, ref hops } = *self;
        Route { key, kind, protocol, preferred_source, mtu, preference, only_linux, hops: hops.clone() }
    }
}

impl Ledger {
    /// One of a cluster with these ports: name, number, and the number of the node that has it.
    pub fn new(ports: impl IntoIterator<Item = (String, u8, u16)>) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.set_ports(ports);
        ledger
    }

    /// Names the ports anew, when some have come or gone.
    pub fn set_ports(&mut self, ports: impl IntoIterator<Item = (String, u8, u16)>) {
        let ports = ports.into_iter().map(|(name, number, node)| {
            self.labels.set_node(number, node);
            (name, number)
        });
        self.ports.set(ports);
        self.relabel();
    }

    /// Gives neighbours behind ports that another node has now labels of that node.
    fn relabel(&mut self) {
        let has_moved = |told: &&Stamped<Neighbour>| {
            labelled(told.value).is_some_and(|(port, mac)| self.labels.has_moved(port, mac))
        };
        let moved: Vec<Stamped<Neighbour>> = self.neighbours.values().filter(has_moved).cloned().collect();
        for told in &moved {
            self.put(Change::NeighbourGone(told.value.index, told.value.address));
        }
        moved.into_iter().for_each(|told| self.put_neighbour(told.value, told.epoch));
    }

    /// Gives no labels below this one: nodes may know them from a log that is lost.
    pub fn begin_labels_at(&mut self, lowest: u32) {
        self.labels.begin_at(lowest);
    }

    /// Says behind which ports nobody hears this leader's Linux now. Neighbours that were known there stay, whatever it says of them,
    /// until they are heard again; then they are [stale](Ledger::stale_neighbours).
    pub fn set_unheard(&mut self, ports: impl IntoIterator<Item = u8>) {
        let ports = ports.into_iter().map(interface_of_port).collect();
        let before = std::mem::replace(&mut self.unheard, ports);
        for (_, told) in self.neighbours.iter_mut().filter(|((index, _), _)| before.contains(index)) {
            // Others are asked for already, or are not to be asked for.
            let was_heard = matches!(
                told.value.state,
                NeighbourState::Reachable | NeighbourState::Delay | NeighbourState::Probe
            );
            if was_heard && !self.unheard.contains(&told.value.index) {
                told.value.state = NeighbourState::Stale;
            }
        }
    }

    /// Takes in what this leader's Linux says.
    pub fn apply(&mut self, change: Change) {
        match self.in_cluster_numbers(change) {
            Some(Change::NeighbourGone(index, _)) if self.unheard.contains(&index) => {}
            Some(change) => self.put(change),
            None => {}
        }
    }

    /// Takes in what the last leader told.
    pub fn replay(&mut self, record: Record) {
        match record {
            Record::Change(change) => self.put(change),
            Record::Routes(route, prefixes) => {
                for prefix in prefixes {
                    self.put(Change::Route(Route { key: RouteKey { prefix, ..route.key }, ..route.clone() }));
                }
            }
            Record::Label { port, node, mac, label } => self.labels.replay(port, node, mac, label),
            Record::LabelsGiven { node, below } => self.labels.replay_given(node, below),
            Record::Protection(told) => self.protection = Some(told),
            Record::LabelGone { .. } | Record::Compare | Record::Log(_) | Record::Complete => {}
        }
        self.pending.clear();
    }

    /// Returns what IPsec protects, by the newest list.
    pub fn protection(&self) -> Option<&Told> {
        self.protection.as_ref()
    }

    /// Takes what IPsec protects now.
    pub fn set_protection(&mut self, told: Told) {
        // Nodes of earlier versions do not know the record, so it is not there where nothing was ever protected.
        let is_known = match &self.protection {
            Some(known) => *known == told,
            None => told.is_nothing(),
        };
        if !is_known {
            self.pending.push(Record::Protection(told.clone()));
            self.protection = Some(told);
        }
    }

    /// A dump of a part begins.
    pub fn dump_begins(&mut self, part: Part) {
        self.epochs[part as usize] = self.epochs[part as usize].wrapping_add(1);
    }

    /// A dump of a part has ended: what it did not name is gone, unless that is held.
    pub fn dump_ends(&mut self, part: Part) {
        if !self.is_held {
            self.sweep(part);
        }
    }

    /// Says that from now on nothing goes because a dump does not name it, until [`Ledger::let_go`].
    pub fn hold(&mut self) {
        self.is_held = true;
    }

    /// Ends [`Ledger::hold`]: what this leader's Linux has not said is gone.
    pub fn let_go(&mut self) {
        self.is_held = false;
        for part in ALL_PARTS {
            self.sweep(part);
        }
    }

    /// What is to be told, in this order. Nothing is pending then.
    pub fn take_pending(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.pending)
    }

    /// Whether there is something to be told.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The number of routes.
    pub fn routes(&self) -> usize {
        self.routes.len()
    }

    /// Neighbours on ports that this leader's Linux has not heard of for a while, in its own numbers.
    pub fn stale_neighbours(&self) -> impl Iterator<Item = (InterfaceIndex, std::net::IpAddr)> + '_ {
        let own: HashMap<InterfaceIndex, InterfaceIndex> =
            self.interfaces.iter().map(|(&own, &number)| (number, own)).collect();
        let stale = self.neighbours.iter().filter(|(_, told)| told.value.state == NeighbourState::Stale);
        stale.filter_map(move |(&(index, address), _)| Some((*own.get(&index)?, address)))
    }

    /// A neighbour to ask for, in this leader's numbers.
    pub fn own_interface(&self, number: InterfaceIndex) -> Option<InterfaceIndex> {
        self.interfaces.iter().find(|(_, known)| **known == number).map(|(&own, _)| own)
    }

    /// Labels that were given up may be used again once all nodes have acknowledged the log up to here.
    pub fn acknowledged(&mut self, sequence: u64) {
        self.labels.acknowledged(sequence);
    }

    /// Says that what was pending stands in the log at this place.
    pub fn logged(&mut self, sequence: u64) {
        self.labels.logged(sequence);
    }

    /// The whole table, in pieces that each can be encoded and stored. Labels come first, then what routes need.
    pub fn snapshot(&self) -> impl Iterator<Item = Vec<Record>> + '_ {
        // First of all, so that it counts when routes do.
        let protection = self.protection.clone().map(|told| vec![Record::Protection(told)]);
        let things = self.labels.records().chain(self.things().map(Record::Change)).collect::<Vec<_>>();
        let things: Vec<Vec<Record>> = things.chunks(THINGS_IN_A_PIECE).map(<[Record]>::to_vec).collect();
        let mut routes = self.routes.iter();
        let pieces = std::iter::from_fn(move || {
            let mut groups: HashMap<(u32, RouteKey), Vec<IpNet>> = HashMap::new();
            for (key, told) in routes.by_ref().take(ROUTES_IN_A_PIECE) {
                // The same for all routes of a group.
                let of = RouteKey { prefix: IpNet::default(), ..*key };
                groups.entry((told.value, of)).or_default().push(key.prefix);
            }
            let record = |((content, of), prefixes)| {
                Record::Routes(self.contents.get(content).key.route(of), prefixes)
            };
            (!groups.is_empty()).then(|| groups.into_iter().map(record).collect())
        });
        protection.into_iter().chain(things).chain(pieces)
    }

    /// All but routes.
    fn things(&self) -> impl Iterator<Item = Change> + '_ {
        let links = self.links.values().map(|told| Change::Link(told.value.clone()));
        let addresses = self.addresses.keys().map(|address| Change::Address(address.clone()));
        let objects = (self.objects.iter())
            .map(|(&id, told)| Change::Object(crate::change::Object { id, kind: told.value.clone() }));
        let rules = self.rules.iter().map(|told| Change::Rule(told.value.clone()));
        let neighbours = self.neighbours.values().map(|told| Change::Neighbour(plain(told.value)));
        links.chain(addresses).chain(objects).chain(rules).chain(neighbours)
    }

    fn number(&mut self, own: InterfaceIndex) -> InterfaceIndex {
        if own == 0 { 0 } else { self.interfaces.get(&own).copied().unwrap_or(OTHER_INTERFACES + own) }
    }

    /// The same in the cluster's numbers; `None` for what no node needs.
    fn in_cluster_numbers(&mut self, change: Change) -> Option<Change> {
        let hops = |ledger: &mut Ledger, hops: Hops| match hops {
            Hops::Paths(paths) => Hops::Paths(
                paths.into_iter().map(|path| Path { index: ledger.number(path.index), ..path }).collect(),
            ),
            other => other,
        };
        Some(match change {
            Change::Link(mut link) => {
                let port = self.ports.put(link.index, &link.name);
                let number = port.map_or(OTHER_INTERFACES + link.index, interface_of_port);
                // It is a port now, or is a port no more.
                if let Some(before) =
                    self.interfaces.insert(link.index, number).filter(|&before| before != number)
                {
                    self.put(Change::LinkGone(before));
                }
                link.index = number;
                link.master = link.master.map(|own| self.number(own));
                link.below = link.below.map(|own| self.number(own));
                Change::Link(link)
            }
            Change::LinkGone(own) => {
                let number = self.number(own);
                self.interfaces.remove(&own);
                self.ports.remove(own);
                Change::LinkGone(number)
            }
            Change::Address(address) => {
                Change::Address(Address { index: self.number(address.index), ..address })
            }
            Change::AddressGone(address) => {
                Change::AddressGone(Address { index: self.number(address.index), ..address })
            }
            Change::Route(mut route) => {
                route.hops = hops(self, route.hops);
                Change::Route(route)
            }
            Change::Object(mut object) => {
                if let ObjectKind::Path(path) = &mut object.kind {
                    path.index = self.number(path.index);
                }
                Change::Object(object)
            }
            Change::Neighbour(neighbour) => {
                let index = self.number(neighbour.index);
                // Linux lists groups, too.
                (index < OTHER_INTERFACES && !neighbour.address.is_multicast())
                    .then_some(Change::Neighbour(Neighbour { index, ..neighbour }))?
            }
            Change::NeighbourGone(own, address) => Change::NeighbourGone(self.number(own), address),
            other
            @ (Change::RouteGone(_) | Change::ObjectGone(_) | Change::Rule(_) | Change::RuleGone(_)) => other,
        })
    }

    /// Notes a change; what it changes is pending then.
    fn put(&mut self, change: Change) {
        let epoch = |part: Part| self.epochs[part as usize];
        match change {
            Change::Link(link) => {
                let told = Stamped { value: link.clone(), epoch: epoch(Part::Links) };
                let before = self.links.insert(link.index, told);
                if before.is_none_or(|before| before.value != link) {
                    self.tell(Change::Link(link));
                }
            }
            Change::LinkGone(index) => {
                if self.links.remove(&index).is_some() {
                    let addresses = self.addresses.keys().filter(|known| known.index == index).cloned();
                    for address in addresses.collect::<Vec<_>>() {
                        self.put(Change::AddressGone(address));
                    }
                    let neighbours = self.neighbours.keys().filter(|(of, _)| *of == index).copied();
                    for (_, address) in neighbours.collect::<Vec<_>>() {
                        self.put(Change::NeighbourGone(index, address));
                    }
                    self.tell(Change::LinkGone(index));
                }
            }
            Change::Address(address) => {
                if self.addresses.insert(address.clone(), epoch(Part::Addresses)).is_none() {
                    self.tell(Change::Address(address));
                }
            }
            Change::AddressGone(address) => {
                if self.addresses.remove(&address).is_some() {
                    self.tell(Change::AddressGone(address));
                }
            }
            Change::Neighbour(neighbour) => self.put_neighbour(neighbour, epoch(Part::Neighbours)),
            Change::NeighbourGone(index, address) => {
                if let Some(told) = self.neighbours.remove(&(index, address)) {
                    self.tell(Change::NeighbourGone(index, address));
                    self.give_up_label(told.value);
                }
            }
            Change::Object(object) => {
                let told = Stamped { value: object.kind.clone(), epoch: epoch(Part::Objects) };
                let before = self.objects.insert(object.id, told);
                if before.is_none_or(|before| before.value != object.kind) {
                    self.tell(Change::Object(object));
                }
            }
            Change::ObjectGone(id) => {
                if self.objects.remove(&id).is_some() {
                    // The kernel says nothing of these.
                    let of_object =
                        |told: &Stamped<u32>| self.contents.get(told.value).key.hops == Hops::Object(id);
                    let routes = self.routes.iter().filter(|(_, told)| of_object(told)).map(|(&key, _)| key);
                    for key in routes.collect::<Vec<_>>() {
                        self.put(Change::RouteGone(key));
                    }
                    self.tell(Change::ObjectGone(id));
                }
            }
            Change::Rule(rule) => {
                let epoch = epoch(Part::Rules);
                match self.rules.iter_mut().find(|told| told.value == rule) {
                    Some(told) => told.epoch = epoch,
                    None => {
                        self.rules.push(Stamped { value: rule.clone(), epoch });
                        self.tell(Change::Rule(rule));
                    }
                }
            }
            Change::RuleGone(rule) => {
                if let Some(place) = self.rules.iter().position(|told| told.value == rule) {
                    self.rules.remove(place);
                    self.tell(Change::RuleGone(rule));
                }
            }
            Change::Route(route) => self.put_route(route),
            Change::RouteGone(key) => {
                if let Some(told) = self.routes.remove(&key) {
                    self.contents.release(told.value);
                    self.tell(Change::RouteGone(key));
                }
            }
        }
    }

    fn put_route(&mut self, route: Route) {
        let epoch = self.epochs[part_of(&route.key) as usize];
        let (key, content) = Content::of(route);
        let value = self.contents.find(&content).unwrap_or_else(|| self.contents.add(Arc::new(content), ()));
        let before = self.routes.insert(key, Stamped { value, epoch });
        if let Some(before) = &before {
            self.contents.release(before.value);
        }
        if before.is_none_or(|before| before.value != value) {
            self.tell(Change::Route(self.contents.get(value).key.route(key)));
        }
    }

    fn put_neighbour(&mut self, neighbour: Neighbour, epoch: u8) {
        let key = (neighbour.index, neighbour.address);
        // The Linux of a new leader asks for those whom the last leader's knew. Who does not answer fails, if the question was heard.
        let is_asked = neighbour.state == NeighbourState::Incomplete;
        let is_unheard = neighbour.state == NeighbourState::Failed && self.unheard.contains(&neighbour.index);
        if (is_asked || is_unheard)
            && let Some(told) = self.neighbours.get_mut(&key)
            && labelled(told.value).is_some()
        {
            told.epoch = epoch;
            return;
        }
        let before = self.neighbours.insert(key, Stamped { value: neighbour, epoch }).map(|told| told.value);
        let now = plain(neighbour);
        if before.map(plain) == Some(now) {
            return;
        }
        if let Some((port, mac)) = labelled(neighbour)
            && let Some(record) = self.labels.acquire(port, mac)
        {
            self.pending.push(record);
        }
        self.tell(Change::Neighbour(now));
        before.into_iter().for_each(|before| self.give_up_label(before));
    }

    fn give_up_label(&mut self, neighbour: Neighbour) {
        if let Some((port, mac)) = labelled(neighbour)
            && self.labels.release(port, mac)
        {
            self.pending.push(Record::LabelGone { port, mac });
        }
    }

    fn tell(&mut self, change: Change) {
        self.pending.push(Record::Change(change));
    }

    fn sweep(&mut self, part: Part) {
        let epoch = self.epochs[part as usize];
        let gone: Vec<Change> = match part {
            Part::Links => {
                let gone = self.links.iter().filter(|(_, told)| told.epoch != epoch);
                gone.map(|(&index, _)| Change::LinkGone(index)).collect()
            }
            Part::Addresses => {
                let gone = self.addresses.iter().filter(|(_, seen)| **seen != epoch);
                gone.map(|(address, _)| Change::AddressGone(address.clone())).collect()
            }
            Part::Neighbours => {
                let heard = self.neighbours.iter().filter(|((index, _), _)| !self.unheard.contains(index));
                let gone = heard.filter(|(_, told)| told.epoch != epoch);
                gone.map(|(&(index, address), _)| Change::NeighbourGone(index, address)).collect()
            }
            Part::Objects => {
                let gone = self.objects.iter().filter(|(_, told)| told.epoch != epoch);
                gone.map(|(&id, _)| Change::ObjectGone(id)).collect()
            }
            Part::Rules => {
                let gone = self.rules.iter().filter(|told| told.epoch != epoch);
                gone.map(|told| Change::RuleGone(told.value.clone())).collect()
            }
            Part::Routes4 | Part::Routes6 => {
                let of_part = self.routes.iter().filter(|(key, _)| part_of(key) == part);
                of_part
                    .filter(|(_, told)| told.epoch != epoch)
                    .map(|(&key, _)| Change::RouteGone(key))
                    .collect()
            }
        };
        gone.into_iter().for_each(|change| self.put(change));
    }
}

const ALL_PARTS: [Part; 7] = [
    Part::Routes4,
    Part::Routes6,
    Part::Objects,
    Part::Rules,
    Part::Neighbours,
    Part::Addresses,
    Part::Links,
];

fn part_of(key: &RouteKey) -> Part {
    if key.prefix.addr().is_ipv6() { Part::Routes6 } else { Part::Routes4 }
}

/// A neighbour as nodes need it: how lately it was heard of is the leader's business.
fn plain(neighbour: Neighbour) -> Neighbour {
    let state = match neighbour.state {
        NeighbourState::Incomplete | NeighbourState::Failed => neighbour.state,
        _ => NeighbourState::Reachable,
    };
    Neighbour { state, ..neighbour }
}

/// The port and link address of a neighbour that packets can be sent to.
fn labelled(neighbour: Neighbour) -> Option<(u8, [u8; 6])> {
    let port = u8::try_from(neighbour.index).ok()?;
    (plain(neighbour).state == NeighbourState::Reachable).then_some((port, neighbour.mac?))
}
