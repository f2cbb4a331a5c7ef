//! The backstop of a router's filters, in Linux's packet filter (nftables).
//!
//! What the router leaves to Linux has not been judged by its access list, and Linux may forward it. So while something
//! filters, Linux forwards only those packets from our ports that carry a mark, which the router puts on what its
//! filters have permitted. All others are dropped and counted. The rules of a port are a table of their own:
//!
//! ```text
//! table inet brickway-eth1 {
//!     set own { type iface_index; elements = { 3 } }
//!     set all { type iface_index; elements = { 3, 17 } }
//!     set names { type ifname; elements = { "eth1", "vrrp.7" } }
//!     chain forward {
//!         type filter hook forward priority -10; policy accept;
//!         iif @all meta mark & 0x10000000 == 0 counter drop
//!         iifname @names meta mark & 0x10000000 == 0 counter drop
//!         iif @own fib saddr . iif oif 0 counter drop          # with a reverse-path check
//!     }
//! }
//! ```
//!
//! and each once more with `sdif`, for an interface in a VRF. The last rule judges packets of which only Linux knows whether
//! their source is believed. The sets have the port and the interfaces [above](crate::above) it, by which the same packets may
//! come in. An interface is known by its number, so another name changes nothing.
//!
//! Interfaces come and go, and a packet may be faster than the news of one. So one more table, of the router, drops what
//! carries no mark and comes in by an interface of which is not known that it is neither a port nor above one:
//!
//! ```text
//! table inet brickway.eth1 {
//!     set others { type iface_index; elements = { 1, 2, 9 } }
//!     chain forward {
//!         type filter hook forward priority -9; policy accept;
//!         iif != @others meta mark & 0x10000000 == 0 counter drop
//!     }
//! }
//! ```
//!
//! A bridge or bond that is there already is one of the others until it is known that a port has become its member
//! ([`Backstop::follow`]).
//!
//! A table belongs to the socket that made it (`flags owner`, Linux 5.12): nobody else removes it, and it goes when the
//! process ends, however that ends. With [`BackstopPort::stays`] that of a port stays (`flags owner,persist`, Linux 6.9; before
//! that without an owner). As no packet carries the mark then, nothing from the port is forwarded: not from the interfaces that
//! the process knew, under whatever name, and not from new ones of the same names. The next router has its own interfaces closed,
//! and these too until it has begun ([`Backstop::begin`]).

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use crate::above::above;
use crate::change::{InterfaceIndex, Link};
use crate::netfilter::{
    self, Draft, Hook, META_MARK, Netfilter, OWNER, REGISTER, SetOf, change_set, differs, expression,
    is_equal, is_in, is_not_in, keep_bits, load, number, removal, verdict,
};
use crate::netlink::LinkWatch;

/// A port to guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackstopPort {
    /// The name of its interface in Linux.
    pub name: String,
    /// Whether its table outlives the process.
    pub stays: bool,
}

/// Which route to the source a packet has to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceRoute {
    /// One by any interface.
    Any,
    /// One by the interface that the packet came in by.
    Back,
}

/// What the backstop of a port dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackstopDrops {
    /// The port.
    pub port: String,
    /// Why.
    pub reason: &'static str,
    /// Packets.
    pub packets: u64,
}

/// Why there is no backstop.
#[derive(Debug, thiserror::Error)]
#[error(
    "the backstop of the filters, a table of nftables: {0}; expected CAP_NET_ADMIN, no other router on these ports, and a \
     kernel with nf_tables and its `fib` expression (modprobe nft_fib_inet)"
)]
pub struct BackstopError(io::Error);

/// The tables of a router's ports.
pub struct Backstop {
    netfilter: Netfilter,
    watch: LinkWatch,
    parts: Vec<Parts>,
    /// What the sets of the tables have.
    told: Vec<Set>,
    /// Whether the sets may differ from the interfaces at the last look.
    is_behind: bool,
}

/// The elements of a set of a table.
#[derive(Clone, Debug)]
struct Set {
    table: String,
    name: &'static str,
    elements: BTreeSet<Vec<u8>>,
}

/// The interfaces that belong to a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Parts {
    port: String,
    /// The name that its interface had last.
    last: String,
    /// That of the port, while it is there.
    own: Option<InterfaceIndex>,
    /// With those above it.
    all: BTreeSet<InterfaceIndex>,
    /// The names of these, and of those that are gone.
    names: BTreeSet<String>,
    /// What a router that has ended left closed beside these, until the router of this process has begun.
    left: Left,
}

/// Interfaces that a router left closed when it ended, by number and by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Left {
    all: BTreeSet<InterfaceIndex>,
    names: BTreeSet<String>,
}

impl Left {
    /// Adds what a table has.
    fn add(&mut self, netfilter: &mut Netfilter, table: &str) -> io::Result<()> {
        let numbers = netfilter.elements(table, ALL)?;
        self.all.extend(
            numbers.iter().filter_map(|number| Some(u32::from_ne_bytes(number[..].try_into().ok()?))),
        );
        self.names.extend(netfilter.elements(table, NAMES)?.iter().map(|name| name_of(name)));
        Ok(())
    }
}

/// The name of an interface as a set has it.
fn name_of(element: &[u8]) -> String {
    let end = element.iter().position(|byte| *byte == 0).unwrap_or(element.len());
    String::from_utf8_lossy(&element[..end]).into_owned()
}

/// Names of interfaces that are gone, which are kept closed with a port.
const MOST_NAMES: usize = 1_024;

impl Parts {
    fn new(port: String) -> Self {
        let names = BTreeSet::from([port.clone()]);
        Self { last: port.clone(), port, names, ..Self::default() }
    }

    /// Finds the interface of the port: the one that it was, under whatever name. Where that is gone, it is one of its
    /// last name, or one of the port's, but not another port's. `Interface` of crate `ports` does the same.
    fn find(&mut self, links: &BTreeMap<InterfaceIndex, Link>, taken: &mut BTreeSet<InterfaceIndex>) {
        let is_free = |link: &&Link| !taken.contains(&link.index);
        let named = |name: &str| Some(links.values().filter(is_free).find(|link| link.name == name)?.index);
        self.own = self.own.or_else(|| named(&self.last)).or_else(|| named(&self.port));
        taken.extend(self.own);
        if let Some(link) = self.own.and_then(|own| links.get(&own)) {
            self.last.clone_from(&link.name);
        }
    }

    /// Takes what an earlier table has, while no interface has the port's name: the interface had another one then,
    /// and is the port's still. With `is_left` no process has that table: the interface may have been renamed since
    /// its router ended.
    fn remember(
        &mut self,
        netfilter: &mut Netfilter,
        links: &BTreeMap<InterfaceIndex, Link>,
        is_left: bool,
    ) -> io::Result<()> {
        if links.values().any(|link| link.name == self.port) {
            return Ok(());
        }
        let table = table_of(&self.port);
        let names = netfilter.elements(&table, NAMES)?;
        self.names.extend(names.iter().map(|name| name_of(name)));
        let owns = netfilter.elements(&table, OWN)?;
        let mut of_table = links.values().filter(|link| owns.contains(&link.index.to_ne_bytes().to_vec()));
        // While a router followed the interfaces, another one may have got the number.
        self.own = of_table.find(|link| is_left || self.names.contains(&link.name)).map(|link| link.index);
        Ok(())
    }

    /// Finds what is above it. `owns` are the interfaces of all ports.
    fn gather(&mut self, links: &BTreeMap<InterfaceIndex, Link>, owns: &BTreeSet<InterfaceIndex>) {
        self.all = self.own.map_or_else(BTreeSet::new, |own| above(links, own, owns));
        self.all.extend(self.own);
    }

    /// Learns the names of its interfaces. Forgets a name that one of the `others` has got.
    fn name(&mut self, links: &BTreeMap<InterfaceIndex, Link>, others: &BTreeSet<InterfaceIndex>) {
        for link in others.iter().filter_map(|other| links.get(other)) {
            self.names.remove(&link.name);
        }
        if self.names.len() > MOST_NAMES {
            self.names = BTreeSet::from([self.port.clone(), self.last.clone()]);
        }
        let here = self.all.iter().filter_map(|index| links.get(index));
        self.names.extend(here.map(|link| link.name.clone()));
    }
}

/// Brings all parts up to date. Returns the interfaces that belong to none.
fn gather(parts: &mut [Parts], links: &BTreeMap<InterfaceIndex, Link>) -> BTreeSet<InterfaceIndex> {
    parts.iter_mut().for_each(|parts| parts.own = parts.own.filter(|own| links.contains_key(own)));
    let mut owns: BTreeSet<InterfaceIndex> = parts.iter().filter_map(|parts| parts.own).collect();
    parts.iter_mut().for_each(|parts| parts.find(links, &mut owns));
    parts.iter_mut().for_each(|parts| parts.gather(links, &owns));
    let is_of_one = |index: &InterfaceIndex| parts.iter().any(|parts| parts.all.contains(index));
    let others = links.keys().copied().filter(|index| !is_of_one(index)).collect();
    parts.iter_mut().for_each(|parts| parts.name(links, &others));
    others
}

const UNMARKED: &str = "not judged by the router";
const NO_ROUTE_BACK: &str = "no route back in Linux";
/// What stands for the port where an interface is so new that nobody knows of which port it is.
const NEW_INTERFACES: &str = "new interfaces";
/// Rules of a port's table that drop for want of the mark.
const UNMARKED_RULES: usize = 4;

impl Backstop {
    /// Sets up the tables of these ports in one step, in the place of those that a router before us left. What comes in
    /// by them is forwarded with the bit `mark` in its mark, and, if that matters, with a route to its source.
    ///
    /// # Errors
    /// The kernel has no nf_tables, or we lack the right, or another router has one of the ports.
    pub fn raise(
        ports: &[BackstopPort],
        mark: u32,
        source: Option<SourceRoute>,
    ) -> Result<Self, BackstopError> {
        Self::set_up(ports, mark, source).map_err(BackstopError)
    }

    fn set_up(ports: &[BackstopPort], mark: u32, source: Option<SourceRoute>) -> io::Result<Self> {
        let mut netfilter = Netfilter::open()?;
        // Before the interfaces are read, so that none is missed.
        let watch = LinkWatch::open()?;
        let known = netfilter.tables()?;
        let mut parts: Vec<Parts> = ports.iter().map(|port| Parts::new(port.name.clone())).collect();
        for part in &mut parts {
            if let Some((_, flags)) = known.iter().find(|(name, _)| *name == table_of(&part.port)) {
                part.remember(&mut netfilter, watch.links(), flags & OWNER == 0)?;
            }
        }
        let names = ports.iter().map(|port| port.name.as_str());
        let earlier = earlier_tables(&mut netfilter, &known, watch.links(), names);
        let is_left =
            |table: &&String| known.iter().any(|(name, flags)| name == *table && flags & OWNER == 0);
        for table in earlier.iter().filter(is_left) {
            let place = parts.iter().position(|part| table_of(&part.port) == *table).unwrap_or(0);
            parts[place].left.add(&mut netfilter, table)?;
        }
        let others = gather(&mut parts, watch.links());
        let told = sets(&parts, &others);
        let mut result = Ok(());
        for persist in [OWNER | PERSIST, 0] {
            let mut messages: Vec<Draft> = earlier.iter().flat_map(|table| removal(table, &known)).collect();
            for port in ports {
                let flags = if port.stays { persist } else { OWNER };
                messages.extend(table(&table_of(&port.name), flags, mark, source));
            }
            if let Some(first) = ports.first() {
                messages.extend(table_of_others(&table_of_others_beside(&first.name), mark));
            }
            for set in &told {
                messages.extend(set.change(&set.elements, true));
            }
            result = netfilter.change(messages);
            // Older kernels do not know that flag.
            let is_unknown = result.as_ref().err().and_then(io::Error::raw_os_error) == Some(EOPNOTSUPP);
            if !is_unknown {
                break;
            }
        }
        result?;
        Ok(Self { netfilter, watch, parts, told, is_behind: false })
    }

    /// Follows the interfaces: to be called often. Until then, what comes in by a new one is not forwarded.
    ///
    /// # Errors
    /// The kernel does not say which there are, or does not change the tables. The next call tries again.
    pub fn follow(&mut self) -> io::Result<()> {
        self.is_behind |= self.watch.look()?;
        if !self.is_behind {
            return Ok(());
        }
        let gone = self.watch.take_gone();
        self.parts.iter_mut().for_each(|part| part.own = part.own.filter(|own| !gone.contains(own)));
        let others = gather(&mut self.parts, self.watch.links());
        let wanted = sets(&self.parts, &others);
        let mut messages = Vec::new();
        for (told, wanted) in self.told.iter().zip(&wanted) {
            messages.extend(wanted.change(&(&told.elements - &wanted.elements), false));
            messages.extend(wanted.change(&(&wanted.elements - &told.elements), true));
        }
        self.netfilter.change(messages)?;
        (self.told, self.is_behind) = (wanted, false);
        Ok(())
    }

    /// The router has begun: of what another one left closed, only its own interfaces are closed from now on. Returns the names of
    /// the interfaces that open. A start that fails opens nothing.
    ///
    /// # Errors
    /// As [`Backstop::follow`] has them.
    pub fn begin(&mut self) -> io::Result<Vec<String>> {
        let left: Vec<Left> = self.parts.iter_mut().map(|part| std::mem::take(&mut part.left)).collect();
        let was_closed = |link: &&Link| {
            left.iter().any(|left| left.all.contains(&link.index) || left.names.contains(&link.name))
        };
        let is_ours = |link: &&Link| self.parts.iter().any(|part| part.all.contains(&link.index));
        let links = self.watch.links().values();
        let opens =
            links.filter(was_closed).filter(|link| !is_ours(link)).map(|link| link.name.clone()).collect();
        self.is_behind |= left.iter().any(|left| *left != Left::default());
        self.follow()?;
        Ok(opens)
    }

    /// Whether Linux has told something of an interface since this was asked last.
    pub fn take_notified(&mut self) -> bool {
        self.watch.take_notified()
    }

    /// What was dropped so far.
    ///
    /// # Errors
    /// The tables cannot be read.
    pub fn drops(&mut self) -> io::Result<Vec<BackstopDrops>> {
        let mut drops = Vec::new();
        let Some(first) = self.parts.first() else { return Ok(drops) };
        let of_new = self.netfilter.counts(&table_of_others_beside(&first.port))?.into_iter().sum();
        for Parts { port, .. } in &self.parts {
            let (mut unmarked, mut no_route) = (0, 0);
            for (number, packets) in self.netfilter.counts(&table_of(port))?.into_iter().enumerate() {
                *if number < UNMARKED_RULES { &mut unmarked } else { &mut no_route } += packets;
            }
            for (reason, packets) in [(UNMARKED, unmarked), (NO_ROUTE_BACK, no_route)] {
                drops.push(BackstopDrops { port: port.clone(), reason, packets });
            }
        }
        drops.push(BackstopDrops { port: NEW_INTERFACES.to_owned(), reason: UNMARKED, packets: of_new });
        Ok(drops)
    }
}

impl std::fmt::Debug for Backstop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backstop").field("parts", &self.parts).finish_non_exhaustive()
    }
}

/// The ports that have a table, of this process, another one, or one that has ended.
///
/// # Errors
/// The kernel does not say: it has no nf_tables, or we lack the right.
pub fn guarded_ports() -> io::Result<Vec<String>> {
    let tables = Netfilter::open()?.tables()?;
    Ok(tables.into_iter().filter_map(|(name, _)| name.strip_prefix(PREFIX).map(str::to_owned)).collect())
}

/// Removes the tables of these ports that no process has, where there are some, also where the port had another name. Returns for
/// which ports they were.
///
/// # Errors
/// A process has one of them.
pub fn remove(ports: &[String]) -> io::Result<Vec<String>> {
    let mut netfilter = Netfilter::open()?;
    let known = netfilter.tables()?;
    let watch = LinkWatch::open()?;
    let tables = earlier_tables(&mut netfilter, &known, watch.links(), ports.iter().map(String::as_str));
    netfilter.change(tables.iter().flat_map(|table| removal(table, &known)).collect())?;
    Ok(tables.iter().filter_map(|table| table.strip_prefix(PREFIX).map(str::to_owned)).collect())
}

/// Lists the tables of ports: by the names of these, and by the numbers that their interfaces have.
fn earlier_tables<'a>(
    netfilter: &mut Netfilter,
    known: &[(String, u32)],
    links: &BTreeMap<InterfaceIndex, Link>,
    ports: impl Iterator<Item = &'a str> + Clone,
) -> Vec<String> {
    let named: BTreeSet<String> = ports.clone().map(table_of).collect();
    let is_of_one = |link: &&Link| ports.clone().any(|port| port == link.name);
    let owns: Vec<Vec<u8>> =
        links.values().filter(is_of_one).map(|link| link.index.to_ne_bytes().to_vec()).collect();
    let mut tables = Vec::new();
    for (table, _) in known.iter().filter(|(table, _)| table.starts_with(PREFIX)) {
        // Somebody else's of such a name has no such set.
        let of_table = netfilter.elements(table, OWN).unwrap_or_default();
        if named.contains(table) || of_table.iter().any(|own| owns.contains(own)) {
            tables.push(table.clone());
        }
    }
    tables
}

/// What the names of the tables begin with; the port follows.
pub const PREFIX: &str = "brickway-";

fn table_of(port: &str) -> String {
    format!("{PREFIX}{port}")
}

/// The table of a router with this port, for what is new. It begins as no port's table does.
fn table_of_others_beside(port: &str) -> String {
    format!("{PREFIX_OF_OTHERS}{port}")
}

/// What the names of the routers' tables begin with.
pub const PREFIX_OF_OTHERS: &str = "brickway.";

/// The sets of a port's table, and of the router's.
const OWN: &str = "own";
const ALL: &str = "all";
const NAMES: &str = "names";
const OTHERS: &str = "others";

/// The table outlives its owner.
const PERSIST: u32 = 4;
/// Before the filters of others, which then count only what passes.
const PRIORITY: i32 = -10;
/// What a port's table drops is counted there alone.
const PRIORITY_OF_OTHERS: i32 = PRIORITY + 1;
const META_INPUT: u32 = 4;
const META_INPUT_NAME: u32 = 6;
/// The interface below a VRF's.
const META_BELOW_VRF: u32 = 33;
const META_BELOW_VRF_NAME: u32 = 34;
const INTERFACE_NAME_BYTES: usize = 16;
const EOPNOTSUPP: i32 = 95;
const CHAIN: &str = "forward";

impl Set {
    /// Makes the messages that add elements or take them away.
    fn change(&self, elements: &BTreeSet<Vec<u8>>, adds: bool) -> Vec<Draft> {
        let elements: Vec<Vec<u8>> = elements.iter().cloned().collect();
        change_set(&self.table, self.name, &elements, adds)
    }
}

/// Returns what all sets should have, always in the same order.
fn sets(parts: &[Parts], others: &BTreeSet<InterfaceIndex>) -> Vec<Set> {
    let numbers = |table: &str, name, indexes: &mut dyn Iterator<Item = InterfaceIndex>| Set {
        table: table.to_owned(),
        name,
        elements: indexes.map(|index| index.to_ne_bytes().to_vec()).collect(),
    };
    let mut sets = Vec::new();
    for part in parts {
        let table = table_of(&part.port);
        sets.push(numbers(&table, OWN, &mut part.own.into_iter()));
        sets.push(numbers(&table, ALL, &mut part.all.union(&part.left.all).copied()));
        let names = part.names.union(&part.left.names).map(|name| {
            let mut bytes = name.clone().into_bytes();
            bytes.resize(INTERFACE_NAME_BYTES, 0);
            bytes
        });
        sets.push(Set { table, name: NAMES, elements: names.collect() });
    }
    if let Some(first) = parts.first() {
        let table = table_of_others_beside(&first.port);
        sets.push(numbers(&table, OTHERS, &mut others.iter().copied()));
    }
    sets
}

/// Loads the interface of the route to the source, which with `by_input` has to be that of the packet; 0: there is none.
fn load_source_route(by_input: bool) -> Vec<u8> {
    const TO_SOURCE: u32 = 1;
    const BY_INPUT: u32 = 8;
    const INTERFACE: u32 = 1;
    let flags = if by_input { TO_SOURCE | BY_INPUT } else { TO_SOURCE };
    expression("fib", &[number(1, REGISTER), number(2, INTERFACE), number(3, flags)])
}

/// Makes the messages that make the table of a port, with empty sets.
fn table(table: &str, flags: u32, mark: u32, source: Option<SourceRoute>) -> Vec<Draft> {
    let mut drafts = vec![
        netfilter::table(table, flags),
        netfilter::set(table, OWN, SetOf::Indexes, 1),
        netfilter::set(table, ALL, SetOf::Indexes, 2),
        netfilter::set(table, NAMES, SetOf::Names, 3),
        netfilter::chain(table, CHAIN, Hook::Forward, PRIORITY),
    ];
    let mut drop_where = |conditions: &[Vec<u8>]| drafts.push(drop_rule(table, conditions));
    for (key, set) in
        [(META_INPUT, ALL), (META_BELOW_VRF, ALL), (META_INPUT_NAME, NAMES), (META_BELOW_VRF_NAME, NAMES)]
    {
        drop_where(&[&[load(key), is_in(set)][..], &unmarked(mark)].concat());
    }
    let has_none = || is_equal(&0_u32.to_ne_bytes());
    match source {
        None => {}
        Some(SourceRoute::Any) => {
            for key in [META_INPUT, META_BELOW_VRF] {
                drop_where(&[load(key), is_in(ALL), load_source_route(false), has_none()]);
            }
        }
        Some(SourceRoute::Back) => {
            for key in [META_INPUT, META_BELOW_VRF] {
                drop_where(&[load(key), is_in(OWN), load_source_route(true), has_none()]);
            }
            // Above the port the way back is by the port, or by what is above it.
            let is_above = [load(META_INPUT), is_in(ALL), load(META_INPUT), is_not_in(OWN)];
            drop_where(&[&is_above[..], &[load_source_route(false), is_not_in(ALL)]].concat());
        }
    }
    drafts
}

/// Makes the messages that make the table of what is new, with an empty set.
fn table_of_others(table: &str, mark: u32) -> Vec<Draft> {
    let is_in_vrf = [load(META_BELOW_VRF), differs(&0_u32.to_ne_bytes()), is_not_in(OTHERS)];
    vec![
        netfilter::table(table, OWNER),
        netfilter::set(table, OTHERS, SetOf::Indexes, 4),
        netfilter::chain(table, CHAIN, Hook::Forward, PRIORITY_OF_OTHERS),
        drop_rule(table, &[&[load(META_INPUT), is_not_in(OTHERS)][..], &unmarked(mark)].concat()),
        drop_rule(table, &[&is_in_vrf[..], &unmarked(mark)].concat()),
    ]
}

/// Goes on where the router has not permitted the packet.
fn unmarked(mark: u32) -> [Vec<u8>; 3] {
    [load(META_MARK), keep_bits(mark), is_equal(&0_u32.to_ne_bytes())]
}

fn drop_rule(table: &str, conditions: &[Vec<u8>]) -> Draft {
    let count_and_drop = [expression("counter", &[]), verdict(netfilter::DROP)];
    netfilter::rule(table, CHAIN, &[conditions, &count_and_drop].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::above::tests::link;
    use testbed::{eventually, in_namespace, ip};

    const MARK: u32 = 0x1000_0000;

    fn port(name: &str, stays: bool) -> BackstopPort {
        BackstopPort { name: name.into(), stays }
    }

    /// A socket that was closed is still there while a program that another test starts has it, so a table goes a little later.
    fn are_guarded(expected: &[&str]) -> bool {
        eventually(|| {
            let mut ports = guarded_ports().unwrap();
            ports.sort();
            ports == expected
        })
    }

    /// Raises one, as soon as the ones before are gone.
    fn raised(ports: &[BackstopPort], source: Option<SourceRoute>) -> Backstop {
        let mut backstop = None;
        assert!(eventually(|| {
            backstop = Backstop::raise(ports, MARK, source).ok();
            backstop.is_some()
        }));
        backstop.unwrap()
    }

    #[test]
    fn tables_go_with_their_process_unless_they_are_to_stay() {
        in_namespace(|| {
            let ports = [port("eth1", false), port("eth2", true)];
            let mut backstop = raised(&ports, Some(SourceRoute::Back));
            assert!(are_guarded(&["eth1", "eth2"]));
            let drops = backstop.drops().unwrap();
            assert_eq!(drops.last().unwrap().port, NEW_INTERFACES);
            let told: Vec<_> =
                drops[..4].iter().map(|row| (row.port.as_str(), row.reason, row.packets)).collect();
            let expected = ["eth1", "eth2"].map(|port| [(port, UNMARKED, 0), (port, NO_ROUTE_BACK, 0)]);
            assert_eq!(told, expected.concat());
            // While the router is there nobody else has a say.
            assert!(remove(&["eth1".into()]).is_err());
            assert!(Backstop::raise(&ports[..1], MARK, None).is_err());
            drop(backstop);
            assert!(are_guarded(&["eth2"]));
            // The next router takes the place of the one before, without a moment in between.
            let backstop = raised(&ports, Some(SourceRoute::Any));
            assert!(are_guarded(&["eth1", "eth2"]));
            drop(backstop);
            drop(raised(&[port("eth2", false)], None));
            assert!(are_guarded(&[]));
            drop(raised(&ports, None));
            assert!(eventually(|| remove(&["eth1".into(), "eth2".into()]).is_ok()));
            assert!(are_guarded(&[]));
            assert!(Backstop::raise(&[], MARK, None).unwrap().drops().unwrap().is_empty());
        });
    }
    fn links(all: &[Link]) -> BTreeMap<InterfaceIndex, Link> {
        all.iter().map(|link| (link.index, link.clone())).collect()
    }

    #[test]
    fn a_port_is_its_interface_under_whatever_name_and_a_new_one_of_its_name() {
        let mut parts = ["eth1", "eth1.5"].map(|name| Parts::new(name.into()));
        let mut seen = |all: &[Link]| {
            let others = gather(&mut parts, &links(all));
            let of = |parts: &Parts| {
                let names: Vec<&str> = parts.names.iter().map(String::as_str).collect();
                (parts.own, Vec::from_iter(parts.all.iter().copied()), names.join(" "))
            };
            (of(&parts[0]), of(&parts[1]), Vec::from_iter(others))
        };
        // What is above a port that is a VLAN is not the other one's.
        let lo = link(1, "lo", "", 0, 0);
        let [vlan, vrrp] = [link(6, "eth1.5", "vlan", 5, 0), link(7, "vrrp", "macvlan", 6, 0)];
        let all = [lo.clone(), link(5, "eth1", "", 0, 9), vlan, vrrp, link(9, "br0", "bridge", 0, 0)];
        let of_vlan = (Some(6), vec![6, 7], "eth1.5 vrrp".to_owned());
        assert_eq!(seen(&all), ((Some(5), vec![5, 9], "br0 eth1".into()), of_vlan, vec![1]));
        // Renamed, out of its bridge, and another one has its name; the VLAN is gone with what was above it.
        let all = [lo.clone(), link(5, "lan0", "", 0, 0), link(8, "eth1", "dummy", 0, 0)];
        let of_vlan = (None, vec![], "eth1.5 vrrp".to_owned());
        let of_port = (Some(5), vec![5], "br0 lan0".to_owned());
        assert_eq!(seen(&all), (of_port, of_vlan.clone(), vec![1, 8]));
        // Gone: the one of its name is the port.
        let of_port = (Some(8), vec![8], "br0 eth1 lan0".to_owned());
        assert_eq!(seen(&[lo.clone(), all[2].clone()]), (of_port, of_vlan.clone(), vec![1]));
        // Renamed and gone: so is the one of its last name, before one of its first.
        let renamed = link(8, "lan1", "dummy", 0, 0);
        seen(&[lo.clone(), renamed]);
        assert_eq!(seen(std::slice::from_ref(&lo)).0.0, None);
        let of_port = (Some(10), vec![10], "br0 lan0 lan1".to_owned());
        let all = [lo, link(10, "lan1", "veth", 0, 0), link(11, "eth1", "dummy", 0, 0)];
        assert_eq!(seen(&all), (of_port, of_vlan, vec![1, 11]));
    }

    #[test]
    fn tables_follow_what_comes_and_goes() {
        in_namespace(|| {
            ip("link add eth1 type veth peer name far");
            let mut backstop = raised(&[port("eth1", true)], Some(SourceRoute::Back));
            let mut is_told = |indexes: usize, names: &[&str], others: usize| {
                backstop.follow().unwrap();
                let [_, all, told_names, of_others] = &backstop.told[..] else { panic!() };
                let told: Vec<String> = (told_names.elements.iter())
                    .map(|name| String::from_utf8(name.clone()).unwrap().trim_end_matches('\0').to_owned())
                    .collect();
                (all.elements.len(), of_others.elements.len()) == (indexes, others) && told == names
            };
            // Others that are there in a new namespace: `lo` and what modules bring along.
            let others = ip("-o link").lines().count() - 1;
            assert!(is_told(1, &["eth1"], others));
            ip("link add vrrp link eth1 type macvlan mode private");
            assert!(eventually(|| is_told(2, &["eth1", "vrrp"], others)));
            ip("link set eth1 name lan0");
            ip("link add upper link lan0 type macvlan mode bridge");
            ip("link add apart type veth peer name beside");
            assert!(eventually(|| is_told(3, &["eth1", "lan0", "upper", "vrrp"], others + 2)));
            ip("link del vrrp");
            ip("link set apart name eth1");
            assert!(eventually(|| is_told(2, &["lan0", "upper", "vrrp"], others + 2)));
            // What outlives the router is known by its interface.
            drop(backstop);
            ip("link set lan0 name wan0");
            assert!(eventually(|| remove(&["wan0".into()]).is_ok_and(|ports| ports == ["eth1"])));
            assert!(are_guarded(&[]));
        });
    }

    #[test]
    fn what_outlives_a_router_stays_closed_where_the_next_one_finds_no_interface() {
        in_namespace(|| {
            let own = |backstop: &Backstop| {
                backstop.told.iter().find(|set| set.name == OWN).unwrap().elements.len()
            };
            ip("link add eth1 type veth peer name far");
            let mut backstop = raised(&[port("eth1", true)], None);
            ip("link set eth1 name lan0");
            assert!(eventually(|| {
                backstop.follow().unwrap();
                backstop.parts[0].last == "lan0"
            }));
            for _ in 0..2 {
                drop(backstop);
                backstop = raised(&[port("eth1", true)], None);
                assert_eq!((own(&backstop), backstop.parts[0].last.as_str()), (1, "lan0"));
            }
            drop(backstop);
            // Renamed since.
            ip("link set lan0 name lan1");
            let backstop = raised(&[port("eth1", true)], None);
            assert_eq!((own(&backstop), backstop.parts[0].last.as_str()), (1, "lan1"));
            drop(backstop);
            // Another one has the name of the port.
            ip("link add eth1 type veth peer name beside");
            let backstop = raised(&[port("eth1", true)], None);
            assert_eq!((own(&backstop), backstop.parts[0].last.as_str()), (1, "eth1"));
        });
    }

    #[test]
    fn one_that_was_away_is_the_port_by_its_name_alone() {
        in_namespace(|| {
            ip("link add eth1 type veth peer name far");
            let mut backstop = raised(&[port("eth1", true)], None);
            let index = backstop.parts[0].own.unwrap();
            // Both before the next look.
            ip("link del eth1");
            ip(&format!("link add cont0 index {index} type veth peer name beside"));
            assert!(eventually(|| {
                backstop.follow().unwrap();
                backstop.parts[0].own.is_none()
            }));
        });
    }

    #[test]
    fn an_interface_is_of_one_port() {
        let all = |names: &[(u32, &str)]| {
            names
                .iter()
                .map(|&(index, name)| (index, link(index, name, "", 0, 0)))
                .collect::<BTreeMap<_, _>>()
        };
        let mut parts = ["eth1", "eth2"].map(|name| Parts::new(name.to_owned()));
        let mut owns = |names: &[(u32, &str)]| {
            gather(&mut parts, &all(names));
            [parts[0].own, parts[1].own]
        };
        assert_eq!(owns(&[(2, "eth1"), (3, "eth2")]), [Some(2), Some(3)]);
        // The first is gone, and the second one has its name for a while.
        assert_eq!(owns(&[(3, "eth1")]), [None, Some(3)]);
        assert_eq!(owns(&[(3, "eth2")]), [None, Some(3)]);
        assert_eq!(owns(&[(2, "eth1"), (3, "eth2")]), [Some(2), Some(3)]);
    }
}
