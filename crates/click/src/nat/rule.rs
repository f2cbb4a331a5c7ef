//! What a rewriter does with packets of flows that it does not know: its INPUTSPECs.

use std::collections::HashMap;
use std::sync::Arc;

use graph::lang::split_words;
use graph::{Arguments, ConfigError, FromArgument, Setup};

use super::kind::Kind;
use super::mapper::{Mapper, MapperSlot};
use super::pattern::{Pattern, Share};

/// What becomes of a packet without a mapping.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Drop,
    Pass,
    Keep,
    Pattern(Arc<Pattern>),
    Mapper(Arc<MapperSlot>),
}

/// An INPUTSPEC.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) action: Action,
    /// Of packets, and of those the other way.
    pub(super) outputs: [u16; 2],
    /// The number under which its flows are counted.
    pub(super) owner: u16,
}

/// Patterns and what else a rule is read with.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) kind: Kind,
    pub(super) outputs: usize,
    share: Share,
    named: HashMap<String, Arc<Pattern>>,
}

/// The class whose elements name patterns.
pub(super) const PATTERNS_CLASS: &str = "IPRewriterPatterns";

/// The patterns that the arguments of an IPRewriterPatterns name; the same for all who ask, on one copy.
pub(super) fn named_patterns(
    setup: &Setup<'_>,
    element: &str,
    config: &str,
) -> Result<Vec<(String, Arc<Pattern>)>, ConfigError> {
    let share = Share::of(setup);
    let mut patterns: Vec<(String, Arc<Pattern>)> = Vec::new();
    let mut errors = Vec::new();
    for argument in Arguments::all_positional(config).rest() {
        let words = split_words(&argument);
        let Some((name, words)) = words.split_first() else { continue };
        if patterns.iter().any(|(known, _)| known == name) {
            errors.push(format!("pattern '{name}' is defined twice"));
            continue;
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let key = format!("IP rewriter pattern {name} of {element} on {}", share.index);
        match setup.shared().get_or_make(&key, || Pattern::parse(&words, share)) {
            Ok(pattern) => patterns.push((name.clone(), pattern)),
            Err(error) => errors.push(format!("pattern '{name}': {error}")),
        }
    }
    if errors.is_empty() { Ok(patterns) } else { Err(errors.into()) }
}

fn output(word: &str, what: &str) -> Result<u16, String> {
    u16::from_argument(word).ok_or_else(|| format!("bad {what} '{word}': expected the number of an output"))
}

impl Reader {
    /// For rules of the element being made, which has so many outputs.
    pub(super) fn new(setup: &Setup<'_>, kind: Kind, outputs: usize) -> Self {
        let mut named = HashMap::new();
        for element in setup.visible(PATTERNS_CLASS) {
            // What is wrong there is told there.
            for (name, pattern) in named_patterns(setup, &element.name, &element.config).unwrap_or_default() {
                named.entry(name).or_insert(pattern);
            }
        }
        Self { kind, outputs, share: Share::of(setup), named }
    }

    fn checked(&self, output: u16) -> Result<u16, String> {
        if usize::from(output) < self.outputs {
            return Ok(output);
        }
        Err(format!("output {output} is out of range: outputs are 0 to {}", self.outputs.saturating_sub(1)))
    }

    fn two_outputs(&self, words: &[&str]) -> Result<[u16; 2], String> {
        let [forward, reply] = words else {
            return Err("expected the outputs of packets and of replies".to_owned());
        };
        let forward = self.checked(output(forward, "forward output")?)?;
        Ok([forward, self.checked(output(reply, "reply output")?)?])
    }

    /// Reads a pattern, or the name of one, and two outputs.
    pub(super) fn pattern(&self, words: &[&str]) -> Result<(Arc<Pattern>, [u16; 2]), String> {
        let Some((words, outputs)) = words.split_last_chunk::<2>() else {
            return Err("expected a pattern and two outputs".to_owned());
        };
        let pattern = match words {
            [name] => {
                self.named.get(*name).cloned().ok_or_else(|| format!("there is no pattern named '{name}'"))?
            }
            words => Arc::new(Pattern::parse(words, self.share)?),
        };
        self.kind.accepts(&pattern)?;
        Ok((pattern, self.two_outputs(outputs)?))
    }

    /// Reads an INPUTSPEC; names of mappers only with `setup`. Its owner is 0.
    pub(super) fn rule(&self, setup: Option<&Setup<'_>>, text: &str) -> Result<Rule, String> {
        let words = split_words(text);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let Some((&word, rest)) = words.split_first() else { return Err("it is empty".to_owned()) };
        let (action, outputs) = match (word, rest) {
            ("drop" | "discard", []) => (Action::Drop, [0; 2]),
            ("pass" | "passthrough" | "nochange", []) => (Action::Pass, [self.checked(0)?; 2]),
            ("pass" | "passthrough" | "nochange", [word]) => {
                (Action::Pass, [self.checked(output(word, "output")?)?; 2])
            }
            ("keep", words) => (Action::Keep, self.two_outputs(words)?),
            ("pattern" | "xpattern", words) => {
                let (pattern, outputs) = self.pattern(words)?;
                (Action::Pattern(pattern), outputs)
            }
            (name, []) => match setup.and_then(|setup| Mapper::find(setup, name)) {
                Some(mapper) => (Action::Mapper(mapper.map_err(|error| error.to_string())?), [0; 2]),
                None => return Err(format!("'{name}' is neither a rule nor an IP mapper")),
            },
            _ => {
                return Err(format!(
                    "'{text}' is not a rule; expected drop, pass OUTPUT, keep FOUTPUT ROUTPUT, \
                     pattern PATTERN FOUTPUT ROUTPUT or the name of an IP mapper"
                ));
            }
        };
        Ok(Rule { action, outputs, owner: 0 })
    }
}
