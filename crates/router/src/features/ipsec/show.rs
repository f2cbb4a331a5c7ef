//! `brickway show ipsec`.

use std::collections::BTreeMap;

use control::netlink::xfrm::Sa;
use elements::ipsec::{Database, PolicyAction};
use ipsec::Fault;
use ipsec::association::Age;
use packet::wire::IpProtocol;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::LinuxIpsec;
use crate::features::{Running, Shown};
use crate::table::{Align, thousands};

/// A policy or an association.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    /// `policy out`, `policy fwd`, or `esp` and the SPI.
    what: String,
    /// Source prefix or address.
    from: String,
    /// Destination prefix or address.
    to: String,
    /// Packets of the policy, or that the association has protected or opened. `null` where Linux counts.
    packets: Option<u64>,
    /// Their bytes.
    bytes: Option<u64>,
    /// Packets that the association has dropped, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    dropped: BTreeMap<String, u64>,
    /// What is done, and by whom.
    does: String,
}

pub(super) static SHOWN: &[Shown] = &[Shown {
    name: "ipsec",
    about: "Policies and associations of IPsec, with what they did",
    columns: &[
        ("", Align::Left),
        ("from", Align::Left),
        ("to", Align::Left),
        ("packets", Align::Right),
        ("bytes", Align::Right),
        ("dropped", Align::Right),
        ("action", Align::Left),
    ],
    rows,
    cells: |row| {
        let Row { what, from, to, packets, bytes, dropped, does } = serde_json::from_value(row)?;
        let count = |count: Option<u64>| count.map_or("-".to_owned(), thousands);
        let is_association = what.starts_with("esp");
        let all: u64 = dropped.values().sum();
        let dropped = if is_association && packets.is_some() { thousands(all) } else { String::new() };
        Ok(vec![what, from, to, count(packets), count(bytes), dropped, does])
    },
}];

fn rows(running: &Running<'_>) -> Result<Vec<Value>, String> {
    let (Some(linux), Some(database)) = (LinuxIpsec::of(running.shared), Database::of(running.shared)) else {
        return Err("IPsec is off: it is ignored (--ignore ipsec), the graph is not that of `brickway run PORT...`, or the \
                    kernel has none"
            .to_owned());
    };
    let mut rows = Vec::new();
    for count in database.policies() {
        let selector = &count.policy.selector;
        let does = match &count.policy.action {
            PolicyAction::Bypass => "pass".to_owned(),
            PolicyAction::Discard => "discard".to_owned(),
            PolicyAction::Linux(lack) => format!("Linux: {lack}"),
            PolicyAction::Protect(template) => {
                let (source, destination) = (template.endpoints.source(), template.endpoints.destination());
                let request = match template.request {
                    0 => String::new(),
                    request => format!(" reqid {request}"),
                };
                let fits = |sa: &Sa| {
                    (sa.source, sa.id.destination) == (source, destination)
                        && [0, sa.request_id].contains(&template.request)
                        && [0, sa.id.spi].contains(&template.spi)
                };
                let is_there = linux.state().sas.values().any(|known| fits(&known.sa));
                let lack = if is_there { "" } else { ", no association yet" };
                format!("{source} > {destination}{request}{lack}")
            }
        };
        let [from, to] = selector.ends();
        rows.push(Row {
            what: match selector.protocol {
                None => format!("policy {}", count.policy.direction.word()),
                Some(protocol) => {
                    format!("policy {} {}", count.policy.direction.word(), IpProtocol(protocol))
                }
            },
            from,
            to,
            packets: Some(count.packets),
            bytes: Some(count.bytes),
            dropped: BTreeMap::new(),
            does,
        });
    }
    for known in linux.state().sas.values() {
        let mut row = Row {
            what: format!("esp {:#010x}", known.sa.id.spi),
            from: known.sa.source.to_string(),
            to: known.sa.id.destination.to_string(),
            packets: None,
            bytes: None,
            dropped: BTreeMap::new(),
            does: String::new(),
        };
        match &known.association {
            Err(lack) => row.does = format!("Linux: {lack}"),
            Ok(association) => {
                let used = association.used();
                (row.packets, row.bytes) = (Some(used.packets), Some(used.bytes));
                let faults = Fault::ALL.iter().map(|fault| (fault.reason(), association.faults(*fault)));
                row.dropped = faults
                    .filter(|(_, count)| *count != 0)
                    .map(|(reason, count)| (reason.to_owned(), count))
                    .collect();
                let udp = if association.settings().udp.is_some() { " in UDP" } else { "" };
                let age = match association.age() {
                    Age::Young => "",
                    Age::Soft => ", to be renewed",
                    Age::Expired => ", expired",
                };
                row.does = format!("{}{udp}{age}", association.keys().suite());
            }
        }
        rows.push(row);
    }
    rows.into_iter().map(|row| serde_json::to_value(row).map_err(|error| error.to_string())).collect()
}
