//! Relaying in the kernel: the program `bpf/relay.c`, and the maps that it has in common with a node of a cluster.
//!
//! One program serves all dedicated links of a node. Each link's steering program comes first and hands it all frames; what it
//! leaves goes on to the link's sockets. Which links lead where, and whose frames are believed, the node writes into a map that
//! lies in this process ([`RelayTables`]), so that the kernel knows it as soon as the graph.
//!
//! The program lives as long as this process has it, and the steering programs go with their ports.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use aya::maps::xdp::DevMap;
use aya::maps::{MapData, MapError, ProgramArray};
use aya::programs::{ProgramFd, Xdp};
use aya::{Ebpf, include_bytes_aligned};

use crate::XdpMode;
use crate::af_xdp::Stage;
use crate::bpf::{loader, map_error, test_run, verify};
use crate::kernel_forwarding::{KernelForwarding, KernelTraffic, refused};
use crate::mapped::{Common, Mapped};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/relay.o"));

/// As in `bpf/relay.c`.
const MOST_LINKS: usize = 256;
const NODES: usize = 1024;
const PLACES: usize = 4096;
/// Parallel links that a node is reached by in the kernel; where there are more, its frames are the graph's.
const MOST_PARALLEL: usize = 7;

/// `struct link` of the program.
#[repr(C)]
struct LinkWords {
    interface: AtomicU32,
    mtu: AtomicU32,
    mode: AtomicU8,
    sends: AtomicU8,
    sends_fragments: AtomicU8,
    is_believed: AtomicU8,
}

/// `struct fabric` of the program.
#[repr(C)]
struct Fabric {
    towards: [AtomicU64; NODES],
    links: [LinkWords; MOST_LINKS],
    link_of: [AtomicU8; PLACES],
}

// SAFETY: all of it is atomic.
#[allow(unsafe_code, reason = "an unsafe trait")]
unsafe impl Common for Fabric {}

/// What the program has to know of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayLink {
    /// The number of its interface.
    pub interface: u32,
    /// Its MTU.
    pub mtu: u32,
    /// Where its XDP programs run; `None` if what comes in by it is not relayed in the kernel.
    pub receives: Option<XdpMode>,
    /// Whether it may send what comes in by others.
    pub sends: bool,
    /// Whether the interface sends frames that programs in drivers redirect to it
    /// ([`XdpFeatures::sends_redirected`](crate::XdpFeatures::sends_redirected)).
    pub sends_native: bool,
    /// Whether that goes for frames that lie in several buffers too.
    pub sends_native_fragments: bool,
}

/// What the node and the program have in common.
pub struct RelayTables {
    fabric: Mapped,
    counts: Mapped,
    processors: usize,
}

impl RelayTables {
    fn fabric(&self) -> &Fabric {
        self.fabric.view()
    }

    /// Says which live links lead towards a node, by the ten bits that stand for it. Of several a frame takes that at its entropy
    /// * count / 256.
    pub fn set_towards(&self, node: u16, links: &[u16]) {
        // The number of a link has a byte.
        let fits = links.len() <= MOST_PARALLEL && links.iter().all(|&link| usize::from(link) < MOST_LINKS);
        let mut bytes = [0; 8];
        if fits {
            bytes[0] = links.len() as u8;
            bytes[1..].iter_mut().zip(links).for_each(|(byte, &link)| *byte = link as u8);
        }
        self.fabric().towards[usize::from(node) % NODES].store(u64::from_le_bytes(bytes), Ordering::Release);
    }

    /// Says whether a neighbour on a link has proved who it is.
    pub fn set_believed(&self, link: u16, is_believed: bool) {
        if let Some(words) = self.fabric().links.get(usize::from(link)) {
            words.is_believed.store(is_believed.into(), Ordering::Release);
        }
    }

    /// Returns what was relayed from and to a link: whole frames.
    pub fn traffic(&self, link: u16) -> KernelTraffic {
        let each = (0..self.processors).map(|processor| self.counts(processor, link));
        each.fold(KernelTraffic::default(), |sum, [rx_packets, rx_bytes, tx_packets, tx_bytes]| {
            KernelTraffic {
                rx_packets: sum.rx_packets + rx_packets,
                rx_bytes: sum.rx_bytes + rx_bytes,
                tx_packets: sum.tx_packets + tx_packets,
                tx_bytes: sum.tx_bytes + tx_bytes,
                ..sum
            }
        })
    }

    fn counts(&self, processor: usize, link: u16) -> [u64; 4] {
        let first = (processor * MOST_LINKS + usize::from(link) % MOST_LINKS) * 4;
        let words = self.counts.words().get(first..first + 4).unwrap_or_default();
        std::array::from_fn(|at| words.get(at).map_or(0, |word| word.load(Ordering::Relaxed)))
    }
}

impl std::fmt::Debug for RelayTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RelayTables").finish_non_exhaustive()
    }
}

/// The program that relays in the kernel, and its maps.
pub struct KernelRelay {
    object: Ebpf,
    tables: Arc<RelayTables>,
    ways: DevMap<MapData>,
    rest: ProgramArray<MapData>,
}

impl KernelRelay {
    /// Loads the program of a node with this number, in the cluster of that one. Needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON,
    /// Linux 6.6.
    ///
    /// # Errors
    ///
    /// The kernel refuses the program, or has no memory for its maps.
    pub fn load(here: u16, cluster: u16) -> io::Result<Self> {
        let processors = KernelForwarding::slots();
        let mut loader = loader();
        loader
            .override_global("HERE", &here, true)
            .override_global("CLUSTER", &cluster, true)
            .map_max_entries("COUNTS", processors as u32);
        let mut object = loader.load(OBJECT).map_err(|error| refused(&error))?;
        let fabric = Mapped::of::<Fabric>(&mut object, "FABRIC")?;
        let counts_bytes = processors * MOST_LINKS * size_of::<[u64; 4]>();
        let counts = Mapped::new(&mut object, "COUNTS", counts_bytes.next_multiple_of(4096))?;
        let wrong = |error: MapError| refused(&error);
        let mut take = |name: &str| object.take_map(name).expect("the program has this map");
        let (ways, rest) = (take("WAYS"), take("REST"));
        let mut relay = Self {
            object,
            tables: Arc::new(RelayTables { fabric, counts, processors }),
            ways: ways.try_into().map_err(wrong)?,
            rest: rest.try_into().map_err(wrong)?,
        };
        verify(|| relay.program().load()).map_err(|error| refused(&error))?;
        Ok(relay)
    }

    /// What the node and the program have in common.
    pub fn tables(&self) -> &Arc<RelayTables> {
        &self.tables
    }

    /// Says what a link is like. Before it joins ([`Port::relay_in_kernel`](crate::Port::relay_in_kernel)), and now and then, because
    /// an interface that was away for a moment is sent by no more.
    ///
    /// # Errors
    ///
    /// More than 256 links, or two whose interfaces' numbers differ by a multiple of 4,096: such a link must not join. The
    /// kernel may not know the interface, which is not sent by then.
    pub fn set_link(&mut self, number: u16, link: RelayLink) -> io::Result<()> {
        let fabric = self.tables.fabric();
        let (Some(words), place) = (fabric.links.get(usize::from(number)), link.interface as usize % PLACES)
        else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, format!("more than {MOST_LINKS} links")));
        };
        if words.interface.load(Ordering::Relaxed) != link.interface {
            // Until all is said, nobody relays from or to it.
            words.mode.store(0, Ordering::Release);
            words.sends.store(0, Ordering::Release);
            words.interface.store(link.interface, Ordering::Relaxed);
        }
        words.mtu.store(link.mtu, Ordering::Relaxed);
        let modes = |native: bool| XdpMode::Generic as u8 | if native { XdpMode::Native as u8 } else { 0 };
        let set = if link.sends { self.ways.set(number.into(), link.interface, None, 0) } else { Ok(()) };
        let sends = if link.sends && set.is_ok() { modes(link.sends_native) } else { 0 };
        words.sends_fragments.store(modes(link.sends_native_fragments), Ordering::Relaxed);
        words.sends.store(sends, Ordering::Release);
        let is_taken = |(other, words): (usize, &LinkWords)| {
            other != usize::from(number)
                && words.mode.load(Ordering::Relaxed) != 0
                && words.interface.load(Ordering::Relaxed) as usize % PLACES == place
        };
        if link.receives.is_some() && fabric.links.iter().enumerate().any(is_taken) {
            words.mode.store(0, Ordering::Release);
            let problem = format!("interface {} has the place of another link", link.interface);
            return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
        }
        if link.receives.is_some() {
            fabric.link_of[place].store(number as u8, Ordering::Relaxed);
        }
        words.mode.store(link.receives.map_or(0, |mode| mode as u8), Ordering::Release);
        set.map_err(|error| io::Error::other(error.to_string()))
    }

    fn program(&mut self) -> &mut Xdp {
        let program = self.object.program_mut("relay").expect("the object has this program");
        program.try_into().expect("it is an XDP program")
    }

    /// Runs the program on a frame, as if it came in by the loopback interface; for tests. Returns what the program says, and the
    /// frame then.
    ///
    /// # Errors
    ///
    /// The kernel has no test runs, or refuses the frame.
    pub fn test_run(&mut self, frame: &[u8]) -> io::Result<(u32, Vec<u8>)> {
        test_run(self.program(), frame)
    }
}

impl Stage for KernelRelay {
    fn program_fd(&mut self) -> io::Result<ProgramFd> {
        self.program().fd().map_err(io::Error::other)?.try_clone()
    }

    fn set_rest(&mut self, link: u16, program: &ProgramFd) -> io::Result<()> {
        self.rest.set(link.into(), program, 0).map_err(map_error)
    }
}

impl std::fmt::Debug for KernelRelay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelRelay").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Links;
    use crate::testing::{in_namespace, ip, veth_pair};

    const REDIRECTED: u32 = 4;
    const LEFT: u32 = 2;

    /// To node 2, over nobody, of node 0 in cluster 0, with hops left.
    const FRAME: [u8; 64] = {
        let mut frame = [0; 64];
        let header = [0x02, 0x00, 0xbf, 0xf0, 0, 0, 0x02, 0, 5, 0, 0, 0];
        let mut at = 0;
        while at < header.len() {
            frame[at] = header[at];
            at += 1;
        }
        frame
    };

    #[test]
    fn frames_to_an_interface_that_is_gone_go_on_as_they_came() {
        in_namespace(|| {
            veth_pair("out", "far");
            let interface = Links::ask().unwrap().named("out").unwrap().index;
            let like = RelayLink {
                interface: 1,
                mtu: 1500,
                receives: Some(XdpMode::Native),
                sends: false,
                sends_native: true,
                sends_native_fragments: true,
            };
            let mut relay = KernelRelay::load(1, 0).unwrap();
            relay.set_link(0, like).unwrap();
            let way_out = RelayLink { interface, receives: None, sends: true, ..like };
            relay.set_link(1, way_out).unwrap();
            relay.tables().set_believed(0, true);
            relay.tables().set_towards(2, &[1]);
            assert_eq!(relay.test_run(&FRAME).unwrap().0, REDIRECTED);
            ip("link del out");
            assert_eq!(relay.test_run(&FRAME).unwrap(), (LEFT, FRAME.to_vec()));
            assert_eq!(relay.tables().traffic(1).tx_packets, 1);
            assert!(relay.set_link(1, way_out).is_err());
            // It is there again, with its old number.
            ip(&format!("link add out index {interface} type veth peer name far"));
            ip("link set out up");
            assert_eq!(relay.test_run(&FRAME).unwrap().0, LEFT);
            relay.set_link(1, way_out).unwrap();
            assert_eq!(relay.test_run(&FRAME).unwrap().0, REDIRECTED);
        });
    }
}
