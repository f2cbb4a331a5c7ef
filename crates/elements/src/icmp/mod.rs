//! ICMP errors, of both versions.

mod error_rate;
mod error_source;
mod errors;
mod icmp6_error;
mod icmp6_names;
mod icmp_error;
pub mod names;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[&icmp6_error::CLASS, &icmp_error::CLASS];
