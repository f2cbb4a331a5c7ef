//! Names of interfaces: a router's ports go on when Linux calls their interfaces otherwise, names may be as odd as Linux
//! takes them, and alternative names mean the same. Beside them what a start counts: open files.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use netns::router::{PROGRAM, between_hosts, start, warm_up};
use netns::{Network, eventually};

const B: &[&str] = &["10.0.2.2"];

/// Gives an interface of r another name. Linux takes back no address and no route meanwhile.
fn rename(network: &Network, name: &str, new: &str) {
    network.ip("r", &format!("link set dev {name} name {new}"));
}

fn show(network: &Network, what: &str) -> String {
    network.run("r", &format!("{PROGRAM} show {what}")).1
}

#[test]
fn a_renamed_interface_stays_the_port() {
    for driver in ["xdp", "af_xdp", "af_packet"] {
        let network = between_hosts();
        let router = start(&network, &format!("eth1 eth2 --driver {driver}"));
        warm_up(&network, "a", B);
        rename(&network, "eth2", "wan0");
        let is_shown = || show(&network, "ports").contains("eth2 (wan0 in Linux)");
        assert!(eventually(is_shown), "{driver}: {}", show(&network, "ports"));
        warm_up(&network, "a", B);
        // Both swap their names.
        rename(&network, "eth1", "eth2");
        rename(&network, "wan0", "eth1");
        let is_shown = || show(&network, "ports").contains("eth2 (eth1 in Linux)");
        assert!(eventually(is_shown), "{driver}: {}", show(&network, "ports"));
        warm_up(&network, "a", B);
        network.ip("r", "link set eth1 down");
        network.ip("r", "link set eth1 up");
        warm_up(&network, "a", B);
        assert!(show(&network, "drift").contains('0'), "{driver}");

        // A port's interface is gone, and the next one of its last name is the port.
        rename(&network, "eth1", "wan1");
        let is_shown = || show(&network, "ports").contains("eth2 (wan1 in Linux)");
        assert!(eventually(is_shown), "{driver}: {}", show(&network, "ports"));
        warm_up(&network, "a", B);
        network.ip("r", "link del wan1");
        network.link(("b", "eth0", "02:00:00:00:02:02"), ("r", "wan1", "02:00:00:00:02:01"));
        network.ip("r", "addr add 10.0.2.1/24 dev wan1");
        network.ip("b", "addr add 10.0.2.2/24 dev eth0");
        network.ip("b", "route add default via 10.0.2.1");
        warm_up(&network, "a", B);

        // Nothing stays behind under whatever name.
        router.interrupt();
        let (_, links) = network.run("r", "ip -details link show");
        assert!(!links.contains("prog/xdp") && !links.contains("xdpgeneric"), "{driver}: {links}");
    }
}

#[test]
fn names_are_as_odd_as_linux_takes_them() {
    let network = between_hosts();
    for (driver, names) in
        [("xdp", ["a,b", "'c\"(d)"]), ("af_packet", ["$x#1", "[e]?f=g&h"]), ("auto", ["\\i;{j}", "\u{e9}!*"])]
    {
        for (number, name) in names.iter().enumerate() {
            let old = format!("eth{}", number + 1);
            network.ip("r", &format!("link set dev {old} name {name}"));
        }
        let router = start(&network, &format!("{} {} --driver {driver}", names[0], names[1]));
        warm_up(&network, "a", B);
        let shown = show(&network, "ports");
        assert!(names.iter().all(|name| shown.contains(name)), "{shown}");
        router.interrupt();
        for (number, name) in names.iter().enumerate() {
            rename(&network, name, &format!("eth{}", number + 1));
        }
    }
}

#[test]
fn alternative_names_mean_the_interface() {
    let network = between_hosts();
    network.ip("r", "link property add dev eth1 altname enp3s0f0np0");
    network.ip("r", "link property add dev eth2 altname uplink-to-the-provider");
    let (is_ok, error) = network.run("r", &format!("{PROGRAM} run eth1 eth2 enp3s0f0np0"));
    assert!(!is_ok && error.contains("ports 'eth1' and 'enp3s0f0np0' are the same interface"), "{error}");
    for driver in ["auto", "af_packet"] {
        let router = start(&network, &format!("enp3s0f0np0 uplink-to-the-provider --driver {driver}"));
        warm_up(&network, "a", B);
        let shown = show(&network, "ports");
        assert!(shown.contains("uplink-to-the-provider (eth2 in Linux)"), "{shown}");
        router.interrupt();
    }
}

#[test]
fn a_start_says_how_many_files_it_needs() {
    let network = between_hosts();
    let (is_ok, error) = network.run("r", &format!("prlimit --nofile=24 {PROGRAM} run eth1 eth2"));
    assert!(!is_ok && error.contains("open files, and this process may have 24"), "{error}");
    let (_, found) = network.run("r", &format!("prlimit --nofile=24 {PROGRAM} doctor eth1 eth2"));
    assert!(found.contains("needed, 24 allowed"), "{found}");
}
