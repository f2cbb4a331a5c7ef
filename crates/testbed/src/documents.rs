//! The project's documents: their links, and the commands in them. A command that the program does not know, or a link that leads
//! nowhere, fails a test.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The documents that people read first; below these folders all pages count.
const PAGES: [&str; 7] = [
    "README.md",
    "ARCHITECTURE.md",
    "SPECIFICATION.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "docs",
];

/// A command line in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentedCommand {
    /// The file and line, for messages.
    pub place: String,
    /// The program and its arguments.
    pub words: Vec<String>,
    /// Whether it stands in a block of commands; else it is in a sentence, and may be a part of one or have names for values.
    pub is_whole: bool,
    /// The line of a shell that it stands in.
    pub line: String,
    /// What the page shows of its output, behind a prompt `$`.
    pub printed: Vec<String>,
    /// Whether `make docs` leaves that as it is: it is of another machine or traffic than a test has. The comment [`KEPT`] stands in
    /// front of the block.
    pub is_kept: bool,
}

/// In front of a block whose output `make docs` leaves as it is.
const KEPT: &str = "<!-- output of another run -->";

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns all pages, as paths from the project's folder, with their text.
pub fn pages() -> BTreeMap<PathBuf, String> {
    let mut pages = BTreeMap::new();
    let mut waiting: Vec<PathBuf> = PAGES.iter().map(PathBuf::from).collect();
    while let Some(path) = waiting.pop() {
        let full = root().join(&path);
        if full.is_dir() {
            let entries = fs::read_dir(&full).expect("the folder of documents can be read");
            waiting.extend(entries.map(|entry| path.join(entry.expect("an entry can be read").file_name())));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let text =
                fs::read_to_string(&full).unwrap_or_else(|error| panic!("{}: {error}", full.display()));
            pages.insert(path, text);
        }
    }
    pages
}

/// Returns the commands of a program in all pages.
pub fn commands_of(program: &str) -> Vec<DocumentedCommand> {
    let mut commands = Vec::new();
    for (path, text) in pages() {
        let place = |number: usize| format!("{}:{}", path.display(), number + 1);
        let (mut lines, mut before) = (text.lines().enumerate(), "");
        while let Some((number, line)) = lines.next() {
            let is_kept = std::mem::replace(&mut before, line).trim() == KEPT;
            if let Some(indent) = fence(line) {
                let block = lines.by_ref().take_while(|(_, line)| fence(line).is_none());
                let block: Vec<(usize, &str)> =
                    block.map(|(number, line)| (number, line.get(indent..).unwrap_or_default())).collect();
                for (number, line, printed) in shell_lines(&block) {
                    let mut found = in_line(&line, program, &place(number), true);
                    if let Some(last) = found.last_mut() {
                        (last.printed, last.is_kept) = (printed, is_kept);
                    }
                    commands.extend(found);
                }
                continue;
            }
            // In sentences commands stand between backquotes.
            let spans = line.split('`').skip(1).step_by(2);
            commands.extend(spans.flat_map(|span| in_line(span, program, &place(number), false)));
        }
    }
    commands
}

/// How far a line that begins or ends a block is indented; `None` for others.
fn fence(line: &str) -> Option<usize> {
    let text = line.trim_start();
    text.starts_with("```").then(|| line.len() - text.len())
}

/// Returns the lines of a block that a shell gets, the last number of each, and what the page shows of its output. Where one has a
/// prompt, lines without are output. A line that ends with a backslash goes on in the next one.
fn shell_lines(block: &[(usize, &str)]) -> Vec<(usize, String, Vec<String>)> {
    let has_prompts = block.iter().any(|(_, line)| line.starts_with("$ "));
    let mut lines: Vec<(usize, String, Vec<String>)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in block {
        let command = line.strip_prefix("$ ").or((!has_prompts || goes_on).then_some(*line));
        match (command, lines.last_mut()) {
            (Some(command), Some((last, open, _))) if goes_on => {
                open.push_str(command);
                *last = *number;
            }
            (Some(command), _) => lines.push((*number, command.to_owned(), Vec::new())),
            (None, Some((_, _, printed))) => printed.push((*line).to_owned()),
            (None, None) => {}
        }
        goes_on = command.is_some() && line.ends_with('\\');
        if goes_on && let Some((_, open, _)) = lines.last_mut() {
            open.pop();
        }
    }
    for (_, _, printed) in &mut lines {
        while printed.last().is_some_and(|line| line.is_empty()) {
            printed.pop();
        }
    }
    lines
}

/// Where `BRICKWAY_UPDATE` is set, as `make docs` does, writes what commands printed into their pages, but for what is kept.
///
/// # Panics
///
/// A page cannot be read or written.
pub fn remake(outputs: &[(DocumentedCommand, String)]) {
    if std::env::var_os("BRICKWAY_UPDATE").is_none() {
        return;
    }
    // From below, so that the lines above keep their numbers.
    for (command, output) in outputs.iter().rev() {
        if command.is_kept || command.printed.is_empty() {
            continue;
        }
        let (page, number) = command.place.rsplit_once(':').expect("a page and a line");
        let first: usize = number.parse().expect("the number of a line");
        let path = root().join(page);
        let text = fs::read_to_string(&path).expect("the page is there");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let above = &lines[first - 1];
        let indent = above[..above.len() - above.trim_start().len()].to_owned();
        let printed = output.trim_end().lines().map(|line| format!("{indent}{line}").trim_end().to_owned());
        lines.splice(first..first + command.printed.len(), printed);
        fs::write(&path, lines.join("\n") + "\n").expect("the page can be written");
    }
}

/// Returns what a page shows of a command's output and the output has not: of each paragraph its first line, such as the heads of a
/// table, up to its first figure, and however wide its columns are. A line that begins with a figure is compared as a whole, whatever
/// the figures are.
pub fn lost_lines<'a>(shown: &'a [String], printed: &str) -> Vec<&'a str> {
    let form = |line: &str| -> Vec<String> {
        let has_digit = |word: &str| word.contains(|c: char| c.is_ascii_digit());
        line.split_whitespace().map(|word| if has_digit(word) { "0" } else { word }.to_owned()).collect()
    };
    let printed: Vec<Vec<String>> = printed.lines().map(form).collect();
    let is_there = |line: &str| {
        let form = form(line);
        let words = form.iter().take_while(|word| *word != "0").count();
        printed.iter().any(|line| match words {
            0 => line.starts_with(&form),
            all if all == form.len() => *line == form,
            some => line.starts_with(&form[..some]),
        })
    };
    let firsts = shown.iter().enumerate().filter(|(at, line)| {
        !line.is_empty() && at.checked_sub(1).is_none_or(|above| shown[above].is_empty())
    });
    firsts.map(|(_, line)| line.as_str()).filter(|line| !is_there(line)).collect()
}

/// The commands of a program in a line of a shell.
fn in_line(line: &str, program: &str, place: &str, is_whole: bool) -> Vec<DocumentedCommand> {
    let line = line.trim_start().trim_start_matches("$ ");
    parts(line)
        .into_iter()
        .filter_map(|words| {
            let first = words.iter().position(|word| word == program)?;
            // What stands before runs it: sudo, ip netns exec NAME, a variable.
            let runs = |word: &String| {
                matches!(word.as_str(), "sudo" | "ip" | "netns" | "exec" | "router" | "-")
                    || word.contains('=')
            };
            let is_command = words[..first].iter().all(runs) && words.len() > first + 1;
            let words = words[first..].to_vec();
            // A name for a command stands for any.
            let is_name = |word: &String| word.chars().all(|c| c.is_ascii_uppercase());
            let has_name = words.iter().skip(1).take(2).any(is_name) && !is_whole;
            let is_cut = words.iter().any(|word| word.contains("..."));
            (is_command && !has_name && !is_cut).then(|| DocumentedCommand {
                place: place.to_owned(),
                words,
                is_whole,
                line: line.to_owned(),
                printed: Vec::new(),
                is_kept: false,
            })
        })
        .collect()
}

/// Splits a line into commands and these into words, as a shell does.
fn parts(line: &str) -> Vec<Vec<String>> {
    let mut parts = vec![Vec::new()];
    let (mut word, mut quote, mut is_word) = (String::new(), None, false);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => (quote, is_word) = (Some(c), true),
            (None, '#') if !is_word => break,
            (None, ' ' | '|' | ';' | '&' | '>' | '<' | '(' | ')') => {
                if std::mem::take(&mut is_word) {
                    let last = parts.last_mut().expect("there is one at least");
                    last.push(std::mem::take(&mut word));
                }
                if c != ' ' {
                    parts.push(Vec::new());
                }
            }
            (None, c) => {
                word.push(c);
                is_word = true;
            }
        }
    }
    if is_word {
        parts.last_mut().expect("there is one at least").push(word);
    }
    parts
}

/// Returns links of pages that lead nowhere, with their place.
pub fn broken_links() -> Vec<String> {
    let pages = pages();
    let mut broken = Vec::new();
    for (path, text) in &pages {
        let folder = path.parent().unwrap_or(Path::new(""));
        for (number, line) in without_code(text).iter().enumerate() {
            for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                let (file, heading) = target.split_once('#').unwrap_or((target, ""));
                let file = if file.is_empty() { path.clone() } else { clean(&folder.join(file)) };
                let is_there = root().join(&file).exists()
                    && (heading.is_empty() || headings(pages.get(&file)).any(|known| known == heading));
                if !is_there {
                    broken.push(format!("{}:{}: {target}", path.display(), number + 1));
                }
            }
        }
    }
    broken
}

/// The lines of a page; those of blocks of code are empty.
fn without_code(text: &str) -> Vec<&str> {
    let mut is_block = false;
    let line = |line| {
        let is_fence = str::trim_start(line).starts_with("```");
        is_block ^= is_fence;
        if is_block || is_fence { "" } else { line }
    };
    text.lines().map(line).collect()
}

/// Resolves `..` in a path.
fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                clean.pop();
            }
            part => clean.push(part),
        }
    }
    clean
}

/// The headings of a page, as links name them.
fn headings(text: Option<&String>) -> impl Iterator<Item = String> {
    let lines = text.map(|text| without_code(text)).unwrap_or_default();
    let headings = lines.into_iter().filter(|line| line.starts_with('#'));
    headings.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_as_a_shell_reads_them() {
        let words = |line: &str| -> Vec<String> {
            in_line(line, "p", "x", true).into_iter().map(|command| command.words.join("+")).collect()
        };
        assert_eq!(words("$ sudo p run 'a b' --x   # p comment"), ["p+run+a b+--x"]);
        assert_eq!(
            words("ip netns exec router p run eth1 & sleep 3; p show ports"),
            ["p+run+eth1", "p+show+ports"]
        );
        assert_eq!(words("p show | jq . > file"), ["p+show"]);
        assert!(words("the p program").is_empty() && words("p").is_empty() && words("p run ...").is_empty());
    }

    #[test]
    fn a_block_has_commands_and_what_they_print() {
        let lines = |text: &str| -> Vec<(usize, String, Vec<String>)> {
            shell_lines(&text.lines().enumerate().collect::<Vec<_>>())
        };
        let shown = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let expected = vec![
            (0, "p show".to_owned(), shown(&["port  packets", "eth1  7"])),
            (4, "p a  b".to_owned(), shown(&["x"])),
        ];
        assert_eq!(lines("$ p show\nport  packets\neth1  7\n$ p a \\\n b\nx\n\n"), expected);
        assert_eq!(lines("p a\np b\n").len(), 2);
        let table = shown(&["port  packets", "eth1  7", "", "eth1 is 7"]);
        assert_eq!(lost_lines(&table, "port  packets\neth2  99\n\neth44   is 1.2\n"), Vec::<&str>::new());
        assert_eq!(lost_lines(&table, "port  frames\neth1  7\n"), ["port  packets", "eth1 is 7"]);
    }

    #[test]
    fn the_page_of_settings_has_all_that_the_kernel_has() {
        let page = &pages()[Path::new("docs/sysctls.md")];
        // Names stand in the first cell of a row, whose table begins with the folder that they are in.
        let mut of_tables: Vec<(String, String)> = Vec::new();
        let mut table = "";
        for line in page.lines() {
            let Some(cell) = line.strip_prefix("| ").and_then(|line| line.split(" | ").next()) else {
                continue;
            };
            if cell.contains("net.") {
                table = cell;
            }
            let names = cell.split('`').skip(1).step_by(2);
            of_tables.extend(names.map(|name| (table.to_owned(), name.to_owned())));
        }
        let mut sorted = of_tables.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), of_tables.len(), "a name is there twice");
        for family in ["ipv4", "ipv6"] {
            let folder = format!("net.{family}.conf.");
            let is_known =
                |name: &str| of_tables.iter().any(|(table, known)| table.contains(&folder) && known == name);
            // Linux may lack a family.
            let settings = fs::read_dir(format!("/proc/sys/net/{family}/conf/all")).into_iter().flatten();
            let names = settings.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let unknown: Vec<String> = names.filter(|name| !is_known(name)).collect();
            assert_eq!(unknown, Vec::<String>::new(), "not in docs/sysctls.md: {family}");
        }
    }

    #[test]
    fn links_lead_somewhere_and_the_book_has_all_pages() {
        assert_eq!(broken_links(), Vec::<String>::new());
        let contents = fs::read_to_string(root().join("packaging/book/SUMMARY.md")).unwrap();
        for path in pages().keys() {
            let link = format!("({})", path.display());
            assert!(contents.contains(&link), "{link} is not in packaging/book/SUMMARY.md");
        }
        assert_eq!(contents.matches("](").count(), pages().len());
    }
}
