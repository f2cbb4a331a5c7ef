//! The Click language: from the text of a configuration to a flat graph of elements, and everything that can be wrong
//! with it said in one go.
//!
//! The way of a configuration:
//!
//! 1. `lexer` and `parser` make a syntax tree; `# 100 "file"` line directives are kept for messages.
//! 2. `elaborate` gives names their meaning, in the order of the text: elements, classes, port lists, groups. Every
//!    compound element becomes a template.
//! 3. `expand` puts templates in place of compound elements, chooses between overloads, replaces variables
//!    (`variables`) and follows connections through compound elements.
//! 4. `ports` counts ports by the codes of the classes (`port_codes`), resolves push and pull, and checks that every
//!    port is used as it must be.
//! 5. `flat` is the result, which can print itself as a configuration or for Graphviz.
//!
//! Behaviour and messages are Click's (click(5) and what its parser does); what Click leaves out, such as the source
//! line and what was expected, is added behind the message. No text makes any of this panic, and limits keep the
//! memory and time that a short text can take in bounds.

mod arguments;
mod ast;
mod diagnostics;
mod elaborate;
mod expand;
mod flat;
mod lexer;
mod parser;
mod port_codes;
mod ports;
mod report;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod testing;
mod variables;

pub use arguments::{
    first_name, name_argument, name_arguments, next_word, quote, split_arguments, split_words, unquote,
    unquote_bytes,
};
pub use ast::Requirement;
pub use diagnostics::{Diagnostic, Diagnostics, Location, Severity, nearest, printable};
pub use flat::{Connection, FlatConfig, FlatElement, PortKind};
pub use variables::{Reference, TooLong, expand};

use crate::element::Capability;
use report::Report;

/// A configuration as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The file's name as messages show it.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// What the compiler has to know about an element class that the program has. The codes are Click's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassSpec {
    /// The name of the class; for a class with several names, the one that flat configurations show.
    pub name: &'static str,
    /// Port counts, inputs before outputs: `1/1-2`, `-/-`, `1-/=` (as many outputs as inputs).
    pub ports: &'static str,
    /// Which ports push (`h`), pull (`l`) or are agnostic (`a`): `a/ah`, `h/l`. The last letter of a side is for all
    /// further ports.
    pub processing: &'static str,
    /// Between which ports packets pass: `x/x` everywhere, `x/y` nowhere, `#/#` between ports of the same number.
    pub flow: &'static str,
    /// What the class is or does beyond that.
    pub capabilities: &'static [Capability],
}

impl ClassSpec {
    /// Whether an input (or, with `output`, an output) is push or pull by itself; `None` when its neighbours decide.
    pub fn port_kind(&self, output: bool, port: usize) -> Option<PortKind> {
        port_codes::processing(self.processing, output, port)
    }
}

/// The element classes that a program has.
pub trait ClassTable {
    /// The class of that name.
    fn lookup(&self, name: &str) -> Option<ClassSpec>;

    /// All names, for suggestions when one is misspelt.
    fn names(&self) -> Vec<String>;
}

/// Finds the files that `require(library NAME)` asks for.
pub trait Library {
    /// The library called `name`, as file `from` asks for it. The name of the result tells files apart: each is read
    /// once, however often it is required.
    fn open(&self, name: &str, from: &str) -> Option<Source>;
}

/// No libraries at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoLibrary;

impl Library for NoLibrary {
    fn open(&self, _name: &str, _from: &str) -> Option<Source> {
        None
    }
}

/// What the command line says about a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Values of variables; they override a `define` in the file.
    pub parameters: Vec<(String, String)>,
    /// Whether nothing is said of ports where the text is wrong otherwise: nobody knows then which ports it meant to connect. So
    /// does Click; without it everything is said in one go.
    pub ports_last: bool,
}

/// Compiles a configuration that requires no libraries.
///
/// The configuration is returned even when there are errors, as far as it makes sense, so that its elements can be
/// configured and complain about their arguments too; `None` means that nothing is left to work with. It may run only
/// if the diagnostics hold no error. Elements of unknown classes are in it: look their class up again.
pub fn compile(
    source: &Source,
    options: &Options,
    classes: &dyn ClassTable,
) -> (Option<FlatConfig>, Diagnostics) {
    compile_with_library(source, options, classes, &NoLibrary)
}

/// [`compile`] for configurations that may use `require(library NAME)`.
pub fn compile_with_library(
    source: &Source,
    options: &Options,
    classes: &dyn ClassTable,
    library: &dyn Library,
) -> (Option<FlatConfig>, Diagnostics) {
    let mut report = Report::default();
    let parsed = parser::parse(source, library, &mut report);
    if parsed.gave_up {
        return (None, report.finish(&parsed.files));
    }
    let elaborated = elaborate::elaborate(&parsed.statements, classes, &mut report);
    let graph = expand::expand(&elaborated, options, &parsed.files, &mut report);
    let mut unsaid = Report::default();
    let of_ports = if options.ports_last && report.has_errors() { &mut unsaid } else { &mut report };
    let flat = graph.map(|graph| ports::check(graph, &elaborated, &parsed.files, of_ports));
    (flat, report.finish(&parsed.files))
}
