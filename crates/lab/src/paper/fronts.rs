//! Routers of two stages: how a front divides flows among back-ends that are unlike in power, and what it does when one of them fails.

use anyhow::{Context, Result};
use fabric::{Front, NodeId};
use packet::flow::{FlowFields, FlowHash, FlowKey};
use packet::random::SplitMix64;

use super::Setting;
use super::report::Report;
use super::shape::Curve;
use crate::plot::{Chart, Line};

/// Back-ends, and how many times the power of the weakest each has.
const BACKS: [(u16, u32); 3] = [(1, 1), (2, 2), (3, 1)];
/// The one that fails.
const FAILS: u16 = 1;
/// Seconds in which it is away.
const AWAY: std::ops::Range<usize> = 3..6;
const SECONDS: usize = 9;
const FLOWS: usize = 200_000;

/// Star of PCs, section V: the shares of unlike back-ends, of which one fails and comes back.
pub(super) fn unlike(_: &Setting, report: &mut Report<'_>) -> Result<()> {
    let hash = FlowHash { fields: FlowFields::Flow, key: FlowKey::from_seed(0) };
    let mut random = SplitMix64::new(1);
    let flows: Vec<u32> = (0..FLOWS).map(|_| hash.of_ip(&packet(&mut random))).collect();
    let backs = BACKS.map(|(number, weight)| NodeId::new(number).map(|node| (node, weight)));
    let backs: Vec<_> = backs.into_iter().collect::<Option<_>>().context("back-ends are nodes")?;
    let mut front = Front::default();
    // By second: where each flow goes.
    let owners: Vec<Vec<NodeId>> = (0..SECONDS)
        .map(|second| {
            let is_there = |node: NodeId| node.number() != FAILS || !AWAY.contains(&second);
            let there: Vec<_> = backs.iter().copied().filter(|&(node, _)| is_there(node)).collect();
            front.divide(&there);
            flows.iter().map(|&flow| front.node(flow)).collect::<Option<Vec<_>>>()
        })
        .collect::<Option<_>>()
        .context("a back-end is always there")?;
    let flows_of = |second: usize, node| owners[second].iter().filter(|&&owner| owner == node).count() as f64;
    for (key, second) in [("backs-even", 0), ("backs-even-less", AWAY.start)] {
        // What each has for each unit of its power.
        let loads = backs
            .iter()
            .map(|&(node, weight)| (f64::from(node.number()), flows_of(second, node) / f64::from(weight)));
        report.judge(key, &[loads.filter(|load| load.1 > 0.0).collect::<Curve>()])?;
    }
    for (key, after) in [("flows-stay", AWAY.start), ("flows-stay-again", AWAY.end)] {
        let others: Vec<_> = owners[after - 1]
            .iter()
            .zip(&owners[after])
            .filter(|owners| [owners.0, owners.1].iter().all(|owner| owner.number() != FAILS))
            .collect();
        let stay = others.iter().filter(|owners| owners.0 == owners.1).count();
        report.compare(key, stay as f64 / others.len() as f64 * 100.0)?;
    }
    let lines = backs.iter().map(|&(node, weight)| {
        let shares = (0..SECONDS).map(|second| Some(flows_of(second, node) / FLOWS as f64 * 100.0));
        Line::over_places(format!("back-end {node}, weight {weight}"), shares)
    });
    report.chart(
        Chart {
            title: format!(
                "Flows of each back-end; number {FAILS} is away from {} s to {} s",
                AWAY.start, AWAY.end
            ),
            up: "% of all flows".to_owned(),
            over: "time, s".to_owned(),
            places: (0..SECONDS).map(|second| second.to_string()).collect(),
            lines: lines.collect(),
            ..Chart::default()
        },
        &[],
    )?;
    report.remark(format!(
        "{} flows of random addresses and ports. The paper names unlike processors, failures and the order of packets as what a design of two stages has \
         to solve; its text has no figures of them.",
        router::table::thousands(FLOWS as u64)
    ));
    Ok(())
}

/// Returns the headers of a UDP packet between random addresses and ports.
fn packet(random: &mut SplitMix64) -> [u8; 24] {
    let mut packet = [0; 24];
    (packet[0], packet[9]) = (0x45, 17);
    packet[12..20].copy_from_slice(&random.next_u64().to_be_bytes());
    packet[20..].copy_from_slice(&(random.next_u64() as u32).to_be_bytes());
    packet
}
