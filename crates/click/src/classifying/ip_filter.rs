//! =c
//! IPFilter(ACTION PATTERN, ..., ACTION PATTERN)
//!
//! =s classification
//! lets IP packets pass or not
//!
//! =d
//! Does the ACTION of the first PATTERN that is true of an IP packet: C<allow> sends it out by output 0, C<deny> and
//! C<drop> drop it, and a number sends it out by the output of that number. A packet of which none is true is
//! dropped. See IPClassifier for patterns. The IP header must be marked (CheckIPHeader, MarkIPHeader).
//!
//! Dropped packets are counted as "denied".
//!
//! A packet in which several are merged (see Divide) is judged once, by its headers. Its length is
//! that of all of them.
//!
//! =e
//!   IPFilter(deny src 10.0.0.0/8, allow tcp && dst port 22, allow udp && src port 53,
//!            1 icmp, deny all)
//!
//! =a IPClassifier, Classifier, CheckIPHeader, MarkIPHeader

use elements::classifying::decider::{Decider, make};
use elements::decision::{Program, ip_names};
use graph::Class;

pub(crate) static CLASS: Class = Class {
    capabilities: &[graph::TAKES_MERGED],
    name: "IPFilter",
    ports: "1/-",
    processing: Class::PUSH,
    handlers: Decider::<true>::HANDLERS,
    manual: graph::manual!("ip_filter.rs"),
    make: |setup| {
        make::<true>(
            setup,
            |rules, outputs| {
                let outputs = u32::try_from(outputs).unwrap_or(u32::MAX);
                Program::ip_filter_with(rules, Some(outputs), &ip_names::Configured)
            },
            "denied",
        )
    },
    ..Class::DEFAULT
};

#[cfg(test)]
mod tests {
    use super::super::ip_classifier::tests::udp;
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn rules_in_order() {
        let text = "IPFilter(deny dst port 53, 1 dst port 54, allow dst port 54 or 55)";
        let mut bench = Bench::element(&crate::registry(), text, 1, 2);
        let packets = (53..=56).map(|port| udp(&mut bench, 14, port)).collect();
        bench.push_packets("in0", packets);
        assert_eq!(bench.taken("out0")[0][14 + 23], 55);
        assert_eq!(bench.taken("out1")[0][14 + 23], 54);
        assert_eq!(bench.drops("e", "denied"), 2);
        bench.write("e.pattern0", "allow dst port 53").unwrap();
        let packet = udp(&mut bench, 0, 53);
        bench.push_packets("in0", vec![packet]);
        assert_eq!(bench.taken("out0").len(), 1);
        assert!(bench.write("e.pattern0", "2 dst port 53").is_err());
        assert!(bench.read("e.program").contains("safe length"));
    }

    /// So many that the program decides by fields; a batch for several outputs, with some to drop.
    #[test]
    fn many_rules() {
        let action = |number: usize| ["allow", "deny", "1"][number % 3];
        let rule =
            |number: usize| format!("{} dst port {} && ip id != {number}", action(number), 1000 + number);
        let rules: Vec<String> = (0..60).map(rule).collect();
        let text = format!("IPFilter({})", rules.join(", "));
        let mut bench = Bench::element(&crate::registry(), &text, 1, 2);
        let ports: Vec<u16> = (0..64).map(|number| 1000 + number * 7 % 64).collect();
        let packets = ports.iter().map(|&port| udp(&mut bench, 14, port)).collect();
        bench.push_packets("in0", packets);
        // Rule 0 has the packets' identification.
        let wanted = |remainder: u16| -> Vec<u16> {
            let fits = |&port: &u16| (1001..1060).contains(&port) && (port - 1000) % 3 == remainder;
            ports.iter().copied().filter(fits).collect()
        };
        for (output, remainder) in [("out0", 0), ("out1", 2)] {
            let taken = bench.taken(output);
            let taken: Vec<u16> =
                taken.iter().map(|data| u16::from_be_bytes([data[14 + 22], data[14 + 23]])).collect();
            assert_eq!(taken, wanted(remainder), "{output}");
        }
        assert_eq!(bench.drops("e", "denied") as usize, 64 - wanted(0).len() - wanted(2).len());
        bench.write("e.pattern0", "1 dst port 1000").unwrap();
        let packet = udp(&mut bench, 0, 1000);
        bench.push_packets("in0", vec![packet]);
        assert_eq!(bench.taken("out1").len(), 1);
    }

    #[test]
    fn every_mistake_is_told() {
        let errors = configure(&CLASS, "permit tcp, allow dst port x, 1 udp").unwrap_err();
        assert!(errors.len() >= 3, "{errors:?}");
        assert!(configure(&CLASS, "allow all").is_ok());
    }
}
