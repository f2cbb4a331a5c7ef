//! The commands of the documents, run as they stand there on a router between two hosts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod netns;

use std::fmt::Write;
use std::path::Path;

use netns::is_root;
use netns::router::{PROGRAM, between_hosts, start, warm_up};
use testbed::documents::{DocumentedCommand, commands_of};

/// The list of rules that docs/firewall.md prints.
const RULES: &str =
    "10 permit tcp any 192.0.2.0/24 port 80-443 in eth1\n20 permit icmp any any\n30 deny any any any\n";

/// Commands that begin with these words have tests of their own; they need a cluster, a VLAN device, which this kernel may not have, or
/// some ten seconds.
const ELSEWHERE: [&str; 8] = [
    "cluster",
    "show cluster",
    "run eth1 eth1.100",
    "profile",
    "click",
    "new",
    // Until somebody ends it.
    "monitor",
    "top",
];

/// The words behind the program's name, quoted for a shell.
fn arguments(command: &DocumentedCommand) -> String {
    command.words[1..].iter().fold(String::new(), |mut text, word| {
        // The settings of the service are those of the test's folder.
        let _ = write!(text, " '{}'", word.replace("/etc/brickway/", ""));
        text
    })
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
    let commands: Vec<(String, DocumentedCommand)> = commands_of("brickway")
        .into_iter()
        .filter(|command| command.is_whole)
        .map(|command| (command.words[1..].join(" "), command))
        .filter(|(text, _)| !ELSEWHERE.iter().any(|start| text.starts_with(start)))
        .collect();
    let starts = |text: &str| text.starts_with("run ") || text.starts_with("lua ");
    // Routers, one after the other.
    let mut routers = 0;
    for (text, command) in commands.iter().filter(|(text, _)| starts(text)) {
        let script = format!("cd {folder}; exec {PROGRAM}{} --socket {socket}", arguments(command));
        let script = network.folder.write("router.sh", format!("{script}\n"));
        let router = network.start("r", &format!("sh {script}"));
        router
            .wait_until(&format!("{}: `{text}`", command.place), || router.printed().contains(" runs with "));
        assert_eq!(router.interrupt(), 0, "{}: {}", command.place, router.printed());
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
    let _ping = network.start("a", "ping -n -q -i 0.05 10.0.2.2");
    let (mut asked, mut wrong) = (0, String::new());
    for (text, command) in commands.iter().filter(|(text, _)| !starts(text)) {
        let asks = ["show", "set", "reload", "monitor", "capture", "trace", "flows"];
        let asks = asks.iter().any(|word| text.starts_with(word));
        let socket = if asks { format!(" --socket {socket}") } else { String::new() };
        let script = format!("cd {folder}; timeout 60 {PROGRAM}{}{socket}", arguments(command));
        let (is_done, printed) = network.script("r", &script);
        // The doctor finds what is in the way.
        let is_right = is_done || text.starts_with("doctor") && printed.contains("eth1");
        if !is_right || printed.is_empty() {
            let _ = write!(wrong, "{}: `brickway {text}` printed:\n{printed}\n", command.place);
        }
        asked += 1;
    }
    assert!(wrong.is_empty() && asked >= 15, "{asked} commands\n{wrong}{}", router.printed());
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
}
