//! What the nodes of a cluster agree on: the record `config` in the store.
//!
//! The store's writers are trusted with the cluster's routes and addresses, and with nothing on the nodes' machines. So the record holds
//! no command, file, driver or interface: those options are in each node's own file. An option that is not on the list [`AGREED`] is not
//! written into the record. In a record that somebody else wrote, such an option is ignored and reported.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use fabric::NodeId;
use toml::{Table, Value};

use super::config::ClusterConfig;

/// The options that the store's record has, the same for all nodes.
pub(crate) const AGREED: [&str; 19] = [
    "name",
    "number",
    "topology",
    "port_rate",
    "link_rate",
    "mode",
    "delta",
    "hello",
    "dead",
    "leader.restart_seconds",
    "node.name",
    "node.number",
    "node.role",
    "node.leads",
    "node.weight",
    "node.serves",
    "node.port.name",
    "node.port.number",
    "node.port.addresses",
];

/// The options that a node takes from its own file alone.
pub(crate) const OWN: [&str; 10] = [
    "store",
    "security",
    "metrics",
    "web",
    "leader.start",
    "leader.stop",
    "node.links",
    "node.driver",
    "node.workers",
    "node.port.interface",
];

/// Most options that a report names.
const MOST_NAMED: usize = 8;

/// The options of a store's record that this node ignores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ignored(BTreeSet<String>);

impl Ignored {
    /// Returns a line that names the options; `None` if there are none.
    pub(crate) fn report(&self) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        // Anybody may have written them.
        let names: Vec<String> =
            self.0.iter().take(MOST_NAMED).map(|name| name.escape_debug().take(40).collect()).collect();
        let more = if self.0.len() > MOST_NAMED { ", ..." } else { "" };
        Some(format!(
            "{} options of the store's record are ignored: {}{more}; expected in each node's own file only",
            self.0.len(),
            names.join(", ")
        ))
    }
}

/// Removes what nodes do not agree on. Returns the names of the removed options.
fn keep_agreed(table: &mut Table) -> Ignored {
    let mut removed = Ignored::default();
    keep(table, "", &mut removed.0);
    removed
}

fn keep(table: &mut Table, section: &str, removed: &mut BTreeSet<String>) {
    table.retain(|key, value| {
        let path = if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") };
        let is_below = |option: &&str| option.strip_prefix(&path).is_some_and(|rest| rest.starts_with('.'));
        let is_section = AGREED.iter().any(is_below);
        match value {
            Value::Table(inner) if is_section => keep(inner, &path, removed),
            Value::Array(items) if is_section => {
                items
                    .iter_mut()
                    .filter_map(Value::as_table_mut)
                    .for_each(|inner| keep(inner, &path, removed));
            }
            _ if AGREED.contains(&path.as_str()) => {}
            _ => {
                removed.insert(path);
                return false;
            }
        }
        true
    });
}

/// Returns the store's record of a cluster.
pub(crate) fn record_of(config: &ClusterConfig) -> Result<String> {
    let mut table = Table::try_from(config)?;
    keep_agreed(&mut table);
    Ok(toml::to_string(&table)?)
}

/// Reads the store's record. Its options are the cluster's; the options of the node `own`, and all others that are not agreed, are the
/// file's.
pub(crate) fn merged(
    record: &[u8],
    file: &ClusterConfig,
    own: Option<&str>,
) -> Result<(ClusterConfig, Ignored)> {
    let text = std::str::from_utf8(record).context("the store's record of the cluster is not a text")?;
    let mut table: Table = text.parse().context("the store's record of the cluster")?;
    let ignored = keep_agreed(&mut table);
    let mut config: ClusterConfig = table.try_into().context("the store's record of the cluster")?;
    config.store = file.store.clone();
    config.security = file.security.clone();
    (config.metrics, config.web) = (file.metrics.clone(), file.web.clone());
    config.leader.start.clone_from(&file.leader.start);
    config.leader.stop.clone_from(&file.leader.stop);
    let topology = config.topology().context("the store's record of the cluster")?;
    for node in &mut config.nodes {
        let known =
            file.nodes.iter().find(|known| own == Some(known.name.as_str()) && known.name == node.name);
        match known {
            Some(known) => {
                if known.number != node.number {
                    bail!(
                        "node '{}': number {} in this file, {} in the store's record; expected the same",
                        node.name,
                        known.number,
                        node.number
                    );
                }
                node.links.clone_from(&known.links);
                node.driver.clone_from(&known.driver);
                node.workers = known.workers;
                for port in &mut node.ports {
                    let Some(known) = known.ports.iter().find(|known| known.name == port.name) else {
                        bail!(
                            "port '{}' of node '{}': in the store's record, not in this file; expected an interface for it",
                            port.name,
                            node.name
                        );
                    };
                    port.interface.clone_from(&known.interface);
                }
            }
            // Interfaces of other nodes are not known here.
            None => {
                let id = NodeId::new(node.number).filter(|id| id.index() < topology.nodes());
                let links = id.map_or(0, |id| topology.links(id).len());
                node.links = vec![String::new(); links];
            }
        }
    }
    config.check().context("the store's record of the cluster")?;
    Ok((config, ignored))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> ClusterConfig {
        let example = include_str!("../../../../examples/cluster.toml");
        let uncommented = |line: &str| match line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')) {
            Some(option) if !option.starts_with("hosted") => format!("{option}\n"),
            _ => format!("{line}\n"),
        };
        ClusterConfig::parse(&example.lines().map(uncommented).collect::<String>()).unwrap()
    }

    /// All options of the example, each of which is there.
    fn options(table: &Table, section: &str, known: &mut BTreeSet<String>) {
        for (key, value) in table {
            let path = if section.is_empty() { key.clone() } else { format!("{section}.{key}") };
            let inner = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            match inner.iter().any(Value::is_table) && !OWN.contains(&path.as_str()) {
                true => {
                    inner.iter().filter_map(Value::as_table).for_each(|table| options(table, &path, known))
                }
                false => drop(known.insert(path)),
            }
        }
    }

    #[test]
    fn each_option_is_either_agreed_or_the_nodes_own() {
        let mut known = BTreeSet::new();
        options(&Table::try_from(file()).unwrap(), "", &mut known);
        let listed: BTreeSet<String> = AGREED.iter().chain(&OWN).map(|&option| option.to_owned()).collect();
        assert_eq!(known, listed);
    }

    #[test]
    fn the_record_has_no_option_of_a_nodes_own_and_gives_the_node_its_file_back() {
        let file = file();
        let record = record_of(&file).unwrap();
        for own in ["systemctl", "af_xdp", "fab1", "eth1", ".pem", "key", "etcd", "workers"] {
            assert!(!record.contains(own), "{own}: {record}");
        }
        let (config, ignored) = merged(record.as_bytes(), &file, Some("a")).unwrap();
        assert_eq!(ignored.report(), None);
        assert_eq!(config.node("a").unwrap(), file.node("a").unwrap());
        assert_eq!((&config.leader, &config.store), (&file.leader, &file.store));
        assert_eq!(config.node("b").unwrap().links, ["", "", ""]);
        assert_eq!(config.ports(), file.ports());
    }

    #[test]
    fn what_a_stranger_writes_into_the_record_is_never_run_or_opened_and_is_reported_once_by_name() {
        let file = file();
        // As before: the whole file in the store, and a hook of the writer's.
        let evil = file.to_toml().unwrap().replace("systemctl start frr", "touch /tmp/owned");
        let evil = evil.replace("\"eth1\"", "\"lo\"").replace("af_xdp", "pcap:/etc/shadow");
        let (config, ignored) = merged(evil.as_bytes(), &file, Some("a")).unwrap();
        assert_eq!((&config.leader, &config.security), (&file.leader, &file.security));
        assert_eq!(config.node("a").unwrap(), file.node("a").unwrap());
        assert!(!config.to_toml().unwrap().contains("owned"));
        let report = ignored.report().unwrap();
        assert!(report.starts_with("10 options") && report.contains("leader.start"), "{report}");
    }

    #[test]
    fn a_record_with_text_for_the_graph_or_a_port_without_an_interface_here_is_refused() {
        let file = file();
        let record = record_of(&file).unwrap();
        for (from, to, problem) in [
            ("\"100ms\"", "\"100ms // x\"", "delta = "),
            ("\"10Gbps\"", "\"'10Gbps'\"", "link_rate = "),
            ("name = \"b1\"", "name = \"b1), x :: Script(\"", "port 'b1), x :: Script('"),
            ("name = \"b1\"", "name = \"all\"", "port 'all'"),
            ("port 53\"", "port 53, 9 1 // x\"", "serves: 'udp any any port 53, 9 1 // x': word 5"),
            ("name = \"a1\"", "name = \"a9\"", "expected an interface for it"),
            ("number = 0\nrole", "number = 4\nrole", "number 0 in this file, 4 in the store's record"),
        ] {
            assert!(record.contains(from), "{from}: {record}");
            let error = merged(record.replacen(from, to, 1).as_bytes(), &file, Some("a")).unwrap_err();
            assert!(format!("{error:#}").contains(problem), "{to}: {error:#}");
        }
    }
}
