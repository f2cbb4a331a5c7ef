//! Any frames through the graph of a drop-in router: what leaves by a port is an IP packet that came in,
//! with a TTL (hop limit) one less, that the access list permits; everything else went to Linux or was
//! dropped for a named reason.
#![no_main]

use std::cell::RefCell;
use std::collections::HashMap;

use elements::lookup::{Asker, ForwardingTables};
use fib::publish::pair;
use fib::{Adjacency, Fib, MAIN, NextHop, Policy};
use graph::setup::Shared;
use graph::testing::Bench;
use libfuzzer_sys::fuzz_target;
use packet::checksum;

/// As `brickway run eth1 eth2 --acl ...` prints it, with test inputs and outputs in place of ports.
const CONFIG: &str = include_str!("drop_in.click");

/// The Ethernet headers of the neighbours behind each port.
const NEIGHBOURS: [[u8; 12]; 2] =
    [[2, 0, 0, 0, 1, 9, 2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 2, 9, 2, 0, 0, 0, 0, 2]];

fn fib() -> Fib<Adjacency> {
    let mut fib = Fib::new().expect("memory for the tables");
    for (port, macs) in (0_u8..).zip(NEIGHBOURS) {
        let families = [
            ([8, 0], format!("10.{}.0.0/16", port + 1)),
            ([0x86, 0xdd], format!("2001:db8:{}::/48", port + 1)),
        ];
        for (ether_type, prefix) in families {
            let header = [&macs[..], &ether_type].concat();
            let adjacency = Adjacency::new(u16::from(port), &header).expect("an Ethernet header");
            let hop = fib.next_hops_mut().add(NextHop::Forward(adjacency)).expect("a next hop");
            fib.insert(MAIN, prefix.parse().expect("a prefix"), hop).expect("a route");
        }
    }
    for (prefix, end) in [
        ("192.0.2.0/24", NextHop::Local),
        ("10.1.7.0/24", NextHop::Blackhole),
        ("10.2.7.0/24", NextHop::Unreachable),
    ] {
        let hop = fib.next_hops_mut().add(end).expect("a next hop");
        fib.insert(MAIN, prefix.parse().expect("a prefix"), hop).expect("a route");
    }
    fib.publish();
    fib
}

struct Router {
    bench: Bench,
    elements: Vec<String>,
    dropped: u64,
    free: usize,
    _fib: Fib<Adjacency>,
}

impl Router {
    fn new() -> RefCell<Self> {
        let (fib, shared) = (fib(), Shared::default());
        let (_, policies) = pair(Policy::default(), Policy::default());
        let ports = vec!["eth1".into(), "eth2".into()];
        let (readers, ask) = (fib.readers().clone(), Asker::default());
        let tables = ForwardingTables { ports, readers, policies, paths: Default::default(), ask };
        let Ok(_) = shared.get_or_make(ForwardingTables::KEY, || Ok::<_, std::convert::Infallible>(tables));
        let mut bench = Bench::try_new(&elements::registry(), CONFIG, 32, &shared)
            .unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let elements = bench.graph().config().elements.iter().map(|element| element.name.clone()).collect();
        let free = bench.graph().pool_stats().free;
        RefCell::new(Self { bench, elements, dropped: 0, free, _fib: fib })
    }

    /// Packets that were dropped since this was last asked.
    fn newly_dropped(&mut self) -> u64 {
        let mut sum = 0;
        for name in &self.elements {
            for (reason, count) in self.bench.stats(name).drops {
                assert!(!reason.is_empty());
                sum += count;
            }
        }
        sum - std::mem::replace(&mut self.dropped, sum)
    }
}

/// Whether the list of the configuration permits a packet: no TCP to port 23 or with an unknown port, no
/// UDP to 10.2.0.0/16.
fn permitted(packet: &[u8]) -> bool {
    if packet[0] >> 4 != 4 {
        return packet[6] != 6 || packet.get(42..44).is_some_and(|port| port != [0, 23]);
    }
    let transport = &packet[usize::from(packet[0] & 15) * 4..];
    let is_first = u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff == 0;
    match packet[9] {
        6 if is_first => transport.get(2..4).is_some_and(|port| port != [0, 23]),
        17 => packet[16..18] != [10, 2],
        _ => true,
    }
}

/// The packet in a frame that a port sends, and what is wrong with it.
fn sent(frame: &[u8], port: usize) -> Result<Vec<u8>, &'static str> {
    let (macs, rest) = frame.split_first_chunk::<12>().ok_or("too short for Ethernet")?;
    if *macs != NEIGHBOURS[port] {
        return Err("not the neighbour's header");
    }
    let (ether_type, packet) = rest.split_first_chunk::<2>().ok_or("too short for Ethernet")?;
    match *ether_type {
        [8, 0] => {
            let header = packet.get(..20).ok_or("too short for IPv4")?;
            let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
            if header[0] != 0x45 || !checksum::ipv4_header_valid(header) || packet.len() != length {
                return Err("not a whole IPv4 packet without options");
            }
        }
        [0x86, 0xdd] => {
            let header = packet.get(..40).ok_or("too short for IPv6")?;
            let length = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
            if header[0] >> 4 != 6 || packet.len() != length {
                return Err("not a whole IPv6 packet");
            }
        }
        _ => return Err("not an IP packet"),
    }
    Ok(packet.to_vec())
}

/// A packet without what a router changes, and its TTL or hop limit.
fn without_ttl(mut packet: Vec<u8>) -> (Vec<u8>, u8) {
    let at = if packet[0] >> 4 == 4 { 8 } else { 7 };
    let ttl = std::mem::take(&mut packet[at]);
    if at == 8 {
        packet[10..12].fill(0);
    }
    (packet, ttl)
}

/// A frame of these bytes. Most are whole IP packets to a network that there is a route to.
fn frame(bytes: &[u8], number: usize) -> Vec<u8> {
    let mut frame = bytes.to_vec();
    let kind = bytes.first().copied().unwrap_or(0);
    if kind % 8 == 7 || frame.len() < 34 {
        return frame;
    }
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1 + (number % 2) as u8]);
    let is_ipv6 = kind % 4 == 3 && frame.len() >= 54;
    let length = (frame.len() - 14) as u16;
    if is_ipv6 {
        frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
        frame[18..20].copy_from_slice(&(length - 40).to_be_bytes());
        frame[22..28].copy_from_slice(&[0x20, 1, 0x0d, 0xb8, 0, 1 + (number % 2) as u8]);
        frame[38..44].copy_from_slice(&[0x20, 1, 0x0d, 0xb8, 0, 1 + kind / 8 % 2]);
        return frame;
    }
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    // Whole, mostly.
    if kind % 16 != 4 {
        frame[20..22].fill(0);
    }
    frame[26..28].copy_from_slice(&[10, 1 + (number % 2) as u8]);
    frame[30..32].copy_from_slice(&[10, 1 + kind / 8 % 2]);
    frame[24..26].fill(0);
    let check = checksum::finish(checksum::sum(&frame[14..34]));
    frame[24..26].copy_from_slice(&check.to_be_bytes());
    frame
}

thread_local! {
    static ROUTER: RefCell<Router> = Router::new();
}

fuzz_target!(|data: &[u8]| {
    ROUTER.with_borrow_mut(|router| {
        // What came, without TTLs, and those that it came with.
        let mut came: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
        let mut rest = data;
        let mut number = 0;
        while let [length, tail @ ..] = rest {
            let (bytes, tail) = tail.split_at(tail.len().min(usize::from(*length)));
            rest = tail;
            let frame = frame(bytes, number);
            // Behind the header, and behind one or two tags, lies what may be an IP packet.
            for packet in [14, 18, 22].iter().filter_map(|&at| frame.get(at..)) {
                let end = match packet.first().map(|first| first >> 4) {
                    Some(4) if packet.len() >= 20 => usize::from(u16::from_be_bytes([packet[2], packet[3]])),
                    Some(6) if packet.len() >= 40 => {
                        40 + usize::from(u16::from_be_bytes([packet[4], packet[5]]))
                    }
                    _ => continue,
                };
                if let Some(packet) = packet.get(..end).filter(|packet| packet.len() >= 20) {
                    let (packet, ttl) = without_ttl(packet.to_vec());
                    came.entry(packet).or_default().push(ttl);
                }
            }
            router.bench.push(&format!("in{}/from", 1 + number % 2), &[&frame]);
            number += 1;
        }
        let mut left = 0;
        for port in 0..2 {
            for frame in router.bench.taken(&format!("out{}/to", port + 1)) {
                left += 1;
                let packet = sent(&frame, port).unwrap_or_else(|problem| panic!("{problem}: {frame:02x?}"));
                assert!(permitted(&packet), "the list denies {packet:02x?}");
                let (packet, ttl) = without_ttl(packet);
                let ttls = came.get(&packet).unwrap_or_else(|| panic!("nobody sent {packet:02x?}"));
                assert!(ttl > 0 && ttls.contains(&(ttl + 1)), "TTL {ttl} of {ttls:?}");
            }
            for linux in ["host", "permit"] {
                left += router.bench.taken(&format!("{linux}{}", port + 1)).len() as u64;
            }
        }
        assert_eq!(left + router.newly_dropped(), number as u64, "every frame leaves or is counted");
        router.bench.graph().context().pool().refill();
        let now = router.bench.graph().pool_stats().free;
        assert!(now + 64 >= router.free, "frames leak: {now} of {} free", router.free);
    });
});
