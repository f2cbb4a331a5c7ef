//! =c
//! Paint(COLOR [, ANNO])
//!
//! =s paint
//! sets the paint annotation
//!
//! =d
//! Sets the paint of packets to COLOR, 0 to 255. ANNO names another byte of the annotations to set instead.
//!
//! =a PaintTee, PaintSwitch, CheckPaint

use graph::arguments::AnnotationByte;
use graph::runs::Ordinary;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup};
use packet::{Annotations, Batch, Packet};

use crate::runs::{self, Step};

/// The class `Paint`.
pub static CLASS: Class = Class {
    name: "Paint",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    handlers: &[Handler::read_write(
        "color",
        Combine::First,
        "The COLOR argument.",
        &Get(|e: &mut Paint| e.0.text()),
        &Put(|e: &mut Paint, _, value| e.0.set(value)),
    )],
    manual: graph::manual!("paint.rs"),
    make: |setup| Ok(Box::new(Paint(Colour::from_setup(setup)?))),
    ..Class::DEFAULT
};

/// A colour and the annotation byte where it is looked for: the arguments and the handler of all that paint.
#[derive(Clone, Copy, Debug)]
pub struct Colour {
    /// The colour.
    pub colour: u8,
    /// Place of the byte in the annotations.
    pub place: usize,
}

impl Colour {
    /// Reads the arguments COLOR and ANNO.
    pub fn from_setup(setup: &mut Setup<'_>) -> Result<Self, ConfigError> {
        let colour = setup.arguments.required("COLOR")?;
        let place = setup.arguments.optional("ANNO")?.unwrap_or(AnnotationByte(Annotations::PAINT));
        setup.arguments.finish()?;
        Ok(Self { colour, place: place.0 })
    }

    /// Returns whether the packet has this colour.
    #[inline]
    pub fn is_on(&self, packet: &Packet) -> bool {
        packet.annotations().bytes()[self.place] == self.colour
    }

    /// The handler `color`.
    pub fn text(&self) -> String {
        self.colour.to_string()
    }

    /// Writes the handler `color`.
    pub fn set(&mut self, value: &str) -> Result<(), String> {
        self.colour = u8::from_value(value)?;
        Ok(())
    }
}

struct Paint(Colour);

impl Element for Paint {
    fn ordinary(&self) -> Option<Ordinary> {
        runs::ordinary([Step::SetAnnotation { place: self.0.place, value: self.0.colour }])
    }

    fn process(&mut self, _cx: &mut Context, batch: &mut Batch) {
        for packet in batch.packets_mut() {
            packet.annotations_mut().bytes_mut()[self.0.place] = self.0.colour;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn it_paints() {
        let mut bench = Bench::element(&crate::registry(), "Paint(3)", 1, 1);
        bench.push("in0", &[b"a", b"b"]);
        bench.write("e.color", "200").unwrap();
        bench.push("in0", &[b"c"]);
        let paints: Vec<u8> = bench.taken_packets("out0").iter().map(|p| p.annotations().paint()).collect();
        assert_eq!(paints, [3, 3, 200]);
        assert_eq!(bench.read("e.color"), "200");
        assert!(bench.write("e.color", "256").is_err());
    }

    #[test]
    fn another_byte() {
        let mut bench = Bench::element(&crate::registry(), "Paint(3, 20)", 1, 1);
        bench.push("in0", &[b"a"]);
        let packets = bench.taken_packets("out0");
        assert_eq!((packets[0].annotations().paint(), packets[0].annotations().bytes()[20]), (0, 3));
    }

    #[test]
    fn mistakes() {
        assert!(configure(&CLASS, "").is_err());
        assert!(configure(&CLASS, "256").is_err());
        assert!(configure(&CLASS, "1, 48").is_err());
    }
}
