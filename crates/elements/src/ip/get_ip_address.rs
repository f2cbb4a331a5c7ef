//! =c
//! GetIPAddress([OFFSET, ANNO, I<keywords> OFFSET, ANNO, IP])
//!
//! =s ip
//! sets the destination annotation from packet data
//!
//! =d
//! Copies the 4 bytes at OFFSET of each packet's data into the destination IP address annotation. OFFSET is
//! usually 16, for packets that begin with an IP header. Instead of OFFSET, `IP src` or `IP dst` takes the
//! address out of the marked IP header.
//!
//! ANNO is the first byte of the annotation to set, 0 (the destination) by default.
//!
//! Other than in Click, a packet that ends before the address is dropped. Drop reasons: address beyond the end
//! of the packet, no IP header.
//!
//! =a SetIPAddress, StoreIPAddress

use graph::arguments::AnnotationByte;
use graph::{Class, ConfigError, Context, Element, Setup};
use packet::wire::ipv4::field;
use packet::{Annotations, Batch};

pub(crate) static CLASS: Class = Class {
    name: "GetIPAddress",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    manual: graph::manual!("get_ip_address.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let offset = setup.arguments.optional::<usize>("OFFSET")?;
    let annotation = setup.arguments.optional("ANNO")?.unwrap_or(AnnotationByte(Annotations::DESTINATION));
    let field = setup.arguments.keyword::<String>("IP")?;
    setup.arguments.finish()?;
    let place = match (offset, field.as_deref()) {
        (Some(offset), None) => Place::Data(offset),
        (None, Some("src")) => Place::Header(field::SOURCE.start),
        (None, Some("dst")) => Place::Header(field::DESTINATION.start),
        (None, Some(other)) => return Err(format!("IP: expected src or dst, got '{other}'").into()),
        _ => return Err(ConfigError::new("set one of OFFSET and IP")),
    };
    Ok(Box::new(GetIPAddress { place, annotation: address_annotation(annotation)? }))
}

/// The first byte of an annotation of 4 bytes.
pub fn address_annotation(annotation: AnnotationByte) -> Result<usize, ConfigError> {
    let AnnotationByte(first) = annotation;
    if first + 4 > packet::frame::ANNOTATION_BYTES {
        return Err(format!("ANNO: expected room for 4 bytes, so at most 44, got {first}").into());
    }
    Ok(first)
}

enum Place {
    Data(usize),
    Header(usize),
}

struct GetIPAddress {
    place: Place,
    annotation: usize,
}

impl Element for GetIPAddress {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let (in_header, offset) = match self.place {
            Place::Data(offset) => (false, offset),
            Place::Header(offset) => (true, offset),
        };
        batch.extract(
            |packet| {
                let bytes = if in_header { packet.network() } else { Some(packet.data()) };
                let address = bytes.and_then(|bytes| bytes.get(offset..)?.first_chunk::<4>().copied());
                match (address, self.annotation) {
                    (Some(address), Annotations::DESTINATION) => {
                        packet.annotations_mut().set_destination_ip(u32::from_be_bytes(address));
                    }
                    (Some(address), first) => {
                        packet.annotations_mut().bytes_mut()[first..][..4].copy_from_slice(&address);
                    }
                    (None, _) => return false,
                }
                true
            },
            |packet| {
                let headerless = in_header && packet.network().is_none();
                cx.drop(
                    packet,
                    if headerless { "no IP header" } else { "address beyond the end of the packet" },
                );
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};

    use super::*;

    #[test]
    fn from_data_and_from_the_header() {
        for (text, expected) in [
            ("GetIPAddress(16)", 0x0506_0708),
            ("GetIPAddress(OFFSET 12)", 0x0102_0304),
            ("GetIPAddress(IP src)", 0x0102_0304),
            ("GetIPAddress(IP dst)", 0x0506_0708),
        ] {
            let config = format!("in :: TestInput -> MarkIPHeader -> e :: {text} -> out :: TestOutput;");
            let mut bench = Bench::new(&crate::registry(), &config);
            let packet = testbed::ipv4::ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, b"");
            bench.push("in", &[&packet, &packet[..15]]);
            let packets = bench.taken_packets("out");
            assert_eq!(packets[0].annotations().destination_ip(), expected, "{text}");
            let short = bench.drops("e", "address beyond the end of the packet");
            assert_eq!(packets.len() as u64 + short, 2, "{text}");
        }
    }

    #[test]
    fn another_annotation() {
        let mut bench = Bench::element(&crate::registry(), "GetIPAddress(0, 20)", 1, 1);
        bench.push("in0", &[b"\x01\x02\x03\x04"]);
        assert_eq!(bench.taken_packets("out0")[0].annotations().bytes()[20..24], [1, 2, 3, 4]);
    }

    #[test]
    fn configuration_mistakes() {
        assert_eq!(configure(&CLASS, "").unwrap_err(), ["set one of OFFSET and IP"]);
        assert!(configure(&CLASS, "16, IP src").is_err());
        assert!(configure(&CLASS, "16, 45").is_err());
        assert!(configure(&CLASS, "16, 44").is_ok());
    }
}
