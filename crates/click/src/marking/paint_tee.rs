//! =c
//! PaintTee(COLOR [, ANNO])
//!
//! =s paint
//! copies packets of one paint
//!
//! =d
//! All packets go out by output 0; of those whose paint annotation is COLOR a copy goes out by output 1 first. ANNO names
//! another byte of the annotations. In a router it finds packets that leave by the interface they came from, for a
//! redirect. When the pool has no frame for a copy, the copy is missing and counted as "no frame for a copy".
//!
//! =a Paint, CheckPaint, Tee, ICMPError

use elements::marking::paint::Colour;
use elements::runs::{self, Step};
use graph::runs::Ordinary;
use graph::{Class, Combine, Context, Element, Get, Handler, Put};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "PaintTee",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    ports: "1/2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[Handler::read_write(
        "color",
        Combine::First,
        "The COLOR argument.",
        &Get(|e: &mut PaintTee| e.0.text()),
        &Put(|e: &mut PaintTee, _, value| e.0.set(value)),
    )],
    manual: graph::manual!("paint_tee.rs"),
    make: |setup| Ok(Box::new(PaintTee(Colour::from_setup(setup)?))),
    ..Class::DEFAULT
};

struct PaintTee(Colour);

impl Element for PaintTee {
    /// No copy is made of an ordinary packet.
    fn ordinary(&self) -> Option<Ordinary> {
        runs::ordinary([Step::AnnotationIsNot { place: self.0.place, value: self.0.colour }])
    }

    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        for packet in batch.packets() {
            if self.0.is_on(packet) {
                match cx.copy(packet) {
                    Some(copy) => cx.emit(1, copy),
                    None => cx.count_drop("no frame for a copy", 1),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn painted_packets_are_copied() {
        let mut bench = Bench::element(&crate::registry(), "PaintTee(2)", 1, 2);
        let mut painted = bench.packet(b"b");
        painted.annotations_mut().set_paint(2);
        let (first, last) = (bench.packet(b"a"), bench.packet(b"c"));
        bench.push_packets("in0", vec![first, painted, last]);
        assert_eq!(bench.taken("out0"), [b"a", b"b", b"c"]);
        assert_eq!(bench.taken("out1"), [b"b"]);
        bench.write("e.color", "0").unwrap();
        bench.push("in0", &[b"d"]);
        assert_eq!(bench.taken("out1"), [b"d"]);
    }
}
