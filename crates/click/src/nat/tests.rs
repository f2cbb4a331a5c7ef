use graph::testing::Bench;
use packet::checksum;
use proptest::prelude::*;
use testbed::ipv4::{ipv4, refresh};

mod floods;

/// An end of a flow.
type End = ([u8; 4], u16);

const INNER: End = ([10, 0, 0, 1], 5000);
const SERVER: End = ([8, 8, 8, 8], 80);
const OUTER: [u8; 4] = [192, 0, 2, 1];

const FIN: u8 = 0x11;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Sets the transport checksum of a packet without options.
fn with_check(mut packet: Vec<u8>) -> Vec<u8> {
    let length = (packet.len() - 20) as u16;
    let (at, pseudo) = match packet[9] {
        6 => (36, pseudo(&packet, length)),
        17 => (26, pseudo(&packet, length)),
        _ => (22, 0),
    };
    packet[at..at + 2].fill(0);
    let sum = checksum::combine(pseudo, checksum::sum(&packet[20..]));
    let check = if packet[9] == 17 { checksum::finish_udp(sum) } else { checksum::finish(sum) };
    packet[at..at + 2].copy_from_slice(&check.to_be_bytes());
    packet
}

fn pseudo(packet: &[u8], length: u16) -> u16 {
    let address = |at: usize| [packet[at], packet[at + 1], packet[at + 2], packet[at + 3]].into();
    checksum::pseudo_v4(address(12), address(16), packet[9], length)
}

fn udp(from: End, to: End, payload: &[u8]) -> Vec<u8> {
    let mut datagram = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
    datagram.extend((payload.len() as u16 + 8).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    with_check(ipv4(from.0, to.0, 17, &datagram))
}

fn segment(
    from: End,
    to: End,
    (sequence, acknowledgement): (u32, u32),
    flags: u8,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let mut segment = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
    segment.extend(sequence.to_be_bytes());
    segment.extend(acknowledgement.to_be_bytes());
    segment.extend([(5 + options.len() as u8 / 4) << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(options);
    segment.extend(payload);
    with_check(ipv4(from.0, to.0, 6, &segment))
}

fn tcp(from: End, to: End, flags: u8, payload: &[u8]) -> Vec<u8> {
    segment(from, to, (1, 1), flags, &[], payload)
}

fn ping(from: [u8; 4], to: [u8; 4], request: bool, identifier: u16) -> Vec<u8> {
    let [high, low] = identifier.to_be_bytes();
    with_check(ipv4(from, to, 1, &[if request { 8 } else { 0 }, 0, 0, 0, high, low, 0, 9, b'h', b'i', b'!']))
}

/// An error from a router on the way, about the start of `packet`.
fn icmp_error(to: [u8; 4], packet: &[u8], kept: usize) -> Vec<u8> {
    let mut message = vec![11, 0, 0, 0, 0, 0, 0, 0];
    message.extend(&packet[..kept.min(packet.len())]);
    with_check(ipv4([9, 9, 9, 9], to, 1, &message))
}

/// Whether all checksums of a whole packet are right.
fn valid(packet: &[u8]) -> bool {
    let transport = match packet[9] {
        17 if packet[26..28] == [0, 0] => 0xffff,
        6 | 17 => checksum::combine(pseudo(packet, (packet.len() - 20) as u16), checksum::sum(&packet[20..])),
        1 => checksum::sum(&packet[20..]),
        _ => 0xffff,
    };
    checksum::ipv4_header_valid(&packet[..20]) && transport == 0xffff
}

/// A bench with two inputs and outputs.
fn bench(text: &str) -> Bench {
    wired(&format!("e :: {text};"), "")
}

/// A bench around `e`, with what stands before its first input.
fn wired(definitions: &str, before: &str) -> Bench {
    let config = format!(
        "{definitions}
         in0 :: TestInput -> MarkIPHeader {before} -> [0]e; in1 :: TestInput -> MarkIPHeader -> [1]e;
         e[0] -> out0 :: TestOutput; e[1] -> out1 :: TestOutput;"
    );
    Bench::new(&crate::registry(), &config)
}

fn mistakes(config: &str) -> String {
    let inputs =
        "in0 :: TestInput -> [0]e; in1 :: TestInput -> [1]e; e[0] -> TestOutput; e[1] -> TestOutput;";
    let bench = Bench::try_new(
        &crate::registry(),
        &format!("{config} {inputs}"),
        32,
        &graph::setup::Shared::default(),
    );
    bench.err().unwrap_or_default()
}

/// Pushes one packet and takes the one that must come of it.
fn through(bench: &mut Bench, input: &str, packet: &[u8], output: &str) -> Vec<u8> {
    bench.push(input, &[packet]);
    let mut taken = bench.taken(output);
    assert_eq!(taken.len(), 1, "one packet leaves by {output}");
    let packet = taken.remove(0);
    assert!(valid(&packet), "checksums of {packet:02x?}");
    packet
}

const NAPT: &str = "IPRewriter(pattern 192.0.2.1 1024-65535# - - 0 1, drop)";

#[test]
fn both_ways_of_a_flow() {
    for make in [udp as fn(End, End, &[u8]) -> Vec<u8>, |from, to, payload| tcp(from, to, ACK, payload)] {
        let mut bench = bench(NAPT);
        let mut packet = bench.packet(&make(INNER, SERVER, b"hello"));
        packet.annotations_mut().set_destination_ip(1);
        bench.push_packets("in0", vec![packet]);
        let packet = bench.taken_packets("out0").remove(0);
        assert_eq!(packet.data(), make((OUTER, 1024), SERVER, b"hello"));
        assert_eq!(packet.annotations().destination_ip(), 0x0808_0808);
        assert_eq!(
            through(&mut bench, "in1", &make(SERVER, (OUTER, 1024), b"you"), "out1"),
            make(SERVER, INNER, b"you")
        );
        // By whichever input.
        assert_eq!(
            through(&mut bench, "in0", &make(SERVER, (OUTER, 1024), b""), "out1"),
            make(SERVER, INNER, b"")
        );
        assert_eq!(bench.read("e.nmappings"), "1");
        // Nobody else gets in.
        bench
            .push("in1", &[&make(([8, 8, 8, 9], 80), (OUTER, 1024), b""), &make(SERVER, (OUTER, 1025), b"")]);
        assert_eq!(bench.drops("e", "no mapping"), 2);
    }
}

#[test]
fn a_batch_of_many_flows_keeps_its_order() {
    let mut bench = bench(NAPT);
    let packets: Vec<_> = (0..32).map(|host| udp(([10, 0, 0, host % 8], 9), SERVER, &[host])).collect();
    bench.push("in0", &packets.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let expected: Vec<_> =
        (0..32).map(|host| udp((OUTER, 1024 + u16::from(host % 8)), SERVER, &[host])).collect();
    assert_eq!(bench.taken("out0"), expected);
}

#[test]
fn what_is_no_flow() {
    let fragment = |offset: u16| {
        let mut packet = udp(INNER, SERVER, &[7; 16]);
        packet[6..8].copy_from_slice(&offset.to_be_bytes());
        refresh(&mut packet);
        packet
    };
    let others = [fragment(2), ping(INNER.0, SERVER.0, true, 1), ipv4(INNER.0, SERVER.0, 17, &[0; 7])];
    let others = others.each_ref().map(Vec::as_slice);
    let mut dropping = bench(NAPT);
    dropping.push("in0", &others);
    for reason in ["fragment without ports", "not TCP or UDP", "transport header cut off"] {
        assert_eq!(dropping.drops("e", reason), 1, "{reason}");
    }
    let mut passing = bench("IPRewriter(pass 1, drop)");
    passing.push("in0", &others);
    passing.push("in0", &[&udp(INNER, SERVER, b"")]);
    assert_eq!(passing.taken("out1").len(), 4);
    assert_eq!(passing.read("e.nmappings"), "0");
    // The first fragment is translated like a whole packet; its checksum is that of the whole.
    let mut first = fragment(0x2000);
    dropping.push("in0", &[&first]);
    let out = dropping.taken("out0").remove(0);
    first[6] = 0;
    assert_eq!(out[20..24], [4, 0, 0, 80]);
    assert!(checksum::ipv4_header_valid(&out[..20]));
}

#[test]
fn udp_without_checksum_stays_without() {
    let mut bench = bench(NAPT);
    let mut packet = udp(INNER, SERVER, b"x");
    packet[26..28].fill(0);
    assert_eq!(through(&mut bench, "in0", &packet, "out0")[26..28], [0, 0]);
}

#[test]
fn damage_stays_damage() {
    let mut bench = bench(NAPT);
    for mut packet in [udp(INNER, SERVER, b"x"), tcp(INNER, SERVER, ACK, b"x")] {
        let last = packet.len() - 1;
        packet[last] ^= 1;
        bench.push("in0", &[&packet]);
        assert!(!valid(&bench.taken("out0").remove(0)));
    }
}

#[test]
fn the_own_port_is_preferred() {
    let mut bench = bench("UDPRewriter(pattern 192.0.2.1 4000-6000 - - 0 1, drop)");
    assert_eq!(through(&mut bench, "in0", &udp(INNER, SERVER, b""), "out0")[20..22], [0x13, 0x88]);
    // The same port to another server is free; to the same one it is not.
    let other = ([10, 0, 0, 2], 5000);
    assert_eq!(
        through(&mut bench, "in0", &udp(other, ([8, 8, 4, 4], 80), b""), "out0")[20..22],
        [0x13, 0x88]
    );
    let port = through(&mut bench, "in0", &udp(other, SERVER, b""), "out0");
    let port = u16::from_be_bytes([port[20], port[21]]);
    assert!((4000..=6000).contains(&port) && port != 5000);
    let low = through(&mut bench, "in0", &udp((INNER.0, 10), SERVER, b""), "out0");
    assert!((4000..=6000).contains(&u16::from_be_bytes([low[20], low[21]])));
}

#[test]
fn when_all_ports_are_taken() {
    let mut bench = bench("UDPRewriter(pattern 192.0.2.1 1024-1026? - - 0 1, drop)");
    for port in 1..=5 {
        bench.push("in0", &[&udp((INNER.0, port), SERVER, b"")]);
    }
    let mut ports: Vec<_> = bench.taken("out0").iter().map(|packet| packet[20..22].to_vec()).collect();
    ports.sort();
    assert_eq!(ports, [[4, 0], [4, 1], [4, 2]]);
    assert_eq!(
        (bench.drops("e", "no port or address free"), bench.read("e.mapping_failures")),
        (2, "2".to_owned())
    );
    // To another server all are free, and here too when one has expired.
    through(&mut bench, "in0", &udp((INNER.0, 4), ([8, 8, 4, 4], 80), b""), "out0");
    bench.advance_ns(200_000_000_000);
    through(&mut bench, "in0", &udp((INNER.0, 2), SERVER, b""), "out0");
    bench.advance_ns(101_000_000_000);
    through(&mut bench, "in0", &udp((INNER.0, 5), SERVER, b""), "out0");
    assert_eq!(bench.read("e.nmappings"), "2");
}

#[test]
fn a_fixed_pattern_replaces_the_old_mapping() {
    let mut bench = bench("UDPRewriter(pattern 192.0.2.1 99 - - 0 1, drop)");
    through(&mut bench, "in0", &udp((INNER.0, 1), SERVER, b""), "out0");
    through(&mut bench, "in0", &udp((INNER.0, 2), SERVER, b""), "out0");
    assert_eq!(bench.read("e.nmappings"), "1");
    assert_eq!(
        through(&mut bench, "in1", &udp(SERVER, (OUTER, 99), b""), "out1"),
        udp(SERVER, (INNER.0, 2), b"")
    );
}

#[test]
fn a_flow_to_itself() {
    let mut bench = bench("UDPRewriter(keep 0 1, drop)");
    let own = udp(INNER, INNER, b"me");
    assert_eq!(through(&mut bench, "in0", &own, "out0"), own);
    assert_eq!(through(&mut bench, "in0", &own, "out1"), own);
    assert_eq!(bench.read("e.nmappings"), "1");
    assert_eq!(bench.read("e.table").lines().count(), 1);
    bench.write("e.clear", "").unwrap();
    assert_eq!((bench.read("e.size"), bench.read("e.table")), ("0".to_owned(), String::new()));
}

#[test]
fn a_full_table() {
    let mut bench = bench("UDPRewriter(keep 0 1, drop, MAPPING_CAPACITY 3, GUARANTEE 5)");
    let from = |host: u8| udp(([10, 0, 0, host], 9), SERVER, b"");
    for host in 1..=4 {
        bench.push("in0", &[&from(host)]);
        bench.advance_ns(1_000_000_000);
    }
    // All three are guaranteed at first.
    assert_eq!((bench.taken("out0").len(), bench.drops("e", "mapping table full")), (3, 1));
    bench.push("in0", &[&from(1)]);
    bench.advance_ns(2_500_000_000);
    bench.push("in0", &[&from(5)]);
    // The second was used least recently.
    let table = bench.read("e.table");
    assert!(
        !table.contains("10.0.0.2") && table.contains("10.0.0.1") && table.contains("10.0.0.5"),
        "{table}"
    );
    assert_eq!((bench.read("e.size"), bench.read("e.capacity")), ("3".to_owned(), "3".to_owned()));
    assert_eq!(bench.read("e.mapping_failures"), "1");
    bench.write("e.capacity", "1").unwrap();
    assert!(bench.read("e.table").contains("10.0.0.5"));
    assert_eq!(bench.read("e.nmappings"), "1");
    assert!(bench.write("e.capacity", "99999999").unwrap_err().contains("16777216"));
}

#[test]
fn without_guarantee_the_next_to_expire_goes_even_if_it_is_new() {
    let mut bench = bench("IPRewriter(keep 0 1, drop, CAPACITY 1, GUARANTEE 0)");
    for (input, packet) in [("in0", tcp(INNER, SERVER, ACK, b"a")), ("in1", tcp(SERVER, INNER, ACK, b"b"))] {
        bench.push(input, &[&packet]);
    }
    bench.push("in0", &[&tcp(([10, 0, 0, 2], 1), SERVER, SYN, b"")]);
    assert_eq!(bench.drops("e", "mapping table full"), 1);
    assert!(bench.read("e.tcp_table").contains("10.0.0.1"));
}

#[test]
fn a_capacity_for_two() {
    let mut bench = wired(
        "other :: UDPRewriter(keep 0 0, CAPACITY e); o :: TestInput -> MarkIPHeader -> other -> TestOutput;
         e :: UDPRewriter(keep 0 1, drop, CAPACITY 2);",
        "",
    );
    bench.push("o", &[&udp(INNER, SERVER, b"")]);
    bench.push("in0", &[&udp(INNER, SERVER, b""), &udp((INNER.0, 1), SERVER, b"")]);
    assert_eq!(bench.drops("e", "mapping table full"), 1);
    assert_eq!((bench.read("e.size"), bench.read("e.nmappings")), ("2".to_owned(), "1".to_owned()));
    assert_eq!((bench.read("other.size"), bench.read("other.nmappings")), ("2".to_owned(), "1".to_owned()));
}

/// Seconds that the mapping of TCP or UDP has left.
fn left(bench: &mut Bench, table: &str) -> String {
    let text = bench.read(table);
    text.lines()
        .next()
        .and_then(|line| line.rsplit_once("exp"))
        .map_or(String::new(), |(_, left)| left.to_owned())
}

#[test]
fn connections_are_followed() {
    let mut bench = bench(NAPT);
    let back = (OUTER, 1024);
    let mut expect = |input: &str, packet: Vec<u8>, seconds: &str| {
        bench.push(input, &[&packet]);
        assert_eq!(left(&mut bench, "e.tcp_table"), seconds);
    };
    expect("in0", tcp(INNER, SERVER, SYN, b""), "300");
    expect("in1", tcp(SERVER, back, SYN | ACK, b""), "300");
    expect("in0", tcp(INNER, SERVER, ACK, b"GET"), "300");
    expect("in1", tcp(SERVER, back, ACK, b"200"), "86400");
    expect("in0", tcp(INNER, SERVER, FIN, b""), "86400");
    expect("in1", tcp(SERVER, back, FIN, b""), "240");
    expect("in0", tcp(INNER, SERVER, ACK, b""), "240");
    // A new connection of the same ports.
    expect("in0", tcp(INNER, SERVER, SYN, b""), "86400");
    expect("in1", tcp(SERVER, back, RST, b""), "240");
    bench.advance_ns(239_000_000_000);
    assert_eq!(left(&mut bench, "e.tcp_table"), "1");
    // Gone as soon as a packet comes.
    bench.advance_ns(2_000_000_000);
    bench.push("in1", &[&tcp(SERVER, back, ACK, b"")]);
    assert_eq!(bench.read("e.tcp_table"), "");
}

#[test]
fn expired_mappings_go_without_packets_too() {
    let mut bench = bench("UDPRewriter(keep 0 1, drop, TIMEOUT 10, REAP_INTERVAL 60)");
    let packets: Vec<_> = (0..300).map(|port| udp((INNER.0, port), SERVER, b"")).collect();
    bench.push("in0", &packets.iter().map(Vec::as_slice).collect::<Vec<_>>());
    bench.advance_ns(59_000_000_000);
    assert_eq!(bench.read("e.size"), "300");
    bench.advance_ns(2_000_000_000);
    assert_eq!(bench.read("e.size"), "0");
}

#[test]
fn streams_have_a_timeout_of_their_own() {
    let mut bench = bench("IPRewriter(keep 0 1, drop, UDP_TIMEOUT 60, UDP_STREAMING_TIMEOUT 200)");
    for (input, packet, seconds) in [
        ("in0", udp(INNER, SERVER, b""), "60"),
        ("in0", udp(INNER, SERVER, b""), "60"),
        ("in0", udp(INNER, SERVER, b""), "60"),
        ("in1", udp(SERVER, INNER, b""), "200"),
    ] {
        bench.push(input, &[&packet]);
        assert_eq!(left(&mut bench, "e.udp_table"), seconds);
    }
}

#[test]
fn handlers_tell_of_mappings() {
    let mut bench = bench("IPRewriter(pattern 192.0.2.1 1024-65535# - - 0 1, pass 1)");
    bench.push("in0", &[&tcp(INNER, SERVER, SYN, b""), &udp(INNER, SERVER, b"")]);
    assert_eq!(bench.taken("out0").len(), 2);
    assert_eq!(
        bench.read("e.tcp_table"),
        "(10.0.0.1, 5000, 8.8.8.8, 80) => (192.0.2.1, 1024, 8.8.8.8, 80) [*0 1] i0 exp300\n\
         (8.8.8.8, 80, 192.0.2.1, 1024) => (8.8.8.8, 80, 10.0.0.1, 5000) [0 *1] i0 exp300\n"
    );
    assert_eq!(bench.read("e.tcp_lookup 10.0.0.1 5000 8.8.8.8 80"), "192.0.2.1 1024 8.8.8.8 80");
    assert_eq!(bench.read("e.udp_lookup 8.8.8.8 80 192.0.2.1 1025"), "8.8.8.8 80 10.0.0.1 5000");
    assert_eq!(bench.read("e.tcp_lookup 10.0.0.1 5001 8.8.8.8 80"), "");
    assert_eq!(bench.read("e.patterns"), "192.0.2.1 1024-65535 - - [2]\n<nochange>\n");
    assert_eq!(bench.read("e.pattern1"), "<nochange>\n");
    bench.write("e.pattern0", "pattern 192.0.2.9 7 - - 0 1").unwrap();
    assert_eq!(
        (bench.read("e.pattern0"), bench.read("e.nmappings")),
        ("192.0.2.9 7 - -\n".to_owned(), "0".to_owned())
    );
    through(&mut bench, "in0", &udp(INNER, SERVER, b""), "out0");
    assert!(bench.write("e.pattern0", "pattern 192.0.2.9 7 - - 0 2").unwrap_err().contains("out of range"));
    assert!(bench.write("e.pattern2", "drop").is_err());
}

#[test]
fn replies_get_the_annotation_of_the_first_packet() {
    let mut bench = bench("IPRewriter(keep 0 1, drop, REPLY_ANNO PAINT, DST_ANNO false)");
    let mut packet = bench.packet(&udp(INNER, SERVER, b""));
    packet.annotations_mut().set_paint(7);
    packet.annotations_mut().set_destination_ip(3);
    bench.push_packets("in0", vec![packet]);
    assert_eq!(bench.taken_packets("out0")[0].annotations().destination_ip(), 3);
    bench.push("in1", &[&udp(SERVER, INNER, b"")]);
    assert_eq!(bench.taken_packets("out1")[0].annotations().paint(), 7);
}

#[test]
fn named_patterns_share_their_range() {
    let config =
        "e :: IPRewriter(pattern P 0 1, pattern P 0 1); IPRewriterPatterns(P 192.0.2.1 1024-65535# - -);";
    let mut bench = wired(config, "");
    let ports = [("in0", 1), ("in1", 2), ("in0", 3)].map(|(input, port)| {
        through(&mut bench, input, &udp((INNER.0, port), SERVER, b""), "out0")[20..22].to_vec()
    });
    assert_eq!(ports, [[4, 0], [4, 1], [4, 2]]);
    assert!(mistakes("e :: IPRewriter(pattern Q 0 1, drop);").contains("no pattern named 'Q'"));
    assert!(
        mistakes("IPRewriterPatterns(P 1.0.0.1 x - -); e :: IPRewriter(drop, drop);")
            .contains("bad source port 'x'")
    );
    assert!(mistakes("IPRewriterPatterns(P - -, P - -); e :: IPRewriter(drop, drop);").contains("twice"));
}

#[test]
fn mappers_choose_patterns() {
    let mut bench = wired(
        "e :: UDPRewriter(m, drop); m :: RoundRobinIPMapper(- - 10.1.0.1 - 0 1, - - 10.1.0.2 - 1 0);",
        "",
    );
    for (port, output, host) in [(1, "out0", 1), (2, "out1", 2), (1, "out0", 1), (3, "out0", 1)] {
        let packet = through(&mut bench, "in0", &udp((INNER.0, port), SERVER, b""), output);
        assert_eq!(packet[16..20], [10, 1, 0, host]);
    }
    let mut bench = wired(
        "e :: UDPRewriter(m, drop);
         m :: SourceIPHashMapper(50 7, - - 10.1.0.1 - 0 1 11, - - 10.1.0.2 - 0 1 12, - - 10.1.0.3 - 0 1 13);",
        "",
    );
    let mut counts = [0; 4];
    for host in 0..250 {
        let server = |bench: &mut Bench, port| {
            through(bench, "in0", &udp(([10, 0, 0, host], port), SERVER, b""), "out0")[19]
        };
        let chosen = server(&mut bench, 1);
        assert_eq!(server(&mut bench, 2), chosen, "a host keeps its server");
        counts[usize::from(chosen)] += 1;
    }
    assert!(counts[1..].iter().all(|count| *count > 30), "{counts:?}");
}

#[test]
fn addresses_only() {
    let mut bench = bench("IPAddrRewriter(pattern 192.0.2.0/24# - 0 1, drop)");
    let packets = [udp(INNER, SERVER, b"a"), tcp(INNER, SERVER, ACK, b"b"), ping(INNER.0, SERVER.0, true, 5)];
    for packet in &packets {
        let out = through(&mut bench, "in0", packet, "out0");
        assert_eq!((&out[12..16], &out[16..20]), (&OUTER[..], &SERVER.0[..]));
    }
    assert_eq!(
        through(&mut bench, "in0", &udp(([10, 0, 0, 2], 1), SERVER, b""), "out0")[12..16],
        [192, 0, 2, 2]
    );
    // From anybody.
    let reply = through(&mut bench, "in1", &udp(([7, 7, 7, 7], 7), (OUTER, 9), b""), "out1");
    assert_eq!(reply, udp(([7, 7, 7, 7], 7), (INNER.0, 9), b""));
    assert_eq!(
        bench.read("e.table"),
        "10.0.0.1 => 192.0.2.1 [*0 1] i0 exp7200\n192.0.2.1 => 10.0.0.1 [0 *1] i0 exp7200\n\
         10.0.0.2 => 192.0.2.2 [*0 1] i0 exp7200\n192.0.2.2 => 10.0.0.2 [0 *1] i0 exp7200\n"
    );
    // Later fragments have no checksum to update.
    let mut fragment = udp(INNER, SERVER, &[0x11; 16]);
    fragment[7] = 2;
    refresh(&mut fragment);
    bench.push("in0", &[&fragment]);
    assert_eq!(bench.taken("out0")[0][20..], fragment[20..]);
    assert!(mistakes("e :: IPAddrRewriter(pattern 1.0.0.1 - - - 0 1, drop);").contains("SADDR -"));
    assert!(mistakes("e :: IPAddrRewriter(pattern - 1.0.0.1 0 1, drop);").contains("SADDR -"));
}

#[test]
fn pairs_of_addresses() {
    let mut bench = bench("IPAddrPairRewriter(pattern 192.0.2.1-192.0.2.2# 10.9.9.9 0 1, drop)");
    let out = through(&mut bench, "in0", &udp(INNER, SERVER, b"a"), "out0");
    assert_eq!(out, udp((OUTER, 5000), ([10, 9, 9, 9], 80), b"a"));
    let out = through(&mut bench, "in0", &tcp(INNER, ([8, 8, 4, 4], 80), ACK, b""), "out0");
    assert_eq!(out, tcp(([192, 0, 2, 2], 5000), ([10, 9, 9, 9], 80), ACK, b""));
    bench.push("in0", &[&udp(INNER, ([1, 1, 1, 1], 1), b"")]);
    assert_eq!(bench.drops("e", "no port or address free"), 1);
    let reply = through(&mut bench, "in1", &udp(([10, 9, 9, 9], 3), (OUTER, 4), b""), "out1");
    assert_eq!(reply, udp((SERVER.0, 3), (INNER.0, 4), b""));
    assert!(
        bench.read("e.table").starts_with("(10.0.0.1, 8.8.8.8) => (192.0.2.1, 10.9.9.9) [*0 1] i0 exp7200\n")
    );
}

#[test]
fn pings() {
    let mut bench = bench("ICMPPingRewriter(pattern 192.0.2.1 - 7-9# 0 1, drop)");
    let other = [10, 0, 0, 2];
    assert_eq!(
        through(&mut bench, "in0", &ping(INNER.0, SERVER.0, true, 7), "out0"),
        ping(OUTER, SERVER.0, true, 7)
    );
    assert_eq!(
        through(&mut bench, "in0", &ping(other, SERVER.0, true, 7), "out0"),
        ping(OUTER, SERVER.0, true, 8)
    );
    let reply = through(&mut bench, "in1", &ping(SERVER.0, OUTER, false, 8), "out1");
    assert_eq!(reply, ping(SERVER.0, other, false, 7));
    assert!(
        bench
            .read("e.table")
            .ends_with("(8.8.8.8, 192.0.2.1, 8) => (8.8.8.8, 10.0.0.2, 7) [0 *1] i0 exp300\n")
    );
    // A request with a reply's identifier, and replies nobody asked for.
    bench.push("in1", &[&ping(SERVER.0, OUTER, true, 8), &ping(SERVER.0, OUTER, false, 9)]);
    bench.push("in0", &[&ping(INNER.0, SERVER.0, false, 1)]);
    assert_eq!(bench.drops("e", "no mapping"), 3);
    bench.push("in0", &[&icmp_error(SERVER.0, &udp(INNER, SERVER, b""), 28)]);
    assert_eq!(bench.drops("e", "not an echo"), 1);
}

/// Rewriters in a row, and an ICMPRewriter that undoes what they did for errors.
fn error_bench(rewriter: &str, arguments: &str) -> Bench {
    wired(
        &format!(
            "e :: {rewriter}; i :: ICMPRewriter({arguments});
             err :: TestInput -> MarkIPHeader -> i; i[0] -> fixed :: TestOutput; i[1] -> rest :: TestOutput;"
        ),
        "",
    )
}

#[test]
fn errors_about_translated_packets() {
    let cases: [(&str, Vec<u8>); 6] = [
        (NAPT, udp(INNER, SERVER, b"some data")),
        (NAPT, tcp(INNER, SERVER, ACK, b"some data")),
        ("UDPRewriter(pattern 192.0.2.1 99 10.7.7.7 98 0 1, drop)", udp(INNER, SERVER, b"odd")),
        ("IPAddrRewriter(pattern 192.0.2.1 - 0 1, drop)", tcp(INNER, SERVER, ACK, b"x")),
        ("IPAddrPairRewriter(pattern 192.0.2.1 10.7.7.7 0 1, drop)", udp(INNER, SERVER, b"x")),
        ("ICMPPingRewriter(pattern 192.0.2.1 - 9-99 0 1, drop)", ping(INNER.0, SERVER.0, true, 5)),
    ];
    for (rewriter, original) in cases {
        let mut bench = error_bench(rewriter, "e");
        let translated = through(&mut bench, "in0", &original, "out0");
        assert_ne!(translated, original);
        // As RFC 792 has it, with an odd end, up to the TCP checksum, and all.
        for kept in [28, 29, 38, 39, 200] {
            let fixed = through(&mut bench, "err", &icmp_error(OUTER, &translated, kept), "fixed");
            assert_eq!(fixed, icmp_error(INNER.0, &original, kept), "{rewriter}, {kept} bytes kept");
        }
    }
}

#[test]
fn errors_about_replies_and_others() {
    let mut bench = error_bench(NAPT, "e");
    through(&mut bench, "in0", &udp(INNER, SERVER, b""), "out0");
    // About a reply, sent by a router inside: it goes to the server, whose packet it was, and stays addressed so.
    let reply = udp(SERVER, (OUTER, 1024), b"re");
    let inside = through(&mut bench, "in1", &reply, "out1");
    let fixed = through(&mut bench, "err", &icmp_error(SERVER.0, &inside, 28), "fixed");
    assert_eq!(fixed, icmp_error(SERVER.0, &reply, 28));
    // No mapping; no error; too short; no packet inside.
    let mut cut = icmp_error(OUTER, &udp((OUTER, 1024), SERVER, b""), 19);
    let others = [
        icmp_error(OUTER, &udp((OUTER, 1), SERVER, b""), 28),
        ping(OUTER, SERVER.0, true, 1),
        cut.clone(),
        ipv4(SERVER.0, OUTER, 1, &[11]),
    ];
    bench.push("err", &others.each_ref().map(Vec::as_slice));
    assert_eq!(bench.taken("rest"), others);
    cut[9] = 17;
    bench.push("err", &[&cut]);
    assert_eq!(bench.drops("i", "not ICMP"), 1);
}

#[test]
fn errors_leave_by_the_outputs_of_their_mappings() {
    let mut bench = error_bench(
        "IPRewriter(pattern 192.0.2.1 1024-65535# - - 0 1, drop, REPLY_ANNO PAINT)",
        "e:0, REPLY_ANNO PAINT",
    );
    let mut packet = bench.packet(&udp(INNER, SERVER, b""));
    packet.annotations_mut().set_paint(6);
    bench.push_packets("in0", vec![packet]);
    let translated = bench.taken("out0").remove(0);
    bench.push("err", &[&icmp_error(OUTER, &translated, 28)]);
    let error = bench.taken_packets("rest").remove(0);
    assert_eq!((error.annotations().paint(), error.annotations().destination_ip()), (6, 0x0a00_0001));
    let none = mistakes("e :: IPRewriter(drop, drop); TestInput -> i :: ICMPRewriter(x) -> TestOutput;");
    assert!(none.contains("no element named 'x'"), "{none}");
    let many = mistakes("e :: IPRewriter(drop, drop); TestInput -> i :: ICMPRewriter(e:0) -> TestOutput;");
    assert!(many.contains("2 outputs"), "{many}");
}

const FTP: End = ([8, 8, 8, 8], 21);

/// Segments from the client and from the server, as they leave a TCPRewriter with an FTPPortMapper before it.
fn ftp_bench(rewriter: &str, way: &str) -> Bench {
    wired(&format!("e :: {rewriter};"), &format!("-> f :: FTPPortMapper(e, e, {way})"))
}

fn line(sequence: u32, text: &str) -> Vec<u8> {
    segment(INNER, FTP, (sequence, 1), ACK, &[], text.as_bytes())
}

fn outer_line(sequence: u32, text: &str) -> Vec<u8> {
    segment((OUTER, 1024), FTP, (sequence, 1), ACK, &[], text.as_bytes())
}

#[test]
fn port_commands() {
    for rewriter in ["TCPRewriter(pattern 192.0.2.1 1024-65535# - - 0 1, drop)", NAPT] {
        let mut bench = ftp_bench(rewriter, "0");
        // Before there is a mapping nothing is changed.
        let early = through(&mut bench, "in0", &line(90, "PORT 10,0,0,1,19,137\r\n"), "out0");
        assert_eq!(early, outer_line(90, "PORT 10,0,0,1,19,137\r\n"));
        assert_eq!(
            through(&mut bench, "in0", &line(112, "USER x\r\n"), "out0"),
            outer_line(112, "USER x\r\n")
        );
        // From 20 to 19 bytes: 5001 becomes 1025.
        let port = line(120, "PORT 10,0,0,1,19,137\r\n");
        assert_eq!(through(&mut bench, "in0", &port, "out0"), outer_line(120, "PORT 192,0,2,1,4,1\r\n"));
        assert_eq!(through(&mut bench, "in0", &line(142, "LIST\r\n"), "out0"), outer_line(140, "LIST\r\n"));
        // Again, as it was lost.
        assert_eq!(through(&mut bench, "in0", &port, "out0"), outer_line(120, "PORT 192,0,2,1,4,1\r\n"));
        assert_eq!(
            through(&mut bench, "in0", &line(112, "USER x\r\n"), "out0"),
            outer_line(112, "USER x\r\n")
        );
        assert_eq!(through(&mut bench, "in0", &line(142, "LIST\r\n"), "out0"), outer_line(140, "LIST\r\n"));
        // The other way acknowledgements are shifted, in options too (RFC 2018).
        let edges = |edges: [u32; 2]| [&[1, 1, 5, 10][..], &edges.map(u32::to_be_bytes).concat()].concat();
        for (outside, inside) in [(130, 130), (140, 142), (146, 148)] {
            let acknowledgement =
                segment(FTP, (OUTER, 1024), (1, outside), ACK, &edges([outside, 146]), b"ok");
            let expected = segment(FTP, INNER, (1, inside), ACK, &edges([inside, 148]), b"ok");
            assert_eq!(through(&mut bench, "in1", &acknowledgement, "out1"), expected);
        }
        // The server's data connection reaches the client.
        let data = through(&mut bench, "in1", &tcp((FTP.0, 20), (OUTER, 1025), SYN, b""), "out1");
        assert_eq!(data, tcp((FTP.0, 20), (INNER.0, 19 * 256 + 137), SYN, b""));
        let table = if rewriter == NAPT { "e.tcp_table" } else { "e.table" };
        assert!(bench.read(table).contains(" seq -2 [*0 1]"), "{}", bench.read(table));
    }
}

#[test]
fn a_longer_command_and_padding() {
    let mut bench = ftp_bench("TCPRewriter(pattern 192.168.100.100 65000-65535# - - 0 1, drop)", "0");
    bench.push("in0", &[&line(1, "x\r\n")]);
    bench.taken("out0");
    let mut padded = segment(INNER, FTP, (4, 1), ACK, &[], b"port 10,0,0,1,4,0\n");
    padded.extend([0; 3]);
    let out = through(&mut bench, "in0", &padded, "out0");
    let outer = ([192, 168, 100, 100], 65000);
    assert_eq!(out, segment(outer, FTP, (4, 1), ACK, &[], b"port 192,168,100,100,253,233\n"));
    let next = through(&mut bench, "in0", &line(22, "y"), "out0");
    assert_eq!(next, segment(outer, FTP, (33, 1), ACK, &[], b"y"));
    assert!(bench.read("e.table").contains(" seq +11 "));
}

#[test]
fn what_is_no_whole_port_command_stays() {
    let mut bench = ftp_bench("TCPRewriter(pattern 192.0.2.1 1024-65535# - - 0 1, drop)", "0");
    bench.push("in0", &[&line(1, "x\r\n")]);
    bench.taken("out0");
    let mut sequence = 4;
    for text in [
        "PORT 10,0,0,1,1",
        "37,9\r\n",
        "PORT 10,0,0,1,19,256\r\n",
        "PORT 10,0,0,1,19\r\n",
        "PORT\r\n",
        "PORT ",
        "POR",
        "PORT 10,0,0,1,19,137",
        "\r\n",
        "NOOP\r\nPORT 10,0,0,1,19,137\r\n",
        "PORT 10,,0,1,19,1\r\n",
        "",
    ] {
        assert_eq!(through(&mut bench, "in0", &line(sequence, text), "out0"), outer_line(sequence, text));
        sequence += text.len() as u32;
    }
    assert_eq!(bench.read("e.nmappings"), "1");
}

#[test]
fn a_pattern_of_the_port_mappers_own() {
    let mut bench = ftp_bench("TCPRewriter(keep 0 1, drop)", "192.0.2.9 2000-2100# - - 0 1");
    bench.push("in0", &[&line(1, "x\r\n")]);
    bench.taken("out0");
    let out = through(&mut bench, "in0", &line(4, "PORT 10,0,0,1,19,137\r\n"), "out0");
    assert_eq!(out, line(4, "PORT 192,0,2,9,7,208\r\n"));
    assert_eq!(
        (bench.read("e.nmappings"), bench.read("e.patterns")),
        ("2".to_owned(), "<keep> [1]\n<drop>\n".to_owned())
    );
    let error = mistakes("e :: UDPRewriter(drop, drop); TestInput -> FTPPortMapper(e, e, 0) -> TestOutput;");
    assert!(error.contains("does not follow TCP"), "{error}");
    let error = mistakes("e :: TCPRewriter(drop, drop); TestInput -> FTPPortMapper(e, e, 2) -> TestOutput;");
    assert!(error.contains("no input 2"), "{error}");
}

#[test]
fn configuration_mistakes() {
    for (arguments, complaint) in [
        ("drop", "expected 2 INPUTSPECs"),
        ("drop, dorp", "'dorp' is neither"),
        ("drop, keep 0", "outputs"),
        ("drop, keep 0 2", "output 2 is out of range"),
        ("drop, pass 5", "output 5 is out of range"),
        ("drop, pattern - - 0 x", "bad reply output 'x'"),
        ("drop, in0", "not an IP mapper"),
        ("drop, drop, MAPPING_CAPACITY in0", "neither a number nor a rewriter"),
        ("drop, drop, MAPPING_CAPACITY e", "with itself"),
        ("drop, drop, CAPACITY 100000000", "16777216"),
        ("drop, drop, NONSENSE 1", "unsupported argument 'NONSENSE'"),
    ] {
        let error = mistakes(&format!("e :: IPRewriter({arguments});"));
        assert!(error.contains(complaint), "{arguments}: {error}");
    }
    let old =
        "e :: IPRewriter(drop, discard, REAP_TCP 9, REAP_TCP_DONE 9, REAP_UDP 9, REAP_TIME 5, TIMEOUT 1m);";
    assert_eq!(mistakes(old), "");
}

proptest! {
    /// Whatever comes, every packet leaves or is counted, and what was right stays right.
    #[test]
    fn any_packets(packets in proptest::collection::vec(testbed::ipv4::any_packet(), 1..40), which in 0..6_usize) {
        let (class, pattern) = [
            ("IPRewriter", "192.0.2.1 1024-65535# - -"),
            ("TCPRewriter", "192.0.2.1 1024-65535# - -"),
            ("UDPRewriter", "192.0.2.1 1024-65535# - -"),
            ("IPAddrRewriter", "192.0.2.0/24 -"),
            ("IPAddrPairRewriter", "192.0.2.0/24 -"),
            ("ICMPPingRewriter", "192.0.2.1 - 0-65535"),
        ][which];
        let ftp = if which < 2 { "-> FTPPortMapper(e, e, 0)" } else { "" };
        let mut bench = wired(
            &format!(
                "e :: {class}(pattern {pattern} 0 1, pass 1, CAPACITY 8);
                 err :: TestInput -> MarkIPHeader -> ICMPRewriter(e) -> TestOutput;"
            ),
            ftp,
        );
        let slices: Vec<_> = packets.iter().map(Vec::as_slice).collect();
        for input in ["in0", "in1", "err"] {
            bench.push(input, &slices);
        }
        let out = bench.taken("out0").len() + bench.taken("out1").len();
        let dropped: u64 = bench.stats("e").dropped();
        prop_assert_eq!(out as u64 + dropped, bench.stats("e").packets);
    }

    #[test]
    fn any_udp_packet_is_right_afterwards(
        from: ([u8; 4], u16), to: ([u8; 4], u16), payload in proptest::collection::vec(any::<u8>(), 0..50), is_tcp: bool,
    ) {
        let make = |from, to| if is_tcp { tcp(from, to, ACK, &payload) } else { udp(from, to, &payload) };
        let mut bench = bench("IPRewriter(pattern 192.0.2.1 1024-65535# 10.77.0.3 8000 0 1, drop)");
        let new = ([10, 77, 0, 3], 8000);
        prop_assert_eq!(through(&mut bench, "in0", &make(from, to), "out0"), make((OUTER, 1024), new));
        prop_assert_eq!(through(&mut bench, "in1", &make(new, (OUTER, 1024)), "out1"), make(to, from));
    }
}
