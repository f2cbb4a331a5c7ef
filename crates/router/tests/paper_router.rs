//! The router of the Click paper between two Linux hosts: what `examples/paper-router.click` does on a wire.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use netns::Network;

const CONFIGURATION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/paper-router.click");

/// Two hosts, and between them a namespace whose kernel has no addresses: only the router can forward.
fn network() -> Network {
    let network = Network::new(&["r", "a", "b"]);
    network.link(("r", "eth0", "02:00:00:00:00:01"), ("a", "eth0", "02:00:00:00:00:02"));
    network.link(("r", "eth1", "02:00:00:00:01:01"), ("b", "eth0", "02:00:00:00:01:02"));
    for (host, address, router) in [("a", "10.0.0.2", "10.0.0.1"), ("b", "10.0.1.2", "10.0.1.1")] {
        network.ip(host, &format!("addr add {address}/24 dev eth0"));
        network.ip(host, &format!("route add default via {router}"));
    }
    network
}

/// Whether all of `count` pings are answered.
fn ping(network: &Network, from: &str, arguments: &str, count: u32) -> Result<(), String> {
    let (_, text) = network.run(from, &format!("ping -n -c {count} -i 0.05 -W 2 {arguments}"));
    if text.contains(&format!("{count} packets transmitted, {count} received")) { Ok(()) } else { Err(text) }
}

#[test]
fn hosts_reach_each_other_through_the_papers_router() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    assert!(ping(&network, "a", "10.0.1.2", 1).is_err(), "nothing forwards before the router runs");
    let command = format!("{} run {CONFIGURATION} DEV0=eth0 DEV1=eth1", env!("CARGO_BIN_EXE_brickway"));
    let router = network.start("r", &command);
    router.wait_until("the router forwards", || ping(&network, "a", "10.0.1.2", 1).is_ok());

    ping(&network, "a", "10.0.1.2", 10).unwrap();
    ping(&network, "b", "10.0.0.2", 10).unwrap();
    // 3,000 bytes in fragments, both ways: a router passes them on as they are.
    ping(&network, "a", "-s 3000 10.0.1.2", 3).unwrap();

    // By the default route: b is the gateway.
    network.ip("b", "addr add 192.0.2.1/32 dev lo");
    ping(&network, "a", "192.0.2.1", 3).unwrap();

    // RFC 1812, 5.3.1: time exceeded, and from the address of the port that the error leaves by.
    let (_, text) = network.run("a", "traceroute -n -q 1 -w 2 -m 4 10.0.1.2");
    let hops: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(hops, ["10.0.0.1", "10.0.1.2"], "{text}");

    let code = router.interrupt();
    assert_eq!(code, 0, "{}", router.printed());
    assert!(router.printed().contains("DecIPTTL"), "a summary at the end:\n{}", router.printed());
    assert!(ping(&network, "a", "10.0.1.2", 1).is_err(), "nothing forwards when the router is gone");
}
