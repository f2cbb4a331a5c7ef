//! IP route lookup by routes of a configuration's own.
//!
//! Click has several classes for this, which differ in their data structures; here they are one element
//! (`ip_lookup`) with the same arguments and handlers, and keep their names so that configurations run.
//! LookupIP6Route is the same element for IPv6.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `classes` | the classes: their manuals and what sets each apart |
//! | `ip_lookup` | the element: packets, handlers, the arguments of all classes |
//! | `family` | what differs between IPv4 and IPv6 |
//! | `route` | `ADDR/MASK [GATEWAY] OUTPUT`: a route as text |
//! | `routes` | the routes that all copies share; changes, all or none, and how they reach the workers |
//! | `origin_file` | `FILE` and `VIA`: routes from a table of prefixes and origins |
//! | `tests`, `routes_tests`, `router_tests` | all classes in a graph; transactions; workers that forward while routes change |

mod classes;
mod family;
mod ip_lookup;
mod origin_file;
mod route;
#[cfg(test)]
mod router_tests;
mod routes;
#[cfg(test)]
mod routes_tests;
#[cfg(test)]
mod tests;

pub(crate) use ip_lookup::{IpLookup, commands, look_for};
pub(crate) use route::{REMOVAL_FORM, Route, Via};
pub(crate) use routes::Command;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[&classes::IP6, &classes::PAPER, &classes::RADIX, &classes::STATIC];
