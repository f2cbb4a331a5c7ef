//! What a worker looks up while routes change, and which answers are right at any moment.
//!
//! While the control thread changes routes nobody knows which of them a worker sees, but not every answer is possible.
//! The rules of change, [`other_next_hop`] and [`may_be_withdrawn`], are few enough to say for each address which
//! next hops it may have: those of its longest route that is never withdrawn, and of all longer ones. An address
//! without a route that stays may have none; such addresses are not looked up. For all others "no route" would
//! be a packet lost.

use fib::BURST;
use packet::Family;

use super::tables::{AddressesName, NEXT_HOPS, Routes, flatten, value_at};

/// The next hop that a route with this one changes to.
pub(super) fn other_next_hop(next_hop: u16) -> u16 {
    next_hop % NEXT_HOPS + 1
}

/// Whether the route of this number comes and goes: one in four.
pub(super) fn may_be_withdrawn(route: usize) -> bool {
    route % 4 == 3
}

/// In a set of next hops: no route.
const NO_ROUTE: u128 = 1;

/// A set of next hops: bit N for number N.
pub(super) fn set_of(next_hop: u16) -> u128 {
    1 << next_hop
}

/// Addresses inside prefixes, in random order, and what they may be answered.
pub(super) struct Traffic<A> {
    /// A multiple of [`BURST`].
    pub(super) addresses: Vec<A>,
    /// The next hops that each of them may have.
    pub(super) possible: Vec<u128>,
}

impl<A: Family> Traffic<A> {
    pub(super) fn new(routes: &Routes<A>) -> Self {
        let possible = flatten(routes, NO_ROUTE, |outer, number, route| {
            let own = set_of(route.next_hop) | set_of(other_next_hop(route.next_hop));
            if may_be_withdrawn(number) { outer | own } else { own }
        });
        let mut traffic = Traffic { addresses: Vec::new(), possible: Vec::new() };
        for address in routes.addresses(AddressesName::Inside) {
            let next_hops = value_at(&possible, address);
            if next_hops & NO_ROUTE == 0 {
                traffic.addresses.push(address);
                traffic.possible.push(next_hops);
            }
        }
        let whole = traffic.addresses.len() / BURST * BURST;
        traffic.addresses.truncate(whole);
        traffic.possible.truncate(whole);
        traffic
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use fib::read::Row;

    #[test]
    fn an_address_may_have_the_next_hops_down_to_a_route_that_stays() {
        // By number: 0 stays, 1 stays, 2 stays, 3 comes and goes; so do 7 and its only shelter is none.
        let prefixes = [
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.1.1.0/24",
            "10.1.1.128/25",
            "11.0.0.0/8",
            "12.0.0.0/8",
            "13.0.0.0/8",
            "14.0.0.0/8",
        ];
        let row = |(text, origin): (&&str, u32)| Row::<u32> { prefix: text.parse().unwrap(), origin };
        let routes = Routes::new("test", prefixes.iter().zip(1..).map(row).collect());
        let own = |number: usize| {
            let next_hop = routes.routes[number].next_hop;
            set_of(next_hop) | set_of(other_next_hop(next_hop))
        };
        let traffic = Traffic::new(&routes);
        let of = |inside: &dyn Fn(u32) -> bool| {
            let place = traffic.addresses.iter().position(|&address| inside(address));
            place.map(|place| traffic.possible[place])
        };
        assert_eq!(of(&|address| address >> 8 == 0x0a0101 && address & 0x80 == 0), Some(own(2)));
        assert_eq!(of(&|address| address >> 7 == 0x0a0101 << 1 | 1), Some(own(3) | own(2)));
        assert_eq!(of(&|address| address >> 24 == 13), Some(own(6)));
        assert_eq!(of(&|address| address >> 24 == 14), None, "it may be without a route");
        assert_eq!(traffic.addresses.len() % BURST, 0);
    }

    #[test]
    fn the_other_next_hop_is_another_one_of_the_table() {
        for next_hop in 1..=NEXT_HOPS {
            let other = other_next_hop(next_hop);
            assert!(other != next_hop && (1..=NEXT_HOPS).contains(&other));
        }
    }
}
