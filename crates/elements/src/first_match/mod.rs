//! The first of many rules that a packet fits, where each rule asks for values of some fields.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `vectors` | bit vectors over rules, and the classes of values |
//! | `search` | the first rule, by bit vectors |
//! | `known` | what was found for combinations of classes |
//!
//! Who has the rules gives each field of a packet its class (see `vectors`), a column of classes for each field of a
//! batch. Two fields whose classes have few pairs become one field by an array over the pairs (as in Gupta and
//! McKeown, "Packet classification on multiple fields", SIGCOMM 1999), again and again; with few rules one field is
//! left, and its class names the rule. What is left otherwise, three fields for a thousand rules, goes to `search`:
//! what was found for the same classes before, or the bit vectors.
//!
//! Element `ACL` decides so, and programs of `IPFilter` and its kin that would take many steps.

mod known;
mod search;
mod vectors;

use packet::MAX_BATCH;

pub(crate) use self::search::{Search, SearchRoom};
use self::vectors::WORD;
pub(crate) use self::vectors::{BitVectors, Classes, set_bit};

/// Columns that there may be.
pub(crate) const COLUMNS: usize = 16;

/// For each field of the packets of a batch their values, then their classes.
pub(crate) type Columns = [[u16; MAX_BATCH]; COLUMNS];

/// Rules that there may be. Two bit vectors of 2 KB for each is as much as a cache can make sense of, and more
/// than anybody can read.
pub(crate) const MAX_RULES: usize = 16_384;

/// Pairs of classes that an array may hold: 32 KB.
const MOST_PAIRS: usize = 1 << 14;
/// Bytes of the bit vectors of a field that was made of two. Packets touch a part of them: most source ports,
/// for one, are of the same class.
const MOST_BYTES: usize = 2 << 20;
/// Classes that a field may have.
const MOST_CLASSES: usize = 1 << 16;

/// A field with its classes.
pub(crate) struct Field {
    column: usize,
    vectors: BitVectors,
    /// Columns of the fields behind it with which it makes too many classes.
    tried: Vec<usize>,
}

impl Field {
    /// The field whose classes are in a column, below [`COLUMNS`], and have these vectors.
    pub(crate) fn new(column: usize, vectors: BitVectors) -> Self {
        Self { column, vectors, tried: Vec::new() }
    }
}

/// Two columns become one, in the place of the first.
struct Step {
    columns: [usize; 2],
    /// Classes of the second.
    width: usize,
    classes: Box<[u16]>,
}

/// How the first rule is found by the classes of fields.
pub(crate) struct Decision {
    steps: Vec<Step>,
    end: End,
}

/// How it is found in the end.
pub(crate) enum End {
    /// By one column: the number of the first rule of each class.
    Direct { column: usize, first: Box<[u16]> },
    /// By the bit vectors of several.
    Vectors(Search),
}

impl Decision {
    /// How to decide between `rules` rules, [`MAX_RULES`] at most, by these fields, in so many copies of the element.
    /// `None` where too many fields are left.
    pub(crate) fn new(mut fields: Vec<Field>, rules: usize, copies: usize) -> Option<Self> {
        let steps = combine(&mut fields, rules);
        let end = match fields.as_slice() {
            [Field { column, vectors, .. }] => {
                let first = vectors.iter().map(|vector| first_of(vector).unwrap_or(rules) as u16);
                End::Direct { column: *column, first: first.collect() }
            }
            fields if (2..=search::MOST_COLUMNS).contains(&fields.len()) => {
                End::Vectors(Search::new(fields, rules, copies))
            }
            _ => return None,
        };
        Some(Self { steps, end })
    }

    /// Writes the number of each packet's first rule to `found`, and the number of rules where there is none. `copy` is
    /// the copy of the element that asks.
    #[inline]
    pub(crate) fn run(&self, copy: usize, columns: &mut Columns, room: &mut SearchRoom, found: &mut [u16]) {
        let count = found.len();
        for Step { columns: pair, width, classes } in &self.steps {
            let Ok([left, right]) = columns.get_disjoint_mut(*pair) else { continue };
            for (left, &right) in left[..count].iter_mut().zip(&*right) {
                *left = classes[usize::from(*left) * width + usize::from(right)];
            }
        }
        match &self.end {
            End::Direct { column, first } => {
                for (found, &class) in found.iter_mut().zip(&columns[*column]) {
                    *found = first[usize::from(class)];
                }
            }
            End::Vectors(vectors) => vectors.run(copy, columns, room, found),
        }
    }

    /// The steps: two columns that become one, classes of the second, the class of each pair.
    pub(crate) fn steps(&self) -> impl Iterator<Item = ([usize; 2], usize, &[u16])> {
        self.steps.iter().map(|step| (step.columns, step.width, &*step.classes))
    }

    /// How the rule is found behind the steps.
    pub(crate) fn end(&self) -> &End {
        &self.end
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let steps: usize = self.steps.iter().map(|step| size_of_val(&*step.classes)).sum();
        let end = match &self.end {
            End::Direct { first, .. } => size_of_val(&**first),
            End::Vectors(search) => search.memory_bytes(),
        };
        steps + end
    }
}

/// The number of the lowest bit.
fn first_of(vector: &[u64]) -> Option<usize> {
    let word = vector.iter().position(|&word| word != 0)?;
    Some(word * WORD + vector[word].trailing_zeros() as usize)
}

/// Makes one field of two as long as there are two with few pairs of classes; the fewest first.
fn combine(fields: &mut Vec<Field>, rules: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    loop {
        let mut pairs: Vec<(usize, usize, usize)> = Vec::new();
        for right in 1..fields.len() {
            for left in 0..right {
                let count = fields[left].vectors.len() * fields[right].vectors.len();
                let is_new = !fields[left].tried.contains(&fields[right].column);
                if count <= MOST_PAIRS && is_new {
                    pairs.push((count, left, right));
                }
            }
        }
        let Some(&(_, left, right)) = pairs.iter().min() else { return steps };
        match pair_classes(&fields[left].vectors, &fields[right].vectors, rules) {
            Some((classes, vectors)) => {
                let gone = fields.remove(right);
                let columns = [fields[left].column, gone.column];
                steps.push(Step { columns, width: gone.vectors.len(), classes });
                fields[left].vectors = vectors;
                fields[left].tried.clear();
                fields.iter_mut().for_each(|field| field.tried.retain(|&column| column != columns[0]));
            }
            None => {
                let column = fields[right].column;
                fields[left].tried.push(column);
            }
        }
    }
}

/// The classes of the pairs of classes of two fields; `None` when their vectors take too much memory.
fn pair_classes(left: &BitVectors, right: &BitVectors, rules: usize) -> Option<(Box<[u16]>, BitVectors)> {
    let most = (MOST_BYTES / (left.words() * size_of::<u64>())).clamp(256, MOST_CLASSES);
    let mut classes = Classes::new(rules);
    let mut both = vec![0; left.words()];
    let mut by_pair = Vec::with_capacity(left.len() * right.len());
    for left in left.iter() {
        for right in right.iter() {
            for ((both, left), right) in both.iter_mut().zip(left).zip(right) {
                *both = left & right;
            }
            by_pair.push(classes.of(&both, most)?);
        }
    }
    Some((by_pair.into(), classes.into_vectors()))
}
