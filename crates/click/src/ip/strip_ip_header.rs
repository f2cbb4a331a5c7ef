//! =c
//! StripIPHeader()
//!
//! =s ip
//! takes the IP header off
//!
//! =d
//! Removes all bytes before the transport header, so that the data starts behind the IP header. The IP header
//! must have been marked before.
//!
//! Drop reasons: no IP header.
//!
//! =a UnstripIPHeader, CheckIPHeader, MarkIPHeader, Strip, Unstrip
//!
//! =c
//! UnstripIPHeader()
//!
//! =s ip
//! makes packets begin with their IP header again
//!
//! =d
//! Moves the start of each packet back to its marked IP header, where this lies before the start,
//! for instance because C<StripIPHeader> stripped it. A packet that begins at its IP header or
//! before stays as it is.
//!
//! Drop reasons: no IP header.
//!
//! =a StripIPHeader, CheckIPHeader, MarkIPHeader, Unstrip

use graph::Class;
use packet::Packet;

use crate::each_packet::{each_packet, or_drop};

pub(crate) static CLASS: Class = Class {
    name: "StripIPHeader",
    manual: graph::manual!("strip_ip_header.rs", "StripIPHeader"),
    make: |setup| each_packet(setup, |packet| or_drop(strip(packet), "no IP header")),
    ..Class::DEFAULT
};

pub(crate) static UNDO: Class = Class {
    name: "UnstripIPHeader",
    manual: graph::manual!("strip_ip_header.rs", "UnstripIPHeader"),
    make: |setup| each_packet(setup, |packet| or_drop(unstrip(packet), "no IP header")),
    ..Class::DEFAULT
};

fn strip(packet: &mut Packet) -> Option<()> {
    // What is stripped already stays so.
    packet.strip(usize::try_from(packet.transport_offset()?).unwrap_or(0)).then_some(())
}

fn unstrip(packet: &mut Packet) -> Option<()> {
    match packet.network_offset()? {
        0.. => Some(()),
        offset => packet.prepend(offset.unsigned_abs()).map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use testbed::ipv4::with_options;

    #[test]
    fn strips_options_too() {
        let config = "in :: TestInput -> CheckIPHeader(2) -> e :: StripIPHeader -> out :: TestOutput;
            bare :: TestInput -> f :: StripIPHeader -> out2 :: TestOutput;";
        let mut bench = Bench::new(&crate::registry(), config);
        let packet = with_options([1, 2, 3, 4], [5, 6, 7, 8], 17, &[1, 1, 1, 0], b"data");
        bench.push("in", &[&[&[0, 0], &packet[..]].concat()]);
        bench.push("bare", &[&packet]);
        assert_eq!(bench.taken("out"), [b"data"]);
        assert_eq!(bench.drops("f", "no IP header"), 1);
    }

    #[test]
    fn the_header_comes_back() {
        let packet = with_options([1, 2, 3, 4], [5, 6, 7, 8], 17, &[1, 1, 1, 0], b"data");
        let frame = [&[0; 14], &packet[..]].concat();
        for (way, expected) in [
            ("CheckIPHeader(14) -> StripIPHeader", &packet),
            ("CheckIPHeader(14) -> Strip(20)", &packet),
            ("CheckIPHeader(14)", &frame),
        ] {
            let config = format!("in :: TestInput -> {way} -> UnstripIPHeader -> out :: TestOutput");
            let mut bench = Bench::new(&crate::registry(), &config);
            bench.push("in", &[&frame]);
            assert_eq!(bench.taken("out"), [&expected[..]], "{way}");
        }
        let mut bench = Bench::element(&crate::registry(), "UnstripIPHeader", 1, 1);
        bench.push("in0", &[&packet]);
        assert_eq!(bench.drops("e", "no IP header"), 1);
    }
}
