//! A drop-in router while everything around it changes: routes by the hundred thousand, links and addresses
//! that come and go, equal paths of which one fails. What a change does not concern loses no packet.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netns::router::{forwarded_by_the_kernel, start, warm_up};
use netns::{Network, eventually};

/// Links a port of r with a device of another namespace: 10.0.LINK.1 and .2, 2001:db8:LINK::1 and ::2.
fn link(network: &Network, link: u8, neighbour: &str, device: &str) {
    let port = format!("eth{link}");
    network.link(
        ("r", &port, &format!("02:00:00:00:0{link}:01")),
        (neighbour, device, &format!("02:00:00:00:0{link}:02")),
    );
    network.allow_ipv6("r", &port);
    network.ip("r", &format!("addr add 10.0.{link}.1/24 dev {port}"));
    network.ip("r", &format!("addr add 2001:db8:{link}::1/64 dev {port} nodad"));
}

/// The same, with a host at the other end, whose default router is r.
fn host(network: &Network, number: u8, name: &str) {
    link(network, number, name, "eth0");
    network.allow_ipv6(name, "lo");
    network.allow_ipv6(name, "eth0");
    network.ip(name, &format!("addr add 10.0.{number}.2/24 dev eth0"));
    network.ip(name, &format!("addr add 2001:db8:{number}::2/64 dev eth0 nodad"));
    network.ip(name, &format!("route add default via 10.0.{number}.1"));
    network.ip(name, &format!("-6 route add default via 2001:db8:{number}::1"));
}

/// A router with traffic that nobody is to disturb, from its port eth1 to eth2, and hosts c and d at eth3 and eth4.
fn network() -> Network {
    let network = Network::new(&["r", "traffic", "c", "d"]);
    link(&network, 1, "traffic", "in");
    link(&network, 2, "traffic", "out");
    host(&network, 3, "c");
    host(&network, 4, "d");
    network.forward("r");
    network
}

const PORTS: &str = "eth1 eth2 eth3 eth4";
const D: [&str; 2] = ["10.0.4.2", "2001:db8:4::2"];

/// The command that sends from eth1 to eth2, and to `destination` there.
fn generator(destination: &str, more: &str) -> String {
    let lab = testbed::program("brickway-lab");
    format!(
        "{lab} gen --tx in --rx out --address 10.0.1.2 --gateway 10.0.1.1 --rx-address 10.0.2.2 \
         --dst {destination} --json --quiet {more}"
    )
}

/// Packets that the generator sent, and those of them that were lost.
fn sent_and_lost(report: &str) -> (u64, u64) {
    let value = |metric: &str| {
        let line = report.lines().find(|line| line.contains(&format!("\"metric\":\"{metric}\"")));
        let value = line.and_then(|line| line.split("\"value\":").nth(1));
        value.and_then(|value| value.trim_end_matches('}').parse().ok()).unwrap_or_else(|| panic!("{report}"))
    };
    (value("sent"), value("lost"))
}

/// Waits until packets to `destination` arrive at eth2, all of them by the fast path.
fn wait_forwarded(network: &Network, destination: &str) {
    let mut report = String::new();
    let forwarded = eventually(|| {
        let before = forwarded_by_the_kernel(network);
        let (_, text) =
            network.run("traffic", &generator(destination, "--count 100 --rate 5000 --settle 0.2"));
        report = text;
        report.contains("\"lost\"")
            && sent_and_lost(&report).1 == 0
            && forwarded_by_the_kernel(network) == before
    });
    assert!(forwarded, "{destination}: {report}");
}

/// Sends 5000 packets a second from eth1 to eth2 while `act` runs: none may be lost.
fn undisturbed<R>(network: &Network, what: &str, act: impl FnOnce() -> R) -> R {
    wait_forwarded(network, "10.0.2.2");
    let flow = network.start("traffic", &generator("10.0.2.2", "--rate 5000"));
    std::thread::sleep(Duration::from_millis(300));
    let begin = Instant::now();
    let result = act();
    let time = begin.elapsed();
    std::thread::sleep(Duration::from_millis(200));
    flow.interrupt();
    let (sent, lost) = sent_and_lost(&flow.printed());
    println!("{what}: {time:.1?}; of the other flow {lost} of {sent} packets lost");
    assert_eq!(lost, 0, "{what}: of the other flow {sent} packets were sent");
    result
}

/// Gives these lines to `ip -batch` in the router's namespace, which does them as fast as it can.
fn batch(network: &Network, lines: &str) {
    let file = network.folder.write("batch", lines);
    let (done, text) = network.run("r", &format!("ip -force -batch {file}"));
    assert!(done, "{text}");
}

/// As many lines as there are routes.
fn routes(count: u32, line: impl Fn(std::net::Ipv4Addr) -> String) -> String {
    let mut text = String::new();
    for number in 0..count {
        writeln!(text, "{}", line((0x1400_0000 + number).into())).unwrap();
    }
    text
}

#[test]
fn a_hundred_thousand_routes_come_and_go() {
    if !netns::is_root() {
        return;
    }
    const COUNT: u32 = 100_000;
    const LAST: &str = "20.1.134.159";
    let network = network();
    let _router = start(&network, PORTS);
    warm_up(&network, "c", &D);
    undisturbed(&network, "100,000 routes added", || {
        batch(&network, &routes(COUNT, |to| format!("route add {to} via 10.0.2.2")));
    });
    wait_forwarded(&network, LAST);
    undisturbed(&network, "100,000 routes changed", || {
        batch(&network, &routes(COUNT, |to| format!("route replace {to} via 10.0.4.2")));
    });
    network.ip("d", &format!("addr add {LAST} dev lo"));
    warm_up(&network, "c", &[LAST]);
    undisturbed(&network, "100,000 routes removed", || {
        batch(&network, &routes(COUNT, |to| format!("route del {to}")));
    });
    let gone = eventually(|| {
        network.run("c", &format!("ping -n -c 1 -W 1 {LAST}")).1.contains("Destination Net Unreachable")
    });
    assert!(gone, "{LAST} is still forwarded");
}

#[test]
fn a_link_flaps_and_addresses_come_and_go() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let router = start(&network, PORTS);
    warm_up(&network, "c", &D);
    undisturbed(&network, "a port down and up 50 times", || {
        batch(&network, &"link set eth3 down\nlink set eth3 up\n".repeat(50));
    });
    network.ip("r", "addr replace 2001:db8:3::1/64 dev eth3 nodad");
    warm_up(&network, "c", &D);
    undisturbed(&network, "the other end down and up 50 times", || {
        for _ in 0..50 {
            network.ip("c", "link set eth0 down");
            network.ip("c", "link set eth0 up");
        }
    });
    network.ip("c", "addr replace 2001:db8:3::2/64 dev eth0 nodad");
    network.ip("c", "route replace default via 10.0.3.1");
    network.ip("c", "-6 route replace default via 2001:db8:3::1");
    warm_up(&network, "c", &D);

    let on_all = |verb: &str| -> String {
        let addresses = ["10.1.1.1/24", "10.1.2.1/32", "2001:db8:f1::1/64", "10.0.2.77/24"];
        let lines = addresses.iter().flat_map(|address| {
            ["eth1", "eth2", "eth3"].map(|port| format!("addr {verb} {address} dev {port}\n"))
        });
        lines.collect()
    };
    undisturbed(&network, "12 addresses added and removed 20 times", || {
        batch(&network, &(on_all("add") + &on_all("del")).repeat(20));
    });
    batch(&network, &on_all("add"));
    assert!(eventually(|| network.answers("c", "10.1.2.1") == 10), "the router's new address");
    batch(&network, &on_all("del"));
    warm_up(&network, "c", &D);
    assert_eq!(network.answers("c", "10.0.1.1"), 10);
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
}

/// UDP flows from one host to an address that two neighbours have, and where their packets arrive.
struct Flows {
    network: Network,
    senders: Vec<UdpSocket>,
    neighbours: [UdpSocket; 2],
}

/// Of each flow, by source port: packets that each neighbour got.
type Arrived = BTreeMap<(bool, u16), [u64; 2]>;

const FLOWS: u16 = 64;
const ANYCAST: [&str; 2] = ["10.9.9.9", "2001:db8:9::9"];

impl Flows {
    /// Host a - r, and r's neighbours b and c, both with the same address.
    fn new() -> Self {
        let network = Network::new(&["r", "a", "b", "c"]);
        for (number, name) in (1..).zip(["a", "b", "c"]) {
            host(&network, number, name);
        }
        network.forward("r");
        for neighbour in ["b", "c"] {
            network.ip(neighbour, &format!("addr add {} dev lo", ANYCAST[0]));
            network.ip(neighbour, &format!("addr add {} dev lo", ANYCAST[1]));
        }
        let flow = |port| {
            [(0, "10.0.1.2"), (1, "[2001:db8:1::2]")].map(|(family, any)| {
                let socket = network.udp_socket("a", &format!("{any}:{}", 40_000 + port));
                let to = [format!("{}:7000", ANYCAST[0]), format!("[{}]:7000", ANYCAST[1])];
                socket.connect(&to[family]).unwrap();
                socket
            })
        };
        let senders = (0..FLOWS).flat_map(flow).collect();
        let neighbours = ["b", "c"].map(|neighbour| {
            let socket = network.udp_socket(neighbour, "[::]:7000");
            socket.set_nonblocking(true).unwrap();
            // Some thousands of packets, because this process may rest while they come.
            rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 8 << 20).unwrap();
            socket
        });
        Self { network, senders, neighbours }
    }

    /// Sends a packet of each flow, and says how many these were.
    fn send(&self) -> u64 {
        self.senders.iter().filter(|socket| socket.send(b"?").is_ok()).count() as u64
    }

    /// Adds what arrived since the last call.
    fn receive(&self, arrived: &mut Arrived) {
        for (place, socket) in self.neighbours.iter().enumerate() {
            while let Ok((_, from)) = socket.recv_from(&mut [0; 8]) {
                let is_ipv6 = from.ip().to_canonical().is_ipv6();
                arrived.entry((is_ipv6, from.port())).or_default()[place] += 1;
            }
        }
    }

    /// Ten packets of each flow, of which none is lost or goes elsewhere than the others: the flows of each
    /// neighbour. What is wrong if it is not so.
    fn spread(&self) -> Result<[BTreeSet<(bool, u16)>; 2], String> {
        self.receive(&mut Arrived::new());
        let before = forwarded_by_the_kernel(&self.network);
        let mut arrived = Arrived::new();
        for _ in 0..10 {
            self.send();
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(50));
        self.receive(&mut arrived);
        let by_the_kernel = forwarded_by_the_kernel(&self.network) - before;
        let whole = |counts: &[u64; 2]| [[10, 0], [0, 10]].contains(counts);
        let broken: Vec<_> = arrived.iter().filter(|(_, counts)| !whole(counts)).collect();
        if arrived.len() != self.senders.len() || !broken.is_empty() || by_the_kernel != 0 {
            return Err(format!(
                "packets of {} flows of {} arrived, {by_the_kernel} by way of the kernel, not ten at one place: {broken:?}",
                arrived.len(),
                self.senders.len()
            ));
        }
        let of = |place: usize| {
            arrived.iter().filter(|(_, counts)| counts[place] > 0).map(|(&flow, _)| flow).collect()
        };
        Ok([of(0), of(1)])
    }

    /// The flows of each neighbour once `is_right` holds.
    fn settled(&self, is_right: impl Fn(&[BTreeSet<(bool, u16)>; 2]) -> bool) -> [BTreeSet<(bool, u16)>; 2] {
        let mut spread = Err("not tried".into());
        // On a machine that others keep busy a whole round without a loss may take a while.
        let settled = (0..3).any(|_| {
            eventually(|| {
                spread = self.spread();
                spread.as_ref().is_ok_and(&is_right)
            })
        });
        match spread {
            Ok(spread) if settled => spread,
            wrong => {
                let neighbours = self.network.run("r", "ip neigh").1;
                let routes = self.network.run("r", "ip -4 route; ip -6 route").1;
                panic!("{wrong:?}\n{neighbours}{routes}")
            }
        }
    }

    /// Sends all the time while `act` runs; packets of each flow that were sent, and what arrived.
    fn during(&self, act: impl FnOnce()) -> (u64, Arrived) {
        self.receive(&mut Arrived::new());
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let (mut rounds, mut left) = (0, 200);
                while left > 0 {
                    left -= u32::from(done.load(Ordering::Relaxed));
                    assert_eq!(self.send(), self.senders.len() as u64);
                    rounds += 1;
                    std::thread::sleep(Duration::from_millis(2));
                }
                rounds
            });
            std::thread::sleep(Duration::from_millis(100));
            act();
            done.store(true, Ordering::Relaxed);
            let mut arrived = Arrived::new();
            while !sender.is_finished() {
                std::thread::sleep(Duration::from_millis(10));
                self.receive(&mut arrived);
            }
            std::thread::sleep(Duration::from_millis(200));
            self.receive(&mut arrived);
            (sender.join().unwrap(), arrived)
        })
    }
}

/// Whether each of two paths has a quarter of the flows of each family at least.
fn is_fair(spread: &[BTreeSet<(bool, u16)>; 2]) -> bool {
    let count =
        |flows: &BTreeSet<(bool, u16)>, is_ipv6| flows.iter().filter(|flow| flow.0 == is_ipv6).count();
    spread.iter().all(|flows| count(flows, false) >= 16 && count(flows, true) >= 16)
}

/// Flows over two equal paths; then the first fails, and comes back, and `repair` tells Linux again what it
/// forgot.
fn equal_paths(routes: &str, repair: &str) {
    let flows = Flows::new();
    batch(&flows.network, routes);
    // The flows differ in their ports.
    flows.network.set("r", "net.ipv4.fib_multipath_hash_policy=1 net.ipv6.fib_multipath_hash_policy=1");
    let _router = start(&flows.network, "eth1 eth2 eth3");
    let both = flows.settled(is_fair);
    println!("{} and {} flows by the two paths", both[0].len(), both[1].len());
    // A router that waits for a CPU may lose packets of all flows; what a failed path does to others shows each time.
    let others_lose_nothing = (0..3).any(|_| {
        let both = flows.settled(is_fair);
        let others_lost = a_path_fails(&flows, &both, repair);
        flows.settled(is_fair);
        others_lost == 0
    });
    assert!(others_lose_nothing, "each time");
}

/// The first path fails and comes back; the most that a flow of the other lost.
fn a_path_fails(flows: &Flows, both: &[BTreeSet<(bool, u16)>; 2], repair: &str) -> u64 {
    let network = &flows.network;
    let (sent, arrived) = flows.during(|| network.ip("b", "link set eth0 down"));
    let lost = |place: usize| {
        let of_flow = |flow| sent - arrived.get(flow).map_or(0, |counts| counts[0] + counts[1]);
        both[place].iter().map(of_flow).max().unwrap()
    };
    println!(
        "a path fails: its flows lose up to {} of {sent} packets, 2 ms apart; others {}",
        lost(0),
        lost(1)
    );
    flows.settled(|[first, _]| first.is_empty());

    network.ip("b", "link set eth0 up");
    // A host that comes up slowly: Linux asks for its IPv6 address three times, a second apart, and gives up.
    let failed =
        eventually(|| network.run("r", "ip -6 neigh show 2001:db8:2::2 dev eth2").1.contains("FAILED"));
    println!(
        "the neighbour that comes up slowly {}",
        if failed { "was given up" } else { "is still asked for" }
    );
    network.ip("b", "addr replace 2001:db8:2::2/64 dev eth0 nodad");
    network.ip("b", "route replace default via 10.0.2.1");
    network.ip("b", "-6 route replace default via 2001:db8:2::1");
    batch(network, repair);
    lost(1)
}

#[test]
fn flows_over_the_paths_of_a_route() {
    if netns::is_root() {
        equal_paths(
            "route add 10.9.9.9 nexthop via 10.0.2.2 nexthop via 10.0.3.2
             route add 2001:db8:9::9 nexthop via 2001:db8:2::2 nexthop via 2001:db8:3::2",
            "",
        );
    }
}

#[test]
fn flows_over_a_group_of_next_hop_objects() {
    if netns::is_root() {
        equal_paths(
            "nexthop add id 1 via 10.0.2.2 dev eth2
             nexthop add id 2 via 10.0.3.2 dev eth3
             nexthop add id 10 group 1/2
             route add 10.9.9.9 nhid 10
             nexthop add id 3 via 2001:db8:2::2 dev eth2
             nexthop add id 4 via 2001:db8:3::2 dev eth3
             nexthop add id 11 group 3/4
             route add 2001:db8:9::9 nhid 11",
            // Linux removes the objects of a link without carrier, also from their groups.
            "nexthop add id 1 via 10.0.2.2 dev eth2
             nexthop add id 3 via 2001:db8:2::2 dev eth2
             nexthop replace id 10 group 1/2
             nexthop replace id 11 group 3/4",
        );
    }
}
