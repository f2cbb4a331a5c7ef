//! =c
//! Pad([LENGTH, I<keyword> ZERO])
//!
//! =s basicmod
//! makes packets longer
//!
//! =d
//! Packets shorter than LENGTH bytes get bytes at their end. Without LENGTH (or with 0) they get as
//! many as the number in their extra length annotation, for instance the bytes that C<Truncate>
//! took. The new bytes are zero. With ZERO false they keep the bytes that are there. The annotation
//! is zero afterwards. A packet without room is dropped and counted as "no tail room".
//!
//! =a Truncate

use graph::{Class, Verdict};
use packet::Packet;

use super::truncate::EXTRA_LENGTH;
use crate::each_packet::each_packet;

pub(crate) static CLASS: Class = Class {
    name: "Pad",
    manual: graph::manual!("pad.rs"),
    make: |setup| {
        let length: u32 = setup.arguments.optional("LENGTH")?.unwrap_or(0);
        let zero = setup.arguments.keyword_or("ZERO", true)?;
        each_packet(setup, move |packet| pad(packet, length as usize, zero))
    },
    ..Class::DEFAULT
};

fn pad(packet: &mut Packet, length: usize, zero: bool) -> Verdict {
    let missing = match length {
        0 => packet.annotations().u32_at(EXTRA_LENGTH).unwrap_or(0) as usize,
        _ => length.saturating_sub(packet.len()),
    };
    if missing > 0 {
        match packet.append(missing) {
            Some(new) if zero => new.fill(0),
            Some(_) => {}
            None => return Verdict::Drop("no tail room"),
        }
    }
    packet.annotations_mut().set_u32_at(EXTRA_LENGTH, 0);
    Verdict::Keep
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    fn through(elements: &str, packet: &[u8]) -> Vec<Vec<u8>> {
        let config = format!("in :: TestInput -> {elements} -> out :: TestOutput");
        let mut bench = Bench::new(&crate::registry(), &config);
        bench.push("in", &[packet]);
        bench.taken("out")
    }

    #[test]
    fn to_a_length() {
        assert_eq!(through("Pad(5)", b"abc"), [b"abc\0\0"]);
        assert_eq!(through("Pad(2)", b"abc"), [b"abc"]);
        assert_eq!(through("Truncate(2) -> Pad(4)", b"abcdef"), [b"ab\0\0"]);
        assert_eq!(through("Pad(5, ZERO false)", b"abc")[0].len(), 5);
    }

    #[test]
    fn what_was_cut() {
        assert_eq!(through("Truncate(2) -> Pad", b"abcd"), [b"ab\0\0"]);
        assert_eq!(through("Truncate(2) -> Pad -> Pad", b"abcd"), [b"ab\0\0"]);
        assert_eq!(through("Pad", b"abcd"), [b"abcd"]);
    }

    #[test]
    fn without_room() {
        let mut bench = Bench::element(&crate::registry(), "Pad(100000)", 1, 1);
        bench.push("in0", &[b"abc"]);
        assert_eq!(bench.drops("e", "no tail room"), 1);
    }
}
