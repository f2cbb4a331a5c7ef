//! Where packets begin and end.

mod discard;
mod idle;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[&discard::CLASS, &idle::CLASS];
