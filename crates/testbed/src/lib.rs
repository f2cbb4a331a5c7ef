//! What tests need of the machine that runs them: root, programs of Debian packages, network namespaces, and patience.
//!
//! A test that lacks one of these fails, so a machine that cannot run a test does not report it as passed. Without root,
//! `BRICKWAY_NO_ROOT=1` leaves out the tests that need it.

mod guard;
mod namespace;
mod wait;

pub use guard::{is_installed, is_root};
pub use namespace::{in_namespace, ip, run, veth_pair};
pub use wait::{DEADLINE, eventually, wait_until};
