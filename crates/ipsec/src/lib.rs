//! IPsec: Encapsulating Security Payload (RFC 4303) at the speed of the cipher, without I/O, clocks or threads.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`engine`] | ciphers, many packets at a time: intel-ipsec-mb and aws-lc-rs behind one trait |
//! | `suite` | [`Suite`]: which ciphers protect packets |
//! | [`association`] | [`Association`]: keys, sequence numbers, limits, shared by all workers |
//! | [`window`] | [`Window`](window::Window): the anti-replay window, lock-free |
//! | [`esp`] | sealing and opening batches of packets |
//! | `fault` | [`Fault`]: why packets are dropped |
//!
//! Keys come from an IKE daemon, by the kernel's table of associations or by a configuration. This crate never prints them, and
//! zeroes them when they go.

pub mod association;
pub mod engine;
pub mod esp;
mod fault;
mod suite;
pub mod window;

pub use association::{Association, Endpoints};
pub use engine::{Backend, Keys};
pub use fault::Fault;
pub use suite::{Protection, Suite};
pub use window::MAX_WINDOW;
