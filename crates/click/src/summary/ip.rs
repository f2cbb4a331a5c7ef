//! Fields of the IPv4 header.

use std::fmt::Write;
use std::net::Ipv4Addr;

use packet::wire::IpProtocol;

use super::draft::Draft;
use super::field::{Field, NETWORK, PAYLOAD, number, parse, put, word};
use super::ip_options;
use super::view::View;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

/// Names of the two bits for explicit congestion notification (RFC 3168); `ect1` is 01.
const ECN: [&str; 4] = ["no", "ect1", "ect2", "ce"];

/// Adds the byte at `at` as a number.
fn print_byte(view: &mut View<'_>, out: &mut String, at: usize) -> Option<()> {
    number(out, *view.ip(at + 1)?.get(at)?)
}

/// Adds the 16 bits at `at` as a number.
fn print_word(view: &mut View<'_>, out: &mut String, at: usize) -> Option<()> {
    number(out, word(view.ip(at + 2)?, at)?)
}

/// Reads the bytes at `at`, which `parse` makes of the text.
fn read_at<const N: usize>(draft: &mut Draft, at: usize, value: Option<[u8; N]>) -> Option<()> {
    let value = value?;
    if let Some(header) = draft.ip(None) {
        put(header, at, value);
    }
    Some(())
}

/// Changes the byte of the type of service: the bits of `mask` become those of `value`.
fn read_tos(draft: &mut Draft, mask: u8, value: u8) {
    if let Some(tos) = draft.ip(None).and_then(|header| header.get_mut(1)) {
        *tos = (*tos & !mask) | (value & mask);
    }
}

/// Reads flags and offset of a fragment: a letter, or the offset with `+` for "more" and `!` for "do not fragment".
fn read_fragment(draft: &mut Draft, text: &str) -> Option<()> {
    let flags = match text {
        "." => 0,
        "!" => DONT_FRAGMENT,
        "F" => MORE_FRAGMENTS,
        // Some offset, since the dump does not say which.
        "f" => 100,
        _ => {
            let digits = text.trim_end_matches(['+', '!']);
            let offset: u32 = parse(digits)?;
            let units = if draft.minor_version > 0 { offset >> 3 } else { offset };
            let mut flags = u16::try_from(units).ok().filter(|&units| units <= OFFSET)?;
            for mark in text[digits.len()..].chars() {
                flags |= if mark == '+' { MORE_FRAGMENTS } else { DONT_FRAGMENT };
            }
            flags
        }
    };
    read_at(draft, 6, Some(flags.to_be_bytes()))
}

/// Reads a protocol as a dump has it.
pub(super) fn protocol(text: &str) -> Option<u8> {
    match text {
        "T" => Some(IpProtocol::TCP.0),
        "U" => Some(IpProtocol::UDP.0),
        "I" => Some(IpProtocol::ICMP.0),
        number => parse(number),
    }
}

pub(super) static FIELDS: &[Field] = &[
    Field {
        name: "ip_src",
        aliases: &[],
        order: NETWORK,
        print: |view, out| {
            let octets: [u8; 4] = *view.ip(16)?.get(12..)?.first_chunk()?;
            write!(out, "{}", Ipv4Addr::from(octets)).ok()
        },
        read: |draft, text| read_at(draft, 12, parse(text).map(|address: Ipv4Addr| address.octets())),
    },
    Field {
        name: "ip_dst",
        aliases: &[],
        order: NETWORK,
        print: |view, out| {
            let octets: [u8; 4] = *view.ip(20)?.get(16..)?.first_chunk()?;
            write!(out, "{}", Ipv4Addr::from(octets)).ok()
        },
        read: |draft, text| read_at(draft, 16, parse(text).map(|address: Ipv4Addr| address.octets())),
    },
    Field {
        name: "ip_tos",
        aliases: &[],
        order: NETWORK,
        print: |view, out| print_byte(view, out, 1),
        read: |draft, text| {
            read_tos(draft, 0xff, parse(text)?);
            Some(())
        },
    },
    Field {
        name: "ip_dscp",
        aliases: &[],
        order: NETWORK,
        print: |view, out| number(out, view.ip(2)?.get(1)? >> 2),
        read: |draft, text| {
            read_tos(draft, 0xfc, parse::<u8>(text).filter(|&point| point < 64)? << 2);
            Some(())
        },
    },
    Field {
        name: "ip_ecn",
        aliases: &[],
        order: NETWORK,
        print: |view, out| {
            out.push_str(ECN[usize::from(view.ip(2)?.get(1)? & 3)]);
            Some(())
        },
        read: |draft, text| {
            let bits = match text {
                "ECT(1)" => 1,
                "ECT(0)" => 2,
                "CE" => 3,
                _ => match ECN.iter().position(|&name| name == text) {
                    Some(bits) => bits as u8,
                    None => parse::<u8>(text).filter(|&bits| bits < 4)?,
                },
            };
            read_tos(draft, 3, bits);
            Some(())
        },
    },
    Field {
        name: "ip_ttl",
        aliases: &[],
        order: NETWORK,
        print: |view, out| print_byte(view, out, 8),
        read: |draft, text| read_at(draft, 8, parse(text).map(u8::to_be_bytes)),
    },
    Field {
        name: "ip_frag",
        aliases: &[],
        order: NETWORK - 2,
        print: |view, out| {
            let flags = word(view.ip(8)?, 6)?;
            out.push(match (flags & OFFSET, flags & MORE_FRAGMENTS != 0) {
                (0, true) => 'F',
                (0, false) if flags & DONT_FRAGMENT != 0 => '!',
                (0, false) => '.',
                _ => 'f',
            });
            Some(())
        },
        read: read_fragment,
    },
    Field {
        name: "ip_fragoff",
        aliases: &[],
        order: NETWORK - 1,
        print: |view, out| {
            let flags = word(view.ip(8)?, 6)?;
            number(out, (flags & OFFSET) << 3)?;
            if flags & MORE_FRAGMENTS != 0 {
                out.push('+');
            }
            if flags & DONT_FRAGMENT != 0 {
                out.push('!');
            }
            Some(())
        },
        read: read_fragment,
    },
    Field {
        name: "ip_id",
        aliases: &[],
        order: NETWORK,
        print: |view, out| print_word(view, out, 4),
        read: |draft, text| read_at(draft, 4, parse(text).map(u16::to_be_bytes)),
    },
    Field {
        name: "ip_sum",
        aliases: &[],
        order: NETWORK + 2,
        print: |view, out| print_word(view, out, 10),
        read: |draft, text| read_at(draft, 10, parse(text).map(u16::to_be_bytes)),
    },
    Field {
        name: "ip_proto",
        aliases: &["ip_p"],
        order: NETWORK,
        print: |view, out| {
            match IpProtocol(*view.ip(10)?.get(9)?) {
                IpProtocol::TCP => out.push('T'),
                IpProtocol::UDP => out.push('U'),
                IpProtocol::ICMP => out.push('I'),
                IpProtocol(other) => number(out, other)?,
            }
            Some(())
        },
        read: |draft, text| read_at(draft, 9, protocol(text).map(u8::to_be_bytes)),
    },
    Field {
        name: "ip_hl",
        aliases: &[],
        order: NETWORK - 1,
        print: |view, out| number(out, (view.ip(1)?.first()? & 0x0f) * 4),
        read: |draft, text| {
            draft.set_ip_header_length(parse::<u8>(text).filter(|&length| length <= 60)?);
            Some(())
        },
    },
    Field {
        name: "ip_len",
        aliases: &["length"],
        order: NETWORK + 1,
        print: |view, out| {
            let length = match view.ip_length() {
                Some(length) => u64::from(length),
                None => view.data().len() as u64,
            };
            number(out, length + u64::from(view.extra_length))
        },
        read: |draft, text| {
            let length = parse::<u32>(text)? as usize;
            if draft.ip(None).is_some() {
                draft.length = length + draft.link_length();
            }
            Some(())
        },
    },
    Field {
        name: "ip_capture_len",
        aliases: &[],
        order: PAYLOAD + 2,
        print: |view, out| number(out, view.whole_ip().unwrap_or(view.data()).len() as u64),
        // How much is here follows from the other fields.
        read: |_, text| parse::<u32>(text).map(|_| ()),
    },
    Field {
        name: "ip_opt",
        aliases: &[],
        order: NETWORK,
        print: |view, out| {
            let header = view.ip_header_length().max(20);
            match view.ip(if header > 20 { header } else { 0 })?.get(20..header) {
                Some(options) => ip_options::print(out, options),
                None => ip_options::print(out, &[]),
            }
        },
        read: |draft, text| {
            let options = ip_options::read(text)?;
            draft.set_ip_options(&options);
            Some(())
        },
    },
];
