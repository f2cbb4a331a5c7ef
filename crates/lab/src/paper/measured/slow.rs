//! MoonRoute's experiments beside the fast path: its slow path, changes of routes, ways to split batches, a router in Lua.

use anyhow::Result;

use super::mpps;
use crate::bench::lua;
use crate::bench::median;
use crate::bench::slow_path::flood;
use crate::bench::splitting::{Splitter, Way};
use crate::bench::updates::{Updated, Updates};
use crate::paper::Setting;
use crate::paper::report::{Report, line};
use crate::paper::shape::Curve;
use crate::plot::{Chart, Line};

/// Section 4.1: packets that the fast path does not finish go to the slow path or are dropped, and nothing else is.
pub(in crate::paper) fn slow_path(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let percents = [0, 1, 10, 50, 90];
    let [mut forwarded, mut answered, mut dropped] = [const { Curve::new() }; 3];
    let [mut received, mut fast, mut given, mut known] = [0; 4];
    for percent in percents {
        let mut runs =
            (0..setting.runs).map(|_| flood(percent, setting.seconds)).collect::<Result<Vec<_>>>()?;
        for counts in runs.iter().map(|run| run.counts) {
            received += counts.received - counts.given;
            fast += counts.forwarded;
            given += counts.given;
            known += counts.answered + counts.dropped;
        }
        runs.sort_by(|a, b| a.answered_mpps.total_cmp(&b.answered_mpps));
        let middle = runs[runs.len() / 2];
        forwarded.push((percent as f64, middle.forwarded_mpps));
        answered.push((percent as f64, middle.answered_mpps));
        dropped.push((percent as f64, middle.dropped_mpps));
    }
    let most = answered.iter().map(|point| point.1).fold(0.0, f64::max);
    report.compare("slow-path-rate", most)?;
    report.compare("slow-of-fast", most / forwarded[0].1)?;
    report.compare("fast-loses-nothing", fast as f64 / received as f64)?;
    report.compare("overflow-is-dropped", known as f64 / given as f64)?;
    report.chart(
        Chart {
            title: "Beside a flood of packets for the slow path".to_owned(),
            up: "Mpps".to_owned(),
            over: "% of all packets whose time to live ends".to_owned(),
            lines: vec![
                line("forwarded by the fast path", &forwarded),
                line("answered by the slow path", &answered),
                line("dropped at its ring", &dropped),
            ],
            ..Chart::default()
        },
        &[],
    )?;
    report.remark("Packets whose time to live ends are answered by the native slow thread, whose usual limit of 1,000 answers a second is off. They come as fast as the worker takes them.");
    Ok(())
}

/// Section 6.8: what is lost while routes change.
pub(in crate::paper) fn updates(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    if crate::bench::allowed_cpus() < 2 {
        report.leave_out("it takes a processor for the worker and one for the changes");
        return Ok(());
    }
    let asked = [0.0, 1e3, 1e4, 1e5, 5e5];
    // Changes are published ten times a second.
    let seconds = setting.seconds.max(0.4);
    let mut updates = Updates::new()?;
    updates.run(0.0, setting.seconds.min(0.1))?;
    let mut runs = vec![Vec::new(); asked.len()];
    for _ in 0..setting.runs {
        for (&changes, runs) in asked.iter().zip(&mut runs) {
            runs.push(updates.run(changes, seconds)?);
        }
    }
    let (received, sent) = updates.passed();
    report.compare("updates-lose-nothing", sent as f64 / received as f64)?;
    let of = |place: usize, value: fn(&Updated) -> f64| median(runs[place].iter().map(value).collect());
    let rate = |place: usize| mpps(of(place, |run| run.cycles));
    report.compare("updates-keep-rate", rate(3) / rate(0))?;
    let places: Vec<String> = (0..asked.len())
        .map(|place| router::table::thousands(of(place, |run| run.changes_per_s).round() as u64))
        .collect();
    report.chart(
        Chart {
            title: "Forwarding while routes change".to_owned(),
            up: "Mpps on one core".to_owned(),
            over: "changes of routes that were made, a second".to_owned(),
            places,
            lines: vec![Line::over_places("ours", (0..asked.len()).map(|place| Some(rate(place))))],
            has_bars: true,
            ..Chart::default()
        },
        &[],
    )?;
    report.remark("Of 131,072 routes over default routes one is withdrawn or comes back at each change. By the processor's time of the worker, of which the changes take none; what they cost its caches is in it. Changes are published ten times a second.");
    Ok(())
}

/// Section 4.3: arrays, bit masks, drop-out.
pub(in crate::paper) fn splits(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let shares: [u8; 7] = [0, 1, 2, 5, 10, 25, 50];
    let mut splitter = Splitter::new(64)?;
    let batches = (setting.seconds * 2e4) as usize;
    let mut cycles = vec![Vec::new(); Way::ALL.len() * shares.len()];
    for _ in 0..setting.runs {
        let cases = Way::ALL.into_iter().flat_map(|way| shares.map(|share| (way, share)));
        for ((way, share), cycles) in cases.zip(&mut cycles) {
            cycles.push(splitter.run(way, share, batches));
        }
    }
    let cycles: Vec<f64> = cycles.into_iter().map(median).collect();
    let curves: Vec<Curve> = cycles
        .chunks(shares.len())
        .map(|cycles| shares.iter().map(|&share| share.into()).zip(cycles.iter().copied()).collect())
        .collect();
    let [arrays, masks, drop_out] = &curves[..] else { return Ok(()) };
    let few = |curve: &Curve| -> Curve {
        curve.iter().copied().filter(|point| (1.0..=5.0).contains(&point.0)).collect()
    };
    report.judge("drop-out-below-arrays", &[few(arrays), few(drop_out)])?;
    report.judge("drop-out-below-masks", &[few(masks), few(drop_out)])?;
    report.judge("arrays-for-many", &[drop_out[6..].to_vec(), arrays[6..].to_vec()])?;
    report.chart(
        Chart {
            title: "Splitting a batch of 64 packets around two more steps".to_owned(),
            up: "TSC cycles a packet".to_owned(),
            over: "% of the packets that are diverted".to_owned(),
            lines: Way::ALL.into_iter().zip(&curves).map(|(way, curve)| line(way.name(), curve)).collect(),
            ..Chart::default()
        },
        &[],
    )?;
    let in_lua: Vec<(&str, Curve)> = lua::splits(&shares.map(u32::from), setting.seconds, setting.runs)?
        .into_iter()
        .map(|(way, cycles)| (way, shares.iter().map(|&share| share.into()).zip(cycles).collect()))
        .collect();
    if let [(_, arrays), (_, masks), (_, drop_out)] = &in_lua[..] {
        report.judge("lua-drop-out-below-arrays", &[few(arrays), few(drop_out)])?;
        report.judge("lua-drop-out-below-masks", &[few(masks), few(drop_out)])?;
    }
    report.chart(
        Chart {
            title: "Splitting a batch of 64 packets in a script".to_owned(),
            up: "TSC cycles a packet that it adds".to_owned(),
            over: "% of the packets that are diverted".to_owned(),
            lines: in_lua.iter().map(|(way, curve)| line(*way, curve)).collect(),
            ..Chart::default()
        },
        &[],
    )?;
    report.remark(
        "Without receiving and freeing, which are the same for all; in a script, without what the graph costs without it. This router's graph splits as arrays do.",
    );
    Ok(())
}

/// Section 5.2: the whole router as a script.
pub(in crate::paper) fn script(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let [elements, script] = lua::routers(setting.seconds, setting.runs)?;
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("--");
    report.compare("lua-of-graph", elements / script)?;
    report.compare("lua-lines", lua::ROUTER.lines().filter(is_code).count() as f64)?;
    report.chart(
        Chart {
            title: "Routing 64-byte packets on one core".to_owned(),
            up: "Mpps".to_owned(),
            over: "router".to_owned(),
            places: ["elements", "a script in Lua"].map(String::from).to_vec(),
            lines: vec![Line::over_places("ours", [elements, script].map(|cycles| Some(mpps(cycles))))],
            has_bars: true,
            ..Chart::default()
        },
        &[],
    )?;
    report.remark("The graph of elements and the script are what `brickway run PORT...` and `brickway lua SCRIPT PORT...` run.");
    Ok(())
}
