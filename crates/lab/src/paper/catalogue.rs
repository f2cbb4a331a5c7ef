//! All experiments: an identifier, what of a paper each reproduces, how, and what it needs.

use anyhow::Result;

use super::measured::{cards, cores, moonroute, pcs, slow, stars, workers};
use super::report::Report;
use super::{Setting, formulas, fronts, models, simulated};

/// How ours come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// On this machine.
    Measured,
    /// Packet by packet, in simulated time.
    Simulated,
    /// By what the parts of a server allow.
    Modelled,
    /// Worked out.
    Formula,
    /// Not at all; the text says what it would need.
    Left(&'static str),
}

impl How {
    /// Returns its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            How::Measured => "measured",
            How::Simulated => "simulated",
            How::Modelled => "modelled",
            How::Formula => "formula",
            How::Left(_) => "left out",
        }
    }

    /// Returns whether results are the same on every machine.
    pub(super) fn is_exact(self) -> bool {
        matches!(self, How::Formula | How::Modelled | How::Simulated)
    }
}

/// One experiment.
pub(super) struct Experiment {
    /// Begins with the name of its paper.
    pub(super) id: &'static str,
    /// Figures, tables or sections that it reproduces.
    pub(super) of: &'static str,
    pub(super) what: &'static str,
    pub(super) how: How,
    /// It makes network namespaces, which only root may.
    pub(super) needs_root: bool,
    pub(super) run: fn(&Setting, &mut Report<'_>) -> Result<()>,
}

impl Experiment {
    /// Returns the name of its paper.
    pub(super) fn paper(&self) -> &'static str {
        self.id.split('-').next().unwrap_or_default()
    }
}

const fn left(id: &'static str, of: &'static str, what: &'static str, needs: &'static str) -> Experiment {
    exact(id, of, what, How::Left(needs), |_, _| Ok(()))
}

const fn measured(
    id: &'static str,
    of: &'static str,
    what: &'static str,
    run: fn(&Setting, &mut Report<'_>) -> Result<()>,
) -> Experiment {
    exact(id, of, what, How::Measured, run)
}

const fn with_root(
    id: &'static str,
    of: &'static str,
    what: &'static str,
    run: fn(&Setting, &mut Report<'_>) -> Result<()>,
) -> Experiment {
    Experiment { needs_root: true, ..measured(id, of, what, run) }
}

const fn exact(
    id: &'static str,
    of: &'static str,
    what: &'static str,
    how: How,
    run: fn(&Setting, &mut Report<'_>) -> Result<()>,
) -> Experiment {
    Experiment { id, of, what, how, needs_root: false, run }
}

/// All of them, paper by paper.
#[rustfmt::skip]
pub(super) static ALL: &[Experiment] = &[
    exact("rb-fig3", "figure 3", "servers that a router of N ports takes", How::Formula, formulas::servers),
    measured("rb-fig6", "figure 6", "one core or two for a packet, one queue or two for a port", workers::paths),
    measured("rb-fig7", "figure 7", "queues and batches together", workers::steps),
    measured("rb-table1", "table 1", "packets polled and sent at a time", cores::polling),
    exact("rb-fig8", "figure 8", "rates by size and application", How::Modelled, models::rates),
    measured("rb-here", "figure 8, table 3", "sizes and applications on one core of this machine", cores::applications),
    measured("rb-table2", "table 2", "what memory bears", cores::memory),
    measured("rb-fig9", "figure 9", "cycles of a packet over the rate", cores::load),
    exact("rb-fig10", "figure 10", "loads of buses over the rate", How::Modelled, models::loads),
    exact("rb-next", "section 5.3", "the server to come", How::Modelled, models::next),
    exact("rb-vlb", "section 3.2", "work of nodes and loads of links in a large mesh", How::Simulated, simulated::work),
    exact("rb-rb4", "section 6.2", "the cluster of four with 64-byte packets", How::Simulated, simulated::rb4),
    exact("rb-rb4-large", "section 6.2", "the same with large packets", How::Formula, formulas::rb4_large),
    exact("rb-reorder", "section 6.2", "order with and without flowlets", How::Simulated, simulated::reordering),
    exact("rb-latency", "section 6.2", "latency of a packet by its parts", How::Formula, formulas::latency),
    left("rb-numa", "section 4.2", "memory of the other socket", "two sockets"),
    measured("rb-latency-here", "section 6.2", "latency through one, two and three nodes of this machine", stars::latency),
    exact("rb-cost", "section 8", "space and price of four servers", How::Formula, formulas::cost),
    measured("nic-fig2", "figures 2 and 3", "a queue for each worker or one for all", workers::queues),
    exact("nic-fig4", "figures 4 and 5", "one port or two for as many queues", How::Modelled, models::queues),
    measured("nic-queues", "figures 4 and 5", "one port or two for as many queues, in memory", workers::ports),
    measured("nic-balance", "section 4.3", "a full queue, balanced while packets flow", cards::balance),
    measured("nic-prefix", "section 4.3", "a core for a part of the table", cards::prefixes),
    measured("mr-fig7", "figure 7", "packets a second over the clock", moonroute::clock),
    measured("mr-size", "section 6.3", "packets a second over the size", moonroute::sizes),
    measured("mr-fig8", "figure 8", "packets a second over the workers", workers::scaling),
    measured("mr-fig9", "figures 9 and 10, table 2", "used entries of the table", moonroute::entries),
    measured("mr-fig11", "figure 11", "receive and transmit bursts", moonroute::batches),
    measured("mr-fig13", "figure 13", "latency over receive bursts", moonroute::latency),
    measured("mr-table1", "table 1", "cycles by module", moonroute::modules),
    measured("mr-slow", "section 4.1", "a flood of packets for the slow path", slow::slow_path),
    measured("mr-update", "section 6.8", "packets lost while routes change", slow::updates),
    measured("mr-split", "section 4.3", "three ways to split a batch", slow::splits),
    measured("mr-lua", "section 5.2", "a router in Lua", slow::script),
    left("mr-half", "figure 9", "two cores at half the clock beside one", "a clock that can be set"),
    left("mr-table2", "table 2", "FastClick, Click and Linux on the same card", "their programs and a card; `bench io` has Linux beside ours on virtual links"),
    left("mr-fig12", "figure 12", "misses of branches and caches", "the counters of the processor, which virtual machines hide"),
    exact("mr-table3", "table 3", "other routers scaled to a core of 3.2 GHz", How::Formula, formulas::scaled),
    exact("sc-model", "section 2.1", "what buses allow", How::Modelled, models::buses),
    exact("sc-budget", "section 2.1", "cycles for a packet", How::Formula, formulas::budgets),
    left("sc-better", "section 2.2", "rates with another allocator and other descriptors", "a server of 2008 and its cards"),
    exact("sc-table1", "table 1", "seven networks: nodes, links, loads", How::Formula, simulated::networks),
    exact("sc-miniflow", "section 3.2", "order and balance of mini-flows", How::Simulated, simulated::miniflows),
    measured("sc-fig3", "figures 3 and 4", "forwarded over offered packets", cores::offered),
    with_root("pc-fig2", "figure 2", "Linux and a router in its place, three sizes", pcs::linux),
    with_root("pc-fig3", "figure 3", "one flow, two tables", pcs::one_flow),
    with_root("pc-fig4", "figure 4", "two flows, two inputs", pcs::two_flows),
    with_root("pc-fig5", "figure 5", "many flows, two tables", pcs::many_flows),
    measured("pc-fig7", "figures 7 to 9", "a star of PCs beside one PC", stars::star),
    exact("pc-unlike", "section V", "back-ends unlike in power, of which one fails", How::Simulated, fronts::unlike),
];
