//! Programs of many rules: the first rule by the values of fields, in as many steps for a thousand rules as for ten.
//!
//! Each field of a packet (see `fields`) gives a class by a lookup among the values that rules tell apart, and the classes
//! give the first term that holds (see `first_match`). A packet that is too short for a field has a class of its own there,
//! so these programs decide exactly what the steps of the same rules decide.
//!
//! All steps are loops over the batch, so that the loads of its packets overlap.

use std::fmt;

use packet::MAX_BATCH;

use super::dispatch::{ETHER_HEADER, last_word};
use super::fields::{Field, ValuesOf, take_apart};
use super::{Base, Jump, Rule};
use crate::first_match::{
    self as first, BitVectors, COLUMNS, Classes, Columns, Decision, SearchRoom, set_bit,
};

/// Runs of values of one field that rules tell apart.
const MOST_RUNS: usize = 1 << 15;

/// An origin that no packet reaches; leaves room to add any offset.
const OUT_OF_REACH: usize = isize::MAX as usize;

/// Length of an IP header without options.
const IP_HEADER: usize = 20;

/// A packet, and where its headers are.
#[derive(Clone, Copy, Debug)]
pub struct View<'p> {
    /// The whole packet.
    pub data: &'p [u8],
    /// Offset of the IP header.
    pub network: usize,
    /// Offset of the transport header.
    pub transport: usize,
}

/// How values become classes.
enum Lookup {
    /// Of one byte.
    Byte(Box<[u16; 256]>),
    /// Of two.
    Half(fib::Intervals<u16>),
    /// Of four.
    Word(fib::Intervals<u32>),
}

/// Where a field is, and its classes.
struct Reader {
    base: Base,
    /// Of the four bytes that are loaded, from the origin.
    offset: usize,
    /// Of these, those that must be there.
    need: usize,
    /// The same from the network header, where that has no options; `None` for a field elsewhere.
    usual: Option<usize>,
    shift: u32,
    highest: u32,
    /// The class of packets that are too short.
    short: u16,
    lookup: Lookup,
}

/// The program.
pub struct ByFields {
    readers: Vec<Reader>,
    /// Bytes from the network header on that are loaded of a packet without IP options; `None` where fields are elsewhere.
    window: Option<usize>,
    decision: Decision,
    /// What to do for each term, and, behind them, where none holds.
    actions: Box<[Option<u32>]>,
}

impl fmt::Debug for ByFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} fields, {} terms", self.readers.len(), self.actions.len() - 1)
    }
}

/// Room for the decisions about a batch.
pub struct Room {
    values: [[u32; MAX_BATCH]; COLUMNS],
    columns: Columns,
    search: SearchRoom,
    found: [u16; MAX_BATCH],
    /// Packets that are too short for a field.
    short: Vec<(u8, u8)>,
    decided: [Option<u32>; MAX_BATCH],
}

impl Room {
    /// Room for batches of any size.
    pub fn new() -> Box<Self> {
        Box::new(Self {
            values: [[0; MAX_BATCH]; COLUMNS],
            columns: [[0; MAX_BATCH]; COLUMNS],
            search: SearchRoom::new(),
            found: [0; MAX_BATCH],
            short: Vec::with_capacity(MAX_BATCH * COLUMNS),
            decided: [None; MAX_BATCH],
        })
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").finish_non_exhaustive()
    }
}

impl ByFields {
    /// The program of these rules; `None` where they have too many fields, terms or values.
    pub(super) fn compile(rules: &[Rule]) -> Option<Self> {
        let (fields, terms) = take_apart(rules)?;
        let mut readers = Vec::new();
        let mut columns = Vec::new();
        for (number, field) in fields.iter().enumerate() {
            let (reader, vectors) = read(field, number, &terms)?;
            readers.push(reader);
            columns.push(first::Field::new(number, vectors));
        }
        let decision = Decision::new(columns, terms.len(), 1)?;
        let output = |jump: Jump| if let Jump::Output(output) = jump { Some(output) } else { None };
        let actions = terms.iter().map(|term| output(term.action)).chain([None]);
        let ends = readers.iter().map(|reader| reader.usual.map(|usual| usual + 4));
        let window = ends.reduce(|left, right| Some(left?.max(right?))).flatten();
        Some(Self { readers, window, decision, actions: actions.collect() })
    }

    /// Decides about packets, as many as a batch has at most: where each goes, or that it is dropped.
    pub fn decide<'r, 'p>(
        &self,
        packets: impl Iterator<Item = View<'p>>,
        room: &'r mut Room,
    ) -> &'r [Option<u32>] {
        let Room { values, columns, search, found, short, decided } = room;
        short.clear();
        let mut count = 0;
        for (place, View { data, network, transport }) in packets.enumerate().take(MAX_BATCH) {
            let place = place % MAX_BATCH;
            // Few packets have IP options or are shorter than what rules look at.
            let window = self.window.and_then(|length| data.get(network..)?.get(..length));
            match window.filter(|_| transport == network.wrapping_add(IP_HEADER)) {
                Some(window) => {
                    for (reader, values) in self.readers.iter().zip(&mut *values) {
                        let word = reader.usual.and_then(|usual| window.get(usual..)?.first_chunk::<4>());
                        let word = word.map_or(0, |bytes| u32::from_be_bytes(*bytes));
                        values[place] = word >> reader.shift & reader.highest;
                    }
                }
                None => self.read_one(View { data, network, transport }, place, values, short),
            }
            count = place + 1;
        }
        for ((reader, values), classes) in self.readers.iter().zip(&*values).zip(&mut *columns) {
            let (values, classes) = (&values[..count], &mut classes[..count]);
            match &reader.lookup {
                Lookup::Byte(table) => {
                    for (class, &value) in classes.iter_mut().zip(values) {
                        *class = table[usize::from(value as u8)];
                    }
                }
                Lookup::Half(intervals) => intervals.lookup_batch(values, |value| *value as u16, classes),
                Lookup::Word(intervals) => intervals.lookup_batch(values, |value| *value, classes),
            }
        }
        for &(place, field) in &*short {
            let field = usize::from(field);
            columns[field][usize::from(place)] = self.readers[field].short;
        }
        let found = &mut found[..count];
        self.decision.run(0, columns, search, found);
        for (decided, found) in decided.iter_mut().zip(&*found) {
            *decided = self.actions[usize::from(*found)];
        }
        &decided[..count]
    }

    /// Reads the fields of any packet.
    #[inline(never)]
    fn read_one(
        &self,
        View { data, network, transport }: View<'_>,
        place: usize,
        values: &mut [[u32; MAX_BATCH]; COLUMNS],
        short: &mut Vec<(u8, u8)>,
    ) {
        let network = network.min(OUT_OF_REACH);
        let link = if network >= ETHER_HEADER { network - ETHER_HEADER } else { OUT_OF_REACH };
        let origins = [0, link, network, transport.min(OUT_OF_REACH)];
        for (number, (reader, values)) in self.readers.iter().zip(values).enumerate() {
            let position = origins[reader.base as usize] + reader.offset;
            let word = match data.get(position..).and_then(<[u8]>::first_chunk::<4>) {
                Some(bytes) => u32::from_be_bytes(*bytes),
                None => last_word(data, position, reader.need as u8).unwrap_or_else(|| {
                    short.push((place as u8, number as u8));
                    0
                }),
            };
            values[place] = word >> reader.shift & reader.highest;
        }
    }

    /// Bytes of memory that packets may touch.
    pub fn memory_bytes(&self) -> usize {
        let lookups = self.readers.iter().map(|reader| match &reader.lookup {
            Lookup::Byte(table) => size_of_val(&**table),
            Lookup::Half(intervals) => intervals.memory_bytes(),
            Lookup::Word(intervals) => intervals.memory_bytes(),
        });
        lookups.sum::<usize>() + self.decision.memory_bytes() + size_of_val(&*self.actions)
    }
}

/// How a field is read, and the vectors of its classes.
fn read(field: &Field, number: usize, terms: &[super::fields::Term]) -> Option<(Reader, BitVectors)> {
    let mut values_of = ValuesOf::new(field);
    let mut vector = vec![0; BitVectors::new(terms.len()).words()];
    let mut short = vector.clone();
    let mut changes: Vec<(u32, usize)> = Vec::new();
    for (place, term) in terms.iter().enumerate() {
        match term.asks.get(&number) {
            None => {
                set_bit(&mut vector, place, true);
                set_bit(&mut short, place, true);
            }
            Some(asks) => {
                let values = values_of.of(asks)?;
                changes.extend(values.changes.into_iter().map(|value| (value, place)));
                set_bit(&mut short, place, values.when_short);
            }
        }
    }
    changes.sort_unstable();
    let mut classes = Classes::new(terms.len());
    let mut starts = Vec::new();
    if changes.first().is_none_or(|&(value, _)| value != 0) {
        starts.push((0, classes.of(&vector, MOST_RUNS)?));
    }
    for together in changes.chunk_by(|left, right| left.0 == right.0) {
        for &(_, place) in together {
            vector[place / u64::BITS as usize] ^= 1 << (place % u64::BITS as usize);
        }
        starts.push((together[0].0, classes.of(&vector, MOST_RUNS)?));
    }
    if starts.len() > MOST_RUNS {
        return None;
    }
    let short = classes.of(&short, MOST_RUNS)?;
    let lookup = match field.width() {
        1 => {
            let mut table = Box::new([0; 256]);
            for &(start, class) in &starts {
                table[start as usize..].fill(class);
            }
            Lookup::Byte(table)
        }
        2 => {
            let starts: Vec<(u16, u16)> =
                starts.iter().map(|&(start, class)| (start as u16, class)).collect();
            Lookup::Half(fib::Intervals::new(&starts))
        }
        _ => Lookup::Word(fib::Intervals::new(&starts)),
    };
    // A word of the link header at its very beginning: nothing can be loaded from before it.
    let (offset, up) = match (field.base, field.offset) {
        (Base::Link, offset) if offset >= 2 => (offset - 2, 0),
        (Base::Link, _) => (0, 16),
        (_, offset) => (offset, 0),
    };
    let usual = match field.base {
        Base::Network => Some(usize::from(offset)),
        Base::Transport => Some(usize::from(offset) + IP_HEADER),
        Base::Data | Base::Link => None,
    };
    let reader = Reader {
        base: field.base,
        offset: usize::from(offset),
        usual,
        need: usize::from(field.need) - up / 8,
        shift: field.shift() + up as u32,
        highest: field.highest(),
        short,
        lookup,
    };
    Some((reader, classes.into_vectors()))
}
