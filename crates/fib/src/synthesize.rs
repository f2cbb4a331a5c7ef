//! Tables of any size and traffic that fits them, for benchmarks and demonstrations. The same arguments give the same
//! result on every machine and in every version: figures can be compared.
//!
//! The public data that tables come from has no nesting: overlapping more-specifics were flattened away. [`table`]
//! puts them back the way they are in the wild, where they are mostly /24s announced inside an aggregate, and /48s in
//! IPv6: the longest prefixes that networks accept from each other.

use std::collections::HashSet;

use packet::random::{SplitMix64, mixed};
use packet::{Family, IpVersion};

use crate::NextHopIndex;
use crate::read::Row;

/// The length of the prefixes that are announced inside shorter ones: 24 in IPv4, 48 in IPv6.
pub fn nested_length<A: Family>() -> u8 {
    match A::VERSION {
        IpVersion::V4 => 24,
        IpVersion::V6 => 48,
    }
}

/// An address whose last `bits` bits are random, and the others clear.
pub fn random_bits<A: Family>(bits: u8, random: &mut SplitMix64) -> A {
    match A::VERSION {
        IpVersion::V4 => A::from_u128(random.below(1 << bits).into()),
        IpVersion::V6 => {
            let (high, low) = (random.next_u64(), random.next_u64());
            A::from_u128(u128::from(high) << 64 | u128::from(low)) & !A::mask(128 - bits)
        }
    }
}

/// The next hop of an origin when there are `count` of them, 1 to `count`: all prefixes of one origin go the same
/// way, as they mostly do in a real table.
///
/// # Panics
///
/// If `count` is 0 or beyond [`NextHopIndex::MAX`].
pub fn next_hop_of_origin(origin: u32, count: u16) -> NextHopIndex {
    assert!(count >= 1 && count <= NextHopIndex::MAX.get(), "1 to 32,767 next hops");
    let number = 1 + (mixed(u64::from(origin)) % u64::from(count)) as u16;
    NextHopIndex::new(number).expect("1 + a number below count is at most count")
}

/// A table of `count` rows, in the order of addresses, made of `real`.
///
/// * Fewer than `real` has: a random sample of its rows.
/// * More: all of `real`, and inside randomly chosen prefixes of it that are shorter than /24 (IPv6: /48), random
///   /24s (/48s) with another origin. If there are not enough of them to announce, the table ends up smaller than
///   asked. In IPv6 that may also be where room is left in a few prefixes only.
///
/// No prefix comes twice: of several rows of `real` for one prefix, that with the lowest origin is used.
pub fn table<A: Family>(real: &[Row<A>], count: usize, seed: u64) -> Vec<Row<A>> {
    let mut random = SplitMix64::new(seed);
    let mut real = real.to_vec();
    real.sort_unstable();
    real.dedup_by_key(|row| row.prefix);
    let mut rows =
        if count < real.len() { sample(&real, count, &mut random) } else { grow(&real, count, &mut random) };
    rows.sort_unstable();
    rows
}

/// `count` of the rows, each subset with the same chance (Knuth, TAOCP 3.4.2, Algorithm S).
fn sample<A: Family>(real: &[Row<A>], count: usize, random: &mut SplitMix64) -> Vec<Row<A>> {
    let mut rows = Vec::with_capacity(count);
    for (i, &row) in real.iter().enumerate() {
        let (left, wanted) = (real.len() - i, count - rows.len());
        if (random.below(left as u64) as usize) < wanted {
            rows.push(row);
        }
    }
    rows
}

fn grow<A: Family>(real: &[Row<A>], count: usize, random: &mut SplitMix64) -> Vec<Row<A>> {
    /// More networks than these are not listed; in IPv4 there are no more.
    const LISTED: u128 = 1 << 24;
    let mut rows = real.to_vec();
    let length = |row: &Row<A>| A::parts(row.prefix).1;
    let nested_length = nested_length::<A>();
    let aggregates: Vec<Row<A>> = real.iter().copied().filter(|row| length(row) < nested_length).collect();
    if aggregates.is_empty() {
        return rows;
    }
    let nested = real.iter().filter(|row| length(row) == nested_length);
    let mut announced: HashSet<A> = nested.map(|row| A::parts(row.prefix).0).collect();
    let is_listed = spans(&aggregates).map(|(_, first, last)| last - first + 1).sum::<u128>() <= LISTED;
    // After so many draws in a row of what is announced already most aggregates are full. Then the rest is listed or, where that is too long, left.
    let vain_draws = if is_listed { 300 } else { 100_000 };
    let another_origin = |than: u32, random: &mut SplitMix64| {
        let origin = real[random.below(real.len() as u64) as usize].origin;
        if origin == than { origin ^ 1 } else { origin }
    };
    let mut vain = 0;
    while rows.len() < count && vain < vain_draws {
        let aggregate = aggregates[random.below(aggregates.len() as u64) as usize];
        let network = address_inside::<A>(aggregate.prefix, random) & A::mask(nested_length);
        if !announced.insert(network) {
            vain += 1;
            continue;
        }
        vain = 0;
        let origin = another_origin(aggregate.origin, random);
        rows.push(Row { prefix: A::net(network, nested_length), origin });
    }
    if is_listed && rows.len() < count {
        let shift = A::BITS - nested_length;
        let inside = |(aggregate, first, last): (&Row<A>, u128, u128)| {
            let origin = aggregate.origin;
            let prefix = move |number: u128| A::net(A::from_u128(number << shift), nested_length);
            (first..=last).map(move |number| Row { prefix: prefix(number), origin })
        };
        let is_free = |row: &Row<A>| !announced.contains(&A::parts(row.prefix).0);
        let rest: Vec<Row<A>> = spans(&aggregates).flat_map(inside).filter(is_free).collect();
        let chosen = sample(&rest, rest.len().min(count - rows.len()), random).into_iter();
        rows.extend(chosen.map(|row| Row { origin: another_origin(row.origin, random), ..row }));
    }
    rows
}

/// Returns which networks of the nested length lie inside aggregates that are in order: the numbers of each one's first and last, without
/// those that an aggregate before it has.
fn spans<A: Family>(aggregates: &[Row<A>]) -> impl Iterator<Item = (&Row<A>, u128, u128)> {
    let shift = A::BITS - nested_length::<A>();
    let mut free = 0;
    aggregates.iter().filter_map(move |row| {
        let (first, last) = A::bounds(row.prefix);
        let (first, last) = ((first.to_u128() >> shift).max(free), last.to_u128() >> shift);
        free = free.max(last + 1);
        (first <= last).then_some((row, first, last))
    })
}

fn address_inside<A: Family>(prefix: A::Net, random: &mut SplitMix64) -> A {
    let (network, length) = A::parts(prefix);
    network | random_bits(A::BITS - length, random)
}

/// `count` random addresses in host order, each inside a prefix of `table` that is chosen at random: traffic goes
/// where routes go. Empty if the table is.
pub fn destinations_inside<A: Family>(table: &[Row<A>], count: usize, seed: u64) -> Vec<A> {
    if table.is_empty() {
        return Vec::new();
    }
    let mut random = SplitMix64::new(seed);
    let mut draw =
        || address_inside::<A>(table[random.below(table.len() as u64) as usize].prefix, &mut random);
    (0..count).map(|_| draw()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipnet::{Ipv4Net, Ipv6Net};
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;

    fn real() -> Vec<Row> {
        let mut random = SplitMix64::new(7);
        let mut row = |i: u32| Row {
            prefix: Ipv4Net::new((i << 16).into(), 16 + random.below(10) as u8).unwrap(),
            origin: random.below(100) as u32,
        };
        (1..1000).map(&mut row).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_table_and_another_seed_another() {
        for count in [500, 5000] {
            assert_eq!(table(&real(), count, 1), table(&real(), count, 1));
            assert_ne!(table(&real(), count, 1), table(&real(), count, 2));
        }
        assert_eq!(destinations_inside(&real(), 100, 1), destinations_inside(&real(), 100, 1));
        assert_ne!(destinations_inside(&real(), 100, 1), destinations_inside(&real(), 100, 2));
    }

    #[test]
    fn a_grown_table_nests_slash_24s_of_another_origin() {
        let real = real();
        let grown = table(&real, 5000, 1);
        assert_eq!(grown.len(), 5000);
        let prefixes: BTreeSet<Ipv4Net> = grown.iter().map(|row| row.prefix).collect();
        assert_eq!(prefixes.len(), grown.len(), "no prefix twice");
        assert!(grown.is_sorted());
        assert!(real.iter().all(|row| grown.binary_search(row).is_ok()));
        for row in grown.iter().filter(|row| !real.contains(row)) {
            let aggregate = real.iter().find(|real| real.prefix.contains(&row.prefix)).unwrap();
            assert_eq!(row.prefix.prefix_len(), 24);
            assert!(aggregate.prefix.prefix_len() < 24 && aggregate.origin != row.origin);
        }
    }

    /// Figures measured on grown tables are compared between versions: these are the sums that the first version,
    /// with its own code for IPv4, gave.
    #[test]
    fn tables_and_destinations_are_those_of_the_first_version() {
        let sum = |numbers: &mut dyn Iterator<Item = u64>| numbers.fold(0, |sum, n| mixed(sum ^ n));
        let rows = |count, seed| {
            sum(&mut table(&real(), count, seed).iter().flat_map(|row| {
                [u64::from(u32::from(row.prefix.addr())), row.prefix.prefix_len().into(), row.origin.into()]
            }))
        };
        assert_eq!(rows(500, 1), 0xfc05_f934_1c17_728f);
        assert_eq!(rows(5000, 1), 0xc3f8_3e38_32f7_4512);
        assert_eq!(rows(5000, 2), 0x852c_7815_037a_b6d4);
        let drawn = destinations_inside(&real(), 1000, 1);
        assert_eq!(sum(&mut drawn.into_iter().map(u64::from)), 0x8082_fb91_d9b9_e22b);
    }

    #[test]
    fn an_ipv6_table_nests_slash_48s_and_keeps_the_seed() {
        let mut random = SplitMix64::new(7);
        let real: Vec<Row<u128>> = (1..500u128)
            .map(|i| Row {
                prefix: Ipv6Net::new((i << 96).into(), 32 + random.below(22) as u8).unwrap(),
                origin: random.below(100) as u32,
            })
            .collect();
        let grown = table(&real, 5000, 1);
        assert_eq!(grown, table(&real, 5000, 1));
        assert_ne!(grown, table(&real, 5000, 2));
        assert!(grown.len() == 5000 && grown.is_sorted());
        assert!(real.iter().all(|row| grown.binary_search(row).is_ok()));
        for row in grown.iter().filter(|row| !real.contains(row)) {
            let aggregate = real.iter().find(|real| real.prefix.contains(&row.prefix)).unwrap();
            assert_eq!((row.prefix.prefix_len(), row.prefix.trunc()), (48, row.prefix));
            assert!(aggregate.prefix.prefix_len() < 48 && aggregate.origin != row.origin);
        }
        assert_eq!(table(&real, 100, 1).len(), 100);
        for address in destinations_inside(&real, 1000, 1) {
            assert!(real.iter().any(|row| row.prefix.contains(&std::net::Ipv6Addr::from(address))));
        }
        let everywhere = [Row::<u128> { prefix: "::/0".parse().unwrap(), origin: 1 }];
        let drawn = destinations_inside(&everywhere, 100, 1);
        assert!(
            drawn.iter().any(|address| address >> 127 == 1) && drawn.iter().any(|address| address & 1 == 1)
        );
    }

    #[test]
    fn a_sample_is_made_of_the_rows_that_are_there() {
        let real = real();
        let sampled = table(&real, 100, 1);
        assert_eq!(sampled.len(), 100);
        assert!(sampled.iter().all(|row| real.contains(row)));
        assert!(table(&real, 0, 1).is_empty());
    }

    #[test]
    fn a_prefix_with_two_origins_comes_once() {
        let row = |origin| Row::<u32> { prefix: "10.0.0.0/16".parse().unwrap(), origin };
        assert_eq!(table(&[row(749), row(721)], 1, 1), [row(721)]);
        assert_eq!(
            table(&[row(749), row(721)], 2, 1).iter().filter(|row| row.prefix.prefix_len() == 16).count(),
            1
        );
    }

    #[test]
    fn growing_ends_where_there_is_no_room() {
        let one = [Row::<u32> { prefix: "10.0.0.0/22".parse().unwrap(), origin: 1 }];
        assert_eq!(table(&one, 1000, 1).len(), 1 + 4);
        assert!(table::<u32>(&[], 1000, 1).is_empty());
        assert!(destinations_inside::<u128>(&[], 10, 1).is_empty());
    }

    /// Most aggregates are full early, and one has nearly all the room: what draws do not find is listed.
    #[test]
    fn a_table_grows_to_any_size_for_which_there_is_room() {
        let small = (0..2000_u32).map(|i| Ipv4Net::new((0x1000_0000 + (i << 9)).into(), 23).unwrap());
        let nested: Ipv4Net = "16.0.1.0/24".parse().unwrap();
        let overlapping: [Ipv4Net; 2] = ["32.0.0.0/14".parse().unwrap(), "32.1.0.0/16".parse().unwrap()];
        let prefixes = small.chain([nested]).chain(overlapping);
        let real: Vec<Row> = prefixes.map(|prefix| Row { prefix, origin: 7 }).collect();
        let known: BTreeSet<&Row> = real.iter().collect();
        let room = 2 * 2000 - 1 + 1024;
        for more in [room - 100, room - 1, room, room + 5] {
            let grown = table(&real, real.len() + more, 1);
            assert_eq!(grown.len(), real.len() + more.min(room));
            let prefixes: BTreeSet<Ipv4Net> = grown.iter().map(|row| row.prefix).collect();
            assert_eq!(prefixes.len(), grown.len(), "no prefix twice");
            assert!(grown.is_sorted() && real.iter().all(|row| grown.binary_search(row).is_ok()));
            for row in grown.iter().filter(|row| !known.contains(row)) {
                let aggregates =
                    [14, 16, 23].map(|length| Ipv4Net::new(row.prefix.addr(), length).unwrap().trunc());
                let is_inside = aggregates.iter().any(|&prefix| known.contains(&Row { prefix, origin: 7 }));
                assert!(is_inside && row.prefix.prefix_len() == 24 && row.origin == 6, "{row:?}");
            }
        }
        // What is left out differs by the seed.
        assert_ne!(table(&real, real.len() + room - 1, 1), table(&real, real.len() + room - 1, 2));
    }

    #[test]
    fn destinations_lie_inside_prefixes_up_to_the_ends_of_the_address_space() {
        let ends = ["0.0.0.0/0", "255.255.255.255/32", "0.0.0.0/31"];
        let table: Vec<Row> =
            ends.iter().map(|end| Row { prefix: end.parse().unwrap(), origin: 1 }).collect();
        let drawn = destinations_inside(&table[1..], 100, 3);
        let inside = |address| table[1..].iter().any(|row| row.prefix.contains(&Ipv4Addr::from(address)));
        assert!(drawn.into_iter().all(inside));
        assert!(destinations_inside(&table[..1], 100, 3).iter().any(|&address| address >> 31 == 1));
    }

    #[test]
    fn next_hops_follow_the_origin_and_spread() {
        let used: BTreeSet<u16> = (0..1000).map(|origin| next_hop_of_origin(origin, 16).get()).collect();
        assert_eq!(used, (1..=16).collect());
        assert_eq!(next_hop_of_origin(13335, 16), next_hop_of_origin(13335, 16));
        assert_eq!(next_hop_of_origin(13335, 1).get(), 1);
    }
}
