//! =c
//! Align(MODULUS, OFFSET)
//!
//! =s basicmod
//! moves packets' data to aligned addresses
//!
//! =d
//! Moves the data of each packet in its frame, unless they begin OFFSET bytes after a multiple of MODULUS (2, 4 or 8)
//! already. Brickway's elements do not need it; it is there for configurations that have it.
//!
//! A packet without room is dropped as "no room to align".
//!
//! =e
//!   ... -> Align(4, 0) -> CheckIPHeader -> ...
//!
//! =a AlignmentInfo

use graph::{Class, ConfigError, Element, Setup};
use packet::Packet;

use crate::each_packet::{each_packet, or_drop};

pub(crate) static CLASS: Class =
    Class { name: "Align", manual: graph::manual!("align.rs"), make, ..Class::DEFAULT };

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let modulus: usize = setup.arguments.required("MODULUS")?;
    let offset: usize = setup.arguments.required("OFFSET")?;
    if !matches!(modulus, 2 | 4 | 8) {
        return Err(format!("MODULUS: expected 2, 4 or 8, got {modulus}").into());
    }
    if offset >= modulus {
        return Err(format!("OFFSET: expected less than MODULUS, got {offset}").into());
    }
    let align = move |packet: &mut Packet| {
        let excess = (packet.data().as_ptr().addr() + modulus - offset) % modulus;
        let (down, up) = (-(excess as isize), (modulus - excess) as isize);
        excess == 0 || packet.shift(down) || packet.shift(up)
    };
    each_packet(setup, move |packet| or_drop(align(packet).then_some(()), "no room to align"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn data_are_moved() {
        let config = "in0 :: TestInput -> Strip(1) -> Align(8, 3) -> out0 :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in0", &[b"abcdef", b"xyz"]);
        let packets = bench.taken_packets("out0");
        assert_eq!((packets[0].data(), packets[1].data()), (&b"bcdef"[..], &b"yz"[..]));
        assert!(packets.iter().all(|packet| packet.data().as_ptr().addr() % 8 == 3));
    }

    #[test]
    fn mistakes() {
        assert!(configure(&CLASS, "3, 0").unwrap_err()[0].contains("2, 4 or 8"));
        assert!(configure(&CLASS, "4, 4").unwrap_err()[0].contains("less than MODULUS"));
    }
}
