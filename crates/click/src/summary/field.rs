//! What a field of a dump is: its names, how it is printed and how it is read.

use std::fmt::Write;

use graph::FromArgument;
use graph::lang::nearest;

use super::draft::Draft;
use super::view::View;
use super::{annotations, icmp, ip, link, payload, transport};

/// A field. `Some(())` from its functions is success.
pub(super) struct Field {
    /// The name as a `!data` line has it.
    pub(super) name: &'static str,
    /// Other names for it.
    pub(super) aliases: &'static [&'static str],
    /// When it is read among the fields of a line: headers come from the outside inwards.
    pub(super) order: u16,
    /// Adds its text; `None`, with nothing added, when the packet has no such field.
    pub(super) print: fn(&mut View<'_>, &mut String) -> Option<()>,
    /// Puts what the text says into the packet; `None` when the text is not understood.
    pub(super) read: fn(&mut Draft, &str) -> Option<()>,
}

/// Orders of the annotations, the link header, and so on; a table may stay up to 50 away from them.
pub(super) const ANNOTATIONS: u16 = 100;
pub(super) const LINK: u16 = 200;
pub(super) const NETWORK: u16 = 300;
pub(super) const TRANSPORT: u16 = 400;
pub(super) const PAYLOAD: u16 = 500;

impl Field {
    /// Whether it is printed from what lies in the IP header or behind it.
    pub(super) fn looks_at_ip(&self) -> bool {
        self.order >= NETWORK - 50
    }
}

/// Stands for a field that is passed over when a dump is read.
pub(super) static NONE: Field =
    Field { name: "none", aliases: &[], order: ANNOTATIONS, print: |_, _| None, read: |_, _| None };

/// Names of Click's fields that are not supported: MD5 checksums of payloads.
pub(super) const UNSUPPORTED: [&str; 2] = ["payload_md5", "payload_md5_hex"];

/// All fields.
const TABLES: [&[Field]; 6] =
    [annotations::FIELDS, link::FIELDS, ip::FIELDS, transport::FIELDS, icmp::FIELDS, payload::FIELDS];

/// The field that `name` means: spaces may stand for underscores, and the `ip_` of a name may be left out.
pub(super) fn find(name: &str) -> Option<&'static Field> {
    let name = name.replace(' ', "_");
    let exact = |name: &str| {
        let mut fields = TABLES.into_iter().flatten();
        fields.find(|field| field.name == name || field.aliases.contains(&name))
    };
    exact(&name).or_else(|| if name.contains('_') { None } else { exact(&format!("ip_{name}")) })
}

/// What to say of a name that no field has.
pub(super) fn unknown_field(name: &str) -> String {
    let names = TABLES.into_iter().flatten().map(|field| field.name);
    if UNSUPPORTED.contains(&name) {
        return format!("'{name}' is not supported: no MD5 checksums are computed; use 'payload'");
    }
    match nearest(name, names) {
        Some(near) => format!("unknown content type '{name}'; did you mean '{near}'?"),
        None => format!("unknown content type '{name}'; 'brickway help ToIPSummaryDump' lists them"),
    }
}

/// Adds a number.
pub(super) fn number(out: &mut String, value: impl Into<u64>) -> Option<()> {
    write!(out, "{}", value.into()).ok()
}

/// Reads a number of the range of its type.
pub(super) fn parse<T: FromArgument>(text: &str) -> Option<T> {
    T::from_argument(text)
}

/// The 16 bits at `at`.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The 32 bits at `at`.
pub(super) fn long(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Writes `value` at `at`; nothing where the bytes end before.
pub(super) fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<N>()) {
        *place = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_their_short_forms() {
        for (name, found) in [
            ("ip_src", "ip_src"),
            ("src", "ip_src"),
            ("ip src", "ip_src"),
            ("len", "ip_len"),
            ("length", "ip_len"),
            ("proto", "ip_proto"),
            ("p", "ip_proto"),
            ("ts", "timestamp"),
            ("ntimestamp", "timestamp"),
            ("ts sec", "ts_sec"),
            ("tcp win", "tcp_window"),
            ("payload len", "payload_len"),
            ("payload_length", "payload_len"),
            ("opt", "ip_opt"),
            ("sport", "sport"),
            ("ether_src", "eth_src"),
            ("agg", "aggregate"),
            ("wire length", "wire_len"),
        ] {
            assert_eq!(find(name).map(|field| field.name), Some(found), "{name}");
        }
        for name in ["", "ip", "seq", "payload_md5", "tcp", "_"] {
            assert!(find(name).is_none(), "{name}");
        }
    }
}
