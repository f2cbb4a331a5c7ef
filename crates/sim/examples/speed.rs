//! How fast clusters are simulated, and in how much memory: packet-hops (visits of a packet at a node) a second of one core, not
//! counting the time that others had it.
//!
//! `cargo run --release -p brickway-sim --example speed` takes a mesh of 8, 64 and 1,023 nodes; arguments: another shape, a
//! matrix, and simulated milliseconds.

use std::time::Instant;

use sim::{Costs, Scenario, Sizes, simulate};

/// 10 Gb/s.
const RATE: u64 = 1_250_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    println!(
        "shape       matrix       ms    packets       hops       seconds  Mhops/s  delivered  c     VmHWM MiB"
    );
    match &arguments[..] {
        [] => {
            measure("mesh(8)", "uniform", 200)?;
            measure("mesh(64)", "uniform", 40)?;
            measure("mesh(1023)", "uniform", 10)
        }
        [shape, matrix, ms] => measure(shape, matrix, ms.parse()?),
        _ => Err("usage: speed [SHAPE MATRIX MILLISECONDS]".into()),
    }
}

fn measure(shape: &str, matrix: &str, ms: u64) -> Result<(), Box<dyn std::error::Error>> {
    let scenario = Scenario {
        matrix: matrix.parse()?,
        costs: Costs::of_capacity(3.0 * RATE as f64, Sizes::Imix.mean()),
        load: 0.95,
        warm_ns: ms * 200_000,
        end_ns: ms * 1_000_000,
        ..Scenario::new(shape.parse()?, RATE)
    };
    scenario.check()?;
    let (begun, begun_running) = (Instant::now(), running_seconds());
    let report = simulate(&scenario, |_| ());
    let seconds = running_seconds().zip(begun_running).map(|(now, begun)| now - begun);
    let seconds = seconds.unwrap_or(begun.elapsed().as_secs_f64());
    println!(
        "{shape:<11} {matrix:<11} {ms:>3} {:>10} {:>10} {seconds:>13.2} {:>8.2} {:>9.2}% {:>5.2} {:>9}",
        report.packets.entered,
        report.hops,
        report.hops as f64 / seconds / 1e6,
        report.throughput().share() * 100.0,
        report.c().mean,
        high_water_mib().map_or("?".to_owned(), |mib| mib.to_string()),
    );
    Ok(())
}

/// How long this process had a core, if the kernel tells.
fn running_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<u64>().ok()? as f64 / 1e9)
}

/// The most memory that this process had so far.
fn high_water_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? / 1024)
}
