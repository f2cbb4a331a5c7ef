//! Forwarding by the tables that the control plane keeps for the whole router. Names of classes for IPv6 end in 6.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `fib_lookup`, `forwarding` | forwarding, and how elements find the tables |
//! | `family` | what differs between IPv4 and IPv6 |
//! | `steps` | the steps of forwarding as functions, for main loops of others |
//! | `redirects` | packets that leave by the port they came by |
//! | `await_neighbour` | packets that wait until their neighbour is resolved |
//! | `check_reverse_path` | which sources are believed, by the same tables |

mod await_neighbour;
mod await_neighbour_6;
mod check_reverse_path;
mod check_reverse_path_6;
#[cfg(test)]
mod check_reverse_path_tests;
mod family;
mod fib_lookup;
mod fib_lookup_6;
#[cfg(test)]
mod fib_lookup_tests;
mod forwarding;
mod redirects;
mod steps;

use graph::{Capability, Class};

pub use forwarding::{Asker, ForwardingTables};
pub use steps::ForwardingSteps;

/// The element forwards by the tables of the whole router. Its first arguments are ports.
pub const FORWARDS: Capability = Capability("forwards by the router's tables");

/// The element drops IPv4 packets whose sources are not believed.
pub const JUDGES_SOURCES: Capability = Capability("judges sources");

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &await_neighbour::CLASS,
    &await_neighbour_6::CLASS,
    &check_reverse_path::CLASS,
    &check_reverse_path_6::CLASS,
    &fib_lookup::CLASS,
    &fib_lookup_6::CLASS,
];
