//! What a program in tc leaves to us: it comes by a TAP device that the port has for it, with a queue for each of the port's workers.
//!
//! Where the port takes merged frames ([`OpenOptions::takes_merged`](crate::OpenOptions)), so does the device. Else the kernel divides
//! them on the way to it, and finishes checksums. A tag that lies beside a frame is in it when it is read. A system call a frame.

use std::os::fd::OwnedFd;

use aya::programs::links::FdLink;
use packet::pool::LARGE_BYTES;

use super::program::Program;
use crate::device_counts::Devices;
use crate::interface::Interface;
use crate::merged::TAG_BYTES;
use crate::tap::{self, Kind, Queues};
use crate::{PortError, link};

/// The kernel puts a number in.
const NAME: &str = "brickway%d";

/// Packets that wait in each queue of the device at most: those of many long frames. Frames of which many are merged take more memory.
const LONGEST_QUEUE: u32 = 4_096;
const LONGEST_QUEUE_OF_MERGED: u32 = 1_024;

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
    pub(super) fn open(
        port: &str,
        program: &mut Program,
        workers: usize,
        takes_merged: bool,
    ) -> Result<Self, PortError> {
        let (kind, longest) = if takes_merged {
            (Kind::MergedFrames, LONGEST_QUEUE_OF_MERGED)
        } else {
            (Kind::Frames, LONGEST_QUEUE)
        };
        let (first, name) = tap::open_file(NAME, Queues::Several, kind)?;
        if takes_merged {
            tap::take_merged(&name, &first)?;
        }
        let mut files = vec![first];
        for _ in 1..workers {
            files.push(tap::open_file(&name, Queues::Several, kind)?.0);
        }
        let index = Interface::existing(&name)?.index()? as u32;
        let guard = program.guard_rest(port, &name)?;
        let begun = link::begin_passing(index, longest, LARGE_BYTES - TAG_BYTES);
        begun.map_err(|error| PortError::system(port, "bringing up the TAP device", error))?;
        Ok(Self { _guard: guard, files, index, name })
    }

    /// Packets that it has lost because nobody read them in time.
    pub(super) fn lost(&self) -> u64 {
        Devices::unsent(&self.name)
    }
}
