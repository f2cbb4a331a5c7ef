//! `brickway-lab rib`: routing tables in files, for the operator who wants to know what is in one and for the researcher
//! who needs another one.
//!
//! | file | what is in it |
//! | --- | --- |
//! | `input.rs` | opens a file, finds out what it is, reads it; what happens to bad rows |
//! | `mrt.rs` | MRT dumps (RFC 6396), one origin for each prefix |
//! | `route.rs` | a route of either kind: with an origin, or with next hops |
//! | `compile.rs` | from routes of a file to routes by number of their next hop |
//! | `cost.rs` | what the tables compiled from them cost; for `stats` |
//! | `lookups.rs`, `churn.rs` | lookups against the routes, random changes and back; for `check` |
//! | `show.rs`, `stats.rs`, `check.rs`, `synth.rs`, `diff.rs` | a subcommand each |

mod check;
mod churn;
mod compile;
mod cost;
mod diff;
mod input;
mod lookups;
mod mrt;
mod route;
mod show;
mod stats;
mod synth;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// Routing tables in files: PREFIX ORIGIN text, MRT dumps, the output of 'ip route'.
#[derive(Subcommand, Debug)]
#[command(after_help = "A FILE is one of these, recognised by its content ('-' is standard input):
  text      '192.0.2.0/24 64496' a line: a prefix and the AS that announces it; one family
  mrt       TABLE_DUMP_V2, as route collectors publish it: rib.20260101.0000.bz2, bview.20260101.0000.gz
  ip-route  what 'ip route' or 'ip -6 route' prints
Each may be compressed with gzip or bzip2.

Examples:
  brickway-lab rib stats data/rib-v4.txt.gz
  brickway-lab rib show bview.gz 192.0.2.1             the route to an address
  brickway-lab rib show bview.gz -4 > table.txt        an MRT dump as the FILE of a lookup element
  ip -6 route | brickway-lab rib show - 2001:db8::/32  what covers a prefix and what is inside it
  brickway-lab rib check bview.gz --changes 100000     whether the router's tables say what the routes say
  brickway-lab rib synth data/rib-v4.txt.gz --routes 1000000 --output million.txt.gz
  brickway-lab rib diff yesterday.bz2 today.bz2

A bad row is reported with its line and left out. --strict refuses the whole file.
Exit codes: 0 good, 1 an error (with --strict any bad row, for 'check' a wrong table), 2 wrong usage. 'diff' has its own.")]
pub(crate) enum RibCommand {
    /// Print the routes: all, that to an address, or those around a prefix
    Show(show::ShowArguments),
    /// Count families, prefix lengths, origins or next hops, nesting, and the cost of the compiled tables
    Stats(stats::StatsArguments),
    /// Compare the compiled tables with the routes, address by address
    Check(check::CheckArguments),
    /// Make a table of another size from a real one
    Synth(synth::SynthArguments),
    /// Compare two tables
    Diff(diff::DiffArguments),
}

pub(crate) fn rib(command: &RibCommand) -> Result<ExitCode> {
    match command {
        RibCommand::Show(arguments) => show::show(arguments),
        RibCommand::Stats(arguments) => stats::stats(arguments),
        RibCommand::Check(arguments) => check::check(arguments),
        RibCommand::Synth(arguments) => synth::synth(arguments),
        RibCommand::Diff(arguments) => Ok(diff::diff(arguments)),
    }
}
