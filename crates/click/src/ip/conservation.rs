//! No packet bytes make an element of this folder or of `icmp` panic, and none is lost uncounted.

use graph::testing::Bench;
use packet::PacketType;
use proptest::prelude::*;
use testbed::ipv4::any_packet;

/// Elements that give out what they take, or count it as dropped.
const ONE_FOR_ONE: [&str; 32] = [
    "CheckIPHeader",
    "CheckIPHeader(14)",
    "CheckIPHeader(INTERFACES 10.0.0.1/8 128.0.0.1/1)",
    "CheckIPHeader2",
    "CheckUDPHeader",
    "CheckTCPHeader",
    "CheckICMPHeader",
    "MarkIPHeader",
    "MarkIPHeader(1000000)",
    "StripIPHeader",
    "GetIPAddress(16)",
    "GetIPAddress(IP src)",
    "SetIPAddress(1.2.3.4)",
    "StoreIPAddress(1.2.3.4, 30)",
    "StoreIPAddress(1.2.3.4, src)",
    "StoreIPAddress(dst)",
    "DecIPTTL",
    "DecIPTTL(MULTICAST false)",
    "FixIPSrc(1.2.3.4)",
    "IPGWOptions(10.0.0.1)",
    "IPGWOptions(10.0.0.1, SOURCE_ROUTE true)",
    "DropBroadcasts",
    "SetIPChecksum",
    "SetIPDSCP(46)",
    "UDPIPEncap(1.0.0.1, 1, 2.0.0.2, 2)",
    "IPEncap(ipip, 1.0.0.1, DST_ANNO)",
    "IPPrint(CONTENTS hex)",
    "IPPrint(PAYLOAD ascii, ETHER true, ID true)",
    "ICMPPingResponder",
    "ICMPPingEncap(1.0.0.1, 2.0.0.2)",
    "ICMPError(1.0.0.1, timeexceeded, transit)",
    "ICMPError(1.0.0.1, parameterproblem, MTU 100)",
];

/// Elements that make several packets of one, or one of several.
const OTHERS: [&str; 4] =
    ["IPFragmenter(68)", "IPFragmenter(40, HONOR_DF false)", "IPReassembler", "IPReassembler(HIMEM 3000)"];

/// Where the header is said to be.
const MARKS: [&str; 3] = ["Null", "MarkIPHeader", "MarkIPHeader(3)"];

fn run(element: &str, mark: &str, packets: &[Vec<u8>], outputs: usize) -> (usize, u64) {
    let mark = if mark == "Null" { String::new() } else { format!("-> {mark} ") };
    let mut config = format!("in :: TestInput {mark}-> e :: {element} -> out0 :: TestOutput;");
    if outputs > 1 {
        config.push_str("e[1] -> out1 :: TestOutput;");
    }
    let mut bench = Bench::new(&crate::registry(), &config);
    bench.graph().context().pool().refill();
    let free = bench.graph().context().pool().stats().free;
    let made = packets
        .iter()
        .enumerate()
        .map(|(number, bytes)| {
            let mut packet = bench.packet(bytes);
            packet.annotations_mut().set_fix_source(number % 2 == 0);
            packet.annotations_mut().set_parameter_problem(20);
            packet.annotations_mut().set_destination_ip(number as u32);
            if number % 5 == 4 {
                packet.set_packet_type(PacketType::Broadcast);
            }
            packet
        })
        .collect();
    bench.push_packets("in", made);
    // Whatever waits for more is given up.
    bench.advance_ns(100_000_000_000);
    let mut out = bench.taken_packets("out0").len();
    if outputs > 1 {
        out += bench.taken_packets("out1").len();
    }
    bench.graph().context().pool().refill();
    assert_eq!(bench.graph().context().pool().stats().free, free, "{element} keeps or loses frames");
    let drops = bench.stats("e").dropped();
    (out, drops)
}

fn has_two_outputs(element: &str) -> bool {
    let class = element.split('(').next().unwrap_or(element);
    elements::ip::CLASSES
        .iter()
        .chain(elements::icmp::CLASSES)
        .any(|known| known.name == class && known.ports == "1/1-2")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn in_equals_out_and_drops(packets in proptest::collection::vec(any_packet(), 1..20), mark in 0usize..3) {
        for element in ONE_FOR_ONE {
            for outputs in 1..=1 + usize::from(has_two_outputs(element)) {
                let (out, drops) = run(element, MARKS[mark], &packets, outputs);
                prop_assert_eq!(out as u64 + drops, packets.len() as u64, "{} with {} outputs", element, outputs);
            }
        }
    }

    #[test]
    fn no_frame_is_lost(packets in proptest::collection::vec(any_packet(), 1..20), mark in 0usize..3) {
        for element in OTHERS {
            for outputs in 1..=2 {
                run(element, MARKS[mark], &packets, outputs);
            }
        }
    }
}
