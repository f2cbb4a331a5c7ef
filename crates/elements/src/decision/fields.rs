//! Rules as what they ask of single fields: the first half of `by_fields`.
//!
//! A *field* is a run of bytes of one word that the same tests look at: an address, a port, a protocol. Each rule becomes
//! one or more *terms*, a term asking something of some fields and all of it having to hold; what a term asks of one field
//! may be as complicated as it likes (`1024-65535`, `not 80`), because there it is a set of values.

use std::collections::{BTreeMap, HashMap};

use super::expr::{Expr, Test};
use super::{Base, Jump, Rule};
use crate::first_match::{COLUMNS, MAX_RULES};

/// Terms of one rule.
const MOST_TERMS: usize = 64;
/// Arms of a `?:` that are taken apart.
const MOST_ARMS: usize = 16;

/// Bytes of a word that are looked at together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) base: Base,
    /// Of the word, as in tests.
    pub(super) offset: u16,
    /// Bytes of the word that the packet must have.
    pub(super) need: u8,
    /// The first and last byte of it in the word.
    first: usize,
    last: usize,
}

impl Field {
    /// Bits below the field in its word.
    pub(super) fn shift(&self) -> u32 {
        8 * (3 - self.last) as u32
    }

    /// Bytes: 1, 2 or 4.
    pub(super) fn width(&self) -> usize {
        self.last + 1 - self.first
    }

    /// The highest value.
    pub(super) fn highest(&self) -> u32 {
        u32::MAX >> (8 * (4 - self.width()))
    }

    fn is_of(&self, test: &Test) -> bool {
        let lowest = 3 - test.mask.trailing_zeros() as usize / 8;
        self.base == test.base && self.offset == test.offset && (self.first..=self.last).contains(&lowest)
    }
}

/// What a term asks of a field.
#[derive(Clone, Debug)]
struct Atom {
    field: usize,
    asks: Expr,
}

/// Conditions that must all hold, and then what to do.
#[derive(Clone, Debug)]
pub(super) struct Term {
    /// By field; what is not there asks nothing.
    pub(super) asks: BTreeMap<usize, Expr>,
    pub(super) action: Jump,
}

/// The fields of rules, and their terms in the order of the rules. `None` where they have too many.
pub(super) fn take_apart(rules: &[Rule]) -> Option<(Vec<Field>, Vec<Term>)> {
    let fields = fields(rules)?;
    let mut terms = Vec::new();
    for rule in rules {
        for atoms in conjunctions(&rule.expr, true, &fields)? {
            let mut asks: BTreeMap<usize, Expr> = BTreeMap::new();
            for atom in atoms {
                let both = match asks.remove(&atom.field) {
                    Some(known) => Expr::And(vec![known, atom.asks]),
                    None => atom.asks,
                };
                asks.insert(atom.field, both);
            }
            terms.push(Term { asks, action: rule.action });
        }
        if terms.len() > MAX_RULES {
            return None;
        }
    }
    Some((fields, terms))
}

/// The fields that rules look at. `None` where tests of one field need different numbers of bytes, so that a packet may be
/// too short for some of them.
fn fields(rules: &[Rule]) -> Option<Vec<Field>> {
    let mut words: BTreeMap<(Base, u16), Vec<Field>> = BTreeMap::new();
    let mut fits = true;
    for rule in rules {
        rule.expr.tests(&mut |test| {
            if test.mask == 0 {
                // True of every packet, or of every one that is long enough, which is not a field.
                fits &= test.need == 0;
                return;
            }
            let (first, last) =
                (test.mask.leading_zeros() as usize / 8, 3 - test.mask.trailing_zeros() as usize / 8);
            let field = Field { base: test.base, offset: test.offset, need: test.need, first, last };
            let word = words.entry((test.base, test.offset)).or_default();
            if !word.contains(&field) {
                word.push(field);
            }
        });
    }
    let mut fields = Vec::new();
    for mut word in words.into_values() {
        // Fields that have bytes in common are one, and three bytes are the whole word.
        let mut disjoint: Vec<Field> = Vec::new();
        while let Some(mut field) = word.pop() {
            if field.width() == 3 {
                (field.first, field.last) = (0, 3);
            }
            match disjoint.iter().position(|other| other.first <= field.last && field.first <= other.last) {
                None => disjoint.push(field),
                Some(other) => {
                    let other = disjoint.swap_remove(other);
                    fits &= other.need == field.need;
                    (field.first, field.last) = (field.first.min(other.first), field.last.max(other.last));
                    word.push(field);
                }
            }
        }
        fields.extend(disjoint);
    }
    (fits && fields.len() <= COLUMNS).then_some(fields)
}

/// Which fields an expression is about.
enum About {
    Nothing,
    Field(usize),
    Several,
}

fn about(expr: &Expr, fields: &[Field]) -> About {
    let mut about = About::Nothing;
    expr.tests(&mut |test| {
        let field = fields.iter().position(|field| test.mask != 0 && field.is_of(test));
        about = match (&about, field) {
            (About::Nothing, Some(field)) => About::Field(field),
            (About::Field(known), Some(field)) if *known != field => About::Several,
            (About::Nothing, None) => About::Nothing,
            (About::Field(known), _) => About::Field(*known),
            (About::Several, _) => About::Several,
        };
    });
    about
}

/// Conditions of which one holds where `expr` is `wanted`, each a list of what must hold. `None` where there are too many.
fn conjunctions(expr: &Expr, wanted: bool, fields: &[Field]) -> Option<Vec<Vec<Atom>>> {
    match about(expr, fields) {
        About::Nothing => {
            let holds = expr.eval(&|_| true) == wanted;
            return Some(if holds { vec![Vec::new()] } else { Vec::new() });
        }
        About::Field(field) => {
            let asks = if wanted { expr.clone() } else { Expr::Not(Box::new(expr.clone())) };
            return Some(vec![vec![Atom { field, asks }]]);
        }
        About::Several => {}
    }
    match expr {
        Expr::Not(inner) => conjunctions(inner, !wanted, fields),
        Expr::And(parts) if wanted => product(parts, wanted, fields),
        Expr::Or(parts) if !wanted => product(parts, wanted, fields),
        Expr::And(parts) | Expr::Or(parts) => sum(parts, wanted, fields),
        Expr::Choose(arms, last) if arms.len() <= MOST_ARMS => {
            let chosen = arms.iter().rev().fold((**last).clone(), |otherwise, (condition, then)| {
                let first = Expr::And(vec![condition.clone(), then.clone()]);
                let second = Expr::And(vec![condition.clone().not(), otherwise]);
                Expr::Or(vec![first, second])
            });
            conjunctions(&chosen, wanted, fields)
        }
        // A test by itself is about one field.
        Expr::Choose(..) | Expr::Always(_) | Expr::Test(_) => None,
    }
}

/// All parts hold.
fn product(parts: &[Expr], wanted: bool, fields: &[Field]) -> Option<Vec<Vec<Atom>>> {
    let mut all: Vec<Vec<Atom>> = vec![Vec::new()];
    for part in parts {
        let more = conjunctions(part, wanted, fields)?;
        if all.len() * more.len() > MOST_TERMS {
            return None;
        }
        all = all.iter().flat_map(|left| more.iter().map(move |right| [&left[..], right].concat())).collect();
    }
    Some(all)
}

/// One of the parts holds; those about the same field are asked together.
fn sum(parts: &[Expr], wanted: bool, fields: &[Field]) -> Option<Vec<Vec<Atom>>> {
    let mut by_field: BTreeMap<usize, Vec<Expr>> = BTreeMap::new();
    let mut all = Vec::new();
    for part in parts {
        match about(part, fields) {
            About::Field(field) => {
                let asks = if wanted { part.clone() } else { Expr::Not(Box::new(part.clone())) };
                by_field.entry(field).or_default().push(asks);
            }
            About::Nothing | About::Several => all.extend(conjunctions(part, wanted, fields)?),
        }
    }
    let together = by_field.into_iter().map(|(field, asks)| vec![Atom { field, asks: Expr::any_of(asks) }]);
    all.extend(together);
    (all.len() <= MOST_TERMS).then_some(all)
}

/// Where, from the lowest value of a field up, a condition begins to hold and ends, and what it is of a packet that is too
/// short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Values {
    /// Values from which on it is what it was not before; from zero on it is false unless zero is here.
    pub(super) changes: Vec<u32>,
    pub(super) when_short: bool,
}

/// The values of a field that conditions ask for; remembers what it was asked before.
pub(super) struct ValuesOf<'a> {
    field: &'a Field,
    known: HashMap<&'a Expr, Option<Values>>,
}

impl<'a> ValuesOf<'a> {
    pub(super) fn new(field: &'a Field) -> Self {
        Self { field, known: HashMap::new() }
    }

    /// `None` where they are too many to list: a test of scattered bits of four bytes.
    pub(super) fn of(&mut self, asks: &'a Expr) -> Option<Values> {
        let field = self.field;
        self.known.entry(asks).or_insert_with(|| values(field, asks)).clone()
    }
}

fn values(field: &Field, asks: &Expr) -> Option<Values> {
    let (shift, highest) = (field.shift(), field.highest());
    let is_true = |value: u32| {
        let word = value << shift;
        asks.eval(&|test| word & test.mask == test.value)
    };
    // Where a test of a prefix may change: at its first value, and behind its last.
    let mut places = vec![0];
    let mut all_prefixes = true;
    asks.tests(&mut |test| {
        let (mask, value) = (test.mask >> shift & highest, test.value >> shift & highest);
        let wildcards = !mask & highest;
        all_prefixes &= wildcards & wildcards.wrapping_add(1) == 0;
        places.push(value);
        places.extend((value | wildcards).checked_add(1).filter(|&next| next <= highest));
    });
    if !all_prefixes {
        if field.width() > 2 {
            return None;
        }
        places = (0..=highest).collect();
    }
    places.sort_unstable();
    places.dedup();
    let mut before = false;
    places.retain(|&place| {
        let now = is_true(place);
        std::mem::replace(&mut before, now) != now
    });
    Some(Values { changes: places, when_short: asks.eval(&|test| test.when_short) })
}
