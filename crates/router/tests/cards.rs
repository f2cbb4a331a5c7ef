//! The router over cards that QEMU emulates, by Linux's own drivers for them: `make rack`. Elsewhere there are no such cards, and these
//! tests return at once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod netns;

use std::io::{Read, Write};

use netns::router::{PROGRAM, start};
use netns::{Network, Running, eventually};
use rustix::process::Signal;
use serde_json::Value;

/// The drivers of all cards of the rack.
const MODULES: &str = "virtio_net e1000 e1000e igb vmxnet3 8139cp";

/// Two cards of a model in a router, and a far end on the cable of each.
struct Rack {
    network: Network,
    card: String,
}

impl Rack {
    fn new() -> Option<Self> {
        let card = std::env::var("RACK_CARD").ok()?;
        testbed::run("modprobe", &format!("-a {MODULES}"));
        let network = Network::new(&["a", "r", "b"]);
        for (number, host) in [(1, "a"), (2, "b")] {
            for (mac, label, name) in [(1, "r", format!("eth{number}")), (2, host, "eth0".to_owned())] {
                let card = interface(&format!("52:54:00:00:0{number}:0{mac}"));
                let namespace = network.name(label);
                testbed::ip(&format!("link set {card} netns {namespace} name {name}"));
                network.allow_ipv6(label, &name);
                network.ip(label, &format!("link set {name} up"));
                network.ip(label, &format!("addr add 10.0.{number}.{mac}/24 dev {name}"));
                network.ip(label, &format!("addr add 2001:db8:{number}::{mac}/64 dev {name} nodad"));
            }
            network.ip(host, &format!("route add default via 10.0.{number}.1"));
            network.ip(host, &format!("-6 route add default via 2001:db8:{number}::1"));
        }
        network.forward("r");
        Some(Self { network, card })
    }

    /// Waits until packets pass both ways, in both families: a card may be without a link for some seconds after its program came.
    fn wait_for_link(&self, what: &str) {
        let passes =
            eventually(|| ["10.0.2.2", "2001:db8:2::2"].iter().all(|to| self.network.answers("a", to) == 10));
        assert!(passes, "{} {what}: no answer", self.card);
    }

    /// Sends packets of all lengths, and expects all answers.
    fn exchange(&self, what: &str) {
        self.wait_for_link(what);
        let lengths = [
            "-s 900 10.0.2.2",
            "-s 1000 10.0.2.2",
            "-s 1472 -M do 10.0.2.2",
            "-s 4000 10.0.2.2",
            "-s 1452 -M do 2001:db8:2::2",
            "-s 4000 2001:db8:2::2",
        ];
        for length in lengths {
            assert_eq!(self.network.answers("a", length), 10, "{} {what}: ping {length}", self.card);
        }
    }

    /// Prints what a test found out, for docs/cards.txt ('make rack').
    fn found(&self, what: &str, outcome: &str) {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let kernel = release.split(['+', '-']).next().unwrap();
        println!("\nrack:\t{}\t{kernel}\t{what}\t{outcome}", self.card);
    }

    /// Which way packets go, in a word.
    fn way(&self) -> String {
        let ways = self.ports().into_iter().map(|port| {
            let (path, mode) = (port["path"].as_str().unwrap(), port["mode"].as_str().unwrap());
            let mode = if path.starts_with("kernel") { "kernel" } else { mode };
            match mode {
                "copy" => "copies",
                "generic" => "copies (generic)",
                "" => "passes",
                mode => mode,
            }
            .to_owned()
        });
        let ways: std::collections::BTreeSet<String> = ways.collect();
        ways.into_iter().collect::<Vec<_>>().join(", ")
    }

    /// Starts a router of both cards.
    fn start(&self, options: &str) -> Running {
        self.start_of("eth1 eth2", options)
    }

    fn start_of(&self, ports: &str, options: &str) -> Running {
        let socket = self.network.folder.file("socket");
        start(&self.network, &format!("{ports} --socket {socket} {options}"))
    }

    /// The address of an interface's card.
    fn address(&self, interface: &str) -> String {
        let (_, path) = self.network.run("r", &format!("readlink -f /sys/class/net/{interface}/device"));
        // A virtio device lies below its card.
        let is_address = |part: &&str| part.len() == 12 && part.starts_with("0000:");
        path.trim().rsplit('/').find(is_address).unwrap_or_else(|| panic!("{path}")).to_owned()
    }

    /// Gives the router the interface with this link address, which has come anew, under this name.
    fn take(&self, mac: &str, name: &str) {
        assert!(eventually(|| find_interface(mac).is_some()), "no card {mac}");
        testbed::ip(&format!("link set {} netns {} name {name}", interface(mac), self.network.name("r")));
    }

    /// Gives the card of an interface to VFIO, for DPDK, and returns its address.
    fn give_to_vfio(&self, interface: &str) -> String {
        let address = self.address(interface);
        let device = format!("/sys/bus/pci/devices/{address}");
        std::fs::write(format!("{device}/driver_override"), "vfio-pci").unwrap();
        std::fs::write(format!("{device}/driver/unbind"), &address).unwrap();
        std::fs::write("/sys/bus/pci/drivers_probe", &address).unwrap();
        address
    }

    fn ports(&self) -> Vec<Value> {
        let socket = self.network.folder.file("socket");
        let (_, text) = self.network.run("r", &format!("{PROGRAM} show ports --json --socket {socket}"));
        let port = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {text}"));
        text.lines().map(port).collect()
    }
}

/// Gives a card back to its own driver.
fn give_back(address: &str) {
    let device = format!("/sys/bus/pci/devices/{address}");
    std::fs::write(format!("{device}/driver/unbind"), address).unwrap();
    std::fs::write(format!("{device}/driver_override"), "\n").unwrap();
    std::fs::write("/sys/bus/pci/drivers_probe", address).unwrap();
}

/// Asks the QEMU around this machine to do something, such as to pull the cable of a card, and returns its answer.
fn qmp(command: &str) -> String {
    let ports = std::fs::read_dir("/sys/class/virtio-ports").unwrap().map(|entry| entry.unwrap().path());
    let is_it = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path.join("name")).is_ok_and(|name| name.trim() == "qmp")
    };
    let path = ports.into_iter().find(is_it).expect("a port to QEMU");
    let device = format!("/dev/{}", path.file_name().unwrap().to_str().unwrap());
    let mut port = std::fs::File::options().read(true).write(true).open(&device).unwrap();
    let mut ask = |command: &str| {
        port.write_all(format!("{command}\n").as_bytes()).unwrap();
        let mut answer = Vec::new();
        // Events and greetings are lines too.
        while !String::from_utf8_lossy(&answer)
            .lines()
            .any(|line| line.starts_with("{\"return\"") || line.starts_with("{\"error\""))
        {
            let mut bytes = [0; 4_096];
            let length = port.read(&mut bytes).unwrap();
            assert!(length > 0, "QEMU does not listen: {}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&bytes[..length]);
        }
        String::from_utf8_lossy(&answer).into_owned()
    };
    ask("{\"execute\":\"qmp_capabilities\"}");
    ask(command)
}

/// Pulls the cable of a card, or plugs it in.
fn plug(card: u8, is_plugged: bool) {
    let answer = qmp(&format!(
        "{{\"execute\":\"set_link\",\"arguments\":{{\"name\":\"card{card}\",\"up\":{is_plugged}}}}}"
    ));
    assert!(answer.contains("\"return\""), "{answer}");
}

/// The interface with this address.
fn interface(mac: &str) -> String {
    find_interface(mac).unwrap_or_else(|| panic!("no card {mac}"))
}

fn find_interface(mac: &str) -> Option<String> {
    let mut names = std::fs::read_dir("/sys/class/net")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let has = |name: &String| {
        std::fs::read_to_string(format!("/sys/class/net/{name}/address")).is_ok_and(|text| text.trim() == mac)
    };
    names.find(has)
}

/// Huge pages of this machine.
fn set_huge_pages(pages: u32) {
    testbed::run("sysctl", &format!("-qw vm.nr_hugepages={pages}"));
}

#[test]
fn packets_of_all_lengths_pass_by_each_driver_with_huge_pages_and_without() {
    let Some(rack) = Rack::new() else { return };
    rack.exchange("Linux");
    for pages in [0, 64] {
        set_huge_pages(pages);
        for driver in ["auto", "xdp", "af_xdp", "af_packet"] {
            let what = format!("{driver}, {pages} huge pages");
            let router = rack.start(&format!("--driver {driver}"));
            rack.exchange(&what);
            let is_kernel =
                || rack.ports().iter().all(|port| port["path"].as_str().unwrap().starts_with("kernel"));
            assert!(driver != "xdp" || eventually(is_kernel), "{what}: {:?}", rack.ports());
            let pages = if pages > 0 { ", huge pages" } else { "" };
            let way = rack.way();
            println!("{}", router.printed());
            assert_eq!(router.interrupt(), 0, "{what}: {}", router.printed());
            rack.exchange(&format!("Linux after {what}"));
            if driver != "af_packet" || pages.is_empty() {
                rack.found(&format!("{driver}{pages}"), &way);
            }
        }
    }
    let router = rack.start("");
    rack.wait_for_link("auto");
    router.signal(Signal::KILL);
    rack.exchange("Linux after kill -9");
}

#[test]
fn a_dpdk_port_receives_multicast_and_follows_its_link_and_mtu() {
    let Some(rack) = Rack::new() else { return };
    if !cfg!(feature = "dpdk") || !["e1000", "igb", "virtio", "vmxnet3"].contains(&rack.card.as_str()) {
        println!(
            "skipped: {} by DPDK: this program is built without it, or DPDK 22.11 has no driver",
            rack.card
        );
        return;
    }
    let network = &rack.network;
    set_huge_pages(400);
    testbed::run("mkdir", "-p /dev/hugepages");
    testbed::run("mount", "-t hugetlbfs hugetlbfs /dev/hugepages");
    testbed::run("modprobe", "vfio-pci");
    let cards = ["eth1", "eth2"].map(|interface| rack.give_to_vfio(interface));

    // The control: another program of DPDK carries packets between the cards.
    for (host, address) in [("a", 1), ("b", 2)] {
        network.ip(host, &format!("addr add 10.0.9.{address}/24 dev eth0"));
    }
    let [one, two] = &cards;
    let control = network.start(
        "r",
        &format!(
            "dpdk-testpmd --lcores 0@0,1@0 -m 256 -a {one} -a {two} -- --total-num-mbufs=4096 --forward-mode=io --stats-period=3600"
        ),
    );
    let passes = eventually(|| network.answers("a", "10.0.9.2") == 10);
    assert!(passes, "{}: testpmd forwards nothing: {}", rack.card, control.printed());
    control.interrupt();

    let router = rack.start_of(&format!("eth1=dpdk:{one} eth2=dpdk:{two}"), "");
    let address = || {
        for number in [1, 2] {
            network.allow_ipv6("r", &format!("eth{number}"));
            network.ip("r", &format!("addr add 10.0.{number}.1/24 dev eth{number}"));
            network.ip("r", &format!("addr add 2001:db8:{number}::1/64 dev eth{number} nodad"));
        }
    };
    address();
    rack.exchange("dpdk");
    let is_up = |number: usize| rack.ports()[number]["has_carrier"] == true;
    assert!(is_up(0) && is_up(1), "{:?}", rack.ports());
    plug(1, false);
    assert!(eventually(|| !is_up(0) && is_up(1)), "{}: {:?}", router.printed(), rack.ports());
    let (_, link) = network.run("r", "ip link show eth1");
    assert!(link.contains("NO-CARRIER"), "{link}");
    plug(1, true);
    assert!(eventually(|| is_up(0)), "{:?}", rack.ports());
    rack.exchange("dpdk, plugged in again");

    network.ip("r", "link set eth2 mtu 1400");
    let is_told = || {
        let (_, text) = network.run("a", "ping -c 1 -W 1 -s 1472 -M do 10.0.2.2");
        text.contains("mtu = 1400") || text.contains("mtu=1400")
    };
    network.run("a", "ip route flush cache");
    assert!(eventually(is_told), "{}: {:?}", router.printed(), rack.ports());
    network.ip("r", "link set eth2 mtu 1500");
    network.run("a", "ip route flush cache");
    rack.exchange("dpdk, MTU 1500 again");
    network.ip("r", "link set eth2 mtu 9000");
    assert!(
        eventually(|| network.run("r", "ip link show eth2").1.contains("mtu 1500 ")),
        "{}",
        router.printed()
    );
    assert!(router.printed().contains("start it with the option 'mtu=9000'"), "{}", router.printed());
    rack.exchange("dpdk, after an MTU that it cannot have");
    println!("{}", router.printed());
    assert_eq!(router.interrupt(), 0, "{}", router.printed());

    // Long packets, also of Linux itself.
    let long = rack.start_of(&format!("eth1=dpdk:{one}?mtu=3000 eth2=dpdk:{two}?mtu=3000"), "");
    address();
    for host in ["a", "b"] {
        network.ip(host, "link set eth0 mtu 3000");
    }
    rack.exchange("dpdk, MTU 3000");
    for to in ["10.0.2.2 -s 2972 -M do", "10.0.1.1 -s 2972 -M do"] {
        assert_eq!(network.answers("a", to), 10, "{}: {to}: {}", rack.card, long.printed());
    }
    assert_eq!(long.interrupt(), 0, "{}", long.printed());
    cards.iter().for_each(|address| give_back(address));
    rack.found("DPDK", "passes");
}

#[test]
fn a_ring_that_was_full_goes_on() {
    let Some(rack) = Rack::new() else { return };
    rack.exchange("Linux");
    set_huge_pages(64);
    let network = &rack.network;
    for driver in ["auto", "xdp", "af_xdp"] {
        let router = rack.start_of("eth1?ring=64 eth2?ring=64", &format!("--driver {driver}"));
        rack.wait_for_link(driver);
        // More packets than a ring holds while nobody takes them.
        for (host, to) in [("a", "10.0.2.2"), ("b", "10.0.1.2")] {
            network.run(host, &format!("ping -q -f -l 200 -c 1000 -W 1 -s 1400 {to}"));
        }
        router.signal(Signal::STOP);
        network.run("a", "ping -q -f -l 200 -c 200 -W 1 -s 1400 10.0.2.2");
        router.signal(Signal::CONT);
        rack.exchange(&format!("{driver}, after its rings were full"));
        assert_eq!(router.interrupt(), 0, "{driver}: {}", router.printed());
    }
    rack.found("full rings", "goes on");
}

#[test]
fn changes_of_a_card_end_nothing() {
    let Some(rack) = Rack::new() else { return };
    let network = &rack.network;
    set_huge_pages(64);
    rack.exchange("Linux");
    // A card may refuse a change; then nothing changes.
    let changes: [(&str, &[&str]); 7] = [
        ("down and up", &["ip link set eth2 down", "ip link set eth2 up"]),
        ("MTU", &["ip link set eth2 mtu 1400", "ip link set eth2 mtu 1500"]),
        ("rings", &["ethtool -G eth1 rx 128 tx 128", "ethtool -G eth1 rx 256 tx 256"]),
        ("receive offloads", &["ethtool -K eth1 gro off rx off", "ethtool -K eth1 gro on rx on"]),
        ("VLAN offloads", &["ethtool -K eth1 rxvlan on", "ethtool -K eth1 rxvlan off"]),
        ("queues", &["ethtool -L eth1 combined 2", "ethtool -L eth1 combined 1"]),
        ("promiscuous", &["ip link set eth1 promisc on", "ip link set eth1 promisc off"]),
    ];
    let address = |number: u8| {
        network.allow_ipv6("r", &format!("eth{number}"));
        network.ip("r", &format!("link set eth{number} up"));
        for (family, address) in
            [("-4", format!("10.0.{number}.1/24")), ("-6", format!("2001:db8:{number}::1/64 nodad"))]
        {
            network.ip("r", &format!("{family} addr replace {address} dev eth{number}"));
        }
    };
    let mut is_anew = false;
    for driver in ["auto", "af_xdp", "af_packet"] {
        let router = rack.start(&format!("--driver {driver}"));
        rack.wait_for_link(driver);
        let check = |what: &str| {
            let what = format!("{driver}, {what}");
            rack.wait_for_link(&what);
            for length in ["-s 1472 -M do 10.0.2.2", "-s 4000 2001:db8:2::2"] {
                assert_eq!(
                    network.answers("a", length),
                    10,
                    "{} {what}: {length}: {}",
                    rack.card,
                    router.printed()
                );
            }
            // The router forwards, and not Linux alone: of what came in both ports saw most.
            let moved = || -> Vec<u64> {
                let of =
                    |port: &Value| port["in_kernel"].as_u64().unwrap() + port["by_workers"].as_u64().unwrap();
                rack.ports().iter().map(of).collect()
            };
            let forwards = || {
                let before = moved();
                network.run("a", "ping -q -i 0.01 -c 60 -W 1 10.0.2.2");
                moved().iter().zip(before).all(|(now, before)| now - before >= 50)
            };
            assert!(eventually(forwards), "{what}: {:?} {}", rack.ports(), router.printed());
        };
        for (what, commands) in changes {
            for command in commands {
                let (_, text) = network.run("r", command);
                if !text.trim().is_empty() {
                    println!("{driver}: {command}: {}", text.trim());
                }
                if !command.ends_with("down") && !command.ends_with("1400") {
                    address(2);
                    check(command);
                }
            }
            println!("{driver}: {what}");
        }
        plug(2, false);
        assert!(eventually(|| rack.ports()[1]["has_carrier"] == false), "{driver}: {:?}", rack.ports());
        plug(2, true);
        check("cable");
        let card = rack.address("eth1");
        let bound = std::fs::read_link(format!("/sys/bus/pci/devices/{card}/driver")).unwrap();
        let bound = format!("/sys/bus/pci/drivers/{}", bound.file_name().unwrap().to_str().unwrap());
        std::fs::write(format!("{bound}/unbind"), &card).unwrap();
        router.wait_until("the card is missed", || router.printed().contains("eth1"));
        std::fs::write(format!("{bound}/bind"), &card).unwrap();
        rack.take("52:54:00:00:01:01", "eth1");
        address(1);
        check("unbound and bound");
        println!("{}", router.printed());
        assert_eq!(router.interrupt(), 0, "{driver}: {}", router.printed());
        is_anew |= router.printed().contains("of which the router saw none");
        rack.exchange(&format!("Linux after {driver}"));
    }
    rack.found("changes", if is_anew { "goes on, opened anew" } else { "goes on" });
}

#[test]
fn a_bond_carries_packets_and_goes_on_with_one_member() {
    let Some(rack) = Rack::new() else { return };
    let network = &rack.network;
    testbed::run("modprobe", "bonding max_bonds=0");
    // Both cards lead from the router to a, and b is on a veth.
    let far = network.name("a");
    network.ip("b", &format!("link set eth0 netns {far} name eth1"));
    for (label, members, address) in [("a", ["eth0", "eth1"], 2), ("r", ["eth1", "eth2"], 1)] {
        network.ip(
            label,
            "link add bond0 type bond mode 802.3ad lacp_rate fast miimon 50 xmit_hash_policy layer3+4",
        );
        for member in members {
            network.ip(label, &format!("link set {member} down"));
            network.ip(label, &format!("addr flush dev {member}"));
            // The emulated link has no speed otherwise, and LACP wants one.
            network.run(label, &format!("ethtool -s {member} speed 1000 duplex full"));
            network.ip(label, &format!("link set {member} master bond0"));
            // Some emulated cards take frames to their first address only.
            network.ip(label, &format!("link set {member} promisc on"));
        }
        network.allow_ipv6(label, "bond0");
        network.ip(label, "link set bond0 up");
        network.ip(label, &format!("addr add 10.0.1.{address}/24 dev bond0"));
        network.ip(label, &format!("addr add 2001:db8:1::{address}/64 dev bond0 nodad"));
    }
    network.link(("b", "eth0", "02:00:00:00:02:02"), ("r", "eth3", "02:00:00:00:02:01"));
    for (label, device, address) in [("r", "eth3", 1), ("b", "eth0", 2)] {
        network.allow_ipv6(label, device);
        network.ip(label, &format!("addr add 10.0.2.{address}/24 dev {device}"));
        network.ip(label, &format!("addr add 2001:db8:2::{address}/64 dev {device} nodad"));
    }
    for (label, number) in [("a", 1), ("b", 2)] {
        network.ip(label, &format!("route replace default via 10.0.{number}.1"));
        network.ip(label, &format!("-6 route replace default via 2001:db8:{number}::1"));
    }
    // A far end learns from LACP alone that the other one's cable was pulled. State 63: both sides collect and distribute. What is
    // known of the partner of a member that left stays 63 on Linux 6.12.
    let wait_for_members = |count: usize| {
        let text = |label| network.run(label, "cat /proc/net/bonding/bond0").1;
        let has_them = |label| {
            let text = text(label);
            let active = text.split("Active Aggregator Info:").nth(1).unwrap_or_default();
            let ports = active.lines().find_map(|line| line.trim().strip_prefix("Number of ports: "));
            let is_whole = count < 2 || text.matches("port state: 63\n").count() == 2 * count;
            ports == Some(count.to_string().as_str()) && is_whole
        };
        let have_them = eventually(|| has_them("a") && has_them("r"));
        assert!(have_them, "{}: no {count} members: {}\n{}", rack.card, text("a"), text("r"));
    };
    wait_for_members(2);
    rack.exchange("Linux, bond");
    // The others refuse bonds, in words.
    for driver in ["auto", "af_packet"] {
        let router = rack.start_of("bond0 eth3", &format!("--driver {driver}"));
        wait_for_members(2);
        rack.exchange(&format!("bond, {driver}"));
        let taken = rack.ports()[0]["driver"].clone();
        for card in [1, 2] {
            plug(card, false);
            wait_for_members(1);
            rack.exchange(&format!("bond, {driver}, without card {card}"));
            plug(card, true);
            wait_for_members(2);
        }
        assert_eq!(router.interrupt(), 0, "{driver}: {}", router.printed());
        wait_for_members(2);
        rack.exchange("Linux, bond");
        if driver == "auto" {
            rack.found("bond", taken.as_str().unwrap());
        }
    }
}

#[test]
fn a_list_of_a_vlan_holds_though_the_card_would_take_its_tag_out() {
    let Some(rack) = Rack::new() else { return };
    let network = &rack.network;
    let takes_out = || network.run("r", "ethtool -k eth1").1.contains("rx-vlan-offload: on");
    let before = takes_out();
    testbed::run("modprobe", "8021q");
    for (label, device, address) in [("a", "eth0", "10.0.5.2"), ("r", "eth1", "10.0.5.1")] {
        network.ip(label, &format!("link add link {device} name {device}.100 type vlan id 100"));
        network.ip(label, &format!("link set {device}.100 up"));
        network.ip(label, &format!("addr add {address}/24 dev {device}.100"));
    }
    network.ip("b", "route add 10.0.5.0/24 via 10.0.2.1");
    let of_vlan = "-I 10.0.5.2 10.0.2.2";
    network.ip("a", "rule add from 10.0.5.2 lookup 5");
    network.ip("a", "route add default via 10.0.5.1 table 5");
    rack.wait_for_link("Linux");
    assert!(eventually(|| network.answers("a", of_vlan) == 10), "Linux forwards the VLAN");
    let list = network.folder.write(
        "list",
        "permit any any any in eth1\npermit any any any in eth2\ndeny any any any in eth1.100\n",
    );
    for driver in ["auto", "xdp", "af_xdp"] {
        let router = rack.start(&format!("eth1.100 --driver {driver} --acl {list}"));
        rack.wait_for_link(driver);
        assert!(!takes_out(), "{driver}: {}", router.printed());
        assert_eq!(network.answers("a", of_vlan), 0, "{driver}: {}", router.printed());
        assert_eq!(router.interrupt(), 0, "{}", router.printed());
        assert_eq!(takes_out(), before, "{driver}: as it was");
        rack.wait_for_link("Linux");
    }
    rack.found("VLAN's list", "holds");
}
