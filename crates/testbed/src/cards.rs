//! The table of emulated cards in `docs/cards.md`, made of the lines that the tests of `make rack RECORD=1` have written to
//! `docs/cards.txt`. A test compares both; `make docs` makes it again.
//!
//! A line is `CARD | KERNEL | TRIED | OUTCOME | DATE`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use crate::documents::root;

/// The columns: what is tried, and the words above.
const COLUMNS: [(&str, &str); 12] = [
    ("auto", "`auto`"),
    ("auto, huge pages", "with huge pages"),
    ("xdp", "`xdp`"),
    ("xdp, huge pages", "with huge pages"),
    ("af_xdp", "`af_xdp`"),
    ("af_xdp, huge pages", "with huge pages"),
    ("af_packet", "`af_packet`"),
    ("VLAN's list", "VLAN's list"),
    ("full rings", "full rings"),
    ("changes", "changes"),
    ("bond", "bond"),
    ("DPDK", "DPDK"),
];

const BEGIN: &str = "<!-- of docs/cards.txt -->\n";
const END: &str = "<!-- end -->\n";

fn text_of(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn table(lines: &str) -> String {
    let mut rows: BTreeMap<(&str, &str), BTreeMap<&str, &str>> = BTreeMap::new();
    let mut dates: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for line in lines.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let [card, kernel, tried, outcome, date] = parts[..] else {
            panic!("docs/cards.txt: '{line}'; expected CARD | KERNEL | TRIED | OUTCOME | DATE");
        };
        let is_known = COLUMNS.iter().any(|(name, _)| *name == tried);
        assert!(is_known, "docs/cards.txt: '{tried}' has no column");
        rows.entry((card, kernel)).or_default().insert(tried, outcome);
        let first = dates.entry((card, kernel)).or_insert(date);
        *first = (*first).min(date);
    }
    let heads: Vec<&str> = COLUMNS.iter().map(|(_, head)| *head).collect();
    let mut text = format!("| card | kernel | {} | all since |\n", heads.join(" | "));
    let _ = writeln!(text, "|{}", " --- |".repeat(COLUMNS.len() + 3));
    for (key, row) in rows {
        let cells: Vec<&str> = COLUMNS.iter().map(|(tried, _)| *row.get(tried).unwrap_or(&"")).collect();
        let _ = writeln!(text, "| {} | {} | {} | {} |", key.0, key.1, cells.join(" | "), dates[&key]);
    }
    while text.contains("|  |") {
        text = text.replace("|  |", "| |");
    }
    text
}

#[test]
fn the_table_of_emulated_cards_is_made_of_what_the_rack_found() {
    let (page, lines) = (text_of("docs/cards.md"), text_of("docs/cards.txt"));
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the table");
    let (_, after) = rest.split_once(END).expect("the table has an end");
    let made = format!("{before}{BEGIN}\n{}\n{END}{after}", table(&lines));
    if std::env::var_os("BRICKWAY_UPDATE").is_some() {
        fs::write(root().join("docs/cards.md"), &made).expect("the page can be written");
        return;
    }
    assert!(page == made, "docs/cards.md has not what docs/cards.txt has; run 'make docs'");
}
