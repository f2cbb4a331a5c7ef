//! Rates and queue management.

mod adaptive_red;
mod block;
mod codel;
mod meter;
mod pi;
pub(crate) mod rate_ewma;
mod rated_splitter;
mod red;
mod shaper;
pub(crate) mod unit;
mod watched_queues;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &adaptive_red::CLASS,
    &meter::BANDWIDTH,
    &rated_splitter::BANDWIDTH,
    &shaper::BANDWIDTH,
    &block::CLASS,
    &codel::CLASS,
    &meter::CLASS,
    &pi::CLASS,
    &rated_splitter::CLASS,
    &red::CLASS,
    &shaper::CLASS,
];
