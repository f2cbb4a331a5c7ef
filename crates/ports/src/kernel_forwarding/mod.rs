//! Forwarding in the kernel: the program `bpf/forward.c`, and the maps that it has in common with the router.
//!
//! One program serves all ports of a router. Each port's steering program comes first and hands it plain transit; what it
//! leaves goes on to the port's sockets. The router's tables lie in a map that is mapped into this process
//! ([`KernelForwarding::take_tables`]), so that a route that workers see is one that the kernel sees.
//!
//! The program lives as long as this process has it, and the steering programs go with their ports: however the process
//! ends, nothing is forwarded by tables that nobody keeps.
//!
//! Access lists are judged by in the program too ([`KernelForwarding::take_list`]).

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use aya::maps::xdp::DevMap;
use aya::maps::{MapData, MapError, PerCpuArray, ProgramArray, RingBuf};
use aya::programs::{ProgramFd, SchedClassifier, Xdp};
use aya::{Ebpf, Pod, include_bytes_aligned};
use packet::flow::FlowKey;
use packet::multipath::PathPolicies;
use packet::{IpVersion, SharedMemory};

use self::access_list::Maps;
pub use self::access_list::{KernelHits, KernelList, KernelRules};
pub use self::losses::{KernelLosses, LossCounter};
pub use self::samples::KernelSample;
use self::samples::{Draw, Sampling};
use crate::DeviceTraffic;
use crate::af_xdp::Stage;
use crate::bpf::{address_bits, loader, map_error, refusal, test_run, verify};
use crate::error::missing_resource;
use crate::host_steering::key_of;
use crate::mapped::{Common, Mapped};

/// The programs by the size of their tables, in bytes.
static OBJECTS: [(usize, &[u8]); 5] = [
    (16 << 20, include_bytes_aligned!(concat!(env!("OUT_DIR"), "/forward_16.o"))),
    (32 << 20, include_bytes_aligned!(concat!(env!("OUT_DIR"), "/forward_32.o"))),
    (64 << 20, include_bytes_aligned!(concat!(env!("OUT_DIR"), "/forward_64.o"))),
    (128 << 20, include_bytes_aligned!(concat!(env!("OUT_DIR"), "/forward_128.o"))),
    (256 << 20, include_bytes_aligned!(concat!(env!("OUT_DIR"), "/forward_256.o"))),
];

/// The programs of an object: the one that forwards, and the one that sees what the steering program leaves to Linux; for XDP and
/// for tc.
const FORWARD: &str = "forward";
const SEE: &str = "see";
const FORWARD_TC: &str = "forward_tc";
const SEE_TC: &str = "see_tc";
/// As in `bpf/forward.c`.
const MOST_PORTS: usize = 256;
const PLACES: usize = 4096;
const VLAN_PLACES: usize = 4096;
/// The largest MTU with which drivers have a packet in one buffer, unless they split headers off.
const ONE_BUFFER: u32 = 1_500;
/// Much longer than a program runs, which is microseconds and not interrupted.
const LONGEST_RUN: std::time::Duration = std::time::Duration::from_millis(200);

/// `struct port` of the program.
#[repr(C)]
struct PortWords {
    interface: AtomicU32,
    mtus: [AtomicU16; 2],
    mode: AtomicU8,
    sends: AtomicU8,
    sources: [AtomicU8; 2],
    paint: AtomicU8,
    sends_fragments: AtomicU8,
    is_long: AtomicU8,
    unused: AtomicU8,
}

/// `struct links` of the program.
#[repr(C)]
struct Links {
    key: [AtomicU64; 2],
    lists: [AtomicU32; 2],
    paths: [AtomicU32; 2],
    sampling: Sampling,
    ports: [PortWords; MOST_PORTS],
    own: [AtomicU8; PLACES / 8],
    port_of: [AtomicU8; PLACES],
    /// `struct vlan`: the number, the port below and the port, from the lowest byte on.
    vlans: [AtomicU32; VLAN_PLACES],
}

// SAFETY: all of it is atomic.
#[allow(unsafe_code, reason = "an unsafe trait")]
unsafe impl Common for Links {}

/// What was forwarded from and to a port. Bytes are those of link headers and packets, without padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct KernelTraffic {
    /// Packets that came in by it.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Packets that were redirected to it, of which some may be lost ([`LossCounter`]).
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// How much more that is than frames: one in which several packets are merged has its headers once.
    pub merged_tx: DeviceTraffic,
}

/// `struct traffic` of the program.
#[derive(Clone, Copy)]
#[repr(C)]
struct PortCounts {
    traffic: KernelTraffic,
    draw: Draw,
}

// SAFETY: numbers without gaps, of which all bit patterns are values.
#[allow(unsafe_code, reason = "an unsafe trait")]
unsafe impl Pod for PortCounts {}

impl std::ops::Add for KernelTraffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            rx_packets: self.rx_packets + other.rx_packets,
            rx_bytes: self.rx_bytes + other.rx_bytes,
            tx_packets: self.tx_packets + other.tx_packets,
            tx_bytes: self.tx_bytes + other.tx_bytes,
            merged_tx: self.merged_tx + other.merged_tx,
        }
    }
}

/// What the program has to know of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelPort {
    /// The number of its interface.
    pub interface: u32,
    /// Its MTU.
    pub mtu: u32,
    /// The largest IPv4 and IPv6 packets that it sends, if that is less.
    pub longest: [u32; 2],
    /// Whether it is a VLAN of the port that has the interface ([`KernelForwarding::set_vlans`]).
    pub is_vlan: bool,
    /// Where its XDP programs run; `None` if what comes in by it is not forwarded in the kernel.
    pub receives: Option<XdpMode>,
    /// Whether it may send what comes in by others.
    pub sends: bool,
    /// Whether the interface sends frames that programs in drivers redirect to it
    /// ([`XdpFeatures::sends_redirected`](crate::XdpFeatures::sends_redirected)). What is redirected in the kernel's stack
    /// every interface sends.
    pub sends_native: bool,
    /// Whether that goes for frames that lie in several buffers too ([`XdpFeatures::has_fragments`](crate::XdpFeatures)).
    pub sends_native_fragments: bool,
    /// Which sources of IPv4 and IPv6 packets that come in are believed; packets from others are for the graph to judge.
    pub sources: [Sources; 2],
    /// By which rules of access lists know it.
    pub paint: u8,
}

/// Where XDP programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the interface's driver.
    Native = 1,
    /// In the kernel's stack: every interface can, and it costs more. A tc program counts as one there.
    Generic,
}

/// Which sources are believed (RFC 3704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sources {
    /// All.
    #[default]
    All,
    /// Those to which there is a route.
    Loose,
    /// Those to which there is a route by the port that the packet came in by.
    Strict,
}

/// Reports that the kernel refused the program or a map.
pub(crate) fn refused(error: &(dyn std::error::Error + 'static)) -> io::Error {
    let (errno, reason) = refusal(error);
    io::Error::other(match errno {
        Some(libc::EPERM) => {
            "not permitted to load the program; run as root, or give CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
                .into()
        }
        _ => missing_resource(errno).unwrap_or_else(|| {
            format!("the kernel refused the program ({reason}); expected Linux 6.6 or newer")
        }),
    })
}

/// The program that forwards in the kernel, and its maps.
pub struct KernelForwarding {
    object: Ebpf,
    tables: Option<SharedMemory>,
    links: Arc<Mapped>,
    lists: Vec<KernelList>,
    ways: DevMap<MapData>,
    rest: ProgramArray<MapData>,
    rest_tc: ProgramArray<MapData>,
    traffic: PerCpuArray<MapData, PortCounts>,
    samples: RingBuf<MapData>,
}

impl KernelForwarding {
    /// Loads the program with room for tables of at least so many bytes, or the most that there is. `key` is that of the
    /// hash by which members of groups are chosen. Where access lists judge (`is_listed`), nothing is forwarded that a
    /// list of [`KernelForwarding::take_list`] does not permit. Needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, Linux 6.6.
    ///
    /// # Errors
    ///
    /// The kernel refuses the program, or has no memory for its maps.
    pub fn load(least_bytes: usize, key: FlowKey, is_listed: bool) -> io::Result<Self> {
        let fits = OBJECTS.iter().find(|(bytes, _)| *bytes >= least_bytes);
        let &(bytes, object) = fits.or(OBJECTS.last()).expect("there are sizes");
        Self::load_object(bytes, object, key, is_listed)
    }

    fn load_object(bytes: usize, object: &[u8], key: FlowKey, is_listed: bool) -> io::Result<Self> {
        let listed = u8::from(is_listed);
        let processors = if is_listed { Self::slots() } else { 1 };
        let mut loader = loader();
        loader.override_global("LISTED", &listed, true).map_max_entries("HITS", processors as u32);
        if !is_listed {
            loader.map_max_entries("LIST", 1);
        }
        let mut object = loader.load(object).map_err(|error| refused(&error))?;
        let tables = Mapped::new(&mut object, "TABLES", bytes)?;
        let links = Arc::new(Mapped::of::<Links>(&mut object, "LINKS")?);
        let mut lists = Vec::new();
        if is_listed {
            let (list, hits) = Maps::bytes(processors);
            let (list, hits) =
                (Mapped::new(&mut object, "LIST", list)?, Mapped::new(&mut object, "HITS", hits)?);
            let maps = Arc::new(Maps { links: Arc::clone(&links), list, hits });
            lists.extend(
                [IpVersion::V4, IpVersion::V6].map(|version| KernelList::new(Arc::clone(&maps), version)),
            );
        }
        let wrong = |error: MapError| refused(&error);
        let mut take = |name: &str| object.take_map(name).expect("the program has this map");
        let (ways, traffic, samples) = (take("WAYS"), take("TRAFFIC"), take("SAMPLES"));
        let (rest, rest_tc) = (take("REST"), take("REST_TC"));
        let (first, owner) = (tables.first(), Box::new(tables));
        #[allow(unsafe_code, reason = "the memory is that of a map")]
        // SAFETY: the mapping is as long as that, new and zero, and lives as long as its owner. The program reads it as
        // numbers and writes its slots of visits alone, masked to the map.
        let tables = unsafe { SharedMemory::new(first, bytes, owner) };
        let mut forwarding = Self {
            object,
            tables: Some(tables),
            links,
            lists,
            ways: ways.try_into().map_err(wrong)?,
            rest: rest.try_into().map_err(wrong)?,
            rest_tc: rest_tc.try_into().map_err(wrong)?,
            traffic: traffic.try_into().map_err(wrong)?,
            samples: samples.try_into().map_err(wrong)?,
        };
        for name in [FORWARD, SEE] {
            verify(|| forwarding.program(name).load()).map_err(|error| refused(&error))?;
        }
        for (place, word) in forwarding.links().key.iter().zip(key.words()) {
            place.store(word, Ordering::Relaxed);
        }
        forwarding.set_path_policies(&PathPolicies::default());
        Ok(forwarding)
    }

    /// Returns the most bytes that tables may have.
    pub const fn most_bytes() -> usize {
        OBJECTS[OBJECTS.len() - 1].0
    }

    /// Returns how many slots for visits the tables need: one for each processor that the machine may have.
    pub fn slots() -> usize {
        aya::util::nr_cpus().unwrap_or(1)
    }

    /// Takes the memory of the tables; only the first call has it.
    pub fn take_tables(&mut self) -> Option<SharedMemory> {
        self.tables.take()
    }

    /// Takes the access list of a family; only the first call has it, of a program that was loaded with lists.
    pub fn take_list(&mut self, version: IpVersion) -> Option<KernelList> {
        let place = self.lists.iter().position(|list| list.version() == version)?;
        Some(self.lists.swap_remove(place))
    }

    /// Waits until no program runs that was taken out of all its places before.
    pub fn wait_for_programs() {
        use rustix::thread::{MembarrierCommand, membarrier};
        // Waits for a grace period of RCU, of which programs are readers. Not where a processor is without ticks (nohz_full).
        if membarrier(MembarrierCommand::Global).is_err() {
            std::thread::sleep(LONGEST_RUN);
        }
    }

    fn program(&mut self, name: &str) -> &mut Xdp {
        let program = self.object.program_mut(name).expect("the object has this program");
        program.try_into().expect("it is an XDP program")
    }

    /// A program for tc. It is loaded when a port first asks for it.
    fn tc_program(&mut self, name: &str) -> io::Result<&mut SchedClassifier> {
        let program = self.object.program_mut(name).expect("the object has this program");
        let program: &mut SchedClassifier = program.try_into().expect("it is a classifier");
        if program.fd().is_err() {
            verify(|| program.load()).map_err(|error| refused(&error))?;
        }
        Ok(program)
    }

    /// Both programs for tc: the one that forwards, and the one that sees what the steering program leaves to Linux.
    pub(crate) fn tc_fds(&mut self) -> io::Result<[ProgramFd; 2]> {
        let mut fd = |name| self.tc_program(name)?.fd().map_err(io::Error::other)?.try_clone();
        Ok([fd(FORWARD_TC)?, fd(SEE_TC)?])
    }

    /// Says which program for tc counts what came in by the port of this number and is left to Linux.
    pub(crate) fn set_rest_tc(&mut self, port: u16, program: &ProgramFd) -> io::Result<()> {
        self.rest_tc.set(port.into(), program, 0).map_err(map_error)
    }

    /// Runs the program on a frame, as if it came in by the loopback interface; for tests. Returns what the program says, and the
    /// frame then.
    ///
    /// # Errors
    ///
    /// The kernel has no test runs, or refuses the frame.
    pub fn test_run(&mut self, frame: &[u8]) -> io::Result<(u32, Vec<u8>)> {
        test_run(self.program(FORWARD), frame)
    }

    /// The same in tc, where a frame has no tag beside it.
    ///
    /// # Errors
    ///
    /// As [`KernelForwarding::test_run`], or the kernel refuses the program.
    pub fn test_run_in_tc(&mut self, frame: &[u8]) -> io::Result<(u32, Vec<u8>)> {
        test_run(self.tc_program(FORWARD_TC)?, frame)
    }

    fn links(&self) -> &Links {
        self.links.view()
    }

    /// Says what a port is like.
    ///
    /// # Errors
    ///
    /// More than 256 ports, or two whose interfaces' numbers differ by a multiple of 4,096: such a port stays with the
    /// router's graph. The kernel may not know the interface.
    pub fn set_port(&mut self, number: u16, port: KernelPort) -> io::Result<()> {
        let links = self.links();
        let (Some(words), place) = (links.ports.get(usize::from(number)), port.interface as usize % PLACES)
        else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, format!("more than {MOST_PORTS} ports")));
        };
        let other = usize::from(links.port_of[place].load(Ordering::Relaxed));
        let known = &links.ports[other];
        let is_taken = other != usize::from(number)
            && known.mode.load(Ordering::Relaxed) != 0
            && known.interface.load(Ordering::Relaxed) as usize % PLACES == place;
        if port.receives.is_some() && !port.is_vlan && is_taken {
            let problem = format!("interface {} has the place of another port", port.interface);
            return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
        }
        // Until all is said, nobody forwards from or to it.
        words.mode.store(0, Ordering::Release);
        words.sends.store(0, Ordering::Release);
        words.interface.store(port.interface, Ordering::Relaxed);
        words.mtus.iter().zip(port.longest).for_each(|(place, longest)| {
            place.store(longest.min(port.mtu).min(u16::MAX.into()) as u16, Ordering::Relaxed);
        });
        words.is_long.store((port.mtu > ONE_BUFFER).into(), Ordering::Relaxed);
        words.paint.store(port.paint, Ordering::Relaxed);
        words.sources.iter().zip(port.sources).for_each(|(place, sources)| {
            place.store(sources as u8, Ordering::Relaxed);
        });
        if let Some(mode) = port.receives {
            if !port.is_vlan {
                links.port_of[place].store(number as u8, Ordering::Relaxed);
            }
            words.mode.store(mode as u8, Ordering::Release);
        }
        if port.sends {
            self.renew_way(number, port.interface)?;
            let words = &self.links().ports[usize::from(number)];
            let modes =
                |native: bool| XdpMode::Generic as u8 | if native { XdpMode::Native as u8 } else { 0 };
            words.sends_fragments.store(modes(port.sends_native_fragments), Ordering::Relaxed);
            words.sends.store(modes(port.sends_native), Ordering::Release);
        }
        Ok(())
    }

    /// Forgets a port: its interface is gone, or is another port's now.
    pub fn clear_port(&mut self, number: u16) {
        if let Some(words) = self.links().ports.get(usize::from(number)) {
            words.mode.store(0, Ordering::Release);
            words.sends.store(0, Ordering::Release);
        }
    }

    /// Says once more by which interface a port sends. One that was away for a moment, even if it has its number again, is sent by
    /// no more: packets to it go to the router's graph.
    ///
    /// # Errors
    ///
    /// The kernel does not know the interface.
    pub fn renew_way(&mut self, number: u16, interface: u32) -> io::Result<()> {
        let set = self.ways.set(number.into(), interface, None, 0);
        set.map_err(|error| io::Error::other(error.to_string()))
    }

    /// Sets which ports are VLANs of others: the number of the port below, that of the VLAN, and that of its port. These
    /// replace those of the last call. Returns the ports whose place another VLAN has: packets that come in by them stay
    /// with the graph.
    pub fn set_vlans(&self, vlans: &[(u16, u16, u16)]) -> Vec<u16> {
        let (mut words, mut without_place) = ([0u32; VLAN_PLACES], Vec::new());
        for &(below, number, port) in vlans {
            let place = (usize::from(number) + usize::from(below) * 61) % VLAN_PLACES;
            if words[place] != 0 {
                without_place.push(port);
                continue;
            }
            words[place] = u32::from_ne_bytes([
                number.to_ne_bytes()[0],
                number.to_ne_bytes()[1],
                below as u8,
                port as u8,
            ]);
        }
        self.links().vlans.iter().zip(words).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
        without_place
    }

    /// Says which addresses are the host's own: packets that claim to come from one are for the graph to judge.
    pub fn set_own_addresses(&self, addresses: &[IpAddr]) {
        let bits = address_bits(addresses.iter().copied().map(key_of));
        self.links().own.iter().zip(bits).for_each(|(place, bits)| place.store(bits, Ordering::Relaxed));
    }

    /// Says what of packets chooses among the members of groups.
    pub fn set_path_policies(&self, policies: &PathPolicies) {
        for (place, version) in self.links().paths.iter().zip(IpVersion::ALL) {
            place.store(policies.of(version).word(), Ordering::Relaxed);
        }
    }

    /// Returns what was forwarded from and to the port of this number.
    ///
    /// # Errors
    ///
    /// Not expected of a port whose number is below 256.
    pub fn traffic(&self, port: u16) -> io::Result<KernelTraffic> {
        let each = self.traffic.get(&port.into(), 0).map_err(map_error)?;
        Ok(each.iter().fold(KernelTraffic::default(), |sum, cpu| sum + cpu.traffic))
    }

    /// Samples one packet of `one_in`, at random, of those that come in by each port and are forwarded in the kernel or left to
    /// Linux; 0 ends it. At most `bytes` of each are kept, up to [`KernelSample::MOST_BYTES`].
    pub fn set_sampling(&self, one_in: u32, bytes: usize) {
        self.links().sampling.set(one_in, bytes);
    }

    /// Takes the samples that there are, `most` at most: packets come while it takes them.
    pub fn take_samples(&mut self, most: usize, mut take: impl FnMut(KernelSample)) {
        for _ in 0..most {
            let Some(record) = self.samples.next() else { return };
            if let Some(sample) = KernelSample::read(&record) {
                take(sample);
            }
        }
    }
}

impl Stage for KernelForwarding {
    fn program_fd(&mut self) -> io::Result<ProgramFd> {
        self.program(FORWARD).fd().map_err(io::Error::other)?.try_clone()
    }

    fn seer_fd(&mut self) -> io::Result<Option<ProgramFd>> {
        self.program(SEE).fd().map_err(io::Error::other)?.try_clone().map(Some)
    }

    fn set_rest(&mut self, port: u16, program: &ProgramFd) -> io::Result<()> {
        self.rest.set(port.into(), program, 0).map_err(map_error)
    }
}

impl std::fmt::Debug for KernelForwarding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelForwarding").finish_non_exhaustive()
    }
}

mod access_list;
mod losses;
#[cfg(test)]
mod publication;
mod samples;
#[cfg(test)]
mod tests;
