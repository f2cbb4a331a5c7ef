//! =c
//! VLANEncap([VLAN_TCI, VLAN_PCP, I<keywords> VLAN_ID, NATIVE_VLAN, ETHERTYPE])
//!
//! =s ethernet
//! adds an 802.1Q tag to Ethernet packets
//!
//! =d
//! Takes Ethernet packets and puts a tag behind their addresses. Its control information is VLAN_TCI, or VLAN_ID (0 to 4095) and
//! the priority VLAN_PCP (0 to 7); with C<ANNO> for VLAN_TCI it is the packet's VLAN TCI annotation. The tag's type is ETHERTYPE,
//! 0x8100 by default. Packets for the VLAN NATIVE_VLAN (0 by default; -1 is none) get no tag.
//!
//! Dropped packets are counted as "truncated Ethernet header" and "no room for a VLAN tag".
//!
//! =h vlan_tci read/write
//! The control information, or ANNO.
//!
//! =e
//!   VLANEncap(VLAN_ID 100, VLAN_PCP 5)
//!
//! =a VLANDecap, EtherEncap

use graph::arguments::Raw;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Handler, Setup, Verdict};
use packet::wire::ethernet::TAG_LEN;
use packet::{Annotations, Batch, Packet};

use super::header::TRUNCATED;

pub(crate) static CLASS: Class = Class {
    name: "VLANEncap",
    ports: "1/1",
    processing: Class::AGNOSTIC,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("vlan_encap.rs"),
    make,
};

/// Where a packet's VLAN TCI annotation stands, in network order.
pub(super) const TCI_ANNOTATION: std::ops::Range<usize> = Annotations::AGGREGATE..Annotations::AGGREGATE + 2;

const VLAN_MASK: u16 = 0x0fff;
const NO_ROOM: &str = "no room for a VLAN tag";

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let arguments = &mut setup.arguments;
    let tci: Option<Raw> = arguments.optional("VLAN_TCI")?;
    let priority: u16 = arguments.optional("VLAN_PCP")?.unwrap_or(0);
    let vlan: u16 = arguments.keyword_or("VLAN_ID", 0)?;
    let native: i32 = arguments.keyword_or("NATIVE_VLAN", 0)?;
    let ethertype: u16 = arguments.keyword_or("ETHERTYPE", 0x8100)?;
    arguments.finish()?;
    let mut errors = Vec::new();
    if priority > 7 {
        errors.push(format!("VLAN_PCP: expected 0 to 7, got {priority}"));
    }
    if vlan > VLAN_MASK {
        errors.push(format!("VLAN_ID: expected 0 to 4095, got {vlan}"));
    }
    if !(-1..=i32::from(VLAN_MASK)).contains(&native) {
        errors.push(format!("NATIVE_VLAN: expected -1 to 4095, got {native}"));
    }
    let tci = match tci {
        Some(Raw(text)) => {
            tag(&text).map_err(|error| errors.push(format!("VLAN_TCI: {error}"))).ok().flatten()
        }
        None => Some(vlan),
    };
    if !errors.is_empty() {
        return Err(errors.into());
    }
    Ok(Box::new(VlanEncap {
        tci: tci.map(|tci| tci | priority << 13),
        native: u16::try_from(native).ok(),
        ethertype,
    }))
}

/// Reads control information; `None` is the annotation.
fn tag(text: &str) -> Result<Option<u16>, String> {
    if text.trim() == "ANNO" { Ok(None) } else { u16::from_value(text).map(Some) }
}

struct VlanEncap {
    /// `None`: as annotated.
    tci: Option<u16>,
    native: Option<u16>,
    ethertype: u16,
}

impl VlanEncap {
    fn encapsulate(&self, packet: &mut Packet) -> Verdict {
        let tci = self.tci.unwrap_or_else(|| {
            let bytes = packet.annotations().bytes();
            u16::from_be_bytes([bytes[TCI_ANNOTATION.start], bytes[TCI_ANNOTATION.start + 1]])
        });
        if packet.len() < 12 {
            return Verdict::Drop(TRUNCATED);
        }
        if self.native != Some(tci & VLAN_MASK) {
            let Some(data) = packet.prepend(TAG_LEN) else { return Verdict::Drop(NO_ROOM) };
            data.copy_within(TAG_LEN..TAG_LEN + 12, 0);
            data[12..14].copy_from_slice(&self.ethertype.to_be_bytes());
            data[14..16].copy_from_slice(&tci.to_be_bytes());
        }
        packet.set_link_header(0);
        Verdict::Keep
    }
}

impl Element for VlanEncap {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| self.encapsulate(packet));
    }

    fn handlers(&self) -> &'static [Handler] {
        const { &[Handler::read_write("vlan_tci", Combine::First)] }
    }

    fn read(&mut self, _name: &str, _argument: &str) -> Result<String, String> {
        Ok(self.tci.map_or_else(|| "ANNO".to_owned(), |tci| tci.to_string()))
    }

    fn write(&mut self, _cx: &mut Context, _name: &str, value: &str) -> Result<(), String> {
        self.tci = tag(value)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn tags() {
        let mut bench = Bench::element(&crate::registry(), "VLANEncap(VLAN_ID 100, VLAN_PCP 5)", 1, 1);
        bench.push("in0", &[b"dstdstsrcsrc\x08\x00x", b"short"]);
        assert_eq!(bench.taken("out0"), [b"dstdstsrcsrc\x81\x00\xa0\x64\x08\x00x"]);
        assert_eq!(bench.drops("e", TRUNCATED), 1);
        bench.write("e.vlan_tci", "ANNO").unwrap();
        let mut packet = bench.packet(b"dstdstsrcsrc\x08\x00x");
        packet.annotations_mut().bytes_mut()[TCI_ANNOTATION].copy_from_slice(&[0x20, 0x07]);
        bench.push_packets("in0", vec![packet]);
        bench.push("in0", &[b"dstdstsrcsrc\x08\x00x"]);
        assert_eq!(
            bench.taken("out0"),
            [&b"dstdstsrcsrc\x81\x00\x20\x07\x08\x00x"[..], b"dstdstsrcsrc\x08\x00x"]
        );
    }

    #[test]
    fn mistakes() {
        let errors = configure(&CLASS, "x, 8, VLAN_ID 4096, NATIVE_VLAN -2").unwrap_err();
        assert_eq!(errors.len(), 4);
        assert!(configure(&CLASS, "ANNO, NATIVE_VLAN -1, ETHERTYPE 0x88a8").is_ok());
    }
}
