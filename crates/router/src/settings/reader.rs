//! Reads a TOML file section by section, by name, type and range, and collects every mistake with its line.
//!
//! (Deserializing with serde would stop at the first mistake, and say less about it.)

use std::cell::{OnceCell, RefCell};
use std::ops::Range;
use std::sync::Arc;

use graph::lang::{Diagnostic, Diagnostics, Location, nearest};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::options::{Section as Options, Value};
use crate::features::ItemMistake;

/// Mistakes that are noted; nobody reads more.
const MOST_MISTAKES: usize = 1_000;

/// A file and the mistakes found in it so far.
pub(crate) struct File<'a> {
    name: Arc<str>,
    text: &'a str,
    /// Where lines begin, once a mistake asks.
    lines: OnceCell<Vec<usize>>,
    mistakes: RefCell<Vec<Diagnostic>>,
}

impl<'a> File<'a> {
    pub(super) fn new(name: &str, text: &'a str) -> Self {
        Self { name: name.into(), text, lines: OnceCell::new(), mistakes: RefCell::default() }
    }

    /// The file's tables; `None` when it is not TOML, which is noted.
    pub(super) fn parse(&self) -> Option<DeTable<'a>> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        for error in &errors {
            let place = error.span().unwrap_or(0..0);
            if let Some(key) = self.key_without_value(&place) {
                self.mistake(
                    place,
                    format!("'{key}' has no value"),
                    "expected one, as in count = 2, or name = \"eth1\"",
                );
                continue;
            }
            // One line: the places below point out what the message describes.
            let message = error.message().lines().collect::<Vec<_>>().join("; ");
            self.mistake(place, message, "");
        }
        errors.is_empty().then(|| table.into_inner())
    }

    /// Returns the key of a line that ends, but for a comment, behind its `=`.
    fn key_without_value(&self, place: &Range<usize>) -> Option<&'a str> {
        let (before, behind) = (self.text.get(..place.start)?, self.text.get(place.start..)?);
        let (key, value) = before.lines().next_back()?.split_once('=')?;
        let rest = behind.lines().next().unwrap_or_default().trim_start();
        let is_empty = value.trim().is_empty() && (rest.is_empty() || rest.starts_with('#'));
        is_empty.then(|| key.trim())
    }

    /// Notes a mistake at some bytes of the text, with what was expected unless that is empty.
    pub(super) fn mistake(&self, place: Range<usize>, message: impl Into<String>, right: &str) {
        if self.mistakes.borrow().len() >= MOST_MISTAKES {
            return;
        }
        let start = place.start.min(self.text.len());
        let lines = self.lines.get_or_init(|| {
            let behind = self.text.match_indices('\n').map(|(newline, _)| newline + 1);
            std::iter::once(0).chain(behind).collect()
        });
        let number = lines.partition_point(|&begin| begin <= start);
        let line_start = lines[number - 1];
        let line = self.text.get(line_start..).unwrap_or_default().lines().next().unwrap_or_default();
        let column = start - line_start;
        let location = Location {
            file: self.name.clone(),
            line: number as u32,
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
pub(crate) struct Section<'f, 'a> {
    file: &'f File<'a>,
    title: String,
    place: Range<usize>,
    table: Option<&'f DeTable<'a>>,
    known: Vec<&'static str>,
}

impl<'f, 'a> Section<'f, 'a> {
    /// The whole file.
    pub(super) fn root(file: &'f File<'a>, table: &'f DeTable<'a>) -> Self {
        Self { file, title: "a settings file".to_owned(), place: 0..0, table: Some(table), known: Vec::new() }
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

    /// Notes a mistake about an item of a list in a section within this one, at the item if it is there.
    pub(super) fn mistake_in(&self, section: &str, mistake: &ItemMistake) {
        let list = self.table.and_then(|table| table.get(section)?.get_ref().as_table()?.get(mistake.key));
        let items = list.and_then(|list| list.get_ref().as_array());
        let item = items.and_then(|items| items.get(mistake.item)).or(list);
        let (message, right) = mistake.text.split_once("; ").unwrap_or((&mistake.text, ""));
        self.file.mistake(item.map_or(self.place.clone(), Spanned::span), message, right);
    }

    fn take(&mut self, key: &'static str) -> Option<&'f Spanned<DeValue<'a>>> {
        self.known.push(key);
        self.table?.get(key)
    }

    /// An option, whose number is within the limits.
    pub(crate) fn value<T: Value>(&mut self, key: &'static str, limits: Option<(f64, f64)>) -> Option<T> {
        let value = self.take(key)?;
        let result = T::read(value.get_ref(), limits);
        if result.is_none() {
            let written = self.file.text.get(value.span()).unwrap_or_default();
            let short: String = written.chars().take(40).collect();
            let right = format!("expected {}", T::expected(limits));
            self.mistake(key, format!("{key} = {short}: invalid value"), &right);
        }
        result
    }

    /// The options of a section within this one.
    pub(crate) fn options<T: Options>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Section<'f, 'a>) -> T,
    ) -> T {
        let mut section = self.section(name);
        let options = read(&mut section);
        if let Some((key, message, right)) = options.problem() {
            section.mistake(key, message, &right);
        }
        section.finish();
        options
    }

    fn section(&mut self, key: &'static str) -> Section<'f, 'a> {
        let (file, title) = (self.file, format!("[{key}]"));
        let mut section = Section { file, title, place: self.place.clone(), table: None, known: Vec::new() };
        if let Some(value) = self.take(key) {
            section.place = value.span();
            section.table = value.get_ref().as_table();
            if section.table.is_none() {
                self.mistake(
                    key,
                    format!("'{key}' is not a section"),
                    &format!("expected {}, and below it its options", section.title),
                );
            }
        }
        section
    }

    /// The sections of a list: `[[port]]`.
    pub(super) fn sections(&mut self, key: &'static str) -> Vec<Section<'f, 'a>> {
        let (file, title) = (self.file, format!("[[{key}]]"));
        let Some(value) = self.take(key) else { return Vec::new() };
        let tables = value.get_ref().as_array().map(|array| array.iter().collect::<Vec<_>>());
        let sections = tables.unwrap_or_default().into_iter().filter_map(|item| {
            let table = Some(item.get_ref().as_table()?);
            Some(Section { file, title: title.clone(), place: item.span(), table, known: Vec::new() })
        });
        let sections: Vec<_> = sections.collect();
        if value.get_ref().as_array().map(|array| array.len()) != Some(sections.len()) {
            self.mistake(
                key,
                format!("'{key}' is not a list of sections"),
                &format!("expected {title} before each of them"),
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
                None => format!("expected {}", self.known.join(", ")),
            };
            self.file.mistake(key.span(), format!("{} has no '{name}'", self.title), &right);
        }
    }
}
