//! A trial: packets at a rate for a time, and what came back. One thread sends and receives in turns, so that a packet
//! is never judged before it was counted as sent.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use packet::Batch;

use super::histogram::Histogram;
use super::pacing::Pacer;
use super::sink::{Counts, Sink};
use super::source::Source;
use super::stations::{Expected, Stations};
use super::values::Rate;

/// A wait longer than this is slept, not spun.
const SHORTEST_SLEEP_NS: u64 = 1_000_000;
/// A sleep ends so long before the next packet is due: waking takes its time.
const WAKE_NS: u64 = 150_000;
/// When every packet has come, duplicates may still be under way.
const GRACE_NS: u64 = 100_000_000;
pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// How fast, how many, how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrialOptions {
    pub(crate) rate: Rate,
    /// Most packets sent at a time, 1 to 256.
    pub(crate) burst: usize,
    pub(crate) count: Option<u64>,
    pub(crate) duration_ns: Option<u64>,
    /// Whether time in which this thread could not run is made good; see [`Pacer`].
    pub(crate) catches_up: bool,
    /// How long to wait for packets after the last one that was sent or came.
    pub(crate) settle_ns: u64,
}

/// What happened.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) sent: u64,
    /// Of these, those that are judged when they come back.
    pub(crate) judged: u64,
    /// Bytes sent, FCS counted.
    pub(crate) sent_bytes: u64,
    /// How long the sending took.
    pub(crate) sending_ns: u64,
    /// From the first packet that was sent to the last that came.
    pub(crate) receiving_ns: u64,
    pub(crate) counts: Counts,
    pub(crate) latency: Histogram,
    /// Whether each packet was judged, and not only counted.
    pub(crate) is_judged: bool,
}

impl Outcome {
    pub(crate) fn lost(&self) -> u64 {
        self.counts.lost(self.judged)
    }

    /// Share, in percent, of packets that was lost, doubled or corrupted.
    pub(crate) fn faults_percent(&self) -> f64 {
        self.counts.faults_percent(self.judged)
    }

    /// Packets a second that were sent.
    pub(crate) fn offered_pps(&self) -> f64 {
        per_second(self.sent, self.sending_ns)
    }

    /// Bits a second that were sent, FCS counted.
    pub(crate) fn offered_bps(&self) -> f64 {
        per_second(self.sent_bytes * 8, self.sending_ns)
    }

    pub(crate) fn received_pps(&self) -> f64 {
        per_second(self.counts.received, self.receiving_ns.max(self.sending_ns))
    }

    pub(crate) fn received_bps(&self) -> f64 {
        per_second(self.counts.bytes * 8, self.receiving_ns.max(self.sending_ns))
    }
}

fn per_second(count: u64, ns: u64) -> f64 {
    count as f64 * 1e9 / ns.max(1) as f64
}

/// How it goes, once a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub(crate) elapsed_ns: u64,
    pub(crate) sent: u64,
    pub(crate) judged: u64,
    pub(crate) counts: Counts,
}

/// Runs a trial. Its source has a generator number that no trial before had.
pub(crate) fn run(
    stations: &mut Stations,
    source: &mut impl Source,
    options: &TrialOptions,
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Outcome> {
    let mut sink = Sink::new(source.mark(), if stations.has_sink() { source.flows() } else { 0 });
    let limits = [options.count, source.count()];
    let mut sender = Sender {
        batch: Batch::new(),
        next: 0,
        bytes: 0,
        last_ns: 0,
        limit: limits.into_iter().flatten().min().unwrap_or(u64::MAX),
        burst: options.burst,
    };
    let clock = stations.clock();
    let start_ns = clock.now_ns();
    let end_ns = options.duration_ns.map_or(u64::MAX, |duration| start_ns.saturating_add(duration));
    let mut pacer = Pacer::new(options.rate, options.burst, source.largest(), start_ns);
    if options.catches_up {
        pacer = pacer.catching_up();
    }
    let mut sending_ended_ns = None;
    let mut next_progress_ns = start_ns + SECOND_NS;
    loop {
        let received = stations.receive(&mut Expected { sink: &mut sink, source, sent: sender.next });
        let now_ns = clock.now_ns();
        let mut sent = 0;
        let mut idle_ns = 0;
        match sending_ended_ns {
            None => {
                let over = now_ns >= end_ns || sender.next >= sender.limit;
                if over || interrupted.load(Ordering::Relaxed) {
                    // A paced packet takes its whole interval; the last one too.
                    let last_ns = sender.last_ns.max(start_ns);
                    sending_ended_ns = Some(last_ns + pacer.due_in_ns(last_ns));
                } else {
                    sent = sender.send_due(stations, source, &mut pacer, start_ns, now_ns)?;
                    idle_ns = pacer.due_in_ns(now_ns).min(end_ns - now_ns);
                }
            }
            Some(ended_ns) => {
                let quiet_since = sink.counts.last_ns.max(ended_ns);
                let quiet_ns = now_ns.saturating_sub(quiet_since);
                let complete = sink.counts.lost(source.judged(sender.next)) == 0 || !stations.has_sink();
                let patience = if complete { GRACE_NS.min(options.settle_ns) } else { options.settle_ns };
                if quiet_ns >= patience {
                    break;
                }
                idle_ns = patience - quiet_ns;
            }
        }
        if now_ns >= next_progress_ns {
            next_progress_ns += SECOND_NS;
            let judged = source.judged(sender.next);
            let elapsed_ns = now_ns - start_ns;
            progress(&Progress { elapsed_ns, sent: sender.next, judged, counts: sink.counts });
        }
        if sent == 0 {
            stations.flush();
            if received == 0 && idle_ns > SHORTEST_SLEEP_NS {
                let until_progress = next_progress_ns.saturating_sub(now_ns);
                // Wakes now and then to see an interruption.
                stations.doze((idle_ns - WAKE_NS).min(until_progress).min(SECOND_NS / 20));
            }
        }
    }
    let ended_ns = sending_ended_ns.unwrap_or(start_ns);
    Ok(Outcome {
        sent: sender.next,
        judged: source.judged(sender.next),
        sent_bytes: sender.bytes,
        sending_ns: ended_ns - start_ns,
        receiving_ns: sink.counts.last_ns.saturating_sub(start_ns),
        counts: sink.counts,
        latency: sink.latency,
        is_judged: true,
    })
}

struct Sender {
    batch: Batch,
    /// Number of the next packet: so many were sent.
    next: u64,
    bytes: u64,
    last_ns: u64,
    limit: u64,
    burst: usize,
}

impl Sender {
    /// Sends what is due, one burst at most; how many packets.
    #[inline]
    fn send_due(
        &mut self,
        stations: &mut Stations,
        source: &mut impl Source,
        pacer: &mut Pacer,
        start_ns: u64,
        now_ns: u64,
    ) -> Result<usize> {
        let wanted = (self.limit - self.next).min(self.burst as u64);
        source.prepare(self.next..self.next + wanted)?;
        if let Some(due_ns) = source.due_ns(self.next) {
            pacer.wait_until(start_ns.saturating_add(due_ns));
        }
        pacer.advance(now_ns);
        if !pacer.is_due(now_ns) {
            return Ok(0);
        }
        stations.pool.allocate_batch(&mut self.batch, wanted as usize);
        let mut number = self.next;
        for packet in self.batch.iter_mut() {
            if let Some(due_ns) = source.due_ns(number) {
                pacer.wait_until(start_ns.saturating_add(due_ns));
            }
            if !pacer.is_due(now_ns) {
                break;
            }
            if !source.write(number, now_ns, packet) {
                bail!("a packet of {} bytes does not fit into a frame of the pool", source.size(number));
            }
            pacer.spend(source.size(number));
            number += 1;
        }
        let built = (number - self.next) as usize;
        while self.batch.len() > built
            && let Some(packet) = self.batch.pop()
        {
            stations.pool.free_packet(packet);
        }
        if built == 0 {
            return Ok(0);
        }
        let taken = stations.send(&mut self.batch);
        // What the port has no room for was not sent: its numbers are given again.
        while let Some(packet) = self.batch.pop() {
            stations.pool.free_packet(packet);
            number -= 1;
            pacer.refund(source.size(number));
        }
        for sent in self.next..number {
            self.bytes += u64::from(source.size(sent));
        }
        source.note_sent(self.next..number);
        self.next = number;
        if taken > 0 {
            self.last_ns = now_ns;
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::super::replay::{Replay, ReplayOptions};
    use super::super::stations::Station;
    use super::super::trace::tests::{LIMITS, frame, surveyed, written};
    use super::super::traffic::Kind;
    use super::*;
    use ports::{ETHERNET, Precision};

    #[test]
    fn frames_of_a_trace_leave_when_they_are_due_and_not_before() {
        let times_ns = [5, 15, 15, 25, 1_005];
        let records = times_ns.map(|time_ns| (time_ns, 96, frame(Kind::UDP, 1, 0, 100)));
        let file = written(Precision::Nanoseconds, ETHERNET, &records);
        let trace = surveyed(file.path(), LIMITS).unwrap();
        let options = ReplayOptions { passes: 1, speed: Some(1.0), source_mac: None, destination_mac: None };
        let mut replay = Replay::new(&trace, options, 1).unwrap();
        let mut stations = Stations::new(Station::open("null:").unwrap(), None, false, 100).unwrap();
        let mut pacer = Pacer::new(Rate::Max, 32, 100, 1_000);
        let mut sender = Sender { batch: Batch::new(), next: 0, bytes: 0, last_ns: 0, limit: 5, burst: 2 };
        let mut sent =
            |now_ns| sender.send_due(&mut stations, &mut replay, &mut pacer, 1_000, now_ns).unwrap();
        // The first, and no more; then two, as many as a burst has, and what is late.
        let sent = [1_000, 1_009, 1_020, 1_020, 1_999, 2_000].map(&mut sent);
        assert_eq!(sent, [1, 0, 2, 1, 0, 1]);
        assert_eq!((sender.next, replay.judged(5)), (5, 5));
    }
}
