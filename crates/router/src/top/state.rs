//! What is shown, and what keys do to it.

use std::time::Duration;

use control::api::SystemRow;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::history::History;
use super::rates::{Cell, Table, Tables, Unit};
use super::sample::Sample;
use crate::show::worker_name;

/// What a person looks at; its number is its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Ports,
    Workers,
    Drops,
    Punts,
    Elements,
}

impl View {
    pub(super) const ALL: [Self; 5] = [Self::Ports, Self::Workers, Self::Drops, Self::Punts, Self::Elements];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Ports => "ports",
            Self::Workers => "workers and queues",
            Self::Drops => "drops",
            Self::Punts => "punts",
            Self::Elements => "elements",
        }
    }

    /// Returns the table that is sorted, filtered and scrolled.
    pub(super) fn table(self, tables: &Tables) -> &Table {
        match self {
            Self::Ports => &tables.ports,
            Self::Workers => &tables.queues,
            Self::Drops => &tables.drops,
            Self::Punts => &tables.punts,
            Self::Elements => &tables.elements,
        }
    }

    pub(super) fn index(self) -> usize {
        self as usize
    }
}

/// How the rows of a view are sorted, and which is the first on the screen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub(super) column: usize,
    pub(super) is_descending: bool,
    pub(super) first: usize,
}

impl Order {
    /// Names go upwards, rates downwards: the highest is first.
    const fn new(view: View) -> Self {
        let is_descending = matches!(view, View::Drops | View::Punts | View::Elements);
        Self { column: 0, is_descending, first: 0 }
    }
}

/// A moment as it is shown.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) system: SystemRow,
    /// Each worker's name, and the share of its time that it worked.
    pub(super) busy: Vec<(String, f64)>,
    pub(super) tables: Tables,
    /// When the sample came.
    pub(super) at: Duration,
    /// Over how long totals are.
    pub(super) since: Option<Duration>,
}

/// What the loop does after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Draw,
    /// Everything anew: another program wrote to the terminal.
    Redraw,
    Quit,
}

/// All that the screen is drawn from.
#[derive(Debug)]
pub(super) struct State {
    pub(super) view: View,
    pub(super) orders: [Order; 5],
    pub(super) filter: String,
    /// Whether keys are letters of the filter.
    pub(super) is_typing: bool,
    pub(super) is_paused: bool,
    pub(super) shows_keys: bool,
    /// Why there is no new sample.
    pub(super) problem: Option<String>,
    pub(super) shown: Option<Shown>,
    pub(super) history: History,
    previous: Option<Sample>,
    current: Option<Sample>,
    /// Totals count from here; none while rates are shown.
    base: Option<Sample>,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            view: View::Workers,
            orders: View::ALL.map(Order::new),
            filter: String::new(),
            is_typing: false,
            is_paused: false,
            shows_keys: false,
            problem: None,
            shown: None,
            history: History::default(),
            previous: None,
            current: None,
            base: None,
        }
    }

    /// Takes what the router answered, or why it did not.
    pub(super) fn take(&mut self, answer: Result<Sample, String>) {
        let sample = match answer {
            Ok(sample) => sample,
            Err(problem) => {
                self.problem = Some(problem);
                return;
            }
        };
        self.problem = None;
        self.previous = self.current.take();
        // Another run of the router has counted from zero.
        if self.previous.as_ref().is_some_and(|previous| !previous.is_same_run(&sample)) {
            self.previous = None;
            self.base = self.base.is_some().then(|| sample.clone());
        }
        let rates = Tables::new(self.previous.as_ref(), &sample, Unit::Second);
        self.history.add(sample.ports.at, &rates.ports);
        self.current = Some(sample);
        if !self.is_paused {
            self.show();
        }
    }

    fn show(&mut self) {
        let Some(current) = &self.current else { return };
        let tables = match &self.base {
            Some(base) => Tables::new(Some(base), current, Unit::Total),
            None => Tables::new(self.previous.as_ref(), current, Unit::Second),
        };
        let workers = current.workers.rows.iter();
        self.shown = Some(Shown {
            system: current.system.clone(),
            busy: workers.map(|row| (worker_name(row.worker, row.is_slow), row.busy)).collect(),
            tables,
            at: current.ports.at,
            since: self.base.as_ref().map(|base| current.workers.at.saturating_sub(base.workers.at)),
        });
    }

    /// Does what a key means.
    pub(super) fn press(&mut self, key: KeyEvent) -> Then {
        if key.kind == KeyEventKind::Release {
            return Then::Draw;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Then::Quit,
                KeyCode::Char('l') => Then::Redraw,
                _ => Then::Draw,
            };
        }
        if self.is_typing {
            self.edit(key.code);
            return Then::Draw;
        }
        if self.shows_keys {
            self.shows_keys = false;
            return Then::Draw;
        }
        let columns = self.shown.as_ref().map_or(1, |shown| self.view.table(&shown.tables).columns.len());
        let order = &mut self.orders[self.view.index()];
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Then::Quit,
            KeyCode::Char(digit @ '1'..='5') => self.view = View::ALL[digit as usize - '1' as usize],
            KeyCode::Tab => self.turn(1),
            KeyCode::BackTab => self.turn(View::ALL.len() - 1),
            KeyCode::Char('s') => order.column = (order.column + 1) % columns,
            KeyCode::Char('r') => order.is_descending = !order.is_descending,
            KeyCode::Down => order.first += 1,
            KeyCode::Up => order.first = order.first.saturating_sub(1),
            KeyCode::PageDown => order.first += 10,
            KeyCode::PageUp => order.first = order.first.saturating_sub(10),
            KeyCode::Home => order.first = 0,
            KeyCode::Char('p' | ' ') => {
                self.is_paused = !self.is_paused;
                if !self.is_paused {
                    self.show();
                }
            }
            KeyCode::Char('z') => {
                self.base = if self.base.is_some() { None } else { self.current.clone() };
                self.show();
            }
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('?') => self.shows_keys = true,
            _ => {}
        }
        // A list may have got shorter.
        let rows = self.rows(self.view).len();
        let order = &mut self.orders[self.view.index()];
        order.first = order.first.min(rows.saturating_sub(1));
        Then::Draw
    }

    fn turn(&mut self, views: usize) {
        self.view = View::ALL[(self.view.index() + views) % View::ALL.len()];
    }

    /// Changes the filter by a key.
    fn edit(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(letter) => self.filter.push(letter),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.is_typing = false;
            }
            _ => {}
        }
        // What is found is at the top.
        self.orders.iter_mut().for_each(|order| order.first = 0);
    }

    /// Returns the rows of a view that the filter selects, sorted. It selects among the ports only where they were chosen.
    pub(super) fn rows(&self, view: View) -> Vec<&[Cell]> {
        let Some(shown) = &self.shown else { return Vec::new() };
        let table = view.table(&shown.tables);
        // The ports stay above what is looked for.
        let mut rows = match view == View::Ports && self.view != View::Ports {
            true => table.rows.iter().map(Vec::as_slice).collect(),
            false => self.selected(table),
        };
        let order = self.orders[view.index()];
        sort(&mut rows, order.column, order.is_descending);
        rows
    }

    /// Returns the rows whose texts contain the filter, in whatever case.
    pub(super) fn selected<'a>(&self, table: &'a Table) -> Vec<&'a [Cell]> {
        let filter = self.filter.to_lowercase();
        let has = |cell: &Cell| matches!(cell, Cell::Text(text) if text.to_lowercase().contains(&filter));
        table.rows.iter().map(Vec::as_slice).filter(|row| row.iter().any(has)).collect()
    }
}

/// Sorts rows by a column, and those that are equal by the columns behind it, so that none jumps.
pub(super) fn sort(rows: &mut [&[Cell]], column: usize, is_descending: bool) {
    rows.sort_by(|one, other| {
        let in_column = compare(&one[column], &other[column]);
        let behind = |column: usize| {
            let text = matches!(one[column], Cell::Text(_));
            let way = compare(&one[column], &other[column]);
            if text { way } else { way.reverse() }
        };
        let rest = (0..one.len()).map(behind).find(|way| way.is_ne());
        if is_descending { in_column.reverse() } else { in_column }
            .then(rest.unwrap_or(std::cmp::Ordering::Equal))
    });
}

fn compare(one: &Cell, other: &Cell) -> std::cmp::Ordering {
    match (one, other) {
        (Cell::Text(one), Cell::Text(other)) => natural(one, other),
        _ => one.number().unwrap_or_default().total_cmp(&other.number().unwrap_or_default()),
    }
}

/// Compares names as people do: `eth2` is before `eth10`.
fn natural(one: &str, other: &str) -> std::cmp::Ordering {
    let number = |text: &str| {
        let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        text[..end].parse::<u64>().ok().map(|number| (number, text[end..].to_owned()))
    };
    let (mut left, mut right) = (one.to_owned(), other.to_owned());
    loop {
        if let (Some((a, after_a)), Some((b, after_b))) = (number(&left), number(&right)) {
            if a != b {
                return a.cmp(&b);
            }
            (left, right) = (after_a, after_b);
            continue;
        }
        let (mut a, mut b) = (left.chars(), right.chars());
        match (a.next(), b.next()) {
            (Some(x), Some(y)) if x == y => (left, right) = (a.as_str().to_owned(), b.as_str().to_owned()),
            (x, y) => return x.cmp(&y).then_with(|| one.cmp(other)),
        }
    }
}
