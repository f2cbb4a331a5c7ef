//! A trial whose frames the kernel makes, sends and counts ([`ports::Flood`]): the rates at which routers of ours work on plain
//! interfaces are beyond what sockets can send and receive.
//!
//! A frame that comes back is known by magic and generator of its signature. Checksums, order and time are not looked at, and
//! two of a kind are not told apart.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ports::{Flood, FloodCounts, FloodFrame, FloodOrders, FloodSender, Links, Spec, XdpFeatures};

use super::FrameSize;
use super::histogram::Histogram;
use super::signature::Mark;
use super::sink::{Counts, Sink};
use super::source::Source;
use super::stations::{Expected, Stations};
use super::traffic::{Traffic, TrafficOptions};
use super::trial::{Outcome, Progress, SECOND_NS, TrialOptions};
use super::values::{FCS_BYTES, LONGEST_ROUND, Rate};

/// Different frames of a flow whose sizes differ, at least: a whole round of a mix.
const SIZES: u32 = LONGEST_ROUND;
/// How often is looked what was sent and came.
const LOOK_NS: u64 = 1_000_000;

/// The kernel's side of a generator.
pub(crate) struct InKernel {
    flood: Flood,
    sender: FloodSender,
}

impl InKernel {
    /// For frames that leave by the port `tx` and come back by `rx`, of so many flows with sizes that `vary`.
    pub(crate) fn open(tx: &str, rx: Option<&str>, flows: u32, vary: bool) -> Result<Self> {
        let links = Links::ask().context("cannot ask Linux for its interfaces")?;
        let interface = |port: &str| {
            let spec = Spec::parse(port)?;
            let link = links.named(spec.name()).filter(|_| spec.driver() == "af_packet");
            link.map(|link| link.index).with_context(|| {
                format!("port `{port}`: the kernel sends and counts at interfaces only; expected a name such as eth1")
            })
        };
        let (out, back) = (interface(tx)?, rx.map(interface).transpose()?);
        let most = if vary { flows.max(SIZES) } else { flows };
        let (flood, sender) = Flood::load(out, back, most).context("cannot send and count in the kernel")?;
        // Once the counting program is there: it may be what makes the sending interface ready.
        if !XdpFeatures::ask(out).is_ok_and(XdpFeatures::sends_redirected) {
            bail!(
                "port `{tx}`: its driver sends no frames of programs now; at a veth the other end must poll: start the router there, \
                 or `ethtool -K OTHER-END gro on`"
            );
        }
        Ok(Self { flood, sender })
    }

    /// Runs a trial; see [`trial::run`](super::trial::run).
    pub(crate) fn run(
        &mut self,
        stations: &mut Stations,
        traffic_options: &TrafficOptions,
        generator: u16,
        options: &TrialOptions,
        interrupted: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Outcome> {
        let traffic = Traffic::new(traffic_options, generator);
        let frames = frames_of(stations, &traffic, traffic_options)?;
        let signature = super::signature::head(generator);
        let longest = usize::from(traffic.largest()) - FCS_BYTES;
        let byte_ns = if let Rate::Bits(bits) = options.rate { 8e9 / bits } else { 0.0 };
        let frame_ns = match options.rate {
            Rate::Packets(packets) => 1e9 / packets,
            _ => byte_ns * FCS_BYTES as f64,
        };
        let limit = options.count.unwrap_or(u64::MAX);
        self.flood.begin(&frames, &FloodOrders { limit, frame_ns, byte_ns, signature })?;
        let (flood, sender) = (&self.flood, &self.sender);
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| sender.send(longest));
            let mut must_end = || sending.is_finished() || interrupted.load(Ordering::Relaxed);
            let stop = || {
                while !sending.is_finished() {
                    sender.interrupt();
                    std::thread::sleep(Duration::from_nanos(LOOK_NS));
                }
            };
            let watched = watch(flood, stations, &traffic, options, progress, &mut must_end, &stop);
            stop();
            sending.join().expect("the sending thread does not panic")?;
            watched
        })
    }
}

/// Different frames, in the order of their numbers.
fn frames_of(
    stations: &mut Stations,
    traffic: &Traffic,
    options: &TrafficOptions,
) -> Result<Vec<FloodFrame>> {
    let vary = !matches!(options.size, FrameSize::Fixed(_));
    let count = if vary { options.flows.max(SIZES) } else { options.flows };
    let mut packet = stations.pool.allocate().context("no memory for a packet")?;
    let frame = |number| {
        if !traffic.write(number, 0, &mut packet) {
            bail!("a packet of {} bytes does not fit into a frame of the pool", traffic.size(number));
        }
        Ok(FloodFrame::new(packet.data()))
    };
    let frames = (0..u64::from(count)).map(frame).collect();
    stations.pool.free_packet(packet);
    frames
}

/// Watches a trial until all has come, answering ARP and neighbour solicitations meanwhile. Calls `stop` when nothing more is to be sent.
fn watch(
    flood: &Flood,
    stations: &mut Stations,
    traffic: &Traffic,
    options: &TrialOptions,
    progress: &mut dyn FnMut(&Progress),
    must_end: &mut dyn FnMut() -> bool,
    stop: &dyn Fn(),
) -> Result<Outcome> {
    let clock = stations.clock();
    let mut sink = Sink::new(Mark::of(0), 0);
    let start_ns = clock.now_ns();
    let mut counts = FloodCounts::default();
    let (mut sending_ns, mut receiving_ns, mut next_progress_ns) = (0, 0, SECOND_NS);
    let mut has_ended = false;
    loop {
        stations.receive(&mut Expected { sink: &mut sink, source: traffic, sent: 0 });
        stations.flush();
        let (before, now_ns) = (counts, clock.now_ns() - start_ns);
        counts = flood.counts()?;
        if counts.sent > before.sent {
            sending_ns = now_ns;
        }
        if counts.received > before.received {
            receiving_ns = now_ns;
        }
        if !has_ended {
            has_ended = must_end()
                || counts.sent >= options.count.unwrap_or(u64::MAX)
                || options.duration_ns.is_some_and(|duration| now_ns >= duration);
            if has_ended {
                stop();
            }
        } else {
            let quiet_ns = now_ns - sending_ns.max(receiving_ns);
            let is_complete = counts.received >= counts.sent || !stations.has_sink();
            if quiet_ns >= options.settle_ns
                || is_complete && quiet_ns >= options.settle_ns.min(SECOND_NS / 10)
            {
                break;
            }
        }
        if now_ns >= next_progress_ns {
            next_progress_ns += SECOND_NS;
            progress(&Progress {
                elapsed_ns: now_ns,
                sent: counts.sent,
                judged: counts.sent,
                counts: counts_of(counts, 0),
            });
        }
        stations.doze(LOOK_NS);
    }
    Ok(Outcome {
        sent: counts.sent,
        judged: counts.sent,
        sent_bytes: counts.sent_bytes + counts.sent * FCS_BYTES as u64,
        sending_ns,
        receiving_ns,
        counts: counts_of(counts, start_ns + receiving_ns),
        latency: Histogram::new(),
        is_judged: false,
    })
}

fn counts_of(counts: FloodCounts, last_ns: u64) -> Counts {
    Counts {
        received: counts.received,
        distinct: counts.received,
        bytes: counts.received_bytes + counts.received * FCS_BYTES as u64,
        last_ns,
        ..Counts::default()
    }
}
