//! `brickway show cost`: what each step of the packets' way costs, as a table.

use anyhow::Result;
use clap::{Args, ValueEnum};
use control::api::{CostFilter, CostRow};

use super::tables::{Rows, WIDEST, left, parse, right};
use crate::output::{print, say_line};
use crate::table::{Table, thousands};

/// Measures for a while what each step of the packets' way costs. While it does, every turn of the workers is timed, which
/// takes some cycles a batch; otherwise it costs nothing.
#[derive(Args, Clone, Copy, Debug)]
#[command(after_help = "Examples:
  brickway show cost                            one second, the dearest step first
  brickway show cost --sort cycles --seconds 5
  brickway show cost --unfused                  each element by itself
  brickway show cost --json | jq 'select(.share > 0.1)'

Columns: worker, packets, fill (packets in a batch), cycles (TSC ticks a packet, of the step alone), share (of the worker's time),
class, element. Where the CPU counts them also cache-misses (of the last level) and branch-misses a packet. A fused run of elements
is one row. --unfused takes runs apart until the answer is complete; packets then cost more. docs/cost.md has more.")]
pub(super) struct CostArguments {
    /// The column by which rows are sorted: names upwards, numbers downwards
    #[arg(long, value_name = "COLUMN", default_value = "share", hide_possible_values = true)]
    sort: Column,
    /// How long to measure, 1 to 30
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(CostFilter::LONGEST)))]
    seconds: u32,
    /// Have elements that work as one work apart meanwhile, so that each has a row (root, or the write group)
    #[arg(long)]
    unfused: bool,
}

impl CostArguments {
    pub(super) fn filter(&self) -> CostFilter {
        CostFilter { seconds: self.seconds, unfused: self.unfused }
    }
}

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Column {
    Element,
    Class,
    Worker,
    Packets,
    Fill,
    Cycles,
    Share,
    CacheMisses,
    BranchMisses,
}

/// Prints the rows, sorted, as a table or as JSON.
///
/// # Errors
/// The answer is not whole.
pub(super) fn print_rows(arguments: &CostArguments, rows: Rows<'_>, json: bool) -> Result<()> {
    let mut all = rows.map(|row| parse::<CostRow>(&row?)).collect::<Result<Vec<_>>>()?;
    sort(&mut all, arguments.sort);
    if json {
        for row in &all {
            say_line!("{}", serde_json::to_string(row)?);
        }
        return Ok(());
    }
    let has_misses = all.iter().any(|row| row.cache_misses_per_packet.is_some());
    let numbers = ["worker", "packets", "fill", "cycles", "share"];
    let misses = ["cache-misses", "branch-misses"];
    let misses = misses.into_iter().filter(|_| has_misses);
    let columns = numbers.into_iter().chain(misses).map(right).chain(["class", "element"].map(left));
    let mut table = Table::new(&columns.collect::<Vec<_>>()).folded(Some(WIDEST));
    for row in &all {
        table.row(cells(row, has_misses));
    }
    print(&table.render());
    // Every worker has the same to say.
    if let Some(row) = all.iter().find(|row| !row.note.is_empty()) {
        say_line!("\n{}", row.note);
    }
    Ok(())
}

/// Sorts rows by a column; those that are equal by worker and share.
fn sort(rows: &mut [CostRow], column: Column) {
    rows.sort_by(|one, other| one.worker.cmp(&other.worker).then(other.share.total_cmp(&one.share)));
    let number = |row: &CostRow| match column {
        Column::Element | Column::Class | Column::Worker => 0.0,
        Column::Packets => row.packets as f64,
        Column::Fill => row.packets_per_batch,
        Column::Cycles => row.cycles_per_packet.unwrap_or(-1.0),
        Column::Share => row.share,
        Column::CacheMisses => row.cache_misses_per_packet.unwrap_or(-1.0),
        Column::BranchMisses => row.branch_misses_per_packet.unwrap_or(-1.0),
    };
    match column {
        Column::Element => rows.sort_by(|one, other| one.elements.cmp(&other.elements)),
        Column::Class => rows.sort_by(|one, other| one.classes.cmp(&other.classes)),
        _ => rows.sort_by(|one, other| number(other).total_cmp(&number(one))),
    }
    // The rest of a worker's time belongs to no step.
    rows.sort_by_key(|row| row.elements.is_empty());
}

fn cells(row: &CostRow, has_misses: bool) -> Vec<String> {
    let per_packet = |value: Option<f64>, digits: usize| {
        value.map_or_else(String::new, |value| format!("{value:.digits$}"))
    };
    let is_step = !row.elements.is_empty();
    let mut cells = vec![
        if row.is_slow { "slow".to_owned() } else { row.worker.to_string() },
        if is_step { thousands(row.packets) } else { String::new() },
        if row.packets > 0 { format!("{:.1}", row.packets_per_batch) } else { String::new() },
        per_packet(row.cycles_per_packet, 1),
        format!("{:.1}%", row.share * 100.0),
    ];
    if has_misses {
        cells.extend([
            per_packet(row.cache_misses_per_packet, 3),
            per_packet(row.branch_misses_per_packet, 3),
        ]);
    }
    let class = match row.classes.as_slice() {
        [] | [_] => row.classes.concat(),
        several => format!("fused run of {}", several.len()),
    };
    cells.extend([class, if is_step { row.elements.join(" + ") } else { "(rest)".to_owned() }]);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(element: &str, worker: usize, packets: u64, cycles: Option<f64>, share: f64) -> CostRow {
        CostRow {
            elements: element.split_whitespace().map(str::to_owned).collect(),
            worker,
            packets,
            cycles_per_packet: cycles,
            share,
            ..CostRow::default()
        }
    }

    #[test]
    fn names_go_upwards_numbers_downwards_and_the_rest_is_last() {
        let rows = [
            row("b", 1, 5, Some(9.0), 0.2),
            row("", 0, 0, None, 0.9),
            row("a c", 0, 7, Some(1.0), 0.3),
            row("d", 0, 0, None, 0.1),
        ];
        let sorted = |column| {
            let mut rows = rows.clone();
            sort(&mut rows, column);
            rows.map(|row| row.elements.join(" ")).join(",")
        };
        assert_eq!(sorted(Column::Element), "a c,b,d,");
        assert_eq!(sorted(Column::Worker), "a c,d,b,");
        assert_eq!(sorted(Column::Packets), "a c,b,d,");
        assert_eq!(sorted(Column::Cycles), "b,a c,d,");
        assert_eq!(sorted(Column::Share), "a c,b,d,");
    }
}
