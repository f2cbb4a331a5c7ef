//! `brickway run eth1 eth2` in the place of Linux's forwarding, between plain Linux hosts: what people try first.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use netns::{Network, Running};

const PROGRAM: &str = env!("CARGO_BIN_EXE_brickway");

/// Host a - router r - host b, IPv4 and IPv6; `r` forwards by itself.
fn network() -> Network {
    let network = Network::new(&["r", "a", "b"]);
    for namespace in ["r", "a", "b"] {
        set(&network, namespace, "net.ipv6.conf.all.disable_ipv6=0");
        set(&network, namespace, "net.ipv6.conf.default.disable_ipv6=0");
    }
    network.link(("r", "eth1", "02:00:00:00:01:01"), ("a", "eth0", "02:00:00:00:01:02"));
    network.link(("r", "eth2", "02:00:00:00:02:01"), ("b", "eth0", "02:00:00:00:02:02"));
    for (host, link) in [("a", "1"), ("b", "2")] {
        set(&network, host, "net.ipv6.conf.eth0.disable_ipv6=0");
        set(&network, "r", &format!("net.ipv6.conf.eth{link}.disable_ipv6=0"));
        network.ip("r", &format!("addr add 10.0.{link}.1/24 dev eth{link}"));
        network.ip("r", &format!("addr add 2001:db8:{link}::1/64 dev eth{link} nodad"));
        network.ip(host, &format!("addr add 10.0.{link}.2/24 dev eth0"));
        network.ip(host, &format!("addr add 2001:db8:{link}::2/64 dev eth0 nodad"));
        network.ip(host, &format!("route add default via 10.0.{link}.1"));
        network.ip(host, &format!("-6 route add default via 2001:db8:{link}::1"));
    }
    set(&network, "r", "net.ipv4.ip_forward=1");
    set(&network, "r", "net.ipv6.conf.all.forwarding=1");
    network
}

fn set(network: &Network, namespace: &str, setting: &str) {
    let (set, text) = network.run(namespace, &format!("sysctl -qw {setting}"));
    assert!(set, "{namespace}: {setting}: {text}");
}

fn start(network: &Network, arguments: &str) -> Running {
    let mut router = network.start("r", &format!("{PROGRAM} run {arguments}"));
    let ready = netns::eventually(|| router.printed().contains(" runs with ") || router.ended().is_some());
    assert!(ready && router.ended().is_none(), "`run {arguments}`:\n{}", router.printed());
    router
}

/// How many of ten pings from host a are answered.
fn answers(network: &Network, options: &str) -> usize {
    let (_, text) = network.run("a", &format!("ping -n -c 10 -i 0.02 -W 1 {options}"));
    let count = text.lines().filter(|line| line.contains("bytes from")).count();
    if count < 10 {
        println!("ping {options}:\n{text}");
    }
    count
}

/// Packets of both families that the kernel of the router forwarded.
fn forwarded_by_the_kernel(network: &Network) -> u64 {
    let (_, text) = network.run("r", "cat /proc/net/snmp /proc/net/snmp6");
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let ipv4: Vec<&Vec<&str>> = lines.iter().filter(|line| line[0] == "Ip:").collect();
    let column = ipv4[0].iter().position(|&name| name == "ForwDatagrams").unwrap();
    let ipv6 = lines.iter().find(|line| line[0] == "Ip6OutForwDatagrams").unwrap();
    ipv4[1][column].parse::<u64>().unwrap() + ipv6[1].parse::<u64>().unwrap()
}

/// Pings until the neighbours are known and everything goes by the fast path.
fn warm_up(network: &Network) {
    let fast = netns::eventually(|| {
        let before = forwarded_by_the_kernel(network);
        let all = answers(network, "10.0.2.2") == 10 && answers(network, "2001:db8:2::2") == 10;
        all && forwarded_by_the_kernel(network) == before
    });
    assert!(fast, "the kernel still forwards");
}

fn what_people_try_first(driver: &str) {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let mut router = start(&network, &format!("eth1 eth2 {driver}"));
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

#[test]
fn on_af_xdp() {
    what_people_try_first("");
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
    let mut ping = network.start("a", "ping -n -i 0.01 -W 1 10.0.2.2");
    std::thread::sleep(std::time::Duration::from_millis(300));
    act();
    std::thread::sleep(std::time::Duration::from_millis(500));
    ping.interrupt();
    let text = ping.printed();
    let summary = text.lines().find(|line| line.contains(" packets transmitted")).unwrap();
    let mut numbers = summary.split(' ').filter_map(|word| word.parse::<usize>().ok());
    let (sent, received) = (numbers.next().unwrap(), numbers.next().unwrap());
    (sent - received, sent)
}

#[test]
fn killed_and_started_again_under_traffic() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let router = start(&network, "eth1 eth2");
    warm_up(&network);
    let (lost, sent) = lost_during(&network, || drop(router));
    println!("kill -9: {lost} of {sent} pings lost, 10 ms apart");
    assert!(lost <= sent / 4, "{lost} of {sent} lost");
    let mut router = None;
    let (lost, sent) = lost_during(&network, || router = Some(start(&network, "eth1 eth2")));
    println!("start: {lost} of {sent} pings lost");
    assert!(lost <= sent / 4, "{lost} of {sent} lost");
    warm_up(&network);
}
