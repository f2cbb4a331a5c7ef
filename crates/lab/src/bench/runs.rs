//! What benches of graphs and drivers ask and say alike.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use packet::{Vectors, cycles};
use serde_json::json;

use super::{cpus, print_setting};
use router::output::say_line;

/// How a bench measures.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct RunArguments {
    /// Packets taken from a port at a time, 1 to 256
    #[arg(long, default_value_t = 64)]
    pub(super) burst: usize,
    /// Seconds for each run
    #[arg(long, default_value_t = 0.3)]
    pub(super) seconds: f64,
    /// Runs of each case; the median is printed
    #[arg(long, default_value_t = 5)]
    pub(super) runs: usize,
    /// Print one JSON object a line
    #[arg(long)]
    pub(super) json: bool,
}

/// The frames of a bench, and the table that they are routed by.
#[derive(Args, Debug)]
pub(super) struct FrameArguments {
    /// The real table
    #[arg(long, default_value_os_t = crate::tables::ipv4(), value_name = "FILE")]
    pub(super) table: PathBuf,
    /// Frame size in bytes, without frame check sequence
    #[arg(long, default_value_t = 64)]
    pub(super) size: usize,
}

/// Numbers of destinations to measure with.
#[derive(Args, Debug)]
pub(super) struct DestinationArguments {
    /// Numbers of different destination addresses
    #[arg(long, value_delimiter = ',', default_values_t = [1usize, 4096, 65536])]
    pub(super) dests: Vec<usize>,
}

impl RunArguments {
    pub(super) fn check(&self) -> Result<()> {
        if !(1..=packet::MAX_BATCH).contains(&self.burst) {
            bail!("--burst {} is out of range: 1 to {}", self.burst, packet::MAX_BATCH);
        }
        if !(1..=1000).contains(&self.runs) {
            bail!("--runs {} is out of range: 1 to 1000", self.runs);
        }
        if !(0.01..=60.0).contains(&self.seconds) {
            bail!("--seconds {} is out of range: 0.01 to 60", self.seconds);
        }
        Ok(())
    }

    /// Above the figures of a bench: what passes, and where.
    pub(super) fn say_heading(&self, bench: &str, traffic: &str, place: &str) {
        let Self { burst, seconds, runs, json } = *self;
        if json {
            let setting =
                json!({"traffic": traffic, "place": place, "burst": burst, "runs": runs, "seconds": seconds});
            return print_setting(bench, setting);
        }
        say_line!(
            "{traffic}, bursts of {burst}, {place}, {} ({}), TSC at {:.2} GHz; {} of {seconds} s\n",
            cpus::model(),
            Vectors::best().name(),
            cycles::per_second() / 1e9,
            medians_of(runs)
        );
    }
}

impl FrameArguments {
    pub(super) fn check(&self) -> Result<()> {
        if !(60..=1514).contains(&self.size) {
            bail!("--size {} is out of range: 60 to 1514 bytes", self.size);
        }
        Ok(())
    }
}

/// What is printed of so many runs.
pub(super) fn medians_of(runs: usize) -> String {
    if runs == 1 { "one run".to_owned() } else { format!("medians of {runs} runs") }
}

/// Whether frames can be made for so many destinations.
pub(super) fn check_destinations(dests: &[usize]) -> Result<()> {
    if dests.iter().any(|dests| !(1..=1 << 20).contains(dests)) {
        bail!("--dests takes numbers from 1 to 1048576");
    }
    Ok(())
}
