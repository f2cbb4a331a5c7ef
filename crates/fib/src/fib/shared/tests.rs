//! What is in a region, read as `crates/ports/bpf/tables.h` reads it, against the answers that workers get.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::region::tests::region;
use crate::{Dir24_8, Kind, Kinds, Linear, MAIN, NextHopIndex, Rank, Table};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use proptest::prelude::*;
use std::time::Duration;

const SLOTS_SHARED: usize = 3;
const HASH: u32 = 5;

/// What a program sees: the bytes of a region.
struct Program<'a>(&'a Region);

impl Program<'_> {
    #[allow(unsafe_code, reason = "the region is behind a pointer")]
    fn word<T: Word>(&self, place: usize) -> T {
        assert!(place + size_of::<T>() <= self.0.bytes(), "place {place}");
        // SAFETY: inside the region, which nobody writes meanwhile.
        unsafe { self.0.memory.first().add(place).cast().read_unaligned() }
    }

    fn place(&self, place: usize) -> usize {
        self.word::<u32>(place) as usize
    }

    fn active(&self) -> usize {
        self.word::<u64>(0) as usize
    }

    fn hop(&self, hops: usize, entry: u64, part: u32) -> u16 {
        let behind = (entry as u32).wrapping_shr(part).count_ones() as usize;
        self.word(hops + ((entry >> 32) as usize + behind) * 2)
    }

    /// The number that an IPv4 table yields; `None` if the region has no such table.
    fn lookup4(&self, vrf: usize, address: u32) -> Option<u16> {
        let [chunks, hops, blocks] = [0, 4, 8].map(|word| self.place(vrf + word));
        if chunks == 0 {
            return None;
        }
        let chunk = self.word::<u64>(chunks + (address >> 13) as usize * 8);
        let found = self.hop(hops, chunk, address >> 8);
        if found & 0x8000 == 0 {
            return Some(found);
        }
        let base = hops + (chunk >> 32) as usize * 2;
        let first = self.word::<u16>(base - 4) as usize | (self.word::<u16>(base - 2) as usize) << 16;
        let block = first + usize::from(found & 0x7fff);
        let part = blocks + (block * 8 + (address >> 5 & 7) as usize) * 8;
        Some(self.hop(hops, self.word(part), address))
    }

    fn lookup6(&self, vrf: usize, address: u128) -> Option<u16> {
        let [top, middles, nodes] = [12, 16, 20].map(|word| self.place(vrf + word));
        if top == 0 {
            return None;
        }
        let mut word = self.word::<u32>(top + (address >> 112) as usize * 4);
        if word >> 31 != 0 {
            let block = (word & 0x3fff_ffff) as usize;
            word = self.word(middles + (block * 256 + (address >> 104) as usize % 256) * 4);
        }
        let mut key = address << 24;
        while word >> 31 != 0 {
            if word >> 30 & 1 != 0 {
                key <<= 32;
            }
            let node = nodes + (word & 0x3fff_ffff) as usize * 128;
            let below = |place: &usize| self.word::<u32>(node + place * 4) < (key >> 96) as u32;
            let place = (0..16).find(|place| !below(place)).unwrap();
            word = self.word(node + 64 + place * 4);
        }
        Some(word as u16 & 0x7fff)
    }

    /// The next hop of a number; `None` if the region does not have it.
    fn line(&self, number: u16, hash: u32) -> Option<Line> {
        let descriptor = self.active();
        if u32::from(number) >= self.word(descriptor + 4) {
            return None;
        }
        let [entries, buckets, lines] = [0, 8, 16].map(|word| self.place(descriptor + word));
        let entry = self.word::<u64>(entries + usize::from(number) * 8);
        let mixed = (u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
        let bucket = entry as u32 + (mixed & (entry >> 32) as u32);
        let slot = self.word::<u16>(buckets + bucket as usize * 2);
        Some(self.word(lines + usize::from(slot) * 32))
    }

    /// What becomes of packets to a destination in a VRF; `None` if that is for others to decide.
    fn answer(&self, vrf: usize, destination: Destination, hash: u32) -> Option<Line> {
        let descriptor = self.active();
        if descriptor == 0 || vrf as u32 >= self.word(descriptor + 24) {
            return None;
        }
        let vrf = descriptor + 32 + vrf * 32;
        let number = match destination {
            Destination::V4(address) => self.lookup4(vrf, address),
            Destination::V6(address) => self.lookup6(vrf, address),
        };
        self.line(number?, hash)
    }
}

#[derive(Clone, Copy, Debug)]
enum Destination {
    V4(u32),
    V6(u128),
}

#[derive(Clone, Debug)]
enum Step {
    /// So many routes side by side, to one next hop and the other in turn, or no more.
    Routes {
        vrf: usize,
        net: IpNet,
        count: u32,
        next_hops: Option<[u16; 2]>,
    },
    Add {
        count: u8,
        next_hop: NextHop<Adjacency>,
    },
    Set(u16, NextHop<Adjacency>),
    Down(u16),
    Up(u16),
    Backup(u16, u16),
    Group(u16, u16, u16),
    Remove(u16),
    AddVrf(usize),
    RemoveVrf(usize),
    Publish,
    /// In a region of so many pages, of which so many are then taken by another.
    Share {
        pages: usize,
        taken: usize,
    },
    Unshare,
}

const VRF_TABLES: [u32; 3] = [MAIN, 7, 8];

fn ipv4_nets() -> impl Strategy<Value = IpNet> {
    (any::<u32>(), 8u8..=32).prop_map(|(bits, length)| {
        Ipv4Net::new((10 << 24 | bits & 0x0000_f0ff).into(), length).unwrap().trunc().into()
    })
}

fn ipv6_nets() -> impl Strategy<Value = IpNet> {
    let lengths = prop::sample::select(vec![12u8, 20, 32, 44, 48, 56, 64, 90, 121, 128]);
    (any::<u128>(), lengths).prop_map(|(bits, length)| {
        let address = 0x2001_0db8 << 96 | bits & (0x0030_0003_0000_0000_0000_0000_0000_0003 << 16);
        Ipv6Net::new(address.into(), length).unwrap().trunc().into()
    })
}

fn next_hops() -> impl Strategy<Value = NextHop<Adjacency>> {
    prop_oneof![
        6 => any::<(u16, [u8; 6])>()
            .prop_map(|(port, mac)| NextHop::Forward(Adjacency::ethernet(port, mac, [7; 6], [8, 0]))),
        2 => any::<(u16, [u8; 6], u16)>()
            .prop_map(|(port, mac, vlan)| NextHop::Forward(Adjacency::tagged(port, mac, [7; 6], vlan, [8, 0]))),
        2 => prop::collection::vec(any::<u8>(), 0..60)
            .prop_map(|rewrite| NextHop::Forward(Adjacency::new(1, &rewrite).unwrap())),
        1 => prop::sample::select(vec![NextHop::Blackhole, NextHop::Local, NextHop::Punt]),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    let index = any::<u16>;
    let routes = (0..VRF_TABLES.len(), prop_oneof![ipv4_nets(), ipv6_nets()], 1u32..600, index(), index());
    // Two states take some nine megabytes.
    let pages = prop_oneof![2 => 1100usize..2400, 1 => Just(3000), 2 => Just(8000)];
    prop_oneof![
        6 => routes.clone().prop_map(|(vrf, net, count, first, second)| {
            Step::Routes { vrf, net, count, next_hops: Some([first, second]) }
        }),
        2 => routes.prop_map(|(vrf, net, count, ..)| Step::Routes { vrf, net, count, next_hops: None }),
        3 => (prop_oneof![3 => 1u8..4, 1 => 200u8..=255], next_hops())
            .prop_map(|(count, next_hop)| Step::Add { count, next_hop }),
        3 => (index(), next_hops()).prop_map(|(index, next_hop)| Step::Set(index, next_hop)),
        1 => index().prop_map(Step::Down),
        1 => index().prop_map(Step::Up),
        1 => (index(), index()).prop_map(|(index, backup)| Step::Backup(index, backup)),
        2 => (index(), index(), 1u16..200).prop_map(|(one, other, weight)| Step::Group(one, other, weight)),
        2 => index().prop_map(Step::Remove),
        1 => (1..VRF_TABLES.len()).prop_map(Step::AddVrf),
        1 => (1..VRF_TABLES.len()).prop_map(Step::RemoveVrf),
        4 => Just(Step::Publish),
        1 => (pages, prop_oneof![3 => Just(0usize), 1 => Just(usize::MAX), 1 => 0usize..40])
            .prop_map(|(pages, taken)| Step::Share { pages, taken }),
        1 => Just(Step::Unshare),
    ]
}

fn of<T: Table<u32>>() -> Kinds {
    Kinds { ipv4: Kind::of::<T>(), ..Kinds::default() }
}

/// A FIB, its region, and destinations worth a look.
struct Bench {
    fib: Fib<Adjacency>,
    region: Option<Arc<Region>>,
    /// What others took of it.
    taken_bytes: usize,
    numbers: Vec<NextHopIndex>,
    destinations: Vec<Destination>,
}

impl Bench {
    fn new() -> Self {
        let mut fib = Fib::of_kinds(of::<Rank>()).unwrap();
        let numbers = (1..4u8).map(|mac| {
            let adjacency = Adjacency::ethernet(mac.into(), [mac; 6], [7; 6], [8, 0]);
            fib.next_hops_mut().add(NextHop::Forward(adjacency)).unwrap()
        });
        let numbers = numbers.collect();
        let destinations = vec![Destination::V4(0), Destination::V6(0)];
        Self { fib, region: None, taken_bytes: 0, numbers, destinations }
    }

    /// Does what can be done.
    fn step(&mut self, step: &Step) {
        let Self { fib, numbers, .. } = self;
        let number = |index: &u16| numbers[usize::from(*index) % numbers.len()];
        match step {
            Step::Routes { vrf, net, count, next_hops } => {
                for place in 0..*count {
                    let (net, destination) = nth(*net, place);
                    let _ = match next_hops {
                        Some(next_hops) => {
                            let next_hop = number(&next_hops[place as usize % 2]);
                            fib.replace(VRF_TABLES[*vrf], net, next_hop)
                        }
                        None => fib.remove(VRF_TABLES[*vrf], net),
                    };
                    if place < 4 || place % 97 == 0 {
                        self.destinations.push(destination);
                    }
                }
            }
            Step::Add { count, next_hop } => {
                (0..*count).for_each(|_| numbers.push(fib.next_hops_mut().add(*next_hop).unwrap()));
            }
            Step::Set(index, next_hop) => _ = fib.next_hops_mut().set(number(index), *next_hop),
            Step::Down(index) => _ = fib.next_hops_mut().set_down(number(index)),
            Step::Up(index) => _ = fib.next_hops_mut().set_up(number(index)),
            Step::Backup(index, backup) => {
                _ = fib.next_hops_mut().set_backup(number(index), Some(number(backup)));
            }
            Step::Group(one, other, weight) => {
                let members = [(number(one), *weight), (number(other), 1)];
                numbers.extend(fib.next_hops_mut().add_group(&members));
            }
            Step::Remove(index) => _ = fib.next_hops_mut().remove(number(index)),
            Step::AddVrf(vrf) => _ = fib.add_vrf(VRF_TABLES[*vrf]),
            Step::RemoveVrf(vrf) => _ = fib.remove_vrf(VRF_TABLES[*vrf]),
            Step::Publish => fib.publish(),
            Step::Share { pages, taken } => self.share(Some((*pages, *taken))),
            Step::Unshare => self.share(None),
        }
    }

    fn share(&mut self, pages: Option<(usize, usize)>) {
        self.fib.publish();
        self.check();
        let new = pages.map(|(pages, _)| region(pages));
        let old = std::mem::replace(&mut self.region, new.clone());
        let before = self.answers();
        self.fib
            .share(new.as_ref().map(|new| (new, SLOTS_SHARED)), || {
                // Old programs and new ones are at work for a moment.
                for region in [&old, &new].into_iter().flatten() {
                    check(region, &before, false);
                }
            })
            .unwrap();
        if let Some(old) = old {
            assert_eq!(old.free_bytes() + self.taken_bytes, old.bytes(), "all was given back");
        }
        if let (Some(new), Some((_, taken))) = (&new, pages) {
            self.taken_bytes = (0..taken).map_while(|_| new.take(1)).map(|(_, bytes)| bytes).sum();
        }
    }

    /// The next hops that workers find, by table and destination; `None` without a table.
    fn answers(&self) -> Vec<(usize, Destination, Option<Line>)> {
        let mut answers = Vec::new();
        for vrf in 0..VRF_TABLES.len() {
            for &destination in &self.destinations {
                let state = self.fib.state();
                let next_hop = match destination {
                    Destination::V4(address) => state.lookup4(vrf, address, HASH),
                    Destination::V6(address) => state.lookup6(vrf, address, HASH),
                };
                let line = state.ipv4(vrf).map(|_| Line::of(next_hop));
                answers.push((vrf, destination, line));
            }
        }
        answers
    }

    /// Asserts that the program finds the next hops that workers find, or none if the region has no room for all.
    fn check(&self) {
        let Some(region) = &self.region else {
            return assert!(!self.fib.is_shared_whole());
        };
        let program = Program(region);
        assert_eq!((program.word::<u64>(16), program.word::<u64>(8) % 128), (SLOTS_SHARED as u64, 0));
        check(region, &self.answers(), self.fib.is_shared_whole());
    }
}

/// A program finds the next hops that workers find, or none if the region has no room for all.
#[track_caller]
fn check(region: &Region, answers: &[(usize, Destination, Option<Line>)], is_whole: bool) {
    let bytes = |line: &Line| (line.forwards, line.length, line.port, line.rewrite);
    for (vrf, destination, line) in answers {
        let found = Program(region).answer(*vrf, *destination, HASH);
        if is_whole || found.is_some() {
            let both = [&found, line].map(|line| line.as_ref().map(bytes));
            assert_eq!(both[0], both[1], "{destination:?} in VRF {vrf}");
        }
    }
}

/// A prefix of the same length, so many further on, and an address in it or near it.
fn nth(net: IpNet, place: u32) -> (IpNet, Destination) {
    match net {
        IpNet::V4(net) => {
            let address = u32::from(net.network()).wrapping_add(place << (32 - net.prefix_len()));
            let net = Ipv4Net::new(address.into(), net.prefix_len()).unwrap();
            (net.into(), Destination::V4(address.wrapping_add(place % 3)))
        }
        IpNet::V6(net) => {
            let address =
                u128::from(net.network()).wrapping_add(u128::from(place) << (128 - net.prefix_len()));
            let net = Ipv6Net::new(address.into(), net.prefix_len()).unwrap();
            (net.into(), Destination::V6(address.wrapping_add(u128::from(place % 3))))
        }
    }
}

proptest! {
    #[test]
    fn programs_are_told_what_workers_are(steps in prop::collection::vec(steps(), 1..60)) {
        let mut bench = Bench::new();
        bench.share(Some((8000, 0)));
        for step in &steps {
            bench.step(step);
            if matches!(step, Step::Publish | Step::Share { .. } | Step::Unshare) {
                bench.check();
            }
        }
        for _ in 0..2 {
            bench.fib.publish();
            bench.check();
        }
        bench.share(Some((16_000, 0)));
        prop_assert!(bench.fib.is_shared_whole());
        bench.check();
    }
}

/// Each kind of array outgrows a region that is full.
#[test]
fn what_a_region_has_no_room_for_is_others_to_forward() {
    let add = |count| Step::Add {
        count,
        next_hop: NextHop::Forward(Adjacency::ethernet(3, [3; 6], [7; 6], [8, 0])),
    };
    let routes = |net: &str, count| {
        let next_hops = Some([0, 1]);
        Step::Routes { vrf: 0, net: net.parse().unwrap(), count, next_hops }
    };
    let group = Step::Group(0, 1, 200);
    for growth in [
        vec![add(130)],
        vec![add(255), add(255)],
        vec![group; 40],
        vec![routes("10.0.0.0/24", 100)],
        vec![routes("10.0.0.0/32", 600)],
        vec![routes("2001:db8::/64", 600)],
        vec![routes("2001:db8::/20", 600)],
        vec![Step::AddVrf(1)],
    ] {
        let mut bench = Bench::new();
        for net in ["0.0.0.0/1", "2000::/3"] {
            bench.step(&routes(net, 1));
        }
        bench.share(Some((4000, usize::MAX)));
        assert!(bench.fib.is_shared_whole());
        for step in &growth {
            bench.step(step);
            bench.fib.publish();
            bench.check();
        }
        assert!(!bench.fib.is_shared_whole(), "{growth:?}");
        bench.share(Some((8000, 0)));
        assert!(bench.fib.is_shared_whole());
        bench.check();
        bench.share(None);
        bench.check();
    }
}

#[test]
fn the_writer_waits_for_a_program_inside() {
    let mut bench = Bench::new();
    bench.share(Some((4000, 0)));
    let slots = Program(bench.region.as_ref().unwrap()).word::<u64>(8) as usize;
    let region = bench.region.clone().unwrap();
    #[allow(unsafe_code, reason = "the region is behind a pointer")]
    // SAFETY: the third slot, which is an atomic to all.
    let slot = unsafe { AtomicU64::from_ptr(region.memory.first().add(slots + 2 * 128).cast().as_ptr()) };
    assert_eq!(slot.fetch_add(1, Ordering::SeqCst), 0);
    bench.fib.writer.flip();
    assert!(!bench.fib.writer.settle_within(Duration::ZERO));
    slot.fetch_add(1, Ordering::SeqCst);
    assert!(bench.fib.writer.settle_within(Duration::ZERO));
}

#[test]
fn tables_that_others_cannot_read_are_not_there_for_them() {
    for (kinds, not_shared) in [
        (Kinds::default(), None),
        (of::<Rank>(), None),
        (of::<Dir24_8>(), Some("dir24_8")),
        (Kinds { ipv6: Kind::of::<Linear<u128>>(), ..Kinds::default() }, Some("linear")),
    ] {
        assert_eq!(kinds.not_shared(), not_shared);
        let region = region(4096);
        let mut fib = Fib::<Adjacency>::of_kinds(kinds).unwrap();
        fib.share(Some((&region, SLOTS_SHARED)), || ()).unwrap();
        assert_eq!(fib.is_shared_whole(), not_shared.is_none(), "{kinds:?}");
    }
}
