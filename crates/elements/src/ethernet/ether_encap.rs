//! =c
//! EtherEncap(ETHERTYPE, SRC, DST)
//!
//! =s ethernet
//! encapsulates packets in an Ethernet header
//!
//! =d
//! Puts an Ethernet header with the type ETHERTYPE, the source SRC and the destination DST before each packet.
//!
//! A packet without 14 bytes of head room is dropped and counted as "no room for an Ethernet header".
//!
//! =e
//!   EtherEncap(0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2)
//!
//! =a ARPQuerier, EnsureEther, EtherRewrite, VLANEncap, EtherVLANEncap

use graph::{Class, Combine, Context, Element, FromArgument, Get, Handler, Put, Verdict};
use packet::Batch;
use packet::wire::ethernet::{HEADER_LEN, MacAddr};

use super::header::{self, NO_ROOM};

pub(crate) static CLASS: Class = Class {
    name: "EtherEncap",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    handlers: &[
        Handler::read_write(
            "src",
            Combine::First,
            "The SRC argument.",
            &Get(|e: &mut EtherEncap| {
                let (_, source, _) = header::parts(&e.header);
                source.to_string()
            }),
            &Put(|e: &mut EtherEncap, _, value| {
                let (destination, _, ethertype) = header::parts(&e.header);
                e.header = header::bytes(destination, MacAddr::from_value(value)?, ethertype);
                Ok(())
            }),
        ),
        Handler::read_write(
            "dst",
            Combine::First,
            "The DST argument.",
            &Get(|e: &mut EtherEncap| {
                let (destination, ..) = header::parts(&e.header);
                destination.to_string()
            }),
            &Put(|e: &mut EtherEncap, _, value| {
                let (_, source, ethertype) = header::parts(&e.header);
                e.header = header::bytes(MacAddr::from_value(value)?, source, ethertype);
                Ok(())
            }),
        ),
        Handler::read_write(
            "ethertype",
            Combine::First,
            "The ETHERTYPE argument, in decimal when read.",
            &ETHERTYPE,
            &SET_ETHERTYPE,
        ),
        Handler::read_write("etht", Combine::First, "The same as ethertype.", &ETHERTYPE, &SET_ETHERTYPE),
    ],
    manual: graph::manual!("ether_encap.rs"),
    make: |setup| {
        let ethertype: u16 = setup.arguments.required("ETHERTYPE")?;
        let source: MacAddr = setup.arguments.required("SRC")?;
        let destination: MacAddr = setup.arguments.required("DST")?;
        setup.arguments.finish()?;
        Ok(Box::new(EtherEncap { header: header::bytes(destination, source, ethertype) }))
    },
    ..Class::DEFAULT
};

const ETHERTYPE: Get<EtherEncap> = Get(|e| {
    let (_, _, ethertype) = header::parts(&e.header);
    ethertype.to_string()
});

const SET_ETHERTYPE: Put<EtherEncap> = Put(|e, _, value| {
    let (destination, source, _) = header::parts(&e.header);
    e.header = header::bytes(destination, source, u16::from_value(value)?);
    Ok(())
});

struct EtherEncap {
    header: [u8; HEADER_LEN],
}

impl Element for EtherEncap {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| {
            if header::prepend(packet, &self.header) { Verdict::Keep } else { Verdict::Drop(NO_ROOM) }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn the_header_stands_before_the_packet() {
        let text = "EtherEncap(0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2)";
        let mut bench = Bench::element(&crate::registry(), text, 1, 1);
        bench.push("in0", &[b"data", b""]);
        let packets = bench.taken_packets("out0");
        assert_eq!(packets[0].data(), b"\x02\x02\x02\x02\x02\x02\x01\x01\x01\x01\x01\x01\x08\x00data");
        assert_eq!((packets[0].link_offset(), packets[1].len()), (Some(0), 14));
        bench.write("e.src", "3:3:3:3:3:3").unwrap();
        bench.write("e.etht", "34525").unwrap();
        assert!(bench.write("e.dst", "3:3").is_err());
        bench.push("in0", &[b""]);
        assert_eq!(bench.taken("out0"), [b"\x02\x02\x02\x02\x02\x02\x03\x03\x03\x03\x03\x03\x86\xdd"]);
        assert_eq!(bench.read("e.src"), "03-03-03-03-03-03");
        assert_eq!((bench.read("e.ethertype"), bench.read("e.etht")), ("34525".into(), "34525".into()));
    }

    #[test]
    fn no_head_room() {
        let mut bench = Bench::element(&crate::registry(), "EtherEncap(0, 1:1:1:1:1:1, 2:2:2:2:2:2)", 1, 1);
        let mut packet = bench.packet(b"x");
        packet.prepend(packet.headroom() - 13).unwrap();
        bench.push_packets("in0", vec![packet]);
        assert_eq!(bench.drops("e", NO_ROOM), 1);
    }

    #[test]
    fn mistakes() {
        assert_eq!(
            configure(&CLASS, "0x10000, 1:1:1:1:1:1, 2:2:2:2:2:2").unwrap_err(),
            ["ETHERTYPE: expected integer from 0 to 65535, got '0x10000'"]
        );
        assert_eq!(
            configure(&CLASS, "0x0800, 1:1:1:1:1:1").unwrap_err(),
            ["missing argument 3: DST (Ethernet address) is required"]
        );
    }
}
