//! One packet of so many, drawn at random.
//!
//! Before a packet is drawn, so many others pass: a number from 1 to `2 * rate - 1`, each as likely, so that it is `rate` on average
//! and no pattern of the traffic follows the draws. A batch of which none is drawn costs a subtraction, beside the count of its packets.

use std::hash::{BuildHasher, RandomState};

use packet::random::SplitMix64;

/// Draws packets at several places, each for itself.
pub(crate) struct Sampler {
    rate: u64,
    random: SplitMix64,
    turns: Box<[Turn]>,
}

/// How far a place is.
#[derive(Clone, Copy)]
struct Turn {
    /// The packet that is drawn next, counted from 1.
    left: u64,
    /// Packets that passed since the last one that was taken, up to the next one that is drawn.
    due: u64,
}

impl Sampler {
    /// Draws one packet of `rate` at each of so many places.
    pub(crate) fn new(rate: u32, places: usize) -> Self {
        // The standard library keys its hash maps by the operating system's random numbers.
        Self::with_seed(rate, places, RandomState::new().hash_one(places))
    }

    fn with_seed(rate: u32, places: usize, seed: u64) -> Self {
        let mut sampler = Self {
            rate: u64::from(rate.max(1)),
            random: SplitMix64::new(seed),
            turns: vec![Turn { left: 0, due: 0 }; places].into(),
        };
        (0..places).for_each(|place| sampler.draw(place));
        sampler
    }

    fn draw(&mut self, place: usize) {
        let next = 1 + self.random.below(2 * self.rate - 1);
        self.turns[place].left = next;
        self.turns[place].due += next;
    }

    /// Returns which of the next `count` packets is drawn first, and how many packets it stands for: all since the last one that was
    /// [taken](Sampler::taken). Ask again for those behind it. A place that is not known has none drawn.
    #[inline]
    pub(crate) fn pick(&mut self, place: usize, count: usize) -> Option<(usize, u64)> {
        let turn = self.turns.get_mut(place)?;
        if turn.left > count as u64 {
            turn.left -= count as u64;
            return None;
        }
        let (index, due) = (turn.left as usize - 1, turn.due);
        self.draw(place);
        Some((index, due))
    }

    /// Says that the packet that was drawn last, which stands for `due` packets, was taken. Else the next one stands for them too.
    pub(crate) fn taken(&mut self, place: usize, due: u64) {
        self.turns[place].due -= due;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of drawn packets of `count`, which come in batches of different lengths.
    fn drawn(sampler: &mut Sampler, count: usize) -> Vec<(usize, u64)> {
        let (mut all, mut begin) = (Vec::new(), 0);
        for length in (1..=64).cycle() {
            let length = length.min(count - begin);
            let mut at = 0;
            while let Some((index, due)) = sampler.pick(0, length - at) {
                all.push((begin + at + index, due));
                sampler.taken(0, due);
                at += index + 1;
            }
            begin += length;
            if begin == count {
                return all;
            }
        }
        all
    }

    #[test]
    fn one_of_so_many_is_drawn_whatever_the_batches_and_stands_for_those_before() {
        let mut sampler = Sampler::with_seed(10, 1, 7);
        let all = drawn(&mut sampler, 100_000);
        // 10,000 draws whose distances deviate by 5.5 each: 10,000 packets give or take 55.
        assert!((9_700..10_300).contains(&all.len()), "{}", all.len());
        assert_eq!(all[0].0 as u64 + 1, all[0].1);
        for pair in all.windows(2) {
            assert_eq!((pair[1].0 - pair[0].0) as u64, pair[1].1);
            assert!((1..=19).contains(&pair[1].1));
        }
        let sum: u64 = all.iter().map(|(_, due)| due).sum();
        assert_eq!(sum, all.last().unwrap().0 as u64 + 1);
    }

    #[test]
    fn a_rate_of_one_takes_all_and_what_is_not_taken_is_stood_for_by_the_next() {
        let mut sampler = Sampler::with_seed(1, 2, 7);
        assert_eq!((sampler.pick(0, 3), sampler.pick(0, 2)), (Some((0, 1)), Some((0, 2))));
        sampler.taken(0, 2);
        assert_eq!((sampler.pick(0, 1), sampler.pick(0, 0)), (Some((0, 1)), None));
        assert_eq!((sampler.pick(1, 1), sampler.pick(2, 1)), (Some((0, 1)), None));
    }
}
