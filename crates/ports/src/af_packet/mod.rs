//! Network interfaces through packet sockets with memory-mapped rings: works on every interface, without a driver's
//! help. Linux 4.20 or newer (PACKET_IGNORE_OUTGOING).
//!
//! Each queue is a socket with a ring of its own. Several receive queues form a fanout group, among which the kernel
//! spreads flows. TPACKET_V2 and not V3, because V3 holds packets back until a block is full or a timer runs off.
//!
//! **The kernel is there too**: it gets every packet as well. An interface that a router owns wants no addresses. With
//! `steer=transit` Linux is the host on the link: we get plain transit and the kernel gets the rest, each packet one of
//! us ([`screen`]). It needs Linux 6.6.
//!
//! **An interface that vanishes** takes its sockets' purpose with it. A queue that receives nothing, or cannot send,
//! looks for the interface five times a second, opens a socket on the new one, and goes on; until then packets to send
//! are dropped and counted.
//!
//! **Checksums.** A sender on the same host (over veth) leaves TCP and UDP checksums to hardware that does not exist;
//! such packets are completed on receipt, with the positions that the kernel gives in a virtio header. Frames that a
//! segmentation offload made longer than the MTU are taken and sent whole where the caller takes them
//! ([`OpenOptions::takes_merged`], `merged.rs`). Else they are dropped and counted: no interface could send them on. So that the
//! kernel makes none then, it merges no received packets while the port is open ([`Unmerged`]). With `steer=transit` merged
//! frames are the kernel's, which sends them on in pieces, unless the router filters; then it merges none either.

pub(crate) mod linux_frames;
mod ring;
mod rx;
mod screen;
pub(crate) mod socket;
mod tx;

use packet::sync::lock;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use aya::programs::links::FdLink;

use crate::af_packet::ring::{Ring, RingKind};
use crate::af_packet::rx::AfPacketRx;
use crate::af_packet::screen::{Screen, ScreenOf};
use crate::af_packet::tx::AfPacketTx;
use crate::host::drop_all;
use crate::host_steering::{HostSteering, Steer};
use crate::interface::Interface;
use crate::interface_lock::InterfaceLock;
use crate::{Handout, OpenOptions, Port, PortError, PortInfo, RxQueue, Spec, TxQueue, Unmerged};
use crate::spec::option;
use crate::DriverDoc;

/// The driver, as specs name it.
pub(crate) static DRIVER: DriverDoc = DriverDoc {
    name: "af_packet",
    what: "INTERFACE",
    help: "a network interface through memory-mapped packet rings (Linux 4.20 or newer)",
    options: &[
        option("ring", "SLOTS", "slots of each receive and transmit ring (default 2048)"),
        option(
            "steer",
            "all|transit",
            "all packets, beside the kernel, or transit instead of it, on Linux 6.6 (default all)",
        ),
        option("promiscuous", "yes|no", "receive frames to other hosts too (default no)"),
    ],
    open: |spec, options| Ok(Box::new(AfPacketPort::open(spec, options)?)),
    gives_merged,
};

const DEFAULT_SLOTS: u64 = 2_048;
/// Bytes of an Ethernet header.
pub(crate) const ETHERNET_BYTES: usize = 14;

/// An interface, and the lock on it, shared by the port and its queues.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) name: String,
    pub(crate) interface: Interface,
    pub(crate) warn: fn(&str),
    good_news: fn(&str),
    /// Whether merged frames are taken whole.
    pub(crate) takes_merged: bool,
    reports_links: bool,
    _lock: InterfaceLock,
    /// The lock on the interface with this index.
    held: Mutex<Option<(i32, InterfaceLock)>>,
    /// What was reported last, so that it is reported once.
    told: Mutex<String>,
    /// The group of the receive sockets, with the index of the interface that it is on.
    fanout: Mutex<Option<(i32, u16)>>,
    /// While this socket is there the interface is promiscuous.
    promiscuous: Mutex<Option<OwnedFd>>,
    /// What keeps packets from Linux, where all are ours.
    only_ours: Mutex<Option<FdLink>>,
    /// While this is there Linux merges no packets of the interface.
    unmerged: Mutex<Option<Unmerged>>,
    /// How the link was when a queue looked last.
    link: Mutex<Link>,
    /// How often the port went on with another interface, or with one that had been away.
    returns: AtomicU32,
}

/// A link, as it was reported last.
#[derive(Clone, Copy, Debug, Default)]
enum Link {
    /// It never was up: nothing to tell.
    #[default]
    Unknown,
    Up,
    /// Down since then. It is not told at once, because an interface that is being deleted goes down first.
    Lost(Instant),
    /// Down, and the user knows.
    Down,
}

const DOWN: &str = "the interface is down; the port goes on when it is up";

/// How often a queue whose interface is gone looks for it, and an idle one whether it is still there.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(200);

impl Claim {
    /// Takes an interface that has to be there, and Ethernet. Reports one that is down.
    pub(crate) fn of(name: &str, options: &OpenOptions) -> Result<Self, PortError> {
        let interface = Interface::existing(name)?;
        interface.mac()?;
        let lock = InterfaceLock::of_name(name)?;
        let claim = Self {
            name: name.to_owned(),
            interface,
            warn: options.warn,
            good_news: options.tell,
            takes_merged: options.takes_merged,
            reports_links: options.reports_links,
            _lock: lock,
            held: Mutex::default(),
            told: Mutex::default(),
            fanout: Mutex::default(),
            promiscuous: Mutex::default(),
            only_ours: Mutex::default(),
            unmerged: Mutex::default(),
            link: Mutex::default(),
            returns: AtomicU32::default(),
        };
        claim.hold()?;
        claim.tell_absence();
        Ok(claim)
    }

    /// Takes the lock on the interface as it is now. Returns its index.
    pub(crate) fn hold(&self) -> Result<i32, PortError> {
        let index = self.interface.index()?;
        let mut held = lock(&self.held);
        if held.as_ref().is_none_or(|(of, _)| *of != index) {
            // That of one that is gone first.
            *held = None;
            *held = Some((index, InterfaceLock::of_index(&self.name, index)?));
        }
        Ok(index)
    }

    /// Reports the port's state, unless it was reported last.
    pub(crate) fn tell(&self, text: String) {
        self.tell_after(&mut lock(&self.told), text, self.warn);
    }

    fn tell_after(&self, told: &mut String, text: String, report: fn(&str)) {
        if *told != text {
            report(&format!("port {}: {text}", self.name));
            *told = text;
        }
    }

    /// Reports why the interface cannot be used now. Returns whether that is so.
    pub(crate) fn tell_absence(&self) -> bool {
        // Another queue may find it meanwhile, and reports that it is back after this.
        let mut told = lock(&self.told);
        let absence = self.absence();
        absence.map(|problem| self.tell_after(&mut told, problem, self.warn)).is_some()
    }

    /// Reports that the port goes on.
    pub(crate) fn tell_back(&self) {
        self.returns.fetch_add(1, Ordering::Relaxed);
        let mut told = lock(&self.told);
        let text = if *told == DOWN { "the interface is up" } else { "the interface is back" };
        self.tell_after(&mut told, text.to_owned(), self.good_news);
    }

    /// Why the interface cannot be used now; `None`: it is there and up.
    pub(crate) fn absence(&self) -> Option<String> {
        if !self.interface.exists() {
            Some("the interface is gone; the port goes on when it is there again".to_owned())
        } else if !self.interface.is_up().unwrap_or(false) {
            Some(DOWN.to_owned())
        } else {
            None
        }
    }

    /// What is known of the port, with address and MTU of the interface as it is now, while it is there.
    pub(crate) fn follow(&self, info: &PortInfo) -> PortInfo {
        let (mac, mtu) = (self.interface.mac().unwrap_or(info.mac), self.interface.mtu().unwrap_or(info.mtu));
        PortInfo { mac, mtu, ..info.clone() }
    }

    /// Looks at the link, and reports when it was lost or is there again. Returns whether it is up.
    pub(crate) fn look_at_link(&self) -> bool {
        let running = self.interface.is_running();
        let mut link = lock(&self.link);
        let (now, text) = match (*link, running) {
            (Link::Down, true) => (Link::Up, Some(("the link is up again", self.good_news))),
            (_, true) => (Link::Up, None),
            // That is told elsewhere.
            (_, false) if !self.interface.exists() => (Link::Unknown, None),
            (Link::Up, false) => (Link::Lost(Instant::now()), None),
            (Link::Lost(since), false) if since.elapsed() >= LOOK_EVERY => {
                (Link::Down, Some(("the link is down; packets to it are dropped until it is up again", self.warn)))
            }
            (link, false) => (link, None),
        };
        *link = now;
        drop(link);
        if let (Some((text, report)), true) = (text, self.reports_links) {
            self.tell_after(&mut lock(&self.told), text.to_owned(), report);
        }
        running
    }

    /// Whether the interface is there, up, and not the one with number `old`, if that is there still: one that was made anew.
    fn is_anew(&self, old: Option<i32>) -> bool {
        if self.interface.index().is_ok_and(|index| Some(index) == old) {
            return false;
        }
        !self.tell_absence()
    }

    /// Makes the interface promiscuous for as long as the claim is there.
    pub(crate) fn make_promiscuous(&self) -> Result<(), PortError> {
        let failed = |error| PortError::system(&self.name, "becoming promiscuous", error);
        let index = self.interface.index()?;
        let socket = socket::open().map_err(failed)?;
        socket::make_promiscuous(&socket, index).map_err(failed)?;
        *lock(&self.promiscuous) = Some(socket);
        Ok(())
    }

    /// Has Linux get no packet of the interface. Linux 6.6 or newer.
    fn keep_from_linux(&self) -> Result<(), PortError> {
        *lock(&self.only_ours) = Some(drop_all(&self.name, &self.interface.kernel_name())?);
        Ok(())
    }

    /// Has Linux merge no packets of the interface as it is now. Where that is not allowed, merged ones are dropped and
    /// reported.
    pub(crate) fn keep_apart(&self) {
        let mut unmerged = lock(&self.unmerged);
        match &*unmerged {
            Some(off) => off.again(),
            None => *unmerged = Unmerged::begin(&self.name).unwrap_or_default(),
        }
    }

    /// The same for an interface that came back, if it was so for the old one.
    fn stay_from_linux(&self) -> Result<(), PortError> {
        let was_kept = lock(&self.only_ours).is_some();
        if was_kept { self.keep_from_linux() } else { Ok(()) }
    }

    /// Makes an interface that came back promiscuous if the old one was. One that was away has forgotten it.
    pub(crate) fn keep_promiscuous(&self) -> Result<(), PortError> {
        let was_promiscuous = lock(&self.promiscuous).is_some();
        if was_promiscuous { self.make_promiscuous() } else { Ok(()) }
    }
}

/// A transmit queue on an interface that another driver receives from, with a ring of `slots` slots.
pub(crate) fn sender(claim: &Arc<Claim>, slots: usize) -> Result<Box<dyn TxQueue>, PortError> {
    Ok(Box::new(AfPacketTx::new(Arc::clone(claim), slots)?))
}

/// A network interface.
pub(crate) struct AfPacketPort {
    info: PortInfo,
    rx: Handout<AfPacketRx>,
    tx: Handout<AfPacketTx>,
    claim: Arc<Claim>,
    /// With `steer=transit`.
    screen: Option<ScreenOf>,
}

impl AfPacketPort {
    pub(crate) fn open(spec: &mut Spec, options: &OpenOptions) -> Result<Self, PortError> {
        let name = spec.name().to_owned();
        let slots = spec.take_number("ring", (32, 1 << 20))?.unwrap_or(DEFAULT_SLOTS) as usize;
        let promiscuous = spec.take_switch("promiscuous", false)?;
        let steer = Steer::take(spec)?;
        // Of transit they are Linux's, which forwards them whole.
        let takes_merged = options.takes_merged && steer == Steer::All;
        let claim = Arc::new(Claim::of(&name, &OpenOptions { takes_merged, ..*options })?);
        let interface = &claim.interface;
        let (mac, mtu, is_up) = (interface.mac()?, interface.mtu()?, interface.is_up()?);
        let screen = match steer {
            Steer::All => None,
            Steer::Transit => Some(Arc::new(Screen::load(&name)?)),
        };
        let mut receivers = Vec::with_capacity(options.rx_queues);
        for number in 0..options.rx_queues {
            let plan = Plan { slots, number, fanout: options.rx_queues > 1 };
            receivers.push(AfPacketRx::new(Arc::clone(&claim), plan, screen.clone(), is_up)?);
        }
        match &screen {
            _ if receivers.is_empty() => {}
            Some(screen) if is_up => screen.attach(interface.index()?)?,
            Some(_) => {}
            None if takes_merged => {}
            None => claim.keep_apart(),
        }
        for receiver in &mut receivers {
            // While the group was being formed a packet may have gone to several of its sockets, and until the screen
            // was there the kernel had it too.
            receiver.discard_all();
        }
        let mut senders = Vec::with_capacity(options.tx_queues);
        for _ in 0..options.tx_queues {
            senders.push(AfPacketTx::new(Arc::clone(&claim), slots)?);
        }
        let info = PortInfo {
            name: name.clone(),
            driver: "af_packet",
            mac,
            mtu,
            rx_queues: receivers.len(),
            tx_queues: senders.len(),
        };
        let mut port = Self {
            info,
            rx: Handout::new(&name, "receive", receivers),
            tx: Handout::new(&name, "transmit", senders),
            claim,
            screen: screen.map(|screen| ScreenOf(Arc::downgrade(&screen))),
        };
        if promiscuous {
            port.set_promiscuous()?;
        }
        Ok(port)
    }
}

/// A socket that sends merged frames by an interface, if the port takes them.
pub(crate) fn sender_of_merged(claim: &Claim) -> Result<Option<OwnedFd>, PortError> {
    // No ring is made.
    Builder::new(claim, 0)?.sender_of_merged()
}

/// Whether a port of this spec gives merged frames whole.
pub(crate) fn gives_merged(spec: &mut Spec) -> bool {
    !matches!(Steer::take(spec), Ok(Steer::Transit))
}

/// How a receive queue is made.
#[derive(Clone, Copy, Debug)]
struct Plan {
    slots: usize,
    number: usize,
    /// Whether there are several, in a fanout group.
    fanout: bool,
}

/// Makes a socket of a port, on the interface as it is now.
struct Builder<'a> {
    name: &'a str,
    index: i32,
    mtu: usize,
    slots: usize,
    takes_merged: bool,
}

impl<'a> Builder<'a> {
    fn new(claim: &'a Claim, slots: usize) -> Result<Self, PortError> {
        let (index, mtu) = (claim.hold()?, claim.interface.mtu()?);
        Ok(Self { name: &claim.name, index, mtu, slots, takes_merged: claim.takes_merged })
    }

    fn failed(&self, action: &'static str) -> impl Fn(io::Error) -> PortError + '_ {
        move |error| match error.raw_os_error() {
            Some(libc::EPERM) => PortError::NotPermitted {
                port: self.name.to_owned(),
                what: "open a packet socket",
                capability: "CAP_NET_RAW",
            },
            // Of rings.
            Some(libc::ENOMEM) => PortError::Unsupported {
                port: self.name.to_owned(),
                problem: format!("no memory for a ring of {} slots; ask for fewer with `ring=`", self.slots),
            },
            Some(libc::ENOPROTOOPT) => PortError::Unsupported {
                port: self.name.to_owned(),
                problem: format!("{action} is not known to this kernel; Linux 4.20 or newer is needed"),
            },
            Some(libc::EAFNOSUPPORT) => PortError::Unsupported {
                port: self.name.to_owned(),
                problem: "the kernel has no packet sockets; load them with `modprobe af_packet`".to_owned(),
            },
            _ => PortError::system(self.name, action, error),
        }
    }

    fn open(&self) -> Result<OwnedFd, PortError> {
        let socket = socket::open().map_err(self.failed("opening a packet socket"))?;
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        socket::set(&socket, libc::PACKET_VERSION, &version)
            .map_err(self.failed("setting PACKET_VERSION"))?;
        Ok(socket)
    }

    /// Joins the group of the port's receive sockets on this interface; the first one makes it.
    fn join_fanout(&self, socket: &OwnedFd, claim: &Claim) -> Result<(), PortError> {
        let mut fanout = lock(&claim.fanout);
        let group = fanout.filter(|&(index, _)| index == self.index).map(|(_, group)| group);
        let joined = socket::join_fanout(socket, group).map_err(self.failed("joining the fanout group"))?;
        *fanout = Some((self.index, joined));
        Ok(())
    }

    fn receiver(&self, screen: Option<&Screen>) -> Result<(OwnedFd, Ring), PortError> {
        let socket = self.open()?;
        socket::set(&socket, libc::PACKET_VNET_HDR, &1).map_err(self.failed("setting PACKET_VNET_HDR"))?;
        socket::set(&socket, libc::PACKET_IGNORE_OUTGOING, &1)
            .map_err(self.failed("setting PACKET_IGNORE_OUTGOING"))?;
        if self.takes_merged {
            socket::set(&socket, libc::PACKET_COPY_THRESH, &1).map_err(self.failed("setting PACKET_COPY_THRESH"))?;
            // Beyond the limit of the system where we may.
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 16 << 20);
        }
        let ring = Ring::new(&socket, RingKind::Receive, self.slots, self.mtu)
            .map_err(self.failed("making the receive ring"))?;
        if let Some(screen) = screen {
            screen.filter(&socket).map_err(self.failed("attaching the socket's filter"))?;
        }
        socket::bind(&socket, self.index, true).map_err(self.failed("binding to the interface"))?;
        Ok((socket, ring))
    }

    fn sender(&self) -> Result<(OwnedFd, Ring), PortError> {
        let socket = self.open()?;
        // A packet that the kernel finds wrong is skipped instead of blocking the ring; we count it ourselves.
        socket::set(&socket, libc::PACKET_LOSS, &1).map_err(self.failed("setting PACKET_LOSS"))?;
        socket::set(&socket, libc::PACKET_QDISC_BYPASS, &1)
            .map_err(self.failed("setting PACKET_QDISC_BYPASS"))?;
        // Beyond the limit of the system where we may: a card that sends late holds a whole ring.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size_force(&socket, 16 << 20);
        let ring = Ring::new(&socket, RingKind::Transmit, self.slots, self.mtu)
            .map_err(self.failed("making the transmit ring"))?;
        socket::bind(&socket, self.index, false).map_err(self.failed("binding to the interface"))?;
        Ok((socket, ring))
    }

    /// A socket that sends merged frames, where they are taken.
    fn sender_of_merged(&self) -> Result<Option<OwnedFd>, PortError> {
        if !self.takes_merged {
            return Ok(None);
        }
        let socket = socket::open().map_err(self.failed("opening a packet socket"))?;
        socket::set(&socket, libc::PACKET_VNET_HDR, &1).map_err(self.failed("setting PACKET_VNET_HDR"))?;
        let _ = rustix::net::sockopt::set_socket_send_buffer_size_force(&socket, 16 << 20);
        socket::bind(&socket, self.index, false).map_err(self.failed("binding to the interface"))?;
        Ok(Some(socket))
    }
}

impl Port for AfPacketPort {
    fn info(&self) -> PortInfo {
        self.claim.follow(&self.info)
    }

    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
        Ok(Box::new(self.rx.take(queue)?))
    }

    fn set_promiscuous(&mut self) -> Result<(), PortError> {
        self.claim.make_promiscuous()
    }

    /// Linux 6.6 or newer.
    fn keep_from_linux(&mut self) -> Result<(), PortError> {
        self.claim.keep_from_linux()
    }

    fn take_tx(&mut self, queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
        Ok(Box::new(self.tx.take(queue)?))
    }

    fn takes_merged(&self) -> bool {
        self.claim.takes_merged
    }

    fn host(&mut self) -> Option<&mut dyn HostSteering> {
        self.screen.as_mut().map(|screen| screen as &mut dyn HostSteering)
    }

    fn details(&self) -> String {
        let steered = self.screen.as_ref().and_then(ScreenOf::steered);
        steered.map_or_else(String::new, |steered| steered.to_string())
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::decision;
