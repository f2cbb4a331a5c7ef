//! What the sequence numbers of a flow tell: which packets came, which twice, which too late.
//!
//! # Reordering
//!
//! RFC 4737, section 3.3: a packet is *reordered* if its number is smaller than the next expected one, which is one more
//! than the largest that came so far. Duplicates are not packets in this sense (section 3.4).
//!
//! RouteBricks (SOSP 2009, section 6.2) counts *reordered sequences* instead: 1 4 2 3 5 is one, however many packets
//! were late one after the other. So a run of late packets of a flow that no packet in order interrupts counts one.
//!
//! # Memory
//!
//! A flow has a ring of bits for its latest numbers, and a packet behind it cannot be told from its duplicate: it counts
//! as late, and in a counter of its own. The ring is as long as 8 MiB for all flows allow, but 1,024 at least, so that a
//! million flows take 144 MB.

const SMALLEST_WINDOW: u64 = 1 << 10;
const LARGEST_WINDOW: u64 = 1 << 20;
const BITS_OF_ALL_FLOWS: u64 = 1 << 26;

/// What a sequence number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    InOrder,
    /// After a packet that was sent later.
    Late {
        /// Whether the packet before it, of the same flow, was in order.
        starts_run: bool,
    },
    /// Late, and so far behind that it may be a duplicate.
    BehindWindow {
        /// As above.
        starts_run: bool,
    },
    Duplicate,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// One more than the largest number so far; 0 before the first.
    next_expected: u64,
    in_late_run: bool,
}

/// The sequence numbers of all flows.
#[derive(Clone, Debug)]
pub(crate) struct Sequences {
    flows: Vec<Flow>,
    /// One ring of `words` words a flow; the bit of number `n` is `n` modulo the window.
    seen: Vec<u64>,
    words: usize,
    window: u64,
}

impl Sequences {
    pub(crate) fn new(flows: usize) -> Self {
        let share = BITS_OF_ALL_FLOWS / (flows as u64).max(1);
        let window = (share + 1).next_power_of_two() / 2;
        Self::with_window(flows, window.clamp(SMALLEST_WINDOW, LARGEST_WINDOW))
    }

    /// With a ring of `window` bits, a power of two of 64 or more.
    fn with_window(flows: usize, window: u64) -> Self {
        let words = (window / 64) as usize;
        Self { flows: vec![Flow::default(); flows], seen: vec![0; flows * words], words, window }
    }

    /// Judges the packet with number `sequence` of `flow`; `None` when there is no such flow.
    #[inline]
    pub(crate) fn judge(&mut self, flow: usize, sequence: u64) -> Option<Arrival> {
        let state = self.flows.get_mut(flow)?;
        let ring = &mut self.seen[flow * self.words..(flow + 1) * self.words];
        let position = sequence & (self.window - 1);
        let (word, bit) = ((position / 64) as usize, 1u64 << (position % 64));
        if sequence >= state.next_expected {
            // The bits of the numbers that were skipped are those of numbers a window ago.
            if sequence > state.next_expected {
                forget(ring, state.next_expected, sequence - state.next_expected);
            }
            ring[word] |= bit;
            *state = Flow { next_expected: sequence + 1, in_late_run: false };
            return Some(Arrival::InOrder);
        }
        let starts_run = !state.in_late_run;
        if state.next_expected - sequence > self.window {
            state.in_late_run = true;
            return Some(Arrival::BehindWindow { starts_run });
        }
        if ring[word] & bit != 0 {
            return Some(Arrival::Duplicate);
        }
        ring[word] |= bit;
        state.in_late_run = true;
        Some(Arrival::Late { starts_run })
    }
}

/// Clears the bits of `count` numbers from `first` on.
#[cold]
fn forget(ring: &mut [u64], first: u64, count: u64) {
    let window = ring.len() as u64 * 64;
    if count >= window {
        ring.fill(0);
        return;
    }
    for number in first..first + count {
        let position = number & (window - 1);
        ring[(position / 64) as usize] &= !(1 << (position % 64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const LATE_FIRST: Arrival = Arrival::Late { starts_run: true };
    const LATE_AGAIN: Arrival = Arrival::Late { starts_run: false };

    fn judged(window: u64, numbers: &[u64]) -> Vec<Arrival> {
        let mut sequences = Sequences::with_window(2, window);
        numbers.iter().map(|number| sequences.judge(1, *number).unwrap()).collect()
    }

    #[test]
    fn the_example_of_routebricks_is_one_sequence() {
        let expected = [Arrival::InOrder, Arrival::InOrder, LATE_FIRST, LATE_AGAIN, Arrival::InOrder];
        assert_eq!(judged(64, &[1, 4, 2, 3, 5]), expected);
    }

    #[test]
    fn duplicates_are_not_reordered() {
        let expected =
            [Arrival::InOrder, Arrival::Duplicate, Arrival::InOrder, LATE_FIRST, Arrival::Duplicate];
        assert_eq!(judged(64, &[0, 0, 2, 1, 1]), expected);
    }

    #[test]
    fn behind_the_window_nobody_knows() {
        let behind = Arrival::BehindWindow { starts_run: true };
        assert_eq!(judged(64, &[0, 100, 36]), [Arrival::InOrder, Arrival::InOrder, behind]);
        assert_eq!(judged(64, &[0, 100, 37]), [Arrival::InOrder, Arrival::InOrder, LATE_FIRST]);
    }

    #[test]
    fn there_are_only_so_many_flows() {
        assert_eq!(Sequences::new(3).judge(3, 0), None);
        assert_eq!(Sequences::new(1).window, LARGEST_WINDOW);
        assert_eq!(Sequences::new(1_000_000).window, SMALLEST_WINDOW);
        assert_eq!(Sequences::new(4_096).window, 1 << 14);
    }

    proptest! {
        #[test]
        fn equals_a_set_of_all_numbers(jumps in prop::collection::vec((0u64..200, -90i64..90), 1..300)) {
            let mut sequences = Sequences::with_window(1, 64);
            let (mut seen, mut next_expected, mut front, mut late_run) = (HashSet::new(), 0, 0u64, false);
            for (choice, jump) in jumps {
                // Mostly steps of one, sometimes a jump back or forth.
                front = front.saturating_add_signed(if choice < 150 { 1 } else { jump });
                let expected = if front >= next_expected {
                    next_expected = front + 1;
                    late_run = false;
                    Arrival::InOrder
                } else if next_expected - front > 64 {
                    let starts_run = !std::mem::replace(&mut late_run, true);
                    Arrival::BehindWindow { starts_run }
                } else if seen.contains(&front) {
                    Arrival::Duplicate
                } else {
                    let starts_run = !std::mem::replace(&mut late_run, true);
                    Arrival::Late { starts_run }
                };
                prop_assert_eq!(sequences.judge(0, front), Some(expected));
                if !matches!(expected, Arrival::BehindWindow { .. }) {
                    seen.insert(front);
                }
            }
        }
    }
}
