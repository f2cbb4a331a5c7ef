//! Measures the compiled IPv4 tables on the machine at hand and prints one line a case: million lookups a second and
//! time-stamp-counter cycles a lookup, one by one and in batches of 32; load time, memory and the cost of a change.
//!
//! ```text
//! cargo run --release -p brickway-fib --example measure -- data/rib-v4.txt.gz
//! ```
//!
//! Tables: one default route; 256K routes sampled from the file; the file; 1M routes grown from it. Addresses: one; 4096
//! or 65,536 drawn inside the table's prefixes, in random order; a million random ones. Each figure is the median of
//! `RUNS` runs.

use fib::read::{self, Row};
use fib::synthesize::{self, SplitMix64};
use fib::{BURST, Dir24_8, Dxr18, Dxr19, Dxr20, Fib4, NextHopIndex, Rib4, Table4};
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

const RUNS: usize = 15;
const LOOKUPS_PER_RUN: usize = 1 << 21;
const NEXT_HOPS: u16 = 64;
const SEED: u64 = 2;

struct Routes {
    name: &'static str,
    rows: Vec<Row>,
}

struct Traffic {
    name: &'static str,
    addresses: Vec<u32>,
}

fn main() -> std::io::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "data/rib-v4.txt.gz".into());
    let start = Instant::now();
    let real = read::load(Path::new(&path))?;
    println!(
        "{path}: {} rows, {} bad, read in {:.2} s",
        real.rows.len(),
        real.bad,
        start.elapsed().as_secs_f64()
    );
    let default = Row { prefix: "0.0.0.0/0".parse().expect("a prefix"), origin: 1 };
    let tables = [
        Routes { name: "1-route", rows: vec![default] },
        Routes { name: "256k", rows: synthesize::table(&real.rows, 256 << 10, SEED) },
        Routes { name: "real", rows: real.rows.clone() },
        Routes { name: "1m", rows: synthesize::table(&real.rows, 1_000_000, SEED) },
    ];
    println!(
        "{:8} {:8} {:9} {:>22}  {:>22}",
        "design", "table", "addresses", "single Mlps  cycles", "batched Mlps  cycles"
    );
    for routes in &tables {
        let start = Instant::now();
        let mut rib = Rib4::new();
        for row in &routes.rows {
            let next_hop = synthesize::next_hop_of_origin(row.origin, NEXT_HOPS);
            rib.replace(row.prefix, next_hop).expect("the reader refuses host bits");
        }
        println!("{} routes into the RIB: {:.0} ms", rib.len(), start.elapsed().as_secs_f64() * 1e3);
        let traffic = traffic(&routes.rows);
        measure("dir-24-8", Dir24_8::new().expect("memory"), routes, &rib, &traffic);
        measure("dxr-18", Dxr18::new().expect("memory"), routes, &rib, &traffic);
        measure("dxr-19", Dxr19::new().expect("memory"), routes, &rib, &traffic);
        measure("dxr-20", Dxr20::new().expect("memory"), routes, &rib, &traffic);
    }
    Ok(())
}

/// Sequences of 65,536 addresses or more: a branch predictor learns shorter ones by heart.
fn traffic(rows: &[Row]) -> Vec<Traffic> {
    let mut random = SplitMix64::new(SEED);
    let mut inside = |name, count: usize| {
        let drawn = synthesize::destinations_inside(rows, count, SEED);
        let mut draw = || u32::from(drawn[random.below(count as u64) as usize]);
        Traffic { name, addresses: (0..1 << 17).map(|_| draw()).collect() }
    };
    let mut all = vec![inside("1", 1), inside("4096", 4096), inside("65536", 65_536)];
    all.push(Traffic { name: "random", addresses: (0..1 << 20).map(|_| random.next_u64() as u32).collect() });
    all
}

fn measure<T: Table4>(design: &str, table: T, routes: &Routes, rib: &Rib4, traffic: &[Traffic]) {
    let start = Instant::now();
    let mut fib = Fib4::build(rib.clone(), table).expect("the table has room");
    let load = start.elapsed().as_secs_f64() * 1e3;
    for traffic in traffic {
        let single = median(|| {
            let mut sum = 0u64;
            for i in 0..LOOKUPS_PER_RUN {
                let address = traffic.addresses[i & (traffic.addresses.len() - 1)];
                sum = sum.wrapping_add(u64::from(fib.table().lookup(black_box(address)).get()));
            }
            black_box(sum);
        });
        let batched = median(|| {
            let mut next_hops = [NextHopIndex::NONE; BURST];
            for i in (0..LOOKUPS_PER_RUN).step_by(BURST) {
                let at = i & (traffic.addresses.len() - 1);
                fib.table().lookup_batch(&traffic.addresses[at..at + BURST], &mut next_hops);
                black_box(&next_hops);
            }
        });
        println!(
            "{design:8} {:8} {:9} {:11.0} {:7.1}     {:11.0} {:7.1}",
            routes.name, traffic.name, single.0, single.1, batched.0, batched.1
        );
    }
    let update = change_cost(&mut fib, &routes.rows);
    let memory = fib.table().memory_bytes() as f64 / 1e6;
    println!(
        "{design:8} {:8} loaded in {load:.0} ms, {memory:.1} MB, a changed route {update:.2} us",
        routes.name
    );
}

/// Microseconds to change the next hop of a random route, the RIB's share included.
fn change_cost<T: Table4>(fib: &mut Fib4<T>, rows: &[Row]) -> f64 {
    const CHANGES: u32 = 20_000;
    let mut random = SplitMix64::new(SEED);
    let changes = if rows.len() == 1 { 20 } else { CHANGES };
    let start = Instant::now();
    for i in 0..changes {
        let row = rows[random.below(rows.len() as u64) as usize];
        let next_hop = NextHopIndex::new(100 + (i % 16) as u16).expect("a small number");
        fib.replace(row.prefix, next_hop).expect("the route is there and has room");
    }
    start.elapsed().as_secs_f64() * 1e6 / f64::from(changes)
}

/// Million lookups a second and cycles a lookup, each the median of all runs.
fn median(mut run: impl FnMut()) -> (f64, f64) {
    run();
    let mut figures: Vec<(f64, f64)> = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let (start, cycles) = (Instant::now(), timestamp());
        run();
        let (time, cycles) = (start.elapsed().as_secs_f64(), timestamp() - cycles);
        figures.push((LOOKUPS_PER_RUN as f64 / time / 1e6, cycles as f64 / LOOKUPS_PER_RUN as f64));
    }
    figures.sort_by(|a, b| a.0.total_cmp(&b.0));
    figures[RUNS / 2]
}

/// The time-stamp counter; 0 where there is none.
#[allow(unsafe_code, reason = "the time-stamp counter is an intrinsic")]
fn timestamp() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: RDTSC reads a counter and is part of x86-64.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    0
}
