//! Access control: ordered rules, the first that matches decides.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `access_control` | the element ACL: manual, packets, handlers |
//! | `rule` | a rule, and how it is written |
//! | `parse` | rules from text |
//! | `facts` | what rules look at in a packet; fragments and extension headers |
//! | `compile` | rules to classes of values |
//! | `compiled` | the compiled rules, and how a batch meets them |
//! | `doubts` | what an operator should know of a list |
//! | `intervals` | addresses to classes |
//! | `family` | what differs between IPv4 and IPv6 |
//! | `list` | the list that all copies share; changes and counts |

mod access_control;
mod compile;
mod compiled;
mod doubts;
mod facts;
mod family;
mod intervals;
mod list;
mod parse;
mod rule;
#[cfg(test)]
mod tests;

use graph::{Capability, Class};

pub(crate) use compiled::Answer;
pub use list::AccessList;
pub(crate) use list::{List, Rooms};
pub use parse::RuleMistake;
pub(crate) use rule::{Action, PortRange, Rule, TrafficRule, has_ports, protocol_number};

/// The element judges packets by an [`AccessList`].
pub const ACCESS_LIST: Capability = Capability("access list");

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[&access_control::CLASS];
