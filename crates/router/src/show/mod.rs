//! `brickway show`, `set` and `reload`: asking a router that runs, over its control socket.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | the command lines, and the requests that they mean |
//! | `tables` | rows as people read them, printed as they come |
//! | `changes` | the history of routes |
//! | `cluster` | the tables of `show cluster`, and how even it is |
//! | `cost` | the table of `show cost`, which is sorted |

mod changes;
mod cluster;
mod cost;
mod tables;

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::engine::ArgValueCandidates;
use control::api::{
    Action, Client, ClientError, ConfigFilter, DropFilter, HandlerFilter, NeighbourFilter, NextHopFilter,
    NoFilter, PortFilter, Request, RouteFilter, RouteQuery, Show, TableQuery, default_socket,
    routers_elsewhere,
};
use ipnet::IpNet;
use packet::IpVersion;

use crate::completion;
use crate::features::FeatureSettings;
use crate::output::print;
use crate::settings::Settings;
use crate::table::{Align, Table};

pub(crate) use tables::{link_state, parse, uptime, worker_name};

/// No router answers at the socket.
const NOBODY: u8 = 4;
/// The router is not as it should be: its tables differ from Linux's.
const DIFFERS: u8 = 3;
/// The router would have to start again.
const NEEDS_RESTART: u8 = 3;

/// Where a running router is asked.
#[derive(Args, Debug)]
pub(crate) struct Socket {
    /// The control socket of the router (default: that of this network namespace in /run/brickway)
    #[arg(long = "socket", value_name = "PATH", global = true)]
    path: Option<PathBuf>,
}

impl Socket {
    /// Returns where the router's socket is.
    pub(crate) fn path(&self) -> PathBuf {
        self.path.clone().unwrap_or_else(default_socket)
    }
}

/// Shows what a running router has and does. Without WHAT: what can be shown.
#[derive(Args, Debug)]
#[command(
    subcommand_value_name = "WHAT",
    subcommand_help_heading = "What",
    after_help = "Examples:
  brickway show routes --protocol bgp       the routes that BGP brought
  brickway show routes 10.0.0.0/8           10.0.0.0/8 and what is inside it
  brickway show route 192.0.2.7             what the workers do with packets to 192.0.2.7
  brickway show route 192.0.2.7 --from 10.0.1.2 --iif eth1
  brickway show drops --json | jq .packets
  brickway show changes --since 3:10        what routes were and became since then
  brickway show cost                        where the workers' cycles go

Exit codes:
  0  good
  1  the router refuses, or there is no route
  2  wrong usage
  3  'show drift' found differences
  4  no router answers at the socket"
)]
pub(crate) struct ShowArguments {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    socket: Socket,
    /// Print one JSON object a row
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum What {
    /// The ports: packets, bytes, rates, link, driver, addresses
    Ports {
        /// This port only
        #[arg(add = ArgValueCandidates::new(completion::ports))]
        port: Option<String>,
    },
    /// What the ports moved in each second of the last five minutes
    History {
        /// This port only
        #[arg(add = ArgValueCandidates::new(completion::ports))]
        port: Option<String>,
    },
    /// The routes that Linux and the routing daemons told the router
    Routes(RoutesArguments),
    /// What the workers do with packets to an address, by the policy rules
    Route {
        address: IpAddr,
        /// With packets from this address
        #[arg(long, value_name = "ADDRESS")]
        from: Option<IpAddr>,
        /// With packets that come in by this port
        #[arg(long, value_name = "PORT", add = ArgValueCandidates::new(completion::ports))]
        iif: Option<String>,
        /// By this table alone
        #[arg(long, conflicts_with_all = ["from", "iif"])]
        table: Option<u32>,
    },
    /// The neighbours on the links
    #[command(visible_alias = "neighbors")]
    Neighbours {
        /// On this interface
        #[arg(long, value_name = "INTERFACE", add = ArgValueCandidates::new(completion::interfaces))]
        dev: Option<String>,
        #[command(flatten)]
        family: FamilyArguments,
    },
    /// The next hops of the forwarding tables
    NextHops {
        /// The one of this number
        id: Option<u32>,
    },
    /// The threads that move packets: load, cost of a packet, queues
    Workers,
    /// What each step of the packets' way costs: cycles a packet, share of the worker
    Cost(cost::CostArguments),
    /// The queues of the ports, and who has them
    Queues {
        /// Those of this port
        #[arg(add = ArgValueCandidates::new(completion::ports))]
        port: Option<String>,
    },
    /// Packets that were dropped, by whom and why
    Drops {
        /// Those whose element or reason contains this text
        text: Option<String>,
    },
    /// Packets that left the usual way, for Linux or to be answered, and why
    Punts {
        /// Those whose element or reason contains this text
        text: Option<String>,
    },
    /// The elements of the graph: packets, drops, cycles, where packets go
    Elements,
    /// The router itself: version, process, uptime, tables
    System,
    /// The settings in force, as a settings file
    Config {
        /// The Click configuration that was made of them
        #[arg(long)]
        click: bool,
    },
    /// Whether Linux's routes and the forwarding tables agree
    Drift,
    /// The cluster of which the router is a node: who is there, and whether its load is even
    Cluster,
    /// What routes were and became, and when
    Changes(changes::ChangesArguments),
    /// How the mirror of Linux's state does
    Netlink,
    /// How the connection of FRR's forwarding plane manager does
    Fpm,
    /// What Linux has that the fast path leaves to it
    Problems,
    /// The handlers of the elements, or the value of one
    Handlers {
        /// ELEMENT.HANDLER for a value, ELEMENT for a list
        #[arg(add = ArgValueCandidates::new(completion::handlers))]
        name: Option<String>,
    },
    #[command(flatten)]
    Feature(FeatureTable),
}

/// A table of a feature, by its name.
#[derive(Debug)]
struct FeatureTable(String);

impl Subcommand for FeatureTable {
    fn augment_subcommands(command: Command) -> Command {
        let tables = FeatureSettings::shown().into_iter();
        command.subcommands(tables.map(|shown| Command::new(shown.name).about(shown.about)))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        FeatureSettings::shown_as(name).is_some()
    }
}

impl FromArgMatches for FeatureTable {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let name = matches.subcommand_name().filter(|name| Self::has_subcommand(name));
        name.map(|name| Self(name.to_owned())).ok_or_else(|| clap::Error::new(ErrorKind::InvalidSubcommand))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[derive(Args, Debug)]
struct RoutesArguments {
    /// To this prefix, and those inside it
    #[arg(value_name = "PREFIX")]
    within: Option<IpNet>,
    #[command(flatten)]
    family: FamilyArguments,
    /// Of this table (default: all but 255, which has the router's own addresses)
    #[arg(long)]
    table: Option<u32>,
    /// Of this protocol: kernel, static, bgp, ospf, ...
    #[arg(long)]
    protocol: Option<String>,
    /// With a path over this interface
    #[arg(long, value_name = "INTERFACE", add = ArgValueCandidates::new(completion::interfaces))]
    dev: Option<String>,
}

#[derive(Args, Debug)]
struct FamilyArguments {
    /// IPv4 only
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// IPv6 only
    #[arg(short = '6')]
    ipv6: bool,
}

impl FamilyArguments {
    fn family(&self) -> Option<IpVersion> {
        match (self.ipv4, self.ipv6) {
            (true, _) => Some(IpVersion::V4),
            (_, true) => Some(IpVersion::V6),
            _ => None,
        }
    }
}

impl What {
    /// # Errors
    /// What is asked for makes no sense.
    fn request(&self) -> Result<Request> {
        Ok(Request::Show(match self {
            What::Ports { port } => Show::Ports(PortFilter { port: port.clone() }),
            What::History { port } => Show::History(PortFilter { port: port.clone() }),
            What::Routes(arguments) => Show::Routes(RouteFilter {
                family: arguments.family.family(),
                within: arguments.within.map(|prefix| prefix.trunc()),
                table: arguments.table,
                protocol: arguments.protocol.clone(),
                interface: arguments.dev.clone(),
            }),
            What::Route { address, from, iif, table } => {
                Show::Route(RouteQuery { address: *address, table: *table, from: *from, input: iif.clone() })
            }
            What::Neighbours { dev, family } => {
                Show::Neighbours(NeighbourFilter { family: family.family(), interface: dev.clone() })
            }
            What::NextHops { id } => Show::NextHops(NextHopFilter { id: *id }),
            What::Workers => Show::Workers(NoFilter {}),
            What::Cost(arguments) => Show::Cost(arguments.filter()),
            What::Queues { port } => Show::Queues(PortFilter { port: port.clone() }),
            What::Drops { text } => Show::Drops(DropFilter { containing: text.clone() }),
            What::Punts { text } => Show::Punts(DropFilter { containing: text.clone() }),
            What::Elements => Show::Elements(NoFilter {}),
            What::System => Show::System(NoFilter {}),
            What::Feature(FeatureTable(show)) => {
                return Ok(Request::Table(TableQuery { show: show.clone() }));
            }
            What::Config { click } => Show::Config(ConfigFilter { click: *click }),
            What::Drift => Show::Drift(NoFilter {}),
            What::Cluster => Show::Cluster(NoFilter {}),
            What::Changes(arguments) => Show::Changes(arguments.filter()?),
            What::Netlink => Show::Netlink(NoFilter {}),
            What::Fpm => Show::Fpm(NoFilter {}),
            What::Problems => Show::Problems(NoFilter {}),
            What::Handlers { name } => Show::Handlers(HandlerFilter { name: name.clone() }),
        }))
    }
}

/// Changes a setting of a running router until it ends or reloads, or writes a handler of one of its
/// elements.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway set workers.balance false
  brickway set --handler counter.reset

Exit codes: 0 done, 1 the router refuses, 2 wrong usage, 4 no router answers at the socket.")]
pub(crate) struct SetArguments {
    /// A setting by its name in the settings file, as workers.balance; with --handler ELEMENT.HANDLER
    #[arg(add = ArgValueCandidates::new(completion::live_settings))]
    name: String,
    /// Its value; a handler may have none
    #[arg(required_unless_present = "handler")]
    value: Option<String>,
    /// Write a handler of an element
    #[arg(long)]
    handler: bool,
    #[command(flatten)]
    socket: Socket,
}

/// Has a running router read its settings file again: all of it, or nothing where an option cannot change while it runs.
#[derive(Args, Debug)]
#[command(after_help = reload_help())]
pub(crate) struct ReloadArguments {
    #[command(flatten)]
    socket: Socket,
}

fn reload_help() -> String {
    let live = Settings::options().filter(|option| option.is_live).map(|option| option.name());
    format!(
        "These options can change while the router runs: {}.
SIGHUP does the same; the router then prints the result.

Exit codes: 0 done, 1 the router refuses, 2 wrong usage, 3 options need a restart and nothing was changed,
4 no router answers at the socket.",
        live.collect::<Vec<_>>().join(", ")
    )
}

pub(crate) fn show(arguments: &ShowArguments) -> Result<ExitCode> {
    let Some(what) = &arguments.what else {
        print(&what_there_is());
        return Ok(ExitCode::SUCCESS);
    };
    let request = what.request()?;
    let mut seen = tables::Seen::Nothing;
    let code = ask(&arguments.socket, &request, |rows| {
        if let What::Cost(cost) = what {
            return cost::print_rows(cost, rows, arguments.json);
        }
        seen = if arguments.json {
            tables::print_json(&request, rows)
        } else {
            tables::print_rows(&request, rows)
        }?;
        Ok(())
    })?;
    Ok(if seen == tables::Seen::Differences { ExitCode::from(DIFFERS) } else { code })
}

pub(crate) fn set(arguments: &SetArguments) -> Result<ExitCode> {
    let (name, value) = (arguments.name.clone(), arguments.value.clone().unwrap_or_default());
    let action = match arguments.handler {
        true => Action::Write { handler: name, value },
        false => Action::Set { option: name, value },
    };
    act(&arguments.socket, action)
}

pub(crate) fn reload(arguments: &ReloadArguments) -> Result<ExitCode> {
    act(&arguments.socket, Action::Reload {})
}

/// Has the router do something, and prints what it says about it.
fn act(socket: &Socket, action: Action) -> Result<ExitCode> {
    ask(socket, &Request::Do(action), |rows| tables::print_texts(rows))
}

/// Asks the router at `socket` and hands the rows to `print`. A router that is not there has its exit code.
fn ask(
    socket: &Socket,
    request: &Request,
    print: impl FnOnce(&mut dyn Iterator<Item = Result<String, ClientError>>) -> Result<()>,
) -> Result<ExitCode> {
    let mut client = match find(socket, request.is_privileged())? {
        Ok(client) => client,
        Err(code) => return Ok(code),
    };
    match client.ask(request) {
        Err(error @ ClientError::NeedsRestart(_)) => {
            eprintln!("brickway: {error}");
            Ok(ExitCode::from(NEEDS_RESTART))
        }
        answer => print(&mut answer?).map(|()| ExitCode::SUCCESS),
    }
}

/// Connects to the router at `socket`, to show something or to change something. The exit code of one that is not there, which
/// was reported.
///
/// # Errors
/// It cannot be asked.
pub(crate) fn find(socket: &Socket, to_change: bool) -> Result<Result<Client, ExitCode>> {
    let path = socket.path();
    let connected = if to_change { Client::connect(&path) } else { Client::connect_to_show(&path) };
    let client = match connected {
        Err(error @ ClientError::NotRunning(_)) => {
            graph::note!("brickway: {error}");
            if socket.path.is_none() {
                routers_elsewhere()
                    .iter()
                    .for_each(|router| graph::note!("brickway: there is a router in {router}"));
            }
            return Ok(Err(ExitCode::from(NOBODY)));
        }
        other => other?,
    };
    if let Some(process) = client.is_elsewhere() {
        eprintln!("brickway: this router is in another network namespace (process {process})");
    }
    Ok(Ok(client))
}

/// The list that `brickway show` prints without more words.
fn what_there_is() -> String {
    #[derive(Parser)]
    struct Shown {
        #[command(subcommand)]
        _what: What,
    }
    let mut table = Table::new(&[("brickway show ...", Align::Left), ("", Align::Left)]);
    for command in Shown::command().get_subcommands() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        table.row([command.get_name().to_owned(), about]);
    }
    table.render()
}
