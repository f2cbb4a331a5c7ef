//! =c
//! PaintSwitch([ANNO])
//!
//! =s paint
//! sends packets to the output with the number of their paint
//!
//! =d
//! A packet goes to the output whose number is its paint annotation, or another byte of the annotations, ANNO. Without
//! that output it is dropped and counted as "no output for this paint". With a paint of 255 each output gets a copy.
//!
//! =a Paint, PaintTee, PaintRR, CheckPaint, Switch

use graph::arguments::AnnotationByte;
use graph::{Class, Context, Element};
use packet::{Annotations, Batch, Packet};

use super::tee::emit_copies;

pub(crate) static CLASS: Class = Class {
    name: "PaintSwitch",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    ports: "1/-",
    processing: Class::PUSH,
    manual: graph::manual!("paint_switch.rs"),
    make: |setup| {
        let place = setup.arguments.optional("ANNO")?.unwrap_or(AnnotationByte(Annotations::PAINT));
        setup.arguments.finish()?;
        Ok(Box::new(PaintSwitch { place: place.0 }))
    },
    ..Class::DEFAULT
};

/// The paint that means all outputs.
const EVERYWHERE: u8 = 255;

const NO_OUTPUT: &str = "no output for this paint";

struct PaintSwitch {
    place: usize,
}

impl PaintSwitch {
    fn paint(&self, packet: &Packet) -> u8 {
        packet.annotations().bytes()[self.place]
    }
}

impl Element for PaintSwitch {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let outputs = cx.outputs();
        if !batch.iter().any(|packet| self.paint(packet) == EVERYWHERE) {
            cx.classify(batch, |packet| {
                let output = usize::from(self.paint(packet));
                if output < outputs { Ok(output) } else { Err(NO_OUTPUT) }
            });
            return;
        }
        let mut packets = std::mem::replace(batch, cx.spare_batch());
        let mut one = cx.spare_batch();
        for packet in packets.drain() {
            if self.paint(&packet) != EVERYWHERE {
                match usize::from(self.paint(&packet)) {
                    output if output < outputs => cx.emit(output, packet),
                    _ => cx.drop(packet, NO_OUTPUT),
                }
                continue;
            }
            one.push(packet);
            for output in 1..outputs {
                emit_copies(cx, output - 1, &one);
            }
            match outputs.checked_sub(1) {
                Some(last) => cx.emit_batch(last, &mut one),
                None => cx.drop_batch(&mut one, NO_OUTPUT),
            }
        }
        cx.recycle(one);
        cx.recycle(packets);
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    fn painted(bench: &mut Bench, place: usize, paints: &[u8]) {
        let packets = paints.iter().map(|&paint| {
            let mut packet = bench.packet(&[paint]);
            packet.annotations_mut().bytes_mut()[place] = paint;
            packet
        });
        let packets = packets.collect();
        bench.push_packets("in0", packets);
    }

    #[test]
    fn the_paint_is_the_output() {
        let mut bench = Bench::element(&crate::registry(), "PaintSwitch", 1, 2);
        painted(&mut bench, 16, &[1, 0, 2, 1]);
        assert_eq!(bench.taken("out0"), [[0]]);
        assert_eq!(bench.taken("out1"), [[1], [1]]);
        assert_eq!(bench.drops("e", "no output for this paint"), 1);
        painted(&mut bench, 16, &[7, 7]);
        assert_eq!(bench.drops("e", "no output for this paint"), 3);
    }

    #[test]
    fn paint_255_goes_everywhere() {
        let mut bench = Bench::element(&crate::registry(), "PaintSwitch(20)", 1, 2);
        painted(&mut bench, 20, &[1, 255, 0, 9]);
        assert_eq!(bench.taken("out0"), [[255], [0]]);
        assert_eq!(bench.taken("out1"), [[1], [255]]);
        assert_eq!(bench.drops("e", "no output for this paint"), 1);
    }
}
