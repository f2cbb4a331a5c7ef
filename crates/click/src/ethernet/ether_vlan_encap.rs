//! =c
//! EtherVLANEncap(ETHERTYPE, SRC, DST [, VLAN_TCI, VLAN_PCP, I<keywords> VLAN_ID, NATIVE_VLAN])
//!
//! =s ethernet
//! encapsulates packets in an Ethernet header with an 802.1Q tag
//!
//! =d
//! Puts an Ethernet header with the source SRC, the destination DST and a tag before each packet; behind the tag stands the type
//! ETHERTYPE. The tag's control information is VLAN_TCI, or VLAN_ID (0 to 4095) and the priority VLAN_PCP (0 to 7); with C<ANNO>
//! for VLAN_TCI it is the packet's VLAN TCI annotation. Packets for the VLAN NATIVE_VLAN (0 by default; -1 is none) get a header
//! without a tag.
//!
//! A packet without room is dropped and counted as "no room for an Ethernet header".
//!
//! =e
//!   EtherVLANEncap(0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2, VLAN_ID 100)
//!
//! =a StripEtherVLANHeader, SetVLANAnno, VLANEncap, EtherEncap

use elements::ethernet::header::{self, NO_ROOM};
use elements::ethernet::vlan_encap::Tag;
use graph::{Class, Combine, Context, Element, Field, Get, Handler, Put, Verdict};
use packet::wire::ethernet::{HEADER_LEN, MacAddr, TAG_LEN};
use packet::{Batch, Packet};

pub(crate) static CLASS: Class = Class {
    name: "EtherVLANEncap",
    handlers: &[
        Handler::field("src", "The SRC argument.", &Field(|e: &mut EtherVlanEncap| &mut e.source)),
        Handler::field("dst", "The DST argument.", &Field(|e: &mut EtherVlanEncap| &mut e.destination)),
        Handler::field(
            "ethertype",
            "The ETHERTYPE argument, in decimal when read.",
            &Field(|e: &mut EtherVlanEncap| &mut e.ethertype),
        ),
        Handler::read_write(
            "vlan_tci",
            Combine::First,
            "The control information, or ANNO.",
            &Get(|e: &mut EtherVlanEncap| e.tag.read()),
            &Put(|e: &mut EtherVlanEncap, _, value| e.tag.write(value)),
        ),
    ],
    manual: graph::manual!("ether_vlan_encap.rs"),
    make: |setup| {
        let ethertype = setup.arguments.required("ETHERTYPE")?;
        let source = setup.arguments.required("SRC")?;
        let destination = setup.arguments.required("DST")?;
        let tag = Tag::from_arguments(&mut setup.arguments)?;
        setup.arguments.finish()?;
        Ok(Box::new(EtherVlanEncap { ethertype, source, destination, tag }))
    },
    ..Class::DEFAULT
};

/// The type of an 802.1Q tag.
const TAGGED: u16 = 0x8100;

struct EtherVlanEncap {
    ethertype: u16,
    source: MacAddr,
    destination: MacAddr,
    tag: Tag,
}

impl EtherVlanEncap {
    fn encapsulate(&self, packet: &mut Packet) -> bool {
        let plain = header::bytes(self.destination, self.source, self.ethertype);
        let Some(tci) = self.tag.of(packet) else { return header::prepend(packet, &plain) };
        let mut tagged = [0; HEADER_LEN + TAG_LEN];
        tagged[..HEADER_LEN].copy_from_slice(&header::bytes(self.destination, self.source, TAGGED));
        tagged[HEADER_LEN..HEADER_LEN + 2].copy_from_slice(&tci.to_be_bytes());
        tagged[HEADER_LEN + 2..].copy_from_slice(&self.ethertype.to_be_bytes());
        packet.prepend_link_header(&tagged)
    }
}

impl Element for EtherVlanEncap {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(
            batch,
            |packet| if self.encapsulate(packet) { Verdict::Keep } else { Verdict::Drop(NO_ROOM) },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    const ADDRESSES: &str = "0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2";

    #[test]
    fn tagged_and_native() {
        let text = format!("EtherVLANEncap({ADDRESSES}, VLAN_ID 100, VLAN_PCP 5)");
        let mut bench = Bench::element(&crate::registry(), &text, 1, 1);
        bench.push("in0", &[b"x"]);
        let packets = bench.taken_packets("out0");
        assert_eq!(
            packets[0].data(),
            b"\x02\x02\x02\x02\x02\x02\x01\x01\x01\x01\x01\x01\x81\x00\xa0\x64\x08\x00x"
        );
        assert_eq!(packets[0].link_offset(), Some(0));
        assert_eq!(bench.read("e.vlan_tci"), "41060");
        bench.write("e.vlan_tci", "0x2000").unwrap();
        bench.push("in0", &[b"x"]);
        assert_eq!(bench.taken("out0")[0].len(), 15);
    }

    #[test]
    fn as_vlan_encap_would() {
        let config = format!(
            "a :: TestInput -> VLANDecap -> Strip(14) -> EtherVLANEncap({ADDRESSES}, ANNO) -> out :: TestOutput;
             b :: TestInput -> VLANDecap -> Strip(14) -> EtherEncap({ADDRESSES}) -> VLANEncap(ANNO) -> other :: TestOutput"
        );
        let mut bench = Bench::new(&crate::registry(), &config);
        let frames: [&[u8]; 2] = [b"dstdstsrcsrc\x81\x00\x20\x07\x08\x00x", b"dstdstsrcsrc\x08\x00x"];
        bench.push("a", &frames);
        bench.push("b", &frames);
        assert_eq!(bench.taken("out"), bench.taken("other"));
    }

    #[test]
    fn mistakes() {
        assert!(configure(&CLASS, &format!("{ADDRESSES}, VLAN_ID 4096")).is_err());
        assert!(configure(&CLASS, "0x0800, 1:1:1:1:1:1").is_err());
        assert!(configure(&CLASS, &format!("{ADDRESSES}, 5, 8")).is_err());
    }
}
