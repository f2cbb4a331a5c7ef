//! One way in, several out.

mod paint_switch;
pub mod tee;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[&paint_switch::CLASS, &tee::CLASS];
