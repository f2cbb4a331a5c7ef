//! The configuration string of an element, read by name, position and type.
//!
//! `Element(first, second, KEYWORD value)`: an argument whose first word is in capitals and followed by a
//! value is a keyword argument, wherever it stands; the others are positional, in order. A positional
//! argument may also be given by its name, as in Click; and where one that must be there is missing, what looks like a
//! keyword argument is taken for it (`ICMPRewriter(RW PING)`), as Click does. Elements ask for what they know and end with
//! [`Arguments::finish`], which refuses what is left and says what the element takes.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use packet::wire::ethernet::MacAddr;

use crate::element::ConfigError;
use crate::lang::{next_word, split_arguments, unquote};
use crate::names;

/// A value that can stand in a configuration string.
pub trait FromArgument: Sized {
    /// What is expected, for error messages: "IP address".
    const EXPECTED: &'static str;

    /// Reads the value from the text of the argument (not unquoted yet). `None` when it is not one.
    fn from_argument(text: &str) -> Option<Self>;

    /// Reads the value from what was written to a handler; the error says what is expected.
    fn from_value(text: &str) -> Result<Self, String> {
        let text = text.trim();
        Self::from_argument(text).ok_or_else(|| format!("expected {}, got '{text}'", Self::EXPECTED))
    }
}

/// An argument that looks like one with a keyword.
#[derive(Debug)]
struct Keyword {
    word: String,
    value: String,
    /// All of it, and how many positional arguments stand before it: it may be one itself.
    text: String,
    behind: usize,
}

/// The arguments of one element.
#[derive(Debug, Default)]
pub struct Arguments {
    positional: std::collections::VecDeque<String>,
    keywords: Vec<Keyword>,
    known: Vec<&'static str>,
    position: usize,
    /// Positional arguments that were taken.
    taken: usize,
}

/// Splits `KEYWORD value` when `argument` looks like it.
fn as_keyword(argument: &str) -> Option<(&str, &str)> {
    let (word, rest) = argument.split_once(|c: char| c.is_ascii_whitespace())?;
    let capitals = word.len() > 1
        && word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    capitals.then(|| (word, rest.trim()))
}

impl Arguments {
    /// Splits a configuration string.
    pub fn new(config: &str) -> Self {
        let mut arguments = Self::default();
        let mut parts = split_arguments(config);
        while parts.last().is_some_and(String::is_empty) {
            parts.pop();
        }
        for part in parts {
            match as_keyword(&part) {
                Some((word, value)) => arguments.keywords.push(Keyword {
                    word: word.to_owned(),
                    value: value.to_owned(),
                    behind: arguments.positional.len(),
                    text: part,
                }),
                None => arguments.positional.push_back(part),
            }
        }
        arguments
    }

    /// Splits a configuration string of which every argument is positional, whatever it looks like.
    pub fn all_positional(config: &str) -> Self {
        let mut parts = split_arguments(config);
        while parts.last().is_some_and(String::is_empty) {
            parts.pop();
        }
        Self { positional: parts.into(), ..Self::default() }
    }

    fn take_keyword(&mut self, name: &str) -> Option<String> {
        let index = self.keywords.iter().position(|keyword| keyword.word == name)?;
        Some(self.keywords.remove(index).value)
    }

    /// The next positional argument, or the one named `name`; an error when there is none.
    pub fn required<T: FromArgument>(&mut self, name: &'static str) -> Result<T, ConfigError> {
        let position = self.position + 1;
        if let Some(value) = self.optional(name)? {
            return Ok(value);
        }
        if let Some(value) = self.keywords.first().and_then(|keyword| T::from_argument(&keyword.text)) {
            self.keywords.remove(0);
            return Ok(value);
        }
        Err(ConfigError::new(format!("missing argument {position}: {name} ({}) is required", T::EXPECTED)))
    }

    /// The next positional argument, or the one named `name`, if there is one.
    pub fn optional<T: FromArgument>(&mut self, name: &'static str) -> Result<Option<T>, ConfigError> {
        self.known.push(name);
        self.position += 1;
        let text = match self.take_keyword(name) {
            Some(text) => text,
            None => match self.positional.pop_front() {
                Some(text) => {
                    self.taken += 1;
                    text
                }
                None => return Ok(None),
            },
        };
        Self::convert(name, &text).map(Some)
    }

    /// The argument `name value`, if there is one.
    pub fn keyword<T: FromArgument>(&mut self, name: &'static str) -> Result<Option<T>, ConfigError> {
        self.known.push(name);
        match self.take_keyword(name) {
            Some(text) => Self::convert(name, &text).map(Some),
            None => Ok(None),
        }
    }

    /// The argument `name value`, or `default`.
    pub fn keyword_or<T: FromArgument>(&mut self, name: &'static str, default: T) -> Result<T, ConfigError> {
        Ok(self.keyword(name)?.unwrap_or(default))
    }

    /// Takes the argument `name value` of which the element makes nothing, and returns its value. It is not among those that are
    /// expected.
    pub fn ignored(&mut self, name: &str) -> Option<String> {
        self.take_keyword(name).map(|text| unquote(&text))
    }

    /// Every argument `name value` in order; for keywords that may be repeated.
    pub fn keywords<T: FromArgument>(&mut self, name: &'static str) -> Result<Vec<T>, ConfigError> {
        self.known.push(name);
        let mut values = Vec::new();
        while let Some(text) = self.take_keyword(name) {
            values.push(Self::convert(name, &text)?);
        }
        Ok(values)
    }

    /// Replaces each positional argument for which `rewrite` has another text.
    pub fn rewrite_positional(&mut self, rewrite: impl Fn(&str) -> Option<String>) {
        for argument in &mut self.positional {
            if let Some(text) = rewrite(argument) {
                *argument = text;
            }
        }
    }

    /// All positional arguments that are left, as raw text.
    pub fn rest(&mut self) -> Vec<String> {
        self.position += self.positional.len();
        self.positional.drain(..).collect()
    }

    /// All positional arguments that are left, as names.
    pub fn names(&mut self) -> Vec<String> {
        self.rest().iter().map(|name| unquote(name)).collect()
    }

    /// All arguments that are left in their order, what looks like a keyword argument among them; for elements whose arguments
    /// may begin with a name in capitals.
    pub fn rest_with_names(&mut self) -> Vec<String> {
        let first = self.taken;
        let mut all = self.rest();
        for (number, keyword) in self.keywords.drain(..).enumerate() {
            let at = (keyword.behind.saturating_sub(first) + number).min(all.len());
            all.insert(at, keyword.text);
        }
        all
    }

    /// Refuses what nobody asked for.
    pub fn finish(&mut self) -> Result<(), ConfigError> {
        let takes = if self.known.is_empty() {
            "expected no arguments".to_owned()
        } else {
            format!("expected {}", self.known.join(", "))
        };
        let mut messages: Vec<String> = self
            .keywords
            .drain(..)
            .map(|keyword| format!("unsupported argument '{}'; {takes}", keyword.word))
            .collect();
        if let Some(first) = self.positional.front() {
            let (count, first) = (self.positional.len(), first.clone());
            messages.push(format!(
                "too many arguments: {count} more from '{first}' on than are understood; {takes}"
            ));
        }
        if messages.is_empty() { Ok(()) } else { Err(messages.into()) }
    }

    fn convert<T: FromArgument>(name: &str, text: &str) -> Result<T, ConfigError> {
        T::from_argument(text)
            .ok_or_else(|| ConfigError::new(format!("{name}: expected {}, got '{text}'", T::EXPECTED)))
    }
}

/// The raw text of an argument: not unquoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw(pub String);

impl FromArgument for Raw {
    const EXPECTED: &'static str = "text";
    fn from_argument(text: &str) -> Option<Self> {
        Some(Self(text.to_owned()))
    }
}

impl FromArgument for String {
    const EXPECTED: &'static str = "string";
    fn from_argument(text: &str) -> Option<Self> {
        Some(unquote(text))
    }
}

impl FromArgument for bool {
    const EXPECTED: &'static str = "true or false";
    fn from_argument(text: &str) -> Option<Self> {
        match unquote(text).as_str() {
            "true" | "yes" | "1" | "t" | "y" => Some(true),
            "false" | "no" | "0" | "f" | "n" => Some(false),
            _ => None,
        }
    }
}

/// Reads an integer in decimal, hexadecimal (`0x`) or octal (`0`), with an optional sign.
fn integer(text: &str) -> Option<i128> {
    let text = unquote(text);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(&text)),
    };
    let magnitude = if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        (!hex.starts_with(['+', '-'])).then(|| i128::from_str_radix(hex, 16).ok())?
    } else if digits.len() > 1 && digits.starts_with('0') {
        (!digits.contains(['+', '-'])).then(|| i128::from_str_radix(digits, 8).ok())?
    } else {
        (!digits.starts_with(['+', '-'])).then(|| digits.parse().ok())?
    }?;
    Some(if negative { -magnitude } else { magnitude })
}

macro_rules! integers {
    ($($kind:ty => $expected:literal),*) => {$(
        impl FromArgument for $kind {
            const EXPECTED: &'static str = $expected;
            fn from_argument(text: &str) -> Option<Self> {
                Self::try_from(integer(text)?).ok()
            }
        }
    )*};
}

integers! {
    u8 => "integer from 0 to 255",
    u16 => "integer from 0 to 65535",
    u32 => "integer from 0 to 4294967295",
    u64 => "non-negative integer",
    usize => "non-negative integer",
    i32 => "integer",
    i64 => "integer"
}

impl FromArgument for f64 {
    const EXPECTED: &'static str = "number";
    fn from_argument(text: &str) -> Option<Self> {
        let value: Self = unquote(text).parse().ok()?;
        value.is_finite().then_some(value)
    }
}

impl FromArgument for Ipv4Addr {
    const EXPECTED: &'static str = "IP address";
    fn from_argument(text: &str) -> Option<Self> {
        let text = unquote(text);
        text.parse().ok().or_else(|| names::address(&text))
    }
}

impl FromArgument for Ipv6Addr {
    const EXPECTED: &'static str = "IPv6 address";
    fn from_argument(text: &str) -> Option<Self> {
        let text = unquote(text);
        text.parse().ok().or_else(|| names::address_6(&text))
    }
}

impl FromArgument for MacAddr {
    const EXPECTED: &'static str = "Ethernet address";
    fn from_argument(text: &str) -> Option<Self> {
        let text = unquote(text);
        text.parse().ok().or_else(|| names::ether(&text))
    }
}

impl FromArgument for Ipv4Net {
    const EXPECTED: &'static str = "IP address or prefix";
    /// `A.B.C.D/LEN`, `A.B.C.D/MASK`, or a bare address (`/32`). Host bits are kept; before a mask zeroes at the end of the
    /// address may be left out (`18.26/16`, `0/0`), as in Click.
    fn from_argument(text: &str) -> Option<Self> {
        let text = unquote(text);
        let Some((address, mask)) = text.split_once('/') else {
            let host = text.parse().ok().and_then(|address| Self::new(address, 32).ok());
            return host
                .or_else(|| Self::new(names::address(&text)?, 32).ok())
                .or_else(|| names::network(&text));
        };
        let address = short_address(address)?;
        match mask.parse::<u8>() {
            Ok(length) if !mask.starts_with('+') => Self::new(address, length).ok(),
            _ => Self::with_netmask(address, mask.parse().ok()?).ok(),
        }
    }
}

/// An address whose last zeroes may be missing.
fn short_address(text: &str) -> Option<Ipv4Addr> {
    let missing = 3_usize.checked_sub(text.matches('.').count())?;
    format!("{text}{}", ".0".repeat(missing)).parse().ok()
}

impl FromArgument for Ipv6Net {
    const EXPECTED: &'static str = "IPv6 address or prefix";
    fn from_argument(text: &str) -> Option<Self> {
        let text = unquote(text);
        if text.contains('/') {
            return text.parse().ok();
        }
        let host = text.parse().ok().and_then(|address| Self::new(address, 128).ok());
        host.or_else(|| Self::new(names::address_6(&text)?, 128).ok()).or_else(|| names::network_6(&text))
    }
}

/// A write handler and what is written to it: `ELEMENT.HANDLER VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerCall {
    /// The handler, as [`Context::call_write`](crate::Context::call_write) takes it.
    pub name: String,
    /// What is written.
    pub value: String,
}

impl HandlerCall {
    /// Writes it. Nobody waits for the outcome, so what is wrong is printed.
    pub fn call(&self, cx: &mut crate::Context) {
        if let Err(problem) = cx.call_write(&self.name, &self.value) {
            cx.message(&format!("While calling '{self}':\n  {problem}"));
        }
    }
}

impl std::fmt::Display for HandlerCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let space = if self.value.is_empty() { "" } else { " " };
        write!(f, "{}{space}{}", self.name, self.value)
    }
}

impl FromArgument for HandlerCall {
    const EXPECTED: &'static str = "handler to write, as in 'counter.reset' or 'switch.switch 1'";
    fn from_argument(text: &str) -> Option<Self> {
        let (name, value) = next_word(text);
        let name = unquote(name);
        (!name.is_empty() && !name.ends_with('.')).then(|| Self { name, value: unquote(value) })
    }
}

/// A length of time. Written as seconds (`1.5`) or with a unit: `ns`, `us`, `ms`, `s`, `m`, `h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval {
    /// The length in nanoseconds.
    pub ns: u64,
}

impl Interval {
    /// The longest one, 100 years: a point in time and some of these never come to more than 64 bits.
    const MOST_NS: u64 = 100 * 365 * 86_400 * 1_000_000_000;
}

impl FromArgument for Interval {
    const EXPECTED: &'static str = "time in seconds, or with a unit as in '10ms'";
    fn from_argument(text: &str) -> Option<Self> {
        let (number, unit) = number_and_unit(text)?;
        let factor = match unit.as_str() {
            "" | "s" | "sec" => 1e9,
            "ms" | "msec" => 1e6,
            "us" | "usec" => 1e3,
            "ns" | "nsec" => 1.0,
            "m" | "min" => 60e9,
            "h" | "hr" => 3600e9,
            _ => return None,
        };
        let ns = (number * factor).round();
        (0.0..=Self::MOST_NS as f64).contains(&ns).then_some(Self { ns: ns as u64 })
    }
}

/// A data rate. Written as bytes per second, or with a unit: `bps`, `kbps`, `Mbps`, `Gbps` are bits and
/// `Bps`, `kBps`, `MBps`, `GBps` bytes per second, as in Click.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bandwidth {
    /// The rate in bytes per second.
    pub bytes_per_second: u64,
}

impl FromArgument for Bandwidth {
    const EXPECTED: &'static str = "bandwidth in bytes per second, or with a unit as in '10Mbps'";
    fn from_argument(text: &str) -> Option<Self> {
        let (number, unit) = number_and_unit(text)?;
        let (prefix, bits) = if let Some(prefix) = unit.strip_suffix("bps").or(unit.strip_suffix("b/s")) {
            (prefix, true)
        } else if let Some(prefix) = unit.strip_suffix("Bps").or(unit.strip_suffix("B/s")) {
            (prefix, false)
        } else {
            (unit.as_str(), false)
        };
        let factor = match prefix {
            "" => 1.0,
            "k" | "K" => 1e3,
            "M" => 1e6,
            "G" => 1e9,
            _ => return None,
        };
        let bytes = number * factor / if bits { 8.0 } else { 1.0 };
        (bytes >= 0.0 && bytes < u64::MAX as f64).then_some(Self { bytes_per_second: bytes.round() as u64 })
    }
}

/// Splits `10Mbps` into the number and what follows it.
fn number_and_unit(text: &str) -> Option<(f64, String)> {
    let text = unquote(text);
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    Some((number, unit.trim().to_owned()))
}

/// Where in the annotations a byte lies: `PAINT`, or a byte number from 0 to 47.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnotationByte(pub usize);

impl FromArgument for AnnotationByte {
    const EXPECTED: &'static str = "annotation: PAINT or a byte from 0 to 47";
    fn from_argument(text: &str) -> Option<Self> {
        match unquote(text).as_str() {
            "PAINT" => Some(Self(packet::Annotations::PAINT)),
            number => integer(number)
                .and_then(|value| usize::try_from(value).ok())
                .filter(|&offset| offset < packet::frame::ANNOTATION_BYTES)
                .map(Self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_names_and_keywords() {
        let mut arguments = Arguments::new("eth0, BURST 8, 17, SNIFFER false");
        assert_eq!(arguments.required::<String>("DEVNAME").unwrap(), "eth0");
        assert_eq!(arguments.optional::<u32>("QUEUE").unwrap(), Some(17));
        assert_eq!(arguments.keyword::<u32>("BURST").unwrap(), Some(8));
        assert_eq!(arguments.keyword::<bool>("SNIFFER").unwrap(), Some(false));
        assert!(arguments.finish().is_ok());
        let mut by_name = Arguments::new("DEVNAME eth1");
        assert_eq!(by_name.required::<String>("DEVNAME").unwrap(), "eth1");
    }

    #[test]
    fn mistakes_name_the_argument_and_what_is_right() {
        let mut arguments = Arguments::new("12x, BURTS 8, 1, 2");
        let error = arguments.required::<u32>("LIMIT").unwrap_err();
        assert_eq!(error.to_string(), "LIMIT: expected integer from 0 to 4294967295, got '12x'");
        arguments.keyword::<u32>("BURST").unwrap();
        let error = arguments.finish().unwrap_err();
        assert_eq!(error.messages.len(), 2);
        assert_eq!(error.messages[0], "unsupported argument 'BURTS'; expected LIMIT, BURST");
        let error = Arguments::new("").required::<Ipv4Addr>("ADDR").unwrap_err();
        assert_eq!(error.to_string(), "missing argument 1: ADDR (IP address) is required");
    }

    #[test]
    fn names_in_capitals_are_no_keywords() {
        let mut arguments = Arguments::new("RW PING, REPLY_ANNO 4");
        assert_eq!(arguments.keyword::<u8>("REPLY_ANNO").unwrap(), Some(4));
        assert_eq!(arguments.required::<String>("MAPS").unwrap(), "RW PING");
        assert!(arguments.finish().is_ok());
        let mut routes = Arguments::new("ME 0, 10.0.0.0/8 1, VIA x, YOU 2");
        assert!(routes.keyword::<String>("VIA").unwrap().is_some());
        assert_eq!(routes.rest_with_names(), ["ME 0", "10.0.0.0/8 1", "YOU 2"]);
        assert!(routes.finish().is_ok());
        let missing = Arguments::new("LIMIT 5").required::<u32>("RATE").unwrap_err();
        assert!(missing.to_string().contains("missing argument 1"));
    }

    #[test]
    fn values() {
        assert_eq!(u16::from_argument("0x0800"), Some(0x800));
        assert_eq!(u16::from_argument("65536"), None);
        assert_eq!(i32::from_argument("-5"), Some(-5));
        assert_eq!(i32::from_argument("--5"), None);
        assert_eq!(u32::from_argument(""), None);
        assert_eq!(Interval::from_argument("10ms"), Some(Interval { ns: 10_000_000 }));
        assert_eq!(Interval::from_argument("1.5"), Some(Interval { ns: 1_500_000_000 }));
        assert_eq!(Bandwidth::from_argument("8Mbps"), Some(Bandwidth { bytes_per_second: 1_000_000 }));
        assert_eq!(Bandwidth::from_argument("1MBps"), Some(Bandwidth { bytes_per_second: 1_000_000 }));
        assert_eq!(Ipv4Net::from_argument("10.0.0.0/255.255.0.0"), "10.0.0.0/16".parse().ok());
        assert_eq!(Ipv4Net::from_argument("10.0.0.1"), "10.0.0.1/32".parse().ok());
        assert_eq!(Ipv4Net::from_argument("10.0.0.1/33"), None);
        assert_eq!(AnnotationByte::from_argument("48"), None);
    }
}
