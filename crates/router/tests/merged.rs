//! Each class that takes merged packets does to one what it does to each of its packets: a merged packet through the element and then
//! divided, beside the same divided first.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;

use elements::devices::MergedPorts;
use graph::TAKES_MERGED;
use graph::setup::Shared;
use graph::testing::Bench;
use packet::pool::LARGE_HEADROOM;
use packet::random::SplitMix64;
use packet::{Merged, Packet, Pool};
use testbed::ipv4::ipv4;
use testbed::ipv6::ipv6;

/// Elements of each class, what stands before each, its outputs, and handlers that say the same in the end. Frames begin with their
/// Ethernet header.
const CASES: &[(&str, &str, usize, &[&str])] = &[
    ("", "HashSwitch(26, 4)", 3, &[]),
    ("", "Switch(1)", 2, &[]),
    ("", "StaticSwitch(1)", 2, &[]),
    ("Paint(3) ->", "CheckPaint(3)", 2, &[]),
    ("", "Null", 1, &[]),
    ("", "PushNull", 1, &[]),
    ("Queue(4000) ->", "PullNull -> Unqueue", 1, &[]),
    ("Paint(3) ->", "PaintTee(3)", 2, &[]),
    ("", "Counter", 1, &["e.count", "e.byte_count"]),
    ("", "CounterMP", 1, &["e.count", "e.byte_count"]),
    ("", "Queue(4000) -> Unqueue", 1, &[]),
    ("", "FullNoteQueue(4000) -> Unqueue", 1, &[]),
    ("", "MSQueue(4000) -> Unqueue", 1, &[]),
    ("", "FrontDropQueue(4000) -> Unqueue", 1, &[]),
    ("", "MixedQueue(4000) -> Unqueue", 1, &[]),
    ("", "NotifierQueue(4000) -> Unqueue", 1, &[]),
    ("", "SimpleQueue(4000) -> Unqueue", 1, &[]),
    ("Queue(4000) ->", "Unqueue", 1, &[]),
    ("IP", "IPClassifier(tcp dst port 80, udp && ip ttl > 9, src host 10.0.0.9, -)", 4, &[]),
    ("IP", "IPFilter(1 tcp dst port 80, 2 udp && ip ttl > 9, drop src host 10.0.0.9, 0 all)", 3, &[]),
    ("IP", "FixIPSrc(192.0.2.1)", 1, &[]),
    ("Strip(14) ->", "CheckIPHeader2", 2, &["e.drops"]),
    ("Strip(14) ->", "CheckIPHeader(MARTIANS true)", 2, &["e.drops"]),
    ("Strip(14) ->", "CheckIP6Header", 2, &["e.drops"]),
    ("Strip(14) ->", "MarkIPHeader", 1, &[]),
    ("Strip(14) ->", "MarkIP6Header", 1, &[]),
    ("IP", "RadixIPLookup(10.0.0.0/8 0, 192.0.2.0/24 1, 0/0 2)", 3, &[]),
    ("IP", "DirectIPLookup(10.0.0.0/8 0, 192.0.2.0/24 1, 0/0 2)", 3, &[]),
    ("IP", "LinearIPLookup(10.0.0.0/8 0, 192.0.2.0/24 1, 0/0 2)", 3, &[]),
    ("IP", "DecIPTTL", 2, &["e.drops"]),
    ("IP", "DropBroadcasts", 1, &[]),
    ("IP", "SetIPDSCP(10)", 1, &[]),
    ("IP", "IPGWOptions(192.0.2.1)", 2, &[]),
    ("IP", "GetIPAddress(16)", 1, &[]),
    ("IP", "IPFragmenter(1500)", 2, &[]),
    // As for Linux, what is too long is so with its last piece.
    ("IP", "CheckLength(1500)", 2, &["e.drops"]),
    ("IP", "CheckLength(20)", 2, &["e.drops"]),
    ("IP", "StaticIPLookup(10.0.0.0/8 0, 192.0.2.0/24 1, 0/0 2)", 3, &[]),
    ("IP", "LookupIPRoute(10.0.0.0/8 0, 192.0.2.0/24 1, 0/0 2)", 3, &[]),
    ("IP6", "LookupIP6Route(::/0 ::0 0)", 1, &[]),
    ("IP", "IPAddrRewriter(pattern 192.0.2.1 - 0 0)", 1, &[]),
    ("IP", "IPAddrPairRewriter(pattern 192.0.2.1 - 0 0)", 1, &[]),
    ("IP", "IPRewriter(pattern 192.0.2.1 - 10.0.0.7 - 0 0)", 1, &[]),
    ("IP", "EtherEncap(0x0800, 02:00:00:00:00:05, 02:00:00:00:00:06)", 1, &[]),
    ("MarkMACHeader -> Strip(14) ->", "UnstripToMACHeader", 1, &[]),
    ("IP", "Unstrip(14)", 1, &[]),
    (
        "IP",
        "ACL(10 deny tcp any any port 80, 20 permit udp any any, 30 permit any 10.0.0.0/8 any)",
        2,
        &["e.rules", "e.default"],
    ),
    ("IP6", "DecIP6HLIM", 2, &[]),
    ("IP6", "GetIP6Address(24)", 1, &[]),
    ("IP6", "IP6HopOptions", 2, &[]),
    ("", "ARPResponder(192.0.2.1 02:00:00:00:00:05)", 2, &[]),
    ("", "EtherRewrite(02:00:00:00:00:05, 02:00:00:00:00:06)", 1, &[]),
    ("Paint(1) ->", "PaintSwitch", 2, &[]),
    ("", "Tee(2)", 2, &[]),
    ("", "Duplicate(2)", 2, &[]),
    ("", "Strip(14)", 1, &[]),
    ("", "Divide", 1, &[]),
    ("", "MarkMACHeader", 1, &[]),
    ("", "Paint(3)", 1, &[]),
    ("", "Classifier(12/0800, 12/86dd 20/06, -)", 3, &[]),
    ("", "HostEtherFilter(02:00:00:00:00:02)", 2, &[]),
    ("VLANEncap(VLAN_ID 7) ->", "VLANDecap", 1, &[]),
    ("", "PortMeter(eth1, sent)", 1, &["e.count", "e.byte_count"]),
    ("", "PortMeter(eth1, received)", 1, &["e.count", "e.byte_count"]),
    ("", "Punt", 1, &[]),
    (
        "",
        "Lua(\"function process(batch) for _, p in batch:each() do if p.tcp then p.tcp.src_port = 7 end end end\")",
        1,
        &[],
    ),
    (
        "",
        "Lua(\"brickway.take_merged() local seen = 0
         function process(batch)
           for _, p in batch:each() do
             seen = seen + p.pieces
             local ip = p.ip
             if ip then ip.ttl = ip.ttl - 1 ip.src = 7 end
             if p.udp then p:send(1) else p:send(0) end
           end
           assert(batch:all():pieces() >= #batch)
         end
         handlers.read('seen', function() return seen end)\")",
        2,
        &["e.seen"],
    ),
];

/// Lets frames of one family pass.
const KINDS: &str = "
elementclass Only4 { input -> kind :: Classifier(12/0800, -); kind[1] -> Discard; kind[0] -> output }
elementclass Only6 { input -> kind :: Classifier(12/86dd, -); kind[1] -> Discard; kind[0] -> output }
";

/// Of these classes the answers of many packets are one, or they need what a bench has not: tests of the whole router send TCP
/// through them.
const ELSEWHERE: &[&str] = &[
    "ARPQuerier",
    "Discard",
    "FIBLookup",
    "FIBLookup6",
    "CheckReversePath",
    "CheckReversePath6",
    "ICMP6Error",
    "ICMPError",
    "ICMPPingRewriter",
    "Idle",
    "LuaRouter",
    "TCPRewriter",
    "ToDevice",
    "UDPRewriter",
];

/// A merged frame, and where IP, transport and payload begin.
fn frame(random: &mut SplitMix64) -> (Vec<u8>, [usize; 3], u16) {
    let mut below = |limit: u64| random.below(limit);
    let (is_ipv4, is_tcp) = (below(3) > 0, below(2) == 0);
    let piece_bytes = 40 + below(1_360) as u16;
    let payload = below(u64::from(piece_bytes) * 40).min(60_000) as usize + 1;
    let header = if is_tcp { 20 } else { 8 };
    let mut segment = vec![0; header + payload];
    segment.iter_mut().for_each(|byte| *byte = below(256) as u8);
    segment[..4].copy_from_slice(&[1, below(256) as u8, 0, [80, 81][below(2) as usize]]);
    let length = segment.len() as u16;
    match is_tcp {
        true => segment[12..14].copy_from_slice(&[0x50, [0x10, 0x18, 0x11][below(3) as usize]]),
        false => segment[4..6].copy_from_slice(&length.to_be_bytes()),
    }
    let protocol = if is_tcp { 6 } else { 17 };
    let packet = if is_ipv4 {
        let source = [10, 0, 0, [1, 9][below(2) as usize]];
        let mut packet = ipv4(
            source,
            [[10, 0, 0, 2], [192, 0, 2, 3], [203, 0, 113, 4]][below(3) as usize],
            protocol,
            &segment,
        );
        packet[8] = [1, 2, 64][below(3) as usize];
        testbed::ipv4::refresh(&mut packet);
        packet
    } else {
        ipv6("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap(), protocol, &segment)
    };
    let network = packet.len() - segment.len();
    let kind = if is_ipv4 { [8, 0] } else { [0x86, 0xdd] };
    let frame = [&[2, 0, 0, 0, 0, [2, 3][below(2) as usize], 2, 0, 0, 0, 0, 1][..], &kind, &packet].concat();
    (frame, [14, 14 + network, 14 + network + header], piece_bytes)
}

fn packet_of(pool: &mut Pool, (frame, places, piece_bytes): &(Vec<u8>, [usize; 3], u16)) -> Packet {
    let mut packet = pool.allocate_large().unwrap();
    packet.reset_with_headroom(LARGE_HEADROOM, frame.len()).unwrap().copy_from_slice(frame);
    let [network, transport, payload] = places.map(|place| (place + packet.data_offset()) as u16);
    packet.set_merged(Merged { piece_bytes: *piece_bytes, network, transport, payload });
    packet
}

/// The data of what comes out of each output, and what handlers say.
fn outcome(
    case: &(&str, &str, usize, &[&str]),
    divides_first: bool,
    frames: &[(Vec<u8>, [usize; 3], u16)],
) -> (Vec<Vec<Vec<u8>>>, Vec<String>) {
    let (before, element, outputs, handlers) = case;
    let before = match *before {
        "IP" => "Only4 -> Strip(14) -> CheckIPHeader ->",
        "IP6" => "Only6 -> Strip(14) -> CheckIP6Header ->",
        other => other,
    };
    let (first, last) = if divides_first { ("Divide ->", "") } else { ("", "Divide ->") };
    let (element, rest) =
        element.split_once(" -> ").map_or((*element, ""), |(element, rest)| (element, rest));
    let mut text = format!("{KINDS}e :: {element}; in :: TestInput -> {first} {before} e;\n");
    let rest = if rest.is_empty() { String::new() } else { format!("{rest} -> ") };
    for output in 0..*outputs {
        text.push_str(&format!("e[{output}] -> {rest}{last} out{output} :: TestOutput;\n"));
    }
    let shared = Shared::default();
    let merged = MergedPorts(BTreeSet::from(["eth1".to_owned()]));
    shared.get_or_make(MergedPorts::KEY, || Ok::<_, String>(merged)).unwrap();
    let mut bench = Bench::try_new(&router::classes(), &text, 32, &shared)
        .unwrap_or_else(|problem| panic!("{text}\n{problem}"));
    bench.pool().add_large(64).unwrap();
    let mut out = vec![Vec::new(); *outputs];
    for frame in frames {
        let packet = packet_of(bench.pool(), frame);
        bench.push_packets("in", vec![packet]);
        bench.run(8);
        for (number, out) in out.iter_mut().enumerate() {
            out.extend(bench.taken(&format!("out{number}")));
        }
    }
    (out, handlers.iter().map(|handler| bench.read(handler)).collect())
}

#[test]
fn merged_packets_go_through_each_class_as_their_packets_do() {
    let registry = router::classes();
    let class_of = |element: &str| element.split(['(', ' ']).next().unwrap_or_default().to_owned();
    let known: BTreeSet<String> = CASES.iter().map(|case| class_of(case.1)).collect();
    let missing: Vec<&str> = registry
        .classes()
        .filter(|(_, class)| class.capabilities.contains(&TAKES_MERGED))
        .map(|(_, class)| class.name)
        .filter(|name| !known.contains(*name) && !ELSEWHERE.contains(name))
        .collect();
    assert_eq!(missing, Vec::<&str>::new(), "no case for these classes");
    let mut random = SplitMix64::new(47);
    for case in CASES {
        let frames: Vec<_> = (0..40).map(|_| frame(&mut random)).collect();
        let ((single, theirs), (whole, ours)) = (outcome(case, true, &frames), outcome(case, false, &frames));
        for (output, (single, whole)) in single.iter().zip(&whole).enumerate() {
            assert_eq!(whole.len(), single.len(), "{}: packets of output {output}", case.1);
            for (number, (whole, single)) in whole.iter().zip(single).enumerate() {
                assert_eq!(whole, single, "{}: packet {number} of output {output}", case.1);
            }
        }
        assert!(single.iter().any(|output| !output.is_empty()), "{}: nothing came out", case.1);
        assert_eq!(ours, theirs, "{}", case.1);
    }
}
