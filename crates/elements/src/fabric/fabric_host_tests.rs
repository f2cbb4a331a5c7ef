//! FabricHost with Linux's own devices, in a network namespace.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use fabric::{Header, Kind, NodeId, Shim};
use graph::lang::{Options, Source, compile};
use graph::router::{Control, Router, RouterOptions};
use graph::setup::Shared;
use graph::testing::Bench;
use packet::wire::ethernet::MacAddr;
use packet::{Packet, PacketType, checksum};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::tests::shared;
use super::{FabricHostPorts, HostPort};
use crate::registry;
use testbed::{in_namespace, ip, run, wait_until};

/// Node 0 with two ports.
fn leader(shape: &str) -> (Bench, Arc<FabricHostPorts>) {
    let shared = shared();
    let config = format!(
        "fabric :: Fabric({shape}, 0, CLUSTER 7, HELLO 0); in :: TestInput -> host :: FabricHost(fabric, eth1, eth2);
         host[0] -> eth1 :: TestOutput; host[1] -> eth2 :: TestOutput; host[2] -> others :: TestOutput;"
    );
    let bench = Bench::try_new(&registry(), &config, 32, &shared).unwrap();
    (bench, ports_of(&shared))
}

fn ports_of(shared: &Shared) -> Arc<FabricHostPorts> {
    shared.get_or_make(FabricHostPorts::KEY, FabricHostPorts::new).unwrap()
}

fn host_port(number: u8, node: u16, place: u16) -> HostPort {
    HostPort {
        number,
        name: format!("port{number}"),
        mac: MacAddr([2, 0, 0, 0, 1, number]),
        mtu: 1500,
        node: NodeId::new(node).unwrap(),
        place,
    }
}

/// Pushes frames that came in by port `number` of the cluster.
fn push(bench: &mut Bench, number: u8, frames: &[&[u8]]) {
    let mut packets: Vec<Packet> = frames.iter().map(|frame| bench.packet(frame)).collect();
    packets.iter_mut().for_each(|packet| packet.annotations_mut().set_paint(number));
    bench.push_packets("in", packets);
}

const STATION: [u8; 6] = [2, 0, 0, 0, 0, 7];

/// Who has 192.0.2.NUMBER? Tell 192.0.2.107.
fn arp_request(number: u8) -> Vec<u8> {
    let mut request = vec![0xff; 6];
    request.extend(STATION);
    request.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    request.extend(STATION);
    request.extend([192, 0, 2, 107, 0, 0, 0, 0, 0, 0, 192, 0, 2, number]);
    request
}

/// ICMP echo request to 192.0.2.NUMBER, or the reply to it.
fn echo(number: u8, to: [u8; 6], from: [u8; 6], is_reply: bool) -> Vec<u8> {
    let (station, host) = ([192, 0, 2, 107], [192, 0, 2, number]);
    let (source, destination) = if is_reply { (host, station) } else { (station, host) };
    let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0];
    packet.extend([source, destination].concat());
    let sum = checksum::ipv4_header_compute(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut message = vec![if is_reply { 0 } else { 8 }, 0, 0, 0, 0, 1, 0, 1];
    let sum = checksum::compute(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    [&to[..], &from, &[8, 0], &packet, &message].concat()
}

/// The first frame at `output` that `is_wanted`, within a while.
fn awaited(bench: &mut Bench, output: &str, is_wanted: impl Fn(&[u8]) -> bool) -> Packet {
    let mut wanted = None;
    wait_until(&format!("a frame at {output}"), || {
        bench.run(8);
        wanted = bench.taken_packets(output).into_iter().find(|packet| is_wanted(packet.data()));
        wanted.is_some()
    });
    wanted.expect("it came")
}

#[test]
fn a_node_that_is_not_the_leader_has_no_host() {
    let (mut bench, ports) = leader("mesh(3)");
    push(&mut bench, 3, &[&[1; 60], &[2; 60]]);
    assert_eq!(bench.drops("host", "not the leader"), 2);
    assert_eq!(bench.read("host.ports"), "");
    let error = ports.set_carrier(3, false).unwrap_err().to_string();
    assert_eq!(
        error,
        "there is no interface `of port 3 of the cluster`; only the leader has one for each port"
    );
}

#[test]
fn linux_answers_by_the_port_that_was_asked() {
    for shape in ["mesh(3)", "star(3)"] {
        in_namespace(move || {
            let (mut bench, ports) = leader(shape);
            ports.set(vec![host_port(3, 2, 1), host_port(4, 0, 1)]).unwrap();
            let is_answer = |frame: &[u8]| {
                let answers = [8, 6, 0, 1, 8, 0, 6, 4, 0, 2];
                frame.windows(10).any(|bytes| bytes == answers) && frame.ends_with(&[192, 0, 2, 107])
            };
            // One network on each, as behind ports of a router.
            for number in [3, 4] {
                ip(&format!("addr add 192.0.2.{number}/32 dev port{number}"));
                ip(&format!("neigh add 192.0.2.107 lladdr 02:00:00:00:00:07 dev port{number}"));
            }
            ip("route add 192.0.2.107 dev port3");
            push(&mut bench, 3, &[&arp_request(3)]);
            let answer = awaited(&mut bench, "others", is_answer);
            let (header, inside) = match shape {
                "star(3)" => {
                    let shim = Shim::parse(answer.data().first_chunk().unwrap(), 3).unwrap();
                    let Shim { kind, output, label, input, cluster, .. } = shim;
                    (Header::new(kind, output, label, input, cluster), &answer.data()[Shim::LEN..])
                }
                _ => {
                    assert_eq!(answer.data()[12..14], [0x65, 0x58]);
                    (Header::parse(answer.data().first_chunk().unwrap()).unwrap(), &answer.data()[14..])
                }
            };
            assert_eq!((header.kind, header.output.number(), header.label.number()), (Kind::FromHost, 2, 1));
            assert_eq!((header.input.number(), header.cluster), (0, 7));
            assert_eq!(inside[..14], [&STATION[..], &[2, 0, 0, 0, 1, 3, 8, 6]].concat());
            assert_eq!((answer.annotations().paint(), answer.packet_type()), (3, PacketType::Host));

            // A packet that has lost its Ethernet header, among others: Linux takes it, and answers by the route.
            let lost = echo(3, [0; 6], STATION, false);
            push(&mut bench, 9, &[&lost]);
            push(&mut bench, 3, &[&echo(3, [2, 0, 0, 0, 9, 9], STATION, false), &lost]);
            assert_eq!(bench.drops("host", "no such port"), 1);
            let reply = echo(3, STATION, [2, 0, 0, 0, 1, 3], true);
            awaited(&mut bench, "others", |frame| frame.ends_with(&reply[26..]));

            // By a port of this very node there is no fabric.
            ip("route replace 192.0.2.107 dev port4");
            push(&mut bench, 4, &[&arp_request(4)]);
            let answer = awaited(&mut bench, "eth2", is_answer);
            assert_eq!(answer.data()[..14], [&STATION[..], &[2, 0, 0, 0, 1, 4, 8, 6]].concat());
            assert_eq!(answer.annotations().paint(), 4);

            // One that this node does not have.
            ports.set(vec![host_port(3, 2, 1), host_port(4, 0, 1), host_port(5, 0, 2)]).unwrap();
            let before = bench.drops("host", "no such port");
            ip("addr add 192.0.2.5/32 dev port5");
            ip("route replace 192.0.2.107 dev port5");
            push(&mut bench, 5, &[&arp_request(5)]);
            wait_until("a drop at a port that this node lacks", || {
                bench.run(8);
                bench.drops("host", "no such port") > before
            });
        });
    }
}

#[test]
fn what_was_checked_reaches_linux_from_an_address_of_its_own() {
    in_namespace(|| {
        let (mut bench, ports) = leader("mesh(3)");
        ports.set(vec![host_port(3, 2, 1)]).unwrap();
        ip("addr add 192.0.2.3/32 dev port3");
        let source = ports.checked_source().map(|byte| format!("{byte:02x}")).join(":");
        assert_ne!(ports.checked_source(), FabricHostPorts::new().unwrap().checked_source());
        run("nft", "add table ip t");
        run("nft", "add chain ip t c { type filter hook input priority 0; }");
        run("nft", &format!("add rule ip t c ether saddr {source} counter"));
        run("nft", "add rule ip t c icmp type echo-request counter");
        let frame = echo(3, [2, 0, 0, 0, 1, 3], STATION, false);
        push(&mut bench, 3, &[&frame]);
        let mut packet = bench.packet(&frame);
        packet.annotations_mut().set_paint(3);
        crate::ipsec::set_checked(&mut packet);
        bench.push_packets("in", vec![packet]);
        wait_until("both packets in Linux", || {
            bench.run(8);
            let listed = run("nft", "list table ip t");
            let count = |rule: &str| listed.lines().any(|line| line.contains(rule));
            count("echo-request counter packets 2") && count(&format!("{source} counter packets 1 "))
        });
    });
}

#[test]
fn ports_come_change_and_go_while_the_router_runs() {
    in_namespace(|| {
        let (mut bench, ports) = leader("mesh(3)");
        ports.set(vec![host_port(3, 2, 1)]).unwrap();
        let index = ip("-o link show port3");
        push(&mut bench, 4, &[&arp_request(4)]);
        assert_eq!(bench.drops("host", "no such port"), 1);

        // One more, and the other one's facts change; its interface stays the same.
        let changed = HostPort { mac: MacAddr([2, 0, 0, 0, 2, 3]), mtu: 1400, ..host_port(3, 1, 0) };
        ports
            .set(vec![
                changed.clone(),
                HostPort { name: "node1/eth1.5 of many".into(), ..host_port(4, 0, 0) },
            ])
            .unwrap();
        let link = ip("-o link show port3");
        assert!(link.contains("mtu 1400") && link.contains("02:00:00:00:02:03"), "{link}");
        assert_eq!(index.split(':').next(), link.split(':').next());
        ip("addr add 192.0.2.4/24 dev node1-eth1-5-of");
        push(&mut bench, 4, &[&arp_request(4)]);
        awaited(&mut bench, "eth1", |frame| frame[..6] == STATION);
        let text = bench.read("host.ports");
        let lines: Vec<&str> = text.lines().map(|line| line.rsplitn(3, ' ').last().unwrap()).collect();
        assert_eq!(lines, ["3 port3 1 0", "4 node1-eth1-5-of 0 0"]);

        // One goes, and with it its interface.
        ports.set(vec![changed.clone()]).unwrap();
        wait_until("the interface is gone", || !ip("-o link show").contains("node1-eth1"));
        push(&mut bench, 4, &[&arp_request(4)]);
        assert_eq!(bench.drops("host", "no such port"), 2);

        // One that somebody deletes is not looked at any more, and made anew when the ports are set the next time.
        ip("link delete port3");
        let is_quiet = |bench: &mut Bench| {
            bench.run(8);
            let mut fds = [PollFd::from_borrowed_fd(ports.fd(), PollFlags::IN)];
            poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 0
        };
        assert!(is_quiet(&mut bench));
        ports.set(vec![changed.clone()]).unwrap();
        assert!(ip("-o link show port3").contains("mtu 1400"));

        // What Linux refuses is told, and the rest is done.
        ip("link add port6 type veth peer name other6");
        let errors = ports.set(vec![host_port(6, 0, 0), host_port(7, 0, 1)]).unwrap_err();
        assert!(errors.len() == 1 && errors[0].to_string().contains("port6"), "{errors:?}");
        assert!(ip("-o link show port7").contains("LOWER_UP"));
        ip("link delete port6");
        ports.set(vec![host_port(6, 0, 0), host_port(7, 0, 1)]).unwrap();
        ports.set(Vec::new()).unwrap();
        wait_until("all interfaces are gone", || !ip("-o link show").contains("port"));
        push(&mut bench, 7, &[&arp_request(7)]);
        assert_eq!(bench.drops("host", "not the leader"), 1);
    });
}

#[test]
fn a_port_without_a_link_has_none_in_linux_either() {
    in_namespace(|| {
        let ports = FabricHostPorts::new().unwrap();
        ports.set(vec![host_port(3, 2, 1), host_port(4, 0, 1)]).unwrap();
        let is_up = |name: &str| {
            let link = ip(&format!("-o link show {name}"));
            assert_ne!(link.contains("LOWER_UP"), link.contains("NO-CARRIER"), "{link}");
            link.contains("LOWER_UP")
        };
        wait_until("both are up", || is_up("port3") && is_up("port4"));
        ports.set_carrier(3, false).unwrap();
        wait_until("one is down", || !is_up("port3") && is_up("port4"));
        ports.set_carrier(3, true).unwrap();
        wait_until("both are up again", || is_up("port3") && is_up("port4"));
    });
}

#[test]
fn whoever_sleeps_is_woken_by_a_device_that_came_later() {
    in_namespace(|| {
        let ports = Arc::new(FabricHostPorts::new().unwrap());
        let sleeper = std::thread::spawn({
            let ports = ports.clone();
            move || {
                let mut fds = [PollFd::from_borrowed_fd(ports.fd(), PollFlags::IN)];
                poll(&mut fds, Some(&Timespec { tv_sec: 20, tv_nsec: 0 })).unwrap()
            }
        });
        // Most likely it sleeps by then.
        std::thread::sleep(Duration::from_millis(50));
        ports.set(vec![host_port(3, 2, 1)]).unwrap();
        ask_for_a_neighbour("port3");
        assert_eq!(sleeper.join().unwrap(), 1);
    });
}

/// Has Linux send an ARP request by an interface.
fn ask_for_a_neighbour(interface: &str) {
    ip(&format!("addr add 192.0.2.1/24 dev {interface}"));
    UdpSocket::bind("192.0.2.1:0").unwrap().send_to(b"?", "192.0.2.9:9").unwrap();
}

#[test]
fn frames_cross_from_the_host_to_the_fabric_on_the_slow_thread() {
    in_namespace(|| {
        let text = "fabric :: Fabric(mesh(3), 0, HELLO 0);
             Idle -> Punt -> host :: FabricHost(fabric, eth1, eth2);
             host[0], host[1] -> Discard; host[2] -> to :: ToFabric(fabric);
             to[0] -> Discard; to[1] -> Discard;";
        let compiled = |text: &str| {
            let source = Source { name: "host.click".into(), text: text.into() };
            let (flat, problems) = compile(&source, &Options::default(), &registry());
            assert!(!problems.has_errors(), "{}", problems.render(false));
            Arc::new(flat.unwrap())
        };
        let (shared, options) = (shared(), RouterOptions { workers: 2, ..RouterOptions::default() });
        let build = |text: &str| {
            let control = Control::new(|line| eprintln!("{line}"));
            Router::build(compiled(text), &registry(), &shared, &options, control)
        };
        let problems = build(&text.replace("-> Punt", "")).unwrap_err();
        assert!(problems[0].message.contains("put a Punt before it"), "{}", problems[0].message);

        let mut router = build(text).unwrap();
        router.start().unwrap();
        let ports = ports_of(&shared);
        ports.set(vec![host_port(3, 2, 1)]).unwrap();
        ask_for_a_neighbour("port3");
        let mut sent = 0;
        wait_until("a frame of the host crosses", || {
            sent = router.read("to.direct").unwrap().parse().unwrap();
            sent > 0
        });
        // Ended by the thread that set them up, while the other one carries frames.
        ports.set(Vec::new()).unwrap();
        wait_until("the interface is gone", || !ip("-o link show").contains("port3"));
        assert_eq!(router.read("host.ports").unwrap(), "");
        assert_eq!(router.stop(), Vec::<String>::new());
    });
}
