//! The routes and addresses of these benches: the files of the project's `data` folder, each read once.

#![allow(dead_code, reason = "each bench uses its part")]

use fib::Rib;
use fib::read::Row;
use fib::synthesize::{self, next_hop_of_origin};
use packet::random::SplitMix64;
use packet::{Family, IpVersion};
use std::path::Path;

/// Next hops of the routes: 1 to this number, as `brickway-lab bench fib` has them.
pub(crate) const NEXT_HOPS: u16 = 64;
const ROUTES_OF_A_MILLION: usize = 1_000_000;
const HOT_ADDRESSES: usize = 1000;

/// A table to compile.
pub(crate) struct Routes<A: Family> {
    /// As `brickway-lab bench fib` calls it.
    pub(crate) name: &'static str,
    pub(crate) rib: Rib<A>,
    /// Prefix and next hop of each route, in no order.
    rows: Vec<Row<A>>,
}

/// The real IPv4 table.
pub(crate) fn ipv4_real() -> Routes<u32> {
    Routes::of("v4-real", read("rib-v4.txt.gz"))
}

/// The real IPv4 table, grown to a million routes.
pub(crate) fn ipv4_million() -> Routes<u32> {
    Routes::of("v4-1m", synthesize::table(&read("rib-v4.txt.gz"), ROUTES_OF_A_MILLION, 2))
}

/// The real IPv6 table.
pub(crate) fn ipv6_real() -> Routes<u128> {
    Routes::of("v6-real", read("rib-v6.txt.gz"))
}

/// # Panics
///
/// If the file is missing or has bad rows: there is nothing to measure then.
fn read<A: Family>(name: &str) -> Vec<Row<A>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data").join(name);
    match fib::read::load(&path) {
        Ok(table) if !table.rows.is_empty() => table.rows,
        Ok(_) => panic!("'{}' has no good row; data/README.md says how it is made", path.display()),
        Err(error) => panic!(
            "cannot read '{}', which belongs to the project's files and is made as data/README.md says: {error}",
            path.display()
        ),
    }
}

impl<A: Family> Routes<A> {
    fn of(name: &'static str, rows: Vec<Row<A>>) -> Self {
        let mut rib = Rib::new();
        for row in &rows {
            // A prefix that the file has twice has its first row's next hop.
            let _ = rib.insert(row.prefix, next_hop_of_origin(row.origin, NEXT_HOPS));
        }
        Routes { name, rib, rows }
    }

    /// The prefixes of `count` routes chosen at random.
    pub(crate) fn some(&self, count: usize) -> Vec<A::Net> {
        let mut random = SplitMix64::new(5);
        (0..count).map(|_| self.rows[random.below(self.rows.len() as u64) as usize].prefix).collect()
    }

    /// Lists of `count` addresses, with what each is called: `random` over the address space (of IPv6 2000::/3);
    /// `inside`, each in a prefix chosen at random; `hot`, of 1,000 such ones.
    pub(crate) fn addresses(&self, count: usize) -> [(&'static str, Vec<A>); 3] {
        let mut random = SplitMix64::new(3);
        let anywhere = (0..count).map(|_| anywhere(&mut random)).collect();
        let inside = synthesize::destinations_inside(&self.rows, count, 3);
        let hot =
            (0..count).map(|_| inside[random.below(HOT_ADDRESSES.min(count) as u64) as usize]).collect();
        [("random", anywhere), ("inside", inside), ("hot", hot)]
    }
}

/// A random address of the part of the address space that is in use.
fn anywhere<A: Family>(random: &mut SplitMix64) -> A {
    match A::VERSION {
        IpVersion::V4 => A::from_u128(random.next_u64().into()),
        IpVersion::V6 => A::from_u128(1 << 125) | synthesize::random_bits(125, random),
    }
}
