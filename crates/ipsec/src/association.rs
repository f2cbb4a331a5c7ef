//! A security association: what protects the packets between two endpoints in one direction (RFC 4301, section 4.1).
//!
//! An [`Association`] is shared by all workers. What does not change while it lives is plain data. Its sequence number, byte and
//! packet counts and limits are atomics that are written once for each run of its packets in a batch; its replay window is
//! [`Window`]. So two workers seal packets of one association at the same time: each takes as many sequence numbers as its run has
//! packets, at once. The receiver sees numbers out of order by about a batch for each further worker, which its window has to hold.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use packet::wire::IpProtocol;

use crate::engine::{HEADER_BYTES, Keys, Shape};
use crate::fault::Fault;
use crate::window::Window;

/// The outer addresses, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoints {
    /// IPv4.
    V4 {
        /// Source.
        source: Ipv4Addr,
        /// Destination.
        destination: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// Source.
        source: Ipv6Addr,
        /// Destination.
        destination: Ipv6Addr,
    },
}

impl Endpoints {
    /// Returns those of two addresses; `None` if they are of different families.
    pub fn new(source: IpAddr, destination: IpAddr) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(Self::V4 { source, destination }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(Self::V6 { source, destination }),
            _ => None,
        }
    }

    /// Returns the source.
    pub fn source(&self) -> IpAddr {
        match *self {
            Self::V4 { source, .. } => source.into(),
            Self::V6 { source, .. } => source.into(),
        }
    }

    /// Returns the destination.
    pub fn destination(&self) -> IpAddr {
        match *self {
            Self::V4 { destination, .. } => destination.into(),
            Self::V6 { destination, .. } => destination.into(),
        }
    }
}

/// What is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Whole IP packets, behind an outer header.
    Tunnel,
    /// The payload of packets that keep their header.
    Transport,
}

/// The UDP header before ESP, by which it gets through address translation (RFC 3948).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UdpPorts {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
}

/// Whether routers may fragment the outer IPv4 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DontFragment {
    /// As the inner packet says; not where that is IPv6.
    Copy,
    /// They may.
    Clear,
    /// They may not.
    Set,
}

/// How often an association may be used. [`u64::MAX`]: as often as wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Bytes of packets before they are sealed, or after they are opened.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
}

impl Limit {
    /// None.
    pub const NONE: Self = Self { bytes: u64::MAX, packets: u64::MAX };

    fn is_reached(&self, used: Used) -> bool {
        used.bytes >= self.bytes || used.packets >= self.packets
    }
}

/// How much an association was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
}

/// How far an association has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Age {
    /// In use.
    Young,
    /// Beyond its soft limit: a new one should be negotiated.
    Soft,
    /// Beyond its hard limit, or without sequence numbers: it is not used any more.
    Expired,
}

/// What an association is made of. [`Settings::new`] has what is usual.
#[derive(Debug)]
pub struct Settings {
    /// The security parameters index, which the receiver chose.
    pub spi: u32,
    /// Outer addresses. In transport mode those of the packets.
    pub endpoints: Endpoints,
    /// What is protected.
    pub mode: Mode,
    /// The keys.
    pub keys: Keys,
    /// A UDP header before ESP.
    pub udp: Option<UdpPorts>,
    /// Whether sequence numbers have 64 bits, of which the lower half is sent.
    pub is_extended: bool,
    /// Numbers in the anti-replay window; 0 for none.
    pub window: u32,
    /// The last sequence number that was sent, or the highest that was accepted.
    pub sequence: u64,
    /// What was used before.
    pub used: Used,
    /// A new association should be negotiated.
    pub soft: Limit,
    /// The association must not be used any more.
    pub hard: Limit,
    /// TTL or hop limit of the outer header.
    pub hop_limit: u8,
    /// Whether routers may fragment outer packets.
    pub dont_fragment: DontFragment,
    /// Whether the outer header gets the inner one's DSCP, instead of 0.
    pub copies_dscp: bool,
    /// Whether an opened packet gets the outer header's DSCP.
    pub takes_dscp: bool,
    /// Whether congestion marks pass between the headers (RFC 6040).
    pub copies_ecn: bool,
}

impl Settings {
    /// Returns those of an association in tunnel mode with a window of 64 and no limits.
    pub fn new(spi: u32, endpoints: Endpoints, keys: Keys) -> Self {
        Self {
            spi,
            endpoints,
            mode: Mode::Tunnel,
            keys,
            udp: None,
            is_extended: false,
            window: 64,
            sequence: 0,
            used: Used::default(),
            soft: Limit::NONE,
            hard: Limit::NONE,
            hop_limit: 64,
            dont_fragment: DontFragment::Copy,
            copies_dscp: true,
            takes_dscp: false,
            copies_ecn: true,
        }
    }
}

/// Bytes of the trailer behind the padding: its length, and the protocol.
pub(crate) const TRAILER_BYTES: usize = 2;

/// The longest outer headers: IPv6 and UDP.
pub(crate) const MAX_OUTER_BYTES: usize = 48;

/// Bytes of IPv4, IPv6 and UDP headers.
pub(crate) const IPV4_BYTES: usize = 20;
pub(crate) const IPV6_BYTES: usize = 40;
pub(crate) const UDP_BYTES: usize = 8;

/// What workers write, on a line of its own so that readers of the rest do not wait for it.
#[derive(Debug)]
#[repr(align(64))]
struct Shared {
    /// The last number that was given to a packet.
    sequence: AtomicU64,
    bytes: AtomicU64,
    packets: AtomicU64,
    age: AtomicU8,
}

/// A security association. [The module](self) says how workers share it.
pub struct Association {
    settings: Settings,
    /// The outer headers, without what differs from packet to packet.
    pub(crate) outer: [u8; MAX_OUTER_BYTES],
    /// The sum of the 16-bit words of an outer IPv4 header.
    pub(crate) outer_sum: u32,
    /// Bytes of the outer IP header, in tunnel mode, and of the UDP header.
    pub(crate) outer_bytes: usize,
    /// Added to sequence numbers by exclusive or, for IVs. It makes them differ from those that another process made of the same
    /// numbers with the same key.
    iv_mask: [u8; 16],
    window: Window,
    /// The longest outer packet that the way to the destination takes.
    path_mtu: AtomicU32,
    shared: Shared,
    faults: Faults,
}

/// Counts that forged packets may have workers write, on lines of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Faults([AtomicU64; Fault::ALL.len()]);

impl Association {
    /// Makes an association.
    ///
    /// # Panics
    ///
    /// The system has no random numbers.
    pub fn new(settings: Settings) -> Self {
        let mut iv_mask = [0; 16];
        aws_lc_rs::rand::fill(&mut iv_mask).expect("the system has random numbers");
        let (outer, outer_bytes) = outer(&settings);
        let Settings { window, sequence, used, .. } = settings;
        let words = outer[..IPV4_BYTES].chunks_exact(2);
        let outer_sum = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
        Self {
            outer,
            outer_sum,
            outer_bytes,
            iv_mask,
            window: Window::new(window, sequence),
            path_mtu: AtomicU32::new(u32::MAX),
            shared: Shared {
                sequence: AtomicU64::new(sequence),
                bytes: AtomicU64::new(used.bytes),
                packets: AtomicU64::new(used.packets),
                age: AtomicU8::new(Age::Young as u8),
            },
            faults: Faults::default(),
            settings,
        }
    }

    /// Returns what it was made of. Its sequence number and use were those at that time.
    #[inline]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the keys.
    #[inline]
    pub fn keys(&self) -> &Keys {
        &self.settings.keys
    }

    /// Returns the last sequence number that was sent.
    pub fn sequence(&self) -> u64 {
        self.shared.sequence.load(Ordering::Relaxed)
    }

    /// Returns its anti-replay window.
    #[inline]
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Returns how much it was used.
    pub fn used(&self) -> Used {
        let Shared { bytes, packets, .. } = &self.shared;
        Used { bytes: bytes.load(Ordering::Relaxed), packets: packets.load(Ordering::Relaxed) }
    }

    /// Returns how far it has come.
    #[inline]
    pub fn age(&self) -> Age {
        match self.shared.age.load(Ordering::Relaxed) {
            0 => Age::Young,
            1 => Age::Soft,
            _ => Age::Expired,
        }
    }

    /// Makes it at least so old.
    pub fn grow(&self, age: Age) {
        self.shared.age.fetch_max(age as u8, Ordering::Relaxed);
    }

    /// Returns the longest packet, with outer headers, that the way to the destination takes; unlimited at first.
    #[inline]
    pub fn path_mtu(&self) -> usize {
        self.path_mtu.load(Ordering::Relaxed) as usize
    }

    /// Says how long packets may be, with outer headers.
    pub fn set_path_mtu(&self, bytes: u32) {
        self.path_mtu.store(bytes, Ordering::Relaxed);
    }

    /// Returns how many packets were dropped for a reason.
    pub fn faults(&self, fault: Fault) -> u64 {
        self.faults.0[fault as usize].load(Ordering::Relaxed)
    }

    /// Counts a packet that is dropped.
    pub(crate) fn fault(&self, fault: Fault) -> Fault {
        self.faults_of(fault, 1);
        fault
    }

    /// Counts packets that are dropped.
    pub(crate) fn faults_of(&self, fault: Fault, count: u64) {
        self.faults.0[fault as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// Counts packets if the association may still be used for them; returns whether it may.
    #[inline]
    pub(crate) fn take(&self, count: u64, bytes: u64) -> bool {
        self.age() != Age::Expired && self.count(count, bytes)
    }

    /// Counts packets, and returns whether that was within the hard limit.
    #[inline]
    pub(crate) fn count(&self, count: u64, bytes: u64) -> bool {
        let used = Used {
            bytes: self.shared.bytes.fetch_add(bytes, Ordering::Relaxed),
            packets: self.shared.packets.fetch_add(count, Ordering::Relaxed),
        };
        if self.settings.hard.is_reached(used) {
            self.grow(Age::Expired);
            return false;
        }
        if self.settings.soft.is_reached(used) && self.age() == Age::Young {
            self.grow(Age::Soft);
        }
        true
    }

    /// Takes so many sequence numbers; returns the first.
    #[inline]
    pub(crate) fn numbers(&self, count: u64) -> u64 {
        self.shared.sequence.fetch_add(count, Ordering::Relaxed) + 1
    }

    /// Returns the last sequence number that may be used (RFC 4303, section 3.3.3).
    #[inline]
    pub(crate) fn last_number(&self) -> u64 {
        if self.settings.is_extended { u64::MAX - (1 << 32) } else { u64::from(u32::MAX) }
    }

    /// Returns a number for the IV that no other packet has.
    #[inline]
    pub(crate) fn iv(&self, number: u64) -> [u8; 16] {
        (u128::from_be_bytes(self.iv_mask) ^ u128::from(number) << 64).to_be_bytes()
    }

    /// Returns how many bytes a packet of this length gets longer, in tunnel mode.
    #[inline]
    pub fn overhead(&self, length: usize) -> usize {
        let Shape { iv, icv, mask } = self.keys().shape();
        let padding = (length + TRAILER_BYTES).wrapping_neg() & mask;
        self.outer_bytes + HEADER_BYTES + iv + padding + TRAILER_BYTES + icv
    }

    /// Returns the longest packet that is, in tunnel mode, within the [path's MTU](Self::path_mtu) when it is sealed.
    #[inline]
    pub fn longest(&self) -> usize {
        let Shape { iv, icv, mask } = self.keys().shape();
        let sealed = self.path_mtu().saturating_sub(self.outer_bytes + HEADER_BYTES + iv + icv) & !mask;
        sealed.saturating_sub(TRAILER_BYTES)
    }
}

impl fmt::Debug for Association {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Association")
            .field("spi", &self.settings.spi)
            .field("keys", self.keys())
            .finish_non_exhaustive()
    }
}

fn outer(settings: &Settings) -> ([u8; MAX_OUTER_BYTES], usize) {
    let mut outer = [0; MAX_OUTER_BYTES];
    let protocol = if settings.udp.is_some() { IpProtocol::UDP } else { IpProtocol::ESP };
    let ip_bytes = match (settings.mode, settings.endpoints) {
        (Mode::Transport, _) => 0,
        (Mode::Tunnel, Endpoints::V4 { source, destination }) => {
            outer[0] = 0x45;
            outer[8] = settings.hop_limit;
            outer[9] = protocol.0;
            outer[12..16].copy_from_slice(&source.octets());
            outer[16..20].copy_from_slice(&destination.octets());
            IPV4_BYTES
        }
        (Mode::Tunnel, Endpoints::V6 { source, destination }) => {
            outer[0] = 0x60;
            outer[6] = protocol.0;
            outer[7] = settings.hop_limit;
            outer[8..24].copy_from_slice(&source.octets());
            outer[24..40].copy_from_slice(&destination.octets());
            IPV6_BYTES
        }
    };
    let Some(UdpPorts { source, destination }) = settings.udp else { return (outer, ip_bytes) };
    outer[ip_bytes..ip_bytes + 2].copy_from_slice(&source.to_be_bytes());
    outer[ip_bytes + 2..ip_bytes + 4].copy_from_slice(&destination.to_be_bytes());
    (outer, ip_bytes + UDP_BYTES)
}
