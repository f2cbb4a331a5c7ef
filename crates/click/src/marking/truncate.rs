//! =c
//! Truncate(LENGTH, I<keyword> EXTRA_LENGTH)
//!
//! =s basicmod
//! cuts packets to a length
//!
//! =d
//! Packets longer than LENGTH bytes lose what is behind. How much that was is added to the extra length annotation, so
//! that C<Pad> can make up for it, unless EXTRA_LENGTH is false.
//!
//! =a Pad, Strip

use graph::{Class, Context, Element};
use packet::{Batch, Packet};

pub(crate) static CLASS: Class = Class {
    name: "Truncate",
    manual: graph::manual!("truncate.rs"),
    make: |setup| {
        let length: u16 = setup.arguments.required("LENGTH")?;
        let extra_length = setup.arguments.keyword_or("EXTRA_LENGTH", true)?;
        setup.arguments.finish()?;
        Ok(Box::new(Truncate { length: usize::from(length), extra_length }))
    },
    ..Class::DEFAULT
};

/// Where the annotations say by how many bytes a packet was cut, at Click's place.
pub(crate) const EXTRA_LENGTH: usize = 28;

struct Truncate {
    length: usize,
    extra_length: bool,
}

fn add_extra_length(packet: &mut Packet, bytes: usize) {
    let annotations = packet.annotations_mut();
    let before = annotations.u32_at(EXTRA_LENGTH).unwrap_or(0);
    annotations.set_u32_at(EXTRA_LENGTH, before.saturating_add(bytes as u32));
}

impl Element for Truncate {
    fn process(&mut self, _cx: &mut Context, batch: &mut Batch) {
        for packet in batch.packets_mut() {
            if packet.len() > self.length {
                if self.extra_length {
                    add_extra_length(packet, packet.len() - self.length);
                }
                packet.truncate(self.length);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn long_packets_are_cut() {
        let config = "in :: TestInput -> Truncate(4) -> Truncate(2) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[b"abcdef", b"abc", b"ab", b""]);
        let packets = bench.taken_packets("out");
        let data: Vec<&[u8]> = packets.iter().map(|packet| packet.data()).collect();
        assert_eq!(data, [&b"ab"[..], b"ab", b"ab", b""]);
        let extra: Vec<_> =
            packets.iter().map(|packet| packet.annotations().u32_at(EXTRA_LENGTH).unwrap()).collect();
        assert_eq!(extra, [4, 1, 0, 0]);
    }

    #[test]
    fn without_the_annotation() {
        let mut bench = Bench::element(&crate::registry(), "Truncate(1, EXTRA_LENGTH false)", 1, 1);
        bench.push("in0", &[b"abc"]);
        assert_eq!(bench.taken_packets("out0")[0].annotations().u32_at(EXTRA_LENGTH), Some(0));
        assert!(configure(&CLASS, "").is_err());
    }
}
