//! Every compiled table, its mirror image and the RIB itself give the answers of a linear scan after any sequence of
//! changes.
//!
//! Prefixes are drawn so that they nest and collide: few distinct bits, placed at both ends of the address space and
//! around the boundaries at which the tables change their way of storing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use fib::{Byte24, Change, Dir24_8, Linear, LocalFib, NextHopIndex, Rank, Rib, Table};
use packet::Family;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step<A: Family> {
    Insert(A::Net, NextHopIndex),
    Replace(A::Net, NextHopIndex),
    Remove(A::Net),
}

/// A family and how to draw addresses that nest and collide.
trait Drawn: Family {
    fn address() -> BoxedStrategy<Self>;
    fn length() -> BoxedStrategy<u8>;
}

impl Drawn for u32 {
    fn address() -> BoxedStrategy<u32> {
        let first = prop::sample::select(vec![0u32, 10, 127, 255]);
        let second = prop::sample::select(vec![0u32, 1, 255]);
        let third = prop::sample::select(vec![0u32, 1, 15, 16, 31, 32, 63, 64, 128, 255]);
        let last = prop_oneof![prop::sample::select(vec![0u32, 1, 2, 31, 32, 127, 128, 254, 255]), 0u32..256];
        (first, second, third, last).prop_map(|(a, b, c, d)| a << 24 | b << 16 | c << 8 | d).boxed()
    }

    fn length() -> BoxedStrategy<u8> {
        prop_oneof![2 => 0u8..=32, 2 => 16u8..=24, 3 => 24u8..=32].boxed()
    }
}

impl Drawn for u128 {
    fn address() -> BoxedStrategy<u128> {
        let first = prop::sample::select(vec![0u128, 0x2001, 0x2a00, 0xffff]);
        let byte = || prop::sample::select(vec![0u128, 1, 0x80, 0xfe, 0xff]);
        let third = byte();
        let middle = (byte(), prop::sample::select(vec![0u128, 0xff_ffff]), byte());
        let last = prop_oneof![
            prop::sample::select(vec![
                0u128,
                1,
                1 << 56,
                1 << 40,
                1 << 39,
                1 << 8,
                (1 << 64) - 1,
                (1 << 64) - 2
            ]),
            0u128..256,
        ];
        (first, third, middle, last)
            .prop_map(|(a, b, (c, d, e), f)| a << 112 | b << 104 | c << 96 | d << 72 | e << 64 | f)
            .boxed()
    }

    fn length() -> BoxedStrategy<u8> {
        prop_oneof![
            1 => 0u8..=128,
            1 => 12u8..=28,
            2 => 28u8..=64,
            1 => 52u8..=60,
            1 => 84u8..=92,
            2 => 116u8..=128,
        ]
        .boxed()
    }
}

fn network<A: Family>(address: A, length: u8) -> A::Net {
    A::net(address & A::mask(length), length)
}

fn prefix<A: Drawn>() -> impl Strategy<Value = A::Net> {
    (A::address(), A::length()).prop_map(|(address, length)| network(address, length))
}

fn next_hop() -> impl Strategy<Value = NextHopIndex> {
    prop_oneof![4 => 0u16..4, 1 => prop::sample::select(vec![254u16, 255, 256, 0x7fff])]
        .prop_map(|number| NextHopIndex::new(number).unwrap())
}

fn step<A: Drawn>() -> impl Strategy<Value = Step<A>> {
    prop_oneof![
        3 => (prefix::<A>(), next_hop()).prop_map(|(prefix, next_hop)| Step::Insert(prefix, next_hop)),
        2 => (prefix::<A>(), next_hop()).prop_map(|(prefix, next_hop)| Step::Replace(prefix, next_hop)),
        1 => prefix::<A>().prop_map(Step::Remove),
    ]
}

/// A table that is changed, the mirror image that follows it, and one that gets what changed before a publication at once.
struct Mirrored<A: Family, T: Table<A>> {
    rib: Rib<A>,
    compiler: T::Compiler,
    ahead: T,
    behind: T,
    late: (T, T::Compiler),
    changed: Vec<A::Net>,
}

impl<A: Family, T: Table<A>> Mirrored<A, T> {
    fn new() -> Self {
        let (ahead, behind) = (T::new().unwrap(), T::new().unwrap());
        let (compiler, late) = (T::Compiler::default(), (T::new().unwrap(), T::Compiler::default()));
        Mirrored { rib: Rib::new(), compiler, ahead, behind, late, changed: Vec::new() }
    }

    fn update(&mut self, prefix: A::Net, change: Option<Change>) {
        if change.is_some_and(|change| change.is_visible()) {
            self.ahead.update(&mut self.compiler, &self.rib, prefix).unwrap();
            self.changed.push(prefix);
        }
    }

    /// As a router does: the copies are exchanged, and the older one follows.
    fn publish(&mut self) {
        std::mem::swap(&mut self.ahead, &mut self.behind);
        self.ahead.catch_up(&mut self.compiler, &self.behind);
        self.changed.sort();
        self.changed.dedup();
        let (late, compiler) = &mut self.late;
        if T::surely_fits(&self.rib) {
            late.update_all(compiler, &self.rib, &self.changed).unwrap();
        } else {
            late.rebuild(compiler, &self.rib).unwrap();
        }
        self.changed.clear();
    }
}

/// Applies a change to both; what one refuses the other must not have.
fn apply<A: Family, T: Table<A>>(table: &mut Mirrored<A, T>, model: &mut Linear<A>, step: Step<A>) {
    let in_model = |model: &Linear<A>, prefix| model.routes().any(|(known, _)| known == prefix);
    match step {
        Step::Insert(prefix, next_hop) => {
            let fresh = !in_model(model, prefix);
            let change = table.rib.insert(prefix, next_hop);
            assert_eq!(change.is_ok(), fresh);
            if fresh {
                model.set(prefix, next_hop);
            }
            table.update(prefix, change.ok());
        }
        Step::Replace(prefix, next_hop) => {
            let change = table.rib.replace(prefix, next_hop).unwrap();
            assert_eq!(change.before, model.set(prefix, next_hop));
            table.update(prefix, Some(change));
        }
        Step::Remove(prefix) => {
            let change = table.rib.remove(prefix).ok();
            assert_eq!(change.and_then(|change| change.before), model.unset(prefix));
            table.update(prefix, change);
        }
    }
}

/// The addresses where something may change: the ends of every route and their neighbours.
fn edges<A: Family>(model: &Linear<A>) -> Vec<A> {
    let mut edges = vec![A::MIN, A::MIN.next(), A::MAX.previous(), A::MAX];
    for (prefix, _) in model.routes() {
        let (first, length) = A::parts(prefix);
        let last = first | !A::mask(length);
        let middle = first | (!A::mask(length) & A::mask(length.saturating_add(1).min(A::BITS)));
        edges.extend([first, last, first.previous(), last.next(), middle]);
    }
    edges
}

fn agree<A: Family, T: Table<A>>(table: &T, model: &Linear<A>, addresses: &[A], what: &str) {
    let mut batch = vec![NextHopIndex::MAX; addresses.len()];
    table.lookup_batch(addresses, &mut batch);
    for (&address, &batched) in addresses.iter().zip(&batch) {
        let expected = model.lookup(address);
        let shown = address.to_ip();
        assert_eq!(table.lookup(address), expected, "{shown} single, {what}");
        assert_eq!(batched, expected, "{shown} batched, {what}");
        // Groups of one address may go another way.
        let mut same = [NextHopIndex::MAX; 9];
        table.lookup_batch(&[address; 9], &mut same);
        assert_eq!(same, [expected; 9], "{shown} nine times, {what}");
    }
}

fn check<A: Family, T: Table<A>>(steps: &[Step<A>], addresses: &[A], publish_every: usize) {
    let mut table = Mirrored::<A, T>::new();
    let mut model = Linear::default();
    for (i, &step) in steps.iter().enumerate() {
        apply(&mut table, &mut model, step);
        if i % publish_every == publish_every - 1 {
            table.publish();
        }
        if i % 16 == 15 || i + 1 == steps.len() {
            let all: Vec<A> = edges(&model).into_iter().chain(addresses.iter().copied()).collect();
            agree(&table.ahead, &model, &all, "changed step by step");
            table.publish();
            agree(&table.ahead, &model, &all, "which caught up");
            agree(&table.late.0, &model, &all, "changed in batches");
            let rebuilt = LocalFib::<A, T>::build(table.rib.clone()).unwrap();
            agree(rebuilt.table(), &model, &all, "compiled at once");
            for &address in &all {
                let route = table.rib.longest_match(address);
                let in_rib = route.map_or(NextHopIndex::NONE, |found| found.next_hop);
                assert_eq!(in_rib, model.lookup(address), "{} in the RIB", address.to_ip());
            }
            assert_eq!(table.rib.len(), model.routes().count());
        }
    }
    // And back to nothing, in an order of no meaning.
    let prefixes: Vec<A::Net> = model.routes().map(|(prefix, _)| prefix).collect();
    for prefix in prefixes {
        apply(&mut table, &mut model, Step::Remove(prefix));
    }
    agree(&table.ahead, &model, addresses, "emptied");
    table.publish();
    agree(&table.late.0, &model, addresses, "emptied at once");
}

macro_rules! properties {
    ($($name:ident: $address:ty, $table:ty;)*) => {
        proptest! {
            #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
            $(
                #[test]
                fn $name(
                    steps in prop::collection::vec(step::<$address>(), 1..80),
                    addresses in prop::collection::vec(<$address>::address(), 70),
                    publish_every in 1usize..20,
                ) {
                    check::<$address, $table>(&steps, &addresses, publish_every);
                }
            )*
        }
    };
}

fib::for_each_table!(properties);

properties! {
    linear: u32, Linear<u32>;
    linear_of_ipv6: u128, Linear<u128>;
    byte24_without_a_small_form: u32, Byte24<0>;
    byte24_with_few_routes: u32, Byte24<12>;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// All addresses of one /16 crowded with routes, so that lists, blocks and groups get full.
    #[test]
    fn a_crowded_network(
        routes in prop::collection::vec((0u32..1 << 16, 14u8..=32, next_hop()), 1..300),
        removed in prop::collection::vec(any::<prop::sample::Index>(), 0..100),
    ) {
        let prefix = |low: u32, length| network::<u32>(0x0a01_0000 | low, length);
        let mut steps: Vec<Step<u32>> =
            routes.iter().map(|&(low, length, next_hop)| Step::Replace(prefix(low, length), next_hop)).collect();
        steps.extend(removed.iter().map(|index| {
            let (low, length, _) = routes[index.index(routes.len())];
            Step::Remove(prefix(low, length))
        }));
        let low: Vec<u32> = (0..1 << 16).map(|low| 0x0a01_0000 | low).collect();
        fn answers<T: Table<u32>>(steps: &[Step<u32>], low: &[u32]) -> Vec<NextHopIndex> {
            let mut table = Mirrored::<u32, T>::new();
            let mut model = Linear::default();
            steps.iter().for_each(|&step| apply(&mut table, &mut model, step));
            agree(&table.ahead, &model, &edges(&model), "crowded");
            table.publish();
            let mut answers = vec![NextHopIndex::NONE; low.len()];
            table.ahead.lookup_batch(low, &mut answers);
            let mut late = vec![NextHopIndex::NONE; low.len()];
            table.late.0.lookup_batch(low, &mut late);
            assert_eq!(late, answers, "changed at once");
            answers
        }
        let expected = answers::<Dir24_8>(&steps, &low);
        prop_assert_eq!(&answers::<Rank>(&steps, &low), &expected);
        prop_assert_eq!(&answers::<Byte24<0>>(&steps, &low), &expected);
    }
}

fn ends<A: Family, T: Table<A>>() {
    let to = |number| NextHopIndex::new(number).unwrap();
    let mut fib = LocalFib::<A, T>::new().unwrap();
    let (min, max) = (A::MIN, A::MAX);
    let all = A::net(min, 0);
    let (first_two, first) = (A::net(min, A::BITS - 1), A::net(min, A::BITS));
    let (last_two, last) = (A::net(max.previous(), A::BITS - 1), A::net(max, A::BITS));
    for (i, prefix) in [all, first_two, first, last_two, last].into_iter().enumerate() {
        fib.insert(prefix, to(i as u16 + 1)).unwrap();
    }
    let low = [min, min.next(), min.next().next()];
    let high = [max.previous().previous(), max.previous(), max];
    let answers = |fib: &LocalFib<A, T>| {
        let mut batch = [NextHopIndex::NONE; 6];
        fib.table().lookup_batch(&[low, high].concat(), &mut batch);
        for (address, &batched) in low.into_iter().chain(high).zip(&batch) {
            assert_eq!(fib.lookup(address), batched);
        }
        batch.map(NextHopIndex::get)
    };
    assert_eq!(answers(&fib), [3, 2, 1, 1, 4, 5]);
    fib.remove(all).unwrap();
    assert_eq!(answers(&fib), [3, 2, 0, 0, 4, 5]);
    fib.remove(first).unwrap();
    fib.remove(last).unwrap();
    assert_eq!(answers(&fib), [2, 2, 0, 0, 4, 4]);
    fib.replace(all, to(9)).unwrap();
    assert_eq!(answers(&fib), [2, 2, 9, 9, 4, 4]);
}

#[test]
fn the_ends_of_the_address_space() {
    macro_rules! ends {
        ($($name:ident: $family:ty, $table:ty;)*) => { $(ends::<$family, $table>();)* };
    }
    fib::for_each_table!(ends);
    ends::<u32, Linear<u32>>();
    ends::<u128, Linear<u128>>();
    ends::<u32, Byte24<0>>();
}

#[test]
#[should_panic(expected = "one place for each answer")]
fn a_batch_needs_as_many_places_as_addresses() {
    Dir24_8::new().unwrap().lookup_batch(&[1, 2], &mut [NextHopIndex::NONE]);
}
