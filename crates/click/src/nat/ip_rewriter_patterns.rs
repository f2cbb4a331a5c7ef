//! =c
//! IPRewriterPatterns(NAME PATTERN, ...)
//!
//! =s nat
//! names patterns for rewriters
//!
//! =d
//! Defines patterns, written as for IPRewriter without outputs, that rewriters and mappers in the same compound element
//! and in those inside can use by NAME. All that use one take ports from the same range, and in order where it is taken
//! in order.
//!
//! =e
//!   IPRewriterPatterns(to_server - - 10.0.0.4 80, from_us 192.0.2.1 1024-65535 - -);
//!   rw :: IPRewriter(pattern from_us 0 1, pattern to_server 1 0);
//!
//! =a IPRewriter, RoundRobinIPMapper

use graph::{Arguments, Class, Element};

use super::rule::named_patterns;

pub(crate) static CLASS: Class = Class {
    name: super::rule::PATTERNS_CLASS,
    ports: "0/0",
    manual: graph::manual!("ip_rewriter_patterns.rs"),
    make: |setup| {
        setup.arguments = Arguments::default();
        let patterns = named_patterns(setup, setup.name(), setup.config())?;
        if patterns.is_empty() {
            return Err("no patterns; expected 'NAME PATTERN'".to_owned().into());
        }
        Ok(Box::new(IPRewriterPatterns))
    },
    ..Class::DEFAULT
};

struct IPRewriterPatterns;

impl Element for IPRewriterPatterns {}
