//! `brickway show changes`: what routes were and became, and when.

use std::net::IpAddr;
use std::str::FromStr;

use anyhow::Result;
use clap::Args;
use control::api::{ChangeFilter, ChangeRow, RouteWayRow};
use ipnet::IpNet;

use super::tables::{Rows, fill, left, parse};
use crate::moment::{self, Moment};
use crate::output::say_line;
use crate::table::{Table, thousands};

/// Shows what routes were and became, and when: the history of the forwarding tables.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  brickway show changes                                       all there are, the oldest first
  brickway show changes --since 3:10 --until 3:15             what changed then
  brickway show changes 10.2.0.0/16                           the route to it, and those inside it
  brickway show changes 10.2.3.4 --since 2h                   the routes that have the address inside
  brickway show changes --json | jq 'select(.new == null)'    routes that went

TIME is 3:10 or 3:10:30 (the last time that the clock showed it), '2026-11-27 3:10', 5m, 2h or 3d ago, or now; times are local, and
UTC with --json. The router keeps the last 65,536 changes of routes in force; older ones are overwritten, and the last line has the
time of the oldest. A next hop of 'ip nexthop' that gets other paths moves the packets of its routes, and has lines of its own.
Links that go up and down are in brickway monitor --since TIME.")]
pub(super) struct ChangesArguments {
    /// A prefix, with those inside it; or an address, with the prefixes that have it inside
    #[arg(value_name = "PREFIX | ADDRESS")]
    of: Option<Destination>,
    /// Not before
    #[arg(long, value_name = "TIME")]
    since: Option<Moment>,
    /// Not after
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,
    /// Of this table (default: all but 255, which has the router's own addresses)
    #[arg(long)]
    table: Option<u32>,
}

/// What somebody asks for.
#[derive(Clone, Copy, Debug)]
enum Destination {
    Prefix(IpNet),
    Address(IpAddr),
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = text.parse().map(Destination::Address);
        let prefix = || text.parse().map(|prefix: IpNet| Destination::Prefix(prefix.trunc()));
        address
            .or_else(|_| prefix())
            .map_err(|_| "expected a prefix or an address, as 10.2.0.0/16".to_owned())
    }
}

impl ChangesArguments {
    /// # Errors
    /// The times make no sense together.
    pub(super) fn filter(&self) -> Result<ChangeFilter> {
        let (since_us, until_us) = moment::range(self.since, self.until)?;
        let (mut within, mut containing) = (None, None);
        match self.of {
            Some(Destination::Prefix(prefix)) => within = Some(prefix),
            Some(Destination::Address(address)) => containing = Some(address),
            None => {}
        }
        Ok(ChangeFilter { within, containing, table: self.table, since_us, until_us })
    }
}

/// Prints the rows, a line for what there was and one for what came, and how far back they reach.
///
/// # Errors
/// The answer is not whole.
pub(super) fn print_rows(rows: Rows<'_>) -> Result<()> {
    let columns = [left("time"), left("route"), left("change"), left("packets went"), left("by")];
    let (mut reach, mut is_empty) = (None, true);
    fill(Table::new(&columns), rows, |row| {
        let (time, route, old, new) = match parse(row)? {
            ChangeRow::History { since, kept, overwritten } => {
                reach = Some((since, kept, overwritten));
                return Ok(Vec::new());
            }
            ChangeRow::Route { time, table: 254, prefix, old, new } => (time, prefix.to_string(), old, new),
            ChangeRow::Route { time, table, prefix, old, new } => {
                (time, format!("{prefix} table {table}"), old, new)
            }
            ChangeRow::Object { time, object, old, new } => (time, format!("next-hop id {object}"), old, new),
        };
        is_empty = false;
        let lines = match (old, new) {
            (Some(old), Some(new)) => vec![("changed from", old), ("to", new)],
            (None, Some(new)) => vec![("added", new)],
            (Some(old), None) => vec![("removed", old)],
            (None, None) => Vec::new(),
        };
        let mut begin = Some([moment::local(&time), route]);
        let lines = lines.into_iter().map(|(change, way)| {
            let [time, route] = begin.take().unwrap_or_default();
            let by = by(&way);
            [time, route, change.to_owned(), way.hops, by]
        });
        Ok(lines.collect())
    })?;
    if is_empty {
        say_line!("no changes");
    }
    if let Some((since, kept, overwritten)) = reach {
        let since = moment::local(&since);
        match overwritten {
            0 => say_line!("All changes since the router began ({since}) are kept: {}", thousands(kept)),
            _ => say_line!(
                "The history reaches back to {since}: {} changes; {} older ones were overwritten",
                thousands(kept),
                thousands(overwritten)
            ),
        }
    }
    Ok(())
}

/// Who made a route, in the words of `ip route`.
fn by(way: &RouteWayRow) -> String {
    let RouteWayRow { protocol, source, metric, .. } = way;
    let mut words = Vec::new();
    if !protocol.is_empty() {
        words.push(format!("proto {protocol}"));
    }
    if *metric != 0 {
        words.push(format!("metric {metric}"));
    }
    words.push(source.clone());
    words.join(" ")
}
