//! The lines of a dump: what those that begin with `!` say of the others, and packets made of these.

use std::net::Ipv4Addr;

use elements::decision::ip_names;
use graph::FromArgument;
use graph::lang::{split_words, unquote};
use packet::Packet;

use super::draft::{Draft, Flow};
use super::field::{self, Field};
use super::{MAJOR_VERSION, MINOR_VERSION, ip, text};

/// What a line was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A packet, which [`Records::write`] makes now.
    Packet,
    /// Meant to be a packet, but not understood.
    Bad,
    /// Something else.
    Other,
    /// The rest of the dump is in the binary format.
    Binary,
}

/// What is known of a dump so far, and the packet of its last line.
#[derive(Debug, Default)]
pub(super) struct Records {
    fields: Vec<&'static Field>,
    /// Places of fields, in the order in which they are read.
    order: Vec<usize>,
    aggregate: u32,
    draft: Draft,
    begun: bool,
    /// Whether it was said that lines are not understood; once is enough.
    complained: bool,
    complaints: Vec<String>,
}

impl std::fmt::Debug for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The protocol that a name, one of the letters of dumps, or a number stands for.
pub(super) fn protocol(name: &str) -> Option<u8> {
    let named = ip_names::protocol(name).and_then(|number| u8::try_from(number).ok());
    named.or_else(|| ip::protocol(name))
}

/// Addresses and ports, with a dash for what is not to be set.
fn flow(words: &[&str]) -> Option<Flow> {
    fn or_dash<T: FromArgument>(word: &str, none: T) -> Option<T> {
        if word == "-" { Some(none) } else { T::from_argument(word) }
    }
    let &[source, source_port, destination, destination_port, ..] = words else { return None };
    Some(Flow {
        source: or_dash(source, Ipv4Addr::UNSPECIFIED)?,
        source_port: or_dash(source_port, 0)?,
        destination: or_dash(destination, Ipv4Addr::UNSPECIFIED)?,
        destination_port: or_dash(destination_port, 0)?,
    })
}

impl Records {
    /// Of a dump whose packets are of `protocol` unless it says otherwise.
    pub(super) fn new(protocol: u8) -> Self {
        Self { draft: Draft::new(protocol), ..Self::default() }
    }

    /// Names the fields of the lines to come. What is not known is passed over; its names are returned.
    pub(super) fn set_fields(&mut self, names: &str) -> Vec<String> {
        let mut unknown = Vec::new();
        let names = split_words(names).into_iter().map(|name| unquote(&name));
        let fields = names.map(|name| match field::find(&name) {
            Some(field) => field,
            None => {
                unknown.push(name);
                &field::NONE
            }
        });
        self.fields = fields.collect();
        self.order = (0..self.fields.len()).collect();
        self.order.sort_by_key(|&at| self.fields[at].order);
        unknown
    }

    /// Whether it is known which fields there are.
    pub(super) fn has_fields(&self) -> bool {
        !self.fields.is_empty()
    }

    /// Reads addresses and ports for packets that do not say theirs: `SRC SPORT DST DPORT [PROTO]`, with a dash for what is
    /// not to be set.
    pub(super) fn set_flow(&mut self, text: &str) -> Result<(), &'static str> {
        let words: Vec<&str> = text::words(text).collect();
        self.draft.flow = flow(&words);
        if self.draft.flow.is_none() {
            return Err("bad !flowid specification");
        }
        if let Some(name) = words.get(4) {
            self.draft.default_protocol = protocol(name).ok_or("bad protocol in !flowid")?;
        }
        Ok(())
    }

    /// What is wrong with the lines so far, each once.
    pub(super) fn complaints(&mut self) -> impl Iterator<Item = String> {
        self.complaints.drain(..)
    }

    /// Takes the next line.
    pub(super) fn take(&mut self, line: &str) -> Line {
        let is_first = !std::mem::replace(&mut self.begun, true);
        if is_first && self.banner(line) {
            return Line::Other;
        }
        if line.starts_with('!') {
            return self.bang(line);
        }
        if line.is_empty() || line.starts_with('#') {
            return Line::Other;
        }
        self.packet(line)
    }

    /// Reads a first line that says which version this is; false for another line, which should not come first.
    fn banner(&mut self, line: &str) -> bool {
        let Some(version) = line.strip_prefix("!IPSummaryDump") else {
            let known = ["!creator", "!data", "!contents", "!proto", "!flowid"];
            if !self.has_fields() && !known.iter().any(|word| line.starts_with(word)) {
                let complaint = "warning: missing banner line; is this an IP summary dump?";
                self.complaints.push(complaint.into());
            }
            return false;
        };
        let numbers = version.trim().split_once('.');
        let numbers =
            numbers.and_then(|(major, minor)| Some((major.parse::<u32>().ok()?, minor.parse().ok()?)));
        if let Some((major, minor)) = numbers {
            self.draft.minor_version = minor;
            if major != MAJOR_VERSION || minor > MINOR_VERSION {
                let complaint = format!("warning: unexpected IPSummaryDump version {major}.{minor}");
                self.complaints.push(complaint);
                self.draft.minor_version = MINOR_VERSION;
            }
        }
        true
    }

    fn bang(&mut self, line: &str) -> Line {
        let (word, rest) = line.split_once(|letter: char| letter.is_ascii_whitespace()).unwrap_or((line, ""));
        match word {
            "!data" | "!contents" => {
                for name in self.set_fields(rest) {
                    self.complaints.push(if field::UNSUPPORTED.contains(&name.as_str()) {
                        format!("warning: content type '{name}' ignored on input")
                    } else {
                        format!("warning: unknown content type '{name}'")
                    });
                }
                if !self.has_fields() {
                    self.complaints.push("no contents specified".into());
                }
            }
            "!flowid" => {
                if let Err(complaint) = self.set_flow(rest) {
                    self.complaints.push(complaint.into());
                }
            }
            "!proto" => {
                let mut words = text::words(rest);
                match (words.next(), words.next()) {
                    (Some(name), None) => match protocol(name) {
                        Some(protocol) => self.draft.default_protocol = protocol,
                        None => self.complaints.push("bad protocol in !proto".into()),
                    },
                    _ => self.complaints.push("bad !proto".into()),
                }
            }
            "!aggregate" => match u32::from_argument(rest.trim()) {
                Some(aggregate) => self.aggregate = aggregate,
                None => {
                    self.complaints.push("bad !aggregate specification".into());
                    self.aggregate = 0;
                }
            },
            "!binary" => {
                let complaint = "the binary format is not supported; write the dump again without BINARY";
                self.complaints.push(complaint.into());
                return Line::Binary;
            }
            _ => {}
        }
        Line::Other
    }

    fn packet(&mut self, line: &str) -> Line {
        self.draft.clear();
        self.draft.aggregate = self.aggregate;
        let words: Vec<&str> = text::words(line).take(self.fields.len()).collect();
        let mut understood = 0;
        for &at in &self.order {
            if let Some(&word) = words.get(at)
                && word != "-"
                && (self.fields[at].read)(&mut self.draft, word).is_some()
            {
                understood += 1;
            }
        }
        if understood > 0 {
            return Line::Packet;
        }
        if line.trim_ascii().is_empty() {
            return Line::Other;
        }
        if !std::mem::replace(&mut self.complained, true) {
            let complaint = if self.has_fields() { "packet parse error" } else { "no '!data' provided" };
            self.complaints.push(complaint.into());
        }
        Line::Bad
    }

    /// Makes the packet of the last line, with `sum` also its checksums. False when it does not fit the frame.
    pub(super) fn write(&mut self, packet: &mut Packet, sum: bool) -> bool {
        self.draft.write(packet, sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(records: &mut Records, lines: &[&str]) -> (Vec<Line>, Vec<String>) {
        let kinds = lines.iter().map(|line| records.take(line)).collect();
        (kinds, records.complaints().collect())
    }

    #[test]
    fn a_dump_and_its_first_lines() {
        let mut records = Records::new(6);
        let (kinds, complaints) = taken(
            &mut records,
            &[
                "!IPSummaryDump 1.0",
                "!creator \"me\"",
                "# a comment",
                "!data 'ip src' tcp_seq",
                "!aggregate 7",
                "!proto U",
                "!flowid 1.0.0.1 5 - - icmp",
                "10.0.0.1 5",
                "10.0.0.1",
                "- 5",
                "",
                "  ",
                "!bad truncated",
            ],
        );
        use Line::{Other, Packet};
        let packets = [Packet, Packet, Packet];
        assert_eq!(kinds, [&[Other; 7][..], &packets, &[Other; 3]].concat());
        assert_eq!(complaints, [""; 0]);
        assert_eq!(records.draft.minor_version, 0);
        assert_eq!(records.draft.default_protocol, 1);
        assert_eq!(records.draft.flow.map(|flow| flow.source_port), Some(5));
    }

    #[test]
    fn complaints_in_clicks_words() {
        for (lines, complaint) in [
            (&["10.0.0.1"][..], "warning: missing banner line; is this an IP summary dump?"),
            (&["!IPSummaryDump 2.0"], "warning: unexpected IPSummaryDump version 2.0"),
            (&["!creator x", "10.0.0.1", "10.0.0.2"], "no '!data' provided"),
            (&["!data ip_src", "ten", "eleven"], "packet parse error"),
            (&["!data ip_src", "!data ip_sorc"], "warning: unknown content type 'ip_sorc'"),
            (&["!data payload_md5"], "warning: content type 'payload_md5' ignored on input"),
            (&["!data"], "no contents specified"),
            (&["!data src", "!flowid 1 2 3"], "bad !flowid specification"),
            (&["!data src", "!flowid - - - - xx"], "bad protocol in !flowid"),
            (&["!data src", "!flowid 1.2.3.4 65536 - -"], "bad !flowid specification"),
            (&["!proto"], "bad !proto"),
            (&["!proto 256"], "bad protocol in !proto"),
            (&["!data src", "!aggregate x"], "bad !aggregate specification"),
        ] {
            let (_, complaints) = taken(&mut Records::new(6), lines);
            assert_eq!(complaints.first().map(String::as_str), Some(complaint), "{lines:?}");
            let expected = if lines[0] == "10.0.0.1" { 2 } else { 1 };
            assert_eq!(complaints.len(), expected, "{lines:?}");
        }
        assert_eq!(Records::new(6).take("!binary"), Line::Binary);
    }
}
