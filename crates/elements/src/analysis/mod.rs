//! Measuring traffic: counts by aggregate, flows, times.

mod adjust_timestamp;
mod aggregate_counter;
mod aggregate_ip_flows;
mod record_timestamp;
mod time_filter;
mod timestamp_diff;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &adjust_timestamp::CLASS,
    &aggregate_counter::CLASS,
    &aggregate_ip_flows::CLASS,
    &record_timestamp::CLASS,
    &time_filter::CLASS,
    &timestamp_diff::CLASS,
];
