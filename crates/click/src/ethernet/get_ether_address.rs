//! =c
//! GetEtherAddress(ANNO, OFFSET)
//!
//! =s ethernet
//! copies an Ethernet address of packets into their annotations
//!
//! =d
//! Copies the 6 bytes at OFFSET of each packet into the annotations, from byte ANNO (0 to 42) on.
//! OFFSET is a number. It may also be C<src> or C<dst>, for the addresses of an Ethernet header at
//! the start of the packet.
//!
//! A packet that is too short leaves by output 1 if that is connected. Otherwise it is dropped and
//! counted as "address beyond the end of the packet".
//!
//! =a SetEtherAddress, StoreEtherAddress

use graph::{Class, Context, Element, Verdict};
use packet::Batch;

use super::store_ether_address::{BEYOND_END, Place, address_annotation, set_annotation};

pub(crate) static CLASS: Class = Class {
    name: "GetEtherAddress",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    manual: graph::manual!("get_ether_address.rs"),
    make: |setup| {
        let annotation = setup.arguments.required("ANNO")?;
        let place = setup.arguments.required("OFFSET")?;
        setup.arguments.finish()?;
        Ok(Box::new(GetEtherAddress { annotation: address_annotation(annotation)?, place }))
    },
    ..Class::DEFAULT
};

struct GetEtherAddress {
    annotation: usize,
    place: Place,
}

impl Element for GetEtherAddress {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| match self.place.of(packet).copied() {
            Some(address) => {
                set_annotation(packet, self.annotation, address);
                Verdict::Keep
            }
            None => Verdict::Divert(1, BEYOND_END),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn addresses_come_from_the_data() {
        for (place, expected) in [("src", b"srcsrc"), ("dst", b"dstdst"), ("3", b"dstsrc")] {
            let mut bench =
                Bench::element(&crate::registry(), &format!("GetEtherAddress(20, {place})"), 1, 1);
            bench.push("in0", &[b"dstdstsrcsrc", b"short"]);
            let packets = bench.taken_packets("out0");
            assert_eq!(packets.len(), 1);
            assert_eq!(&packets[0].annotations().bytes()[20..26], expected);
            assert_eq!(bench.drops("e", BEYOND_END), 1);
        }
        assert!(configure(&CLASS, "43, src").is_err());
        assert!(configure(&CLASS, "20").is_err());
    }
}
