//! What the ports moved: counts of workers and of the kernel added up by port, and rates of the last second.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use control::api::{HistoryRow, RateRow, TrafficRow};
use elements::devices::{RECEIVER, SENDER};
use graph::lang::{FlatConfig, first_name};
use graph::router::CopyStats;
use ports::{DeviceCounts, DeviceTraffic, Devices, Event, counts_frames};

use super::history::History;
use crate::drop_in::Path;
use crate::features::vlan::vlan_of;

/// How often counts are taken, for rates.
pub(super) const PERIOD: Duration = Duration::from_secs(1);

/// Packets a second below which a worker's cycles say nothing of the cost of a packet.
const LEAST_RATE: f64 = 10_000.0;

/// Packets of a period that are not worth a word.
const FEW: u64 = 1000;

/// What an operator may do where Linux gets packets for this reason.
pub(super) fn remedy(left_because: &str) -> Option<&'static str> {
    match left_because {
        _ if left_because == Event::LeftUnfinished.name() => Some(
            "a host of this machine leaves it to a card; `ethtool -K INTERFACE tx off` at the host's end has it computed there",
        ),
        _ if left_because == Event::LeftLong.name() => Some(
            "they were merged, or a host of this machine leaves segmentation to a card; `ethtool -K INTERFACE tso off gso off` at \
             the host's end, and `gro off` at the port, has them come one by one, which slows that host's TCP down",
        ),
        _ => None,
    }
}

/// What a port moved.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PortCounts {
    pub(crate) rx: TrafficRow,
    pub(crate) tx: TrafficRow,
    /// Packets that came in by it and were forwarded in the kernel.
    pub(super) in_kernel: u64,
    /// Packets that came in by it to workers and were not handed to Linux.
    pub(super) by_workers: u64,
    /// Packets that Linux got.
    pub(super) to_linux: u64,
    /// Packets that were sent by it beside the router's, which Linux sent.
    pub(super) sent_by_linux: u64,
    /// What came in as its device counted, if that is known and the router receives by the port; and what of that the router's queues
    /// and programs counted, in whatever way it went on.
    pub(super) received: Option<u64>,
    pub(super) seen: u64,
    /// How much more what was sent in the kernel is than frames, in some of which packets are merged.
    pub(super) merged_tx: DeviceTraffic,
    /// Whether its device counts those frames.
    pub(super) counts_frames: bool,
    /// Whether it has a receive queue.
    pub(super) receives: bool,
    /// Packets that its driver's program left to Linux, by reason.
    pub(super) left: BTreeMap<&'static str, u64>,
}

impl PortCounts {
    /// Returns why its driver's program left most of what it left, if that is most of what Linux got.
    pub(super) fn left_because(&self) -> Option<&'static str> {
        let (left, reason) = self.all_left();
        (left * 2 > self.to_linux).then_some(reason)
    }

    /// Returns how many packets its driver's program left to Linux, and why most of them.
    pub(super) fn all_left(&self) -> (u64, &'static str) {
        let most = self.left.iter().max_by_key(|(_, packets)| **packets);
        (self.left.values().sum(), most.map_or("", |(reason, _)| reason))
    }

    /// What grew from these counts to later ones, of those that say who forwarded.
    pub(super) fn grown(&self, later: &PortCounts) -> PortCounts {
        let left = later.left.iter().map(|(&reason, packets)| {
            (reason, packets.saturating_sub(self.left.get(reason).copied().unwrap_or_default()))
        });
        PortCounts {
            in_kernel: later.in_kernel.saturating_sub(self.in_kernel),
            by_workers: later.by_workers.saturating_sub(self.by_workers),
            to_linux: later.to_linux.saturating_sub(self.to_linux),
            sent_by_linux: later.sent_by_linux.saturating_sub(self.sent_by_linux),
            left: left.collect(),
            ..PortCounts::default()
        }
    }
}

/// The counts of all ports, by name.
pub(crate) type Counts = BTreeMap<String, PortCounts>;

/// Adds up what the elements of all copies and the kernel counted.
pub(crate) fn counts(config: &FlatConfig, stats: &[CopyStats], in_kernel: &[(String, Path)]) -> Counts {
    let mut counts = Counts::new();
    let mut handed: BTreeMap<String, u64> = BTreeMap::new();
    for (flat, element) in stats.iter().flat_map(|copy| config.elements.iter().zip(&copy.elements)) {
        let mut errors = 0;
        for queue in &element.queues {
            match to_linux(&queue.port) {
                Some(port) if queue.sends => *handed.entry(port.to_owned()).or_default() += queue.packets,
                // Of Linux, by a VLAN.
                Some(_) => {}
                None => {
                    let port = counts.entry(queue.port.clone()).or_default();
                    port.receives |= !queue.sends;
                    let way = if queue.sends { &mut port.tx } else { &mut port.rx };
                    way.packets += queue.packets;
                    way.bytes += queue.bytes;
                    way.errors += queue.errors;
                    for &(reason, packets) in &queue.left_to_host {
                        *port.left.entry(reason).or_default() += packets;
                    }
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
    for (name, port) in &mut counts {
        let handed = handed.get(name).copied().unwrap_or_default();
        port.by_workers = port.rx.packets.saturating_sub(handed);
        let left = port.left.values().sum::<u64>();
        port.to_linux = handed + left;
        port.seen = port.rx.packets + port.rx.dropped + port.rx.errors + left;
    }
    for (name, path) in in_kernel {
        // A VLAN's packets came in by the port below.
        if let Some(below) = vlan_of(name).and_then(|(below, _)| counts.get_mut(below)) {
            below.seen += path.traffic.rx_packets;
        }
        let port = counts.entry(name.clone()).or_default();
        port.seen += path.traffic.rx_packets;
        port.merged_tx = path.traffic.merged_tx;
        port.in_kernel = path.traffic.rx_packets;
        port.rx.packets += path.traffic.rx_packets;
        port.rx.bytes += path.traffic.rx_bytes;
        port.tx.packets += path.traffic.tx_packets;
        port.tx.bytes += path.traffic.tx_bytes;
        port.tx.dropped += path.losses.total();
    }
    counts
}

/// What Linux counted of the devices of ports since the router began, also of those that were made anew meanwhile.
#[derive(Debug, Default)]
pub(super) struct DeviceMeter {
    known: BTreeMap<String, Device>,
    /// What they had counted before the router opened a port, until the first look.
    before: Option<Devices>,
}

#[derive(Debug)]
struct Device {
    /// The number of the interface.
    index: u32,
    last: DeviceCounts,
    since: DeviceCounts,
    /// How much more the packets that were sent in the kernel are than frames, at the last look.
    merged: DeviceTraffic,
}

impl DeviceMeter {
    /// Counts from what the devices have counted before.
    pub(super) fn since(before: Option<Devices>) -> Self {
        Self { before, ..Self::default() }
    }

    /// Puts what the devices counted in the place of what workers and kernel did, and the rest of what came in to Linux.
    /// `interface` is that of a port, if others than the router send and receive by it.
    pub(super) fn complete(&mut self, counts: &mut Counts, interface: impl Fn(&str) -> Option<String>) {
        // Packets come in meanwhile: the devices have counted what the ports have.
        let Ok(devices) = Devices::read() else { return };
        for (name, port) in counts {
            let Some(interface) = interface(name) else { continue };
            port.counts_frames = port.merged_tx.packets > 0 && counts_frames(&ports::kernel_name(&interface));
            let now = devices.of(&interface).map(|(index, now)| {
                let before = || self.before.as_ref()?.of(&interface).filter(|(of, _)| *of == index);
                let before = if self.known.contains_key(name) { None } else { before() };
                (index, before.map(|(_, counts)| counts), now)
            });
            self.complete_port(name, port, now);
        }
        // A device that comes later begins anew.
        self.before = None;
    }

    /// Does so for a port: with the number of its interface, and what that had counted before, if it was not known, and has now. Of
    /// one that is gone what it counted last stays.
    fn complete_port(
        &mut self,
        name: &str,
        port: &mut PortCounts,
        now: Option<(u32, Option<DeviceCounts>, DeviceCounts)>,
    ) {
        let mut seen = DeviceCounts { rx: of_port(port.rx), tx: of_port(port.tx) };
        seen.rx.packets += port.left.values().sum::<u64>();
        if let Some((index, before, now)) = now {
            let from_now = (now, seen, port.merged_tx);
            let from = |before| (before, DeviceCounts::default(), DeviceTraffic::default());
            let (last, since, merged) = before.map_or(from_now, from);
            let device = Device { index, last, since, merged };
            let device = self.known.entry(name.to_owned()).or_insert(device);
            device.follow(index, now, if port.counts_frames { port.merged_tx } else { device.merged });
        }
        let Some(device) = self.known.get_mut(name) else { return };
        port.received = (port.receives && now.is_some()).then_some(device.since.rx.packets);
        // Some drivers do not count what programs redirect.
        let ways =
            [(&mut port.rx, seen.rx, &mut device.since.rx), (&mut port.tx, seen.tx, &mut device.since.tx)];
        for (way, seen, device) in ways {
            if device.packets < seen.packets {
                (device.packets, device.bytes) = (seen.packets, device.bytes.max(seen.bytes));
            }
            (way.packets, way.bytes) = (device.packets, device.bytes);
        }
        port.sent_by_linux = port.tx.packets.saturating_sub(seen.tx.packets);
        let others = port.rx.packets.saturating_sub(port.in_kernel + port.by_workers + port.rx.dropped);
        port.to_linux = port.to_linux.max(others);
    }
}

impl Device {
    fn follow(&mut self, index: u32, now: DeviceCounts, merged: DeviceTraffic) {
        let is_same = index == self.index && now.rx.packets >= self.last.rx.packets;
        let last = if is_same { self.last } else { DeviceCounts::default() };
        self.since = self.since + (now - last);
        // Two may look at the same time, and the later one come first. Much less means that the program counts anew.
        let is_anew = merged.packets < self.merged.packets / 2;
        if is_anew || merged.packets >= self.merged.packets {
            let before = if is_anew { DeviceTraffic::default() } else { self.merged };
            self.since.tx = self.since.tx + (merged - before);
            self.merged = merged;
        }
        (self.index, self.last) = (index, now);
    }
}

fn of_port(way: TrafficRow) -> DeviceTraffic {
    DeviceTraffic { packets: way.packets, bytes: way.bytes }
}

/// The port whose Linux is behind a port of this name: `host:eth1?checked=yes`, and of a VLAN `tap:eth1.100?mac=...`.
pub(super) fn to_linux(name: &str) -> Option<&str> {
    let (driver, name) = name.split_once(':')?;
    let name = name.split_once('?').map_or(name, |(name, _)| name);
    (driver == "host" || driver == "tap" && vlan_of(name).is_some()).then_some(name)
}

/// Counts taken twice, so that there are rates.
#[derive(Debug, Default)]
pub(super) struct Meter {
    before: Option<Taken>,
    last: Option<Taken>,
    /// What the ports moved in each of the last periods.
    pub(super) history: History,
}

#[derive(Debug)]
struct Taken {
    at: Instant,
    ports: Counts,
    copies: Vec<Work>,
}

/// What a copy's thread did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    busy_ns: u64,
    /// Packets that it received.
    pub(super) packets: u64,
    /// Cycles of its elements.
    cycles: f64,
}

impl Work {
    /// What each copy's thread did so far.
    pub(super) fn of_copies(config: &FlatConfig, stats: &[CopyStats]) -> Vec<Work> {
        let work = |copy: &CopyStats| {
            let received =
                config.elements.iter().zip(&copy.elements).filter(|(element, _)| element.has(RECEIVER));
            Work {
                busy_ns: copy.busy_ns,
                packets: received.map(|(_, stats)| stats.packets).sum(),
                cycles: copy.elements.iter().map(|element| element.cycles).sum(),
            }
        };
        stats.iter().map(work).collect()
    }
}

impl Meter {
    /// Takes the counts of now, unless they were taken a moment ago.
    pub(super) fn take(&mut self, ports: Counts, copies: Vec<Work>) {
        self.take_at(Instant::now(), ports, copies);
    }

    fn take_at(&mut self, at: Instant, ports: Counts, copies: Vec<Work>) {
        self.before = self.last.replace(Taken { at, ports, copies });
        let rows = self.moved();
        if !rows.is_empty() {
            self.history.add(at, rows);
        }
    }

    /// Returns what the ports moved in the last period. A port that is new, or whose counts began anew, moved what is not known.
    fn moved(&self) -> Vec<HistoryRow> {
        let (Some(before), Some(last)) = (&self.before, &self.last) else { return Vec::new() };
        let seconds = (last.at - before.at).as_secs_f64();
        let rates = |from: TrafficRow, to: TrafficRow| {
            let rate = |count: u64| (count as f64 / seconds).round() as u64;
            Some(RateRow {
                packets_per_second: rate(to.packets.checked_sub(from.packets)?),
                bits_per_second: rate(to.bytes.checked_sub(from.bytes)?.saturating_mul(8)),
            })
        };
        let moved = last.ports.iter().filter_map(|(name, to)| {
            let from = before.ports.get(name)?;
            let (rx, tx) = (rates(from.rx, to.rx)?, rates(from.tx, to.tx)?);
            Some(HistoryRow { time: String::new(), port: name.clone(), rx, tx })
        });
        moved.collect()
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
            let of = |taken: &Taken| taken.ports.get(name).map(|port| (port.rx, port.tx)).unwrap_or_default();
            let (from, to) = (of(before), of(last));
            rates(&mut port.rx, from.0, to.0);
            rates(&mut port.tx, from.1, to.1);
        }
    }

    /// Returns the ports of which Linux got packets in the last period for a reason that has a remedy: the port, the packets, and the
    /// reason.
    pub(super) fn left(&self) -> Vec<(&str, u64, &'static str)> {
        let (Some(before), Some(last)) = (&self.before, &self.last) else { return Vec::new() };
        let found = last.ports.iter().filter_map(|(name, port)| {
            let grown = before.ports.get(name)?.grown(port);
            let (&reason, &packets) = grown
                .left
                .iter()
                .filter(|(reason, _)| remedy(reason).is_some())
                .max_by_key(|(_, packets)| **packets)?;
            (packets > 0).then_some((name.as_str(), packets, reason))
        });
        found.collect()
    }

    /// Returns the ports of which Linux got more than half of the last period's packets, for a reason that has a remedy, and more than
    /// a few: the port, the share in percent, and the reason.
    pub(super) fn mostly_left(&self) -> Vec<(&str, u64, &'static str)> {
        let (Some(before), Some(last)) = (&self.before, &self.last) else { return Vec::new() };
        let found = last.ports.iter().filter_map(|(name, port)| {
            let grown = before.ports.get(name)?.grown(port);
            let all = grown.in_kernel + grown.by_workers + grown.to_linux;
            let reason = grown.left_because().filter(|reason| remedy(reason).is_some())?;
            let is_most = grown.to_linux * 2 > all && grown.to_linux > FEW;
            is_most.then_some((name.as_str(), grown.to_linux * 100 / all, reason))
        });
        found.collect()
    }

    /// The share of the last period that a copy's thread worked; none while that is not known.
    pub(super) fn busy(&self, copy: usize) -> Option<f64> {
        let (before, last) = (self.before.as_ref()?, self.last.as_ref()?);
        let worked = last.copies.get(copy)?.busy_ns.saturating_sub(before.copies.get(copy)?.busy_ns);
        Some((worked as f64 / (last.at - before.at).as_nanos() as f64).clamp(0.0, 1.0))
    }

    /// The cycles of the last period for each packet; none where these were few, so that the cycles were those of wake-ups.
    pub(super) fn cycles_per_packet(&self, copy: usize) -> Option<f64> {
        let (before, last) = (self.before.as_ref()?, self.last.as_ref()?);
        let (from, to) = (before.copies.get(copy)?, last.copies.get(copy)?);
        let (packets, cycles) = (to.packets.checked_sub(from.packets)? as f64, to.cycles - from.cycles);
        let is_rate = packets >= LEAST_RATE * (last.at - before.at).as_secs_f64();
        (is_rate && cycles > 0.0).then(|| cycles / packets)
    }
}

#[cfg(test)]
mod tests {
    use graph::context::ElementStats;
    use graph::element::QueueCounts;

    use super::*;

    #[test]
    fn what_goes_to_linux_is_of_the_port_whose_linux_gets_it() {
        assert_eq!(
            ["host:eth1", "host:eth1?checked=yes", "tap:eth1.100?mac=1&mtu=2", "eth1", "tap:vm0"]
                .map(to_linux),
            [Some("eth1"), Some("eth1"), Some("eth1.100"), None, None]
        );
    }

    #[test]
    fn what_the_kernel_forwards_of_a_vlan_is_seen_by_the_port_below() {
        let text = "FromDevice(eth1) -> Discard; Idle -> ToDevice(eth2);".to_owned();
        let source = graph::lang::Source { name: "ports".to_owned(), text };
        let config =
            crate::load::compile(&source, &graph::lang::Options::default(), &crate::classes()).unwrap();
        let queue =
            |port: &str, sends| QueueCounts { port: port.to_owned(), sends, ..QueueCounts::default() };
        let of_element = |class: &str| match class {
            "FromDevice" => vec![queue("eth1", false)],
            "ToDevice" => vec![queue("eth2", true)],
            _ => Vec::new(),
        };
        let elements = config
            .elements
            .iter()
            .map(|element| ElementStats { queues: of_element(&element.class), ..ElementStats::default() });
        let copy = CopyStats {
            copy: 0,
            elements: elements.collect(),
            pool: packet::PoolStats::default(),
            busy: 0.0,
            busy_ns: 0,
        };
        let in_kernel = |name: &str, rx_packets| {
            let traffic = ports::KernelTraffic { rx_packets, ..ports::KernelTraffic::default() };
            (name.to_owned(), Path { traffic, ..Path::default() })
        };
        let paths = [in_kernel("eth1", 3), in_kernel("eth1.100", 4), in_kernel("eth2", 5)];
        let counts = counts(&config, &[copy], &paths);
        assert_eq!((counts["eth1"].seen, counts["eth1.100"].seen), (7, 4));
        // By eth2 the router receives nothing.
        assert_eq!((counts["eth1"].receives, counts["eth2"].receives), (true, false));
    }

    #[test]
    fn the_ways_of_a_port_add_up_to_what_it_received() {
        let of_device =
            |packets| DeviceCounts { rx: DeviceTraffic { packets, bytes: 0 }, tx: DeviceTraffic::default() };
        let mut meter = DeviceMeter::default();
        // What Linux got before the first look is in no count of the device, and that of one that is gone stays.
        for (left, by_workers, of_device) in [
            (2, 1, Some(of_device(1_000))),
            (3, 10, Some(of_device(1_012))),
            (9, 10, Some(of_device(1_020))),
            (9, 10, None),
        ] {
            let mut port = PortCounts {
                by_workers,
                to_linux: left,
                left: [("a reason", left)].into(),
                ..PortCounts::default()
            };
            port.rx.packets = by_workers;
            meter.complete_port("eth1", &mut port, of_device.map(|now| (7, None, now)));
            assert_eq!(port.rx.packets, port.in_kernel + port.by_workers + port.to_linux);
        }
    }

    #[test]
    fn a_device_counts_from_before_its_port_was_opened() {
        let rx = |packets, bytes| DeviceCounts {
            rx: DeviceTraffic { packets, bytes },
            tx: DeviceTraffic::default(),
        };
        let mut port = PortCounts { left: [("a reason", 4)].into(), to_linux: 4, ..PortCounts::default() };
        DeviceMeter::default().complete_port(
            "eth1",
            &mut port,
            Some((7, Some(rx(100, 6_400)), rx(110, 7_040))),
        );
        assert_eq!((port.rx.packets, port.rx.bytes, port.to_linux), (10, 640, 10));
    }

    #[test]
    fn merged_packets_that_were_sent_are_as_many_as_they_are_on_a_link() {
        let way = |packets, bytes| DeviceTraffic { packets, bytes };
        // Ten packets are in a frame that the program forwards. Linux sends one packet in each period, and the device counts frames or
        // packets. Once a look sees older counts than the one before, and at last the program's begin anew.
        for counts_frames in [true, false] {
            let mut meter = DeviceMeter::default();
            let (mut device, mut sent, mut seen) = ((0, 0), 0, 0);
            for (frames, is_anew) in [(0, false), (3, false), (40, false), (40, false), (2, true), (9, false)]
            {
                let (before, packets, older) = (device, 10 * frames, seen);
                seen = if is_anew { packets } else { seen + packets };
                sent += packets + 1;
                device.0 += 1 + if counts_frames { frames } else { packets };
                device.1 += 60 + 1_000 * packets;
                let of = |(packets, bytes)| DeviceCounts { rx: way(0, 0), tx: way(packets, bytes) };
                let mut look = |seen: u64| {
                    let mut port = PortCounts { receives: true, counts_frames, ..PortCounts::default() };
                    (port.tx.packets, port.tx.bytes) = (seen, 1_060 * seen);
                    port.merged_tx = way(seen - seen / 10, 60 * (seen - seen / 10));
                    meter.complete_port("eth1", &mut port, Some((7, Some(of(before)), of(device))));
                    port.tx.packets
                };
                assert_eq!(look(seen), sent, "{counts_frames} {frames}");
                if frames == 40 {
                    look(older.max(seen * 3 / 4));
                    assert_eq!(look(seen), sent, "{counts_frames} {frames}: older ones between");
                }
            }
        }
    }

    #[test]
    fn the_history_leaves_out_ports_that_are_new_and_counts_that_began_anew() {
        let of = |ports: &[(&str, u64, u64)]| -> Counts {
            let counts = |&(name, packets, sent): &(&str, u64, u64)| {
                let rx = TrafficRow { packets, bytes: 100 * packets, ..TrafficRow::default() };
                let tx = TrafficRow { packets: sent, bytes: 100 * sent, ..TrafficRow::default() };
                (name.to_owned(), PortCounts { rx, tx, ..PortCounts::default() })
            };
            ports.iter().map(counts).collect()
        };
        let (mut meter, mut at) = (Meter::default(), Instant::now());
        let mut moved = |ports| {
            at += Duration::from_secs(2);
            meter.take_at(at, of(ports), Vec::new());
            let rows = meter.history.moments().last().map(|moment| moment.rows().collect::<Vec<_>>());
            let names = rows
                .into_iter()
                .flatten()
                .map(|row| (row.port, row.rx.packets_per_second, row.tx.bits_per_second));
            names.collect::<Vec<_>>()
        };
        let row = |name: &str, packets, bits| (name.to_owned(), packets, bits);
        assert_eq!(moved(&[("eth1", 10, 0), ("eth2", 0, 0)]), []);
        assert_eq!(
            moved(&[("eth1", 2010, 20), ("eth2", 0, 0)]),
            [row("eth1", 1000, 8000), row("eth2", 0, 0)]
        );
        // One began anew, one is gone, one is new.
        assert_eq!(moved(&[("eth1", 9, 0), ("eth3", 500, 0)]), [row("eth1", 1000, 8000), row("eth2", 0, 0)]);
        assert_eq!(
            moved(&[("eth1", 9, 0), ("eth2", 7, 0), ("eth3", 700, 0)]),
            [row("eth1", 0, 0), row("eth3", 100, 0)]
        );
    }

    #[test]
    fn rates_are_those_of_the_last_period() {
        let of = |packets, bytes| {
            let rx = TrafficRow { packets, bytes, ..TrafficRow::default() };
            Counts::from([("eth1".to_owned(), PortCounts { rx, ..PortCounts::default() })])
        };
        let work = |packets, cycles| vec![Work { packets, cycles, ..Work::default() }];
        let mut meter = Meter::default();
        meter.take(of(10, 1000), work(1_000, 8e6));
        let mut now = of(30, 3000);
        meter.add_rates(&mut now);
        assert_eq!(now["eth1"].rx.packets_per_second, 0.0);
        meter.take(of(20, 2000), work(51_000, 33e6));
        // As if the second time had been two seconds after the first.
        let two_seconds_later = |meter: &mut Meter| {
            if let (Some(before), Some(last)) = (&meter.before, &mut meter.last) {
                last.at = before.at + Duration::from_secs(2);
            }
        };
        two_seconds_later(&mut meter);
        meter.add_rates(&mut now);
        assert_eq!((now["eth1"].rx.packets_per_second, now["eth1"].rx.bits_per_second), (5.0, 4000.0));
        assert_eq!(now["eth1"].rx.packets, 30);
        assert_eq!((meter.busy(1), meter.cycles_per_packet(0)), (None, Some(500.0)));
        meter.take(of(20, 2000), work(51_100, 41e6));
        two_seconds_later(&mut meter);
        assert_eq!(meter.cycles_per_packet(0), None);
    }
}
