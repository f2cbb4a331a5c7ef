//! Integrity: whether the tables say what the routes say.
//!
//! Both are walked as ranges of addresses with one next hop, in ascending order: the routes flattened, the table as
//! it is in memory. The ranges are compared one by one, and each side gives a digest, so that two routers (or two
//! moments) can be compared by one number.

use super::{Fib, Half};
use crate::{AnyTable, FibFamily, NextHopIndex, Rib};
use packet::{Family, IpVersion};
use std::fmt;
use std::hash::Hash;
use std::net::IpAddr;

/// What [`Fib::check`] found.
#[derive(Clone, Debug)]
pub struct CheckReport {
    /// For each VRF and family: the active table, then the passive one.
    pub tables: Vec<TableReport>,
    /// Memory of the RIBs and of one copy of the next hops, estimated; bytes.
    pub control_bytes: usize,
}

impl CheckReport {
    /// Whether every table says what its routes say.
    pub fn is_good(&self) -> bool {
        self.tables.iter().all(|table| table.mismatch.is_none())
    }
}

/// What was found about one table.
#[derive(Clone, Debug)]
pub struct TableReport {
    /// The number of the VRF's table.
    pub vrf: u32,
    /// `IPv4` or `IPv6`.
    pub family: IpVersion,
    /// The table's name.
    pub name: &'static str,
    /// Whether it is the one that workers read.
    pub is_active: bool,
    /// Prefixes with a route.
    pub routes: usize,
    /// Ranges of addresses with one next hop, by the routes.
    pub ranges: usize,
    /// A number that equal routes have in common, whatever table they are compiled to.
    pub digest: u64,
    /// Bytes that the table occupies.
    pub memory_bytes: usize,
    /// The first address on which they disagree.
    pub mismatch: Option<Mismatch>,
}

/// An address for which a table says something else than the routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The first such address.
    pub address: IpAddr,
    /// What the routes say.
    pub expected: NextHopIndex,
    /// What the table says.
    pub found: NextHopIndex,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mismatch { address, expected, found } = self;
        write!(f, "{address} goes to next hop {} by the table, {} by its routes", found.get(), expected.get())
    }
}

/// Takes ranges in ascending order, joins neighbours of the same next hop, and keeps a digest.
struct Joined<A> {
    ranges: Vec<(A, NextHopIndex)>,
}

impl<A: Family> Joined<A> {
    fn push(&mut self, start: A, next_hop: NextHopIndex) {
        if self.ranges.last().is_none_or(|last| last.1 != next_hop) {
            self.ranges.push((start, next_hop));
        }
    }
}

/// FNV-1a over whole words: enough to tell tables apart that differ by accident.
fn digest<A: Family>(ranges: &[(A, NextHopIndex)]) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    let mut mix = |word: u64| digest = (digest ^ word).wrapping_mul(PRIME).rotate_left(23);
    for &(start, next_hop) in ranges {
        let start = start.to_u128();
        mix((start >> 64) as u64);
        mix(start as u64);
        mix(u64::from(next_hop.get()));
    }
    digest
}

/// Compares a table with the routes it was compiled from. Returns how many ranges the routes have, their digest, and
/// the first address on which the two disagree.
fn compare<A: FibFamily>(rib: &Rib<A>, table: &AnyTable<A>) -> (usize, u64, Option<Mismatch>) {
    let expected = rib.ranges();
    let mut found = Joined { ranges: Vec::with_capacity(expected.len()) };
    table.for_each_range(&mut |start, next_hop| found.push(start, next_hop));
    let digest_expected = digest(&expected);
    if digest_expected == digest(&found.ranges) && expected == found.ranges {
        return (expected.len(), digest_expected, None);
    }
    (expected.len(), digest_expected, first_difference(&expected, &found.ranges))
}

/// The first address at which two lists of ranges differ.
fn first_difference<A: Family>(
    expected: &[(A, NextHopIndex)],
    found: &[(A, NextHopIndex)],
) -> Option<Mismatch> {
    let at = |ranges: &[(A, NextHopIndex)], address: A| {
        let place = ranges.partition_point(|range| range.0 <= address);
        place.checked_sub(1).map_or(NextHopIndex::NONE, |place| ranges[place].1)
    };
    let same = expected.iter().zip(found).take_while(|(expected, found)| expected == found).count();
    // Where they part, one of the two begins a range that the other does not.
    let starts = [expected.get(same), found.get(same)].into_iter().flatten().map(|range| range.0);
    let address = starts.min()?;
    let (expected, found) = (at(expected, address), at(found, address));
    // A table that has no ranges at all says nothing even where no route is what the routes say.
    Some(Mismatch { address: address.to_ip(), expected, found })
}

impl<P: Copy + Eq + Hash + Send + Sync> Fib<P> {
    /// Compares every table, the one that workers read and the other, with its routes. Takes some hundred
    /// milliseconds for a full table; workers are not disturbed.
    pub fn check(&mut self) -> CheckReport {
        let mut report =
            CheckReport { tables: Vec::new(), control_bytes: self.next_hops.resolver().memory_bytes() };
        let (passive, active) = self.writer.both();
        for (&vrf, routes) in &self.vrfs {
            let both = [(active.vrfs.get(routes.index), true), (passive.vrfs.get(routes.index), false)];
            for (tables, is_active) in both {
                let Some(Some(tables)) = tables else { continue };
                report.tables.push(check_half(vrf, &routes.ipv4, &tables.ipv4, is_active));
                report.tables.push(check_half(vrf, &routes.ipv6, &tables.ipv6, is_active));
            }
            report.control_bytes += routes.ipv4.rib.memory_bytes() + routes.ipv6.rib.memory_bytes();
        }
        report
    }
}

fn check_half<A: FibFamily>(vrf: u32, half: &Half<A>, table: &AnyTable<A>, is_active: bool) -> TableReport {
    let (ranges, digest, mismatch) = compare(&half.rib, table);
    TableReport {
        vrf,
        family: A::VERSION,
        name: table.name(),
        is_active,
        routes: half.rib.len(),
        ranges,
        digest,
        memory_bytes: table.memory_bytes(),
        mismatch,
    }
}
