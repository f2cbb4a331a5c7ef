//! =c
//! FullNoteQueue([CAPACITY])
//!
//! =s queues
//! stores packets; tells sources upstream when it is full
//!
//! =d
//! The same as C<Queue>, which does so too; in Click it is the name of the queue behind C<Queue>.
//!
//! =a Queue, NotifierQueue

use graph::Class;

use super::queue;

pub(crate) static CLASS: Class =
    Class { name: "FullNoteQueue", manual: graph::manual!("full_note_queue.rs"), ..queue::CLASS };
