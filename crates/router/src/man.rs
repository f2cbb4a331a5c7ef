//! `brickway man`: the manual as man pages, for packages.
//!
//! | page | made of |
//! | --- | --- |
//! | `brickway(1)`, and one for each subcommand | the command line |
//! | `brickway.toml(5)`, `brickway-cluster.toml(5)` | the comments of the examples |
//! | `brickway-elements(7)` | the elements' manuals |

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use graph::Class;

use crate::manual::{handlers, spans, subjects};
use crate::settings;

/// Writes the man pages of this program, its settings files and its elements.
#[derive(Args, Debug)]
pub(crate) struct ManArguments {
    /// The folder that gets the pages; it is made where it is not there
    folder: PathBuf,
}

/// The cluster's file, whose comments describe its options.
const CLUSTER: &str = include_str!("../../../examples/cluster.toml");

pub(crate) fn man(arguments: &ManArguments) -> Result<ExitCode> {
    let folder = &arguments.folder;
    write_commands(crate::command(), folder)?;
    let router = file("brickway.toml", "settings of the Brickway router", &settings::example());
    write(folder, "brickway.toml.5", &router)?;
    let cluster = file("brickway-cluster.toml", "a cluster of Brickway routers", CLUSTER);
    write(folder, "brickway-cluster.toml.5", &cluster)?;
    write(folder, "brickway-elements.7", &elements())?;
    Ok(ExitCode::SUCCESS)
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write '{}'", path.display()))
}

/// Writes a page for a program, and one for each of its subcommands.
///
/// # Errors
/// The folder cannot be written.
pub fn write_commands(mut command: Command, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make '{}'", folder.display()))?;
    command = command.disable_help_subcommand(true);
    command.build();
    let source = source(command.get_name());
    let mut waiting = vec![command];
    while let Some(command) = waiting.pop() {
        waiting.extend(command.get_subcommands().cloned());
        let man = Man::new(command.clone()).date(" ").source(&source).manual("Brickway");
        write(folder, &man.get_filename(), &page(&man, &command)?)?;
    }
    Ok(())
}

/// Returns what stands at the foot of a program's pages: its name and version.
fn source(program: &str) -> String {
    format!("{program} {}", env!("CARGO_PKG_VERSION"))
}

/// Returns the page of a command. Its examples keep their lines, and its exit codes have a section.
fn page(man: &Man, command: &Command) -> Result<String> {
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if command.get_arguments().next().is_some() {
        man.render_options_section(&mut text)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    let mut roff = Roff::new();
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut section = "";
    let mut literal = Literal(false);
    for line in after.lines() {
        let code = line.strip_prefix("Exit codes: ");
        let begins = match (line, code) {
            ("Examples:", _) => "EXAMPLES",
            (_, Some(_)) => "EXIT STATUS",
            _ if section.is_empty() || (section == "EXAMPLES" && !line.is_empty() && !is_indented(line)) => {
                "NOTES"
            }
            _ => section,
        };
        if begins != section {
            literal.end(&mut roff);
            roff.control("SH", [begins]);
            section = begins;
        }
        match code.unwrap_or(line) {
            "Examples:" => {}
            line if section == "EXAMPLES" && is_indented(line) => {
                let (example, about) = line.trim_start().split_once("  ").unwrap_or((line.trim_start(), ""));
                roff.control("TP", []);
                roff.text([bold(example)]);
                roff.text([roman(about.trim_start())]);
            }
            line => literal.line(&mut roff, line),
        }
    }
    literal.end(&mut roff);
    if command.get_name() == "brickway" {
        roff.control("SH", ["SEE ALSO"]);
        roff.text([roman(
            "brickway.toml(5), brickway-cluster.toml(5), brickway-elements(7), brickway-lab(1)",
        )]);
    }
    roff.to_writer(&mut text)?;
    Ok(String::from_utf8(text)?)
}

fn is_indented(line: &str) -> bool {
    line.starts_with(' ')
}

/// Whether the lines before keep their breaks, as indented ones do.
struct Literal(bool);

impl Literal {
    /// Writes a line of text: indented ones as they are, others filled.
    fn line(&mut self, roff: &mut Roff, line: &str) {
        if line.is_empty() {
            self.end(roff);
            roff.control("PP", []);
        } else if is_indented(line) {
            if !self.0 {
                roff.control("nf", []);
                self.0 = true;
            }
            roff.text([roman(line)]);
        } else {
            self.end(roff);
            roff.text(inlines(line));
        }
    }

    fn end(&mut self, roff: &mut Roff) {
        if std::mem::take(&mut self.0) {
            roff.control("fi", []);
        }
    }
}

/// Returns a line in which what stands between backquotes, or in Click's formatting codes, is bold or italic.
fn inlines(line: &str) -> Vec<Inline> {
    let mut inlines = Vec::new();
    for (code, text) in spans(line) {
        match code {
            'I' => inlines.push(italic(text)),
            'B' | 'C' => inlines.push(bold(text)),
            _ => {
                let parts = text.split('`').enumerate();
                inlines.extend(parts.map(|(n, part)| if n % 2 == 1 { bold(part) } else { roman(part) }));
            }
        }
    }
    inlines
}

/// Begins a page of another kind than a command's.
fn begin(name: &str, section: &str, about: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("TH", [name, section, " ", &source("brickway"), "Brickway"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("{name} - {about}"))]);
    roff.control("SH", ["DESCRIPTION"]);
    roff
}

/// Returns the page of a settings file. An example has its options as `key = value` or `#key = value`, with lines `# text` above that
/// describe them, and a line for each section.
fn file(name: &str, about: &str, example: &str) -> String {
    let mut roff = begin(name, "5", about);
    let mut text: Vec<&str> = Vec::new();
    let mut options: Vec<&str> = Vec::new();
    let mut seen = BTreeSet::new();
    // The second port or node only shows that there may be several.
    let mut is_repeated = false;
    for line in example.lines().chain([""]) {
        let is_text = line == "#" || line.starts_with("# ");
        if is_text || line.is_empty() || line.trim_start_matches('#').starts_with('[') {
            describe(&mut roff, &mut options, &mut text);
        }
        let bare = line.trim_start_matches('#');
        if is_text {
            text.push(bare.trim_start());
        } else if bare.starts_with('[') {
            is_repeated = !seen.insert(bare);
            if !is_repeated {
                roff.control("SH", [bare]);
                paragraphs(&mut roff, &mut text);
            }
        } else if line.is_empty() {
            if !text.is_empty() {
                roff.control("PP", []);
                paragraphs(&mut roff, &mut text);
            }
        } else if !is_repeated {
            options.push(bare);
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman("brickway(1), brickway-check(1), brickway-run(1), brickway-cluster(1)")]);
    roff.render()
}

/// Writes options, if there are any, and the text that describes all of them.
fn describe(roff: &mut Roff, options: &mut Vec<&str>, text: &mut Vec<&str>) {
    for (n, option) in options.iter().enumerate() {
        roff.control(if n == 0 { "TP" } else { "TQ" }, []);
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        roff.text([bold(key.trim()), roman(format!(" = {}", value.trim()))]);
    }
    if !options.is_empty() {
        options.clear();
        paragraphs(roff, text);
    }
}

/// Writes lines as paragraphs; an empty one is between two.
fn paragraphs(roff: &mut Roff, text: &mut Vec<&str>) {
    for line in text.drain(..) {
        if line.is_empty() {
            roff.control("PP", []);
        } else {
            roff.text(inlines(line));
        }
    }
}

/// Returns the page of all elements, by subject.
fn elements() -> String {
    let mut roff = begin("brickway-elements", "7", "the elements of Brickway's configurations");
    roff.text([roman("Elements by subject.")]);
    roff.text(inlines(
        "`brickway help ELEMENT` prints the manual of one, `brickway elements WORD` finds them by a word.",
    ));
    let registry = crate::classes();
    for (subject, classes) in subjects(&registry) {
        roff.control("SH", [subject.to_uppercase().as_str()]);
        for (name, class, _) in classes {
            roff.control("SS", [name]);
            match class.aliases.iter().find(|alias| alias.name == name) {
                Some(alias) => {
                    let line = format!("Another name of {}. {}", class.name, alias.difference);
                    roff.text([roman(line)]);
                }
                None => element(&mut roff, class),
            }
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman("brickway(1), brickway-check(1), brickway-help(1), brickway-run(1)")]);
    roff.render()
}

/// Writes the manual of an element.
fn element(roff: &mut Roff, class: &Class) {
    let mut literal = Literal(false);
    let mut in_item = false;
    let mut is_synopsis = false;
    let mut before = "";
    for line in class.manual.lines() {
        let is_title = std::mem::replace(&mut before, line).starts_with("=item");
        let Some(mark) = line.strip_prefix('=') else {
            match line {
                _ if is_synopsis && !line.is_empty() => {
                    roff.text(inlines(line));
                    roff.control("br", []);
                }
                "" if is_title => {}
                "" if in_item => {
                    literal.end(roff);
                    roff.control("IP", []);
                }
                line => literal.line(roff, line),
            }
            continue;
        };
        literal.end(roff);
        is_synopsis = false;
        let (mark, rest) = mark.split_once(' ').unwrap_or((mark, ""));
        match mark.trim() {
            "c" => is_synopsis = true,
            "item" => {
                in_item = true;
                match rest.trim() {
                    "*" => roff.control("IP", ["\\(bu", "2"]),
                    title => {
                        roff.control("TP", []);
                        roff.text([bold(title)])
                    }
                };
            }
            "back" => in_item = false,
            "over" => {}
            mark => {
                roff.control("PP", []);
                match mark {
                    "e" => drop(roff.text([italic("Example")])),
                    "head1" => drop(roff.text([italic(rest)])),
                    "n" => drop(roff.text([italic("Notes")])),
                    "a" => drop(roff.text([italic("See also"), roman(format!(" {rest}"))])),
                    _ => {}
                }
                if mark == "e" || mark == "head1" {
                    roff.control("PP", []);
                }
            }
        }
    }
    literal.end(roff);
    for (title, access, doc) in handlers(class) {
        roff.control("TP", []);
        roff.text([italic("Handler "), bold(title), roman(format!(" ({access})"))]);
        roff.text([roman(doc)]);
    }
    roff.control("PP", []);
    let ports =
        format!(" {} (inputs/outputs), {} (push h, pull l, agnostic a)", class.ports, class.processing);
    roff.text([italic("Ports"), roman(ports)]);
}

#[cfg(test)]
mod tests {
    use testbed::Folder;

    use super::*;
    use crate::settings::Settings;

    #[test]
    fn every_subcommand_option_and_element_is_in_a_page() {
        let folder = Folder::new();
        let pages = folder.path().join("man");
        man(&ManArguments { folder: pages.clone() }).unwrap();
        let read = |name: &str| {
            let text = fs::read_to_string(pages.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
            text.replace("\\-", "-")
        };
        let whole = read("brickway.1");
        for command in crate::command().get_subcommands() {
            let name = format!("brickway-{}", command.get_name());
            assert!(whole.contains(&format!("{name}(1)")), "{name}");
            assert!(read(&format!("{name}.1")).contains(".SH DESCRIPTION"), "{name}");
        }
        let routes = read("brickway-show-routes.1");
        assert!(routes.contains("--protocol") && routes.contains("--socket"), "{routes}");
        let run = read("brickway-run.1");
        let example = ".SH EXAMPLES\n.TP\n\\fBbrickway run eth1 eth2\\fR\nforward in Linux";
        assert!(run.contains(example) && run.contains(".SH NOTES\nA port is [DRIVER:]NAME"), "{run}");

        let settings = read("brickway.toml.5");
        for option in Settings::options() {
            assert!(settings.contains(&format!("\\fB{}\\fR = ", option.key)), "{}", option.name());
        }
        assert!(settings.contains(".SH [workers]") && settings.matches("fBname").count() == 1, "{settings}");
        let cluster = read("brickway-cluster.toml.5");
        let both = ".TP\n\\fBhello\\fR = \"10ms\"\n.TQ\n\\fBdead\\fR = 3\nTime between two hellos";
        assert!(cluster.contains(both) && cluster.contains(".SH [[node.port]]"), "{cluster}");

        let elements = read("brickway-elements.7");
        for (name, _) in crate::classes().classes() {
            assert!(elements.contains(&format!(".SS {name}\n")), "{name}");
        }
        assert!(elements.contains("is \\fBpass\\fR."), "formatting codes are fonts");
    }
}
