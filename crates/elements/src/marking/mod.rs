//! Annotations and bytes of single packets.

pub mod divide;
mod mark_mac_header;
pub mod paint;
mod strip;
mod unstrip;
pub(crate) mod unstrip_to_mac_header;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &divide::CLASS,
    &mark_mac_header::CLASS,
    &paint::CLASS,
    &strip::CLASS,
    &unstrip::CLASS,
    &unstrip_to_mac_header::CLASS,
];
