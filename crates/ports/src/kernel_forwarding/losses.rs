//! Packets that were redirected in the kernel and left by no interface: the program `bpf/losses.c` counts them by port.

use std::fs::metadata;
use std::io;
use std::os::unix::fs::MetadataExt;

use aya::maps::{HashMap, MapData, PerCpuArray};
use aya::programs::BtfTracePoint;
use aya::{Btf, Ebpf, Pod, include_bytes_aligned};

use super::{MOST_PORTS, refused};
use crate::bpf::{loader, map_error};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/losses.o"));

/// The programs and the tracepoints of the kernel where they run.
const PROGRAMS: [(&str, &str); 2] =
    [("count_untaken", "xdp_devmap_xmit"), ("count_unsent", "xdp_redirect_err")];

/// Packets to a port that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct KernelLosses {
    /// The port's driver had no room for them.
    pub full: u64,
    /// The port's driver refused to send: it cannot send redirected packets now, or not by this processor.
    pub refused: u64,
    /// They did not get to the driver: the interface was down, or a packet was too long for it.
    pub unsent: u64,
}

// SAFETY: three numbers, of which all bit patterns are values.
#[allow(unsafe_code, reason = "an unsafe trait")]
unsafe impl Pod for KernelLosses {}

impl KernelLosses {
    /// Returns all of them.
    pub const fn total(&self) -> u64 {
        self.full + self.refused + self.unsent
    }

    /// Returns the packets by reason, in words.
    pub const fn by_reason(&self) -> [(&'static str, u64); 3] {
        [
            ("transmit queue full", self.full),
            ("driver refused redirected packets", self.refused),
            ("link down, or packet longer than its MTU", self.unsent),
        ]
    }
}

/// `struct interface` of the program.
#[derive(Clone, Copy)]
#[repr(C)]
struct Interface {
    namespace: u32,
    number: u32,
}

// SAFETY: two numbers, of which all bit patterns are values.
#[allow(unsafe_code, reason = "an unsafe trait")]
unsafe impl Pod for Interface {}

/// Counts packets that are lost behind [`KernelForwarding`](super::KernelForwarding), as long as it lives.
pub struct LossCounter {
    ports: HashMap<MapData, Interface, u32>,
    losses: PerCpuArray<MapData, KernelLosses>,
    /// Keeps the programs at their tracepoints.
    _object: Ebpf,
}

impl LossCounter {
    /// Begins to count. Needs CAP_BPF and CAP_PERFMON, Linux 6.6 with the types of its structures (BTF).
    ///
    /// # Errors
    ///
    /// The kernel refuses the programs, or does not describe its structures.
    pub fn load() -> io::Result<Self> {
        let types = Btf::from_sys_fs().map_err(|error| refused(&error))?;
        let mut object = loader().btf(Some(&types)).load(OBJECT).map_err(|error| refused(&error))?;
        for (name, tracepoint) in PROGRAMS {
            let program = object.program_mut(name).expect("the object has this program");
            let program: &mut BtfTracePoint = program.try_into().expect("it is for a tracepoint");
            program.load(tracepoint, &types).map_err(|error| refused(&error))?;
            program.attach().map_err(|error| refused(&error))?;
        }
        let mut take = |name: &str| object.take_map(name).expect("the program has this map");
        let (ports, losses) = (take("PORTS"), take("LOSSES"));
        let wrong = |error| refused(&error);
        Ok(Self {
            ports: ports.try_into().map_err(wrong)?,
            losses: losses.try_into().map_err(wrong)?,
            _object: object,
        })
    }

    /// Sets the ports: the number of each one's interface in this thread's network namespace, and of the port. They replace
    /// those of the last call.
    ///
    /// # Errors
    ///
    /// More than 256 ports.
    pub fn set_ports(&mut self, ports: impl Iterator<Item = (u32, u16)>) -> io::Result<()> {
        let namespace = metadata("/proc/thread-self/ns/net")?.ino() as u32;
        let known: Vec<Interface> = self.ports.keys().flatten().collect();
        known.iter().try_for_each(|interface| self.ports.remove(interface)).map_err(map_error)?;
        for (number, port) in ports {
            let interface = Interface { namespace, number };
            self.ports.insert(interface, u32::from(port), 0).map_err(map_error)?;
        }
        Ok(())
    }

    /// Returns what was lost on the way to the port of this number.
    ///
    /// # Errors
    ///
    /// Not expected of a port whose number is below 256.
    pub fn losses(&self, port: u16) -> io::Result<KernelLosses> {
        debug_assert!(usize::from(port) < MOST_PORTS, "a port has a number below {MOST_PORTS}");
        let each = self.losses.get(&port.into(), 0).map_err(map_error)?;
        Ok(each.iter().fold(KernelLosses::default(), |sum, cpu| KernelLosses {
            full: sum.full + cpu.full,
            refused: sum.refused + cpu.refused,
            unsent: sum.unsent + cpu.unsent,
        }))
    }
}

impl std::fmt::Debug for LossCounter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LossCounter").finish_non_exhaustive()
    }
}
