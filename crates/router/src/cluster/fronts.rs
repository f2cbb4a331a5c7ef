//! Who routes what comes in at the ports of fronts, the nodes with role "edge": by the weights and rules of the nodes that route.

use control::cluster::member::ClassTraffic;
use elements::fabric::{check_traffic_rules, traffic_rule};
use fabric::{Front, Fronts, NodeId, RoutingNode};

use super::config::{ClusterConfig, NodeConfig, Role};
use crate::table::{Align, Table};

/// The flows of no class, where classes are printed.
const OTHERS: &str = "others";

/// The flows of a general node, where it is printed.
const GENERAL: &str = "all other flows";

fn routes(node: &NodeConfig) -> bool {
    matches!(node.role, Role::Route | Role::EdgeRoute)
}

/// Returns everything that cannot be right in the nodes' weights and in what they serve.
pub(super) fn problems(config: &ClusterConfig) -> Vec<String> {
    let mut problems = Vec::new();
    let mut known: Vec<String> = Vec::new();
    for node in &config.nodes {
        let of = format!("node '{}': serves", node.name);
        if !node.serves.is_empty() && !routes(node) {
            let role = node.role.word();
            problems.push(format!("{of}: its role is \"{role}\"; expected \"route\" or \"edge+route\""));
        }
        let mut own: Vec<String> = Vec::new();
        for text in &node.serves {
            match traffic_rule(text) {
                Ok(rule) if own.contains(&rule) => {
                    problems.push(format!("{of}: '{rule}' is there twice; expected each rule once"));
                }
                Ok(rule) => own.push(rule),
                Err(problem) => problems.push(format!("{of}: '{}': {problem}", text.escape_debug())),
            }
        }
        own.retain(|rule| !known.contains(rule));
        known.append(&mut own);
    }
    problems.extend(check_traffic_rules(known.len()).err().map(|problem| format!("serves: {problem}")));
    let routing: Vec<&NodeConfig> = config.nodes.iter().filter(|node| routes(node)).collect();
    if config.nodes.iter().any(|node| node.role == Role::Edge) && !routing.is_empty() {
        if routing.iter().all(|node| node.weight == 0) {
            problems.push(
                "weight: it is 0 at every node that routes; expected more than 0 at one of them".into(),
            );
        }
        if routing.iter().all(|node| !node.serves.is_empty()) {
            problems.push(
                "serves: every node that routes has it; expected one without, for all other flows".into(),
            );
        }
    }
    problems
}

/// Returns the nodes that route, with the rules that they serve as these are printed. Rules that cannot be read are left out.
fn routing_nodes(config: &ClusterConfig) -> Vec<RoutingNode<String>> {
    let of_node = |node: &NodeConfig| {
        let serves = node.serves.iter().filter_map(|text| traffic_rule(text).ok()).collect();
        Some(RoutingNode { node: NodeId::new(node.number)?, weight: node.weight, serves })
    };
    config.nodes.iter().filter(|node| routes(node)).filter_map(of_node).collect()
}

/// Returns the routing nodes as FabricEncap's argument NODE has them.
pub(super) fn argument(config: &ClusterConfig) -> String {
    let entry = |known: RoutingNode<String>| {
        let serves = if known.serves.is_empty() { "" } else { " serves " };
        format!("{} {}{serves}{}", known.node, known.weight, known.serves.join("; "))
    };
    routing_nodes(config).into_iter().map(entry).collect::<Vec<_>>().join(", ")
}

/// Returns a table of the routing nodes and the flows that each has while all are there; `None` without a front.
pub(super) fn shares(config: &ClusterConfig) -> Option<String> {
    if !config.nodes.iter().any(|node| node.role == Role::Edge) {
        return None;
    }
    let mut fronts = Fronts::default();
    fronts.divide(&routing_nodes(config), |_| true);
    let [left, right] = [Align::Left, Align::Right];
    let mut table = Table::new(&[("flows", left), ("routed by", left), ("weight", right), ("share", right)]);
    let names = fronts.classes().map(String::as_str).chain([OTHERS]);
    for (class, name) in names.enumerate() {
        for node in config.nodes.iter().filter(|node| routes(node)) {
            let share = NodeId::new(node.number).map_or(0, |id| fronts.of_class(class).share(id));
            if share > 0 {
                table.row([
                    name.to_owned(),
                    node.name.clone(),
                    node.weight.to_string(),
                    percent(share as u64),
                ]);
            }
        }
    }
    Some(table.render())
}

/// Returns a share in percent.
fn percent(parts: u64) -> String {
    format!("{:.1}%", parts as f64 * 100.0 / Front::PARTS as f64)
}

/// Returns what a node serves, in words.
pub(super) fn serves(node: &NodeConfig) -> String {
    if node.serves.is_empty() { GENERAL.to_owned() } else { node.serves.join("; ") }
}

/// Reads what FabricEncap's handler `classes` says; workers are added up.
pub(super) fn traffic(text: &str) -> Vec<ClassTraffic> {
    let mut classes: Vec<ClassTraffic> = Vec::new();
    for line in text.lines() {
        let mut words = line.splitn(3, ' ');
        let (Some(packets), Some(shares), Some(rule)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let packets = packets.parse().unwrap_or(0);
        if let Some(known) = classes.iter_mut().find(|known| known.rule == rule) {
            known.packets += packets;
            continue;
        }
        let share = |entry: &str| {
            let (node, share) = entry.split_once(':')?;
            Some((node.parse().ok()?, share.parse().ok()?))
        };
        let shares = shares.split(',').filter_map(share).collect();
        classes.push(ClassTraffic { rule: rule.to_owned(), packets, shares });
    }
    classes
}

/// Adds a front's rows to a table of [`columns`].
pub(super) fn add_rows(
    table: &mut Table,
    front: &str,
    classes: &[ClassTraffic],
    name_of: impl Fn(u16) -> String,
) {
    for ClassTraffic { rule, packets, shares } in classes {
        let shares = shares.iter().filter(|(_, share)| *share > 0);
        let shares: Vec<String> =
            shares.map(|(node, share)| format!("{} {}", name_of(*node), percent((*share).into()))).collect();
        let shares = if shares.is_empty() { "nobody".to_owned() } else { shares.join(", ") };
        table.row([front.to_owned(), rule.clone(), packets.to_string(), shares]);
    }
}

/// The columns of a table of what fronts have divided.
pub(super) fn columns() -> [(&'static str, Align); 4] {
    [("front", Align::Left), ("flows", Align::Left), ("packets", Align::Right), ("routed by", Align::Left)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two fronts before nodes with these weights and rules.
    fn cluster(routing: &[(u32, &[&str])]) -> Result<ClusterConfig, String> {
        let mut text = format!(
            "name = \"x\"\ntopology = \"mesh({})\"\n[store]\nhosted = \"10.0.0.1:2650\"\n[security]\nkey_file = \"k\"\n",
            routing.len() + 2
        );
        let links = |node: usize| {
            (0..=routing.len()).map(|link| format!("\"f{node}{link}\"")).collect::<Vec<_>>().join(", ")
        };
        for front in 0..2 {
            text += &format!(
                "[[node]]\nname = \"f{front}\"\nnumber = {front}\nrole = \"edge\"\nlinks = [{}]\n",
                links(front)
            );
        }
        for (node, (weight, serves)) in (2..).zip(routing) {
            text += &format!(
                "[[node]]\nname = \"r{node}\"\nnumber = {node}\nrole = \"route\"\nweight = {weight}\nserves = {serves:?}\nlinks = [{}]\n",
                links(node)
            );
        }
        ClusterConfig::parse(&text).map_err(|error| error.to_string())
    }

    const DNS: &str = "udp any any port 53";

    #[test]
    fn the_file_says_who_has_which_share() {
        let config =
            cluster(&[(1, &[]), (3, &[]), (1, &["udp  any any  port 53-53", "any 10.0.0.0/8 any in 3"])])
                .unwrap();
        assert_eq!(argument(&config), "2 1, 3 3, 4 1 serves udp any any port 53; any 10.0.0.0/8 any in 3");
        let table = shares(&config).unwrap();
        let rows: Vec<Vec<&str>> =
            table.lines().skip(1).map(|line| line.split_whitespace().rev().collect()).collect();
        assert_eq!(rows.len(), 4, "{table}");
        assert_eq!(rows[0], ["100.0%", "1", "r4", "53", "port", "any", "any", "udp"]);
        assert_eq!(rows[2..], [["25.0%", "1", "r2", "others"], ["75.0%", "3", "r3", "others"]]);
    }

    #[test]
    fn mistakes_say_what_is_expected() {
        for (routing, says) in [
            (
                &[(0, &[][..]), (0, &[DNS])][..],
                "weight: it is 0 at every node that routes; expected more than 0",
            ),
            (
                &[(1, &[DNS])],
                "serves: every node that routes has it; expected one without, for all other flows",
            ),
            (
                &[(1, &[]), (1, &[DNS, "udp any any port 53-53"])],
                "node 'r3': serves: 'udp any any port 53' is there twice",
            ),
            (
                &[(1, &[]), (1, &["udp any port"])],
                "node 'r3': serves: 'udp any port': the line ends before word 4",
            ),
            (
                &[(1, &[]), (1, &["any any any, 9 1"])],
                "node 'r3': serves: 'any any any, 9 1': word 3 is 'any,'",
            ),
            (&[(1, &[]), (1, &["any any any in eth1"])], "expected the number of the input port, 0 to 255"),
        ] {
            let said = cluster(routing).unwrap_err();
            assert!(said.contains(says), "{says}: {said}");
        }
        let many: Vec<String> = (0..65).map(|port| format!("tcp any any port {port}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(cluster(&[(1, &[]), (1, &many[..64])]).is_ok());
        let said = cluster(&[(1, &[]), (1, &many[..64]), (1, &many[1..])]).unwrap_err();
        assert!(said.contains("serves: 65 different rules are served; expected at most 64"), "{said}");
        let mut edge = cluster(&[(1, &[]), (1, &[])]).unwrap();
        edge.nodes[0].serves.push(DNS.into());
        let said = edge.check().unwrap_err().to_string();
        assert_eq!(said, "node 'f0': serves: its role is \"edge\"; expected \"route\" or \"edge+route\"");
    }

    #[test]
    fn the_classes_of_all_workers_are_added_up() {
        let of_workers = "5 2:0,3:1024 udp any any port 53\n7 2:1024,3:0 others\n1 2:0,3:1024 udp any any port 53\n0 - others\n";
        let class = |rule: &str, packets, shares: &[(u16, u16)]| ClassTraffic {
            rule: rule.into(),
            packets,
            shares: shares.into(),
        };
        assert_eq!(
            traffic(of_workers),
            [class(DNS, 6, &[(2, 0), (3, 1024)]), class("others", 7, &[(2, 1024), (3, 0)])]
        );
    }
}
