//! AF_XDP on real interfaces: veth pairs in a network namespace of the test's own.

use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::time::Duration;

use packet::wire::ethernet::MacAddr;
use packet::{Batch, PacketType, Pool, PoolOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::host_steering::Steer;
use crate::testing::{
    Whole, batch_of, begin, command, contents, in_namespace, ip, numbered_frame, pool, receive_numbered, soon,
    veth_pair,
};
use crate::{Event, OpenOptions, Port, RxQueue, TxQueue};

fn open(spec: &str) -> Box<dyn Port> {
    crate::open(spec, &OpenOptions::default()).unwrap()
}

/// Says whether a frame is ours.
type Decide = Box<dyn FnMut(&[u8]) -> bool>;

/// Whether the programs of an interface with these local addresses and VLANs take a frame for ours, that of XDP, and that of tc for one
/// to forward: with ESP, and without all that is for clients of DHCP, or the other way round.
pub(crate) fn decision(
    mac: MacAddr,
    mtu: usize,
    addresses: &[std::net::IpAddr],
    vlans: &[(crate::VlanId, crate::VlanShare)],
    takes_esp: bool,
) -> [Decide; 2] {
    let program = || {
    let mut program = super::Program::load("left", 1, Steer::Transit).unwrap();
    program.set_interface(mac, mtu, false).unwrap();
    program.local.set(addresses).unwrap();
    program.vlans.set(vlans).unwrap();
    program.local.take_esp(takes_esp).unwrap();
    program.local.leave_clients(takes_esp).unwrap();
    program.stations.set(&[crate::testing::station(takes_esp)]).unwrap();
        program
    };
    let (mut xdp, mut tc) = (program(), program());
    let (family, kind) = (rustix::net::AddressFamily::XDP, rustix::net::SocketType::RAW);
    let socket = rustix::net::socket(family, kind, None).unwrap();
    xdp.add_socket(0, &socket).unwrap();
    let mut dropping = crate::host::dropping();
    tc.hand_to_in_tc(crate::bpf::classifier("", &mut dropping, "inject").unwrap().fd().unwrap());
    let by_xdp = move |frame: &[u8]| {
        let _open = &socket;
        xdp.is_ours(frame)
    };
    const DROPPED: u32 = 2;
    let by_tc = move |frame: &[u8]| {
        let _loaded = &dropping;
        tc.said_in_tc(frame) == DROPPED
    };
    [Box::new(by_xdp), Box::new(by_tc)]
}

fn frames(count: u32, length: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| numbered_frame(number, length)).collect()
}

type Queues = (Box<dyn RxQueue>, Box<dyn TxQueue>);

/// The first queues of a port, ready to use.
fn queues(port: &mut dyn Port, pool: &mut Pool) -> Queues {
    let (mut rx, mut tx) = (port.take_rx(0).unwrap(), port.take_tx(0).unwrap());
    begin(&mut *rx, pool);
    tx.prepare(pool).unwrap();
    (rx, tx)
}

fn send(tx: &mut dyn TxQueue, pool: &mut Pool, frames: &[Vec<u8>]) {
    let mut batch = batch_of(pool, frames);
    assert_eq!(tx.send(pool, &mut batch), frames.len());
}

fn is_readable(fd: BorrowedFd<'_>, wait: Duration) -> bool {
    let timeout = Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as i64 };
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

/// Which program is on an interface, by the words of `ip`.
fn program_on(interface: &str) -> bool {
    command("ip", &format!("-d link show dev {interface}")).contains("prog/xdp")
}

#[test]
fn frames_cross_a_veth_pair_in_each_mode() {
    in_namespace(|| {
        for options in ["", "?mode=native&zerocopy=no", "?mode=generic", "?busy_poll=64"] {
            veth_pair("left", "right");
            let (mut left, mut right) = (open("left"), open(&format!("af_xdp:right{options}")));
            let info = right.info();
            assert_eq!((info.mtu, info.driver, info.rx_queues), (1_500, "af_xdp", 1));
            assert!(program_on("right"));
            let mut pool = pool(4_096);
            let (mut packet_rx, mut packet_tx) = queues(&mut *left, &mut pool);
            let (mut rx, mut tx) = queues(&mut *right, &mut pool);
            for (count, length) in [(1, 60), (200, 60), (200, 1_514), (3, 20)] {
                let expected = frames(count, length);
                send(&mut *packet_tx, &mut pool, &expected);
                assert_eq!(receive_numbered(&mut *rx, &mut pool, count as usize), expected, "{options}");
                send(&mut *tx, &mut pool, &expected);
                assert_eq!(
                    receive_numbered(&mut *packet_rx, &mut pool, count as usize),
                    expected,
                    "{options}"
                );
            }
            assert_eq!((tx.stats().packets, tx.stats().dropped()), (404, 0));
            assert_eq!((rx.stats().packets, rx.stats().bytes), (404, tx.stats().bytes));
            assert_eq!(tx.stats().count(Event::Copied), 0);
            assert!(right.details().contains("steered to us 404"), "{}", right.details());
            // All frames are in the pool or lent; when the port is gone all are in the pool.
            drop((left, right, packet_rx, packet_tx, rx, tx));
            pool.refill();
            assert_eq!(pool.stats().free, 4_096);
            // A child process of another test, forked and not yet another program, has a copy of all descriptors.
            soon("the program is off", || !program_on("right"));
            ip("link delete left");
        }
    });
}

#[test]
fn jumbo_frames_cross_a_veth_pair_in_several_chunks() {
    in_namespace(|| {
        for options in ["?mode=native", "?mode=generic"] {
            veth_pair("left", "right");
            ["left", "right"].iter().for_each(|name| ip(&format!("link set {name} mtu 9000")));
            let (mut left, mut right) = (open("left"), open(&format!("af_xdp:right{options}")));
            // Frames that hold the longest packet behind the kernel's head room, and some that are too short for it.
            let pool = |data_bytes| Pool::new(PoolOptions { frames: 2_048, data_bytes }).unwrap();
            let (mut pool, mut small) = (pool(9_146), pool(6_000));
            let (mut packet_rx, mut packet_tx) = queues(&mut *left, &mut pool);
            let mut rx = right.take_rx(0).unwrap();
            let error = rx.prepare(&mut small).unwrap_err().to_string();
            assert!(error.contains("MTU 9000 of right"), "{error}");
            begin(&mut *rx, &mut pool);
            let mut tx = right.take_tx(0).unwrap();
            tx.prepare(&mut pool).unwrap();
            let lengths = [60, 1_514, 3_712, 3_713, 4_096, 4_097, 7_424, 7_425, 8_192, 8_193, 9_014];
            let free = pool.stats().free;
            for round in 0..50 {
                let frames: Vec<Vec<u8>> =
                    (0..).zip(lengths).map(|(number, length)| numbered_frame(round * 11 + number, length)).collect();
                send(&mut *packet_tx, &mut pool, &frames);
                assert_eq!(receive_numbered(&mut *rx, &mut pool, frames.len()), frames, "{options}");
                send(&mut *tx, &mut pool, &frames);
                assert_eq!(receive_numbered(&mut *packet_rx, &mut pool, frames.len()), frames, "{options}");
            }
            let sent = tx.stats();
            assert_eq!((sent.packets, sent.bytes), (550, 50 * lengths.iter().sum::<usize>() as u64));
            soon("the kernel is done with all frames", || {
                tx.flush(&mut pool);
                let mut batch = Batch::new();
                rx.receive(&mut pool, &mut batch, 1);
                pool.free(&mut batch);
                pool.refill();
                pool.stats().free == free
            });
            drop((rx, tx, packet_rx, packet_tx, left, right));
            pool.refill();
            assert_eq!(pool.stats().free, 2_048);
            ip("link del left");
        }
    });
}

#[test]
fn metadata_is_that_of_the_frame() {
    in_namespace(|| {
        veth_pair("left", "right");
        ip("link set right address 02:00:00:00:00:02");
        let (mut left, mut right) = (open("left"), open("af_xdp:right"));
        let mut pool = pool(256);
        let mut packet_tx = left.take_tx(0).unwrap();
        let (mut rx, _tx) = queues(&mut *right, &mut pool);
        let mut sent = frames(4, 60);
        sent[1][..6].fill(0xff);
        sent[2][..6].copy_from_slice(&[1, 0, 0x5e, 0, 0, 9]);
        sent[3][5] = 99;
        send(&mut *packet_tx, &mut pool, &sent);
        let mut received = Batch::new();
        soon("four packets", || {
            rx.receive(&mut pool, &mut received, 32);
            received.len() == 4
        });
        let types: Vec<PacketType> = received.iter().map(|packet| packet.packet_type()).collect();
        let expected =
            [PacketType::Host, PacketType::Broadcast, PacketType::Multicast, PacketType::OtherHost];
        assert_eq!(types, expected);
        for packet in received.iter() {
            assert_eq!((packet.link_offset(), packet.data_offset()), (Some(0), 384));
        }
    });
}

#[test]
fn forwarding_between_two_ports_copies_nothing() {
    in_namespace(|| {
        veth_pair("left", "right");
        veth_pair("near", "far");
        let mut pools = Pool::group(&[PoolOptions { frames: 4_096, ..PoolOptions::default() }; 2]).unwrap();
        let mut other = pools.pop().unwrap();
        let mut pool = pools.pop().unwrap();
        let (mut left, mut right) = (open("left"), open("af_xdp:right"));
        let (mut near, mut far) = (open("af_xdp:near"), open("far"));
        let mut packet_tx = left.take_tx(0).unwrap();
        let mut packet_rx = far.take_rx(0).unwrap();
        let (mut rx, _) = queues(&mut *right, &mut pool);
        let (_, mut tx) = queues(&mut *near, &mut pool);
        let sent = frames(1_000, 700);
        let mut received = Vec::new();
        for part in sent.chunks(50) {
            send(&mut *packet_tx, &mut other, part);
            let mut batch = Batch::new();
            soon("the packets come", || {
                rx.receive(&mut pool, &mut batch, 32);
                batch.len() == part.len()
            });
            assert_eq!(tx.send(&mut pool, &mut batch), part.len());
            received.extend(receive_numbered(&mut *packet_rx, &mut other, part.len()));
        }
        assert_eq!(received, sent);
        // Another worker's frame is not a copy either.
        send(&mut *tx, &mut other, &sent[..10]);
        assert_eq!(tx.stats().count(Event::Copied), 0);
        // A frame of another memory is.
        let mut foreign = crate::testing::pool(8);
        let mut batch = batch_of(&mut foreign, &sent[..1]);
        assert_eq!(tx.send(&mut pool, &mut batch), 1);
        assert_eq!(receive_numbered(&mut *packet_rx, &mut other, 11)[10], sent[0]);
        foreign.refill();
        assert_eq!((tx.stats().count(Event::Copied), foreign.stats().free), (1, 8));
        assert_eq!((tx.stats().packets, tx.stats().dropped()), (1_011, 0));
    });
}

/// UDP frames of many flows, which a veth spreads over its queues by the number of the queue they were sent by.
fn many_queues() -> Vec<Vec<u8>> {
    ip("link add left numrxqueues 4 numtxqueues 4 type veth peer name right numrxqueues 4 numtxqueues 4");
    for name in ["left", "right"] {
        ip(&format!("link set {name} addrgenmode none"));
        ip(&format!("link set {name} up"));
    }
    frames(64, 60)
}

#[test]
fn several_queues_are_served_by_few_workers() {
    in_namespace(|| {
        let sent = many_queues();
        let options = OpenOptions { rx_queues: 2, tx_queues: 3, ..OpenOptions::default() };
        let mut right = crate::open("af_xdp:right", &options).unwrap();
        assert_eq!((right.info().rx_queues, right.info().tx_queues), (2, 3));
        let all = OpenOptions { rx_queues: 9, tx_queues: 9, ..OpenOptions::default() };
        let mut left = crate::open("af_xdp:left", &all).unwrap();
        // No more than the hardware has; every thread can send all the same.
        assert_eq!((left.info().rx_queues, left.info().tx_queues), (4, 9));
        let mut pool = pool(8_192);
        let mut receivers: Vec<_> = (0..2).map(|queue| right.take_rx(queue).unwrap()).collect();
        receivers.iter_mut().for_each(|queue| begin(&mut **queue, &mut pool));
        // Transmit queue `n` of an AF_XDP port is hardware queue `n`, and a veth keeps the number.
        for queue in 0..9 {
            let mut tx = left.take_tx(queue).unwrap();
            tx.prepare(&mut pool).unwrap();
            send(&mut *tx, &mut pool, &sent);
            let mut got = Vec::new();
            let mut shares = [0; 2];
            soon("all packets come", || {
                for (receiver, share) in receivers.iter_mut().zip(&mut shares) {
                    let mut batch = Batch::new();
                    *share += receiver.receive(&mut pool, &mut batch, 32);
                    got.extend(contents(&batch));
                }
                got.len() == sent.len()
            });
            if queue < 4 {
                assert_eq!(shares[queue % 2], 64, "queue {queue}: {shares:?}");
            }
            assert_eq!(got, sent, "in order");
        }
        let fd = receivers[1].wait_fd().unwrap();
        assert!(!is_readable(fd, Duration::from_millis(1)));
    });
}

#[test]
fn an_idle_worker_wakes_for_each_of_its_queues() {
    in_namespace(|| {
        let sent = many_queues();
        let mut right = open("af_xdp:right");
        let four = OpenOptions { rx_queues: 4, tx_queues: 4, ..OpenOptions::default() };
        let mut left = crate::open("af_xdp:left", &four).unwrap();
        let mut pool = pool(8_192);
        let mut rx = right.take_rx(0).unwrap();
        begin(&mut *rx, &mut pool);
        for queue in 0..4 {
            let mut tx = left.take_tx(queue).unwrap();
            tx.prepare(&mut pool).unwrap();
            assert!(!is_readable(rx.wait_fd().unwrap(), Duration::ZERO));
            send(&mut *tx, &mut pool, &sent[..1]);
            assert!(is_readable(rx.wait_fd().unwrap(), Duration::from_millis(900)), "queue {queue}");
            assert_eq!(receive_numbered(&mut *rx, &mut pool, 1), sent[..1]);
        }
    });
}

#[test]
fn packets_before_the_first_receive_are_the_kernels() {
    in_namespace(|| {
        veth_pair("left", "right");
        let (mut left, mut right) = (open("af_xdp:left"), open("af_xdp:right"));
        let mut pool = pool(8_192);
        let (_left_rx, mut tx) = queues(&mut *left, &mut pool);
        let mut rx = right.take_rx(0).unwrap();
        rx.prepare(&mut pool).unwrap();
        let sent = frames(8, 64);
        send(&mut *tx, &mut pool, &sent);
        soon("the kernel gets them", || rx.stats().left_to_kernel() >= 8);
        rx.receive(&mut pool, &mut Batch::new(), 0);
        send(&mut *tx, &mut pool, &sent);
        assert_eq!(receive_numbered(&mut *rx, &mut pool, 8), sent);
    });
}

#[test]
fn queues_that_come_later_are_shared_by_the_same_workers() {
    in_namespace(|| {
        let sent = many_queues();
        // Native XDP wants as many receive queues here as there are transmit queues at the other end.
        command("ethtool", "-L left tx 2");
        command("ethtool", "-L right rx 2");
        let two = OpenOptions { rx_queues: 2, tx_queues: 2, ..OpenOptions::default() };
        let mut right = crate::open("af_xdp:right", &two).unwrap();
        let mut pool = pool(8_192);
        let mut receivers: Vec<_> = (0..2).map(|queue| right.take_rx(queue).unwrap()).collect();
        receivers.iter_mut().for_each(|queue| begin(&mut **queue, &mut pool));
        assert_eq!(right.follow_queues().unwrap(), None);

        command("ethtool", "-L right rx 4");
        command("ethtool", "-L left tx 4");
        assert_eq!(right.follow_queues().unwrap(), Some(4));
        assert_eq!(right.follow_queues().unwrap(), None);
        let four = OpenOptions { rx_queues: 4, tx_queues: 4, ..OpenOptions::default() };
        let mut left = crate::open("af_xdp:left", &four).unwrap();
        for queue in 0..4 {
            let mut tx = left.take_tx(queue).unwrap();
            tx.prepare(&mut pool).unwrap();
            let mut shares = [0; 2];
            // The workers have not looked yet at the first packets.
            soon("all packets come", || {
                send(&mut *tx, &mut pool, &sent);
                shares = [0; 2];
                for (receiver, share) in receivers.iter_mut().zip(&mut shares) {
                    for _ in 0..8 {
                        let mut batch = Batch::new();
                        *share += receiver.receive(&mut pool, &mut batch, 64);
                        pool.free(&mut batch);
                    }
                }
                shares[queue % 2] >= sent.len()
            });
            assert_eq!(shares[1 - queue % 2], 0, "queue {queue}");
        }
    });
}

#[test]
fn queues_without_a_socket_and_closed_ones_are_the_kernels() {
    in_namespace(|| {
        let sent = many_queues();
        let mut right = open("af_xdp:right?queues=1");
        let four = OpenOptions { rx_queues: 4, tx_queues: 4, ..OpenOptions::default() };
        let mut left = crate::open("af_xdp:left", &four).unwrap();
        let (mut pool, mut packets) = (pool(8_192), 0);
        let (mut rx, tx) = queues(&mut *right, &mut pool);
        let mut senders: Vec<_> = (0..4).map(|queue| left.take_tx(queue).unwrap()).collect();
        for left_tx in &mut senders {
            left_tx.prepare(&mut pool).unwrap();
            send(&mut **left_tx, &mut pool, &sent);
            packets += 64;
            soon("all packets are seen", || right.details().ends_with(&format!(" {}", packets - 64)));
        }
        assert_eq!(receive_numbered(&mut *rx, &mut pool, 64), sent);
        assert_eq!(rx.stats().left_to_kernel(), 192);
        drop(rx);
        send(&mut *senders[0], &mut pool, &sent);
        soon("the closed queue is the kernel's", || right.details().ends_with(" 256"));
        drop(tx);
    });
}

#[test]
fn a_pool_that_was_empty_does_not_empty_the_ring_for_good() {
    in_namespace(|| {
        veth_pair("left", "right");
        let (mut left, mut right) = (open("left"), open("af_xdp:right"));
        let mut far = pool(1_024);
        let mut packet_tx = left.take_tx(0).unwrap();
        // The ring gets a quarter.
        let mut pool = pool(256);
        let (mut rx, _tx) = queues(&mut *right, &mut pool);
        assert_eq!(pool.stats().free, 192);
        let sent = frames(250, 60);
        let mut held = Batch::new();
        send(&mut *packet_tx, &mut far, &sent);
        soon("the kernel has no frame left", || rx.stats().count(Event::KernelDropped) == 186);
        while rx.receive(&mut pool, &mut held, 256) > 0 {}
        assert_eq!(contents(&held), sent[..64]);
        for expected in [128, 192, 256] {
            send(&mut *packet_tx, &mut far, &sent[..64]);
            soon("a ring full of packets", || {
                rx.receive(&mut pool, &mut held, 256);
                held.len() == expected
            });
        }
        // Now the pool is empty, and the ring too.
        assert_eq!(pool.stats().free, 0);
        send(&mut *packet_tx, &mut far, &sent[..5]);
        soon("they are lost", || rx.stats().count(Event::KernelDropped) == 191);
        assert_eq!(rx.receive(&mut pool, &mut Batch::new(), 32), 0);
        assert!(rx.stats().count(Event::FillEmpty) >= 191);
        pool.free(&mut held);
        assert_eq!(rx.receive(&mut pool, &mut Batch::new(), 32), 0);
        send(&mut *packet_tx, &mut far, &sent[..64]);
        assert_eq!(receive_numbered(&mut *rx, &mut pool, 64), sent[..64]);
    });
}

#[test]
fn a_link_may_go_and_come_back() {
    in_namespace(|| {
        veth_pair("left", "right");
        let (mut left, mut right) = (open("af_xdp:left"), open("right"));
        let mut pool = pool(1_024);
        let (mut rx, mut tx) = queues(&mut *left, &mut pool);
        let mut packet_rx = right.take_rx(0).unwrap();
        let losses = |tx: &dyn TxQueue| (tx.stats().count(Event::LinkDown), tx.stats().packets);
        // The cable.
        ip("link set right down");
        soon("the cable is out", || !left_is_running());
        send(&mut *tx, &mut pool, &frames(5, 60));
        send(&mut *tx, &mut pool, &frames(5, 60));
        assert_eq!(losses(&*tx), (10, 0));
        std::thread::sleep(crate::af_packet::LOOK_EVERY);
        assert_eq!(rx.receive(&mut pool, &mut Batch::new(), 32), 0);
        assert_eq!(rx.stats().count(Event::LinkLost), 1);
        ip("link set right up");
        soon("the cable is in", left_is_running);
        send(&mut *tx, &mut pool, &frames(9, 60));
        assert_eq!(receive_numbered(&mut *packet_rx, &mut pool, 9), frames(9, 60));
        assert_eq!(losses(&*tx), (10, 9));
        // The interface itself: what the ring holds goes out later, what comes then is lost.
        ip("link set left down");
        send(&mut *tx, &mut pool, &frames(3, 60));
        send(&mut *tx, &mut pool, &frames(7, 60));
        assert_eq!(losses(&*tx), (17, 12));
        ip("link set left up");
        soon("the cable is in", left_is_running);
        tx.flush(&mut pool);
        assert_eq!(receive_numbered(&mut *packet_rx, &mut pool, 3), frames(3, 60));
        let mut packet_tx = right.take_tx(0).unwrap();
        send(&mut *packet_tx, &mut pool, &frames(4, 60));
        assert_eq!(receive_numbered(&mut *rx, &mut pool, 4), frames(4, 60));
    });
}

#[test]
fn a_port_may_be_opened_while_its_interface_is_down() {
    in_namespace(|| {
        veth_pair("left", "right");
        ip("link set left down");
        let (mut left, mut right) = (open("af_xdp:left"), open("right"));
        let mut pool = pool(2_048);
        let (mut rx, mut tx) = queues(&mut *left, &mut pool);
        let (mut packet_rx, mut packet_tx) = (right.take_rx(0).unwrap(), right.take_tx(0).unwrap());
        send(&mut *tx, &mut pool, &frames(3, 60));
        assert_eq!((tx.stats().count(Event::PortGone), tx.stats().packets), (3, 0));
        ip("link set left up");
        soon("it receives", || {
            send(&mut *packet_tx, &mut pool, &frames(1, 60));
            rx.receive(&mut pool, &mut Batch::new(), 32) > 0
        });
        soon("it sends", || {
            send(&mut *tx, &mut pool, &frames(1, 60));
            tx.stats().packets > 0
        });
        assert_eq!(receive_numbered(&mut *packet_rx, &mut pool, 1), frames(1, 60));
    });
}

#[test]
fn a_port_is_opened_anew_by_ever_slower_ways() {
    in_namespace(|| {
        veth_pair("left", "right");
        let mut spec = crate::Spec::parse("af_xdp:right").unwrap();
        let mut right = super::AfXdpPort::open(&mut spec, &OpenOptions::default()).unwrap();
        let mut left = open("left");
        let mut pool = pool(4_096);
        let (_left_rx, mut packet_tx) = queues(&mut *left, &mut pool);
        let (mut rx, mut tx) = queues(&mut right, &mut pool);
        for (tries, mode) in [(0, "copy"), (0, "copy"), (1, "generic"), (0, "generic")] {
            super::lock(&right.shared.attached).program.detach();
            soon("the program is off", || !program_on("right"));
            let (seen, sent) = (rx.stats().packets, frames(3, 60));
            send(&mut *packet_tx, &mut pool, &sent);
            assert_eq!((rx.receive(&mut pool, &mut Batch::new(), 32), rx.stats().packets), (0, seen));
            right.open_anew(tries).unwrap();
            assert_eq!((right.mode(), program_on("right")), (mode, true), "{tries}");
            send(&mut *packet_tx, &mut pool, &sent);
            assert_eq!(receive_numbered(&mut *rx, &mut pool, 3), sent, "{tries}");
            send(&mut *tx, &mut pool, &sent);
        }
        assert_eq!((tx.stats().packets, tx.stats().dropped()), (12, 0));
        // Here Linux is to have none.
        assert!(right.open_anew(2).unwrap_err().to_string().contains("expected `af_packet`"));
        assert!(program_on("right"));
        drop((right, rx, tx));
        soon("the program is off", || !program_on("right"));
        let mut host = open("af_xdp:right?steer=transit&mode=native");
        assert_eq!(host.open_anew(0).unwrap(), "its program is attached anew");
        // Its user wants no other mode.
        assert!(host.open_anew(1).unwrap().contains("its program is off"));
        assert!(!program_on("right"));
    });
}

fn left_is_running() -> bool {
    crate::interface::Interface::new("left").unwrap().is_running()
}

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn an_interface_may_vanish_and_come_back() {
    in_namespace(|| {
        veth_pair("comes", "right");
        veth_pair("stays", "there");
        let options = OpenOptions {
            tx_queues: 2,
            warn: |text| WARNINGS.lock().unwrap().push(text.to_owned()),
            tell: |text| WARNINGS.lock().unwrap().push(text.to_owned()),
            ..OpenOptions::default()
        };
        let mut comes = crate::open("af_xdp:comes", &options).unwrap();
        let mut stays = open("af_xdp:stays");
        let mut pool = pool(2_048);
        let (mut rx, mut tx) = queues(&mut *comes, &mut pool);
        let (mut other_rx, mut other_tx) = queues(&mut *stays, &mut pool);
        let before = pool.stats().free;
        // Some packets wait in the receive ring when it happens.
        {
            let mut right = open("right");
            let mut packet_tx = right.take_tx(0).unwrap();
            send(&mut *packet_tx, &mut pool, &frames(6, 60));
            soon("they wait", || comes.details().contains("steered to us 6"));
        }
        for round in 1..=2 {
            ip("link delete comes");
            soon("the frames come home", || {
                assert_eq!(rx.receive(&mut pool, &mut Batch::new(), 0), 0);
                rx.due_in_ns().is_some()
            });
            assert!(rx.due_in_ns().unwrap() <= crate::af_packet::LOOK_EVERY.as_nanos() as u64);
            assert!(!is_readable(rx.wait_fd().unwrap(), Duration::ZERO), "a worker may sleep");
            send(&mut *tx, &mut pool, &frames(3, 60));
            send(&mut *tx, &mut pool, &frames(4, 60));
            assert_eq!(tx.stats().count(Event::PortGone), round * 7);
            // The other port goes on.
            let mut there = open("there");
            let mut packet_rx = there.take_rx(0).unwrap();
            let mut packet_tx = there.take_tx(0).unwrap();
            send(&mut *other_tx, &mut pool, &frames(20, 60));
            assert_eq!(receive_numbered(&mut *packet_rx, &mut pool, 20), frames(20, 60));
            send(&mut *packet_tx, &mut pool, &frames(20, 60));
            assert_eq!(receive_numbered(&mut *other_rx, &mut pool, 20), frames(20, 60));

            veth_pair("comes", "right");
            soon("the port is back", || {
                rx.receive(&mut pool, &mut Batch::new(), 32);
                rx.due_in_ns().is_none()
            });
            assert!(program_on("comes"));
            let mut right = open("right");
            let (mut packet_rx, mut packet_tx) = (right.take_rx(0).unwrap(), right.take_tx(0).unwrap());
            send(&mut *packet_tx, &mut pool, &frames(30, 60));
            assert_eq!(receive_numbered(&mut *rx, &mut pool, 30), frames(30, 60));
            send(&mut *tx, &mut pool, &frames(30, 60));
            assert_eq!(receive_numbered(&mut *packet_rx, &mut pool, 30), frames(30, 60));
        }
        assert_eq!((rx.stats().packets, rx.stats().count(Event::PortGone)), (60, 6));
        assert_eq!(tx.stats().packets, 60);
        // Those in transmission come back with the next look.
        tx.flush(&mut pool);
        other_tx.flush(&mut pool);
        pool.refill();
        assert_eq!(pool.stats().free, before, "all frames came home, and the fill ring has its share again");
        let gone = "port comes: the interface is gone; the port goes on when it is there again";
        let back = "port comes: the interface is back";
        assert_eq!(*WARNINGS.lock().unwrap(), [gone, back, gone, back]);
    });
}

#[test]
fn errors_say_what_to_do() {
    in_namespace(|| {
        let message = |spec: &str| crate::open(spec, &OpenOptions::default()).err().unwrap().to_string();
        assert_eq!(message("af_xdp:eth7"), "there is no interface `eth7`; there are lo");
        assert!(message("af_xdp:lo").starts_with("interface `lo` is not Ethernet"));
        veth_pair("left", "right");
        assert_eq!(
            message("af_xdp:left?mode=fast"),
            "port `af_xdp:left?mode=fast`: `mode=fast` is wrong: `auto` or `native` or `generic` or `xdp` or `tc` is expected"
        );
        ip("link set left mtu 1711");
        let error = open("af_xdp:left").take_rx(0).unwrap().prepare(&mut pool(64)).unwrap_err().to_string();
        assert_eq!(
            error,
            "port `left`: MTU 1711 of left: a frame of 1856 bytes holds 1710 at most; expected --frame-size 1857, or \
             `ip link set left mtu 1710`"
        );
        ip("link set left mtu 1710");
        assert!(open("af_xdp:left").take_rx(0).unwrap().prepare(&mut pool(64)).is_ok());
        let mut small = Pool::new(PoolOptions { frames: 64, data_bytes: 1_600 }).unwrap();
        let error = open("af_xdp:left").take_rx(0).unwrap().prepare(&mut small).unwrap_err().to_string();
        assert!(
            error.contains("AF_XDP takes frames of 2048 bytes and more, and those of the pool have 1856"),
            "{error}"
        );
        let error = open("af_xdp:left?zerocopy=yes")
            .take_rx(0)
            .unwrap()
            .prepare(&mut pool(64))
            .unwrap_err()
            .to_string();
        assert!(error.contains("zero-copy") || error.contains("huge pages"), "{error}");
    });
}

#[test]
fn native_xdp_that_cannot_be_is_explained() {
    in_namespace(|| {
        ip("link add left numrxqueues 1 numtxqueues 1 type veth peer name right numrxqueues 2 numtxqueues 2");
        ip("link set left up");
        ip("link set right up");
        let error =
            crate::open("af_xdp:left?mode=native", &OpenOptions::default()).err().unwrap().to_string();
        assert!(
            error.contains("as many receive queues here as the other end has transmit queues"),
            "{error}"
        );
        static SAID: Mutex<String> = Mutex::new(String::new());
        let options =
            OpenOptions { warn: |text| SAID.lock().unwrap().push_str(text), ..OpenOptions::default() };
        let port = crate::open("af_xdp:left", &options).unwrap();
        assert!(port.details().starts_with("generic XDP, copying"), "{}", port.details());
        assert!(
            SAID.lock()
                .unwrap()
                .starts_with("port left: its program runs in the kernel's stack, which costs more: native XDP on a veth")
        );
    });
}

#[test]
fn what_is_in_use_is_not_taken() {
    in_namespace(|| {
        veth_pair("left", "right");
        let _port = open("left");
        let error = crate::open("af_xdp:left", &OpenOptions::default()).err().unwrap().to_string();
        assert!(
            error.starts_with("port `left` is already in use by another port of this process"),
            "{error}"
        );
        // Another program on the interface.
        let index = crate::interface::Interface::new("right").unwrap().index().unwrap() as u32;
        let mut foreign = super::Program::load("right", 1, Steer::All).unwrap();
        foreign.attach(index, super::XdpMode::Native).unwrap();
        let error = crate::open("af_xdp:right", &OpenOptions::default()).err().unwrap().to_string();
        assert!(
            error.starts_with("port `right` is already in use by another XDP program (number "),
            "{error}"
        );
        assert!(error.contains("`ip link set dev right xdp off`"), "{error}");
        drop(foreign);
        // Another socket on the queue.
        let mut pool = pool(256);
        let options = super::SocketOptions { slots: 64, zerocopy: false, busy_poll: None, transmit: true };
        let _socket = super::Socket::open(pool.memory(), pool.chunk_bytes(), (index, 0), &options).unwrap();
        let error = open("af_xdp:right").take_rx(0).unwrap().prepare(&mut pool).unwrap_err().to_string();
        let expected = "port `right queue 0` is already in use by an AF_XDP socket of another program; \
                        stop it or use another port";
        assert_eq!(error, expected);
    });
}

/// A port in tc, from which all that is ours comes by its TAP device, and the link address that frames are sent to.
fn in_tc(pool: &mut Pool) -> (Box<dyn Port>, Box<dyn RxQueue>) {
    let mut port = open("af_xdp:right?steer=transit&mode=tc");
    let mut rx = port.take_rx(0).unwrap();
    begin(&mut *rx, pool);
    assert!(port.details().starts_with("tc, "), "{}", port.details());
    (port, rx)
}

#[test]
fn what_tc_leaves_to_us_comes_in_packets_with_checksums_and_tags() {
    use packet::wire::PseudoHeader;
    use packet::wire::ipv4::Ipv4;
    use packet::wire::udp::Udp;
    in_namespace(|| {
        veth_pair("left", "right");
        ip("link set right address 02:00:00:00:00:02");
        ip("addr add 192.0.2.1/24 dev left");
        ip("neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev left");
        ip("route add 198.51.100.0/24 via 192.0.2.2");
        let mut pool = pool(2_048);
        let (mut port, mut rx) = in_tc(&mut pool);
        // Nobody has said whose it is: it is taken when the port is looked at.
        let mut received = Batch::new();
        let datagrams = std::net::UdpSocket::bind("192.0.2.1:0").unwrap();
        soon("what nobody else wants comes", || {
            datagrams.send_to(&[7; 100], "198.51.100.7:9").unwrap();
            rx.receive(&mut pool, &mut received, 32) > 0
        });
        port.host().unwrap().set_local_addresses(&[]).unwrap();
        // One frame of the sender, of many packets, without their checksums.
        let segment: libc::c_int = 1_000;
        #[allow(unsafe_code, reason = "the standard library does not know this option")]
        // SAFETY: the option's value is a number, which lives for the call.
        let set = unsafe {
            use std::os::fd::AsRawFd;
            let size = size_of::<libc::c_int>() as libc::socklen_t;
            let value = (&raw const segment).cast();
            libc::setsockopt(datagrams.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, value, size)
        };
        assert_eq!(set, 0);
        let payload: Vec<u8> = (0..30_500_u32).map(|at| (at / 256 + at) as u8).collect();
        let mut came = Vec::new();
        for _ in 0..3 {
            datagrams.send_to(&payload, "198.51.100.7:9").unwrap();
        }
        soon("all of it is there", || {
            pool.free(&mut received);
            rx.receive(&mut pool, &mut received, 32);
            came.extend(contents(&received).into_iter().filter(|frame| frame.len() != 142));
            came.len() == 3 * 31
        });
        let mut data = Vec::new();
        for frame in &came {
            let header = Ipv4::new_unchecked(&frame[14..]);
            let udp = Udp::new_unchecked(&frame[34..]);
            assert!(header.is_checksum_valid());
            let pseudo = PseudoHeader::new(header.source().into(), header.destination().into()).unwrap();
            assert!(udp.checksum() != 0 && udp.is_checksum_valid(&pseudo), "{frame:?}");
            data.extend_from_slice(&frame[42..]);
        }
        assert_eq!(data, payload.repeat(3));
        // A tag that lies beside the frame of a veth, of a VLAN that Linux does not know.
        port.host().unwrap().set_vlans(&[(5, crate::VlanShare::All)]).unwrap();
        let mut left = open("left");
        let mut tx = left.take_tx(0).unwrap();
        let mut tagged = numbered_frame(1, 60);
        tagged.splice(12..12, [0x81, 0, 0x60, 5]);
        send(&mut *tx, &mut pool, std::slice::from_ref(&tagged));
        soon("the tag comes with its priority", || {
            pool.free(&mut received);
            rx.receive(&mut pool, &mut received, 32);
            contents(&received).contains(&tagged)
        });
        pool.free(&mut received);
    });
}

#[test]
fn merged_frames_come_by_tc_and_go_whole_where_they_are_taken() {
    in_namespace(|| {
        veth_pair("left", "right");
        veth_pair("out", "far");
        ip("link set right address 02:00:00:00:00:09");
        let options = OpenOptions { takes_merged: true, ..OpenOptions::default() };
        let open = |spec: &str| crate::open(spec, &options).unwrap();
        let (mut left, mut far) = (open("left"), open("far"));
        let [mut right, mut out] = ["right", "out"].map(|name| open(&format!("af_xdp:{name}?steer=transit&mode=tc")));
        right.host().unwrap().set_vlans(&[(5, crate::VlanShare::All)]).unwrap();
        assert!(right.takes_merged() && out.takes_merged());
        let mut pool = pool(8_192);
        pool.add_large(8).unwrap();
        let (mut tx, mut on) = (left.take_tx(0).unwrap(), out.take_tx(0).unwrap());
        let (mut rx, mut end) = (right.take_rx(0).unwrap(), far.take_rx(0).unwrap());
        begin(&mut *rx, &mut pool);
        begin(&mut *end, &mut pool);
        on.prepare(&mut pool).unwrap();
        right.host().unwrap().forward_here().unwrap();
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
        let udp = Whole { is_tcp: false, option_bytes: 0, piece_bytes: 1_200, payload_bytes: 30_100, ..usual };
        let small = Whole { is_tcp: false, payload_bytes: 300, ..udp }.frame().0;
        // One that fits a usual frame; both families; a tag, which lies beside the frame in between.
        for (whole, is_tagged) in [
            (usual, false),
            (Whole { payload_bytes: 1_600, piece_bytes: 800, ..usual }, false),
            (Whole { is_ipv4: false, piece_bytes: 1_428, ..usual }, false),
            (udp, false),
            (Whole { payload_bytes: 60_000, ..usual }, true),
        ] {
            let (mut frame, [_, transport, _]) = whole.frame();
            let mut packet = whole.packet(&mut pool);
            if is_tagged {
                frame.splice(12..12, [0x81, 0, 0x60, 5]);
                packet.prepend(4).unwrap();
                packet.data_mut().copy_from_slice(&frame);
            }
            let mut batch = batch_of(&mut pool, std::slice::from_ref(&small));
            batch.push(packet);
            batch_of(&mut pool, std::slice::from_ref(&small)).drain().for_each(|packet| batch.push(packet));
            assert_eq!(tx.send(&mut pool, &mut batch), 3);
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
                let check = transport + 4 * usize::from(is_tagged) + if whole.is_tcp { 16 } else { 6 };
                came[1][check..check + 2].fill(0);
                assert_eq!(came, [small.clone(), frame.clone(), small.clone()], "{whole:?}");
                received
            };
            let mut received = hop(&mut *rx, &mut pool);
            let before = on.stats();
            assert_eq!(on.send(&mut pool, &mut received), 3);
            let sent = on.stats();
            assert_eq!(sent.packets - before.packets, 2 + whole.payload_bytes.div_ceil(whole.piece_bytes.into()) as u64);
            let mut received = hop(&mut *end, &mut pool);
            pool.free(&mut received);
        }
        let came = rx.stats();
        assert_eq!((came.packets, came.bytes), (on.stats().packets, on.stats().bytes));
        assert_eq!((came.dropped(), on.stats().dropped()), (0, 0));
        // Pieces longer than the MTU; more pieces than are taken whole; no large frame.
        let mut received = Batch::new();
        received.push(Whole { piece_bytes: 1_600, ..usual }.packet(&mut pool));
        assert_eq!(on.send(&mut pool, &mut received), 1);
        assert_eq!(on.stats().count(Event::TooLong), 41);
        for (whole, payload) in [(Whole { piece_bytes: 100, payload_bytes: 20_000, ..usual }, 100), (usual, 1_448)] {
            let mut batch = Batch::new();
            batch.push(whole.packet(&mut pool));
            tx.send(&mut pool, &mut batch);
            let rest: Vec<_> = std::iter::from_fn(|| pool.allocate_large()).collect();
            let pieces = whole.payload_bytes.div_ceil(payload);
            let mut came = Vec::new();
            soon("all pieces", || {
                rx.receive(&mut pool, &mut received, 32);
                came.extend(contents(&received));
                pool.free(&mut received);
                came.len() >= pieces
            });
            assert_eq!(came.iter().filter(|frame| frame.len() == 14 + 52 + payload).count(), pieces);
            drop(rest);
        }
        assert_eq!(rx.stats().dropped(), 0);
    });
}

#[test]
fn nothing_but_what_came_in_comes_by_the_device_of_tc() {
    in_namespace(|| {
        veth_pair("left", "right");
        ip("link set right address 02:00:00:00:00:02");
        let mut pool = pool(2_048);
        let (mut port, mut rx) = in_tc(&mut pool);
        port.host().unwrap().forward_here().unwrap();
        let links = crate::link::Links::ask().unwrap();
        let device = links.iter().find(|link| link.name.starts_with("brickway")).unwrap().clone();
        assert!(device.is_up && !command("ip", "-6 addr").contains("brickway"), "{device:?}");
        let transit = |last: u8| {
            let mut frame = numbered_frame(u32::from(last), 60);
            frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
            frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17]);
            frame[26..34].copy_from_slice(&[192, 0, 2, 9, 198, 51, 100, last]);
            frame
        };
        // This machine sends by it.
        ip(&format!("addr add 203.0.113.1/24 dev {}", device.name));
        ip(&format!("neigh add 203.0.113.2 lladdr 02:00:00:00:00:02 dev {}", device.name));
        let datagrams = std::net::UdpSocket::bind("203.0.113.1:0").unwrap();
        datagrams.send_to(&[7; 100], "203.0.113.2:9").unwrap();
        let mut left = open("left");
        let mut tx = left.take_tx(0).unwrap();
        send(&mut *tx, &mut pool, &[transit(3)]);
        let mut received = Batch::new();
        soon("what came in by the port is there", || rx.receive(&mut pool, &mut received, 32) > 0);
        assert_eq!(contents(&received), [transit(3)]);
        // It stays ours when the interface is another, by the same device.
        ip("link delete right");
        soon("the interface is missed", || {
            rx.receive(&mut pool, &mut received, 0);
            rx.due_in_ns().is_some()
        });
        veth_pair("left", "right");
        ip("link set right address 02:00:00:00:00:02");
        drop((tx, left));
        let mut left = open("left");
        let mut tx = left.take_tx(0).unwrap();
        soon("packets come again", || {
            pool.free(&mut received);
            send(&mut *tx, &mut pool, &[transit(4)]);
            rx.receive(&mut pool, &mut received, 32);
            contents(&received).contains(&transit(4))
        });
        pool.free(&mut received);
        // Somebody deletes the device: there is another one.
        ip(&format!("link delete {}", device.name));
        soon("packets come by another device", || {
            pool.free(&mut received);
            send(&mut *tx, &mut pool, &[transit(5)]);
            rx.receive(&mut pool, &mut received, 32);
            contents(&received).contains(&transit(5))
        });
        pool.free(&mut received);
        drop((rx, port));
        assert!(crate::link::Links::ask().unwrap().named(&device.name).is_none());
    });
}
