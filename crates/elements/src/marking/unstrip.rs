//! =c
//! Unstrip(LENGTH)
//!
//! =s basicmod
//! puts bytes back at the front of packets
//!
//! =d
//! Makes each packet LENGTH bytes longer at its front. Bytes that were stripped before come back
//! unchanged. A packet without room for them is dropped and counted as "no head room".
//!
//! =a Strip

use graph::{Class, Context, Element, Verdict};
use packet::{Batch, Packet};

pub(crate) static CLASS: Class = Class {
    name: "Unstrip",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    manual: graph::manual!("unstrip.rs"),
    make: |setup| {
        let length: u32 = setup.arguments.required("LENGTH")?;
        setup.arguments.finish()?;
        Ok(Box::new(Unstrip { length: length as usize }))
    },
    ..Class::DEFAULT
};

struct Unstrip {
    length: usize,
}

/// Makes room by moving the data back; for packets whose head room is used up.
#[cold]
fn make_room(packet: &mut Packet, length: usize) -> bool {
    let missing = length.saturating_sub(packet.headroom());
    missing <= packet.tailroom() && packet.shift(missing as isize) && packet.prepend(length).is_some()
}

impl Element for Unstrip {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| {
            if packet.prepend(self.length).is_some() || make_room(packet, self.length) {
                Verdict::Keep
            } else {
                Verdict::Drop("no head room")
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn what_was_stripped_comes_back() {
        let config = "in :: TestInput -> Strip(4) -> Unstrip(3) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[b"abcdef"]);
        assert_eq!(bench.taken("out"), [b"bcdef"]);
    }

    #[test]
    fn room_is_found_behind_the_data() {
        let mut bench = Bench::element(&crate::registry(), "Unstrip(1000)", 1, 1);
        bench.push("in0", &[b"abc"]);
        let packets = bench.taken("out0");
        assert_eq!((packets[0].len(), &packets[0][1000..]), (1003, &b"abc"[..]));
        // More than there is behind the data, but not more than there is in all.
        let mut bench = Bench::element(&crate::registry(), "Unstrip(1900)", 1, 1);
        bench.push("in0", &[b"abc"]);
        assert_eq!(&bench.taken("out0")[0][1900..], b"abc");
    }

    #[test]
    fn without_room_packets_are_dropped() {
        let mut bench = Bench::element(&crate::registry(), "Unstrip(4294967295)", 1, 1);
        bench.push("in0", &[b"abc"]);
        assert_eq!(bench.drops("e", "no head room"), 1);
        assert!(configure(&CLASS, "").is_err());
    }
}
