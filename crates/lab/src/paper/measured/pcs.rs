//! Star and multistage routers of PCs: what one router forwards of what is offered, over virtual links of one machine.

use anyhow::Result;

use crate::bench::io::steps::{Forwarder, Sent, Step, Steps, sweep};
use crate::paper::Setting;
use crate::paper::report::{Report, line};
use crate::paper::shape::Curve;
use crate::plot::{Chart, Line};

/// Million frames a second that are offered, one after the other; the source may not reach the last ones.
const RATES: [f64; 7] = [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2];
/// The paper's sizes.
const SIZES: [usize; 3] = [64, 576, 1470];
/// As many different destinations as make each packet look up anew.
const MANY: usize = 4096;

/// Returns what is forwarded of what is sent, or says what is missing.
fn measured(
    setting: &Setting,
    report: &mut Report<'_>,
    sent: Sent,
    forwarders: &[Forwarder],
) -> Result<Option<Vec<Steps>>> {
    let every = if setting.is_quick { 2 } else { 1 };
    let rates: Vec<f64> = RATES.into_iter().step_by(every).collect();
    let steps = sweep(sent, forwarders, &rates, setting.seconds, setting.runs)?;
    if let Err(missing) = &steps {
        report.leave_out(missing);
    }
    Ok(steps.ok())
}

/// Returns the rate at the highest offered load.
fn last(steps: &Steps) -> f64 {
    steps.last().map_or(f64::NAN, Step::all)
}

/// Returns the highest rate.
fn best(steps: &Steps) -> f64 {
    steps.iter().map(Step::all).fold(f64::NAN, f64::max)
}

/// Returns what arrived over what was sent.
fn curve(steps: &Steps) -> Curve {
    steps.iter().map(|step| (step.sent.iter().sum(), step.all())).collect()
}

fn chart(title: String, lines: Vec<Line>) -> Chart {
    let over = "sent, million frames a second".to_owned();
    let up = "forwarded, million frames a second".to_owned();
    Chart { title, over, up, lines, ..Chart::default() }
}

/// Figure 2: Linux and a router in its place, three sizes, many destinations.
pub(in crate::paper) fn linux(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let mut at_least_linux = 0;
    for size in SIZES {
        // One way of ours is enough for how sizes compare.
        let all = [Forwarder::Linux, Forwarder::Xdp, Forwarder::AfXdp];
        let forwarders = if size == SIZES[0] { &all[..] } else { &all[..2] };
        let sent = Sent { routes: 1000, destinations: MANY, lines: 1, size };
        let Some(steps) = measured(setting, report, sent, forwarders)? else { return Ok(()) };
        at_least_linux += u32::from(last(&steps[1]) >= last(&steps[0]));
        if size == SIZES[0] {
            report.compare("small-over-linux", last(&steps[1]) / last(&steps[0]))?;
            report.judge("no-collapse-small", &[curve(&steps[1])])?;
        }
        let lines =
            forwarders.iter().zip(&steps).map(|(forwarder, steps)| line(forwarder.name(), &curve(steps)));
        report.chart(chart(format!("Frames of {size} bytes"), lines.collect()), &[])?;
    }
    report.compare("sizes-over-linux", f64::from(at_least_linux))
}

/// Figure 3: one flow, whatever the size of the table.
pub(in crate::paper) fn one_flow(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let mut bests = Vec::new();
    for routes in [1000, 167_000] {
        let mut lines = Vec::new();
        // The table can matter to small frames alone.
        let sizes = if routes == 1000 { &SIZES[..] } else { &SIZES[..1] };
        for &size in sizes {
            let sent = Sent { routes, destinations: 1, lines: 1, size };
            let Some(steps) = measured(setting, report, sent, &[Forwarder::Xdp])? else { return Ok(()) };
            bests.push(best(&steps[0]));
            lines.push(line(format!("{size} bytes"), &curve(&steps[0])));
        }
        report.chart(chart(format!("One flow, {routes} routes"), lines), &[])?;
    }
    let [small, _, large, with_large_table] = bests[..] else { return Ok(()) };
    report.compare("small-over-large", small / large)?;
    report.compare("one-flow-large-table", with_large_table / small)
}

/// Figure 4: two flows by two inputs and two outputs.
pub(in crate::paper) fn two_flows(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let sent = |lines| Sent { routes: 1, destinations: 1, lines, size: SIZES[0] };
    let forwarders = [Forwarder::Xdp, Forwarder::AfXdp];
    let Some(one) = measured(setting, report, sent(1), &forwarders)? else { return Ok(()) };
    let Some(two) = measured(setting, report, sent(2), &forwarders)? else { return Ok(()) };
    if let Some(step) = two[1].last() {
        // Sources that share a processor do not send the same, so that it is the share of each that counts.
        let shares = step.arrived.iter().zip(&step.sent).map(|(arrived, sent)| arrived / sent);
        report.compare("two-flows-fair", fairness(&shares.collect::<Vec<_>>()))?;
    }
    report.compare("two-flows-of-one", best(&two[1]) / best(&one[1]))?;
    report.judge("two-flows-plateau", &[curve(&two[0])])?;
    let lines = [("one flow", &one), ("two flows", &two)].into_iter().flat_map(|(flows, all)| {
        let named = forwarders.iter().zip(all);
        named.map(move |(by, steps)| line(format!("{flows}, {}", by.name()), &curve(steps)))
    });
    report.chart(chart("Frames of 64 bytes, both flows together".to_owned(), lines.collect()), &[])?;
    report.remark("Both sources are on one processor of this machine, and all of the router on one other. Over AF_XDP this router polls its inputs in turns; with its tables in the kernel, the kernel's threads of the inputs take turns.");
    Ok(())
}

/// Returns Jain's index: 1 if all are equal, 1 / n if one of n has everything.
fn fairness(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// Figure 5: many flows and two sizes of the table.
pub(in crate::paper) fn many_flows(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let forwarders = [Forwarder::Xdp, Forwarder::Linux];
    let mut lines = Vec::new();
    let mut ours = Vec::new();
    for routes in [1000, 167_000] {
        let sent = Sent { routes, destinations: MANY, lines: 1, size: SIZES[0] };
        let Some(steps) = measured(setting, report, sent, &forwarders)? else { return Ok(()) };
        let each = forwarders.iter().zip(&steps);
        lines.extend(each.map(|(by, steps)| line(format!("{}, {routes} routes", by.name()), &curve(steps))));
        ours.extend(steps.into_iter().take(1));
    }
    report.compare("many-flows-large-table", best(&ours[1]) / best(&ours[0]))?;
    report.judge("no-collapse-many", &[curve(&ours[1])])?;
    report.chart(chart("Many flows, frames of 64 bytes".to_owned(), lines), &[])
}

#[cfg(test)]
mod tests {
    use super::fairness;

    #[test]
    fn equal_shares_are_fair_and_all_for_one_is_not() {
        for (shares, index) in [(&[2.0, 2.0][..], 1.0), (&[1.0, 0.0], 0.5), (&[3.0, 1.0], 0.8)] {
            assert!((fairness(shares) - index).abs() < 1e-9, "{shares:?}");
        }
    }
}
