//! Access lists for the program: what a compiled list looks like there, how it is exchanged, and what it counts.
//!
//! `bpf/acl.h` reads what is written here. Each family has two areas in a mapped array. A new list is written to the one
//! that is not in use, then its number to the program's links; once no program runs that may have seen the old number, the
//! old area is free, and its counts are the last ones. Without a list the program permits nothing: all packets are then the
//! graph's to judge.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use packet::IpVersion;

use super::{KernelForwarding, Links};
use crate::mapped::Mapped;

/// As in `bpf/acl.h`.
const AREA_BYTES: usize = 1 << 20;
const AREAS: usize = 4;
const MOST_ANSWERS: usize = 1024;
const MOST_INTERVALS: usize = 1 << 12;
/// Upper bits of a key by which intervals are found.
const INDEX_BITS: u32 = 12;
const LOWERS: usize = 32;
const KIND: usize = 4;
const KINDS: usize = 40;
const STEP_COUNT: usize = 48;
const DIMENSION_COUNT: usize = 52;
const VECTOR_WORDS: usize = 56;
const ANSWERS: usize = 60;
const STEPS: usize = 64;
const STEP_BYTES: usize = 16;
const MOST_STEPS: usize = 5;
const DIMENSIONS: usize = STEPS + MOST_STEPS * STEP_BYTES;
const MOST_DIMENSIONS: usize = 6;
const FIRST_FREE: usize = DIMENSIONS + MOST_DIMENSIONS * 8;

/// Words of an area, and of what each processor counts: packets and bytes for each answer.
const AREA_WORDS: usize = AREA_BYTES / size_of::<u64>();
const HIT_WORDS: usize = AREAS * MOST_ANSWERS * 2;

/// The compiled rules of a family, as the program reads them.
///
/// Columns are those of the classes of a packet: source and destination address, source and destination port, or type and
/// code, kind, and input.
#[derive(Debug)]
pub struct KernelRules {
    bytes: Vec<u8>,
    steps: usize,
    fits: bool,
}

impl Default for KernelRules {
    fn default() -> Self {
        Self { bytes: vec![0; FIRST_FREE], steps: 0, fits: true }
    }
}

impl KernelRules {
    fn put(&mut self, place: usize, word: usize) {
        self.bytes[place..place + 4].copy_from_slice(&(word as u32).to_ne_bytes());
    }

    fn push<const N: usize>(&mut self, values: impl IntoIterator<Item = [u8; N]>) -> usize {
        let place = self.bytes.len().next_multiple_of(8);
        self.bytes.resize(place, 0);
        self.bytes.extend(values.into_iter().flatten());
        place
    }

    /// Adds intervals of 64 bits by the last key of each, ascending, with their classes; where they are is written to `place`.
    fn push_wide_intervals(&mut self, place: usize, intervals: impl Iterator<Item = (u64, u16)>) {
        let mut intervals: Vec<_> = intervals.collect();
        // The last key is the highest there is.
        let padding = (u64::MAX, intervals.last().map_or(0, |&(_, class)| class));
        intervals.resize(intervals.len().next_power_of_two(), padding);
        self.fits &= intervals.len() <= MOST_INTERVALS;
        let start = self.push(intervals.iter().map(|(key, _)| key.to_ne_bytes()));
        self.bytes.extend(intervals.iter().flat_map(|(_, class)| class.to_ne_bytes()));
        self.put(place, start);
        self.put(place + 4, intervals.len());
    }

    /// Sets the intervals of a column of so many bits, 12 to 32: the last key of each, ascending, and its class. An index by the
    /// upper 12 bits of a key says which of them may have it.
    pub fn intervals(&mut self, column: usize, bits: u32, intervals: impl Iterator<Item = (u32, u16)>) {
        let intervals: Vec<(u32, u16)> = intervals.collect();
        self.fits &= intervals.len() <= MOST_INTERVALS;
        let shift = bits - INDEX_BITS;
        let with = |key: u32| intervals.partition_point(|&(last, _)| last < key).min(intervals.len() - 1);
        let index = (0..1 << INDEX_BITS).map(|upper: u32| {
            let (first, last) = (with(upper << shift), with(upper << shift | ((1 << shift) - 1)));
            (first << 4) as u32 | (last - first + 1).next_power_of_two().trailing_zeros()
        });
        let place = self.push(index.collect::<Vec<u32>>().into_iter().map(u32::to_ne_bytes));
        // Halving looks behind the last that may have a key.
        let padding = std::iter::repeat_n((u32::MAX, 0), intervals.len().next_power_of_two());
        let words = intervals.iter().copied().chain(padding);
        self.bytes
            .extend(words.flat_map(|(last, class)| [last, u32::from(class)]).flat_map(u32::to_ne_bytes));
        self.put(column * 8, place);
        self.put(column * 8 + 4, shift as usize);
    }

    /// Sets the intervals of a column of 128 bits: those of upper halves, of which a class with the highest bit set has the
    /// number of those of lower halves in its place.
    pub fn wide_intervals(
        &mut self,
        column: usize,
        upper: impl Iterator<Item = (u64, u16)>,
        lower: impl ExactSizeIterator<Item: Iterator<Item = (u64, u16)>>,
    ) {
        self.push_wide_intervals(column * 8, upper);
        let table = self.push(std::iter::repeat_n([0; 8], lower.len()));
        self.put(LOWERS + column * 4, table);
        for (number, intervals) in lower.enumerate() {
            self.push_wide_intervals(table + number * 8, intervals);
        }
    }

    /// Sets the classes by value of the columns of kind and input.
    pub fn values(&mut self, column: usize, classes: &[u16]) {
        let place = self.push(classes.iter().map(|class| class.to_ne_bytes()));
        self.put(KINDS + (column - KIND) * 4, place);
    }

    /// Adds a step: the first of two columns gets the class of the pair, of which the second has `width`.
    pub fn step(&mut self, columns: [usize; 2], width: usize, classes: &[u16]) {
        self.fits &= self.steps < MOST_STEPS;
        if !self.fits {
            return;
        }
        let place = self.push(classes.iter().map(|class| class.to_ne_bytes()));
        for (number, word) in [columns[0], columns[1], width, place].into_iter().enumerate() {
            self.put(STEPS + self.steps * STEP_BYTES + number * 4, word);
        }
        self.steps += 1;
        self.put(STEP_COUNT, self.steps);
    }

    /// Ends with one column, which has an answer for each class: twice the number of the rule, and 1 if it permits.
    pub fn end_with_answers(&mut self, column: usize, answers: impl Iterator<Item = u32>) {
        self.put(DIMENSION_COUNT, 1);
        self.put(DIMENSIONS, column);
        self.answers(answers);
    }

    /// Ends with the bit vectors of several columns, of `words` words each, and the answers of all rules and of the default.
    pub fn end_with_vectors(
        &mut self,
        dimensions: impl ExactSizeIterator<Item = (usize, impl Iterator<Item = u64>)>,
        words: usize,
        answers: &[u32],
    ) {
        self.fits &= dimensions.len() <= MOST_DIMENSIONS && words * 64 <= MOST_ANSWERS;
        if !self.fits {
            return;
        }
        self.put(DIMENSION_COUNT, dimensions.len());
        self.put(VECTOR_WORDS, words);
        for (number, (column, vectors)) in dimensions.enumerate() {
            let place = self.push(vectors.map(u64::to_ne_bytes));
            self.put(DIMENSIONS + number * 8, column);
            self.put(DIMENSIONS + number * 8 + 4, place);
        }
        let default = answers.last().copied().unwrap_or_default();
        let padding = std::iter::repeat(default);
        self.answers(answers.iter().copied().chain(padding).take(words * 64 + 1));
    }

    fn answers(&mut self, answers: impl Iterator<Item = u32>) {
        let answers: Vec<u32> = answers.collect();
        self.fits &= answers.iter().all(|answer| (answer >> 1) < MOST_ANSWERS as u32);
        let place = self.push(answers.into_iter().map(u32::to_ne_bytes));
        self.put(ANSWERS, place);
    }

    /// Returns whether the program can judge by them: 1,023 rules, and 1 MiB.
    pub fn fit(&self) -> bool {
        self.fits && self.bytes.len() <= AREA_BYTES
    }
}

/// The maps of lists, and the links that name the areas.
pub(super) struct Maps {
    pub(super) links: Arc<Mapped>,
    pub(super) list: Mapped,
    pub(super) hits: Mapped,
}

impl Maps {
    /// Bytes of the maps, for so many processors.
    pub(super) const fn bytes(processors: usize) -> (usize, usize) {
        (AREAS * AREA_BYTES, processors * HIT_WORDS * size_of::<u64>())
    }

    /// The counts of an answer in an area, of each processor.
    fn hits(&self, area: usize, answer: usize) -> impl Iterator<Item = &[AtomicU64]> {
        let at = (area * MOST_ANSWERS + answer) * 2;
        self.hits.words().chunks_exact(HIT_WORDS).map(move |all| &all[at..at + 2])
    }
}

/// The access list of a family in the program.
pub struct KernelList {
    maps: Arc<Maps>,
    version: IpVersion,
    /// The area that is in use.
    area: Option<usize>,
}

impl KernelList {
    pub(super) fn new(maps: Arc<Maps>, version: IpVersion) -> Self {
        Self { maps, version, area: None }
    }

    /// Returns the family.
    pub fn version(&self) -> IpVersion {
        self.version
    }

    /// Has the program judge by these rules; without rules, or with some that do not [fit](KernelRules::fit), it permits
    /// nothing. When this returns no packet is judged by earlier rules, and their counts are the last ones. Takes some
    /// milliseconds. Returns the counts of the new rules, from zero.
    pub fn replace(&mut self, rules: Option<&KernelRules>) -> KernelHits {
        self.replace_and_wait(rules, KernelForwarding::wait_for_programs)
    }

    /// The same, with the way to wait until no program runs that has seen what was there.
    pub(super) fn replace_and_wait(&mut self, rules: Option<&KernelRules>, wait: fn()) -> KernelHits {
        let family = usize::from(self.version == IpVersion::V6);
        let area = match self.area {
            Some(area) => area ^ 1,
            None => family * 2,
        };
        let area = rules.filter(|rules| rules.fit()).map(|rules| {
            let words = rules.bytes.chunks(8).map(|bytes| {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                u64::from_ne_bytes(word)
            });
            let places = &self.maps.list.words()[area * AREA_WORDS..];
            places.iter().zip(words).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
            let hits = (0..MOST_ANSWERS).flat_map(|answer| self.maps.hits(area, answer)).flatten();
            hits.for_each(|count| count.store(0, Ordering::Relaxed));
            area
        });
        self.maps.links.view::<Links>().lists[family]
            .store(area.map_or(0, |area| area as u32 + 1), Ordering::Release);
        wait();
        self.area = area;
        KernelHits { maps: Arc::clone(&self.maps), area }
    }
}

/// What the program has counted by the rules of a list.
pub struct KernelHits {
    maps: Arc<Maps>,
    area: Option<usize>,
}

impl KernelHits {
    /// Returns packets and bytes, from the IP header on, that a rule permitted and that were forwarded.
    pub fn of(&self, rule: usize) -> (u64, u64) {
        let Some(area) = self.area.filter(|_| rule < MOST_ANSWERS) else { return (0, 0) };
        self.maps.hits(area, rule).fold((0, 0), |(packets, bytes), hits| {
            (packets + hits[0].load(Ordering::Relaxed), bytes + hits[1].load(Ordering::Relaxed))
        })
    }

    /// Returns whether the program judges by the list; otherwise it permits nothing.
    pub fn is_judging(&self) -> bool {
        self.area.is_some()
    }
}
