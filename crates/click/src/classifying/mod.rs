//! Classifiers of IP packets, each with a decision program ([`elements::decision`]).

mod ip_classifier;
mod ip_filter;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[&ip_classifier::CLASS, &ip_filter::CLASS];
