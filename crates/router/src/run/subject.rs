//! What `brickway run` is to run: a configuration in a file, or the one that a list of ports gets.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use control::service::Service;
use control::supervisor::Supervisor;
use elements::devices::MergedPorts;
use elements::devices::follow_linux::{Followed, Follows};
use graph::graph::Registry;
use graph::lang::{FlatConfig, Options, Source};
use graph::setup::Shared;
use ports::Devices;

use super::RunArguments;
use super::doors::Doors;
use super::privileges::Plan;
use crate::drop_in::{self, Filtered, Follow, Following, Graph, Guard, RouterPort};
use crate::features::FeatureSettings;
use crate::load;
use crate::settings::{PortSettings, Settings};
use crate::whole_frames;

/// What is to run.
pub(crate) struct Subject {
    pub(crate) source: Source,
    pub(crate) flat: Arc<FlatConfig>,
    /// What mirrors Linux, where the configuration forwards by its tables.
    pub(crate) mirror: Option<(Service, Box<dyn Follow>)>,
    /// Of a router that mirrors Linux: its ports.
    pub(crate) ports: Vec<PortSettings>,
    /// What the names of ports stand for.
    pub(crate) specs: Vec<(String, String)>,
    /// Who watches the threads that are there already, and those to come.
    pub(crate) supervisor: Supervisor,
    /// From where Linux must not forward what the graph has not permitted, if something filters.
    pub(crate) filtered: Option<Filtered>,
    /// What keeps Linux from forwarding past the filters, if that was set up already.
    pub(crate) guard: Option<Guard>,
    /// What the process has given up, if it has.
    pub(crate) plan: Option<Plan>,
    /// What clients connect to, if that is open already.
    pub(crate) doors: Option<Doors>,
    /// What Linux had counted of devices before ports were opened.
    pub(crate) devices: Option<Devices>,
}

/// Whether the command line names a configuration, and not ports.
pub(super) fn is_file(arguments: &RunArguments) -> bool {
    if arguments.script.is_some() {
        return false;
    }
    let first = arguments.what.first().map_or("", String::as_str);
    first == "-" || first.ends_with(".click") || Path::new(first).is_file()
}

/// Finds out what is to run. `None` after mistakes of the configuration, which have been printed.
pub(super) fn subject(
    arguments: &RunArguments,
    settings: &Settings,
    registry: &Registry,
    shared: &Shared,
) -> Result<Option<Subject>> {
    let supervisor = Supervisor::default();
    let devices = Devices::read().ok();
    let open = |port: &PortSettings| RouterPort::of(port, settings.workers.count, shared);
    let mut specs = arguments.ports.clone();
    if is_file(arguments) {
        let (file, parameters) = arguments.what.split_first().context("clap wants a file or ports")?;
        let parameters = parameters.iter().map(|text| load::parameter(text).map_err(anyhow::Error::msg));
        let options = Options { parameters: parameters.collect::<Result<_>>()?, ..Options::default() };
        let source = load::read(Path::new(file))?;
        load::check_parameters(&source, &options.parameters)?;
        let Some(mut flat) = load::compile(&source, &options, registry) else { return Ok(None) };
        let filters = Graph::File(&flat, &specs).filters();
        let steering = drop_in::steering_ports(&flat, &specs);
        if filters {
            specs = drop_in::permitting(&flat, specs);
        }
        let names = drop_in::ports_of(&flat).into_iter();
        let texts = names.map(|name| match specs.iter().find(|(known, _)| *known == name) {
            Some((name, spec)) => format!("{name}={spec}"),
            None => name,
        });
        let texts: Vec<String> = texts.collect();
        let driver = arguments.driver.unwrap_or_default();
        let named = Settings::of_ports(texts.iter().map(String::as_str), driver);
        let mut settings_of_ports = named.map_err(anyhow::Error::msg)?.ports;
        settings_of_ports.iter_mut().for_each(PortSettings::fit_kind);
        let mut ports = settings_of_ports.iter().map(open).collect::<Result<Vec<_>>>()?;
        if ports.is_empty() {
            if let Some(driver) = arguments.driver {
                bail!(
                    "--driver {}: no port of {file} takes it, as none forwards by Linux's routes (FIBLookup); expected the driver in the \
                     element, as FromDevice(af_xdp:eth1), or --port eth1=af_xdp:eth1",
                    driver.word()
                );
            }
            allow_merged(&mut flat, &specs, shared)?;
            return Ok(Some(Subject {
                source,
                flat: Arc::new(flat),
                mirror: None,
                ports: Vec::new(),
                filtered: filters.then_some(Filtered { ports: steering, source: None }),
                specs,
                supervisor,
                guard: None,
                plan: None,
                doors: None,
                devices,
            }));
        }
        let named = |name: &String| ports.iter().any(|port| port.name == *name);
        specs.retain(|(name, _)| !named(name));
        specs.extend(specs_of(&ports));
        allow_merged(&mut flat, &specs, shared)?;
        let service = drop_in::mirror(&mut ports, settings, shared, &supervisor)?;
        let graph = Graph::File(&flat, &arguments.ports);
        let following = following(ports, None, graph, &flat, shared, &supervisor)?;
        let mirror = Some((service, following));
        let filtered = filters.then(|| Filtered {
            ports: all_of(&settings_of_ports, steering),
            source: FeatureSettings::source_route_in(&flat),
        });
        return Ok(Some(Subject {
            source,
            flat: Arc::new(flat),
            mirror,
            filtered,
            ports: settings_of_ports,
            specs,
            supervisor,
            guard: None,
            plan: None,
            doors: None,
            devices,
        }));
    }
    let script = arguments.script.as_ref();
    // A script sees all packets: nothing is forwarded in the kernel.
    let features = script.is_none().then_some(&settings.features);
    let graph = if script.is_some() { Graph::Script } else { Graph::Ours(settings) };
    let mut settings_of_ports = settings.ports.clone();
    settings_of_ports.iter_mut().for_each(PortSettings::fit_kind);
    let mut ports = settings_of_ports.iter().map(open).collect::<Result<Vec<_>>>()?;
    specs.extend(specs_of(&ports));
    let service = drop_in::mirror(&mut ports, settings, shared, &supervisor)?;
    let text = drop_in::configuration(&ports, &service, settings, script)?;
    let source = Source { name: ports_text(&ports), text };
    let Some(mut flat) = load::compile(&source, &Options::default(), registry) else { return Ok(None) };
    allow_merged(&mut flat, &specs, shared)?;
    let mirror = Some((service, following(ports, features, graph, &flat, shared, &supervisor)?));
    let filtered = graph.filters().then(|| Filtered {
        ports: settings_of_ports.clone(),
        // What Linux checks by its rp_filter it checks anyway.
        source: features.and_then(FeatureSettings::source_route),
    });
    Ok(Some(Subject {
        source,
        flat: Arc::new(flat),
        mirror,
        filtered,
        ports: settings_of_ports,
        specs,
        supervisor,
        guard: None,
        plan: None,
        doors: None,
        devices,
    }))
}

/// Has merged packets go through the configuration whole, as far as its elements take them.
fn allow_merged(flat: &mut FlatConfig, specs: &[(String, String)], shared: &Shared) -> Result<()> {
    let merged = whole_frames::allow(flat, specs);
    shared.get_or_make(MergedPorts::KEY, || Ok::<_, anyhow::Error>(merged))?;
    Ok(())
}

/// The ports of the lookups, and those of `steering` that are not among them.
fn all_of(ports: &[PortSettings], steering: Vec<PortSettings>) -> Vec<PortSettings> {
    let others = steering.into_iter().filter(|port| ports.iter().all(|known| known.name != port.name));
    ports.iter().cloned().chain(others).collect()
}

fn following(
    ports: Vec<RouterPort>,
    features: Option<&FeatureSettings>,
    graph: Graph<'_>,
    flat: &FlatConfig,
    shared: &Shared,
    supervisor: &Supervisor,
) -> Result<Box<dyn Follow>> {
    let devices = ports.iter().filter(|port| port.vlan.is_none());
    let names: Vec<String> = devices.map(|port| port.name.clone()).collect();
    let usual = FeatureSettings::default();
    let followers = features.unwrap_or(&usual).follow(flat, &names, shared, supervisor)?;
    Ok(Box::new(Following::new(ports, features, graph, shared.clone(), followers)))
}

/// Whether a configuration works by Linux's policies of IPsec.
pub(super) fn follows_ipsec(flat: &FlatConfig) -> bool {
    Follows::of(flat).iter().any(|follows| follows.what == Followed::Ipsec)
}

/// What opens each port. VLANs are not opened: the port below them is.
fn specs_of(ports: &[RouterPort]) -> impl Iterator<Item = (String, String)> + '_ {
    let opened = ports.iter().filter(|port| port.vlan.is_none());
    opened.map(|port| (port.name.clone(), port.spec.clone()))
}

/// The ports, for messages.
fn ports_text(ports: &[RouterPort]) -> String {
    let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    format!("a router of {}", names.join(", "))
}
