//! The BPF program that says whose a packet is (`bpf/steer.c`): loaded, attached, filled with sockets and addresses.
//!
//! It is attached by a BPF link (Linux 5.9), which lives as long as its file descriptor: however this process ends, the
//! kernel takes the program off the interface, and the interface is as it was.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use aya::maps::{Array, MapData, MapError, ProgramArray, XskMap};
use aya::programs::links::FdLink;
use aya::programs::{ProgramFd, Xdp};
use aya::{Ebpf, EbpfError, include_bytes_aligned};
use packet::wire::ethernet::MacAddr;

use crate::{KernelForwarding, PortError, XdpMode};
use crate::bpf::{
    Counters, LocalAddresses, OwnSources, Stations, Vlans, attach_at_egress, attach_at_ingress, classifier, load, load_error, loader, map_error,
    program_io_error, verify,
};
use crate::error::missing_resource;
use crate::host::passage;
use crate::host_steering::Steer;

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/steer.o"));

/// The programs of the object: those that are attached, and behind them the one that gives packets to sockets and the one that leaves
/// them to Linux.
const STEER: &str = "steer";
const TO_SOCKET: &str = "to_socket";
const STEER_TC: &str = "steer_tc";
const TO_REST: &str = "to_rest";
const RECEIVED_ONLY: &str = "received_only";
/// Places in `FORWARD`.
const MOVES: u32 = 0;
const SEES: u32 = 1;

/// A program that moves packets in the kernel before they get to sockets, for several ports.
pub(crate) trait Stage {
    /// The program, for those who jump to it.
    fn program_fd(&mut self) -> io::Result<ProgramFd>;

    /// The program that sees what the steering program leaves to Linux, if there is one.
    fn seer_fd(&mut self) -> io::Result<Option<ProgramFd>> {
        Ok(None)
    }

    /// Says where packets go that came in by the port of this number and that the program leaves.
    fn set_rest(&mut self, port: u16, program: &ProgramFd) -> io::Result<()>;
}

/// The loaded program and its maps.
pub(super) struct Program {
    // The links before the programs: detached first.
    link: Option<FdLink>,
    tc: Option<FdLink>,
    sockets: XskMap<MapData>,
    interface: Array<MapData, InterfaceEntry>,
    forward: ProgramArray<MapData>,
    forward_tc: ProgramArray<MapData>,
    /// `struct rest` of the program: in tc, whose is what no program forwards.
    rest: Array<MapData, u64>,
    rest_owner: Option<RestOwner>,
    /// Whether there is a program in `forward`.
    moves_in_kernel: bool,
    /// The host's own addresses.
    pub(super) local: LocalAddresses,
    /// What is ours of which VLANs.
    pub(super) vlans: Vlans,
    /// Addresses from which nobody sends.
    pub(super) own_sources: OwnSources,
    /// Further link addresses.
    pub(super) stations: Stations,
    counters: Arc<Counters>,
    object: Ebpf,
}

/// Whose is what a program in tc does not forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RestOwner {
    /// Linux's: nobody here has to see it, and Linux does the same with it.
    Linux,
    /// The router's, by the TAP device of this number.
    Router(u32),
}

/// `struct link` of the program: link address, whether it leaves unfinished checksums, an unused byte, MTU.
type InterfaceEntry = [u8; 12];

impl Program {
    /// Loads the program for an interface with up to `queues` queues. Needs CAP_BPF and CAP_NET_ADMIN.
    pub(super) fn load(port: &str, queues: usize, steer: Steer) -> Result<Self, PortError> {
        let (transit, seal) = (u8::from(steer == Steer::Transit), passage::seal());
        let queues = u32::try_from(queues).unwrap_or(u32::MAX);
        let mut loader = loader();
        loader
            .override_global("TRANSIT", &transit, true)
            .override_global("SEAL", &seal, true)
            .map_max_entries("SOCKETS", queues);
        let mut object = load(port, &mut loader, OBJECT)?;
        let mut take = |name: &str| object.take_map(name).expect("the program has this map");
        let maps = (take("SOCKETS"), take("LINK"), take("FORWARD"), take("FORWARD_TC"), take("REST"));
        let wrong = |error: MapError| load_error(port, &error);
        let mut program = Self {
            link: None,
            tc: None,
            sockets: maps.0.try_into().map_err(wrong)?,
            interface: maps.1.try_into().map_err(wrong)?,
            forward: maps.2.try_into().map_err(wrong)?,
            forward_tc: maps.3.try_into().map_err(wrong)?,
            rest: maps.4.try_into().map_err(wrong)?,
            rest_owner: None,
            moves_in_kernel: false,
            local: LocalAddresses::of(port, &mut object)?,
            vlans: Vlans::of(port, &mut object)?,
            own_sources: OwnSources::of(port, &mut object)?,
            stations: Stations::of(port, &mut object)?,
            counters: Arc::new(Counters::of(port, &mut object)?),
            object,
        };
        for name in [STEER, TO_SOCKET] {
            verify(|| program.xdp(name).load()).map_err(|error| load_error(port, &EbpfError::from(error)))?;
        }
        Ok(program)
    }

    fn xdp(&mut self, name: &str) -> &mut Xdp {
        let program = self.object.program_mut(name).expect("the object has this program");
        program.try_into().expect("it is an XDP program")
    }

    /// Hands what is ours to a program that moves it in the kernel, which leaves the rest to the sockets.
    pub(super) fn forward_by(&mut self, stage: &mut dyn Stage, port: u16) -> io::Result<()> {
        let to_socket = self.xdp(TO_SOCKET).fd().map_err(io::Error::other)?;
        stage.set_rest(port, to_socket)?;
        if let Some(seer) = stage.seer_fd()? {
            self.forward.set(SEES, &seer, 0).map_err(map_error)?;
        }
        self.forward.set(MOVES, &stage.program_fd()?, 0).map_err(map_error)?;
        self.moves_in_kernel = true;
        Ok(())
    }

    /// Hands what is ours to a program that forwards by tables, in the place where this one is.
    pub(super) fn forward_by_tables(
        &mut self,
        name: &str,
        forwarding: &mut KernelForwarding,
        port: u16,
    ) -> Result<(), PortError> {
        let failed = |error| PortError::system(name, "joining the forwarding in the kernel", error);
        if !self.is_in_tc() {
            return self.forward_by(forwarding, port).map_err(failed);
        }
        let to_rest = classifier(name, &mut self.object, TO_REST)?.fd().map_err(io::Error::other);
        forwarding.set_rest_tc(port, to_rest.map_err(failed)?).map_err(failed)?;
        let [forward, see] = forwarding.tc_fds().map_err(failed)?;
        self.forward_tc.set(SEES, &see, 0).map_err(|error| failed(map_error(error)))?;
        self.forward_tc.set(MOVES, &forward, 0).map_err(|error| failed(map_error(error)))?;
        self.moves_in_kernel = true;
        Ok(())
    }

    /// Says in tc whose is what no program forwards.
    pub(super) fn set_rest(&mut self, owner: RestOwner) -> io::Result<()> {
        let [number, device] = match owner {
            RestOwner::Linux => [1, 0],
            RestOwner::Router(device) => [2, device],
        };
        self.rest_owner = Some(owner);
        self.rest.set(0, u64::from(device) << 32 | u64::from(number), 0).map_err(map_error)
    }

    /// Nobody has said in tc whose the rest is.
    pub(super) fn forget_rest(&mut self) -> io::Result<()> {
        self.rest_owner = None;
        self.rest.set(0, 0, 0).map_err(map_error)
    }

    /// Whether this program is in tc, and nobody has said whose the rest is there.
    pub(super) fn is_rest_unassigned(&self) -> bool {
        self.rest_owner.is_none() && self.is_in_tc()
    }

    /// Whether the router has the rest in tc.
    pub(super) fn has_rest_in_tc(&self) -> bool {
        self.is_in_tc() && matches!(self.rest_owner, Some(RestOwner::Router(_)))
    }

    /// Has the kernel send by this interface, which is ours, nothing but what others have received.
    pub(super) fn guard_rest(&mut self, port: &str, interface: &str) -> Result<FdLink, PortError> {
        attach_at_egress(port, classifier(port, &mut self.object, RECEIVED_ONLY)?, interface)
    }

    /// Whether packets are steered in tc.
    pub(super) fn is_in_tc(&self) -> bool {
        self.tc.is_some()
    }

    /// Takes the program off tc.
    pub(super) fn detach_tc(&mut self) {
        self.tc = None;
    }

    /// Whether packets are handed to such a program.
    pub(super) fn moves_in_kernel(&self) -> bool {
        self.moves_in_kernel
    }

    /// Hands all that is ours to the sockets.
    pub(super) fn forward_nothing(&mut self) -> io::Result<()> {
        self.moves_in_kernel = false;
        clear(&mut self.forward).and(clear(&mut self.forward_tc))
    }

    /// Takes the programs off their interface.
    pub(super) fn detach(&mut self) {
        (self.link, self.tc) = (None, None);
    }

    /// Attaches the program in tc of an interface, instead of the one it was attached to.
    pub(super) fn attach_tc(&mut self, port: &str, interface: &str) -> Result<(), PortError> {
        self.tc = None;
        self.tc = Some(attach_at_ingress(port, classifier(port, &mut self.object, STEER_TC)?, interface)?);
        Ok(())
    }

    /// Attaches the program to an interface, instead of the one it was attached to.
    pub(super) fn attach(&mut self, index: u32, mode: XdpMode) -> io::Result<()> {
        self.link = None;
        let mode = match mode {
            XdpMode::Native => aya::programs::XdpMode::Driver,
            XdpMode::Generic => aya::programs::XdpMode::Skb,
        };
        let program = self.xdp(STEER);
        let id = program.attach_to_if_index(index, mode).map_err(program_io_error)?;
        let link = program.take_link(id).map_err(program_io_error)?;
        // A kernel without BPF links got the program by netlink, where it would stay after us; dropping takes it off.
        let link = FdLink::try_from(link).map_err(|_| {
            let needed = || "Linux 5.9 or newer is needed".to_owned();
            io::Error::new(io::ErrorKind::Unsupported, missing_resource(None).unwrap_or_else(needed))
        })?;
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

    /// Says what the interface is like.
    pub(super) fn set_interface(
        &mut self,
        mac: MacAddr,
        mtu: usize,
        leaves_unfinished: bool,
    ) -> io::Result<()> {
        let mut entry = InterfaceEntry::default();
        entry[..6].copy_from_slice(&mac.0);
        entry[6] = leaves_unfinished.into();
        let mtu = u32::try_from(mtu).unwrap_or(u32::MAX);
        entry[8..].copy_from_slice(&mtu.to_ne_bytes());
        self.interface.set(0, entry, 0).map_err(map_error)
    }

    /// Whether the program gives a frame to a socket; it needs one for queue 0.
    #[cfg(test)]
    pub(super) fn is_ours(&mut self, frame: &[u8]) -> bool {
        use aya::{TestRun, TestRunOptions};
        let options = TestRunOptions { data_in: Some(frame), ..TestRunOptions::new() };
        self.xdp(STEER).test_run(options).unwrap().return_value == 4 // XDP_REDIRECT
    }

    /// Has this program run in tc behind the one that steers.
    #[cfg(test)]
    pub(super) fn hand_to_in_tc(&mut self, program: &ProgramFd) {
        self.forward_tc.set(MOVES, program, 0).unwrap();
    }

    /// What is said in tc of a frame.
    #[cfg(test)]
    pub(super) fn said_in_tc(&mut self, frame: &[u8]) -> u32 {
        crate::bpf::test_run(classifier("", &mut self.object, STEER_TC).unwrap(), frame).unwrap().0
    }

    /// What counts its packets.
    pub(super) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }
}

/// Hands packets to no program any more; there may be none.
fn clear(programs: &mut ProgramArray<MapData>) -> io::Result<()> {
    for place in [MOVES, SEES] {
        match programs.clear_index(&place).map_err(map_error) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Another program is in the way.
pub(super) fn in_the_way(name: &str, program: Option<u32>) -> PortError {
    let which =
        program.map_or_else(String::new, |id| format!(" (number {id}, see `bpftool prog show id {id}`)"));
    PortError::InUse {
        port: name.to_owned(),
        user: format!(
            "another XDP program{which}: end the program that attached it, or take it off with \
             `ip link set dev {name} xdp off`"
        ),
    }
}

/// Why the program could not be attached in this mode.
pub(super) fn attach_error(name: &str, mode: XdpMode, veth: bool, error: io::Error) -> PortError {
    if let Some(shortage) = missing_resource(error.raw_os_error()) {
        return PortError::Shortage { port: name.to_owned(), action: "attaching the XDP program", shortage };
    }
    match (error.raw_os_error(), mode) {
        (Some(libc::EBUSY | libc::EEXIST), _) => in_the_way(name, None),
        (Some(libc::EPERM), _) => PortError::NotPermitted {
            port: name.to_owned(),
            what: "attach an XDP program",
            capability: "CAP_BPF and CAP_NET_ADMIN",
        },
        (_, XdpMode::Native) => PortError::Unsupported {
            port: name.to_owned(),
            problem: format!("native {}; or use `mode=generic`", native_problem(veth, &error)),
        },
        _ => PortError::system(name, "attaching the XDP program", error),
    }
}

/// Why there is no native XDP, and what would help.
pub(super) fn native_problem(veth: bool, error: &io::Error) -> String {
    match error.raw_os_error() {
        // drivers/net/veth.c, veth_xdp_set().
        Some(libc::ERANGE) => "XDP is not possible with this MTU; lower it, for a veth at its other end".to_owned(),
        Some(libc::ENOSPC) if veth => {
            "XDP on a veth needs as many receive queues here as the other end has transmit queues; see `ethtool -L`"
                .to_owned()
        }
        Some(libc::EOPNOTSUPP) => "XDP is not known to the interface's driver".to_owned(),
        _ => format!("XDP is refused by the interface's driver ({error})"),
    }
}
