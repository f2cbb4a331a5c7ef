//! Opens a file of routes, finds out by its content what it is, and reads it. Bad rows are reported on standard error,
//! with the place and a count at the end; the rest is used, unless `--strict` refuses it all.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use fib::read::{self, AnyTable, IpRoute, IpRoutes, RouteKind, Table};
use ipnet::IpNet;
use packet::Family;

use super::mrt::{self, MrtRoutes};
use super::route::{Route, Target};
use router::table::thousands;

/// How many bad rows of a file are reported; all are counted.
const ERRORS_SHOWN: usize = 20;
/// How much of a file is looked at to find out what it is.
const HEAD: u64 = 1 << 16;

/// The routing table that routes belong to where nothing else is said.
const MAIN: &str = "main";

/// How a file is read; the same for all subcommands.
#[derive(Args, Clone, Debug)]
pub(super) struct InputArguments {
    /// What the file is, if its content does not show it
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Refuse a file with any bad row
    #[arg(long)]
    strict: bool,
    /// IPv4 routes only; a text table is read as IPv4
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// IPv6 routes only; a text table is read as IPv6
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Of 'ip route show table all' the routes of this table
    #[arg(long, default_value = MAIN, value_name = "NAME")]
    table: String,
}

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// A prefix and an AS number a line
    Text,
    /// An MRT dump, TABLE_DUMP_V2
    Mrt,
    /// The output of 'ip route'
    IpRoute,
}

/// What was in a file.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) format: Format,
    /// The routes, in the order of addresses and then lengths, IPv4 first; no prefix twice.
    pub(super) routes: Vec<Route>,
    /// How many rows or records were bad.
    pub(super) bad: u64,
    /// The first of them.
    errors: Vec<String>,
    /// Routes of `ip route` for a prefix that has another one with a lower metric, or on another interface.
    pub(super) second_choices: u64,
    /// How many routes were in other tables of `ip route`, by table.
    other_tables: BTreeMap<String, u64>,
}

impl Loaded {
    fn new(format: Format) -> Self {
        Self {
            format,
            routes: Vec::new(),
            bad: 0,
            errors: Vec::new(),
            second_choices: 0,
            other_tables: BTreeMap::new(),
        }
    }

    fn note(&mut self, error: impl ToString) {
        self.bad += 1;
        if self.errors.len() < ERRORS_SHOWN {
            self.errors.push(error.to_string());
        }
    }
}

/// Reads the file `name`, or standard input for `-`, and tells what was bad in it.
///
/// # Errors
///
/// If it cannot be opened or read at all, if all its rows are bad, or if one is and the arguments are strict.
pub(super) fn load(name: &str, arguments: &InputArguments) -> Result<Loaded> {
    let file: Box<dyn BufRead + Send> = if name == "-" {
        Box::new(BufReader::with_capacity(1 << 16, io::stdin()))
    } else {
        let file = File::open(Path::new(name)).with_context(|| format!("cannot open '{name}'"))?;
        Box::new(BufReader::with_capacity(1 << 16, file))
    };
    let name = if name == "-" { "<stdin>" } else { name };
    let loaded = read(file, arguments).with_context(|| format!("cannot read '{name}'"))?;
    for error in &loaded.errors {
        graph::note!("{name}: {error}");
    }
    let what = match (loaded.format, loaded.bad) {
        (Format::Mrt, 1) => "record",
        (Format::Mrt, _) => "records",
        (_, 1) => "row",
        _ => "rows",
    };
    if loaded.bad > 0 {
        let shown = if loaded.bad > ERRORS_SHOWN as u64 { " (the first are shown)" } else { "" };
        graph::note!(
            "{name}: {} bad {what}{shown}, {} good route{}",
            thousands(loaded.bad),
            thousands(loaded.routes.len() as u64),
            if loaded.routes.len() == 1 { "" } else { "s" }
        );
        if arguments.strict {
            bail!("'{name}' has {} bad {what}; --strict refuses it", thousands(loaded.bad));
        }
        if loaded.routes.is_empty() {
            bail!("'{name}' has no good route");
        }
    }
    if arguments.table == MAIN {
        for (table, count) in &loaded.other_tables {
            graph::note!(
                "{name}: {count} routes of table {table} are left out; --table {table} is for those"
            );
        }
    }
    Ok(loaded)
}

/// Reads routes from bytes that may be compressed.
fn read(file: impl BufRead + Send + 'static, arguments: &InputArguments) -> io::Result<Loaded> {
    // A pipe may give few bytes at first.
    let file = Peeked::new(file, 4);
    let is_bzip2 = file.head().starts_with(b"BZh");
    let text: Box<dyn BufRead + Send> = if is_bzip2 {
        Box::new(BufReader::with_capacity(1 << 16, bzip2::bufread::MultiBzDecoder::new(file)))
    } else {
        read::decompressed(file)?
    };
    let input = Peeked::new(text, HEAD);
    let format = arguments.format.unwrap_or_else(|| recognise(input.head()));
    let wanted = |prefix: &IpNet| match prefix {
        IpNet::V4(_) => !arguments.ipv6,
        IpNet::V6(_) => !arguments.ipv4,
    };
    let mut loaded = Loaded::new(format);
    match format {
        Format::Text => {
            let table = match (arguments.ipv4, arguments.ipv6) {
                (true, _) => AnyTable::Ipv4(read::read(input)),
                (_, true) => AnyTable::Ipv6(read::read(input)),
                _ => read::read_any(input),
            };
            match table {
                AnyTable::Ipv4(table) => take_table(table, &mut loaded),
                AnyTable::Ipv6(table) => take_table(table, &mut loaded),
            }
        }
        Format::Mrt => {
            let mut routes: Vec<(IpNet, u64, u32)> = Vec::new();
            for route in MrtRoutes::new(input) {
                match route {
                    Ok((record, prefix, origin)) if wanted(&prefix) => routes.push((prefix, record, origin)),
                    Ok(_) => {}
                    Err(error) => loaded.note(error),
                }
            }
            take_records(routes, &mut loaded);
        }
        Format::IpRoute => {
            let mut routes: Vec<(u64, IpRoute)> = Vec::new();
            for route in IpRoutes::new(input) {
                match route {
                    Ok((line, route)) => match &route.table {
                        Some(table) if *table != arguments.table => {
                            *loaded.other_tables.entry(table.clone()).or_default() += 1;
                        }
                        None if arguments.table != MAIN => {
                            *loaded.other_tables.entry(MAIN.into()).or_default() += 1;
                        }
                        _ if wanted(&route.prefix) => routes.push((line, route)),
                        _ => {}
                    },
                    Err(error) => loaded.note(error),
                }
            }
            take_ip_routes(routes, &mut loaded);
        }
    }
    Ok(loaded)
}

fn take_table<A: Family>(table: Table<A>, loaded: &mut Loaded) {
    loaded.bad = table.bad;
    loaded.errors = table.errors.iter().map(ToString::to_string).collect();
    let route = |row: &read::Row<A>| Route { prefix: row.prefix.into(), target: Target::Origin(row.origin) };
    loaded.routes = table.rows.iter().map(route).collect();
    loaded.routes.sort_by_key(|route| route.prefix);
}

fn take_records(mut routes: Vec<(IpNet, u64, u32)>, loaded: &mut Loaded) {
    routes.sort_by_key(|&(prefix, record, _)| (prefix, record));
    for same in routes.chunk_by(|a, b| a.0 == b.0) {
        let (prefix, first, origin) = same[0];
        loaded.routes.push(Route { prefix, target: Target::Origin(origin) });
        for &(_, record, _) in &same[1..] {
            loaded.note(format!("record {record}: {prefix} is in record {first} already, which counts"));
        }
    }
}

fn take_ip_routes(mut routes: Vec<(u64, IpRoute)>, loaded: &mut Loaded) {
    routes.sort_by_key(|(line, route)| (route.prefix, route.metric, *line));
    // The line and the metric of the last route that counts.
    let mut best = (0, 0);
    let mut repeated: Vec<(u64, String)> = Vec::new();
    for (line, route) in routes {
        let is_first = loaded.routes.last().is_none_or(|last| last.prefix != route.prefix);
        if is_first {
            best = (line, route.metric);
            loaded.routes.push(Route { prefix: route.prefix, target: Target::Ways(Box::new(route)) });
        } else if best.1 == route.metric && !is_on_every_link(&route) {
            let IpRoute { prefix, metric, .. } = route;
            repeated.push((
                line,
                format!("{prefix} with metric {metric} is in line {} already, which counts", best.0),
            ));
        } else {
            loaded.second_choices += 1;
        }
    }
    repeated.sort();
    for (line, problem) in repeated {
        loaded.note(format!("line {line}: {problem}"));
    }
}

/// Whether every interface has a route of its own for the prefix: link-local and multicast addresses of IPv6 (RFC 4291,
/// 2.5.6 and 2.7).
fn is_on_every_link(route: &IpRoute) -> bool {
    match route.prefix {
        IpNet::V6(prefix) => {
            let first = prefix.addr().segments()[0];
            (first & 0xffc0 == 0xfe80 && prefix.prefix_len() >= 10)
                || (first >> 8 == 0xff && prefix.prefix_len() >= 8)
        }
        IpNet::V4(_) => false,
    }
}

/// What a file is, from its first bytes.
fn recognise(head: &[u8]) -> Format {
    if mrt::is_mrt(head) {
        return Format::Mrt;
    }
    for line in String::from_utf8_lossy(head).lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let (Some(first), second) = (words.next(), words.next()) else { continue };
        if first == "default" || RouteKind::named(first).is_some() {
            return Format::IpRoute;
        }
        let is_prefix = first.contains('/') || first.parse::<std::net::IpAddr>().is_ok();
        let Some(second) = second.filter(|_| is_prefix) else { continue };
        let number = second.strip_prefix("AS").unwrap_or(second);
        if number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Format::Text;
        }
        if second.bytes().all(|byte| byte.is_ascii_lowercase()) {
            return Format::IpRoute;
        }
    }
    Format::Text
}

/// An input of which the first bytes have been looked at.
struct Peeked<R> {
    head: io::Cursor<Vec<u8>>,
    /// What happened when the head was read.
    error: Option<io::Error>,
    rest: R,
}

impl<R: BufRead> Peeked<R> {
    fn new(mut rest: R, length: u64) -> Self {
        let mut head = Vec::new();
        let error = rest.by_ref().take(length).read_to_end(&mut head).err();
        Self { head: io::Cursor::new(head), error, rest }
    }

    fn head(&self) -> &[u8] {
        self.head.get_ref()
    }

    fn is_past_head(&self) -> bool {
        self.head.position() >= self.head.get_ref().len() as u64
    }
}

impl<R: BufRead> Read for Peeked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.fill_buf()?.read(buffer)?;
        self.consume(length);
        Ok(length)
    }
}

impl<R: BufRead> BufRead for Peeked<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if !self.is_past_head() {
            return self.head.fill_buf();
        }
        match self.error.take() {
            Some(error) => Err(error),
            None => self.rest.fill_buf(),
        }
    }

    fn consume(&mut self, length: usize) {
        if self.is_past_head() { self.rest.consume(length) } else { self.head.consume(length) }
    }
}

#[cfg(test)]
#[path = "input_tests.rs"]
mod tests;
