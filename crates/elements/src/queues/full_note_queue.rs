//! =c
//! FullNoteQueue([CAPACITY])
//!
//! =s queues
//! stores packets; tells sources upstream when it is full
//!
//! =d
//! The same as C<Queue>, which does so too; in Click it is the name of the queue behind C<Queue>.
//!
//! =h length read-only
//! Packets that wait now, in all workers.
//!
//! =h highwater_length read-only
//! Most packets that ever waited at one worker.
//!
//! =h capacity read/write
//! The CAPACITY argument.
//!
//! =h drops read-only
//! Packets that found no room.
//!
//! =h reset_counts write-only
//! Sets drops and highwater_length to zero.
//!
//! =h reset write-only
//! Drops all packets that wait.
//!
//! =a Queue, NotifierQueue

use graph::Class;

use super::storage::{Overflow, Storage};

pub(crate) static CLASS: Class = Class {
    name: "FullNoteQueue",
    ports: "1/1-2",
    processing: "h/lh",
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("full_note_queue.rs"),
    make: |setup| Ok(Box::new(Storage::from_setup(setup, Overflow::DropNew, true)?)),
};
