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
//! All steps are loops over the batch, so that the loads of its packets overlap.

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

/// The bit vectors of a column.
pub(super) struct Dimension {
    column: usize,
    /// For each class, a bit for each of its blocks that is not zero. A list has at most as many blocks as
    /// this has bits.
    summaries: Box<[u32]>,
    blocks: Box<[Block]>,
}

const _: () = assert!(MAX_RULES <= u32::BITS as usize * BLOCK * WORD);

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
        Self::Vectors { dimensions: dimensions.collect(), blocks: rules.div_ceil(BLOCK * WORD) }
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

impl Search<'_> {
    #[inline(always)]
    fn run<const K: usize>(&self, dimensions: [&Dimension; K], found: &mut [u16]) {
        for (place, found) in found.iter_mut().enumerate() {
            let mut rows: [&[Block]; K] = [&[]; K];
            // With one block its summary says nothing new.
            let mut open = if self.blocks == 1 { 1 } else { u32::MAX };
            for (row, dimension) in rows.iter_mut().zip(dimensions) {
                let class = usize::from(self.columns[dimension.column][place]);
                *row = &dimension.blocks[class * self.blocks..][..self.blocks];
                if self.blocks > 1 {
                    open &= dimension.summaries[class];
                }
            }
            let mut first = self.none;
            while open != 0 {
                let block = open.trailing_zeros() as usize;
                if let Some(bit) = first_match(&rows, block) {
                    first = block * BLOCK * WORD + bit;
                    break;
                }
                open &= open - 1;
            }
            *found = first as u16;
        }
    }
}

/// The number of the lowest bit that is set in a block of all rows. Which word it is in nobody could predict,
/// so no branch asks.
#[inline(always)]
fn first_match<const K: usize>(rows: &[&[Block]; K], block: usize) -> Option<usize> {
    let mut all = [u64::MAX; BLOCK];
    for row in rows {
        for (all, word) in all.iter_mut().zip(&row[block].0) {
            *all &= word;
        }
    }
    let mut bits = all[BLOCK - 1];
    let mut word = BLOCK - 1;
    for lower in (0..BLOCK - 1).rev() {
        let is_set = all[lower] != 0;
        bits = select_unpredictable(is_set, all[lower], bits);
        word = select_unpredictable(is_set, lower, word);
    }
    (bits != 0).then(|| word * WORD + bits.trailing_zeros() as usize)
}
