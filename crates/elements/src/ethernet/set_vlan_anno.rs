//! =c
//! SetVLANAnno([VLAN_TCI, VLAN_PCP, I<keyword> VLAN_ID])
//!
//! =s ethernet
//! sets the VLAN annotation
//!
//! =d
//! Sets the VLAN TCI annotation of packets to VLAN_TCI, or to VLAN_ID (0 to 4095), with the priority VLAN_PCP (0 to 7).
//!
//! =h vlan_tci read/write
//! The whole control information.
//!
//! =h vlan_id read/write
//! The VLAN in it.
//!
//! =h vlan_pcp read/write
//! The priority in it.
//!
//! =a VLANEncap, EtherVLANEncap, StripEtherVLANHeader

use graph::{Class, Combine, Context, Element, FromArgument, Handler};
use packet::Batch;

use super::vlan_encap::{TCI_ANNOTATION, VLAN_MASK, control_information};

pub(crate) static CLASS: Class = Class {
    name: "SetVLANAnno",
    ports: "1/1",
    processing: Class::AGNOSTIC,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("set_vlan_anno.rs"),
    make: |setup| {
        let whole: Option<u16> = setup.arguments.optional("VLAN_TCI")?;
        let priority = setup.arguments.optional("VLAN_PCP")?.unwrap_or(0);
        let vlan = setup.arguments.keyword_or("VLAN_ID", 0)?;
        setup.arguments.finish()?;
        let tci = control_information(vlan, priority)?;
        Ok(Box::new(SetVlanAnno { tci: whole.map_or(tci, |whole| whole | tci & !VLAN_MASK) }))
    },
};

struct SetVlanAnno {
    tci: u16,
}

impl Element for SetVlanAnno {
    fn process(&mut self, _cx: &mut Context, batch: &mut Batch) {
        let tci = self.tci.to_be_bytes();
        for packet in batch.packets_mut() {
            packet.annotations_mut().bytes_mut()[TCI_ANNOTATION].copy_from_slice(&tci);
        }
    }

    fn handlers(&self) -> &'static [Handler] {
        const {
            &[
                Handler::read_write("vlan_tci", Combine::First),
                Handler::read_write("vlan_id", Combine::First),
                Handler::read_write("vlan_pcp", Combine::First),
            ]
        }
    }

    fn read(&mut self, name: &str, _argument: &str) -> Result<String, String> {
        Ok(match name {
            "vlan_tci" => self.tci,
            "vlan_id" => self.tci & VLAN_MASK,
            _ => self.tci >> 13,
        }
        .to_string())
    }

    fn write(&mut self, _cx: &mut Context, name: &str, value: &str) -> Result<(), String> {
        let number = u16::from_value(value)?;
        let (vlan, priority) = (self.tci & VLAN_MASK, self.tci >> 13);
        // The bit between the two, "drop eligible", stays.
        let between = self.tci & 0x1000;
        let tci = match name {
            "vlan_tci" => Ok(number),
            "vlan_id" => control_information(number, priority).map(|tci| tci | between),
            _ => control_information(vlan, number).map(|tci| tci | between),
        };
        self.tci = tci.map_err(|errors| errors.join("\n"))?;
        Ok(())
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
