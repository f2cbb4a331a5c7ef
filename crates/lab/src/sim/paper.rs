//! `brickway-lab sim --paper`: what RouteBricks measured and derived, beside the simulation of the same.

use std::process::ExitCode;

use anyhow::{Context, Result};
use fabric::{Mode, Shape};
use sim::{Costs, Flows, Matrix, Report, Scenario, Sizes};

use super::{late, run_all};
use crate::published::{Claim, say_claims};
use router::output::say_line;

const GIGABIT: u64 = 125_000_000;
const MS: u64 = 1_000_000;
/// Nodes of a mesh that is large enough for formulas in N.
const NODES: usize = 32;
/// Cycles of its server for a packet of 64 bytes: IP routing, and forwarding without (table 3), and the server's cycles a second.
const ROUTING: f64 = 1512.0 * 1.23;
const FORWARDING: f64 = 1033.0 * 1.19;
const CYCLES_PER_SECOND: f64 = 8.0 * 2.8e9;
/// Cycles to route a packet, where the paper computes the latency of its cluster (section 6.2).
pub(crate) const ROUTING_IN_RB4: f64 = 2425.0;
/// What counts as forwarding all.
const ALL: f64 = 0.995;

fn mesh(nodes: usize, rate: u64) -> Result<Scenario> {
    let shape: Shape = format!("mesh({nodes})").parse()?;
    Ok(Scenario::new(shape, rate))
}

/// The load of a large mesh, in bytes, with packets that are spread one by one.
fn large(mode: Mode, matrix: Matrix) -> Result<Scenario> {
    Ok(Scenario {
        mode,
        matrix,
        delta_ns: 0,
        flows: Flows::Poisson { per_pair: 8, sizes: Sizes::Fixed(1000) },
        link_rate: 10 * GIGABIT,
        warm_ns: 20 * MS,
        end_ns: 40 * MS,
        ..mesh(NODES, 10 * GIGABIT)?
    })
}

/// All traffic of one input for one output of four, as much as goes through.
fn one_output(mode: Mode, rate: u64, delta_ns: u64) -> Result<Scenario> {
    let mut rows = vec![vec![0.0; 4]; 4];
    rows[0][2] = 0.9;
    Ok(Scenario {
        mode,
        matrix: Matrix::Rows(rows),
        flows: Flows::HeavyTailed,
        delta_ns,
        // What it adds to a packet's way to pass a server, measured by the paper (section 6.2).
        link_delay_ns: 24_000,
        warm_ns: 333 * MS,
        // As many packets whatever the rate.
        end_ns: 333 * MS + 500 * MS * GIGABIT / rate,
        ..mesh(4, rate)?
    })
}

/// RB4 with packets of 64 bytes at so many packets a second and port, evenly for all other ports; to route one takes so many cycles.
fn rb4(routing: f64, packets: f64) -> Result<Scenario> {
    let rate = (packets * 64.0) as u64;
    let of_cycles = |cycles: f64| cycles / CYCLES_PER_SECOND * 1e9;
    Ok(Scenario {
        costs: Costs {
            input_ns: of_cycles(routing),
            relay_ns: of_cycles(FORWARDING),
            output_ns: of_cycles(FORWARDING),
            queue_ns: MS,
        },
        matrix: Matrix::Others,
        flows: Flows::Poisson { per_pair: 200, sizes: Sizes::Fixed(64) },
        link_rate: 10 * GIGABIT,
        warm_ns: 5 * MS,
        end_ns: 10 * MS,
        ..mesh(4, rate)?
    })
}

/// The largest rate of RB4, in Gb/s, at which all is delivered, and the share that goes directly then.
fn largest_of_rb4(routing: f64) -> Result<(f64, f64)> {
    // Between what it cannot miss and what it cannot reach.
    let [mut low, mut high] = [1e6, 20e6];
    let mut direct_share = 0.0;
    for _ in 0..10 {
        let middle = (low + high) / 2.0;
        let [report]: [Report; 1] =
            run_all(&[rb4(routing, middle)?])?.try_into().ok().context("a simulation ended early")?;
        if report.throughput().share() >= ALL {
            (low, direct_share) = (middle, report.direct_share);
        } else {
            high = middle;
        }
    }
    Ok((low * 4.0 * 64.0 * 8.0 / 1e9, direct_share))
}

/// How Direct VLB spreads what is beyond R/N.
const DIRECT: [(Mode, &str); 2] = [(Mode::DirectVlbOthers, "others"), (Mode::DirectVlb, "all")];

/// What is published, and what the simulation shows.
pub(crate) fn claims() -> Result<Vec<Claim>> {
    let reports =
        run_all(&[large(Mode::DirectVlb, Matrix::Uniform)?, large(Mode::ClassicVlb, Matrix::Next)?])?;
    let [even, worst]: [Report; 2] = reports.try_into().ok().context("a simulation ended early")?;
    let mut claims = vec![
        Claim::new("work of a node, even traffic, in R (mesh of 32)", 2.0, even.c().max),
        Claim::new("work of a node, worst case, in R (mesh of 32)", 3.0, worst.c().max),
        Claim::new("busiest link, worst case, in R/N (mesh of 32)", 2.0, worst.links.max * NODES as f64),
    ];
    for (routing, source) in [(ROUTING, "table 3"), (ROUTING_IN_RB4, "section 6.2")] {
        let (gbps, direct_share) = largest_of_rb4(routing)?;
        let of = format!("RB4, 64 bytes, {routing:.0} cycles to route ({source})");
        claims.push(Claim::new(format!("{of}, Gb/s"), 12.0, gbps));
        claims.push(Claim::new(format!("{of}, sent directly, %"), 100.0, direct_share * 100.0));
    }
    let mut scenarios = Vec::new();
    let mut whats = Vec::new();
    for (mode, over) in DIRECT {
        for rate in [10, 1] {
            for (flowlets, delta_ns, published) in [("flowlets", 100 * MS, 0.15), ("no flowlets", 0, 5.5)] {
                scenarios.push(one_output(mode, rate * GIGABIT, delta_ns)?);
                let what = format!("sequences reordered, {flowlets}, rest over {over}, % (R of {rate} Gb/s)");
                whats.push((what, published));
            }
        }
    }
    let reports = run_all(&scenarios)?;
    let shown = whats.into_iter().zip(&reports);
    claims.extend(shown.map(|((what, published), report)| Claim::new(what, published, late(report) * 100.0)));
    Ok(claims)
}

pub(super) fn paper(as_json: bool) -> Result<ExitCode> {
    say_claims("RouteBricks (SOSP 2009), sections 3.2 and 6.2", &claims()?, as_json);
    if !as_json {
        say_line!(
            "\nRB4: mesh of 4 of the server 'nehalem', traffic evenly for all other ports, none for the port's own node; {FORWARDING:.0} cycles to pass a packet\n\
             on or out. The paper expected 12.7 to 19.4 Gb/s of it, and explains why it measured less with the work of keeping flows in order: table 3\n\
             measures a server without that; what the cycles of section 6.2 contain, the paper does not say.\n\
             Reordering: one input sends 0.9 R to one output. What is beyond R/N goes over the other nodes, as the paper says (mode direct-vlb-others),\n\
             or over them and the direct link (direct-vlb). The paper's trace of the Internet is not ours: see `brickway-lab sim --help`, --flows heavy."
        );
    }
    Ok(ExitCode::SUCCESS)
}
