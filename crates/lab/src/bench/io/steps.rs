//! What is forwarded between veth links of what is sent, over the rate at which it is sent: for experiments.

use std::cell::RefCell;
use std::path::PathBuf;

use anyhow::Result;
use packet::IpVersion;

use super::cases::{Case, Driver, Engine, Load, Routes, Work};
pub(crate) use super::veth::Step;
use super::veth::Veth;
use super::{IoArguments, Setting};
use crate::bench::children;
use crate::bench::cpus::Apart;
use crate::bench::folder::folder;
use crate::bench::runs::{FrameArguments, RunArguments};
use crate::progress;

/// Who forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forwarder {
    /// The kernel.
    Linux,
    /// This router with its tables in the kernel, which `brickway run` chooses where it can, and over AF_XDP.
    Xdp,
    AfXdp,
}

impl Forwarder {
    /// Returns its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Forwarder::Linux => "Linux",
            Forwarder::Xdp => "ours, xdp",
            Forwarder::AfXdp => "ours, af_xdp",
        }
    }
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// Routes of the table, which is the real one, thinned or grown.
    pub(crate) routes: usize,
    /// Different destinations.
    pub(crate) destinations: usize,
    /// Sources, each with a sink and with links of its own; those behind the first send to one destination.
    pub(crate) lines: usize,
    /// Bytes of a frame.
    pub(crate) size: usize,
}

/// What came of each rate, from the least to the highest.
pub(crate) type Steps = Vec<Step>;

/// Sends at each rate, in million frames a second, through each forwarder. The inner error says what the machine lacks.
///
/// # Errors
/// A forwarder does not run, or nothing arrives.
pub(crate) fn sweep(
    sent: Sent,
    forwarders: &[Forwarder],
    rates: &[f64],
    seconds: f64,
    runs: usize,
) -> Result<Result<Vec<Steps>, String>> {
    children::end_on_signals()?;
    let folder = folder()?;
    let run = RunArguments { burst: 64, seconds, runs, json: false };
    let frames = FrameArguments { table: crate::tables::ipv4(), size: sent.size };
    let arguments = IoArguments { only: Vec::new(), frames, table6: PathBuf::new(), run };
    let apart = Apart::find();
    let more_pages = RefCell::default();
    let setting =
        Setting { arguments: &arguments, folder: &folder, apart, has_huge_pages: false, more_pages };
    let load = Load::new("steps", IpVersion::V4, Routes::Grown(sent.routes), sent.destinations);
    let veth = match Veth::new(&setting, load, sent.lines)? {
        Ok(veth) => veth,
        Err(missing) => return Ok(Err(missing.0)),
    };
    let mut all = Vec::new();
    for &forwarder in forwarders {
        let (driver, engine) = match forwarder {
            Forwarder::Linux => (Driver::Veth, Engine::Kernel),
            Forwarder::Xdp => (Driver::Xdp, Engine::Brickway),
            Forwarder::AfXdp => (Driver::AfXdp, Engine::Brickway),
        };
        let Sent { routes, destinations, size, .. } = sent;
        progress::tell(
            "links",
            &format!("{}, {size} bytes, {routes} routes, {destinations} destinations", forwarder.name()),
        );
        match veth.on_veth(&Case { driver, work: Work::Forward, load, engine })? {
            Ok(on_veth) => all.push(on_veth.sweep(rates, seconds, runs)?),
            Err(missing) => return Ok(Err(missing.0)),
        }
    }
    Ok(Ok(all))
}
