//! =c
//! RoundRobinIPMapper(PATTERN1 FOUTPUT1 ROUTPUT1, ..., PATTERNn FOUTPUTn ROUTPUTn)
//!
//! =s nat
//! rewrites flows by patterns in turn
//!
//! =d
//! Chooses, for a rewriter with its name as an INPUTSPEC, a pattern for each new flow: one after the other, passing over
//! those whose ports are all taken. Patterns are written as for IPRewriter, or named. Each worker takes its own turns.
//!
//! =e
//!   balance :: RoundRobinIPMapper(- - 10.0.0.4 - 0 1, - - 10.0.0.5 - 0 1);
//!   rw :: IPRewriter(balance, drop);
//!
//! =a IPRewriter, SourceIPHashMapper, IPRewriterPatterns

use std::sync::atomic::AtomicUsize;

use graph::lang::split_words;
use graph::{Arguments, Class, ConfigError, Element, Setup};

use super::kind::Kind;
use super::mapper::{Choice, Mapper};
use super::rule::Reader;

pub(crate) static CLASS: Class = Class {
    name: "RoundRobinIPMapper",
    ports: "0/0",
    manual: graph::manual!("round_robin_ip_mapper.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let texts = Arguments::all_positional(setup.config()).rest();
    setup.arguments = Arguments::default();
    // Which outputs there are is for the rewriters to say.
    let reader = Reader::new(setup, Kind::Both, usize::MAX);
    let (mut patterns, mut errors) = (Vec::new(), Vec::new());
    for (number, text) in texts.iter().enumerate() {
        let words = split_words(text);
        match reader.pattern(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
            Ok(pattern) => patterns.push(pattern),
            Err(error) => errors.push(format!("pattern {}: {error}", number + 1)),
        }
    }
    if texts.is_empty() {
        errors.push("no patterns; expected 'PATTERN FOUTPUT ROUTPUT'".to_owned());
    }
    if !errors.is_empty() {
        return Err(errors.into());
    }
    Mapper { patterns, choice: Choice::RoundRobin(AtomicUsize::new(0)) }.publish(setup)?;
    Ok(Box::new(RoundRobinIPMapper))
}

struct RoundRobinIPMapper;

impl Element for RoundRobinIPMapper {}
