//! Whether lookups answer as the routes do. [`fib::Fib::check`] compares all that a table has in its memory; this here
//! asks the table as a worker does, one address at a time and in batches, and takes the answers from elsewhere:
//!
//! * The first and the last address of each range that the table has, where a mistake of one would show. The answer is
//!   that of the range, which `check` has compared with the routes.
//! * An address inside each of many prefixes, and its neighbours outside. The answer is the longest match among the
//!   routes, a search that has nothing in common with compiling.

use std::fmt;
use std::net::IpAddr;

use fib::synthesize::random_bits;
use fib::{DynTable, NextHopIndex, Rib};
use packet::Family;
use packet::random::SplitMix64;

/// About how many prefixes are asked for an address inside.
const PREFIXES: usize = 100_000;
/// Addresses in a batch: no multiple of [`fib::BURST`], so that the rest at the end is asked for as well.
const BATCH: usize = 1000;

/// An address that a lookup sends elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrongLookup {
    address: IpAddr,
    /// Whether it was asked for in a batch.
    in_batch: bool,
    expected: NextHopIndex,
    found: NextHopIndex,
}

impl fmt::Display for WrongLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.in_batch { "a lookup in a batch" } else { "a lookup" };
        let WrongLookup { address, expected, found, .. } = self;
        write!(f, "{address} goes to next hop {} by {how}, {} by its routes", found.get(), expected.get())
    }
}

/// Asks `table` for addresses and returns for how many, and the first wrong answer.
pub(super) fn ask<A: Family>(rib: &Rib<A>, table: &dyn DynTable<A>, seed: u64) -> (u64, Option<WrongLookup>) {
    let mut questions = Questions { table, asked: Vec::with_capacity(BATCH), count: 0, wrong: None };
    let mut last: Option<NextHopIndex> = None;
    table.for_each_range(&mut |start: A, next_hop| {
        if let Some(before) = last.replace(next_hop) {
            // Neighbours with the same next hop are one range.
            if before == next_hop {
                return;
            }
            questions.put(start.previous(), before);
        }
        questions.put(start, next_hop);
    });
    if let Some(last) = last {
        questions.put(A::MAX, last);
    }
    let mut random = SplitMix64::new(seed);
    let step = rib.len() / PREFIXES + 1;
    let skip = random.below(step as u64) as usize;
    for found in rib.iter().skip(skip).step_by(step) {
        let (network, length) = A::parts(found.prefix);
        let inside = network | random_bits::<A>(A::BITS - length, &mut random);
        let last = network | !A::mask(length);
        for address in [network.previous(), inside, last.next()] {
            let route = rib.longest_match(address);
            questions.put(address, route.map_or(NextHopIndex::NONE, |found| found.next_hop));
        }
    }
    questions.ask();
    (questions.count, questions.wrong)
}

/// Addresses with the answers that are right.
struct Questions<'a, A: Family> {
    table: &'a dyn DynTable<A>,
    asked: Vec<(A, NextHopIndex)>,
    count: u64,
    /// The first wrong answer.
    wrong: Option<WrongLookup>,
}

impl<A: Family> Questions<'_, A> {
    fn put(&mut self, address: A, expected: NextHopIndex) {
        self.asked.push((address, expected));
        if self.asked.len() == BATCH {
            self.ask();
        }
    }

    fn ask(&mut self) {
        let addresses: Vec<A> = self.asked.iter().map(|(address, _)| *address).collect();
        let mut answers = vec![NextHopIndex::NONE; addresses.len()];
        self.table.lookup_batch(&addresses, &mut answers);
        self.count += addresses.len() as u64;
        for ((address, expected), in_batch) in self.asked.drain(..).zip(answers) {
            let alone = self.table.lookup(address);
            for (found, in_batch) in [(alone, false), (in_batch, true)] {
                if found != expected && self.wrong.is_none() {
                    self.wrong = Some(WrongLookup { address: address.to_ip(), in_batch, expected, found });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use fib::{LocalFib, Rank, Table, TableError};

    fn rib(prefixes: &[(&str, u16)]) -> Rib<u32> {
        let mut rib = Rib::new();
        for (prefix, number) in prefixes {
            rib.insert(prefix.parse().unwrap(), NextHopIndex::new(*number).unwrap()).unwrap();
        }
        rib
    }

    /// A table that is right in its memory and wrong in its lookups, where the field says.
    struct Lying {
        inner: LocalFib<u32, Rank>,
        /// The address, and whether it is wrong in batches or alone.
        lie: (u32, bool),
    }

    impl Lying {
        fn answer(&self, address: u32, in_batch: bool) -> NextHopIndex {
            if (address, in_batch) == self.lie { NextHopIndex::MAX } else { self.inner.lookup(address) }
        }
    }

    impl Table<u32> for Lying {
        const NAME: &'static str = "lying";
        type Compiler = ();

        fn new() -> Result<Self, TableError> {
            Ok(Lying { inner: LocalFib::new()?, lie: (0, false) })
        }

        fn lookup(&self, address: u32) -> NextHopIndex {
            self.answer(address, false)
        }

        fn lookup_batch(&self, addresses: &[u32], next_hops: &mut [NextHopIndex]) {
            for (address, next_hop) in addresses.iter().zip(next_hops) {
                *next_hop = self.answer(*address, true);
            }
        }

        fn update(&mut self, _: &mut (), _: &Rib<u32>, _: ipnet::Ipv4Net) -> Result<(), TableError> {
            Ok(())
        }

        fn rebuild(&mut self, _: &mut (), _: &Rib<u32>) -> Result<(), TableError> {
            Ok(())
        }

        fn catch_up(&mut self, _: &mut (), _: &Self) {}

        fn for_each_range(&self, visit: &mut dyn FnMut(u32, NextHopIndex)) {
            Table::for_each_range(self.inner.table(), visit);
        }

        fn memory_bytes(&self) -> usize {
            0
        }

        fn expected_bytes(_: usize) -> usize {
            0
        }
    }

    #[test]
    fn a_wrong_lookup_at_either_end_of_a_range_is_found() {
        let routes = rib(&[("10.0.0.0/8", 1), ("10.9.0.0/16", 2), ("10.9.1.1/32", 3), ("255.0.0.0/8", 4)]);
        let inner = || LocalFib::build(routes.clone()).unwrap();
        let (count, wrong) = ask(&routes, inner().table(), 1);
        assert_eq!((count > 20, wrong), (true, None));
        for in_batch in [false, true] {
            for address in [
                0,
                0x09ff_ffff,
                0x0a00_0000,
                0x0a09_0000,
                0x0a09_0100,
                0x0a09_0101,
                0x0a09_0102,
                0x0aff_ffff,
                u32::MAX,
            ] {
                let table = Lying { inner: inner(), lie: (address, in_batch) };
                let wrong = ask(&routes, &table, 1).1.unwrap();
                let expected = table.inner.lookup(address);
                let found = NextHopIndex::MAX;
                assert_eq!(wrong, WrongLookup { address: address.to_ip(), in_batch, expected, found });
            }
        }
    }

    #[test]
    fn a_table_of_other_routes_is_found() {
        let table = LocalFib::<u32, Rank>::build(rib(&[("10.0.0.0/8", 1)])).unwrap();
        let wrong = ask(&rib(&[("10.0.0.0/8", 2)]), table.table(), 1).1.unwrap();
        let text = wrong.to_string();
        assert!(
            text.starts_with("10.") && text.ends_with("goes to next hop 1 by a lookup, 2 by its routes"),
            "{text}"
        );
    }
}
