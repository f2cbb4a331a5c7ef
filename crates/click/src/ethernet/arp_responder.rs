//! =c
//! ARPResponder(IP/MASK [IP/MASK...] ETH, ...)
//!
//! =s arp
//! answers ARP queries
//!
//! =d
//! Takes ARP packets with their Ethernet header. A request for an address in one of the networks
//! IP/MASK is answered. The answer has ETH for the address, and leaves by output 0. If several
//! networks hold the address the longest one counts. An address alone is one host. Larger networks
//! make the router stand in for others (proxy ARP, RFC 1027). All other packets leave by output 1,
//! or are dropped if that is not in use.
//!
//! A request in which a host asks for its own address announces that address and is not answered. A
//! request whose sender has no address yet is answered (RFC 5227).
//!
//! The answer is made of the request: it goes back by the same port, and its other annotations
//! stay.
//!
//! Packets are dropped as `ARP request for another address`, `ARP packet is not a request`,
//! `ARP announcement`, `ARP sender is not a unicast address`, `not an ARP packet`, or by the fault
//! of the ARP packet.
//!
//! Different from Click: the address lengths in the packet are checked, and announcements are not
//! answered. Names (AddressInfo) are not supported.
//!
//! =e
//! Answers for the router itself (18.26.4.24), and for all hosts of 18.26.7.0/24:
//!
//!   c :: Classifier(12/0806 20/0001, ...);
//!   ar :: ARPResponder(18.26.4.24 18.26.7.0/24 00-00-C0-AE-67-EF);
//!   c[0] -> ar -> ToDevice(eth0);
//!
//! =a ARPQuerier, ARPFaker

use graph::Class;
use ipnet::Ipv4Net;
use packet::wire::arp::ArpOperation;
use packet::wire::ethernet::{HEADER_LEN, MacAddr};
use packet::{Packet, PacketType};

use super::address_owners::{AddressOwners, Answer, Responder};
use super::arp_frame::{self, FRAME_LEN};

pub(crate) static CLASS: Class = Class {
    name: "ARPResponder",
    // What is merged is no ARP, and goes on as it is.
    capabilities: &[graph::TAKES_MERGED],
    manual: graph::manual!("arp_responder.rs"),
    ..Responder::<Arp>::CLASS
};

struct Arp;

impl Answer for Arp {
    type Network = Ipv4Net;
    const DOCS: [&'static str; 3] = [
        "The Ethernet address that is answered for the IP address given as argument; empty if none.",
        "Takes one more argument of the form IP/MASK [IP/MASK...] ETH.",
        "Takes out the network given as IP/MASK.",
    ];

    fn answer(owners: &AddressOwners, packet: &mut Packet) -> Result<(), &'static str> {
        let request = arp_frame::parse(packet.data())?;
        if request.operation != ArpOperation::REQUEST {
            return Err("ARP packet is not a request");
        }
        if request.sender_mac.is_multicast() || request.sender_mac == MacAddr::ZERO {
            return Err("ARP sender is not a unicast address");
        }
        if request.sender_ip == request.target_ip {
            return Err("ARP announcement");
        }
        let owner = owners.find(request.target_ip.into()).ok_or("ARP request for another address")?;
        let reply = arp_frame::build(&request.reply(owner.mac), request.sender_mac);
        packet.truncate(FRAME_LEN);
        packet.data_mut().copy_from_slice(&reply);
        packet.set_packet_type(PacketType::Host);
        packet.set_link_header(0);
        packet.set_network_header(HEADER_LEN);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::arp_frame::tests::{OUR_IP, OUR_MAC, PEER_IP, PEER_MAC, REPLY, REQUEST};
    use super::*;
    use std::net::Ipv4Addr;

    use graph::testing::{Bench, configure};
    use packet::wire::arp::ArpRepr;
    use proptest::prelude::*;

    fn bench(arguments: &str, outputs: usize) -> Bench {
        Bench::element(&crate::registry(), &format!("ARPResponder({arguments})"), 1, outputs)
    }

    #[test]
    fn golden_answer() {
        let mut bench = bench("192.0.2.2 02-00-00-00-00-0B", 1);
        let padded = [&REQUEST[..], b"secret padding"].concat();
        let mut packet = bench.packet(&padded);
        packet.set_packet_type(PacketType::Broadcast);
        packet.set_input_port(5);
        bench.push_packets("in0", vec![packet]);
        let packets = bench.taken_packets("out0");
        assert_eq!(packets[0].data(), REPLY);
        assert_eq!((packets[0].packet_type(), packets[0].input_port()), (PacketType::Host, 5));
    }

    #[test]
    fn what_is_not_answered() {
        let mut bench = bench("192.0.2.2 02-00-00-00-00-0B", 1);
        let request = |mac, sender, target| {
            arp_frame::build(&ArpRepr::request(mac, sender, target), MacAddr::BROADCAST)
        };
        let other = request(OUR_MAC, OUR_IP, Ipv4Addr::new(192, 0, 2, 3));
        let announcement = request(OUR_MAC, PEER_IP, PEER_IP);
        let group = request(MacAddr::BROADCAST, OUR_IP, PEER_IP);
        bench.push("in0", &[&other, &REPLY, &announcement, &group, &REQUEST[..41], &[0; 60]]);
        assert!(bench.taken("out0").is_empty());
        for reason in [
            "ARP request for another address",
            "ARP packet is not a request",
            "ARP announcement",
            "ARP sender is not a unicast address",
            "truncated ARP packet",
            "not an ARP packet",
        ] {
            assert_eq!(bench.drops("e", reason), 1, "{reason}");
        }
        // RFC 5227, 2.1.1: a probe has an all-zero sender address and wants an answer.
        bench.push("in0", &[&request(OUR_MAC, Ipv4Addr::UNSPECIFIED, PEER_IP)]);
        assert_eq!(
            bench.taken("out0")[0][22..42],
            [2, 0, 0, 0, 0, 11, 192, 0, 2, 2, 2, 0, 0, 0, 0, 10, 0, 0, 0, 0]
        );
        let mut bench = super::tests::bench("192.0.2.2 02-00-00-00-00-0B", 2);
        bench.push("in0", &[&other]);
        assert_eq!(bench.taken("out1"), [other]);
    }

    #[test]
    fn the_longest_network_answers() {
        let mut bench = bench("10.0.0.0/8 1:1:1:1:1:1, 10.1.0.0/255.255.0.0 10.2.0.9/16 2:2:2:2:2:2", 1);
        bench.write("e.add", "10.1.0.5 4:4:4:4:4:4").unwrap();
        assert_eq!(bench.read("e.lookup 10.9.9.9"), "01-01-01-01-01-01");
        assert_eq!(bench.read("e.lookup 10.2.9.9"), "02-02-02-02-02-02");
        assert_eq!(bench.read("e.lookup 10.1.0.5"), "04-04-04-04-04-04");
        assert_eq!(bench.read("e.lookup 11.0.0.1"), "");
        bench.write("e.remove", "10.1.0.5").unwrap();
        assert!(bench.write("e.remove", "10.1.0.5").is_err());
        bench.write("e.add", "10.2.0.0/16 6:6:6:6:6:6").unwrap();
        let table = "10.1.0.0/16 02-02-02-02-02-02\n10.2.0.0/16 06-06-06-06-06-06\n\
                     10.0.0.0/8 01-01-01-01-01-01\n";
        assert_eq!(bench.read("e.table"), table);
    }

    #[test]
    fn every_mistake_is_told() {
        let errors =
            configure(&CLASS, "10.0.0.1, 1:1:1:1:1:1, eth0 x, 1.1.1.1 1:1:1:1:1:1 2:2:2:2:2:2").unwrap_err();
        assert_eq!(
            errors,
            [
                "argument 1: missing Ethernet address: expected 'IP/MASK ETH'",
                "argument 2: missing IP/MASK: expected 'IP/MASK ETH'",
                "argument 3: expected IP/MASK or Ethernet address, got 'eth0'",
                "argument 4: expected one Ethernet address, got another one, '2:2:2:2:2:2'",
            ]
        );
        assert!(configure(&CLASS, "").is_ok());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_leave_or_are_counted(
            frames in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..64)), 1..20)
        ) {
            let mut bench = bench("0.0.0.0/0 02-00-00-00-00-0B", 1);
            let mut given = 0;
            for (plausible, mut frame) in frames {
                if plausible && frame.len() >= 22 {
                    frame[12..22].copy_from_slice(&REQUEST[12..22]);
                }
                bench.push("in0", &[&frame]);
                given += 1;
            }
            let dropped: u64 = bench.stats("e").dropped();
            let left = bench.taken("out0");
            prop_assert_eq!(left.len() as u64 + dropped, given);
            for frame in left {
                prop_assert_eq!(frame.len(), FRAME_LEN);
                let reply = arp_frame::parse(&frame).unwrap();
                prop_assert_eq!((reply.operation, reply.sender_mac), (ArpOperation::REPLY, PEER_MAC));
            }
        }
    }
}
