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
//! =e
//!   VLANEncap(VLAN_ID 100, VLAN_PCP 5)
//!
//! =a VLANDecap, EtherVLANEncap, SetVLANAnno, EtherEncap

use graph::arguments::{Arguments, Raw};
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup, Verdict};
use packet::wire::ethernet::{ADDRESSES_LEN, EtherType, TAG_LEN, VlanTag};
use packet::{Annotations, Batch, Packet};

use super::header::TRUNCATED;

pub(crate) static CLASS: Class = Class {
    name: "VLANEncap",
    capabilities: &[graph::KEEPS_ALL],
    handlers: &[Handler::read_write(
        "vlan_tci",
        Combine::First,
        "The control information, or ANNO.",
        &Get(|e: &mut VlanEncap| e.tag.read()),
        &Put(|e: &mut VlanEncap, _, value| e.tag.write(value)),
    )],
    manual: graph::manual!("vlan_encap.rs"),
    make,
    ..Class::DEFAULT
};

/// Where a packet's VLAN TCI annotation stands, in network order.
pub const TCI_ANNOTATION: std::ops::Range<usize> = Annotations::AGGREGATE..Annotations::AGGREGATE + 2;

/// The bits of control information that name the VLAN.
pub const VLAN_MASK: u16 = 0x0fff;

const NO_ROOM: &str = "no room for a VLAN tag";

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let tag = Tag::from_arguments(&mut setup.arguments)?;
    let ethertype: u16 = setup.arguments.keyword_or("ETHERTYPE", 0x8100)?;
    setup.arguments.finish()?;
    Ok(Box::new(VlanEncap { tag, ethertype }))
}

/// The control information of a VLAN and a priority, or what is wrong with them.
pub fn control_information(vlan: u16, priority: u16) -> Result<u16, Vec<String>> {
    let mut errors = Vec::new();
    if priority > 7 {
        errors.push(format!("VLAN_PCP: expected 0 to 7, got {priority}"));
    }
    if vlan > VLAN_MASK {
        errors.push(format!("VLAN_ID: expected 0 to 4095, got {vlan}"));
    }
    if errors.is_empty() { Ok(vlan | priority << 13) } else { Err(errors) }
}

/// Reads control information; `None` is the annotation.
fn tag(text: &str) -> Result<Option<u16>, String> {
    if text.trim() == "ANNO" { Ok(None) } else { u16::from_value(text).map(Some) }
}

/// Which tag packets get.
pub struct Tag {
    /// `None`: as annotated.
    tci: Option<u16>,
    native: Option<u16>,
}

impl Tag {
    /// Reads VLAN_TCI, VLAN_PCP, VLAN_ID and NATIVE_VLAN.
    pub fn from_arguments(arguments: &mut Arguments) -> Result<Self, ConfigError> {
        let tci: Option<Raw> = arguments.optional("VLAN_TCI")?;
        let priority: u16 = arguments.optional("VLAN_PCP")?.unwrap_or(0);
        let vlan: u16 = arguments.keyword_or("VLAN_ID", 0)?;
        let native: i32 = arguments.keyword_or("NATIVE_VLAN", 0)?;
        let mut errors = Vec::new();
        let own = control_information(vlan, priority).map_err(|found| errors.extend(found)).unwrap_or(0);
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
        Ok(Self { tci: tci.map(|tci| tci | own & !VLAN_MASK), native: u16::try_from(native).ok() })
    }

    /// The control information for `packet`; `None` where it gets no tag.
    #[inline]
    pub fn of(&self, packet: &Packet) -> Option<u16> {
        let tci = self.tci.unwrap_or_else(|| {
            let bytes = packet.annotations().bytes();
            u16::from_be_bytes([bytes[TCI_ANNOTATION.start], bytes[TCI_ANNOTATION.start + 1]])
        });
        (self.native != Some(tci & VLAN_MASK)).then_some(tci)
    }

    /// The handler `vlan_tci`.
    pub fn read(&self) -> String {
        self.tci.map_or_else(|| "ANNO".to_owned(), |tci| tci.to_string())
    }

    /// Writes the handler `vlan_tci`.
    pub fn write(&mut self, value: &str) -> Result<(), String> {
        self.tci = tag(value)?;
        Ok(())
    }
}

struct VlanEncap {
    tag: Tag,
    ethertype: u16,
}

impl VlanEncap {
    fn encapsulate(&self, packet: &mut Packet) -> Verdict {
        if packet.len() < ADDRESSES_LEN {
            return Verdict::Drop(TRUNCATED);
        }
        if let Some(tci) = self.tag.of(packet) {
            let Some(data) = packet.prepend(TAG_LEN) else { return Verdict::Drop(NO_ROOM) };
            data.copy_within(TAG_LEN..TAG_LEN + ADDRESSES_LEN, 0);
            let mut tag = VlanTag::new_unchecked(&mut data[ADDRESSES_LEN..]);
            tag.set_tpid(EtherType(self.ethertype));
            tag.set_tci(tci);
        }
        packet.set_link_header(0);
        Verdict::Keep
    }
}

impl Element for VlanEncap {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| self.encapsulate(packet));
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
