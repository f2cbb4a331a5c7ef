//! =c
//! FastUDPSource(RATE, LIMIT, LENGTH, SRCETH, SRCIP, SPORT, DSTETH, DSTIP, DPORT [, CHECKSUM, INTERVAL, ACTIVE])
//!
//! =s udp
//! makes UDP packets of one flow, fast
//!
//! =d
//! Gives Ethernet frames when pulled. Each has LENGTH bytes (at least 60, the frame's checksum not
//! counted) with a UDP datagram from SRCIP and SPORT to DSTIP and DPORT. The frame is made once and
//! copied. RATE is the frames a second, and 0 gives as many as are pulled. LIMIT is the frames in
//! all, and a negative number sets no limit.
//!
//! Arguments are:
//!
//! CHECKSUM: boolean. Whether the datagrams have a UDP checksum. True by default.
//!
//! INTERVAL: after so many packets both ports are raised by one. 0, the default, leaves them.
//!
//! ACTIVE: boolean. Whether it works. True by default.
//!
//! On a router of several workers the first one makes packets, unless StaticThreadSched binds it to another.
//!
//! Different from Click: it needs no kernel module, and data are zeroes.
//!
//! =e
//!   FastUDPSource(100000, 500000, 60, 0:0:0:0:0:0, 1.0.0.1, 1234, 1:1:1:1:1:1, 2.0.0.2, 1234)
//!     -> ToDevice(eth0);
//!
//! =a FastUDPSourceIP6, FastUDPFlows, InfiniteSource
//!
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
//!   FastUDPSourceIP6(100000, 500000, 70, 0:0:0:0:0:0, 2001:db8::1, 1234, 1:1:1:1:1:1,
//!                    2001:db8::2, 1234) -> ToDevice(eth0);
//!
//! =a FastUDPSource

use graph::Class;

use super::fast_udp::{Addresses, FastSource, OneFlow};

pub(crate) static CLASS: Class = Class {
    name: "FastUDPSource",
    ports: "0/1",
    processing: Class::PULL,
    handlers: FastSource::<OneFlow>::HANDLERS,
    manual: graph::manual!("fast_udp_source.rs", "FastUDPSource"),
    make: |setup| OneFlow::make(setup, ["SRCIP", "DSTIP"], Addresses::V4),
    ..Class::DEFAULT
};

pub(crate) static IP6: Class = Class {
    name: "FastUDPSourceIP6",
    manual: graph::manual!("fast_udp_source.rs", "FastUDPSourceIP6"),
    make: |setup| OneFlow::make(setup, ["SRCIP6", "DSTIP6"], Addresses::V6),
    ..CLASS
};

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};
    use packet::wire::PseudoHeader;
    use packet::wire::ipv4::{self, Ipv4};
    use packet::wire::ipv6::Ipv6;
    use packet::wire::udp::Udp;

    const ENDS: &str = "2:0:0:0:0:1, 1.0.0.1, 1234, 2:0:0:0:0:2, 2.0.0.2, 53";

    #[test]
    fn frames_are_right_and_ports_count_up() {
        let config = format!("e :: FastUDPSource(0, 5, 70, {ENDS}, true, 2) -> out :: TestOutput");
        let mut bench = Bench::new(&crate::registry(), &config);
        assert_eq!(bench.pull("out", 3), 3);
        assert_eq!(bench.pull("out", 3), 2);
        let packets = bench.taken_packets("out");
        let ports: Vec<_> = packets
            .iter()
            .map(|packet| {
                assert_eq!(packet.data().len(), 70);
                let header = Ipv4::new_checked(packet.network().unwrap()).unwrap();
                assert!(
                    ipv4::check_header(header.bytes(), true).is_ok()
                        && header.total_len() == 56
                        && header.ttl() == 250
                );
                assert_eq!(packet.annotations().destination_ip(), 0x0200_0002);
                let udp = Udp::new_checked(packet.transport().unwrap()).unwrap();
                let pseudo = PseudoHeader::V4 { source: header.source(), destination: header.destination() };
                assert!(udp.is_checksum_valid(&pseudo) && udp.checksum() != 0 && udp.length() == 36);
                (udp.source_port(), udp.destination_port())
            })
            .collect();
        assert_eq!(ports, [(1234, 53), (1234, 53), (1235, 54), (1235, 54), (1236, 55)]);
        assert_eq!(bench.read("e.count"), "5");
        bench.write("e.reset", "").unwrap();
        assert_eq!(bench.pull("out", 9), 5);
        assert_eq!(bench.taken("out")[0][34..38], [4, 210, 0, 53]);
    }

    #[test]
    fn they_come_at_the_rate() {
        let config = format!("e :: FastUDPSource(100, 11, 60, {ENDS}) -> Unqueue -> out :: TestOutput");
        let mut bench = Bench::new(&crate::registry(), &config);
        bench.run(10);
        assert_eq!(bench.taken("out").len(), 1);
        assert!(!bench.graph().context().has_awake_tasks());
        bench.advance_ns(50_000_000);
        assert_eq!(bench.taken("out").len(), 5);
        assert_eq!(bench.read("e.rate"), "0");
        bench.advance_ns(1_000_000_000);
        assert_eq!(bench.taken("out").len(), 5);
        assert_eq!(bench.read("e.rate"), "110");
        bench.write("e.active", "false").unwrap();
        bench.write("e.limit", "100").unwrap();
        bench.advance_ns(1_000_000_000);
        assert_eq!(bench.taken("out").len(), 0);
    }

    #[test]
    fn short_frames_and_mistakes() {
        let config = format!("FastUDPSource(0, 1, 20, {ENDS}) -> out :: TestOutput");
        let mut bench = Bench::new(&crate::registry(), &config);
        assert_eq!(bench.messages(), ["warning: packet length < 60, defaulting to 60"]);
        bench.pull("out", 1);
        assert_eq!(bench.taken("out")[0].len(), 60);
        assert!(configure(&CLASS, "1, 2, 3").unwrap_err()[0].contains("SRCETH"));
        let error = configure(&CLASS, "1, 1, 60, 1:1:1:1:1:1, 1.0.0.1, nothing, 1:1:1:1:1:1, 1.0.0.1, 5");
        assert_eq!(error.unwrap_err(), ["SPORT: expected UDP port, such as 53 or domain, got 'nothing'"]);
    }

    #[test]
    fn frames_of_ipv6_are_right() {
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
