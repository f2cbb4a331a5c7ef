//! Queues of a script, and what takes packets out of them: larger batches, rates, priorities.
//!
//! An output that the script has set up, or that has queues, takes its packets from queues only: one of its own for what is sent to it
//! directly, and those that the script makes. It serves them by priority, those of one priority in turns, a packet each.

use std::collections::VecDeque;

use graph::Context;
use packet::{Batch, MAX_BATCH, Packet};

use crate::shared::QUEUED;

/// Most queues that a script can make.
pub(crate) const MOST_QUEUES: usize = 64;
/// Packets of an output's own queue, and its priority, where 0 goes first.
const OWN_CAPACITY: u32 = 1024;
const OWN_PRIORITY: u8 = 100;
/// What an output may send at once after it has been idle, as time at its rate.
const BURST_NS: u64 = 1_000_000;
/// The weight of the present length in the average of RED (Floyd and Jacobson 1993, section 4: 0.002).
const WEIGHT: f64 = 0.002;

/// Keys of timers from here on belong to outputs.
pub(crate) const FIRST_TIMER: u32 = 1024;

/// What a script asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wish {
    /// No queues: the script begins anew. Packets that wait leave.
    Restart,
    /// Another queue.
    Queue { output: usize, capacity: u32, priority: u8, red: Option<Red> },
    /// How an output takes packets: bits a second (0 for no limit), the least packets of a batch and how long to wait for them.
    Output { output: usize, bits_per_second: u64, batch: usize, timeout_ns: u64 },
}

/// Random early detection: packets are dropped before the queue is full, the more the longer it is on average.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Red {
    /// Average lengths between which packets are dropped by chance.
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// The share that is dropped at `max`; above it, all are.
    pub(crate) probability: f64,
}

struct Queue {
    packets: VecDeque<Packet>,
    output: usize,
    capacity: u32,
    priority: u8,
    red: Option<Red>,
    average: f64,
    /// Packets since RED dropped the last one.
    since_drop: f64,
}

impl Queue {
    /// Whether RED drops the next packet, by a random number below 1.
    fn drops_early(&mut self, random: impl FnOnce() -> f64) -> bool {
        let Some(Red { min, max, probability }) = self.red else { return false };
        self.average += (self.packets.len() as f64 - self.average) * WEIGHT;
        self.since_drop += 1.0;
        if self.average < min {
            return false;
        }
        let share = probability * (self.average - min) / (max - min);
        // Drops are spread evenly: the share grows with the packets since the last one (section 4 of the same).
        let share = share / (1.0 - (self.since_drop * share).min(1.0)).max(f64::EPSILON);
        let drops = self.average >= max || random() < share;
        if drops {
            self.since_drop = 0.0;
        }
        drops
    }
}

/// An output that takes packets from queues.
struct Output {
    number: usize,
    ns_per_bit: f64,
    batch: usize,
    timeout_ns: u64,
    /// Its queues by priority, by their places. The output's own is one of them.
    queues: Vec<usize>,
    own: usize,
    /// The queue that was served last, by its place.
    last: usize,
    /// Packets in its queues, and since when there are any.
    waiting: usize,
    since_ns: u64,
    /// From when on it may send.
    free_ns: f64,
}

/// All queues of a script.
#[derive(Default)]
pub(crate) struct Queues {
    queues: Vec<Queue>,
    /// The places of those that the script has made, by its numbers.
    made: Vec<usize>,
    outputs: Vec<Output>,
    batch: Batch,
}

impl Queues {
    /// Whether there are none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }

    /// Does what the script asks for.
    pub(crate) fn grant(&mut self, cx: &mut Context, wish: Wish) {
        match wish {
            Wish::Restart => {
                let left = std::mem::take(self).drain();
                left.into_iter().for_each(|(output, packet)| cx.emit(output, packet));
            }
            Wish::Queue { .. } if self.made.len() >= MOST_QUEUES => {}
            Wish::Queue { output, capacity, priority, red } => {
                let queue = self.add(output, capacity, priority, red);
                self.made.push(queue);
                let place = self.output(output);
                self.attach(place, queue);
            }
            Wish::Output { output, bits_per_second, batch, timeout_ns } => {
                let place = self.output(output);
                let output = &mut self.outputs[place];
                output.ns_per_bit = if bits_per_second == 0 { 0.0 } else { 1e9 / bits_per_second as f64 };
                (output.batch, output.timeout_ns) = (batch.clamp(1, MAX_BATCH), timeout_ns);
            }
        }
    }

    fn add(&mut self, output: usize, capacity: u32, priority: u8, red: Option<Red>) -> usize {
        let packets = VecDeque::with_capacity(capacity as usize);
        self.queues.push(Queue { packets, output, capacity, priority, red, average: 0.0, since_drop: 0.0 });
        self.queues.len() - 1
    }

    /// The place of an output, which is made with its own queue if it is not there.
    fn output(&mut self, number: usize) -> usize {
        if let Some(place) = self.outputs.iter().position(|output| output.number == number) {
            return place;
        }
        let own = self.add(number, OWN_CAPACITY, OWN_PRIORITY, None);
        self.outputs.push(Output {
            number,
            ns_per_bit: 0.0,
            batch: 1,
            timeout_ns: 0,
            queues: Vec::new(),
            own,
            last: own,
            waiting: 0,
            since_ns: 0,
            free_ns: 0.0,
        });
        let place = self.outputs.len() - 1;
        self.attach(place, own);
        place
    }

    fn attach(&mut self, place: usize, queue: usize) {
        let Self { queues, outputs, .. } = self;
        outputs[place].queues.push(queue);
        outputs[place].queues.sort_by_key(|&queue| queues[queue].priority);
    }

    /// Takes a batch apart whose packets the script has sorted: `sorted` says of each where it goes.
    pub(crate) fn take(
        &mut self,
        cx: &mut Context,
        batch: &mut Batch,
        mut sorted: impl FnMut(usize) -> Result<usize, &'static str>,
    ) {
        for (number, packet) in batch.drain().enumerate() {
            match sorted(number) {
                Err(reason) => cx.drop(packet, reason),
                Ok(output) => match output.checked_sub(usize::from(QUEUED)) {
                    Some(number) => match self.made.get(number) {
                        Some(&queue) => self.push(cx, queue, packet),
                        None => cx.drop(packet, "no such queue"),
                    },
                    None => match self.outputs.iter().find(|known| known.number == output) {
                        Some(known) => self.push(cx, known.own, packet),
                        None => cx.emit(output, packet),
                    },
                },
            }
        }
        self.serve(cx);
    }

    fn push(&mut self, cx: &mut Context, queue: usize, packet: Packet) {
        let queue = &mut self.queues[queue];
        if queue.packets.len() >= queue.capacity as usize {
            return cx.drop(packet, "queue full");
        }
        if queue.drops_early(|| f64::from(cx.random()) / f64::from(u32::MAX)) {
            return cx.drop(packet, "dropped early");
        }
        queue.packets.push_back(packet);
        if let Some(output) = self.outputs.iter_mut().find(|output| output.number == queue.output) {
            if output.waiting == 0 {
                output.since_ns = cx.now_ns();
            }
            output.waiting += 1;
        }
    }

    /// Has each output take what it may.
    pub(crate) fn serve(&mut self, cx: &mut Context) {
        let Self { queues, outputs, batch, .. } = self;
        let now_ns = cx.now_ns();
        for output in outputs {
            while output.waiting > 0 {
                let is_due = output.waiting >= output.batch || now_ns >= output.since_ns + output.timeout_ns;
                if !is_due {
                    cx.set_timer(output.timer(), output.since_ns + output.timeout_ns);
                    break;
                }
                output.free_ns = output.free_ns.max(now_ns.saturating_sub(BURST_NS) as f64);
                while output.free_ns <= now_ns as f64 && batch.room() > 0 {
                    let Some(packet) = output.next(queues) else { break };
                    output.free_ns += packet.bytes_in_pieces() as f64 * 8.0 * output.ns_per_bit;
                    batch.push(packet);
                }
                if batch.is_empty() {
                    cx.set_timer(output.timer(), output.free_ns as u64 + 1);
                    break;
                }
                output.since_ns = now_ns;
                cx.emit_batch(output.number, batch);
            }
        }
    }

    /// The number of packets in a queue that the script has made.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = usize> {
        self.made.iter().map(|&queue| self.queues[queue].packets.len())
    }

    /// Takes all packets out, with their outputs.
    pub(crate) fn drain(&mut self) -> Vec<(usize, Packet)> {
        let Self { queues, outputs, .. } = self;
        let mut packets = Vec::new();
        for output in outputs {
            let number = output.number;
            packets.extend(std::iter::from_fn(|| output.next(queues)).map(|packet| (number, packet)));
        }
        packets
    }
}

impl Output {
    fn timer(&self) -> u32 {
        FIRST_TIMER + self.number as u32
    }

    /// Takes the next packet: of the first priority that has one, of its queues the one behind that which was served last.
    fn next(&mut self, queues: &mut [Queue]) -> Option<Packet> {
        let has_packets = |queue: usize| !queues[queue].packets.is_empty();
        let first = self.queues.iter().position(|&queue| has_packets(queue))?;
        let priority = queues[self.queues[first]].priority;
        let same = self.queues[first..].iter().take_while(|&&queue| queues[queue].priority == priority);
        let behind = same.clone().position(|&queue| queue == self.last).map_or(0, |place| place + 1);
        let count = same.clone().count();
        let mut in_turns = same.clone().cycle().skip(behind).take(count);
        let queue = *in_turns.find(|&&queue| has_packets(queue))?;
        self.last = queue;
        self.waiting -= 1;
        queues[queue].packets.pop_front()
    }
}
