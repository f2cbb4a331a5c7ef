//! The forwarding table `sorted`: the first addresses of all ranges in a sorted list, and a binary search in it.
//!
//! A million routes are 20 steps, each a cache miss. It compiles everything anew after any change.

use fib::{NextHopIndex, Rib, Table, TableError};
use packet::Family;

/// The table, for IPv4 (`u32`) or IPv6 (`u128`).
pub struct Sorted<A> {
    /// The first address of each range, ascending. There is always one for the lowest address.
    starts: Vec<A>,
    next_hops: Vec<NextHopIndex>,
}

impl<A: Family> Table<A> for Sorted<A> {
    const NAME: &'static str = "sorted";
    type Compiler = ();

    fn new() -> Result<Self, TableError> {
        Ok(Self { starts: vec![A::MIN], next_hops: vec![NextHopIndex::NONE] })
    }

    fn lookup(&self, address: A) -> NextHopIndex {
        self.next_hops[self.starts.partition_point(|&start| start <= address) - 1]
    }

    fn update(&mut self, (): &mut (), rib: &Rib<A>, _prefix: A::Net) -> Result<(), TableError> {
        self.rebuild(&mut (), rib)
    }

    /// All changes of a publication at once: once is enough.
    fn update_all(&mut self, (): &mut (), rib: &Rib<A>, _prefixes: &[A::Net]) -> Result<(), TableError> {
        self.rebuild(&mut (), rib)
    }

    fn surely_fits(_rib: &Rib<A>) -> bool {
        true
    }

    fn rebuild(&mut self, (): &mut (), rib: &Rib<A>) -> Result<(), TableError> {
        (self.starts, self.next_hops) = rib.ranges().into_iter().unzip();
        Ok(())
    }

    fn catch_up(&mut self, (): &mut (), ahead: &Self) {
        self.starts.clone_from(&ahead.starts);
        self.next_hops.clone_from(&ahead.next_hops);
    }

    fn for_each_range(&self, visit: &mut dyn FnMut(A, NextHopIndex)) {
        self.starts.iter().zip(&self.next_hops).for_each(|(&start, &next_hop)| visit(start, next_hop));
    }

    fn memory_bytes(&self) -> usize {
        self.starts.capacity() * size_of::<A>() + self.next_hops.capacity() * size_of::<NextHopIndex>()
    }

    fn expected_bytes(routes: usize) -> usize {
        // A route begins a range and ends one.
        2 * routes * (size_of::<A>() + size_of::<NextHopIndex>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::{Fib, FibFamily, Kind, Kinds, Linear, LocalFib, MAIN, NextHop};
    use packet::random::SplitMix64;

    /// Routes of all lengths that often contain each other come and go; in a FIB, with two copies of the table.
    fn agrees_with_a_linear_scan<A: FibFamily>() {
        let kinds = Kinds { ipv4: Kind::of::<Sorted<u32>>(), ipv6: Kind::of::<Sorted<u128>>() };
        let mut fib = Fib::<u16>::of_kinds(kinds).unwrap();
        let hops: Vec<NextHopIndex> =
            (0..8).map(|number| fib.next_hops_mut().add(NextHop::Forward(number)).unwrap()).collect();
        let mut linear = LocalFib::<A, Linear<A>>::new().unwrap();
        let mut random = SplitMix64::new(1);
        for _ in 0..50 {
            for _ in 0..20 {
                // Few of the leading bits are drawn, and all lengths.
                let length = random.below(u64::from(A::BITS) + 1) as u8;
                let high =
                    u128::from(random.next_u64() & 0xf0f0_f0f0) << 96 | u128::from(random.next_u64() & 7);
                let prefix =
                    A::net(A::from_u128(high >> (128 - u32::from(A::BITS))) & A::mask(length), length);
                if random.below(4) == 0 {
                    assert_eq!(fib.remove(MAIN, prefix.into()).is_ok(), linear.remove(prefix).is_ok());
                } else {
                    let hop = hops[random.below(8) as usize];
                    fib.replace(MAIN, prefix.into(), hop).unwrap();
                    linear.replace(prefix, hop).unwrap();
                }
            }
            fib.publish();
            let edges = linear.rib().iter().flat_map(|route| {
                let (first, last) = A::bounds(route.prefix);
                [first.previous(), first, last, last.next()]
            });
            let addresses: Vec<A> = edges.chain([A::MIN, A::MAX]).collect();
            let mut found = vec![NextHopIndex::NONE; addresses.len()];
            A::table(fib.state(), 0).unwrap().lookup_batch(&addresses, &mut found);
            for (&address, found) in addresses.iter().zip(found) {
                assert_eq!(found, linear.lookup(address), "{address:x?}");
            }
            assert!(fib.check().is_good());
        }
        assert!(linear.rib().len() > 100);
    }

    #[test]
    fn it_agrees_with_a_linear_scan() {
        agrees_with_a_linear_scan::<u32>();
        agrees_with_a_linear_scan::<u128>();
    }

    #[test]
    fn it_is_found_by_its_name() {
        fib::add_tables(crate::TABLES);
        assert!(Kind::<u32>::named("sorted").is_ok() && Kind::<u128>::named("sorted").is_ok());
        let unknown = Kind::<u128>::named("radix").unwrap_err().to_string();
        assert!(unknown.contains("range_tree, linear or sorted"), "{unknown}");
    }
}
