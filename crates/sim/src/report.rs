//! What came of a simulation.

use crate::histogram::Histogram;

/// What was measured between the end of the warm-up and the end; where that is documented, from the start.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// How long was measured.
    pub measured_ns: u64,
    /// What the ports brought, by input node.
    pub inputs: Vec<Throughput>,
    /// What the ports sent, by output node.
    pub outputs: Vec<Throughput>,
    /// Jain's index over the shares of what they asked for that input nodes got: 1 if all got the same share (Jain, Chiu
    /// and Hawe, 1984).
    pub fairness: f64,
    /// c of each node: bytes that it handled in all roles, as a rate, divided by R.
    pub processing: Vec<f64>,
    /// Which share of the bytes that entered the fabric went directly; 1 if none did.
    pub direct_share: f64,
    /// Packets that left the path of their flow, because it had no room or had died.
    pub moved: u64,
    /// Packets that were sent although no link had room.
    pub link_full: u64,
    /// How busy the links were, each way for itself, as shares of their rate.
    pub links: Use,
    /// Packets lost.
    pub losses: Losses,
    /// How much packets of a flow overtook each other.
    pub reordering: Reordering,
    /// From the last bit in by a port to the last bit out.
    pub latency: Latency,
    /// What each failure did, in the order of the scenario; from the start.
    pub recoveries: Vec<Recovery>,
    /// Where all packets are; from the start.
    pub packets: Packets,
    /// How often a node handled a packet; from the start.
    pub hops: u64,
}

/// Rates of one port, or of all, in bytes a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Throughput {
    /// What the matrix asks for at this load: a router that blocks nowhere would deliver all of it.
    pub asked: f64,
    /// What came in by ports.
    pub offered: f64,
    /// What went out by ports.
    pub delivered: f64,
}

impl Throughput {
    /// Delivered, as a share of what was asked for; 1 if that is nothing.
    pub fn share(&self) -> f64 {
        if self.asked > 0.0 { self.delivered / self.asked } else { 1.0 }
    }
}

/// How busy things are, as shares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Use {
    /// The busiest.
    pub max: f64,
    /// On average.
    pub mean: f64,
}

/// Packets lost, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// A node had more work waiting than its queue holds.
    pub node_overloaded: u64,
    /// Behind too many bytes for a link, of a node or of a switch.
    pub link_queue_full: u64,
    /// Behind too many bytes for a port.
    pub port_queue_full: u64,
    /// On a link that was cut.
    pub link_cut: u64,
    /// Before or in a node that was dead.
    pub node_dead: u64,
    /// For an output that its node knew no way to.
    pub unreachable: u64,
}

impl Losses {
    /// All, with their names.
    pub fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("node overloaded", self.node_overloaded),
            ("link queue full", self.link_queue_full),
            ("port queue full", self.port_queue_full),
            ("link cut", self.link_cut),
            ("node dead", self.node_dead),
            ("no way to the output node", self.unreachable),
        ]
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.named().iter().map(|(_, packets)| packets).sum()
    }
}

/// How much packets of a flow overtook each other, in the two measures that `order.rs` explains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reordering {
    /// Packets that came out.
    pub packets: u64,
    /// Rows of packets that were overtaken (RouteBricks).
    pub sequences: u64,
    /// Packets that were overtaken (RFC 4737).
    pub late_packets: u64,
}

/// Times that packets took, in nanoseconds. Percentiles are at most 1 % off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// Half of all took no longer.
    pub p50: f64,
    /// Nine of ten.
    pub p90: f64,
    /// 99 of a hundred.
    pub p99: f64,
    /// 999 of a thousand.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

/// What a failure did. Packets from and to a dead node are lost whatever the others do, and tell nothing about them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// When it began.
    pub from_ns: u64,
    /// Packets of others that were lost because of it, until it ended: on the link, in the node, or because nobody knew a way.
    pub lost: u64,
    /// When the last of these was lost.
    pub last_lost_ns: Option<u64>,
    /// Packets of others that were lost when it had ended, while nodes found that out.
    pub lost_on_return: u64,
    /// Packets lost of the dead node itself.
    pub own: u64,
}

impl Recovery {
    /// How long packets of others were lost.
    pub fn took_ns(&self) -> u64 {
        self.last_lost_ns.map_or(0, |last| last.saturating_sub(self.from_ns))
    }
}

/// Where packets are: `entered` is the sum of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    /// Came in by ports.
    pub entered: u64,
    /// Went out by ports.
    pub delivered: u64,
    /// Were lost.
    pub dropped: u64,
    /// Were on their way at the end.
    pub in_flight: u64,
}

impl Report {
    /// All inputs together.
    pub fn throughput(&self) -> Throughput {
        self.inputs.iter().fold(Throughput::default(), |all, one| Throughput {
            asked: all.asked + one.asked,
            offered: all.offered + one.offered,
            delivered: all.delivered + one.delivered,
        })
    }

    /// c: the busiest node's, and the mean.
    pub fn c(&self) -> Use {
        Use::of(self.processing.iter().copied())
    }
}

impl Use {
    pub(crate) fn of(shares: impl Iterator<Item = f64>) -> Use {
        let (mut max, mut sum, mut count) = (0.0_f64, 0.0, 0.0);
        for share in shares {
            (max, sum, count) = (max.max(share), sum + share, count + 1.0);
        }
        Use { max, mean: if count > 0.0 { sum / count } else { 0.0 } }
    }
}

/// Jain's index of those that asked for something.
pub(crate) fn fairness(inputs: &[Throughput]) -> f64 {
    let shares = inputs.iter().filter(|input| input.asked > 0.0).map(Throughput::share);
    let (count, sum, squares) =
        shares.fold((0.0, 0.0, 0.0), |(n, sum, squares), x| (n + 1.0, sum + x, squares + x * x));
    if squares > 0.0 { sum * sum / (count * squares) } else { 1.0 }
}

impl Latency {
    pub(crate) fn of(histogram: &Histogram) -> Latency {
        Latency {
            p50: histogram.percentile(0.5),
            p90: histogram.percentile(0.9),
            p99: histogram.percentile(0.99),
            p999: histogram.percentile(0.999),
            max: histogram.most() as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_for_equals_and_a_share_for_one_that_has_all() {
        let input = |asked, delivered| Throughput { asked, offered: asked, delivered };
        assert_eq!(fairness(&[input(10.0, 5.0), input(2.0, 1.0), input(0.0, 0.0)]), 1.0);
        assert_eq!(fairness(&[input(1.0, 1.0), input(1.0, 0.0), input(1.0, 0.0), input(1.0, 0.0)]), 0.25);
        assert_eq!(fairness(&[]), 1.0);
    }
}
