//! =c
//! Clipboard(OFFSET/LENGTH, ...)
//!
//! =s basicmod
//! copies bytes from packets into others
//!
//! =d
//! Each argument is a range of bytes. Of packets that come in by input 0 these ranges are remembered, as far as the packet has
//! them; packets of input 1 get the bytes that were remembered last, in the same places. Both go on by the output of the same
//! number, unless that is not connected.
//!
//! Nothing is written before a packet has come in by input 0. With several workers each remembers for itself.
//!
//! =e
//!   clip :: Clipboard(12/4);  ... -> [0]clip[0] -> ...;  ... -> [1]clip[1] -> ...;
//!
//! =a StoreData, MoveData

use graph::lang::unquote;
use graph::{Class, ConfigError, Context, Element, Setup};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "Clipboard",
    ports: "2/1-2",
    processing: Class::PUSH,
    flow: "xy/xy",
    manual: graph::manual!("clipboard.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let mut clips = Vec::new();
    for text in setup.arguments.rest() {
        let text = unquote(&text);
        let range = text.split_once('/').and_then(|(offset, length)| {
            Some((offset.parse::<u16>().ok()?, length.parse::<u16>().ok().filter(|&length| length > 0)?))
        });
        let (offset, length) = range.ok_or_else(|| format!("expected OFFSET/LENGTH, got '{text}'"))?;
        clips.push(Clip { offset: offset.into(), bytes: vec![0; length.into()].into(), known: 0 });
    }
    setup.arguments.finish()?;
    Ok(Box::new(Clipboard { clips }))
}

/// A range, and what was there.
struct Clip {
    offset: usize,
    bytes: Box<[u8]>,
    /// So many of the bytes are known.
    known: usize,
}

struct Clipboard {
    clips: Vec<Clip>,
}

impl Element for Clipboard {
    fn push(&mut self, cx: &mut Context, input: usize, batch: &mut Batch) {
        for packet in batch.packets_mut() {
            for clip in &mut self.clips {
                let Some(there) = packet.data_mut().get_mut(clip.offset..) else { continue };
                if input == 0 {
                    clip.known = there.len().min(clip.bytes.len());
                    clip.bytes[..clip.known].copy_from_slice(&there[..clip.known]);
                } else {
                    let count = there.len().min(clip.known);
                    there[..count].copy_from_slice(&clip.bytes[..count]);
                }
            }
        }
        if input == 1 {
            match cx.outputs() > 1 {
                true => cx.emit_batch(1, batch),
                false => cx.free(batch),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn copied_and_pasted() {
        let mut bench = Bench::element(&crate::registry(), "Clipboard(0/1, 2/3)", 2, 2);
        bench.push("in1", &[b"......"]);
        bench.push("in0", &[b"abcdef", b"ABC"]);
        bench.push("in1", &[b"......", b"..."]);
        assert_eq!(bench.taken("out0"), [&b"abcdef"[..], b"ABC"]);
        assert_eq!(bench.taken("out1"), [&b"......"[..], b"A.C...", b"A.C"]);
        assert_eq!(configure(&CLASS, "0/0").unwrap_err(), ["expected OFFSET/LENGTH, got '0/0'"]);
    }
}
