//! =c
//! StoreEtherAddress(ADDR, OFFSET)
//! StoreEtherAddress(OFFSET, I<keyword> ANNO)
//!
//! =s ethernet
//! writes an Ethernet address into packets
//!
//! =d
//! Writes ADDR into each packet at OFFSET: a number, or C<src> or C<dst> for those of an Ethernet header at the start of the
//! packet. With ANNO, the first of 6 bytes of the annotations, the address is that in the annotation.
//!
//! A packet in which the address does not fit leaves by output 1 if that is connected. Otherwise it
//! is dropped and counted as "address beyond the end of the packet".
//!
//! =a GetEtherAddress, SetEtherAddress, EtherRewrite

use graph::arguments::AnnotationByte;
use graph::{Ask, Class, Combine, ConfigError, Context, Element, FromArgument, Handler, Put, Setup, Verdict};
use packet::wire::ethernet::MacAddr;
use packet::{Batch, Packet};

pub(crate) static CLASS: Class = Class {
    name: "StoreEtherAddress",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[Handler::read_write(
        "addr",
        Combine::First,
        "The ADDR argument. Not with ANNO.",
        &Ask(|e: &mut StoreEtherAddress, _, _| e.address_text()),
        &Put(|e: &mut StoreEtherAddress, _, value| {
            e.address = Source::Address(MacAddr::from_value(value)?);
            Ok(())
        }),
    )],
    manual: graph::manual!("store_ether_address.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let address = match setup.arguments.keyword("ANNO")? {
        Some(annotation) => Source::Annotation(address_annotation(annotation)?),
        None => Source::Address(setup.arguments.required("ADDR")?),
    };
    let Place(place) = setup.arguments.required("OFFSET")?;
    setup.arguments.finish()?;
    Ok(Box::new(StoreEtherAddress { address, place }))
}

/// Why a packet is too short.
pub(super) const BEYOND_END: &str = "address beyond the end of the packet";

const ADDRESS_BYTES: usize = 6;

/// Where in a packet an address stands.
pub(super) struct Place(usize);

impl FromArgument for Place {
    const EXPECTED: &'static str = "non-negative integer, src or dst";
    fn from_argument(text: &str) -> Option<Self> {
        match String::from_argument(text)?.to_ascii_lowercase().as_str() {
            "src" => Some(Self(ADDRESS_BYTES)),
            "dst" => Some(Self(0)),
            _ => usize::from_argument(text).map(Self),
        }
    }
}

impl Place {
    /// The address of `packet` there.
    pub(super) fn of<'a>(&self, packet: &'a Packet) -> Option<&'a [u8; ADDRESS_BYTES]> {
        packet.data().get(self.0..)?.first_chunk()
    }
}

/// The first byte of an annotation of 6 bytes.
pub(super) fn address_annotation(annotation: AnnotationByte) -> Result<usize, ConfigError> {
    let AnnotationByte(first) = annotation;
    if first + ADDRESS_BYTES > packet::frame::ANNOTATION_BYTES {
        return Err(format!("ANNO: expected room for 6 bytes, so at most 42, got {first}").into());
    }
    Ok(first)
}

/// Sets the annotation of 6 bytes that begins at `first`.
#[inline]
pub(super) fn set_annotation(packet: &mut Packet, first: usize, address: [u8; ADDRESS_BYTES]) {
    packet.annotations_mut().bytes_mut()[first..first + ADDRESS_BYTES].copy_from_slice(&address);
}

enum Source {
    Address(MacAddr),
    Annotation(usize),
}

struct StoreEtherAddress {
    address: Source,
    place: usize,
}

impl StoreEtherAddress {
    fn store(&self, packet: &mut Packet) -> Option<()> {
        let address = match self.address {
            Source::Address(address) => address.0,
            Source::Annotation(first) => *packet.annotations().bytes().get(first..)?.first_chunk()?,
        };
        *packet.data_mut().get_mut(self.place..)?.first_chunk_mut()? = address;
        Some(())
    }

    /// The handler `addr`.
    fn address_text(&self) -> Result<String, String> {
        match self.address {
            Source::Address(address) => Ok(address.to_string()),
            Source::Annotation(_) => Err("the address is in the annotation".to_owned()),
        }
    }
}

impl Element for StoreEtherAddress {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| match self.store(packet) {
            Some(()) => Verdict::Keep,
            None => Verdict::Divert(1, BEYOND_END),
        });
    }

    fn has_handler(&self, _name: &str) -> bool {
        matches!(self.address, Source::Address(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn by_place() {
        for (place, expected) in
            [("src", "......AAAAAA.."), ("dst", "AAAAAA........"), ("8", "........AAAAAA")]
        {
            let text = format!("StoreEtherAddress(41:41:41:41:41:41, {place})");
            let mut bench = Bench::element(&crate::registry(), &text, 1, 2);
            bench.push("in0", &[&[b'.'; 14], b"....."]);
            assert_eq!(bench.taken("out0"), [expected.as_bytes()]);
            assert_eq!(bench.taken("out1"), [b"....."]);
        }
    }

    #[test]
    fn handlers_and_drops() {
        let mut bench = Bench::element(&crate::registry(), "StoreEtherAddress(1:1:1:1:1:1, 1)", 1, 1);
        bench.write("e.addr", "2:2:2:2:2:2").unwrap();
        assert_eq!(bench.read("e.addr"), "02-02-02-02-02-02");
        bench.push("in0", &[&[0; 7], &[0; 6]]);
        assert_eq!(bench.taken("out0"), [[0, 2, 2, 2, 2, 2, 2]]);
        assert_eq!(bench.drops("e", BEYOND_END), 1);
        assert!(bench.write("e.addr", "2").is_err());
    }

    #[test]
    fn annotations_carry_addresses() {
        let config = "in :: TestInput -> GetEtherAddress(20, src) -> g :: StoreEtherAddress(dst, ANNO 20)
            -> SetEtherAddress(1:2:3:4:5:6, 42) -> StoreEtherAddress(src, ANNO 42) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[b"dstdstsrcsrc"]);
        assert_eq!(bench.taken("out"), [b"srcsrc\x01\x02\x03\x04\x05\x06"]);
    }

    #[test]
    fn mistakes() {
        assert!(configure(&CLASS, "1:1:1:1:1:1").is_err());
        assert!(configure(&CLASS, "1:1:1:1:1:1, middle").is_err());
        assert!(configure(&CLASS, "src, ANNO 43").unwrap_err()[0].contains("at most 42"));
        assert!(configure(&CLASS, "1:1:1:1:1:1, src, ANNO 20").is_err());
    }
}
