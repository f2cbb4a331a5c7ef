//! Reading configurations: a file's text in, a flat configuration out, mistakes on standard error.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use graph::context::Globals;
use graph::graph::{Registry, check_arguments};
use graph::lang::{self, Diagnostic, Diagnostics, FlatConfig, Library, Options, Severity, Source};

/// Reads a configuration from `path`; `-` is standard input.
pub fn read(path: &Path) -> Result<Source> {
    if path.as_os_str() == "-" {
        let text = graph::files::read_all(std::io::stdin()).context("cannot read standard input")?;
        return Ok(Source { name: "<stdin>".into(), text });
    }
    let text = graph::files::read_text(path)
        .with_context(|| format!("cannot read the configuration '{}'", path.display()))?;
    let name = path.display().to_string();
    if path.extension().is_some_and(|extension| extension == "lua") {
        bail!(
            "'{name}' is a script in Lua, not a configuration: 'brickway lua {name} eth1 eth2' runs it, and in a configuration an \
             element Lua(FILE {name})"
        );
    }
    if is_access_list(&text) {
        bail!(
            "'{name}' has the rules of an access list, not a configuration: 'brickway run eth1 eth2 --acl {name}' takes it, and \
             'brickway check SETTINGS.toml' checks one that settings name ([acl] file)"
        );
    }
    Ok(Source { name, text })
}

/// Whether the text begins, behind comments, with a rule as `10 deny udp any any`.
fn is_access_list(text: &str) -> bool {
    let lines = text.lines().map(str::trim);
    let mut first = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).take(1);
    first.any(|line| {
        let words = line.split_whitespace().skip_while(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
        words.take(1).any(|word| ["permit", "deny"].contains(&word)) && !line.ends_with([';', '{', ','])
    })
}

/// Splits `NAME=VALUE`; for command lines.
pub fn parameter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            Ok((name.trim_start_matches('$').to_owned(), value.to_owned()))
        }
        _ => Err(format!("'{text}' is not of the form NAME=VALUE")),
    }
}

/// Checks that a configuration has the variables that a command line gives values to.
///
/// # Errors
/// It does not have one of them; lists those that it has.
pub fn check_parameters(source: &Source, parameters: &[(String, String)]) -> Result<()> {
    let used: Vec<&str> = variables(&source.text).collect();
    let unknown = parameters.iter().find(|(name, _)| !used.contains(&name.as_str()));
    let Some((name, value)) = unknown else { return Ok(()) };
    // Those that it defines; others are of compound elements, or have no value without this.
    let definitions = source.text.split("define(").skip(1);
    let definitions = definitions.map(|rest| rest.split(')').next().unwrap_or_default());
    let mut known: Vec<&str> = definitions.flat_map(variables).collect();
    if known.is_empty() {
        known = used;
    }
    known.sort_unstable();
    known.dedup();
    match known.as_slice() {
        [] => bail!("{name}={value}: {} has no variables", source.name),
        known => bail!(
            "{name}={value}: {} has no variable '{name}'; expected one of {}",
            source.name,
            known.join(", ")
        ),
    }
}

/// Returns the names of variables in a text, as often as they stand there.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let after = text.split('$').skip(1).map(|rest| rest.trim_start_matches('{'));
    let names = after.map(move |rest| rest.split(|c| !is_part(c)).next().unwrap_or_default());
    names.filter(|name| !name.is_empty())
}

/// What the router's own handlers tell of a configuration of this text.
pub fn globals(registry: &Registry, text: &str) -> Globals {
    Globals {
        source: text.to_owned(),
        classes: registry.classes().map(|(name, _)| name.to_owned()).collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        hotconfig: None,
        reconfigure: None,
    }
}

/// What Click says behind what is wrong with elements.
pub const NOT_INITIALIZED: &str = "Router could not be initialized!";

/// How mistakes and warnings are reported.
#[derive(Clone, Copy, Debug)]
pub struct Messages {
    /// In Click's words only: no line of the configuration, no help.
    pub plain: bool,
    /// Whether warnings are reported at all.
    pub warnings: bool,
}

impl Messages {
    /// With all that helps.
    const FULL: Self = Self { plain: false, warnings: true };

    /// Prints what was found.
    pub fn report(self, found: Vec<Diagnostic>) {
        graph::messages::print_as_it_is(&self.text(found, std::io::stderr().is_terminal()));
    }

    /// What was found, as text.
    pub fn text(self, found: Vec<Diagnostic>, with_colours: bool) -> String {
        let told = found.into_iter().filter(|one| self.warnings || one.severity != Severity::Warning);
        let bare = |one: Diagnostic| Diagnostic { excerpt: None, help: None, ..one };
        let mut diagnostics = Diagnostics::default();
        told.map(|one| if self.plain { bare(one) } else { one }).for_each(|one| diagnostics.push(one));
        diagnostics.render(with_colours)
    }
}

/// Where `require(library NAME)` finds files: beside the file that requires them, in the directories of the CLICKPATH, and in
/// the folder `conf` of each.
pub struct Libraries {
    directories: Vec<PathBuf>,
}

impl Libraries {
    /// With `path`, or else the environment's CLICKPATH.
    pub fn new(path: Option<&str>) -> Self {
        let path = path.map_or_else(|| std::env::var("CLICKPATH").unwrap_or_default(), str::to_owned);
        let directories = path.split(':').filter(|directory| !directory.is_empty());
        Self { directories: directories.map(PathBuf::from).collect() }
    }
}

impl Library for Libraries {
    fn open(&self, name: &str, from: &str) -> Option<Source> {
        let beside = Path::new(from).parent().unwrap_or(Path::new("")).to_path_buf();
        let folders = self.directories.iter().flat_map(|path| [path.clone(), path.join("conf")]);
        std::iter::once(beside).chain(folders).find_map(|folder| {
            let path = folder.join(name);
            let text = graph::files::read_text(&path).ok()?;
            Some(Source { name: path.display().to_string(), text })
        })
    }
}

/// Compiles a configuration and checks the arguments of its elements. Mistakes and warnings go to standard error,
/// in the order of the text; `None` when there were mistakes.
pub fn compile(source: &Source, options: &Options, registry: &Registry) -> Option<FlatConfig> {
    compile_with(source, options, registry, &Libraries::new(None), Messages::FULL)
}

/// As [`compile`], with libraries from elsewhere, and messages of another form.
pub fn compile_with(
    source: &Source,
    options: &Options,
    registry: &Registry,
    libraries: &Libraries,
    messages: Messages,
) -> Option<FlatConfig> {
    let (flat, found, is_compiled) = examine(source, options, registry, libraries, messages);
    let is_wrong = flat.is_none();
    messages.report(found);
    if messages.plain && is_wrong && is_compiled {
        graph::note!("{NOT_INITIALIZED}");
    }
    flat
}

/// As [`compile_with`], for a program that runs: the configuration with its warnings, or else what is wrong, as texts.
pub fn compile_quietly(
    source: &Source,
    options: &Options,
    registry: &Registry,
    libraries: &Libraries,
) -> Result<(FlatConfig, String), String> {
    let messages = Messages { plain: true, warnings: true };
    let (flat, found, _) = examine(source, options, registry, libraries, messages);
    let text = messages.text(found, false).trim_end().to_owned();
    match flat {
        Some(flat) => Ok((flat, text)),
        None => Err(text),
    }
}

/// The configuration if nothing is wrong with it, what is to be said of it, and whether the text itself is right.
fn examine(
    source: &Source,
    options: &Options,
    registry: &Registry,
    libraries: &Libraries,
    messages: Messages,
) -> (Option<FlatConfig>, Vec<Diagnostic>, bool) {
    let (flat, diagnostics) = lang::compile_with_library(source, options, registry, libraries);
    let mut found: Vec<Diagnostic> = diagnostics.iter().cloned().collect();
    let is_compiled = !diagnostics.has_errors();
    // Click configures nothing when the text itself is wrong.
    if let Some(flat) = flat.as_ref().filter(|_| is_compiled || !messages.plain) {
        found
            .extend(check_arguments(flat, registry).into_iter().map(|problem| with_excerpt(problem, source)));
    }
    found.sort_by_key(|diagnostic| diagnostic.location.as_ref().map_or(0, |location| location.line));
    let wrong = found.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    (flat.filter(|_| !wrong), found, is_compiled)
}

/// Adds the line of the configuration that a problem is about.
pub fn with_excerpt(mut problem: Diagnostic, source: &Source) -> Diagnostic {
    if let Some(location) = problem.location.as_ref().filter(|location| *location.file == *source.name) {
        let line = source.text.lines().nth((location.line as usize).saturating_sub(1));
        problem.excerpt = line.map(str::to_owned);
    }
    problem
}

/// Prints what was found.
pub fn report(found: Vec<Diagnostic>) {
    Messages::FULL.report(found);
}
