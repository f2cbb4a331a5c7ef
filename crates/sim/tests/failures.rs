//! What breaks is gone round: with the nodes' own hellos, every 10 ms, three of which must be missed.

#![allow(clippy::unwrap_used, reason = "a test")]

use fabric::{Mode, NodeId, Topology};
use sim::{Broken, Costs, Failure, Flows, Matrix, Report, Scenario, Sizes, Ways, simulate};

/// 100 Mb/s.
const RATE: u64 = 12_500_000;
const MS: u64 = 1_000_000;

fn node(number: u16) -> NodeId {
    NodeId::new(number).unwrap()
}

/// Links with room enough for what has lost its own.
fn scenario(shape: &str, failures: Vec<Failure>) -> Scenario {
    Scenario {
        link_rate: RATE,
        matrix: Matrix::Uniform,
        costs: Costs::of_capacity(10.0 * RATE as f64, 500.0),
        flows: Flows::Poisson { per_pair: 20, sizes: Sizes::Fixed(500) },
        flowlets: 1 << 10,
        load: 0.6,
        failures,
        warm_ns: 10 * MS,
        end_ns: 250 * MS,
        ..Scenario::new(shape.parse().unwrap(), RATE)
    }
}

fn run(scenario: &Scenario) -> Report {
    scenario.check().unwrap();
    let report = simulate(scenario, |_| ());
    let packets = report.packets;
    assert_eq!(packets.entered, packets.delivered + packets.dropped + packets.in_flight, "{packets:?}");
    report
}

fn dead(number: u16, from_ms: u64, until_ms: u64) -> Failure {
    Failure { broken: Broken::Node(node(number)), from_ns: from_ms * MS, until_ns: until_ms * MS }
}

#[test]
fn a_dead_node_costs_others_little_and_comes_back() {
    for shape in ["mesh(4)", "star(4)"] {
        let report = run(&scenario(shape, vec![dead(3, 50, 150)]));
        let [recovery] = report.recoveries[..] else { panic!("{report:?}") };
        // All that comes in by its port, and for it, is lost: 7 of 16 parts of 100 ms of 240.
        let lost = report.losses.node_dead + report.losses.unreachable;
        let own = recovery.own as f64 / (0.1 * 4.0 * 0.6 * RATE as f64 / 500.0);
        assert!((own - 7.0 / 16.0).abs() < 0.1, "{shape}: {own} {report:?}");
        assert!(recovery.took_ns() <= 50 * MS, "{shape}: {recovery:?}");
        assert_eq!(lost, recovery.own + recovery.lost + recovery.lost_on_return, "{shape}: {recovery:?}");
        assert_eq!(report.losses.total(), lost, "{shape}");
    }
}

#[test]
fn a_dead_node_costs_those_that_went_over_it_no_more_than_50_ms() {
    // All traffic to the next node, so that much goes over others.
    let scenario = Scenario { matrix: Matrix::Next, ..scenario("mesh(5)", vec![dead(3, 50, 1000)]) };
    let report = run(&Scenario { link_rate: RATE / 2, ..scenario });
    let [recovery] = report.recoveries[..] else { panic!("{report:?}") };
    assert!(recovery.lost > 0 && recovery.took_ns() <= 50 * MS, "{recovery:?}");
    assert!(recovery.took_ns() > 10 * MS, "hellos are missed first: {recovery:?}");
}

#[test]
fn a_cut_link_is_gone_round_whichever_way_it_is_cut() {
    for ways in [Ways::Both, Ways::Out, Ways::In] {
        let broken = Broken::Link { node: node(1), link: 2, ways };
        let report =
            run(&scenario("mesh(4)", vec![Failure { broken, from_ns: 50 * MS, until_ns: 200 * MS }]));
        let [recovery] = report.recoveries[..] else { panic!("{report:?}") };
        assert!(recovery.lost > 0 && recovery.own == 0, "{ways:?}: {recovery:?}");
        assert!(recovery.took_ns() <= 50 * MS, "{ways:?}: {recovery:?}");
        assert_eq!(report.losses.total(), recovery.lost, "{ways:?}");
    }
}

#[test]
fn a_dead_relay_of_a_fly_is_gone_round() {
    let report = run(&Scenario { load: 0.3, ..scenario("fly(2, 2)", vec![dead(4, 60, 1000)]) });
    let [recovery] = report.recoveries[..] else { panic!("{report:?}") };
    // Half of the terminals have their only link to it: they are cut off, and none knows a way.
    assert!(recovery.lost > 0 && report.losses.unreachable > 0, "{report:?}");
    let report = run(&Scenario { load: 0.3, ..scenario("fly(2, 3)", vec![dead(13, 60, 1000)]) });
    let [recovery] = report.recoveries[..] else { panic!("{report:?}") };
    assert!(recovery.lost > 0, "{report:?}");
    // Reports take more hellos through relays; those before the dead one know first, and have no other way.
    assert!(recovery.took_ns() <= 110 * MS, "{recovery:?}");
}

#[test]
fn a_single_way_is_not_gone_round() {
    let topology = Topology::new("mesh(4)".parse().unwrap());
    let broken = Broken::between(&topology, node(0), node(2)).unwrap();
    assert_eq!(broken, Broken::Link { node: node(0), link: 1, ways: Ways::Both });
    let failure = Failure { broken, from_ns: 50 * MS, until_ns: 1000 * MS };
    let report = run(&Scenario { mode: Mode::SinglePath, ..scenario("mesh(4)", vec![failure]) });
    assert!(report.recoveries[0].took_ns() > 190 * MS && report.losses.unreachable > 0, "{report:?}");
}

#[test]
fn without_failures_in_time_nothing_is_lost() {
    for shape in [
        "mesh(4)",
        "mesh(3, 2)",
        "star(3, 2)",
        "torus(3, 3)",
        "fly(2, 2)",
        "compact(3)",
        "groups(2)",
        "cube(3)",
        "debruijn(2, 3)",
    ] {
        let report = run(&Scenario { load: 0.3, ..scenario(shape, vec![dead(1, 1000, 2000)]) });
        assert_eq!((report.losses.total(), report.recoveries[0].lost), (0, 0), "{shape}: {report:?}");
    }
}

#[test]
fn what_cannot_fail_is_named() {
    let error = |failure| scenario("mesh(4)", vec![failure]).check().unwrap_err().to_string();
    assert_eq!(error(dead(4, 1, 2)), "failure 0: mesh(4) has no node 4");
    assert_eq!(error(dead(1, 2, 2)), "failure 0: it ends at 2000000 ns and begins at 2000000");
    let broken = Broken::Link { node: node(0), link: 3, ways: Ways::Both };
    let failure = Failure { broken, from_ns: 0, until_ns: 1 };
    assert_eq!(error(failure), "failure 0: node 0 has 3 links, none with number 3");
}
