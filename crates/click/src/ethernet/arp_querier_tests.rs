//! Tests of `ARPQuerier`: what it sends, what waits, what it learns, and what two copies tell each other.

use std::collections::HashMap;

use graph::setup::Shared;
use graph::testing::{Bench, configure};
use proptest::prelude::*;

use super::super::arp_frame::tests::{OUR_IP, OUR_MAC, PEER_IP, PEER_MAC, REPLY, REQUEST};
use super::*;
use elements::ethernet::header;

const MS: u64 = 1_000_000;

fn bench(arguments: &str) -> Bench {
    let text = format!("ARPQuerier(192.0.2.1/24, 02-00-00-00-00-0A{arguments})");
    Bench::element(&crate::registry(), &text, 2, 2)
}

fn send_to(bench: &mut Bench, input: &str, next_hop: Ipv4Addr, payloads: &[&[u8]]) {
    let packets = payloads
        .iter()
        .map(|payload| {
            let mut packet = bench.packet(payload);
            packet.annotations_mut().set_destination_ip(next_hop.to_bits());
            packet
        })
        .collect();
    bench.push_packets(input, packets);
}

fn framed(destination: MacAddr, payload: &[u8]) -> Vec<u8> {
    [&header::bytes(destination, OUR_MAC, 0x0800)[..], payload].concat()
}

fn reply_from(ip: Ipv4Addr, mac: MacAddr) -> Vec<u8> {
    let reply = ArpRepr::request(OUR_MAC, OUR_IP, ip).reply(mac);
    arp_frame::build(&reply, OUR_MAC).to_vec()
}

#[test]
fn packets_wait_for_the_reply_and_leave_in_order() {
    let mut bench = bench("");
    send_to(&mut bench, "in0", PEER_IP, &[b"one", b"two"]);
    send_to(&mut bench, "in0", PEER_IP, &[b"three"]);
    assert_eq!(bench.taken("out1"), [REQUEST.to_vec()]);
    assert!(bench.taken("out0").is_empty());
    assert_eq!(bench.read("e.length"), "3");
    bench.push("in1", &[&REPLY]);
    assert_eq!(bench.taken("out0"), [&b"one"[..], b"two", b"three"].map(|p| framed(PEER_MAC, p)));
    send_to(&mut bench, "in0", PEER_IP, &[b"four"]);
    let packets = bench.taken_packets("out0");
    assert_eq!(packets[0].data(), framed(PEER_MAC, b"four"));
    assert_eq!(packets[0].link_offset(), Some(0));
    assert!(bench.taken("out1").is_empty());
    assert_eq!(bench.read("e.table"), "192.0.2.2 1 02-00-00-00-00-0B 0.000000\n");
    assert_eq!(bench.read("e.stats"), "0 packets killed\n1 ARP queries sent\n");
    assert_eq!(bench.read("e.length"), "0");
    assert_eq!(bench.read("e.responses"), "1");
}

#[test]
fn with_one_output_queries_leave_by_it() {
    let mut bench = Bench::element(&crate::registry(), "ARPQuerier(192.0.2.1, 02-00-00-00-00-0A)", 2, 1);
    send_to(&mut bench, "in0", PEER_IP, &[b"x"]);
    assert_eq!(bench.taken("out0"), [REQUEST.to_vec()]);
}

#[test]
fn known_and_unknown_next_hops_in_one_batch() {
    let mut bench = bench("");
    bench.write("e.insert", "192.0.2.2 02-00-00-00-00-0B").unwrap();
    let packets = (0..6u8)
        .map(|number| {
            let mut packet = bench.packet(&[number]);
            let last = if number % 2 == 0 { 2 } else { 3 };
            packet.annotations_mut().set_destination_ip(u32::from_be_bytes([192, 0, 2, last]));
            packet
        })
        .collect();
    bench.push_packets("in0", packets);
    assert_eq!(bench.taken("out0"), [0, 2, 4].map(|number| framed(PEER_MAC, &[number])));
    assert_eq!(bench.taken("out1").len(), 1);
    let other = MacAddr([2, 0, 0, 0, 0, 12]);
    bench.push("in1", &[&reply_from(Ipv4Addr::new(192, 0, 2, 3), other)]);
    assert_eq!(bench.taken("out0"), [1, 3, 5].map(|number| framed(other, &[number])));
}

#[test]
fn special_addresses() {
    let mut bench = bench("");
    let group = MacAddr([1, 0, 0x5e, 1, 2, 3]);
    for (next_hop, mac) in [
        (Ipv4Addr::BROADCAST, MacAddr::BROADCAST),
        (Ipv4Addr::new(192, 0, 2, 255), MacAddr::BROADCAST),
        (Ipv4Addr::new(239, 129, 2, 3), group),
    ] {
        send_to(&mut bench, "in0", next_hop, &[b"x"]);
        assert_eq!(bench.taken("out0"), [framed(mac, b"x")], "{next_hop}");
    }
    for _ in 0..2 {
        send_to(&mut bench, "in0", Ipv4Addr::UNSPECIFIED, &[b"x", b"y"]);
    }
    assert_eq!(bench.drops("e", "no next hop address"), 4);
    assert_eq!(bench.messages(), ["e: would query for 0.0.0.0; missing destination IP address annotation?"]);
    assert!(bench.taken("out1").is_empty());
    assert_eq!(bench.read("e.broadcast"), "192.0.2.255");
    bench.write("e.broadcast", "192.0.2.127").unwrap();
    send_to(&mut bench, "in0", Ipv4Addr::new(192, 0, 2, 127), &[b"x"]);
    assert_eq!(bench.taken("out0").len(), 1);
}

#[test]
fn queries_are_repeated_once_a_second_and_packets_time_out() {
    let mut bench = bench("");
    send_to(&mut bench, "in0", PEER_IP, &[b"one"]);
    assert_eq!(bench.taken("out1").len(), 1);
    bench.advance_ns(999 * MS);
    send_to(&mut bench, "in0", PEER_IP, &[b"two"]);
    assert_eq!(bench.taken("out1").len(), 0);
    bench.advance_ns(MS);
    assert_eq!(bench.taken("out1"), [REQUEST.to_vec()]);
    bench.advance_ns(1000 * MS);
    assert_eq!(bench.taken("out1").len(), 1);
    bench.advance_ns(998 * MS);
    assert_eq!(bench.drops("e", "ARP timeout"), 0);
    bench.advance_ns(3 * MS);
    assert_eq!(bench.drops("e", "ARP timeout"), 1);
    // The second packet still waits, and may still get its answer.
    bench.push("in1", &[&REPLY]);
    assert_eq!(bench.taken("out0"), [framed(PEER_MAC, b"two")]);
    bench.taken("out1");
    bench.advance_ns(2000 * MS);
    assert!(bench.taken("out1").is_empty());
}

#[test]
fn packets_without_an_answer_leave_by_output_2() {
    let text = "ARPQuerier(192.0.2.1/24, 02-00-00-00-00-0A)";
    let mut bench = Bench::element(&crate::registry(), text, 2, 3);
    send_to(&mut bench, "in0", PEER_IP, &[b"one"]);
    assert_eq!(bench.taken("out1"), [REQUEST.to_vec()]);
    bench.advance_ns(3_001 * MS);
    assert_eq!(bench.taken("out2"), [b"one"]);
    assert_eq!((bench.drops("e", "ARP timeout"), bench.read("e.length")), (0, "0".into()));
    assert_eq!(bench.taken("out1").len(), 2);
    assert_eq!(bench.read("e.stats"), "0 packets killed\n3 ARP queries sent\n");
}

#[test]
fn entries_are_polled_then_expire() {
    let mut bench = bench(", TIMEOUT 10, POLL_TIMEOUT 4");
    bench.write("e.insert", "192.0.2.2 02-00-00-00-00-0B").unwrap();
    bench.advance_ns(3_999 * MS);
    send_to(&mut bench, "in0", PEER_IP, &[b"x"]);
    assert!(bench.taken("out1").is_empty());
    bench.advance_ns(MS);
    send_to(&mut bench, "in0", PEER_IP, &[b"x", b"y"]);
    let mut poll = REQUEST.to_vec();
    poll[..6].copy_from_slice(&PEER_MAC.0);
    assert_eq!(bench.taken("out1"), [&poll[..]]);
    bench.advance_ns(500 * MS);
    bench.push("in1", &[&REPLY]);
    bench.advance_ns(3_999 * MS);
    send_to(&mut bench, "in0", PEER_IP, &[b"x"]);
    assert!(bench.taken("out1").is_empty());
    assert_eq!(bench.taken("out0").len(), 4);
    bench.advance_ns(6_000 * MS);
    assert_eq!(bench.read("e.count"), "1");
    send_to(&mut bench, "in0", PEER_IP, &[b"polled"]);
    assert_eq!((bench.taken("out0").len(), bench.taken("out1").len()), (1, 1));
    bench.advance_ns(MS);
    send_to(&mut bench, "in0", PEER_IP, &[b"expired"]);
    assert_eq!(bench.taken("out0").len(), 0);
    bench.advance_ns(1_000 * MS);
    assert_eq!(bench.taken("out1"), [REQUEST.to_vec()]);
    bench.push("in1", &[&REPLY]);
    assert_eq!(bench.taken("out0"), [framed(PEER_MAC, b"expired")]);
}

#[test]
fn what_waits_for_an_expired_entry_does_not_leave_on_news_of_another() {
    let mut bench = bench(", TIMEOUT 2, POLL_TIMEOUT 0");
    bench.write("e.insert", "192.0.2.2 02-00-00-00-00-0B").unwrap();
    bench.advance_ns(2_000 * MS);
    send_to(&mut bench, "in0", PEER_IP, &[b"x"]);
    bench.write("e.insert", "192.0.2.3 02-00-00-00-00-0C").unwrap();
    assert!(bench.taken("out0").is_empty());
    bench.push("in1", &[&REPLY]);
    assert_eq!(bench.taken("out0"), [framed(PEER_MAC, b"x")]);
}

#[test]
fn broadcast_polls() {
    let mut bench = bench(", POLL_TIMEOUT 1, BROADCAST_POLL true");
    bench.write("e.insert", "192.0.2.2 02-00-00-00-00-0B").unwrap();
    bench.advance_ns(1_000 * MS);
    send_to(&mut bench, "in0", PEER_IP, &[b"x"]);
    assert_eq!(bench.taken("out1"), [REQUEST.to_vec()]);
}

#[test]
fn capacities() {
    let mut bench = bench(", CAPACITY 3, ENTRY_PACKET_CAPACITY 2");
    send_to(&mut bench, "in0", PEER_IP, &[b"1", b"2", b"3"]);
    assert_eq!((bench.read("e.length"), bench.drops("e", "ARP queue full")), ("2".into(), 1));
    send_to(&mut bench, "in0", Ipv4Addr::new(192, 0, 2, 3), &[b"4", b"5"]);
    assert_eq!((bench.read("e.length"), bench.drops("e", "ARP queue full")), ("3".into(), 2));
    bench.push("in1", &[&REPLY]);
    assert_eq!(bench.taken("out0"), [framed(PEER_MAC, b"3")]);
    assert_eq!(bench.read("e.stats"), "2 packets killed\n2 ARP queries sent\n");
}

#[test]
fn the_only_packet_of_a_line_makes_room_without_a_second_query() {
    let mut bench = bench(", ENTRY_PACKET_CAPACITY 1");
    send_to(&mut bench, "in0", PEER_IP, &[b"1", b"2"]);
    send_to(&mut bench, "in0", PEER_IP, &[b"3"]);
    assert_eq!(bench.taken("out1").len(), 1);
    bench.push("in1", &[&REPLY]);
    assert_eq!(bench.taken("out0"), [framed(PEER_MAC, b"3")]);
}

#[test]
fn handlers_change_the_table() {
    let mut bench = bench("");
    send_to(&mut bench, "in0", PEER_IP, &[b"x"]);
    bench.write("e.insert", " 192.0.2.2  02:00:00:00:00:0b ").unwrap();
    assert_eq!(bench.taken("out0"), [framed(PEER_MAC, b"x")]);
    bench.advance_ns(1_500 * MS);
    assert_eq!(bench.read("e.table"), "192.0.2.2 1 02-00-00-00-00-0B 1.500000\n");
    bench.write("e.delete", "192.0.2.2").unwrap();
    assert_eq!(bench.read("e.count"), "0");
    send_to(&mut bench, "in0", PEER_IP, &[b"y"]);
    assert_eq!(bench.read("e.table"), "192.0.2.2 0 FF-FF-FF-FF-FF-FF 0.000000\n");
    bench.write("e.clear", "").unwrap();
    assert_eq!((bench.read("e.table"), bench.read("e.length")), (String::new(), "0".into()));
    assert_eq!(bench.read("e.stats"), "0 packets killed\n0 ARP queries sent\n");
    assert_eq!(bench.drops("e", "ARP table cleared"), 1);
    for wrong in ["192.0.2.2", "192.0.2.2 x", "x 02-00-00-00-00-0B", "192.0.2.2 FF-FF-FF-FF-FF-FF"] {
        assert!(bench.write("e.insert", wrong).is_err(), "{wrong}");
    }
    bench.write("e.ipaddr", "192.0.2.9").unwrap();
    bench.taken("out1");
    send_to(&mut bench, "in0", PEER_IP, &[b"y"]);
    assert_eq!(bench.taken("out1")[0][28..32], [192, 0, 2, 9]);
    bench.write("e.ipaddr", "0.0.0.0").unwrap();
    send_to(&mut bench, "in0", PEER_IP, &[b"y"]);
    assert_eq!(bench.drops("e", "no own IP address"), 1);
}

#[test]
fn what_nobody_asked_for_is_not_learned() {
    let mut bench = bench("");
    bench.push("in1", &[&REPLY]);
    assert_eq!(bench.read("e.count"), "0");
    assert_eq!(bench.drops("e", "unsolicited ARP packet"), 1);
    send_to(&mut bench, "in0", PEER_IP, &[b"x"]);
    for (mac, reason) in [
        (MacAddr::BROADCAST, "ARP sender is not a unicast address"),
        (MacAddr([1, 0, 0x5e, 0, 0, 1]), "ARP sender is not a unicast address"),
        (MacAddr::ZERO, "ARP sender is not a unicast address"),
    ] {
        let before = bench.drops("e", reason);
        bench.push("in1", &[&reply_from(PEER_IP, mac)]);
        assert_eq!(bench.drops("e", reason), before + 1);
    }
    bench.push("in1", &[&REPLY[..41], b"", &[0; 60]]);
    assert_eq!(bench.drops("e", "truncated ARP packet"), 1);
    assert_eq!(bench.drops("e", "truncated Ethernet header"), 1);
    assert_eq!(bench.drops("e", "not an ARP packet"), 1);
    assert_eq!(bench.read("e.length"), "1");
    // RFC 826: a known neighbour may say that it moved, in a request too.
    bench.push("in1", &[&REPLY]);
    bench.taken("out0");
    let moved = MacAddr([2, 0, 0, 0, 0, 99]);
    bench.push("in1", &[&arp_frame::build(&ArpRepr::request(moved, PEER_IP, OUR_IP), MacAddr::BROADCAST)]);
    send_to(&mut bench, "in0", PEER_IP, &[b"x"]);
    assert_eq!(bench.taken("out0"), [framed(moved, b"x")]);
}

#[test]
fn an_address_conflict_is_reported_now_and_then() {
    let mut bench = bench("");
    let rival = reply_from(OUR_IP, PEER_MAC);
    let echo = reply_from(OUR_IP, OUR_MAC);
    bench.push("in1", &[&echo]);
    assert!(bench.messages().is_empty());
    let said = "e: address conflict: 02-00-00-00-00-0B uses our address 192.0.2.1";
    bench.push("in1", &[&rival, &rival]);
    bench.push("in1", &[&rival]);
    assert_eq!(bench.messages(), [said]);
    bench.advance_ns(10_000 * MS);
    bench.push("in1", &[&rival]);
    assert_eq!(bench.messages(), [said]);
    assert_eq!(bench.drops("e", "ARP packet with our own IP address"), 5);
}

#[test]
fn no_head_room() {
    let mut bench = bench("");
    bench.write("e.insert", "192.0.2.2 02-00-00-00-00-0B").unwrap();
    let full = |bench: &mut Bench, next_hop: Ipv4Addr| {
        let mut packet = bench.packet(b"x");
        packet.prepend(packet.headroom() - 13).unwrap();
        packet.annotations_mut().set_destination_ip(next_hop.to_bits());
        bench.push_packets("in0", vec![packet]);
    };
    full(&mut bench, PEER_IP);
    full(&mut bench, Ipv4Addr::BROADCAST);
    let late = Ipv4Addr::new(192, 0, 2, 3);
    full(&mut bench, late);
    bench.push("in1", &[&reply_from(late, PEER_MAC)]);
    assert_eq!(bench.drops("e", "no room for an Ethernet header"), 3);
    assert!(bench.taken("out0").is_empty());
}

#[test]
fn copies_share_what_they_learn() {
    let config = "e :: ARPQuerier(192.0.2.1, 02-00-00-00-00-0A);
        in0 :: TestInput -> [0]e; in1 :: TestInput -> [1]e;
        e[0] -> out0 :: TestOutput; e[1] -> out1 :: TestOutput";
    let shared = Shared::default();
    let copy = || Bench::try_new(&crate::registry(), config, 32, &shared).unwrap();
    let (mut first, mut second) = (copy(), copy());
    send_to(&mut first, "in0", PEER_IP, &[b"1a", b"1b"]);
    send_to(&mut second, "in0", PEER_IP, &[b"2a"]);
    // The second copy sees that a query is under way. Outputs of both copies are kept together.
    assert_eq!(first.taken("out1"), [REQUEST.to_vec()]);
    assert_eq!(first.read("e.length"), "3");
    second.push("in1", &[&REPLY]);
    assert_eq!(first.taken("out0"), [framed(PEER_MAC, b"2a")]);
    // A copy with nothing to do but wait finds out within a millisecond,
    first.advance_ns(MS);
    assert_eq!(first.taken("out0"), [b"1a", b"1b"].map(|payload| framed(PEER_MAC, payload)));
    // a copy with packets at once.
    first.write("e.insert", "192.0.2.3 02-00-00-00-00-0C").unwrap();
    send_to(&mut second, "in0", Ipv4Addr::new(192, 0, 2, 3), &[b"x"]);
    assert_eq!(first.taken("out0"), [framed(MacAddr([2, 0, 0, 0, 0, 12]), b"x")]);
    second.write("e.clear", "").unwrap();
    send_to(&mut first, "in0", PEER_IP, &[b"y"]);
    assert!(first.taken("out0").is_empty());
    assert_eq!(first.taken("out1").len(), 1);
    // A third copy that starts late knows what the others know.
    second.push("in1", &[&REPLY]);
    let mut third = copy();
    send_to(&mut third, "in0", PEER_IP, &[b"z"]);
    assert_eq!(third.taken("out0"), [framed(PEER_MAC, b"z")]);
}

#[test]
fn mistakes() {
    let errors = |config| configure(&CLASS, config).unwrap_err();
    let name = "IP: expected IP address or prefix, got 'eth0'; expected ARPQuerier(IP, ETH), or a name from AddressInfo that stands for both";
    assert_eq!(errors("eth0"), [name]);
    assert_eq!(errors("10.0.0.1"), ["missing argument 2: ETH (Ethernet address) is required"]);
    assert_eq!(errors("10.0.0.1, 02-00-00-00-00-0A, TABLE t"), ["TABLE: no element named 't'"]);
    assert!(errors("10.0.0.1, FF-FF-FF-FF-FF-FF")[0].starts_with("ETH: expected the Ethernet address"));
    assert!(errors("10.0.0.1, 02-00-00-00-00-0A, TIMEOUT never")[0].starts_with("TIMEOUT: expected time"));
    assert!(configure(&CLASS, "10.0.0.1/31, 0:0:c0:ae:67:ef, CAPACITY 5, BROADCAST 10.0.0.9").is_ok());
}

#[derive(Clone, Debug)]
enum Act {
    Send(u8, u8),
    Reply(u8),
    Bytes(usize, Vec<u8>),
    Pass(u64),
    Delete(u8),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0u8..12, 1u8..40).prop_map(|(host, count)| Act::Send(host, count)),
        4 => (0u8..12).prop_map(Act::Reply),
        1 => (0usize..2, proptest::collection::vec(any::<u8>(), 0..60)).prop_map(|(input, b)| Act::Bytes(input, b)),
        2 => (0u64..2500).prop_map(Act::Pass),
        1 => (0u8..12).prop_map(Act::Delete),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever happens: nothing panics, packets to a host leave in order, and none is lost uncounted.
    #[test]
    fn no_packet_is_lost_uncounted(acts in proptest::collection::vec(act(), 1..60), capacity in 0usize..60) {
        let mut bench = bench(&format!(", CAPACITY {capacity}, TIMEOUT 3, POLL_TIMEOUT 1"));
        let host = |number: u8| Ipv4Addr::new(192, 0, 2, 100 + number);
        let mac = |number: u8| MacAddr([2, 0, 0, 0, 1, number]);
        let (mut number, mut given, mut arp) = (0u32, 0u64, 0u64);
        let mut last: HashMap<u8, u32> = HashMap::new();
        let mut left = 0u64;
        for act in acts {
            match act {
                Act::Send(to, count) => {
                    let payloads: Vec<[u8; 4]> =
                        (0..u32::from(count)).map(|offset| (number + offset).to_be_bytes()).collect();
                    let views: Vec<&[u8]> = payloads.iter().map(|payload| &payload[..]).collect();
                    send_to(&mut bench, "in0", host(to), &views);
                    number += u32::from(count);
                    given += u64::from(count);
                }
                Act::Reply(from) => {
                    bench.push("in1", &[&reply_from(host(from), mac(from))]);
                    arp += 1;
                }
                Act::Bytes(0, bytes) => {
                    bench.push("in0", &[&bytes]);
                    given += 1;
                }
                Act::Bytes(_, bytes) => {
                    bench.push("in1", &[&bytes]);
                    arp += 1;
                }
                Act::Pass(ms) => bench.advance_ns(ms * MS),
                Act::Delete(which) => bench.write("e.delete", &host(which).to_string()).unwrap(),
            }
            for frame in bench.taken("out0") {
                left += 1;
                let to = frame[5];
                prop_assert_eq!(&frame[..], &framed(mac(to), &frame[14..]));
                let number = u32::from_be_bytes([frame[14], frame[15], frame[16], frame[17]]);
                let before = last.insert(to, number);
                prop_assert!(before.is_none_or(|before| before < number));
            }
            let waiting: u64 = bench.read("e.length").parse().unwrap();
            prop_assert!(capacity == 0 || waiting <= capacity as u64);
            let dropped: u64 = ["ARP queue full", "ARP timeout", "no next hop address"]
                .iter().map(|reason| bench.drops("e", reason)).sum();
            prop_assert_eq!(given, left + waiting + dropped);
        }
        let responses: u64 = bench.read("e.responses").parse().unwrap();
        prop_assert_eq!(responses, arp);
    }
}
