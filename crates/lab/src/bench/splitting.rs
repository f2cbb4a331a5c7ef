//! Three ways to split a batch when some of its packets go another way (MoonRoute, section 4.3), around the same steps.
//!
//! A batch comes in, the first step diverts some packets, two more steps work on the others, which are sent; the diverted ones are handled by
//! themselves. *Arrays*: the diverted packets move to a batch of their own and the others close up, as in this router's graph. *Masks*: all
//! packets stay where they are, and each step works on those whose bit is set. *Drop-out*: so too, and the places of the
//! diverted ones are gathered in a list.

use std::hint::black_box;

use anyhow::{Context, Result};
use packet::{Batch, MAX_BATCH, Mask, Packet, Pool, PoolOptions, cycles};
use ports::{MemoryLoop, Port, RxQueue};

use super::{frames, median, routes};

/// A way to split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Arrays,
    Masks,
    DropOut,
}

impl Way {
    pub(crate) const ALL: [Way; 3] = [Way::Arrays, Way::Masks, Way::DropOut];

    /// Returns its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Way::Arrays => "arrays",
            Way::Masks => "bit masks",
            Way::DropOut => "drop-out",
        }
    }
}

/// Where a packet's mark is: the last byte of its destination.
const MARK: usize = 33;

/// Frames that come again and again, more than a batch has, and a number that batches do not divide.
const FRAMES: usize = 1000;

/// Batches out of memory, and what becomes of their packets.
pub(crate) struct Splitter {
    queue: Box<dyn RxQueue>,
    pool: Pool,
    burst: usize,
}

/// What was done with packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    sent: u64,
    diverted: u64,
    /// Sums of numbers of these packets.
    sent_sum: u64,
    diverted_sum: u64,
}

impl Seen {
    fn send(&mut self, packet: &mut Packet) {
        self.sent += 1;
        self.sent_sum += number(packet);
    }

    fn divert(&mut self, packet: &mut Packet) {
        self.diverted += 1;
        self.diverted_sum += number(packet);
    }
}

fn number(packet: &Packet) -> u64 {
    packet.data().get(38..42).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes).into()
}

/// The first step: says whether a packet goes on.
fn goes_on(packet: &Packet, diverted: u8) -> bool {
    packet.data().get(MARK).is_some_and(|&mark| mark >= diverted)
}

/// The second step: takes one off the time to live.
fn age(packet: &mut Packet) {
    if let Some(header) = packet.data_mut().get_mut(22..26) {
        header[0] = header[0].wrapping_sub(1);
        let sum = u16::from_be_bytes([header[2], header[3]]);
        let (sum, carry) = sum.overflowing_add(0x100);
        header[2..4].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
    }
}

/// The third step: gives it another Ethernet header.
fn address(packet: &mut Packet) {
    if let Some(header) = packet.data_mut().get_mut(..12) {
        header.copy_from_slice(&[2, 0, 0, 0, 1, 2, 2, 0, 0, 0, 1, 1]);
    }
}

impl Splitter {
    /// Makes batches of so many packets, at most as many as a batch has room for.
    ///
    /// # Errors
    /// Memory for the packets cannot be allocated.
    pub(crate) fn new(burst: usize) -> Result<Splitter> {
        let mut frames = frames::templates(&routes::default_route(), FRAMES, 60);
        let mut random = packet::random::SplitMix64::new(1);
        for (number, frame) in (0_u32..).zip(&mut frames) {
            frame[MARK] = random.below(100) as u8;
            frame[38..42].copy_from_slice(&number.to_be_bytes());
        }
        let queue = MemoryLoop::new(frames).take_rx(0)?;
        let pool = Pool::new(PoolOptions { frames: 1024, ..PoolOptions::default() });
        Ok(Splitter { queue, pool: pool.context("no memory for frames")?, burst: burst.min(MAX_BATCH) })
    }

    /// Splits so many batches, of whose packets so many of a hundred are diverted.
    /// Returns TSC cycles a packet of the middle one's steps, receiving and freeing left out.
    pub(crate) fn run(&mut self, way: Way, percent: u8, batches: usize) -> f64 {
        let mut seen = Seen::default();
        let took = (0..batches).map(|_| self.split(way, percent, &mut seen) as f64).collect();
        black_box(seen);
        median(took) / self.burst as f64
    }

    /// Splits one batch; returns TSC cycles.
    fn split(&mut self, way: Way, percent: u8, seen: &mut Seen) -> u64 {
        let (mut batch, mut others) = (Batch::new(), Batch::new());
        self.queue.receive(&mut self.pool, &mut batch, self.burst);
        let begin = cycles::now();
        match way {
            Way::Arrays => arrays(&mut batch, &mut others, percent, seen),
            Way::Masks => masks(&mut batch, percent, seen),
            Way::DropOut => drop_out(&mut batch, percent, seen),
        }
        let took = cycles::now() - begin;
        self.pool.free(&mut batch);
        self.pool.free(&mut others);
        took
    }
}

#[inline(never)]
fn arrays(batch: &mut Batch, others: &mut Batch, percent: u8, seen: &mut Seen) {
    batch.extract(|packet| goes_on(packet, percent), |packet| others.push(packet));
    batch.iter_mut().for_each(age);
    batch.iter_mut().for_each(address);
    batch.iter_mut().for_each(|packet| seen.send(packet));
    others.iter_mut().for_each(|packet| seen.divert(packet));
}

#[inline(never)]
fn masks(batch: &mut Batch, percent: u8, seen: &mut Seen) {
    let packets = batch.packets_mut();
    let all = Mask::first(packets.len());
    let here = all.retain(packets, |_, packet| goes_on(packet, percent));
    steps(packets, here, seen);
    all.and_not(here).iter().for_each(|place| seen.divert(&mut packets[place]));
}

#[inline(never)]
fn drop_out(batch: &mut Batch, percent: u8, seen: &mut Seen) {
    let packets = batch.packets_mut();
    let (mut places, mut count) = ([0_u8; MAX_BATCH], 0);
    let here = Mask::first(packets.len()).retain(packets, |place, packet| {
        let goes_on = goes_on(packet, percent);
        if !goes_on {
            places[count] = place as u8;
            count += 1;
        }
        goes_on
    });
    steps(packets, here, seen);
    places[..count].iter().for_each(|&place| seen.divert(&mut packets[usize::from(place)]));
}

/// The steps of packets that stay where they are.
#[inline(always)]
fn steps(packets: &mut [Packet], here: Mask, seen: &mut Seen) {
    here.iter().for_each(|place| age(&mut packets[place]));
    here.iter().for_each(|place| address(&mut packets[place]));
    here.iter().for_each(|place| seen.send(&mut packets[place]));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn each_way_delivers_every_packet_once_and_to_its_side() {
        for burst in [1, 7, 64, MAX_BATCH] {
            for percent in [0, 1, 30, 100] {
                let seen = Way::ALL.map(|way| {
                    let (mut splitter, mut seen) = (Splitter::new(burst).unwrap(), Seen::default());
                    // All frames, and some of them again.
                    (0..FRAMES / burst + 3).for_each(|_| {
                        splitter.split(way, percent, &mut seen);
                    });
                    seen
                });
                let batches = FRAMES / burst + 3;
                let (mut splitter, mut expected) = (Splitter::new(burst).unwrap(), Seen::default());
                for _ in 0..batches {
                    let mut batch = Batch::new();
                    splitter.queue.receive(&mut splitter.pool, &mut batch, burst);
                    for packet in batch.iter_mut() {
                        if packet.data()[MARK] >= percent {
                            expected.send(packet)
                        } else {
                            expected.divert(packet)
                        }
                    }
                    splitter.pool.free(&mut batch);
                }
                assert_eq!(seen, [expected; 3], "{burst} {percent}");
                assert_eq!(expected.sent + expected.diverted, (batches * burst) as u64);
                assert!(percent != 30 || expected.sent > 0 && expected.diverted > 0);
            }
        }
    }

    #[test]
    fn packets_that_go_on_are_sent_with_right_checksums() {
        for way in Way::ALL {
            let mut splitter = Splitter::new(64).unwrap();
            let (mut batch, mut others, mut seen) = (Batch::new(), Batch::new(), Seen::default());
            splitter.queue.receive(&mut splitter.pool, &mut batch, 64);
            // The mark made the header's sum wrong by as much as it should stay wrong.
            let error = |packet: &Packet| {
                let header = &packet.data()[14..34];
                packet::checksum::ipv4_header_compute(&{
                    let mut header = header.to_vec();
                    header[10..12].fill(0);
                    header
                })
                .wrapping_sub(u16::from_be_bytes([header[10], header[11]]))
            };
            let before: Vec<u16> = batch.iter().map(error).collect();
            match way {
                Way::Arrays => arrays(&mut batch, &mut others, 0, &mut seen),
                Way::Masks => masks(&mut batch, 0, &mut seen),
                Way::DropOut => drop_out(&mut batch, 0, &mut seen),
            }
            for (packet, before) in batch.iter().zip(before) {
                assert_eq!(packet.data()[22], 63);
                assert_eq!(error(packet), before, "{way:?}");
                assert_eq!(packet.data()[..6], [2, 0, 0, 0, 1, 2]);
            }
        }
    }
}
