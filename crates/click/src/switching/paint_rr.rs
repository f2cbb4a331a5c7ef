//! =c
//! PaintRR([ANNO])
//!
//! =s paint
//! shares packets out by their paint
//!
//! =d
//! A packet goes to the output whose number is its paint annotation, or another byte of the annotations, ANNO, modulo the number
//! of outputs. So other than with C<PaintSwitch> every paint has an output.
//!
//! =a PaintSwitch, Paint, RoundRobinSwitch

use graph::arguments::AnnotationByte;
use graph::{Class, Context, Element};
use packet::{Annotations, Batch};

pub(crate) static CLASS: Class = Class {
    name: "PaintRR",
    ports: "1/1-",
    processing: Class::PUSH,
    manual: graph::manual!("paint_rr.rs"),
    make: |setup| {
        let place = setup.arguments.optional("ANNO")?.unwrap_or(AnnotationByte(Annotations::PAINT));
        setup.arguments.finish()?;
        Ok(Box::new(PaintRr { place: place.0 }))
    },
    ..Class::DEFAULT
};

struct PaintRr {
    place: usize,
}

impl Element for PaintRr {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let outputs = cx.outputs().max(1);
        cx.classify(batch, |packet| Ok(usize::from(packet.annotations().bytes()[self.place]) % outputs));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn paint_modulo_outputs() {
        let mut bench = Bench::element(&crate::registry(), "PaintRR", 1, 3);
        let packets = [0, 1, 4, 255, 2].map(|paint| {
            let mut packet = bench.packet(&[paint]);
            packet.annotations_mut().set_paint(paint);
            packet
        });
        bench.push_packets("in0", packets.into());
        let taken = ["out0", "out1", "out2"].map(|output| bench.taken(output).concat());
        assert_eq!(taken, [vec![0, 255], vec![1, 4], vec![2]]);
        assert!(configure(&CLASS, "48").is_err());
    }
}
