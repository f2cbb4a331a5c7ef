//! =c
//! SetIPECN(ECN)
//!
//! =s ip
//! sets the explicit congestion notification field
//!
//! =d
//! Sets the ECN field (RFC 3168) of packets whose IP header is marked, and updates the checksum. ECN is a number from 0 to 3 or
//! one of C<no> (0), C<ect1> or C<ECT(1)> (1), C<ect2> or C<ECT(0)> (2), and C<ce> (3).
//!
//! Drop reasons: no IP header.
//!
//! =a MarkIPCE, SetIPDSCP

use elements::ip::set_ip_dscp::{header_start, set_tos};
use graph::{Class, Combine, Context, Element, FromArgument, Get, Handler, Put, Verdict};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "SetIPECN",
    handlers: &[Handler::read_write(
        "ecn",
        Combine::First,
        "The field, as a number when read.",
        &Get(|e: &mut SetIPECN| e.ecn.to_string()),
        &Put(|e: &mut SetIPECN, _, value| {
            e.ecn = Ecn::from_value(value)?.0;
            Ok(())
        }),
    )],
    manual: graph::manual!("set_ip_ecn.rs"),
    make: |setup| {
        let Ecn(ecn) = setup.arguments.required("ECN")?;
        setup.arguments.finish()?;
        Ok(Box::new(SetIPECN { ecn }))
    },
    ..Class::DEFAULT
};

struct Ecn(u8);

impl FromArgument for Ecn {
    const EXPECTED: &'static str = "number from 0 to 3, no, ect1, ect2 or ce";
    fn from_argument(text: &str) -> Option<Self> {
        match String::from_argument(text)?.to_ascii_lowercase().as_str() {
            "no" => Some(Self(0)),
            "ect1" | "ect(1)" => Some(Self(1)),
            "ect2" | "ect(0)" => Some(Self(2)),
            "ce" => Some(Self(3)),
            number => u8::from_argument(number).filter(|ecn| *ecn < 4).map(Self),
        }
    }
}

struct SetIPECN {
    ecn: u8,
}

impl Element for SetIPECN {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| {
            let Some(header) = header_start(packet) else { return Verdict::Drop("no IP header") };
            set_tos(header, header[1] & !3 | self.ecn);
            Verdict::Keep
        });
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};
    use testbed::ipv4::{ipv4, refresh};

    use super::*;

    #[test]
    fn keeps_the_code_point_and_the_checksum() {
        let config = "in :: TestInput -> MarkIPHeader -> e :: SetIPECN(ce) -> out :: TestOutput;";
        let mut bench = Bench::new(&crate::registry(), config);
        let mut packet = ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, b"data");
        packet[1] = 0b1010_1001;
        refresh(&mut packet);
        for (ecn, value) in [("ce", 3), ("no", 0), ("ECT(0)", 2), ("ect1", 1), ("3", 3)] {
            bench.write("e.ecn", ecn).unwrap();
            bench.push("in", &[&packet]);
            let mut expected = packet.clone();
            expected[1] = 0b1010_1000 | value;
            refresh(&mut expected);
            assert_eq!(bench.taken("out"), [expected]);
            assert_eq!(bench.read("e.ecn"), value.to_string());
        }
        bench.push("in", &[b"x"]);
        assert_eq!(bench.drops("e", "no IP header"), 1);
        assert!(bench.write("e.ecn", "4").is_err());
        assert!(configure(&CLASS, "ect(2)").is_err());
    }
}
