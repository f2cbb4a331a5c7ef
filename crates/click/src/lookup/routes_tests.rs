//! The shared routes without a graph: transactions against a map of routes, numbers of next hops, texts.

use std::collections::{BTreeMap, BTreeSet};

use fib::{Kind, NextHopIndex};
use proptest::prelude::*;

use super::family::{MAIN_INDEX, RouteFamily};
use super::route::{Route, Via};
use super::routes::{Command, Routes};

fn routes<A: RouteFamily>() -> Routes<A> {
    Routes::new(Kind::default()).unwrap()
}

fn add(text: &str) -> Command<u32> {
    Command::Add(Route::parse(text, 1000).unwrap())
}

/// A `/24` to a gateway of the same number.
fn numbered(number: u32) -> Route<u32> {
    let prefix = ipnet::Ipv4Net::new((number << 8).into(), 24).unwrap();
    Route { prefix, via: Some(Via { gateway: number, output: 0, spi: 0 }) }
}

/// A RIB that is being filled holds no numbers yet; none may be given to another next hop meanwhile.
#[test]
fn a_table_with_too_many_next_hops_is_refused_and_none_is_mixed_up() {
    for count in [40_000, 65_534] {
        let result: Result<(), String> = routes::<u32>().load(|rib, transaction| {
            for number in 1..=count {
                let route = numbered(number);
                let to = transaction.number(route.via.unwrap())?;
                rib.insert(route.prefix, to).map_err(|error| error.to_string())?;
            }
            Ok(())
        });
        assert_eq!(
            result.unwrap_err(),
            "32767 pairs of gateway and output are in use, and there can be no more"
        );
    }
}

#[test]
fn numbers_of_next_hops_that_are_gone_are_used_again() {
    let routes = routes::<u32>();
    let prefix = "10.0.0.0/8".parse().unwrap();
    for gateway in 1..=40_000 {
        let via = Some(Via { gateway, output: 0, spi: 0 });
        routes.transact(&[Command::Set(Route { prefix, via })]).unwrap();
        assert_eq!(routes.next_hops(), 1);
    }
    assert_eq!(routes.text(), "10.0.0.0/8\t\t0.0.156.64\t0\n");
    routes.flush().unwrap();
    assert_eq!(routes.next_hops(), 0);
}

#[test]
fn too_many_next_hops_are_refused_and_a_transaction_may_exchange_them_all() {
    let routes = routes::<u32>();
    let most: Vec<Command<u32>> = (1..=32_767).map(|number| Command::Add(numbered(number))).collect();
    routes.transact(&most).unwrap();
    let before = routes.text();
    let one_more = Command::Add(numbered(40_000));
    let error = "32767 pairs of gateway and output are in use, and there can be no more";
    assert_eq!(routes.transact(&[one_more]).unwrap_err(), error);
    // Each takes the number that the one before it has left; the last finds none.
    let exchange: Vec<Command<u32>> = (1..=1000)
        .flat_map(|number| {
            let gone = Route { via: None, ..numbered(number) };
            [Command::Remove(gone), Command::Add(numbered(40_000 + number))]
        })
        .collect();
    let mut too_many = exchange.clone();
    too_many.push(Command::Add(numbered(50_000)));
    assert_eq!(routes.transact(&too_many).unwrap_err(), format!("command 2001: {error}"));
    assert_eq!((routes.text(), routes.next_hops()), (before, 32_767));
    routes.transact(&exchange).unwrap();
    assert_eq!(routes.next_hops(), 32_767);
}

#[test]
fn the_text_has_clicks_columns() {
    let routes = routes();
    let texts = ["10.0.0.0/8 1", "0/0 192.0.2.1 2", "192.168.100.128/25 203.0.113.254 3"];
    routes.transact(&texts.map(add)).unwrap();
    let expected = "0.0.0.0/0\t\t192.0.2.1\t2\n10.0.0.0/8\t\t-\t\t1\n192.168.100.128/25\t203.0.113.254\t3\n";
    assert_eq!(routes.text(), expected);
}

#[test]
fn check_and_memory_say_what_there_is() {
    let routes = routes();
    let empty = routes.memory_bytes();
    routes.transact(&[add("10/8 1"), add("10.1/16 2"), add("11/8 1")]).unwrap();
    let text = routes.check();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    for (line, place) in lines.iter().zip(["active", "passive"]) {
        assert!(line.starts_with(&format!("{place} byte24: routes 3, ranges 5, digest ")), "{text}");
        assert!(line.ends_with(", ok"), "{text}");
    }
    assert!(routes.memory_bytes() > empty);
}

/// Prefixes that often contain and often equal each other, within the first 32 bits of an address.
fn prefixes() -> impl Strategy<Value = (u32, u8)> {
    let length = prop_oneof![Just(0u8), Just(8), Just(20), Just(24), Just(25), Just(31), Just(32)];
    (0u32..4, 0u32..4, length).prop_map(|(high, low, length)| (high << 30 | high << 8 | low, length))
}

/// Kind, prefix, gateway and output of a command.
type Wanted = (u8, (u32, u8), (u32, u16));

fn transactions() -> impl Strategy<Value = Vec<Vec<Wanted>>> {
    let command = (0..4u8, prefixes(), (0u32..3, 0u16..3));
    prop::collection::vec(prop::collection::vec(command, 1..6), 1..12)
}

fn command<A: RouteFamily>(
    &(kind, (bits, length), (gateway, output)): &Wanted,
    widen: fn(u32) -> A,
) -> Command<A> {
    let prefix = A::net(widen(bits) & A::mask(length), length);
    let via = Some(Via { gateway: widen(gateway), output, spi: 0 });
    match kind {
        0 => Command::Add(Route { prefix, via }),
        1 => Command::Set(Route { prefix, via }),
        2 => Command::Remove(Route { prefix, via }),
        _ => Command::Remove(Route { prefix, via: None }),
    }
}

/// The commands on a map of routes; `None` when one is refused.
fn reference<A: RouteFamily>(
    mut routes: BTreeMap<A::Net, Via<A>>,
    commands: &[Command<A>],
) -> Option<BTreeMap<A::Net, Via<A>>> {
    for command in commands {
        match *command {
            Command::Add(Route { prefix, via }) => {
                if routes.insert(prefix, via.unwrap()).is_some() {
                    return None;
                }
            }
            Command::Set(Route { prefix, via }) => {
                routes.insert(prefix, via.unwrap());
            }
            Command::Remove(Route { prefix, via }) => {
                let known = routes.remove(&prefix)?;
                if via.is_some_and(|wanted| wanted != known) {
                    return None;
                }
            }
        }
    }
    Some(routes)
}

fn scan<A: RouteFamily>(routes: &BTreeMap<A::Net, Via<A>>, address: A) -> Option<Via<A>> {
    let matching = routes.iter().filter(|&(&prefix, _)| {
        let (network, length) = A::parts(prefix);
        address & A::mask(length) == network
    });
    matching.max_by_key(|&(&prefix, _)| A::parts(prefix).1).map(|(_, &via)| via)
}

fn all_or_nothing<A: RouteFamily>(
    transactions: &[Vec<Wanted>],
    widen: fn(u32) -> A,
) -> Result<(), TestCaseError> {
    let shared = routes::<A>();
    let mut reader = shared.reader();
    let mut routes = BTreeMap::new();
    for transaction in transactions {
        let commands: Vec<Command<A>> = transaction.iter().map(|wanted| command(wanted, widen)).collect();
        let result = shared.transact(&commands);
        let expected = reference(routes.clone(), &commands);
        prop_assert_eq!(result.is_ok(), expected.is_some(), "{:?} {:?}", result, commands);
        routes = expected.unwrap_or(routes);
        let state = reader.enter();
        let edges = routes.keys().flat_map(|&prefix| {
            let (first, length) = A::parts(prefix);
            let last = first | !A::mask(length);
            [first, last, first.previous(), last.next()]
        });
        for address in edges.chain([A::MIN, A::MAX]) {
            let number =
                A::table(&state, MAIN_INDEX).map_or(NextHopIndex::NONE, |table| table.lookup(address));
            let found = state.next_hops().resolve(number, 0).forward().copied();
            prop_assert_eq!(found, scan(&routes, address), "{:?}", address);
        }
        drop(state);
        let lines = routes.iter().map(|(prefix, via)| format!("{prefix} {via}"));
        let text = shared.text();
        let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        prop_assert!(lines.eq(words), "{}", text);
        let used: BTreeSet<(A, u16)> = routes.values().map(|via| (via.gateway, via.output)).collect();
        prop_assert_eq!(shared.next_hops(), used.len());
    }
    let check = shared.check();
    prop_assert!(check.lines().count() == 2 && check.lines().all(|line| line.ends_with(", ok")), "{}", check);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn transactions_do_all_or_nothing_in_ipv4(transactions in transactions()) {
        all_or_nothing::<u32>(&transactions, |bits| bits)?;
    }

    #[test]
    fn transactions_do_all_or_nothing_in_ipv6(transactions in transactions()) {
        all_or_nothing::<u128>(&transactions, |bits| u128::from(bits) << 96)?;
    }
}
