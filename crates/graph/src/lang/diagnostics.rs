//! What the compiler has to say: locations, diagnostics and their rendering.
//!
//! The first line of every rendered diagnostic is Click's own form, `file:line: message`, so that editors and scripts
//! which read Click's errors keep working. The source line with a caret and a `help:` line follow it.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use crate::messages::{is_printable, printable_lines};

/// How many diagnostics are kept; a file of garbage must not fill the memory with complaints.
const MAX_KEPT: usize = 500;

/// A place in a source file, as the user knows it: `# 100 "file"` line directives are taken into account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Name of the file.
    pub file: Arc<str>,
    /// Line number, counted from 1.
    pub line: u32,
    /// Column of the first byte, in bytes, counted from 1.
    pub column: u32,
    /// How many bytes of the line are meant; 0 when only the position is.
    pub length: u32,
}

impl fmt::Display for Location {
    /// Click's landmark, `file:line`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The configuration cannot run.
    Error,
    /// The configuration runs, but probably not as meant.
    Warning,
    /// Additional information about the diagnostic before it.
    Note,
}

/// One thing that is wrong with a configuration, or a note about the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where; absent when no place in a file is to blame.
    pub location: Option<Location>,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, in Click's words where Click has words for it.
    pub message: String,
    /// What was expected.
    pub help: Option<String>,
    /// What was being done, for example `While configuring 'x :: Counter'`.
    pub context: Option<String>,
    /// The source line that `location` points into.
    pub excerpt: Option<String>,
}

impl Diagnostic {
    /// An error at `location`.
    pub fn error(location: Option<Location>, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, location, message.into())
    }

    /// A warning at `location`.
    pub fn warning(location: Option<Location>, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, location, message.into())
    }

    /// A note about the diagnostic pushed before it.
    pub fn note(location: Option<Location>, message: impl Into<String>) -> Self {
        Self::new(Severity::Note, location, message.into())
    }

    fn new(severity: Severity, location: Option<Location>, message: String) -> Self {
        Diagnostic { location, severity, message, help: None, context: None, excerpt: None }
    }

    /// Adds what was expected.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds what was being done, for example `While configuring 'x :: Counter'`.
    #[must_use]
    pub fn with_context(mut self, context: impl Into<String>) -> Self {
        self.context = Some(context.into());
        self
    }
}

/// Diagnostics in the order in which they are to be read.
#[derive(Debug, Clone, Default)]
pub struct Diagnostics {
    entries: Vec<Diagnostic>,
    not_kept: usize,
    errors: usize,
}

impl Diagnostics {
    /// An empty collection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a diagnostic. After some hundreds only their number is kept.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        if diagnostic.severity == Severity::Error {
            self.errors += 1;
        }
        if self.entries.len() < MAX_KEPT {
            self.entries.push(diagnostic);
        } else {
            self.not_kept += 1;
        }
    }

    /// Adds everything from `other`.
    pub fn extend(&mut self, other: Diagnostics) {
        for diagnostic in other.entries {
            self.push(diagnostic);
        }
        self.not_kept += other.not_kept;
    }

    /// Whether the configuration cannot run.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// The number of errors; warnings and notes do not count.
    pub fn error_count(&self) -> usize {
        self.errors
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The diagnostics, each note behind what it belongs to.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.entries.iter()
    }

    /// The diagnostics as text for a terminal: `file:line: message`, the source line with the offending text marked,
    /// and `help:`. `color` adds ANSI colours.
    pub fn render(&self, color: bool) -> String {
        let style = Style::new(color);
        let mut out = String::new();
        let mut last_context: Option<(&str, Option<&Location>)> = None;
        for diagnostic in &self.entries {
            let context = diagnostic.context.as_deref().map(|c| (c, diagnostic.location.as_ref()));
            let repeated = context.is_some() && context == last_context;
            last_context = context;
            render_one(&mut out, diagnostic, repeated, &style);
        }
        if self.not_kept > 0 {
            let _ = writeln!(out, "({} more messages are not shown)", self.not_kept);
        }
        out
    }
}

impl<'a> IntoIterator for &'a Diagnostics {
    type Item = &'a Diagnostic;
    type IntoIter = std::slice::Iter<'a, Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.iter()
    }
}

struct Style {
    bold: &'static str,
    mark: &'static str,
    help: &'static str,
    end: &'static str,
}

impl Style {
    fn new(color: bool) -> Self {
        if color {
            Style { bold: "\x1b[1m", mark: "\x1b[1;31m", help: "\x1b[1;36m", end: "\x1b[0m" }
        } else {
            Style { bold: "", mark: "", help: "", end: "" }
        }
    }
}

fn render_one(out: &mut String, diagnostic: &Diagnostic, context_shown: bool, style: &Style) {
    let landmark = match &diagnostic.location {
        Some(location) => format!("{}{location}:{} ", style.bold, style.end),
        None => String::new(),
    };
    let severity = if diagnostic.severity == Severity::Warning { "warning: " } else { "" };
    match &diagnostic.context {
        // Click prints the context with the landmark and indents what belongs to it.
        Some(context) => {
            if !context_shown {
                let _ = writeln!(out, "{landmark}{}:", printable_lines(context.trim_end_matches(':')));
            }
            for line in diagnostic.message.lines() {
                let _ = writeln!(out, "  {severity}{}", printable_lines(line));
            }
        }
        None => {
            for line in diagnostic.message.lines() {
                let _ = writeln!(out, "{landmark}{severity}{}", printable_lines(line));
            }
        }
    }
    if let (Some(location), Some(excerpt)) = (&diagnostic.location, &diagnostic.excerpt) {
        render_excerpt(out, location, excerpt, style);
    }
    if let Some(help) = &diagnostic.help {
        for (number, line) in help.lines().enumerate() {
            let label = if number == 0 { "help: " } else { "      " };
            let _ = writeln!(out, "    {}{label}{}{}", style.help, style.end, printable_lines(line));
        }
    }
}

fn render_excerpt(out: &mut String, location: &Location, excerpt: &str, style: &Style) {
    /// Bytes of a line that are shown before the place, and in all.
    const BEFORE: usize = 60;
    const IN_ALL: usize = 160;
    let at = (location.column.saturating_sub(1) as usize).min(excerpt.len());
    let end = at.saturating_add(location.length.max(1) as usize).min(excerpt.len());
    let is_long = excerpt.len() > IN_ALL;
    let boundary = |mut at: usize| {
        while !excerpt.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let first = boundary(if is_long { at.saturating_sub(BEFORE) } else { 0 });
    let last = boundary(if is_long { (first + IN_ALL).min(excerpt.len()) } else { excerpt.len() });
    let [before, behind] = [first > 0, last < excerpt.len()].map(|is_cut| if is_cut { "..." } else { "" });
    let (at, end) = (at - first, end.min(last).saturating_sub(first));
    let excerpt = &excerpt[first..last];
    let shown = |c: char| if is_printable(c) || c == '\t' { c } else { '?' };
    let _ = write!(out, "    {before}");
    out.extend(excerpt.trim_end().chars().map(shown));
    let _ = write!(out, "{behind}\n    {}", " ".repeat(before.len()));
    let mut carets = 0;
    for (offset, c) in excerpt.char_indices() {
        if offset < at {
            out.push(if c == '\t' { '\t' } else { ' ' });
        } else if offset < end {
            carets += 1;
        }
    }
    let _ = writeln!(out, "{}{}{}", style.mark, "^".repeat(carets.max(1)), style.end);
}

/// `text` for use in a message: characters that are not printable are shown as escapes, long text is cut.
pub fn printable(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut out: String = text.chars().take(LONGEST).flat_map(|c| shown(c).collect::<Vec<_>>()).collect();
    if text.chars().nth(LONGEST).is_some() {
        out.push_str("...");
    }
    out
}

fn shown(c: char) -> Box<dyn Iterator<Item = char>> {
    if is_printable(c) { Box::new(std::iter::once(c)) } else { Box::new(c.escape_default()) }
}

/// The name among `known` that `name` was probably meant to be, if one is near enough.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer names are not typed by hand; comparing them costs time and helps nobody.
    const LONGEST: usize = 64;
    if name.is_empty() || name.len() > LONGEST {
        return None;
    }
    let allowed = name.chars().count() / 3;
    let mut best: Option<(usize, &'a str)> = None;
    for candidate in known {
        if candidate.len() > LONGEST || candidate == name || candidate.is_empty() {
            continue;
        }
        let distance = edit_distance(name, candidate);
        if distance > allowed || distance >= candidate.chars().count() {
            continue;
        }
        if best.is_none_or(|(d, c)| (distance, candidate) < (d, c)) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Edits (insert, delete, replace, swap neighbours) from one name to another; a difference in case alone costs nothing
/// up to a final tie-break.
fn edit_distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().flat_map(char::to_lowercase).collect();
    let b: Vec<char> = b.chars().flat_map(char::to_lowercase).collect();
    let width = b.len() + 1;
    let mut rows = vec![0usize; (a.len() + 1) * width];
    for (j, cell) in rows.iter_mut().take(width).enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        rows[i * width] = i;
        for j in 1..=b.len() {
            let replaced = rows[(i - 1) * width + j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[(i - 1) * width + j] + 1).min(rows[i * width + j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[(i - 2) * width + j - 2] + 1);
            }
            rows[i * width + j] = least;
        }
    }
    rows[a.len() * width + b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(line: u32, column: u32, length: u32) -> Option<Location> {
        Some(Location { file: "a.click".into(), line, column, length })
    }

    #[test]
    fn first_line_is_clicks_then_excerpt_then_help() {
        let mut all = Diagnostics::new();
        let mut one =
            Diagnostic::error(location(3, 6, 2), "undeclared element 'bb'").with_help("declare 'bb' first");
        one.excerpt = Some("a -> bb;".into());
        all.push(one);
        assert_eq!(
            all.render(false),
            "a.click:3: undeclared element 'bb'\n    a -> bb;\n         ^^\n    help: declare 'bb' first\n"
        );
        assert!(all.render(true).contains("\x1b["));
    }

    #[test]
    fn context_is_printed_once() {
        let mut all = Diagnostics::new();
        for text in ["first", "second"] {
            all.push(
                Diagnostic::error(location(1, 1, 0), text).with_context("While configuring 'm :: Message'"),
            );
        }
        assert_eq!(all.render(false), "a.click:1: While configuring 'm :: Message':\n  first\n  second\n");
    }

    #[test]
    fn tabs_and_wide_text_keep_the_caret_in_place() {
        let mut all = Diagnostics::new();
        let mut one = Diagnostic::warning(location(1, 5, 1), "odd");
        one.excerpt = Some("\té x".into());
        all.push(one);
        assert_eq!(all.render(false), "a.click:1: warning: odd\n    \té x\n    \t  ^\n");
    }

    #[test]
    fn spelling() {
        let known = ["Counter", "CounterMP", "Queue", "Idle"];
        assert_eq!(nearest("Conter", known), Some("Counter"));
        assert_eq!(nearest("counter", known), Some("Counter"));
        assert_eq!(nearest("Qeueu", known), None);
        assert_eq!(nearest("Quueue", known), Some("Queue"));
        assert_eq!(nearest("Strip", known), None);
        assert_eq!(nearest("q3", ["q2"]), None);
    }

    #[test]
    fn long_lines_are_cut_around_the_place_and_do_nothing_to_a_terminal() {
        let line = format!("{}WRONG\u{202e}{}", "é".repeat(200), "x".repeat(1_000));
        let location = Location { file: "a".into(), line: 1, column: 401, length: 5 };
        let mut diagnostic = Diagnostic::error(Some(location), "\u{1b}[2J").with_help("\u{9b}");
        diagnostic.excerpt = Some(line);
        let mut diagnostics = Diagnostics::new();
        diagnostics.push(diagnostic);
        let text = diagnostics.render(false);
        assert!(
            !text.chars().any(|char| char.is_control() && char != '\n') && !text.contains('\u{202e}'),
            "{text:?}"
        );
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() < 180), "{text}");
        let at = lines[2].find('^').unwrap();
        let shown: String = lines[1].chars().skip(at).take(lines[2].matches('^').count()).collect();
        assert_eq!(shown, "WRONG");
    }

    #[test]
    fn errors_past_the_limit_are_counted() {
        let mut all = Diagnostics::new();
        for _ in 0..MAX_KEPT + 7 {
            all.push(Diagnostic::error(None, "x"));
        }
        assert_eq!(all.error_count(), MAX_KEPT + 7);
        assert!(all.render(false).ends_with("(7 more messages are not shown)\n"));
    }
}
