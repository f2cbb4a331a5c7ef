//! What theory says of Direct Valiant load balancing, held against the simulation: any admissible matrix gets through links
//! of 2R/N and nodes of 3R, and less than that is not enough.

#![allow(clippy::unwrap_used, reason = "a test")]

use fabric::Mode;
use sim::{Costs, Flows, Matrix, Report, Scenario, Sizes, simulate};

/// 10 Gb/s.
const RATE: u64 = 1_250_000_000;
const MS: u64 = 1_000_000;
const BYTES: u16 = 1000;

/// Many small flows, links of 2R/N and a twentieth more, nodes of `c` R.
fn scenario(shape: &str, c: f64, matrix: Matrix) -> Scenario {
    Scenario {
        matrix,
        costs: Costs::of_capacity(c * RATE as f64, BYTES.into()),
        flows: Flows::Poisson { per_pair: 200, sizes: Sizes::Fixed(BYTES) },
        flowlets: 1 << 12,
        // Buckets are full at first, and hold a millisecond's traffic; what that overloads takes its time to go.
        warm_ns: 20 * MS,
        end_ns: 40 * MS,
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

fn assert_delivered(name: &str, report: &Report, least: f64) {
    let share = report.throughput().share();
    let what = format!("{name}: {share:.4} {:?} links {:?} c {:?}", report.losses, report.links, report.c());
    assert!(share >= least, "{what}");
    assert!(report.links.max <= 1.001, "{what}");
}

/// Several permutations at once, each with a share (Birkhoff: every admissible matrix that uses all of R is one like this).
fn drawn(seed: u64, nodes: usize) -> Matrix {
    let mut state = seed;
    let mut draw = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    let mut rows = vec![vec![0.0; nodes]; nodes];
    let mut left = 1.0;
    while left > 0.0 {
        let share = (draw(100) as f64 / 150.0_f64).min(left);
        let share = if left - share < 0.1 { left } else { share };
        let mut outputs: Vec<usize> = (0..nodes).collect();
        (1..nodes).for_each(|last| outputs.swap(last, draw(last + 1)));
        rows.iter_mut().zip(outputs).for_each(|(row, output)| row[output] += share);
        left -= share;
    }
    Matrix::Rows(rows)
}

#[test]
fn named_matrices_get_through() {
    for (name, matrix) in Matrix::NAMES {
        let report = run(&scenario("mesh(8)", 3.0, matrix));
        assert_delivered(name, &report, 0.99);
    }
}

#[test]
fn any_admissible_matrix_gets_through() {
    for seed in 0..4 {
        let report = run(&scenario("mesh(6)", 3.0, drawn(seed, 6)));
        assert_delivered(&format!("matrix {seed}"), &report, 0.99);
    }
}

#[test]
fn a_star_carries_what_a_mesh_does() {
    let report = run(&scenario("star(6)", 3.0, Matrix::Next));
    assert_delivered("star", &report, 0.99);
}

#[test]
fn uniform_traffic_needs_nodes_of_2_r_and_all_to_the_next_more() {
    let uniform = run(&scenario("mesh(8)", 2.0, Matrix::Uniform));
    assert_delivered("uniform", &uniform, 0.99);
    assert!(uniform.direct_share > 0.98 && uniform.c().max < 2.0, "{uniform:?}");
    let next = run(&scenario("mesh(8)", 2.0, Matrix::Next));
    assert!(next.throughput().share() < 0.9 && next.losses.node_overloaded > 0, "{next:?}");
    // What is carried over an intermediate node is handled three times.
    let enough = run(&scenario("mesh(8)", 3.0, Matrix::Next));
    let c = 3.0 - enough.direct_share;
    assert!((enough.c().mean - c).abs() < 0.03, "{} {c}", enough.c().mean);
}

#[test]
fn links_of_less_than_2_r_over_n_are_too_few() {
    let mut few = scenario("mesh(8)", 3.0, Matrix::Next);
    (few.link_rate, few.link_queue_bytes) = (RATE * 3 / 2 / 8, 200_000);
    let report = run(&few);
    let share = report.throughput().share();
    assert!(share < 0.93 && report.losses.link_queue_full > 0, "{report:?}");
}

#[test]
fn without_the_second_phase_a_permutation_gets_the_direct_link_only() {
    let mut single = scenario("mesh(8)", 3.0, Matrix::Permutation);
    // A full queue delays what comes, and hides nothing.
    (single.mode, single.link_queue_bytes) = (Mode::SinglePath, 100_000);
    let report = run(&single);
    let direct = single.link_rate as f64 / RATE as f64;
    assert!((report.throughput().share() / direct - 1.0).abs() < 0.01, "{report:?}");
    assert_eq!((report.direct_share, report.reordering.late_packets), (1.0, 0));
    assert!(report.fairness > 0.999 && report.links.max > 0.999);
}

#[test]
fn classic_goes_over_others_always() {
    let mut classic = scenario("mesh(6)", 3.0, Matrix::Next);
    classic.mode = Mode::ClassicVlb;
    // The direct links are not used, so the others carry R/(N-1) of each phase.
    classic.link_rate = RATE * 21 / 20 / 2;
    // Every node works all of its time, and has nothing to spare for bursts.
    let report = run(&classic);
    assert_delivered("classic", &report, 0.98);
    assert_eq!(report.direct_share, 0.0);
    assert!((report.c().mean - 3.0).abs() < 0.03, "{:?}", report.c());
}

#[test]
fn one_way_keeps_the_order_and_flowlets_nearly() {
    let bursts = |mode, delta_ns| {
        let flows = Flows::HeavyTailed;
        let (warm_ns, end_ns) = (30 * MS, 60 * MS);
        let scenario = scenario("mesh(4)", 3.0, Matrix::Next);
        // A tenth of the rate, for a test's time.
        let (ports_rate, link_rate) = (scenario.ports_rate / 10, scenario.link_rate / 10);
        let costs = Costs::of_capacity(3.0 * ports_rate as f64, 790.0);
        let scenario = Scenario {
            mode,
            delta_ns,
            flows,
            warm_ns,
            end_ns,
            ports_rate,
            link_rate,
            load: 0.9,
            costs,
            ..scenario
        };
        run(&scenario)
    };
    let single = bursts(Mode::SinglePath, 0);
    assert!(single.reordering.packets > 2000 && single.reordering.late_packets == 0, "{single:?}");
    let (with, without) = (bursts(Mode::DirectVlb, 100 * MS), bursts(Mode::DirectVlb, 0));
    let share = |report: &Report| report.reordering.sequences as f64 / report.reordering.packets as f64;
    assert!(share(&with) * 5.0 < share(&without), "{} {}", share(&with), share(&without));
}

#[test]
fn the_same_seed_gives_the_same_report() {
    for flows in [Flows::Poisson { per_pair: 3, sizes: Sizes::Imix }, Flows::HeavyTailed] {
        let base = Scenario { flows, end_ns: 24 * MS, ..scenario("mesh(4)", 3.0, Matrix::Permutation) };
        let report = run(&base);
        assert_eq!(report, run(&base));
        assert_ne!(report, run(&Scenario { seed: 2, ..base }));
    }
}

#[test]
fn all_shapes_carry_their_traffic() {
    for shape in [
        "mesh(1)",
        "mesh(2)",
        "mesh(3, 2)",
        "star(4, 2)",
        "torus(3, 3)",
        "fly(2, 3)",
        "compact(3)",
        "groups(2)",
        "cube(3)",
        "debruijn(2, 3)",
    ] {
        let report = run(&Scenario { load: 0.5, ..scenario(shape, 20.0, Matrix::Uniform) });
        assert_delivered(shape, &report, 0.48 / 0.5);
        assert_eq!(report.losses.total(), 0, "{shape}: {:?}", report.losses);
        assert!(report.latency.p50 > 0.0 && report.latency.p50 <= report.latency.p99);
    }
}
