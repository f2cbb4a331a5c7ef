//! `brickway-lab rib show`: the routes as rows that can be read again, so that this is also how an MRT dump becomes a table
//! of text; the route to an address; the routes around a prefix.

use std::net::IpAddr;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use ipnet::IpNet;
use serde_json::json;

use super::input::{self, InputArguments};
use super::route::Route;
use router::output::{print, say_line};
use router::table::{Align, Table};

/// Prints routes: all of them, the one to an ADDRESS, or for a PREFIX those that cover it and those inside it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab rib show table.txt 192.0.2.1          the route that a packet to the address takes (longest match)
  brickway-lab rib show table.txt 192.0.2.0/24       what covers the prefix, the prefix itself, what is inside it
  brickway-lab rib show rib.mrt.bz2 -4 > table.txt   PREFIX ORIGIN rows, as a lookup element's FILE takes them
  ip route show table all | brickway-lab rib show - --table local

Of an MRT dump, each prefix has the origin on which most peers of the collector agree. Of several routes of 'ip route'
for a prefix, that with the lowest metric is shown.
Exit codes: 0 good, 1 an error, no route to ADDRESS, or nothing around PREFIX.")]
pub(crate) struct ShowArguments {
    /// A file of routes; '-' is standard input
    file: String,
    /// An address or a prefix
    #[arg(value_name = "ADDRESS|PREFIX", value_parser = parse_query)]
    query: Option<Query>,
    #[command(flatten)]
    input: InputArguments,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Query {
    Address(IpAddr),
    Prefix(IpNet),
}

fn parse_query(text: &str) -> Result<Query, String> {
    if let Ok(address) = text.parse() {
        return Ok(Query::Address(address));
    }
    let prefix: IpNet =
        text.parse().map_err(|_| "expected '192.0.2.1', '192.0.2.0/24', '2001:db8::1' or '2001:db8::/32'")?;
    if prefix != prefix.trunc() {
        return Err(format!("it has host bits set; the network is {}", prefix.trunc()));
    }
    Ok(Query::Prefix(prefix))
}

/// How a route relates to a prefix.
fn relation(route: &Route, prefix: IpNet) -> Option<&'static str> {
    if route.prefix == prefix {
        Some("exact")
    } else if route.prefix.contains(&prefix) {
        Some("covers")
    } else if prefix.contains(&route.prefix) {
        Some("inside")
    } else {
        None
    }
}

/// The route to an address.
fn longest_match(routes: &[Route], address: IpAddr) -> Option<&Route> {
    // In order, so what is more specific comes later.
    routes.iter().rev().find(|route| route.prefix.contains(&address))
}

pub(super) fn show(arguments: &ShowArguments) -> Result<ExitCode> {
    let loaded = input::load(&arguments.file, &arguments.input)?;
    let line = |route: &Route| if arguments.json { route.json().to_string() } else { route.to_string() };
    match arguments.query {
        None => print_all(loaded.routes.iter().map(line)),
        Some(Query::Address(address)) => match longest_match(&loaded.routes, address) {
            Some(route) => say_line!("{}", line(route)),
            None => bail!("no route to {address}"),
        },
        Some(Query::Prefix(prefix)) => {
            let related: Vec<(&str, &Route)> = loaded
                .routes
                .iter()
                .filter_map(|route| relation(route, prefix).map(|relation| (relation, route)))
                .collect();
            if related.is_empty() {
                bail!("no route covers {prefix}, and none is inside it");
            }
            if arguments.json {
                print_all(related.iter().map(|(relation, route)| {
                    let mut object = route.json();
                    object["relation"] = json!(relation);
                    object.to_string()
                }));
            } else {
                let mut table = Table::new(&[("relation", Align::Left), ("route", Align::Left)]);
                for (relation, route) in related {
                    table.row([relation.to_owned(), route.to_string()]);
                }
                print(&table.render());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints lines, many at a time.
pub(super) fn print_all(lines: impl Iterator<Item = String>) {
    const AT_A_TIME: usize = 1 << 16;
    let mut text = String::with_capacity(2 * AT_A_TIME);
    for line in lines {
        text.push_str(&line);
        text.push('\n');
        if text.len() >= AT_A_TIME {
            print(&text);
            text.clear();
        }
    }
    print(&text);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::super::route::Target;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn queries() {
        assert_eq!(parse_query("192.0.2.1"), Ok(Query::Address("192.0.2.1".parse().unwrap())));
        assert_eq!(parse_query("::/0"), Ok(Query::Prefix("::/0".parse().unwrap())));
        assert_eq!(parse_query("10.0.0.1/8").unwrap_err(), "it has host bits set; the network is 10.0.0.0/8");
        assert!(parse_query("10.0.0.0/33").is_err() && parse_query("here").is_err());
    }

    proptest! {
        /// The match is the longest of all prefixes that contain the address.
        #[test]
        fn longest_of_all(prefixes in prop::collection::btree_set((0u32..16, 0u8..=32), 0..40), address in 0u32..16) {
            let spread = |bits: u32| std::net::Ipv4Addr::from(bits.rotate_right(2));
            let mut routes: Vec<Route> = prefixes.iter().map(|&(bits, length)| Route {
                prefix: IpNet::new(spread(bits).into(), length).unwrap().trunc(),
                target: Target::Origin(1),
            }).collect();
            routes.sort_by_key(|route| route.prefix);
            let address = IpAddr::from(spread(address));
            let longest = routes.iter().filter(|route| route.prefix.contains(&address)).map(|route| route.prefix.prefix_len()).max();
            prop_assert_eq!(longest_match(&routes, address).map(|route| route.prefix.prefix_len()), longest);
        }
    }
}
