use std::collections::HashMap;

use proptest::prelude::*;

use super::super::flow::Tuple;
use super::*;

/// A table as simple as it can be: everything is searched.
struct Model {
    flows: HashMap<u32, (Flow, u8, u64)>,
    classes: Vec<(u64, u64)>,
    capacity: usize,
}

impl Model {
    fn find(&self, key: &Key) -> Option<Place> {
        // A flow that answers itself is found as its reply.
        let on =
            |reply| self.flows.iter().find(|(_, (flow, ..))| flow.key(reply) == *key).map(|(flow, _)| *flow);
        on(true)
            .map(|flow| Place { flow, reply: true })
            .or(on(false).map(|flow| Place { flow, reply: false }))
    }

    fn step(&self, class: u8) -> u64 {
        let (guarantee, timeout) = self.classes[usize::from(class)];
        (if guarantee == 0 { timeout } else { guarantee } / 16).clamp(1, COARSE_NS)
    }

    /// When a flow would go: at which time its expiry is. Flows of one class are distinguished by nothing else.
    fn victim_expiry(&self, now: u64) -> Option<u64> {
        let times = |(_, class, used): &(Flow, u8, u64)| {
            let (guarantee, timeout) = self.classes[usize::from(*class)];
            (used + guarantee <= now).then_some(used + timeout)
        };
        self.flows.values().filter_map(times).min()
    }
}

#[derive(Clone, Debug)]
enum Act {
    Insert { original: (u8, u8), rewritten: (u8, u8), class: u8 },
    Touch { key: (u8, u8), class: u8 },
    Remove { key: (u8, u8) },
    Wait { ns: u64 },
    Capacity { flows: usize },
    Clear { owner: u16 },
}

fn tuple((a, b): (u8, u8)) -> Tuple {
    Tuple { source: u32::from(a), destination: u32::from(b), source_port: 0, destination_port: 0 }
}

fn key(pair: (u8, u8)) -> Key {
    Key { tuple: tuple(pair), map: 6 }
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let pair = || (0..12_u8, 0..12_u8);
    let act = prop_oneof![
        6 => (pair(), pair(), 0..3_u8).prop_map(|(original, rewritten, class)| Act::Insert { original, rewritten, class }),
        6 => (pair(), 0..3_u8).prop_map(|(key, class)| Act::Touch { key, class }),
        2 => pair().prop_map(|key| Act::Remove { key }),
        4 => prop_oneof![0..20_u64, 0..2000_u64].prop_map(|ns| Act::Wait { ns }),
        1 => (0..40_usize).prop_map(|flows| Act::Capacity { flows }),
        1 => (0..3_u16).prop_map(|owner| Act::Clear { owner }),
    ];
    proptest::collection::vec(act, 0..300)
}

proptest! {
    /// Finding, replacing, evicting, expiring: as the model does it, whatever the order.
    #[test]
    fn as_a_hash_map(acts in acts()) {
        let classes = vec![(0, 500), (100, 1000), (50, 50)];
        let mut table = Table::new(20, FlowKey::from_seed(0)).unwrap();
        for (number, (guarantee, timeout)) in classes.iter().enumerate() {
            prop_assert_eq!(usize::from(table.class(*guarantee, *timeout).unwrap()), number);
        }
        for owner in 0..3 {
            prop_assert_eq!(table.owner().unwrap(), owner);
        }
        let mut model = Model { flows: HashMap::new(), classes, capacity: 20 };
        let mut now = 1000;
        for act in acts {
            match act {
                Act::Insert { original, rewritten, class } => {
                    let flow = Flow::new(tuple(original), tuple(rewritten), 6, [0; 2], u16::from(class));
                    for key in [flow.key(false), flow.key(true)] {
                        model.flows.retain(|_, (old, ..)| old.key(false) != key && old.key(true) != key);
                    }
                    let full = model.flows.len() >= model.capacity;
                    let victim = model.victim_expiry(now).filter(|_| full);
                    let (_, timeout) = model.classes[usize::from(class)];
                    let refused = full && victim.is_none_or(|expiry| now + timeout < expiry);
                    let inserted = table.insert(flow, class, now);
                    prop_assert_eq!(inserted.is_none(), refused);
                    if let Some(number) = inserted {
                        if victim.is_some() {
                            // Whichever went, it was one of those that were to go next.
                            let gone: Vec<u32> = model.flows.keys().copied().filter(|known| {
                                *known == number || table.get(*known).is_none()
                            }).collect();
                            prop_assert_eq!(gone.len(), 1);
                            let (_, class, used) = model.flows.remove(&gone[0]).unwrap();
                            prop_assert_eq!(Some(used + model.classes[usize::from(class)].1), victim);
                        }
                        model.flows.insert(number, (flow, class, now));
                    }
                }
                Act::Touch { key: pair, class } => {
                    let step = model.step(class);
                    if let Some(place) = table.find(&key(pair)) {
                        table.touch(place.flow, class, now);
                        let (_, old, used) = model.flows.get_mut(&place.flow).unwrap();
                        if *old != class || now - *used >= step {
                            (*old, *used) = (class, now);
                        }
                    }
                }
                Act::Remove { key: pair } => {
                    if let Some(place) = table.find(&key(pair)) {
                        table.remove(place.flow);
                        model.flows.remove(&place.flow);
                    }
                }
                Act::Wait { ns } => {
                    now += ns;
                    while table.expire(now) {}
                    let classes = model.classes.clone();
                    model.flows.retain(|_, (_, class, used)| *used + classes[usize::from(*class)].1 > now);
                }
                Act::Capacity { flows } => {
                    table.set_capacity(flows).unwrap();
                    model.capacity = flows;
                    let mut expiries: Vec<_> = model.flows.iter().map(|(number, (_, class, used))| {
                        (used + model.classes[usize::from(*class)].1, *number)
                    }).collect();
                    expiries.sort_unstable();
                    let left = expiries.len().min(flows);
                    prop_assert_eq!(table.len(), left);
                    let border = expiries.get(expiries.len() - left).map_or(u64::MAX, |(expiry, _)| *expiry);
                    for (expiry, number) in expiries {
                        if table.get(number).is_none() {
                            prop_assert!(expiry <= border);
                            model.flows.remove(&number);
                        }
                    }
                }
                Act::Clear { owner } => {
                    table.remove_if(|flow| flow.owner == owner);
                    model.flows.retain(|_, (flow, ..)| flow.owner != owner);
                }
            }
            prop_assert_eq!(table.len(), model.flows.len());
            prop_assert_eq!(table.iter().count(), model.flows.len());
            for owner in 0..3 {
                let count = model.flows.values().filter(|(flow, ..)| flow.owner == owner).count();
                prop_assert_eq!(table.count(owner) as usize, count);
            }
            for host in 0..12 {
                let count = model.flows.values().filter(|(flow, ..)| flow.original.source == host).count();
                prop_assert_eq!(table.of_host(host) as usize, count);
            }
            for a in 0..12 {
                for b in 0..12 {
                    prop_assert_eq!(table.find(&key((a, b))), model.find(&key((a, b))));
                }
            }
        }
    }
}

#[test]
fn a_million_flows() {
    const FLOWS: u32 = 1 << 20;
    let mut table = Table::new(FLOWS as usize, FlowKey::from_seed(0)).unwrap();
    let class = table.class(0, 1_000_000).unwrap();
    let owner = table.owner().unwrap();
    let flow = |number: u32| {
        let original = Tuple {
            source: 0x0a00_0000 + number,
            destination: 0x0808_0808,
            source_port: 5,
            destination_port: 80,
        };
        let rewritten = Tuple { source: 1 + (number >> 16), source_port: number as u16, ..original };
        Flow::new(original, rewritten, 17, [0, 1], owner)
    };
    for number in 0..FLOWS {
        assert!(table.insert(flow(number), class, u64::from(number)).is_some());
    }
    assert_eq!(table.len(), FLOWS as usize);
    for number in (0..FLOWS).step_by(37) {
        let place = table.find(&flow(number).key(true)).unwrap();
        assert!(place.reply && table.get(place.flow).unwrap().original == flow(number).original);
    }
    // One more, and the first goes.
    assert!(table.insert(flow(FLOWS), class, u64::from(FLOWS)).is_some());
    assert_eq!((table.find(&flow(0).key(false)), table.len()), (None, FLOWS as usize));
    while table.expire(u64::from(FLOWS) + 500_000) {}
    assert!(table.len() > 450_000 && table.len() < 550_000);
    while table.expire(u64::MAX) {}
    assert_eq!(table.len(), 0);
    assert!(table.index.iter().all(|slot| *slot == 0));
}

#[test]
fn shifts_are_used_again() {
    let mut table = Table::new(4, FlowKey::from_seed(0)).unwrap();
    let class = table.class(0, 10).unwrap();
    let owner = table.owner().unwrap();
    for number in 0..100_u8 {
        let flow = Flow::new(tuple((number, 1)), tuple((number, 2)), 6, [0; 2], owner);
        let flow = table.insert(flow, class, u64::from(number)).unwrap();
        let shifts = table.shifts(flow).unwrap();
        assert_eq!(shifts.latest(false), 0);
        assert!(shifts.add(false, 100, 5));
        assert_eq!(table.known_shifts(&table.flows[flow as usize]).unwrap().latest(false), 5);
    }
    assert!(table.shifts.len() <= 5);
}
