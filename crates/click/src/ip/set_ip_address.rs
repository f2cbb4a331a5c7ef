//! =c
//! SetIPAddress(IPADDR [, I<keywords> ANNO])
//!
//! =s ip
//! sets the destination annotation
//!
//! =d
//! Sets the destination IP address annotation of each packet to IPADDR: the address it goes to next. ANNO is
//! the first byte of another annotation to set.
//!
//! =a GetIPAddress, StoreIPAddress

use std::net::Ipv4Addr;

use graph::arguments::AnnotationByte;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup};
use packet::{Annotations, Batch};

pub(crate) static CLASS: Class = Class {
    name: "SetIPAddress",
    handlers: &[Handler::read_write(
        "addr",
        Combine::First,
        "The address.",
        &Get(|e: &mut SetIPAddress| e.address.to_string()),
        &Put(|e: &mut SetIPAddress, _, value| {
            e.address = Ipv4Addr::from_argument(value.trim())
                .ok_or_else(|| format!("addr: expected {}, got '{value}'", Ipv4Addr::EXPECTED))?;
            Ok(())
        }),
    )],
    manual: graph::manual!("set_ip_address.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let address = setup.arguments.required::<Ipv4Addr>("IPADDR")?;
    let annotation = setup.arguments.keyword_or("ANNO", AnnotationByte(Annotations::DESTINATION))?;
    setup.arguments.finish()?;
    let annotation = elements::ip::get_ip_address::address_annotation(annotation)?;
    Ok(Box::new(SetIPAddress { address, annotation }))
}

struct SetIPAddress {
    address: Ipv4Addr,
    annotation: usize,
}

impl Element for SetIPAddress {
    fn process(&mut self, _cx: &mut Context, batch: &mut Batch) {
        let octets = self.address.octets();
        for packet in batch.packets_mut() {
            packet.annotations_mut().bytes_mut()[self.annotation..][..4].copy_from_slice(&octets);
        }
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn sets_and_changes() {
        let mut bench = Bench::element(&crate::registry(), "SetIPAddress(1.0.0.2)", 1, 1);
        bench.push("in0", &[b""]);
        assert_eq!(bench.taken_packets("out0")[0].annotations().destination_ip(), 0x0100_0002);
        bench.write("e.addr", "1.0.0.3").unwrap();
        assert!(bench.write("e.addr", "x").is_err());
        assert_eq!(bench.read("e.addr"), "1.0.0.3");
        bench.push("in0", &[b""]);
        assert_eq!(bench.taken_packets("out0")[0].annotations().destination_ip(), 0x0100_0003);
    }
}
