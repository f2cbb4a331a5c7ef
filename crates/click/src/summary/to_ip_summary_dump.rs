//! =c
//! ToIPSummaryDump(FILENAME, I<keywords> FIELDS, HEADER, VERBOSE, BANNER, MULTIPACKET, BAD_PACKETS, CAREFUL_TRUNC, EXTRA_LENGTH)
//!
//! =s traces
//! writes a line of text for each packet
//!
//! =d
//! Writes chosen fields of each packet as a line of FILENAME, or of standard output if that is C<->. With an output it
//! pushes the packets on; without one they end here. In a pull path it pulls by itself. IP fields are those of packets
//! whose network header is marked (MarkIPHeader, CheckIPHeader); the packets do not change.
//!
//! All workers write to one file, one batch after the other: for looking at packets, not for full speed. Lines to
//! standard output are written at once. Lines to a file are written when enough have come together, at C<flush> and
//! at the end.
//!
//! FIELDS (or CONTENTS) is a list of names, separated by spaces; C<timestamp ip_src> by default. A name may leave out
//! its C<ip_>, or have spaces for underscores, then in quotes. A field that a packet does not have is written as
//! C<->.
//!
//!   timestamp         time in seconds: 996033261.451094; also ts
//!   ts_sec, ts_usec   its seconds; its microseconds alone
//!   ts_usec1          time in microseconds
//!   first_timestamp   when the first came of those it stands for
//!   count             how many packets it stands for
//!   direction         paint: '>' for 0, '<' for 1
//!   link, paint       paint, as a number
//!   aggregate         aggregate annotation
//!   wire_len          bytes that the packet has
//!   capture_len       the same without padding behind the IP packet
//!   eth_src, eth_dst  Ethernet addresses: 00-0A-95-A6-D9-BC
//!   eth_type          Ethernet type: 0800
//!   ip_src, ip_dst    addresses
//!   ip_len            length that the header says; also len
//!   ip_proto          T, U, I for TCP, UDP, ICMP; else a number
//!   ip_hl             header length in bytes
//!   ip_id, ip_tos, ip_ttl, ip_sum
//!   ip_dscp           code point: 46
//!   ip_ecn            congestion: no, ect1, ect2, ce
//!   ip_frag           F first, f later fragment, '!' DF, '.'
//!   ip_fragoff        offset in bytes; '+' for MF, '!' for DF
//!   ip_opt            options, see below
//!   ip_capture_len    bytes of the IP packet that are here
//!   sport, dport      ports of TCP, UDP, DCCP, UDP-Lite
//!   tcp_seq, tcp_ack, tcp_window, tcp_urp, tcp_sum
//!   tcp_off           header length in bytes
//!   tcp_flags         letters of FSRPAUECN: 'SA'; '.' for none
//!   tcp_opt           options, see below
//!   tcp_ntopt         options without time stamps
//!   tcp_sack          selective acknowledgements only
//!   udp_len, udp_sum
//!   icmp_type, icmp_code            numbers
//!   icmp_type_name, icmp_code_name  names where there are
//!   icmp_flowid, icmp_seq           of echo and its kin
//!   icmp_nextmtu      of "fragmentation needed"
//!   payload           bytes behind TCP's or UDP's header, quoted
//!   payload_len       how many the headers say there are
//!
//! C<payload_md5> and C<payload_md5_hex> are not supported. C<tcp_sum>, C<udp_sum> and
//! C<capture_len> are not Click's.
//!
//! Options are separated by semicolons; NOP and the end of options are not written, but read. A
//! period stands for no options, a question mark for malformed ones. The forms are:
//!
//! =item TCP
//! C<mss1400>, C<wscale10>, C<sackok>, C<sack95-98> for each block, C<ts1:2>
//!
//! =item IP
//! C<rr{10.0.0.1}+5> with 5 places free; C<ssrr{1.0.0.1^1.0.0.2}> and C<lsrr> with a caret where
//! the pointer points
//!
//! =item IP timestamps
//! C<ts{1,!45}+2++3> with 2 places free and an overflow of 3; C<ts.ip{1.0.0.1=1}>,
//! C<ts.preip{1.0.0.1=1^1.0.0.2}>
//!
//! =item Others
//! numbers: C<98>, C<99=0:5:10>
//!
//! =back
//!
//! Other arguments are:
//!
//! =item HEADER
//! boolean: begin the file with C<!> lines that say what the lines are. True by default.
//!
//! =item VERBOSE
//! boolean: with the name of the host and the time, too. False by default.
//!
//! =item BANNER
//! a text for a C<!creator> line.
//!
//! =item MULTIPACKET
//! boolean: write a line for each packet that a packet stands for, unless C<count> is a field. They share out its length
//! and its time. False by default.
//!
//! =item BAD_PACKETS
//! boolean: write a line C<!bad ...> before that of a packet whose headers are wrong or not all there. False by default.
//!
//! =item CAREFUL_TRUNC
//! boolean: packets with less data than their IP header says are bad, too. True by default.
//!
//! =item EXTRA_LENGTH
//! boolean: heed the extra length annotation, the number of bytes that were cut off. True by default.
//!
//! =back
//!
//! BINARY is not supported.
//!
//! =e
//!   ... -> ToIPSummaryDump(seen.txt, FIELDS timestamp src sport dst dport proto len) -> ...
//!
//! =a FromIPSummaryDump, ToDump

use packet::sync::lock;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use graph::arguments::Raw;
use graph::lang::{split_words, unquote};
use graph::{Class, Combine, ConfigError, Context, Element, Get, Handler, Put, Setup, TaskStatus};
use packet::{Batch, Packet};

use super::annotations::{extra_length, extra_packets, first_timestamp_ns};
use super::field::{self, Field, unknown_field};
use super::text::{date, push_quoted};
use super::view::{How, View};
use super::{MAJOR_VERSION, MINOR_VERSION};
use crate::marking::print::write_timestamp;

pub(crate) static CLASS: Class = Class {
    name: "ToIPSummaryDump",
    ports: "1/0-1",
    processing: "a/h",
    handlers: &[
        Handler::read(
            "count",
            Combine::Sum,
            "Lines written for packets.",
            &Get(|e: &mut ToIPSummaryDump| e.count.to_string()),
        ),
        Handler::read(
            "errors",
            Combine::Sum,
            "Packets whose lines could not be written.",
            &Get(|e: &mut ToIPSummaryDump| e.errors.to_string()),
        ),
        Handler::read(
            "filename",
            Combine::First,
            "The file.",
            &Get(|e: &mut ToIPSummaryDump| e.filename.clone()),
        ),
        Handler::write(
            "flush",
            "Writes out what is buffered.",
            &Put(|e: &mut ToIPSummaryDump, _, _| e.flush()),
        ),
    ],
    manual: graph::manual!("to_ip_summary_dump.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let arguments = &mut setup.arguments;
    let filename: String = arguments.required("FILENAME")?;
    let mut names = Raw("timestamp ip_src".into());
    for keyword in ["FIELDS", "CONTENTS", "DATA"] {
        names = arguments.keyword_or(keyword, names)?;
    }
    let verbose = arguments.keyword_or("VERBOSE", false)?;
    let header = arguments.keyword_or("HEADER", true)?;
    let banner: Option<String> = arguments.keyword("BANNER")?;
    let multipacket = arguments.keyword_or("MULTIPACKET", false)?;
    let complains = arguments.keyword_or("BAD_PACKETS", false)?;
    let careful_truncation = arguments.keyword_or("CAREFUL_TRUNC", true)?;
    let extra_length = arguments.keyword_or("EXTRA_LENGTH", true)?;
    let binary = arguments.keyword_or("BINARY", false)?;
    arguments.finish()?;

    let mut fields = Vec::new();
    let mut mistakes = Vec::new();
    for name in split_words(&names.0).iter().map(|name| unquote(name)) {
        match field::find(&name) {
            Some(field) => fields.push(field),
            None => mistakes.push(unknown_field(&name)),
        }
    }
    if fields.is_empty() && mistakes.is_empty() {
        mistakes.push("no contents specified: FIELDS names none".into());
    }
    if binary {
        mistakes
            .push("BINARY: the binary format is not supported; lines of text are written without it".into());
    }
    if !mistakes.is_empty() {
        return Err(mistakes.into());
    }
    let output = if setup.is_check() {
        None
    } else {
        let output = setup.shared_by_copies(|| {
            let mut output = Output::create(&filename)?;
            if header {
                let text = header_lines(&fields, banner.as_deref(), verbose);
                let written = output.writer.write_all(text.as_bytes()).and_then(|()| output.writer.flush());
                written.map_err(|error| ConfigError::new(cannot_write(&filename, &error)))?;
            }
            Ok::<_, ConfigError>(Mutex::new(output))
        })?;
        Some(output)
    };
    Ok(Box::new(ToIPSummaryDump {
        filename,
        output,
        how: How {
            careful_truncation,
            complains,
            looks_at_ip: fields.iter().any(|field| field.looks_at_ip()),
        },
        multipacket: multipacket && fields.iter().all(|field| field.name != "count"),
        extra_length,
        fields,
        pulls: setup.input_is_pull(0),
        outputs: setup.outputs(),
        text: String::new(),
        count: 0,
        errors: 0,
    }))
}

fn cannot_write(filename: &str, error: &std::io::Error) -> String {
    format!("cannot write the file '{filename}': {error}")
}

/// The lines at the beginning.
fn header_lines(fields: &[&'static Field], banner: Option<&str>, verbose: bool) -> String {
    let mut text = format!("!IPSummaryDump {MAJOR_VERSION}.{MINOR_VERSION}\n");
    if let Some(banner) = banner {
        text.push_str("!creator ");
        push_quoted(&mut text, banner.as_bytes());
        text.push('\n');
    }
    if verbose {
        let system = rustix::system::uname();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "!host {}", system.nodename().to_string_lossy());
        if let Ok(now) = SystemTime::now().duration_since(UNIX_EPOCH) {
            text.push_str("!runtime ");
            write_timestamp(&mut text, now.as_micros() as u64 * 1000);
            let _ = writeln!(text, " ({})", date(now.as_secs()));
        }
    }
    let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
    let _ = writeln!(text, "!data {}", names.join(" "));
    text
}

/// Where the lines go.
struct Output {
    writer: BufWriter<Box<dyn Write + Send>>,
    /// Somebody may be watching.
    at_once: bool,
}

impl Output {
    fn create(filename: &str) -> Result<Self, ConfigError> {
        let at_once = filename == "-";
        let target: Box<dyn Write + Send> = if at_once {
            Box::new(graph::messages::Output)
        } else {
            let file = File::create(filename);
            Box::new(file.map_err(|error| ConfigError::new(cannot_write(filename, &error)))?)
        };
        Ok(Self { writer: BufWriter::with_capacity(1 << 16, target), at_once })
    }
}

struct ToIPSummaryDump {
    filename: String,
    /// `None` when the configuration is only checked.
    output: Option<Arc<Mutex<Output>>>,
    fields: Vec<&'static Field>,
    how: How,
    multipacket: bool,
    extra_length: bool,
    pulls: bool,
    outputs: usize,
    /// The lines of a packet.
    text: String,
    count: u64,
    errors: u64,
}

impl ToIPSummaryDump {
    fn write_batch(&mut self, batch: &Batch) {
        let Some(output) = self.output.clone() else { return };
        let mut text = std::mem::take(&mut self.text);
        let mut output = lock(&output);
        for packet in batch.iter() {
            let mut result = Ok(());
            for (extra_length, timestamp_ns) in self.lines(packet) {
                text.clear();
                self.add_line(&mut text, packet, extra_length, timestamp_ns);
                result = output.writer.write_all(text.as_bytes());
                if result.is_err() {
                    break;
                }
                self.count += 1;
            }
            self.errors += u64::from(result.is_err());
        }
        if output.at_once && output.writer.flush().is_err() {
            self.errors += batch.len() as u64;
        }
        self.text = text;
    }

    /// For each line of a packet the bytes that belong to it and are not here, and its time.
    fn lines(&self, packet: &Packet) -> impl Iterator<Item = (u32, u64)> + use<> {
        let extra = if self.extra_length { extra_length(packet) } else { 0 };
        let others = if self.multipacket { extra_packets(packet) } else { 0 };
        let last_ns = packet.timestamp_ns();
        let (mut time_ns, step_ns) = match first_timestamp_ns(packet) {
            0 => (last_ns, 0),
            first => (first, (last_ns as i64).wrapping_sub(first as i64) / i64::from(others.max(1))),
        };
        let (count, bytes) = (u64::from(others) + 1, packet.len() as u64);
        let mut total = (bytes + u64::from(extra)).max(bytes * count);
        (1..=count).rev().map(move |left| {
            let length = total / left;
            total -= length;
            let time = if left == 1 { last_ns } else { time_ns };
            time_ns = time_ns.wrapping_add_signed(step_ns);
            (u32::try_from(length - bytes).unwrap_or(u32::MAX), time)
        })
    }

    fn add_line(&self, text: &mut String, packet: &Packet, extra_length: u32, timestamp_ns: u64) {
        let start = text.len();
        let mut view = View::new(packet, self.how, extra_length, timestamp_ns);
        for (place, field) in self.fields.iter().enumerate() {
            if place > 0 {
                text.push(' ');
            }
            let before = text.len();
            if (field.print)(&mut view, text).is_none() {
                text.truncate(before);
                text.push('-');
            }
        }
        text.push('\n');
        if let Some(bad) = view.bad() {
            text.insert_str(start, &format!("!bad {bad}\n"));
        }
    }

    /// Writes out what is buffered.
    fn flush(&mut self) -> Result<(), String> {
        let Some(output) = &self.output else { return Ok(()) };
        let mut output = lock(output);
        output.writer.flush().map_err(|error| cannot_write(&self.filename, &error))
    }
}

impl Element for ToIPSummaryDump {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        if self.pulls {
            cx.wake();
        }
        Ok(())
    }

    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        self.write_batch(batch);
        if self.outputs == 0 {
            cx.free(batch);
        }
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        let mut batch = cx.spare_batch();
        let burst = cx.burst();
        cx.pull(0, &mut batch, burst);
        let count = batch.len();
        self.process(cx, &mut batch);
        if self.outputs > 0 {
            cx.emit_batch(0, &mut batch);
        }
        cx.recycle(batch);
        match (count, cx.upstream_active()) {
            (0, false) => TaskStatus::Asleep,
            (0, true) => TaskStatus::Idle,
            _ => TaskStatus::Busy,
        }
    }
}
