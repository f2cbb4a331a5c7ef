//! Classifiers: elements that sort packets with a decision program ([`crate::decision`]).

mod classifier;
mod decider;
mod ip_classifier;
mod ip_filter;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[&classifier::CLASS, &ip_classifier::CLASS, &ip_filter::CLASS];
