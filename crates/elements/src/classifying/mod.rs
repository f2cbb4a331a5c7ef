//! Classifiers: elements that sort packets, most with a decision program ([`crate::decision`]).

mod check_length;
mod classifier;
mod decider;
mod ip_classifier;
mod ip_filter;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] =
    &[&check_length::CLASS, &classifier::CLASS, &ip_classifier::CLASS, &ip_filter::CLASS];
