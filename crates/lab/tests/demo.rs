//! `brickway-lab demo`, also with `--cluster`, as a newcomer runs it: all its steps go well, and nothing of it is left behind.

#![allow(clippy::unwrap_used, reason = "a test")]

use packet::sync::lock;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// The demo takes the machine for itself: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    lock(&ALONE)
}

const TABLE: [&str; 2] = ["--table", concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/rib-v4.txt.gz")];

fn start(options: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_brickway-lab"))
        .args(["demo", "--seconds", "1"])
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The namespaces of the demo with this process id.
fn left_behind(process: u32) -> Vec<String> {
    let mut names = testbed::namespaces();
    names.retain(|name| name.starts_with(&format!("brickway-{process}-")));
    names
}

/// The demo, whose steps all go well. Returns what it said.
fn goes_well(options: &[&str]) -> String {
    let _alone = alone();
    let demo = start(options);
    let process = demo.id();
    let output = demo.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for step in ["network", "router", "ping", "real route", "traceroute", "too big", "fragments", "iperf3"] {
        let line = text.lines().find(|line| line.trim_start().starts_with(step));
        let ok = line.is_some_and(|line| line.trim_start()[step.len()..].trim_start().starts_with("ok "));
        assert!(ok, "step '{step}' is not ok:\n{text}");
    }
    assert!(text.contains(" answered, 12 pairs of hosts"), "{text}");
    assert!(text.contains("10.0.0.1, 10.0.3.2"), "the router is on the way:\n{text}");
    assert_eq!(left_behind(process), Vec::<String>::new());
    text.into_owned()
}

#[test]
fn all_steps_go_well() {
    if !testbed::is_root() {
        return;
    }
    let text = goes_well(&TABLE);
    let summary = text.lines().find(|line| line.contains(" routes, ready in ")).unwrap_or_default();
    for figure in ["564,", " s, table memory ", " MB, table check ok (digest "] {
        assert!(summary.contains(figure), "no '{figure}' in the summary:\n{text}");
    }
}

#[test]
fn all_steps_go_well_with_a_script() {
    if !testbed::is_root() {
        return;
    }
    // A small table: Linux takes some time for a large one.
    let folder = testbed::Folder::new();
    let table = folder.write("table.txt", "1.1.1.0/24 13335\n192.0.2.0/24 64500\n198.51.100.0/24 64501\n");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/lua/router.lua");
    let text = goes_well(&["--table", &table, "--lua", script]);
    assert!(text.contains("script running, 0 calls failed"), "{text}");
}

#[test]
fn it_cleans_up_when_it_is_interrupted() {
    if !testbed::is_root() {
        return;
    }
    let _alone = alone();
    let mut demo = start(&TABLE);
    let process = demo.id();
    let router = format!("brickway-{process}-r");
    // In the middle: the router runs in its namespace.
    let routers = || {
        let output = Command::new("ip").args(["netns", "pids", &router]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut processes = Vec::new();
    assert!(
        testbed::eventually(|| {
            processes = routers();
            !processes.is_empty() && left_behind(process).len() == 5
        }),
        "the demo did not start"
    );
    let code = testbed::interrupt(&mut demo);
    let output = demo.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert_ne!(code, 0, "an interrupted demo has shown nothing:\n{text}");
    assert_ne!(code, 101, "it panicked:\n{text}");
    assert_eq!(left_behind(process), Vec::<String>::new(), "{text}");
    for process in processes {
        let path = format!("/proc/{process}/cmdline");
        let gone = testbed::eventually(|| {
            !std::fs::read_to_string(&path).is_ok_and(|line| line.contains("brickway"))
        });
        assert!(gone, "process {process} of the demo still runs");
    }
}

/// Whether the demo of a cluster can run; says so when not.
fn has_daemons() -> bool {
    let programs = ["/usr/bin/etcd", "/usr/lib/frr/bgpd", "/usr/sbin/bird"];
    programs.into_iter().all(testbed::is_installed)
}

/// The processes in the namespaces of the demo with this process id, and the folder of its files.
fn of_the_cluster(process: u32) -> (Vec<String>, std::path::PathBuf) {
    let pids = |namespace: &String| {
        let output = Command::new("ip").args(["netns", "pids", namespace]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let processes = left_behind(process).iter().flat_map(pids).collect();
    (processes, std::env::temp_dir().join(format!("brickway-{process}")))
}

#[test]
fn a_cluster_loses_its_leader_and_another_node() {
    if !testbed::is_root() || !has_daemons() {
        return;
    }
    let _alone = alone();
    let begin = Instant::now();
    let demo = start(&["--cluster", "--json"]);
    let process = demo.id();
    let output = demo.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    println!("demo --cluster: {:.0} s\n{text}", begin.elapsed().as_secs_f64());
    assert_eq!(output.status.code(), Some(0), "{text}");
    let figures: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let steps = figures["steps"].as_array().unwrap();
    assert!(steps.iter().all(|step| step["ok"] == true), "{text}");
    for name in [
        "network",
        "etcd",
        "nodes",
        "BGP",
        "ping",
        "traceroute",
        "router",
        "learnt route",
        "iperf3",
        "leader",
        "routes",
    ] {
        assert!(steps.iter().any(|step| step["step"] == name), "no step '{name}':\n{text}");
    }
    assert!(text.contains("10.0.1.1, 10.0.4.2"), "one hop:\n{text}");
    assert_eq!(figures["looks_without_route"], 0, "{text}");
    let balanced = figures["throughput"][1]["balanced"].as_f64().unwrap();
    assert!(balanced > 0.0, "nothing went over other nodes:\n{text}");
    assert_eq!(left_behind(process), Vec::<String>::new());
    assert!(!of_the_cluster(process).1.exists(), "its files are still there");
}

#[test]
fn a_cluster_that_is_interrupted_leaves_nothing() {
    if !testbed::is_root() || !has_daemons() {
        return;
    }
    let _alone = alone();
    let mut demo = start(&["--cluster"]);
    let process = demo.id();
    // In the middle: the leader's FRR runs.
    let mut processes = Vec::new();
    let runs = testbed::eventually(|| {
        processes = of_the_cluster(process).0;
        processes.iter().any(|process| {
            std::fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|name| name.trim() == "bgpd")
        })
    });
    let code = testbed::interrupt(&mut demo);
    let output = demo.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(runs, "FRR did not start:\n{text}");
    assert_eq!(code, 130, "{text}");
    assert_eq!(left_behind(process), Vec::<String>::new(), "{text}");
    assert!(!of_the_cluster(process).1.exists(), "its files are still there");
    for process in processes {
        let name = |path: String| std::fs::read_to_string(path).unwrap_or_default();
        let ours = ["brickway", "etcd", "zebra", "bgpd", "bird"];
        let gone = testbed::eventually(|| !ours.contains(&name(format!("/proc/{process}/comm")).trim()));
        assert!(gone, "process {process} of the demo still runs");
    }
}
