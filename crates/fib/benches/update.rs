//! Changes with criterion: one route in a table alone, the same in a [`Fib`] with its two copies, and the publication of
//! batches of several sizes. How much of that workers notice, `brickway-lab bench fib` measures.
//!
//! ```text
//! cargo bench -p brickway-fib --bench update
//! ```
//!
//! A change gives a route of the table, chosen at random, another of 64 next hops. `table` changes one table in place;
//! `publish/N` makes N changes of a FIB and publishes them, nobody reading: elements a second are changes. The
//! price of a publication itself is what `publish/1` costs beyond a change, and `publish/0` an empty batch.

mod tables;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fib::{
    Byte24, Fib, FibFamily, Kind, Kinds, LocalFib, MAIN, NextHop, NextHopIndex, RangeTree, Rank, Table,
};
use ipnet::IpNet;
use packet::Family;
use std::any::Any;
use std::time::Duration;
use tables::{NEXT_HOPS, Routes};

/// Routes that are changed, in turn: many, so that each is in no cache.
const CHANGED: usize = 1 << 15;
const BATCHES: [usize; 4] = [0, 1, 100, 1000];

fn updates(criterion: &mut Criterion) {
    let (real, million, real6) = (tables::ipv4_real(), tables::ipv4_million(), tables::ipv6_real());
    macro_rules! in_each {
        ($($name:ident: $family:ty, $table:ty;)*) => { $(
            for routes in [&real as &dyn Any, &million, &real6].into_iter().filter_map(|it| it.downcast_ref()) {
                in_a_table::<$family, $table>(criterion, routes);
            }
        )* };
    }
    fib::for_each_table!(in_each);
    for routes in [&real, &million] {
        in_a_fib(criterion, routes, Kind::of::<Byte24>());
        in_a_fib(criterion, routes, Kind::of::<Rank>());
    }
    in_a_fib(criterion, &real6, Kind::of::<RangeTree>());
}

/// Next hops in turn, so that each change is one.
fn in_turn() -> impl Iterator<Item = NextHopIndex> {
    (1..=NEXT_HOPS).cycle().map(|number| NextHopIndex::new(number).expect("64 is small"))
}

fn in_a_table<A: Family, T: Table<A>>(criterion: &mut Criterion, routes: &Routes<A>) {
    let mut fib = LocalFib::<A, T>::build(routes.rib.clone()).expect("the routes fit");
    let mut changes = routes.some(CHANGED).into_iter().cycle().zip(in_turn());
    let mut group = criterion.benchmark_group(format!("{}/update", routes.name));
    group.throughput(Throughput::Elements(1));
    group.bench_function(BenchmarkId::new(T::NAME, "table"), |bencher| {
        bencher.iter(|| {
            let (prefix, route) = changes.next().expect("it goes round");
            fib.replace(prefix, route).expect("a route that is there can be changed")
        });
    });
}

fn in_a_fib<A: FibFamily>(criterion: &mut Criterion, routes: &Routes<A>, kind: Kind<A>) {
    let mut fib = Fib::<u16>::of_kinds(A::with_kind(Kinds::default(), kind)).expect("there is memory");
    for number in 1..=NEXT_HOPS {
        fib.next_hops_mut().add(NextHop::Forward(number)).expect("64 next hops are few");
    }
    fib.publish();
    A::load(&mut fib, MAIN, routes.rib.clone()).expect("the routes fit");
    let prefixes: Vec<IpNet> = routes.some(CHANGED).into_iter().map(Into::into).collect();
    let mut changes = prefixes.into_iter().cycle().zip(in_turn());
    let mut group = criterion.benchmark_group(format!("{}/update", routes.name));
    for batch in BATCHES {
        group.throughput(Throughput::Elements(batch.max(1) as u64));
        group.bench_function(BenchmarkId::new(kind.name(), format!("publish/{batch}")), |bencher| {
            bencher.iter(|| {
                for (prefix, route) in changes.by_ref().take(batch) {
                    fib.replace(MAIN, prefix, route).expect("a route that is there can be changed");
                }
                fib.publish();
            });
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400));
    targets = updates
}
criterion_main!(benches);
