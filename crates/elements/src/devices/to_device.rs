//! =c
//! ToDevice(DEVNAME, [I<keywords> BURST])
//!
//! =s devices
//! sends packets to a port
//!
//! =d
//! Sends packets out by the port DEVNAME (see FromDevice for what that may be). Each worker sends on its own
//! queue of the port, the slow thread too.
//!
//! Its input is agnostic. Pulled (behind a Queue), it takes packets when the port has room, so that the queue
//! fills when the port is slow, as in Click. Pushed, it gathers what comes within a turn of the worker and
//! sends it at once when BURST packets are there or the turn ends; when the port has no room the packets are
//! dropped as "transmit queue full". Pushing is faster.
//!
//! Arguments are:
//!
//! BURST: packets sent at a time, 1 to 256. The router's burst by default.
//!
//! Losses that the driver reports are counted as drops of this element.
//!
//! =h count read-only
//! Packets sent.
//!
//! =h byte_count read-only
//! Bytes sent.
//!
//! =h device read-only
//! The port: name, driver, link address, MTU, queues.
//!
//! =e
//!   ... -> Queue(1000) -> ToDevice(eth0);
//!
//! =a FromDevice, ToDump, ToHost, Queue

use std::sync::Arc;

use graph::{Class, Combine, ConfigError, Context, Element, Handler, Setup, TaskStatus};
use packet::{Batch, MAX_BATCH};
use ports::TxQueue;

use super::{Losses, OpenPort, Unopened};

pub(crate) static CLASS: Class = Class {
    name: "ToDevice",
    ports: "1/0",
    processing: Class::AGNOSTIC,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("to_device.rs"),
    make,
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let name: String = setup.arguments.required("DEVNAME")?;
    let burst: Option<usize> = setup.arguments.keyword("BURST")?;
    setup.arguments.finish()?;
    if let Some(burst) = burst.filter(|burst| !(1..=MAX_BATCH).contains(burst)) {
        return Err(format!("BURST: expected 1 to {MAX_BATCH} packets, got {burst}").into());
    }
    if setup.is_check() {
        return Ok(Box::new(Unopened));
    }
    let port = OpenPort::of(setup, &name)?;
    let queue = port.take_tx(setup.copy().index)?;
    Ok(Box::new(ToDevice::new(port, queue, burst, setup.input_is_pull(0))))
}

/// Turns for which pushed packets wait for room in the port before they are dropped.
const PATIENCE_TURNS: u32 = 64;

pub(super) struct ToDevice {
    port: Arc<OpenPort>,
    queue: Box<dyn TxQueue>,
    burst: Option<usize>,
    pulls: bool,
    /// Packets on their way to the port.
    waiting: Batch,
    stalled_turns: u32,
    losses: Losses,
}

/// Timer: the queue has something to do by its own clock.
const DUE_TIMER: u32 = 0;

impl ToDevice {
    pub(super) fn new(
        port: Arc<OpenPort>,
        queue: Box<dyn TxQueue>,
        burst: Option<usize>,
        pulls: bool,
    ) -> Self {
        let waiting = Batch::new();
        Self { port, queue, burst, pulls, waiting, stalled_turns: 0, losses: Losses::default() }
    }

    /// Sends what waits; whether the port took anything.
    #[inline]
    fn send(&mut self, cx: &mut Context) -> bool {
        let sent = self.queue.send(cx.pool(), &mut self.waiting);
        if sent > 0 {
            self.stalled_turns = 0;
        }
        sent > 0
    }

    /// Nothing to send: lets the queue push out what waits inside, and has itself woken when more is due.
    fn rest(&mut self, cx: &mut Context) -> TaskStatus {
        self.queue.flush(cx.pool());
        if let Some(due) = self.queue.due_in_ns() {
            cx.set_timer(DUE_TIMER, cx.now_ns().saturating_add(due));
        }
        TaskStatus::Asleep
    }
}

impl Element for ToDevice {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        self.queue.prepare(cx.pool()).map_err(|error| error.to_string())?;
        if self.pulls {
            cx.wake();
        }
        Ok(())
    }

    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let burst = self.burst.unwrap_or(cx.burst());
        if self.waiting.is_empty() && batch.len() >= burst {
            // A whole burst: nothing to gather.
            self.queue.send(cx.pool(), batch);
        }
        batch.move_front(&mut self.waiting, MAX_BATCH);
        if self.waiting.len() >= burst {
            self.send(cx);
            batch.move_front(&mut self.waiting, MAX_BATCH);
        }
        cx.drop_batch(batch, "transmit queue full");
        // Packets may wait here, or in the queue for its flush.
        cx.wake();
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        if self.pulls && self.waiting.is_empty() {
            let burst = self.burst.unwrap_or(cx.burst());
            cx.pull(0, &mut self.waiting, burst);
            if self.waiting.is_empty() {
                let status = self.rest(cx);
                return if cx.upstream_active() { TaskStatus::Idle } else { status };
            }
        }
        if self.waiting.is_empty() {
            return self.rest(cx);
        }
        if self.send(cx) {
            return TaskStatus::Busy;
        }
        self.queue.flush(cx.pool());
        if self.pulls {
            return TaskStatus::Idle;
        }
        self.stalled_turns += 1;
        if self.stalled_turns > PATIENCE_TURNS {
            self.stalled_turns = 0;
            cx.drop_batch(&mut self.waiting, "transmit queue full");
        }
        TaskStatus::Busy
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        cx.wake();
    }

    fn settle(&mut self, cx: &mut Context) {
        self.losses.count(cx, &self.queue.stats());
    }

    fn handlers(&self) -> &'static [Handler] {
        const {
            &[
                Handler::read("count", Combine::Sum),
                Handler::read("byte_count", Combine::Sum),
                Handler::read("device", Combine::First),
            ]
        }
    }

    fn read(&mut self, name: &str, _argument: &str) -> Result<String, String> {
        let stats = self.queue.stats();
        Ok(match name {
            "count" => stats.packets.to_string(),
            "byte_count" => stats.bytes.to_string(),
            _ => {
                let info = self.port.info();
                format!("{} driver {} address {} mtu {}", info.name, info.driver, info.mac, info.mtu)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;
    use graph::setup::Shared;
    use graph::testing::{Bench, configure};

    #[test]
    fn mistakes() {
        assert!(configure(&CLASS, "").unwrap_err()[0].contains("DEVNAME"));
        assert!(configure(&CLASS, "null:x, BURST 257").unwrap_err()[0].contains("1 to 256"));
    }

    #[test]
    fn pushed_packets_leave_by_the_end_of_the_turn() {
        let config = "in :: TestInput -> to :: ToDevice(null:x)";
        let mut bench = Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap();
        bench.push("in", &[&[0; 60], &[1; 60]]);
        bench.run(4);
        assert_eq!(bench.read("to.count"), "2");
        assert_eq!(bench.read("to.byte_count"), "120");
        assert!(!bench.graph().context().has_awake_tasks());
    }

    #[test]
    fn pulled_packets_leave_and_the_task_sleeps_then() {
        let config = "in :: TestInput -> Queue(10) -> to :: ToDevice(null:x)";
        let mut bench = Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap();
        bench.push("in", &[&[0; 60], &[1; 60], &[2; 60]]);
        bench.run(10);
        assert_eq!(bench.read("to.count"), "3");
        assert!(!bench.graph().context().has_awake_tasks());
    }

    #[test]
    fn a_whole_burst_leaves_a_line_with_delay_too() {
        // The fault injector's clock is the real one.
        let config = "in :: TestInput -> to :: ToDevice(null:x?delay=1ms)";
        for burst in [1, 32] {
            let mut bench = Bench::try_new(&registry(), config, burst, &Shared::default()).unwrap();
            bench.push("in", &[&[0u8; 60][..]; 32]);
            for _ in 0..1000 {
                bench.run(4);
                bench.advance_ns(1_000_000);
                if bench.read("to.count") == "32" {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            assert_eq!(bench.read("to.count"), "32", "burst {burst}");
        }
    }

    #[test]
    fn a_line_that_loses_everything_counts_its_losses() {
        let config = "in :: TestInput -> to :: ToDevice(null:x?drop=1)";
        let mut bench = Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap();
        bench.push("in", &[&[0u8; 60][..]; 31]);
        bench.run(4);
        assert_eq!(bench.drops("to", "fault: dropped"), 31);
        assert_eq!(bench.drops("to", "fault: dropped"), 31);
    }

    #[test]
    fn pulled_packets_are_counted() {
        let config = "in :: TestInput -> Queue(10) -> to :: ToDevice(null:x)";
        let mut bench = Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap();
        bench.push("in", &[&[0; 60], &[1; 60]]);
        bench.run(10);
        assert_eq!(bench.stats("to").packets, 2);
    }

    #[test]
    fn a_pulled_port_that_is_full_lets_the_worker_rest() {
        let config = "in :: TestInput -> Queue(100) -> to :: ToDevice(memory:stuck)";
        let mut bench = Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap();
        let frame = [0u8; 60];
        let mut worked = true;
        for _ in 0..100 {
            bench.push("in", &[&frame[..]; 90]);
            bench.run(10);
            worked = bench.graph().context().turn();
        }
        assert!(!worked, "a turn that cannot send is no work");
    }

    #[test]
    fn pushed_packets_wait_for_room_and_are_dropped_in_the_end() {
        // A memory cable of which nobody reads the far end.
        let config = "in :: TestInput -> to :: ToDevice(memory:full)";
        let mut bench = Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap();
        let frame = [0u8; 60];
        for _ in 0..40 {
            bench.push("in", &[&frame[..]; 100]);
            bench.run(PATIENCE_TURNS as usize + 2);
        }
        let sent: u64 = bench.read("to.count").parse().unwrap();
        let dropped = bench.drops("to", "transmit queue full");
        assert!(dropped > 0);
        assert_eq!(sent + dropped, 4000);
    }
}
