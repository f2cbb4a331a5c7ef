//! =c
//! VLANDecap([ANNO, I<keywords> ETHERTYPE])
//!
//! =s ethernet
//! takes the 802.1Q tag off Ethernet packets
//!
//! =d
//! Takes Ethernet packets. Where the type is ETHERTYPE (0x8100 by default) the tag is taken out. Unless ANNO is false, its
//! control information becomes the packet's VLAN TCI annotation; that of a packet without a tag is 0.
//!
//! Packets too short for what they say are dropped and counted as "truncated Ethernet header".
//!
//! =a VLANEncap, StripEtherVLANHeader

use graph::{Class, Context, Element, Verdict};
use packet::wire::ethernet::{ADDRESSES_LEN, EtherType, Ethernet, TAG_LEN, VlanTag};
use packet::{Batch, Packet};

use super::header::TRUNCATED;
use super::vlan_encap::TCI_ANNOTATION;

pub(crate) static CLASS: Class = Class {
    name: "VLANDecap",
    capabilities: &[graph::KEEPS_ALL, graph::TAKES_MERGED],
    manual: graph::manual!("vlan_decap.rs"),
    make: |setup| {
        let annotate = setup.arguments.optional("ANNO")?.unwrap_or(true);
        let ethertype: u16 = setup.arguments.keyword_or("ETHERTYPE", 0x8100)?;
        setup.arguments.finish()?;
        Ok(Box::new(VlanDecap { annotate, ethertype: EtherType(ethertype) }))
    },
    ..Class::DEFAULT
};

struct VlanDecap {
    annotate: bool,
    ethertype: EtherType,
}

impl VlanDecap {
    fn decapsulate(&self, packet: &mut Packet) -> Verdict {
        let data = packet.data_mut();
        let mut tci = [0; 2];
        let Ok(frame) = Ethernet::new_checked(&*data) else { return Verdict::Drop(TRUNCATED) };
        if frame.ethertype() == self.ethertype {
            let Ok(tag) = VlanTag::new_checked(&data[ADDRESSES_LEN..]) else {
                return Verdict::Drop(TRUNCATED);
            };
            tci = tag.tci().to_be_bytes();
            data.copy_within(..ADDRESSES_LEN, TAG_LEN);
            packet.strip(TAG_LEN);
        }
        packet.set_link_header(0);
        if self.annotate {
            packet.annotations_mut().bytes_mut()[TCI_ANNOTATION].copy_from_slice(&tci);
        }
        Verdict::Keep
    }
}

impl Element for VlanDecap {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| self.decapsulate(packet));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::Bench;

    #[test]
    fn tags_go_into_the_annotation() {
        let mut bench = Bench::element(&crate::registry(), "VLANDecap", 1, 1);
        let tagged = b"dstdstsrcsrc\x81\x00\xa0\x64\x08\x00x";
        bench.push("in0", &[tagged, b"dstdstsrcsrc\x08\x00x", &tagged[..15], &tagged[..13]]);
        let packets = bench.taken_packets("out0");
        assert_eq!(packets.len(), 2);
        for (packet, tci) in packets.iter().zip([[0xa0, 0x64], [0, 0]]) {
            assert_eq!(packet.data(), b"dstdstsrcsrc\x08\x00x");
            assert_eq!(packet.annotations().bytes()[TCI_ANNOTATION], tci);
        }
        assert_eq!(bench.drops("e", TRUNCATED), 2);
    }
}
