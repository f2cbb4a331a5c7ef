//! The example router on its threads, in memory: frames come in by its first port, over and over, and are freed behind the
//! others.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use elements::devices::OpenPort;
use graph::graph::Registry;
use graph::lang::{FlatConfig, Options, Source};
use graph::router::{Control, Router, RouterOptions};
use graph::setup::Shared;
use ports::{OpenOptions, Port};

use super::single_core::ROUTER_PORTS;
use router::load;

/// The example router, as it stands.
pub(super) const ROUTER: &str = include_str!("../../../../examples/ip-router.click");

/// Its definitions, for ports of a bench and the routes in the file `table`.
pub(super) fn parameters(table: &Path) -> Vec<(String, String)> {
    let ports = (0..ROUTER_PORTS).map(|port| (format!("PORT{port}"), format!("bench{port}")));
    let table = ("TABLE".into(), format!("\"{}\"", table.display()));
    let gateways = ("VIA".into(), "\"10.0.1.2 2, 10.0.2.2 3, 10.0.3.2 4\"".into());
    ports.chain([table, gateways]).collect()
}

/// A configuration, compiled.
pub(super) fn compile(
    text: &str,
    parameters: Vec<(String, String)>,
    registry: &Registry,
) -> Result<Arc<FlatConfig>> {
    let source = Source { name: "bench.click".into(), text: text.into() };
    load::compile(&source, &Options { parameters, ..Options::default() }, registry)
        .map(Arc::new)
        .ok_or_else(|| anyhow!("see above"))
}

/// A router over these ports; not started.
pub(super) fn build(
    config: Arc<FlatConfig>,
    registry: &Registry,
    ports: Vec<Box<dyn Port>>,
    options: &RouterOptions,
) -> Result<Router> {
    let shared = Shared::default();
    for (number, port) in ports.into_iter().enumerate() {
        shared.get_or_make(&OpenPort::key(&format!("bench{number}")), || {
            Ok::<_, anyhow::Error>(OpenPort::new(port))
        })?;
    }
    let control = Control::new(graph::messages::print);
    Router::build(config, registry, &shared, options, control).map_err(|problems| {
        load::report(problems);
        anyhow!("see above")
    })
}

/// A port that frees what is sent.
pub(super) fn null() -> Result<Box<dyn Port>> {
    Ok(ports::open("null:", &OpenOptions::default())?)
}

/// A port that receives, and so many more ports that free what is sent.
pub(super) fn ports(input: Box<dyn Port>, others: usize, tx_queues: usize) -> Result<Vec<Box<dyn Port>>> {
    let mut ports = vec![input];
    for _ in 0..others {
        ports.push(ports::open("null:", &OpenOptions { tx_queues, ..OpenOptions::default() })?);
    }
    Ok(ports)
}

/// Starts the router, runs it for so many seconds and stops it; returns the million packets a second that left by its ports.
pub(super) fn rate(mut router: Router, seconds: f64) -> Result<f64> {
    router.start().context("cannot start the worker threads")?;
    std::thread::sleep(Duration::from_secs_f64(seconds.min(0.1)));
    let (begin, start) = (count(&mut router, "ToDevice")?, Instant::now());
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let (end, elapsed) = (count(&mut router, "ToDevice")?, start.elapsed());
    router.stop();
    Ok((end - begin) as f64 / elapsed.as_secs_f64() / 1e6)
}

/// Tells the example router its gateways' link addresses.
pub(super) fn tell_gateways(router: &mut Router) -> Result<()> {
    for port in 1..ROUTER_PORTS {
        let entry = format!("10.0.{port}.2 02:00:00:00:0{port}:02");
        router.write(&format!("out{port}/arp.insert"), &entry).map_err(anyhow::Error::msg)?;
    }
    Ok(())
}

/// The sum of the counts of all elements of a class.
pub(super) fn count(router: &mut Router, class: &str) -> Result<u64> {
    let config = router.config().clone();
    let mut sum = 0;
    for element in config.elements.iter().filter(|element| element.class == class) {
        let count = router.read(&format!("{}.count", element.name)).map_err(anyhow::Error::msg)?;
        sum += count.parse::<u64>().with_context(|| format!("'{count}' is not a count"))?;
    }
    Ok(sum)
}
