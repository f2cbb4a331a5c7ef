//! `[sflow]`: an agent of sFlow version 5.
//!
//! | file | what lives there |
//! | --- | --- |
//! | this one | the settings, and the [`Agent`] |
//! | `datagram` | how samples stand on the wire |
//!
//! Interfaces have Linux's numbers. The sampling pool of an interface is exact: each sample says how many packets it stands for, and
//! one that was lost is stood for by the next.

mod datagram;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use control::api::PortRow;

use super::collector::{Collector, own_address};
use super::limit::Limit;
use super::{Dropped, Exporter, Sample, Wanted};
use crate::settings::options::{About, Problem, options};
use datagram::{Counters, Head, Xdr};

options! {
    /// An agent of sFlow.
    Settings "sflow" {
        /// Sample packets that come in by the ports, and send them to these collectors by sFlow version 5. Without any nothing is
        /// sampled.
        #[example = "[\"192.0.2.1:6343\"]"]
        #[flag("sflow", "ADDRESS:PORT,...")]
        collectors: Option<Vec<SocketAddr>> = None,
        /// One packet of so many is sampled, at random.
        #[limits(1, 1 << 24)]
        #[example = "1000"]
        rate: usize = 1_000,
        /// The address by which collectors know this router. Without it that from which the first collector is reached.
        #[example = "\"192.0.2.7\""]
        agent: Option<IpAddr> = None,
        /// Seconds between two samples of the ports' counters; 0 for none.
        #[limits(0, 86_400)]
        #[example = "20"]
        polling_seconds: usize = 20,
        /// The first bytes of each sampled packet, 64 to 1024.
        #[limits(64, 1_024)]
        #[example = "128"]
        header_bytes: usize = 128,
        /// Notifications of dropped packets with their reason, so many a second at most; 0 for none.
        #[limits(0, 10_000)]
        #[example = "100"]
        drops: usize = 100,
        /// Hand samples to the kernel's PSAMPLE too, with this number for their group, for agents such as hsflowd; and drops to its DROPMON.
        /// `modprobe psample drop_monitor` has both. No collector is needed for it.
        #[limits(1, u32::MAX)]
        #[example = "1"]
        psample: Option<usize> = None,
    }
}

impl About for Settings {
    fn problem(&self) -> Option<Problem> {
        let bad = self.collectors.iter().flatten().find(|collector| collector.port() == 0)?;
        let right = "expected an address and a port, as 192.0.2.1:6343".to_owned();
        Some(("collectors", format!("{bad} has no port"), right))
    }

    fn summary(&self) -> Option<(&'static str, String)> {
        let collectors: Vec<String> = self.collectors.as_ref()?.iter().map(SocketAddr::to_string).collect();
        Some(("sFlow", format!("one packet of {} to {}", self.rate, collectors.join(", "))))
    }
}

/// Bytes of the longest datagram (sFlow version 5, "Default Maximum Datagram Size").
const LONGEST: usize = 1_400;

/// What is counted of a source of samples, an interface.
#[derive(Clone, Copy, Debug, Default)]
struct Source {
    flows: u32,
    /// Packets from which samples were drawn.
    pool: u64,
    counters: u32,
    drops: u32,
}

/// Sends samples.
pub(crate) struct Agent {
    settings: Settings,
    collectors: Vec<Collector>,
    /// The address by which collectors know it.
    address: Option<IpAddr>,
    began: Instant,
    sequence: u32,
    /// Samples that wait, and their number.
    waiting: Xdr,
    count: u32,
    sources: HashMap<u32, Source>,
    polled: Option<Instant>,
    limit: Limit,
    /// Drops beyond it.
    drops_left_out: u32,
}

impl Agent {
    /// Makes the agent that the settings ask for, if they do.
    ///
    /// # Errors
    /// There is no socket to be had.
    pub(crate) fn new(settings: &Settings) -> Result<Option<Self>> {
        let Some(addresses) = settings.collectors.as_ref().filter(|all| !all.is_empty()) else {
            return Ok(None);
        };
        let collectors = addresses.iter().map(|&address| Collector::new(address));
        Ok(Some(Self {
            settings: settings.clone(),
            collectors: collectors.collect::<Result<_>>().context("[sflow]")?,
            address: settings.agent,
            began: Instant::now(),
            sequence: 0,
            waiting: Xdr::default(),
            count: 0,
            sources: HashMap::new(),
            polled: None,
            limit: Limit::new(settings.drops),
            drops_left_out: 0,
        }))
    }

    /// Adds a sample to those that wait, and sends these first if it does not fit.
    fn add(&mut self, sample: Xdr) {
        if Head::LONGEST + self.waiting.len() + sample.len() > LONGEST {
            self.send();
        }
        self.waiting.append(sample);
        self.count += 1;
    }

    /// Sends what waits.
    fn send(&mut self) {
        if self.count == 0 {
            return;
        }
        if self.address.is_none() {
            let first = self.settings.collectors.iter().flatten().next();
            self.address = first.and_then(|&first| own_address(first));
        }
        self.sequence = self.sequence.wrapping_add(1);
        let head = Head {
            agent: self.address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()),
            sequence: self.sequence,
            uptime_ms: self.began.elapsed().as_millis() as u32,
            samples: std::mem::take(&mut self.count),
        };
        let datagram = head.before(&std::mem::take(&mut self.waiting));
        self.collectors.iter_mut().for_each(|collector| collector.send("[sflow]", &datagram));
    }
}

impl Exporter for Agent {
    fn name(&self) -> &'static str {
        "sflow"
    }

    fn wanted(&self) -> Wanted {
        let Settings { rate, header_bytes, drops, .. } = self.settings;
        Wanted { rate: rate as u32, bytes: header_bytes, drops: drops > 0 }
    }

    fn sampled(&mut self, sample: &Sample<'_>) {
        let source = self.sources.entry(sample.input).or_default();
        source.flows = source.flows.wrapping_add(1);
        source.pool += sample.stands_for;
        let encoded = datagram::flow_sample(sample, source.flows, self.settings.rate as u32, source.pool);
        self.add(encoded);
    }

    fn dropped(&mut self, dropped: &Dropped<'_>) {
        if !self.limit.passes() {
            self.drops_left_out = self.drops_left_out.wrapping_add(1);
            return;
        }
        let source = self.sources.entry(dropped.input).or_default();
        source.drops = source.drops.wrapping_add(1);
        let encoded = datagram::discarded_packet(dropped, source.drops, self.drops_left_out);
        self.add(encoded);
    }

    fn tick(&mut self, ports: &dyn Fn() -> Vec<PortRow>) {
        let period = Duration::from_secs(self.settings.polling_seconds as u64);
        if !period.is_zero() && self.polled.is_none_or(|polled| polled.elapsed() >= period) {
            self.polled = Some(Instant::now());
            for port in ports().iter().filter(|port| port.index != 0) {
                let source = self.sources.entry(port.index).or_default();
                source.counters = source.counters.wrapping_add(1);
                let encoded = datagram::counters_sample(&Counters::of(port), source.counters);
                self.add(encoded);
            }
        }
        self.send();
    }
}
