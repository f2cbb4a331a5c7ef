//! The project's English: each rule has a name, and each finding names its line, the rule, the words, and what was expected.
//!
//! Pages hold all rules. Help texts hold those of sentences ([`in_command`], from the programs' own
//! tests), and so does the prose of elements' manuals. Comments and messages in sources hold the list
//! of phrases. Pages that a program writes follow the text in its sources.
//!
//! The prose of a manual is its summary (`=s`), its description (`=d`) and its items. Not prose are
//! the synopsis (`=c`), the example (`=e`), the references (`=a`), lines with a mark and indented
//! lines. There the rules of words hold. A mark ends a sentence.
//!
//! A word between backquotes is one word, whatever it holds, and does not count in a cell. Blocks of code are not read.

use std::fmt;
use std::fs;
use std::path::Path;

use crate::documents::{pages, root};

/// The most columns of a line.
const LINE: usize = 100;
/// The most characters of a table's cell, without code: a command in a cell stands whole.
const CELL: usize = 80;
/// The most words of a sentence, up to a colon or semicolon.
const WORDS: usize = 25;

/// Pages that a program writes.
const GENERATED: [&str; 2] = ["docs/api.md", "docs/papers/README.md"];

/// Words that a sentence does not begin with, unless it asks.
const CLAUSES: [&str; 5] = ["what", "who", "whoever", "whom", "whose"];

/// Words that are not written one after the other.
struct Phrase {
    words: &'static str,
    /// Words before them, or behind them, that make them good ones.
    unless_before: &'static [&'static str],
    unless_behind: &'static [&'static str],
    expected: &'static str,
}

const fn phrase(words: &'static str, expected: &'static str) -> Phrase {
    Phrase { words, unless_before: &[], unless_behind: &[], expected }
}

/// Returns a negation; "there is no" and "is no longer" are good ones.
const fn negation(words: &'static str, expected: &'static str) -> Phrase {
    Phrase { words, unless_before: &["there"], unless_behind: &["longer", "more", "less"], expected }
}

/// Phrases that neither pages nor help texts nor sources have.
const PHRASES: &[Phrase] = &[
    negation("is no", "'is not a'"),
    negation("are no", "'are not'"),
    negation("was no", "'was not a'"),
    negation("were no", "'were not'"),
    phrase("no longer prefix", "'no more-specific prefix'"),
    phrase("no longer match", "'no more-specific match'"),
    phrase("no longer route", "'no more-specific route'"),
    phrase("no longer one", "'no more-specific one'"),
    phrase("would be right", "'expected X'"),
    phrase("right would be", "'expected X'"),
    phrase("is told", "'gets', 'is notified', or the option's name"),
    phrase("are told", "'get', 'are notified', or the option's name"),
    phrase("was told", "'got', 'was notified', or the option's name"),
    phrase("were told", "'got', 'were notified', or the option's name"),
    phrase("told so", "'notified'"),
    phrase("tells so", "'reports it'"),
    phrase("says so", "'reports it'"),
    phrase("say so", "'report it'"),
    phrase("said so", "'reported it'"),
    phrase("so many as", "'as many as'"),
    phrase("leaves over", "'punts'"),
    phrase("left over", "'punted' or 'remaining'"),
    phrase("linux decides", "'punted', with its reason"),
    phrase("opened as", "'driver'"),
    phrase("what is what", "the noun"),
    phrase("whoever", "the noun: 'a program that', 'the thread that'"),
];

/// Phrases that pages and help texts do not have.
const PHRASES_OF_PAGES: &[Phrase] = &[
    phrase("says how", "'describes how'"),
    phrase("says what", "'lists', 'describes', 'prints'"),
    phrase("says why", "'prints the reason'"),
    phrase("says whether", "'reports whether'"),
    phrase("says which", "'lists', 'reports which'"),
    phrase("says that", "'reports that'"),
    phrase("says where", "'reports where'"),
    phrase("tells how", "'describes how'"),
    phrase("tells what", "'lists', 'describes', 'prints'"),
    phrase("tells which", "'lists', 'reports which'"),
    phrase("tells whether", "'reports whether'"),
    phrase("tells that", "'reports that'"),
    phrase("is said", "'is reported'"),
    phrase("are said", "'are reported'"),
    phrase("be told", "'get', 'be notified'"),
    phrase("gone round", "'bypassed'"),
    phrase("goes round", "'bypasses'"),
    phrase("hears of", "'receives', 'is notified of'"),
    phrase("hear of", "'receive', 'are notified of'"),
    phrase("what there is", "the noun"),
    phrase("left undone", "'not done'"),
];

/// A place where the text breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file and line, or the command whose help it is.
    pub place: String,
    /// The rule's name.
    pub rule: &'static str,
    /// The words that break it.
    pub text: String,
    /// What the rule wants.
    pub expected: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}; expected {}", self.place, self.rule, self.text, self.expected)
    }
}

/// Returns what breaks a rule in the project's pages.
pub fn in_pages() -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in pages() {
        let path = path.display().to_string();
        if GENERATED.contains(&path.as_str()) {
            continue;
        }
        findings.extend(in_page(&path, &text));
    }
    findings
}

/// Returns what breaks a rule in the comments and messages of the sources.
pub fn in_sources() -> Vec<Finding> {
    let (mut findings, mut waiting) = (Vec::new(), vec![root().join("crates")]);
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).expect("a folder of sources can be read");
            waiting.extend(entries.map(|entry| entry.expect("an entry can be read").path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") && is_source(&path) {
            let text =
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let name = path.strip_prefix(root()).expect("it lies below the project's folder");
            findings.extend(in_source(&name.display().to_string(), &text));
        }
    }
    findings.sort_by_key(|finding| finding.place.clone());
    findings
}

/// Returns whether a file is part of a program: tests quote bad text, and so does this file.
fn is_source(path: &Path) -> bool {
    let has = |part: &str| path.components().any(|component| component.as_os_str() == part);
    has("src") && !has("tests") && !path.ends_with("tests.rs") && !path.ends_with("testbed/src/prose.rs")
}

/// Returns what breaks a rule in the help texts of a program and of its subcommands.
pub fn in_command(command: &clap::Command) -> Vec<Finding> {
    let texts = [
        command.get_long_about().or(command.get_about()),
        command.get_before_long_help().or(command.get_before_help()),
        command.get_after_long_help().or(command.get_after_help()),
    ];
    let arguments = command.get_arguments().map(|argument| argument.get_long_help().or(argument.get_help()));
    let place = format!("{} --help", command.get_name());
    let mut findings = Vec::new();
    for text in texts.into_iter().chain(arguments).flatten() {
        findings.extend(in_help(&place, &text.to_string()));
    }
    findings.extend(command.get_subcommands().flat_map(in_command));
    findings
}

/// Returns what breaks a rule in a help text, whose paragraphs an empty line divides.
fn in_help(place: &str, text: &str) -> Vec<Finding> {
    // Indented lines are examples, and lines of several columns are tables.
    let is_prose = |line: &&str| !line.starts_with("  ") && !line.trim().contains("   ");
    let prose: Vec<&str> = text.lines().map(|line| Some(line).filter(is_prose).unwrap_or("")).collect();
    let mut findings = Vec::new();
    for unit in units(&prose.join("\n")) {
        check_sentences(&mut findings, &unit, |_| place.to_owned());
    }
    findings
}

/// Returns what breaks a rule in a page.
fn in_page(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let place = |line: usize| format!("{path}:{}", line + 1);
    for unit in units(text) {
        if unit.is_cell && without_code(&unit.text).chars().count() > CELL {
            let expected = format!("at most {CELL} characters in a cell");
            findings.push(finding(place(unit.line), "cell", &unit.text, expected));
        }
        check_sentences(&mut findings, &unit, place);
    }
    let mut is_block = false;
    for (number, line) in text.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        is_block ^= is_fence;
        // A command in a sentence stands on one line, where the tests of commands find it.
        let is_one_word = !without_marks(line.trim_start_matches(['-', ' '])).contains(' ');
        let is_free =
            is_block || is_fence || is_one_word || line.starts_with(['|', '!']) || line.contains("]: ");
        if !is_free && line.chars().count() > LINE {
            let expected = format!("at most {LINE} columns, not {}", line.chars().count());
            findings.push(finding(place(number), "line", line, expected));
        }
    }
    findings
}

/// Returns the phrases in the comments and messages of a source, without those of its tests.
fn in_source(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let place = |line: usize| format!("{path}:{}", line + 1);
    for mark in ["//!", "///"] {
        let docs: Vec<&str> = text.lines().map(|line| documentation(line, mark).unwrap_or("")).collect();
        // The manual of an element is a page of `brickway help`.
        let is_manual = docs.contains(&"=c");
        for unit in units(&docs.join("\n")) {
            if is_manual {
                check_words(&mut findings, &unit, place);
            } else {
                check_phrases(&mut findings, PHRASES, &unit, place);
            }
        }
        if is_manual {
            for unit in units(&prose_of_manual(text, mark)) {
                check_lengths(&mut findings, &unit, place);
            }
        }
    }
    for (line, text) in strings(text) {
        let unit = Unit { line, text, is_cell: false };
        check_phrases(&mut findings, PHRASES, &unit, |_| place(line));
    }
    findings
}

/// Returns the text of a documentation comment, if a line has one.
fn documentation<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    let text = line.trim_start().strip_prefix(mark)?;
    Some(text.strip_prefix(' ').unwrap_or(text))
}

/// Returns the prose of a source's manuals, each line in its place. A span of code (`C<...>`) is
/// between backquotes.
fn prose_of_manual(source: &str, mark: &str) -> String {
    let mut prose = String::with_capacity(source.len());
    let mut is_prose = true;
    for line in source.lines() {
        let text = documentation(line, mark);
        if let Some(heading) = text.and_then(|text| text.strip_prefix('=')) {
            is_prose = !matches!(heading.split(' ').next(), Some("c" | "e" | "a"));
        } else if text.is_none() {
            is_prose = true;
        }
        if let Some(text) = text.filter(|text| is_prose && !text.starts_with([' ', '='])) {
            let mut rest = text;
            while let Some((before, behind)) = rest.split_once("C<") {
                let (code, behind) = behind.split_once('>').unwrap_or((behind, ""));
                prose.extend([before, "`", code, "`"]);
                rest = behind;
            }
            prose.push_str(rest);
        }
        prose.push('\n');
    }
    prose
}

/// Returns the string literals of a source, with their lines.
fn strings(source: &str) -> Vec<(usize, String)> {
    let (mut strings, mut line) = (Vec::new(), 0);
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            // A quote between quotes is a character.
            '\'' if rest.starts_with("'\"'") => 3,
            '\'' if rest.starts_with("'\\\"'") => 4,
            'r' if rest[1..].trim_start_matches('#').starts_with('"') => {
                let hashes = rest[1..].len() - rest[1..].trim_start_matches('#').len();
                let close = format!("\"{}", "#".repeat(hashes));
                let body = &rest[hashes + 2..];
                let length = body.find(&close).unwrap_or(body.len());
                strings.push((line, body[..length].to_owned()));
                (hashes + 2 + length + close.len()).min(rest.len())
            }
            '"' => {
                let mut is_escaped = false;
                let ends = |c: char| {
                    c == '"' && !std::mem::take(&mut is_escaped) || {
                        is_escaped = c == '\\' && !is_escaped;
                        false
                    }
                };
                let length = rest[1..].find(ends).unwrap_or(rest.len() - 1);
                strings.push((
                    line,
                    rest[1..=length].replace("\\n", "\n").replace("\\\n", " ").replace("\\\"", "\""),
                ));
                (length + 2).min(rest.len())
            }
            c => c.len_utf8(),
        };
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    strings
}

/// A paragraph, an item of a list or a cell of a table, without marks; code has no spaces in it.
#[derive(Debug)]
struct Unit {
    /// The line that it begins in, from 0.
    line: usize,
    text: String,
    is_cell: bool,
}

/// Divides a page into what is read by itself.
fn units(text: &str) -> Vec<Unit> {
    let (mut units, mut is_block, mut is_open) = (Vec::<Unit>::new(), false, false);
    for (line, full) in text.lines().enumerate() {
        let part = full.trim_start_matches(['>', ' ']);
        let is_fence = part.starts_with("```");
        is_block ^= is_fence;
        let is_empty = part.is_empty() || is_block || is_fence || full.starts_with("    ");
        if is_empty || full.contains("]: ") && full.starts_with('[') {
            is_open = false;
        } else if part.starts_with('|') {
            is_open = false;
            let row = without_marks(part);
            let cells = row.trim_matches('|').split('|').map(str::trim);
            let cells = cells.filter(|cell| cell.chars().any(char::is_alphanumeric));
            units.extend(cells.map(|cell| Unit { line, text: cell.to_owned(), is_cell: true }));
        } else {
            let number = part.trim_start_matches(|c: char| c.is_ascii_digit());
            let is_number = number.len() < part.len() && number.starts_with(". ");
            // A manual's headings begin with =, as in =item.
            let is_heading = part.starts_with(['#', '=']);
            if is_heading || is_number || part.starts_with(['-', '*']) || !is_open {
                let text =
                    if is_number { &number[2..] } else { part.trim_start_matches(['#', '-', '*', ' ']) };
                units.push(Unit { line, text: text.to_owned(), is_cell: false });
            } else if let Some(unit) = units.last_mut() {
                unit.text = format!("{}\n{part}", unit.text);
            }
            is_open = !is_heading;
        }
    }
    for unit in &mut units {
        unit.text = without_marks(&unit.text);
    }
    units
}

/// Removes the marks of emphasis and the targets of links; a span of code becomes one word.
fn without_marks(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for (number, span) in text.split('`').enumerate() {
        if number % 2 == 1 {
            let code = span.replace(' ', "\u{a0}").replace('|', "\u{a6}");
            clean.extend(["`", &code, "`"]);
            continue;
        }
        let mut rest = span;
        while let Some((before, behind)) = rest.split_once("](") {
            clean.push_str(before);
            rest = behind.split_once(')').map_or("", |(_, rest)| rest);
        }
        clean.push_str(rest);
    }
    clean.replace("**", "").replace(['[', ']'], "")
}

/// Removes the spans of code; a span that is not closed stays.
fn without_code(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('`') {
        let Some((_, after)) = behind.split_once('`') else { break };
        clean.push_str(before);
        rest = after;
    }
    clean + rest
}

/// A word, and how many line breaks stand before it in its unit.
type Word<'a> = (usize, &'a str);

/// Divides a unit into sentences, each of words.
fn sentences(unit: &Unit) -> Vec<Vec<Word<'_>>> {
    let words: Vec<Word<'_>> = unit
        .text
        .split('\n')
        .enumerate()
        .flat_map(|(line, text)| {
            text.split(' ').filter(|word| !word.is_empty()).map(move |word| (line, word))
        })
        .collect();
    let mut sentences = vec![Vec::new()];
    for (number, word) in words.iter().enumerate() {
        sentences.last_mut().expect("there is one").push(*word);
        let is_end = word.1.trim_end_matches(['"', ')']).ends_with(['.', '!', '?']);
        // What goes on in small letters is an abbreviation's sentence.
        let goes_on = words.get(number + 1).is_none_or(|next| next.1.starts_with(char::is_lowercase));
        if is_end && !goes_on {
            sentences.push(Vec::new());
        }
    }
    sentences
}

fn text_of(words: &[Word<'_>]) -> String {
    words.iter().map(|word| word.1).collect::<Vec<_>>().join(" ")
}

/// Returns whether a word counts: marks between words do not.
fn counts(word: &&Word<'_>) -> bool {
    word.1.contains(char::is_alphanumeric)
}

fn check_sentences(findings: &mut Vec<Finding>, unit: &Unit, place: impl Fn(usize) -> String) {
    check_lengths(findings, unit, &place);
    check_words(findings, unit, place);
}

/// Checks how many words and how many ideas a sentence has.
fn check_lengths(findings: &mut Vec<Finding>, unit: &Unit, place: impl Fn(usize) -> String) {
    for sentence in sentences(unit) {
        let Some(first) = sentence.first() else { continue };
        let here = place(unit.line + first.0);
        let is_pause = |word: &Word<'_>| word.1.ends_with([':', ';']);
        for part in sentence.split_inclusive(is_pause) {
            let number = part.iter().filter(counts).count();
            if number > WORDS {
                let expected = format!("at most {WORDS} words, not {number}");
                findings.push(finding(here.clone(), "sentence", &text_of(part), expected));
            }
        }
        if sentence.iter().filter(|word| is_pause(word)).count() > 1 {
            let expected = "at most one colon or semicolon in a sentence".to_owned();
            findings.push(finding(here.clone(), "ideas", &text_of(&sentence), expected));
        }
    }
}

/// Checks what a sentence begins with, and its phrases.
fn check_words(findings: &mut Vec<Finding>, unit: &Unit, place: impl Fn(usize) -> String) {
    for sentence in sentences(unit) {
        let (Some(first), Some(last)) = (sentence.first(), sentence.last()) else { continue };
        let is_title = !last.1.ends_with(['.', ':', '?']);
        if CLAUSES.contains(&first.1.to_lowercase().as_str()) && !last.1.ends_with('?') && !is_title {
            let expected = "a noun of the field as the subject".to_owned();
            findings.push(finding(place(unit.line + first.0), "subject", &text_of(&sentence), expected));
        }
    }
    check_phrases(findings, PHRASES, unit, &place);
    check_phrases(findings, PHRASES_OF_PAGES, unit, &place);
}

fn check_phrases(
    findings: &mut Vec<Finding>,
    phrases: &[Phrase],
    unit: &Unit,
    place: impl Fn(usize) -> String,
) {
    for sentence in sentences(unit) {
        let plain = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '`').to_lowercase();
        let words: Vec<String> = sentence.iter().map(|word| plain(word.1)).collect();
        for phrase in phrases {
            let sought: Vec<&str> = phrase.words.split(' ').collect();
            for (start, part) in words.windows(sought.len()).enumerate() {
                if !part.iter().eq(&sought) {
                    continue;
                }
                // A mark between words divides them.
                let words_of = &sentence[start..start + sought.len()];
                let is_divided = words_of.windows(2).any(|pair| {
                    pair[0].1.ends_with([',', ';', ':', '"', ')']) || pair[1].1.starts_with(['"', '('])
                });
                let before = start.checked_sub(1).map_or("", |before| &words[before]);
                let behind = words.get(start + sought.len()).map_or("", |behind| behind);
                let is_good =
                    phrase.unless_before.contains(&before) || phrase.unless_behind.contains(&behind);
                if !is_divided && !is_good {
                    let from = start.saturating_sub(4);
                    let until = (start + sought.len() + 4).min(sentence.len());
                    let text: Vec<&str> = sentence[from..until].iter().map(|word| word.1).collect();
                    let place = place(unit.line + sentence[start].0);
                    findings.push(finding(place, "phrase", &text.join(" "), phrase.expected.to_owned()));
                }
            }
        }
    }
}

fn finding(place: String, rule: &'static str, text: &str, expected: String) -> Finding {
    Finding { place, rule, text: text.replace(['\n', '\u{a0}'], " "), expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rules that a page breaks.
    fn rules(page: &str) -> Vec<&'static str> {
        in_page("x.md", page).into_iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn each_rule_finds_a_bad_sentence_and_passes_a_good_one() {
        let words = |count: usize| format!("A{}.", " w".repeat(count - 1));
        let cell = |length: usize| format!("| {} |", "x".repeat(length));
        let cases = [
            ("line", "word ".repeat(20) + "ending", "word ".repeat(20)),
            ("cell", cell(81), cell(80)),
            ("cell", format!("| `x` {} |", "x".repeat(80)), format!("| `{}` x |", "x".repeat(80))),
            ("sentence", words(26), words(25)),
            ("ideas", "One: two; three.".to_owned(), "One: two. Three; four.".to_owned()),
            ("subject", "What is left goes to Linux.".to_owned(), "What is left for Linux?".to_owned()),
            ("phrase", "The port is no bond.".to_owned(), "There is no bond.".to_owned()),
            ("phrase", "No\nlonger prefix matches.".to_owned(), "It no longer matches.".to_owned()),
            ("phrase", "The router is told.".to_owned(), "`the router is told`".to_owned()),
            ("phrase", "The page says how.".to_owned(), "The page describes how.".to_owned()),
        ];
        for (rule, bad, good) in cases {
            assert_eq!(rules(&bad), [rule], "{bad}");
            assert_eq!(rules(&good), [""; 0], "{good}");
        }
    }

    #[test]
    fn a_page_is_divided_as_it_is_read() {
        let texts = |page: &str| -> Vec<String> { units(page).into_iter().map(|unit| unit.text).collect() };
        assert_eq!(texts("# A\nb\nc\n- d\n  e\n1. f\n\ng"), ["A", "b\nc", "d\ne", "f", "g"]);
        assert_eq!(texts("| a | `b | c` |\n| --- | --- |"), ["a", "`b\u{a0}\u{a6}\u{a0}c`"]);
        assert_eq!(texts("**Bold** [text](a.md)"), ["Bold text"]);
        assert_eq!(texts("```\ncode. Is free;\n```\nread"), ["read"]);
        assert_eq!(texts("[x]: https://example.com"), [""; 0]);
        // What follows in small letters belongs to the sentence, and so does code with a stop in it.
        assert_eq!(rules(&format!("See `a. b`{}.", " w".repeat(23))), [""; 0]);
        assert_eq!(rules(&format!("Ports, e.g. some{}.", " w".repeat(23))), ["sentence"]);
        // A command is not broken over lines.
        assert_eq!(rules(&format!("`{}`.", "word ".repeat(30))), [""; 0]);
    }

    #[test]
    fn comments_and_messages_of_sources_are_read() {
        let source = r##"
//! Whoever.
/// It is told.
fn code() { bail!("'{name}': \"x\" is no \
    port"); let c = '"'; r#"whoever"#; } // whoever
#[cfg(test)]
mod tests {
    const BAD: &str = "whoever";
"##;
        let found = in_source("x.rs", source);
        let places: Vec<_> = found.iter().map(|finding| finding.place.as_str()).collect();
        assert_eq!(places, ["x.rs:2", "x.rs:3", "x.rs:4", "x.rs:5"], "{found:?}");
    }

    #[test]
    fn of_manuals_the_sentences_of_prose_count() {
        let rules = |text: &str| -> Vec<&'static str> {
            let lines: Vec<String> = text.lines().map(|line| format!("//! {line}\n")).collect();
            in_source("x.rs", &lines.concat()).into_iter().map(|finding| finding.rule).collect()
        };
        let long = "word ".repeat(30);
        assert_eq!(rules(&format!("=c\nX({long})\n=d\n{long}")), ["sentence"]);
        assert_eq!(rules(&format!("=c\nX\n=d\n=item A\n{long}")), ["sentence"]);
        assert_eq!(rules(&format!("=c\nX\n=d\n  {long}\n=e\n{long}\n=a {long}\n{long}")), [""; 0]);
        assert_eq!(rules(&format!("=c\nX\n=d\nRun C<{long}>.")), [""; 0]);
        assert_eq!(rules("=c\nX\n=d\nNo manual: it; is."), ["ideas"]);
        // A source without a manual is free to go on.
        assert_eq!(rules(&long), [""; 0]);
        let half = "word ".repeat(20);
        assert_eq!(rules(&format!("=c\nX\n=d\n=over 4\n{half}\n=item A\n{half}\n=back\n{half}")), [""; 0]);
    }

    #[test]
    fn of_help_texts_the_sentences_count() {
        let rules = |text: &str| -> Vec<&'static str> {
            in_help("x --help", text).into_iter().map(|finding| finding.rule).collect()
        };
        let long = "word ".repeat(30);
        assert_eq!(rules(&format!("Does it.\n\n{long}")), ["sentence"]);
        assert_eq!(rules(&format!("Examples:\n  x {long}\nport   {long}")), [""; 0]);
    }

    fn expect_none(findings: &[Finding]) {
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "{} findings:\n{}", lines.len(), lines.join("\n"));
    }

    #[test]
    fn pages_follow_the_rules() {
        expect_none(&in_pages());
    }

    #[test]
    fn comments_and_messages_follow_the_rules() {
        expect_none(&in_sources());
    }
}
