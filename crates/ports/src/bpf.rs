//! BPF programs (`bpf/`): how they are loaded and attached, and the maps that both steering programs have.
//!
//! All are attached by BPF links, which live as long as their file descriptors: however this process ends, the kernel
//! takes its programs off.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use aya::maps::{Array, HashMap, MapData, MapError, PerCpuArray};
use aya::programs::links::{FdLink, LinkOrder};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{ProgramError, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfError, EbpfLoader, TestRun, TestRunOptions, TestRunResult, VerifierLogLevel};
use packet::wire::ethernet::MacAddr;

use crate::error::missing_resource;
use crate::host_steering::{
    AddressKey, MOST_STATIONS, Station, VlanId, VlanShare, addresses_of_namespace, key_of,
};
use crate::{Event, PortError, QueueStats};

/// Makes what loads objects. The verifier tells why it refuses a program, and not each step: where a signal interrupts it, a program
/// is loaded again with a log, once for each size that was too small.
pub(crate) fn loader<'a>() -> EbpfLoader<'a> {
    let mut loader = EbpfLoader::new();
    loader.verifier_log_level(VerifierLogLevel::STATS);
    loader
}

/// Loads an object of `bpf/`; its programs are loaded one by one. Needs CAP_BPF and CAP_NET_ADMIN.
pub(crate) fn load(port: &str, loader: &mut EbpfLoader<'_>, object: &[u8]) -> Result<Ebpf, PortError> {
    loader.load(object).map_err(|error| load_error(port, &error))
}

/// Loads a program by `load`, which is called again where a signal to this thread interrupted the verifier.
pub(crate) fn verify(mut load: impl FnMut() -> Result<(), ProgramError>) -> Result<(), ProgramError> {
    const MOST_TRIES: usize = 20;
    for _ in 1..MOST_TRIES {
        match load() {
            Err(ProgramError::LoadError { io_error, .. })
                if io_error.raw_os_error() == Some(libc::EAGAIN) => {}
            result => return result,
        }
    }
    load()
}

/// Runs a program on a frame, as if it came in by the loopback interface. Returns what the program says, and the frame then.
pub(crate) fn test_run<P>(program: &mut P, frame: &[u8]) -> io::Result<(u32, Vec<u8>)>
where
    P: for<'a> TestRun<Opts<'a> = TestRunOptions<'a>, Result = TestRunResult>,
{
    let mut out = vec![0; frame.len() + 64];
    let options = TestRunOptions { data_in: Some(frame), data_out: Some(&mut out), ..TestRunOptions::new() };
    let result = program.test_run(options).map_err(io::Error::other)?;
    out.truncate(result.data_size_out as usize);
    Ok((result.return_value, out))
}

/// Returns why the kernel refused an object or a program, from below the layers of errors: its number and in words.
pub(crate) fn refusal(error: &(dyn std::error::Error + 'static)) -> (Option<i32>, String) {
    let mut reason = error;
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
    // The verifier's last line before its statistics gives the reason; an instruction there (`2663: (0f) r9 += r0`) is none.
    const STATISTICS: [&str; 4] = ["verification time", "stack depth", "processed ", ":"];
    let is_reason = |line: &&str| !STATISTICS.iter().any(|start| line.starts_with(start));
    let line = text.lines().rev().find(is_reason).unwrap_or_default();
    let is_instruction = line.split_once(": (").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    (errno, if is_instruction { reason.to_string() } else { line.to_owned() })
}

/// Reports that the kernel refused an object or a program of a port.
pub(crate) fn load_error(port: &str, error: &(dyn std::error::Error + 'static)) -> PortError {
    match refusal(error) {
        (Some(libc::EPERM), _) => PortError::NotPermitted {
            port: port.to_owned(),
            what: "load a BPF program",
            capability: "CAP_BPF and CAP_NET_ADMIN",
        },
        (errno, reason) => match missing_resource(errno) {
            Some(shortage) => {
                PortError::Shortage { port: port.to_owned(), action: "loading a BPF program", shortage }
            }
            None => PortError::Unsupported {
                port: port.to_owned(),
                problem: format!(
                    "the kernel did not take the BPF program ({reason}); Linux 5.9 or newer is needed"
                ),
            },
        },
    }
}

pub(crate) fn map_error(error: MapError) -> io::Error {
    match error {
        MapError::SyscallError(error) => error.io_error,
        MapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

pub(crate) fn program_io_error(error: ProgramError) -> io::Error {
    match error {
        ProgramError::SyscallError(error) => error.io_error,
        other => io::Error::other(other),
    }
}

/// The program called `name`, loaded if it is not yet.
pub(crate) fn classifier<'a>(
    port: &str,
    object: &'a mut Ebpf,
    name: &str,
) -> Result<&'a mut SchedClassifier, PortError> {
    let program = object.program_mut(name).expect("the object has this program");
    let program: &mut SchedClassifier = program.try_into().expect("it is a classifier");
    if program.fd().is_err() {
        verify(|| program.load()).map_err(|error| load_error(port, &EbpfError::from(error)))?;
    }
    Ok(program)
}

/// Attaches a program where packets enter the stack by `interface`, before all others. Linux 6.6 or newer.
pub(crate) fn attach_at_ingress(
    port: &str,
    program: &mut SchedClassifier,
    interface: &str,
) -> Result<FdLink, PortError> {
    attach_tcx(port, program, interface, TcAttachType::Ingress)
}

/// The same where packets leave the stack.
pub(crate) fn attach_at_egress(
    port: &str,
    program: &mut SchedClassifier,
    interface: &str,
) -> Result<FdLink, PortError> {
    attach_tcx(port, program, interface, TcAttachType::Egress)
}

fn attach_tcx(
    port: &str,
    program: &mut SchedClassifier,
    interface: &str,
    place: TcAttachType,
) -> Result<FdLink, PortError> {
    let order = TcAttachOptions::TcxOrder(LinkOrder::first());
    let attached = program.attach_with_options(interface, place, order);
    let link = attached
        .and_then(|id| program.take_link(id))
        .map_err(|error| tcx_error(port, program_io_error(error)))?;
    Ok(link.try_into().expect("tcx programs are attached by links"))
}

/// Names the programs that others have attached to an interface by tcx (Linux 6.6). Needs `CAP_SYS_ADMIN`.
///
/// # Errors
///
/// The kernel does not let us ask, has no tcx, or has no such interface.
pub fn tcx_programs(interface: &str) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for direction in [TcAttachType::Ingress, TcAttachType::Egress] {
        let (_, programs) = SchedClassifier::query_tcx(interface, direction).map_err(program_io_error)?;
        names.extend(programs.iter().map(|program| program.name_as_str().unwrap_or("").to_owned()));
    }
    // Those of our ports.
    names.retain(|name| {
        !["screen", "inject", "steer_tc", "received_only"].contains(&name.as_str())
            && !name.starts_with("brickway")
    });
    Ok(names)
}

fn tcx_error(port: &str, error: io::Error) -> PortError {
    match error.raw_os_error() {
        // A kernel that does not know the kind of attachment.
        Some(libc::EINVAL | libc::EOPNOTSUPP) => PortError::Unsupported {
            port: port.to_owned(),
            problem: "the kernel has no tcx programs, which share an interface's packets with the host; Linux 6.6 or \
                      newer is needed (CONFIG_NET_XGRESS)"
                .to_owned(),
        },
        _ => PortError::system(port, "attaching the tcx program", error),
    }
}

/// The host's own addresses in a program's map, whether ESP to them is ours, and what is Linux's to other addresses.
pub(crate) struct LocalAddresses {
    map: HashMap<MapData, AddressKey, u8>,
    /// A bit for a hash of each ([`address_bits`]), or of one that was there.
    bits: Array<MapData, AddressBits>,
    takes_esp: Array<MapData, u8>,
    leaves_clients: Array<MapData, u8>,
    /// Whether somebody tells us about changes; else we ask the kernel when the program is attached.
    told: bool,
}

impl LocalAddresses {
    pub(crate) fn of(port: &str, object: &mut Ebpf) -> Result<Self, PortError> {
        let mut take = |name: &str| object.take_map(name).expect("the program has this map");
        let maps = (take("LOCAL"), take("MAY_BE_LOCAL"), take("TAKES_ESP"), take("LEAVES_CLIENTS"));
        let wrong = |error: MapError| load_error(port, &error);
        Ok(Self {
            map: maps.0.try_into().map_err(wrong)?,
            bits: maps.1.try_into().map_err(wrong)?,
            takes_esp: maps.2.try_into().map_err(wrong)?,
            leaves_clients: maps.3.try_into().map_err(wrong)?,
            told: false,
        })
    }

    /// Asks the kernel, unless somebody tells us.
    pub(crate) fn ask(&mut self) -> io::Result<()> {
        if self.told { Ok(()) } else { self.replace(addresses_of_namespace()?.into_iter()) }
    }

    pub(crate) fn set(&mut self, addresses: &[IpAddr]) -> io::Result<()> {
        self.told = true;
        self.replace(addresses.iter().copied())
    }

    /// Says whether ESP to these addresses is ours.
    pub(crate) fn take_esp(&mut self, takes: bool) -> io::Result<()> {
        self.takes_esp.set(0, u8::from(takes), 0).map_err(map_error)
    }

    /// Says whether all that goes to clients of DHCP is Linux's.
    pub(crate) fn leave_clients(&mut self, leaves: bool) -> io::Result<()> {
        self.leaves_clients.set(0, u8::from(leaves), 0).map_err(map_error)
    }

    fn replace(&mut self, addresses: impl Iterator<Item = IpAddr>) -> io::Result<()> {
        let wanted: HashSet<AddressKey> = addresses.map(key_of).collect();
        let known: HashSet<AddressKey> = self.map.keys().collect::<Result<_, _>>().map_err(map_error)?;
        // While addresses come and go, either set may be asked for.
        let both = wanted.union(&known).copied();
        self.bits.set(0, address_bits(both), 0).map_err(map_error)?;
        // First those that go, so that there is room.
        for key in known.difference(&wanted) {
            self.map.remove(key).map_err(map_error)?;
        }
        for key in wanted.difference(&known) {
            self.map.insert(key, 0, 0).map_err(map_error)?;
        }
        self.bits.set(0, address_bits(wanted.into_iter()), 0).map_err(map_error)
    }
}

/// IPv4 addresses from which nobody sends, in a program's map.
pub(crate) struct OwnSources {
    map: HashMap<MapData, [u8; 4], u8>,
    set: HashSet<[u8; 4]>,
}

impl OwnSources {
    pub(crate) fn of(port: &str, object: &mut Ebpf) -> Result<Self, PortError> {
        let map = object.take_map("OWN_SOURCES").expect("the program has this map");
        let map = map.try_into().map_err(|error: MapError| load_error(port, &error))?;
        Ok(Self { map, set: HashSet::new() })
    }

    pub(crate) fn set(&mut self, addresses: &[Ipv4Addr]) -> io::Result<()> {
        let wanted: HashSet<[u8; 4]> = addresses.iter().map(Ipv4Addr::octets).collect();
        let gone: Vec<[u8; 4]> = self.set.difference(&wanted).copied().collect();
        for key in gone {
            self.map.remove(&key).map_err(map_error)?;
            self.set.remove(&key);
        }
        for key in wanted {
            if !self.set.contains(&key) {
                self.map.insert(key, 0, 0).map_err(map_error)?;
                self.set.insert(key);
            }
        }
        Ok(())
    }
}

/// A set of addresses of which some others seem to be members: one bit for a hash of each.
pub(crate) type AddressBits = [u8; 512];

/// Returns the bits of some addresses, as the programs compute them (`bpf/decide.h`, `bpf/forward.c`).
pub(crate) fn address_bits(addresses: impl Iterator<Item = AddressKey>) -> AddressBits {
    let mut bits = [0; 512];
    for key in addresses {
        let address = u128::from_be_bytes(key);
        let word = (address >> 64) as u64 ^ address as u64;
        let place = (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize;
        bits[place / 8] |= 1 << (place % 8);
    }
    bits
}

/// What is ours of which VLANs, in a program's map.
pub(crate) struct Vlans {
    map: Array<MapData, u8>,
    set: Vec<VlanId>,
}

impl Vlans {
    pub(crate) fn of(port: &str, object: &mut Ebpf) -> Result<Self, PortError> {
        let map = object.take_map("VLANS").expect("the program has this map");
        let map = map.try_into().map_err(|error: MapError| load_error(port, &error))?;
        Ok(Self { map, set: Vec::new() })
    }

    pub(crate) fn set(&mut self, vlans: &[(VlanId, VlanShare)]) -> io::Result<()> {
        for number in std::mem::take(&mut self.set) {
            if !vlans.iter().any(|&(known, _)| known == number) {
                self.map.set(number.into(), 0, 0).map_err(map_error)?;
            }
        }
        for &(number, share) in vlans {
            self.map.set(number.into(), share as u8, 0).map_err(map_error)?;
            self.set.push(number);
        }
        Ok(())
    }
}

/// Further link addresses of a port, in a program's map.
pub(crate) struct Stations {
    map: Array<MapData, StationsEntry>,
    entry: StationsEntry,
}

/// `struct stations` of the programs: addresses for IPv4, for IPv6, whether the port gives way, addresses of members.
type StationsEntry = [u64; 3 * MOST_STATIONS + 1];

impl Stations {
    pub(crate) fn of(port: &str, object: &mut Ebpf) -> Result<Self, PortError> {
        let map = object.take_map("STATIONS").expect("the program has this map");
        let map = map.try_into().map_err(|error: MapError| load_error(port, &error))?;
        Ok(Self { map, entry: StationsEntry::default() })
    }

    /// Sets the first [`MOST_STATIONS`] of each family, and of those that are Linux's.
    pub(crate) fn set(&mut self, stations: &[Station]) -> io::Result<()> {
        let (of_families, members) = self.entry.split_at_mut(2 * MOST_STATIONS);
        let (ipv4, ipv6) = of_families.split_at_mut(MOST_STATIONS);
        let is_of: [fn(&&Station) -> bool; 3] =
            [|it| it.families[0], |it| it.families[1], |it| it.families == [false; 2]];
        for (places, is_of) in [ipv4, ipv6, &mut members[1..]].into_iter().zip(is_of) {
            places.fill(0);
            for (place, station) in places.iter_mut().zip(stations.iter().filter(is_of)) {
                let MacAddr([a, b, c, d, e, f]) = station.mac;
                *place = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
            }
        }
        self.map.set(0, self.entry, 0).map_err(map_error)
    }

    /// Says whether the port gives way.
    pub(crate) fn give_way(&mut self, gives: bool) -> io::Result<()> {
        self.entry[2 * MOST_STATIONS] = gives.into();
        self.map.set(0, self.entry, 0).map_err(map_error)
    }
}

/// What was asked of [`Stations`] failed.
pub(crate) fn stations_error(port: &str, error: io::Error) -> PortError {
    PortError::system(port, "setting further link addresses", error)
}

/// What was asked of [`LocalAddresses::leave_clients`] failed.
pub(crate) fn clients_error(port: &str, error: io::Error) -> PortError {
    PortError::system(port, "setting whose DHCP is", error)
}

/// What was asked of [`Vlans`] failed.
pub(crate) fn vlans_error(port: &str, error: io::Error) -> PortError {
    PortError::system(port, "setting the VLANs", error)
}

/// What was asked of [`LocalAddresses::take_esp`] failed.
pub(crate) fn esp_error(port: &str, error: io::Error) -> PortError {
    PortError::system(port, "setting whose ESP is", error)
}

/// What was asked of [`LocalAddresses`] failed: most likely the map is full.
pub(crate) fn addresses_error(port: &str, error: io::Error) -> PortError {
    match error.raw_os_error() {
        Some(libc::E2BIG) => PortError::Unsupported {
            port: port.to_owned(),
            problem:
                "the host has more than 16384 local addresses; packets to the others are given to the router"
                    .to_owned(),
        },
        _ => PortError::system(port, "setting the local addresses", error),
    }
}

/// Why packets are left to the kernel, or dropped, in the order of bpf/decide.h, where they come behind STEERED.
const REASONS: [Event; 13] = [
    Event::LeftArp,
    Event::LeftNotIp,
    Event::LeftGroup,
    Event::LeftStation,
    Event::LeftHost,
    Event::LeftLong,
    Event::LeftUnfinished,
    Event::LeftVlan,
    Event::LeftQueue,
    Event::LeftClient,
    Event::LeftFamily,
    Event::LeftOdd,
    Event::Martian,
];

/// Packets that a steering program has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steered {
    pub(crate) to_sockets: u64,
    to_kernel: [u64; REASONS.len()],
}

impl Steered {
    /// Adds the packets that were left to the kernel, or dropped, to the counts of a queue.
    pub(crate) fn add_to(&self, stats: &mut QueueStats) {
        for (&reason, &packets) in REASONS.iter().zip(&self.to_kernel) {
            stats.add(reason, packets);
        }
    }
}

impl std::fmt::Display for Steered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let left = REASONS.iter().zip(self.to_kernel).filter(|(reason, _)| reason.is_left_to_kernel());
        let to_kernel: u64 = left.map(|(_, packets)| packets).sum();
        write!(f, "packets steered to us {}, left to the kernel {to_kernel}", self.to_sockets)
    }
}

/// A program's counters.
pub(crate) struct Counters(PerCpuArray<MapData, u64>);

impl Counters {
    pub(crate) fn of(port: &str, object: &mut Ebpf) -> Result<Self, PortError> {
        let map = object.take_map("PACKETS").expect("the program has this map");
        Ok(Self(map.try_into().map_err(|error: MapError| load_error(port, &error))?))
    }

    /// Packets so far.
    pub(crate) fn steered(&self) -> Steered {
        let sum = |index: usize| self.0.get(&(index as u32), 0).map_or(0, |values| values.iter().sum());
        Steered { to_sockets: sum(0), to_kernel: std::array::from_fn(|reason| sum(reason + 1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_tcx_is_explained() {
        let error = tcx_error("eth0", io::Error::from_raw_os_error(libc::EINVAL)).to_string();
        assert!(error.starts_with("port `eth0`: the kernel has no tcx programs"), "{error}");
        assert!(error.contains("Linux 6.6 or newer"), "{error}");
        assert!(
            tcx_error("eth0", io::Error::from_raw_os_error(libc::EPERM)).to_string().contains("run as root")
        );
    }
}
