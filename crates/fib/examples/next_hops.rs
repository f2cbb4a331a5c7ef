//! Measures next hops on the machine at hand: nanoseconds to resolve a number and write the rewrite string before a
//! packet, for single next hops and groups; and what a change of the control side costs.
//!
//! ```text
//! cargo run --release -p brickway-fib --example next_hops
//! ```
//!
//! Numbers and flow hashes are random, so a branch that depended on them would be mispredicted. Each figure is the
//! median of `RUNS` runs.

use fib::{Adjacency, NextHop, NextHopError, NextHopIndex, NextHops, Resolver};
use packet::random::SplitMix64;
use std::hint::black_box;
use std::time::Instant;

const RUNS: usize = 15;
const PACKETS: usize = 1 << 20;
/// Packets that are written to: enough to be packets, few enough to stay in the cache.
const FRAMES: usize = 256;
const MEMBERS: u16 = 8;

fn main() -> Result<(), NextHopError> {
    println!("{:34} {:>14} {:>12}", "resolve and write 14 bytes", "ns a packet", "memory");
    for count in [1, 64, 10_000] {
        let (next_hops, numbers) = singles(count)?;
        resolving(&format!("{count} single next hops"), next_hops.resolver(), &numbers);
        let (next_hops, numbers) = groups(count, MEMBERS * count.clamp(1, 64))?;
        resolving(&format!("{count} groups of {MEMBERS}"), next_hops.resolver(), &numbers);
    }
    println!("\n{:34} {:>14} {:>12}", "changes, 32,767 next hops", "us", "us to copy");
    let (mut next_hops, numbers) = groups(1_000, NextHopIndex::MAX.get() - 1_000)?;
    let shared = NextHopIndex::new(1).expect("a small number");
    let spare = NextHopIndex::new(20_000).expect("a small number");
    let first = numbers[0];
    for &group in &numbers {
        next_hops.add_member(group, shared, 1)?;
    }
    let it = &mut next_hops;
    changing(
        it,
        ["member of 1,000 groups down", "... up"],
        [&|it| it.set_down(shared), &|it| it.set_up(shared)],
    );
    changing(
        it,
        ["member out of one group", "... in"],
        [&|it| it.remove_member(first, shared), &|it| it.add_member(first, shared, 1)],
    );
    changing(it, ["a single next hop down", "... up"], [&|it| it.set_down(spare), &|it| it.set_up(spare)]);
    changing(
        it,
        ["another MAC address", "... and back"],
        [&|it| it.set(shared, adjacency(9)), &|it| it.set(shared, adjacency(0))],
    );
    let start = Instant::now();
    black_box(next_hops.resolver().clone());
    println!("{:34} {:14.1}", "a whole copy", start.elapsed().as_secs_f64() * 1e6);
    Ok(())
}

fn adjacency(value: u32) -> NextHop<Adjacency> {
    let [a, b, c, d] = value.to_be_bytes();
    NextHop::Forward(Adjacency::ethernet(value as u16, [2, 0, a, b, c, d], [2, 0, 0, 0, 0, 1], [8, 0]))
}

type Numbered = (NextHops<Adjacency>, Vec<NextHopIndex>);

fn singles(count: u16) -> Result<Numbered, NextHopError> {
    let mut next_hops = NextHops::new();
    let numbers = (0..count).map(|value| next_hops.add(adjacency(value.into()))).collect::<Result<_, _>>()?;
    Ok((next_hops, numbers))
}

/// Groups of `MEMBERS` random ones of `members` single next hops each, all of weight 1.
fn groups(count: u16, members: u16) -> Result<Numbered, NextHopError> {
    let (mut next_hops, singles) = singles(members)?;
    let mut random = SplitMix64::new(2);
    let mut make = |_| {
        let mut chosen: Vec<_> = Vec::new();
        while chosen.len() < usize::from(MEMBERS) {
            // Number 1 is kept for the failure that all groups see.
            let member = (singles[random.below(u64::from(members)) as usize], 1);
            if !chosen.contains(&member) && (members == MEMBERS || member.0.get() != 1) {
                chosen.push(member);
            }
        }
        next_hops.add_group(&chosen)
    };
    let numbers = (0..count).map(&mut make).collect::<Result<_, _>>()?;
    Ok((next_hops, numbers))
}

/// Prints the time of one packet.
fn resolving(name: &str, resolver: &Resolver<Adjacency>, numbers: &[NextHopIndex]) {
    let mut random = SplitMix64::new(3);
    let mut draw = |_| (numbers[random.below(numbers.len() as u64) as usize], random.next_u64() as u32);
    let packets: Vec<(NextHopIndex, u32)> = (0..PACKETS).map(&mut draw).collect();
    let mut frames = vec![[0u8; 64]; FRAMES];
    let mut figures: Vec<f64> = (0..=RUNS)
        .map(|_| {
            let start = Instant::now();
            let mut ports = 0u64;
            for (at, &(index, flow_hash)) in packets.iter().enumerate() {
                if let NextHop::Forward(adjacency) = resolver.resolve(index, flow_hash) {
                    if let Some(header) = adjacency.padded().last_chunk::<14>() {
                        frames[at % FRAMES][..14].copy_from_slice(header);
                    }
                    ports += u64::from(adjacency.port());
                }
            }
            black_box((ports, &frames));
            start.elapsed().as_secs_f64() * 1e9 / PACKETS as f64
        })
        .collect();
    let memory = format!("{} KB", resolver.memory_bytes().div_ceil(1024));
    println!("{name:34} {:14.2} {memory:>12}", median(&mut figures));
}

type Change<'a> = &'a dyn Fn(&mut NextHops<Adjacency>) -> Result<(), NextHopError>;

/// Prints the time of a change and of the change back, and those of bringing a copy in line after each.
fn changing(next_hops: &mut NextHops<Adjacency>, names: [&str; 2], changes: [Change<'_>; 2]) {
    let mut times = [(); 2].map(|()| (Vec::new(), Vec::new()));
    let mut copy = next_hops.resolver().clone();
    for _ in 0..RUNS {
        for (change, (changing, copying)) in changes.iter().zip(&mut times) {
            let start = Instant::now();
            change(next_hops).expect("the example asks for what is possible");
            changing.push(start.elapsed().as_secs_f64() * 1e6);
            let start = Instant::now();
            copy.catch_up(next_hops.resolver());
            copying.push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    for (name, (changing, copying)) in names.iter().zip(&mut times) {
        println!("{name:34} {:14.1} {:12.1}", median(changing), median(copying));
    }
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
