//! Our fast path on the bench's own thread, over memory and over DPDK's vdevs.
//!
//! The example router receives by one port and sends by three others. Over DPDK the receiving one is the vdev under
//! measurement, and so is the port that minimal forwarding sends by; the router's other ports are `net_null` without
//! receiving, since each has a line of its own to look for: what they send goes through DPDK and is freed there.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fib::read::Row;
use ports::{MemoryLoop, OpenOptions, Port};

use super::cases::{Case, Driver, Load, Routes, Work};
use super::{Available, Contestant, Figures, Missing, Setting, by_cpu_time};
use crate::bench::cpus::{Apart, place_worker};
use crate::bench::proof::{Model, prove, vdev};
use crate::bench::single_core::{ROUTER_PORTS, SingleCore};
use crate::bench::{drop_in, frames, routes};

/// Mbufs beside those that hold a file's frames, for ours and for testpmd.
pub(super) const MBUFS_ON_THEIR_WAY: usize = 4_096;

/// Huge pages that such a case takes until the bench ends (our driver's mempools live as long as the process): its mbufs,
/// those in caches and rings, and those of the router's other ports.
pub(super) fn megabytes(case: &Case) -> u64 {
    if !matches!(case.driver, Driver::NetPcap | Driver::NetNull) || !cfg!(feature = "dpdk") {
        return 0;
    }
    let others = if case.work != Work::Minimal { (ROUTER_PORTS - 1) * 2 * MBUFS_ON_THEIR_WAY } else { 0 };
    let mbufs = case.load.dests + 2 * MBUFS_ON_THEIR_WAY + others;
    (mbufs * MBUF_BYTES) as u64 / 1_000_000 + 1
}

/// What an mbuf takes with its metadata and data room.
const MBUF_BYTES: usize = 2_560;

/// The frames of a group's cases, and the table that their destinations are in; made when first asked for.
pub(super) struct Frames {
    load: Load,
    made: Option<Made>,
}

struct Made {
    rows: Vec<Row>,
    templates: Vec<Vec<u8>>,
    table: PathBuf,
    capture: Option<PathBuf>,
    rules: Option<PathBuf>,
}

impl Frames {
    pub(super) fn new(load: Load) -> Self {
        Self { load, made: None }
    }

    fn make(&mut self, setting: &Setting<'_>) -> Result<&mut Made> {
        if self.made.is_none() {
            let Load { routes, dests, .. } = self.load;
            let real = || routes::real(&setting.arguments.frames.table);
            let rows = match routes {
                Routes::One => routes::default_route(),
                Routes::Grown(count) => routes::grown(&real()?, count),
                Routes::Real => real()?,
            };
            let table = routes::write_table(setting.folder, &format!("{}-{dests}", rows.len()), &rows)?;
            let templates = frames::templates(&rows, dests, setting.arguments.frames.size);
            self.made = Some(Made { rows, templates, table, capture: None, rules: None });
        }
        match &mut self.made {
            Some(made) => Ok(made),
            None => bail!("no frames were made"),
        }
    }

    /// The frames as a capture file.
    pub(super) fn capture(&mut self, setting: &Setting<'_>) -> Result<PathBuf> {
        let made = self.make(setting)?;
        if let Some(path) = &made.capture {
            return Ok(path.clone());
        }
        let path = made.table.with_extension("pcap");
        frames::write_pcap(&path, &made.templates)?;
        made.capture = Some(path.clone());
        Ok(path)
    }

    /// The routes as l3fwd reads them, over its ports 1 to 3.
    pub(super) fn rules(&mut self, setting: &Setting<'_>) -> Result<PathBuf> {
        let made = self.make(setting)?;
        if let Some(path) = &made.rules {
            return Ok(path.clone());
        }
        let path = made.table.with_extension("cfg");
        let mut text = String::with_capacity(made.rows.len() * 24);
        for row in &made.rows {
            text.push_str(&format!("R{} {}\n", row.prefix, routes::port_of(row.origin)));
        }
        fs::write(&path, text).with_context(|| format!("cannot write '{}'", path.display()))?;
        made.rules = Some(path.clone());
        Ok(path)
    }

    /// How many frames there are.
    pub(super) fn count(&self) -> usize {
        self.load.dests
    }
}

/// Our fast path, ready.
struct Ours {
    core: SingleCore,
    apart: Option<Apart>,
}

impl Contestant for Ours {
    fn run(&mut self, seconds: f64) -> Result<Figures> {
        place_worker(self.apart);
        let run = self.core.run(seconds);
        if run.packets == 0 {
            bail!("nothing was received");
        }
        Ok(by_cpu_time(run.packets, run.cycles))
    }

    fn check(&mut self) -> Result<()> {
        self.core.checked_stats(false).map(|_| ())
    }
}

fn open(spec: &str) -> Result<Box<dyn Port>> {
    Ok(ports::open(spec, &OpenOptions::default())?)
}

/// The spec of a vdev that loops this file of so many frames, which it keeps in mbufs.
pub(in crate::bench) fn looped_file(capture: &Path, frames: usize) -> String {
    let (name, mbufs) = (vdev("net_pcap"), frames + MBUFS_ON_THEIR_WAY);
    format!("dpdk:{name},rx_pcap={},infinite_rx=1?mbufs={mbufs}", capture.display())
}

pub(super) fn contestant<'a>(
    setting: &Setting<'_>,
    case: &Case,
    frames: &mut Frames,
) -> Result<Available<Box<dyn Contestant + 'a>>> {
    let burst = setting.arguments.run.burst;
    let over_dpdk = case.driver != Driver::Memory;
    if over_dpdk && !cfg!(feature = "dpdk") {
        return Ok(Err(Missing(
            "this program was built without DPDK; 'cargo build --release --features dpdk' builds it with \
             (needs the package libdpdk-dev)"
                .into(),
        )));
    }
    let input: Box<dyn Port> = match case.driver {
        Driver::NetPcap => open(&looped_file(&frames.capture(setting)?, frames.count()))?,
        Driver::NetNull => {
            open(&format!("dpdk:{},size={}", vdev("net_null"), setting.arguments.frames.size))?
        }
        _ => Box::new(MemoryLoop::new(frames.make(setting)?.templates.clone())),
    };
    let output =
        || if over_dpdk { open(&format!("dpdk:{},no-rx=1", vdev("net_null"))) } else { open("null:") };
    let mut core = match case.work {
        Work::Route | Work::DropIn => {
            let made = frames.make(setting)?;
            let fib = drop_in::fib(if case.work == Work::DropIn { &made.rows } else { &[] })?;
            let router = |ports: [Box<dyn Port>; ROUTER_PORTS]| match case.work {
                Work::DropIn => drop_in::router(ports, &fib, burst),
                _ => SingleCore::router(ports, &made.table, burst),
            };
            prove(&made.templates, &Model::new(&made.rows, &[]), over_dpdk, router)?;
            router([input, output()?, output()?, output()?])?
        }
        _ => SingleCore::minimal(input, None, burst, burst)?,
    };
    place_worker(setting.apart);
    core.run(setting.arguments.run.seconds.min(0.2));
    core.reset_stats();
    Ok(Ok(Box::new(Ours { core, apart: setting.apart })))
}
