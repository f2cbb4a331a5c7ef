//! =c
//! FastUDPSourceIP6(RATE, LIMIT, LENGTH, SRCETH, SRCIP6, SPORT, DSTETH, DSTIP6, DPORT [, CHECKSUM, INTERVAL, ACTIVE])
//!
//! =s udp
//! makes UDP packets of one flow over IPv6, fast
//!
//! =d
//! As FastUDPSource, with IPv6 addresses. A frame has at least 62 bytes.
//!
//! CHECKSUM: boolean. Whether the datagrams have a UDP checksum. True by default; without one they are wrong, since UDP
//! over IPv6 needs it (RFC 8200, 8.1).
//!
//! INTERVAL: after so many packets both ports are raised by one. 0, the default, leaves them.
//!
//! ACTIVE: boolean. Whether it works. True by default.
//!
//! =e
//!   FastUDPSourceIP6(100000, 500000, 70, 0:0:0:0:0:0, 2001:db8::1, 1234, 1:1:1:1:1:1, 2001:db8::2, 1234) -> ToDevice(eth0);
//!
//! =a FastUDPSource

use graph::Class;

use super::fast_udp::{Addresses, FastSource, OneFlow};

pub(crate) static CLASS: Class = Class {
    name: "FastUDPSourceIP6",
    ports: "0/1",
    processing: Class::PULL,
    handlers: FastSource::<OneFlow>::HANDLERS,
    manual: graph::manual!("fast_udp_source_ip6.rs"),
    make: |setup| OneFlow::make(setup, ["SRCIP6", "DSTIP6"], Addresses::V6),
    ..Class::DEFAULT
};

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use packet::wire::PseudoHeader;
    use packet::wire::ipv6::Ipv6;
    use packet::wire::udp::Udp;

    #[test]
    fn frames_are_right() {
        let config =
            "FastUDPSourceIP6(0, 3, 80, 2:0:0:0:0:1, 2001:db8::1, 1234, 2:0:0:0:0:2, 2001:db8::2, 53)
            -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        assert_eq!(bench.pull("out", 9), 3);
        for packet in bench.taken_packets("out") {
            let header = Ipv6::new_checked(packet.network().unwrap()).unwrap();
            assert_eq!((packet.data().len(), header.payload().len(), header.hop_limit()), (80, 26, 250));
            let udp = Udp::new_checked(header.payload()).unwrap();
            let pseudo = PseudoHeader::V6 { source: header.source(), destination: header.destination() };
            assert!(udp.is_checksum_valid(&pseudo) && udp.checksum() != 0);
            assert_eq!((udp.source_port(), udp.destination_port()), (1234, 53));
            assert_eq!(packet.annotations().destination_ip6(), header.destination().to_bits());
        }
    }
}
