//! `brickway-lab bench mixed`: mixed traffic beside its parts: IMIX sizes, both families, IPv4 options, packets whose time to live
//! ends here, VLAN tags.
//!
//! Each kind of packet is measured by itself and in mixtures. The shares of a mixture's parts give its expected cycles, and the
//! mixture should not take much more: packets that go another way, such as those with options, which go to Linux, must not slow
//! those beside them. Cases `options=N%` and `tagged=N%` are a curve over the share of one kind.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use packet::cycles;
use packet::random::SplitMix64;
use ports::{MemoryLoop, OpenOptions, Port};

use super::proof::{Model, prove};
use super::runs::RunArguments;
use super::single_core::ROUTER_PORTS;
use super::{drop_in, frames, median, print_figure, routes};
use router::output::{say, say_line};
use router::table::{Align, Table};

/// Measures mixed traffic through the graph of `brickway run PORT...`, in memory, on one core.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab bench mixed
  brickway-lab bench mixed --dests 65536 --json
  BRICKWAY_CPU=avx2 brickway-lab bench mixed     as on a CPU without AVX-512 (scalar: no vectors)

Kinds: ipv4, ipv6, options (IPv4 with options), expired (IPv4 with a TTL of 1), and tagged (IPv4
with a VLAN tag). 'all' is half ipv6, 10% tagged, 1% options, 0.1% expired, and the rest ipv4.
'parts' are the cycles of a mixture's kinds by themselves, by their shares. 'ratio' is the mixture
over that. Linux gets options and expired. They end at the port that stands for Linux, and no work
of Linux is in the figures.")]
pub(crate) struct MixedArguments {
    /// The real IPv4 table
    #[arg(long, default_value_os_t = crate::tables::ipv4(), value_name = "FILE")]
    table: PathBuf,
    /// The real IPv6 table
    #[arg(long, default_value_os_t = crate::tables::ipv6(), value_name = "FILE")]
    table6: PathBuf,
    /// Different destination addresses of each family
    #[arg(long, default_value_t = 4096)]
    dests: usize,
    #[command(flatten)]
    run: RunArguments,
}

/// Frames of a case.
const FRAMES: usize = 8_192;

/// A kind of packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ipv4,
    Ipv6,
    Options,
    Expired,
    Tagged,
}

const KINDS: [Kind; 5] = [Kind::Ipv4, Kind::Ipv6, Kind::Options, Kind::Expired, Kind::Tagged];

impl Kind {
    fn is_left_to_linux(self) -> bool {
        matches!(self, Self::Options | Self::Expired)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Options => "options",
            Self::Expired => "expired",
            Self::Tagged => "tagged",
        }
    }
}

/// A mixture: shares of kinds, which add up to 1.
type Shares = Vec<(Kind, f64)>;

/// The cases: kinds by themselves, curves, and all together.
fn cases() -> Vec<(String, Shares)> {
    let mut cases: Vec<(String, Shares)> =
        KINDS.into_iter().map(|kind| (kind.name().to_owned(), vec![(kind, 1.0)])).collect();
    for kind in [Kind::Options, Kind::Tagged] {
        for percent in [1, 2, 5, 10, 25, 50] {
            let share = f64::from(percent) / 100.0;
            cases.push((
                format!("{}={percent}%", kind.name()),
                vec![(Kind::Ipv4, 1.0 - share), (kind, share)],
            ));
        }
    }
    let all = [(Kind::Ipv6, 0.5), (Kind::Options, 0.01), (Kind::Expired, 0.001), (Kind::Tagged, 0.1)];
    let rest = 1.0 - all.iter().map(|(_, share)| share).sum::<f64>();
    cases.push(("all".into(), all.into_iter().chain([(Kind::Ipv4, rest)]).collect()));
    cases
}

/// Frames of these kinds at random, by their shares. Of 12 frames 7 have 64 bytes, 4 have 590 and one has 1,514, without the
/// frame check sequence.
fn mixture(shares: &Shares, templates: &dyn Fn(Kind, usize) -> Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    const SIZES: [(usize, u32); 3] = [(64, 7), (590, 4), (1_514, 1)];
    let made = |kind: Kind| SIZES.map(|(size, _)| templates(kind, size));
    let templates: Vec<(f64, [Vec<Vec<u8>>; 3])> =
        shares.iter().map(|&(kind, share)| (share, made(kind))).collect();
    let mut random = SplitMix64::new(9);
    let mut unit = || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    (0..FRAMES)
        .map(|number| {
            let mut place = unit();
            let of_kind = templates.iter().find(|(share, _)| {
                place -= share;
                place < 0.0
            });
            let (_, by_size) = of_kind.unwrap_or(&templates[0]);
            let twelfth = (unit() * 12.0) as u32;
            let size = usize::from(twelfth >= 7) + usize::from(twelfth >= 11);
            by_size[size][number % by_size[size].len()].clone()
        })
        .collect()
}

pub(crate) fn mixed(arguments: &MixedArguments) -> Result<ExitCode> {
    arguments.run.check()?;
    super::runs::check_destinations(&[arguments.dests])?;
    let rows = routes::real::<u32>(&arguments.table)?;
    let rows6 = routes::real::<u128>(&arguments.table6)?;
    let mut fib = drop_in::fib(&rows)?;
    drop_in::fill(&mut fib, &rows6)?;
    let model = Model::of_drop_in(&rows, &rows6);
    let templates = |kind: Kind, size: usize| {
        let mut frames = match kind {
            Kind::Ipv6 => frames::templates_6(&rows6, arguments.dests, size),
            _ => frames::templates(&rows, arguments.dests, size),
        };
        for frame in &mut frames {
            match kind {
                Kind::Ipv4 | Kind::Ipv6 => {}
                Kind::Options => frames::add_options(frame),
                Kind::Expired => frames::expire(frame),
                Kind::Tagged => frames::tag(frame, drop_in::VLAN),
            }
        }
        frames
    };
    let burst = arguments.run.burst;
    let router = |ports: [Box<dyn Port>; ROUTER_PORTS]| drop_in::router_with_vlan(ports, &fib, burst);
    let mut routers = Vec::new();
    for (case, shares) in cases() {
        let frames = mixture(&shares, &templates);
        prove(&frames, &model, false, router).with_context(|| format!("case {case}"))?;
        let null = || ports::open("null:", &OpenOptions::default());
        let mut core = router([Box::new(MemoryLoop::new(frames)), null()?, null()?, null()?])?;
        core.run(arguments.run.seconds.min(0.1));
        core.reset_stats();
        routers.push((case, shares, core, Vec::new()));
    }
    for _ in 0..arguments.run.runs {
        for (.., core, runs) in &mut routers {
            runs.push(core.run(arguments.run.seconds).cycles_per_packet());
        }
    }
    for (case, shares, core, _) in &mut routers {
        let some_to_linux = shares.iter().any(|(kind, _)| kind.is_left_to_linux());
        core.checked_stats(some_to_linux).with_context(|| format!("case {case}"))?;
    }
    let measured: Vec<(String, Shares, f64)> =
        routers.into_iter().map(|(case, shares, _, runs)| (case, shares, median(runs))).collect();
    report(arguments, &measured);
    Ok(ExitCode::SUCCESS)
}

fn report(arguments: &MixedArguments, measured: &[(String, Shares, f64)]) {
    let alone =
        |kind: Kind| measured.iter().find(|(case, ..)| case == kind.name()).map_or(f64::NAN, |found| found.2);
    let mut table = Table::new(&[
        ("case", Align::Left),
        ("Mpps", Align::Right),
        ("cycles/packet", Align::Right),
        ("parts", Align::Right),
        ("ratio", Align::Right),
    ]);
    arguments.run.say_heading(
        "mixed",
        &format!("64, 590 and 1,514 bytes 7:4:1, {} destinations of each family", arguments.dests),
        "one core",
    );
    for (case, shares, cycles) in measured {
        let parts: f64 = shares.iter().map(|&(kind, share)| share * alone(kind)).sum();
        let mpps = cycles::per_second() / cycles / 1e6;
        if arguments.run.json {
            print_figure("mixed", case, "mpps", mpps, "Mpps");
            print_figure("mixed", case, "cycles_per_packet", *cycles, "TSC cycles");
            print_figure("mixed", case, "of_its_parts", cycles / parts, "ratio");
        }
        table.row([
            case.clone(),
            format!("{mpps:.1}"),
            format!("{cycles:.1}"),
            format!("{parts:.1}"),
            format!("{:.2}", cycles / parts),
        ]);
    }
    if !arguments.run.json {
        say!("{}", table.render());
        say_line!(
            "\noptions and expired end at the port that stands for Linux: no work of Linux is in the figures"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixtures_have_their_shares() {
        let templates = |kind: Kind, size: usize| vec![vec![kind as u8; size]];
        for (case, shares) in cases() {
            assert!((shares.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9, "{case}");
            let frames = mixture(&shares, &templates);
            for (kind, share) in &shares {
                let count = frames.iter().filter(|frame| frame[0] == *kind as u8).count() as f64;
                assert!((count / FRAMES as f64 - share).abs() < 0.02, "{case} {kind:?}: {count}");
            }
            let small = frames.iter().filter(|frame| frame.len() == 64).count() as f64;
            assert!((small / FRAMES as f64 - 7.0 / 12.0).abs() < 0.03, "{case}: {small}");
        }
    }
}
