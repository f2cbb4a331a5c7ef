//! The loops of fused runs ([`graph::runs`]) that routers need, and the steps that elements declare.
//!
//! Most packets are plain: addressed to us, IPv4 without options, checksum right, time to live left (or IPv6 without extension
//! headers and hops left). What an element does to such a packet is a list of [`Step`]s.
//!
//! **Two shapes.** Steps do not run one by one: that would cost a jump a step and packet. They are merged
//! into one of two loops, `arrival` for what happens before a lookup and `departure` for what happens behind
//! it. A step that fits neither, or that comes in another order, ends the run. Where a lookup stands between an arrival and
//! departures that end at ports, a packet that is plain all the way takes the `crossing` over all of them.

mod arrival;
mod crossing;
mod departure;
mod sources;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

use graph::runs::{Crossing, Last, Ordinary, Shape, Sieve, Work};
use packet::PacketType;

use arrival::Arrival;
pub(crate) use arrival::{handle_ip, handle_ipv6};
pub use crossing::{Destinations, Header, Route, Watch};
pub use departure::Departure;
pub use sources::BadSources;

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
    /// The packet is not a broadcast or multicast of the link layer.
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
    /// The element does the rest itself, by [`Element::finish`](graph::Element::finish) and [`Departure::finish`]. This ends a run.
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

/// Declares these steps, and on by output 0.
pub fn ordinary(steps: impl Into<Vec<Step>>) -> Option<Ordinary> {
    ordinary_to(0, steps)
}

/// Declares these steps, and on by `output`.
pub fn ordinary_to(output: usize, steps: impl Into<Vec<Step>>) -> Option<Ordinary> {
    let steps: Vec<Step> = steps.into();
    Some(Ordinary { steps: Rc::new(steps), shapes: SHAPES, output })
}

const SHAPES: &[Shape] = &[|| Box::new(Arrival::default()), || Box::new(Departure::default())];

/// Adds an element's steps to a loop; `None` where they do not fit.
fn merged<W: Clone>(work: &W, steps: &dyn Any, add: fn(&mut W, &[Step]) -> bool) -> Option<W> {
    let mut more = work.clone();
    add(&mut more, steps.downcast_ref::<Vec<Step>>()?).then_some(more)
}

impl Work for Arrival {
    fn with(&self, steps: &dyn Any) -> Option<Box<dyn Work>> {
        merged(self, steps, Self::add).map(|more| Box::new(more) as Box<dyn Work>)
    }

    fn apply(&mut self, _last: Last<'_>, sieve: &mut Sieve<'_>) {
        self.sift(sieve);
    }

    fn crossing(&self, element: usize) -> Option<Box<dyn Crossing>> {
        self.crossing(element)
    }
}

impl Work for Departure {
    fn with(&self, steps: &dyn Any) -> Option<Box<dyn Work>> {
        merged(self, steps, Self::add).map(|more| Box::new(more) as Box<dyn Work>)
    }

    fn apply(&mut self, last: Last<'_>, sieve: &mut Sieve<'_>) {
        if self.finishes { last.finish(self, sieve) } else { self.sift_and(sieve, |_| true) }
    }
}
