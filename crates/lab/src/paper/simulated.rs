//! Packet by packet, in simulated time.

use anyhow::Result;
use sim::{Flows, Matrix, Scenario};

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
            mode: fabric::Mode::ClassicVlb,
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
    let chart = |title: &str, name: &str, curve: &Curve| Chart {
        title: title.to_owned(),
        over: "tau, ms".to_owned(),
        places: taus.map(|tau| tau.to_string()).to_vec(),
        lines: vec![Line::over_places(name, curve.iter().map(|point| Some(point.1)))],
        ..Chart::default()
    };
    report.chart(chart("Sequences of a flow overtaken, % of packets", "overtaken", &order), &[])?;
    report.chart(chart("Busiest link over the mean link", "busiest", &balance), &[])
}
