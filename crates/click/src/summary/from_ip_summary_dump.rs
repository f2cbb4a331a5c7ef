//! =c
//! FromIPSummaryDump(FILENAME, I<keywords> STOP, TIMING, ACTIVE, ZERO, CHECKSUM, PROTO, MULTIPACKET, SAMPLE, CONTENTS, FLOWID, ALLOW_NONEXISTENT, DATA)
//!
//! =s traces
//! makes packets from an IP summary dump
//!
//! =d
//! Reads a text in which each line describes a packet, as ToIPSummaryDump writes it or by hand, and makes these packets. A
//! FILENAME of C<-> is standard input, for which the worker waits while nothing comes. In a push path it sends by
//! itself; in a pull path it gives packets when asked. With several workers only the first reads the file.
//!
//! A line C<!data FIELD FIELD ...> names the fields of the lines behind it; ToIPSummaryDump has the list. A line may
//! have fewer fields than were named, and C<-> for one that does not apply. A packet is IPv4 with a right header
//! length, and begins with an Ethernet header if a field of it is there. Its network header is marked, and the
//! destination annotation set. Values without a field are zero, except for a time to live of 100. Packets usually
//! hold their headers only. The extra length annotation is the rest of the length that they claim. Where IP length
//! and payload length are known and not the options, the headers are made long enough to agree with both.
//!
//! Other lines that count begin with C<!> too:
//!
//! =item C<!IPSummaryDump 1.3>
//! should come first. Dumps of version 1.0 count fragment offsets in units of 8 bytes.
//!
//! =item C<!flowid SRC SPORT DST DPORT [PROTO]>
//! addresses, ports and protocol of packets whose line does not say theirs; C<-> leaves one out.
//!
//! =item C<!proto PROTO>
//! the protocol alone: a name, a number, or C<T>, C<U>, C<I>.
//!
//! =item C<!aggregate N>
//! the aggregate annotation of packets whose line does not say it.
//!
//! =back
//!
//! All other lines, and lines that begin with C<#>, are skipped. So are lines in which nothing is
//! understood. The first such line is reported, and all are counted under C<line not understood>.
//! Packets longer than a frame are dropped as such.
//!
//! Arguments are:
//!
//! =item STOP
//! boolean: stop the router at the end of the dump. False by default.
//!
//! =item TIMING
//! boolean: keep the distances in time between packets. False by default: as fast as the graph takes them.
//!
//! =item ACTIVE
//! boolean: send at all (see the handler). True by default.
//!
//! =item CHECKSUM
//! boolean: set the checksums of IP, TCP, UDP and ICMP, and make packets as long as their IP header says. False by
//! default.
//!
//! =item PROTO
//! the protocol until the dump says another. TCP by default.
//!
//! =item MULTIPACKET
//! boolean: make as many packets of a line as its C<count> says, which share out its length and, from
//! C<first_timestamp> on, its time. False by default.
//!
//! =item SAMPLE
//! number from 0 to 1: send each packet with this probability. 1 by default.
//!
//! =item CONTENTS
//! the fields until a C<!data> line names them, separated by spaces. FIELDS, DEFAULT_CONTENTS and DEFAULT_FIELDS are the
//! same.
//!
//! =item FLOWID
//! the words of a C<!flowid> line. DEFAULT_FLOWID is the same.
//!
//! =item ALLOW_NONEXISTENT
//! boolean: a file that is not there, or empty, is not a mistake. False by default.
//!
//! =item DATA
//! the text of the dump itself, instead of FILENAME.
//!
//! =item ZERO
//! boolean, for Click's configurations: bytes without a field are zero whatever ZERO is.
//!
//! =back
//!
//! Compressed files and the binary format are not read. Of annotations, C<first_timestamp> uses bytes 32 to 39.
//!
//! =e
//!   FromIPSummaryDump(trace.txt, STOP true, CHECKSUM true) -> CheckIPHeader -> IPPrint -> Discard
//!
//! =a ToIPSummaryDump, FromDump

use graph::arguments::Raw;
use graph::{
    Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup, TaskStatus,
};
use packet::wire::IpProtocol;
use packet::{Batch, Packet};

use super::field::{UNSUPPORTED, unknown_field};
use super::records::{self, Line, Records};
use super::repeat::Repeat;
use super::source::Source;

pub(crate) static CLASS: Class = Class {
    name: "FromIPSummaryDump",
    ports: "0/1",
    handlers: &[
        Handler::read_write(
            "active",
            Combine::First,
            "Whether it sends.",
            &Get(|e: &mut FromIPSummaryDump| e.active.to_string()),
            &Put(|e: &mut FromIPSummaryDump, cx, value| {
                e.active = bool::from_value(value).map_err(|error| format!("active: {error}"))?;
                e.go_on(cx);
                Ok(())
            }),
        ),
        Handler::read(
            "count",
            Combine::Sum,
            "Packets sent.",
            &Get(|e: &mut FromIPSummaryDump| e.count.to_string()),
        ),
        Handler::read(
            "encap",
            Combine::First,
            "What packets begin with, always IP.",
            &Get(|_: &mut FromIPSummaryDump| "IP".to_owned()),
        ),
        Handler::read(
            "filename",
            Combine::First,
            "The file.",
            &Get(|e: &mut FromIPSummaryDump| e.filename.clone()),
        ),
        Handler::read(
            "filepos",
            Combine::Sum,
            "How many bytes of the file were read.",
            &Get(|e: &mut FromIPSummaryDump| e.position.to_string()),
        ),
        Handler::read(
            "filesize",
            Combine::First,
            "The file's length in bytes, or - where that is unknown.",
            &Get(|e: &mut FromIPSummaryDump| e.size_text()),
        ),
        Handler::read(
            "sampling_prob",
            Combine::First,
            "The SAMPLE argument.",
            &Get(|e: &mut FromIPSummaryDump| e.sample_argument.to_string()),
        ),
        Handler::write(
            "stop",
            "Ends sending and stops the router.",
            &Put(|e: &mut FromIPSummaryDump, cx, _| {
                e.stop(cx);
                Ok(())
            }),
        ),
    ],
    manual: graph::manual!("from_ip_summary_dump.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let arguments = &mut setup.arguments;
    let data: Option<String> = arguments.keyword("DATA")?;
    let filename: Option<String> = match data {
        None => Some(arguments.required("FILENAME")?),
        Some(_) => arguments.optional("FILENAME")?,
    };
    let stop = arguments.keyword_or("STOP", false)?;
    let timing = arguments.keyword_or("TIMING", false)?;
    let active = arguments.keyword_or("ACTIVE", true)?;
    let _zero = arguments.keyword_or("ZERO", true)?;
    let checksum = arguments.keyword_or("CHECKSUM", false)?;
    let Protocol(protocol) = arguments.keyword_or("PROTO", Protocol(IpProtocol::TCP.0))?;
    let multipacket = arguments.keyword_or("MULTIPACKET", false)?;
    let sample: f64 = arguments.keyword_or("SAMPLE", 1.0)?;
    let mut contents: Option<Raw> = None;
    for name in ["CONTENTS", "FIELDS", "DEFAULT_CONTENTS", "DEFAULT_FIELDS"] {
        contents = arguments.keyword(name)?.or(contents);
    }
    let mut flow: Option<String> = None;
    for name in ["FLOWID", "DEFAULT_FLOWID"] {
        flow = arguments.keyword(name)?.or(flow);
    }
    let allow_nonexistent = arguments.keyword_or("ALLOW_NONEXISTENT", false)?;
    arguments.finish()?;

    if data.is_some() && filename.is_some() {
        return Err(ConfigError::new("FILENAME and DATA exclude each other"));
    }
    if !(0.0..=1.0).contains(&sample) {
        return Err(format!("SAMPLE: expected a probability from 0 to 1, got {sample}").into());
    }
    let mut records = Records::new(protocol);
    if let Some(Raw(contents)) = contents {
        let unknown = records.set_fields(&contents);
        if let Some(name) = unknown.iter().find(|name| !UNSUPPORTED.contains(&name.as_str())) {
            return Err(ConfigError::new(unknown_field(name)));
        }
    }
    if let Some(flow) = flow {
        records.set_flow(&flow).map_err(|_| {
            ConfigError::new(format!("FLOWID: expected SRC SPORT DST DPORT [PROTO], got '{flow}'"))
        })?;
    }
    let works = setup.works_here();
    let filename = filename.unwrap_or_else(|| "<data>".into());
    let size = data.as_ref().map(String::len);
    let source = match data {
        _ if !works || setup.is_check() => None,
        Some(data) => Some(Source::of(data)),
        // A file that is not there is one that ends at once.
        None => Source::open(&filename, allow_nonexistent)?.or_else(|| Some(Source::of(String::new()))),
    };
    Ok(Box::new(FromIPSummaryDump {
        filename,
        size,
        works,
        records,
        source,
        line: String::new(),
        repeat: None,
        next: None,
        stop,
        timing,
        active,
        checksum,
        multipacket,
        sample_argument: sample,
        sample: (sample * f64::from(u32::MAX)) as u32,
        pulled: setup.output_is_pull(0),
        offset_ns: None,
        position: 0,
        count: 0,
    }))
}

/// The PROTO argument.
struct Protocol(u8);

impl FromArgument for Protocol {
    const EXPECTED: &'static str = "protocol: a number from 0 to 255 or a name such as tcp";
    fn from_argument(text: &str) -> Option<Self> {
        records::protocol(text).map(Self)
    }
}

struct FromIPSummaryDump {
    filename: String,
    /// Length of the text that stands in for a file.
    size: Option<usize>,
    /// Whether this copy is the one that reads.
    works: bool,
    records: Records,
    /// `None` at the end of the dump, and in every copy but one.
    source: Option<Source>,
    line: String,
    /// A packet that stands for several, of which some are still to come.
    repeat: Option<Repeat>,
    /// The next packet, made ahead.
    next: Option<Packet>,
    stop: bool,
    timing: bool,
    active: bool,
    checksum: bool,
    multipacket: bool,
    sample_argument: f64,
    /// A random number up to this one lets a packet pass.
    sample: u32,
    pulled: bool,
    /// What to add to a time of the dump to get the router's.
    offset_ns: Option<i128>,
    /// Bytes read of the dump.
    position: u64,
    count: u64,
}

impl FromIPSummaryDump {
    /// Makes the next packet that is to be sent; false at the end of the dump or without a frame.
    fn make_ahead(&mut self, cx: &mut Context) -> bool {
        while self.next.is_none() {
            let Some(packet) = self.next_packet(cx) else { return false };
            if self.sample < u32::MAX && cx.random() > self.sample {
                cx.pool().free_packet(packet);
            } else {
                self.next = Some(packet);
            }
        }
        true
    }

    fn next_packet(&mut self, cx: &mut Context) -> Option<Packet> {
        loop {
            if let Some(repeat) = self.repeat.as_mut().filter(|repeat| !repeat.is_last()) {
                return repeat.next(cx);
            }
            if let Some(repeat) = self.repeat.take() {
                return Some(repeat.last());
            }
            // The frame first: a line that was read must not be lost for want of one.
            self.source.as_ref()?;
            let mut packet = cx.allocate()?;
            if !self.next_line(cx) {
                cx.pool().free_packet(packet);
                return None;
            }
            if !self.records.write(&mut packet, self.checksum) {
                cx.drop(packet, "longer than a frame");
                continue;
            }
            if !self.multipacket {
                return Some(packet);
            }
            match Repeat::new(packet) {
                Ok(repeat) => self.repeat = Some(repeat),
                Err(packet) => return Some(packet),
            }
        }
    }

    /// Reads on to the next line that is a packet; false at the end of the dump.
    fn next_line(&mut self, cx: &mut Context) -> bool {
        while let Some(source) = &mut self.source {
            let line = match source.read_line(&mut self.line) {
                Ok(true) => self.records.take(&self.line),
                Ok(false) => break,
                Err(error) => {
                    cx.message(&format!("FromIPSummaryDump: {}: {error}", self.filename));
                    break;
                }
            };
            self.position = source.position;
            for complaint in self.records.complaints() {
                cx.message(&format!("{}:{}: {complaint}", self.filename, source.line_number));
            }
            match line {
                Line::Packet => return true,
                Line::Bad => cx.count_drop("line not understood", 1),
                Line::Other => {}
                Line::Binary => break,
            }
        }
        if self.source.take().is_some() && self.stop {
            cx.stop();
        }
        false
    }

    /// Whether nothing more will come.
    fn ended(&self) -> bool {
        self.source.is_none() && self.repeat.is_none() && self.next.is_none()
    }

    /// When the next packet is due, if that is not yet.
    fn held_until(&mut self, cx: &Context) -> Option<u64> {
        let time = i128::from(self.next.as_ref().filter(|_| self.timing)?.timestamp_ns());
        let offset = *self.offset_ns.get_or_insert(i128::from(cx.now_ns()) - time);
        let due = u64::try_from(time + offset).unwrap_or(0);
        (due > cx.now_ns()).then_some(due)
    }

    /// Wakes the tasks that move the packets.
    fn go_on(&self, cx: &mut Context) {
        let works = self.active && !self.ended();
        if self.pulled {
            cx.set_signal(works);
        } else if works {
            cx.wake();
        }
    }

    /// Length of the file in bytes, or a hyphen.
    fn size_text(&self) -> String {
        let of_file = || std::fs::metadata(&self.filename).ok().filter(|file| file.is_file());
        let size = self.size.map(|size| size as u64).or_else(|| of_file().map(|file| file.len()));
        size.map_or_else(|| "-".into(), |size| size.to_string())
    }

    /// Ends sending and stops the router.
    fn stop(&mut self, cx: &mut Context) {
        self.active = false;
        if self.works {
            cx.stop();
        }
        self.go_on(cx);
    }
}

impl Element for FromIPSummaryDump {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        self.go_on(cx);
        Ok(())
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        if !self.active {
            return TaskStatus::Asleep;
        }
        for _ in 0..cx.burst() {
            if !self.make_ahead(cx) {
                return if self.ended() { TaskStatus::Asleep } else { TaskStatus::Idle };
            }
            if let Some(due) = self.held_until(cx) {
                cx.set_timer(0, due);
                return TaskStatus::Asleep;
            }
            if let Some(packet) = self.next.take() {
                self.count += 1;
                cx.emit(0, packet);
            }
        }
        TaskStatus::Busy
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        self.go_on(cx);
    }

    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        while self.active && batch.len() < max {
            if !self.make_ahead(cx) {
                if self.ended() {
                    cx.set_signal(false);
                }
                return;
            }
            if let Some(due) = self.held_until(cx) {
                cx.set_signal(false);
                cx.set_timer(0, due);
                return;
            }
            if let Some(packet) = self.next.take() {
                self.count += 1;
                batch.push(packet);
            }
        }
    }

    fn notifies(&self) -> bool {
        true
    }
}
