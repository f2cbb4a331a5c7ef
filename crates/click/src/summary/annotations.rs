//! Fields of the annotations: time, how many packets one stands for, paint, aggregate, length on the wire.

use graph::FromArgument;
use packet::{Annotations, Packet};

use super::field::{ANNOTATIONS, Field, number, parse};
use super::text::parse_seconds;
use crate::marking::print::write_timestamp;
use crate::marking::truncate::EXTRA_LENGTH;

/// Where the annotations say when the first of the packets came that this one stands for, at Click's place: eight bytes,
/// nanoseconds since 1970.
const FIRST_TIMESTAMP: std::ops::Range<usize> = 32..40;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// When the first of the packets came that this one stands for; 0 when nobody said.
pub(super) fn first_timestamp_ns(packet: &Packet) -> u64 {
    let bytes = &packet.annotations().bytes()[FIRST_TIMESTAMP];
    bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

pub(super) fn set_first_timestamp_ns(packet: &mut Packet, ns: u64) {
    packet.annotations_mut().bytes_mut()[FIRST_TIMESTAMP].copy_from_slice(&ns.to_ne_bytes());
}

/// How many packets this one stands for beyond itself.
pub(super) fn extra_packets(packet: &Packet) -> u32 {
    packet.annotations().u32_at(Annotations::EXTRA_PACKETS).unwrap_or(0)
}

/// How many bytes belong to the packet and are not here.
pub(super) fn extra_length(packet: &Packet) -> u32 {
    packet.annotations().u32_at(EXTRA_LENGTH).unwrap_or(0)
}

pub(super) fn set_extra_length(packet: &mut Packet, bytes: usize) {
    packet.annotations_mut().set_u32_at(EXTRA_LENGTH, u32::try_from(bytes).unwrap_or(u32::MAX));
}

/// Reads seconds that fit the rest of a time.
fn seconds(text: &str) -> Option<u64> {
    parse::<u64>(text)?.checked_mul(NS_PER_SECOND)
}

fn paint(text: &str) -> Option<u8> {
    match text {
        ">" | "L" => Some(0),
        "<" | "R" | "X" => Some(1),
        number => u8::from_argument(number),
    }
}

pub(super) static FIELDS: &[Field] = &[
    Field {
        name: "timestamp",
        aliases: &["ts", "utimestamp", "ntimestamp"],
        order: ANNOTATIONS,
        print: |view, out| {
            write_timestamp(out, view.timestamp_ns);
            Some(())
        },
        read: |draft, text| {
            draft.timestamp_ns = parse_seconds(text)?;
            Some(())
        },
    },
    Field {
        name: "ts_sec",
        aliases: &["sec"],
        order: ANNOTATIONS,
        print: |view, out| number(out, view.timestamp_ns / NS_PER_SECOND),
        read: |draft, text| {
            draft.timestamp_ns = seconds(text)?.checked_add(draft.timestamp_ns % NS_PER_SECOND)?;
            Some(())
        },
    },
    Field {
        name: "ts_usec",
        aliases: &["usec"],
        order: ANNOTATIONS,
        print: |view, out| number(out, view.timestamp_ns % NS_PER_SECOND / 1000),
        read: |draft, text| {
            let within = parse::<u64>(text).filter(|&us| us < 1_000_000)? * 1000;
            let seconds = draft.timestamp_ns - draft.timestamp_ns % NS_PER_SECOND;
            draft.timestamp_ns = seconds.checked_add(within)?;
            Some(())
        },
    },
    Field {
        name: "ts_usec1",
        aliases: &["usec1"],
        order: ANNOTATIONS,
        print: |view, out| number(out, view.timestamp_ns / 1000),
        read: |draft, text| {
            draft.timestamp_ns = parse::<u64>(text)?.checked_mul(1000)?;
            Some(())
        },
    },
    Field {
        name: "first_timestamp",
        aliases: &["first_ts", "first_utimestamp", "first_ntimestamp"],
        order: ANNOTATIONS,
        print: |view, out| {
            write_timestamp(out, first_timestamp_ns(view.packet));
            Some(())
        },
        read: |draft, text| {
            draft.first_timestamp_ns = parse_seconds(text)?;
            Some(())
        },
    },
    Field {
        name: "count",
        aliases: &["pkt_count", "packet_count"],
        order: ANNOTATIONS,
        print: |view, out| number(out, 1 + u64::from(extra_packets(view.packet))),
        read: |draft, text| {
            draft.extra_packets = parse::<u32>(text)?.saturating_sub(1);
            Some(())
        },
    },
    Field {
        name: "link",
        aliases: &[],
        order: ANNOTATIONS,
        print: |view, out| number(out, view.packet.annotations().paint()),
        read: |draft, text| {
            draft.paint = paint(text)?;
            Some(())
        },
    },
    Field {
        name: "paint",
        aliases: &[],
        order: ANNOTATIONS,
        print: |view, out| number(out, view.packet.annotations().paint()),
        read: |draft, text| {
            draft.paint = paint(text)?;
            Some(())
        },
    },
    Field {
        name: "direction",
        aliases: &[],
        order: ANNOTATIONS,
        print: |view, out| {
            match view.packet.annotations().paint() {
                0 => out.push('>'),
                1 => out.push('<'),
                other => number(out, other)?,
            }
            Some(())
        },
        read: |draft, text| {
            draft.paint = paint(text)?;
            Some(())
        },
    },
    Field {
        name: "aggregate",
        aliases: &["agg"],
        order: ANNOTATIONS,
        print: |view, out| number(out, view.packet.annotations().u32_at(Annotations::AGGREGATE).unwrap_or(0)),
        read: |draft, text| {
            draft.aggregate = parse(text)?;
            Some(())
        },
    },
    Field {
        name: "wire_len",
        aliases: &["wire_length"],
        order: ANNOTATIONS,
        print: |view, out| number(out, view.packet.len() as u64),
        read: |draft, text| {
            draft.length = parse::<u32>(text)? as usize;
            Some(())
        },
    },
    Field {
        name: "capture_len",
        aliases: &["capture_length"],
        order: ANNOTATIONS,
        print: |view, out| number(out, view.data().len() as u64),
        // How much is here follows from the other fields.
        read: |_, text| parse::<u32>(text).map(|_| ()),
    },
];
