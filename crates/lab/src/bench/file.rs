//! What the packets of any configuration cost, element by element, in memory on one core.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use elements::devices::OpenPort;
use elements::devices::follow_linux::{Followed, Follows};
use elements::ipsec::Activation;
use elements::lookup::{Asker, FORWARDS, ForwardingTables};
use fib::publish::{Writer, pair};
use fib::{Adjacency, Fib, MAIN, NextHop, Policy};
use graph::context::ElementStats;
use graph::lang::{FlatElement, Options};
use graph::setup::Shared;
use packet::Family;
use packet::wire::ethernet::MacAddr;
use ports::{MemoryLoop, OpenOptions, Port};
use router::load;

use super::single_core::SingleCore;
use super::{frames, routes};

const BURST: usize = 32;
const DESTINATIONS: usize = 4096;
/// The largest packet, in bytes.
const LARGEST: usize = 9216;

/// What comes in by the first port.
pub(crate) enum Traffic<'p> {
    /// IPv4 frames of so many bytes, without the frame check sequence, to 4,096 destinations anywhere.
    Frames(usize),
    /// The frames of a pcap file, over and over.
    Pcap(&'p Path),
}

/// What an element costs.
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) class: String,
    /// Packets that it gets for each that is received.
    pub(crate) share: f64,
    /// TSC cycles for each of its packets.
    pub(crate) cycles: f64,
}

/// What a configuration costs.
pub(crate) struct Costs {
    /// The elements that got packets, in the order of the file, each working by itself.
    pub(crate) parts: Vec<Part>,
    /// TSC cycles of a received packet as the sum of what its elements cost, those in a row working as one.
    pub(crate) sum: f64,
    /// The same by the CPU time of the thread.
    pub(crate) measured: f64,
}

impl Costs {
    /// The sum where each element works by itself.
    pub(crate) fn sum_apart(&self) -> f64 {
        sum(&self.parts)
    }
}

fn sum(parts: &[Part]) -> f64 {
    parts.iter().map(|part| part.share * part.cycles).sum()
}

/// Tables of Linux's, as lookups find them, and what has to outlive them.
type Tables = (Fib<Adjacency>, Writer<Policy>);

/// A configuration to measure.
pub(crate) struct Subject<'s> {
    pub(crate) path: &'s Path,
    /// Values of its variables.
    pub(crate) parameters: &'s [(String, String)],
    /// Handlers that are written first, with their values.
    pub(crate) writes: &'s [(String, String)],
}

/// Measures a configuration of which each port is in memory, for about so many seconds.
///
/// # Errors
///
/// The configuration has mistakes or receives nowhere, or nothing of the traffic leaves.
pub(crate) fn costs(subject: &Subject<'_>, traffic: &Traffic<'_>, seconds: f64) -> Result<Costs> {
    let Subject { path, parameters, writes } = *subject;
    let source = load::read(path)?;
    let options = Options { parameters: parameters.to_vec(), ..Options::default() };
    let flat = load::compile(&source, &options, &router::classes())
        .ok_or_else(|| anyhow!("{} has mistakes", path.display()))?;
    let devices = |class: &str| -> Vec<String> {
        let of_class = flat.elements.iter().filter(|element| element.class == class);
        of_class.map(|element| first_argument(&element.config)).collect()
    };
    let inputs = devices("FromDevice");
    let Some(input) = inputs.first() else {
        bail!("{}: no FromDevice; expected one, which gets the packets", path.display());
    };
    let mut names = inputs.clone();
    names.extend(devices("ToDevice"));
    names.sort();
    names.dedup();
    let shared = Shared::default();
    if Follows::of(&flat).iter().any(|follows| follows.what == Followed::Ipsec) {
        // As in `brickway run`, whose Linux has no policies.
        Activation::take(&shared);
    }
    let mac =
        devices("HostEtherFilter").first().and_then(|mac| mac.replace('-', ":").parse::<MacAddr>().ok());
    for name in &names {
        let port = if name == input { open(traffic, mac)? } else { null()? };
        shared.get_or_make(&OpenPort::key(name), || Ok::<_, anyhow::Error>(OpenPort::new(port)))?;
    }
    let lookup = flat.elements.iter().find(|element| {
        router::classes().class(&element.class).is_some_and(|class| class.capabilities.contains(&FORWARDS))
    });
    let _tables = lookup.map(|lookup| provide_tables(&shared, ports_of(&lookup.config))).transpose()?;
    let mut graph = SingleCore::options(BURST);
    graph.pool.data_bytes = graph.pool.data_bytes.max(LARGEST);
    let none = std::iter::empty();
    let mut core = SingleCore::build_with(&source, parameters.to_vec(), &graph, none, &shared)?;
    for (handler, value) in writes {
        let (element, name) = handler.rsplit_once('.').unwrap_or((handler, ""));
        let number =
            core.graph().find(element).with_context(|| format!("--write {handler}: no such element"))?;
        let written = core.graph().write(number, name, value).unwrap_or(Ok(()));
        written.map_err(|why| anyhow!("--write {handler}: {why}"))?;
    }
    core.run(seconds.min(0.1));
    core.reset_stats();
    let measured = core.run(seconds).cycles_per_packet();
    let received = core.packets();
    if received == 0 {
        bail!("{}: port '{input}' receives nothing; expected packets in the traffic", path.display());
    }
    let stats = core.graph().stats();
    let left: u64 = core.of_class("ToDevice").into_iter().map(|place| stats[place].passed()).sum();
    if left == 0 {
        let mut reasons: Vec<_> = stats.iter().flat_map(|stats| &stats.drops).collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let reason = reasons
            .first()
            .map_or(String::new(), |(reason, _)| format!(" (most were dropped as '{reason}')"));
        bail!(
            "{}: nothing of the traffic left by a ToDevice{reason}; expected --traffic with frames that it forwards",
            path.display()
        );
    }
    let parts_of = |stats: Vec<ElementStats>, received: u64| -> Vec<Part> {
        let busy = flat.elements.iter().zip(stats).filter(|(_, stats)| stats.packets > 0);
        let part = |(element, stats): (&FlatElement, ElementStats)| Part {
            name: element.name.clone(),
            class: element.class.clone(),
            share: stats.packets as f64 / received as f64,
            cycles: stats.cycles / stats.packets as f64,
        };
        busy.map(part).collect()
    };
    let together = sum(&parts_of(stats, received));
    core.graph().set_fused(false);
    core.reset_stats();
    core.run(seconds);
    let (stats, received) = (core.graph().stats(), core.packets());
    Ok(Costs { parts: parts_of(stats, received), sum: together, measured })
}

fn null() -> Result<Box<dyn Port>> {
    Ok(ports::open("null:", &OpenOptions { tx_queues: 2, ..OpenOptions::default() })?)
}

fn open(traffic: &Traffic<'_>, mac: Option<MacAddr>) -> Result<Box<dyn Port>> {
    Ok(match traffic {
        Traffic::Pcap(path) => {
            ports::open(&format!("pcap:{}?timing=loop", path.display()), &OpenOptions::default())?
        }
        Traffic::Frames(size) => {
            let mut templates = frames::templates(&routes::default_route(), DESTINATIONS, *size);
            if let Some(MacAddr(mac)) = mac {
                templates.iter_mut().for_each(|frame| frame[..6].copy_from_slice(&mac));
            }
            Box::new(MemoryLoop::new(templates))
        }
    })
}

/// A default route of each family over a neighbour behind the second port, for lookups in Linux's tables.
fn provide_tables(shared: &Shared, ports: Vec<String>) -> Result<Tables> {
    let mut fib = Fib::new()?;
    let out = u16::from(ports.len() > 1);
    for (prefix, ethertype) in [("0.0.0.0/0", u32::VERSION), ("::/0", u128::VERSION)] {
        let ethertype = ethertype.ethertype().0.to_be_bytes();
        let adjacency = Adjacency::ethernet(out, [2, 0, 0, 0, 1, 2], frames::port_mac(1).0, ethertype);
        let next_hop = fib.next_hops_mut().add(NextHop::Forward(adjacency))?;
        fib.insert(MAIN, prefix.parse()?, next_hop)?;
    }
    fib.publish();
    let (rules, policies) = pair(Policy::default(), Policy::default());
    let tables = ForwardingTables {
        ports,
        readers: fib.readers().clone(),
        policies,
        paths: Default::default(),
        ask: Asker::default(),
    };
    shared.get_or_make(ForwardingTables::KEY, || Ok::<_, anyhow::Error>(tables))?;
    Ok((fib, rules))
}

/// The ports that a lookup names: its arguments but those with keywords, which are two words.
fn ports_of(config: &str) -> Vec<String> {
    let arguments = config.split(',').map(str::trim);
    arguments.take_while(|argument| !argument.contains(char::is_whitespace)).map(str::to_owned).collect()
}

/// The first argument of an element, which of devices is the port.
fn first_argument(config: &str) -> String {
    config.split(',').next().unwrap_or_default().trim().trim_matches('"').to_owned()
}
