//! Classifiers: elements that sort packets, most with a decision program ([`crate::decision`]).

mod check_length;
mod classifier;
pub mod decider;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[&check_length::CLASS, &classifier::CLASS];
