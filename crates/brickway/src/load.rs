//! Reading configurations: a file's text in, a flat configuration out, mistakes on standard error.

use std::io::{IsTerminal, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use graph::graph::{Registry, check_arguments};
use graph::lang::{self, Diagnostic, Diagnostics, FlatConfig, Options, Severity, Source};

/// Reads a configuration from `path`; `-` is standard input.
pub(crate) fn read(path: &Path) -> Result<Source> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(Source { name: "<stdin>".into(), text });
    }
    let bytes =
        std::fs::read(path).with_context(|| format!("cannot read the configuration '{}'", path.display()))?;
    let Ok(text) = String::from_utf8(bytes) else {
        bail!("'{}' is not a Click configuration: it is not UTF-8 text", path.display());
    };
    Ok(Source { name: path.display().to_string(), text })
}

/// Splits `NAME=VALUE`; for command lines.
pub(crate) fn parameter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            Ok((name.trim_start_matches('$').to_owned(), value.to_owned()))
        }
        _ => Err(format!("'{text}' is not of the form NAME=VALUE")),
    }
}

/// Compiles a configuration and checks the arguments of its elements. Mistakes and warnings go to standard error,
/// in the order of the text; `None` when there were mistakes.
pub(crate) fn compile(source: &Source, options: &Options, registry: &Registry) -> Option<FlatConfig> {
    let (flat, diagnostics) = lang::compile(source, options, registry);
    let mut found: Vec<Diagnostic> = diagnostics.iter().cloned().collect();
    if let Some(flat) = &flat {
        found
            .extend(check_arguments(flat, registry).into_iter().map(|problem| with_excerpt(problem, source)));
    }
    found.sort_by_key(|diagnostic| diagnostic.location.as_ref().map_or(0, |location| location.line));
    let wrong = found.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    report(found);
    flat.filter(|_| !wrong)
}

/// Adds the line of the configuration that a problem is about.
pub(crate) fn with_excerpt(mut problem: Diagnostic, source: &Source) -> Diagnostic {
    if let Some(location) = problem.location.as_ref().filter(|location| *location.file == *source.name) {
        let line = source.text.lines().nth((location.line as usize).saturating_sub(1));
        problem.excerpt = line.map(str::to_owned);
    }
    problem
}

/// Prints what was found.
pub(crate) fn report(found: Vec<Diagnostic>) {
    let mut diagnostics = Diagnostics::default();
    for diagnostic in found {
        diagnostics.push(diagnostic);
    }
    eprint!("{}", diagnostics.render(std::io::stderr().is_terminal()));
}
