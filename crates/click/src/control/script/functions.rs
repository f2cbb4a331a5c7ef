//! What scripts can compute: the handlers of a Script that need nothing but their argument.

use std::fmt::Write as _;

use graph::lang::{next_word, quote, split_words, unquote};
use graph::{Act, Combine, FromArgument, Handler};

use super::{Script, asked};

/// The functions. The private ones reach beyond the router.
pub(super) const HANDLERS: [Handler; 38] = [
    asked!("cat", "The text of a file.").private(),
    asked!("catq", "As cat, in quotes.").private(),
    asked!("kill", "Sends a signal, the first word, to processes, the others.").private(),
    asked!("abs", "A number without its sign."),
    asked!("add", "The sum of the numbers."),
    asked!("and", "Whether all words are true."),
    asked!("ceil", "A number, rounded up."),
    asked!("div", "The first number, divided by the others."),
    asked!("eq", "Whether two numbers or texts are equal."),
    asked!("first", "The first word."),
    asked!("ge", "Whether the first of two numbers or texts is greater than the other, or equal."),
    asked!("gt", "Whether the first of two numbers or texts is greater than the other."),
    asked!("htonl", "A number of 32 bits in network byte order."),
    asked!("htons", "A number of 16 bits in network byte order."),
    asked!("idiv", "As div, without what is behind the point."),
    asked!("if", "The second word if the first one is true, or else the third."),
    asked!("in", "Whether the first word is among the others."),
    asked!("le", "Whether the first of two numbers or texts is less than the other, or equal."),
    asked!("length", "How many bytes the text has."),
    asked!("lt", "Whether the first of two numbers or texts is less than the other."),
    asked!("max", "The largest of the numbers."),
    asked!("min", "The smallest of the numbers."),
    asked!("mod", "What is left of the first integer when it is divided by the second."),
    asked!("mul", "The product of the numbers."),
    asked!("nand", "Whether a word is false."),
    asked!("ne", "Whether two numbers or texts are not equal."),
    asked!("neg", "A number with the other sign."),
    asked!("nor", "Whether no word is true."),
    asked!("not", "Whether the word is false."),
    asked!("ntohl", "As htonl, the other way round."),
    asked!("ntohs", "As htons, the other way round."),
    asked!("or", "Whether a word is true."),
    asked!("rem", "As mod, of any numbers."),
    asked!("sprintf", "The words behind the first one, put into that as a format, as in C."),
    asked!("sub", "The first number, less the others."),
    asked!("unquote", "The text without a layer of quotes."),
    asked!("readable", "Whether all words are handlers that can be read."),
    asked!("writable", "Whether all words are handlers that can be written."),
];

/// A number as scripts know them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Number {
    Integer(i64),
    Real(f64),
}

impl Number {
    fn read(text: &str) -> Option<Self> {
        let real = || f64::from_argument(text).map(Number::Real);
        i64::from_argument(text).map(Number::Integer).or_else(real)
    }

    fn real(self) -> f64 {
        match self {
            Number::Integer(value) => value as f64,
            Number::Real(value) => value,
        }
    }

    fn text(self) -> String {
        match self {
            Number::Integer(value) => value.to_string(),
            Number::Real(value) => real_text(value),
        }
    }
}

/// A real number as C's `%.12g` writes it.
fn real_text(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !value.is_finite() {
        return value.to_string().to_lowercase();
    }
    let scientific = format!("{value:.11e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..12).contains(&exponent) {
        let decimals = (11 - exponent).max(0) as usize;
        return trimmed(&format!("{value:.decimals$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
}

fn truth(value: bool) -> String {
    value.to_string()
}

fn condition(word: &str) -> Result<bool, String> {
    bool::from_argument(word).ok_or_else(|| format!("expected true or false, not '{word}'"))
}

/// Computes; what is wrong with the argument otherwise. `None` when there is no such function of the argument alone.
pub(super) fn compute(name: &str, argument: &str) -> Option<Result<String, String>> {
    Some(match name {
        "add" | "sub" | "mul" | "div" | "idiv" | "min" | "max" => arithmetic(name, argument),
        "mod" | "rem" => remainder(name, argument),
        "neg" | "abs" | "ceil" => of_one(name, argument),
        "eq" | "ne" | "lt" | "le" | "gt" | "ge" => compare(name, argument),
        "and" | "nand" | "or" | "nor" => all_or_any(name, argument),
        "not" => condition(argument.trim()).map(|value| truth(!value)),
        "if" => choose(argument),
        "in" => {
            let mut words = split_words(argument).into_iter().map(|word| unquote(&word));
            let wanted = words.next().unwrap_or_default();
            Ok(truth(words.any(|word| word == wanted)))
        }
        "first" => Ok(next_word(argument).0.to_owned()),
        "length" => Ok(argument.len().to_string()),
        "unquote" => Ok(unquote(argument)),
        "sprintf" => sprintf(argument),
        "htons" | "ntohs" => u16_of(argument).map(|value| value.to_be().to_string()),
        "htonl" | "ntohl" => u32_of(argument).map(|value| value.to_be().to_string()),
        "cat" | "catq" => {
            let file = unquote(argument.trim());
            match graph::files::read_beginning(std::path::Path::new(&file)) {
                Ok(bytes) => {
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    Ok(if name == "catq" { quote(&text) } else { text })
                }
                Err(error) => Err(format!("{file}: {error}")),
            }
        }
        "kill" => kill(argument),
        _ => return None,
    })
}

fn u16_of(text: &str) -> Result<u16, String> {
    u16::from_argument(text.trim())
        .ok_or_else(|| format!("expected an integer from 0 to 65535, not '{text}'"))
}

fn u32_of(text: &str) -> Result<u32, String> {
    u32::from_argument(text.trim())
        .ok_or_else(|| format!("expected an integer from 0 to 4294967295, not '{text}'"))
}

fn arithmetic(name: &str, argument: &str) -> Result<String, String> {
    let mut result: Option<Number> = None;
    for word in split_words(argument) {
        let number = Number::read(&word).ok_or("expected list of numbers")?;
        result = Some(match result {
            None => number,
            Some(before) => combine(name, before, number)?,
        });
    }
    let nothing = Number::Integer(i64::from(matches!(name, "mul" | "div" | "idiv" | "min" | "max")));
    Ok(match (name, result.unwrap_or(nothing)) {
        ("idiv", number) => (number.real() as i64).to_string(),
        ("div", number) => real_text(number.real()),
        (_, number) => number.text(),
    })
}

fn combine(name: &str, a: Number, b: Number) -> Result<Number, String> {
    if let (Number::Integer(a), Number::Integer(b), false) = (a, b, matches!(name, "div" | "idiv")) {
        return Ok(Number::Integer(match name {
            "add" => a.wrapping_add(b),
            "sub" => a.wrapping_sub(b),
            "mul" => a.wrapping_mul(b),
            "min" => a.min(b),
            _ => a.max(b),
        }));
    }
    let (a, b) = (a.real(), b.real());
    if b == 0.0 && matches!(name, "div" | "idiv") {
        return Err("division by zero".into());
    }
    Ok(Number::Real(match name {
        "add" => a + b,
        "sub" => a - b,
        "mul" => a * b,
        "min" => a.min(b),
        "max" => a.max(b),
        _ => a / b,
    }))
}

/// The two words of an argument.
fn two(argument: &str) -> Result<(String, String), String> {
    let words: [String; 2] = split_words(argument).try_into().map_err(|_| "expected two numbers")?;
    let [a, b] = words;
    Ok((a, b))
}

fn remainder(name: &str, argument: &str) -> Result<String, String> {
    let (a, b) = two(argument)?;
    match (Number::read(&a), Number::read(&b)) {
        (_, Some(b)) if b.real() == 0.0 => Err("division by zero".into()),
        (Some(Number::Integer(a)), Some(Number::Integer(b))) => Ok(a.wrapping_rem(b).to_string()),
        (Some(a), Some(b)) if name == "rem" => Ok(real_text(a.real() % b.real())),
        _ => Err("expected two numbers".into()),
    }
}

fn of_one(name: &str, argument: &str) -> Result<String, String> {
    let number = Number::read(argument.trim()).ok_or("expected one number")?;
    Ok(match (name, number) {
        ("neg", Number::Integer(value)) => value.wrapping_neg().to_string(),
        ("neg", Number::Real(value)) => real_text(-value),
        ("abs", Number::Integer(value)) => value.wrapping_abs().to_string(),
        ("abs", Number::Real(value)) => real_text(value.abs()),
        (_, Number::Real(value)) => real_text(value.ceil()),
        (_, value) => value.text(),
    })
}

fn compare(name: &str, argument: &str) -> Result<String, String> {
    use std::cmp::Ordering;
    let (a, b) = two(argument)?;
    let order = match (Number::read(&a), Number::read(&b)) {
        (Some(Number::Integer(a)), Some(Number::Integer(b))) => a.cmp(&b),
        (Some(a), Some(b)) => a.real().partial_cmp(&b.real()).unwrap_or(Ordering::Greater),
        _ => unquote(&a).cmp(&unquote(&b)),
    };
    Ok(truth(match name {
        "eq" => order.is_eq(),
        "ne" => order.is_ne(),
        "lt" => order.is_lt(),
        "le" => order.is_le(),
        "gt" => order.is_gt(),
        _ => order.is_ge(),
    }))
}

fn all_or_any(name: &str, argument: &str) -> Result<String, String> {
    let all = matches!(name, "and" | "nand");
    let mut value = all;
    for word in split_words(argument) {
        // As in C, what follows the word that decides is not looked at.
        if value != all {
            break;
        }
        value = condition(&word)?;
    }
    Ok(truth(value != name.starts_with('n')))
}

fn choose(argument: &str) -> Result<String, String> {
    let words = split_words(argument);
    let word = |index: usize| words.get(index).cloned().unwrap_or_default();
    Ok(if condition(&word(0))? { word(1) } else { word(2) })
}

fn kill(argument: &str) -> Result<String, String> {
    let mut words = split_words(argument).into_iter();
    let name = words.next().unwrap_or_default();
    let signal = super::signals::signal(&name).ok_or_else(|| format!("bad SIGNO '{name}'"))?;
    for word in words {
        let process = i32::from_argument(&word).and_then(rustix::process::Pid::from_raw);
        let process = process.ok_or_else(|| format!("bad PID '{word}'"))?;
        rustix::process::kill_process(process, signal)
            .map_err(|error| format!("kill({word}, {name}): {error}"))?;
    }
    Ok(String::new())
}

/// The flags, width and precision of a conversion.
#[derive(Default)]
struct Conversion {
    left: bool,
    zeros: bool,
    alternate: bool,
    plus: bool,
    space: bool,
    width: usize,
    precision: Option<usize>,
}

/// Longest field that a format may ask for, in characters.
const MOST_WIDTH: usize = 1_000;

impl Conversion {
    /// `digits` with at least as many as the precision asks for, `sign` and `prefix` before it, in its field.
    fn number(&self, sign: &str, prefix: &str, digits: &str) -> String {
        let wanted = self.precision.unwrap_or(1);
        let mut body = format!("{}{digits}", "0".repeat(wanted.saturating_sub(digits.len())));
        let used = sign.len() + prefix.len() + body.len();
        if self.zeros && !self.left && self.precision.is_none() && used < self.width {
            body.insert_str(0, &"0".repeat(self.width - used));
        }
        self.field(&format!("{sign}{prefix}{body}"))
    }

    fn field(&self, text: &str) -> String {
        let width = self.width;
        if self.left { format!("{text:<width$}") } else { format!("{text:>width$}") }
    }
}

fn sprintf(argument: &str) -> Result<String, String> {
    let mut words = split_words(argument).into_iter();
    let format = unquote(&words.next().unwrap_or_default());
    let mut word = || words.next().ok_or("syntax error: too few arguments for the format".to_owned());
    let mut rest = format.as_str();
    let mut out = String::new();
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let mut conversion = Conversion::default();
        let flags = rest.len() - rest.trim_start_matches(['0', '#', '-', ' ', '+']).len();
        for flag in rest[..flags].chars() {
            match flag {
                '0' => conversion.zeros = true,
                '#' => conversion.alternate = true,
                '-' => conversion.left = true,
                ' ' => conversion.space = true,
                _ => conversion.plus = true,
            }
        }
        rest = &rest[flags..];
        let mut size = |rest: &mut &str| -> Result<usize, String> {
            if let Some(after) = rest.strip_prefix('*') {
                *rest = after;
                let word = word()?;
                let right = usize::from_argument(&word).filter(|&size| size <= MOST_WIDTH);
                return right.ok_or_else(|| format!("syntax error: '{word}' is not a width"));
            }
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, after) = rest.split_at(digits);
            *rest = after;
            let size = if number.is_empty() { Some(0) } else { number.parse().ok() };
            size.filter(|&size| size <= MOST_WIDTH)
                .ok_or_else(|| format!("a field may have {MOST_WIDTH} characters at most"))
        };
        conversion.width = size(&mut rest)?;
        if let Some(after) = rest.strip_prefix('.') {
            rest = after;
            conversion.precision = Some(size(&mut rest)?);
        }
        let letters = rest.trim_start_matches(['h', 'l', 'L', 'q']);
        let is_short = rest.starts_with('h');
        rest = letters;
        let mut chars = rest.chars();
        let kind = chars.next().ok_or("syntax error: the format ends within a conversion")?;
        rest = chars.as_str();
        match kind {
            '%' => out.push('%'),
            's' => {
                let text = unquote(&word()?);
                let most = conversion.precision.unwrap_or(usize::MAX);
                out.push_str(&conversion.field(&text.chars().take(most).collect::<String>()));
            }
            'd' | 'i' => {
                let word = word()?;
                let value = i64::from_argument(&word).ok_or_else(|| not_a_number(&word))?;
                let value = if is_short { i64::from(value as i16) } else { value };
                let sign = match value {
                    ..0 => "-",
                    _ if conversion.plus => "+",
                    _ if conversion.space => " ",
                    _ => "",
                };
                out.push_str(&conversion.number(sign, "", &value.unsigned_abs().to_string()));
            }
            'o' | 'x' | 'X' | 'u' => {
                let word = word()?;
                let signed = || i64::from_argument(&word).map(|value| value as u64);
                let value = u64::from_argument(&word).or_else(signed).ok_or_else(|| not_a_number(&word))?;
                let value = if is_short { u64::from(value as u16) } else { value };
                let mut digits = String::new();
                // Writing to a string cannot fail.
                let _ = match kind {
                    'o' => write!(digits, "{value:o}"),
                    'x' => write!(digits, "{value:x}"),
                    'X' => write!(digits, "{value:X}"),
                    _ => write!(digits, "{value}"),
                };
                let prefix = match kind {
                    'x' if conversion.alternate && value != 0 => "0x",
                    'X' if conversion.alternate && value != 0 => "0X",
                    'o' if conversion.alternate && !digits.starts_with('0') => "0",
                    _ => "",
                };
                out.push_str(&conversion.number("", prefix, &digits));
            }
            other => return Err(format!("syntax error: '%{other}' is not a conversion")),
        }
    }
    out.push_str(rest);
    match words.next() {
        Some(word) => Err(format!("syntax error: '{word}' is one argument too many")),
        None => Ok(out),
    }
}

fn not_a_number(word: &str) -> String {
    format!("syntax error: '{word}' is not an integer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, cases: &[(&str, &str)]) {
        for (argument, expected) in cases {
            assert_eq!(compute(name, argument).unwrap().as_deref(), Ok(*expected), "{name} {argument}");
        }
    }

    #[test]
    fn arithmetic() {
        check("add", &[("10 5 2", "17"), ("", "0"), ("1 .5", "1.5"), ("0x10 010", "24"), ("-1 1", "0")]);
        check("sub", &[("10 5 2", "3"), ("7", "7")]);
        check("mul", &[("3 4", "12"), ("1.5 2", "3")]);
        check(
            "div",
            &[("10 4", "2.5"), ("10 5", "2"), ("1 3", "0.333333333333"), ("1 3000000", "3.33333333333e-07")],
        );
        check("idiv", &[("10 4", "2"), ("-7 2", "-3")]);
        check("mod", &[("10 4", "2")]);
        check("rem", &[("10.5 4", "2.5")]);
        check("min", &[("3 1 2", "1")]);
        check("max", &[("3 1 2.5", "3")]);
        check("neg", &[("3", "-3"), ("-2.5", "2.5")]);
        check("abs", &[("-3", "3"), ("2.5", "2.5")]);
        check("ceil", &[("2.1", "3"), ("2", "2")]);
        for (name, argument) in [("add", "1 x"), ("div", "1 0"), ("mod", "1 0"), ("mod", "1"), ("neg", "x")] {
            assert!(compute(name, argument).unwrap().is_err(), "{name} {argument}");
        }
    }

    #[test]
    fn comparisons_and_truth() {
        check("eq", &[("10 0xA", "true"), ("10x 10x", "true"), ("1 1.0", "true"), ("a \"a\"", "true")]);
        check("le", &[("9 8", "false"), ("8 8", "true"), ("-1 0.5", "true")]);
        check("gt", &[("9 8", "true"), ("b a", "true")]);
        check("ne", &[("9 8", "true")]);
        check("not", &[("true", "false"), ("0", "true")]);
        check("and", &[("true true", "true"), ("true false x", "false"), ("", "true")]);
        check("nor", &[("false false", "true"), ("true x", "false")]);
        check("or", &[("false 1", "true"), ("", "false")]);
        check("nand", &[("true true", "false")]);
        check("if", &[("true a b", "a"), ("0 a b", "b"), ("0 a", "")]);
        check("in", &[("b a b c", "true"), ("d a \"b\" c", "false"), ("b \"b\"", "true")]);
        assert!(compute("not", "2").unwrap().is_err());
        assert!(compute("lt", "1").unwrap().is_err());
    }

    #[test]
    fn texts() {
        check("first", &[("a b c", "a"), ("\"a b\" c", "\"a b\"")]);
        check("length", &[("abc", "3"), ("", "0")]);
        check("unquote", &[("\"a\\\"b\"", "a\"b")]);
        check("htons", &[("1", "256")]);
        check("htonl", &[("1", "16777216")]);
        check("sprintf", &[("\"%05x\" 127", "0007f")]);
        for (argument, expected) in [
            ("\"%s|%-4d|%+d\" \"a b\" 7 8", "a b|7   |+8"),
            ("%#X 255", "0XFF"),
            ("\"%.3d %5.2s|\" 7 abc", "007    ab|"),
            ("%*d 4 7", "   7"),
            ("%hd 65537", "1"),
            ("%u -1", "18446744073709551615"),
            ("100%%", "100%"),
        ] {
            assert_eq!(compute("sprintf", argument).unwrap().as_deref(), Ok(expected), "{argument}");
        }
        for wrong in ["%d", "%d x", "%d 1 2", "%", "%y 1", "%9999999d 1", "%*d 99999 1"] {
            assert!(compute("sprintf", wrong).unwrap().is_err(), "{wrong}");
        }
    }

    #[test]
    fn all_are_known_by_name() {
        let asked = ["readable", "writable"];
        for name in HANDLERS.iter().map(|handler| handler.name).filter(|name| !asked.contains(name)) {
            assert!(compute(name, "").is_some(), "{name}");
        }
        assert!(compute("nothing", "").is_none());
    }
}
