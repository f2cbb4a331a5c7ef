//! What it costs that a packet crosses several nodes: the star of PCs, the cluster of RouteBricks.

use anyhow::Result;

use super::mpps;
use crate::bench::rig::Rig;
use crate::bench::ways::{Measured, Routes, Way};
use crate::paper::Setting;
use crate::paper::report::{Report, line};
use crate::paper::shape::Curve;
use crate::plot::{Chart, Line};

/// Bytes of a small frame without its check sequence.
const SMALL: usize = 60;
/// Destinations of random packets: so many that no cache has the way of each.
const MANY: usize = 65_536;

/// Returns the cycles of a packet in each node of each way: the least of many short runs in turns, since what others do to caches and to the
/// core only adds, and ratios of nodes are asked for.
fn cycles(setting: &Setting, mut ways: Vec<Vec<Rig>>) -> Result<Vec<Vec<f64>>> {
    /// Short runs in a long one.
    const SHORT: usize = 5;
    let mut least: Vec<Vec<f64>> = ways.iter().map(|nodes| vec![f64::INFINITY; nodes.len()]).collect();
    for _ in 0..setting.runs * SHORT {
        for (node, least) in ways.iter_mut().flatten().zip(least.iter_mut().flatten()) {
            *least = node.run(setting.seconds / SHORT as f64).min(*least);
        }
    }
    ways.iter_mut().flatten().try_for_each(Rig::check)?;
    Ok(least)
}

/// Returns million packets a second of nodes in a row that are alone on their machines: those of the slowest.
fn slowest(nodes: &[f64]) -> f64 {
    mpps(nodes.iter().copied().fold(0.0, f64::max))
}

/// Ways through one PC, the star and the fabric: of one flow, of two flows, of packets to random destinations.
struct Ways {
    all: Vec<Vec<Rig>>,
    ttl_of_star: u8,
    ttl_of_fabric: u8,
}

fn ways(entries: usize) -> Result<Ways> {
    let routes = Routes::new(entries)?;
    let flow = |number: usize| vec![routes.frames(2, SMALL).swap_remove(number)];
    let many = routes.frames(MANY, SMALL);
    let way = |way, frames: &[Vec<u8>]| routes.measured(way, frames.to_vec(), None);
    let Measured { nodes: star, ttl_steps: ttl_of_star } = way(Way::Routers, &flow(0))?;
    let Measured { nodes: fabric, ttl_steps: ttl_of_fabric } = way(Way::Direct, &flow(0))?;
    let all = vec![
        way(Way::Router, &flow(0))?.nodes,
        vec![routes.router_of_two([flow(0), flow(1)])?],
        way(Way::Router, &many)?.nodes,
        star,
        way(Way::Routers, &flow(1))?.nodes,
        way(Way::Routers, &many)?.nodes,
        fabric,
        way(Way::Direct, &flow(1))?.nodes,
        way(Way::Direct, &many)?.nodes,
    ];
    Ok(Ways { all, ttl_of_star, ttl_of_fabric })
}

/// Million packets a second for one flow, two flows and packets to random destinations.
struct Rates {
    one: [f64; 3],
    star: [f64; 3],
    fabric: [f64; 3],
    /// Cycles of a packet in each node of these three: of one flow, and of packets to random destinations.
    of_one: [Vec<f64>; 3],
    of_many: [Vec<f64>; 3],
}

impl Rates {
    fn new(ways: &[Vec<f64>]) -> Rates {
        // Two flows take two nodes each. Of random packets each of two inputs sends half to either of two outputs.
        let of_four = |first: usize| {
            let [one, two, many] = [0, 1, 2].map(|number| slowest(&ways[first + number]));
            [one, one + two, 2.0 * many]
        };
        Rates {
            one: [0, 1, 2].map(|number| slowest(&ways[number])),
            star: of_four(3),
            fabric: of_four(6),
            of_one: [0, 3, 6].map(|number| ways[number].clone()),
            of_many: [2, 5, 8].map(|number| ways[number].clone()),
        }
    }
}

/// Star of PCs, figures 7 to 9: four PCs of which two route each packet.
pub(in crate::paper) fn star(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    let (small, large) = (report.input("small-table")?, report.input("large-table")?);
    let [of_small, of_large] = [ways(small as usize)?, ways(large as usize)?];
    let (ttl_of_star, ttl_of_fabric) = (of_large.ttl_of_star, of_large.ttl_of_fabric);
    let count = of_small.all.len();
    let cycles = cycles(setting, of_small.all.into_iter().chain(of_large.all).collect())?;
    let tables = [Rates::new(&cycles[..count]), Rates::new(&cycles[count..])];
    let last = &tables[1];
    for (number, key) in ["star-one-flow", "star-two-flows", "star-many-flows"].into_iter().enumerate() {
        report.compare(key, last.star[number] / last.one[number])?;
    }
    let over_tables: Curve =
        [small, large].iter().zip(&tables).map(|(&entries, rates)| (entries, rates.star[2])).collect();
    report.judge("star-table", &[over_tables])?;
    report.compare("star-ttl", f64::from(ttl_of_star))?;
    report.compare("ttl-of-outside", f64::from(ttl_of_fabric))?;
    let mut lines = Vec::new();
    for (entries, rates) in ["1K", "167K"].into_iter().zip(&tables) {
        for (name, rates) in [("one PC", rates.one), ("star", rates.star), ("fabric", rates.fabric)] {
            lines.push(Line::over_places(format!("{name}, {entries} entries"), rates.map(Some)));
        }
    }
    report.chart(
        Chart {
            title: "64-byte packets with a core for each PC".to_owned(),
            up: "Mpps".to_owned(),
            over: "flows".to_owned(),
            places: ["one", "two", "random destinations"].map(str::to_owned).to_vec(),
            lines,
            has_bars: true,
            ..Chart::default()
        },
        &[],
    )?;
    for (name, ways) in [("one flow", &last.of_one), ("random destinations", &last.of_many)] {
        let node = |name: &str, place: usize| {
            Line::over_places(name, ways.iter().map(|nodes| nodes.get(place).copied()))
        };
        report.chart(
            Chart {
                title: format!("A packet in each node, {name}, 167K entries"),
                up: "TSC cycles".to_owned(),
                over: "way of a packet".to_owned(),
                places: ["one PC", "star: routed twice", "fabric: routed once"].map(str::to_owned).to_vec(),
                lines: vec![node("first node", 0), node("second node", 1)],
                has_bars: true,
                ..Chart::default()
            },
            &[],
        )?;
        let [_, star, fabric] = ways.each_ref().map(|nodes| nodes.iter().sum::<f64>());
        report.remark(format!(
            "{name}: a packet costs the two nodes of a fabric {fabric:.0} TSC cycles together where two PCs that route take {star:.0}: {:.0} %.",
            fabric / star * 100.0
        ));
    }
    report.remark(
        "Each node is measured alone on one core, with its source and sink in memory and the frames that the node before it sent, so a rate is \
         that of the slowest node on a way: what four machines at once would do to each other is not in it.",
    );
    Ok(())
}

/// RouteBricks, section 6.2: latency of packets through one, two and three nodes.
pub(in crate::paper) fn latency(setting: &Setting, report: &mut Report<'_>) -> Result<()> {
    /// Packets a second: few enough that none waits for another.
    const RATE: f64 = 100e3;
    const DESTINATIONS: usize = 4096;
    let routes = Routes::new(report.input("entries")? as usize)?;
    let frames = routes.frames(DESTINATIONS, SMALL);
    let mut curve = Curve::new();
    let mut parts = vec![Vec::new(); 3];
    for (way, key) in [
        (Way::Router, "latency-here-one"),
        (Way::Direct, "latency-here-two"),
        (Way::OverThird, "latency-here-three"),
    ] {
        let mut sum = 0.0;
        let mut nodes = routes.measured(way, frames.clone(), Some(RATE))?.nodes;
        for (node, parts) in nodes.iter_mut().zip(&mut parts) {
            node.run_at_rate(setting.seconds)?;
            let runs = (0..setting.runs).map(|_| Ok(node.run_at_rate(setting.seconds)?.median_ns / 1e3));
            let mut medians = runs.collect::<Result<Vec<f64>>>()?;
            medians.sort_by(f64::total_cmp);
            let median = medians[medians.len() / 2];
            node.check()?;
            parts.push((curve.len() as f64, median));
            sum += median;
        }
        report.compare(key, sum)?;
        curve.push((nodes.len() as f64, sum));
    }
    report.judge("latency-linear", std::slice::from_ref(&curve))?;
    let names = ["first node", "second node", "third node"];
    report.chart(
        Chart {
            title: "Latency of a packet in each node".to_owned(),
            up: "us".to_owned(),
            over: "nodes on the way".to_owned(),
            places: ["1", "2", "3"].map(str::to_owned).to_vec(),
            lines: names.iter().zip(&parts).map(|(name, parts)| line(*name, parts)).collect(),
            has_bars: true,
            ..Chart::default()
        },
        &[],
    )?;
    report.remark(
        "One node is a router, two are input node and output node of a cluster, three have another node between them. From the arrival of a packet in \
         the queue of a node to the end of the send that took it, each node alone on one core at 100,000 packets a second, and added. Without what is \
         most of the paper's: transfers of cards, waiting for 16 packets, wires.",
    );
    Ok(())
}
