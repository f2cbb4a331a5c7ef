//! Packets that leave by the port they came by: a host on a link with two routers, whose default gateway is the wrong one.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use netns::Network;
use netns::router::{PROGRAM, forwarded_by_the_kernel, lost_during, start};

/// Host a, our router r and router c on one Ethernet switch. All that is behind c, 10.9.0.1 and 2001:db8:9::1, a sends to r.
fn network() -> Network {
    let network = Network::new(&["switch", "r", "a", "c"]);
    network.ip("switch", "link add br0 type bridge");
    network.ip("switch", "link set br0 up");
    for (host, device, number) in [("r", "eth1", 1), ("a", "eth0", 2), ("c", "eth0", 3)] {
        let (port, mac) = (format!("to-{host}"), format!("02:00:00:00:01:0{number}"));
        network.link(("switch", &port, &format!("02:00:00:00:02:0{number}")), (host, device, &mac));
        network.ip("switch", &format!("link set {port} master br0"));
        network.allow_ipv6(host, device);
        network.ip(host, &format!("addr add 10.0.1.{number}/24 dev {device}"));
        network.ip(host, &format!("addr add 2001:db8:1::{number}/64 dev {device} nodad"));
        network.ip(host, &format!("addr add fe80::{number}/64 dev {device} nodad"));
    }
    network.ip("c", "addr add 10.9.0.1/32 dev lo");
    network.ip("c", "addr add 2001:db8:9::1/128 dev lo");
    network.ip("a", "route add default via 10.0.1.1");
    network.ip("a", "-6 route add default via fe80::1 dev eth0");
    network.ip("r", "route add 10.9.0.0/24 via 10.0.1.3");
    network.ip("r", "-6 route add 2001:db8:9::/64 via fe80::3 dev eth1");
    network.forward("r");
    // One address speaks for the router, which a takes its redirects from.
    network.ip("r", "addr del fe80::ff:fe00:101/64 dev eth1");
    listens(&network, false);
    network
}

/// Whether host a does as redirects tell it.
fn listens(network: &Network, listens: bool) {
    let value = u8::from(listens);
    for setting in ["ipv4.conf.all", "ipv4.conf.eth0", "ipv6.conf.all", "ipv6.conf.eth0"] {
        network.set("a", &format!("net.{setting}.accept_redirects={value}"));
    }
}

fn hosts_learn_of_the_better_way(options: &str) {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let socket = network.folder.file("socket");
    let _router = start(&network, &format!("eth1 {options} --socket {socket}"));
    let count = |lookup: &str| -> u64 {
        let ask = format!("{PROGRAM} show handlers {lookup}.redirects --socket {socket}");
        let (_, text) = network.run("r", &ask);
        text.trim().parse().unwrap_or_else(|_| panic!("{text}"))
    };
    for (to, lookup, better) in [("10.9.0.1", "rt4", "via 10.0.1.3"), ("2001:db8:9::1", "rt6", "via fe80::3")]
    {
        assert!(netns::eventually(|| network.answers("a", to) == 10), "{to} does not answer");
        // A host that does not listen: a few packets take the kernel's way, and all arrive.
        let (kernel, before) = (forwarded_by_the_kernel(&network), count(lookup));
        let (lost, sent) = lost_during(&network, "a", to, || {
            std::thread::sleep(std::time::Duration::from_millis(1200));
        });
        let (kernel, handed) = (forwarded_by_the_kernel(&network) - kernel, count(lookup) - before);
        println!("{to}: {lost} of {sent} lost, {handed} handed to the kernel, which forwarded {kernel}");
        assert_eq!(lost, 0, "{to}");
        assert!(handed > 1 && handed < sent as u64 / 4, "{handed} of {sent}");
        assert!(kernel >= handed && kernel < sent as u64 / 2, "{kernel} of {sent}");
        let (_, text) = network.run("a", &format!("ip route get {to}"));
        assert!(!text.contains(better), "{text}");
        // One that listens sends to the other router itself.
        listens(&network, true);
        let mut text = String::new();
        let learnt = netns::eventually(|| {
            let all = network.answers("a", to) == 10;
            text = network.run("a", &format!("ip route get {to}")).1;
            all && text.contains(better)
        });
        assert!(learnt, "{text}");
        listens(&network, false);
    }
}

#[test]
fn on_xdp() {
    hosts_learn_of_the_better_way("--driver xdp");
}

#[test]
fn on_af_xdp() {
    hosts_learn_of_the_better_way("--driver af_xdp");
}

#[test]
fn on_af_packet() {
    hosts_learn_of_the_better_way("--driver af_packet");
}

#[test]
fn with_native_errors() {
    hosts_learn_of_the_better_way("--slow-path native");
}
