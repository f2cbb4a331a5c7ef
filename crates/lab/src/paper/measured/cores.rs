//! RouteBricks' experiments on one core: batches, applications, cycles over the rate.

use anyhow::Result;

use super::mpps;
use crate::bench::rig::{Application, Rig, Traffic, medians};
use crate::paper::Setting;
use crate::paper::report::{Report, line};
use crate::paper::shape::Curve;
use crate::plot::{Chart, Line};

/// The usual burst of this router.
const BURST: usize = 64;
/// A table of a quarter of a million entries is RouteBricks'; destinations are drawn in as many networks.
const BITS: u32 = 18;
const ROUTING: Application = Application::Routing { table: "byte24" };

/// Table 1: packets taken at a time.
pub(in crate::paper) fn polling(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let bursts = [(1, 1), (32, 1), (32, 32)];
    let rigs = bursts.map(|(rx, tx)| Rig::new(Application::Forwarding, Traffic::SMALL, rx, tx));
    let mut rigs = rigs.into_iter().collect::<Result<Vec<_>>>()?;
    let rates: Vec<f64> = medians(&mut rigs, setting.seconds, setting.runs)?.into_iter().map(mpps).collect();
    report.compare("poll-batching", rates[1] / rates[0])?;
    report.compare("both-batchings", rates[2] / rates[0])?;
    let steps: Curve = rates.iter().enumerate().map(|(place, &rate)| (place as f64, rate)).collect();
    report.judge("batching-rises", &[steps])?;
    report.chart(
        Chart {
            title: "Forwarding 64-byte packets on one core, Mpps".to_owned(),
            over: "packets of a poll, of a send".to_owned(),
            places: bursts.map(|(rx, tx)| format!("{rx}, {tx}")).to_vec(),
            lines: vec![Line::over_places("ours", rates.iter().map(|&rate| Some(rate)))],
            has_bars: true,
            ..Chart::default()
        },
        &[],
    )?;
    report.remark("The paper's kn are descriptors that a card hands over at a time. There is no card here: its place has the packets that are sent at a time.");
    Ok(())
}

/// Figure 9: cycles of a packet do not depend on the rate.
pub(in crate::paper) fn load(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let shares = [0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9];
    let mut lines = Vec::new();
    for (name, key, application) in
        [("forwarding", "fwd-flat", Application::Forwarding), ("IP routing", "rtr-flat", ROUTING)]
    {
        let traffic = Traffic { bits: Some(BITS), ..Traffic::SMALL };
        let fast = Traffic { rate: Some(1e9), ..traffic };
        let full = mpps(
            medians(&mut [Rig::new(application, fast, BURST, BURST)?], setting.seconds, setting.runs)?[0],
        );
        let mut curve = Curve::new();
        for share in shares {
            let rate = Some(full * 1e6 * share);
            let mut rig = Rig::new(application, Traffic { rate, ..traffic }, BURST, BURST)?;
            rig.run_at_rate(setting.seconds.min(0.05))?;
            let mut runs =
                (0..setting.runs).map(|_| rig.run_at_rate(setting.seconds)).collect::<Result<Vec<_>>>()?;
            runs.sort_by(|a, b| a.cycles.total_cmp(&b.cycles));
            let middle = &runs[runs.len() / 2];
            curve.push((middle.mpps, middle.cycles));
        }
        // Below, a burst has one packet or two, which the paper's card gathers to sixteen.
        report.judge(key, &[curve.iter().copied().filter(|point| point.0 >= full * 0.29).collect()])?;
        lines.push(line(name, &curve));
        lines.push(line(format!("{name}: cycles there are"), &{
            let per_second = packet::cycles::per_second() / 1e6;
            curve.iter().map(|point| (point.0, per_second / point.0)).collect::<Curve>()
        }));
    }
    report.chart(
        Chart {
            title: "TSC cycles of a 64-byte packet, polls without packets left out".to_owned(),
            over: "million packets a second".to_owned(),
            lines,
            is_logarithmic: true,
            ..Chart::default()
        },
        &[],
    )?;
    Ok(())
}

/// "Can software routers scale?", figures 3 and 4: what is forwarded of what is offered.
pub(in crate::paper) fn offered(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let shares = [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5];
    let mut lines = Vec::new();
    for size in [64, 256, 1024, 1518] {
        let traffic = Traffic { size: size - 4, ..Traffic::SMALL };
        let fast = Traffic { rate: Some(1e9), ..traffic };
        let full = mpps(
            medians(
                &mut [Rig::new(Application::Forwarding, fast, BURST, BURST)?],
                setting.seconds,
                setting.runs,
            )?[0],
        );
        let mut curve = Curve::new();
        for share in shares {
            let rate = Some(full * 1e6 * share);
            let mut rig = Rig::new(Application::Forwarding, Traffic { rate, ..traffic }, BURST, BURST)?;
            rig.run_at_rate(setting.seconds.min(0.05))?;
            let mut runs =
                (0..setting.runs).map(|_| rig.run_at_rate(setting.seconds)).collect::<Result<Vec<_>>>()?;
            runs.sort_by(|a, b| a.mpps.total_cmp(&b.mpps));
            let middle = &runs[runs.len() / 2];
            curve.push((middle.offered_mpps, middle.mpps));
        }
        if size == 64 {
            report.judge("never-falls", std::slice::from_ref(&curve))?;
            report.compare("small-rate", curve.iter().map(|point| point.1).fold(0.0, f64::max))?;
        }
        lines.push(line(format!("{size} bytes"), &curve));
    }
    report.chart(
        Chart {
            title: "Forwarded on one core, Mpps".to_owned(),
            over: "offered, million packets a second".to_owned(),
            lines,
            ..Chart::default()
        },
        &["forwarded-small"],
    )
}
