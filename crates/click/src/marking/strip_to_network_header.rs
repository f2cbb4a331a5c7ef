//! =c
//! StripToNetworkHeader
//!
//! =s basicmod
//! strips packets to their network header
//!
//! =d
//! Takes off what comes before the network header of each packet. When the packet begins behind its network header, it
//! gets the bytes in between back. A packet whose network header nobody marked, or that lacks the room, is dropped and
//! counted as "no network header".
//!
//! =a Strip, MarkIPHeader, CheckIPHeader

use graph::Class;
use packet::Packet;

use crate::each_packet::{each_packet, or_drop};

pub(crate) static CLASS: Class = Class {
    name: "StripToNetworkHeader",
    manual: graph::manual!("strip_to_network_header.rs"),
    make: |setup| each_packet(setup, |packet| or_drop(strip_to_network(packet), "no network header")),
    ..Class::DEFAULT
};

fn strip_to_network(packet: &mut Packet) -> Option<()> {
    match packet.network_offset()? {
        offset @ 0.. => packet.strip(offset as usize).then_some(()),
        offset => packet.prepend(offset.unsigned_abs()).map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    fn through(elements: &str) -> (Vec<Vec<u8>>, u64) {
        let config =
            format!("in :: TestInput -> {elements} -> e :: StripToNetworkHeader -> out :: TestOutput");
        let mut bench = Bench::new(&crate::registry(), &config);
        bench.push("in", &[b"abcdefg"]);
        (bench.taken("out"), bench.drops("e", "no network header"))
    }

    #[test]
    fn forward_and_back() {
        assert_eq!(through("MarkMACHeader(0, 4)"), (vec![b"efg".to_vec()], 0));
        assert_eq!(through("MarkMACHeader(0, 4) -> Strip(4)"), (vec![b"efg".to_vec()], 0));
        assert_eq!(through("MarkMACHeader(0, 4) -> Strip(6)"), (vec![b"efg".to_vec()], 0));
        assert_eq!(through("Strip(2)"), (vec![], 1));
        assert_eq!(through("MarkMACHeader(0, 4) -> Truncate(2)"), (vec![], 1));
    }
}
