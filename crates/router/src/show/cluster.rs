//! `brickway show cluster`: who is there, what share of the cluster's traffic each node has, and how even that is.

use anyhow::Result;
use control::api::{ClusterNodeRow, ClusterRow};

use super::tables::{Rows, left, parse, right};
use crate::output::print;
use crate::table::Table;

/// Something that nodes have shares of: its name, and how much of it a node had.
type Load = (&'static str, fn(&ClusterNodeRow) -> u64);

const LOADS: [Load; 3] =
    [("input", |row| row.input.packets), ("routed", |row| row.routed), ("output", |row| row.output.packets)];

/// Whether a node may have some of a load.
fn may_have(row: &ClusterNodeRow, load: &str) -> bool {
    row.is_reached && row.role.split('+').any(|role| role == if load == "routed" { "route" } else { "edge" })
}

/// Prints the rows of an answer.
///
/// # Errors
/// The answer is not whole.
pub(super) fn print_rows(rows: Rows<'_>) -> Result<()> {
    let (mut nodes, mut events, mut head) = (Vec::new(), Vec::new(), String::new());
    for row in rows {
        match parse(&row?)? {
            ClusterRow::Cluster { name, topology, nodes, here, leader, problem } => {
                let leads = leader.map_or("nobody leads".to_owned(), |leader| format!("'{leader}' leads"));
                head = format!("cluster '{name}', {topology}, {nodes} nodes; {leads}; '{here}' answers\n");
                head.extend(problem.map(|problem| format!("its store cannot be used now: {problem}\n")));
            }
            ClusterRow::Node(node) => nodes.push(*node),
            ClusterRow::Event { time, text } => events.push((time, text)),
        }
    }
    print(&format!("{head}\n{}\n{}", table(&nodes).render(), evenness(&nodes)));
    if !events.is_empty() {
        let mut table = Table::new(&[left("when (UTC)"), left("what happened")]).folded(Some(100));
        events.iter().for_each(|(time, text)| table.row([utc(*time), text.clone()]));
        print(&format!("\n{}", table.render()));
    }
    Ok(())
}

fn table(nodes: &[ClusterNodeRow]) -> Table {
    let mut table = Table::new(&[
        left("node"),
        left("role"),
        left("state"),
        right("links"),
        right("lag"),
        right("input"),
        right("routed"),
        right("output"),
        right("balanced"),
        right("flowlets moved"),
    ]);
    let sums = LOADS.map(|(_, load)| nodes.iter().map(load).sum::<u64>());
    for row in nodes {
        let up = row.links.iter().filter(|link| link.is_up).count();
        let sent = row.direct + row.balanced;
        let mut cells = vec![row.node.clone(), row.role.clone(), row.state.clone()];
        cells.push(if row.links.is_empty() { "-".to_owned() } else { format!("{up}/{}", row.links.len()) });
        cells.push(row.lag.map_or("-".to_owned(), |lag| lag.to_string()));
        cells.extend(LOADS.iter().zip(sums).map(|((_, load), sum)| share(load(row), sum)));
        cells.extend([row.balanced, row.moved].map(|part| share(part, sent)));
        table.row(cells);
    }
    table
}

fn share(part: u64, all: u64) -> String {
    if all == 0 { "-".to_owned() } else { format!("{:.1}%", part as f64 * 100.0 / all as f64) }
}

/// Returns a line that says how far the most loaded node is above the mean of those that may have the load.
fn evenness(nodes: &[ClusterNodeRow]) -> String {
    let of = |(name, load): &Load| {
        let loads: Vec<(&ClusterNodeRow, u64)> =
            nodes.iter().filter(|row| may_have(row, name)).map(|row| (row, load(row))).collect();
        let (most, value) = loads.iter().max_by_key(|(_, value)| *value).filter(|(_, value)| *value > 0)?;
        let mean = loads.iter().map(|(_, value)| *value as f64).sum::<f64>() / loads.len() as f64;
        Some(format!("{name} {:.2} ({})", *value as f64 / mean, most.node))
    };
    let parts: Vec<String> = LOADS.iter().filter_map(of).collect();
    if parts.is_empty() {
        return "evenness: no packets yet\n".to_owned();
    }
    format!("evenness, most loaded node over mean, 1.00 is even: {}\n", parts.join(", "))
}

/// Returns a time in seconds since 1970 as `2026-01-31 23:59:59`.
fn utc(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that the day of a leap year comes last (Hinnant, "chrono-Compatible Low-Level Date Algorithms").
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::api::MovedRow;

    fn node(name: &str, packets: u64, is_reached: bool) -> ClusterNodeRow {
        let moved = MovedRow { packets, bytes: 100 * packets };
        ClusterNodeRow {
            node: name.to_owned(),
            role: "edge+route".to_owned(),
            state: if is_reached { "member" } else { "away" }.to_owned(),
            is_reached,
            lag: is_reached.then_some(0),
            input: moved,
            routed: packets,
            output: MovedRow { packets: 50, bytes: 1 },
            direct: 3 * packets,
            balanced: packets,
            moved: 1,
            ..ClusterNodeRow::default()
        }
    }

    #[test]
    fn evenness_is_that_of_the_nodes_that_are_there_and_may_have_the_load() {
        let mut relay = node("r", 0, true);
        relay.role = "relay".to_owned();
        let nodes = [node("a", 100, true), node("b", 300, true), node("c", 0, false), relay];
        let line = evenness(&nodes);
        assert_eq!(
            line,
            "evenness, most loaded node over mean, 1.00 is even: input 1.50 (b), routed 1.50 (b), output 1.00 (b)\n"
        );
        assert!(line.trim_end().len() <= 100, "{}", line.len());
        assert_eq!(evenness(&[node("c", 7, false)]), "evenness: no packets yet\n");
    }

    #[test]
    fn the_table_has_shares_and_fits_a_terminal() {
        let long = node("rack12-server", 123_456_789_012, true);
        let text = table(&[node("a", 100, true), long, node("c", 0, false)]).render();
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(text.contains("100.0%") && text.contains("away"), "{text}");
    }

    #[test]
    fn times_are_those_of_date() {
        // date -u -d @951782399 '+%F %T', and so on
        for (seconds, text) in [
            (0.0, "1970-01-01 00:00:00"),
            (951_782_399.9, "2000-02-28 23:59:59"),
            (951_782_400.0, "2000-02-29 00:00:00"),
            (1_798_761_599.0, "2026-12-31 23:59:59"),
            (4_107_542_400.0, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }
}
