//! =c
//! IPInputCombo(COLOR [, BADSRC, I<keywords> INTERFACES, BADSRC, GOODDST])
//!
//! =s ip
//! does the first steps of an IP router in one
//!
//! =d
//! The same as
//!
//!   Paint(COLOR) -> Strip(14) -> CheckIPHeader(BADSRC, ...) -> ...
//!
//! with CheckIPHeader's arguments. Packets that fail the check leave by output 1 if that is connected, and are
//! dropped otherwise.
//!
//! Those three become one loop of themselves where they stand in a row, so that nothing is gained by it.
//!
//! Drop reasons: those of CheckIPHeader.
//!
//! =e
//!   c[2] -> IPInputCombo(1, INTERFACES 18.26.4.9/24) -> rt :: RadixIPLookup(...);
//!
//! =a IPOutputCombo, Paint, Strip, CheckIPHeader

use elements::ip::check_ip_header::{self, CheckIPHeader};
use elements::runs::{self, Step};
use graph::runs::Ordinary;
use graph::{Class, Combine, Context, Element, Get, Handler, Put};
use packet::wire::ethernet::HEADER_LEN;
use packet::{Annotations, Batch};

pub(crate) static CLASS: Class = Class {
    name: "IPInputCombo",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[
        Handler::read(
            "drops",
            Combine::Sum,
            "Packets refused so far.",
            &Get(|e: &mut IPInputCombo| e.check.rejects().total().to_string()),
        ),
        Handler::read(
            "drop_details",
            Combine::Join,
            "Packets refused, by reason. Only with the keyword DETAILS.",
            &Get(|e: &mut IPInputCombo| e.check.rejects().details_text()),
        ),
        Handler::read_write(
            "own",
            Combine::First,
            "This router's addresses and the broadcast addresses of its networks, separated by spaces. Only \
             with MARTIANS.",
            &Get(|e: &mut IPInputCombo| e.check.own_text()),
            &Put(|e: &mut IPInputCombo, _, value| e.check.set_own(value)),
        ),
    ],
    manual: graph::manual!("ip_input_combo.rs"),
    make: |setup| {
        let colour = setup.arguments.required("COLOR")?;
        Ok(Box::new(IPInputCombo { colour, check: check_ip_header::from_setup(setup, true)? }))
    },
    ..Class::DEFAULT
};

struct IPInputCombo {
    colour: u8,
    check: CheckIPHeader,
}

impl Element for IPInputCombo {
    fn ordinary(&self) -> Option<Ordinary> {
        let paint = Step::SetAnnotation { place: Annotations::PAINT, value: self.colour };
        runs::ordinary([paint, Step::Strip(HEADER_LEN), self.check.step()])
    }

    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        for packet in batch.packets_mut() {
            packet.annotations_mut().set_paint(self.colour);
            packet.strip(packet.len().min(HEADER_LEN));
        }
        self.check.process(cx, batch);
    }

    fn has_handler(&self, name: &str) -> bool {
        self.check.has_handler(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};
    use testbed::ipv4::{any_packet, ipv4};

    use proptest::prelude::*;

    const ARGUMENTS: &str = "INTERFACES 18.26.4.9/24";

    proptest! {
        #[test]
        fn as_the_three(packets in proptest::collection::vec(any_packet(), 1..20), burst in 1usize..33) {
            let registry = crate::registry();
            let combo = format!("in :: TestInput -> e :: IPInputCombo(7, {ARGUMENTS}) -> out :: TestOutput");
            let three = format!("in :: TestInput -> Paint(7) -> Strip(14) -> e :: CheckIPHeader({ARGUMENTS}) -> out :: TestOutput");
            let mut benches = [combo, three].map(|config| Bench::with_burst(&registry, &config, burst));
            let frames: Vec<Vec<u8>> = packets.iter().map(|packet| [&[0; 14], &packet[..]].concat()).collect();
            let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            let [combo, three] = benches.each_mut().map(|bench| {
                bench.push("in", &frames);
                let packets = bench.taken_packets("out");
                let of = |packet: &packet::Packet| {
                    let annotations = packet.annotations().bytes().to_vec();
                    (packet.data().to_vec(), annotations, packet.network_offset(), packet.transport_offset())
                };
                let mut kept: Vec<_> = packets.iter().map(of).collect();
                // Odd packets leave behind the others of their batch.
                kept.sort();
                (kept, bench.stats("e").drops, bench.read("e.drops"))
            });
            prop_assert_eq!(combo, three);
        }
    }

    #[test]
    fn short_packets_and_mistakes() {
        let mut bench = Bench::element(&crate::registry(), "IPInputCombo(3, 1.2.3.4)", 1, 2);
        let frame = [&[0; 14], &ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, b"")[..]].concat();
        bench.push("in0", &[b"short", &frame]);
        assert_eq!(bench.taken("out1").len(), 2);
        assert_eq!(bench.read("e.drops"), "2");
        assert!(configure(&CLASS, "").is_err());
        assert!(configure(&CLASS, "256").is_err());
        assert!(configure(&CLASS, "1, BADSRC 1.2.3").is_err());
    }
}
