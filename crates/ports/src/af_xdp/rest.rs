//! What a program in tc leaves to us: it comes by a TAP device that the port has for it.
//!
//! The device takes neither merged packets nor unfinished checksums, so on the way to it the kernel cuts and finishes them, and a
//! tag that lies beside a frame is in it when it is read. A system call a packet: for what is rare that is enough.

use std::os::fd::OwnedFd;

use aya::programs::links::FdLink;

use super::program::Program;
use crate::device_counts::Devices;
use crate::interface::Interface;
use crate::{PortError, link, tap};

/// The kernel puts a number in.
const NAME: &str = "brickway%d";

/// Packets that wait in the device at most: those of many long frames.
const LONGEST_QUEUE: u32 = 4_096;

/// The device, which goes with the port.
pub(super) struct Rest {
    // The program before the device.
    _guard: FdLink,
    /// Where its packets are read.
    pub(super) file: OwnedFd,
    /// Its number.
    pub(super) index: u32,
    name: String,
}

impl Rest {
    /// Makes the device.
    pub(super) fn open(port: &str, program: &mut Program) -> Result<Self, PortError> {
        let (file, name) = tap::open_file(NAME, tap::Queues::One, tap::Kind::Frames)?;
        let index = Interface::existing(&name)?.index()? as u32;
        let guard = program.guard_rest(port, &name)?;
        let begun = link::begin_passing(index, LONGEST_QUEUE);
        begun.map_err(|error| PortError::system(port, "bringing up the TAP device", error))?;
        Ok(Self { _guard: guard, file, index, name })
    }

    /// Packets that it has lost because nobody read them in time.
    pub(super) fn lost(&self) -> u64 {
        Devices::unsent(&self.name)
    }
}
