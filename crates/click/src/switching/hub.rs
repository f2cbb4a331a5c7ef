//! =c
//! Hub()
//!
//! =s basictransfer
//! copies packets to every output but their own
//!
//! =d
//! Has as many outputs as inputs. A packet that comes by an input goes out by all outputs but that of the same number, as an
//! Ethernet hub does it; the last of these gets the packet itself. When the pool has no frame for a copy, the copy is missing and
//! counted as "no frame for a copy". With a single port packets are dropped and counted as "no other port".
//!
//! =a Tee, EtherSwitch

use elements::switching::tee::emit_copies;
use graph::{Class, Context, Element};
use packet::{Batch, Packet};

pub(crate) static CLASS: Class = Class {
    name: "Hub",
    ports: "-/=",
    processing: Class::PUSH,
    flow: "#/[^#]",
    manual: graph::manual!("hub.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(Hub))
    },
    ..Class::DEFAULT
};

struct Hub;

/// Why a packet of a single port is dropped.
const NO_OTHER: &str = "no other port";

/// The last output of another number than `input`.
fn last_other(cx: &Context, input: usize) -> Option<usize> {
    (0..cx.outputs()).rev().find(|&output| output != input)
}

/// Sends `packet`, which came by `input`, to all outputs but that of the same number.
pub(crate) fn flood_packet(cx: &mut Context, input: usize, packet: Packet) {
    let Some(last) = last_other(cx, input) else { return cx.drop(packet, NO_OTHER) };
    for output in (0..last).filter(|&output| output != input) {
        match cx.copy(&packet) {
            Some(copy) => cx.emit(output, copy),
            None => cx.count_drop("no frame for a copy", 1),
        }
    }
    cx.emit(last, packet);
}

impl Element for Hub {
    fn push(&mut self, cx: &mut Context, input: usize, batch: &mut Batch) {
        let Some(last) = last_other(cx, input) else { return cx.drop_batch(batch, NO_OTHER) };
        for output in (0..last).filter(|&output| output != input) {
            emit_copies(cx, output, batch);
        }
        cx.emit_batch(last, batch);
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn all_others_get_it() {
        let mut bench = Bench::element(&crate::registry(), "Hub", 3, 3);
        bench.push("in1", &[b"a", b"b"]);
        bench.push("in2", &[b"c"]);
        let taken = ["out0", "out1", "out2"].map(|output| bench.taken(output).concat());
        assert_eq!(taken, [&b"abc"[..], b"c", b"ab"]);
    }

    #[test]
    fn one_and_two_ports() {
        let mut bench = Bench::element(&crate::registry(), "Hub", 2, 2);
        bench.push("in1", &[b"a"]);
        bench.push("in0", &[b"b"]);
        assert_eq!((bench.taken("out0").concat(), bench.taken("out1").concat()), (b"a".into(), b"b".into()));
        let mut bench = Bench::element(&crate::registry(), "Hub", 1, 1);
        bench.push("in0", &[b"a"]);
        assert_eq!(bench.drops("e", "no other port"), 1);
    }
}
