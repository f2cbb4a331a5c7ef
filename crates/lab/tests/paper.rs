//! `brickway-lab paper` as people meet it. What is the same on every machine runs here; what is measured has its own figures.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::Command;

use serde_json::Value;
use testbed::Folder;

/// Exit code, standard output, standard error.
fn paper(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_brickway-lab"));
    let output = command.arg("paper").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

fn rows(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn what_does_not_hold_without_a_machine_is_explained() {
    let folder = Folder::new();
    let out_folder = folder.file("papers");
    let (code, out, err) = paper(&["all", "--exact", "--quick", "--json", "--out", &out_folder]);
    assert_eq!(code, 3, "{err}");
    let outcomes = rows(&out);
    let claims = || outcomes.iter().flat_map(|outcome| outcome["claims"].as_array().unwrap());
    assert!(claims().filter(|claim| claim["holds"] == true).count() > 30, "{out}");
    for claim in claims().filter(|claim| claim["holds"] == false) {
        assert!(claim["why"].as_str().is_some_and(|why| !why.is_empty()), "{claim}");
    }
    // The same again, from its results.
    let results = format!("{out_folder}/results.jsonl");
    let again = folder.file("again");
    let (code, printed, _) = paper(&["all", "--from", &results, "--out", &again, "--json"]);
    assert!(code == 3 && printed == out);
    let file = |folder: &str, name: &str| std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
    for name in ["README.md", "rb-fig3.svg", "results.jsonl"] {
        assert!(file(&out_folder, name) == file(&again, name), "{name}");
    }
    assert!(file(&again, "README.md").contains("![rb-fig3](rb-fig3.svg)"));
    // Verdicts of the file do not count: its numbers are judged.
    let turned = folder.file("turned.jsonl");
    let text = std::fs::read_to_string(&results).unwrap();
    assert!(text.contains(r#""holds":false"#));
    std::fs::write(&turned, text.replace(r#""holds":false"#, r#""holds":true"#)).unwrap();
    let (code, judged, _) = paper(&["all", "--from", &turned, "--json"]);
    assert!(code == 3 && judged == out);
    // One more experiment leaves the others in the folder.
    assert_eq!(paper(&["mr-table3", "--out", &again]).0, 0);
    assert!(file(&again, "results.jsonl") == file(&out_folder, "results.jsonl"));
}

#[test]
fn every_paper_is_listed() {
    let (code, out, _) = paper(&["--list", "--json"]);
    assert_eq!(code, 0);
    for name in ["rb-", "nic-", "mr-", "sc-", "pc-"] {
        assert!(rows(&out).iter().any(|row| row["id"].as_str().unwrap().starts_with(name)), "{name}");
    }
    let (_, text, _) = paper(&["--list"]);
    assert!(text.contains("rb-fig3") && text.contains("left out"), "{text}");
}

/// With one worker there is nothing to compare, which is said and no mistake.
#[test]
fn what_takes_two_workers_is_left_out_with_one() {
    let (code, out, err) = paper(&["nic-fig2", "rb-fig6", "--workers", "1", "--quick", "--json"]);
    assert_eq!(code, 0, "{err}");
    for outcome in rows(&out) {
        let missing = outcome["missing"].to_string();
        assert!(outcome["claims"] == serde_json::json!([]) && missing.contains("two workers"), "{outcome}");
    }
}

#[test]
fn mistakes_say_what_would_be_right() {
    for (arguments, explained) in [
        (&["mr-fig11", "--exact"][..], "--exact: none of these"),
        (&["all", "--from", "/none"], "cannot read '/none'"),
        (&["all", "--from", "Cargo.toml"], "Cargo.toml:1: no result of `brickway-lab paper --json`"),
    ] {
        let (code, _, err) = paper(arguments);
        assert!(code == 1 && err.contains(explained), "{arguments:?}: {code} {err}");
    }
    let (code, _, err) = paper(&["rb-fig99"]);
    assert!(
        code == 2 && err.contains("'rb-fig99'") && err.contains("expected all, rb, nic, mr, sc, pc"),
        "{err}"
    );
    assert_eq!(paper(&[]).0, 2);
    assert_eq!(paper(&["mr-fig8", "--workers", "0"]).0, 2);
}
