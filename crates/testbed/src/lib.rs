//! What tests need of the machine that runs them: root, programs of Debian packages and ours, network namespaces, and patience.
//!
//! A test that lacks one of these fails, so a machine that cannot run a test does not report it as passed. Without root,
//! `BRICKWAY_NO_ROOT=1` leaves out the tests that need it.

mod folder;
mod guard;
pub mod ipv4;
pub mod ipv6;
mod namespace;
mod network;
mod program;
mod wait;

pub use folder::Folder;
pub use guard::{is_installed, is_root};
pub use namespace::{in_namespace, ip, run, veth_pair};
pub use network::{Network, Running, interrupt, namespaces, reply_number};
pub use program::program;
pub use wait::{DEADLINE, eventually, wait_until};
