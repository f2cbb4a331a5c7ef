//! The search for the first rule that all columns of a packet accept, in bit vectors.
//!
//! Packets whose combination of classes was searched for before are answered by `known`. For the others the
//! vectors of their classes are taken together, a cache line at a time. Each vector has a summary, a bit for
//! each of its lines that is not zero: only lines that are in all summaries are looked at (Baboescu and
//! Varghese, "Scalable packet classification", SIGCOMM 2001).

use std::hint::select_unpredictable;

use packet::MAX_BATCH;

use super::known::Known;
use super::vectors::{BitVectors, WORD};
use super::{Columns, Field, MAX_RULES};

/// Columns that a search takes.
pub(super) const MOST_COLUMNS: usize = 6;

/// Words of a block.
const BLOCK: usize = 8;

/// A block of a bit vector, for 512 rules: a line of the cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Block([u64; BLOCK]);

/// Rules of a block.
const RULES: usize = BLOCK * WORD;

/// The bit vectors of a column.
struct Dimension {
    column: usize,
    /// For each class, a bit for each of its blocks that is not zero. A list has at most as many blocks as
    /// this has bits.
    summaries: Box<[u32]>,
    blocks: Box<[Block]>,
}

const _: () = assert!(MAX_RULES <= u32::BITS as usize * RULES);

impl Dimension {
    fn new(column: usize, vectors: &BitVectors) -> Self {
        let mut summaries = Vec::with_capacity(vectors.len());
        let mut blocks = Vec::new();
        for vector in vectors.iter() {
            let mut summary = 0;
            for (number, words) in vector.chunks(BLOCK).enumerate() {
                let mut block = Block([0; BLOCK]);
                block.0[..words.len()].copy_from_slice(words);
                summary |= u32::from(words.iter().any(|&word| word != 0)) << number;
                blocks.push(block);
            }
            summaries.push(summary);
        }
        Self { column, summaries: summaries.into(), blocks: blocks.into() }
    }
}

/// The search by the bit vectors of several columns.
pub(crate) struct Search {
    dimensions: Vec<Dimension>,
    /// Blocks of a vector.
    blocks: usize,
    /// The number of the default.
    none: u16,
    known: Option<Known>,
}

/// Packets of a round that are looked at together.
const GROUP: usize = 32;

/// Room for the search of a batch.
pub(crate) struct SearchRoom {
    keys: [u64; MAX_BATCH],
    missing: [u8; MAX_BATCH],
    /// The blocks of each packet that may have a rule for it and have not been looked at.
    open: [u32; MAX_BATCH],
    waiting: [u8; MAX_BATCH],
    both: [Block; GROUP],
}

impl SearchRoom {
    pub(crate) fn new() -> Self {
        Self {
            keys: [0; MAX_BATCH],
            missing: [0; MAX_BATCH],
            open: [0; MAX_BATCH],
            waiting: [0; MAX_BATCH],
            both: [Block([0; BLOCK]); GROUP],
        }
    }
}

impl Search {
    /// For `rules` rules by these fields, two to [`MOST_COLUMNS`], and for so many copies of the element.
    pub(super) fn new(fields: &[Field], rules: usize, copies: usize) -> Self {
        let dimensions = fields.iter().map(|field| Dimension::new(field.column, &field.vectors));
        let classes: Vec<(usize, usize)> =
            fields.iter().map(|field| (field.column, field.vectors.len())).collect();
        Self {
            dimensions: dimensions.collect(),
            blocks: rules.div_ceil(RULES),
            none: rules as u16,
            known: Known::new(&classes, rules, copies),
        }
    }

    /// Words of a vector.
    pub(crate) fn words(&self) -> usize {
        usize::from(self.none).div_ceil(WORD)
    }

    /// Each column and the vectors of its classes, one behind the other.
    pub(crate) fn vectors(&self) -> impl ExactSizeIterator<Item = (usize, impl Iterator<Item = u64>)> {
        self.dimensions.iter().map(|dimension| {
            let vectors = dimension.blocks.chunks(self.blocks);
            let words = vectors.flat_map(|blocks| blocks.iter().flat_map(|block| block.0).take(self.words()));
            (dimension.column, words)
        })
    }

    /// Writes the first rule of each packet to `found`; the copy of the element is `copy`.
    #[inline]
    pub(super) fn run(&self, copy: usize, columns: &Columns, room: &mut SearchRoom, found: &mut [u16]) {
        let Some(known) = &self.known else {
            for (place, missing) in room.missing.iter_mut().take(found.len()).enumerate() {
                *missing = place as u8;
            }
            return self.run_missing(columns, room, found.len(), found);
        };
        let count = known.look(copy, columns, &mut room.keys, found, &mut room.missing);
        if count > 0 {
            self.run_missing(columns, room, count, found);
            for place in room.missing.iter().take(count).map(|&place| usize::from(place)) {
                known.remember(copy, room.keys[place], found[place]);
            }
        }
    }

    fn run_missing(&self, columns: &Columns, room: &mut SearchRoom, count: usize, found: &mut [u16]) {
        match self.dimensions.as_slice() {
            [a, b] => self.search([a, b], columns, room, count, found),
            [a, b, c] => self.search([a, b, c], columns, room, count, found),
            [a, b, c, d] => self.search([a, b, c, d], columns, room, count, found),
            [a, b, c, d, e] => self.search([a, b, c, d, e], columns, room, count, found),
            [a, b, c, d, e, f] => self.search([a, b, c, d, e, f], columns, room, count, found),
            // `Decision::new` makes no such search.
            _ => {}
        }
    }

    /// Searches for the first `missing` packets of the list. In each round every packet that has no rule yet looks
    /// at its next block; who is in the next round is decided without a branch, because nobody could predict it.
    #[inline(always)]
    fn search<const K: usize>(
        &self,
        dimensions: [&Dimension; K],
        columns: &Columns,
        room: &mut SearchRoom,
        missing: usize,
        found: &mut [u16],
    ) {
        let SearchRoom { missing: places, open, waiting, both, .. } = room;
        let mut count = 0;
        for &place in places.iter().take(missing) {
            let at = usize::from(place);
            found[at] = self.none;
            let classes = dimensions.map(|dimension| usize::from(columns[dimension.column][at]));
            // With one block its summary says nothing new.
            open[at] = 1;
            if self.blocks > 1 {
                let summaries = std::array::from_fn::<_, K, _>(|n| dimensions[n].summaries[classes[n]]);
                open[at] = summaries.iter().fold(u32::MAX, |open, summary| open & summary);
            }
            waiting[count % MAX_BATCH] = place;
            count += usize::from(open[at] != 0);
        }
        while count > 0 {
            let mut still = 0;
            for first in (0..count).step_by(GROUP) {
                // Loads, and little else, so that those of many packets overlap.
                let group = first..count.min(first + GROUP);
                for (both, number) in both.iter_mut().zip(group.clone()) {
                    let place = usize::from(waiting[number % MAX_BATCH]);
                    let block = open[place].trailing_zeros() as usize;
                    *both = Block([u64::MAX; BLOCK]);
                    for dimension in dimensions {
                        let class = usize::from(columns[dimension.column][place]);
                        let row = &dimension.blocks[class * self.blocks + block];
                        both.0.iter_mut().zip(&row.0).for_each(|(both, word)| *both &= word);
                    }
                }
                for (both, number) in both.iter().zip(group) {
                    let place = usize::from(waiting[number % MAX_BATCH]);
                    let block = open[place].trailing_zeros() as usize;
                    open[place] &= open[place].wrapping_sub(1);
                    let (is_any, bit) = lowest(both);
                    let rule = (block * RULES + bit) as u16;
                    found[place] = select_unpredictable(is_any, rule, self.none);
                    waiting[still % MAX_BATCH] = place as u8;
                    still += usize::from(!is_any & (open[place] != 0));
                }
            }
            count = still;
        }
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let bytes = |found: &Dimension| size_of_val(&*found.blocks) + size_of_val(&*found.summaries);
        let known = self.known.as_ref().map_or(0, Known::memory_bytes);
        self.dimensions.iter().map(bytes).sum::<usize>() + known
    }
}

/// Whether a bit is set, and the number of the lowest. Which word it is in nobody could predict, so no branch
/// asks.
#[inline(always)]
fn lowest(block: &Block) -> (bool, usize) {
    let mut bits = block.0[BLOCK - 1];
    let mut word = BLOCK - 1;
    for lower in (0..BLOCK - 1).rev() {
        let is_set = block.0[lower] != 0;
        bits = select_unpredictable(is_set, block.0[lower], bits);
        word = select_unpredictable(is_set, lower, word);
    }
    (bits != 0, word * WORD + bits.trailing_zeros() as usize)
}
