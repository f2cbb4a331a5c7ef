//! =c
//! Tee([N])
//!
//! =s basictransfer
//! copies packets to every output
//!
//! =d
//! Sends a copy of each packet out by each of its outputs, in order; the last output gets the packet itself. N, if given,
//! must be the number of outputs. When the pool has no frame for a copy, the copy is missing and counted as "no frame
//! for a copy".
//!
//! =a PullTee, PaintTee, Hub, Duplicate

use graph::{Alias, Class, ConfigError, Context, Element, Setup};
use packet::Batch;

/// The class `Tee`.
pub static CLASS: Class = Class {
    name: "Tee",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    aliases: &[Alias {
        name: "Duplicate",
        difference: "In Click the copies of a Tee share their data until one is changed; here copies are \
                always whole.",
    }],
    ports: "1/1-",
    processing: Class::PUSH,
    manual: graph::manual!("tee.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    check_arms(setup)?;
    Ok(Box::new(Tee))
}

/// Reads N, which must be the number of outputs.
pub fn check_arms(setup: &mut Setup<'_>) -> Result<(), ConfigError> {
    let arms: Option<usize> = setup.arguments.optional("N")?;
    setup.arguments.finish()?;
    match arms {
        Some(arms) if arms != setup.outputs() => {
            Err(format!("N: {} outputs are connected, not {arms}", setup.outputs()).into())
        }
        _ => Ok(()),
    }
}

/// Sends a copy of each packet of `batch` out by `output`.
pub fn emit_copies(cx: &mut Context, output: usize, batch: &Batch) {
    for packet in batch.packets() {
        match cx.copy(packet) {
            Some(copy) => cx.emit(output, copy),
            None => cx.count_drop("no frame for a copy", 1),
        }
    }
}

struct Tee;

impl Element for Tee {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let last = cx.outputs() - 1;
        for output in 0..last {
            emit_copies(cx, output, batch);
        }
        if last > 0 {
            cx.emit_batch(last, batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn every_output_gets_every_packet() {
        let mut bench = Bench::element(&crate::registry(), "Tee(3)", 1, 3);
        let mut packet = bench.packet(b"ab");
        packet.annotations_mut().set_paint(7);
        let other = bench.packet(b"cd");
        bench.push_packets("in0", vec![packet, other]);
        for output in ["out0", "out1", "out2"] {
            let packets = bench.taken_packets(output);
            assert_eq!(packets.iter().map(|p| p.data()).collect::<Vec<_>>(), [b"ab", b"cd"]);
            assert_eq!(packets[0].annotations().paint(), 7);
        }
    }
    #[test]
    fn without_frames_copies_are_missing_and_counted() {
        let mut bench = Bench::element(&crate::registry(), "Tee", 1, 2);
        let packets: Vec<_> = (0..4090).map(|_| bench.packet(b"x")).collect();
        bench.push_packets("in0", packets);
        assert_eq!((bench.taken("out0").len(), bench.taken("out1").len()), (6, 4090));
        assert_eq!(bench.drops("e", "no frame for a copy"), 4084);
    }

    #[test]
    fn mistakes() {
        let config = "in :: TestInput -> t :: Tee(3) -> Discard; t[1] -> Discard";
        let error = Bench::try_new(&crate::registry(), config, 1, &Default::default()).unwrap_err();
        assert!(error.contains("N: 2 outputs are connected, not 3"), "{error}");
    }
}
