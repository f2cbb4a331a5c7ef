//! Fields of ICMP messages.

use elements::icmp::names;
use packet::wire::icmp::unreachable_code;

use super::draft::Draft;
use super::field::{Field, TRANSPORT, number, parse, put, word};
use super::view::View;

/// The types with identifier and sequence number: echo, time stamp and information, requests and replies (RFC 792).
fn has_flow(kind: u8) -> bool {
    matches!(kind, names::ECHO_REPLY | names::ECHO | 13..=16)
}

/// How long a message of this type is at least (RFC 792 and 950).
fn length(kind: u8) -> usize {
    match kind {
        13 | 14 => 20,
        17 | 18 => 12,
        _ => 8,
    }
}

/// Adds the 16 bits at `at` of a message with identifier and sequence number.
fn print_flow(view: &mut View<'_>, out: &mut String, at: usize) -> Option<()> {
    if !has_flow(*view.icmp(1)?.first()?) {
        return None;
    }
    number(out, word(view.icmp(at + 2)?, at)?)
}

fn read_flow(draft: &mut Draft, at: usize, text: &str) -> Option<()> {
    let value: u16 = parse(text)?;
    if draft.icmp_type.is_none_or(has_flow)
        && let Some(message) = draft.icmp(8)
    {
        put(message, at, value.to_be_bytes());
    }
    Some(())
}

fn read_type(draft: &mut Draft, text: &str) -> Option<()> {
    let kind = names::type_number(text)?;
    if let Some(message) = draft.icmp(length(kind)) {
        put(message, 0, [kind]);
        draft.icmp_type = Some(kind);
    }
    Some(())
}

fn read_code(draft: &mut Draft, text: &str) -> Option<()> {
    let code = match draft.icmp_type {
        Some(kind) => names::code_number(kind, text)?,
        None => parse(text)?,
    };
    if let Some(message) = draft.icmp(8) {
        put(message, 1, [code]);
        draft.icmp_code = Some(code);
    }
    Some(())
}

pub(super) static FIELDS: &[Field] = &[
    Field {
        name: "icmp_type",
        aliases: &[],
        order: TRANSPORT,
        print: |view, out| number(out, *view.icmp(1)?.first()?),
        read: read_type,
    },
    Field {
        name: "icmp_code",
        aliases: &[],
        order: TRANSPORT + 1,
        print: |view, out| number(out, *view.icmp(2)?.get(1)?),
        read: read_code,
    },
    Field {
        name: "icmp_type_name",
        aliases: &[],
        order: TRANSPORT,
        print: |view, out| {
            let kind = *view.icmp(1)?.first()?;
            match names::type_name(kind) {
                Some(name) => out.push_str(name),
                None => number(out, kind)?,
            }
            Some(())
        },
        read: read_type,
    },
    Field {
        name: "icmp_code_name",
        aliases: &[],
        order: TRANSPORT + 1,
        print: |view, out| {
            let [kind, code] = *view.icmp(2)?.first_chunk()?;
            match names::code_name(kind, code) {
                Some(name) => out.push_str(name),
                None => number(out, code)?,
            }
            Some(())
        },
        read: read_code,
    },
    Field {
        name: "icmp_flowid",
        aliases: &[],
        order: TRANSPORT + 2,
        print: |view, out| print_flow(view, out, 4),
        read: |draft, text| read_flow(draft, 4, text),
    },
    Field {
        name: "icmp_seq",
        aliases: &[],
        order: TRANSPORT + 2,
        print: |view, out| print_flow(view, out, 6),
        read: |draft, text| read_flow(draft, 6, text),
    },
    Field {
        name: "icmp_nextmtu",
        aliases: &[],
        order: TRANSPORT + 2,
        print: |view, out| match *view.icmp(2)?.first_chunk()? {
            [names::UNREACHABLE, unreachable_code::FRAGMENTATION_NEEDED] => {
                number(out, word(view.icmp(8)?, 6)?)
            }
            _ => None,
        },
        read: |draft, text| {
            let value: u16 = parse(text)?;
            if draft.icmp_type.is_none_or(|kind| kind == names::UNREACHABLE)
                && draft.icmp_code.is_none_or(|code| code == unreachable_code::FRAGMENTATION_NEEDED)
                && let Some(message) = draft.icmp(8)
            {
                put(message, 6, value.to_be_bytes());
            }
            Some(())
        },
    },
];
