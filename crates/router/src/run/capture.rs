//! Packets as they are seen on their way, for `brickway capture` and `brickway trace`.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use control::api::{CaptureCounts, CaptureQuery, CaptureRow, Rows, SeenPacket, TraceQuery, Unanswered};
use graph::context::{Observer, Place, Watched};
use graph::graph::Graph;
use graph::lang::FlatConfig;
use packet::sync::lock;

use super::linux_frames::OfLinux;
use super::live::Live;
use super::meter;
use super::sampled::{InKernelSamples, Interfaces};
use crate::capture::places::{self, DROPS, Needs, Places, Spot};
use crate::capture::recorder::{
    Camera, Counts, Filter, Record, Recorder, Records, Step, Table, Tracer, counts, now_ns,
};
use crate::capture::sampler::Sampler;
use crate::flows::key::Parsed;

/// Captures and traces at a time: they are for people, and each costs the workers something.
const MOST: usize = 4;
/// The shortest and longest packet data of a capture, in bytes.
const SHORTEST: usize = 64;
/// How long after its time, in nanoseconds, a packet may be recorded.
const LONGEST_RECORDING: u64 = 10_000_000;
/// Packets that wait for older ones.
const MOST_WAITING: usize = 8_192;
const MOST_WAITING_BYTES: usize = 32 << 20;
/// The longest packet data of what Linux merged, if so much is asked for.
const LONGEST_MERGED: usize = 65_549;
/// Bytes of a packet that a trace shows.
const TRACED_BYTES: usize = 192;
/// How long the rings are left alone when they were empty.
const PERIOD: Duration = Duration::from_millis(5);
/// How often counts are sent, so that the client knows that we are there.
const COUNTS_PERIOD: Duration = Duration::from_millis(200);
/// Records that are taken out of a ring at once.
const PAGE: usize = 64;
/// When nothing was seen of packets for so long, they are where they stay.
const LONGEST_WAY: Duration = Duration::from_secs(1);

/// Captures and traces that go on, by number, with the ports that they want to see.
#[derive(Default)]
pub(super) struct Captures {
    last: u64,
    active: BTreeMap<u64, (For, Needs)>,
}

/// Whom packets are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// Somebody who asked for them.
    Client,
    /// An exporter of the settings.
    Collector,
}

/// One that goes on. It ends on all workers, however the one who asked for it fares.
pub(super) struct Session<'a> {
    live: &'a Live,
    number: u64,
}

impl<'a> Session<'a> {
    pub(super) fn begin(live: &'a Live, whom: For, needs: Needs) -> Result<Self, String> {
        let mut captures = lock(&live.captures);
        let of_clients = captures.active.values().filter(|(whom, _)| *whom == For::Client).count();
        if whom == For::Client && of_clients >= MOST {
            return Err(format!("capture: {MOST} captures and traces run already; end one of them first"));
        }
        captures.last += 1;
        let number = captures.last;
        captures.active.insert(number, (whom, needs));
        drop(captures);
        live.tell_kernel();
        Ok(Self { live, number })
    }

    /// Has each copy of the graph watch; the observers are in the order of the copies.
    pub(super) fn watch<O: Observer + 'static>(
        &self,
        watched: &Watched,
        observers: Vec<O>,
    ) -> Result<(), String> {
        let observers: Vec<_> = observers.into_iter().map(|observer| Mutex::new(Some(observer))).collect();
        let (watched, observers, number) = (watched.clone(), Arc::new(observers), self.number);
        self.live.with_router(|router| {
            router.on_each(move |graph: &mut Graph| {
                let observer = observers.get(graph.copy().index).and_then(|observer| lock(observer).take());
                if let Some(observer) = observer {
                    graph.watch(number, watched.clone(), Box::new(observer));
                }
            });
        })
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let number = self.number;
        // A router that is ending shows nothing any more.
        let _ = self.live.with_router(|router| router.on_each(move |graph| graph.unwatch(number)));
        lock(&self.live.captures).active.remove(&number);
        self.live.tell_kernel();
    }
}

impl Live {
    /// Has the kernel leave to the graph what captures want to see.
    fn tell_kernel(&self) {
        let active: Vec<Needs> =
            lock(&self.captures).active.values().map(|(_, needs)| needs.clone()).collect();
        let is_captured = |name: &str| {
            active.iter().any(|needs| match needs {
                Needs::Nothing | Needs::Rest => false,
                Needs::Port(port) => port == name,
                Needs::All => true,
            })
        };
        self.set_captured(is_captured, active.iter().any(|needs| *needs != Needs::Nothing));
    }

    /// Ends all captures and traces: what they were made for is about to change. Exporters begin anew.
    pub(super) fn end_captures(&self) {
        let numbers: Vec<u64> = lock(&self.captures).active.keys().copied().collect();
        // A router that is ending shows nothing any more.
        let _ = self.with_router(|router| {
            router.on_each(move |graph| numbers.iter().for_each(|&number| graph.unwatch(number)))
        });
    }

    /// Captures packets until there are enough, or the client goes.
    pub(super) fn capture(&self, query: &CaptureQuery, rows: &mut Rows<'_>) -> Result<(), Unanswered> {
        let (config, copies) = self.copies()?;
        let places = Arc::new(Places::of(&config, query.what.as_deref())?);
        let filter = query.filter.as_ref().map(Filter::new).transpose()?;
        let longest = self.frame_bytes.max(SHORTEST);
        let bytes = query.bytes.map_or(longest, |bytes| bytes as usize).clamp(SHORTEST, longest);
        let counts = counts(&places);
        let (recorders, records) = rings(copies, bytes, &counts);
        let camera = |recorder| Camera {
            places: places.clone(),
            sampler: query.sample.map(|rate| Sampler::new(rate, places.spots.len())),
            filter: filter.clone(),
            recorder,
        };
        // Headers as they came in can be sampled in the kernel; all else has to come to the graph.
        let sample = query.sample.filter(|_| places.are_ports());
        let needs = if sample.is_some() { Needs::Nothing } else { places.needs.clone() };
        let session = Session::begin(self, For::Client, needs)?;
        session.watch(&places.watched(), recorders.into_iter().map(camera).collect())?;
        let of_linux = match query.sample {
            None => {
                let bytes =
                    query.bytes.map_or(bytes, |bytes| (bytes as usize).clamp(SHORTEST, LONGEST_MERGED));
                Some(OfLinux::begin(self, bytes, &places, filter.clone()))
            }
            Some(_) => None,
        };
        let sampled = sample.and_then(|rate| Sampled::begin(self, rate, bytes, &places, filter));
        let counted = Instant::now();
        let before = self.port_counts()?;
        let mut stream = Stream {
            live: self,
            before,
            config,
            places,
            counts,
            records,
            rows,
            sampled,
            of_linux,
            waiting: Vec::new(),
            sent: 0,
            counted,
        };
        stream.run(|stream| query.count.is_some_and(|count| stream.sent >= count), query.count, false)
    }

    /// Follows packets until their ways have ended, or the client goes.
    pub(super) fn trace(&self, query: &TraceQuery, rows: &mut Rows<'_>) -> Result<(), Unanswered> {
        if !(1..=TraceQuery::MOST).contains(&query.count) {
            let most = TraceQuery::MOST;
            return Err(format!("trace: cannot follow {} packets; expected 1 to {most}", query.count).into());
        }
        let (config, copies) = self.copies()?;
        let places = Arc::new(Places::everywhere(&config, query.from.as_deref())?);
        let filter = query.filter.as_ref().map(Filter::new).transpose()?;
        let steps: Arc<[Step]> = (places.spots.iter())
            .map(|spot| Step {
                from: spot.edge.from.0,
                to: spot.edge.to.0,
                begins: match &query.from {
                    Some(port) => spot.direction == "in" && spot.interface == *port,
                    None => places::is_source(&config, spot.edge),
                },
                ends: config.elements[spot.edge.to.0].outputs == 0,
            })
            .collect();
        let table = Table::new(query.count as usize);
        let counts = counts(&places);
        let (recorders, records) = rings(copies, TRACED_BYTES, &counts);
        let tracer = |recorder| Tracer {
            places: places.clone(),
            steps: steps.clone(),
            filter: filter.clone(),
            table: table.clone(),
            recorder,
        };
        let session = Session::begin(self, For::Client, places.needs.clone())?;
        session.watch(&places.watched(), recorders.into_iter().map(tracer).collect())?;
        let before = self.port_counts()?;
        let mut stream = Stream {
            live: self,
            before,
            config,
            places,
            counts,
            records,
            rows,
            sampled: None,
            of_linux: None,
            waiting: Vec::new(),
            sent: 0,
            counted: Instant::now(),
        };
        let (mut last, mut moved) = (0, Instant::now());
        let is_over = |stream: &Stream<'_, '_>| {
            if stream.sent != last {
                (last, moved) = (stream.sent, Instant::now());
            }
            let (all_begun, ended) = table.state();
            all_begun && (ended >= query.count as usize || moved.elapsed() >= LONGEST_WAY)
        };
        stream.run(is_over, None, true)
    }

    /// Returns the configuration, and how many copies of the graph there are.
    pub(super) fn copies(&self) -> Result<(Arc<FlatConfig>, usize), String> {
        self.with_router(|router| {
            (router.config().clone(), router.workers() + usize::from(router.has_slow_thread()))
        })
    }
}

/// Rings for all copies of the graph.
pub(super) fn rings(copies: usize, bytes: usize, counts: &Counts) -> (Vec<Recorder>, Vec<Records>) {
    (0..copies).map(|_| Records::new(bytes, counts)).unzip()
}

/// Records on their way to the client.
struct Stream<'a, 'r> {
    live: &'a Live,
    /// What ports had moved when it began.
    before: meter::Counts,
    config: Arc<FlatConfig>,
    places: Arc<Places>,
    counts: Counts,
    records: Vec<Records>,
    rows: &'a mut Rows<'r>,
    sampled: Option<Sampled<'a>>,
    of_linux: Option<OfLinux<'a>>,
    /// What was read and may have older packets behind it, by time.
    waiting: Vec<(u64, SeenPacket)>,
    sent: u64,
    /// When counts were sent last.
    counted: Instant,
}

impl Stream<'_, '_> {
    /// Sends what is recorded, at most `most`, until `is_over` returns true when all is sent, or the recorders are gone.
    fn run(
        &mut self,
        mut is_over: impl FnMut(&Self) -> bool,
        most: Option<u64>,
        is_trace: bool,
    ) -> Result<(), Unanswered> {
        // The client knows by them that it has begun.
        self.send_counts()?;
        loop {
            // Read before the rings are: nothing comes behind it.
            let has_ended = self.records.iter().all(Records::is_over);
            // While the client takes nothing the rings run full, which counts what is lost.
            if !self.rows.wait_for_room(COUNTS_PERIOD)? {
                continue;
            }
            let found = self.send_page(most, is_trace)?;
            if self.counted.elapsed() >= COUNTS_PERIOD {
                self.send_counts()?;
            }
            if found == 0 || most.is_some_and(|most| self.sent >= most) {
                if is_over(self) {
                    return self.send_counts();
                }
                if has_ended {
                    self.send_counts()?;
                    let reason = "the router has read its settings or its configuration again".to_owned();
                    return self.rows.send(CaptureRow::End { reason });
                }
                self.rows.flush()?;
                self.rows.wait(PERIOD)?;
            }
        }
    }

    /// Reads some of what there is, sends what nothing older can come behind, in the order of its time, and returns how many packets it
    /// read or sent.
    fn send_page(&mut self, most: Option<u64>, is_trace: bool) -> Result<usize, Unanswered> {
        let begin = now_ns();
        // Before the rings: what workers handed to Linux is in these, if it is here.
        if let Some(of_linux) = &mut self.of_linux {
            of_linux.read(&self.places);
        }
        let mut page: Vec<(usize, Box<Record>)> = Vec::new();
        // All that workers recorded until then is read.
        let mut read_until = begin;
        for (copy, records) in self.records.iter_mut().enumerate() {
            let before = page.len();
            page.extend((0..PAGE).map_while(|_| records.take()).map(|record| (copy, record)));
            if page.len() - before == PAGE {
                read_until = read_until.min(page.last().map_or(0, |(_, record)| record.time_ns));
            }
        }
        // Nothing older than this is still to come.
        let mut oldest = read_until.min(begin.saturating_sub(LONGEST_RECORDING));
        let read = page.len();
        for (copy, record) in page {
            if let (Some(of_linux), Place::Edge(edge)) = (&mut self.of_linux, record.place)
                && self.places.spots[edge].direction == "in"
            {
                of_linux.note(&self.places.spots[edge].interface, &record);
            }
            let packet = self.describe(copy, &record, is_trace);
            self.waiting.push((record.time_ns, packet));
            self.records[copy].give_back(record);
        }
        let mut others: Vec<SeenPacket> =
            self.sampled.as_mut().map(|sampled| sampled.take(&self.places)).unwrap_or_default();
        if let Some(of_linux) = &mut self.of_linux
            && let Some((first, last)) = of_linux.times()
        {
            if last <= read_until {
                others.extend(of_linux.take());
            } else {
                oldest = oldest.min(first);
            }
        }
        let read = read + others.len();
        self.waiting.extend(others.into_iter().map(|packet| (packet.time_ns, packet)));
        // The sort leaves what it sorted before nearly as it is.
        self.waiting.sort_by_key(|(time_ns, _)| *time_ns);
        let is_at_rest = is_trace || (read == 0 && self.records.iter().all(Records::is_over));
        let due = self.waiting.partition_point(|(time_ns, _)| is_at_rest || *time_ns <= oldest);
        let bytes: usize = self.waiting.iter().map(|(_, packet)| packet.data.len()).sum();
        let due = due.max(self.waiting.len().saturating_sub(MOST_WAITING));
        let due = if bytes > MOST_WAITING_BYTES { self.waiting.len() } else { due };
        for (_, mut packet) in self.waiting.drain(..due).collect::<Vec<_>>() {
            if most.is_none_or(|most| self.sent < most) {
                self.sent += 1;
                if !is_trace {
                    packet.number = self.sent;
                }
                self.rows.send(CaptureRow::Packet(Box::new(packet)))?;
            }
        }
        Ok(read + due)
    }

    fn describe(&self, copy: usize, record: &Record, is_trace: bool) -> SeenPacket {
        let element = |number: usize| self.config.elements.get(number);
        let name = |number: usize| element(number).map(|element| element.name.clone()).unwrap_or_default();
        let class = |number: usize| element(number).map(|element| element.class.clone()).unwrap_or_default();
        let packet = SeenPacket {
            number: record.number as u64 + 1,
            step: record.step,
            time_ns: record.time_ns,
            worker: copy,
            is_ethernet: record.is_ethernet,
            length: record.length,
            stands_for: record.stands_for,
            offset: record.offset,
            data: hex(&record.data),
            annotations: if is_trace { hex(&record.annotations) } else { String::new() },
            ..SeenPacket::default()
        };
        match record.place {
            Place::Drop { element, reason } => SeenPacket {
                interface: DROPS.to_owned(),
                element: name(element),
                class: class(element),
                verdict: "dropped".to_owned(),
                reason: reason.to_owned(),
                ..packet
            },
            Place::Edge(edge) => {
                let spot = &self.places.spots[edge];
                let ((from, output), (to, _)) = (spot.edge.from, spot.edge.to);
                SeenPacket {
                    interface: spot.interface.clone(),
                    direction: spot.direction.to_owned(),
                    element: name(from),
                    class: class(from),
                    output: Some(output),
                    next: Some(name(to)),
                    verdict: places::verdict(&self.config, spot.edge).to_owned(),
                    ..packet
                }
            }
        }
    }

    fn send_counts(&mut self) -> Result<(), Unanswered> {
        self.counted = Instant::now();
        let mut interfaces: Vec<CaptureCounts> = Vec::new();
        for (number, count) in self.counts.iter().enumerate() {
            let interface = match self.places.spots.get(number) {
                Some(spot) => &spot.interface,
                None if self.places.drops => DROPS,
                None => continue,
            };
            if !interfaces.iter().any(|known| known.interface == interface) {
                interfaces
                    .push(CaptureCounts { interface: interface.to_owned(), ..CaptureCounts::default() });
            }
            for known in interfaces.iter_mut().filter(|known| known.interface == interface) {
                known.captured += count.captured.load(Ordering::Relaxed);
                known.lost += count.lost.load(Ordering::Relaxed);
            }
        }
        let now = self.live.port_counts().unwrap_or_default();
        for known in &mut interfaces {
            let of_port = |counts: &meter::Counts| counts.get(&known.interface).cloned().unwrap_or_default();
            let grown = of_port(&self.before).grown(&of_port(&now));
            let of_linux = self.of_linux.as_ref().and_then(|of_linux| of_linux.counts(&known.interface));
            if let Some((captured, lost)) = of_linux {
                known.captured += captured;
                known.lost += lost;
            } else {
                let (left, because) = grown.all_left();
                (known.left_to_linux, known.left_because) = (left, because.to_owned());
                known.sent_by_linux = grown.sent_by_linux;
            }
            if let Some((captured, lost)) =
                self.sampled.as_ref().and_then(|sampled| sampled.counts.get(&known.interface))
            {
                known.captured += captured;
                known.lost += lost;
            }
        }
        self.rows.send(CaptureRow::Counts { interfaces })?;
        self.rows.flush()
    }
}

/// Samples of packets that the kernel forwards between ports.
struct Sampled<'a> {
    live: &'a Live,
    samples: InKernelSamples<'a>,
    filter: Option<Filter>,
    interfaces: Interfaces,
    looked: Instant,
    /// How many there were of each port, and how many more there was no room for.
    counts: HashMap<String, (u64, u64)>,
}

impl<'a> Sampled<'a> {
    fn begin(
        live: &'a Live,
        rate: u32,
        bytes: usize,
        places: &Places,
        filter: Option<Filter>,
    ) -> Option<Self> {
        let samples = InKernelSamples::begin(live, rate, bytes)?;
        let (interfaces, looked) = (live.interfaces(places), Instant::now());
        Some(Self { live, samples, filter, interfaces, looked, counts: HashMap::new() })
    }

    /// Takes what there is: a packet at the ports that it came in by and left by, as far as these are among the places.
    fn take(&mut self, places: &Places) -> Vec<SeenPacket> {
        if self.looked.elapsed() >= Duration::from_secs(1) {
            (self.interfaces, self.looked) = (self.live.interfaces(places), Instant::now());
        }
        let mut packets = Vec::new();
        let time_ns = now_ns();
        for (input, sample) in self.samples.take() {
            if self.filter.as_ref().is_some_and(|filter| !filter.selects(true, &sample.data, sample.length)) {
                continue;
            }
            let output = match sample.output {
                Some(port) => self.interfaces.by_port.get(&port).copied(),
                None => {
                    let parsed = Parsed::of(true, &sample.data);
                    self.live.way(&input, &parsed, &self.interfaces).map(|way| way.output)
                }
            };
            let output = output.and_then(|index| self.interfaces.name(index)).map(str::to_owned);
            for (interface, direction) in [(Some(input), "in"), (output, "out")] {
                let Some(interface) = interface else { continue };
                let is_wanted = |spot: &Spot| spot.interface == interface && spot.direction == direction;
                if !places.spots.iter().any(is_wanted) {
                    continue;
                }
                let (captured, lost) = self.counts.entry(interface.clone()).or_default();
                *captured += 1;
                if direction == "in" {
                    *lost += sample.lost;
                }
                packets.push(SeenPacket {
                    time_ns,
                    interface,
                    direction: direction.to_owned(),
                    verdict: "sent".to_owned(),
                    is_ethernet: true,
                    length: sample.length,
                    stands_for: sample.stands_for,
                    data: hex(&sample.data),
                    ..SeenPacket::default()
                });
            }
        }
        packets
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |number: u8| char::from(DIGITS[usize::from(number & 0xf)]);
    bytes.iter().flat_map(|&byte| [digit(byte >> 4), digit(byte)]).collect()
}
