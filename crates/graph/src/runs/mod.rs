//! Fused runs: elements in a row that work as one, as long as nothing about the packets is out of the
//! ordinary.
//!
//! Most packets are plain: addressed to us, IPv4 without options, checksum right, time to live left (or IPv6
//! without extension headers and hops left). What an element does to such an *ordinary* packet fits in a
//! line: "the first six bytes must be these", "strip 14". An element says so by
//! [`Element::ordinary`](crate::Element::ordinary), as a list of [`Step`]s and the output that the packet
//! takes. Elements in a row whose steps fit together become a run when a copy of the graph is made, and again
//! when a handler was written that changed what an element says.
//!
//! **When it runs.** A batch comes to the first element of a run. If every packet of it is ordinary for all
//! elements of the run, all is done to it in one pass, and it goes on behind the last element. If a single
//! packet is not, the batch is as it was, and all of it goes the ordinary way, through the elements
//! themselves. So order, drops, reasons and what leaves by other outputs are the same with runs and without;
//! `crates/elements/tests/runs` compares them packet by packet.
//!
//! Every element of a chain begins a run of its own, with all those behind it: a batch that lost its odd
//! packets on the way can still go the rest of it at once. A batch that was found odd is looked at again only
//! when it has become smaller.
//!
//! **Counters.** A run counts packets and batches once; they are added to those of its elements when these
//! are read. The elements of a run share its cycles evenly.
//!
//! **Two shapes.** Steps do not run one by one: that would cost a jump a step and packet. They are merged
//! into one of two loops, `arrival` for what happens before a lookup and `departure` for what happens behind
//! it. A step that fits neither, or that comes in another order, ends the run.

mod arrival;
mod departure;
mod sources;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use packet::{Batch, PacketType};

use crate::context::{End, Slot};
use arrival::Arrival;
pub use departure::Departure;
pub use sources::{BadSources, SourceAddress};

/// Most elements in one run: enough for what people write, and an end for chains that circle.
const MOST_MEMBERS: usize = 16;

/// A part of what an element does to an ordinary packet: a test that it passes, or a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The data is at least this long.
    AtLeast(usize),
    /// The four bytes at `offset` of the data, as a big-endian number under `mask`, are `value`.
    Match {
        /// Place of the first byte.
        offset: usize,
        /// The bits that count.
        mask: u32,
        /// What they are; zero where the mask is.
        value: u32,
    },
    /// The packet type is set.
    SetType(PacketType),
    /// A byte of the annotations is set.
    SetAnnotation {
        /// Place of the byte.
        place: usize,
        /// What it is set to.
        value: u8,
    },
    /// So many bytes are taken off the front; there are as many.
    Strip(usize),
    /// An IPv4 header is checked and marked, the data cut to its length, the destination annotation set.
    CheckIp(IpCheck),
    /// The same with an IPv6 header.
    CheckIp6(Ip6Check),
    /// The packet is no broadcast or multicast of the link layer.
    NotBroadcast,
    /// A byte of the annotations has another value than this.
    AnnotationIsNot {
        /// Place of the byte.
        place: usize,
        /// What it is not.
        value: u8,
    },
    /// The source address is not to be set.
    SourceStays,
    /// The IPv4 header has no options.
    NoOptions,
    /// The time to live is at least 2; it loses one, and the header's checksum is updated.
    DecrementTtl,
    /// The addresses of the IPv6 header allow that it is forwarded
    /// ([`PlainIpv6Header::may_leave_link`](packet::PlainIpv6Header)).
    MayLeaveLink,
    /// The hop limit of the IPv6 header is at least 2; it loses one.
    DecrementHopLimit,
    /// The data, which begins with the network header, is at most so many bytes.
    AtMost(usize),
    /// The element does the rest itself, by [`Element::finish`](crate::Element::finish). This ends a run.
    Finish,
}

/// How an IPv4 header is checked: version 4, no options, and a total length that fits, in any case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpCheck {
    /// Where the header starts, in bytes from the start of the data.
    pub offset: usize,
    /// Whether the checksum counts.
    pub checksum: bool,
    /// The sources that it must not have.
    pub sources: Arc<BadSources<u32>>,
}

/// How an IPv6 header is checked: version 6, a payload length that fits, no extension headers, and plain
/// addresses ([`PlainIpv6Header::has_plain_addresses`](packet::PlainIpv6Header)), in any case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ip6Check {
    /// Where the header starts, in bytes from the start of the data.
    pub offset: usize,
    /// The sources that it must not have.
    pub sources: Arc<BadSources<u128>>,
}

/// What an element does to an ordinary packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ordinary {
    /// In order.
    pub steps: Vec<Step>,
    /// The output that the packet takes.
    pub output: usize,
}

impl Ordinary {
    /// These steps, and on by output 0.
    pub fn steps(steps: impl Into<Vec<Step>>) -> Option<Self> {
        Some(Self { steps: steps.into(), output: 0 })
    }
}

/// The merged steps of a run.
#[derive(Clone, Debug)]
enum Work {
    Arrival(Arrival),
    Departure(Departure),
}

/// A run, and its counters.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    members: Vec<u32>,
    work: Work,
    /// The run to try where this one finds an odd packet.
    pub(crate) otherwise: Option<u32>,
    pub(crate) exit: End,
    pub(crate) packets: u64,
    pub(crate) batches: u64,
    pub(crate) timed_packets: u64,
    pub(crate) timed_cycles: u64,
}

impl Run {
    /// Does the run's work to the whole batch, or, if not all packets are ordinary, nothing.
    #[inline(always)]
    pub(crate) fn apply(&mut self, slots: &mut [Slot], now_ns: u64, batch: &mut Batch) -> bool {
        let packets = batch.packets_mut();
        match &mut self.work {
            Work::Arrival(arrival) => arrival.apply(packets),
            Work::Departure(departure) if departure.finishes => {
                let last = self.members.last().and_then(|&last| slots[last as usize].element.as_mut());
                last.is_some_and(|element| element.finish(departure, packets, now_ns))
            }
            Work::Departure(departure) => departure.apply(packets),
        }
    }

    /// Sets its counters back to zero.
    pub(crate) fn reset(&mut self) {
        (self.packets, self.batches, self.timed_packets, self.timed_cycles) = (0, 0, 0, 0);
    }

    /// Whether `element` is in it.
    pub(crate) fn has(&self, element: usize) -> bool {
        self.members.contains(&(element as u32))
    }

    /// The cycles of one of its elements.
    pub(crate) fn cycles_each(&self) -> f64 {
        let timed = self.timed_packets.max(1) as f64;
        self.timed_cycles as f64 * self.packets as f64 / timed / self.members.len() as f64
    }
}

/// All runs of a copy of the graph; each element in a slot learns which one it begins.
pub(crate) fn find(slots: &mut [Slot]) -> Vec<Run> {
    let ordinary: Vec<Option<Ordinary>> =
        slots.iter().map(|slot| slot.element.as_ref().and_then(|element| element.ordinary())).collect();
    // The same for elements that know a second kind of packet.
    let mut has_second = false;
    let second: Vec<Option<Ordinary>> = (slots.iter().zip(&ordinary))
        .map(|(slot, first)| {
            let second = slot.element.as_ref().and_then(|element| element.ordinary_else());
            has_second |= second.is_some();
            second.or_else(|| first.clone())
        })
        .collect();
    let mut runs: Vec<Run> = Vec::new();
    for first in 0..slots.len() {
        let arrival_or_departure = |ordinary: &[Option<Ordinary>]| {
            longest(slots, ordinary, first, Arrival::default(), Arrival::add, Work::Arrival).or_else(|| {
                longest(slots, ordinary, first, Departure::default(), Departure::add, Work::Departure)
            })
        };
        let usual = arrival_or_departure(&ordinary);
        let other = if has_second { arrival_or_departure(&second) } else { None };
        let other = other.filter(|other| {
            usual.as_ref().is_none_or(|usual| (&other.members, other.exit) != (&usual.members, usual.exit))
        });
        slots[first].run = None;
        // The usual one is found first, so the other is its second choice.
        for mut run in [other, usual].into_iter().flatten() {
            run.otherwise = slots[first].run;
            slots[first].run = Some(runs.len() as u32);
            runs.push(run);
        }
    }
    runs
}

/// The longest run of one shape that begins with the element `first`; one element alone is none.
fn longest<W: Clone>(
    slots: &[Slot],
    ordinary: &[Option<Ordinary>],
    first: usize,
    mut work: W,
    add: fn(&mut W, &[Step]) -> bool,
    finish: fn(W) -> Work,
) -> Option<Run> {
    let mut members = Vec::new();
    let mut exit = End { element: first as u32, port: 0 };
    while exit.port == 0 && members.len() < MOST_MEMBERS && !members.contains(&exit.element) {
        let at = exit.element as usize;
        let Some(Ordinary { steps, output }) = &ordinary[at] else { break };
        let Some(&Some(next)) = slots[at].outputs.get(*output) else { break };
        let mut more = work.clone();
        if !add(&mut more, steps) {
            break;
        }
        work = more;
        members.push(exit.element);
        exit = next;
    }
    (members.len() > 1).then(|| Run {
        members,
        work: finish(work),
        otherwise: None,
        exit,
        packets: 0,
        batches: 0,
        timed_packets: 0,
        timed_cycles: 0,
    })
}
