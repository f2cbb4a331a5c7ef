//! =c
//! IP6NDAdvertiser(IP6/MASK [IP6/MASK...] ETH, ...)
//!
//! =s ip6
//! answers neighbour solicitations
//!
//! =d
//! Takes neighbour solicitations (RFC 4861) with their Ethernet header. A solicitation of an
//! address in one of the networks IP6/MASK is answered. The advertisement has ETH for the address,
//! and leaves by output 0. If several networks hold the address the longest one counts. An address
//! alone is one host. Larger networks make the router stand in for others, which their
//! advertisements show by a clear override flag (RFC 4861, 7.2.8). All other packets leave by
//! output 1, or are dropped if that is not in use.
//!
//! Solicitations must follow RFC 4861, 7.1.1. A solicitation from :: asks whether an address is
//! free (RFC 4862, 5.4). The answer that it is not free goes to all nodes.
//!
//! The answer is made of the solicitation: it goes back by the same port, and its other annotations
//! stay.
//!
//! Packets are dropped as `solicitation of another address`, `not a neighbour solicitation`,
//! `bad solicitation from the unspecified address`, `neighbour is not at a unicast address`,
//! `no room for a neighbour advertisement`, `not a neighbour discovery message`, or by the fault of
//! the message.
//!
//! Different from Click: a network without C</MASK> is one address, and what arrives is checked.
//!
//! =e
//! Answers for the router's two addresses on a link:
//!
//!   c :: Classifier(12/86dd 20/3aff 54/87, ...);
//!   c[0] -> IP6NDAdvertiser(fe80::1 2001:db8::1 00-00-C0-AE-67-EF) -> ToDevice(eth0);
//!
//! =a IP6NDSolicitor, ARPResponder

use std::net::Ipv6Addr;

use graph::Class;
use ipnet::Ipv6Net;
use packet::wire::ethernet::MacAddr;
use packet::wire::icmpv6::{Icmpv6Message, solicited_node};
use packet::{Packet, PacketType};

use super::address_owners::{AddressOwners, Answer, Responder};
use super::nd_frame::NdFrame;

pub(crate) static CLASS: Class = Class {
    name: "IP6NDAdvertiser",
    manual: graph::manual!("ip6_nd_advertiser.rs"),
    ..Responder::<NeighbourDiscovery>::CLASS
};

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

struct NeighbourDiscovery;

impl Answer for NeighbourDiscovery {
    type Network = Ipv6Net;
    const DOCS: [&'static str; 3] = [
        "The Ethernet address that is answered for the IPv6 address given as argument; empty if none.",
        "Takes one more argument of the form IP6/MASK [IP6/MASK...] ETH.",
        "Takes out the network given as IP6/MASK.",
    ];

    fn answer(owners: &AddressOwners, packet: &mut Packet) -> Result<(), &'static str> {
        let asked = NdFrame::parse(packet.data())?;
        let Icmpv6Message::NeighbourSolicitation { target } = asked.message else {
            return Err("not a neighbour solicitation");
        };
        // RFC 4861, 7.1.1: "If the IP source address is the unspecified address, the IP destination address
        // is a solicited-node multicast address" and "there is no source link-layer address option in the
        // message."
        let is_probe = asked.source.is_unspecified();
        if is_probe && (asked.destination != solicited_node(target) || asked.mac.is_some()) {
            return Err("bad solicitation from the unspecified address");
        }
        let asker = asked.mac.unwrap_or(asked.link.0);
        if asker.is_multicast() || asker == MacAddr::ZERO || asked.source.is_multicast() {
            return Err("neighbour is not at a unicast address");
        }
        let owner = owners.find(target.into()).ok_or("solicitation of another address")?;
        // RFC 4861, 7.2.4: "If the source of the solicitation is the unspecified address, the node MUST set
        // the Solicited flag to zero and multicast the advertisement to the all-nodes address."
        let (destination, link_destination) = if is_probe {
            (ALL_NODES, MacAddr::for_ipv6_multicast(ALL_NODES))
        } else {
            (asked.source, asker)
        };
        let answer = NdFrame {
            link: (owner.mac, link_destination),
            source: target,
            destination,
            message: Icmpv6Message::NeighbourAdvertisement {
                router: true,
                solicited: !is_probe,
                override_cache: owner.network.prefix_len() == owner.network.max_prefix_len(),
                target,
            },
            mac: Some(owner.mac),
        };
        let (bytes, len) = answer.build();
        packet.truncate(len);
        if packet.append(len - packet.len()).is_none() {
            return Err("no room for a neighbour advertisement");
        }
        packet.data_mut().copy_from_slice(&bytes[..len]);
        packet.set_packet_type(PacketType::Host);
        packet.set_link_header(0);
        packet.clear_network_header();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};
    use proptest::prelude::*;

    use super::super::nd_frame::tests::{
        ADVERTISEMENT, OUR_IP, OUR_MAC, PEER_IP, PEER_MAC, SOLICITATION, bytes, solicitation,
    };
    use super::*;

    fn bench(arguments: &str, outputs: usize) -> Bench {
        Bench::element(&crate::registry(), &format!("IP6NDAdvertiser({arguments})"), 1, outputs)
    }

    #[test]
    fn golden_answer() {
        let mut bench = bench("2001:db8::2 02-00-00-00-00-0B", 1);
        // One without its option is shorter than the answer, which goes to where it came from.
        let mut bare = solicitation(OUR_IP, PEER_IP);
        bare.mac = None;
        let padded = [&SOLICITATION[..], b"padding"].concat();
        bench.push("in0", &[&padded, &bytes(&bare)]);
        assert_eq!(bench.taken("out0"), [ADVERTISEMENT, ADVERTISEMENT]);
    }

    #[test]
    fn probes_are_answered_to_all_nodes() {
        let mut bench = bench("2001:db8::2 02-00-00-00-00-0B", 1);
        bench.push("in0", &[&bytes(&solicitation(Ipv6Addr::UNSPECIFIED, PEER_IP))]);
        let answer = NdFrame::parse(&bench.taken("out0")[0]).unwrap();
        assert_eq!(answer.destination, ALL_NODES);
        assert_eq!(answer.link, (PEER_MAC, MacAddr([0x33, 0x33, 0, 0, 0, 1])));
        let flags = Icmpv6Message::NeighbourAdvertisement {
            router: true,
            solicited: false,
            override_cache: true,
            target: PEER_IP,
        };
        assert_eq!((answer.message, answer.mac), (flags, Some(PEER_MAC)));
    }

    #[test]
    fn networks_are_answered_for_without_override() {
        let mut bench = bench("2001:db8::/64 02-00-00-00-00-0B", 1);
        bench.push("in0", &[&SOLICITATION]);
        assert_eq!(bench.taken("out0")[0][58], 0xc0);
        bench.write("e.add", "2001:db8::2 02-00-00-00-00-0C").unwrap();
        assert_eq!(bench.read("e.lookup 2001:db8::2"), "02-00-00-00-00-0C");
        let table = "2001:db8::2/128 02-00-00-00-00-0C\n2001:db8::/64 02-00-00-00-00-0B\n";
        assert_eq!(bench.read("e.table"), table);
        bench.write("e.remove", "2001:db8::/64").unwrap();
        assert_eq!(bench.read("e.lookup 2001:db8::3"), "");
    }

    #[test]
    fn what_is_not_answered() {
        let mut bench = bench("2001:db8::2 02-00-00-00-00-0B", 1);
        let other = solicitation(OUR_IP, OUR_IP);
        let mut probe = solicitation(Ipv6Addr::UNSPECIFIED, PEER_IP);
        probe.mac = Some(OUR_MAC);
        let mut direct = solicitation(Ipv6Addr::UNSPECIFIED, PEER_IP);
        direct.destination = PEER_IP;
        let mut group = solicitation(OUR_IP, PEER_IP);
        group.mac = Some(MacAddr::BROADCAST);
        for frame in [other, probe, direct, group] {
            bench.push("in0", &[&bytes(&frame)]);
        }
        let mut forwarded = SOLICITATION;
        forwarded[21] = 254;
        bench.push("in0", &[&ADVERTISEMENT, &forwarded, &SOLICITATION[..60]]);
        assert!(bench.taken("out0").is_empty());
        for (reason, count) in [
            ("solicitation of another address", 1),
            ("bad solicitation from the unspecified address", 2),
            ("neighbour is not at a unicast address", 1),
            ("not a neighbour solicitation", 1),
            ("neighbour discovery hop limit is not 255", 1),
            ("IPv6 payload length beyond the packet", 1),
        ] {
            assert_eq!(bench.drops("e", reason), count, "{reason}");
        }
        let mut bench = super::tests::bench("2001:db8::2 02-00-00-00-00-0B", 2);
        bench.push("in0", &[&ADVERTISEMENT]);
        assert_eq!(bench.taken("out1"), [ADVERTISEMENT]);
    }

    #[test]
    fn mistakes() {
        assert_eq!(
            configure(&CLASS, "10.0.0.1 1:1:1:1:1:1, 2001:db8::1").unwrap_err(),
            [
                "argument 1: expected IP/MASK or Ethernet address, got '10.0.0.1'",
                "argument 2: missing Ethernet address: expected 'IP/MASK ETH'"
            ]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Any bytes, and solicitations with any one byte changed, are answered correctly or counted.
        #[test]
        fn any_bytes_leave_or_are_counted(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            bytes in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let mut bench = bench("::/0 02-00-00-00-00-0B", 1);
            let mut frame = SOLICITATION.to_vec();
            for (at, value) in changes {
                let at = at.index(frame.len());
                frame[at] = value;
            }
            bench.push("in0", &[&frame, &bytes]);
            let dropped: u64 = bench.stats("e").dropped();
            let left = bench.taken("out0");
            prop_assert_eq!(left.len() as u64 + dropped, 2);
            for answer in left {
                let answer = NdFrame::parse(&answer).unwrap();
                prop_assert_eq!(answer.mac, Some(PEER_MAC));
            }
        }
    }
}
