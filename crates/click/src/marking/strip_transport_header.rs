//! =c
//! StripTransportHeader()
//!
//! =s basicmod
//! strips packets to the payload of their transport header
//!
//! =d
//! Removes everything up to the end of the transport header, which must have been marked. The
//! header's length is the data offset of TCP, and 8 bytes of UDP, ICMP and ICMPv6. The IP header,
//! of either version, has the protocol. A packet of another protocol, or a later fragment, loses
//! all before its transport header.
//!
//! A packet without a marked header, or that ends within it, is dropped and counted as "no transport header".
//!
//! =a StripIPHeader, StripToNetworkHeader, Unstrip

use graph::Class;
use packet::Packet;
use packet::wire::IpProtocol;
use packet::wire::ipv4::Ipv4;
use packet::wire::ipv6::Ipv6;
use packet::wire::tcp::Tcp;

use crate::each_packet::{each_packet, or_drop};

pub(crate) static CLASS: Class = Class {
    name: "StripTransportHeader",
    manual: graph::manual!("strip_transport_header.rs"),
    make: |setup| each_packet(setup, |packet| or_drop(strip(packet), "no transport header")),
    ..Class::DEFAULT
};

/// The protocol whose header stands at the transport header; `None` behind the first fragment.
fn protocol(network: &[u8]) -> Option<IpProtocol> {
    match network.first()? >> 4 {
        4 => {
            let header = Ipv4::new_unchecked(network.first_chunk::<20>()?);
            (header.fragment_offset() == 0).then_some(header.protocol())
        }
        6 => {
            let upper = Ipv6::new_checked(network).ok()?.upper_layer().ok()?;
            upper.fragment.is_none_or(|fragment| fragment.offset == 0).then_some(upper.protocol)
        }
        _ => None,
    }
}

fn strip(packet: &mut Packet) -> Option<()> {
    let transport = packet.transport()?;
    let header_len = match protocol(packet.network()?) {
        Some(IpProtocol::TCP) => Tcp::new_unchecked(transport.get(..14)?).header_len(),
        Some(IpProtocol::UDP | IpProtocol::ICMP | IpProtocol::ICMPV6) => 8,
        _ => 0,
    };
    let end = packet.transport_offset()? + header_len as isize;
    // What is stripped already stays so.
    packet.strip(usize::try_from(end).unwrap_or(0)).then_some(())
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use testbed::ipv4::{ipv4, refresh};
    use testbed::ipv6::{FAR, HOST, ipv6};

    fn through(mark: &str, packet: &[u8]) -> (Vec<Vec<u8>>, u64) {
        let config = format!("in :: TestInput -> {mark} -> e :: StripTransportHeader -> out :: TestOutput");
        let mut bench = Bench::new(&crate::registry(), &config);
        bench.push("in", &[packet]);
        (bench.taken("out"), bench.drops("e", "no transport header"))
    }

    #[test]
    fn what_is_carried_is_left() {
        let tcp = [&[0; 12][..], &[0x60], &[0; 11], b"data"].concat();
        let udp = [&[0; 8][..], b"data"].concat();
        for (protocol, payload) in [(6, &tcp), (17, &udp), (1, &udp), (89, &b"data".to_vec())] {
            let packet = ipv4([1, 2, 3, 4], [5, 6, 7, 8], protocol, payload);
            assert_eq!(through("MarkIPHeader", &packet), (vec![b"data".to_vec()], 0), "{protocol}");
        }
        assert_eq!(through("MarkIP6Header", &ipv6(HOST, FAR, 17, &udp)), (vec![b"data".to_vec()], 0));
    }

    #[test]
    fn later_fragments_and_short_packets() {
        let mut fragment = ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, b"datadata");
        fragment[7] = 1;
        refresh(&mut fragment);
        assert_eq!(through("MarkIPHeader", &fragment), (vec![b"datadata".to_vec()], 0));
        let short = ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, b"1234567");
        assert_eq!(through("MarkIPHeader", &short), (vec![], 1));
        assert_eq!(through("MarkIPHeader", b"x"), (vec![b"".to_vec()], 0));
        assert_eq!(through("Null", &short), (vec![], 1));
    }
}
