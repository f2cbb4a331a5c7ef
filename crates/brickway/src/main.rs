//! The program: subcommands and nothing else. Each has its file; what they do is in the crates below.

#![forbid(unsafe_code)]

mod bench;
mod beside_linux;
mod check;
mod click;
mod cluster;
mod demo;
mod doctor;
mod drop_in;
mod generate;
mod load;
mod manual;
mod model;
mod notify;
mod output;
mod plan;
mod plot;
mod progress;
mod published;
mod rib;
mod run;
mod settings;
mod show;
mod sim;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A software router. Its behaviour is a Click configuration: elements wired together, in a file that you
/// can read and change.
#[derive(Parser, Debug)]
#[command(
    name = "brickway",
    version,
    after_help = "Examples:
  brickway demo                                 see it route between four Linux hosts
  brickway demo --cluster                       see four servers that are one router, and two of them die
  brickway run examples/ip-router.click         run a router until Ctrl-C
  brickway check router.click --dot | dot -Tsvg -o router.svg
  brickway help DecIPTTL                        the manual of an element

Exit codes: 0 done, 1 the configuration or the machine does not allow it, 2 wrong usage, 3 packets were lost
(gen), a check failed (demo, show drift) or a restart is needed (reload), 4 no router answers (show, set, reload).",
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a configuration
    Run(run::RunArguments),
    /// Many servers, one router: run this server as a node of a cluster
    Cluster(cluster::ClusterArguments),
    /// Run a configuration as the program `click` does, with its command line
    Click(click::ClickArguments),
    /// Check a configuration: mistakes, elements, connections; nothing is opened
    Check(check::CheckArguments),
    /// Find what keeps this machine from routing well, and put it right
    Doctor(doctor::DoctorArguments),
    /// Show what a running router has and does: ports, routes, drops, load, ...
    Show(show::ShowArguments),
    /// Change a setting of a running router, or write a handler
    Set(show::SetArguments),
    /// Have a running router read its settings again
    Reload(show::ReloadArguments),
    /// List the elements that configurations may use
    Elements(manual::ElementsArguments),
    /// Show the manual of an element, or this program's help
    Help(manual::HelpArguments),
    /// Plan a cluster: how many servers, wired how, what it costs
    Plan(plan::PlanArguments),
    /// Predict what a server can forward, and what stops it
    Model(model::ModelArguments),
    /// Simulate clusters: throughput, loss and order of any traffic, and what failures cost
    Sim(sim::SimArguments),
    /// Generate traffic on a port and judge what comes back
    Gen(generate::GenerateArguments),
    /// Show, count, grow and compare routing tables: text, MRT dumps, 'ip route'
    #[command(subcommand)]
    Rib(rib::RibCommand),
    /// Measure
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Route between four Linux hosts on this machine, and show that it works (needs root)
    Demo(demo::DemoArguments),
}

fn main() -> ExitCode {
    // Click's command line has its own meaning of -h, and its own exit codes.
    let words: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let is_named_click = |word: &std::ffi::OsString| {
        std::path::Path::new(word).file_name().is_some_and(|name| name == "click")
    };
    if words.first().is_some_and(is_named_click) {
        return click::from_words(&words);
    }
    if words.get(1).is_some_and(|word| word == "click") {
        return click::from_words(&words[1..]);
    }
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Cluster(arguments) => cluster::cluster(&arguments),
        // Read above.
        Command::Click(_) => Ok(ExitCode::FAILURE),
        Command::Check(arguments) => check::check(&arguments),
        Command::Doctor(arguments) => doctor::doctor(&arguments),
        Command::Show(arguments) => show::show(&arguments),
        Command::Set(arguments) => show::set(&arguments),
        Command::Reload(arguments) => show::reload(&arguments),
        Command::Elements(arguments) => manual::elements(&arguments),
        Command::Help(arguments) => manual::help(&arguments),
        Command::Plan(arguments) => plan::plan(&arguments),
        Command::Model(arguments) => model::model(&arguments),
        Command::Sim(arguments) => sim::sim(&arguments),
        Command::Gen(arguments) => generate::generate(&arguments),
        Command::Rib(command) => rib::rib(&command),
        Command::Bench(command) => bench::bench(&command),
        Command::Demo(arguments) => demo::demo(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            graph::note!("brickway: {error:#}");
            ExitCode::FAILURE
        }
    }
}
