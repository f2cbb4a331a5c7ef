//! Reads routing tables of text: one `PREFIX ORIGIN` a line, plain or gzip.
//!
//! ```text
//! # a comment
//! 1.0.0.0/24 13335
//! 1.0.4.0/22 AS38803
//! ```
//!
//! ORIGIN is the number of the autonomous system that announces the prefix. A table is outside input: a bad row is an
//! error that names its line, what was wrong and what would be right, and the rows after it are read all the same.
//! A file that breaks off (a damaged gzip stream) ends with an error; the rows before it are good.

use flate2::bufread::MultiGzDecoder;
use ipnet::Ipv4Net;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// A line longer than this is an error and not memory. The longest good row has 31 bytes.
const LONGEST_LINE: u64 = 1024;
/// How much of a bad text an error repeats.
const SHOWN_CHARACTERS: usize = 60;
/// How many errors [`load`] keeps; it counts them all.
const ERRORS_KEPT: usize = 20;

/// A row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The prefix; no host bits.
    pub prefix: Ipv4Net,
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
    /// The first word is an address without a length.
    #[error("'{0}' has no prefix length; a single address is '{0}/32'")]
    NoLength(String),
    /// The first word is an IPv6 prefix.
    #[error("'{0}' is IPv6; this table is for IPv4 prefixes such as '192.0.2.0/24'")]
    NotIpv4(String),
    /// What stands before the slash is not an address.
    #[error(
        "'{0}' is not an IPv4 prefix; right would be four numbers of 0 to 255 and a length: '192.0.2.0/24'"
    )]
    NotAPrefix(String),
    /// The length is not a number of 0 to 32.
    #[error("'{text}' has the length '{length}'; an IPv4 prefix length is a number of 0 to 32")]
    Length {
        /// The prefix as written.
        text: String,
        /// Its length as written.
        length: String,
    },
    /// Bits are set behind the length.
    #[error("'{text}' has host bits set; the network is {network}")]
    HostBits {
        /// The prefix as written.
        text: String,
        /// The prefix without them.
        network: Ipv4Net,
    },
    /// The second word is not an AS number.
    #[error("'{0}' is not an origin; right would be an AS number of 0 to 4294967295")]
    Origin(String),
    /// The line is too long to be a row.
    #[error("'{0}…' is longer than 1024 bytes; a row is PREFIX ORIGIN, such as '192.0.2.0/24 64496'")]
    TooLong(String),
    /// The file could not be read further.
    #[error("the file cannot be read further: {0}")]
    Io(#[from] io::Error),
}

/// Yields the rows of a table, or why a row is not one. After [`RowProblem::Io`] it ends.
pub struct Rows<R> {
    input: R,
    line: u64,
    text: Vec<u8>,
    done: bool,
}

impl<R: BufRead> Rows<R> {
    /// Reads rows from text that is not compressed.
    pub fn new(input: R) -> Rows<R> {
        Rows { input, line: 0, text: Vec::new(), done: false }
    }

    /// Reads the next line into `text`, without its end. `Ok(None)` at the end of the file; `Some(false)` if it is
    /// too long, and what is left of it has been skipped.
    fn read_line(&mut self) -> io::Result<Option<bool>> {
        self.text.clear();
        self.line += 1;
        if self.input.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut self.text)? == 0 {
            return Ok(None);
        }
        if self.text.last() == Some(&b'\n') || (self.text.len() as u64) < LONGEST_LINE {
            return Ok(Some(true));
        }
        loop {
            let buffer = self.input.fill_buf()?;
            let (length, found) = match buffer.iter().position(|&byte| byte == b'\n') {
                Some(end) => (end + 1, true),
                None => (buffer.len(), false),
            };
            self.input.consume(length);
            if found || length == 0 {
                return Ok(Some(false));
            }
        }
    }
}

impl<R: BufRead> Iterator for Rows<R> {
    type Item = Result<Row, RowError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.done {
            let line = self.read_line();
            let text = String::from_utf8_lossy(&self.text);
            let row = match line {
                Ok(None) => break,
                Ok(Some(true)) => parse_row(&text),
                Ok(Some(false)) => Err(RowProblem::TooLong(shown(&text))),
                Err(error) => {
                    self.done = true;
                    Err(RowProblem::Io(error))
                }
            };
            match row {
                Ok(None) => {}
                Ok(Some(row)) => return Some(Ok(row)),
                Err(problem) => return Some(Err(RowError { line: self.line, problem })),
            }
        }
        self.done = true;
        None
    }
}

/// Opens a table, and decompresses it if it begins as a gzip file does (RFC 1952, 2.3.1: 31, 139).
///
/// # Errors
///
/// If the file cannot be opened or its first bytes cannot be read.
pub fn open(path: &Path) -> io::Result<Rows<Box<dyn BufRead + Send>>> {
    let mut file = BufReader::with_capacity(1 << 16, File::open(path)?);
    let is_gzip = file.fill_buf()?.starts_with(&[31, 139]);
    let input: Box<dyn BufRead + Send> = if is_gzip {
        Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(file)))
    } else {
        Box::new(file)
    };
    Ok(Rows::new(input))
}

/// A table in memory.
#[derive(Debug, Default)]
pub struct LoadedTable {
    /// The good rows, as the file orders them.
    pub rows: Vec<Row>,
    /// How many rows were bad.
    pub bad: u64,
    /// Why, for the first twenty of them.
    pub errors: Vec<RowError>,
}

/// Collects the good rows and counts the bad ones.
pub fn collect(rows: impl Iterator<Item = Result<Row, RowError>>) -> LoadedTable {
    let mut table = LoadedTable::default();
    for row in rows {
        match row {
            Ok(row) => table.rows.push(row),
            Err(error) => {
                table.bad += 1;
                if table.errors.len() < ERRORS_KEPT {
                    table.errors.push(error);
                }
            }
        }
    }
    table
}

/// Reads a whole table, plain or gzip.
///
/// # Errors
///
/// If the file cannot be opened; bad rows are counted in the result.
pub fn load(path: &Path) -> io::Result<LoadedTable> {
    Ok(collect(open(path)?))
}

/// The row in a line of text; `None` if it is empty or a comment.
fn parse_row(line: &str) -> Result<Option<Row>, RowProblem> {
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
        None => Ok(Some(Row { prefix, origin })),
    }
}

fn parse_prefix(text: &str) -> Result<Ipv4Net, RowProblem> {
    let Some((address, length)) = text.split_once('/') else {
        return Err(match (text.parse::<Ipv4Addr>(), text.parse::<Ipv6Addr>()) {
            (Ok(_), _) => RowProblem::NoLength(shown(text)),
            (_, Ok(_)) => RowProblem::NotIpv4(shown(text)),
            _ => RowProblem::NotAPrefix(shown(text)),
        });
    };
    let Ok(address) = address.parse::<Ipv4Addr>() else {
        let is_ipv6 = address.parse::<Ipv6Addr>().is_ok();
        return Err(if is_ipv6 {
            RowProblem::NotIpv4(shown(text))
        } else {
            RowProblem::NotAPrefix(shown(text))
        });
    };
    let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    let prefix = length.parse().ok().filter(|_| digits).and_then(|length| Ipv4Net::new(address, length).ok());
    let Some(prefix) = prefix else {
        return Err(RowProblem::Length { text: shown(text), length: shown(length) });
    };
    if prefix.network() != address {
        return Err(RowProblem::HostBits { text: shown(text), network: prefix.trunc() });
    }
    Ok(prefix)
}

/// The start of a text from outside, fit for one line of a terminal.
fn shown(text: &str) -> String {
    let clean = |character: char| if character.is_control() { '\u{fffd}' } else { character };
    text.trim_end().chars().take(SHOWN_CHARACTERS).map(clean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;
    use std::io::Write;

    fn read(text: &[u8]) -> LoadedTable {
        collect(Rows::new(text))
    }

    #[test]
    fn good_rows_comments_and_empty_lines() {
        let table =
            read(b"# table\n\n1.0.0.0/24 13335\r\n0.0.0.0/0 AS0 # default\n  255.255.255.255/32\t4294967295");
        let rows: Vec<String> =
            table.rows.iter().map(|row| format!("{} {}", row.prefix, row.origin)).collect();
        assert_eq!(rows, ["1.0.0.0/24 13335", "0.0.0.0/0 0", "255.255.255.255/32 4294967295"]);
        assert_eq!(table.bad, 0, "{:?}", table.errors);
    }

    #[test]
    fn a_bad_row_says_where_what_and_what_would_be_right() {
        let right_prefix = "right would be four numbers of 0 to 255 and a length: '192.0.2.0/24'";
        let cases = [
            ("10.0.0.1/8 1", "'10.0.0.1/8' has host bits set; the network is 10.0.0.0/8".into()),
            (
                "10.0.0.0/33 1",
                "'10.0.0.0/33' has the length '33'; an IPv4 prefix length is a number of 0 to 32".into(),
            ),
            (
                "10.0.0.0/+8 1",
                "'10.0.0.0/+8' has the length '+8'; an IPv4 prefix length is a number of 0 to 32".into(),
            ),
            (
                "10.0.0.0/ 1",
                "'10.0.0.0/' has the length ''; an IPv4 prefix length is a number of 0 to 32".into(),
            ),
            (
                "2001:db8::/32 1",
                "'2001:db8::/32' is IPv6; this table is for IPv4 prefixes such as '192.0.2.0/24'".into(),
            ),
            ("10.0.0/8 1", format!("'10.0.0/8' is not an IPv4 prefix; {right_prefix}")),
            ("default 1", format!("'default' is not an IPv4 prefix; {right_prefix}")),
            ("10.0.0.1 1", "'10.0.0.1' has no prefix length; a single address is '10.0.0.1/32'".into()),
            (
                "10.0.0.0/8",
                "'10.0.0.0/8' has no origin; a row is PREFIX ORIGIN, such as '192.0.2.0/24 64496'".into(),
            ),
            ("10.0.0.0/8 x1", "'x1' is not an origin; right would be an AS number of 0 to 4294967295".into()),
            (
                "10.0.0.0/8 4294967296",
                "'4294967296' is not an origin; right would be an AS number of 0 to 4294967295".into(),
            ),
            ("10.0.0.0/8 1 2", "'2' follows the origin; a row is PREFIX ORIGIN and nothing more".into()),
        ];
        for (row, problem) in cases {
            let table = read(format!("1.0.0.0/24 1\n{row}\n2.0.0.0/24 2\n").as_bytes());
            assert_eq!(table.rows.len(), 2, "{row}: the rows around it are kept");
            assert_eq!(table.bad, 1);
            assert_eq!(table.errors[0].to_string(), format!("line 2: {problem}"));
        }
    }

    #[test]
    fn a_line_without_end_costs_no_memory_and_one_error() {
        let mut text = b"1.0.0.0/24 1\n".to_vec();
        text.resize(1 << 20, b'x');
        text.extend(b"\n2.0.0.0/24 2\n");
        let table = read(&text);
        assert_eq!((table.rows.len(), table.bad), (2, 1));
        assert!(table.errors[0].to_string().starts_with("line 2: 'xxx"));
        assert!(table.errors[0].to_string().len() < 200);
    }

    #[test]
    fn all_bad_rows_are_counted_and_few_errors_kept() {
        let table = read("nonsense\n".repeat(1000).as_bytes());
        assert_eq!((table.rows.len(), table.bad, table.errors.len()), (0, 1000, ERRORS_KEPT));
    }

    #[test]
    fn gzip_is_recognised_and_a_damaged_one_keeps_what_was_good() {
        let folder = std::env::temp_dir().join(format!("brickway-fib-read-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (plain, gzip, damaged) = (folder.join("plain"), folder.join("gzip"), folder.join("damaged"));
        let text: String = (0..50_000u32).map(|i| format!("{}/24 {i}\n", Ipv4Addr::from(i << 8))).collect();
        std::fs::write(&plain, &text).unwrap();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        let bytes = encoder.finish().unwrap();
        std::fs::write(&gzip, &bytes).unwrap();
        std::fs::write(&damaged, &bytes[..bytes.len() / 2]).unwrap();

        let rows = load(&plain).unwrap().rows;
        assert_eq!(rows.len(), 50_000);
        let table = load(&gzip).unwrap();
        assert_eq!((table.bad, table.rows == rows), (0, true));
        let table = load(&damaged).unwrap();
        assert_eq!(table.bad, 1);
        assert!(matches!(table.errors[0].problem, RowProblem::Io(_)));
        assert!(table.rows.len() > 1000 && rows.starts_with(&table.rows));
        assert!(load(&folder.join("missing")).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    proptest! {
        #[test]
        fn any_bytes_are_rows_or_errors(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let table = read(&bytes);
            prop_assert!(table.rows.len() as u64 + table.bad <= bytes.len() as u64 + 1);
        }

        #[test]
        fn what_is_written_is_read(rows in proptest::collection::vec((any::<u32>(), 0u8..=32, any::<u32>()), 0..50)) {
            let rows: Vec<Row> = rows.into_iter().map(|(address, length, origin)| {
                Row { prefix: Ipv4Net::new(address.into(), length).unwrap().trunc(), origin }
            }).collect();
            let text: String = rows.iter().map(|row| format!("{} {}\n", row.prefix, row.origin)).collect();
            let table = read(text.as_bytes());
            prop_assert_eq!(table.bad, 0);
            prop_assert_eq!(table.rows, rows);
        }
    }
}
