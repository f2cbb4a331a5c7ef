//! =c
//! SetUDPChecksum()
//!
//! =s udp
//! sets the UDP checksum
//!
//! =d
//! Computes the checksum of the UDP datagram anew in packets whose IP header is marked.
//!
//! Drop reasons: bad packet length, no IP header.
//!
//! =a SetTCPChecksum, SetIPChecksum, CheckUDPHeader, UDPIPEncap

use graph::{Class, Context, Element, Verdict};
use packet::wire::udp::{HEADER_LEN, Udp};
use packet::{Batch, Packet};

use super::segment::{BAD_LENGTH, Segment};

pub(crate) static CLASS: Class = Class {
    name: "SetUDPChecksum",
    manual: graph::manual!("set_udp_checksum.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(SetUDPChecksum))
    },
    ..Class::DEFAULT
};

struct SetUDPChecksum;

fn set(packet: &mut Packet) -> Result<(), &'static str> {
    let Segment { bytes, pseudo } = Segment::of(packet)?;
    let length = Udp::new_checked(&bytes[..]).map_err(|_| BAD_LENGTH)?.length();
    // RFC 768: "the minimum value of the length is eight".
    let datagram = bytes.get_mut(..length).filter(|_| length >= HEADER_LEN).ok_or(BAD_LENGTH)?;
    Udp::new_unchecked(datagram).fill_checksum(&pseudo);
    Ok(())
}

impl Element for SetUDPChecksum {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| match set(packet) {
            Ok(()) => Verdict::Keep,
            Err(reason) => Verdict::Drop(reason),
        });
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use testbed::ipv4::ipv4;

    #[test]
    fn the_checksum_is_right() {
        let config =
            "in :: TestInput -> CheckIPHeader -> e :: SetUDPChecksum -> CheckUDPHeader -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        let datagram = |length: u8, payload: &[u8]| {
            let datagram = [&[0, 1, 0, 2, 0, length, 0xde, 0xad][..], payload].concat();
            ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, &datagram)
        };
        bench.push(
            "in",
            &[&datagram(11, b"odd"), &datagram(8, b"behind"), &datagram(7, b"x"), &datagram(10, b"x")],
        );
        let packets = bench.taken("out");
        assert_eq!(packets.len(), 2);
        assert!(packets.iter().all(|packet| packet[26..28] != [0xde, 0xad]));
        assert_eq!(bench.drops("e", "bad packet length"), 2);
        let mut bench = Bench::element(&crate::registry(), "SetUDPChecksum", 1, 1);
        bench.push("in0", &[&datagram(8, b"")]);
        assert_eq!(bench.drops("e", "no IP header"), 1);
    }
}
