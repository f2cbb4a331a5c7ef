//! Collects what the stages of the compiler complain about, and puts it in the order of the source text.

use super::diagnostics::{Diagnostic, Diagnostics, Severity};
use super::lexer::{SourceFile, Span};

/// The complaints of one compilation. Locations are worked out at the end, when all line directives are known.
#[derive(Debug, Default)]
pub(super) struct Report {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    severity: Severity,
    span: Option<Span>,
    message: String,
    help: Option<String>,
    /// Further places, each with its own message.
    notes: Vec<(Span, String)>,
}

/// More than anybody reads; the rest is dropped unseen.
const MAX_ENTRIES: usize = 10_000;

/// A complaint that was made and may still be improved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entered(usize);

impl Report {
    pub(super) fn error(&mut self, span: Span, message: impl Into<String>) -> Entered {
        self.enter(Severity::Error, Some(span), message.into())
    }

    pub(super) fn warning(&mut self, span: Span, message: impl Into<String>) -> Entered {
        self.enter(Severity::Warning, Some(span), message.into())
    }

    /// An error that no place in the text is to blame for.
    pub(super) fn global_error(&mut self, message: impl Into<String>) -> Entered {
        self.enter(Severity::Error, None, message.into())
    }

    fn enter(&mut self, severity: Severity, span: Option<Span>, message: String) -> Entered {
        if self.entries.len() < MAX_ENTRIES {
            self.entries.push(Entry { severity, span, message, help: None, notes: Vec::new() });
        }
        Entered(self.entries.len() - 1)
    }

    /// Whether anything is wrong so far.
    pub(super) fn has_errors(&self) -> bool {
        self.entries.iter().any(|entry| entry.severity == Severity::Error)
    }

    /// Replaces what was expected.
    pub(super) fn help(&mut self, entered: Entered, help: impl Into<String>) {
        self.entries[entered.0].help = Some(help.into());
    }

    /// Adds another place that has to do with it.
    pub(super) fn note(&mut self, entered: Entered, span: Span, message: impl Into<String>) {
        self.entries[entered.0].notes.push((span, message.into()));
    }

    /// The diagnostics in source order, notes behind what they belong to.
    pub(super) fn finish(mut self, files: &[SourceFile]) -> Diagnostics {
        self.entries.sort_by_key(|e| e.span.map_or((u16::MAX, u32::MAX), |s| (s.file, s.start)));
        let mut all = Diagnostics::new();
        let place = |span: Span| {
            let file = files.get(usize::from(span.file))?;
            Some((file.location(span), file.excerpt(span)))
        };
        for entry in self.entries {
            let (location, excerpt) = entry.span.and_then(place).unzip();
            all.push(Diagnostic {
                location,
                severity: entry.severity,
                message: entry.message,
                help: entry.help,
                context: None,
                excerpt: excerpt.flatten(),
            });
            for (span, message) in entry.notes {
                let (location, excerpt) = place(span).unzip();
                let mut note = Diagnostic::note(location, message);
                note.excerpt = excerpt.flatten();
                all.push(note);
            }
        }
        all
    }
}
