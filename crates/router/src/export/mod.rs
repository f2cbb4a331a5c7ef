//! What is sampled, on its way to collectors.
//!
//! | file | what lives there |
//! | --- | --- |
//! | this one | [`Exporter`], and what exporters are given |
//! | `sflow` | sFlow version 5: samples with their headers, counters, drops |
//! | `ipfix` | IPFIX: records of flows |
//! | `psample` | samples and drops for the kernel's PSAMPLE and DROPMON |
//! | `limit` | so many a second |
//! | `collector` | where datagrams are sent |
//!
//! The router's side is `run/export`: a thread for each exporter, which takes samples out of the captures' rings. A router without
//! `[sflow]` and `[ipfix]` has no tap and no thread.

mod collector;
pub(crate) mod ipfix;
mod limit;
mod psample;
pub(crate) mod sflow;

use std::net::IpAddr;

use anyhow::Result;
use control::api::PortRow;

use crate::flows::key::Parsed;
use crate::settings::Settings;

/// What an exporter wants to see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// One packet of so many that come in by each port.
    pub(crate) rate: u32,
    /// The first bytes of each.
    pub(crate) bytes: usize,
    /// Whether it wants dropped packets too.
    pub(crate) drops: bool,
}

/// A packet that was sampled where it came in.
#[derive(Clone, Debug)]
pub(crate) struct Sample<'a> {
    /// The number that Linux has for the port; 0 if there is none.
    pub(crate) input: u32,
    pub(crate) way: Way,
    pub(crate) is_ethernet: bool,
    pub(crate) length: u32,
    /// How many packets it stands for, itself among them.
    pub(crate) stands_for: u64,
    /// Samples of this port that were lost so far for want of room.
    pub(crate) lost: u64,
    pub(crate) parsed: Parsed,
    pub(crate) data: &'a [u8],
}

/// Which way a packet takes, by the routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Way {
    /// The number of the interface by which it leaves; 0 where there are several, or none.
    pub(crate) output: u32,
    /// The router that it is handed to; none on a link itself.
    pub(crate) gateway: Option<IpAddr>,
    /// The lengths of the prefixes of its source and its destination; none where no route was found.
    pub(crate) lengths: Option<(u8, u8)>,
}

/// A packet that an element dropped.
#[derive(Clone, Debug)]
pub(crate) struct Dropped<'a> {
    /// The number of the interface by which it came in; 0 if that is not known.
    pub(crate) input: u32,
    pub(crate) reason: &'static str,
    pub(crate) is_ethernet: bool,
    pub(crate) length: u32,
    pub(crate) data: &'a [u8],
}

/// Sends what is sampled to collectors. It has a thread of its own.
pub(crate) trait Exporter: Send {
    /// Returns the name of its section and thread.
    fn name(&self) -> &'static str;

    /// Returns what it wants to see.
    fn wanted(&self) -> Wanted;

    /// Takes a sample.
    fn sampled(&mut self, sample: &Sample<'_>);

    /// Takes a dropped packet.
    fn dropped(&mut self, dropped: &Dropped<'_>);

    /// Sends what waits; called some times a second. `ports` counts what the ports moved.
    fn tick(&mut self, ports: &dyn Fn() -> Vec<PortRow>);
}

/// Returns the exporters that the settings ask for.
///
/// # Errors
/// There is no socket to be had.
pub(crate) fn exporters(settings: &Settings) -> Result<Vec<Box<dyn Exporter>>> {
    let sflow = sflow::Agent::new(&settings.sflow)?.map(|agent| Box::new(agent) as Box<dyn Exporter>);
    let ipfix = ipfix::Meter::new(&settings.ipfix)?.map(|meter| Box::new(meter) as Box<dyn Exporter>);
    let kernel =
        psample::KernelSamples::new(&settings.sflow)?.map(|kernel| Box::new(kernel) as Box<dyn Exporter>);
    Ok(sflow.into_iter().chain(ipfix).chain(kernel).collect())
}
