//! =c
//! SourceIPHashMapper(NODES SEED, PATTERN1 FOUTPUT1 ROUTPUT1 ID1, ..., PATTERNn FOUTPUTn ROUTPUTn IDn)
//!
//! =s nat
//! rewrites flows by patterns chosen by their source
//!
//! =d
//! Chooses, for a rewriter with its name as an INPUTSPEC, a pattern for each new flow by consistent hashing of the source
//! address: flows of a host get the same pattern, and where a pattern comes or goes, most others keep theirs. Each
//! pattern has an ID, which stands for it at NODES points of the hash's circle; SEED is any number. Patterns are written
//! as for IPRewriter, or named.
//!
//! All workers choose alike. The hash is not Click's.
//!
//! =e
//!   balance :: SourceIPHashMapper(64 7, - - 10.0.0.4 - 0 1 101, - - 10.0.0.5 - 0 1 102);
//!   rw :: IPRewriter(balance, drop);
//!
//! =a IPRewriter, RoundRobinIPMapper, IPRewriterPatterns

use graph::lang::split_words;
use graph::{Arguments, Class, ConfigError, Element, FromArgument, Setup};

use super::kind::Kind;
use super::mapper::{Choice, Mapper, mix};
use super::rule::Reader;

pub(crate) static CLASS: Class = Class {
    name: "SourceIPHashMapper",
    ports: "0/0",
    manual: graph::manual!("source_ip_hash_mapper.rs"),
    make,
    ..Class::DEFAULT
};

/// Most points of all patterns.
const MOST_POINTS: usize = 1 << 20;

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let texts = Arguments::all_positional(setup.config()).rest();
    setup.arguments = Arguments::default();
    let Some((first, texts)) = texts.split_first().filter(|(_, texts)| !texts.is_empty()) else {
        return Err("expected 'NODES SEED' and patterns".to_owned().into());
    };
    let (nodes, seed) = match split_words(first).as_slice() {
        [nodes, seed] => (u32::from_argument(nodes), u32::from_argument(seed)),
        _ => (None, None),
    };
    let (Some(nodes @ 1..), Some(seed)) = (nodes, seed) else {
        return Err(format!("expected 'NODES SEED', two numbers, got '{first}'").into());
    };
    if nodes as usize > MOST_POINTS / texts.len() {
        return Err(
            format!("NODES: expected at most {} of so many patterns", MOST_POINTS / texts.len()).into()
        );
    }
    let reader = Reader::new(setup, Kind::Both, usize::MAX);
    let (mut patterns, mut points, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for (number, text) in texts.iter().enumerate() {
        let words = split_words(text);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let pattern = match words.split_last() {
            Some((id, words)) => match u32::from_argument(id) {
                Some(id) => reader.pattern(words).map(|pattern| (pattern, id)),
                None => Err(format!("bad ID '{id}': expected a number")),
            },
            None => Err("it is empty".to_owned()),
        };
        match pattern {
            Ok((pattern, id)) => {
                let start = mix(id ^ mix(seed));
                points.extend((0..nodes).map(|node| (mix(start.wrapping_add(mix(node))), patterns.len())));
                patterns.push(pattern);
            }
            Err(error) => errors.push(format!("pattern {}: {error}", number + 1)),
        }
    }
    if !errors.is_empty() {
        return Err(errors.into());
    }
    points.sort_unstable();
    Mapper { patterns, choice: Choice::SourceHash(points) }.publish(setup)?;
    Ok(Box::new(SourceIPHashMapper))
}

struct SourceIPHashMapper;

impl Element for SourceIPHashMapper {}
