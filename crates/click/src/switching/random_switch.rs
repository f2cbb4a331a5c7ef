//! =c
//! RandomSwitch
//!
//! =s classification
//! sends packets to its outputs at random
//!
//! =d
//! Each packet goes to one of the outputs, all equally likely.
//!
//! =a RoundRobinSwitch, HashSwitch, Switch

use graph::{Class, Context, Element};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "RandomSwitch",
    ports: "1/1-",
    processing: Class::PUSH,
    manual: graph::manual!("random_switch.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(RandomSwitch))
    },
    ..Class::DEFAULT
};

struct RandomSwitch;

impl Element for RandomSwitch {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let outputs = cx.outputs() as u64;
        let mut packets = std::mem::replace(batch, cx.spare_batch());
        for packet in packets.drain() {
            // The high word of the product is even over 0 to outputs - 1 (Lemire 2019).
            let output = (u64::from(cx.random()) * outputs) >> 32;
            cx.emit(output as usize, packet);
        }
        cx.recycle(packets);
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn outputs_share_evenly() {
        let mut bench = Bench::element(&crate::registry(), "RandomSwitch", 1, 3);
        bench.push("in0", &[&b"x"[..]; 3000]);
        let counts = ["out0", "out1", "out2"].map(|output| bench.taken(output).len());
        assert_eq!(counts.iter().sum::<usize>(), 3000);
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
