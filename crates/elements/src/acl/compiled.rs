//! The rules of one family, as batches of packets meet them.
//!
//! ```text
//!  source ------> intervals --.
//!  destination -> intervals --+                         bit vectors
//!  source port -> array ------+    pairs of classes     .---------.
//!  dest. port --> array ------+--> [a * n + b] -> class + and and +-> lowest bit -> rule
//!  kind --------> array ------+                         '---------'
//!  input -------> array ------'
//! ```
//!
//! Each field of a packet gets its class (see `vectors`). Two fields whose classes have few pairs become one
//! field by an array over the pairs (as in Gupta and McKeown, "Packet classification on multiple fields",
//! SIGCOMM 1999), again and again; with few rules one field is left, and its class names the rule. What is
//! left otherwise, three fields for a thousand rules, is looked up in bit vectors. Each vector has a summary,
//! a bit for each of its cache lines that is not zero: only lines that are in all summaries are looked at
//! (Baboescu and Varghese, "Scalable packet classification", SIGCOMM 2001).
//!
//! All steps are loops over the batch, and short, so that the loads of its packets overlap.

use std::hint::select_unpredictable;

use packet::{MAX_BATCH, Packet};

use super::facts;
use super::family::Family;
use super::intervals::Intervals;
use super::parse::MAX_RULES;
use super::rule::IpVersion;
use super::vectors::{BitVectors, WORD};

/// The fields of a packet, each a column of a batch.
pub(super) const SOURCE: usize = 0;
pub(super) const DESTINATION: usize = 1;
pub(super) const SOURCE_PORT: usize = 2;
pub(super) const DESTINATION_PORT: usize = 3;
pub(super) const KIND: usize = 4;
pub(super) const INPUT: usize = 5;
pub(super) const FIELDS: usize = 6;

/// What the list says of a packet: twice the number of the rule, and 1 if it permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer(u32);

impl Answer {
    /// No rule: a flaw of the packet decides.
    pub(super) const FLAWED: Self = Self(u32::MAX - 1);

    pub(super) fn new(rule: usize, permits: bool) -> Self {
        Self((rule as u32) << 1 | u32::from(permits))
    }

    /// The number of the rule in the list, which for the default is that of its rules.
    #[inline(always)]
    pub(super) fn rule(self) -> usize {
        (self.0 >> 1) as usize
    }

    #[inline(always)]
    pub(super) fn permits(self) -> bool {
        self.0 & 1 != 0
    }
}

/// An array by class or value, for the column of a field.
pub(super) struct Lookup {
    pub(super) column: usize,
    pub(super) classes: Box<[u16]>,
}

/// Two columns become one, in the place of the first.
pub(super) struct Step {
    pub(super) columns: [usize; 2],
    /// Classes of the second.
    pub(super) width: usize,
    pub(super) classes: Box<[u16]>,
}

/// Words of a block.
const BLOCK: usize = 8;

/// A block of a bit vector, for 512 rules: a line of the cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Block([u64; BLOCK]);

/// Rules of a block.
const RULES: usize = BLOCK * WORD;

/// The bit vectors of a column.
pub(super) struct Dimension {
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

/// How the rule is found in the end.
pub(super) enum Decision {
    /// By one column: the number of the first rule of each class.
    Direct { column: usize, first: Box<[u16]> },
    /// By the bit vectors of several, each of so many blocks.
    Vectors { dimensions: Vec<Dimension>, blocks: usize },
}

impl Decision {
    /// How to decide between `rules` rules by these columns, of which there is one at least.
    pub(super) fn new(columns: &[(usize, BitVectors)], rules: usize) -> Self {
        if let [(column, vectors)] = columns {
            let first = vectors.iter().map(|vector| first_of(vector).unwrap_or(rules) as u16);
            return Self::Direct { column: *column, first: first.collect() };
        }
        let dimensions = columns.iter().map(|(column, vectors)| Dimension::new(*column, vectors));
        Self::Vectors { dimensions: dimensions.collect(), blocks: rules.div_ceil(RULES) }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Self::Direct { first, .. } => size_of_val(&**first),
            Self::Vectors { dimensions, .. } => {
                let bytes = |found: &Dimension| size_of_val(&*found.blocks) + size_of_val(&*found.summaries);
                dimensions.iter().map(bytes).sum()
            }
        }
    }
}

/// The number of the lowest bit.
fn first_of(vector: &[u64]) -> Option<usize> {
    let word = vector.iter().position(|&word| word != 0)?;
    Some(word * WORD + vector[word].trailing_zeros() as usize)
}

/// The rules of a family, compiled.
pub(super) struct Compiled<A: Family> {
    /// Of source and destination, where rules ask for these.
    pub(super) prefixes: [Option<Intervals<A>>; 2],
    pub(super) lookups: Vec<Lookup>,
    pub(super) steps: Vec<Step>,
    pub(super) decision: Decision,
    /// What the rules of this family answer, and behind them what the default does.
    pub(super) answers: Box<[Answer]>,
    /// Whether a rule asks for a protocol, and for a transport header.
    pub(super) needs_protocol: bool,
    pub(super) needs_transport: bool,
}

/// Room for one batch of a family.
pub(super) struct Room<A> {
    addresses: [[A; MAX_BATCH]; 2],
    columns: [[u16; MAX_BATCH]; FIELDS],
    found: [u16; MAX_BATCH],
    places: [u8; MAX_BATCH],
}

impl<A: Family> Room<A> {
    pub(super) fn new() -> Self {
        Self {
            addresses: [[A::MIN; MAX_BATCH]; 2],
            columns: [[0; MAX_BATCH]; FIELDS],
            found: [0; MAX_BATCH],
            places: [0; MAX_BATCH],
        }
    }
}

impl<A: Family> Compiled<A> {
    /// Judges the packets of this family, and leaves the answers of the others alone. Returns how many it
    /// judged.
    pub(super) fn judge(&self, packets: &[Packet], room: &mut Room<A>, answers: &mut [Answer]) -> usize {
        let (count, flawed) = self.gather(packets, room, answers);
        let Room { addresses, columns, found, places } = room;
        for (field, intervals) in self.prefixes.iter().enumerate() {
            if let Some(intervals) = intervals {
                intervals.lookup_batch(&addresses[field][..count], &mut columns[field][..count]);
            }
        }
        for Lookup { column, classes } in &self.lookups {
            for value in &mut columns[*column][..count] {
                *value = classes[usize::from(*value)];
            }
        }
        for Step { columns: pair, width, classes } in &self.steps {
            let Ok([left, right]) = columns.get_disjoint_mut(*pair) else { continue };
            for (left, &right) in left[..count].iter_mut().zip(&*right) {
                *left = classes[usize::from(*left) * width + usize::from(right)];
            }
        }
        let found = &mut found[..count];
        match &self.decision {
            Decision::Direct { column, first } => {
                for (found, &class) in found.iter_mut().zip(&columns[*column]) {
                    *found = first[usize::from(class)];
                }
            }
            Decision::Vectors { dimensions, blocks } => {
                let search = Search { columns, none: self.answers.len() - 1, blocks: *blocks };
                match dimensions.as_slice() {
                    [a, b] => search.run([a, b], found),
                    [a, b, c] => search.run([a, b, c], found),
                    [a, b, c, d] => search.run([a, b, c, d], found),
                    [a, b, c, d, e] => search.run([a, b, c, d, e], found),
                    [a, b, c, d, e, f, ..] => search.run([a, b, c, d, e, f], found),
                    // `Decision::new` makes these a direct one.
                    [] | [_] => {}
                }
            }
        }
        for (&found, &place) in found.iter().zip(&*places) {
            answers[usize::from(place)] = self.answers[usize::from(found)];
        }
        count + flawed
    }

    /// Reads the headers of this family. Returns how many can be looked up, and how many have a flaw.
    #[inline(always)]
    fn gather(&self, packets: &[Packet], room: &mut Room<A>, answers: &mut [Answer]) -> (usize, usize) {
        let mut count = 0;
        let mut flawed = 0;
        for (place, packet) in packets.iter().enumerate().take(MAX_BATCH) {
            if facts::version(packet) != Some(Self::NUMBER) {
                continue;
            }
            let facts = A::facts(packet).filter(|(.., facts)| {
                let asked =
                    |flaw: facts::Flaw| self.needs_transport || self.needs_protocol && flaw.hides_protocol();
                !facts.flaw.is_some_and(asked)
            });
            let Some((source, destination, facts)) = facts else {
                answers[place] = Answer::FLAWED;
                flawed += 1;
                continue;
            };
            room.addresses[SOURCE][count] = source;
            room.addresses[DESTINATION][count] = destination;
            room.columns[SOURCE_PORT][count] = facts.source_port;
            room.columns[DESTINATION_PORT][count] = facts.destination_port;
            room.columns[KIND][count] = facts.kind;
            room.columns[INPUT][count] = u16::from(packet.annotations().paint());
            room.places[count] = place as u8;
            count += 1;
        }
        (count, flawed)
    }

    /// What the version field of the header says.
    const NUMBER: u8 = match A::VERSION {
        IpVersion::V4 => 4,
        IpVersion::V6 => 6,
    };

    /// Bytes of memory that packets may touch.
    pub(super) fn memory_bytes(&self) -> usize {
        let prefixes: usize = self.prefixes.iter().flatten().map(Intervals::memory_bytes).sum();
        let lookups: usize = self.lookups.iter().map(|lookup| size_of_val(&*lookup.classes)).sum();
        let steps: usize = self.steps.iter().map(|step| size_of_val(&*step.classes)).sum();
        prefixes + lookups + steps + self.decision.memory_bytes() + size_of_val(&*self.answers)
    }
}

/// The search in bit vectors for a batch.
struct Search<'a> {
    columns: &'a [[u16; MAX_BATCH]; FIELDS],
    /// The number of the default.
    none: usize,
    /// Blocks of a vector.
    blocks: usize,
}

/// Packets of a round that are looked at together.
const GROUP: usize = 32;

impl Search<'_> {
    /// Writes the first rule of each packet to `found`. In each round every packet that has none yet looks at
    /// its next block; who is in the next round is decided without a branch, because nobody could predict it.
    #[inline(always)]
    fn run<const K: usize>(&self, dimensions: [&Dimension; K], found: &mut [u16]) {
        let mut open = [0u32; MAX_BATCH];
        let mut waiting = [0u8; MAX_BATCH];
        let mut count = 0;
        for place in 0..found.len().min(MAX_BATCH) {
            found[place] = self.none as u16;
            let classes = dimensions.map(|dimension| usize::from(self.columns[dimension.column][place]));
            // With one block its summary says nothing new.
            open[place] = 1;
            if self.blocks > 1 {
                let summaries = std::array::from_fn::<_, K, _>(|n| dimensions[n].summaries[classes[n]]);
                open[place] = summaries.iter().fold(u32::MAX, |open, summary| open & summary);
            }
            waiting[count % MAX_BATCH] = place as u8;
            count += usize::from(open[place] != 0);
        }
        let mut both = [Block([0; BLOCK]); GROUP];
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
                        let class = usize::from(self.columns[dimension.column][place]);
                        let row = &dimension.blocks[class * self.blocks + block];
                        both.0.iter_mut().zip(&row.0).for_each(|(both, word)| *both &= word);
                    }
                }
                for (both, number) in both.iter().zip(group) {
                    let place = usize::from(waiting[number % MAX_BATCH]);
                    let block = open[place].trailing_zeros() as usize;
                    open[place] &= open[place].wrapping_sub(1);
                    let (is_any, bit) = lowest(both);
                    found[place] = select_unpredictable(is_any, block * RULES + bit, self.none) as u16;
                    waiting[still % MAX_BATCH] = place as u8;
                    still += usize::from(!is_any & (open[place] != 0));
                }
            }
            count = still;
        }
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
