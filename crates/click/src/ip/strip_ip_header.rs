//! =c
//! StripIPHeader()
//!
//! =s ip
//! takes the IP header off
//!
//! =d
//! Removes all bytes before the transport header, so that the data starts behind the IP header. The IP header
//! must have been marked before.
//!
//! Drop reasons: no IP header.
//!
//! =a UnstripIPHeader, CheckIPHeader, MarkIPHeader, Strip, Unstrip

use graph::{Class, Context, Element, Verdict};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "StripIPHeader",
    manual: graph::manual!("strip_ip_header.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(StripIPHeader))
    },
    ..Class::DEFAULT
};

struct StripIPHeader;

impl Element for StripIPHeader {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| match packet.transport_offset() {
            // Stripped already.
            Some(offset) if offset <= 0 => Verdict::Keep,
            Some(offset) if packet.strip(offset as usize) => Verdict::Keep,
            _ => Verdict::Drop("no IP header"),
        });
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use testbed::ipv4::with_options;

    #[test]
    fn strips_options_too() {
        let config = "in :: TestInput -> CheckIPHeader(2) -> e :: StripIPHeader -> out :: TestOutput;
            bare :: TestInput -> f :: StripIPHeader -> out2 :: TestOutput;";
        let mut bench = Bench::new(&crate::registry(), config);
        let packet = with_options([1, 2, 3, 4], [5, 6, 7, 8], 17, &[1, 1, 1, 0], b"data");
        bench.push("in", &[&[&[0, 0], &packet[..]].concat()]);
        bench.push("bare", &[&packet]);
        assert_eq!(bench.taken("out"), [b"data"]);
        assert_eq!(bench.drops("f", "no IP header"), 1);
    }
}
