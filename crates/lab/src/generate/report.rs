//! Reports of `gen`: tables for people, and one JSON object a line for programs.

use ports::QueueStats;
use serde_json::json;

use super::histogram::Histogram;
use super::rfc2544::Found;
use super::stations::Stations;
use super::trace::Trace;
use super::trial::{Outcome, Progress};
use super::values::FrameSize;
use router::table::{Align, Table, scaled, thousands};

/// Percentiles of the latency that are shown, in thousandths.
const PERCENTILES: [(u64, &str); 4] = [(500, "50"), (900, "90"), (990, "99"), (999, "99.9")];

/// A line that says how it goes; rates are those since `last`.
pub(crate) fn progress_line(progress: &Progress, last: &Progress, with_sink: bool) -> String {
    let seconds = (progress.elapsed_ns - last.elapsed_ns).max(1) as f64 / 1e9;
    let rate = |now: u64, before: u64| scaled((now - before) as f64 / seconds);
    let mut line =
        format!("{:6.1} s  out {}pps", progress.elapsed_ns as f64 / 1e9, rate(progress.sent, last.sent));
    if with_sink {
        let (counts, before) = (&progress.counts, &last.counts);
        line.push_str(&format!(
            "  in {}pps  under way or lost {}  duplicates {}  corrupted {}  reordered {}",
            rate(counts.received, before.received),
            thousands(counts.lost(progress.judged)),
            thousands(counts.duplicates),
            thousands(counts.corrupted),
            thousands(counts.reordered)
        ));
    }
    line
}

fn percent(count: u64, of: u64) -> String {
    match count as f64 / of.max(1) as f64 * 100.0 {
        0.0 => "0%".to_owned(),
        share if share < 0.001 => "<0.001%".to_owned(),
        share => format!("{share:.3}%"),
    }
}

fn microseconds(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e3))
}

/// What a trial gave.
pub(crate) fn outcome(outcome: &Outcome, stations: &Stations) -> String {
    let counts = &outcome.counts;
    let mut text = String::new();
    let mut table = Table::new(&[("", Align::Left), ("packets", Align::Right), ("share", Align::Right)]);
    let mut row = |name: &str, count: u64, of: Option<u64>| {
        table.row([name.to_owned(), thousands(count), of.map_or_else(String::new, |of| percent(count, of))]);
    };
    row("sent", outcome.sent, None);
    let unjudged = outcome.sent - outcome.judged;
    if unjudged > 0 {
        row("sent as they are, not judged", unjudged, None);
        row("sent with a signature", outcome.judged, None);
    }
    if stations.has_sink() {
        row("received", counts.received, Some(outcome.judged));
        row("lost", outcome.lost(), Some(outcome.judged));
    }
    if stations.has_sink() && outcome.is_judged {
        row("duplicates", counts.duplicates, Some(outcome.judged));
        row("corrupted", counts.corrupted, Some(outcome.judged));
        row("reordered (RFC 4737)", counts.reordered, Some(counts.distinct));
        row("reordered sequences (RouteBricks)", counts.reordered_sequences, Some(counts.distinct));
        if counts.behind_window > 0 {
            row("reordered so far that they may be duplicates", counts.behind_window, Some(counts.distinct));
        }
        if counts.foreign > 0 {
            row("foreign frames", counts.foreign, None);
        }
        if counts.icmp_errors > 0 {
            row("ICMP errors", counts.icmp_errors, None);
        }
    }
    text.push_str(&table.render());

    let mut table =
        Table::new(&[("rate", Align::Left), ("packets/s", Align::Right), ("bits/s", Align::Right)]);
    let mut row = |name: &str, pps: f64, bps: f64| {
        table.row([name.to_owned(), scaled(pps).trim_end().to_owned(), scaled(bps).trim_end().to_owned()]);
    };
    row("sent", outcome.offered_pps(), outcome.offered_bps());
    if stations.has_sink() {
        row("received", outcome.received_pps(), outcome.received_bps());
    }
    text.push('\n');
    text.push_str(&table.render());

    if outcome.latency.min().is_some() {
        let mut columns = vec![("latency, us", Align::Left), ("min", Align::Right), ("mean", Align::Right)];
        columns.extend(["50%", "90%", "99%", "99.9%", "max"].map(|name| (name, Align::Right)));
        let mut table = Table::new(&columns);
        let mut cells = vec![String::new()];
        cells.extend(latencies(&outcome.latency));
        table.row(cells);
        text.push('\n');
        text.push_str(&table.render());
    }
    let events = port_events(stations);
    if !events.is_empty() {
        let columns = [("at the ports", Align::Left), ("", Align::Left), ("packets", Align::Right)];
        let mut table = Table::new(&columns);
        for (port, event, count) in events {
            table.row([port, event.to_owned(), thousands(count)]);
        }
        text.push('\n');
        text.push_str(&table.render());
    }
    text
}

/// What a pass through a trace sends and skips: meaning, name for programs, count.
fn trace_counts(trace: &Trace) -> [(&'static str, &'static str, u64); 7] {
    let tally = &trace.tally;
    [
        ("frames", "trace_frames", tally.frames),
        ("without room for a signature, sent as they are", "trace_unjudged", tally.frames - trace.judged),
        ("cut by the capture, padded with zeros", "trace_padded", tally.padded),
        ("longer than the port's MTU, skipped", "trace_too_long", tally.too_long),
        ("shorter than an Ethernet header, skipped", "trace_too_short", tally.too_short),
        ("earlier than the frame before, sent at once", "trace_backward_times", tally.backward_times),
        ("flows of those with a signature", "trace_flows", trace.flows.len() as u64),
    ]
}

/// What is in a trace.
pub(crate) fn trace(trace: &Trace) -> String {
    let mut table = Table::new(&[("in the trace", Align::Left), ("", Align::Right)]);
    for (meaning, _, count) in trace_counts(trace) {
        table.row([meaning.to_owned(), thousands(count)]);
    }
    table.row(["seconds".to_owned(), format!("{:.3}", trace.tally.duration_ns as f64 / 1e9)]);
    table.render()
}

/// The same for programs.
pub(crate) fn trace_json(case: &str, trace: &Trace) -> Vec<String> {
    let mut lines: Vec<String> = trace_counts(trace)
        .into_iter()
        .map(|(_, metric, count)| {
            json_line("gen", case, metric, count, if metric == "trace_flows" { "flows" } else { "packets" })
        })
        .collect();
    lines.push(json_line("gen", case, "trace_duration", trace.tally.duration_ns, "ns"));
    lines
}

/// Minimum, mean, percentiles, maximum.
fn latencies(latency: &Histogram) -> Vec<String> {
    let mean = latency.mean().map(|mean| mean as u64);
    let mut cells = vec![microseconds(latency.min()), microseconds(mean)];
    cells.extend(PERCENTILES.iter().map(|(per_mille, _)| microseconds(latency.quantile(*per_mille))));
    cells.push(microseconds(latency.max()));
    cells
}

/// What the ports counted beside packets: port with direction, event, count.
fn port_events(stations: &Stations) -> Vec<(String, &'static str, u64)> {
    let mut events = Vec::new();
    for station in stations.all() {
        let mut add = |direction: &str, stats: QueueStats| {
            for (event, count) in stats.events() {
                events.push((format!("{} {direction}", station.name), event.name(), count));
            }
        };
        add("sending", station.tx_stats());
        add("receiving", station.rx_stats());
    }
    events
}

/// One line of JSON, in the form of all our measurements.
fn json_line(
    bench: &str,
    case: &str,
    metric: &str,
    value: impl Into<serde_json::Value>,
    unit: &str,
) -> String {
    let value: serde_json::Value = value.into();
    json!({"bench": bench, "case": case, "metric": metric, "value": value, "unit": unit}).to_string()
}

/// What a trial gave, for programs.
pub(crate) fn outcome_json(bench: &str, case: &str, outcome: &Outcome, with_sink: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = |metric: &str, value: serde_json::Value, unit: &str| {
        lines.push(json_line(bench, case, metric, value, unit));
    };
    line("sent", outcome.sent.into(), "packets");
    line("sent_unjudged", (outcome.sent - outcome.judged).into(), "packets");
    line("sent_pps", outcome.offered_pps().into(), "packets/s");
    line("sent_bps", outcome.offered_bps().into(), "bits/s");
    if !with_sink {
        return lines;
    }
    let counts = &outcome.counts;
    let counted = [("received", counts.received), ("lost", outcome.lost())];
    let judged = [
        ("duplicates", counts.duplicates),
        ("corrupted", counts.corrupted),
        ("reordered", counts.reordered),
        ("reordered_sequences", counts.reordered_sequences),
        ("reordered_behind_window", counts.behind_window),
        ("foreign", counts.foreign),
        ("icmp_errors", counts.icmp_errors),
    ];
    for (metric, value) in counted.into_iter().chain(judged.into_iter().filter(|_| outcome.is_judged)) {
        line(metric, value.into(), "packets");
    }
    line("received_pps", outcome.received_pps().into(), "packets/s");
    line("received_bps", outcome.received_bps().into(), "bits/s");
    let latency = &outcome.latency;
    if let (Some(min), Some(mean), Some(max)) = (latency.min(), latency.mean(), latency.max()) {
        line("latency_min", min.into(), "ns");
        line("latency_mean", mean.into(), "ns");
        for (per_mille, name) in PERCENTILES {
            line(&format!("latency_p{name}"), latency.quantile(per_mille).into(), "ns");
        }
        line("latency_max", max.into(), "ns");
    }
    lines
}

/// The heading of a throughput table (RFC 2544, section 26.1) and its rows, one frame size each.
pub(crate) fn throughput(results: &[(FrameSize, Found<Outcome>)]) -> String {
    let mut table = Table::new(&[
        ("frame bytes", Align::Right),
        ("throughput, frames/s", Align::Right),
        ("Mbit/s", Align::Right),
        ("highest offered, frames/s", Align::Right),
        ("latency min, us", Align::Right),
        ("mean", Align::Right),
        ("50%", Align::Right),
        ("90%", Align::Right),
        ("99%", Align::Right),
        ("99.9%", Align::Right),
        ("max", Align::Right),
        ("trials", Align::Right),
    ]);
    for (size, found) in results {
        let highest = thousands(found.highest_pps as u64);
        let mut cells = vec![size.to_string()];
        match &found.best {
            Some(best) => {
                cells.push(thousands(best.offered_pps() as u64));
                cells.push(format!("{:.1}", best.offered_bps() / 1e6));
                cells.push(highest);
                cells.extend(latencies(&best.latency));
            }
            None => {
                cells.extend(["none".to_owned(), "-".to_owned(), highest]);
                cells.extend(latencies(&Histogram::new()));
            }
        }
        cells.push(found.trials.to_string());
        table.row(cells);
    }
    table.render()
}

/// The same for programs.
pub(crate) fn throughput_json(size: &FrameSize, found: &Found<Outcome>) -> Vec<String> {
    let case = format!("size={size}");
    let best_pps = found.best.as_ref().map_or(0.0, Outcome::offered_pps);
    let best_bps = found.best.as_ref().map_or(0.0, Outcome::offered_bps);
    let mut lines = vec![
        json_line("rfc2544", &case, "throughput_pps", best_pps, "packets/s"),
        json_line("rfc2544", &case, "throughput_bps", best_bps, "bits/s"),
        json_line("rfc2544", &case, "highest_offered_pps", found.highest_pps, "packets/s"),
        json_line("rfc2544", &case, "trials", found.trials, "trials"),
    ];
    if let Some(best) = &found.best {
        lines.extend(outcome_json("rfc2544", &case, best, true));
    }
    lines
}
