//! =c
//! CheckPaint(COLOR [, ANNO])
//!
//! =s paint
//! lets packets of one paint pass
//!
//! =d
//! Packets whose paint annotation is COLOR go out by output 0. The others go out by output 1 if that is connected, and
//! are dropped and counted as "wrong paint" otherwise. ANNO names another byte of the annotations.
//!
//! =a Paint, PaintTee, PaintSwitch

use elements::marking::paint::Colour;
use graph::{Class, Combine, Context, Element, Get, Handler, Put, Verdict};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    capabilities: &[graph::TAKES_MERGED],
    name: "CheckPaint",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[Handler::read_write(
        "color",
        Combine::First,
        "The COLOR argument.",
        &Get(|e: &mut CheckPaint| e.0.text()),
        &Put(|e: &mut CheckPaint, _, value| e.0.set(value)),
    )],
    manual: graph::manual!("check_paint.rs"),
    make: |setup| Ok(Box::new(CheckPaint(Colour::from_setup(setup)?))),
    ..Class::DEFAULT
};

struct CheckPaint(Colour);

impl Element for CheckPaint {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| {
            if self.0.is_on(packet) { Verdict::Keep } else { Verdict::Divert(1, "wrong paint") }
        });
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn other_paints_go_elsewhere() {
        for outputs in [1, 2] {
            let mut bench = Bench::element(&crate::registry(), "CheckPaint(2)", 1, outputs);
            let mut painted = bench.packet(b"b");
            painted.annotations_mut().set_paint(2);
            let plain = bench.packet(b"a");
            bench.push_packets("in0", vec![plain, painted]);
            assert_eq!(bench.taken("out0"), [b"b"]);
            if outputs == 2 {
                assert_eq!(bench.taken("out1"), [b"a"]);
            } else {
                assert_eq!(bench.drops("e", "wrong paint"), 1);
            }
        }
    }
}
