//! What follows from numbers alone: servers of a cluster, cycles of a packet, latency by parts.

use anyhow::{Context, Result};
use sim::plan::{Plan, Rate, Server, Switch, Wish, largest_mesh, plans, switches_as_servers};

use super::Setting;
use super::report::{Report, line};
use super::shape::Curve;
use crate::plan::server;
use crate::plot::Chart;

fn wish(ports: u32, server_us: f64) -> Wish {
    Wish { ports, rate: Rate(10e9), switch: Switch::default(), server_us }
}

fn first(name: &str, wish: &Wish) -> Result<Plan> {
    plans(wish, &server(name)?)?.into_iter().next().context("there is no plan")
}

/// RouteBricks, figure 3: how many servers a router takes.
pub(super) fn servers(_: &Setting, report: &mut Report<'_>) -> Result<()> {
    let server_us = report.input("server-us")?;
    for (key, name) in
        [("mesh-current", "current"), ("mesh-more-nics", "more-nics"), ("mesh-faster", "faster")]
    {
        let largest = largest_mesh(&wish(1, server_us), &server(name)?);
        report.compare(key, f64::from(largest.unwrap_or_default()))?;
    }
    let large = wish(report.input("ports-of-large-router")? as u32, server_us);
    let plan = first("current", &large)?;
    report.compare("relays", plan.relays_per_port(&large))?;
    report.compare("latency-large", plan.latency_us)?;
    let mut lines = Vec::new();
    let sizes: Vec<u32> = (2..=11).map(|power| 1 << power).collect();
    let over_sizes = |of: &dyn Fn(u32) -> Result<f64>| -> Result<Curve> {
        sizes.iter().map(|&ports| Ok((f64::from(ports), of(ports)?))).collect()
    };
    for name in ["current", "more-nics", "faster"] {
        let servers = over_sizes(&|ports| {
            let plan = first(name, &wish(ports, server_us))?;
            Ok(f64::from(plan.servers + plan.relays))
        })?;
        lines.push((name.to_owned(), servers));
    }
    let switches = sizes
        .iter()
        .map(|&ports| Ok(switches_as_servers(&wish(ports, server_us), &server("current")?)?))
        .collect::<Result<Vec<[f64; 3]>>>()?;
    for (number, key, name) in [
        (2, Some("switched-dearer"), "strict switches, unfolded"),
        (1, Some("switched-folded"), "strict switches, folded"),
        (0, None, "switches that balance packets"),
    ] {
        let curve: Curve =
            sizes.iter().zip(&switches).map(|(&ports, equal)| (f64::from(ports), equal[number])).collect();
        match key {
            Some(key) => report.judge(key, &[curve.clone(), lines[0].1.clone()])?,
            None => {
                let cheaper =
                    curve.iter().zip(&lines[0].1).filter(|(switches, servers)| switches.1 < servers.1);
                report.remark(format!(
                    "Switches whose connections may be rearranged, as those that balance packets in data centres, are not the paper's: they cost less than \
                     servers `current` at {} of {} sizes.",
                    cheaper.count(),
                    sizes.len()
                ));
            }
        }
        lines.push((name.to_owned(), curve));
    }
    report.chart(
        over_powers(
            "A router with ports of 10 Gb/s, relays included; switches by their price",
            "servers",
            &sizes,
            &lines,
        ),
        &[],
    )
}

/// A chart over ports whose steps are all twice the last.
fn over_powers(title: &str, up: &str, sizes: &[u32], lines: &[(String, Curve)]) -> Chart {
    let place = |x: f64| sizes.iter().position(|&size| f64::from(size) == x).unwrap_or(0) as f64;
    let drawn = |(name, curve): &(String, Curve)| {
        line(name.clone(), &curve.iter().map(|&(x, y)| (place(x), y)).collect::<Curve>())
    };
    Chart {
        title: title.to_owned(),
        up: up.to_owned(),
        over: "ports".to_owned(),
        places: sizes.iter().map(u32::to_string).collect(),
        lines: lines.iter().map(drawn).collect(),
        is_logarithmic: true,
        ..Chart::default()
    }
}

/// RouteBricks, section 6.2: the cluster of four with large packets, which its cards limit.
pub(super) fn rb4_large(_: &Setting, report: &mut Report<'_>) -> Result<()> {
    let (servers, card) = (report.input("rb4-servers")?, report.input("card-gbps")?);
    let server = card * report.input("cards")?;
    // A server handles each packet two or three times.
    report.compare("rb4-large-least", servers * server / 3.0)?;
    report.compare("rb4-large-most", servers * server / 2.0)?;
    // One card has the outer port and one of the links to the other servers, each of which carries an even part of the rate.
    let rate = card / (1.0 + 1.0 / (servers - 1.0));
    report.compare("rb4-outer-port", rate)?;
    report.compare("rb4-inner-port", card - rate)?;
    report.compare("rb4-large", servers * rate)
}

/// RouteBricks, section 8: what its cluster of four is by a plan.
pub(super) fn cost(_: &Setting, report: &mut Report<'_>) -> Result<()> {
    let servers = report.input("rb4-servers")?;
    let current = Server { price: report.input("server-dollars")?, ..server("current")? };
    let plan = plans(&wish(servers as u32, 0.0), &current)?.into_iter().next().context("there is no plan")?;
    report.compare("rb4-dollars", plan.price)?;
    report.remark("Power is left out: the servers of a plan have no watts of that time, and the paper gives their sum alone.");
    Ok(())
}

/// RouteBricks, section 6.2: the latency of a packet by its parts.
pub(super) fn latency(_: &Setting, report: &mut Report<'_>) -> Result<()> {
    let transfers = report.input("dmas")? * report.input("dma-us")?;
    // Of the cores that share a queue's packets none matters: a packet waits for a full transaction of the card's.
    let work = report.input("cycles-routing-prose")? / report.input("clock-ghz")? / 1000.0;
    let waiting = report.input("kn")? * work;
    let server = transfers + work + waiting;
    for (key, servers) in [("latency-server", 1.0), ("latency-two", 2.0), ("latency-three", 3.0)] {
        report.compare(key, servers * server)?;
    }
    let places = ["1 server", "2 servers", "3 servers"];
    let part = |name: &str, part: f64| {
        line(name, &(1..=3).map(|n| (f64::from(n - 1), f64::from(n) * part)).collect())
    };
    report.chart(
        Chart {
            title: "Latency of a packet by its parts".to_owned(),
            up: "us".to_owned(),
            over: "way of a packet".to_owned(),
            places: places.map(str::to_owned).to_vec(),
            lines: vec![
                part("four transfers to or from memory", transfers),
                part("waiting for 16 packets", waiting),
                part("work", work),
                part("all", server),
            ],
            has_bars: true,
            ..Chart::default()
        },
        &["latency-published"],
    )
}

/// "Can software routers scale?", section 2.1: cycles for a packet.
pub(super) fn budgets(_: &Setting, report: &mut Report<'_>) -> Result<()> {
    let bits = report.input("packet-bytes")? * 8.0;
    let clock = report.input("core-ghz")?;
    for (key, cores, gbps) in [
        ("budget-shared-slow", "shared-cores", "slow-gbps"),
        ("budget-shared-fast", "shared-cores", "fast-gbps"),
        ("budget-mesh-slow", "mesh-cores", "slow-gbps"),
        ("budget-mesh-fast", "mesh-cores", "fast-gbps"),
    ] {
        let cores = report.input(cores)?;
        let cycles = cores * clock * bits / report.input(gbps)?;
        report.compare(key, cycles)?;
    }
    Ok(())
}

/// MoonRoute, table 3: other routers, scaled to a core of its clock.
pub(super) fn scaled(_: &Setting, report: &mut Report<'_>) -> Result<()> {
    let clock = report.input("scaled-ghz")?;
    for (claim, mpps, ghz, cores) in [
        ("6wind-scaled", "6wind-mpps", "6wind-ghz", "6wind-cores"),
        ("batching-click-scaled", "batching-click-mpps", "batching-click-ghz", "batching-click-cores"),
        ("freebsd-11-scaled", "freebsd-11-mpps", "freebsd-11-ghz", "freebsd-11-cores"),
        ("routebricks-scaled", "routebricks-mpps", "routebricks-ghz", "routebricks-cores"),
        ("click-2000-scaled", "click-2000-mpps", "click-2000-ghz", "click-2000-cores"),
        ("freebsd-10-scaled", "freebsd-10-mpps", "freebsd-10-ghz", "freebsd-10-cores"),
        ("linux-2-2-scaled", "linux-2-2-mpps", "linux-2-2-ghz", "linux-2-2-cores"),
    ] {
        let each = report.input(mpps)? / report.input(cores)?;
        let scaled = each * clock / report.input(ghz)?;
        report.compare(claim, scaled)?;
    }
    report.remark("The other rows have one core of 3.2 GHz already, so there is nothing to work out.");
    Ok(())
}
