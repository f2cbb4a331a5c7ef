//! VLANs (802.1Q) of a port as ports of a drop-in router: `brickway run eth1 eth1.100 eth2`, where Linux has no VLAN
//! interfaces, so that the router makes one, and where it has one.
//!
//! The other end of the trunk is a switch, another Brickway that puts tags on and takes them off:
//!
//! ```text
//!   a  untagged --\
//!   v  VLAN 100 ---- s ==== eth1 r eth2 ---- b
//!   x  VLAN 200 --/
//! ```

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use netns::router::{self, PROGRAM, start};
use netns::{Network, Running, eventually};

const SWITCH: &str = "
    FromDevice(trunk) -> kind :: Classifier(12/8100 14/0064%0fff, 12/8100 14/00c8%0fff, 12/8100, -);
    kind[0] -> VLANDecap(false) -> ToDevice(tap:v0);
    kind[1] -> VLANDecap(false) -> ToDevice(tap:x0);
    kind[2] -> Discard;
    kind[3] -> ToDevice(tap:a0);
    trunk :: ToDevice(trunk);
    FromDevice(tap:v0) -> VLANEncap(VLAN_ID 100, VLAN_PCP 5) -> trunk;
    FromDevice(tap:x0) -> VLANEncap(VLAN_ID 200) -> trunk;
    FromDevice(tap:a0) -> trunk;
";

/// Hosts and their switch; the router's VLAN has no addresses yet.
fn network() -> (Network, Running) {
    let network = Network::new(&["r", "s", "a", "v", "x", "b"]);
    network.link(("r", "eth1", "02:00:00:00:01:01"), ("s", "trunk", "02:00:00:00:01:0f"));
    network.link(("r", "eth2", "02:00:00:00:02:01"), ("b", "eth0", "02:00:00:00:02:02"));
    let file = network.folder.write("switch.click", SWITCH);
    let switch = network.start("s", &format!("{PROGRAM} run {file}"));
    switch.wait_until("the switch", || switch.printed().contains(" runs with "));
    for (host, interface, link) in [("a", "a0", 1), ("v", "v0", 100), ("x", "x0", 1)] {
        network.ip("s", &format!("link set {interface} netns {}", network.name(host)));
        network.ip(host, &format!("link set {interface} up"));
        let last = if host == "x" { 77 } else { 2 };
        addresses(&network, host, interface, link, last);
    }
    addresses(&network, "b", "eth0", 2, 2);
    for link in [1, 2] {
        router_addresses(&network, &format!("eth{link}"), link);
    }
    network.forward("r");
    (network, switch)
}

fn addresses(network: &Network, host: &str, interface: &str, link: u8, last: u8) {
    network.allow_ipv6(host, interface);
    network.ip(host, &format!("addr add 10.0.{link}.{last}/24 dev {interface}"));
    network.ip(host, &format!("addr add 2001:db8:{link}::{last}/64 dev {interface} nodad"));
    network.ip(host, &format!("route add default via 10.0.{link}.1"));
    network.ip(host, &format!("-6 route add default via 2001:db8:{link}::1"));
}

fn router_addresses(network: &Network, interface: &str, link: u8) {
    network.allow_ipv6("r", &interface.replace('.', "/"));
    network.ip("r", &format!("addr add 10.0.{link}.1/24 dev {interface}"));
    network.ip("r", &format!("addr add 2001:db8:{link}::1/64 dev {interface} nodad"));
}

/// ICMP echo requests that a host has received.
fn requests_received(network: &Network, host: &str) -> u64 {
    let (_, text) = network.run(host, "cat /proc/net/snmp");
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let icmp: Vec<&Vec<&str>> = lines.iter().filter(|line| line[0] == "Icmp:").collect();
    let column = icmp[0].iter().position(|&name| name == "InEchos").unwrap();
    icmp[1][column].parse().unwrap()
}

fn a_vlan_is_a_port(driver: &str) {
    if !netns::is_root() {
        return;
    }
    let (network, _switch) = network();
    let socket = network.folder.file("r.sock");
    let router = start(&network, &format!("eth1 eth1.100 eth2 {driver} --socket {socket}"));
    let ask = |what: &str| network.run("r", &format!("{PROGRAM} {what} --socket {socket}"));
    router_addresses(&network, "eth1.100", 100);

    // From the VLAN to another port, and to the untagged hosts on the same wire, and back.
    let destinations = ["10.0.2.2", "2001:db8:2::2", "10.0.1.2", "2001:db8:1::2"];
    router::warm_up(&network, "v", &destinations);
    router::warm_up(&network, "b", &["10.0.100.2", "2001:db8:100::2"]);
    router::warm_up(&network, "a", &["10.0.2.2", "10.0.100.2"]);

    // The router itself, which has asked for the host's address and answered its questions in the VLAN.
    for own in ["10.0.100.1", "2001:db8:100::1", "10.0.1.1", "2001:db8:2::1"] {
        assert_eq!(network.answers("v", own), 10, "{own}");
    }
    for (host, interface) in [("r", "eth1.100"), ("v", "v0")] {
        network.ip(host, &format!("neigh flush dev {interface}"));
        network.ip(host, &format!("-6 neigh flush dev {interface}"));
    }
    router::warm_up(&network, "v", &destinations);
    let (_, text) = network.run("r", "ip neigh show dev eth1.100");
    assert!(text.contains("10.0.100.2 lladdr ") && text.contains("2001:db8:100::2 lladdr "), "{text}");
    let (_, text) = network.run("v", "traceroute -n -w 1 -q 1 10.0.2.2");
    assert!(text.contains(" 1  10.0.100.1 ") && text.contains(" 2  10.0.2.2 "), "{text}");

    // The tag does not count: packets of the whole MTU, both ways. Of a smaller one senders are told.
    for (host, to) in [("v", "10.0.2.2"), ("b", "10.0.100.2")] {
        assert_eq!(network.answers(host, &format!("-M do -s 1472 {to}")), 10);
    }
    assert_eq!(network.answers("v", "-M do -s 1452 2001:db8:2::2"), 10);
    network.ip("r", "link set eth1.100 mtu 1400");
    network.ip("v", "link set v0 mtu 1400");
    assert!(eventually(|| {
        let (_, text) = network.run("b", "ping -n -c 1 -W 1 -M do -s 1400 10.0.100.2");
        text.contains("mtu=1400") || text.contains("mtu = 1400")
    }));
    assert_eq!(network.answers("b", "-M dont -s 1400 10.0.100.2"), 10);

    nothing_comes_in_while_it_is_down(&network);
    router::warm_up(&network, "v", &destinations);

    // It cannot be larger than that of the port.
    let twin = || network.run("r", "ip link show dev eth1.100").1;
    network.ip("r", "link set eth1 mtu 1350");
    assert!(eventually(|| twin().contains("mtu 1350 ")), "{}", twin());
    network.ip("r", "link set eth1.100 mtu 1500");
    assert!(eventually(|| twin().contains("mtu 1350 ")), "{}", twin());

    // Another link address of the port is that of its VLAN too.
    network.ip("r", "link set eth1 address 02:00:00:00:01:99");
    assert!(eventually(|| twin().contains("02:00:00:00:01:99")), "{}", twin());
    network.ip("v", "neigh flush dev v0");
    assert!(eventually(|| network.answers("v", "10.0.2.2") == 10));
    let (_, text) = network.run("v", "ip neigh show 10.0.100.1");
    assert!(text.contains("lladdr 02:00:00:00:01:99"), "{text}");

    // Nobody forwards what comes in a VLAN that is not a port, though it looks like the untagged host's.
    let before = requests_received(&network, "b");
    network.ip("x", "neigh replace 10.0.1.1 lladdr 02:00:00:00:01:99 dev x0 nud permanent");
    let (_, text) = network.run("x", "ping -n -c 3 -i 0.1 -W 0.3 10.0.2.2");
    assert!(text.contains(" 0 received"), "{text}");
    assert_eq!(requests_received(&network, "b"), before);

    // Nor what is for another host in the VLAN.
    network.ip("v", "neigh replace 10.0.100.1 lladdr 02:00:00:00:01:55 dev v0 nud permanent");
    let (_, text) = network.run("v", "ping -n -c 3 -i 0.1 -W 0.3 10.0.2.2");
    assert!(text.contains(" 0 received"), "{text}");
    assert_eq!(requests_received(&network, "b"), before);

    // What people look at.
    let (_, text) = ask("show ports --json");
    let row = text.lines().find(|line| line.contains("\"eth1.100\"")).unwrap_or_default();
    assert!(row.contains("vlan:eth1.100") && row.contains("10.0.100.1/24"), "{text}");
    let row: serde_json::Value = serde_json::from_str(row).unwrap();
    for way in ["rx", "tx"] {
        let [packets, bytes] = ["packets", "bytes"].map(|of| row[way][of].as_u64().unwrap());
        assert!(packets > 0 && bytes >= 42 * packets && bytes <= 1514 * packets, "{row}");
    }
    for what in ["show queues", "show workers", "show ports"] {
        let (_, text) = ask(what);
        assert!(text.contains("eth1") && !text.contains("tap:"), "{what}:\n{text}");
    }
    let (_, text) = ask("show route 10.0.100.2");
    assert!(text.contains("eth1.100"), "{text}");
    let (same, text) = ask("show drift");
    assert!(same, "{text}");

    assert_eq!(router.interrupt(), 0, "{}", router.printed());
    assert!(!network.run("r", "ip link show dev eth1.100").0, "the interface goes with the router");
}

fn linux_has_the_interface(driver: &str) {
    if !netns::is_root() {
        return;
    }
    let (network, _switch) = network();
    if !network.run("r", "ip link add link eth2 name probe type vlan id 1").0 {
        testbed::leave_out("VLAN interfaces", "test-linux-vlan");
        return;
    }
    let make_interface = || {
        network.ip("r", "link add link eth1 name eth1.100 type vlan id 100");
        network.ip("r", "link set eth1.100 up");
        router_addresses(&network, "eth1.100", 100);
    };
    make_interface();
    let socket = network.folder.file("r.sock");
    let _router = start(&network, &format!("eth1 eth1.100 eth2 {driver} --socket {socket}"));
    router::warm_up(&network, "v", &["10.0.2.2", "2001:db8:2::2", "10.0.1.2", "2001:db8:1::2"]);
    router::warm_up(&network, "b", &["10.0.100.2", "2001:db8:100::2"]);
    for own in ["10.0.100.1", "2001:db8:100::1", "10.0.2.1"] {
        assert_eq!(network.answers("v", own), 10, "{own}");
    }
    let (_, text) = network.run("v", "traceroute -n -w 1 -q 1 10.0.2.2");
    assert!(text.contains(" 1  10.0.100.1 ") && text.contains(" 2  10.0.2.2 "), "{text}");
    network.ip("r", "link set eth1.100 mtu 1400");
    assert_eq!(network.answers("b", "-M dont -s 1400 10.0.100.2"), 10);

    // It comes and goes.
    network.ip("r", "link delete eth1.100");
    make_interface();
    router::warm_up(&network, "v", &["10.0.2.2", "2001:db8:2::2"]);
    nothing_comes_in_while_it_is_down(&network);
    router::warm_up(&network, "v", &["10.0.2.2"]);
}

/// By a VLAN whose interface is down nothing comes in, though its neighbours still send.
fn nothing_comes_in_while_it_is_down(network: &Network) {
    network.ip("v", "neigh replace 10.0.100.1 lladdr 02:00:00:00:01:01 dev v0 nud permanent");
    network.ip("r", "link set eth1.100 down");
    let is_quiet = eventually(|| {
        let before = requests_received(network, "b");
        network.run("v", "ping -n -c 3 -i 0.1 -W 0.3 10.0.2.2");
        requests_received(network, "b") == before
    });
    assert!(is_quiet, "packets still come in by eth1.100");
    network.ip("r", "link set eth1.100 up");
    network.ip("r", "addr replace 2001:db8:100::1/64 dev eth1.100 nodad");
    network.ip("v", "neigh del 10.0.100.1 dev v0");
}

#[test]
fn beside_linux_by_default() {
    linux_has_the_interface("--driver auto");
}

#[test]
fn beside_linux_on_xdp() {
    linux_has_the_interface("--driver xdp");
}

#[test]
fn beside_linux_on_af_xdp() {
    linux_has_the_interface("--driver af_xdp");
}

#[test]
fn beside_linux_on_af_packet() {
    linux_has_the_interface("--driver af_packet");
}

#[test]
fn on_xdp() {
    a_vlan_is_a_port("--driver xdp");
}

#[test]
fn on_af_xdp() {
    a_vlan_is_a_port("--driver af_xdp");
}

#[test]
fn on_af_packet() {
    a_vlan_is_a_port("--driver af_packet");
}

#[test]
fn an_interface_made_for_a_vlan_has_the_carrier_of_the_port_below() {
    if !netns::is_root() {
        return;
    }
    let network = router::between_hosts();
    let router = start(&network, "eth1 eth1.100 eth2");
    let lacks_carrier = || network.run("r", "ip link show eth1.100").1.contains("NO-CARRIER");
    assert!(!lacks_carrier());
    network.ip("a", "link set eth0 down");
    assert!(eventually(lacks_carrier), "{}", router.printed());
    network.ip("a", "link set eth0 up");
    assert!(eventually(|| !lacks_carrier()), "{}", router.printed());
    network.ip("r", "link set eth1 down");
    assert!(eventually(lacks_carrier), "{}", router.printed());
    assert_eq!(router.interrupt(), 0);
}

#[test]
fn access_lists_and_reverse_path_checks_mean_the_vlan() {
    if !netns::is_root() {
        return;
    }
    let (network, _switch) = network();
    let socket = network.folder.file("r.sock");
    let text = format!(
        "[[port]]\nname = \"eth1.100\"\n[[port]]\nname = \"eth1\"\n[[port]]\nname = \"eth2\"\n\
         [acl]\nrules = [\"deny icmp any 10.0.2.2 in eth1.100\"]\n[reverse_path]\nmode = \"strict\"\n\
         [control]\nsocket = \"{socket}\"\n"
    );
    let settings = network.folder.write("brickway.toml", text);
    let _router = start(&network, &format!("--config {settings}"));
    router_addresses(&network, "eth1.100", 100);
    router::warm_up(&network, "v", &["2001:db8:2::2", "10.0.1.2"]);
    router::warm_up(&network, "a", &["10.0.2.2", "10.0.100.2"]);
    let lost = |options: &str| network.run("v", &format!("ping -n -c 3 -i 0.05 -W 0.3 {options}")).1;
    let text = lost("10.0.2.2");
    assert!(text.contains(" 0 received"), "{text}");
    // A source to which the way leads through the port below does not come from the VLAN.
    network.ip("r", "route add 10.9.9.0/24 via 10.0.1.2");
    network.ip("v", "addr add 10.9.9.9/32 dev v0");
    let show = format!("{PROGRAM} show drops --socket {socket}");
    assert!(eventually(|| {
        lost("-I 10.9.9.9 10.0.1.2");
        network.run("r", &show).1.contains("another way back")
    }));
    let before = requests_received(&network, "a");
    let text = lost("-I 10.9.9.9 10.0.1.2");
    assert!(text.contains(" 0 received"), "{text}");
    assert_eq!(requests_received(&network, "a"), before);
}

#[test]
fn a_capture_of_the_port_below_has_the_packets_of_its_vlans() {
    if !netns::is_root() {
        return;
    }
    let (network, _switch) = network();
    let (socket, capture) = (network.folder.file("r.sock"), network.folder.file("eth1.pcap"));
    let ports = format!("eth1?capture={capture} eth1.100 eth2 --driver xdp");
    let router = start(&network, &format!("{ports} --socket {socket}"));
    router_addresses(&network, "eth1.100", 100);
    router::warm_up(&network, "b", &["10.0.100.2", "2001:db8:100::2"]);
    let path =
        |port: &str| network.run("r", &format!("{PROGRAM} show ports {port} --json --socket {socket}")).1;
    for port in ["eth1", "eth1.100"] {
        let captured = || path(port).contains("workers: its packets are captured");
        assert!(eventually(captured), "{}", path(port));
    }
    assert!(eventually(|| path("eth2").contains("\"kernel\"")), "{}", path("eth2"));
    network.run("b", "ping -n -c 10 -i 0.02 -p 6272696b 10.0.100.2");
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
    let filter = format!("tcpdump -n -x -r {capture} vlan 100 and icmp");
    let (_, text) = network.run("r", &filter);
    assert_eq!(text.matches("0x0050:  6272 696b").count(), 20, "{text}");
}

#[test]
fn brickway_capture_sees_packets_of_a_vlan_without_its_tag_and_those_of_the_port_below_with_it() {
    if !netns::is_root() {
        return;
    }
    let (network, _switch) = network();
    let socket = network.folder.file("r.sock");
    let _router = start(&network, &format!("eth1 eth1.100 eth2 --socket {socket}"));
    router_addresses(&network, "eth1.100", 100);
    router::warm_up(&network, "v", &["10.0.2.2"]);
    let begin = |words: &str| {
        let capture = network.start("r", &format!("{PROGRAM} capture {words} --socket {socket}"));
        capture.wait_until(words, || capture.printed().contains("Ctrl-C ends it"));
        capture
    };
    let captures = [
        (begin("eth1.100 icmp"), "eth1.100", "", 98),
        (begin("eth1 vlan 100 and icmp"), "eth1", "VLAN 100, ", 102),
    ];
    network.run("v", "ping -n -c 3 -i 0.02 -W 1 10.0.2.2");
    for (capture, port, tag, length) in captures {
        for (direction, what) in [("in ", "10.0.100.2 > 10.0.2.2"), ("out", "10.0.2.2 > 10.0.100.2")] {
            let begin = format!(" {port} {direction} {tag}{what} ICMP");
            let end = format!(", {length} bytes");
            let is_one = |line: &&str| line.contains(&begin) && line.ends_with(&end);
            let count = || capture.printed().lines().filter(is_one).count();
            assert!(eventually(|| count() == 3), "{begin}: {}", capture.printed());
        }
    }
}
