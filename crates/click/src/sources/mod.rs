//! Where packets begin and end.

pub(crate) mod end;
mod fast_udp;
mod fast_udp_flows;
mod fast_udp_source;
mod infinite_source;
mod payload;
mod rated_source;
mod timed_sink;
pub(crate) mod timed_source;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &fast_udp_flows::CLASS,
    &fast_udp_source::CLASS,
    &fast_udp_source::IP6,
    &infinite_source::CLASS,
    &rated_source::CLASS,
    &timed_sink::CLASS,
    &timed_source::CLASS,
];
