//! =c
//! SetVLANAnno([VLAN_TCI, VLAN_PCP, I<keyword> VLAN_ID])
//!
//! =s ethernet
//! sets the VLAN annotation
//!
//! =d
//! Sets the VLAN TCI annotation of packets to VLAN_TCI, or to VLAN_ID (0 to 4095), with the priority VLAN_PCP (0 to 7).
//!
//! =a VLANEncap, EtherVLANEncap, StripEtherVLANHeader

use elements::ethernet::vlan_encap::{TCI_ANNOTATION, VLAN_MASK, control_information};
use graph::{Class, Combine, Context, Element, Field, FromArgument, Get, Handler, Put};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "SetVLANAnno",
    handlers: &[
        Handler::field(
            "vlan_tci",
            "The whole control information.",
            &Field(|e: &mut SetVlanAnno| &mut e.tci),
        ),
        Handler::read_write(
            "vlan_id",
            Combine::First,
            "The VLAN in it.",
            &Get(|e: &mut SetVlanAnno| (e.tci & VLAN_MASK).to_string()),
            &Put(|e: &mut SetVlanAnno, _, value| e.set(u16::from_value(value)?, e.tci >> 13)),
        ),
        Handler::read_write(
            "vlan_pcp",
            Combine::First,
            "The priority in it.",
            &Get(|e: &mut SetVlanAnno| (e.tci >> 13).to_string()),
            &Put(|e: &mut SetVlanAnno, _, value| e.set(e.tci & VLAN_MASK, u16::from_value(value)?)),
        ),
    ],
    manual: graph::manual!("set_vlan_anno.rs"),
    make: |setup| {
        let whole: Option<u16> = setup.arguments.optional("VLAN_TCI")?;
        let priority = setup.arguments.optional("VLAN_PCP")?.unwrap_or(0);
        let vlan = setup.arguments.keyword_or("VLAN_ID", 0)?;
        setup.arguments.finish()?;
        let tci = control_information(vlan, priority)?;
        Ok(Box::new(SetVlanAnno { tci: whole.map_or(tci, |whole| whole | tci & !VLAN_MASK) }))
    },
    ..Class::DEFAULT
};

struct SetVlanAnno {
    tci: u16,
}

impl SetVlanAnno {
    /// Sets the VLAN and the priority. The bit between the two, "drop eligible", stays.
    fn set(&mut self, vlan: u16, priority: u16) -> Result<(), String> {
        let between = self.tci & 0x1000;
        let tci = control_information(vlan, priority).map_err(|errors| errors.join("\n"))?;
        self.tci = tci | between;
        Ok(())
    }
}

impl Element for SetVlanAnno {
    fn process(&mut self, _cx: &mut Context, batch: &mut Batch) {
        let tci = self.tci.to_be_bytes();
        for packet in batch.packets_mut() {
            packet.annotations_mut().bytes_mut()[TCI_ANNOTATION].copy_from_slice(&tci);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn the_annotation_is_set() {
        for (arguments, tci) in
            [("0x1234", 0x1234u16), ("VLAN_ID 100, VLAN_PCP 5", 0xa064), ("7, 1", 0x2007), ("", 0)]
        {
            let mut bench = Bench::element(&crate::registry(), &format!("SetVLANAnno({arguments})"), 1, 1);
            bench.push("in0", &[b"x"]);
            let packets = bench.taken_packets("out0");
            assert_eq!(packets[0].annotations().bytes()[TCI_ANNOTATION], tci.to_be_bytes(), "{arguments}");
        }
    }

    #[test]
    fn handlers_and_mistakes() {
        let mut bench = Bench::element(&crate::registry(), "SetVLANAnno(0x1234)", 1, 1);
        bench.write("e.vlan_id", "100").unwrap();
        bench.write("e.vlan_pcp", "7").unwrap();
        let read = ["e.vlan_tci", "e.vlan_id", "e.vlan_pcp"].map(|name| bench.read(name));
        assert_eq!(read, ["61540", "100", "7"]);
        assert!(bench.write("e.vlan_id", "4096").is_err());
        assert!(bench.write("e.vlan_pcp", "8").is_err());
        assert!(configure(&CLASS, "VLAN_ID 4096").is_err());
        assert!(configure(&CLASS, "1, 8").is_err());
    }
}
