//! TAP and TUN devices: Linux has the interface, we have the other end of its cable. Linux 3.8 or newer (several queues).
//! A TAP device carries Ethernet frames, a TUN device IP packets without a link header.
//!
//! Every receive queue is a file of its own, among which the kernel spreads flows. Transmit queues share these files
//! (writing one frame is one atomic call), so that there can be more of them; a file that nobody reads would swallow
//! its share of the flows. One system call a packet is what the device offers.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use aya::programs::links::FdLink;
use packet::sync::lock;
use packet::wire::ethernet::MacAddr;
use packet::{Batch, Packet, Pool};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::host::drop_all;
use crate::interface::{Interface, ifreq_ioctl, name_in, request_for};
use crate::interface_lock::InterfaceLock;
use crate::{Event, Handout, OpenOptions, Port, PortError, PortInfo, QueueStats, RxQueue, Spec, TxQueue};
use crate::spec::option;
use crate::DriverDoc;

/// The driver, as specs name it.
pub(crate) static TAP: DriverDoc = DriverDoc {
    name: "tap",
    what: "INTERFACE",
    help: "a TAP device: Linux has the interface, Brickway the other end of its cable",
    options: &[
        option("mtu", "BYTES", "the interface's MTU"),
        option("mac", "ADDRESS", "the interface's link address"),
        option(
            "listeners",
            "yes|no",
            "Linux shows what we send to listeners (tcpdump) only, on Linux 6.6 (default no)",
        ),
        option("keep", "yes|no", "leave the interface there when the port closes (default no)"),
    ],
    open: |spec, options| Ok(Box::new(TapPort::open(spec, options, Kind::Frames)?)),
    ..DriverDoc::DEFAULT
};

/// The driver, as specs name it.
pub(crate) static TUN: DriverDoc = DriverDoc {
    name: "tun",
    what: "INTERFACE",
    help: "a TUN device: as tap, but for IP packets without a link header",
    options: &[
        option("mtu", "BYTES", "the interface's MTU"),
        option("keep", "yes|no", "leave the interface there when the port closes (default no)"),
    ],
    open: |spec, options| Ok(Box::new(TapPort::open(spec, options, Kind::IpPackets)?)),
    ..DriverDoc::DEFAULT
};

/// What a device carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// TAP: Ethernet frames.
    Frames,
    /// TAP: Ethernet frames, in some of which several are merged, each with a virtio header before it.
    MergedFrames,
    /// TUN: IP packets.
    IpPackets,
}

impl Kind {
    fn flag(self) -> libc::c_int {
        match self {
            Self::Frames => libc::IFF_TAP,
            Self::MergedFrames => libc::IFF_TAP | libc::IFF_VNET_HDR,
            Self::IpPackets => libc::IFF_TUN,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Frames | Self::MergedFrames => "TAP",
            Self::IpPackets => "TUN",
        }
    }
}

/// Most queues of a TAP device (MAX_TAP_QUEUES of the kernel).
const MAX_QUEUES: usize = 256;

/// A TAP or TUN device.
pub(crate) struct TapPort {
    info: PortInfo,
    device: Arc<Device>,
    rx: Handout<usize>,
    tx: Handout<usize>,
}

/// What port and queues share: the files, and the lock for as long as one of them is there.
#[derive(Debug)]
struct Device {
    /// Drops what Linux would make of our frames, where only listeners are to see them.
    _link: Option<FdLink>,
    files: Vec<OwnedFd>,
    kind: Kind,
    _locks: [InterfaceLock; 2],
}

impl TapPort {
    pub(crate) fn open(spec: &mut Spec, options: &OpenOptions, kind: Kind) -> Result<Self, PortError> {
        let name = spec.name().to_owned();
        let mtu = spec.take_number("mtu", (68, 65_521))?;
        let keep = spec.take_switch("keep", false)?;
        let (mac, shows_only) = match kind {
            Kind::Frames | Kind::MergedFrames => (spec.take("mac"), spec.take_switch("listeners", false)?),
            Kind::IpPackets => (None, false),
        };
        let mac =
            match mac {
                None => None,
                Some(text) => Some(text.parse::<MacAddr>().map_err(|_| {
                    spec.bad_value("mac", &text, "a link address such as `02:00:00:00:00:01`")
                })?),
            };
        let interface = Interface::new(&name)?;
        let lock_of_name = InterfaceLock::of_name(&name)?;
        let is_new = !interface.exists();
        // A port that only sends still needs one file.
        let queues = options.rx_queues.clamp(1, MAX_QUEUES);
        let mut files = Vec::with_capacity(queues);
        for _ in 0..queues {
            files.push(open_file(&name, Queues::Several, kind)?.0);
        }
        let locks = [lock_of_name, InterfaceLock::of_index(&name, interface.index()?)?];
        if keep {
            persist(&name, &files[0])?;
        }
        if let Some(mac) = mac {
            interface.set_mac(mac)?;
        }
        if let Some(mtu) = mtu {
            interface.set_mtu(mtu as usize)?;
        }
        let link = if shows_only { Some(drop_all(&name, &name)?) } else { None };
        if is_new {
            // One that was there is the administrator's, up or down.
            interface.set_up()?;
        }
        let mac = match kind {
            Kind::Frames | Kind::MergedFrames => {
                let MacAddr(mut octets) = interface.mac()?;
                octets[5] ^= 1;
                MacAddr(octets)
            }
            Kind::IpPackets => MacAddr::ZERO,
        };
        let rx_queues = options.rx_queues.min(queues);
        let info = PortInfo {
            name: name.clone(),
            driver: match kind {
                Kind::Frames | Kind::MergedFrames => "tap",
                Kind::IpPackets => "tun",
            },
            mac,
            mtu: interface.mtu()?,
            rx_queues,
            tx_queues: options.tx_queues,
        };
        Ok(Self {
            rx: Handout::new(&name, "receive", 0..rx_queues),
            tx: Handout::new(&name, "transmit", (0..options.tx_queues).map(|queue| queue % queues)),
            device: Arc::new(Device { _link: link, files, kind, _locks: locks }),
            info,
        })
    }
}

/// A name for the interface that stands in Linux for a port that has none there: of at most 15 characters, such as
/// Linux takes (netdevice(7)).
pub fn twin_name(port: &str) -> String {
    let name = port.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '-' });
    let name: String = name.take(libc::IFNAMSIZ - 1).collect();
    if name.is_empty() { "-".to_owned() } else { name }
}

/// How many files a TAP device may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queues {
    One,
    Several,
}

/// Files of TUN and TAP devices without a device yet, opened while the process was root's.
static KEPT: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

/// Opens so many files for TUN and TAP devices, for a process that is about to become another user's: not everywhere may all users
/// open /dev/net/tun. What cannot be opened is reported where a device is made.
pub fn keep_tun_files(count: usize) {
    lock(&KEPT).extend((0..count).map_while(|_| tun_file().ok()));
}

fn tun_file() -> Result<OwnedFd, Errno> {
    rustix::fs::open("/dev/net/tun", OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
}

/// A file of a device, which is made when there is none, and the device's name: the kernel chooses a number for
/// `%d` in it.
pub(crate) fn open_file(name: &str, queues: Queues, kind: Kind) -> Result<(OwnedFd, String), PortError> {
    let kept = lock(&KEPT).pop();
    let file = kept.map_or_else(tun_file, Ok).map_err(|error| match error {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => PortError::Unsupported {
            port: name.to_owned(),
            problem: format!(
                "the kernel has no {} devices (/dev/net/tun); load them with `modprobe tun`",
                kind.name()
            ),
        },
        _ => PortError::system(name, "opening /dev/net/tun", error),
    })?;
    let mut request = request_for(name)?;
    let several = if queues == Queues::Several { libc::IFF_MULTI_QUEUE } else { 0 };
    request.ifr_ifru.ifru_flags = (kind.flag() | libc::IFF_NO_PI | several) as libc::c_short;
    match ifreq_ioctl(&file, libc::TUNSETIFF, request) {
        Ok(reply) => Ok((file, name_in(&reply))),
        Err(error) => Err(match error.raw_os_error() {
            Some(libc::EPERM) => PortError::NotPermitted {
                port: name.to_owned(),
                what: match kind {
                    Kind::Frames | Kind::MergedFrames => "make or use a TAP device",
                    Kind::IpPackets => "make or use a TUN device",
                },
                capability: "CAP_NET_ADMIN",
            },
            Some(libc::EBUSY) => {
                PortError::InUse { port: name.to_owned(), user: "another program".to_owned() }
            }
            Some(libc::EINVAL) => PortError::Unsupported {
                port: name.to_owned(),
                problem: format!(
                    "there is an interface of this name that is not a {} device with several queues; use another name, \
                     or remove it with `ip link delete {name}`",
                    kind.name()
                ),
            },
            _ => PortError::system(name, "making the device", error),
        }),
    }
}

/// What is merged in the frames that a file takes (linux/if_tun.h): unfinished checksums, TCP over IPv4 and IPv6, with ECN, and UDP
/// over both (Linux 6.2).
const MERGED_TCP: libc::c_uint = 0x01 | 0x02 | 0x04 | 0x08;
const MERGED_UDP: libc::c_uint = 0x20 | 0x40;

/// Has Linux give the device merged frames, of [`Kind::MergedFrames`].
pub(crate) fn take_merged(name: &str, file: &OwnedFd) -> Result<(), PortError> {
    let take = |kinds: libc::c_uint| {
        #[allow(unsafe_code, reason = "the C interface of tun devices")]
        // SAFETY: TUNSETOFFLOAD takes a number, not a pointer.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(kinds)) };
        if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    let taken = take(MERGED_TCP | MERGED_UDP).or_else(|_| take(MERGED_TCP));
    taken.map_err(|error| PortError::system(name, "having the TAP device take merged frames", error))
}

fn persist(name: &str, file: &OwnedFd) -> Result<(), PortError> {
    #[allow(unsafe_code, reason = "the C interface of tun devices")]
    // SAFETY: TUNSETPERSIST takes a number, not a pointer.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETPERSIST, 1) };
    if result < 0 {
        return Err(PortError::system(name, "keeping the device", std::io::Error::last_os_error()));
    }
    Ok(())
}

impl Port for TapPort {
    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
        let file = self.rx.take(queue)?;
        let device = Arc::clone(&self.device);
        Ok(Box::new(TapRx { device, file, reader: Reader::default(), stats: QueueStats::default() }))
    }

    fn take_tx(&mut self, queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
        let file = self.tx.take(queue)?;
        let device = Arc::clone(&self.device);
        Ok(Box::new(TapTx { device, file, sent: Batch::new(), stats: QueueStats::default() }))
    }

    /// Linux 5.0 or newer.
    fn set_carrier(&mut self, is_plugged: bool) -> Result<(), PortError> {
        let value = libc::c_int::from(is_plugged);
        #[allow(unsafe_code, reason = "the C interface of tun devices")]
        // SAFETY: TUNSETCARRIER reads one number, which lives for the call.
        let result =
            unsafe { libc::ioctl(self.device.files[0].as_raw_fd(), libc::TUNSETCARRIER, &raw const value) };
        if result < 0 {
            let error = std::io::Error::last_os_error();
            return Err(PortError::system(&self.info.name, "plugging or unplugging the cable", error));
        }
        Ok(())
    }
}

/// Reads frames from a file of a device.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// The frame for the next packet.
    spare: Option<Packet>,
    /// Whether the device was gone at the last try: somebody has deleted it.
    pub(crate) is_gone: bool,
}

impl Reader {
    /// Reads up to `max` packets, each a frame or what else the device carries. Returns how many.
    pub(crate) fn receive(
        &mut self,
        file: &OwnedFd,
        pool: &mut Pool,
        batch: &mut Batch,
        max: usize,
        stats: &mut QueueStats,
        mut accept: impl FnMut(&mut Packet),
    ) -> usize {
        let wanted = max.min(batch.room());
        let mut received = 0;
        while received < wanted {
            let Some(mut packet) = self.spare.take().or_else(|| pool.allocate()) else { break };
            let room = packet.len() + packet.tailroom();
            let Some(data) = packet.reset(room) else { break };
            match rustix::io::read(file, data) {
                // The kernel cuts what is longer without a word, so a full frame may be a cut one.
                Ok(length) if length == room => {
                    stats.add(Event::TooLong, 1);
                    self.spare = Some(packet);
                }
                Ok(length) => {
                    packet.truncate(length);
                    accept(&mut packet);
                    stats.packet(length);
                    batch.push(packet);
                    received += 1;
                }
                // Nothing there; or the interface is down, which says so in the same way.
                Err(error) => {
                    self.is_gone = error == Errno::BADFD;
                    self.spare = Some(packet);
                    break;
                }
            }
        }
        received
    }
}

struct TapRx {
    device: Arc<Device>,
    file: usize,
    reader: Reader,
    stats: QueueStats,
}

impl RxQueue for TapRx {
    fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, max: usize) -> usize {
        let Self { device, file, reader, stats } = self;
        let kind = device.kind;
        reader.receive(&device.files[*file], pool, batch, max, stats, |packet| match kind {
            Kind::Frames | Kind::MergedFrames => {
                packet.set_link_header(0);
                let packet_type = crate::packet_type_on_a_cable(packet.data());
                packet.set_packet_type(packet_type);
            }
            Kind::IpPackets => packet.set_network_header(0),
        })
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.device.files[self.file].as_fd())
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

struct TapTx {
    device: Arc<Device>,
    file: usize,
    /// Packets between batch and pool within one call; empty between calls.
    sent: Batch,
    stats: QueueStats,
}

impl TxQueue for TapTx {
    fn send(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let file = &self.device.files[self.file];
        let mut taken = 0;
        for packet in batch.iter() {
            let event = match rustix::io::write(file, packet.data()) {
                Ok(_) => {
                    self.stats.packet(packet.len());
                    taken += 1;
                    continue;
                }
                Err(Errno::AGAIN | Errno::INTR) => break,
                // The device is down (EIO) or detached (EBADFD).
                Err(Errno::IO | Errno::BADFD) => Event::LinkDown,
                // Shorter than an Ethernet header, or of no IP version.
                Err(Errno::INVAL) => Event::TooShort,
                Err(_) => Event::Refused,
            };
            self.stats.add(event, 1);
            taken += 1;
        }
        batch.move_front(&mut self.sent, taken);
        pool.free(&mut self.sent);
        taken
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        TEST_ETHERTYPE, batch_of, command, in_namespace, ip, numbered_frame, pool, receive_numbered, soon,
    };

    #[test]
    fn frames_go_to_linux_and_come_from_it() {
        in_namespace(|| {
            let mut port =
                crate::open("tap:tap0?mtu=1400&mac=02:00:00:00:00:10", &OpenOptions::default()).unwrap();
            let info = port.info();
            assert_eq!((info.mac, info.mtu), (MacAddr([2, 0, 0, 0, 0, 0x11]), 1_400));
            // A second device behind a bridge: what Linux gets on one TAP it sends out of the other.
            let mut other = crate::open("tap:tap1", &OpenOptions::default()).unwrap();
            ip("link add bridge type bridge");
            ip("link set tap0 master bridge");
            ip("link set tap1 master bridge");
            ip("link set bridge up");
            let (mut tx, mut rx) = (port.take_tx(0).unwrap(), other.take_rx(0).unwrap());
            let frames: Vec<Vec<u8>> = (0..20).map(|number| numbered_frame(number, 200)).collect();
            let mut pool = pool(256);
            let mut batch = batch_of(&mut pool, &frames);
            assert_eq!(tx.send(&mut pool, &mut batch), 20);
            assert_eq!(receive_numbered(&mut *rx, &mut pool, 20), frames);
            assert_eq!((tx.stats().packets, tx.stats().bytes), (20, 4_000));
        });
    }

    #[test]
    fn a_device_that_is_down_counts_and_lives() {
        in_namespace(|| {
            let mut port = crate::open("tap:tap0", &OpenOptions::default()).unwrap();
            let (mut tx, mut rx) = (port.take_tx(0).unwrap(), port.take_rx(0).unwrap());
            let mut pool = pool(64);
            ip("link set tap0 down");
            let mut batch = batch_of(&mut pool, &[numbered_frame(1, 60)]);
            assert_eq!(tx.send(&mut pool, &mut batch), 1);
            assert_eq!(tx.stats().count(Event::LinkDown), 1);
            // What Linux queued before is there still (it may have looked for IPv6 routers); then there is nothing.
            let mut received = Batch::new();
            while rx.receive(&mut pool, &mut received, 32) > 0 {}
            assert_eq!(rx.stats().dropped(), 0);
            ip("link set tap0 up");
            let mut batch = batch_of(&mut pool, &[numbered_frame(1, 60), vec![1; 8]]);
            assert_eq!(tx.send(&mut pool, &mut batch), 2);
            assert_eq!((tx.stats().packets, tx.stats().count(Event::TooShort)), (1, 1));
        });
    }

    #[test]
    fn ip_packets_go_to_linux_and_come_from_it() {
        in_namespace(|| {
            let mut port = crate::open("tun:tun0?mtu=1400", &OpenOptions::default()).unwrap();
            let info = port.info();
            assert_eq!((info.driver, info.mac, info.mtu), ("tun", MacAddr::ZERO, 1_400));
            ip("addr add 192.0.2.1/24 dev tun0");
            let (mut tx, mut rx) = (port.take_tx(0).unwrap(), port.take_rx(0).unwrap());
            let mut pool = pool(64);
            // An echo request of 192.0.2.2 to 192.0.2.1, checksums right.
            let mut request = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0, 192, 0, 2, 2, 192, 0, 2, 1];
            request.extend([8, 0, 0xf7, 0xfd, 0, 1, 0, 1]);
            let sum: u32 =
                request[..20].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            request[10..12].copy_from_slice(&sum.to_be_bytes());
            let mut batch = batch_of(&mut pool, &[request, vec![0; 40]]);
            tx.send(&mut pool, &mut batch);
            assert_eq!((tx.stats().packets, tx.stats().dropped()), (1, 1));
            let mut received = Batch::new();
            let is_reply = |packet: &Packet| packet.data()[0] == 0x45 && packet.data()[20] == 0;
            soon("the answer", || {
                rx.receive(&mut pool, &mut received, 32);
                received.iter().any(is_reply)
            });
            let reply = received.iter().find(|packet| is_reply(packet)).unwrap();
            assert_eq!(reply.network_offset(), Some(0));
            assert_eq!(reply.data()[12..20], [192, 0, 2, 1, 192, 0, 2, 2]);
        });
    }

    #[test]
    fn the_cable_is_unplugged_and_plugged() {
        in_namespace(|| {
            let mut port = crate::open("tap:tap0?trace=/dev/null", &OpenOptions::default()).unwrap();
            let link = || command("ip", "link show dev tap0");
            assert!(link().contains("LOWER_UP"), "{}", link());
            port.set_carrier(false).unwrap();
            soon("the cable is out", || link().contains("NO-CARRIER") && !link().contains("LOWER_UP"));
            port.set_carrier(true).unwrap();
            soon("the cable is in", || link().contains("LOWER_UP"));
            let error = crate::open("null:", &OpenOptions::default()).unwrap().set_carrier(true).unwrap_err();
            assert!(error.to_string().contains("only the cable of a TAP device"), "{error}");
        });
    }

    #[test]
    fn a_device_stands_for_a_port_that_linux_does_not_see() {
        in_namespace(|| {
            let name = twin_name("0000:03:00.0");
            let spec = format!("tap:{name}?mac=02:00:00:00:00:09&mtu=1400");
            let options = OpenOptions { rx_queues: 2, tx_queues: 3, ..OpenOptions::default() };
            let mut twin = crate::open(&spec, &options).unwrap();
            assert_eq!((twin.info().rx_queues, twin.info().tx_queues), (2, 3));
            let link = command("ip", &format!("link show dev {name}"));
            assert!(link.contains("02:00:00:00:00:09") && link.contains("mtu 1400"), "{link}");
            assert!(link.contains("LOWER_UP"), "{link}");
            // Linux takes what is sent to the port's address, and answers from there.
            ip(&format!("addr add 192.0.2.1/24 dev {name}"));
            let mut request = numbered_frame(0, 60);
            request[..6].fill(0xff);
            request[12..14].copy_from_slice(&[0x08, 0x06]);
            request[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
            request[22..28].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
            request[28..32].copy_from_slice(&[192, 0, 2, 2]);
            request[38..42].copy_from_slice(&[192, 0, 2, 1]);
            let mut pool = pool(64);
            let mut batch = batch_of(&mut pool, &[request]);
            twin.take_tx(2).unwrap().send(&mut pool, &mut batch);
            let mut queues = [twin.take_rx(0).unwrap(), twin.take_rx(1).unwrap()];
            let mut received = Batch::new();
            soon("the answer", || {
                queues.iter_mut().for_each(|queue| {
                    queue.receive(&mut pool, &mut received, 32);
                });
                received.iter().any(|packet| packet.data()[12..14] == [0x08, 0x06])
            });
            let answer = received.iter().find(|packet| packet.data()[12..14] == [0x08, 0x06]).unwrap().data();
            assert_eq!(answer[..12], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9]);
        });
        assert_eq!(twin_name("0000:03:00.0"), "0000-03-00-0");
        assert_eq!(twin_name("net_pcap0,rx_pcap=in.pcap"), "net-pcap0-rx-pc");
        assert_eq!(twin_name(""), "-");
    }

    #[test]
    fn the_device_goes_with_the_port_unless_kept() {
        in_namespace(|| {
            let options = OpenOptions { rx_queues: 2, tx_queues: 3, ..OpenOptions::default() };
            let mut port = crate::open("tap:tap0", &options).unwrap();
            assert_eq!((port.info().rx_queues, port.info().tx_queues), (2, 3));
            port.take_tx(2).unwrap();
            let error = crate::open("tap:tap0", &options).err().unwrap().to_string();
            assert!(error.contains("already in use by another port of this process"), "{error}");
            drop(port);
            // Another test's child process may hold the files for the moment between its fork and its exec.
            soon("the device is gone", || !Interface::new("tap0").unwrap().exists());
            drop(crate::open("tap:tap0?keep", &options).unwrap());
            assert!(command("ip", "link show tap0").contains("tap0"));
            drop(crate::open("tap:tap0", &options).unwrap());
            let error = crate::open("tap:lo", &options).err().unwrap().to_string();
            assert!(error.contains("is not a TAP device with several queues"), "{error}");
            assert_eq!(numbered_frame(0, 60)[12..14], TEST_ETHERTYPE);
        });
    }
}
