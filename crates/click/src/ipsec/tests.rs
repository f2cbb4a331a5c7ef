//! Click's IPsec in one graph. The packets of `BYTES` were written by Click's own code.

use graph::setup::Shared;
use graph::testing::{Bench, configure};
use packet::Packet;

use super::{ipsec_aes, ipsec_auth_hmac_sha1, radix_ipsec_lookup};

const KEYS: &str = "000102030405060708090a0b0c0d0e0f 101112131415161718191a1b1c1d1e1f";

/// Two gateways, and the wire from the one to the other.
const GATEWAYS: &str = "
    a :: RadixIPsecLookup(192.0.2.1/32 0, 10.2/16 192.0.2.2 1 234 KEYS 300 64, 192.0.2.0/24 3);
    in :: TestInput -> UDPIPEncap(10.1.0.2, 1, 10.2.0.2, 2) -> a;
    a[0] -> Discard;
    a[1] -> encap :: IPsecESPEncap -> IPsecAuthHMACSHA1(0) -> IPsecAES(1) -> IPsecEncap(50) -> FixIPSrc(192.0.2.1) -> a;
    a[2] -> Discard;
    a[3] -> wire_out :: TestOutput;
    b :: RadixIPsecLookup(192.0.2.2/32 0, 10.2/16 3, 10.1/16 192.0.2.1 1 234 KEYS 300 64);
    b[0] -> StripIPHeader -> decrypt :: IPsecAES(0) -> verify :: IPsecAuthHMACSHA1(1) -> unencap :: IPsecESPUnencap
        -> CheckIPHeader -> b;
    wire_in :: TestInput -> CheckIPHeader -> b;
    b[1] -> Discard;
    b[2] -> local :: TestOutput;
    b[3] -> out :: TestOutput;";

fn bench(config: &str) -> Bench {
    Bench::new(&crate::registry(), &config.replace("KEYS", KEYS))
}

/// What gateway `a` sends for these payloads.
fn sent(bench: &mut Bench, payloads: &[&[u8]]) -> Vec<Vec<u8>> {
    bench.push("in", payloads);
    bench.taken("wire_out")
}

fn arrive(bench: &mut Bench, packets: &[Vec<u8>]) {
    let packets: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
    bench.push("wire_in", &packets);
}

#[test]
fn packets_come_back_through_a_tunnel() {
    let mut bench = bench(GATEWAYS);
    let payloads: Vec<Vec<u8>> = (0..40).map(|length| vec![b'a'; length]).collect();
    let packets = sent(&mut bench, &payloads.iter().map(Vec::as_slice).collect::<Vec<_>>());
    for (at, packet) in packets.iter().enumerate() {
        assert_eq!(packet[9], 50);
        assert_eq!(packet[12..20], [192, 0, 2, 1, 192, 0, 2, 2]);
        assert_eq!(packet[20..28], [0, 0, 0, 234, 0, 0, 1, 44 + at as u8]);
        let inner = (28 + at + 2).next_multiple_of(8);
        assert_eq!(packet.len(), 20 + 16 + inner + 12);
        assert!(!packet.windows(4).any(|bytes| bytes == [10, 2, 0, 2]), "it is encrypted");
    }
    let ivs: std::collections::BTreeSet<&[u8]> = packets.iter().map(|packet| &packet[28..36]).collect();
    assert_eq!(ivs.len(), 40);
    arrive(&mut bench, &packets);
    let out = bench.taken("out");
    assert_eq!(
        out.len(),
        40,
        "{:?}",
        ["decrypt", "verify", "unencap"].map(|name| bench.read(&format!("{name}.drops")))
    );
    for (packet, payload) in out.iter().zip(&payloads) {
        assert_eq!(packet[12..20], [10, 1, 0, 2, 10, 2, 0, 2]);
        assert_eq!(packet[28..], payload[..]);
    }
}

#[test]
fn forged_and_replayed_packets_are_dropped() {
    let mut bench = bench(GATEWAYS);
    let packets = sent(&mut bench, &[b"first", b"second", b"third"]);
    arrive(&mut bench, &packets);
    assert_eq!(bench.taken("out").len(), 3);
    arrive(&mut bench, &packets[1..]);
    assert_eq!(bench.drops("unencap", "ESP: replayed"), 2);
    // The last byte, one of the payload, and the sequence number.
    for (count, at) in [(1, 0), (2, 30), (3, packets[2].len() - 27)] {
        let mut packet = packets[2].clone();
        let last = packet.len() - 1;
        packet[last - at] ^= 1;
        arrive(&mut bench, &[packet]);
        assert_eq!(bench.drops("verify", "ESP: wrong ICV"), count, "{at}");
    }
    assert_eq!(bench.read("verify.drops"), "3");
    let mut stranger = packets[0].clone();
    stranger[23] ^= 1;
    arrive(&mut bench, &[stranger]);
    assert_eq!(bench.drops("b", "ESP: unknown SPI"), 1);
    assert_eq!(bench.taken("out").len(), 0);
    // As in Click the first number begins anew.
    arrive(&mut bench, &packets);
    assert_eq!(bench.taken("out").len(), 3);
}

#[test]
fn packets_older_than_the_window_are_dropped() {
    let mut bench = bench(&GATEWAYS.replace("300 64", "300 4"));
    let packets = sent(&mut bench, &[&b"x"[..]; 8]);
    arrive(&mut bench, &packets[7..]);
    arrive(&mut bench, &packets[2..5]);
    assert_eq!(bench.drops("unencap", "ESP: older than the replay window"), 2, "302 and 303");
    assert_eq!(bench.taken("out").len(), 2);
}

#[test]
fn what_is_not_for_the_tunnel_goes_elsewhere() {
    let mut bench = bench(GATEWAYS);
    let mut packets = sent(&mut bench, &[b"x", b"y"]);
    // The checksum of the header is that of the protocol.
    for packet in &mut packets {
        packet[9] = 17;
        packet[10..12].fill(0);
        let checksum = packet::checksum::ipv4_header_compute(&packet[..20]);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    packets[1].truncate(20);
    packets[1][3] = 20;
    packets[1][9] = 50;
    packets[1][10..12].fill(0);
    let checksum = packet::checksum::ipv4_header_compute(&packets[1][..20]);
    packets[1][10..12].copy_from_slice(&checksum.to_be_bytes());
    arrive(&mut bench, &packets);
    assert_eq!(bench.taken("local"), packets[..1]);
    assert_eq!(bench.drops("b", "ESP: truncated"), 1);
}

/// Packets with the digest of Click's code, and encrypted by it: SPI 234, number 300, 16, 24 and 40 bytes 0, 1, 2 and so on.
const BYTES: [[&str; 2]; 3] = [
    [
        "000000ea0000012ca0a1a2a3a4a5a6a7000102030405060708090a0b0c0d0e0f50d4c2aeb3b83edd6d3a23cf",
        "000000ea0000012ca0a1a2a3a4a5a6a78b26f779af61ed8cb556cc489b3160f150d4c2aeb3b83edd6d3a23cf",
    ],
    [
        "000000ea0000012ca0a1a2a3a4a5a6a7000102030405060708090a0b0c0d0e0f10111213141516178b8024f3f1d9e6c4c3b61c1f",
        "000000ea0000012ca0a1a2a3a4a5a6a78b26f779af61ed8cb556cc489b3160f1c4bf043255d1ad2b20ba2be359e7afa1c3b61c1f",
    ],
    [
        "000000ea0000012ca0a1a2a3a4a5a6a7000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\
         2021222324252627a276cd2a1fc3cba310788b1d",
        "000000ea0000012ca0a1a2a3a4a5a6a78b26f779af61ed8cb556cc489b3160f1c363c7966d7fa8dd1667350592e46a14\
         ba82280d4755925a7f82d0b1eb3ea82d10788b1d",
    ],
];

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

const STEPS: &str = "
    Idle -> rt :: RadixIPsecLookup(10/8 - 1 234 KEYS 300 64);
    rt[0] -> Discard; rt[1] -> Discard;
    in :: TestInput -> e :: STEP -> out :: TestOutput;";

/// A graph with one element, whose packets get the association.
fn step(element: &str) -> Bench {
    bench(&STEPS.replace("STEP", element))
}

fn push(bench: &mut Bench, data: &[u8]) {
    let mut packet = bench.packet(data);
    packet.annotations_mut().set_u32_at(32, 234);
    bench.push_packets("in", vec![packet]);
}

#[test]
fn bytes_are_those_of_click() {
    for [digested, encrypted] in BYTES.map(|pair| pair.map(bytes)) {
        let plain = &digested[..digested.len() - 12];
        for (element, before, after) in [
            ("IPsecAuthHMACSHA1(0)", plain, &digested[..]),
            ("IPsecAuthHMACSHA1(1)", &digested, plain),
            ("IPsecAES(1)", &digested, &encrypted),
            ("IPsecAES(0)", &encrypted, &digested),
        ] {
            let mut bench = step(element);
            push(&mut bench, before);
            assert_eq!(bench.taken("out"), [after], "{element}");
        }
    }
}

#[test]
fn steps_drop_what_they_cannot_work_on() {
    let header = [0, 0, 0, 234, 0, 0, 1, 44, 0, 0, 0, 0, 0, 0, 0, 0];
    let with = |tail: &[u8]| [&header[..], tail].concat();
    for (element, packet, reason) in [
        ("IPsecAES(0)", with(&[0; 11]), "ESP: truncated"),
        ("IPsecAES(1)", with(&[0; 12 + 7]), "ESP: truncated"),
        ("IPsecAuthHMACSHA1(1)", with(&[0; 11]), "ESP: truncated"),
        ("IPsecAuthHMACSHA1(1)", vec![0; 11], "ESP: truncated"),
        ("IPsecAuthHMACSHA1(1)", with(&[0; 12]), "ESP: wrong ICV"),
        ("IPsecESPUnencap", with(&[0]), "ESP: truncated"),
        ("IPsecESPUnencap", with(&[1, 2, 4, 3, 17]), "ESP: bad padding"),
        ("IPsecESPUnencap", with(&[1, 2, 3, 4, 17]), "ESP: bad padding"),
    ] {
        let mut bench = step(element);
        push(&mut bench, &packet);
        assert_eq!(bench.drops("e", reason), 1, "{element} {packet:?}");
        bench.push("in", &[&packet]);
        assert_eq!(bench.drops("e", "IPsec: no association"), 1, "{element}");
        assert!(bench.taken("out").is_empty());
    }
    let mut bench = step("IPsecESPUnencap");
    push(&mut bench, &with(&[9, 1, 2, 3, 3, 17]));
    assert_eq!(bench.taken("out"), [[9]]);
    let mut full = step("IPsecESPEncap");
    let mut packet = full.packet(b"x");
    packet.annotations_mut().set_u32_at(32, 234);
    let tail = packet.tailroom() - 1;
    packet.append(tail);
    full.push_packets("in", vec![packet]);
    assert_eq!(full.drops("e", "ESP: no room in the frame"), 1);
}

#[test]
fn packets_with_a_wrong_digest_may_go_elsewhere() {
    let mut bench =
        bench(&format!("{} e[1] -> wrong :: TestOutput;", STEPS.replace("STEP", "IPsecAuthHMACSHA1(1)")));
    push(&mut bench, &[0; 40]);
    assert_eq!((bench.taken("wrong").len(), bench.read("e.drops").as_str()), (1, "1"));
}

#[test]
fn handlers_change_tunnels_and_print_no_keys() {
    let mut bench = bench(GATEWAYS);
    let table = "10.2.0.0/16\t\t192.0.2.2\t1\tSPI 234\n192.0.2.0/24\t\t-\t\t3\n192.0.2.1/32\t\t-\t\t0\n";
    assert_eq!(bench.read("a.table"), table);
    assert_eq!(bench.read("a.lookup 10.2.3.4"), "1 192.0.2.2");
    let shown = "192.0.2.1/32 0, 10.2/16 192.0.2.2 1 234 *** *** 300 64, 192.0.2.0/24 3";
    assert_eq!(bench.read("a.config"), shown);
    let other = "abcdefghijklmnop ABCDEFGHIJKLMNOP";
    // The other gateway has the SPI with other keys.
    let error = bench.write("a.set", &format!("10.2/16 192.0.2.2 1 234 {other} 300 64")).unwrap_err();
    assert!(
        error.contains("SPI 234: 'b' has other keys or numbers for it; expected the same, or another SPI"),
        "{error}"
    );
    assert!(!error.contains("abcd"), "{error}");
    let error = bench.write("a.add", "10.3/16 1").unwrap_err();
    assert!(error.contains("output 1 is for tunnels; expected their five words behind it"), "{error}");
    // A change that fails leaves all as it was.
    bench.write("a.ctrl", &format!("set 10.2/16 192.0.2.2 1 5 {other} 1 64\nremove 9/8")).unwrap_err();
    assert_eq!(bench.read("a.table"), table);
    let mut packet = sent(&mut bench, &[b"x"]).remove(0);
    packet[20..24].copy_from_slice(&5_u32.to_be_bytes());
    arrive(&mut bench, &[packet]);
    assert_eq!(bench.drops("b", "ESP: unknown SPI"), 1);
    let number = |packets: Vec<Vec<u8>>| packets[0][20..28].to_vec();
    assert_eq!(number(sent(&mut bench, &[b"x"])), [0, 0, 0, 234, 0, 0, 1, 45]);
    bench.write("a.set", &format!("10.2/16 192.0.2.2 1 5 {other} 1 64")).unwrap();
    let packets = sent(&mut bench, &[b"x"]);
    arrive(&mut bench, &packets);
    assert_eq!(number(packets), [0, 0, 0, 5, 0, 0, 0, 1]);
    assert_eq!(bench.taken("out").len(), 1, "both gateways are one router");
    // The same association goes on.
    bench.write("a.set", &format!("10.2/17 192.0.2.2 1 234 {KEYS} 300 64")).unwrap();
    bench.write("a.remove", "10.2/16 192.0.2.2 1").unwrap();
    assert_eq!(number(sent(&mut bench, &[b"x"])), [0, 0, 0, 234, 0, 0, 1, 46]);
    // Nobody uses SPI 5 any more.
    let before = bench.drops("b", "ESP: unknown SPI");
    let mut packet = sent(&mut bench, &[b"x"]).remove(0);
    packet[20..24].copy_from_slice(&5_u32.to_be_bytes());
    arrive(&mut bench, &[packet]);
    assert_eq!(bench.drops("b", "ESP: unknown SPI"), before + 1);
    bench.write("a.flush", "").unwrap();
    assert_eq!(bench.read("a.table"), "");
}

#[test]
fn mistakes_name_what_is_right() {
    let error = |class, config: &str| configure(class, config).unwrap_err().join("\n");
    assert_eq!(error(&ipsec_aes::CLASS, "2"), "ENCRYPT: expected 0 to decrypt or 1 to encrypt, got '2'");
    assert_eq!(
        error(&ipsec_auth_hmac_sha1::CLASS, "-1"),
        "VERIFY: expected 0 to compute digests or 1 to verify them, got '-1'"
    );
    let shown = error(&radix_ipsec_lookup::CLASS, &format!("10/8 0 1 {KEYS} 300, 11/8 0 KEYS"));
    assert!(shown.contains("argument 1 should be 'ADDR/MASK [GATEWAY] OUTPUT [SPI ENCRYPT_KEY"), "{shown}");
    assert!(!shown.contains("000102"), "{shown}");
    let two = GATEWAYS.replace("KEYS 300 64);", "KEYS 300 32);").replace("KEYS", KEYS);
    let error = Bench::try_new(&crate::registry(), &two, 1, &Shared::default()).err().unwrap();
    assert!(error.contains("SPI 234: 'a' has other keys or numbers for it"), "{error}");
    let two = "Idle -> rt :: RadixIPsecLookup(10/8 1 234 KEYS 300 64, 11/8 1 234 KEYS 301 64); rt[0] -> Discard; rt[1] -> Discard;";
    let error =
        Bench::try_new(&crate::registry(), &two.replace("KEYS", KEYS), 1, &Shared::default()).err().unwrap();
    assert!(
        error.contains("SPI 234: two routes differ in its keys or numbers; expected the same"),
        "{error}"
    );
}

#[test]
fn an_argument_of_the_encapsulation_is_not_used() {
    let mut bench = bench(&STEPS.replace("STEP", "IPsecESPEncap(7)"));
    let mut packet: Packet = bench.packet(b"abc");
    packet.annotations_mut().set_u32_at(32, 234);
    bench.push_packets("in", vec![packet]);
    let packet = &bench.taken("out")[0];
    assert_eq!(packet[..8], [0, 0, 0, 234, 0, 0, 1, 44]);
    assert_eq!(packet[16..], [b'a', b'b', b'c', 1, 2, 3, 3, 0]);
}
