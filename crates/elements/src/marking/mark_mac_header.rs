//! =c
//! MarkMACHeader([OFFSET, LENGTH])
//!
//! =s ethernet
//! marks the place of the link header
//!
//! =d
//! The link header of each packet starts OFFSET bytes into the data (0 by default). With a LENGTH that is not 0, the
//! network header is marked behind it.
//!
//! =a MarkIPHeader, StripToNetworkHeader

use graph::{Class, Context, Element};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "MarkMACHeader",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    manual: graph::manual!("mark_mac_header.rs"),
    make: |setup| {
        let offset: u16 = setup.arguments.optional("OFFSET")?.unwrap_or(0);
        let length: u16 = setup.arguments.optional("LENGTH")?.unwrap_or(0);
        setup.arguments.finish()?;
        Ok(Box::new(MarkMacHeader { offset: offset.into(), length: length.into() }))
    },
    ..Class::DEFAULT
};

struct MarkMacHeader {
    offset: usize,
    length: usize,
}

impl Element for MarkMacHeader {
    fn process(&mut self, _cx: &mut Context, batch: &mut Batch) {
        for packet in batch.packets_mut() {
            packet.set_link_header(self.offset);
            if self.length > 0 {
                packet.set_network_header(self.offset + self.length);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn headers_are_where_it_says() {
        let mut bench = Bench::element(&crate::registry(), "MarkMACHeader(2, 3)", 1, 1);
        bench.push("in0", &[b"abcdefg", b"a"]);
        let packets = bench.taken_packets("out0");
        assert_eq!(packets[0].link(), Some(&b"cdefg"[..]));
        assert_eq!(packets[0].network(), Some(&b"fg"[..]));
        assert_eq!(packets[1].link(), Some(&b""[..]));
    }

    #[test]
    fn without_arguments() {
        let mut bench = Bench::element(&crate::registry(), "MarkMACHeader", 1, 1);
        bench.push("in0", &[b"abc"]);
        let packets = bench.taken_packets("out0");
        assert_eq!((packets[0].link_offset(), packets[0].network_offset()), (Some(0), None));
        assert!(configure(&CLASS, "70000").is_err());
    }
}
