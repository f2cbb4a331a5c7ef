//! Samples for collectors: what comes out of the captures' rings, with the interfaces that Linux has and the way that routes give.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use control::change::{Hops, RouteKind};
use control::mirror::{Found, FoundBy};
use control::supervisor::{LONGEST_SILENCE, Pulse};
use graph::context::Place;

use super::capture::{For, Session, rings};
use super::live::Live;
use crate::capture::places::{INPUTS, Places};
use crate::capture::recorder::{Camera, Record, counts};
use crate::capture::sampler::Sampler;
use crate::export::{Dropped, Exporter, Sample, Way, exporters};
use crate::flows::key::{Flow, Parsed};

/// How long the rings are left alone when they were empty. They hold thousands of samples.
const PERIOD: Duration = Duration::from_millis(20);
/// Samples that are taken out of a ring at once.
const PAGE: usize = 1_024;
/// How often interfaces are looked up, and how long to wait where another configuration is to come.
const LOOK: Duration = Duration::from_secs(1);
/// Where the annotations have the paint, which in a list of ports is the port's number, counted from 1.
const PAINT: usize = 16;

/// The numbers that Linux has for the ports.
#[derive(Default)]
struct Interfaces {
    by_name: HashMap<String, u32>,
    by_port: HashMap<u16, u32>,
}

impl Live {
    /// Starts a thread for each exporter of the settings.
    pub(super) fn begin_exports(self: &Arc<Self>) -> Result<()> {
        for exporter in exporters(&self.settings())? {
            let (live, name) = (self.clone(), exporter.name());
            let pulse = self.supervisor.watch(name, LONGEST_SILENCE);
            let thread = std::thread::Builder::new().name(name.to_owned());
            thread
                .spawn(move || live.export(exporter, pulse))
                .with_context(|| format!("[{name}]: no thread"))?;
        }
        Ok(())
    }

    /// Exports until the router ends, by whatever configuration it has.
    fn export(&self, mut exporter: Box<dyn Exporter>, pulse: Pulse) {
        while self.with_router(|_| ()).is_ok() {
            if let Err(problem) = self.export_while_it_stays(&mut *exporter, &pulse)
                && self.with_router(|_| ()).is_ok()
            {
                tracing::error!(event = "export", "[{}]: {problem}", exporter.name());
                break;
            }
            pulse.beat();
            std::thread::sleep(LOOK);
        }
        pulse.retire();
    }

    /// Exports until the configuration changes.
    fn export_while_it_stays(&self, exporter: &mut dyn Exporter, pulse: &Pulse) -> Result<(), String> {
        let (config, copies) = self.copies()?;
        let wanted = exporter.wanted();
        let places = Arc::new(Places { drops: wanted.drops, ..Places::of(&config, Some(INPUTS))? });
        let counts = counts(&places);
        let (recorders, mut records) = rings(copies, wanted.bytes, &counts);
        let camera = |recorder| Camera {
            places: places.clone(),
            sampler: Some(Sampler::new(wanted.rate, places.spots.len())),
            filter: None,
            recorder,
        };
        let session = Session::begin(self, For::Collector, places.needs.clone())?;
        session.watch(&places.watched(), recorders.into_iter().map(camera).collect())?;
        let (mut interfaces, mut looked) = (Interfaces::default(), None::<Instant>);
        loop {
            pulse.beat();
            // Read before the rings are: nothing comes behind it.
            let has_ended = records.iter().all(|records| records.is_over());
            if looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
                (interfaces, looked) = (self.interfaces(&places), Some(Instant::now()));
            }
            for records in &mut records {
                for _ in 0..PAGE {
                    let Some(record) = records.take() else { break };
                    match record.place {
                        Place::Edge(edge) => {
                            let lost = counts[edge].lost.load(Ordering::Relaxed);
                            let port = &places.spots[edge].interface;
                            exporter.sampled(&self.sample(&record, port, lost, &interfaces));
                        }
                        Place::Drop { reason, .. } => {
                            exporter.dropped(&dropped(&record, reason, &interfaces))
                        }
                    }
                    records.give_back(record);
                }
            }
            exporter.tick(&|| self.ports().unwrap_or_default());
            if has_ended {
                return Ok(());
            }
            std::thread::sleep(PERIOD);
        }
    }

    fn sample<'a>(&self, record: &'a Record, port: &str, lost: u64, interfaces: &Interfaces) -> Sample<'a> {
        let parsed = Parsed::of(record.is_ethernet, &record.data);
        Sample {
            input: interfaces.by_name.get(port).copied().unwrap_or(0),
            way: self.way(port, &parsed, interfaces).unwrap_or_default(),
            is_ethernet: record.is_ethernet,
            length: record.length,
            stands_for: record.stands_for,
            lost,
            parsed,
            data: &record.data,
        }
    }

    /// Returns the numbers of the ports' interfaces now.
    fn interfaces(&self, places: &Places) -> Interfaces {
        let mut interfaces = Interfaces::default();
        match &self.service {
            Some(service) => {
                for port in service.lock().mirror.ports() {
                    if let Some(link) = port.link {
                        interfaces.by_name.insert(port.name, link.index);
                        interfaces.by_port.insert(port.port, link.index);
                    }
                }
            }
            None => {
                for spot in &places.spots {
                    let index = std::fs::read_to_string(format!("/sys/class/net/{}/ifindex", spot.interface));
                    if let Some(index) = index.ok().and_then(|text| text.trim().parse().ok()) {
                        interfaces.by_name.insert(spot.interface.clone(), index);
                    }
                }
            }
        }
        interfaces
    }

    /// Returns the way that the routes give a packet that comes in by a port.
    fn way(&self, port: &str, parsed: &Parsed, interfaces: &Interfaces) -> Option<Way> {
        let Flow::Ip { source, destination, .. } = parsed.flow else { return None };
        let index = interfaces.by_name.get(port)?;
        let number = interfaces.by_port.iter().find(|(_, known)| *known == index).map(|(&number, _)| number);
        let state = self.service.as_ref()?.lock();
        let look = |from: Option<IpAddr>, to| Some(state.mirror.route_by_rules(number, from, to)?.found?.1);
        let to = look(Some(source), destination)?;
        let back = look(None, source).map_or(0, |found| found.prefix.prefix_len());
        let (output, gateway) = leaves_by(&to, interfaces);
        Some(Way { output, gateway, lengths: Some((back, to.prefix.prefix_len())) })
    }
}

/// The interface and the router of a route with one path.
fn leaves_by(found: &Found, interfaces: &Interfaces) -> (u32, Option<IpAddr>) {
    match &found.by {
        FoundBy::Route(route) if route.kind == RouteKind::Unicast => match &route.hops {
            Hops::Paths(paths) if paths.len() == 1 => (paths[0].index, paths[0].gateway),
            _ => (0, None),
        },
        FoundBy::Neighbour(name) => (interfaces.by_name.get(name).copied().unwrap_or(0), None),
        _ => (0, None),
    }
}

fn dropped<'a>(record: &'a Record, reason: &'static str, interfaces: &Interfaces) -> Dropped<'a> {
    let port = u16::from(record.annotations[PAINT]).checked_sub(1);
    Dropped {
        input: port.and_then(|port| interfaces.by_port.get(&port)).copied().unwrap_or(0),
        reason,
        is_ethernet: record.is_ethernet,
        length: record.length,
        data: &record.data,
    }
}
