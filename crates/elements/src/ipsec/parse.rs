//! Policies and associations from text: the FILE of IpsecPolicy, whose manual has the words.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use ipnet::IpNet;
use ipsec::association::{Limit, Mode, Settings, UdpPorts};
use ipsec::window::MAX_WINDOW;
use ipsec::{Association, Backend, Endpoints, Keys, Suite};

use super::database::{Contents, Entry};
use super::policy::{Direction, Policy, PolicyAction, Selector, Template};
use crate::acl::protocol_number;
use crate::first_match::MAX_RULES;

/// Reads a file. It has keys, so nobody but its owner may read it.
///
/// # Errors
///
/// What is wrong with it, a message for each line.
pub(super) fn read(path: &str, backend: Backend) -> Result<Contents, Vec<String>> {
    let one = |message: String| vec![format!("FILE: {message}")];
    let text = graph::files::read_secret(Path::new(path));
    let (text, _) = text.map_err(|error| one(format!("'{path}' has keys, and cannot be used: {error}")))?;
    let text = zeroize::Zeroizing::new(text);
    parse(&text, backend)
        .map_err(|mistakes| mistakes.into_iter().map(|mistake| format!("{path}: {mistake}")).collect())
}

/// Reads lines of policies and associations.
///
/// # Errors
///
/// What is wrong with each line that is.
pub(super) fn parse(text: &str, backend: Backend) -> Result<Contents, Vec<String>> {
    let mut contents = Contents::default();
    let mut mistakes = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = Words(line.split_whitespace().collect(), 0);
        let read = match words.next() {
            None => continue,
            Some("policy") => policy(&mut words).map(|policy| contents.policies.push(policy)),
            Some("association") => association(&mut words, backend).map(|mut entry| {
                let mut hasher = DefaultHasher::new();
                words.0.hash(&mut hasher);
                entry.text = Some(hasher.finish());
                contents.associations.push(entry);
            }),
            Some(other) => Err(format!("'{other}'; expected policy or association")),
        };
        mistakes.extend(read.err().map(|mistake| format!("line {number}: {mistake}")));
    }
    if contents.policies.len() > MAX_RULES {
        mistakes.push(format!("{} policies; expected at most {MAX_RULES}", contents.policies.len()));
    }
    if mistakes.is_empty() { Ok(contents) } else { Err(mistakes) }
}

struct Words<'a>(Vec<&'a str>, usize);

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let word = self.0.get(self.1).copied();
        self.1 += 1;
        word
    }

    /// Takes the next word if it is this one.
    fn take(&mut self, word: &str) -> bool {
        let is_it = self.0.get(self.1) == Some(&word);
        self.1 += usize::from(is_it);
        is_it
    }

    fn read<T>(&mut self, expected: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<T, String> {
        let word = self.next();
        let shown = word.map_or("the end of the line".to_owned(), |word| format!("'{word}'"));
        word.and_then(read).ok_or_else(|| format!("{shown}; expected {expected}"))
    }

    fn parsed<T: FromStr>(&mut self, expected: &str) -> Result<T, String> {
        self.read(expected, |word| word.parse().ok())
    }

    /// Reports what was expected, and not what is there, which may be a part of a key.
    fn unseen(&self, expected: &str) -> String {
        format!("word {}: expected {expected}", self.1)
    }

    /// Secret: what is wrong with it is not shown.
    fn hex(&mut self, what: &str) -> Result<zeroize::Zeroizing<Vec<u8>>, String> {
        let digits = self.next().map(|word| word.strip_prefix("0x").unwrap_or(word)).unwrap_or_default();
        // Room for all: growing would leave a part of the key behind.
        let mut bytes = zeroize::Zeroizing::new(Vec::with_capacity(digits.len() / 2));
        let is_hex = !digits.is_empty()
            && digits.len().is_multiple_of(2)
            && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        for at in (0..digits.len()).step_by(2).filter(|_| is_hex) {
            bytes.extend(digits.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok()));
        }
        if is_hex {
            return Ok(bytes);
        }
        Err(format!("{what} is not a number of bytes in hexadecimal digits; expected 0x0123.."))
    }
}

fn number(word: &str) -> Option<u32> {
    match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

fn prefix(word: &str) -> Option<IpNet> {
    word.parse().ok().or_else(|| word.parse().ok().map(|address: IpAddr| address.into()))
}

fn ports(words: &mut Words<'_>) -> Result<Option<(u16, u16)>, String> {
    if !words.take("port") {
        return Ok(None);
    }
    words.read("a port, or two such as 80-90", |word| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let range: (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        (range.0 <= range.1).then_some(Some(range))
    })
}

fn endpoints(words: &mut Words<'_>) -> Result<Endpoints, String> {
    let source: IpAddr = words.parsed("the outer source address")?;
    let destination = words.parsed("the outer destination address")?;
    Endpoints::new(source, destination)
        .ok_or_else(|| format!("{source} and {destination} are of different families; expected two of one"))
}

fn policy(words: &mut Words<'_>) -> Result<Policy, String> {
    let direction = words.read("out or fwd", |word| match word {
        "out" => Some(Direction::Out),
        "fwd" => Some(Direction::Forward),
        _ => None,
    })?;
    let protocol = words.read("any, or a protocol such as tcp", |word| match word {
        "any" => Some(None),
        other => protocol_number(other).map(Some),
    })?;
    let source = words.read("a prefix such as 10.1.0.0/16", prefix)?;
    let source_ports = ports(words)?;
    let destination = words.read("a prefix such as 10.2.0.0/16", prefix)?;
    let destination_ports = ports(words)?;
    let selector = Selector { source, destination, protocol, source_ports, destination_ports };
    if !selector.can_match() {
        return Err(format!(
            "'{selector}' matches nothing; expected prefixes of one family, and ports with a protocol that has them"
        ));
    }
    let action = match words.next() {
        Some("bypass") => PolicyAction::Bypass,
        Some("discard") => PolicyAction::Discard,
        Some("protect") => {
            let mut template = Template {
                endpoints: endpoints(words)?,
                request: 0,
                spi: 0,
                mode: Mode::Tunnel,
                is_optional: false,
            };
            loop {
                match words.next() {
                    None => break PolicyAction::Protect(template),
                    Some("request") => template.request = words.read("a number", number)?,
                    Some("transport") => template.mode = Mode::Transport,
                    Some(other) => return Err(format!("'{other}'; expected request or transport")),
                }
            }
        }
        other => {
            return Err(format!(
                "'{}'; expected protect, bypass or discard",
                other.unwrap_or("the end of the line")
            ));
        }
    };
    match words.next() {
        Some(word) => Err(format!("'{word}'; expected the end of the line")),
        None => Ok(Policy { direction, selector, action }),
    }
}

fn association(words: &mut Words<'_>, backend: Backend) -> Result<Entry, String> {
    let spi = words
        .read("a security parameters index of 256 or more", |word| number(word).filter(|spi| *spi > 255))?;
    let endpoints = endpoints(words)?;
    let all = || Suite::ALL.map(|suite| suite.to_string()).join(", ");
    let suite = words.read(&format!("a suite: {}", all()), |word| {
        Suite::ALL.into_iter().find(|suite| suite.to_string() == word)
    })?;
    if !words.take("key") {
        words.next();
        return Err(words.unseen("key, and the key"));
    }
    let key = words.hex("the key")?;
    if key.iter().all(|byte| *byte == key[0]) {
        return Err("the key is one byte again and again; expected random bytes".to_owned());
    }
    let auth = if words.take("auth") { words.hex("the authentication key")? } else { Default::default() };
    let keys = Keys::new(suite, &key, &auth, backend).map_err(|error| format!("{suite}: {error}"))?;
    let mut settings = Settings { hop_limit: HOP_LIMIT, ..Settings::new(spi, endpoints, keys) };
    let mut request = 0;
    while let Some(word) = words.next() {
        match word {
            "request" => request = words.read("a number", number)?,
            "transport" => settings.mode = Mode::Transport,
            "extended" => settings.is_extended = true,
            "window" => {
                let expected = format!("a window of at most {MAX_WINDOW}");
                settings.window =
                    words.read(&expected, |word| number(word).filter(|width| *width <= MAX_WINDOW))?;
            }
            "udp" => {
                let source = words.parsed("a source port")?;
                settings.udp = Some(UdpPorts { source, destination: words.parsed("a destination port")? });
            }
            "bytes" => settings.hard = Limit { bytes: words.parsed("a number of bytes")?, ..settings.hard },
            "packets" => {
                settings.hard = Limit { packets: words.parsed("a number of packets")?, ..settings.hard }
            }
            _ => {
                return Err(words.unseen("auth, request, transport, extended, window, udp, bytes or packets"));
            }
        }
    }
    if settings.is_extended && settings.window == 0 {
        return Err("extended with window 0; expected a window, which completes the numbers".to_owned());
    }
    Ok(Entry::new(Arc::new(Association::new(settings)), request))
}

/// The usual TTL, and one that the DecIPTTL behind EspEncap takes off.
pub(super) const HOP_LIMIT: u8 = 65;
