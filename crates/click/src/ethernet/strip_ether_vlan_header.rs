//! =c
//! StripEtherVLANHeader([NATIVE_VLAN])
//!
//! =s ethernet
//! strips Ethernet headers with an 802.1Q tag
//!
//! =d
//! Where the Ethernet type is 0x8100, takes off the 18 bytes of header and tag, whose control information becomes the packet's
//! VLAN TCI annotation. Other packets lose the 14 bytes of their header, and their annotation becomes NATIVE_VLAN (0 to 4095, 0 by
//! default); with -1 they leave by output 1 if that is connected, and are dropped otherwise.
//!
//! Drop reasons: no VLAN tag, truncated Ethernet header.
//!
//! =a EtherVLANEncap, VLANDecap, SetVLANAnno

use elements::ethernet::header::TRUNCATED;
use elements::ethernet::vlan_encap::{TCI_ANNOTATION, VLAN_MASK};
use graph::{Class, Verdict};
use packet::Packet;
use packet::wire::ethernet::{HEADER_LEN, TAG_LEN};

use crate::each_packet::each_packet;

pub(crate) static CLASS: Class = Class {
    name: "StripEtherVLANHeader",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    manual: graph::manual!("strip_ether_vlan_header.rs"),
    make: |setup| {
        let native: i32 = setup.arguments.optional("NATIVE_VLAN")?.unwrap_or(0);
        if !(-1..=i32::from(VLAN_MASK)).contains(&native) {
            return Err(format!("NATIVE_VLAN: expected -1 to 4095, got {native}").into());
        }
        each_packet(setup, move |packet| strip(packet, u16::try_from(native).ok()))
    },
    ..Class::DEFAULT
};

fn strip(packet: &mut Packet, native: Option<u16>) -> Verdict {
    let (tci, length) = match (packet.data().get(12..), native) {
        (Some([0x81, 0, high, low, _, _, ..]), _) => ([*high, *low], HEADER_LEN + TAG_LEN),
        (Some([0x81, 0, ..]), _) => return Verdict::Drop(TRUNCATED),
        (Some([_, _, ..]), Some(native)) => (native.to_be_bytes(), HEADER_LEN),
        (Some([_, _, ..]), None) => return Verdict::Divert(1, "no VLAN tag"),
        _ => return Verdict::Drop(TRUNCATED),
    };
    packet.annotations_mut().bytes_mut()[TCI_ANNOTATION].copy_from_slice(&tci);
    packet.strip(length);
    Verdict::Keep
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    const TAGGED: &[u8] = b"dstdstsrcsrc\x81\x00\xa0\x64\x08\x00x";
    const PLAIN: &[u8] = b"dstdstsrcsrc\x08\x00x";

    #[test]
    fn tags_go_into_the_annotation() {
        let mut bench = Bench::element(&crate::registry(), "StripEtherVLANHeader(7)", 1, 2);
        bench.push("in0", &[TAGGED, PLAIN, &TAGGED[..17], &PLAIN[..13]]);
        let packets = bench.taken_packets("out0");
        let found: Vec<_> =
            packets.iter().map(|p| (p.data(), &p.annotations().bytes()[TCI_ANNOTATION])).collect();
        assert_eq!(found, [(&b"x"[..], &[0xa0, 0x64][..]), (b"x", &[0, 7])]);
        assert_eq!(bench.drops("e", TRUNCATED), 2);
    }

    #[test]
    fn without_a_native_vlan() {
        let mut bench = Bench::element(&crate::registry(), "StripEtherVLANHeader", 1, 1);
        bench.push("in0", &[PLAIN]);
        assert_eq!(bench.taken_packets("out0")[0].annotations().bytes()[TCI_ANNOTATION], [0, 0]);
        let mut bench = Bench::element(&crate::registry(), "StripEtherVLANHeader(-1)", 1, 2);
        bench.push("in0", &[PLAIN, TAGGED]);
        assert_eq!((bench.taken("out0"), bench.taken("out1")), (vec![b"x".to_vec()], vec![PLAIN.to_vec()]));
        let mut bench = Bench::element(&crate::registry(), "StripEtherVLANHeader(-1)", 1, 1);
        bench.push("in0", &[PLAIN]);
        assert_eq!(bench.drops("e", "no VLAN tag"), 1);
        assert!(configure(&CLASS, "4096").is_err());
    }
}
