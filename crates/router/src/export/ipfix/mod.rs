//! `[ipfix]`: records of flows, by samples, in IPFIX (RFC 7011).
//!
//! | file | what lives there |
//! | --- | --- |
//! | this one | the settings, and the [`Meter`] |
//! | `cache` | flows, and when they are over |
//! | `message` | how records stand on the wire |
//!
//! Counts are estimates of all packets, not of the samples: each sample counts for those that it stands for. So a collector has nothing to
//! multiply, and none gets a rate.

mod cache;
mod message;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use control::api::PortRow;

use super::collector::Collector;
use super::{Dropped, Exporter, Sample, Wanted};
use crate::settings::options::{About, Problem, options};
use cache::{Cache, End, FlowRecord};
use message::Message;

options! {
    /// Records of flows.
    Settings "ipfix" {
        /// Sample packets that come in by the ports, and send records of their flows to these collectors by IPFIX over
        /// UDP. Without any nothing is sampled.
        #[example = "[\"192.0.2.1:4739\"]"]
        #[flag("ipfix", "ADDRESS:PORT,...")]
        collectors: Option<Vec<SocketAddr>> = None,
        /// One packet of so many is sampled, at random. Records have estimates of all packets and bytes.
        #[limits(1, 1 << 24)]
        #[example = "1000"]
        rate: usize = 1_000,
        /// Seconds after which a flow that goes on has a record of what it has moved since the last one.
        #[limits(1, 3_600)]
        #[example = "60"]
        active_seconds: usize = 60,
        /// Seconds without a sample after which a flow is over.
        #[limits(1, 3_600)]
        #[example = "15"]
        idle_seconds: usize = 15,
    }
}

impl About for Settings {
    fn problem(&self) -> Option<Problem> {
        let bad = self.collectors.iter().flatten().find(|collector| collector.port() == 0)?;
        let right = "expected an address and a port, as 192.0.2.1:4739".to_owned();
        Some(("collectors", format!("{bad} has no port"), right))
    }

    fn summary(&self) -> Option<(&'static str, String)> {
        let collectors: Vec<String> = self.collectors.as_ref()?.iter().map(SocketAddr::to_string).collect();
        Some(("IPFIX", format!("one packet of {} to {}", self.rate, collectors.join(", "))))
    }
}

/// How often templates are sent: a collector that has started anew reads nothing until then (RFC 7011, section 8.4).
const TEMPLATES_PERIOD: Duration = Duration::from_secs(20);
/// Messages that are sent at once, some fifty times a second: 36 Mbit/s.
const MESSAGES: usize = 64;
/// Messages that wait: some 12 MB, the records of twice all flows.
const MOST_WAITING: usize = 1 << 13;
/// How often flows are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Adds samples up by flow and sends records.
pub(crate) struct Meter {
    settings: Settings,
    collectors: Vec<Collector>,
    cache: Cache,
    message: Message,
    /// Messages that are to be sent.
    waiting: VecDeque<Vec<u8>>,
    /// When templates were sent last, and flows looked at.
    told: Option<Instant>,
    looked: Instant,
}

impl Meter {
    /// Makes what the settings ask for, if they do.
    ///
    /// # Errors
    /// There is no socket to be had.
    pub(crate) fn new(settings: &Settings) -> Result<Option<Self>> {
        let Some(addresses) = settings.collectors.as_ref().filter(|all| !all.is_empty()) else {
            return Ok(None);
        };
        let collectors = addresses.iter().map(|&address| Collector::new(address));
        let seconds = |seconds: usize| Duration::from_secs(seconds as u64);
        Ok(Some(Self {
            settings: settings.clone(),
            collectors: collectors.collect::<Result<_>>().context("[ipfix]")?,
            cache: Cache::new(seconds(settings.active_seconds), seconds(settings.idle_seconds)),
            message: Message::default(),
            waiting: VecDeque::new(),
            told: None,
            looked: Instant::now(),
        }))
    }

    /// Sends a record for each of these flows, templates first when they are due.
    fn send(&mut self, over: Vec<(FlowRecord, End)>) {
        let templates_are_due = self.told.is_none_or(|told| told.elapsed() >= TEMPLATES_PERIOD);
        if templates_are_due {
            self.told = Some(Instant::now());
        }
        let Self { message, waiting, .. } = self;
        let mut has_room = true;
        let mut queue = |bytes: Vec<u8>| {
            has_room &= waiting.len() < MOST_WAITING;
            if has_room {
                waiting.push_back(bytes);
            }
        };
        if templates_are_due {
            queue(message.templates());
        }
        for (record, end) in over {
            if let Some(full) = message.add(&record, end) {
                queue(full);
            }
        }
        if let Some(rest) = message.take() {
            queue(rest);
        }
        if !has_room {
            tracing::warn!(event = "export", "[ipfix]: more flows end than can be sent; records are lost");
        }
    }
}

impl Exporter for Meter {
    fn name(&self) -> &'static str {
        "ipfix"
    }

    fn wanted(&self) -> Wanted {
        Wanted { rate: self.settings.rate as u32, bytes: 128, drops: false }
    }

    fn sampled(&mut self, sample: &Sample<'_>) {
        let over = self.cache.add(sample, SystemTime::now());
        if !over.is_empty() {
            self.send(over);
        }
    }

    fn dropped(&mut self, _dropped: &Dropped<'_>) {}

    fn tick(&mut self, _ports: &dyn Fn() -> Vec<PortRow>) {
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            let over = self.cache.expire(SystemTime::now());
            self.send(over);
        }
        // Sent slowly: what comes at once overruns a socket, a link, a collector.
        for message in self.waiting.drain(..self.waiting.len().min(MESSAGES)) {
            self.collectors.iter_mut().for_each(|collector| collector.send("[ipfix]", &message));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::export::Way;
    use crate::flows::key::{Flow, Parsed};

    #[test]
    fn many_flows_that_end_at_once_are_sent_a_few_messages_at_a_time() {
        const FLOWS: u32 = 5_000;
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let collectors = Some(vec![socket.local_addr().unwrap()]);
        let mut meter = Meter::new(&Settings { collectors, ..Settings::default() }).unwrap().unwrap();
        for number in 0..FLOWS {
            let source = std::net::Ipv4Addr::from(number).into();
            let flow = Flow::Ip { source, destination: source, protocol: 17, ports: Some((1, 2)) };
            let parsed = Parsed { flow, network: 14, vlan: None };
            let (way, is_ethernet, length) = (Way::default(), true, 60);
            let sample =
                Sample { input: 1, way, is_ethernet, length, stands_for: 1, lost: 0, parsed, data: &[] };
            meter.sampled(&sample);
        }
        let over = meter.cache.expire(SystemTime::now() + Duration::from_secs(3_600));
        assert_eq!(over.len(), FLOWS as usize);
        meter.send(over);
        let messages = meter.waiting.len();
        assert!(messages > 2 * MESSAGES, "{messages}");
        let mut received = 0;
        while !meter.waiting.is_empty() {
            meter.tick(&Vec::new);
            let mut bytes = [0; 2_000];
            let now = std::iter::from_fn(|| socket.recv(&mut bytes).ok()).count();
            assert!(now <= MESSAGES, "{now}");
            received += now;
        }
        assert_eq!(received, messages);
    }
}
