//! `brickway-lab bench distribution`: how long routes take from a cluster's leader through etcd to the tables of its nodes.
//!
//! The leader's ledger and log, etcd, and the nodes' tables are the real ones, in one process beside etcd's; what is missing are Linux and
//! FRR, which tell the routes, and workers, which use them. So the time is what the cluster adds.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use control::change::{Change, Hops, Link, Neighbour, NeighbourState, Path, Route, RouteKey, RouteKind};
use control::cluster::ledger::Ledger;
use control::cluster::log::{LogWriter, Stored};
use control::cluster::member::{
    Cluster, ClusterPort, Host, LeaderPort, MemberOptions, MemberShared, Membership, Traffic, exits,
    mirror_port,
};
use control::cluster::record::Record;
use control::cluster::tables::{OwnPort, TableDigest, Tables};
use control::mirror::Mirror;
use control::service::Service;
use control::store::{EtcdPlace, Place, Store};
use control::supervisor::Supervisor;
use fabric::NodeId;
use fib::MAIN;
use fib::read::Row;
use tempfile::TempDir;

use super::children::{Reachable, end_on_signals, stop_if_interrupted};
use super::folder::folder;
use super::{median, print_figure, print_setting, routes};
use crate::progress::tell;
use router::output::say_line;
use router::table::thousands;
use serde_json::json;

/// Measures how routes reach the nodes of a cluster: all of them, one of them, and many a second.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway-lab bench distribution                   a million routes to four nodes
  brickway-lab bench distribution --churn 600       ten minutes of 1,000 changes a second, then the tables are compared

Starts an etcd of its own in a temporary folder (Debian: apt install etcd-server).")]
pub(crate) struct DistributionArguments {
    /// The real table, out of which that of the bench is grown
    #[arg(long, default_value_os_t = crate::tables::ipv4(), value_name = "FILE")]
    table: PathBuf,
    /// Routes
    #[arg(long, default_value_t = 1_000_000)]
    routes: usize,
    /// Nodes, 1 to 64
    #[arg(long, default_value_t = 4)]
    nodes: u16,
    /// Changes of one route each, of which the median is printed
    #[arg(long, default_value_t = 100)]
    changes: usize,
    /// Seconds of changing routes all the time
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    churn: u64,
    /// Changes a second meanwhile
    #[arg(long, default_value_t = 1_000)]
    rate: u64,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// Gateways of the routes.
const GATEWAYS: u32 = 64;
/// Routes that the leader takes in before it writes: about what a dump of the kernel brings at a time.
const STEP: usize = 8_192;
/// How long nodes may take for anything.
const PATIENCE: Duration = Duration::from_secs(300);

/// The rest of a node, which is not there.
struct NoHost;

impl Host for NoHost {
    fn set_leader_ports(&self, _ports: &[LeaderPort]) -> bool {
        true
    }
    fn leader_is(&self, _leader: Option<NodeId>) {}
    fn configured(&self, _text: &[u8]) -> Option<Membership> {
        None
    }
    fn leave(&self) {}
    fn reaches(&self, _node: NodeId) -> bool {
        false
    }
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
    fn message(&self, _text: &str) {}
}

pub(crate) fn distribution(arguments: &DistributionArguments) -> Result<ExitCode> {
    if arguments.nodes == 0 || arguments.nodes > 64 {
        bail!("--nodes {}: expected 1 to 64", arguments.nodes);
    }
    end_on_signals()?;
    let rows = routes::grown(&routes::real(&arguments.table)?, arguments.routes);
    let folder = folder()?;
    let (_etcd, place) = start_etcd(&folder)?;
    let ports: Vec<ClusterPort> = (0..arguments.nodes).filter_map(port_of_node).collect();
    let services =
        (0..arguments.nodes).map(|node| start_node(node, &place, &ports)).collect::<Result<Vec<_>>>()?;
    let mut leader = Leader::new(&place, &ports)?;
    if arguments.json {
        let (nodes, rate) = (arguments.nodes, arguments.rate);
        print_setting("distribution", json!({"routes": rows.len(), "nodes": nodes, "rate": rate}));
    }
    let figure = |case: &str, metric: &str, value: f64, unit: &str| {
        if arguments.json {
            print_figure("distribution", case, metric, value, unit);
        } else {
            say_line!("{:<44} {value:>10.3} {unit}", format!("{case}: {metric}"));
        }
    };
    let case = format!("{} routes, {} nodes", thousands(rows.len() as u64), arguments.nodes);
    leader.begin()?;
    wait(&services, leader.writer.sequence(), "nodes begin")?;

    let began = Instant::now();
    for (number, part) in rows.chunks(STEP).enumerate() {
        stop_if_interrupted()?;
        tell("routes", &thousands((number * STEP) as u64));
        for (place, row) in (number * STEP..).zip(part) {
            leader.ledger.apply(Change::Route(route(row, place as u32, arguments.nodes)));
        }
        leader.write()?;
    }
    let written = began.elapsed();
    wait(&services, leader.writer.sequence(), "tables")?;
    figure(&case, "in the log", written.as_secs_f64(), "s");
    figure(&case, "in all tables", began.elapsed().as_secs_f64(), "s");

    let began = Instant::now();
    leader.writer.write_table(leader.ledger.snapshot())?;
    figure(&case, "whole table written", began.elapsed().as_secs_f64(), "s");
    let began = Instant::now();
    let late = start_node(arguments.nodes, &place, &ports)?;
    wait(std::slice::from_ref(&late), leader.writer.sequence(), "a node joins")?;
    figure(&case, "a node that joins", began.elapsed().as_secs_f64(), "s");
    drop(late);

    let mut times = Vec::new();
    for number in 0..arguments.changes {
        let place = number * rows.len() / arguments.changes;
        let began = Instant::now();
        leader.ledger.apply(Change::Route(route(&rows[place], place as u32 + 1, arguments.nodes)));
        leader.write()?;
        wait(&services, leader.writer.sequence(), "one route")?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
        std::thread::sleep(Duration::from_millis(20));
    }
    if !times.is_empty() {
        figure("one changed route in all tables", "median", median(times.clone()), "ms");
        figure("one changed route in all tables", "longest", times.iter().copied().fold(0.0, f64::max), "ms");
    }
    if arguments.churn > 0 {
        churn(arguments, &rows, &mut leader, &services)?;
        compare(&mut leader, &services)?;
        let of = format!("{} s of {} changes a second", arguments.churn, thousands(arguments.rate));
        figure(&of, "nodes whose table differs", 0.0, "nodes");
    }
    Ok(ExitCode::SUCCESS)
}

fn port_of_node(node: u16) -> Option<ClusterPort> {
    let number = u8::try_from(node + 1).ok()?;
    Some(ClusterPort { number, name: format!("p{number}"), node: NodeId::new(node)?, place: 0 })
}

/// An etcd on ports that are free now.
fn start_etcd(folder: &TempDir) -> Result<(Reachable, Place)> {
    let free = || std::net::TcpListener::bind("127.0.0.1:0")?.local_addr();
    let (client, peer) = (format!("http://{}", free()?), format!("http://{}", free()?));
    let data = folder.path().join("etcd");
    let mut command = Command::new("etcd");
    command.arg("--data-dir").arg(&data).stdout(Stdio::null()).stderr(Stdio::null());
    for (option, value) in [
        ("--listen-client-urls", client.clone()),
        ("--advertise-client-urls", client.clone()),
        ("--listen-peer-urls", peer.clone()),
        ("--initial-advertise-peer-urls", peer.clone()),
        ("--initial-cluster", format!("default={peer}")),
    ] {
        command.args([option, &value]);
    }
    let child = command.spawn().context("cannot start etcd; `apt install etcd-server` brings it")?;
    let etcd = Reachable::new(child);
    let place = Place::Etcd(EtcdPlace { endpoints: vec![client], ..EtcdPlace::default() });
    let began = Instant::now();
    while let Err(error) = Store::open(&place, "/bench/").and_then(|store| store.get("leader")) {
        stop_if_interrupted()?;
        if began.elapsed() > Duration::from_secs(30) || etcd.has_ended() {
            return Err(error).context("etcd does not answer");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok((etcd, place))
}

fn start_node(node: u16, place: &Place, ports: &[ClusterPort]) -> Result<Service> {
    let number = NodeId::new(node).context("too many nodes")?;
    let mut mirror = Mirror::new(ports.iter().map(|port| (port.name.clone(), mirror_port(port.number))))?;
    mirror.set_exits(exits(number, 0, None, 1, ports));
    let own = ports.iter().filter(|port| port.node == number);
    let own = own.map(|port| (port.number, OwnPort { place: port.place, mac: [2, 0, 0, 0, 0, port.number] }));
    let options = MemberOptions {
        name: format!("n{node}"),
        number,
        store: Store::open(place, "/bench/")?,
        ttl: Duration::from_secs(30),
        may_lead: false,
        restart_time: Duration::ZERO,
        links: Default::default(),
        host: Arc::new(NoHost),
        shared: MemberShared::new(Membership { ports: ports.to_vec(), nodes: Vec::new() }),
        supervisor: Supervisor::default(),
    };
    Ok(Service::of_cluster(mirror, Cluster::new(Tables::new(own.collect())), options)?)
}

/// The leader, without Linux.
struct Leader {
    ledger: Ledger,
    writer: LogWriter,
    /// Not yet in the log.
    records: Vec<Record>,
    ports: u16,
    _session: control::store::Session,
}

impl Leader {
    fn new(place: &Place, ports: &[ClusterPort]) -> Result<Leader> {
        let store = Store::open(place, "/bench/")?;
        let session = store.session(Duration::from_secs(30))?;
        let guard = store.take(&session, "leader", b"bench".to_vec())?.context("somebody leads already")?;
        let stored = Stored::read(&store)?;
        let named = ports.iter().map(|port| (port.name.clone(), port.number, port.node.number()));
        Ok(Leader {
            ledger: Ledger::new(named),
            writer: LogWriter::new(store, guard, &stored),
            records: Vec::new(),
            ports: ports.len() as u16,
            _session: session,
        })
    }

    /// Links and neighbours.
    fn begin(&mut self) -> Result<()> {
        for number in 1..=u32::from(self.ports) {
            self.ledger.apply(Change::Link(Link {
                index: number,
                name: format!("p{number}"),
                mac: Some([2, 0, 0, 0, 0, number as u8]),
                mtu: 1_500,
                is_up: true,
                has_carrier: true,
                master: None,
                below: None,
                kind: "tun".into(),
                vlan: None,
                has_priorities: false,
                vrf_table: None,
            }));
        }
        for gateway in 0..GATEWAYS {
            self.ledger.apply(Change::Neighbour(Neighbour {
                index: gateway % u32::from(self.ports) + 1,
                address: [10, 0, 0, gateway as u8].into(),
                mac: Some([2, 1, 0, 0, 0, gateway as u8]),
                state: NeighbourState::Reachable,
            }));
        }
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        self.records.extend(self.ledger.take_pending());
        self.writer.append(&mut self.records)?;
        Ok(())
    }
}

fn route(row: &Row, number: u32, nodes: u16) -> Route {
    let gateway = (number.wrapping_mul(0x9e37_79b9) >> 16) % GATEWAYS;
    let path = Path {
        index: gateway % u32::from(nodes) + 1,
        gateway: Some([10, 0, 0, gateway as u8].into()),
        weight: 1,
        is_down: false,
        has_encapsulation: false,
    };
    Route {
        key: RouteKey { table: MAIN, prefix: row.prefix.into(), metric: 20, tos: 0, from: None },
        kind: RouteKind::Unicast,
        protocol: 186,
        preferred_source: None,
        mtu: None,
        preference: Route::MEDIUM,
        only_linux: None,
        hops: Hops::Paths(vec![path]),
    }
}

/// Waits until workers of all nodes would see the log up to here.
fn wait(services: &[Service], sequence: u64, step: &str) -> Result<()> {
    let began = Instant::now();
    let reached = |service: &Service| service.lock().cluster.as_ref().map_or(0, |cluster| cluster.sequence);
    while let Some(slowest) = services.iter().map(reached).min().filter(|&slowest| slowest < sequence) {
        stop_if_interrupted()?;
        if began.elapsed() > PATIENCE {
            bail!("{step}: the nodes are at {slowest} of {sequence} after {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// Changes routes all the time, at an even rate; some go and come back.
fn churn(
    arguments: &DistributionArguments,
    rows: &[Row],
    leader: &mut Leader,
    services: &[Service],
) -> Result<()> {
    let began = Instant::now();
    let mut done = 0u64;
    while began.elapsed() < Duration::from_secs(arguments.churn) {
        stop_if_interrupted()?;
        let due = (began.elapsed().as_secs_f64() * arguments.rate as f64) as u64;
        while done < due {
            let place = (done.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize % rows.len();
            let route = route(&rows[place], done as u32, arguments.nodes);
            leader.ledger.apply(match done % 4 {
                0 => Change::RouteGone(route.key),
                _ => Change::Route(route),
            });
            done += 1;
        }
        leader.write()?;
        if leader.writer.is_long() {
            leader.writer.write_table(leader.ledger.snapshot())?;
        }
        tell("changes", &thousands(done));
        std::thread::sleep(Duration::from_millis(10));
    }
    wait(services, leader.writer.sequence(), "changes")
}

/// Whether all nodes have the same, and workers what the nodes have.
fn compare(leader: &mut Leader, services: &[Service]) -> Result<()> {
    leader.records.push(Record::Compare);
    leader.write()?;
    wait(services, leader.writer.sequence(), "comparison")?;
    let mut digests: Vec<TableDigest> = Vec::new();
    for (number, service) in services.iter().enumerate() {
        let mut state = service.lock();
        let report = state.mirror.check();
        if !report.is_good() {
            bail!("node {number}: the compiled tables are not what the routes say");
        }
        digests.extend(state.cluster.as_ref().map(|cluster| cluster.tables.digest()));
    }
    let routes = leader.ledger.routes() as u64;
    if digests.windows(2).any(|pair| pair[0] != pair[1])
        || digests.iter().any(|digest| digest.routes != routes)
    {
        bail!("the nodes' tables differ: {digests:?}; the leader has {routes} routes");
    }
    Ok(())
}
