//! =c
//! LinkUnqueue(LATENCY, BANDWIDTH)
//!
//! =s shaping
//! pulls packets and pushes them on as if over a serial link
//!
//! =d
//! Stands for a link. Packets get onto the link one after the other, each in its length divided by
//! BANDWIDTH. Each takes LATENCY (a time such as C<10ms>) to the link's end. BANDWIDTH has a unit
//! (C<384kbps>); a number alone is bytes a second. The element pulls the next packet only when
//! there is room on the link, so that other packets stay in the queue upstream. Packets on the link
//! are stored here. Bytes that C<Truncate> cut off a packet (its extra length annotation) count as
//! part of it. When a packet leaves, its timestamp is the time at which it arrives.
//!
//! Different from Click: each worker has a link of its own.
//!
//! =e
//!   ... -> Queue(20) -> LinkUnqueue(30ms, 384kbps) -> ...
//!
//! =a DelayUnqueue, BandwidthRatedUnqueue, Queue

use std::collections::VecDeque;

use graph::arguments::{Bandwidth, Interval};
use graph::{Class, Combine, ConfigError, Context, Element, Get, Handler, Put, Setup, TaskStatus};
use packet::Packet;

use crate::marking::truncate::EXTRA_LENGTH;
use crate::sources::timed_source::interval_text;

pub(crate) static CLASS: Class = Class {
    name: "LinkUnqueue",
    processing: "l/h",
    handlers: &[
        Handler::read(
            "latency",
            Combine::First,
            "The LATENCY argument.",
            &Get(|e: &mut LinkUnqueue| interval_text(e.latency)),
        ),
        Handler::read(
            "bandwidth",
            Combine::First,
            "The BANDWIDTH argument, in bytes a second.",
            &Get(|e: &mut LinkUnqueue| e.bytes_per_second.to_string()),
        ),
        Handler::read(
            "size",
            Combine::Sum,
            "Packets on the link.",
            &Get(|e: &mut LinkUnqueue| e.on_link.len().to_string()),
        ),
        Handler::write(
            "reset",
            "Drops the packets on the link.",
            &Put(|e: &mut LinkUnqueue, cx, _| {
                e.reset(cx);
                Ok(())
            }),
        ),
    ],
    manual: graph::manual!("link_unqueue.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let latency = setup.arguments.required("LATENCY")?;
    let Bandwidth { bytes_per_second } = setup.arguments.required("BANDWIDTH")?;
    setup.arguments.finish()?;
    if bytes_per_second == 0 {
        return Err("BANDWIDTH: expected more than 0".to_owned().into());
    }
    let on_link = VecDeque::with_capacity(INITIAL_ROOM);
    Ok(Box::new(LinkUnqueue { latency, bytes_per_second, on_link, free_ns: 0, behind: false }))
}

/// Packets that the link holds before its store has to grow.
const INITIAL_ROOM: usize = 1024;

struct LinkUnqueue {
    latency: Interval,
    bytes_per_second: u64,
    /// Packets on the link, each with the time at which it arrives.
    on_link: VecDeque<(Packet, u64)>,
    /// When the last packet was on the link in whole.
    free_ns: u64,
    /// Whether the next packet waits upstream already: it begins when the one before it ends, however late we look.
    behind: bool,
}

impl LinkUnqueue {
    fn transmission_ns(&self, packet: &Packet) -> u64 {
        let extra = packet.annotations().u32_at(EXTRA_LENGTH).unwrap_or(0);
        let bytes = packet.len() as u128 + u128::from(extra);
        (bytes * 1_000_000_000 / u128::from(self.bytes_per_second)) as u64
    }

    /// Pulls what there is room for, at most `max` packets; returns how many.
    fn fill(&mut self, cx: &mut Context, now: u64, max: usize) -> usize {
        let mut one = cx.spare_batch();
        let mut pulled = 0;
        while self.free_ns <= now && pulled < max {
            cx.pull(0, &mut one, 1);
            let Some(packet) = one.pop() else {
                self.behind = false;
                break;
            };
            let start = if self.behind { self.free_ns } else { now };
            self.free_ns = start.saturating_add(self.transmission_ns(&packet));
            self.on_link.push_back((packet, self.free_ns.saturating_add(self.latency.ns)));
            self.behind = true;
            pulled += 1;
        }
        cx.recycle(one);
        pulled
    }

    /// Drops the packets on the link.
    fn reset(&mut self, cx: &mut Context) {
        for (packet, _) in self.on_link.drain(..) {
            cx.drop(packet, "link reset");
        }
        self.free_ns = 0;
        self.behind = false;
        cx.wake();
    }
}

impl Element for LinkUnqueue {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        cx.wake();
        Ok(())
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        let now = cx.now_ns();
        let burst = cx.burst();
        let pulled = self.fill(cx, now, burst);
        while self.on_link.front().is_some_and(|(_, due_ns)| *due_ns <= now)
            && let Some((mut packet, due_ns)) = self.on_link.pop_front()
        {
            packet.set_timestamp_ns(due_ns);
            cx.emit(0, packet);
        }
        if pulled == burst {
            return TaskStatus::Busy;
        }
        let more_upstream = cx.upstream_active();
        let waits_for_room = more_upstream && self.free_ns > now;
        self.behind = waits_for_room;
        let arrival = self.on_link.front().map(|(_, due_ns)| *due_ns);
        let next = match (arrival, waits_for_room) {
            (Some(arrival), true) => Some(arrival.min(self.free_ns)),
            (None, true) => Some(self.free_ns),
            (arrival, false) => arrival,
        };
        if let Some(next) = next {
            cx.set_timer(0, next);
        }
        if more_upstream && !waits_for_room { TaskStatus::Idle } else { TaskStatus::Asleep }
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        cx.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::clock::SIMULATED_START_NS;
    use graph::testing::{Bench, configure};

    #[test]
    fn length_and_latency_delay() {
        // 100 bytes take 1 ms.
        let config = "in :: TestInput -> q :: Queue -> e :: LinkUnqueue(5ms, 800kbps) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[&[1; 100], &[2; 200], &[3; 100]]);
        bench.run(10);
        assert_eq!((bench.read("q.length"), bench.read("e.size")), ("2".into(), "1".into()));
        bench.advance_ns(3_500_000);
        assert_eq!((bench.read("q.length"), bench.read("e.size")), ("0".into(), "3".into()));
        bench.advance_ns(100_000_000);
        let packets = bench.taken_packets("out");
        let times: Vec<u64> =
            packets.iter().map(|p| (p.timestamp_ns() - SIMULATED_START_NS) / 1000).collect();
        assert_eq!(times, [6_000, 8_000, 9_000]);
        bench.run(10);
        assert!(!bench.graph().context().has_awake_tasks());
        // After a pause the link is free.
        let now = bench.graph().context().now_ns();
        bench.push("in", &[&[1; 100]]);
        bench.run(10);
        bench.advance_ns(10_000_000);
        assert_eq!(bench.taken_packets("out")[0].timestamp_ns() - now, 6_000_000);
    }

    #[test]
    fn the_mean_is_the_bandwidth() {
        let config =
            "InfiniteSource(LENGTH 100) -> Queue(10) -> LinkUnqueue(1ms, 100000) -> c :: Counter -> Discard";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.run(10);
        bench.advance_ns(1_000_999_999);
        // The first arrives after 2 ms, each of the others 1 ms later.
        assert_eq!(bench.read("c.count"), "999");
    }

    #[test]
    fn reset_and_truncated_packets() {
        let config =
            "in :: TestInput -> Truncate(10) -> Queue -> e :: LinkUnqueue(0, 100kBps) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[&[0; 100]]);
        bench.run(10);
        bench.advance_ns(999_999);
        assert!(bench.taken("out").is_empty());
        bench.advance_ns(1);
        assert_eq!(bench.taken("out")[0].len(), 10);
        bench.push("in", &[&[0; 100]]);
        bench.run(10);
        bench.write("e.reset", "").unwrap();
        assert_eq!(bench.drops("e", "link reset"), 1);
        assert_eq!((bench.read("e.bandwidth"), bench.read("e.latency")), ("100000".into(), "0ns".into()));
        assert!(configure(&CLASS, "1ms, 0").is_err());
        assert!(configure(&CLASS, "1ms").is_err());
    }
}
