//! The cluster's ports as the leader's Linux sees them: a TAP device for each. The control plane says which there are, and opens and
//! closes devices on its own thread, since the kernel takes milliseconds for each; the element FabricHost carries their frames.
//!
//! The thread that carries frames takes a device's lock for each burst, the one that closes it only to take the queues out. What
//! is left then is an empty shell that the element drops when it sees the new version, so that it never closes anything itself.

use packet::sync::lock;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use fabric::NodeId;
use packet::wire::ethernet::MacAddr;
use ports::{Port, PortError, RxQueue, TxQueue};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::devices::{Losses, open_options};

/// A port of the cluster that Linux is to have an interface for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// Its number in the cluster, by which frames are painted; each is there once.
    pub number: u8,
    /// The interface is called so, as far as Linux takes such a name ([`ports::twin_name`]).
    pub name: String,
    /// Link address of the port, and so of the interface.
    pub mac: MacAddr,
    /// In bytes, from 68 to 65521.
    pub mtu: u16,
    /// Whose port it is.
    pub node: NodeId,
    /// Its place in that node's list of ports.
    pub place: u16,
}

/// The ports of the cluster that Linux has interfaces for on this node: those of all nodes on the leader, none elsewhere. The control
/// plane puts it under [`FabricHostPorts::KEY`] into what the elements share before the graph is made, and changes it at any time.
pub struct FabricHostPorts {
    /// Readable when one of the devices is; so what a sleeping thread waits for does not change as devices come and go.
    epoll: OwnedFd,
    /// Held for as long as a change takes.
    opened: Mutex<Vec<Opened>>,
    /// What the element is to know of them; held for a moment.
    known: Mutex<Vec<Tap>>,
    /// Grows when `known` changes.
    version: AtomicU64,
    checked_source: [u8; 6],
}

/// An open device. Dropping it closes it.
struct Opened {
    tap: Tap,
    interface: String,
    port: Box<dyn Port>,
}

/// A device, as the element knows it.
#[derive(Clone)]
pub(super) struct Tap {
    pub(super) port: HostPort,
    queues: Arc<Mutex<Option<Queues>>>,
}

/// Both directions of a device.
pub(super) struct Queues {
    pub(super) from_linux: Box<dyn RxQueue>,
    pub(super) to_linux: Box<dyn TxQueue>,
    /// What they lost and the element has counted, in this order.
    pub(super) losses: [Losses; 2],
}

/// A port whose device has frames.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ready {
    pub(super) number: u8,
    /// It has none: somebody deleted the device.
    pub(super) is_gone: bool,
}

/// Devices that one look finds at most.
pub(super) const MOST_READY: usize = 8;

impl Tap {
    /// The queues, which are gone when the device is.
    pub(super) fn queues(&self) -> MutexGuard<'_, Option<Queues>> {
        lock(&self.queues)
    }
}

/// Draws a link address that nobody can guess: locally administered, of one station.
fn secret_address() -> [u8; 6] {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let [first, rest @ .., _, _] = RandomState::new().build_hasher().finish().to_ne_bytes();
    let [b, c, d, e, f] = rest;
    [first & !1 | 2, b, c, d, e, f]
}

impl FabricHostPorts {
    /// Where elements look for it.
    pub const KEY: &'static str = "fabric host ports";

    /// None at first.
    ///
    /// # Errors
    /// The process has no file descriptors left.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            opened: Mutex::default(),
            known: Mutex::default(),
            version: AtomicU64::new(0),
            checked_source: secret_address(),
        })
    }

    /// Returns the source address of frames for Linux that this node has checked: one that nobody else knows.
    pub fn checked_source(&self) -> [u8; 6] {
        self.checked_source
    }

    /// Makes the host's ports these, in the network namespace of the calling thread: devices that are new are opened, those that
    /// are not named any more closed, and all others stay as they are but for what is said of them. One that is opened has a link.
    ///
    /// # Errors
    /// What Linux refused. All other ports are as they should be; the next call tries again what failed.
    pub fn set(&self, ports: Vec<HostPort>) -> Result<(), Vec<PortError>> {
        let mut opened = lock(&self.opened);
        let mut errors = Vec::new();
        let stays = |opened: &Opened| {
            let mut same = ports.iter().filter(|port| port.number == opened.tap.port.number);
            // One that somebody deleted is made anew.
            same.any(|port| port.name == opened.tap.port.name) && opened.tap.queues().is_some()
        };
        let (staying, gone): (Vec<_>, Vec<_>) = opened.drain(..).partition(stays);
        *opened = staying;
        self.publish(&opened);
        gone.iter().for_each(|opened| self.forget(&opened.tap));
        // Before others are opened, which may have their names.
        drop(gone);
        for port in ports {
            match opened.iter_mut().find(|opened| opened.tap.port.number == port.number) {
                Some(opened) => errors.extend(opened.follow(port).err()),
                None => match self.open(port) {
                    Ok(new) => {
                        opened.push(new);
                        // At once, since its frames wake the slow thread.
                        self.publish(&opened);
                    }
                    Err(error) => errors.push(error),
                },
            }
        }
        self.publish(&opened);
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// Says whether a port of the cluster has a link. One that has none is down for Linux and its routing daemons.
    ///
    /// # Errors
    /// There is no such port here, or Linux refused.
    pub fn set_carrier(&self, number: u8, is_up: bool) -> Result<(), PortError> {
        let mut opened = lock(&self.opened);
        match opened.iter_mut().find(|opened| opened.tap.port.number == number) {
            Some(opened) => opened.port.set_carrier(is_up),
            None => Err(PortError::NoSuchInterface {
                name: format!("of port {number} of the cluster"),
                hint: "only the leader has one for each port".to_owned(),
            }),
        }
    }

    /// A number that changes when the ports do.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The ports there are.
    pub(super) fn taps(&self) -> Vec<Tap> {
        lock(&self.known).clone()
    }

    /// Readable when one of the devices is.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Looks which devices have something to tell, other ones each time if there are many; returns how many.
    pub(super) fn ready(&self, ready: &mut [Ready; MOST_READY]) -> usize {
        let mut events = [const { MaybeUninit::uninit() }; MOST_READY];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Interrupted, it finds them the next time.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, Some(&now)) else { return 0 };
        for (event, place) in events.iter().zip(ready) {
            let (data, flags) = (event.data, event.flags);
            *place = Ready { number: data.u64() as u8, is_gone: flags.contains(EventFlags::ERR) };
        }
        events.len()
    }

    /// Ends the carrying of a device's frames.
    pub(super) fn forget(&self, tap: &Tap) {
        if let Some(queues) = tap.queues().take()
            && let Some(fd) = queues.from_linux.wait_fd()
        {
            // It was added, and its file is open still.
            let _ = epoll::delete(&self.epoll, fd);
        }
    }

    fn open(&self, port: HostPort) -> Result<Opened, PortError> {
        let interface = ports::twin_name(&port.name);
        let spec = format!("tap:{interface}?mac={}&mtu={}", port.mac, port.mtu);
        let mut device = ports::open(&spec, &open_options(1, 1))?;
        let (from_linux, to_linux) = (device.take_rx(0)?, device.take_tx(0)?);
        if let Some(fd) = from_linux.wait_fd() {
            let data = EventData::new_u64(port.number.into());
            epoll::add(&self.epoll, fd, data, EventFlags::IN).map_err(|error| PortError::System {
                port: interface.clone(),
                action: "waiting for its frames",
                source: error.into(),
            })?;
        }
        let queues = Arc::new(Mutex::new(Some(Queues { from_linux, to_linux, losses: Default::default() })));
        Ok(Opened { tap: Tap { port, queues }, interface, port: device })
    }

    fn publish(&self, opened: &[Opened]) {
        *lock(&self.known) = opened.iter().map(|opened| opened.tap.clone()).collect();
        self.version.fetch_add(1, Ordering::Release);
    }
}

impl Opened {
    /// Brings a device that stays up to date.
    fn follow(&mut self, port: HostPort) -> Result<(), PortError> {
        let known = &mut self.tap.port;
        (known.node, known.place) = (port.node, port.place);
        if known.mac != port.mac {
            ports::set_link_address(&self.interface, port.mac)?;
            known.mac = port.mac;
        }
        if known.mtu != port.mtu {
            ports::set_mtu(&self.interface, port.mtu.into())?;
            known.mtu = port.mtu;
        }
        Ok(())
    }
}

impl std::fmt::Debug for FabricHostPorts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = lock(&self.known);
        f.debug_list().entries(known.iter().map(|tap| &tap.port)).finish()
    }
}
