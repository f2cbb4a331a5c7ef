//! What a trial sends, and what the sink must know of it to judge what comes back.

use std::ops::Range;

use anyhow::Result;
use packet::Packet;

use super::signature::Mark;

/// The packets of a trial by their numbers, counted from 0. A packet that the port did not take is asked for again under its
/// number, so those that were not sent yet can be written more than once.
pub(crate) trait Source {
    /// By which its packets are known.
    fn mark(&self) -> Mark;

    /// Flows of those that are judged.
    fn flows(&self) -> usize;

    /// How many there are; `None` without end.
    fn count(&self) -> Option<u64>;

    /// Size of the largest, FCS counted.
    fn largest(&self) -> u16;

    /// Makes these packets, of which the first is the first that was not sent yet, ready for the methods below.
    ///
    /// # Errors
    ///
    /// They cannot be read.
    fn prepare(&mut self, numbers: Range<u64>) -> Result<()>;

    /// When it leaves, in nanoseconds since the start; `None` for the highest rate.
    fn due_ns(&self, number: u64) -> Option<u64>;

    /// Its size, FCS counted.
    fn size(&self, number: u64) -> u16;

    /// Writes it, sent at `now_ns`. False when it does not fit into the frame.
    fn write(&self, number: u64, now_ns: u64, packet: &mut Packet) -> bool;

    /// Notes that these, the first that were not sent before, were sent.
    fn note_sent(&mut self, numbers: Range<u64>);

    /// How many of the first `count`, which were sent, are of this flow.
    fn sent_of_flow(&self, flow: u32, count: u64) -> u64;

    /// How many of the first `count`, which were sent, are judged.
    fn judged(&self, count: u64) -> u64;
}
