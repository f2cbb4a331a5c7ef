//! Crates outside of the workspace with elements, drivers and tables of their own: the example, and what `brickway new element` makes.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use std::path::Path;
use std::process::Command;

use netns::Network;
use netns::router::{PROGRAM, warm_up};
use testbed::Folder;

/// The source tree.
fn tree() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Runs a program; what it printed, if it ended well.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

/// Where crates are built: with the workspace.
fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
}

/// Cargo for a crate. What it depends on beside Brickway is the workspace's, and built already.
fn cargo(folder: &Path, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO"));
    // The crate is not of this workspace, and is compiled as its owner does.
    command.env_remove("RUSTC_WORKSPACE_WRAPPER").env_remove("CLIPPY_ARGS");
    command.arg(words[0]).arg("--quiet");
    // As the workspace has them, so that they need not be built again.
    for package in ["aes", "aws-lc-rs", "crc32fast", "flate2", "miniz_oxide", "rtrb"] {
        command.arg("--config").arg(format!("profile.dev.package.{package}.opt-level=1"));
    }
    output(command.args(&words[1..]).current_dir(folder).env("CARGO_TARGET_DIR", target()))
}

#[test]
fn crates_of_others_are_built_and_tested_and_have_their_elements_drivers_and_tables() {
    let folder = Folder::new();
    let example = tree().join("examples/custom-element");
    let tested = cargo(&example, &["test", "--locked"]);
    assert_eq!(tested.matches("test result: ok. 5 passed").count(), 1, "{tested}");
    let config = folder.write(
        "ports.click",
        "FromDevice(gives) -> MarkIPHeader(0) -> shift :: ShiftPorts(1) -> c :: CheckLength(1500) -> ToDevice(takes);",
    );
    let run = [
        "run",
        "--",
        "run",
        &config,
        "--port",
        "gives=clockwork:1000",
        "--port",
        "takes=clockwork:0",
        "--for",
        "0.5",
    ];
    let summary = cargo(&example, &run);
    assert!(summary.lines().any(|line| line.starts_with("c ") && line.contains("1,000")), "{summary}");
    assert!(
        cargo(&example, &["run", "--", "help", "ShiftPorts"])
            .contains("adds a number to the destination ports")
    );
    // Its table, by the settings.
    let settings = "[[port]]\nname = \"eth1\"\n[[port]]\nname = \"eth2\"\n[tables]\nipv4 = \"sorted\"\nipv6 = \"sorted\"\n";
    let settings = folder.write("brickway.toml", settings);
    let checked = cargo(&example, &["run", "--", "check", &settings]);
    assert!(checked.contains("tables        IPv4 sorted, IPv6 sorted\n"), "{checked}");
    forwards(&format!("{} run --config {settings}", target().join("debug/custom-element").display()));
    // One that is made.
    let made = folder.path().join("red");
    let brickway = || Command::new(env!("CARGO_BIN_EXE_brickway"));
    let words = ["new", "element", "RedMark", "--brickway"];
    output(brickway().args(words).arg(tree()).arg("--folder").arg(&made));
    let again = brickway().args(words).arg(tree()).arg("--folder").arg(&made).output().unwrap();
    assert!(!again.status.success(), "the folder is there");
    let elsewhere = brickway().args(&words[..3]).current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&elsewhere.stderr);
    assert!(elsewhere.status.success() || said.contains("brickway-dev"), "{said}");
    std::fs::copy(example.join("Cargo.lock"), made.join("Cargo.lock")).unwrap();
    let tested = cargo(&made, &["test"]);
    assert_eq!(tested.matches("test result: ok. 2 passed").count(), 1, "{tested}");
    assert!(cargo(&made, &["run", "--", "help", "RedMark"]).contains("paints packets and counts them"));
}

/// Runs a router between two hosts, whose packets go by its table.
fn forwards(command: &str) {
    if !netns::is_root() {
        return;
    }
    let network = Network::new(&["r", "a", "b"]);
    network.link(("r", "eth1", "02:00:00:00:01:01"), ("a", "eth0", "02:00:00:00:01:02"));
    network.link(("r", "eth2", "02:00:00:00:02:01"), ("b", "eth0", "02:00:00:00:02:02"));
    for (host, link) in [("a", "1"), ("b", "2")] {
        network.ip("r", &format!("addr add 10.0.{link}.1/24 dev eth{link}"));
        network.ip(host, &format!("addr add 10.0.{link}.2/24 dev eth0"));
        network.ip(host, &format!("route add default via 10.0.{link}.1"));
    }
    network.forward("r");
    let socket = network.folder.file("socket");
    let router = network.start("r", &format!("{command} --socket {socket}"));
    router.wait_until(command, || router.printed().contains(" runs with "));
    warm_up(&network, "a", &["10.0.2.2"]);
    let (same, text) = network.run("r", &format!("{PROGRAM} show drift --socket {socket}"));
    assert!(same && text.contains("  sorted  "), "{text}");
}
