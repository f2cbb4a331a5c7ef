//! Which chunks the kernel has: lent to receive into, or in transmission.
//!
//! A bit for each cache line of the frames' memory, set at the line where a chunk starts. So an address that the kernel
//! gives back is checked before it becomes a packet, and when a socket dies all its frames come home.

use std::ptr::NonNull;

use packet::{Memory, Packet, Pool};

/// Bytes that a bit stands for: chunks start at multiples of it.
pub(super) const LINE: usize = 64;

/// A set of chunks within one memory.
#[derive(Debug)]
pub(super) struct Chunks {
    memory: Memory,
    bits: Vec<u64>,
    count: usize,
}

impl Chunks {
    /// No chunk of this memory.
    pub(super) fn new(memory: Memory) -> Self {
        let bits = vec![0; memory.bytes().div_ceil(LINE * 64)];
        Self { memory, bits, count: 0 }
    }

    /// No chunk of the same memory, without room for any.
    pub(super) fn none(other: &Self) -> Self {
        Self { memory: other.memory.clone(), bits: Vec::new(), count: 0 }
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The place of an address in the memory, in bytes from its start; `None` when it lies elsewhere.
    #[inline(always)]
    pub(super) fn offset(&self, chunk: NonNull<u8>) -> Option<u64> {
        let offset = (chunk.as_ptr() as usize).wrapping_sub(self.memory.start().as_ptr() as usize);
        (offset < self.memory.bytes()).then_some(offset as u64)
    }

    /// Adds the chunk that starts at `offset`, which must come from [`Chunks::offset`].
    #[inline(always)]
    pub(super) fn insert(&mut self, offset: u64) {
        let line = offset as usize / LINE;
        debug_assert!(self.bits[line / 64] & 1 << (line % 64) == 0, "a chunk has one user");
        self.bits[line / 64] |= 1 << (line % 64);
        self.count += 1;
    }

    /// Takes out the chunk that starts at `offset`; `None` when it is not in the set.
    #[inline(always)]
    pub(super) fn remove(&mut self, offset: u64) -> Option<NonNull<u8>> {
        let line = usize::try_from(offset).ok()? / LINE;
        let word = self.bits.get_mut(line / 64)?;
        let bit = 1 << (line % 64);
        if *word & bit == 0 || !offset.is_multiple_of(LINE as u64) {
            return None;
        }
        *word &= !bit;
        self.count -= 1;
        #[allow(unsafe_code, reason = "pointer into the memory")]
        // SAFETY: only offsets within the memory are ever inserted.
        Some(unsafe { self.memory.start().add(offset as usize) })
    }

    /// Empties the set.
    fn drain(&mut self, mut take: impl FnMut(NonNull<u8>)) {
        for word in 0..self.bits.len() {
            while self.bits[word] != 0 {
                let line = word * 64 + self.bits[word].trailing_zeros() as usize;
                let chunk = self.remove((line * LINE) as u64).expect("the bit is set");
                take(chunk);
            }
        }
    }

    /// Returns all chunks to the pools that they came from.
    ///
    /// # Safety
    /// Each was lent by a pool or given away by [`Packet::into_raw`], and nobody uses it any more.
    #[allow(unsafe_code, reason = "chunks become packets")]
    pub(super) unsafe fn free_all(&mut self, mut pool: Option<&mut Pool>) {
        self.drain(|chunk| {
            // SAFETY: given away or lent (the caller's word), so its metadata name its owner, which is all that a
            // packet on its way home needs; the kernel never writes to metadata. The set names it once.
            let packet = unsafe { Packet::from_raw(chunk) };
            match &mut pool {
                Some(pool) => pool.free_packet(packet),
                None => drop(packet),
            }
        });
    }
}

/// Chunks that the kernel may use as long as a socket is open; they go home when the last socket that holds them is
/// closed.
#[derive(Debug)]
pub(super) struct Orphans(pub(super) Chunks);

impl Drop for Orphans {
    fn drop(&mut self) {
        #[allow(unsafe_code, reason = "frames come home")]
        // SAFETY: every socket that the chunks were given to is closed (a socket's descriptor is dropped before its
        // orphans), and their queues are gone: nobody else uses the chunks, and all were lent or given away.
        unsafe {
            self.0.free_all(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pool;

    #[test]
    fn only_what_is_in_the_set_comes_out() {
        let mut pool = pool(8);
        let mut chunks = Chunks::new(pool.memory().clone());
        let mut offsets = Vec::new();
        pool.lend(8, |chunk| offsets.push(chunks.offset(chunk).unwrap()));
        offsets.iter().for_each(|&offset| chunks.insert(offset));
        assert_eq!(chunks.count(), 8);
        assert!(chunks.remove(offsets[0] + 1).is_none());
        assert!(chunks.remove(offsets[0] + 64).is_none());
        assert!(chunks.remove(u64::MAX).is_none());
        let chunk = chunks.remove(offsets[0]).unwrap();
        assert!(chunks.remove(offsets[0]).is_none());
        #[allow(unsafe_code, reason = "as a driver would")]
        // SAFETY: lent above, back once.
        let packet = unsafe { pool.received(chunk, 384, 60) }.unwrap();
        drop(packet);
        #[allow(unsafe_code, reason = "as a driver would")]
        // SAFETY: nobody else has them.
        unsafe {
            chunks.free_all(None);
        }
        assert_eq!(chunks.count(), 0);
        pool.refill();
        assert_eq!(pool.stats().free, 8);
    }
}
