//! What controls a router from within its configuration.

mod driver_manager;
mod error;
mod message;
mod script;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[&driver_manager::CLASS, &error::CLASS, &message::CLASS, &script::CLASS];
