//! The BPF programs by which an AF_PACKET port and the kernel share an interface's packets (`bpf/steer_skb.c`).
//!
//! The kernel copies every packet to our sockets and goes on with it. A filter on each socket leaves out what is the
//! host's, and a program right behind the sockets (tcx) ends the kernel's way for what is ours. It is there as long as
//! one of the receive queues: when the last goes, it goes first, and from then on the kernel forwards.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, Weak};

use aya::maps::{Array, MapData, MapError};
use aya::programs::SocketFilter;
use aya::programs::links::FdLink;
use aya::{Ebpf, EbpfError, include_bytes_aligned};

use crate::{KernelForwarding, PortError};
use crate::af_packet::lock;
use crate::bpf::{Counters, LocalAddresses, Stations, Steered, Vlans, addresses_error, attach_at_ingress, classifier, clients_error, esp_error, load, load_error, loader, map_error, stations_error, verify, vlans_error};
use crate::host::passage::{self, Passage};
use crate::host_steering::{HostSteering, Station, VlanId, VlanShare};
use crate::interface::{kernel_name, namespace};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/steer_skb.o"));

/// Both programs.
pub(super) struct Screen {
    port: String,
    programs: Mutex<Programs>,
    counters: Counters,
}

struct Programs {
    attached: Option<Attached>,
    /// How often it was taken off an interface that was away.
    times_off: u64,
    local: LocalAddresses,
    vlans: Vlans,
    stations: Stations,
    /// The longest frame that the sockets hold.
    longest: Array<MapData, u32>,
    object: Ebpf,
}

/// The program behind the sockets, on the interface with this number.
struct Attached {
    index: i32,
    _link: FdLink,
    _passage: passage::Entry,
}

impl Screen {
    /// Loads the programs. Needs CAP_BPF and CAP_NET_ADMIN.
    pub(super) fn load(port: &str) -> Result<Self, PortError> {
        let mut object = load(port, &mut loader(), OBJECT)?;
        let (local, counters) = (LocalAddresses::of(port, &mut object)?, Counters::of(port, &mut object)?);
        let (vlans, stations) = (Vlans::of(port, &mut object)?, Stations::of(port, &mut object)?);
        let longest = object.take_map("LONGEST").expect("the program has this map");
        let longest = longest.try_into().map_err(|error: MapError| load_error(port, &error))?;
        classifier(port, &mut object, "screen")?;
        let filter: &mut SocketFilter = program(&mut object);
        verify(|| filter.load()).map_err(|error| load_error(port, &EbpfError::from(error)))?;
        Ok(Self {
            port: port.to_owned(),
            programs: Mutex::new(Programs { attached: None, times_off: 0, local, vlans, stations, longest, object }),
            counters,
        })
    }

    /// Has a socket receive only what is ours. To be called before it receives anything.
    pub(super) fn filter(&self, socket: &OwnedFd) -> io::Result<()> {
        let mut programs = lock(&self.programs);
        program(&mut programs.object).attach(socket).map_err(crate::bpf::program_io_error)
    }

    /// Says how long frames may be, without a tag that stands beside them; longer ones are the kernel's.
    pub(super) fn hold(&self, bytes: usize) -> io::Result<()> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        lock(&self.programs).longest.set(0, bytes, 0).map_err(map_error)
    }

    /// Has the kernel drop what is ours, on the interface with this number.
    pub(super) fn attach(&self, index: i32) -> Result<(), PortError> {
        let Programs { attached, local, object, .. } = &mut *lock(&self.programs);
        if attached.as_ref().is_some_and(|attached| attached.index == index) {
            return Ok(());
        }
        local.ask().map_err(|error| addresses_error(&self.port, error))?;
        // Known before it is attached, so that no frame of a `host:` port comes back.
        let passage = passage::enter(namespace(), index as u32, Passage::Marked);
        let screen = object.program_mut("screen").expect("the object has this program");
        let screen = screen.try_into().expect("it is a classifier");
        let link = attach_at_ingress(&self.port, screen, &kernel_name(&self.port))?;
        *attached = Some(Attached { index, _link: link, _passage: passage });
        Ok(())
    }

    /// Takes the program off its interface, which is or was away, for the first of the queues that see it: each knows of `seen` times.
    pub(super) fn detach(&self, seen: &mut u64) {
        let programs = &mut *lock(&self.programs);
        if programs.times_off == *seen {
            programs.attached = None;
            programs.times_off += 1;
        }
        *seen = programs.times_off;
    }

    #[cfg(test)]
    pub(super) fn set_local_addresses(&self, addresses: &[IpAddr]) {
        lock(&self.programs).local.set(addresses).unwrap();
    }

    #[cfg(test)]
    pub(super) fn take_esp(&self, takes: bool) {
        lock(&self.programs).local.take_esp(takes).unwrap();
    }

    #[cfg(test)]
    pub(super) fn set_stations(&self, stations: &[Station]) {
        lock(&self.programs).stations.set(stations).unwrap();
    }

    #[cfg(test)]
    pub(super) fn leave_clients(&self, leaves: bool) {
        lock(&self.programs).local.leave_clients(leaves).unwrap();
    }

    #[cfg(test)]
    pub(super) fn set_vlans(&self, vlans: &[(VlanId, VlanShare)]) {
        lock(&self.programs).vlans.set(vlans).unwrap();
    }

    /// Whether the program behind the sockets takes a frame for ours that comes in by the interface with this number.
    /// (The filter has no link header in such a test. It calls the same function.)
    #[cfg(test)]
    pub(super) fn is_ours(&self, index: u32, frame: &[u8]) -> bool {
        use aya::{TestRun, TestRunOptions};
        // struct __sk_buff of linux/bpf.h: the number of the interface is its eleventh word.
        let mut context = [0; 192];
        context[40..44].copy_from_slice(&index.to_ne_bytes());
        let options =
            TestRunOptions { data_in: Some(frame), ctx_in: Some(&context), ..TestRunOptions::new() };
        let mut programs = lock(&self.programs);
        let screen = programs.object.program_mut("screen").expect("the object has this program");
        let screen: &mut aya::programs::SchedClassifier = screen.try_into().expect("it is a classifier");
        // enum { NEXT, DROP } of bpf/bpf.h.
        screen.test_run(options).unwrap().return_value == 2
    }

    /// Packets so far.
    pub(super) fn steered(&self) -> Steered {
        self.counters.steered()
    }
}

fn program(object: &mut Ebpf) -> &mut SocketFilter {
    let filter = object.program_mut("filter").expect("the object has this program");
    filter.try_into().expect("it is a socket filter")
}

/// The port's hold on the programs, which go with the queues.
pub(super) struct ScreenOf(pub(super) Weak<Screen>);

impl ScreenOf {
    pub(super) fn steered(&self) -> Option<Steered> {
        self.0.upgrade().map(|screen| screen.steered())
    }
}

impl HostSteering for ScreenOf {
    fn set_local_addresses(&mut self, addresses: &[IpAddr]) -> Result<(), PortError> {
        let Some(screen) = self.0.upgrade() else { return Ok(()) };
        let set = lock(&screen.programs).local.set(addresses);
        set.map_err(|error| addresses_error(&screen.port, error))
    }

    fn take_esp(&mut self, takes: bool) -> Result<(), PortError> {
        let Some(screen) = self.0.upgrade() else { return Ok(()) };
        lock(&screen.programs).local.take_esp(takes).map_err(|error| esp_error(&screen.port, error))
    }

    fn set_vlans(&mut self, vlans: &[(VlanId, VlanShare)]) -> Result<(), PortError> {
        let Some(screen) = self.0.upgrade() else { return Ok(()) };
        lock(&screen.programs).vlans.set(vlans).map_err(|error| vlans_error(&screen.port, error))
    }

    fn set_stations(&mut self, stations: &[Station]) -> Result<(), PortError> {
        let Some(screen) = self.0.upgrade() else { return Ok(()) };
        lock(&screen.programs).stations.set(stations).map_err(|error| stations_error(&screen.port, error))
    }

    fn give_way(&mut self, gives: bool) -> Result<(), PortError> {
        let Some(screen) = self.0.upgrade() else { return Ok(()) };
        lock(&screen.programs).stations.give_way(gives).map_err(|error| stations_error(&screen.port, error))
    }

    fn leave_clients(&mut self, leaves: bool) -> Result<(), PortError> {
        let Some(screen) = self.0.upgrade() else { return Ok(()) };
        let left = lock(&screen.programs).local.leave_clients(leaves);
        left.map_err(|error| clients_error(&screen.port, error))
    }

    fn forward_in_kernel(
        &mut self,
        _forwarding: &mut KernelForwarding,
        _port: u16,
        _rest_is_linux: bool,
    ) -> Result<(), PortError> {
        let port = self.0.upgrade().map_or_else(String::new, |screen| screen.port.clone());
        let problem = "packets come to it by no XDP program; use the driver af_xdp".to_owned();
        Err(PortError::Unsupported { port, problem })
    }

    /// Nothing: they are.
    fn forward_here(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    /// Nothing: the kernel says of each packet whether it is to the interface's address, and whether it was merged.
    fn follow_link(&mut self) -> Result<(), PortError> {
        // The name that it has now is that by which another one may take its place.
        if let Some(screen) = self.0.upgrade() {
            kernel_name(&screen.port);
        }
        Ok(())
    }
}
