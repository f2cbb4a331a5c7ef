//! The program and the router's tables: what it finds, what it writes, what it leaves.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use fib::policy::{AddressRange, PolicyAction, PolicyRule};
use fib::{Adjacency, Decision, Fib, MAIN, MOST_SHARED_RULES, NextHop, NextHopIndex, Policy, Region, Rules};
use ipnet::{Ipv4Net, Ipv6Net};
use packet::checksum;
use packet::multipath::{PathHash, PathPolicies, PathPolicy};
use packet::random::SplitMix64;
use packet::{Family, IpVersion};
use testbed::is_root;

use super::*;
use crate::Links;
use crate::testing::{begin, command, in_namespace, ip, pool, send, soon, veth_pair};

pub(super) const REDIRECTED: u32 = 4;
const PASSED: u32 = 2;
/// The number of the loopback interface, by which test runs come in.
const LOOPBACK: u32 = 1;
/// A port that neither receives nor sends.
pub(super) const PORT: KernelPort = KernelPort {
    interface: LOOPBACK,
    mtu: 1500,
    longest: [u32::MAX; 2],
    is_vlan: false,
    receives: None,
    sends: false,
    sends_native: true,
    sends_native_fragments: true,
    sources: [Sources::All; 2],
    paint: 0,
};
pub(super) const KEY: FlowKey = FlowKey::from_seed(7);

#[test]
#[allow(unsafe_code, reason = "a handler that does nothing, and signals to this thread")]
fn the_program_is_loaded_though_signals_interrupt_the_verifier() {
    if !is_root() {
        return;
    }
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler touches nothing.
    let this_thread = unsafe {
        libc::signal(libc::SIGUSR2, nothing as *const () as libc::sighandler_t);
        libc::pthread_self()
    };
    let (loaded, is_loaded) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..15 {
                let _ = is_loaded.recv_timeout(std::time::Duration::from_millis(20));
                // SAFETY: the scope's owner is that thread, and outlives this one.
                unsafe { libc::pthread_kill(this_thread, libc::SIGUSR2) };
            }
        });
        KernelForwarding::load(0, KEY, false).unwrap();
        drop(loaded);
    });
}

/// Where the program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    Xdp,
    Tc,
}

impl Hook {
    const ALL: [Self; 2] = [Self::Xdp, Self::Tc];

    /// What counts as that among modes.
    fn mode(self) -> XdpMode {
        match self {
            Self::Xdp => XdpMode::Native,
            Self::Tc => XdpMode::Generic,
        }
    }
}

/// The program, with tables that it shares.
pub(super) struct Kernel {
    hook: Hook,
    pub(super) forwarding: KernelForwarding,
    pub(super) fib: Fib<Adjacency>,
    region: Arc<Region>,
    hash: PathHash,
}

impl Kernel {
    fn new(least_bytes: usize, hook: Hook) -> Self {
        Self::with(KernelForwarding::load(least_bytes, KEY, false).unwrap(), hook)
    }

    /// Port 0 receives, ports 1 to 9 send.
    pub(super) fn with(mut forwarding: KernelForwarding, hook: Hook) -> Self {
        let region = Region::new(forwarding.take_tables().unwrap());
        for number in 0..10 {
            let receives = (number == 0).then_some(hook.mode());
            forwarding.set_port(number, KernelPort { receives, sends: number != 0, ..PORT }).unwrap();
        }
        let hash = PathHash { key: KEY, policies: Arc::new(PathPolicies::default()) };
        Self { hook, forwarding, fib: Fib::new().unwrap(), region, hash }
    }

    /// Lets the program read the tables.
    pub(super) fn share(&mut self) {
        self.fib.share(Some((&self.region, KernelForwarding::slots())), || ()).unwrap();
        assert!(self.fib.is_shared_whole());
    }

    fn run(&mut self, frame: &[u8]) -> (u32, Vec<u8>) {
        match self.hook {
            Hook::Xdp => run(&mut self.forwarding, frame),
            Hook::Tc => run_in_tc(&mut self.forwarding, frame),
        }
    }

    /// What the router says: the frame as it is forwarded, if it is.
    pub(super) fn expected(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let length = match frame[12] {
            0x08 => u16::from_be_bytes([frame[16], frame[17]]),
            _ => 40 + u16::from_be_bytes([frame[18], frame[19]]),
        };
        let packet = &frame[14..14 + usize::from(length)];
        let next_hop = match frame[12] {
            0x08 => self.fib.state().lookup4(0, word(&packet[16..]), self.hash.of_ipv4(packet)?),
            _ => {
                let destination = u128::from_be_bytes(packet[24..40].try_into().unwrap());
                self.fib.state().lookup6(0, destination, self.hash.of_ipv6(packet)?)
            }
        };
        let adjacency = next_hop.forward()?;
        let mut packet = packet.to_vec();
        match frame[12] {
            0x08 => {
                checksum::decrement_ttl(packet.first_chunk_mut().unwrap());
            }
            _ => packet[7] -= 1,
        }
        let mut rewrite = adjacency.rewrite().to_vec();
        if self.hook == Hook::Tc && rewrite.len() > 14 {
            // The tag lies beside.
            rewrite.drain(12..16);
        }
        Some([rewrite, packet].concat())
    }
}

/// Runs the program; what it says, and the frame then.
pub(super) fn run(forwarding: &mut KernelForwarding, frame: &[u8]) -> (u32, Vec<u8>) {
    forwarding.test_run(frame).unwrap()
}

/// The same in tc, in the words of XDP.
fn run_in_tc(forwarding: &mut KernelForwarding, frame: &[u8]) -> (u32, Vec<u8>) {
    const NEXT: u32 = u32::MAX;
    const TC_REDIRECTED: u32 = 7;
    let (said, now) = forwarding.test_run_in_tc(frame).unwrap();
    match said {
        NEXT => (PASSED, now),
        TC_REDIRECTED => (REDIRECTED, now),
        _ => panic!("it said {said} of {frame:02x?}"),
    }
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(*bytes.first_chunk().unwrap())
}

pub(super) fn ipv4(source: u32, destination: u32, protocol: u8, ports: u32) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 28, 0, 1, 0, 0, 64, protocol, 0, 0];
    header.extend(source.to_be_bytes());
    header.extend(destination.to_be_bytes());
    let check = checksum::ipv4_header_compute(&header);
    header[10..12].copy_from_slice(&check.to_be_bytes());
    let mut frame = vec![2; 12];
    frame.extend([8, 0]);
    frame.extend(header);
    frame.extend(ports.to_be_bytes());
    frame.resize(60, 9);
    frame
}

pub(super) fn ipv6(source: u128, destination: u128, protocol: u8, ports: u32) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, protocol, 64]);
    frame.extend(source.to_be_bytes());
    frame.extend(destination.to_be_bytes());
    frame.extend(ports.to_be_bytes());
    frame.extend([0; 4]);
    frame
}

/// Writes the checksum of an IPv4 header anew.
fn refresh(frame: &mut [u8]) {
    let header_len = usize::from(frame[14] & 15) * 4;
    frame[24..26].fill(0);
    let check = checksum::compute(&frame[14..14 + header_len]);
    frame[24..26].copy_from_slice(&check.to_be_bytes());
}

/// Next hops of every kind: 40 neighbours, one in a VLAN, a group, and those that are not forwarded to.
fn add_next_hops(fib: &mut Fib<Adjacency>) -> Vec<NextHopIndex> {
    let next_hops = fib.next_hops_mut();
    let mut numbers = Vec::new();
    for neighbour in 0..40u8 {
        let adjacency = Adjacency::ethernet(1 + u16::from(neighbour % 9), [neighbour; 6], [7; 6], [8, 0]);
        numbers.push(next_hops.add(NextHop::Forward(adjacency)).unwrap());
    }
    let tagged = Adjacency::tagged(3, [50; 6], [7; 6], 100, [8, 0]);
    let single = numbers.clone();
    numbers.push(next_hops.add(NextHop::Forward(tagged)).unwrap());
    for special in [NextHop::Blackhole, NextHop::Local, NextHop::Resolve(2), NextHop::Punt] {
        numbers.push(next_hops.add(special).unwrap());
    }
    let members: Vec<_> = single[..5].iter().map(|&index| (index, 1)).collect();
    numbers.push(next_hops.add_group(&members).unwrap());
    numbers
}

/// Routes of all lengths, dense enough to nest.
fn add_routes(fib: &mut Fib<Adjacency>, numbers: &[NextHopIndex], count: usize, random: &mut SplitMix64) {
    for route in 0..count {
        let next_hop = numbers[random.next_u64() as usize % numbers.len()];
        let bits = random.next_u64() as u32;
        let length = match route % 4 {
            0 => 8 + bits as u8 % 16,
            1 | 2 => 24,
            _ => 25 + bits as u8 % 8,
        };
        let network = Ipv4Addr::from(10 << 24 | (bits & 0x000f_3fff) << 2 | (bits >> 28));
        fib.replace(MAIN, ipnet::IpNet::new(network.into(), length).unwrap().trunc(), next_hop).unwrap();
        let high = 0x2001 << 48 | (random.next_u64() & 0x03ff_0fff_0f0f);
        let low = random.next_u64() & 0xff00_0000_0000_00ff;
        let network = Ipv6Addr::from(u128::from(high) << 64 | u128::from(low));
        let length = [20, 32, 44, 48, 56, 60, 64, 90, 128][random.next_u64() as usize % 9];
        fib.replace(MAIN, ipnet::IpNet::new(network.into(), length).unwrap().trunc(), next_hop).unwrap();
    }
}

#[test]
fn it_forwards_by_the_routers_tables_what_they_have_a_neighbour_for() {
    if is_root() {
        Hook::ALL.into_iter().for_each(it_forwards_by_the_routers_tables_what_they_have_a_neighbour_for_at);
    }
}

fn it_forwards_by_the_routers_tables_what_they_have_a_neighbour_for_at(hook: Hook) {
    let mut random = SplitMix64::new(1);
    let mut kernel = Kernel::new(32 << 20, hook);
    let numbers = add_next_hops(&mut kernel.fib);
    // Before the program reads them, and after.
    for round in 0..3 {
        add_routes(&mut kernel.fib, &numbers, 10_000, &mut random);
        kernel.fib.publish();
        if round == 0 {
            kernel.share();
        }
        assert!(kernel.fib.is_shared_whole());
        let mut forwarded = 0;
        for _ in 0..10_000 {
            let bits = random.next_u64();
            let destination = 10 << 24 | (bits as u32 & 0x000f_3fff) << 2 | (bits >> 60) as u32;
            let protocol = [1, 6, 17, 132][bits as usize >> 40 & 3];
            let source = 0x0100_0000 + (bits >> 32) as u32 % 0x0800_0000;
            // An echo, if it is ICMP.
            let four = ipv4(source, destination, protocol, (bits >> 20) as u32 & 0xff_ffff | 8 << 24);
            let high = 0x2001 << 48 | (random.next_u64() & 0x03ff_0fff_0f0f);
            let low = random.next_u64() & 0xff00_0000_0000_00ff;
            let six = ipv6(
                0x2002 << 112 | u128::from(bits),
                u128::from(high) << 64 | u128::from(low),
                protocol,
                bits as u32,
            );
            for frame in [four, six] {
                let (said, now) = kernel.run(&frame);
                match kernel.expected(&frame) {
                    Some(expected) => {
                        assert_eq!((said, &now), (REDIRECTED, &expected), "{frame:02x?}");
                        forwarded += 1;
                    }
                    None => assert_eq!((said, &now), (PASSED, &frame), "{frame:02x?}"),
                }
            }
        }
        assert!((4_000..20_000).contains(&forwarded), "{forwarded}");
    }
    // Nothing is read after they are gone.
    kernel.fib.share(None, || ()).unwrap();
    assert!(!kernel.fib.is_shared_whole());
}

/// Has an ICMP message quote a packet of one of a few flows, all of its header or most of it. The message's kind is mostly an error's.
fn put_inside(frame: &mut Vec<u8>, bits: u64, is_cut: bool) {
    let (flow, kind) = (bits as u8 & 3, (bits >> 8) as u8 % 13);
    let (inner, message) = match frame[12] {
        0x08 => (ipv4(0x0a00_0000 + u32::from(flow), 0x0b00_0001, 6, 0)[14..34].to_vec(), 34),
        _ => (ipv6(0x2001 << 112 | u128::from(flow), 0x2001 << 112 | 1, 6, 0)[14..54].to_vec(), 54),
    };
    frame.truncate(message);
    frame.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
    frame.extend(&inner[..inner.len() - usize::from(is_cut)]);
    let (place, bytes) = if message == 34 { (16, frame.len() - 14) } else { (18, frame.len() - 54) };
    frame[place..place + 2].copy_from_slice(&(bytes as u16).to_be_bytes());
    if message == 34 {
        refresh(frame);
    }
}

#[test]
fn members_of_groups_are_those_of_the_graph_by_every_policy() {
    if is_root() {
        Hook::ALL.into_iter().for_each(members_of_groups_are_those_of_the_graph_by_every_policy_at);
    }
}

fn members_of_groups_are_those_of_the_graph_by_every_policy_at(hook: Hook) {
    let mut kernel = Kernel::new(16 << 20, hook);
    let numbers = add_next_hops(&mut kernel.fib);
    for prefix in ["0.0.0.0/0", "::/0"] {
        kernel.fib.insert(MAIN, prefix.parse().unwrap(), numbers[numbers.len() - 1]).unwrap();
    }
    kernel.fib.publish();
    kernel.share();
    let mut random = SplitMix64::new(5);
    for (policy, fields) in [(0, 0), (1, 0), (2, 0), (3, 0), (3, 0x3f), (3, 0x2a), (3, 0xfff), (9, 0)] {
        for version in IpVersion::ALL {
            kernel.hash.policies.set(version, PathPolicy::new(version, policy, fields));
        }
        kernel.forwarding.set_path_policies(&kernel.hash.policies);
        let (mut ways, mut left) = (std::collections::HashSet::new(), 0);
        for round in 0..600_usize {
            let bits = random.next_u64();
            let protocol = [1, 4, 6, 17, 33, 41, 47, 50, 51, 58, 132, 136, 200][bits as usize % 13];
            // The first of the "ports" is the type of ICMP.
            let ports = (bits >> 8) as u32 & 0x0fff_ffff;
            let four = ipv4(0x0a00_0000 + (bits >> 48) as u32, 0x0b00_0001, protocol, ports);
            let mut six = ipv6(0x2001 << 112 | u128::from(bits >> 48), 0x2001 << 112 | 1, protocol, ports);
            six[15] |= bits as u8 >> 4;
            six[17] = (bits >> 8) as u8;
            let mut frame = if round % 2 == 0 { four } else { six };
            if matches!(protocol, 1 | 58) && round % 3 > 0 {
                // A packet inside, whole or not, of an error or not.
                put_inside(&mut frame, random.next_u64(), round % 9 == 8);
            }
            let is_tunnel = matches!(protocol, 4 | 41 | 47);
            let is_for_graph = match policy {
                0 => false,
                2 => is_tunnel,
                3 => is_tunnel && fields > 0x3f,
                1 => false,
                _ => true,
            };
            let (said, now) = kernel.run(&frame);
            if is_for_graph || protocol == 51 {
                assert_eq!((said, &now), (PASSED, &frame), "policy {policy} {fields}: {frame:02x?}");
                left += 1;
                continue;
            }
            let expected = kernel.expected(&frame).unwrap();
            assert_eq!((said, &now), (REDIRECTED, &expected), "policy {policy} {fields}: {frame:02x?}");
            ways.insert(now[5]);
        }
        // Without fields, all go one way.
        let all = match (policy, fields) {
            (3, 0) => 1,
            (9, _) => 0,
            _ => 5,
        };
        assert_eq!(ways.len(), all, "policy {policy} {fields}: {left} left to the graph");
        assert!(left > 20, "policy {policy} {fields}: {left}");
    }
}

#[test]
fn what_is_not_ordinary_goes_on_as_it_came() {
    if is_root() {
        Hook::ALL.into_iter().for_each(what_is_not_ordinary_goes_on_as_it_came_at);
    }
}

fn what_is_not_ordinary_goes_on_as_it_came_at(hook: Hook) {
    let mut kernel = Kernel::new(16 << 20, hook);
    let numbers = add_next_hops(&mut kernel.fib);
    for prefix in ["0.0.0.0/0", "::/0"] {
        kernel.fib.insert(MAIN, prefix.parse().unwrap(), numbers[0]).unwrap();
    }
    kernel.fib.publish();
    kernel.share();
    let (a, b) = (0x0a00_0001, 0xc633_6401);
    let (a6, b6) = (0x2001_0db8 << 96 | 1, 0x2a00 << 112 | 1);
    let good = [ipv4(a, b, 17, 5), ipv6(a6, b6, 17, 5)];
    for frame in &good {
        assert_eq!(kernel.run(frame), (REDIRECTED, kernel.expected(frame).unwrap()));
    }
    let changed = |at: usize, value: u8| {
        let mut frame = good[0].clone();
        frame[at] = value;
        refresh(&mut frame);
        frame
    };
    let changed6 = |at: usize, value: u8| {
        let mut frame = good[1].clone();
        frame[at] = value;
        frame
    };
    let mut bad_checksum = good[0].clone();
    bad_checksum[24] ^= 1;
    let mut long = good[0].clone();
    long.resize(14 + 1501, 0);
    long[16..18].copy_from_slice(&1501u16.to_be_bytes());
    refresh(&mut long);
    let odd = [
        bad_checksum,
        long,
        // Version, options, lengths, the last hop.
        changed(14, 0x65),
        changed(14, 0x46),
        changed(17, 19),
        changed(17, 60),
        changed(22, 1),
        changed(22, 0),
        // Martians.
        changed(26, 0),
        changed(26, 127),
        changed(26, 224),
        changed(26, 255),
        changed(30, 0),
        changed(30, 224),
        changed6(14, 0x45),
        changed6(19, 9),
        changed6(21, 1),
        changed6(20, 0),
        changed6(20, 44),
        changed6(22, 0xff),
        changed6(38, 0xff),
        [&changed6(22, 0xfe)[..23], &[0x80], &good[1][24..]].concat(),
        // Another type, and pieces.
        changed(13, 6),
        good[0][..33].to_vec(),
        good[1][..53].to_vec(),
    ];
    for frame in odd {
        // The kernel runs no tests in tc of cut headers.
        if hook == Hook::Tc && frame.len() < 54 {
            continue;
        }
        assert_eq!(kernel.run(&frame), (PASSED, frame));
    }
    // Sources that are the host's own.
    kernel.forwarding.set_own_addresses(&[Ipv4Addr::from(a).into(), Ipv6Addr::from(a6).into()]);
    for frame in &good {
        assert_eq!(kernel.run(frame), (PASSED, frame.clone()));
    }
    kernel.forwarding.set_own_addresses(&[]);
    // A way out that cannot be used, with another MTU, or the way it came.
    let port = KernelPort { sends: true, ..PORT };
    for (change, said) in [
        (KernelPort { sends: false, ..port }, PASSED),
        (KernelPort { sends_native: false, ..port }, if hook == Hook::Xdp { PASSED } else { REDIRECTED }),
        (KernelPort { mtu: 27, ..port }, PASSED),
        (KernelPort { mtu: 28, ..port }, REDIRECTED),
        (KernelPort { longest: [27, 1_500], ..port }, PASSED),
        (KernelPort { longest: [28, 0], ..port }, REDIRECTED),
        (port, REDIRECTED),
    ] {
        kernel.forwarding.set_port(1, change).unwrap();
        assert_eq!(kernel.run(&good[0]).0, said, "{change:?}");
    }
    let back = Adjacency::ethernet(0, [1; 6], [7; 6], [8, 0]);
    let back = kernel.fib.next_hops_mut().add(NextHop::Forward(back)).unwrap();
    kernel.fib.replace(MAIN, "0.0.0.0/0".parse().unwrap(), back).unwrap();
    kernel.fib.publish();
    assert_eq!(kernel.run(&good[0]), (PASSED, good[0].clone()));
    // Nobody's port.
    kernel.forwarding.set_port(0, PORT).unwrap();
    assert_eq!(kernel.run(&good[1]).0, PASSED);
}

#[test]
fn it_believes_sources_or_leaves_them_to_be_judged() {
    if is_root() {
        Hook::ALL.into_iter().for_each(it_believes_sources_or_leaves_them_to_be_judged_at);
    }
}

fn it_believes_sources_or_leaves_them_to_be_judged_at(hook: Hook) {
    let mut kernel = Kernel::new(16 << 20, hook);
    let numbers = add_next_hops(&mut kernel.fib);
    let back = Adjacency::ethernet(0, [1; 6], [7; 6], [8, 0]);
    let back = kernel.fib.next_hops_mut().add(NextHop::Forward(back)).unwrap();
    // By the port where the packets come in, by another, by none.
    let routes = [("10.0.0.0/8", back), ("11.0.0.0/8", numbers[0]), ("12.0.0.0/8", numbers[41])];
    let routes6 = [("2001:a::/32", back), ("2001:b::/32", numbers[0]), ("2001:c::/32", numbers[41])];
    for (prefix, next_hop) in routes.into_iter().chain(routes6) {
        kernel.fib.insert(MAIN, prefix.parse().unwrap(), next_hop).unwrap();
    }
    kernel.fib.publish();
    kernel.share();
    let receiving = KernelPort { receives: Some(hook.mode()), ..PORT };
    for (sources, expected) in [
        (Sources::All, [REDIRECTED; 4]),
        (Sources::Loose, [REDIRECTED, REDIRECTED, PASSED, PASSED]),
        (Sources::Strict, [REDIRECTED, PASSED, PASSED, PASSED]),
    ] {
        for is_six in [false, true] {
            let mut port = receiving;
            port.sources[usize::from(is_six)] = sources;
            kernel.forwarding.set_port(0, port).unwrap();
            let said = [10u8, 11, 12, 13].map(|first| {
                let frame = if is_six {
                    ipv6(0x2001 << 112 | u128::from(first) << 96 | 1, 0x2001_000b << 96 | 5, 6, 0)
                } else {
                    ipv4(u32::from(first) << 24 | 1, 0x0b00_0005, 6, 0)
                };
                kernel.run(&frame).0
            });
            assert_eq!(said, expected, "{sources:?} {is_six}");
        }
    }
}

/// Rules that choose among three tables, made at random.
fn random_rules<A: Family>(random: &mut SplitMix64, net: impl Fn(u64) -> A::Net) -> Rules<A> {
    let mut below = |most: u64| random.next_u64() % most;
    if below(6) == 0 {
        return Rules::default();
    }
    let count = below(12) as usize;
    let mut rule = |place: usize| {
        let mut range = || (below(3) == 0).then(|| AddressRange::of(net(below(8))));
        let (from, to) = (range(), range());
        let ports: Vec<u16> = [0, 4, 300].into_iter().filter(|_| below(2) == 0).collect();
        let action = match below(12) {
            0 => PolicyAction::End(Decision::Prohibit),
            1 => PolicyAction::Nop,
            2 => PolicyAction::Goto(place + 1 + below(4) as usize),
            3..6 => {
                let vrf = |_| (below(2) == 0).then(|| below(3) as usize);
                PolicyAction::LookupOfPort((0..5).map(vrf).collect())
            }
            _ => PolicyAction::Lookup(below(3) as usize),
        };
        PolicyRule {
            from,
            to,
            input_ports: (below(4) == 0).then_some(ports),
            is_inverted: below(5) == 0,
            is_partly_unknown: below(12) == 0,
            action,
        }
    };
    Rules::new((0..count).map(&mut rule).collect())
}

/// The port that packets come in by, where rules choose.
const IN: u16 = 4;

/// What the router does with a packet that comes in by that port, if it forwards it plainly: the link header.
fn by_rules<A: Family>(
    fib: &Fib<Adjacency>,
    rules: &Rules<A>,
    sources: Sources,
    [source, destination]: [A; 2],
    lookup: impl Fn(usize, A) -> NextHopIndex,
) -> Option<Vec<u8>> {
    let next_hop = |decision: Decision| match decision {
        Decision::Route(number) => fib.state().next_hops().resolve(number, 0).forward(),
        _ => None,
    };
    let way = next_hop(rules.evaluate(IN, source, destination, |vrf| lookup(vrf, destination)))?;
    let answer = next_hop(rules.evaluate_answer(IN, source, destination, |vrf| lookup(vrf, source)));
    let is_believed = match sources {
        Sources::All => true,
        Sources::Loose => answer.is_some(),
        Sources::Strict => answer.is_some_and(|answer| answer.port() == IN),
    };
    (is_believed && way.port() != IN).then(|| way.rewrite().to_vec())
}

#[test]
fn policy_rules_choose_the_tables_as_the_router_evaluates_them() {
    if is_root() {
        Hook::ALL.into_iter().for_each(policy_rules_choose_the_tables_as_the_router_evaluates_them_at);
    }
}

fn policy_rules_choose_the_tables_as_the_router_evaluates_them_at(hook: Hook) {
    let mut random = SplitMix64::new(3);
    let mut kernel = Kernel::new(64 << 20, hook);
    let numbers = add_next_hops(&mut kernel.fib);
    let back = Adjacency::ethernet(IN, [1; 6], [7; 6], [8, 0]);
    let back = kernel.fib.next_hops_mut().add(NextHop::Forward(back)).unwrap();
    // First and last addresses of eight networks of each family. Each table has some of these, and routes that throw.
    let address4 = |number: u64| {
        let last = (number as u32 >> 3 & 1) * 0xffff;
        0x0a00_0000 | (number as u32 & 7) << 16 | last
    };
    let address6 = |number: u64| {
        let last = u128::from(number >> 3 & 1) * u128::from(u64::MAX);
        0x2001_0db8 << 96 | u128::from(number & 7) << 64 | last
    };
    let net4 = |number| Ipv4Net::new(Ipv4Addr::from(address4(number)), 16).unwrap().trunc();
    let net6 = |number| Ipv6Net::new(Ipv6Addr::from(address6(number)), 64).unwrap().trunc();
    for table in [MAIN, 7, 8] {
        if table != MAIN {
            kernel.fib.add_vrf(table).unwrap();
        }
        for net in (0..8).flat_map(|number| [net4(number).into(), net6(number).into()]) {
            let next_hop = match random.next_u64() % 8 {
                0..3 => continue,
                3 => NextHopIndex::NONE,
                4 => back,
                other => numbers[(other as usize + table as usize % 8) % 9],
            };
            kernel.fib.replace(table, net, next_hop).unwrap();
        }
    }
    kernel.forwarding.set_port(0, PORT).unwrap();
    let mut forwarded = 0;
    for round in 0..150 {
        let mut policy =
            Policy { ipv4: random_rules(&mut random, net4), ipv6: random_rules(&mut random, net6) };
        if round == 149 {
            policy.ipv4 = Rules::new(vec![PolicyRule::all(PolicyAction::Lookup(0)); MOST_SHARED_RULES]);
            policy.ipv6 = Rules::new(vec![PolicyRule::all(PolicyAction::Lookup(0)); MOST_SHARED_RULES + 1]);
        }
        kernel.fib.set_shared_policy(&policy);
        if round == 0 {
            kernel.share();
        } else {
            kernel.fib.publish();
        }
        let sources = [Sources::All, Sources::Loose, Sources::Strict][round % 3];
        let receiving = KernelPort { receives: Some(hook.mode()), sources: [sources; 2], ..PORT };
        kernel.forwarding.set_port(IN, receiving).unwrap();
        for _ in 0..40 {
            let pair = [random.next_u64(), random.next_u64()];
            let (four, six) = (pair.map(address4), pair.map(address6));
            let state = kernel.fib.state();
            let lookup4 = |vrf, address| state.ipv4(vrf).unwrap().lookup(address);
            let lookup6 = |vrf, address| state.ipv6(vrf).unwrap().lookup(address);
            let is_too_many = policy.ipv6.list().len() > MOST_SHARED_RULES;
            let cases = [
                (ipv4(four[0], four[1], 1, 0), by_rules(&kernel.fib, &policy.ipv4, sources, four, lookup4)),
                (
                    ipv6(six[0], six[1], 58, 0),
                    by_rules(&kernel.fib, &policy.ipv6, sources, six, lookup6).filter(|_| !is_too_many),
                ),
            ];
            for (frame, expected) in cases {
                let (said, now) = kernel.run(&frame);
                match expected {
                    Some(rewrite) => {
                        assert_eq!((said, &now[..14]), (REDIRECTED, &rewrite[..]), "{round} {policy:?}");
                        forwarded += 1;
                    }
                    None => assert_eq!((said, now), (PASSED, frame), "{round} {policy:?}"),
                }
            }
        }
    }
    assert!((800..9_000).contains(&forwarded), "{forwarded}");
}

#[test]
fn tags_come_and_go() {
    if !is_root() {
        return;
    }
    let mut kernel = Kernel::new(16 << 20, Hook::Xdp);
    add_next_hops(&mut kernel.fib);
    // Port 0 has VLANs 5 and 6; the former is port 9, which receives too.
    let vlan = KernelPort { receives: Some(XdpMode::Native), sends: true, is_vlan: true, ..PORT };
    kernel.forwarding.set_port(9, vlan).unwrap();
    assert_eq!(kernel.forwarding.set_vlans(&[(0, 5, 9)]), [0u16; 0]);
    let mut next_hop = |adjacency| kernel.fib.next_hops_mut().add(NextHop::Forward(adjacency)).unwrap();
    let plain = next_hop(Adjacency::ethernet(1, [1; 6], [7; 6], [8, 0]));
    let tagged = next_hop(Adjacency::tagged(2, [2; 6], [7; 6], 77, [8, 0]));
    let back = next_hop(Adjacency::tagged(9, [3; 6], [7; 6], 5, [8, 0]));
    for (prefix, next_hop) in [("11.0.0.0/8", plain), ("12.0.0.0/8", tagged), ("13.0.0.0/8", back)] {
        kernel.fib.insert(MAIN, prefix.parse().unwrap(), next_hop).unwrap();
    }
    kernel.fib.publish();
    kernel.share();
    let tag = |frame: &[u8], number: u8| [&frame[..12], &[0x81, 0, 0x60, number], &frame[12..]].concat();
    for first in [11, 12, 13] {
        let frame = ipv4(0x0a00_0001, first << 24 | 9, 17, 5);
        let expected = kernel.expected(&frame).unwrap();
        // In by the port itself, and by its VLAN.
        assert_eq!(kernel.run(&frame), (REDIRECTED, expected.clone()), "{first}");
        let (said, now) = kernel.run(&tag(&frame, 5));
        match first {
            13 => assert_eq!((said, now), (PASSED, tag(&frame, 5)), "it would leave as it came"),
            _ => assert_eq!((said, now), (REDIRECTED, expected), "{first}"),
        }
        // A VLAN that is not a port, a priority tag, a service tag.
        for other in
            [tag(&frame, 6), tag(&frame, 0), [&frame[..12], &[0x88, 0xa8, 0, 5], &frame[12..]].concat()]
        {
            assert_eq!(kernel.run(&other), (PASSED, other));
        }
    }
    let counted = kernel.forwarding.traffic(9).unwrap();
    assert_eq!((counted.rx_packets, counted.tx_packets), (2, 1));
    assert_eq!((counted.rx_bytes, counted.tx_bytes), (2 * (18 + 28), 18 + 28));
}

#[test]
fn packets_that_drivers_lose_are_counted_by_reason() {
    in_namespace(|| {
        veth_pair("left", "right");
        veth_pair("out", "far");
        // Without NAPI the far end takes nothing that is redirected.
        command("ethtool", "-K far gro off");
        let mut kernel = Kernel::new(16 << 20, Hook::Xdp);
        let number = |name: &str| Links::ask().unwrap().named(name).unwrap().index;
        let [right, out] = ["right", "out"].map(number);
        let receives = KernelPort { interface: right, receives: Some(XdpMode::Native), ..PORT };
        kernel.forwarding.set_port(0, receives).unwrap();
        kernel.forwarding.set_port(1, KernelPort { interface: out, sends: true, ..PORT }).unwrap();
        let next_hop = NextHop::Forward(Adjacency::ethernet(1, [1; 6], [7; 6], [8, 0]));
        let next_hop = kernel.fib.next_hops_mut().add(next_hop).unwrap();
        kernel.fib.insert(MAIN, "11.0.0.0/8".parse().unwrap(), next_hop).unwrap();
        kernel.fib.publish();
        kernel.share();
        let mut counter = LossCounter::load().unwrap();
        counter.set_ports([(right, 0), (out, 1)].into_iter()).unwrap();

        let open = |spec: &str| crate::open(spec, &crate::OpenOptions::default()).unwrap();
        let (mut left, mut port) = (open("left"), open("af_xdp:right?steer=transit&mode=native"));
        let mut pool = pool(4_096);
        let mut tx = left.take_tx(0).unwrap();
        tx.prepare(&mut pool).unwrap();
        let mut rx = port.take_rx(0).unwrap();
        begin(&mut *rx, &mut pool);
        let mac = port.info().mac;
        port.host().unwrap().forward_in_kernel(&mut kernel.forwarding, 0, false).unwrap();
        let mut frame = ipv4(0x0a00_0001, 0x0b00_0001, 17, 5);
        frame[..6].copy_from_slice(&mac.0);
        let frames = vec![frame; 10];

        let lost = |counter: &LossCounter| counter.losses(1).unwrap();
        let refused = KernelLosses { refused: 10, ..KernelLosses::default() };
        send(&mut *tx, &mut pool, &frames);
        soon("the driver has refused ten packets", || lost(&counter) == refused);
        command("ethtool", "-K far gro on");
        ip("link set out down");
        let unsent = KernelLosses { unsent: 10, ..refused };
        send(&mut *tx, &mut pool, &frames);
        soon("ten packets met an interface that is down", || lost(&counter) == unsent);
        // What arrives is not counted.
        ip("link set out up");
        let arrived = || -> u64 {
            let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
            let line = text.lines().find_map(|line| line.trim().strip_prefix("far:")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        soon("ten packets arrive", || {
            let before = arrived();
            send(&mut *tx, &mut pool, &frames[..1]);
            arrived() > before
        });
        let before = lost(&counter);
        let (arrived_before, sent) = (arrived(), 10);
        send(&mut *tx, &mut pool, &frames);
        soon("ten packets arrive", || arrived() >= arrived_before + sent);
        assert_eq!(lost(&counter), before);
        // Interfaces of others do not count.
        command("ethtool", "-K far gro off");
        counter.set_ports([(out, 1)].into_iter()).unwrap();
        let total = kernel.forwarding.traffic(1).unwrap().tx_packets;
        send(&mut *tx, &mut pool, &frames);
        soon("ten packets are redirected", || kernel.forwarding.traffic(1).unwrap().tx_packets == total + 10);
        assert_eq!(lost(&counter), before);
    });
}

#[test]
fn esp_to_the_host_goes_to_the_socket_past_the_program() {
    in_namespace(|| {
        veth_pair("left", "right");
        veth_pair("out", "far");
        let mut kernel = Kernel::new(16 << 20, Hook::Xdp);
        let number = |name: &str| Links::ask().unwrap().named(name).unwrap().index;
        let receives = KernelPort { interface: number("right"), receives: Some(XdpMode::Native), ..PORT };
        kernel.forwarding.set_port(0, receives).unwrap();
        kernel.forwarding.set_port(1, KernelPort { interface: number("out"), sends: true, ..PORT }).unwrap();
        // The program would forward ESP to the host too.
        let next_hop = NextHop::Forward(Adjacency::ethernet(1, [1; 6], [7; 6], [8, 0]));
        let next_hop = kernel.fib.next_hops_mut().add(next_hop).unwrap();
        kernel.fib.insert(MAIN, "11.0.0.0/8".parse().unwrap(), next_hop).unwrap();
        kernel.fib.publish();
        kernel.share();
        let open = |spec: &str| crate::open(spec, &crate::OpenOptions::default()).unwrap();
        let (mut left, mut port) = (open("left"), open("af_xdp:right?steer=transit&mode=native"));
        let mut pool = pool(4_096);
        let mut tx = left.take_tx(0).unwrap();
        let mut rx = port.take_rx(0).unwrap();
        begin(&mut *rx, &mut pool);
        port.host().unwrap().set_local_addresses(&["11.0.0.1".parse().unwrap()]).unwrap();
        port.host().unwrap().take_esp(true).unwrap();
        let mac = port.info().mac;
        let [to_host, in_transit] = [1, 2].map(|last| {
            let mut frame = ipv4(0x0a00_0001, 0x0b00_0000 | last, 50, 5);
            frame[..6].copy_from_slice(&mac.0);
            frame
        });
        let mut forwarded = 0;
        for in_kernel in [true, false, true] {
            let host = port.host().unwrap();
            if in_kernel {
                host.forward_in_kernel(&mut kernel.forwarding, 0, false).unwrap();
            } else {
                host.forward_here().unwrap();
            }
            send(&mut *tx, &mut pool, &[in_transit.clone(), to_host.clone()]);
            let expected =
                if in_kernel { vec![to_host.clone()] } else { vec![in_transit.clone(), to_host.clone()] };
            forwarded += u64::from(in_kernel);
            let mut received = packet::Batch::new();
            soon("both packets are seen", || {
                rx.receive(&mut pool, &mut received, 32);
                let total = kernel.forwarding.traffic(1).unwrap().tx_packets;
                received.len() >= expected.len() && total >= forwarded
            });
            assert_eq!(crate::testing::contents(&received), expected, "{in_kernel}");
            assert_eq!(kernel.forwarding.traffic(1).unwrap().tx_packets, forwarded);
            pool.free(&mut received);
        }
    });
}

#[test]
fn packets_to_an_interface_that_is_gone_go_on_as_they_came() {
    in_namespace(|| {
        veth_pair("out", "far");
        let index = Links::ask().unwrap().named("out").unwrap().index;
        let mut kernel = Kernel::new(16 << 20, Hook::Xdp);
        let way_out = KernelPort { interface: index, sends: true, ..PORT };
        kernel.forwarding.set_port(1, way_out).unwrap();
        let next_hop = NextHop::Forward(Adjacency::ethernet(1, [1; 6], [7; 6], [8, 0]));
        let next_hop = kernel.fib.next_hops_mut().add(next_hop).unwrap();
        kernel.fib.insert(MAIN, "11.0.0.0/8".parse().unwrap(), next_hop).unwrap();
        kernel.fib.publish();
        kernel.share();
        let frame = ipv4(0x0a00_0001, 0x0b00_0001, 17, 5);
        assert_eq!(kernel.run(&frame).0, REDIRECTED);
        ip("link del out");
        assert_eq!(kernel.run(&frame), (PASSED, frame.clone()));
        assert_eq!(kernel.forwarding.traffic(1).unwrap().tx_packets, 1);
        assert!(kernel.forwarding.renew_way(1, index).is_err());
        // It is there again, with its old number.
        ip(&format!("link add out index {index} type veth peer name far"));
        ip("link set out up");
        assert_eq!(kernel.run(&frame).0, PASSED);
        kernel.forwarding.renew_way(1, index).unwrap();
        assert_eq!(kernel.run(&frame).0, REDIRECTED);
    });
}

#[test]
fn packets_in_several_buffers_are_forwarded_by_ports_that_send_them() {
    if !is_root() {
        return;
    }
    let mut kernel = Kernel::new(16 << 20, Hook::Xdp);
    let next_hop = kernel.fib.next_hops_mut();
    let plain = next_hop.add(NextHop::Forward(Adjacency::ethernet(1, [1; 6], [7; 6], [8, 0]))).unwrap();
    let tagged = next_hop.add(NextHop::Forward(Adjacency::tagged(2, [2; 6], [7; 6], 77, [8, 0]))).unwrap();
    for (prefix, next_hop) in [("11.0.0.0/8", plain), ("12.0.0.0/8", tagged)] {
        kernel.fib.insert(MAIN, prefix.parse().unwrap(), next_hop).unwrap();
    }
    kernel.fib.publish();
    kernel.share();
    let port = KernelPort { mtu: 9_000, sends: true, ..PORT };
    let set = |kernel: &mut Kernel, mtu, sends_native_fragments| {
        let receiving = KernelPort { receives: Some(XdpMode::Native), mtu, ..PORT };
        kernel.forwarding.set_port(0, receiving).unwrap();
        for number in [1, 2] {
            kernel.forwarding.set_port(number, KernelPort { sends_native_fragments, ..port }).unwrap();
        }
    };
    // A packet of this length, with so much behind it.
    let frame = |first: u32, length: usize, trailer: usize| {
        let mut frame = ipv4(0x0a00_0001, first << 24 | 9, 17, 5);
        frame[16..18].copy_from_slice(&(length as u16).to_be_bytes());
        refresh(&mut frame);
        frame.truncate(42);
        frame.extend((42..14 + length + trailer).map(|at| (at * 7 + at / 256) as u8));
        frame
    };
    for first in [11, 12] {
        for (length, trailer) in
            [(1_500, 0), (3_000, 0), (3_483, 900), (5_000, 0), (9_000, 0), (9_000, 3), (100, 6_000)]
        {
            let frame = frame(first, length, trailer);
            set(&mut kernel, 9_000, true);
            let expected = kernel.expected(&frame).unwrap();
            assert_eq!(kernel.run(&frame), (REDIRECTED, expected.clone()), "{first} {length} {trailer}");
            // A driver may split packets within an MTU of 1,500 too.
            set(&mut kernel, 1_500, true);
            if trailer == 0 {
                assert_eq!(kernel.run(&frame), (REDIRECTED, expected), "{first} {length} {trailer}");
            }
            set(&mut kernel, 9_000, false);
            let said = if length < 3_484 { REDIRECTED } else { PASSED };
            assert_eq!(kernel.run(&frame).0, said, "{first} {length} {trailer}");
        }
        // Less than the header says, and more than the way out takes.
        let mut cut = frame(first, 9_000, 0);
        set(&mut kernel, 9_000, true);
        cut.pop();
        assert_eq!(kernel.run(&cut), (PASSED, cut));
        let long = frame(first, 9_001, 0);
        assert_eq!(kernel.run(&long), (PASSED, long));
    }
}
