//! =c
//! SetIP6DSCP(DSCP)
//!
//! =s ip6
//! sets the differentiated services code point
//!
//! =d
//! Sets the code point (RFC 2474; 0 to 63), the upper 6 bits of the traffic class, of packets whose IPv6 header is marked.
//!
//! Drop reasons: no IPv6 header.
//!
//! =a SetIPDSCP, CheckIP6Header

use elements::ip::CodePoint;
use graph::{Class, Combine, Context, Element, FromArgument, Get, Handler, Put, Verdict};
use packet::{Batch, Packet};

pub(crate) static CLASS: Class = Class {
    name: "SetIP6DSCP",
    handlers: &[Handler::read_write(
        "dscp",
        Combine::First,
        "The code point.",
        &Get(|e: &mut SetIp6Dscp| e.dscp.to_string()),
        &Put(|e: &mut SetIp6Dscp, _, value| {
            e.dscp = CodePoint::from_value(value)?.0;
            Ok(())
        }),
    )],
    manual: graph::manual!("set_ip6_dscp.rs"),
    make: |setup| {
        let CodePoint(dscp) = setup.arguments.required("DSCP")?;
        setup.arguments.finish()?;
        Ok(Box::new(SetIp6Dscp { dscp }))
    },
    ..Class::DEFAULT
};

struct SetIp6Dscp {
    dscp: u8,
}

fn set(packet: &mut Packet, dscp: u8) -> Option<()> {
    let start = packet.network_mut()?.first_chunk_mut::<4>()?;
    // Version, traffic class, flow label (RFC 8200, 3): the code point stands from bit 22 to 27.
    let word = u32::from_be_bytes(*start) & !(0x3f << 22) | u32::from(dscp) << 22;
    *start = word.to_be_bytes();
    Some(())
}

impl Element for SetIp6Dscp {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| match set(packet, self.dscp) {
            Some(()) => Verdict::Keep,
            None => Verdict::Drop("no IPv6 header"),
        });
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};
    use packet::wire::ipv6::Ipv6;
    use testbed::ipv6::{FAR, HOST, ipv6};

    use super::*;

    #[test]
    fn all_other_bits_stay() {
        let config = "in :: TestInput -> MarkIP6Header -> e :: SetIP6DSCP(46) -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        let mut packet = ipv6(HOST, FAR, 17, b"12345678");
        packet[..4].copy_from_slice(&[0x6f, 0xff, 0xff, 0xff]);
        bench.push("in", &[&packet, b"abc"]);
        let taken = bench.taken("out").concat();
        assert_eq!(taken[4..], packet[4..]);
        let header = Ipv6::new_checked(&taken[..]).unwrap();
        assert_eq!((header.traffic_class(), header.flow_label()), (46 << 2 | 3, 0xf_ffff));
        assert_eq!(bench.drops("e", "no IPv6 header"), 1);
        bench.write("e.dscp", "0").unwrap();
        assert!(bench.write("e.dscp", "64").is_err());
        assert_eq!(bench.read("e.dscp"), "0");
        assert!(configure(&CLASS, "64").is_err());
    }
}
