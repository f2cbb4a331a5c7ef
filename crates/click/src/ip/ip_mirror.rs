//! =c
//! IPMirror([I<keyword> DST_ANNO])
//!
//! =s ip
//! sends packets back to where they came from
//!
//! =d
//! Swaps source and destination address of packets whose IP header is marked; in TCP and UDP the ports, too, and in TCP sequence
//! and acknowledgment number. No checksum changes by that. Unless DST_ANNO is false, the destination annotation becomes the new
//! destination.
//!
//! Drop reasons: no IP header.
//!
//! =a EtherMirror, IP6Mirror
//!
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

use std::mem::swap;

use graph::Class;
use packet::Packet;
use packet::wire::IpProtocol;
use packet::wire::ipv4::{Ipv4, MIN_HEADER_LEN};
use packet::wire::ipv6::{self, Ipv6};

use crate::each_packet::{each_packet, or_drop};

pub(crate) static CLASS: Class = Class {
    name: "IPMirror",
    manual: graph::manual!("ip_mirror.rs", "IPMirror"),
    make: |setup| {
        let annotate = setup.arguments.keyword_or("DST_ANNO", true)?;
        each_packet(setup, move |packet| or_drop(mirror(packet, annotate), "no IP header"))
    },
    ..Class::DEFAULT
};

pub(crate) static IP6: Class = Class {
    name: "IP6Mirror",
    manual: graph::manual!("ip_mirror.rs", "IP6Mirror"),
    make: |setup| each_packet(setup, |packet| or_drop(mirror_6(packet), "no IPv6 header")),
    ..Class::DEFAULT
};

/// Swaps the ports of a TCP or UDP header that begins with these bytes, unless it is too short for one.
fn swap_ports(protocol: IpProtocol, transport: &mut [u8]) {
    if matches!(protocol, IpProtocol::TCP | IpProtocol::UDP)
        && let Some([a, b, c, d, ..]) = transport.first_chunk_mut::<8>()
    {
        swap(a, c);
        swap(b, d);
    }
}

fn mirror(packet: &mut Packet, annotate: bool) -> Option<()> {
    let network = packet.network_mut()?;
    let mut header = Ipv4::new_unchecked(network.first_chunk_mut::<MIN_HEADER_LEN>()?);
    let (source, destination) = (header.source(), header.destination());
    header.set_source(destination);
    header.set_destination(source);
    let (protocol, header_len) = (header.protocol(), header.header_len().max(MIN_HEADER_LEN));
    let is_first = header.fragment_offset() == 0;
    let transport = network.get_mut(header_len..).filter(|_| is_first).unwrap_or_default();
    swap_ports(protocol, transport);
    if protocol == IpProtocol::TCP
        && let Some(numbers) = transport.get_mut(4..12)
    {
        numbers.rotate_left(4);
    }
    if annotate {
        packet.annotations_mut().set_destination_ip(source.to_bits());
    }
    Some(())
}

fn mirror_6(packet: &mut Packet) -> Option<()> {
    let (header, transport) = packet.network_mut()?.split_first_chunk_mut::<{ ipv6::HEADER_LEN }>()?;
    let mut header = Ipv6::new_unchecked(header);
    let (source, destination) = (header.source(), header.destination());
    header.set_source(destination);
    header.set_destination(source);
    swap_ports(header.next_header(), transport);
    Some(())
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use testbed::ipv4::{ipv4, refresh};
    use testbed::ipv6::{FAR, HOST, ipv6};

    const TRANSPORT: [u8; 20] = [0, 1, 0, 2, 3, 3, 3, 3, 4, 4, 4, 4, 0x50, 0, 0, 0, 0, 0, 0, 0];

    fn mirrored(packet: &[u8]) -> Vec<u8> {
        let config = "in :: TestInput -> CheckIPHeader -> IPMirror -> CheckIPHeader -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[packet]);
        bench.taken("out").concat()
    }

    #[test]
    fn addresses_ports_and_numbers() {
        let expected = |protocol, transport: &[u8]| ipv4([5, 6, 7, 8], [1, 2, 3, 4], protocol, transport);
        let packet = |protocol| ipv4([1, 2, 3, 4], [5, 6, 7, 8], protocol, &TRANSPORT);
        let mut tcp = [0, 2, 0, 1, 4, 4, 4, 4, 3, 3, 3, 3, 0x50, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(mirrored(&packet(6)), expected(6, &tcp));
        tcp[4..12].copy_from_slice(&TRANSPORT[4..12]);
        assert_eq!(mirrored(&packet(17)), expected(17, &tcp));
        assert_eq!(mirrored(&packet(89)), expected(89, &TRANSPORT));
        let mut fragment = packet(17);
        fragment[7] = 1;
        refresh(&mut fragment);
        assert_eq!(mirrored(&fragment)[20..], TRANSPORT);
    }

    #[test]
    fn the_annotation_follows() {
        for (arguments, destination) in [("", 0x0102_0304), ("DST_ANNO false", 0x0506_0708)] {
            let config = format!(
                "in :: TestInput -> CheckIPHeader -> e :: IPMirror({arguments}) -> out :: TestOutput"
            );
            let mut bench = Bench::new(&crate::registry(), &config);
            bench.push("in", &[&ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, b"")]);
            assert_eq!(bench.taken_packets("out")[0].annotations().destination_ip(), destination);
        }
        let mut bench = Bench::element(&crate::registry(), "IPMirror", 1, 1);
        bench.push("in0", &[&ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, b"")]);
        assert_eq!(bench.drops("e", "no IP header"), 1);
    }

    #[test]
    fn addresses_and_ports_of_ipv6() {
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
