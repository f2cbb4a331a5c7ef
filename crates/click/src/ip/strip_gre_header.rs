//! =c
//! StripGREHeader()
//!
//! =s tunnel
//! takes the GRE header off
//!
//! =d
//! Takes off the GRE header with which each packet begins, whatever optional words it has. A packet that ends before it is
//! dropped and counted as "no GRE header".
//!
//! =e
//!   ... -> CheckIPHeader -> StripIPHeader -> CheckGREHeader -> StripGREHeader -> ...
//!
//! =a CheckGREHeader, GREEncap, StripIPHeader

use graph::Class;

use super::gre::Layout;
use crate::each_packet::{each_packet, or_drop};

pub(crate) static CLASS: Class = Class {
    name: "StripGREHeader",
    manual: graph::manual!("strip_gre_header.rs"),
    make: |setup| {
        each_packet(setup, |packet| {
            let layout = Layout::of(packet.data());
            or_drop(layout.filter(|layout| packet.strip(layout.len())).map(|_| ()), "no GRE header")
        })
    },
    ..Class::DEFAULT
};

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn the_whole_header_goes() {
        for arguments in ["1", "1, KEY 5", "1, CHECKSUM true, SEQUENCE true, KEY 1"] {
            let config =
                format!("in :: TestInput -> GREEncap({arguments}) -> StripGREHeader -> out :: TestOutput");
            let mut bench = Bench::new(&crate::registry(), &config);
            bench.push("in", &[b"data", b""]);
            assert_eq!(bench.taken("out"), [&b"data"[..], b""]);
        }
        let mut bench = Bench::element(&crate::registry(), "StripGREHeader", 1, 1);
        bench.push("in0", &[&[0, 0, 8], &[0xb0, 0, 8, 0, 1, 2, 3, 4]]);
        assert_eq!(bench.drops("e", "no GRE header"), 2);
    }
}
