//! What the cluster's demo measured.

use anyhow::Result;
use serde::Serialize;

use crate::demo::report::Step;
use router::table::{Align, Table, thousands};

/// What was measured; times in seconds.
#[derive(Debug, Default, Serialize)]
pub(super) struct Figures {
    /// Whether all steps went well.
    pub(super) ok: bool,
    /// How long the demo took.
    pub(super) seconds: f64,
    /// From the start of the first node until all are members with all links up.
    pub(super) ready_s: f64,
    /// From the start of the neighbour until its sessions are up.
    pub(super) bgp_s: f64,
    pub(super) throughput: Vec<Throughput>,
    pub(super) lost: Vec<Lost>,
    /// From the leader's death until another node leads.
    pub(super) takeover_s: f64,
    /// From the leader's death until the sessions with the new one are up.
    pub(super) bgp_back_s: f64,
    /// How often the tables of nodes were looked at from then until after that, and how often they lacked the neighbour's prefixes.
    pub(super) looks: u64,
    pub(super) looks_without_route: u64,
}

/// TCP between hosts on two nodes.
#[derive(Debug, Serialize)]
pub(super) struct Throughput {
    pub(super) flows: u32,
    pub(super) offered_bits_per_second: f64,
    pub(super) bits_per_second: f64,
    /// Shares of the packets that the first node sent directly, and over other nodes.
    pub(super) direct: f64,
    pub(super) balanced: f64,
}

/// Pings that were lost.
#[derive(Debug, Serialize)]
pub(super) struct Lost {
    pub(super) during: String,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) lost: u64,
    pub(super) sent: u64,
}

/// A number of flows, in words.
pub(super) fn flows_of(number: u32) -> String {
    if number == 1 { "one flow".into() } else { format!("{number} flows") }
}

impl Lost {
    pub(super) fn new(during: &str, from: &str, to: &str, (lost, sent): (u64, u64)) -> Self {
        Self { during: during.to_owned(), from: from.to_owned(), to: to.to_owned(), lost, sent }
    }
}

impl Figures {
    /// For people.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new(&[("figure", Align::Left), ("value", Align::Right), ("", Align::Left)]);
        let mut row = |name: String, value: String, unit: &str| table.row([name, value, unit.to_owned()]);
        row("four nodes up".into(), format!("{:.1}", self.ready_s), "s");
        row("BGP up".into(), format!("{:.1}", self.bgp_s), "s");
        for tcp in &self.throughput {
            let name = format!(
                "TCP in {}, {:.0}% directly, {:.0}% balanced",
                flows_of(tcp.flows),
                tcp.direct * 100.0,
                tcp.balanced * 100.0
            );
            let offered = format!("of {:.0} Mbit/s", tcp.offered_bits_per_second / 1e6);
            row(name, format!("{:.0}", tcp.bits_per_second / 1e6), &offered);
        }
        for lost in &self.lost {
            let name = format!("pings lost while {}: {} to {}", lost.during, lost.from, lost.to);
            row(name, thousands(lost.lost), &format!("of {}", thousands(lost.sent)));
        }
        row("another node leads after".into(), format!("{:.1}", self.takeover_s), "s");
        row("BGP back after".into(), format!("{:.1}", self.bgp_back_s), "s");
        row(
            "looks at tables without learnt routes".into(),
            thousands(self.looks_without_route),
            &format!("of {}", thousands(self.looks)),
        );
        row("the demo took".into(), format!("{:.0}", self.seconds), "s");
        table
    }

    /// For programs: one object, with the steps.
    pub(super) fn json(&self, steps: &[Step]) -> Result<String> {
        let mut object = serde_json::to_value(self)?;
        object["steps"] = serde_json::to_value(steps)?;
        Ok(object.to_string())
    }
}
