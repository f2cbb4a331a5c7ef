//! Bit vectors over the rules of a list, and the classes that have them.
//!
//! What a rule asks of one field is a set of values. Values that the same rules accept are one *class*, and a
//! class has a vector in which bit `n` says whether rule `n` accepts it. The first rule that accepts a packet
//! is the lowest bit that is set in the vectors of all its fields (Lakshman and Stiliadis, "High-speed
//! policy-based packet forwarding using efficient multi-dimensional range matching", SIGCOMM 1998).

use std::collections::HashMap;

/// Bits of a word.
pub(super) const WORD: usize = 64;

/// A vector each class, one behind the other.
#[derive(Clone, Debug)]
pub(crate) struct BitVectors {
    /// Words of a vector.
    words: usize,
    bits: Vec<u64>,
}

impl BitVectors {
    /// No classes, of vectors for `rules` rules.
    pub(crate) fn new(rules: usize) -> Self {
        Self { words: rules.div_ceil(WORD).max(1), bits: Vec::new() }
    }

    /// Words of a vector.
    pub(crate) fn words(&self) -> usize {
        self.words
    }

    /// Number of classes.
    pub(crate) fn len(&self) -> usize {
        self.bits.len() / self.words
    }

    /// The vector of a class.
    pub(crate) fn get(&self, class: usize) -> &[u64] {
        &self.bits[class * self.words..(class + 1) * self.words]
    }

    /// Adds a class, whether there is one with this vector or not.
    pub(crate) fn push(&mut self, vector: &[u64]) {
        self.bits.extend_from_slice(vector);
    }

    /// All vectors, the first class first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u64]> {
        self.bits.chunks_exact(self.words)
    }
}

/// Sets or clears a bit.
pub(crate) fn set_bit(vector: &mut [u64], bit: usize, value: bool) {
    let mask = 1 << (bit % WORD);
    match value {
        true => vector[bit / WORD] |= mask,
        false => vector[bit / WORD] &= !mask,
    }
}

/// Gives vectors their classes, equal ones the same.
pub(crate) struct Classes {
    vectors: BitVectors,
    /// Classes by the hash of their vector, or, where that was taken, the next free number.
    by_hash: HashMap<u64, u16>,
}

impl Classes {
    /// No classes, of vectors for `rules` rules.
    pub(crate) fn new(rules: usize) -> Self {
        Self { vectors: BitVectors::new(rules), by_hash: HashMap::new() }
    }

    /// The class of a vector; `None` if there would be more than `most`.
    pub(crate) fn of(&mut self, vector: &[u64], most: usize) -> Option<u16> {
        let mix = |hash: u64, word: &u64| (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut hash = vector.iter().fold(0, mix);
        while let Some(&class) = self.by_hash.get(&hash) {
            if self.vectors.get(usize::from(class)) == vector {
                return Some(class);
            }
            hash = hash.wrapping_add(1);
        }
        let class = self.vectors.len();
        let number = u16::try_from(class).ok().filter(|_| class < most)?;
        self.vectors.push(vector);
        self.by_hash.insert(hash, number);
        Some(number)
    }

    /// The vectors of all classes.
    pub(crate) fn into_vectors(self) -> BitVectors {
        self.vectors
    }
}
