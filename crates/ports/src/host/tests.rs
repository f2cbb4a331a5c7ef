//! Linux as the host between two others: host A - (in) router (out) - host B, each in a network namespace of its own. The
//! router's kernel has the addresses, and our ports are on its interfaces.

use std::net::UdpSocket;
use std::time::Duration;

use packet::checksum::ipv4_header_compute;
use packet::{Batch, Pool};

use crate::testing::{
    Elsewhere, OtherProcess, begin, command, contents, in_namespace, ip, pool, send, soon, veth_pair,
};
use crate::{Event, OpenOptions, Port, RxQueue};

/// The ports that share an interface with Linux.
const BESIDE_LINUX: [&str; 3] = [
    "af_xdp:in?steer=transit&mode=native",
    "af_xdp:in?steer=transit&mode=generic",
    "af_packet:in?steer=transit",
];

const MAC_A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const MAC_IN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const A: [u8; 4] = [192, 0, 2, 2];
const B: [u8; 4] = [198, 51, 100, 2];

struct Hosts {
    a: Elsewhere,
    b: Elsewhere,
}

/// The three hosts; the calling thread is the router.
fn hosts() -> Hosts {
    let (a, b) = (Elsewhere::new(), Elsewhere::new());
    veth_pair("in", "near");
    veth_pair("out", "far");
    a.takes("near");
    b.takes("far");
    for (host, name, address, router, mac) in [
        (&a, "near", "192.0.2.2/24", "192.0.2.1", "02:00:00:00:00:0a"),
        (&b, "far", "198.51.100.2/24", "198.51.100.1", "02:00:00:00:00:0b"),
    ] {
        host.run(move || {
            ip(&format!("link set {name} address {mac} up"));
            ip(&format!("addr add {address} dev {name}"));
            ip(&format!("route add default via {router}"));
        });
    }
    a.run(|| ip("addr add 2001:db8::2/64 dev near nodad"));
    router_addresses();
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
    std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
    // The true interface is seen by the reverse-path check too.
    std::fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "1").unwrap();
    Hosts { a, b }
}

fn router_addresses() {
    ip("link set in address 02:00:00:00:00:01");
    ip("addr replace 192.0.2.1/24 dev in");
    ip("addr replace 2001:db8::1/64 dev in nodad");
    ip("route replace 2001:db8:9::/48 dev out");
    ip("addr replace 198.51.100.1/24 dev out");
}

fn open(spec: &str) -> Box<dyn Port> {
    crate::open(spec, &OpenOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn receiver(port: &mut dyn Port, pool: &mut Pool) -> Box<dyn RxQueue> {
    let mut rx = port.take_rx(0).unwrap();
    begin(&mut *rx, pool);
    rx
}

/// A UDP packet from A to B as it comes in by the router's interface `in`.
fn from_a(ttl: u8, number: u8, payload: usize) -> Vec<u8> {
    let length = (20 + 8 + payload) as u16;
    let mut frame = [&MAC_IN[..], &MAC_A, &[0x08, 0x00, 0x45, 0]].concat();
    frame.extend(length.to_be_bytes());
    frame.extend([0, number, 0, 0, ttl, 17, 0, 0]);
    frame.extend([A, B].concat());
    let sum = ipv4_header_compute(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    // No UDP checksum (RFC 768).
    frame.extend([0x30, 0x39, 0x30, 0x39]);
    frame.extend((length - 20).to_be_bytes());
    frame.extend([0, 0]);
    frame.resize(frame.len() + payload, number);
    frame
}

const ROUTER_IPV6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// The start of an IPv6 packet from A to a host of another network.
fn from_a_by_ipv6(hop_limit: u8) -> Vec<u8> {
    let (mut source, mut destination) = (ROUTER_IPV6, ROUTER_IPV6);
    source[15] = 2;
    destination[5] = 9;
    let header = [0x60, 0, 0, 0, 0, 8, 17, hop_limit];
    [&MAC_IN[..], &MAC_A, &[0x86, 0xdd], &header, &source, &destination, &[0; 8]].concat()
}

/// A host's socket for such packets.
fn socket_of(host: &Elsewhere) -> UdpSocket {
    host.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:12345").unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    })
}

/// The payloads that came, until nothing more comes.
fn payloads(socket: &UdpSocket) -> Vec<Vec<u8>> {
    let (mut payloads, mut buffer) = (Vec::new(), [0; 2_048]);
    while let Ok(length) = socket.recv(&mut buffer) {
        payloads.push(buffer[..length].to_vec());
    }
    payloads
}

/// Waits for packets in the background, whose absence is to be shown.
fn a_while() {
    std::thread::sleep(Duration::from_millis(30));
}

fn received(rx: &mut dyn RxQueue, pool: &mut Pool) -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    while rx.receive(pool, &mut batch, 32) > 0 {}
    let frames = contents(&batch);
    pool.free(&mut batch);
    frames
}

#[test]
fn the_host_answers_resolves_and_cuts() {
    for spec in BESIDE_LINUX {
        in_namespace(move || {
            let hosts = hosts();
            let (mut pool, mut far_pool) = (pool(4_096), pool(1_024));
            let (mut port, mut host) = (open(spec), open("host:in"));
            assert_eq!((host.info().rx_queues, host.info().mac.0, host.info().mtu), (0, MAC_IN, 1_500));
            assert!(host.details().ends_with("by way of brickway0"), "{}", host.details());
            let mut rx = receiver(&mut *port, &mut pool);
            let mut tx = host.take_tx(0).unwrap();
            let addresses = command("ip", "addr show dev brickway0");
            assert!(addresses.contains("UP") && !addresses.contains("inet"), "{addresses}");
            let mut capture = hosts.a.run(|| {
                let mut port = open("near");
                (port.take_rx(0).unwrap(), port)
            });
            let socket = socket_of(&hosts.b);
            // The time runs out: an answer from the address of the true interface.
            send(&mut *tx, &mut pool, &[from_a(1, 1, 40)]);
            let mut answers = Vec::new();
            soon("the answer", || {
                answers.extend(received(&mut *capture.0, &mut far_pool));
                answers.iter().any(|frame| frame[12..14] == [8, 0])
            });
            let answer = answers.iter().find(|frame| frame[12..14] == [8, 0]).unwrap();
            // ICMP time exceeded (RFC 792), of 192.0.2.1 to A.
            assert_eq!((answer[23], answer[34], &answer[26..30]), (1, 11, &[192, 0, 2, 1][..]), "{spec}");
            assert_eq!((&answer[30..34], &answer[54..58]), (&A[..], &A[..]));
            send(&mut *tx, &mut pool, &[from_a_by_ipv6(1)]);
            soon("the answer by IPv6", || {
                let answers = received(&mut *capture.0, &mut far_pool);
                // ICMPv6 time exceeded (RFC 4443), of 2001:db8::1.
                answers.iter().any(|frame| frame[20] == 58 && frame[22..38] == ROUTER_IPV6 && frame[54] == 3)
            });
            // A neighbour that nobody knows: ARP, and the packets go on. One is too long for the way out.
            assert!(!command("ip", "neigh show dev out").contains("198.51.100.2"));
            ip("link set out mtu 600");
            send(&mut *tx, &mut pool, &[from_a(64, 2, 40), from_a(64, 3, 1_400), from_a(2, 4, 18)]);
            let mut arrived = Vec::new();
            soon("three packets arrive", || {
                arrived.extend(payloads(&socket));
                arrived.len() >= 3
            });
            a_while();
            arrived.extend(payloads(&socket));
            arrived.sort();
            assert_eq!(arrived, [vec![2; 40], vec![3; 1_400], vec![4; 18]], "each once: {spec}");
            // Nothing came to our own port.
            assert_eq!(received(&mut *rx, &mut pool), Vec::<Vec<u8>>::new(), "{spec}");
            let more = received(&mut *capture.0, &mut far_pool);
            assert!(more.iter().all(|frame| frame[12..14] != [8, 0]), "one answer is enough: {spec}");
            // To another host on the link: not for this one, as from the cable.
            let mut other = from_a(64, 5, 40);
            other[5] = 0x77;
            send(&mut *tx, &mut pool, &[other, vec![0; 13]]);
            a_while();
            assert_eq!(payloads(&socket), Vec::<Vec<u8>>::new());
            let stats = tx.stats();
            assert_eq!((stats.packets, stats.count(Event::TooShort), stats.dropped()), (6, 1, 1));
            let bytes = 62 + [40, 40, 1_400, 18, 40].map(|payload| 42 + payload).iter().sum::<u64>();
            assert_eq!(stats.bytes, bytes);
            drop((port, host, rx, tx));
            soon("the device is gone", || !command("ip", "link").contains("brickway"));
        });
    }
}

#[test]
fn transit_comes_to_us_only_and_the_kernel_forwards_after_us() {
    for spec in BESIDE_LINUX {
        in_namespace(move || {
            let hosts = hosts();
            let mut pool = pool(2_048);
            let (socket, sender) = (socket_of(&hosts.b), socket_of(&hosts.a));
            let own = UdpSocket::bind("0.0.0.0:12345").unwrap();
            own.set_nonblocking(true).unwrap();
            let arrives = |at: &UdpSocket, expected: &[Vec<u8>]| {
                let mut arrived = Vec::new();
                soon("they arrive", || {
                    arrived.extend(payloads(at));
                    arrived.len() >= expected.len()
                });
                a_while();
                arrived.extend(payloads(at));
                assert_eq!(arrived, expected, "{spec}");
            };
            let send_to = |to: &str, payload: &[u8]| {
                sender.send_to(payload, (to, 12_345)).unwrap();
            };
            let mut port = open(spec);
            let mut rx = receiver(&mut *port, &mut pool);
            // ARP for the router is answered, and what is for the router itself arrives.
            send_to("192.0.2.1", b"own");
            arrives(&own, &[b"own".to_vec()]);
            send_to("198.51.100.2", b"transit");
            let mut ours = Vec::new();
            soon("it comes to us", || {
                ours.extend(received(&mut *rx, &mut pool));
                !ours.is_empty()
            });
            arrives(&socket, &[]);
            assert_eq!((ours.len(), ours[0].ends_with(b"transit")), (1, true), "{spec}");
            // An address that the host gets while we run.
            ip("addr add 203.0.113.1/32 dev out");
            port.host().unwrap().set_local_addresses(&["203.0.113.1".parse().unwrap()]).unwrap();
            send_to("203.0.113.1", b"new");
            arrives(&own, &[b"new".to_vec()]);
            assert_eq!(received(&mut *rx, &mut pool), Vec::<Vec<u8>>::new());
            // The last queue goes, and Linux is a router again.
            drop(rx);
            drop(port);
            // A child process of another test, forked and not yet another program, has a copy of all descriptors.
            soon("Linux forwards", || {
                send_to("198.51.100.2", b"after");
                a_while();
                payloads(&socket).contains(&b"after".to_vec())
            });
            assert_eq!(count_of_programs("in"), 0);
        });
    }
}

#[test]
fn nothing_stays_of_a_process_that_is_killed() {
    for spec in BESIDE_LINUX {
        in_namespace(move || {
            let hosts = hosts();
            let (socket, sender) = (socket_of(&hosts.b), socket_of(&hosts.a));
            let process = OtherProcess::with_ports(&format!("{spec} host:in host:out"));
            assert_eq!(count_of_programs("in"), usize::from(spec.starts_with("af_xdp")));
            assert!(command("ip", "link").contains("brickway0"));
            sender.send_to(b"during", "198.51.100.2:12345").unwrap();
            a_while();
            assert_eq!(payloads(&socket), Vec::<Vec<u8>>::new(), "{spec}");
            process.kill();
            assert_eq!(count_of_programs("in"), 0);
            assert!(!command("ip", "link").contains("brickway"));
            sender.send_to(b"after", "198.51.100.2:12345").unwrap();
            soon("Linux forwards", || payloads(&socket) == [b"after".to_vec()]);
        });
    }
}

#[test]
fn an_interface_may_vanish_and_come_back() {
    for spec in BESIDE_LINUX {
        in_namespace(move || {
            let hosts = hosts();
            let mut pool = pool(4_096);
            let quiet = OpenOptions { warn: |_| {}, tell: |_| {}, ..OpenOptions::default() };
            let (mut port, mut host) = (crate::open(spec, &quiet).unwrap(), open("host:in"));
            let mut rx = receiver(&mut *port, &mut pool);
            let mut tx = host.take_tx(0).unwrap();
            let socket = socket_of(&hosts.b);
            send(&mut *tx, &mut pool, &[from_a(64, 1, 10)]);
            soon("it arrives", || payloads(&socket) == [vec![1; 10]]);
            ip("link set in down");
            send(&mut *tx, &mut pool, &[from_a(64, 2, 10)]);
            assert_eq!(tx.stats().count(Event::LinkDown), 1);
            ip("link delete in");
            send(&mut *tx, &mut pool, &[from_a(64, 3, 10)]);
            assert_eq!(tx.stats().count(Event::PortGone), 1);
            soon("the port notices", || {
                rx.receive(&mut pool, &mut Batch::new(), 32);
                rx.due_in_ns().is_some()
            });
            veth_pair("in", "near");
            hosts.a.takes("near");
            hosts.a.run(|| {
                ip("link set near address 02:00:00:00:00:0a up");
                ip("addr add 192.0.2.2/24 dev near");
                ip("route add default via 192.0.2.1");
            });
            router_addresses();
            soon("the port is back", || {
                rx.receive(&mut pool, &mut Batch::new(), 32);
                rx.due_in_ns().is_none()
            });
            port.host().unwrap().follow_link().unwrap();
            // What comes from the cable is ours again, and what the host gets does not come to us.
            let sender = socket_of(&hosts.a);
            let is_transit = |frame: &Vec<u8>| frame.ends_with(b"transit");
            soon("it comes to us", || {
                // The kernel drops what is sent before it has found the new link up.
                sender.send_to(b"transit", "198.51.100.2:12345").unwrap();
                received(&mut *rx, &mut pool).iter().any(is_transit)
            });
            send(&mut *tx, &mut pool, &[from_a(64, 9, 10)]);
            soon("it arrives", || payloads(&socket) == [vec![9; 10]]);
            let others = received(&mut *rx, &mut pool).into_iter().filter(|frame| !is_transit(frame));
            assert_eq!(others.collect::<Vec<_>>(), Vec::<Vec<u8>>::new());
        });
    }
}

#[test]
fn a_connection_goes_through_both() {
    use std::io::{Read, Write};
    use std::sync::atomic::{AtomicBool, Ordering};
    for driver in ["", "af_xdp:"] {
        in_namespace(move || {
            let hosts = hosts();
            for (host, name) in
                [(&hosts.a, "near"), (&hosts.b, "far")].into_iter().filter(|_| !driver.is_empty())
            {
                // XDP would see packets without a checksum. For packet sockets the kernel completes it, and what is in
                // several segments it forwards itself.
                host.run(move || {
                    command("ethtool", if name == "near" { "-K near tx off" } else { "-K far tx off" })
                });
            }
            let mut pool = pool(8_192);
            let (mut input, mut output) =
                (open(&format!("{driver}in?steer=transit")), open(&format!("{driver}out?steer=transit")));
            let (mut in_rx, mut out_rx) =
                (receiver(&mut *input, &mut pool), receiver(&mut *output, &mut pool));
            let (mut in_tx, mut out_tx) = (input.take_tx(0).unwrap(), output.take_tx(0).unwrap());
            in_tx.prepare(&mut pool).unwrap();
            out_tx.prepare(&mut pool).unwrap();
            let far_mac = [2, 0, 0, 0, 0, 0xb];
            let listener = hosts.b.run(|| std::net::TcpListener::bind("198.51.100.2:7000").unwrap());
            let done = std::sync::Arc::new(AtomicBool::new(false));
            let end = std::sync::Arc::clone(&done);
            let peers = std::thread::spawn(move || {
                let stream = hosts.a.run(|| {
                    let address = "198.51.100.2:7000".parse().unwrap();
                    std::net::TcpStream::connect_timeout(&address, Duration::from_secs(5))
                });
                let (mut near, mut far) = (stream.unwrap(), listener.accept().unwrap().0);
                let sent: Vec<u8> = (0..400_000_u32).map(|number| number as u8).collect();
                let text = sent.clone();
                let writer = std::thread::spawn(move || near.write_all(&text).map(|()| near).map(drop));
                let mut got = Vec::new();
                far.read_to_end(&mut got).unwrap();
                writer.join().unwrap().unwrap();
                end.store(true, Ordering::Relaxed);
                got == sent
            });
            // What a router does, in short: each packet goes on with a lower TTL.
            let mut forwarded = 0;
            while !done.load(Ordering::Relaxed) && !peers.is_finished() {
                for (rx, tx, to) in [(&mut in_rx, &mut out_tx, far_mac), (&mut out_rx, &mut in_tx, MAC_A)] {
                    let mut batch = Batch::new();
                    rx.receive(&mut pool, &mut batch, 32);
                    for packet in batch.iter_mut() {
                        let data = packet.data_mut();
                        data[..6].copy_from_slice(&to);
                        data[22] -= 1;
                        data[24..26].fill(0);
                        let sum = ipv4_header_compute(&data[14..34]);
                        data[24..26].copy_from_slice(&sum.to_be_bytes());
                    }
                    forwarded += batch.len();
                    tx.send(&mut pool, &mut batch);
                    tx.flush(&mut pool);
                    pool.free(&mut batch);
                }
            }
            assert!(peers.join().unwrap(), "every byte is as sent");
            assert!(forwarded > 10, "{forwarded} packets");
            assert_eq!(in_rx.stats().dropped(), 0, "{:?}", in_rx.stats());
            if driver.is_empty() {
                // ARP and such are a few packets at most.
                assert!(in_rx.stats().left_to_kernel() > 10, "{:?}", in_rx.stats());
            }
        });
    }
}

/// XDP programs on an interface, by the words of `ip`.
fn count_of_programs(interface: &str) -> usize {
    command("ip", &format!("-d link show dev {interface}")).matches("prog/xdp").count()
}
