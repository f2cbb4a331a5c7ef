//! The graph of `brickway run PORT...` for benches: over tables that are filled as the mirror of Linux would, and without
//! Linux.

use std::path::Path;

use anyhow::Result;
use elements::devices::OpenPort;
use elements::ipsec::Activation;
use elements::lookup::{Asker, ForwardingTables};
use fib::publish::pair;
use fib::read::Row;
use fib::{Adjacency, Fib, MAIN, NextHop, NextHopIndex, Policy};
use graph::lang::Source;
use graph::setup::Shared;
use packet::Family;
use ports::Port;

use super::frames::port_mac;
use super::routes;
use super::single_core::{ROUTER_PORTS, SingleCore};
use router::drop_in::{PlannedPort, PlannedVlan, lua_configuration, usual_configuration};

/// Tables of the routes.
pub(super) fn fib<A: Family>(rows: &[Row<A>]) -> Result<Fib<Adjacency>> {
    let mut fib = Fib::new()?;
    fill(&mut fib, rows)?;
    Ok(fib)
}

/// Adds routes over a neighbour behind each port but the first, chosen by the route's origin.
pub(super) fn fill<A: Family>(fib: &mut Fib<Adjacency>, rows: &[Row<A>]) -> Result<()> {
    let next_hops = next_hops::<A>(fib)?;
    for row in rows {
        let next_hop = next_hops[routes::port_of(row.origin) - 1];
        fib.replace(MAIN, row.prefix.into(), next_hop)?;
    }
    fib.publish();
    Ok(())
}

/// A neighbour behind each port but the first.
pub(super) fn next_hops<A: Family>(fib: &mut Fib<Adjacency>) -> Result<Vec<NextHopIndex>> {
    let ethertype = A::VERSION.ethertype().0.to_be_bytes();
    let mut next_hops = Vec::new();
    for port in 1..ROUTER_PORTS as u8 {
        let neighbour = [2, 0, 0, 0, port, 2];
        let adjacency = Adjacency::ethernet(u16::from(port), neighbour, port_mac(port).0, ethertype);
        next_hops.push(fib.next_hops_mut().add(NextHop::Forward(adjacency))?);
    }
    Ok(next_hops)
}

/// The number of a VLAN on the first port.
pub(super) const VLAN: u16 = 10;

/// The graph of four ports, with the first as input.
pub(super) fn router(
    ports: [Box<dyn Port>; ROUTER_PORTS],
    fib: &Fib<Adjacency>,
    burst: usize,
) -> Result<SingleCore> {
    build(ports, fib, burst, false, usual_configuration)
}

/// The same with a script in the place of our graph.
pub(super) fn lua_router(
    ports: [Box<dyn Port>; ROUTER_PORTS],
    fib: &Fib<Adjacency>,
    burst: usize,
    script: &Path,
) -> Result<SingleCore> {
    build(ports, fib, burst, false, |ports| lua_configuration(ports, &script.display().to_string(), ""))
}

/// The same with a VLAN on the first port.
pub(super) fn router_with_vlan(
    ports: [Box<dyn Port>; ROUTER_PORTS],
    fib: &Fib<Adjacency>,
    burst: usize,
) -> Result<SingleCore> {
    build(ports, fib, burst, true, usual_configuration)
}

fn build(
    ports: [Box<dyn Port>; ROUTER_PORTS],
    fib: &Fib<Adjacency>,
    burst: usize,
    has_vlan: bool,
    configuration: impl FnOnce(&[PlannedPort]) -> Result<String>,
) -> Result<SingleCore> {
    let name = |port: usize| format!("bench{port}");
    let shared = Shared::default();
    // As in `brickway run`, whose Linux has no policies.
    Activation::take(&shared);
    // The second of the pair is not needed: nothing changes the rules.
    let (_, policies) = pair(Policy::default(), Policy::default());
    let vlan = has_vlan.then(|| format!("{}.{VLAN}", name(0)));
    let names: Vec<String> = (0..ROUTER_PORTS).map(name).chain(vlan).collect();
    let tables = ForwardingTables {
        ports: names.clone(),
        readers: fib.readers().clone(),
        policies,
        paths: Default::default(),
        ask: Asker::default(),
    };
    shared.get_or_make(ForwardingTables::KEY, || Ok::<_, anyhow::Error>(tables))?;
    let mut ports_of_graph = Vec::new();
    for (port, name) in names.into_iter().enumerate() {
        for to in ["", "?checked=yes", "?permitted=yes"] {
            let to_linux = ports::open("null:", &ports::OpenOptions { tx_queues: 2, ..Default::default() })?;
            let key = OpenPort::key(&format!("host:{name}{to}"));
            shared.get_or_make(&key, || Ok::<_, anyhow::Error>(OpenPort::new(to_linux)))?;
        }
        let is_vlan = port == ROUTER_PORTS;
        let mut planned = PlannedPort::new(name, port_mac(if is_vlan { 0 } else { port as u8 }), 1500);
        planned.vlan = is_vlan.then_some(PlannedVlan { below: 1, number: VLAN });
        ports_of_graph.push(planned);
    }
    let text = configuration(&ports_of_graph)?;
    let source = Source { name: "drop-in.click".into(), text };
    SingleCore::build(&source, Vec::new(), burst, ports.into_iter(), &shared)
}
