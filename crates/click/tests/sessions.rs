//! Tests of `brickway click` as text: a shell script, files, and what comes out. Each file in `tests/sessions` is one that a
//! network engineer can write and read; this file runs them all, and sees that each element is in one.
//!
//! A file is a list of sections. A section begins with `%` at the start of a line:
//!
//! | section | meaning |
//! | --- | --- |
//! | `%info` | what is tested, in words |
//! | `%require` | a shell script; where it fails the test is left out |
//! | `%script` | the shell script that is run, in an empty folder; `click` is `brickway click` |
//! | `%file NAME...` | what is in these files before |
//! | `%stdin`, `%file stdin` | the script's standard input |
//! | `%expect NAME...` | what is in these files afterwards; `stdout` and `stderr` are what the script printed |
//! | `%expectx NAME...` | the same, each line being a regular expression |
//! | `%expectv NAME...` | the same, to the letter |
//! | `%ignorex NAME...` | lines of these files (of all, without a name) that fit one of these regular expressions do not count |
//! | `%ignore NAME...`, `%ignorev NAME...` | lines that are one of these do not count |
//! | `%eot`, `%eof` | the end; what follows is not looked at |
//!
//! In an `%expect` or `%ignore`, `{{...}}` is a regular expression within the line, and `{{?...}}` a comment. Space at the ends of lines and
//! empty lines do not count, except with `%expectv`. A line of a text that begins with `\%` begins with `%`. A second text for
//! a file, usually with `-a` before its name, is one that would be right too; with `+N` the text is N bytes long.
//!
//! This is the format of Click's own regression tests, as far as those of Click's elements use it: `CLICK_TESTS=~/click/test
//! cargo test -p brickway-click --test sessions` runs another folder's files. Of `.testie` and `.clicktest` files the script must succeed
//! too, each command of it, as there; in ours `echo $?` says where that matters. Not understood are `%include`, data in
//! base64 (`-d`), texts without regard to case or space (`-i`, `-w`), and what Perl's patterns have beyond regular
//! expressions: a test with such a pattern fails and says so.
//!
//! `CLICK=script cargo test -p brickway-click --test sessions` runs the files whose names contain `script`.

#![allow(clippy::unwrap_used, reason = "a test")]

mod patterns;

use packet::sync::lock;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use graph::graph::Registry;
use graph::lang::{self, Connection, FlatConfig, FlatElement, Source};
use patterns::{whole, with_patterns};
use testbed::Folder;

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
                section
                    .body
                    .push_str(line.strip_prefix('\\').filter(|line| line.starts_with('%')).unwrap_or(line));
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
    for section in &mut all {
        let length = section.names.iter().find_map(|name| name.strip_prefix('+')?.parse().ok());
        if let Some(length) = length.filter(|&length| section.body.is_char_boundary(length)) {
            section.body.truncate(length);
        }
        section.names.retain(|name| !name.starts_with(['-', '+']));
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
        match self.lines(actual, ignored) {
            Ok(difference) => difference,
            Err(mistake) => Some(mistake),
        }
    }

    /// The first difference between lines that count.
    fn lines(&self, actual: &str, ignored: &[&Section]) -> Result<Option<String>, String> {
        let (mut patterns, mut literal) = (Vec::new(), Vec::new());
        for section in ignored {
            for line in section.body.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
                match section.word.as_str() {
                    "ignorev" => literal.push(line),
                    "ignorex" => patterns.push(whole(line)?),
                    _ => patterns.push(with_patterns(line)?),
                }
            }
        }
        let counts = |line: &&str| {
            !line.is_empty()
                && !literal.contains(line)
                && !patterns.iter().any(|pattern| pattern.is_match(line))
        };
        let mut actual = actual.lines().map(str::trim_end).filter(counts);
        let mut expected = self.text.lines().map(str::trim_end).filter(|line| !line.is_empty());
        for number in 1.. {
            let (actual, expected) = match (actual.next(), expected.next()) {
                (None, None) => break,
                (Some(actual), Some(expected)) => (actual, expected),
                (actual, expected) => {
                    return Ok(Some(format!("line {number}: expected {expected:?}, got {actual:?}")));
                }
            };
            let fits = match self.section.word.as_str() {
                "expectx" => whole(expected)?.is_match(actual),
                _ => expected == actual || with_patterns(expected)?.is_match(actual),
            };
            if !fits {
                return Ok(Some(format!("line {number}: expected {expected:?}, got {actual:?}")));
            }
        }
        Ok(None)
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
fn run(file: &Path, programs: &Path) -> Result<bool, String> {
    let text = String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned();
    let all = sections(&text);
    let folder = Folder::new();
    let of = |word: &'static str| all.iter().filter(move |section| section.word == word);
    for section in of("file") {
        for name in &section.names {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, &section.body).unwrap();
        }
    }
    // `%file stdin` is the standard input too.
    let is_input = |section: &&Section| {
        section.word == "stdin"
            || (section.word == "file" && section.names.iter().any(|name| name == "stdin"))
    };
    let input: String = all.iter().filter(is_input).map(|section| section.body.as_str()).collect();
    for section in of("require") {
        if !shell(&section.body, folder.path(), programs, "")?.0 {
            return Ok(false);
        }
    }
    let script: String = of("script").map(|section| section.body.as_str()).collect();
    let is_clicks = file.extension().is_some_and(|extension| extension != "test");
    let script = if is_clicks { format!("set -e\n{script}") } else { script };
    let (succeeded, out, err) = shell(&script, folder.path(), programs, &input)?;
    let content = |name: &str| match name {
        "stdout" => out.clone(),
        "stderr" => err.clone(),
        name => std::fs::read(folder.path().join(name)).map_or_else(
            |_| "(there is no such file)".into(),
            |bytes| String::from_utf8_lossy(&bytes).into_owned(),
        ),
    };
    let mut names: Vec<(&str, Vec<Expected<'_>>)> = Vec::new();
    for section in all.iter().filter(|section| section.word.starts_with("expect")) {
        for name in &section.names {
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
    if is_clicks && !succeeded {
        return Err(format!("the script failed\n--- stdout ---\n{out}--- stderr ---\n{err}---"));
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

/// This folder's tests.
fn own_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sessions")
}

#[test]
fn all_files() {
    let folder = std::env::var_os("CLICK_TESTS").map_or_else(own_folder, PathBuf::from);
    let wanted = std::env::var("CLICK").unwrap_or_default();
    let mut all = Vec::new();
    files(&folder, &mut all);
    all.retain(|path| path.to_string_lossy().contains(&wanted));
    all.sort();
    let programs = Folder::new();
    for name in ["click", "brickway"] {
        std::os::unix::fs::symlink(testbed::program("brickway"), programs.path().join(name)).unwrap();
    }
    let (next, failed, left_out) = (AtomicUsize::new(0), Mutex::new(Vec::new()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(file) = all.get(number) else { return };
                    match run(file, programs.path()) {
                        Ok(true) => {}
                        Ok(false) => drop(left_out.fetch_add(1, Ordering::Relaxed)),
                        Err(story) => {
                            let name = file.strip_prefix(&folder).unwrap_or(file).display();
                            let mut failed = lock(&failed);
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

/// The texts in a file that may be configurations: files, and what is in quotes in scripts, files that are scripts
/// included. A variable over which the shell loops has each of its values.
fn texts(sections: &[Section]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for section in sections.iter().filter(|section| matches!(section.word.as_str(), "script" | "file")) {
        // A quotation mark behind a backslash ends nothing.
        const INNER: &str = "\u{1}";
        let body = section.body.replace("\\\"", INNER);
        let body = body.as_str();
        // Parts outside of quotes too: these are not configurations.
        let quoted = ['\'', '"'].into_iter().flat_map(|mark| body.split(mark));
        for text in std::iter::once(body).chain(quoted) {
            let text = text.replace(INNER, "\"").replace("\\$", "$");
            let expanded = loops(body).flat_map(|(variable, values)| {
                let uses = text.contains(&format!("${variable}"));
                let values = values.into_iter().filter(move |_| uses);
                values.map(|value| text.replace(&format!("${variable}"), value)).collect::<Vec<_>>()
            });
            all.extend(expanded);
            all.insert(text);
        }
    }
    all
}

/// The loops of a script: their variables and values.
fn loops(script: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    script.lines().filter_map(|line| {
        let (variable, rest) = line.trim().strip_prefix("for ")?.split_once(" in ")?;
        Some((variable, rest.split(';').next()?.split_whitespace().collect()))
    })
}

/// The elements of `config` that packets reach, or that have no inputs.
fn reached(config: &FlatConfig) -> impl Iterator<Item = &FlatElement> {
    let is_source = |element: &FlatElement| element.inputs == 0 && element.class != "Idle";
    let mut reached: BTreeSet<usize> =
        (0..config.elements.len()).filter(|&index| is_source(&config.elements[index])).collect();
    loop {
        let from = |connection: &&Connection| reached.contains(&connection.from.0);
        let next: Vec<usize> =
            config.connections.iter().filter(from).map(|connection| connection.to.0).collect();
        let before = reached.len();
        reached.extend(next);
        if reached.len() == before {
            return reached.into_iter().map(|index| &config.elements[index]);
        }
    }
}

/// The classes that a file tests: packets reach an element of theirs, and it stands in more of the file's configurations
/// than the file expects to be refused for its sake.
fn tested(sections: &[Section], registry: &Registry) -> BTreeSet<String> {
    let options = lang::Options { ports_last: true, ..lang::Options::default() };
    let titles = |element: &FlatElement| format!("While configuring '{} :: {}'", element.name, element.class);
    let (mut standing, mut at_work) = (Vec::new(), BTreeMap::new());
    for text in texts(sections) {
        let source = Source { name: "config".into(), text };
        let (config, diagnostics) = lang::compile(&source, &options, registry);
        if let Some(config) = config.filter(|_| !diagnostics.has_errors()) {
            standing.extend(config.elements.iter().map(titles));
            at_work.extend(reached(&config).map(|element| (titles(element), element.class.clone())));
        }
    }
    let errors = sections.iter().filter(|section| section.names.iter().any(|name| name == "stderr"));
    let errors: String = errors.map(|section| section.body.as_str()).collect();
    let is_right = |title: &String| {
        standing.iter().filter(|known| *known == title).count() > errors.matches(title.as_str()).count()
    };
    at_work.into_iter().filter(|(title, _)| is_right(title)).map(|(_, class)| class).collect()
}

/// Elements that no text can test, and why.
const WITHOUT_A_TEST: [(&str, &str); 3] = [
    ("Error", "a configuration with it is always refused"),
    ("FabricHost", "only a cluster has its ports; tests/cluster.rs sends packets through it"),
    ("FromFabric", "only a cluster has its next hops; tests/cluster.rs sends packets through it"),
];

#[test]
fn every_element_has_a_test_with_packets_through_it() {
    let mut all = Vec::new();
    files(&own_folder(), &mut all);
    let registry = click::registry();
    let is_ours = |file: &&PathBuf| file.extension().is_some_and(|extension| extension == "test");
    let tested: BTreeSet<String> = all
        .iter()
        .filter(is_ours)
        .flat_map(|file| tested(&sections(&std::fs::read_to_string(file).unwrap()), &registry))
        .collect();
    let excepted = |name: &str| WITHOUT_A_TEST.iter().any(|(class, _)| *class == name);
    let missing: Vec<_> = registry
        .classes()
        .map(|(name, _)| name)
        .filter(|name| !tested.contains(*name) && !excepted(name))
        .collect();
    assert!(
        missing.is_empty(),
        "elements without a test in {}: {}",
        own_folder().display(),
        missing.join(", ")
    );
    for (class, _) in WITHOUT_A_TEST {
        assert!(
            registry.class(class).is_some() && !tested.contains(class),
            "{class} is no exception any more"
        );
    }
}
