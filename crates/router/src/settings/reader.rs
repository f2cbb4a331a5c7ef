//! Reads a TOML file section by section, by name, type and range, and collects every mistake with its line.
//!
//! (Deserializing with serde would stop at the first mistake, and say less about it.)

use std::cell::RefCell;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use graph::lang::{Diagnostic, Diagnostics, Location, nearest};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A file and the mistakes found in it so far.
pub(super) struct File<'a> {
    name: Arc<str>,
    text: &'a str,
    mistakes: RefCell<Vec<Diagnostic>>,
}

impl<'a> File<'a> {
    pub(super) fn new(name: &str, text: &'a str) -> Self {
        Self { name: name.into(), text, mistakes: RefCell::default() }
    }

    /// The file's tables; `None` when it is not TOML, which is noted.
    pub(super) fn parse(&self) -> Option<DeTable<'a>> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        for error in &errors {
            // One line: the places below point out what the message describes.
            let message = error.message().lines().collect::<Vec<_>>().join("; ");
            self.mistake(error.span().unwrap_or(0..0), message, "");
        }
        errors.is_empty().then(|| table.into_inner())
    }

    /// Notes a mistake at some bytes of the text, with what would be right unless that is empty.
    pub(super) fn mistake(&self, place: Range<usize>, message: impl Into<String>, right: &str) {
        let start = place.start.min(self.text.len());
        let before = self.text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text.get(line_start..).unwrap_or_default().lines().next().unwrap_or_default();
        let column = start - line_start;
        let location = Location {
            file: self.name.clone(),
            line: before.matches('\n').count() as u32 + 1,
            column: column as u32 + 1,
            length: place.len().min(line.len().saturating_sub(column)) as u32,
        };
        let mut mistake = Diagnostic::error(Some(location), message);
        mistake.excerpt = Some(line.to_owned());
        self.mistakes.borrow_mut().push(if right.is_empty() { mistake } else { mistake.with_help(right) });
    }

    /// All mistakes, in the order of the text; `None` if there are none.
    pub(super) fn into_mistakes(self) -> Option<Diagnostics> {
        let mut found = self.mistakes.into_inner();
        found.sort_by_key(|mistake| mistake.location.as_ref().map(|place| (place.line, place.column)));
        let mut mistakes = Diagnostics::new();
        found.into_iter().for_each(|mistake| mistakes.push(mistake));
        mistakes.has_errors().then_some(mistakes)
    }
}

/// A table of the file, or one that is not there and so has no options.
pub(super) struct Section<'f, 'a> {
    file: &'f File<'a>,
    title: &'static str,
    place: Range<usize>,
    table: Option<&'f DeTable<'a>>,
    known: Vec<&'static str>,
}

impl<'f, 'a> Section<'f, 'a> {
    /// The whole file.
    pub(super) fn root(file: &'f File<'a>, table: &'f DeTable<'a>) -> Self {
        Self { file, title: "a settings file", place: 0..0, table: Some(table), known: Vec::new() }
    }

    /// Whether the option is there, right or wrong.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(key))
    }

    /// Notes a mistake about an option, at its value, or at the section if it is not there.
    pub(super) fn mistake(&self, key: &str, message: impl Into<String>, right: &str) {
        let place = self.table.and_then(|table| table.get(key)).map_or(self.place.clone(), Spanned::span);
        self.file.mistake(place, message, right);
    }

    fn value(&mut self, key: &'static str) -> Option<&'f Spanned<DeValue<'a>>> {
        self.known.push(key);
        self.table?.get(key)
    }

    /// An option that `read` understands; what it has to be is `expected`.
    fn read<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        read: impl FnOnce(&DeValue<'a>) -> Option<T>,
    ) -> Option<T> {
        let value = self.value(key)?;
        let result = read(value.get_ref());
        if result.is_none() {
            let written = self.file.text.get(value.span()).unwrap_or_default();
            let short: String = written.chars().take(40).collect();
            self.mistake(key, format!("{key} = {short} cannot be"), &format!("{expected} is expected"));
        }
        result
    }

    /// A whole number within a range.
    pub(super) fn number(&mut self, key: &'static str, range: RangeInclusive<usize>) -> Option<usize> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        self.read(key, &expected, |value| {
            let integer = value.as_integer()?;
            let number = usize::from_str_radix(integer.as_str(), integer.radix()).ok()?;
            range.contains(&number).then_some(number)
        })
    }

    /// A number, whole or not, within a range.
    pub(super) fn decimal(&mut self, key: &'static str, range: RangeInclusive<f64>) -> Option<f64> {
        let expected = format!("a number from {} to {}", range.start(), range.end());
        self.read(key, &expected, |value| {
            let whole = value.as_integer().filter(|integer| integer.radix() == 10);
            let text = whole.map(|integer| integer.as_str()).or(value.as_float().map(|float| float.as_str()));
            text?.parse().ok().filter(|number| range.contains(number))
        })
    }

    /// `true` or `false`.
    pub(super) fn switch(&mut self, key: &'static str) -> Option<bool> {
        self.read(key, "true or false, without quotes,", DeValue::as_bool)
    }

    /// A text, not empty.
    pub(super) fn text(&mut self, key: &'static str) -> Option<String> {
        let text = |value: &DeValue<'a>| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        self.read(key, "a text in quotes, not empty,", text)
    }

    /// Several texts.
    pub(super) fn texts(&mut self, key: &'static str) -> Option<Vec<String>> {
        self.read(key, "a list of texts, as in [\"first\", \"second\"],", |value| {
            value.as_array()?.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect()
        })
    }

    /// A text that stands for something.
    pub(super) fn parsed<T: std::str::FromStr>(&mut self, key: &'static str, expected: &str) -> Option<T> {
        self.read(key, expected, |value| value.as_str()?.parse().ok())
    }

    /// One of some words.
    pub(super) fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&'static str, T)]) -> Option<T> {
        let words: Vec<String> = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        let expected = format!("one of {}", words.join(", "));
        self.read(key, &expected, |value| {
            let text = value.as_str()?;
            choices.iter().find(|(word, _)| *word == text).map(|(_, choice)| *choice)
        })
    }

    /// Reads a list of words, each one of some words.
    pub(super) fn choices<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&'static str, T)],
    ) -> Option<Vec<T>> {
        let words: Vec<String> = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        let expected = format!("a list of {}", words.join(", "));
        let choice = |text: &str| choices.iter().find(|(word, _)| *word == text).map(|(_, choice)| *choice);
        self.read(key, &expected, |value| {
            value.as_array()?.iter().map(|item| choice(item.get_ref().as_str()?)).collect()
        })
    }

    /// A section within this one, `title` as it is written: `[workers]`.
    pub(super) fn section(&mut self, key: &'static str, title: &'static str) -> Section<'f, 'a> {
        let file = self.file;
        let mut section = Section { file, title, place: self.place.clone(), table: None, known: Vec::new() };
        if let Some(value) = self.value(key) {
            section.place = value.span();
            section.table = value.get_ref().as_table();
            if section.table.is_none() {
                self.mistake(
                    key,
                    format!("'{key}' is no section"),
                    &format!("write {title}, and below it its options"),
                );
            }
        }
        section
    }

    /// The sections of a list, each `title` in the file: `[[port]]`.
    pub(super) fn sections(&mut self, key: &'static str, title: &'static str) -> Vec<Section<'f, 'a>> {
        let file = self.file;
        let Some(value) = self.value(key) else { return Vec::new() };
        let tables = value.get_ref().as_array().map(|array| array.iter().collect::<Vec<_>>());
        let sections = tables.unwrap_or_default().into_iter().filter_map(|item| {
            let table = Some(item.get_ref().as_table()?);
            Some(Section { file, title, place: item.span(), table, known: Vec::new() })
        });
        let sections: Vec<_> = sections.collect();
        if value.get_ref().as_array().map(|array| array.len()) != Some(sections.len()) {
            self.mistake(
                key,
                format!("'{key}' is no list of sections"),
                &format!("write {title} before each of them"),
            );
        }
        sections
    }

    /// Refuses what was not asked for.
    pub(super) fn finish(self) {
        for (key, _) in self.table.into_iter().flat_map(|table| table.iter()) {
            let name: &str = key.get_ref();
            if self.known.contains(&name) {
                continue;
            }
            let right = match nearest(name, self.known.iter().copied()) {
                Some(near) => format!("did you mean '{near}'?"),
                None => format!("{} takes {}", self.title, self.known.join(", ")),
            };
            self.file.mistake(key.span(), format!("{} has no '{name}'", self.title), &right);
        }
    }
}
