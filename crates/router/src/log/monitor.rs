//! `brickway monitor`: what happens to a running router, as it happens.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use control::api::{ClientError, EventRow, Level, LogQuery, LogRow, Request, Show};

use crate::moment::{self, Moment};
use crate::output::say_line;
use crate::show::{Socket, find, parse};

/// Prints what happens to a running router: links, neighbours, reloads, who changed what over the control socket, FRR, leaders of
/// a cluster, faults. The router keeps its last 8,192 events.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway monitor                                   what happens from now on, until Ctrl-C
  brickway monitor --last 20                         the last 20 events first
  brickway monitor --since 3:10 --until 3:15         what happened then, and no more
  brickway monitor --since 2h --until now --level warn
  brickway monitor --json | jq 'select(.port == \"eth1\")'

TIME is 3:10 or 3:10:30 (the last time that the clock showed it), '2026-11-27 3:10', 5m, 2h or 3d ago, or now; times are local.
With --json they are UTC, and an event is an object: time, level, text, event, and fields such as port, prefix, node, reason, user,
pid. {\"lost\":N} counts N events that the reader was too slow for.
Routes have a history of their own: brickway show changes. More events: brickway set log.level debug, which has the states of
neighbours. In the journal each field is one of its own: journalctl -u brickway PORT=eth1

Exit codes: 0 done, 1 the router refuses, or has ended, 2 wrong usage, 4 no router answers at the socket.")]
pub(crate) struct MonitorArguments {
    /// Begin with the events since then
    #[arg(long, value_name = "TIME")]
    since: Option<Moment>,
    /// End with the events of that time instead of waiting for more
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,
    /// Begin with the last N events
    #[arg(long, value_name = "N")]
    last: Option<u32>,
    /// Only events that matter at least so much: error, warn, info, debug
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    level: Option<Level>,
    /// Print one JSON object an event
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: Socket,
}

/// A level of the command line.
fn level(text: &str) -> Result<Level, String> {
    let known = Level::ALL.into_iter().find(|level| level.word() == text);
    known.ok_or_else(|| format!("expected one of {}", Level::ALL.map(Level::word).join(", ")))
}

pub(crate) fn monitor(arguments: &MonitorArguments) -> Result<ExitCode> {
    let (since_us, until_us) = moment::range(arguments.since, arguments.until)?;
    let follow = until_us.is_none();
    // Without a word about what was before, it is what comes.
    let last = arguments.last.or((since_us.is_none() && follow).then_some(0));
    let query = LogQuery { since_us, until_us, last, level: arguments.level, follow };
    let mut client = match find(&arguments.socket, false)? {
        Ok(client) => client,
        Err(code) => return Ok(code),
    };
    let answer = client.ask(&Request::Show(Show::Log(query)))?;
    if follow {
        graph::note!("brickway: waiting for events; Ctrl-C ends it");
    }
    let has_colours = std::io::stdout().is_terminal();
    let mut is_empty = true;
    for row in answer {
        let row = match row {
            Err(ClientError::Broken { .. }) if follow => bail!("the router has ended"),
            other => other?,
        };
        let parsed: LogRow = parse(&row)?;
        match parsed {
            LogRow::Alive { .. } => continue,
            _ if arguments.json => say_line!("{row}"),
            LogRow::Event(event) => say_line!("{}", line(&event, has_colours)),
            LogRow::Lost { lost } => {
                say_line!("({lost} events were lost: they came faster than they were read)")
            }
        }
        is_empty = false;
    }
    if follow {
        bail!("the router has ended");
    }
    if is_empty && !arguments.json {
        say_line!("no events");
    }
    Ok(ExitCode::SUCCESS)
}

/// An event for people.
fn line(event: &EventRow, has_colours: bool) -> String {
    let (colour, plain) = match event.level {
        Level::Error if has_colours => ("\x1b[1;31m", "\x1b[0m"),
        Level::Warn if has_colours => ("\x1b[1;33m", "\x1b[0m"),
        _ => ("", ""),
    };
    format!("{} {colour}{:<5}{plain} {}", moment::local(&event.time), event.level.word(), event.text)
}
