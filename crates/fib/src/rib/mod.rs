//! The RIB: the routes of one family, one to a prefix.
//!
//! Of several routes to a prefix the caller chooses the best and puts that one here: the preferences of Linux, of routing
//! daemons and of Click differ.
//!
//! # The store
//!
//! One B-tree holds the next hop of every prefix. Its keys are ordered by network address, then by length, and in
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
//! # Memory
//!
//! | what | IPv4 | IPv6 |
//! | --- | --- | --- |
//! | a prefix, in full B-tree nodes | 11 bytes | 35 bytes |
//! | nodes are half to quite full; a million prefixes | 11 to 22 MB | 35 to 70 MB |

mod cover;

pub(crate) use cover::Range;

use crate::{NextHopIndex, Route};
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
    /// The prefix has a route already.
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
}

/// What a change did to the way that packets take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The next hop of the prefix before, if it had a route.
    pub before: Option<NextHopIndex>,
    /// The next hop now, if it has one.
    pub after: Option<NextHopIndex>,
}

impl Change {
    /// Whether packets go another way now, so that compiled tables must be told.
    pub fn is_visible(&self) -> bool {
        self.before != self.after
    }
}

/// All routes of one family, ordered by prefix. See the top of its file.
#[derive(Clone, Debug)]
pub struct Rib<A: Family> {
    routes: BTreeMap<A::Key, NextHopIndex>,
    /// Number of prefixes of each length.
    lengths: [u32; 129],
}

impl<A: Family> Default for Rib<A> {
    fn default() -> Self {
        Rib { routes: BTreeMap::new(), lengths: [0; 129] }
    }
}

fn route_of<A: Family>((&key, &next_hop): (&A::Key, &NextHopIndex)) -> Route<A> {
    let (network, length) = A::of_key(key);
    Route { prefix: A::net(network, length), next_hop }
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

    /// Number of routes.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Number of prefixes longer than so many bits that have a route.
    pub(crate) fn longer_than(&self, length: u8) -> usize {
        self.lengths[usize::from(length) + 1..].iter().map(|&count| count as usize).sum()
    }

    /// Bytes of memory, estimated: B-tree nodes are taken to be three quarters full.
    pub fn memory_bytes(&self) -> usize {
        let entry = size_of::<A::Key>() + size_of::<NextHopIndex>() + 1;
        self.routes.len() * entry * 4 / 3
    }

    /// Adds a route.
    ///
    /// # Errors
    ///
    /// [`RibError::Exists`] if the prefix has one, [`RibError::HostBits`].
    pub fn insert(&mut self, prefix: A::Net, next_hop: NextHopIndex) -> Result<Change, RibError> {
        match self.routes.entry(key_of::<A>(prefix)?) {
            Entry::Occupied(known) => Err(RibError::Exists { prefix: prefix.into(), next_hop: *known.get() }),
            Entry::Vacant(place) => {
                place.insert(next_hop);
                self.lengths[usize::from(A::parts(prefix).1)] += 1;
                Ok(Change { before: None, after: Some(next_hop) })
            }
        }
    }

    /// Adds a route, in the place of the one that the prefix has, if there is one.
    ///
    /// # Errors
    ///
    /// [`RibError::HostBits`].
    pub fn replace(&mut self, prefix: A::Net, next_hop: NextHopIndex) -> Result<Change, RibError> {
        let before = self.routes.insert(key_of::<A>(prefix)?, next_hop);
        self.lengths[usize::from(A::parts(prefix).1)] += u32::from(before.is_none());
        Ok(Change { before, after: Some(next_hop) })
    }

    /// Removes the route to this prefix.
    ///
    /// # Errors
    ///
    /// [`RibError::NotFound`], [`RibError::HostBits`].
    pub fn remove(&mut self, prefix: A::Net) -> Result<Change, RibError> {
        let before = self.routes.remove(&key_of::<A>(prefix)?);
        if before.is_none() {
            return Err(RibError::NotFound { prefix: prefix.into() });
        }
        self.lengths[usize::from(A::parts(prefix).1)] -= 1;
        Ok(Change { before, after: None })
    }

    /// Removes every route.
    pub fn clear(&mut self) {
        *self = Rib::default();
    }

    /// The next hop of exactly this prefix.
    pub fn get(&self, prefix: A::Net) -> Option<NextHopIndex> {
        self.routes.get(&key_of::<A>(prefix).ok()?).copied()
    }

    /// The routes, by address and then from short to long: a route comes before those inside it.
    pub fn iter(&self) -> impl Iterator<Item = Route<A>> + '_ {
        self.routes.iter().map(route_of)
    }

    /// The whole address space as ranges of addresses with one next hop: the first address of each, in ascending order from the
    /// lowest on. Neighbours differ in their next hop.
    pub fn ranges(&self) -> Vec<(A, NextHopIndex)> {
        let mut ranges = Vec::new();
        self.flatten(A::MIN, 0, NextHopIndex::NONE, &mut ranges);
        ranges
    }

    /// Takes back a change of the route to a prefix.
    pub(crate) fn undo(&mut self, prefix: A::Net, change: Change) {
        let undone = match change.before {
            Some(next_hop) => self.replace(prefix, next_hop),
            None => self.remove(prefix),
        };
        undone.expect("a change that the RIB took can be taken back");
    }

    /// The routes at `prefix` and inside it, in the same order.
    pub fn inside(&self, prefix: A::Net) -> impl Iterator<Item = Route<A>> + '_ {
        let (first, last) = A::bounds(prefix);
        let range = first.key(A::parts(prefix).1)..=last.key(A::BITS);
        self.routes.range(range).map(route_of)
    }

    /// The route with the longest prefix that contains `address`. For control code: microseconds, not nanoseconds.
    pub fn longest_match(&self, address: A) -> Option<Route<A>> {
        self.longest_cover(address, A::BITS)
    }

    /// The route that would serve the addresses of `prefix` if neither `prefix` itself nor anything inside it were
    /// there: the longest among the shorter prefixes that contain it.
    pub fn covering(&self, prefix: A::Net) -> Option<Route<A>> {
        self.longest_cover(A::bounds(prefix).0, A::parts(prefix).1.checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn net(text: &str) -> ipnet::Ipv4Net {
        text.parse().unwrap()
    }

    fn to(number: u16) -> NextHopIndex {
        NextHopIndex::new(number).unwrap()
    }

    #[test]
    fn changes_that_make_no_sense_are_refused_with_a_reason() {
        let mut rib = Rib::<u32>::new();
        rib.insert(net("10.0.0.0/8"), to(1)).unwrap();
        let exists = rib.insert(net("10.0.0.0/8"), to(2)).unwrap_err();
        assert_eq!(exists.to_string(), "10.0.0.0/8 exists already, with next hop 1; replace it to change it");
        let missing = rib.remove(net("10.0.0.0/9")).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "10.0.0.0/9 is not in the table; only this exact prefix can be removed"
        );
        let host_bits = rib.replace(net("10.0.0.1/8"), to(2)).unwrap_err();
        assert_eq!(host_bits.to_string(), "10.0.0.1/8 has host bits set; the network is 10.0.0.0/8");
        assert_eq!(rib.get(net("10.0.0.0/8")), Some(to(1)));
        assert_eq!(rib.len(), 1);
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

    proptest! {
        /// Against a map from prefixes to next hops.
        #[test]
        fn changes_say_what_they_did(changes in prop::collection::vec((0u8..3, 0u32..4, 6u8..9, 0u16..4), 1..60)) {
            let mut rib = Rib::<u32>::new();
            let mut map: BTreeMap<ipnet::Ipv4Net, NextHopIndex> = BTreeMap::new();
            for (kind, address, length, number) in changes {
                let prefix = ipnet::Ipv4Net::new((address << 24).into(), length).unwrap().trunc();
                let before = map.get(&prefix).copied();
                let (result, after) = match kind {
                    0 => (rib.insert(prefix, to(number)), before.or(Some(to(number)))),
                    1 => (rib.replace(prefix, to(number)), Some(to(number))),
                    _ => (rib.remove(prefix), None),
                };
                let refused = (kind == 0 && before.is_some()) || (kind == 2 && before.is_none());
                prop_assert_eq!(result.is_err(), refused);
                if let Ok(change) = result {
                    prop_assert_eq!(change, Change { before, after });
                    if let Some(after) = after { map.insert(prefix, after) } else { map.remove(&prefix) };
                }
                let routes = map.iter().map(|(&prefix, &next_hop)| Route { prefix, next_hop });
                prop_assert_eq!(rib.iter().collect::<Vec<_>>(), routes.collect::<Vec<_>>());
                for length in 0..=32 {
                    let longer = map.keys().filter(|prefix| prefix.prefix_len() > length).count();
                    prop_assert_eq!(rib.longer_than(length), longer);
                }
            }
        }
    }
}
