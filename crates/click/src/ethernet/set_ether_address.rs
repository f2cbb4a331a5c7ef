//! =c
//! SetEtherAddress(ADDR, ANNO)
//!
//! =s ethernet
//! puts an Ethernet address into the annotations
//!
//! =d
//! Writes the Ethernet address ADDR into the annotations of packets from byte ANNO (0 to 42) on.
//!
//! =a GetEtherAddress, StoreEtherAddress

use graph::{Class, Context, Element, Field, Handler};
use packet::Batch;
use packet::wire::ethernet::MacAddr;

use super::store_ether_address::{address_annotation, set_annotation};

pub(crate) static CLASS: Class = Class {
    name: "SetEtherAddress",
    handlers: &[Handler::field(
        "addr",
        "The ADDR argument.",
        &Field(|e: &mut SetEtherAddress| &mut e.address),
    )],
    manual: graph::manual!("set_ether_address.rs"),
    make: |setup| {
        let address = setup.arguments.required("ADDR")?;
        let annotation = setup.arguments.required("ANNO")?;
        setup.arguments.finish()?;
        Ok(Box::new(SetEtherAddress { address, annotation: address_annotation(annotation)? }))
    },
    ..Class::DEFAULT
};

struct SetEtherAddress {
    address: MacAddr,
    annotation: usize,
}

impl Element for SetEtherAddress {
    fn process(&mut self, _cx: &mut Context, batch: &mut Batch) {
        for packet in batch.packets_mut() {
            set_annotation(packet, self.annotation, self.address.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn the_annotation_is_set() {
        let mut bench = Bench::element(&crate::registry(), "SetEtherAddress(1:2:3:4:5:6, 20)", 1, 1);
        bench.push("in0", &[b"x"]);
        assert_eq!(bench.taken_packets("out0")[0].annotations().bytes()[19..27], [0, 1, 2, 3, 4, 5, 6, 0]);
        bench.write("e.addr", "0:0:0:0:0:9").unwrap();
        assert_eq!(bench.read("e.addr"), "00-00-00-00-00-09");
        assert!(configure(&CLASS, "1:2:3:4:5:6, 43").is_err());
    }
}
