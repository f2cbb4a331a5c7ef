//! `brickway-lab rib stats`: what is in a table, by family, and what it costs a router to hold it.

use std::collections::HashMap;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use ipnet::IpNet;
use serde_json::{Map, Value, json};

use super::cost;
use super::input::{self, InputArguments, Loaded};
use super::route::{Route, Target};
use router::output::{print, say_line};
use router::table::{Align, Table, thousands};

/// Counts a table's routes by family and prefix length, its origins or next hops, and how its prefixes nest;
/// compiles it to the router's tables and prints their memory and time.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab rib stats data/rib-v6.txt.gz
  ip route | brickway-lab rib stats -
  brickway-lab rib stats rib.mrt.bz2 --json | jq '.families[0].lengths'

A router has two copies of the table that it compiles the routes to: byte24 for IPv4, range_tree for IPv6. The others are
for comparison. Tables of origins have no next hops; which of 64 an origin has is drawn by a hash.")]
pub(crate) struct StatsArguments {
    /// A file of routes; '-' is standard input
    file: String,
    #[command(flatten)]
    input: InputArguments,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How many of the origins or next hops with the most routes are named.
const BUSIEST: usize = 5;
/// Characters of the longest bar.
const BAR: u64 = 40;

/// The figures of one family.
#[derive(Debug, Default, PartialEq)]
struct Figures {
    routes: u64,
    /// Routes by prefix length.
    lengths: Vec<u64>,
    /// Routes inside another route.
    nested: u64,
    /// The most routes inside each other, the outermost not counted.
    depth: usize,
    /// The share of all addresses that have a route, 0 to 1.
    covered: f64,
    has_default: bool,
    /// Routes by origin or next hop, the most first.
    targets: Vec<(String, u64)>,
}

/// The figures of routes of one family, which are in order.
fn figures(routes: &[Route]) -> Figures {
    let mut figures = Figures { lengths: vec![0; 129], ..Figures::default() };
    // The routes around the one at hand, the outermost first: they came before it.
    let mut around: Vec<IpNet> = Vec::new();
    let mut targets: HashMap<String, u64> = HashMap::new();
    for Route { prefix, target } in routes {
        let length = prefix.prefix_len();
        figures.routes += 1;
        figures.lengths[usize::from(length)] += 1;
        figures.has_default |= length == 0;
        *targets.entry(target.next_hop()).or_default() += 1;
        while around.last().is_some_and(|outer| !outer.contains(prefix)) {
            around.pop();
        }
        if around.is_empty() {
            figures.covered += (-f64::from(length)).exp2();
        } else {
            figures.nested += 1;
        }
        figures.depth = figures.depth.max(around.len());
        around.push(*prefix);
    }
    figures.targets = targets.into_iter().collect();
    figures.targets.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    figures
}

/// The routes of each family that has any.
fn by_family(routes: &[Route]) -> impl Iterator<Item = (&'static str, &[Route])> {
    let ipv4 = routes.partition_point(|route| matches!(route.prefix, IpNet::V4(_)));
    let (ipv4, ipv6) = routes.split_at(ipv4);
    [("IPv4", ipv4), ("IPv6", ipv6)].into_iter().filter(|(_, routes)| !routes.is_empty())
}

/// What a family's targets are called: `next hops` where the routes have them, `origins` otherwise.
fn target_name(routes: &[Route]) -> &'static str {
    match routes.first().map(|route| &route.target) {
        Some(Target::Ways(_)) => "next hops",
        _ => "origins",
    }
}

pub(super) fn stats(arguments: &StatsArguments) -> Result<ExitCode> {
    let loaded = input::load(&arguments.file, &arguments.input)?;
    if arguments.json {
        say_line!("{}", json(&arguments.file, &loaded));
        return Ok(ExitCode::SUCCESS);
    }
    if loaded.routes.is_empty() {
        say_line!("there are no routes in '{}'", arguments.file);
    }
    for (index, (family, routes)) in by_family(&loaded.routes).enumerate() {
        if index > 0 {
            say_line!("");
        }
        print(&text(family, &figures(routes), target_name(routes)));
        match cost::costs(routes) {
            Ok(costs) => say_line!("\n{}", costs.text().trim_end()),
            Err(error) => say_line!("\ncannot be compiled: {error:#}"),
        }
    }
    let second_choices = loaded.second_choices;
    if second_choices > 0 {
        say_line!(
            "\n{} more routes for the same prefixes have a higher metric or are those of other links",
            thousands(second_choices)
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn text(family: &'static str, figures: &Figures, targets: &str) -> String {
    let mut summary = Table::new(&[(family, Align::Left), ("", Align::Left)]);
    let mut row = |name: &str, value: String| summary.row([name.to_owned(), value]);
    row("routes", thousands(figures.routes));
    let nesting = match figures.nested {
        0 => "none inside another".to_owned(),
        nested => format!("{} inside another, at most {} deep", thousands(nested), figures.depth),
    };
    row("nesting", nesting);
    row("default route", if figures.has_default { "yes" } else { "no" }.into());
    row("addresses", format!("{} of all", percent(figures.covered)));
    row(targets, thousands(figures.targets.len() as u64));
    for (target, count) in figures.targets.iter().take(BUSIEST) {
        row("", format!("{target}: {}", thousands(*count)));
    }
    let mut lengths = Table::new(&[
        ("length", Align::Right),
        ("routes", Align::Right),
        ("share", Align::Right),
        ("", Align::Left),
    ]);
    let most = figures.lengths.iter().copied().max().unwrap_or(0).max(1);
    for (length, &count) in figures.lengths.iter().enumerate().filter(|&(_, &count)| count > 0) {
        let share = count as f64 / figures.routes as f64;
        // Few are not none.
        let bar = (count * BAR / most).max(1);
        let share = if share < 0.001 { "<0.1%".to_owned() } else { percent(share) };
        lengths.row([format!("/{length}"), thousands(count), share, "#".repeat(bar as usize)]);
    }
    format!("{}\n{}", summary.render(), lengths.render())
}

/// A share in percent, with enough digits that a small one is not 0.
fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent == 0.0 || percent >= 0.1 => format!("{percent:.1}%"),
        percent if percent >= 0.001 => format!("{percent:.3}%"),
        percent => format!("{percent:.1e}%"),
    }
}

fn json(file: &str, loaded: &Loaded) -> Value {
    let families: Vec<Value> = by_family(&loaded.routes)
        .map(|(family, routes)| {
            let figures = figures(routes);
            let lengths: Map<String, Value> = figures
                .lengths
                .iter()
                .enumerate()
                .filter(|&(_, &count)| count > 0)
                .map(|(length, &count)| (length.to_string(), count.into()))
                .collect();
            let busiest: Vec<Value> = figures
                .targets
                .iter()
                .take(BUSIEST)
                .map(|(name, count)| json!({ "name": name, "routes": count }))
                .collect();
            json!({
                "family": family,
                "routes": figures.routes,
                "nested": figures.nested,
                "depth": figures.depth,
                "has_default": figures.has_default,
                "covered": figures.covered,
                target_name(routes).replace(' ', "_"): figures.targets.len(),
                "busiest": busiest,
                "lengths": lengths,
                "compiled": cost::costs(routes).map_or_else(
                    |error| json!({ "error": format!("{error:#}") }),
                    |costs| costs.json(),
                ),
            })
        })
        .collect();
    json!({
        "file": file,
        "routes": loaded.routes.len(),
        "bad": loaded.bad,
        "second_choices": loaded.second_choices,
        "families": families,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use proptest::prelude::*;

    fn route(prefix: &str, origin: u32) -> Route {
        Route { prefix: prefix.parse().unwrap(), target: Target::Origin(origin) }
    }

    #[test]
    fn a_small_table() {
        let routes = [
            route("10.0.0.0/8", 1),
            route("10.0.0.0/16", 2),
            route("10.0.1.0/24", 1),
            route("10.1.0.0/16", 1),
            route("128.0.0.0/1", 3),
        ];
        let figures = figures(&routes);
        assert_eq!((figures.routes, figures.nested, figures.depth), (5, 3, 2));
        assert_eq!(figures.covered, 0.5 + 1.0 / 256.0);
        assert_eq!(figures.targets, [("1".into(), 3), ("2".into(), 1), ("3".into(), 1)]);
        assert_eq!(
            text("IPv4", &figures, "origins"),
            "\
IPv4
routes         5
nesting        3 inside another, at most 2 deep
default route  no
addresses      50.4% of all
origins        3
               1: 3
               2: 1
               3: 1

length  routes  share
    /1       1  20.0%  ####################
    /8       1  20.0%  ####################
   /16       2  40.0%  ########################################
   /24       1  20.0%  ####################
"
        );
    }

    #[test]
    fn shares() {
        assert_eq!(
            [0.0, 1.0, 0.4567, 0.0005, 1e-9].map(percent),
            ["0.0%", "100.0%", "45.7%", "0.050%", "1.0e-7%"]
        );
    }

    proptest! {
        /// Nesting as found by comparing each route with each other one.
        #[test]
        fn nesting_is_that_of_all_pairs(prefixes in prop::collection::btree_set((0u32..64, 0u8..=32), 0..40)) {
            let mut routes: Vec<Route> = prefixes.iter().map(|&(bits, length)| Route {
                prefix: IpNet::new(std::net::Ipv4Addr::from(bits << 26 | bits >> 1).into(), length).unwrap().trunc(),
                target: Target::Origin(1),
            }).collect();
            routes.sort_by_key(|route| route.prefix);
            routes.dedup_by_key(|route| route.prefix);
            let around = |route: &Route| routes.iter().filter(|outer| outer.prefix != route.prefix && outer.prefix.contains(&route.prefix)).count();
            let figures = figures(&routes);
            prop_assert_eq!(figures.nested, routes.iter().filter(|route| around(route) > 0).count() as u64);
            prop_assert_eq!(figures.depth, routes.iter().map(around).max().unwrap_or(0));
        }
    }
}
