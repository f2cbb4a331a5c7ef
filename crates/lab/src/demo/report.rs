//! What a demo says: its steps as they go, and whether all went well.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use serde::Serialize;

use super::hosts::Stop;

/// Prints the steps as they go and remembers them.
pub(super) struct Report {
    pub(super) failed: bool,
    terminal: bool,
    /// Nothing is printed: the steps go into an object at the end.
    quiet: bool,
    pub(super) steps: Vec<Step>,
    stop: Stop,
}

/// A step that is over.
#[derive(Debug, Serialize)]
pub(super) struct Step {
    pub(super) step: String,
    pub(super) ok: bool,
    pub(super) text: String,
}

impl Report {
    pub(super) fn new(quiet: bool, stop: &Stop) -> Self {
        let terminal = !quiet && std::io::stdout().is_terminal();
        Self { failed: false, terminal, quiet, steps: Vec::new(), stop: stop.clone() }
    }

    /// A step is over: well, or not.
    pub(super) fn step(&mut self, name: &str, outcome: Result<String, String>) {
        let ok = outcome.is_ok();
        let (Ok(text) | Err(text)) = outcome;
        let mark = match (ok, self.terminal) {
            (true, false) => "ok    ",
            (true, true) => "\x1b[32mok\x1b[0m    ",
            (false, false) => "FAILED",
            (false, true) => "\x1b[31mFAILED\x1b[0m",
        };
        self.clear_live();
        self.line(format_args!("  {name:<12} {mark}  {text}"));
        self.failed |= !ok;
        self.steps.push(Step { step: name.to_owned(), ok, text });
    }

    /// A line of text.
    pub(super) fn line(&self, text: impl Display) {
        if !self.quiet {
            self.write(format_args!("{text}\n"));
        }
    }

    /// What goes on at this moment.
    pub(super) fn live(&self, line: &str) {
        if self.terminal {
            self.write(format_args!("\r\x1b[K  {line}"));
        }
    }

    pub(super) fn clear_live(&self) {
        if self.terminal {
            self.write("\r\x1b[K");
        }
    }

    /// When nobody reads any more the demo ends, as by Ctrl-C: what it made must go.
    fn write(&self, text: impl Display) {
        let mut stdout = std::io::stdout().lock();
        if write!(stdout, "{text}").and_then(|()| stdout.flush()).is_err() {
            self.stop.set();
        }
    }
}
