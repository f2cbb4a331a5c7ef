//! Tables of `PREFIX ORIGIN` rows of one family.

use super::lines::{Line, Lines, shown};
use super::prefix::{self, PrefixProblem};
use ipnet::IpNet;
use packet::Family;
use std::io::{self, BufRead};
use std::marker::PhantomData;

/// A line longer than this is an error and not memory. The longest good row has 54 bytes.
pub(super) const LONGEST_LINE: u64 = 1024;
/// How many errors a [`Table`] keeps; it counts them all.
const ERRORS_KEPT: usize = 20;

/// A row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row<A: Family = u32> {
    /// The prefix; no host bits.
    pub prefix: A::Net,
    /// The number of the autonomous system it comes from.
    pub origin: u32,
}

/// A row that could not be used.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct RowError {
    /// The line's number, from 1.
    pub line: u64,
    /// What was wrong with it.
    pub problem: RowProblem,
}

/// What can be wrong with a row.
#[derive(Debug, thiserror::Error)]
pub enum RowProblem {
    /// There is no second word.
    #[error("'{0}' has no origin; a row is PREFIX ORIGIN, such as '192.0.2.0/24 64496'")]
    NoOrigin(String),
    /// There are more than two words.
    #[error("'{0}' follows the origin; a row is PREFIX ORIGIN and nothing more")]
    Trailing(String),
    /// The first word is not a prefix of the table's family.
    #[error(transparent)]
    Prefix(#[from] PrefixProblem),
    /// The second word is not an AS number.
    #[error("'{0}' is not an origin; expected an AS number of 0 to 4294967295")]
    Origin(String),
    /// An earlier row has the same prefix. The earlier one counts.
    #[error(
        "{prefix} comes twice: origin {origin} here, {first_origin} in line {first_line}, which counts; \
         a prefix has one row"
    )]
    Duplicate {
        /// The prefix of both.
        prefix: IpNet,
        /// The origin in this row, which is left out.
        origin: u32,
        /// The line of the row that counts.
        first_line: u64,
        /// The origin in that row.
        first_origin: u32,
    },
    /// The line is too long to be a row.
    #[error("'{0}…' is longer than 1024 bytes; a row is PREFIX ORIGIN, such as '192.0.2.0/24 64496'")]
    TooLong(String),
    /// The file could not be read further.
    #[error("the file cannot be read further: {0}")]
    Io(#[from] io::Error),
}

/// Yields the rows of a table, or why a row is not one. After [`RowProblem::Io`] it ends. It remembers no rows, so a
/// prefix that comes twice is yielded twice; [`Table`] sees to that.
pub struct Rows<R, A: Family = u32> {
    lines: Lines<R>,
    done: bool,
    family: PhantomData<A>,
}

impl<R: BufRead, A: Family> Rows<R, A> {
    /// Reads rows from text that is not compressed.
    pub fn new(input: R) -> Rows<R, A> {
        Self::of(Lines::new(input, LONGEST_LINE))
    }

    /// Goes on with the lines of a text.
    pub(super) fn of(lines: Lines<R>) -> Rows<R, A> {
        Rows { lines, done: false, family: PhantomData }
    }

    /// The number of the line that gave the last row or error, from 1.
    pub fn line(&self) -> u64 {
        self.lines.number()
    }
}

impl<R: BufRead, A: Family> Iterator for Rows<R, A> {
    type Item = Result<Row<A>, RowError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.done {
            let row = match self.lines.next() {
                Ok(None) => break,
                Ok(Some(Line::Whole(text))) => parse_row(&text, prefix::parse::<A>),
                Ok(Some(Line::TooLong(text))) => Err(RowProblem::TooLong(shown(&text))),
                Err(error) => {
                    self.done = true;
                    Err(RowProblem::Io(error))
                }
            };
            match row {
                Ok(None) => {}
                Ok(Some((prefix, origin))) => return Some(Ok(Row { prefix, origin })),
                Err(problem) => return Some(Err(RowError { line: self.line(), problem })),
            }
        }
        self.done = true;
        None
    }
}

/// The prefix, as `parse_prefix` reads it, and the origin in a line of text; `None` if it is empty or a comment.
pub(super) fn parse_row<P>(
    line: &str,
    parse_prefix: impl Fn(&str) -> Result<P, PrefixProblem>,
) -> Result<Option<(P, u32)>, RowProblem> {
    let line = line.split('#').next().unwrap_or_default();
    let mut words = line.split_whitespace();
    let Some(prefix) = words.next() else { return Ok(None) };
    let prefix = parse_prefix(prefix)?;
    let origin = words.next().ok_or_else(|| RowProblem::NoOrigin(shown(line.trim())))?;
    let number = origin.strip_prefix("AS").unwrap_or(origin);
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(RowProblem::Origin(shown(origin)));
    }
    let origin = number.parse().map_err(|_| RowProblem::Origin(shown(origin)))?;
    match words.next() {
        Some(word) => Err(RowProblem::Trailing(shown(word))),
        None => Ok(Some((prefix, origin))),
    }
}

/// A table in memory. No prefix comes twice.
#[derive(Debug, Default)]
pub struct Table<A: Family = u32> {
    /// The good rows, as the file orders them.
    pub rows: Vec<Row<A>>,
    /// How many rows were bad.
    pub bad: u64,
    /// Why, for the first twenty of them.
    pub errors: Vec<RowError>,
}

impl<A: Family> Table<A> {
    /// Adds the good rows to a table, whose last row, if it has one, is in the line read last; counts the bad ones.
    pub(super) fn collect<R: BufRead>(mut rows: Rows<R, A>, mut table: Table<A>) -> Table<A> {
        // The line of each good row.
        let mut lines = vec![rows.line(); table.rows.len()];
        while let Some(row) = rows.next() {
            match row {
                Ok(row) => {
                    table.rows.push(row);
                    lines.push(rows.line());
                }
                Err(error) => table.note(error),
            }
        }
        // Most tables are in order, and then no prefix can come twice.
        if !table.rows.is_sorted_by(|a, b| a.prefix < b.prefix) {
            table.leave_out_duplicates(&lines);
        }
        table
    }

    pub(super) fn note(&mut self, error: RowError) {
        self.bad += 1;
        if self.errors.len() < ERRORS_KEPT {
            self.errors.push(error);
        }
    }

    /// Keeps the first row of each prefix.
    fn leave_out_duplicates(&mut self, lines: &[u64]) {
        let mut order: Vec<(A::Net, usize)> = self.rows.iter().map(|row| row.prefix).zip(0..).collect();
        order.sort();
        // A row, and the first row of its prefix.
        let mut repeated: Vec<(usize, usize)> = Vec::new();
        for same in order.chunk_by(|a, b| a.0 == b.0) {
            repeated.extend(same[1..].iter().map(|&(_, row)| (row, same[0].1)));
        }
        repeated.sort_unstable();
        self.bad += repeated.len() as u64;
        self.errors.extend(repeated.iter().take(ERRORS_KEPT).map(|&(row, first)| {
            let problem = RowProblem::Duplicate {
                prefix: self.rows[row].prefix.into(),
                origin: self.rows[row].origin,
                first_line: lines[first],
                first_origin: self.rows[first].origin,
            };
            RowError { line: lines[row], problem }
        }));
        self.errors.sort_by_key(|error| error.line);
        self.errors.truncate(ERRORS_KEPT);
        let (mut row, mut left_out) = (0, repeated.into_iter().peekable());
        self.rows.retain(|_| {
            row += 1;
            left_out.next_if(|&(repeated, _)| repeated + 1 == row).is_none()
        });
    }
}
