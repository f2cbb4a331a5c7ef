//! The anti-replay window (RFC 4303, section 3.4.3): which sequence numbers an association has accepted.
//!
//! Workers that receive packets of one association share its window without a lock. A word of the window holds 32 numbers in its
//! lower half, a bit each, and the number of that block of 32 in its upper half. To accept a sequence number is to compare and
//! exchange the word of its block:
//!
//! - the word is of this block: its bit is set, unless it is set already (replayed),
//! - the word is of an older block: the new block takes its place, with this bit alone,
//! - the word is of a newer block: the number is too old.
//!
//! So a block that was displaced never comes back, and a bit that was set stays set as long as its block does: no number is
//! accepted twice, whatever the workers' order. The words hold at least as many numbers as the window and a block more, so a block
//! is displaced only by one whose numbers are further ahead than the window is wide. How many numbers are accepted behind the
//! highest one is for `highest` to say, which workers raise once for a batch ([`Window::advance`]): a number that has become too old
//! within the batch is still accepted, once.
//!
//! The number of a block is cut to 32 bits. Blocks compare as distances, which is right while a word is not older than 2^36 numbers.

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers in a word.
const BLOCK: u64 = 32;

/// Widest window.
pub const MAX_WINDOW: u32 = 4096;

/// Why a sequence number is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It was accepted already.
    Replayed,
    /// It is behind the window.
    TooOld,
}

/// Which sequence numbers were accepted.
#[derive(Debug)]
pub struct Window {
    /// How many numbers up to the highest one may come in any order. 0: nothing is refused.
    width: u64,
    highest: AtomicU64,
    words: Box<[AtomicU64]>,
}

impl Window {
    /// Makes a window of so many numbers, at most [`MAX_WINDOW`]. Numbers up to `highest` count as accepted. 0 accepts whatever comes.
    pub fn new(width: u32, highest: u64) -> Self {
        let width = u64::from(width.min(MAX_WINDOW));
        let words = if width == 0 { 0 } else { (width.div_ceil(BLOCK) + 1).next_power_of_two() };
        let block = highest / BLOCK;
        // The numbers of the highest block up to the highest one, and all of those before.
        let word = |number: u64| {
            let behind = block.wrapping_sub(number) % words;
            let bits = if behind == 0 { mask_up_to(highest % BLOCK) } else { u64::from(u32::MAX) };
            AtomicU64::new(block.wrapping_sub(behind) << BLOCK | bits)
        };
        Self { width, highest: AtomicU64::new(highest), words: (0..words).map(word).collect() }
    }

    /// Returns the highest number that was accepted.
    pub fn highest(&self) -> u64 {
        self.highest.load(Ordering::Acquire)
    }

    /// Returns how many numbers up to the highest one may come in any order.
    pub fn width(&self) -> u32 {
        self.width as u32
    }

    /// Completes an extended sequence number of which the lower half was sent (RFC 4303, appendix A2.2).
    pub fn extend(&self, low: u32) -> u64 {
        let highest = self.highest.load(Ordering::Relaxed);
        let (top, top_low) = (highest >> 32, highest as u32);
        let width = self.width.max(1) as u32;
        let bottom = top_low.wrapping_sub(width - 1);
        let high = if top_low >= width - 1 {
            // The window lies within one half: a number below it is of the next.
            if low >= bottom { top } else { top + 1 }
        } else if low >= bottom {
            // The window begins in the half before.
            top.saturating_sub(1)
        } else {
            top
        };
        high << 32 | u64::from(low)
    }

    /// Looks whether a number would be accepted, before anything is known about the packet.
    ///
    /// # Errors
    ///
    /// Why it would not.
    #[inline]
    pub fn check(&self, number: u64) -> Result<(), Refused> {
        if self.width == 0 {
            return Ok(());
        }
        self.is_within(number)?;
        let word = self.words[self.place(number)].load(Ordering::Relaxed);
        next(word, number).map(drop)
    }

    /// Accepts the number of a packet whose ICV is right, once. [`Window::advance`] has to follow.
    ///
    /// # Errors
    ///
    /// Why it was not accepted; then the packet must be dropped.
    #[inline]
    pub fn accept(&self, number: u64) -> Result<(), Refused> {
        if self.width == 0 {
            return Ok(());
        }
        self.is_within(number)?;
        let word = &self.words[self.place(number)];
        let mut known = word.load(Ordering::Relaxed);
        loop {
            // Relaxed: the words say nothing about other memory.
            match word.compare_exchange_weak(
                known,
                next(known, number)?,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => known = now,
            }
        }
        Ok(())
    }

    /// Accepts numbers in a row, all at once; false, and none is accepted, if one of them would not be, or if they do not lie in one
    /// block ([`Window::row`]). [`Window::advance`] has to follow.
    #[inline]
    pub fn accept_row(&self, first: u64, count: u64) -> bool {
        if self.width == 0 {
            return true;
        }
        let fits = count != 0 && first % BLOCK + count <= BLOCK;
        if !fits || self.is_within(first).is_err() {
            return false;
        }
        let bits = (1_u64 << count).wrapping_sub(1) << (first % BLOCK);
        let word = &self.words[self.place(first)];
        let mut known = word.load(Ordering::Relaxed);
        loop {
            // Accepting the first one says what a newer block would become.
            let Ok(next) = next(known, first) else { return false };
            let is_same_block = known >> BLOCK == next >> BLOCK;
            if is_same_block && known & bits != 0 {
                return false;
            }
            match word.compare_exchange_weak(known, next | bits, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => known = now,
            }
        }
    }

    /// Returns how many numbers from this one on lie in its block.
    #[inline]
    pub fn row(first: u64) -> u64 {
        BLOCK - first % BLOCK
    }

    /// Moves the window up to the highest number of those that were accepted. It may be called once for many packets.
    #[inline]
    pub fn advance(&self, highest: u64) {
        if highest > self.highest.load(Ordering::Relaxed) {
            self.highest.fetch_max(highest, Ordering::AcqRel);
        }
    }

    #[inline]
    fn is_within(&self, number: u64) -> Result<(), Refused> {
        // RFC 4303, section 3.3.3: the first number is 1.
        let is_old = number == 0 || number.saturating_add(self.width) <= self.highest.load(Ordering::Relaxed);
        if is_old { Err(Refused::TooOld) } else { Ok(()) }
    }

    #[inline]
    fn place(&self, number: u64) -> usize {
        (number / BLOCK) as usize & (self.words.len() - 1)
    }
}

/// Bits of the numbers of a block up to this one.
fn mask_up_to(place: u64) -> u64 {
    (2 << place) - 1
}

/// What a word becomes when a number is accepted.
#[inline]
fn next(word: u64, number: u64) -> Result<u64, Refused> {
    let block = (number / BLOCK) as u32;
    let bit = 1 << (number % BLOCK);
    let ahead = block.wrapping_sub((word >> BLOCK) as u32) as i32;
    if ahead > 0 {
        Ok(u64::from(block) << BLOCK | bit)
    } else if ahead < 0 {
        Err(Refused::TooOld)
    } else if word & bit != 0 {
        Err(Refused::Replayed)
    } else {
        Ok(word | bit)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// All numbers, and the highest.
    struct Naive {
        width: u64,
        highest: u64,
        seen: HashSet<u64>,
    }

    impl Naive {
        fn accept(&mut self, number: u64) -> Result<(), Refused> {
            if number == 0 || number + self.width <= self.highest {
                return Err(Refused::TooOld);
            }
            if !self.seen.insert(number) {
                return Err(Refused::Replayed);
            }
            self.highest = self.highest.max(number);
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn it_accepts_what_a_set_of_all_numbers_does(
            width in prop_oneof![1_u32..200, Just(MAX_WINDOW)],
            start in prop_oneof![Just(0_u64), 0..200_u64, Just(u64::from(u32::MAX) - 50), any::<u64>().prop_map(|any| any >> 8)],
            steps in prop::collection::vec(prop_oneof![-5000_i64..5000, -70..70_i64, Just(1), 1_i64..100_000], 1..400),
        ) {
            let window = Window::new(width, start);
            let mut naive = Naive { width: u64::from(width), highest: start, seen: HashSet::new() };
            naive.seen.extend(start.saturating_sub(u64::from(width))..=start);
            let mut at = start;
            for step in steps {
                let number = at.saturating_add_signed(step);
                let checked = window.check(number);
                let accepted = window.accept(number);
                prop_assert_eq!(checked, accepted);
                let expected = naive.accept(number);
                prop_assert_eq!(accepted, expected);
                window.advance(if accepted.is_ok() { number } else { 0 });
                // The same again.
                let again = window.accept(number);
                prop_assert!(again.is_err());
                prop_assert_eq!(again == Err(Refused::TooOld), expected == Err(Refused::TooOld));
                prop_assert_eq!(window.highest(), naive.highest);
                at = number;
            }
        }

        #[test]
        fn a_row_is_accepted_where_each_of_its_numbers_is(
            width in 1_u32..300,
            start in 0..500_u64,
            seen in prop::collection::vec(0..700_u64, 0..40),
            rows in prop::collection::vec((0..800_u64, 1..40_u64), 1..40),
        ) {
            let [by_row, by_one] = [0, 1].map(|_| Window::new(width, start));
            let accept = |window: &Window, number| {
                let accepted = window.accept(number).is_ok();
                window.advance(if accepted { number } else { 0 });
            };
            for number in seen {
                accept(&by_row, number);
                accept(&by_one, number);
            }
            for (first, count) in rows {
                let numbers = first..first + count;
                let all = numbers.clone().all(|number| by_one.check(number).is_ok());
                let accepted = by_row.accept_row(first, count);
                prop_assert_eq!(accepted, all && count <= Window::row(first));
                if accepted {
                    numbers.for_each(|number| by_one.accept(number).unwrap());
                    by_row.advance(first + count - 1);
                    by_one.advance(first + count - 1);
                }
                for number in 0..900 {
                    prop_assert_eq!(by_row.check(number), by_one.check(number), "{}", number);
                }
            }
        }

        #[test]
        fn numbers_are_extended_to_the_nearest_that_may_come(
            width in 1_u32..=MAX_WINDOW,
            highest in prop_oneof![0..10_000_u64, (0..1_u64 << 40), Just((1_u64 << 32) - 5), Just(1_u64 << 32)],
            ahead in -4095_i64..100_000,
        ) {
            let Some(number) = highest.checked_add_signed(ahead) else { return Ok(()) };
            prop_assume!(number + u64::from(width) > highest);
            prop_assert_eq!(Window::new(width, highest).extend(number as u32), number);
        }
    }

    #[test]
    fn a_window_of_none_accepts_all() {
        let window = Window::new(0, 7);
        assert!([0, 7, 7, 1].iter().all(|number| window.accept(*number).is_ok()));
    }

    #[test]
    fn each_number_is_accepted_once_by_all_threads() {
        let window = Window::new(1024, 0);
        let accepted: usize = std::thread::scope(|scope| {
            let accepts = |number: &u64| {
                let accepted = window.accept(*number).is_ok();
                window.advance(if accepted { *number } else { 0 });
                accepted
            };
            let count = move || (1..50_000).filter(accepts).count();
            let threads = [scope.spawn(count), scope.spawn(count)];
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert!(accepted <= 49_999, "{accepted}");
        assert_eq!(window.highest(), 49_999);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;

    use super::*;

    #[test]
    fn loom_a_number_is_accepted_once() {
        loom::model(|| {
            let window = Arc::new(Window::new(32, 0));
            let other = window.clone();
            let thread = loom::thread::spawn(move || [other.accept(5).is_ok(), other.accept_row(69, 2)]);
            let mine = [window.accept(70).is_ok(), window.accept(5).is_ok()];
            let theirs = thread.join().unwrap();
            assert!(!(mine[0] && theirs[1]), "70 twice");
            assert!(!(mine[1] && theirs[0]), "5 twice");
            assert!(mine[0] || theirs[1]);
        });
    }
}
