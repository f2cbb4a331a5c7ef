//! Rates and queue management.

mod bandwidth_meter;
mod bandwidth_rated_splitter;
mod bandwidth_shaper;
mod meter;
pub(crate) mod rate_ewma;
pub(crate) mod rated_splitter;
mod red;
mod shaper;
pub(crate) mod token_bucket;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &bandwidth_meter::CLASS,
    &bandwidth_rated_splitter::CLASS,
    &bandwidth_shaper::CLASS,
    &meter::CLASS,
    &rated_splitter::CLASS,
    &red::CLASS,
    &shaper::CLASS,
];
