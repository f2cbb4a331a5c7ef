//! A router between two hosts, asked with frames and judged by what comes out, clause by clause: with `--slow-path native`
//! where Linux forwards nothing itself, and with Linux as the slow path.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `wire` | the stations' addresses |
//! | `ipv4`, `ipv6` | the cases: what is sent, what should come of it, and the clause that says so |
//! | `ways` | random frames, of which the same comes by Linux, the graph and the kernel |

#![allow(clippy::unwrap_used, reason = "a test")]

mod ipv4;
mod ipv6;
#[path = "../netns/mod.rs"]
mod netns;
mod ways;
mod wire;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netns::Network;
use netns::router::{PROGRAM, start};
use netns::wire::Wire;
use wire::{ROUTER, ROUTER_TO_B};

/// What should come of a packet.
#[derive(Clone, Debug)]
enum Expect {
    /// It leaves to host b with one hop less, and these bytes of its IP packet changed otherwise.
    Forwarded(Vec<(usize, u8)>),
    /// It leaves in so many fragments, which together are as long as its payload.
    Fragments(usize),
    /// Host a gets an ICMP error of this type, of one of these codes, from the router's address on its link; and what stands
    /// behind the checksum, where that is fixed.
    Error(u8, &'static [u8], Option<[u8; 4]>),
    /// Nothing leaves.
    Nothing,
    /// Whatever Linux makes of it.
    Anything,
}

/// A packet, and what should come of it.
struct Case {
    name: &'static str,
    /// Who says so.
    clause: &'static str,
    frame: Vec<u8>,
    expect: Expect,
}

/// Host a - router r - host b, which takes packets to the networks behind it and says nothing.
fn network() -> Network {
    let network = Network::new(&["r", "a", "b"]);
    network.link(("r", "eth1", "02:00:00:00:01:01"), ("a", "eth0", "02:00:00:00:01:02"));
    network.link(("r", "eth2", "02:00:00:00:02:01"), ("b", "eth0", "02:00:00:00:02:02"));
    for (host, link) in [("a", "1"), ("b", "2")] {
        let port = format!("eth{link}");
        network.allow_ipv6(host, "eth0");
        network.allow_ipv6("r", &port);
        for (namespace, device, number) in [("r", port.as_str(), 1), (host, "eth0", 2)] {
            network.ip(namespace, &format!("addr add 10.0.{link}.{number}/24 brd + dev {device}"));
            network.ip(namespace, &format!("addr add 2001:db8:{link}::{number}/64 dev {device} nodad"));
        }
    }
    for (host, device) in [("r", "eth2"), ("b", "eth0")] {
        network.ip(host, &format!("link set {device} mtu 1400"));
    }
    for (kind, second) in [("blackhole", 3), ("unreachable", 4), ("prohibit", 5)] {
        network.ip("r", &format!("route add {kind} 10.{second}.0.0/16"));
        network.ip("r", &format!("-6 route add {kind} 2001:db8:{second}::/48"));
    }
    network.ip("r", "route add 10.2.0.0/16 via 10.0.2.2");
    network.ip("r", "-6 route add 2001:db8:9::/48 via 2001:db8:2::2");
    // Every error is answered: how many there are at most is tested elsewhere.
    network.set("r", "net.ipv4.icmp_ratemask=0");
    network.set("r", "net.ipv6.icmp.ratelimit=0");
    for name in ["all", "eth1", "eth2"] {
        network.set("r", &format!("net.ipv4.conf.{name}.rp_filter=0"));
    }
    network
}

/// The bytes of a frame behind its Ethernet header.
fn packet_of(frame: &[u8]) -> &[u8] {
    &frame[14..]
}

/// The number of the case that an IP packet belongs to: that of the packet, or of the one that an ICMP error quotes. The
/// packet's identification or flow label is the number.
fn number_of(packet: &[u8]) -> Option<usize> {
    let (about, at) = match packet.first()? >> 4 {
        4 => (ipv4::quoted(packet).unwrap_or(packet), 4),
        6 => (ipv6::quoted(packet).unwrap_or(packet), 2),
        _ => return None,
    };
    Some(usize::from(u16::from_be_bytes([*about.get(at)?, *about.get(at + 1)?])))
}

/// What left by each side, by case.
#[derive(Default)]
struct Seen {
    to_a: BTreeMap<usize, Vec<Vec<u8>>>,
    to_b: BTreeMap<usize, Vec<Vec<u8>>>,
}

impl Seen {
    fn gather(&mut self, a: &mut Wire, b: &mut Wire) {
        for (wire, side) in [(a, &mut self.to_a), (b, &mut self.to_b)] {
            for frame in wire.received() {
                if frame.len() < 34 || ![[8, 0], [0x86, 0xdd]].contains(&[frame[12], frame[13]]) {
                    continue;
                }
                // What hosts say of themselves is not the router's.
                if frame[6..12] != ROUTER && frame[6..12] != ROUTER_TO_B {
                    continue;
                }
                if let Some(number) = number_of(packet_of(&frame)) {
                    side.entry(number).or_default().push(frame);
                }
            }
        }
    }

    /// What is wrong with what came of a case; `None` if it is as it should be.
    fn problem(&self, number: usize, case: &Case) -> Option<String> {
        let none = Vec::new();
        let (a, b) = (self.to_a.get(&number).unwrap_or(&none), self.to_b.get(&number).unwrap_or(&none));
        let sent = packet_of(&case.frame);
        let is_ipv4 = sent[0] >> 4 == 4;
        let right = match &case.expect {
            Expect::Anything => true,
            Expect::Nothing => a.is_empty() && b.is_empty(),
            Expect::Forwarded(changes) => {
                let expected =
                    if is_ipv4 { ipv4::forwarded(sent, changes) } else { ipv6::forwarded(sent, changes) };
                a.is_empty() && matches!(&b[..], [one] if is_as_expected(packet_of(one), &expected))
            }
            Expect::Fragments(count) => {
                let payload = |frame: &Vec<u8>| packet_of(frame).len() - ipv4::header_len(packet_of(frame));
                let all: usize = b.iter().map(payload).sum();
                a.is_empty() && b.len() == *count && all == sent.len() - ipv4::header_len(sent)
            }
            Expect::Error(kind, codes, rest) => {
                let is_it = |frame: &Vec<u8>| {
                    let packet = packet_of(frame);
                    let (message, source) = if is_ipv4 {
                        (&packet[ipv4::header_len(packet)..], packet[12..16] == [10, 0, 1, 1])
                    } else {
                        (&packet[40..], packet[8..24] == ipv6::address("2001:db8:1::1"))
                    };
                    source
                        && message[0] == *kind
                        && codes.contains(&message[1])
                        && rest.is_none_or(|rest| message[4..8] == rest)
                };
                b.is_empty() && matches!(&a[..], [one] if is_it(one))
            }
        };
        let (name, clause, expect) = (case.name, case.clause, &case.expect);
        (!right).then(|| format!("{number} {name} ({clause}): {expect:?}; to a {a:02x?}, to b {b:02x?}"))
    }
}

/// Times that the router writes are not compared: an expected time is zero.
fn is_as_expected(packet: &[u8], expected: &[u8]) -> bool {
    if packet == expected {
        return true;
    }
    let is_timestamp = expected[0] > 0x45 && expected.get(20) == Some(&68);
    is_timestamp && packet.len() == expected.len() && packet[20..28] == expected[20..28]
}

/// The interface of a host.
fn open(network: &Network, host: &str) -> Wire {
    Wire::open(network.namespace(host), "af_packet:eth0")
}

/// The interfaces of both hosts. The router knows the hosts, and they know the router.
fn wires(network: &Network) -> (Wire, Wire) {
    let (mut a, mut b) = (open(network, "a"), open(network, "b"));
    let warm = |options: &str| network.answers("a", options);
    assert!(netns::eventually(|| warm("10.0.1.1") == 10 && warm("2001:db8:1::1") == 10));
    for to in ["10.0.2.2", "2001:db8:2::2"] {
        network.run("r", &format!("ping -n -c 1 -W 5 {to}"));
    }
    a.received();
    b.received();
    (a, b)
}

/// Sends all, and judges what came of it. Reasons for which packets are dropped are among those that the router shows.
fn judge(network: &Network, cases: &[Case], socket: &str, reasons: &[&str]) {
    let (mut a, mut b) = wires(network);
    let mut seen = Seen::default();
    for case in cases {
        a.send(&case.frame);
        seen.gather(&mut a, &mut b);
    }
    let problems = |seen: &Seen| -> Vec<String> {
        cases.iter().enumerate().filter_map(|(number, case)| seen.problem(number + 1, case)).collect()
    };
    let all_came = netns::eventually(|| {
        seen.gather(&mut a, &mut b);
        problems(&seen).is_empty()
    });
    // What should not come has had the time in which the slowest of the others came; a little more is for what comes last.
    std::thread::sleep(Duration::from_millis(200));
    seen.gather(&mut a, &mut b);
    let wrong = problems(&seen);
    assert!(all_came && wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    let (_, text) = network.run("r", &format!("{PROGRAM} show drops --socket {socket}"));
    for reason in reasons {
        assert!(text.contains(reason), "{reason} in\n{text}");
    }
}

/// Starts a router; with the path of its socket.
fn router(network: &Network, options: &str) -> (netns::Running, String) {
    let socket = network.folder.file("socket");
    (start(network, &format!("eth1 eth2 {options} --socket {socket}")), socket)
}

const MARTIANS: &str = "martian source";

/// Cases of which Linux makes something else: it writes the address of the port that the packet came by beside a timestamp, looks for
/// a neighbour on the link to which a link-local address belongs, and sends errors about redirects.
const LINUX_DIFFERS: [&str; 4] =
    ["timestamp", "to the link", "ICMPv6 redirect, hop limit 1", "ICMPv6 redirect, no route"];

fn all_cases() -> Vec<Case> {
    let mut cases = ipv4::cases(1);
    let next = cases.len() + 1;
    cases.extend(ipv6::cases(next));
    cases
}

fn native(options: &str) {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let (_router, socket) = router(&network, &format!("--slow-path native {options}"));
    let reasons = [MARTIANS, "source route", "unknown IPv6 option", "about an ICMP error", "blackhole"];
    judge(&network, &all_cases(), &socket, &reasons);
}

#[test]
fn native_without_linux_on_af_xdp() {
    native("--driver af_xdp");
}

#[test]
fn native_without_linux_on_xdp() {
    native("--driver xdp");
}

#[test]
fn native_without_linux_on_af_packet() {
    native("--driver af_packet");
}

#[test]
fn linux_as_the_slow_path() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    network.forward("r");
    let (_router, socket) = router(&network, "");
    let mut cases = all_cases();
    for case in cases.iter_mut().filter(|case| LINUX_DIFFERS.contains(&case.name)) {
        case.expect = Expect::Anything;
    }
    judge(&network, &cases, &socket, &[MARTIANS]);
}

#[test]
fn the_rp_filter_of_a_port_is_honoured() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    network.set("r", "net.ipv4.conf.eth1.rp_filter=1");
    let (_router, socket) = router(&network, "--slow-path native");
    let cases = [ipv4::forwarded_case(1), ipv4::from_another_link(2)];
    judge(&network, &cases, &socket, &["another way back"]);
}

#[test]
fn another_link_address_is_followed_and_the_old_one_is_not_taken_any_more() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let (_router, socket) = router(&network, "--slow-path native");
    let plain = || ipv4::plain(1);
    judge(&network, &[ipv4::forwarded_case(1)], &socket, &[]);
    let (mut a, mut b) = (open(&network, "a"), open(&network, "b"));
    network.ip("r", "link set eth1 address 02:00:00:00:01:99");
    let mut to_new = plain();
    to_new[..6].copy_from_slice(&[2, 0, 0, 0, 1, 0x99]);
    let mut seen = Seen::default();
    assert!(netns::eventually(|| {
        a.send(&to_new);
        seen.gather(&mut a, &mut b);
        !seen.to_b.is_empty()
    }));
    std::thread::sleep(Duration::from_millis(100));
    seen.gather(&mut a, &mut b);
    let mut seen = Seen::default();
    for _ in 0..20 {
        a.send(&plain());
    }
    // What was sent later has come, so what was sent before would have.
    let mut last = ipv4::plain(2);
    last[..6].copy_from_slice(&[2, 0, 0, 0, 1, 0x99]);
    assert!(netns::eventually(|| {
        a.send(&last);
        seen.gather(&mut a, &mut b);
        seen.to_b.contains_key(&2)
    }));
    assert_eq!(seen.to_b.get(&1), None);
}

/// A stream of packets, each with a number of its own, while routes and neighbours change under it. Linux would keep what has to
/// wait for a gateway that answers late.
#[test]
fn after_changes_of_routes_and_neighbours_no_packet_is_lost() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let (_router, socket) = router(&network, "--slow-path native");
    judge(&network, &[ipv4::forwarded_case(1)], &socket, &[]);
    let (mut a, mut b) = (open(&network, "a"), open(&network, "b"));
    let done = AtomicBool::new(false);
    let mut sent = 1;
    let mut seen = Seen::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for last in 10..12 {
                // Another gateway, which is not there when it is asked for at first, and is forgotten once.
                network.ip("r", &format!("route replace 10.2.0.0/16 via 10.0.2.{last}"));
                std::thread::sleep(Duration::from_millis(100));
                network.ip("b", &format!("addr add 10.0.2.{last}/24 dev eth0"));
                let known = || network.run("r", &format!("ip neigh show 10.0.2.{last}")).1.contains("lladdr");
                netns::eventually(known);
                network.run("r", &format!("ip neigh del 10.0.2.{last} dev eth2"));
                netns::eventually(known);
            }
            done.store(true, Ordering::SeqCst);
        });
        while !done.load(Ordering::SeqCst) {
            sent += 1;
            a.send(&ipv4::plain(sent as u16));
            seen.gather(&mut a, &mut b);
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let all = netns::eventually(|| {
        seen.gather(&mut a, &mut b);
        (2..=sent).all(|number| seen.to_b.contains_key(&number))
    });
    let lost: Vec<usize> = (2..=sent).filter(|number| !seen.to_b.contains_key(number)).collect();
    let (_, drops) = network.run("r", &format!("{PROGRAM} show drops --socket {socket}"));
    assert!(all, "{} of {sent} lost: {lost:?}\n{drops}", lost.len());
}
