//! Tables that line up, and numbers that people can read.

use std::fmt::Write;

/// How a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows under a heading, columns as wide as their widest cell.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn render(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([self.columns[column].0.len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = String::new();
        let mut line = |cells: Vec<&str>| {
            let mut row = String::new();
            for (column, cell) in cells.into_iter().enumerate() {
                let width = widths[column];
                let _ = match self.columns[column].1 {
                    Align::Left => write!(row, "{cell:<width$}  "),
                    Align::Right => write!(row, "{cell:>width$}  "),
                };
            }
            text.push_str(row.trim_end());
            text.push('\n');
        };
        line(self.columns.iter().map(|(title, _)| *title).collect());
        for row in &self.rows {
            line(row.iter().map(String::as_str).collect());
        }
        text
    }
}

/// `1234567` as `1,234,567`.
pub(crate) fn thousands(number: u64) -> String {
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
pub(crate) fn scaled(value: f64) -> String {
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
    fn numbers() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1000), "1,000");
        assert_eq!(scaled(1_500_000.0), "1.50 M");
        assert_eq!(scaled(12.0), "12 ");
    }
}
