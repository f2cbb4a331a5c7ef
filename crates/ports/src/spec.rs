//! The syntax of a port's spec, `[DRIVER:]NAME[?OPTION[=VALUE]&...]`, and the tables of drivers and options.
//!
//! A [`Spec`] is parsed and checked against the tables at once, so a driver meets known options only; it takes the
//! values it wants in the type it wants. Any text gives a spec or an error, never a panic.

use std::sync::OnceLock;
use std::time::Duration;

use crate::interface::is_interface;
use crate::{DRIVERS, OpenOptions, Port, PortError};

/// One option of a driver or of all ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionDoc {
    /// Name in a spec.
    pub name: &'static str,
    /// What its value looks like; empty for a switch.
    pub value: &'static str,
    /// What it does, in a line.
    pub help: &'static str,
}

/// Opens a port of a driver, and takes from the spec the options that the driver knows.
pub type Open = fn(&mut Spec, &OpenOptions) -> Result<Box<dyn Port>, PortError>;

/// One driver.
#[derive(Clone, Copy, Debug)]
pub struct DriverDoc {
    /// Name in a spec.
    pub name: &'static str,
    /// What the name behind the colon is.
    pub what: &'static str,
    /// What it does, in a line.
    pub help: &'static str,
    /// Its own options.
    pub options: &'static [OptionDoc],
    /// Opens a port.
    pub open: Open,
    /// Whether a port of a spec gives merged frames whole to who takes them ([`OpenOptions::takes_merged`]).
    pub gives_merged: fn(&mut Spec) -> bool,
}

impl DriverDoc {
    /// A driver without options, whose packets come one by one, and which opens nothing.
    pub const DEFAULT: Self = Self {
        name: "",
        what: "",
        help: "",
        options: &[],
        open: |spec, _| {
            let problem = "its driver opens nothing".to_owned();
            Err(PortError::Unsupported { port: spec.name().to_owned(), problem })
        },
        gives_merged: |_| false,
    };
}

impl PartialEq for DriverDoc {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for DriverDoc {}

/// Makes the description of an option.
pub(crate) const fn option(name: &'static str, value: &'static str, help: &'static str) -> OptionDoc {
    OptionDoc { name, value, help }
}

/// The options that every port has.
pub const WRAPPER_OPTIONS: &[OptionDoc] = &[
    option("trace", "[FILE]", "one line a packet, to a file or to standard error"),
    option("capture", "FILE.pcap", "write both directions to a pcap file"),
    option("drop", "PROBABILITY", "fault: lose packets"),
    option("corrupt", "PROBABILITY", "fault: flip one bit"),
    option("duplicate", "PROBABILITY", "fault: send packets twice"),
    option("reorder", "PROBABILITY", "fault: let the next packet overtake"),
    option("delay", "TIME", "fault: every packet comes that much later"),
    option(
        "rate",
        "PACKETS",
        "fault: lose what comes faster than so many packets a second (k and M allowed)",
    ),
    option("seed", "NUMBER", "fault: another seed, other packets (default 1)"),
    option("fault", "rx|tx|both", "fault: in which direction (default both)"),
];

/// A parsed spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    text: String,
    driver: &'static DriverDoc,
    name: String,
    options: Vec<(&'static OptionDoc, String)>,
}

impl Spec {
    /// Returns whether an option has a wrapper see every packet: a tracer, a capture, faults.
    pub fn is_wrapped(&self) -> bool {
        self.options.iter().any(|(known, _)| WRAPPER_OPTIONS.iter().any(|option| option.name == known.name))
    }

    /// Parses a spec and checks driver and options against [`DRIVERS`] and [`WRAPPER_OPTIONS`].
    ///
    /// # Errors
    /// [`PortError::BadSpec`], [`PortError::UnknownDriver`], [`PortError::UnknownOption`].
    pub fn parse(text: &str) -> Result<Self, PortError> {
        let bad = |problem: String| PortError::BadSpec { spec: text.to_owned(), problem };
        let (target, query) = split_spec(text);
        let (driver, name) = match target.split_once(':') {
            Some((driver, name)) => (find_driver(text, driver)?, name),
            None => (DRIVERS[0], target),
        };
        if name.is_empty() && driver.what == "INTERFACE" {
            return Err(bad(format!("the name of the interface is missing, as in `{}:eth0`", driver.name)));
        }
        if name.is_empty() && driver.what == "CABLE" {
            return Err(bad(format!("the name of the cable is missing, as in `{}:a`", driver.name)));
        }
        if name.contains('\0') {
            return Err(bad("a name cannot contain a NUL character".to_owned()));
        }
        let mut options: Vec<(&'static OptionDoc, String)> = Vec::new();
        for item in query.into_iter().flat_map(|query| query.split('&')).filter(|item| !item.is_empty()) {
            let (key, value) = item.split_once('=').unwrap_or((item, ""));
            let known = find_option(text, driver, key)?;
            if options.iter().any(|(other, _)| other.name == known.name) {
                return Err(bad(format!("option `{key}` is given twice; expected once")));
            }
            options.push((known, value.to_owned()));
        }
        Ok(Self { text: text.to_owned(), driver, name: name.to_owned(), options })
    }

    /// Name of the driver.
    pub fn driver(&self) -> &'static str {
        self.driver.name
    }

    /// The function that opens ports of the driver.
    pub(crate) fn open(&self) -> Open {
        self.driver.open
    }

    /// What stands behind the driver: an interface, a file, a cable.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The spec as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Takes an option's text; an option without a value gives the empty text.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        debug_assert!(
            self.driver.options.iter().chain(WRAPPER_OPTIONS).any(|option| option.name == name),
            "a driver asks for options in its table"
        );
        let index = self.options.iter().position(|(option, _)| option.name == name)?;
        Some(self.options.remove(index).1)
    }

    fn take_parsed<T>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, PortError> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => match parse(&value) {
                Some(parsed) => Ok(Some(parsed)),
                None => Err(self.bad_value(name, &value, expected)),
            },
        }
    }

    /// The error for a value that an option cannot have.
    pub(crate) fn bad_value(&self, option: &str, value: &str, expected: &str) -> PortError {
        PortError::BadValue {
            spec: self.text.clone(),
            option: option.to_owned(),
            value: value.to_owned(),
            expected: expected.to_owned(),
        }
    }

    /// Takes a switch; `default` when it is not there.
    ///
    /// # Errors
    /// [`PortError::BadValue`].
    pub fn take_switch(&mut self, name: &str, default: bool) -> Result<bool, PortError> {
        let value = self.take_parsed(name, "`yes` or `no`", |value| match value {
            "" | "yes" | "true" | "on" | "1" => Some(true),
            "no" | "false" | "off" | "0" => Some(false),
            _ => None,
        })?;
        Ok(value.unwrap_or(default))
    }

    /// Takes a whole number within a range.
    ///
    /// # Errors
    /// [`PortError::BadValue`].
    pub fn take_number(&mut self, name: &str, range: (u64, u64)) -> Result<Option<u64>, PortError> {
        let expected = format!("a number from {} to {}", range.0, range.1);
        self.take_parsed(name, &expected, |value| {
            value.parse().ok().filter(|number| (range.0..=range.1).contains(number))
        })
    }

    /// Takes one of a few words.
    ///
    /// # Errors
    /// [`PortError::BadValue`].
    pub fn take_choice<T: Copy>(
        &mut self,
        name: &str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, PortError> {
        let names: Vec<String> = choices.iter().map(|(word, _)| format!("`{word}`")).collect();
        self.take_parsed(name, &names.join(" or "), |value| {
            choices.iter().find(|(word, _)| *word == value).map(|&(_, choice)| choice)
        })
    }

    /// Takes a probability: `0.01` or `1%`.
    ///
    /// # Errors
    /// [`PortError::BadValue`].
    pub fn take_probability(&mut self, name: &str) -> Result<Option<f64>, PortError> {
        self.take_parsed(name, "a probability from 0 to 1, or a percentage", |value| {
            let number = match value.strip_suffix('%') {
                Some(percent) => percent.parse::<f64>().ok()? / 100.0,
                None => value.parse::<f64>().ok()?,
            };
            (0.0..=1.0).contains(&number).then_some(number)
        })
    }

    /// Takes a time, `10ms`; at most an hour.
    ///
    /// # Errors
    /// [`PortError::BadValue`].
    pub fn take_time(&mut self, name: &str) -> Result<Option<Duration>, PortError> {
        self.take_parsed(name, "a time of at most an hour with its unit, such as `10ms`", |value| {
            let digits = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
            let (number, unit) = value.split_at(digits);
            let scale = match unit {
                "ns" => 1e-9,
                "us" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                _ => return None,
            };
            let seconds = number.parse::<f64>().ok()? * scale;
            (0.0..=3600.0).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
        })
    }

    /// Takes a rate a second, `10k`; at least 1.
    pub(crate) fn take_rate(&mut self, name: &str) -> Result<Option<u64>, PortError> {
        self.take_parsed(name, "packets a second from 1 to 1000M, such as `10k`", |value| {
            let (number, scale) = match value.strip_suffix(['k', 'K', 'M']) {
                Some(number) => (number, if value.ends_with('M') { 1_000_000 } else { 1_000 }),
                None => (value, 1),
            };
            let rate = number.parse::<u64>().ok()?.checked_mul(scale)?;
            (1..=1_000_000_000).contains(&rate).then_some(rate)
        })
    }

    /// Takes the path of a file, which must not be empty.
    pub(crate) fn take_path(&mut self, name: &str) -> Result<Option<String>, PortError> {
        self.take_parsed(name, "the path of a file", |value| {
            (!value.is_empty() && !value.contains('\0')).then(|| value.to_owned())
        })
    }
}

/// Splits a spec at the `?` in front of its options. It is the first one, unless it belongs to the name of an interface that
/// exists.
pub fn split_spec(text: &str) -> (&str, Option<&str>) {
    let is_name = |end: usize| {
        let target = &text[..end];
        let name = target.split_once(':').map_or(target, |(_, name)| name);
        name.contains('?') && is_interface(name)
    };
    let ends = text.match_indices('?').map(|(at, _)| at).chain([text.len()]);
    let end = ends.rev().find(|&end| is_name(end)).or_else(|| text.find('?')).unwrap_or(text.len());
    (&text[..end], text.get(end + 1..))
}

/// Returns whether a port of this spec has frames in which several packets are merged, and gives them whole to who takes them
/// ([`OpenOptions::takes_merged`]).
pub fn gives_merged(spec: &str) -> bool {
    Spec::parse(spec).is_ok_and(|mut spec| (spec.driver.gives_merged)(&mut spec) && !spec.is_wrapped())
}

/// Drivers of the program that is made of this library.
static MORE_DRIVERS: OnceLock<&'static [&'static DriverDoc]> = OnceLock::new();

/// Adds drivers to [`DRIVERS`], once: a later call changes nothing. A driver of a name of ours is never asked.
pub fn add_drivers(drivers: &'static [&'static DriverDoc]) {
    let _ = MORE_DRIVERS.set(drivers);
}

/// What the program takes as drivers of a list of ports, and no port of a configuration has.
const WAYS_OF_RUN: [&str; 3] = ["auto", "xdp", "vlan"];

fn find_driver(spec: &str, driver: &str) -> Result<&'static DriverDoc, PortError> {
    let all = || DRIVERS.iter().chain(MORE_DRIVERS.get().copied().unwrap_or_default()).copied();
    all().find(|known| known.name == driver).ok_or_else(|| PortError::UnknownDriver {
        spec: spec.to_owned(),
        driver: driver.to_owned(),
        hint: match WAYS_OF_RUN.contains(&driver) {
            true => "it is a way of `brickway run PORT...`, which forwards by its own tables; expected `af_xdp:INTERFACE` or another driver \
                     where a configuration takes the packets"
                .to_owned(),
            false => hint(driver, "the drivers are", all().map(|known| known.name)),
        },
    })
}

fn find_option(spec: &str, driver: &'static DriverDoc, key: &str) -> Result<&'static OptionDoc, PortError> {
    let known = || driver.options.iter().chain(WRAPPER_OPTIONS);
    known().find(|option| option.name == key).ok_or_else(|| PortError::UnknownOption {
        spec: spec.to_owned(),
        driver: driver.name,
        option: key.to_owned(),
        hint: hint(key, "its options are", known().map(|option| option.name)),
    })
}

/// The nearest name when one is near, otherwise all of them.
fn hint<'a>(word: &str, list: &str, names: impl Iterator<Item = &'a str> + Clone) -> String {
    let near = names.clone().map(|name| (distance(word, name), name)).min();
    match near {
        Some((edits, name)) if edits <= name.len().div_ceil(3) => format!("did you mean `{name}`?"),
        _ => format!("{list} {}", names.collect::<Vec<_>>().join(", ")),
    }
}

/// Levenshtein's distance: single-character edits from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    // Only short words are near anything; this bounds the work on arbitrary text.
    if from.len() > 64 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (line, from_char) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, to_char) in to.chars().enumerate() {
            let substituted = diagonal + usize::from(from_char != to_char);
            diagonal = row[column + 1];
            row[column + 1] = substituted.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_interface_needs_no_driver() {
        let spec = Spec::parse("eth0").unwrap();
        assert_eq!((spec.driver(), spec.name()), ("af_packet", "eth0"));
        assert_eq!(Spec::parse("af_packet:eth0").unwrap().name(), "eth0");
    }

    #[test]
    fn options_are_typed() {
        let mut spec =
            Spec::parse("pcap:in.pcap?out=a=b.pcap&drop=1%&delay=2.5ms&rate=10k&trace&seed=7").unwrap();
        assert_eq!((spec.driver(), spec.name()), ("pcap", "in.pcap"));
        assert_eq!(spec.take_path("out").unwrap().as_deref(), Some("a=b.pcap"));
        assert_eq!(spec.take_probability("drop").unwrap(), Some(0.01));
        assert_eq!(spec.take_time("delay").unwrap(), Some(Duration::from_micros(2500)));
        assert_eq!(spec.take_rate("rate").unwrap(), Some(10_000));
        assert_eq!(spec.take("trace").as_deref(), Some(""));
        assert_eq!(spec.take_number("seed", (0, u64::MAX)).unwrap(), Some(7));
        assert_eq!(spec.take("trace"), None);
    }

    #[test]
    fn mistakes_name_what_would_be_right() {
        let message = |text: &str| Spec::parse(text).unwrap_err().to_string();
        assert_eq!(
            message("pacp:in.pcap"),
            "port `pacp:in.pcap`: there is no driver `pacp`; did you mean `pcap`?"
        );
        assert_eq!(
            message("eth0?promiscous=no"),
            "port `eth0?promiscous=no`: driver `af_packet` has no option `promiscous`; did you mean `promiscuous`?"
        );
        assert!(
            message("xdp:eth0").contains("there is no driver `xdp`; it is a way of `brickway run PORT...`")
        );
        let names: Vec<&str> = DRIVERS.iter().map(|driver| driver.name).collect();
        assert!(message("quux:x").ends_with(&format!("the drivers are {}", names.join(", "))));
        assert!(message("null:?zzzzzzzzz").contains("its options are trace, capture, drop"));
        assert!(message("eth0?trace&trace").ends_with("given twice; expected once"));
        assert!(message("").contains("the name of the interface is missing, as in `af_packet:eth0`"));
        let mut spec = Spec::parse("eth0?drop=2").unwrap();
        assert_eq!(
            spec.take_probability("drop").unwrap_err().to_string(),
            "port `eth0?drop=2`: `drop=2` is wrong: a probability from 0 to 1, or a percentage is expected"
        );
    }

    #[test]
    fn distance_is_levenshteins() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("same", "same"), 0);
    }

    fn take_all(mut spec: Spec) {
        for option in ["ring", "promiscuous", "mtu", "keep", "timing", "end"] {
            if spec.driver.options.iter().any(|known| known.name == option) {
                let _ = spec.clone().take_number(option, (1, 9));
                let _ = spec.clone().take_switch(option, true);
            }
        }
        for option in WRAPPER_OPTIONS {
            let _ = spec.clone().take_time(option.name);
            let _ = spec.clone().take_rate(option.name);
            let _ = spec.clone().take_path(option.name);
            let _ = spec.take_probability(option.name);
        }
    }

    proptest! {
        #[test]
        fn any_text_gives_a_spec_or_an_error(text in any::<String>()) {
            if let Ok(spec) = Spec::parse(&text) {
                take_all(spec);
            }
        }

        #[test]
        fn nearly_right_text_gives_a_spec_or_an_error(
            driver in "(af_packet|tap|pcap|memory|null|tep)?",
            name in "[a-z0-9.]{0,6}",
            options in prop::collection::vec(("(drop|delay|rate|end|ring|trace|x)", "[0-9.kM%a-z\u{e9}-]{0,8}"), 0..4),
        ) {
            let options: Vec<String> = options.iter().map(|(key, value)| format!("{key}={value}")).collect();
            if let Ok(spec) = Spec::parse(&format!("{driver}:{name}?{}", options.join("&"))) {
                take_all(spec);
            }
        }
    }
}
