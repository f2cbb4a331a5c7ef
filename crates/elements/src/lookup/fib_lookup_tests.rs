//! FIBLookup and FIBLookup6 over tables that a test fills.

use fib::policy::{AddressRange, PolicyAction, PolicyRule};
use fib::publish::{Writer, pair};
use fib::{Adjacency, Decision, Fib, MAIN, NextHop, Policy, Rules};
use graph::setup::Shared;
use graph::testing::Bench;
use packet::IpVersion;
use packet::flow::FlowKey;
use packet::multipath::PathPolicy;

use super::{Asker, ForwardingTables};
use crate::registry;

const TO_A: [u8; 14] = [2, 0, 0, 0, 0, 0xa, 2, 0, 0, 0, 1, 0, 8, 0];
const TO_B: [u8; 14] = [2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 1, 1, 8, 0];
const TO_C: [u8; 14] = [2, 0, 0, 0, 0, 0xc, 2, 0, 0, 0, 1, 1, 0x86, 0xdd];

/// Routes of every kind; 10.1/16 by port 0, 10.2/16 by port 1 with a VLAN tag, 10.3/16 shared by both.
pub(super) fn fib() -> Fib<Adjacency> {
    let mut fib = Fib::new().unwrap();
    let next_hops = fib.next_hops_mut();
    let a = next_hops.add(NextHop::Forward(Adjacency::new(0, &TO_A).unwrap())).unwrap();
    let b = next_hops.add(NextHop::Forward(Adjacency::new(1, &TO_B).unwrap())).unwrap();
    let c = next_hops.add(NextHop::Forward(Adjacency::new(1, &TO_C).unwrap())).unwrap();
    let tagged = [&TO_B[..12], &[0x81, 0, 0, 7], &TO_B[12..]].concat();
    let vlan = next_hops.add(NextHop::Forward(Adjacency::new(1, &tagged).unwrap())).unwrap();
    let both = next_hops.add_group(&[(a, 1), (b, 1)]).unwrap();
    let both6 = next_hops.add_group(&[(a, 1), (c, 1)]).unwrap();
    let ends = [
        ("10.4.0.0/16", NextHop::Local),
        ("10.5.0.0/16", NextHop::Punt),
        ("10.6.0.0/16", NextHop::Unreachable),
        ("10.7.0.0/16", NextHop::Prohibit),
        ("10.8.0.0/16", NextHop::Blackhole),
        ("10.12.0.0/16", NextHop::Resolve(0)),
        ("2001:db8:12::/48", NextHop::Resolve(0)),
    ];
    for (prefix, next_hop) in ends {
        let number = fib.next_hops_mut().add(next_hop).unwrap();
        fib.insert(MAIN, prefix.parse().unwrap(), number).unwrap();
    }
    for (prefix, number) in [
        ("10.1.0.0/16", a),
        ("10.2.0.0/16", vlan),
        ("10.3.0.0/16", both),
        ("2001:db8:1::/48", c),
        ("2001:db8:3::/48", both6),
    ] {
        fib.insert(MAIN, prefix.parse().unwrap(), number).unwrap();
    }
    fib.publish();
    fib
}

fn bench(config: &str, fib: &Fib<Adjacency>) -> Bench {
    try_bench(config, fib).unwrap()
}

pub(super) fn try_bench(config: &str, fib: &Fib<Adjacency>) -> Result<Bench, String> {
    bench_with_policy(config, fib, &Policy::default()).map(|(bench, _)| bench)
}

/// One that asks for neighbours.
pub(super) fn bench_asking(config: &str, fib: &Fib<Adjacency>, ask: Asker) -> Bench {
    bench_of(config, fib, &Policy::default(), ask).unwrap().0
}

pub(super) fn bench_with_policy(
    config: &str,
    fib: &Fib<Adjacency>,
    policy: &Policy,
) -> Result<(Bench, Writer<Policy>), String> {
    bench_of(config, fib, policy, Asker::default())
}

fn bench_of(
    config: &str,
    fib: &Fib<Adjacency>,
    policy: &Policy,
    ask: Asker,
) -> Result<(Bench, Writer<Policy>), String> {
    let (shared, writer) = tables(fib, policy, ask);
    Ok((Bench::try_new(&registry(), config, 32, &shared)?, writer))
}

fn tables(fib: &Fib<Adjacency>, policy: &Policy, ask: Asker) -> (Shared, Writer<Policy>) {
    let shared = Shared::default();
    let (writer, policies) = pair(policy.clone(), policy.clone());
    let ports = vec!["eth1".into(), "eth2".into()];
    let tables =
        ForwardingTables { ports, readers: fib.readers().clone(), policies, paths: Default::default(), ask };
    shared.get_or_make(ForwardingTables::KEY, || Ok::<_, String>(tables)).unwrap();
    (shared, writer)
}

const IPV4: &str = "in :: TestInput -> MarkIPHeader(0) -> GetIPAddress(16) -> rt :: FIBLookup(eth1, eth2);
    rt[0] -> UnstripToMACHeader -> out0 :: TestOutput; rt[1] -> UnstripToMACHeader -> out1 :: TestOutput; rt[2] -> host :: TestOutput;
    rt[3] -> none :: TestOutput; rt[4] -> down :: TestOutput; rt[5] -> never :: TestOutput;";
const IPV6: &str = "in :: TestInput -> GetIP6Address(24) -> rt :: FIBLookup6(eth1, eth2);
    rt[0] -> UnstripToMACHeader -> out0 :: TestOutput; rt[1] -> UnstripToMACHeader -> out1 :: TestOutput;";

fn ipv4(destination: [u8; 4], source_port: u16) -> Vec<u8> {
    let mut packet = vec![0; 40];
    packet[0] = 0x45;
    packet[8..10].copy_from_slice(&[64, 17]);
    packet[16..20].copy_from_slice(&destination);
    packet[20..22].copy_from_slice(&source_port.to_be_bytes());
    packet
}

/// One from another source.
fn ipv4_from(source: u16, destination: [u8; 4]) -> Vec<u8> {
    let mut packet = ipv4(destination, 5);
    packet[14..16].copy_from_slice(&source.to_be_bytes());
    packet
}

fn ipv6(subnet: u8, label: u32, source_port: u16) -> Vec<u8> {
    let mut packet = vec![0; 60];
    packet[..4].copy_from_slice(&(6 << 28 | label).to_be_bytes());
    packet[6..8].copy_from_slice(&[17, 64]);
    packet[8..12].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
    packet[24..30].copy_from_slice(&[0x20, 1, 0x0d, 0xb8, 0, subnet]);
    packet[40..42].copy_from_slice(&source_port.to_be_bytes());
    packet
}

#[test]
fn a_packet_gets_the_header_of_its_next_hop_or_leaves_as_it_is() {
    let fib = fib();
    let mut bench = bench(IPV4, &fib);
    let packets: Vec<Vec<u8>> = (1..=9).map(|second| ipv4([10, second, 0, 1], 5)).collect();
    let references: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
    bench.push("in", &references[..2]);
    bench.push("in", &references[3..]);
    assert_eq!(bench.taken("out0"), [[&TO_A, &packets[0][..]].concat()]);
    assert_eq!(bench.taken("out1"), [[&TO_B[..12], &[0x81, 0, 0, 7, 8, 0], &packets[1]].concat()]);
    assert_eq!(bench.taken("host"), &packets[3..5]);
    assert_eq!(bench.taken("down"), &packets[5..6]);
    assert_eq!(bench.taken("never"), &packets[6..7]);
    assert_eq!(bench.taken("none"), &packets[8..9]);
    assert_eq!(bench.drops("rt", "blackhole"), 1);
}

#[test]
fn options_are_for_linux_unless_somebody_processes_them() {
    let fib = fib();
    let mut packet = ipv4([10, 1, 0, 1], 5);
    packet[0] = 0x46;
    for (config, ours) in [(IPV4.to_owned(), 1), (IPV4.replace("eth2)", "eth2, OPTIONS true)"), 2)] {
        let mut bench = bench(&config, &fib);
        bench.push("in", &[&packet, &ipv4([10, 1, 0, 1], 5)]);
        assert_eq!((bench.taken("out0").len(), bench.taken("host").len()), (ours, 2 - ours));
    }
}

#[test]
fn what_waits_for_its_neighbour_has_an_output_or_is_for_linux() {
    let fib = fib();
    let packet = ipv4([10, 12, 0, 1], 5);
    let mut without = bench(IPV4, &fib);
    without.push("in", &[&packet]);
    assert_eq!(without.taken("host"), std::slice::from_ref(&packet));
    let mut bench = bench(&format!("{IPV4} rt[6] -> resolve :: TestOutput;"), &fib);
    bench.push("in", &[&packet]);
    assert_eq!((bench.taken("host").len(), bench.taken("resolve")), (0, vec![packet]));
}

#[test]
fn flows_are_shared_out_and_each_stays_on_its_way() {
    let fib = fib();
    let mut bench = bench(IPV4, &fib);
    let packets: Vec<Vec<u8>> = (0..200).map(|source| ipv4_from(source, [10, 3, 0, 1])).collect();
    let once: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
    bench.push("in", &once);
    let first = (bench.taken("out0"), bench.taken("out1"));
    assert!(first.0.len() > 50 && first.1.len() > 50, "{} and {}", first.0.len(), first.1.len());
    bench.push("in", &once);
    assert_eq!((bench.taken("out0"), bench.taken("out1")), first);
}

#[test]
fn what_chooses_among_next_hops_may_change_and_is_linuxs_where_a_tunnel_is_opaque() {
    let fib = fib();
    let (shared, _writer) = tables(&fib, &Policy::default(), Asker::default());
    let paths = shared.get::<ForwardingTables>(ForwardingTables::KEY).unwrap().paths.clone();
    let mut bench = Bench::try_new(&registry(), IPV4, 32, &shared).unwrap();
    let packets: Vec<Vec<u8>> = (0..200).map(|port| ipv4([10, 3, 0, 1], port)).collect();
    let all: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
    bench.push("in", &all);
    assert_eq!(bench.taken("out0").len().min(bench.taken("out1").len()), 0);
    assert!(paths.set(IpVersion::V4, PathPolicy::new(IpVersion::V4, 1, 0)));
    bench.push("in", &all);
    let (a, b) = (bench.taken("out0").len(), bench.taken("out1").len());
    assert!(a > 50 && b > 50, "{a} and {b}");
    // PPTP, to two next hops and to one.
    paths.set(IpVersion::V4, PathPolicy::new(IpVersion::V4, 2, 0));
    let [shared_out, single] = [3, 1].map(|second| {
        let mut packet = ipv4([10, second, 0, 1], 0);
        packet[9] = 47;
        packet[20..24].copy_from_slice(&[0x30, 1, 0x88, 0x0b]);
        packet
    });
    bench.push("in", &[&shared_out, &single]);
    assert_eq!((bench.taken("host"), bench.taken("out0").len()), (vec![shared_out], 1));
}

#[test]
fn routers_in_a_row_choose_independently() {
    let fib = fib();
    let router = |seed| {
        let (shared, _) = tables(&fib, &Policy::default(), Asker::default());
        shared.get_or_make(Shared::FLOW_KEY, || Ok::<_, String>(FlowKey::from_seed(seed))).unwrap();
        Bench::try_new(&registry(), IPV4, 32, &shared).unwrap()
    };
    let (mut near, mut far) = (router(1), router(2));
    let packets: Vec<Vec<u8>> = (0..400).map(|source| ipv4_from(source, [10, 3, 0, 1])).collect();
    near.push("in", &packets.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let chosen = near.taken("out0");
    far.push("in", &chosen.iter().map(|frame| &frame[TO_A.len()..]).collect::<Vec<_>>());
    let (a, b) = (far.taken("out0").len(), far.taken("out1").len());
    assert!(a > 50 && b > 50, "{a} and {b}");
}

#[test]
fn the_flow_label_tells_flows_apart() {
    let fib = fib();
    let mut bench = bench(IPV6, &fib);
    bench.push("in", &[&ipv6(1, 0, 7)]);
    assert_eq!(bench.taken("out1"), [[&TO_C, &ipv6(1, 0, 7)[..]].concat()]);
    // What comes from nowhere goes nowhere.
    let mut unspecified = ipv6(1, 0, 7);
    unspecified[8..12].fill(0);
    bench.push("in", &[&unspecified]);
    assert_eq!(bench.drops("rt", "for this host"), 1);
    // Nor does what comes from an address of the link (RFC 4291, 2.5.6): Linux reports it.
    for (first, second, refused) in [(0xfe, 0x80, 1), (0xfe, 0xbf, 1), (0xfe, 0xc0, 0), (0xff, 0x80, 0)] {
        let before = bench.drops("rt", "for this host");
        let mut of_the_link = ipv6(1, 0, 7);
        of_the_link[8..10].copy_from_slice(&[first, second]);
        bench.push("in", &[&of_the_link]);
        assert_eq!(bench.drops("rt", "for this host") - before, refused, "{first:x}{second:x}");
    }
    bench.taken("out1");
    let packets: Vec<Vec<u8>> = (0..200).map(|label| ipv6(3, label, 7)).collect();
    bench.push("in", &packets.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let (a, b) = (bench.taken("out0").len(), bench.taken("out1").len());
    assert!(a > 50 && b > 50, "{a} and {b}");
}

#[test]
fn what_leads_to_no_output_is_counted() {
    let fib = fib();
    let mut bench = bench(
        "in :: TestInput -> MarkIPHeader(0) -> GetIPAddress(16) -> rt :: FIBLookup(eth1, eth2);
         rt[0] -> UnstripToMACHeader -> out0 :: TestOutput; rt[1] -> Discard;",
        &fib,
    );
    let packets: Vec<Vec<u8>> = [1, 4, 9, 6, 7, 1].map(|second| ipv4([10, second, 0, 1], 5)).into();
    bench.push("in", &packets.iter().map(Vec::as_slice).collect::<Vec<_>>());
    assert_eq!(bench.taken("out0").len(), 2);
    for reason in ["for this host", "no route", "prohibited", "unreachable"] {
        assert_eq!(bench.drops("rt", reason), 1, "{reason}");
    }
}

#[test]
fn what_is_not_forwarded_is_counted_by_reason() {
    let fib = fib();
    let config = format!("{IPV4} rt[6] -> Discard;");
    let mut bench = bench(&config, &fib);
    let packets: Vec<Vec<u8>> = [1, 4, 9, 6, 7, 1, 9].map(|second| ipv4([10, second, 0, 1], 5)).into();
    bench.push("in", &packets.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let stats = bench.stats("rt");
    assert!(stats.drops.is_empty(), "{stats:?}");
    let mut counted = stats.diverted;
    counted.sort_unstable();
    assert_eq!(counted, [("no route", 2), ("prohibited", 1), ("to this host", 1), ("unreachable", 1)]);
}

#[test]
fn routes_change_under_a_running_element() {
    let mut fib = fib();
    let mut bench = bench(IPV4, &fib);
    assert_eq!(bench.read("rt.lookup 10.1.2.3"), "via 02:00:00:00:00:0a port 0");
    fib.remove(MAIN, "10.1.0.0/16".parse().unwrap()).unwrap();
    fib.publish();
    assert_eq!(bench.read("rt.lookup 10.1.2.3"), "no route");
    bench.push("in", &[&ipv4([10, 1, 0, 1], 5)]);
    assert_eq!(bench.taken("none").len(), 1);
}

#[test]
fn now_and_then_a_packet_that_leaves_by_its_port_goes_to_whoever_redirects() {
    let fib = fib();
    let config = IPV4.replace("-> rt ::", "-> paint :: Paint(1) -> rt ::");
    let (back, on) = (ipv4([10, 1, 0, 1], 5), ipv4([10, 2, 0, 1], 5));
    // Nobody redirects: all go on.
    let mut plain = bench(&config, &fib);
    plain.push("in", &[&back, &on, &back]);
    assert_eq!((plain.taken("out0").len(), plain.read("rt.redirects").as_str()), (2, "0"));

    let config = format!("{config} rt[6] -> Discard; rt[7] -> redirect :: TestOutput;");
    let mut bench = bench(&config, &fib);
    bench.push("in", &[&back, &on, &back]);
    assert_eq!((bench.taken("redirect"), bench.taken("out0").len()), (vec![back.clone()], 1));
    bench.push("in", &[&back, &back]);
    assert_eq!((bench.taken("redirect").len(), bench.taken("out0").len()), (0, 2));
    // A second later, all of one kind, and a packet alone; then those that came by the other port.
    bench.advance_ns(1_000_000_000);
    bench.push("in", &[&back, &back]);
    assert_eq!((bench.taken("redirect").len(), bench.taken("out0").len()), (1, 1));
    bench.advance_ns(1_000_000_000);
    bench.push("in", &[&back]);
    assert_eq!((bench.taken("redirect").len(), bench.taken("out0").len()), (1, 0));
    bench.advance_ns(1_000_000_000);
    for paint in ["0", "2", "3", "7"] {
        bench.write("paint.color", paint).unwrap();
        bench.push("in", &[&back, &back]);
        bench.push("in", &[&ipv4([10, 4, 0, 1], 5)]);
    }
    assert_eq!((bench.taken("redirect").len(), bench.taken("out0").len()), (0, 8));
    assert_eq!(bench.read("rt.redirects"), "3");
}

#[test]
fn rules_choose_the_table() {
    let fib = fib();
    // What comes by the second port is prohibited, what comes from 10.9/16 is looked up, all else has no route.
    let from = AddressRange::of("10.9.0.0/16".parse().unwrap());
    let rules = vec![
        PolicyRule { input_ports: Some(vec![1]), ..PolicyRule::all(PolicyAction::End(Decision::Prohibit)) },
        PolicyRule { from: Some(from), ..PolicyRule::all(PolicyAction::Lookup(0)) },
    ];
    let policy = Policy { ipv4: Rules::new(rules), ..Policy::default() };
    let config = IPV4.replace("-> rt ::", "-> paint :: Paint(1) -> rt ::");
    let (mut bench, _policy) = bench_with_policy(&config, &fib, &policy).unwrap();
    let plain = ipv4([10, 1, 0, 1], 5);
    let mut chosen = plain.clone();
    chosen[12..16].copy_from_slice(&[10, 9, 0, 1]);
    bench.push("in", &[&plain, &chosen]);
    assert_eq!((bench.taken("out0").len(), bench.taken("none").len()), (1, 1));
    bench.write("paint.color", "2").unwrap();
    bench.push("in", &[&plain, &chosen]);
    assert_eq!(bench.taken("never").len(), 2);
}

/// The graph of `brickway run` between one input and two ports that look at data alone, as far as IPv4 goes.
const CROSSED: &str = "in :: TestInput -> HostEtherFilter(02:00:00:00:01:00) -> kind :: Classifier(12/0800, -) -> Paint(1)
        -> Strip(14) -> CheckIPHeader -> rt :: FIBLookup(eth1, eth2);
    kind[1] -> other :: TestOutput;
    rt[0] -> DropBroadcasts -> mtu0 :: CheckLength(100) -> ttl0 :: DecIPTTL -> UnstripToMACHeader -> out0 :: TestOutput(DATA true);
    rt[1] -> DropBroadcasts -> mtu1 :: CheckLength(60) -> ttl1 :: DecIPTTL -> UnstripToMACHeader -> out1 :: TestOutput(DATA true);
    late :: TestOutput; mtu0[1], ttl0[1], mtu1[1], ttl1[1] => late, late, late, late;
    rt[2] -> host :: TestOutput; rt[3] -> none :: TestOutput; rt[4] -> down :: TestOutput; rt[5] -> never :: TestOutput;";

/// A frame for it.
fn crossing_frame(destination: [u8; 4], ttl: u8, length: usize) -> Vec<u8> {
    let mut packet = ipv4(destination, 7);
    packet.resize(length, 3);
    packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    packet[8] = ttl;
    packet[12..16].copy_from_slice(&[192, 0, 2, 9]);
    let checksum = packet::checksum::ipv4_header_compute(&packet[..20]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    [&[2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 9, 8, 0][..], &packet].concat()
}

#[test]
fn packets_cross_to_the_ports_as_they_go_element_by_element() {
    let mut fib = fib();
    let policy = Policy::default();
    let (mut crossing, mut rules) = bench_with_policy(CROSSED, &fib, &policy).unwrap();
    let (mut plain, mut rules_of_plain) = bench_with_policy(CROSSED, &fib, &policy).unwrap();
    plain.graph().set_fused(false);
    let ends = ["out0", "out1", "late", "host", "none", "down", "never", "other"];
    // Of packets that go the same way all keep their order.
    let mut compare = |step: &str| {
        let to = |number: u8| crossing_frame([10, 1, 5, number], 64, 40);
        let frames = [
            to(1),
            crossing_frame([10, 2, 0, 1], 64, 60),
            crossing_frame([10, 2, 0, 1], 64, 61),
            crossing_frame([10, 3, 0, 1], 64, 40),
            to(2),
            crossing_frame([10, 4, 0, 1], 64, 40),
            crossing_frame([10, 1, 0, 1], 1, 40),
            crossing_frame([10, 1, 0, 1], 64, 101),
            crossing_frame([10, 99, 0, 1], 64, 40),
            to(3),
            // Padded, as short frames are.
            [to(4), vec![0; 9]].concat(),
        ];
        let frames: Vec<&[u8]> = frames.iter().map(|frame| &frame[..]).collect();
        let by_kind = [&frames[..1], &frames[4..5], &frames[9..11]].concat().repeat(2);
        // After a batch of which no packet could cross, the next few do not try.
        let first = std::iter::repeat_n(&by_kind[..], 20);
        for batch in first.chain([&frames[..], &by_kind, &frames[..2], &frames[1..4].repeat(3)]) {
            crossing.push("in", batch);
            plain.push("in", batch);
            for end in ends {
                let [mut crossed, mut expected] = [crossing.taken(end), plain.taken(end)];
                crossed.sort();
                expected.sort();
                assert_eq!(crossed, expected, "{step}: {end}");
            }
        }
        for element in ["rt", "ttl0", "ttl1"] {
            assert_eq!(crossing.stats(element).packets, plain.stats(element).packets, "{step}: {element}");
        }
    };
    compare("at first");
    let next_hop = Adjacency::new(1, &TO_B).unwrap();
    let b = fib.next_hops_mut().add(NextHop::Forward(next_hop)).unwrap();
    fib.replace(MAIN, "10.1.5.0/24".parse().unwrap(), b).unwrap();
    fib.publish();
    compare("with a route more");
    fib.next_hops_mut().set(b, NextHop::Forward(Adjacency::new(0, &TO_A).unwrap())).unwrap();
    fib.publish();
    compare("with another neighbour");
    let prohibited = Rules::new(vec![PolicyRule::all(PolicyAction::End(Decision::Prohibit))]);
    for rules in [&mut rules, &mut rules_of_plain] {
        rules.both().0.ipv4 = prohibited.clone();
        rules.publish();
    }
    compare("with rules");
}

#[test]
fn all_lookups_name_the_ports_of_the_tables() {
    let fib = fib();
    let error = |ports: &str| {
        let config = format!("Idle -> rt :: FIBLookup({ports}); rt[0] -> Discard; rt[1] -> Discard;");
        match try_bench(&config, &fib) {
            Ok(_) => panic!("{ports} is not a mistake"),
            Err(error) => error,
        }
    };
    assert!(error("eth2, eth1").contains("for the ports eth1, eth2"), "{}", error("eth2, eth1"));
    assert!(error("eth1, eth2, eth3").contains("3 ports and 2 outputs"), "{}", error("eth1, eth2, eth3"));
}
