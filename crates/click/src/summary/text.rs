//! How a dump is spelled: words of a line, quoted bytes, times, and a cursor for what is finer than a word.

/// The words of a line. Space inside double quotes does not end a word; the quotes stay.
pub(super) fn words(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line.trim_ascii_start();
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (mut quoted, mut escaped) = (false, false);
        let end = rest.char_indices().find(|&(_, letter)| {
            let ends = !quoted && letter.is_ascii_whitespace();
            match letter {
                _ if escaped => escaped = false,
                '\\' => escaped = quoted,
                '"' => quoted = !quoted,
                _ => {}
            }
            ends
        });
        let (word, behind) = rest.split_at(end.map_or(rest.len(), |(at, _)| at));
        rest = behind.trim_ascii_start();
        Some(word)
    })
}

/// Adds `bytes` as a string in double quotes: plain ASCII, of which `graph::lang::unquote_bytes` makes the bytes again.
pub(super) fn push_quoted(out: &mut String, bytes: &[u8]) {
    out.push('"');
    for &byte in bytes {
        match byte {
            b'\\' | b'"' | b'$' => out.extend(['\\', char::from(byte)]),
            b'\t' => out.push_str("\\t"),
            b'\r' => out.push_str("\\r"),
            b'\n' => out.push_str("\\n"),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => {
                let digit = |shift: u32| char::from(b'0' + ((byte >> shift) & 7));
                out.extend(['\\', digit(6), digit(3), digit(0)]);
            }
        }
    }
    out.push('"');
}

const NS_PER_SECOND: u64 = 1_000_000_000;

/// Reads seconds with up to nine digits behind the point (more are cut off), as nanoseconds.
pub(super) fn parse_seconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let all_digits = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
    if !all_digits(seconds) || !all_digits(fraction) || (seconds.is_empty() && fraction.is_empty()) {
        return None;
    }
    let seconds: u64 = if seconds.is_empty() { 0 } else { seconds.parse().ok()? };
    let mut ns = 0;
    for place in 0..9 {
        ns = ns * 10 + fraction.as_bytes().get(place).map_or(0, |digit| u64::from(digit - b'0'));
    }
    seconds.checked_mul(NS_PER_SECOND)?.checked_add(ns)
}

/// A time as C's `ctime` writes it, in UTC: `Wed Jul 25 00:53:30 2001`.
pub(super) fn date(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [(&str, u64); 12] = [
        ("Jan", 31),
        ("Feb", 28),
        ("Mar", 31),
        ("Apr", 30),
        ("May", 31),
        ("Jun", 30),
        ("Jul", 31),
        ("Aug", 31),
        ("Sep", 30),
        ("Oct", 31),
        ("Nov", 30),
        ("Dec", 31),
    ];
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    // 400 years always have as many days.
    let (mut year, mut day) = (1970 + days / 146_097 * 400, days % 146_097);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut name = "";
    for (month, length) in MONTHS {
        name = month;
        let length = length + u64::from(month == "Feb" && is_leap(year));
        if day < length {
            break;
        }
        day -= length;
    }
    let weekday = DAYS[(days % 7) as usize];
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{weekday} {name} {:2} {hour:02}:{minute:02}:{second:02} {year}", day + 1)
}

/// A place in the text of a field.
pub(super) struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    pub(super) fn at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Whether `text` comes next.
    pub(super) fn sees(&self, text: &str) -> bool {
        self.rest.starts_with(text)
    }

    /// Whether a digit comes next.
    pub(super) fn sees_digit(&self) -> bool {
        self.rest.starts_with(|letter: char| letter.is_ascii_digit())
    }

    /// The text before the next of these letters.
    pub(super) fn until(&self, ends: &[char]) -> &'a str {
        self.rest.split(ends).next().unwrap_or_default()
    }

    /// Takes `text` if it comes next.
    pub(super) fn eat(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Takes `text`; `None` when something else comes next.
    pub(super) fn expect(&mut self, text: &str) -> Option<()> {
        self.eat(text).then_some(())
    }

    /// Takes `text` if it comes next and a digit behind it.
    pub(super) fn eat_before_digit(&mut self, text: &str) -> bool {
        let before = self.rest;
        if self.eat(text) && self.sees_digit() {
            return true;
        }
        self.rest = before;
        false
    }

    /// Takes a number in decimal or, after `0x`, in hexadecimal.
    pub(super) fn number<T: TryFrom<u64>>(&mut self) -> Option<T> {
        let (digits, radix) = match self.rest.strip_prefix("0x") {
            Some(digits) => (digits, 16),
            None => (self.rest, 10),
        };
        let end = digits.find(|letter: char| !letter.is_digit(radix)).unwrap_or(digits.len());
        let (digits, rest) = digits.split_at(end);
        let value = u64::from_str_radix(digits, radix).ok()?;
        self.rest = rest;
        T::try_from(value).ok()
    }

    /// Takes an IPv4 address.
    pub(super) fn address(&mut self) -> Option<[u8; 4]> {
        let mut address = [0; 4];
        for (at, octet) in address.iter_mut().enumerate() {
            if at > 0 {
                self.expect(".")?;
            }
            *octet = self.number()?;
        }
        Some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::lang::unquote_bytes;
    use proptest::prelude::*;

    #[test]
    fn words_of_a_line() {
        let split = |line| words(line).collect::<Vec<_>>();
        assert_eq!(split("1.5 \t10.0.0.1 "), ["1.5", "10.0.0.1"]);
        assert_eq!(split(r#"  a "b c\" d" e"f g"#), ["a", r#""b c\" d""#, r#"e"f g"#]);
        assert_eq!(split(" "), [""; 0]);
    }

    #[test]
    fn seconds() {
        assert_eq!(parse_seconds("996033261.451094"), Some(996_033_261_451_094_000));
        assert_eq!(parse_seconds("1.0000000019"), Some(1_000_000_001));
        assert_eq!(parse_seconds("5"), Some(5_000_000_000));
        assert_eq!(parse_seconds(".5"), Some(500_000_000));
        for bad in ["", ".", "-1", "1.x", "1e3", "99999999999999"] {
            assert_eq!(parse_seconds(bad), None, "{bad}");
        }
    }

    #[test]
    fn dates() {
        for (seconds, text) in [
            (0, "Thu Jan  1 00:00:00 1970"),
            (996_022_410, "Wed Jul 25 00:53:30 2001"),
            (951_782_400, "Tue Feb 29 00:00:00 2000"),
            (4_107_542_399, "Sun Feb 28 23:59:59 2100"),
            (4_107_542_400, "Mon Mar  1 00:00:00 2100"),
            (1_735_689_599, "Tue Dec 31 23:59:59 2024"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }

    #[test]
    fn a_cursor() {
        let mut cursor = Cursor::new("ts0x10:7.1.2.3+x");
        assert!(!cursor.eat("tt") && cursor.eat("ts"));
        assert_eq!(cursor.number(), Some(16u8));
        assert_eq!(cursor.expect(":"), Some(()));
        assert_eq!(cursor.until(&['+']), "7.1.2.3");
        assert_eq!(cursor.address(), Some([7, 1, 2, 3]));
        assert!(!cursor.eat_before_digit("+") && cursor.eat("+x") && cursor.at_end());
        assert_eq!(Cursor::new("256").number::<u8>(), None);
        assert_eq!(Cursor::new("1.2.3").address(), None);
    }

    proptest! {
        #[test]
        fn quoted_bytes_are_one_word_and_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut text = String::new();
            push_quoted(&mut text, &bytes);
            prop_assert!(text.is_ascii());
            let line = format!("{text} 1");
            prop_assert_eq!(words(&line).collect::<Vec<_>>(), [text.as_str(), "1"]);
            prop_assert_eq!(unquote_bytes(&text), bytes);
        }

        #[test]
        fn any_line_has_words(line in any::<String>()) {
            prop_assert!(words(&line).all(|word| !word.is_empty()));
        }
    }
}
