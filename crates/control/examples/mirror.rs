//! How long the mirror takes for a full table, and how much memory.
//!
//! ```text
//! cargo run --release -p brickway-control --example mirror [ROUTES]
//! ```

use control::change::{
    Change, Hops, Link, Neighbour, NeighbourState, Part, Path, Route, RouteKey, RouteKind, Source,
};
use control::mirror::Mirror;
use fib::MAIN;
use std::error::Error;

fn link(index: u32) -> Change {
    Change::Link(Link {
        index,
        name: format!("eth{index}"),
        mac: Some([2, 0, 0, 0, 0, index as u8]),
        mtu: 1500,
        is_up: true,
        has_carrier: true,
        master: None,
        below: None,
        kind: String::new(),
        vlan: None,
        has_priorities: false,
        vrf_table: None,
    })
}

fn neighbour(number: u32, mac: u8) -> Change {
    Change::Neighbour(Neighbour {
        index: number % 4,
        address: [10, 0, 0, number as u8].into(),
        mac: Some([2, 1, 0, 0, mac, number as u8]),
        state: NeighbourState::Reachable,
    })
}

/// A route to the prefix of this number: of 64 gateways one, for each tenth prefix two.
fn route(prefix: &ipnet::Ipv4Net, number: u32) -> Route {
    let path = |number: u32| Path {
        index: number % 4,
        gateway: Some([10, 0, 0, number as u8].into()),
        weight: 1,
        is_down: false,
        has_encapsulation: false,
    };
    let hash = number.wrapping_mul(0x9e37_79b9) >> 16;
    let paths = if hash.is_multiple_of(10) {
        vec![path(hash % 64), path(hash % 63 + 1)]
    } else {
        vec![path(hash % 64)]
    };
    Route {
        key: RouteKey { table: MAIN, prefix: (*prefix).into(), metric: 20, tos: 0, from: None },
        kind: RouteKind::Unicast,
        protocol: 186,
        preferred_source: None,
        mtu: None,
        preference: Route::MEDIUM,
        only_linux: None,
        hops: Hops::Paths(paths),
    }
}

/// What Linux says this process occupies, in MB.
fn memory_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) / 1024
}

/// Seconds that this thread has been on a CPU: others may want it too.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
    nanoseconds.unwrap_or(0.0) / 1e9
}

fn main() -> Result<(), Box<dyn Error>> {
    let wanted: u32 = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse())?;
    // /24s all over the address space, in no order, and some shorter ones that cover others.
    let mut prefixes: Vec<ipnet::Ipv4Net> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let mut state = 1u32;
    while prefixes.len() < wanted as usize {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let length = if state & 0x70 == 0 { 20 } else { 24 };
        let address = (state % 0xdf00_0000).max(0x0100_0000);
        let prefix = ipnet::Ipv4Net::new(address.into(), length)?.trunc();
        if prefix.network().octets()[0] != 127 && seen.insert(prefix) {
            prefixes.push(prefix);
        }
    }
    drop(seen);
    let changes = |source: Source| -> Vec<(Source, Change)> {
        let all = prefixes.iter().zip(0..);
        all.map(|(prefix, number)| (source, Change::Route(route(prefix, number)))).collect()
    };
    let mut mirror = Mirror::new((0..4).map(|port| (format!("eth{port}"), port)))?;
    for index in 0..4 {
        mirror.apply(Source::Netlink, link(index));
    }
    for number in 0..64 {
        mirror.apply(Source::Netlink, neighbour(number, 0));
    }
    mirror.publish();
    let empty = memory_mb();
    println!("{wanted} IPv4 routes through 64 gateways; memory is the whole process's");
    let timed = |what: &str, mirror: &mut Mirror, changes: Vec<(Source, Change)>| {
        let count = changes.len();
        let began = cpu_seconds();
        for (source, change) in changes {
            mirror.apply(source, change);
        }
        let applied = cpu_seconds() - began;
        mirror.publish();
        let published = cpu_seconds() - began;
        println!("{what}: {count} changes in {applied:.3} s, {published:.3} s with publication");
    };
    let all = changes(Source::Netlink);
    timed("first dump", &mut mirror, all);
    println!("memory: {} MB more than without routes", memory_mb() - empty);
    mirror.dump_begins(Source::Netlink, Part::Routes4);
    timed("the same again", &mut mirror, changes(Source::Netlink));
    let began = cpu_seconds();
    mirror.dump_ends(Source::Netlink, Part::Routes4);
    println!("end of the dump: {:.3} s", cpu_seconds() - began);
    timed("the same from another source", &mut mirror, changes(Source::Fpm));
    println!("memory: {} MB more than without routes", memory_mb() - empty);
    timed(
        "64 neighbours with other addresses",
        &mut mirror,
        (0..64).map(|it| (Source::Netlink, neighbour(it, 1))).collect(),
    );
    let began = cpu_seconds();
    for part in [Part::Routes4, Part::Neighbours, Part::Links] {
        mirror.dump_begins(Source::Netlink, part);
        mirror.dump_ends(Source::Netlink, part);
    }
    mirror.publish();
    println!("all of a source forgotten: {:.3} s", cpu_seconds() - began);
    println!("digests: {:?}", mirror.digests());
    Ok(())
}
