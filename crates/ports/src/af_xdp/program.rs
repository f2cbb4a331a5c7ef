//! The BPF program that says whose a packet is (`bpf/steer.c`): loaded, attached, filled with sockets and addresses.
//!
//! It is attached by a BPF link (Linux 5.9), which lives as long as its file descriptor: however this process ends, the
//! kernel takes the program off the interface, and the interface is as it was.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use aya::maps::{HashMap, MapData, MapError, PerCpuArray, XskMap};
use aya::programs::links::FdLink;
use aya::programs::{ProgramError, Xdp, XdpMode};
use aya::{Ebpf, EbpfError, EbpfLoader, include_bytes_aligned};

use crate::PortError;

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/steer.o"));

/// Which packets are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Steer {
    /// All of them.
    All,
    /// Those that the kernel need not see: see `bpf/steer.c`.
    Transit,
}

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// In the interface's driver.
    Native,
    /// In the kernel's stack: every interface can, and it costs more.
    Generic,
}

/// Packets that the program has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Steered {
    pub(super) to_sockets: u64,
    pub(super) to_kernel: u64,
}

/// The loaded program and its maps.
pub(super) struct Program {
    // The link before the program: detached first.
    link: Option<FdLink>,
    sockets: XskMap<MapData>,
    local: HashMap<MapData, Address, u8>,
    packets: PerCpuArray<MapData, u64>,
    object: Ebpf,
}

/// An IPv6 address, or an IPv4 one as ::ffff:a.b.c.d.
type Address = [u8; 16];

fn address(address: IpAddr) -> Address {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

impl Program {
    /// Loads the program for an interface with up to `queues` queues. Needs CAP_BPF and CAP_NET_ADMIN.
    pub(super) fn load(port: &str, queues: usize, steer: Steer) -> Result<Self, PortError> {
        let transit = u8::from(steer == Steer::Transit);
        let queues = u32::try_from(queues).unwrap_or(u32::MAX);
        let failed = |error: EbpfError| load_error(port, &error);
        let mut object = EbpfLoader::new()
            .override_global("TRANSIT", &transit, true)
            .map_max_entries("SOCKETS", queues)
            .load(OBJECT)
            .map_err(failed)?;
        let mut take = |name: &str| object.take_map(name).expect("the program has this map");
        let maps = (take("SOCKETS"), take("LOCAL"), take("PACKETS"));
        let wrong = |error: MapError| failed(error.into());
        let mut program = Self {
            link: None,
            sockets: maps.0.try_into().map_err(wrong)?,
            local: maps.1.try_into().map_err(wrong)?,
            packets: maps.2.try_into().map_err(wrong)?,
            object,
        };
        program.xdp().load().map_err(|error| failed(error.into()))?;
        Ok(program)
    }

    fn xdp(&mut self) -> &mut Xdp {
        let program = self.object.program_mut("steer").expect("the object has this program");
        program.try_into().expect("it is an XDP program")
    }

    /// Attaches the program to an interface, instead of the one it was attached to.
    pub(super) fn attach(&mut self, index: u32, mode: Mode) -> io::Result<()> {
        self.link = None;
        let mode = match mode {
            Mode::Native => XdpMode::Driver,
            Mode::Generic => XdpMode::Skb,
        };
        let program = self.xdp();
        let id = program.attach_to_if_index(index, mode).map_err(attach_error)?;
        let link = program.take_link(id).map_err(attach_error)?;
        // A kernel without BPF links got the program by netlink, where it would stay after us; dropping takes it off.
        let link = FdLink::try_from(link)
            .map_err(|_| io::Error::new(io::ErrorKind::Unsupported, "Linux 5.9 or newer is needed"))?;
        self.link = Some(link);
        Ok(())
    }

    /// Gives the packets of a queue to a socket, until that is closed.
    pub(super) fn add_socket(&mut self, queue: u32, socket: &impl AsRawFd) -> io::Result<()> {
        self.sockets.set(queue, socket.as_raw_fd(), 0).map_err(map_error)
    }

    /// Leaves the packets of a queue to the kernel.
    pub(super) fn remove_socket(&mut self, queue: u32) {
        // An error means that there is none: the kernel takes a closed one out itself.
        let _ = self.sockets.unset(queue);
    }

    /// Says which addresses are the host's own, instead of those said before.
    pub(super) fn set_local_addresses(&mut self, addresses: &[IpAddr]) -> io::Result<()> {
        let addresses: Vec<Address> = addresses.iter().copied().map(address).collect();
        let known: Vec<Address> = self.local.keys().collect::<Result<_, _>>().map_err(map_error)?;
        for key in addresses.iter().filter(|key| !known.contains(key)) {
            self.local.insert(key, 0, 0).map_err(map_error)?;
        }
        for key in known.iter().filter(|key| !addresses.contains(key)) {
            self.local.remove(key).map_err(map_error)?;
        }
        Ok(())
    }

    /// Packets so far.
    pub(super) fn steered(&self) -> Steered {
        // enum { STEERED, LEFT } of bpf/steer.c
        let sum = |index: u32| self.packets.get(&index, 0).map_or(0, |values| values.iter().sum());
        Steered { to_sockets: sum(0), to_kernel: sum(1) }
    }
}

fn map_error(error: MapError) -> io::Error {
    match error {
        MapError::SyscallError(error) => error.io_error,
        MapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

fn attach_error(error: ProgramError) -> io::Error {
    match error {
        ProgramError::SyscallError(error) => error.io_error,
        other => io::Error::other(other),
    }
}

/// What the kernel said, through the layers of errors.
fn load_error(port: &str, error: &EbpfError) -> PortError {
    let mut reason: &dyn std::error::Error = error;
    let mut errno = None;
    let mut text = reason.to_string();
    loop {
        if let Some(error) = reason.downcast_ref::<io::Error>() {
            errno = error.raw_os_error();
        }
        let Some(source) = reason.source() else { break };
        reason = source;
        text = format!("{text}: {reason}");
    }
    match errno {
        Some(libc::EPERM | libc::EACCES) => PortError::NotPermitted {
            port: port.to_owned(),
            what: "load a BPF program",
            capability: "CAP_BPF and CAP_NET_ADMIN",
        },
        _ => PortError::Unsupported {
            port: port.to_owned(),
            problem: format!(
                "the kernel did not take the BPF program ({text}); Linux 5.9 or newer is needed"
            ),
        },
    }
}
