//! IP route lookup.
//!
//! Click has seven classes for this, which differ in their data structures; here they are one element
//! (`ip_lookup`) with the same arguments and handlers, and keep their names so that configurations run. An eighth,
//! LookupIP6Route, is the same element for IPv6. FIBLookup and CheckReversePath, for IPv6 with a 6 behind their names, have no
//! routes of their own: they forward, and believe sources, by the tables that the control plane keeps for the whole router.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `ip_lookup` | the element: packets, handlers, the arguments of all classes |
//! | `family` | what differs between IPv4 and IPv6 |
//! | `route` | `ADDR/MASK [GATEWAY] OUTPUT`: a route as text |
//! | `routes` | the routes that all copies share; changes, all or none, and how they reach the workers |
//! | `fib_lookup`, `forwarding` | forwarding by the router's tables, and how elements find these |
//! | `redirects` | packets that leave by the port they came by |
//! | `await_neighbour` | packets that wait until their neighbour is resolved |
//! | `check_reverse_path` | which sources are believed, by the same tables |
//! | `origin_file` | `FILE` and `VIA`: routes from a table of prefixes and origins |
//! | `tests`, `routes_tests`, `router_tests` | all classes in a graph; transactions; workers that forward while routes change |
//! | the others | one class each: its manual and what sets it apart |

mod await_neighbour;
mod await_neighbour_6;
mod check_reverse_path;
mod check_reverse_path_6;
#[cfg(test)]
mod check_reverse_path_tests;
mod direct_ip_lookup;
mod family;
mod fib_lookup;
mod fib_lookup_6;
#[cfg(test)]
mod fib_lookup_tests;
mod forwarding;
mod ip_lookup;
mod linear_ip_lookup;
mod lookup_ip6_route;
mod lookup_ip_route;
mod lookup_ip_route_mp;
mod origin_file;
mod radix_ip_lookup;
mod range_ip_lookup;
mod redirects;
mod route;
#[cfg(test)]
mod router_tests;
mod routes;
#[cfg(test)]
mod routes_tests;
mod sorted_ip_lookup;
mod static_ip_lookup;
#[cfg(test)]
mod tests;

use graph::Class;

pub use forwarding::{Asker, ForwardingTables};

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &await_neighbour::CLASS,
    &await_neighbour_6::CLASS,
    &check_reverse_path::CLASS,
    &check_reverse_path_6::CLASS,
    &direct_ip_lookup::CLASS,
    &fib_lookup::CLASS,
    &fib_lookup_6::CLASS,
    &linear_ip_lookup::CLASS,
    &lookup_ip6_route::CLASS,
    &lookup_ip_route::CLASS,
    &lookup_ip_route_mp::CLASS,
    &radix_ip_lookup::CLASS,
    &range_ip_lookup::CLASS,
    &sorted_ip_lookup::CLASS,
    &static_ip_lookup::CLASS,
];
