//! `brickway elements` and `brickway help`: the manuals that stand at the top of each element's file.
//!
//! They are written in Click's form: `=c` synopsis, `=s` section and summary, `=d` description, `=e` example, `=a` see also, and
//! `=head1` another section. The part about handlers is made of those that the class declares.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use graph::graph::Registry;
use graph::lang::nearest;
use graph::{Class, Handler};

use crate::output::print;
use crate::table::{Align, Table, wrapped};

/// Lists the elements that configurations may use, by subject.
#[derive(Args, Debug)]
#[command(after_help = "See the manual of one with: brickway help ELEMENT")]
pub(crate) struct ElementsArguments {
    /// A subject (nat, ip, queues), a part of a name, or the beginning of a word of the summary
    search: Option<String>,
    /// Print one JSON object per element
    #[arg(long)]
    json: bool,
}

/// Shows the manual of an element.
#[derive(Args, Debug)]
pub(crate) struct HelpArguments {
    /// An element's class (DecIPTTL) or a subcommand (run, show ports); without one, this program's help
    #[arg(value_name = "NAME", add = ArgValueCandidates::new(crate::completion::manuals))]
    names: Vec<String>,
}

/// Most characters of a line, without the margin of its section.
const WIDTH: usize = 98;

/// A section of a manual: its mark (`c`, `s`, `d` ...), what follows the mark on its line, and the text.
fn sections(class: &Class) -> Vec<(String, String, String)> {
    let mut sections: Vec<(String, String, String)> = Vec::new();
    // The text of a list item stands further to the right.
    let mut in_item = false;
    // Before the first words of one: an item's title, or a mark.
    let mut begins_item = false;
    let mut bullet = "";
    let mut paragraph = String::new();
    for line in class.manual.lines().chain([""]) {
        let line = without_codes(line);
        if let Some((mark, _, text)) = sections.last_mut() {
            let margin = if in_item { "    " } else { "" };
            let is_prose = !line.starts_with(['=', ' ']) && !line.is_empty();
            if is_prose && ["d", "n", "a", "head1"].contains(&mark.as_str()) {
                paragraph += if paragraph.is_empty() { "" } else { " " };
                paragraph += &line;
                continue;
            }
            if !paragraph.is_empty() {
                for line in wrapped(&std::mem::take(&mut paragraph), WIDTH - margin.len()) {
                    let margin = if bullet.is_empty() { margin } else { std::mem::take(&mut bullet) };
                    text.push_str(&format!("{margin}{line}\n"));
                }
                begins_item = false;
            }
            if mark == "c" && is_prose {
                text.push_str(&format!("{}\n", wrapped(&line, WIDTH - 4).join("\n    ")));
            } else if line.is_empty() {
                if !begins_item && !text.ends_with("\n\n") {
                    text.push('\n');
                }
            } else if !line.starts_with('=') {
                text.push_str(&format!("{margin}{line}\n"));
                begins_item = false;
            }
        }
        let Some(mark) = line.strip_prefix('=') else { continue };
        let (mark, rest) = mark.split_once(' ').unwrap_or((mark, ""));
        match (mark.trim(), sections.last_mut()) {
            ("over", _) => {}
            ("back", _) => in_item = false,
            ("item", Some((_, _, text))) => {
                (in_item, begins_item) = (true, true);
                match rest.trim() {
                    "*" => bullet = "  * ",
                    title => text.push_str(&format!("{title}\n")),
                }
            }
            (mark, _) => {
                in_item = false;
                sections.push((mark.to_owned(), rest.trim().to_owned(), String::new()));
            }
        }
    }
    sections
}

/// Splits a line at Click's formatting codes: `I<keywords>` is `('I', "keywords")`, and text without one has `' '`.
pub(crate) fn spans(line: &str) -> Vec<(char, &str)> {
    let mut spans = Vec::new();
    let mut rest = line;
    while let Some((at, inside, end)) = ["I<", "C<", "B<"]
        .iter()
        .filter_map(|code| rest.find(code).map(|at| (at, at + code.len())))
        .min()
        .and_then(|(at, inside)| Some((at, inside, inside + rest[inside..].find('>')?)))
    {
        spans.push((' ', &rest[..at]));
        spans.push((char::from(rest.as_bytes()[at]), &rest[inside..end]));
        rest = &rest[end + 1..];
    }
    spans.push((' ', rest));
    spans
}

/// Takes out Click's formatting codes: `I<keywords>` becomes `keywords`.
fn without_codes(line: &str) -> String {
    spans(line).into_iter().map(|(_, text)| text).collect()
}

/// The subject of a class and the one-line summary of the class under this name.
fn subject_and_summary(name: &str, class: &Class) -> (String, String) {
    let (_, subject, text) = sections(class).into_iter().find(|(mark, ..)| mark == "s").unwrap_or_default();
    if name != class.name {
        return (subject, format!("another name of {}", class.name));
    }
    (subject, text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Returns all classes by subject: their names, themselves, their summaries.
pub(crate) fn subjects(registry: &Registry) -> BTreeMap<String, Vec<(&str, &'static Class, String)>> {
    let mut subjects: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (name, class) in registry.classes() {
        let (subject, summary) = subject_and_summary(name, class);
        subjects.entry(subject).or_default().push((name, class, summary));
    }
    subjects
}

pub(crate) fn elements(arguments: &ElementsArguments) -> Result<ExitCode> {
    let registry = crate::classes();
    let wanted = arguments.search.as_deref().unwrap_or("").to_lowercase();
    let mut subjects = subjects(&registry);
    subjects.retain(|subject, classes| {
        classes.retain(|(name, _, summary)| {
            let has_word = summary.to_lowercase().split_whitespace().any(|word| word.starts_with(&wanted));
            *subject == wanted || name.to_lowercase().contains(&wanted) || has_word
        });
        !classes.is_empty()
    });
    // A subject is the whole answer.
    if let Some(classes) = subjects.remove(&wanted) {
        subjects = BTreeMap::from([(wanted, classes)]);
    } else if subjects.is_empty() {
        bail!("elements: no element has '{wanted}' in its name, subject or summary");
    }
    for (subject, classes) in subjects {
        if arguments.json {
            for (name, class, summary) in classes {
                let object = serde_json::json!({
                    "class": name, "subject": subject, "summary": summary,
                    "ports": class.ports, "processing": class.processing, "flow": class.flow,
                });
                print(&format!("{object}\n"));
            }
            continue;
        }
        let mut table = Table::new(&[("", Align::Left), ("", Align::Left), ("", Align::Left)]);
        for (name, class, summary) in classes {
            table.row([format!("  {name}"), class.ports.to_owned(), summary]);
        }
        // The columns speak for themselves: no heading.
        print(&format!("{subject}:\n{}\n", table.render()));
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn help(arguments: &HelpArguments) -> Result<ExitCode> {
    let mut command = &mut crate::command();
    command.build();
    let mut unknown = None;
    for name in &arguments.names {
        if command.find_subcommand(name).is_none() {
            unknown = Some(name);
            break;
        }
        command = command.find_subcommand_mut(name).expect("it was found just now");
    }
    let name = match unknown {
        None => {
            print(&command.render_long_help().to_string());
            return Ok(ExitCode::SUCCESS);
        }
        Some(name) if arguments.names.len() == 1 => name,
        Some(name) => {
            bail!("help: '{}' has no subcommand '{name}'", command.get_bin_name().unwrap_or_default())
        }
    };
    let registry = crate::classes();
    let found = registry
        .classes()
        .find(|(known, _)| known == name)
        .or_else(|| registry.classes().find(|(known, _)| known.eq_ignore_ascii_case(name)));
    let Some((name, class)) = found else {
        let part = |known: &&str| known.to_lowercase().contains(&name.to_lowercase());
        let mut near: Vec<_> = registry.classes().map(|(known, _)| known).filter(part).collect();
        let similar = nearest(name, registry.classes().map(|(known, _)| known));
        near.extend(similar.filter(|similar| !near.contains(similar)));
        match near.as_slice() {
            [] => bail!("no element and no subcommand is called '{name}'; 'brickway elements' lists them"),
            near => {
                bail!("no element and no subcommand is called '{name}'; did you mean {}?", near.join(" or "))
            }
        }
    };
    print(&render(name, class, std::io::stdout().is_terminal()));
    Ok(ExitCode::SUCCESS)
}

/// The manual of a class under one of its names, as a person reads it.
fn render(name: &str, class: &Class, colour: bool) -> String {
    let (bold, plain) = if colour { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    let mut text = String::new();
    if let Some(alias) = class.aliases.iter().find(|alias| alias.name == name) {
        let line = format!("{name} is another name of {}. {}", class.name, alias.difference);
        text.push_str(&format!("{}\n\n", wrapped(&line, WIDTH + 2).join("\n")));
    }
    for (mark, rest, body) in sections(class) {
        let body = body.trim_end().trim_start_matches('\n');
        let title = match mark.as_str() {
            "c" => "SYNOPSIS",
            "s" => "SUMMARY",
            "d" => "DESCRIPTION",
            "e" => "EXAMPLE",
            "n" => "NOTES",
            "a" => "SEE ALSO",
            "head1" => &rest.to_uppercase(),
            _ => continue,
        };
        let mut lines = body.to_owned();
        if mark == "a" && !rest.is_empty() {
            lines = format!("{}\n{lines}", wrapped(&rest, WIDTH).join("\n"));
        }
        text.push_str(&format!("{bold}{title}{plain}\n{}\n\n", indented(lines.trim_end(), 2)));
    }
    if !class.handlers.is_empty() {
        text.push_str(&format!("{bold}HANDLERS{plain}\n"));
    }
    for (title, access, doc) in handlers(class) {
        text.push_str(&format!(
            "  {bold}{title}{plain} ({access})\n{}\n\n",
            indented(&wrapped(doc, WIDTH - 4).join("\n"), 6)
        ));
    }
    text.push_str(&format!(
        "{bold}PORTS{plain}\n  {} (inputs/outputs), {} (push h, pull l, agnostic a)\n",
        class.ports, class.processing
    ));
    text
}

/// Returns the handlers of a class: title, access, what it is. Those that differ by a number only are one.
pub(crate) fn handlers(class: &Class) -> Vec<(String, &'static str, &'static str)> {
    let same_but_number = |a: &Handler, b: &Handler| {
        let stem = |name: &'static str| name.trim_end_matches(|c: char| c.is_ascii_digit());
        a.name != stem(a.name) && stem(a.name) == stem(b.name)
    };
    let rows = class.handlers.chunk_by(same_but_number);
    rows.map(|row| {
        let handler = &row[0];
        let title = match row {
            [first, .., last] => format!("{} to {}", first.name, last.name),
            _ => handler.name.to_owned(),
        };
        let access = match (handler.is_readable(), handler.is_writable()) {
            (true, true) => "read and write",
            (true, false) => "read",
            _ => "write",
        };
        (title, access, handler.doc)
    })
    .collect()
}

fn indented(text: &str, by: usize) -> String {
    let margin = " ".repeat(by);
    let lines: Vec<_> = text
        .lines()
        .map(|line| if line.is_empty() { String::new() } else { format!("{margin}{line}") })
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::Handler;

    #[test]
    fn formatting_codes_are_taken_out() {
        assert_eq!(without_codes("Tee([N, I<keywords> X]) C<a> b"), "Tee([N, keywords X]) a b");
        assert_eq!(without_codes("a I<b"), "a I<b");
    }

    #[test]
    fn sections_with_titles_of_their_own_are_shown() {
        let registry = crate::classes();
        let manual = |name| render(name, registry.class(name).unwrap(), false);
        assert!(
            manual("ControlSocket")
                .contains("\nACCESS OF CLIENTS TO FILES\n  A new configuration (hotconfig")
        );
        assert!(manual("Script").contains("\nINSTRUCTIONS\n"));
    }

    #[test]
    fn every_element_has_a_manual() {
        let registry = crate::classes();
        for (name, class) in registry.classes() {
            let marks: Vec<_> = sections(class).into_iter().map(|(mark, ..)| mark).collect();
            for needed in ["c", "s", "d"] {
                assert!(marks.iter().any(|mark| mark == needed), "{name} has no ={needed}");
            }
            let (subject, summary) = subject_and_summary(name, class);
            assert!(!subject.is_empty() && !summary.is_empty(), "{name}: =s SUBJECT and a summary");
            assert!(render(name, class, false).contains(name), "{name}");
            assert!(registry.class(class.name).is_some_and(|known| std::ptr::eq(known, class)), "{name}");
            for alias in class.aliases {
                assert!(alias.difference.ends_with('.'), "{}: say what the difference is", alias.name);
                let known = registry.class(alias.name).expect("all names are registered");
                assert_eq!(known.name, class.name, "{} is an alias of two classes", alias.name);
            }
            assert!(!marks.iter().any(|mark| mark == "h"), "{}: declare handlers in the class", class.name);
            for handler in class.handlers {
                assert!(handler.doc.ends_with('.'), "{}.{}: say what it is", class.name, handler.name);
            }
            let manual = render(name, class, false);
            let wide = manual.lines().find(|line| line.chars().count() > 100);
            assert_eq!(wide, None, "{name}");
        }
    }

    /// Who may only look reads all handlers that are not marked; others can only tell, by their type.
    #[test]
    fn handlers_that_may_act_are_marked() {
        let registry = crate::classes();
        for (name, class) in registry.classes() {
            let may_act = |handler: &&Handler| handler.read.is_some_and(|read| read.may_act());
            let mut unmarked = class.handlers.iter().filter(may_act).filter(|it| !it.acts && !it.private);
            // Those of scripts calculate.
            let scripts = ["Script", "DriverManager"];
            let found = unmarked.next().filter(|_| !scripts.contains(&class.name));
            assert_eq!(found.map(|handler| handler.name), None, "{name}: reading it may do something");
        }
    }
}
