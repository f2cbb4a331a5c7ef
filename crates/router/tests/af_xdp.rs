//! A router on AF_XDP ports that dies: the kernel forwards on the same interfaces as if it had never been there.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use std::net::UdpSocket;
use std::time::Duration;

use netns::Network;
use netns::router::{forwarded_by_the_kernel, start};
use testbed::Folder;

const CONFIGURATION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/paper-router.click");

/// Two hosts, and between them a namespace whose kernel could forward as well.
fn network() -> Network {
    let network = Network::new(&["r", "a", "b"]);
    network.link(("r", "eth0", "02:00:00:00:00:01"), ("a", "eth0", "02:00:00:00:00:02"));
    network.link(("r", "eth1", "02:00:00:00:01:01"), ("b", "eth0", "02:00:00:00:01:02"));
    for (host, device, link) in [("a", "eth0", "0"), ("b", "eth1", "1")] {
        network.ip("r", &format!("addr add 10.0.{link}.1/24 dev {device}"));
        network.ip(host, &format!("addr add 10.0.{link}.2/24 dev eth0"));
        network.ip(host, &format!("route add default via 10.0.{link}.1"));
    }
    let (set, text) = network.run("r", "sysctl -qw net.ipv4.ip_forward=1");
    assert!(set, "{text}");
    network
}

/// How many of ten pings through the router are answered.
fn answers(network: &Network) -> usize {
    network.answers("a", "10.0.1.2")
}

/// Whether an XDP program is on any interface of the router.
fn has_program(network: &Network) -> bool {
    network.run("r", "ip -d link show").1.contains("prog/xdp")
}

#[test]
fn after_kill_9_the_kernel_forwards() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    assert_eq!(answers(&network), 10, "the kernel forwards before");
    assert!(!has_program(&network));
    let program = env!("CARGO_BIN_EXE_brickway");
    for options in ["", "?mode=generic"] {
        let ports = format!("DEV0=af_xdp:eth0{options} DEV1=af_xdp:eth1{options}");
        let router = network.start("r", &format!("{program} run {CONFIGURATION} {ports}"));
        router.wait_until(&format!("the router forwards with `{options}`"), || {
            let before = forwarded_by_the_kernel(&network);
            answers(&network) == 10 && forwarded_by_the_kernel(&network) == before
        });
        assert!(has_program(&network));
        // SIGKILL.
        drop(router);
        assert!(netns::eventually(|| !has_program(&network)), "the program is still there after {options}");
        let before = forwarded_by_the_kernel(&network);
        assert_eq!(answers(&network), 10, "the kernel forwards again after {options}");
        assert_eq!(forwarded_by_the_kernel(&network), before + 20);
    }
}

#[test]
fn queues_that_come_later_are_the_routers_too() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let folder = Folder::new();
    let rules = folder.write("rules", "permit any any any");
    let router = start(&network, &format!("eth0 eth1 --driver af_xdp --acl {rules}"));
    assert_eq!(answers(&network), 10);
    for (end, command) in [("r", "ethtool -L eth0 rx 2"), ("a", "ethtool -L eth0 tx 2")] {
        let (done, said) = network.run(end, command);
        assert!(done, "{command}: {said}");
    }
    let far = network.udp_socket("b", "10.0.1.2:9");
    far.set_nonblocking(true).unwrap();
    let flows: Vec<UdpSocket> = (0..32).map(|_| network.udp_socket("a", "10.0.0.2:0")).collect();
    let have_all_come = || {
        for flow in &flows {
            flow.send_to(b"a flow of its own", "10.0.1.2:9").unwrap();
        }
        // Some of a try may be lost: the next one sends anew.
        let mut count = 0;
        for _ in 0..100 {
            count += std::iter::from_fn(|| far.recv(&mut [0; 64]).ok()).count();
            if count >= flows.len() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    };
    router.wait_until("packets of both queues pass the list", have_all_come);
    assert!(router.printed().contains("eth0: its device has 2 receive queues now"), "{}", router.printed());
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
}
