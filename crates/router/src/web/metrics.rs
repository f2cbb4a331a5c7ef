//! `/metrics`: the state of the router in the text format of Prometheus, made of the rows of `brickway show`.
//!
//! Names begin with `brickway_`, units are base units (bytes, seconds, ratios), counts end with `_total`. The crate `prometheus` writes
//! the text: `prometheus-client` writes only OpenMetrics, which `promtool check metrics` does not read.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Encoder, TEXT_FORMAT, TextEncoder};

use super::Site;
use super::snapshot::Snapshot;

pub(super) async fn metrics(State(site): State<Site>) -> Response {
    let text = text(&*site.snapshots.now().await);
    ([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response()
}

/// Collects metrics by name.
#[derive(Default)]
struct Families(BTreeMap<&'static str, MetricFamily>);

impl Families {
    fn add(&mut self, name: &'static str, help: &str, value: f64, labels: &[(&str, &str)]) {
        let is_count = name.ends_with("_total");
        let family = self.0.entry(name).or_insert_with(|| {
            let mut family = MetricFamily::default();
            family.set_name(name.to_owned());
            family.set_help(help.to_owned());
            family.set_field_type(if is_count { MetricType::COUNTER } else { MetricType::GAUGE });
            family
        });
        let pair = |&(name, value): &(&str, &str)| {
            let mut pair = LabelPair::default();
            pair.set_name(name.to_owned());
            pair.set_value(value.to_owned());
            pair
        };
        let mut metric = Metric::from_label(labels.iter().map(pair).collect());
        if is_count {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        family.mut_metric().push(metric);
    }
}

/// Writes a snapshot.
fn text(snapshot: &Snapshot) -> String {
    let mut all = Families::default();
    ports(&mut all, snapshot);
    graph(&mut all, snapshot);
    system(&mut all, snapshot);
    features(&mut all, snapshot);
    let families: Vec<MetricFamily> = all.0.into_values().collect();
    let mut bytes = Vec::new();
    if let Err(error) = TextEncoder::new().encode(&families, &mut bytes) {
        tracing::warn!("metrics: {error}");
    }
    String::from_utf8(bytes).unwrap_or_default()
}

fn ports(all: &mut Families, snapshot: &Snapshot) {
    for port in &snapshot.ports {
        let name = ("port", port.name.as_str());
        for (direction, way) in [("receive", &port.rx), ("transmit", &port.tx)] {
            let labels = [name, ("direction", direction)];
            let mut add = |name, help, value: u64| all.add(name, help, value as f64, &labels);
            add(
                "brickway_port_packets_total",
                "Packets received and sent by workers and kernel.",
                way.packets,
            );
            add(
                "brickway_port_bytes_total",
                "Bytes of them, with the Ethernet header, without the frame check sequence.",
                way.bytes,
            );
            add(
                "brickway_port_dropped_total",
                "Packets lost for want of room, frames or a link.",
                way.dropped,
            );
            add(
                "brickway_port_errors_total",
                "Packets lost because they, or the device, had an error.",
                way.errors,
            );
        }
        all.add(
            "brickway_port_to_linux_total",
            "Packets handed to Linux by the graph or by the driver's program.",
            port.to_linux as f64,
            &[name],
        );
        let is_up = port.is_up && port.has_carrier && port.index != 0;
        all.add("brickway_port_up", "Whether the link is up.", f64::from(u8::from(is_up)), &[name]);
        all.add(
            "brickway_port_mtu_bytes",
            "Largest packet, without the Ethernet header.",
            f64::from(port.mtu),
            &[name],
        );
        let labels = [
            name,
            ("driver", port.driver.as_str()),
            ("mode", port.mode.as_str()),
            ("path", port.path.as_str()),
        ];
        all.add("brickway_port_info", "What carries the packets of a port; always 1.", 1.0, &labels);
    }
    for queue in &snapshot.queues {
        let number = queue.queue.to_string();
        let direction = if queue.sends { "transmit" } else { "receive" };
        let labels = [("port", queue.port.as_str()), ("queue", number.as_str()), ("direction", direction)];
        all.add(
            "brickway_queue_packets_total",
            "Packets of a queue of workers.",
            queue.packets as f64,
            &labels,
        );
        all.add("brickway_queue_bytes_total", "Bytes of a queue of workers.", queue.bytes as f64, &labels);
        for (reason, packets) in &queue.lost {
            let labels = [labels[0], labels[1], labels[2], ("reason", reason.as_str())];
            all.add("brickway_queue_lost_total", "Packets that the driver lost.", *packets as f64, &labels);
        }
    }
}

fn graph(all: &mut Families, snapshot: &Snapshot) {
    for row in &snapshot.drops {
        let labels = [
            ("element", row.element.as_str()),
            ("class", row.class.as_str()),
            ("reason", row.reason.as_str()),
        ];
        all.add("brickway_dropped_total", "Packets that an element dropped.", row.packets as f64, &labels);
    }
    for row in &snapshot.punts {
        let labels = [
            ("element", row.element.as_str()),
            ("class", row.class.as_str()),
            ("reason", row.reason.as_str()),
        ];
        let help = "Packets that left the usual way, for Linux or to be answered.";
        all.add("brickway_punted_total", help, row.packets as f64, &labels);
    }
    // Those that no packet has come to would be most of them.
    for row in snapshot.elements.iter().filter(|row| row.packets > 0 || row.cycles > 0.0) {
        let labels = [("element", row.element.as_str()), ("class", row.class.as_str())];
        all.add(
            "brickway_element_packets_total",
            "Packets that came into an element.",
            row.packets as f64,
            &labels,
        );
        let help = "Cycles of the time-stamp counter that an element took, estimated from a sample.";
        all.add("brickway_element_cycles_total", help, row.cycles, &labels);
    }
    for row in &snapshot.workers {
        let worker = if row.is_slow { "slow".to_owned() } else { row.worker.to_string() };
        let labels = [("worker", worker.as_str())];
        all.add(
            "brickway_worker_busy_ratio",
            "Share of the last second that a worker worked.",
            row.busy,
            &labels,
        );
        all.add(
            "brickway_worker_packets_total",
            "Packets that a worker received.",
            row.packets as f64,
            &labels,
        );
    }
}

fn system(all: &mut Families, snapshot: &Snapshot) {
    for (state, count) in &snapshot.neighbours {
        all.add(
            "brickway_neighbours",
            "Neighbours by their state.",
            *count as f64,
            &[("state", state.as_str())],
        );
    }
    for row in &snapshot.netlink {
        let help = "What is known of the mirror of Linux's state, by name.";
        all.add("brickway_netlink", help, row.value as f64, &[("name", row.name.as_str())]);
    }
    let Some(system) = &snapshot.system else { return };
    let labels = [("version", system.version.as_str())];
    all.add("brickway_build_info", "The version of the router; always 1.", 1.0, &labels);
    all.add("brickway_uptime_seconds", "Time since the router began.", system.uptime_seconds, &[]);
    for table in &system.tables {
        let (number, family) = (table.table.to_string(), table.family.to_string());
        let labels = [("table", number.as_str()), ("family", family.as_str()), ("kind", table.kind.as_str())];
        all.add("brickway_routes", "Routes in a forwarding table.", table.routes as f64, &labels);
    }
    if let Some((used, most)) = system.next_hops {
        all.add("brickway_next_hops", "Next hops in use.", used as f64, &[]);
        all.add("brickway_next_hops_limit", "The most next hops that there may be.", most as f64, &[]);
    }
    for (worker, (free, frames)) in system.frames.iter().enumerate() {
        let worker = worker.to_string();
        let labels = [("worker", worker.as_str())];
        all.add(
            "brickway_frames_free",
            "Frames of a worker's pool that no packet has.",
            *free as f64,
            &labels,
        );
        all.add("brickway_frames", "Frames of a worker's pool.", *frames as f64, &labels);
    }
}

/// Access-list rules, IPsec, and whatever else features count: numbers of their rows, with the words of a row as labels.
fn features(all: &mut Families, snapshot: &Snapshot) {
    for (feature, rows) in &snapshot.features {
        for row in rows.as_array().into_iter().flatten().filter_map(|row| row.as_object()) {
            if let Some(packets) = row.get("packets").and_then(serde_json::Value::as_u64) {
                let text = |key: &str| match row.get(key) {
                    Some(serde_json::Value::String(text)) => text.clone(),
                    Some(serde_json::Value::Number(number)) => number.to_string(),
                    _ => String::new(),
                };
                let (number, rule) = (text("number"), text("rule"));
                let labels =
                    [("feature", feature.as_str()), ("number", number.as_str()), ("rule", rule.as_str())];
                let help = "Packets that a row of a feature's table met: rules of access lists.";
                all.add("brickway_feature_packets_total", help, packets as f64, &labels);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use control::api::{DropRow, PortRow, TrafficRow};

    use super::*;

    #[test]
    fn names_with_quotes_are_escaped_and_counts_are_whole() {
        let port = PortRow {
            name: "eth\"1\\\n".to_owned(),
            rx: TrafficRow { packets: 12_345_678_901_234, bytes: 7, ..TrafficRow::default() },
            ..PortRow::default()
        };
        let drops = vec![DropRow {
            element: "rt".to_owned(),
            class: "FIBLookup".to_owned(),
            reason: "no route".to_owned(),
            packets: 5,
        }];
        let text = text(&Snapshot { ports: vec![port], drops, ..Snapshot::default() });
        for line in [
            r#"brickway_port_packets_total{port="eth\"1\\\n",direction="receive"} 12345678901234"#,
            "# TYPE brickway_port_packets_total counter",
            r#"brickway_dropped_total{element="rt",class="FIBLookup",reason="no route"} 5"#,
            "# TYPE brickway_port_up gauge",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} in\n{text}");
        }
    }
}
