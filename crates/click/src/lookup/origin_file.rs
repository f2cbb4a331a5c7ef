//! `FILE` and `VIA`: routes from a table of prefixes and the autonomous systems they come from, such as route
//! collectors publish. Which next hop serves which origin is drawn by a hash, so that a router has a full table to
//! show and to measure without a peering.

use std::path::Path;

use fib::{NextHopIndex, Rib, read, synthesize};
use graph::ConfigError;
use graph::lang::{split_arguments, split_words};

use super::family::RouteFamily;
use super::route::Via;
use super::routes::Transaction;

/// How many bad rows the user is shown.
const ERRORS_SHOWN: usize = 3;

/// Reads the text of `VIA`: `[GATEWAY] OUTPUT` and so on.
pub(super) fn parse_via<A: RouteFamily>(text: &str, outputs: usize) -> Result<Vec<Via<A>>, ConfigError> {
    let mut next_hops = Vec::new();
    let mut mistakes = Vec::new();
    for (index, part) in split_arguments(text).iter().enumerate() {
        match Via::parse(&split_words(part), outputs) {
            Ok(next_hop) => next_hops.push(next_hop),
            Err(error) => {
                mistakes.push(format!("VIA: next hop {} should be '[GATEWAY] OUTPUT': {error}", index + 1));
            }
        }
    }
    if next_hops.len() > NextHopIndex::MAX.index() {
        mistakes.push(format!("VIA: expected at most {} next hops", NextHopIndex::MAX.get()));
    }
    if mistakes.is_empty() { Ok(next_hops) } else { Err(mistakes.into()) }
}

/// Adds the routes of the table at `path` to `rib` where it has none for the prefix. Returns what to tell the user of
/// rows that could not be used.
pub(super) fn load<A: RouteFamily>(
    path: &str,
    via: &[Via<A>],
    rib: &mut Rib<A>,
    transaction: &mut Transaction<'_, A>,
) -> Result<Vec<String>, ConfigError> {
    if via.is_empty() {
        return Err(ConfigError::new(
            "FILE needs VIA, the next hops of its routes, such as VIA \"192.0.2.1 0, 192.0.2.2 1\"",
        ));
    }
    let table = read::load::<A>(Path::new(path)).map_err(|error| {
        format!("FILE: cannot read '{path}': {error}; expected a table of PREFIX ORIGIN rows, gzip or not")
    })?;
    let mut numbers = Vec::with_capacity(via.len());
    for &next_hop in via {
        numbers.push(transaction.number(next_hop).map_err(|error| format!("VIA: {error}"))?);
    }
    for row in &table.rows {
        let choice = synthesize::next_hop_of_origin(row.origin, numbers.len() as u16);
        // The prefix has a route already when it is one of the arguments, which come before the file.
        let _ = rib.insert(row.prefix, numbers[choice.index() - 1]);
    }
    let mut notes = Vec::new();
    if table.bad > 0 {
        let total = table.rows.len() as u64 + table.bad;
        notes.push(format!("{path}: {} of {total} rows are bad and were left out:", table.bad));
        notes.extend(table.errors.iter().take(ERRORS_SHOWN).map(|error| format!("{path}: {error}")));
    } else if table.rows.is_empty() {
        notes.push(format!("{path}: there are no routes in it"));
    }
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn via_is_a_list_of_next_hops() {
        let hops = parse_via::<u32>("192.0.2.1 0, - 1, 2", 3).unwrap();
        assert_eq!(hops.iter().map(ToString::to_string).collect::<Vec<_>>(), ["192.0.2.1 0", "- 1", "- 2"]);
        assert_eq!(parse_via::<u32>("", 3).unwrap(), []);
        let error = parse_via::<u32>("192.0.2.1 0, 3, x y", 3).unwrap_err();
        assert_eq!(
            error.messages,
            [
                "VIA: next hop 2 should be '[GATEWAY] OUTPUT': there is no output 3; the element has 0 to 2",
                "VIA: next hop 3 should be '[GATEWAY] OUTPUT': 'x' is not a gateway; \
                 expected an IP address or '-'",
            ]
        );
    }
}
