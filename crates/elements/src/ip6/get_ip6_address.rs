//! =c
//! GetIP6Address(OFFSET)
//!
//! =s ip6
//! sets the IPv6 destination annotation from packet data
//!
//! =d
//! Copies the 16 bytes at OFFSET of each packet's data into the destination IPv6 address annotation. OFFSET is usually
//! 24, for packets that begin with an IPv6 header.
//!
//! Other than in Click, a packet that ends before the end of the address is dropped. Drop reasons: address beyond the
//! end of the packet.
//!
//! =a SetIP6Address, LookupIP6Route, GetIPAddress

use graph::{Class, ConfigError, Context, Element, Setup};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "GetIP6Address",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    manual: graph::manual!("get_ip6_address.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let offset = setup.arguments.required("OFFSET")?;
    setup.arguments.finish()?;
    Ok(Box::new(GetIp6Address { offset }))
}

struct GetIp6Address {
    offset: usize,
}

impl Element for GetIp6Address {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        batch.extract(
            |packet| {
                let bytes = packet.data().get(self.offset..).and_then(|bytes| bytes.first_chunk().copied());
                let Some(address) = bytes else { return false };
                packet.annotations_mut().set_destination_ip6(u128::from_be_bytes(address));
                true
            },
            |packet| cx.drop(packet, "address beyond the end of the packet"),
        );
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};

    use super::*;

    #[test]
    fn the_address_comes_from_the_data() {
        let mut bench = Bench::element(&crate::registry(), "GetIP6Address(24)", 1, 1);
        let packet: Vec<u8> = (0..40).collect();
        bench.push("in0", &[&packet, &packet[..39]]);
        let packets = bench.taken_packets("out0");
        assert_eq!(packets.len(), 1);
        assert_eq!(packets[0].annotations().bytes()[..16], packet[24..]);
        assert_eq!(packets[0].annotations().destination_ip6(), 0x1819_1a1b_1c1d_1e1f_2021_2223_2425_2627);
        assert_eq!(bench.drops("e", "address beyond the end of the packet"), 1);
        bench.push("in0", &[b""]);
        assert_eq!(bench.drops("e", "address beyond the end of the packet"), 2);
    }

    #[test]
    fn configuration_mistakes() {
        assert!(configure(&CLASS, "").is_err());
        assert!(configure(&CLASS, "24, 1").is_err());
        assert!(configure(&CLASS, "24").is_ok());
    }
}
