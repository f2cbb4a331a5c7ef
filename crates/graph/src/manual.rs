//! Manuals at the top of elements' files, taken out when the program is built, so that it holds the manuals and not the sources.

/// The manual of an element: the leading `//!` lines of its file, without their marks. Takes the file's name, and of a file with
/// the manuals of several classes the class's name too; each of these manuals begins with its `=c`.
#[macro_export]
macro_rules! manual {
    ($file:literal) => {
        $crate::manual!($file, "")
    };
    ($file:literal, $class:literal) => {{
        const SOURCE: &str = include_str!($file);
        const MANUAL: [u8; $crate::manual::length(SOURCE, $class)] = $crate::manual::text(SOURCE, $class);
        match std::str::from_utf8(&MANUAL) {
            Ok(manual) => manual,
            Err(_) => panic!("whole lines of a text are text"),
        }
    }};
}

/// Returns the length of a class's manual in a source, in bytes.
#[doc(hidden)]
pub const fn length(source: &str, class: &str) -> usize {
    walk::<0>(source, class).1
}

/// Returns a class's manual in a source.
#[doc(hidden)]
pub const fn text<const LENGTH: usize>(source: &str, class: &str) -> [u8; LENGTH] {
    walk(source, class).0
}

/// The first `ROOM` bytes of the manual, and its length. The class `""` has all manuals.
const fn walk<const ROOM: usize>(source: &str, class: &str) -> ([u8; ROOM], usize) {
    let bytes = source.as_bytes();
    let (mut manual, mut length, mut at) = ([0; ROOM], 0, 0);
    let mut is_wanted = class.is_empty();
    while has(bytes, at, b"//!") {
        at += 3;
        if at < bytes.len() && bytes[at] == b' ' {
            at += 1;
        }
        if !class.is_empty() && has(bytes, at, b"=c\n//! ") {
            let name = at + b"=c\n//! ".len();
            let end = name + class.len();
            is_wanted = has(bytes, name, class.as_bytes())
                && !(end < bytes.len() && bytes[end].is_ascii_alphanumeric());
        }
        while at < bytes.len() {
            let byte = bytes[at];
            if is_wanted {
                if length < ROOM {
                    manual[length] = byte;
                }
                length += 1;
            }
            at += 1;
            if byte == b'\n' {
                break;
            }
        }
    }
    (manual, length)
}

/// Returns whether `part` stands at `at`.
const fn has(bytes: &[u8], at: usize, part: &[u8]) -> bool {
    let mut same = 0;
    while same < part.len() && at + same < bytes.len() && bytes[at + same] == part[same] {
        same += 1;
    }
    same == part.len()
}

#[cfg(test)]
mod tests {
    use super::{length, text};

    #[test]
    fn leading_lines_without_their_marks() {
        const SOURCE: &str = "//! =c\n//! Née()\n//!\n//!   indented\n\n//! not this\nuse x;\n";
        const MANUAL: [u8; length(SOURCE, "")] = text(SOURCE, "");
        assert_eq!(std::str::from_utf8(&MANUAL), Ok("=c\nNée()\n\n  indented\n"));
        assert_eq!((length("", ""), length("use x;", ""), length("//", "")), (0, 0, 0));
        assert!(crate::manual!("manual.rs").starts_with("Manuals at the top"));
    }

    #[test]
    fn one_manual_of_several() {
        const SOURCE: &str =
            "//! =c\n//! AB(X)\n//! =d\n//! of AB\n//! =c\n//! A\n//! =d\n//! of A\nuse x;\n";
        const A: [u8; length(SOURCE, "A")] = text(SOURCE, "A");
        assert_eq!(std::str::from_utf8(&A), Ok("=c\nA\n=d\nof A\n"));
        const AB: [u8; length(SOURCE, "AB")] = text(SOURCE, "AB");
        assert_eq!(std::str::from_utf8(&AB), Ok("=c\nAB(X)\n=d\nof AB\n"));
        assert_eq!(length(SOURCE, "B"), 0);
    }
}
