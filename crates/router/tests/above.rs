//! Interfaces above a port, and a port under another name: what comes in by them is forwarded and judged as by the port, on every
//! driver, whenever they come. And what programs of Linux read of a port without having the address.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;
#[allow(dead_code, reason = "each test program uses its part of this")]
#[path = "conformance/wire.rs"]
mod wire;

use std::time::Duration;

use netns::router::{PROGRAM, start};
use netns::wire::Wire;
use netns::{Network, Running, eventually};
use testbed::Folder;
use wire::{HOST_A, ROUTER};

const VRRP: [u8; 6] = [0, 0, 0x5e, 0, 1, 7];
/// Ports of UDP: one that the list permits, and one that it denies.
const PERMITTED: u16 = 9;
const DENIED: u16 = 5353;
const LIST: &str = "[acl]\nrules = [\"deny udp any any port 5353\"]\ndefault = \"permit\"\n";

/// Host a - router r - host b. The router knows their link addresses.
fn network() -> Network {
    let network = Network::new(&["r", "a", "b"]);
    network.link(("r", "eth1", "02:00:00:00:01:01"), ("a", "eth0", "02:00:00:00:01:02"));
    network.link(("r", "eth2", "02:00:00:00:02:01"), ("b", "eth0", "02:00:00:00:02:02"));
    for link in ["1", "2"] {
        network.ip("r", &format!("addr add 10.0.{link}.1/24 dev eth{link}"));
        let mac = format!("02:00:00:00:0{link}:02");
        network.ip("r", &format!("neigh add 10.0.{link}.2 lladdr {mac} dev eth{link} nud permanent"));
    }
    network.ip("r", "route add 10.9.0.0/16 via 10.0.2.2");
    network.forward("r");
    for name in ["all", "default", "eth1", "eth2"] {
        network.set("r", &format!("net.ipv4.conf.{name}.rp_filter=0"));
    }
    network
}

/// Settings of a router of both ports.
fn run(network: &Network, folder: &Folder, driver: &str, more: &str) -> Running {
    let ports = ["eth1", "eth2"].map(|name| format!("[[port]]\nname = \"{name}\"\ndriver = \"{driver}\"\n"));
    let socket = format!("[control]\nsocket = \"{}\"\n", folder.path().join("socket").display());
    let fail = more.lines().find(|line| line.starts_with("fail")).unwrap_or_default();
    let more = more.replace(fail, "");
    let file = folder.write("brickway.toml", format!("{fail}\n{}{socket}{more}", ports.concat()));
    start(network, &format!("--config {file}"))
}

fn show(network: &Network, folder: &Folder, what: &str) -> String {
    let socket = folder.path().join("socket");
    network.run("r", &format!("{PROGRAM} show {what} --socket {}", socket.display())).1
}

/// A frame with a UDP datagram whose checksum is complete, from host a to host b's network.
fn frame(to: [u8; 6], tags: &[[u8; 4]], port: u16) -> Vec<u8> {
    let datagram = [&[0x11, 0x94][..], &port.to_be_bytes(), &[0, 48], &[0, 0], &[7; 40]].concat();
    let packet = testbed::ipv4::ipv4([10, 0, 1, 2], [10, 9, 0, 1], 17, &datagram);
    [&to[..], &HOST_A, &tags.concat(), &[8, 0], &packet].concat()
}

/// Hosts a and b, by the frames that they send and receive.
struct Hosts {
    a: Wire,
    b: Wire,
}

impl Hosts {
    fn of(network: &Network) -> Self {
        Self {
            a: Wire::open(network.namespace("a"), "af_packet:eth0"),
            b: Wire::open(network.namespace("b"), "af_packet:eth0"),
        }
    }

    /// How many come out of so many of one frame.
    fn come_out(&mut self, frame: &[u8], count: usize) -> usize {
        self.b.received();
        (0..count).for_each(|_| self.a.send(frame));
        let mut received = 0;
        for _ in 0..8 {
            std::thread::sleep(Duration::from_millis(10));
            let datagrams = self.b.received();
            received +=
                datagrams.iter().filter(|it| it.len() > 60 && it[6..12] == [2, 0, 0, 0, 2, 1]).count();
        }
        received
    }

    /// Waits until all of a frame come out.
    fn pass(&mut self, frame: &[u8]) -> bool {
        eventually(|| self.come_out(frame, 5) == 5)
    }
}

const PRIORITY: [u8; 4] = [0x81, 0, 0xe0, 0];

fn macvlan_is_the_ports(driver: &str) {
    if !netns::is_root() {
        return;
    }
    let (network, folder) = (network(), Folder::new());
    let _router = run(&network, &folder, driver, LIST);
    let mut hosts = Hosts::of(&network);
    assert!(hosts.pass(&frame(ROUTER, &[], PERMITTED)));
    network.ip("r", "link add vrrp link eth1 address 00:00:5e:00:01:07 type macvlan mode private");
    network.ip("r", "link set vrrp up");
    // Not for a moment is anything let through that the list denies, nor is anything doubled.
    for _ in 0..5 {
        assert_eq!(hosts.come_out(&frame(VRRP, &[], DENIED), 5), 0);
    }
    assert!(hosts.pass(&frame(VRRP, &[], PERMITTED)), "{}", show(&network, &folder, "problems"));
    for tags in [&[][..], &[PRIORITY], &[PRIORITY; 2]] {
        for to in [ROUTER, VRRP] {
            assert_eq!(hosts.come_out(&frame(to, tags, DENIED), 5), 0, "{to:x?} {tags:x?}");
        }
    }
    let problem = || show(&network, &folder, "problems").contains("vrrp, above eth1: frames to");
    assert!(!problem());
    assert!(show(&network, &folder, "ports").contains("below vrrp (macvlan)"));
    // Other switches than the port's: they are Linux's, which the backstop keeps from forwarding them.
    network.set("r", "net.ipv4.conf.vrrp.rp_filter=1");
    assert!(eventually(problem));
    assert_eq!(hosts.come_out(&frame(VRRP, &[], PERMITTED), 5), 0);
    assert!(show(&network, &folder, "drops").contains("not judged by the router"));
    network.set("r", "net.ipv4.conf.vrrp.rp_filter=0");
    assert!(hosts.pass(&frame(VRRP, &[], PERMITTED)));
    for change in ["link set vrrp down", "link del vrrp"] {
        network.ip("r", change);
        assert!(eventually(|| hosts.come_out(&frame(VRRP, &[], PERMITTED), 5) == 0));
        assert!(hosts.pass(&frame(ROUTER, &[], PERMITTED)));
        if change.ends_with("down") {
            network.ip("r", "link set vrrp up");
            assert!(hosts.pass(&frame(VRRP, &[], PERMITTED)));
        }
    }
}

#[test]
fn frames_to_a_macvlan_are_forwarded_and_judged_on_xdp() {
    macvlan_is_the_ports("xdp");
}

#[test]
fn frames_to_a_macvlan_are_forwarded_and_judged_on_af_xdp() {
    macvlan_is_the_ports("af_xdp");
}

#[test]
fn frames_to_a_macvlan_are_forwarded_and_judged_on_af_packet() {
    macvlan_is_the_ports("af_packet");
}

#[test]
fn a_port_in_a_bridge_gives_way_and_what_comes_by_the_bridge_is_not_forwarded_unjudged() {
    if !netns::is_root() {
        return;
    }
    for driver in ["xdp", "af_packet"] {
        let (network, folder) = (network(), Folder::new());
        network.ip("r", "link add br0 type bridge");
        network.ip("r", "link set br0 up");
        let _router = run(&network, &folder, driver, LIST);
        let mut hosts = Hosts::of(&network);
        assert!(hosts.pass(&frame(ROUTER, &[], PERMITTED)));
        network.ip("r", "link set eth1 master br0");
        assert!(eventually(|| show(&network, &folder, "problems")
            .contains("past the router's filters: br0 (bridge) takes its frames")));
        for port in [PERMITTED, DENIED] {
            assert_eq!(hosts.come_out(&frame(ROUTER, &[], port), 5), 0, "{driver}");
        }
        network.ip("r", "link set eth1 nomaster");
        assert!(hosts.pass(&frame(ROUTER, &[], PERMITTED)), "{driver}");
    }
}

#[test]
fn frames_to_a_member_of_a_bridge_that_is_a_port_are_forwarded() {
    if !netns::is_root() {
        return;
    }
    for driver in ["auto", "af_packet"] {
        let (network, folder) = (network(), Folder::new());
        let bridge = [2, 0, 0, 0, 1, 5];
        for change in [
            "link add br0 address 02:00:00:00:01:05 type bridge forward_delay 0",
            "addr flush dev eth1",
            "link set eth1 master br0",
            "link set br0 up",
            "addr add 10.0.1.1/24 dev br0",
        ] {
            network.ip("r", change);
        }
        network.set("r", "net.ipv4.conf.br0.rp_filter=0");
        let (_, refused) = network.run("r", &format!("timeout 30 {PROGRAM} run br0 --driver xdp"));
        assert!(refused.contains("without their VLAN tags"), "{refused}");
        let socket = folder.path().join("socket");
        let _router = start(&network, &format!("br0 eth2 --driver {driver} --socket {}", socket.display()));
        let mut hosts = Hosts::of(&network);
        for to in [bridge, ROUTER] {
            assert!(hosts.pass(&frame(to, &[], PERMITTED)), "{driver}, {to:x?}");
            // Linux has no interface for that VLAN.
            assert_eq!(hosts.come_out(&frame(to, &[[0x81, 0, 0, 5]], PERMITTED), 5), 0, "{driver}, {to:x?}");
        }
    }
}

#[test]
fn closed_ports_stay_closed_under_another_name_and_made_anew() {
    if !netns::is_root() {
        return;
    }
    let (network, folder) = (network(), Folder::new());
    let router = run(&network, &folder, "af_packet", &format!("fail = \"closed\"\n{LIST}"));
    let mut hosts = Hosts::of(&network);
    let make = "link add vrrp link eth1 address 00:00:5e:00:01:07 type macvlan mode private";
    network.ip("r", make);
    network.ip("r", "link set vrrp up");
    for to in [ROUTER, VRRP] {
        assert!(hosts.pass(&frame(to, &[], PERMITTED)));
    }
    drop(router);
    let mut nothing_passes = |what: &str| {
        for to in [ROUTER, VRRP] {
            assert_eq!(hosts.come_out(&frame(to, &[], PERMITTED), 5), 0, "{what}");
        }
    };
    nothing_passes("the router is gone");
    network.ip("r", "link set vrrp name other");
    network.ip("r", "link set eth1 name wan0");
    nothing_passes("they have other names");
    network.ip("r", "link del other");
    network.ip("r", &make.replace("eth1", "wan0"));
    network.ip("r", "link set vrrp up");
    nothing_passes("the macvlan is another one");
    network.ip("r", "link del wan0");
    network.link(("r", "eth1", "02:00:00:00:01:01"), ("a", "eth0", "02:00:00:00:01:02"));
    network.ip("r", "addr add 10.0.1.1/24 dev eth1");
    let Hosts { a, b } = hosts;
    drop(a);
    let mut hosts = Hosts { a: Wire::open(network.namespace("a"), "af_packet:eth0"), b };
    assert_eq!(hosts.come_out(&frame(ROUTER, &[], PERMITTED), 5), 0, "the port is another one");
}

#[test]
fn a_client_of_dhcp_and_a_proxy_of_neighbours_get_what_the_routes_would_take_away() {
    if !netns::is_root() {
        return;
    }
    for (driver, more) in [("xdp", ""), ("af_xdp", LIST), ("af_packet", LIST)] {
        let (network, folder) = (network(), Folder::new());
        let _router = run(&network, &folder, driver, more);
        let mut hosts = Hosts::of(&network);
        assert!(hosts.pass(&frame(ROUTER, &[], PERMITTED)));
        // What Linux gets, programs may read.
        let left = || {
            let text = show(&network, &folder, "punts");
            text.lines().filter(|line| line.contains("DHCP or neighbour")).collect::<String>()
        };
        let (mut offer, other) = (frame(ROUTER, &[], 68), frame(ROUTER, &[], 68));
        offer[14 + 20 + 8 + 28..][..6].copy_from_slice(&ROUTER);
        let before = left();
        hosts.come_out(&offer, 1);
        assert!(eventually(|| left() != before), "{driver}: {}", show(&network, &folder, "punts"));
        // To a client elsewhere: Linux forwards it where nothing filters, else we do.
        assert_eq!(hosts.come_out(&other, 5), 5, "{driver}");
        // A port without an address waits for one.
        network.ip("r", "addr flush dev eth1");
        assert!(
            eventually(|| {
                let before = left();
                hosts.come_out(&other, 1);
                left() != before
            }),
            "{driver}"
        );
        assert_eq!(hosts.come_out(&other, 5), if more.is_empty() { 5 } else { 0 }, "{driver}");
    }
}
