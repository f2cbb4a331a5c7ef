//! Clusters between plain Linux hosts: many servers that act as one router, and what each fault costs.
//!
//! Loss is counted in pings, a hundred a second on each way. The fabric goes round what is dead within 50 ms, five pings; machines that run
//! tests may be busy, so tests ask only for what tells that from waiting for the store, which takes seconds. What was measured is printed.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use packet::sync::lock;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use fabric::{Far, NodeId, Paths, Topology};
use netns::cluster::{Cluster, Loss, Plan, StorePlan, host_addresses, port_addresses};
use netns::{eventually, is_root};
use serde_json::Value;

/// Most pings that may be lost where what is dead is gone round, and also where nothing dies: a node that waits for a CPU looks dead for a
/// moment. Half of what waiting for the store would cost at least.
const MOST_LOST: usize = 50;

/// Clusters that run at once: more would be too much for a small machine.
static TURNS: [Mutex<()>; 2] = [Mutex::new(()), Mutex::new(())];

fn turn(which: usize) -> MutexGuard<'static, ()> {
    // Another test's failure is not ours.
    lock(&TURNS[which])
}

/// Says how long each step took.
struct Steps(Instant, &'static str);

impl Steps {
    fn of(test: &'static str) -> Steps {
        Steps(Instant::now(), test)
    }

    fn done(&mut self, what: &str) {
        println!("{}: {what}: {:.1} s", self.1, self.0.elapsed().as_secs_f64());
        self.0 = Instant::now();
    }
}

/// Pings between the hosts behind these nodes, each to the next, with the addresses of both families in turn.
fn ring(cluster: &Cluster, nodes: &[&str]) -> Vec<(usize, String)> {
    let host = |name: &&str| cluster.behind.iter().position(|with| with == name).unwrap() + 1;
    let hosts: Vec<usize> = nodes.iter().map(host).collect();
    let next = hosts.iter().cycle().skip(1);
    hosts
        .iter()
        .zip(next)
        .enumerate()
        .map(|(n, (&from, &to))| (from, host_addresses(to)[n % 2].clone()))
        .collect()
}

fn all_but<'a>(names: &'a [String], without: &[&str]) -> Vec<&'a str> {
    names.iter().map(String::as_str).filter(|name| !without.contains(name)).collect()
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// Every way lost at most so many.
fn lost_at_most(most: usize, what: &str, losses: &[Loss]) {
    println!("{what}: {losses:?}");
    for loss in losses {
        assert!(loss.lost <= most && loss.sent > 20, "{what}: at most {most} may be lost: {losses:#?}");
    }
}

/// The link address that a host has for its router.
fn router_of(cluster: &Cluster, host: usize) -> String {
    let [router, _] = port_addresses(host);
    let (_, text) = cluster.network.run(&format!("h{host}"), &format!("ip neigh show {router}"));
    text.split_once("lladdr ").map(|(_, rest)| rest.split(' ').next().unwrap().to_owned()).unwrap_or_default()
}

/// The leader gets a route, and all of these hosts reach what is there.
fn a_route_works(cluster: &Cluster, leader: &str, number: usize, via: usize, hosts: &[usize]) {
    let ([address, address6], [gateway, gateway6]) =
        ([format!("198.51.100.{number}"), format!("2001:db8:100::{number}")], host_addresses(via));
    cluster.network.ip(&format!("h{via}"), &format!("addr add {address}/32 dev lo"));
    cluster.network.ip(&format!("h{via}"), &format!("addr add {address6}/128 dev lo"));
    cluster.network.ip(leader, &format!("route add {address} via {gateway}"));
    cluster.network.ip(leader, &format!("-6 route add {address6} via {gateway6}"));
    let begin = Instant::now();
    let targets = [address, address6];
    assert!(
        eventually(|| cluster.silent(hosts, &targets).is_empty()),
        "{:?}",
        cluster.silent(hosts, &targets)
    );
    println!("a route works from all nodes after {:.2} s", begin.elapsed().as_secs_f64());
}

#[test]
fn a_mesh_is_one_router_whatever_dies() {
    if !is_root() {
        return;
    }
    let _turn = turn(0);
    let mut steps = Steps::of("mesh");
    // Each packet for itself: where flows keep their paths, much depends on how they began.
    let settings = "hello = \"50ms\"\nport_rate = \"100Mbps\"\ndelta = \"0s\"\n";
    let mut cluster = Cluster::new(Plan { settings, ..Plan::default() });
    let names = cluster.names.clone();
    let hosts = [1, 2, 3, 4];
    steps.done("built");
    cluster.start_all(&names);
    steps.done("started");
    let mut leader = cluster.next_leader("");
    cluster.all_reach_all(&hosts);
    steps.done("every host reaches every host, and the router at every port");
    cluster.is_whole(&names);
    cluster.is_one_hop(1, 3);
    cluster.is_one_hop(4, 2);
    steps.done("one hop");
    a_route_works(&cluster, &leader, 1, 2, &[1, 3, 4]);
    long_packets_pass_and_longer_ones_are_told(&cluster);
    files_are_copied(&cluster);
    steps.done("a route, a packet too long, files");
    shares_are_those_of_the_simulator(&cluster);
    steps.done("as simulated");
    assert!(eventually(|| cluster.agrees(&names)), "{:#?}", cluster.show());
    steps.done("the same tables everywhere");

    leader = the_leader_dies(&mut cluster, &leader);
    steps.done("the leader killed");
    another_node_dies(&mut cluster, &leader);
    steps.done("another node killed");
    links_are_cut(&mut cluster);
    steps.done("links cut");
    leader = the_leader_hangs(&mut cluster, &leader);
    steps.done("the leader stopped and continued");
    etcd_dies(&mut cluster, &leader);
    steps.done("etcd killed");
    wires_are_swapped(&mut cluster, &leader);
    steps.done("wires swapped");
    names_and_numbers_are_taken_once(&mut cluster);
    steps.done("names and numbers");
    cluster.all_reach_all(&hosts);
    assert!(eventually(|| cluster.agrees(&names)), "{:#?}", cluster.show());
    steps.done("all as before");
}

fn long_packets_pass_and_longer_ones_are_told(cluster: &Cluster) {
    // To the router itself too: the whole frame goes to the leader.
    for (length, port) in [("1472", 0), ("1452", 1)] {
        for to in (1..=4).map(|number| port_addresses(number)[port].clone()) {
            assert_eq!(cluster.network.answers("h1", &format!("-s {length} {to}")), 10);
        }
    }
    // A link takes a VLAN tag more than its MTU, so what is too long for the router still reaches it.
    cluster.network.ip("h1", "link set eth0 mtu 1504");
    for (length, to) in [("1474", "10.0.3.2"), ("1454", "2001:db8:3::2")] {
        let mut text = String::new();
        let told = eventually(|| {
            text = cluster.network.run("h1", &format!("ping -n -c 1 -W 1 -M do -s {length} {to}")).1;
            text.contains("mtu=1500") || text.contains("mtu = 1500") || text.contains("mtu: 1500")
        });
        assert!(told, "{text}");
    }
    cluster.network.ip("h1", "link set eth0 mtu 1500");
}

fn files_are_copied(cluster: &Cluster) {
    let server = cluster.network.start("h4", "iperf3 -s --forceflush");
    assert!(eventually(|| server.printed().contains("listening")), "{}", server.printed());
    for (way, to) in [("", "10.0.4.2"), (" -R", "2001:db8:4::2")] {
        let (done, text) = cluster.network.run("h2", &format!("timeout 20 iperf3 -c {to} -n 8M -f m{way}"));
        assert!(done, "{text}");
        println!("TCP: {}", text.lines().find(|line| line.contains("receiver")).unwrap_or_default().trim());
    }
}

/// The ports of the mesh, in Mb/s.
const PORT_MBPS: u32 = 100;

/// What node 'a' sends directly and how many packets overtake others is what the simulator says of the same flows from its port to that of
/// 'c'. Nothing else of these tests runs meanwhile. A host that has waited for its turn sends bursts, for which the direct way has no room, and
/// a node that waits loses packets, so one of ten tries counts.
fn shares_are_those_of_the_simulator(cluster: &Cluster) {
    let _alone = turn(1);
    let (simulated, simulated_late) = simulated();
    let agrees = || {
        let Some((share, late)) = measured(cluster) else { return false };
        println!(
            "{share:.1} % of {} Mb/s went directly, {simulated:.1} % simulated; {late:.3} % late, {simulated_late:.3} % simulated",
            EACH_KBPS * FLOWS / 1_000
        );
        (share - simulated).abs() < 8.0 && (late - simulated_late).abs() < 1.0
    };
    assert!((0..10).any(|_| agrees()));
}

/// Flows from one port to another, and the rate of each: 0.9 of a port together, in datagrams whose frames have 1,228 bytes.
const FLOWS: u32 = 60;
const EACH_KBPS: u32 = 1_500;

fn simulated() -> (f64, f64) {
    let load = f64::from(EACH_KBPS * FLOWS) / f64::from(PORT_MBPS * 1_000);
    let none = "0 0 0 0\n";
    let path = std::env::temp_dir().join(format!("brickway-one-output-{}", std::process::id()));
    std::fs::write(&path, format!("0 0 {load} 0\n{none}{none}{none}")).unwrap();
    let rate = format!("{PORT_MBPS}M");
    let output = Command::new(testbed::program("brickway-lab"))
        .args(["sim", "--rate", &rate, "--link", &rate, "--flows", &FLOWS.to_string(), "--size", "1228"])
        .args(["--capacity", "0", "--delta", "0", "--warm", "500", "--ms", "2000", "--json", "--matrix"])
        .arg(&path)
        .output()
        .unwrap();
    std::fs::remove_file(&path).unwrap();
    let row: Value = serde_json::from_slice(&output.stdout).unwrap();
    (row["direct_percent"].as_f64().unwrap(), row["late_sequences_percent"].as_f64().unwrap())
}

/// `None`: not nearly all arrived.
fn measured(cluster: &Cluster) -> Option<(f64, f64)> {
    let sent = || {
        let nodes = cluster.show();
        let row = nodes.iter().find(|node| node["node"] == "a").unwrap();
        [&row["direct"], &row["balanced"]].map(|count| count.as_f64().unwrap())
    };
    let server = cluster.network.start("h3", "iperf3 -s -1 --forceflush");
    assert!(eventually(|| server.printed().contains("listening")), "{}", server.printed());
    let before = sent();
    let client = format!("timeout 30 iperf3 -u -c 10.0.3.2 -P {FLOWS} -b {EACH_KBPS}K -l 1186 -t 2 -J");
    let (done, text) = cluster.network.run("h1", &client);
    assert!(done, "{text}");
    let said: Value = serde_json::from_str(&text).unwrap();
    let packets = said["end"]["sum"]["packets"].as_f64().unwrap();
    let grown = || {
        let after = sent();
        [after[0] - before[0], after[1] - before[1]]
    };
    let lost = said["end"]["sum"]["lost_percent"].as_f64().unwrap();
    if lost > 5.0 {
        println!("{lost:.0} % of {packets} packets were lost");
        return None;
    }
    assert!(eventually(|| grown().iter().sum::<f64>() > 0.9 * packets), "{:?} of {packets}", grown());
    let [direct, balanced] = grown();
    let late = said["end"]["streams"].as_array().unwrap().iter();
    let late: f64 = late.map(|stream| stream["udp"]["out_of_order"].as_f64().unwrap()).sum();
    Some((direct / (direct + balanced) * 100.0, late / packets * 100.0))
}

/// Who leads next.
fn the_leader_dies(cluster: &mut Cluster, leader: &str) -> String {
    let names = cluster.names.clone();
    let others = all_but(&names, &[leader]);
    let mut ways = ring(cluster, &others);
    let asked: Vec<usize> = ways.iter().map(|(host, _)| *host).collect();
    let before: Vec<String> = asked.iter().map(|&host| router_of(cluster, host)).collect();
    // The router itself is away until another node leads.
    ways.push((asked[0], port_addresses(asked[0])[0].clone()));
    let mut next = String::new();
    let mut losses = cluster.lost_during(&ways, |cluster| {
        let begin = Instant::now();
        cluster.kill(leader);
        next = cluster.next_leader(leader);
        println!("'{next}' leads {:.1} s after '{leader}' died", begin.elapsed().as_secs_f64());
        // The router answers at its addresses.
        let own: Vec<String> = asked.iter().flat_map(|&port| port_addresses(port)).collect();
        assert!(eventually(|| cluster.silent(&asked, &own).is_empty()), "{:?}", cluster.silent(&asked, &own));
        let known = ["198.51.100.1".to_owned(), "2001:db8:100::1".to_owned()];
        let far: Vec<usize> = asked.iter().copied().filter(|&host| host != 2).collect();
        if asked.contains(&2) {
            assert_eq!(cluster.silent(&far, &known), Vec::<String>::new(), "routes of the last leader");
        }
    });
    println!("the router itself: {:?}", losses.pop());
    lost_at_most(MOST_LOST, "the leader dies", &losses);
    let after: Vec<String> = asked.iter().map(|&host| router_of(cluster, host)).collect();
    assert_eq!(before, after, "link addresses of the router");
    a_route_works(cluster, &next, 2, asked[0], &asked[1..]);
    cluster.start(leader);
    cluster.is_whole(&names);
    cluster.all_reach_all(&[1, 2, 3, 4]);
    next
}

fn another_node_dies(cluster: &mut Cluster, leader: &str) {
    let names = cluster.names.clone();
    let dies = all_but(&names, &[leader])[0].to_owned();
    let ways = ring(cluster, &all_but(&names, &[&dies]));
    let losses = cluster.lost_during(&ways, |cluster| {
        cluster.kill(&dies);
        std::thread::sleep(Duration::from_secs(1));
        cluster.start(&dies);
        cluster.is_whole(&names);
    });
    lost_at_most(2 * MOST_LOST, "a node dies and is back", &losses);
    cluster.all_reach_all(&[1, 2, 3, 4]);
}

fn links_are_cut(cluster: &mut Cluster) {
    let names = cluster.names.clone();
    // The link between c and d, on both ends.
    let ways = ring(cluster, &["c", "d"]);
    let set = |cluster: &Cluster, state: &str| {
        for name in ["c", "d"] {
            cluster.network.ip(name, &format!("link set fab2 {state}"));
        }
    };
    let losses = cluster.lost_during(&ways, |cluster| {
        set(cluster, "down");
        std::thread::sleep(Duration::from_millis(500));
    });
    lost_at_most(MOST_LOST, "a link is cut", &losses);
    let losses = cluster.lost_during(&ways, |cluster| {
        set(cluster, "up");
        cluster.is_whole(&names);
    });
    lost_at_most(MOST_LOST, "it is mended", &losses);
    // That between a and b, towards one of them only.
    for side in ["left", "right"] {
        let ways = ring(cluster, &["a", "b"]);
        let losses = cluster.lost_during(&ways, |cluster| {
            cluster.cut(side);
            std::thread::sleep(Duration::from_secs(1));
            cluster.connect(side);
            cluster.is_whole(&names);
        });
        lost_at_most(2 * MOST_LOST, "a link is cut in one direction", &losses);
    }
    let deaf = cluster.said("a") + &cluster.said("b");
    assert!(deaf.contains("is heard, but does not hear this node"), "{deaf}");
}

/// Who leads next.
fn the_leader_hangs(cluster: &mut Cluster, leader: &str) -> String {
    let names = cluster.names.clone();
    let others = all_but(&names, &[leader]);
    let ways = ring(cluster, &others);
    let mut next = String::new();
    let losses = cluster.lost_during(&ways, |cluster| {
        cluster.hang(leader);
        next = cluster.next_leader(leader);
        cluster.go_on(leader);
        cluster.is_whole(&names);
    });
    lost_at_most(2 * MOST_LOST, "the leader hangs, and goes on", &losses);
    // It does not lead any more, and knows it.
    assert!(
        eventually(|| !cluster.network.run(leader, &format!("ip link show {next}1")).0),
        "'{leader}' still has the ports:\n{}",
        cluster.said(leader)
    );
    assert_eq!(cluster.leader().as_deref(), Some(next.as_str()));
    cluster.all_reach_all(&[1, 2, 3, 4]);
    next
}

fn etcd_dies(cluster: &mut Cluster, leader: &str) {
    let names = cluster.names.clone();
    let ways = ring(cluster, &all_but(&names, &[]));
    let losses = cluster.lost_during(&ways, |cluster| {
        cluster.kill_etcd();
        // Longer than sessions live.
        std::thread::sleep(Duration::from_secs(5));
        cluster.start_etcd();
        let begin = Instant::now();
        cluster.is_whole(&names);
        println!("all are members {:.1} s after etcd is back", begin.elapsed().as_secs_f64());
    });
    lost_at_most(MOST_LOST, "etcd dies and is back", &losses);
    let next = cluster.next_leader("");
    println!("'{leader}' led, '{next}' leads");
    a_route_works(cluster, &next, 3, 1, &[2, 3, 4]);
}

fn wires_are_swapped(cluster: &mut Cluster, leader: &str) {
    let names = cluster.names.clone();
    let swapped = all_but(&names, &[leader]).last().unwrap().to_string();
    let swap = |cluster: &Cluster| {
        for (from, to) in [("fab0", "fab9"), ("fab1", "fab0"), ("fab9", "fab1")] {
            cluster.network.ip(&swapped, &format!("link set {from} down"));
            cluster.network.ip(&swapped, &format!("link set {from} name {to}"));
            cluster.network.ip(&swapped, &format!("link set {to} up"));
        }
    };
    cluster.kill(&swapped);
    swap(cluster);
    cluster.start(&swapped);
    let tells = |cluster: &Cluster, name: &str| {
        let said = cluster.said(name);
        said.contains(" is there; expected link ")
    };
    assert!(eventually(|| tells(cluster, &swapped)), "{}", cluster.said(&swapped));
    let shows = || {
        let shown = cluster
            .network
            .run("mgmt", &format!("{} cluster show {}", netns::router::PROGRAM, cluster.file()))
            .1;
        shown.contains(" is there; expected link ")
    };
    assert!(eventually(shows), "{:#?}", cluster.show());
    // What is left of its links still carries its packets.
    cluster.all_reach_all(&[1, 2, 3, 4]);
    cluster.kill(&swapped);
    swap(cluster);
    cluster.start(&swapped);
    cluster.is_whole(&names);
}

fn names_and_numbers_are_taken_once(cluster: &mut Cluster) {
    // A server beside the others, started with a name that is there.
    for device in ["fab0", "fab1", "fab2", "eth1"] {
        cluster.network.ip("mgmt", &format!("link add {device} type veth peer name {device}-far"));
        cluster.network.ip("mgmt", &format!("link set {device} up"));
        cluster.network.ip("mgmt", &format!("link set {device}-far up"));
    }
    let command = cluster.program("run", "b").replace("b.sock", "second.sock");
    let second = cluster.network.start("mgmt", &command);
    let taken = || second.printed().contains("another server is node 'b' of this cluster already");
    assert!(eventually(taken), "{}", second.printed());
    drop(second);
    // And with a name of its own, but the number of another.
    let text = std::fs::read_to_string(cluster.file()).unwrap();
    let other =
        text.replace("name = \"b\"", "name = \"other\"").replace("name = \"b1\"", "name = \"other1\"");
    std::fs::write(cluster.file(), other).unwrap();
    let (joined, text) = cluster.network.run("mgmt", &cluster.program("join", "other"));
    assert!(!joined && text.contains("node 'other': number 1 is another node's too"), "{text}");
    cluster.write_file(&cluster.names.clone());
    assert!(cluster.show().len() == 4, "{:#?}", cluster.show());
}

#[test]
fn nodes_join_and_leave_while_others_lose_nothing() {
    if !is_root() {
        return;
    }
    let _turn = turn(1);
    let mut steps = Steps::of("join");
    let mut cluster = Cluster::new(Plan::default());
    let all = cluster.names.clone();
    let three = owned(&["a", "b", "c"]);
    cluster.write_file(&three);
    cluster.start_all(&three);
    cluster.next_leader("");
    cluster.all_reach_all(&[1, 2, 3]);
    cluster.is_whole(&three);
    steps.done("three of four nodes");

    cluster.write_file(&all);
    let ways = ring(&cluster, &["a", "b", "c"]);
    let losses = cluster.lost_during(&ways, |cluster| {
        cluster.join("d");
        cluster.is_whole(&cluster.names.clone());
        cluster.all_reach_all(&[1, 2, 3, 4]);
    });
    lost_at_most(MOST_LOST, "a node joins", &losses);
    cluster.is_one_hop(1, 4);
    let members = all_but(&all, &[]);
    assert!(eventually(|| cluster.knows(&members, 4)), "the tables do not know the host behind the new port");
    steps.done("the fourth joined");

    // One that does not lead, then the one that does.
    let leader = cluster.next_leader("");
    let first = all_but(&all, &[&leader])[0].to_owned();
    let rest = all_but(&all, &[&first]);
    leaves_without_loss(&mut cluster, &first, &rest);
    let gone = || !cluster.network.run(&leader, &format!("ip link show {first}1")).0;
    assert!(eventually(gone), "{}", cluster.said(&leader));
    assert_eq!(cluster.show().len(), 3, "{:#?}", cluster.show());
    steps.done("one left");
    let rest = all_but(&all, &[&first, &leader]);
    leaves_without_loss(&mut cluster, &leader, &rest);
    let next = cluster.next_leader(&leader);
    let silent: Vec<usize> = ring(&cluster, &rest).iter().map(|(host, _)| *host).collect();
    cluster.all_reach_all(&silent);
    assert!(rest.contains(&next.as_str()));
    steps.done("the leader left");
}

fn leaves_without_loss(cluster: &mut Cluster, leaves: &str, rest: &[&str]) {
    let ways = ring(cluster, rest);
    let losses = cluster.lost_during(&ways, |cluster| {
        let begin = Instant::now();
        let command = format!("{} cluster leave {} {leaves}", netns::router::PROGRAM, cluster.file());
        let (left, text) = cluster.network.run("mgmt", &command);
        assert!(left && text.contains("has left"), "{text}\n{}", cluster.said(leaves));
        println!("'{leaves}' left within {:.1} s", begin.elapsed().as_secs_f64());
        let mut end = None;
        assert!(
            eventually(|| {
                end = cluster.ended(leaves);
                end.is_some()
            }),
            "{}",
            cluster.said(leaves)
        );
        assert_eq!(end, Some(0), "{}", cluster.said(leaves));
    });
    lost_at_most(MOST_LOST, "a node leaves", &losses);
}

#[test]
fn fronts_divide_flows_among_routing_nodes_and_go_round_a_dead_one() {
    if !is_root() {
        return;
    }
    let _turn = turn(1);
    let mut steps = Steps::of("fronts");
    let role = |number| if number < 2 { "edge" } else { "route" };
    let mut cluster = Cluster::new(Plan { topology: "mesh(5)", role, ..Plan::default() });
    let names = cluster.names.clone();
    cluster.start_all(&names);
    let leader = cluster.next_leader("");
    cluster.all_reach_all(&[1, 2]);
    cluster.is_whole(&names);
    cluster.is_one_hop(1, 2);
    cluster.is_one_hop(2, 1);
    steps.done("one router");
    let more: Vec<String> = (10..18).map(|number| format!("10.0.2.{number}")).collect();
    more.iter().for_each(|address| cluster.network.ip("h2", &format!("addr add {address}/24 dev eth0")));
    assert!(eventually(|| cluster.silent(&[1], &more).is_empty()), "{:?}", cluster.silent(&[1], &more));
    let dies = ["c", "d", "e"].into_iter().find(|&name| name != leader).unwrap();
    let ways: Vec<_> = more.into_iter().map(|address| (1, address)).collect();
    let losses = cluster.lost_during(&ways, |cluster| {
        cluster.kill(dies);
        std::thread::sleep(Duration::from_secs(1));
    });
    lost_at_most(MOST_LOST, "a routing node dies", &losses);
    println!(
        "{} of {} flows lost nothing",
        losses.iter().filter(|loss| loss.lost == 0).count(),
        losses.len()
    );
    steps.done("a routing node killed");
}

/// The shares of a class at front 'a' in 1024th parts, by the names of the nodes that have some.
fn shares(cluster: &Cluster, class: &str) -> Vec<(String, u64)> {
    let nodes = cluster.show();
    let classes = nodes.iter().find(|node| node["node"] == "a").and_then(|node| node["classes"].as_array());
    let class = classes.into_iter().flatten().find(|known| known["rule"] == class);
    let shares = class.and_then(|class| class["shares"].as_array()).into_iter().flatten();
    let share = |pair: &Value| {
        let number = pair[0].as_u64().unwrap() as usize;
        (cluster.names[number].clone(), pair[1].as_u64().unwrap())
    };
    shares.map(share).filter(|(_, share)| *share > 0).collect()
}

/// Waits until front 'a' says that a class is divided like that.
fn is_divided(cluster: &Cluster, class: &str, expected: &[(&str, u64)]) {
    let expected: Vec<_> = expected.iter().map(|&(name, share)| (name.to_owned(), share)).collect();
    assert!(eventually(|| shares(cluster, class) == expected), "{:?}: {:#?}", expected, cluster.show());
}

#[test]
fn fronts_send_each_class_to_the_nodes_that_serve_it_and_follow_changes_while_they_run() {
    if !is_root() {
        return;
    }
    const ECHO: &str = "icmp any 10.0.2.0/24";
    let _turn = turn(1);
    let mut steps = Steps::of("classes");
    let role = |number| if number < 2 { "edge" } else { "route" };
    let node = |number| if number == 4 { "serves = [\"icmp any 10.0.2.0/24\"]" } else { "" };
    let mut cluster = Cluster::new(Plan { topology: "mesh(5)", role, node, ..Plan::default() });
    let names = cluster.names.clone();
    cluster.start_all(&names);
    cluster.next_leader("");
    cluster.all_reach_all(&[1, 2]);
    cluster.is_whole(&names);
    is_divided(&cluster, ECHO, &[("e", 1024)]);
    is_divided(&cluster, "others", &[("c", 512), ("d", 512)]);
    steps.done("one router");

    // Of a thousand echo requests, how many more frames than before 'a' has sent to 'c', 'd' and 'e'; hellos are among them.
    let sent_to = |cluster: &Cluster| -> Vec<u64> {
        let before: Vec<u64> =
            (1..4).map(|link| cluster.handler("a", &format!("link{link}.packets"))).collect();
        let ping =
            cluster.network.run("h1", &format!("ping -n -q -i 0.002 -c 1000 {}", host_addresses(2)[0]));
        assert!(ping.0, "{}", ping.1);
        let after = (1..4).map(|link| cluster.handler("a", &format!("link{link}.packets")));
        after.zip(before).map(|(after, before)| after - before).collect()
    };
    let to = sent_to(&cluster);
    assert!(to[2] >= 1000 && to[0] < 900 && to[1] < 900, "{to:?}");
    steps.done("echo requests go to the node that serves them");

    let ways = [(1, host_addresses(2)[0].clone()), (2, host_addresses(1)[1].clone())];
    let losses = cluster.lost_during(&ways, |cluster| {
        let (done, text) = cluster.set("e --weight 0");
        assert!(done && text.contains("node 'e' has weight 0 now and serves icmp any 10.0.2.0/24"), "{text}");
        is_divided(cluster, ECHO, &[("c", 512), ("d", 512)]);
    });
    lost_at_most(MOST_LOST, "a node is drained", &losses);
    let to = sent_to(&cluster);
    assert!(to[2] < 900 && to[0].max(to[1]) >= 1000, "{to:?}");
    steps.done("drained");

    let losses = cluster.lost_during(&ways, |cluster| {
        let (done, text) = cluster.set("e --weight 2 --serves-all");
        assert!(done && text.contains("node 'e' has weight 2 now and serves all other flows"), "{text}");
        is_divided(cluster, "others", &[("c", 256), ("d", 256), ("e", 512)]);
        let (done, text) = cluster.set("c --serves 'udp any any port 53' --serves 'tcp any any port 53'");
        assert!(done && text.contains("tcp any any port 53"), "{text}");
        is_divided(cluster, "tcp any any port 53", &[("c", 1024)]);
    });
    lost_at_most(MOST_LOST, "weights and classes change", &losses);
    assert_eq!(shares(&cluster, ECHO), []);
    for (arguments, says) in [
        ("c --weight 0 --serves 'udp any'", "serves: 'udp any': the line ends before word 3"),
        ("a --serves 'udp any any'", "its role is \"edge\"; expected \"route\" or \"edge+route\""),
        ("z --weight 1", "has no node 'z'"),
        ("c", "required"),
    ] {
        let (done, text) = cluster.set(arguments);
        assert!(!done && text.contains(says), "{text}");
    }
    let (_, text) = cluster
        .network
        .script("mgmt", &format!("{} cluster show {}", netns::router::PROGRAM, cluster.file()));
    assert!(text.contains("others") && text.contains("d 33.3%, e 66.7%"), "{text}");
    steps.done("another weight, other classes");

    // Its file says what the cluster was like at first.
    cluster.kill("a");
    cluster.start("a");
    // Until then, what is shown is of the killed process, or of links that are not up.
    cluster.all_reach_all(&[1, 2]);
    is_divided(&cluster, "udp any any port 53", &[("c", 1024)]);
    assert!(eventually(|| shares(&cluster, "others").len() == 2), "{:#?}", cluster.show());
    steps.done("a front that starts anew has what was set");

    let command = format!("{} cluster leave {} e", netns::router::PROGRAM, cluster.file());
    let (left, text) = cluster.network.run("mgmt", &command);
    assert!(left, "{text}\n{}", cluster.said("e"));
    is_divided(&cluster, "others", &[("d", 1024)]);
    assert!(eventually(|| cluster.ended("e").is_some()), "{}", cluster.said("e"));
    cluster.join("e");
    is_divided(&cluster, ECHO, &[("e", 1024)]);
    steps.done("a routing node that leaves and joins is followed");
}

#[test]
fn a_fly_with_relays_is_one_router() {
    if !is_root() {
        return;
    }
    let _turn = turn(1);
    let mut steps = Steps::of("fly");
    let role = |number| if number < 8 { "edge+route" } else { "relay" };
    // Twenty nodes on a few cores.
    let settings = "hello = \"100ms\"";
    let mut cluster =
        Cluster::new(Plan { topology: "fly(2, 3)", role, settings, driver: "af_packet", ..Plan::default() });
    steps.done("built");
    let names = cluster.names.clone();
    cluster.start_all(&names);
    cluster.next_leader("");
    steps.done("started");
    cluster.all_reach_all(&[1, 2, 3, 4, 5, 6, 7, 8]);
    cluster.is_one_hop(1, 8);
    steps.done("every host reaches every host, by one hop");
}

/// Returns whether the other nodes of a topology reach each other without this one, and some of them another way than with it.
fn is_gone_round(topology: &str, dead: usize) -> bool {
    let topology = Arc::new(Topology::new(topology.parse().unwrap()));
    let is_there = |node: NodeId| node.index() != dead;
    let ways = |from: NodeId| {
        let is_up = |link: u16| match topology.links(from)[usize::from(link)].far {
            Far::Node(far) => is_there(far),
            Far::Switch(_) => true,
        };
        Paths::with(topology.clone(), from, is_up, |a, b| is_there(a) && is_there(b))
    };
    let others: Vec<NodeId> = NodeId::first(topology.nodes()).filter(|&node| is_there(node)).collect();
    let mut detours = 0;
    for &from in &others {
        let ways = ways(from);
        let targets = || others.iter().filter(|&&to| to != from);
        if !targets().all(|&to| ways.is_reachable(to)) {
            return false;
        }
        detours += targets().filter(|&&to| !ways.is_direct(to)).count();
    }
    detours > 0
}

#[test]
fn each_topology_of_few_links_is_one_router_and_goes_round_a_dead_node() {
    if !is_root() {
        return;
    }
    let _turn = turn(1);
    for topology in ["compact(2)", "groups(2)", "cube(3)", "debruijn(3, 2)"] {
        let mut steps = Steps::of(topology);
        let mut cluster = Cluster::new(Plan { topology, ..Plan::default() });
        let names = cluster.names.clone();
        cluster.start_all(&names);
        let leader = cluster.next_leader("");
        let hosts: Vec<usize> = (1..=names.len()).collect();
        cluster.all_reach_all(&hosts);
        cluster.is_whole(&names);
        cluster.is_one_hop(1, names.len());
        steps.done("every host reaches every host, and the router at every port");
        let may_die = |&number: &usize| names[number] != leader && is_gone_round(topology, number);
        let dies = (0..names.len()).find(may_die).expect("a node on others' ways that these can do without");
        let rest: Vec<&str> = all_but(&names, &[&names[dies]]);
        let losses = cluster.lost_during(&ring(&cluster, &rest), |cluster| {
            cluster.kill(&names[dies]);
            std::thread::sleep(Duration::from_secs(1));
        });
        lost_at_most(MOST_LOST, "a node dies", &losses);
        let rest: Vec<usize> = hosts.into_iter().filter(|host| *host != dies + 1).collect();
        cluster.all_reach_all(&rest);
        steps.done("the same without a node that died");
    }
}

#[test]
fn a_node_of_a_ring_relays_in_the_kernel() {
    if !is_root() {
        return;
    }
    let _turn = turn(1);
    let mut steps = Steps::of("ring");
    let mut cluster = Cluster::new(Plan { topology: "torus(4)", driver: "xdp", ..Plan::default() });
    let names = cluster.names.clone();
    cluster.start_all(&names);
    cluster.next_leader("");
    let ways = |cluster: &Cluster| -> Vec<(Value, Value)> {
        let links = cluster.show().into_iter().flat_map(|node| node["links"].as_array().unwrap().clone());
        links.map(|link| (link["is_up"].clone(), link["path"].clone())).collect()
    };
    let all_relay = eventually(|| {
        let ways = ways(&cluster);
        ways.len() == 8 && ways.iter().all(|(is_up, path)| is_up == true && path == "kernel")
    });
    assert!(all_relay, "{:?}", ways(&cluster));
    cluster.all_reach_all(&[1, 2, 3, 4]);
    cluster.is_one_hop(1, 3);
    steps.done("every host reaches every host");
    // Node 'c' is behind 'b' or 'd'. What the kernel has relayed no FromFabric has seen.
    let in_kernel = |cluster: &Cluster| -> u64 {
        let both = ["b", "d"].into_iter();
        both.map(|name| cluster.received(name).saturating_sub(cluster.seen_by_graph(name))).sum()
    };
    let before = in_kernel(&cluster);
    let ping = cluster.network.run("h1", &format!("ping -n -q -i 0.002 -c 1000 {}", host_addresses(3)[0]));
    assert!(ping.0, "{}", ping.1);
    // What `show` prints was reported to the store a while ago.
    let mut relayed = 0;
    let are_counted = eventually(|| {
        relayed = in_kernel(&cluster) - before;
        relayed >= 1800
    });
    assert!(are_counted, "{relayed} of 2000: {:#?}", cluster.show());
    steps.done("relayed in the kernel");
    let losses = cluster.lost_during(&[(1, host_addresses(3)[0].clone())], |cluster| {
        cluster.kill("b");
        std::thread::sleep(Duration::from_secs(1));
    });
    lost_at_most(MOST_LOST, "a node of the ring dies", &losses);
    steps.done("a node killed");
}

#[test]
fn a_star_over_a_switch_is_one_router() {
    if !is_root() {
        return;
    }
    let _turn = turn(1);
    let mut steps = Steps::of("star");
    let mut cluster = Cluster::new(Plan { topology: "star(4)", ..Plan::default() });
    let names = cluster.names.clone();
    cluster.start_all(&names);
    cluster.next_leader("");
    cluster.all_reach_all(&[1, 2, 3, 4]);
    cluster.is_whole(&names);
    cluster.is_one_hop(1, 3);
    let record = cluster.record("d", RECORDED);
    let ways = ring(&cluster, &["a", "b", "c"]);
    let losses = cluster.lost_during(&ways, |cluster| {
        cluster.kill("d");
        std::thread::sleep(Duration::from_secs(1));
    });
    lost_at_most(MOST_LOST, "a node on a switch dies", &losses);
    steps.done("one router");
    what_was_recorded_is_not_believed(&cluster, &record);
    steps.done("recorded frames sent again");
}

/// Hellos that are sent again.
const RECORDED: u64 = 60;

/// Node 'd' is dead; its hellos are sent again, on the switch and to an external port.
fn what_was_recorded_is_not_believed(cluster: &Cluster, record: &str) {
    let ups = || cluster.said("a").matches("node 3 is up").count();
    let before = ups();
    // A frame of the fabric is none at an external port: neither heard nor refused.
    cluster.replay("h1", "eth0", record);
    assert_eq!(cluster.dropped("a", "replayed hello"), 0);
    cluster.network.ip("mgmt", "link add stranger type veth peer name sw0-stranger");
    cluster.network.ip("mgmt", "link set sw0-stranger up master sw0");
    cluster.network.ip("mgmt", "link set stranger up");
    cluster.replay("mgmt", "stranger", record);
    let mut dropped = 0;
    let are_counted = eventually(|| {
        dropped = cluster.dropped("a", "replayed hello");
        dropped >= RECORDED
    });
    // Those of the external port would come on top.
    assert!(are_counted && dropped == RECORDED, "{dropped}");
    assert_eq!(ups(), before, "{}", cluster.said("a"));
    // What `show` prints was reported to the store a while ago.
    let is_down = eventually(|| {
        let nodes = cluster.show();
        let row = nodes.iter().find(|node| node["node"] == "a").unwrap();
        let links = row["links"].as_array().unwrap();
        links.iter().any(|link| link["node"] == 3 && link["is_up"] == false)
    });
    assert!(is_down, "{:#?}", cluster.show());
    assert_eq!(ups(), before, "{}", cluster.said("a"));
}

#[test]
fn a_cluster_that_hosts_its_store_needs_no_etcd() {
    if !is_root() {
        return;
    }
    let _turn = turn(1);
    let mut steps = Steps::of("hosted");
    let mut cluster = Cluster::new(Plan {
        store: StorePlan::Hosted,
        settings: "hello = \"50ms\"\nleader.restart_seconds = 3\n[metrics]\nlisten = \"127.0.0.1:9779\"\n\
                   [web]\nlisten = \"127.0.0.1:8779\"\n",
        ..Plan::default()
    });
    let names = cluster.names.clone();
    cluster.start_all(&names);
    let leader = cluster.next_leader("");
    cluster.all_reach_all(&[1, 2, 3, 4]);
    cluster.is_whole(&names);
    each_node_shows_the_cluster(&cluster, &leader);
    steps.done("seen from a node");
    cluster.is_one_hop(1, 3);
    a_route_works(&cluster, &leader, 1, 2, &[1, 3, 4]);
    steps.done("one router");

    // The node with the store dies, and is back with an empty one.
    let others = all_but(&names, &["a"]);
    let ways = ring(&cluster, &others);
    let losses = cluster.lost_during(&ways, |cluster| {
        cluster.kill("a");
        std::thread::sleep(Duration::from_secs(5));
        cluster.start("a");
        cluster.next_leader("");
        cluster.is_whole(&names);
    });
    lost_at_most(2 * MOST_LOST, "the node with the store dies and is back", &losses);
    cluster.all_reach_all(&[1, 2, 3, 4]);
    let leader = cluster.next_leader("");
    a_route_works(&cluster, &leader, 3, 3, &[1, 2, 4]);
    assert!(eventually(|| cluster.agrees(&names)), "{:#?}", cluster.show());
    steps.done("the node with the store killed");
}

/// What a node answers over HTTP.
fn http(cluster: &Cluster, node: &str, port: u16, path: &str) -> String {
    cluster.network.namespace(node).enter(|| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    })
}

/// `show cluster`, the API and the metrics of a node have all nodes, who leads, and what links carry.
fn each_node_shows_the_cluster(cluster: &Cluster, leader: &str) {
    for node in ["b", "d"] {
        let shown = cluster.shown(node, "cluster");
        assert!(shown.contains(&format!("'{leader}' leads; '{node}' answers")), "{shown}");
        assert!(shown.contains("evenness, most loaded node over mean, 1.00 is even: input "), "{shown}");
        let long: Vec<&str> = shown.lines().filter(|line| line.chars().count() > 100).collect();
        assert!(long.is_empty(), "{long:#?}");
        let mut text = String::new();
        let has_all = eventually(|| {
            text = http(cluster, node, 9779, "/metrics");
            cluster.names.iter().all(|name| {
                let leads = i32::from(name == leader);
                text.contains(&format!("\nbrickway_cluster_node_up{{node=\"{name}\"}} 1\n"))
                    && text.contains(&format!("\nbrickway_cluster_node_leads{{node=\"{name}\"}} {leads}\n"))
                    && text.contains(&format!("\nbrickway_cluster_log_lag{{node=\"{name}\"}} 0\n"))
                    && (name == node || text.contains(&format!("to=\"{name}\",way=\"direct\"}} ")))
            })
        });
        assert!(has_all, "{text}");
        // Every host has sent to every other one, and one direction of a mesh is direct or balanced.
        let carried = |way: &str| -> f64 {
            let lines = text.lines().filter(|line| line.starts_with("brickway_cluster_link_bytes_total"));
            let values = lines.filter(|line| line.contains(way)).filter_map(|line| line.rsplit(' ').next());
            values.map(|value| value.parse::<f64>().unwrap()).sum()
        };
        let total = |name: &str| -> f64 {
            let line =
                text.lines().find(|line| line.starts_with(&format!("{name}{{node=\"{node}\"}}"))).unwrap();
            line.rsplit(' ').next().unwrap().parse().unwrap()
        };
        assert!(carried("way=\"direct\"") > 0.0, "{text}");
        assert_eq!(carried("way=\"direct\""), total("brickway_cluster_direct_bytes_total"), "{text}");
        assert_eq!(carried("way=\"balanced\""), total("brickway_cluster_balanced_bytes_total"), "{text}");
        assert!(total("brickway_cluster_input_packets_total") > 0.0, "{text}");
        assert!(total("brickway_cluster_routed_packets_total") > 0.0, "{text}");
        let text = http(cluster, node, 8779, "/api/v1/cluster");
        let nodes = text.lines().filter(|line| line.contains("\"kind\":\"node\"")).count();
        assert_eq!(nodes, cluster.names.len(), "{text}");
        assert!(text.contains("\"kind\":\"event\""), "{text}");
    }
}

#[test]
fn a_leader_that_is_cut_off_from_etcd_leads_no_more() {
    if !is_root() {
        return;
    }
    let _turn = turn(1);
    let mut steps = Steps::of("split");
    let mut cluster =
        Cluster::new(Plan { topology: "mesh(3)", store: StorePlan::EtcdOnEach, ..Plan::default() });
    let names = cluster.names.clone();
    let hosts = [1, 2, 3];
    cluster.start_all(&names);
    let leader = cluster.next_leader("");
    cluster.all_reach_all(&hosts);
    cluster.is_whole(&names);
    steps.done("one router");

    let ways = ring(&cluster, &all_but(&names, &[]));
    let losses = cluster.lost_during(&ways, |cluster| {
        cluster.hang_etcd();
        std::thread::sleep(Duration::from_millis(1_500));
        cluster.go_on_etcd();
        cluster.is_whole(&names);
    });
    lost_at_most(MOST_LOST, "most of etcd hangs, and goes on", &losses);
    let before = cluster.next_leader("");
    println!("'{leader}' led, '{before}' leads");
    a_route_works(&cluster, &before, 1, 1, &[2, 3]);
    steps.done("etcd was slow");

    let next = the_leader_is_cut_off(&mut cluster, &before);
    steps.done("the leader was cut off");
    cluster.all_reach_all(&hosts);
    cluster.is_whole(&names);
    assert!(eventually(|| cluster.leader().as_ref() == Some(&next)), "{:#?}", cluster.show());
    assert!(eventually(|| cluster.agrees(&names)), "{:#?}", cluster.show());
    steps.done("all as before");
}

/// Who leads next.
fn the_leader_is_cut_off(cluster: &mut Cluster, leader: &str) -> String {
    let names = cluster.names.clone();
    let ways = ring(cluster, &all_but(&names, &[]));
    let port = |name: &str| names.iter().position(|of| of == name).unwrap() + 1;
    let mut next = String::new();
    let losses = cluster.lost_during(&ways, |cluster| {
        let begin = Instant::now();
        cluster.cut_off(leader);
        next = cluster.next_leader(leader);
        println!("'{next}' leads {:.1} s after '{leader}' was cut off", begin.elapsed().as_secs_f64());
        let far = all_but(&names, &[leader, &next]);
        let own: Vec<String> = [port(&next), port(far[0])].into_iter().flat_map(port_addresses).collect();
        let asked = [port(&next), port(far[0])];
        assert!(eventually(|| cluster.silent(&asked, &own).is_empty()), "{:?}", cluster.silent(&asked, &own));
        a_route_works(cluster, &next, 2, port(&next), &[port(far[0])]);
        // Longer than others wait for a node that says nothing, and than Linux asks for a neighbour.
        std::thread::sleep(Duration::from_secs(10));
    });
    lost_at_most(MOST_LOST, "the leader is cut off", &losses);
    cluster.all_reach_all(&[1, 2, 3]);
    let losses = cluster.lost_during(&ways, |cluster| {
        cluster.heal(leader);
        // Who leads by now has the ports, and nobody else: etcd may have been without a leader for longer than sessions last.
        let has_ports = |name: &&String| cluster.network.run(name, &format!("ip link show {next}1")).0;
        let owners = || names.iter().filter(has_ports).cloned().collect::<Vec<_>>();
        let is_settled = || cluster.leader().is_some_and(|leader| owners() == [leader]);
        assert!(eventually(is_settled), "{:?} have the ports:\n{}", owners(), cluster.said(leader));
        let before = std::mem::replace(&mut next, cluster.next_leader(""));
        if next == before {
            // The routes are those of its Linux.
            let known = ["198.51.100.2".to_owned(), "2001:db8:100::2".to_owned()];
            let old = [port(leader)];
            assert!(
                eventually(|| cluster.silent(&old, &known).is_empty()),
                "{:?}",
                cluster.silent(&old, &known)
            );
        } else {
            println!("'{next}' leads since etcd chose its leader anew");
        }
    });
    lost_at_most(MOST_LOST, "it is back", &losses);
    next
}
