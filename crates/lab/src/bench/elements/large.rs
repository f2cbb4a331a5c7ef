//! Elements with many rules, routes or flows.

use anyhow::Result;
use packet::random::SplitMix64;

use super::super::rules::{self, Rule};
use super::traffic::{self, Traffic};
use super::{Graphs, single};

/// An element that has much to know.
pub(super) struct Large {
    pub(super) class: &'static str,
    pub(super) name: &'static str,
    /// The graphs for a burst.
    pub(super) graphs: fn(usize) -> Result<Graphs>,
}

pub(super) const CASES: &[Large] = &[
    Large { class: "IPFilter", name: "IPFilter, 100 rules", graphs: |burst| filter(100, burst) },
    Large { class: "IPFilter", name: "IPFilter, 1,000 rules", graphs: |burst| filter(1_000, burst) },
    Large {
        class: "UDPRewriter",
        name: "UDPRewriter, 65,536 flows",
        graphs: |burst| rewriter("UDPRewriter", 1 << 16, burst),
    },
    Large {
        class: "IPRewriter",
        name: "IPRewriter, 65,536 flows",
        graphs: |burst| rewriter("IPRewriter", 1 << 16, burst),
    },
    Large {
        class: "IPRewriter",
        name: "IPRewriter, 1,000,000 flows",
        graphs: |burst| rewriter("IPRewriter", 1_000_000, burst),
    },
];

/// Flows that meet a filter.
const FILTERED: usize = 65_536;

/// Filters with rules like those of `brickway-lab bench acl`, and its flows.
fn filter(count: usize, burst: usize) -> Result<Graphs> {
    let mut random = SplitMix64::new(0x5eed ^ count as u64);
    let list: Vec<Rule> = (0..count).map(|_| Rule::draw(&mut random, false)).collect();
    let frames: Vec<Vec<u8>> = (0..FILTERED)
        .map(|_| {
            let inside = if random.one_in(10) { None } else { random.choice(&list) };
            rules::frame(&mut random, inside, false)
        })
        .collect();
    let rules: Vec<String> = list.iter().map(Rule::expression).collect();
    around(&format!("IPFilter({}, allow all)", rules.join(", ")), burst, &frames)
}

/// A rewriter that knows so many flows, each of which comes in turn.
fn rewriter(class: &str, flows: usize, burst: usize) -> Result<Graphs> {
    let frames = traffic::frames(Traffic::Udp, flows);
    let arguments = format!("pattern 11.0.0.1 1024-65535 - - 0 0, MAPPING_CAPACITY {}", flows + flows / 8);
    let mut graphs = around(&format!("{class}({arguments})"), burst, &frames)?;
    // The first time around makes the mappings.
    let mut received = 0;
    while received < flows as u64 {
        received += graphs.with.run(0.05).packets;
    }
    Ok(graphs)
}

fn around(element: &str, burst: usize, frames: &[Vec<u8>]) -> Result<Graphs> {
    let graph = |middle: &str| {
        let text = format!(
            "FromDevice(bench0, BURST {burst}) -> Strip(14) -> MarkIPHeader -> {middle} sink :: Discard;"
        );
        single(text, burst, frames.to_vec())
    };
    Ok(Graphs { with: graph(&format!("e :: {element} ->"))?, without: Some(graph("")?) })
}
