//! =c
//! CheckGREHeader([I<keywords> OFFSET, CHECKSUM, KEY, SEQUENCE, STRIP, VERBOSE, DETAILS])
//!
//! =s tunnel
//! checks GRE headers
//!
//! =d
//! Expects a GRE header (RFC 2784 and 2890) OFFSET bytes into each packet (0 by default). Checks
//! its version and that the packet is long enough for it. Good packets leave by output 0. Bad
//! packets leave by output 1 if that is connected, and are dropped otherwise. A message reports the
//! first failure. Keyword arguments are:
//!
//! =item CHECKSUM
//! whether there must be a checksum, which must be right; false by default.
//!
//! =item KEY
//! the key that must be there; 0, the default, is any or none.
//!
//! =item SEQUENCE
//! whether there must be a sequence number, which must come after that of the packet before; false by default. Each worker
//! knows the packets it saw.
//!
//! =item STRIP
//! whether packets that pass lose as many bytes at their start as the header has; false by default.
//!
//! =item VERBOSE
//! whether every failure gives a message; false by default.
//!
//! =item DETAILS
//! whether there is a C<drop_details> handler; false by default.
//!
//! =back
//!
//! Drop reasons: tiny packet, bad GRE version, bad GRE header length, bad GRE checksum, invalid key, out of sequence.
//!
//! =a StripGREHeader, GREEncap

use graph::{Arguments, Class, ConfigError};
use packet::{Packet, checksum};

use super::gre::{CHECKSUM, KEY, Layout, SEQUENCE, VERSION};
use super::header_check::{Check, HeaderCheck, Reports};

pub(crate) static CLASS: Class = Class {
    name: "CheckGREHeader",
    manual: graph::manual!("check_gre_header.rs"),
    ..HeaderCheck::<Rules>::CLASS
};

/// What is wrong with a header; the number of the reason of refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    Tiny,
    Version,
    HeaderLength,
    Checksum,
    Key,
    Sequence,
}

struct Rules {
    offset: usize,
    checksum: bool,
    key: u32,
    /// Where sequence numbers are checked, the last one.
    last_sequence: Option<u32>,
    strip: bool,
}

impl Rules {
    fn check(&mut self, packet: &mut Packet) -> Result<(), Flaw> {
        let bytes = packet.data().get(self.offset..).ok_or(Flaw::Tiny)?;
        let layout = Layout::of(bytes).ok_or(Flaw::Tiny)?;
        // RFC 2784, 2.3.1: "The Version Number field MUST contain the value zero."
        if layout.has(VERSION) {
            return Err(Flaw::Version);
        }
        if bytes.len() < layout.len() {
            return Err(Flaw::HeaderLength);
        }
        if self.checksum && !(layout.has(CHECKSUM) && checksum::is_valid(bytes)) {
            return Err(Flaw::Checksum);
        }
        if self.key != 0 && layout.word(bytes, KEY) != Some(self.key) {
            return Err(Flaw::Key);
        }
        if let Some(last) = &mut self.last_sequence {
            // RFC 2890, 2.2: out of sequence "if its sequence number is less than or equal to the sequence number of last
            // successfully decapsulated packet", modulo 2^32.
            let sequence = layout.word(bytes, SEQUENCE).ok_or(Flaw::Sequence)?;
            if sequence.wrapping_sub(*last) as i32 <= 0 {
                return Err(Flaw::Sequence);
            }
            *last = sequence;
        }
        if self.strip {
            packet.strip(layout.len());
        }
        Ok(())
    }
}

impl Check for Rules {
    const TITLE: &'static str = "GRE";
    const REASONS: &'static [&'static str] = &[
        "tiny packet",
        "bad GRE version",
        "bad GRE header length",
        "bad GRE checksum",
        "invalid key",
        "out of sequence",
    ];

    fn read(arguments: &mut Arguments) -> Result<(Self, Reports), ConfigError> {
        let rules = Self {
            offset: arguments.keyword_or("OFFSET", 0)?,
            checksum: arguments.keyword_or("CHECKSUM", false)?,
            key: arguments.keyword_or("KEY", 0)?,
            last_sequence: arguments.keyword_or("SEQUENCE", false)?.then_some(0),
            strip: arguments.keyword_or("STRIP", false)?,
        };
        Ok((rules, Reports::read(arguments)?))
    }

    fn check(&mut self, packet: &mut Packet) -> Result<(), usize> {
        Self::check(self, packet).map_err(|flaw| flaw as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    fn bench(arguments: &str) -> Bench {
        Bench::element(&crate::registry(), &format!("CheckGREHeader({arguments}, DETAILS true)"), 1, 1)
    }

    #[test]
    fn what_encap_makes_passes() {
        let all = "CHECKSUM true, KEY 7, SEQUENCE true";
        let config = format!(
            "in :: TestInput -> GREEncap(0x0800, {all}) -> CheckGREHeader({all}, STRIP true) -> out :: TestOutput"
        );
        let mut bench = Bench::new(&crate::registry(), &config);
        bench.push("in", &[b"data", b"odd", b""]);
        assert_eq!(bench.taken("out"), [&b"data"[..], b"odd", b""]);
    }

    #[test]
    fn each_flaw_has_its_reason() {
        for (arguments, packet, reason) in [
            ("OFFSET 1", &[0, 0, 0, 8][..], "tiny packet"),
            ("OFFSET 5", &[0, 0, 0, 8], "tiny packet"),
            ("CHECKSUM false", &[0, 1, 8, 0], "bad GRE version"),
            ("CHECKSUM false", &[0x30, 0, 8, 0, 1, 2, 3, 4], "bad GRE header length"),
            ("CHECKSUM true", &[0, 0, 8, 0], "bad GRE checksum"),
            ("CHECKSUM true", &[0x80, 0, 8, 0, 0, 1, 0, 0], "bad GRE checksum"),
            ("KEY 3", &[0, 0, 8, 0], "invalid key"),
            ("KEY 3", &[0x20, 0, 8, 0, 0, 0, 0, 4], "invalid key"),
            ("SEQUENCE true", &[0, 0, 8, 0], "out of sequence"),
            ("SEQUENCE true", &[0x10, 0, 8, 0, 0, 0, 0, 0], "out of sequence"),
        ] {
            let mut bench = bench(arguments);
            bench.push("in0", &[packet]);
            assert_eq!(bench.drops("e", reason), 1, "{reason}");
            assert!(bench.read("e.drop_details").contains(&format!("1\t{reason}\n")));
        }
    }

    #[test]
    fn sequence_numbers_grow() {
        let mut bench = bench("SEQUENCE true");
        for (sequence, passes) in
            [(5u32, 1), (5, 0), (4, 0), (6, 1), (0x8000_0005, 1), (0x8000_0004, 0), (1, 1)]
        {
            bench.push("in0", &[&[&[0x10, 0, 8, 0], &sequence.to_be_bytes()[..]].concat()]);
            assert_eq!(bench.taken("out0").len(), passes, "{sequence}");
        }
        assert!(configure(&CLASS, "KEY x").is_err());
    }
}
