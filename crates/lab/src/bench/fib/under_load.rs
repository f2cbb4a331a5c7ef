//! Changes of routes while a worker looks up at full rate: what is sustained, and what the worker loses by it.
//!
//! The worker enters the published state for each burst of 32 addresses, looks them up, resolves each next hop, leaves,
//! and begins again. The control thread changes routes as fast as it can, at random over the whole table: half of
//! the changes give a route another next hop, a quarter withdraw one, a quarter announce one again. So many changes
//! as `--batch` says are published together.
//!
//! The two have a CPU each, where there are two. Phases with and without changes alternate, because other programs use
//! the machine: the ratio is the median of the ratios of neighbours. Time is time on the wall, since an interrupt takes
//! it from the worker as much as a cache miss does, without that in which other programs had the thread's CPU. In a
//! phase without changes the control thread spins: if it slept, other programs would move to its CPU and leave the
//! worker alone, and the ratio would be theirs. Every answer must be a next hop; of one burst in [`CHECK_EVERY`] each
//! answer must be one that its address may have (see `traffic.rs`). One that is not ends the bench.
//!
//! # The size of a batch
//!
//! A publication interrupts the worker for some 6 microseconds, which 100 changes outweigh. It costs much more that the
//! worker goes on in the other copy of the table, of which its caches have nothing: two copies of 22 MB do not fit a
//! third-level cache of 32 MB, and publications *without any change* every 5 ms took a third of the worker's
//! lookups. So a batch is as large as the time that a change may wait. At the default of 50,000 that is a tenth of a second,
//! much less than routing protocols let pass between two announcements of a route.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use fib::publish::Reader;
use fib::{Adjacency, BURST, FibFamily, MAIN, NextHopIndex, State};
use ipnet::IpNet;
use packet::Family;
use packet::random::SplitMix64;

use super::super::children;
use super::super::cpus::{Apart, place_control, place_worker, this_thread, waited};
use super::super::median;
use super::engine::WithWorker;
use super::published::{Router, number, table};
use super::tables::{self, Routes};
use super::traffic::{Traffic, may_be_withdrawn, other_next_hop, set_of};

/// How long the worker is watched with changes, and then without.
const PHASE: Duration = Duration::from_millis(400);
/// The changes a second that the paced phases make: what SPECIFICATION.md promises.
const PACE: f64 = 500_000.0;
/// Runs that may come to nothing because a thread never had a CPU.
const MOST_STARVED: usize = 20;
/// Before the first phase: the worker's caches fill, its processor reaches its clock rate.
const WARM_UP: Duration = Duration::from_millis(100);
/// Of so many bursts the answers of one are compared with those that are possible.
const CHECK_EVERY: usize = 16;
/// Changes that are drawn before a phase; enough for a million a second.
const PREPARED: usize = 400_000;
/// Of so many routes one is withdrawn at a time, once the churn has begun.
const WITHDRAWN_OF: usize = 100;

/// What was found; rates are medians over the phases.
pub(super) struct UnderLoad {
    pub(super) updates_per_s: f64,
    /// Lookups a second of the worker while routes change.
    pub(super) loaded: f64,
    /// The same while they do not.
    pub(super) unloaded: f64,
    pub(super) ratio: f64,
    /// The same two when no more than [`PACE`] changes a second are made.
    pub(super) paced_updates_per_s: f64,
    pub(super) paced_ratio: f64,
    /// Answers that were not a next hop. Zero, or the bench would have ended.
    pub(super) lost: u64,
}

/// Ends a worker when the control thread is done, or fails.
pub(super) struct Stop<'a>(pub(super) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What the worker tells, on cache lines that nothing else is on.
#[derive(Default)]
#[repr(align(128))]
struct Worker {
    lookups: AtomicU64,
    /// The number of its thread; 0 before it runs.
    thread: AtomicI32,
}

/// What a worker found wrong.
#[derive(Default)]
struct Wrong {
    lost: u64,
    impossible: u64,
}

/// Measures [`UnderLoad`]. The routes are then as before.
pub(super) fn measure<A: FibFamily>(
    router: &mut Router<A>,
    what: &WithWorker<'_, A>,
    batch: usize,
) -> Result<UnderLoad> {
    let (stop, worker) = (AtomicBool::new(false), Worker::default());
    let reader = router.fib.readers().register();
    let mut churn = Churn::new(what.routes);
    let apart = Apart::find();
    let _place = place_control(apart);
    let (mut updates, mut loaded, mut unloaded, mut ratios) = (vec![], vec![], vec![], vec![]);
    let (mut paced_updates, mut paced_ratios) = (vec![], vec![]);
    let wrong = thread::scope(|scope| -> Result<Wrong> {
        let thread = scope.spawn(|| {
            place_worker(apart);
            worker.thread.store(this_thread(), Ordering::Relaxed);
            look_up::<A>(reader, what.traffic, &worker.lookups, &stop)
        });
        let stop = Stop(&stop);
        thread::sleep(WARM_UP);
        let mut starved = 0;
        while ratios.len() < what.runs {
            children::stop_if_interrupted()?;
            churn.prepare();
            let (before, _) = rates_during(&worker, || {
                spin(PHASE);
                Ok(0)
            })?;
            let (during, changes) = rates_during(&worker, || churn.run(router, batch, PHASE, f64::INFINITY))?;
            churn.prepare();
            let (paced, paced_changes) = rates_during(&worker, || churn.run(router, batch, PHASE, PACE))?;
            // Where others take all of a CPU for a whole phase, nothing can be said of it.
            if ![before, during, changes, paced, paced_changes]
                .iter()
                .all(|rate| rate.is_finite() && *rate > 0.0)
            {
                starved += 1;
                if starved > MOST_STARVED {
                    bail!(
                        "in {starved} runs a thread had no CPU for {} ms; try on a machine that is less busy",
                        PHASE.as_millis()
                    );
                }
                continue;
            }
            paced_updates.push(paced_changes);
            paced_ratios.push(paced / before);
            unloaded.push(before);
            loaded.push(during);
            ratios.push(during / before);
            updates.push(changes);
        }
        drop(stop);
        Ok(thread.join().expect("the worker does not panic"))
    })?;
    churn.undo(router)?;
    if wrong.lost + wrong.impossible > 0 {
        bail!(
            "while routes changed, {} lookups of addresses that always have a route had none, and {} checked answers \
             were next hops that no route to the address has; no speed is worth that",
            wrong.lost,
            wrong.impossible
        );
    }
    let (updates_per_s, ratio) = (median(updates), median(ratios));
    Ok(UnderLoad {
        updates_per_s,
        loaded: median(loaded),
        unloaded: median(unloaded),
        ratio,
        paced_updates_per_s: median(paced_updates),
        paced_ratio: median(paced_ratios),
        lost: wrong.lost,
    })
}

/// Lookups a second while `work` runs, and what that counts, a second: each by the time that its thread could run.
fn rates_during(worker: &Worker, work: impl FnOnce() -> Result<u64>) -> Result<(f64, f64)> {
    let threads = [worker.thread.load(Ordering::Relaxed), this_thread()];
    let (start, waited_before) = (Instant::now(), threads.map(waited));
    let before = worker.lookups.load(Ordering::Relaxed);
    let changes = work()?;
    let after = worker.lookups.load(Ordering::Relaxed);
    let (time, waited_after) = (start.elapsed(), threads.map(waited));
    let seconds = |thread: usize| {
        let waited = waited_after[thread].saturating_sub(waited_before[thread]);
        time.saturating_sub(waited).as_secs_f64()
    };
    Ok(((after - before) as f64 / seconds(0), changes as f64 / seconds(1)))
}

/// Keeps the CPU and leaves the memory alone.
fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// The worker.
#[inline(never)]
fn look_up<A: FibFamily>(
    mut reader: Reader<State<Adjacency>>,
    traffic: &Traffic<A>,
    lookups: &AtomicU64,
    stop: &AtomicBool,
) -> Wrong {
    let (mut wrong, mut count) = (Wrong::default(), 0);
    let mut next_hops = [NextHopIndex::NONE; BURST];
    let mut ports = [0; BURST];
    loop {
        for (place, burst) in traffic.addresses.chunks_exact(BURST).enumerate() {
            let state = reader.enter();
            table::<A>(&state).lookup_batch(burst, &mut next_hops);
            for (flow_hash, (&next_hop, port)) in (0..).zip(next_hops.iter().zip(&mut ports)) {
                let hop = state.next_hops().resolve(next_hop, flow_hash);
                *port = hop.forward().map_or(0, Adjacency::port);
                wrong.lost += u64::from(*port == 0);
            }
            drop(state);
            black_box(&ports);
            if place % CHECK_EVERY == 0 {
                let possible = &traffic.possible[place * BURST..][..BURST];
                let right = |(&port, &possible): (&u16, &u128)| set_of(port) & possible != 0;
                wrong.impossible += ports.iter().zip(possible).filter(|&pair| !right(pair)).count() as u64;
            }
            count += BURST as u64;
            lookups.store(count, Ordering::Relaxed);
            if stop.load(Ordering::Relaxed) {
                return wrong;
            }
        }
    }
}

/// What a route is at the moment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Now {
    AsItWas,
    OtherNextHop,
    Withdrawn,
}

/// Changes of routes without end.
struct Churn<'a, A: Family> {
    routes: &'a Routes<A>,
    /// What each route is when all of `prepared` has been done.
    now: Vec<Now>,
    withdrawn: Vec<usize>,
    random: SplitMix64,
    /// The changes to come, one after the other in memory, as they would come from a routing daemon.
    prepared: VecDeque<(IpNet, Option<NextHopIndex>)>,
}

impl<'a, A: FibFamily> Churn<'a, A> {
    fn new(routes: &'a Routes<A>) -> Self {
        let now = vec![Now::AsItWas; routes.routes.len()];
        let (withdrawn, random, prepared) = (Vec::new(), SplitMix64::new(7), VecDeque::new());
        Churn { routes, now, withdrawn, random, prepared }
    }

    /// Draws changes, so that this takes no time from making them.
    fn prepare(&mut self) {
        while self.prepared.len() < PREPARED {
            let (route, now) = self.next();
            self.now[route] = now;
            let tables::Route { prefix, next_hop } = self.routes.routes[route];
            let next_hop = match now {
                Now::AsItWas => Some(number(next_hop)),
                Now::OtherNextHop => Some(number(other_next_hop(next_hop))),
                Now::Withdrawn => None,
            };
            self.prepared.push_back((prefix.into(), next_hop));
        }
    }

    /// Makes and publishes changes for so long or until none is prepared, at most `pace` a second; returns how many.
    fn run(&mut self, router: &mut Router<A>, batch: usize, time: Duration, pace: f64) -> Result<u64> {
        let (start, mut changes) = (Instant::now(), 0);
        while start.elapsed() < time && !self.prepared.is_empty() {
            for (prefix, next_hop) in self.prepared.drain(..batch.min(self.prepared.len())) {
                match next_hop {
                    Some(next_hop) => router.fib.replace(MAIN, prefix, next_hop)?,
                    None => router.fib.remove(MAIN, prefix)?,
                };
                changes += 1;
            }
            router.fib.publish();
            spin(Duration::from_secs_f64(changes as f64 / pace).saturating_sub(start.elapsed()));
        }
        Ok(changes)
    }

    /// The next route to change, and what it is then.
    fn next(&mut self) -> (usize, Now) {
        let count = self.routes.routes.len();
        let has_some_to_withdraw = (0..count).any(may_be_withdrawn);
        if has_some_to_withdraw && self.random.below(2) == 0 {
            if self.withdrawn.len() * WITHDRAWN_OF > count {
                let place = self.random.below(self.withdrawn.len() as u64) as usize;
                return (self.withdrawn.swap_remove(place), Now::AsItWas);
            }
            let route = self.draw(|now, route| now != Now::Withdrawn && may_be_withdrawn(route));
            self.withdrawn.push(route);
            return (route, Now::Withdrawn);
        }
        let route = self.draw(|now, _| now != Now::Withdrawn);
        (route, if self.now[route] == Now::AsItWas { Now::OtherNextHop } else { Now::AsItWas })
    }

    /// A random route that fits; there must be one.
    fn draw(&mut self, fits: impl Fn(Now, usize) -> bool) -> usize {
        loop {
            let route = self.random.below(self.now.len() as u64) as usize;
            if fits(self.now[route], route) {
                return route;
            }
        }
    }

    /// Makes every route what it was.
    fn undo(&mut self, router: &mut Router<A>) -> Result<()> {
        self.run(router, usize::MAX, Duration::MAX, f64::INFINITY)?;
        for (route, _) in self.routes.routes.iter().zip(&self.now).filter(|&(_, now)| *now != Now::AsItWas) {
            router.fib.replace(MAIN, route.prefix.into(), number(route.next_hop))?;
        }
        router.fib.publish();
        Ok(())
    }
}
