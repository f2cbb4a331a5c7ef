//! What options of IP and TCP have in common: a kind, a length, and numbers where the kind has no text of its own.

use std::fmt::Write;

use super::text::Cursor;

/// Kinds of both protocols (RFC 791 and RFC 9293, section 3.1).
pub(super) const END: u8 = 0;
pub(super) const NOP: u8 = 1;

/// The most bytes of options in a header.
const MOST: usize = 40;

/// An option: its kind, what is behind kind and length, and the options behind it.
pub(super) struct Split<'a> {
    pub(super) kind: u8,
    pub(super) body: &'a [u8],
    pub(super) rest: &'a [u8],
}

/// Splits the first option off. `None`: its length cannot be. `Some(None)`: the list ends here.
pub(super) fn split(options: &[u8]) -> Option<Option<Split<'_>>> {
    Some(match options {
        [] | [END, ..] => None,
        [NOP, rest @ ..] => Some(Split { kind: NOP, body: &[], rest }),
        [kind, length, ..] => {
            let (option, rest) = options.split_at_checked(usize::from(*length))?;
            Some(Split { kind: *kind, body: option.get(2..)?, rest })
        }
        [_] => return None,
    })
}

/// Adds options as text, each by `one`, which says false for an option that is not to be printed. A dot stands for no
/// options, a question mark for options of which one is malformed.
pub(super) fn print(
    out: &mut String,
    mut options: &[u8],
    mut one: impl FnMut(&mut String, &Split<'_>) -> Option<bool>,
) -> Option<()> {
    let start = out.len();
    let mut all = || {
        while let Some(option) = split(options)? {
            let before = out.len();
            if option.kind != NOP {
                if before > start {
                    out.push(';');
                }
                let separated = out.len();
                if !one(out, &option)? || out.len() == separated {
                    out.truncate(before);
                }
            }
            options = option.rest;
        }
        Some(())
    };
    if all().is_none() {
        out.truncate(start);
        out.push('?');
    } else if out.len() == start {
        out.push('.');
    }
    Some(())
}

/// Adds an option as numbers: `99=0:5:10`.
pub(super) fn print_numbers(out: &mut String, option: &Split<'_>) -> Option<bool> {
    write!(out, "{}", option.kind).ok()?;
    for (at, byte) in option.body.iter().enumerate() {
        write!(out, "{}{byte}", if at == 0 { '=' } else { ':' }).ok()?;
    }
    Some(true)
}

/// Reads options, each by `one`, which adds its bytes. Empty text and a dot are not options.
pub(super) fn read(
    text: &str,
    mut one: impl FnMut(&mut Cursor<'_>, &mut Vec<u8>) -> Option<()>,
) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    if text.is_empty() || text == "." {
        return Some(bytes);
    }
    let mut cursor = Cursor::new(text);
    loop {
        if cursor.eat("nop") {
            bytes.push(NOP);
        } else if cursor.eat("eol") {
            bytes.push(END);
        } else {
            one(&mut cursor, &mut bytes)?;
        }
        if cursor.at_end() {
            break;
        }
        if !cursor.eat(";") {
            cursor.expect(",")?;
        }
    }
    // Padding that was put in front to align what follows goes first when there is no room for it.
    let padding = bytes.iter().take_while(|&&byte| byte == NOP).count();
    bytes.drain(..padding.min(bytes.len().saturating_sub(MOST)));
    (bytes.len() <= MOST).then_some(bytes)
}

/// Reads an option of numbers.
pub(super) fn read_numbers(cursor: &mut Cursor<'_>, bytes: &mut Vec<u8>) -> Option<()> {
    let start = bytes.len();
    let kind: u8 = cursor.number()?;
    bytes.push(kind);
    if kind == END || kind == NOP {
        return Some(());
    }
    bytes.push(0);
    if cursor.eat_before_digit("=") {
        bytes.push(cursor.number()?);
        while cursor.eat_before_digit(":") {
            bytes.push(cursor.number()?);
        }
    }
    set_length(bytes, start)
}

/// Writes the length of the option that begins at `start` and ends here.
pub(super) fn set_length(bytes: &mut [u8], start: usize) -> Option<()> {
    let length = u8::try_from(bytes.len() - start).ok()?;
    *bytes.get_mut(start + 1)? = length;
    Some(())
}

/// Whether every option has a length that can be.
#[cfg(test)]
pub(super) fn well_formed(mut bytes: &[u8]) -> bool {
    loop {
        match split(bytes) {
            None => return false,
            Some(None) => return true,
            Some(Some(option)) => bytes = option.rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(options: &[u8]) -> String {
        let mut text = String::new();
        print(&mut text, options, print_numbers).unwrap();
        text
    }

    #[test]
    fn numbers_both_ways() {
        for (options, text) in [
            (&[][..], "."),
            (&[NOP, NOP, END], "."),
            (&[98, 2], "98"),
            (&[NOP, 99, 5, 0, 5, 10], "99=0:5:10"),
            (&[98, 2, 99, 3, 7, END, 99], "98;99=7"),
            (&[98], "?"),
            (&[98, 2, 99, 1], "?"),
            (&[98, 2, 99, 0], "?"),
            (&[99, 4, 0], "?"),
        ] {
            assert_eq!(printed(options), text);
        }
        let read = |text| read(text, read_numbers);
        assert_eq!(read("98;99=0:5:10"), Some(vec![98, 2, 99, 5, 0, 5, 10]));
        assert_eq!(read("nop,98;eol"), Some(vec![NOP, 98, 2, END]));
        assert_eq!(read("."), Some(vec![]));
        for bad in ["?", "256", "98=", "98=256", "98;", "x", "98 ", "nopnop"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn forty_bytes_at_most() {
        let long = format!("98={}", ["1"; 38].join(":"));
        assert_eq!(read(&long, read_numbers).unwrap().len(), 40);
        assert_eq!(read(&format!("nop;nop;{long}"), read_numbers).unwrap().len(), 40);
        assert_eq!(read(&format!("{long};nop"), read_numbers), None);
        assert_eq!(read(&format!("98={}", ["1"; 300].join(":")), read_numbers), None);
    }
}
