//! CheckReversePath and CheckReversePath6 over the tables of the tests of FIBLookup.

use std::net::{Ipv4Addr, Ipv6Addr};

use fib::policy::{AddressRange, PolicyAction, PolicyRule};
use fib::{Adjacency, Decision, Fib, MAIN, NextHop, Policy, Rules};
use graph::testing::Bench;
use packet::Annotations;

use super::fib_lookup_tests::{bench_with_policy, fib as fib_of_forwarding, try_bench};

const TO_OTHERS: &str = "10.1.0.9";
const TO_A_GROUP: &str = "224.0.0.5";
const TO_OTHERS_6: &str = "2001:db8:1::9";
const TO_A_GROUP_6: &str = "ff02::1";

/// What happens to a packet.
const OUT: &str = "out";
const LINUX: &str = "linux";
const NO_ROUTE: &str = "no route back";
const OTHER: &str = "another way back";
const OWN: &str = "from our own address";

/// Beside the routes of forwarding: a group of which one member is to be resolved, and what the mirror of Linux always has.
fn fib() -> Fib<Adjacency> {
    let mut fib = fib_of_forwarding();
    let next_hops = fib.next_hops_mut();
    let a = next_hops.add(NextHop::Forward(Adjacency::new(0, &[0; 14]).unwrap())).unwrap();
    let punt = next_hops.add(NextHop::Punt).unwrap();
    let half = next_hops.add_group(&[(a, 1), (punt, 1)]).unwrap();
    let down = next_hops.add(NextHop::Unreachable).unwrap();
    let gone = next_hops.add(NextHop::Blackhole).unwrap();
    let none_up = next_hops.add_group(&[(down, 1), (gone, 1)]).unwrap();
    let own = next_hops.add(NextHop::Local).unwrap();
    let broadcast = next_hops.add(NextHop::Broadcast).unwrap();
    let blackhole = next_hops.add(NextHop::Blackhole).unwrap();
    for (prefix, number) in [
        ("10.10.0.0/16", half),
        ("10.11.0.0/16", none_up),
        ("10.5.255.255/32", broadcast),
        ("0.0.0.0/8", blackhole),
        ("127.0.0.0/8", blackhole),
        ("224.0.0.0/4", punt),
        ("2001:db8:4::/48", own),
        ("2001:db8:5::/48", punt),
        ("fe80::/10", punt),
        ("fe80::4/128", own),
        ("ff00::/8", punt),
        ("::1/128", blackhole),
    ] {
        fib.insert(MAIN, prefix.parse().unwrap(), number).unwrap();
    }
    fib.publish();
    fib
}

fn config(class: &str, mode: &str) -> String {
    let (destination, six) = if class.ends_with('6') { (24, "6") } else { (16, "") };
    format!(
        "in :: TestInput -> GetIP{six}Address({destination}) -> paint :: Paint(1)
            -> source :: {class}(eth1, eth2, MODE {mode}) -> out :: TestOutput; source[1] -> linux :: TestOutput;"
    )
}

fn packet(source: &str, destination: &str) -> Vec<u8> {
    if let (Ok(source), Ok(destination)) = (source.parse::<Ipv4Addr>(), destination.parse::<Ipv4Addr>()) {
        let header = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0];
        return [&header[..], &source.octets(), &destination.octets()].concat();
    }
    let [source, destination] = [source, destination].map(|text| text.parse::<Ipv6Addr>().unwrap().octets());
    [&[0x60, 0, 0, 0, 0, 0, 17, 64][..], &source, &destination].concat()
}

/// What happens to one packet, of those that end in as many ways as packets can.
fn fate(bench: &mut Bench, packet: &[u8]) -> &'static str {
    let drops = |bench: &mut Bench| [NO_ROUTE, OTHER, OWN].map(|reason| bench.drops("source", reason));
    let before = drops(bench);
    bench.push("in", &[packet]);
    let after = drops(bench);
    let mut fates = Vec::new();
    for output in [OUT, LINUX] {
        fates.extend(bench.taken(output).iter().map(|bytes| {
            assert_eq!(bytes, packet);
            output
        }));
    }
    for (reason, (before, after)) in [NO_ROUTE, OTHER, OWN].into_iter().zip(before.into_iter().zip(after)) {
        fates.extend((before..after).map(|_| reason));
    }
    assert_eq!(fates.len(), 1, "{fates:?}");
    fates[0]
}

#[test]
fn sources_that_are_the_hosts_are_for_linux_to_judge() {
    let fib = fib();
    let mut bench = try_bench(&config("CheckReversePath", "host"), &fib).unwrap();
    for (source, expected) in [
        ("10.1.0.1", OUT),
        // Without a route, and with one that drops.
        ("172.16.0.1", OUT),
        ("10.11.0.1", OUT),
        ("10.5.255.255", LINUX),
        // Half of a group.
        ("10.10.0.1", LINUX),
        ("224.0.0.1", LINUX),
    ] {
        assert_eq!(fate(&mut bench, &packet(source, "10.2.0.1")), expected, "{source}");
    }
}

/// Source; destination; what happens in loose mode, in strict mode to what came by port 0, by port 1, by none.
type Case = (&'static str, &'static str, [&'static str; 4]);

fn check(class: &str, cases: &[Case]) {
    let fib = fib();
    let [mut loose, mut strict] =
        ["loose", "strict"].map(|mode| try_bench(&config(class, mode), &fib).unwrap());
    let mut batch = Vec::new();
    for (source, destination, expected) in cases {
        let packet = packet(source, destination);
        let found = [0, 1, 2, 3].map(|column| {
            let bench = if column == 0 { &mut loose } else { &mut strict };
            bench.write("paint.color", ["2", "1", "2", "0"][column]).unwrap();
            fate(bench, &packet)
        });
        assert_eq!(found, *expected, "{source} to {destination}");
        batch.push((packet, expected[2]));
    }
    // The same side by side in batches.
    strict.write("paint.color", "2").unwrap();
    let packets: Vec<&[u8]> = batch.iter().cycle().take(100).map(|(packet, _)| packet.as_slice()).collect();
    strict.push("in", &packets);
    for output in [OUT, LINUX] {
        let those = batch.iter().cycle().take(100).filter(|(_, fate)| *fate == output);
        assert_eq!(strict.taken(output), those.map(|(packet, _)| packet.clone()).collect::<Vec<_>>());
    }
}

#[test]
fn a_source_is_believed_by_its_route() {
    check(
        "CheckReversePath",
        &[
            ("10.1.0.1", TO_OTHERS, [OUT, OUT, OTHER, OTHER]),
            ("10.2.0.1", TO_OTHERS, [OUT, OTHER, OUT, OTHER]),
            ("10.3.0.1", TO_OTHERS, [OUT, OUT, OUT, OTHER]),
            ("10.4.0.1", TO_OTHERS, [OWN; 4]),
            ("10.4.0.1", TO_A_GROUP, [LINUX; 4]),
            ("10.5.0.1", TO_OTHERS, [OUT, LINUX, LINUX, LINUX]),
            ("10.5.255.255", TO_OTHERS, [NO_ROUTE; 4]),
            ("10.6.0.1", TO_OTHERS, [NO_ROUTE; 4]),
            ("10.7.0.1", TO_OTHERS, [NO_ROUTE; 4]),
            ("10.8.0.1", TO_OTHERS, [NO_ROUTE; 4]),
            ("10.9.0.1", TO_OTHERS, [NO_ROUTE; 4]),
            ("10.10.0.1", TO_OTHERS, [OUT, OUT, LINUX, LINUX]),
            ("10.11.0.1", TO_OTHERS, [NO_ROUTE; 4]),
            // Its neighbour is not resolved, but its link is known.
            ("10.12.0.1", TO_OTHERS, [OUT, OUT, OTHER, OTHER]),
            ("0.0.0.0", "255.255.255.255", [LINUX; 4]),
            ("0.1.2.3", TO_OTHERS, [NO_ROUTE; 4]),
            ("127.0.0.1", TO_OTHERS, [NO_ROUTE; 4]),
            ("224.0.0.1", TO_OTHERS, [NO_ROUTE; 4]),
        ],
    );
}

#[test]
fn a_source_is_believed_by_its_ipv6_route() {
    check(
        "CheckReversePath6",
        &[
            ("2001:db8:1::1", TO_OTHERS_6, [OUT, OTHER, OUT, OTHER]),
            ("2001:db8:3::1", TO_OTHERS_6, [OUT, OUT, OUT, OTHER]),
            ("2001:db8:4::1", TO_OTHERS_6, [OWN; 4]),
            ("2001:db8:4::1", TO_A_GROUP_6, [LINUX; 4]),
            ("2001:db8:5::1", TO_OTHERS_6, [OUT, LINUX, LINUX, LINUX]),
            ("2001:db8:9::1", TO_OTHERS_6, [NO_ROUTE; 4]),
            ("2001:db8:12::1", TO_OTHERS_6, [OUT, OUT, OTHER, OTHER]),
            ("::", TO_A_GROUP_6, [LINUX; 4]),
            ("::1", TO_OTHERS_6, [NO_ROUTE; 4]),
            ("fe80::1", TO_OTHERS_6, [LINUX; 4]),
            ("fe80::4", TO_A_GROUP_6, [LINUX; 4]),
            ("ff02::1", TO_OTHERS_6, [NO_ROUTE; 4]),
        ],
    );
}

#[test]
fn each_port_can_have_a_mode() {
    let fib = fib();
    let mut bench = try_bench(&config("CheckReversePath", "\"off strict\""), &fib).unwrap();
    for (paint, expected) in [("1", OUT), ("2", OTHER), ("0", OTHER), ("3", OTHER)] {
        bench.write("paint.color", paint).unwrap();
        assert_eq!(fate(&mut bench, &packet("10.1.0.1", TO_OTHERS)), expected, "{paint}");
    }
    bench.write("paint.color", "1").unwrap();
    assert_eq!(fate(&mut bench, &packet("10.9.0.1", TO_OTHERS)), OUT);
    let error = try_bench(&config("CheckReversePath", "\"off strict loose\""), &fib).err().unwrap();
    assert!(error.contains("3 modes for 2 ports"), "{error}");
}

#[test]
fn what_linux_would_decide_is_dropped_without_it() {
    let fib = fib();
    let config = config("CheckReversePath", "strict").replace("source[1] -> linux :: TestOutput;", "");
    let mut bench = try_bench(&config, &fib).unwrap();
    bench.push("in", &[&packet("10.5.0.1", TO_OTHERS), &packet("10.1.0.1", TO_OTHERS)]);
    assert_eq!(bench.taken(OUT).len(), 1);
    assert_eq!(bench.drops("source", "for Linux to decide"), 1);
}

#[test]
fn sources_follow_the_routes() {
    let mut fib = fib();
    let mut bench = try_bench(&config("CheckReversePath", "strict"), &fib).unwrap();
    let packet = packet("10.1.0.1", TO_OTHERS);
    assert_eq!(fate(&mut bench, &packet), OUT);
    fib.remove(MAIN, "10.1.0.0/16".parse().unwrap()).unwrap();
    fib.publish();
    assert_eq!(fate(&mut bench, &packet), NO_ROUTE);
}

#[test]
fn rules_choose_the_table_of_an_answer() {
    let fib = fib();
    let range = |prefix: &str| Some(AddressRange::of(prefix.parse().unwrap()));
    let rules = vec![
        // By which port an answer comes in nobody knows.
        PolicyRule {
            input_ports: Some(vec![0]),
            to: range("10.12.0.0/16"),
            ..PolicyRule::all(PolicyAction::End(Decision::Blackhole))
        },
        PolicyRule { to: range("10.2.0.0/16"), ..PolicyRule::all(PolicyAction::End(Decision::Prohibit)) },
        PolicyRule { to: range("10.3.0.0/16"), ..PolicyRule::all(PolicyAction::End(Decision::Punt)) },
        PolicyRule { from: range("10.1.0.0/16"), ..PolicyRule::all(PolicyAction::Lookup(0)) },
    ];
    let policy = Policy { ipv4: Rules::new(rules), ..Policy::default() };
    for (mode, other) in [("loose", OUT), ("strict", OTHER)] {
        let (mut bench, _policy) =
            bench_with_policy(&config("CheckReversePath", mode), &fib, &policy).unwrap();
        let mut fate_of = |source, destination| fate(&mut bench, &packet(source, destination));
        assert_eq!(fate_of("10.1.0.1", TO_OTHERS), OUT);
        assert_eq!(fate_of("10.1.0.1", "10.2.0.1"), NO_ROUTE);
        assert_eq!(fate_of("10.2.0.1", TO_OTHERS), NO_ROUTE);
        assert_eq!(fate_of("10.3.0.1", TO_OTHERS), LINUX);
        assert_eq!(fate_of("10.12.0.1", TO_OTHERS), LINUX);
        assert_eq!(fate_of("10.4.0.1", TO_OTHERS), OWN);
        assert_eq!(fate_of("0.0.0.0", TO_OTHERS), LINUX);
        bench.write("paint.color", "2").unwrap();
        assert_eq!(fate(&mut bench, &packet("10.1.0.1", TO_OTHERS)), other);
    }
}

#[test]
fn mistakes_in_the_arguments_are_named() {
    let fib = fib();
    let error = |arguments: &str| {
        let config = format!("Idle -> CheckReversePath({arguments}) -> Discard;");
        match try_bench(&config, &fib) {
            Ok(_) => panic!("{arguments} is not a mistake"),
            Err(error) => error,
        }
    };
    assert!(error("eth2, eth1").contains("for the ports eth1, eth2"), "{}", error("eth2, eth1"));
    assert!(error("MODE loose").contains("no ports"), "{}", error("MODE loose"));
    let mode = "eth1, eth2, MODE feasible";
    assert!(
        error(mode).contains("expected off, host, loose or strict, once or for each port, got 'feasible'"),
        "{}",
        error(mode)
    );
}

/// ESP says who sent a packet, as Linux has it, but nobody else has our addresses.
#[test]
fn packets_that_were_in_esp_need_no_way_back() {
    let mut bench = try_bench(&config("CheckReversePath", "strict"), &fib()).unwrap();
    let sources = ["10.2.0.1", "10.250.0.1", "10.4.0.1"];
    let packets: Vec<_> = sources
        .iter()
        .map(|source| {
            let mut packet = bench.packet(&packet(source, TO_OTHERS));
            packet.set_network_header(0);
            packet.annotations_mut().set_u32_at(Annotations::ASSOCIATION, 1);
            packet
        })
        .collect();
    bench.push_packets("in", packets);
    assert_eq!(
        bench.taken(OUT),
        sources[..2].iter().map(|source| packet(source, TO_OTHERS)).collect::<Vec<_>>()
    );
    assert_eq!(bench.drops("source", OWN), 1);
}
