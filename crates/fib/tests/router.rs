//! The whole FIB: routes, tables, next hops and publication, against a plain list of routes; and workers that read
//! while it changes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use fib::{
    Byte24, EditError, Fib, Kind, Kinds, Linear, MAIN, NextHop, NextHopIndex, Rank, Rib, Table, TableError,
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A FIB whose IPv4 table is of this type.
fn fib_of<T: Table<u32>>() -> Fib<u32> {
    Fib::of_kinds(Kinds { ipv4: Kind::of::<T>(), ..Kinds::default() }).unwrap()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

#[test]
fn a_batch_is_seen_as_a_whole_and_routes_hold_their_next_hops() {
    let mut fib = fib_of::<Rank>();
    let mut reader = fib.readers().register();
    let a = fib.next_hops_mut().add(NextHop::Forward(1)).unwrap();
    let b = fib.next_hops_mut().add(NextHop::Forward(2)).unwrap();
    fib.insert(MAIN, net("10.0.0.0/8"), a).unwrap();
    fib.insert(MAIN, net("2001:db8::/32"), b).unwrap();
    // Refused ones do not stop the others.
    let missing = NextHopIndex::new(9).unwrap();
    let error = fib.insert(MAIN, net("11.0.0.0/8"), missing).unwrap_err();
    assert_eq!(
        error.to_string(),
        "11.0.0.0/8 is to go to next hop 9, which does not exist; add the next hop first"
    );
    assert!(matches!(fib.remove(MAIN, net("12.0.0.0/8")).unwrap_err(), EditError::Rib(_)));
    let error = fib.insert(7, net("10.0.0.0/8"), a).unwrap_err();
    assert_eq!(error.to_string(), "there is no VRF with table 7; add it first");
    assert_eq!(reader.enter().lookup4(0, 0x0a00_0001, 0), &NextHop::NoRoute);
    fib.publish();
    let answers = |reader: &mut fib::publish::Reader<_>| {
        let state: fib::publish::Guard<'_, fib::State<u32>> = reader.enter();
        (*state.lookup4(0, 0x0a00_0001, 0), *state.lookup6(0, 0x2001_0db8 << 96, 0))
    };
    assert_eq!(answers(&mut reader), (NextHop::Forward(1), NextHop::Forward(2)));

    // One next hop is changed, all its routes follow; one in use stays.
    fib.next_hops_mut().set_backup(a, Some(b)).unwrap();
    fib.next_hops_mut().set_down(a).unwrap();
    assert!(fib.next_hops_mut().remove(b).is_err());
    fib.publish();
    assert_eq!(answers(&mut reader), (NextHop::Forward(2), NextHop::Forward(2)));

    fib.next_hops_mut().set_backup(a, None).unwrap();
    fib.remove(MAIN, net("2001:db8::/32")).unwrap();
    fib.next_hops_mut().remove(b).unwrap();
    fib.publish();
    assert_eq!(answers(&mut reader), (NextHop::Unreachable, NextHop::NoRoute));
    assert!(fib.check().is_good());
}

#[test]
fn vrfs_are_apart_and_their_places_are_used_again() {
    let mut fib = fib_of::<Rank>();
    let mut reader = fib.readers().register();
    let a = fib.next_hops_mut().add(NextHop::Forward(1)).unwrap();
    let b = fib.next_hops_mut().add(NextHop::Forward(2)).unwrap();
    fib.add_vrf(10).unwrap();
    fib.insert(MAIN, net("0.0.0.0/0"), a).unwrap();
    fib.insert(10, net("0.0.0.0/0"), b).unwrap();
    assert_eq!(fib.add_vrf(10).unwrap_err().to_string(), "VRF with table 10 exists already");
    fib.publish();
    let index = fib.vrf_index(10).unwrap();
    assert_eq!(reader.enter().lookup4(0, 1, 0), &NextHop::Forward(1));
    assert_eq!(reader.enter().lookup4(index, 1, 0), &NextHop::Forward(2));
    assert_eq!(fib.tables().collect::<Vec<_>>(), [10, MAIN]);

    fib.remove_vrf(10).unwrap();
    assert!(fib.remove_vrf(MAIN).is_err());
    // Its routes held it.
    fib.next_hops_mut().remove(b).unwrap();
    fib.publish();
    assert_eq!(reader.enter().lookup4(index, 1, 0), &NextHop::NoRoute);
    fib.add_vrf(20).unwrap();
    fib.publish();
    assert_eq!(fib.vrf_index(20), Some(index));
    assert_eq!(reader.enter().lookup4(index, 1, 0), &NextHop::NoRoute);
    assert!(fib.check().is_good());
}

/// A table that says what no route says, as memory that has gone bad would.
struct Lying(Rank);

impl Table<u32> for Lying {
    const NAME: &'static str = "Lying";
    type Compiler = <Rank as Table<u32>>::Compiler;
    fn new() -> Result<Self, TableError> {
        Rank::new().map(Lying)
    }
    fn lookup(&self, address: u32) -> NextHopIndex {
        self.0.lookup(address)
    }
    fn lookup_batch(&self, addresses: &[u32], next_hops: &mut [NextHopIndex]) {
        self.0.lookup_batch(addresses, next_hops);
    }
    fn update(
        &mut self,
        compiler: &mut Self::Compiler,
        rib: &Rib<u32>,
        prefix: Ipv4Net,
    ) -> Result<(), TableError> {
        if prefix == "10.66.0.0/16".parse().unwrap() { Ok(()) } else { self.0.update(compiler, rib, prefix) }
    }
    fn rebuild(&mut self, compiler: &mut Self::Compiler, rib: &Rib<u32>) -> Result<(), TableError> {
        self.0.rebuild(compiler, rib)
    }
    fn catch_up(&mut self, compiler: &mut Self::Compiler, ahead: &Self) {
        self.0.catch_up(compiler, &ahead.0);
    }
    fn for_each_range(&self, visit: &mut dyn FnMut(u32, NextHopIndex)) {
        self.0.for_each_range(visit);
    }
    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
    fn expected_bytes(routes: usize) -> usize {
        // More than any machine has, from a million routes on.
        if routes < 1_000_000 { Rank::expected_bytes(routes) } else { 1 << 60 }
    }
}

#[test]
fn a_table_that_disagrees_with_its_routes_is_found() {
    let mut fib = fib_of::<Lying>();
    let a = fib.next_hops_mut().add(NextHop::Forward(1)).unwrap();
    fib.insert(MAIN, net("10.0.0.0/16"), a).unwrap();
    fib.publish();
    assert!(fib.check().is_good());
    fib.insert(MAIN, net("10.66.0.0/16"), a).unwrap();
    fib.publish();
    let report = fib.check();
    let mismatch = report.tables[0].mismatch.unwrap();
    assert_eq!(mismatch.to_string(), "10.66.0.0 goes to next hop 0 by the table, 1 by its routes");
    assert_eq!(report.tables.iter().filter(|table| table.mismatch.is_some()).count(), 2);
}

/// A table that is full with six routes, and surely not with three.
struct Small(Rank);

impl Small {
    fn limit(rib: &Rib<u32>, prefix: Ipv4Net) -> Result<(), TableError> {
        let full = TableError::Full { table: "Small", prefix: prefix.into(), limit: "five routes" };
        if rib.len() <= 5 { Ok(()) } else { Err(full) }
    }
}

impl Table<u32> for Small {
    const NAME: &'static str = "Small";
    type Compiler = <Rank as Table<u32>>::Compiler;
    fn new() -> Result<Self, TableError> {
        Rank::new().map(Small)
    }
    fn lookup(&self, address: u32) -> NextHopIndex {
        self.0.lookup(address)
    }
    fn lookup_batch(&self, addresses: &[u32], next_hops: &mut [NextHopIndex]) {
        self.0.lookup_batch(addresses, next_hops);
    }
    fn update(
        &mut self,
        compiler: &mut Self::Compiler,
        rib: &Rib<u32>,
        prefix: Ipv4Net,
    ) -> Result<(), TableError> {
        Small::limit(rib, prefix).and_then(|()| self.0.update(compiler, rib, prefix))
    }
    fn surely_fits(rib: &Rib<u32>) -> bool {
        rib.len() <= 3
    }
    fn rebuild(&mut self, compiler: &mut Self::Compiler, rib: &Rib<u32>) -> Result<(), TableError> {
        Small::limit(rib, Ipv4Net::default()).and_then(|()| self.0.rebuild(compiler, rib))
    }
    fn catch_up(&mut self, compiler: &mut Self::Compiler, ahead: &Self) {
        self.0.catch_up(compiler, &ahead.0);
    }
    fn for_each_range(&self, visit: &mut dyn FnMut(u32, NextHopIndex)) {
        self.0.for_each_range(visit);
    }
    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
    fn expected_bytes(routes: usize) -> usize {
        Rank::expected_bytes(routes)
    }
}

/// Whatever was put off before it.
#[test]
fn the_route_for_which_there_is_no_room_is_refused() {
    let mut fib = fib_of::<Small>();
    let hops: Vec<_> = (0..8).map(|hop| fib.next_hops_mut().add(NextHop::Forward(hop)).unwrap()).collect();
    fib.publish();
    let prefix = |number: u8| IpNet::from(Ipv4Net::new([10, number, 0, 0].into(), 16).unwrap());
    for round in 0..3u8 {
        for number in 0..5 {
            fib.insert(MAIN, prefix(number), hops[usize::from(number)]).unwrap();
        }
        for number in 5..8 {
            let error = fib.insert(MAIN, prefix(number), hops[5]).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("Small is full at {}: five routes", prefix(number))),
                "{error}"
            );
        }
        // With what is put off now there may be too much again before the publication.
        for number in 0..=round {
            fib.remove(MAIN, prefix(number)).unwrap();
        }
        for number in 5..=5 + round {
            fib.insert(MAIN, prefix(number), hops[6]).unwrap();
        }
        let error = fib.insert(MAIN, prefix(9), hops[7]).unwrap_err().to_string();
        assert!(error.contains("Small is full at "), "{error}");
        fib.publish();
        assert!(fib.check().is_good());
        for number in 0..10u8 {
            let address = u32::from_be_bytes([10, number, 1, 1]);
            let expected = match number {
                _ if number <= round => NextHop::NoRoute,
                0..5 => NextHop::Forward(u32::from(number)),
                _ if number <= 5 + round => NextHop::Forward(6),
                _ => NextHop::NoRoute,
            };
            assert_eq!(fib.state().lookup4(0, address, 0), &expected, "{number} in round {round}");
        }
        for number in (round + 1..5).chain(5..=5 + round) {
            fib.remove(MAIN, prefix(number)).unwrap();
        }
        fib.publish();
        assert!(fib.check().is_good() && fib.rib4(MAIN).unwrap().is_empty());
    }
}

#[test]
fn batches_of_any_size_leave_tables_that_say_what_the_routes_say() {
    let mut fib = Fib::<u32>::new().unwrap();
    let hops: Vec<_> = (0..8).map(|hop| fib.next_hops_mut().add(NextHop::Forward(hop)).unwrap()).collect();
    fib.publish();
    let mut number = 0u32;
    for changes in [1, 20_000, 3, 500, 0] {
        for _ in 0..changes {
            number += 1;
            let hash = number.wrapping_mul(0x9e37_79b9);
            let (length, network) = (8 + (hash >> 8 & 31).min(24) as u8, hash & 0x0003_ffff);
            let network = network << 14 | hash >> 18;
            let v4: IpNet = Ipv4Net::new(network.into(), length).unwrap().trunc().into();
            let v6 = u128::from(network) << 96 | u128::from(hash) << 40;
            let v6: IpNet = Ipv6Net::new(v6.into(), length * 3).unwrap().trunc().into();
            for prefix in [v4, v6] {
                // Every third goes, if it is there.
                if number.is_multiple_of(3) {
                    let _ = fib.remove(MAIN, prefix);
                } else {
                    fib.replace(MAIN, prefix, hops[(hash >> 4) as usize % 8]).unwrap();
                }
            }
        }
        fib.publish();
        let report = fib.check();
        assert!(report.is_good(), "{report:?}");
    }
}

#[test]
fn a_table_too_large_for_the_memory_is_refused_before_it_starts() {
    let mut fib = fib_of::<Lying>();
    let a = fib.next_hops_mut().add(NextHop::Forward(1)).unwrap();
    fib.insert(MAIN, net("10.0.0.0/16"), a).unwrap();
    fib.publish();
    let mut rib = Rib::new();
    for i in 0..1_000_000u32 {
        rib.insert(Ipv4Net::new((i << 8).into(), 24).unwrap(), a).unwrap();
    }
    let error = fib.load4(MAIN, rib).unwrap_err().to_string();
    assert!(
        error.starts_with("Lying with 1000000 routes needs about 2305843009214 MB in two copies, and "),
        "{error}"
    );
    assert!(error.ends_with(" MB are free; it goes on with the routes it has"), "{error}");
    assert_eq!(fib.state().lookup4(0, 0x0a00_0001, 0), &NextHop::Forward(1));
    assert_eq!(fib.rib4(MAIN).unwrap().len(), 1);
}

#[test]
fn equal_routes_have_equal_digests_whatever_the_order_and_the_table() {
    fn digests<T4: Table<u32>>(prefixes: &[&str]) -> Vec<u64> {
        let mut fib = fib_of::<T4>();
        let a = fib.next_hops_mut().add(NextHop::Forward(1)).unwrap();
        for prefix in prefixes {
            fib.insert(MAIN, net(prefix), a).unwrap();
        }
        fib.publish();
        fib.check().tables.iter().filter(|table| table.is_active).map(|table| table.digest).collect()
    }
    let forward = digests::<Rank>(&["10.0.0.0/8", "12.0.0.0/9", "2001:db8::/32"]);
    assert_eq!(forward, digests::<Byte24>(&["2001:db8::/32", "12.0.0.0/9", "10.0.0.0/8"]));
    assert_ne!(forward[0], digests::<Rank>(&["10.0.0.0/8", "12.0.0.0/8"])[0]);
    // Two halves are the whole.
    assert_eq!(forward[0], digests::<Rank>(&["10.0.0.0/9", "10.128.0.0/9", "12.0.0.0/9"])[0]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Any batches of changes leave workers with what a scan of the routes says, whatever the kinds of the tables.
    #[test]
    fn workers_see_what_the_routes_say(
        ipv4 in prop::sample::select(Kind::<u32>::all().collect::<Vec<_>>()),
        ipv6 in prop::sample::select(Kind::<u128>::all().collect::<Vec<_>>()),
        batches in prop::collection::vec(prop::collection::vec((any::<bool>(), 0u32..64, 8u8..=32, 0u16..6), 1..12), 1..8)
    ) {
        let mut fib = Fib::of_kinds(Kinds { ipv4, ipv6 }).unwrap();
        prop_assert_eq!(fib.check().tables.iter().map(|table| table.name).collect::<Vec<_>>(), [ipv4.name(), ipv6.name()].repeat(2));
        let mut reader = fib.readers().register();
        let hops: Vec<NextHopIndex> = (1..6).map(|i| fib.next_hops_mut().add(NextHop::Forward(i)).unwrap()).collect();
        fib.publish();
        let mut routes: BTreeMap<Ipv4Net, NextHopIndex> = BTreeMap::new();
        for batch in batches {
            for (add, address, length, hop) in batch {
                let prefix = Ipv4Net::new((address << 26).into(), length).unwrap().trunc();
                let next_hop = if hop == 0 { NextHopIndex::NONE } else { hops[usize::from(hop) - 1] };
                for net in [prefix.into(), embedded(prefix)] {
                    if add {
                        fib.replace(MAIN, net, next_hop).unwrap();
                    } else {
                        prop_assert_eq!(fib.remove(MAIN, net).is_ok(), routes.contains_key(&prefix));
                    }
                }
                if add { routes.insert(prefix, next_hop) } else { routes.remove(&prefix) };
            }
            fib.publish();
            let mut model = Linear::<u32>::default();
            routes.iter().for_each(|(&prefix, &next_hop)| { model.set(prefix, next_hop); });
            let state = reader.enter();
            let addresses: Vec<u32> = (0..=u32::MAX).step_by(1 << 25).chain([u32::MAX]).collect();
            let expected: Vec<NextHopIndex> = addresses.iter().map(|&address| model.lookup(address)).collect();
            let mut found = vec![NextHopIndex::NONE; addresses.len()];
            state.ipv4(0).unwrap().lookup_batch(&addresses, &mut found);
            prop_assert_eq!(&found, &expected);
            let embedded: Vec<u128> = addresses.iter().map(|&address| u128::from(address) << 96).collect();
            state.ipv6(0).unwrap().lookup_batch(&embedded, &mut found);
            prop_assert_eq!(&found, &expected);
            for (place, &address) in addresses.iter().enumerate() {
                prop_assert_eq!(state.ipv4(0).unwrap().lookup(address), expected[place]);
                prop_assert_eq!(state.ipv6(0).unwrap().lookup(embedded[place]), expected[place]);
            }
        }
        prop_assert!(fib.check().is_good());
        // What nothing uses can be removed; what routes use cannot.
        for &hop in &hops {
            let used = routes.values().any(|&next_hop| next_hop == hop);
            prop_assert_eq!(fib.next_hops_mut().remove(hop).is_err(), used);
        }
    }
}

/// The IPv6 prefix that begins with the bits of an IPv4 prefix.
fn embedded(prefix: Ipv4Net) -> IpNet {
    let network = u128::from(u32::from(prefix.network())) << 96;
    Ipv6Net::new(network.into(), prefix.prefix_len()).unwrap().into()
}

/// Two prefixes of either family always have the same next hop after a batch; workers must never see them differ.
#[test]
fn workers_never_see_half_a_batch() {
    const BATCHES: u32 = 300;
    let mut fib = fib_of::<Rank>();
    let done = AtomicBool::new(false);
    let (looks, changes_seen) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut reader = fib.readers().register();
            let (done, looks, changes_seen) = (&done, &looks, &changes_seen);
            scope.spawn(move || {
                let mut last = NextHop::NoRoute;
                while !done.load(Ordering::Relaxed) {
                    let state = reader.enter();
                    let seen = *state.lookup4(0, 0x0a00_0001, 1);
                    assert_eq!(seen, *state.lookup4(0, 0xc0a8_0001, 1));
                    assert_eq!(seen, *state.lookup6(0, 0x2001_0db8 << 96, 1));
                    changes_seen.fetch_add(u64::from(seen != last), Ordering::Relaxed);
                    last = seen;
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut before: Option<NextHopIndex> = None;
        for batch in 0..BATCHES {
            let hop = fib.next_hops_mut().add(NextHop::Forward(batch)).unwrap();
            for prefix in ["10.0.0.0/8", "192.168.0.0/25", "2001:db8::/64"] {
                fib.replace(MAIN, net(prefix), hop).unwrap();
            }
            if let Some(before) = before.replace(hop) {
                fib.next_hops_mut().remove(before).unwrap();
            }
            fib.publish();
            std::thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(looks.into_inner() > 0 && changes_seen.into_inner() > 0);
    assert!(fib.check().is_good());
}
