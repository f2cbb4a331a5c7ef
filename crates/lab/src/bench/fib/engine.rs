//! What is measured: an engine, one way to find the next hops of addresses, be it ours in this process or DPDK's in
//! another. The bench drives all of them through [`Engine`] and knows nothing else of them.
//!
//! The rules that make figures comparable, which every engine keeps:
//!
//! * a table is loaded from routes in memory; the time until the first lookup could be made is `load_s`, for ours until
//!   the routes are published and both copies of the table hold them;
//! * a run goes over the whole address list again and again, for at least [`RUN_SECONDS`] after one pass that is not
//!   counted, in batches of [`fib::BURST`] or one by one;
//! * next hops are written to memory and the compiler must believe that somebody reads them there;
//! * time is CPU time of the one thread that looks up;
//! * a check is a pass through the same code as a timed one, with a checksum.

use anyhow::Result;
use packet::Family;

use super::report::Metric;
use super::tables::{Checksum, Routes};
use super::traffic::Traffic;

/// A run lasts at least so long. The same number stands in dpdk_tables.c.
pub(super) const RUN_SECONDS: f64 = 0.15;
/// An updates run ends after so long, even if there is more to change. The same number stands in dpdk_tables.c.
pub(super) const UPDATE_SECONDS: f64 = 1.0;

/// How addresses are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loop {
    /// In batches of [`fib::BURST`], whose memory accesses may overlap.
    Batch,
    /// One after the other, with nothing known of the next one.
    Single,
}

impl Loop {
    pub(super) const ALL: [Loop; 2] = [Loop::Batch, Loop::Single];
}

/// What loading a table took.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    /// From routes in memory to ready for lookups, in seconds.
    pub(super) seconds: f64,
    /// What lookups read, in bytes.
    pub(super) table_bytes: u64,
    /// The same for all copies of the table, in bytes; `None` if the engine has one.
    pub(super) both_bytes: Option<u64>,
    /// All copies and the engine's own list of the routes, in bytes.
    pub(super) heap_bytes: u64,
    /// How the engine is set up, for people.
    pub(super) description: String,
}

/// What an engine with a worker is measured with.
pub(super) struct WithWorker<'a, A: Family> {
    /// The routes that were loaded.
    pub(super) routes: &'a Routes<A>,
    /// What the worker looks up.
    pub(super) traffic: &'a Traffic<A>,
    /// Phases with changes, and as many without.
    pub(super) runs: usize,
}

/// A way to find next hops, under measurement.
pub(super) trait Engine<A: Family> {
    /// The column it has, and the last word of its cases.
    fn name(&self) -> &'static str;

    /// Whether it is ours.
    fn is_ours(&self) -> bool;

    /// Compiles the routes. Once, and before everything else.
    fn load(&mut self, routes: &Routes<A>) -> Result<Loaded>;

    /// Takes the addresses that the following calls look up.
    fn set_addresses(&mut self, addresses: &[A]) -> Result<()>;

    /// The next hops of all addresses, in one number.
    fn checksum(&mut self, way: Loop) -> Result<Checksum>;

    /// One run; lookups a second.
    fn lookup_rate(&mut self, way: Loop) -> Result<f64>;

    /// Gives the routes of these numbers another next hop, in this order, and then their own again: changes of routes a
    /// second, its list of the routes included. The table is then as it was.
    fn update_rate(&mut self, order: &[u32]) -> Result<f64>;

    /// Figures of changes while a worker looks up: of routes, and of next hops that fail. None for engines that are not
    /// made to be read by one thread and changed by another here.
    fn with_worker(&mut self, _: &WithWorker<'_, A>) -> Result<Vec<(Metric, f64)>> {
        Ok(Vec::new())
    }
}
