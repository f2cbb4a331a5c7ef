//! `brickway run eth1 eth2` in the place of Linux's forwarding, between plain Linux hosts: what people try first.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use std::time::Duration;

use control::api::CostRow;
use netns::Network;
use netns::router::{self, PROGRAM, forwarded_by_the_kernel, start};

/// Host a - router r - host b, IPv4 and IPv6; `r` forwards by itself.
fn network() -> Network {
    let network = Network::new(&["r", "a", "b"]);
    network.link(("r", "eth1", "02:00:00:00:01:01"), ("a", "eth0", "02:00:00:00:01:02"));
    network.link(("r", "eth2", "02:00:00:00:02:01"), ("b", "eth0", "02:00:00:00:02:02"));
    for (host, link) in [("a", "1"), ("b", "2")] {
        network.allow_ipv6(host, "eth0");
        network.allow_ipv6("r", &format!("eth{link}"));
        network.ip("r", &format!("addr add 10.0.{link}.1/24 dev eth{link}"));
        network.ip("r", &format!("addr add 2001:db8:{link}::1/64 dev eth{link} nodad"));
        network.ip(host, &format!("addr add 10.0.{link}.2/24 dev eth0"));
        network.ip(host, &format!("addr add 2001:db8:{link}::2/64 dev eth0 nodad"));
        network.ip(host, &format!("route add default via 10.0.{link}.1"));
        network.ip(host, &format!("-6 route add default via 2001:db8:{link}::1"));
    }
    network.forward("r");
    network
}

/// How many of ten pings from host a are answered.
fn answers(network: &Network, options: &str) -> usize {
    network.answers("a", options)
}

/// Pings until the neighbours are known and everything goes by the fast path.
fn warm_up(network: &Network) {
    router::warm_up(network, "a", &["10.0.2.2", "2001:db8:2::2"]);
}

fn what_people_try_first(driver: &str) {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let router = start(&network, &format!("eth1 eth2 {driver}"));
    warm_up(&network);

    // The router itself, and addresses that it gets and loses.
    for own in ["10.0.1.1", "10.0.2.1", "2001:db8:1::1", "2001:db8:2::1"] {
        assert_eq!(answers(&network, own), 10, "{own}");
    }
    network.ip("r", "addr add 10.0.3.1/32 dev eth2");
    assert!(netns::eventually(|| answers(&network, "10.0.3.1") == 10));

    // Every hop answers, with the address that Linux would take.
    let (_, text) = network.run("a", "traceroute -n -w 1 -q 1 10.0.2.2");
    assert!(text.contains(" 1  10.0.1.1 ") && text.contains(" 2  10.0.2.2 "), "{text}");
    let (_, text) = network.run("a", "traceroute -6 -n -w 1 -q 1 2001:db8:2::2");
    assert!(text.contains(" 1  2001:db8:1::1 ") && text.contains(" 2  2001:db8:2::2 "), "{text}");

    // No route, and a neighbour that is not there.
    let (_, text) = network.run("a", "ping -n -c 1 -W 1 203.0.113.1");
    assert!(text.contains("From 10.0.1.1 icmp_seq=1 Destination Net Unreachable"), "{text}");
    let (_, text) = network.run("a", "ping -n -c 1 -W 4 10.0.2.77");
    assert!(text.contains("Destination Host Unreachable"), "{text}");

    // A smaller link, told while it runs: fragments where they may be, else the right size.
    network.ip("r", "link set eth2 mtu 1400");
    network.ip("b", "link set eth0 mtu 1400");
    assert!(netns::eventually(|| {
        let (_, text) = network.run("a", "ping -n -c 1 -W 1 -M do -s 1400 10.0.2.2");
        text.contains("mtu=1400") || text.contains("mtu = 1400")
    }));
    assert_eq!(answers(&network, "-M dont -s 1400 10.0.2.2"), 10);
    let (_, text) = network.run("a", "ping -n -c 2 -W 1 -M do -s 1400 2001:db8:2::2");
    assert!(text.contains("mtu=1400") || text.contains("mtu: 1400") || text.contains("mtu = 1400"), "{text}");
    // Another link address changes nothing for those who ask for it.
    network.ip("r", "link set eth1 address 02:00:00:00:01:99");
    network.ip("a", "neigh flush dev eth0");
    assert!(netns::eventually(|| {
        // What the host has learnt of the smaller link is forgotten, so that it has to be told again.
        network.run("a", "ip route flush cache");
        let (_, text) = network.run("a", "ping -n -c 1 -W 1 -M do -s 1400 10.0.2.2");
        text.contains("From 10.0.1.1") && text.contains("mtu = 1400")
    }));
    network.ip("r", "link set eth2 mtu 1500");
    network.ip("b", "link set eth0 mtu 1500");

    // TCP.
    let _server = network.start("b", "iperf3 -s -1");
    let mut text = String::new();
    let through = netns::eventually(|| {
        let (done, output) = network.run("a", "iperf3 -c 10.0.2.2 -t 1");
        text = output;
        done
    });
    assert!(through, "{text}");
    warm_up(&network);

    assert_eq!(router.interrupt(), 0, "{}", router.printed());
    let before = forwarded_by_the_kernel(&network);
    assert_eq!(answers(&network, "10.0.2.2"), 10, "the kernel forwards when the router has ended");
    assert_eq!(forwarded_by_the_kernel(&network), before + 20);
}

/// Packets and bytes that a host's interface has received and sent, by Linux.
fn counts_of(network: &Network, host: &str) -> [(u64, u64); 2] {
    let (_, text) = network.run(host, "ip -j -s link show dev eth0");
    let link: serde_json::Value = serde_json::from_str(&text).unwrap();
    ["rx", "tx"].map(|way| counts(&link[0]["stats64"][way]))
}

fn counts(of: &serde_json::Value) -> (u64, u64) {
    (of["packets"].as_u64().unwrap(), of["bytes"].as_u64().unwrap())
}

#[test]
fn ports_count_what_the_far_ends_count() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    for driver in ["af_packet", "af_xdp", "xdp"] {
        let before = ["a", "b"].map(|host| counts_of(&network, host));
        let router = start(&network, &format!("eth1 eth2 --driver {driver}"));
        warm_up(&network);
        network.run("a", "ping -n -q -c 500 -s 1000 -i 0.005 10.0.2.2");
        network.run("b", "ping -n -q -c 500 -s 400 -i 0.005 2001:db8:1::2");
        let rows = || -> Vec<serde_json::Value> {
            let (_, text) = network.run("r", &format!("{PROGRAM} show ports --json"));
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let mut last = String::new();
        let agree = netns::eventually(|| {
            let after = ["a", "b"].map(|host| counts_of(&network, host));
            (rows().iter().zip(before).zip(after)).all(|((row, [rx, tx]), [rx_after, tx_after])| {
                // Received here is sent there.
                let theirs =
                    [(tx, tx_after), (rx, rx_after)].map(|(from, to)| (to.0 - from.0, to.1 - from.1));
                last = format!("{driver}: far end {theirs:?}, {row}");
                ["rx", "tx"].iter().zip(theirs).all(|(way, theirs)| {
                    let ours = counts(&row[way]);
                    // Veths with NAPI count bytes without the Ethernet header (drivers/net/veth.c).
                    let headers = 14 * theirs.0;
                    // ARP and neighbour discovery are Linux's.
                    ours.0.abs_diff(theirs.0) * 100 <= 3 * theirs.0
                        && ours.1 * 100 >= theirs.1 * 99
                        && ours.1 * 100 <= (theirs.1 + headers) * 101
                })
            })
        });
        assert!(agree, "{last}");
        assert_eq!(router.interrupt(), 0, "{}", router.printed());
    }
}

#[test]
fn on_xdp() {
    what_people_try_first("--driver xdp");
}

#[test]
fn on_af_xdp() {
    what_people_try_first("--driver af_xdp");
}

#[test]
fn on_af_packet() {
    what_people_try_first("--driver af_packet");
}

#[test]
fn with_native_errors() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let _router = start(&network, "eth1 eth2 --slow-path native");
    warm_up(&network);
    let (_, text) = network.run("a", "traceroute -n -w 1 -q 1 10.0.2.2");
    assert!(text.contains(" 1  10.0.1.1 ") && text.contains(" 2  10.0.2.2 "), "{text}");
    let (_, text) = network.run("a", "ping -n -c 1 -W 1 203.0.113.1");
    assert!(text.contains("From 10.0.1.1 icmp_seq=1 Destination Net Unreachable"), "{text}");
    let (_, text) = network.run("a", "ping -n -c 1 -W 1 2001:db8:99::1");
    assert!(text.contains("From 2001:db8:1::1 icmp_seq=1 Destination unreachable: No route"), "{text}");
    network.ip("r", "link set eth2 mtu 1400");
    network.ip("b", "link set eth0 mtu 1400");
    assert!(netns::eventually(|| {
        let (_, text) = network.run("a", "ping -n -c 1 -W 1 -M do -s 1400 10.0.2.2");
        text.contains("mtu=1400") || text.contains("mtu = 1400")
    }));
    assert_eq!(answers(&network, "-M dont -s 1400 10.0.2.2"), 10);
}

/// Pings a hundred times a second while `act` runs; how many were lost, of how many.
fn lost_during(network: &Network, act: impl FnOnce()) -> (usize, usize) {
    router::lost_during(network, "a", "10.0.2.2", act)
}

#[test]
fn killed_and_started_again_under_traffic() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let router = start(&network, "eth1 eth2");
    warm_up(&network);
    let (lost, sent) = lost_during(&network, || {
        drop(router);
        assert!(netns::eventually(|| answers(&network, "10.0.2.2") == 10), "the kernel does not go on");
    });
    println!("kill -9: {lost} of {sent} pings lost, 10 ms apart");
    assert!(lost <= sent / 2, "{lost} of {sent} lost");
    let mut router = None;
    let (lost, sent) = lost_during(&network, || router = Some(start(&network, "eth1 eth2")));
    println!("start: {lost} of {sent} pings lost");
    assert!(lost <= sent / 2, "{lost} of {sent} lost");
    warm_up(&network);
}

#[test]
fn rules_and_reverse_paths_judge_packets_and_can_be_seen_and_changed() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let socket = network.folder.file("socket");
    network.folder.write("rules.txt", "10 deny icmp any 10.0.2.2 icmp-type 8 in eth1\n");
    let text = format!(
        "[[port]]\nname = \"eth1\"\n[[port]]\nname = \"eth2\"\n[acl]\nfile = \"rules.txt\"\n[reverse_path]\n\
         mode = \"strict\"\n[control]\nsocket = \"{socket}\"\n"
    );
    let settings = network.folder.write("brickway.toml", text);
    let _router = start(&network, &format!("--config {settings}"));
    let ask = |what: &str| {
        let (_, text) = network.run("r", &format!("{PROGRAM} {what} --socket {socket}"));
        text
    };

    // The rule, its count, and another one instead.
    assert_eq!(answers_of(&network, "10.0.2.2"), 0);
    let text = ask("show acl");
    assert!(text.contains("deny icmp") && text.contains("10"), "{text}");
    network.folder.write("rules.txt", "10 deny tcp any any port 7\n");
    assert!(ask("reload").contains("access list"), "{}", ask("reload"));
    assert!(netns::eventually(|| answers(&network, "10.0.2.2") == 10));
    warm_up(&network);

    // A source to which no route leads back by the port it came in.
    network.ip("a", "addr add 10.0.2.99/32 dev eth0");
    assert_eq!(answers_of(&network, "-I 10.0.2.99 10.0.2.2"), 0);
    network.ip("a", "addr add 10.9.9.9/32 dev eth0");
    assert_eq!(answers_of(&network, "-I 10.9.9.9 10.0.2.2"), 0);
    let text = ask("show drops");
    assert!(text.contains("no route back"), "{text}");
    assert_eq!(answers(&network, "10.0.2.2"), 10);

    // What people look at.
    let text = ask("show ports");
    assert!(text.contains("eth1") && text.contains("10.0.1.1/24"), "{text}");
    let text = ask("show route 10.0.2.2");
    assert!(text.contains("02:00:00:00:02:02"), "{text}");
    let (same, text) = network.run("r", &format!("{PROGRAM} show drift --socket {socket}"));
    assert!(same, "{text}");
}

/// The same without a word, where none is expected.
fn answers_of(network: &Network, options: &str) -> usize {
    let (_, text) = network.run("a", &format!("ping -n -c 3 -i 0.02 -W 0.3 {options}"));
    text.lines().filter(|line| line.contains("bytes from")).count()
}

/// Under real packets, and named where tables are shown; the kernel forwards by those that it can read.
#[test]
fn packets_go_by_the_tables_of_the_settings() {
    if !netns::is_root() {
        return;
    }
    for (ipv4, ipv6, path) in [
        ("rank", "range_tree", "kernel"),
        ("dir24_8", "range_tree", "workers: the kernel cannot read the table dir24_8"),
        ("byte24", "linear", "workers: the kernel cannot read the table linear"),
        ("linear", "linear", "workers: the kernel cannot read the table linear"),
    ] {
        let network = network();
        let socket = network.folder.file("socket");
        let text = format!(
            "[[port]]\nname = \"eth1\"\n[[port]]\nname = \"eth2\"\n[tables]\nipv4 = \"{ipv4}\"\nipv6 = \"{ipv6}\"\n\
             [control]\nsocket = \"{socket}\"\n"
        );
        let settings = network.folder.write("brickway.toml", text);
        let _router = start(&network, &format!("--config {settings}"));
        warm_up(&network);
        // A route that comes, and goes.
        network.ip("b", "addr add 50.1.2.7/32 dev lo");
        network.ip("r", "route add 50.0.0.0/8 via 10.0.2.2");
        assert!(netns::eventually(|| answers(&network, "50.1.2.7") == 10), "{ipv4}");
        network.ip("r", "route del 50.0.0.0/8");
        assert!(netns::eventually(|| answers_of(&network, "50.1.2.7") == 0), "{ipv4}");
        let ask = |what: &str| network.run("r", &format!("{PROGRAM} show {what} --socket {socket}"));
        let (same, text) = ask("drift");
        assert!(same, "{text}");
        let of_main = |family: &str| {
            let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            words.filter(|words| words.contains(&"254") && words.contains(&family)).collect::<Vec<_>>()
        };
        assert!(of_main("IPv4").iter().any(|words| words.contains(&ipv4)), "{text}");
        assert!(of_main("IPv6").iter().any(|words| words.contains(&ipv6)), "{text}");
        if std::env::var("BRICKWAY_TEST_DRIVER").is_err() {
            let is_path = format!("\"path\":\"{path}");
            let shows_path = || ask("ports --json").1.matches(&is_path).count() == 2;
            assert!(netns::eventually(shows_path), "{path}: {}", ask("ports").1);
        }
    }
}

#[test]
fn a_device_that_linux_does_not_see_has_a_twin() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let _router = start(&network, "eth1 lan=tap:vm0");
    network.ip("r", &format!("link set vm0 netns {}", network.name("b")));
    network.ip("b", "link set vm0 up");
    network.allow_ipv6("b", "vm0");
    network.allow_ipv6("r", "lan");
    network.ip("r", "addr add 10.0.3.1/24 dev lan");
    network.ip("r", "addr add 2001:db8:3::1/64 dev lan nodad");
    network.ip("b", "addr add 10.0.3.2/24 dev vm0");
    network.ip("b", "addr add 2001:db8:3::2/64 dev vm0 nodad");
    network.ip("b", "route replace default via 10.0.3.1");
    network.ip("b", "-6 route replace default via 2001:db8:3::1");
    router::warm_up(&network, "a", &["10.0.3.2", "2001:db8:3::2"]);
    assert_eq!(answers(&network, "10.0.3.1"), 10);
    let (_, text) = network.run("a", "traceroute -n -w 1 -q 1 10.0.3.2");
    assert!(text.contains(" 1  10.0.1.1 ") && text.contains(" 2  10.0.3.2 "), "{text}");
    // Somebody else's address is defended: questions from `::` reach Linux.
    network.ip("b", "addr add 2001:db8:3::1/64 dev vm0");
    let refused = || network.run("b", "ip -6 addr show dev vm0").1.contains("dadfailed");
    assert!(netns::eventually(refused));
}

#[test]
fn people_ask_which_way_packets_take_and_what_is_left_to_linux() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    network.ip("r", "route add 203.0.113.0/24 via 10.0.2.2 table 100");
    network.ip("r", "rule add from 10.0.1.2 iif eth1 lookup 100");
    network.ip("r", "rule add to 192.0.2.0/24 prohibit");
    network.ip("r", "rule add ipproto tcp to 203.0.113.9 lookup 100");
    network.ip("r", "route add 198.51.100.0/24 nexthop via 10.0.1.2 nexthop via 10.0.2.2 weight 3");
    let socket = network.folder.file("socket");
    let router = start(&network, &format!("eth1 eth2 --driver af_packet --socket {socket}"));
    let ask = |what: &str| network.run("r", &format!("{PROGRAM} {what} --socket {socket}"));

    let (found, text) = ask("show route 203.0.113.1");
    assert!(!found && text.contains("203.0.113.1 no route"), "{text}");
    let (found, text) = ask("show route 203.0.113.1 --from 10.0.1.2 --iif eth1");
    assert!(found && text.contains("via 10.0.2.2 dev eth2") && text.contains("table 100"), "{text}");
    let (_, text) = ask("show route 203.0.113.1 --from 10.0.1.2 --iif eth2");
    assert!(text.contains("no route"), "{text}");
    let (_, text) = ask("show route 192.0.2.7");
    assert!(text.contains("prohibit (a policy rule)"), "{text}");
    let (_, text) = ask("show route 203.0.113.9");
    assert!(text.contains("punted (a policy rule"), "{text}");
    let (_, text) = ask("show route 203.0.113.9 --iif eth9");
    assert!(text.contains("'eth9': not a port of this router; its ports are eth1, eth2"), "{text}");
    for table in ["ports", "queues"] {
        let (found, text) = ask(&format!("show {table} eth9"));
        assert!(!found && text.contains("'eth9': not a port of this router"), "{text}");
    }
    let (_, text) = ask("show route 203.0.113.9 --from ::1");
    assert!(text.contains("two families"), "{text}");
    let (_, text) = ask("show route 198.51.100.1");
    let shares: Vec<&str> = text.lines().filter(|line| line.contains('%')).collect();
    assert!(shares.len() == 2, "{text}");
    assert!(
        shares.iter().any(|line| line.contains("25% ") && line.contains("via 10.0.1.2 dev eth1")),
        "{text}"
    );
    assert!(
        shares.iter().any(|line| line.contains("75% ") && line.contains("via 10.0.2.2 dev eth2")),
        "{text}"
    );

    let (_, text) = ask("show problems");
    let rule = text.lines().find(|line| line.contains("selects by more than")).unwrap_or_default();
    assert!(rule.starts_with("IPv4 rule ") && rule.contains("to 203.0.113.9/32 lookup 100"), "{text}");
    assert!(!text.contains("MTU"), "{text}");
    network.ip("r", "link set eth2 mtu 9000");
    let long = "MTU 9000 of eth2: a frame of 1856 bytes holds 1838 at most; expected --frame-size 9018, or ";
    assert!(netns::eventually(|| ask("show problems").1.contains(long)));
    let (changed, text) = ask("set log.stats_seconds 1e-9");
    assert!(!changed && text.contains("from 0.1 to 86400, or 0 for none"), "{text}");

    // A second router on the same ports.
    let (ran, text) = network.run("r", &format!("{PROGRAM} run eth2 eth1"));
    assert!(
        !ran && text.contains(" of Brickway routes on eth2, eth1 already; stop it first: kill "),
        "{text}"
    );
    assert_eq!(text.trim().lines().count(), 1, "{text}");

    // Frames hold the largest MTU unless they are said to hold less.
    drop(router);
    let warns = |options: &str| {
        let run = format!("{PROGRAM} run eth1 eth2 --driver af_packet --frames 2048 --for 0.1 {options}");
        network.run("r", &run).1.contains("MTU 9000 of eth2")
    };
    assert!(warns("--frame-size 1856") && !warns("--frame-size 9100") && !warns(""));
    // The configuration of ports that do not come by themselves says how to run it.
    let (_, text) = network.run("r", &format!("{PROGRAM} run eth1 lan=tap:bwvm0 --print-config"));
    assert!(
        text.starts_with("// Run it with: brickway run FILE.click --port 'lan=tap:bwvm0'\n// A router"),
        "{text}"
    );
}

#[test]
fn what_drivers_leave_to_linux_is_shown_with_the_reason() {
    if !netns::is_root() {
        return;
    }
    for driver in ["xdp", "af_packet"] {
        let network = network();
        let socket = network.folder.file("socket");
        let _router = start(&network, &format!("eth1 eth2 --driver {driver} --socket {socket}"));
        // A neighbour that has to be asked for again, and packets to the router itself.
        network.ip("a", "neigh flush dev eth0");
        assert!(netns::eventually(|| network.answers("a", "10.0.1.1") == 10));
        let rows = || {
            let (_, text) = network.run("r", &format!("{PROGRAM} show punts --json --socket {socket}"));
            let rows = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
            rows.collect::<Vec<_>>()
        };
        let packets = |reason: &str| {
            let of_port = |row: &&serde_json::Value| row["element"] == "eth1" && row["class"] == "driver";
            let rows = rows();
            let found = rows.iter().filter(of_port).find(|row| row["reason"] == reason);
            found.and_then(|row| row["packets"].as_u64()).unwrap_or(0)
        };
        assert!(
            netns::eventually(|| packets("ARP") > 0 && packets("to this host") >= 10),
            "{driver}: {:#?}",
            rows()
        );
    }
}

#[test]
fn people_ask_what_steps_cost_and_which_functions_take_the_time() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let socket = network.folder.file("socket");
    let _router = start(&network, &format!("eth1 eth2 --driver af_packet --socket {socket}"));
    warm_up(&network);
    let _pings = network.start("a", "ping -n -q -i 0.002 10.0.2.2");
    let ask = |what: &str| network.run("r", &format!("{PROGRAM} {what} --socket {socket}"));
    let cost = |options: &str| -> Vec<CostRow> {
        let (done, text) = ask(&format!("show cost --json {options}"));
        if !done {
            println!("{text}");
            return Vec::new();
        }
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let is_run = |row: &CostRow| row.elements.len() > 1 && row.packets > 0;
    let has_runs = || cost("").iter().any(is_run);
    assert!(netns::eventually(has_runs), "no elements work as one");

    // Each element by itself: those that all packets pass are there, and what they cost is a part of the time.
    let mut rows = Vec::new();
    let all_pass = ["FromDevice", "CheckIPHeader", "FIBLookup", "ToDevice"];
    let find = |rows: &[CostRow], class: &str| {
        let mut rows = rows.iter();
        rows.find(|row| row.classes == [class] && row.packets > 0).cloned()
    };
    let have_packets = netns::eventually(|| {
        rows = cost("--unfused");
        all_pass.iter().all(|class| find(&rows, class).is_some())
    });
    assert!(have_packets, "{rows:?}");
    assert!(rows.iter().all(|row| row.elements.len() <= 1), "{rows:?}");
    for row in all_pass.iter().flat_map(|class| find(&rows, class)) {
        assert!(row.cycles_per_packet > Some(0.0) && row.packets_per_batch >= 1.0, "{row:?}");
        assert!(row.share > 0.0 && row.share < 1.0, "{row:?}");
    }
    let of_first = rows.iter().filter(|row| row.worker == 0).map(|row| row.share);
    assert!((of_first.sum::<f64>() - 1.0).abs() < 1e-6, "{rows:?}");
    assert!(netns::eventually(has_runs), "elements work apart after the answer");

    // Somebody who asks for long is killed. One asks at a time, so this one may have to try again.
    let ask_for_long =
        || network.start("r", &format!("{PROGRAM} show cost --unfused --seconds 30 --socket {socket}"));
    let mut asker = ask_for_long();
    let is_measuring = || {
        if asker.wait(Duration::from_millis(500)).is_some() {
            asker = ask_for_long();
            return false;
        }
        ask("show cost").1.contains("another one is measuring")
    };
    assert!(netns::eventually(is_measuring));
    drop(asker);
    assert!(netns::eventually(has_runs), "elements work apart when who asked for that is gone");

    // The picture has the threads, the elements, and functions of ours.
    let picture = network.folder.file("flame.svg");
    let drawn = || {
        let (done, text) = ask(&format!("profile 1 -o {picture}"));
        println!("{text}");
        let svg = std::fs::read_to_string(&picture).unwrap_or_default();
        done && ["<svg", "worker 0", "element FromDevice", "graph::"].iter().all(|part| svg.contains(part))
    };
    assert!(netns::eventually(drawn), "{}", ask("profile 1 --folded").1);
}
