//! =c
//! ToDevice(DEVNAME, [I<keywords> BURST, TIMEOUT, BLOCKING])
//!
//! =s devices
//! sends packets to a port
//!
//! =d
//! Sends packets out by the port DEVNAME, which is a name as for FromDevice. Each worker sends on
//! its own queue of the port, the slow thread too.
//!
//! Its input is agnostic. Pulled (behind a Queue), it takes packets when the port has room, so that
//! the queue fills when the port is slow, as in Click. Pushed, it gathers the packets of one turn
//! of the worker. It sends them when BURST packets are there, or when the turn ends. When the port
//! has no room, the packets are dropped as "transmit queue full", or hold the receivers back
//! (BLOCKING). Pushing is faster.
//!
//! Arguments are:
//!
//! BURST: packets sent at a time, 1 to 256. The router's burst by default.
//!
//! TIMEOUT: time that pushed packets may wait until there are BURST of them. 0 by default: they
//! leave with the turn.
//!
//! BLOCKING: boolean. False, the default: when the port has no room, packets are dropped. True: the
//! FromDevices whose packets lead here then receive nothing until the port has room. Some 4,000
//! packets that were on their way wait here meanwhile. Elements that make packets are not held
//! back, so their packets may be dropped.
//!
//! Click's METHOD and DEBUG, and keywords of Click in the Linux kernel, are accepted and have no
//! effect, with a warning. The driver stands in DEVNAME; C<brickway trace> shows packets.
//!
//! Losses that the driver reports are counted as drops of this element.
//!
//! =e
//!   ... -> Queue(1000) -> ToDevice(eth0);
//!
//! =a FromDevice, ToDump, ToHost, Queue

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use graph::arguments::Interval;
use graph::roles::Roles;
use graph::{Class, Combine, ConfigError, Context, Element, Get, Handler, QueueCounts, Setup, TaskStatus};
use packet::{Batch, MAX_BATCH, Packet};
use ports::{QueueStats, TxQueue};

use super::SENDER;
use super::congestion::Congestion;
use super::handover::{Account, Accounts, Incoming, Lanes, Outgoing};
use super::{
    DRIVER_DECIDES, LINUX_MODULE, Losses, OpenPort, Unopened, WithoutEffect, counts_of, take_without_effect,
};

/// The class `ToDevice`.
pub static CLASS: Class = Class {
    name: "ToDevice",
    ports: "1/0",
    capabilities: &[graph::TAKES_MERGED, SENDER, graph::KEEPS_ALL],
    handlers: &[
        Handler::read(
            "count",
            Combine::Sum,
            "Packets sent.",
            &Get(|e: &mut ToDevice| e.exit.stats().packets.to_string()),
        ),
        Handler::read(
            "byte_count",
            Combine::Sum,
            "Bytes sent.",
            &Get(|e: &mut ToDevice| e.exit.stats().bytes.to_string()),
        ),
        Handler::read(
            "held_turns",
            Combine::Sum,
            "Turns in which this element held receivers back (BLOCKING).",
            &Get(|e: &mut ToDevice| e.held_turns.to_string()),
        ),
        Handler::read(
            "device",
            Combine::First,
            "The port: name, driver, link address, MTU, queues.",
            &Get(|e: &mut ToDevice| e.port.describe()),
        ),
    ],
    manual: graph::manual!("to_device.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let name: String = setup.arguments.required("DEVNAME")?;
    let burst: Option<usize> = setup.arguments.keyword("BURST")?;
    let timeout: Option<Interval> = setup.arguments.keyword("TIMEOUT")?;
    let blocking = setup.arguments.keyword_or("BLOCKING", false)?;
    take_without_effect(setup, WITHOUT_EFFECT);
    setup.arguments.finish()?;
    if let Some(burst) = burst.filter(|burst| !(1..=MAX_BATCH).contains(burst)) {
        return Err(format!("BURST: expected 1 to {MAX_BATCH} packets, got {burst}").into());
    }
    if setup.is_check() {
        return Ok(Box::new(Unopened));
    }
    let port = OpenPort::of(setup, &name)?;
    let timeout_ns = timeout.map_or(0, |timeout| timeout.ns);
    let to = ToDevice { burst, timeout_ns, blocking, ..ToDevice::new(setup, port)? };
    if blocking {
        to.congestion.block();
    }
    Ok(Box::new(to))
}

/// What Click's user-level and kernel elements know beside, and is otherwise here.
const WITHOUT_EFFECT: &[WithoutEffect] = &[
    ("METHOD", &[], DRIVER_DECIDES),
    ("DEBUG", &["false", "no", "0"], "'brickway trace' shows packets and where they go"),
    ("QUIET", &[], LINUX_MODULE),
    ("ALLOW_NONEXISTENT", &["false", "no", "0"], LINUX_MODULE),
    ("TX_QUEUE", &[], LINUX_MODULE),
    ("NO_PAD", &[], LINUX_MODULE),
];

/// Turns for which pushed packets wait for room in the port before they are dropped.
const PATIENCE_TURNS: u32 = 64;

/// Packets that wait behind the first [`MAX_BATCH`] while the receivers of this worker are held back: bursts that were
/// on their way through the graph when the port filled up.
const BACKLOG: usize = 4096;

pub(super) struct ToDevice {
    port: Arc<OpenPort>,
    takes_merged: bool,
    exit: Exit,
    /// Packets that other workers processed and this one sends.
    incoming: Vec<Incoming>,
    burst: Option<usize>,
    timeout_ns: u64,
    blocking: bool,
    pulls: bool,
    /// Packets on their way to the port.
    waiting: Batch,
    /// When the first of them came, while TIMEOUT lets them wait.
    since_ns: u64,
    /// With BLOCKING: packets behind them.
    backlog: VecDeque<Packet>,
    stalled_turns: u32,
    losses: Losses,
    account: Arc<Account>,
    congestion: Arc<Congestion>,
    copy: usize,
    is_congested: bool,
    held_turns: u64,
}

/// Where packets leave this copy.
enum Exit {
    /// A queue of the port, with its number.
    Queue(usize, Box<dyn TxQueue>),
    /// To the worker that sends.
    Lane(Outgoing),
}

impl Exit {
    #[inline]
    fn send(&mut self, cx: &mut Context, batch: &mut Batch, account: &Account) -> usize {
        match self {
            Self::Queue(_, queue) => {
                let sent = queue.send(cx.pool(), batch);
                account.leave(sent);
                sent
            }
            Self::Lane(lane) => {
                let count = batch.len();
                lane.send(batch);
                count - batch.len()
            }
        }
    }

    /// Whether packets wait in the queue for its flush.
    #[inline]
    fn is_due(&self) -> bool {
        match self {
            Self::Queue(_, queue) => queue.due_in_ns().is_some(),
            Self::Lane(_) => false,
        }
    }

    fn stats(&self) -> QueueStats {
        match self {
            Self::Queue(_, queue) => queue.stats(),
            Self::Lane(_) => QueueStats::default(),
        }
    }
}

/// Timers: the queue has something to do by its own clock; packets have waited long enough.
const DUE_TIMER: u32 = 0;
const BURST_TIMER: u32 = 1;

impl ToDevice {
    pub(super) fn new(setup: &Setup<'_>, port: Arc<OpenPort>) -> Result<Self, ConfigError> {
        Self::new_among(setup, port, 0)
    }

    /// One of several that send by a port: number `place`.
    pub(super) fn new_among(
        setup: &Setup<'_>,
        port: Arc<OpenPort>,
        place: usize,
    ) -> Result<Self, ConfigError> {
        let roles = Roles::of(setup);
        let copy = setup.copy();
        let first = place * (roles.send.len() + usize::from(copy.slow_thread));
        let sender = |worker: usize| setup.bound_worker().unwrap_or_else(|| roles.sender(worker));
        let lanes = Lanes::of(setup, "transmit");
        let taken = || ConfigError::new("the way to the worker that sends is taken already");
        let (exit, incoming) = if copy.is_slow() {
            let number = first + roles.send.len();
            (Exit::Queue(number, port.take_tx(number)?), Vec::new())
        } else if sender(copy.index) == copy.index {
            let queue = roles.send.iter().position(|&worker| worker == copy.index).ok_or_else(|| {
                ConfigError::new(format!("worker {} sends nothing in this mode", copy.index))
            })?;
            let others =
                (0..copy.workers).filter(|&worker| worker != copy.index && sender(worker) == copy.index);
            let incoming = others.filter_map(|worker| lanes.incoming(worker, copy.index)).collect();
            let number = first + queue;
            (Exit::Queue(number, port.take_tx(number)?), incoming)
        } else {
            let lane = lanes.outgoing(setup, copy.index, sender(copy.index));
            (Exit::Lane(lane.ok_or_else(taken)?), Vec::new())
        };
        let account = Accounts::of(setup).open(match &exit {
            Exit::Queue(..) => None,
            Exit::Lane(lane) => Some(lane),
        });
        Ok(Self {
            takes_merged: port.takes_merged(),
            port,
            exit,
            incoming,
            burst: None,
            timeout_ns: 0,
            blocking: false,
            pulls: setup.input_is_pull(0),
            waiting: Batch::new(),
            since_ns: 0,
            backlog: VecDeque::new(),
            stalled_turns: 0,
            losses: Losses::default(),
            account,
            congestion: Congestion::of(setup, setup.name()),
            copy: copy.index,
            is_congested: false,
            held_turns: 0,
        })
    }

    /// Sends what waits; whether the port took anything.
    #[inline]
    fn send(&mut self, cx: &mut Context) -> bool {
        let sent = self.exit.send(cx, &mut self.waiting, &self.account);
        if sent > 0 {
            self.stalled_turns = 0;
        }
        sent > 0
    }

    /// Nothing to send: lets the queue push out what waits inside, and has itself woken when more is due.
    fn rest(&mut self, cx: &mut Context) -> TaskStatus {
        if let Exit::Queue(_, queue) = &mut self.exit {
            queue.flush(cx.pool());
            if let Some(due) = queue.due_in_ns() {
                cx.set_timer(DUE_TIMER, cx.now_ns().saturating_add(due));
            }
        }
        if self.incoming.is_empty() { TaskStatus::Asleep } else { TaskStatus::Idle }
    }

    /// Takes what other workers processed, as far as there is room.
    #[inline]
    fn take_over(&mut self, burst: usize) {
        let mut left = burst.saturating_sub(self.waiting.len());
        // The first in turn is another one each time, so that none starves.
        if !self.incoming.is_empty() {
            self.incoming.rotate_left(1);
        }
        for incoming in &mut self.incoming {
            incoming.turn();
            let count = incoming.take(&mut self.waiting, left);
            self.account.enter(count);
            left -= count;
        }
    }

    /// Packets for which there is no room: they wait and the receivers with them, or they are dropped.
    #[cold]
    fn overflow(&mut self, cx: &mut Context, batch: &mut Batch) {
        if !self.blocking {
            self.account.leave(batch.len());
            return cx.drop_batch(batch, "transmit queue full");
        }
        self.is_congested = true;
        self.congestion.set(self.copy, true);
        let mut count = BACKLOG.saturating_sub(self.backlog.len()).min(batch.len());
        let mut surplus = cx.spare_batch();
        for packet in batch.drain() {
            if count > 0 {
                self.backlog.push_back(packet);
                count -= 1;
            } else {
                surplus.push(packet);
            }
        }
        self.account.leave(surplus.len());
        cx.drop_batch(&mut surplus, "transmit queue full");
        cx.recycle(surplus);
    }

    /// Brings packets from the backlog forward, and lets the receivers go on when it is empty.
    #[cold]
    fn relieve(&mut self) {
        while self.waiting.room() > 0
            && let Some(packet) = self.backlog.pop_front()
        {
            self.waiting.push(packet);
        }
        if self.backlog.is_empty() {
            self.is_congested = false;
            self.congestion.set(self.copy, false);
        } else {
            self.held_turns += 1;
        }
    }
}

impl Element for ToDevice {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        if let Exit::Queue(_, queue) = &mut self.exit {
            queue.prepare(cx.pool()).map_err(|error| error.to_string())?;
        }
        if self.blocking {
            self.backlog.reserve(BACKLOG);
        }
        self.incoming.iter_mut().for_each(|incoming| incoming.watch(vec![self.account.clone()]));
        if self.pulls || !self.incoming.is_empty() {
            cx.wake();
        }
        Ok(())
    }

    fn takes_data_alone(&self) -> bool {
        true
    }

    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let burst = self.burst.unwrap_or(cx.burst());
        self.account.enter(batch.len());
        if self.takes_merged {
            cx.count_merged(batch);
        }
        if self.is_congested {
            return self.overflow(cx, batch);
        }
        if self.waiting.is_empty() {
            if batch.len() >= burst {
                // A whole burst: nothing to gather.
                self.exit.send(cx, batch, &self.account);
            }
            self.since_ns = cx.now_ns();
        }
        batch.move_front(&mut self.waiting, MAX_BATCH);
        if self.waiting.len() >= burst {
            self.send(cx);
            batch.move_front(&mut self.waiting, MAX_BATCH);
        }
        if !batch.is_empty() {
            self.overflow(cx, batch);
        }
        if !self.waiting.is_empty() || self.is_congested || self.exit.is_due() {
            cx.wake();
        }
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        let burst = self.burst.unwrap_or(cx.burst());
        if !self.incoming.is_empty() {
            self.take_over(burst);
        }
        if self.pulls && self.waiting.is_empty() {
            cx.pull(0, &mut self.waiting, burst);
            self.account.enter(self.waiting.len());
            if self.takes_merged {
                cx.count_merged(&self.waiting);
            }
            if self.waiting.is_empty() {
                let status = self.rest(cx);
                return if cx.upstream_active() { TaskStatus::Idle } else { status };
            }
        }
        if self.waiting.is_empty() {
            return self.rest(cx);
        }
        if self.timeout_ns > 0 && !self.pulls && !self.is_congested && self.waiting.len() < burst {
            let due = self.since_ns.saturating_add(self.timeout_ns);
            if cx.now_ns() < due {
                cx.set_timer(BURST_TIMER, due);
                return self.rest(cx);
            }
        }
        let sent = self.send(cx);
        if self.is_congested {
            self.relieve();
        }
        if sent {
            return TaskStatus::Busy;
        }
        if let Exit::Queue(_, queue) = &mut self.exit {
            queue.flush(cx.pool());
        }
        if self.pulls || self.blocking {
            return TaskStatus::Idle;
        }
        self.stalled_turns += 1;
        if self.stalled_turns > PATIENCE_TURNS {
            self.stalled_turns = 0;
            self.account.leave(self.waiting.len());
            cx.drop_batch(&mut self.waiting, "transmit queue full");
        }
        TaskStatus::Busy
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        cx.wake();
    }

    fn wait_fds<'a>(&'a self, _fds: &mut Vec<BorrowedFd<'a>>) -> bool {
        // Awake for what other workers bring, who wake this one; what waits for room in the port is looked at again.
        !self.incoming.is_empty() && self.waiting.is_empty()
    }

    fn queues(&self) -> Vec<QueueCounts> {
        match &self.exit {
            Exit::Queue(number, queue) => vec![counts_of(&self.port.name, *number, true, &queue.stats())],
            Exit::Lane(_) => Vec::new(),
        }
    }

    fn settle(&mut self, cx: &mut Context) {
        self.losses.count(cx, &self.exit.stats());
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
    fn pushed_packets_wait_for_a_burst_until_the_timeout() {
        let config = "in :: TestInput -> to :: ToDevice(null:x, BURST 4, TIMEOUT 1ms)";
        let mut bench = Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap();
        let sent = |bench: &mut Bench, count: usize| {
            bench.push("in", &vec![&[0u8; 60][..]; count]);
            bench.run(4);
            bench.read("to.count")
        };
        assert_eq!(sent(&mut bench, 2), "0", "they wait");
        bench.advance_ns(900_000);
        assert_eq!(bench.read("to.count"), "0", "it is not yet time");
        bench.advance_ns(200_000);
        bench.run(4);
        assert_eq!(bench.read("to.count"), "2", "their time is over");
        assert_eq!(sent(&mut bench, 3), "2");
        assert_eq!(sent(&mut bench, 1), "6", "a whole burst leaves at once");
        assert_eq!(sent(&mut bench, 5), "11", "so does more than one");
        // The time counts from when the first of them came.
        assert_eq!(sent(&mut bench, 1), "11");
        bench.advance_ns(500_000);
        assert_eq!(sent(&mut bench, 1), "11");
        bench.advance_ns(600_000);
        bench.run(4);
        assert_eq!(bench.read("to.count"), "13");
        assert!(!bench.graph().context().has_awake_tasks());
    }
    #[test]
    fn a_whole_burst_leaves_a_line_with_delay_too() {
        // The fault injector's clock is the real one.
        let config = "in :: TestInput -> to :: ToDevice(null:x?delay=1ms)";
        for burst in [1, 32] {
            let mut bench = Bench::try_new(&registry(), config, burst, &Shared::default()).unwrap();
            bench.push("in", &[&[0u8; 60][..]; 32]);
            testbed::wait_until("the whole burst leaves", || {
                bench.run(4);
                bench.advance_ns(1_000_000);
                bench.read("to.count") == "32"
            });
        }
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

    #[test]
    fn a_line_that_loses_everything_counts_its_losses() {
        let config = "in :: TestInput -> to :: ToDevice(null:x?drop=1)";
        let mut bench = Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap();
        bench.push("in", &[&[0u8; 60][..]; 31]);
        bench.run(4);
        assert_eq!(bench.drops("to", "fault: dropped"), 31);
        assert_eq!(bench.drops("to", "fault: dropped"), 31);
    }
}
