//! Reads frames from a file of a TAP device that has merged frames whole, each with a virtio header before it
//! ([`tap::Kind::MergedFrames`](crate::tap::Kind)).

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;

use packet::division::{divide, divide_frame};
use packet::pool::{LARGE_BYTES, LARGE_HEADROOM};
use packet::{Batch, Packet, Pool};
use rustix::io::Errno;

use crate::merged::{MOST_BYTES, MOST_WHOLE, VIRTIO_BYTES, Virtio};
use crate::{Event, QueueStats};

/// A reader. A frame that fits a usual frame of the pool is read into one. What is longer goes on in a large frame, or in `scratch`
/// where none is free, to be divided at once.
#[derive(Debug, Default)]
pub(crate) struct MergedReader {
    /// Pieces of a merged frame that were not taken yet.
    pending: VecDeque<Packet>,
    scratch: Vec<u8>,
    /// Whether the device was gone at the last try: somebody has deleted it.
    pub(crate) is_gone: bool,
}

impl MergedReader {
    /// Receives up to `max` packets, which `accept` gets each. Returns how many.
    pub(crate) fn receive(
        &mut self,
        file: &OwnedFd,
        pool: &mut Pool,
        batch: &mut Batch,
        max: usize,
        stats: &mut QueueStats,
        mut accept: impl FnMut(&mut Packet),
    ) -> usize {
        let first = batch.len();
        let wanted = max.min(batch.room());
        self.give_pending(batch, wanted, stats, &mut accept);
        let (mut small, mut large) = (None, None);
        while self.pending.is_empty() && batch.len() - first < wanted {
            let Some(packet) = small.take().or_else(|| pool.allocate()) else { break };
            large = large.or_else(|| pool.allocate_large());
            match self.read(file, pool, packet, &mut large, stats) {
                Ok(Some(mut packet)) => {
                    accept(&mut packet);
                    count(&packet, stats);
                    batch.push(packet);
                }
                Ok(None) => {}
                Err(packet) => {
                    small = Some(packet);
                    break;
                }
            }
        }
        self.give_pending(batch, wanted - (batch.len() - first), stats, &mut accept);
        small.into_iter().chain(large).for_each(|packet| pool.free_packet(packet));
        batch.len() - first
    }

    /// Reads a frame. Returns it, if it goes on in one; its pieces else are in `pending`. If there is none, gives the packet back.
    fn read(
        &mut self,
        file: &OwnedFd,
        pool: &mut Pool,
        mut packet: Packet,
        large: &mut Option<Packet>,
        stats: &mut QueueStats,
    ) -> Result<Option<Packet>, Packet> {
        let room = packet.len() + packet.tailroom();
        let mut header = [0; VIRTIO_BYTES];
        let Some(start) = packet.reset(room) else { return Err(packet) };
        let buffer = match large {
            Some(large) => large.reset_with_headroom(LARGE_HEADROOM, LARGE_BYTES).unwrap_or_default(),
            None => {
                self.scratch.resize(MOST_BYTES, 0);
                &mut self.scratch[..]
            }
        };
        let end = &mut buffer[room..];
        let most = VIRTIO_BYTES + room + end.len();
        let parts = &mut [IoSliceMut::new(&mut header), IoSliceMut::new(start), IoSliceMut::new(end)];
        let length = match rustix::io::readv(file, parts) {
            // The kernel cuts what is longer without a word, so a full buffer may hold a cut frame.
            Ok(length) if length < most => length.saturating_sub(VIRTIO_BYTES),
            Ok(_) => {
                stats.add(Event::TooLong, 1);
                pool.free_packet(packet);
                return Ok(None);
            }
            // Nothing there; or the interface is down, which says so in the same way.
            Err(error) => {
                self.is_gone = error == Errno::BADFD;
                return Err(packet);
            }
        };
        let virtio = Virtio(header);
        let outcome = if length <= room {
            packet.truncate(length);
            if virtio.is_merged() {
                virtio.mark(&mut packet, 0).and_then(|()| self.whole_or_pieces(pool, packet, room, stats))
            } else {
                virtio.complete(packet.data_mut());
                Ok(Some(packet))
            }
        } else {
            buffer[..room].copy_from_slice(packet.data());
            pool.free_packet(packet);
            match large.take() {
                _ if !virtio.is_merged() => Err(Event::TooLong),
                Some(mut packet) => {
                    packet.truncate(length);
                    virtio.mark(&mut packet, 0).and_then(|()| self.whole_or_pieces(pool, packet, room, stats))
                }
                None => self.divide_scratch(pool, length, virtio, stats),
            }
        };
        Ok(outcome.unwrap_or_else(|reason| {
            stats.add(reason, 1);
            None
        }))
    }

    /// Returns a merged frame, whose pieces are at most `room` bytes long; if it has many of them, they are in `pending`.
    fn whole_or_pieces(
        &mut self,
        pool: &mut Pool,
        packet: Packet,
        room: usize,
        stats: &mut QueueStats,
    ) -> Result<Option<Packet>, Event> {
        if packet.piece_len() > room {
            stats.add(Event::TooLong, packet.pieces());
            pool.free_packet(packet);
            return Ok(None);
        }
        if packet.pieces() <= MOST_WHOLE {
            return Ok(Some(packet));
        }
        let missing = divide(pool, &packet, |piece| self.pending.push_back(piece));
        pool.free_packet(packet);
        stats.add(Event::NoFrame, missing.map_err(|_| Event::TooLong)?);
        Ok(None)
    }

    /// Divides the merged frame in `scratch`.
    fn divide_scratch(
        &mut self,
        pool: &mut Pool,
        length: usize,
        virtio: Virtio,
        stats: &mut QueueStats,
    ) -> Result<Option<Packet>, Event> {
        let Self { scratch, pending, .. } = self;
        let frame = &scratch[..length];
        let (headers, piece_bytes) = virtio.headers(frame, 0)?;
        let missing =
            divide_frame(pool, frame, &headers, piece_bytes.into(), |piece| pending.push_back(piece));
        stats.add(Event::NoFrame, missing.map_err(|_| Event::TooLong)?);
        Ok(None)
    }

    /// Moves pieces that wait into a batch, up to `max`.
    pub(crate) fn give_pending(
        &mut self,
        batch: &mut Batch,
        max: usize,
        stats: &mut QueueStats,
        accept: &mut impl FnMut(&mut Packet),
    ) {
        let count_taken = max.min(batch.room()).min(self.pending.len());
        for mut piece in self.pending.drain(..count_taken) {
            accept(&mut piece);
            count(&piece, stats);
            batch.push(piece);
        }
    }
}

/// Counts a packet as what it is on a link.
fn count(packet: &Packet, stats: &mut QueueStats) {
    stats.packets += packet.pieces();
    stats.bytes += packet.bytes_in_pieces();
}
