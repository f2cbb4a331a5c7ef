//! Fields of the Ethernet header.

use std::fmt::Write;

use packet::wire::ethernet::{EtherType, MacAddr};

use super::draft::Draft;
use super::field::{Field, LINK, parse, put};
use super::view::View;

/// Adds the address at `at`.
fn print_address(view: &mut View<'_>, out: &mut String, at: usize) -> Option<()> {
    let octets = view.ethernet()?.get(at..)?.first_chunk()?;
    write!(out, "{}", MacAddr(*octets)).ok()
}

fn read_address(draft: &mut Draft, text: &str, at: usize) -> Option<()> {
    let MacAddr(octets) = parse(text)?;
    put(draft.link_header(), at, octets);
    Some(())
}

pub(super) static FIELDS: &[Field] = &[
    Field {
        name: "eth_src",
        aliases: &["ether_src"],
        order: LINK,
        print: |view, out| print_address(view, out, 6),
        read: |draft, text| read_address(draft, text, 6),
    },
    Field {
        name: "eth_dst",
        aliases: &["ether_dst"],
        order: LINK,
        print: |view, out| print_address(view, out, 0),
        read: |draft, text| read_address(draft, text, 0),
    },
    Field {
        name: "eth_type",
        aliases: &["ether_type"],
        order: LINK,
        print: |view, out| {
            let [.., high, low] = view.ethernet()?;
            write!(out, "{high:02X}{low:02X}").ok()
        },
        read: |draft, text| {
            let kind = u16::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()?;
            put(draft.link_header(), 12, kind.to_be_bytes());
            draft.is_ip = kind == EtherType::IPV4.0 || kind == EtherType::IPV6.0;
            Some(())
        },
    },
];
