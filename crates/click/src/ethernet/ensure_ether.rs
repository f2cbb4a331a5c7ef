//! =c
//! EnsureEther([ETHERTYPE, SRC, DST])
//!
//! =s ethernet
//! gives IP packets an Ethernet header if they have none
//!
//! =d
//! Looks at packets whose IP header is marked. If the packet starts neither behind an Ethernet
//! header nor where one was stripped, it gets an Ethernet header. That has the type ETHERTYPE
//! (0x0800 by default), and goes from SRC (1:1:1:1:1:1) to DST (2:2:2:2:2:2). It replaces the bytes
//! before the IP header. A header that was stripped comes back. All other packets pass as they are.
//!
//! A packet without head room is dropped and counted as "no room for an Ethernet header".
//!
//! Different from Click: a header counts as stripped only if the link header is marked 14 bytes
//! before the IP header. Otherwise those bytes may be left from another packet.
//!
//! =e
//!   EnsureEther(0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2)
//!
//! =a EtherEncap, EtherRewrite

use elements::ethernet::header::{self, NO_ROOM};
use graph::Class;
use packet::Packet;
use packet::wire::ethernet::{EtherType, HEADER_LEN, MacAddr};

use crate::each_packet::{each_packet, or_drop};

pub(crate) static CLASS: Class = Class {
    name: "EnsureEther",
    manual: graph::manual!("ensure_ether.rs"),
    make: |setup| {
        let ethertype = setup.arguments.optional("ETHERTYPE")?.unwrap_or(EtherType::IPV4.0);
        let source = setup.arguments.optional("SRC")?.unwrap_or(MacAddr([1; 6]));
        let destination = setup.arguments.optional("DST")?.unwrap_or(MacAddr([2; 6]));
        let header = header::bytes(destination, source, ethertype);
        each_packet(setup, move |packet| or_drop(ensure(packet, &header).then_some(()), NO_ROOM))
    },
    ..Class::DEFAULT
};

/// Whether `data` starts with an Ethernet header that says IP.
fn says_ip(data: &[u8]) -> bool {
    let header = data.first_chunk().map(header::parts);
    header.is_some_and(|(_, _, ethertype)| [EtherType::IPV4.0, EtherType::IPV6.0].contains(&ethertype))
}

fn ensure(packet: &mut Packet, header: &[u8; HEADER_LEN]) -> bool {
    let Some(offset) = packet.network_offset().and_then(|offset| usize::try_from(offset).ok()) else {
        return true;
    };
    if offset == HEADER_LEN && says_ip(packet.data()) {
        return true;
    }
    if offset == 0
        && packet.link_offset() == Some(-(HEADER_LEN as isize))
        && packet.prepend(HEADER_LEN).is_some()
    {
        if says_ip(packet.data()) {
            return true;
        }
        packet.strip(HEADER_LEN);
    }
    packet.strip(offset) && header::prepend(packet, header)
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    const HEADER: &[u8; 14] = b"dstdstsrcsrc\x08\x00";

    #[test]
    fn only_ip_packets_without_a_header_get_one() {
        let mut bench = Bench::element(&crate::registry(), "EnsureEther", 1, 1);
        let framed = [HEADER, &b"IP"[..]].concat();
        let new = [&[2; 6][..], &[1; 6], b"\x08\x00IP"].concat();
        let unmarked = bench.packet(b"xx");
        let mut whole = bench.packet(&framed);
        whole.set_network_header(14);
        let mut stripped = bench.packet(&framed);
        stripped.set_link_header(0);
        stripped.strip(14);
        stripped.set_network_header(0);
        let mut bare = bench.packet(b"IP");
        bare.set_network_header(0);
        let mut other = bench.packet(b"12345678901234IP");
        other.set_network_header(14);
        let mut leftover = bench.packet(&framed);
        leftover.strip(14);
        leftover.set_network_header(0);
        bench.push_packets("in0", vec![unmarked, whole, stripped, bare, other, leftover]);
        assert_eq!(bench.taken("out0"), [b"xx", &framed[..], &framed, &new, &new, &new]);
    }
}
