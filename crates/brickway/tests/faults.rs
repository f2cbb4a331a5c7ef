//! Faults of one port while a router runs, as its user meets them: the other ports go on, every lost packet is counted
//! under a name, and a line on standard error says what happened.
//!
//! The router is a switch with three ports. Host a talks to b all the time, one question and one answer after the
//! other, so that a single lost packet would be noticed. The third port suffers.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use netns::{Network, Running, eventually};
use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

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
    /// A socket of host a, for packets to c.
    to_c: UdpSocket,
    /// Packets sent to c.
    offered: u64,
    file: PathBuf,
    network: Network,
}

/// A socket of a host. It stays when the host's interfaces go.
fn socket_of(network: &Network, host: &str, port: u16) -> UdpSocket {
    let namespace = std::fs::File::open(format!("/run/netns/{}", network.name(host))).unwrap();
    let bind = move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        UdpSocket::bind(("0.0.0.0", port)).unwrap()
    };
    std::thread::spawn(bind).join().unwrap()
}

fn address_of(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8 + 1], ECHO))
}

/// Asks and waits for the answer to this question; others were late.
fn is_answered(socket: &UdpSocket, to: usize, question: u64) -> bool {
    // An interface that is down refuses; that is no answer either.
    let _ = socket.send_to(&question.to_be_bytes(), address_of(to));
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
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
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

impl Bed {
    /// A router with ports of `driver` that runs `configuration`, and a conversation that has begun.
    fn new(network: Network, driver: &str, configuration: &str, options: &str) -> Self {
        let third = format!("{driver}:eth2");
        Self::with_third(network, driver, &third, configuration, options)
    }

    /// With another third port.
    fn with_third(network: Network, driver: &str, third: &str, configuration: &str, options: &str) -> Self {
        let file = std::env::temp_dir().join(format!("{}.click", network.name("r")));
        std::fs::write(&file, configuration).unwrap();
        let mut echoes = Vec::new();
        for host in ["b", "c"] {
            echoes.push(Talk::echo(socket_of(&network, host, ECHO)));
        }
        let ports = format!("P0={driver}:eth0 P1={driver}:eth1 P2={third}");
        let command = format!("{PROGRAM} run --json {options} {} {ports}", file.display());
        let mut router = network.start("r", &command);
        let first = socket_of(&network, "a", 0);
        first.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let ready = eventually(|| is_answered(&first, 1, 0) || router.ended().is_some());
        assert!(
            ready && router.ended().is_none(),
            "the router does not forward with {ports}:\n{}",
            router.printed()
        );
        let to_c = socket_of(&network, "a", 0);
        to_c.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let socket = socket_of(&network, "a", 0);
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let talk = Talk::of(move |number| is_answered(&socket, 1, number));
        Self { router, talk, _echoes: echoes, to_c, offered: 0, file, network }
    }

    /// Waits until a and b have said some more to each other, without loss.
    fn goes_on(&mut self) {
        let before = self.talk.count();
        let went = eventually(|| self.talk.count() > before + 50 || self.router.ended().is_some());
        let lost = self.talk.lost.load(Ordering::Relaxed);
        assert!(went && self.router.ended().is_none(), "the others stopped:\n{}", self.router.printed());
        assert_eq!(lost, 0, "the others lost packets:\n{}", self.router.printed());
    }

    /// Sends so many packets with so many bytes of data from a to c. All have reached the router when this returns.
    fn offer(&mut self, count: u64, length: usize) {
        for number in 1..=count {
            assert_eq!(self.to_c.send_to(&vec![0; length], address_of(2)).unwrap(), length);
            self.offered += 1;
            if number % 64 == 0 || number == count {
                // They share a's link, and packets stay in order there.
                assert!(eventually(|| is_answered(&self.to_c, 1, u64::MAX - self.offered)));
            }
        }
    }

    /// Whether c answers now.
    fn reaches_c(&mut self) -> bool {
        self.offered += 1;
        is_answered(&self.to_c, 2, self.offered)
    }

    fn comes_to_reach_c(&mut self) {
        let reached = eventually(|| self.reaches_c());
        assert!(reached, "nothing reaches c:\n{}", self.router.printed());
    }

    /// Waits for a line on standard error.
    fn says(&mut self, text: &str) {
        let said = eventually(|| self.router.printed().contains(text));
        assert!(said, "`{text}` is not said:\n{}", self.router.printed());
    }

    /// Ends the conversation and the router; what each element counted.
    fn end(mut self) -> Counts {
        self.goes_on();
        self.talk.end.store(true, Ordering::Relaxed);
        let _ = self.talk.thread.take().unwrap().join();
        assert_eq!(self.talk.lost.load(Ordering::Relaxed), 0);
        let code = self.router.interrupt();
        let printed = self.router.printed();
        assert_eq!(code, 0, "{printed}");
        let mut counts = Counts { offered: self.offered, printed, ..Counts::default() };
        for line in counts.printed.lines().filter(|line| line.starts_with('{')) {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            let Some(drops) = value["drops"].as_object() else { continue };
            let element = value["element"].as_str().unwrap();
            *counts.packets.entry(element.to_owned()).or_default() += value["packets"].as_u64().unwrap();
            for (reason, count) in drops {
                let key = format!("{element}: {reason}");
                *counts.drops.entry(key).or_default() += count.as_u64().unwrap();
            }
        }
        counts
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

/// What a router counted in all.
#[derive(Debug, Default)]
struct Counts {
    /// Packets sent to c.
    offered: u64,
    /// By element.
    packets: BTreeMap<String, u64>,
    /// By element and reason.
    drops: BTreeMap<String, u64>,
    printed: String,
}

impl Counts {
    /// Drops at `element`, which must be for these reasons only.
    fn dropped(&self, element: &str, reasons: &[&str]) -> u64 {
        let mine = self.drops.iter().filter(|(key, _)| key.starts_with(&format!("{element}: ")));
        mine.map(|(key, count)| {
            assert!(reasons.iter().any(|reason| key.ends_with(&format!(": {reason}"))), "{}", self.printed);
            count
        })
        .sum()
    }
}

#[test]
fn probe() {
    if !netns::is_root() {
        return;
    }
    for driver in ["af_packet", "af_xdp"] {
        let mut bed = Bed::new(hosts(), driver, &switch(PUSHED), "");
        bed.comes_to_reach_c();
        bed.network.ip("r", "link delete eth2");
        bed.offer(50, 20);
        bed.says("port eth2: the interface is gone");
        bed.goes_on();
        bed.offer(50, 20);
        link(&bed.network, 2);
        bed.comes_to_reach_c();
        bed.says("port eth2: the interface is back");
        let counts = bed.end();
        println!("{counts:#?}");
        let _ = counts.dropped("to2", &["port is gone"]);
    }
    let _ = Signal::STOP;
}
