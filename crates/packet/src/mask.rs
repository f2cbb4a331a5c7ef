//! A mask: some of the packets of a batch, a bit for each.

use crate::batch::MAX_BATCH;
use crate::frame::Packet;

const WORDS: usize = MAX_BATCH / 64;

/// Some of the packets of a batch, by their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mask([u64; WORDS]);

impl Mask {
    /// No packet.
    pub const NONE: Self = Self([0; WORDS]);

    /// A mask of these bits, 64 places each.
    pub fn from_words(words: [u64; WORDS]) -> Self {
        Self(words)
    }

    /// The bits, 64 places each.
    pub fn words(&self) -> [u64; WORDS] {
        self.0
    }

    /// The first `count` places.
    pub fn first(count: usize) -> Self {
        Self(std::array::from_fn(|word| match count.saturating_sub(64 * word) {
            0 => 0,
            bits @ 1..64 => (1 << bits) - 1,
            _ => u64::MAX,
        }))
    }

    /// Adds a place; one beyond those of a batch is left out.
    #[inline(always)]
    pub fn insert(&mut self, place: usize) {
        if let Some(word) = self.0.get_mut(place / 64) {
            *word |= 1 << (place % 64);
        }
    }

    /// Whether a place is in it.
    #[inline(always)]
    pub fn contains(&self, place: usize) -> bool {
        self.0.get(place / 64).is_some_and(|word| word >> (place % 64) & 1 != 0)
    }

    /// How many places are in it.
    #[inline(always)]
    pub fn count(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// The places in either.
    #[inline(always)]
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    /// The places in both.
    #[inline(always)]
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    /// The places that are not in the other.
    #[inline(always)]
    #[must_use]
    pub fn and_not(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & !other.0[word]))
    }

    /// Calls `keep` with each of the packets, in order. Returns those for which it holds.
    #[inline(always)]
    pub fn retain(self, packets: &mut [Packet], mut keep: impl FnMut(usize, &mut Packet) -> bool) -> Self {
        let mut kept = Self::NONE;
        for ((word, kept), (chunk, packets)) in
            self.0.into_iter().zip(&mut kept.0).zip(packets.chunks_mut(64).enumerate())
        {
            let mut bits = word;
            while bits != 0 {
                let place = bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let Some(packet) = packets.get_mut(place) else { break };
                *kept |= u64::from(keep(64 * chunk + place, packet)) << place;
            }
        }
        kept
    }

    /// The places, in order.
    #[inline(always)]
    pub fn iter(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().enumerate().flat_map(|(word, mut bits)| {
            std::iter::from_fn(move || {
                let place = 64 * word + bits.trailing_zeros() as usize;
                let is_left = bits != 0;
                bits &= bits.wrapping_sub(1);
                is_left.then_some(place)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set(places in prop::collection::btree_set(0..2 * MAX_BATCH, 0..100), first in 0..300_usize) {
            let mut mask = Mask::NONE;
            places.iter().for_each(|&place| mask.insert(place));
            let within: BTreeSet<usize> = places.iter().copied().filter(|&place| place < MAX_BATCH).collect();
            prop_assert!(mask.iter().eq(within.iter().copied()));
            prop_assert!((0..2 * MAX_BATCH).all(|place| mask.contains(place) == within.contains(&place)));
            prop_assert_eq!(Mask::from_words(mask.words()), mask);
            prop_assert!(Mask::first(first).iter().eq(0..first.min(MAX_BATCH)));
            prop_assert_eq!(mask.count() as usize, within.len());
            let either = within.iter().copied().chain(0..first.min(MAX_BATCH)).collect::<BTreeSet<_>>();
            prop_assert!(mask.or(Mask::first(first)).iter().eq(either));
            let both = within.iter().copied().filter(|&place| place < first);
            prop_assert!(mask.and(Mask::first(first)).iter().eq(both));
            let rest = within.iter().copied().filter(|&place| place >= first);
            prop_assert!(mask.and_not(Mask::first(first)).iter().eq(rest));
        }
    }
}
