//! What controls a router from within its configuration.

mod chatter_socket;
mod control_socket;
mod driver_manager;
mod error;
mod message;
mod script;
mod socket;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &chatter_socket::CLASS,
    &control_socket::CLASS,
    &driver_manager::CLASS,
    &error::CLASS,
    &message::CLASS,
    &script::CLASS,
];
