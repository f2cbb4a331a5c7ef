//! The laboratory: subcommands that measure, plan and show the router. Each has its folder.

#![forbid(unsafe_code)]

mod bench;
mod demo;
mod generate;
mod model;
mod paper;
mod plan;
mod plot;
mod program;
mod progress;
mod rib;
mod sim;
mod tables;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// The laboratory of the Brickway router: see it work, measure it, plan clusters of it.
#[derive(Parser, Debug)]
#[command(
    name = "brickway-lab",
    version,
    after_help = "Examples:
  brickway-lab demo                     see a router between four Linux hosts (needs root)
  brickway-lab demo --cluster           see four servers that are one router; two of them die
  brickway-lab bench forward            what a packet costs, element by element
  brickway-lab gen --help               send packets through a router and judge what comes back
  brickway-lab rib stats data/rib-v4.txt.gz

Exit codes:
  0    done
  1    the machine does not allow it, or an input is wrong
  2    wrong usage
  3    packets were lost (gen), a step failed (demo) or a claim does not hold (paper)
  130  interrupted (demo)"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Route between four Linux hosts on this machine, and show that it works (needs root)
    Demo(demo::DemoArguments),
    /// Measure
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Generate traffic on a port and judge what comes back
    Gen(generate::GenerateArguments),
    /// Show, count, grow and compare routing tables: text, MRT dumps, 'ip route'
    #[command(subcommand)]
    Rib(rib::RibCommand),
    /// Plan a cluster: how many servers, wired how, what it costs
    Plan(plan::PlanArguments),
    /// Predict what a server can forward, and what stops it
    Model(model::ModelArguments),
    /// Simulate clusters: throughput, loss and order of any traffic, and what failures cost
    Sim(sim::SimArguments),
    /// Reproduce five papers on software routers: published, ours, deviation, figures
    Paper(paper::PaperArguments),
    /// Write the man pages of this program
    Man {
        /// The folder that gets the pages; it is made where it is not there
        folder: PathBuf,
    },
}

fn main() -> ExitCode {
    let matches = router::output::flowing_help(Cli::command()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|mistake| mistake.exit());
    let result = match cli.command {
        Command::Demo(arguments) => demo::demo(&arguments),
        Command::Bench(command) => bench::bench(&command),
        Command::Gen(arguments) => generate::generate(&arguments),
        Command::Rib(command) => rib::rib(&command),
        Command::Plan(arguments) => plan::plan(&arguments),
        Command::Model(arguments) => model::model(&arguments),
        Command::Sim(arguments) => sim::sim(&arguments),
        Command::Paper(arguments) => paper::paper(&arguments),
        Command::Man { folder } => {
            router::man::write_commands(Cli::command(), &folder).map(|()| ExitCode::SUCCESS)
        }
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            graph::note!("brickway-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    /// Values in sentences may be names, such as PORT.
    #[test]
    fn commands_in_documents_are_known() {
        use clap::error::ErrorKind::{self, InvalidSubcommand, UnknownArgument};
        let mut wrong = Vec::new();
        let commands = testbed::documents::commands_of("brickway-lab");
        assert!(commands.len() > 50, "{}", commands.len());
        for documented in commands {
            let Err(mistake) = Cli::command().try_get_matches_from(&documented.words) else { continue };
            let is_help = matches!(mistake.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            let is_unknown = matches!(mistake.kind(), UnknownArgument | InvalidSubcommand);
            if !is_help && (documented.is_whole || is_unknown) {
                wrong.push(format!("{}: {}\n{mistake}", documented.place, documented.words.join(" ")));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn help_follows_the_rules_of_english() {
        assert_eq!(testbed::prose::in_command(&Cli::command()), Vec::new());
    }
}
