//! What leaves by a port was permitted: whatever frames come in, by an access list, a reverse-path check, a script and a
//! configuration of somebody's own, on every driver. And what happens while no router runs.
//!
//! `FRAMES=10000000 SEED=7 cargo test -p brickway --test filtering whatever -- --nocapture` sends as many to each driver.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "filtering/frames.rs"]
mod frames;
mod netns;
#[path = "filtering/oracle.rs"]
mod oracle;

use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use frames::{Random, SENTINEL_PORT};
use netns::router::{PROGRAM, lost_during, start};
use netns::{Network, Running, eventually};
use oracle::{Policy, Prefix, Seen, packet_of};
use packet::random::SplitMix64;
use packet::{Batch, Pool, PoolOptions};
use ports::{RxQueue, TxQueue};
use testbed::Folder;

/// Link addresses of the router's ports, in their order.
const ROUTER: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 2, 1]];
/// Behind each port a host that has no address, so that its Linux sends nothing.
const HOSTS: [&str; 2] = ["a", "b"];
/// Frames between two sentinels.
const BURST: usize = 64;
/// Frames that one access list judges: fewer than there are numbers.
const FRAMES_A_LIST: usize = 50_000;

/// Host a - router r - host b. The router knows the link addresses of 10.0.1.2 and 10.0.2.2, and routes by them.
fn network() -> Network {
    let network = Network::new(&["r", "a", "b"]);
    network.link(("r", "eth1", "02:00:00:00:01:01"), ("a", "eth0", "02:00:00:00:01:02"));
    network.link(("r", "eth2", "02:00:00:00:02:01"), ("b", "eth0", "02:00:00:00:02:02"));
    for (host, link, far) in [("a", "1", "a"), ("b", "2", "b")] {
        // Frames of up to 1,518 octets get to the router.
        network.ip(host, "link set eth0 mtu 1510");
        network.allow_ipv6("r", &format!("eth{link}"));
        network.ip("r", &format!("addr add 10.0.{link}.1/24 dev eth{link}"));
        network.ip("r", &format!("addr add 2001:db8:{link}::1/64 dev eth{link} nodad"));
        for neighbour in [format!("10.0.{link}.2"), format!("2001:db8:{link}::2")] {
            let mac = format!("02:00:00:00:0{link}:02");
            network.ip("r", &format!("neigh add {neighbour} lladdr {mac} dev eth{link} nud permanent"));
        }
        network.ip("r", &format!("-6 route add 2001:db8:{far}::/48 via 2001:db8:{link}::2"));
    }
    network.ip("r", "route add 192.0.2.0/24 via 10.0.1.2");
    network.ip("r", "route add 198.51.100.0/24 via 10.0.2.2");
    network.ip("r", "route add default via 10.0.2.2");
    network.ip("r", "-6 route add default via 2001:db8:2::2");
    network.forward("r");
    network
}

/// By which port each source is reached, as the routes above say.
fn sources() -> Policy {
    let routes = [
        ("0.0.0.0/0", Some(2)),
        ("10.0.1.0/24", Some(1)),
        ("10.0.2.0/24", Some(2)),
        ("192.0.2.0/24", Some(1)),
        ("::/0", Some(2)),
        ("2001:db8:1::/64", Some(1)),
        ("2001:db8:2::/64", Some(2)),
        ("2001:db8:a::/48", Some(1)),
        // No sources of packets that are forwarded.
        ("0.0.0.0/8", None),
        ("127.0.0.0/8", None),
        ("224.0.0.0/4", None),
        ("255.255.255.255/32", None),
        ("10.0.1.1/32", None),
        ("10.0.2.1/32", None),
        ("10.0.1.255/32", None),
        ("10.0.2.255/32", None),
        ("::/127", None),
        ("fe80::/10", None),
        ("ff00::/8", None),
        ("2001:db8:1::1/128", None),
        ("2001:db8:2::1/128", None),
        ("2001:db8:1::/128", None),
        ("2001:db8:2::/128", None),
    ];
    let route = |(text, port): (&str, Option<usize>)| {
        let (address, length) = text.split_once('/').unwrap();
        let (is_ipv6, address) = match address.parse().unwrap() {
            IpAddr::V4(address) => (false, u128::from(address.to_bits())),
            IpAddr::V6(address) => (true, address.to_bits()),
        };
        (Prefix { is_ipv6, address, length: length.parse().unwrap() }, port)
    };
    Policy::Sources(routes.map(route).into())
}

/// What was sent, by the number in it, and what came out.
struct Ledger {
    policy: Policy,
    /// By family and number.
    sent: [Vec<Vec<Sent>>; 2],
    came_out: u64,
    /// Of these those that came in with a priority tag.
    untagged: u64,
    /// What should not have come out, in words.
    wrong: Vec<String>,
}

struct Sent {
    seen: Seen,
    frame: Vec<u8>,
    is_permitted: bool,
}

/// Numbers that fit where each family carries one.
const NUMBERS: [u32; 2] = [1 << 16, 1 << 18];

impl Ledger {
    fn new(policy: Policy) -> Self {
        let sent = NUMBERS.map(|count| (0..count).map(|_| Vec::new()).collect());
        Self { policy, sent, came_out: 0, untagged: 0, wrong: Vec::new() }
    }

    /// Notes a frame before it is sent by the host behind the port of this number, from 1.
    fn note(&mut self, frame: &[u8], input: usize) {
        // What is not an IP packet to a host must not come out as one.
        let Some(seen) = packet_of(frame, ROUTER[input - 1]) else { return };
        let is_permitted = self.policy.permits(&seen, input);
        let place = &mut self.sent[usize::from(seen.is_ipv6)];
        let place = &mut place[seen.identification as usize % NUMBERS[usize::from(seen.is_ipv6)] as usize];
        place.push(Sent { seen, frame: frame.to_vec(), is_permitted });
    }

    /// Judges a frame that came out to the host behind the port of this number.
    fn judge(&mut self, frame: &[u8], output: usize) {
        let Some(out) = packet_of(&[&ROUTER[0], &frame[6..]].concat(), ROUTER[0]) else { return };
        let place = &self.sent[usize::from(out.is_ipv6)];
        let place = &place[out.identification as usize % NUMBERS[usize::from(out.is_ipv6)] as usize];
        let known: Vec<&Sent> = place.iter().filter(|sent| out.is_of(&sent.seen)).collect();
        if let Some(sent) = known.iter().find(|sent| sent.is_permitted) {
            self.came_out += 1;
            self.untagged +=
                u64::from([[0x81, 0x00], [0x88, 0xa8]].contains(&[sent.frame[12], sent.frame[13]]));
            return;
        }
        if known.is_empty() && is_routers_own(&out) {
            return;
        }
        let sent = place.iter().map(|sent| format!("sent: {:?} {:02x?}\n", sent.seen, sent.frame));
        self.wrong.push(format!("by port {output}: {frame:02x?}\n{}", sent.collect::<String>()));
    }
}

/// Whether a packet is from an address of the router: an error, or discovery.
fn is_routers_own(packet: &Seen) -> bool {
    if !packet.is_ipv6 {
        return [0x0a00_0101, 0x0a00_0201].contains(&packet.source);
    }
    // Those for all routers of a network among them (RFC 4291, 2.6.1).
    let own = ["2001:db8:1::1", "2001:db8:2::1", "2001:db8:1::", "2001:db8:2::", "::"];
    let own = own.map(|text| text.parse::<Ipv6Addr>().unwrap());
    let is_link_local = packet.source >> 118 == 0x3fa;
    is_link_local || own.iter().any(|own| own.to_bits() == packet.source)
}

/// What both hosts share.
struct Shared {
    ledger: Mutex<Ledger>,
    /// The number of the last sentinel of each host that came out at the other.
    heard: [AtomicU64; 2],
    /// Hosts that still send.
    sending: AtomicU64,
}

/// A host: sends frames, and looks at those that come out to it.
struct Host<'a> {
    /// From 0.
    place: usize,
    shared: &'a Shared,
    pool: Pool,
    rx: Box<dyn RxQueue>,
    tx: Box<dyn TxQueue>,
    sentinels: u64,
}

impl<'a> Host<'a> {
    fn new(network: &Network, place: usize, shared: &'a Shared) -> Self {
        let open = || ports::open("af_packet:eth0?ring=8192&promiscuous=yes", &Default::default()).unwrap();
        let mut port = network.namespace(HOSTS[place]).enter(open);
        let mut pool = Pool::new(PoolOptions { frames: 4_096, ..PoolOptions::default() }).unwrap();
        let (mut rx, mut tx) = (port.take_rx(0).unwrap(), port.take_tx(0).unwrap());
        rx.prepare(&mut pool).unwrap();
        tx.prepare(&mut pool).unwrap();
        Self { place, shared, pool, rx, tx, sentinels: 0 }
    }

    fn send(&mut self, frames: &[Vec<u8>]) {
        let mut batch = Batch::new();
        for frame in frames {
            let mut packet = self.pool.allocate().unwrap();
            assert!(packet.set_data(frame));
            batch.push(packet);
        }
        while !batch.is_empty() {
            self.tx.send(&mut self.pool, &mut batch);
            self.tx.flush(&mut self.pool);
        }
    }

    /// Looks at what came out.
    fn receive(&mut self) {
        let mut batch = Batch::new();
        if self.rx.receive(&mut self.pool, &mut batch, 64) == 0 {
            std::thread::sleep(Duration::from_micros(20));
            return;
        }
        let mut ledger = self.shared.ledger.lock().unwrap();
        for packet in batch.iter() {
            match sentinel(packet.data()) {
                Some(number) => self.shared.heard[1 - self.place].fetch_max(number, Ordering::SeqCst),
                None => {
                    ledger.judge(packet.data(), self.place + 1);
                    continue;
                }
            };
        }
        drop(ledger);
        self.pool.free(&mut batch);
    }

    /// Sends so many random frames, and waits behind each burst until the router has seen it.
    fn run(mut self, random: &mut Random, frames: usize) {
        let (place, mut sent) = (self.place, 0);
        let mut number = random.below(1 << 16) as u32;
        while sent < frames {
            let burst: Vec<Vec<u8>> = (0..BURST)
                .map(|_| {
                    // Some have the number of the one before, as fragments do. Each host has its own numbers.
                    number = number.wrapping_add(2 * u32::from(!random.chance(10)));
                    random.frame(ROUTER[place], number & !1 | place as u32)
                })
                .collect();
            sent += BURST;
            {
                let mut ledger = self.shared.ledger.lock().unwrap();
                burst.iter().for_each(|frame| ledger.note(frame, place + 1));
            }
            self.send(&burst);
            self.wait();
        }
        self.shared.sending.fetch_sub(1, Ordering::SeqCst);
        // What is late may come yet, and the other host may wait for a sentinel.
        let mut end = Instant::now() + Duration::from_millis(100);
        while Instant::now() < end {
            self.receive();
            if self.shared.sending.load(Ordering::SeqCst) > 0 {
                end = Instant::now() + Duration::from_millis(100);
            }
        }
    }

    /// Waits for a sentinel of ours; one may be lost.
    fn wait(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let first = self.sentinels + 1;
        loop {
            self.sentinels += 1;
            let frame = sentinel_frame(self.place, self.sentinels);
            self.send(&[frame]);
            let again = Instant::now() + Duration::from_millis(200);
            while Instant::now() < again {
                if self.shared.heard[self.place].load(Ordering::SeqCst) >= first {
                    return;
                }
                self.receive();
            }
            assert!(Instant::now() < deadline, "nothing of host {} passes any more", HOSTS[self.place]);
        }
    }
}

fn sentinel_frame(place: usize, number: u64) -> Vec<u8> {
    let (from, to) = (place as u8 + 1, 2 - place as u8);
    let mut packet = vec![0x45, 0, 0, 36, 0xff, 0xff, 0, 0, 64, 17, 0, 0, 10, 0, from, 2, 10, 0, to, 2];
    let sum = packet.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum::<u32>();
    let sum = !((sum & 0xffff) as u16 + (sum >> 16) as u16);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend([SENTINEL_PORT.to_be_bytes(), SENTINEL_PORT.to_be_bytes(), [0, 16], [0, 0]].concat());
    packet.extend(number.to_be_bytes());
    [&ROUTER[place][..], &[2, 0, 0, 0, from, 2, 8, 0], &packet].concat()
}

/// The number in a sentinel.
fn sentinel(frame: &[u8]) -> Option<u64> {
    let ports = SENTINEL_PORT.to_be_bytes();
    let is_one = frame.len() >= 50
        && frame[12..15] == [8, 0, 0x45]
        && frame[18..20] == [0xff, 0xff]
        && frame[34..38] == [ports, ports].concat();
    is_one.then(|| u64::from_be_bytes(frame[42..50].try_into().unwrap()))
}

/// The files of a router.
struct Files(Folder);

impl Files {
    fn file(&self, name: &str, text: &str) -> PathBuf {
        self.0.write(name, text).into()
    }

    /// Settings of a router of both ports, `more` beside them.
    fn settings(&self, driver: &str, more: &str) -> PathBuf {
        let port = |name: &str| format!("[[port]]\nname = \"{name}\"\ndriver = \"{driver}\"\n");
        let socket = self.0.path().join("socket");
        let text =
            format!("{}{}[control]\nsocket = \"{}\"\n{more}", port("eth1"), port("eth2"), socket.display());
        self.file("brickway.toml", &text)
    }

    /// The same, with `fail = "closed"`.
    fn closed_settings(&self, driver: &str, more: &str) -> PathBuf {
        let open = std::fs::read_to_string(self.settings(driver, more)).unwrap();
        self.file("brickway.toml", &format!("fail = \"closed\"\n{open}"))
    }

    fn ask(&self, network: &Network, what: &str) -> (bool, String) {
        network.run("r", &format!("{PROGRAM} {what} --socket {}", self.0.path().join("socket").display()))
    }
}

fn run(network: &Network, settings: &Path) -> Running {
    start(network, &format!("--config {}", settings.display()))
}

fn environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// What filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filter {
    /// Random access lists.
    List,
    /// A reverse-path check.
    Sources,
    Script,
    /// A configuration of somebody's own.
    File,
}

/// Forwards UDP alone. What it leaves to Linux has to be forwarded by that: packets with options, or for a neighbour to resolve.
const SCRIPT: &str = "
    for batch in brickway.batches() do
      local udp, all = batch:none(), batch:check_ip():union(batch:check_ip6())
      for number, p in all:each() do
        if p.ip and p.ip.protocol == 17 or p.ip6 and p.ip6.next_header == 17 then udp:set(number) end
      end
      all:minus(udp):drop('not UDP')
      batch:apply_routes(batch:decrement_ttl(batch:check_mtu(batch:lookup(udp))))
      batch:punt()
    end";

/// Starts the router with that filter.
fn with_filter(network: &Network, folder: &Files, driver: &str, filter: Filter) -> Running {
    let socket = folder.0.file("socket");
    match filter {
        Filter::List => run(network, &folder.settings(driver, "[acl]\nfile = \"rules.txt\"\n")),
        Filter::Sources => run(network, &folder.settings(driver, "[reverse_path]\nmode = \"strict\"\n")),
        Filter::Script => {
            let script = folder.file("script.lua", SCRIPT);
            let words = format!("lua {} eth1 eth2 --driver {driver} --socket {socket}", script.display());
            let router = network.start("r", &format!("{PROGRAM} {words}"));
            router.wait_until(&words, || router.printed().contains(" runs with "));
            router
        }
        Filter::File => {
            let words = "run eth1 eth2 --ignore ipsec --print-config";
            let (printed, mut text) = network.run("r", &format!("{PROGRAM} {words}"));
            assert!(printed, "{text}");
            for number in [1, 2] {
                let plain = format!("in{number}[0] -> source4;  in{number}[1] -> rt6;");
                assert!(text.contains(&plain), "{text}");
                let filtered = format!(
                    "in{number}[0] -> a{number} :: IPClassifier(udp, -) -> source4;  a{number}[1] -> Discard;
                     in{number}[1] -> b{number} :: Classifier(6/11, -) -> rt6;  b{number}[1] -> Discard;"
                );
                text = text.replace(&plain, &filtered);
            }
            let file = folder.file("router.click", &text);
            start(network, &format!("{} --driver {driver} --socket {socket}", file.display()))
        }
    }
}

/// Sends frames to a router, and looks at what comes out.
fn whatever_comes_in(driver: &str, filter: Filter) {
    if !netns::is_root() {
        return;
    }
    let (frames, seed) = (environment("FRAMES", 12_000) as usize, environment("SEED", 17));
    let network = network();
    let folder = Files(Folder::new());
    folder.file("rules.txt", "");
    let _router = with_filter(&network, &folder, driver, filter);
    let mut random = Random(SplitMix64::new(seed));
    let rounds = frames.div_ceil(FRAMES_A_LIST).max(2);
    let (mut came_out, mut untagged, mut wrong) = (0, 0, 0);
    for round in 0..rounds {
        let policy = match filter {
            Filter::List => Policy::List(random.rules()),
            Filter::Sources => sources(),
            Filter::Script | Filter::File => Policy::Udp,
        };
        let text = policy.text();
        if filter == Filter::List {
            folder.file("rules.txt", &text);
            let (done, said) = folder.ask(&network, "reload");
            assert!(done, "{said}\n{text}");
        }
        let shared = Shared {
            ledger: Mutex::new(Ledger::new(policy)),
            heard: Default::default(),
            sending: AtomicU64::new(HOSTS.len() as u64),
        };
        std::thread::scope(|scope| {
            for place in 0..HOSTS.len() {
                let (network, shared) = (&network, &shared);
                let mut random =
                    Random(SplitMix64::new(seed ^ ((round * HOSTS.len() + place + 1) as u64) << 32));
                let share = frames / rounds / HOSTS.len();
                scope.spawn(move || Host::new(network, place, shared).run(&mut random, share));
            }
        });
        let ledger = shared.ledger.into_inner().unwrap();
        came_out += ledger.came_out;
        untagged += ledger.untagged;
        wrong += ledger.wrong.len();
        for wrong in ledger.wrong.iter().take(3) {
            println!("should not have come out {wrong}\nby these rules:\n{text}");
        }
    }
    let (_, drops) = folder.ask(&network, "show drops");
    println!(
        "{driver}, {filter:?}: SEED={seed}, {frames} frames, {came_out} came out rightly ({untagged} of them had a priority \
         tag), {wrong} wrongly\n{drops}"
    );
    assert_eq!(wrong, 0);
    assert!(came_out > frames as u64 / 200 && untagged > 0, "what is permitted passes");
}

#[test]
fn whatever_comes_in_a_list_permitted_what_leaves_on_af_xdp() {
    whatever_comes_in("af_xdp", Filter::List);
}

#[test]
fn whatever_comes_in_a_list_permitted_what_leaves_on_af_packet() {
    whatever_comes_in("af_packet", Filter::List);
}

#[test]
fn whatever_comes_in_its_source_is_believed_if_it_leaves_on_xdp() {
    whatever_comes_in("xdp", Filter::Sources);
}

#[test]
fn whatever_comes_in_its_source_is_believed_if_it_leaves_on_af_xdp() {
    whatever_comes_in("af_xdp", Filter::Sources);
}

#[test]
fn whatever_comes_in_its_source_is_believed_if_it_leaves_on_af_packet() {
    whatever_comes_in("af_packet", Filter::Sources);
}

#[test]
fn whatever_comes_in_a_script_permitted_what_leaves_on_auto() {
    whatever_comes_in("auto", Filter::Script);
}

#[test]
fn whatever_comes_in_a_script_permitted_what_leaves_on_xdp() {
    whatever_comes_in("xdp", Filter::Script);
}

#[test]
fn whatever_comes_in_a_script_permitted_what_leaves_on_af_xdp() {
    whatever_comes_in("af_xdp", Filter::Script);
}

#[test]
fn whatever_comes_in_a_script_permitted_what_leaves_on_af_packet() {
    whatever_comes_in("af_packet", Filter::Script);
}

#[test]
fn whatever_comes_in_a_configuration_permitted_what_leaves_on_auto() {
    whatever_comes_in("auto", Filter::File);
}

#[test]
fn whatever_comes_in_a_configuration_permitted_what_leaves_on_xdp() {
    whatever_comes_in("xdp", Filter::File);
}

#[test]
fn whatever_comes_in_a_configuration_permitted_what_leaves_on_af_xdp() {
    whatever_comes_in("af_xdp", Filter::File);
}

#[test]
fn whatever_comes_in_a_configuration_permitted_what_leaves_on_af_packet() {
    whatever_comes_in("af_packet", Filter::File);
}

/// Hosts a and b with Linux's own addresses and routes.
fn with_addresses(network: &Network) {
    for (host, link) in [("a", "1"), ("b", "2")] {
        network.allow_ipv6(host, "eth0");
        network.ip(host, "link set eth0 mtu 1500");
        network.ip(host, &format!("addr add 10.0.{link}.2/24 dev eth0"));
        network.ip(host, &format!("addr add 2001:db8:{link}::2/64 dev eth0 nodad"));
        network.ip(host, &format!("route add default via 10.0.{link}.1"));
        network.ip(host, &format!("-6 route add default via 2001:db8:{link}::1"));
    }
}

/// Whether anything passes from host a to host b.
fn passes(network: &Network) -> bool {
    ["10.0.2.2", "2001:db8:2::2"].iter().any(|to| {
        let (_, text) = network.run("a", &format!("ping -n -c 3 -i 0.02 -W 0.3 {to}"));
        text.contains("bytes from")
    })
}

/// Whether the router itself is there for its neighbours.
fn answers_for_itself(network: &Network) -> bool {
    ["10.0.1.1", "2001:db8:1::1"].iter().all(|own| network.answers("a", own) == 10)
}

#[test]
fn closed_nothing_passes_until_the_next_router_filters_or_the_doctor_opens() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    with_addresses(&network);
    let folder = Files(Folder::new());
    let closed = |more: &str| folder.closed_settings("af_xdp", more);
    let doctor = |words: &str| network.run("r", &format!("{PROGRAM} doctor eth1 eth2 {words}"));
    let shut = "Linux forwards nothing that comes in by it";

    // A router that filters nothing else. Killed, it leaves the ports closed, and Linux its own host.
    let router = run(&network, &closed(""));
    assert!(eventually(|| ["10.0.2.2", "2001:db8:2::2"].iter().all(|to| network.answers("a", to) == 10)));
    assert!(!doctor("").1.contains(shut), "{}", doctor("").1);
    let (ran, said) = network.run("r", &format!("{PROGRAM} run --config {}", closed("").display()));
    assert!(!ran && said.contains("of Brickway routes on eth1, eth2 already"), "{said}");
    assert_eq!(said.trim().lines().count(), 1, "{said}");
    drop(router);
    assert!(!passes(&network) && answers_for_itself(&network));
    assert!(doctor("").1.contains(shut), "{}", doctor("").1);

    // Mistakes in the list, and in the settings.
    for mistake in ["[acl]\nrules = [\"10 deny nonsense\"]\n", "[acl]\nrules = 5\n"] {
        let (ran, said) = network.run("r", &format!("{PROGRAM} run --config {}", closed(mistake).display()));
        assert!(!ran && said.contains("nothing is forwarded from the ports"), "{said}");
        assert!(!passes(&network));
    }

    // Files that are not even TOML, or UTF-8; nobody closed the ports before.
    let all = std::fs::read(closed("")).unwrap();
    let all = String::from_utf8(all).unwrap();
    for broken in [
        all.clone() + "[acl]\nrules = [\"deny any any any\"\n",
        all.replace("\"closed\"", "closed"),
        all.replace("\"closed\"", "\"close\""),
        all.replace("[[port]]", "[port]"),
        all.replace("fail", "[log]\nfail"),
        all.clone() + "# caf\u{e9}\n",
    ] {
        assert!(doctor("--fix").1.contains("fixed") && eventually(|| passes(&network)));
        let path = folder.file("broken.toml", "");
        let bytes: Vec<u8> = broken.chars().map(|letter| letter as u32 as u8).collect();
        std::fs::write(&path, bytes).unwrap();
        let (ran, said) = network.run("r", &format!("{PROGRAM} run --config {}", path.display()));
        assert!(!ran && said.contains("nothing is forwarded from the ports"), "{said}\n{broken}");
        assert!(!passes(&network), "{broken}");
    }

    // No ping passes while the next router starts, nor when it has stopped.
    let mut router = None;
    let list = closed(
        "[acl]\nrules = [\"10 deny icmp any any\", \"20 deny icmp6 any any\"]\ndefault = \"permit\"\n",
    );
    let (lost, sent) = lost_during(&network, "a", "10.0.2.2", || router = Some(run(&network, &list)));
    assert!(lost == sent && sent > 20, "{lost} of {sent}");
    assert!(!passes(&network) && answers_for_itself(&network));
    assert_eq!(router.unwrap().interrupt(), 0);
    assert!(!passes(&network));

    // The doctor opens the ports that are named, and so does a router that is to leave them open.
    let (_, text) = network.run("r", &format!("{PROGRAM} doctor eth9 --fix"));
    assert!(!text.contains("fixed: remove") && text.contains("if it is to be open"), "{text}");
    assert!(!passes(&network));
    let (_, text) = doctor("--fix");
    assert!(
        text.contains("fixed: remove the table brickway-eth1 of nftables") && !text.contains(shut),
        "{text}"
    );
    assert!(eventually(|| passes(&network)));
    drop(run(&network, &closed("")));
    assert!(!passes(&network));
    let router = start(&network, "eth1");
    let left = "an earlier router left eth2 closed";
    assert!(router.printed().contains(left), "{}", router.printed());
    assert_eq!(router.interrupt(), 0);
    drop(run(&network, &folder.settings("af_xdp", "")));
    assert!(eventually(|| passes(&network)));
}

/// The echo requests over IPv4 that a host has received.
fn echo_requests(network: &Network, host: &str) -> u64 {
    let (_, text) = network.run(host, "cat /proc/net/snmp");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Icmp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut columns = names.split(' ').zip(values.split(' '));
    columns.find(|(name, _)| *name == "InEchos").unwrap().1.parse().unwrap()
}

/// Interfaces change their names while a router runs. What it leaves closed stays so, until another router has begun.
#[test]
fn a_start_that_fails_opens_no_interface_that_was_closed_whatever_it_is_called_now() {
    if !netns::is_root() {
        return;
    }
    for driver in ["auto", "af_packet"] {
        let network = network();
        with_addresses(&network);
        let folder = Files(Folder::new());
        let closed = |rule: &str| folder.closed_settings(driver, &format!("[acl]\nrules = [\"{rule}\"]\n"));
        // One way: what comes back is denied.
        let arrives = || {
            let before = echo_requests(&network, "b");
            network.run("a", "ping -n -q -c 3 -i 0.02 -W 0.3 10.0.2.2");
            echo_requests(&network, "b") > before
        };
        let rename = |old: &str, new: &str| {
            for words in [format!("{old} down"), format!("{old} name {new}"), format!("{new} up")] {
                network.ip("r", &format!("link set {words}"));
            }
            network.ip("r", "neigh flush all");
        };
        network.ip("r", "link add eth3 type veth peer name far3");
        let router = run(&network, &closed("deny any any any"));
        rename("eth1", "wan");
        rename("eth3", "eth1");
        let knows = || folder.ask(&network, "show ports").1.contains("wan");
        assert!(eventually(knows), "{}", router.printed());
        assert!(!arrives(), "{driver}: the router runs");
        drop(router);
        assert!(!arrives(), "{driver}: killed");
        for mistake in ["deny bogus", "deny any any any in nowhere"] {
            let path = closed(mistake);
            let (ran, said) = network.run("r", &format!("{PROGRAM} run --config {}", path.display()));
            assert!(!ran && said.contains("nothing is forwarded from the ports"), "{said}");
            assert!(!arrives(), "{driver}: a start that failed");
        }
        // The interface that was another's once is a stranger's to a router that begins.
        let router = run(&network, &closed("deny any any any"));
        assert!(router.printed().contains("an earlier router left wan closed"), "{}", router.printed());
        assert!(eventually(arrives), "{driver}: {}", folder.ask(&network, "show drops").1);
        assert_eq!(router.interrupt(), 0);
    }
}

#[test]
fn open_a_mistake_in_the_list_leaves_forwarding_to_linux_and_tcp_passes_filters_beside_gro() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    with_addresses(&network);
    let folder = Files(Folder::new());
    let mistake = folder.settings("af_packet", "[acl]\nrules = [\"10 deny nonsense\"]\n");
    assert!(!network.run("r", &format!("{PROGRAM} run --config {}", mistake.display())).0);
    assert!(eventually(|| passes(&network)));

    let (set, said) = network.run("r", "ethtool -K eth1 gro on");
    assert!(set, "{said}");
    let merges = || !network.run("r", "ip -d link show eth1").1.contains("gro_max_size 1 ");
    let rules = "[acl]\nrules = [\"10 deny udp any any port 7\"]\n";
    let list = folder.settings("af_packet", rules);
    let router = run(&network, &list);
    assert!(
        !merges() && router.printed().contains("eth1: Linux merges no received packets"),
        "{}",
        router.printed()
    );
    let _server = network.start("b", "iperf3 -s -1");
    let through = eventually(|| network.run("a", "iperf3 -c 10.0.2.2 -t 1").0);
    assert!(through, "{}", folder.ask(&network, "show drops").1);
    // What a host leaves to a card is said, as it is dropped.
    network.run("a", "ethtool -K eth0 tx on tso on gso on");
    let _server = network.start("b", "iperf3 -s -1");
    let told = eventually(|| {
        network.run("a", "timeout 3 iperf3 -c 10.0.2.2 -t 1");
        router
            .printed()
            .contains("went to Linux, where the router's filters drop them: longer than MTU or frame")
    });
    assert!(told, "{}", router.printed());
    network.run("a", "ethtool -K eth0 tx off tso off gso off");
    // A second router with a mistake closes nothing of the first.
    let text = std::fs::read_to_string(&list).unwrap();
    let broken = folder.file("broken.toml", &format!("fail = \"close\"\n{text}"));
    let (ran, said) = network.run("r", &format!("{PROGRAM} run --config {}", broken.display()));
    assert!(!ran && said.contains("fail") && !said.contains("nothing is forwarded"), "{said}");
    assert!(passes(&network));
    assert_eq!(router.interrupt(), 0);
    assert!(merges() && passes(&network));
    let text = std::fs::read_to_string(folder.settings("af_packet", rules)).unwrap();
    let closed = folder.file("closed.toml", &format!("fail = \"closed\"\n{text}"));
    let router = run(&network, &closed);
    assert!(!merges());
    assert_eq!(router.interrupt(), 0);
    assert!(merges());
}

#[test]
fn linux_merges_nothing_that_a_filter_has_to_see_whatever_comes_later() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    with_addresses(&network);
    let folder = Files(Folder::new());
    let off = |is_off: bool| {
        let (set, said) =
            network.run("r", &format!("ethtool -K eth1 gro {}", if is_off { "off" } else { "on" }));
        assert!(set, "{said}");
    };
    let merges = || {
        let (_, features) = network.run("r", "ethtool -k eth1");
        let (_, link) = network.run("r", "ip -d link show eth1");
        features.contains("generic-receive-offload: on") && !link.contains("gro_max_size 1 ")
    };
    off(true);
    let list = folder.settings("af_packet", "[acl]\nrules = [\"10 deny udp any any port 7\"]\n");
    let router = run(&network, &list);
    off(false);
    assert!(eventually(|| !merges()), "turned on: {}", router.printed());
    network.ip("r", "link set eth1 gro_max_size 65536");
    assert!(eventually(|| !merges()), "its limit lifted");
    network.ip("r", "link delete eth1");
    network.link(("r", "eth1", "02:00:00:00:01:01"), ("a", "eth0", "02:00:00:00:01:02"));
    assert!(eventually(|| !merges()), "made anew");
    assert_eq!(router.interrupt(), 0);
    assert!(merges());
}

#[test]
fn what_linux_takes_that_is_longer_than_the_mtu_is_judged() {
    if !netns::is_root() {
        return;
    }
    for driver in ["auto", "xdp", "af_xdp", "af_packet"] {
        let network = network();
        with_addresses(&network);
        let folder = Files(Folder::new());
        // A veth takes four bytes more, those of a tag.
        network.ip("r", "link set eth1 mtu 1400");
        let list = "[acl]\nrules = [\"10 deny icmp any any icmp-type 13\"]\n";
        let router = run(&network, &folder.settings(driver, list));
        for length in [1372, 1373, 1376] {
            let ping = format!("ping -n -q -c 1 -W 1 -M do -s {length} 10.0.2.2");
            let passes = eventually(|| network.run("a", &ping).0);
            assert!(
                passes,
                "{driver}, {length}: {}\n{}",
                folder.ask(&network, "show drops").1,
                router.printed()
            );
        }
        // Frames that no worker can hold: the reason is said, and is the MTU's.
        for (host, interface) in [("r", "eth1"), ("r", "eth2"), ("a", "eth0"), ("b", "eth0")] {
            network.ip(host, &format!("link set {interface} mtu 9000"));
        }
        let _pings = network.start("a", "ping -n -q -i 0.05 -M dont -s 4000 10.0.2.2");
        let problems = || folder.ask(&network, "show problems").1;
        let told = eventually(|| problems().contains("the router's filters drop them: MTU 9000 of eth1"));
        assert!(told, "{driver}: {}\n{}", problems(), folder.ask(&network, "show drops").1);
        assert!(!router.printed().contains("they were merged"), "{}", router.printed());
    }
}

#[test]
fn filters_know_what_they_permitted_of_a_device_that_linux_does_not_see() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    with_addresses(&network);
    let folder = Files(Folder::new());
    let list = "[acl]\nrules = [\"10 deny icmp any any icmp-type 13\"]\n[reverse_path]\nmode = \"strict\"\n";
    let lan = "[[port]]\nname = \"lan\"\ndriver = \"tap\"\ndevice = \"vm0\"\n";
    let router = run(&network, &folder.settings("af_xdp", &format!("{lan}{list}")));
    network.ip("r", &format!("link set vm0 netns {}", network.name("b")));
    network.ip("b", "link set vm0 up");
    network.ip("r", "addr add 10.0.3.1/24 dev lan");
    network.ip("b", "addr add 10.0.3.2/24 dev vm0");
    network.ip("b", "route add 10.0.1.0/24 via 10.0.3.1 src 10.0.3.2 metric 1");
    // Linux resolves both hosts, and forwards their first packets, which carry the mark.
    network.ip("r", "neigh flush dev eth1");
    assert!(
        eventually(|| network.answers("a", "10.0.3.2") == 10),
        "{}",
        folder.ask(&network, "show drops").1
    );
    // A network behind another port, by a neighbour that only Linux knows; and one behind an interface that is not a port.
    network.ip("r", "link add side type veth peer name side-b");
    network.ip("r", "addr add 10.0.9.1/24 dev side");
    network.ip("r", "link set side up");
    network.ip("r", "link set side-b up");
    for (source, reason) in [("10.0.1.99", "another way back"), ("10.0.9.99", "no route back in Linux")] {
        network.ip("b", &format!("addr add {source}/32 dev vm0"));
        let dropped = eventually(|| {
            let (_, text) = network.run("b", &format!("ping -n -c 3 -i 0.02 -W 0.3 -I {source} 10.0.1.2"));
            assert!(!text.contains("bytes from"), "{text}");
            folder.ask(&network, "show drops").1.contains(reason)
        });
        assert!(dropped, "{reason}: {}", folder.ask(&network, "show drops").1);
    }
    assert_eq!(router.interrupt(), 0);
}
