//! A drop-in router in namespace `r`, and the questions that its tests ask.

use super::{Network, Running, eventually, reply_number};
use std::collections::BTreeSet;
use std::time::Duration;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_brickway");

/// Returns hosts a and b, and a router between them: 10.0.1.0/24 on eth1, 10.0.2.0/24 on eth2.
pub(crate) fn between_hosts() -> Network {
    let network = Network::new(&["a", "r", "b"]);
    network.link(("a", "eth0", "02:00:00:00:01:02"), ("r", "eth1", "02:00:00:00:01:01"));
    network.link(("b", "eth0", "02:00:00:00:02:02"), ("r", "eth2", "02:00:00:00:02:01"));
    network.ip("r", "addr add 10.0.1.1/24 dev eth1");
    network.ip("r", "addr add 10.0.2.1/24 dev eth2");
    for (host, number) in [("a", 1), ("b", 2)] {
        network.ip(host, &format!("addr add 10.0.{number}.2/24 dev eth0"));
        network.ip(host, &format!("route add default via 10.0.{number}.1"));
    }
    network.forward("r");
    network
}

/// Starts `brickway run` in namespace `r`, as [`start_in`] does.
pub(crate) fn start(network: &Network, arguments: &str) -> Running {
    start_in(network, "r", arguments)
}

/// Starts `brickway run` in a namespace, and waits until it runs. Ports that name no driver have that of
/// `BRICKWAY_TEST_DRIVER`, if it is set (`make test-drivers`).
pub(crate) fn start_in(network: &Network, label: &str, arguments: &str) -> Running {
    let driver = std::env::var("BRICKWAY_TEST_DRIVER")
        .ok()
        .filter(|_| !arguments.contains("--driver") && !arguments.contains(".click"));
    let arguments =
        &driver.map_or_else(|| arguments.to_owned(), |driver| format!("{arguments} --driver {driver}"));
    let router = network.start(label, &format!("{PROGRAM} run {arguments}"));
    router.wait_until(&format!("`run {arguments}`"), || router.printed().contains(" runs with "));
    router
}

/// Packets of both families that the kernel of the router forwarded.
pub(crate) fn forwarded_by_the_kernel(network: &Network) -> u64 {
    let (_, text) = network.run("r", "cat /proc/net/snmp /proc/net/snmp6");
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let ipv4: Vec<&Vec<&str>> = lines.iter().filter(|line| line[0] == "Ip:").collect();
    let column = ipv4[0].iter().position(|&name| name == "ForwDatagrams").unwrap();
    let ipv6 = lines.iter().find(|line| line[0] == "Ip6OutForwDatagrams").unwrap();
    ipv4[1][column].parse::<u64>().unwrap() + ipv6[1].parse::<u64>().unwrap()
}

/// Pings from a host until every destination answers and the kernel forwards nothing.
pub(crate) fn warm_up(network: &Network, host: &str, destinations: &[&str]) {
    let fast = eventually(|| {
        let before = forwarded_by_the_kernel(network);
        let all = destinations.iter().all(|to| network.answers(host, to) == 10);
        all && forwarded_by_the_kernel(network) == before
    });
    assert!(fast, "{destinations:?}: no answer, or the kernel still forwards");
}

/// The last packets of a stream of pings, which may have been on their way when it ended: at a hundred a second a fifth of one.
pub(crate) const ON_THEIR_WAY: usize = 20;

/// Pings from a host a hundred times a second while `act` runs; how many were lost, of how many.
pub(crate) fn lost_during(network: &Network, host: &str, to: &str, act: impl FnOnce()) -> (usize, usize) {
    let ping = network.start(host, &format!("ping -n -i 0.01 -W 1 {to}"));
    std::thread::sleep(Duration::from_millis(300));
    act();
    std::thread::sleep(Duration::from_millis(500));
    ping.interrupt();
    let (sent, answered) = answered(&ping.printed());
    (sent - answered.len(), sent)
}

/// What `ping` printed: how many it sent but for the last ones, and the numbers of these that were answered.
pub(crate) fn answered(text: &str) -> (usize, BTreeSet<usize>) {
    let summary = text.lines().find(|line| line.contains(" packets transmitted")).unwrap();
    let sent = summary.split(' ').find_map(|word| word.parse::<usize>().ok()).unwrap();
    let sent = sent.saturating_sub(ON_THEIR_WAY);
    (sent, text.lines().filter_map(reply_number).filter(|&number| number <= sent).collect())
}
