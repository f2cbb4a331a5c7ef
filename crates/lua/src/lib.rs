//! Lua on a packet's way: the element `Lua`.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `element` | the element: arguments, packets in and out, failures, handlers |
//! | `router` | the element with the router's forwarding tables |
//! | `script` | a script in its own Lua state: loaded, called, replaced |
//! | `prelude.lua` | what scripts see: batches, packets, headers |
//! | `main_loop` | the script's main loop, on a stack of its own |
//! | `shared` | memory that a script and its element share |
//! | `stage` | what a script works on and asks for during a call |
//! | `queues` | queues of a script, and how outputs take packets from them |
//! | `saved` | what a script leaves to its successor |
//! | `watchdog` | ends calls that do not return |
//!
//! **No pointer reaches a script.** LuaJIT's FFI library stays in the prelude. A packet or header is there a value with the number of
//! its batch, and each access compares that number and looks whether the place is within the packet; LuaJIT compiles this to a few
//! instructions. Scripts get libraries that reach memory or files where the configuration allows it, and only then.

#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]
#![allow(
    rustdoc::invalid_html_tags,
    rustdoc::broken_intra_doc_links,
    reason = "the manual at the top of the element's file is in Click's markup, for `brickway help`"
)]

mod element;
mod main_loop;
mod queues;
mod router;
mod saved;
mod script;
mod shared;
mod stage;
#[cfg(test)]
mod tests;
mod watchdog;

use graph::Class;

/// The classes of this library.
pub static CLASSES: &[&Class] = &[&element::CLASS, &router::CLASS];
