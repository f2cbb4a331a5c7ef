//! `/metrics`: the state of the router in the text format of Prometheus, made of the rows of `brickway show`.
//!
//! Names begin with `brickway_`, units are base units (bytes, seconds, ratios), counts end with `_total`. The crate `prometheus` writes
//! the text: `prometheus-client` writes only OpenMetrics, which `promtool check metrics` does not read.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use control::api::{ClusterNodeRow, ClusterRow};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Encoder, TEXT_FORMAT, TextEncoder};
use serde_json::Value;

use super::Site;
use super::snapshot::Snapshot;
use crate::features::FeatureSettings;

pub(super) async fn metrics(State(site): State<Site>) -> Response {
    let text = text(&*site.snapshots.now().await);
    ([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response()
}

/// Collects metrics by name.
#[derive(Default)]
struct Families(BTreeMap<String, MetricFamily>);

impl Families {
    fn add(&mut self, name: &str, help: &str, value: f64, labels: &[(&str, &str)]) {
        let is_count = name.ends_with("_total");
        let family = self.0.entry(name.to_owned()).or_insert_with(|| {
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
    cluster(&mut all, snapshot);
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
                "Packets received and sent since the router started, as Linux counts the device.",
                way.packets,
            );
            add("brickway_port_bytes_total", "Bytes of them, as the device's driver counts them.", way.bytes);
            add(
                "brickway_port_dropped_total",
                "Packets dropped for want of room, frames or a link.",
                way.dropped,
            );
            add(
                "brickway_port_errors_total",
                "Packets dropped because they, or the device, had an error.",
                way.errors,
            );
        }
        let ways = [("kernel", port.in_kernel), ("workers", port.by_workers), ("linux", port.to_linux)];
        for (by, packets) in ways {
            all.add(
                "brickway_port_handled_total",
                "Received packets, by who forwarded, answered or dropped them: the kernel by the router's tables, workers, or Linux.",
                packets as f64,
                &[name, ("by", by)],
            );
        }
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
        for (reason, packets) in &queue.dropped {
            let labels = [labels[0], labels[1], labels[2], ("reason", reason.as_str())];
            all.add(
                "brickway_queue_dropped_total",
                "Packets that the driver dropped.",
                *packets as f64,
                &labels,
            );
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
    for row in &snapshot.elements {
        let labels = [("element", row.element.as_str()), ("class", row.class.as_str())];
        for count in &row.counts {
            all.add(&format!("brickway_{}", count.name), &count.about, count.value, &labels);
        }
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
        if row.name == "overruns" {
            let help = "Overruns of the netlink socket, after each of which all tables were read again.";
            all.add("brickway_netlink_overruns_total", help, row.value as f64, &[]);
            continue;
        }
        let help = "What is known of the mirror of Linux's state, by name.";
        all.add("brickway_netlink", help, row.value as f64, &[("name", row.name.as_str())]);
    }
    let Some(system) = &snapshot.system else { return };
    let labels = [("version", system.version.as_str())];
    all.add("brickway_build_info", "The version of the router; always 1.", 1.0, &labels);
    all.add("brickway_uptime_seconds", "Time since the router began.", system.uptime_seconds, &[]);
    if let Some(drift) = system.drift {
        let help = "Routes that differ from Linux's after the last check.";
        all.add("brickway_drift_routes", help, drift.differing as f64, &[]);
        let help = "Routes that differed from Linux's, and were read again.";
        all.add("brickway_drift_healed_routes_total", help, drift.healed as f64, &[]);
        let help = "When the last check of routes ended, in seconds since 1970.";
        all.add("brickway_drift_check_timestamp_seconds", help, drift.checked_at, &[]);
    }
    for table in &system.tables {
        let (number, family) = (table.table.to_string(), table.family.to_string());
        let labels = [("table", number.as_str()), ("family", family.as_str()), ("kind", table.kind.as_str())];
        all.add("brickway_routes", "Routes in a forwarding table.", table.routes as f64, &labels);
    }
    if let Some(problems) = system.problems {
        let help = "What `brickway show problems` lists, looked at every 30 seconds.";
        all.add("brickway_problems", help, problems as f64, &[]);
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

/// The cluster as this node knows it: a series for each node, and for each of this node's own links.
fn cluster(all: &mut Families, snapshot: &Snapshot) {
    let mut this = "";
    for row in &snapshot.cluster {
        match row {
            ClusterRow::Cluster { here, problem, .. } => {
                this = here;
                let help = "Whether the cluster's store can be used.";
                all.add("brickway_cluster_store_up", help, f64::from(u8::from(problem.is_none())), &[]);
            }
            ClusterRow::Node(node) => cluster_node(all, node, node.node == this),
            ClusterRow::Event { .. } => {}
        }
    }
}

fn cluster_node(all: &mut Families, node: &ClusterNodeRow, is_this: bool) {
    let labels = [("node", node.node.as_str())];
    let flag = |is: bool| f64::from(u8::from(is));
    let mut add = |name, help, value| all.add(name, help, value, &labels);
    add("brickway_cluster_node_up", "Whether the fabric has a way to a node.", flag(node.is_reached));
    add("brickway_cluster_node_leads", "Whether a node leads.", flag(node.leads));
    // What is not a member has said nothing.
    let Some(lag) = node.lag else { return };
    add("brickway_cluster_log_lag", "Entries of the leader's log that a node's tables lack.", lag as f64);
    for (name, help, value) in [
        (
            "brickway_cluster_input_packets_total",
            "Packets that came in by a node's ports.",
            node.input.packets,
        ),
        ("brickway_cluster_input_bytes_total", "Their bytes.", node.input.bytes),
        ("brickway_cluster_routed_packets_total", "Packets that a node looked up routes for.", node.routed),
        (
            "brickway_cluster_output_packets_total",
            "Packets that a node sent by its ports.",
            node.output.packets,
        ),
        ("brickway_cluster_output_bytes_total", "Their bytes.", node.output.bytes),
        (
            "brickway_cluster_direct_bytes_total",
            "Bytes that a node sent to others directly.",
            node.direct_bytes,
        ),
        (
            "brickway_cluster_balanced_bytes_total",
            "Bytes that a node sent over an intermediate node.",
            node.balanced_bytes,
        ),
        (
            "brickway_cluster_flowlets_moved_total",
            "Packets that left the path of the packet of their flow before them.",
            node.moved,
        ),
        (
            "brickway_cluster_link_full_total",
            "Packets that a node sent although no link had room.",
            node.link_full,
        ),
    ] {
        add(name, help, value as f64);
    }
    for link in node.links.iter().filter(|_| is_this) {
        let number = link.link.to_string();
        let labels = [("link", number.as_str()), ("to", link.to.as_str())];
        let help = "Whether both ends of a link of this node hear each other.";
        all.add("brickway_cluster_link_up", help, flag(link.is_up), &labels);
        let ways = [
            ("direct", link.direct_bytes),
            ("balanced", link.balanced_bytes),
            ("relayed", link.relayed_bytes),
        ];
        for (way, bytes) in ways {
            let labels = [labels[0], labels[1], ("way", way)];
            let help = "Bytes sent by a link: directly, over an intermediate node, or relayed for others.";
            all.add("brickway_cluster_link_bytes_total", help, bytes as f64, &labels);
        }
    }
}

/// Access-list rules, policies and associations of IPsec, and whatever else features count.
fn features(all: &mut Families, snapshot: &Snapshot) {
    for shown in FeatureSettings::shown() {
        let rows = snapshot.features.get(shown.name).and_then(Value::as_array);
        // Rows with the same labels count together: a metric has one value for each set of labels.
        let mut counts: BTreeMap<(&str, Vec<String>), u64> = BTreeMap::new();
        for row in rows.into_iter().flatten() {
            let text = |field: &&str| match &row[field] {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => String::new(),
            };
            let labels: Vec<String> = shown.labels.iter().map(text).collect();
            for &count in shown.counts {
                if let Some(value) = row[count].as_u64() {
                    *counts.entry((count, labels.clone())).or_default() += value;
                }
                for (reason, value) in row[count].as_object().into_iter().flatten() {
                    let labels = labels.iter().chain([reason]).cloned().collect();
                    *counts.entry((count, labels)).or_default() += value.as_u64().unwrap_or(0);
                }
            }
        }
        for ((count, values), value) in counts {
            let names = shown.labels.iter().chain(&["reason"]).copied();
            let labels: Vec<(&str, &str)> = names.zip(values.iter().map(String::as_str)).collect();
            all.add(&format!("brickway_{}_{count}_total", shown.name), shown.about, value as f64, &labels);
        }
    }
}

#[cfg(test)]
mod tests {
    use control::api::{
        CountRow, CounterRow, DriftChecks, DropRow, ElementRow, PortRow, SystemRow, TrafficRow,
    };
    use serde_json::json;

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

    #[test]
    fn each_series_is_there_once_and_named_after_what_it_is() {
        let count =
            |name: &str, value| CountRow { name: name.to_owned(), about: "What it is.".to_owned(), value };
        let counts = vec![count("nat_mappings", 7.0), count("lua_errors_total", 2.0)];
        let element = ElementRow {
            element: "rw".to_owned(),
            class: "IPRewriter".to_owned(),
            counts,
            ..ElementRow::default()
        };
        let policy = json!({"what": "policy out", "from": "10.0.0.0/8", "to": "any", "packets": 3, "bytes": 300, "does": "block"});
        let association = json!({"what": "esp 0x1", "from": "192.0.2.1", "to": "192.0.2.2", "packets": null, "bytes": null,
            "dropped": {"ESP: replayed": 4}, "does": ""});
        let rule = json!({"number": 1, "rule": "1 deny any any any", "packets": 9});
        let netlink = CounterRow { name: "overruns".to_owned(), value: 6, note: String::new() };
        let system = SystemRow {
            drift: Some(DriftChecks { checked_at: 1e9, differing: 1, healed: 8 }),
            ..SystemRow::default()
        };
        let features = json!({"ipsec": [policy, policy, association], "acl": [rule]});
        let text = text(&Snapshot {
            elements: vec![element],
            netlink: vec![netlink],
            system: Some(system),
            features: features.as_object().cloned().unwrap_or_default(),
            ..Snapshot::default()
        });
        for line in [
            r#"brickway_nat_mappings{element="rw",class="IPRewriter"} 7"#,
            "# TYPE brickway_nat_mappings gauge",
            r#"brickway_lua_errors_total{element="rw",class="IPRewriter"} 2"#,
            "# TYPE brickway_lua_errors_total counter",
            r#"brickway_ipsec_packets_total{what="policy out",from="10.0.0.0/8",to="any",only=""} 6"#,
            r#"brickway_ipsec_dropped_total{what="esp 0x1",from="192.0.2.1",to="192.0.2.2",only="",reason="ESP: replayed"} 4"#,
            r#"brickway_acl_packets_total{number="1",rule="1 deny any any any"} 9"#,
            "brickway_netlink_overruns_total 6",
            "brickway_drift_routes 1",
            "brickway_drift_healed_routes_total 8",
            "brickway_drift_check_timestamp_seconds 1000000000",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} in\n{text}");
        }
        let mut series: Vec<&str> = text.lines().filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
        let all = series.len();
        series.sort_unstable();
        series.dedup();
        assert_eq!(series.len(), all, "{text}");
    }
}
