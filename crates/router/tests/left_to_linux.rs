//! Routes and policy rules that only Linux obeys, beside Linux: packets take Linux's way, and `show problems` says so.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use netns::Network;
use netns::router::{PROGRAM, start};

/// Host a - router r - hosts b and c. Addresses of no link are those of host c: a ping to one is answered if the router
/// sends it there, and is not if it sends it to host b.
fn network() -> Network {
    let network = Network::new(&["r", "a", "b", "c"]);
    for (host, link) in [("a", 1), ("b", 2), ("c", 3)] {
        let eth = format!("eth{link}");
        let macs = [1, 2].map(|end| format!("02:00:00:00:0{link}:0{end}"));
        network.link(("r", &eth, &macs[0]), (host, "eth0", &macs[1]));
        network.allow_ipv6(host, "eth0");
        network.allow_ipv6("r", &eth);
        network.ip("r", &format!("addr add 10.0.{link}.1/24 dev {eth}"));
        network.ip("r", &format!("addr add 2001:db8:{link}::1/64 dev {eth} nodad"));
        network.ip(host, &format!("addr add 10.0.{link}.2/24 dev eth0"));
        network.ip(host, &format!("addr add 2001:db8:{link}::2/64 dev eth0 nodad"));
        network.ip(host, &format!("route add default via 10.0.{link}.1"));
        network.ip(host, &format!("-6 route add default via 2001:db8:{link}::1"));
    }
    network.ip("a", "addr add fd77:b::2/64 dev eth0 nodad");
    network.ip("r", "-6 route add fd77:b::/64 dev eth1");
    for address in ["2001:db8:99::1/128", "10.9.9.9/32", "10.8.8.8/32"] {
        network.ip("c", &format!("addr add {address} dev lo"));
    }
    network.ip("r", "-6 route add 2001:db8:99::/64 via 2001:db8:2::2");
    network.ip("r", "route add 10.9.9.9 via 10.0.2.2");
    network.ip("r", "route add 10.9.9.9 via 10.0.3.2 table 100");
    network.ip("r", "rule add fwmark 0x100/0xf00 lookup 100");
    network.ip("r", "route add 10.8.8.8 via 10.0.2.2 metric 1");
    network.ip("r", "route add 10.8.8.8 via 10.0.3.2 metric 2");
    network.set("r", "net.ipv4.conf.all.ignore_routes_with_linkdown=1");
    network.forward("r");
    network
}

/// Whether pings of host a are sent to host c; waits until they are, or are not.
fn reach_c(network: &Network, options: &str, expected: bool) {
    let wanted = if expected { 10 } else { 0 };
    let are_so = || network.answers("a", options) == wanted;
    assert!(netns::eventually(are_so), "ping {options}: to host c {expected}");
}

fn problems(network: &Network) -> String {
    network.run("r", &format!("{PROGRAM} show problems")).1
}

fn what_only_linux_obeys_is_linuxs(driver: &str) {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let source = "-6 route %s 2001:db8:99::/64 from fd77:b::/64 via 2001:db8:3::2";
    network.ip("r", &source.replace("%s", "add"));
    let router = start(&network, &format!("eth1 eth2 eth3 --driver {driver}"));

    // A route for some sources, from the start on and while it runs.
    let [some, others] = ["-I fd77:b::2 2001:db8:99::1", "-I 2001:db8:1::2 2001:db8:99::1"];
    reach_c(&network, some, true);
    reach_c(&network, others, false);
    let expected = "2001:db8:99::/64: a route is for some sources only (from fd77:b::/64)";
    assert!(problems(&network).contains(expected), "{}", problems(&network));
    network.ip("r", &source.replace("%s", "del"));
    reach_c(&network, some, false);
    assert!(!problems(&network).contains("some sources only"));
    network.ip("r", &source.replace("%s", "add"));
    reach_c(&network, some, true);
    assert!(network.run("r", &format!("{PROGRAM} show drift")).0);

    // Marks, by a chain that comes while the router runs, and goes.
    reach_c(&network, "10.9.9.9", false);
    assert!(!problems(&network).contains("fwmark"));
    for command in [
        "nft add table ip t",
        "nft add chain ip t p { type filter hook prerouting priority mangle; }",
        "nft add rule ip t p meta mark set 0x100",
    ] {
        assert!(network.run("r", command).0, "{command}");
    }
    reach_c(&network, "10.9.9.9", true);
    let expected = "from all fwmark 0x100/0xf00 lookup 100: Linux's rules may mark packets";
    assert!(problems(&network).contains(expected), "{}", problems(&network));
    assert!(network.run("r", "nft delete table ip t").0);
    reach_c(&network, "10.9.9.9", false);
    assert!(netns::eventually(|| !problems(&network).contains("fwmark")));

    // The best route's link loses its carrier, and Linux takes the next one.
    reach_c(&network, "10.8.8.8", false);
    network.ip("b", "link set eth0 down");
    reach_c(&network, "10.8.8.8", true);
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
}

#[test]
fn on_xdp() {
    what_only_linux_obeys_is_linuxs("xdp");
}

#[test]
fn on_af_xdp() {
    what_only_linux_obeys_is_linuxs("af_xdp");
}

#[test]
fn on_af_packet() {
    what_only_linux_obeys_is_linuxs("af_packet");
}
