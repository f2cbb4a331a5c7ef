//! Rates and queue management.

mod adaptive_red;
mod bandwidth_meter;
mod bandwidth_rated_splitter;
mod bandwidth_shaper;
mod block;
mod codel;
mod meter;
mod pi;
pub(crate) mod rate_ewma;
pub(crate) mod rated_splitter;
mod red;
mod shaper;
mod watched_queues;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &adaptive_red::CLASS,
    &bandwidth_meter::CLASS,
    &bandwidth_rated_splitter::CLASS,
    &bandwidth_shaper::CLASS,
    &block::CLASS,
    &codel::CLASS,
    &meter::CLASS,
    &pi::CLASS,
    &rated_splitter::CLASS,
    &red::CLASS,
    &shaper::CLASS,
];
