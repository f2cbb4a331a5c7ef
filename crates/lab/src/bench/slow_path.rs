//! A flood of packets for the slow path beside ordinary traffic: what the fast path forwards meanwhile, what is answered, and what the ring between
//! the two drops.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use graph::graph::GraphOptions;
use graph::router::{Router, RouterOptions};
use packet::PoolOptions;
use ports::MemoryLoop;

use super::{example, frames, routes};

/// Packets whose time to live ends here are answered by the slow thread, without the usual limit of answers.
const TEXT: &str = "from :: FromDevice(bench0) -> Strip(14) -> CheckIPHeader(VERBOSE false)
    -> RadixIPLookup(0.0.0.0/0 10.0.1.2 0, TABLE byte24)
    -> ttl :: DecIPTTL -> EtherEncap(0x0800, 02:00:00:00:01:01, 02:00:00:00:01:02) -> to :: ToDevice(bench1);
ttl[1] -> punt :: Punt -> error :: ICMPError(10.0.0.1, timeexceeded, RATE 0)
    -> EtherEncap(0x0800, 02:00:00:00:00:01, 02:00:00:00:00:02) -> answers :: ToDevice(bench2);";

/// Frames that come again and again.
const FRAMES: usize = 100;

/// Packets, counted from the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// That came in.
    pub(crate) received: u64,
    /// That the fast path sent.
    pub(crate) forwarded: u64,
    /// That the fast path gave to the slow one, those that found the ring full among them.
    pub(crate) given: u64,
    /// That found the ring full.
    pub(crate) dropped: u64,
    /// Answers that were sent.
    pub(crate) answered: u64,
}

/// What passed in a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flood {
    /// Of the whole time.
    pub(crate) counts: Counts,
    /// Million packets a second, after a time for warming up.
    pub(crate) forwarded_mpps: f64,
    pub(crate) answered_mpps: f64,
    pub(crate) dropped_mpps: f64,
}

/// Runs a fast and a slow thread for so many seconds; of a hundred packets so many have a time to live of 1.
///
/// # Errors
/// The router cannot be made.
pub(crate) fn flood(percent: usize, seconds: f64) -> Result<Flood> {
    let mut frames = frames::templates(&routes::default_route(), FRAMES, 60);
    for (number, frame) in frames.iter_mut().enumerate() {
        // Spread evenly.
        if number * percent / FRAMES != (number + 1) * percent / FRAMES {
            frames::expire(frame);
        }
    }
    let tx_queues = 2;
    let registry = router::classes();
    let config = example::compile(TEXT, Vec::new(), &registry)?;
    let ports =
        example::ports(Box::new(MemoryLoop::with_queues("loop", frames, 1, tx_queues)), 2, tx_queues)?;
    let pool = PoolOptions { frames: 8192, ..PoolOptions::default() };
    let graph = GraphOptions { pool, ..GraphOptions::default() };
    let options = RouterOptions { workers: 1, graph, pin: true, ..RouterOptions::default() };
    let mut router = example::build(config, &registry, ports, &options)?;
    router.start().context("cannot start the worker threads")?;
    std::thread::sleep(Duration::from_secs_f64(seconds.min(0.1)));
    let (before, start) = (counts(&mut router)?, Instant::now());
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let (counts, took) = (counts(&mut router)?, start.elapsed().as_secs_f64());
    router.stop();
    let mpps = |of: fn(&Counts) -> u64| (of(&counts) - of(&before)) as f64 / took / 1e6;
    Ok(Flood {
        counts,
        forwarded_mpps: mpps(|counts| counts.forwarded),
        answered_mpps: mpps(|counts| counts.answered),
        dropped_mpps: mpps(|counts| counts.dropped),
    })
}

/// Counts at boundaries between batches of each thread.
fn counts(router: &mut Router) -> Result<Counts> {
    let config = router.config().clone();
    let place = |name: &str| {
        config.elements.iter().position(|element| element.name == name).context("the text has this element")
    };
    let [from, to, punt, answers] = [place("from")?, place("to")?, place("punt")?, place("answers")?];
    // Of the slow thread first: it has answered nothing then that the fast one has not given by the second look.
    let [earlier, later] = [router.stats(), router.stats()];
    let ([fast, _], [_, slow]) = (&later[..], &earlier[..]) else {
        bail!("a thread of the router has ended")
    };
    Ok(Counts {
        received: fast.elements[from].packets,
        forwarded: fast.elements[to].passed(),
        given: fast.elements[punt].packets,
        dropped: fast.elements[punt].dropped(),
        answered: slow.elements[answers].passed(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_flood_has_its_share_and_all_of_it_is_answered_or_dropped_at_the_ring() {
        for percent in [0, 50] {
            let Counts { received, forwarded, given, dropped, answered } =
                flood(percent, 0.1).unwrap().counts;
            assert!(received > 0 && forwarded + given == received, "{received} {forwarded} {given}");
            assert!(given.abs_diff(received * percent as u64 / 100) <= 100, "{given} of {received}");
            // Others are in the ring and in the slow thread's hands, or were answered between the looks.
            assert!(answered + dropped <= given, "{answered} {dropped} {given}");
            assert_eq!(answered > 0, percent > 0);
        }
    }
}
