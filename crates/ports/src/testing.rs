//! What the tests of several files share: pools, batches, and a network namespace with a veth pair.

use packet::{Batch, Packet, Pool, PoolOptions};

use crate::TxQueue;

/// A pool for tests, with frames of the usual size.
pub(crate) fn pool(frames: usize) -> Pool {
    Pool::new(PoolOptions { frames, ..PoolOptions::default() }).unwrap()
}

/// A batch of packets with this data.
pub(crate) fn batch_of(pool: &mut Pool, frames: &[Vec<u8>]) -> Batch {
    let mut batch = Batch::new();
    for frame in frames {
        let mut packet = pool.allocate().unwrap();
        assert!(packet.set_data(frame));
        batch.push(packet);
    }
    batch
}

/// The data of each packet.
pub(crate) fn contents(batch: &Batch) -> Vec<Vec<u8>> {
    batch.iter().map(|packet| packet.data().to_vec()).collect()
}

/// An Ethernet frame of a private EtherType with a number in it, so that a test knows its own frames.
pub(crate) fn numbered_frame(number: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![0; length.max(20)];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&TEST_ETHERTYPE);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    for (index, byte) in frame.iter_mut().enumerate().skip(18) {
        *byte = (index as u32 ^ number) as u8;
    }
    frame
}

/// EtherType for experiments (IEEE 802, clause 9.2.4).
pub(crate) const TEST_ETHERTYPE: [u8; 2] = [0x88, 0xb5];

/// Runs `test` on a thread of its own inside a new network namespace, which goes away with the thread.
pub(crate) fn in_namespace(test: impl FnOnce() + Send + 'static) {
    before_programs();
    testbed::in_namespace(test);
}

/// Runs `ip` with these words in the thread's namespace.
pub(crate) fn ip(words: &str) {
    command("ip", words);
}

/// Runs a program with these words in the thread's namespace; returns its output.
pub(crate) fn command(program: &str, words: &str) -> String {
    before_programs();
    testbed::run(program, words)
}

/// DPDK's plug-ins set variables of the environment when they are loaded. A program that starts at that moment reads
/// an array of variables that is gone ("Bad address"), so DPDK is loaded before any program starts.
fn before_programs() {
    #[cfg(feature = "dpdk")]
    crate::dpdk::start_for_tests();
}

/// A veth pair `left`-`right`, up, without IPv6 chatter.
pub(crate) fn veth_pair(left: &str, right: &str) {
    before_programs();
    testbed::veth_pair(left, right, 1);
}

/// The path of a file for one test of one run; the file goes with it.
pub(crate) struct TemporaryFile(String);

/// A path for a file that is not there yet.
pub(crate) fn temporary_file(name: &str) -> TemporaryFile {
    let name = format!("brickway-ports-{}-{name}", std::process::id());
    TemporaryFile(std::env::temp_dir().join(name).to_str().unwrap().to_owned())
}

impl std::fmt::Display for TemporaryFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<std::path::Path> for TemporaryFile {
    fn as_ref(&self) -> &std::path::Path {
        self.0.as_ref()
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Sends frames, some of them again where the kernel has no room for a moment, until it has all.
pub(crate) fn send(tx: &mut dyn TxQueue, pool: &mut Pool, frames: &[Vec<u8>]) {
    let mut batch = batch_of(pool, frames);
    assert_eq!(tx.send(pool, &mut batch), frames.len());
    soon("the kernel has all frames", || {
        tx.flush(pool);
        tx.due_in_ns().is_none()
    });
}

/// Asks again and again, for at most a minute, until the kernel did something that it does in the background.
pub(crate) fn soon(what: &str, is_so: impl FnMut() -> bool) {
    testbed::wait_until(what, is_so);
}

/// Receives until `count` frames of [`numbered_frame`] came (others are skipped), for at most a minute.
pub(crate) fn receive_numbered(rx: &mut dyn crate::RxQueue, pool: &mut Pool, count: usize) -> Vec<Vec<u8>> {
    let (mut batch, mut frames) = (Batch::new(), Vec::new());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while frames.len() < count && std::time::Instant::now() < deadline {
        if rx.receive(pool, &mut batch, 32) == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        frames.extend(contents(&batch).into_iter().filter(|frame| frame[12..14] == TEST_ETHERTYPE));
        pool.free(&mut batch);
    }
    frames
}

/// Prepares a queue and receives for the first time: packets are the queue's from then on.
pub(crate) fn begin(rx: &mut dyn crate::RxQueue, pool: &mut Pool) {
    rx.prepare(pool).unwrap();
    rx.receive(pool, &mut Batch::new(), 0);
}

/// A merged packet: how it is built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole {
    pub(crate) is_ipv4: bool,
    pub(crate) is_tcp: bool,
    /// Bytes of TCP's options, or of an extension header of IPv6.
    pub(crate) option_bytes: usize,
    pub(crate) extension_bytes: usize,
    pub(crate) flags: u8,
    pub(crate) sequence: u32,
    pub(crate) identification: u16,
    pub(crate) piece_bytes: u16,
    pub(crate) payload_bytes: usize,
}

impl Whole {
    /// The frame, and where IP, transport and payload begin.
    pub(crate) fn frame(self) -> (Vec<u8>, [usize; 3]) {
        let header = if self.is_ipv4 { 20 } else { 40 + self.extension_bytes };
        let transport = if self.is_tcp { 20 + self.option_bytes } else { 8 };
        let places = [14, 14 + header, 14 + header + transport];
        let mut frame = vec![0; places[2] + self.payload_bytes];
        frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1]);
        let (protocol, length) = (if self.is_tcp { 6 } else { 17 }, (frame.len() - 14) as u16);
        if self.is_ipv4 {
            frame[12..14].copy_from_slice(&[8, 0]);
            let ip = &mut frame[14..34];
            ip[..2].copy_from_slice(&[0x45, 2]);
            ip[2..4].copy_from_slice(&length.to_be_bytes());
            ip[4..6].copy_from_slice(&self.identification.to_be_bytes());
            ip[8..10].copy_from_slice(&[63, protocol]);
            ip[12..20].copy_from_slice(&[192, 0, 2, 9, 198, 51, 100, 7]);
            let check = packet::checksum::finish(packet::checksum::sum(ip));
            ip[10..12].copy_from_slice(&check.to_be_bytes());
        } else {
            frame[12..14].copy_from_slice(&[0x86, 0xdd]);
            let ip = &mut frame[14..places[1]];
            ip[..4].copy_from_slice(&[0x60, 0x20, 0, 7]);
            ip[4..6].copy_from_slice(&(length - 40).to_be_bytes());
            let next = if self.extension_bytes > 0 { 60 } else { protocol };
            ip[6..8].copy_from_slice(&[next, 63]);
            ip[8..40].fill(0x20);
            if self.extension_bytes > 0 {
                // Destination options: padding.
                let padding = (self.extension_bytes - 4) as u8;
                ip[40..44].copy_from_slice(&[protocol, (self.extension_bytes / 8 - 1) as u8, 1, padding]);
            }
        }
        let udp_bytes = (frame.len() - places[1]) as u16;
        let header = &mut frame[places[1]..places[2]];
        header[..4].copy_from_slice(&[0x12, 0x34, 0, 80]);
        if self.is_tcp {
            header[4..8].copy_from_slice(&self.sequence.to_be_bytes());
            header[12..16].copy_from_slice(&[(transport as u8 / 4) << 4, self.flags, 1, 1]);
            header[20..].fill(1);
        } else {
            header[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
        }
        frame[places[2]..].iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7 + at / 256) as u8);
        (frame, places)
    }

    pub(crate) fn packet(self, pool: &mut Pool) -> Packet {
        let (frame, places) = self.frame();
        let mut packet = pool.allocate_large().unwrap();
        packet
            .reset_with_headroom(packet::pool::LARGE_HEADROOM, frame.len())
            .unwrap()
            .copy_from_slice(&frame);
        let [network, transport, payload] = places.map(|place| (place + packet.data_offset()) as u16);
        packet.set_merged(packet::Merged { piece_bytes: self.piece_bytes, network, transport, payload });
        packet
    }
}

/// Another process that has ports open.
pub(crate) struct OtherProcess(std::process::Child);

const PORTS_OF_OTHER_PROCESS: &str = "BRICKWAY_TEST_PORTS";

#[test]
#[ignore = "what the other process does, not a test of its own"]
fn holds_ports_until_its_input_ends() {
    let mut pool = pool(4_096);
    let mut held = Vec::new();
    for spec in std::env::var(PORTS_OF_OTHER_PROCESS).unwrap().split_whitespace() {
        let mut port = crate::open(spec, &crate::OpenOptions::default()).unwrap();
        let mut rx = port.take_rx(0).ok();
        rx.iter_mut().for_each(|rx| begin(&mut **rx, &mut pool));
        held.push((port, rx));
    }
    eprintln!("ready");
    let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
}

impl OtherProcess {
    /// With these ports, in the thread's network namespace.
    pub(crate) fn with_ports(specs: &str) -> Self {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "--nocapture", "testing::holds_ports_until_its_input_ends"])
            .env(PORTS_OF_OTHER_PROCESS, specs)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 5];
        std::io::Read::read_exact(child.stderr.as_mut().unwrap(), &mut ready).unwrap();
        assert_eq!(&ready, b"ready");
        Self(child)
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Ends it in the middle of what it does.
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Another network namespace, with a thread in it that runs closures; both go with the value.
pub(crate) struct Elsewhere {
    thread: Option<std::thread::JoinHandle<()>>,
    orders: Option<std::sync::mpsc::Sender<Box<dyn FnOnce() + Send>>>,
    id: std::num::NonZeroI32,
}

impl Elsewhere {
    pub(crate) fn new() -> Self {
        let (orders, received) = std::sync::mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            in_namespace(move || {
                tell.send(rustix::thread::gettid().as_raw_nonzero()).unwrap();
                received.into_iter().for_each(|order| order());
            });
        });
        Self { thread: Some(thread), orders: Some(orders), id: told.recv().unwrap() }
    }

    /// Moves an interface of the calling thread's namespace there.
    pub(crate) fn takes(&self, interface: &str) {
        ip(&format!("link set {interface} netns {}", self.id));
    }

    /// Does something there.
    pub(crate) fn run<R: Send + 'static>(&self, order: impl FnOnce() -> R + Send + 'static) -> R {
        let (tell, told) = std::sync::mpsc::channel();
        let order = Box::new(move || tell.send(order()).unwrap());
        self.orders.as_ref().unwrap().send(order).unwrap();
        told.recv().expect("the order was carried out")
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        drop(self.orders.take());
        let result = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            result.unwrap();
        }
    }
}

/// The link address of the interface that [`likely_frames`] are for.
pub(crate) const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Local addresses, of which [`likely_frames`] are full.
pub(crate) const HOST_ADDRESSES: [&str; 3] = ["192.0.2.1", "192.0.2.255", "2001:db8::1"];

/// The link address of an interface above it.
pub(crate) const HOST_STATION: [u8; 6] = [2, 0, 0x5e, 0, 1, 7];

/// The same, for both families or for IPv4.
pub(crate) fn station(is_both: bool) -> crate::Station {
    let mac = packet::wire::ethernet::MacAddr(HOST_STATION);
    crate::Station { mac, families: [true, is_both] }
}

/// VLANs, of which [`likely_frames`] are full.
pub(crate) const HOST_VLANS: [(crate::VlanId, crate::VlanShare); 4] = [
    (100, crate::VlanShare::Transit),
    (101, crate::VlanShare::TransitIpv4),
    (102, crate::VlanShare::TransitIpv6),
    (4094, crate::VlanShare::All),
];

/// Frames near the edges of the decision whose they are: headers of IP, ARP and others with values that matter, with
/// tags and without, cut off anywhere.
pub(crate) fn likely_frames() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
    use proptest::prelude::*;
    let destination = prop_oneof![
        12 => Just(HOST_MAC),
        3 => Just(HOST_STATION),
        1 => Just([2, 0, 0x5e, 0, 1, 8]),
        1 => Just([0xff; 6]),
        1 => Just([0x33, 0x33, 0, 0, 0, 1]),
        1 => Just([2, 0, 0, 0, 0, 3]),
    ];
    let kind = prop_oneof![
        8 => Just([0x08, 0x00]),
        8 => Just([0x86, 0xdd]),
        1 => prop::sample::select(vec![[0x08, 0x06], [0x81, 0x00], [0x88, 0xa8], [0x88, 0xcc], [0x05, 0xdc]]),
        1 => any::<[u8; 2]>(),
    ];
    let ipv4 = prop::sample::select(vec![
        [192, 0, 2, 1],
        [192, 0, 2, 1],
        [192, 0, 2, 1],
        [192, 0, 2, 2],
        [192, 0, 2, 255],
        [0, 1, 2, 3],
        [127, 0, 0, 1],
        [126, 0, 0, 1],
        [128, 0, 0, 1],
        [223, 255, 255, 255],
        [224, 0, 0, 5],
        [240, 0, 0, 1],
        [255; 4],
        [198, 51, 100, 7],
    ]);
    let ipv6 = prop::sample::select(
        [
            "2001:db8::1",
            "2001:db8::1",
            "2001:db8::1",
            "2001:db8::2",
            "::",
            "::1",
            "::2",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "::ffff:192.0.2.1",
        ]
        .map(|text| text.parse::<std::net::Ipv6Addr>().unwrap().octets())
        .to_vec(),
    );
    let first = prop_oneof![
        8 => Just(None),
        1 => prop::sample::select(vec![0x44, 0x45, 0x46, 0x4f, 0x54, 0x60, 0x6f, 0x70]).prop_map(Some),
    ];
    let life = prop::sample::select(vec![0, 1, 2, 64, 255]);
    let next = prop_oneof![
        1 => prop::sample::select(vec![0, 6, 43, 51, 58]),
        1 => Just(17),
        1 => Just(50),
    ];
    // Fragments: the first, later ones; then what is not one: "don't fragment", and the reserved bit.
    let fragment = prop_oneof![
        8 => Just(0),
        2 => prop::sample::select(vec![0x2000_u16, 1, 0x1fff, 0x4000, 0x8000]),
    ];
    // UDP's ports, and the SPI behind its header. Right behind the IP header the ports are an SPI.
    let ports = prop_oneof![
        4 => Just([0, 7, 0x11, 0x94]),
        3 => prop::sample::select(vec![[0, 67, 0, 68], [0, 67, 0, 69], [0, 68, 0, 67]]),
        1 => prop::sample::select(vec![[0; 4], [0, 0, 0x11, 0x95], [0x11, 0x94, 0, 0], [0, 0, 0, 1]]),
    ];
    let spi = prop::sample::select(vec![[0; 4], [0, 0, 0, 1], [1, 0, 0, 0], [0xff, 0, 0, 0], [0, 1, 0, 0]]);
    let message = prop::sample::select(vec![0, 128, 132, 133, 135, 137, 138]);
    let length =
        prop_oneof![5 => Just(60_usize), 4 => Just(80_usize), 3 => 14_usize..80, 1 => 1_500_usize..1_530];
    // What the IP header says of it.
    let said = prop_oneof![
        2 => prop::sample::select(vec![46_u16, 1_460]),
        1 => prop::sample::select(vec![20_u16, 1_461, 1_500, 1_501, u16::MAX]),
        // The least with ESP and with ESP in UDP, of IPv6 and of IPv4, and a byte less.
        2 => prop::sample::select(vec![7_u16, 8, 15, 16, 27, 28, 35, 36]),
    ];
    // Type, priority and number of a tag.
    let number =
        prop::sample::select(vec![0x0064, 0x0065, 0x0066, 0x0067, 0xa064, 0x0ffe, 0x2ffe, 0, 0xe000, 0x0fff]);
    let type_of_tag = prop_oneof![3 => Just([0x81, 0x00]), 1 => Just([0x88, 0xa8])];
    let tag = prop_oneof![2 => Just(None), 1 => (type_of_tag, number).prop_map(Some)];
    let headers = (destination, kind, first, life, next, tag, said);
    let addresses = (ipv4, ipv6.clone(), ipv6);
    // The link address that a message to a client of DHCP names.
    let client = prop::sample::select(vec![HOST_MAC, HOST_STATION, [0; 6], [2, 0, 0, 0, 0, 3]]);
    let behind = (fragment, ports, spi, message, client);
    (headers, addresses, behind, length).prop_map(|(headers, addresses, behind, length)| {
        let (destination, kind, first, life, next, tag, said) = headers;
        let (ipv4, source, ipv6) = addresses;
        let (fragment, ports, spi, message, client) = behind;
        let mut frame = vec![0; length.max(80)];
        frame[..6].copy_from_slice(&destination);
        frame[12..14].copy_from_slice(&kind);
        let transport = if kind == [0x08, 0x00] {
            frame[14] = first.unwrap_or(0x45);
            frame[16..18].copy_from_slice(&said.to_be_bytes());
            frame[20..22].copy_from_slice(&fragment.to_be_bytes());
            (frame[22], frame[23]) = (life, next);
            frame[30..34].copy_from_slice(&ipv4);
            34
        } else {
            frame[14] = first.unwrap_or(0x60);
            frame[18..20].copy_from_slice(&said.to_be_bytes());
            (frame[20], frame[21]) = (next, life);
            frame[22..38].copy_from_slice(&source);
            frame[38..54].copy_from_slice(&ipv6);
            54
        };
        frame[transport..transport + 4].copy_from_slice(&ports);
        frame[transport + 8..transport + 12].copy_from_slice(&spi);
        if kind == [0x08, 0x00] {
            frame[transport + 36..transport + 42].copy_from_slice(&client);
        }
        if next == 58 {
            frame[transport] = message;
        }
        frame.truncate(length);
        if let Some(([first, second], number)) = tag {
            let [high, low] = u16::to_be_bytes(number);
            frame.splice(12..12, [first, second, high, low]);
        }
        frame
    })
}
