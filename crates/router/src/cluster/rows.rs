//! What a node knows of its cluster: the rows of `brickway show cluster`.

use std::time::UNIX_EPOCH;

use control::api::{ClusterLinkRow, ClusterNodeRow, ClusterRow};
use control::cluster::member::{Cluster, Status};
use packet::sync::lock;

use super::config::{ClusterConfig, NodeConfig};
use super::host::NodeHost;

/// Nodes that are listed. A cluster of more says how many it has.
const MOST_NODES: usize = 64;

/// Returns the cluster, its nodes by number, and what happened, the newest last.
pub(crate) fn rows(host: &NodeHost, cluster: &Cluster) -> Vec<ClusterRow> {
    let config = lock(&host.config).clone();
    let mut nodes: Vec<&NodeConfig> = config.nodes.iter().collect();
    nodes.sort_by_key(|node| node.number);
    let end = cluster.nodes.values().map(|status| status.sequence).chain([cluster.sequence]).max();
    let mut rows = vec![ClusterRow::Cluster {
        name: config.name.clone(),
        topology: config.topology.clone(),
        nodes: nodes.len(),
        here: host.name.clone(),
        leader: cluster.leader.clone(),
        problem: cluster.store_problem.clone(),
    }];
    let row = |node: &&NodeConfig| ClusterRow::Node(Box::new(row(host, cluster, &config, node, end)));
    rows.extend(nodes.iter().take(MOST_NODES).map(row));
    rows.extend(lock(&host.events).iter().map(|(at, text)| ClusterRow::Event {
        time: at.duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64()),
        text: text.clone(),
    }));
    rows
}

/// Returns what is known of a node. `end` is the end of the log.
fn row(
    host: &NodeHost,
    cluster: &Cluster,
    config: &ClusterConfig,
    node: &NodeConfig,
    end: Option<u64>,
) -> ClusterNodeRow {
    let status = cluster.nodes.get(&node.name);
    let is_here = node.name == host.name;
    let leads = cluster.leader.as_ref() == Some(&node.name);
    let is_reached = is_here || lock(&host.reached).contains(&node.number);
    // What this node says of itself in the store is older.
    let traffic =
        if is_here { Some(lock(&host.traffic).clone()) } else { status.map(|status| status.traffic.clone()) };
    let traffic = traffic.unwrap_or_default();
    let name_of = |number: u16| {
        let known = config.nodes.iter().find(|node| node.number == number);
        known.map_or_else(|| number.to_string(), |node| node.name.clone())
    };
    let links = traffic.links.into_iter().map(|link| ClusterLinkRow {
        link: link.link,
        interface: link.interface,
        to: name_of(link.node),
        is_up: link.is_up,
        problem: link.problem,
        path: link.path,
        received: link.received,
        sent: link.sent,
        direct_bytes: link.direct_bytes,
        balanced_bytes: link.balanced_bytes,
        relayed_bytes: link.relayed_bytes,
    });
    ClusterNodeRow {
        node: node.name.clone(),
        number: node.number,
        role: node.role.word().to_owned(),
        weight: node.weight,
        state: state(status, is_reached, leads).to_owned(),
        is_reached,
        leads,
        lag: status.zip(end).map(|(status, end)| end.saturating_sub(status.sequence)),
        counted_at: traffic.at,
        input: traffic.input,
        routed: traffic.routed,
        output: traffic.output,
        direct: traffic.direct,
        direct_bytes: traffic.direct_bytes,
        balanced: traffic.balanced,
        balanced_bytes: traffic.balanced_bytes,
        moved: traffic.moved,
        link_full: traffic.link_full,
        links: links.collect(),
    }
}

/// Returns in a word or two whether a node is there, as the store and the fabric say.
fn state(status: Option<&Status>, is_reached: bool, leads: bool) -> &'static str {
    match (status, is_reached) {
        (Some(status), true) if status.is_leaving => "leaving",
        (Some(_), true) if leads => "leads",
        (Some(_), true) => "member",
        // The store waits some seconds for it.
        (Some(_), false) => "unreachable",
        (None, true) => "not a member",
        (None, false) => "away",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_what_store_and_fabric_say() {
        let status = Status::default();
        let leaves = Status { is_leaving: true, ..Status::default() };
        assert_eq!(state(Some(&status), true, false), "member");
        assert_eq!(state(Some(&status), true, true), "leads");
        assert_eq!(state(Some(&leaves), true, true), "leaving");
        assert_eq!(state(Some(&status), false, true), "unreachable");
        assert_eq!(state(None, true, false), "not a member");
        assert_eq!(state(None, false, false), "away");
    }
}
