//! Ports count what hosts sent and got, and say who forwarded it: for each driver and kind of traffic.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod netns;

use netns::router::{PROGRAM, answered, start, warm_up};
use netns::{Network, eventually};

/// Hosts a and b, and a router between them.
fn network() -> Network {
    let network = Network::new(&["a", "r", "b"]);
    for (number, host) in (1..).zip(["a", "b"]) {
        let (near, far) = (format!("02:00:00:00:0{number}:01"), format!("02:00:00:00:0{number}:02"));
        network.link(("r", &format!("eth{number}"), &near), (host, "eth0", &far));
        network.ip("r", &format!("addr add 10.0.{number}.1/24 dev eth{number}"));
        network.ip(host, &format!("addr add 10.0.{number}.2/24 dev eth0"));
        network.ip(host, &format!("route add default via 10.0.{number}.1"));
    }
    network.forward("r");
    network
}

/// What hosts send, in words, and how: a program in namespace a.
const TRAFFIC: [(&str, &str); 5] = [
    ("pings through the router", "ping -n -q -i 0.01 -c 100 10.0.2.2"),
    ("pings to the router", "ping -n -q -i 0.01 -c 50 10.0.1.1"),
    ("hops that run out", "ping -n -q -i 0.01 -c 30 -t 1 10.0.2.2"),
    ("TCP", "iperf3 -c 10.0.2.2 -n 4M"),
    ("UDP", "iperf3 -u -c 10.0.2.2 -b 20M -n 1M -l 1200"),
];

/// Packets that a host's device has sent and received.
fn of_host(network: &Network, host: &str) -> (u64, u64) {
    let (_, text) = network.run(host, "ip -s -j link show eth0");
    let links: serde_json::Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let packets = |way: &str| links[0]["stats64"][way]["packets"].as_u64().unwrap();
    (packets("tx"), packets("rx"))
}

/// The same by what the traffic control of the device that sends has counted, where a long frame is as many packets as it is on a link.
fn of_host_in_packets(network: &Network, host: &str, port: &str) -> (u64, u64) {
    let sent = |namespace: &str, device: &str| {
        let (_, text) = network.run(namespace, &format!("tc -s -j qdisc show dev {device}"));
        let all: serde_json::Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        all[0]["packets"].as_u64().unwrap()
    };
    (sent(host, "eth0"), sent("r", port))
}

/// What the router says of a port: packets received and sent, and those received by who forwarded them.
fn of_port(network: &Network, socket: &str, name: &str) -> ((u64, u64), [u64; 3]) {
    let (_, text) = network.run("r", &format!("{PROGRAM} show ports {name} --json --socket {socket}"));
    let row: serde_json::Value =
        serde_json::from_str(text.trim()).unwrap_or_else(|error| panic!("{error}: {text}"));
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    let ways = ["in_kernel", "by_workers", "to_linux"].map(|way| number(&row[way]));
    ((number(&row["rx"]["packets"]), number(&row["tx"]["packets"])), ways)
}

#[test]
fn ports_count_what_hosts_sent_and_got_whoever_forwarded() {
    if !netns::is_root() {
        return;
    }
    for driver in ["auto", "xdp", "af_xdp", "af_packet"] {
        let network = network();
        let socket = network.folder.file("socket");
        let router = start(&network, &format!("eth1 eth2 --driver {driver} --socket {socket}"));
        warm_up(&network, "a", &["10.0.2.2"]);
        // Frames that are forwarded whole count as the packets that they are.
        if driver == "auto" {
            for (namespace, device) in [("a", "eth0"), ("r", "eth1"), ("r", "eth2"), ("b", "eth0")] {
                let (done, text) = network.run(namespace, &format!("tc qdisc add dev {device} root pfifo"));
                assert!(done, "{text}");
            }
        }
        let all = || match driver {
            "auto" => {
                [("a", "eth1"), ("b", "eth2")].map(|(host, port)| of_host_in_packets(&network, host, port))
            }
            _ => ["a", "b"].map(|host| of_host(&network, host)),
        };
        let ports = || ["eth1", "eth2"].map(|port| of_port(&network, &socket, port));
        // As on a wire, then as a host sends that leaves checksums and segments to its card.
        for offloads in ["off", "on"] {
            for host in ["a", "b"] {
                network.run(host, &format!("ethtool -K eth0 tx {offloads} tso {offloads} gso {offloads}"));
            }
            for (kind, command) in TRAFFIC {
                let (hosts, before) = (all(), ports());
                let server = command.starts_with("iperf3").then(|| network.start("b", "iperf3 -s -1"));
                let ended = eventually(|| network.run("a", command).0 || kind.starts_with("hops"));
                assert!(ended, "{driver}, offloads {offloads}: {kind}");
                drop(server);
                let mut last = String::new();
                let agrees = eventually(|| {
                    let (sent, seen) = (all(), ports());
                    let grown = |now: (u64, u64), before: (u64, u64)| (now.0 - before.0, now.1 - before.1);
                    last.clear();
                    let mut agrees = true;
                    for end in 0..2 {
                        let of_host = grown(sent[end], hosts[end]);
                        let of_port = grown(seen[end].0, before[end].0);
                        let ways: Vec<u64> =
                            seen[end].1.iter().zip(before[end].1).map(|(now, before)| now - before).collect();
                        agrees &= of_host == of_port && ways.iter().sum::<u64>() == of_port.0;
                        last +=
                            &format!("host {of_host:?}, port {of_port:?}, kernel, workers, Linux {ways:?}\n");
                    }
                    agrees
                });
                assert!(agrees, "{driver}, offloads {offloads}, {kind}:\n{last}{}", router.printed());
                println!("{driver}, offloads {offloads}, {kind}:\n{last}");
            }
        }
        // What nobody but Linux can finish is said.
        drop(router);
        let generic = if driver == "auto" { "?mode=generic" } else { "" };
        let ports = format!("eth1{generic} eth2{generic}");
        let router = start(&network, &format!("{ports} --driver {driver} --socket {socket}"));
        let left = || {
            let (_, text) = network.run("r", &format!("{PROGRAM} show ports --socket {socket}"));
            text
        };
        if driver == "auto" {
            warm_up(&network, "a", &["10.0.2.2"]);
            let server = network.start("b", "iperf3 -s -1");
            assert!(eventually(|| network.run("a", "iperf3 -c 10.0.2.2 -n 4M").0));
            drop(server);
            assert!(
                left().contains("checksum not computed yet") || left().contains("longer than MTU or frame"),
                "{}",
                left()
            );
            // The log says it once, as soon as it is a second's most.
            let told = eventually(|| {
                let server = network.start("b", "iperf3 -s -1");
                network.run("a", "iperf3 -c 10.0.2.2 -t 2");
                drop(server);
                router.printed().contains("% of what comes in, at its own speed: ")
            });
            assert!(told, "{}", router.printed());
        }
    }
}

/// Takes the XDP program off an interface. Linux notifies nobody of that.
fn take_program_off(network: &Network, interface: &str) {
    let (_, text) = network.run("r", "bpftool -j link show");
    let links: Vec<serde_json::Value> =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let (_, known) = network.run("r", &format!("ip -j -d link show {interface}"));
    let known: serde_json::Value = serde_json::from_str(&known).unwrap();
    let program = &known[0]["xdp"]["prog"]["id"];
    let link = links.iter().find(|link| &link["prog_id"] == program && link["type"] == "xdp");
    let link = link.unwrap_or_else(|| panic!("no program on {interface}: {text}"));
    let (is_off, text) = network.run("r", &format!("bpftool link detach id {}", link["id"]));
    assert!(is_off, "{text}");
}

#[test]
fn a_port_that_does_not_see_what_its_device_receives_is_opened_anew() {
    if !netns::is_root() {
        return;
    }
    for driver in ["xdp", "af_xdp"] {
        let network = network();
        let socket = network.folder.file("socket");
        let router = start(&network, &format!("eth1 eth2 --driver {driver} --socket {socket}"));
        warm_up(&network, "a", &["10.0.2.2"]);
        take_program_off(&network, "eth1");
        // Linux forwards meanwhile.
        let pings = network.start("a", "ping -n -i 0.01 10.0.2.2");
        let expected = "eth1: its device received";
        router.wait_until("deafness is noticed", || router.printed().contains(expected));
        router.wait_until("packets are seen", || {
            router.printed().contains("eth1: the router sees packets again")
        });
        pings.interrupt();
        let printed = router.printed();
        assert!(printed.contains("of which the router saw none; its program is attached anew"), "{printed}");
        warm_up(&network, "a", &["10.0.2.2"]);
        let (_, problems) = network.run("r", &format!("{PROGRAM} show problems --socket {socket}"));
        assert!(!problems.contains("eth1"), "{problems}");
    }
}

#[test]
fn an_orderly_end_loses_nothing() {
    if !netns::is_root() {
        return;
    }
    for filters in [false, true] {
        for driver in ["auto", "xdp", "af_xdp", "af_packet"] {
            let network = network();
            let list = network.folder.write("list", "10 deny udp any any port 7\n");
            let list = if filters { format!("--acl {list}") } else { String::new() };
            let router = start(&network, &format!("eth1 eth2 --driver {driver} {list}"));
            if filters {
                // As VRRP has it: the gateway has an address and a MAC of its own, above the port.
                network.ip("r", "link add vrrp link eth1 address 00:00:5e:00:01:07 type macvlan mode bridge");
                network.ip("r", "addr add 10.0.1.9/32 dev vrrp");
                network.ip("r", "link set vrrp up");
                network.ip("a", "route replace default via 10.0.1.9");
                network.ip("a", "neigh replace 10.0.1.9 lladdr 00:00:5e:00:01:07 dev eth0");
            }
            warm_up(&network, "a", &["10.0.2.2"]);
            let ping = network.start("a", "ping -n -i 0.001 -W 1 10.0.2.2");
            let answers = || ping.printed().matches("bytes from").count();
            ping.wait_until("answers by the router", || answers() > 300);
            assert_eq!(router.interrupt(), 0, "{driver}: {}", router.printed());
            let by_router = answers();
            ping.wait_until("answers by Linux", || answers() > by_router + 300);
            ping.interrupt();
            let (sent, answers) = answered(&ping.printed());
            assert_eq!(answers.len(), sent, "{driver}, filters {filters}");
        }
    }
}

#[test]
fn a_configuration_beside_which_linux_forwards_is_warned_of() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let is_warned = |sniffer: &str| {
        let text = format!(
            "FromDevice(eth1{sniffer}) -> Discard; FromDevice(eth2{sniffer}) -> Queue -> ToDevice(eth1);"
        );
        let router = start(&network, &network.folder.write("drop.click", &text));
        assert_eq!(router.interrupt(), 0, "{}", router.printed());
        router.printed().contains("Linux gets what comes in by eth1, eth2 too, and forwards it")
    };
    assert!(is_warned(""));
    assert!(!is_warned(", SNIFFER false"));
    network.run("r", "sysctl -qw net.ipv4.ip_forward=0");
    assert!(!is_warned(""));
    for port in ["eth1", "eth2"] {
        network.allow_ipv6("r", port);
    }
    network.run("r", "sysctl -qw net.ipv6.conf.all.forwarding=1");
    assert!(!is_warned(""));
    network.ip("r", "addr add 2001:db8:1::1/64 dev eth1 nodad");
    assert!(is_warned(""));
}
