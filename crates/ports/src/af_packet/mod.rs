//! Network interfaces through packet sockets with memory-mapped rings: works on every interface, without a driver's
//! help. Linux 4.20 or newer (PACKET_IGNORE_OUTGOING).
//!
//! Each queue is a socket with a ring of its own. Several receive queues form a fanout group, among which the kernel
//! spreads flows. TPACKET_V2 and not V3, because V3 holds packets back until a block is full or a timer runs off.
//!
//! **The kernel is there too**: it gets every packet as well. An interface that a router owns wants no addresses.
//!
//! **Checksums.** A sender on the same host (over veth) leaves TCP and UDP checksums to hardware that does not exist;
//! such packets are completed on receipt, with the positions that the kernel gives in a virtio header. Frames that a
//! segmentation offload made longer than the MTU are dropped and counted: no interface could send them on.

mod ring;
mod rx;
mod socket;
mod tx;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::af_packet::ring::{Ring, RingKind};
use crate::af_packet::rx::AfPacketRx;
use crate::af_packet::tx::AfPacketTx;
use crate::interface::{Interface, InterfaceLock};
use crate::{Handout, OpenOptions, Port, PortError, PortInfo, RxQueue, Spec, TxQueue};

const DEFAULT_SLOTS: u64 = 2_048;
/// Bytes of an Ethernet header.
const ETHERNET_BYTES: usize = 14;

/// An interface, and the lock on it, shared by the port and its queues.
#[derive(Debug)]
struct Shared {
    name: String,
    interface: Interface,
    warn: fn(&str),
    _lock: InterfaceLock,
}

/// A network interface.
pub(crate) struct AfPacketPort {
    info: PortInfo,
    rx: Handout<AfPacketRx>,
    tx: Handout<AfPacketTx>,
    index: i32,
    /// While this socket is there the interface is promiscuous.
    promiscuous: Option<OwnedFd>,
}

impl AfPacketPort {
    pub(crate) fn open(spec: &mut Spec, options: &OpenOptions) -> Result<Self, PortError> {
        let name = spec.name().to_owned();
        let slots = spec.take_number("ring", (32, 1 << 20))?.unwrap_or(DEFAULT_SLOTS) as usize;
        let promiscuous = spec.take_switch("promiscuous", false)?;
        let interface = Interface::existing(&name)?;
        let (index, mac, mtu) = (interface.index()?, interface.mac()?, interface.mtu()?);
        if !interface.is_up()? {
            return Err(PortError::InterfaceDown { name });
        }
        let lock = InterfaceLock::take(&name)?;
        let shared = Arc::new(Shared { name: name.clone(), interface, warn: options.warn, _lock: lock });
        let builder = Builder { name: &name, index, mtu, slots };

        let mut receivers = Vec::with_capacity(options.rx_queues);
        let mut group = None;
        for _ in 0..options.rx_queues {
            let (socket, ring) = builder.receiver()?;
            if options.rx_queues > 1 {
                let joined = socket::join_fanout(&socket, group);
                group = Some(
                    joined.map_err(|error| PortError::system(&name, "joining the fanout group", error))?,
                );
            }
            receivers.push(AfPacketRx::new(Arc::clone(&shared), socket, ring, mtu));
        }
        for receiver in &mut receivers {
            // While the group was being formed, a packet may have gone to several of its sockets.
            receiver.discard_all();
        }
        let mut senders = Vec::with_capacity(options.tx_queues);
        for _ in 0..options.tx_queues {
            let (socket, ring) = builder.sender()?;
            senders.push(AfPacketTx::new(Arc::clone(&shared), socket, ring, mtu));
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
            index,
            promiscuous: None,
        };
        if promiscuous {
            port.set_promiscuous()?;
        }
        Ok(port)
    }
}

/// Makes the sockets of one port.
struct Builder<'a> {
    name: &'a str,
    index: i32,
    mtu: usize,
    slots: usize,
}

impl Builder<'_> {
    fn failed(&self, action: &'static str) -> impl Fn(io::Error) -> PortError + '_ {
        move |error| match error.raw_os_error() {
            Some(libc::EPERM) => PortError::NotPermitted {
                port: self.name.to_owned(),
                what: "open a packet socket",
                capability: "CAP_NET_RAW",
            },
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

    fn receiver(&self) -> Result<(OwnedFd, Ring), PortError> {
        let socket = self.open()?;
        socket::set(&socket, libc::PACKET_VNET_HDR, &1).map_err(self.failed("setting PACKET_VNET_HDR"))?;
        socket::set(&socket, libc::PACKET_IGNORE_OUTGOING, &1)
            .map_err(self.failed("setting PACKET_IGNORE_OUTGOING"))?;
        let ring = Ring::new(&socket, RingKind::Receive, self.slots, self.mtu)
            .map_err(self.failed("making the receive ring"))?;
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
}

impl Port for AfPacketPort {
    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
        Ok(Box::new(self.rx.take(queue)?))
    }

    fn set_promiscuous(&mut self) -> Result<(), PortError> {
        let failed = |error| PortError::system(&self.info.name, "becoming promiscuous", error);
        let socket = socket::open().map_err(failed)?;
        socket::make_promiscuous(&socket, self.index).map_err(failed)?;
        self.promiscuous = Some(socket);
        Ok(())
    }

    fn take_tx(&mut self, queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
        Ok(Box::new(self.tx.take(queue)?))
    }
}

#[cfg(test)]
mod tests;
