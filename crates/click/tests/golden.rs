//! Golden tests: a configuration, packets in, packets out, compared to the byte. Each file `golden/*.golden` is a
//! story that a network engineer can write and read; this file runs them all.
//!
//! A golden file is a list of steps, done in their order. A step begins with `%` at the start of a line:
//!
//! | step | meaning |
//! | --- | --- |
//! | `%config` | begins a case; the lines below are a configuration with `TestInput` and `TestOutput` elements |
//! | `%example FILE [NAME=VALUE ...]` | begins a case: a file of `examples/`, each FromDevice being a TestInput and each ToDevice a TestOutput |
//! | `%in ELEMENT` | the packets below come out of this TestInput |
//! | `%out ELEMENT [MOST]` | exactly the packets below have arrived at this TestOutput, in this order; where it pulls, it now pulls all, or MOST packets |
//! | `%advance 1s` | time goes on (`s`, `ms`, `us`) |
//! | `%write ELEMENT.HANDLER VALUE` | writes a handler |
//! | `%read ELEMENT.HANDLER [ARGUMENT]` | reads a handler; the lines below are what it gives |
//! | `%drops ELEMENT REASON = COUNT` | so many packets were dropped there for this reason so far |
//! | `%burst N ...` | before the first case: run the file with bursts of these sizes only |
//!
//! At the end of a case no TestOutput may have packets that no `%out` named. Every file is run with bursts of 1, 3
//! and 32, and must give the same each time, unless `%burst` says otherwise; a burst of 1 gives Click's order.
//!
//! A packet begins with a hexadecimal digit at the start of a line; lines that begin with a space go on with it.
//! Space does not matter, `//` begins a comment, `XX*N` is N times the byte XX, and `??` in an expected packet is
//! any byte. Lines that begin with `//` are comments everywhere but in a configuration, where they are Click's.
//!
//! `GOLDEN=arp cargo test -p brickway-click --test golden` runs the files whose names contain `arp`.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use graph::lang::{Options, PortKind, Source, compile};
use graph::testing::Bench;

/// Bursts that a file is run with unless it names others.
const BURSTS: [usize; 3] = [1, 3, 32];

/// A step of a golden file.
struct Step {
    /// Its line, from 1.
    line: usize,
    /// Its first word, without the `%`.
    word: String,
    /// What follows on its line.
    rest: String,
    /// The lines below, up to the next step.
    body: Vec<String>,
}

/// What went wrong: the line of the step, and the story.
type Failure = (usize, String);

fn steps(text: &str) -> Result<Vec<Step>, Failure> {
    let mut steps: Vec<Step> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if let Some(step) = line.strip_prefix('%') {
            let (word, rest) = step.split_once(' ').unwrap_or((step, ""));
            // A configuration's comments are the language's; everywhere else a comment ends the line.
            let rest = rest.split("//").next().unwrap_or("").trim();
            steps.push(Step { line: number + 1, word: word.into(), rest: rest.into(), body: Vec::new() });
        } else if let Some(step) = steps.last_mut() {
            step.body.push(line.to_owned());
        } else if !line.trim().is_empty() && !line.starts_with("//") {
            return Err((
                number + 1,
                "the file begins with a step, such as %config, or with comments".into(),
            ));
        }
    }
    Ok(steps)
}

/// A packet of a file; `None` is any byte.
type Pattern = Vec<Option<u8>>;

/// The packets below a step.
fn packets(step: &Step) -> Result<Vec<Pattern>, Failure> {
    let mut packets: Vec<Pattern> = Vec::new();
    for (offset, line) in step.body.iter().enumerate() {
        let failed = |text: String| (step.line + 1 + offset, text);
        let bytes = line.split("//").next().unwrap_or("");
        if bytes.trim().is_empty() {
            continue;
        }
        if !bytes.starts_with(char::is_whitespace) {
            packets.push(Pattern::new());
        }
        let packet = packets.last_mut().ok_or_else(|| {
            failed(
                "a packet begins at the start of the line; only lines that go on with it are indented".into(),
            )
        })?;
        for word in bytes.split_whitespace() {
            let (digits, times) = match word.split_once('*') {
                Some((digits, times)) => {
                    let times = times.parse().ok().filter(|times| *times <= 65_536usize);
                    (digits, times.ok_or_else(|| failed(format!("'{word}' is not of the form XX*COUNT")))?)
                }
                None => (word, 1),
            };
            let mut run = Pattern::new();
            if !digits.is_ascii() || digits.len() % 2 != 0 {
                return Err(failed(format!("'{word}' is not a number of whole bytes in hexadecimal")));
            }
            for at in (0..digits.len()).step_by(2) {
                let pair = &digits[at..at + 2];
                run.push(match pair {
                    "??" => None,
                    _ => Some(
                        u8::from_str_radix(pair, 16)
                            .map_err(|_| failed(format!("'{pair}' in '{word}' is no byte in hexadecimal")))?,
                    ),
                });
            }
            packet.extend(run.repeat(times));
        }
    }
    Ok(packets)
}

/// Nanoseconds of `1s`, `20ms`, `5us`.
fn duration_ns(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "s" => 1_000_000_000,
        "ms" => 1_000_000,
        "us" => 1_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

/// Rows of 16 bytes; the one at `marked` stands in brackets.
fn hex(bytes: &[Option<u8>], marked: Option<usize>) -> String {
    let mut text = String::new();
    for (row, chunk) in bytes.chunks(16).enumerate() {
        text.push_str(&format!("    {:4} ", row * 16));
        for (column, byte) in chunk.iter().enumerate() {
            let at = row * 16 + column;
            let digits = byte.map_or("??".to_owned(), |byte| format!("{byte:02x}"));
            match marked {
                Some(mark) if mark == at => text.push_str(&format!("[{digits}]")),
                _ => text.push_str(&format!(" {digits} ")),
            }
        }
        text.push('\n');
    }
    if marked == Some(bytes.len()) {
        text.push_str("         [the end]\n");
    }
    text
}

/// Compares packets; the story of the first that differs.
fn compare(expected: &[Pattern], got: &[Vec<u8>]) -> Result<(), String> {
    for number in 0..expected.len().max(got.len()) {
        let (Some(pattern), Some(bytes)) = (expected.get(number), got.get(number)) else {
            let (title, packet) = match (expected.get(number), got.get(number)) {
                (Some(pattern), _) => ("expected", pattern.clone()),
                (_, Some(bytes)) => ("not expected", bytes.iter().copied().map(Some).collect()),
                (None, None) => continue,
            };
            return Err(format!(
                "expected {} packets, got {}; the first that is {title}{} is\n{}",
                expected.len(),
                got.len(),
                if title == "expected" { " and did not come" } else { "" },
                hex(&packet, None)
            ));
        };
        let same = |at: usize| match (pattern.get(at), bytes.get(at)) {
            (Some(None), Some(_)) => true,
            (Some(Some(wanted)), Some(byte)) => wanted == byte,
            (wanted, byte) => wanted.is_none() && byte.is_none(),
        };
        if let Some(at) = (0..pattern.len().max(bytes.len())).find(|&at| !same(at)) {
            let bytes: Pattern = bytes.iter().copied().map(Some).collect();
            return Err(format!(
                "packet {} of {} differs at byte {at}\n  expected {} bytes\n{}  got {} bytes\n{}",
                number + 1,
                expected.len(),
                pattern.len(),
                hex(pattern, Some(at)),
                bytes.len(),
                hex(&bytes, Some(at))
            ));
        }
    }
    Ok(())
}

/// The text of a file of `examples/` on one level, with test inputs and outputs in place of its ports.
fn example(step: &Step) -> Result<String, Failure> {
    let failed = |text: String| (step.line, text);
    let mut words = step.rest.split_whitespace();
    let name = words.next().unwrap_or_default();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let text = std::fs::read_to_string(&path).map_err(|error| failed(format!("examples/{name}: {error}")))?;
    let mut parameters = Vec::new();
    for word in words {
        let (variable, value) =
            word.split_once('=').ok_or_else(|| failed(format!("'{word}' is not of the form NAME=VALUE")))?;
        parameters.push((variable.to_owned(), value.to_owned()));
    }
    let source = Source { name: name.into(), text };
    let (flat, diagnostics) =
        compile(&source, &Options { parameters, ..Options::default() }, &click::registry());
    let Some(mut flat) = flat.filter(|_| !diagnostics.has_errors()) else {
        return Err(failed(diagnostics.render(false)));
    };
    for element in &mut flat.elements {
        let replacement = match element.class.as_str() {
            "FromDevice" => "TestInput",
            "ToDevice" => "TestOutput",
            _ => continue,
        };
        replacement.clone_into(&mut element.class);
        element.config.clear();
    }
    Ok(flat.flat_text())
}

/// The names of the elements of class TestOutput that are pushed to.
fn pushed_outputs(bench: &mut Bench) -> Vec<String> {
    let config = bench.graph().config().clone();
    let outputs = config.elements.iter().filter(|element| {
        element.class == "TestOutput" && element.input_kinds.first() == Some(&PortKind::Push)
    });
    outputs.map(|element| element.name.clone()).collect()
}

/// Takes what arrived at an output and was not compared before; pulls `most` packets first if it pulls.
fn arrived(bench: &mut Bench, output: &str, most: usize) -> Vec<Vec<u8>> {
    let config = bench.graph().config().clone();
    let pulls =
        config.find(output).is_some_and(|index| config.elements[index].input_kinds[0] == PortKind::Pull);
    let mut left = if pulls { most } else { 0 };
    while left > 0 {
        match bench.pull(output, left) {
            0 => break,
            count => left -= count,
        }
    }
    bench.taken(output)
}

/// Does one step of a case.
fn act(bench: &mut Bench, step: &Step) -> Result<(), Failure> {
    let failed = |text: String| (step.line, text);
    match step.word.as_str() {
        "in" => {
            let mut bytes: Vec<Vec<u8>> = Vec::new();
            for packet in packets(step)? {
                let whole: Option<Vec<u8>> = packet.into_iter().collect();
                bytes.push(whole.ok_or_else(|| failed("?? has no meaning in packets that come in".into()))?);
            }
            let slices: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
            bench.push(&step.rest, &slices);
            bench.run(1000);
        }
        "out" => {
            let (output, most) = match step.rest.split_once(' ') {
                Some((output, most)) => {
                    (output, most.trim().parse().map_err(|_| failed("%out ELEMENT [MOST]".into()))?)
                }
                None => (step.rest.as_str(), usize::MAX),
            };
            let expected = packets(step)?;
            compare(&expected, &arrived(bench, output, most))
                .map_err(|text| failed(format!("%out {output}: {text}")))?;
        }
        "advance" => {
            let ns = duration_ns(&step.rest)
                .ok_or_else(|| failed(format!("'{}' is no duration; expected 1s, 20ms or 5us", step.rest)))?;
            bench.advance_ns(ns);
        }
        "write" => {
            let (handler, value) = step.rest.split_once(' ').unwrap_or((&step.rest, ""));
            bench.write(handler, value).map_err(failed)?;
            bench.run(1000);
        }
        "read" => {
            let lines: Vec<&str> =
                step.body.iter().map(String::as_str).filter(|line| !line.starts_with("//")).collect();
            let (expected, got) = (lines.join("\n"), bench.read(&step.rest));
            if expected.trim() != got.trim() {
                return Err(failed(format!(
                    "%read {}\n  expected\n{}\n  got\n{}",
                    step.rest,
                    expected.trim(),
                    got.trim()
                )));
            }
        }
        "drops" => {
            let parts = step.rest.split_once(' ').and_then(|(element, rest)| {
                let (reason, count) = rest.rsplit_once('=')?;
                Some((element, reason.trim(), count.trim().parse::<u64>().ok()?))
            });
            let (element, reason, count) =
                parts.ok_or_else(|| failed("expected: %drops ELEMENT REASON = COUNT".into()))?;
            let got = bench.drops(element, reason);
            if got != count {
                let all = bench.stats(element).drops;
                return Err(failed(format!(
                    "%drops {element} {reason}: expected {count}, got {got}; all drops: {all:?}"
                )));
            }
        }
        word => return Err(failed(format!("there is no step %{word}"))),
    }
    Ok(())
}

/// What must hold where a case ends.
fn finish(bench: Option<&mut Bench>, line: usize) -> Result<(), Failure> {
    let Some(bench) = bench else { return Ok(()) };
    for output in pushed_outputs(bench) {
        compare(&[], &bench.taken(&output)).map_err(|text| {
            (line, format!("the case ends, and at '{output}' packets arrived that no %out named: {text}"))
        })?;
    }
    Ok(())
}

/// Runs the steps of a file with one burst.
fn run(steps: &[Step], burst: usize) -> Result<(), Failure> {
    let mut bench: Option<Bench> = None;
    let mut case_line = 1;
    for step in steps {
        let config = match step.word.as_str() {
            "burst" => continue,
            "config" => Some(step.body.join("\n")),
            "example" => Some(example(step)?),
            _ => None,
        };
        if let Some(config) = config {
            finish(bench.as_mut(), case_line)?;
            let made = Bench::try_new(&click::registry(), &config, burst, &Default::default());
            bench =
                Some(made.map_err(|text| (step.line, format!("the configuration has mistakes:\n{text}")))?);
            case_line = step.line;
            continue;
        }
        let bench = bench.as_mut().ok_or((step.line, "a case begins with %config or %example".to_owned()))?;
        // The bench panics when a name is wrong; the story still needs the file and line.
        catch_unwind(AssertUnwindSafe(|| act(bench, step))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            Err((
                step.line,
                text.or(panic.downcast_ref::<&str>().map(|text| (*text).into())).unwrap_or_default(),
            ))
        })?;
    }
    finish(bench.as_mut(), case_line)
}

/// Runs a file's text with all its bursts; the stories of what went wrong.
fn run_text(name: &str, text: &str) -> Vec<String> {
    let story = |line: usize, text: &str, burst: &str| format!("{name}:{line}:{burst} {text}");
    let steps = match steps(text) {
        Ok(steps) => steps,
        Err((line, text)) => return vec![story(line, &text, "")],
    };
    let named: Vec<usize> = steps
        .iter()
        .filter(|step| step.word == "burst")
        .flat_map(|step| step.rest.split_whitespace().map(|word| word.parse().unwrap()))
        .collect();
    // The same mistake with every burst is one mistake.
    let mut stories: BTreeMap<Failure, Vec<String>> = BTreeMap::new();
    for burst in if named.is_empty() { BURSTS.to_vec() } else { named } {
        if let Err(failure) = run(&steps, burst) {
            stories.entry(failure).or_default().push(burst.to_string());
        }
    }
    let told = stories.into_iter();
    told.map(|((line, text), bursts)| story(line, &text, &format!(" burst {}:", bursts.join(", ")))).collect()
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let wanted = std::env::var("GOLDEN").unwrap_or_default();
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.ends_with(".golden") && name.contains(&wanted)
    });
    files.sort();
    files
}

#[test]
fn golden_files() {
    let files = files();
    assert!(!files.is_empty(), "no golden file has this name");
    let mut stories = Vec::new();
    for path in &files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let told = run_text(&name, &std::fs::read_to_string(path).unwrap());
        println!("{name}: {}", if told.is_empty() { "ok" } else { "FAILED" });
        stories.extend(told);
    }
    assert!(stories.is_empty(), "{}", stories.join("\n"));
}

/// A case that passes, and the ways in which it could fail.
#[test]
fn the_runner_notices() {
    let config = "%config\nin :: TestInput -> c :: Counter -> Strip(2) -> out :: TestOutput;\n%in in\n0102 0a*2 // c\n  0b\n";
    let story = |steps: &str| run_text("x.golden", &format!("{config}{steps}")).join("\n");
    assert_eq!(story("%out out\n0a0a??\n%read c.count\n1\n%drops c a reason = 0\n"), "");
    for (steps, part) in [
        ("", "packets arrived that no %out named"),
        ("%out out\n", "expected 0 packets, got 1"),
        ("%out out\n0a0a0b\n0a\n", "expected 2 packets, got 1"),
        ("%out out\n0a0c0b\n", "differs at byte 1"),
        ("%out out\n0a0a\n", "differs at byte 2"),
        ("%out out\n0a0a0b0c\n", "[the end]"),
        ("%out out\n0a0a0b\n%read c.count\n2\n", "x.golden:8: burst 1, 3, 32: %read c.count"),
        ("%out out\n0a0a0b\n%drops c a reason = 1\n", "expected 1, got 0"),
        ("%out nowhere\n", "'nowhere'"),
        ("%out out\n0a0\n", "whole bytes"),
        ("%out out\n0a0g\n", "no byte"),
        ("%outs out\n", "no step %outs"),
        ("%advance 1h\n", "no duration"),
    ] {
        let told = story(steps);
        assert!(told.contains(part), "{steps:?} gave {told:?}");
    }
    assert!(run_text("x.golden", "%in a\n00\n").join("").contains("begins with %config"));
    assert!(run_text("x.golden", "%config\nNoSuch -> Discard;\n").join("").contains("NoSuch"));
    assert!(run_text("x.golden", "%example no-such.click\n").join("").contains("no-such.click"));
}
