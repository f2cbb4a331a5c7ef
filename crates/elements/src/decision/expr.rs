//! The expression tree that both languages are parsed into, its lowering to steps, and what it
//! means: [`Expr::eval`] is the definition that programs are tested against.

use super::{Base, Jump, Rule, Step};

/// One masked comparison of a word; the leaf of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Test {
    pub(super) base: Base,
    /// In bytes, a multiple of 4.
    pub(super) offset: u16,
    /// Bytes of the word that the packet must have.
    pub(super) need: u8,
    pub(super) mask: u32,
    pub(super) value: u32,
    /// What the test is of a packet that does not have them.
    pub(super) when_short: bool,
}

/// A condition on a packet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Expr {
    Always(bool),
    Test(Test),
    Not(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    /// `if .0[0].0 then .0[0].1 else if .0[1].0 then .. else .1`; a list, so that a long chain of
    /// `a ? b : c ? d : e` is not a deep tree.
    Choose(Vec<(Expr, Expr)>, Box<Expr>),
}

impl Expr {
    /// The negation that an operator such as `!=` makes: false, too, of packets that are too
    /// short to tell.
    pub(super) fn negated_operator(self) -> Expr {
        Expr::Not(Box::new(self.flip_short()))
    }

    fn flip_short(self) -> Expr {
        match self {
            Expr::Always(_) => self,
            Expr::Test(test) => Expr::Test(Test { when_short: !test.when_short, ..test }),
            Expr::Not(inner) => Expr::Not(Box::new(inner.flip_short())),
            Expr::And(parts) => Expr::And(parts.into_iter().map(Expr::flip_short).collect()),
            Expr::Or(parts) => Expr::Or(parts.into_iter().map(Expr::flip_short).collect()),
            Expr::Choose(arms, last) => Expr::Choose(
                arms.into_iter()
                    .map(|(condition, then)| (condition.flip_short(), then.flip_short()))
                    .collect(),
                Box::new(last.flip_short()),
            ),
        }
    }

    pub(super) fn not(self) -> Expr {
        match self {
            Expr::Always(always) => Expr::Always(!always),
            Expr::Not(inner) => *inner,
            other => Expr::Not(Box::new(other)),
        }
    }

    /// Conjunction; one part stands for itself, none is true.
    pub(super) fn all_of(mut parts: Vec<Expr>) -> Expr {
        match parts.len() {
            0 => Expr::Always(true),
            1 => parts.remove(0),
            _ => Expr::And(parts),
        }
    }

    /// Disjunction; one part stands for itself, none is false.
    pub(super) fn any_of(mut parts: Vec<Expr>) -> Expr {
        match parts.len() {
            0 => Expr::Always(false),
            1 => parts.remove(0),
            _ => Expr::Or(parts),
        }
    }

    /// How many leaves the tree has.
    pub(super) fn test_count(&self) -> usize {
        match self {
            Expr::Always(_) | Expr::Test(_) => 1,
            Expr::Not(inner) => inner.test_count(),
            Expr::And(parts) | Expr::Or(parts) => parts.iter().map(Expr::test_count).sum(),
            Expr::Choose(arms, last) => {
                let arms: usize = arms.iter().map(|(c, t)| c.test_count() + t.test_count()).sum();
                arms + last.test_count()
            }
        }
    }

    /// What the expression is where `is` says what each test is, by walking the tree.
    pub(super) fn eval(&self, is: &impl Fn(&Test) -> bool) -> bool {
        match self {
            Expr::Always(always) => *always,
            Expr::Test(test) => is(test),
            Expr::Not(inner) => !inner.eval(is),
            Expr::And(parts) => parts.iter().all(|part| part.eval(is)),
            Expr::Or(parts) => parts.iter().any(|part| part.eval(is)),
            Expr::Choose(arms, last) => match arms.iter().find(|(condition, _)| condition.eval(is)) {
                Some((_, then)) => then.eval(is),
                None => last.eval(is),
            },
        }
    }

    /// Calls `see` with each test.
    pub(super) fn tests(&self, see: &mut impl FnMut(&Test)) {
        match self {
            Expr::Always(_) => {}
            Expr::Test(test) => see(test),
            Expr::Not(inner) => inner.tests(see),
            Expr::And(parts) | Expr::Or(parts) => parts.iter().for_each(|part| part.tests(see)),
            Expr::Choose(arms, last) => {
                for (condition, then) in arms {
                    condition.tests(see);
                    then.tests(see);
                }
                last.tests(see);
            }
        }
    }
}

impl Test {
    #[cfg(test)]
    pub(super) fn eval(&self, packet: &impl Fn(Base, u16) -> Option<u8>) -> bool {
        let mut word = [0u8; 4];
        for i in 0..self.need {
            // The first two bytes of `Link` lie before the header; no mask looks at them.
            if self.base == Base::Link && self.offset + u16::from(i) < 2 {
                continue;
            }
            match packet(self.base, self.offset + u16::from(i)) {
                Some(byte) => word[usize::from(i)] = byte,
                None => return self.when_short,
            }
        }
        u32::from_be_bytes(word) & self.mask == self.value
    }
}

/// The steps for `rules`, first match first, and where to enter them. Every jump goes forward.
pub(super) fn lower(rules: &[Rule]) -> (Jump, Vec<Step>) {
    // Built from the end, since a step has to know what follows it; turned around afterwards.
    let mut backward = Vec::new();
    let mut next = Jump::Drop;
    for rule in rules.iter().rev() {
        next = emit(&rule.expr, rule.action, next, &mut backward);
    }
    let last = backward.len().wrapping_sub(1) as u32;
    let turn = |jump| if let Jump::Step(index) = jump { Jump::Step(last - index) } else { jump };
    let forward = backward.iter().rev().map(|s: &Step| Step { yes: turn(s.yes), no: turn(s.no), ..*s });
    (turn(next), forward.collect())
}

/// Appends the steps of `expr` with what comes last first, and returns where to enter them.
fn emit(expr: &Expr, yes: Jump, no: Jump, steps: &mut Vec<Step>) -> Jump {
    match expr {
        Expr::Always(true) => yes,
        Expr::Always(false) => no,
        Expr::Test(Test { mask: 0, need: 0, .. }) => yes,
        Expr::Test(t) => {
            let index = steps.len() as u32;
            let Test { base, offset, need, mask, value, when_short } = *t;
            steps.push(Step { base, offset, need, mask, value, yes, no, short_yes: when_short });
            Jump::Step(index)
        }
        Expr::Not(inner) => emit(inner, no, yes, steps),
        Expr::And(parts) => parts.iter().rev().fold(yes, |next, part| emit(part, next, no, steps)),
        Expr::Or(parts) => parts.iter().rev().fold(no, |next, part| emit(part, yes, next, steps)),
        Expr::Choose(arms, last) => {
            let mut next = emit(last, yes, no, steps);
            for (condition, then) in arms.iter().rev() {
                let then = emit(then, yes, no, steps);
                next = emit(condition, then, next, steps);
            }
            next
        }
    }
}
