//! DPDK's devices for real, in one process: its environment starts once and stays, without huge pages here.

use std::ptr;
use std::sync::Mutex;
use std::thread;

use packet::frame::METADATA_BYTES;
use packet::{Batch, Packet, PacketType, Pool, Vectors};

use super::*;
use crate::dpdk::ring::RingPort;
use crate::pcap::reader::PcapReader;
use crate::pcap::writer::{PcapWriter, Precision};
use crate::testing::{
    TemporaryFile, batch_of, contents, in_namespace, ip, numbered_frame, pool, receive_numbered,
    temporary_file, veth_pair,
};
use crate::{Event, QueueStats};

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn options(rx_queues: usize, tx_queues: usize) -> OpenOptions {
    let warn = |text: &str| WARNINGS.lock().unwrap().push(text.to_owned());
    OpenOptions { rx_queues, tx_queues, warn, ..OpenOptions::default() }
}

fn warned(of: &str) -> bool {
    WARNINGS.lock().unwrap().iter().any(|warning| warning.contains(of))
}

fn try_open(spec: &str, rx_queues: usize, tx_queues: usize) -> Result<DpdkPort, PortError> {
    super::start_for_tests();
    DpdkPort::open(&mut Spec::parse(spec).unwrap(), &options(rx_queues, tx_queues))
}

fn open(spec: &str) -> DpdkPort {
    try_open(spec, 1, 1).unwrap()
}

fn mistake(spec: &str) -> String {
    try_open(spec, 1, 1).err().expect(spec).to_string()
}

fn open_ring(spec: &str) -> RingPort {
    super::start_for_tests();
    RingPort::open(&mut Spec::parse(spec).unwrap(), &options(1, 1)).unwrap()
}

/// Frames of all lengths up to the longest.
fn frames_of_all_lengths(count: u32) -> Vec<Vec<u8>> {
    (0..count).map(|number| numbered_frame(number, 60 + (number as usize * 37) % 1455)).collect()
}

fn file_of(name: &str, frames: &[Vec<u8>]) -> TemporaryFile {
    let file = temporary_file(name);
    let mut writer = PcapWriter::create(file.as_ref(), Precision::Nanoseconds).unwrap();
    for frame in frames {
        writer.write(1_000_000_000, frame.len() as u32, frame).unwrap();
    }
    writer.flush().unwrap();
    file
}

fn frames_in(file: &TemporaryFile) -> Vec<Vec<u8>> {
    let mut reader = PcapReader::open(file.as_ref()).unwrap();
    let mut frames = Vec::new();
    while let Some(record) = reader.next() {
        frames.push(record.unwrap().data.to_vec());
    }
    frames
}

/// Forwards until nothing comes any more.
fn forward(rx: &mut dyn RxQueue, tx: &mut dyn TxQueue, pool: &mut Pool) {
    let mut batch = Batch::new();
    let mut idle = 0;
    while idle < 10 {
        idle = if rx.receive(pool, &mut batch, 32) == 0 { idle + 1 } else { 0 };
        tx.send(pool, &mut batch);
    }
    assert!(batch.is_empty());
}

fn is_in_mbuf(packet: &Packet) -> bool {
    mbufs::frames().own(packet)
}

#[test]
fn a_device_without_a_line_gives_and_takes() {
    let mut port = open("dpdk:net_null1,size=90");
    let info = port.info();
    assert_eq!(
        (info.driver, info.name.as_str(), info.rx_queues, info.tx_queues),
        ("dpdk", "net_null1", 1, 1)
    );
    let (mut rx, mut tx) = (port.take_rx(0).unwrap(), port.take_tx(0).unwrap());
    assert!(matches!(port.take_rx(0), Err(PortError::QueueTaken { .. })));
    let (mut pool, mut batch) = (pool(4), Batch::new());
    rx.prepare(&mut pool).unwrap();
    tx.prepare(&mut pool).unwrap();
    assert_eq!(rx.receive(&mut pool, &mut batch, 32), 32);
    for packet in batch.iter() {
        assert!(is_in_mbuf(packet));
        assert_eq!((packet.len(), packet.headroom(), packet.link_offset()), (90, 128, Some(0)));
        assert_eq!((packet.packet_type(), packet.annotations().bytes()), (PacketType::Host, &[0; 48]));
        assert!(packet.tailroom() >= 1_500 - 90);
    }
    assert_eq!(tx.send(&mut pool, &mut batch), 32);
    assert!(batch.is_empty());
    let counted = |stats: QueueStats| (stats.packets, stats.bytes, stats.dropped());
    assert_eq!((counted(rx.stats()), counted(tx.stats())), ((32, 2_880, 0), (32, 2_880, 0)));
    assert!(port.details().contains("net_null"), "{}", port.details());
}

#[test]
fn from_file_to_file_to_the_byte() {
    let frames = frames_of_all_lengths(500);
    let (input, output) = (file_of("dpdk-in.pcap", &frames), temporary_file("dpdk-out.pcap"));
    let mut port = open(&format!("dpdk:net_pcap1,rx_pcap={input},tx_pcap={output}"));
    let (mut rx, mut tx) = (port.take_rx(0).unwrap(), port.take_tx(0).unwrap());
    forward(&mut *rx, &mut *tx, &mut pool(4));
    assert_eq!((rx.stats().packets, tx.stats().packets), (500, 500));
    assert_eq!(rx.stats().bytes, frames.iter().map(|frame| frame.len() as u64).sum::<u64>());
    drop((rx, tx, port));
    assert!(frames_in(&output) == frames);
}

#[test]
fn headers_may_grow_and_shrink_on_the_way() {
    let frames = frames_of_all_lengths(20);
    let (input, output) = (file_of("dpdk-grow-in.pcap", &frames), temporary_file("dpdk-grow-out.pcap"));
    let mut port = open(&format!("dpdk:net_pcap2,rx_pcap={input},tx_pcap={output}"));
    let (mut rx, mut tx) = (port.take_rx(0).unwrap(), port.take_tx(0).unwrap());
    let (mut pool, mut batch) = (pool(4), Batch::new());
    assert_eq!(rx.receive(&mut pool, &mut batch, 20), 20);
    let mut expected = Vec::new();
    for (number, packet) in batch.iter_mut().enumerate() {
        if number % 2 == 0 {
            packet.strip(14);
            packet.truncate(40);
        } else {
            packet.prepend(4).unwrap()[..4].copy_from_slice(&[1, 2, 3, 4]);
        }
        expected.push(packet.data().to_vec());
    }
    assert_eq!(tx.send(&mut pool, &mut batch), 20);
    drop((rx, tx, port));
    assert!(frames_in(&output) == expected);
}

#[test]
fn frames_from_elsewhere_are_copied_and_come_home() {
    let mut port = open("dpdk:net_ring1?mtu=2900");
    let (mut rx, mut tx) = (port.take_rx(0).unwrap(), port.take_tx(0).unwrap());
    let mut pool = pool(64);
    let frames = frames_of_all_lengths(30);
    let mut batch = batch_of(&mut pool, &frames);
    // One that is in an mbuf already goes as it is, in its place.
    assert_eq!(tx.send(&mut pool, &mut batch), 30);
    assert_eq!(pool.stats().free, 64);
    assert_eq!(rx.receive(&mut pool, &mut batch, 32), 30);
    assert!(contents(&batch) == frames && batch.iter().all(is_in_mbuf));
    let mut mixed = batch_of(&mut pool, &frames[..2]);
    batch.move_front(&mut mixed, 1);
    assert_eq!(tx.send(&mut pool, &mut mixed), 3);
    assert_eq!((rx.receive(&mut pool, &mut mixed, 32), port.device.mbufs.in_use()), (3, 32));
    assert!(contents(&mixed) == [&frames[..2], &frames[..1]].concat());
    // Dropped by another thread, they are free again.
    thread::spawn(move || drop((batch, mixed))).join().unwrap();
    assert_eq!((port.device.mbufs.in_use(), pool.stats().free), (0, 64));
}

#[test]
#[allow(unsafe_code, reason = "as a queue would")]
fn all_loops_of_receiving_make_the_same_packets() {
    let mut port = open("dpdk:net_ring4?mtu=2200");
    let mut tx = port.take_tx(0).unwrap();
    let mut pool = pool(32);
    let mut frames = frames_of_all_lengths(20);
    frames[1][5] = 9;
    frames[2][..6].fill(0xff);
    frames[3][0] = 1;
    let mut seen = Vec::new();
    for vectors in Vectors::all_here() {
        let mut batch = batch_of(&mut pool, &frames);
        assert_eq!(tx.send(&mut pool, &mut batch), 20);
        let line = mbufs::Line::network(MacAddr([2, 0, 0, 0, 0, 2]));
        let mut intake = mbufs::Intake::new(&port.device.mbufs, line);
        intake.use_vectors(vectors);
        let mut receive = |batch: &mut Batch, stats: &mut QueueStats| {
            // SAFETY: the port is open, nobody else receives, the array has room; what came is ours.
            unsafe {
                let count =
                    shim::brickway_dpdk_receive(port.device.port, 0, intake.mbufs.as_mut_ptr(), 32);
                intake.add_to(usize::from(count), batch, stats)
            }
        };
        let mut stats = QueueStats::default();
        assert_eq!((receive(&mut batch, &mut stats), stats.packets), (20, 20));
        assert!(contents(&batch) == frames);
        // Once more, and the data of some begins elsewhere than that of those before.
        let (mut stats, mut stripped) = (QueueStats::default(), frames.clone());
        for place in [0, 7, 8, 13, 19] {
            assert!(batch.packets_mut()[place].strip(1));
            stripped[place].remove(0);
        }
        assert_eq!(tx.send(&mut pool, &mut batch), 20);
        assert_eq!((receive(&mut batch, &mut stats), stats.packets), (20, 20));
        assert!(contents(&batch) == stripped);
        let of = |packet: &Packet| {
            let places = (packet.data_offset(), packet.len(), packet.tailroom(), packet.link_offset());
            let more = (packet.network_offset(), packet.transport_offset(), packet.input_port());
            (places, more, packet.packet_type(), *packet.annotations().bytes(), packet.timestamp_ns())
        };
        seen.push((batch.iter().map(of).collect::<Vec<_>>(), stats.bytes));
        // The next to have these mbufs find other metadata than zeros.
        for packet in batch.iter_mut() {
            packet.annotations_mut().bytes_mut().fill(7);
            packet.set_timestamp_ns(7);
            packet.set_network_and_transport_header(14, 20);
            packet.set_input_port(7);
        }
    }
    assert!(seen.iter().all(|other| *other == seen[0]));
    let types: Vec<_> = seen[0].0.iter().skip(1).take(3).map(|packet| packet.2).collect();
    let expected = [PacketType::OtherHost, PacketType::Broadcast, PacketType::Multicast];
    assert_eq!(types, expected);
}

#[test]
#[allow(unsafe_code, reason = "as another process would")]
fn what_an_mbuf_says_of_its_buffer_is_not_believed() {
    let port = open("dpdk:net_ring8?mtu=1500");
    let line = mbufs::Line::network(MacAddr([2, 0, 0, 0, 0, 2]));
    let intake = mbufs::Intake::new(&port.device.mbufs, line);
    let chunk_bytes = usize::from(intake.chunk_bytes);
    let other_pool = mbufs::make_pool(1_000, 1_023, 512, -1).unwrap();
    for (pool, stays) in [(intake.pool, true), (other_pool, false)] {
        let mut mbuf = ptr::null_mut();
        // SAFETY: pools that live as long as the process; the mbuf is fresh and nobody else's, and has room for 60 bytes.
        let packet = unsafe {
            assert_eq!(shim::brickway_dpdk_allocate(pool, &raw mut mbuf, 1), 1);
            (*mbuf).buf_len = 60_000;
            ((*mbuf).pkt_len, (*mbuf).data_len) = (60, 60);
            (*mbuf).buf_addr.add(usize::from((*mbuf).rearm_data as u16)).write_bytes(7, 60);
            intake.unusual(mbuf).unwrap()
        };
        assert_eq!(packet.data(), [7; 60]);
        let room = METADATA_BYTES + packet.headroom() + packet.len() + packet.tailroom();
        assert_eq!(room, chunk_bytes, "stays: {stays}");
        assert_eq!(mbufs::mbuf_of(packet.chunk()) == mbuf, stays);
    }
    // An mbuf of ours whose frame would end behind its buffer is not made a packet of that length.
    let mut mbuf = ptr::null_mut();
    // SAFETY: as above.
    let packet = unsafe {
        assert_eq!(shim::brickway_dpdk_allocate(intake.pool, &raw mut mbuf, 1), 1);
        (*mbuf).rearm_data = (*mbuf).rearm_data & !0xffff | 0xfff0;
        intake.unusual(mbuf)
    };
    assert!(packet.is_none_or(|packet| packet.len() == 0));
}

#[test]
fn what_a_full_ring_does_not_take_stays() {
    let mut port = open("dpdk:net_ring2?mtu=2800");
    let (mut rx, mut tx) = (port.take_rx(0).unwrap(), port.take_tx(0).unwrap());
    let mut pool = pool(1_200);
    let frames: Vec<_> = (0..1_200).map(|number| numbered_frame(number, 60)).collect();
    let (mut sent, mut rest) = (0, Vec::new());
    for frames in frames.chunks(200) {
        let mut batch = batch_of(&mut pool, frames);
        sent += tx.send(&mut pool, &mut batch);
        rest.extend(contents(&batch));
    }
    assert_eq!((sent + rest.len(), tx.stats().packets), (1_200, sent as u64));
    assert!(!rest.is_empty() && rest == frames[sent..]);
    assert_eq!(tx.stats().bytes, 60 * sent as u64);
    let mut received = Vec::new();
    let mut batch = Batch::new();
    while rx.receive(&mut pool, &mut batch, 256) > 0 {
        received.extend(contents(&batch));
        pool.free(&mut batch);
    }
    assert!(received == frames[..sent]);
    assert_eq!((port.device.mbufs.in_use(), pool.stats().free), (0, 1_200));
}

#[test]
fn losses_have_names() {
    let mut port = open("dpdk:net_ring3?mtu=1400");
    let mut tx = port.take_tx(0).unwrap();
    let mut pool = pool(8);
    let mut batch = batch_of(&mut pool, &[numbered_frame(0, 1_423), numbered_frame(1, 1_422)]);
    assert_eq!(tx.send(&mut pool, &mut batch), 2);
    assert_eq!((tx.stats().packets, tx.stats().count(Event::TooLong), pool.stats().free), (1, 1, 8));

    // A card that splits what is too long for one mbuf: the pieces do not fit together again.
    let input = file_of("dpdk-long.pcap", &[numbered_frame(0, 60), vec![7; 5_000], numbered_frame(1, 60)]);
    let mut port = open(&format!("dpdk:net_pcap3,rx_pcap={input}?mtu=2700"));
    let mut rx = port.take_rx(0).unwrap();
    let mut batch = Batch::new();
    while rx.receive(&mut pool, &mut batch, 32) > 0 {}
    assert_eq!((batch.len(), rx.stats().packets, rx.stats().count(Event::Segments)), (2, 2, 1));
    assert_eq!(port.device.mbufs.in_use(), 2);
}

#[test]
fn without_an_mbuf_a_copy_is_not_sent() {
    let mut port = open("dpdk:net_null2?mtu=2600");
    let (mut rx, mut tx) = (port.take_rx(0).unwrap(), port.take_tx(0).unwrap());
    let mut pool = pool(8);
    let mut held = Vec::new();
    for burst in [256, 1] {
        loop {
            let mut batch = Batch::new();
            if rx.receive(&mut pool, &mut batch, burst) == 0 {
                break;
            }
            held.push(batch);
        }
    }
    let mut batch = batch_of(&mut pool, &[vec![1; 60], vec![2; 60]]);
    assert_eq!(tx.send(&mut pool, &mut batch), 2);
    assert_eq!((tx.stats().packets, tx.stats().count(Event::NoFrame), pool.stats().free), (0, 2, 8));
    drop(held);
    assert_eq!(port.device.mbufs.in_use(), 0);
    let mut batch = batch_of(&mut pool, &[vec![1; 60]]);
    assert_eq!((tx.send(&mut pool, &mut batch), tx.stats().packets), (1, 1));
}

#[test]
fn packets_outlive_their_port_and_devices_come_back() {
    let mut port = open("dpdk:net_null3,size=70");
    let error = mistake("dpdk:net_null3");
    assert!(error.contains("already in use by another port of this process"), "{error}");
    let (mut rx, mut batch, mut pool) = (port.take_rx(0).unwrap(), Batch::new(), pool(4));
    rx.receive(&mut pool, &mut batch, 16);
    drop(port);
    // The queue holds the device.
    assert_eq!(rx.receive(&mut pool, &mut batch, 16), 16);
    assert!(mistake("dpdk:net_null3").contains("in use"));
    drop(rx);
    let mut port = open("dpdk:net_null3,size=80");
    let mut rx = port.take_rx(0).unwrap();
    rx.receive(&mut pool, &mut batch, 16);
    let lengths: Vec<usize> = batch.iter().map(Packet::len).collect();
    assert_eq!(lengths, [[70; 16], [70; 16], [80; 16]].concat());
}

#[test]
fn threads_share_a_device_with_too_few_queues() {
    let output = temporary_file("dpdk-shared.pcap");
    let input = file_of("dpdk-shared-in.pcap", &[vec![0; 60]]);
    let mut port = try_open(&format!("dpdk:net_pcap4,rx_pcap={input},tx_pcap={output}"), 2, 3).unwrap();
    assert_eq!((port.info().rx_queues, port.info().tx_queues), (1, 3));
    assert!(warned("port net_pcap4: 2 receive queues were asked for, the device has 1"));
    let threads: Vec<_> = (0..3)
        .map(|number: u32| {
            let mut tx = port.take_tx(number as usize).unwrap();
            thread::spawn(move || {
                let mut pool = pool(64);
                tx.prepare(&mut pool).unwrap();
                for count in 0..500 {
                    let mut batch = batch_of(&mut pool, &[numbered_frame(number << 16 | count, 60)]);
                    while !batch.is_empty() {
                        tx.send(&mut pool, &mut batch);
                    }
                }
                tx.stats().packets
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 500);
    }
    drop(port);
    let mut frames = frames_in(&output);
    frames.sort();
    let expected =
        (0..3u32).flat_map(|number| (0..500).map(move |count| numbered_frame(number << 16 | count, 60)));
    assert!(frames == expected.collect::<Vec<_>>());
}

#[test]
fn a_line_with_neighbours() {
    in_namespace(|| {
        veth_pair("left", "right");
        ip("link set left address 02:00:00:00:00:02");
        let mut port = open("dpdk:net_af_packet1,iface=left?promiscuous");
        assert_eq!(port.info().mac, MacAddr([2, 0, 0, 0, 0, 2]));
        let mut other = crate::open("right", &options(1, 1)).unwrap();
        let (mut rx, mut tx) = (port.take_rx(0).unwrap(), port.take_tx(0).unwrap());
        let (mut far_rx, mut far_tx) = (other.take_rx(0).unwrap(), other.take_tx(0).unwrap());
        let mut pool = pool(512);
        let frames: Vec<_> =
            (0..100).map(|number| numbered_frame(number, 60 + number as usize * 14)).collect();
        let mut batch = batch_of(&mut pool, &frames);
        assert_eq!(far_tx.send(&mut pool, &mut batch), 100);
        far_tx.flush(&mut pool);
        assert!(receive_numbered(&mut *rx, &mut pool, 100) == frames);
        let mut batch = batch_of(&mut pool, &frames);
        while !batch.is_empty() {
            tx.send(&mut pool, &mut batch);
        }
        assert!(receive_numbered(&mut *far_rx, &mut pool, 100) == frames);

        let mut kinds = vec![numbered_frame(0, 60); 4];
        kinds[1][5] = 9;
        kinds[2][..6].fill(0xff);
        kinds[3][..6].copy_from_slice(&[0x01, 0, 0x5e, 0, 0, 1]);
        let mut batch = batch_of(&mut pool, &kinds);
        assert_eq!(far_tx.send(&mut pool, &mut batch), 4);
        far_tx.flush(&mut pool);
        let mut types = Vec::new();
        crate::testing::soon("four frames come", || {
            let mut batch = Batch::new();
            rx.receive(&mut pool, &mut batch, 8);
            types.extend(batch.iter().map(Packet::packet_type));
            types.len() >= 4
        });
        let expected =
            [PacketType::Host, PacketType::OtherHost, PacketType::Broadcast, PacketType::Multicast];
        assert_eq!(types, expected);
        assert!(port.details().contains("link up"), "{}", port.details());
    });
}

#[test]
fn a_tap_of_dpdk() {
    in_namespace(|| {
        let mut port = open("dpdk:net_tap1,iface=dtap1?mtu=1400");
        let interface = crate::interface::Interface::existing("dtap1").unwrap();
        let theirs = interface.mac().unwrap();
        assert_eq!(port.info().mac.0[5] ^ 1, theirs.0[5]);
        assert_eq!((port.info().mtu, interface.mtu().unwrap()), (1_400, 1_400));
        let (mut rx, mut tx) = (port.take_rx(0).unwrap(), port.take_tx(0).unwrap());
        let mut other = crate::open("dtap1", &options(1, 1)).unwrap();
        let (mut far_rx, mut far_tx) = (other.take_rx(0).unwrap(), other.take_tx(0).unwrap());
        let mut pool = pool(256);
        let frames: Vec<_> =
            (0..30).map(|number| numbered_frame(number, 60 + number as usize * 40)).collect();
        let mut batch = batch_of(&mut pool, &frames);
        far_tx.send(&mut pool, &mut batch);
        far_tx.flush(&mut pool);
        assert!(receive_numbered(&mut *rx, &mut pool, 30) == frames);
        let mut batch = batch_of(&mut pool, &frames);
        while !batch.is_empty() {
            tx.send(&mut pool, &mut batch);
        }
        assert!(receive_numbered(&mut *far_rx, &mut pool, 30) == frames);
        // All multicast, as IPv6's neighbour discovery, OSPF and VRRP need.
        let link = testbed::run("ip", "link show dtap1");
        assert!(link.contains("ALLMULTI"), "{link}");
        assert_eq!(port.has_link(), Some(true));
        ip("link set dtap1 down");
        assert_eq!(port.has_link(), Some(false));
        drop((rx, tx, far_rx, far_tx, other, port));
        crate::testing::soon("the interface goes", || !interface.exists());
    });
}

#[test]
fn several_queues_and_their_steering() {
    let mut port = try_open("dpdk:net_null4?symmetric", 4, 4).unwrap();
    assert_eq!((port.info().rx_queues, port.info().tx_queues), (4, 4));
    assert!((0..4).all(|queue| port.take_rx(queue).is_ok() && port.take_tx(queue).is_ok()));
    let id = port.device.port;
    let hash = || {
        let (mut key, mut fields) = ([0; 40], 0);
        #[allow(unsafe_code, reason = "the shim")]
        // SAFETY: the port is open, the array as long as said.
        unsafe {
            assert_eq!(shim::brickway_dpdk_hash(id, key.as_mut_ptr(), 40, &raw mut fields), 0);
        }
        (key, fields)
    };
    assert_eq!(hash().0.to_vec(), symmetric_key(40));
    let steering = port.steering().unwrap();
    let mut table = steering.reta().unwrap();
    assert_eq!(table.len(), 128);
    table.iter_mut().enumerate().for_each(|(bucket, queue)| *queue = (bucket % 3) as u16 + 1);
    steering.set_reta(&table).unwrap();
    assert_eq!(steering.reta().unwrap(), table);
    steering.set_hash(Some(&[7; 40]), HashFields::Addresses).unwrap();
    assert_eq!((hash().0, hash().1 & rss::PORTS), ([7; 40], 0));
    steering.set_hash(None, HashFields::AddressesAndPorts).unwrap();
    assert_eq!((hash().0, hash().1 & rss::PORTS != 0), ([7; 40], true));

    let error = steering.set_reta(&table[1..]).unwrap_err().to_string();
    assert!(error.contains("127 buckets was given; the device's has 128"), "{error}");
    table[0] = 4;
    let error = steering.set_reta(&table).unwrap_err().to_string();
    assert!(error.contains("receive queue 4; there are 4"), "{error}");
    let error = steering.set_hash(Some(&[1; 39]), HashFields::Addresses).unwrap_err().to_string();
    assert!(error.contains("39 bytes was given; the device's has 40"), "{error}");
    let error = steering.steer_prefix(Ipv4Addr::new(10, 0, 0, 0), 8, 1).unwrap_err().to_string();
    assert!(error.contains("steering 10.0.0.0/8 to a queue") && error.contains("net_null"), "{error}");
    let error = steering.steer_prefix(Ipv4Addr::new(10, 0, 0, 0), 8, 4).unwrap_err().to_string();
    assert!(error.contains("there are 4 queues"), "{error}");
}

#[test]
fn prefixes_go_to_queues_where_the_driver_can() {
    in_namespace(|| {
        let mut port = try_open("dpdk:net_tap2,iface=dtap2", 2, 2).unwrap();
        match port.steering().unwrap().steer_prefix(Ipv4Addr::new(10, 1, 0, 0), 16, 1) {
            Ok(()) => {}
            // The driver makes its rules of the kernel's flower classifier, which not every kernel has.
            Err(error) => println!("skipped: {error}"),
        }
    });
}

#[test]
fn mistakes_name_what_would_be_right() {
    let error = mistake("dpdk:net_quux0");
    assert!(
        error.contains("DPDK cannot open `net_quux0`") && error.contains("no driver knows `net_quux`"),
        "{error}"
    );
    let error = mistake("dpdk:net_pcap5,rx_pcap=/nonexistent/in.pcap");
    assert!(error.contains("/nonexistent/in.pcap"), "{error}");
    let error = mistake("dpdk:net_null5,sise=70");
    assert!(error.contains("check the arguments `net_null5,sise=70`"), "{error}");
    let error = mistake("dpdk:0000:03:00.0");
    assert!(error.contains("a PCI device needs huge pages"), "{error}");
    let error = mistake("dpdk:net_null6?huge=yes");
    assert!(error.contains("comes too late"), "{error}");
    let error = mistake("dpdk:net_null6?mtu=64");
    assert!(error.contains("a number from 68 to 65000 is expected"), "{error}");
    assert!(mistake("dpdk:").contains("the device is missing"));
    assert!(mistake("dpdk:net_null6,size=64&mtu=1400").contains("stand behind a `?`"));
    // The more frames there are, the earlier the driver fails; with so many it would crash if it were closed then.
    for (count, name) in [(20_000, "net_pcap6"), (200_000, "net_pcap7")] {
        let input = file_of("dpdk-many.pcap", &vec![vec![0; 60]; count]);
        let error = mistake(&format!("dpdk:{name},rx_pcap={input},infinite_rx=1?mtu=2500"));
        assert!(error.contains("`mbufs=`"), "{error}");
    }
}

#[test]
fn rings_carry_packets_from_graph_to_graph() {
    let (mut one, mut two) = (open_ring("dpdk_ring:t1?slots=64"), open_ring("dpdk_ring:t1?slots=64"));
    let (mut tx, mut rx) = (one.take_tx(0).unwrap(), two.take_rx(0).unwrap());
    assert!(two.take_rx(1).is_err());
    let mut pool = pool(128);
    tx.prepare(&mut pool).unwrap();
    rx.prepare(&mut pool).unwrap();
    let frames = frames_of_all_lengths(100);
    let mut batch = batch_of(&mut pool, &frames);
    assert_eq!((tx.send(&mut pool, &mut batch), batch.len()), (64, 36));
    let mut received = Batch::new();
    assert_eq!(rx.receive(&mut pool, &mut received, 256), 64);
    assert!(contents(&received) == frames[..64] && received.iter().all(is_in_mbuf));
    assert_eq!(tx.send(&mut pool, &mut batch), 36);
    assert_eq!(rx.receive(&mut pool, &mut received, 256), 36);
    assert!(contents(&received) == frames);
    assert_eq!((rx.stats().packets, tx.stats().packets, tx.stats().bytes), (100, 100, rx.stats().bytes));
    // Mbufs of a ring go out by a device as they are, and those of a device of another pool come through a ring.
    let mut port = open("dpdk:net_null7?mtu=2400");
    let (mut null_rx, mut null_tx) = (port.take_rx(0).unwrap(), port.take_tx(0).unwrap());
    assert_eq!(null_tx.send(&mut pool, &mut received), 100);
    null_rx.receive(&mut pool, &mut received, 32);
    let first = received.packets()[0].chunk();
    assert_eq!(tx.send(&mut pool, &mut received), 32);
    assert_eq!(rx.receive(&mut pool, &mut received, 32), 32);
    assert_eq!(received.packets()[0].chunk(), first);
    assert_eq!(received.packets()[0].capacity(), 128 + 2_432);
    drop(received);
    assert_eq!(port.device.mbufs.in_use(), 0);
}
