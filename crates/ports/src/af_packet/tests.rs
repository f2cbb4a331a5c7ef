//! Packet sockets on real interfaces: veth pairs in a network namespace of the test's own.

use std::sync::atomic::{AtomicUsize, Ordering};

use packet::wire::ethernet::MacAddr;
use packet::{Batch, PacketType, Pool};
use testbed::Namespace;

use crate::testing::{
    OtherProcess, Whole, batch_of, command, contents, in_namespace, ip, numbered_frame, pool, receive_numbered, send, soon,
    veth_pair,
};
use crate::{Event, OpenOptions, Port, RxQueue};

fn open(spec: &str) -> Box<dyn Port> {
    crate::open(spec, &OpenOptions::default()).unwrap()
}

/// Whether the screen of a port with these local addresses and VLANs, with ESP or without, takes a frame for ours.
pub(crate) fn decision(
    port: &str,
    addresses: &[std::net::IpAddr],
    vlans: &[(crate::VlanId, crate::VlanShare)],
    takes_esp: bool,
) -> impl Fn(&[u8]) -> bool + use<> {
    let screen = super::Screen::load(port).unwrap();
    screen.set_local_addresses(addresses);
    screen.set_vlans(vlans);
    screen.take_esp(takes_esp);
    screen.leave_clients(takes_esp);
    screen.set_stations(&[crate::testing::station(takes_esp)]);
    let index = crate::interface::Interface::new(port).unwrap().index().unwrap() as u32;
    move |frame| screen.is_ours(index, frame)
}

fn frames(count: u32, length: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| numbered_frame(number, length)).collect()
}

#[test]
fn frames_cross_a_veth_pair() {
    in_namespace(|| {
        veth_pair("left", "right");
        let (mut left, mut right) = (open("left"), open("af_packet:right"));
        let info = left.info();
        assert_eq!((info.mtu, info.driver, info.rx_queues), (1_500, "af_packet", 1));
        let (mut tx, mut rx) = (left.take_tx(0).unwrap(), right.take_rx(0).unwrap());
        let mut pool = pool(1_024);
        for (count, length) in [(1, 60), (200, 60), (200, 1_514), (3, 20)] {
            let expected = frames(count, length);
            send(&mut *tx, &mut pool, &expected);
            assert_eq!(receive_numbered(&mut *rx, &mut pool, count as usize), expected);
        }
        assert_eq!((tx.stats().packets, tx.stats().dropped()), (404, 0));
        assert_eq!((rx.stats().packets, rx.stats().bytes), (404, tx.stats().bytes));
        assert!(rx.wait_fd().is_some());
        assert_eq!(pool.stats().free, 1_024);
        // What we send ourselves does not come back.
        let mut own = left.take_rx(0).unwrap();
        assert_eq!(own.receive(&mut pool, &mut Batch::new(), 32), 0);
    });
}

#[test]
fn metadata_comes_from_the_kernel() {
    in_namespace(|| {
        veth_pair("left", "right");
        ip("link set right address 02:00:00:00:00:02");
        let (mut left, mut right) = (open("left"), open("right"));
        let (mut tx, mut rx) = (left.take_tx(0).unwrap(), right.take_rx(0).unwrap());
        let mut pool = pool(64);
        let mut sent = frames(4, 60);
        sent[1][..6].fill(0xff);
        sent[2][..6].copy_from_slice(&[1, 0, 0x5e, 0, 0, 9]);
        sent[3][5] = 99;
        send(&mut *tx, &mut pool, &sent);
        let mut received = Batch::new();
        soon("4 packets", || {
            rx.receive(&mut pool, &mut received, 32);
            received.len() >= 4
        });
        let types: Vec<PacketType> = received.iter().map(|packet| packet.packet_type()).collect();
        let expected =
            [PacketType::Host, PacketType::Broadcast, PacketType::Multicast, PacketType::OtherHost];
        assert_eq!(types, expected);
        for packet in received.iter() {
            assert_eq!(packet.link_offset(), Some(0));
            let age = crate::recorder::now_ns().abs_diff(packet.timestamp_ns());
            assert!(age < 3_600_000_000_000, "a time stamp of the last hour");
        }
    });
}

#[test]
fn vlan_tags_are_put_back() {
    in_namespace(|| {
        veth_pair("left", "right");
        let (mut left, mut right) = (open("left"), open("right"));
        let (mut tx, mut rx) = (left.take_tx(0).unwrap(), right.take_rx(0).unwrap());
        let mut pool = pool(64);
        // The receiving kernel takes the tag out of the frame before it gives it to packet sockets. Such a frame may
        // be 4 bytes longer than others.
        let plain = numbered_frame(1, 1_514);
        let tagged = [&plain[..12], &[0x81, 0, 0x20, 7], &plain[12..]].concat();
        let twice = [&plain[..12], &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 7], &plain[12..100]].concat();
        send(&mut *tx, &mut pool, &[tagged.clone(), twice.clone()]);
        assert_eq!((tx.stats().packets, tx.stats().dropped()), (2, 0));
        let mut received = Batch::new();
        soon("2 packets", || {
            rx.receive(&mut pool, &mut received, 32);
            received.len() >= 2
        });
        assert_eq!(contents(&received), [tagged, twice]);
    });
}

#[test]
fn checksums_left_to_hardware_are_completed() {
    in_namespace(|| {
        veth_pair("left", "right");
        ip("addr add 192.0.2.1/24 dev left");
        ip("addr add 2001:db8::1/64 dev left nodad");
        for (address, at) in [("192.0.2.2", 14 + 20), ("2001:db8::2", 14 + 40)] {
            ip(&format!("neigh add {address} lladdr 02:00:00:00:00:02 dev left"));
            let mut right = open("right");
            let mut rx = right.take_rx(0).unwrap();
            let any = if address.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
            let socket = std::net::UdpSocket::bind(any).unwrap();
            socket
                .send_to(
                    b"checksum, please",
                    format!("{address}:7").replace("2001:db8::2:", "[2001:db8::2]:"),
                )
                .unwrap();
            let (mut pool, mut batch) = (pool(64), Batch::new());
            while batch.is_empty() {
                rx.receive(&mut pool, &mut batch, 1);
                if batch.iter().any(|packet| !packet.data().ends_with(b"checksum, please")) {
                    pool.free(&mut batch);
                }
            }
            let data = batch.packets()[0].data();
            let udp = &data[at..];
            let addresses = if at == 34 { &data[26..34] } else { &data[22..54] };
            let length = (udp.len() as u16).to_be_bytes();
            let all = [udp, addresses, &[0, 17], &length].concat();
            assert!(packet::checksum::is_valid(&all), "{address}: {data:02x?}");
        }
    });
}

static WARNINGS: AtomicUsize = AtomicUsize::new(0);

#[test]
fn offload_frames_are_counted_with_one_warning() {
    in_namespace(|| {
        use std::io::{Read, Write};
        veth_pair("left", "right");
        ip("addr add 192.0.2.1/24 dev left");
        let listener = std::net::TcpListener::bind("192.0.2.1:7000").unwrap();
        let options = OpenOptions {
            warn: |text| {
                assert!(text.contains("`ethtool -K left tso off gso off gro off`"), "{text}");
                WARNINGS.fetch_add(1, Ordering::Relaxed);
            },
            ..OpenOptions::default()
        };
        let mut left = crate::open("left?ring=1024", &options).unwrap();
        let mut rx = left.take_rx(0).unwrap();
        // The far host has a namespace of its own, so that TCP really crosses the veth.
        let (number, our_turn) = std::sync::mpsc::channel();
        let (go, their_turn) = std::sync::mpsc::channel::<()>();
        let far = std::thread::spawn(move || {
            in_namespace(move || {
                number.send(rustix::thread::gettid().as_raw_nonzero()).unwrap();
                their_turn.recv().unwrap();
                ip("addr add 192.0.2.2/24 dev right");
                ip("link set right up");
                let mut stream = std::net::TcpStream::connect("192.0.2.1:7000").unwrap();
                stream.write_all(&[1; 200_000]).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                // With the namespace goes what was not received yet.
                their_turn.recv().unwrap();
            });
        });
        ip(&format!("link set right netns {}", our_turn.recv().unwrap()));
        go.send(()).unwrap();
        let mut received = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), 200_000);
        // Somebody has Linux merge packets again: frames that are too long tell that, once in a while.
        crate::testing::command("ethtool", "-K left gro on");
        std::thread::sleep(crate::af_packet::rx::KEPT_APART_EVERY);
        let (mut pool, mut batch) = (pool(64), Batch::new());
        while rx.receive(&mut pool, &mut batch, 32) > 0 {
            assert!(batch.iter().all(|packet| packet.len() <= 1_514));
            pool.free(&mut batch);
        }
        assert!(rx.stats().count(Event::Offload) > 1, "{:?}", rx.stats());
        assert!(!crate::gro::merges("left"));
        assert_eq!(WARNINGS.load(Ordering::Relaxed), 1);
        go.send(()).unwrap();
        far.join().unwrap();
    });
}

#[test]
fn several_queues_get_every_packet_once() {
    in_namespace(|| {
        veth_pair("left", "right");
        let options = OpenOptions { rx_queues: 2, tx_queues: 2, ..OpenOptions::default() };
        let mut right = crate::open("right", &options).unwrap();
        assert_eq!((right.info().rx_queues, right.info().tx_queues), (2, 2));
        let mut left = open("left");
        let mut tx = left.take_tx(0).unwrap();
        let mut queues = [right.take_rx(0).unwrap(), right.take_rx(1).unwrap()];
        let mut pool = pool(512);
        let sent = flows();
        send(&mut *tx, &mut pool, &sent);
        let (mut received, mut shares) = (Vec::new(), [0; 2]);
        soon("all packets", || {
            for (queue, share) in queues.iter_mut().zip(&mut shares) {
                let mut batch = Batch::new();
                *share += queue.receive(&mut pool, &mut batch, 256);
                received.extend(contents(&batch));
                pool.free(&mut batch);
            }
            received.len() >= 128
        });
        received.sort();
        let mut expected = sent;
        expected.sort();
        assert_eq!(received, expected);
        assert!(shares.iter().all(|&share| share > 10), "{shares:?}");
    });
}

/// UDP packets of many flows to other hosts, which a router gets.
fn flows() -> Vec<Vec<u8>> {
    let flow = |flow: u8| {
        let mut frame = numbered_frame(flow.into(), 60);
        frame[12..26].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame[26..34].copy_from_slice(&[10, 0, 0, flow, 10, 0, 1, flow]);
        frame[34..42].copy_from_slice(&[flow, 1, 0, 7, 0, 26, 0, 0]);
        frame
    };
    (0..128).map(flow).collect()
}

#[test]
fn queues_beside_linux_share_until_the_last() {
    in_namespace(|| {
        veth_pair("left", "right");
        ip("link set right address 02:00:00:00:00:02");
        let options = OpenOptions { rx_queues: 2, ..OpenOptions::default() };
        let mut right = crate::open("right?steer=transit", &options).unwrap();
        let mut left = open("left");
        let mut tx = left.take_tx(0).unwrap();
        let mut pool = pool(512);
        let mut first = right.take_rx(0).unwrap();
        let mut second = right.take_rx(1).unwrap();
        let frames = [flows(), frames(3, 60)].concat();
        send(&mut *tx, &mut pool, &frames);
        let mut received = Batch::new();
        let mut shares = [0; 2];
        soon("all packets of the flows", || {
            shares[0] += first.receive(&mut pool, &mut received, 256);
            shares[1] += second.receive(&mut pool, &mut received, 256);
            shares[0] + shares[1] >= 128
        });
        assert_eq!((shares[0] + shares[1], shares[0] > 10, shares[1] > 10), (128, true, true), "{shares:?}");
        // The filters of all queues count together.
        soon("the frames that are Linux's", || first.stats().left_to_kernel() == 3);
        assert_eq!(second.stats().left_to_kernel(), 0);
        pool.free(&mut received);
        // Without one of them the other has all.
        drop(second);
        send(&mut *tx, &mut pool, &flows());
        let mut count = 0;
        soon("all packets on one queue", || {
            count += first.receive(&mut pool, &mut received, 256);
            count >= 128
        });
        assert!(right.details().starts_with("packets steered to us 256"), "{}", right.details());
        drop(first);
        assert_eq!(right.details(), "", "the programs are gone");
        right.host().unwrap().set_local_addresses(&[[192, 0, 2, 1].into()]).unwrap();
    });
}

#[test]
fn a_ring_that_is_full_drops_in_the_kernel_and_counts() {
    in_namespace(|| {
        veth_pair("left", "right");
        let (mut left, mut right) = (open("left"), open("right?ring=32"));
        let (mut tx, mut rx) = (left.take_tx(0).unwrap(), right.take_rx(0).unwrap());
        let mut pool = pool(256);
        let sent = frames(50, 60);
        send(&mut *tx, &mut pool, &sent);
        soon("packets are dropped", || rx.stats().count(Event::RingFull) == 18);
        // Small enough a pool that the packets have to stay in the ring.
        let mut small = crate::testing::pool(1);
        let mut received = Batch::new();
        assert_eq!(rx.receive(&mut small, &mut received, 32), 1);
        assert_eq!(rx.receive(&mut small, &mut received, 32), 0);
        assert_eq!(rx.receive(&mut pool, &mut received, 64), 31);
        assert_eq!(contents(&received), sent[..32]);
        // A second question does not forget the first answer.
        assert_eq!(rx.stats().count(Event::RingFull), 18);
    });
}

#[test]
fn a_link_may_go_and_come_back() {
    in_namespace(|| {
        veth_pair("left", "right");
        let (mut left, mut right) = (open("left"), open("right"));
        let (mut tx, mut rx) = (left.take_tx(0).unwrap(), right.take_rx(0).unwrap());
        let mut pool = pool(256);
        // First the cable, then the interface itself.
        ip("link set right down");
        send(&mut *tx, &mut pool, &frames(5, 60));
        // The kernel tells of a lost cable in the background; until then the packets wait.
        soon("the loss is counted", || {
            tx.flush(&mut pool);
            tx.stats().count(Event::LinkDown) == 5
        });
        ip("link set left down");
        send(&mut *tx, &mut pool, &frames(7, 60));
        assert_eq!((tx.stats().count(Event::LinkDown), tx.stats().packets), (12, 0));
        assert_eq!(rx.receive(&mut pool, &mut Batch::new(), 32), 0);
        rx.wait_fd();
        assert_eq!(rx.stats().count(Event::LinkLost), 1);
        rx.wait_fd();
        assert_eq!(rx.stats().count(Event::LinkLost), 1);
        ip("link set left up");
        ip("link set right up");
        send(&mut *tx, &mut pool, &frames(9, 60));
        assert_eq!(receive_numbered(&mut *rx, &mut pool, 9), frames(9, 60));
        assert_eq!((tx.stats().count(Event::LinkDown), tx.stats().packets), (12, 9));
        ip("link delete left");
        send(&mut *tx, &mut pool, &frames(2, 60));
        tx.flush(&mut pool);
        assert_eq!(tx.stats().count(Event::PortGone), 2);
        assert_eq!(pool.stats().free, 256);
    });
}

#[test]
fn frames_that_cannot_be_sent_are_counted() {
    in_namespace(|| {
        veth_pair("left", "right");
        let (mut left, mut right) = (open("left"), open("right"));
        let (mut tx, mut rx) = (left.take_tx(0).unwrap(), right.take_rx(0).unwrap());
        let mut pool = pool(256);
        let mut batch = batch_of(&mut pool, &[numbered_frame(1, 1_515), vec![0; 13], numbered_frame(2, 60)]);
        assert_eq!(tx.send(&mut pool, &mut batch), 3);
        let stats = tx.stats();
        let counts = (stats.packets, stats.count(Event::TooLong), stats.count(Event::TooShort));
        assert_eq!(counts, (1, 1, 1));
        assert_eq!(receive_numbered(&mut *rx, &mut pool, 1), [numbered_frame(2, 60)]);
        // The MTU becomes smaller behind our back.
        ip("link set left mtu 1000");
        let mut batch = batch_of(&mut pool, &[numbered_frame(3, 1_200), numbered_frame(4, 60)]);
        assert_eq!(tx.send(&mut pool, &mut batch), 2);
        assert_eq!((tx.stats().packets, tx.stats().count(Event::TooLong)), (2, 2));
        assert_eq!(receive_numbered(&mut *rx, &mut pool, 1), [numbered_frame(4, 60)]);
    });
}

#[test]
fn a_port_may_be_opened_while_its_interface_is_down() {
    in_namespace(|| {
        veth_pair("left", "right");
        ip("link set right down");
        // Several queues form a group once it is up.
        let options = OpenOptions { rx_queues: 2, ..OpenOptions::default() };
        let (mut left, mut right) = (open("left"), crate::open("right", &options).unwrap());
        let (mut tx, mut back) = (left.take_tx(0).unwrap(), right.take_tx(0).unwrap());
        let mut receivers: Vec<_> = (0..2).map(|queue| right.take_rx(queue).unwrap()).collect();
        let mut pool = pool(256);
        send(&mut *back, &mut pool, &frames(3, 60));
        assert_eq!((back.stats().count(Event::LinkDown), back.stats().packets), (3, 0));
        ip("link set right up");
        let mut received = Batch::new();
        soon("both queues are there", || {
            send(&mut *tx, &mut pool, &frames(1, 60));
            receivers.iter_mut().map(|rx| rx.receive(&mut pool, &mut received, 32)).sum::<usize>() > 0
                && receivers.iter().all(|rx| rx.due_in_ns().is_none())
        });
        send(&mut *back, &mut pool, &frames(4, 60));
        assert_eq!(receive_numbered(&mut *left.take_rx(0).unwrap(), &mut pool, 4), frames(4, 60));
    });
}

#[test]
fn errors_say_what_to_do() {
    in_namespace(|| {
        let message = |spec: &str| crate::open(spec, &OpenOptions::default()).err().unwrap().to_string();
        assert_eq!(message("eth7"), "there is no interface `eth7`; there are lo");
        assert!(message("lo").starts_with("interface `lo` is not Ethernet"));
        veth_pair("left", "right");
        let _port = open("left");
        let expected =
            "port `left` is already in use by another port of this process; stop it or use another port";
        assert_eq!(message("left"), expected);
        assert_eq!(
            message("right?ring=1"),
            "port `right?ring=1`: `ring=1` is wrong: a number from 32 to 1048576 is expected"
        );
    });
}

#[test]
fn a_port_of_another_process_is_named() {
    in_namespace(|| {
        veth_pair("left", "right");
        let holder = OtherProcess::with_ports("left");
        let error = crate::open("left", &OpenOptions::default()).err().unwrap();
        let expected =
            format!("port `left` is already in use by process {}; stop it or use another port", holder.id());
        assert_eq!(error.to_string(), expected);
        // However it ends: nothing of it stays.
        holder.kill();
        open("left");
    });
}

#[test]
fn linux_merges_nothing_while_a_port_is_open() {
    in_namespace(|| {
        let merges = || crate::gro::merges("left");
        let anew = || {
            veth_pair("left", "right");
            crate::testing::command("ethtool", "-K left gro on");
        };
        anew();
        for spec in ["left", "af_xdp:left?mode=generic"] {
            let mut left = open(spec);
            assert!(!merges(), "{spec}");
            let (mut rx, mut pool) = (left.take_rx(0).unwrap(), pool(8_192));
            rx.prepare(&mut pool).unwrap();
            ip("link delete left");
            anew();
            soon(&format!("{spec}: the new one is not merged either"), || {
                rx.receive(&mut pool, &mut Batch::new(), 32);
                !merges()
            });
            drop((rx, left));
            assert!(merges(), "{spec}, closed");
        }
        // The kernel takes apart what is not ours to send on.
        let left = open("left?steer=transit");
        assert!(merges());
        drop(left);
        // Nobody turned it on.
        crate::testing::command("ethtool", "-K left gro off");
        drop(open("left"));
        assert!(!merges());
    });
}

#[test]
fn an_interface_may_vanish_and_come_back() {
    in_namespace(|| {
        veth_pair("left", "right");
        let two = OpenOptions { rx_queues: 2, warn: |_| {}, tell: |_| {}, ..OpenOptions::default() };
        let mut left = crate::open("left?promiscuous", &two).unwrap();
        left.keep_from_linux().unwrap();
        // Who is asked for by ARP knows the one who asks, if Linux has heard it.
        let (everybody, asks) = ([0xff; 6], [2, 0, 0, 0, 0, 7]);
        let kinds = [8, 6, 0, 1, 8, 0, 6, 4, 0, 1];
        let question =
            [&everybody[..], &asks, &kinds, &asks, &[10, 0, 0, 7], &[0; 6], &[10, 0, 0, 1]].concat();
        let mut tx = left.take_tx(0).unwrap();
        let mut queues = [left.take_rx(0).unwrap(), left.take_rx(1).unwrap()];
        let mut pool = pool(512);
        for round in 1..=2 {
            ip("link delete left");
            soon("the loss is noticed", || {
                queues.iter_mut().all(|queue| {
                    assert_eq!(queue.receive(&mut pool, &mut Batch::new(), 32), 0);
                    queue.due_in_ns().is_some()
                })
            });
            let mut batch = batch_of(&mut pool, &frames(3, 60));
            assert_eq!(tx.send(&mut pool, &mut batch), 3);
            assert_eq!(tx.stats().count(Event::PortGone), 3 * round);
            veth_pair("left", "right");
            ip(&format!("link set left address 02:00:00:00:00:0{round} mtu 140{round}"));
            let mac = MacAddr([2, 0, 0, 0, 0, round as u8]);
            assert_eq!((left.info().mac, left.info().mtu), (mac, 1_400 + round as usize));
            ip("link set left mtu 1500");
            soon("the port is back", || {
                queues.iter_mut().all(|queue| {
                    queue.receive(&mut pool, &mut Batch::new(), 32);
                    queue.due_in_ns().is_none()
                })
            });
            let mut right = open("right");
            let (mut far_tx, mut far_rx) = (right.take_tx(0).unwrap(), right.take_rx(0).unwrap());
            std::thread::sleep(super::LOOK_EVERY);
            send(&mut *tx, &mut pool, &frames(30, 60));
            assert_eq!(receive_numbered(&mut *far_rx, &mut pool, 30), frames(30, 60));
            send(&mut *far_tx, &mut pool, &frames(30, 60));
            // Each packet once: both sockets are in one group.
            let mut received = Batch::new();
            soon("30 packets", || {
                for queue in &mut queues {
                    queue.receive(&mut pool, &mut received, 32);
                }
                received.len() >= 30
            });
            for queue in &mut queues {
                assert_eq!(queue.receive(&mut pool, &mut received, 32), 0);
            }
            assert_eq!(contents(&received), frames(30, 60));
            let is_promiscuous = || crate::testing::command("ip", "-d link show dev left").contains("promiscuity 1");
            soon("promiscuity", is_promiscuous);
            pool.free(&mut received);
            ip("addr add 10.0.0.1/24 dev left");
            send(&mut *far_tx, &mut pool, std::slice::from_ref(&question));
            soon("the question", || {
                queues.iter_mut().for_each(|queue| _ = queue.receive(&mut pool, &mut received, 32));
                let came = contents(&received).iter().any(|frame| frame.starts_with(&question));
                pool.free(&mut received);
                came
            });
            assert_eq!(crate::testing::command("ip", "neigh show dev left"), "");
        }
        assert_eq!(pool.stats().free, 512);
    });
}

/// The sockets and the program are off it then, though neither its name nor its number is another one.
#[test]
fn an_interface_that_was_away_for_a_moment_is_back() {
    in_namespace(|| {
        veth_pair("left", "right");
        let elsewhere = Namespace::new(Namespace::unique_name("elsewhere")).unwrap();
        let thread = rustix::thread::gettid().as_raw_nonzero();
        let two = OpenOptions { rx_queues: 2, warn: |_| {}, tell: |_| {}, ..OpenOptions::default() };
        let mut left = crate::open("left?promiscuous", &two).unwrap();
        let mut tx = left.take_tx(0).unwrap();
        let mut queues = [left.take_rx(0).unwrap(), left.take_rx(1).unwrap()];
        let mut pool = pool(512);
        let mut right = open("right");
        let (mut far_tx, mut far_rx) = (right.take_tx(0).unwrap(), right.take_rx(0).unwrap());
        let index = crate::testing::command("ip", "-o link show dev left");
        for _ in 0..2 {
            ip(&format!("link set left netns {}", elsewhere.name()));
            elsewhere.ip(&format!("link set left netns {thread}")).unwrap();
            ip("link set left up");
            let now = crate::testing::command("ip", "-o link show dev left");
            assert_eq!(now.split(':').next(), index.split(':').next(), "its number");
            let mut received = Batch::new();
            // What came before it went may be in the rings still.
            soon("what comes in, and promiscuity", || {
                send(&mut *far_tx, &mut pool, &frames(30, 60));
                queues.iter_mut().for_each(|queue| _ = queue.receive(&mut pool, &mut received, 32));
                let came = !received.is_empty();
                pool.free(&mut received);
                came && crate::testing::command("ip", "-d link show dev left").contains("promiscuity 1")
            });
            // The first that goes out is not lost.
            send(&mut *tx, &mut pool, &frames(30, 60));
            let numbered = receive_numbered(&mut *far_rx, &mut pool, 30);
            assert_eq!((numbered, tx.stats().count(Event::PortGone)), (frames(30, 60), 0));
        }
    });
}

#[test]
fn merged_packets_are_divided_as_the_kernel_divides_them() {
    in_namespace(|| {
        veth_pair("left", "right");
        command("ethtool", "-K left tso off gso off tx-udp-segmentation off tx off");
        let options = OpenOptions { takes_merged: true, ..OpenOptions::default() };
        let mut left = crate::open("left", &options).unwrap();
        let mut right = open("right");
        let mut pool = pool(4_096);
        pool.add_large(8).unwrap();
        let (mut tx, mut rx) = (left.take_tx(0).unwrap(), right.take_rx(0).unwrap());
        tx.prepare(&mut pool).unwrap();
        rx.prepare(&mut pool).unwrap();
        let usual = Whole {
            is_ipv4: true,
            is_tcp: true,
            option_bytes: 12,
            extension_bytes: 0,
            flags: 0x18,
            sequence: 7,
            identification: 9,
            piece_bytes: 1_400,
            payload_bytes: 30_000,
        };
        let mut all = vec![];
        for usual in [usual, Whole { is_ipv4: false, ..usual }, Whole { is_ipv4: false, extension_bytes: 16, ..usual }] {
            all.extend([
                usual,
                Whole { sequence: u32::MAX - 5_000, identification: u16::MAX - 3, ..usual },
                // FIN and PSH with the last, CWR with the first, ECE and URG with all.
                Whole { flags: 0xf9, payload_bytes: 5_001, option_bytes: 0, ..usual },
                Whole { piece_bytes: 1_380, payload_bytes: 1_381, option_bytes: 40, ..usual },
                Whole { piece_bytes: 536, payload_bytes: 536 * 100, ..usual },
            ]);
            if usual.extension_bytes == 0 {
                all.push(Whole { is_tcp: false, ..usual });
                all.push(Whole { is_tcp: false, piece_bytes: 1_001, payload_bytes: 60_001, ..usual });
            }
        }
        for whole in all {
            let mut divided = Vec::new();
            let packet = whole.packet(&mut pool);
            let count = packet.pieces();
            let mut pieces = Batch::new();
            assert_eq!(packet::division::divide(&mut pool, &packet, |piece| pieces.push(piece)), Ok(0));
            divided.extend(contents(&pieces));
            pool.free(&mut pieces);
            assert_eq!(divided.len() as u64, count);
            assert_eq!(divided.iter().map(|piece| piece.len() as u64).sum::<u64>(), packet.bytes_in_pieces());
            let before = tx.stats();
            let mut batch = Batch::new();
            batch.push(packet);
            tx.send(&mut pool, &mut batch);
            let sent = tx.stats();
            assert_eq!((sent.packets - before.packets, sent.bytes - before.bytes), (
                count,
                divided.iter().map(|piece| piece.len() as u64).sum()
            ));
            let mut received = Vec::new();
            soon("all pieces came", || {
                let mut batch = Batch::new();
                rx.receive(&mut pool, &mut batch, 64);
                received.extend(contents(&batch).into_iter().filter(|frame| frame[..6] == [2, 0, 0, 0, 0, 9]));
                pool.free(&mut batch);
                received.len() >= divided.len()
            });
            assert_eq!(received.len(), divided.len(), "{whole:?}");
            for (theirs, ours) in received.iter().zip(&divided) {
                assert_eq!(theirs, ours, "{whole:?}");
            }
        }
        assert_eq!(pool.stats().free, 4_096);
    });
}

#[test]
fn merged_frames_come_and_go_whole() {
    in_namespace(|| {
        veth_pair("left", "right");
        veth_pair("out", "far");
        let options = OpenOptions { takes_merged: true, ..OpenOptions::default() };
        let open = |name: &str| crate::open(name, &options).unwrap();
        let (mut left, mut right, mut out, mut far) = (open("left"), open("right"), open("out"), open("far"));
        let mut pool = pool(1_024);
        pool.add_large(8).unwrap();
        let (mut tx, mut rx) = (left.take_tx(0).unwrap(), right.take_rx(0).unwrap());
        let (mut on, mut end) = (out.take_tx(0).unwrap(), far.take_rx(0).unwrap());
        for queue in [&mut rx, &mut end] {
            queue.prepare(&mut pool).unwrap();
        }
        let usual = Whole {
            is_ipv4: true,
            is_tcp: true,
            option_bytes: 12,
            extension_bytes: 0,
            flags: 0x10,
            sequence: 1,
            identification: 1,
            piece_bytes: 1_448,
            payload_bytes: 65_160,
        };
        // One that fits a slot of the ring, and small packets between, whose order stays.
        let small = numbered_frame(5, 60);
        for whole in [usual, Whole { payload_bytes: 1_600, piece_bytes: 800, ..usual }, Whole { is_ipv4: false, piece_bytes: 1_428, ..usual }] {
            let (frame, [_, transport, _]) = whole.frame();
            let mut batch = batch_of(&mut pool, std::slice::from_ref(&small));
            batch.push(whole.packet(&mut pool));
            batch_of(&mut pool, std::slice::from_ref(&small)).drain().for_each(|packet| batch.push(packet));
            tx.send(&mut pool, &mut batch);
            let hop = |rx: &mut dyn RxQueue, pool: &mut Pool| {
                let mut received = Batch::new();
                soon("three frames", || {
                    rx.receive(pool, &mut received, 32);
                    received.len() >= 3
                });
                let merged: Vec<_> = received.iter().map(|packet| (packet.is_merged(), packet.pieces())).collect();
                let pieces = whole.payload_bytes.div_ceil(whole.piece_bytes.into()) as u64;
                assert_eq!(merged, [(false, 1), (true, pieces), (false, 1)], "{whole:?}");
                let mut came = contents(&received);
                // Of a merged packet it means nothing.
                came[1][transport + 16..transport + 18].fill(0);
                assert_eq!(came, [small.clone(), frame.clone(), small.clone()], "{whole:?}");
                received
            };
            let mut received = hop(&mut *rx, &mut pool);
            on.send(&mut pool, &mut received);
            let mut received = hop(&mut *end, &mut pool);
            pool.free(&mut received);
        }
        // The link goes down while frames wait that the kernel has kept aside.
        let mut received = Batch::new();
        for sequence in 0..3 {
            let mut batch = Batch::new();
            batch.push(Whole { sequence, ..usual }.packet(&mut pool));
            tx.send(&mut pool, &mut batch);
        }
        ip("link set right down");
        ip("link set right up");
        soon("the link is there", || {
            send(&mut *tx, &mut pool, std::slice::from_ref(&small));
            rx.receive(&mut pool, &mut received, 32);
            contents(&received).contains(&small)
        });
        let sequences: Vec<u8> =
            received.iter().filter(|packet| packet.is_merged()).map(|packet| packet.data()[41]).collect();
        assert_eq!(sequences, [0, 1, 2]);
        assert_eq!(rx.stats().count(Event::TooLong), 0);
        pool.free(&mut received);
        // Nobody has large frames: it comes in pieces, and what is behind it behind them.
        let mut batch = Batch::new();
        batch.push(usual.packet(&mut pool));
        batch_of(&mut pool, std::slice::from_ref(&small)).drain().for_each(|packet| batch.push(packet));
        tx.send(&mut pool, &mut batch);
        let held: Vec<_> = std::iter::from_fn(|| pool.allocate_large()).collect();
        let mut came = Vec::new();
        soon("the small one comes", || {
            rx.receive(&mut pool, &mut received, 32);
            came.extend(contents(&received));
            pool.free(&mut received);
            came.last() == Some(&small) && came.len() > 40
        });
        let pieces = came.iter().filter(|frame| frame.len() == 14 + 52 + 1_448).count();
        assert_eq!((pieces, rx.stats().count(Event::NoFrame)), (45, 0));
        drop(held);
    });
}

#[test]
fn what_the_kernel_cannot_describe_does_not_stop_a_ring() {
    in_namespace(|| {
        veth_pair("left", "right");
        let options = OpenOptions { takes_merged: true, ..OpenOptions::default() };
        let (mut left, mut right) = (open("left"), crate::open("right", &options).unwrap());
        let mut pool = pool(256);
        pool.add_large(4).unwrap();
        let (mut tx, mut rx) = (left.take_tx(0).unwrap(), right.take_rx(0).unwrap());
        rx.prepare(&mut pool).unwrap();
        let index = crate::interface::Interface::new("left").unwrap().index().unwrap();
        let socket = super::socket::open().unwrap();
        super::socket::set(&socket, libc::PACKET_VNET_HDR, &1).unwrap();
        super::socket::bind(&socket, index, false).unwrap();
        // Fragments of UDP (VIRTIO_NET_HDR_GSO_UDP), and segments of TCP in a tunnel.
        let udp = Whole {
            is_ipv4: true,
            is_tcp: false,
            option_bytes: 0,
            extension_bytes: 0,
            flags: 0,
            sequence: 0,
            identification: 1,
            piece_bytes: 1_400,
            payload_bytes: 8_000,
        };
        let (frame, _) = udp.frame();
        let mut tunnel = Whole { is_tcp: true, flags: 0x10, ..udp }.frame().0;
        tunnel[23] = 4;
        let check = packet::checksum::finish(packet::checksum::sum(&{
            let mut header = tunnel[14..34].to_vec();
            header[10..12].fill(0);
            header
        }));
        tunnel[24..26].copy_from_slice(&check.to_be_bytes());
        let header = |kind: u8, at: u16, offset: u16| {
            let numbers = [54_u16, 1_400, at, offset].map(u16::to_ne_bytes).concat();
            [vec![1, kind], numbers].concat()
        };
        let small = numbered_frame(5, 60);
        for (header, frame) in [(header(3, 34, 6), frame), (header(1, 34, 16), tunnel)] {
            // Kernels refuse some of them.
            let _ = rustix::io::writev(
                &socket,
                &[std::io::IoSlice::new(&header), std::io::IoSlice::new(&frame)],
            );
            for _ in 0..4 {
                send(&mut *tx, &mut pool, std::slice::from_ref(&small));
                let mut received = Batch::new();
                soon("what follows comes", || {
                    rx.receive(&mut pool, &mut received, 32);
                    contents(&received).contains(&small)
                });
                pool.free(&mut received);
            }
        }
    });
}
