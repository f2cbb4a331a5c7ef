//! What a script works on and asks for during a call: the steps over its batch, and lines, timers and packets of its own.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use elements::classifying::decider::view_by_ip;
use elements::decision::{Program, View};
use elements::lookup::ForwardingSteps;
use packet::sync::lock;
use packet::wire::ethernet;
use packet::{Batch, Mask, Packet};

use crate::queues::Wish;
use crate::shared::{MASKS, Reasons, Shared, one_line};

/// The mask of all packets, as the prelude says it.
const ALL: usize = MASKS;
/// Most filters of a script, and the longest, in bytes.
const MOST_FILTERS: usize = 256;
const LONGEST_FILTER: usize = 4096;
/// Most packets that a call may make.
const MOST_TRANSMITTED: usize = 256;
/// Most queues and settings of outputs that a call may ask for.
const MOST_WISHES: usize = 512;
/// Most lines that are kept of a call.
const MOST_LINES: usize = 16;

/// The batch that a script works on, and what does steps over it.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    /// The batch, while a call has it.
    pub(crate) batch: Batch,
    /// The steps of forwarding, if the element is a router.
    pub(crate) steps: Option<ForwardingSteps>,
    pub(crate) reasons: Reasons,
    pub(crate) filters: Filters,
    /// Whether packets may be merged.
    pub(crate) may_be_merged: bool,
}

/// Expressions of packets that the script has compiled. Functions of the state add them, which another thread may run.
pub(crate) type Filters = Arc<Mutex<Vec<Program>>>;

/// Compiles an expression. Returns its number.
pub(crate) fn add_filter(filters: &Filters, expression: String) -> Result<usize, String> {
    let mut filters = lock(filters);
    if filters.len() == MOST_FILTERS {
        return Err(format!("more than {MOST_FILTERS} filters"));
    }
    // Nothing ends the compiler once it has begun.
    if expression.len() > LONGEST_FILTER {
        let length = expression.len();
        return Err(format!("a filter of {length} characters; expected {LONGEST_FILTER} at most"));
    }
    let (program, _) = Program::ip_classifier(&[expression]).map_err(|mistakes| mistakes.join("; "))?;
    filters.push(program);
    Ok(filters.len() - 1)
}

/// Whether a packet is what a filter is about: by the header that is marked, else by that behind an Ethernet header.
fn matches(filter: &Program, packet: &Packet) -> bool {
    const BEHIND_ETHERNET: usize = ethernet::HEADER_LEN;
    let data = packet.data();
    let view = match data.get(..=BEHIND_ETHERNET) {
        Some(start) if packet.network_offset().is_none() && start[12..14] == [8, 0] => {
            let header_bytes = usize::from(start[BEHIND_ETHERNET] & 15) * 4;
            View { data, network: BEHIND_ETHERNET, transport: BEHIND_ETHERNET + header_bytes }
        }
        _ => view_by_ip(packet),
    };
    filter.run(view.data, view.network, view.transport).is_some()
}

impl Stage {
    /// Does a step, by the number that the prelude has for it: from one mask or two, to a mask. Returns how many packets are in the
    /// new mask; `None` of a step that the element does not have.
    pub(crate) fn step(
        &mut self,
        shared: &Shared,
        step: u32,
        from: usize,
        second: usize,
        to: usize,
    ) -> Option<u32> {
        let Self { batch, steps, reasons, filters, may_be_merged } = self;
        let packets = batch.packets_mut();
        let mask = if from == ALL { Mask::first(packets.len()) } else { shared.mask(from) };
        let next = match (step, steps) {
            (6, _) => Mask::first(packets.len()).retain(packets, |number, _| shared.is_undecided(number)),
            (7, _) => Mask::first(packets.len()),
            (8, _) => Mask::NONE,
            (9, _) => mask.or(shared.mask(second)),
            (10, _) => mask.and_not(shared.mask(second)),
            (11, _) => mask.and(shared.mask(second)),
            (12, _) => {
                let output = u16::try_from(second).unwrap_or(u16::MAX);
                mask.retain(packets, |number, _| {
                    shared.send(number, output);
                    true
                });
                return Some(0);
            }
            (15, _) => {
                let filters = lock(filters);
                let filter = filters.get(second)?;
                mask.retain(packets, |_, packet| matches(filter, packet))
            }
            (13, _) => return Some(mask.count()),
            (16, _) if *may_be_merged => {
                let mut pieces = 0;
                mask.retain(packets, |_, packet| {
                    pieces += packet.pieces();
                    true
                });
                return Some(pieces as u32);
            }
            (16, _) => return Some(mask.count()),
            (_, None) => return None,
            (0, Some(steps)) => {
                steps.check4(packets, mask, |number, reason| shared.send(number, reasons.output(reason)))
            }
            (14, Some(steps)) => {
                steps.check6(packets, mask, |number, reason| shared.send(number, reasons.output(reason)))
            }
            (1, Some(steps)) => {
                steps.lookup(packets, mask, |number, reason| shared.send(number, reasons.output(reason)))
            }
            (2, Some(steps)) => steps.fits(packets, mask),
            (3, Some(steps)) => steps.decrement_ttl(packets, mask),
            (4, Some(steps)) => {
                // What the script dropped before stays dropped.
                let mask = mask.retain(packets, |number, _| shared.is_undecided(number));
                steps.apply(packets, mask, |number, port| shared.send(number, port))
            }
            (_, Some(steps)) => {
                // To Linux, the output behind those of the ports, as they came.
                let linux = steps.mtus.len() as u16;
                mask.retain(packets, |number, packet| {
                    if shared.is_undecided(number) {
                        ForwardingSteps::whole(packet);
                        shared.send(number, linux);
                    }
                    false
                })
            }
        };
        shared.set_mask(to, next);
        Some(0)
    }
}

/// What a script asks for during a call, by functions of ours.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    are_there: AtomicBool,
    list: Mutex<List>,
}

/// The requests of a call.
#[derive(Debug, Default)]
pub(crate) struct List {
    /// Keys of timers, and in how many nanoseconds.
    pub(crate) timers: Vec<(u32, u64)>,
    /// New packets and their outputs.
    pub(crate) packets: Vec<(Vec<u8>, usize)>,
    /// Queues, and how outputs take packets.
    pub(crate) wishes: Vec<Wish>,
    /// Lines of the log, and how many there were.
    pub(crate) lines: Vec<String>,
    pub(crate) line_count: usize,
}

impl Requests {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Takes them, if there are any.
    #[inline]
    pub(crate) fn take(&self) -> Option<List> {
        self.are_there.load(Relaxed).then(|| {
            self.are_there.store(false, Relaxed);
            std::mem::take(&mut *lock(&self.list))
        })
    }

    fn add(&self) -> MutexGuard<'_, List> {
        self.are_there.store(true, Relaxed);
        lock(&self.list)
    }

    /// Keeps a packet to send.
    pub(crate) fn transmit(&self, bytes: Vec<u8>, output: usize) -> Result<(), String> {
        let mut list = self.add();
        if list.packets.len() == MOST_TRANSMITTED {
            return Err(format!("more than {MOST_TRANSMITTED} packets in one call"));
        }
        list.packets.push((bytes, output));
        Ok(())
    }

    /// Keeps a line of the log.
    pub(crate) fn log(&self, line: &str) {
        let mut list = self.add();
        list.line_count += 1;
        if list.lines.len() < MOST_LINES {
            list.lines.push(one_line(line));
        }
    }

    /// Keeps what is asked of queues.
    pub(crate) fn wish(&self, wish: Wish) -> Result<(), String> {
        let mut list = self.add();
        if list.wishes.len() >= MOST_WISHES {
            return Err(format!("more than {MOST_WISHES} queues and settings of outputs in one call"));
        }
        list.wishes.push(wish);
        Ok(())
    }

    /// Keeps a timer, in the place of that of the same key.
    pub(crate) fn set_timer(&self, key: u32, after_ns: u64) {
        let mut list = self.add();
        match list.timers.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = after_ns,
            None => list.timers.push((key, after_ns)),
        }
    }
}
