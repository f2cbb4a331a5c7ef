//! =c
//! EtherRewrite(SRC, DST)
//!
//! =s ethernet
//! overwrites the addresses of Ethernet headers
//!
//! =d
//! Sets source and destination in the Ethernet header of each packet to SRC and DST. The header is the link header if one is
//! marked, even if it was stripped since; otherwise it is at the start of the packet.
//!
//! A packet too short for it is dropped and counted as "truncated Ethernet header".
//!
//! =a EtherEncap, EtherMirror

use elements::ethernet::header::TRUNCATED;
use graph::{Class, Context, Element, Field, Handler, Verdict};
use packet::wire::ethernet::MacAddr;
use packet::{Batch, Packet};

pub(crate) static CLASS: Class = Class {
    capabilities: &[graph::TAKES_MERGED],
    name: "EtherRewrite",
    handlers: &[
        Handler::field("src", "The SRC argument.", &Field(|e: &mut EtherRewrite| &mut e.source)),
        Handler::field("dst", "The DST argument.", &Field(|e: &mut EtherRewrite| &mut e.destination)),
    ],
    manual: graph::manual!("ether_rewrite.rs"),
    make: |setup| {
        let source = setup.arguments.required("SRC")?;
        let destination = setup.arguments.required("DST")?;
        setup.arguments.finish()?;
        Ok(Box::new(EtherRewrite { source, destination }))
    },
    ..Class::DEFAULT
};

struct EtherRewrite {
    source: MacAddr,
    destination: MacAddr,
}

impl EtherRewrite {
    /// Both addresses as they stand in the header.
    fn addresses(&self) -> [u8; 12] {
        let mut addresses = [0; 12];
        addresses[..6].copy_from_slice(&self.destination.0);
        addresses[6..].copy_from_slice(&self.source.0);
        addresses
    }
}

/// Writes both addresses into the Ethernet header of the packet; false when it is too short for that.
#[inline(always)]
fn rewrite(packet: &mut Packet, addresses: &[u8; 12]) -> bool {
    let offset = packet.link_offset().unwrap_or(0);
    if offset < 0 {
        return rewrite_stripped(packet, addresses, offset.unsigned_abs());
    }
    let place = packet.data_mut().get_mut(offset.unsigned_abs()..);
    match place.and_then(|data| data.first_chunk_mut()) {
        Some(place) => {
            *place = *addresses;
            true
        }
        None => false,
    }
}

#[inline(never)]
fn rewrite_stripped(packet: &mut Packet, addresses: &[u8; 12], stripped: usize) -> bool {
    let place = packet.prepend(stripped).and_then(|data| data.first_chunk_mut());
    let Some(place) = place else { return false };
    *place = *addresses;
    packet.strip(stripped)
}

impl Element for EtherRewrite {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let addresses = self.addresses();
        cx.filter(
            batch,
            |packet| {
                if rewrite(packet, &addresses) { Verdict::Keep } else { Verdict::Drop(TRUNCATED) }
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::Bench;

    #[test]
    fn addresses_are_replaced_and_the_type_stays() {
        let text = "EtherRewrite(1:1:1:1:1:1, 2:2:2:2:2:2)";
        let mut bench = Bench::element(&crate::registry(), text, 1, 1);
        let frame: Vec<u8> = (0..16).collect();
        let wanted = [&[2; 6][..], &[1; 6], &[12, 13, 14, 15]].concat();
        let mut stripped = bench.packet(&frame);
        stripped.set_link_header(0);
        stripped.strip(14);
        let mut inner = bench.packet(&[&[9, 9][..], &frame].concat());
        inner.set_link_header(2);
        let plain = bench.packet(&frame);
        bench.push_packets("in0", vec![plain, stripped, inner]);
        let mut packets = bench.taken_packets("out0");
        assert_eq!(packets[0].data(), wanted);
        assert_eq!(packets[1].data(), [14, 15]);
        assert_eq!(packets[1].prepend(14).unwrap(), wanted);
        assert_eq!(packets[2].data(), [&[9, 9][..], &wanted].concat());
        bench.write("e.dst", "7:7:7:7:7:7").unwrap();
        assert_eq!(bench.read("e.dst"), "07-07-07-07-07-07");
        bench.push("in0", &[&[0; 11], b""]);
        assert_eq!(bench.drops("e", TRUNCATED), 2);
    }
}
