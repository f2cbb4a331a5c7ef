//! =c
//! IP6NDSolicitor(IP6, ETH, I<keywords> CAPACITY, ENTRY_CAPACITY, ENTRY_PACKET_CAPACITY, TIMEOUT, POLL_TIMEOUT)
//!
//! =s ip6
//! encapsulates IPv6 packets in Ethernet headers found via neighbour discovery
//!
//! =d
//! Uses neighbour discovery (RFC 4861) on an interface with the address IP6 and the Ethernet
//! address ETH, as ARPQuerier uses ARP. Input 0 takes IPv6 packets whose destination annotation is
//! the next hop. If the Ethernet address of the next hop is known, the packet gets an Ethernet
//! header and leaves by output 0. Otherwise the packet waits, and a neighbour solicitation is sent.
//! The solicitation leaves by output 1 if that is in use, else by output 0. Input 1 takes neighbour
//! advertisements with their Ethernet header. When one answers a solicitation, the packets that
//! wait for it leave, in order.
//!
//! Multicast packets go to the group's Ethernet address (RFC 2464, 7) without a solicitation, and
//! packets for :: are dropped.
//!
//! At most one solicitation a second is sent for an address, and repeated while packets wait. A
//! packet waits at most three seconds. Then it leaves by output 2, as it came, if that is
//! connected, and is dropped otherwise. Output 2 is for an ICMP6Error that reports to the packet's
//! sender that the address is unreachable.
//!
//! Advertisements must follow RFC 4861, 7.1.2. Only those of neighbours that were asked for, or
//! that are known already, are learned. Their flags decide whether they change the known address
//! (7.2.5). A neighbour with our own address is reported as a conflict, at most once in ten
//! seconds.
//!
//! Keyword arguments are those of ARPQuerier:
//!
//! =over 8
//!
//! =item CAPACITY
//!
//! Most packets that wait, on all workers together; 0 sets no limit. When there are more, the oldest one is
//! dropped. 2048 by default.
//!
//! =item ENTRY_CAPACITY
//!
//! Most addresses in the table, those without an answer included; 0 sets no limit. Addresses
//! without an answer make room first, then the address whose neighbour has been silent for longest.
//! So a scan of a /64 costs no neighbour its place. 65536 by default.
//!
//! =item ENTRY_PACKET_CAPACITY
//!
//! Most packets that wait for one address, on each worker; 0 sets no limit, and the default.
//!
//! =item TIMEOUT
//!
//! How long an address is known after its last answer; 0 is for ever. 40 seconds by default.
//!
//! =item POLL_TIMEOUT
//!
//! How long after its last answer a neighbour that is in use is asked again, at its Ethernet address; 0 is
//! never. 30 seconds by default (RFC 4861, 10: REACHABLE_TIME).
//!
//! =back
//!
//! All workers share one table. Each has its own copy of what it needs to forward, so that packets cost no
//! lock.
//!
//! Different from Click: packets wait for the answer, solicitations are repeated, and
//! advertisements are checked. Output 2, input 1's rules and all keywords are additions.
//!
//! Packets are dropped as `neighbour discovery queue full`, `neighbour discovery timeout`,
//! `neighbour table cleared`, `no next hop address`, `no room for an Ethernet header`,
//! `no own IP address`, `unsolicited neighbour advertisement`,
//! `neighbour advertisement without a link-layer address`, `neighbour is not at a unicast address`,
//! `neighbour advertisement with our own IP address`, `not a neighbour discovery message`,
//! `not a neighbour advertisement`, `solicited advertisement to a group`, or by the fault of the
//! message.
//!
//! =e
//!   c :: Classifier(12/86dd 20/3aff 54/88, 12/86dd, -);
//!   nd :: IP6NDSolicitor(2001:db8::1, 00-00-C0-AE-67-EF);
//!   c[0] -> [1]nd;
//!   c[1] -> Strip(14) -> CheckIP6Header -> [0]nd -> ToDevice(eth0);
//!
//! =a IP6NDAdvertiser, ARPQuerier, EtherEncap

use std::net::Ipv6Addr;

use graph::{Class, ConfigError, Element, Setup};
use packet::wire::ethernet::{EtherType, MacAddr};
use packet::wire::icmpv6::{Icmpv6Message, solicited_node};

use super::nd_frame::{FRAME_LEN, NdFrame};
use super::neighbour_table::Claim;
use super::querier::{Options, Protocol, Querier, Words};

pub(crate) static CLASS: Class = Class {
    name: "IP6NDSolicitor",
    ports: "2/1-3",
    processing: Class::PUSH,
    flow: "xy/x",
    handlers: &[
        Querier::<NeighbourDiscovery>::OWN_ADDRESS,
        Querier::<NeighbourDiscovery>::TABLE,
        Querier::<NeighbourDiscovery>::STATS,
        Querier::<NeighbourDiscovery>::QUERIES,
        Querier::<NeighbourDiscovery>::RESPONSES,
        Querier::<NeighbourDiscovery>::COUNT,
        Querier::<NeighbourDiscovery>::LENGTH,
        Querier::<NeighbourDiscovery>::INSERT,
        Querier::<NeighbourDiscovery>::DELETE,
        Querier::<NeighbourDiscovery>::CLEAR,
    ],
    manual: graph::manual!("ip6_nd_solicitor.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let arguments = &mut setup.arguments;
    let options = Options::read(arguments, 40, 30)?;
    let own: Ipv6Addr = arguments.required("IP6")?;
    let mac: MacAddr = arguments.required("ETH")?;
    Querier::make(setup, NeighbourDiscovery, (own.to_bits(), mac), &options, None)
}

struct NeighbourDiscovery;

impl Protocol for NeighbourDiscovery {
    type Address = u128;
    type Query = [u8; FRAME_LEN];
    const ETHERTYPE: EtherType = EtherType::IPV6;
    const WORDS: Words = Words {
        queries: "neighbour solicitations",
        queue_full: "neighbour discovery queue full",
        timeout: "neighbour discovery timeout",
        cleared: "neighbour table cleared",
        no_frame: "no frame for a neighbour solicitation",
        not_unicast: "neighbour is not at a unicast address",
        own_address: "neighbour advertisement with our own IP address",
        unsolicited: "unsolicited neighbour advertisement",
        no_address: "neighbour advertisement without a link-layer address",
    };

    fn group(&self, address: u128) -> Option<MacAddr> {
        let address = Ipv6Addr::from_bits(address);
        address.is_multicast().then(|| MacAddr::for_ipv6_multicast(address))
    }

    fn query(&self, own: (u128, MacAddr), address: u128, known: Option<MacAddr>) -> [u8; FRAME_LEN] {
        let target = Ipv6Addr::from_bits(address);
        // RFC 4861, 4.3: to "either the solicited-node multicast address corresponding to the target address,
        // or the target address".
        let (link_destination, destination) = match known {
            Some(mac) => (mac, target),
            None => (MacAddr::for_ipv6_multicast(solicited_node(target)), solicited_node(target)),
        };
        let solicitation = NdFrame {
            link: (own.1, link_destination),
            source: Ipv6Addr::from_bits(own.0),
            destination,
            message: Icmpv6Message::NeighbourSolicitation { target },
            mac: Some(own.1),
        };
        // With its option it is as long as the frame.
        solicitation.build().0
    }

    fn read(&self, frame: &[u8]) -> Result<Claim<u128>, &'static str> {
        let frame = NdFrame::parse(frame)?;
        let Icmpv6Message::NeighbourAdvertisement { solicited, override_cache, target, .. } = frame.message
        else {
            return Err("not a neighbour advertisement");
        };
        // RFC 4861, 7.1.2: "If the IP Destination Address is a multicast address the Solicited flag is zero."
        if solicited && frame.destination.is_multicast() {
            return Err("solicited advertisement to a group");
        }
        let (overrides, confirms) = (override_cache, solicited);
        Ok(Claim { address: target.to_bits(), mac: frame.mac, overrides, confirms })
    }
}

#[cfg(test)]
mod tests {
    use elements::ethernet::header;
    use graph::testing::{Bench, configure};

    use super::super::nd_frame::tests::{
        ADVERTISEMENT, OUR_IP, OUR_MAC, PEER_IP, PEER_MAC, SOLICITATION, advertisement, bytes,
    };
    use super::*;

    const MS: u64 = 1_000_000;

    fn bench(outputs: usize) -> Bench {
        let text = "IP6NDSolicitor(2001:db8::1, 02-00-00-00-00-0A)";
        Bench::element(&crate::registry(), text, 2, outputs)
    }

    fn send_to(bench: &mut Bench, next_hop: Ipv6Addr, payload: &[u8]) {
        let mut packet = bench.packet(payload);
        packet.annotations_mut().set_destination_ip6(next_hop.to_bits());
        bench.push_packets("in0", vec![packet]);
    }

    fn framed(destination: MacAddr, payload: &[u8]) -> Vec<u8> {
        [&header::bytes(destination, OUR_MAC, 0x86dd)[..], payload].concat()
    }

    #[test]
    fn packets_wait_for_the_advertisement_and_leave_in_order() {
        let mut bench = bench(2);
        send_to(&mut bench, PEER_IP, b"one");
        send_to(&mut bench, PEER_IP, b"two");
        assert_eq!(bench.taken("out1"), [SOLICITATION.to_vec()]);
        bench.push("in1", &[&ADVERTISEMENT]);
        assert_eq!(bench.taken("out0"), [&b"one"[..], b"two"].map(|payload| framed(PEER_MAC, payload)));
        send_to(&mut bench, PEER_IP, b"three");
        assert_eq!(bench.taken("out0"), [framed(PEER_MAC, b"three")]);
        assert_eq!(bench.read("e.table"), "2001:db8::2 1 02-00-00-00-00-0B 0.000000\n");
        assert_eq!(bench.read("e.stats"), "0 packets killed\n1 neighbour solicitations sent\n");
    }

    #[test]
    fn three_solicitations_then_unreachable() {
        let mut bench = bench(3);
        send_to(&mut bench, PEER_IP, b"one");
        bench.advance_ns(2_999 * MS);
        assert_eq!(bench.taken("out1").len(), 3);
        assert_eq!(bench.taken("out2").len(), 0);
        bench.advance_ns(2 * MS);
        assert_eq!(bench.taken("out2"), [b"one"]);
        let mut bench = super::tests::bench(1);
        send_to(&mut bench, PEER_IP, b"one");
        bench.advance_ns(3_001 * MS);
        assert_eq!(bench.taken("out0").len(), 3);
        assert_eq!(bench.drops("e", "neighbour discovery timeout"), 1);
    }

    #[test]
    fn groups_and_nobody() {
        let mut bench = bench(2);
        send_to(&mut bench, "ff02::1:2".parse().unwrap(), b"x");
        assert_eq!(bench.taken("out0"), [framed(MacAddr([0x33, 0x33, 0, 1, 0, 2]), b"x")]);
        send_to(&mut bench, Ipv6Addr::UNSPECIFIED, b"x");
        assert_eq!(bench.drops("e", "no next hop address"), 1);
        assert_eq!(bench.messages(), ["e: would query for ::; missing destination IP address annotation?"]);
        assert!(bench.taken("out1").is_empty());
    }

    #[test]
    fn a_neighbour_in_use_is_asked_again_at_its_address() {
        let mut bench = bench(2);
        bench.write("e.insert", "2001:db8::2 02-00-00-00-00-0B").unwrap();
        bench.advance_ns(30_000 * MS);
        send_to(&mut bench, PEER_IP, b"x");
        let poll = NdFrame::parse(&bench.taken("out1")[0]).unwrap();
        assert_eq!((poll.link, poll.destination), ((OUR_MAC, PEER_MAC), PEER_IP));
        assert_eq!(bench.taken("out0").len(), 1);
        bench.advance_ns(10_000 * MS);
        send_to(&mut bench, PEER_IP, b"x");
        assert_eq!(bench.taken("out0").len(), 0, "it is known no more");
    }

    /// RFC 4861, 7.2.5.
    #[test]
    fn flags_of_advertisements() {
        let moved = MacAddr([2, 0, 0, 0, 0, 99]);
        let with = |override_cache, solicited, mac| {
            let mut frame = advertisement(PEER_IP, mac);
            frame.message = Icmpv6Message::NeighbourAdvertisement {
                router: false,
                solicited,
                override_cache,
                target: PEER_IP,
            };
            bytes(&frame)
        };
        let mut bench = bench(2);
        send_to(&mut bench, PEER_IP, b"x");
        bench.push("in1", &[&with(false, true, None)]);
        assert_eq!(bench.drops("e", "neighbour advertisement without a link-layer address"), 1);
        // What is not known yet is learned without the override flag too,
        bench.push("in1", &[&with(false, true, Some(PEER_MAC))]);
        assert_eq!(bench.taken("out0"), [framed(PEER_MAC, b"x")]);
        // what is known is changed only with it,
        bench.push("in1", &[&with(false, true, Some(moved))]);
        assert!(bench.read("e.table").contains("02-00-00-00-00-0B"));
        bench.push("in1", &[&with(true, true, Some(moved))]);
        assert!(bench.read("e.table").contains("02-00-00-00-00-63"));
        // and only a solicited one says that packets arrive.
        bench.advance_ns(20_000 * MS);
        bench.push("in1", &[&with(true, false, Some(moved))]);
        assert_eq!(bench.read("e.table"), "2001:db8::2 1 02-00-00-00-00-63 20.000000\n");
        bench.push("in1", &[&with(false, true, None)]);
        assert_eq!(bench.read("e.table"), "2001:db8::2 1 02-00-00-00-00-63 0.000000\n");
    }

    #[test]
    fn what_is_not_learned() {
        let mut bench = bench(2);
        bench.push("in1", &[&ADVERTISEMENT, &SOLICITATION, &[0; 60]]);
        let own = advertisement(OUR_IP, Some(PEER_MAC));
        let group = advertisement(PEER_IP, Some(MacAddr::BROADCAST));
        let mut to_all = advertisement(PEER_IP, Some(PEER_MAC));
        to_all.destination = "ff02::1".parse().unwrap();
        bench
            .push("in1", &[own, group, to_all].map(|frame| bytes(&frame)).each_ref().map(|frame| &frame[..]));
        for reason in [
            "unsolicited neighbour advertisement",
            "not a neighbour advertisement",
            "not a neighbour discovery message",
            "neighbour advertisement with our own IP address",
            "neighbour is not at a unicast address",
            "solicited advertisement to a group",
        ] {
            assert_eq!(bench.drops("e", reason), 1, "{reason}");
        }
        assert_eq!(bench.messages(), ["e: address conflict: 02-00-00-00-00-0B uses our address 2001:db8::1"]);
        assert_eq!((bench.read("e.count"), bench.read("e.responses")), ("0".into(), "6".into()));
    }

    #[test]
    fn mistakes() {
        assert!(configure(&CLASS, "2001:db8::1, 0:0:c0:ae:67:ef, CAPACITY 5, TIMEOUT 10").is_ok());
        assert!(configure(&CLASS, "10.0.0.1, 0:0:c0:ae:67:ef").is_err());
        assert!(configure(&CLASS, "2001:db8::1, 33:33:0:0:0:1").unwrap_err()[0].starts_with("ETH: "));
        assert!(configure(&CLASS, "2001:db8::1, 0:0:c0:ae:67:ef, BROADCAST 10.0.0.9").is_err());
    }
}
