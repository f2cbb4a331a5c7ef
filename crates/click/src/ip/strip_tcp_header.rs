//! =c
//! StripTCPHeader()
//!
//! =s tcp
//! strips TCP headers
//!
//! =d
//! Takes off all up to the end of the TCP header, options included, whose place is marked (CheckIPHeader,
//! MarkIPHeader). UnstripIPHeader puts the headers back.
//!
//! A packet without a marked transport header, or one that ends before its TCP header does, is dropped as "no TCP header".
//!
//! =a StripIPHeader, StripTransportHeader, UnstripIPHeader

use graph::Class;
use packet::Packet;
use packet::wire::tcp::{MIN_HEADER_LEN, Tcp};

use crate::each_packet::{each_packet, or_drop};

pub(crate) static CLASS: Class = Class {
    name: "StripTCPHeader",
    manual: graph::manual!("strip_tcp_header.rs"),
    make: |setup| each_packet(setup, |packet| or_drop(strip(packet), "no TCP header")),
    ..Class::DEFAULT
};

fn strip(packet: &mut Packet) -> Option<()> {
    let offset = usize::try_from(packet.transport_offset()?).ok()?;
    let header_len = Tcp::new_unchecked(packet.transport()?.get(..14)?).header_len();
    (header_len >= MIN_HEADER_LEN && packet.strip(offset + header_len)).then_some(())
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use testbed::ipv4::ipv4;

    #[test]
    fn headers_with_and_without_options() {
        let tcp = |words: u8| {
            let mut segment = vec![0; usize::from(words) * 4];
            segment[12] = words << 4;
            segment.extend(b"data");
            ipv4([1, 2, 3, 4], [5, 6, 7, 8], 6, &segment)
        };
        let config = "in0 :: TestInput -> MarkIPHeader -> e :: StripTCPHeader -> out0 :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        let (plain, options) = (tcp(5), tcp(8));
        bench.push("in0", &[&plain, &options, &plain[..38]]);
        assert_eq!(bench.taken("out0"), [b"data", b"data"]);
        assert_eq!(bench.drops("e", "no TCP header"), 1);
    }
}
