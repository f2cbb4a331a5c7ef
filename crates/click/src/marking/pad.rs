//! =c
//! Pad([LENGTH, I<keyword> ZERO])
//!
//! =s basicmod
//! makes packets longer
//!
//! =d
//! Packets shorter than LENGTH bytes get bytes at their end. Without LENGTH (or with 0) they get as many as their extra
//! length annotation says, for instance what C<Truncate> took. The new bytes are zero, or with ZERO false whatever is
//! there. The annotation is zero afterwards. A packet without room is dropped and counted as "no tail room".
//!
//! =a Truncate

use graph::{Class, Context, Element, Verdict};
use packet::{Batch, Packet};

use super::truncate::EXTRA_LENGTH;

pub(crate) static CLASS: Class = Class {
    name: "Pad",
    manual: graph::manual!("pad.rs"),
    make: |setup| {
        let length: u32 = setup.arguments.optional("LENGTH")?.unwrap_or(0);
        let zero = setup.arguments.keyword_or("ZERO", true)?;
        setup.arguments.finish()?;
        Ok(Box::new(Pad { length: length as usize, zero }))
    },
    ..Class::DEFAULT
};

struct Pad {
    length: usize,
    zero: bool,
}

impl Pad {
    fn missing(&self, packet: &Packet) -> usize {
        if self.length > 0 {
            self.length.saturating_sub(packet.len())
        } else {
            packet.annotations().u32_at(EXTRA_LENGTH).unwrap_or(0) as usize
        }
    }
}

impl Element for Pad {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| {
            let missing = self.missing(packet);
            if missing > 0 {
                match packet.append(missing) {
                    Some(new) if self.zero => new.fill(0),
                    Some(_) => {}
                    None => return Verdict::Drop("no tail room"),
                }
            }
            packet.annotations_mut().set_u32_at(EXTRA_LENGTH, 0);
            Verdict::Keep
        });
    }
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
