//! The patterns of `Classifier`.
//!
//! A pattern is a list of clauses with spaces between them, all of which must hold; `-` alone (or
//! nothing) matches every packet. A clause is `OFFSET/VALUE` or `OFFSET/VALUE%MASK`:
//!
//! - OFFSET counts bytes from the start of the packet's data, in decimal;
//! - VALUE is hexadecimal, two digits a byte; `?` is a digit that may be anything;
//! - MASK has as many digits as VALUE; only bits that are 1 in it count;
//! - `!` before a clause negates it.
//!
//! A clause needs the bytes it looks at: it is false of a packet that ends before the last of
//! them, and its negation is true.
//!
//! ```
//! use elements::decision::Program;
//! let patterns = ["12/0806 20/0001", "12/0806 20/0002", "12/0800", "-"].map(String::from);
//! let (program, warnings) = Program::classifier(&patterns).unwrap();
//! assert!(warnings.is_empty());
//! let mut frame = [0; 60];
//! frame[12..14].copy_from_slice(&[0x08, 0x00]);
//! assert_eq!(program.run(&frame, 14, 34), Some(2));
//! ```

use super::expr::{Expr, Test};
use super::{Base, Jump, Rule, excerpt};

/// Offset of the last byte that a clause may look at.
const LAST_OFFSET: usize = 65_531;

pub(super) fn parse(patterns: &[String]) -> Result<Vec<Rule>, Vec<String>> {
    let mut rules = Vec::with_capacity(patterns.len());
    let mut errors = Vec::new();
    for (i, text) in patterns.iter().enumerate() {
        match parse_pattern(text.trim()) {
            Ok(expr) => rules.push(Rule { expr, action: Jump::Output(i as u32) }),
            Err(faults) => errors
                .extend(faults.into_iter().map(|f| format!("pattern {i}: {f} (in '{}')", excerpt(text)))),
        }
    }
    if errors.is_empty() { Ok(rules) } else { Err(errors) }
}

fn parse_pattern(text: &str) -> Result<Expr, Vec<String>> {
    if text == "-" {
        return Ok(Expr::Always(true));
    }
    let mut clauses = Vec::new();
    let mut errors = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let negated = rest.starts_with('!');
        if negated {
            rest = rest[1..].trim_start();
        }
        // As in Click, a clause ends where its text can no longer be part of it; no space is needed.
        match parse_clause(&mut rest) {
            Ok(clause) if negated => clauses.push(clause.not()),
            Ok(clause) => clauses.push(clause),
            Err(fault) => {
                errors.push(fault);
                // Read on at the next word, to find the other errors of this pattern as well.
                rest = rest.find(char::is_whitespace).map_or("", |space| &rest[space..]);
            }
        }
        rest = rest.trim_start();
    }
    if errors.is_empty() { Ok(Expr::all_of(clauses)) } else { Err(errors) }
}

/// Takes what `wanted` is true of off the start of `rest`.
fn take<'a>(rest: &mut &'a str, wanted: impl Fn(char) -> bool) -> &'a str {
    let end = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
    let (taken, left) = rest.split_at(end);
    *rest = left;
    taken
}

fn parse_clause(rest: &mut &str) -> Result<Expr, String> {
    let clause = *rest;
    let is_nibble = |c: char| c.is_ascii_hexdigit() || c == '?';
    let digits = take(rest, |c| c.is_ascii_digit());
    if digits.is_empty() {
        let word = clause.split_whitespace().next().unwrap_or("");
        return Err(format!("expected a digit, got '{}'; a clause is OFFSET/VALUE[%MASK]", excerpt(word)));
    }
    let Some(after) = rest.strip_prefix('/') else {
        return Err(format!("expected '/' after offset {}, as in 12/0800", excerpt(digits)));
    };
    *rest = after;
    let value = take(rest, is_nibble);
    let mask = match rest.strip_prefix('%') {
        Some(after) => {
            *rest = after;
            Some(take(rest, is_nibble))
        }
        None => None,
    };
    let shown = excerpt(&clause[..clause.len() - rest.len()]);
    if value.len() < 2 {
        return Err(format!("value has less than 2 hex digits in '{shown}'; write two for each byte"));
    }
    if !value.len().is_multiple_of(2) {
        return Err(format!("value has odd number of hex digits in '{shown}'; write two for each byte"));
    }
    if let Some(mask) = mask
        && mask.len() != value.len()
    {
        let fault = if mask.len() > value.len() { "many" } else { "few" };
        return Err(format!(
            "mask has too {fault} hex digits in '{shown}'; expected {}, like the value",
            value.len()
        ));
    }
    let offset = digits.parse::<usize>().unwrap_or(usize::MAX);
    if offset.saturating_add(value.len() / 2) > LAST_OFFSET + 1 {
        return Err(format!(
            "offset out of range in '{shown}'; expected the last byte at {LAST_OFFSET} or before"
        ));
    }

    let mut tests: Vec<Test> = Vec::new();
    let mask = mask.unwrap_or("").as_bytes();
    for (i, pair) in value.as_bytes().chunks_exact(2).enumerate() {
        let (value, mut bits) = byte(pair);
        if let Some(pair) = mask.get(2 * i..2 * i + 2) {
            // '?' in a mask means bits that do not count, too.
            bits &= byte(pair).0;
        }
        if bits == 0 {
            continue;
        }
        let (word, place) = ((offset + i) & !3, (offset + i) & 3);
        let shift = 24 - 8 * place as u32;
        if tests.last().is_none_or(|t| usize::from(t.offset) != word) {
            let (base, offset) = (Base::Data, word as u16);
            tests.push(Test { base, offset, need: 0, mask: 0, value: 0, when_short: false });
        }
        let test = tests.last_mut().expect("a test was just pushed if there was none");
        test.mask |= u32::from(bits) << shift;
        test.value |= u32::from(value & bits) << shift;
        test.need = place as u8 + 1;
    }
    Ok(Expr::all_of(tests.into_iter().map(Expr::Test).collect()))
}

/// Value and mask of a byte of two digits.
fn byte(pair: &[u8]) -> (u8, u8) {
    pair.iter().fold((0, 0), |(value, mask), &digit| match (digit as char).to_digit(16) {
        Some(nibble) => (value << 4 | nibble as u8, mask << 4 | 0xf),
        None => (value << 4, mask << 4),
    })
}
