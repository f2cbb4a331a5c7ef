//! =c
//! SetUDPChecksum()
//!
//! =s udp
//! sets the UDP checksum
//!
//! =d
//! Computes the checksum of the UDP datagram anew in packets whose IP header is marked.
//!
//! Drop reasons: bad packet length, no IP header.
//!
//! =a SetTCPChecksum, SetIPChecksum, CheckUDPHeader, UDPIPEncap
//!
//! =c
//! SetTCPChecksum([FIXOFF])
//!
//! =s tcp
//! sets the TCP checksum
//!
//! =d
//! Computes the checksum of the TCP segment anew in packets whose IP header is marked. A data
//! offset that points into the header, or behind the segment, is wrong. With FIXOFF true such an
//! offset is first set to the end of the segment, or as near to it as it can be.
//!
//! Drop reasons: bad packet length, no IP header.
//!
//! =a SetUDPChecksum, SetIPChecksum, CheckTCPHeader

use graph::{Class, Verdict};
use packet::Packet;
use packet::wire::PseudoHeader;
use packet::wire::ipv4::{Ipv4, MIN_HEADER_LEN};
use packet::wire::tcp::{self, Tcp};
use packet::wire::udp::Udp;

use crate::each_packet::each_packet;

pub(crate) static UDP: Class = Class {
    name: "SetUDPChecksum",
    manual: graph::manual!("set_transport_checksum.rs", "SetUDPChecksum"),
    make: |setup| each_packet(setup, |packet| verdict(set_udp(packet))),
    ..Class::DEFAULT
};

pub(crate) static TCP: Class = Class {
    name: "SetTCPChecksum",
    manual: graph::manual!("set_transport_checksum.rs", "SetTCPChecksum"),
    make: |setup| {
        let fix_offset = setup.arguments.optional("FIXOFF")?.unwrap_or(false);
        each_packet(setup, move |packet| verdict(set_tcp(packet, fix_offset)))
    },
    ..Class::DEFAULT
};

fn verdict(done: Result<(), &'static str>) -> Verdict {
    done.map_or_else(Verdict::Drop, |()| Verdict::Keep)
}

const NO_HEADER: &str = "no IP header";
const BAD_LENGTH: &str = "bad packet length";

/// The bytes behind the marked IP header, as many as its total length says, and what their checksum covers besides them.
fn segment(packet: &mut Packet) -> Result<(&mut [u8], PseudoHeader), &'static str> {
    let network = packet.network_mut().ok_or(NO_HEADER)?;
    let header = Ipv4::new_unchecked(network.first_chunk::<MIN_HEADER_LEN>().ok_or(NO_HEADER)?);
    let pseudo = PseudoHeader::V4 { source: header.source(), destination: header.destination() };
    let (header_len, total_len) = (header.header_len(), header.total_len());
    if header_len < MIN_HEADER_LEN {
        return Err(NO_HEADER);
    }
    Ok((network.get_mut(header_len..total_len).ok_or(BAD_LENGTH)?, pseudo))
}

fn set_udp(packet: &mut Packet) -> Result<(), &'static str> {
    let (bytes, pseudo) = segment(packet)?;
    let length = Udp::new_checked(&bytes[..]).map_err(|_| BAD_LENGTH)?.length();
    // RFC 768: "the minimum value of the length is eight".
    let datagram = bytes.get_mut(..length).and_then(|bytes| Udp::new_checked(bytes).ok());
    datagram.ok_or(BAD_LENGTH)?.fill_checksum(&pseudo);
    Ok(())
}

fn set_tcp(packet: &mut Packet, fix_offset: bool) -> Result<(), &'static str> {
    let (bytes, pseudo) = segment(packet)?;
    let length = bytes.len();
    if length < tcp::MIN_HEADER_LEN {
        return Err(BAD_LENGTH);
    }
    let mut tcp = Tcp::new_unchecked(bytes);
    if fix_offset && !(tcp::MIN_HEADER_LEN..=length).contains(&tcp.header_len()) {
        tcp.set_header_len_and_flags(length.min(tcp::MAX_HEADER_LEN), tcp.flags());
    }
    tcp.fill_checksum(&pseudo);
    Ok(())
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use testbed::ipv4::ipv4;

    #[test]
    fn the_checksum_is_right() {
        let config =
            "in :: TestInput -> CheckIPHeader -> e :: SetUDPChecksum -> CheckUDPHeader -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        let datagram = |length: u8, payload: &[u8]| {
            let datagram = [&[0, 1, 0, 2, 0, length, 0xde, 0xad][..], payload].concat();
            ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, &datagram)
        };
        bench.push(
            "in",
            &[&datagram(11, b"odd"), &datagram(8, b"behind"), &datagram(7, b"x"), &datagram(10, b"x")],
        );
        let packets = bench.taken("out");
        assert_eq!(packets.len(), 2);
        assert!(packets.iter().all(|packet| packet[26..28] != [0xde, 0xad]));
        assert_eq!(bench.drops("e", "bad packet length"), 2);
        let mut bench = Bench::element(&crate::registry(), "SetUDPChecksum", 1, 1);
        bench.push("in0", &[&datagram(8, b"")]);
        assert_eq!(bench.drops("e", "no IP header"), 1);
    }

    fn segment(offset: u8, len: usize) -> Vec<u8> {
        let mut segment = vec![7; len];
        segment[12] = offset << 4;
        ipv4([1, 2, 3, 4], [5, 6, 7, 8], 6, &segment)
    }

    #[test]
    fn the_checksum_of_tcp_is_right() {
        let config =
            "in :: TestInput -> CheckIPHeader -> e :: SetTCPChecksum -> CheckTCPHeader -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        let padded = [&segment(5, 31)[..], &[1; 9]].concat();
        bench.push("in", &[&segment(5, 20), &padded, &segment(5, 19)]);
        assert_eq!(bench.taken("out").len(), 2);
        assert_eq!(bench.drops("e", "bad packet length"), 1);
        let mut bench = Bench::element(&crate::registry(), "SetTCPChecksum", 1, 1);
        bench.push("in0", &[&segment(5, 20)]);
        assert_eq!(bench.drops("e", "no IP header"), 1);
    }

    #[test]
    fn the_offset_is_fixed() {
        let config =
            "in :: TestInput -> MarkIPHeader -> SetTCPChecksum(true) -> CheckTCPHeader -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[&segment(4, 24), &segment(7, 24), &segment(5, 24), &segment(0, 100)]);
        let offsets: Vec<u8> = bench.taken("out").iter().map(|packet| packet[32] >> 4).collect();
        assert_eq!(offsets, [6, 6, 5, 15]);
    }
}
