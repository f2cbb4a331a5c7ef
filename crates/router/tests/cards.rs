//! The router over cards that QEMU emulates, by Linux's own drivers for them: `make rack`. Elsewhere there are no such cards, and these
//! tests return at once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod netns;

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

    /// Starts a router of both cards.
    fn start(&self, options: &str) -> Running {
        let socket = self.network.folder.file("socket");
        start(&self.network, &format!("eth1 eth2 --socket {socket} {options}"))
    }

    fn ports(&self) -> Vec<Value> {
        let socket = self.network.folder.file("socket");
        let (_, text) = self.network.run("r", &format!("{PROGRAM} show ports --json --socket {socket}"));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// The interface with this address.
fn interface(mac: &str) -> String {
    let names = std::fs::read_dir("/sys/class/net")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let has = |name: &String| {
        std::fs::read_to_string(format!("/sys/class/net/{name}/address")).is_ok_and(|text| text.trim() == mac)
    };
    names.into_iter().find(has).unwrap_or_else(|| panic!("no card {mac}"))
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
            let ways: Vec<_> = rack
                .ports()
                .iter()
                .map(|port| format!("{} {} {}", port["driver"], port["mode"], port["path"]))
                .collect();
            println!("{}, {what}: {}", rack.card, ways.join("; "));
            println!("{}", router.printed());
            assert_eq!(router.interrupt(), 0, "{what}: {}", router.printed());
            rack.exchange(&format!("Linux after {what}"));
        }
    }
    let router = rack.start("");
    rack.wait_for_link("auto");
    router.signal(Signal::KILL);
    rack.exchange("Linux after kill -9");
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
}
