//! The access list of a router that runs: its counts, and how it changes.

use std::sync::Arc;

use control::api::schema::Schemas;
use control::api::utoipa;
use elements::acl::{ACCESS_LIST, AccessList};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Action, Settings};
use crate::features::{Running, Shown};
use crate::table::{Align, thousands};

/// The elements that judge by an access list.
fn elements<'a>(running: &'a Running<'_>) -> impl Iterator<Item = &'a str> {
    let elements = running.config.elements.iter().filter(|element| element.has(ACCESS_LIST));
    elements.map(|element| element.name.as_str())
}

/// Their lists.
pub(super) fn lists(running: &Running<'_>) -> Vec<Arc<AccessList>> {
    elements(running).filter_map(|name| running.shared.get(&AccessList::key(name))).collect()
}

/// A rule.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = AclRow)]
struct Row {
    /// Its place, from 1; 0 is what happens to packets that no rule decides.
    number: u32,
    /// The rule as it is written.
    rule: String,
    /// Packets that it decided.
    packets: u64,
}

pub(super) static SHOWN: &[Shown] = &[Shown {
    name: "acl",
    about: "The access list, with packets by rule",
    columns: &[("rule", Align::Right), ("packets", Align::Right), ("", Align::Left)],
    rows,
    row: Schemas::add::<Row>,
    folds_at: None,
    lines: |row| {
        let Row { number, rule, packets } = serde_json::from_value(row)?;
        let number = if number == 0 { "default".to_owned() } else { number.to_string() };
        Ok(vec![vec![number, thousands(packets), rule]])
    },
    nothing: "",
    counts: &["packets"],
    labels: &["number", "rule"],
}];

/// The rules, and behind them the default, with the packets that each decided. Elements with the same rules, as those of IPv4 and
/// IPv6, count together.
fn rows(running: &Running<'_>) -> Result<Vec<Value>, String> {
    let mut lists: Vec<Vec<Row>> = Vec::new();
    for element in elements(running) {
        let text = (running.read)(&format!("{element}.rules"))?
            + "\n"
            + &(running.read)(&format!("{element}.default"))?;
        let rows: Vec<Row> = text.lines().filter(|line| !line.is_empty()).map(row).collect();
        let is_same = |known: &&mut Vec<Row>| {
            known.len() == rows.len() && known.iter().zip(&rows).all(|(known, row)| known.rule == row.rule)
        };
        match lists.iter_mut().find(is_same) {
            Some(known) => known.iter_mut().zip(rows).for_each(|(known, row)| known.packets += row.packets),
            None => lists.push(rows),
        }
    }
    if lists.is_empty() {
        return Err(
            "this router has no access list; --acl FILE or [acl] in its settings give it one".to_owned()
        );
    }
    lists
        .into_iter()
        .flatten()
        .map(|row| serde_json::to_value(row).map_err(|error| error.to_string()))
        .collect()
}

/// Reads `10 permit tcp any any  # 7 packets, 420 bytes`.
fn row(line: &str) -> Row {
    let (rule, note) = line.split_once('#').unwrap_or((line, ""));
    let packets = note.split_whitespace().find_map(|word| word.replace(',', "").parse().ok());
    let number = rule.split_whitespace().next().and_then(|word| word.parse().ok());
    Row { number: number.unwrap_or(0), rule: rule.trim().to_owned(), packets: packets.unwrap_or(0) }
}

/// Gives the lists their rules and their default again, which is returned. The calling thread compiles them, so that no worker waits.
pub(super) fn reload(settings: &Settings, running: &Running<'_>) -> Result<Action, String> {
    let text = settings.file_text().map_err(|error| format!("{error:#}"))?;
    let mut permits = false;
    // What one list understands the other one does.
    for list in lists(running) {
        list.replace_with_default(settings.rules_and_file(&text), settings.permits_the_rest())?;
        permits = list.permits_the_rest();
    }
    Ok(if permits { Action::Permit } else { Action::Deny })
}
