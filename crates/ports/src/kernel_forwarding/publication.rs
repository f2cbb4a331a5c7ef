//! The program runs while the tables change as fast as they can.
//!
//! Each destination has two right ways out. The changes go to and fro between them, by all that a change may do to the
//! memory that the program reads: a next hop with a new number, where the old number is another destination's at once; a
//! next hop changed in place; a longer prefix that comes and goes, and its block with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fib::{Adjacency, Fib, MAIN, NextHop, NextHopIndex};
use ipnet::IpNet;
use packet::random::SplitMix64;
use testbed::is_root;

use super::tests::{Hook, KEY, Kernel, REDIRECTED, ipv4, ipv6, run};
use super::*;

const DESTINATIONS: usize = 64;
/// What a test waits for at most: far more than it takes, on a machine that is busy.
const LONGEST: Duration = Duration::from_secs(30);

static SLOW: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/forward_slow.o"));
static CARELESS: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/forward_careless.o"));

/// One of the two ways to a destination, even ones by IPv4.
fn way(destination: usize, way: u8) -> NextHop<Adjacency> {
    let (number, kind) =
        (destination as u8, if destination.is_multiple_of(2) { [8, 0] } else { [0x86, 0xdd] });
    let port = 1 + u16::from(number % 4) + 4 * u16::from(way);
    let [destination, source] = [2, 4].map(|first| [first, number, way, number, way, number]);
    NextHop::Forward(Adjacency::ethernet(port, destination, source, kind))
}

/// Its prefix, or the longer one.
fn prefix(destination: usize, is_longer: bool) -> IpNet {
    let text = match (destination % 2, is_longer) {
        (0, false) => format!("10.0.{destination}.0/24"),
        (0, true) => format!("10.0.{destination}.64/26"),
        (_, false) => format!("2001:db8:{destination}::/48"),
        (_, true) => format!("2001:db8:{destination}:1::/64"),
    };
    text.parse().unwrap()
}

fn frame(destination: usize) -> Vec<u8> {
    match prefix(destination, true).network() {
        IpAddr::V4(address) => ipv4(0x0b00_0001, address.to_bits() + 9, 17, 5),
        IpAddr::V6(address) => ipv6(0x2002 << 112 | 1, address.to_bits() + 9, 17, 5),
    }
}

/// The routes of a destination, and the way that each goes.
struct Routes {
    destination: usize,
    route: (NextHopIndex, u8),
    longer: Option<NextHopIndex>,
}

impl Routes {
    fn new(destination: usize, fib: &mut Fib<Adjacency>) -> Self {
        let number = fib.next_hops_mut().add(way(destination, 0)).unwrap();
        fib.insert(MAIN, prefix(destination, false), number).unwrap();
        Self { destination, route: (number, 0), longer: None }
    }

    /// Makes a change of the three.
    fn change(&mut self, fib: &mut Fib<Adjacency>, random: u64) {
        let (number, now) = self.route;
        match random % 3 {
            0 => {
                let new = fib.next_hops_mut().add(way(self.destination, 1 - now)).unwrap();
                fib.replace(MAIN, prefix(self.destination, false), new).unwrap();
                fib.next_hops_mut().remove(number).unwrap();
                self.route = (new, 1 - now);
            }
            1 => {
                fib.next_hops_mut().set(number, way(self.destination, 1 - now)).unwrap();
                self.route.1 = 1 - now;
            }
            _ => match self.longer.take() {
                Some(longer) => {
                    fib.remove(MAIN, prefix(self.destination, true)).unwrap();
                    fib.next_hops_mut().remove(longer).unwrap();
                }
                None => {
                    let new = fib.next_hops_mut().add(way(self.destination, 1 - now)).unwrap();
                    fib.insert(MAIN, prefix(self.destination, true), new).unwrap();
                    self.longer = Some(new);
                }
            },
        }
    }
}

/// What was seen, and of how much.
#[derive(Debug, Default)]
struct Seen {
    runs: u64,
    publications: u64,
    wrong: u64,
    first_wrong: Option<(usize, u32, Vec<u8>)>,
}

/// Runs an object until it has run so often, or has answered wrongly if that is what is waited for.
fn stress(object: &'static [u8], runs: u64, until_wrong: bool) -> Seen {
    let mut kernel =
        Kernel::with(KernelForwarding::load_object(16 << 20, object, KEY, false).unwrap(), Hook::Xdp);
    let mut routes: Vec<_> = (0..DESTINATIONS).map(|number| Routes::new(number, &mut kernel.fib)).collect();
    kernel.fib.publish();
    kernel.share();
    let right: Vec<_> = (0..DESTINATIONS)
        .map(|destination| {
            let frame = frame(destination);
            let first = kernel.expected(&frame).unwrap();
            let other =
                way(destination, 1).forward().map(|way| [way.rewrite(), &first[14..]].concat()).unwrap();
            (frame, [first, other])
        })
        .collect();
    let (end, stop) = (Instant::now() + LONGEST, AtomicBool::new(false));
    let Kernel { forwarding, fib, .. } = &mut kernel;
    let seen = thread::scope(|scope| {
        let program = scope.spawn(|| {
            let (mut seen, mut random) = (Seen::default(), SplitMix64::new(1));
            while seen.runs < runs && !(until_wrong && seen.wrong > 0) && Instant::now() < end {
                let destination = random.next_u64() as usize % DESTINATIONS;
                let (frame, right) = &right[destination];
                let (said, now) = run(forwarding, frame);
                seen.runs += 1;
                if said != REDIRECTED || !right.contains(&now) {
                    seen.wrong += 1;
                    seen.first_wrong.get_or_insert((destination, said, now));
                }
            }
            stop.store(true, Ordering::Relaxed);
            seen
        });
        let (mut random, mut publications) = (SplitMix64::new(2), 0);
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..=random.next_u64() % 4 {
                let which = random.next_u64();
                routes[which as usize % DESTINATIONS].change(fib, which >> 32);
            }
            fib.publish();
            publications += 1;
        }
        Seen { publications, ..program.join().unwrap() }
    });
    assert!(kernel.fib.is_shared_whole());
    seen
}

#[test]
fn no_packet_is_forwarded_by_half_a_change() {
    if !is_root() {
        return;
    }
    for (object, runs) in [(OBJECTS[0].1, 100_000), (SLOW, 20_000)] {
        let seen = stress(object, runs, false);
        assert!(seen.wrong == 0 && seen.runs > 0 && seen.publications > 0, "{seen:?}");
    }
}

/// The test above can fail: a program for which nobody waits forwards by what is being changed.
#[test]
fn a_program_that_does_not_announce_itself_is_found_out() {
    // On one processor nothing happens while the program runs.
    if !is_root() || thread::available_parallelism().is_ok_and(|count| count.get() == 1) {
        return;
    }
    let seen = stress(CARELESS, u64::MAX, true);
    assert!(seen.wrong > 0, "{seen:?}");
}

/// Rules that all deny all packets: they differ in the class of all packets, and classes that no packet has permit.
fn denying(class: u16) -> KernelRules {
    let mut rules = KernelRules::default();
    rules.values(4, &[class; 513]);
    rules.end_with_answers(4, (0..3).map(|of| u32::from(of != class)));
    rules
}

/// Runs a program while lists that deny all packets are exchanged; how many it forwarded. Ends at the first if `until_one`.
fn forwarded_by_mixed_lists(object: &'static [u8], wait: fn(), until_one: bool) -> u64 {
    let mut kernel =
        Kernel::with(KernelForwarding::load_object(16 << 20, object, KEY, true).unwrap(), Hook::Xdp);
    let next_hop = kernel.fib.next_hops_mut().add(way(0, 0)).unwrap();
    kernel.fib.insert(MAIN, "0.0.0.0/0".parse().unwrap(), next_hop).unwrap();
    kernel.fib.publish();
    kernel.share();
    let mut list = kernel.forwarding.take_list(IpVersion::V4).unwrap();
    let frame = ipv4(0x0102_0304, 0x0506_0708, 17, 0);
    let mut permitting = KernelRules::default();
    permitting.end_with_answers(4, std::iter::once(1));
    list.replace(Some(&permitting));
    assert_eq!(run(&mut kernel.forwarding, &frame).0, REDIRECTED);
    list.replace(Some(&denying(0)));
    let (end, stop) = (Instant::now() + LONGEST, AtomicBool::new(false));
    thread::scope(|scope| {
        let program = scope.spawn(|| {
            let (mut runs, mut wrong) = (0, 0);
            while (until_one && wrong == 0 || !until_one && runs < 50_000) && Instant::now() < end {
                wrong += u64::from(run(&mut kernel.forwarding, &frame).0 == REDIRECTED);
                runs += 1;
            }
            stop.store(true, Ordering::Relaxed);
            wrong
        });
        let mut class = 0;
        while !stop.load(Ordering::Relaxed) {
            // Each area has another list each time.
            class = (class + 1) % 3;
            list.replace_and_wait(Some(&denying(class)), wait);
        }
        program.join().unwrap()
    })
}

#[test]
fn no_packet_is_judged_by_half_of_a_list() {
    if !is_root() {
        return;
    }
    assert_eq!(forwarded_by_mixed_lists(SLOW, KernelForwarding::wait_for_programs, false), 0);
}

/// The test above can fail: where nobody waits, a list is written while programs read it.
#[test]
fn lists_that_nobody_waits_for_are_found_out() {
    if !is_root() || thread::available_parallelism().is_ok_and(|count| count.get() == 1) {
        return;
    }
    assert!(forwarded_by_mixed_lists(CARELESS, || (), true) > 0);
}
