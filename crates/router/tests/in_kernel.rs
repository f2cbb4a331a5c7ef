//! Forwarding in the kernel by the router's tables: what takes that way, what keeps to the sockets, and what changes
//! between the two while packets flow.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod netns;

use std::collections::BTreeMap;

use netns::router::{ON_THEIR_WAY, PROGRAM, answered, forwarded_by_the_kernel, lost_during, start, warm_up};
use netns::{Network, Running, eventually};
use rustix::process::Signal;

/// Hosts a and b, and a router between them whose links can send what is redirected to them.
fn network() -> Network {
    let network = Network::new(&["a", "r", "b"]);
    network.link(("a", "eth0", "02:00:00:00:01:02"), ("r", "eth1", "02:00:00:00:01:01"));
    network.link(("b", "eth0", "02:00:00:00:02:02"), ("r", "eth2", "02:00:00:00:02:01"));
    with_addresses(&network, 1, "a");
    with_addresses(&network, 2, "b");
    network.forward("r");
    network
}

/// Addresses and routes of both ends of a link between the router and a host.
fn with_addresses(network: &Network, number: u8, host: &str) {
    let port = format!("eth{number}");
    network.allow_ipv6("r", &port);
    network.allow_ipv6(host, "eth0");
    network.ip("r", &format!("addr add 10.0.{number}.1/24 dev {port}"));
    network.ip("r", &format!("addr add 2001:db8:{number}::1/64 dev {port} nodad"));
    network.ip(host, &format!("addr add 10.0.{number}.2/24 dev eth0"));
    network.ip(host, &format!("route add default via 10.0.{number}.1"));
    network.ip(host, &format!("addr add 2001:db8:{number}::2/64 dev eth0 nodad"));
    network.ip(host, &format!("-6 route add default via 2001:db8:{number}::1"));
}

/// Starts a router of eth1 and eth2; with the path of its socket.
fn router(network: &Network, options: &str) -> (Running, String) {
    let socket = network.folder.file("socket");
    let router = start(network, &format!("eth1 eth2 {options} --socket {socket}"));
    warm_up(network, "a", &["10.0.2.2", "2001:db8:2::2"]);
    (router, socket)
}

/// What `brickway show ports --json` says of a port: its path, and packets received and forwarded in the kernel.
fn port(network: &Network, socket: &str, name: &str) -> (String, u64) {
    let (_, text) = network.run("r", &format!("{PROGRAM} show ports {name} --json --socket {socket}"));
    let row: serde_json::Value =
        serde_json::from_str(text.trim()).unwrap_or_else(|error| panic!("{error}: {text}"));
    (row["path"].as_str().unwrap().to_owned(), row["in_kernel"].as_u64().unwrap())
}

/// Packets that workers received, by whatever port.
fn of_workers(network: &Network, socket: &str) -> u64 {
    let (_, text) = network.run("r", &format!("{PROGRAM} show queues --json --socket {socket}"));
    let rows = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    rows.filter(|row| row["sends"] == false).map(|row| row["packets"].as_u64().unwrap()).sum()
}

/// Waits until the path of a port begins so.
fn wait_for_path(network: &Network, socket: &str, name: &str, path: &str) {
    let mut last = String::new();
    let is_so = eventually(|| {
        last = port(network, socket, name).0;
        last.starts_with(path)
    });
    assert!(is_so, "{name}: {last}, not {path}");
}

/// Pings of both families, ten each; how many packets workers saw of them.
fn seen_by_workers(network: &Network, socket: &str) -> u64 {
    let before = of_workers(network, socket);
    for to in ["10.0.2.2", "2001:db8:2::2"] {
        assert_eq!(network.answers("a", to), 10, "{to}");
    }
    of_workers(network, socket) - before
}

#[test]
fn transit_is_forwarded_in_the_kernel_and_counted() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let (router, socket) = router(&network, "");
    wait_for_path(&network, &socket, "eth1", "kernel");
    wait_for_path(&network, &socket, "eth2", "kernel");
    let forwarded = || ["eth1", "eth2"].map(|name| port(&network, &socket, name).1);
    let before = forwarded();
    assert_eq!(seen_by_workers(&network, &socket), 0);
    // Ports receive more meanwhile: neighbours are asked for now and then.
    assert_eq!(forwarded(), before.map(|before| before + 20));
    // What has one hop left is answered, by Linux as no socket sees it.
    let before = of_workers(&network, &socket);
    let (_, text) = network.run("a", "traceroute -n -w 1 -q 1 10.0.2.2");
    assert!(text.contains(" 1  10.0.1.1 ") && text.contains(" 2  10.0.2.2 "), "{text}");
    assert_eq!(of_workers(&network, &socket), before);
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
    assert!(router.printed().contains("in the kernel  by workers  by Linux"), "{}", router.printed());
}

#[test]
fn what_the_program_does_not_know_keeps_packets_in_the_graph() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    for (options, path) in [
        ("--driver af_xdp", "workers: driver = \"af_xdp\""),
        ("--driver af_packet", "workers: its packets come by no XDP program"),
    ] {
        let (router, socket) = router(&network, options);
        wait_for_path(&network, &socket, "eth1", path);
        assert_eq!(seen_by_workers(&network, &socket), 40, "{options}");
        assert_eq!(router.interrupt(), 0, "{}", router.printed());
    }
}

#[test]
fn policy_rules_choose_the_tables_in_the_kernel_too() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    network.ip("b", "addr add 203.0.113.9/32 dev lo");
    network.ip("r", "route add 203.0.113.0/24 via 10.0.2.99");
    let (router, socket) = router(&network, "--driver xdp");
    wait_for_path(&network, &socket, "eth1", "kernel");
    wait_for_path(&network, &socket, "eth2", "kernel");
    assert_eq!(network.answers("a", "203.0.113.9"), 0);
    // The sender's own table has a better way, and the rest follows main.
    network.ip("r", "route add 203.0.113.0/24 via 10.0.2.2 table 100");
    network.ip("r", "rule add from 10.0.1.2 lookup 100");
    assert!(eventually(|| network.answers("a", "203.0.113.9") == 10));
    let before = of_workers(&network, &socket);
    assert_eq!(network.answers("a", "203.0.113.9"), 10);
    assert_eq!(of_workers(&network, &socket), before);
    assert_eq!(seen_by_workers(&network, &socket), 0);
    // What a rule drops is the graph's to answer. Linux writes the answers, and only so many a second to one host, which the host that had
    // no answer above has used up.
    network.set("r", "net.ipv4.icmp_ratelimit=0");
    network.ip("r", "rule add iif eth1 to 203.0.113.0/24 priority 5 prohibit");
    let mut text = String::new();
    let is_refused = eventually(|| {
        text = network.run("a", "ping -n -c 1 -W 1 203.0.113.9").1;
        text.contains("Packet filtered")
    });
    assert!(is_refused, "{text}");
    // More rules than the program has room for.
    let file = network.folder.file("rules");
    let rules: String =
        (0..300).map(|n| format!("rule add to 198.18.0.0/{} priority {}\n", 15 + n % 18, 100 + n)).collect();
    std::fs::write(&file, rules).unwrap();
    network.ip("r", &format!("-batch {file}"));
    let path = "workers: more than 256 policy rules";
    wait_for_path(&network, &socket, "eth1", path);
    let told = format!("port eth1: plain transit goes through the {path}");
    assert!(eventually(|| router.printed().contains(&told)), "{}", router.printed());
    assert_eq!(seen_by_workers(&network, &socket), 40);
}

#[test]
fn deaf_links_take_the_packets_back_and_give_them_again() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let (_router, socket) = router(&network, "--driver xdp");
    wait_for_path(&network, &socket, "eth1", "kernel");
    // The other end of the link does not poll any more: what would be redirected to it would vanish.
    let (done, text) = network.run("b", "ethtool -K eth0 gro off");
    assert!(done, "{text}");
    wait_for_path(&network, &socket, "eth2", "kernel; packets to it by workers");
    assert_eq!(seen_by_workers(&network, &socket), 20);
    network.run("b", "ethtool -K eth0 gro on");
    assert!(eventually(|| port(&network, &socket, "eth2").0 == "kernel"));
    assert_eq!(seen_by_workers(&network, &socket), 0);
}

#[test]
fn a_link_that_is_made_anew_is_forwarded_by_again() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let (router, socket) = router(&network, "--driver xdp");
    for round in 0..3 {
        // A packet may be lost while the port of a new link is opened.
        let mut last = (String::new(), 0, 0);
        let is_forwarded = eventually(|| {
            let before = of_workers(&network, &socket);
            let answers = ["10.0.2.2", "2001:db8:2::2"].map(|to| network.answers("a", to)).iter().sum();
            let seen = of_workers(&network, &socket) - before;
            last = (["eth1", "eth2"].map(|name| port(&network, &socket, name).0).join(", "), answers, seen);
            last == ("kernel, kernel".to_owned(), 20, 0)
        });
        assert!(is_forwarded, "round {round}: {last:?}: {}", router.printed());
        network.ip("r", "link del eth2");
        // What goes there meanwhile is lost, and shall bring nothing out of step.
        network.run("a", "ping -n -q -i 0.01 -c 50 -W 1 10.0.2.2");
        network.link(("b", "eth0", "02:00:00:00:02:02"), ("r", "eth2", "02:00:00:00:02:01"));
        with_addresses(&network, 2, "b");
        warm_up(&network, "a", &["10.0.2.2", "2001:db8:2::2"]);
    }
}

#[test]
fn links_that_are_made_anew_with_exchanged_numbers_are_forwarded_by_again() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let (router, socket) = router(&network, "");
    let number = |name: &str| {
        let (_, text) = network.run("r", &format!("ip -o link show {name}"));
        text.split(':').next().unwrap().to_owned()
    };
    for round in 0..2 {
        ["eth1", "eth2"].into_iter().for_each(|name| wait_for_path(&network, &socket, name, "kernel"));
        assert_eq!(seen_by_workers(&network, &socket), 0, "round {round}: {}", router.printed());
        let numbers = [number("eth2"), number("eth1")];
        network.ip("r", "link del eth1");
        network.ip("r", "link del eth2");
        for (subnet, (host, number)) in (1..).zip(["a", "b"].into_iter().zip(numbers)) {
            let (near, name) = (format!("02:00:00:00:0{subnet}:01 index {number}"), format!("eth{subnet}"));
            let far = format!("02:00:00:00:0{subnet}:02");
            network.link(("r", &name, &near), (host, "eth0", &far));
            with_addresses(&network, subnet, host);
        }
        warm_up(&network, "a", &["10.0.2.2", "2001:db8:2::2"]);
    }
    assert!(!router.printed().contains("place of another port"), "{}", router.printed());
}

#[test]
fn routes_that_come_and_go_are_followed_and_nothing_is_lost() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let (router, socket) = router(&network, "");
    wait_for_path(&network, &socket, "eth1", "kernel");
    wait_for_path(&network, &socket, "eth2", "kernel");
    let file = network.folder.file("routes");
    // More than the first tables have room for: /32s in as many /24s.
    let line = |what: &str, n: u32| format!("route {what} 50.{}.{}.7/32 via 10.0.2.2\n", n >> 8, n & 255);
    let batch = |what: &str| -> String { (0..60_000).map(|n| line(what, n)).collect() };
    let (lost, sent) = lost_during(&network, "a", "10.0.2.2", || {
        for what in ["add", "del", "add"] {
            std::fs::write(&file, batch(what)).unwrap();
            network.ip("r", &format!("-batch {file}"));
        }
    });
    assert!(sent > 50 && lost == 0, "{lost} of {sent} lost");
    network.ip("b", "addr add 50.1.2.7/32 dev lo");
    assert_eq!(network.answers("a", "50.1.2.7"), 10);
    // They are all in the kernel's tables.
    assert!(eventually(|| {
        let before = of_workers(&network, &socket);
        network.answers("a", "50.1.2.7") == 10 && of_workers(&network, &socket) == before
    }));
    let (same, text) = network.run("r", &format!("{PROGRAM} show drift --socket {socket}"));
    assert!(same, "{text}");
    // However it ends, Linux goes on.
    router.signal(Signal::KILL);
    assert!(eventually(|| router.ended().is_some()));
    assert_eq!(network.answers("a", "10.0.2.2"), 10);
}

/// Kilobytes of TCP from a to b, which have to arrive.
fn transfer(network: &Network, kilobytes: u32, to: &str) {
    let server = network.start("b", "iperf3 -s -1");
    let mut text = String::new();
    let through = eventually(|| {
        let (done, output) = network.run("a", &format!("iperf3 -n {kilobytes}K -c {to}"));
        text = output;
        done
    });
    drop(server);
    assert!(through, "{kilobytes} KB to {to}: {text}");
}

/// Has the sender leave everything to its card, and the receiver check every packet.
fn leaves_all_to_a_card(network: &Network) {
    for (host, device, offloads) in
        [("a", "eth0", "tx on tso on gso on"), ("r", "eth2", "tx off"), ("b", "eth0", "rx off gro off")]
    {
        let (done, text) = network.run(host, &format!("ethtool -K {device} {offloads}"));
        assert!(done, "{text}");
    }
}

#[test]
fn long_frames_of_hosts_are_forwarded_whole_in_tc() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    leaves_all_to_a_card(&network);
    let (router, socket) = router(&network, "");
    let in_tc = || {
        ["eth1", "eth2"].into_iter().for_each(|name| wait_for_path(&network, &socket, name, "kernel (tc)"))
    };
    in_tc();
    let (_, links) = network.run("r", "ip link show");
    assert!(!links.contains("xdp"), "{links}");
    let forwarded = |name: &str| port(&network, &socket, name).1;
    for to in ["10.0.2.2", "2001:db8:2::2"] {
        let (before, by_linux) = (forwarded("eth1"), forwarded_by_the_kernel(&network));
        transfer(&network, 20_000, to);
        // Segments of 1,460 bytes or less. iperf3 breaks off what is on its way at the end.
        assert!(forwarded("eth1") - before > 10_000_000 / 1_461, "{to}: {}", forwarded("eth1") - before);
        let left = forwarded_by_the_kernel(&network) - by_linux;
        assert!(left < 100, "{to}: Linux forwarded {left}");
    }
    let (_, text) = network.run("b", "nstat -asz TcpInCsumErrors");
    assert!(text.contains("TcpInCsumErrors                 0"), "{text}");
    // What was merged and would be too long in pieces is Linux's to answer, and arrives shorter. Linux may forward some while the port
    // learns its MTU.
    network.ip("r", "link set eth2 mtu 1300");
    for to in ["10.0.2.2", "2001:db8:2::2"] {
        let before = forwarded("eth1");
        transfer(&network, 20_000, to);
        assert!(forwarded("eth1") - before > 10_000_000 / 1_461, "{to}: {}", forwarded("eth1") - before);
    }
    network.ip("r", "link set eth2 mtu 1500");
    // The graph has to see the packets of a capture. Whoever hands Linux a packet whose time is over, there is one answer.
    network.set("r", "net.ipv4.icmp_ratemask=0");
    let dying = network.start("a", "ping -n -i 0.02 -W 1 -t 1 10.0.2.2");
    let (lost, sent) = lost_during(&network, "a", "10.0.2.2", || {
        for _ in 0..3 {
            let capture = network.start("r", &format!("{PROGRAM} capture eth1 icmp --socket {socket}"));
            wait_for_path(&network, &socket, "eth1", "workers: its packets are captured");
            assert!(eventually(|| capture.printed().contains("10.0.2.2")), "{}", capture.printed());
            capture.interrupt();
            in_tc();
        }
    });
    assert!(sent > 50 && lost == 0, "{lost} of {sent} lost");
    dying.interrupt();
    let printed = dying.printed();
    let answers: Vec<&str> = printed.lines().filter(|line| line.contains("Time to live exceeded")).collect();
    let numbers: std::collections::BTreeSet<&str> =
        answers.iter().filter_map(|line| line.split("icmp_seq=").nth(1)).collect();
    assert!(numbers.len() > 20 && numbers.len() == answers.len(), "{printed}");
    // Where Linux forwards no more, nobody does.
    network.set("r", "net.ipv4.ip_forward=0");
    assert!(eventually(|| network.answers("a", "10.0.2.2") == 0));
    assert_eq!(network.answers("a", "2001:db8:2::2"), 10);
    network.set("r", "net.ipv4.ip_forward=1");
    assert!(eventually(|| network.answers("a", "10.0.2.2") == 10));
    in_tc();
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
    assert_eq!(network.answers("a", "10.0.2.2"), 10);
}

#[test]
fn a_list_judges_long_frames_whole_and_the_graph_gets_them_whole() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    leaves_all_to_a_card(&network);
    let list = "10 permit icmp any any\n20 permit icmp6 any any\n30 deny tcp any any port 5202\n40 permit tcp any any\n";
    let rules = network.folder.write("rules.txt", list);
    let (router, socket) = router(&network, &format!("--acl {rules}"));
    for name in ["eth1", "eth2"] {
        wait_for_path(&network, &socket, name, "kernel (tc)");
    }
    let forwarded = |name: &str| port(&network, &socket, name).1;
    let segments = 10_000_000 / 1_461;
    for to in ["10.0.2.2", "2001:db8:2::2"] {
        let (before, by_linux) = (forwarded("eth1"), forwarded_by_the_kernel(&network));
        transfer(&network, 20_000, to);
        assert!(forwarded("eth1") - before > segments, "{to}: {}", forwarded("eth1") - before);
        assert!(forwarded_by_the_kernel(&network) - by_linux < 100, "{to}");
        // What the list denies comes to the graph, and to nobody behind it.
        let server = network.start("b", "iperf3 -s -p 5202");
        let (done, text) = network.run("a", &format!("iperf3 --connect-timeout 500 -p 5202 -n 1K -c {to}"));
        assert!(!done, "{text}");
        drop(server);
    }
    let (_, drops) = network.run("r", &format!("{PROGRAM} show drops --socket {socket}"));
    assert!(drops.contains("denied by rule"), "{drops}");
    // All of it in the graph, as the senders merge it.
    let file = network.folder.file("packets.pcap");
    let capture = network.start("r", &format!("{PROGRAM} capture eth1 tcp -w {file} --socket {socket}"));
    wait_for_path(&network, &socket, "eth1", "workers: its packets are captured");
    let before = forwarded("eth1");
    for to in ["10.0.2.2", "2001:db8:2::2"] {
        transfer(&network, 2_000, to);
    }
    assert_eq!(forwarded("eth1"), before);
    let captured_bytes = || {
        let (_, text) = network.run("r", &format!("tcpdump -tnr {file} greater 1515"));
        let lengths = text.lines().filter_map(|line| line.rsplit_once("length ")?.1.parse::<u64>().ok());
        lengths.sum::<u64>()
    };
    assert!(eventually(|| captured_bytes() > 2_000_000), "{}", capture.printed());
    capture.interrupt();
    let (_, text) = network.run("b", "nstat -asz TcpInCsumErrors");
    assert!(text.contains("TcpInCsumErrors                 0"), "{text}");
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
}

#[test]
fn what_hosts_leave_to_a_card_to_compute_is_linuxs_and_arrives() {
    if !netns::is_root() {
        return;
    }
    for (driver, list) in [
        ("auto", ""),
        ("xdp", ""),
        ("af_xdp", ""),
        // What filters sees them, and computes the checksum.
        ("auto", "permit any any any\n"),
        ("af_xdp", "permit any any any\n"),
    ] {
        let network = network();
        for host in ["a", "b"] {
            let (done, text) = network.run(host, "ethtool -K eth0 tx on tso on gso on");
            assert!(done, "{text}");
        }
        let rules = network.folder.write("rules.txt", list);
        let options = if list.is_empty() { String::new() } else { format!("--acl {rules}") };
        let (_router, socket) = router(&network, &format!("--driver {driver} {options}"));
        let path = match driver {
            "auto" => "kernel (tc)",
            "xdp" => "kernel",
            _ => "workers",
        };
        wait_for_path(&network, &socket, "eth1", path);
        wait_for_path(&network, &socket, "eth2", path);
        if driver == "auto" {
            let (_, text) = network.run("a", "ethtool -k eth0");
            assert!(text.contains("\ntcp-segmentation-offload: on"), "{text}");
        }
        for (options, to) in [
            ("", "10.0.2.2"),
            ("", "2001:db8:2::2"),
            ("-u -b 10M", "10.0.2.2"),
            ("-u -b 10M", "2001:db8:2::2"),
        ] {
            let _server = network.start("b", "iperf3 -s -1");
            let mut text = String::new();
            let through = eventually(|| {
                let (done, output) = network.run("a", &format!("iperf3 -J -t 1 {options} -c {to}"));
                text = output;
                done && !text.contains("\"error\"")
            });
            assert!(through, "{driver} {options} {to}: {text}");
            let report: serde_json::Value = serde_json::from_str(&text).unwrap();
            let received = match options {
                "" => report["end"]["sum_received"]["bytes"].as_f64().unwrap(),
                _ => report["end"]["sum"]["bytes"].as_f64().unwrap(),
            };
            assert!(received > 500_000.0, "{driver} {options} {to}: {text}");
            if !options.is_empty() {
                assert!(
                    report["end"]["sum"]["lost_percent"].as_f64().unwrap() < 50.0,
                    "{driver} {to}: {text}"
                );
            }
        }
        // Where hosts compute it themselves it is ours again.
        for host in ["a", "b"] {
            network.run(host, "ethtool -K eth0 tx off");
        }
    }
}

/// What `brickway show acl --json` says: packets by rule, the default as 0.
fn packets_by_rule(network: &Network, socket: &str) -> BTreeMap<u64, u64> {
    let (_, text) = network.run("r", &format!("{PROGRAM} show acl --json --socket {socket}"));
    let row = |line: &str| {
        let row: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {text}"));
        (row["number"].as_u64().unwrap(), row["packets"].as_u64().unwrap())
    };
    text.lines().map(row).collect()
}

#[test]
fn an_access_list_judges_in_the_kernel_and_counts() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let list = network
        .folder
        .write("rules.txt", "10 deny udp any any port 7\n20 permit icmp any any\n30 permit icmp6 any any\n");
    let (router, socket) = router(&network, &format!("--acl {list}"));
    wait_for_path(&network, &socket, "eth1", "kernel");
    wait_for_path(&network, &socket, "eth2", "kernel");
    let before = packets_by_rule(&network, &socket);
    assert_eq!(seen_by_workers(&network, &socket), 0);
    let after = packets_by_rule(&network, &socket);
    let counted = |number: u64| after[&number] - before[&number];
    assert_eq!((counted(10), counted(20), counted(30), counted(0)), (0, 20, 20, 0));
    // What is denied goes to the graph, which counts it.
    let reload = |rules: &str| {
        network.folder.write("rules.txt", rules);
        let (done, text) = network.run("r", &format!("{PROGRAM} reload --socket {socket}"));
        assert!(done, "{text}");
    };
    reload("10 deny udp any any port 7\n20 permit icmp any any\n30 deny any any 2001:db8:2::/64 in eth1\n");
    let before = packets_by_rule(&network, &socket);
    let of_workers_before = of_workers(&network, &socket);
    assert_eq!(before[&20], after[&20]);
    assert!(network.run("a", "ping -n -c 10 -i 0.02 10.0.2.2").0);
    assert!(!network.run("a", "ping -n -c 10 -i 0.02 -W 0.3 2001:db8:2::2").0);
    let after = packets_by_rule(&network, &socket);
    let counted = |number: u64| after[&number] - before[&number];
    assert_eq!((counted(20), counted(30), counted(0)), (20, 10, 0));
    assert_eq!(of_workers(&network, &socket) - of_workers_before, 10);
    // More rules than the program can have, and few again.
    let many: String =
        (0..2_000).map(|n| format!("deny tcp any 198.51.{}.{} port {n}\n", n >> 8, n & 255)).collect();
    reload(&many);
    assert_eq!(network.answers("a", "10.0.2.2"), 10);
    wait_for_path(&network, &socket, "eth1", "workers: the access list is too long");
    assert_eq!(seen_by_workers(&network, &socket), 40);
    reload("deny udp any any port 7\n");
    wait_for_path(&network, &socket, "eth1", "kernel");
    wait_for_path(&network, &socket, "eth2", "kernel");
    let before = packets_by_rule(&network, &socket);
    assert_eq!(seen_by_workers(&network, &socket), 0);
    assert_eq!(packets_by_rule(&network, &socket)[&0] - before[&0], 40);
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
}

#[test]
fn lists_that_are_reloaded_let_through_what_they_all_permit_and_nothing_that_they_deny() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    for last in 3..6 {
        network.ip("b", &format!("addr add 10.0.2.{last}/24 dev eth0"));
    }
    // All deny 10.0.2.3; the odd ones deny 10.0.2.4, the even ones 10.0.2.5. Their rules have different classes.
    let rules = |round: usize| -> String {
        let many = (0..100).map(|n| format!("deny udp 10.{n}.0.0/16 any port {n}\n"));
        let many = if round.is_multiple_of(2) { String::new() } else { many.collect() };
        format!("{many}deny any any 10.0.2.{}\ndeny icmp any 10.0.2.3\npermit any any any\n", 5 - round % 2)
    };
    let list = network.folder.write("rules.txt", rules(0));
    let (_router, socket) = router(&network, &format!("--acl {list}"));
    for port in ["eth1", "eth2"] {
        wait_for_path(&network, &socket, port, "kernel");
    }
    warm_up(&network, "a", &["10.0.2.4"]);
    let denied = network.start("a", "ping -n -i 0.005 -W 1 10.0.2.3");
    let before = of_workers(&network, &socket);
    let (lost, sent) = lost_during(&network, "a", "10.0.2.2", || {
        for round in 1..20 {
            network.folder.write("rules.txt", rules(round));
            assert!(network.run("r", &format!("{PROGRAM} reload --socket {socket}")).0);
            let answers = |last: usize| network.run("a", &format!("ping -n -c 1 -W 0.2 10.0.2.{last}")).0;
            assert_eq!((answers(4), answers(5)), (round % 2 == 0, round % 2 == 1), "{round}");
        }
    });
    assert!(sent > 50 && lost == 0, "{lost} of {sent} lost");
    denied.interrupt();
    let (denied, answers) = answered(&denied.printed());
    assert!(answers.is_empty(), "{answers:?}");
    // The graph saw what was denied, and nothing else.
    let seen = of_workers(&network, &socket) - before;
    assert!(seen as usize <= denied + ON_THEIR_WAY + 19, "{seen}, {denied} sent");
}

#[test]
fn redirected_packets_that_a_driver_loses_are_drops_with_a_reason() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let (router, socket) = router(&network, "--driver xdp");
    for port in ["eth1", "eth2"] {
        wait_for_path(&network, &socket, port, "kernel");
    }
    let drops = || network.run("r", &format!("{PROGRAM} show drops --json --socket {socket}")).1;
    assert!(!drops().contains("XDP redirect"), "{}", drops());
    // Until the router hears that the other end of eth2 does not poll any more, packets are redirected to it.
    let flood = network.start("a", "ping -n -q -i 0.0005 10.0.2.2");
    let lost = eventually(|| {
        network.run("b", "ethtool -K eth0 gro off");
        network.run("b", "ethtool -K eth0 gro on");
        drops().contains("XDP redirect")
    });
    assert!(lost, "{}", drops());
    flood.interrupt();
    let row = drops().lines().find(|line| line.contains("XDP redirect")).unwrap().to_owned();
    assert!(row.contains("\"eth2\"") && row.contains("\"driver refused redirected packets\""), "{row}");
    assert!(eventually(|| port(&network, &socket, "eth2").0 == "kernel"));
    assert_eq!(seen_by_workers(&network, &socket), 0);
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
    let printed = router.printed();
    assert!(printed.contains("eth2  driver refused redirected packets"), "{printed}");
}

#[test]
fn jumbo_frames_pass_by_every_driver() {
    if !netns::is_root() {
        return;
    }
    for (driver, path) in
        [("auto", "kernel (tc)"), ("xdp", "kernel"), ("af_xdp", "workers"), ("af_packet", "workers")]
    {
        let network = network();
        for (host, device) in [("a", "eth0"), ("r", "eth1"), ("r", "eth2"), ("b", "eth0")] {
            network.ip(host, &format!("link set {device} mtu 9000"));
        }
        let (router, socket) = router(&network, &format!("--driver {driver}"));
        wait_for_path(&network, &socket, "eth1", path);
        wait_for_path(&network, &socket, "eth2", path);
        let pings = |size: u32, to: &str| network.answers("a", &format!("-M do -s {size} {to}"));
        let before = of_workers(&network, &socket);
        for (size, to) in
            [(8_972, "10.0.2.2"), (8_952, "2001:db8:2::2"), (3_700, "10.0.2.2"), (56, "10.0.2.2")]
        {
            assert_eq!(pings(size, to), 10, "{driver} {size} {to}");
        }
        let seen = of_workers(&network, &socket) - before;
        assert_eq!(seen, if path.starts_with("kernel") { 0 } else { 80 }, "{driver}");
        let (_, problems) = network.run("r", &format!("{PROGRAM} show problems --socket {socket}"));
        assert!(!problems.contains("MTU"), "{problems}");
        // With a smaller MTU on the way out the sender gets an ICMP error, and fragments arrive.
        network.ip("r", "link set eth2 mtu 1500");
        network.ip("b", "link set eth0 mtu 1500");
        assert!(eventually(|| {
            let (_, text) = network.run("a", "ping -n -c 1 -W 1 -M do -s 8972 10.0.2.2");
            text.contains("mtu=1500") || text.contains("mtu = 1500")
        }));
        assert_eq!(network.answers("a", "-M dont -s 8972 10.0.2.2"), 10, "{driver}");
        assert_eq!(router.interrupt(), 0, "{}", router.printed());
    }
}
