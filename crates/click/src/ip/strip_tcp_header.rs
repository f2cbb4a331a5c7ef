//! =c
//! StripTCPHeader()
//!
//! =s tcp
//! strips TCP headers
//!
//! =d
//! Takes off all up to the end of the TCP header, options included, whose place is marked (CheckIPHeader, MarkIPHeader). What is
//! taken off can be put back (UnstripIPHeader).
//!
//! A packet without a marked transport header, or one that ends before its TCP header does, is dropped as "no TCP header".
//!
//! =a StripIPHeader, StripTransportHeader, UnstripIPHeader

use graph::{Class, Context, Element, Verdict};
use packet::{Batch, Packet};

pub(crate) static CLASS: Class = Class {
    name: "StripTCPHeader",
    manual: graph::manual!("strip_tcp_header.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(StripTcpHeader))
    },
    ..Class::DEFAULT
};

struct StripTcpHeader;

fn strip(packet: &mut Packet) -> Option<()> {
    let offset = usize::try_from(packet.transport_offset()?).ok()?;
    let header_len = usize::from(packet.transport()?.get(12)? >> 4) * 4;
    (header_len >= 20 && packet.strip(offset + header_len)).then_some(())
}

impl Element for StripTcpHeader {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| match strip(packet) {
            Some(()) => Verdict::Keep,
            None => Verdict::Drop("no TCP header"),
        });
    }
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
