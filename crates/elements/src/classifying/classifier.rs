//! =c
//! Classifier(PATTERN, ..., PATTERN)
//!
//! =s classification
//! sorts packets by their bytes
//!
//! =d
//! Sends each packet out by the output of the first PATTERN that matches. There is one output for each pattern.
//!
//! A pattern is a list of clauses with spaces between them, all of which must hold; C<-> alone matches every packet. A clause is
//! OFFSET/VALUE or OFFSET/VALUE%MASK. OFFSET counts bytes from the start of the packet, in decimal. VALUE is hexadecimal, two
//! digits a byte; a C<?> is a digit that may be anything. MASK has as many digits as VALUE; only bits that are 1 in it
//! count. C<!> before a clause negates it. A packet that ends before the last byte that a clause looks at does not match it.
//!
//! All patterns together become one decision program, which looks at each word of the packet once where that is possible.
//!
//! Dropped packets are counted as "no pattern matches".
//!
//! =e
//! ARP requests, ARP replies, IP packets and all others:
//!
//!   Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -)
//!
//! =a IPClassifier, IPFilter, Switch

use graph::Class;

use super::decider::{Decider, make, one_for_each_output};
use crate::decision::Program;

pub(crate) static CLASS: Class = Class {
    name: "Classifier",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    ports: "1/-",
    processing: Class::PUSH,
    handlers: Decider::<false>::HANDLERS,
    manual: graph::manual!("classifier.rs"),
    make: |setup| {
        make::<false>(
            setup,
            |patterns, outputs| {
                let compiled = Program::classifier(patterns)?;
                one_for_each_output(patterns, outputs)?;
                Ok(compiled)
            },
            "no pattern matches",
        )
    },
    ..Class::DEFAULT
};

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    const CONFIG: &str = "Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -)";

    fn frame(ethertype: u16, operation: u8) -> Vec<u8> {
        let mut frame = vec![0; 42];
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        frame[21] = operation;
        frame
    }

    #[test]
    fn packets_go_where_the_first_pattern_says() {
        let mut bench = Bench::element(&crate::registry(), CONFIG, 1, 4);
        let frames =
            [frame(0x800, 0), frame(0x806, 2), frame(0x806, 1), frame(0x806, 3), frame(0x86dd, 1), vec![]];
        let views: Vec<&[u8]> = frames.iter().map(|frame| &frame[..]).collect();
        bench.push("in0", &views);
        assert_eq!(bench.taken("out0"), [frame(0x806, 1)]);
        assert_eq!(bench.taken("out1"), [frame(0x806, 2)]);
        assert_eq!(bench.taken("out2"), [frame(0x800, 0)]);
        assert_eq!(bench.taken("out3"), [frame(0x806, 3), frame(0x86dd, 1), vec![]]);
    }

    #[test]
    fn no_match_is_counted() {
        let mut bench = Bench::element(&crate::registry(), "Classifier(0/aa)", 1, 1);
        bench.push("in0", &[b"\xaa", b"\xab", b""]);
        assert_eq!(bench.taken("out0"), [b"\xaa"]);
        assert_eq!(bench.drops("e", "no pattern matches"), 2);
    }

    #[test]
    fn handlers_and_warnings() {
        let mut bench = Bench::element(&crate::registry(), "Classifier(12/0800, -, 12/0806)", 1, 3);
        assert_eq!(bench.messages(), ["e: warning: output 2 matches no packets ('12/0806')"]);
        assert!(bench.read("e.program").starts_with(" 0  12/08000000%ffff0000  yes->[0]  no->[1]"));
        assert_eq!(bench.read("e.pattern1"), "-");
        bench.write("e.pattern1", " 0/ff ").unwrap();
        assert_eq!(bench.read("e.pattern1"), "0/ff");
        bench.push("in0", &[&frame(0x806, 0)]);
        assert_eq!(bench.taken("out2").len(), 1);
        assert!(bench.messages().is_empty());
        let error = bench.write("e.pattern1", "zero").unwrap_err();
        assert!(error.contains("pattern 1"), "{error}");
        assert_eq!(bench.read("e.pattern1"), "0/ff");
        assert!(bench.write("e.pattern3", "-").is_err());
        assert!(bench.write("e.program", "-").is_err());
    }

    #[test]
    fn every_mistake_is_told() {
        let errors = configure(&CLASS, "x, 12/0800, 12/08001").unwrap_err();
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert!(errors[0].starts_with("pattern 0: ") && errors[1].starts_with("pattern 2: "), "{errors:?}");
        assert_eq!(
            configure(&CLASS, "12/0800, -").unwrap_err(),
            ["expected 1 pattern, one for each connected output, got 2"]
        );
    }
}
