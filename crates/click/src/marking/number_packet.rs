//! =c
//! NumberPacket([OFFSET])
//!
//! =s basicmod
//! writes a number into each packet, counting up
//!
//! =d
//! Writes a number of 8 bytes, in the byte order of the machine, OFFSET bytes into each packet (40 by default). The first is 0,
//! and each is one more than the one before, over all workers. A packet that is too short gets bytes at its end; if its IP header
//! is marked, its length is updated. One without room is dropped and counted as "no tail room".
//!
//! =a SetTimestamp, Pad

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use graph::{Class, Combine, ConfigError, Context, Element, Get, Handler, Verdict};
use packet::wire::ipv4::Ipv4;
use packet::{Batch, Packet, checksum};

pub(crate) static CLASS: Class = Class {
    name: "NumberPacket",
    handlers: &[Handler::read(
        "count",
        Combine::First,
        "Packets numbered so far.",
        &Get(|e: &mut NumberPacket| e.next.load(Ordering::Relaxed).to_string()),
    )],
    manual: graph::manual!("number_packet.rs"),
    make: |setup| {
        let offset: u16 = setup.arguments.optional("OFFSET")?.unwrap_or(40);
        setup.arguments.finish()?;
        let next = setup.shared_by_copies(|| Ok::<_, ConfigError>(AtomicU64::new(0)))?;
        Ok(Box::new(NumberPacket { offset: usize::from(offset), next }))
    },
    ..Class::DEFAULT
};

const NUMBER_BYTES: usize = 8;

struct NumberPacket {
    offset: usize,
    next: Arc<AtomicU64>,
}

/// Makes the packet `missing` bytes longer, and its IP header, if it has one, know of it.
fn lengthen(packet: &mut Packet, missing: usize) -> Option<()> {
    packet.append(missing)?.fill(0);
    let network = packet.network_mut()?;
    let length = u16::try_from(network.len()).ok()?;
    let mut header = Ipv4::new_unchecked(network.first_chunk_mut::<20>()?);
    if header.version() == 4 {
        let old = header.total_len() as u16;
        header.set_total_len(length);
        header.set_checksum(checksum::update_u16(header.checksum(), old, length));
    }
    Some(())
}

impl Element for NumberPacket {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let mut number = self.next.fetch_add(batch.len() as u64, Ordering::Relaxed);
        let end = self.offset + NUMBER_BYTES;
        cx.filter(batch, |packet| {
            if packet.len() < end {
                lengthen(packet, end - packet.len());
            }
            let field = packet.data_mut().get_mut(self.offset..).and_then(|rest| rest.first_chunk_mut());
            let Some(field) = field else { return Verdict::Drop("no tail room") };
            *field = number.to_ne_bytes();
            number += 1;
            Verdict::Keep
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};
    use testbed::ipv4::ipv4;

    #[test]
    fn numbers_count_up() {
        let mut bench = Bench::element(&crate::registry(), "NumberPacket(2)", 1, 1);
        bench.push("in0", &[&[9; 12], &[9; 10]]);
        bench.push("in0", &[b"a"]);
        let packets = bench.taken("out0");
        for (number, packet) in packets.iter().enumerate() {
            assert_eq!(packet[2..10], (number as u64).to_ne_bytes());
        }
        assert_eq!((packets[0][10], packets[2].len(), packets[2][0]), (9, 10, b'a'));
        assert_eq!(bench.read("e.count"), "3");
    }

    #[test]
    fn the_ip_header_knows_the_new_length() {
        let config = "in :: TestInput -> CheckIPHeader -> NumberPacket -> CheckIPHeader -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[&ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, b"12345678")]);
        assert_eq!(bench.taken("out")[0].len(), 48);
    }

    #[test]
    fn without_room() {
        let mut bench = Bench::element(&crate::registry(), "NumberPacket(60000)", 1, 1);
        bench.push("in0", &[b"a"]);
        assert_eq!(bench.drops("e", "no tail room"), 1);
        assert!(configure(&CLASS, "-1").is_err());
    }
}
