//! `brickway-lab plan --compare`: interconnects, by formula and simulated.

use std::process::ExitCode;

use anyhow::{Result, bail};
use serde_json::json;
use sim::plan::wirings;

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
        ("interconnect", left),
        ("servers", right),
        ("links", right),
        ("link, R", right),
        ("simulated", right),
        ("server, R", right),
        ("simulated", right),
    ]);
    for wiring in wirings(ports) {
        progress::tell("plan", &wiring.name);
        let simulated = wiring.simulated();
        progress::clear();
        if as_json {
            say_line!(
                "{}",
                json!({"interconnect": wiring.name, "servers": wiring.servers, "links": wiring.links,
                       "link": wiring.link, "link_simulated": simulated.map(|(link, _)| link),
                       "work": wiring.work, "work_simulated": simulated.map(|(_, work)| work)})
            );
        }
        let cell = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
        table.row([
            wiring.name,
            thousands(wiring.servers.into()),
            thousands(wiring.links.into()),
            cell(Some(wiring.link)),
            cell(simulated.map(|(link, _)| link)),
            cell(Some(wiring.work)),
            cell(simulated.map(|(_, work)| work)),
        ]);
    }
    if !as_json {
        say_line!("{ports} ports of rate R, Valiant load balancing in two phases\n");
        say!("{}", table.render());
        say_line!(
            "\nlink: the most that one carries each way. server: the most that one receives, works on and sends. simulated: the busiest one, when all\n\
             traffic of each server goes to the next one, packets of 1,000 bytes at random times for 10 ms; - too large, or none that Brickway wires."
        );
    }
    Ok(ExitCode::SUCCESS)
}
