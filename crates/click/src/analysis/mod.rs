//! Measuring traffic: counts by aggregate, flows, times.

mod adjust_timestamp;
mod aggregate_counter;
mod aggregate_ip_flows;
mod record_timestamp;
mod time_filter;
mod timestamp_diff;

use std::any::Any;

use graph::{Class, Context};

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &adjust_timestamp::CLASS,
    &aggregate_counter::CLASS,
    &aggregate_ip_flows::CLASS,
    &record_timestamp::CLASS,
    &time_filter::CLASS,
    &timestamp_diff::CLASS,
];

/// Writes to `own` handlers of `element`, which is of `class`: what it heard while it called another one
/// ([`Context::call_write_hearing`]). Problems become messages.
fn write_heard(class: &Class, element: &mut dyn Any, cx: &mut Context, own: &[(String, String)]) {
    for (name, value) in own {
        let handler = class.handlers.iter().find(|handler| handler.name == name);
        let result = match handler.and_then(|handler| handler.write) {
            Some(write) => write.write(element, cx, value),
            None => Err(format!("no write handler '{name}'")),
        };
        if let Err(problem) = result {
            cx.message(&problem);
        }
    }
}
