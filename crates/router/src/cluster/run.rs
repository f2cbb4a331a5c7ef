//! `brickway cluster run`: this server becomes a node.

use std::collections::{BTreeMap, HashMap};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use control::cluster::member::{Cluster, MemberOptions, MemberShared, PortLink, exits, mirror_port};
use control::cluster::tables::{OwnPort, Tables};
use control::mirror::Mirror;
use control::service::Service;
use control::store::Store;
use control::supervisor::Supervisor;
use elements::devices::{OpenPort, open_options};
use elements::fabric::{FabricAdjacencies, FabricHostPorts};
use elements::lookup::{Asker, ForwardingTables};
use fabric::{Header, NodeId, Shape, Shim};
use graph::lang::{Options, Source};
use graph::setup::Shared;

use super::click::{PortLook, configuration};
use super::config::{ClusterConfig, NodeConfig, Role};
use super::host::{Between, NodeHost};
use super::keys::HelloKeys;
use super::relaying::Relaying;
use crate::beside_linux;
use crate::drop_in::Follow;
use crate::features::ProtectorOptions;
use crate::load;
use crate::log;
use crate::output::print;
use crate::run::{Plan, RunArguments, Subject, operate};
use crate::settings::{Bypass, PortSettings, Settings};

/// How long others wait for a node that says nothing to the store. The fabric notices far earlier.
const TTL: Duration = Duration::from_secs(3);

/// How long a new leader keeps routes that its routing daemon has not told yet, unless the cluster says otherwise: BGP's usual time for a
/// restart (RFC 4724, FRR's default).
const RESTART_SECONDS: u64 = 120;

/// Bytes of the EtherType behind the fabric's header.
const ETHERTYPE_BYTES: usize = 2;

/// What a node's ports are like, and what opens its ports and links.
struct Opened {
    looks: Vec<PortLook>,
    links: BTreeMap<u8, PortLink>,
    own: HashMap<u8, OwnPort>,
    specs: Vec<(String, String)>,
}

/// The name of the port of a link.
pub(super) fn link_port(interface: &str) -> String {
    format!("link-{interface}")
}

/// Opens the ports, which say then what they are like.
fn open_ports(node: &NodeConfig, shared: &Shared) -> Result<Opened> {
    let mut specs: Vec<(String, String)> = Vec::new();
    for port in &node.ports {
        specs.push((port.name.clone(), format!("{}:{}", node.port_driver(), port.interface)));
    }
    for interface in node.links.iter().filter(|interface| !interface.is_empty()) {
        // Fabric addresses are nobody's.
        specs.push((link_port(interface), format!("{}:{interface}?promiscuous=yes", node.port_driver())));
    }
    let (mut looks, mut links, mut own) = (Vec::new(), BTreeMap::new(), HashMap::new());
    for ((place, port), (_, spec)) in (0..).zip(&node.ports).zip(&specs) {
        let queues = open_options(node.workers, node.workers + 1);
        let open = ports::open(spec, &queues)
            .with_context(|| format!("port '{}' of node '{}'", port.name, node.name))?;
        let open = OpenPort::new(open).named(&port.name);
        let (mac, mtu) = (open.info().mac, open.info().mtu);
        shared.get_or_make(&OpenPort::key(&port.name), || Ok::<_, anyhow::Error>(open))?;
        looks.push(PortLook { mac, mtu: mtu as u32 });
        links.insert(port.number, PortLink { mac: mac.0, mtu: mtu as u32 });
        own.insert(port.number, OwnPort { place, mac: mac.0 });
    }
    Ok(Opened { looks, links, own, specs })
}

/// Says which links are too short for whole frames of a node's ports, which go to the leader and to routing nodes.
fn look_at_links(node: &NodeConfig, looks: &[PortLook], is_switched: bool) {
    let header = if is_switched { Shim::LEN } else { Header::LEN + ETHERTYPE_BYTES };
    let needed = looks.iter().map(|look| look.mtu as usize + header).max().unwrap_or(0);
    let known = ports::Links::ask().unwrap_or_default();
    for interface in node.links.iter().filter(|interface| !interface.is_empty()) {
        // Devices that Linux does not see are as their drivers have set them.
        let Some(mtu) = known.named(interface).map(|link| link.mtu) else { continue };
        if mtu < needed {
            tracing::warn!(
                "cluster: the MTU of link '{interface}' is {mtu}; the longest packets to the leader's Linux and to routing \
                 nodes need {needed}: `ip link set {interface} mtu {needed}`, on all links"
            );
        }
    }
}

/// Prints the configuration that a node gets.
pub(super) fn print_config(config: &ClusterConfig, node: &NodeConfig) -> Result<ExitCode> {
    let opened = open_ports(node, &Shared::default())?;
    print(&configuration(config, node, &opened.looks));
    Ok(ExitCode::SUCCESS)
}

/// Makes this server a node of the cluster, until Ctrl-C. The process has given up what a node does not need ([`Plan::give_up`]).
pub(super) fn run(
    config: &ClusterConfig,
    node: &NodeConfig,
    arguments: &RunArguments,
    store: Store,
) -> Result<ExitCode> {
    let interfaces = node.ports.iter().map(|port| PortSettings::new(&port.interface)).collect();
    let mut settings = Settings { ports: interfaces, ..Settings::default() };
    (settings.metrics, settings.web) = (config.metrics.metrics(), config.web.web());
    settings.apply(arguments.options()).map_err(anyhow::Error::msg)?;
    log::begin(settings.log.level);
    let ignores_ipsec = settings.beside_linux.ignore.contains(&Bypass::Ipsec);
    settings.follows_ipsec = !ignores_ipsec;
    beside_linux::refuse(&settings)?;
    let registry = crate::classes();
    let shared = Shared::default();
    let Opened { looks, links, own, specs } = open_ports(node, &shared)?;
    let text = configuration(config, node, &looks);
    let here = NodeId::new(node.number).context("the node's number is too high")?;
    let ports = config.ports();
    let numbered = ports.iter().map(|port| (port.name.clone(), mirror_port(port.number)));
    let mut mirror = Mirror::new(numbered)?;
    // What the leader's Linux may do to marks, this node does not know.
    mirror.set_marks(true);
    let topology = config.topology()?;
    let switched = matches!(topology.shape(), Shape::Star { .. }).then(|| topology.nodes());
    look_at_links(node, &looks, switched.is_some());
    if switched.is_some() {
        tracing::warn!(
            "cluster: packets between nodes on shared switches have no tag, so a stranger there can inject some; \
             expected MACsec on the links (docs/security.md)"
        );
    }
    let fabric = node.ports.len() as u16;
    mirror.set_exits(exits(here, config.number, switched, fabric, &ports));
    let tables = Tables::new(own);
    let names: Vec<String> = node.ports.iter().map(|port| port.name.clone()).collect();
    let adjacencies = FabricAdjacencies { ports: names.clone(), readers: tables.readers().clone() };
    shared.get_or_make(FabricAdjacencies::KEY, || Ok::<_, anyhow::Error>(adjacencies))?;
    let (readers, policies) = (mirror.readers().clone(), mirror.policy_readers().clone());
    let relaying = if switched.is_none() { Relaying::start(node, config.number, &shared) } else { None };
    let key_file = config.security.key_file.as_deref();
    let keys = key_file.map(|file| HelloKeys::load(file, &shared)).transpose()?;
    let interfaces = shared.get_or_make(FabricHostPorts::KEY, FabricHostPorts::new)?;
    let supervisor = Supervisor::default();
    let restart_time = Duration::from_secs(config.leader.restart_seconds.unwrap_or(RESTART_SECONDS));
    let options = ProtectorOptions {
        ignores: ignores_ipsec,
        hold: restart_time,
        checked_source: interfaces.checked_source(),
    };
    let protector = settings.features.protect(&options, &shared, &supervisor)?;
    let protector = protector.context("nothing protects packets")?;
    let host = Arc::new(NodeHost::new(&node.name, config.clone(), interfaces, protector, &supervisor)?);
    shared.get_or_make(NodeHost::KEY, || Ok::<_, anyhow::Error>(Arc::downgrade(&host)))?;
    let source = Source { name: format!("node '{}' of cluster '{}'", node.name, config.name), text };
    let Some(flat) = load::compile(&source, &Options::default(), &registry) else {
        bail!("the configuration that was made for the node has mistakes, which is a bug of ours");
    };
    let options = MemberOptions {
        name: node.name.clone(),
        number: here,
        store,
        ttl: TTL,
        // Frames for Linux do not find their way to a node that only relays.
        may_lead: node.leads && node.role != Role::Relay,
        restart_time,
        links,
        host: host.clone(),
        shared: MemberShared::new(config.membership()),
        supervisor: supervisor.clone(),
    };
    let service = Service::of_cluster(mirror, Cluster::new(tables), options)?;
    let questions = service.questions();
    let forwarding = ForwardingTables {
        ports: names.into_iter().chain(["fabric".to_owned()]).collect(),
        readers,
        policies,
        paths: Arc::default(),
        // Of the leader, for what goes to other IPsec gateways. Whatever else the fast path leaves over is Linux's.
        ask: Asker(Arc::new(move |number, destination| questions.ask(number, destination))),
    };
    shared.get_or_make(ForwardingTables::KEY, || Ok::<_, anyhow::Error>(forwarding))?;
    let following: Box<dyn Follow> = Box::new(Between::new(host, node.clone(), keys, relaying));
    let own_ports = node.ports.iter().map(|port| PortSettings::new(&port.name)).collect::<Vec<_>>();
    settings.ports = own_ports.clone();
    settings.workers.count = node.workers;
    settings.workers.balance = false;
    let subject = Subject {
        source,
        flat: Arc::new(flat),
        mirror: Some((service, following)),
        ports: own_ports,
        // Linux gets no packet of a port.
        filtered: None,
        specs,
        supervisor,
        guard: None,
        plan: Some(Plan::with_programs()),
        doors: None,
        devices: None,
    };
    tracing::info!("cluster: the node stays its user's: it runs programs (docs/security.md)");
    operate(arguments, settings, subject, &registry, shared)
}
