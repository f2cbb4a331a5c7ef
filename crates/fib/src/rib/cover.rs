//! What compiled tables ask of the RIB: which route covers an address, which addresses a route decides, and the
//! routes of an interval flattened to ranges.

use super::{Rib, route_of};
use crate::{NextHopIndex, Route};
use packet::Family;
use std::collections::btree_map;

/// Where a range of addresses begins, and their next hop. It ends where the next begins.
pub(crate) type Range<A> = (A, NextHopIndex);

impl<A: Family> Rib<A> {
    /// The next hop that the addresses of the prefix have where nothing inside it claims them.
    pub(crate) fn next_hop_at(&self, network: A, length: u8) -> NextHopIndex {
        if let Some(&next_hop) = self.routes.get(&network.key(length)) {
            return next_hop;
        }
        self.longest_cover(network, length).map_or(NextHopIndex::NONE, |cover| cover.next_hop)
    }

    /// The longest route of at most `longest` bits that contains `address`.
    ///
    /// Look at the last route at or before (`address`, `longest`). If it contains the address it is the answer:
    /// longer ones would stand behind it. If not, it parts from the address after some common bits; a cover longer
    /// than those would stand between the two, where nothing is. So go on with that many bits, which are fewer.
    pub(super) fn longest_cover(&self, address: A, longest: u8) -> Option<Route<A>> {
        let mut length = longest;
        loop {
            let last = (address & A::mask(length)).key(length);
            let found = self.routes.range(..=last).next_back()?;
            let (network, found_length) = A::of_key(*found.0);
            let common = (network ^ address).leading_zeros();
            if common >= found_length {
                return Some(route_of(found));
            }
            length = common;
        }
    }

    /// Whether a route longer than `length` bits lies in the prefix of that length at `network`.
    pub(crate) fn has_longer_inside(&self, network: A, length: u8) -> bool {
        let last = network | !A::mask(length);
        let mut inside = self.routes.range(network.key(length)..=last.key(A::BITS));
        inside.next_back().is_some_and(|(&found, _)| found > network.key(length))
    }

    /// Calls `paint` with the first and last address of each stretch of `prefix` that no route inside it claims: the
    /// addresses whose answer changes when the route at `prefix` does. In ascending order.
    pub(crate) fn for_each_gap(&self, prefix: A::Net, mut paint: impl FnMut(A, A)) {
        // A route inside the one just passed can be stepped over one by one, or with a new descent of the tree; a
        // descent costs about as much as this many steps.
        const STEPS_PER_DESCENT: u32 = 16;
        let (first, last) = A::bounds(prefix);
        let length = A::parts(prefix).1;
        let end = last.key(A::BITS);
        let mut unclaimed = first;
        let mut steps = 0;
        let mut inside = self.routes.range(first.key(length)..=end);
        while let Some((&found, _)) = inside.next() {
            let (network, found_length) = A::of_key(found);
            if network < unclaimed || (network == first && found_length == length) {
                steps += 1;
                if steps == STEPS_PER_DESCENT {
                    inside = self.routes.range(unclaimed.key(0)..=end);
                    steps = 0;
                }
                continue;
            }
            if network > unclaimed {
                paint(unclaimed, network.previous());
            }
            let claimed_to = network | !A::mask(found_length);
            if claimed_to >= last {
                return;
            }
            unclaimed = claimed_to.next();
        }
        paint(unclaimed, last);
    }

    /// Flattens the routes inside one prefix to ranges: `ranges` receives them in ascending order. The first starts at
    /// `network`, `background` is the next hop where there is no route, and neighbours differ in their next hop.
    pub(crate) fn flatten(
        &self,
        network: A,
        length: u8,
        background: NextHopIndex,
        ranges: &mut Vec<Range<A>>,
    ) {
        let last = network | !A::mask(length);
        let inside = self.routes.range(network.key(length)..=last.key(A::BITS));
        Flattening::start(network, last, background, ranges).all(inside);
    }

    /// The same for any interval of addresses. Routes that contain only a part of it are cut to that part.
    pub(crate) fn flatten_interval(&self, first: A, last: A, ranges: &mut Vec<Range<A>>) {
        // The routes that begin before the interval and reach into it, from long to short.
        let mut covers = Vec::new();
        let mut longest = Some(A::BITS);
        while let Some(cover) = longest.and_then(|longest| self.longest_cover(first, longest)) {
            let (network, length) = A::parts(cover.prefix);
            if network < first {
                covers.push((network | !A::mask(length), cover.next_hop));
            }
            longest = length.checked_sub(1);
        }
        let mut flattening = Flattening::start(first, last, NextHopIndex::NONE, ranges);
        for &(end, next_hop) in covers.iter().rev() {
            flattening.begin(first, next_hop);
            flattening.open.push((end, next_hop));
        }
        flattening.all(self.routes.range(first.key(0)..=last.key(A::BITS)));
    }
}

/// Turns nested prefixes, in the order of the RIB, into ranges.
struct Flattening<'a, A: Family> {
    last: A,
    background: NextHopIndex,
    ranges: &'a mut Vec<Range<A>>,
    /// The routes that contain the current address, from short to long, with their last addresses.
    open: Vec<(A, NextHopIndex)>,
}

impl<'a, A: Family> Flattening<'a, A> {
    fn start(first: A, last: A, background: NextHopIndex, ranges: &'a mut Vec<Range<A>>) -> Self {
        ranges.clear();
        ranges.push((first, background));
        Flattening { last, background, ranges, open: Vec::new() }
    }

    fn all(mut self, routes: btree_map::Range<'_, A::Key, NextHopIndex>) {
        for (&found, &next_hop) in routes {
            packet::pulse::beat();
            let (start, length) = A::of_key(found);
            while self.open.last().is_some_and(|&(end, _)| end < start) {
                self.close();
            }
            self.begin(start, next_hop);
            self.open.push((start | !A::mask(length), next_hop));
        }
        while self.open.last().is_some_and(|&(end, _)| end < self.last) {
            self.close();
        }
    }

    /// Ends the innermost open route; behind it its outer route shows again.
    fn close(&mut self) {
        if let Some((end, _)) = self.open.pop() {
            let outer = self.open.last().map_or(self.background, |&(_, next_hop)| next_hop);
            self.begin(end.next(), outer);
        }
    }

    /// Begins a range, taking the place of one that began at the same address and joining one of the same next hop.
    fn begin(&mut self, start: A, next_hop: NextHopIndex) {
        if self.ranges.last().is_some_and(|&(last_start, _)| last_start == start) {
            self.ranges.pop();
        }
        if self.ranges.last().is_none_or(|&(_, last_next_hop)| last_next_hop != next_hop) {
            self.ranges.push((start, next_hop));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipnet::Ipv4Net;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    fn net(text: &str) -> Ipv4Net {
        text.parse().unwrap()
    }

    fn hop(number: u16) -> NextHopIndex {
        NextHopIndex::new(number).unwrap()
    }

    fn rib(routes: &[(&str, u16)]) -> Rib<u32> {
        let mut rib = Rib::new();
        for &(prefix, number) in routes {
            rib.insert(net(prefix), hop(number)).unwrap();
        }
        rib
    }

    fn gaps(rib: &Rib<u32>, prefix: &str) -> Vec<String> {
        let mut gaps = Vec::new();
        rib.for_each_gap(net(prefix), |first, last| {
            gaps.push(format!("{}-{}", Ipv4Addr::from(first), Ipv4Addr::from(last)));
        });
        gaps
    }

    #[test]
    fn the_longest_match_looks_past_siblings() {
        let rib = rib(&[("10.0.0.0/8", 1), ("10.0.0.0/24", 2), ("10.0.4.0/22", 3), ("10.0.6.0/24", 4)]);
        let matched = |address: &str| {
            let address: Ipv4Addr = address.parse().unwrap();
            rib.longest_match(address.into()).map(|found| found.next_hop.get())
        };
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
        let mut rib = Rib::new();
        assert_eq!(gaps(&rib, "0.0.0.0/0"), ["0.0.0.0-255.255.255.255"]);
        assert_eq!(gaps(&rib, "255.255.255.255/32"), ["255.255.255.255-255.255.255.255"]);
        for prefix in ["0.0.0.0/0", "10.0.0.0/9", "10.1.0.0/16", "10.192.0.0/10", "255.255.255.255/32"] {
            rib.insert(net(prefix), hop(1)).unwrap();
        }
        assert_eq!(gaps(&rib, "255.255.255.255/32"), ["255.255.255.255-255.255.255.255"]);
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
        let rib = rib(&[("10.0.0.0/24", 1), ("10.0.0.0/26", 2), ("10.0.0.64/26", 2), ("10.0.0.255/32", 3)]);
        let mut ranges = Vec::new();
        rib.flatten(0x0a00_0000, 16, NextHopIndex::NONE, &mut ranges);
        let expected = [(0x0a00_0000, 2), (0x0a00_0080, 1), (0x0a00_00ff, 3), (0x0a00_0100, 0)];
        assert_eq!(ranges, expected.map(|(start, number)| (start, hop(number))));
        rib.flatten_interval(0x0a00_0001, 0x0a00_00fe, &mut ranges);
        let expected = [(0x0a00_0001, 2), (0x0a00_0080, 1)];
        assert_eq!(ranges, expected.map(|(start, number)| (start, hop(number))));
    }

    proptest! {
        /// An interval of the flattened whole is the flattened interval.
        #[test]
        fn any_interval_flattens_to_its_part_of_the_whole(
            routes in prop::collection::vec((0u32..256, 24u8..=32, 0u16..3), 0..40),
            ends in (0u32..256, 0u32..256),
        ) {
            let mut rib = Rib::<u32>::new();
            for (address, length, number) in routes {
                let prefix = Ipv4Net::new(Ipv4Addr::from(address), length).unwrap().trunc();
                rib.replace(prefix, hop(number)).unwrap();
            }
            let (first, last) = (ends.0.min(ends.1), ends.0.max(ends.1));
            let (mut whole, mut part) = (Vec::new(), Vec::new());
            rib.flatten(0, 24, rib.next_hop_at(0, 24), &mut whole);
            rib.flatten_interval(first, last, &mut part);
            prop_assert_eq!(part[0].0, first);
            prop_assert!(part.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 != pair[1].1));
            prop_assert!(part[part.len() - 1].0 <= last);
            let at = |ranges: &[Range<u32>], address| {
                ranges[ranges.partition_point(|range| range.0 <= address) - 1].1
            };
            for address in first..=last {
                prop_assert_eq!(at(&whole, address), at(&part, address));
                let matched = rib.longest_match(address).map_or(NextHopIndex::NONE, |found| found.next_hop);
                prop_assert_eq!(at(&part, address), matched);
            }
        }
    }
}
