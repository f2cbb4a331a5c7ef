//! A next hop fails while a worker looks up: how long until packets take another way.
//!
//! The clock starts when the control thread gets the failure, with the call of `set_down`, and stops when the worker has for the
//! first time resolved an address that used the failed next hop to another one. The worker takes that time itself; what
//! it costs the control thread until publication is over, when no worker is left in the old state, is a figure of its
//! own. Between failures the control thread sleeps, as it does in a router, so its caches are as cold as there.
//!
//! Two cases: routes that lead to the next hop itself, which has a backup; and routes that lead to a thousand groups,
//! of each of which it is one of eight members.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fib::publish::Reader;
use fib::{Adjacency, BURST, FibFamily, Kind, NextHopIndex, State};
use packet::random::SplitMix64;

use super::super::children;
use super::super::cpus::{Apart, place_control, place_worker};
use super::super::median;
use super::published::{Router, number, table};
use super::tables::{NEXT_HOPS, Routes};
use super::under_load::Stop;

const FAILURES: usize = 200;
const GROUPS: usize = 1000;
const MEMBERS: u16 = 8;
/// The next hop that is a member of all groups.
const COMMON_MEMBER: u16 = 1;
const BETWEEN_FAILURES: Duration = Duration::from_millis(1);
/// A worker that has seen nothing for so long sees nothing any more, however busy the machine is.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// Microseconds.
pub(super) struct Failover {
    /// From the call to the worker's first packet that takes another way: median.
    pub(super) seen_us: f64,
    /// The longest.
    pub(super) seen_worst_us: f64,
    /// From the call to the end of the publication: median.
    pub(super) published_us: f64,
    /// Lookups of the worker that found no next hop. Zero, or the bench would have ended.
    pub(super) lost: u64,
}

/// Failures of next hops that routes lead to.
pub(super) fn of_next_hops<A: FibFamily>(router: &mut Router<A>, addresses: &[A]) -> Result<Failover> {
    fail_often(router, addresses, |state, address| {
        let next_hop = table::<A>(state).lookup(address);
        state.next_hops().chosen(next_hop, 0).map(|failing| (failing, 0))
    })
}

/// Failures of a next hop that is a member of all groups that routes lead to.
pub(super) fn of_groups<A: FibFamily>(
    kind: Kind<A>,
    routes: &Routes<A>,
    addresses: &[A],
) -> Result<Failover> {
    let mut router = Router::new(kind)?;
    let mut groups = Vec::with_capacity(GROUPS);
    for group in 0..GROUPS as u16 {
        let other = |place: u16| {
            let number = COMMON_MEMBER + 1 + (group * (MEMBERS - 1) + place) % (NEXT_HOPS - COMMON_MEMBER);
            (self::number(number), 1)
        };
        let mut members = vec![(number(COMMON_MEMBER), 1)];
        members.extend((0..MEMBERS - 1).map(other));
        groups.push(router.fib.next_hops_mut().add_group(&members)?);
    }
    router.fib.publish();
    let in_turn = groups.iter().copied().cycle();
    router.load(routes.routes.iter().map(|route| route.prefix).zip(in_turn))?;
    fail_often(&mut router, addresses, |state, address| {
        let group = table::<A>(state).lookup(address);
        let failing = number(COMMON_MEMBER);
        // One flow in eight.
        let flow_hash = (0..10_000).find(|&hash| state.next_hops().chosen(group, hash) == Some(failing))?;
        Some((failing, flow_hash))
    })
}

/// Makes next hops fail, each after the one before is up again. `choose` gives for an address in the present state the
/// next hop to fail and a flow hash with which packets to the address use it.
fn fail_often<A: FibFamily>(
    router: &mut Router<A>,
    addresses: &[A],
    choose: impl Fn(&State<Adjacency>, A) -> Option<(NextHopIndex, u32)>,
) -> Result<Failover> {
    let (stop, watch) = (AtomicBool::new(false), Watch::new());
    let reader = router.fib.readers().register();
    let mut random = SplitMix64::new(11);
    let apart = Apart::find();
    let _place = place_control(apart);
    let (mut seen, mut published) = (vec![], vec![]);
    let lost = thread::scope(|scope| -> Result<u64> {
        let worker = scope.spawn(|| {
            place_worker(apart);
            look_up::<A>(reader, addresses, &watch, &stop)
        });
        let stop = Stop(&stop);
        for _ in 0..FAILURES {
            children::stop_if_interrupted()?;
            let place = random.below(addresses.len() as u64) as usize;
            let chosen = choose(router.fib.state(), addresses[place]);
            let (failing, flow_hash) = chosen.context("no flow to the address uses the next hop to fail")?;
            watch.begin(place, flow_hash);
            watch.wait_until(|port| port == failing.get())?;
            thread::sleep(BETWEEN_FAILURES);
            let start = Instant::now();
            router.fib.next_hops_mut().set_down(failing)?;
            router.fib.publish();
            published.push(start.elapsed().as_secs_f64() * 1e6);
            let at = watch.wait_until(|port| port != failing.get())?;
            seen.push(at.saturating_duration_since(start).as_secs_f64() * 1e6);
            router.fib.next_hops_mut().set_up(failing)?;
            router.fib.publish();
        }
        drop(stop);
        Ok(worker.join().expect("the worker does not panic"))
    })?;
    if lost > 0 {
        bail!("while next hops with backups failed, {lost} lookups found no next hop; none should");
    }
    let seen_worst_us = seen.iter().copied().fold(0.0, f64::max);
    Ok(Failover { seen_us: median(seen), seen_worst_us, published_us: median(published), lost })
}

/// One address and flow that the worker looks up in every burst, and which port it found last.
struct Watch {
    /// Place of the address and flow hash, see [`request`].
    request: AtomicU64,
    /// The request and the port found for it: a port has 12 bits here, which is enough for the bench.
    found: AtomicU64,
    /// Nanoseconds from `epoch` to when that port was found for the first time.
    found_at: AtomicU64,
    epoch: Instant,
}

const PORT_BITS: u32 = 12;

impl Watch {
    fn new() -> Self {
        let (request, found, found_at) = (AtomicU64::new(0), AtomicU64::new(u64::MAX), AtomicU64::new(0));
        Watch { request, found, found_at, epoch: Instant::now() }
    }

    /// Has the worker look up another address.
    fn begin(&self, place: usize, flow_hash: u32) {
        self.request.store((place as u64) << 32 | u64::from(flow_hash), Ordering::Relaxed);
    }

    /// Waits until the worker has found a right port for the present request, and says when it did.
    fn wait_until(&self, is_right: impl Fn(u16) -> bool) -> Result<Instant> {
        let (request, start) = (self.request.load(Ordering::Relaxed), Instant::now());
        for look in 1_u32.. {
            // Acquire: the time was stored before.
            let found = self.found.load(Ordering::Acquire);
            let port = (found & ((1 << PORT_BITS) - 1)) as u16;
            if found >> PORT_BITS == request && is_right(port) {
                break;
            }
            if look.is_multiple_of(4096) {
                thread::yield_now();
                if start.elapsed() > LONGEST_WAIT {
                    bail!("the worker still finds port {port} after {} s", LONGEST_WAIT.as_secs());
                }
            }
            std::hint::spin_loop();
        }
        Ok(self.epoch + Duration::from_nanos(self.found_at.load(Ordering::Relaxed)))
    }

    /// The worker's side: what was found for a request.
    #[inline(always)]
    fn note(&self, request: u64, port: u16, last: &mut u64) {
        let found = request << PORT_BITS | u64::from(port);
        if found != *last {
            *last = found;
            self.found_at.store(self.epoch.elapsed().as_nanos() as u64, Ordering::Relaxed);
            self.found.store(found, Ordering::Release);
        }
    }
}

/// The worker: full bursts, the last address of each being the one that is watched. Returns how many lookups found no
/// next hop.
#[inline(never)]
fn look_up<A: FibFamily>(
    mut reader: Reader<State<Adjacency>>,
    addresses: &[A],
    watch: &Watch,
    stop: &AtomicBool,
) -> u64 {
    let (mut lost, mut last) = (0, u64::MAX);
    let mut next_hops = [NextHopIndex::NONE; BURST];
    let mut burst = [A::MIN; BURST];
    loop {
        for next in addresses.chunks_exact(BURST) {
            let request = watch.request.load(Ordering::Relaxed);
            burst.copy_from_slice(next);
            burst[BURST - 1] = addresses[(request >> 32) as usize];
            let state = reader.enter();
            table::<A>(&state).lookup_batch(&burst, &mut next_hops);
            let mut port = 0;
            for &next_hop in &next_hops {
                port =
                    state.next_hops().resolve(next_hop, request as u32).forward().map_or(0, Adjacency::port);
                lost += u64::from(port == 0);
            }
            drop(state);
            watch.note(request, port, &mut last);
            if stop.load(Ordering::Relaxed) {
                return lost;
            }
        }
    }
}
