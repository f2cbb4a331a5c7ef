//! `brickway cluster`: many servers, one router.
//!
//! | file | what lives there |
//! | --- | --- |
//! | this one | the command line; checking, joining, leaving |
//! | `config` | the cluster's file |
//! | `agreed` | what nodes agree on: the record in the store |
//! | `run` | this server becomes a node |
//! | `click` | the configuration of a node |
//! | `fronts` | who routes what comes in by the ports of fronts |
//! | `host` | between the graph, Linux, and the control plane |
//! | `keys` | the keys of the fabric's hellos, from the key file |
//! | `relaying` | which links' frames are relayed in the kernel |
//! | `rows` | what a node knows of its cluster, for `brickway show cluster`, metrics and the web page |
//! | `show` | what `brickway cluster show` prints |

mod agreed;
mod click;
pub mod config;
mod fronts;
mod host;
mod keys;
mod relaying;
mod rows;
mod run;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use control::api::Level;
use control::cluster::key::{Key, KeyFile};
use control::store::{Operation, Session, Store, StoreError};

use crate::log;
use crate::output::{print, say_line};
use crate::run::{NodeArguments, Plan, RunArguments};
use crate::table::{Align, Table};
use agreed::Ignored;
use config::{ClusterConfig, NodeConfig};
pub(crate) use host::NodeHost;
pub(crate) use relaying::Relaying;
pub(crate) use rows::rows;

/// Several servers that act as one router: each with its ports, wired to each other, one routing daemon for all.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway cluster check cluster.toml           mistakes, and which interface is wired to whom
  brickway cluster run cluster.toml a           this server is node 'a'
  brickway cluster show cluster.toml            nodes, links, tables, traffic
  brickway cluster join cluster.toml e          one server more: the others learn of it from here
  brickway cluster leave cluster.toml b         node 'b' goes; first nobody relays over it any more
  brickway cluster set cluster.toml c --weight 0    fronts give node 'c' no flows any more
  brickway cluster set cluster.toml c --weight 2 --serves 'udp any any port 53'    twice its share, and of DNS only
  (umask 077; brickway cluster key > cluster.key)   a key, to be copied to all nodes

examples/cluster.toml describes every option. The first node that runs puts what all nodes agree on into the cluster's store, which counts
from then on. Commands, drivers, interfaces and files are each node's own, from its own file; 'check' prints which options are which. The
file of a server that joins needs its own section, [store] and [security] only.

'show' says for each link what relays the frames that come by it for other nodes: the kernel, or sockets and the graph, with the reason.

Exit codes: 0 good, 1 the file or the machine does not allow it, 2 wrong usage, 3 'show' found tables that differ.")]
pub(crate) struct ClusterArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Find every mistake of a cluster's file, and print how its nodes are wired
    Check {
        /// The cluster's file
        file: PathBuf,
    },
    /// Run this server as a node
    Run {
        /// The cluster's file
        file: PathBuf,
        /// The node's name
        node: String,
        /// Print the configuration that the node gets, and end
        #[arg(long)]
        print_config: bool,
        #[command(flatten)]
        how: NodeArguments,
    },
    /// Add a node of the file to a cluster that runs, and run this server as it
    Join {
        /// The cluster's file
        file: PathBuf,
        /// The node's name
        node: String,
        #[command(flatten)]
        how: NodeArguments,
    },
    /// Have a node leave: nobody relays over it, another one leads, then it ends
    Leave {
        /// The cluster's file
        file: PathBuf,
        /// The node's name
        node: String,
    },
    /// Change a node's share of what fronts divide, while the cluster runs
    Set {
        /// The cluster's file
        file: PathBuf,
        /// The node's name
        node: String,
        #[command(flatten)]
        change: Change,
    },
    /// Print a new key, for the file that [security] key_file names
    Key,
    /// Show nodes, links, tables and traffic
    Show {
        /// The cluster's file
        file: PathBuf,
        /// Print one JSON object a node
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Debug)]
#[group(required = true, multiple = true)]
struct Change {
    /// Its weight among the nodes that route; 0 drains it
    #[arg(long)]
    weight: Option<u32>,
    /// A rule of the flows that it is specialised for, such as "udp any any port 53"; once for each rule. They replace all that it serves
    #[arg(long, value_name = "RULE", conflicts_with = "serves_all")]
    serves: Vec<String>,
    /// Have it serve all flows that no other node is specialised for
    #[arg(long)]
    serves_all: bool,
}

/// How long a node may take to leave.
const LONGEST_LEAVE: Duration = Duration::from_secs(20);

/// How long a change of the configuration may take when who makes it has died.
const CHANGE: Duration = Duration::from_secs(3);

/// Where the cluster's file lies in its store.
const CONFIG: &str = "config";

pub(crate) fn cluster(arguments: &ClusterArguments) -> Result<ExitCode> {
    match &arguments.what {
        What::Check { file } => check(&ClusterConfig::read(file)?),
        What::Run { file, node, print_config, how } => {
            let config = ClusterConfig::read(file)?;
            let arguments = RunArguments::of_node(how);
            if *print_config {
                return run::print_config(&config, config.node(node)?);
            }
            log::begin(Level::default());
            // Before the store's threads.
            Plan::with_programs().give_up()?;
            guards(&config)?;
            let store = open_when_there(&config, node)?;
            let config = in_force(&store, config, node)?;
            run::run(&config, config.node(node)?, &arguments, store)
        }
        What::Join { file, node, how } => {
            let config = ClusterConfig::read(file)?;
            log::begin(Level::default());
            // Before the store's threads.
            Plan::with_programs().give_up()?;
            guards(&config)?;
            let store = open_when_there(&config, node)?;
            let joined = join(&store, &config, config.node(node)?)?;
            run::run(&joined, joined.node(node)?, &RunArguments::of_node(how), store)
        }
        What::Key => {
            say_line!("{}", Key::fresh()?.to_hex());
            Ok(ExitCode::SUCCESS)
        }
        What::Set { file, node, change } => set(&ClusterConfig::read(file)?, node, change),
        What::Leave { file, node } => leave(&ClusterConfig::read(file)?, node),
        What::Show { file, json } => {
            let file = ClusterConfig::read(file)?;
            let store = open(&file, None)?;
            let (config, ignored) = known(&store, &file, None)?;
            show::show(&store, &config, &ignored, *json)
        }
    }
}

fn open(config: &ClusterConfig, node: Option<&str>) -> Result<Store> {
    Ok(Store::open(&config.place(node)?, &config.prefix())?)
}

/// The same for a node, which waits for a store that is not up yet: servers start in any order.
fn open_when_there(config: &ClusterConfig, node: &str) -> Result<Store> {
    let place = config.place(Some(node))?;
    let mut told = false;
    loop {
        match Store::open(&place, &config.prefix()) {
            Err(error @ StoreError::Unavailable { .. }) => {
                if !told {
                    tracing::warn!("cluster: {error}; waiting for it");
                    told = true;
                }
                std::thread::sleep(Duration::from_millis(500));
            }
            other => return Ok(other?),
        }
    }
}

/// Reports what has no guard, and reads the key file, which must be there when the node starts.
fn guards(config: &ClusterConfig) -> Result<()> {
    if let Some(file) = &config.security.key_file {
        KeyFile::load(file)?;
    }
    if config.security.insecure {
        let open = config.unguarded();
        if open.is_empty() {
            tracing::warn!("cluster: insecure = true, but all that it allows is guarded; remove it");
        }
        open.iter().for_each(|open| tracing::warn!("cluster: insecure = true: {open}"));
    }
    Ok(())
}

fn check(config: &ClusterConfig) -> Result<ExitCode> {
    let [left, right] = [Align::Left, Align::Right];
    let mut table = Table::new(&[
        ("node", left),
        ("number", right),
        ("role", left),
        ("link", right),
        ("interface", left),
        ("leads to", left),
    ]);
    for node in &config.nodes {
        for (link, (interface, far)) in config.wiring(node)?.into_iter().enumerate() {
            let (name, number) = (node.name.clone(), node.number.to_string());
            let interface = if interface.is_empty() { "-".to_owned() } else { interface };
            table.row(vec![name, number, node.role.word().to_owned(), link.to_string(), interface, far]);
        }
    }
    print(&table.render());
    if let Some(shares) = fronts::shares(config) {
        print(&format!("\n{shares}\n"));
    }
    print(&origins());
    let ports = config.nodes.iter().map(|node| node.ports.len()).sum::<usize>();
    print(&format!("cluster '{}': {} nodes, {ports} ports, no mistakes\n", config.name, config.nodes.len()));
    let mut warnings = config.warnings();
    if let Some(Err(error)) =
        config.security.key_file.as_deref().filter(|file| file.exists()).map(KeyFile::load)
    {
        warnings.push(format!("{error}; no node starts on this machine with it"));
    }
    warnings.iter().for_each(|warning| print(&format!("warning: {warning}\n")));
    Ok(ExitCode::SUCCESS)
}

/// Which options come from where, as lines.
fn origins() -> String {
    let lines =
        [("agreed, from the store", &agreed::AGREED[..]), ("from each node's own file", &agreed::OWN[..])];
    lines.into_iter().map(|(origin, options)| format!("{origin}: {}\n", options.join(", "))).collect()
}

/// What the store says of the cluster; if nothing, the file, which is then what the store says.
fn in_force(store: &Store, file: ClusterConfig, node: &str) -> Result<ClusterConfig> {
    if let Some(entry) = store.get(CONFIG)? {
        return Ok(agreed::merged(&entry.value, &file, Some(node))?.0);
    }
    let _alone = Alone::with(store)?;
    // Another node may have been the first.
    if let Some(entry) = store.get(CONFIG)? {
        return Ok(agreed::merged(&entry.value, &file, Some(node))?.0);
    }
    put_config(store, &file)?;
    Ok(file)
}

/// What the store says of a cluster that is there.
fn known(store: &Store, file: &ClusterConfig, node: Option<&str>) -> Result<(ClusterConfig, Ignored)> {
    match store.get(CONFIG)? {
        Some(entry) => agreed::merged(&entry.value, file, node),
        None => bail!("nobody runs the cluster '{}' yet; `brickway cluster run` begins it", file.name),
    }
}

/// While one has this, nobody else changes the cluster's configuration.
struct Alone {
    _session: Session,
}

impl Alone {
    fn with(store: &Store) -> Result<Alone> {
        let session = store.session(CHANGE)?;
        let begin = Instant::now();
        while store.take(&session, "changing", Vec::new())?.is_none() {
            if begin.elapsed() > 3 * CHANGE {
                bail!(
                    "somebody else changes the cluster all the time; is another `brickway cluster leave` waiting?"
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Alone { _session: session })
    }
}

fn put_config(store: &Store, config: &ClusterConfig) -> Result<()> {
    let value = agreed::record_of(config)?.into_bytes();
    store.commit(None, vec![Operation::Put { key: CONFIG.into(), value, session: None }])?;
    Ok(())
}

/// Adds a node to the cluster that the store knows.
fn join(store: &Store, file: &ClusterConfig, node: &NodeConfig) -> Result<ClusterConfig> {
    let _alone = Alone::with(store)?;
    let (mut config, _) = known(store, file, None)?;
    let is_known = config.nodes.contains(&node.agreed());
    if !is_known && store.get(&format!("nodes/{}", node.name))?.is_some() {
        bail!(
            "node '{0}' runs already, as the cluster knows it and not as the file says; first `brickway cluster leave`, or give \
             this one another name",
            node.name
        );
    }
    match config.nodes.iter_mut().find(|known| known.name == node.name) {
        Some(known) => *known = node.clone(),
        None => config.nodes.push(node.clone()),
    }
    if !is_known {
        // Every mistake that the newcomer makes of it is told here, and nobody else hears of it.
        config.check().context("with the node that joins")?;
        put_config(store, &config)?;
    }
    Ok(config)
}

/// Changes what fronts give to a node, in the store's record. All nodes follow it.
fn set(file: &ClusterConfig, name: &str, change: &Change) -> Result<ExitCode> {
    let store = open(file, None)?;
    let _alone = Alone::with(&store)?;
    let (mut config, _) = known(&store, file, None)?;
    config.node(name)?;
    for node in config.nodes.iter_mut().filter(|node| node.name == name) {
        node.weight = change.weight.unwrap_or(node.weight);
        if change.serves_all {
            node.serves.clear();
        } else if !change.serves.is_empty() {
            node.serves.clone_from(&change.serves);
        }
    }
    config.check().with_context(|| format!("node '{name}' stays as it is"))?;
    put_config(&store, &config)?;
    let node = config.node(name)?;
    say_line!("node '{name}' has weight {} now and serves {}", node.weight, fronts::serves(node));
    match fronts::shares(&config) {
        Some(shares) => print(&format!("\n{shares}")),
        None => say_line!("it has no effect yet: no node has role \"edge\", which leaves routing to others"),
    }
    Ok(ExitCode::SUCCESS)
}

fn leave(file: &ClusterConfig, node: &str) -> Result<ExitCode> {
    let store = open(file, None)?;
    known(&store, file, None)?.0.without(node)?;
    let was_there = store.get(&format!("nodes/{node}"))?.is_some();
    // It ends with this command, or the node would leave again as soon as it came back.
    let session = store.session(CHANGE)?;
    let rest = format!("rest/{node}");
    let id = Some(session.id());
    store.commit(None, vec![Operation::Put { key: rest, value: Vec::new(), session: id }])?;
    let begin = Instant::now();
    while store.get(&format!("nodes/{node}"))?.is_some() {
        if begin.elapsed() > LONGEST_LEAVE {
            bail!("node '{node}' has not left within {} s; it is a member still", LONGEST_LEAVE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let _alone = Alone::with(&store)?;
    // Others may have come or gone meanwhile.
    let rest = known(&store, file, None)?.0.without(node)?;
    if rest.nodes.is_empty() {
        store.commit(None, vec![Operation::Remove(CONFIG.into())])?;
    } else {
        put_config(&store, &rest)?;
    }
    say_line!("node '{node}' has left the cluster '{}'", rest.name);
    if !was_there {
        say_line!(
            "it was not a member before; if its server still forwards, cut off from the store, end it there"
        );
    }
    Ok(ExitCode::SUCCESS)
}
