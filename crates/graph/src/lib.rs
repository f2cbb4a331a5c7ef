//! The Click language, the [`Element`] trait, and the machine that moves batches of packets through a graph
//! of elements.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`lang`] | the Click language: text in, flat configuration or diagnostics out |
//! | [`element`] | [`Element`], [`Class`]: what an author of an element implements |
//! | [`handler`] | named values of elements, to read and to write |
//! | [`arguments`] | the configuration string of an element, read by name, position and type |
//! | [`setup`] | what an element sees while it is made: arguments, ports, things shared between copies |
//! | [`context`] | what an element sees while it runs: outputs, inputs, drops, tasks, timers, frames |
//! | [`graph`](mod@graph) | one worker's copy of all elements, made from a flat configuration |
//! | [`hotswap`] | another configuration in a running one's place |
//! | [`router`] | all copies on their threads; handlers, statistics, start and stop |
//! | [`manual`] | manuals at the top of elements' files |
//! | `mail` | how a copy's thread is reached: waker and mail box |
//! | [`messages`] | standard error and standard output, which stop no worker |
//! | [`names`] | what `AddressInfo` and `PortInfo` call addresses and ports |
//! | [`roles`] | which worker receives, processes, sends |
//! | `secrets` | keys in configurations, which handlers do not print |
//! | [`runs`] | elements in a row that work as one on ordinary packets |
//! | [`punt`] | the bounded way from the workers to the slow thread |
//! | [`testing`] | a graph in memory for tests: packets in, packets out |
//!
//! **One rule shapes all of it**: an element never calls another one. It gets a batch, leaves in it what
//! goes out by output 0, hands what goes elsewhere to the [`Context`], and returns; the machine carries the
//! batches on, depth first, as Click would call them. So every element is a plain `&mut self`, no element is
//! ever entered twice, loops in the graph cost no stack, and this crate needs no `unsafe`.

#![forbid(unsafe_code)]
// A reader that went away must not end the router: `graph::messages` writes.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

pub mod arguments;
pub mod clock;
pub mod context;
pub mod element;
pub mod files;
pub mod graph;
pub mod handler;
pub mod hotswap;
pub mod lang;
mod mail;
pub mod manual;
pub mod messages;
pub mod names;
pub mod punt;
pub mod roles;
pub mod router;
pub mod runs;
mod secrets;
pub mod services;
pub mod setup;
pub mod testing;

pub use arguments::{Arguments, FromArgument};
pub use context::{Context, Verdict};
pub use element::{
    Alias, Capability, Class, ConfigError, DIVIDES, Element, KEEPS_ALL, QueueCounts, TAKES_MERGED, TaskStatus,
};
pub use handler::{Act, Ask, Combine, Field, Get, Handler, METRICS, Put};
pub use setup::Setup;
