//! IP route lookup.
//!
//! Click has six classes for this, which differ in their data structures; here they are one element
//! (`ip_lookup`) with the same arguments and handlers, and keep their names so that configurations run.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `ip_lookup` | the element: packets, handlers, the arguments of all classes |
//! | `route` | `ADDR/MASK [GATEWAY] OUTPUT`: a route as text |
//! | `table` | routes, next hops and the compiled table; changes, all or none |
//! | `publish` | how a change reaches the copies on all workers without stopping them |
//! | `origin_file` | `FILE` and `VIA`: routes from a table of prefixes and origins |
//! | the others | one class each: its manual and what sets it apart |

mod direct_ip_lookup;
mod ip_lookup;
mod linear_ip_lookup;
mod lookup_ip_route;
mod origin_file;
mod publish;
mod radix_ip_lookup;
mod range_ip_lookup;
mod route;
mod sorted_ip_lookup;
mod static_ip_lookup;
mod table;
#[cfg(test)]
mod tests;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &direct_ip_lookup::CLASS,
    &linear_ip_lookup::CLASS,
    &lookup_ip_route::CLASS,
    &radix_ip_lookup::CLASS,
    &range_ip_lookup::CLASS,
    &sorted_ip_lookup::CLASS,
    &static_ip_lookup::CLASS,
];
