//! Packets there and back, and what must not come back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packet::wire::ipv4::Ipv4;
use packet::wire::ipv6::Ipv6;
use packet::{Packet, Pool, PoolOptions, checksum};
use proptest::prelude::*;

use super::{Esp, Hidden, Opened, Opener, PLAIN_OFFSET, Sealer, find, find_anywhere, find_plain, may_be_esp};
use crate::association::{Age, Association, DontFragment, Endpoints, Limit, Mode, Settings, UdpPorts};
use crate::engine::{Backend, Keys};
use crate::fault::Fault;
use crate::suite::{Protection, Suite};

const GATEWAYS: [Endpoints; 2] = [
    Endpoints::V4 { source: Ipv4Addr::new(192, 0, 2, 1), destination: Ipv4Addr::new(192, 0, 2, 2) },
    Endpoints::V6 {
        source: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        destination: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
    },
];

fn keys(suite: Suite) -> Keys {
    let key: Vec<u8> = (1..=suite.key_material_bytes() as u8).collect();
    Keys::new(suite, &key, &vec![7; suite.auth_key_bytes()], Backend::best()).unwrap()
}

fn gcm() -> Suite {
    Suite::new(Protection::AesGcm, 16).unwrap()
}

fn settings(suite: Suite) -> Settings {
    Settings::new(0x1234_5678, GATEWAYS[0], keys(suite))
}

/// A UDP packet of so many bytes of payload, with this traffic class.
fn ip(is_ipv6: bool, class: u8, payload: usize) -> Vec<u8> {
    let udp = 8 + payload;
    let mut packet = if is_ipv6 {
        let mut packet = vec![0; 40];
        packet[0] = 0x60 | class >> 4;
        packet[1] = class << 4;
        packet[4..6].copy_from_slice(&(udp as u16).to_be_bytes());
        (packet[6], packet[7]) = (17, 9);
        packet[8..40].fill(0x20);
        packet
    } else {
        let mut packet = vec![0; 20];
        (packet[0], packet[1], packet[8], packet[9]) = (0x45, class, 9, 17);
        packet[2..4].copy_from_slice(&(20 + udp as u16).to_be_bytes());
        packet[12..20].copy_from_slice(&[10, 1, 0, 1, 10, 2, 0, 1]);
        let check = checksum::ipv4_header_compute(&packet);
        packet[10..12].copy_from_slice(&check.to_be_bytes());
        packet
    };
    packet.extend([0, 53, 0, 54, (udp >> 8) as u8, udp as u8, 0, 0]);
    packet.extend((0..payload).map(|place| place as u8));
    packet
}

struct Bench {
    pool: Pool,
    sealer: Sealer,
    opener: Opener,
}

impl Bench {
    fn new() -> Self {
        let pool = Pool::new(PoolOptions { frames: 512, ..PoolOptions::default() }).unwrap();
        let backend = Backend::best();
        Self { pool, sealer: Sealer::new(backend).unwrap(), opener: Opener::new(backend).unwrap() }
    }

    fn packets(&mut self, all: &[Vec<u8>]) -> Vec<Packet> {
        let one = |bytes: &Vec<u8>| {
            let mut packet = self.pool.allocate().unwrap();
            assert!(packet.set_data(bytes));
            packet.set_network_header(0);
            packet
        };
        all.iter().map(one).collect()
    }

    /// Seals packets; those without a fault.
    fn seal(&mut self, association: &Association, all: &[Vec<u8>]) -> (Vec<Vec<u8>>, Vec<Fault>) {
        let mut packets = self.packets(all);
        let mut faults = vec![None; packets.len()];
        self.sealer.seal(&mut packets, &vec![association; all.len()], &mut faults);
        let sealed = packets.iter().zip(&faults).filter(|(_, fault)| fault.is_none());
        (
            sealed.map(|(packet, _)| packet.data().to_vec()).collect(),
            faults.iter().flatten().copied().collect(),
        )
    }

    fn open(&mut self, association: &Association, all: &[Vec<u8>]) -> Vec<Result<Vec<u8>, Fault>> {
        let mut packets = self.packets(all);
        let offset = |packet: &Packet| find(packet.data()).map_or(20, |esp| esp.offset) as u16;
        let offsets: Vec<u16> = packets.iter().map(offset).collect();
        let mut results: Vec<Opened> = vec![Ok(()); packets.len()];
        self.opener.open(&mut packets, &vec![association; all.len()], &offsets, &mut results);
        let each = packets.iter().zip(results);
        each.map(|(packet, result)| result.map(|()| packet.data().to_vec())).collect()
    }
}

#[derive(Clone, Debug)]
struct Case {
    suite: Suite,
    mode: Mode,
    outer: Endpoints,
    is_ipv6: bool,
    udp: Option<UdpPorts>,
    is_extended: bool,
    start: u64,
    payloads: Vec<usize>,
}

fn case() -> impl Strategy<Value = Case> {
    let start = prop_oneof![Just(0_u64), 0..1_u64 << 31, Just((1 << 32) - 3)];
    let payloads = prop::collection::vec(prop_oneof![0_usize..100, 0_usize..1400], 1..20);
    (0..9_usize, any::<bool>(), 0..2_usize, any::<bool>(), any::<bool>(), any::<bool>(), start, payloads)
        .prop_map(|(suite, tunnel, outer, is_ipv6, udp, is_extended, start, payloads)| Case {
            suite: Suite::ALL[suite],
            mode: if tunnel { Mode::Tunnel } else { Mode::Transport },
            outer: GATEWAYS[outer],
            is_ipv6,
            udp: udp.then_some(UdpPorts { source: 4500, destination: 4500 }),
            is_extended,
            start: if is_extended { start } else { start.min(1 << 31) },
            payloads,
        })
}

proptest! {
    #[test]
    fn packets_come_back_as_they_went(case in case()) {
        let mut bench = Bench::new();
        let association = || Association::new(Settings {
            mode: case.mode,
            endpoints: case.outer,
            udp: case.udp,
            is_extended: case.is_extended,
            sequence: case.start,
            ..settings(case.suite)
        });
        let (out, back) = (association(), association());
        let clear: Vec<Vec<u8>> = case.payloads.iter().map(|payload| ip(case.is_ipv6, 0xb8, *payload)).collect();
        let (sealed, faults) = bench.seal(&out, &clear);
        prop_assert!(faults.is_empty());
        for (number, (packet, clear)) in sealed.iter().zip(&clear).enumerate() {
            // Routers on the way see right headers.
            let is_ipv4 = packet[0] >> 4 == 4;
            if is_ipv4 {
                let header = Ipv4::new_unchecked(packet);
                prop_assert!(header.check_len().is_ok() && header.is_checksum_valid() && header.total_len() == packet.len());
            } else {
                let header = Ipv6::new_unchecked(packet);
                prop_assert!(header.check_len().is_ok() && header.payload_len() + 40 == packet.len());
            }
            let esp = find(packet).unwrap();
            prop_assert_eq!((esp.spi, esp.is_in_udp), (0x1234_5678, case.udp.is_some()));
            let low = (case.start + 1 + number as u64) as u32;
            prop_assert_eq!(packet[esp.offset + 4..esp.offset + 8].to_vec(), low.to_be_bytes().to_vec());
            if case.mode == Mode::Tunnel {
                prop_assert_eq!(esp.destination, case.outer.destination());
                prop_assert_eq!(packet.len(), clear.len() + out.overhead(clear.len()));
            }
            if case.udp.is_some() && !is_ipv4 {
                let header = Ipv6::new_unchecked(packet);
                let pseudo = checksum::pseudo_v6(header.source(), header.destination(), 17, header.payload_len() as u32);
                let sum = checksum::combine(pseudo, checksum::sum(header.payload()));
                prop_assert_eq!(checksum::finish(sum), 0);
            }
        }
        let opened = bench.open(&back, &sealed);
        let expected: Vec<_> = clear.iter().cloned().map(Ok).collect();
        prop_assert_eq!(opened, expected);
        // The same again is refused.
        let again = bench.open(&back, &sealed);
        let refused = |opened: &Result<Vec<u8>, Fault>| matches!(opened, Err(Fault::Replayed | Fault::TooOld));
        prop_assert!(again.iter().all(refused));
        prop_assert_eq!(back.used(), out.used().packets_only(back.used()));
    }

    /// Most bytes that matter are drawn from those that decide.
    #[test]
    fn what_is_found_at_a_glance_is_what_is_found_at_all(
        first in prop::sample::select(vec![0x45, 0x46, 0x4f, 0x60]),
        protocol in prop::sample::select(vec![50_u8, 17, 6]),
        next in prop::sample::select(vec![50_u8, 17, 6]),
        fragment in prop::sample::select(vec![[0_u8, 0], [0x40, 0], [0x20, 0], [0, 1]]),
        port in prop::sample::select(vec![4500_u16, 53]),
        rest in prop::collection::vec(0..3_u8, 0..80),
    ) {
        let mut packet = vec![0; 20];
        (packet[0], packet[9]) = (first, protocol);
        if first == 0x60 {
            packet[6] = next;
        } else {
            packet[6..8].copy_from_slice(&fragment);
        }
        packet[16..20].copy_from_slice(&[192, 0, 2, 1]);
        packet.extend(rest);
        let header = if first == 0x60 { 40 } else { usize::from(first & 15) * 4 };
        if let Some(place) = packet.get_mut(header + 2..header + 4) {
            place.copy_from_slice(&port.to_be_bytes());
        }
        let found = find(&packet);
        if let Some((spi, destination)) = find_plain(&packet) {
            let destination = Ipv4Addr::from_bits(destination).into();
            prop_assert_eq!(found, Some(Esp { offset: PLAIN_OFFSET, spi, destination, is_in_udp: false }));
        } else {
            let is_plain = |esp: Esp| first == 0x45 && !esp.is_in_udp;
            prop_assert!(!found.is_some_and(is_plain));
        }
        prop_assert!(found.is_none() || may_be_esp(&packet));
    }

    #[test]
    fn the_longest_packet_is_the_last_one_within_the_mtu(
        suite in 0..9_usize, udp in any::<bool>(), mtu in 0..2_000_u32,
    ) {
        let udp = udp.then_some(UdpPorts { source: 4500, destination: 4500 });
        let association = Association::new(Settings { udp, ..settings(Suite::ALL[suite]) });
        association.set_path_mtu(mtu);
        let fits = |length: usize| length + association.overhead(length) <= mtu as usize;
        let longest = association.longest();
        prop_assert!(longest == 0 || fits(longest));
        prop_assert!(!fits(longest + 1));
    }

    #[test]
    fn whatever_comes_nothing_panics(
        packet in prop::collection::vec(any::<u8>(), 20..300),
        suite in 0..9_usize,
        mode in any::<bool>(),
        cut in 0..200_usize,
    ) {
        let mut bench = Bench::new();
        let mode = if mode { Mode::Tunnel } else { Mode::Transport };
        let association = || Association::new(Settings { mode, window: 0, ..settings(Suite::ALL[suite]) });
        let mut packet = packet;
        packet[0] = 0x45;
        packet[6..8].fill(0);
        let opened = bench.open(&association(), &[packet.clone()]);
        prop_assert!(opened[0].is_err());
        // Random bytes inside, under a right ICV.
        let (sealed, _) = bench.seal(&association(), &[packet]);
        bench.open(&association(), &sealed);
        let mut short = sealed[0].clone();
        short.truncate(short.len().saturating_sub(cut).max(20));
        bench.open(&association(), &[short]);
    }
}

impl crate::association::Used {
    /// Bytes are counted before and after in transport mode differently: header or not.
    fn packets_only(self, other: Self) -> Self {
        Self { bytes: other.bytes, ..self }
    }
}

#[test]
fn each_fault_has_its_name_and_count() {
    let mut bench = Bench::new();
    let out = Association::new(settings(gcm()));
    let back = Association::new(settings(gcm()));
    let clear: Vec<Vec<u8>> = (0..100).map(|_| ip(false, 0, 50)).collect();
    let (sealed, _) = bench.seal(&out, &clear);
    let mut wrong = sealed[0].clone();
    *wrong.last_mut().unwrap() ^= 1;
    assert_eq!(bench.open(&back, &[wrong]), [Err(Fault::WrongIcv)]);
    // What was wrong does not count as received.
    assert!(bench.open(&back, &sealed[..1])[0].is_ok());
    assert_eq!(bench.open(&back, &sealed[..1]), [Err(Fault::Replayed)]);
    assert!(bench.open(&back, &sealed[99..])[0].is_ok());
    assert_eq!(bench.open(&back, &sealed[20..21]), [Err(Fault::TooOld)]);
    assert!(bench.open(&back, &sealed[40..41])[0].is_ok());
    for length in 20..20 + 8 + 8 + 16 + 1 {
        assert_eq!(bench.open(&back, &[sealed[50][..length].to_vec()]), [Err(Fault::Truncated)], "{length}");
    }
    assert_eq!(bench.open(&back, &[sealed[50][..sealed[50].len() - 2].to_vec()]), [Err(Fault::Truncated)]);
    assert_eq!(bench.open(&back, &[sealed[50][..sealed[50].len() - 4].to_vec()]), [Err(Fault::WrongIcv)]);
    assert_eq!(back.faults(Fault::WrongIcv), 2);
    assert_eq!(back.faults(Fault::Replayed), 1);
    assert_eq!(back.faults(Fault::TooOld), 1);
    assert_eq!(back.used().packets, 3);
}

#[test]
fn what_was_inside_is_checked_under_a_right_icv() {
    let mut bench = Bench::new();
    let suite = gcm();
    // (payload, what comes of it in tunnel mode)
    let inner = ip(false, 0, 2);
    let with = |payload: &[u8], padding: &[u8], length: u8, protocol: u8| {
        let mut all = payload.to_vec();
        all.extend(padding);
        all.extend([length, protocol]);
        all
    };
    let cases = [
        (with(&inner, &[], 0, 4), Ok(inner.clone())),
        (with(&inner, &[1, 2, 3, 4], 4, 4), Ok(inner.clone())),
        (with(&inner, &(1..=252).collect::<Vec<u8>>(), 252, 4), Ok(inner.clone())),
        (with(&[0x45; 27], &(1..=255).collect::<Vec<u8>>(), 255, 4), Ok(vec![0x45; 27])),
        (with(&inner, &[1, 2, 3, 5], 4, 4), Err(Fault::BadPadding)),
        (with(&inner, &[], 200, 4), Err(Fault::BadPadding)),
        (with(&inner, &[], 0, 41), Err(Fault::BadInnerHeader)),
        (with(&inner, &[], 0, 6), Err(Fault::BadInnerHeader)),
        (with(&inner, &[], 0, 59), Err(Fault::Dummy)),
        (with(&[0x45; 18], &[], 0, 4), Err(Fault::BadInnerHeader)),
        (with(&[], &[1, 2], 2, 4), Err(Fault::BadInnerHeader)),
    ];
    for (number, (payload, expected)) in cases.into_iter().enumerate() {
        assert_eq!(payload.len() % 4, 0);
        let association = Association::new(settings(suite));
        let mut packet = ip(false, 0, 0)[..20].to_vec();
        packet[9] = 50;
        packet.extend(0x1234_5678_u32.to_be_bytes());
        packet.extend([0, 0, 0, 9]);
        packet.extend([3; 8]);
        packet.extend(payload);
        packet.extend([0; 16]);
        let keys = keys(suite);
        let mut engine = Backend::best().engine().unwrap();
        engine.seal(&mut [crate::engine::Job::new(&keys, &mut packet[20..], None)]);
        assert_eq!(bench.open(&association, &[packet]), [expected], "case {number}");
    }
}

#[test]
fn limits_and_numbers_end_an_association() {
    let mut bench = Bench::new();
    let clear: Vec<Vec<u8>> = (0..4).map(|_| ip(false, 0, 72)).collect();
    let limits = |soft, hard| {
        let packets = |packets| Limit { packets, ..Limit::NONE };
        Association::new(Settings { soft: packets(soft), hard: packets(hard), ..settings(gcm()) })
    };
    let association = limits(4, 8);
    assert_eq!(bench.seal(&association, &clear).1, []);
    assert_eq!(association.age(), Age::Young);
    assert_eq!(bench.seal(&association, &clear).1, []);
    assert_eq!(association.age(), Age::Soft);
    assert_eq!(bench.seal(&association, &clear).1, [Fault::Expired; 4]);
    assert_eq!((association.age(), association.faults(Fault::Expired)), (Age::Expired, 4));
    let bytes = Limit { bytes: 300, ..Limit::NONE };
    let association = Association::new(Settings { hard: bytes, ..settings(gcm()) });
    assert_eq!(bench.seal(&association, &clear).1, []);
    assert_eq!(bench.seal(&association, &clear).1, [Fault::Expired; 4]);
    // An opened packet counts too, and one more than the limit is not opened.
    let (out, back) = (Association::new(settings(gcm())), limits(u64::MAX, 1));
    let (sealed, _) = bench.seal(&out, &clear);
    assert!(bench.open(&back, &sealed[..1])[0].is_ok());
    assert!(bench.open(&back, &sealed[1..2])[0].is_ok(), "the limit is found at the end of a batch");
    assert_eq!(bench.open(&back, &sealed[2..]), [Err(Fault::Expired), Err(Fault::Expired)]);
    // Sequence numbers never begin again under one key.
    let end = Settings { sequence: u64::from(u32::MAX) - 4, ..settings(gcm()) };
    let association = Association::new(end);
    assert_eq!(bench.seal(&association, &clear).1, []);
    assert_eq!(bench.seal(&association, &clear[..1]).1, [Fault::SequenceOverflow]);
    assert_eq!(bench.seal(&association, &clear[..1]).1, [Fault::Expired]);
}

#[test]
fn frames_without_room_are_not_sealed() {
    let mut bench = Bench::new();
    let association = Association::new(settings(gcm()));
    let longest = bench.pool.data_bytes();
    let (sealed, faults) =
        bench.seal(&association, &[ip(false, 0, longest - 28), ip(false, 0, 5), vec![0x45; 7]]);
    assert_eq!((sealed.len(), faults), (1, vec![Fault::NoRoom; 2]));
}

#[test]
fn outer_headers_follow_the_inner_ones_as_they_should() {
    let mut bench = Bench::new();
    let mut outer = |inner: Vec<u8>, change: fn(&mut Settings)| {
        let mut settings = settings(gcm());
        change(&mut settings);
        bench.seal(&Association::new(settings), &[inner]).0.remove(0)
    };
    let mut fixed = ip(false, 0xb9, 4);
    fixed[6] = 0x40;
    let v4 = |packet: &[u8]| (packet[1], packet[6], packet[8]);
    assert_eq!(v4(&outer(fixed.clone(), |_| {})), (0xb9, 0x40, 64));
    assert_eq!(v4(&outer(fixed.clone(), |s| s.dont_fragment = DontFragment::Clear)), (0xb9, 0, 64));
    assert_eq!(v4(&outer(ip(false, 0, 4), |s| s.dont_fragment = DontFragment::Set)), (0, 0x40, 64));
    assert_eq!(v4(&outer(ip(false, 0, 4), |s| s.hop_limit = 65)), (0, 0, 65));
    assert_eq!(v4(&outer(ip(true, 0xb9, 4), |s| s.copies_dscp = false)), (1, 0x40, 64));
    assert_eq!(v4(&outer(fixed, |s| s.copies_ecn = false)), (0xb8, 0x40, 64));
    let v6 = outer(ip(false, 0xb9, 4), |s| s.endpoints = GATEWAYS[1]);
    assert_eq!((v6[0], v6[1], v6[7]), (0x6b, 0x90, 64));
}

#[test]
fn congestion_that_was_met_outside_is_seen_inside() {
    let mut bench = Bench::new();
    for (is_ipv6, outer) in [(false, 0), (true, 1), (true, 0), (false, 1)] {
        let open = |bench: &mut Bench, class: u8| {
            let association = || Association::new(Settings { endpoints: GATEWAYS[outer], ..settings(gcm()) });
            let mut sealed = bench.seal(&association(), &[ip(is_ipv6, class, 9)]).0.remove(0);
            super::marks::set_traffic_class(&mut sealed, 3);
            bench.open(&association(), &[sealed]).remove(0)
        };
        assert_eq!(open(&mut bench, 0xba), Ok(ip(is_ipv6, 0xbb, 9)));
        assert_eq!(open(&mut bench, 0xb8), Err(Fault::LostCongestionMark));
    }
}

#[test]
fn esp_is_found_behind_ip_and_udp() {
    let mut bench = Bench::new();
    let association = Association::new(settings(gcm()));
    let sealed = bench.seal(&association, &[ip(false, 0, 9)]).0.remove(0);
    let esp = find(&sealed).unwrap();
    assert_eq!((esp.offset, esp.spi, esp.is_in_udp), (20, 0x1234_5678, false));
    assert_eq!(esp.destination, IpAddr::from([192, 0, 2, 2]));
    let mut fragment = sealed.clone();
    fragment[6] = 0x20;
    assert_eq!(find(&fragment), None);
    assert_eq!(find(&sealed[..23]), None);
    // IKE on port 4500, and a keepalive.
    let mut ike = ip(false, 0, 4);
    ike[22..24].copy_from_slice(&4500_u16.to_be_bytes());
    ike[28..32].fill(0);
    assert_eq!(find(&ike), None);
    assert_eq!(find(&ike[..29]), None);
    ike[28] = 1;
    assert_eq!(find(&ike).map(|esp| (esp.offset, esp.spi)), Some((28, 1 << 24)));
}

/// Packets that Scapy 2.5 made with `SecurityAssociation(ESP, spi=0x12345678, ..).encrypt(.., seq_num=9, iv=..)`, keys of 1, 2, 3 and so on, and
/// authentication keys of 7s; the extended number is 3 * 2^32 + 9. Inside is UDP from 10.1.0.1 to 10.2.0.1.
#[test]
fn packets_of_another_implementation_are_opened() {
    let golden = [
        (
            Protection::AesCbcSha1,
            16,
            0,
            "45000068000000004032f660c0000201c00002021234567800000009000102030405060708090a0b0c0d0e0f570a5bdb0afab5b1922bc8267fdd4f395ee45e5ae89273f0c9abb7540561e5395de64e94bbf0c73a87b63575b99e9d6e5f9f0d7e03569383518cb365",
        ),
        (
            Protection::AesCbcSha256,
            32,
            0,
            "4500006c000000004032f65cc0000201c00002021234567800000009000102030405060708090a0b0c0d0e0fef0d3a951ab435cd0300918bcea16dfa9e9271654c1f4480b6d9e83bd11b6232ffc82bd2f64b4c21c2781da815ca3a393b395464edd03c4d3f1a9db575b0a1c6",
        ),
        (
            Protection::AesCbcSha512,
            16,
            0,
            "4500007c000000004032f64cc0000201c00002021234567800000009000102030405060708090a0b0c0d0e0f570a5bdb0afab5b1922bc8267fdd4f395ee45e5ae89273f0c9abb7540561e5395de64e94bbf0c73a87b63575b99e9d6eaa5673192c0be15a820fb5bd81de899a2dc70ee54d499a65503c19897ff44588",
        ),
        (
            Protection::AesGcm,
            32,
            0,
            "4500005c000000004032f66cc0000201c0000202123456780000000900010203040506070b26ec0409265ad906cb781d7d39ffd63157671d700939def080cacad8b24aef1a911eb1fe7a29bc33f61df139a09b7c72511e9a5b0f9bf3",
        ),
        (
            Protection::AesGcm,
            32,
            3,
            "4500005c000000004032f66cc0000201c0000202123456780000000900010203040506070b26ec0409265ad906cb781d7d39ffd63157671d700939def080cacad8b24aef1a911eb1fe7a29bca729dcad56ee54c95a83c35d7b0a1809",
        ),
    ];
    let mut bench = Bench::new();
    for (protection, key_bytes, high, hex) in golden {
        let suite = Suite::new(protection, key_bytes).unwrap();
        let sequence = high << 32;
        let association = Association::new(Settings { is_extended: high != 0, sequence, ..settings(suite) });
        let packet: Vec<u8> =
            (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).unwrap()).collect();
        let opened = bench.open(&association, &[packet]).remove(0).unwrap();
        let header = Ipv4::new_unchecked(&opened);
        assert_eq!(
            (header.source(), header.destination()),
            (Ipv4Addr::new(10, 1, 0, 1), Ipv4Addr::new(10, 2, 0, 1))
        );
        assert_eq!(&opened[28..], b"brickway", "{suite}");
    }
}

#[test]
fn transport_mode_takes_no_fragments() {
    let mut bench = Bench::new();
    let association = Association::new(Settings { mode: Mode::Transport, ..settings(gcm()) });
    let mut fragment = ip(false, 0, 40);
    fragment[6] = 0x20;
    let mut fragment6 = ip(true, 0, 40);
    fragment6.splice(40..40, [17, 0, 0, 1, 0, 0, 0, 9]);
    (fragment6[5], fragment6[6]) = (56, 44);
    let (sealed, faults) = bench.seal(&association, &[fragment, ip(false, 0, 40), fragment6]);
    assert_eq!((sealed.len(), faults), (1, vec![Fault::Fragment; 2]));
}

#[test]
fn what_somebody_else_has_sealed_is_opened_whatever_its_number() {
    let mut bench = Bench::new();
    // Both count across 32 bits, and neither knows how far the other one is.
    for (theirs, ours) in
        [(0, 5), (0xffff_fffd, 0x1_0000_0005), (0x1_0000_0005, 0xffff_fff0), (1 << 40, 1 << 40)]
    {
        let of = |sequence| Association::new(Settings { is_extended: true, sequence, ..settings(gcm()) });
        let (theirs, ours) = (of(theirs), of(ours));
        let (sealed, faults) = bench.seal(&theirs, &[ip(false, 0, 9)]);
        assert_eq!(faults, []);
        let mut packet = bench.packets(&sealed).remove(0);
        let offset = find(packet.data()).unwrap().offset as u16;
        assert_eq!(bench.opener.open_sent(&mut packet, &ours, offset), Ok(()));
        assert_eq!(packet.data(), ip(false, 0, 9));
        assert_eq!((ours.used().packets, ours.sequence()), (0, ours.settings().sequence));
        let mut forged = sealed[0].clone();
        *forged.last_mut().unwrap() ^= 1;
        let mut packet = bench.packets(&[forged]).remove(0);
        assert_eq!(bench.opener.open_sent(&mut packet, &ours, offset), Err(Fault::WrongIcv));
        for length in 0..sealed[0].len() {
            let mut packet = bench.packets(&[sealed[0][..length].to_vec()]).remove(0);
            assert!(bench.opener.open_sent(&mut packet, &ours, offset).is_err());
        }
    }
}

#[test]
fn esp_is_found_at_other_ports_and_behind_extension_headers_where_that_is_asked_for() {
    let mut packet = ip(false, 0, 12);
    packet[22..24].copy_from_slice(&4_501_u16.to_be_bytes());
    packet[28..32].copy_from_slice(&[0, 0, 0, 7]);
    assert_eq!(find(&packet), None);
    let found = find_anywhere(&packet).unwrap().unwrap();
    assert_eq!((found.spi, found.offset, found.is_in_udp), (7, 28, true));
    // Destination options of 8 bytes, then ESP.
    let mut packet = ip(true, 0, 20);
    packet[6] = 60;
    packet[40..48].copy_from_slice(&[50, 0, 1, 4, 0, 0, 0, 0]);
    packet[48..52].copy_from_slice(&[0, 0, 0, 9]);
    assert_eq!(find(&packet), None);
    let found = find_anywhere(&packet).unwrap().unwrap();
    assert_eq!((found.spi, found.offset, found.is_in_udp), (9, 48, false));
    for length in 0..packet.len() {
        let _ = find_anywhere(&packet[..length]);
    }
    // ESP that is cut off, and behind more headers than anybody looks at, may be what Linux opens.
    assert_eq!(find_anywhere(&packet[..51]), Err(Hidden));
    let options = |count: usize, last: u8, behind: &[u8]| {
        let mut packet = ip(true, 0, 8);
        packet.truncate(40);
        packet[6] = 60;
        for left in (0..count).rev() {
            packet.extend([if left == 0 { last } else { 60 }, 0, 1, 4, 0, 0, 0, 0]);
        }
        packet.extend(behind);
        let length = packet.len() as u16 - 40;
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        packet
    };
    assert_eq!(find_anywhere(&options(9, 50, &[0, 0, 0, 9, 0, 0, 0, 1])), Err(Hidden));
    // UDP: ESP, IKE, and what keeps a translation alive.
    let udp = |payload: &[u8]| options(1, 17, &[&[17, 148, 17, 148, 0, 0, 0, 0][..], payload].concat());
    let found = find_anywhere(&udp(&[0, 0, 0, 9, 0, 0, 0, 1])).unwrap().unwrap();
    assert_eq!((found.spi, found.offset, found.is_in_udp), (9, 56, true));
    assert_eq!(find_anywhere(&udp(&[0, 0, 0, 0, 1, 2, 3, 4])), Ok(None));
    assert_eq!(find_anywhere(&udp(&[0xff])), Ok(None));
    // A fragment.
    let mut packet = ip(false, 0, 20);
    (packet[9], packet[6]) = (50, 0x20);
    assert_eq!(find_anywhere(&packet), Err(Hidden));
}
