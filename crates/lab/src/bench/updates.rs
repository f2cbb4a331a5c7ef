//! Routes that change while one core forwards: what it loses of packets and of its rate.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use fib::read::Row;
use fib::{Adjacency, Fib, MAIN, NextHopIndex};
use ipnet::Ipv4Net;
use packet::random::SplitMix64;
use ports::{MemoryLoop, OpenOptions, Port};

use super::cpus::{Apart, place_control, place_worker};
use super::single_core::SingleCore;
use super::{drop_in, frames, routes};

/// Routes that come and go; below them are default routes.
const ROUTES: u32 = 1 << 17;
/// Different destinations of packets.
const DESTINATIONS: usize = 4096;
/// Changes of this time are published together.
const BETWEEN_PUBLICATIONS: Duration = Duration::from_millis(100);

/// The graph of `brickway run PORT...` and its tables.
pub(crate) struct Updates {
    core: SingleCore,
    fib: Fib<Adjacency>,
    rows: Vec<Row>,
    /// Whether a route is there.
    is_there: Vec<bool>,
    next_hops: Vec<NextHopIndex>,
    random: SplitMix64,
}

/// What one run gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Updated {
    /// Changes of routes that were made, a second.
    pub(crate) changes_per_s: f64,
    /// TSC cycles of the worker for a packet.
    pub(crate) cycles: f64,
}

impl Updates {
    /// Makes tables and a core.
    pub(crate) fn new() -> Result<Updates> {
        let first = u32::from(Ipv4Addr::new(32, 0, 0, 0));
        let row = |number: u32| Row {
            prefix: Ipv4Net::new_assert(Ipv4Addr::from(first + (number << 8)), 24),
            origin: number,
        };
        let rows: Vec<Row> = (0..ROUTES).map(row).collect();
        let all: Vec<Row> = rows.iter().copied().chain(routes::default_route()).collect();
        let mut fib = drop_in::fib(&all)?;
        let next_hops = drop_in::next_hops::<u32>(&mut fib)?;
        let null = || ports::open("null:", &OpenOptions::default());
        let input: Box<dyn Port> = Box::new(MemoryLoop::new(frames::templates(&rows, DESTINATIONS, 60)));
        let core = drop_in::router([input, null()?, null()?, null()?], &fib, 64)?;
        let is_there = vec![true; rows.len()];
        Ok(Updates { core, fib, rows, is_there, next_hops, random: SplitMix64::new(3) })
    }

    /// Forwards for so many seconds on one thread, while this one changes so many routes a second: one that is there goes, one that is not comes.
    pub(crate) fn run(&mut self, changes_per_s: f64, seconds: f64) -> Result<Updated> {
        let apart = Apart::find();
        let _place = place_control(apart);
        let Updates { core, fib, rows, is_there, next_hops, random } = self;
        let is_done = AtomicBool::new(false);
        let start = Instant::now();
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                place_worker(apart);
                let run = core.run(seconds);
                is_done.store(true, Ordering::Relaxed);
                run
            });
            let mut changes = 0_u64;
            while !is_done.load(Ordering::Relaxed) {
                let due = (start.elapsed().as_secs_f64() * changes_per_s) as u64;
                // However many are due, they end with the run.
                while changes < due && !is_done.load(Ordering::Relaxed) {
                    let number = random.below(rows.len() as u64) as usize;
                    let Row { prefix, origin } = rows[number];
                    if is_there[number] {
                        fib.remove(MAIN, prefix.into())?;
                    } else {
                        let next_hop = next_hops[routes::port_of(origin) - 1];
                        fib.replace(MAIN, prefix.into(), next_hop)?;
                    }
                    is_there[number] = !is_there[number];
                    changes += 1;
                }
                if changes_per_s > 0.0 {
                    fib.publish();
                }
                thread::sleep(BETWEEN_PUBLICATIONS.min(Duration::from_secs_f64(seconds / 4.0)));
            }
            let took = start.elapsed().as_secs_f64();
            let run = worker.join().expect("the worker does not panic");
            Ok(Updated { changes_per_s: changes as f64 / took, cycles: run.cycles_per_packet() })
        })
    }

    /// Returns packets that came in and that left since the beginning.
    pub(crate) fn passed(&mut self) -> (u64, u64) {
        self.core.passed()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn routes_come_and_go_and_no_packet_is_lost() {
        let mut updates = Updates::new().unwrap();
        let run = updates.run(20_000.0, 0.3).unwrap();
        assert!(run.changes_per_s > 0.0 && run.cycles > 0.0, "{run:?}");
        assert!(updates.is_there.iter().any(|is_there| !is_there));
        let (received, sent) = updates.passed();
        // Less than a burst waits for each of three ports.
        assert!(received > 0 && sent <= received && received - sent <= 4 * 64, "{sent} of {received}");
    }
}
