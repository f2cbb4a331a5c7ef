//! A series of trials on ports that are open, and their reports.

use std::hash::{BuildHasher, RandomState};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};

use super::in_kernel::InKernel;
use super::stations::Stations;
use super::trace::Trace;
use super::traffic::{Traffic, TrafficOptions};
use super::trial::{self, Outcome, Progress, TrialOptions};
use super::values::{FrameSize, Rate};
use super::{GenerateArguments, LOSS, report, rfc2544, sink};

/// A series of trials.
pub(super) struct Session<'a> {
    pub(super) arguments: &'a GenerateArguments,
    pub(super) interrupted: &'a AtomicBool,
    /// The first trial's generator number.
    base: u16,
    trials: u16,
    /// What sends and counts in our place.
    pub(super) in_kernel: Option<InKernel>,
}

impl<'a> Session<'a> {
    pub(super) fn new(arguments: &'a GenerateArguments, interrupted: &'a AtomicBool) -> Self {
        let base = arguments.seed.unwrap_or_else(|| RandomState::new().hash_one(std::process::id()));
        Self { arguments, interrupted, base: base as u16, trials: 0, in_kernel: None }
    }

    /// Returns another number for each trial.
    pub(super) fn next_generator(&mut self) -> u16 {
        // An odd step passes all 65,536 numbers before one comes again.
        let generator = self.base.wrapping_add(self.trials.wrapping_mul(0x9e37));
        self.trials = self.trials.wrapping_add(1);
        generator
    }

    /// Runs a trial that shows how it goes.
    pub(super) fn watched(
        &self,
        with_sink: bool,
        trial: impl FnOnce(&AtomicBool, &mut dyn FnMut(&Progress)) -> Result<Outcome>,
    ) -> Result<Outcome> {
        let shown = !self.arguments.quiet && std::io::stderr().is_terminal();
        let mut last = Progress { elapsed_ns: 0, sent: 0, judged: 0, counts: sink::Counts::default() };
        let mut show = |progress: &Progress| {
            if shown {
                let line = report::progress_line(progress, &last, with_sink);
                graph::messages::print_as_it_is(&format!("\r\x1b[K{line}"));
                last = *progress;
            }
        };
        let outcome = trial(self.interrupted, &mut show);
        if shown {
            graph::messages::print_as_it_is("\r\x1b[K");
        }
        outcome
    }

    fn trial(
        &mut self,
        stations: &mut Stations,
        traffic: &TrafficOptions,
        options: &TrialOptions,
    ) -> Result<Outcome> {
        let generator = self.next_generator();
        let mut kernel = self.in_kernel.take();
        let with_sink = stations.has_sink();
        let outcome = self.watched(with_sink, |interrupted, show| match &mut kernel {
            Some(kernel) => kernel.run(stations, traffic, generator, options, interrupted, show),
            None => {
                let mut traffic = Traffic::new(traffic, generator);
                trial::run(stations, &mut traffic, options, interrupted, show)
            }
        });
        self.in_kernel = kernel;
        outcome
    }

    fn settle_ns(&self, default: f64) -> u64 {
        (self.arguments.settle.unwrap_or(default) * 1e9) as u64
    }

    /// The options of one trial, at the rate that is asked for or this one.
    pub(super) fn options(&self, rate: Rate) -> TrialOptions {
        let arguments = self.arguments;
        TrialOptions {
            rate: arguments.rate.unwrap_or(rate),
            burst: usize::from(arguments.burst),
            count: arguments.count,
            duration_ns: arguments.duration.map(|seconds| (seconds * 1e9) as u64),
            catches_up: true,
            settle_ns: self.settle_ns(1.0),
        }
    }

    /// One trial and its report.
    pub(super) fn once(&mut self, stations: &mut Stations, traffic: &TrafficOptions) -> Result<ExitCode> {
        let options = self.options(Rate::Packets(1_000.0));
        let outcome = self.trial(stations, traffic, &options)?;
        self.compare_with_rate(options.rate, &outcome);
        self.report(stations, &outcome, &format!("size={}", traffic.size), None)
    }

    /// Warns where the rate that was asked for was not reached.
    pub(super) fn compare_with_rate(&self, rate: Rate, outcome: &Outcome) {
        let asked = match rate {
            Rate::Max => None,
            Rate::Packets(pps) => Some((pps, outcome.offered_pps(), "packets/s")),
            Rate::Bits(bps) => Some((bps, outcome.offered_bps(), "bits/s")),
        };
        if let Some((asked, offered, unit)) = asked
            && offered < asked * 0.95
            && outcome.sent > u64::from(self.arguments.burst)
        {
            graph::note!(
                "warning: asked for {}{unit}, sent {}{unit}: this machine or the port was not faster",
                router::table::scaled(asked),
                router::table::scaled(offered)
            );
        }
    }

    /// Reports a trial, of the frames of a trace if one is given.
    pub(super) fn report(
        &self,
        stations: &Stations,
        outcome: &Outcome,
        case: &str,
        trace: Option<&Trace>,
    ) -> Result<ExitCode> {
        if self.arguments.json {
            let of_trace = trace.map(|trace| report::trace_json(case, trace)).unwrap_or_default();
            let lines = report::outcome_json("gen", case, outcome, stations.has_sink());
            for line in of_trace.into_iter().chain(lines) {
                println!("{line}");
            }
        } else {
            print!("{}", report::outcome(outcome, stations));
            if let Some(trace) = trace {
                print!("\n{}", report::trace(trace));
            }
        }
        let failed = stations.has_sink() && outcome.faults_percent() > self.arguments.allow_loss;
        Ok(if failed { ExitCode::from(LOSS) } else { ExitCode::SUCCESS })
    }

    /// The throughput of each frame size.
    pub(super) fn throughput(
        &mut self,
        stations: &mut Stations,
        traffic: &mut TrafficOptions,
        sizes: &[FrameSize],
    ) -> Result<ExitCode> {
        let arguments = self.arguments;
        let options = TrialOptions {
            rate: arguments.rate.unwrap_or(Rate::Max),
            burst: usize::from(arguments.burst),
            count: None,
            duration_ns: Some((arguments.trial * 1e9) as u64),
            catches_up: false,
            settle_ns: self.settle_ns(2.0),
        };
        // Learning frames (RFC 2544, section 23): the router asks for the link address of each destination once, and
        // may drop the packets that made it ask. Nobody judges these.
        traffic.size = sizes[0].clone();
        let learning = TrialOptions {
            rate: Rate::Packets(1_000.0),
            count: Some(u64::from(traffic.flows).clamp(10, 2_000)),
            duration_ns: None,
            ..options
        };
        self.trial(stations, traffic, &learning)?;
        let mut results = Vec::new();
        for size in sizes {
            traffic.size = size.clone();
            let found = rfc2544::search(options.rate, arguments.resolution, |rate| {
                let outcome = self.trial(stations, traffic, &TrialOptions { rate, ..options })?;
                if self.interrupted.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                let offered = rfc2544::judge(&outcome, arguments.allow_loss);
                if !arguments.quiet {
                    graph::note!(
                        "size {size}, {} frames/s: {} sent, {} lost{}",
                        router::table::thousands(offered.pps as u64),
                        router::table::thousands(outcome.sent),
                        router::table::thousands(outcome.lost()),
                        if offered.passed { "" } else { " - too fast" }
                    );
                }
                Ok(Some((offered, outcome)))
            })?;
            let Some(found) = found else { break };
            if arguments.json {
                for line in report::throughput_json(size, &found) {
                    println!("{line}");
                }
            }
            results.push((size.clone(), found));
        }
        if !arguments.json {
            print!("{}", report::throughput(&results));
        }
        if results.len() < sizes.len() {
            bail!("interrupted after {} of {} frame sizes", results.len(), sizes.len());
        }
        let all_found = results.iter().all(|(_, found)| found.best.is_some());
        Ok(if all_found { ExitCode::SUCCESS } else { ExitCode::from(LOSS) })
    }
}
