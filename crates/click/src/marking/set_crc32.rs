//! =c
//! SetCRC32()
//!
//! =s crc
//! puts a CRC-32 behind packets
//!
//! =d
//! Makes each packet 4 bytes longer; they hold a CRC over the rest of it. A packet without room for them is dropped and counted
//! as "no tail room".
//!
//! The CRC is Click's: that of Ethernet in its polynomial, but with the highest bit of a byte first and not inverted.
//!
//! =a CheckCRC32

use graph::{Class, Context, Element, Verdict};
use packet::Batch;

use super::crc32::{CRC_BYTES, crc32};

pub(crate) static CLASS: Class = Class {
    name: "SetCRC32",
    manual: graph::manual!("set_crc32.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(SetCrc32))
    },
    ..Class::DEFAULT
};

struct SetCrc32;

impl Element for SetCrc32 {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| {
            let crc = crc32(packet.data());
            match packet.append(CRC_BYTES) {
                Some(new) => {
                    new.copy_from_slice(&crc);
                    Verdict::Keep
                }
                None => Verdict::Drop("no tail room"),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn four_bytes_more() {
        let mut bench = Bench::element(&crate::registry(), "SetCRC32", 1, 1);
        bench.push("in0", &[b"123456789", b""]);
        assert_eq!(bench.taken("out0"), [&b"123456789\xe7\xe6\x76\x03"[..], &[0xff; 4]]);
        let mut full = bench.packet(b"x");
        full.append(full.tailroom()).unwrap();
        bench.push_packets("in0", vec![full]);
        assert_eq!(bench.drops("e", "no tail room"), 1);
    }
}
