//! Variables: `$x`, `${x-default}`, `${x[1]}` in configuration strings, and the scopes that give them values.

use std::rc::Rc;

use super::arguments::{next_word, quote_into, skip_space_and_comments};
use super::lexer::{is_space, is_variable};

/// Values that contain variables are followed this deep; what is deeper stays as it is.
const MAX_DEPTH: u32 = 10;
/// Longest text that one configuration string may become, in bytes.
const MAX_EXPANSION: usize = 4 << 20;

/// The variables of one compound element in use (or of the file), inside those of the scope around its definition.
#[derive(Debug)]
pub(super) struct Environment {
    /// How many scopes are around this one.
    depth: usize,
    values: Vec<(String, String)>,
    parent: Option<Rc<Environment>>,
}

/// A text grew out of bounds.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong;

impl Environment {
    pub(super) fn new(depth: usize, parent: Option<Rc<Environment>>) -> Self {
        Environment { depth, values: Vec::new(), parent }
    }

    /// The innermost scope of this chain that is further out than `depth`.
    pub(super) fn around(self: &Rc<Self>, depth: usize) -> Option<Rc<Environment>> {
        let mut scope = Some(self.clone());
        while let Some(s) = scope.clone() {
            if s.depth < depth {
                break;
            }
            scope = s.parent.clone();
        }
        scope
    }

    /// Sets a variable; a value that it has already is replaced.
    pub(super) fn define(&mut self, name: &str, value: String) {
        match self.values.iter_mut().find(|(n, _)| n == name) {
            Some(entry) => entry.1 = value,
            None => self.values.push((name.to_string(), value)),
        }
    }

    fn value(&self, name: &str) -> Option<&str> {
        let mut scope = Some(self);
        while let Some(s) = scope {
            if let Some((_, value)) = s.values.iter().find(|(n, _)| n == name) {
                return Some(value);
            }
            scope = s.parent.as_deref();
        }
        None
    }

    /// `text` with the variables in it replaced. What has no value stays as it is.
    pub(super) fn expand(&self, text: &str) -> Result<String, TooLong> {
        let mut budget = MAX_EXPANSION;
        self.expand_at(text, 0, &mut budget)
    }

    fn expand_at(&self, text: &str, depth: u32, budget: &mut usize) -> Result<String, TooLong> {
        // The budget covers all intermediate texts too, so that nested values cannot take forever either.
        *budget = budget.checked_sub(text.len()).ok_or(TooLong)?;
        if !text.contains('$') || depth > MAX_DEPTH {
            return Ok(text.to_string());
        }
        let bytes = text.as_bytes();
        let mut out = String::with_capacity(text.len());
        let mut written = 0;
        let mut quote = 0u8;
        let mut at = 0;
        while at < bytes.len() {
            match bytes[at] {
                b'\\' if quote == b'"' => at += 1,
                b'\'' | b'"' if quote == 0 => quote = bytes[at],
                b'\'' | b'"' if quote == bytes[at] => quote = 0,
                b'/' if quote == 0 && matches!(bytes.get(at + 1), Some(b'/' | b'*')) => {
                    at = skip_space_and_comments(bytes, at);
                    continue;
                }
                b'$' if quote != b'\'' => {
                    let Some(reference) = reference_at(text, at) else {
                        at += 1;
                        continue;
                    };
                    if let Some((replacement, is_value)) = self.replacement(&reference, depth, budget)? {
                        *budget = budget.checked_sub(replacement.len()).ok_or(TooLong)?;
                        out.push_str(&text[written..at]);
                        if quote == b'"' && is_value {
                            quote_into(&replacement, &mut out);
                        } else {
                            out.push_str(&replacement);
                        }
                        written = reference.end;
                    }
                    at = reference.end;
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        out.push_str(&text[written..]);
        Ok(out)
    }

    /// What takes the place of a reference, and whether it is the value of a variable; `None` when the reference stays
    /// as it is.
    fn replacement(
        &self,
        reference: &Place<'_>,
        depth: u32,
        budget: &mut usize,
    ) -> Result<Option<(String, bool)>, TooLong> {
        let inner = if reference.form != Form::Bare && reference.body.contains('$') {
            self.expand_at(reference.body, depth + 1, budget)?
        } else {
            reference.body.to_string()
        };
        if let Some(value) = self.lookup(&inner, reference.form, depth, budget)? {
            return Ok(Some((value, true)));
        }
        // An unknown `${...}` or `$(...)` stays, but the variables inside it have been replaced.
        Ok((inner != reference.body).then(|| match reference.form {
            Form::Parentheses => (format!("$({inner})"), false),
            _ => (format!("${{{inner}}}"), false),
        }))
    }

    fn lookup(
        &self,
        body: &str,
        form: Form,
        depth: u32,
        budget: &mut usize,
    ) -> Result<Option<String>, TooLong> {
        let (name, index, default) = match form {
            Form::Braces => parse_braces(body),
            _ => (body, None, None),
        };
        if let Some(value) = self.value(name) {
            let value = self.expand_at(value, depth + 1, budget)?;
            return Ok(Some(match index {
                Some(index) => nth_word(&value, index).to_string(),
                None => value,
            }));
        }
        match default {
            Some(default) => self.expand_at(default, depth + 1, budget).map(Some),
            None => Ok(None),
        }
    }
}

/// What an expanded reference is to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference<'t> {
    /// `$name` or `${name}`.
    Variable(&'t str),
    /// `$(handler arguments)`.
    Call(&'t str),
}

/// `text` with its references replaced by what `value` says, which must not be replaced again. References inside `${...}` and
/// `$(...)` are replaced first, 10 deep; those that are deeper stay as they are, as does what has no value. Inside single quotes
/// nothing is replaced, inside double quotes values are escaped. With `protected` values outside quotes are put into quotes, so
/// that one layer of quotes can be taken off the whole afterwards.
///
/// # Errors
/// The text and what is put into it come to more than 4 MiB.
pub fn expand(
    text: &str,
    protected: bool,
    value: &mut dyn FnMut(Reference<'_>) -> Option<String>,
) -> Result<String, TooLong> {
    let mut budget = MAX_EXPANSION;
    expand_by(text, protected, value, 0, &mut budget)
}

fn expand_by(
    text: &str,
    protected: bool,
    value: &mut dyn FnMut(Reference<'_>) -> Option<String>,
    depth: u32,
    budget: &mut usize,
) -> Result<String, TooLong> {
    *budget = budget.checked_sub(text.len()).ok_or(TooLong)?;
    if depth > MAX_DEPTH {
        return Ok(text.to_owned());
    }
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let (mut written, mut quote, mut at) = (0, 0u8, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if quote == b'"' => at += 1,
            b'\'' | b'"' if quote == 0 => quote = bytes[at],
            b'\'' | b'"' if quote == bytes[at] => quote = 0,
            b'$' if quote != b'\'' => {
                let Some(place) = reference_at(text, at) else {
                    at += 1;
                    continue;
                };
                let body = match place.form {
                    Form::Bare => place.body.to_owned(),
                    _ => expand_by(place.body, false, value, depth + 1, budget)?,
                };
                let found = match place.form {
                    Form::Parentheses => value(Reference::Call(&body)),
                    Form::Bare => value(Reference::Variable(&body)),
                    Form::Braces => {
                        let (name, index, default) = parse_braces(&body);
                        let found = value(Reference::Variable(name));
                        let word = found.map(|value| match index {
                            Some(index) => nth_word(&value, index).to_owned(),
                            None => value,
                        });
                        word.or_else(|| default.map(str::to_owned))
                    }
                };
                if let Some(found) = found {
                    *budget = budget.checked_sub(found.len()).ok_or(TooLong)?;
                    out.push_str(&text[written..at]);
                    match quote {
                        b'"' => quote_into(&found, &mut out),
                        _ if protected => {
                            out.push('"');
                            quote_into(&found, &mut out);
                            out.push('"');
                        }
                        _ => out.push_str(&found),
                    }
                    written = place.end;
                }
                at = place.end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    out.push_str(&text[written..]);
    Ok(out)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Bare,
    Braces,
    Parentheses,
}

#[derive(Debug)]
struct Place<'t> {
    form: Form,
    body: &'t str,
    /// Position behind the reference.
    end: usize,
}

/// The reference whose `$` is at `at`.
fn reference_at(text: &str, at: usize) -> Option<Place<'_>> {
    let bytes = text.as_bytes();
    match *bytes.get(at + 1)? {
        b'{' => {
            let length = text[at + 2..].find('}')?;
            let end = at + 2 + length;
            Some(Place { form: Form::Braces, body: &text[at + 2..end], end: end + 1 })
        }
        b'(' => {
            let end = closing_parenthesis(bytes, at + 2)?;
            Some(Place { form: Form::Parentheses, body: &text[at + 2..end], end: end + 1 })
        }
        b'?' | b'#' | b'$' => Some(Place { form: Form::Bare, body: &text[at + 1..at + 2], end: at + 2 }),
        byte if is_variable(byte) => {
            let length = bytes[at + 1..].iter().take_while(|b| is_variable(**b)).count();
            Some(Place { form: Form::Bare, body: &text[at + 1..at + 1 + length], end: at + 1 + length })
        }
        _ => None,
    }
}

fn closing_parenthesis(bytes: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 1;
    let mut quote = 0u8;
    while at < bytes.len() {
        match bytes[at] {
            b'(' if quote == 0 => depth += 1,
            b')' if quote == 0 => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            b'\'' | b'"' if quote == 0 => quote = bytes[at],
            b'\'' | b'"' if quote == bytes[at] => quote = 0,
            b'\\' if quote != b'\'' => at += 1,
            _ => {}
        }
        at += 1;
    }
    None
}

/// `name`, `name[index]` and `name-default`.
fn parse_braces(body: &str) -> (&str, Option<usize>, Option<&str>) {
    let space = |c: char| c.is_ascii() && is_space(c as u8);
    let rest = body.trim_start_matches(space);
    let length = rest.bytes().take_while(|b| is_variable(*b)).count();
    let (name, rest) = rest.split_at(length);
    let mut rest = rest.trim_start_matches(space);
    let mut index = None;
    if let Some((number, after)) = rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
        index = number.trim_matches(space).parse::<usize>().ok();
        if index.is_some() {
            rest = after.trim_start_matches(space);
        }
    }
    (name, index, rest.strip_prefix('-'))
}

fn nth_word(text: &str, index: usize) -> &str {
    let mut rest = text;
    for _ in 0..index {
        if rest.is_empty() {
            return "";
        }
        rest = next_word(rest).1;
    }
    next_word(rest).0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(values: &[(&str, &str)]) -> Environment {
        let mut environment = Environment::new(0, None);
        for (name, value) in values {
            environment.define(name, (*value).to_string());
        }
        environment
    }

    #[track_caller]
    fn check(values: &[(&str, &str)], text: &str, expected: &str) {
        assert_eq!(environment(values).expand(text).as_deref(), Ok(expected));
    }

    #[test]
    fn known_variables_are_replaced_and_unknown_ones_stay() {
        check(&[("a", "1")], "$a, ${a}b, $ab, $", "1, 1b, $ab, $");
        check(&[("a", "1")], "${b-2} ${a-2} ${b-$a}", "2 1 1");
        check(&[("a", "x y z")], "${a[1]}|${a[3]}|${a[0]}", "y||x");
        check(&[("n", "2"), ("a", "x y z")], "${a[$n]} $(s.get $n) ${q$n}", "z $(s.get 2) ${q2}");
    }

    #[test]
    fn quotes() {
        check(&[("a", "say \"hi\" $x")], "\"$a\"", "\"say \\\"hi\\\" \\$x\"");
        check(&[("a", "1")], "'$a' \"'$a'\" \"\\$a\" $a", "'$a' \"'1'\" \"\\$a\" 1");
        check(&[("a", "1")], "// $a\n$a /* $a */ $a", "// $a\n1 /* $a */ 1");
        check(&[("a", "")], "\"$a\"", "\"\"");
        check(&[("n", "1")], "\"$(s.get $n)\"", "\"$(s.get 1)\"");
    }

    #[test]
    fn values_may_contain_variables() {
        check(&[("a", "$b"), ("b", "2")], "$a", "2");
        let endless = environment(&[("a", "$a")]);
        assert_eq!(endless.expand("$a").as_deref(), Ok("$a"));
    }

    #[test]
    fn values_by_callback() {
        let mut value = |reference: Reference<'_>| match reference {
            Reference::Variable("x") => Some("a \"b\"".to_owned()),
            Reference::Call("add 1 a \"b\"") => Some("$x".to_owned()),
            _ => None,
        };
        assert_eq!(super::super::unquote(&expand("$x", true, &mut value).unwrap()), "a \"b\"");
        let mut check = |text: &str, protected: bool, expected: &str| {
            assert_eq!(expand(text, protected, &mut value).as_deref(), Ok(expected));
        };
        check("$x|${x}|${x[0]}|${y-7}|$y", false, "a \"b\"|a \"b\"|a|7|$y");
        check("\"$x\" '$x' \\$x", false, "\"a \\\"b\\\"\" '$x' \\a \"b\"");
        check("$(add 1 $x) $(sub $x)", false, "$x $(sub $x)");
        check("$x-$y", true, "\"a \\\"b\\\"\"-$y");
        check("$( ${ $", false, "$( ${ $");
    }

    #[test]
    fn growth_is_bounded() {
        let mut values = Vec::new();
        for i in 0..10 {
            values.push((format!("v{i}"), format!("$v{}", i + 1).repeat(20)));
        }
        let mut environment = Environment::new(0, None);
        for (name, value) in values {
            environment.define(&name, value);
        }
        assert_eq!(environment.expand("$v0"), Err(TooLong));
        let mut value = |_: Reference<'_>| Some("x".repeat(1 << 20));
        assert_eq!(expand("$a$b$c", false, &mut value).map(|text| text.len()), Ok(3 << 20));
        assert_eq!(expand("$a$b$c$d", false, &mut value), Err(TooLong));
    }

    #[test]
    fn references_that_are_nested_too_deeply_stay() {
        let nested = |levels: usize| format!("{}x{}", "$(f ".repeat(levels), ")".repeat(levels));
        let mut value = |_: Reference<'_>| Some("y".to_owned());
        assert_eq!(expand(&nested(10), false, &mut value).as_deref(), Ok("y"));
        let mut calls = Vec::new();
        let mut value = |reference: Reference<'_>| {
            calls.push(format!("{reference:?}"));
            Some("y".to_owned())
        };
        assert_eq!(expand(&nested(12), false, &mut value).as_deref(), Ok("y"));
        assert_eq!(calls[0], "Call(\"f $(f x)\")");
        // However deep, the stack does not overflow.
        assert!(expand(&nested(100_000), false, &mut |_| None).is_err());
    }

    #[test]
    fn inner_scopes_hide_outer_ones() {
        let mut outer = Environment::new(0, None);
        outer.define("a", "outer".into());
        outer.define("b", "outer".into());
        let outer = Rc::new(outer);
        let mut inner = Environment::new(1, Some(outer.clone()));
        inner.define("a", "inner".into());
        let inner = Rc::new(inner);
        assert_eq!(inner.expand("$a $b").as_deref(), Ok("inner outer"));
        assert_eq!(inner.around(1).map(|e| e.depth), Some(0));
    }
}
