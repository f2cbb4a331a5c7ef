//! Capture files as a port: what it receives comes from one file, what it sends goes to another.
//!
//! The receiving worker reads the file itself, megabytes at a time; the sending ones hand packets to a recorder
//! thread, and the disk slows them down (packets stay in the batch) but never blocks them.

pub(crate) mod reader;
pub(crate) mod writer;

use std::sync::Arc;
use std::time::Instant;

use packet::wire::ethernet::MacAddr;
use packet::{Batch, Packet, Pool};

use crate::null::Sink;
use crate::pcap::reader::{ETHERNET, PcapReader};
use crate::pcap::writer::{PcapWriter, Precision};
use crate::recorder::{Direction, Recorder, RecorderInput, now_ns};
use crate::{
    Event, Handout, MemoryLoop, OpenOptions, Port, PortError, PortInfo, QueueStats, RxQueue, Spec, TxQueue,
};
use crate::spec::option;
use crate::DriverDoc;

/// The driver, as specs name it.
pub(crate) static DRIVER: DriverDoc = DriverDoc {
    name: "pcap",
    what: "FILE",
    help: "packets from a pcap or pcapng file; without a name it receives nothing",
    options: &[
        option("out", "FILE", "write sent packets to this file (default: forget them)"),
        option(
            "timing",
            "fast|original|loop",
            "at full speed (default), as captured, or looped from memory",
        ),
        option("precision", "ns|us", "time stamps in the written file (default ns)"),
    ],
    open,
    ..DriverDoc::DEFAULT
};

/// When the packets of a file come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timing {
    Fast,
    Original,
    Loop,
}

/// Opens a `pcap:` port.
pub(crate) fn open(spec: &mut Spec, options: &OpenOptions) -> Result<Box<dyn Port>, PortError> {
    let choices = [("fast", Timing::Fast), ("original", Timing::Original), ("loop", Timing::Loop)];
    let timing = spec.take_choice("timing", &choices)?.unwrap_or(Timing::Fast);
    let units = [("ns", Precision::Nanoseconds), ("us", Precision::Microseconds)];
    let precision = spec.take_choice("precision", &units)?.unwrap_or_default();
    let out = spec.take_path("out")?;
    let input = spec.name().to_owned();
    let name = if input.is_empty() { "pcap".to_owned() } else { input.clone() };
    if let Some(out) = &out
        && !input.is_empty()
        && same_file(&input, out)
    {
        return Err(PortError::file(
            out,
            "write",
            "it is the file that the port reads; give `out` another name",
        ));
    }
    let source = match (input.is_empty(), timing) {
        (true, _) => Source::Nothing,
        (false, Timing::Loop) => {
            let templates = load(&input)?;
            Source::Loop(MemoryLoop::looped(&name, "pcap", templates, options.rx_queues, 0))
        }
        (false, timing) => {
            let reader = open_ethernet(&input)?;
            let queue = FileRx::new(reader, timing == Timing::Original, options.warn);
            Source::File(Handout::new(&name, "receive", [queue].into_iter().take(options.rx_queues)))
        }
    };
    let recorder = match out {
        None => None,
        Some(path) => {
            let writer = PcapWriter::create(&path, precision)?;
            let recorder = Recorder::start(writer, format!("`{path}`"), options.warn);
            Some(recorder.map_err(|error| PortError::system(&name, "starting a thread", error))?)
        }
    };
    let tx = Handout::new(&name, "transmit", (0..options.tx_queues).map(|_| ()));
    Ok(Box::new(PcapPort { name, source, recorder, tx }))
}

fn same_file(one: &str, other: &str) -> bool {
    match (std::fs::canonicalize(one), std::fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

fn open_ethernet(path: &str) -> Result<PcapReader, PortError> {
    let reader = PcapReader::open(path)?;
    match reader.link_type() {
        Some(link_type) if link_type != ETHERNET => Err(not_ethernet(path, link_type)),
        _ => Ok(reader),
    }
}

fn not_ethernet(path: &str, link_type: u32) -> PortError {
    let problem = format!("its packets have link type {link_type}; a port needs Ethernet (1)");
    PortError::file(path, "read", problem)
}

/// Reads all packets of a file, for a loop.
fn load(path: &str) -> Result<Vec<Vec<u8>>, PortError> {
    let mut reader = open_ethernet(path)?;
    let mut templates = Vec::new();
    while let Some(record) = reader.next() {
        let record = record?;
        if record.link_type != ETHERNET {
            return Err(not_ethernet(path, record.link_type));
        }
        // Cut packets are not packets, and an empty one cannot be sent.
        let whole = record.data.len() == record.original_length as usize;
        if whole && (1..=32_000).contains(&record.data.len()) {
            templates.push(record.data.to_vec());
        }
    }
    if templates.is_empty() {
        return Err(PortError::file(path, "read", "it has no whole packet to loop"));
    }
    Ok(templates)
}

enum Source {
    Nothing,
    File(Handout<FileRx>),
    Loop(MemoryLoop),
}

struct PcapPort {
    name: String,
    source: Source,
    recorder: Option<Arc<Recorder>>,
    tx: Handout<()>,
}

impl Port for PcapPort {
    fn info(&self) -> PortInfo {
        PortInfo {
            name: self.name.clone(),
            driver: "pcap",
            mac: MacAddr([2, 0, 0, 0, 0, 0xb1]),
            mtu: 1_500,
            rx_queues: match &self.source {
                Source::Nothing => 0,
                Source::File(queues) => queues.count(),
                Source::Loop(port) => port.info().rx_queues,
            },
            tx_queues: self.tx.count(),
        }
    }

    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
        match &mut self.source {
            Source::File(queues) => Ok(Box::new(queues.take(queue)?)),
            Source::Loop(port) => port.take_rx(queue),
            Source::Nothing => {
                let (port, direction) = (self.name.clone(), "receive");
                Err(PortError::NoSuchQueue { port, direction, queue, count: 0 })
            }
        }
    }

    fn take_tx(&mut self, queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
        self.tx.take(queue)?;
        Ok(match &self.recorder {
            None => Box::new(Sink::default()),
            Some(recorder) => Box::new(FileTx {
                input: recorder.input(Direction::Transmit, queue),
                waiting: Batch::new(),
                stats: QueueStats::default(),
                counts_failures: queue == 0,
            }),
        })
    }
}

/// Packets from a file.
struct FileRx {
    reader: PcapReader,
    /// In original timing: when the first packet was received here, and its time in the file.
    started: Option<(Instant, u64)>,
    original: bool,
    /// A packet that was read and is not due yet.
    early: Option<Packet>,
    finished: bool,
    stats: QueueStats,
    warn: fn(&str),
}

impl FileRx {
    fn new(reader: PcapReader, original: bool, warn: fn(&str)) -> Self {
        let stats = QueueStats::default();
        Self { reader, started: None, original, early: None, finished: false, stats, warn }
    }

    /// The next whole Ethernet packet of the file; `None` at its end or without a free frame.
    fn read(&mut self, pool: &mut Pool) -> Option<Packet> {
        // The frame first: what is read from the file cannot be put back.
        let mut packet = pool.allocate()?;
        loop {
            let reason = match self.reader.next() {
                Some(Ok(record)) => {
                    if record.link_type != ETHERNET {
                        Event::Malformed
                    } else if record.data.len() != record.original_length as usize {
                        Event::Truncated
                    } else if !packet.set_data(record.data) {
                        Event::TooLong
                    } else {
                        packet.set_timestamp_ns(record.timestamp_ns);
                        break;
                    }
                }
                Some(Err(error)) => {
                    (self.warn)(&error.to_string());
                    Event::Malformed
                }
                None => {
                    self.finished = true;
                    pool.free_packet(packet);
                    return None;
                }
            };
            self.stats.add(reason, 1);
        }
        packet.set_link_header(0);
        let packet_type = crate::packet_type_on_a_cable(packet.data());
        packet.set_packet_type(packet_type);
        Some(packet)
    }

    /// Nanoseconds until the early packet is due.
    fn wait_ns(&self, packet: &Packet) -> u64 {
        let Some((start, first_ns)) = self.started else { return 0 };
        // A time stamp before the first one is due at once.
        let offset = packet.timestamp_ns().saturating_sub(first_ns);
        offset.saturating_sub(start.elapsed().as_nanos() as u64)
    }
}

impl RxQueue for FileRx {
    fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, max: usize) -> usize {
        let wanted = max.min(batch.room());
        let mut received = 0;
        while received < wanted {
            let Some(packet) = self.early.take().or_else(|| self.read(pool)) else { break };
            if self.original {
                self.started.get_or_insert_with(|| (Instant::now(), packet.timestamp_ns()));
                if self.wait_ns(&packet) > 0 {
                    self.early = Some(packet);
                    break;
                }
            }
            self.stats.packet(packet.len());
            batch.push(packet);
            received += 1;
        }
        received
    }

    fn due_in_ns(&self) -> Option<u64> {
        match &self.early {
            Some(packet) => Some(self.wait_ns(packet)),
            None => (!self.finished).then_some(0),
        }
    }

    fn waits(&self) -> bool {
        true
    }

    fn is_finished(&self) -> bool {
        self.finished
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

/// Packets to a file.
struct FileTx {
    input: RecorderInput,
    /// Packets between batch and ring within one call; empty between calls.
    waiting: Batch,
    stats: QueueStats,
    /// The recorder's failures are those of all queues; one of them reports them.
    counts_failures: bool,
}

impl TxQueue for FileTx {
    fn send(&mut self, _pool: &mut Pool, batch: &mut Batch) -> usize {
        let count = self.input.room().min(batch.len());
        batch.move_front(&mut self.waiting, count);
        let now_ns = now_ns();
        for packet in self.waiting.drain() {
            self.stats.packet(packet.len());
            let taken = self.input.put(packet, now_ns);
            debug_assert!(taken, "there was room");
        }
        count
    }

    fn stats(&self) -> QueueStats {
        let mut stats = self.stats;
        if self.counts_failures {
            stats.add(Event::WriteFailed, self.input.failed());
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TemporaryFile, batch_of, contents, numbered_frame, pool, temporary_file};

    fn written(name: &str, times_ns: &[u64]) -> (TemporaryFile, Vec<Vec<u8>>) {
        let path = temporary_file(name);
        let mut writer = PcapWriter::create(&path, Precision::Nanoseconds).unwrap();
        let frames: Vec<Vec<u8>> =
            (0..times_ns.len() as u32).map(|n| numbered_frame(n, 60 + n as usize)).collect();
        for (time, frame) in times_ns.iter().zip(&frames) {
            writer.write(*time, frame.len() as u32, frame).unwrap();
        }
        (path, frames)
    }

    #[test]
    fn a_file_goes_through_unchanged() {
        let times: Vec<u64> = (0..300).map(|n| 1_600_000_000_000_000_000 + n * 1_001).collect();
        let (input, frames) = written("through-in.pcap", &times);
        let output = temporary_file("through-out.pcap");
        let mut port = crate::open(&format!("pcap:{input}?out={output}"), &OpenOptions::default()).unwrap();
        let (mut rx, mut tx) = (port.take_rx(0).unwrap(), port.take_tx(0).unwrap());
        let (mut pool, mut batch, mut received) = (pool(2_000), Batch::new(), Vec::new());
        while !rx.is_finished() {
            rx.receive(&mut pool, &mut batch, 32);
            received.extend(contents(&batch));
            while !batch.is_empty() {
                tx.send(&mut pool, &mut batch);
            }
        }
        assert_eq!(received, frames);
        assert_eq!((rx.stats().packets, rx.stats().dropped()), (300, 0));
        drop((rx, tx, port));
        assert_eq!(std::fs::read(&output).unwrap(), std::fs::read(&input).unwrap());
    }

    #[test]
    fn original_timing_waits() {
        // An hour lies between the second packet and the third.
        let (input, frames) = written("timing.pcap", &[5_000, 5_000, 3_600_000_000_000]);
        let mut port =
            crate::open(&format!("pcap:{input}?timing=original"), &OpenOptions::default()).unwrap();
        let mut rx = port.take_rx(0).unwrap();
        let (mut pool, mut batch) = (pool(16), Batch::new());
        assert_eq!(rx.due_in_ns(), Some(0));
        assert_eq!(rx.receive(&mut pool, &mut batch, 32), 2);
        assert_eq!(contents(&batch), frames[..2]);
        assert_eq!(rx.receive(&mut pool, &mut batch, 32), 0);
        assert!(rx.due_in_ns().unwrap() > 1_000_000_000);
        assert!(!rx.is_finished());
    }

    #[test]
    fn a_loop_begins_again() {
        let (input, frames) = written("loop.pcap", &[1, 2, 3]);
        let mut port = crate::open(&format!("pcap:{input}?timing=loop"), &OpenOptions::default()).unwrap();
        assert_eq!(port.info().driver, "pcap");
        let mut rx = port.take_rx(0).unwrap();
        let (mut pool, mut batch) = (pool(16), Batch::new());
        assert_eq!(rx.receive(&mut pool, &mut batch, 7), 7);
        let expected: Vec<Vec<u8>> = (0..7).map(|n| frames[n % 3].clone()).collect();
        assert_eq!(contents(&batch), expected);
    }

    #[test]
    fn cut_and_long_packets_are_counted_and_skipped() {
        let path = temporary_file("cut.pcap");
        let mut writer = PcapWriter::create(&path, Precision::Microseconds).unwrap();
        writer.write(1, 100, &[0; 60]).unwrap();
        writer.write(1, 5_000, &[0; 5_000]).unwrap();
        writer.write(1, 60, &[7; 60]).unwrap();
        drop(writer);
        let mut port = crate::open(&format!("pcap:{path}"), &OpenOptions::default()).unwrap();
        let mut rx = port.take_rx(0).unwrap();
        let (mut pool, mut batch) = (pool(16), Batch::new());
        assert_eq!(rx.receive(&mut pool, &mut batch, 32), 1);
        assert_eq!(batch.packets()[0].data(), [7; 60]);
        assert_eq!((rx.stats().count(Event::Truncated), rx.stats().count(Event::TooLong)), (1, 1));
        assert!(rx.is_finished());
        assert_eq!(pool.stats().free, 15);
    }

    #[test]
    fn without_a_free_frame_nothing_of_the_file_is_lost() {
        let (input, frames) = written("frames.pcap", &[1, 2, 3]);
        let mut port = crate::open(&format!("pcap:{input}"), &OpenOptions::default()).unwrap();
        let mut rx = port.take_rx(0).unwrap();
        let (mut pool, mut batch) = (pool(2), Batch::new());
        assert_eq!(rx.receive(&mut pool, &mut batch, 32), 2);
        assert!(!rx.is_finished());
        pool.free(&mut batch);
        assert_eq!(rx.receive(&mut pool, &mut batch, 32), 1);
        assert_eq!(contents(&batch), frames[2..]);
    }

    #[test]
    fn errors_name_the_file() {
        let message = |spec: &str| crate::open(spec, &OpenOptions::default()).err().unwrap().to_string();
        let error = message("pcap:/nowhere/in.pcap");
        assert!(error.starts_with("cannot read `/nowhere/in.pcap`: No such file"), "{error}");
        let error = message("pcap:?out=/nowhere/out.pcap");
        assert!(error.starts_with("cannot write `/nowhere/out.pcap`: No such file"), "{error}");
        let (input, _) = written("same.pcap", &[1]);
        let error = message(&format!("pcap:{input}?out={input}"));
        assert!(error.ends_with("it is the file that the port reads; give `out` another name"), "{error}");
        assert!(
            message(&format!("pcap:{input}?timing=slow"))
                .contains("`fast` or `original` or `loop` is expected")
        );
    }

    #[test]
    fn sent_packets_without_a_time_get_the_current_one() {
        let output = temporary_file("stamped.pcap");
        let mut port = crate::open(&format!("pcap:?out={output}"), &OpenOptions::default()).unwrap();
        assert_eq!(port.info().rx_queues, 0);
        let mut pool = pool(4);
        let before = now_ns();
        let mut batch = batch_of(&mut pool, &[numbered_frame(1, 60)]);
        port.take_tx(0).unwrap().send(&mut pool, &mut batch);
        drop(port);
        let mut reader = PcapReader::open(&output).unwrap();
        assert!(reader.next().unwrap().unwrap().timestamp_ns >= before);
    }
}
