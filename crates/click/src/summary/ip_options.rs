//! IP options as text: `rr{10.0.0.1}+2`, `ssrr{1.0.0.1^1.0.0.2}`, `ts.ip{1.0.0.1=5}++1`.
//!
//! Braces hold the entries, a caret stands where the pointer points. Of options that hosts on the way fill in, what is
//! still free is counted behind a plus sign; the overflow counter of a time stamp option stands behind two.

use std::fmt::Write;
use std::net::Ipv4Addr;

use super::field::long;
use super::options;
use super::options::{Split, print_numbers, read_numbers, set_length};
use super::text::Cursor;

/// Kinds of options (RFC 791).
const RECORD_ROUTE: u8 = 7;
const TIMESTAMP: u8 = 68;
pub(super) const LOOSE_ROUTE: u8 = 131;
pub(super) const STRICT_ROUTE: u8 = 137;

/// Flags of a time stamp option: with the address of who stamps, and only at given addresses.
const WITH_ADDRESS: u8 = 1;
const PRESPECIFIED: u8 = 3;

/// Bytes that are not standard time stamps have this bit.
const NON_STANDARD: u32 = 0x8000_0000;

/// Adds the options as text.
pub(super) fn print(out: &mut String, bytes: &[u8]) -> Option<()> {
    options::print(out, bytes, |out, option| match option.kind {
        RECORD_ROUTE => print_route(out, "rr", option),
        LOOSE_ROUTE => print_route(out, "lsrr", option),
        STRICT_ROUTE => print_route(out, "ssrr", option),
        TIMESTAMP => print_timestamps(out, option.body),
        _ => print_numbers(out, option),
    })
}

fn print_route(out: &mut String, name: &str, option: &Split<'_>) -> Option<bool> {
    let (&pointer, route) = option.body.split_first()?;
    // The pointer counts from the option's first byte, as 1.
    let pointed = usize::from(pointer).checked_sub(4)?;
    let records = option.kind == RECORD_ROUTE;
    write!(out, "{name}{{").ok()?;
    let mut at = 0;
    while let Some(address) = route.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
        if at == pointed {
            if records {
                break;
            }
            out.push('^');
        } else if at > 0 {
            out.push(',');
        }
        write!(out, "{}", Ipv4Addr::from(*address)).ok()?;
        at += 4;
    }
    if at == pointed && at == route.len() && !records {
        out.push('^');
    }
    out.push('}');
    let free = (route.len() - at) / 4;
    if records && at == pointed && free > 0 {
        write!(out, "+{free}").ok()?;
    }
    Some(true)
}

fn print_timestamps(out: &mut String, body: &[u8]) -> Option<bool> {
    let (&[pointer, flags], entries) = body.split_first_chunk::<2>()?;
    let pointed = usize::from(pointer).checked_sub(5)?;
    let (flag, overflow) = (flags & 0x0f, flags >> 4);
    let size = if flag == 0 { 4 } else { 8 };
    match flag {
        0 => out.push_str("ts{"),
        WITH_ADDRESS => out.push_str("ts.ip{"),
        PRESPECIFIED => out.push_str("ts.preip{"),
        flag => write!(out, "ts.{flag}{{").ok()?,
    }
    let mut at = 0;
    while let Some(entry) = entries.get(at..at + size) {
        if at == pointed {
            if flag != PRESPECIFIED {
                break;
            }
            out.push('^');
        } else if at > 0 {
            out.push(',');
        }
        if let (Some(address), true) = (entry.first_chunk::<4>(), flag != 0) {
            write!(out, "{}", Ipv4Addr::from(*address)).ok()?;
        }
        // Who is to come has not stamped yet.
        if flag != PRESPECIFIED || at < pointed {
            let time = long(entry, size - 4)?;
            let (equals, mark) =
                (if flag == 0 { "" } else { "=" }, if time & NON_STANDARD == 0 { "" } else { "!" });
            write!(out, "{equals}{mark}{}", time & !NON_STANDARD).ok()?;
        }
        at += size;
    }
    if at == pointed && at == entries.len() {
        out.push('^');
    }
    out.push('}');
    let free = (entries.len() - at) / size;
    if at == pointed && free > 0 {
        write!(out, "+{free}").ok()?;
    }
    if overflow > 0 {
        write!(out, "++{overflow}").ok()?;
    }
    Some(true)
}

/// Reads options from text.
pub(super) fn read(text: &str) -> Option<Vec<u8>> {
    options::read(text, |cursor, bytes| {
        if cursor.eat("rr{") {
            read_route(cursor, bytes, RECORD_ROUTE)
        } else if cursor.eat("ssrr{") {
            read_route(cursor, bytes, STRICT_ROUTE)
        } else if cursor.eat("lsrr{") {
            read_route(cursor, bytes, LOOSE_ROUTE)
        } else if cursor.eat("ts") {
            read_timestamps(cursor, bytes)
        } else {
            read_numbers(cursor, bytes)
        }
    })
}

/// Notes in `pointer` that it points at the next byte; that is counted from the option's first byte, as 1.
fn point(pointer: &mut Option<usize>, bytes: &[u8], start: usize) {
    pointer.get_or_insert(bytes.len() - start + 1);
}

fn read_route(cursor: &mut Cursor<'_>, bytes: &mut Vec<u8>, kind: u8) -> Option<()> {
    let start = bytes.len();
    bytes.extend([kind, 0, 0]);
    let mut pointer = None;
    loop {
        if pointer.is_none() && cursor.eat("^") {
            point(&mut pointer, bytes, start);
        }
        if !cursor.sees_digit() {
            break;
        }
        bytes.extend(cursor.address()?);
        cursor.eat(",");
    }
    cursor.expect("}")?;
    point(&mut pointer, bytes, start);
    finish(cursor, bytes, start, pointer, 4)
}

/// The rest of an option behind the brace: free places of `size` bytes, the pointer, the length.
fn finish(
    cursor: &mut Cursor<'_>,
    bytes: &mut Vec<u8>,
    start: usize,
    pointer: Option<usize>,
    size: usize,
) -> Option<()> {
    if cursor.eat_before_digit("+") {
        let free = cursor.number::<u8>().filter(|&free| free < 64)?;
        bytes.resize(bytes.len() + usize::from(free) * size, 0);
    }
    *bytes.get_mut(start + 2)? = u8::try_from(pointer?).ok()?;
    set_length(bytes, start)
}

fn read_timestamps(cursor: &mut Cursor<'_>, bytes: &mut Vec<u8>) -> Option<()> {
    let start = bytes.len();
    let mut flag = None;
    if cursor.eat(".") {
        flag = Some(if cursor.eat("ip") {
            WITH_ADDRESS
        } else if cursor.eat("preip") {
            PRESPECIFIED
        } else {
            cursor.number::<u8>().filter(|&flag| flag < 16)?
        });
    }
    cursor.expect("{")?;
    bytes.extend([TIMESTAMP, 0, 0, 0]);
    let mut pointer = None;
    // Entries with an address need no flag to be seen; those behind a pointer are of the prespecified kind.
    let mut addresses = flag.map(|flag| flag != 0);
    let guessed = flag.is_none();
    loop {
        if pointer.is_none() && cursor.eat("^") {
            point(&mut pointer, bytes, start);
        }
        if !cursor.sees_digit() && !cursor.sees("!") {
            break;
        }
        let with_address =
            *addresses.get_or_insert_with(|| cursor.until(&[',', '^', '}', '=']).contains('.'));
        let mut stamped = true;
        if with_address {
            bytes.extend(cursor.address()?);
            stamped = cursor.eat("=");
            if pointer.is_some() {
                flag = flag.or(Some(PRESPECIFIED));
                if stamped && cursor.eat("?") {
                    stamped = false;
                }
            } else if !stamped {
                return None;
            }
        }
        let time = if stamped {
            let mark = if cursor.eat("!") { NON_STANDARD } else { 0 };
            cursor.number::<u32>()? | mark
        } else {
            0
        };
        bytes.extend(time.to_be_bytes());
        cursor.eat(",");
    }
    cursor.expect("}")?;
    point(&mut pointer, bytes, start);
    let with_address = addresses == Some(true);
    let flag = flag.unwrap_or(if guessed && with_address { WITH_ADDRESS } else { 0 });
    finish(cursor, bytes, start, pointer, if flag == 0 { 4 } else { 8 })?;
    let overflow = if cursor.eat("++") { cursor.number::<u8>().filter(|&count| count < 16)? } else { 0 };
    *bytes.get_mut(start + 3)? = overflow << 4 | flag;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn printed(bytes: &[u8]) -> String {
        let mut text = String::new();
        print(&mut text, bytes).unwrap();
        text
    }

    /// The options of Click's own test, and what they become.
    #[test]
    fn read_and_printed() {
        for (text, again) in [
            (".", "."),
            ("nop;nop;eol", "."),
            (
                "ssrr{128.4.45.60,128.4.49.61^1.1.1.1,2.2.2.2}",
                "ssrr{128.4.45.60,128.4.49.61^1.1.1.1,2.2.2.2}",
            ),
            (
                "lsrr{128.4.45.60,128.4.49.61,^1.1.1.1,2.2.2.2}",
                "lsrr{128.4.45.60,128.4.49.61^1.1.1.1,2.2.2.2}",
            ),
            ("lsrr{1.1.1.1}", "lsrr{1.1.1.1^}"),
            ("rr{2.3.4.5}+3", "rr{2.3.4.5}+3"),
            ("rr{}+1", "rr{}+1"),
            ("ts{1.0.0.1=!8320,1.0.0.2=8321}++5", "ts.ip{1.0.0.1=!8320,1.0.0.2=8321^}++5"),
            ("ts.ip{1.0.0.1=!8320,1.0.0.2=8321}++5", "ts.ip{1.0.0.1=!8320,1.0.0.2=8321^}++5"),
            ("ts.3{1.0.0.1=1,^1.0.0.3,1.0.0.4=?}+1", "ts.preip{1.0.0.1=1^1.0.0.3,1.0.0.4,0.0.0.0}"),
            ("ts.preip{1.0.0.1=1^1.0.0.3,1.0.0.4=?}+1", "ts.preip{1.0.0.1=1^1.0.0.3,1.0.0.4,0.0.0.0}"),
            ("ts{1.0.0.1=1^1.0.0.3}", "ts.preip{1.0.0.1=1^1.0.0.3}"),
            ("ts{1,10000,!45}+2", "ts{1,10000,!45}+2"),
            ("ts{}+2", "ts{}+2"),
            ("ts{1,10000,!45^0,0};rr{}+1", "ts{1,10000,!45}+2;rr{}+1"),
            ("ts{1,10000,!45,^0,0}", "ts{1,10000,!45}+2"),
            ("148=0:0", "148=0:0"),
        ] {
            let bytes = read(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(printed(&bytes), again, "{text}");
        }
        assert_eq!(read("rr{1.2.3.4}+1").unwrap(), [7, 11, 8, 1, 2, 3, 4, 0, 0, 0, 0]);
        assert_eq!(read("ts{5}++1").unwrap(), [68, 8, 9, 0x10, 0, 0, 0, 5]);
    }

    #[test]
    fn mistakes() {
        for bad in [
            "rr",
            "rr{",
            "rr{1.2.3}",
            "rr{}+10",
            "rr{}+64",
            "ssrr{1.2.3.4^1.2.3.4^1.2.3.4}",
            "ts",
            "ts{1",
            "ts.16{}",
            "ts.ip{1.2.3.4}",
            "ts.ip{1.2.3.4=?}",
            "ts{}++16",
            "ts{1,1.2.3.4=5}",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
        for bytes in [&[7u8, 2][..], &[7, 3, 3], &[68, 3, 5], &[68, 4, 4, 0], &[131, 200, 4]] {
            assert_eq!(printed(bytes), "?");
        }
    }

    proptest! {
        /// What is printed of any options reads as options that print the same.
        #[test]
        fn printed_options_read_back(
            bytes in proptest::collection::vec(
                prop_oneof![Just(7u8), Just(68), Just(131), 0u8..16, any::<u8>()],
                0..40,
            ),
        ) {
            let text = printed(&bytes);
            if text != "?" && let Some(again) = read(&text) {
                let text = printed(&again);
                prop_assert_ne!(&text, "?");
                prop_assert_eq!(read(&text), Some(again));
            }
        }

        #[test]
        fn any_text_is_options_or_not(text in "[rstp.i{}0-9:;,=^+!?]{0,40}") {
            if let Some(bytes) = read(&text) {
                prop_assert!(bytes.len() <= 40 && options::well_formed(&bytes));
            }
        }
    }
}
