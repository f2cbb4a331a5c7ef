//! The commands of the documents, run as they stand there on a router between two hosts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod first_minute;
mod netns;

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use netns::is_root;
use netns::router::{PROGRAM, between_hosts, start, warm_up};
use testbed::documents::{DocumentedCommand, commands_of, lost_lines, remake};

/// The list of rules that docs/firewall.md prints.
const RULES: &str = "10 permit tcp any 192.0.2.0/24 port 80-443 in eth1\n20 permit tcp any any established\n30 permit icmp any any\n40 deny any any any\n";

/// Commands that begin with these words have tests of their own; they need a cluster, a VLAN device, which this kernel may not have, or
/// some ten seconds.
const ELSEWHERE: [&str; 7] = [
    "cluster",
    "show cluster",
    "run eth1 eth1.100",
    "profile",
    "click",
    "new",
    // Until somebody ends it.
    "top",
];

/// What stands for words of the documents here: the settings of the service are those of the test's folder, and what has happened
/// happened just now.
const INSTEAD: [(&str, &str); 2] = [("/etc/brickway/", ""), ("--since 3:10 --until 3:15", "--since 1h")];

fn instead(line: &str) -> String {
    INSTEAD.iter().fold(line.to_owned(), |line, (words, others)| line.replace(words, others))
}

#[test]
fn commands_in_documents_do_what_they_are_there_for() {
    if !is_root() {
        return;
    }
    let network = between_hosts();
    network.ip("r", "route add 203.0.113.0/24 via 10.0.2.2");
    let folder = network.folder.path().display().to_string();
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    std::os::unix::fs::symlink(project.join("examples"), format!("{folder}/examples")).unwrap();
    network.folder.write("rules.txt", RULES);
    let socket = format!("{folder}/socket");
    // The program of the documents is this test's, and asks its router.
    let asks = "run|lua|show|set|reload|monitor|capture|trace|flows";
    let program = format!(
        "#!/bin/sh\ncase $1 in {asks}) exec {PROGRAM} \"$@\" --socket {socket};; *) exec {PROGRAM} \"$@\";; esac\n"
    );
    network.folder.write("brickway", program);
    assert!(network.run("r", &format!("chmod +x {folder}/brickway")).0);
    let shell = |line: &str| format!("cd {folder}; export PATH={folder}:$PATH; {}\n", instead(line));
    let commands: Vec<(String, DocumentedCommand)> = commands_of("brickway")
        .into_iter()
        // What makes its own namespaces is the laboratory's to run.
        .filter(|command| command.is_whole && !command.line.contains("netns"))
        .map(|command| (command.words[1..].join(" "), command))
        .filter(|(text, _)| !ELSEWHERE.iter().any(|start| text.starts_with(start)))
        .collect();
    let starts = |text: &str| text.starts_with("run ") || text.starts_with("lua ");
    // Routers, one after the other.
    let mut routers = 0;
    for (text, command) in commands.iter().filter(|(text, _)| starts(text)) {
        let script =
            network.folder.write("router.sh", shell(&format!("exec {}", command.line.replace("sudo ", ""))));
        let router = network.start("r", &format!("sh {script}"));
        router
            .wait_until(&format!("{}: `{text}`", command.place), || router.printed().contains(" runs with "));
        router.interrupt();
        assert!(
            router.printed().contains("the router ends: a signal"),
            "{}: {}",
            command.place,
            router.printed()
        );
        routers += 1;
    }
    assert!(routers >= 5, "{routers}");
    // What is asked of one.
    let config = format!(
        "[[port]]\nname = \"eth1\"\n[[port]]\nname = \"eth2\"\n[acl]\nrules = [\"permit icmp any any\"]\n\
         [fpm]\nlisten = \"127.0.0.1:2620\"\n[control]\nsocket = \"{socket}\"\n"
    );
    let router = start(&network, &format!("--config {}", network.folder.write("brickway.toml", config)));
    warm_up(&network, "a", &["10.0.2.2"]);
    let _ping = network.start("a", "ping -n -q -i 0.016 10.0.2.2");
    if std::env::var_os("BRICKWAY_UPDATE").is_some() {
        // For a page, figures of a while.
        std::thread::sleep(Duration::from_secs(30));
    }
    // Something to see: a route that changes, hops that run out.
    network.ip("r", "route add 10.2.0.0/16 via 10.0.1.2");
    network.ip("r", "route replace 10.2.0.0/16 via 10.0.2.2");
    network.run("a", "ping -n -q -c 3 -i 0.05 -t 1 10.0.2.2");
    let (mut outputs, mut wrong) = (Vec::new(), String::new());
    for (text, command) in commands.iter().filter(|(text, _)| !starts(text)) {
        // It goes on until somebody ends it.
        let is_monitor = text.starts_with("monitor");
        let longest = if is_monitor { 4 } else { 60 };
        // What it tells of, before and meanwhile.
        let flap = "ip link set eth2 down; sleep 0.5; ip link set eth2 up";
        let _later = is_monitor.then(|| {
            network.script("r", &format!("{flap}; sleep 1"));
            network.start(
                "r",
                &format!("sh {}", network.folder.write("flap.sh", format!("sleep 1.5; {flap}\n"))),
            )
        });
        let line =
            command.line.replace("sudo ", "").replace("brickway ", &format!("timeout {longest} brickway "));
        let (is_done, printed) = network.script("r", &shell(&line));
        // The doctor finds what is in the way.
        let is_right = is_done || is_monitor || text.starts_with("doctor") && printed.contains("eth1");
        if !is_right || printed.is_empty() {
            let _ = write!(wrong, "{}: `brickway {text}` printed:\n{printed}\n", command.place);
        }
        for lost in lost_lines(&command.printed, &printed) {
            let _ =
                write!(wrong, "{}: `brickway {text}` has no line as '{lost}':\n{printed}\n", command.place);
        }
        outputs.push((command.clone(), printed));
    }
    let asked = outputs.len();
    assert!(wrong.is_empty() && asked >= 15, "{asked} commands\n{wrong}{}", router.printed());
    remake(&outputs);
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
}
