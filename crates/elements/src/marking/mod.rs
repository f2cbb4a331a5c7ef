//! Annotations and bytes of single packets.

mod check_paint;
mod counter;
mod mark_mac_header;
mod null;
mod pad;
mod paint;
mod paint_tee;
pub(crate) mod print;
mod pull_null;
mod push_null;
pub(crate) mod set_timestamp;
mod strip;
mod strip_to_network_header;
pub(crate) mod truncate;
mod unstrip;
mod unstrip_to_mac_header;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &check_paint::CLASS,
    &counter::CLASS,
    &mark_mac_header::CLASS,
    &null::CLASS,
    &pad::CLASS,
    &paint::CLASS,
    &paint_tee::CLASS,
    &print::CLASS,
    &pull_null::CLASS,
    &push_null::CLASS,
    &set_timestamp::CLASS,
    &strip::CLASS,
    &strip_to_network_header::CLASS,
    &truncate::CLASS,
    &unstrip::CLASS,
    &unstrip_to_mac_header::CLASS,
];
