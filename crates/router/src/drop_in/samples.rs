//! Samples of what is forwarded in the kernel, for several readers with rates of their own.
//!
//! The program draws by the highest rate that is wanted, and each reader gets a random part of that: one packet of so many in all.
//! A reader that does not read has a bounded number of samples waiting. Where more samples come than can be read, the program
//! draws less often, whatever the readers want: each sample says how many packets it stands for.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use packet::random::SplitMix64;
use ports::KernelSample;

/// Samples that wait for a reader.
const MOST_WAITING: usize = 4_096;

/// Draws a second beyond which the program draws less often; more often again below a quarter.
const MOST_A_SECOND: f64 = 20_000.0;
/// How often draws are counted.
const PACE: Duration = Duration::from_millis(100);
/// The seldomest that the program draws.
const SELDOMEST: u32 = 1 << 24;

/// All readers.
#[derive(Debug, Default)]
pub(super) struct Samples {
    last: u64,
    readers: BTreeMap<u64, Reader>,
    /// How many times the wanted distance of two draws is doubled.
    doublings: u32,
    /// Draws since then.
    draws: u64,
    since: Option<Instant>,
}

/// Somebody who wants samples.
#[derive(Debug)]
struct Reader {
    one_in: u32,
    bytes: usize,
    random: SplitMix64,
    waiting: VecDeque<KernelSample>,
    /// By port: packets that the next sample stands for; and for draws without room, of how many packets one of them was.
    skipped: HashMap<u16, (u64, u64)>,
}

impl Samples {
    /// Begins to collect one packet of `one_in`, `bytes` of each at most. Returns the reader's number.
    pub(super) fn begin(&mut self, one_in: u32, bytes: usize) -> u64 {
        self.last += 1;
        let reader = Reader {
            one_in: one_in.max(1),
            bytes,
            // The standard library keys its hash maps by the operating system's random numbers.
            random: SplitMix64::new(RandomState::new().hash_one(self.last)),
            waiting: VecDeque::new(),
            skipped: HashMap::new(),
        };
        self.readers.insert(self.last, reader);
        self.last
    }

    pub(super) fn end(&mut self, number: u64) {
        self.readers.remove(&number);
    }

    /// Returns of how many packets one is to be drawn, and how many bytes of it are wanted; zeros if none is.
    pub(super) fn wanted(&self) -> (u32, usize) {
        let one_in = self.readers.values().map(|reader| reader.one_in).min();
        let bytes = self.readers.values().map(|reader| reader.bytes).max();
        let slow = |one_in: u32| (u64::from(one_in) << self.doublings).min(SELDOMEST.into()) as u32;
        (one_in.map_or(0, slow), bytes.unwrap_or(0))
    }

    /// Has the program draw less often while too much comes. Returns whether that has changed.
    pub(super) fn pace(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let elapsed = now.saturating_duration_since(since);
        if elapsed < PACE {
            return false;
        }
        let rate = self.draws as f64 / elapsed.as_secs_f64();
        (self.draws, self.since) = (0, Some(now));
        let before = self.doublings;
        if rate > MOST_A_SECOND {
            self.doublings = (before + (rate / MOST_A_SECOND).log2().ceil() as u32).min(SELDOMEST.ilog2());
        } else if rate < MOST_A_SECOND / 4.0 {
            self.doublings = before.saturating_sub(1);
        }
        self.doublings != before
    }

    /// Hands a packet that was drawn to the readers whose turn it is.
    pub(super) fn give(&mut self, sample: &KernelSample) {
        let drawn = u64::from(self.wanted().0);
        self.draws += 1 + sample.lost;
        for reader in self.readers.values_mut() {
            let one_in = u64::from(reader.one_in);
            let is_first = !reader.skipped.contains_key(&sample.input);
            let (due, lost) = reader.skipped.entry(sample.input).or_default();
            // The first one may stand for packets of before the reader came, when the program drew for others and more seldom.
            *due += if is_first { sample.stands_for.min(drawn) } else { sample.stands_for };
            // Of `one_in / drawn` draws one is this reader's.
            *lost += sample.lost * drawn.min(one_in);
            if reader.random.below(one_in) >= drawn {
                continue;
            }
            if reader.waiting.len() >= MOST_WAITING {
                *lost += one_in;
                continue;
            }
            let stands_for = std::mem::take(due);
            let mut sample = KernelSample { stands_for, lost: *lost / one_in, ..sample.clone() };
            *lost %= one_in;
            sample.data.truncate(reader.bytes);
            reader.waiting.push_back(sample);
        }
    }

    /// Takes what waits for a reader.
    pub(super) fn take(&mut self, number: u64) -> VecDeque<KernelSample> {
        self.readers.get_mut(&number).map(|reader| std::mem::take(&mut reader.waiting)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(input: u16, stands_for: u64) -> KernelSample {
        KernelSample { input, output: None, length: 60, stands_for, lost: 0, data: vec![7; 60] }
    }

    #[test]
    fn each_reader_has_its_own_rate_and_all_packets_are_stood_for() {
        let mut samples = Samples::default();
        assert_eq!(samples.wanted(), (0, 0));
        let (often, seldom) = (samples.begin(10, 20), samples.begin(40, 50));
        assert_eq!(samples.wanted(), (10, 50));
        let (mut all, mut part) = (Vec::new(), Vec::new());
        for turn in 0..40_000u16 {
            samples.give(&KernelSample { lost: 1, ..sample(turn % 2, 10) });
            all.extend(samples.take(often));
            part.extend(samples.take(seldom));
        }
        assert_eq!(all.len(), 40_000);
        // One of four: 10,000, which deviates by 87.
        assert!((9_500..10_500).contains(&part.len()), "{}", part.len());
        for port in [0, 1] {
            let of_port = part.iter().filter(|sample| sample.input == port);
            let sum: u64 = of_port.map(|sample| sample.stands_for).sum();
            assert!((199_000..=200_000).contains(&sum), "{sum}");
        }
        let lost = |samples: &[KernelSample]| samples.iter().map(|sample| sample.lost).sum::<u64>();
        assert_eq!(lost(&all), 40_000);
        assert!((9_900..=10_000).contains(&lost(&part)), "{}", lost(&part));
        assert_eq!((all[0].data.len(), part[0].data.len()), (20, 50));
        samples.end(often);
        assert_eq!(samples.wanted(), (40, 50));
    }

    #[test]
    fn packets_of_before_a_reader_came_are_not_its() {
        let mut samples = Samples::default();
        let seldom = samples.begin(1_000, 60);
        samples.give(&sample(0, 1_000));
        let all = samples.begin(1, 60);
        // 700 passed since the draw before, when only the first reader was there.
        samples.give(&sample(0, 700));
        samples.give(&sample(0, 1));
        let stand_for =
            |samples: VecDeque<KernelSample>| samples.iter().map(|sample| sample.stands_for).sum::<u64>();
        assert_eq!(stand_for(samples.take(all)), 2);
        assert_eq!(stand_for(samples.take(seldom)) % 1_000, 0);
    }

    #[test]
    fn while_too_much_comes_the_program_draws_less_often() {
        let (mut samples, begin) = (Samples::default(), Instant::now());
        samples.begin(3, 20);
        let at = |tenths: u32| begin + PACE * tenths;
        assert!(!samples.pace(at(0)));
        // 100,000 a second: eight times as seldom.
        (0..1_000).for_each(|_| samples.give(&KernelSample { lost: 9, ..sample(0, 3) }));
        assert!(samples.pace(at(1)));
        assert_eq!(samples.wanted().0, 24);
        // 10,000 a second are borne, 1,000 leave room.
        (0..1_000).for_each(|_| samples.give(&sample(0, 24)));
        assert!(!samples.pace(at(2)));
        (0..100).for_each(|_| samples.give(&sample(0, 24)));
        assert!(samples.pace(at(3)));
        assert_eq!(samples.wanted().0, 12);
        // A reader that wants more often gets all.
        samples.give(&sample(0, 12));
        assert_eq!(samples.take(1).len(), 2_101);
    }

    #[test]
    fn a_reader_that_does_not_read_costs_a_bounded_number_of_samples_and_learns_how_many_were_lost() {
        let mut samples = Samples::default();
        let reader = samples.begin(1, 60);
        for _ in 0..MOST_WAITING + 100 {
            samples.give(&KernelSample { lost: 1, ..sample(3, 1) });
        }
        assert_eq!(samples.take(reader).len(), MOST_WAITING);
        samples.give(&sample(3, 1));
        let next = samples.take(reader).pop_front().unwrap();
        assert_eq!((next.stands_for, next.lost), (101, 200));
        assert!(samples.take(reader + 1).is_empty());
    }
}
