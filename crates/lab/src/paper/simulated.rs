//! Packet by packet, in simulated time.

use anyhow::{Context, Result};
use fabric::Mode;
use sim::{Costs, Flows, Matrix, Scenario, Sizes};

use super::Setting;
use super::report::Report;
use super::shape::Curve;
use crate::plot::{Chart, Line};
use crate::sim::{late, run_all};

const GIGABIT: u64 = 125_000_000;
const MS: u64 = 1_000_000;

/// "Can software routers scale?", section 3.2: the longer a flow keeps its intermediate node, the better the order and the worse the balance.
pub(super) fn miniflows(_: &Setting, report: &mut Report<'_>) -> Result<()> {
    // Milliseconds that a flow may pause and still keep its way.
    let taus = [0, 1, 3, 10, 30, 100];
    let scenario = |tau: u64| -> Result<Scenario> {
        Ok(Scenario {
            matrix: Matrix::Next,
            flows: Flows::HeavyTailed,
            delta_ns: tau * MS,
            link_delay_ns: 24_000,
            // Room for all, so that nothing but tau moves a flow.
            link_rate: 4 * GIGABIT,
            warm_ns: 200 * MS,
            end_ns: 400 * MS,
            mode: Mode::ClassicVlb,
            ..Scenario::new("mesh(8)".parse()?, GIGABIT)
        })
    };
    let reports = run_all(&taus.map(scenario).into_iter().collect::<Result<Vec<_>>>()?)?;
    let over_taus = |of: &dyn Fn(&sim::Report) -> f64| -> Curve {
        taus.iter().zip(&reports).map(|(&tau, report)| (tau as f64, of(report))).collect()
    };
    let order = over_taus(&|report| late(report) * 100.0);
    let balance = over_taus(&|report| report.links.max / report.links.mean);
    report.judge("order-better", std::slice::from_ref(&order))?;
    report.judge("balance-worse", std::slice::from_ref(&balance))?;
    let chart = |title: &str, up: &str, name: &str, curve: &Curve| Chart {
        title: title.to_owned(),
        up: up.to_owned(),
        over: "tau, ms".to_owned(),
        places: taus.map(|tau| tau.to_string()).to_vec(),
        lines: vec![Line::over_places(name, curve.iter().map(|point| Some(point.1)))],
        ..Chart::default()
    };
    report.chart(chart("Sequences of a flow overtaken", "% of packets", "overtaken", &order), &[])?;
    report.chart(chart("Busiest link over the mean link", "ratio", "busiest", &balance), &[])
}

/// RouteBricks, section 3.2: what nodes work and links carry in a large mesh.
pub(super) fn work(_: &Setting, report: &mut Report<'_>) -> Result<()> {
    const NODES: usize = 32;
    let scenario = |mode, matrix| -> Result<Scenario> {
        Ok(Scenario {
            mode,
            matrix,
            delta_ns: 0,
            flows: Flows::Poisson { per_pair: 8, sizes: Sizes::Fixed(1000) },
            link_rate: 10 * GIGABIT,
            warm_ns: 20 * MS,
            end_ns: 40 * MS,
            ..Scenario::new(format!("mesh({NODES})").parse()?, 10 * GIGABIT)
        })
    };
    let scenarios =
        [scenario(Mode::DirectVlbOthers, Matrix::Uniform)?, scenario(Mode::ClassicVlb, Matrix::Next)?];
    let [even, worst]: [sim::Report; 2] =
        run_all(&scenarios)?.try_into().ok().context("a simulation ended early")?;
    report.compare("work-even", even.c().max)?;
    report.compare("work-worst", worst.c().max)?;
    report.compare("link-worst", worst.links.max * NODES as f64)
}

/// RouteBricks, section 6.2: what its cluster of four forwards.
pub(super) fn rb4(_: &Setting, report: &mut Report<'_>) -> Result<()> {
    let cycles =
        |report: &mut Report<'_>, ipp, cpi| Ok::<_, anyhow::Error>(report.input(ipp)? * report.input(cpi)?);
    let by_table = cycles(report, "ipp-routing", "cpi-routing")?;
    let forwarding = cycles(report, "ipp-forwarding", "cpi-forwarding")?;
    let by_prose = report.input("cycles-routing-prose")?;
    let cores = 8.0 * report.input("clock-ghz")?;
    // Two times each packet is handled, and 512 bits it has.
    let expected = |cycles: f64| 4.0 * cores / cycles * 512.0 / 2.0;
    report.compare("rb4-least", expected(by_table))?;
    report.compare("rb4-most", expected(forwarding))?;
    for (routing, rate, direct) in
        [(by_table, "rb4-table", "direct-table"), (by_prose, "rb4-prose", "direct-prose")]
    {
        let (gbps, direct_share) = largest_of_rb4(routing / cores, forwarding / cores)?;
        report.compare(rate, gbps)?;
        report.compare(direct, direct_share * 100.0)?;
    }
    report.remark(format!(
        "A mesh of four of its servers, traffic evenly for all other ports and none for the own one; a packet takes the processors {forwarding:.0} cycles to pass on \
         or out. The paper explains what it measured with the work of keeping flows in order, which table 3 does not have; what the 2,425 cycles of section 6.2 contain it does not say."
    ));
    Ok(())
}

/// The largest rate of RB4 in Gb/s at which all is delivered, and the share that goes directly then. A packet takes a server so many nanoseconds.
fn largest_of_rb4(routing_ns: f64, forwarding_ns: f64) -> Result<(f64, f64)> {
    let scenario = |packets: f64| -> Result<Scenario> {
        Ok(Scenario {
            costs: Costs {
                input_ns: routing_ns,
                relay_ns: forwarding_ns,
                output_ns: forwarding_ns,
                queue_ns: MS,
            },
            matrix: Matrix::Others,
            mode: Mode::DirectVlbOthers,
            flows: Flows::Poisson { per_pair: 200, sizes: Sizes::Fixed(64) },
            link_rate: 10 * GIGABIT,
            warm_ns: 5 * MS,
            end_ns: 10 * MS,
            ..Scenario::new("mesh(4)".parse()?, (packets * 64.0) as u64)
        })
    };
    // Between what it cannot miss and what it cannot reach.
    let [mut low, mut high] = [1e6, 20e6];
    let mut direct_share = 0.0;
    for _ in 0..10 {
        let middle = (low + high) / 2.0;
        let [report]: [sim::Report; 1] =
            run_all(&[scenario(middle)?])?.try_into().ok().context("a simulation ended early")?;
        // What counts as all.
        if report.throughput().share() >= 0.995 {
            (low, direct_share) = (middle, report.direct_share);
        } else {
            high = middle;
        }
    }
    Ok((low * 4.0 * 64.0 * 8.0 / 1e9, direct_share))
}

/// RouteBricks, section 6.2: how many sequences of a flow are overtaken, with flowlets and without, by both ways to spread what is beyond R/N.
pub(super) fn reordering(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let deltas: &[u64] = if setting.is_quick { &[0, 3, 100] } else { &[0, 1, 3, 10, 30, 100] };
    let modes = [(Mode::DirectVlbOthers, "over the other nodes"), (Mode::DirectVlb, "over all nodes")];
    let mut scenarios = Vec::new();
    for (mode, _) in modes {
        for &delta in deltas {
            // All traffic of one input for one output of four.
            let mut rows = vec![vec![0.0; 4]; 4];
            rows[0][2] = 0.9;
            scenarios.push(Scenario {
                mode,
                matrix: Matrix::Rows(rows),
                flows: Flows::HeavyTailed,
                delta_ns: delta * MS,
                // What a server adds to a packet's way, by the paper.
                link_delay_ns: (report.input("server-us")? * 1e3) as u64,
                warm_ns: 333 * MS,
                // Longer than any delta.
                end_ns: 483 * MS,
                ..Scenario::new("mesh(4)".parse()?, 10 * GIGABIT)
            });
        }
    }
    let reports = run_all(&scenarios)?;
    let of_modes: Vec<Curve> = reports
        .chunks(deltas.len())
        .map(|reports| {
            deltas.iter().zip(reports).map(|(&delta, report)| (delta as f64, late(report) * 100.0)).collect()
        })
        .collect();
    for (keys, curve) in
        [["flowlets-others", "packets-others"], ["flowlets-all", "packets-all"]].iter().zip(&of_modes)
    {
        report.compare(keys[0], curve[curve.len() - 1].1)?;
        report.compare(keys[1], curve[0].1)?;
    }
    report.judge("delta-helps", &of_modes[..1])?;
    let lines = modes.iter().zip(&of_modes);
    report.chart(
        Chart {
            title: "Sequences of a flow overtaken".to_owned(),
            up: "% of packets".to_owned(),
            over: "delta, ms".to_owned(),
            places: deltas.iter().map(u64::to_string).collect(),
            lines: lines
                .map(|((_, name), curve)| Line::over_places(*name, curve.iter().map(|point| Some(point.1))))
                .collect(),
            ..Chart::default()
        },
        &[if setting.is_quick { "reordering-quick" } else { "reordering" }],
    )?;
    report.remark("One input sends 0.9 R to one output, R being 10 Gb/s. The paper's trace of the Internet is not public: flows here have lengths and pauses as on the Internet.");
    Ok(())
}

/// "Can software routers scale?", table 1: seven networks.
pub(super) fn networks(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    report.remark(
        "The paper gives formulas and no details. Ways through the networks are followed one by one and added up. The work of a node is counted by the rule \
         under which the paper's column comes out: a stage that leaves a packet where it is counts in networks of stages, and tori and de Bruijn graphs have none. \
         What a node really sends stands below, by ways and simulated.",
    );
    for ports in [16, 64, 256] {
        for network in sim::plan::networks(ports) {
            let (published, Some(derived)) = (network.published, network.derived()) else { continue };
            let ours = derived.figures;
            for (key, published, ours) in [
                ("network-nodes", f64::from(published.nodes), f64::from(ours.nodes)),
                ("network-links", f64::from(published.links), f64::from(ours.links)),
                ("network-link", published.link, ours.link),
                ("network-node", published.node, ours.node),
            ] {
                report.compare_formula(key, &format!("{}, {ports} ports", network.name), published, ours)?;
            }
            // Larger ones take too long for a test, and show no more.
            let is_small = ports == 16 || !setting.is_quick && ports == 64;
            if let Some(simulated) = is_small.then(|| network.simulated()).flatten() {
                report.remark(format!(
                    "{}, {ports} ports: busiest link {:.3} R by ways, {:.3} simulated; a node sends {:.2} R by ways, {:.2} simulated.",
                    network.name, ours.link, simulated.link, derived.sends, simulated.sends
                ));
            }
        }
    }
    Ok(())
}
