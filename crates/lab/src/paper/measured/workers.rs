//! Experiments with several workers: RouteBricks' paths and queues, network cards with many queues, MoonRoute's scaling.

use anyhow::Result;
use graph::roles::Mode;

use crate::bench::workers::{Work, Workers, medians};
use crate::paper::Setting;
use crate::paper::report::{Report, line};
use crate::paper::shape::Curve;
use crate::plot::{Chart, Line};

/// A million entries of a table are used.
const BITS: u32 = 20;

fn minimal(mode: Mode, workers: usize) -> Workers<'static> {
    Workers::new(Work::Minimal, mode, workers)
}

/// Returns the numbers of workers, one always among them.
fn numbers(setting: &Setting) -> Vec<usize> {
    let mut numbers = setting.workers.clone();
    numbers.push(1);
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Returns the largest number of workers, or says that one is not enough.
fn most(setting: &Setting, report: &mut Report<'_>) -> Option<usize> {
    let most = numbers(setting).pop().filter(|&most| most > 1);
    if most.is_none() {
        report.leave_out("it takes two workers, so two processors (or --workers 2, which then share one)");
    }
    most
}

/// RouteBricks, figure 6: one core or two for a packet, one queue or two for a port.
pub(in crate::paper) fn paths(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    if most(setting, report).is_none() {
        return Ok(());
    }
    let overlapping = |locked| Workers { locked, ..Workers::new(Work::Overlapping, Mode::Parallel, 2) };
    // Each with the number of its paths.
    let cases = [
        ("a: pipeline", minimal(Mode::Pipeline, 2), 1.0),
        ("b: parallel", minimal(Mode::Parallel, 1), 1.0),
        ("c: a core splits", minimal(Mode::Serial, 2), 1.0),
        ("d: two queues", minimal(Mode::Parallel, 2), 1.0),
        ("e: one locked", overlapping(Some(1)), 2.0),
        ("e: locked a batch", overlapping(Some(packet::MAX_BATCH)), 2.0),
        ("f: own queues", overlapping(None), 2.0),
    ];
    let all: Vec<Workers<'_>> = cases.iter().map(|(_, workers, _)| workers.clone()).collect();
    let rates: Vec<f64> = medians(&all, setting.seconds, setting.runs)?
        .into_iter()
        .zip(&cases)
        .map(|(rate, (.., paths))| rate / paths)
        .collect();
    let [a, b, c, d, e, _, f] = rates[..] else { return Ok(()) };
    report.judge("parallel-above-pipeline", &[vec![(0.0, b)], vec![(0.0, a)]])?;
    report.compare("pipeline-of-parallel", a / b)?;
    report.compare("queues-of-splitting", d / c)?;
    report.compare("locked-of-parallel", e / b)?;
    report.compare("queues-of-parallel", f / b)?;
    report.leave_out("a pipeline of cores with a third-level cache each, for which it takes two of those");
    report.chart(
        Chart {
            title: "Forwarding 64-byte packets".to_owned(),
            up: "Mpps a path".to_owned(),
            over: "scenario".to_owned(),
            places: cases.iter().map(|(name, ..)| (*name).to_owned()).collect(),
            lines: vec![Line::over_places("ours", rates.iter().map(|&rate| Some(rate)))],
            has_bars: true,
            ..Chart::default()
        },
        &[],
    )?;
    report.remark("a, b, d, e and f are as in the paper. c has two cores: one receives, the other processes and sends; d has two queues for the same two cores. In e a worker takes the lock of the queue for each packet, in the bar beside it for each batch.");
    Ok(())
}

/// RouteBricks, figure 7: what queues and batches bring together.
pub(in crate::paper) fn steps(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let Some(most) = most(setting, report) else { return Ok(()) };
    let of = |locked, burst| Workers { locked, burst, ..Workers::new(Work::AnyToAny, Mode::Parallel, most) };
    let cases = [of(Some(1), 1), of(None, 1), of(None, 32)];
    let rates = medians(&cases, setting.seconds, setting.runs)?;
    report.compare("queues-and-batches", rates[2] / rates[0])?;
    report.judge("steps-rise", &[(0..).map(f64::from).zip(rates.iter().copied()).collect()])?;
    report.leave_out("the server with a shared bus: it takes one of 2008");
    report.chart(
        Chart {
            title: format!("Forwarding 64-byte packets between four ports with {most} workers"),
            up: "Mpps".to_owned(),
            over: "what the router uses".to_owned(),
            places: ["neither", "queues", "queues and batches"].map(String::from).to_vec(),
            lines: vec![Line::over_places("ours", rates.into_iter().map(Some))],
            has_bars: true,
            ..Chart::default()
        },
        &[],
    )
}

/// Server NICs, figures 2 and 3: a queue for each worker, or one queue for all.
pub(in crate::paper) fn queues(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let Some(most) = most(setting, report) else { return Ok(()) };
    let numbers = numbers(setting);
    let both = [Mode::Parallel, Mode::Serial];
    let cases: Vec<Workers<'_>> =
        both.iter().flat_map(|&mode| numbers.iter().map(move |&workers| minimal(mode, workers))).collect();
    let rates = medians(&cases, setting.seconds, setting.runs)?;
    let (parallel, serial) = rates.split_at(numbers.len());
    let over = |rates: &[f64], of: &dyn Fn(usize, f64) -> f64| -> Curve {
        numbers.iter().zip(rates).map(|(&workers, &rate)| (workers as f64, of(workers, rate))).collect()
    };
    let ideal: Vec<f64> = numbers.iter().map(|&workers| parallel[0] * workers as f64).collect();
    let last = numbers.len() - 1;
    if most >= 4 {
        report.compare("queues-of-serial", parallel[last] / serial[last])?;
    } else {
        report.leave_out(format!(
            "that many queues are three times as fast as one: the paper claims it for more cores, and {most} were measured; with four processors it is judged"
        ));
    }
    report.compare("queues-of-ideal", parallel[last] / ideal[last])?;
    for (title, of) in [
        ("Forwarding 64-byte packets", &(|_, rate| rate) as &dyn Fn(usize, f64) -> f64),
        ("The same for each worker", &|workers, rate| rate / workers as f64),
    ] {
        report.chart(
            Chart {
                title: title.to_owned(),
                up: "Mpps".to_owned(),
                over: "workers".to_owned(),
                lines: vec![
                    line("a queue each", &over(parallel, of)),
                    line("one queue for all", &over(serial, of)),
                    line("ideal", &over(&ideal, of)),
                ],
                ..Chart::default()
            },
            &[],
        )?;
    }
    report.remark("The paper's ideal ends at the rate of a wire; memory has none.");
    Ok(())
}

/// Server NICs, figures 4 and 5: as many queues of one port or of two.
pub(in crate::paper) fn ports(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    if most(setting, report).is_none() {
        return Ok(());
    }
    let mut numbers = numbers(setting);
    numbers.retain(|workers| workers.is_multiple_of(2));
    if numbers.is_empty() {
        report.leave_out("it takes an even number of workers");
        return Ok(());
    }
    let of =
        |ports| numbers.iter().map(move |&workers| Workers { ports, ..minimal(Mode::Parallel, workers) });
    let rates = medians(&of(1).chain(of(2)).collect::<Vec<_>>(), setting.seconds, setting.runs)?;
    let (one, two) = rates.split_at(numbers.len());
    let worst = one.iter().zip(two).map(|(one, two)| one / two).fold(f64::INFINITY, f64::min);
    report.compare("one-port-of-two", worst)?;
    let over =
        |rates: &[f64]| -> Curve { numbers.iter().map(|&n| n as f64).zip(rates.iter().copied()).collect() };
    report.chart(
        Chart {
            title: "Forwarding 64-byte packets".to_owned(),
            up: "Mpps".to_owned(),
            over: "queues, and as many workers".to_owned(),
            lines: vec![line("one port", &over(one)), line("two ports", &over(two))],
            ..Chart::default()
        },
        &[],
    )?;
    report.remark("Ports in memory have no controller that their queues would share: this is what our side of a queue costs.");
    Ok(())
}

/// MoonRoute, figure 8: as many times the rate as workers, with one used entry of the table and with a million.
pub(in crate::paper) fn scaling(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let Some(most) = most(setting, report) else { return Ok(()) };
    let numbers = numbers(setting);
    let used = [(0, "one entry used", "scaling-one"), (BITS, "2^20 entries used", "scaling-many")];
    let of = |bits| {
        let workers = |&count: &usize| Workers::new(Work::Routing("dir24_8"), Mode::Parallel, count);
        numbers.iter().map(move |count| Workers { bits: Some(bits), burst: 128, ..workers(count) })
    };
    let cases: Vec<Workers<'_>> = used.iter().flat_map(|&(bits, ..)| of(bits)).collect();
    let rates = medians(&cases, setting.seconds, setting.runs)?;
    let mut lines = Vec::new();
    for ((_, name, key), rates) in used.into_iter().zip(rates.chunks(numbers.len())) {
        report.compare(key, rates[rates.len() - 1] / (rates[0] * most as f64))?;
        let curve: Curve = numbers.iter().map(|&n| n as f64).zip(rates.iter().copied()).collect();
        lines.push(line(name, &curve));
    }
    report.chart(
        Chart {
            title: "Routing 64-byte packets".to_owned(),
            up: "Mpps".to_owned(),
            over: "workers".to_owned(),
            lines,
            ..Chart::default()
        },
        &[],
    )
}
