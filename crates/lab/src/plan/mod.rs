//! `brickway-lab plan`: how many servers, wired how, before anyone buys them.

mod compare;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use control::cluster::key::KeyFile;
use fabric::{Shape, Topology};
use serde_json::json;
use sim::plan::{Interconnect, Plan, Rate, Server, Switch, Wish, cables, plans};

use router::cluster::config::{ClusterConfig, NodeConfig, PortConfig, Role, SecurityConfig, StoreConfig};
use router::output::{say, say_line};
use router::table::{Align, Table, thousands};

/// Plans a cluster: servers, links, work, hops, price, for each way to wire it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab plan --ports 8 --rate 100G                      with the server called 'modern'
  brickway-lab plan --ports 1024 --server current              as RouteBricks did in 2009
  brickway-lab plan --ports 4 --server mine.toml --emit rb4    with your own server; writes rb4/cluster.toml
  brickway-lab plan --show-server modern > mine.toml           a server's file, to change
  brickway-lab plan --ports 64 --compare                       what ways to wire servers ask of links and servers

The first row is the proposal, which --emit writes: a mesh while a server has room for its links, else the cheapest that a cluster's
file can name. The butterfly is RouteBricks', whose relays are servers of the same kind; it is first where nothing else can be built.

Columns:
  link      the most that a link carries each way, whatever the traffic, and its cables
  work      the traffic that a server receives and processes, when it is even and in the worst case
  Mpps      million packets a second of the worst case, in frames of --frame bytes; whether a processor does that says
            `brickway-lab model`, as a plan reckons with slots and links alone
  relay     the traffic of a relay
  hops      servers and relays on the longest way
  us        microseconds there, hops times --latency
  topology  its name in a cluster's file and for `brickway-lab sim`, \"-\" where neither has it

Prices and watts are those of the server's file. Prices and watts of switches are options. Between veth links a server of Brickway adds 1 us
(forwarding in the kernel) to 8 us (packet sockets). The part of cards has not been measured, so the default of --latency is RouteBricks' of 2009.")]
pub(crate) struct PlanArguments {
    /// Ports of the router
    #[arg(long, required_unless_present = "show_server")]
    ports: Option<u32>,
    /// The rate of each port
    #[arg(long, default_value = "10G")]
    rate: Rate,
    /// A server's file, or one of: current, more-nics, faster (RouteBricks, 2009), modern, modern-dual
    #[arg(long, value_name = "FILE", default_value = "modern")]
    server: String,
    /// Ports of a switch, for the comparison with switches
    #[arg(long, default_value_t = 48)]
    switch_ports: u32,
    /// Price of a switch's port
    #[arg(long, default_value_t = 500.0)]
    switch_price: f64,
    /// Watts of a switch's port
    #[arg(long, default_value_t = 0.0)]
    switch_watts: f64,
    /// What prices are in, those of server files too
    #[arg(long, default_value = "USD")]
    currency: String,
    /// Bytes of a frame, for packets a second
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u16).range(64..=9_216))]
    frame: u16,
    /// Microseconds that a server adds to a packet's way (RouteBricks: 24)
    #[arg(long, default_value_t = 24.0)]
    latency: f64,
    /// Write the cluster's file of the first row, and a key, into this folder
    #[arg(long, value_name = "DIR")]
    emit: Option<PathBuf>,
    /// Compare interconnects, whatever the servers: by formula, and simulated
    #[arg(long, conflicts_with = "emit")]
    compare: bool,
    /// Print the file of a server
    #[arg(long, value_name = "NAME", conflicts_with_all = ["ports", "emit"])]
    show_server: Option<String>,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// Bits a second of a port below which somebody has forgotten the unit.
const LEAST_RATE: f64 = 1e6;

pub(crate) fn plan(arguments: &PlanArguments) -> Result<ExitCode> {
    if let Some(name) = &arguments.show_server {
        say!("{}", toml::to_string(&server(name)?)?);
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.compare {
        return compare::compare(arguments.ports.unwrap_or_default(), arguments.json);
    }
    let prices = [arguments.switch_price, arguments.switch_watts, arguments.latency];
    if prices.iter().any(|number| !number.is_finite() || *number < 0.0) {
        bail!("--switch-price, --switch-watts and --latency take 0 or more");
    }
    let rate = arguments.rate;
    if rate.0 < LEAST_RATE {
        bail!("--rate {rate} is {rate} bits a second; expected a unit, as in {rate}G or {rate}M");
    }
    let server = server(&arguments.server)?;
    let wish = Wish {
        ports: arguments.ports.unwrap_or_default(),
        rate: arguments.rate,
        switch: Switch {
            ports: arguments.switch_ports,
            price: arguments.switch_price,
            watts: arguments.switch_watts,
        },
        server_us: arguments.latency,
    };
    let mut plans = plans(&wish, &server)?;
    propose(&mut plans);
    if arguments.json {
        plans.iter().for_each(|plan| say_line!("{}", as_json(plan, arguments)));
    } else {
        say_line!(
            "{} ports of {}, server '{}' with {} of them, prices in {}\n",
            wish.ports,
            wish.rate,
            server.name,
            server.ports,
            arguments.currency
        );
        say!("{}", table(&plans, arguments).render());
        for plan in plans.iter().filter_map(|plan| Some((plan, plan.problem.as_ref()?))) {
            say_line!("{} cannot be built: {}", name(&plan.0.interconnect), plan.1);
        }
    }
    if let Some(folder) = &arguments.emit {
        let plan = plans.first().context("there is no plan")?;
        let path = emit(folder, plan, &wish, &server)?;
        if !arguments.json {
            let shape = plan.shape.as_deref().unwrap_or_default();
            let count = cables(plan).unwrap_or_default();
            say_line!(
                "\n{}: {shape}, {} cables; fill in etcd's address and certificates, interfaces and addresses, then",
                path.display(),
                thousands(count as u64)
            );
            say_line!("brickway cluster check {}", path.display());
        }
    }
    let can_be = plans.first().is_some_and(|plan| plan.problem.is_none());
    Ok(if can_be { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Puts the proposal first: the mesh, if it was chosen, else the cheapest that a cluster's file can name. A butterfly, as RouteBricks
/// would have it, is left first where no other can be built.
fn propose(plans: &mut [Plan]) {
    let can_be = |plan: &Plan| plan.shape.is_some() && plan.problem.is_none();
    if can_be(&plans[0]) {
        return;
    }
    let possible = plans.iter().enumerate().filter(|(_, plan)| can_be(plan));
    if let Some((best, _)) = possible.min_by(|(_, a), (_, b)| a.price.total_cmp(&b.price)) {
        plans[..=best].rotate_right(1);
    }
}

/// The server of a name, or of a file.
pub(crate) fn server(name: &str) -> Result<Server> {
    let known = Server::known();
    if let Some(server) = known.iter().find(|server| server.name == name) {
        return Ok(server.clone());
    }
    let names: Vec<&str> = known.iter().map(|server| server.name.as_str()).collect();
    let text = std::fs::read_to_string(name).with_context(|| {
        format!("cannot read the server's file '{name}'; servers known by name are {}", names.join(", "))
    })?;
    toml::from_str(&text)
        .with_context(|| format!("{name}: no server; `brickway-lab plan --show-server modern` prints one"))
}

fn name(interconnect: &Interconnect) -> String {
    match interconnect {
        Interconnect::None => "one server".to_owned(),
        Interconnect::Mesh => "mesh".to_owned(),
        Interconnect::Fly { arity, stages } => format!("{arity}-ary {stages}-fly"),
        Interconnect::Butterfly { fan_out, stages } => format!("butterfly {fan_out}^{stages}"),
        Interconnect::Torus { sides } => {
            format!("torus {}", sides.iter().map(u32::to_string).collect::<Vec<_>>().join("x"))
        }
        Interconnect::Clos { layers: 1 } => "one switch".to_owned(),
        Interconnect::Clos { layers } => format!("switches in {layers} layers, rearrangeable"),
        Interconnect::StrictClos { stages, is_folded: true } => {
            format!("switches in {stages} stages, strict, folded")
        }
        Interconnect::StrictClos { stages, is_folded: false } => {
            format!("switches in {stages} stages, strict, unfolded")
        }
    }
}

/// Packets a second of a rate, in frames of this length. Each has 20 bytes of preamble and gap more on an Ethernet (IEEE 802.3, 4.4.2).
fn packets_per_second(rate: Rate, frame: u16) -> f64 {
    rate.0 / f64::from((u32::from(frame) + 20) * 8)
}

fn table(plans: &[Plan], arguments: &PlanArguments) -> Table {
    let [left, right] = [Align::Left, Align::Right];
    let mut table = Table::new(&[
        ("", left),
        ("servers", right),
        ("relays", right),
        ("links", right),
        ("link", right),
        ("cables", right),
        ("work", right),
        ("worst", right),
        ("Mpps", right),
        ("relay", right),
        ("hops", right),
        ("us", right),
        ("switch ports", right),
        ("price", right),
        ("watts", right),
        ("topology", left),
    ]);
    for plan in plans {
        let dash = |is: bool, text: String| if is { text } else { "-".to_owned() };
        table.row([
            name(&plan.interconnect),
            thousands(plan.servers.into()),
            thousands(plan.relays.into()),
            thousands(plan.links.into()),
            dash(plan.links > 0, plan.link_load.to_string()),
            dash(plan.cables > 0, format!("{} x {}", plan.cables, plan.cable_rate)),
            plan.even_work.to_string(),
            plan.worst_work.to_string(),
            format!("{:.0}", packets_per_second(plan.worst_work, arguments.frame) / 1e6),
            dash(plan.relays > 0, plan.relay_work.to_string()),
            plan.hops.to_string(),
            format!("{:.0}", plan.latency_us),
            thousands(plan.switch_ports.into()),
            thousands(plan.price.round() as u64),
            thousands(plan.watts.round() as u64),
            match (&plan.problem, &plan.shape) {
                (Some(_), _) => "cannot be built".to_owned(),
                (None, Some(shape)) => shape.clone(),
                (None, None) => "-".to_owned(),
            },
        ]);
    }
    table
}

fn as_json(plan: &Plan, arguments: &PlanArguments) -> serde_json::Value {
    json!({
        "interconnect": name(&plan.interconnect),
        "topology": plan.shape,
        "problem": plan.problem,
        "servers": plan.servers,
        "relays": plan.relays,
        "links": plan.links,
        "cables_per_link": plan.cables,
        "cable_bits_per_second": plan.cable_rate.0,
        "link_bits_per_second": plan.link_load.0,
        "even_work_bits_per_second": plan.even_work.0,
        "worst_work_bits_per_second": plan.worst_work.0,
        "worst_work_packets_per_second": packets_per_second(plan.worst_work, arguments.frame).round(),
        "relay_work_bits_per_second": plan.relay_work.0,
        "hops": plan.hops,
        "latency_us": plan.latency_us,
        "switch_ports": plan.switch_ports,
        "price": plan.price,
        "currency": arguments.currency,
        "watts": plan.watts,
    })
}

/// A port's number in a cluster is a byte, and 0 is none.
const MOST_CLUSTER_PORTS: u32 = 255;

/// The cluster's key, beside the cluster's file.
const KEY_FILE: &str = "cluster.key";

/// Writes the cluster's file and a key, and returns where the former is.
fn emit(folder: &Path, plan: &Plan, wish: &Wish, server: &Server) -> Result<PathBuf> {
    if plan.interconnect == Interconnect::None {
        bail!("one server is not a cluster; run it with `brickway run`");
    }
    let Some(shape) = plan.shape.as_ref().filter(|_| plan.problem.is_none()) else {
        bail!(
            "a {} is not a topology of a cluster; expected a mesh, torus, fly or star",
            name(&plan.interconnect)
        );
    };
    if wish.ports > MOST_CLUSTER_PORTS {
        bail!("{} ports; a cluster's file names at most {MOST_CLUSTER_PORTS}", wish.ports);
    }
    let path = folder.join("cluster.toml");
    if path.exists() {
        bail!("'{}' is there already; expected another folder, or remove it", path.display());
    }
    let topology = Topology::new(shape.parse::<Shape>()?);
    let mut nodes = Vec::new();
    let mut number = 0_u8;
    for node in fabric::NodeId::first(topology.nodes()) {
        let has_ports = topology.may_have_ports(node);
        let count = if has_ports { server.ports } else { 0 };
        let ports = (1..=count)
            .map(|port| {
                number += 1;
                PortConfig {
                    name: format!("n{node}p{port}"),
                    interface: format!("eth{port}"),
                    number,
                    addresses: Vec::new(),
                }
            })
            .collect();
        nodes.push(NodeConfig {
            name: format!("n{node}"),
            number: node.number(),
            role: if has_ports { Role::EdgeRoute } else { Role::Relay },
            leads: has_ports,
            weight: 1,
            serves: Vec::new(),
            links: (0..topology.links(node).len()).map(|link| format!("fab{link}")).collect(),
            driver: "af_xdp".to_owned(),
            workers: 1,
            ports,
        });
    }
    let bits = |rate: Rate| format!("{rate}bps");
    let config = ClusterConfig {
        metrics: Default::default(),
        web: Default::default(),
        name: "planned".to_owned(),
        number: 0,
        topology: shape.clone(),
        port_rate: bits(Rate(wish.rate.0 * f64::from(server.ports))),
        link_rate: Some(bits(plan.cable_rate)),
        mode: "direct-vlb".to_owned(),
        delta: "100ms".to_owned(),
        hello: "10ms".to_owned(),
        dead: 3,
        store: StoreConfig {
            etcd: vec!["https://127.0.0.1:2379".to_owned()],
            ca: Some("ca.pem".into()),
            certificate: Some("node.pem".into()),
            key: Some("node-key.pem".into()),
            ..StoreConfig::default()
        },
        security: SecurityConfig { key_file: Some(KEY_FILE.into()), insecure: false },
        leader: Default::default(),
        nodes,
    };
    let text = format!(
        "# {} ports of {} on servers like '{}', as `brickway-lab plan` wrote it. Every option is described in examples/cluster.toml.\n\n{}",
        wish.ports,
        wish.rate,
        server.name,
        config.to_toml()?
    );
    // What it writes it can read.
    ClusterConfig::parse(&text)?;
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder '{}'", folder.display()))?;
    std::fs::write(&path, text).with_context(|| format!("cannot write '{}'", path.display()))?;
    let key_file = folder.join(KEY_FILE);
    // The key of a plan that was written before is in use, maybe.
    if !key_file.exists() {
        KeyFile::create(&key_file).with_context(|| format!("cannot write '{}'", key_file.display()))?;
    }
    Ok(path)
}
