//! Samples for tests: a router with two ports, two workers and a few elements.

use std::time::Duration;

use control::api::{DropRow, ElementRow, PortRow, PuntRow, QueueRow, SystemRow, TrafficRow, WorkerRow};

use super::sample::{Listed, Sample};

/// A router `second` seconds after its start, whose first port received `packets` packets of 100 bytes and whose other counters
/// are in proportion.
pub(super) fn sample(second: u64, packets: u64) -> Sample {
    let at = Duration::from_secs(second);
    let moved = |packets| TrafficRow {
        packets,
        bytes: packets * 100,
        dropped: packets / 1_000,
        ..TrafficRow::default()
    };
    let port = |index: u32, rx, tx| PortRow {
        name: format!("eth{index}"),
        driver: "af_xdp".into(),
        mode: if index == 1 { "zero-copy".into() } else { "copy".into() },
        index,
        is_up: true,
        has_carrier: index == 1,
        rx: moved(rx),
        tx: moved(tx),
        to_linux: rx / 100,
        ..PortRow::default()
    };
    let worker = |worker, is_slow, busy, queues: &[&str]| WorkerRow {
        worker,
        is_slow,
        busy,
        busy_since_start: busy / 2.0,
        packets: packets / (worker as u64 + 1),
        cycles_per_packet: (!is_slow).then_some(812.5),
        queues: queues.iter().map(|queue| (*queue).to_owned()).collect(),
    };
    let queue = |port: &str, sends, worker| QueueRow {
        port: port.into(),
        sends,
        worker,
        packets,
        bytes: packets * 100,
        dropped: vec![("no free frame".into(), packets / 10_000)],
        shared_with: if sends { Vec::new() } else { vec![0, 1] },
        ..QueueRow::default()
    };
    let dropped = |element: &str, reason: &str, packets| DropRow {
        element: element.into(),
        class: "CheckIPHeader".into(),
        reason: reason.into(),
        packets,
    };
    let punted = |element: &str, reason: &str, packets| PuntRow {
        element: element.into(),
        class: "FIBLookup".into(),
        reason: reason.into(),
        packets,
    };
    let element = |element: &str, class: &str, packets, each: f64| ElementRow {
        element: element.into(),
        class: class.into(),
        packets,
        dropped: packets / 500,
        cycles: packets as f64 * each,
        counts: Vec::new(),
        edges: Vec::new(),
    };
    Sample {
        system: SystemRow {
            host: "r1".into(),
            version: "1.2.3".into(),
            pid: 77,
            namespace: 4_026_531_840,
            uptime_seconds: 90_000.0 + second as f64,
            drift: None,
            problems: None,
            workers: 2,
            tables: Vec::new(),
            next_hops: None,
            frames: Vec::new(),
        },
        ports: listed(at, vec![port(1, packets, packets / 2), port(2, packets / 2, packets)]),
        workers: listed(
            at,
            vec![
                worker(0, false, 0.95, &["eth1:0", "eth2:0"]),
                worker(1, false, 0.5, &["eth1:1"]),
                worker(2, true, 0.01, &[]),
            ],
        ),
        queues: listed(at, vec![queue("eth1", false, 0), queue("eth2", true, 0), queue("eth10", false, 1)]),
        drops: listed(
            at,
            vec![dropped("check", "bad checksum", packets / 100), dropped("rt", "no route", packets / 10)],
        ),
        punts: listed(at, vec![punted("rt", "local", packets / 50), punted("ttl", "TTL expired", 9)]),
        elements: listed(
            at,
            vec![
                element("in", "FromDevice", packets, 100.0),
                element("check", "CheckIPHeader", packets, 50.0),
                element("rt", "FIBLookup", packets - packets / 100, 250.0),
                element("idle", "Discard", 0, 0.0),
            ],
        ),
    }
}

fn listed<T>(at: Duration, rows: Vec<T>) -> Listed<T> {
    Listed { at, rows, refusal: String::new() }
}
