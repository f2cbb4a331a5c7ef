//! The figures of a table, and how they are shown: engines as columns, or one JSON object a line.

use super::super::print_figure;
use super::engine::Loaded;
use router::output::{say, say_line};
use router::table::{Align, Table, thousands};

/// What is measured of a table: name, unit, and whether more is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    more_is_better: bool,
}

/// Batched lookups.
pub(super) const MLPS: Metric = Metric { name: "mlps", unit: "million lookups/s", more_is_better: true };
/// Lookups one by one.
pub(super) const SINGLE_MLPS: Metric = Metric { name: "single_mlps", ..MLPS };
/// From routes in memory to ready for lookups.
pub(super) const LOAD: Metric = Metric { name: "load_s", unit: "s", more_is_better: false };
/// What lookups read.
pub(super) const MEMORY: Metric = Metric { name: "memory_mb", unit: "MB", more_is_better: false };
/// The same for all copies of the table.
pub(super) const MEMORY_BOTH: Metric = Metric { name: "memory_both_mb", ..MEMORY };
/// All copies, and the engine's own list of routes.
pub(super) const HEAP: Metric = Metric { name: "heap_mb", ..MEMORY };
/// Changes of routes that nobody reads meanwhile.
pub(super) const IDLE_UPDATES: Metric =
    Metric { name: "idle_updates_per_s", unit: "routes/s", more_is_better: true };
/// Changes of routes while a worker looks up.
pub(super) const UPDATES: Metric = Metric { name: "updates_per_s", ..IDLE_UPDATES };
/// Lookups of that worker, each with its next hop.
pub(super) const LOADED_MLPS: Metric = Metric { name: "loaded_mlps", ..MLPS };
/// The same while nothing changes.
pub(super) const UNLOADED_MLPS: Metric = Metric { name: "unloaded_mlps", ..MLPS };
/// The one by the other.
pub(super) const LOADED_RATIO: Metric =
    Metric { name: "loaded_ratio", unit: "loaded/unloaded", more_is_better: true };
/// Both again with 500,000 changes a second, or as many as there can be if that is less.
pub(super) const PACED_UPDATES: Metric = Metric { name: "paced_updates_per_s", ..IDLE_UPDATES };
/// See there.
pub(super) const PACED_RATIO: Metric = Metric { name: "paced_ratio", ..LOADED_RATIO };
/// Lookups of that worker that found no next hop.
pub(super) const LOST: Metric = Metric { name: "lost", unit: "lookups", more_is_better: false };
/// From the failure of a next hop, told to the control thread, to a worker that uses its backup.
pub(super) const FAILOVER: Metric = Metric { name: "failover_us", unit: "us", more_is_better: false };
/// The longest of them.
pub(super) const FAILOVER_WORST: Metric = Metric { name: "failover_worst_us", ..FAILOVER };
/// To the end of the publication: no worker uses it any more.
pub(super) const FAILOVER_PUBLISHED: Metric = Metric { name: "failover_published_us", ..FAILOVER };
/// The same for a member of a thousand groups.
pub(super) const FAILOVER_GROUPS: Metric = Metric { name: "failover_groups_us", ..FAILOVER };
/// The longest of them.
pub(super) const FAILOVER_GROUPS_WORST: Metric = Metric { name: "failover_groups_worst_us", ..FAILOVER };
/// To the end of the publication.
pub(super) const FAILOVER_GROUPS_PUBLISHED: Metric =
    Metric { name: "failover_groups_published_us", ..FAILOVER };

/// A row: a metric, perhaps of an address list, of each engine that has it.
struct Row {
    addresses: Option<String>,
    metric: Metric,
    values: Vec<(&'static str, f64)>,
}

/// All figures of one table.
pub(super) struct Report {
    table: String,
    routes: usize,
    /// In the order of columns: name, whether it is ours, how it is set up.
    engines: Vec<(&'static str, bool, String)>,
    rows: Vec<Row>,
}

impl Report {
    pub(super) fn new(table: &str, routes: usize) -> Self {
        Self { table: table.to_owned(), routes, engines: Vec::new(), rows: Vec::new() }
    }

    /// Adds a column, with what loading it gave.
    pub(super) fn add_engine(&mut self, name: &'static str, ours: bool, loaded: &Loaded) {
        self.engines.push((name, ours, loaded.description.clone()));
        self.add(None, LOAD, name, loaded.seconds);
        self.add(None, MEMORY, name, loaded.table_bytes as f64 / 1e6);
        if let Some(both_bytes) = loaded.both_bytes {
            self.add(None, MEMORY_BOTH, name, both_bytes as f64 / 1e6);
        }
        self.add(None, HEAP, name, loaded.heap_bytes as f64 / 1e6);
    }

    /// Adds a figure.
    pub(super) fn add(&mut self, addresses: Option<&str>, metric: Metric, engine: &'static str, value: f64) {
        let known = |row: &&mut Row| row.addresses.as_deref() == addresses && row.metric == metric;
        match self.rows.iter_mut().find(known) {
            Some(row) => row.values.push((engine, value)),
            None => self.rows.push(Row {
                addresses: addresses.map(str::to_owned),
                metric,
                values: vec![(engine, value)],
            }),
        }
    }

    /// One object a figure. A case is TABLE/ADDRESSES/ENGINE, or TABLE/ENGINE for what has no addresses.
    pub(super) fn print_json(&self) {
        for row in &self.rows {
            for (engine, value) in &row.values {
                let case = match &row.addresses {
                    Some(addresses) => format!("{}/{addresses}/{engine}", self.table),
                    None => format!("{}/{engine}", self.table),
                };
                print_figure("fib", &case, row.metric.name, *value, row.metric.unit);
            }
        }
    }

    /// A block for people.
    pub(super) fn print(&self) {
        say_line!("{}: {} routes", self.table, thousands(self.routes as u64));
        for (name, _, description) in &self.engines {
            say_line!("  {name}: {description}");
        }
        say!("\n{}\n", self.render());
    }

    fn render(&self) -> String {
        let mut columns = vec![("", Align::Left), ("", Align::Left)];
        columns.extend(self.engines.iter().map(|(name, ..)| (*name, Align::Right)));
        let ours = self.engines.iter().find(|(_, ours, _)| *ours);
        let has_others = self.engines.iter().any(|(_, ours, _)| !ours);
        if ours.is_some() && has_others {
            columns.push(("ours/best other", Align::Right));
        }
        let mut table = Table::new(&columns);
        for row in &self.rows {
            let mut cells = vec![
                row.addresses.clone().unwrap_or_default(),
                format!("{}, {}", row.metric.name, row.metric.unit),
            ];
            cells.extend(self.engines.iter().map(|(name, ..)| value_of(row, name).map_or("-".into(), shown)));
            if has_others && let Some((ours, ..)) = ours {
                cells.push(self.ratio(row, ours).map_or("-".into(), |ratio| format!("{ratio:.2}")));
            }
            table.row(cells);
        }
        table.render()
    }

    /// Our first engine's figure by the best one of the others.
    fn ratio(&self, row: &Row, ours: &str) -> Option<f64> {
        let others = self.engines.iter().filter(|(_, ours, _)| !ours);
        let values = others.filter_map(|(name, ..)| value_of(row, name));
        let better =
            |one: f64, other: f64| if row.metric.more_is_better { one.max(other) } else { one.min(other) };
        Some(value_of(row, ours)? / values.reduce(better)?)
    }
}

fn value_of(row: &Row, engine: &str) -> Option<f64> {
    row.values.iter().find(|(known, _)| *known == engine).map(|(_, value)| *value)
}

/// Three digits that matter; whole numbers from 100 on.
fn shown(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        value if value >= 100.0 => thousands(value.round() as u64),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn loaded(seconds: f64, heap: u64) -> Loaded {
        Loaded {
            seconds,
            table_bytes: 34_000_000,
            both_bytes: None,
            heap_bytes: heap,
            description: "described".into(),
        }
    }

    #[test]
    fn columns_line_up_and_the_ratio_is_to_the_best_other() {
        let mut report = Report::new("v4-real", 3);
        report.add_engine("brickway", true, &loaded(0.5, 34_000_000));
        report.add_engine("rte_fib", false, &loaded(0.25, 68_000_000));
        report.add_engine("rte_lpm", false, &loaded(10.0, 70_000_000));
        for (engine, value) in [("brickway", 300.0), ("rte_fib", 150.0), ("rte_lpm", 1234.0)] {
            report.add(Some("hot"), MLPS, engine, value);
        }
        report.add(None, FAILOVER, "brickway", 1.5);
        let text = report.render();
        let lines: Vec<&str> = text.lines().collect();
        let ends: Vec<&str> = lines.iter().map(|line| line.split_whitespace().last().unwrap()).collect();
        // The heading; load, memory, heap; lookups; failover.
        assert_eq!(ends, ["other", "2.00", "1.00", "0.50", "0.24", "-"], "{text}");
        assert!(lines.iter().all(|line| line.chars().count() == lines[0].chars().count()), "{text}");
        assert!(lines[4].contains("1,234") && lines[5].contains("1.50"), "{text}");
    }

    #[test]
    fn without_others_there_is_no_ratio() {
        let mut report = Report::new("v4-real", 3);
        report.add_engine("brickway", true, &loaded(0.5, 34_000_000));
        assert!(!report.render().contains("ours/best"));
    }
}
