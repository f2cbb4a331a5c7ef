//! =c
//! MarkIPHeader([OFFSET])
//!
//! =s ip
//! marks the place of the IP header
//!
//! =d
//! Sets the network header of each packet OFFSET bytes into its data (0 by default). Sets the
//! transport header behind it, by the header length in the IP header. Checks nothing; use it for
//! packets that are known to be good. In a packet that ends before OFFSET, both headers are set to
//! its end.
//!
//! =a CheckIPHeader, StripIPHeader

use graph::{Class, Context, Element};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "MarkIPHeader",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    manual: graph::manual!("mark_ip_header.rs"),
    make: |setup| {
        let offset = setup.arguments.optional("OFFSET")?.unwrap_or(0);
        setup.arguments.finish()?;
        Ok(Box::new(MarkIPHeader { offset }))
    },
    ..Class::DEFAULT
};

struct MarkIPHeader {
    offset: usize,
}

impl Element for MarkIPHeader {
    fn process(&mut self, _cx: &mut Context, batch: &mut Batch) {
        for packet in batch.packets_mut() {
            // Held within the packet here, so that the sum with the header length cannot overflow.
            let offset = self.offset.min(packet.len());
            let words = packet.data().get(offset).map_or(0, |first| first & 0x0f);
            packet.set_network_and_transport_header(offset, usize::from(words) * 4);
        }
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    use testbed::ipv4::with_options;

    #[test]
    fn marks_both_headers() {
        let mut bench = Bench::element(&crate::registry(), "MarkIPHeader(2)", 1, 1);
        let packet = with_options([1, 2, 3, 4], [5, 6, 7, 8], 17, &[1, 1, 1, 0], b"data");
        bench.push("in0", &[&[&[0, 0], &packet[..]].concat(), b"x"]);
        let packets = bench.taken_packets("out0");
        assert_eq!(packets[0].network(), Some(&packet[..]));
        assert_eq!(packets[0].transport(), Some(&b"data"[..]));
        assert_eq!(packets[1].network(), Some(&b""[..]));
    }
}
