//! TCP options as text: `mss1460;sackok;ts1:2;wscale7`, `sack1-3;sack5-7`.

use std::fmt::Write;

use super::field::{long, word};
use super::options;
use super::options::{NOP, Split, print_numbers, read_numbers, set_length};
use super::text::Cursor;

/// Kinds of options (RFC 9293, 7323, 2018).
const MAXIMUM_SEGMENT: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMP: u8 = 8;

/// Which options a field shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    All,
    /// All but time stamps.
    NoTimestamp,
    /// Selective acknowledgements only.
    Sack,
}

impl Shown {
    fn shows(self, kind: u8) -> bool {
        match self {
            Self::All => true,
            Self::NoTimestamp => kind != TIMESTAMP,
            Self::Sack => matches!(kind, SACK | SACK_PERMITTED),
        }
    }
}

/// Adds the options as text.
pub(super) fn print(out: &mut String, bytes: &[u8], shown: Shown) -> Option<()> {
    options::print(out, bytes, |out, option| {
        let Split { kind, body, .. } = *option;
        let fits = match kind {
            MAXIMUM_SEGMENT => body.len() == 2,
            WINDOW_SCALE => body.len() == 1,
            SACK_PERMITTED => body.is_empty(),
            SACK => body.len().is_multiple_of(8),
            TIMESTAMP => body.len() == 8,
            _ => true,
        };
        if !fits || !shown.shows(kind) {
            return fits.then_some(false);
        }
        match kind {
            MAXIMUM_SEGMENT => write!(out, "mss{}", word(body, 0)?).ok()?,
            WINDOW_SCALE => write!(out, "wscale{}", body.first()?).ok()?,
            SACK_PERMITTED => out.push_str("sackok"),
            SACK => {
                for (at, block) in body.chunks(8).enumerate() {
                    let separator = if at > 0 { ";" } else { "" };
                    write!(out, "{separator}sack{}-{}", long(block, 0)?, long(block, 4)?).ok()?;
                }
            }
            TIMESTAMP => write!(out, "ts{}:{}", long(body, 0)?, long(body, 4)?).ok()?,
            _ => return print_numbers(out, option),
        }
        Some(true)
    })
}

/// Reads options from text.
pub(super) fn read(text: &str, shown: Shown) -> Option<Vec<u8>> {
    // Where the last option begins if it is a list of blocks, which the next block joins.
    let mut blocks = None;
    options::read(text, |cursor, bytes| {
        let start = bytes.len();
        let joined = blocks.take().filter(|&(_, end)| end == start).map(|(begin, _)| begin);
        let kind = read_one(cursor, bytes, joined)?;
        if kind == SACK {
            blocks = Some((joined.unwrap_or(start), bytes.len()));
        }
        shown.shows(kind).then_some(())
    })
}

/// Reads an option; a block of SACK goes into the option at `joined`, if there is one. Its kind.
fn read_one(cursor: &mut Cursor<'_>, bytes: &mut Vec<u8>, joined: Option<usize>) -> Option<u8> {
    let start = bytes.len();
    if cursor.eat("mss") {
        bytes.extend([MAXIMUM_SEGMENT, 4]);
        bytes.extend(cursor.number::<u16>()?.to_be_bytes());
        Some(MAXIMUM_SEGMENT)
    } else if cursor.eat("wscale") {
        bytes.extend([WINDOW_SCALE, 3, cursor.number()?]);
        Some(WINDOW_SCALE)
    } else if cursor.eat("sackok") {
        bytes.extend([SACK_PERMITTED, 2]);
        Some(SACK_PERMITTED)
    } else if cursor.eat("sack") {
        let option = joined.unwrap_or_else(|| {
            bytes.extend([SACK, 2]);
            start
        });
        bytes.extend(cursor.number::<u32>()?.to_be_bytes());
        // Old dumps have a colon here.
        if !cursor.eat("-") {
            cursor.expect(":")?;
        }
        bytes.extend(cursor.number::<u32>()?.to_be_bytes());
        set_length(bytes, option)?;
        Some(SACK)
    } else if cursor.eat("ts") {
        if bytes.is_empty() {
            // As hosts lay it out (RFC 7323, appendix A).
            bytes.extend([NOP, NOP]);
        }
        bytes.extend([TIMESTAMP, 10]);
        bytes.extend(cursor.number::<u32>()?.to_be_bytes());
        cursor.expect(":")?;
        bytes.extend(cursor.number::<u32>()?.to_be_bytes());
        Some(TIMESTAMP)
    } else {
        read_numbers(cursor, bytes)?;
        bytes.get(start).copied()
    }
}

/// Whether the options are nothing but a time stamp, as most segments have it; four bytes are enough to see it.
pub(super) fn only_timestamp(header_bytes: usize, bytes: &[u8]) -> bool {
    header_bytes == 32 && bytes.starts_with(&[NOP, NOP, TIMESTAMP, 10])
}

#[cfg(test)]
mod tests {
    use super::super::options::well_formed;
    use super::*;
    use proptest::prelude::*;

    fn printed(bytes: &[u8], shown: Shown) -> String {
        let mut text = String::new();
        print(&mut text, bytes, shown).unwrap();
        text
    }

    #[test]
    fn both_ways() {
        for text in [
            ".",
            "mss1460",
            "mss1460;sackok;ts669063908:38382731;wscale10",
            "ts1:2;sack1-3;sack5-7;sack4294967295-0",
            "mss1400;98;99=0:5:10",
        ] {
            let bytes = read(text, Shown::All).unwrap();
            assert_eq!(printed(&bytes, Shown::All), text);
        }
        assert_eq!(read("ts1:2", Shown::All).unwrap(), [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(read("sack1:2;sack3-4", Shown::Sack).unwrap()[..2], [SACK, 18]);
        assert_eq!(read("sack1-2;nop;sack3-4", Shown::All).unwrap().len(), 21);
    }

    #[test]
    fn some_options_only() {
        let bytes = read("mss1460;sackok;ts1:2;sack1-3", Shown::All).unwrap();
        assert_eq!(printed(&bytes, Shown::NoTimestamp), "mss1460;sackok;sack1-3");
        assert_eq!(printed(&bytes, Shown::Sack), "sackok;sack1-3");
        assert_eq!(read("mss1460", Shown::Sack), None);
        assert_eq!(read("ts1:2", Shown::NoTimestamp), None);
        assert!(only_timestamp(32, &read("ts1:2", Shown::All).unwrap()));
    }

    #[test]
    fn mistakes() {
        for bad in
            ["mss", "mss65536", "wscale256", "sack1", "sack1-", "ts1", "ts1:4294967296", "mss1460;;nop"]
        {
            assert_eq!(read(bad, Shown::All), None, "{bad}");
        }
        for bytes in
            [&[2u8, 3, 1][..], &[3, 4, 1, 1], &[5, 9, 0, 0, 0, 0, 0, 0, 0], &[8, 4, 0, 0], &[4, 3, 0]]
        {
            assert_eq!(printed(bytes, Shown::All), "?");
        }
    }

    proptest! {
        /// What is printed of any options reads as options that print the same.
        #[test]
        fn printed_options_read_back(
            bytes in proptest::collection::vec(prop_oneof![0u8..12, any::<u8>()], 0..40),
            shown in prop_oneof![Just(Shown::All), Just(Shown::NoTimestamp), Just(Shown::Sack)],
        ) {
            let text = printed(&bytes, shown);
            if text != "?" && let Some(again) = read(&text, shown) {
                prop_assert!(well_formed(&again));
                prop_assert_eq!(printed(&again, shown), text);
            }
        }

        #[test]
        fn any_text_is_options_or_not(text in "[mssackwcalets0-9:;,=-]{0,40}") {
            if let Some(bytes) = read(&text, Shown::All) {
                prop_assert!(bytes.len() <= 40 && well_formed(&bytes));
            }
        }
    }
}
