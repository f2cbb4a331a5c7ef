//! Tests of `brickway click` as text: a shell script, files, and what comes out. Each file in `tests/click` is one that a
//! network engineer can write and read; this file runs them all. The format is that of Click's own regression tests. Another
//! folder's, where their patterns are such as this program's regular expressions: `CLICK_TESTS=~/click/test cargo test -p brickway --test click -- --nocapture`.
//!
//! A file is a list of sections. A section begins with `%` at the start of a line:
//!
//! | section | meaning |
//! | --- | --- |
//! | `%info` | what is tested, in words |
//! | `%require` | a shell script; where it fails the test is left out |
//! | `%script` | the shell script that is run, in an empty folder; `click` is `brickway click` |
//! | `%file NAME...` | what is in these files before |
//! | `%stdin` | the script's standard input |
//! | `%expect NAME...` | what is in these files afterwards; `stdout` and `stderr` are what the script printed |
//! | `%expectx NAME...` | the same, each line being a regular expression |
//! | `%expectv NAME...` | the same, to the letter |
//! | `%ignore NAME...` | lines of these files (of all, without a name) that fit one of these regular expressions do not count; `%ignorex` too |
//! | `%ignorev NAME...` | lines that are one of these do not count |
//! | `%eot`, `%eof` | the end; what follows is not looked at |
//!
//! In an `%expect`, `{{...}}` is a regular expression within the line. Space at the ends of lines and empty lines at the end do
//! not count, except with `%expectv`. A name with `-a` before it adds another text that would be right too.
//!
//! `CLICK=script cargo test -p brickway --test click` runs the files whose names contain `script`.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use regex::Regex;

/// Longest time for one script.
const LONGEST: Duration = Duration::from_secs(60);

struct Section {
    word: String,
    names: Vec<String>,
    body: String,
}

fn sections(text: &str) -> Vec<Section> {
    let mut all: Vec<Section> = Vec::new();
    for line in text.split_inclusive('\n') {
        let Some(heading) = line.strip_prefix('%') else {
            if let Some(section) = all.last_mut() {
                section.body.push_str(line);
            }
            continue;
        };
        let mut words = heading.split_whitespace().map(str::to_owned);
        let word = words.next().unwrap_or_default();
        if word == "eot" || word == "eof" {
            break;
        }
        all.push(Section { word, names: words.collect(), body: String::new() });
    }
    all
}

/// A text that a file may have, and how strictly.
struct Expected<'t> {
    section: &'t Section,
    text: &'t str,
}

impl Expected<'_> {
    /// The first difference, if there is one.
    fn difference(&self, actual: &str, ignored: &[&Section]) -> Option<String> {
        if self.section.word == "expectv" {
            return (actual != self.text).then(|| "it is different".to_owned());
        }
        let ignored: Vec<(bool, &str)> = ignored
            .iter()
            .flat_map(|section| section.body.lines().map(|line| (section.word == "ignorev", line.trim_end())))
            .filter(|(_, line)| !line.is_empty())
            .collect();
        let counts = |line: &&str| {
            !ignored.iter().any(|(is_literal, pattern)| match is_literal {
                true => line.trim_end() == *pattern,
                false => whole(pattern).is_match(line.trim_end()),
            })
        };
        let lines = |text: &str| -> Vec<String> {
            let mut lines: Vec<String> =
                text.lines().filter(counts).map(|line| line.trim_end().to_owned()).collect();
            while lines.last().is_some_and(String::is_empty) {
                lines.pop();
            }
            lines
        };
        let (actual, expected) = (lines(actual), lines(self.text));
        for number in 0..actual.len().max(expected.len()) {
            let (Some(actual), Some(expected)) = (actual.get(number), expected.get(number)) else {
                return Some(format!(
                    "line {}: expected {:?}, got {:?}",
                    number + 1,
                    expected.get(number),
                    actual.get(number)
                ));
            };
            let fits = match self.section.word.as_str() {
                "expectx" => whole(expected).is_match(actual),
                _ => expected == actual || with_patterns(expected).is_match(actual),
            };
            if !fits {
                return Some(format!("line {}: expected {expected:?}, got {actual:?}", number + 1));
            }
        }
        None
    }
}

fn whole(pattern: &str) -> Regex {
    Regex::new(&format!("^(?:{pattern})$")).unwrap_or_else(|error| panic!("{error}"))
}

/// A line that is as it is, but for `{{regular expressions}}`.
fn with_patterns(line: &str) -> Regex {
    let mut pattern = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((inner, behind)) = after.split_once("}}") else { break };
        pattern.push_str(&regex::escape(before));
        pattern.push_str(&format!("(?:{inner})"));
        rest = behind;
    }
    pattern.push_str(&regex::escape(rest));
    whole(&pattern)
}

/// A folder that goes when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("brickway-click-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a shell script; whether it succeeded, and what it printed.
fn shell(
    script: &str,
    folder: &Path,
    programs: &Path,
    input: &str,
) -> Result<(bool, String, String), String> {
    let input_file = folder.join(".stdin");
    std::fs::write(&input_file, input).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let mut child = Command::new("sh")
        .args(["-c", script])
        .current_dir(folder)
        .env("PATH", path)
        .env("LC_ALL", "C")
        .env_remove("CLICKPATH")
        .stdin(std::fs::File::open(&input_file).unwrap())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    std::fs::remove_file(&input_file).unwrap();
    fn reader(mut stream: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stream.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
    let (out, err) = (reader(child.stdout.take().unwrap()), reader(child.stderr.take().unwrap()));
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if begin.elapsed() > LONGEST {
            break None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    if status.is_none() {
        let group = rustix::process::Pid::from_child(&child);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = child.wait();
    }
    let (out, err) = (out.join().unwrap(), err.join().unwrap());
    match status {
        Some(status) => Ok((status.success(), out, err)),
        None => Err(format!("still running after {LONGEST:?}; it printed\n{out}{err}")),
    }
}

/// Runs a file; what is wrong if it fails, `Ok(false)` if it was left out.
fn run(file: &Path, programs: &Path, number: usize) -> Result<bool, String> {
    let text = String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned();
    let all = sections(&text);
    let folder = Folder::new(&number.to_string());
    let of = |word: &'static str| all.iter().filter(move |section| section.word == word);
    for section in of("file") {
        for name in &section.names {
            let path = folder.0.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, &section.body).unwrap();
        }
    }
    let input: String = of("stdin").map(|section| section.body.as_str()).collect();
    for section in of("require") {
        if !shell(&section.body, &folder.0, programs, "")?.0 {
            return Ok(false);
        }
    }
    let script: String = of("script").map(|section| section.body.as_str()).collect();
    let (_, out, err) = shell(&script, &folder.0, programs, &input)?;
    let content = |name: &str| match name {
        "stdout" => out.clone(),
        "stderr" => err.clone(),
        name => std::fs::read(folder.0.join(name)).map_or_else(
            |_| "(there is no such file)".into(),
            |bytes| String::from_utf8_lossy(&bytes).into_owned(),
        ),
    };
    let mut names: Vec<(&str, Vec<Expected<'_>>)> = Vec::new();
    for section in all.iter().filter(|section| section.word.starts_with("expect")) {
        for name in section.names.iter().filter(|name| !name.starts_with('-')) {
            let expected = Expected { section, text: &section.body };
            match names.iter_mut().find(|(known, _)| known == name) {
                Some((_, texts)) => texts.push(expected),
                None => names.push((name, vec![expected])),
            }
        }
    }
    for (name, texts) in names {
        let ignored: Vec<&Section> = all
            .iter()
            .filter(|section| section.word.starts_with("ignore"))
            .filter(|section| section.names.is_empty() || section.names.iter().any(|one| one == name))
            .collect();
        let actual = content(name);
        let differences: Vec<_> = texts.iter().map(|text| text.difference(&actual, &ignored)).collect();
        if differences.iter().all(Option::is_some) {
            let first = differences[0].as_deref().unwrap_or_default();
            return Err(format!("{name}: {first}\n--- {name} ---\n{actual}--- stderr ---\n{err}---"));
        }
    }
    Ok(true)
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        let kind = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if path.is_dir() {
            files(&path, found);
        } else if matches!(kind, "test" | "testie" | "clicktest") {
            found.push(path);
        }
    }
}

#[test]
fn all_files() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/click");
    let folder = std::env::var_os("CLICK_TESTS").map_or(own, PathBuf::from);
    let wanted = std::env::var("CLICK").unwrap_or_default();
    let mut all = Vec::new();
    files(&folder, &mut all);
    all.retain(|path| path.to_string_lossy().contains(&wanted));
    all.sort();
    let programs = Folder::new("programs");
    for name in ["click", "brickway"] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_brickway"), programs.0.join(name)).unwrap();
    }
    let (next, failed, left_out) = (AtomicUsize::new(0), Mutex::new(Vec::new()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(file) = all.get(number) else { return };
                    match run(file, &programs.0, number) {
                        Ok(true) => {}
                        Ok(false) => drop(left_out.fetch_add(1, Ordering::Relaxed)),
                        Err(story) => {
                            let name = file.strip_prefix(&folder).unwrap_or(file).display();
                            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                            failed.push(format!("{name}: {story}"));
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    println!("{} files, {} left out, {} failed", all.len(), left_out.into_inner(), failed.len());
    assert!(!all.is_empty(), "no files in {}", folder.display());
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
