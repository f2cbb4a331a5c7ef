//! The commands of the documents, run page by page as they stand there.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Output};

use testbed::documents::{commands_of, lost_lines, pages, remake};
use testbed::{Folder, is_root};

/// Commands that begin with these words have tests of their own, or take minutes: the demos, papers, figures of this machine, traffic.
const ELSEWHERE: [&str; 4] = ["demo", "paper", "gen", "bench io"];

/// What stands for words of the documents here, so that a test takes seconds: a table of a few routes, one turn of a bench.
const INSTEAD: [(&str, &str); 2] = [
    ("TABLE=data/rib-v4.txt.gz", "TABLE=small.txt"),
    ("bench forward", "bench forward --runs 1 --dests 1 --routes small.txt"),
];

/// A folder as pages take it for granted: the project's files, and a table of routes from a collector.
fn folder() -> Folder {
    let folder = Folder::new();
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    for name in ["data", "docs", "examples"] {
        std::os::unix::fs::symlink(project.join(name), folder.path().join(name)).unwrap();
    }
    let programs = folder.path().join("bin");
    std::fs::create_dir(&programs).unwrap();
    for program in ["brickway", "brickway-lab"] {
        let built = Path::new(env!("CARGO_BIN_EXE_brickway-lab")).with_file_name(program);
        std::os::unix::fs::symlink(built, programs.join(program)).unwrap();
    }
    let prepared = shell(
        &folder,
        "zcat data/rib-v4.txt.gz | head -3000 > small.txt; ip route > before.txt
         (zcat data/rib-v4.txt.gz; echo 192.0.2.0/24 64500) | gzip -1 > rib.mrt.bz2",
    );
    assert!(prepared.status.success(), "{prepared:?}");
    folder
}

fn shell(folder: &Folder, line: &str) -> Output {
    let line = format!("cd {}; export PATH=$PWD/bin:$PATH; {line}", folder.path().display());
    Command::new("bash").args(["-c", &line]).output().unwrap()
}

#[test]
fn commands_in_documents_do_what_they_are_there_for() {
    let folder = folder();
    let (mut outputs, mut wrong) = (Vec::new(), String::new());
    for command in commands_of("brickway-lab") {
        let text = command.words[1..].join(" ");
        let is_others = ["netns", "perf "].iter().any(|word| command.line.contains(word));
        if !command.is_whole || is_others || ELSEWHERE.iter().any(|start| text.starts_with(start)) {
            continue;
        }
        let line =
            INSTEAD.iter().fold(command.line.clone(), |line, (words, others)| line.replace(words, others));
        let output = shell(&folder, &line);
        let printed = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let _ = write!(wrong, "{}: `{line}` printed:\n{printed}\n{output:?}\n", command.place);
        }
        for lost in lost_lines(&command.printed, &printed) {
            let _ = write!(wrong, "{}: `{line}` has no line as '{lost}':\n{printed}\n", command.place);
        }
        outputs.push((command, printed.into_owned()));
    }
    assert!(wrong.is_empty() && outputs.len() >= 12, "{} commands\n{wrong}", outputs.len());
    remake(&outputs);
}

/// A page that makes its own namespaces is run as a whole, in a place where nobody else's have its names.
#[test]
fn the_page_on_the_laboratory_measures_linux_and_the_router() {
    if !is_root() {
        return;
    }
    let page = &pages()[Path::new("docs/lab.md")];
    let block = page.split("```").find(|block| block.contains("ip netns add hosts")).unwrap();
    let folder = folder();
    std::fs::write(folder.path().join("page.sh"), block).unwrap();
    let alone = "unshare --mount sh -c 'mount --make-rprivate / && mkdir -p /run/netns && mount -t tmpfs none /run/netns && exec bash -e page.sh'";
    let output = shell(&folder, alone);
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    assert_eq!(printed.matches(" runs with ").count(), 2, "two routers:\n{printed}");
    assert!(printed.matches("lost").count() >= 3, "three measurements:\n{printed}");
}
