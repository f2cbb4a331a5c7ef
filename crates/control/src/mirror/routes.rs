//! All routes that the sources told us of, and which of them is in force.
//!
//! A [`Table`] is a routing table of Linux. It keeps the routes of all sources in one ordered map a family, with keys
//! so ordered that the routes of a prefix stand together and the best of them first:
//!
//! ```text
//!  network  length | rank    metric  source   condition  ->  target  protocol  epoch
//!  10.0.0.0      8 | plain       20  netlink          0  ->       7        11      3     <- in force
//!  10.0.0.0      8 | plain       20  fpm              0  ->       9        11      1
//!  10.0.0.0      8 | plain      100  netlink          0  ->       7         4      3
//! ```
//!
//! So the FIB gets the best route of each prefix and no other, and what waits behind it costs no more than its place here: 20 bytes for IPv4, 56
//! for IPv6, plus what B-tree nodes leave free. Everything else that routes have is in their [targets](super::targets), which many
//! share.
//!
//! Table 255 (local) has no map of its own. Its routes stand in that of the main table with a better rank, as in the
//! kernel itself, which keeps both in one trie while it has no other rules than its own.

use super::targets::TargetId;
use crate::change::{RouteKey, Source};
use fib::{FibFamily, MAIN};
use ipnet::{IpNet, Ipv6Net};
use std::collections::BTreeMap;
use std::ops::Bound;

/// The number of the table that says which addresses are the host's own (`RT_TABLE_LOCAL`).
pub(super) const LOCAL: u32 = 255;
/// The number of the table that is asked last (`RT_TABLE_DEFAULT`).
pub(super) const DEFAULT: u32 = 253;

/// What comes before metrics where routes to a prefix are compared; the first is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Rank {
    /// With a [condition](MirrorFamily::Condition), in table local.
    LocalConditional,
    /// With a condition. While there is one, packets to the prefix are the kernel's to route.
    Conditional,
    /// Of table local.
    Local,
    /// All others.
    Plain,
}

impl Rank {
    pub(super) fn is_local(self) -> bool {
        matches!(self, Rank::LocalConditional | Rank::Local)
    }
}

/// What tells the routes of a family and table apart, in the order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key<A: MirrorFamily> {
    pub(super) network: A,
    pub(super) length: u8,
    pub(super) rank: Rank,
    pub(super) metric: u32,
    pub(super) source: Source,
    pub(super) condition: A::Condition,
}

/// What is known of a route beside its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) target: TargetId,
    pub(super) protocol: u8,
    /// The dump in which it was last seen.
    pub(super) epoch: u8,
}

impl<A: MirrorFamily> Key<A> {
    /// The key of a route, and the table in which it stands here. `None` if the prefix is of the other family.
    pub(super) fn of(source: Source, key: &RouteKey) -> Option<(u32, Key<A>)> {
        let (network, length) = A::parts(A::from_net(key.prefix)?);
        let condition = A::condition(key);
        let (table, rank) = match (key.table, condition == A::Condition::default()) {
            (LOCAL, true) => (MAIN, Rank::Local),
            (LOCAL, false) => (MAIN, Rank::LocalConditional),
            (table, true) => (table, Rank::Plain),
            (table, false) => (table, Rank::Conditional),
        };
        let (network, metric) = (network & A::mask(length), key.metric);
        Some((table, Key { network, length, rank, metric, source, condition }))
    }

    /// The first that a route to this prefix can have.
    fn first_of(network: A, length: u8) -> Key<A> {
        let (rank, condition) = (Rank::LocalConditional, A::Condition::default());
        Key { network, length, rank, metric: 0, source: Source::Netlink, condition }
    }

    /// The opposite of [`Key::of`].
    pub(super) fn route_key(&self, table: u32) -> RouteKey {
        let table = if self.rank.is_local() { LOCAL } else { table };
        let (tos, from) = A::tos_and_sources(self.condition);
        RouteKey { table, prefix: self.prefix(), metric: self.metric, tos, from }
    }

    /// Whether the route is for some packets to its prefix only.
    pub(super) fn is_conditional(&self) -> bool {
        matches!(self.rank, Rank::Conditional | Rank::LocalConditional)
    }

    pub(super) fn prefix(&self) -> IpNet {
        A::net(self.network, self.length).into()
    }
}

/// The routes of one family in one table.
#[derive(Debug)]
pub(super) struct Routes<A: MirrorFamily>(BTreeMap<Key<A>, Stored>);

impl<A: MirrorFamily> Default for Routes<A> {
    fn default() -> Self {
        Routes(BTreeMap::new())
    }
}

impl<A: MirrorFamily> Routes<A> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn insert(&mut self, key: Key<A>, stored: Stored) -> Option<Stored> {
        self.0.insert(key, stored)
    }

    pub(super) fn remove(&mut self, key: &Key<A>) -> Option<Stored> {
        self.0.remove(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key<A>, &Stored)> {
        self.0.iter()
    }

    /// Those that come after `key`; all without one.
    pub(super) fn after(&self, key: Option<Key<A>>) -> impl Iterator<Item = (&Key<A>, &Stored)> {
        self.0.range((key.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded))
    }

    /// All routes to a prefix, the best first.
    pub(super) fn at(&self, network: A, length: u8) -> impl Iterator<Item = (&Key<A>, &Stored)> {
        let after = self.0.range(Key::first_of(network, length)..);
        after.take_while(move |(key, _)| (key.network, key.length) == (network, length))
    }
}

/// A routing table of Linux.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) ipv4: Routes<u32>,
    pub(super) ipv6: Routes<u128>,
    /// The tables of the FIB that are made from it. None if there was no room for one.
    pub(super) views: Vec<View>,
}

impl Table {
    pub(super) fn is_empty(&self) -> bool {
        self.ipv4.len() == 0 && self.ipv6.len() == 0
    }
}

/// A table of the FIB that is made from a table of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    /// Its number in the FIB.
    pub(super) fib_table: u32,
    /// Which routes it has.
    pub(super) filter: Filter,
}

/// Which routes of a table count. Everything but the default serves a policy rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Filter {
    /// Those of table local only.
    pub(super) only_local: bool,
    /// Those with prefixes longer than this, and those of any length that end the search.
    pub(super) longer_than: Option<u32>,
}

/// Which routes of a [`Table`] are a family's.
pub(super) trait MirrorFamily: FibFamily {
    /// What packets must have beside a destination in the prefix, which workers do not look at: a type of service,
    /// a source. The default is nothing, and the smallest.
    type Condition: Copy + std::fmt::Debug + Default + Ord;

    /// That of a route.
    fn condition(key: &RouteKey) -> Self::Condition;
    /// The type of service and the sources of a condition.
    fn tos_and_sources(condition: Self::Condition) -> (u8, Option<Ipv6Net>);
    /// The routes of a table.
    fn routes(table: &Table) -> &Routes<Self>;
    /// The routes of a table, to be changed.
    fn routes_mut(table: &mut Table) -> &mut Routes<Self>;
}

impl MirrorFamily for u32 {
    type Condition = u8;

    fn condition(key: &RouteKey) -> u8 {
        key.tos
    }

    fn tos_and_sources(tos: u8) -> (u8, Option<Ipv6Net>) {
        (tos, None)
    }

    fn routes(table: &Table) -> &Routes<u32> {
        &table.ipv4
    }

    fn routes_mut(table: &mut Table) -> &mut Routes<u32> {
        &mut table.ipv4
    }
}

impl MirrorFamily for u128 {
    type Condition = (u8, Option<Ipv6Net>);

    fn condition(key: &RouteKey) -> (u8, Option<Ipv6Net>) {
        (key.tos, key.from)
    }

    fn tos_and_sources(condition: (u8, Option<Ipv6Net>)) -> (u8, Option<Ipv6Net>) {
        condition
    }

    fn routes(table: &Table) -> &Routes<u128> {
        &table.ipv6
    }

    fn routes_mut(table: &mut Table) -> &mut Routes<u128> {
        &mut table.ipv6
    }
}
