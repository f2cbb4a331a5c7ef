//! All routes that the sources told us of, and which of them is in force.
//!
//! A [`Table`] is a routing table of Linux. It keeps the routes of all sources in one ordered map a family, with keys
//! so ordered that the routes of a prefix stand together and the best of them first:
//!
//! ```text
//!  network  length | rank    metric  source   tos  ->  target  protocol  epoch
//!  10.0.0.0      8 | plain       20  netlink    0  ->       7        11      3     <- in force
//!  10.0.0.0      8 | plain       20  fpm        0  ->       9        11      1
//!  10.0.0.0      8 | plain      100  netlink    0  ->       7         4      3
//! ```
//!
//! So the FIB gets the best route of each prefix and no other, and what waits behind it costs no more than its place here: 20 bytes for IPv4, 40
//! for IPv6, plus what B-tree nodes leave free. Everything else that routes have is in their [targets](super::targets), which many
//! share.
//!
//! Table 255 (local) has no map of its own. Its routes stand in that of the main table with a better rank, as in the
//! kernel itself, which keeps both in one trie while it has no other rules than its own.

use super::targets::TargetId;
use crate::change::{RouteKey, Source};
use fib::{FibFamily, MAIN};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The number of the table that says which addresses are the host's own (`RT_TABLE_LOCAL`).
pub(super) const LOCAL: u32 = 255;

/// What comes before metrics where routes to a prefix are compared; the first is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Rank {
    /// For some types of service only, in table local.
    LocalTos,
    /// For some types of service only. While there is one, packets to the prefix are the kernel's to route.
    Tos,
    /// Of table local.
    Local,
    /// All others.
    Plain,
}

impl Rank {
    pub(super) fn is_local(self) -> bool {
        matches!(self, Rank::LocalTos | Rank::Local)
    }
}

/// What tells the routes of a family and table apart, in the order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key<A> {
    pub(super) network: A,
    pub(super) length: u8,
    pub(super) rank: Rank,
    pub(super) metric: u32,
    pub(super) source: Source,
    pub(super) tos: u8,
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
        let (table, rank) = match (key.table, key.tos) {
            (LOCAL, 0) => (MAIN, Rank::Local),
            (LOCAL, _) => (MAIN, Rank::LocalTos),
            (table, 0) => (table, Rank::Plain),
            (table, _) => (table, Rank::Tos),
        };
        let (metric, tos) = (key.metric, key.tos);
        Some((table, Key { network: network & A::mask(length), length, rank, metric, source, tos }))
    }

    /// The first that a route to this prefix can have.
    fn first_of(network: A, length: u8) -> Key<A> {
        Key { network, length, rank: Rank::LocalTos, metric: 0, source: Source::Netlink, tos: 0 }
    }

    /// The opposite of [`Key::of`].
    pub(super) fn route_key(&self, table: u32) -> RouteKey {
        let table = if self.rank.is_local() { LOCAL } else { table };
        RouteKey { table, prefix: self.prefix(), metric: self.metric, tos: self.tos }
    }

    pub(super) fn prefix(&self) -> IpNet {
        A::net(self.network, self.length).into()
    }
}

/// The routes of one family in one table.
#[derive(Debug)]
pub(super) struct Routes<A>(BTreeMap<Key<A>, Stored>);

impl<A> Default for Routes<A> {
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
    /// The routes of a table.
    fn routes(table: &Table) -> &Routes<Self>;
    /// The routes of a table, to be changed.
    fn routes_mut(table: &mut Table) -> &mut Routes<Self>;
}

impl MirrorFamily for u32 {
    fn routes(table: &Table) -> &Routes<u32> {
        &table.ipv4
    }

    fn routes_mut(table: &mut Table) -> &mut Routes<u32> {
        &mut table.ipv4
    }
}

impl MirrorFamily for u128 {
    fn routes(table: &Table) -> &Routes<u128> {
        &table.ipv6
    }

    fn routes_mut(table: &mut Table) -> &mut Routes<u128> {
        &mut table.ipv6
    }
}
