//! Ways of packets over several nodes: routers one behind the other, or the nodes of a cluster.
//!
//! Each node is whole, and is measured alone on one core: it gets the very frames that the node before it sent, out of memory. So its cycles are
//! those of a node that has a machine of its own.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use fabric::Mode;
use fib::read::Row;
use fib::{Adjacency, Fib};
use packet::{Batch, Pool, PoolOptions};
use ports::{MemoryLoop, Port};

use super::example::null;
use super::frames::port_mac;
use super::mesh::{self, Cables, Joint, LABELS};
use super::rig::Rig;
use super::single_core::{ROUTER_PORTS, SingleCore};
use super::sources::Paced;
use super::{drop_in, frames, routes};

/// Over which nodes packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// One router.
    Router,
    /// Two routers: the first one's neighbour is the second one.
    Routers,
    /// The input node and the output node of a mesh of four.
    Direct,
    /// The same with a third node between them.
    OverThird,
}

/// A node on a way.
struct Stop {
    /// In its cluster; none in a router.
    number: Option<usize>,
    /// The port by which packets come in, and those by which they leave.
    entrance: usize,
    exits: &'static [usize],
}

/// A node of a mesh has its own port before its links, and these in the order of the other nodes.
const fn node(number: usize, entrance: usize, exits: &'static [usize]) -> Stop {
    Stop { number: Some(number), entrance, exits }
}

const ROUTER: Stop = Stop { number: None, entrance: 0, exits: &[1, 2, 3] };

impl Way {
    const fn stops(self) -> &'static [Stop] {
        const ROUTERS: [Stop; 2] = [ROUTER, ROUTER];
        const DIRECT: [Stop; 2] = [node(0, 0, &[1]), node(1, 1, &[0])];
        const OVER_THIRD: [Stop; 3] = [node(0, 0, &[2]), node(2, 1, &[2]), node(1, 2, &[0])];
        match self {
            Way::Router => &[ROUTER],
            Way::Routers => &ROUTERS,
            Way::Direct => &DIRECT,
            Way::OverThird => &OVER_THIRD,
        }
    }

    const fn mode(self) -> Mode {
        match self {
            Way::OverThird => Mode::ClassicVlb,
            _ => Mode::SinglePath,
        }
    }
}

/// The nodes of a way, from its begin to its end.
pub(crate) struct Measured {
    pub(crate) nodes: Vec<Rig>,
    /// How often the IPv4 TTL of a packet was decremented on all of the way.
    pub(crate) ttl_steps: u8,
}

/// The usual burst of this router.
const BURST: usize = 64;
/// No limit of nodes or links, in bytes a second: what is measured is the work.
const RATE: f64 = 125e9;
/// Where frames have their TTL.
const TTL: usize = 22;

/// A table of routes, as routers and as nodes have it.
pub(crate) struct Routes {
    rows: Vec<Row>,
    router: Fib<Adjacency>,
    /// Everything leaves by node 1.
    cluster: Fib<Adjacency>,
}

impl Routes {
    /// Makes a table of so many routes out of the real one.
    ///
    /// # Errors
    /// The real one cannot be read.
    pub(crate) fn new(count: usize) -> Result<Routes> {
        Routes::of(routes::grown(&routes::real(&crate::tables::ipv4())?, count))
    }

    fn of(rows: Vec<Row>) -> Result<Routes> {
        let neighbours: Vec<(usize, u32)> = (0..LABELS).map(|label| (1, label)).collect();
        Ok(Routes { router: drop_in::fib(&rows)?, cluster: mesh::fib(&rows, 0, &neighbours)?, rows })
    }

    /// Returns frames for so many destinations inside the table's prefixes.
    pub(crate) fn frames(&self, destinations: usize, size: usize) -> Vec<Vec<u8>> {
        frames::templates(&self.rows, destinations, size)
    }

    /// Makes the nodes of a way, which frames come to at so many packets a second, or as fast as they are taken.
    ///
    /// # Errors
    /// A node cannot be built, or sends nothing.
    pub(crate) fn measured(&self, way: Way, mut frames: Vec<Vec<u8>>, rate: Option<f64>) -> Result<Measured> {
        let ttl = frames[0][TTL];
        let mut nodes = Vec::new();
        for stop in way.stops() {
            if stop.number.is_none() {
                // The neighbour that frames go to, whose address is here the same in all routers.
                frames.iter_mut().for_each(|frame| frame[..6].copy_from_slice(&port_mac(0).0));
            }
            nodes.push(self.rig(way, stop, frames.clone(), rate)?);
            frames = self.sent(way, stop, frames)?;
        }
        let ttl_steps = ttl - frames[0][TTL];
        if frames.iter().any(|frame| ttl - frame[TTL] != ttl_steps) {
            bail!("{way:?}: packets leave with TTLs of several values");
        }
        Ok(Measured { nodes, ttl_steps })
    }

    /// Makes a router that gets frames by its first two ports.
    ///
    /// # Errors
    /// It cannot be built.
    pub(crate) fn router_of_two(&self, flows: [Vec<Vec<u8>>; 2]) -> Result<Rig> {
        let [first, mut second] = flows;
        second.iter_mut().for_each(|frame| frame[..6].copy_from_slice(&port_mac(1).0));
        let looped = |frames| -> Box<dyn Port> { Box::new(MemoryLoop::new(frames)) };
        let ports = [looped(first), looped(second), null()?, null()?];
        Ok(Rig::of(drop_in::router(ports, &self.router, BURST)?, None))
    }

    fn rig(&self, way: Way, stop: &Stop, frames: Vec<Vec<u8>>, rate: Option<f64>) -> Result<Rig> {
        let looped = Box::new(MemoryLoop::new(frames));
        let Some(rate) = rate else { return Ok(Rig::of(self.core(way, stop, looped, |_| null())?, None)) };
        let paced = Paced::new(looped, &[rate], 1);
        let meter = paced.meters.first().cloned();
        let outputs = (0..ROUTER_PORTS).map(|_| Ok(paced.output(null()?))).collect::<Result<Vec<_>>>()?;
        let mut outputs: Vec<_> = outputs.into_iter().map(Some).collect();
        let core =
            self.core(way, stop, Box::new(paced), |port| outputs[port].take().map_or_else(null, Ok))?;
        Ok(Rig::of(core, meter))
    }

    /// Returns as many frames as there are, as the node sends them on.
    fn sent(&self, way: Way, stop: &Stop, frames: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        /// A node that sends nothing for so long sends nothing at all.
        const PATIENCE: Duration = Duration::from_secs(30);
        let wanted = frames.len();
        let cables = Cables::new(1024);
        let mut core = self.core(way, stop, Box::new(MemoryLoop::new(frames)), |port| {
            if stop.exits.contains(&port) { cables.end(port as u32, 0) } else { null() }
        })?;
        let ends = stop.exits.iter().map(|&port| Ok(cables.end(port as u32, 1)?.take_rx(0)?));
        let mut ends = ends.collect::<Result<Vec<_>>>()?;
        let mut pool = Pool::new(PoolOptions { frames: BURST, ..PoolOptions::default() })?;
        let mut sent = Vec::new();
        let begin = Instant::now();
        while sent.len() < wanted {
            core.turn();
            for end in &mut ends {
                let mut batch = Batch::new();
                end.receive(&mut pool, &mut batch, packet::MAX_BATCH);
                sent.extend(batch.iter().map(|packet| packet.data().to_vec()));
            }
            if begin.elapsed() > PATIENCE {
                bail!("{way:?}: a node sent {} of {wanted} frames in {PATIENCE:?}", sent.len());
            }
        }
        sent.truncate(wanted);
        Ok(sent)
    }

    /// Makes a node with an entrance and, for all else, the ports that `other` gives.
    fn core(
        &self,
        way: Way,
        stop: &Stop,
        entrance: Box<dyn Port>,
        mut other: impl FnMut(usize) -> Result<Box<dyn Port>>,
    ) -> Result<SingleCore> {
        let mut entrance = Some(entrance);
        let mut port = |number: usize| match entrance.take_if(|_| number == stop.entrance) {
            Some(entrance) => Ok(entrance),
            None => other(number),
        };
        let ports = [port(0)?, port(1)?, port(2)?, port(3)?];
        let Some(number) = stop.number else { return drop_in::router(ports, &self.router, BURST) };
        let joint = Joint { mode: way.mode(), rate: RATE };
        let text = mesh::node_text(number, ROUTER_PORTS, ROUTER_PORTS - 1, joint)?;
        mesh::node(ports.into_iter(), &self.cluster, &SingleCore::options(BURST), text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn each_router_decrements_the_ttl_and_a_cluster_does_so_once() {
        let routes = Routes::of(routes::default_route()).unwrap();
        for (way, nodes, ttl_steps) in
            [(Way::Router, 1, 1), (Way::Routers, 2, 2), (Way::Direct, 2, 1), (Way::OverThird, 3, 1)]
        {
            for rate in [None, Some(1e5)] {
                let mut measured = routes.measured(way, routes.frames(64, 60), rate).unwrap();
                assert_eq!((measured.nodes.len(), measured.ttl_steps), (nodes, ttl_steps), "{way:?}");
                for node in &mut measured.nodes {
                    node.run(0.01);
                    node.check().unwrap();
                }
            }
        }
    }
}
