//! `brickway-lab plan --compare`: the interconnects that have been published for clusters of servers, ours and simulated.

use std::process::ExitCode;

use anyhow::{Result, bail};
use serde_json::json;
use sim::plan::networks;

use crate::progress;
use router::output::{say, say_line};
use router::table::{Align, Table, thousands};

/// More servers than this nobody wires, and simulations end long before.
const MOST_PORTS: u32 = 1 << 20;

pub(super) fn compare(ports: u32, as_json: bool) -> Result<ExitCode> {
    if !(2..=MOST_PORTS).contains(&ports) {
        bail!("--ports {ports}: 2 to {MOST_PORTS} can be compared");
    }
    let [left, right] = [Align::Left, Align::Right];
    let mut table = Table::new(&[
        ("network", left),
        ("topology", left),
        ("nodes", right),
        ("ours", right),
        ("links", right),
        ("ours", right),
        ("link, R", right),
        ("ours", right),
        ("mean", right),
        ("simulated", right),
        ("node, R", right),
        ("ours", right),
        ("sends", right),
        ("simulated", right),
    ]);
    for network in networks(ports) {
        progress::tell("plan", network.name);
        let (derived, simulated) = (network.derived(), network.simulated());
        progress::clear();
        let (published, ours) = (network.published, derived.map(|derived| derived.figures));
        if as_json {
            let figures = |figures: sim::plan::Figures| json!({"nodes": figures.nodes, "links": figures.links, "link": figures.link, "node": figures.node});
            say_line!(
                "{}",
                json!({"network": network.name, "topology": network.shape.as_ref().map(ToString::to_string), "ports": network.ports,
                       "published": figures(published), "ours": ours.map(figures),
                       "mean_link": derived.map(|derived| derived.mean_link), "sends": derived.map(|derived| derived.sends),
                       "link_simulated": simulated.map(|simulated| simulated.link),
                       "sends_simulated": simulated.map(|simulated| simulated.sends)})
            );
        }
        let count =
            |value: Option<u32>| value.map_or_else(|| "-".to_owned(), |value| thousands(value.into()));
        let cell = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
        table.row([
            network.name.to_owned(),
            network.shape.map_or_else(|| "-".to_owned(), |shape| shape.to_string()),
            count(Some(published.nodes)),
            count(ours.map(|ours| ours.nodes)),
            count(Some(published.links)),
            count(ours.map(|ours| ours.links)),
            cell(Some(published.link)),
            cell(ours.map(|ours| ours.link)),
            cell(derived.map(|derived| derived.mean_link)),
            cell(simulated.map(|simulated| simulated.link)),
            cell(Some(published.node)),
            cell(ours.map(|ours| ours.node)),
            cell(derived.map(|derived| derived.sends)),
            cell(simulated.map(|simulated| simulated.sends)),
        ]);
    }
    if !as_json {
        say_line!(
            "Argyraki and others, \"Can Software Routers Scale?\" (PRESTO 2008), table 1: the smallest networks with {ports} ports of rate R or more,\n\
             Valiant load balancing in two phases\n"
        );
        say!("{}", table.render());
        say_line!(
            "\nnodes, links, link, node: published. ours: by the ways of all pairs of nodes through the topology. link: what the busiest carries each way.\n\
             mean: of all links. node: what the busiest works, each stage of a phase counted, also if it leaves the packet where it is. sends: what the\n\
             busiest node sends on links. Links of de Bruijn and butterfly are those that a node sends on; as many come in by cables of their own. simulated: the busiest ones, when all traffic of each node goes to one other, packets of 1,000 bytes at random\n\
             times for 10 ms. -: too large, or not a topology of a cluster.\n\
             The link between two groups of compact(3) carries more than is published: all that leaves a group of k nodes goes over k links."
        );
    }
    Ok(ExitCode::SUCCESS)
}
