//! =c
//! UnstripIPHeader()
//!
//! =s ip
//! makes packets begin with their IP header again
//!
//! =d
//! Where the marked IP header lies before the start of the packet, because C<StripIPHeader> stripped it, say, the packet gets it
//! and what follows it back. A packet that begins at its IP header or before stays as it is.
//!
//! Drop reasons: no IP header.
//!
//! =a StripIPHeader, CheckIPHeader, MarkIPHeader, Unstrip

use graph::{Class, Context, Element, Verdict};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "UnstripIPHeader",
    manual: graph::manual!("unstrip_ip_header.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(UnstripIPHeader))
    },
    ..Class::DEFAULT
};

struct UnstripIPHeader;

impl Element for UnstripIPHeader {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| match packet.network_offset() {
            Some(offset) if offset >= 0 => Verdict::Keep,
            Some(offset) if packet.prepend(offset.unsigned_abs()).is_some() => Verdict::Keep,
            _ => Verdict::Drop("no IP header"),
        });
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use testbed::ipv4::with_options;

    #[test]
    fn the_header_comes_back() {
        let packet = with_options([1, 2, 3, 4], [5, 6, 7, 8], 17, &[1, 1, 1, 0], b"data");
        let frame = [&[0; 14], &packet[..]].concat();
        for (way, expected) in [
            ("CheckIPHeader(14) -> StripIPHeader", &packet),
            ("CheckIPHeader(14) -> Strip(20)", &packet),
            ("CheckIPHeader(14)", &frame),
        ] {
            let config = format!("in :: TestInput -> {way} -> UnstripIPHeader -> out :: TestOutput");
            let mut bench = Bench::new(&crate::registry(), &config);
            bench.push("in", &[&frame]);
            assert_eq!(bench.taken("out"), [&expected[..]], "{way}");
        }
        let mut bench = Bench::element(&crate::registry(), "UnstripIPHeader", 1, 1);
        bench.push("in0", &[&packet]);
        assert_eq!(bench.drops("e", "no IP header"), 1);
    }
}
