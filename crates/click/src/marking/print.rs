//! =c
//! Print([LABEL, MAXLENGTH, I<keywords> CONTENTS, TIMESTAMP, PRINTANNO, ACTIVE, HEADROOM, CPU])
//!
//! =s information
//! prints packets
//!
//! =d
//! Prints a line for each packet: LABEL, its length, and its first MAXLENGTH bytes (24 by default,
//! negative for all) in hexadecimal. CONTENTS is the form of the bytes: C<HEX>, C<ASCII>, or
//! C<NONE>. TIMESTAMP adds the packet's time before the length. HEADROOM adds the free bytes before
//! and behind the data, PRINTANNO the annotations, and CPU the number of the worker. With ACTIVE
//! false it prints nothing.
//!
//! Not for the fast path.
//!
//! =e
//!   Print(ok, 6)
//! prints
//!   ok:   60 | ffffffff ffff
//!
//! =a IPPrint, ARPPrint

use std::fmt::Write;

use graph::{Class, ConfigError, Context, Element, Field, FromArgument, Handler, Setup};
use packet::{Batch, Packet};

pub(crate) static CLASS: Class = Class {
    name: "Print",
    capabilities: &[graph::KEEPS_ALL],
    handlers: &[Handler::field("active", "Whether it prints.", &Field(|e: &mut Print| &mut e.active))],
    manual: graph::manual!("print.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let label: String = setup.arguments.optional("LABEL")?.unwrap_or_default();
    let max_length: i64 = setup.arguments.optional("MAXLENGTH")?.unwrap_or(24);
    // Old names of MAXLENGTH.
    let max_length = setup.arguments.keyword_or("LENGTH", max_length)?;
    let max_length = setup.arguments.keyword_or("NBYTES", max_length)?;
    let contents: String = setup.arguments.keyword_or("CONTENTS", "HEX".to_owned())?;
    let timestamp = setup.arguments.keyword_or("TIMESTAMP", false)?;
    let annotations = setup.arguments.keyword_or("PRINTANNO", false)?;
    let active = setup.arguments.keyword_or("ACTIVE", true)?;
    let headroom = setup.arguments.keyword_or("HEADROOM", false)?;
    let cpu = setup.arguments.keyword_or("CPU", false)?;
    setup.arguments.finish()?;
    let contents = match (bool::from_argument(&contents), contents.to_ascii_uppercase().as_str()) {
        (Some(true), _) | (_, "HEX") => Contents::Hex,
        (Some(false), _) | (_, "NONE") => Contents::None,
        (_, "ASCII") => Contents::Ascii,
        _ => {
            let message = format!("bad contents value '{contents}'; should be 'NONE', 'HEX', or 'ASCII'");
            return Err(message.into());
        }
    };
    let max_length = usize::try_from(max_length).unwrap_or(usize::MAX);
    Ok(Box::new(Print { label, max_length, contents, timestamp, annotations, active, headroom, cpu }))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    None,
    Hex,
    Ascii,
}

struct Print {
    label: String,
    max_length: usize,
    contents: Contents,
    timestamp: bool,
    annotations: bool,
    active: bool,
    headroom: bool,
    cpu: bool,
}

/// Seconds and their fraction: six digits where that is exact, else nine.
pub(crate) fn write_timestamp(line: &mut String, ns: u64) {
    let (seconds, fraction) = (ns / 1_000_000_000, ns % 1_000_000_000);
    let _ = if fraction.is_multiple_of(1000) {
        write!(line, "{seconds}.{:06}", fraction / 1000)
    } else {
        write!(line, "{seconds}.{fraction:09}")
    };
}

impl Print {
    fn line(&self, packet: &Packet, copy: usize) -> String {
        let mut line = self.label.clone();
        // Writing to a string cannot fail.
        if self.cpu {
            let _ = write!(line, "({copy})");
        }
        let mut separator = if line.is_empty() { "" } else { ": " };
        if self.timestamp {
            line.push_str(separator);
            write_timestamp(&mut line, packet.timestamp_ns());
            separator = ": ";
        }
        let _ = write!(line, "{separator}{:4}", packet.len());
        if self.headroom {
            let _ = write!(line, " (h{} t{})", packet.headroom(), packet.tailroom());
        }
        if self.annotations {
            line.push_str(" | ");
            for byte in packet.annotations().bytes() {
                let _ = write!(line, "{byte:02x}");
            }
        }
        let shown = &packet.data()[..packet.len().min(self.max_length)];
        if self.contents != Contents::None && !shown.is_empty() {
            line.push_str(" | ");
            for (index, &byte) in shown.iter().enumerate() {
                if self.contents == Contents::Hex {
                    line.push_str(if index > 0 && index.is_multiple_of(4) { " " } else { "" });
                    let _ = write!(line, "{byte:02x}");
                } else {
                    line.push_str(if index.is_multiple_of(8) { " " } else { "" });
                    line.push(if (32..=126).contains(&byte) { char::from(byte) } else { '.' });
                }
            }
        }
        line
    }
}

impl Element for Print {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        if self.active {
            for packet in batch.packets() {
                cx.message(&self.line(packet, cx.copy_index()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    fn printed(print: &str, packet: &[u8]) -> Vec<String> {
        let mut bench = Bench::element(&crate::registry(), print, 1, 1);
        let mut packet = bench.packet(packet);
        packet.set_timestamp_ns(1_234_567_890_123_456_000);
        packet.annotations_mut().set_paint(0xab);
        bench.push_packets("in0", vec![packet]);
        assert_eq!(bench.taken("out0").len(), 1);
        bench.messages()
    }

    #[test]
    fn lines() {
        let packet = b"abcdefghij\0\x7f";
        for (print, line) in [
            ("Print", "  12 | 61626364 65666768 696a007f"),
            ("Print(ok)", "ok:   12 | 61626364 65666768 696a007f"),
            ("Print(\"a b\", 5)", "a b:   12 | 61626364 65"),
            ("Print(MAXLENGTH 4)", "  12 | 61626364"),
            ("Print(ok, 0)", "ok:   12"),
            ("Print(ok, CONTENTS NONE)", "ok:   12"),
            ("Print(ok, CONTENTS false)", "ok:   12"),
            ("Print(ok, CONTENTS ascii)", "ok:   12 |  abcdefgh ij.."),
            ("Print(TIMESTAMP true, NBYTES 1)", "1234567890.123456:   12 | 61"),
            ("Print(ok, 0, TIMESTAMP true)", "ok: 1234567890.123456:   12"),
            ("Print(ok, 0, HEADROOM true)", "ok:   12 (h128 t1844)"),
            ("Print(ok, 0, CPU true)", "ok(0):   12"),
        ] {
            assert_eq!(printed(print, packet), [line], "{print}");
        }
        let annotated = &printed("Print(PRINTANNO true, MAXLENGTH 1)", packet)[0];
        let expected = format!("  12 | {}ab{} | 61", "00".repeat(16), "00".repeat(31));
        assert_eq!(annotated, &expected);
        assert_eq!(printed("Print", b""), ["   0"]);
    }

    #[test]
    fn all_bytes_and_none() {
        let packet = [0x5a; 100];
        assert_eq!(printed("Print", &packet)[0].len(), " 100 | ".len() + 48 + 5);
        assert_eq!(printed("Print(MAXLENGTH -1)", &packet)[0].len(), " 100 | ".len() + 200 + 24);
        assert_eq!(printed("Print(ACTIVE false)", &packet).len(), 0);
    }

    #[test]
    fn times() {
        let mut line = String::new();
        write_timestamp(&mut line, 5_000_000_001);
        assert_eq!(line, "5.000000001");
    }

    #[test]
    fn mistakes() {
        let error = configure(&CLASS, "CONTENTS OCTAL").unwrap_err();
        assert_eq!(error, ["bad contents value 'OCTAL'; should be 'NONE', 'HEX', or 'ASCII'"]);
    }
}
