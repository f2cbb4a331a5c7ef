//! Configuration strings as text: splitting them at commas and spaces, comments, quotes.
//!
//! What an argument means is for the elements to say; here it is only text. The rules are those of Click's
//! configuration strings, see click(5), "Configuration strings".

use super::lexer::{is_space, skip_comment, skip_hex, skip_quoted};

/// Splits a configuration string into its arguments: at commas outside quotes. Comments are replaced by a space, space
/// around an argument is removed, and an empty last argument does not count. Quotes stay: see [`unquote`].
///
/// ```
/// use graph::lang::split_arguments;
/// assert_eq!(split_arguments("1, \"a, b\" /* c, d */, \\<48, 65>,"), ["1", "\"a, b\"", "\\<48, 65>"]);
/// ```
pub fn split_arguments(config: &str) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut at = 0;
    while at < config.len() {
        let (argument, end) = uncomment_from(config, at, true);
        let last = end >= config.len();
        if !last || !argument.is_empty() {
            arguments.push(argument);
        }
        at = end + 1;
    }
    arguments
}

/// Splits text into words: at space outside quotes. Comments count as space; quotes stay.
pub fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text;
    loop {
        let (word, after) = next_word(rest);
        if word.is_empty() {
            return words;
        }
        words.push(word.to_string());
        rest = after;
    }
}

/// The first word of a text and what follows it, without the space between them.
pub fn next_word(text: &str) -> (&str, &str) {
    let bytes = text.as_bytes();
    let start = skip_space_and_comments(bytes, 0);
    let mut end = start;
    while end < bytes.len() && !is_space(bytes[end]) {
        match (bytes[end], bytes.get(end + 1)) {
            (b'/', Some(b'/' | b'*')) => break,
            (b'\'' | b'"', _) => end = skip_quoted(bytes, end),
            (b'\\', Some(b'<')) => end = skip_hex(bytes, end),
            _ => end += 1,
        }
    }
    let end = end.min(bytes.len());
    (&text[start..end], &text[skip_space_and_comments(bytes, end)..])
}

pub(super) fn skip_space_and_comments(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'/', Some(b'/' | b'*')) => at = skip_comment(bytes, at),
            (byte, _) if is_space(byte) => at += 1,
            _ => break,
        }
    }
    at.min(bytes.len())
}

/// The text from `start` to the end, or to the next comma when `to_comma`, without comments and outer space; and where
/// that end is.
fn uncomment_from(text: &str, start: usize, to_comma: bool) -> (String, usize) {
    let bytes = text.as_bytes();
    let mut at = skip_space_and_comments(bytes, start);
    let mut out = String::new();
    // The piece that has been seen but not written, without the space behind it.
    let (mut piece_start, mut piece_end) = (at, at);
    let mut after_comment = false;
    while at < bytes.len() {
        let byte = bytes[at];
        if is_space(byte) {
            at += 1;
            continue;
        }
        if byte == b'/' && matches!(bytes.get(at + 1), Some(b'/' | b'*')) {
            at = skip_comment(bytes, at);
            after_comment = true;
            continue;
        }
        if byte == b',' && to_comma {
            break;
        }
        if after_comment {
            out.push_str(&text[piece_start..piece_end]);
            out.push(' ');
            piece_start = at;
            after_comment = false;
        }
        at = match byte {
            b'\'' | b'"' => skip_quoted(bytes, at),
            b'\\' if bytes.get(at + 1) == Some(&b'<') => skip_hex(bytes, at),
            _ => at + 1,
        };
        piece_end = at;
    }
    let at = at.min(bytes.len());
    out.push_str(&text[piece_start..piece_end]);
    (out, at)
}

/// Removes one level of quotes: `"..."` with its backslash escapes, `'...'` as it is, and bare `\<48 65>` hexadecimal
/// data. Comments and outer space go too. Bytes that are not UTF-8 text are replaced; for data see [`unquote_bytes`].
///
/// ```
/// use graph::lang::unquote;
/// assert_eq!(unquote(r#""a\tb"'\t'c"#), "a\tb\\tc");
/// assert_eq!(unquote(r"\<48 65 6c 6C 6f>"), "Hello");
/// ```
pub fn unquote(argument: &str) -> String {
    match String::from_utf8(unquote_bytes(argument)) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }
}

/// [`unquote`] for arguments that are data, such as packet contents.
pub fn unquote_bytes(argument: &str) -> Vec<u8> {
    let (text, _) = uncomment_from(argument, 0, false);
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut quote = 0u8;
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        match byte {
            b'\'' | b'"' if quote == 0 => quote = byte,
            b'\'' | b'"' if quote == byte => quote = 0,
            b'\\' if at + 1 < bytes.len() && (quote == b'"' || (quote == 0 && bytes[at + 1] == b'<')) => {
                at = escape(bytes, at + 1, &mut out);
                continue;
            }
            _ => out.push(byte),
        }
        at += 1;
    }
    out
}

/// Writes what the escape whose letter is at `at` stands for, and returns the position behind it.
fn escape(bytes: &[u8], at: usize, out: &mut Vec<u8>) -> usize {
    let plain = match bytes[at] {
        b'\n' => return at + 1,
        b'\r' => return if bytes.get(at + 1) == Some(&b'\n') { at + 2 } else { at + 1 },
        b'a' => 0x07,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        b'0'..=b'7' => {
            let digits = bytes[at..].iter().take(3).take_while(|b| (b'0'..=b'7').contains(*b)).count();
            let value = bytes[at..at + digits].iter().fold(0u32, |v, b| v * 8 + u32::from(b - b'0'));
            out.push(value as u8);
            return at + digits;
        }
        b'x' => {
            let digits = bytes[at + 1..].iter().take_while(|b| b.is_ascii_hexdigit()).count();
            let hex = &bytes[at + 1..at + 1 + digits];
            // The last two digits count.
            out.push(hex.iter().fold(0u32, |v, b| (v * 16 + hex_value(*b)) & 0xff) as u8);
            return at + 1 + digits;
        }
        b'<' => return hex_data(bytes, at + 1, out),
        other => other,
    };
    out.push(plain);
    at + 1
}

fn hex_data(bytes: &[u8], mut at: usize, out: &mut Vec<u8>) -> usize {
    let mut high: Option<u32> = None;
    while at < bytes.len() {
        let byte = bytes[at];
        match (byte, bytes.get(at + 1)) {
            (b'>', _) => return at + 1,
            (b'/', Some(b'/' | b'*')) => {
                at = skip_comment(bytes, at);
                continue;
            }
            _ => {}
        }
        if byte.is_ascii_hexdigit() {
            match high.take() {
                Some(value) => out.push((value * 16 + hex_value(byte)) as u8),
                None => high = Some(hex_value(byte)),
            }
        }
        at += 1;
    }
    bytes.len()
}

fn hex_value(digit: u8) -> u32 {
    (digit as char).to_digit(16).unwrap_or(0)
}

/// Text as one double-quoted string from which [`unquote`] makes the text again. The result is plain ASCII.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    quote_into(text, &mut out);
    out.push('"');
    out
}

/// A name as an argument: as it is where it means itself, else quoted.
///
/// ```
/// use graph::lang::name_argument;
/// assert_eq!([name_argument("eth0.5"), name_argument("a,b")], ["eth0.5", "\"a,b\""]);
/// ```
pub fn name_argument(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-:@?=&%+".contains(&byte);
    if !name.is_empty() && name.bytes().all(is_plain) { name.to_owned() } else { quote(name) }
}

/// Names as arguments, with commas between them.
pub fn name_arguments<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(name_argument).collect::<Vec<_>>().join(", ")
}

/// Returns the name that is the first argument of a configuration string, if there is one.
pub fn first_name(config: &str) -> Option<String> {
    split_arguments(config).first().map(|name| unquote(name))
}

/// What [`quote`] puts between the quotes.
pub(super) fn quote_into(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'\\' | b'"' | b'$' => {
                out.push('\\');
                out.push(byte as char);
            }
            b'\t' => out.push_str("\\t"),
            b'\r' => out.push_str("\\r"),
            b'\n' => out.push_str("\\n"),
            32..=126 => out.push(byte as char),
            _ => {
                out.push('\\');
                for shift in [6, 3, 0] {
                    out.push(char::from(b'0' + ((byte >> shift) & 7)));
                }
            }
        }
    }
}

/// The keyword that an argument starts with, and the rest of it: `LIMIT 5` is `LIMIT` and `5`.
pub(super) fn split_keyword(argument: &str) -> Option<(&str, &str)> {
    let end = argument.bytes().position(is_space).unwrap_or(argument.len());
    let keyword = &argument[..end];
    let valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':' | b'?' | b'!');
    if keyword.is_empty() || !keyword.bytes().all(valid) {
        return None;
    }
    Some((keyword, argument[end..].trim_start_matches(|c: char| c.is_ascii() && is_space(c as u8))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn arguments_split_at_commas_outside_quotes() {
        assert_eq!(split_arguments("a, b, c"), ["a", "b", "c"]);
        assert_eq!(split_arguments("  a /*?*/ b,  c, "), ["a b", "c"]);
        assert_eq!(split_arguments("\"x, y\" // ?"), ["\"x, y\""]);
        assert_eq!(split_arguments(",,"), ["", ""]);
        assert_eq!(split_arguments(" /* nothing */ "), Vec::<String>::new());
        assert_eq!(split_arguments("a  b"), ["a  b"]);
        assert_eq!(split_arguments("'/*', \"\\\",\", (x"), ["'/*'", "\"\\\",\"", "(x"]);
    }

    #[test]
    fn words_split_at_space_outside_quotes() {
        assert_eq!(split_words("a  b, c"), ["a", "b,", "c"]);
        assert_eq!(split_words("  'a /*?*/ b'c d// e"), ["'a /*?*/ b'c", "d"]);
    }

    #[test]
    fn escapes() {
        assert_eq!(unquote(r#""\n" abc /* 123 */ '/* def */'"#), "\n abc /* def */");
        assert_eq!(unquote(r#""\x141\101\1012\q\\\"""#), "AAA2q\\\"");
        assert_eq!(unquote("\"a\\\nb\\\r\nc\""), "abc");
        assert_eq!(unquote_bytes(r"\<00 fF /* 11 */ 8>"), [0, 255]);
        assert_eq!(unquote("'\\n'\\n"), "\\n\\n");
        assert_eq!(unquote("\"open"), "open");
    }

    proptest! {
        #[test]
        fn quote_and_unquote_are_inverse(text in any::<String>()) {
            prop_assert_eq!(unquote(&quote(&text)), text);
        }

        #[test]
        fn any_text_can_be_split_and_unquoted(text in "[-,'\"\\\\<>/*a0 \n\ré()$]{0,40}") {
            for argument in split_arguments(&text) {
                let _ = unquote_bytes(&argument);
                let _ = split_words(&argument);
                let _ = split_keyword(&argument);
            }
        }
    }
}
