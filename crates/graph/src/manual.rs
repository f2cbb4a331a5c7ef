//! Manuals at the top of elements' files, taken out when the program is built, so that it holds the manuals and not the sources.

/// The manual of an element: the leading `//!` lines of its file, without their marks. Takes the file's name.
#[macro_export]
macro_rules! manual {
    ($file:literal) => {{
        const SOURCE: &str = include_str!($file);
        const MANUAL: [u8; $crate::manual::length(SOURCE)] = $crate::manual::text(SOURCE);
        match std::str::from_utf8(&MANUAL) {
            Ok(manual) => manual,
            Err(_) => panic!("whole lines of a text are text"),
        }
    }};
}

/// Returns the length of the manual in a source, in bytes.
#[doc(hidden)]
pub const fn length(source: &str) -> usize {
    walk::<0>(source).1
}

/// Returns the manual in a source.
#[doc(hidden)]
pub const fn text<const LENGTH: usize>(source: &str) -> [u8; LENGTH] {
    walk(source).0
}

/// The first `ROOM` bytes of the manual, and its length.
const fn walk<const ROOM: usize>(source: &str) -> ([u8; ROOM], usize) {
    let bytes = source.as_bytes();
    let (mut manual, mut length, mut at) = ([0; ROOM], 0, 0);
    while at + 3 <= bytes.len() && bytes[at] == b'/' && bytes[at + 1] == b'/' && bytes[at + 2] == b'!' {
        at += 3;
        if at < bytes.len() && bytes[at] == b' ' {
            at += 1;
        }
        while at < bytes.len() {
            let byte = bytes[at];
            if length < ROOM {
                manual[length] = byte;
            }
            length += 1;
            at += 1;
            if byte == b'\n' {
                break;
            }
        }
    }
    (manual, length)
}

#[cfg(test)]
mod tests {
    use super::{length, text};

    #[test]
    fn leading_lines_without_their_marks() {
        const SOURCE: &str = "//! =c\n//! Née()\n//!\n//!   indented\n\n//! not this\nuse x;\n";
        const MANUAL: [u8; length(SOURCE)] = text(SOURCE);
        assert_eq!(std::str::from_utf8(&MANUAL), Ok("=c\nNée()\n\n  indented\n"));
        assert_eq!((length(""), length("use x;"), length("//")), (0, 0, 0));
        assert!(crate::manual!("manual.rs").starts_with("Manuals at the top"));
    }
}
