//! The router as a program: what its subcommands are; each has its file or folder. What they do is in the crates below.
//!
//! Benches and demos use some of it too: how configurations are read, the texts of a router and a cluster, tables.

#![forbid(unsafe_code)]

mod beside_linux;
pub mod capture;
mod check;
mod click;
pub mod cluster;
mod completion;
mod doctor;
pub mod drop_in;
mod export;
mod features;
mod flows;
pub mod interrupt;
pub mod load;
mod log;
pub mod man;
mod manual;
mod moment;
mod new;
mod notify;
mod open_files;
pub mod output;
mod profile;
pub mod run;
pub mod settings;
mod show;
pub mod table;
mod top;
#[cfg(feature = "web")]
mod web;
mod whole_frames;

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use fib::TableKind;
use graph::Class;
use graph::graph::Registry;
use ports::DriverDoc;

/// A software router. 'brickway run eth1 eth2' forwards between these ports in Linux's place: faster, by Linux's own
/// routes and neighbours. Ctrl-C gives the ports back. Configurations in the Click language, Lua and Rust change the data plane.
#[derive(Parser, Debug)]
#[command(
    name = "brickway",
    version,
    after_help = "Examples:
  brickway run eth1 eth2                   forward between two ports in Linux's place, until Ctrl-C
  brickway show ports                      what went through each of them
  brickway top                             the same as it changes, with drops, workers and elements
  brickway monitor                         what happens: links, reloads, who changed what
  brickway show changes --since 3:10       what routes were and became since then
  brickway show cost                       where the workers' cycles go, element by element
  brickway flows eth1                      which flow fills the link
  brickway profile 10                      the same by function, as a flame graph
  brickway capture eth1 icmp               its packets, where tcpdump sees none
  brickway run examples/ip-router.click    run a configuration
  brickway check router.click --dot | dot -Tsvg -o router.svg
  brickway help DecIPTTL                   the manual of an element

A demo, benches, a traffic generator, plans and simulations of clusters: brickway-lab --help

Exit codes:
  0  done
  1  the configuration or the machine does not allow it
  2  wrong usage
  3  a check failed (show drift) or a restart is needed (reload)
  4  no router answers (show, top, monitor, set, reload, flows, capture, trace, profile)",
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Subcommands under headings, in the order in which they are needed.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Operate",
        &[
            "run", "cluster", "show", "top", "monitor", "set", "reload", "flows", "capture", "trace",
            "profile", "doctor",
        ],
    ),
    ("Program", &["lua", "check", "elements", "help", "new", "man"]),
    ("Click", &["click"]),
    ("Wireshark", &["extcap"]),
];

#[derive(Subcommand, Debug)]
enum Command {
    /// Forward between ports, or run a configuration
    Run(run::RunArguments),
    /// Forward between ports by a Lua script
    Lua(run::LuaArguments),
    /// Many servers, one router: run this server as a node of a cluster
    Cluster(cluster::ClusterArguments),
    /// Run a configuration as the program `click` does, with its command line
    Click(click::ClickArguments),
    /// Check a configuration without opening ports: mistakes, elements, connections
    Check(check::CheckArguments),
    /// Find what keeps this machine from routing well, and put it right
    Doctor(doctor::DoctorArguments),
    /// Show what a running router has and does: ports, routes, drops, load, ...
    Show(show::ShowArguments),
    /// Watch a running router: rates of ports, workers, drops, punts, elements
    Top(top::TopArguments),
    /// Print what happens to a running router: links, reloads, who changed what, leaders, faults
    Monitor(log::monitor::MonitorArguments),
    /// Change a setting of a running router, or write a handler
    Set(show::SetArguments),
    /// Draw where a running router's threads spend their time: a flame graph
    Profile(profile::ProfileArguments),
    /// Have a running router read its settings again
    Reload(show::ReloadArguments),
    /// Show which flows fill a running router's links
    Flows(flows::FlowsArguments),
    /// Capture packets of a running router, as tcpdump does: of ports, between elements, those dropped
    Capture(capture::CaptureArguments),
    /// Follow packets through a running router: what each element does to them
    Trace(capture::TraceArguments),
    /// List and capture a running router's ports for Wireshark
    Extcap(capture::ExtcapArguments),
    /// List the elements that configurations may use
    Elements(manual::ElementsArguments),
    /// Make a crate with an element of your own
    New(new::NewArguments),
    /// Show the manual of an element, or this program's help
    Help(manual::HelpArguments),
    /// Write the man pages of this program, its settings files and its elements
    Man(man::ManArguments),
}

/// The command line, its subcommands in groups.
fn command() -> clap::Command {
    let command = output::flowing_help(Cli::command());
    let mut groups = String::new();
    for (heading, names) in GROUPS {
        // Writing to a string does not fail.
        let _ = writeln!(groups, "{heading}:");
        for name in names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let _ = writeln!(groups, "  {name:<9} {}", about.map(ToString::to_string).unwrap_or_default());
        }
        groups.push('\n');
    }
    let template = "{about-with-newline}\n{usage-heading} {usage}\n\nGROUPSOptions:\n{options}{after-help}";
    command.help_template(template.replace("GROUPS", &groups))
}

/// Classes of the program that is made of this library ([`main_with`]).
static MORE_CLASSES: OnceLock<&'static [&'static Class]> = OnceLock::new();

/// Returns the element classes that configurations may use.
pub fn classes() -> Registry {
    #[cfg(feature = "click")]
    let mut registry = ::click::registry();
    #[cfg(not(feature = "click"))]
    let mut registry = elements::registry();
    #[cfg(feature = "lua")]
    registry.add(lua::CLASSES);
    registry.add(MORE_CLASSES.get().copied().unwrap_or_default());
    registry
}

/// What a program that is made of this library has beside what ours has.
#[derive(Clone, Copy, Debug, Default)]
pub struct More {
    /// Element classes; one takes the place of ours of the same name.
    pub classes: &'static [&'static Class],
    /// Drivers of ports.
    pub drivers: &'static [&'static DriverDoc],
    /// Forwarding tables.
    pub tables: &'static [TableKind],
}

/// Runs the program with elements, drivers and forwarding tables beside its own (`examples/custom-element`).
pub fn main_with(more: More) -> ExitCode {
    // Only the first call counts, and a program has one `main`.
    let _ = MORE_CLASSES.set(more.classes);
    ports::add_drivers(more.drivers);
    fib::add_tables(more.tables);
    main()
}

/// Runs the program with the process's command line.
pub fn main() -> ExitCode {
    completion::complete();
    open_files::raise_limit();
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
    let mut words = words;
    if words.first().is_some_and(|word| capture::is_extcap(word.as_ref())) {
        words.insert(1, "extcap".into());
    }
    let parsed = command().try_get_matches_from(words).map_err(|mistake| meant(mistake, &command()));
    let cli = match parsed.and_then(|parsed| Cli::from_arg_matches(&parsed)) {
        Ok(cli) => cli,
        Err(mistake) => mistake.exit(),
    };
    let result = match cli.command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Lua(arguments) => run::lua(&arguments),
        Command::Cluster(arguments) => cluster::cluster(&arguments),
        // Read above.
        Command::Click(_) => Ok(ExitCode::FAILURE),
        Command::Check(arguments) => check::check(&arguments),
        Command::Doctor(arguments) => doctor::doctor(&arguments),
        Command::Show(arguments) => show::show(&arguments),
        Command::Top(arguments) => top::top(&arguments),
        Command::Monitor(arguments) => log::monitor::monitor(&arguments),
        Command::Set(arguments) => show::set(&arguments),
        Command::Profile(arguments) => profile::profile(&arguments),
        Command::Reload(arguments) => show::reload(&arguments),
        Command::Flows(arguments) => flows::flows(&arguments),
        Command::Capture(arguments) => capture::capture(&arguments),
        Command::Trace(arguments) => capture::trace(&arguments),
        Command::Extcap(arguments) => capture::extcap(&arguments),
        Command::Elements(arguments) => manual::elements(&arguments),
        Command::New(arguments) => new::new(&arguments),
        Command::Help(arguments) => manual::help(&arguments),
        Command::Man(arguments) => man::man(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            graph::note!("brickway: {}", graph::messages::printable_lines(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

/// Has a mistake name the command that was meant, if one is near enough: `run` of 'rnu'.
fn meant(mut mistake: clap::Error, command: &clap::Command) -> clap::Error {
    use clap::error::{ContextKind, ContextValue};
    let Some(ContextValue::String(word)) = mistake.get(ContextKind::InvalidSubcommand) else {
        return mistake;
    };
    let known = command.get_subcommands().filter(|known| !known.is_hide_set()).map(clap::Command::get_name);
    if let Some(near) = graph::lang::nearest(word, known) {
        let near = ContextValue::Strings(vec![near.to_owned()]);
        mistake.insert(ContextKind::SuggestedSubcommand, near);
    }
    mistake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_command_names_the_one_that_was_meant() {
        let said = |word: &str| {
            let mistake = command().try_get_matches_from(["brickway", word]).unwrap_err();
            meant(mistake, &command()).to_string()
        };
        assert!(said("rnu").contains("'run'"), "{}", said("rnu"));
        assert!(!said("frobnicate").contains("similar"), "{}", said("frobnicate"));
    }

    #[test]
    fn every_subcommand_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        grouped.sort_unstable();
        let command = Cli::command();
        let mut known: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        known.sort_unstable();
        assert_eq!(grouped, known);
        let help = super::command().render_help().to_string();
        assert!(help.contains("Operate:\n  run       Forward between ports"), "{help}");
    }

    /// Values in sentences may be names, such as PORT.
    #[test]
    fn commands_in_documents_are_known() {
        use clap::error::ErrorKind::{self, InvalidSubcommand, UnknownArgument};
        let mut wrong = Vec::new();
        let commands = testbed::documents::commands_of("brickway");
        assert!(commands.len() > 100);
        for documented in commands {
            let Err(mistake) = super::command().try_get_matches_from(&documented.words) else { continue };
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
        assert_eq!(testbed::prose::in_command(&super::command()), Vec::new());
    }
}
