//! What controls a router from within its configuration.

mod address_info;
mod alignment_info;
mod chatter_socket;
mod clicky_info;
mod control_socket;
mod error;
mod message;
mod port_info;
mod schedule_info;
mod script;
mod socket;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &address_info::CLASS,
    &alignment_info::CLASS,
    &chatter_socket::CLASS,
    &clicky_info::CLASS,
    &control_socket::CLASS,
    &script::DRIVER,
    &error::CLASS,
    &message::CLASS,
    &port_info::CLASS,
    &schedule_info::CLASS,
    &script::CLASS,
];
