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
//! with CheckIPHeader's arguments. What fails the check leaves by output 1 if that is connected, and is dropped otherwise.
//!
//! Those three become one loop of themselves where they stand in a row, so that nothing is gained by it.
//!
//! Drop reasons: those of CheckIPHeader.
//!
//! =h drops read-only
//! Packets refused so far.
//!
//! =h drop_details read-only
//! Packets refused, by reason. Only with the keyword DETAILS.
//!
//! =e
//!   c[2] -> IPInputCombo(1, INTERFACES 18.26.4.9/24) -> rt :: RadixIPLookup(...);
//!
//! =a IPOutputCombo, Paint, Strip, CheckIPHeader

use graph::runs::{Ordinary, Step};
use graph::{Class, Context, Element, Handler};
use packet::wire::ethernet::HEADER_LEN;
use packet::{Annotations, Batch};

use super::check_ip_header::{self, CheckIPHeader};

pub(crate) static CLASS: Class = Class {
    name: "IPInputCombo",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("ip_input_combo.rs"),
    make: |setup| {
        let colour = setup.arguments.required("COLOR")?;
        Ok(Box::new(IPInputCombo { colour, check: check_ip_header::from_setup(setup, true)? }))
    },
};

struct IPInputCombo {
    colour: u8,
    check: CheckIPHeader,
}

impl Element for IPInputCombo {
    fn ordinary(&self) -> Option<Ordinary> {
        let paint = Step::SetAnnotation { place: Annotations::PAINT, value: self.colour };
        Ordinary::steps([paint, Step::Strip(HEADER_LEN), self.check.step()])
    }

    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        for packet in batch.packets_mut() {
            packet.annotations_mut().set_paint(self.colour);
            packet.strip(packet.len().min(HEADER_LEN));
        }
        self.check.process(cx, batch);
    }

    fn handlers(&self) -> &'static [Handler] {
        self.check.handlers()
    }

    fn read(&mut self, name: &str, argument: &str) -> Result<String, String> {
        self.check.read(name, argument)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    use super::super::samples::{any_packet, ipv4};
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
                let kept: Vec<_> = packets.iter().map(of).collect();
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
