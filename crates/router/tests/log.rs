//! What an operator finds when he asks afterwards: `brickway monitor` and `brickway show changes` of a router at work.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use netns::router::{PROGRAM, start};
use netns::{Network, Running, eventually};
use serde_json::{Value, json};

/// A router with two ports, and the namespace at their far ends.
fn network() -> Network {
    let network = Network::new(&["r", "x"]);
    network.link(("r", "eth1", "02:00:00:00:01:01"), ("x", "one", "02:00:00:00:01:02"));
    network.link(("r", "eth2", "02:00:00:00:02:01"), ("x", "two", "02:00:00:00:02:02"));
    network.ip("r", "addr add 10.0.1.1/24 dev eth1");
    network.ip("r", "addr add 10.0.2.1/24 dev eth2");
    network.forward("r");
    network
}

/// Rows of a command with --json.
fn rows(text: &str) -> Vec<Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Whether a row has all of these fields.
fn has(row: &Value, fields: &Value) -> bool {
    fields.as_object().unwrap().iter().all(|(name, value)| row[name] == *value)
}

/// Waits until a follower has a row with these fields, and returns it.
fn heard(monitor: &Running, fields: &Value) -> Value {
    let find = || rows(&monitor.printed()).into_iter().find(|row| has(row, fields));
    assert!(eventually(|| find().is_some()), "no {fields} in\n{}", monitor.printed());
    find().unwrap()
}

#[test]
fn what_happens_is_told_to_followers_with_fields_and_who_did_it() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let socket = network.folder.file("socket");
    let ports = "[[port]]\nname = \"eth1\"\n[[port]]\nname = \"eth2\"\n";
    let text = format!("{ports}[control]\nsocket = \"{socket}\"\n");
    let settings = network.folder.write("brickway.toml", &text);
    let router = start(&network, &format!("--config {settings}"));
    let brickway = |words: &str| network.run("r", &format!("{PROGRAM} {words} --socket {socket}"));
    let monitor = network.start("r", &format!("{PROGRAM} monitor --last 100 --json --socket {socket}"));
    // What was before it came.
    let began = heard(&monitor, &json!({"event": "start", "level": "info"}));
    assert!(began["text"].as_str().unwrap().contains(" runs with "), "{began}");

    network.ip("r", "link set eth2 down");
    let down = heard(&monitor, &json!({"event": "link", "port": "eth2", "state": "down"}));
    assert!(has(
        &down,
        &json!({"level": "warn", "reason": "set down", "text": "eth2: link down (set down)"})
    ));
    network.ip("r", "link set eth2 up");
    heard(&monitor, &json!({"event": "link", "port": "eth2", "state": "up", "level": "info"}));
    network.ip("x", "link set one down");
    heard(&monitor, &json!({"event": "link", "port": "eth1", "state": "down", "reason": "no carrier"}));
    network.ip("x", "link set one up");
    heard(&monitor, &json!({"event": "link", "port": "eth1", "state": "up"}));

    // Who changed what, and what was refused.
    assert!(brickway("set workers.balance false").0);
    let of_root = json!({"user": "root", "command": "brickway"});
    let set = heard(&monitor, &json!({"event": "set", "option": "workers.balance", "value": "false"}));
    assert!(has(&set, &of_root) && set["pid"].as_u64() > Some(1), "{set}");
    assert!(!brickway("set workers.colour red").0);
    let refused = heard(&monitor, &json!({"event": "set", "option": "workers.colour", "level": "warn"}));
    assert!(refused["reason"].as_str().unwrap().contains("unknown option"), "{refused}");
    // What was meant for a handler may be a key.
    assert!(!brickway("set nothing.keys swordfish").0);
    let refused = heard(&monitor, &json!({"event": "set", "option": "nothing.keys", "level": "warn"}));
    assert!(!refused.to_string().contains("swordfish"), "{refused}");
    // The value of a handler may be a key.
    assert!(!brickway("set --handler nothing.secret swordfish").0);
    let written = heard(&monitor, &json!({"event": "write", "handler": "nothing.secret"}));
    assert!(!written.to_string().contains("swordfish"), "{written}");

    // States of neighbours are for those who look for a mistake. One with another link address is news.
    network.folder.write("brickway.toml", format!("{text}[log]\nlevel = \"debug\"\n"));
    assert!(brickway("reload").0);
    let asked = heard(&monitor, &json!({"event": "reload", "user": "root"}));
    assert!(asked["text"].as_str().unwrap().starts_with("reload: asked for by root (brickway, "), "{asked}");
    heard(&monitor, &json!({"event": "reload", "text": "reload: log.level = \"debug\""}));
    network.ip("r", "neigh replace 10.0.1.2 lladdr 02:00:00:00:01:02 nud permanent dev eth1");
    let neighbour = json!({"event": "neighbour", "port": "eth1", "neighbour": "10.0.1.2"});
    let known = || rows(&monitor.printed()).iter().any(|row| has(row, &neighbour));
    // The level counts a moment after the reload.
    assert!(
        eventually(|| {
            network.ip("r", "neigh replace 10.0.1.2 lladdr 02:00:00:00:01:02 nud reachable dev eth1");
            network.ip("r", "neigh replace 10.0.1.2 lladdr 02:00:00:00:01:02 nud permanent dev eth1");
            known()
        }),
        "{}",
        monitor.printed()
    );
    network.ip("r", "neigh replace 10.0.1.2 lladdr 02:00:00:00:01:99 nud permanent dev eth1");
    let moved = json!({"event": "neighbour", "mac": "02:00:00:00:01:99", "level": "info"});
    assert!(has(&heard(&monitor, &moved), &neighbour));

    // Readers of the past get what they ask for, and people read the same on standard error.
    let (_, past) = brickway("monitor --since 1h --until now --level warn --json");
    assert!(rows(&past).iter().any(|row| has(row, &json!({"event": "link", "port": "eth2"}))), "{past}");
    assert!(rows(&past).iter().all(|row| row["level"] == "warn" || row["level"] == "error"), "{past}");
    let printed = router.printed();
    assert!(printed.lines().any(|line| line == "brickway: warning: eth2: link down (set down)"), "{printed}");

    // A follower hears of the end.
    assert_eq!(router.interrupt(), 0);
    heard(&monitor, &json!({"event": "end", "reason": "a signal"}));
    assert!(eventually(|| monitor.ended() == Some(1)), "{}", monitor.printed());
}

#[test]
fn a_link_that_goes_down_and_comes_back_is_two_events() {
    if !netns::is_root() {
        return;
    }
    for driver in ["af_packet", "af_xdp"] {
        let network = network();
        let router = start(&network, &format!("eth1 eth2 --driver {driver}"));
        network.ip("r", "link set eth2 down");
        assert!(eventually(|| router.printed().contains("eth2: link down")), "{}", router.printed());
        network.ip("r", "link set eth2 up");
        assert!(eventually(|| router.printed().contains("eth2: link up")), "{}", router.printed());
        assert_eq!(router.interrupt(), 0);
        let printed = router.printed();
        let told: Vec<&str> =
            printed.lines().filter(|line| line.contains("eth2") && line.contains("link ")).collect();
        assert_eq!(told.len(), 2, "{driver}: {printed}");
    }
}

#[test]
fn a_route_that_was_replaced_says_when_and_what_it_was() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let socket = network.folder.file("socket");
    let _router = start(&network, &format!("eth1 eth2 --socket {socket}"));
    let show = |words: &str| {
        let (shown, text) = network.run("r", &format!("{PROGRAM} show changes {words} --socket {socket}"));
        assert!(shown, "{text}");
        text
    };
    let of = |words: &str| {
        let all = rows(&show(&format!("{words} --json")));
        all.into_iter().filter(|row| row["kind"] != "history").collect::<Vec<_>>()
    };
    assert!(show("10.9.0.0/16").starts_with("no changes\n"), "{}", show("10.9.0.0/16"));

    network.ip("r", "route add 10.9.0.0/16 via 10.0.1.2");
    network.ip("r", "route replace 10.9.0.0/16 via 10.0.2.2 proto static");
    assert!(eventually(|| of("10.9.0.0/16").len() == 2), "{}", show(""));
    network.ip("r", "nexthop add id 7 via 10.0.1.2 dev eth1");
    network.ip("r", "route add 10.8.0.0/16 nhid 7");
    assert!(eventually(|| of("10.8.0.0/16").len() == 1), "{}", show(""));
    network.ip("r", "nexthop replace id 7 via 10.0.2.2 dev eth2");
    network.ip("r", "route del 10.9.0.0/16");
    assert!(eventually(|| of("10.9.0.0/16").len() == 3), "{}", show(""));

    let hops = |row: &Value| (row["old"]["hops"].clone(), row["new"]["hops"].clone());
    let changes = of("10.9.3.4");
    let (first, second) = (json!("via 10.0.1.2 dev eth1"), json!("via 10.0.2.2 dev eth2"));
    let expected =
        [(Value::Null, first.clone()), (first.clone(), second.clone()), (second.clone(), Value::Null)];
    assert_eq!(changes.iter().map(hops).collect::<Vec<_>>(), expected);
    let new = json!({"protocol": "static", "source": "netlink", "hops": second, "metric": 0});
    assert!(has(&changes[1], &json!({"kind": "route", "table": 254, "prefix": "10.9.0.0/16", "new": new})));
    let times: Vec<&str> = changes.iter().map(|row| row["time"].as_str().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    // Between two of these moments is what happened then.
    let (since, until) = (times[1], times[1]);
    assert_eq!(of(&format!("10.9.0.0/16 --since {since} --until {until}")).len(), 1);
    // The object took the packets of the route along.
    let with_object = of("10.8.0.0/16");
    assert_eq!(with_object.iter().map(|row| row["kind"].clone()).collect::<Vec<_>>(), ["route", "object"]);
    assert_eq!(hops(&with_object[1]), (first, second));
    let text = show("10.9.0.0/16");
    assert!(text.contains("changed from  via 10.0.1.2 dev eth1  proto boot netlink\n"), "{text}");
}
