//! Every compiled table, and the RIB itself, gives the answers of a linear scan after any sequence of changes.
//!
//! Prefixes are drawn so that they nest and collide: few distinct bits, placed at both ends of the address space and
//! around the /18, /20 and /24 boundaries at which the tables change their way of storing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use fib::{Dir24_8, Dxr18, Dxr19, Dxr20, Fib4, Linear, NextHopIndex, Table4};
use ipnet::Ipv4Net;
use proptest::prelude::*;
use std::net::Ipv4Addr;

#[derive(Clone, Copy, Debug)]
enum Change {
    Insert(Ipv4Net, NextHopIndex),
    Replace(Ipv4Net, NextHopIndex),
    Remove(Ipv4Net),
}

/// An address with few choices for each of its parts.
fn address() -> impl Strategy<Value = u32> {
    let first = prop::sample::select(vec![0u32, 10, 127, 255]);
    let second = prop::sample::select(vec![0u32, 1, 255]);
    let third = prop::sample::select(vec![0u32, 1, 15, 16, 31, 63, 64, 128, 255]);
    let last = prop_oneof![prop::sample::select(vec![0u32, 1, 2, 127, 128, 254, 255]), 0u32..256];
    (first, second, third, last).prop_map(|(a, b, c, d)| a << 24 | b << 16 | c << 8 | d)
}

fn prefix() -> impl Strategy<Value = Ipv4Net> {
    let length = prop_oneof![2 => 0u8..=32, 2 => 16u8..=24, 3 => 24u8..=32];
    (address(), length).prop_map(|(address, length)| Ipv4Net::new(address.into(), length).unwrap().trunc())
}

fn next_hop() -> impl Strategy<Value = NextHopIndex> {
    prop_oneof![4 => 0u16..4, 1 => Just(0x7fffu16)].prop_map(|number| NextHopIndex::new(number).unwrap())
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => (prefix(), next_hop()).prop_map(|(prefix, next_hop)| Change::Insert(prefix, next_hop)),
        2 => (prefix(), next_hop()).prop_map(|(prefix, next_hop)| Change::Replace(prefix, next_hop)),
        1 => prefix().prop_map(Change::Remove),
    ]
}

/// Applies a change to both; what one refuses the other must not have.
fn apply<T: Table4>(fib: &mut Fib4<T>, model: &mut Linear, change: Change) {
    let in_model = |model: &Linear, prefix| model.routes().iter().any(|route| route.prefix == prefix);
    match change {
        Change::Insert(prefix, next_hop) => {
            let fresh = !in_model(model, prefix);
            assert_eq!(fib.insert(prefix, next_hop).is_ok(), fresh);
            if fresh {
                model.set(prefix, next_hop);
            }
        }
        Change::Replace(prefix, next_hop) => {
            assert_eq!(fib.replace(prefix, next_hop).unwrap(), model.set(prefix, next_hop));
        }
        Change::Remove(prefix) => assert_eq!(fib.remove(prefix).ok(), model.unset(prefix)),
    }
}

/// The addresses where something may change: the ends of every route and their neighbours.
fn edges(model: &Linear) -> Vec<u32> {
    let mut edges = vec![0, 1, u32::MAX - 1, u32::MAX];
    for route in model.routes() {
        let (first, last) = (u32::from(route.prefix.network()), u32::from(route.prefix.broadcast()));
        edges.extend([first, last, first.wrapping_sub(1), last.wrapping_add(1), first / 2 + last / 2]);
    }
    edges
}

fn agree<T: Table4>(fib: &Fib4<T>, rebuilt: &T, model: &Linear, addresses: &[u32]) {
    let mut batch = vec![NextHopIndex::MAX; addresses.len()];
    fib.table().lookup_batch(addresses, &mut batch);
    for (&address, &batched) in addresses.iter().zip(&batch) {
        let expected = model.lookup(address);
        let shown = Ipv4Addr::from(address);
        assert_eq!(fib.table().lookup(address), expected, "{shown} single");
        assert_eq!(batched, expected, "{shown} batched");
        assert_eq!(rebuilt.lookup(address), expected, "{shown} compiled at once");
        let route = fib.rib().longest_match(shown);
        assert_eq!(route.map_or(NextHopIndex::NONE, |route| route.next_hop), expected, "{shown} in the RIB");
    }
    assert_eq!(fib.rib().len(), model.routes().len());
}

fn check<T: Table4>(new: impl Fn() -> T, changes: &[Change], addresses: &[u32]) {
    let mut fib = Fib4::new(new());
    let mut model = Linear::new();
    for (i, &change) in changes.iter().enumerate() {
        apply(&mut fib, &mut model, change);
        if i % 16 == 15 || i + 1 == changes.len() {
            let mut rebuilt = new();
            rebuilt.rebuild(fib.rib()).unwrap();
            let all: Vec<u32> = edges(&model).into_iter().chain(addresses.iter().copied()).collect();
            agree(&fib, &rebuilt, &model, &all);
        }
    }
    // And back to nothing, in an order of no meaning.
    while let Some(route) = model.routes().first().copied() {
        apply(&mut fib, &mut model, Change::Remove(route.prefix));
    }
    for &address in addresses {
        assert_eq!(fib.table().lookup(address), NextHopIndex::NONE);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn dir24_8(changes in prop::collection::vec(change(), 1..80), addresses in prop::collection::vec(address(), 70)) {
        check(|| Dir24_8::new().unwrap(), &changes, &addresses);
    }

    #[test]
    fn dxr18(changes in prop::collection::vec(change(), 1..80), addresses in prop::collection::vec(address(), 70)) {
        check(|| Dxr18::new().unwrap(), &changes, &addresses);
    }

    #[test]
    fn dxr19(changes in prop::collection::vec(change(), 1..80), addresses in prop::collection::vec(address(), 70)) {
        check(|| Dxr19::new().unwrap(), &changes, &addresses);
    }

    #[test]
    fn dxr20(changes in prop::collection::vec(change(), 1..80), addresses in prop::collection::vec(address(), 70)) {
        check(|| Dxr20::new().unwrap(), &changes, &addresses);
    }

    /// All addresses of one /16 crowded with routes, so that fragments and groups get full.
    #[test]
    fn a_crowded_network(
        routes in prop::collection::vec((0u32..1 << 16, 14u8..=32, next_hop()), 1..300),
        removed in prop::collection::vec(any::<prop::sample::Index>(), 0..100),
    ) {
        let prefix = |low: u32, length| Ipv4Net::new((0x0a01_0000 | low).into(), length).unwrap().trunc();
        let mut changes: Vec<Change> =
            routes.iter().map(|&(low, length, next_hop)| Change::Replace(prefix(low, length), next_hop)).collect();
        changes.extend(removed.iter().map(|index| {
            let (low, length, _) = routes[index.index(routes.len())];
            Change::Remove(prefix(low, length))
        }));
        let (mut dir, mut dxr) = (Fib4::new(Dir24_8::new().unwrap()), Fib4::new(Dxr18::new().unwrap()));
        let (mut model, mut again) = (Linear::new(), Linear::new());
        for &change in &changes {
            apply(&mut dir, &mut model, change);
            apply(&mut dxr, &mut again, change);
        }
        let addresses: Vec<u32> = edges(&model);
        for &address in &addresses {
            prop_assert_eq!(dir.table().lookup(address), model.lookup(address));
            prop_assert_eq!(dxr.table().lookup(address), model.lookup(address));
        }
        let low: Vec<u32> = (0..1 << 16).map(|low| 0x0a01_0000 | low).collect();
        let (mut of_dir, mut of_dxr) = (vec![NextHopIndex::NONE; 1 << 16], vec![NextHopIndex::NONE; 1 << 16]);
        dir.table().lookup_batch(&low, &mut of_dir);
        dxr.table().lookup_batch(&low, &mut of_dxr);
        prop_assert_eq!(of_dir, of_dxr);
    }
}

#[test]
fn the_ends_of_the_address_space() {
    fn ends<T: Table4>(table: T) {
        let hop = |number| NextHopIndex::new(number).unwrap();
        let mut fib = Fib4::new(table);
        let routes = ["0.0.0.0/0", "0.0.0.0/31", "0.0.0.0/32", "255.255.255.254/31", "255.255.255.255/32"];
        for (i, prefix) in routes.iter().enumerate() {
            fib.insert(prefix.parse().unwrap(), hop(i as u16 + 1)).unwrap();
        }
        let answers =
            |fib: &Fib4<T>| [0, 1, 2, !0 - 2, !0 - 1, !0].map(|address| fib.table().lookup(address).get());
        assert_eq!(answers(&fib), [3, 2, 1, 1, 4, 5]);
        fib.remove("0.0.0.0/0".parse().unwrap()).unwrap();
        assert_eq!(answers(&fib), [3, 2, 0, 0, 4, 5]);
        fib.remove("0.0.0.0/32".parse().unwrap()).unwrap();
        fib.remove("255.255.255.255/32".parse().unwrap()).unwrap();
        assert_eq!(answers(&fib), [2, 2, 0, 0, 4, 4]);
        fib.replace("0.0.0.0/0".parse().unwrap(), hop(9)).unwrap();
        assert_eq!(answers(&fib), [2, 2, 9, 9, 4, 4]);
    }
    ends(Linear::new());
    ends(Dir24_8::new().unwrap());
    ends(Dxr18::new().unwrap());
    ends(Dxr20::new().unwrap());
}

#[test]
#[should_panic(expected = "one place for each answer")]
fn a_batch_needs_as_many_places_as_addresses() {
    Dir24_8::new().unwrap().lookup_batch(&[1, 2], &mut [NextHopIndex::NONE]);
}
