//! Flows that samples belong to, until they have a record.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use crate::export::Sample;
use crate::flows::key::Flow;

/// Flows at a time. When one more comes, all have a record and make room.
const MOST: usize = 1 << 16;

/// What a flow has moved since its last record.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FlowRecord {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) protocol: u8,
    /// Both 0 where the protocol has none.
    pub(super) ports: (u16, u16),
    /// Linux's numbers of the interfaces by which it came and leaves.
    pub(super) input: u32,
    pub(super) output: u32,
    /// Estimates: packets, and their bytes from the IP header on.
    pub(super) packets: u64,
    pub(super) octets: u64,
    /// The first and the last sample.
    pub(super) begin: SystemTime,
    pub(super) end: SystemTime,
}

/// Why a flow has a record (RFC 5102, flowEndReason).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Idle = 1,
    Active = 2,
    NoRoom = 5,
}

/// All flows.
#[derive(Debug)]
pub(super) struct Cache {
    active: Duration,
    idle: Duration,
    flows: HashMap<(Flow, u32), FlowRecord>,
}

impl Cache {
    /// An empty one, with the time after which a flow that goes on has a record, and that after which it is over.
    pub(super) fn new(active: Duration, idle: Duration) -> Self {
        Self { active, idle, flows: HashMap::new() }
    }

    /// Adds a sample of now. Returns the flows that had to make room for it. What is not IP belongs to none.
    pub(super) fn add(&mut self, sample: &Sample<'_>, now: SystemTime) -> Vec<(FlowRecord, End)> {
        let Flow::Ip { source, destination, protocol, ports } = sample.parsed.flow else { return Vec::new() };
        let key = (sample.parsed.flow, sample.input);
        let is_full = self.flows.len() >= MOST && !self.flows.contains_key(&key);
        let over = if is_full { self.take(|_| Some(End::NoRoom)) } else { Vec::new() };
        let record = self.flows.entry(key).or_insert_with(|| FlowRecord {
            source,
            destination,
            protocol,
            ports: ports.unwrap_or_default(),
            input: sample.input,
            output: 0,
            packets: 0,
            octets: 0,
            begin: now,
            end: now,
        });
        let length = u64::from(sample.length).saturating_sub(sample.parsed.network as u64);
        record.packets += sample.stands_for;
        record.octets += sample.stands_for * length;
        (record.output, record.end) = (sample.way.output, now);
        over
    }

    /// Takes the flows that have a record now.
    pub(super) fn expire(&mut self, now: SystemTime) -> Vec<(FlowRecord, End)> {
        let (active, idle) = (self.active, self.idle);
        // A clock that was set back lets them wait.
        let since = |then: SystemTime| now.duration_since(then).unwrap_or_default();
        self.take(|record| match () {
            () if since(record.end) >= idle => Some(End::Idle),
            () if since(record.begin) >= active => Some(End::Active),
            () => None,
        })
    }

    fn take(&mut self, end: impl Fn(&FlowRecord) -> Option<End>) -> Vec<(FlowRecord, End)> {
        let over = self.flows.extract_if(|_, record| end(record).is_some());
        over.filter_map(|(_, record)| end(&record).map(|end| (record, end))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Way;
    use crate::flows::key::Parsed;

    fn add(cache: &mut Cache, from: u16, seconds: u64) -> Vec<(FlowRecord, End)> {
        add_by(cache, 2, from, seconds)
    }

    fn add_by(cache: &mut Cache, input: u32, from: u16, seconds: u64) -> Vec<(FlowRecord, End)> {
        let source = [10, 0, (from >> 8) as u8, from as u8].into();
        let flow = Flow::Ip { source, destination: source, protocol: 1, ports: None };
        let sample = Sample {
            input,
            way: Way { output: 3, ..Way::default() },
            is_ethernet: true,
            length: 114,
            stands_for: 10,
            lost: 0,
            parsed: Parsed { flow, network: 14, vlan: None },
            data: &[],
        };
        cache.add(&sample, at(seconds))
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_flow_has_a_record_when_it_is_idle_and_while_it_goes_on() {
        let mut cache = Cache::new(Duration::from_secs(60), Duration::from_secs(15));
        for second in (0..=60).step_by(10) {
            assert!(add(&mut cache, 1, second).is_empty());
        }
        assert!(add(&mut cache, 2, 50).is_empty());
        assert!(cache.expire(at(59)).is_empty());
        let over = cache.expire(at(60));
        assert_eq!(over.len(), 1);
        let (record, end) = &over[0];
        assert_eq!((record.packets, record.octets, record.output, *end), (70, 7_000, 3, End::Active));
        assert_eq!((record.begin, record.end), (at(0), at(60)));
        let over = cache.expire(at(65));
        assert_eq!((over.len(), over[0].0.packets, over[0].1), (1, 10, End::Idle));
        assert!(cache.expire(at(1_000)).is_empty());
    }

    #[test]
    fn flows_are_bounded_and_those_that_make_room_have_records() {
        let mut cache = Cache::new(Duration::from_secs(60), Duration::from_secs(15));
        for from in 0..=u16::MAX {
            assert!(add(&mut cache, from, 0).is_empty());
        }
        // One that is there needs no room.
        assert!(add(&mut cache, 7, 1).is_empty());
        // By another port it is another flow.
        let over = add_by(&mut cache, 9, 7, 2);
        assert_eq!((over.len(), over[0].1, cache.flows.len()), (MOST, End::NoRoom, 1));
    }
}
