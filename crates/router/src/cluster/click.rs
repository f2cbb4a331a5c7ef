//! The configuration of a node of a cluster, as text. Like that of a drop-in router, but Linux is the leader's, behind the fabric, and
//! neighbours may be behind other nodes' ports.

use std::fmt::Write;

use graph::lang::{name_argument, name_arguments};
use packet::wire::ethernet::MacAddr;

use super::config::{ClusterConfig, NodeConfig, Role};
use super::fronts;

/// The element of a front that carries packets to routing nodes.
pub(super) const ROUTERS: &str = "routers";

/// What is known of a node's port when its configuration is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct PortLook {
    pub(super) mac: MacAddr,
    pub(super) mtu: u32,
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{words}");
}

const HEAD: &str = "\
// A node of a cluster: many servers, one router. Made by `brickway cluster run`.
//
// Packets are painted with the number of the cluster's port that they came in by. Linux gets no packet of a port or a link but by
// 'tolinux': the leader's would forward it once more.

";

const ROUTING_INPUT: &str = "\
// What comes in by a port. Output 0: IPv4, output 1: IPv6, both checked, without Ethernet header. Output 2: everything else, as it
// came, for Linux.
elementclass Input { $port, $mac, $number |
    FromDevice($port, SNIFFER false)
        -> filter :: HostEtherFilter($mac)
        -> paint :: Paint($number)
        -> kind :: Classifier(12/0800, 12/86dd, 12/8100 14/0000%0fff, 12/88a8 14/0000%0fff, -);
    kind[0] -> Strip(14) -> check4 :: CheckIPHeader(MARTIANS true) -> [0] output;
    kind[1] -> Strip(14) -> check6 :: CheckIP6Header(MARTIANS true) -> [1] output;
    // Tags without a VLAN, which Linux would take off.
    kind[2] -> VLANDecap(false) -> kind;
    kind[3] -> VLANDecap(false, ETHERTYPE 0x88a8) -> kind;
    kind[4] -> [2] output;
}

";

const FRONT_INPUT: &str = "\
// What comes in by a port. Output 0: IP packets to this router, as they came, for a routing node. Output 1: everything else, for Linux.
elementclass Input { $port, $mac, $number |
    FromDevice($port, SNIFFER false)
        -> filter :: HostEtherFilter($mac)
        -> paint :: Paint($number)
        -> kind :: Classifier(0/00%01 12/0800, 0/00%01 12/86dd, 12/8100 14/0000%0fff, 12/88a8 14/0000%0fff, -);
    kind[0], kind[1] => [0, 0] output;
    // Tags without a VLAN, which Linux would take off.
    kind[2] -> VLANDecap(false) -> kind;
    kind[3] -> VLANDecap(false, ETHERTYPE 0x88a8) -> kind;
    kind[4] -> [1] output;
}

";

const ROUTE_INPUT: &str = "\
// What fronts leave to this node to route, as it came in by their ports.
elementclass RouteInput {
    input -> kind :: Classifier(12/0800, 12/86dd, -);
    kind[0] -> Strip(14) -> check4 :: CheckIPHeader(MARTIANS true) -> [0] output;
    kind[1] -> Strip(14) -> check6 :: CheckIP6Header(MARTIANS true) -> [1] output;
    kind[2] -> [2] output;
}

";

const OUTPUT: &str = "\
// Routed packets: before their next hop's header, or the fabric's. Inputs 0 and 1: IPv4 and IPv6. Output 0: with that header; outputs 1 and
// 3: IPv4 and IPv6 too long; 2 and 4: what has lived too long.
elementclass Routed { $mtu |
    input[0] -> DropBroadcasts -> mtu4 :: CheckLength($mtu) -> ttl :: DecIPTTL -> UnstripToMACHeader -> [0] output;
    input[1] -> DropBroadcasts -> mtu6 :: CheckLength($mtu) -> limit :: DecIP6HLIM -> UnstripToMACHeader -> [0] output;
    mtu4[1] -> [1] output;  ttl[1] -> [2] output;
    mtu6[1] -> [3] output;  limit[1] -> [4] output;
}

";

const PROTECTION: &str = "\
// IPsec by the policies of the leader's Linux (RFC 4301). Without any these elements do nothing. The leader does all ESP: what has to be
// protected, and ESP to this router, is carried to it.
sealed4 :: EtherEncap(0x0800, 0:0:0:0:0:0, 0:0:0:0:0:0) -> others;
sealed6 :: EtherEncap(0x86dd, 0:0:0:0:0:0, 0:0:0:0:0:0) -> others;
toleader :: FabricEncap(fabric, to-leader) -> to;
toleader[1] -> others;
carry :: EspReseal -> UnstripToMACHeader -> toleader;  carry[1] -> sealed4;  carry[2] -> sealed6;
ipsec4 :: IpsecPolicy -> rt4;
ipsec6 :: IpsecPolicy -> rt6;
FollowLinux(ipsec ipsec4.refresh ipsec6.refresh);
decap :: EspDecap;  encap :: EspEncap;  no_gateway :: NoGateway;
ipsec4[1] -> decap;  ipsec4[2] -> DecIPTTL -> encap;  ipsec4[3] -> carry;
ipsec6[1] -> decap;  ipsec6[2] -> DecIP6HLIM -> encap;  ipsec6[3] -> carry;
decap[0] -> inner4 :: CheckIPHeader(MARTIANS true) -> ipsec4;
decap[1] -> inner6 :: CheckIP6Header(MARTIANS true) -> ipsec6;
decap[2] -> UnstripToMACHeader -> toleader;
";

/// The configuration of `node`, whose ports look so.
pub(super) fn configuration(config: &ClusterConfig, node: &NodeConfig, ports: &[PortLook]) -> String {
    let mut text = HEAD.to_owned();
    let routes = matches!(node.role, Role::EdgeRoute | Role::Route);
    let names: Vec<&str> = node.ports.iter().map(|port| port.name.as_str()).collect();
    match node.role {
        Role::EdgeRoute => text += ROUTING_INPUT,
        Role::Edge => text += FRONT_INPUT,
        Role::Route | Role::Relay => {}
    }
    if routes {
        text += ROUTE_INPUT;
        text += OUTPUT;
    }
    let ClusterConfig { number: cluster, topology, port_rate, mode, delta, hello, dead, .. } = config;
    let link_rate = config.link_rate.as_ref().unwrap_or(port_rate);
    line(
        &mut text,
        format_args!(
            "fabric :: Fabric(\"{topology}\", {}, CLUSTER {cluster}, RATE {port_rate}, LINK_RATE {link_rate}, MODE {mode}, \
             DELTA {delta}, HELLO {hello}, DEAD {dead});",
            node.number
        ),
    );
    text += "\n// The fabric.\nto :: ToFabric(fabric);\nheard :: Punt -> hellos :: FabricHello(fabric);\n";
    links(&mut text, node, &names);
    text += "\n// The ports.\n";
    for (place, (port, look)) in node.ports.iter().zip(ports).enumerate() {
        let (name, number) = (name_argument(&port.name), port.number);
        line(
            &mut text,
            format_args!("out{place} :: FabricShare(fabric) -> port{place} :: ToDevice({name}, BURST 256);"),
        );
        line(&mut text, format_args!("in{place} :: Input({name}, {}, {number});", look.mac));
    }
    linux(&mut text, &list_of("fabric", &names));
    if node.role == Role::Edge {
        text += "\n// Who routes what comes in here.\n";
        let nodes = fronts::argument(config);
        line(&mut text, format_args!("{ROUTERS} :: FabricEncap(fabric, to-route, NODE \"{nodes}\") -> to;"));
    }
    if routes {
        let ports_and_fabric = name_arguments(names.iter().copied().chain(["fabric"]));
        routing(&mut text, &ports_and_fabric, ports);
    }
    text += "\n// From the ports and links.\n";
    for place in 0..names.len() {
        match node.role {
            Role::Edge => line(&mut text, format_args!("in{place}[0] -> routers;  in{place}[1] -> others;")),
            _ => line(
                &mut text,
                format_args!("in{place}[0] -> ipsec4;  in{place}[1] -> ipsec6;  in{place}[2] -> others;"),
            ),
        }
        line(&mut text, format_args!("host[{place}] -> out{place};"));
    }
    line(&mut text, format_args!("host[{}] -> to;", names.len()));
    if names.is_empty() && !routes {
        text += "Idle -> others;  // Nothing comes in by ports.\n";
    }
    if names.is_empty() && node.role == Role::Edge {
        text += "Idle -> routers;\n";
    }
    // What is carried to a leader that does not route is its Linux's.
    let to_route = if routes { "route" } else { "others" };
    let count = node.links.len();
    for link in (0..count).filter(|&link| !node.links[link].is_empty()) {
        let relayed: Vec<String> =
            (0..count).map(|next| format!("from{link}[{next}] -> link{next};")).collect();
        line(&mut text, format_args!("{}", relayed.join("  ")));
        let (host, route) = (count + 1, count + 2);
        line(
            &mut text,
            format_args!(
                "from{link}[{count}] -> heard;  from{link}[{host}] -> tolinux;  from{link}[{route}] -> {to_route};"
            ),
        );
        for place in 0..names.len() {
            line(&mut text, format_args!("from{link}[{}] -> out{place};", route + 1 + place));
        }
    }
    if routes {
        let checks = (0..names.len()).map(|place| format!("in{place}")).chain(["route".to_owned()]);
        let checks: String = checks.map(|check| format!(" {check}/check4.own")).collect();
        text += "\n// The IPv4 addresses of the router are sources of nobody else.\n";
        line(&mut text, format_args!("FollowLinux(own4 fabric{checks});"));
    }
    text
}

/// A first argument and the ports' names.
fn list_of(first: &str, names: &[&str]) -> String {
    name_arguments(std::iter::once(first).chain(names.iter().copied()))
}

/// The links, and what goes into them.
fn links(text: &mut String, node: &NodeConfig, names: &[&str]) {
    for (link, interface) in node.links.iter().enumerate() {
        if interface.is_empty() {
            line(text, format_args!("link{link} :: Discard;  // not there yet"));
        } else {
            let arguments = list_of(&link.to_string(), names);
            let device = name_argument(&format!("link-{interface}"));
            line(text, format_args!("link{link} :: ToDevice({device});"));
            line(
                text,
                format_args!(
                    "FromDevice({device}, SNIFFER false) -> from{link} :: FromFabric(fabric, {arguments});"
                ),
            );
        }
        line(text, format_args!("to[{link}] -> link{link};  hellos[{link}] -> link{link};"));
    }
}

/// Linux, which is the leader's.
fn linux(text: &mut String, fabric_and_ports: &str) {
    text.push_str("\n// Linux, which is the leader's: here, or behind the fabric.\n");
    line(text, format_args!("host :: FabricHost({fabric_and_ports});"));
    text.push_str(
        "tolinux :: Punt -> host;\n\
         others :: Punt -> leader :: FabricEncap(fabric, to-host) -> to;\n\
         leader[1] -> host;\n",
    );
}

/// The lookups and what is behind them.
fn routing(text: &mut String, ports: &str, looks: &[PortLook]) {
    line(
        text,
        format_args!("\n// Where packets go: the leader's routes and neighbours.\nroute :: RouteInput;"),
    );
    line(text, format_args!("rt4 :: FIBLookup({ports});\nrt6 :: FIBLookup6({ports});"));
    text.push_str(PROTECTION);
    text.push_str(
        "// What has lost the header that it came with gets one that says nothing; FabricHost fills it in. What was in ESP is ESP again.\n\
         without4 :: EspReseal -> header4 :: EtherEncap(0x0800, 0:0:0:0:0:0, 0:0:0:0:0:0) -> others;\n\
         without6 :: EspReseal -> header6 :: EtherEncap(0x86dd, 0:0:0:0:0:0, 0:0:0:0:0:0) -> others;\n\
         without4[1], without6[1] => sealed4, sealed4;  without4[2], without6[2] => sealed6, sealed6;\n",
    );
    line(text, format_args!("route[0] -> ipsec4;  route[1] -> ipsec6;  route[2] -> others;"));
    let fabric = looks.len();
    // The ports of all nodes have the same MTU as ours, or packets would be too long when they have left this node.
    let mtu = looks.iter().map(|look| look.mtu).min().unwrap_or(1_500);
    for place in 0..=fabric {
        let (mtu, to) = match looks.get(place) {
            Some(look) => (look.mtu, format!("out{place}")),
            None => (mtu, "to".to_owned()),
        };
        line(text, format_args!("routed{place} :: Routed({mtu});"));
        line(text, format_args!("rt4[{place}] -> [0] routed{place};  rt6[{place}] -> [1] routed{place};"));
        line(text, format_args!("routed{place}[0] -> {to};"));
        line(text, format_args!("routed{place}[1], routed{place}[2] => without4, without4;"));
        line(text, format_args!("routed{place}[3], routed{place}[4] => without6, without6;"));
    }
    line(
        text,
        format_args!(
            "\n// For Linux: to this router, no route, a neighbour to resolve, options, too long, lived too long."
        ),
    );
    text.push_str(
        "whole :: EspReseal -> UnstripToMACHeader -> others;  whole[1] -> sealed4;  whole[2] -> sealed6;\n",
    );
    for beyond in fabric + 1..fabric + 5 {
        line(text, format_args!("rt4[{beyond}] -> whole;  rt6[{beyond}] -> whole;"));
    }
    to_gateways(text, ports, fabric);
}

/// From ESP to the ports and the fabric.
fn to_gateways(text: &mut String, ports: &str, fabric: usize) {
    text.push_str(
        "\n// ESP to the other gateways. What cannot go there is dropped; the slow thread keeps what waits for a neighbour.\n",
    );
    let resolve = fabric + 5;
    for (family, class, wait, input) in
        [(4, "FIBLookup", "AwaitNeighbour", 0), (6, "FIBLookup6", "AwaitNeighbour6", 1)]
    {
        line(
            text,
            format_args!(
                "gateway{family} :: {class}({ports});  late_gateway{family} :: {class}({ports});\n\
                 encap[{input}] -> gateway{family};\n\
                 gateway{family}[{resolve}] -> Punt -> gateway_waits{family} :: {wait}({ports}) -> late_gateway{family};\n\
                 late_gateway{family}[{resolve}] -> gateway_waits{family};  gateway_waits{family}[1] -> no_gateway;"
            ),
        );
        for place in 0..=fabric {
            line(
                text,
                format_args!(
                    "gateway{family}[{place}] -> [{input}] routed{place};  late_gateway{family}[{place}] -> [{input}] routed{place};"
                ),
            );
        }
        for beyond in fabric + 1..resolve {
            line(
                text,
                format_args!(
                    "gateway{family}[{beyond}], late_gateway{family}[{beyond}] => no_gateway, no_gateway;"
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use elements::devices::follow_linux::{Followed, Follows};
    use graph::lang::{Options, Source};

    use super::*;
    use crate::load;

    #[test]
    fn a_node_refuses_martian_sources_wherever_packets_are_checked() {
        const EXAMPLE: &str = include_str!("../../../../examples/cluster.toml");
        let config = ClusterConfig::parse(EXAMPLE).unwrap();
        let look = PortLook { mac: MacAddr([2, 0, 0, 0, 0, 1]), mtu: 1_500 };
        let mut checks = 0;
        for role in [Role::EdgeRoute, Role::Edge, Role::Route] {
            let mut node = config.nodes[0].clone();
            node.role = role;
            if role == Role::Route {
                node.ports.clear();
            }
            let text = configuration(&config, &node, &vec![look; node.ports.len()]);
            let source = Source { name: "node".into(), text };
            let flat = load::compile(&source, &Options::default(), &crate::classes()).unwrap();
            let follows = Follows::of(&flat);
            for element in &flat.elements {
                if !["CheckIPHeader", "CheckIP6Header"].contains(&element.class.as_str()) {
                    continue;
                }
                assert_eq!(element.config, "MARTIANS true", "{}", element.name);
                // Linux forwards IPv6 whatever its source.
                if element.class == "CheckIP6Header" {
                    continue;
                }
                let handler = format!("{}.own", element.name);
                let is_followed =
                    follows.iter().any(|it| it.what == Followed::Own4 && it.targets.contains(&handler));
                // As in `brickway run`, where what was in ESP is of a known sender.
                assert_eq!(is_followed, !element.name.starts_with("inner"), "{}", element.name);
                checks += 1;
            }
        }
        assert!(checks >= 5, "{checks}");
    }
}
