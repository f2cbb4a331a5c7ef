//! IPsec on a packet's way: which packets are protected, and ESP.
//!
//! ```text
//!                        +--[1] ESP to us --> EspDecap --> CheckIPHeader, CheckIP6Header --> IpsecPolicy
//!                        |
//!  ports -------> IpsecPolicy --[0]--> lookups
//!                        |
//!                        +--[2] to be protected --> DecIPTTL --> EspEncap --> lookups
//!                        |
//!                        +--[3] Linux
//! ```
//!
//! | file | what lives there |
//! | --- | --- |
//! | `database` | [`Database`]: policies and associations that all elements share, and how they change |
//! | `tables` | what workers see of it, made anew with each change |
//! | `policy` | [`Policy`], [`Selector`]: what is said about which packets |
//! | `parse` | policies and associations from text |
//! | `ipsec_policy` | element IpsecPolicy |
//! | `esp_decap` | element EspDecap |
//! | `esp_encap` | element EspEncap |
//! | `esp_to_host` | element EspToHost |
//! | `esp_reseal` | element EspReseal |
//! | `no_gateway` | element NoGateway |
//! | `activation` | [`Activation`]: when elements may be part of runs |

mod activation;
mod database;
mod esp_decap;
mod esp_encap;
mod esp_reseal;
mod esp_to_host;
mod ipsec_policy;
mod no_gateway;
mod parse;
mod policy;
mod tables;
#[cfg(test)]
mod tests;

use graph::{Capability, Class};

pub use activation::Activation;
pub use database::{Contents, Database, Entry, Kept, PolicyCount};
pub use policy::{Direction, Policy, PolicyAction, Selector, Template};
pub(crate) use tables::is_checked;
#[cfg(test)]
pub(crate) use tables::set_checked;

/// The element judges packets by the policies of IPsec.
pub const IPSEC_POLICY: Capability = Capability("IPsec policies");

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &ipsec_policy::CLASS,
    &esp_encap::CLASS,
    &esp_decap::CLASS,
    &esp_to_host::CLASS,
    &esp_reseal::CLASS,
    &no_gateway::CLASS,
];
