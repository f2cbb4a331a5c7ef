//! Rows as people read them. Long lists are printed as they come; columns line up, getting wider where they
//! must.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use control::api::{
    ClientError, CounterRow, DriftRow, DropRow, HandlerRow, LookupRow, NeighbourRow, NextHopRow, PathRow,
    PortRow, QueueRow, Request, RouteRow, Show, TextRow, WorkerRow,
};
use serde::de::DeserializeOwned;

use crate::features::FeatureSettings;
use crate::output::{print, say_line};
use crate::table::{Align, Table, thousands};

/// The rows of an answer, as JSON.
pub(super) type Rows<'a> = &'a mut dyn Iterator<Item = Result<String, ClientError>>;

/// What the rows said, beside what was printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Nothing,
    /// The router's tables differ from Linux's.
    Differences,
}

/// Rows whose columns are set before a long table prints what it has.
const BLOCK: usize = 200;
/// And the longest time that a row waits for others.
const PATIENCE: Duration = Duration::from_millis(300);

/// Prints the rows that a request is answered with.
///
/// # Errors
/// The answer is not whole, or there is no route.
pub(super) fn print_rows(request: &Request, rows: Rows<'_>) -> Result<Seen> {
    let show = match request {
        Request::Show(show) => show,
        Request::Table(query) => return feature(&query.show, rows).map(|()| Seen::Nothing),
        Request::Do(_) => return print_texts(rows).map(|()| Seen::Nothing),
    };
    match show {
        Show::Ports(_) => list(rows, &PORT, |row: PortRow| vec![port(row)]),
        Show::Routes(_) => {
            print("Codes: > in force, * forwarded by the workers (others by Linux)\n\n");
            list(rows, &[LEFT; 7], routes)
        }
        Show::Route(_) => lookup(rows),
        Show::Neighbours(_) => list(rows, &NEIGHBOUR, |row: NeighbourRow| {
            vec![[row.address.to_string(), row.interface, row.mac.unwrap_or_default(), row.state]]
        }),
        Show::NextHops(_) => list(rows, &NEXT_HOP, |row: NextHopRow| vec![next_hop(row)]),
        Show::Workers(_) => list(rows, &WORKER, |row: WorkerRow| vec![worker(row)]),
        // Costs are sorted by what the command line says; packets have commands of their own.
        Show::Cost(_) | Show::Capture(_) | Show::Trace(_) => bail!("these rows are printed elsewhere"),
        Show::Queues(_) => list(rows, &QUEUE, |row: QueueRow| vec![queue(row)]),
        Show::Drops(_) => list(rows, &DROP, |row: DropRow| {
            vec![[thousands(row.packets), row.element, row.class, row.reason]]
        }),
        Show::Drift(_) => return drift(rows),
        Show::Netlink(_) | Show::Fpm(_) => {
            list(rows, &COUNTER, |row: CounterRow| vec![[row.name, thousands(row.value), row.note]])
        }
        Show::Config(_) | Show::Problems(_) => print_texts(rows),
        Show::Handlers(_) => handlers(rows),
    }?;
    Ok(Seen::Nothing)
}

/// Prints the rows that a request is answered with as they came.
///
/// # Errors
/// The answer is not whole.
pub(super) fn print_json(request: &Request, rows: Rows<'_>) -> Result<Seen> {
    let mut seen = Seen::Nothing;
    for row in rows {
        let row = row?;
        say_line!("{row}");
        if matches!(request, Request::Show(Show::Drift(_))) && is_difference(&parse(&row)?) {
            seen = Seen::Differences;
        }
    }
    Ok(seen)
}

/// Prints rows that are text.
///
/// # Errors
/// The answer is not whole.
pub(super) fn print_texts(rows: Rows<'_>) -> Result<()> {
    for row in rows {
        say_line!("{}", parse::<TextRow>(&row?)?.text);
    }
    Ok(())
}

pub(super) fn parse<T: DeserializeOwned>(row: &str) -> Result<T> {
    serde_json::from_str(row).with_context(|| format!("the router is of another version: its row is {row}"))
}

const LEFT: (&str, Align) = ("", Align::Left);

pub(super) const fn left(title: &'static str) -> (&'static str, Align) {
    (title, Align::Left)
}

pub(super) const fn right(title: &'static str) -> (&'static str, Align) {
    (title, Align::Right)
}

/// Prints the table of a feature.
fn feature(name: &str, rows: Rows<'_>) -> Result<()> {
    let shown = FeatureSettings::shown_as(name).with_context(|| format!("there is no '{name}' to show"))?;
    let mut is_empty = true;
    fill(Table::new(shown.columns).folded(shown.folds_at), rows, |row| {
        is_empty = false;
        let lines = (shown.lines)(parse(row)?);
        lines.with_context(|| format!("the router is of another version: its row is {row}"))
    })?;
    if is_empty && !shown.nothing.is_empty() {
        say_line!("{}", shown.nothing);
    }
    Ok(())
}

/// Prints a table while its rows come; each gives one line, or some.
fn list<T: DeserializeOwned, const COLUMNS: usize>(
    rows: Rows<'_>,
    columns: &[(&'static str, Align); COLUMNS],
    mut lines: impl FnMut(T) -> Vec<[String; COLUMNS]>,
) -> Result<()> {
    fill(Table::new(columns), rows, |row| Ok(lines(parse(row)?)))
}

fn fill<C: IntoIterator<Item = String>>(
    mut table: Table,
    rows: Rows<'_>,
    mut lines: impl FnMut(&str) -> Result<Vec<C>>,
) -> Result<()> {
    let mut printed = Instant::now();
    let mut go_through = || -> Result<()> {
        for row in &mut *rows {
            lines(&row?)?.into_iter().for_each(|cells| table.row(cells));
            if table.waiting() >= BLOCK || printed.elapsed() >= PATIENCE {
                print(&table.take());
                printed = Instant::now();
            }
        }
        Ok(())
    };
    let result = go_through();
    // Also what came before an answer broke off. An empty list needs no heading.
    if table.waiting() > 0 {
        print(&table.take());
    }
    result
}

const PORT: [(&str, Align); 11] = [
    left("port"),
    left("link"),
    left("address"),
    right("mtu"),
    right("received"),
    right("lost"),
    right("sent"),
    right("lost"),
    left("opened as"),
    left("transit"),
    left("addresses"),
];

fn port(row: PortRow) -> [String; 11] {
    let link = match (row.index, row.is_up, row.has_carrier) {
        (0, ..) => "gone",
        (_, false, _) => "down",
        (_, true, false) => "no carrier",
        (_, true, true) => "up",
    };
    let addresses: Vec<String> = row.addresses.iter().map(ToString::to_string).collect();
    [
        row.name,
        link.to_owned(),
        row.mac,
        row.mtu.to_string(),
        thousands(row.rx_packets),
        thousands(row.rx_dropped),
        thousands(row.tx_packets),
        thousands(row.tx_dropped),
        row.spec,
        row.path,
        addresses.join(" "),
    ]
}

/// A line for the route and its first path, and one for each other path; the words are those of `ip route`.
fn routes(row: RouteRow) -> Vec<[String; 7]> {
    let code = format!("{}{}", if row.is_in_force { '>' } else { ' ' }, if row.is_fast { '*' } else { ' ' });
    let several = row.paths.len() > 1;
    let mut rest = Vec::new();
    if row.metric != 0 {
        rest.push(format!("metric {}", row.metric));
    }
    if row.table != 254 {
        rest.push(format!("table {}", row.table));
    }
    rest.extend(row.object.map(|id| format!("nhid {id}")));
    if row.source == "fpm" {
        rest.push("from fpm".to_owned());
    }
    let kind = if row.kind == "unicast" { String::new() } else { row.kind };
    let first = row.paths.first();
    let mut lines = vec![[
        code,
        row.prefix.to_string(),
        if kind.is_empty() { first.map(via).unwrap_or_default() } else { kind },
        first.map(dev).unwrap_or_default(),
        format!("proto {}", row.protocol),
        first.map(|path| share(path, several)).unwrap_or_default(),
        rest.join(" "),
    ]];
    for path in row.paths.iter().skip(1) {
        let empty = String::new;
        lines.push([empty(), empty(), via(path), dev(path), empty(), share(path, several), empty()]);
    }
    lines
}

fn via(path: &PathRow) -> String {
    path.gateway.map(|gateway| format!("via {gateway}")).unwrap_or_default()
}

fn dev(path: &PathRow) -> String {
    if path.interface.is_empty() { String::new() } else { format!("dev {}", path.interface) }
}

fn share(path: &PathRow, several: bool) -> String {
    let weight = if several { format!("weight {}", path.weight) } else { String::new() };
    let down = if path.is_usable { "" } else { " down" };
    (weight + down).trim_start().to_owned()
}

fn lookup(rows: Rows<'_>) -> Result<()> {
    for row in rows {
        let row: LookupRow = parse(&row?)?;
        say_line!("{} {}", row.address, row.decision);
        for way in &row.ways {
            say_line!("  {:.0}% {}", way.share * 100.0, way.decision);
        }
        let Some(route) = row.route else {
            match row.decision.as_str() {
                "no route" => bail!("no route to {}", row.address),
                _ => continue,
            }
        };
        let mut table = Table::new(&[LEFT; 7]);
        routes(route).into_iter().for_each(|cells| table.row(cells));
        print(&table.render());
    }
    Ok(())
}

const NEIGHBOUR: [(&str, Align); 4] = [left("neighbour"), left("dev"), left("lladdr"), left("state")];

const NEXT_HOP: [(&str, Align); 7] =
    [right("id"), left("kind"), left("via"), left("dev"), left("lladdr"), left("members"), right("used by")];

fn next_hop(row: NextHopRow) -> [String; 7] {
    let members = row.members.iter().map(|member| format!("{} ({:.0}%)", member.id, member.share * 100.0));
    [
        row.id.to_string(),
        row.kind,
        row.gateway.map(|gateway| gateway.to_string()).unwrap_or_default(),
        row.interface,
        row.mac.unwrap_or_default(),
        members.collect::<Vec<_>>().join(" "),
        thousands(row.users),
    ]
}

const WORKER: [(&str, Align); 5] =
    [right("worker"), right("busy"), right("packets"), right("cycles/packet"), left("receive queues")];

fn worker(row: WorkerRow) -> [String; 5] {
    [
        if row.is_slow { "slow".to_owned() } else { row.worker.to_string() },
        format!("{:.0}%", row.busy * 100.0),
        thousands(row.packets),
        if row.packets > 0 { format!("{:.1}", row.cycles_per_packet) } else { String::new() },
        row.queues.join(", "),
    ]
}

const QUEUE: [(&str, Align); 5] =
    [left("port"), right("queue"), right("worker"), right("packets"), left("shared with")];

fn queue(row: QueueRow) -> [String; 5] {
    let others: Vec<String> = row.shared_with.iter().map(ToString::to_string).collect();
    [row.port, row.queue.to_string(), row.worker.to_string(), thousands(row.packets), others.join(", ")]
}

const DROP: [(&str, Align); 4] = [right("dropped"), left("by"), left("class"), left("reason")];

const COUNTER: [(&str, Align); 3] = [LEFT, ("", Align::Right), LEFT];

fn is_difference(row: &DriftRow) -> bool {
    !matches!(row, DriftRow::Table { differences: 0, .. })
}

/// Differences as they come, the tables in which they are at the end.
fn drift(rows: Rows<'_>) -> Result<Seen> {
    let mut tables = Table::new(&[
        left("source"),
        right("table"),
        left("family"),
        right("its routes"),
        right("ours"),
        left("lookup"),
        right("differences"),
    ]);
    let mut differs = false;
    let differences = [right("table"), left("prefix"), left("Linux or daemon"), left("forwarding table")];
    let mut has_list = false;
    list(rows, &differences, |row: DriftRow| {
        differs |= is_difference(&row);
        match row {
            DriftRow::Table { source, table, family, theirs, ours, lookup, differences } => {
                let (theirs, ours) = (thousands(theirs), thousands(ours));
                tables.row([
                    source,
                    table.to_string(),
                    family.to_string(),
                    theirs,
                    ours,
                    lookup.unwrap_or_default(),
                    thousands(differences),
                ]);
                Vec::new()
            }
            DriftRow::Difference { table, prefix, theirs, ours } => {
                has_list = true;
                let missing = || "-".to_owned();
                let (theirs, ours) = (theirs.unwrap_or_else(missing), ours.unwrap_or_else(missing));
                vec![[table.to_string(), prefix.to_string(), theirs, ours]]
            }
        }
    })?;
    print(&format!("{}{}", if has_list { "\n" } else { "" }, tables.render()));
    Ok(if differs { Seen::Differences } else { Seen::Nothing })
}

/// Names, and values as they are.
fn handlers(rows: Rows<'_>) -> Result<()> {
    for row in rows {
        let row: HandlerRow = parse(&row?)?;
        match row.value {
            Some(value) => say_line!("{}", value.trim_end()),
            None => say_line!("{}", row.name),
        }
    }
    Ok(())
}
