//! Packets that FromIPSummaryDump makes.

use graph::lang::quote;
use graph::testing::{Bench, configure};
use packet::{Annotations, Packet};

use super::annotations::{extra_length, extra_packets};
use super::from_ip_summary_dump::CLASS;
use crate::registry;
use testbed::Folder;

fn bench(arguments: &str, dump: &str) -> Bench {
    let config = format!("d :: FromIPSummaryDump(DATA {}, {arguments}) -> out :: TestOutput", quote(dump));
    Bench::new(&registry(), &config)
}

fn packets(arguments: &str, dump: &str) -> Vec<Packet> {
    let mut bench = bench(arguments, dump);
    bench.run(100);
    assert_eq!(bench.messages(), [""; 0]);
    bench.taken_packets("out")
}

fn lengths(packets: &[Packet]) -> Vec<(usize, u32)> {
    packets.iter().map(|packet| (packet.len(), extra_length(packet))).collect()
}

#[test]
fn a_line_is_a_packet() {
    let dump = "!IPSummaryDump 1.3\n!data timestamp src sport dst dport proto len ttl paint\n\
                5.25 1.2.3.4 7 5.6.7.8 9 U 100 3 2\n";
    let packets = packets("", dump);
    let [packet] = &packets[..] else { panic!("{} packets", packets.len()) };
    let expected =
        [0x45, 0, 0, 100, 0, 0, 0, 0, 3, 17, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 7, 0, 9, 0, 80, 0, 0];
    assert_eq!(packet.data(), expected);
    assert_eq!(packet.timestamp_ns(), 5_250_000_000);
    assert_eq!(extra_length(packet), 72);
    assert_eq!(packet.annotations().paint(), 2);
    assert_eq!(packet.annotations().destination_ip(), 0x0506_0708);
    assert_eq!((packet.network_offset(), packet.transport_offset()), (Some(0), Some(20)));
}

#[test]
fn checksums_make_packets_whole() {
    let dump = "!data src dst sport dport proto len payload\n\
                1.2.3.4 5.6.7.8 1 2 T 60 \"abc\"\n1.2.3.4 5.6.7.8 1 2 U 40 -\n1.2.3.4 5.6.7.8 - - I 29 -\n";
    let config = format!(
        "FromIPSummaryDump(DATA {}, CHECKSUM true) -> c :: CheckIPHeader
         -> i :: IPClassifier(tcp, udp, icmp);
         i[0] -> CheckTCPHeader -> out :: TestOutput; i[1] -> CheckUDPHeader -> out;
         i[2] -> CheckICMPHeader -> out",
        quote(dump)
    );
    let mut bench = Bench::new(&registry(), &config);
    bench.run(10);
    let lengths: Vec<usize> = bench.taken("out").iter().map(Vec::len).collect();
    assert_eq!(lengths, [60, 40, 29]);
}

#[test]
fn what_holds_for_the_whole_dump() {
    let dump = "!data count\n!proto I\n1\n!flowid 1.0.0.1 5 1.0.0.2 6 U\n!aggregate 9\n1\n";
    let packets = packets("PROTO 50", dump);
    // Nothing needs a header at first.
    assert_eq!(packets[0].len(), 0);
    assert_eq!(packets[1].data()[9..10], [17]);
    assert_eq!(packets[1].data()[12..24], [1, 0, 0, 1, 1, 0, 0, 2, 0, 5, 0, 6]);
    assert_eq!(packets[1].annotations().u32_at(Annotations::AGGREGATE), Some(9));
    let dump = "7\n";
    let packets = self::packets("CONTENTS sport, FLOWID \"1.0.0.1 5 1.0.0.2 6 udp\"", dump);
    assert_eq!(packets.len(), 1);
    assert_eq!(packets[0].data()[20..24], [0, 7, 0, 6]);
}

#[test]
fn ethernet_headers() {
    let dump = "!data eth_src eth_type src payload\n00-01-02-03-04-05 0800 1.2.3.4 -\n- 86DD - -\n\
                - 0806 - \"abc\"\n";
    let packets = packets("", dump);
    assert_eq!(packets[0].data()[..16], [0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 8, 0, 0x45, 0]);
    assert_eq!((packets[0].link_offset(), packets[0].network_offset()), (Some(0), Some(14)));
    assert_eq!(packets[0].data()[16..18], [0, 40]);
    assert_eq!(packets[1].data().len(), 14);
    assert_eq!((&packets[2].data()[..3], packets[2].network_offset()), (&b"abc"[..], None));
}

#[test]
fn headers_grow_to_agree_with_the_lengths() {
    let dump = "!data len payload_len tcp_opt ip_opt proto\n52 0 - - T\n100 4 - - T\n60 20 - - U\n60 10 . - T\n\
                60 10 . . T\n";
    let offsets = |packet: &Packet| (packet.data()[0] & 0x0f, packet.data().get(32).map(|byte| byte >> 4));
    let packets = packets("", dump);
    assert_eq!((packets[0].data()[0], packets[0].data()[32] >> 4), (0x45, 8));
    assert_eq!(packets[1].len(), 96);
    assert_eq!((packets[1].data()[0], packets[1].data()[48] >> 4), (0x49, 15));
    assert_eq!(packets[2].data()[0], 0x48);
    assert_eq!(packets[3].data()[0], 0x47);
    assert_eq!(offsets(&packets[4]), (5, Some(5)));
}

#[test]
fn several_packets_of_a_line() {
    let dump = "!data first_timestamp timestamp count len proto\n1.0 3.0 3 301 U\n";
    let packets = packets("MULTIPACKET true", dump);
    assert_eq!(lengths(&packets), [(28, 72), (28, 72), (28, 73)]);
    assert_eq!(packets.iter().map(|packet| packet.data()[3]).collect::<Vec<_>>(), [100, 100, 101]);
    assert_eq!(packets.iter().map(|packet| packet.data()[25]).collect::<Vec<_>>(), [80, 80, 81]);
    let times: Vec<u64> = packets.iter().map(|packet| packet.timestamp_ns() / 1_000_000).collect();
    assert_eq!(times, [1000, 2000, 3000]);
    let dump = "!data count len\n3 -\n";
    assert_eq!(lengths(&self::packets("MULTIPACKET true", dump)), [(0, 0); 3]);
    let together = self::packets("", dump);
    assert_eq!(extra_packets(&together[0]), 2);
}

#[test]
fn timing_sampling_and_handlers() {
    let mut bench = bench("TIMING true, ACTIVE false", "!data ts_usec1\n0\n2000\n3000\n");
    bench.run(10);
    assert!(bench.taken("out").is_empty());
    bench.write("d.active", "true").unwrap();
    bench.run(10);
    assert_eq!(bench.taken("out").len(), 1);
    bench.advance_ns(2_000_000);
    assert_eq!(bench.taken("out").len(), 1);
    bench.advance_ns(1_000_000);
    assert_eq!(bench.taken("out").len(), 1);
    assert_eq!(bench.read("d.count"), "3");
    assert_eq!(bench.read("d.filepos"), bench.read("d.filesize"));
    assert_eq!(bench.read("d.encap"), "IP");
    assert_eq!(bench.read("d.sampling_prob"), "1");
    assert!(bench.write("d.active", "perhaps").is_err());
    bench.write("d.stop", "").unwrap();
    assert_eq!(bench.read("d.active"), "false");
    assert_eq!(packets("SAMPLE 0", "!data count\n1\n1\n").len(), 0);
}

#[test]
fn it_can_be_pulled() {
    let dump = quote("!data ts_usec1\n0\n2000\n");
    let config = format!("FromIPSummaryDump(DATA {dump}, TIMING true) -> Unqueue -> out :: TestOutput");
    let mut bench = Bench::new(&registry(), &config);
    bench.run(10);
    assert_eq!(bench.taken("out").len(), 1);
    bench.advance_ns(2_000_000);
    assert_eq!(bench.taken("out").len(), 1);
    assert!(!bench.graph().context().has_awake_tasks());
}

#[test]
fn lines_that_are_not_understood() {
    let mut bench = bench("", "!data src len payload\nx y\n1.2.3.4 70 \"a\\x\nz\n- 4000\n!binary\n9.9.9.9\n");
    bench.run(10);
    assert_eq!(bench.taken("out").len(), 2);
    assert_eq!(bench.drops("d", "line not understood"), 2);
    assert_eq!(
        bench.messages(),
        [
            "<data>:2: packet parse error",
            "<data>:6: the binary format is not supported; write the dump again without BINARY"
        ]
    );
    let mut bench = self::bench("CHECKSUM true", "!data src len\n1.2.3.4 4000\n");
    bench.run(10);
    assert_eq!(bench.drops("d", "longer than a frame"), 1);
}

#[test]
fn files() {
    let folder = Folder::new();
    let path = folder.file("dump");
    std::fs::write(&path, "!IPSummaryDump 1.3\n!data src\n1.2.3.4").unwrap();
    let config = format!("d :: FromIPSummaryDump({path}) -> out :: TestOutput");
    let mut bench = Bench::new(&registry(), &config);
    bench.run(10);
    assert_eq!(bench.taken("out").len(), 1);
    assert_eq!(bench.read("d.filesize"), "36");
    let absent = folder.file("absent");
    assert!(configure(&CLASS, &absent).unwrap_err()[0].contains(&absent));
    assert!(configure(&CLASS, &format!("{absent}, ALLOW_NONEXISTENT true")).is_ok());
}

#[test]
fn mistakes() {
    for (arguments, word) in [
        ("", "FILENAME"),
        ("x, DATA y", "exclude"),
        ("DATA y, SAMPLE 2", "SAMPLE"),
        ("DATA y, PROTO 256", "PROTO"),
        ("DATA y, CONTENTS ip_sorc", "'ip_sorc'"),
        ("DATA y, FLOWID 1 2 3", "FLOWID"),
        ("DATA y, BINARY true", "BINARY"),
    ] {
        assert!(configure(&CLASS, arguments).unwrap_err()[0].contains(word), "{arguments}");
    }
    assert!(configure(&CLASS, "DATA y, CONTENTS ip_src payload_md5 \"tcp seq\"").is_ok());
}
