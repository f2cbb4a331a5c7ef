//! =c
//! SetIP6Address(IP6)
//!
//! =s ip6
//! sets the IPv6 destination annotation
//!
//! =d
//! Sets the destination IPv6 address annotation of each packet to IP6: the address it goes to next.
//!
//! =a GetIP6Address, SetIPAddress, LookupIP6Route

use std::net::Ipv6Addr;

use graph::{Class, Context, Element, Field, Handler};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "SetIP6Address",
    handlers: &[Handler::field("addr", "The address.", &Field(|e: &mut SetIp6Address| &mut e.address))],
    manual: graph::manual!("set_ip6_address.rs"),
    make: |setup| {
        let address = setup.arguments.required("IP6")?;
        setup.arguments.finish()?;
        Ok(Box::new(SetIp6Address { address }))
    },
    ..Class::DEFAULT
};

struct SetIp6Address {
    address: Ipv6Addr,
}

impl Element for SetIp6Address {
    fn process(&mut self, _cx: &mut Context, batch: &mut Batch) {
        for packet in batch.packets_mut() {
            packet.annotations_mut().set_destination_ip6(self.address.to_bits());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn the_annotation_is_set() {
        let mut bench = Bench::element(&crate::registry(), "SetIP6Address(2001:db8::5)", 1, 1);
        bench.push("in0", &[b"x"]);
        let address = bench.taken_packets("out0")[0].annotations().destination_ip6();
        assert_eq!(Ipv6Addr::from_bits(address).to_string(), "2001:db8::5");
        bench.write("e.addr", "::1").unwrap();
        assert_eq!(bench.read("e.addr"), "::1");
        assert!(configure(&CLASS, "10.0.0.1").is_err());
    }
}
