//! =c
//! MoveData(DST_OFFSET, SRC_OFFSET, LENGTH, I<keyword> GROW)
//!
//! =s basicmod
//! copies bytes within packets
//!
//! =d
//! Copies LENGTH bytes that start SRC_OFFSET bytes into each packet to DST_OFFSET; the two may overlap. A packet that does not
//! have these bytes passes as it is. One that ends before the end of where they go gets longer, with zeros where nothing was
//! before; with GROW false it passes as it is. A packet without room is dropped and counted as "no tail room".
//!
//! =e
//!   MoveData(0, 6, 6)
//! makes the source of an Ethernet header its destination, too.
//!
//! =a Pad, Truncate, EtherMirror

use graph::{Class, Verdict};
use packet::Packet;

use crate::each_packet::each_packet;

pub(crate) static CLASS: Class = Class {
    name: "MoveData",
    manual: graph::manual!("move_data.rs"),
    make: |setup| {
        let to: u16 = setup.arguments.required("DST_OFFSET")?;
        let from: u16 = setup.arguments.required("SRC_OFFSET")?;
        let length: u16 = setup.arguments.required("LENGTH")?;
        let grow = setup.arguments.keyword_or("GROW", true)?;
        let data = MoveData { to: to.into(), from: from.into(), length: length.into(), grow };
        each_packet(setup, move |packet| data.move_in(packet))
    },
    ..Class::DEFAULT
};

struct MoveData {
    to: usize,
    from: usize,
    length: usize,
    grow: bool,
}

impl MoveData {
    fn move_in(&self, packet: &mut Packet) -> Verdict {
        let missing = (self.to + self.length).saturating_sub(packet.len());
        if self.from + self.length > packet.len() || missing > 0 && !self.grow {
            return Verdict::Keep;
        }
        if missing > 0 {
            match packet.append(missing) {
                Some(new) => new.fill(0),
                None => return Verdict::Drop("no tail room"),
            }
        }
        packet.data_mut().copy_within(self.from..self.from + self.length, self.to);
        Verdict::Keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    fn moved(arguments: &str) -> Vec<Vec<u8>> {
        let mut bench = Bench::element(&crate::registry(), &format!("MoveData({arguments})"), 1, 1);
        bench.push("in0", &[b"abcdef"]);
        bench.taken("out0")
    }

    #[test]
    fn bytes_move() {
        assert_eq!(moved("0, 2, 3"), [b"cdedef"]);
        assert_eq!(moved("1, 0, 5"), [b"aabcde"]);
        assert_eq!(moved("4, 0, 4"), [b"abcdabcd"]);
        assert_eq!(moved("8, 4, 2"), [b"abcdef\0\0ef"]);
        assert_eq!(moved("4, 0, 4, GROW false"), [b"abcdef"]);
        assert_eq!(moved("0, 4, 3"), [b"abcdef"]);
        assert!(moved("60000, 0, 1").is_empty());
        assert!(configure(&CLASS, "1, 2").is_err());
        assert!(configure(&CLASS, "-1, 2, 3").is_err());
    }
}
