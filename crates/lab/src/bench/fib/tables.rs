//! What is looked up, and where: routes and address lists, the same to the bit for every engine and on every machine.
//!
//! | table | routes |
//! | --- | --- |
//! | `v4-real` | data/rib-v4.txt.gz |
//! | `v4-1m` | that, grown to a million with /24s inside its prefixes (`fib::synthesize::table`, seed 2) |
//! | `v6-real` | data/rib-v6.txt.gz |
//!
//! | addresses | a million, of which batches are taken in order |
//! | --- | --- |
//! | `random` | any address; of IPv6 any in 2000::/3, which is what is given out: mostly without a route |
//! | `inside` | each in a prefix chosen at random, as traffic to the whole Internet at once would be |
//! | `hot` | 1,000 of those, in random order a million times: a table that stays in the caches |
//!
//! A route's next hop is one of 64 by its origin, [`next_hop_of_origin`]. So many neighbours a router at an exchange
//! has; the tables themselves take more.
//!
//! # What is right
//!
//! An engine that answers something else than the routes say has no speed. So this file has its own longest match,
//! [`Truth`], which shares nothing with the engines: routes become intervals of addresses, and a binary search finds
//! the interval. Engines prove that they agree by a [`Checksum`] over all answers in order.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use fib::read::Row;
use fib::synthesize::{self, next_hop_of_origin};
use packet::random::SplitMix64;
use packet::{Family, IpVersion};

/// Next hops of the routes: 1 to this number.
pub(super) const NEXT_HOPS: u16 = 64;
/// Routes in `v4-1m`.
const GROWN_ROUTES: usize = 1_000_000;
const GROWN_SEED: u64 = 2;
/// Addresses in a list; a multiple of every batch size, and as many as 4 MB of IPv4 addresses.
pub(super) const ADDRESSES: usize = 1 << 20;
const HOT_ADDRESSES: usize = 1000;
/// Routes that an updates run changes, at most.
const UPDATES: usize = 20_000;

/// The tables that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum TableName {
    #[value(name = "v4-1m")]
    V4Million,
    #[value(name = "v4-real")]
    V4Real,
    #[value(name = "v6-real")]
    V6Real,
}

/// The address lists that can be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum AddressesName {
    Random,
    Inside,
    Hot,
}

/// The name of a value as the command line has it.
pub(super) fn name_of(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// A random address, any.
fn any_address<A: Family>(random: &mut SplitMix64) -> A {
    match A::VERSION {
        IpVersion::V4 => A::from_u128(random.next_u64().into()),
        IpVersion::V6 => A::from_u128(u128::from(random.next_u64()) << 64 | u128::from(random.next_u64())),
    }
}

/// A random address of the part of the address space that is in use.
fn address_in_use<A: Family>(random: &mut SplitMix64) -> A {
    let any = any_address::<A>(random).to_u128();
    match A::VERSION {
        IpVersion::V4 => A::from_u128(any),
        // 2000::/3, of which global addresses are allocated (RFC 4291, section 2.4).
        IpVersion::V6 => A::from_u128(any >> 3 | 1 << 125),
    }
}

/// A route as the engines get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route<A: Family> {
    pub(super) prefix: A::Net,
    /// 1 to [`NEXT_HOPS`].
    pub(super) next_hop: u16,
}

/// A table to load: each prefix once, by address and then by length.
pub(super) struct Routes<A: Family> {
    pub(super) name: String,
    pub(super) routes: Vec<Route<A>>,
}

impl<A: Family> Routes<A> {
    /// Of several rows for one prefix the one with the lowest origin counts, as in `synthesize::table`.
    pub(super) fn new(name: &str, mut rows: Vec<Row<A>>) -> Self {
        rows.sort_unstable_by_key(|row| {
            let (network, length) = A::parts(row.prefix);
            (network, length, row.origin)
        });
        rows.dedup_by_key(|row| row.prefix);
        let route = |row: Row<A>| Route {
            prefix: row.prefix,
            next_hop: next_hop_of_origin(row.origin, NEXT_HOPS).get(),
        };
        Self { name: name.to_owned(), routes: rows.into_iter().map(route).collect() }
    }

    /// The numbers of different routes, for an updates run.
    pub(super) fn update_order(&self) -> Vec<u32> {
        let mut random = SplitMix64::new(5);
        let (mut drawn, mut order) = (HashSet::new(), Vec::new());
        while order.len() < UPDATES.min(self.routes.len() / 2) {
            let number = random.below(self.routes.len() as u64) as u32;
            if drawn.insert(number) {
                order.push(number);
            }
        }
        order
    }
}

impl<A: Family> Routes<A> {
    /// A list of addresses to look up.
    pub(super) fn addresses(&self, name: AddressesName) -> Vec<A> {
        let mut random = SplitMix64::new(3);
        let mut list = |count: usize, mut draw: Box<dyn FnMut(&mut SplitMix64) -> A + '_>| -> Vec<A> {
            (0..count).map(|_| draw(&mut random)).collect()
        };
        let inside = |random: &mut SplitMix64| {
            let route = &self.routes[random.below(self.routes.len() as u64) as usize];
            let (network, length) = A::parts(route.prefix);
            network | (any_address::<A>(random) & !A::mask(length))
        };
        match name {
            AddressesName::Random => list(ADDRESSES, Box::new(address_in_use)),
            AddressesName::Inside => list(ADDRESSES, Box::new(inside)),
            AddressesName::Hot => {
                let hot = list(HOT_ADDRESSES, Box::new(inside));
                list(ADDRESSES, Box::new(move |random| hot[random.below(hot.len() as u64) as usize]))
            }
        }
    }
}

/// Reads a table's rows. The few bad ones, such as a prefix that comes twice, are left out for every engine.
pub(super) fn read<A: Family>(path: &Path) -> Result<Vec<Row<A>>> {
    let table = fib::read::load::<A>(path).with_context(|| {
        format!(
            "cannot read the table '{}' (run in the project's folder, or name it with --data)",
            path.display()
        )
    })?;
    if table.rows.is_empty() {
        match table.errors.first() {
            Some(error) => bail!("'{}' has no good row; {error}", path.display()),
            None => bail!("'{}' is empty; a row is PREFIX ORIGIN, as '{}'", path.display(), example::<A>()),
        }
    }
    Ok(table.rows)
}

fn example<A: Family>() -> &'static str {
    match A::VERSION {
        IpVersion::V4 => "192.0.2.0/24 64496",
        IpVersion::V6 => "2001:db8::/32 64496",
    }
}

/// The IPv4 tables by name.
pub(super) fn ipv4(name: TableName, folder: &Path) -> Result<Routes<u32>> {
    let mut rows = read::<u32>(&file(folder, "rib-v4.txt.gz"))?;
    if name == TableName::V4Million {
        rows = synthesize::table(&rows, GROWN_ROUTES, GROWN_SEED);
    }
    Ok(Routes::new(&name_of(&name), rows))
}

/// The IPv6 table.
pub(super) fn ipv6(name: TableName, folder: &Path) -> Result<Routes<u128>> {
    Ok(Routes::new(&name_of(&name), read::<u128>(&file(folder, "rib-v6.txt.gz"))?))
}

fn file(folder: &Path, name: &str) -> PathBuf {
    folder.join(name)
}

/// Next hops in order, in one number: a wrong one changes it, and so do two that are exchanged. The same arithmetic as
/// `add_to_checksum` of dpdk_tables.c.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Checksum(pub(super) u64);

impl Checksum {
    #[inline(always)]
    pub(super) fn add(&mut self, next_hop: u16) {
        // The multiplier of FNV-1a (64 bits).
        self.0 = (self.0 ^ u64::from(next_hop)).wrapping_mul(0x100_0000_01b3);
    }
}

/// Cuts the address space where routes begin and end. Yields the first address of each interval, ascending, with its
/// value: `outside` where no route is, else what `inside` makes of the value around a route, its number and the route.
/// An interval ends before the next one; of several with one beginning the last counts.
pub(super) fn flatten<A: Family, V: Copy>(
    routes: &Routes<A>,
    outside: V,
    inside: impl Fn(V, usize, &Route<A>) -> V,
) -> Vec<(A, V)> {
    let mut intervals = vec![(A::MIN, outside)];
    // The prefixes that contain the place reached, outermost first: last address and value.
    let mut open: Vec<(A, V)> = Vec::new();
    let around = |open: &[(A, V)]| open.last().map_or(outside, |&(_, value)| value);
    let close_until = |first: Option<A>, open: &mut Vec<(A, V)>, intervals: &mut Vec<(A, V)>| {
        while let Some(&(last, _)) = open.last()
            && first.is_none_or(|first| last < first)
        {
            open.pop();
            if last != A::MAX {
                intervals.push((last.next(), around(open)));
            }
        }
    };
    for (number, route) in routes.routes.iter().enumerate() {
        let (first, length) = A::parts(route.prefix);
        close_until(Some(first), &mut open, &mut intervals);
        let value = inside(around(&open), number, route);
        intervals.push((first, value));
        open.push((first | !A::mask(length), value));
    }
    close_until(None, &mut open, &mut intervals);
    intervals
}

/// The value of the interval that has the address.
pub(super) fn value_at<A: Family, V: Copy>(intervals: &[(A, V)], address: A) -> V {
    let after = intervals.partition_point(|&(first, _)| first <= address);
    intervals[after - 1].1
}

/// What the routes say, found in the plainest way.
pub(super) struct Truth<A> {
    /// Where an interval of one next hop begins, see [`flatten`]. 0 is not a route.
    intervals: Vec<(A, u16)>,
}

impl<A: Family> Truth<A> {
    pub(super) fn new(routes: &Routes<A>) -> Self {
        Self { intervals: flatten(routes, 0, |_, _, route| route.next_hop) }
    }

    pub(super) fn lookup(&self, address: A) -> u16 {
        value_at(&self.intervals, address)
    }

    /// What an engine's checksum of these addresses must be.
    pub(super) fn checksum(&self, addresses: &[A]) -> Checksum {
        let mut checksum = Checksum::default();
        for &address in addresses {
            checksum.add(self.lookup(address));
        }
        checksum
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use proptest::prelude::*;

    /// Routes of few and short prefixes, so that they nest and touch, at both ends of the address space.
    fn routes<A: Family>(seeds: &[(u8, u8, u32)], network: impl Fn(u8) -> A) -> Routes<A> {
        let row = |&(byte, length, origin): &(u8, u8, u32)| {
            let prefix = A::net(network(byte) & A::mask(length), length);
            Row { prefix, origin }
        };
        Routes::new("test", seeds.iter().map(row).collect())
    }

    /// Looks at every route.
    fn slow<A: Family>(routes: &Routes<A>, address: A) -> u16 {
        let matching = routes.routes.iter().filter(|route| {
            let (network, length) = A::parts(route.prefix);
            address & A::mask(length) == network
        });
        matching.max_by_key(|route| A::parts(route.prefix).1).map_or(0, |route| route.next_hop)
    }

    fn seeds() -> impl Strategy<Value = Vec<(u8, u8, u32)>> {
        prop::collection::vec((prop_oneof![0..4u8, 252..=255u8, any::<u8>()], 0..=8u8, 0..1000u32), 0..30)
    }

    proptest! {
        #[test]
        fn the_truth_is_what_looking_at_every_route_finds(seeds in seeds()) {
            let ipv4 = routes(&seeds, |byte| u32::from(byte) << 24);
            let ipv6 = routes(&seeds, |byte| u128::from(byte) << 120);
            let (truth4, truth6) = (Truth::new(&ipv4), Truth::new(&ipv6));
            for byte in 0..=255u8 {
                for rest in [0, 0x00ff_ffff] {
                    let address = u32::from(byte) << 24 | rest;
                    prop_assert_eq!(truth4.lookup(address), slow(&ipv4, address));
                    let address = u128::from(byte) << 120 | u128::from(rest);
                    prop_assert_eq!(truth6.lookup(address), slow(&ipv6, address));
                }
            }
        }
    }

    #[test]
    fn a_prefix_comes_once_and_in_order() {
        let row = |text: &str, origin| Row::<u32> { prefix: text.parse().unwrap(), origin };
        let rows = vec![row("10.0.0.0/16", 7), row("10.0.0.0/8", 1), row("10.0.0.0/16", 3)];
        let routes = Routes::new("test", rows);
        let expected = [("10.0.0.0/8", 1), ("10.0.0.0/16", 3)].map(|(prefix, origin)| Route {
            prefix: prefix.parse().unwrap(),
            next_hop: next_hop_of_origin(origin, NEXT_HOPS).get(),
        });
        assert_eq!(routes.routes, expected);
    }

    #[test]
    fn addresses_lie_where_their_name_says() {
        let rows = ["2001:db8::/48", "2001:db8:1:2::/64"]
            .map(|text| Row::<u128> { prefix: text.parse().unwrap(), origin: 1 });
        let routes = Routes::new("test", rows.to_vec());
        let truth = Truth::new(&routes);
        let inside = routes.addresses(AddressesName::Inside);
        assert_eq!(inside.len(), ADDRESSES);
        assert!(inside.iter().all(|&address| truth.lookup(address) != 0));
        assert_eq!(inside, routes.addresses(AddressesName::Inside), "the same every time");
        let hot: HashSet<u128> = routes.addresses(AddressesName::Hot).into_iter().collect();
        assert_eq!(hot.len(), HOT_ADDRESSES);
        let random = routes.addresses(AddressesName::Random);
        assert!(random.iter().all(|address| address >> 125 == 1));
    }

    #[test]
    fn updates_are_of_different_routes() {
        let rows = (0..100u32)
            .map(|number| Row::<u32> { prefix: <u32 as Family>::net(number << 24, 8), origin: number });
        let order = Routes::new("test", rows.collect()).update_order();
        assert_eq!(order.len(), 50);
        assert_eq!(order.iter().collect::<HashSet<_>>().len(), 50);
        assert!(order.iter().all(|&number| number < 100));
    }

    #[test]
    fn a_checksum_sees_a_wrong_next_hop_and_two_exchanged_ones() {
        let of = |next_hops: &[u16]| {
            let mut checksum = Checksum::default();
            next_hops.iter().for_each(|&next_hop| checksum.add(next_hop));
            checksum
        };
        assert_ne!(of(&[1, 2, 3]), of(&[1, 2, 4]));
        assert_ne!(of(&[1, 2, 3]), of(&[2, 1, 3]));
        // As the C side has it, so that one cannot change without the other.
        assert_eq!(of(&[1]), Checksum(0x100_0000_01b3));
    }
}
