//! The RIB: every route of one family that anybody told us of, and which of them are in force.
//!
//! # The store
//!
//! One B-tree holds the best route of every prefix. Its keys are ordered by network address, then by length, and in
//! that order a prefix comes right before everything inside it:
//!
//! ```text
//! 10.0.0.0/8  <  10.0.0.0/16  <  10.0.5.0/24  <  10.1.0.0/16  <  11.0.0.0/8
//! ```
//!
//! So "the routes inside a prefix" is one interval of the tree, "paint in order" paints a covering route before the
//! routes that it covers, and whatever covers an address stands before it. All queries rest on that order; those that
//! only compiled tables ask are in `cover.rs`.
//!
//! Most prefixes have one route. The others' rivals wait in a second tree, and one bit in the first says that there
//! are any, so that the usual change does not look there.
//!
//! # Memory
//!
//! | what | IPv4 | IPv6 |
//! | --- | --- | --- |
//! | a prefix with one route, in full B-tree nodes | 17 bytes | 41 bytes |
//! | nodes are half to quite full; a million prefixes | 17 to 34 MB | 41 to 80 MB |
//! | a prefix with rivals, besides | about 64 bytes | about 80 bytes |

mod cover;

pub(crate) use cover::Range;

use crate::{NextHopIndex, PrefixRoute, Route, Source};
use ipnet::IpNet;
use packet::Family;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Why a change to the routes was refused. The routes are then as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RibError {
    /// Bits are set behind the prefix length.
    #[error("{prefix} has host bits set; the network is {}", prefix.trunc())]
    HostBits {
        /// The prefix as given.
        prefix: IpNet,
    },
    /// The source has a route of that metric to the prefix already.
    #[error("{prefix} exists already, with next hop {}; replace it to change it", next_hop.get())]
    Exists {
        /// The prefix that was to be inserted.
        prefix: IpNet,
        /// The next hop it has.
        next_hop: NextHopIndex,
    },
    /// There is no such route.
    #[error("{prefix} is not in the table; only this exact prefix can be removed")]
    NotFound {
        /// The prefix that was to be removed.
        prefix: IpNet,
    },
    /// The prefix has routes, but not the one that was meant.
    #[error("{prefix} has no {source_name} route of metric {metric}; its best is {}", show(best))]
    NotOfSource {
        /// The prefix of the route that was to be removed.
        prefix: IpNet,
        /// The source that has none.
        source_name: Source,
        /// The metric asked for.
        metric: u32,
        /// What is in force.
        best: Route,
    },
}

fn show(route: &Route) -> String {
    format!("{} with metric {}, next hop {}", route.source, route.metric, route.next_hop.get())
}

/// What a change did to the way that packets take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The next hop of the prefix before, if it had a route.
    pub before: Option<NextHopIndex>,
    /// The next hop now, if it has one.
    pub after: Option<NextHopIndex>,
    /// The route that is gone: removed, or replaced by another of its source and metric.
    pub gone: Option<Route>,
}

impl Change {
    /// Whether packets go another way now, so that compiled tables must be told.
    pub fn is_visible(&self) -> bool {
        self.before != self.after
    }
}

/// The best route of a prefix, packed to eight bytes.
#[derive(Clone, Copy, Debug)]
struct Best {
    next_hop: NextHopIndex,
    /// The source; the highest bit says that there are rivals.
    source: u8,
    distance: u8,
    metric: u32,
}

const RIVALS: u8 = 0x80;

impl Best {
    fn new(route: Route, rivals: bool) -> Best {
        let source = route.source as u8 | if rivals { RIVALS } else { 0 };
        Best { next_hop: route.next_hop, source, distance: route.distance, metric: route.metric }
    }

    fn route(self) -> Route {
        Route {
            next_hop: self.next_hop,
            source: Source::from_number(self.source & !RIVALS),
            distance: self.distance,
            metric: self.metric,
        }
    }

    fn has_rivals(self) -> bool {
        self.source & RIVALS != 0
    }
}

/// All routes of one family, ordered by prefix. See the top of its file.
#[derive(Clone, Debug)]
pub struct Rib<A: Family> {
    best: BTreeMap<A::Key, Best>,
    /// The routes that wait behind the best one, in the order in which they would take its place.
    rivals: BTreeMap<A::Key, Vec<Route>>,
    /// Number of routes that wait.
    waiting: usize,
    /// Number of prefixes of each length.
    lengths: [u32; 129],
}

impl<A: Family> Default for Rib<A> {
    fn default() -> Self {
        Rib { best: BTreeMap::new(), rivals: BTreeMap::new(), waiting: 0, lengths: [0; 129] }
    }
}

fn prefix_of<A: Family>(key: A::Key) -> A::Net {
    let (network, length) = A::of_key(key);
    A::net(network, length)
}

fn key_of<A: Family>(prefix: A::Net) -> Result<A::Key, RibError> {
    let (address, length) = A::parts(prefix);
    if address & A::mask(length) != address {
        return Err(RibError::HostBits { prefix: prefix.into() });
    }
    Ok(address.key(length))
}

impl<A: Family> Rib<A> {
    /// A RIB without routes.
    pub fn new() -> Self {
        Rib::default()
    }

    /// Number of prefixes that have a route.
    pub fn len(&self) -> usize {
        self.best.len()
    }

    /// Number of routes, those that wait included.
    pub fn routes(&self) -> usize {
        self.best.len() + self.waiting
    }

    /// Whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.best.is_empty()
    }

    /// Number of prefixes longer than so many bits that have a route.
    pub(crate) fn longer_than(&self, length: u8) -> usize {
        self.lengths[usize::from(length) + 1..].iter().map(|&count| count as usize).sum()
    }

    /// Bytes of memory, estimated: B-tree nodes are taken to be three quarters full.
    pub fn memory_bytes(&self) -> usize {
        let entry = size_of::<A::Key>() + size_of::<Best>() + 1;
        let rival = size_of::<A::Key>() + size_of::<Vec<Route>>();
        (self.best.len() * entry + self.rivals.len() * rival) * 4 / 3 + self.waiting * size_of::<Route>()
    }

    /// Adds a route.
    ///
    /// # Errors
    ///
    /// [`RibError::Exists`] if its source has one of the same metric to the prefix, [`RibError::HostBits`].
    pub fn insert(&mut self, prefix: A::Net, route: Route) -> Result<Change, RibError> {
        let key = key_of::<A>(prefix)?;
        if let Entry::Vacant(place) = self.best.entry(key) {
            place.insert(Best::new(route, false));
            self.lengths[usize::from(A::parts(prefix).1)] += 1;
            return Ok(Change { before: None, after: Some(route.next_hop), gone: None });
        }
        let same = |known: &Route| (known.source, known.metric) == (route.source, route.metric);
        if let Some(known) = self.candidates_of(key).find(same) {
            return Err(RibError::Exists { prefix: prefix.into(), next_hop: known.next_hop });
        }
        self.replace(prefix, route)
    }

    /// Adds a route, in the place of the one that its source has with the same metric, if there is one.
    ///
    /// # Errors
    ///
    /// [`RibError::HostBits`].
    pub fn replace(&mut self, prefix: A::Net, route: Route) -> Result<Change, RibError> {
        let key = key_of::<A>(prefix)?;
        let best = match self.best.entry(key) {
            Entry::Vacant(place) => {
                place.insert(Best::new(route, false));
                self.lengths[usize::from(A::parts(prefix).1)] += 1;
                return Ok(Change { before: None, after: Some(route.next_hop), gone: None });
            }
            Entry::Occupied(best) => best.into_mut(),
        };
        let known = best.route();
        let before = Some(known.next_hop);
        if !best.has_rivals() && (known.source, known.metric) == (route.source, route.metric) {
            *best = Best::new(route, false);
            return Ok(Change { before, after: Some(route.next_hop), gone: Some(known) });
        }
        let mut all = self.take_candidates(key);
        let is_it = |known: &Route| (known.source, known.metric) == (route.source, route.metric);
        let gone = all.iter().position(is_it).map(|place| all.remove(place));
        let place = all.partition_point(|known| known.preference() <= route.preference());
        all.insert(place, route);
        Ok(Change { before, after: self.put_candidates(key, all), gone })
    }

    /// Removes the route of this source and metric; the next best takes its place.
    ///
    /// # Errors
    ///
    /// [`RibError::NotFound`] if the prefix has no route, [`RibError::NotOfSource`], [`RibError::HostBits`].
    pub fn remove(&mut self, prefix: A::Net, source: Source, metric: u32) -> Result<Change, RibError> {
        let key = key_of::<A>(prefix)?;
        let Entry::Occupied(best) = self.best.entry(key) else {
            return Err(RibError::NotFound { prefix: prefix.into() });
        };
        let known = best.get().route();
        let before = Some(known.next_hop);
        let is_it = |known: &Route| (known.source, known.metric) == (source, metric);
        if !best.get().has_rivals() {
            if !is_it(&known) {
                return Err(not_of_source(prefix.into(), source, metric, known));
            }
            best.remove();
            self.lengths[usize::from(A::parts(prefix).1)] -= 1;
            return Ok(Change { before, after: None, gone: Some(known) });
        }
        let mut all = self.take_candidates(key);
        let gone = all.iter().position(is_it).map(|place| all.remove(place));
        let after = self.put_candidates(key, all);
        match gone {
            Some(_) => Ok(Change { before, after, gone }),
            None => Err(not_of_source(prefix.into(), source, metric, known)),
        }
    }

    /// Removes every route.
    pub fn clear(&mut self) {
        *self = Rib::default();
    }

    /// All routes of a prefix, the best first.
    fn take_candidates(&mut self, key: A::Key) -> Vec<Route> {
        let Some(best) = self.best.get(&key) else { return Vec::new() };
        let mut all = vec![best.route()];
        if best.has_rivals() {
            let rivals = self.rivals.remove(&key).unwrap_or_default();
            self.waiting -= rivals.len();
            all.extend(rivals);
        }
        all
    }

    /// Stores the routes of a prefix, the best first, and returns the next hop of the best.
    fn put_candidates(&mut self, key: A::Key, mut all: Vec<Route>) -> Option<NextHopIndex> {
        if all.is_empty() {
            if self.best.remove(&key).is_some() {
                self.lengths[usize::from(A::of_key(key).1)] -= 1;
            }
            return None;
        }
        let best = all.remove(0);
        self.best.insert(key, Best::new(best, !all.is_empty()));
        if !all.is_empty() {
            self.waiting += all.len();
            self.rivals.insert(key, all);
        }
        Some(best.next_hop)
    }

    fn candidates_of(&self, key: A::Key) -> impl Iterator<Item = Route> + '_ {
        let best = self.best.get(&key);
        let rivals = best.filter(|best| best.has_rivals()).and_then(|_| self.rivals.get(&key));
        best.map(|best| best.route()).into_iter().chain(rivals.into_iter().flatten().copied())
    }

    /// The route in force at exactly this prefix.
    pub fn get(&self, prefix: A::Net) -> Option<Route> {
        self.best.get(&key_of::<A>(prefix).ok()?).map(|best| best.route())
    }

    /// All routes to exactly this prefix: the one in force, then those that wait, in the order of their turn.
    pub fn candidates(&self, prefix: A::Net) -> impl Iterator<Item = Route> + '_ {
        key_of::<A>(prefix).ok().into_iter().flat_map(|key| self.candidates_of(key))
    }

    /// The routes in force, by address and then from short to long: a route comes before those inside it.
    pub fn iter(&self) -> impl Iterator<Item = PrefixRoute<A>> + '_ {
        self.best.iter().map(|(&key, best)| PrefixRoute { prefix: prefix_of::<A>(key), route: best.route() })
    }

    /// All routes, those that wait included, each prefix's in the order of their turn.
    pub fn iter_all(&self) -> impl Iterator<Item = PrefixRoute<A>> + '_ {
        self.best.iter().flat_map(|(&key, best)| {
            let rivals = if best.has_rivals() { self.rivals.get(&key) } else { None };
            let all = std::iter::once(best.route()).chain(rivals.into_iter().flatten().copied());
            all.map(move |route| PrefixRoute { prefix: prefix_of::<A>(key), route })
        })
    }

    /// The route to exactly this prefix that a source has with this metric.
    pub fn find(&self, prefix: A::Net, source: Source, metric: u32) -> Option<Route> {
        self.candidates(prefix).find(|route| (route.source, route.metric) == (source, metric))
    }

    /// Takes back a change of one route of a prefix from `before` to `after`.
    pub(crate) fn undo(&mut self, prefix: A::Net, before: Option<Route>, after: Option<Route>) {
        let undone = match (before, after) {
            (Some(route), _) => self.replace(prefix, route).map(|_| ()),
            (None, Some(route)) => self.remove(prefix, route.source, route.metric).map(|_| ()),
            (None, None) => Ok(()),
        };
        undone.expect("a change that the RIB took can be taken back");
    }

    /// The routes in force at `prefix` and inside it, in the same order.
    pub fn inside(&self, prefix: A::Net) -> impl Iterator<Item = PrefixRoute<A>> + '_ {
        let (first, last) = A::bounds(prefix);
        let range = first.key(A::parts(prefix).1)..=last.key(A::BITS);
        let inside = self.best.range(range);
        inside.map(|(&key, best)| PrefixRoute { prefix: prefix_of::<A>(key), route: best.route() })
    }

    /// The route with the longest prefix that contains `address`. For control code: microseconds, not nanoseconds.
    pub fn longest_match(&self, address: A) -> Option<PrefixRoute<A>> {
        self.best_cover(address, A::BITS)
    }

    /// The route that would serve the addresses of `prefix` if neither `prefix` itself nor anything inside it were
    /// there: the longest among the shorter prefixes that contain it.
    pub fn covering(&self, prefix: A::Net) -> Option<PrefixRoute<A>> {
        self.best_cover(A::bounds(prefix).0, A::parts(prefix).1.checked_sub(1)?)
    }
}

fn not_of_source(prefix: IpNet, source_name: Source, metric: u32, best: Route) -> RibError {
    RibError::NotOfSource { prefix, source_name, metric, best }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn net(text: &str) -> ipnet::Ipv4Net {
        text.parse().unwrap()
    }

    fn to(number: u16) -> Route {
        Route::to(NextHopIndex::new(number).unwrap())
    }

    #[test]
    fn changes_that_make_no_sense_are_refused_with_a_reason() {
        let mut rib = Rib::<u32>::new();
        rib.insert(net("10.0.0.0/8"), to(1)).unwrap();
        let exists = rib.insert(net("10.0.0.0/8"), to(2)).unwrap_err();
        assert_eq!(exists.to_string(), "10.0.0.0/8 exists already, with next hop 1; replace it to change it");
        let missing = rib.remove(net("10.0.0.0/9"), Source::Static, 0).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "10.0.0.0/9 is not in the table; only this exact prefix can be removed"
        );
        let other = rib.remove(net("10.0.0.0/8"), Source::Fpm, 7).unwrap_err();
        assert_eq!(
            other.to_string(),
            "10.0.0.0/8 has no fpm route of metric 7; its best is static with metric 0, next hop 1"
        );
        let host_bits = rib.replace(net("10.0.0.1/8"), to(2)).unwrap_err();
        assert_eq!(host_bits.to_string(), "10.0.0.1/8 has host bits set; the network is 10.0.0.0/8");
        assert_eq!(rib.get(net("10.0.0.0/8")), Some(to(1)));
        assert_eq!((rib.len(), rib.routes()), (1, 1));
    }

    #[test]
    fn the_best_route_wins_and_the_others_wait_their_turn() {
        let mut rib = Rib::<u128>::new();
        let prefix = "2001:db8::/32".parse().unwrap();
        let route = |number, source, distance, metric| Route {
            next_hop: NextHopIndex::new(number).unwrap(),
            source,
            distance,
            metric,
        };
        let ospf = route(1, Source::Fpm, 110, 20);
        let kernel = route(2, Source::Netlink, 0, 1024);
        let backup = route(3, Source::Static, 250, 0);
        let change = |rib: &mut Rib<u128>, route| {
            let change = rib.insert(prefix, route).unwrap();
            (change.before.map(NextHopIndex::get), change.after.map(NextHopIndex::get))
        };
        assert_eq!(change(&mut rib, backup), (None, Some(3)));
        assert_eq!(change(&mut rib, ospf), (Some(3), Some(1)));
        assert_eq!(change(&mut rib, kernel), (Some(1), Some(2)));
        assert!(matches!(rib.insert(prefix, route(9, Source::Fpm, 1, 20)), Err(RibError::Exists { .. })));
        assert_eq!(rib.candidates(prefix).collect::<Vec<_>>(), [kernel, ospf, backup]);
        assert_eq!((rib.len(), rib.routes()), (1, 3));
        assert!(rib.remove(prefix, Source::Fpm, 21).is_err());
        let gone = rib.remove(prefix, Source::Netlink, 1024).unwrap();
        assert_eq!(gone.after.map(NextHopIndex::get), Some(1));
        // A change of one that waits is not visible; a better distance is.
        assert!(!rib.replace(prefix, route(4, Source::Static, 251, 0)).unwrap().is_visible());
        assert!(rib.replace(prefix, route(4, Source::Static, 5, 0)).unwrap().is_visible());
        rib.remove(prefix, Source::Static, 0).unwrap();
        rib.remove(prefix, Source::Fpm, 20).unwrap();
        assert_eq!((rib.is_empty(), rib.routes()), (true, 0));
    }

    #[test]
    fn a_route_comes_before_those_inside_it() {
        let mut rib = Rib::<u32>::new();
        let ordered =
            ["0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/16", "10.0.5.0/24", "10.1.0.0/16", "255.255.255.255/32"];
        for prefix in ordered.iter().rev() {
            rib.insert(net(prefix), to(1)).unwrap();
        }
        let listed: Vec<String> = rib.iter().map(|route| route.prefix.to_string()).collect();
        assert_eq!(listed, ordered);
        let inside: Vec<String> =
            rib.inside(net("10.0.0.0/16")).map(|route| route.prefix.to_string()).collect();
        assert_eq!(inside, ["10.0.0.0/16", "10.0.5.0/24"]);
        assert_eq!(rib.inside(net("255.255.255.255/32")).count(), 1);
    }

    fn any_route() -> impl Strategy<Value = Route> {
        (0u16..4, 0u8..4, 0u8..3, 0u32..3).prop_map(|(number, source, distance, metric)| Route {
            next_hop: NextHopIndex::new(number).unwrap(),
            source: Source::from_number(source),
            distance,
            metric,
        })
    }

    proptest! {
        /// Against a plain list of routes from which the best is picked by sorting.
        #[test]
        fn the_candidates_of_a_prefix_are_those_of_a_list(changes in prop::collection::vec((0u8..3, any_route()), 1..60)) {
            let prefix = net("10.0.0.0/8");
            let mut rib = Rib::<u32>::new();
            let mut list: Vec<Route> = Vec::new();
            for (kind, route) in changes {
                let best = |list: &[Route]| list.iter().min_by_key(|route| route.preference()).map(|route| route.next_hop);
                let before = best(&list);
                let known = list.iter().position(|known| (known.source, known.metric) == (route.source, route.metric));
                let gone = known.map(|known| list[known]);
                let result = match kind {
                    0 => {
                        if known.is_none() { list.push(route); }
                        rib.insert(prefix, route)
                    }
                    1 => {
                        if let Some(known) = known { list.remove(known); }
                        list.push(route);
                        rib.replace(prefix, route)
                    }
                    _ => {
                        if let Some(known) = known { list.remove(known); }
                        rib.remove(prefix, route.source, route.metric)
                    }
                };
                let refused = (kind == 0 && known.is_some()) || (kind == 2 && known.is_none());
                prop_assert_eq!(result.is_err(), refused);
                if let Ok(change) = result {
                    prop_assert_eq!(change, Change { before, after: best(&list), gone });
                }
                list.sort_by_key(Route::preference);
                prop_assert_eq!(rib.candidates(prefix).collect::<Vec<_>>(), list.clone());
                prop_assert_eq!(rib.routes(), list.len());
            }
        }
    }
}
