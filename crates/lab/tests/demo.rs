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

/// The steps of the demo of one router, whatever runs on it.
const STEPS: [&str; 9] = [
    "network",
    "Linux alone",
    "router",
    "ping",
    "real route",
    "traceroute",
    "too big",
    "fragments",
    "iperf3",
];

/// What the demo said of a step, where it has several lines of the last: `ok`, `FAILED`, or nothing.
fn outcome<'a>(text: &'a str, step: &str) -> &'a str {
    let said = |line: &'a str| line.trim_start().strip_prefix(step)?.split_whitespace().next();
    let mut outcomes = text.lines().rev().filter_map(said);
    outcomes.find(|word| ["ok", "FAILED"].contains(word)).unwrap_or_default()
}

/// A table that is read at once.
const SMALL_TABLE: &str = "1.1.1.0/24 13335\n192.0.2.0/24 64500\n198.51.100.0/24 64501\n";

/// The demo, whose steps all go well. Returns what it said.
fn goes_well(options: &[&str]) -> String {
    let _alone = alone();
    let demo = start(options);
    let process = demo.id();
    let output = demo.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for step in STEPS {
        assert_eq!(outcome(&text, step), "ok", "step '{step}':\n{text}");
    }
    assert!(text.contains(" 60 of 60 answered, all expected"), "{text}");
    assert!(text.contains(" (Linux alone: ") && text.contains("; at least "), "a threshold:\n{text}");
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
    assert_eq!(outcome(&text, "counters"), "ok", "{text}");
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
    let table = folder.write("table.txt", SMALL_TABLE);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/lua/router.lua");
    let text = goes_well(&["--table", &table, "--lua", script]);
    assert!(text.contains("script running, 0 calls failed"), "{text}");
}

/// The demo's own configuration, with one thing broken for each step: text, and what stands in its place.
const BROKEN: [(&str, &str, &str); 7] = [
    // A class of packets is dropped.
    (
        "ping",
        "check -> rt;",
        "check -> some :: IPClassifier(icmp type echo and src host 10.0.3.2 and dst host 10.0.0.2, -);\n\
         some[0] -> Discard; some[1] -> rt;",
    ),
    // Routes lead to other next hops.
    (
        "real route",
        "$VIA \"$HOST0 1, $HOST1 2, $HOST2 3, $HOST3 4\"",
        "$VIA \"$HOST3 4, $HOST2 3, $HOST1 2, $HOST0 1\"",
    ),
    ("router", "local[0] -> ICMPPingResponder -> rt;", "local[0] -> Discard;"),
    ("traceroute", "ttl[1]      -> Punt -> ICMPError($ip, timeexceeded) -> output;", "ttl[1] -> Discard;"),
    ("too big", "PMTU $MTU", "PMTU 1300"),
    (
        "fragments",
        "-> fragment :: IPFragmenter($MTU)\n        -> arp",
        "-> fragment :: IPFragmenter($MTU) -> cut :: IPClassifier(ip frag, -); cut[0] -> Discard; cut[1] -> arp",
    ),
    // A slow graph.
    (
        "iperf3",
        "check -> rt;",
        "check -> few :: IPClassifier(tcp, -);\nfew[0] -> Queue(50) -> RatedUnqueue(20) -> rt; few[1] -> rt;",
    ),
];

#[test]
fn each_step_notices_what_is_broken() {
    if !testbed::is_root() {
        return;
    }
    let _alone = alone();
    let folder = testbed::Folder::new();
    let table = folder.write("table.txt", SMALL_TABLE);
    let whole = include_str!("../../../examples/ip-router.click");
    for (step, text, broken) in BROKEN {
        assert!(whole.contains(text), "examples/ip-router.click has no '{text}'");
        let file = folder.write("router.click", whole.replace(text, broken));
        let output = start(&["--table", &table, "--config", &file]).wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert_eq!(outcome(&text, step), "FAILED", "step '{step}':\n{text}");
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(text.contains("A step failed"), "{text}");
    }
}

/// What is done at the first line of a demo that has these words.
type Action<'a> = (&'static str, &'a dyn Fn());

/// Reads what the demo says, acts at lines that have certain words, each once, and returns all that it said with its exit code.
fn act_at(mut demo: Child, mut actions: Vec<Action<'_>>) -> (String, Option<i32>) {
    let stdout = demo.stdout.take().unwrap();
    let mut text = String::new();
    for line in std::io::BufRead::lines(std::io::BufReader::new(stdout)) {
        let line = line.unwrap();
        if let Some(at) = actions.iter().position(|(words, _)| line.contains(words)) {
            (actions.remove(at).1)();
        }
        text += &line;
        text.push('\n');
    }
    let output = demo.wait_with_output().unwrap();
    let left: Vec<&str> = actions.iter().map(|(words, _)| *words).collect();
    assert!(left.is_empty(), "{left:?} never came:\n{text}");
    (text + &String::from_utf8_lossy(&output.stderr), output.status.code())
}

/// Runs a command of `ip netns exec` in one of the namespaces of a demo.
fn inside(process: u32, namespace: &str, command: &str) {
    let name = format!("brickway-{process}-{namespace}");
    let status = Command::new("ip").args(["netns", "exec", &name, "sh", "-c", command]).status().unwrap();
    assert!(status.success(), "{name}: {command}");
}

#[test]
fn a_dead_link_is_noticed() {
    if !testbed::is_root() {
        return;
    }
    let _alone = alone();
    let folder = testbed::Folder::new();
    let table = folder.write("table.txt", SMALL_TABLE);
    let demo = start(&["--table", &table]);
    let process = demo.id();
    let cut = || inside(process, "h2", "ip link set eth0 down");
    let (text, code) = act_at(demo, vec![("ip-router.click with", &cut)]);
    assert_eq!((outcome(&text, "ping"), code), ("FAILED", Some(3)), "{text}");
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

/// Has a namespace drop what comes in and fits a rule.
fn drop_there(process: u32, namespace: &str, rule: &str) {
    let chain = "add chain inet broken in { type filter hook input priority 0; }";
    inside(
        process,
        namespace,
        &format!("nft 'add table inet broken; {chain}; add rule inet broken in {rule} drop'"),
    );
}

/// How often a step of a demo failed.
fn failures(text: &str, step: &str) -> usize {
    let is = |line: &&str| {
        line.trim_start().strip_prefix(step).is_some_and(|rest| rest.trim_start().starts_with("FAILED"))
    };
    text.lines().filter(is).count()
}

/// What the demo of a cluster waits for never comes: the step that waits says so, and is the last.
#[test]
fn each_step_of_the_cluster_notices_what_never_comes() {
    if !testbed::is_root() || !has_daemons() {
        return;
    }
    let _alone = alone();
    // The step, the line after which something is broken, where, and what.
    let broken = [
        ("etcd", "  network ", "m", "tcp dport 2379"),
        ("nodes", "  etcd ", "b", ""),
        ("BGP", "  nodes ", "n", "tcp dport 179"),
        ("leader", "kill -9 'a'", "m", "tcp dport 2379"),
    ];
    for (step, line, namespace, rule) in broken {
        let demo = start(&["--cluster", "--patience", "6"]);
        let process = demo.id();
        let breaks = || match step {
            "nodes" => inside(process, namespace, "ip link set fab2 down"),
            "BGP" => {
                drop_there(process, namespace, rule);
                drop_there(process, namespace, "tcp sport 179");
            }
            _ => drop_there(process, namespace, rule),
        };
        let (text, code) = act_at(demo, vec![(line, &breaks)]);
        assert_eq!((failures(&text, step), code), (1, Some(3)), "step '{step}':\n{text}");
        assert!(text.contains("not within 6 s"), "step '{step}':\n{text}");
        assert_eq!(left_behind(process), Vec::<String>::new());
    }
}

/// Everything that the demo of a cluster shows is broken from outside, while the cluster works: what each step says is its own finding.
#[test]
fn each_step_of_the_cluster_notices_what_is_broken() {
    if !testbed::is_root() || !has_daemons() {
        return;
    }
    let _alone = alone();
    let demo = start(&["--cluster"]);
    let process = demo.id();
    let filter = |namespace: &str, rule: &str| drop_there(process, namespace, rule);
    let before = || {
        // A class of packets, an answer that comes from nowhere, a router that does not answer, a lost route, a slow way.
        filter("hb", "ip saddr 10.0.3.2 icmp type echo-request");
        filter("ha", "icmp type time-exceeded");
        filter("hc", "ip saddr 10.0.3.1 icmp type echo-reply");
        filter("hn", "icmp type echo-request");
        filter("hd", "ip protocol tcp limit rate over 20 kbytes/second");
    };
    let meanwhile = || {
        // The next leader has another route; one packet in two is not heard.
        for node in ["b", "c", "d"] {
            inside(process, node, "ip route add blackhole 203.0.113.2/32");
        }
        inside(process, "hc", "nft flush ruleset");
        filter("hc", "ip saddr 10.0.2.2 icmp type echo-request meta random & 1 == 0");
    };
    let (text, code) = act_at(demo, vec![("sessions with FRR on", &before), ("kill -9 'a'", &meanwhile)]);
    assert_eq!(code, Some(3), "{text}");
    let failed = |step: &str| failures(&text, step);
    for step in ["ping", "traceroute", "router", "learnt route", "routes"] {
        assert!(failed(step) > 0, "step '{step}' noticed nothing:\n{text}");
    }
    assert_eq!(failed("iperf3"), 2, "{text}");
    let lost = text.split_once("kill -9 'a'").unwrap().1;
    assert!(lost.lines().any(|line| line.contains("FAILED  hb -> hc (10.0.3.2): ")), "{text}");
    assert_eq!(left_behind(process), Vec::<String>::new());
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
