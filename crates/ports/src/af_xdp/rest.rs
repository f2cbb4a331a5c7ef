//! What a program in tc leaves to us: it comes by a TAP device that the port has for it, with a queue for each of the port's workers.
//!
//! The device takes neither merged packets nor unfinished checksums, so on the way to it the kernel cuts and finishes them, and a
//! tag that lies beside a frame is in it when it is read. A system call a packet.

use std::os::fd::OwnedFd;

use aya::programs::links::FdLink;

use super::program::Program;
use crate::device_counts::Devices;
use crate::interface::Interface;
use crate::tap::{self, Kind, Queues};
use crate::{PortError, link};

/// The kernel puts a number in.
const NAME: &str = "brickway%d";

/// Packets that wait in each queue of the device at most: those of many long frames.
const LONGEST_QUEUE: u32 = 4_096;

/// The device, which goes with the port.
pub(super) struct Rest {
    // The program before the device.
    _guard: FdLink,
    /// Where its packets are read, by worker. The kernel spreads flows.
    pub(super) files: Vec<OwnedFd>,
    /// Its number.
    pub(super) index: u32,
    name: String,
}

impl Rest {
    /// Makes the device.
    pub(super) fn open(port: &str, program: &mut Program, workers: usize) -> Result<Self, PortError> {
        let (first, name) = tap::open_file(NAME, Queues::Several, Kind::Frames)?;
        let mut files = vec![first];
        for _ in 1..workers {
            files.push(tap::open_file(&name, Queues::Several, Kind::Frames)?.0);
        }
        let index = Interface::existing(&name)?.index()? as u32;
        let guard = program.guard_rest(port, &name)?;
        let begun = link::begin_passing(index, LONGEST_QUEUE);
        begun.map_err(|error| PortError::system(port, "bringing up the TAP device", error))?;
        Ok(Self { _guard: guard, files, index, name })
    }

    /// Packets that it has lost because nobody read them in time.
    pub(super) fn lost(&self) -> u64 {
        Devices::unsent(&self.name)
    }
}
