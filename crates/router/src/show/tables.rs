//! Rows as people read them. Long lists are printed as they come; columns line up, getting wider where they
//! must.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use control::api::{
    ClientError, CounterRow, DriftChecks, DriftRow, DropRow, EdgeRow, ElementRow, HandlerRow, HistoryRow,
    LookupRow, NeighbourRow, NextHopRow, PathRow, PortRow, PuntRow, QueueRow, Request, RouteRow,
    RouteTableRow, Show, SystemRow, TextRow, WorkerRow,
};
use graph::messages::printable_lines;
use serde::de::DeserializeOwned;

use crate::features::FeatureSettings;
use crate::moment::local;
use crate::output::{print, say_line};
use crate::table::{Align, Table, printable, scaled, thousands};

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
/// Columns of a terminal that tables with much to say keep to.
pub(super) const WIDEST: usize = 100;
/// The longest time that a row waits for others.
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
    let mut is_empty = true;
    let rows: Rows<'_> = &mut rows.inspect(|_| is_empty = false);
    match show {
        Show::Ports(_) => ports(rows),
        Show::History(_) => list(rows, &HISTORY, |row: HistoryRow| vec![history(row)]),
        Show::Routes(_) => {
            print(
                "Codes: > in force, * forwarded by the router once Linux knows the neighbour (others by Linux)\n\n",
            );
            list(rows, &[LEFT; 7], routes)
        }
        Show::Route(_) => lookup(rows),
        Show::Neighbours(_) => list(rows, &NEIGHBOUR, |row: NeighbourRow| {
            vec![[row.address.to_string(), row.interface, row.mac.unwrap_or_default(), row.state]]
        }),
        Show::NextHops(_) => list(rows, &NEXT_HOP, |row: NextHopRow| vec![next_hop(row)]),
        Show::Workers(_) => list(rows, &WORKER, |row: WorkerRow| vec![worker(row)]),
        Show::System(_) => system(rows),
        Show::Elements(_) => {
            fill(Table::new(&ELEMENT).folded(Some(WIDEST)), rows, |row| Ok(elements(parse(row)?)))
        }
        // Costs are sorted by what the command line says; packets have commands of their own.
        Show::Cost(_) | Show::Capture(_) | Show::Trace(_) | Show::Log(_) => {
            bail!("these rows are printed elsewhere")
        }
        Show::Queues(_) => list(rows, &QUEUE, |row: QueueRow| vec![queue(row)]),
        Show::Drops(_) => list(rows, &DROP, |row: DropRow| {
            vec![[thousands(row.packets), row.element, row.class, row.reason]]
        }),
        Show::Punts(_) => list(rows, &PUNT, |row: PuntRow| {
            vec![[thousands(row.packets), row.element, row.class, row.reason]]
        }),
        Show::Drift(_) => return drift(rows),
        Show::Cluster(_) => super::cluster::print_rows(rows),
        Show::Changes(_) => return super::changes::print_rows(rows).map(|()| Seen::Nothing),
        Show::Netlink(_) | Show::Fpm(_) => {
            list(rows, &COUNTER, |row: CounterRow| vec![[row.name, thousands(row.value), row.note]])
        }
        Show::Config(_) | Show::Problems(_) => print_texts(rows),
        Show::Handlers(_) => handlers(rows),
    }?;
    if is_empty && !nothing(show).is_empty() {
        say_line!("{}", nothing(show));
    }
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
        say_line!("{}", printable_lines(&parse::<TextRow>(&row?)?.text));
    }
    Ok(())
}

pub(crate) fn parse<T: DeserializeOwned>(row: &str) -> Result<T> {
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

pub(super) fn fill<C: IntoIterator<Item = String>>(
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

/// What is printed where there are no rows: an empty list has a line for it.
fn nothing(show: &Show) -> &'static str {
    match show {
        Show::Ports(_) => "no ports",
        Show::History(_) => "no second is over yet",
        Show::Routes(_) => "no routes",
        Show::Neighbours(_) => "no neighbours",
        Show::NextHops(_) => "no next hops",
        Show::Queues(_) => "no queues",
        Show::Drops(_) => "no packets dropped",
        Show::Punts(_) => "no packets punted",
        Show::Problems(_) => "no problems",
        Show::Handlers(_) => "no handlers",
        _ => "",
    }
}

const HISTORY: [(&str, Align); 6] = [
    left("time"),
    left("port"),
    right("rx packets/s"),
    right("rx bit/s"),
    right("tx packets/s"),
    right("tx bit/s"),
];

fn history(row: HistoryRow) -> [String; 6] {
    let HistoryRow { time, port, rx, tx } = row;
    let [rx, tx] = [rx, tx].map(|way| {
        let rate = |rate: u64| scaled(rate as f64).trim_end().to_owned();
        [rate(way.packets_per_second), rate(way.bits_per_second)]
    });
    let ([rx_packets, rx_bits], [tx_packets, tx_bits]) = (rx, tx);
    [local(&time), port, rx_packets, rx_bits, tx_packets, tx_bits]
}

/// What the ports moved, then what they are.
fn ports(rows: Rows<'_>) -> Result<()> {
    let [left, right] = [left, right];
    let mut traffic = Table::new(&[
        left("port"),
        left(""),
        right("packets"),
        right("bytes"),
        right("dropped"),
        right("errors"),
        right("packets/s"),
        right("bit/s"),
    ]);
    let mut ways = Table::new(&[
        left("port"),
        right("in the kernel"),
        right("by workers"),
        right("by Linux"),
        left("left to Linux because of"),
    ]);
    let mut links = Table::new(&[
        left("port"),
        left("link"),
        left("driver"),
        right("MTU"),
        left("MAC address"),
        left("transit, addresses"),
    ])
    .folded(Some(WIDEST));
    let mut is_empty = true;
    for row in rows {
        let row: PortRow = parse(&row?)?;
        is_empty = false;
        let name = port_name(&row);
        for (name, direction, way) in [(name.as_str(), "rx", row.rx), ("", "tx", row.tx)] {
            traffic.row([
                name.to_owned(),
                direction.to_owned(),
                thousands(way.packets),
                scaled(way.bytes as f64),
                thousands(way.dropped),
                thousands(way.errors),
                scaled(way.packets_per_second),
                scaled(way.bits_per_second),
            ]);
        }
        let all = row.in_kernel + row.by_workers + row.to_linux;
        let share = |packets: u64| match all {
            0 => "-".to_owned(),
            _ => format!("{:.1} %", packets as f64 * 100.0 / all as f64),
        };
        // Not of a few among many.
        let is_share = row.to_linux * 1_000 >= all;
        ways.row([
            name.clone(),
            share(row.in_kernel),
            share(row.by_workers),
            share(row.to_linux),
            if is_share { row.left_because.clone() } else { String::new() },
        ]);
        let link = link_state(&row);
        let above = row.above.iter().map(|above| format!("below {above}"));
        let words =
            std::iter::once(row.path).chain(row.addresses.iter().map(ToString::to_string)).chain(above);
        links.row([
            name,
            link.to_owned(),
            format!("{} {}", row.driver, row.mode).trim().to_owned(),
            row.mtu.to_string(),
            row.mac,
            words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" "),
        ]);
    }
    if !is_empty {
        print(&format!("{}\n{}\n{}", traffic.render(), ways.render(), links.render()));
    }
    Ok(())
}

/// A port's name, with that of its interface where Linux calls it otherwise.
fn port_name(row: &PortRow) -> String {
    let is_same = row.interface.is_empty() || row.interface == row.name;
    if is_same { row.name.clone() } else { format!("{} ({} in Linux)", row.name, row.interface) }
}

/// What there is to say of a port's link.
pub(crate) fn link_state(row: &PortRow) -> &'static str {
    match (row.index, row.is_up, row.has_carrier) {
        (0, ..) => "gone",
        (_, false, _) => "down",
        (_, true, false) => "no carrier",
        (_, true, true) => "up",
    }
}

/// What the router is.
fn system(rows: Rows<'_>) -> Result<()> {
    for row in rows {
        let row: SystemRow = parse(&row?)?;
        let mut facts = Table::new(&[LEFT, LEFT]);
        let mut fact = |name: &str, value: String| facts.row([name.to_owned(), value]);
        fact("host", printable(row.host));
        fact("version", row.version);
        fact("process", row.pid.to_string());
        fact("network namespace", row.namespace.to_string());
        fact("uptime", uptime(row.uptime_seconds));
        if let Some(DriftChecks { differing, healed, .. }) = row.drift {
            let (differing, healed) = (thousands(differing), thousands(healed));
            fact("drift", format!("{differing} routes differ from Linux's, {healed} were healed"));
        }
        fact("workers", row.workers.to_string());
        if let Some((used, most)) = row.next_hops {
            fact("next hops", format!("{} of {}", thousands(used as u64), thousands(most as u64)));
        }
        let frames = row
            .frames
            .iter()
            .map(|(free, all)| format!("{} of {}", thousands(*free as u64), thousands(*all as u64)));
        fact("free frames", frames.collect::<Vec<_>>().join(", "));
        let mut tables = Table::new(&[right("table"), left("family"), left("kind"), right("routes")]);
        for RouteTableRow { table, family, kind, routes } in row.tables {
            tables.row([table.to_string(), family.to_string(), kind, thousands(routes as u64)]);
        }
        let gap = if tables.waiting() > 0 { "\n" } else { "" };
        print(&format!(
            "{}{gap}{}",
            facts.render(),
            if gap.is_empty() { String::new() } else { tables.render() }
        ));
    }
    Ok(())
}

/// Time for people: `3 d 04:05:06`.
pub(crate) fn uptime(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    if days > 0 { format!("{days} d {clock}") } else { clock }
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
        say_line!("{} {}", row.address, printable(row.decision.clone()));
        for way in &row.ways {
            say_line!("  {:.0}% {}", way.share * 100.0, printable(way.decision.clone()));
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

const ELEMENT: [(&str, Align); 6] =
    [left("element"), left("class"), right("packets"), right("dropped"), right("cycles/packet"), left("to")];

/// A line for the element and its first connection, and one for each other one.
fn elements(row: ElementRow) -> Vec<[String; 6]> {
    let cycles = if row.packets > 0 && row.cycles > 0.0 {
        format!("{:.1}", row.cycles / row.packets as f64)
    } else {
        "-".to_owned()
    };
    let to = |edge: &EdgeRow| {
        let packets = edge.packets.map_or_else(|| "?".to_owned(), thousands);
        format!("[{}] {packets} to [{}]{}", edge.output, edge.input, edge.to)
    };
    let first = row.edges.first().map(to).unwrap_or_default();
    let mut lines =
        vec![[row.element, row.class, thousands(row.packets), thousands(row.dropped), cycles, first]];
    let empty = String::new;
    lines
        .extend(row.edges.iter().skip(1).map(|edge| [empty(), empty(), empty(), empty(), empty(), to(edge)]));
    lines
}

const WORKER: [(&str, Align); 6] = [
    right("worker"),
    right("busy"),
    right("since start"),
    right("packets"),
    right("cycles/packet"),
    left("receive queues"),
];

/// The number of a worker, or the slow thread.
pub(crate) fn worker_name(number: usize, is_slow: bool) -> String {
    if is_slow { "slow".to_owned() } else { number.to_string() }
}

fn worker(row: WorkerRow) -> [String; 6] {
    let percent = |share: f64| format!("{:.0}%", share * 100.0);
    [
        worker_name(row.worker, row.is_slow),
        percent(row.busy),
        percent(row.busy_since_start),
        thousands(row.packets),
        row.cycles_per_packet.map_or_else(|| "-".to_owned(), |cycles| format!("{cycles:.1}")),
        row.queues.join(", "),
    ]
}

const QUEUE: [(&str, Align); 7] = [
    left("queue"),
    left(""),
    right("worker"),
    right("packets"),
    right("bytes"),
    right("dropped"),
    left("shared with, reasons of drops"),
];

fn queue(row: QueueRow) -> [String; 7] {
    let others: Vec<String> = row.shared_with.iter().map(|worker| format!("worker {worker}")).collect();
    let reasons = row.dropped.iter().map(|(reason, packets)| format!("{reason} {}", thousands(*packets)));
    [
        format!("{}:{}", row.port, row.queue),
        if row.sends { "tx" } else { "rx" }.to_owned(),
        worker_name(row.worker, row.is_slow),
        thousands(row.packets),
        scaled(row.bytes as f64),
        thousands(row.dropped.iter().map(|(_, packets)| packets).sum()),
        others.into_iter().chain(reasons).collect::<Vec<_>>().join(", "),
    ]
}

const DROP: [(&str, Align); 4] = [right("dropped"), left("by"), left("class"), left("reason")];

const PUNT: [(&str, Align); 4] = [right("punted"), left("by"), left("class"), left("reason")];

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
