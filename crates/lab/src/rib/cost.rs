//! What it costs a router to hold the routes of a file: the tables of its family, compiled here and now. A router holds
//! two copies, the one that workers read and the one that takes changes, and the routes themselves beside them.

use std::any::Any;
use std::time::{Duration, Instant};

use anyhow::Result;
use fib::{NextHopIndex, Rib, Table, TableError};
use packet::Family;
use serde_json::{Value, json};

use super::compile::{self, NextHops};
use super::route::Route;
use router::table::{self, Align, thousands};

/// The costs of one family.
pub(super) struct Costs {
    next_hops: NextHops,
    /// Bytes that the routes take, estimated.
    rib_bytes: usize,
    /// Ranges of addresses with one next hop, or none; the same in all tables.
    ranges: u64,
    /// By name of the table.
    tables: Vec<(&'static str, Result<Cost, TableError>)>,
}

/// The cost of one table.
struct Cost {
    bytes: usize,
    compile: Duration,
}

/// Compiles the routes of one family to its tables.
///
/// # Errors
///
/// If they have too many next hops. A table that cannot hold them is part of the result.
pub(super) fn costs(routes: &[Route]) -> Result<Costs> {
    let ribs = compile::ribs(routes)?;
    let mut costs = Costs { next_hops: ribs.next_hops, rib_bytes: 0, ranges: 0, tables: Vec::new() };
    costs.rib_bytes = if ribs.ipv6.is_empty() { ribs.ipv4.memory_bytes() } else { ribs.ipv6.memory_bytes() };
    macro_rules! add {
        ($($name:ident: $family:ty, $table:ty;)*) => { $(
            for rib in [&ribs.ipv4 as &dyn Any, &ribs.ipv6] {
                if let Some(rib) = rib.downcast_ref::<Rib<$family>>().filter(|rib| !rib.is_empty()) {
                    costs.add::<$family, $table>(rib);
                }
            }
        )* };
    }
    fib::for_each_table!(add);
    Ok(costs)
}

impl Costs {
    fn add<A: Family, T: Table<A>>(&mut self, rib: &Rib<A>) {
        let mut compile = || {
            // The first touch of new memory is part of what loading a table takes.
            let begin = Instant::now();
            let mut table = T::new()?;
            table.rebuild(&mut T::Compiler::default(), rib)?;
            let compile = begin.elapsed();
            self.ranges = ranges(&table);
            Ok(Cost { bytes: table.memory_bytes(), compile })
        };
        let cost = compile();
        self.tables.push((T::NAME, cost));
    }

    /// A table for people.
    pub(super) fn text(&self) -> String {
        let mut rows = table::Table::new(&[
            ("table", Align::Left),
            ("one copy", Align::Right),
            ("both", Align::Right),
            ("compiled in", Align::Right),
        ]);
        let mut problems = String::new();
        for (name, cost) in &self.tables {
            let cells = match cost {
                Ok(cost) => [
                    megabytes(cost.bytes),
                    megabytes(2 * cost.bytes),
                    format!("{:.1} ms", cost.compile.as_secs_f64() * 1e3),
                ],
                Err(error) => {
                    problems.push_str(&format!("{error}\n"));
                    ["-", "-", "-"].map(str::to_owned)
                }
            };
            rows.row([&[(*name).to_owned()], &cells[..]].concat());
        }
        rows.row(["routes".into(), megabytes(self.rib_bytes)]);
        format!(
            "compiled to {}: {} ranges of addresses\n{}{problems}",
            self.next_hops.text(),
            thousands(self.ranges),
            rows.render()
        )
    }

    /// The same for programs.
    pub(super) fn json(&self) -> Value {
        let tables: Vec<Value> = self
            .tables
            .iter()
            .map(|(name, cost)| match cost {
                Ok(cost) => json!({
                    "table": name,
                    "bytes": cost.bytes,
                    "both_bytes": 2 * cost.bytes,
                    "compile_ms": cost.compile.as_secs_f64() * 1e3,
                }),
                Err(error) => json!({ "table": name, "error": error.to_string() }),
            })
            .collect();
        json!({
            "next_hops": self.next_hops.count(),
            "next_hops_from": self.next_hops.json(),
            "ranges": self.ranges,
            "routes_bytes": self.rib_bytes,
            "tables": tables,
        })
    }
}

/// How many ranges of addresses with one next hop, or none, a table has.
fn ranges<A: Family, T: Table<A>>(table: &T) -> u64 {
    let (mut count, mut last) = (0, None);
    table.for_each_range(&mut |_, next_hop: NextHopIndex| {
        if last.replace(next_hop) != Some(next_hop) {
            count += 1;
        }
    });
    count
}

/// `12345678` as `12.3 MB`.
pub(super) fn megabytes(bytes: usize) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::super::route::Target;
    use super::*;

    fn routes(prefixes: impl Iterator<Item = String>) -> Vec<Route> {
        prefixes.map(|prefix| Route { prefix: prefix.parse().unwrap(), target: Target::Origin(1) }).collect()
    }

    #[test]
    fn a_family_has_its_tables() {
        let ipv4 = costs(&routes(["10.0.0.0/8", "12.0.0.0/8", "13.0.0.0/8"].map(str::to_owned).into_iter()))
            .unwrap();
        // None, 10/8, none, 12/7, none.
        assert_eq!((ipv4.ranges, ipv4.next_hops), (5, NextHops::Drawn));
        let bytes = |table: &str| {
            let (_, cost) = ipv4.tables.iter().find(|(name, _)| *name == table).unwrap();
            cost.as_ref().unwrap().bytes
        };
        assert!(bytes("dir24_8") >= 2 << 24 && bytes("rank") < 2 << 24 && bytes("byte24") < 2 << 24);
        let ipv6 = costs(&routes(["2001:db8::/32".to_owned()].into_iter())).unwrap();
        assert_eq!(ipv6.ranges, 3);
        assert!(
            ipv6.tables.iter().any(|(name, _)| *name == "range_tree")
                && ipv6.tables.len() < ipv4.tables.len()
        );
    }

    #[test]
    fn a_table_that_is_full_says_so_and_the_others_count() {
        let halves = (0..32_769u32).map(|i| format!("{}/25", std::net::Ipv4Addr::from(i << 8)));
        let costs = costs(&routes(halves)).unwrap();
        assert!(costs.tables[0].1.is_ok() && costs.tables[1].1.is_ok());
        let text = costs.text();
        assert!(text.contains("dir24_8 is full at 0.128.0.0/25"), "{text}");
        let json = costs.json();
        let tables = json["tables"].as_array().unwrap();
        assert!(tables.iter().any(|table| table["error"].is_string()), "{json}");
        assert!(tables.iter().any(|table| table["bytes"].is_u64()), "{json}");
    }
}
