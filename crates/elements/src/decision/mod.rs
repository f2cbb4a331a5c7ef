//! Decision programs: how `Classifier`, `IPClassifier` and `IPFilter` choose an output.
//!
//! Text becomes a tree of conditions, the tree becomes a list of [`Step`]s (a directed
//! acyclic graph whose jumps only go forward), the list is optimised, and the result is compiled
//! once more into the form that runs. Each stage has a file:
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`pattern`] | the text of `Classifier` patterns |
//! | [`ip_expression`] | the expression language of `IPClassifier`, and the rules of `IPFilter` on top |
//! | `ip_words` | its words: numbers, addresses, keywords |
//! | `ip_primitive` | one `src tcp port > 1023` of that language: its checks, its tests |
//! | [`ip_names`] | names of ports, protocols, ICMP types; the hook for `AddressInfo` names |
//! | `expr` | the tree, its lowering to steps, its direct interpretation |
//! | `optimise` | redundant tests out, tests on one word merged, shared tails |
//! | `fields`, `by_fields` | programs of many rules: the first that holds by the values of fields |
//! | `dispatch` | what [`Program::run`] walks: one load for all tests of one word |
//!
//! **Short packets.** A test needs the bytes of the field it looks at ([`Step::need`]). Where the
//! packet ends before that, the primitive does not match, whatever its operator: both
//! `transp[1] = 0` and `transp[1] != 0` are false, and `not (transp[1] = 0)` is true. That is
//! Click's rule; `ip frag` alone is true of a header too short to tell, also as in Click.
//! A port needs the whole word of both ports, so that tests of either combine exactly.
//!
//! After Begel, McCanne, Graham, "BPF+: Exploiting Global Data-Flow Optimization in a Generalized
//! Packet Filter Architecture" (SIGCOMM 1999), and Kohler et al., "Programming Language
//! Optimizations for Modular Router Configurations" (ASPLOS 2002).

mod by_fields;
mod dispatch;
#[cfg(test)]
mod examples;
mod expr;
mod fields;
pub mod ip_expression;
pub mod ip_names;
mod ip_primitive;
mod ip_words;
mod optimise;
pub mod pattern;
#[cfg(test)]
mod properties;

use std::fmt;
use std::sync::Arc;

pub use by_fields::{ByFields, Room, View};
use dispatch::Dispatch;
pub use dispatch::Shortcut;
use expr::Expr;

/// Steps on the longest way through a program beyond which it is worth while to decide by fields: what these cost with a
/// full batch is about what fifteen steps cost, and few packets go the longest way.
const MOST_STEPS: usize = 24;

/// What a step's offset counts from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Base {
    /// The first byte of the packet's data.
    Data,
    /// Two bytes before the Ethernet header, so that the network header that follows it is aligned.
    /// The Ethernet header is taken to lie in the 14 bytes before the network header.
    Link,
    /// The first byte of the IP header.
    Network,
    /// The first byte after the IP header and its options.
    Transport,
}

impl Base {
    /// The number that offsets from this base start at in the text of a program, as in Click.
    fn printed_origin(self) -> u32 {
        match self {
            Base::Data | Base::Link => 0,
            Base::Network => 256,
            Base::Transport => 512,
        }
    }
}

/// Where a step leads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Jump {
    /// To the step with this index, always a higher one.
    Step(u32),
    /// The decision is made: this output.
    Output(u32),
    /// The decision is made: no output.
    Drop,
}

impl Jump {
    fn step(self) -> Option<usize> {
        match self {
            Jump::Step(index) => Some(index as usize),
            Jump::Output(_) | Jump::Drop => None,
        }
    }
}

impl fmt::Display for Jump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Jump::Step(index) => write!(f, "step {index}"),
            Jump::Output(output) => write!(f, "[{output}]"),
            Jump::Drop => write!(f, "[X]"),
        }
    }
}

/// One test: `load(base + offset) & mask == value`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Step {
    /// What `offset` counts from.
    pub base: Base,
    /// Offset in bytes of the big-endian 32-bit word, a multiple of 4.
    pub offset: u16,
    /// How many bytes of the word the packet must have for the test to be made, 0 to 4. It is 0
    /// only where `mask` is 0 as well: the test that is always true.
    pub need: u8,
    /// Bits of the word that count.
    pub mask: u32,
    /// What they must be; has no bit outside `mask`.
    pub value: u32,
    /// Where to go if they are.
    pub yes: Jump,
    /// Where to go if they are not.
    pub no: Jump,
    /// Where to go if the packet is too short: `yes` if true, else `no`.
    pub short_yes: bool,
}

impl Step {
    /// Bytes that the packet must have from `base` on for this test to be made.
    fn required(&self) -> u32 {
        if self.need == 0 { 0 } else { u32::from(self.offset) + u32::from(self.need) }
    }

    fn same_word(&self, other: &Step) -> bool {
        self.base == other.base && self.offset == other.offset
    }

    fn on_short(&self) -> Jump {
        if self.short_yes { self.yes } else { self.no }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = self.base.printed_origin() + u32::from(self.offset);
        write!(f, "{offset:3}/{:08x}%{:08x}  yes->{}  no->{}", self.value, self.mask, self.yes, self.no)?;
        if self.short_yes { write!(f, "  short->yes") } else { Ok(()) }
    }
}

/// What a compilation returns: the program and its warnings, or every error of the text.
pub type Compiled = Result<(Program, Vec<String>), Vec<String>>;

/// The most tests that the patterns of one element may hold together before optimisation; a bound
/// on what a configuration can make the compiler do.
pub const MAX_TESTS: usize = 200_000;

/// A decision program, ready to run. Made by [`Program::classifier`], [`Program::ip_classifier`]
/// or [`Program::ip_filter`].
#[derive(Clone, Debug)]
pub struct Program {
    entry: Jump,
    steps: Vec<Step>,
    dispatch: Dispatch,
    by_fields: Option<Arc<ByFields>>,
}

impl Program {
    /// Compiles the patterns of a `Classifier`; output `i` is for `patterns[i]`. The language is
    /// described in [`pattern`].
    pub fn classifier(patterns: &[String]) -> Compiled {
        let rules = pattern::parse(patterns)?;
        let program = Program::from_rules(&rules)?;
        let warnings = program.unused_output_warnings(patterns);
        Ok((program, warnings))
    }

    /// Compiles the expressions of an `IPClassifier`; output `i` is for `expressions[i]`. The
    /// language is described in [`ip_expression`].
    pub fn ip_classifier(expressions: &[String]) -> Compiled {
        Program::ip_classifier_with(expressions, &ip_names::Configured)
    }

    /// Like [`Program::ip_classifier`], with names of hosts, networks and ports from `names`.
    pub fn ip_classifier_with(expressions: &[String], names: &dyn ip_names::Names) -> Compiled {
        let (rules, mut warnings) = ip_expression::parse_expressions(expressions, names)?;
        let program = Program::from_rules(&rules)?;
        warnings.extend(program.unused_output_warnings(expressions));
        Ok((program, warnings))
    }

    /// Compiles the rules of an `IPFilter`, `allow|deny|drop|OUTPUT EXPRESSION`; the first rule
    /// that matches decides, and a packet that none matches is dropped.
    pub fn ip_filter(rules: &[String]) -> Compiled {
        Program::ip_filter_with(rules, None, &ip_names::Configured)
    }

    /// Like [`Program::ip_filter`], with names from `names`; `outputs` is the element's number of
    /// outputs, where known, so that a rule for an output that does not exist is an error.
    pub fn ip_filter_with(rules: &[String], outputs: Option<u32>, names: &dyn ip_names::Names) -> Compiled {
        let (rules, warnings) = ip_expression::parse_rules(rules, outputs, names)?;
        Ok((Program::from_rules(&rules)?, warnings))
    }

    /// Which output a packet goes to; `None` is for a packet that no pattern matches or that a
    /// rule drops. `data` is the whole packet, `network` the offset in it of the IP header,
    /// `transport` that of the transport header. A `Classifier` program uses neither offset. Any
    /// bytes and offsets are fine: what lies outside of `data` is a short packet.
    #[inline]
    pub fn run(&self, data: &[u8], network: usize, transport: usize) -> Option<u32> {
        self.dispatch.run(data, network, transport)
    }

    /// The same program in the form for many rules, where it has so many that this is worth while.
    pub fn by_fields(&self) -> Option<&ByFields> {
        self.by_fields.as_deref()
    }

    /// One comparison at the start of the data that decides at once, if the program has one. Where it does not hold
    /// the program has to be run.
    pub fn shortcut(&self) -> Option<Shortcut> {
        self.dispatch.shortcut
    }

    /// The same comparison with another value, and what that decides. A packet for which it holds is not one of
    /// [`Program::shortcut`].
    pub fn second_shortcut(&self) -> Option<Shortcut> {
        self.dispatch.second
    }

    /// The optimised steps; empty where every packet goes the same way (see [`Program::entry`]).
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Where every packet starts: the first step, or the decision itself if there is nothing to
    /// test.
    pub fn entry(&self) -> Jump {
        self.entry
    }

    /// Whether some packet can leave by `output`.
    pub fn uses_output(&self, output: u32) -> bool {
        let wanted = Jump::Output(output);
        self.entry == wanted || self.steps.iter().any(|s| s.yes == wanted || s.no == wanted)
    }

    /// The outputs of the program's jumps, plus one: how many outputs it can send to.
    pub fn output_count(&self) -> u32 {
        let jumps = self.steps.iter().flat_map(|s| [s.yes, s.no]).chain([self.entry]);
        let outputs =
            jumps.filter_map(|j| if let Jump::Output(output) = j { Some(output + 1) } else { None });
        outputs.max().unwrap_or(0)
    }

    /// Optimises and compiles `rules`: the first expression that is true of a packet decides.
    fn from_rules(rules: &[Rule]) -> Result<Program, Vec<String>> {
        let tests = rules.iter().fold(0usize, |sum, rule| sum.saturating_add(rule.expr.test_count()));
        if tests > MAX_TESTS {
            return Err(vec![format!(
                "{tests} tests in {} patterns; at most {MAX_TESTS} tests fit in one element",
                rules.len()
            )]);
        }
        let (entry, steps) = expr::lower(rules);
        let (entry, steps) = optimise::optimise(entry, steps);
        let mut program = Program::from_steps(entry, steps);
        if program.dispatch.depth() > MOST_STEPS {
            program.by_fields = ByFields::compile(rules).map(Arc::new);
        }
        Ok(program)
    }

    fn from_steps(entry: Jump, steps: Vec<Step>) -> Program {
        let dispatch = Dispatch::compile(entry, &steps);
        Program { entry, steps, dispatch, by_fields: None }
    }

    fn unused_output_warnings(&self, patterns: &[String]) -> Vec<String> {
        let mut used = vec![false; patterns.len()];
        for jump in self.steps.iter().flat_map(|s| [s.yes, s.no]).chain([self.entry]) {
            if let Jump::Output(output) = jump
                && let Some(slot) = used.get_mut(output as usize)
            {
                *slot = true;
            }
        }
        let unused = used.iter().zip(patterns).enumerate().filter(|(_, (used, _))| !**used);
        unused.map(|(i, (_, text))| format!("output {i} matches no packets ('{}')", excerpt(text))).collect()
    }
}

impl fmt::Display for Program {
    /// The text of Click's `program` handler.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.steps.iter().enumerate() {
            writeln!(f, "{i:2} {step}")?;
        }
        if self.steps.is_empty() {
            writeln!(f, "all->{}", self.entry)?;
        }
        let ends = self.steps.iter().map(|s| match s.required() {
            0 => 0,
            required => s.base.printed_origin() + required,
        });
        writeln!(f, "safe length {}", ends.max().unwrap_or(0))?;
        // Loads need no alignment here; the line is there for tools that read Click's output.
        writeln!(f, "alignment offset 0")
    }
}

/// An expression and what to do with the packets it is true of.
#[derive(Clone, Debug)]
struct Rule {
    expr: Expr,
    action: Jump,
}

/// `text` for an error message: on one line, not too long.
fn excerpt(text: &str) -> String {
    const LONGEST: usize = 60;
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}
