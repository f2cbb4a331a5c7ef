//! =c
//! CoDel([TARGET, INTERVAL, I<keyword> QUEUES])
//!
//! =s aqm
//! drops packets while they have to wait too long
//!
//! =d
//! Controlled Delay (RFC 8289). A pull element behind a queue that looks at how long each packet
//! waited in it. It knows this from the packet's first timestamp annotation, so put
//! SetTimestamp(FIRST true) before the queue. Once packets have waited for TARGET (5 ms by default)
//! or more all through an INTERVAL (100 ms), it drops one. It drops further packets ever more often
//! until one has waited less. They are counted as "waited too long". The last packet of the queue
//! is not dropped.
//!
//! TARGET and INTERVAL are times such as C<5ms>; a number alone is seconds. A packet without the annotation passes. In a packet
//! that passes, the annotation becomes the time that it waited, in nanoseconds.
//!
//! QUEUES, a list of names with spaces, names its queues if they are not the nearest ones upstream.
//!
//! Different from Click: it follows the RFC, which is younger. Every worker has queues of its own,
//! and its CoDel works for those.
//!
//! =e
//!   ... -> SetTimestamp(FIRST true) -> Queue(1000) -> CoDel -> Unqueue -> ...
//!
//! =a SetTimestamp, Queue, RED, PI

use graph::arguments::{Interval, Raw};
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup};
use packet::{Batch, Packet};

use super::watched_queues::WatchedQueues;
use crate::marking::set_timestamp::FIRST_TIMESTAMP;
use crate::sources::timed_source::interval_text;

pub(crate) static CLASS: Class = Class {
    name: "CoDel",
    processing: Class::PULL,
    handlers: &[
        Handler::read_write(
            "codel_target",
            Combine::First,
            "The TARGET argument.",
            &Get(|e: &mut CoDel| interval_text(e.target)),
            &Put(|e: &mut CoDel, _, value| {
                e.target = Interval::from_value(value)?;
                Ok(())
            }),
        ),
        Handler::read_write(
            "codel_interval",
            Combine::First,
            "The INTERVAL argument.",
            &Get(|e: &mut CoDel| interval_text(e.interval)),
            &Put(|e: &mut CoDel, _, value| {
                e.interval = Interval::from_value(value)?;
                Ok(())
            }),
        ),
        Handler::read(
            "drops",
            Combine::Sum,
            "Packets dropped so far.",
            &Get(|e: &mut CoDel| e.drops.to_string()),
        ),
        Handler::read(
            "queues",
            Combine::First,
            "The names of the queues, one a line.",
            &Get(|e: &mut CoDel| e.queues.names()),
        ),
        Handler::read(
            "stats",
            Combine::Join,
            "Length and drops for a reader.",
            &Get(|e: &mut CoDel| format!("{} current queue\n{} drops\n", e.queues.packets(), e.drops)),
        ),
    ],
    manual: graph::manual!("codel.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let target = setup.arguments.optional("TARGET")?.unwrap_or(Interval { ns: 5_000_000 });
    let interval = setup.arguments.optional("INTERVAL")?.unwrap_or(Interval { ns: 100_000_000 });
    let queues = setup.arguments.keyword::<Raw>("QUEUES")?;
    setup.arguments.finish()?;
    Ok(Box::new(CoDel {
        target,
        interval,
        queues: WatchedQueues::find(setup, queues)?,
        first_above_ns: None,
        drop_next_ns: 0,
        count: 0,
        last_count: 0,
        dropping: false,
        drops: 0,
    }))
}

/// The state of RFC 8289, section 5.2, by the names there.
struct CoDel {
    target: Interval,
    interval: Interval,
    queues: WatchedQueues,
    /// When packets will have waited too long all through an interval, if they go on so.
    first_above_ns: Option<u64>,
    /// When the next packet is to be dropped, or the last one was to be.
    drop_next_ns: u64,
    /// Packets dropped since it began to drop.
    count: u32,
    last_count: u32,
    dropping: bool,
    drops: u64,
}

impl CoDel {
    /// RFC 8289, 5.6: takes a packet out of the queue, and says whether it may be dropped.
    fn dodequeue(&mut self, cx: &mut Context, one: &mut Batch) -> Option<(Packet, bool)> {
        cx.pull(0, one, 1);
        let Some(mut packet) = one.pop() else {
            self.first_above_ns = None;
            return None;
        };
        let stamp = packet.annotations().bytes()[FIRST_TIMESTAMP]
            .first_chunk()
            .copied()
            .map_or(0, u64::from_ne_bytes);
        if stamp == 0 {
            return Some((packet, false));
        }
        let now = cx.now_ns();
        let waited = now.saturating_sub(stamp);
        packet.annotations_mut().bytes_mut()[FIRST_TIMESTAMP].copy_from_slice(&waited.to_ne_bytes());
        // "If the sojourn time is below the target or the queue has less than an MTU's worth of data."
        if waited < self.target.ns || self.queues.packets() == 0 {
            self.first_above_ns = None;
            return Some((packet, false));
        }
        let first_above = *self.first_above_ns.get_or_insert(now.saturating_add(self.interval.ns));
        Some((packet, now >= first_above))
    }

    /// RFC 8289, 5.5: the time between drops shrinks with the root of their number.
    fn control_law(&self, from_ns: u64) -> u64 {
        let step = self.interval.ns as f64 / f64::from(self.count.max(1)).sqrt();
        // At least a nanosecond, so that a turn ends whatever the interval.
        from_ns.saturating_add((step as u64).max(1))
    }

    fn discard(&mut self, cx: &mut Context, packet: Packet) {
        self.drops += 1;
        cx.drop(packet, "waited too long");
    }

    /// RFC 8289, 5.4: the next packet that is not dropped.
    fn dequeue(&mut self, cx: &mut Context, one: &mut Batch) -> Option<Packet> {
        let now = cx.now_ns();
        let Some((mut packet, ok_to_drop)) = self.dodequeue(cx, one) else {
            self.dropping = false;
            return None;
        };
        if self.dropping {
            self.dropping = ok_to_drop;
            while self.dropping && now >= self.drop_next_ns {
                self.discard(cx, packet);
                self.count = self.count.saturating_add(1);
                let Some((next, ok_to_drop)) = self.dodequeue(cx, one) else {
                    self.dropping = false;
                    return None;
                };
                packet = next;
                if ok_to_drop {
                    self.drop_next_ns = self.control_law(self.drop_next_ns);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            self.discard(cx, packet);
            // "If min went above target close to when it last went below, assume that the drop rate that controlled the
            // queue on the last cycle is a good starting point to control it now."
            let delta = self.count.saturating_sub(self.last_count);
            let recently = now.saturating_sub(self.drop_next_ns) < self.interval.ns.saturating_mul(16);
            self.count = if delta > 1 && recently { delta } else { 1 };
            self.drop_next_ns = self.control_law(now);
            self.last_count = self.count;
            self.dropping = true;
            packet = self.dodequeue(cx, one)?.0;
        }
        Some(packet)
    }
}

impl Element for CoDel {
    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        let max = max.min(batch.room());
        let mut one = cx.spare_batch();
        while batch.len() < max {
            let Some(packet) = self.dequeue(cx, &mut one) else { break };
            batch.push(packet);
        }
        cx.recycle(one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    const CONFIG: &str =
        "in :: TestInput -> SetTimestamp(FIRST true) -> q :: Queue(1000) -> e :: CoDel -> out :: TestOutput";

    #[test]
    fn short_waits_lose_nothing() {
        let mut bench = Bench::new(&crate::registry(), CONFIG);
        for _ in 0..1000 {
            bench.push("in", &[b"x", b"y"]);
            bench.advance_ns(4_000_000);
            assert_eq!(bench.pull("out", 9), 2);
        }
        assert_eq!(bench.read("e.drops"), "0");
        let packet = &bench.taken_packets("out")[0];
        assert_eq!(packet.annotations().bytes()[FIRST_TIMESTAMP], 4_000_000u64.to_ne_bytes());
    }

    #[test]
    fn a_standing_queue_is_worked_down() {
        let mut bench = Bench::new(&crate::registry(), CONFIG);
        // 40 packets stand in the queue: each waits 40 ms.
        bench.push("in", &[&b"x"[..]; 40]);
        for _ in 0..100 {
            bench.advance_ns(1_000_000);
            bench.push("in", &[b"x"]);
            bench.pull("out", 1);
        }
        assert_eq!(bench.read("e.drops"), "0");
        let mut drops = Vec::new();
        for millisecond in 100..3000 {
            bench.advance_ns(1_000_000);
            bench.push("in", &[b"x"]);
            bench.pull("out", 1);
            drops.resize(bench.read("e.drops").parse().unwrap(), millisecond);
        }
        // Each time between drops is the first divided by the root of their number.
        let gaps: Vec<i32> = drops.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(gaps[..5], [100, 71, 58, 50, 45]);
        let length: usize = bench.read("q.length").parse().unwrap();
        assert!(length <= 5, "{length}");
        assert_eq!(bench.drops("e", "waited too long"), drops.len() as u64);
        assert_eq!(bench.read("e.queues"), "q\n");
    }

    #[test]
    fn without_the_annotation_packets_pass() {
        let config = "in :: TestInput -> Queue -> e :: CoDel(1ms, 2ms) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[&b"x"[..]; 50]);
        for _ in 0..50 {
            bench.advance_ns(1_000_000);
            assert_eq!(bench.pull("out", 1), 1);
        }
        assert_eq!(
            (bench.read("e.codel_target"), bench.read("e.codel_interval")),
            ("1ms".into(), "2ms".into())
        );
        bench.write("e.codel_interval", "0").unwrap();
        assert!(bench.write("e.codel_target", "x").is_err());
        assert_eq!(bench.read("e.stats"), "0 current queue\n0 drops\n");
        assert!(configure(&CLASS, "").unwrap_err()[0].contains("no queue near it"));
    }
}
