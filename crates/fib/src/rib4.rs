//! The IPv4 routes known: prefix to next hop, exact and ordered.
//!
//! The store is one B-tree. A route's key is a number: the network address, then the prefix length in the six lowest
//! bits. In the order of these keys a prefix comes right before everything inside it:
//!
//! ```text
//! 10.0.0.0/8  <  10.0.0.0/16  <  10.0.5.0/24  <  10.1.0.0/16  <  11.0.0.0/8
//! ```
//!
//! So "the routes inside a prefix" is one interval of the tree, "paint in order" paints a covering route before the
//! routes that it covers, and whatever covers an address stands before it. All queries here rest on that order.
//!
//! Memory: 10 bytes a route in full B-tree nodes, 11 to 20 as they fill; about 16 MB for a million routes.
//!
//! Later a route will have a source, a distance and rivals; they belong in the value, and the order stays.

use crate::route::{bounds, mask};
use crate::{NextHopIndex, Route4};
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::Ipv4Addr;

/// Why a change to the routes was refused. The routes are then as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RibError {
    /// Bits are set behind the prefix length.
    #[error("{prefix} has host bits set; the network is {}", prefix.trunc())]
    HostBits {
        /// The prefix as given.
        prefix: Ipv4Net,
    },
    /// The prefix is in the table already.
    #[error("{prefix} exists already, with next hop {}; replace it to change it", next_hop.get())]
    Exists {
        /// The prefix that was to be inserted.
        prefix: Ipv4Net,
        /// The next hop it has.
        next_hop: NextHopIndex,
    },
    /// The prefix is not in the table.
    #[error("{prefix} is not in the table; only this exact prefix can be removed")]
    NotFound {
        /// The prefix that was to be removed.
        prefix: Ipv4Net,
    },
}

/// All IPv4 routes known, ordered by address and then by length.
#[derive(Clone, Debug, Default)]
pub struct Rib4 {
    routes: BTreeMap<u64, NextHopIndex>,
}

fn key(network: u32, length: u8) -> u64 {
    u64::from(network) << 6 | u64::from(length)
}

fn network_and_length(key: u64) -> (u32, u8) {
    ((key >> 6) as u32, (key & 63) as u8)
}

fn prefix_of(key: u64) -> Ipv4Net {
    let (network, length) = network_and_length(key);
    Ipv4Net::new(Ipv4Addr::from(network), length)
        .expect("keys are made from prefixes, whose length is at most 32")
}

fn key_of(prefix: Ipv4Net) -> Result<u64, RibError> {
    if prefix.addr() != prefix.network() {
        return Err(RibError::HostBits { prefix });
    }
    Ok(key(u32::from(prefix.addr()), prefix.prefix_len()))
}

impl Rib4 {
    /// A RIB without routes.
    pub fn new() -> Rib4 {
        Rib4::default()
    }

    /// Number of routes.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Adds a route.
    ///
    /// # Errors
    ///
    /// [`RibError::Exists`] if there is a route at exactly this prefix, [`RibError::HostBits`].
    pub fn insert(&mut self, prefix: Ipv4Net, next_hop: NextHopIndex) -> Result<(), RibError> {
        match self.routes.entry(key_of(prefix)?) {
            Entry::Occupied(there) => Err(RibError::Exists { prefix, next_hop: *there.get() }),
            Entry::Vacant(place) => {
                place.insert(next_hop);
                Ok(())
            }
        }
    }

    /// Sets the next hop of a prefix, whether there was a route or not, and returns the one it had.
    ///
    /// # Errors
    ///
    /// [`RibError::HostBits`].
    pub fn replace(
        &mut self,
        prefix: Ipv4Net,
        next_hop: NextHopIndex,
    ) -> Result<Option<NextHopIndex>, RibError> {
        Ok(self.routes.insert(key_of(prefix)?, next_hop))
    }

    /// Removes the route at exactly this prefix and returns its next hop.
    ///
    /// # Errors
    ///
    /// [`RibError::NotFound`] if there is none, [`RibError::HostBits`].
    pub fn remove(&mut self, prefix: Ipv4Net) -> Result<NextHopIndex, RibError> {
        self.routes.remove(&key_of(prefix)?).ok_or(RibError::NotFound { prefix })
    }

    /// Removes every route.
    pub fn clear(&mut self) {
        self.routes.clear();
    }

    /// The next hop of the route at exactly this prefix.
    pub fn get(&self, prefix: Ipv4Net) -> Option<NextHopIndex> {
        self.routes.get(&key_of(prefix).ok()?).copied()
    }

    /// All routes, by address and then from short to long: a route comes before those inside it.
    pub fn iter(&self) -> impl Iterator<Item = Route4> + '_ {
        self.routes.iter().map(|(&key, &next_hop)| Route4 { prefix: prefix_of(key), next_hop })
    }

    /// The route with the longest prefix that contains `address`. For control code: microseconds, not nanoseconds.
    pub fn longest_match(&self, address: Ipv4Addr) -> Option<Route4> {
        self.best_cover(u32::from(address), 32)
    }

    /// The route that would serve the addresses of `prefix` if neither `prefix` itself nor anything inside it were
    /// there: the longest among the shorter prefixes that contain it.
    pub fn covering(&self, prefix: Ipv4Net) -> Option<Route4> {
        self.best_cover(bounds(prefix).0, prefix.prefix_len().checked_sub(1)?)
    }

    /// The next hop that the addresses of `prefix` have where nothing inside it claims them.
    pub(crate) fn next_hop_at(&self, prefix: Ipv4Net) -> NextHopIndex {
        let best = self.best_cover(bounds(prefix).0, prefix.prefix_len());
        best.map_or(NextHopIndex::NONE, |route| route.next_hop)
    }

    /// The longest route of at most `longest` bits that contains `address`.
    ///
    /// Look at the last route at or before (`address`, `longest`). If it contains the address it is the answer:
    /// longer ones would stand behind it. If not, it parts from the address after some common bits; a cover longer
    /// than those would stand between the two, where nothing is. So go on with that many bits, which are fewer.
    fn best_cover(&self, address: u32, longest: u8) -> Option<Route4> {
        let mut length = longest;
        loop {
            let last = key(address & mask(length), length);
            let (&found, &next_hop) = self.routes.range(..=last).next_back()?;
            let (network, found_length) = network_and_length(found);
            let common = (network ^ address).leading_zeros() as u8;
            if common >= found_length {
                return Some(Route4 { prefix: prefix_of(found), next_hop });
            }
            length = common;
        }
    }

    /// Whether a route longer than `length` bits lies in the prefix of that length at `network`.
    pub(crate) fn has_longer_inside(&self, network: u32, length: u8) -> bool {
        let last = network | !mask(length);
        self.routes.range(key(network, length) + 1..=key(last, 32)).next().is_some()
    }

    /// Calls `paint` with the first and last address of each stretch of `prefix` that no route inside it claims: the
    /// addresses whose answer changes when the route at `prefix` does. In ascending order.
    pub(crate) fn for_each_gap(&self, prefix: Ipv4Net, mut paint: impl FnMut(u32, u32)) {
        // A route inside the one just passed can be stepped over one by one, or with a new descent of the tree; a
        // descent costs about as much as this many steps.
        const STEPS_PER_DESCENT: u32 = 16;
        let (first, last) = bounds(prefix);
        let end = key(last, 32);
        let mut unclaimed = first;
        let mut steps = 0;
        let mut inside = self.routes.range(key(first, prefix.prefix_len()) + 1..=end.max(key(first, 32) + 1));
        while let Some((&found, _)) = inside.next() {
            let (network, length) = network_and_length(found);
            if network < unclaimed {
                steps += 1;
                if steps == STEPS_PER_DESCENT {
                    inside = self.routes.range(key(unclaimed, 0)..=end);
                    steps = 0;
                }
                continue;
            }
            if network > unclaimed {
                paint(unclaimed, network - 1);
            }
            let claimed_to = network | !mask(length);
            if claimed_to >= last {
                return;
            }
            unclaimed = claimed_to + 1;
        }
        paint(unclaimed, last);
    }

    /// Flattens the routes inside one prefix to ranges: `ranges` receives, in ascending order, the first address of
    /// each range and its next hop; a range ends where the next begins. The first range starts at `network`,
    /// `background` is the next hop where there is no route, and neighbours differ in their next hop.
    pub(crate) fn flatten(
        &self,
        network: u32,
        length: u8,
        background: NextHopIndex,
        ranges: &mut Vec<(u32, NextHopIndex)>,
    ) {
        ranges.clear();
        ranges.push((network, background));
        let last = network | !mask(length);
        // The routes that contain the current address, from short to long, with their last addresses.
        let mut open: Vec<(u32, NextHopIndex)> = Vec::with_capacity(33);
        for (&found, &next_hop) in self.routes.range(key(network, length)..=key(last, 32)) {
            let (start, length) = network_and_length(found);
            close_before(start, &mut open, background, ranges);
            begin_range(ranges, start, next_hop);
            open.push((start | !mask(length), next_hop));
        }
        while let Some((end, _)) = open.pop() {
            if end < last {
                let outer = open.last().map_or(background, |&(_, next_hop)| next_hop);
                begin_range(ranges, end + 1, outer);
            }
        }
    }
}

/// Ends the open routes whose last address is before `start`; behind each its outer route shows again.
fn close_before(
    start: u32,
    open: &mut Vec<(u32, NextHopIndex)>,
    background: NextHopIndex,
    ranges: &mut Vec<(u32, NextHopIndex)>,
) {
    while let Some(&(end, _)) = open.last() {
        if end >= start {
            return;
        }
        open.pop();
        let outer = open.last().map_or(background, |&(_, next_hop)| next_hop);
        begin_range(ranges, end + 1, outer);
    }
}

/// Begins a range, taking the place of one that began at the same address and joining one of the same next hop.
fn begin_range(ranges: &mut Vec<(u32, NextHopIndex)>, start: u32, next_hop: NextHopIndex) {
    if ranges.last().is_some_and(|&(last_start, _)| last_start == start) {
        ranges.pop();
    }
    if ranges.last().is_none_or(|&(_, last_next_hop)| last_next_hop != next_hop) {
        ranges.push((start, next_hop));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Ipv4Net {
        text.parse().unwrap()
    }

    fn hop(number: u16) -> NextHopIndex {
        NextHopIndex::new(number).unwrap()
    }

    fn gaps(rib: &Rib4, prefix: &str) -> Vec<String> {
        let mut gaps = Vec::new();
        rib.for_each_gap(net(prefix), |first, last| {
            gaps.push(format!("{}-{}", Ipv4Addr::from(first), Ipv4Addr::from(last)));
        });
        gaps
    }

    #[test]
    fn changes_that_make_no_sense_are_refused_with_a_reason() {
        let mut rib = Rib4::new();
        rib.insert(net("10.0.0.0/8"), hop(1)).unwrap();
        let exists = rib.insert(net("10.0.0.0/8"), hop(2)).unwrap_err();
        assert_eq!(exists.to_string(), "10.0.0.0/8 exists already, with next hop 1; replace it to change it");
        let missing = rib.remove(net("10.0.0.0/9")).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "10.0.0.0/9 is not in the table; only this exact prefix can be removed"
        );
        let host_bits = rib.replace(net("10.0.0.1/8"), hop(2)).unwrap_err();
        assert_eq!(host_bits.to_string(), "10.0.0.1/8 has host bits set; the network is 10.0.0.0/8");
        assert_eq!(rib.get(net("10.0.0.0/8")), Some(hop(1)));
        assert_eq!(rib.len(), 1);
    }

    #[test]
    fn replace_and_remove_return_what_was_there() {
        let mut rib = Rib4::new();
        assert_eq!(rib.replace(net("0.0.0.0/0"), hop(1)), Ok(None));
        assert_eq!(rib.replace(net("0.0.0.0/0"), hop(2)), Ok(Some(hop(1))));
        assert_eq!(rib.remove(net("0.0.0.0/0")), Ok(hop(2)));
        assert!(rib.is_empty());
    }

    #[test]
    fn a_route_comes_before_those_inside_it() {
        let mut rib = Rib4::new();
        let ordered =
            ["0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/16", "10.0.5.0/24", "10.1.0.0/16", "255.255.255.255/32"];
        for prefix in ordered.iter().rev() {
            rib.insert(net(prefix), hop(1)).unwrap();
        }
        let listed: Vec<String> = rib.iter().map(|route| route.prefix.to_string()).collect();
        assert_eq!(listed, ordered);
    }

    #[test]
    fn the_longest_match_looks_past_siblings() {
        let mut rib = Rib4::new();
        for (prefix, number) in
            [("10.0.0.0/8", 1), ("10.0.0.0/24", 2), ("10.0.4.0/22", 3), ("10.0.6.0/24", 4)]
        {
            rib.insert(net(prefix), hop(number)).unwrap();
        }
        let matched =
            |address: &str| rib.longest_match(address.parse().unwrap()).map(|route| route.next_hop.get());
        assert_eq!(matched("10.0.7.1"), Some(3));
        assert_eq!(matched("10.0.6.255"), Some(4));
        assert_eq!(matched("10.0.8.0"), Some(1));
        assert_eq!(matched("11.0.0.0"), None);
        assert_eq!(rib.covering(net("10.0.6.0/24")).unwrap().prefix, net("10.0.4.0/22"));
        assert_eq!(rib.covering(net("10.0.0.0/8")), None);
        assert_eq!(rib.covering(net("0.0.0.0/0")), None);
    }

    #[test]
    fn gaps_are_what_no_longer_route_claims() {
        let mut rib = Rib4::new();
        assert_eq!(gaps(&rib, "0.0.0.0/0"), ["0.0.0.0-255.255.255.255"]);
        assert_eq!(gaps(&rib, "255.255.255.255/32"), ["255.255.255.255-255.255.255.255"]);
        for prefix in ["0.0.0.0/0", "10.0.0.0/9", "10.1.0.0/16", "10.192.0.0/10", "255.255.255.255/32"] {
            rib.insert(net(prefix), hop(1)).unwrap();
        }
        assert_eq!(gaps(&rib, "10.0.0.0/8"), ["10.128.0.0-10.191.255.255"]);
        assert_eq!(gaps(&rib, "10.0.0.0/9"), ["10.0.0.0-10.0.255.255", "10.2.0.0-10.127.255.255"]);
        let all = ["0.0.0.0-9.255.255.255", "10.128.0.0-10.191.255.255", "11.0.0.0-255.255.255.254"];
        assert_eq!(gaps(&rib, "0.0.0.0/0"), all);
        // More routes inside a route than are stepped over one by one.
        for third in 0..200 {
            rib.insert(net(&format!("10.1.{third}.0/24")), hop(1)).unwrap();
        }
        assert_eq!(gaps(&rib, "0.0.0.0/0"), all);
    }

    #[test]
    fn flattened_neighbours_differ_and_outer_routes_show_again() {
        let mut rib = Rib4::new();
        for (prefix, number) in
            [("10.0.0.0/24", 1), ("10.0.0.0/26", 2), ("10.0.0.64/26", 2), ("10.0.0.255/32", 3)]
        {
            rib.insert(net(prefix), hop(number)).unwrap();
        }
        let mut ranges = Vec::new();
        rib.flatten(0x0a00_0000, 16, NextHopIndex::NONE, &mut ranges);
        let expected = [(0x0a00_0000, 2), (0x0a00_0080, 1), (0x0a00_00ff, 3), (0x0a00_0100, 0)];
        assert_eq!(ranges, expected.map(|(start, number)| (start, hop(number))));
    }
}
