//! netlink: how Linux tells of links, addresses, routes, next-hop objects, neighbours and rules (rtnetlink), and of IPsec.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `kernel` | [`Kernel`]: the kernel's state, dumped and followed; why nothing is lost |
//! | `advertisements` | router advertisements, which change routes without a message |
//! | `links` | the interfaces alone, followed |
//! | `schedule` | when each part is dumped again |
//! | `same_key` | several routes of one key: the one in force is reported |
//! | `hidden` | IPv6 routes that no dump tells |
//! | `sockets` | sockets |
//! | `frames` | messages in a row of bytes |
//! | `message` | from a message to what it says |
//! | `attributes` | attributes of messages |
//! | `request` | what we ask of the kernel |
//! | [`ask`] | questions that are answered once, over other protocols of netlink too |
//! | `counters` | what was counted |
//! | [`xfrm`] | IPsec: security associations and policies, followed; what became of them, reported back |

mod advertisements;
pub mod ask;
mod attributes;
mod counters;
mod frames;
mod hidden;
mod kernel;
mod links;
mod message;
mod request;
mod same_key;
mod schedule;
mod sockets;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub mod xfrm;

pub use attributes::{Attribute, attributes};
pub use counters::{Counters, Reasons};
pub(crate) use frames::HEADER_LENGTH;
pub use frames::{Frame, frames};
pub use kernel::{Event, Kernel, KernelOptions};
pub(crate) use links::LinkWatch;
pub use message::{DecodeError, Decoded, decode};
pub(crate) use request::Message;
