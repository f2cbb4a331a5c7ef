//! Random lists and packets: the compiled list says what the plain reading says, before and after changes.

use ipnet::IpNet;
use packet::IpVersion;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::compiled::Answer;
use super::super::list::{List, Rooms};
use super::super::parse::{lines, parse_list};
use super::super::rule::{Action, Inputs, PortRange, Rule, TrafficRule, Written, has_ports, only_version};
use super::naive::{Outcome, judge};
use super::{bench, fragment};
use testbed::ipv4::with_options;

/// Bits at the top of an address: a small world, in which prefixes and packets meet.
fn bits() -> impl Strategy<Value = u128> {
    let small = (0u128..4, 0u128..8, 0u128..8)
        .prop_map(|(first, middle, last)| first << 126 | middle << 104 | last << 96 | last << 64 | middle);
    prop_oneof![4 => small, 1 => any::<u128>()]
}

fn prefix(version: IpVersion) -> impl Strategy<Value = Option<IpNet>> {
    let lengths = match version {
        IpVersion::V4 => vec![0u8, 1, 2, 8, 16, 24, 27, 32],
        IpVersion::V6 => vec![0u8, 2, 16, 24, 32, 48, 64, 67, 128],
    };
    let prefix = (bits(), select(lengths)).prop_map(move |(bits, length)| {
        let net = match version {
            IpVersion::V4 => IpNet::new(std::net::Ipv4Addr::from((bits >> 96) as u32).into(), length),
            IpVersion::V6 => IpNet::new(std::net::Ipv6Addr::from(bits).into(), length),
        };
        net.unwrap().trunc()
    });
    prop::option::of(prefix)
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![3 => 0u16..6, 1 => any::<u16>(), 1 => Just(u16::MAX)]
}

fn port_range() -> impl Strategy<Value = Option<PortRange>> {
    let range = (port(), port()).prop_map(|(a, b)| PortRange { first: a.min(b), last: a.max(b) });
    prop::option::of(range)
}

fn protocol() -> impl Strategy<Value = u8> {
    prop_oneof![6 => select(vec![6u8, 17, 132, 1, 58]), 1 => any::<u8>()]
}

/// A rule that could have been read; its place comes later.
fn rule() -> impl Strategy<Value = Rule> {
    let version = select(vec![IpVersion::V4, IpVersion::V6]);
    let prefixes = version.prop_flat_map(|version| (Just(version), prefix(version), prefix(version)));
    let conditions = (prop::option::weighted(0.2, 0u8..3), any::<bool>(), 0u8..5);
    let icmp = (0u8..4, prop::option::of(0u8..3));
    let fields = (prefixes, prop::option::of(protocol()), port_range(), port_range(), icmp, conditions);
    (any::<bool>(), any::<bool>(), fields).prop_map(|(permits, says_version, fields)| {
        let ((version, source, destination), protocol, from, to, icmp_type, (input, established, odd)) =
            fields;
        let only = protocol.and_then(only_version);
        let fits = only.is_none_or(|only| only == version);
        let protocol = protocol.filter(|_| fits);
        let with_ports = protocol.is_some_and(has_ports) && odd != 0;
        let is_icmp = protocol.is_some_and(|protocol| only_version(protocol).is_some());
        let says_version = says_version || source.or(destination).is_some() || is_icmp;
        Rule {
            sequence: 0,
            action: if permits { Action::Permit } else { Action::Deny },
            version: says_version.then_some(version),
            protocol,
            source,
            source_ports: from.filter(|_| with_ports && established),
            destination,
            destination_ports: to.filter(|_| with_ports),
            input,
            icmp_type: Some(icmp_type).filter(|_| is_icmp && odd != 0),
            established: established && protocol == Some(6) && odd == 1,
            fragment: odd == 0 && established,
        }
    })
}

pub(super) fn list(size: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Rule>> {
    (prop::collection::vec(rule(), size), 1u32..20).prop_map(|(mut rules, step)| {
        for (place, rule) in rules.iter_mut().enumerate() {
            rule.sequence = (place as u32 + 1) * step;
        }
        rules
    })
}

fn transport() -> impl Strategy<Value = Vec<u8>> {
    let rest = prop::collection::vec(any::<u8>(), 16..20);
    (port(), port(), 0u8..6, 0u8..4, rest, select(vec![0usize, 1, 3, 4, 8, 14, 16, 20, 20, 20, 20])).prop_map(
        |(from, to, kind, code, rest, length)| {
            let mut bytes = if kind < 4 { vec![kind, code, 0, 0] } else { Vec::new() };
            bytes.extend(from.to_be_bytes());
            bytes.extend(to.to_be_bytes());
            bytes.extend(rest);
            bytes.truncate(length);
            bytes
        },
    )
}

fn ipv4_packet() -> impl Strategy<Value = Vec<u8>> {
    let options = select(vec![0usize, 0, 0, 4, 40]);
    let part = (select(vec![0u16, 0, 0, 0, 8, 16, 65528]), prop::bool::weighted(0.2));
    (bits(), bits(), protocol(), options, transport(), part).prop_map(
        |(source, destination, protocol, options, transport, (offset, more))| {
            let octets = |bits: u128| ((bits >> 96) as u32).to_be_bytes();
            let packet =
                with_options(octets(source), octets(destination), protocol, &vec![1; options], &transport);
            fragment(packet, offset, more)
        },
    )
}

/// An extension header, right or not quite.
fn extension() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let options = (select(vec![0u8, 43, 60, 60, 51]), select(vec![0u8, 0, 0, 1, 2, 200]))
        .prop_map(|(kind, length)| (kind, [&[0, length][..], &[0; 22]].concat()));
    let lengths = options.prop_map(|(kind, mut bytes)| {
        let right = if kind == 51 { usize::from(bytes[1]) * 4 + 8 } else { usize::from(bytes[1]) * 8 + 8 };
        bytes.truncate(right);
        (kind, bytes)
    });
    let part = (select(vec![0u16, 0, 8, 16]), any::<bool>()).prop_map(|(offset, more)| {
        (44, [&[0, 0][..], &(offset | u16::from(more)).to_be_bytes(), &[0; 4]].concat())
    });
    prop_oneof![2 => lengths, 1 => part]
}

fn ipv6_packet() -> impl Strategy<Value = Vec<u8>> {
    let chain = prop_oneof![
        3 => Just(Vec::new()),
        2 => prop::collection::vec(extension(), 1..4),
        1 => prop::collection::vec(extension(), 7..11),
    ];
    (bits(), bits(), protocol(), chain, transport(), any::<bool>()).prop_map(
        |(source, destination, protocol, chain, transport, cut)| {
            let mut payload = transport;
            let mut next = protocol;
            for (kind, mut bytes) in chain.into_iter().rev() {
                bytes[0] = next;
                bytes.extend(&payload);
                (payload, next) = (bytes, kind);
            }
            if cut {
                payload.truncate(payload.len() / 8 * 8);
            }
            let mut packet = vec![0x6f, 0, 0, 0];
            packet.extend((payload.len() as u16).to_be_bytes());
            packet.extend([next, 64]);
            packet.extend(source.to_be_bytes());
            packet.extend(destination.to_be_bytes());
            packet.extend(payload);
            packet
        },
    )
}

pub(super) fn packet() -> impl Strategy<Value = (Vec<u8>, u8)> {
    (prop_oneof![ipv4_packet(), ipv6_packet()], 0u8..4)
}

pub(super) fn text(rules: &[Rule]) -> String {
    let inputs = Inputs::default();
    rules.iter().map(|rule| format!("{}\n", Written { rule, inputs: &inputs })).collect()
}

/// Packets go where the plain reading of the rules sends them, and are counted there.
fn compare(bench: &mut graph::testing::Bench, rules: &[Rule], packets: &[(Vec<u8>, u8)]) {
    bench.write("e.reset_counts", "").unwrap();
    let pushed = packets.iter().map(|(bytes, paint)| {
        let mut packet = bench.packet(bytes);
        packet.set_network_header(0);
        packet.annotations_mut().set_paint(*paint);
        packet
    });
    let pushed = pushed.collect();
    bench.push_packets("in0", pushed);
    let mut expected = [Vec::new(), Vec::new()];
    let mut counts = vec![(0, 0); rules.len() + 1];
    // Nobody says what becomes of packets that no rule matches.
    let permits = rules.iter().filter(|rule| rule.action == Action::Permit).count();
    let rest = if permits == 0 && !rules.is_empty() { Action::Permit } else { Action::Deny };
    for (bytes, paint) in packets {
        let outcome = judge(rules, rest, bytes, *paint);
        let output = match outcome {
            Outcome::Decided(place, action) => {
                counts[place].0 += 1;
                counts[place].1 += bytes.len();
                usize::from(action == Action::Deny)
            }
            Outcome::Flawed => 1,
        };
        expected[output].push(bytes.clone());
    }
    assert_eq!(bench.taken("out0"), expected[0]);
    assert_eq!(bench.taken("out1"), expected[1]);
    let read = bench.read("e.rules") + &bench.read("e.default");
    let counted: Vec<&str> = read.lines().filter_map(|line| Some(line.split_once(" # ")?.1)).collect();
    let counts: Vec<String> =
        counts.iter().map(|(packets, bytes)| format!("{packets} packets, {bytes} bytes")).collect();
    assert_eq!(counted, counts);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_list_is_what_its_text_says(rules in list(0..20)) {
        let parsed = parse_list(lines(&text(&rules)), &Inputs::default());
        prop_assert_eq!(parsed, Ok(rules));
    }

    #[test]
    fn packets_go_where_a_plain_reading_sends_them(
        first in list(0..40),
        second in list(0..40),
        packets in prop::collection::vec(packet(), 0..100),
    ) {
        let mut bench = bench("");
        for rules in [first, second] {
            bench.write("e.set", &text(&rules)).unwrap();
            compare(&mut bench, &rules, &packets);
        }
    }
}

/// The bytes of a fragment as if it were not the first; of another packet, the bytes themselves.
fn as_later_fragment(bytes: &[u8]) -> Vec<u8> {
    const LATER: u8 = 24;
    let mut bytes = bytes.to_vec();
    if bytes[0] >> 4 == 4 {
        // Of 24 octets or more, to which the rules of RFC 1858 do not apply, and not near the end.
        if bytes[6] & 0x3f != 0 || bytes[7] != 0 {
            bytes[6..8].copy_from_slice(&[0x20, LATER / 8]);
        }
        return bytes;
    }
    let (mut next, mut at, mut count) = (bytes[6], 40, 0);
    while count < 8 && [0, 43, 44, 51, 60].contains(&next) && at + 8 <= bytes.len() {
        if next == 44 && (bytes[at + 2] != 0 || bytes[at + 3] != 0) {
            bytes[at + 2..at + 4].copy_from_slice(&[0, LATER]);
            break;
        }
        let length = match next {
            44 => 8,
            51 => usize::from(bytes[at + 1]) * 4 + 8,
            _ => usize::from(bytes[at + 1]) * 8 + 8,
        };
        (next, at, count) = (bytes[at], at + length, count + 1);
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn traffic_is_what_a_plain_reading_says_of_a_later_fragment_of_each_datagram(
        rules in list(1..12),
        packets in prop::collection::vec(packet(), 1..packet::MAX_BATCH),
    ) {
        let asked: Vec<TrafficRule> = rules.iter().map(|rule| {
            let rule = TrafficRule(Rule { sequence: 0, action: Action::Permit, ..*rule });
            assert_eq!(rule.to_string().parse(), Ok(rule));
            rule
        }).collect();
        let mut bench = bench("");
        let batch: Vec<packet::Packet> = packets.iter().map(|(bytes, paint)| {
            let mut packet = bench.packet(bytes);
            packet.set_network_header(0);
            packet.annotations_mut().set_paint(*paint);
            packet
        }).collect();
        let mut answers = vec![Answer::FLAWED; batch.len()];
        List::of_traffic(&asked).judge(0, &batch, &mut Rooms::new(), &mut answers);
        for ((bytes, paint), answer) in packets.iter().zip(answers) {
            let expected = match judge(&rules, Action::Deny, &as_later_fragment(bytes), *paint) {
                Outcome::Decided(place, _) => place,
                Outcome::Flawed => Answer::FLAWED.rule(),
            };
            prop_assert_eq!(answer.rule(), expected, "{:?}", bytes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2))]
    #[test]
    fn long_lists_too(
        rules in list(300..1200),
        packets in prop::collection::vec(packet(), 500..501),
    ) {
        let mut bench = bench("");
        bench.write("e.set", &text(&rules)).unwrap();
        // What was searched for once is known the second time, and forgotten when the list changes.
        compare(&mut bench, &rules, &packets);
        compare(&mut bench, &rules, &packets);
        let shorter: Vec<Rule> = rules.into_iter().step_by(2).collect();
        bench.write("e.set", &text(&shorter)).unwrap();
        compare(&mut bench, &shorter, &packets);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1))]
    #[test]
    fn thousands_of_rules(
        rules in list(2_000..2_001),
        packets in prop::collection::vec(packet(), 250..251),
    ) {
        let mut bench = bench("");
        bench.write("e.set", &text(&rules)).unwrap();
        compare(&mut bench, &rules, &packets);
        compare(&mut bench, &rules, &packets);
    }
}
