//! Tables that line up, and numbers that people can read.

use std::fmt::Write;

use graph::messages::is_printable;

/// How a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// To the left: text.
    Left,
    /// To the right: numbers.
    Right,
}

/// Rows under a heading, columns as wide as their widest cell. Without titles there is no heading.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    widths: Vec<usize>,
    rows: Vec<Vec<String>>,
    heading_is_taken: bool,
    folds_at: Option<usize>,
}

impl Table {
    /// An empty table with these titles.
    pub fn new(columns: &[(&'static str, Align)]) -> Self {
        let widths = columns.iter().map(|(title, _)| title.len()).collect();
        Self { columns: columns.to_vec(), widths, rows: Vec::new(), heading_is_taken: false, folds_at: None }
    }

    /// Keeps lines to so many characters: what the last column has beyond goes on lines of its own, below the second column.
    pub fn folded(self, folds_at: Option<usize>) -> Self {
        Self { folds_at, ..self }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().map(printable).collect();
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
            *width = cell.chars().count().max(*width);
        }
        self.rows.push(cells);
    }

    /// Number of rows that [`Table::take`] has not taken yet.
    pub fn waiting(&self) -> usize {
        self.rows.len()
    }

    /// Returns the rows that were not taken yet, under the heading unless that was.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let (first, before_last) = (self.start_of(1) + 2, self.start_of(self.columns.len() - 1));
        if !self.heading_is_taken && self.columns.iter().any(|(title, _)| !title.is_empty()) {
            let fits = |(title, _): &&(&str, _)| {
                self.folds_at.is_none_or(|end| before_last + title.len() <= end || title.is_empty())
            };
            let last = self.columns.last().filter(fits).into_iter();
            let titles = self.columns[..self.columns.len() - 1].iter().chain(last);
            self.line(&mut text, titles.map(|(title, _)| *title));
        }
        for row in &self.rows {
            let last = row.last().map_or("", String::as_str);
            match self.folds_at.filter(|end| before_last + last.chars().count() > *end) {
                Some(end) if !last.is_empty() => {
                    let rest = &row[..row.len() - 1];
                    if rest.iter().any(|cell| !cell.is_empty()) {
                        self.line(&mut text, rest.iter().map(String::as_str));
                    }
                    for line in wrapped(last, end.saturating_sub(first)) {
                        let _ = writeln!(text, "{:first$}{line}", "");
                    }
                }
                _ => self.line(&mut text, row.iter().map(String::as_str)),
            }
        }
        text
    }

    /// Where a column starts.
    fn start_of(&self, column: usize) -> usize {
        self.widths.iter().take(column).map(|width| width + 2).sum()
    }

    /// Renders the rows so far and forgets them: for a table that is too long to wait for its end. Columns
    /// stay as wide as they were, or get wider.
    pub fn take(&mut self) -> String {
        let text = self.render();
        self.heading_is_taken = true;
        self.rows.clear();
        text
    }

    fn line<'a>(&self, text: &mut String, cells: impl Iterator<Item = &'a str>) {
        let start = text.len();
        for ((cell, &width), (_, align)) in cells.zip(&self.widths).zip(&self.columns) {
            let _ = match align {
                Align::Left => write!(text, "{cell:<width$}  "),
                Align::Right => write!(text, "{cell:>width$}  "),
            };
        }
        text.truncate(start + text[start..].trim_end().len());
        text.push('\n');
    }
}

/// Returns a text in which what is not printable is replaced. Names of interfaces may have such characters.
pub(crate) fn printable(text: String) -> String {
    if text.chars().all(is_printable) {
        return text;
    }
    text.chars().map(|char| if is_printable(char) { char } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// Breaks a text between words into lines of at most so many characters. A longer word has a line of its own.
pub fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut().filter(|line| line.chars().count() + 1 + word.chars().count() <= most) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// `1234567` as `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate with a unit prefix: `1234567.0` as `1.23 M`.
pub fn scaled(value: f64) -> String {
    match value {
        v if v >= 1e9 => format!("{:.2} G", v / 1e9),
        v if v >= 1e6 => format!("{:.2} M", v / 1e6),
        v if v >= 1e3 => format!("{:.2} k", v / 1e3),
        v => format!("{v:.0} "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("element", Align::Left), ("packets", Align::Right)]);
        table.row(["rt".into(), thousands(1_234_567)]);
        table.row(["a-longer-name".into(), thousands(7)]);
        assert_eq!(
            table.render(),
            "element          packets\nrt             1,234,567\na-longer-name          7\n"
        );
    }

    #[test]
    fn a_long_table_comes_in_parts() {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right)]);
        table.row(["eth10".into(), "1".into()]);
        assert_eq!((table.waiting(), table.take()), (1, "name   n\neth10  1\n".to_owned()));
        table.row(["a".into(), "20".into()]);
        assert_eq!(table.take(), "a      20\n");
        assert_eq!((table.waiting(), table.take()), (0, String::new()));
        let mut bare = Table::new(&[("", Align::Left), ("", Align::Left)]);
        bare.row(["a".into(), "b".into()]);
        assert_eq!(bare.render(), "a  b\n");
    }

    #[test]
    fn lines_that_are_too_long_fold() {
        let columns = [("", Align::Left), ("name", Align::Left), ("n", Align::Right), ("note", Align::Left)];
        let mut table = Table::new(&columns).folded(Some(20));
        for (name, note) in [("left", "short"), ("right", "much too long for it"), ("none", "")] {
            table.row(["a", name, "1", note].map(str::to_owned));
        }
        let expected = "   name   n  note
a  left   1  short
a  right  1
     much too long
     for it
a  none   1
";
        assert_eq!(table.render(), expected);
        assert_eq!(wrapped("12345678 9 0", 4), ["12345678", "9 0"]);
        assert_eq!(wrapped("", 4), [""]);
    }

    #[test]
    fn numbers() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1000), "1,000");
        assert_eq!(scaled(1_500_000.0), "1.50 M");
        assert_eq!(scaled(12.0), "12 ");
    }
}
