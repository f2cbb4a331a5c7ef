//! Lines of a text from outside, numbered and bounded: a line without end costs an error and not the memory. A text
//! may be plain or gzip; which it is shows in its first two bytes.

use flate2::bufread::MultiGzDecoder;
use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read};

/// How much of a bad text an error repeats.
const SHOWN_CHARACTERS: usize = 60;

/// The text behind `input`, decompressed if it begins as a gzip file does (RFC 1952, 2.3.1: 31, 139).
///
/// # Errors
///
/// If the first bytes cannot be read.
pub fn decompressed(mut input: impl BufRead + Send + 'static) -> io::Result<Box<dyn BufRead + Send>> {
    Ok(if input.fill_buf()?.starts_with(&[31, 139]) {
        Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(input)))
    } else {
        Box::new(input)
    })
}

/// A line, without its end.
pub(super) enum Line<'a> {
    /// All of it. What is not UTF-8 is replaced by U+FFFD.
    Whole(Cow<'a, str>),
    /// The beginning of one that is too long; the rest of it has been skipped.
    TooLong(Cow<'a, str>),
}

/// The lines of a text, one after the other.
pub(super) struct Lines<R> {
    input: R,
    longest: u64,
    number: u64,
    text: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    /// Lines of at most `longest` bytes.
    pub(super) fn new(input: R, longest: u64) -> Lines<R> {
        Lines { input, longest, number: 0, text: Vec::new() }
    }

    /// The number of the line read last, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The next line; `None` at the end of the text.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.text.clear();
        self.number += 1;
        if self.input.by_ref().take(self.longest).read_until(b'\n', &mut self.text)? == 0 {
            return Ok(None);
        }
        let whole = self.text.last() == Some(&b'\n') || (self.text.len() as u64) < self.longest;
        if !whole {
            self.skip()?;
        }
        let text = String::from_utf8_lossy(&self.text);
        Ok(Some(if whole { Line::Whole(text) } else { Line::TooLong(text) }))
    }

    /// Skips what is left of a line.
    fn skip(&mut self) -> io::Result<()> {
        loop {
            let buffer = self.input.fill_buf()?;
            let (length, found) = match buffer.iter().position(|&byte| byte == b'\n') {
                Some(end) => (end + 1, true),
                None => (buffer.len(), false),
            };
            self.input.consume(length);
            if found || length == 0 {
                return Ok(());
            }
        }
    }
}

/// The start of a text from outside, fit for one line of a terminal.
pub(super) fn shown(text: &str) -> String {
    let clean = |character: char| if character.is_control() { '\u{fffd}' } else { character };
    text.trim_end().chars().take(SHOWN_CHARACTERS).map(clean).collect()
}
