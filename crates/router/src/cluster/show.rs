//! `brickway cluster show`: what the nodes say of themselves in the store.

use std::process::ExitCode;

use anyhow::Result;
use control::cluster::log::{LOG, sequence_of};
use control::cluster::member::Status;
use control::store::Store;
use serde_json::json;

use super::agreed::Ignored;
use super::config::{ClusterConfig, NodeConfig, Role};
use super::fronts;
use crate::output::print;
use crate::table::{Align, Table, thousands};

/// Tables differ.
const DIFFERS: u8 = 3;

/// Prints a row a node, and a row a link.
pub(super) fn show(
    store: &Store,
    config: &ClusterConfig,
    ignored: &Ignored,
    as_json: bool,
) -> Result<ExitCode> {
    let leader = store.get("leader")?.map(|entry| String::from_utf8_lossy(&entry.value).into_owned());
    let (entries, _) = store.list("nodes/")?;
    let statuses: Vec<(String, Status)> = entries
        .into_iter()
        .filter_map(|entry| {
            let name = entry.key.strip_prefix("nodes/")?.to_owned();
            Some((name, serde_json::from_slice(&entry.value).ok()?))
        })
        .collect();
    let status = |name: &str| statuses.iter().find(|(known, _)| known == name).map(|(_, status)| status);
    let (log, _) = store.list(LOG)?;
    let end = log.last().and_then(|entry| sequence_of(&entry.key));
    let end = statuses.iter().map(|(_, status)| status.sequence).max().max(end).unwrap_or(0);
    let differing = differing(&statuses);
    let [left, right] = [Align::Left, Align::Right];
    let columns = [
        ("node", left),
        ("number", right),
        ("role", left),
        ("weight", right),
        ("state", left),
        ("epoch", right),
        ("lag", right),
        ("routes", right),
        ("digest", left),
        ("links", right),
    ];
    let mut nodes = Table::new(&columns);
    let mut paths = Table::new(&[
        ("node", left),
        ("direct", right),
        ("balanced", right),
        ("flowlets moved", right),
        ("link full, packets", right),
    ]);
    let mut links = Table::new(&[
        ("node", left),
        ("link", right),
        ("interface", left),
        ("to", left),
        ("state", left),
        ("received", right),
        ("sent", right),
        ("relays by", left),
        ("problem", left),
    ]);
    let mut divided = Table::new(&fronts::columns());
    // Without fronts it says nothing.
    let has_fronts = config.nodes.iter().any(|node| node.role == Role::Edge);
    let routes = |node: &NodeConfig| matches!(node.role, Role::Route | Role::EdgeRoute);
    let weight =
        |node: &NodeConfig| if has_fronts && routes(node) { node.weight.to_string() } else { "-".to_owned() };
    let name_of = |number: u16| {
        let known = config.nodes.iter().find(|node| node.number == number);
        known.map_or_else(|| number.to_string(), |node| node.name.clone())
    };
    for node in &config.nodes {
        let leads = leader.as_ref() == Some(&node.name);
        let Some(status) = status(&node.name) else {
            if as_json {
                print(&format!("{}\n", json!({ "node": node.name, "number": node.number, "state": "away" })));
                continue;
            }
            let mut row = vec![
                node.name.clone(),
                node.number.to_string(),
                node.role.word().to_owned(),
                weight(node),
                "away".to_owned(),
            ];
            row.resize(columns.len(), "-".to_owned());
            nodes.row(row);
            continue;
        };
        let state = if status.is_leaving {
            "leaving"
        } else if leads {
            "leads"
        } else {
            "member"
        };
        let traffic = &status.traffic;
        let sent = traffic.direct + traffic.balanced;
        let share = |part: u64| {
            if sent == 0 { "-".to_owned() } else { format!("{:.1}%", part as f64 * 100.0 / sent as f64) }
        };
        let (at, routes, sum) = status.compared;
        let digest = if differing.contains(&node.name) {
            format!("{sum:016x} differs")
        } else if at == 0 {
            "-".to_owned()
        } else {
            format!("{sum:016x}")
        };
        let up = traffic.links.iter().filter(|link| link.is_up).count();
        if as_json {
            let row = json!({
                "node": node.name, "number": node.number, "role": node.role.word(), "state": state,
                "weight": node.weight, "serves": node.serves, "classes": traffic.classes,
                "epoch": status.sequence, "lag": end - status.sequence.min(end),
                "compared_at": at, "routes": routes, "digest": format!("{sum:016x}"),
                "differs": differing.contains(&node.name),
                "direct": traffic.direct, "balanced": traffic.balanced, "moved": traffic.moved,
                "link_full": traffic.link_full, "links": traffic.links,
            });
            print(&format!("{row}\n"));
            continue;
        }
        nodes.row(vec![
            node.name.clone(),
            node.number.to_string(),
            node.role.word().to_owned(),
            weight(node),
            state.to_owned(),
            status.sequence.to_string(),
            (end - status.sequence.min(end)).to_string(),
            if at == 0 { "-".to_owned() } else { routes.to_string() },
            digest,
            format!("{up}/{}", traffic.links.len()),
        ]);
        paths.row([
            node.name.clone(),
            share(traffic.direct),
            share(traffic.balanced),
            share(traffic.moved),
            thousands(traffic.link_full),
        ]);
        fronts::add_rows(&mut divided, &node.name, &traffic.classes, name_of);
        for link in &traffic.links {
            links.row(vec![
                node.name.clone(),
                link.link.to_string(),
                link.interface.clone(),
                name_of(link.node),
                if link.is_up { "up" } else { "down" }.to_owned(),
                link.received.to_string(),
                link.sent.to_string(),
                link.path.clone(),
                link.problem.clone(),
            ]);
        }
    }
    if !as_json {
        print(&format!(
            "cluster '{}', {}, {}\n\n",
            config.name,
            config.topology,
            match &leader {
                Some(leader) => format!("'{leader}' leads"),
                None => "nobody leads".to_owned(),
            }
        ));
        for table in [&nodes, &paths, &links] {
            print(&format!("{}\n", table.render()));
        }
        if has_fronts {
            print(&format!("{}\n", divided.render()));
        }
        print(&super::origins());
    }
    if let Some(report) = ignored.report() {
        graph::note!("{report}");
    }
    Ok(if differing.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DIFFERS) })
}

/// The nodes whose table was another at the same place of the log than that of the most.
fn differing(statuses: &[(String, Status)]) -> Vec<String> {
    let same = |a: &Status, b: &Status| a.compared == b.compared;
    let comparable = |a: &Status, b: &Status| a.compared.0 == b.compared.0 && a.compared.0 > 0;
    let differs = |status: &Status| {
        let others = statuses.iter().filter(|(_, other)| comparable(status, other));
        let (alike, all) = others
            .fold((0, 0), |(alike, all), (_, other)| (alike + usize::from(same(status, other)), all + 1));
        2 * alike <= all && alike < all
    };
    statuses.iter().filter(|(_, status)| differs(status)).map(|(name, _)| name.clone()).collect()
}
