//! Tests of whole programs by example: expressions and real packets, the programs that Click
//! prints, errors and warnings.

use super::ip_names::Configured;
use super::*;

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| text.to_string()).collect()
}

fn classifier(patterns: &[&str]) -> Program {
    Program::classifier(&strings(patterns)).unwrap().0
}

fn ip_classifier(expressions: &[&str]) -> Program {
    Program::ip_classifier(&strings(expressions)).unwrap().0
}

fn ip_filter(rules: &[&str]) -> Program {
    Program::ip_filter(&strings(rules)).unwrap().0
}

/// Offsets of the network header and the transport header in the packets below.
const NETWORK: usize = 14;
const TRANSPORT: usize = 34;

/// Ethernet, IPv4 and the start of a transport header.
struct Frame(Vec<u8>);

impl Frame {
    fn new(protocol: u8, src: [u8; 4], dst: [u8; 4], transport: &[u8]) -> Frame {
        let mut bytes = vec![0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0, 1, 2, 3, 4, 5, 0x08, 0x00];
        let total = 20 + transport.len() as u16;
        bytes.extend([0x45, 0, (total >> 8) as u8, total as u8, 0x12, 0x34, 0x40, 0, 64, protocol, 0, 0]);
        bytes.extend(src);
        bytes.extend(dst);
        bytes.extend(transport);
        Frame(bytes)
    }

    fn tcp(src: [u8; 4], sport: u16, dst: [u8; 4], dport: u16, flags: u8) -> Frame {
        let mut header = [0; 20];
        header[..2].copy_from_slice(&sport.to_be_bytes());
        header[2..4].copy_from_slice(&dport.to_be_bytes());
        (header[12], header[13], header[14], header[15]) = (0x50, flags, 0x16, 0xd0);
        Frame::new(6, src, dst, &header)
    }

    fn udp(src: [u8; 4], sport: u16, dst: [u8; 4], dport: u16) -> Frame {
        let mut header = [0; 8];
        header[..2].copy_from_slice(&sport.to_be_bytes());
        header[2..4].copy_from_slice(&dport.to_be_bytes());
        Frame::new(17, src, dst, &header)
    }

    fn icmp(kind: u8, code: u8) -> Frame {
        Frame::new(1, [10, 0, 0, 1], [10, 0, 0, 2], &[kind, code, 0, 0, 0, 1, 0, 1])
    }

    fn with(mut self, offset: usize, bytes: &[u8]) -> Frame {
        self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
        self
    }

    fn run(&self, program: &Program) -> Option<u32> {
        program.run(&self.0, NETWORK, TRANSPORT)
    }
}

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [192, 168, 7, 9];

#[test]
fn expressions_hold_of_the_packets_they_should() {
    let syn = || Frame::tcp(A, 40000, B, 80, 0x02);
    let syn_ack = || Frame::tcp(B, 80, A, 40000, 0x12);
    let dns = || Frame::udp(A, 5353, B, 53);
    let ping = || Frame::icmp(8, 0);
    let late = || Frame::tcp(A, 40000, B, 80, 0x02).with(NETWORK + 6, &[0x00, 0x10]);
    let first = || Frame::udp(A, 5353, B, 53).with(NETWORK + 6, &[0x20, 0x00]);
    let table: &[(&str, Frame, bool)] = &[
        ("tcp", syn(), true),
        ("udp", syn(), false),
        ("ip proto 6", syn(), true),
        ("proto tcp", syn(), true),
        ("ip proto != 6", syn(), false),
        ("ip proto != 6", dns(), true),
        ("ip proto >= 6", dns(), true),
        ("tcpudp", dns(), true),
        ("tcpudp", ping(), false),
        ("icmp", ping(), true),
        ("icmp type echo", ping(), true),
        ("icmp type 8", ping(), true),
        ("icmp type != echo-reply", ping(), true),
        ("icmp type != echo-reply", syn(), false),
        ("not icmp type echo-reply", syn(), true),
        ("icmp type unreachable", ping(), false),
        ("tcp dst port 80", syn(), true),
        ("dst tcp port www", syn(), true),
        ("src tcp port www", syn(), false),
        ("src tcp port www", syn_ack(), true),
        ("port 80", syn(), true),
        ("port 80", syn_ack(), true),
        ("port 80", dns(), false),
        ("www", syn_ack(), true),
        ("src and dst port 80", syn(), false),
        ("src and dst port 53", Frame::udp(A, 53, B, 53), true),
        ("src or dst port 53", dns(), true),
        ("udp port dns", dns(), true),
        ("tcp dst port 8000 or 80", syn(), true),
        ("tcp dst port 8000 or 81", syn(), false),
        ("dst port != 80", syn(), false),
        ("dst port != 80", ping(), false),
        ("not dst port 80", ping(), true),
        ("! dst port 80", syn(), false),
        ("not not dst port 80", syn(), true),
        ("src port > 1023", syn(), true),
        ("src port > 40000", syn(), false),
        ("src port >= 40000", syn(), true),
        ("src port < 40000", syn(), false),
        ("src port <= 40000", syn(), true),
        ("src port 1024-65535", syn(), true),
        ("src port 1024-39999", syn(), false),
        ("src port 40000-40000", syn(), true),
        ("src port != 1024-39999", syn(), true),
        ("port & 15 == 5", Frame::udp(A, 0x1235, B, 0), true),
        ("port & 15 == 5", Frame::udp(A, 0x1236, B, 0), false),
        ("port & 10 > 5", Frame::udp(A, 9, B, 0), true),
        ("port & 10 > 5", Frame::udp(A, 7, B, 5), false),
        ("host 10.0.0.1", syn(), true),
        ("src host 10.0.0.1", syn(), true),
        ("dst host 10.0.0.1", syn(), false),
        ("src 10.0.0.1", syn(), true),
        ("10.0.0.1", syn_ack(), true),
        ("src 10.0.0.2 or 10.0.0.1", syn(), true),
        ("src 10.0.0.2 or 10.0.0.1", syn_ack(), false),
        ("src host != 10.0.0.1", syn(), false),
        ("host != 10.0.0.1", syn_ack(), false),
        ("src and dst 10.0.0.1", syn(), false),
        ("net 10.0.0.0/8", syn(), true),
        ("10/8", syn(), true),
        ("src net 192.168/16", syn(), false),
        ("dst 192.168.0.0/255.255.0.0", syn(), true),
        ("dst net 192.168.0.0 mask 255.255.0.0", syn(), true),
        ("src & 0.0.0.255 == 0.0.0.1", syn(), true),
        ("src & 255.0.0.0 10.0.0.0", syn(), true),
        ("0.0.0.0/0", syn(), true),
        ("ip vers 4", syn(), true),
        ("ip hl 5", syn(), true),
        ("ip hl > 5", syn(), false),
        ("ip id 0x1234", syn(), true),
        ("ip id & 0xff == 0x34", syn(), true),
        ("ip ttl 64", syn(), true),
        ("ip ttl < 64", syn(), false),
        ("ip ttl 60-64", syn(), true),
        ("ip len 40", syn(), true),
        ("ip len >= 41", syn(), false),
        ("ip tos 0xb8", syn().with(NETWORK + 1, &[0xb8]), true),
        ("ip dscp 46", syn().with(NETWORK + 1, &[0xb8]), true),
        ("ip dscp 46", syn().with(NETWORK + 1, &[0xbb]), true),
        ("ip dscp 46", syn(), false),
        ("ip ect", syn(), false),
        ("ip ect", syn().with(NETWORK + 1, &[0x01]), true),
        ("ip ect 2", syn().with(NETWORK + 1, &[0x02]), true),
        ("ip ce", syn().with(NETWORK + 1, &[0x01]), false),
        ("ce", syn().with(NETWORK + 1, &[0xff]), true),
        ("ip frag", late(), true),
        ("ip frag", first(), true),
        ("ip unfrag", syn(), true),
        ("unfrag", late(), false),
        ("tcp dst port 80", late(), false),
        ("tcp opt syn", late(), false),
        ("tcp", late(), true),
        ("dst port 53", first(), true),
        ("tcp opt syn", syn(), true),
        ("syn", syn(), true),
        ("syn and not ack", syn(), true),
        ("syn and not ack", syn_ack(), false),
        ("syn ack", syn_ack(), true),
        ("syn ack", syn(), false),
        ("tcp opt 18", syn_ack(), true),
        ("tcp win 5840", syn(), true),
        ("tcp win > 5840", syn(), false),
        ("ip[0] 0x45", syn(), true),
        ("ip[2:2] == 40", syn(), true),
        ("ip[2,3] == 40", syn(), true),
        ("ip[16:4] 0xc0a80709", syn(), true),
        ("ip[9] & 0xf0 = 0x10", dns(), true),
        ("tcp[13] & 2 != 0", syn(), true),
        ("tcp[13] & 2 != 0", dns(), false),
        ("udp[2:2] 53", dns(), true),
        ("transp[2:2] > 52", dns(), true),
        ("transp[2:2] > 53", dns(), false),
        ("ether host 0:1:2:3:4:5", syn(), true),
        ("src ether host 0:1:2:3:4:5", syn(), true),
        ("ether src host 0:1:2:3:4:5", syn(), true),
        ("ether src 10:20:30:40:50:60", syn(), false),
        ("dst 10:20:30:40:50:60", syn(), true),
        ("true", syn(), true),
        ("false", syn(), false),
        ("all", syn(), true),
        ("any", syn(), true),
        ("-", syn(), true),
        ("none", syn(), false),
        ("tcp ? dst port 80 : src port 5353", syn(), true),
        ("tcp ? dst port 80 : src port 5353", dns(), true),
        ("tcp ? dst port 81 : src port 5353", syn(), false),
        ("tcp ? false : udp ? dst port 53 : true", dns(), true),
        ("tcp ? false : udp ? dst port 53 : true", ping(), true),
        ("(dst port www or dst port ssh) and tcp opt syn", syn(), true),
        ("!(tcp or udp)", ping(), true),
        ("! (tcp || udp) && icmp", ping(), true),
        ("udp or tcp and dst port 81", dns(), true),
        ("(udp or tcp) and dst port 81", dns(), false),
    ];
    for (text, frame, expected) in table {
        let program = match Program::ip_classifier(&strings(&[text, "-"])) {
            Ok((program, _)) => program,
            Err(errors) => panic!("'{text}': {errors:?}"),
        };
        let expected = if *expected { Some(0) } else { Some(1) };
        assert_eq!(frame.run(&program), expected, "'{text}' on {:02x?}\n{program}", frame.0);
    }
}

#[test]
fn classifier_tells_arp_from_ip_with_one_load() {
    let program = classifier(&["12/0806 20/0001", "12/0806 20/0002", "12/0800", "-"]);
    // The example in Click's manual.
    let expected = " 0  12/08060000%ffff0000  yes->step 1  no->step 3
 1  20/00010000%ffff0000  yes->[0]  no->step 2
 2  20/00020000%ffff0000  yes->[1]  no->[3]
 3  12/08000000%ffff0000  yes->[2]  no->[3]
safe length 22
alignment offset 0
";
    assert_eq!(program.to_string(), expected);
    let frame = |ethertype: [u8; 2], operation: [u8; 2]| {
        let mut frame = vec![0; 60];
        frame[12..14].copy_from_slice(&ethertype);
        frame[20..22].copy_from_slice(&operation);
        frame
    };
    for (ethertype, operation, output, loads) in [
        ([8, 6], [0, 1], 0, 2),
        ([8, 6], [0, 2], 1, 2),
        ([8, 6], [0, 3], 3, 2),
        ([8, 0], [0, 1], 2, 1),
        ([0x86, 0xdd], [0, 1], 3, 1),
    ] {
        let frame = frame(ethertype, operation);
        assert_eq!(program.run(&frame, 0, 0), Some(output));
        assert_eq!(program.dispatch.loads(&frame, 0, 0), loads, "{ethertype:?}");
    }
    // A packet with no more than its Ethernet header.
    assert_eq!(program.run(&frame([8, 0], [0, 0])[..14], 0, 0), Some(2));
    assert_eq!(program.run(&frame([8, 6], [0, 1])[..21], 0, 0), Some(3));
    assert_eq!(program.run(&[], 0, 0), Some(3));
}

#[test]
fn classifier_patterns() {
    let table: &[(&str, &[u8], bool)] = &[
        ("0/01", &[1], true),
        ("0/01", &[2], false),
        ("0/01", &[], false),
        ("!0/01", &[2], true),
        ("! 0/01", &[1], false),
        ("!0/01", &[], true),
        ("1/0?", &[9, 0x0f], true),
        ("1/0?", &[9, 0x1f], false),
        ("1/?F", &[9, 0x1f], true),
        ("1/ff%0f", &[9, 0x1f], true),
        ("1/ff%0f", &[9, 0x1e], false),
        ("1/??", &[], true),
        ("2/aabbccdd", &[0, 0, 0xaa, 0xbb, 0xcc, 0xdd], true),
        ("2/aabbccdd", &[0, 0, 0xaa, 0xbb, 0xcc, 0xde], false),
        ("2/aabbccdd", &[0, 0, 0xaa, 0xbb, 0xcc], false),
        ("0/0102030405060708", &[1, 2, 3, 4, 5, 6, 7, 8], true),
        ("!0/0102030405060708", &[1, 2, 3, 4, 5, 6, 7, 9], true),
        ("0/01 1/02", &[1, 2], true),
        ("0/01 !1/02", &[1, 2], false),
        ("0/01 0/02", &[1], false),
        ("", &[], true),
        ("-", &[], true),
    ];
    for (pattern, data, expected) in table {
        let (program, _) = Program::classifier(&strings(&[pattern])).unwrap();
        assert_eq!(program.run(data, 0, 0), expected.then_some(0), "'{pattern}' on {data:x?}\n{program}");
    }
    assert_eq!(
        classifier(&["1/01", "-"]).to_string(),
        " 0   0/00010000%00ff0000  yes->[0]  no->[1]\nsafe length 2\nalignment offset 0\n"
    );
}

#[test]
fn byte_tests_become_word_tests() {
    let program = classifier(&["12/08 13/00 14/45 23/06", "-"]);
    assert_eq!(program.steps().len(), 2, "{program}");
    // Neighbouring words that fit in one load.
    let program = classifier(&["14/01020304"]);
    assert_eq!(program.steps().len(), 2, "{program}");
    let data: Vec<u8> = [vec![0; 14], vec![1, 2, 3, 4]].concat();
    assert_eq!(program.run(&data, 0, 0), Some(0));
    assert_eq!(program.dispatch.loads(&data, 0, 0), 1);
    assert_eq!(program.run(&data[..17], 0, 0), None);
}

#[test]
fn long_lists_take_one_load() {
    let ports: Vec<String> = (0..1000).map(|i| format!("udp dst port {}", 2000 + 3 * i)).collect();
    let (program, warnings) = Program::ip_classifier(&ports).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    for i in [0, 1, 499, 999] {
        let frame = Frame::udp(A, 1, B, 2000 + 3 * i);
        assert_eq!(frame.run(&program), Some(u32::from(i)));
        assert!(program.dispatch.loads(&frame.0, NETWORK, TRANSPORT) <= 3);
        assert_eq!(Frame::udp(A, 1, B, 2001 + 3 * i).run(&program), None);
        assert_eq!(Frame::tcp(A, 1, B, 2000 + 3 * i, 2).run(&program), None);
    }
}

/// The programs that Click prints for the same expressions in its IPFilter tests 04 to 07.
#[test]
fn programs_print_as_in_click() {
    let c =
        ip_classifier(&["dst port 7777", "dst port 8888", "dst port 7000", "icmp type echo", "icmp", "-"]);
    let expected = " 0 264/00060000%00ff0000  yes->step 2  no->step 1
 1 264/00110000%00ff0000  yes->step 2  no->step 6
 2 260/00000000%00001fff  yes->step 3  no->[5]
 3 512/00001e61%0000ffff  yes->[0]  no->step 4
 4 512/000022b8%0000ffff  yes->[1]  no->step 5
 5 512/00001b58%0000ffff  yes->[2]  no->[5]
 6 264/00010000%00ff0000  yes->step 7  no->[5]
 7 260/00000000%00001fff  yes->step 8  no->[4]
 8 512/08000000%ff000000  yes->[3]  no->[4]
safe length 516
alignment offset 0
";
    assert_eq!(c.to_string(), expected);

    let d = ip_filter(&[
        "0 udp dst port netbios-ns",
        "1 udp dst port 5353",
        "2 udp src port bootpc",
        "3 128.230.206.0/24",
        "4 -",
    ]);
    let expected = " 0 264/00110000%00ff0000  yes->step 1  no->step 5
 1 260/00000000%00001fff  yes->step 2  no->step 5
 2 512/00000089%0000ffff  yes->[0]  no->step 3
 3 512/000014e9%0000ffff  yes->[1]  no->step 4
 4 512/00440000%ffff0000  yes->[2]  no->step 5
 5 268/80e6ce00%ffffff00  yes->[3]  no->step 6
 6 272/80e6ce00%ffffff00  yes->[3]  no->[4]
safe length 516
alignment offset 0
";
    assert_eq!(d.to_string(), expected);

    let e = ip_classifier(&[
        "proto icmp",
        "dst port 53",
        "(proto tcp and !(syn and !ack)) or (tcpudp port >= 1024)",
        "-",
    ]);
    let expected = " 0 264/00010000%00ff0000  yes->[0]  no->step 1
 1 264/00060000%00ff0000  yes->step 3  no->step 2
 2 264/00110000%00ff0000  yes->step 3  no->[3]
 3 260/00000000%00001fff  yes->step 4  no->step 5
 4 512/00000035%0000ffff  yes->[1]  no->step 5
 5 264/00060000%00ff0000  yes->step 6  no->step 8
 6 260/00000000%00001fff  yes->step 7  no->[2]
 7 524/00020000%00120000  yes->step 9  no->[2]
 8 260/00000000%00001fff  yes->step 9  no->[3]
 9 512/00000000%fc00fc00  yes->[3]  no->[2]  short->yes
safe length 526
alignment offset 0
";
    assert_eq!(e.to_string(), expected);

    let all = ip_filter(&[
        "allow tcp && dst 10.0.0.0/32 && src 2.0.0.0/32",
        "allow tcp && dst 10.0.0.0/32 && dst port 80 && src 2.0.0.0/32",
        "allow all",
    ]);
    assert_eq!(all.to_string(), "all->[0]\nsafe length 0\nalignment offset 0\n");

    let ether = ip_filter(&[
        "allow src 0:1:2:3:4:5",
        "allow src 10.0.0.0 & 8.0.0.0 = 8.0.0.0",
        "allow dst 10:20:30:40:50:60",
        "allow host 9:A:B:C:D:E",
        "deny all",
    ]);
    let expected = " 0   8/00010203%ffffffff  yes->step 1  no->step 2
 1  12/04050000%ffff0000  yes->[0]  no->step 2
 2 268/0a000000%ffffffff  yes->[0]  no->step 3
 3   0/00001020%0000ffff  yes->step 4  no->step 5
 4   4/30405060%ffffffff  yes->[0]  no->step 5
 5   8/090a0b0c%ffffffff  yes->step 6  no->step 7
 6  12/0d0e0000%ffff0000  yes->[0]  no->step 7
 7   0/0000090a%0000ffff  yes->step 8  no->[X]
 8   4/0b0c0d0e%ffffffff  yes->[0]  no->[X]
safe length 272
alignment offset 0
";
    assert_eq!(ether.to_string(), expected);

    let nothing = "all->[X]\nsafe length 0\nalignment offset 0\n";
    assert_eq!(ip_filter(&["allow false"]).to_string(), nothing);
    assert_eq!(ip_filter(&[]).to_string(), nothing);
    let all = ip_filter(&["allow false", "allow false", "allow false", "allow true"]);
    assert_eq!(all.to_string(), "all->[0]\nsafe length 0\nalignment offset 0\n");
    let host = " 0 268/0a000001%ffffffff  yes->[0]  no->[X]\nsafe length 272\nalignment offset 0\n";
    assert_eq!(ip_filter(&["allow src 10.0.0.1"]).to_string(), host);
    assert_eq!(ip_filter(&["allow false", "allow false", "allow src 10.0.0.1"]).to_string(), host);
}

/// Click's IPFilter tests 01 to 03: what packets that were cut short do.
#[test]
fn short_packets() {
    let holds = |text: &str, data: &[u8]| ip_classifier(&[text, "-"]).run(data, 0, 20) == Some(0);
    let whole = [0u8; 28];
    let mut set = whole;
    set[21] = 128;
    let cut = &whole[..21];
    assert!(holds("ip[19]&128==0", &whole));
    assert!(!holds("ip[19]&128==0", &whole[..19]));
    assert!(holds("transp[1]&128==0", &whole));
    assert!(!holds("transp[1]&128==0", cut));
    assert!(!holds("transp[1]&128!=0", cut));
    assert!(holds("transp[1]&128!=0", &set));
    assert!(holds("not (transp[1]&128==0)", cut));
    let either = "transp[1]&128==0 || transp[1]&128==128";
    assert!(holds(either, &whole) && holds(either, &set) && !holds(either, cut));
    // An IPFilter before it does not make the optimiser forget.
    let two = ip_filter(&["0 transp[1]&128==0", "1 transp[1]&128==128", "2 -"]);
    assert_eq!([&whole[..], &set, cut].map(|data| two.run(data, 0, 20)), [Some(0), Some(1), Some(2)]);
}

#[test]
fn filter_rules() {
    let program = ip_filter(&["deny src 10.0.0.0/8 and dst port 22", "1 tcp", "drop icmp", "3"]);
    assert_eq!(Frame::tcp(A, 1, B, 22, 2).run(&program), None);
    assert_eq!(Frame::tcp(A, 1, B, 23, 2).run(&program), Some(1));
    assert_eq!(Frame::icmp(8, 0).run(&program), None);
    assert_eq!(Frame::udp(A, 1, B, 2).run(&program), Some(3));
    assert_eq!(program.output_count(), 4);
    assert!(program.uses_output(3) && !program.uses_output(2));
}

#[test]
fn names_of_the_configuration() {
    struct Site;
    impl ip_names::Names for Site {
        fn address(&self, name: &str) -> Option<std::net::Ipv4Addr> {
            (name == "BASTION").then_some(A.into())
        }
        fn network(&self, name: &str) -> Option<(std::net::Ipv4Addr, std::net::Ipv4Addr)> {
            (name == "INSIDE").then_some(([192, 168, 0, 0].into(), [255, 255, 0, 0].into()))
        }
        fn udp_port(&self, name: &str) -> Option<u16> {
            (name == "vpn").then_some(7777)
        }
    }
    let rules = strings(&["allow src BASTION && dst INSIDE && udp dst port vpn"]);
    let (program, _) = Program::ip_filter_with(&rules, Some(1), &Site).unwrap();
    assert_eq!(Frame::udp(A, 1, B, 7777).run(&program), Some(0));
    assert_eq!(Frame::udp(A, 1, B, 7778).run(&program), None);
    assert_eq!(Frame::udp(A, 1, A, 7777).run(&program), None);
    assert!(Program::ip_filter(&rules).is_err());
}

#[test]
fn warnings() {
    let (_, warnings) = Program::classifier(&strings(&["12/08", "12/0800", "-"])).unwrap();
    assert_eq!(warnings, ["output 1 matches no packets ('12/0800')"]);
    let (_, warnings) = Program::ip_classifier(&strings(&["src port www and src port ftp", "-"])).unwrap();
    assert_eq!(warnings, ["output 0 matches no packets ('src port www and src port ftp')"]);
    let (program, warnings) = Program::ip_filter(&strings(&["allow ip ttl > 255", "1 src tcp"])).unwrap();
    assert_eq!(
        warnings,
        [
            "pattern 0: relation '> 255' is always false (range 0-255) (in 'allow ip ttl > 255')",
            "pattern 1: 'src proto': 'src' or 'dst' ignored (in '1 src tcp')"
        ]
    );
    assert_eq!(Frame::udp(A, 1, B, 2).run(&program), None);
    assert_eq!(Frame::tcp(A, 1, B, 2, 2).run(&program), Some(1));
}

#[test]
fn errors_name_the_pattern_and_the_fault() {
    let table: &[(&str, &str)] = &[
        ("12", "pattern 0: expected '/' after offset 12, as in 12/0800 (in '12')"),
        ("x/08", "pattern 0: expected a digit, got 'x/08'; a clause is OFFSET/VALUE[%MASK] (in 'x/08')"),
        (
            "12/8",
            "pattern 0: value has less than 2 hex digits in '12/8'; write two for each byte (in '12/8')",
        ),
        (
            "1/123",
            "pattern 0: value has odd number of hex digits in '1/123'; write two for each byte (in '1/123')",
        ),
        (
            "1/12%1",
            "pattern 0: mask has too few hex digits in '1/12%1'; expected 2, like the value (in '1/12%1')",
        ),
        (
            "1/12%1234",
            "pattern 0: mask has too many hex digits in '1/12%1234'; expected 2, like the value (in '1/12%1234')",
        ),
        (
            "99999999999999999999/12",
            "pattern 0: offset out of range in '99999999999999999999/12'; expected the last byte at 65531 or before \
             (in '99999999999999999999/12')",
        ),
    ];
    for (pattern, error) in table {
        assert_eq!(Program::classifier(&strings(&[pattern])).unwrap_err(), [*error]);
    }
    // All of them, from all the patterns.
    assert_eq!(Program::classifier(&strings(&["1/1 x", "-", "4"])).unwrap_err().len(), 3);

    let table: &[(&str, &str)] = &[
        ("tcp and", "missing expression"),
        ("(tcp", "missing ')'"),
        ("tcp )", "garbage after expression at ')'"),
        ("()", "missing expression after '('"),
        ("not", "missing expression after 'not'"),
        ("tcp ? udp", "missing ':' in ternary expression; it stands between spaces"),
        ("src foo", "partial directive: a value is missing, or a keyword is misspelled"),
        ("echo", "'echo' is ambiguous; try 'port echo', 'icmp type echo'"),
        ("port foo", "'port': value missing; expected a port number or name"),
        ("host 10.0.0.0/8", "'ip host': address missing; expected one like 10.0.0.1"),
        ("net 10.0.0.1", "'ip net': address missing; expected one like 10.0.0.0/8"),
        ("src host > 10.0.0.1", "'src ip host': operator not supported; expected '==' or '!='"),
        ("ip ttl 256", "'ip ttl': out of range, bound 255"),
        ("ip ttl & 256 = 1", "'ip ttl': mask out of range, bound 0xFF"),
        ("ip ttl", "'ip ttl': value missing; expected a number"),
        ("ip ttl 9-3", "'ip ttl': empty range 9-3; the lower end comes first"),
        ("icmp port 3", "'port': bad protocol icmp; expected 'tcp' or 'udp'"),
        ("udp opt syn", "'tcp opt udp syn' is meaningless; try 'tcp opt syn'"),
        ("tcp udp", "transport protocol specified twice"),
        ("src dst 1.2.3.4", "'src' or 'dst' specified twice"),
        ("host port 3", "type specified twice"),
        ("80", "specify header field or 'port' before 80"),
        ("ip[3:2] 1", "field [3:2] does not fit in a single word (bytes 0 to 3 are one)"),
        ("ip[0:5] 1", "LEN in '[POS:LEN]' out of range, should be between 1 and 4, got '0:5'"),
        ("ip[9000] 1", "POS in '[POS:LEN]' out of range, should be between 0 and 8191, got '9000'"),
        ("ip[a] 1", "syntax error after '[' at 'a', expected '[POS]' or '[POS:LEN]'"),
        ("ip[0 1", "missing ']'"),
        ("src & 0 = 1.2.3.4", "zero mask ignored; a mask needs at least one bit"),
        ("port > foo", "dangling operator near 'foo'"),
        ("ether port 3", "'port': ip only"),
        ("icmp type foo", "'icmp type': value missing; expected a number"),
        ("] tcp", "empty term near ']'"),
    ];
    for (text, error) in table {
        let errors = Program::ip_classifier(&strings(&["-", text])).err().unwrap_or_default();
        let wanted = format!("pattern 1: {error}");
        assert!(errors.iter().any(|e| e.starts_with(&wanted)), "'{text}': {errors:#?}");
        assert!(errors.iter().all(|e| e.ends_with(&format!(" (in '{text}')"))), "{errors:#?}");
    }

    let faults =
        |rule: &str, outputs| Program::ip_filter_with(&strings(&[rule]), outputs, &Configured).unwrap_err();
    assert!(faults("permit tcp", None)[0].starts_with("pattern 0: unknown slot ID 'permit'"));
    assert!(faults("2 tcp", Some(2))[0].starts_with("pattern 0: slot '2' out of range (0-1)"));
    assert!(faults("", None)[0].starts_with("pattern 0: empty pattern"));
    assert!(faults("allow tcp", Some(0))[0].contains("element has zero outputs"));
}

#[test]
fn depth_and_size_are_bounded() {
    for open in ["(", "! (", "tcp ? "] {
        let deep = open.repeat(100_000);
        let errors = Program::ip_classifier(&[deep]).unwrap_err();
        assert!(
            errors[0].starts_with("pattern 0: expression nested deeper than 100 levels"),
            "{}",
            errors[0]
        );
        assert!(errors.len() <= 8 && errors[0].len() < 200);
    }
    // Long is not deep.
    let (program, _) = Program::ip_classifier(&["not ".repeat(100_001) + "tcp"]).unwrap();
    assert_eq!(program.steps().len(), 1);
    let long = "tcp ? true : ".repeat(5_000) + "udp";
    assert_eq!(Program::ip_classifier(&[long]).unwrap().0.steps().len(), 2);
    let huge = "0/01 ".repeat(MAX_TESTS + 1);
    let errors = Program::classifier(&[huge]).unwrap_err();
    assert_eq!(errors, ["200001 tests in 1 patterns; at most 200000 tests fit in one element"]);
}
