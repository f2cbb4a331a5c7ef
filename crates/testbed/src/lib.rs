//! What tests, the demos and benches need of the machine that runs them: network namespaces and links, programs in them, and for tests
//! also root, programs of Debian packages and ours, and patience.
//!
//! A test that lacks one of these fails, so a machine that cannot run a test does not report it as passed. Without root,
//! `BRICKWAY_NO_ROOT=1` leaves out the tests that need it. A kernel without ESP leaves out the tests of [`has_esp`]. [`Namespace`] and [`Running`] report errors, for demos and benches to
//! show; all else panics.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `namespace` | a network namespace, links between two, programs in it |
//! | `network` | the namespaces of a test, by their labels |
//! | `running`, `program` | programs that run; where ours are |
//! | `guard`, `wait`, `folder` | root, packages, turns; patience; a folder of files |
//! | `log` | what a test hears of the log |
//! | `ipv4`, `ipv6` | packets |
//! | `cards` | the table of emulated cards, of what `make rack` found |
//! | `documents` | the project's pages: their links, and the commands in them |
//! | `peers` | the chart of Brickway beside others, of the page that people read first |
//! | `prose` | the project's English: rules for pages, help texts, comments and messages |
//! | `../vm` | a virtual machine with Debian's kernel, for what the kernel at hand lacks |

#[cfg(test)]
mod cards;
pub mod documents;
mod folder;
mod guard;
pub mod ipv4;
pub mod ipv6;
mod log;
mod namespace;
mod network;
#[cfg(test)]
mod peers;
mod program;
pub mod prose;
mod running;
mod wait;

pub use folder::Folder;
pub use guard::{has_esp, is_installed, is_root, leave_out, turn};
pub use log::while_heard;
pub use namespace::{Namespace, enter, in_namespace, ip, namespaces, run, veth_pair};
pub use network::{Network, reply_number};
pub use program::program;
pub use running::{Running, interrupt};
pub use wait::{DEADLINE, eventually, wait_until};
