//! `brickway-lab rib diff`: what changed between two tables. Both are in the order of addresses, so one walk along both
//! finds it.

use std::cmp::Ordering;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;

use super::input::{self, InputArguments};
use super::route::{Route, Target};
use super::show::print_all;
use router::output::say_line;
use router::table::thousands;

/// Compares two tables: routes added, removed, changed. Origins are compared with origins, next hops with next hops.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab rib diff yesterday.bz2 today.bz2
  ip route > before; ...; ip route | brickway-lab rib diff before -
  brickway-lab rib diff a.txt b.txt --json | jq -r 'select(.change == \"added\").prefix'

'+' is a route that only B has, '-' one that only A has, '~' one that differs: old -> new. Routes of 'ip route' are the
same if their type, next hops and metric are.
Exit codes, as those of diff(1): 0 the same, 1 different, 2 trouble.")]
pub(crate) struct DiffArguments {
    /// The old table; '-' is standard input
    a: String,
    /// The new table
    b: String,
    #[command(flatten)]
    input: InputArguments,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// A difference.
enum Change<'a> {
    Added(&'a Route),
    Removed(&'a Route),
    Changed(&'a Route, &'a Route),
}

/// The differences between two tables in order, and how many routes are the same.
fn compare<'a>(a: &'a [Route], b: &'a [Route]) -> (Vec<Change<'a>>, u64) {
    let (mut changes, mut same) = (Vec::new(), 0);
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    loop {
        let order = match (a.peek(), b.peek()) {
            (Some(old), Some(new)) => old.prefix.cmp(&new.prefix),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return (changes, same),
        };
        let old = if order.is_le() { a.next() } else { None };
        let new = if order.is_ge() { b.next() } else { None };
        match (old, new) {
            (Some(old), Some(new)) if old.target.is_same(&new.target) => same += 1,
            (Some(old), Some(new)) => changes.push(Change::Changed(old, new)),
            (Some(old), None) => changes.push(Change::Removed(old)),
            (None, Some(new)) => changes.push(Change::Added(new)),
            (None, None) => {}
        }
    }
}

impl Change<'_> {
    fn text(&self) -> String {
        match self {
            Change::Added(route) => format!("+ {route}"),
            Change::Removed(route) => format!("- {route}"),
            Change::Changed(old, new) => {
                format!("~ {} {} -> {}", old.prefix, old.target.text(), new.target.text())
            }
        }
    }

    fn json(&self) -> String {
        let (change, route, old, new) = match self {
            Change::Added(new) => ("added", new, None, Some(new)),
            Change::Removed(old) => ("removed", old, Some(old), None),
            Change::Changed(old, new) => ("changed", new, Some(old), Some(new)),
        };
        json!({
            "change": change,
            "prefix": route.prefix.to_string(),
            "old": old.map(|route| route.target.json()),
            "new": new.map(|route| route.target.json()),
        })
        .to_string()
    }
}

pub(super) fn diff(arguments: &DiffArguments) -> ExitCode {
    match try_diff(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            graph::note!("brickway-lab: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether the tables are the same.
fn try_diff(arguments: &DiffArguments) -> Result<bool> {
    if arguments.a == "-" && arguments.b == "-" {
        bail!("only one of the tables can be standard input");
    }
    let a = input::load(&arguments.a, &arguments.input)?;
    let b = input::load(&arguments.b, &arguments.input)?;
    let has_origins =
        |routes: &[Route]| routes.first().map(|route| matches!(route.target, Target::Origin(_)));
    if let (Some(a), Some(b)) = (has_origins(&a.routes), has_origins(&b.routes))
        && a != b
    {
        bail!("one table has origins and the other next hops; there is nothing to compare");
    }
    let (changes, same) = compare(&a.routes, &b.routes);
    let count =
        |wanted: fn(&Change<'_>) -> bool| changes.iter().filter(|change| wanted(change)).count() as u64;
    let added = count(|change| matches!(change, Change::Added(_)));
    let removed = count(|change| matches!(change, Change::Removed(_)));
    let changed = changes.len() as u64 - added - removed;
    if arguments.json {
        print_all(changes.iter().map(Change::json));
        say_line!("{}", json!({ "added": added, "removed": removed, "changed": changed, "same": same }));
    } else {
        print_all(changes.iter().map(Change::text));
        say_line!(
            "{} added, {} removed, {} changed, {} the same",
            thousands(added),
            thousands(removed),
            thousands(changed),
            thousands(same)
        );
    }
    Ok(changes.is_empty())
}
