//! Samples for collectors: what comes out of the captures' rings and what was drawn in the kernel, with the interfaces that Linux
//! has and the way that routes give.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use control::supervisor::Pulse;
use graph::context::Place;

use super::capture::{For, Session, rings};
use super::live::Live;
use super::sampled::{InKernelSamples, Interfaces};
use crate::capture::places::{INPUTS, Needs, Places};
use crate::capture::recorder::{Camera, Record, counts};
use crate::capture::sampler::Sampler;
use crate::export::{Dropped, Exporter, Sample, exporters};
use crate::flows::key::Parsed;

/// How long the rings are left alone when they were empty. They hold thousands of samples.
const PERIOD: Duration = Duration::from_millis(20);
/// Samples that are taken out of a ring at once.
const PAGE: usize = 1_024;
/// How often interfaces are looked up, and how long to wait where another configuration is to come.
const LOOK: Duration = Duration::from_secs(1);
/// Where the annotations have the paint, which in a list of ports is the port's number, counted from 1.
const PAINT: usize = 16;

/// A packet that was drawn, by the graph or in the kernel.
struct Drawn<'a> {
    is_ethernet: bool,
    length: u32,
    stands_for: u64,
    /// Of this port so far, where it was drawn.
    lost: u64,
    /// The port that it left by, if that is known.
    output: Option<u16>,
    data: &'a [u8],
}

impl Live {
    /// Starts a thread for each exporter of the settings.
    pub(super) fn begin_exports(self: &Arc<Self>) -> Result<()> {
        for exporter in exporters(&self.settings())? {
            let (live, name) = (self.clone(), exporter.name());
            self.supervisor
                .spawn(name, move |pulse| live.export(exporter, pulse))
                .with_context(|| format!("[{name}]: no thread"))?;
        }
        Ok(())
    }

    /// Exports until the router ends, by whatever configuration it has.
    fn export(&self, mut exporter: Box<dyn Exporter>, pulse: &Pulse) {
        while self.with_router(|_| ()).is_ok() {
            if let Err(problem) = self.export_while_it_stays(&mut *exporter, pulse)
                && self.with_router(|_| ()).is_ok()
            {
                tracing::error!(event = "export", "[{}]: {problem}", exporter.name());
                break;
            }
            packet::pulse::sleep(LOOK);
        }
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
        // What the kernel forwards is sampled there.
        let session = Session::begin(self, For::Collector, Needs::Nothing)?;
        session.watch(&places.watched(), recorders.into_iter().map(camera).collect())?;
        let in_kernel = InKernelSamples::begin(self, wanted.rate, wanted.bytes);
        let mut lost_in_kernel: HashMap<u16, u64> = HashMap::new();
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
                            let drawn = Drawn {
                                is_ethernet: record.is_ethernet,
                                length: record.length,
                                stands_for: record.stands_for,
                                data: &record.data,
                                output: None,
                                lost,
                            };
                            exporter.sampled(&self.sample(drawn, port, &interfaces));
                        }
                        Place::Drop { reason, .. } => {
                            exporter.dropped(&dropped(&record, reason, &interfaces))
                        }
                    }
                    records.give_back(record);
                }
            }
            for (port, sample) in in_kernel.as_ref().map(InKernelSamples::take).unwrap_or_default() {
                let lost = lost_in_kernel.entry(sample.input).or_default();
                *lost += sample.lost;
                let drawn = Drawn {
                    is_ethernet: true,
                    length: sample.length,
                    stands_for: sample.stands_for,
                    data: &sample.data,
                    output: sample.output,
                    lost: *lost,
                };
                exporter.sampled(&self.sample(drawn, &port, &interfaces));
            }
            exporter.tick(&|| self.ports().unwrap_or_default());
            if has_ended {
                return Ok(());
            }
            std::thread::sleep(PERIOD);
        }
    }

    fn sample<'a>(&self, drawn: Drawn<'a>, port: &str, interfaces: &Interfaces) -> Sample<'a> {
        let Drawn { is_ethernet, length, stands_for, lost, output, data } = drawn;
        let parsed = Parsed::of(is_ethernet, data);
        let mut way = self.way(port, &parsed, interfaces).unwrap_or_default();
        if let Some(index) = output.and_then(|port| interfaces.by_port.get(&port)) {
            way.output = *index;
        }
        Sample {
            input: interfaces.by_name.get(port).copied().unwrap_or(0),
            way,
            is_ethernet,
            length,
            stands_for,
            lost,
            parsed,
            data,
        }
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
