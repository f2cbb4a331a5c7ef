//! =c
//! SetTCPChecksum([FIXOFF])
//!
//! =s tcp
//! sets the TCP checksum
//!
//! =d
//! Computes the checksum of the TCP segment anew in packets whose IP header is marked. With FIXOFF true a data offset that
//! points into the header, or behind the segment, is first made to point behind the segment (or as far as it can).
//!
//! Drop reasons: bad packet length, no IP header.
//!
//! =a SetUDPChecksum, SetIPChecksum, CheckTCPHeader

use graph::{Class, Context, Element, Verdict};
use packet::wire::tcp::{MAX_HEADER_LEN, MIN_HEADER_LEN, Tcp};
use packet::{Batch, Packet};

use super::segment::{BAD_LENGTH, Segment};

pub(crate) static CLASS: Class = Class {
    name: "SetTCPChecksum",
    manual: graph::manual!("set_tcp_checksum.rs"),
    make: |setup| {
        let fix_offset = setup.arguments.optional("FIXOFF")?.unwrap_or(false);
        setup.arguments.finish()?;
        Ok(Box::new(SetTCPChecksum { fix_offset }))
    },
    ..Class::DEFAULT
};

struct SetTCPChecksum {
    fix_offset: bool,
}

impl SetTCPChecksum {
    fn set(&self, packet: &mut Packet) -> Result<(), &'static str> {
        let Segment { bytes, pseudo } = Segment::of(packet)?;
        if bytes.len() < MIN_HEADER_LEN {
            return Err(BAD_LENGTH);
        }
        // The upper half of the octet counts words.
        let header_len = usize::from(bytes[12] >> 4) * 4;
        if self.fix_offset && !(MIN_HEADER_LEN..=bytes.len()).contains(&header_len) {
            let words = bytes.len().min(MAX_HEADER_LEN) / 4;
            bytes[12] = (words as u8) << 4 | bytes[12] & 0x0f;
        }
        Tcp::new_unchecked(bytes).fill_checksum(&pseudo);
        Ok(())
    }
}

impl Element for SetTCPChecksum {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| match self.set(packet) {
            Ok(()) => Verdict::Keep,
            Err(reason) => Verdict::Drop(reason),
        });
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use testbed::ipv4::ipv4;

    fn segment(offset: u8, len: usize) -> Vec<u8> {
        let mut segment = vec![7; len];
        segment[12] = offset << 4;
        ipv4([1, 2, 3, 4], [5, 6, 7, 8], 6, &segment)
    }

    #[test]
    fn the_checksum_is_right() {
        let config =
            "in :: TestInput -> CheckIPHeader -> e :: SetTCPChecksum -> CheckTCPHeader -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        let padded = [&segment(5, 31)[..], &[1; 9]].concat();
        bench.push("in", &[&segment(5, 20), &padded, &segment(5, 19)]);
        assert_eq!(bench.taken("out").len(), 2);
        assert_eq!(bench.drops("e", "bad packet length"), 1);
        let mut bench = Bench::element(&crate::registry(), "SetTCPChecksum", 1, 1);
        bench.push("in0", &[&segment(5, 20)]);
        assert_eq!(bench.drops("e", "no IP header"), 1);
    }

    #[test]
    fn the_offset_is_fixed() {
        let config =
            "in :: TestInput -> MarkIPHeader -> SetTCPChecksum(true) -> CheckTCPHeader -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[&segment(4, 24), &segment(7, 24), &segment(5, 24), &segment(0, 100)]);
        let offsets: Vec<u8> = bench.taken("out").iter().map(|packet| packet[32] >> 4).collect();
        assert_eq!(offsets, [6, 6, 5, 15]);
    }
}
