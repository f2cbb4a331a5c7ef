//! `-h` and `-x`: which handlers are meant, and what is printed of them.

use std::process::ExitCode;

use graph::FromArgument;
use graph::router::Router;

use crate::output::print;

/// Prints the values of all handlers that were asked for; whether all of them have one.
pub(super) fn print_all(router: &mut Router, wanted: &[String]) -> bool {
    let mut all = true;
    for path in wanted {
        let found = match path.split_once('.') {
            None => Ok((vec![path.clone()], false)),
            Some((pattern, handler)) => matching(router, pattern, handler),
        };
        let (paths, is_pattern) = match found {
            Ok(found) => found,
            Err(error) => {
                graph::note!("{error}");
                all = false;
                continue;
            }
        };
        for path in paths {
            all &= print_one(router, &path, is_pattern || wanted.len() > 1);
        }
    }
    all
}

fn print_one(router: &mut Router, path: &str, with_name: bool) -> bool {
    match router.read_own(path) {
        Ok(mut value) => {
            if !value.is_empty() && !value.ends_with('\n') {
                value.push('\n');
            }
            let line = if with_name { format!("{path}:\n{value}\n") } else { value };
            print(&line);
            true
        }
        Err(error) => {
            graph::note!("{error}");
            false
        }
    }
}

/// The elements that `pattern` means (a name, a name with wildcards, a class), each with the handler; and whether it
/// could mean several.
fn matching(router: &mut Router, pattern: &str, handler: &str) -> Result<(Vec<String>, bool), String> {
    let config = router.config().clone();
    if config.find(pattern).is_some() {
        return Ok((vec![format!("{pattern}.{handler}")], false));
    }
    let has_wildcards = pattern.contains(['?', '*', '[']);
    let fits = |name: &str, class: &str| {
        if has_wildcards { glob(pattern.as_bytes(), name.as_bytes()) } else { class == pattern }
    };
    let elements = config.elements.iter().filter(|element| fits(&element.name, &element.class));
    let paths: Vec<String> = elements.map(|element| format!("{}.{handler}", element.name)).collect();
    if paths.is_empty() {
        return Err(match has_wildcards {
            true => format!("no element matching '{pattern}'"),
            false => format!("no element '{pattern}'"),
        });
    }
    let readable = router.handlers();
    Ok((paths.into_iter().filter(|path| readable.contains(path)).collect(), true))
}

/// Whether `text` fits a pattern of the shell: `?`, `*`, `[a-z]`, `[^a]`.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let Some((&first, rest)) = pattern.split_first() else { return text.is_empty() };
    match first {
        b'*' => (0..=text.len()).any(|taken| glob(rest, &text[taken..])),
        _ if text.is_empty() => false,
        b'?' => glob(rest, &text[1..]),
        b'[' => match rest.iter().skip(1).position(|&byte| byte == b']') {
            Some(length) => {
                let (set, after) = (&rest[..=length], &rest[length + 2..]);
                in_set(set, text[0]) && glob(after, &text[1..])
            }
            None => text[0] == b'[' && glob(rest, &text[1..]),
        },
        byte => text[0] == byte && glob(rest, &text[1..]),
    }
}

fn in_set(set: &[u8], byte: u8) -> bool {
    let (set, is_negated) = match set.split_first() {
        Some((b'^' | b'!', rest)) if !rest.is_empty() => (rest, true),
        _ => (set, false),
    };
    let mut rest = set;
    let mut found = false;
    while let Some((&first, after)) = rest.split_first() {
        rest = match after {
            [b'-', last, behind @ ..] => {
                found |= (first..=*last).contains(&byte);
                behind
            }
            _ => {
                found |= first == byte;
                after
            }
        };
    }
    found != is_negated
}

/// The exit code that a handler's value is: a number, or whether it is true.
pub(super) fn exit_code(router: &mut Router, handler: &str) -> ExitCode {
    match router.read_own(handler) {
        Ok(value) => match (i64::from_argument(value.trim()), bool::from_argument(value.trim())) {
            // What the shell sees of a number are its lowest eight bits.
            (Some(number), _) => ExitCode::from(number as u8),
            (None, Some(is_true)) => ExitCode::from(u8::from(!is_true)),
            (None, None) => {
                graph::note!("exit handler value should be integer");
                ExitCode::from(u8::MAX)
            }
        },
        Err(error) => {
            graph::note!("{error}");
            ExitCode::from(u8::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards() {
        let fits = |pattern: &str, text: &str| glob(pattern.as_bytes(), text.as_bytes());
        assert!(
            fits("c*", "c1")
                && fits("c*", "c")
                && fits("*1", "c1")
                && fits("c?", "c1")
                && fits("c[0-9]x", "c7x")
        );
        assert!(fits("[^a-c]", "d") && !fits("[^a-c]", "b") && fits("[ab]", "b") && !fits("[ab]", "c"));
        assert!(
            !fits("c?", "c")
                && !fits("c", "c1")
                && fits("a*b*c", "aXbYbZc")
                && fits("[", "[")
                && fits("[]a]", "]")
        );
        assert!(!fits("c*", "d"));
    }
}
