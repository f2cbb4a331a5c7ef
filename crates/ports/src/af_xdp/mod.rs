//! Network interfaces through AF_XDP: the kernel puts received frames right into our pools' chunks, and takes frames
//! to send from there. Linux 5.9 or newer.
//!
//! # Layout
//!
//! ```text
//!   interface, queue 0   queue 1   queue 2 ...          one memory: the chunks of all pools
//!        |  BPF program: ours or the kernel's?                 | metadata | head room | data |
//!      socket            socket    socket                       ^ 0        ^ 128       ^ 384 as received
//!      fill + receive rings (receive half), transmit + completion rings (transmit half)
//! ```
//!
//! Every hardware queue has a socket, and every socket registers the whole memory in which the pools of all workers lie
//! (`Pool::memory`). So a frame has the same address for all of them, and forwarding between ports copies nothing.
//! (One registration shared by several interfaces would do too, but it dies with the first of them.) Chunks lie an odd
//! number of cache lines apart, hence unaligned chunks; the first 128 bytes, our metadata, are head room which the
//! kernel never touches.
//!
//! The kernel takes chunks of a page at most. Of longer ones it knows the beginning: a packet that is longer comes in several
//! chunks, which the receive half joins in the first one, and leaves as several descriptors of one chunk (Linux 6.6).
//!
//! # Who owns what
//!
//! Of W receive queues of the port, number `i` serves the hardware queues `i`, `i + W`, `i + 2 W` ..., and transmit
//! queue `i` sends by the first of them. One worker has both, so a ring has one user. The transmit queues beyond W (of
//! a worker without a hardware queue, of the slow thread) send by packet sockets instead, as the AF_PACKET driver does.
//! The receive half owns fill and receive rings, the transmit half transmit and completion rings; the file descriptor
//! is common to both. Which chunks the kernel has is in a bitmap ([`chunks`]): what it gives back is checked there, and
//! nothing is lost when a socket dies.
//!
//! The receive half keeps the fill ring filled up to `ring` chunks, but with no more than a quarter of its pool. When
//! the pool is empty the ring runs dry and the kernel drops and counts; the next call fills it again.
//!
//! # Whose packets
//!
//! With `steer=all` every packet is ours, with `steer=transit` plain transit is (and ESP to the host's addresses, when
//! [`HostSteering::take_esp`] is set), and Linux stays the host on the link
//! ([`program`], `bpf/decide.h`). The packets of queues without a socket stay with the kernel in any case. So do
//! all until a worker receives for the first time: packets do not wait, or overflow the rings, while a router starts. What a
//! `host:` port gives to the kernel comes by us again in generic mode, sealed ([`passage`]).
//!
//! **Checksums and tags.** XDP sees frames as they lie in memory. The kernel at the other end of a veth pair leaves
//! checksums of TCP and UDP to a card: the receive half computes them (`unfinished.rs`), unless they are Linux's
//! ([`HostSteering::leave_unfinished_checksums`]). It also leaves VLAN tags to a card (`ethtool -K PEER txvlan off` there);
//! a card must not take tags out (`rxvlan off`).
//!
//! # Faults
//!
//! | what happens | what the queues do |
//! | --- | --- |
//! | the link is down | packets to send are dropped and counted, "link down" |
//! | the interface is gone | all frames come home; packets to send are dropped and counted, "port is gone" |
//! | it is there again | at most 200 ms later program and sockets are made anew, by the workers, at an idle moment |
//! | this process dies | the kernel closes the sockets and takes the program off: the interface is as it was |
//!
//! Nothing is asked of the kernel while packets come: whether the interface is still there is looked up by a queue that
//! finds no packet, five times a second, and by the call that sends.

mod attaching;
mod chunks;
mod probe;
mod program;
mod rest;
mod ring;
mod rx;
mod socket;
mod tags;
mod tx;

use packet::sync::lock;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use packet::Pool;
use packet::wire::ethernet::MacAddr;
use rustix::net::xdp::XdpDesc;

use crate::af_packet::{self, Claim};
use crate::af_xdp::program::{Program, RestOwner};
use crate::af_xdp::rest::Rest;
use crate::af_xdp::ring::{Consumer, Producer};
use crate::af_xdp::rx::AfXdpRx;
use crate::af_xdp::socket::{LEAST_CHUNK_BYTES, MOST_CHUNK_BYTES, Opened, Socket, SocketOptions};
use crate::af_xdp::tx::AfXdpTx;
use crate::bpf::{Counters, Steered, addresses_error, clients_error, esp_error, stations_error, vlans_error};
use crate::host::passage;
use crate::host_filter::HostFilter;
use crate::host_steering::{HostSteering, Station, Steer, VlanId, VlanShare, XdpWay};
use crate::mtu::{largest_mtu, mtu_problem};
use crate::{Handout, KernelForwarding, KernelRelay, OpenOptions, Port, PortError, PortInfo, RxQueue, Spec, TxQueue, XdpFeatures, XdpMode, zero_copy};
use crate::spec::option;
use crate::DriverDoc;

pub use probe::lacks_vlan_tags;
pub use tags::{restore_cards, takes_tags_out};

/// The driver, as specs name it.
pub(crate) static DRIVER: DriverDoc = DriverDoc {
    name: "af_xdp",
    what: "INTERFACE",
    help: "a network interface whose packets the kernel puts right into our frames (Linux 5.9 or newer)",
    options: &[
        option("queues", "NUMBER", "use the first so many hardware queues (default: all)"),
        option("ring", "SLOTS", "slots of each ring of a hardware queue (default 1024)"),
        option(
            "mode",
            "native|generic|xdp|tc|auto",
            "XDP in the driver, in the kernel's stack or in either; tc: in the stack, where frames come whole, with steer=transit; auto: native or tc (default auto)",
        ),
        option("zerocopy", "yes|no|auto", "the card reads and writes our frames (default auto)"),
        option("steer", "all|transit", "all packets, or transit only: Linux is the host (default all)"),
        option("busy_poll", "PACKETS", "run the card's receive loop ourselves, so many packets a time"),
        option("promiscuous", "yes|no", "receive frames to other hosts too (default no)"),
    ],
    open: |spec, options| Ok(Box::new(AfXdpPort::open(spec, options)?)),
    gives_merged,
};

/// How often, and how long apart, an interface is looked at whose XDP program is not ours.
const LOOKS_FOR_OTHERS: usize = 10;
const TIME_BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// How long the kernel may take to free what a bind without copies has left, where the driver refused it.
const LONGEST_FREEING: Duration = Duration::from_secs(5);

const DEFAULT_SLOTS: u64 = 1_024;
/// Most hardware queues of an interface.
const MOST_QUEUES: usize = 1_024;

/// The options of a spec.
#[derive(Clone, Copy, Debug)]
struct Options {
    slots: u32,
    /// Hardware queues at most.
    queues: usize,
    /// `None`: when it is possible.
    zerocopy: Option<bool>,
    /// `None`: native when it is possible.
    mode: Option<XdpMode>,
    /// Whether a tc program may take the place of generic XDP.
    may_tc: bool,
    steer: Steer,
    busy_poll: Option<u16>,
}

impl Options {
    fn take(spec: &mut Spec) -> Result<Self, PortError> {
        let slots = spec.take_number("ring", (64, 1 << 15))?.unwrap_or(DEFAULT_SLOTS) as u32;
        let zerocopy =
            spec.take_choice("zerocopy", &[("auto", None), ("yes", Some(true)), ("no", Some(false))])?;
        let modes = [
            ("auto", (None, true)),
            ("native", (Some(XdpMode::Native), false)),
            ("generic", (Some(XdpMode::Generic), false)),
            ("xdp", (None, false)),
            ("tc", (Some(XdpMode::Generic), true)),
        ];
        let steer = Steer::take(spec)?;
        let busy_poll = spec.take_number("busy_poll", (1, u64::from(u16::MAX)))?;
        let queues = spec.take_number("queues", (1, MOST_QUEUES as u64))?;
        let (mode, may_tc) = spec.take_choice("mode", &modes)?.unwrap_or((None, true));
        Ok(Self {
            slots: slots.next_power_of_two(),
            queues: queues.map_or(MOST_QUEUES, |queues| queues as usize),
            zerocopy: zerocopy.flatten(),
            mode,
            may_tc,
            steer,
            busy_poll: busy_poll.map(|budget| budget as u16),
        })
    }
}

/// Whether a port of this spec gives merged frames whole: one whose program is to be in tc, where Linux has the rest of the packets.
pub(crate) fn gives_merged(spec: &mut Spec) -> bool {
    let in_tc = |options: Options| options.may_tc && options.mode.is_some() && options.steer == Steer::Transit;
    Options::take(spec).is_ok_and(in_tc)
}

/// What the port and its queues share. The locks are taken when the port opens, when its interface comes back, and to
/// read counters.
struct Shared {
    claim: Arc<Claim>,
    options: Options,
    /// Counts how often the program was attached; a queue with an older number has dead sockets.
    generation: AtomicU64,
    /// Hardware queues that we use. Receive queues open sockets for those that come later.
    queues: AtomicUsize,
    /// The interface's link address, as a number.
    mac: AtomicU64,
    attached: Mutex<Attached>,
    /// The program's. A worker that counts waits for nobody who attaches it.
    counters: Arc<Counters>,
    /// What a program in tc leaves to us, once we have to see it, and how often that became another device.
    rest: Mutex<Option<Arc<Rest>>>,
    rest_generation: AtomicU64,
    /// For each receive queue, the sockets that one half opened for the other.
    halves: Vec<Mutex<Halves>>,
}

/// The program on its interface.
struct Attached {
    /// While this is there the card leaves VLAN tags in frames. It goes first: the next router begins when the program is gone.
    tags: Option<tags::Kept>,
    /// Whether the interface is one whose tags are looked after: no veth, of a router that forwards beside Linux.
    keeps_tags: bool,
    /// A veth has no frames of its own: nobody is asked whether it goes without copies.
    is_veth: bool,
    program: Program,
    /// What a `host:` port has to know while the program is attached.
    passage: Option<passage::Entry>,
    index: u32,
    mode: XdpMode,
    /// Whether sockets may be zero-copy; `None`: nobody tried.
    zerocopy: Option<bool>,
    /// Whether packets whose checksum is still to be computed are Linux's.
    leaves_unfinished: bool,
    /// Whether all frames to the interface's address are Linux's.
    gives_way: bool,
    /// Whether the program was taken off because no packet came, until the interface comes anew.
    is_off: bool,
    /// Whether the kernel has refused a program of tc, for good.
    refuses_tc: bool,
    /// Decides as the program does, about frames that others see before it.
    filter: HostFilter,
    /// The largest MTU whose packets fit a frame of the pool. Longer packets, which an MTU that was raised brings, are Linux's.
    largest_mtu: usize,
}

/// The sockets of one receive queue and of the transmit queue of the same number.
#[derive(Default)]
struct Halves {
    generation: u64,
    receive: Option<Vec<ReceiveHalf>>,
    transmit: Option<TransmitHalf>,
}

/// What receives from one hardware queue.
struct ReceiveHalf {
    queue: u32,
    socket: Arc<Socket>,
    fill: Producer<u64>,
    receive: Consumer<XdpDesc>,
}

/// What sends by one hardware queue.
struct TransmitHalf {
    socket: Arc<Socket>,
    transmit: Producer<XdpDesc>,
    completion: Consumer<u64>,
}

/// Whether `length` bytes from `start` of the memory are in one piece for a card: they lie on one huge page.
#[inline(always)]
fn in_one_piece(start: u64, length: usize) -> bool {
    const HUGE_PAGE: u64 = 2 << 20;
    start / HUGE_PAGE == (start + length as u64 - 1) / HUGE_PAGE
}

impl Shared {
    fn name(&self) -> &str {
        &self.claim.name
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    fn queues(&self) -> usize {
        self.queues.load(Ordering::Relaxed)
    }

    /// Whether the interface was up since the port was opened.
    fn has_begun(&self) -> bool {
        self.generation() > 0
    }

    fn steered(&self) -> Steered {
        self.counters.steered()
    }

    fn mac(&self) -> MacAddr {
        let [_, _, octets @ ..] = self.mac.load(Ordering::Relaxed).to_be_bytes();
        MacAddr(octets)
    }

    fn set_mac(&self, MacAddr([a, b, c, d, e, f]): MacAddr) {
        self.mac.store(u64::from_be_bytes([0, 0, a, b, c, d, e, f]), Ordering::Relaxed);
    }

    /// The receive half of queue `worker`, with the number of its generation.
    fn take_receive(&self, worker: usize, pool: &Pool) -> Result<(u64, Vec<ReceiveHalf>), PortError> {
        let mut halves = lock(&self.halves[worker]);
        if halves.generation != self.generation() || halves.receive.is_none() {
            self.open_sockets(&mut halves, worker, pool)?;
        }
        Ok((halves.generation, halves.receive.take().unwrap_or_default()))
    }

    /// The transmit half of queue `worker`, with the number of its generation; there is none when the interface came
    /// back with fewer queues.
    fn take_transmit(&self, worker: usize, pool: &Pool) -> Result<(u64, Option<TransmitHalf>), PortError> {
        let mut halves = lock(&self.halves[worker]);
        if halves.generation != self.generation() || halves.transmit.is_none() {
            self.open_sockets(&mut halves, worker, pool)?;
        }
        Ok((halves.generation, halves.transmit.take()))
    }

    /// Opens a socket on each hardware queue of `worker`.
    fn open_sockets(&self, halves: &mut Halves, worker: usize, pool: &Pool) -> Result<(), PortError> {
        let mut attached = lock(&self.attached);
        *halves = Halves { generation: self.generation(), ..Halves::default() };
        self.check_frames(pool)?;
        attached.largest_mtu = largest_mtu(pool.data_bytes(), true);
        self.follow_link(&mut attached)?;
        let mut receive = Vec::new();
        for queue in (worker..self.queues()).step_by(self.halves.len()) {
            let transmit = halves.transmit.is_none();
            let opened = self.open_socket(&mut attached, queue as u32, transmit, pool)?;
            let socket = opened.socket;
            if let Some((transmit, completion)) = opened.transmit {
                halves.transmit = Some(TransmitHalf { socket: Arc::clone(&socket), transmit, completion });
            }
            receive.push(ReceiveHalf {
                queue: queue as u32,
                socket,
                fill: opened.fill,
                receive: opened.receive,
            });
        }
        halves.receive = Some(receive);
        Ok(())
    }

    /// Opens a socket on a hardware queue that came later. It copies if the others do. The lock is not held meanwhile, as a driver
    /// may take its time.
    fn open_later(&self, queue: usize, pool: &Pool) -> Result<ReceiveHalf, PortError> {
        let attached = lock(&self.attached);
        let (place, zerocopy) = ((attached.index, queue as u32), attached.zerocopy == Some(true));
        drop(attached);
        let Options { slots, busy_poll, .. } = self.options;
        let options = SocketOptions { slots, zerocopy, busy_poll, transmit: false };
        let opened = Socket::open(pool.memory(), pool.chunk_bytes(), place, &options);
        let Opened { socket, fill, receive, .. } =
            opened.map_err(|(action, error)| self.socket_error(queue as u32, action, error))?;
        Ok(ReceiveHalf { queue: queue as u32, socket, fill, receive })
    }

    fn open_socket(
        &self,
        attached: &mut Attached,
        queue: u32,
        transmit: bool,
        pool: &Pool,
    ) -> Result<Opened, PortError> {
        let Options { slots, busy_poll, .. } = self.options;
        let place = (attached.index, queue);
        let open = |zerocopy| {
            let options = SocketOptions { slots, zerocopy, busy_poll, transmit };
            Socket::open(pool.memory(), pool.chunk_bytes(), place, &options)
        };
        let failed = |(action, error): socket::Failed| self.socket_error(queue, action, error);
        match self.options.zerocopy {
            Some(false) => {
                attached.zerocopy = Some(false);
                return open(false).map_err(failed);
            }
            // A card wants a chunk in one piece.
            Some(true) if !pool.memory().is_huge() => {
                return Err(self.unsupported(format!(
                    "`zerocopy=yes` needs the frames on huge pages; reserve {} of them with \
                     `sysctl vm.nr_hugepages=...`, or leave the option out",
                    pool.memory().bytes() >> 21
                )));
            }
            Some(true) => {
                if let Some(problem) = self.frames_problem(pool) {
                    return Err(self.unsupported(format!("`zerocopy=yes`: {problem}")));
                }
                attached.zerocopy = Some(true);
                return open(true).map_err(|(action, error)| match error.raw_os_error() {
                    Some(libc::EOPNOTSUPP | libc::EINVAL) => self.unsupported(
                        "the interface's driver cannot do zero-copy; leave `zerocopy=yes` out".to_owned(),
                    ),
                    _ => self.socket_error(queue, action, error),
                });
            }
            None => {}
        }
        let may = attached.zerocopy.unwrap_or(attached.mode == XdpMode::Native && !attached.is_veth);
        let refused = if may { self.zero_copy_problem(attached.index, pool) } else { Some(None) };
        let mut left_behind = false;
        match refused {
            None => match open(true) {
                Ok(opened) => {
                    attached.zerocopy = Some(true);
                    return Ok(opened);
                }
                Err((action, error)) => {
                    left_behind = true;
                    (self.claim.warn)(&format!(
                        "port {}: packets are copied, as its card's driver refuses to go without: {action}: {error}",
                        self.name()
                    ));
                }
            },
            Some(Some(problem)) => {
                (self.claim.warn)(&format!(
                    "port {}: its card could send and receive without copying: {problem}",
                    self.name()
                ));
            }
            Some(None) => {}
        }
        attached.zerocopy = Some(false);
        let begin = Instant::now();
        loop {
            match open(false) {
                // The kernel frees what was refused somewhat later.
                Err((_, error))
                    if left_behind
                        && error.raw_os_error() == Some(libc::EBUSY)
                        && begin.elapsed() < LONGEST_FREEING =>
                {
                    std::thread::sleep(TIME_BETWEEN_LOOKS);
                }
                other => return other.map_err(failed),
            }
        }
    }

    /// Why the frames of this pool cannot be the card's: inside, what would have to be otherwise; nothing where the driver has no
    /// zero-copy.
    fn zero_copy_problem(&self, index: u32, pool: &Pool) -> Option<Option<String>> {
        let is_able = XdpFeatures::ask(index).is_ok_and(XdpFeatures::is_zero_copy);
        let driver = zero_copy::driver(&self.claim.interface.kernel_name()).unwrap_or_default();
        if !is_able || !zero_copy::is_usual_for(&driver) {
            return Some(None);
        }
        if !pool.memory().is_huge() {
            let pages = pool.memory().bytes() >> 21;
            return Some(Some(format!(
                "the frames have to lie on huge pages; reserve {pages} of them with `sysctl vm.nr_hugepages=...`"
            )));
        }
        self.frames_problem(pool).map(Some)
    }

    /// What is wrong with the frames of this pool as buffers of the card.
    fn frames_problem(&self, pool: &Pool) -> Option<String> {
        // Longer chunks than the kernel takes are several buffers for the card too.
        if pool.chunk_bytes() > MOST_CHUNK_BYTES {
            return None;
        }
        let interface = &self.claim.interface;
        let (driver, mtu) = (zero_copy::driver(&interface.kernel_name()).ok()?, interface.mtu().ok()?);
        zero_copy::problem(&driver, pool.chunk_bytes(), mtu)
    }

    fn socket_error(&self, queue: u32, action: &'static str, error: io::Error) -> PortError {
        match error.raw_os_error() {
            Some(libc::EBUSY) => PortError::InUse {
                port: format!("{} queue {queue}", self.name()),
                user: "an AF_XDP socket of another program".to_owned(),
            },
            Some(libc::EPERM) => PortError::NotPermitted {
                port: self.name().to_owned(),
                what: action,
                capability: "CAP_NET_RAW and CAP_NET_ADMIN",
            },
            Some(libc::ENOBUFS | libc::ENOMEM) => self.unsupported(format!(
                "{action} failed for want of memory ({error}); allow more locked memory with `ulimit -l unlimited`, \
                 or ask for fewer frames"
            )),
            Some(libc::EAFNOSUPPORT) => {
                self.unsupported("the kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS)".to_owned())
            }
            _ => PortError::system(self.name(), action, error),
        }
    }

    fn unsupported(&self, problem: String) -> PortError {
        PortError::Unsupported { port: self.name().to_owned(), problem }
    }

    /// Whether the pool's chunks are such as the kernel takes, and hold the largest frame.
    fn check_frames(&self, pool: &Pool) -> Result<(), PortError> {
        let chunk_bytes = pool.chunk_bytes();
        if chunk_bytes < LEAST_CHUNK_BYTES {
            return Err(self.unsupported(format!(
                "AF_XDP takes frames of {LEAST_CHUNK_BYTES} bytes and more, and those of the pool have {chunk_bytes}; \
                 choose larger frames, or use `af_packet:{}`",
                self.name()
            )));
        }
        self.check_mtu(pool)
    }

    /// At the start. What an MTU that was raised later brings is Linux's.
    fn check_mtu(&self, pool: &Pool) -> Result<(), PortError> {
        if self.generation() > 1 {
            return Ok(());
        }
        let mtu = self.claim.interface.mtu()?;
        let problem = mtu_problem(self.name(), mtu, pool.data_bytes(), true);
        problem.map_or(Ok(()), |problem| Err(self.unsupported(problem)))
    }
}

/// A network interface.
pub(crate) struct AfXdpPort {
    info: PortInfo,
    rx: Handout<AfXdpRx>,
    tx: Handout<Box<dyn TxQueue>>,
    shared: Arc<Shared>,
}

impl AfXdpPort {
    pub(crate) fn open(spec: &mut Spec, options: &OpenOptions) -> Result<Self, PortError> {
        let name = spec.name().to_owned();
        let own = Options::take(spec)?;
        let promiscuous = spec.take_switch("promiscuous", false)?;
        // Where all packets are ours none is merged.
        let takes_merged = options.takes_merged && own.steer == Steer::Transit;
        let claim = Arc::new(Claim::of(&name, &OpenOptions { takes_merged, ..*options })?);
        if promiscuous {
            claim.make_promiscuous()?;
        }
        let interface = &claim.interface;
        let (index, mac, mtu) = (interface.index()?, interface.mac()?, interface.mtu()?);
        let interface_is_up = interface.is_up()?;
        // What registers memory counts as locked memory, for users other than root.
        let _ = rustix::process::setrlimit(
            rustix::process::Resource::Memlock,
            rustix::process::Rlimit { current: None, maximum: None },
        );
        let attached = Attached {
            program: Program::load(&name, MOST_QUEUES, own.steer)?,
            passage: None,
            index: index as u32,
            mode: XdpMode::Native,
            zerocopy: None,
            leaves_unfinished: false,
            gives_way: false,
            is_off: false,
            refuses_tc: false,
            filter: HostFilter::new(mac, mtu),
            largest_mtu: usize::MAX,
            tags: None,
            keeps_tags: false,
            is_veth: false,
        };
        let mut shared = Shared {
            claim,
            options: own,
            generation: AtomicU64::new(0),
            queues: AtomicUsize::new(0),
            mac: AtomicU64::new(0),
            counters: attached.program.counters(),
            rest: Mutex::default(),
            rest_generation: AtomicU64::new(0),
            attached: Mutex::new(attached),
            halves: Vec::new(),
        };
        if interface_is_up {
            shared.attach(&mut lock(&shared.attached), None)?;
            shared.generation = AtomicU64::new(1);
        } else {
            let link = probe::link(index as u32);
            let link = link.map_err(|error| PortError::system(&name, "asking for the queues", error))?;
            shared.queues = AtomicUsize::new(link.rx_queues.min(shared.options.queues));
        }
        let rx_queues = options.rx_queues.min(shared.queues());
        shared.halves = (0..rx_queues).map(|_| Mutex::default()).collect();
        let shared = Arc::new(shared);
        let receivers = (0..rx_queues).map(|worker| AfXdpRx::new(Arc::clone(&shared), worker));
        let mut senders: Vec<Box<dyn TxQueue>> = Vec::with_capacity(options.tx_queues);
        for worker in 0..options.tx_queues {
            senders.push(if worker < rx_queues {
                Box::new(AfXdpTx::new(Arc::clone(&shared), worker))
            } else {
                af_packet::sender(&shared.claim, own.slots as usize)?
            });
        }
        let info =
            PortInfo { name: name.clone(), driver: "af_xdp", mac, mtu, rx_queues, tx_queues: senders.len() };
        let (rx, tx) = (Handout::new(&name, "receive", receivers), Handout::new(&name, "transmit", senders));
        Ok(Self { info, rx, tx, shared })
    }
}

impl Port for AfXdpPort {
    fn info(&self) -> PortInfo {
        self.shared.claim.follow(&self.info)
    }

    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
        Ok(Box::new(self.rx.take(queue)?))
    }

    fn take_tx(&mut self, queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
        self.tx.take(queue)
    }

    fn set_promiscuous(&mut self) -> Result<(), PortError> {
        self.shared.claim.make_promiscuous()
    }

    fn takes_merged(&self) -> bool {
        self.shared.claim.takes_merged
    }

    fn host(&mut self) -> Option<&mut dyn HostSteering> {
        (self.shared.options.steer == Steer::Transit).then_some(self)
    }

    fn xdp(&self) -> Option<XdpWay> {
        let attached = lock(&self.shared.attached);
        let moves_in_kernel = attached.program.moves_in_kernel();
        let (mode, is_zero_copy) = (attached.mode, attached.zerocopy?);
        Some(XdpWay { mode, is_zero_copy, moves_in_kernel, is_in_tc: attached.program.is_in_tc() })
    }

    fn relay_in_kernel(&mut self, relay: Option<(&mut KernelRelay, u16)>) -> Result<(), PortError> {
        let failed = |error| PortError::system(self.shared.name(), "joining the relay in the kernel", error);
        let mut attached = lock(&self.shared.attached);
        match relay {
            Some((relay, link)) => {
                if attached.program.is_in_tc() {
                    attached.program.forward_nothing().map_err(failed)?;
                    self.shared.leave_tc(&mut attached)?;
                }
                attached.program.forward_by(relay, link)
            }
            None => attached.program.forward_nothing(),
        }
        .map_err(failed)
    }

    fn open_anew(&mut self, tries: usize) -> Result<&'static str, PortError> {
        let shared = &self.shared;
        let mut attached = lock(&shared.attached);
        let slower = attached.mode == XdpMode::Native
            && attached.zerocopy == Some(false)
            && shared.options.mode.is_none();
        let (mode, outcome) = match (tries, slower) {
            (0, _) => (attached.mode, "its program is attached anew"),
            (1, true) => (XdpMode::Generic, "its packets come by a program in the kernel's stack, which costs more"),
            _ if shared.options.steer == Steer::Transit => {
                attached.program.detach();
                attached.passage = None;
                attached.is_off = true;
                return Ok(
                    "its program is off: its packets are Linux's, or dropped where the router filters, until the interface or the \
                     router comes anew",
                );
            }
            _ => {
                return Err(shared.unsupported("XDP has no other way; expected `af_packet`".to_owned()));
            }
        };
        shared.attach_again(&mut attached, mode).map(|()| outcome)
    }

    fn follow_queues(&mut self) -> Result<Option<usize>, PortError> {
        let shared = &self.shared;
        let active = probe::active_queues(&shared.claim.interface.kernel_name()).unwrap_or_default();
        let queues = active.min(shared.options.queues);
        let interface = &shared.claim.interface;
        if !shared.has_begun() || queues <= shared.queues() || !interface.is_up().unwrap_or(false) {
            return Ok(None);
        }
        // A failure below is reported once. The router opens a port anew that sees nothing.
        shared.queues.store(queues, Ordering::Relaxed);
        let mut attached = lock(&shared.attached);
        // veth_enable_range_safe() leaves new queues without the program.
        if attached.is_veth && !attached.program.is_in_tc() {
            let mode = attached.mode;
            shared.attach_again(&mut attached, mode)?;
        }
        Ok(Some(queues))
    }

    fn mode(&self) -> &'static str {
        let attached = lock(&self.shared.attached);
        match (attached.mode, attached.zerocopy) {
            _ if attached.program.is_in_tc() => "tc",
            (XdpMode::Generic, _) => "generic",
            (XdpMode::Native, Some(true)) => "zero-copy",
            (XdpMode::Native, _) => "copy",
        }
    }

    fn details(&self) -> String {
        let attached = lock(&self.shared.attached);
        let mode = match attached.mode {
            XdpMode::Native => "native XDP",
            XdpMode::Generic if attached.program.is_in_tc() => "tc",
            XdpMode::Generic => "generic XDP",
        };
        let zerocopy = if attached.zerocopy == Some(true) { "zero-copy" } else { "copying" };
        let (queues, steered) = (self.shared.queues(), self.shared.steered());
        format!("{mode}, {zerocopy}, hardware queues {queues}, {steered}")
    }
}

impl HostSteering for AfXdpPort {
    fn set_local_addresses(&mut self, addresses: &[IpAddr]) -> Result<(), PortError> {
        let failed = |error| addresses_error(self.shared.name(), error);
        let attached = &mut *lock(&self.shared.attached);
        attached.filter.set_local_addresses(addresses);
        attached.program.local.set(addresses).map_err(failed)
    }

    fn set_own_sources(&mut self, sources: &[Ipv4Addr]) -> Result<(), PortError> {
        let failed = |error| addresses_error(self.shared.name(), error);
        lock(&self.shared.attached).program.own_sources.set(sources).map_err(failed)
    }

    fn take_esp(&mut self, takes: bool) -> Result<(), PortError> {
        let failed = |error| esp_error(self.shared.name(), error);
        let attached = &mut *lock(&self.shared.attached);
        attached.filter.take_esp(takes);
        attached.program.local.take_esp(takes).map_err(failed)
    }

    fn set_vlans(&mut self, vlans: &[(VlanId, VlanShare)]) -> Result<(), PortError> {
        let failed = |error| vlans_error(self.shared.name(), error);
        let attached = &mut *lock(&self.shared.attached);
        attached.filter.set_vlans(vlans);
        attached.program.vlans.set(vlans).map_err(failed)
    }

    fn set_stations(&mut self, stations: &[Station]) -> Result<(), PortError> {
        let failed = |error| stations_error(self.shared.name(), error);
        let attached = &mut *lock(&self.shared.attached);
        attached.filter.set_stations(stations);
        attached.program.stations.set(stations).map_err(failed)
    }

    fn give_way(&mut self, gives: bool) -> Result<(), PortError> {
        let mut attached = lock(&self.shared.attached);
        attached.gives_way = gives;
        self.shared.follow_link(&mut attached)
    }

    fn leave_clients(&mut self, leaves: bool) -> Result<(), PortError> {
        let failed = |error| clients_error(self.shared.name(), error);
        let attached = &mut *lock(&self.shared.attached);
        attached.filter.leave_clients(leaves);
        attached.program.local.leave_clients(leaves).map_err(failed)
    }

    fn xdp(&self) -> Option<XdpWay> {
        Port::xdp(self)
    }

    fn takes_tapped(&self, frame: &[u8], length: usize) -> bool {
        let attached = lock(&self.shared.attached);
        let is_hosts = if length > attached.filter.longest_frame() {
            attached.filter.is_merged_hosts(frame)
        } else {
            attached.filter.is_hosts(frame)
        };
        attached.program.has_rest_in_tc() && !is_hosts
    }

    fn leave_unfinished_checksums(&mut self, leaves: bool) -> Result<(), PortError> {
        let mut attached = lock(&self.shared.attached);
        attached.leaves_unfinished = leaves;
        self.shared.follow_link(&mut attached)
    }

    fn forward_in_kernel(
        &mut self,
        forwarding: &mut KernelForwarding,
        port: u16,
        rest_is_linux: bool,
    ) -> Result<(), PortError> {
        let (shared, mut attached) = (&self.shared, lock(&self.shared.attached));
        let failed = |error| PortError::system(shared.name(), "joining the forwarding in the kernel", error);
        if rest_is_linux {
            attached.program.set_rest(RestOwner::Linux).map_err(failed)?;
        } else {
            shared.take_rest(&mut attached)?;
        }
        attached.program.forward_by_tables(shared.name(), forwarding, port)
    }

    fn forward_here(&mut self) -> Result<(), PortError> {
        let (shared, mut attached) = (&self.shared, lock(&self.shared.attached));
        let failed = |error| PortError::system(shared.name(), "leaving the forwarding in the kernel", error);
        shared.take_rest(&mut attached)?;
        attached.program.forward_nothing().map_err(failed)
    }

    fn follow_link(&mut self) -> Result<(), PortError> {
        let mut attached = lock(&self.shared.attached);
        if attached.keeps_tags {
            self.shared.keep_tags(&mut attached);
        }
        self.shared.follow_link(&mut attached)
    }
}

#[cfg(test)]
mod tests;
pub(crate) use self::program::Stage;
#[cfg(test)]
pub(crate) use tests::decision;
