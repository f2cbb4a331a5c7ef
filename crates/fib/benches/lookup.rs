//! Lookups with criterion: each table, on real routes and on a million, for three kinds of addresses, in bursts, in bursts as
//! elements do (`chosen`: in a [`Fib`], whose table is chosen at run time), and one by one. `brickway-lab bench fib` sets them beside DPDK's; this is for work on a table, where criterion says whether a
//! change made a difference.
//!
//! ```text
//! cargo bench -p brickway-fib --bench lookup                        everything, three quarters of a minute
//! cargo bench -p brickway-fib --bench lookup -- v4-1m/inside        one case
//! ```
//!
//! An iteration looks up [`ADDRESSES`] addresses, few enough that an iteration is short and too many for the
//! second-level cache to remember what they led to. What is printed as elements a second are lookups.

mod tables;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fib::{BURST, Fib, FibFamily, Kind, Kinds, LocalFib, MAIN, NextHop, NextHopIndex, Table};
use std::any::Any;
use std::hint::black_box;
use std::time::Duration;
use tables::{NEXT_HOPS, Routes};

/// Addresses in a list; a multiple of [`BURST`].
const ADDRESSES: usize = 1 << 16;

fn lookups(criterion: &mut Criterion) {
    let (real, million, real6) = (tables::ipv4_real(), tables::ipv4_million(), tables::ipv6_real());
    macro_rules! in_each {
        ($($name:ident: $family:ty, $table:ty;)*) => { $(
            for routes in [&real as &dyn Any, &million, &real6].into_iter().filter_map(|it| it.downcast_ref()) {
                lookups_in::<$family, $table>(criterion, routes);
            }
        )* };
    }
    fib::for_each_table!(in_each);
}

fn lookups_in<A: FibFamily, T: Table<A>>(criterion: &mut Criterion, routes: &Routes<A>) {
    let fib = LocalFib::<A, T>::build(routes.rib.clone()).expect("the routes fit");
    let table = fib.table();
    let router = router::<A, T>(routes);
    let chosen = A::table(router.state(), 0).expect("the main VRF always exists");
    for (kind, addresses) in routes.addresses(ADDRESSES) {
        let mut group = criterion.benchmark_group(format!("{}/{kind}", routes.name));
        group.throughput(Throughput::Elements(ADDRESSES as u64));
        group.bench_with_input(BenchmarkId::new(T::NAME, "batch"), &addresses, |bencher, addresses| {
            let mut next_hops = [NextHopIndex::NONE; BURST];
            bencher.iter(|| {
                for burst in addresses.chunks_exact(BURST) {
                    table.lookup_batch(burst, &mut next_hops);
                    black_box(&next_hops);
                }
            });
        });
        group.bench_with_input(BenchmarkId::new(T::NAME, "chosen"), &addresses, |bencher, addresses| {
            let mut next_hops = [NextHopIndex::NONE; BURST];
            bencher.iter(|| {
                for burst in addresses.chunks_exact(BURST) {
                    chosen.lookup_batch(burst, &mut next_hops);
                    black_box(&next_hops);
                }
            });
        });
        group.bench_with_input(BenchmarkId::new(T::NAME, "single"), &addresses, |bencher, addresses| {
            bencher.iter(|| {
                for &address in addresses {
                    black_box(table.lookup(address));
                }
            });
        });
    }
}

/// A FIB with the routes in a table of this kind.
fn router<A: FibFamily, T: Table<A>>(routes: &Routes<A>) -> Fib<u16> {
    let kinds = A::with_kind(Kinds::default(), Kind::of::<T>());
    let mut fib = Fib::of_kinds(kinds).expect("there is memory");
    for number in 1..=NEXT_HOPS {
        fib.next_hops_mut().add(NextHop::Forward(number)).expect("64 next hops are few");
    }
    A::load(&mut fib, MAIN, routes.rib.clone()).expect("the routes fit");
    fib.publish();
    fib
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800));
    targets = lookups
}
criterion_main!(benches);
