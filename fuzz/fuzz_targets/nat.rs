//! Any packets from both sides of a NAT: no panic, every packet leaves or is counted, no two flows have one
//! outside address and port towards the same host, and what reaches the inside is the answer to a flow of
//! the host that it goes to.
#![no_main]

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::Ipv4Addr;

use graph::testing::Bench;
use libfuzzer_sys::fuzz_target;
use packet::checksum;

const OUTER: [u8; 4] = [192, 0, 2, 1];

type End = ([u8; 4], u16);

/// What a packet is of: TCP or UDP, from where, to where. `None` for what no rewriter translates.
fn flow(packet: &[u8]) -> Option<(u8, End, End)> {
    let header = packet.first_chunk::<20>()?;
    let transport = packet.get(usize::from(header[0] & 15) * 4..)?.first_chunk::<4>()?;
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x1fff;
    let [a, b, c, d] = *transport;
    let source = [header[12], header[13], header[14], header[15]];
    let destination = [header[16], header[17], header[18], header[19]];
    let ends = ((source, u16::from_be_bytes([a, b])), (destination, u16::from_be_bytes([c, d])));
    (matches!(header[9], 6 | 17) && fragment == 0).then_some((header[9], ends.0, ends.1))
}

/// The packet that eight bytes describe: of few hosts and ports, so that they meet, with a byte changed now
/// and then.
fn packet(bytes: [u8; 8], from_inside: bool) -> Vec<u8> {
    let [what, host, port, server, flags, damage, at, other] = bytes;
    let inner: End = ([10, 0, 0, 1 + host % 4], 1020 + u16::from(port % 8));
    let server: End = ([8, 8, 8, 1 + server % 2], 80 + u16::from(server >> 4) % 2);
    let outer: End = (OUTER, 1022 + u16::from(port % 8));
    let (from, to) = match (from_inside, other % 8) {
        (true, _) => (inner, server),
        (false, 0) => (server, inner),
        (false, 1) => (inner, server),
        (false, _) => (server, outer),
    };
    let is_tcp = what & 1 != 0;
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, if is_tcp { 6 } else { 17 }, 0, 0];
    packet.extend(from.0.iter().chain(&to.0));
    packet.extend([from.1.to_be_bytes(), to.1.to_be_bytes()].concat());
    match is_tcp {
        true => packet.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags & 0x3f, 1, 0, 0, 0, 0, 0]),
        false => packet.extend([0, 8 + (flags & 7), 0, 0]),
    }
    packet.extend(&[b'x'; 8][..usize::from(flags & 7)]);
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    if damage % 4 == 0 {
        let at = usize::from(at) % packet.len();
        packet[at] ^= other | 1;
    }
    packet[10..12].fill(0);
    let check = checksum::finish(checksum::sum(&packet[..20]));
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    packet
}

fn bench(order: &str) -> Bench {
    let config = format!(
        "e :: IPRewriter(pattern 192.0.2.1 1024-1027{order} - - 0 1, drop, CAPACITY 12, HOST_FLOWS 6);
         in0 :: TestInput -> check0 :: CheckIPHeader -> [0]e; in1 :: TestInput -> check1 :: CheckIPHeader -> [1]e;
         e[0] -> out0 :: TestOutput; e[1] -> out1 :: TestOutput;"
    );
    Bench::new(&click::registry(), &config)
}

/// What packets from one end to another become now.
fn lookup(bench: &mut Bench, protocol: u8, from: End, to: End) -> Option<u16> {
    let handler = if protocol == 6 { "tcp_lookup" } else { "udp_lookup" };
    let (source, destination) = (Ipv4Addr::from(from.0), Ipv4Addr::from(to.0));
    let text = bench.read(&format!("e.{handler} {source} {} {destination} {}", from.1, to.1));
    text.split(' ').nth(1)?.parse().ok()
}

thread_local! {
    /// One for each order in which ports are tried.
    static BENCHES: [RefCell<Bench>; 3] = ["", "?", "#"].map(|order| RefCell::new(bench(order)));
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, events)) = bytes.split_first() else { return };
    BENCHES.with(|benches| through(&mut benches[usize::from(first) % 3].borrow_mut(), events));
});

/// Sends what the bytes describe through a NAT without flows.
fn through(bench: &mut Bench, bytes: &[u8]) {
    bench.write("e.clear", "").expect("a handler of rewriters");
    // By protocol and the ends of an answer: who the flow is of.
    let mut owners: HashMap<(u8, End, End), End> = HashMap::new();
    for event in bytes.as_chunks::<8>().0 {
        if event[0] >= 0xe0 {
            bench.advance_ns(u64::from(event[1]) << 31);
            continue;
        }
        let from_inside = event[0] & 2 != 0;
        let sent = packet(*event, from_inside);
        bench.push(if from_inside { "in0" } else { "in1" }, &[&sent]);
        for got in bench.taken("out0") {
            let (protocol, outer, to) = flow(&got).expect("what leaves can be read");
            let (_, inner, _) = flow(&sent).expect("what came could be read");
            if !from_inside {
                continue;
            }
            assert!(checksum::ipv4_header_valid(&got[..usize::from(got[0] & 15) * 4]));
            assert_eq!(outer.0, OUTER);
            assert!((1024..1028).contains(&outer.1));
            if let Some(before) = owners.insert((protocol, to, outer), inner)
                && before != inner
            {
                assert_ne!(lookup(bench, protocol, before, to), Some(outer.1), "two flows have one port");
            }
        }
        for got in bench.taken("out1") {
            let (protocol, from, inner) = flow(&got).expect("what leaves can be read");
            let (_, _, to) = flow(&sent).expect("what came could be read");
            assert_eq!(owners.get(&(protocol, from, to)), Some(&inner), "only answers get in");
        }
    }
    let count = |bench: &mut Bench, name: &str| bench.stats(name).packets;
    let mut dropped = 0;
    for name in ["e", "check0", "check1"] {
        dropped += bench.stats(name).drops.iter().map(|(_, count)| *count).sum::<u64>();
    }
    let (came, left) = (["check0", "check1"], ["out0", "out1"]);
    let came: u64 = came.iter().map(|name| count(bench, name)).sum();
    let left: u64 = left.iter().map(|name| count(bench, name)).sum();
    assert_eq!(came, left + dropped);
}
