//! Reads routes from text, plain or gzip: tables of one `PREFIX ORIGIN` a line, and what `ip route` prints.
//!
//! ```text
//! # a comment
//! 1.0.0.0/24 13335
//! 1.0.4.0/22 AS38803
//! ```
//!
//! ORIGIN is the number of the autonomous system that announces the prefix. A table is of one family, IPv4 or IPv6;
//! [`load_any`] takes the family of the first good row. A table is outside input: a bad row is an error that names
//! its line, what was wrong and what was expected, and the rows after it are read all the same. A prefix has one
//! row: of several the first counts, each later one is an error, and that is found here and not where routes are
//! inserted, because every reader of a table wants the same answer and the lines are known only here. A file that
//! breaks off (a damaged gzip stream) ends with an error; the rows before it are good.
//!
//! | file | what is in it |
//! | --- | --- |
//! | `rows.rs` | [`Row`], [`Rows`], [`Table`]: rows of one family |
//! | `ip_route.rs` | [`IpRoute`], [`IpRoutes`]: the output of `ip route` |
//! | `prefix.rs` | prefixes as people write them, and what is wrong with one |
//! | `lines.rs` | numbered lines of bounded length, gzip |

mod ip_route;
mod lines;
mod prefix;
mod rows;

pub use ip_route::{Hop, IpRoute, IpRouteError, IpRouteProblem, IpRoutes, RouteKind};
pub use lines::decompressed;
pub use prefix::PrefixProblem;
pub use rows::{Row, RowError, RowProblem, Rows, Table};

use ipnet::IpNet;
use lines::{Line, Lines, shown};
use packet::Family;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Opens a table, and decompresses it if it is gzip. It is read line by line, so that it may be of any length.
///
/// # Errors
///
/// If the file cannot be opened, is a device, or its first bytes cannot be read.
pub fn open(path: &Path) -> io::Result<Box<dyn BufRead + Send>> {
    let file = File::open(path)?;
    // A device may never end; a pipe is what another program makes of a table.
    if file.metadata()?.file_type().is_char_device() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a device; expected a file"));
    }
    decompressed(BufReader::with_capacity(1 << 16, file))
}

/// Reads a whole table of one family from text that is not compressed.
pub fn read<A: Family>(input: impl BufRead) -> Table<A> {
    Table::collect(Rows::new(input), Table::default())
}

/// Reads a whole table of one family, plain or gzip.
///
/// # Errors
///
/// If the file cannot be opened; bad rows are counted in the result.
pub fn load<A: Family>(path: &Path) -> io::Result<Table<A>> {
    Ok(read(open(path)?))
}

/// A table of the family that its first good row has.
#[derive(Debug)]
pub enum AnyTable {
    /// IPv4 rows, or no good row at all.
    Ipv4(Table<u32>),
    /// IPv6 rows.
    Ipv6(Table<u128>),
}

/// Reads a whole table of the family that its first good row has, from text that is not compressed. Rows of the other
/// family are bad rows.
pub fn read_any(input: impl BufRead) -> AnyTable {
    let mut lines = Lines::new(input, rows::LONGEST_LINE);
    let mut table = Table::<u32>::default();
    loop {
        let row = match lines.next() {
            Ok(None) => return AnyTable::Ipv4(table),
            Ok(Some(Line::Whole(text))) => rows::parse_row(&text, prefix::parse_any),
            Ok(Some(Line::TooLong(text))) => Err(RowProblem::TooLong(shown(&text))),
            Err(error) => {
                table.note(RowError { line: lines.number(), problem: RowProblem::Io(error) });
                return AnyTable::Ipv4(table);
            }
        };
        match row {
            Ok(None) => {}
            Ok(Some((IpNet::V4(prefix), origin))) => {
                table.rows.push(Row { prefix, origin });
                return AnyTable::Ipv4(Table::collect(Rows::of(lines), table));
            }
            Ok(Some((IpNet::V6(prefix), origin))) => {
                let rows = vec![Row { prefix, origin }];
                let table = Table { rows, bad: table.bad, errors: table.errors };
                return AnyTable::Ipv6(Table::collect(Rows::of(lines), table));
            }
            Err(problem) => table.note(RowError { line: lines.number(), problem }),
        }
    }
}

/// As [`read_any`], from a file that may be gzip.
///
/// # Errors
///
/// If the file cannot be opened; bad rows are counted in the result.
pub fn load_any(path: &Path) -> io::Result<AnyTable> {
    Ok(read_any(open(path)?))
}

#[cfg(test)]
mod tests;
