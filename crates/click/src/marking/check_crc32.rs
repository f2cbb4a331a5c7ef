//! =c
//! CheckCRC32()
//!
//! =s crc
//! checks the CRC-32 behind packets
//!
//! =d
//! Takes the CRC that C<SetCRC32> put there off the end of each packet. A packet for which it is wrong is dropped and counted
//! as "bad CRC".
//!
//! =a SetCRC32, RandomBitErrors

use graph::{Class, Context, Element, Verdict};
use packet::Batch;

use super::crc32::{CRC_BYTES, crc32};

pub(crate) static CLASS: Class = Class {
    name: "CheckCRC32",
    manual: graph::manual!("check_crc32.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(CheckCrc32))
    },
    ..Class::DEFAULT
};

struct CheckCrc32;

impl Element for CheckCrc32 {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| match packet.data().split_last_chunk::<CRC_BYTES>() {
            Some((data, crc)) if crc32(data) == *crc => {
                packet.truncate(packet.len() - CRC_BYTES);
                Verdict::Keep
            }
            _ => Verdict::Drop("bad CRC"),
        });
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn what_was_set_is_right() {
        let config = "in :: TestInput -> SetCRC32 -> e :: CheckCRC32 -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[b"abc", b""]);
        assert_eq!(bench.taken("out"), [&b"abc"[..], b""]);
    }

    #[test]
    fn any_other_bit_is_noticed() {
        let mut bench = Bench::element(&crate::registry(), "CheckCRC32", 1, 1);
        let good = b"123456789\xe7\xe6\x76\x03";
        for bit in 0..good.len() * 8 {
            let mut bad = *good;
            bad[bit / 8] ^= 1 << (bit % 8);
            bench.push("in0", &[&bad]);
        }
        bench.push("in0", &[b"abc"]);
        assert_eq!(bench.drops("e", "bad CRC"), good.len() as u64 * 8 + 1);
        bench.push("in0", &[good]);
        assert_eq!(bench.taken("out0"), [b"123456789"]);
    }
}
