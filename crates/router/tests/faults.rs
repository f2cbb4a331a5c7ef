//! Faults of one port while a router runs, as its user meets them: the other ports go on, every lost packet is counted
//! under a name, and a line on standard error says what happened.
//!
//! The router is a switch with three ports. Host a talks to b all the time, one question and one answer after the
//! other, so that a single lost packet would be noticed. The third port suffers.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use netns::{Network, Running, eventually};

const PROGRAM: &str = env!("CARGO_BIN_EXE_brickway");

/// The hosts; each has the router's interface of the same place at the other end of its link.
const HOSTS: [&str; 3] = ["a", "b", "c"];
/// UDP port at which hosts answer.
const ECHO: u16 = 7;

/// The switch; `way` leads to the third port.
fn switch(way: &str) -> String {
    format!(
        "define($P0 eth0, $P1 eth1, $P2 eth2);
         to :: Classifier(0/020000000000, 0/020000000001, 0/020000000002, -);
         from0 :: FromDevice($P0) -> to; from1 :: FromDevice($P1) -> to; from2 :: FromDevice($P2) -> to;
         to[0] -> ToDevice($P0); to[1] -> ToDevice($P1); to[2] -> {way}; to[3] -> Discard;"
    )
}

/// The usual way to the third port.
const PUSHED: &str = "to2 :: ToDevice($P2)";

/// How long a question waits for its answer at most; who waits that long has met a fault.
const PATIENCE: Duration = Duration::from_secs(5);

/// A router between three hosts, and the conversation of a and b.
struct Bed {
    // The programs before the network: it goes when they have gone.
    router: Running,
    talk: Talk,
    /// Hosts that answer.
    _echoes: Vec<Talk>,
    /// A socket of host a.
    socket: UdpSocket,
    /// Packets that it sent, and those of them that went to c.
    sent: u64,
    offered: u64,
    /// Questions that it asked before the router answered one.
    asked_early: u64,
    network: Network,
}

/// A socket of a host. It stays when the host's interfaces go.
fn socket_of(network: &Network, host: &str, port: u16) -> UdpSocket {
    network.udp_socket(host, &format!("0.0.0.0:{port}"))
}

fn address_of(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8 + 1], ECHO))
}

/// Asks and waits for the answer to this question; others were late.
fn is_answered(socket: &UdpSocket, to: usize, question: u64) -> bool {
    socket.send_to(&question.to_be_bytes(), address_of(to)).unwrap();
    let mut answer = [0; 8];
    while let Ok(length) = socket.recv(&mut answer) {
        if length == 8 && answer == question.to_be_bytes() {
            return true;
        }
    }
    false
}

/// A thread that works at one socket until it is dropped.
struct Talk {
    done: Arc<AtomicU64>,
    lost: Arc<AtomicU64>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Talk {
    /// Repeats `step`, which says whether it succeeded.
    fn of(mut step: impl FnMut(u64) -> bool + Send + 'static) -> Self {
        let (done, lost, end): (Arc<AtomicU64>, Arc<AtomicU64>, Arc<AtomicBool>) = Default::default();
        let counters = (Arc::clone(&done), Arc::clone(&lost), Arc::clone(&end));
        let thread = std::thread::spawn(move || {
            let (done, lost, end) = counters;
            for number in 0.. {
                if end.load(Ordering::Relaxed) {
                    break;
                }
                let counter = if step(number) { &done } else { &lost };
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { done, lost, end, thread: Some(thread) }
    }

    /// A host that sends back what it gets.
    fn echo(socket: UdpSocket) -> Self {
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        Self::of(move |_| {
            let mut bytes = [0; 9_000];
            let Ok((length, from)) = socket.recv_from(&mut bytes) else { return false };
            socket.send_to(&bytes[..length], from).is_ok()
        })
    }

    fn count(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn end(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

/// The conversation of a and b.
fn talk(network: &Network) -> Talk {
    let socket = socket_of(network, "a", 0);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    Talk::of(move |number| is_answered(&socket, 1, number))
}

/// The link of host number `host`, with its address, and the others' link addresses.
fn link(network: &Network, host: usize) {
    let name = HOSTS[host];
    let near = format!("eth{host}");
    network.link(
        ("r", &near, &format!("02:00:00:00:01:0{host}")),
        (name, "eth0", &format!("02:00:00:00:00:0{host}")),
    );
    network.ip(name, &format!("addr add {}/24 dev eth0", address_of(host).ip()));
    know_neighbours(network, host);
}

/// Enters the link addresses of the others at a host: no ARP among what is counted.
fn know_neighbours(network: &Network, host: usize) {
    for other in (0..HOSTS.len()).filter(|&other| other != host) {
        let address = address_of(other).ip();
        network.ip(HOSTS[host], &format!("neigh replace {address} lladdr 02:00:00:00:00:0{other} dev eth0"));
    }
}

fn hosts() -> Network {
    let network = Network::new(&["r", "a", "b", "c"]);
    (0..HOSTS.len()).for_each(|host| link(&network, host));
    network
}

/// The router's ports to a, b and c.
fn ports(driver: &str) -> [String; 3] {
    [0, 1, 2].map(|host| format!("{driver}:eth{host}"))
}

impl Bed {
    /// A router with these ports, running `configuration`, and a conversation that has begun.
    fn new(network: Network, ports: &[String; 3], configuration: &str, options: &str) -> Self {
        let file = network.folder.write("r.click", configuration);
        let echoes = [1, 2].map(|host| Talk::echo(socket_of(&network, HOSTS[host], ECHO))).into();
        let ports = format!("P0={} P1={} P2={}", ports[0], ports[1], ports[2]);
        let command = format!("{PROGRAM} run --json {options} {file} {ports}");
        let router = network.start("r", &command);
        let socket = socket_of(&network, "a", 0);
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut sent = 0;
        router.wait_until(&format!("an answer with {ports}"), || {
            sent += 1;
            is_answered(&socket, 1, sent)
        });
        let talk = talk(&network);
        Self { router, talk, _echoes: echoes, socket, sent, offered: 0, asked_early: sent - 1, network }
    }

    /// Waits until a and b have said some more to each other, without loss.
    fn goes_on(&mut self) {
        let before = self.talk.count();
        self.router.wait_until("the others go on", || self.talk.count() > before + 50);
        assert_eq!(self.talk.lost(), 0, "the others lost packets:\n{}", self.router.printed());
    }

    /// Ends the conversation; the packets that a sent for it.
    fn hush(&mut self) {
        self.talk.end();
        assert_eq!(self.talk.lost(), 0, "the others lost packets:\n{}", self.router.printed());
        self.sent += self.talk.count();
    }

    /// Sends so many packets with so many bytes of data from a to c.
    fn throw(&mut self, count: u64, length: usize) {
        for _ in 0..count {
            assert_eq!(self.socket.send_to(&vec![0; length], address_of(2)).unwrap(), length);
        }
        self.sent += count;
        self.offered += count;
    }

    /// The same, slowly enough that the router takes all of them. It has when this returns.
    fn offer(&mut self, count: u64, length: usize) {
        let mut left = count;
        while left > 0 {
            self.throw(left.min(32), length);
            left -= left.min(32);
            // Packets stay in order on a's link.
            self.comes_to_reach(1);
        }
    }

    /// Waits until a host answers.
    fn comes_to_reach(&mut self, host: usize) {
        let reached = eventually(|| {
            self.sent += 1;
            self.offered += u64::from(host == 2);
            is_answered(&self.socket, host, self.sent)
        });
        assert!(reached, "{} is not reached:\n{}", HOSTS[host], self.router.printed());
    }

    /// Waits until a line was said on standard error so many times.
    fn says(&mut self, text: &str, times: usize) {
        let said = eventually(|| self.router.printed().matches(text).count() == times);
        assert!(said, "`{text}` is not said {times} times:\n{}", self.router.printed());
    }

    /// Ends the conversation and the router; what each element counted. Nothing that a sent went without being counted.
    fn end(mut self) -> Counts {
        self.goes_on();
        self.hush();
        let code = self.router.interrupt();
        let printed = self.router.printed();
        assert_eq!(code, 0, "{printed}");
        let mut counts = Counts { printed, ..Counts::default() };
        for line in counts.printed.lines().filter(|line| line.starts_with('{')) {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            // Other lines tell of queues.
            let Some(drops) = value["drops"].as_object() else { continue };
            let element = value["element"].as_str().unwrap();
            *counts.packets.entry(element.to_owned()).or_default() += value["packets"].as_u64().unwrap();
            for (reason, count) in drops {
                let counter = counts.drops.entry((element.to_owned(), reason.clone())).or_default();
                *counter += count.as_u64().unwrap();
            }
        }
        let (received, lost) = (counts.packets["from0"], counts.dropped("from0", LOST_IN_RECEPTION));
        // The first questions were asked before there was a router.
        let range = self.sent - self.asked_early..=self.sent;
        assert!(range.contains(&(received + lost)), "a sent {range:?}\n{}", counts.printed);
        counts
    }
}

/// Why a port may lose what comes in while it works.
const LOST_IN_RECEPTION: &[&str] =
    &["no free frame", "ring full in the kernel", "dropped by the kernel", "frame too long"];

/// What a router counted in all.
#[derive(Debug, Default)]
struct Counts {
    /// Packets that came to an element, or from a port.
    packets: BTreeMap<String, u64>,
    /// By element and reason.
    drops: BTreeMap<(String, String), u64>,
    printed: String,
}

impl Counts {
    /// Drops at `element`, for which only these reasons are right.
    fn dropped(&self, element: &str, reasons: &[&str]) -> u64 {
        let mine = self.drops.iter().filter(|((by, _), _)| by == element);
        mine.map(|((_, reason), count)| {
            assert!(reasons.contains(&reason.as_str()), "{reason} at {element}:\n{}", self.printed);
            count
        })
        .sum()
    }
}

fn an_interface_vanishes_and_returns(driver: &str) {
    let mut bed = Bed::new(hosts(), &ports(driver), &switch(PUSHED), "--workers 2");
    bed.comes_to_reach(2);
    for round in 1..=2 {
        bed.network.ip("r", "link delete eth2");
        bed.offer(50, 20);
        bed.says("port eth2: the interface is gone; the port goes on when it is there again", round);
        bed.goes_on();
        link(&bed.network, 2);
        bed.comes_to_reach(2);
        bed.says("port eth2: the interface is back", round);
    }
    let offered = bed.offered;
    let counts = bed.end();
    assert_eq!(counts.packets["to2"], offered);
    // The first and the two that found the port again were answered.
    let lost = counts.dropped("to2", &["port is gone"]);
    assert!((100..=offered - 3).contains(&lost), "{lost} of {offered}:\n{}", counts.printed);
}

fn a_link_goes_down_and_up(driver: &str) {
    let mut bed = Bed::new(hosts(), &ports(driver), &switch(PUSHED), "");
    bed.comes_to_reach(2);
    let ends = [("c", "eth0"), ("r", "eth2")];
    for (round, (namespace, device)) in ends.into_iter().enumerate() {
        bed.network.ip(namespace, &format!("link set {device} down"));
        bed.says("port eth2: the link is down; packets to it are dropped until it is up again", round + 1);
        bed.offer(50, 20);
        bed.goes_on();
        bed.network.ip(namespace, &format!("link set {device} up"));
        know_neighbours(&bed.network, 2);
        bed.comes_to_reach(2);
        bed.says("port eth2: the link is up again", round + 1);
    }
    let offered = bed.offered;
    let counts = bed.end();
    assert_eq!(counts.packets["to2"], offered);
    // Of what came before the driver knew, some may have waited in the ring.
    let lost = counts.dropped("to2", &["link down"]);
    assert!((68..=offered - 3).contains(&lost), "{lost} of {offered}:\n{}", counts.printed);
}

fn a_link_is_down_at_the_start(driver: &str) {
    let network = hosts();
    network.ip("r", "link set eth2 down");
    let mut bed = Bed::new(network, &ports(driver), &switch(PUSHED), "");
    bed.says("port eth2: the interface is down; the port goes on when it is up", 1);
    bed.goes_on();
    bed.network.ip("r", "link set eth2 up");
    know_neighbours(&bed.network, 2);
    bed.comes_to_reach(2);
    bed.says("port eth2: the interface is up", 1);
    bed.goes_on();
}

fn nobody_reads(driver: &str) {
    for (way, element) in [(PUSHED, "to2"), ("queue :: Queue(64) -> to2 :: ToDevice($P2)", "queue")] {
        let [first, second, _] = ports(driver);
        let ports = [first, second, "memory:nobody?ring=32".to_owned()];
        let mut bed = Bed::new(hosts(), &ports, &switch(way), "");
        bed.offer(600, 20);
        bed.goes_on();
        let counts = bed.end();
        // The ring, the queue, and what was taken out of it to be sent.
        let lost = counts.dropped(element, &["transmit queue full", "queue full"]);
        let most = if element == "queue" { 32 + 64 + 32 } else { 32 };
        assert!((600 - most..=600 - 32).contains(&lost), "{lost}:\n{}", counts.printed);
    }
}

fn frames_are_too_long(driver: &str) {
    let network = hosts();
    for (namespace, device) in [("r", "eth0"), ("a", "eth0")] {
        network.ip(namespace, &format!("link set {device} mtu 3000"));
    }
    let mut bed = Bed::new(network, &ports(driver), &switch(PUSHED), "--frame-size 3328");
    bed.offer(50, 2_500);
    bed.comes_to_reach(2);
    let offered = bed.offered;
    let counts = bed.end();
    assert_eq!(counts.packets["to2"], offered);
    assert_eq!(counts.dropped("to2", &["frame too long"]), 50, "{}", counts.printed);

    // Longer than a frame of the pool, on an interface whose MTU grew under the router.
    let mut bed = Bed::new(hosts(), &ports(driver), &switch(PUSHED), "");
    for (namespace, device) in [("r", "eth0"), ("a", "eth0")] {
        bed.network.ip(namespace, &format!("link set {device} mtu 3000"));
    }
    bed.offer(50, 2_500);
    bed.comes_to_reach(2);
    let offered = bed.offered;
    let counts = bed.end();
    assert_eq!(counts.packets["to2"], offered - 50);
    let reasons = ["frame too long", "dropped by the kernel"];
    assert_eq!(counts.dropped("from0", &reasons), 50, "{}", counts.printed);
}

fn the_pool_runs_out(driver: &str) {
    // What waits in the slow line has all frames.
    let [first, second, third] = ports(driver);
    let ports = [first + "?ring=64", second, third + "?delay=500ms&fault=tx"];
    let mut bed = Bed::new(hosts(), &ports, &switch(PUSHED), "--frames 128");
    bed.hush();
    bed.throw(600, 20);
    // As long as the slow line has all but a few frames, one port may have what the other needs, and answers get lost.
    std::thread::sleep(Duration::from_millis(700));
    (0..30).for_each(|_| bed.comes_to_reach(1));
    bed.talk = talk(&bed.network);
    bed.goes_on();
    let counts = bed.end();
    assert!(counts.dropped("from0", LOST_IN_RECEPTION) > 300, "{}", counts.printed);
}

fn a_port_in_use_is_named(driver: &str) {
    let mut bed = Bed::new(hosts(), &ports(driver), &switch(PUSHED), "");
    let (code, said) = run_with_port(&bed.network, &ports(driver)[2]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("port `eth2` is already in use by process "), "{said}");
    bed.goes_on();
    bed.comes_to_reach(2);
    bed.end();
}

/// A router of one port that ends at once; its exit code, and what it said.
fn run_with_port(network: &Network, port: &str) -> (i32, String) {
    let file = network.folder.write("one.click", "FromDevice($P) -> Discard;");
    let output = network.on("r", &format!("{PROGRAM} run --for 0 {file} P={port}")).output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn more_workers_than_queues(driver: &str) {
    let mut bed = Bed::new(hosts(), &ports(driver), &switch(PUSHED), "--workers 3 --no-pin");
    bed.offer(100, 20);
    bed.comes_to_reach(2);
    let offered = bed.offered;
    let counts = bed.end();
    assert_eq!(counts.packets["to2"], offered);
    assert_eq!(counts.dropped("to2", &[]), 0);
}

/// Makes a test of each of these for each driver.
macro_rules! with_each_driver {
    ($($fault:ident,)*) => {
        with_each_driver!(@af_packet $($fault)*);
        with_each_driver!(@af_xdp $($fault)*);
    };
    (@$driver:ident $($fault:ident)*) => {
        mod $driver {
            $(
                #[test]
                fn $fault() {
                    if super::netns::is_root() {
                        super::$fault(stringify!($driver));
                    }
                }
            )*
        }
    };
}

with_each_driver! {
    an_interface_vanishes_and_returns,
    a_link_goes_down_and_up,
    a_link_is_down_at_the_start,
    nobody_reads,
    frames_are_too_long,
    the_pool_runs_out,
    a_port_in_use_is_named,
    more_workers_than_queues,
}

/// A program that lets everything pass, as another user of XDP may have on the interface.
const FOREIGN_PROGRAM: &str = "__attribute__((section(\"xdp\"), used)) int pass(void *packet) { return 2; }
char _license[] __attribute__((section(\"license\"), used)) = \"GPL\";
";

#[test]
fn an_interface_with_another_xdp_program_is_refused() {
    if !netns::is_root() {
        return;
    }
    let network = hosts();
    let source = network.folder.write("foreign.c", FOREIGN_PROGRAM);
    let object = network.folder.file("foreign.o");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let (compiled, text) = network.run("r", &format!("{clang} -target bpf -O2 -g -c {source} -o {object}"));
    assert!(compiled, "{text}");
    network.ip("r", &format!("link set dev eth2 xdp object {object} section xdp"));
    let (code, said) = run_with_port(&network, "af_xdp:eth2");
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("port `eth2` is already in use by another XDP program (number "), "{said}");
    assert!(said.contains("`ip link set dev eth2 xdp off`"), "{said}");
    // What it says helps.
    network.ip("r", "link set dev eth2 xdp off");
    let (code, said) = run_with_port(&network, "af_xdp:eth2");
    assert_eq!(code, 0, "{said}");
}

#[test]
fn an_interface_that_will_not_do_is_refused() {
    if !netns::is_root() {
        return;
    }
    let network = hosts();
    let refuses = |port: &str, why: &str| {
        let (code, said) = run_with_port(&network, port);
        assert_eq!(code, 1, "{port}: {said}");
        assert!(said.contains(why), "{port}: {said}");
    };
    // A veth copies; without huge pages that is what is said.
    refuses("af_xdp:eth2?zerocopy=yes", "leave ");
    network.ip("r", "link set eth2 mtu 9000");
    refuses(
        "af_xdp:eth2",
        "MTU 9000 of eth2: a frame of 1856 bytes holds 1710 at most; expected --frame-size 9146",
    );
    for port in ports("af_packet").iter().chain(&ports("af_xdp")).filter(|port| port.ends_with('2')) {
        network.ip("r", "link set eth2 name eth7");
        refuses(port, "there is no interface `eth2`; there are eth0, eth1, eth7, lo");
        network.ip("r", "link set eth7 name eth2");
    }
}
