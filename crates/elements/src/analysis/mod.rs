//! Measuring traffic: counts by aggregate, flows, times.

mod adjust_timestamp;
mod aggregate_counter;
mod aggregate_ip_flows;
mod time_filter;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] =
    &[&adjust_timestamp::CLASS, &aggregate_counter::CLASS, &aggregate_ip_flows::CLASS, &time_filter::CLASS];
