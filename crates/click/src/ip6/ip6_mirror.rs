//! =c
//! IP6Mirror()
//!
//! =s ip6
//! sends packets back to where they came from
//!
//! =d
//! Swaps source and destination address of packets whose IPv6 header is marked; where TCP or UDP follows it directly, the
//! ports, too. No checksum changes by that.
//!
//! Drop reasons: no IPv6 header.
//!
//! =a IPMirror, EtherMirror

use graph::{Class, Context, Element, Verdict};
use packet::wire::ipv6::HEADER_LEN;
use packet::{Batch, Packet};

use crate::ip::ip_mirror::swap_ports;

pub(crate) static CLASS: Class = Class {
    name: "IP6Mirror",
    manual: graph::manual!("ip6_mirror.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(Ip6Mirror))
    },
    ..Class::DEFAULT
};

struct Ip6Mirror;

const NEXT_HEADER: usize = 6;

fn mirror(packet: &mut Packet) -> Option<()> {
    let (header, transport) = packet.network_mut()?.split_first_chunk_mut::<HEADER_LEN>()?;
    let (source, destination) = header[8..].split_at_mut(16);
    source.swap_with_slice(destination);
    if matches!(header[NEXT_HEADER], 6 | 17) && transport.len() >= 8 {
        swap_ports(transport);
    }
    Some(())
}

impl Element for Ip6Mirror {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| match mirror(packet) {
            Some(()) => Verdict::Keep,
            None => Verdict::Drop("no IPv6 header"),
        });
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use testbed::ipv6::{FAR, HOST, ipv6};

    #[test]
    fn addresses_and_ports() {
        let config = "in :: TestInput -> MarkIP6Header -> e :: IP6Mirror -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        for (protocol, payload, expected) in [
            (17, &[0, 1, 0, 2, 0, 8, 3, 3][..], &[0, 2, 0, 1, 0, 8, 3, 3][..]),
            (6, &[0, 1, 0, 2, 5, 6, 7, 8], &[0, 2, 0, 1, 5, 6, 7, 8]),
            (58, &[0, 1, 0, 2, 5, 6, 7, 8], &[0, 1, 0, 2, 5, 6, 7, 8]),
            (17, &[0, 1, 0, 2], &[0, 1, 0, 2]),
        ] {
            bench.push("in", &[&ipv6(HOST, FAR, protocol, payload)]);
            assert_eq!(bench.taken("out"), [ipv6(FAR, HOST, protocol, expected)]);
        }
        bench.push("in", &[&[0x60; 39]]);
        assert_eq!(bench.drops("e", "no IPv6 header"), 1);
    }
}
