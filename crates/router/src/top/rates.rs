//! Tables of rates, or of totals since a moment: what changed between two samples.
//!
//! A counter that is lower than before began again, and a row that was not there before has nothing to be compared with. Neither
//! has a rate until the next sample. Reasons of drops and punts are listed only once they have packets, so they begin at zero.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use control::api::{PortRow, QueueRow};

use super::sample::{Listed, Sample};
use crate::show::{link_state, worker_name};
use crate::table::Align;

/// What stands in a row of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Text(String),
    /// A rate or a count; none where it is not known.
    Number(Option<f64>),
    /// A part of a whole, 0 to 1.
    Share(Option<f64>),
}

impl Cell {
    /// The cell as people read it: three digits of a number, with a unit prefix.
    pub(super) fn pretty(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(Some(value)) => three_digits(*value),
            // As wide as a unit prefix, so that numbers line up.
            Self::Number(None) => "-  ".to_owned(),
            Self::Share(_) => self.plain(),
        }
    }

    /// The cell as scripts read it: whole numbers, and never empty.
    pub(super) fn plain(&self) -> String {
        match self {
            Self::Text(text) if text.is_empty() => "-".to_owned(),
            Self::Text(text) => text.clone(),
            Self::Number(Some(value)) if value.fract() == 0.0 || *value >= 100.0 => format!("{value:.0}"),
            Self::Number(Some(value)) => format!("{value:.1}"),
            Self::Share(Some(share)) => format!("{:.1}%", share * 100.0),
            Self::Number(None) | Self::Share(None) => "-".to_owned(),
        }
    }

    /// The number in it, -1 where it is not known; none for text.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Self::Text(_) => None,
            Self::Number(value) | Self::Share(value) => Some(value.unwrap_or(-1.0)),
        }
    }
}

/// `1234567.0` as `1.23 M`, `12.0` as `12` and blanks for the prefix.
fn three_digits(value: f64) -> String {
    if value < 999.5 {
        return if value < 9.95 && value.fract() != 0.0 {
            format!("{value:.1}  ")
        } else {
            format!("{value:.0}  ")
        };
    }
    let (mut value, mut prefix) = (value, ' ');
    for larger in ['k', 'M', 'G', 'T'] {
        if value >= 999.5 {
            (value, prefix) = (value / 1e3, larger);
        }
    }
    match value {
        ..9.995 => format!("{value:.2} {prefix}"),
        9.995..99.95 => format!("{value:.1} {prefix}"),
        _ => format!("{value:.0} {prefix}"),
    }
}

/// A column of a table.
#[derive(Debug)]
pub(super) struct Column {
    /// Its title over rates, and over totals.
    titles: [&'static str; 2],
    pub(super) align: Align,
    /// Whether a number above zero is bad news.
    pub(super) is_loss: bool,
}

impl Column {
    pub(super) fn title(&self, unit: Unit) -> &'static str {
        self.titles[usize::from(unit == Unit::Total)]
    }
}

const fn text(title: &'static str) -> Column {
    Column { titles: [title, title], align: Align::Left, is_loss: false }
}

const fn number(rate: &'static str, total: &'static str) -> Column {
    Column { titles: [rate, total], align: Align::Right, is_loss: false }
}

const fn loss(rate: &'static str, total: &'static str) -> Column {
    Column { titles: [rate, total], align: Align::Right, is_loss: true }
}

/// Numbers come first, so that scripts can count columns: texts at the end may have spaces.
const PORTS: &[Column] = &[
    text("port"),
    number("rx p/s", "rx p"),
    number("rx bit/s", "rx bit"),
    number("tx p/s", "tx p"),
    number("tx bit/s", "tx bit"),
    loss("drop/s", "drop"),
    loss("err/s", "err"),
    number("Linux/s", "Linux"),
    text("link"),
    text("driver"),
];

const WORKERS: &[Column] = &[
    text("worker"),
    number("busy", "busy"),
    number("since start", "since start"),
    number("packets/s", "packets"),
    number("cycles/packet", "cycles/packet"),
    text("receive queues"),
];

const QUEUES: &[Column] = &[
    text("queue"),
    text("way"),
    text("worker"),
    number("packets/s", "packets"),
    number("bit/s", "bit"),
    loss("drop/s", "dropped"),
    text("shared with, reasons of drops"),
];

const DROPS: &[Column] =
    &[loss("dropped/s", "dropped"), number("total", "total"), text("element"), text("class"), text("reason")];

const PUNTS: &[Column] =
    &[number("punted/s", "punted"), number("total", "total"), text("element"), text("class"), text("reason")];

const ELEMENTS: &[Column] = &[
    number("cycles/s", "cycles"),
    number("share", "share"),
    number("packets/s", "packets"),
    number("cycles/packet", "cycles/packet"),
    loss("dropped/s", "dropped"),
    text("element"),
    text("class"),
];

/// A table of one of the views.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) columns: &'static [Column],
    pub(super) rows: Vec<Vec<Cell>>,
    /// What stands in the place of rows when there are none.
    pub(super) nothing: String,
}

/// What numbers are: changes a second, or since a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Second,
    Total,
}

/// The tables of a moment.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    pub(super) unit: Unit,
    pub(super) ports: Table,
    pub(super) workers: Table,
    pub(super) queues: Table,
    pub(super) drops: Table,
    pub(super) punts: Table,
    pub(super) elements: Table,
}

/// The rows of an earlier sample by what names them, and how long ago it was.
struct Before<'a, K, T> {
    rows: HashMap<K, &'a T>,
    /// None without an earlier sample; 1 for totals.
    seconds: Option<f64>,
}

impl<'a, K: Eq + Hash, T> Before<'a, K, T> {
    fn new(old: Option<&'a Listed<T>>, now: Duration, unit: Unit, key: impl Fn(&'a T) -> K) -> Self {
        let seconds = old.map(|old| match unit {
            Unit::Second => now.saturating_sub(old.at).as_secs_f64(),
            Unit::Total => 1.0,
        });
        let rows = old.into_iter().flat_map(|old| &old.rows).map(|row| (key(row), row)).collect();
        Self { rows, seconds: seconds.filter(|seconds| *seconds > 0.0) }
    }

    /// How much a counter of the row grew, in all or a second.
    fn growth(&self, key: &K, now: f64, counter: impl Fn(&T) -> f64) -> Option<f64> {
        let (before, seconds) = (counter(self.rows.get(key)?), self.seconds?);
        (now >= before).then(|| (now - before) / seconds)
    }

    /// As [`Before::growth`], of a counter that has a row only once it counted something.
    fn growth_from_zero(&self, key: &K, now: f64, counter: impl Fn(&T) -> f64) -> Option<f64> {
        match self.rows.contains_key(key) {
            true => self.growth(key, now, counter),
            false => self.seconds.map(|seconds| now / seconds),
        }
    }
}

impl Tables {
    /// Compares a sample with an earlier one.
    pub(super) fn new(old: Option<&Sample>, new: &Sample, unit: Unit) -> Self {
        let old = old.filter(|old| old.is_same_run(new));
        Self {
            unit,
            ports: ports(old, new, unit),
            workers: workers(old, new, unit),
            queues: queues(old, new, unit),
            drops: reasons(
                (DROPS, "no packets dropped"),
                old.map(|old| &old.drops),
                &new.drops,
                unit,
                |row| ([&row.element, &row.class, &row.reason], row.packets),
            ),
            punts: reasons(
                (PUNTS, "no packets punted"),
                old.map(|old| &old.punts),
                &new.punts,
                unit,
                |row| ([&row.element, &row.class, &row.reason], row.packets),
            ),
            elements: elements(old, new, unit),
        }
    }
}

fn table<T>(
    columns: &'static [Column],
    nothing: &str,
    listed: &Listed<T>,
    row: impl FnMut(&T) -> Vec<Cell>,
) -> Table {
    let nothing = if listed.refusal.is_empty() { nothing } else { &listed.refusal };
    Table { columns, rows: listed.rows.iter().map(row).collect(), nothing: nothing.to_owned() }
}

fn ports(old: Option<&Sample>, new: &Sample, unit: Unit) -> Table {
    let before = Before::new(old.map(|old| &old.ports), new.ports.at, unit, |row| row.name.as_str());
    table(PORTS, "no ports", &new.ports, |row| {
        let growth = |counter: fn(&PortRow) -> u64| {
            let counter = |row: &PortRow| counter(row) as f64;
            Cell::Number(before.growth(&row.name.as_str(), counter(row), counter))
        };
        vec![
            Cell::Text(row.name.clone()),
            growth(|row| row.rx.packets),
            growth(|row| row.rx.bytes * 8),
            growth(|row| row.tx.packets),
            growth(|row| row.tx.bytes * 8),
            growth(|row| row.rx.dropped + row.tx.dropped),
            growth(|row| row.rx.errors + row.tx.errors),
            growth(|row| row.to_linux),
            Cell::Text(link_state(row).to_owned()),
            Cell::Text(format!("{} {}", row.driver, row.mode).trim().to_owned()),
        ]
    })
}

fn workers(old: Option<&Sample>, new: &Sample, unit: Unit) -> Table {
    let before = Before::new(old.map(|old| &old.workers), new.workers.at, unit, |row| row.worker);
    table(WORKERS, "no workers", &new.workers, |row| {
        let packets = before.growth(&row.worker, row.packets as f64, |row| row.packets as f64);
        vec![
            Cell::Text(worker_name(row.worker, row.is_slow)),
            Cell::Share(Some(row.busy)),
            Cell::Share(Some(row.busy_since_start)),
            Cell::Number(packets),
            Cell::Number(row.cycles_per_packet),
            Cell::Text(row.queues.join(", ")),
        ]
    })
}

fn queues(old: Option<&Sample>, new: &Sample, unit: Unit) -> Table {
    let key = |row: &QueueRow| (row.port.clone(), row.queue, row.sends, row.worker);
    let dropped = |row: &QueueRow| row.dropped.iter().map(|(_, packets)| packets).sum::<u64>() as f64;
    let before = Before::new(old.map(|old| &old.queues), new.queues.at, unit, key);
    table(QUEUES, "no queues", &new.queues, |row| {
        let name = key(row);
        let others = row.shared_with.iter().map(|worker| format!("worker {worker}"));
        let reasons =
            row.dropped.iter().filter(|(_, packets)| *packets > 0).map(|(reason, _)| reason.clone());
        vec![
            Cell::Text(format!("{}:{}", row.port, row.queue)),
            Cell::Text(if row.sends { "tx" } else { "rx" }.to_owned()),
            Cell::Text(worker_name(row.worker, row.is_slow)),
            Cell::Number(before.growth(&name, row.packets as f64, |row| row.packets as f64)),
            Cell::Number(before.growth(&name, row.bytes as f64 * 8.0, |row| row.bytes as f64 * 8.0)),
            Cell::Number(before.growth(&name, dropped(row), dropped)),
            Cell::Text(others.chain(reasons).collect::<Vec<_>>().join(", ")),
        ]
    })
}

/// Packets by element and reason: drops and punts.
fn reasons<T>(
    (columns, nothing): (&'static [Column], &str),
    old: Option<&Listed<T>>,
    new: &Listed<T>,
    unit: Unit,
    counted: fn(&T) -> ([&String; 3], u64),
) -> Table {
    let before = Before::new(old, new.at, unit, |row| counted(row).0);
    table(columns, nothing, new, |row| {
        let (name, packets) = counted(row);
        let growth = before.growth_from_zero(&name, packets as f64, |row| counted(row).1 as f64);
        let [element, class, reason] = name.map(|text| Cell::Text(text.clone()));
        vec![Cell::Number(growth), Cell::Number(Some(packets as f64)), element, class, reason]
    })
}

fn elements(old: Option<&Sample>, new: &Sample, unit: Unit) -> Table {
    let before = Before::new(old.map(|old| &old.elements), new.elements.at, unit, |row| row.element.as_str());
    let mut all = 0.0;
    let mut table = table(ELEMENTS, "no elements", &new.elements, |row| {
        let name = row.element.as_str();
        let packets = before.growth(&name, row.packets as f64, |row| row.packets as f64);
        let dropped = before.growth(&name, row.dropped as f64, |row| row.dropped as f64);
        // An estimate from a sample: it may get lower while packets do not come.
        let cycles = before.growth(&name, row.cycles, |row| row.cycles).or(packets.map(|_| 0.0));
        all += cycles.unwrap_or_default();
        let each = cycles.zip(packets).filter(|(_, packets)| *packets > 0.0);
        vec![
            Cell::Number(cycles.map(f64::round)),
            Cell::Share(None),
            Cell::Number(packets),
            Cell::Number(each.map(|(cycles, packets)| cycles / packets)),
            Cell::Number(dropped),
            Cell::Text(row.element.clone()),
            Cell::Text(row.class.clone()),
        ]
    });
    for row in &mut table.rows {
        if let [Cell::Number(Some(cycles)), share, ..] = row.as_mut_slice() {
            *share = Cell::Share((all > 0.0).then(|| *cycles / all));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_for_people_and_all_for_scripts() {
        for (value, pretty, plain) in [
            (0.0, "0  ", "0"),
            (0.25, "0.2  ", "0.2"),
            (9.96, "10  ", "10.0"),
            (812.5, "812  ", "812"),
            (999.7, "1.00 k", "1000"),
            (12_345.0, "12.3 k", "12345"),
            (99_960.0, "100 k", "99960"),
            (999_499.0, "999 k", "999499"),
            (999_500.0, "1.00 M", "999500"),
            (7.25e15, "7250 T", "7250000000000000"),
        ] {
            let cell = Cell::Number(Some(value));
            assert_eq!((cell.pretty().as_str(), cell.plain().as_str()), (pretty, plain));
        }
    }
}
