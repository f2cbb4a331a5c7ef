//! The screen: a head, the ports, as many views as there is room for, and the keys.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::rates::{Cell, Column, Table, Unit};
use super::state::{Order, Shown, State, View};
use crate::show::uptime;
use crate::table::Align;

/// Width from which two views are side by side.
const TWO_COLUMNS: u16 = 160;
/// Lines from which on a view is worth showing beside others.
const LEAST_LINES: u16 = 12;
/// Characters that a line of the last minute has at least and at most.
const LAST_MINUTE: std::ops::RangeInclusive<usize> = 10..=60;
/// Letters to which a text is cut where a table is too wide.
const LEAST_TEXT: usize = 4;

/// Whether colours are used, and how often samples come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) has_colours: bool,
    pub(super) every: Duration,
}

impl Look {
    /// A colour where there are colours: it never says what no text says.
    fn colour(self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }
}

/// The keys, as the key `?` shows them.
const KEYS: &str = " Tab 1-5     the view: ports, workers and queues, drops, punts, elements
 s           sort by the next column
 r           reverse the order
 up down     move in a long list; page up, page down, Home too
 p, space    pause; again: go on
 z           totals from now on; again: rates
 /           show only rows that contain a text; Enter keeps it, Esc drops it
 Ctrl-L      draw everything again
 q, Esc      quit; Ctrl-C too
 ?           these keys; any key closes them";

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, look: Look) {
    let area = frame.area();
    let [head, body, foot] = parts(area);
    frame.render_widget(Paragraph::new(head_lines(state, look)), head);
    frame.render_widget(foot_line(state), foot);
    if let Some(shown) = &state.shown {
        let (ports, slots) = slots(state, body);
        view(frame, state, shown, look, (View::Ports, ports));
        slots.into_iter().for_each(|slot| view(frame, state, shown, look, slot));
    }
    if state.shows_keys {
        let (width, height) = (KEYS.lines().map(str::len).max().unwrap_or(0), KEYS.lines().count());
        let (width, height) = (width as u16 + 3, height as u16 + 2);
        let (x, y) = (body.width.saturating_sub(width) / 2, body.height.saturating_sub(height) / 2);
        let place = Rect::new(body.x + x, body.y + y, width, height).intersection(area);
        frame.render_widget(Clear, place);
        frame.render_widget(Paragraph::new(KEYS).block(Block::bordered().title(" keys ")), place);
    }
}

/// The lines of the head, of the views and of the foot.
fn parts(area: Rect) -> [Rect; 3] {
    let line = |y: u16, height: u16| Rect { y: area.y + y, height, ..area }.intersection(area);
    let foot = area.height.saturating_sub(1);
    [line(0, 2), line(2, foot.saturating_sub(2)), line(foot, 1)]
}

/// What router this is; how busy its workers are, or why nothing is heard of it.
fn head_lines(state: &State, look: Look) -> Vec<Line<'static>> {
    let Some(Shown { system, busy, since, .. }) = &state.shown else {
        return vec![Line::from(state.problem.clone().unwrap_or_default())];
    };
    let name = Span::styled(format!("brickway {}", system.version), Style::new().bold());
    let rest = format!(
        "  process {}  namespace {}  up {}",
        system.pid,
        system.namespace,
        uptime(system.uptime_seconds)
    );
    let mut first = vec![name, Span::raw(rest)];
    if let Some(problem) = &state.problem {
        let loud = look.colour(Color::Red).bold().reversed();
        return vec![Line::from(first), Line::styled(format!("{problem}; trying again"), loud)];
    }
    let numbers = match since {
        Some(since) => format!("totals of {:.0} s", since.as_secs_f64()),
        None => format!("rates, every {} s", look.every.as_secs_f64()),
    };
    let mut second = vec![Span::raw("workers busy")];
    for (name, share) in busy {
        let colour = look.colour(match share {
            0.9.. => Color::Red,
            0.6.. => Color::Yellow,
            _ => Color::Green,
        });
        second.push(Span::raw(format!("  {name} ")));
        second.push(Span::styled(format!("{:.0}%", share * 100.0), colour.bold()));
    }
    if state.is_paused {
        first.push(Span::styled("  paused", Style::new().bold().reversed()));
    }
    second.push(Span::raw(format!("  ({numbers})")));
    vec![Line::from(first), Line::from(second)]
}

fn foot_line(state: &State) -> Line<'static> {
    if state.is_typing {
        return Line::from(format!("filter: {}_   Enter keeps it, Esc ends it", state.filter));
    }
    let numbers =
        if state.shown.as_ref().is_some_and(|shown| shown.since.is_some()) { "rates" } else { "totals" };
    let pause = if state.is_paused { "go on" } else { "pause" };
    Line::from(format!("Tab 1-5 view  s sort  r reverse  p {pause}  z {numbers}  / filter  ? keys  q quit"))
}

/// Where the ports are, and each of the other views that there is room for; the one that was chosen is among them.
fn slots(state: &State, body: Rect) -> (Rect, Vec<(View, Rect)>) {
    let needed = state.rows(View::Ports).len().max(1) as u16 + 2;
    let is_chosen = state.view == View::Ports;
    // The ports leave two thirds to the others, unless they were chosen.
    let most = if is_chosen { body.height.saturating_sub(LEAST_LINES) } else { body.height / 3 };
    let rest = body.height.saturating_sub(needed.min(most.max(3)));
    let (across, down) = (1 + body.width / TWO_COLUMNS, rest / LEAST_LINES);
    if is_chosen && (down == 0 || across * down < 2) {
        return (body, Vec::new());
    }
    let (across, down) = (across.min(2), down.clamp(1, if across > 1 { 2 } else { 4 }));
    let others = &View::ALL[1..];
    let chosen = others.iter().position(|view| *view == state.view).unwrap_or(0);
    let count = usize::from(across * down).min(others.len());
    let mut views: Vec<usize> = (0..count).map(|next| (chosen + next) % others.len()).collect();
    views.sort_unstable();
    let ports = Rect { height: body.height - rest, ..body };
    let place = |(slot, view): (usize, usize)| {
        let (column, row) = (slot as u16 % across, slot as u16 / across);
        let (width, height) = (body.width / across, rest / down);
        // The last ones get what does not divide.
        let wide = if column + 1 == across { body.width - width * column } else { width - 1 };
        let high = if row + 1 == down { rest - height * row } else { height };
        let place = Rect::new(body.x + width * column, body.y + ports.height + height * row, wide, high);
        (others[view], place)
    };
    (ports, views.into_iter().enumerate().map(place).collect())
}

/// Draws a view: its title and its tables.
fn view(frame: &mut Frame<'_>, state: &State, shown: &Shown, look: Look, (view, area): (View, Rect)) {
    let table = view.table(&shown.tables);
    let rows = state.rows(view);
    let order = state.orders[view.index()];
    let mut title = format!("─ {} {} ", view.index() + 1, view.title());
    if !state.filter.is_empty() && (view != View::Ports || state.view == View::Ports) {
        title += &format!("with '{}': {} of {} ", state.filter, rows.len(), table.rows.len());
    }
    let fill = usize::from(area.width).saturating_sub(title.chars().count());
    let style = if view == state.view { look.colour(Color::Cyan).bold() } else { Style::new() };
    let mut lines = vec![Line::styled(title + &"─".repeat(fill), style)];
    let width = usize::from(area.width);
    if view == View::Workers {
        // Workers are few, but their queues are to be seen too.
        let workers = state.selected(&shown.tables.workers);
        let most = usize::from(area.height / 2).saturating_sub(2).max(1);
        let unsorted =
            Drawn { table: &shown.tables.workers, order: None, unit: shown.tables.unit, look, width };
        lines.extend(unsorted.lines(&workers[..workers.len().min(most)], None));
    }
    let sorted = Drawn { table, order: Some(order), unit: shown.tables.unit, look, width };
    let last_minute = |row: &[Cell], width: usize| {
        row.first().map_or_else(String::new, |name| state.history.line(&name.plain(), shown.at, width))
    };
    let extra: Option<Extra<'_>> = if view == View::Ports { Some(&last_minute) } else { None };
    let first = order.first.min(rows.len());
    lines.extend(sorted.lines(&rows[first..], extra));
    frame.render_widget(Paragraph::new(lines), area);
}

/// Draws what stands behind a row, in so many characters.
type Extra<'a> = &'a dyn Fn(&[Cell], usize) -> String;

/// A table on the screen.
struct Drawn<'a> {
    table: &'a Table,
    order: Option<Order>,
    unit: Unit,
    look: Look,
    width: usize,
}

impl Drawn<'_> {
    /// The heading and the rows. What `extra` draws stands behind each row where there is room.
    fn lines(&self, rows: &[&[Cell]], extra: Option<Extra<'_>>) -> Vec<Line<'static>> {
        if rows.is_empty() {
            let nothing =
                if self.table.rows.is_empty() { &self.table.nothing } else { "nothing with that text" };
            return vec![Line::from(nothing.to_owned())];
        }
        let columns = self.table.columns;
        let titles: Vec<String> = (0..columns.len()).map(|column| self.title(column)).collect();
        let (widths, gap) = self.widths(&titles, rows);
        let used = widths.iter().map(|width| width + gap).sum::<usize>();
        let room = self.width.saturating_sub(used).min(*LAST_MINUTE.end());
        let extra = extra.filter(|_| room >= *LAST_MINUTE.start());
        let mut heading = Vec::new();
        for (index, title) in titles.iter().enumerate() {
            let is_sorted = self.order.is_some_and(|order| order.column == index);
            let style = if is_sorted { Style::new().bold().underlined() } else { Style::new().underlined() };
            let text = aligned(title, widths[index], columns[index].align);
            heading.push(Span::styled(text, style));
            heading.push(Span::styled(" ".repeat(gap), Style::new().underlined()));
        }
        if extra.is_some() {
            heading.push(Span::styled(format!("{:room$}", "last minute"), Style::new().underlined()));
        }
        let mut lines = vec![Line::from(heading)];
        for row in rows {
            let mut spans = Vec::new();
            for ((cell, column), width) in row.iter().zip(columns).zip(&widths) {
                let text = aligned(&cell.pretty(), *width, column.align);
                spans.push(Span::styled(text, self.style(cell, column)));
                spans.push(Span::raw(" ".repeat(gap)));
            }
            spans.extend(extra.map(|draw| Span::styled(draw(row, room), self.look.colour(Color::Cyan))));
            lines.push(Line::from(spans));
        }
        lines
    }

    fn title(&self, column: usize) -> String {
        let title = self.table.columns[column].title(self.unit);
        match self.order {
            Some(order) if order.column == column => {
                format!("{title}{}", if order.is_descending { '↓' } else { '↑' })
            }
            _ => title.to_owned(),
        }
    }

    fn style(&self, cell: &Cell, column: &Column) -> Style {
        let is_bad = column.is_loss && cell.number().is_some_and(|number| number > 0.0);
        if is_bad { self.look.colour(Color::Yellow).bold() } else { Style::new() }
    }

    /// Returns the columns' widths and the gap between them. Texts are cut, the last column's first, where all is too wide.
    fn widths(&self, titles: &[String], rows: &[&[Cell]]) -> (Vec<usize>, usize) {
        let columns = self.table.columns;
        let widest = |column: usize| {
            let cells = rows.iter().map(|row| row[column].pretty().chars().count());
            cells.chain([titles[column].chars().count()]).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..columns.len()).map(widest).collect();
        let needed = |widths: &[usize], gap: usize| widths.iter().sum::<usize>() + gap * (widths.len() - 1);
        let gap = if needed(&widths, 2) <= self.width { 2 } else { 1 };
        for column in (0..columns.len()).rev().filter(|column| columns[*column].align == Align::Left) {
            let excess = needed(&widths, gap).saturating_sub(self.width);
            widths[column] -= excess.min(widths[column].saturating_sub(LEAST_TEXT));
        }
        (widths, gap)
    }
}

/// Fits a text into a width; one that is cut ends with a dot.
fn aligned(text: &str, width: usize, align: Align) -> String {
    let length = text.chars().count();
    if length > width {
        let cut: String = text.chars().take(width.saturating_sub(1)).collect();
        return format!("{cut}…");
    }
    match align {
        Align::Left => format!("{text:<width$}"),
        Align::Right => format!("{text:>width$}"),
    }
}
