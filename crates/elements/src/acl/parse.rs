//! Rules from text.
//!
//! ```text
//! [SEQUENCE] permit|deny [ipv4|ipv6] PROTOCOL|any FROM [port A[-B]] TO [port A[-B]]
//!            [in INTERFACE] [icmp-type TYPE[/CODE]] [established] [fragment]
//! ```
//!
//! One rule a line; `#` begins a comment. Every error names the word and what was expected.

use std::net::IpAddr;

use graph::lang::printable;
use ipnet::IpNet;

use packet::IpVersion;

use super::rule::{Action, Inputs, PortRange, Rule, has_ports, only_version, protocol_number, version_word};

pub(super) use crate::first_match::MAX_RULES;

/// The distance of rules that have no sequence number of their own.
const STEP: u32 = 10;

/// The lines of a text, each with its place in words.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (String, &str)> {
    text.lines().enumerate().map(|(index, line)| (format!("line {}", index + 1), line))
}

/// A mistake in a list of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleMistake {
    /// The number of the line that has it, from 0.
    pub line: usize,
    /// The place of the line, what is wrong with it, and what was expected.
    pub text: String,
}

/// Most mistakes of a list that are reported.
const MOST_REPORTED: usize = 20;

impl RuleMistake {
    /// Returns the texts of mistakes; behind a number of them, how many more there are.
    pub fn texts(mistakes: Vec<RuleMistake>) -> Vec<String> {
        let more = mistakes.len().saturating_sub(MOST_REPORTED);
        let texts = mistakes.into_iter().take(MOST_REPORTED).map(|mistake| mistake.text);
        texts.chain((more > 0).then(|| format!("{more} more mistakes"))).collect()
    }
}

/// Reads a whole list, of lines and the place of each. The rules are in the order of their sequence numbers,
/// of which no two are equal.
pub(super) fn parse_list<'a>(
    lines: impl Iterator<Item = (String, &'a str)>,
    inputs: &Inputs,
) -> Result<Vec<Rule>, Vec<RuleMistake>> {
    let mut rules: Vec<(Rule, usize, String)> = Vec::new();
    let mut mistakes = Vec::new();
    let mut before = 0;
    for (number, (place, line)) in lines.enumerate() {
        match parse_rule(line, before, inputs) {
            Ok(Some(rule)) => {
                before = rule.sequence;
                rules.push((rule, number, place));
            }
            Ok(None) => {}
            Err(mistake) => {
                mistakes.push(RuleMistake { line: number, text: format!("{place}: {mistake}") });
            }
        }
    }
    if let Some((_, line, place)) = rules.get(MAX_RULES) {
        let text = format!("{place}: {} rules are too many; expected at most {MAX_RULES}", rules.len());
        mistakes.push(RuleMistake { line: *line, text });
    }
    // Stable: of two equal numbers the second in the text comes second here.
    rules.sort_by_key(|(rule, ..)| rule.sequence);
    for pair in rules.windows(2) {
        let [(first, _, first_place), (second, line, place)] = pair else { continue };
        if first.sequence == second.sequence {
            let text = format!(
                "{place}: number {} is that of {first_place} already; expected a number of its own",
                second.sequence
            );
            mistakes.push(RuleMistake { line: *line, text });
        }
    }
    if mistakes.is_empty() { Ok(rules.into_iter().map(|(rule, ..)| rule).collect()) } else { Err(mistakes) }
}

/// Reads one line; `None` when there is no rule in it. A rule without a sequence number gets the next one
/// behind
/// `before`.
pub(super) fn parse_rule(line: &str, before: u32, inputs: &Inputs) -> Result<Option<Rule>, String> {
    let mut is_quoted = false;
    let is_comment = |byte: char| {
        is_quoted ^= byte == '"';
        byte == '#' && !is_quoted
    };
    let text = line.find(is_comment).map_or(line, |at| &line[..at]);
    let mut words = Words { words: text.split_ascii_whitespace().collect(), next: 0 };
    if words.words.is_empty() {
        return Ok(None);
    }
    rule(&mut words, before, inputs).map(Some)
}

/// The words of a line, and how far they are read.
struct Words<'a> {
    words: Vec<&'a str>,
    next: usize,
}

impl<'a> Words<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).copied()
    }

    /// Takes the next word; `right` is what it should be.
    fn take(&mut self, right: &str) -> Result<&'a str, String> {
        let Some(word) = self.peek() else {
            return Err(format!("the line ends before word {}; expected {right}", self.next + 1));
        };
        self.next += 1;
        Ok(word)
    }

    /// Takes the next word if it is this one.
    fn skip(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        self.next += usize::from(found);
        found
    }

    /// What is wrong with the word taken last.
    fn mistake(&self, right: &str) -> String {
        let word = self.next.checked_sub(1).and_then(|at| self.words.get(at)).unwrap_or(&"");
        format!("word {} is '{}'; expected {right}", self.next, printable(word))
    }
}

fn rule(words: &mut Words<'_>, before: u32, inputs: &Inputs) -> Result<Rule, String> {
    let sequence = sequence(words, before)?;
    let action = match words.take("permit or deny")? {
        "permit" => Action::Permit,
        "deny" => Action::Deny,
        _ => return Err(words.mistake("permit or deny")),
    };
    asked(words, sequence, action, inputs)
}

/// Reads a rule without number and action: what it asks of packets. It permits.
pub(super) fn parse_asked(text: &str) -> Result<Rule, String> {
    let mut words = Words { words: text.split_ascii_whitespace().collect(), next: 0 };
    asked(&mut words, 0, Action::Permit, &Inputs::default())
}

/// Reads what a rule asks of packets.
fn asked(words: &mut Words<'_>, sequence: u32, action: Action, inputs: &Inputs) -> Result<Rule, String> {
    let mut version = match words.peek() {
        Some("ipv4") => Some(IpVersion::V4),
        Some("ipv6") => Some(IpVersion::V6),
        _ => None,
    };
    words.next += usize::from(version.is_some());
    let protocol = protocol(words, &mut version)?;
    let source = prefix(words, &mut version, "source")?;
    let source_ports = ports(words, protocol)?;
    let destination = prefix(words, &mut version, "destination")?;
    let destination_ports = ports(words, protocol)?;
    let mut rule = Rule {
        sequence,
        action,
        version,
        protocol,
        source,
        source_ports,
        destination,
        destination_ports,
        input: None,
        icmp_type: None,
        established: false,
        fragment: false,
    };
    while words.peek().is_some() {
        condition(words, &mut rule, inputs)?;
    }
    if rule.fragment && rule.needs_transport() {
        return Err(
            "'fragment' means fragments other than the first, and these have no ports, types or flags; \
             expected two rules"
                .to_owned(),
        );
    }
    Ok(rule)
}

fn sequence(words: &mut Words<'_>, before: u32) -> Result<u32, String> {
    let right = "a sequence number from 1 to 4294967295, permit or deny";
    match words.peek() {
        Some(word) if word.starts_with(|first: char| first.is_ascii_digit()) => {
            words.next += 1;
            word.parse().ok().filter(|&number| number > 0).ok_or_else(|| words.mistake(right))
        }
        Some("permit" | "deny") => before.checked_add(STEP).ok_or_else(|| {
            format!("there is no room for another rule behind rule {before}; expected a sequence number")
        }),
        _ => {
            words.take(right)?;
            Err(words.mistake(right))
        }
    }
}

fn protocol(words: &mut Words<'_>, version: &mut Option<IpVersion>) -> Result<Option<u8>, String> {
    let right = "any, a protocol's name such as tcp, udp, icmp, icmp6, or its number from 0 to 255";
    let word = words.take(right)?;
    if word == "any" {
        return Ok(None);
    }
    let number = protocol_number(word).ok_or_else(|| words.mistake(right))?;
    if let Some(only) = only_version(number) {
        agree(version, only, words)?;
    }
    Ok(Some(number))
}

/// Says that what the last word means is of the family `only`.
fn agree(version: &mut Option<IpVersion>, only: IpVersion, words: &Words<'_>) -> Result<(), String> {
    match version.replace(only) {
        Some(known) if known != only => {
            Err(words.mistake(&format!("{}, as before in this rule", version_word(known))))
        }
        _ => Ok(()),
    }
}

fn prefix(
    words: &mut Words<'_>,
    version: &mut Option<IpVersion>,
    which: &str,
) -> Result<Option<IpNet>, String> {
    let right = format!("the {which}: any, an address, or a prefix such as 192.0.2.0/24 or 2001:db8::/32");
    let word = words.take(&right)?;
    if word == "any" {
        return Ok(None);
    }
    let parsed = word.parse::<IpNet>().or_else(|_| word.parse::<IpAddr>().map(IpNet::from));
    let prefix = parsed.map_err(|_| words.mistake(&right))?;
    if prefix.trunc() != prefix {
        return Err(words.mistake(&format!("{}: the prefix has host bits set", prefix.trunc())));
    }
    agree(version, IpVersion::of(prefix.addr()), words)?;
    Ok(Some(prefix))
}

fn ports(words: &mut Words<'_>, protocol: Option<u8>) -> Result<Option<PortRange>, String> {
    if !words.skip("port") {
        return Ok(None);
    }
    if !protocol.is_some_and(has_ports) {
        return Err(words.mistake("a rule without ports, or one for tcp, udp, sctp, dccp or udplite"));
    }
    let right = "a port from 0 to 65535, or a range of them such as 80-443";
    let word = words.take(right)?;
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(Some(PortRange { first, last })),
        _ => Err(words.mistake(right)),
    }
}

/// Reads one of the conditions at the end of a rule.
fn condition(words: &mut Words<'_>, rule: &mut Rule, inputs: &Inputs) -> Result<(), String> {
    let right = if rule.protocol.is_some_and(has_ports) && rule.destination_ports.is_none() {
        "port, in, icmp-type, established, fragment or the end of the line"
    } else {
        "in, icmp-type, established, fragment or the end of the line"
    };
    let twice = match words.take(right)? {
        "in" => {
            let names: Vec<&str> = inputs.0.iter().map(|(name, _)| name.as_str()).collect();
            let right = match names.as_slice() {
                [] => "the number of the input port, 0 to 255".to_owned(),
                [name] => (*name).to_owned(),
                [names @ .., last] => format!("{} or {last}", names.join(", ")),
            };
            let name = words.take(&right)?;
            let paint = inputs
                .paint(name)
                .ok_or_else(|| format!("no port '{}'; expected {right}", printable(name)))?;
            rule.input.replace(paint).is_some()
        }
        "icmp-type" => {
            if rule.protocol.and_then(only_version).is_none() {
                return Err(words.mistake("a rule for icmp or icmp6, or one without icmp-type"));
            }
            let right = "an ICMP type from 0 to 255, or a type and a code such as 3/4";
            let word = words.take(right)?;
            let (kind, code) = match word.split_once('/') {
                Some((kind, code)) => (kind.parse(), code.parse().map(Some)),
                None => (word.parse(), Ok(None)),
            };
            let (Ok(kind), Ok(code)) = (kind, code) else { return Err(words.mistake(right)) };
            rule.icmp_type.replace((kind, code)).is_some()
        }
        "established" => {
            if rule.protocol != Some(6) {
                return Err(words.mistake("a rule for tcp, or one without established"));
            }
            std::mem::replace(&mut rule.established, true)
        }
        "fragment" => std::mem::replace(&mut rule.fragment, true),
        _ => return Err(words.mistake(right)),
    };
    if twice { Err(words.mistake("each condition once")) } else { Ok(()) }
}
