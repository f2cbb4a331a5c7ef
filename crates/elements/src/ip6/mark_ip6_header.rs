//! =c
//! MarkIP6Header([OFFSET])
//!
//! =s ip6
//! marks the place of the IPv6 header
//!
//! =d
//! Sets the network header of each packet OFFSET bytes into its data (0 by default), and the transport header
//! behind it and its extension headers. Checks nothing; use it for packets that are known to be good. Of a
//! packet that ends before OFFSET, or whose headers do, the transport header is its end.
//!
//! =a CheckIP6Header, MarkIPHeader, StripIPHeader

use graph::{Class, Context, Element};
use packet::Batch;
use packet::wire::ipv6::Ipv6;

pub(crate) static CLASS: Class = Class {
    name: "MarkIP6Header",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    manual: graph::manual!("mark_ip6_header.rs"),
    make: |setup| {
        let offset = setup.arguments.optional("OFFSET")?.unwrap_or(0);
        setup.arguments.finish()?;
        Ok(Box::new(MarkIp6Header { offset }))
    },
    ..Class::DEFAULT
};

struct MarkIp6Header {
    offset: usize,
}

impl Element for MarkIp6Header {
    fn process(&mut self, _cx: &mut Context, batch: &mut Batch) {
        for packet in batch.packets_mut() {
            let offset = self.offset.min(packet.len());
            let bytes = &packet.data()[offset..];
            let headers = Ipv6::new_checked(bytes).map_or(bytes.len(), |header| header.upper_layer_offset());
            packet.set_network_and_transport_header(offset, headers);
        }
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    use testbed::ipv6::{FAR, HOST, ipv6};

    #[test]
    fn marks_both_headers() {
        let mut bench = Bench::element(&crate::registry(), "MarkIP6Header(2)", 1, 1);
        let packet = ipv6(HOST, FAR, 60, b"\x11\0\x01\x04\0\0\0\0data");
        bench.push("in0", &[&[&[0, 0], &packet[..]].concat(), b"x", b"xxy"]);
        let packets = bench.taken_packets("out0");
        assert_eq!(packets[0].network(), Some(&packet[..]));
        assert_eq!(packets[0].transport(), Some(&b"data"[..]));
        assert_eq!(packets[1].network(), Some(&b""[..]));
        assert_eq!((packets[2].network(), packets[2].transport()), (Some(&b"y"[..]), Some(&b""[..])));
    }
}
