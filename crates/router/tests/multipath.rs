//! Which path of a multipath route packets take: those that Linux sends the same way, the router sends the same way, whatever
//! `fib_multipath_hash_policy` says, and whenever it says so.
//!
//! Host a sends pairs of packets that differ in one thing to 16 next hops on one link, whose link addresses host b sees. Linux
//! alone says first which pairs have one path. Which path that is is chosen by a hash in both.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;
#[path = "conformance/wire.rs"]
#[allow(dead_code, reason = "this test uses a part of it")]
mod wire;

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use netns::router::{forwarded_by_the_kernel, start};
use netns::wire::Wire;
use netns::{Network, eventually, is_root};
use packet::random::SplitMix64;
use testbed::ipv4::{ipv4, refresh};
use testbed::ipv6::ipv6;
use wire::frame;

const NEXT_HOPS: u8 = 16;
/// Pairs of each kind: that 16 next hops have one path for all of them by chance happens once in 16 millions.
const SAMPLES: usize = 6;

/// Policy and fields that both families get, one after another.
const POLICIES: [(u32, u32); 8] =
    [(0, 7), (1, 7), (2, 7), (3, 7), (3, 0x39), (3, 0xfc0), (3, 0xfff), (3, 0x246)];

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Host a, the router and host b. All sources and destinations lie behind 16 next hops on the link of host b.
fn network() -> Network {
    let network = Network::new(&["a", "r", "b"]);
    network.link(("a", "eth0", "02:00:00:00:01:02"), ("r", "eth1", "02:00:00:00:01:01"));
    network.link(("b", "eth0", "02:00:00:00:02:02"), ("r", "eth2", "02:00:00:00:02:01"));
    network.allow_ipv6("r", "eth1");
    network.allow_ipv6("r", "eth2");
    network.forward("r");
    network.set("r", "net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth1.rp_filter=0");
    let mut lines: Vec<String> = (1..=2)
        .flat_map(|link| {
            [
                format!("addr add 10.0.{link}.1/24 dev eth{link}"),
                format!("addr add fd00:{link}::1/64 dev eth{link} nodad"),
            ]
        })
        .collect();
    let (mut hops4, mut hops6) = (String::new(), String::new());
    for number in 10..10 + NEXT_HOPS {
        for address in [format!("10.0.2.{number}"), format!("fd00:2::{number}")] {
            lines.push(format!(
                "neigh add {address} lladdr 02:00:00:00:09:{number:02x} dev eth2 nud permanent"
            ));
        }
        hops4 += &format!(" nexthop via 10.0.2.{number}");
        hops6 += &format!(" nexthop via fd00:2::{number} dev eth2");
    }
    lines.push(format!("route add 192.0.0.0/2{hops4}"));
    lines.push(format!("route add 2001:db8::/32{hops6}"));
    network.ip_batch("r", &lines);
    network
}

/// What differs between the packets of a pair.
type Change = fn(&mut Flow);

/// A packet of which pairs are made.
#[derive(Clone)]
struct Flow {
    is_six: bool,
    source: u8,
    destination: u8,
    protocol: u8,
    ports: [u16; 2],
    label: u32,
}

impl Flow {
    fn new(is_six: bool, random: &mut SplitMix64) -> Flow {
        let bits = random.next_u64();
        let [source, destination, a, b, c, d, ..] = bits.to_ne_bytes();
        let ports = [u16::from_ne_bytes([a, b]) | 1, u16::from_ne_bytes([c, d]) & !1];
        let label = if is_six { (bits >> 40) as u32 & 0xfffff | 1 } else { 0 };
        Flow { is_six, source, destination, protocol: TCP, ports, label }
    }

    fn with(&self, change: impl FnOnce(&mut Flow)) -> Flow {
        let mut flow = self.clone();
        change(&mut flow);
        flow
    }

    fn reverse(&self) -> Flow {
        let [from, to] = self.ports;
        Flow { source: self.destination, destination: self.source, ports: [to, from], ..self.clone() }
    }

    /// What is in TCP and others, from the ports on.
    fn transport(&self) -> Vec<u8> {
        let [from, to] = self.ports.map(u16::to_be_bytes);
        [&from[..], &to, &[0; 16]].concat()
    }

    fn packet(&self) -> Vec<u8> {
        self.carrying(self.protocol, &self.transport())
    }

    /// A packet between the same two, of another protocol.
    fn carrying(&self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        if !self.is_six {
            return ipv4([192, 0, 2, self.source], [203, 0, 113, self.destination], protocol, payload);
        }
        let address = |host: u8| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into());
        let mut packet = ipv6(address(self.source), address(self.destination), protocol, payload);
        packet[1] |= (self.label >> 16) as u8;
        packet[2..4].copy_from_slice(&(self.label as u16).to_be_bytes());
        packet
    }

    /// An ICMP message about a packet, from elsewhere to where it came from; errors have eight bytes before it.
    fn error(&self, kind: u8, from: u8, about: &[u8]) -> Vec<u8> {
        let message = [&[kind, 0, 0, 0, 0, 0, 5, 0][..], about].concat();
        let protocol = if self.is_six { 58 } else { 1 };
        self.with(|flow| (flow.source, flow.label) = (from, 0)).carrying(protocol, &message)
    }

    /// A fragment.
    fn fragment(&self, offset: u16, more: bool) -> Vec<u8> {
        let field = (offset << 3 | u16::from(more)).to_be_bytes();
        if self.is_six {
            let header = [&[self.protocol, 0][..], &field, &[0, 0, 0, 9]].concat();
            return self.carrying(44, &[header, self.transport()].concat());
        }
        let mut packet = self.packet();
        packet[6..8].copy_from_slice(&(offset | u16::from(more) << 13).to_be_bytes());
        refresh(&mut packet);
        packet
    }

    /// A packet in this one, behind so many bytes of a tunnel's header.
    fn tunnel(&self, header: &[u8], inside: &Flow) -> Vec<u8> {
        let protocol = match (header, inside.is_six) {
            ([], true) => 41,
            ([], false) => 4,
            _ => 47,
        };
        self.carrying(protocol, &[header, &inside.packet()].concat())
    }
}

/// The pairs, by what they are.
fn pairs(random: &mut SplitMix64) -> Vec<(String, [Vec<u8>; 2])> {
    let mut pairs = Vec::new();
    for is_six in [false, true] {
        let mut add = |what: &str, a: Vec<u8>, b: Vec<u8>| {
            pairs.push((format!("IPv{}: {what}", if is_six { 6 } else { 4 }), [a, b]));
        };
        let flow = Flow::new(is_six, random);
        let others: [(&str, Change); 7] = [
            ("source", |flow| flow.source ^= 0x55),
            ("destination", |flow| flow.destination ^= 0x55),
            ("source port", |flow| flow.ports[0] ^= 0x5554),
            ("destination port", |flow| flow.ports[1] ^= 0x5554),
            ("protocol", |flow| flow.protocol = UDP),
            ("ports in the other order", |flow| flow.ports.swap(0, 1)),
            ("label", |flow| flow.label ^= 0x4_4444),
        ];
        let others = &others[..if is_six { 7 } else { 6 }];
        for (what, change) in others {
            add(what, flow.packet(), flow.with(change).packet());
            let first = flow.fragment(0, true);
            add(&format!("first fragments, {what}"), first.clone(), flow.with(change).fragment(0, true));
            add(&format!("fragments, {what}"), first, flow.with(change).fragment(9, true));
        }
        add("whole and fragment", flow.packet(), flow.fragment(9, false));
        // Which of the networks is the source's differs in IPv4; both are behind the next hops.
        let mut back = flow.reverse().packet();
        if !is_six {
            back[12..20].copy_from_slice(&[203, 0, 113, flow.destination, 192, 0, 2, flow.source]);
            refresh(&mut back);
        }
        add("the other direction", flow.packet(), back);
        let mut other_class = flow.packet();
        other_class[if is_six { 0 } else { 1 }] |= 8;
        other_class[if is_six { 7 } else { 8 }] = 9;
        if !is_six {
            refresh(&mut other_class);
        }
        add("class and hops", flow.packet(), other_class);
        // Ports, or what stands there.
        for protocol in [17, 33, 50, 51, 132, 136, 200] {
            let payload = |word: usize| {
                let mut payload = [1; 24];
                payload[word * 4] = 2;
                flow.carrying(protocol, &payload)
            };
            for word in 0..3 {
                add(&format!("word {word} of protocol {protocol}"), payload(word), payload(5));
            }
        }
        // Routers on the way, others for each pair.
        let (near, far) = (flow.source ^ 0x33, flow.source ^ 0x66);
        let icmp = |kind: u8, number: u8| flow.error(kind, near, &[&[number][..], &[0; 40]].concat());
        let echo = if is_six { 128 } else { 8 };
        add("number of an echo", icmp(echo, 1), icmp(echo, 2));
        add("echo and TCP", icmp(echo, 1), flow.with(|flow| flow.source = near).packet());
        // About what the far end sent.
        let about = flow.reverse();
        for kind in [1, 2, 3, 4, 5, 11, 12, 13, 137] {
            add(
                &format!("flow and ICMP {kind} about it"),
                flow.packet(),
                flow.error(kind, near, &about.packet()),
            );
            add(
                &format!("router that sends ICMP {kind}"),
                flow.error(kind, near, &about.packet()),
                flow.error(kind, far, &about.packet()),
            );
        }
        for (what, change) in others {
            let about_another = about.with(change).packet();
            let [a, b] = [about.packet(), about_another].map(|about| flow.error(3, near, &about));
            add(&format!("{what} in an error"), a, b);
        }
        // With their marks, one byte less than a header, and just one.
        let header = if is_six { 40 } else { 20 };
        for length in [header - 9, header - 8] {
            let short = about.packet()[..length].to_vec();
            let [a, b] = [near, far].map(|from| flow.error(3, from, &short));
            add(&format!("router that sends an error about {length} bytes"), a, b);
        }
        // Tunnels.
        let teb = |kind: [u8; 2]| [&[0, 0, 0x65, 0x58][..], &[2; 12], &kind].concat();
        for inner_six in [false, true] {
            let inside = Flow::new(inner_six, random);
            let kind = if inner_six { [0x86, 0xdd] } else { [8, 0] };
            let key = [&[0x20, 0][..], &kind, &[1, 2, 3, 4]].concat();
            let all = [&[0xb0, 0][..], &kind, &[0; 4], &[1, 2, 3, 4], &[0; 4]].concat();
            let headers = [
                ("IP", vec![]),
                ("GRE", [&[0, 0][..], &kind].concat()),
                ("GRE with key", key.clone()),
                ("GRE with all", all),
                ("GRE with routing", [&[0x40, 0][..], &kind].concat()),
                ("GRE version 2", [&[0, 2][..], &kind].concat()),
                ("Ethernet in GRE", teb(kind)),
            ];
            for (name, header) in &headers {
                for (what, change) in others {
                    let [a, b] =
                        [inside.clone(), inside.with(change)].map(|inside| flow.tunnel(header, &inside));
                    add(&format!("{what} in {name}, inner IPv6: {inner_six}"), a, b);
                }
                let [a, b] = [flow.source, flow.source ^ 0x55]
                    .map(|source| flow.with(|flow| flow.source = source).tunnel(header, &inside));
                add(&format!("source outside of {name}, inner IPv6: {inner_six}"), a, b);
            }
            let mut other_key = key.clone();
            other_key[7] = 9;
            add(
                &format!("key of GRE, inner IPv6: {inner_six}"),
                flow.tunnel(&key, &inside),
                flow.tunnel(&other_key, &inside),
            );
            // A label that is zero.
            let unlabelled = inside.with(|inside| inside.label = 0);
            let [a, b] = [flow.label, flow.label ^ 0x4_4444]
                .map(|label| flow.with(|flow| flow.label = label).tunnel(&[], &unlabelled));
            add(&format!("label outside of none, inner IPv6: {inner_six}"), a, b);
            // In two tunnels, in a fragment, and cut off.
            for (what, change) in others {
                let [a, b] = [inside.clone(), inside.with(change)].map(|inside| {
                    let middle = flow.with(|flow| flow.source = 9).tunnel(&[], &inside);
                    flow.carrying(if is_six { 41 } else { 4 }, &middle)
                });
                add(&format!("{what} in two tunnels, inner IPv6: {inner_six}"), a, b);
                let [a, b] = [inside.clone(), inside.with(change)]
                    .map(|inside| flow.carrying(if inner_six { 41 } else { 4 }, &inside.fragment(0, true)));
                add(&format!("{what} in a fragment in a tunnel, inner IPv6: {inner_six}"), a, b);
            }
            let cut = inside.packet()[..11].to_vec();
            let [a, b] = [flow.source, flow.source ^ 0x55].map(|source| {
                flow.with(|flow| flow.source = source).carrying(if inner_six { 41 } else { 4 }, &cut)
            });
            add(&format!("source outside of a cut packet, inner IPv6: {inner_six}"), a, b);
        }
        if is_six {
            // Behind options for the destination, and a route.
            for header in [60, 43] {
                let behind = |flow: &Flow| {
                    let options = [&[flow.protocol, 0, 1, 4, 0, 0, 0, 0][..], &flow.transport()].concat();
                    flow.carrying(header, &options)
                };
                add(&format!("with and without header {header}"), flow.packet(), behind(&flow));
                for (what, change) in others {
                    add(&format!("{what} behind header {header}"), behind(&flow), behind(&flow.with(change)));
                }
            }
        }
    }
    pairs
}

/// What of the pairs of packets has one path.
struct Probe {
    from: Wire,
    to: Wire,
    random: SplitMix64,
}

impl Probe {
    fn new(network: &Network) -> Probe {
        let from = Wire::open(network.namespace("a"), "af_packet:eth0");
        let to = Wire::open(network.namespace("b"), "af_packet:eth0?ring=8192&promiscuous=yes");
        Probe { from, to, random: SplitMix64::new(44) }
    }

    /// Of each kind of pair, whether all pairs have one path.
    fn look(&mut self) -> BTreeMap<String, bool> {
        let mut same = BTreeMap::new();
        for _ in 0..SAMPLES {
            for chunk in pairs(&mut self.random).chunks(64) {
                let packets: Vec<&Vec<u8>> = chunk.iter().flat_map(|(_, pair)| pair).collect();
                let paths = self.paths(&packets);
                for ((what, _), path) in chunk.iter().zip(paths.chunks(2)) {
                    *same.entry(what.clone()).or_insert(true) &= path[0] == path[1];
                }
            }
        }
        same
    }

    /// The next hop of each packet. Each gets a mark behind its end that is part of the payload; what is lost is sent again.
    fn paths(&mut self, packets: &[&Vec<u8>]) -> Vec<u8> {
        let round = self.random.next_u64();
        let marked: Vec<Vec<u8>> =
            (0..).zip(packets).map(|(number, packet)| marked(packet, round.wrapping_add(number))).collect();
        let mut paths: Vec<Option<u8>> = vec![None; packets.len()];
        let mut waits = 0;
        let arrived = eventually(|| {
            if waits % 500 == 0 {
                for (packet, _) in marked.iter().zip(&paths).filter(|(_, path)| path.is_none()) {
                    let kind = if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
                    self.from.send(&frame(kind, packet));
                }
            }
            waits += 1;
            for frame in self.to.received() {
                let Some(mark) = frame.last_chunk() else { continue };
                let number = u64::from_be_bytes(*mark).wrapping_sub(round);
                if let Some(path) = usize::try_from(number).ok().and_then(|number| paths.get_mut(number)) {
                    *path = Some(frame[5]);
                }
            }
            paths.iter().all(Option::is_some)
        });
        let lost: Vec<&Vec<u8>> = packets
            .iter()
            .zip(&paths)
            .filter(|(_, path)| path.is_none())
            .map(|(packet, _)| *packet)
            .collect();
        assert!(arrived, "did not arrive: {lost:02x?}");
        paths.into_iter().flatten().collect()
    }
}

/// The packet with eight bytes more, which its length counts.
fn marked(packet: &[u8], mark: u64) -> Vec<u8> {
    let mut packet = [packet, &mark.to_be_bytes()].concat();
    let length = packet.len() as u16;
    if packet[0] >> 4 == 6 {
        packet[4..6].copy_from_slice(&(length - 40).to_be_bytes());
    } else {
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        refresh(&mut packet);
    }
    packet
}

fn set_policy(network: &Network, (policy, fields): (u32, u32)) {
    for family in ["ipv4", "ipv6"] {
        network.set("r", &format!("net.{family}.fib_multipath_hash_fields={fields}"));
        network.set("r", &format!("net.{family}.fib_multipath_hash_policy={policy}"));
    }
}

fn what_has_one_path_in_linux_has_one_path(driver: &str) {
    if !is_root() {
        return;
    }
    let network = network();
    let mut probe = Probe::new(&network);
    let of_linux = POLICIES.map(|policy| {
        set_policy(&network, policy);
        probe.look()
    });
    let kinds = of_linux[0].len();
    let _router = start(&network, &format!("eth1 eth2 --driver {driver}"));
    for (policy, of_linux) in POLICIES.into_iter().zip(of_linux) {
        set_policy(&network, policy);
        let differing = |ours: &BTreeMap<String, bool>| -> Vec<String> {
            let linux = of_linux.iter().filter(|(what, same)| ours.get(*what) != Some(same));
            linux.map(|(what, same)| format!("{what}: one path in Linux: {same}")).collect()
        };
        let mut differs = Vec::new();
        let mut punted = u64::MAX;
        // The router reads the policy again and again.
        eventually(|| {
            let before = forwarded_by_the_kernel(&network);
            differs = differing(&probe.look());
            punted = forwarded_by_the_kernel(&network) - before;
            differs.is_empty() && punted == 0
        });
        assert!(differs.is_empty(), "{driver}, policy {policy:?}: {differs:#?}");
        assert_eq!(punted, 0, "{driver}, policy {policy:?}: packets that Linux forwarded");
        let same = of_linux.values().filter(|same| **same).count();
        println!("{driver}, policy {policy:?}: {same} of {kinds} kinds of pairs have one path");
    }
}

#[test]
fn in_the_kernel() {
    what_has_one_path_in_linux_has_one_path("xdp");
}

#[test]
fn in_the_workers() {
    what_has_one_path_in_linux_has_one_path("af_packet");
}
