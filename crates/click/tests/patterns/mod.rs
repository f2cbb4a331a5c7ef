//! Patterns of tests as text: the regular expressions of Perl, in which Click's tests are written, in those of the crate
//! `regex`. The two differ in what may stand for itself: Perl takes a brace that counts nothing, `[` within a class or `\<`
//! literally. What Perl has beyond regular languages (looking around, references back) cannot be had; that is an error,
//! as is a pattern that Perl would refuse too.

use regex::Regex;

/// The pattern for a whole line.
pub(crate) fn whole(pattern: &str) -> Result<Regex, String> {
    Regex::new(&format!("^(?:{})$", translated(pattern)))
        .map_err(|error| format!("the pattern {pattern:?} is not understood: {error}"))
}

/// A line that is as it is, but for `{{regular expressions}}`.
pub(crate) fn with_patterns(line: &str) -> Result<Regex, String> {
    let mut pattern = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((inner, behind)) = after.split_once("}}") else { break };
        // A pattern that ends in a count, as in `{{x{2}}}`, has the first of three braces.
        let (inner, behind) = match behind.strip_prefix('}') {
            Some(behind) if inner.contains('{') => (&after[..=inner.len()], behind),
            _ => (inner, behind),
        };
        pattern.push_str(&regex::escape(before));
        // `{{?...}}` is a comment.
        if !inner.starts_with('?') {
            pattern.push_str(&format!("(?:{})", translated(inner)));
        }
        rest = behind;
    }
    pattern.push_str(&regex::escape(rest));
    Regex::new(&format!("^{pattern}$"))
        .map_err(|error| format!("the line {line:?} is not understood: {error}"))
}

fn translated(perl: &str) -> String {
    let mut out = String::new();
    let mut rest = perl;
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '\\' => escape(rest, &mut out),
            '[' => class(rest, &mut out),
            '{' => braces(rest, &mut out),
            '}' => {
                out.push_str("\\}");
                1
            }
            other => {
                out.push(other);
                other.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    out
}

/// A backslash and what it changes; how many bytes that is.
fn escape(text: &str, out: &mut String) -> usize {
    let Some(changed) = text.chars().nth(1) else {
        out.push_str("\\\\");
        return 1;
    };
    match changed {
        // Ends of words in the crate, nothing special in Perl.
        '<' | '>' => out.push(changed),
        'Z' => out.push('$'),
        'h' => out.push_str("[ \\t]"),
        'e' => out.push_str("\\x1b"),
        changed if changed.is_ascii_alphanumeric() || changed.is_ascii_punctuation() => {
            out.push('\\');
            out.push(changed);
        }
        changed => out.push(changed),
    }
    1 + changed.len_utf8()
}

/// A class in brackets: within it `[` and `&`, `~` stand for themselves.
fn class(text: &str, out: &mut String) -> usize {
    let opening = if text.starts_with("[^") { "[^" } else { "[" };
    let Some(end) = class_end(text, opening.len()) else {
        out.push('[');
        return 1;
    };
    out.push_str(opening);
    let mut at = opening.len();
    while at < end {
        let rest = &text[at..end];
        if let Some(name) = rest.strip_prefix("[:").and_then(|named| named.find(":]")) {
            out.push_str(&rest[..name + 4]);
            at += name + 4;
            continue;
        }
        let Some(first) = rest.chars().next() else { break };
        match first {
            '\\' => {
                at += escape(rest, out);
                continue;
            }
            '[' | '&' | '~' | ']' => {
                out.push('\\');
                out.push(first);
            }
            other => out.push(other),
        }
        at += first.len_utf8();
    }
    out.push(']');
    end + 1
}

/// Where the `]` of a class is. One that comes first belongs to the class.
fn class_end(text: &str, start: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = start + usize::from(bytes.get(start) == Some(&b']'));
    while at < bytes.len() {
        match bytes[at] {
            b']' => return Some(at),
            b'\\' => at += 2,
            b'[' if bytes.get(at + 1) == Some(&b':') => {
                at = text[at..].find(":]").map_or(at + 1, |length| at + length + 2);
            }
            _ => at += 1,
        }
    }
    None
}

/// A count (`{2}`, `{2,}`, `{2,5}`), or a brace.
fn braces(text: &str, out: &mut String) -> usize {
    let is_count = |inner: &str| {
        let (least, most) = inner.split_once(',').unwrap_or((inner, "0"));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        !least.is_empty() && digits(least) && digits(most)
    };
    match text[1..].split_once('}') {
        Some((inner, _)) if is_count(inner) && !out.is_empty() => {
            out.push_str(&text[..inner.len() + 2]);
            inner.len() + 2
        }
        _ => {
            out.push_str("\\{");
            1
        }
    }
}

#[test]
fn perls_patterns() {
    for (pattern, line, fits) in [
        ("a{b}c", "a{b}c", true),
        ("{", "{", true),
        ("x :: { y }", "x :: { y }", true),
        ("a{2}", "aa", true),
        ("a{1,}b{0,2}", "aab", true),
        ("{2}", "{2}", true),
        ("[^[]*", "abc", true),
        ("[^[]*", "a[c", false),
        ("[]a]+", "a]", true),
        ("[[:digit:]]+[&&x]", "12&", true),
        ("<\\d+\\>", "<12>", true),
        ("\\[\\d", "[1", true),
        ("a|b", "ab", false),
    ] {
        assert_eq!(whole(pattern).unwrap().is_match(line), fits, "{pattern} {line}");
    }
    for pattern in ["(", "a)", "(?=a)", "(a)\\1", "[a"] {
        assert!(whole(pattern).unwrap_err().contains("not understood"), "{pattern}");
    }
    let line = with_patterns("a* {{\\d{2}}} {{?why}}{ {{x|y}}").unwrap();
    assert!(line.is_match("a* 12 { x") && !line.is_match("a* 123 { x"));
    assert!(with_patterns("{{(}}").is_err());
}
