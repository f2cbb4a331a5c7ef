//! What the paper on server network cards wishes for: queues that are balanced while traffic flows, and a core for each part of the table.

use std::time::Duration;

use anyhow::Result;

use super::mpps;
use crate::bench::rig::{Application, Rig, Traffic, balanced, medians};
use crate::paper::Setting;
use crate::paper::report::Report;
use crate::paper::shape::Curve;
use crate::plot::{Chart, Line};

const ROUTING: Application = Application::Routing { table: "byte24" };
const BURST: usize = 64;

/// Section 4.3: one queue is nearly full, the others are not.
pub(in crate::paper) fn balance(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let cpus = crate::bench::allowed_cpus();
    if cpus < 2 {
        report.leave_out("it needs 2 CPUs or more");
        return Ok(());
    }
    let traffic = Traffic { rate: Some(1e9), ..Traffic::SMALL };
    let full =
        mpps(medians(&mut [Rig::new(ROUTING, traffic, BURST, BURST)?], setting.seconds, setting.runs)?[0]);
    // The first worker has half of what it can do, the others a twentieth.
    let rates: Vec<f64> = (0..cpus).map(|worker| full * 1e6 * if worker == 0 { 0.5 } else { 0.05 }).collect();
    let (busy, lost) =
        balanced(&rates, 8, Duration::from_secs_f64(if setting.is_quick { 0.2 } else { 1.0 }))?;
    let uneven: Curve = busy
        .iter()
        .enumerate()
        .map(|(period, busy)| {
            let most = busy.iter().copied().fold(0.0, f64::max);
            (period as f64, most * busy.len() as f64 / busy.iter().sum::<f64>())
        })
        .collect();
    report.judge("evened", std::slice::from_ref(&uneven))?;
    report.chart(
        Chart {
            title: "Busiest worker over the mean worker".to_owned(),
            up: "ratio".to_owned(),
            over: "period".to_owned(),
            places: (1..=uneven.len()).map(|period| period.to_string()).collect(),
            lines: vec![Line::over_places("ours", uneven.iter().map(|point| Some(point.1)))],
            ..Chart::default()
        },
        &[],
    )?;
    let best = uneven[3..].iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
    report.remark(format!(
        "After three periods the busiest worker has {best:.2} times the mean's work. {cpus} workers; the first one's queue gets half of what a worker forwards, the others' a twentieth. {lost} packets found their queue full."
    ));
    Ok(())
}

/// Section 4.3: a core that sees half of the prefixes has more of them in its cache.
pub(in crate::paper) fn prefixes(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let parts = [24, 23, 22, 21];
    let rigs =
        parts.map(|bits| Rig::new(ROUTING, Traffic { bits: Some(bits), ..Traffic::SMALL }, BURST, BURST));
    let mut rigs = rigs.into_iter().collect::<Result<Vec<_>>>()?;
    let rates: Vec<f64> = medians(&mut rigs, setting.seconds, setting.runs)?.into_iter().map(mpps).collect();
    let curve: Curve = (0..).zip(&rates).map(|(place, &rate)| (f64::from(place), rate)).collect();
    report.judge("parts-help", &[curve])?;
    report.chart(
        Chart {
            title: "Routing on one core".to_owned(),
            up: "Mpps".to_owned(),
            over: "share of the table that a core sees".to_owned(),
            places: ["all", "a half", "a quarter", "an eighth"].map(str::to_owned).to_vec(),
            lines: vec![Line::over_places("ours", rates.iter().map(|&rate| Some(rate)))],
            has_bars: true,
            ..Chart::default()
        },
        &[],
    )
}
