//! Ports: where packets come in and go out, whatever the thing behind them is.
//!
//! A [`Port`] hands out its queues, each once, so that exactly one worker owns a queue. A worker polls an
//! [`RxQueue`] into a batch and gives batches to a [`TxQueue`]; neither blocks, allocates, locks or logs per packet.
//!
//! # How a port is named
//!
//! ```text
//! [DRIVER:]NAME[?OPTION[=VALUE][&OPTION[=VALUE]...]]
//! ```
//!
//! Without a driver the name is that of a network interface, opened with AF_PACKET. Times take a unit (`ns`, `us`,
//! `ms`, `s`), probabilities are `0.01` or `1%`, switches are `yes` or `no` (an option without a value means `yes`).
//!
//! | driver | example | what it is |
//! | --- | --- | --- |
//! | `af_packet` | `eth0`, `af_packet:eth0?steer=transit` | a network interface through memory-mapped rings |
//! | `af_xdp` | `af_xdp:eth0`, `af_xdp:eth0?steer=transit` | a network interface whose packets the kernel puts right into our frames |
//! | `host` | `host:eth0` | Linux receives what is sent as if it had come in by the interface |
//! | `tap` | `tap:brk0?mtu=1400` | a TAP device; made when there is none, gone with the port unless `keep` |
//! | `tun` | `tun:brk0?mtu=1400` | a TUN device: as `tap`, but for IP packets without a link header |
//! | `pcap` | `pcap:in.pcap?out=out.pcap&timing=original` | packets from a file (pcap or pcapng), sent ones to another |
//! | `memory` | `memory:a`, `memory:a?end=1` | the two ends of a cable inside this process |
//! | `null` | `null:` | gives nothing, takes everything |
//! | `dpdk` | `dpdk:0000:03:00.0`, `dpdk:net_pcap0,rx_pcap=in.pcap` | a device of DPDK; everything behind the first colon is its device arguments |
//! | `dpdk_ring` | `dpdk_ring:a` | a ring of DPDK, in this process or to another |
//!
//! The last two are there in builds with the feature `dpdk`.
//!
//! Options of each driver, and those that work on every port (`trace`, `capture`, the faults), are listed in
//! [`DRIVERS`] and [`WRAPPER_OPTIONS`]: the one source of the parser, the error messages and the help.
//!
//! ```text
//! eth1?trace                               one line a packet on standard error
//! eth1?capture=eth1.pcap                   both directions into a file that tcpdump and Wireshark read
//! tap:brk0?drop=1%&delay=10ms&fault=rx     a bad line, in one direction
//! pcap:in.pcap?timing=loop                 the file again and again, from memory, at full speed
//! ```
//!
//! # Beside Linux
//!
//! With `steer=transit` Linux stays the host on the link: it answers ARP, keeps its addresses and runs the routing
//! protocols, and we get the packets that only have to be forwarded ([`HostSteering`]). What we do not finish goes to
//! Linux by a `host:` port, as if it had just come in. A port that Linux does not see (DPDK, memory) gets a twin there, a
//! TAP device with its address ([`twin_name`], `tap:NAME?mac=ADDRESS&mtu=BYTES`).
//!
//! From Rust there is also [`MemoryLoop`]: frames looped from memory at full speed, for benchmarks.
//!
//! # Files
//!
//! | file | what lives there |
//! | --- | --- |
//! | `spec` | the syntax above |
//! | `stats` | [`QueueStats`] and the named reasons of drops |
//! | `error` | [`PortError`]: what went wrong and what to do |
//! | `link` | [`Links`]: the interfaces of Linux, asked by netlink |
//! | `device_counts` | what Linux counted of its devices |
//! | `interface` | a port's own interface: asked and changed by ioctl |
//! | `interface_lock` | the lock that one port has on an interface |
//! | `gro` | keeps the kernel from merging received packets |
//! | `host_steering`, `host_filter` | which packets are ours and which those of Linux; the same in Rust, for captures and tests |
//! | `flood` | frames that the kernel makes, sends and counts |
//! | `kernel_forwarding` | forwarding in the kernel by the router's tables |
//! | `kernel_relay` | relaying in the kernel by a node of a cluster |
//! | `mapped` | maps of BPF programs in our memory |
//! | `generic_netlink` | families of generic netlink, and sending to their groups |
//! | `xdp_features` | what a driver can do with XDP |
//! | `zero_copy` | what drivers make of frames that they fill themselves |
//! | `iptables` | chains of legacy iptables, which forwarded packets of the host pass |
//! | `bpf` | BPF programs of `bpf/`: loaded, attached, their maps |
//! | `steering` | which queue a packet goes to, changed while traffic flows |
//! | `memory`, `memory_loop`, `null`, `pcap`, `tap`, `af_packet`, `af_xdp`, `host`, `dpdk` | the drivers |
//! | `recorder` | the thread that writes files for the fast path |
//! | `wrappers` | tracer, capture, fault injector |

// A reader that went away must not end the router.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod bpf;
mod device_counts;
mod error;
mod flood;
pub mod generic_netlink;
mod gro;
mod host_filter;
mod host_steering;
mod interface;
mod interface_lock;
mod iptables;
mod kernel_forwarding;
mod kernel_relay;
mod link;
mod mapped;
mod memory_loop;
mod merged;
mod merged_reader;
mod mtu;
mod recorder;
mod spec;
mod stats;
mod steering;
mod unfinished;
mod wrappers;
mod xdp_features;
mod zero_copy;

#[cfg(test)]
mod testing;

/// Makes the drivers' modules, and the list of what they are called; the first is that of a spec without a driver.
macro_rules! drivers {
    ($($module:ident: $($doc:ident),+;)*) => {
        $(mod $module;)*

        /// All drivers; the first is the one of a spec without a driver.
        pub const DRIVERS: &[&DriverDoc] = &[$($(&$module::$doc),+),*];
    };
}

drivers! {
    af_packet: DRIVER;
    af_xdp: DRIVER;
    host: DRIVER;
    tap: TAP, TUN;
    pcap: DRIVER;
    memory: DRIVER;
    null: DRIVER;
    dpdk: DRIVER, RING;
}

use std::os::fd::BorrowedFd;

use packet::wire::ethernet::MacAddr;
use packet::{Batch, PacketType, Pool};

pub use af_packet::linux_frames::{LinuxFrame, LinuxFrames};
pub use af_xdp::{lacks_vlan_tags, restore_cards, takes_tags_out};
pub use bpf::tcx_programs;
pub use device_counts::{DeviceCounts, DeviceTraffic, Devices, counts_frames};
pub use error::PortError;
pub use flood::{Flood, FloodCounts, FloodFrame, FloodOrders, FloodSender};
pub use gro::Unmerged;
pub use host::PERMITTED_MARK;
pub use host_steering::{HostSteering, MOST_STATIONS, Station, VlanId, VlanShare, XdpWay};
pub use interface::{
    Addresses, addresses, is_interface, kernel_name, set_link_address, set_mtu, with_address,
};
pub use interface_lock::user_of;
pub use iptables::{LegacyChain, keep_legacy_tables, legacy_chains};
pub use kernel_forwarding::{
    KernelForwarding, KernelHits, KernelList, KernelLosses, KernelPort, KernelRules, KernelSample,
    KernelTraffic, LossCounter, Sources, XdpMode,
};
pub use kernel_relay::{KernelRelay, RelayLink, RelayTables};
pub use link::{Link, Links, Merging};
pub use memory_loop::MemoryLoop;
pub use mtu::{frame_bytes_for, largest_mtu, mtu_problem};
pub use pcap::reader::{ETHERNET, PcapReader, PcapRecord};
pub use pcap::writer::{PcapWriter, Precision};
pub use spec::{DriverDoc, Open, OptionDoc, Spec, WRAPPER_OPTIONS, add_drivers, gives_merged, split_spec};
pub use stats::{Event, QueueStats};
pub use steering::{HashFields, Steering};
pub use tap::{keep_tun_files, twin_name};
pub use wrappers::fault::{FaultDirections, FaultOptions, with_faults};
pub use wrappers::{with_capture, with_trace};
pub use xdp_features::{XdpFeatureChanges, XdpFeatures};
pub use zero_copy::{driver as card_driver, frame_bytes_at, is_usual_for as zero_copy_is_usual_for};

/// What a port is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// The name: of the interface, the file, the memory cable.
    pub name: String,
    /// The driver, as in a port's spec.
    pub driver: &'static str,
    /// The link address that our end of the port should use. For an interface that is the interface's own; for a TAP
    /// the far end is the interface that Linux sees, so ours differs from that one in the last bit.
    pub mac: MacAddr,
    /// Largest payload of a frame in bytes, link header (and VLAN tags) not counted.
    pub mtu: usize,
    /// Number of receive queues; [`Port::take_rx`] takes numbers below it.
    pub rx_queues: usize,
    /// Number of transmit queues; [`Port::take_tx`] takes numbers below it.
    pub tx_queues: usize,
}

/// A port: a NIC or a stand-in for one. Dropping it and its queues gives back what it held.
pub trait Port: Send {
    /// What the port is; its MTU as it was when the port was opened.
    fn info(&self) -> PortInfo;

    /// Hands out a receive queue.
    ///
    /// # Errors
    /// [`PortError::NoSuchQueue`]; [`PortError::QueueTaken`] when asked twice.
    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError>;

    /// Hands out a transmit queue.
    ///
    /// # Errors
    /// [`PortError::NoSuchQueue`]; [`PortError::QueueTaken`] when asked twice.
    fn take_tx(&mut self, queue: usize) -> Result<Box<dyn TxQueue>, PortError>;

    /// Receives frames to other hosts too, for as long as the port is there. On a cable that has no other hosts
    /// there is nothing to do.
    ///
    /// # Errors
    /// [`PortError::System`] when the kernel does not allow it.
    fn set_promiscuous(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    /// Keeps what comes in away from Linux, for as long as the port is there. On a port whose packets Linux does not get
    /// anyway there is nothing to do.
    ///
    /// # Errors
    /// [`PortError`] when the kernel cannot or may not.
    fn keep_from_linux(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    /// Plugs or unplugs the cable between the port and the interface that Linux has at its other end, for programs that ask Linux about the
    /// link (routing daemons).
    ///
    /// # Errors
    /// [`PortError::Unsupported`] for a port that is not a TAP device; [`PortError::System`] when the kernel refuses.
    fn set_carrier(&mut self, is_plugged: bool) -> Result<(), PortError> {
        let _ = is_plugged;
        let problem = "only the cable of a TAP device can be plugged and unplugged".to_owned();
        Err(PortError::Unsupported { port: self.info().name, problem })
    }

    /// Whether its transmit queues take frames in which several packets are merged.
    fn takes_merged(&self) -> bool {
        false
    }

    /// Whether the device has a link. `None`: its driver does not say, or the device is an interface of Linux, which knows.
    fn has_link(&self) -> Option<bool> {
        None
    }

    /// The steering of a port whose device spreads packets over its receive queues; `None` when nothing can be
    /// changed.
    fn steering(&mut self) -> Option<&mut dyn Steering> {
        None
    }

    /// Which packets the port leaves to Linux, when Linux is the host on the link (`steer=transit`). `None`: it leaves
    /// none, or has no such choice.
    fn host(&mut self) -> Option<&mut dyn HostSteering> {
        None
    }

    /// How packets come by XDP; `None` if they do not, or its queues are not open yet.
    fn xdp(&self) -> Option<XdpWay> {
        None
    }

    /// Has frames of a cluster's fabric that come in by this port, a link that the relay knows by this number, relayed in the kernel
    /// first, or with `None` no more; the rest is ours as before.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] where no packets come by XDP; [`PortError::System`], not expected.
    fn relay_in_kernel(&mut self, relay: Option<(&mut KernelRelay, u16)>) -> Result<(), PortError> {
        let _ = relay;
        let problem = "its packets come by no XDP program".to_owned();
        Err(PortError::Unsupported { port: self.info().name, problem })
    }

    /// Opens the receiving side anew, because the device receives packets and none of them comes: first the way it was,
    /// then a slower way, then not at all, so that Linux has the packets. `tries` is how often that was done since the
    /// last packet came. Returns what was done, for people.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] if the driver has no other way; any other error of opening a port.
    fn open_anew(&mut self, tries: usize) -> Result<&'static str, PortError> {
        let _ = tries;
        Err(PortError::Unsupported {
            port: self.info().name,
            problem: "its driver has no other way".to_owned(),
        })
    }

    /// Receives by the queues that the device got since the port was opened, and returns how many there are, if they have become more.
    /// To be asked every so often.
    ///
    /// # Errors
    /// [`PortError`] when the program cannot be attached to them.
    fn follow_queues(&mut self) -> Result<Option<usize>, PortError> {
        Ok(None)
    }

    /// How the driver moves packets, in a word or two, where it has several ways: `zero-copy`, `copy`, `generic`. Empty: it has one.
    fn mode(&self) -> &'static str {
        ""
    }

    /// What else the driver has to say about the device, for people: its link now, what it could do. Empty: nothing.
    fn details(&self) -> String {
        String::new()
    }
}

/// A receive queue, owned by one worker.
pub trait RxQueue: Send {
    /// Called once, before the first [`RxQueue::receive`] and before the worker's thread starts: the time to register
    /// the frames of the router with the kernel or a device ([`Pool::memory`]). The queue may later go to another worker,
    /// whose pool lies in the same memory.
    ///
    /// # Errors
    /// What the driver needs is not to be had; the message says what to do.
    fn prepare(&mut self, pool: &mut Pool) -> Result<(), PortError> {
        let _ = pool;
        Ok(())
    }

    /// Adds up to `max` packets to the end of `batch` (fewer when it has no room, the pool is empty or nothing came)
    /// and returns how many. Never blocks.
    ///
    /// Every packet has its link header at offset 0, its packet type, and a time stamp where the driver has one for
    /// free. Its `input_port` is left to the caller. Frames come from `pool`, or, where packets never leave memory,
    /// from the pool of their maker.
    fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, max: usize) -> usize;

    /// What to wait for (readable) before polling again, for a worker that wants to sleep. `None`: nothing in the
    /// kernel will say; poll.
    ///
    /// Ask again before each sleep: the call also clears pending errors of the link, which would wake at once.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Nanoseconds until this queue has its next packet by its own clock (a file in original timing, a delayed
    /// packet); 0: now. `None`: it does not know. A worker should not sleep longer than this.
    fn due_in_ns(&self) -> Option<u64> {
        None
    }

    /// Whether packets wait for ever until they are taken, as in a file: a caller that cannot handle them leaves them there.
    fn waits(&self) -> bool {
        false
    }

    /// Whether nothing will ever come any more: a file at its end.
    fn is_finished(&self) -> bool {
        false
    }

    /// Counts so far.
    fn stats(&self) -> QueueStats;
}

/// A transmit queue, owned by one worker.
pub trait TxQueue: Send {
    /// As [`RxQueue::prepare`], before the first [`TxQueue::send`].
    ///
    /// # Errors
    /// What the driver needs is not to be had; the message says what to do.
    fn prepare(&mut self, pool: &mut Pool) -> Result<(), PortError> {
        let _ = pool;
        Ok(())
    }

    /// Sends packets from the front of `batch` and returns how many it took (sent, or dropped and counted). What stays
    /// in the batch was not sent: the ring is full, try later. Never blocks.
    fn send(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize;

    /// Pushes out what waits inside: packets that the kernel did not take at once, delayed ones. Call it when
    /// [`TxQueue::due_in_ns`] says that something waits; it is cheap when nothing does.
    fn flush(&mut self, pool: &mut Pool) {
        let _ = pool;
    }

    /// Nanoseconds until [`TxQueue::flush`] has something to do by the queue's own clock. `None`: nothing is planned.
    fn due_in_ns(&self) -> Option<u64> {
        None
    }

    /// Counts so far.
    fn stats(&self) -> QueueStats;
}

/// How to open a port.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Receive queues wanted. A driver that cannot have so many gives fewer; see [`PortInfo::rx_queues`].
    pub rx_queues: usize,
    /// Transmit queues wanted: one for each thread that sends. Every driver gives as many.
    pub tx_queues: usize,
    /// Where warnings go (each once a port, never one a packet). A router with workers has them queued; by default they are
    /// written to standard error at once.
    pub warn: fn(&str),
    /// Where good news goes: what was warned of is over.
    pub tell: fn(&str),
    /// Whether a link that goes down or comes up is reported. Who follows Linux's notifications knows it first.
    pub reports_links: bool,
    /// Whether frames in which several packets are merged may come whole ([`Packet::merged`](packet::Packet::merged)). A driver that has
    /// none is not concerned.
    pub takes_merged: bool,
}

/// Writes a line at once, to a standard error that may be closed.
fn to_standard_error(text: &str) {
    use std::io::Write;
    // There is nowhere to say that nobody reads it.
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            rx_queues: 1,
            tx_queues: 1,
            warn: to_standard_error,
            tell: to_standard_error,
            reports_links: true,
            takes_merged: false,
        }
    }
}

/// Opens the port that `spec` names; see the crate's page for the syntax.
///
/// # Errors
/// The spec is wrong, or the port cannot be opened; the message says what to do.
pub fn open(spec: &str, options: &OpenOptions) -> Result<Box<dyn Port>, PortError> {
    let mut spec = Spec::parse(spec)?;
    // What wraps a port knows packets one by one.
    let options = &OpenOptions { takes_merged: options.takes_merged && !spec.is_wrapped(), ..*options };
    let wrappers = wrappers::Wrappers::take(&mut spec)?;
    let port = spec.open()(&mut spec, options)?;
    wrappers.around(port, options)
}

/// The packet type of a frame on a line that has no other hosts: a file, a cable in memory, a TAP.
#[inline(always)]
pub(crate) fn packet_type_on_a_cable(frame: &[u8]) -> PacketType {
    match frame.first_chunk::<6>() {
        Some(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff]) => PacketType::Broadcast,
        Some(&destination) if MacAddr(destination).is_multicast() => PacketType::Multicast,
        _ => PacketType::Host,
    }
}

/// Hands out each queue of a port once.
#[derive(Debug)]
pub(crate) struct Handout<Q> {
    port: String,
    direction: &'static str,
    queues: Vec<Option<Q>>,
}

impl<Q> Handout<Q> {
    pub(crate) fn new(port: &str, direction: &'static str, queues: impl IntoIterator<Item = Q>) -> Self {
        Self { port: port.to_owned(), direction, queues: queues.into_iter().map(Some).collect() }
    }

    pub(crate) fn count(&self) -> usize {
        self.queues.len()
    }

    pub(crate) fn take(&mut self, queue: usize) -> Result<Q, PortError> {
        let count = self.queues.len();
        let Some(slot) = self.queues.get_mut(queue) else {
            let (port, direction) = (self.port.clone(), self.direction);
            return Err(PortError::NoSuchQueue { port, direction, queue, count });
        };
        slot.take().ok_or_else(|| PortError::QueueTaken {
            port: self.port.clone(),
            direction: self.direction,
            queue,
        })
    }
}
