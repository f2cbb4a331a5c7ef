//! What the ports moved: counts of workers and of the kernel added up by port, and rates of the last second.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use control::api::TrafficRow;
use elements::devices::{RECEIVER, SENDER};
use graph::lang::{FlatConfig, first_name};
use graph::router::CopyStats;

use crate::drop_in::Path;

/// How often counts are taken, for rates.
pub(super) const PERIOD: Duration = Duration::from_secs(1);

/// What a port moved.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PortCounts {
    pub(crate) rx: TrafficRow,
    pub(crate) tx: TrafficRow,
    /// Packets handed to Linux.
    pub(super) to_linux: u64,
}

/// The counts of all ports, by name.
pub(crate) type Counts = BTreeMap<String, PortCounts>;

/// Adds up what the elements of all copies and the kernel counted.
pub(crate) fn counts(config: &FlatConfig, stats: &[CopyStats], in_kernel: &[(String, Path)]) -> Counts {
    let mut counts = Counts::new();
    for (flat, element) in stats.iter().flat_map(|copy| config.elements.iter().zip(&copy.elements)) {
        let mut errors = 0;
        for queue in &element.queues {
            match to_linux(&queue.port) {
                Some(port) => counts.entry(port.to_owned()).or_default().to_linux += queue.packets,
                None => {
                    let port = counts.entry(queue.port.clone()).or_default();
                    let way = if queue.sends { &mut port.tx } else { &mut port.rx };
                    way.packets += queue.packets;
                    way.bytes += queue.bytes;
                    way.errors += queue.errors;
                    port.to_linux += queue.left_to_host.iter().map(|(_, packets)| packets).sum::<u64>();
                }
            }
            errors += queue.errors;
        }
        if !(flat.has(RECEIVER) || flat.has(SENDER)) {
            continue;
        }
        // What the driver lost counts as drops of the element, errors among them.
        let dropped = element.dropped().saturating_sub(errors);
        let name = first_name(&flat.config).unwrap_or_default();
        if dropped > 0 && to_linux(&name).is_none() {
            let port = counts.entry(name).or_default();
            let way = if flat.has(SENDER) { &mut port.tx } else { &mut port.rx };
            way.dropped += dropped;
        }
    }
    for (name, path) in in_kernel {
        let port = counts.entry(name.clone()).or_default();
        port.rx.packets += path.traffic.rx_packets;
        port.rx.bytes += path.traffic.rx_bytes;
        port.tx.packets += path.traffic.tx_packets;
        port.tx.bytes += path.traffic.tx_bytes;
        port.tx.dropped += path.losses.total();
    }
    counts
}

/// The port whose Linux gets what is sent to a port of this name: `host:eth1?checked=yes`.
pub(super) fn to_linux(name: &str) -> Option<&str> {
    let name = name.strip_prefix("host:")?;
    Some(name.split_once('?').map_or(name, |(name, _)| name))
}

/// Counts taken twice, so that there are rates.
#[derive(Debug, Default)]
pub(super) struct Meter {
    before: Option<Taken>,
    last: Option<Taken>,
}

#[derive(Debug)]
struct Taken {
    at: Instant,
    ports: Counts,
    busy_ns: Vec<u64>,
}

impl Meter {
    /// Takes the counts of now, unless they were taken a moment ago.
    pub(super) fn take(&mut self, ports: Counts, stats: &[CopyStats]) {
        let busy_ns = stats.iter().map(|copy| copy.busy_ns).collect();
        self.before = self.last.replace(Taken { at: Instant::now(), ports, busy_ns });
    }

    /// Whether it is time to take them again.
    pub(super) fn is_due(&self) -> bool {
        self.last.as_ref().is_none_or(|last| last.at.elapsed() >= PERIOD)
    }

    /// Fills in the rates of the last period.
    pub(super) fn add_rates(&self, ports: &mut Counts) {
        let (Some(before), Some(last)) = (&self.before, &self.last) else { return };
        let seconds = (last.at - before.at).as_secs_f64();
        let rates = |way: &mut TrafficRow, from: TrafficRow, to: TrafficRow| {
            way.packets_per_second = to.packets.saturating_sub(from.packets) as f64 / seconds;
            way.bits_per_second = to.bytes.saturating_sub(from.bytes) as f64 * 8.0 / seconds;
        };
        for (name, port) in ports {
            let of = |taken: &Taken| taken.ports.get(name).copied().unwrap_or_default();
            let (from, to) = (of(before), of(last));
            rates(&mut port.rx, from.rx, to.rx);
            rates(&mut port.tx, from.tx, to.tx);
        }
    }

    /// The share of the last period that a copy's thread worked; none while that is not known.
    pub(super) fn busy(&self, copy: usize) -> Option<f64> {
        let (before, last) = (self.before.as_ref()?, self.last.as_ref()?);
        let worked = last.busy_ns.get(copy)?.saturating_sub(*before.busy_ns.get(copy)?);
        Some((worked as f64 / (last.at - before.at).as_nanos() as f64).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_to_linux_is_of_the_port_whose_linux_gets_it() {
        assert_eq!(
            ["host:eth1", "host:eth1?checked=yes", "eth1"].map(to_linux),
            [Some("eth1"), Some("eth1"), None]
        );
    }

    #[test]
    fn rates_are_those_of_the_last_period() {
        let of = |packets, bytes| {
            let rx = TrafficRow { packets, bytes, ..TrafficRow::default() };
            Counts::from([("eth1".to_owned(), PortCounts { rx, ..PortCounts::default() })])
        };
        let mut meter = Meter::default();
        meter.take(of(10, 1000), &[]);
        let mut now = of(30, 3000);
        meter.add_rates(&mut now);
        assert_eq!(now["eth1"].rx.packets_per_second, 0.0);
        meter.take(of(20, 2000), &[]);
        // As if the second time had been two seconds after the first.
        if let (Some(before), Some(last)) = (&meter.before, &mut meter.last) {
            last.at = before.at + Duration::from_secs(2);
        }
        meter.add_rates(&mut now);
        assert_eq!((now["eth1"].rx.packets_per_second, now["eth1"].rx.bits_per_second), (5.0, 4000.0));
        assert_eq!(now["eth1"].rx.packets, 30);
        assert_eq!(meter.busy(0), None);
    }
}
