//! =c
//! GREEncap(PROTOCOL, I<keywords> CHECKSUM, KEY, SEQUENCE)
//!
//! =s tunnel
//! puts a GRE header before packets
//!
//! =d
//! Puts a GRE header (RFC 2784 and 2890) before each packet, with the Ethernet type PROTOCOL. With
//! CHECKSUM true it has a checksum. With a KEY other than 0 it has that key. With SEQUENCE true it
//! has a sequence number, which is 1 in the first packet. By default it has none of the three.
//!
//! Drop reasons: no head room for the header.
//!
//! =e
//!   ... -> GREEncap(0x0800) -> IPEncap(gre, 18.26.4.24, 140.247.60.147) -> ...
//!
//! =a CheckGREHeader, StripGREHeader, IPEncap

use graph::Class;
use packet::{Packet, checksum};

use super::gre::{CHECKSUM, KEY, Layout, SEQUENCE};
use crate::each_packet::{each_packet, or_drop};

pub(crate) static CLASS: Class = Class {
    name: "GREEncap",
    manual: graph::manual!("gre_encap.rs"),
    make: |setup| {
        let protocol = setup.arguments.required("PROTOCOL")?;
        let checksum = setup.arguments.keyword_or("CHECKSUM", false)?;
        let key = setup.arguments.keyword_or("KEY", 0)?;
        let sequence = setup.arguments.keyword_or("SEQUENCE", false)?;
        let parts = [(checksum, CHECKSUM), (key != 0, KEY), (sequence, SEQUENCE)];
        let flags = parts.iter().filter(|part| part.0).map(|part| part.1).sum();
        let mut encap = GreEncap { layout: Layout { flags }, protocol, key, sequence: 0 };
        each_packet(setup, move |packet| or_drop(encap.encapsulate(packet), "no head room for the header"))
    },
    ..Class::DEFAULT
};

struct GreEncap {
    layout: Layout,
    protocol: u16,
    key: u32,
    /// The last sequence number.
    sequence: u32,
}

impl GreEncap {
    fn encapsulate(&mut self, packet: &mut Packet) -> Option<()> {
        let layout = self.layout;
        let data = packet.prepend(layout.len())?;
        data[..layout.len()].fill(0);
        data[0..2].copy_from_slice(&layout.flags.to_be_bytes());
        data[2..4].copy_from_slice(&self.protocol.to_be_bytes());
        if let Some(place) = layout.place(KEY) {
            data[place..place + 4].copy_from_slice(&self.key.to_be_bytes());
        }
        if let Some(place) = layout.place(SEQUENCE) {
            self.sequence = self.sequence.wrapping_add(1);
            data[place..place + 4].copy_from_slice(&self.sequence.to_be_bytes());
        }
        if let Some(place) = layout.place(CHECKSUM) {
            let check = checksum::compute(data);
            data[place..place + 2].copy_from_slice(&check.to_be_bytes());
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    fn encapsulated(arguments: &str) -> Vec<Vec<u8>> {
        let mut bench = Bench::element(&crate::registry(), &format!("GREEncap({arguments})"), 1, 1);
        bench.push("in0", &[b"ab", b"c"]);
        bench.taken("out0")
    }

    #[test]
    fn to_the_byte() {
        assert_eq!(encapsulated("0x0800")[0], b"\0\0\x08\0ab");
        let all = encapsulated("0x86dd, CHECKSUM true, KEY 0x01020304, SEQUENCE true");
        assert_eq!(all[1][..4], [0xb0, 0, 0x86, 0xdd]);
        assert_eq!(all[1][6..], [0, 0, 1, 2, 3, 4, 0, 0, 0, 2, b'c']);
        assert!(all.iter().all(|packet| checksum::is_valid(packet)));
        assert_eq!(encapsulated("1, SEQUENCE true")[0], b"\x10\0\0\x01\0\0\0\x01ab");
    }

    #[test]
    fn mistakes_and_no_room() {
        assert!(configure(&CLASS, "").is_err());
        assert!(configure(&CLASS, "0x10000").is_err());
        let mut bench = Bench::element(&crate::registry(), "GREEncap(1)", 1, 1);
        let mut packet = bench.packet(b"x");
        packet.prepend(packet.headroom() - 3).unwrap();
        bench.push_packets("in0", vec![packet]);
        assert_eq!(bench.drops("e", "no head room for the header"), 1);
    }
}
