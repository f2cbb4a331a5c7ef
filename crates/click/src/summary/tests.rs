//! Dumps that are written, and read, and written again.

use graph::Setup;
use graph::lang::{FlatElement, Location, PortKind, quote};
use graph::setup::{CopyId, Shared};
use graph::testing::{Bench, configure};
use packet::{Annotations, Packet};
use proptest::prelude::*;
use testbed::ipv4;

use super::to_ip_summary_dump::CLASS;
use crate::registry;
use testbed::Folder;

/// What ToIPSummaryDump writes of packets that the graph `before` makes of `packets`, with the lines at the beginning.
fn whole_dump(before: &str, arguments: &str, packets: impl FnOnce(&mut Bench) -> Vec<Packet>) -> String {
    let folder = Folder::new();
    let path = folder.file("dump");
    let config = format!("in :: TestInput -> {before} -> d :: ToIPSummaryDump({path}, {arguments})");
    let mut bench = Bench::new(&registry(), &config);
    let packets = packets(&mut bench);
    bench.push_packets("in", packets);
    bench.write("d.flush", "").unwrap();
    std::fs::read_to_string(path).unwrap()
}

/// The lines of IP packets.
fn dumped(arguments: &str, packets: &[&[u8]]) -> Vec<String> {
    let text = whole_dump("MarkIPHeader", &format!("HEADER false, {arguments}"), |bench| {
        packets.iter().map(|bytes| bench.packet(bytes)).collect()
    });
    text.lines().map(str::to_owned).collect()
}

/// The packets of a dump.
fn undumped(dump: &str, arguments: &str) -> Vec<Packet> {
    let config = format!("d :: FromIPSummaryDump(DATA {}, {arguments}) -> out :: TestOutput", quote(dump));
    let mut bench = Bench::new(&registry(), &config);
    bench.run(100);
    assert_eq!(bench.messages(), [""; 0], "{dump}");
    bench.taken_packets("out")
}

/// The lines of the packets of a dump, with the same fields.
fn redumped(fields: &str, lines: &[&str]) -> Vec<String> {
    let dump = format!("!data {fields}\n{}\n", lines.join("\n"));
    let text = whole_dump("Null", &format!("HEADER false, FIELDS {fields}"), |_| undumped(&dump, ""));
    text.lines().map(str::to_owned).collect()
}

fn tcp(options: &[u8], payload: &[u8]) -> Vec<u8> {
    let words = 5 + options.len() as u8 / 4;
    let header = [0, 80, 1, 0, 0, 0, 0, 7, 0, 0, 1, 0, words << 4, 0x12, 2, 0, 0xab, 0xcd, 0, 3];
    ipv4::ipv4([1, 0, 0, 1], [2, 0, 0, 2], 6, &[&header, options, payload].concat())
}

#[test]
fn the_lines_at_the_beginning() {
    let none = |_: &mut Bench| Vec::new();
    let text = whole_dump("Null", "FIELDS src 'tcp seq' ntimestamp payload", none);
    assert_eq!(text, "!IPSummaryDump 1.3\n!data ip_src tcp_seq timestamp payload\n");
    let text = whole_dump("Null", "BANNER \"a $\\\"b\", VERBOSE true", none);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], "!creator \"a \\$\\\"b\"");
    assert!(lines[2].starts_with("!host ") && lines[3].starts_with("!runtime ") && lines[3].ends_with(')'));
    assert_eq!(lines[4], "!data timestamp ip_src");
    assert_eq!(whole_dump("Null", "HEADER false, BANNER x", none), "");
}

#[test]
fn fields_of_tcp() {
    let packet = tcp(&[2, 4, 5, 0xb4, 4, 2, 1, 0], b"he\"llo\n");
    for (fields, line) in [
        ("src dst sport dport proto len", "1.0.0.1 2.0.0.2 80 256 T 55"),
        ("ip_hl ip_id ip_tos ip_ttl ip_frag ip_fragoff ip_opt", "20 4660 0 64 . 0 ."),
        ("tcp_seq tcp_ack tcp_off tcp_flags tcp_window tcp_urp tcp_sum", "7 256 28 SA 512 3 43981"),
        ("tcp_opt tcp_ntopt tcp_sack", "mss1460;sackok mss1460;sackok sackok"),
        ("payload_len payload", "7 \"he\\\"llo\\n\""),
        ("udp_len udp_sum icmp_type icmp_code_name icmp_seq eth_src", "- - - - - -"),
        ("wire_len capture_len ip_capture_len count aggregate", "55 55 55 1 0"),
        ("link paint direction timestamp ts_sec ts_usec ts_usec1", "0 0 > 0.000000 0 0 0"),
    ] {
        assert_eq!(dumped(&format!("FIELDS {fields}"), &[&packet]), [line], "{fields}");
    }
}

#[test]
fn fields_of_udp_and_icmp() {
    let udp = ipv4::ipv4([1, 0, 0, 1], [2, 0, 0, 2], 17, &[0, 53, 0, 54, 0, 11, 0, 9, 1, 2, 3]);
    let echo = ipv4::ipv4([1, 0, 0, 1], [2, 0, 0, 2], 1, &[8, 0, 0, 0, 1, 0, 0, 5, 9]);
    let needed = ipv4::ipv4([1, 0, 0, 1], [2, 0, 0, 2], 1, &[3, 4, 0, 0, 0, 0, 5, 0xdc]);
    let odd = ipv4::ipv4([1, 0, 0, 1], [2, 0, 0, 2], 1, &[200, 7]);
    let packets: [&[u8]; 4] = [&udp, &echo, &needed, &odd];
    assert_eq!(
        dumped("FIELDS proto sport udp_len udp_sum payload_len payload", &packets[..2]),
        ["U 53 11 9 3 \"\\001\\002\\003\"", "I - - - 9 \"\\010\\000\\000\\000\\001\\000\\000\\005\\t\""]
    );
    assert_eq!(
        dumped("FIELDS icmp_type icmp_code icmp_flowid icmp_seq icmp_nextmtu", &packets),
        ["- - - - -", "8 0 256 5 -", "3 4 - - 1500", "200 7 - - -"]
    );
    assert_eq!(
        dumped("FIELDS icmp_type_name icmp_code_name", &packets),
        ["- -", "echo 0", "unreachable needfrag", "200 7"]
    );
}

/// Click's own test of packets of which ever less is there.
#[test]
fn cut_packets() {
    let mut packet = tcp(&[3, 3, 10, 0], b"");
    let arguments = "FIELDS sport dport tcp_urp tcp_opt, BAD_PACKETS true, CAREFUL_TRUNC false";
    let cut = |length: usize| dumped(arguments, &[&packet[..length]]);
    assert_eq!(cut(44), ["80 256 3 wscale10"]);
    assert_eq!(cut(41), ["!bad truncated TCP header", "80 256 3 -"]);
    assert_eq!(cut(38), ["!bad truncated TCP header", "80 256 - -"]);
    assert_eq!(cut(23), ["!bad truncated TCP/UDP header", "80 - - -"]);
    assert_eq!(cut(20), ["!bad truncated TCP/UDP header", "- - - -"]);
    assert_eq!(
        dumped("FIELDS sport, BAD_PACKETS true", &[&packet[..40]]),
        ["!bad truncated IP missing 4", "80"]
    );
    packet[32] = 0x40;
    assert_eq!(dumped(arguments, &[&packet]), ["!bad TCP header length 4", "80 256 - -"]);
}

#[test]
fn bad_packets() {
    let packet = tcp(&[], b"");
    let changed = |at: usize, value: u8| {
        let mut packet = packet.clone();
        packet[at] = value;
        packet
    };
    for (packet, lines) in [
        (changed(0, 0x65), ["!bad IP version 6", "- -"]),
        (changed(0, 0x44), ["!bad IP header length 4", "- -"]),
        (changed(3, 19), ["!bad IP length 19", "- -"]),
        (changed(3, 41), ["!bad truncated IP missing 1", "1.0.0.1 80"]),
        (changed(7, 1), ["!bad fragmented TCP/UDP header", "1.0.0.1 -"]),
    ] {
        assert_eq!(dumped("FIELDS src sport, BAD_PACKETS true", &[&packet]), lines);
    }
    let ospf = ipv4::ipv4([1, 0, 0, 1], [2, 0, 0, 2], 89, b"abc");
    assert_eq!(dumped("FIELDS proto sport payload, BAD_PACKETS true", &[&ospf]), ["89 - \"abc\""]);
    let unmarked = whole_dump("Null", "HEADER false, FIELDS src len, BAD_PACKETS true", |bench| {
        vec![bench.packet(&packet)]
    });
    assert_eq!(unmarked, "!bad no IP header\n- 40\n");
}

#[test]
fn padding_and_what_was_cut_off() {
    let packet = tcp(&[], b"abcdef");
    let padded = [&packet[..], &[0; 10]].concat();
    let fields = "FIELDS len payload payload_len ip_capture_len wire_len capture_len";
    assert_eq!(dumped(fields, &[&padded]), ["46 \"abcdef\" 6 46 56 46"]);
    let cut = |arguments: &str| {
        whole_dump("MarkIPHeader -> Truncate(43)", &format!("HEADER false, {arguments}"), |bench| {
            vec![bench.packet(&packet)]
        })
    };
    assert_eq!(cut(&format!("{fields}, BAD_PACKETS true")), "46 \"abc\" 6 43 43 43\n");
    assert_eq!(cut("FIELDS len, BAD_PACKETS true, EXTRA_LENGTH false"), "!bad truncated IP missing 3\n46\n");
}

#[test]
fn ethernet_headers() {
    let ip = tcp(&[], b"");
    let frame = [&[1, 2, 3, 4, 5, 6, 10, 11, 12, 13, 14, 15, 8, 0][..], &ip].concat();
    let line = |before: &str| {
        whole_dump(before, "HEADER false, FIELDS eth_dst eth_src eth_type src", |bench| {
            vec![bench.packet(&frame)]
        })
    };
    let all = "01-02-03-04-05-06 0A-0B-0C-0D-0E-0F 0800";
    assert_eq!(line("MarkIPHeader(14)"), format!("{all} 1.0.0.1\n"));
    assert_eq!(line("MarkMACHeader -> Strip(14) -> MarkIPHeader"), format!("{all} 1.0.0.1\n"));
    assert_eq!(line("MarkMACHeader"), format!("{all} -\n"));
    assert_eq!(line("Strip(14) -> MarkIPHeader"), "- - - 1.0.0.1\n");
}

#[test]
fn several_lines_of_a_packet() {
    let dump = "!data first_timestamp timestamp count len proto agg\n1.0 3.0 3 301 U 5\n";
    let lines =
        |arguments: &str| whole_dump("Null", &format!("HEADER false, {arguments}"), |_| undumped(dump, ""));
    assert_eq!(
        lines("FIELDS timestamp agg wire_len, MULTIPACKET true"),
        "1.000000 5 28\n2.000000 5 28\n3.000000 5 28\n"
    );
    let together = "3.000000 3 301\n";
    assert_eq!(lines("FIELDS timestamp count len, MULTIPACKET true"), together);
    assert_eq!(lines("FIELDS timestamp count len"), together);
}

#[test]
fn packets_go_on_and_are_pulled() {
    let folder = Folder::new();
    let path = folder.file("dump");
    let mut bench = Bench::element(&registry(), &format!("ToIPSummaryDump({path})"), 1, 1);
    bench.push("in0", &[b"one", b"two"]);
    assert_eq!(bench.taken("out0"), [b"one", b"two"]);
    assert_eq!(bench.read("e.count"), "2");
    for end in ["", " -> out :: TestOutput"] {
        let config = format!("in :: TestInput -> Queue -> d :: ToIPSummaryDump({path}, FIELDS len){end}");
        let mut bench = Bench::new(&registry(), &config);
        bench.push("in", &[b"one", b"three"]);
        bench.run(10);
        bench.write("d.flush", "").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "!IPSummaryDump 1.3\n!data ip_len\n3\n5\n");
        assert!(!bench.graph().context().has_awake_tasks());
        if !end.is_empty() {
            assert_eq!(bench.taken("out").len(), 2);
        }
    }
}

#[test]
fn mistakes() {
    for (arguments, words) in [
        ("", "FILENAME"),
        ("/no/such/folder/x", "/no/such/folder"),
        ("x, FIELDS ip_sorc", "did you mean 'ip_src'"),
        ("x, FIELDS payload_md5", "MD5"),
        ("x, FIELDS ''", "unknown content type ''"),
        ("x, BINARY true", "BINARY"),
    ] {
        assert!(configure(&CLASS, arguments).unwrap_err()[0].contains(words), "{arguments}");
    }
}

/// All workers write to one file, and a configuration that is only checked to none.
#[test]
fn one_file_for_all_copies() {
    let folder = Folder::new();
    let path = folder.file("dump");
    let flat = FlatElement {
        name: "d".into(),
        class: CLASS.name.into(),
        capabilities: &[],
        config: format!("{path}, FIELDS len"),
        location: Location { file: "test.click".into(), line: 1, column: 1, length: 1 },
        inputs: 1,
        outputs: 0,
        input_kinds: vec![PortKind::Push],
        output_kinds: Vec::new(),
    };
    let shared = Shared::default();
    let setup = |index| Setup::new(&flat, &shared, CopyId { index, workers: 2, slow_thread: false });
    assert!((CLASS.make)(&mut setup(0).for_check()).is_ok());
    assert!(!std::fs::exists(&path).unwrap());
    let copies =
        [0, 1].map(|index| (CLASS.make)(&mut setup(index)).unwrap_or_else(|error| panic!("{error}")));
    drop((copies, setup));
    drop(shared);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "!IPSummaryDump 1.3\n!data ip_len\n");
}

/// Only the first worker reads.
#[test]
fn one_copy_reads() {
    let flat = FlatElement {
        name: "d".into(),
        class: "FromIPSummaryDump".into(),
        capabilities: &[],
        config: "/no/such/file".into(),
        location: Location { file: "test.click".into(), line: 1, column: 1, length: 1 },
        inputs: 0,
        outputs: 1,
        input_kinds: Vec::new(),
        output_kinds: vec![PortKind::Push],
    };
    let make = super::from_ip_summary_dump::CLASS.make;
    let shared = Shared::default();
    let setup = |index| Setup::new(&flat, &shared, CopyId { index, workers: 2, slow_thread: false });
    assert!(make(&mut setup(0)).is_err());
    assert!(make(&mut setup(1)).is_ok());
    assert!(make(&mut setup(0).for_check()).is_ok());
}

/// Lines whose packets give the same lines.
#[test]
fn lines_come_back() {
    for (fields, lines) in [
        (
            "timestamp first_timestamp count link aggregate",
            &["996033261.451094 1.000000001 7 3 12345", "0.000000 0.000000 1 0 0"][..],
        ),
        ("direction ts_sec ts_usec", &["> 5 17", "< 0 999999", "9 4 0"]),
        (
            "ip_src ip_dst ip_len ip_proto ip_id ip_tos ip_ttl ip_sum ip_hl ip_fragoff ip_frag",
            &["1.2.3.4 5.6.7.8 1500 T 7 8 9 10 20 0 .", "1.2.3.4 5.6.7.8 65535 50 7 8 9 10 60 1480+ f"],
        ),
        ("ip_dscp ip_ecn ip_frag", &["46 ce !", "63 no F", "0 ect1 .", "1 ect2 ."]),
        (
            "ip_proto sport dport tcp_seq tcp_ack tcp_off tcp_flags tcp_window tcp_urp tcp_sum tcp_opt",
            &[
                "T 1 65535 4294967295 1 20 PA 3 4 5 .",
                "T 1 2 3 4 44 SA 3 4 5 mss1460;sackok;ts1:2;wscale7",
                "U 1 2 - - - - - - - -",
            ],
        ),
        ("ip_proto udp_len udp_sum payload", &["U 20 5 \"a b\\\"c\\000\"", "U 8 0 \"\""]),
        ("ip_len payload_len payload", &["1500 1460 \"abc\"", "60 20 \"\\377\\n\""]),
        (
            "ip_proto icmp_type icmp_code icmp_flowid icmp_seq icmp_nextmtu",
            &["I 8 0 5 6 -", "I 3 4 - - 1400", "I 13 0 7 8 -"],
        ),
        (
            "ip_proto icmp_type_name icmp_code_name",
            &["I unreachable needfrag", "I echo 0", "I timeexceeded reassembly", "I 99 3"],
        ),
        (
            "eth_src eth_dst eth_type ip_src wire_len",
            &["00-01-02-03-04-05 0A-0B-0C-0D-0E-0F 0800 1.2.3.4 54"],
        ),
        (
            "ip_src sport dport ip_proto ip_opt",
            &["18.26.4.44 10 80 T rr{2.3.4.5}+3", "18.26.4.44 13 80 U ts.preip{1.0.0.1=1^1.0.0.3,1.0.0.4}"],
        ),
    ] {
        assert_eq!(redumped(fields, lines), lines, "{fields}");
    }
}

#[test]
fn annotations_are_those_of_click() {
    let packets = undumped("!data first_timestamp count paint agg\n1.5 8 3 9\n", "");
    let annotations = packets[0].annotations();
    assert_eq!(annotations.bytes()[32..40], 1_500_000_000u64.to_ne_bytes());
    assert_eq!(annotations.u32_at(Annotations::EXTRA_PACKETS), Some(7));
    assert_eq!(annotations.u32_at(Annotations::AGGREGATE), Some(9));
    assert_eq!(annotations.paint(), 3);
}

/// All fields that can be read, in an order that suits nobody.
const ALL: &str = "payload payload_len tcp_opt tcp_sum tcp_urp tcp_window tcp_flags tcp_ack tcp_seq udp_sum udp_len \
                   icmp_nextmtu icmp_seq icmp_flowid icmp_code icmp_type sport dport ip_len ip_sum ip_opt ip_hl ip_proto \
                   ip_id ip_fragoff ip_ttl ip_tos ip_dst ip_src paint aggregate timestamp";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A packet whose headers are right comes back from its line as it was; of any other, the line of what comes back can
    /// be read.
    #[test]
    fn packets_come_back_from_their_lines(bytes in ipv4::any_packet()) {
        let line = &dumped(&format!("FIELDS {ALL}"), &[&bytes])[0];
        if line.starts_with("- ") {
            return Ok(());
        }
        let dump = format!("!data {ALL}\n{line}\n");
        for packet in undumped(&dump, "") {
            let again = dumped(&format!("FIELDS {ALL}"), &[packet.data()]);
            prop_assert_eq!(again.len(), 1);
        }
    }

    /// Right packets of TCP and UDP are the same byte for byte.
    #[test]
    fn right_packets_are_the_same(
        payload in proptest::collection::vec(any::<u8>(), 0..100),
        header in any::<[u8; 20]>(),
        is_tcp in any::<bool>(),
    ) {
        let (mut header, protocol) = (header.to_vec(), if is_tcp { 6 } else { 17 });
        header.truncate(if is_tcp { 20 } else { 8 });
        if is_tcp {
            header[12] = 0x50 | header[12] & 1;
        } else {
            header[4..6].copy_from_slice(&(8 + payload.len() as u16).to_be_bytes());
        }
        let bytes = ipv4::ipv4([1, 2, 3, 4], [5, 6, 7, 8], protocol, &[header, payload].concat());
        let line = &dumped(&format!("FIELDS {ALL}"), &[&bytes])[0];
        let packets = undumped(&format!("!data {ALL}\n{line}\n"), "");
        prop_assert_eq!(packets.len(), 1);
        prop_assert_eq!(packets[0].data(), &bytes[..]);
    }

    /// Whatever stands in a dump, packets come of it or a message, and they can be dumped.
    #[test]
    fn any_dump(
        lines in proptest::collection::vec("[!-~ ]{0,60}|[-0-9 .TUI\"a:;=]{0,80}", 0..6),
        sum in any::<bool>(),
    ) {
        let dump = format!("!data {ALL}\n{}\n", lines.join("\n"));
        let folder = Folder::new();
        let config = format!(
            "FromIPSummaryDump(DATA {}, CHECKSUM {sum}, MULTIPACKET true)
             -> ToIPSummaryDump({}, FIELDS {ALL}, BAD_PACKETS true)",
            quote(&dump),
            folder.file("dump")
        );
        Bench::new(&registry(), &config).run(100);
    }
}
