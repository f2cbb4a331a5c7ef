//! =c
//! Block(THRESH)
//!
//! =s shaping
//! splits off packets of senders that send too fast
//!
//! =d
//! Looks at the forward rate annotation, 4 bytes at 32 in the byte order of the machine. A monitor
//! of rates writes the speed of the packet's sender there. Packets with at most THRESH there leave
//! by output 0, the others by output 1. With a THRESH of 0 all packets leave by output 0.
//!
//! =e
//!   ... -> b :: Block(500) -> ...;  b[1] -> Discard;
//!
//! =a Meter, RatedSplitter

use graph::{Class, Context, Element, Field, Handler, Verdict};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "Block",
    ports: "1/2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[Handler::field("thresh", "The THRESH argument.", &Field(|e: &mut Block| &mut e.threshold))],
    manual: graph::manual!("block.rs"),
    make: |setup| {
        let threshold = setup.arguments.required("THRESH")?;
        setup.arguments.finish()?;
        Ok(Box::new(Block { threshold }))
    },
    ..Class::DEFAULT
};

/// Where the annotations hold the rate of the packet's sender, at Click's place.
const FORWARD_RATE: usize = 32;

struct Block {
    threshold: i32,
}

impl Element for Block {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        if self.threshold == 0 {
            return;
        }
        cx.filter(batch, |packet| {
            let rate = packet.annotations().u32_at(FORWARD_RATE).unwrap_or(0);
            if i64::from(rate) <= i64::from(self.threshold) { Verdict::Keep } else { Verdict::Output(1) }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    fn push(bench: &mut Bench) {
        let packets = [0, 10, 11].map(|rate| {
            let mut packet = bench.packet(&[rate]);
            packet.annotations_mut().set_u32_at(FORWARD_RATE, u32::from(rate));
            packet
        });
        bench.push_packets("in0", packets.into());
    }

    #[test]
    fn by_the_annotation() {
        let mut bench = Bench::element(&crate::registry(), "Block(10)", 1, 2);
        push(&mut bench);
        assert_eq!((bench.taken("out0"), bench.taken("out1")), (vec![vec![0], vec![10]], vec![vec![11]]));
        bench.write("e.thresh", "0").unwrap();
        push(&mut bench);
        assert_eq!(bench.taken("out0").len(), 3);
        assert_eq!(bench.read("e.thresh"), "0");
        assert!(configure(&CLASS, "fast").is_err());
    }
}
