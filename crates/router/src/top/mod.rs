//! `brickway top`: what a running router does, second by second, in a terminal.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | the command line, the loop, `--once` |
//! | `sample` | what the router answers at one moment |
//! | `rates` | tables of what changed between two samples |
//! | `history` | the last minute of each port |
//! | `state` | what is shown, and what keys do to it |
//! | `draw` | the screen |
//! | `screen` | the terminal: taken, and given back at every end |
//! | `testing` | samples for tests |
//!
//! The router has no part in it: it is asked over its control socket as by `brickway show`, with a connection for each sample,
//! so that a screen that is left open keeps no connection from others.

mod draw;
mod history;
mod rates;
mod sample;
mod screen;
mod state;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use control::api::{Client, ClientError};

use crate::output::print;
use crate::show::{Socket, find, uptime};
use crate::table::Table;
use draw::Look;
use sample::Sample;
use screen::{Event, Screen};
use state::{State, Then, View};

/// Wrong usage.
const USAGE: u8 = 2;

/// Watches a running router: what its ports, workers, queues, drops, punts and elements do each second.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway top                              a second at a time; ? shows the keys, q quits
  brickway top --every 5                    rates over five seconds
  brickway top --once                       one sample as plain tables
  brickway top --once | awk '$1 == \"eth1\" { print $2 }'      packets a second that eth1 receives
  ip netns exec edge brickway top           the router of the network namespace 'edge'

Keys:
  Tab, 1 to 5       choose the view
  s, r              sort by the next column, reverse the order
  p, space          pause
  z                 change between rates and totals from now on
  /                 filter by text
  ?                 show all keys
  q, Esc, Ctrl-C    quit

Views: 1 ports, 2 workers and queues, 3 drops, 4 punts, 5 elements (cycles a second, estimated
from a sample of the turns). A large terminal shows several. A dash is a rate that is not known
yet. Colours are left out where NO_COLOR is set.

Exit codes: 0 done, 1 the router refuses, 2 wrong usage, or no terminal, 4 no router answers.")]
pub(crate) struct TopArguments {
    /// Seconds between two samples, 0.5 to 60
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    every: Duration,
    /// Print one sample as plain tables: rates between two answers, --every apart
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    socket: Socket,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.5..=60.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "not a time; expected seconds from 0.5 to 60".to_owned())
}

pub(crate) fn top(arguments: &TopArguments) -> Result<ExitCode> {
    let refusal = match std::env::var_os("TERM") {
        _ if arguments.once => None,
        _ if !std::io::stdout().is_terminal() => {
            Some("standard output: not a terminal; expected one, or --once")
        }
        Some(term) if term == "dumb" => {
            Some("TERM: 'dumb' cannot move its cursor; expected another terminal, or --once")
        }
        _ => None,
    };
    if let Some(refusal) = refusal {
        graph::note!("brickway: {refusal}");
        return Ok(ExitCode::from(USAGE));
    }
    let mut client = match find(&arguments.socket, false)? {
        Ok(client) => client,
        Err(code) => return Ok(code),
    };
    let begin = Instant::now();
    let first = Sample::ask(&mut client, begin)?;
    drop(client);
    if !arguments.once {
        return watch(arguments, first, begin);
    }
    std::thread::sleep(arguments.every);
    let mut client = match find(&arguments.socket, false)? {
        Ok(client) => client,
        Err(code) => return Ok(code),
    };
    print(&plain([first, Sample::ask(&mut client, begin)?]));
    Ok(ExitCode::SUCCESS)
}

/// Draws samples until a key or a signal ends it.
fn watch(arguments: &TopArguments, first: Sample, begin: Instant) -> Result<ExitCode> {
    let has_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let look = Look { has_colours, every: arguments.every };
    let mut state = State::new();
    state.take(Ok(first));
    let (mut screen, events) = Screen::enter().context("the terminal cannot be used")?;
    let (path, every) = (arguments.socket.path(), arguments.every);
    screen.spawn("samples", move |events| samples(&path, every, begin, events))?;
    screen.draw(&state, look)?;
    for event in events {
        match event {
            Event::Sample(answer) => state.take(answer.map(|sample| *sample)),
            Event::Resized => {}
            Event::Over => break,
            Event::Broken => return Ok(ExitCode::FAILURE),
            Event::Key(key) => match state.press(key) {
                Then::Quit => break,
                Then::Redraw => screen.clear()?,
                Then::Draw => {}
            },
        }
        screen.draw(&state, look)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks every so often, until nobody takes the answers.
fn samples(path: &Path, every: Duration, begin: Instant, events: &Sender<Event>) {
    loop {
        std::thread::sleep(every);
        let answer = match Client::connect_to_show(path) {
            Ok(mut client) => {
                Sample::ask(&mut client, begin).map(Box::new).map_err(|error| format!("{error:#}"))
            }
            // What else could be done about it is known: there was a router.
            Err(ClientError::NotRunning(path)) => Err(format!("no router answers at '{}'", path.display())),
            Err(error) => Err(error.to_string()),
        };
        if events.send(Event::Sample(answer)).is_err() {
            return;
        }
    }
}

/// The rates between two samples as plain tables.
fn plain(samples: [Sample; 2]) -> String {
    let mut state = State::new();
    samples.into_iter().for_each(|sample| state.take(Ok(sample)));
    let Some(shown) = &state.shown else { return String::new() };
    let system = &shown.system;
    let mut text = format!(
        "brickway {}  process {}  namespace {}  up {}\n",
        system.version,
        system.pid,
        system.namespace,
        uptime(system.uptime_seconds)
    );
    let workers = &shown.tables.workers;
    let mut add = |title: &str, table: &rates::Table, rows: Vec<&[rates::Cell]>| {
        text += &format!("\n{title}\n");
        if rows.is_empty() {
            text += &format!("{}\n", table.nothing);
            return;
        }
        let columns: Vec<_> =
            table.columns.iter().map(|column| (column.title(shown.tables.unit), column.align)).collect();
        let mut lines = Table::new(&columns);
        rows.iter().for_each(|row| lines.row(row.iter().map(rates::Cell::plain)));
        text += &lines.render();
    };
    for view in View::ALL {
        if view == View::Workers {
            add("workers", workers, state.selected(workers));
            add("queues", &shown.tables.queues, state.rows(view));
            continue;
        }
        add(view.title(), view.table(&shown.tables), state.rows(view));
    }
    text
}
