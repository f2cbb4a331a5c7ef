//! =c
//! EtherMirror()
//!
//! =s ethernet
//! swaps the addresses of Ethernet headers
//!
//! =d
//! Swaps source and destination in the Ethernet header at the start of each packet, so that it goes back to where it came
//! from. A packet of fewer than 12 bytes is dropped and counted as "truncated Ethernet header".
//!
//! =a EtherEncap, EtherRewrite

use elements::ethernet::header::TRUNCATED;
use graph::Class;
use packet::Packet;

use crate::each_packet::{each_packet, or_drop};

pub(crate) static CLASS: Class = Class {
    name: "EtherMirror",
    manual: graph::manual!("ether_mirror.rs"),
    make: |setup| each_packet(setup, |packet| or_drop(mirror(packet), TRUNCATED)),
    ..Class::DEFAULT
};

fn mirror(packet: &mut Packet) -> Option<()> {
    let addresses = packet.data_mut().first_chunk_mut::<12>()?;
    addresses.rotate_left(6);
    Some(())
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn addresses_swap() {
        let mut bench = Bench::element(&crate::registry(), "EtherMirror", 1, 1);
        bench.push("in0", &[b"dstdstsrcsrc\x08\x00x", b"dstdstsrcsr"]);
        assert_eq!(bench.taken("out0"), [b"srcsrcdstdst\x08\x00x"]);
        assert_eq!(bench.drops("e", "truncated Ethernet header"), 1);
    }
}
