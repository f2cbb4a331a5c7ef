//! The TAP device of all `host:` ports of a process (in one network namespace), and the program on it (`bpf/host.c`).
//!
//! What is written to the device carries a VLAN tag that says to which interface the program sends it on. The device has
//! no carrier and no addresses, so the kernel sends nothing out by it. It goes with the last of the ports, and with the
//! process.

use packet::sync::lock;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};

use aya::maps::{Array, MapData, MapError};
use aya::programs::links::FdLink;
use aya::{include_bytes_aligned};
use rustix::io::Errno;

use crate::PortError;
use crate::bpf::{attach_at_ingress, classifier, load, load_error, loader, map_error};
use crate::host::passage::{self, Passage};
use crate::interface::{Interface, namespace};
use crate::tap;

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/host.o"));

/// The kernel puts a number in.
const NAME: &str = "brickway%d";
/// Bytes of both link addresses, behind which the tag stands.
const ADDRESSES: usize = 12;
/// TPID of a VLAN tag (IEEE 802.1Q).
const TPID: [u8; 2] = [0x81, 0x00];
/// Entries of TARGETS; the first is for nobody, as its tag has no number (a priority tag of IEEE 802.1Q).
const TARGETS: u16 = 1 << 12;
/// The bits of the tag that ask for a mark.
const NEEDS_MARK: u16 = 1 << 12;
const IS_PERMITTED: u16 = 2 << 12;
/// EtherType in front of a seal (`bpf/passage.h`).
const SEAL_TYPE: [u8; 2] = [0x88, 0xb5];

/// The device.
pub(super) struct Device {
    // The program before the device.
    _link: FdLink,
    file: OwnedFd,
    name: String,
    namespace: u64,
    targets: Mutex<Targets>,
}

struct Targets {
    map: Array<MapData, u32>,
    taken: Vec<bool>,
}

/// The devices of this process, one for each namespace that has ports.
static DEVICES: Mutex<Vec<(u64, Weak<Device>)>> = Mutex::new(Vec::new());

impl Device {
    /// The device of the thread's namespace, made for `port` when there is none.
    pub(super) fn of_namespace(port: &str) -> Result<Arc<Self>, PortError> {
        let mut devices = lock(&DEVICES);
        devices.retain(|(_, device)| device.strong_count() > 0);
        let namespace = namespace();
        let known = devices.iter().find(|&&(number, _)| number == namespace);
        if let Some(device) = known.and_then(|(_, device)| device.upgrade()) {
            return Ok(device);
        }
        let device = Arc::new(Self::new(port, namespace)?);
        devices.push((namespace, Arc::downgrade(&device)));
        Ok(device)
    }

    fn new(port: &str, namespace: u64) -> Result<Self, PortError> {
        let (file, name) = tap::open_file(NAME, tap::Queues::One, tap::Kind::Frames)?;
        let failed = |action| move |error| PortError::system(port, action, error);
        set_no_carrier(&file).map_err(failed("taking the carrier off the TAP device"))?;
        let mut object = load(port, &mut loader(), OBJECT)?;
        let map = object.take_map("TARGETS").expect("the program has this map");
        let map = map.try_into().map_err(|error: MapError| load_error(port, &error))?;
        // The link keeps the program, and the program its map.
        let link = attach_at_ingress(port, classifier(port, &mut object, "inject")?, &name)?;
        Interface::new(&name)?.set_up()?;
        let mut taken = vec![false; usize::from(TARGETS)];
        taken[0] = true;
        let targets = Mutex::new(Targets { map, taken });
        Ok(Self { _link: link, file, name, namespace, targets })
    }

    /// The device's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// A free entry of the table of interfaces.
    pub(super) fn take_target(&self) -> Option<u16> {
        let mut targets = lock(&self.targets);
        let number = targets.taken.iter().position(|&taken| !taken)?;
        targets.taken[number] = true;
        Some(number as u16)
    }

    /// Says which interface an entry means.
    pub(super) fn set_target(&self, number: u16, index: u32) -> io::Result<()> {
        lock(&self.targets).map.set(number.into(), index, 0).map_err(map_error)
    }

    /// Gives an entry back.
    pub(super) fn free_target(&self, number: u16) {
        // An entry that stays as it is does no harm: nobody writes its number.
        let _ = self.set_target(number, 0);
        lock(&self.targets).taken[usize::from(number)] = false;
    }

    /// What frames need to come past our port on this interface.
    pub(super) fn passage(&self, index: u32) -> Passage {
        passage::of(self.namespace, index)
    }

    /// Writes a frame, of an Ethernet header at least, for the interface of an entry; whether filters have permitted it.
    pub(super) fn write(
        &self,
        number: u16,
        passage: Passage,
        permitted: bool,
        frame: &[u8],
    ) -> Result<usize, Errno> {
        let (addresses, rest) = frame.split_at(ADDRESSES);
        let tag = number
            | if passage == Passage::Marked { NEEDS_MARK } else { 0 }
            | if permitted { IS_PERMITTED } else { 0 };
        let [high, low] = tag.to_be_bytes();
        let tag = [TPID[0], TPID[1], high, low];
        let (kind, seal) = (SEAL_TYPE, passage::seal());
        let sealed = passage == Passage::Sealed;
        let (kind, seal): (&[u8], &[u8]) = if sealed { (&kind, &seal) } else { (&[], &[]) };
        let pieces = [addresses, &tag, kind, seal, rest].map(IoSlice::new);
        rustix::io::writev(&self.file, &pieces)
    }
}

/// Has the kernel drop all that comes in by `interface`, once it has shown it to those who listen (packet(7)), for as long
/// as the link is there: the same program with an empty table.
pub(crate) fn drop_all(port: &str, interface: &str) -> Result<FdLink, PortError> {
    let mut object = load(port, &mut loader(), OBJECT)?;
    attach_at_ingress(port, classifier(port, &mut object, "inject")?, interface)
}

/// The program loaded, which drops what has no tag beside it.
#[cfg(test)]
pub(crate) fn dropping() -> aya::Ebpf {
    let mut object = load("", &mut loader(), OBJECT).unwrap();
    classifier("", &mut object, "inject").unwrap();
    object
}

/// Has the kernel send nothing out by the device. Linux 5.0 or newer.
fn set_no_carrier(file: &OwnedFd) -> io::Result<()> {
    let carrier: libc::c_int = 0;
    #[allow(unsafe_code, reason = "the C interface of tun devices")]
    // SAFETY: TUNSETCARRIER reads a number, which lives for the call.
    let result =
        unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETCARRIER as libc::Ioctl, &raw const carrier) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
