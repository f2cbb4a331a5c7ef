//! =c
//! FromDevice(DEVNAME, [PROMISC, SNAPLEN, I<keywords> BURST, STOP, SNIFFER, FORCE_IP, PROTOCOL])
//!
//! =s devices
//! receives packets from a port
//!
//! =d
//! Receives packets from the port DEVNAME and pushes them, Ethernet header first. DEVNAME is an
//! interface of Linux (`eth0`), or any port that this program knows: `tap:brick0`, `pcap:in.pcap`,
//! `memory:a` (see `brickway run --help`). The command line may define the port behind the name
//! (`--port eth0=...`). An Ethernet address, or a name for one (C<uplink:eth>), stands for the
//! interface that has it.
//!
//! With several workers each receives from its own queue of the port. When the port has fewer
//! queues than there are workers, the workers with a queue share its packets out. Flows stay whole
//! and in order, by the hash of their addresses and ports. Handlers show which worker has which
//! queue, and which worker processes which part of a queue's packets ("buckets", 256 a queue). They
//! also change both while traffic flows: nothing is lost and no flow overtakes itself.
//! StaticThreadSched binds all queues of the port to one worker.
//!
//! Arguments are:
//!
//! PROMISC: boolean. Whether to receive packets to other hosts too. False by default. True asks the
//! port for promiscuous mode.
//!
//! SNAPLEN: cut received packets to this many bytes. By default they are received whole.
//!
//! BURST: packets received at a time, 1 to 256. The router's burst by default.
//!
//! STOP: boolean. Whether the router stops when the port (a file) is at its end. False by default.
//!
//! SNIFFER: boolean. False keeps the packets of the interface away from Linux, which then answers
//! nothing there (Linux 6.6 or newer). True, the default, takes nothing away from Linux. The driver
//! then decides whether the kernel processes the packets too.
//!
//! FORCE_IP: boolean. True drops what is not an IPv4 or IPv6 packet, and marks the IP headers of
//! the rest. False by default.
//!
//! PROTOCOL: the EtherType of packets to receive. Others are dropped. By default, and with 0 or 3,
//! all are received.
//!
//! Other keywords of Click's are accepted, with a warning where they would ask for something else
//! than what happens here: METHOD, CAPTURE, BPF_FILTER, OUTBOUND, HEADROOM, ENCAP, TIMESTAMP, and
//! those of Click in the Linux kernel. The driver stands in DEVNAME; an IPFilter behind this element
//! does the work of BPF_FILTER.
//!
//! Losses that the driver reports are counted as drops of this element.
//!
//! =e
//!   FromDevice(eth0) -> Classifier(12/0800) -> ...
//!
//! =a ToDevice, FromDump, FromHost, StaticThreadSched

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use graph::roles::Roles;
use graph::router::Waker;
use graph::setup::Shared;
use graph::{
    Alias, Ask, Class, Combine, ConfigError, Context, Element, Get, Handler, Put, QueueCounts, Setup,
    TaskStatus, Verdict,
};
use ipnet::Ipv4Net;
use packet::{Batch, MAX_BATCH};
use ports::{Event, HashFields, QueueStats};

use super::RECEIVER;
use super::congestion::Congestion;
use super::handover::{Accounts, Barrier, Drain, Incoming, Lanes, Outgoing, SURPLUS};
use super::spread::{BUCKETS, Held, Moving, Rule};
use super::{
    DRIVER_DECIDES, LINUX_MODULE, OpenPort, Unopened, WithoutEffect, counts_of, take_without_effect,
};

/// The class `FromDevice`.
pub static CLASS: Class = Class {
    name: "FromDevice",
    aliases: &[Alias {
        name: "PollDevice",
        difference: "It is for configurations that were written for Click in the Linux kernel: every port \
                is polled here.",
    }],
    ports: "0/1",
    processing: Class::PUSH,
    capabilities: &[RECEIVER, graph::KEEPS_ALL],
    handlers: HANDLERS,
    manual: graph::manual!("from_device.rs"),
    make,
    ..Class::DEFAULT
};

const HANDLERS: &[Handler] = &[
    Handler::read(
        "count",
        Combine::Sum,
        "Packets received.",
        &Get(|e: &mut FromDevice| e.sum(|stats| stats.packets).to_string()),
    ),
    Handler::read(
        "byte_count",
        Combine::Sum,
        "Bytes received.",
        &Get(|e: &mut FromDevice| e.sum(|stats| stats.bytes).to_string()),
    ),
    Handler::read(
        "kernel_drops",
        Combine::Sum,
        "Packets that the kernel had for us and lost because its ring was full.",
        &Get(|e: &mut FromDevice| e.sum(|stats| stats.count(Event::RingFull)).to_string()),
    ),
    Handler::read(
        "device",
        Combine::First,
        "The port: name, driver, link address, MTU, queues.",
        &Get(|e: &mut FromDevice| e.device_text()),
    ),
    Handler::read(
        "queues",
        Combine::Join,
        "A line for each receive queue: its number, its worker, packets, bytes.",
        &Get(|e: &mut FromDevice| e.queues_text()),
    ),
    Handler::read(
        "workers",
        Combine::First,
        "The workers that packets of this port may be given to.",
        &Get(|e: &mut FromDevice| e.workers_text()),
    ),
    Handler::read(
        "buckets",
        Combine::Join,
        "Who processes which part of a queue, a line for each run of buckets: queue, buckets, worker, \
         packets. Packets are counted by bucket only while a queue is shared out.",
        &Get(|e: &mut FromDevice| e.texts(Held::buckets_text)),
    ),
    Handler::read(
        "bucket_packets",
        Combine::Join,
        "A line for each queue: its number and the packets of each of its buckets.",
        &Get(|e: &mut FromDevice| e.texts(Held::counts_text)),
    ),
    Handler::read_write(
        "hash",
        Combine::First,
        "What makes a flow: flow, addresses, source or destination. The hash has the router's key, drawn at \
         its start, so that nobody outside can aim flows at one worker. A number behind it makes another \
         key, the same one at every start.",
        &Get(|e: &mut FromDevice| e.rule.hash_text()),
        &Put(|e: &mut FromDevice, _, value| e.change_rule(|rule| rule.set_hash(value))),
    ),
    Handler::read_write(
        "prefixes",
        Combine::First,
        "Read: the IPv4 prefixes that belong to workers. Written PREFIX WORKER, packets to the prefix are \
         processed by that worker whatever their bucket, so that it needs only a part of the routing table \
         in its cache; PREFIX - ends that.",
        &Get(|e: &mut FromDevice| e.rule.prefixes_text()),
        &Put(|e: &mut FromDevice, _, value| e.set_prefix(value)),
    ),
    Handler::read_write(
        "reta",
        Combine::First,
        "The device's own table from buckets of its hash to receive queues, where it has one (DPDK). Written \
         BUCKET[-BUCKET] QUEUE. Flows that move may be overtaken by what waits in their old queue at that \
         moment.",
        &Ask(|e: &mut FromDevice, _, _| e.reta_text()),
        &Put(|e: &mut FromDevice, _, value| e.set_reta(value)),
    ),
    Handler::write(
        "rss",
        "What the device hashes: addresses, or flow (ports too).",
        &Put(|e: &mut FromDevice, _, value| e.set_rss(value)),
    ),
    Handler::write(
        "steer",
        "PREFIX QUEUE: the device sends packets to that IPv4 prefix to this queue.",
        &Put(|e: &mut FromDevice, _, value| e.steer_prefix(value)),
    ),
    Handler::write(
        "move_queue",
        "QUEUE WORKER: that worker polls the queue from now on, and processes what the one before it \
         processed.",
        &Put(|e: &mut FromDevice, _, value| e.move_queue(value)),
    ),
    Handler::write(
        "move_buckets",
        "QUEUE BUCKET[-BUCKET] WORKER: that worker processes these buckets of the queue from now on.",
        &Put(|e: &mut FromDevice, _, value| e.move_buckets(value)),
    ),
];

/// Makes one of its elements.
fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let name: String = setup.arguments.required("DEVNAME")?;
    let promiscuous = setup.arguments.optional("PROMISC")?.unwrap_or(false);
    let snap_length = setup.arguments.optional("SNAPLEN")?.unwrap_or(usize::MAX);
    let burst: Option<usize> = setup.arguments.keyword("BURST")?;
    let stop = setup.arguments.keyword_or("STOP", false)?;
    let sniffer = setup.arguments.keyword_or("SNIFFER", true)?;
    let force_ip = setup.arguments.keyword_or("FORCE_IP", false)?;
    let protocol: Option<u16> = setup.arguments.keyword("PROTOCOL")?;
    take_without_effect(setup, WITHOUT_EFFECT);
    setup.arguments.finish()?;
    if let Some(burst) = burst.filter(|burst| !(1..=MAX_BATCH).contains(burst)) {
        return Err(format!("BURST: expected 1 to {MAX_BATCH} packets, got {burst}").into());
    }
    if setup.is_check() {
        return Ok(Box::new(Unopened));
    }
    let port = OpenPort::of(setup, &name)?;
    if promiscuous {
        port.set_promiscuous()?;
    }
    if !sniffer && setup.copy().index == 0 {
        port.keep_from_linux()?;
    }
    let protocol = protocol.filter(|protocol| !ALL_PROTOCOLS.contains(protocol));
    let changes = Changes { snap_length, force_ip, protocol };
    let changes = (changes != Changes::NONE).then_some(changes);
    Ok(Box::new(FromDevice { promiscuous, changes, burst, stop, ..FromDevice::new(setup, port)? }))
}

/// What Click's user-level and kernel elements know beside, and is otherwise here.
const WITHOUT_EFFECT: &[WithoutEffect] = &[
    ("METHOD", &[], DRIVER_DECIDES),
    ("CAPTURE", &[], DRIVER_DECIDES),
    ("BPF_FILTER", &[""], "put an IPFilter or a Classifier behind the element"),
    ("OUTBOUND", &["false", "no", "0"], "packets that Linux sends are not received"),
    ("HEADROOM", &[], "each packet has 128 bytes of head room"),
    ("ENCAP", &["ether"], "packets begin with an Ethernet header, or as the port's driver says"),
    ("TIMESTAMP", &["true", "yes", "1"], "packets have a time stamp where the driver has one"),
    ("ACTIVE", &["true", "yes", "1"], "the element receives from the start"),
    ("QUIET", &[], LINUX_MODULE),
    ("ALLOW_NONEXISTENT", &["false", "no", "0"], LINUX_MODULE),
    ("UNLIMITED", &[], LINUX_MODULE),
    ("UP_CALL", &[], LINUX_MODULE),
    ("DOWN_CALL", &[], LINUX_MODULE),
    ("LENGTH", &[], LINUX_MODULE),
];

/// PROTOCOL of all packets: not given, and ETH_P_ALL of Linux.
const ALL_PROTOCOLS: [u16; 2] = [0, 3];

/// What arguments do to received packets.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Changes {
    snap_length: usize,
    force_ip: bool,
    protocol: Option<u16>,
}

impl Changes {
    const NONE: Self = Self { snap_length: usize::MAX, force_ip: false, protocol: None };

    #[inline(never)]
    fn apply(self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| {
            let frame = packet.data();
            let is_asked = |protocol: u16| frame.get(12..14) == Some(&protocol.to_be_bytes());
            if self.protocol.is_some_and(|protocol| !is_asked(protocol)) {
                return Verdict::Drop("another protocol");
            }
            if self.force_ip {
                let version = frame.get(ETHERNET_BYTES).map(|byte| byte >> 4);
                let is_ip = version == Some(4) && is_asked(IPV4) || version == Some(6) && is_asked(IPV6);
                if !is_ip {
                    return Verdict::Drop("not an IP packet");
                }
                packet.set_network_header(ETHERNET_BYTES);
            }
            packet.truncate(self.snap_length);
            Verdict::Keep
        });
    }
}

const ETHERNET_BYTES: usize = 14;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

pub(super) struct FromDevice {
    port: Arc<OpenPort>,
    takes_merged: bool,
    promiscuous: bool,
    changes: Option<Changes>,
    burst: Option<usize>,
    stop: bool,
    shared: Shared,
    worker: usize,
    /// The workers that may hold a queue of the port, and those that may process its packets.
    receivers: Vec<usize>,
    processors: Vec<usize>,
    held: Vec<Held>,
    moving: Arc<Moving>,
    rule: Rule,
    /// What this worker receives and processes itself.
    own: Drain,
    outgoing: Vec<ToWorker>,
    incoming: Vec<Incoming>,
    accounts: Arc<Accounts>,
    /// Of the `ToDevice`s that hold this element back when they are full.
    congestion: Vec<Arc<Congestion>>,
}

/// A worker to which packets are handed, and those of one burst that go there.
struct ToWorker {
    worker: usize,
    lane: Outgoing,
    burst: Batch,
}

impl FromDevice {
    pub(super) fn new(setup: &Setup<'_>, port: Arc<OpenPort>) -> Result<Self, ConfigError> {
        let roles = Roles::of(setup);
        let worker = setup.copy().index;
        let (receivers, processors) = match setup.bound_worker() {
            Some(bound) => (vec![bound], vec![bound]),
            None => (roles.receive.clone(), roles.process.clone()),
        };
        let queues = port.info().rx_queues;
        let mut held = Vec::new();
        for number in (0..queues).filter(|number| receivers[number % receivers.len()] == worker) {
            let owners = match setup.bound_worker() {
                Some(bound) => vec![bound],
                None => roles.processors(number, queues),
            };
            held.push(Held::new(number, port.take_rx(number)?, worker, &owners));
        }
        let (mut outgoing, mut incoming) = (Vec::new(), Vec::new());
        let lanes = Lanes::of(setup, "receive");
        for &from in &receivers {
            for &to in processors.iter().filter(|&&to| to != from) {
                if from == worker {
                    let lane = lanes.outgoing(setup, from, to);
                    outgoing.extend(lane.map(|lane| ToWorker { worker: to, lane, burst: Batch::new() }));
                } else if to == worker {
                    incoming.extend(lanes.incoming(from, to));
                }
            }
        }
        let moving = setup.shared_by_copies(|| Ok::<_, ConfigError>(Moving::default()))?;
        Ok(Self {
            takes_merged: port.takes_merged(),
            port,
            promiscuous: false,
            changes: None,
            burst: None,
            stop: false,
            shared: setup.shared().clone(),
            worker,
            receivers,
            processors,
            held,
            moving,
            rule: Rule::new(setup.flow_key()),
            own: Drain::new(Arc::default()),
            outgoing,
            incoming,
            accounts: Accounts::of(setup),
            congestion: Congestion::downstream(setup),
        })
    }

    /// Takes a burst from one of the queues; returns the number of packets received.
    #[inline]
    fn receive(&mut self, cx: &mut Context, index: usize, max: usize) -> usize {
        let held = &mut self.held[index];
        if !held.is_open() {
            return 0;
        }
        let mut max = max;
        if !self.congestion.is_empty() || !held.aligned && held.queue.waits() {
            let copy = held.aligned.then_some(self.worker);
            if self.congestion.iter().any(|congestion| congestion.holds(copy)) {
                return 0;
            }
            if !held.aligned {
                // Nothing is to be lost on the way to other workers: take what fits into any lane.
                let room = self.outgoing.iter().map(|out| out.lane.room()).min();
                max = max.min(room.unwrap_or(max));
            }
        }
        let mut batch = cx.spare_batch();
        let count = held.queue.receive(cx.pool(), &mut batch, max);
        if count == 0 {
            cx.recycle(batch);
            return 0;
        }
        if self.takes_merged {
            cx.count_merged(&batch);
        }
        if let Some(changes) = self.changes {
            changes.apply(cx, &mut batch);
        }
        if !held.aligned || self.rule.has_prefixes() {
            self.share_out(cx, index, &mut batch);
        }
        self.own.add(batch.len() as u64);
        cx.emit_batch(0, &mut batch);
        cx.recycle(batch);
        count
    }

    /// Leaves in `batch` what this worker processes, and hands the rest to the others.
    #[inline(never)]
    fn share_out(&mut self, cx: &mut Context, index: usize, batch: &mut Batch) {
        let (held, rule, worker) = (&mut self.held[index], &self.rule, self.worker);
        let owner = std::cell::Cell::new(worker);
        batch.extract(
            |packet| {
                owner.set(held.owner(rule, packet.data()));
                owner.get() == worker
            },
            |packet| match self.outgoing.iter_mut().find(|out| out.worker == owner.get()) {
                Some(out) => out.burst.push(packet),
                // Handlers take only workers that there is a lane to.
                None => cx.drop(packet, "no way to that worker"),
            },
        );
        for out in self.outgoing.iter_mut().filter(|out| !out.burst.is_empty()) {
            out.lane.send(&mut out.burst);
            cx.drop_batch(&mut out.burst, SURPLUS);
        }
    }

    /// Takes what other workers received and this one is to process.
    #[inline]
    fn take_over(&mut self, cx: &mut Context, max: usize) -> usize {
        let mut count = 0;
        for incoming in &mut self.incoming {
            let mut batch = cx.spare_batch();
            count += incoming.take(&mut batch, max);
            cx.emit_batch(0, &mut batch);
            cx.recycle(batch);
        }
        count
    }

    /// What has to pass before all packets that this worker received so far have left the router.
    fn barriers(&self) -> Vec<Barrier> {
        let others = self.outgoing.iter().map(|out| out.lane.barrier());
        others.chain([Barrier::new(&self.own)]).collect()
    }

    /// The number of a queue of this port.
    fn queue_number(&self, text: &str) -> Result<usize, String> {
        let queues = self.port.info().rx_queues;
        text.parse()
            .ok()
            .filter(|&queue| queue < queues)
            .ok_or_else(|| format!("expected a queue from 0 to {}, got '{text}'", queues.saturating_sub(1)))
    }

    /// Takes the queues that were left for this worker.
    #[inline]
    fn adopt(&mut self) {
        if self.moving.has_any() {
            self.adopt_now();
        }
    }

    #[cold]
    #[inline(never)]
    fn adopt_now(&mut self) {
        while let Some(mut held) = self.moving.take(self.worker) {
            held.settle_at(self.worker, Vec::new());
            self.held.push(held);
        }
    }

    /// Moves a queue to another worker; this copy does so if it holds the queue.
    fn move_queue(&mut self, value: &str) -> Result<(), String> {
        let [queue, worker] = words(value, "QUEUE WORKER")?;
        let (queue, worker) = (self.queue_number(queue)?, one_of(&self.receivers, worker)?);
        self.adopt();
        let place = self.held.iter().position(|held| held.number == queue);
        if let Some(place) = place.filter(|_| worker != self.worker) {
            let mut held = self.held.remove(place);
            held.barriers.extend(self.barriers());
            if self.processors.contains(&worker) {
                held.follow(self.worker, worker);
            }
            self.moving.leave(worker, held);
            if let Some(waker) = self.shared.get::<Waker>(&Waker::key(worker)) {
                waker.wake_if_asleep();
            }
        }
        Ok(())
    }

    /// Gives buckets to another worker; this copy does so if it holds the queue.
    fn move_buckets(&mut self, value: &str) -> Result<(), String> {
        let [queue, buckets, worker] = words(value, "QUEUE BUCKET[-BUCKET] WORKER")?;
        let (queue, worker) = (self.queue_number(queue)?, one_of(&self.processors, worker)?);
        let (first, last) = buckets.split_once('-').unwrap_or((buckets, buckets));
        let range = first.parse().ok().zip(last.parse().ok());
        let (first, last) =
            range.filter(|(first, last)| first <= last && *last < BUCKETS).ok_or_else(|| {
                format!("expected buckets from 0 to {}, as in 5 or 0-127, got '{buckets}'", BUCKETS - 1)
            })?;
        self.adopt();
        let barriers = self.barriers();
        if let Some(held) = self.held.iter_mut().find(|held| held.number == queue) {
            held.assign(first, last, worker);
            held.settle_at(self.worker, barriers);
        }
        Ok(())
    }

    /// Returns whether this copy changes how the device spreads packets over its queues; one does it for all.
    fn steers_device(&self) -> bool {
        self.receivers.first() == Some(&self.worker)
    }

    /// The handler `reta`.
    fn reta_text(&self) -> Result<String, String> {
        let table = self.port.steer(|steering| steering.reta())?;
        let runs = (0..table.len()).collect::<Vec<_>>();
        let runs = runs.chunk_by(|&a, &b| table[a] == table[b]);
        Ok(runs.map(|run| format!("{}-{} {}\n", run[0], run[run.len() - 1], table[run[0]])).collect())
    }

    /// Writes the handler `reta`.
    fn set_reta(&self, value: &str) -> Result<(), String> {
        if !self.steers_device() {
            return Ok(());
        }
        let [buckets, queue] = words(value, "BUCKET[-BUCKET] QUEUE")?;
        let queue = self.queue_number(queue)? as u16;
        let mut table = self.port.steer(|steering| steering.reta())?;
        let (first, last) = range_of(buckets, table.len())?;
        table[first..=last].fill(queue);
        self.port.steer(|steering| steering.set_reta(&table))
    }

    /// Writes the handler `rss`.
    fn set_rss(&self, value: &str) -> Result<(), String> {
        if !self.steers_device() {
            return Ok(());
        }
        let fields = match value.trim() {
            "addresses" => HashFields::Addresses,
            "flow" => HashFields::AddressesAndPorts,
            other => return Err(format!("expected addresses or flow, got '{other}'")),
        };
        self.port.steer(|steering| steering.set_hash(None, fields))
    }

    /// Writes the handler `steer`.
    fn steer_prefix(&self, value: &str) -> Result<(), String> {
        if !self.steers_device() {
            return Ok(());
        }
        let [prefix, queue] = words(value, "PREFIX QUEUE")?;
        let prefix: Ipv4Net =
            prefix.parse().map_err(|_| format!("expected an IPv4 prefix, got '{prefix}'"))?;
        let queue = self.queue_number(queue)? as u16;
        self.port.steer(|steering| steering.steer_prefix(prefix.network(), prefix.prefix_len(), queue))
    }

    /// Writes the handler `prefixes`.
    fn set_prefix(&mut self, value: &str) -> Result<(), String> {
        let [prefix, worker] = words(value, "PREFIX WORKER, or PREFIX - to forget it")?;
        let prefix = prefix.parse().map_err(|_| format!("expected an IPv4 prefix, got '{prefix}'"))?;
        let worker = if worker == "-" { None } else { Some(one_of(&self.processors, worker)?) };
        self.change_rule(|rule| rule.set_prefix(prefix, worker))
    }

    /// What the queues of this worker counted, together.
    fn sum(&mut self, count: impl Fn(QueueStats) -> u64) -> u64 {
        self.adopt();
        self.held.iter().map(|held| count(held.queue.stats())).sum()
    }

    /// The text of each queue of this worker.
    fn texts(&mut self, text: impl Fn(&Held) -> String) -> String {
        self.adopt();
        self.held.iter().map(text).collect()
    }

    /// The handler `queues`.
    fn queues_text(&mut self) -> String {
        let worker = self.worker;
        self.texts(|held| {
            let QueueStats { packets, bytes, .. } = held.queue.stats();
            format!("{} {worker} {packets} {bytes}\n", held.number)
        })
    }

    /// The handler `workers`.
    fn workers_text(&self) -> String {
        let workers: Vec<String> = self.processors.iter().map(usize::to_string).collect();
        workers.join(" ")
    }

    /// The handler `device`.
    fn device_text(&self) -> String {
        format!("{} promiscuous {}", self.port.describe(), self.promiscuous)
    }

    /// Changes how packets are distinguished, on every copy.
    fn change_rule(&mut self, change: impl FnOnce(&mut Rule) -> Result<(), String>) -> Result<(), String> {
        change(&mut self.rule)?;
        self.adopt();
        let barriers = self.barriers();
        for held in &mut self.held {
            held.settle_at(self.worker, barriers.clone());
        }
        Ok(())
    }
}

/// The words of a handler's value, as many as its pattern has.
fn words<'a, const N: usize>(value: &'a str, pattern: &str) -> Result<[&'a str; N], String> {
    let words: Vec<&str> = value.split_whitespace().collect();
    words.try_into().map_err(|_| format!("expected {pattern}, got '{value}'"))
}

/// The first and last bucket of `text`, of so many.
fn range_of(text: &str, buckets: usize) -> Result<(usize, usize), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range: Option<(usize, usize)> = first.parse().ok().zip(last.parse().ok());
    range.filter(|(first, last)| first <= last && *last < buckets).ok_or_else(|| {
        format!("expected buckets from 0 to {}, as in 5 or 0-127, got '{text}'", buckets.saturating_sub(1))
    })
}

/// One of these workers.
fn one_of(workers: &[usize], text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|worker| workers.contains(worker)).ok_or_else(|| {
        let known: Vec<String> = workers.iter().map(usize::to_string).collect();
        format!("expected one of the workers {}, got '{text}'", known.join(", "))
    })
}

/// Timer: a queue has a packet by its own clock.
const DUE_TIMER: u32 = 0;

impl Element for FromDevice {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        for held in &mut self.held {
            held.queue.prepare(cx.pool()).map_err(|error| error.to_string())?;
        }
        self.congestion.retain(|congestion| congestion.blocks());
        self.own.watch(self.accounts.all());
        self.incoming.iter_mut().for_each(|incoming| incoming.watch(self.accounts.all()));
        if !self.held.is_empty() || self.receivers.contains(&self.worker) || !self.incoming.is_empty() {
            cx.wake();
        }
        Ok(())
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        self.own.turn();
        self.incoming.iter_mut().for_each(Incoming::turn);
        self.adopt();
        let max = self.burst.unwrap_or(cx.burst());
        let mut count = 0;
        for index in 0..self.held.len() {
            count += self.receive(cx, index, max);
        }
        count += self.take_over(cx, max);
        if count > 0 {
            return TaskStatus::Busy;
        }
        if !self.held.is_empty() && self.held.iter().all(|held| held.queue.is_finished()) {
            if self.stop {
                // Not before the last packet has left.
                if !self.barriers().iter().all(Barrier::is_passed) {
                    return TaskStatus::Busy;
                }
                cx.stop();
            }
            if self.incoming.is_empty() && self.outgoing.is_empty() {
                return TaskStatus::Asleep;
            }
        }
        if self.held.iter().any(|held| !held.barriers.is_empty()) {
            return TaskStatus::Busy;
        }
        // Others may come before the one that a queue knows of: the task stays awake, and the timer ends the
        // worker's sleep.
        if let Some(due) = self.held.iter().filter_map(|held| held.queue.due_in_ns()).min() {
            cx.set_timer(DUE_TIMER, cx.now_ns().saturating_add(due));
        }
        TaskStatus::Idle
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        cx.wake();
    }

    fn queues(&self) -> Vec<QueueCounts> {
        let counts = |held: &Held| counts_of(&self.port.name, held.number, false, &held.queue.stats());
        self.held.iter().map(counts).collect()
    }

    fn settle(&mut self, cx: &mut Context) {
        self.adopt();
        for held in &mut self.held {
            held.losses.count(cx, &held.queue.stats());
        }
    }

    fn wait_fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) -> bool {
        self.held.iter().all(|held| match held.queue.wait_fd() {
            Some(fd) => {
                fds.push(fd);
                true
            }
            None => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;
    use graph::setup::Shared;
    use graph::testing::{Bench, configure};
    use ports::MemoryLoop;

    #[test]
    fn mistakes() {
        assert!(configure(&CLASS, "").unwrap_err()[0].contains("DEVNAME"));
        assert!(configure(&CLASS, "null:x, BURST 0").unwrap_err()[0].contains("1 to 256"));
        let error = configure(&CLASS, "no-such-interface-0").unwrap_err();
        assert!(error[0].contains("no-such-interface-0"), "{error:?}");
    }

    #[test]
    fn what_a_port_loops_comes_in_and_goes_out() {
        let shared = Shared::default();
        let port = MemoryLoop::new(vec![vec![1; 60], vec![2; 60]]);
        shared.get_or_make::<_, ()>(&OpenPort::key("loop"), || Ok(OpenPort::new(Box::new(port)))).unwrap();
        let config = "from :: FromDevice(loop, BURST 4) -> to :: ToDevice(loop)";
        let mut bench = Bench::try_new(&registry(), config, 32, &shared).unwrap();
        bench.run(10);
        let received: u64 = bench.read("from.count").parse().unwrap();
        assert!(received >= 36, "{received}");
        let sent: u64 = bench.read("to.count").parse().unwrap();
        assert!(sent + 64 >= received, "{sent} of {received}");
        assert_eq!(bench.stats("from").packets, received);
    }

    #[test]
    fn a_delayed_packet_does_not_hold_up_the_receiving() {
        // Two packets on a slow line, the second while the first is still held back: it must be taken off the
        // cable at once, so that it is not late by the first one's delay too.
        let config = "in :: TestInput -> ToDevice(memory:slow);
            from :: FromDevice(memory:slow?end=1&delay=200ms&fault=rx) -> out :: TestOutput;";
        let mut bench = Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap();
        bench.push("in", &[&[1u8; 60][..]]);
        for _ in 0..10 {
            bench.graph().context().turn();
        }
        assert!(bench.graph().context().has_awake_tasks(), "it goes on looking while it holds a packet");
    }

    #[test]
    fn arguments_by_position_and_cut_packets() {
        let shared = Shared::default();
        let port = MemoryLoop::new(vec![vec![1; 60]]);
        shared.get_or_make::<_, ()>(&OpenPort::key("loop"), || Ok(OpenPort::new(Box::new(port)))).unwrap();
        let config = "FromDevice(loop, true, 20, BURST 1) -> out :: TestOutput";
        let mut bench = Bench::try_new(&registry(), config, 32, &shared).unwrap();
        bench.run(1);
        assert_eq!(bench.taken("out"), [[1; 20]]);
    }

    #[test]
    fn a_port_is_in_one_from_device_only() {
        let config = "FromDevice(null:x) -> ToDevice(null:y); FromDevice(null:x) -> ToDevice(null:z);";
        let error = Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap_err();
        assert!(error.contains("one FromDevice only"), "{error}");
    }
}
