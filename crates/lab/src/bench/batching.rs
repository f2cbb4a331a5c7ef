//! `brickway-lab bench batching`: rate and latency of minimal forwarding over receive bursts by transmit bursts.
//!
//! Rates are those of `FromDevice -> ToDevice` as it stands. Latency is the time from the return of a receive to the
//! return of the send that took the packet, of packets drawn at random: one at a time is marked, by port wrappers of
//! this bench around the same ports, in runs of their own.

use packet::sync::lock;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use packet::{Batch, Pool, cycles};
use ports::{MemoryLoop, OpenOptions, Port, PortError, PortInfo, QueueStats, RxQueue, TxQueue};
use serde_json::json;

use super::cpus::{Apart, place_worker};
use super::folder::folder;
use super::runs::medians_of;
use super::single_core::SingleCore;
use super::{children, frames, median, print_figure, print_setting, routes};
use crate::progress;
use router::output::{say, say_line};
use router::table::{Align, Table};

/// Measures rate and latency of minimal forwarding over receive bursts by transmit bursts.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab bench batching                              bursts 1 to 256, all drivers of this build
  brickway-lab bench batching --rx 1,32,256 --tx 32        a few
  brickway-lab bench batching --drivers memory --json

Drivers: memory is a loop in this program's memory, net_pcap DPDK's vdev that loops a file (in a build with DPDK).
A receive burst is the number of packets that FromDevice takes from its port at a time. A transmit burst is the number that ToDevice
waits for within a turn of its worker. Latency is the time from the receive that brought a packet to the end of the send that took it.")]
pub(crate) struct BatchingArguments {
    /// Drivers to measure
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    drivers: Vec<DriverName>,
    /// Receive bursts, 1 to 256
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "1,2,4,8,16,32,64,128,256")]
    rx: Vec<usize>,
    /// Transmit bursts, 1 to 256
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "1,2,4,8,16,32,64,128,256")]
    tx: Vec<usize>,
    /// Frame size in bytes, without frame check sequence
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// Seconds for each run
    #[arg(long, default_value_t = 0.05)]
    seconds: f64,
    /// Runs of each pair of bursts; the median is printed
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DriverName {
    /// A loop in memory
    Memory,
    /// DPDK's net_pcap
    #[value(name = "net_pcap")]
    NetPcap,
}

impl DriverName {
    fn name(self) -> &'static str {
        match self {
            DriverName::Memory => "memory",
            DriverName::NetPcap => "net_pcap",
        }
    }
}

/// What a pair of bursts gave; latencies in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Cell {
    mpps: f64,
    median_ns: f64,
    p99_ns: f64,
}

pub(crate) fn batching(arguments: &BatchingArguments) -> Result<ExitCode> {
    check_arguments(arguments)?;
    children::end_on_signals()?;
    let result = measure_all(arguments);
    progress::clear();
    result
}

fn check_arguments(arguments: &BatchingArguments) -> Result<()> {
    for (option, bursts) in [("--rx", &arguments.rx), ("--tx", &arguments.tx)] {
        if let Some(burst) = bursts.iter().find(|burst| !(1..=packet::MAX_BATCH).contains(*burst)) {
            bail!("{option} {burst} is out of range: 1 to {}", packet::MAX_BATCH);
        }
    }
    if !(60..=1514).contains(&arguments.size) {
        bail!("--size {} is out of range: 60 to 1514 bytes", arguments.size);
    }
    if !(1..=1000).contains(&arguments.runs) {
        bail!("--runs {} is out of range: 1 to 1000", arguments.runs);
    }
    if !(0.001..=60.0).contains(&arguments.seconds) {
        bail!("--seconds {} is out of range: 0.001 to 60", arguments.seconds);
    }
    if arguments.drivers.contains(&DriverName::NetPcap) && !cfg!(feature = "dpdk") {
        bail!(
            "--drivers net_pcap: this program was built without DPDK; 'cargo build --release --features dpdk' builds it \
             with (needs the package libdpdk-dev)"
        );
    }
    Ok(())
}

fn measure_all(arguments: &BatchingArguments) -> Result<ExitCode> {
    let folder = folder()?;
    let templates = frames::templates(&routes::default_route(), 1, arguments.size);
    let capture = folder.path().join("frames.pcap");
    frames::write_pcap(&capture, &templates)?;
    place_worker(Apart::find());
    let mut drivers = arguments.drivers.clone();
    if drivers.is_empty() {
        drivers.push(DriverName::Memory);
        if cfg!(feature = "dpdk") {
            drivers.push(DriverName::NetPcap);
        }
    }
    let traffic = format!("{}-byte frames, FromDevice -> ToDevice", arguments.size);
    if arguments.json {
        let (runs, seconds) = (arguments.runs, arguments.seconds);
        print_setting(
            "batching",
            json!({"traffic": traffic, "place": "one core", "runs": runs, "seconds": seconds}),
        );
    } else {
        say_line!("{traffic}, one core; {} of {} s", medians_of(arguments.runs), arguments.seconds);
    }
    for driver in drivers {
        let ports = Ports { driver, templates: &templates, capture: &capture };
        let mut matrix = Vec::new();
        for &rx in &arguments.rx {
            let mut row = Vec::new();
            for &tx in &arguments.tx {
                let case = format!("{}/rx={rx}/tx={tx}", driver.name());
                progress::tell(&format!("bursts over {}", driver.name()), &format!("rx={rx} tx={tx}"));
                let cell = measure(arguments, &ports, rx, tx).with_context(|| case.clone())?;
                if arguments.json {
                    print_figure("batching", &case, "mpps", cell.mpps, "Mpps");
                    print_figure("batching", &case, "latency_median_ns", cell.median_ns, "ns");
                    print_figure("batching", &case, "latency_p99_ns", cell.p99_ns, "ns");
                }
                row.push(cell);
            }
            matrix.push(row);
        }
        progress::clear();
        if !arguments.json {
            print_matrix(arguments, driver, &matrix);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Two matrices: a row for each receive burst, a column for each transmit burst.
fn print_matrix(arguments: &BatchingArguments, driver: DriverName, matrix: &[Vec<Cell>]) {
    let titles: Vec<&'static str> =
        arguments.tx.iter().map(|tx| &*Box::leak(format!("tx {tx}").into_boxed_str())).collect();
    let show = |what: &str, text: &dyn Fn(&Cell) -> String| {
        let mut columns = vec![("receive burst", Align::Right)];
        columns.extend(titles.iter().map(|title| (*title, Align::Right)));
        let mut table = Table::new(&columns);
        for (rx, row) in arguments.rx.iter().zip(matrix) {
            table.row(std::iter::once(rx.to_string()).chain(row.iter().map(text)));
        }
        say!("\n{}: {what}\n{}", driver.name(), table.render());
    };
    show("Mpps", &|cell| format!("{:.1}", cell.mpps));
    show("latency in ns, median / 99th percentile", &|cell| {
        format!("{:.0} / {:.0}", cell.median_ns, cell.p99_ns)
    });
}

/// Opens the same port again and again.
struct Ports<'a> {
    driver: DriverName,
    templates: &'a [Vec<u8>],
    capture: &'a PathBuf,
}

impl Ports<'_> {
    fn open(&self) -> Result<Box<dyn Port>> {
        Ok(match self.driver {
            DriverName::Memory => Box::new(MemoryLoop::new(self.templates.to_vec())),
            DriverName::NetPcap => {
                let spec = super::io::looped_file(self.capture, self.templates.len());
                ports::open(&spec, &OpenOptions::default())?
            }
        })
    }
}

fn measure(arguments: &BatchingArguments, ports: &Ports<'_>, rx: usize, tx: usize) -> Result<Cell> {
    let mut plain = SingleCore::minimal(ports.open()?, None, rx, tx)?;
    let samples = Samples::default();
    let marked = Box::new(Marked { port: ports.open()?, samples: samples.clone() });
    let mut timed = SingleCore::minimal(marked, None, rx, tx)?;
    plain.run(arguments.seconds.min(0.02));
    timed.run(arguments.seconds.min(0.02));
    samples.take();
    let (mut rates, mut all) = (Vec::new(), Vec::new());
    for _ in 0..arguments.runs {
        children::stop_if_interrupted()?;
        rates.push(plain.run(arguments.seconds).cycles_per_packet());
        timed.run(arguments.seconds);
        all.extend(samples.take());
    }
    plain.checked_stats(false)?;
    if all.is_empty() {
        bail!("no packet's latency was measured");
    }
    all.sort_unstable();
    let ns = |share: f64| all[((all.len() - 1) as f64 * share) as usize] as f64 * 1e9 / cycles::per_second();
    Ok(Cell { mpps: cycles::per_second() / median(rates) / 1e6, median_ns: ns(0.5), p99_ns: ns(0.99) })
}

/// Receives between two marked packets: the marking then costs the others next to nothing.
const RECEIVES_PER_SAMPLE: u32 = 16;

/// The marked packet, if one is on its way, and the latencies of those before it, in TSC cycles.
#[derive(Debug, Default)]
struct Marks {
    /// Address of the packet's frame, and when its receive returned.
    marked: Option<(usize, u64)>,
    receives: u32,
    latencies: Vec<u64>,
    random: u32,
}

/// Shared by the receive and the transmit queue of a marked port, which one thread owns.
#[derive(Clone, Debug, Default)]
struct Samples(Arc<Mutex<Marks>>);

impl Samples {
    fn marks(&self) -> MutexGuard<'_, Marks> {
        lock(&self.0)
    }

    /// The latencies since the last call.
    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.marks().latencies)
    }
}

/// A port whose packets' time from receive to send is measured.
struct Marked {
    port: Box<dyn Port>,
    samples: Samples,
}

impl Port for Marked {
    fn info(&self) -> PortInfo {
        self.port.info()
    }

    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
        let (queue, samples) = (self.port.take_rx(queue)?, self.samples.clone());
        Ok(Box::new(MarkedRx { queue, samples }))
    }

    fn take_tx(&mut self, queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
        let (queue, samples) = (self.port.take_tx(queue)?, self.samples.clone());
        Ok(Box::new(MarkedTx { queue, samples }))
    }
}

struct MarkedRx {
    queue: Box<dyn RxQueue>,
    samples: Samples,
}

impl RxQueue for MarkedRx {
    fn prepare(&mut self, pool: &mut Pool) -> Result<(), PortError> {
        self.queue.prepare(pool)
    }

    fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, max: usize) -> usize {
        let before = batch.len();
        let count = self.queue.receive(pool, batch, max);
        let mut marks = self.samples.marks();
        marks.receives += 1;
        // A packet that never comes to a send was dropped; the next one has its turn.
        let lost = marks.receives > 64 * RECEIVES_PER_SAMPLE;
        if count > 0 && marks.receives >= RECEIVES_PER_SAMPLE && (marks.marked.is_none() || lost) {
            marks.receives = 0;
            marks.random = marks.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let chosen = before + (marks.random >> 16) as usize % count;
            marks.marked = Some((batch.packets()[chosen].chunk().addr().get(), cycles::now()));
        }
        count
    }

    fn stats(&self) -> QueueStats {
        self.queue.stats()
    }
}

struct MarkedTx {
    queue: Box<dyn TxQueue>,
    samples: Samples,
}

impl TxQueue for MarkedTx {
    fn prepare(&mut self, pool: &mut Pool) -> Result<(), PortError> {
        self.queue.prepare(pool)
    }

    fn send(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let mut marks = self.samples.marks();
        let place = marks.marked.and_then(|(address, at)| {
            let place = batch.iter().position(|packet| packet.chunk().addr().get() == address)?;
            Some((place, at))
        });
        let sent = self.queue.send(pool, batch);
        if let Some((_, at)) = place.filter(|(place, _)| *place < sent) {
            marks.latencies.push(cycles::now().saturating_sub(at));
            marks.marked = None;
        }
        sent
    }

    fn flush(&mut self, pool: &mut Pool) {
        self.queue.flush(pool);
    }

    fn stats(&self) -> QueueStats {
        self.queue.stats()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn marked_packets_are_timed_once_each() {
        let samples = Samples::default();
        let port = Box::new(MemoryLoop::new(vec![vec![0; 64]]));
        let marked = Box::new(Marked { port, samples: samples.clone() });
        let mut core = SingleCore::minimal(marked, None, 4, 2).unwrap();
        let run = core.run(0.01);
        core.checked_stats(false).unwrap();
        let latencies = samples.take();
        assert!(!latencies.is_empty());
        let receives = run.packets / 4 + 1;
        assert!(latencies.len() as u64 <= receives / u64::from(RECEIVES_PER_SAMPLE) + 1);
        assert!(latencies.iter().all(|&latency| latency > 0));
        assert!(samples.take().is_empty());
    }
}
