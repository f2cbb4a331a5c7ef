//! Where the lines of a dump come from: a file, standard input, or text in the configuration.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read};

/// The longest line; what is longer is cut, so that a file without line ends does not fill the memory.
const LONGEST_LINE: u64 = 1 << 20;

/// What compressed files begin with, and what unpacks them.
const COMPRESSED: [(&[u8], &str); 4] =
    [(b"\x1f\x8b", "zcat"), (b"BZh", "bzcat"), (b"\xfd7zXZ\0", "xzcat"), (b"\x28\xb5\x2f\xfd", "zstdcat")];

/// Lines, one after the other.
pub(super) struct Source {
    reader: Box<dyn BufRead + Send>,
    /// Bytes read so far.
    pub(super) position: u64,
    /// Number of the last line, from 1.
    pub(super) line_number: u64,
    bytes: Vec<u8>,
}

impl Source {
    fn new(reader: Box<dyn BufRead + Send>) -> Self {
        Self { reader, position: 0, line_number: 0, bytes: Vec::new() }
    }

    /// Opens a file; `-` is standard input. `None` for a file that is not there or empty, where that is allowed.
    pub(super) fn open(filename: &str, allow_nonexistent: bool) -> Result<Option<Self>, String> {
        if filename == "-" {
            return Ok(Some(Self::new(Box::new(BufReader::new(std::io::stdin())))));
        }
        let cannot = |error| format!("cannot read the file '{filename}': {error}");
        let file = match File::open(filename) {
            Ok(file) => file,
            Err(error) if allow_nonexistent && error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(error) => return Err(cannot(error)),
        };
        let mut reader = BufReader::with_capacity(1 << 16, file);
        let first = reader.fill_buf().map_err(cannot)?;
        if first.is_empty() {
            return if allow_nonexistent { Ok(None) } else { Err(format!("the file '{filename}' is empty")) };
        }
        if let Some((_, tool)) = COMPRESSED.iter().find(|(magic, _)| first.starts_with(magic)) {
            return Err(format!(
                "the file '{filename}' is compressed; have '{tool}' unpack it and read '-', standard input"
            ));
        }
        Ok(Some(Self::new(Box::new(reader))))
    }

    /// Lines of text.
    pub(super) fn of(text: String) -> Self {
        Self::new(Box::new(Cursor::new(text.into_bytes())))
    }

    /// Reads the next line into `line`, without its end; false at the end of the file. Bytes that are not UTF-8 text are
    /// replaced.
    pub(super) fn read_line(&mut self, line: &mut String) -> std::io::Result<bool> {
        self.bytes.clear();
        let count = self.reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut self.bytes)?;
        if count == 0 {
            return Ok(false);
        }
        self.position += count as u64;
        self.line_number += 1;
        while self.bytes.pop_if(|byte| matches!(byte, b'\n' | b'\r')).is_some() {}
        line.clear();
        line.push_str(&String::from_utf8_lossy(&self.bytes));
        Ok(true)
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("line_number", &self.line_number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testbed::Folder;

    #[test]
    fn lines_and_their_places() {
        let mut source = Source::of("one\r\n\nthree".into());
        let mut line = String::new();
        let mut seen = Vec::new();
        while source.read_line(&mut line).unwrap() {
            seen.push((line.clone(), source.line_number, source.position));
        }
        assert_eq!(seen, [("one".into(), 1, 5), (String::new(), 2, 6), ("three".into(), 3, 11)]);
    }

    #[test]
    fn files_that_cannot_be_read() {
        let folder = Folder::new();
        let path = folder.file("dump");
        assert!(Source::open(&path, false).unwrap_err().contains("cannot read"));
        assert!(Source::open(&path, true).unwrap().is_none());
        std::fs::write(&path, "").unwrap();
        assert!(Source::open(&path, false).unwrap_err().contains("empty"));
        assert!(Source::open(&path, true).unwrap().is_none());
        std::fs::write(&path, b"\x1f\x8b\x08").unwrap();
        assert!(Source::open(&path, true).unwrap_err().contains("zcat"));
    }
}
