//! `brickway capture` and `brickway trace`: packets on their way through a running router, for those whose `tcpdump` sees nothing
//! because the fast path takes the packets before Linux.
//!
//! | file | what lives there |
//! | --- | --- |
//! | this one | `brickway capture`: the command line, lines for people |
//! | `trace` | `brickway trace` |
//! | `extcap` | `brickway extcap`: the same for Wireshark |
//! | `filter` | tcpdump's filters, compiled by libpcap |
//! | `decode` | headers in words |
//! | `pcapng` | the file that is written |
//! | `places` | the router's side: where packets are captured |
//! | `sampler` | the router's side: which packets a sample has |
//! | `recorder` | the router's side: what workers do with packets that they see, and the rings to the thread that sends them |
//!
//! The router's answers are made in `run/capture`. A graph that nobody watches has no taps and no tests for any
//! (`graph::context`).

pub(crate) mod decode;
mod extcap;
pub(crate) mod filter;
mod pcapng;
pub(crate) mod places;
pub(crate) mod recorder;
pub(crate) mod sampler;
mod trace;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use control::api::{CaptureCounts, CaptureQuery, CaptureRow, Request, SeenPacket, Show};
use graph::context::{Observer, Watched};
use graph::lang::FlatConfig;

use crate::interrupt::on_interrupt;
use crate::output::print;
use crate::show::{Socket, find};
use crate::table::thousands;
use decode::Headers;
pub(crate) use extcap::{ExtcapArguments, extcap, is_extcap};
pub(crate) use trace::{TraceArguments, trace};

/// Captures packets of a running router, as tcpdump does: what comes in and leaves by its ports, what passes between elements,
/// what is dropped and why. Ports that forward in the kernel hand their packets to the router's workers meanwhile.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway capture                              all ports
  brickway capture eth1 icmp and host 10.0.1.2  one port, and what tcpdump's filter selects
  brickway capture all 'tcp port 80' -c 10      ten packets
  brickway capture drops                        what is dropped, by which element, and why
  brickway capture punts                        what leaves the fast path
  brickway capture out2/ttl.1                   what leaves the element 'out2/ttl' by its output 1 (show elements)
  brickway capture eth1 -w eth1.pcapng          a file for tcpdump -r and Wireshark
  brickway capture -w - | wireshark -k -i -     Wireshark; or link it into its extcap folder: brickway extcap --help

Linux's packets of a port are captured too: those to the router itself, those that Linux forwards (\"left to Linux\"), and those that
it sends (\"sent by Linux\"). Linux may have merged them. On ports with driver af_packet they are not captured; tcpdump on the
interface sees them. A client that is too slow loses packets, which are counted at the end. While a port is captured, workers take
what the kernel forwarded: such packets may be overtaken by Linux's of the same flow, and workers that cannot keep up drop some
(brickway show drops). Times are in UTC.
A capture ends when the router reads its settings or its configuration again. Only root and the group that may change the router
may capture: [control] write_group.

Exit codes: 0 done, 1 the router refuses, or ended the capture, 2 wrong usage, 4 no router answers at the socket.")]
pub(crate) struct CaptureArguments {
    /// PORT, ELEMENT, ELEMENT.OUTPUT, all (all ports, as without it), inputs (what comes in by them), drops or punts; and a filter (man pcap-filter)
    #[arg(value_name = "WHAT [FILTER]", add = ArgValueCandidates::new(crate::completion::places))]
    words: Vec<String>,
    /// End after so many packets
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Keep so many bytes of a packet, 64 at least (default: all that a frame of the router holds)
    #[arg(short = 's', long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(64..))]
    snaplen: Option<u32>,
    /// Write a pcapng file, - for standard output
    #[arg(short = 'w', long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Print one JSON object a packet, and one with counts at the end
    #[arg(long, conflicts_with = "write")]
    json: bool,
    #[command(flatten)]
    socket: Socket,
}

/// Where packets go.
enum Sink {
    Lines,
    Json,
    File(pcapng::Writer<Box<dyn Write>>),
}

impl Sink {
    /// A pcapng file; standard output for `-`.
    fn file(path: &Path) -> Result<Self> {
        let to: Box<dyn Write> = if path == Path::new("-") {
            Box::new(BufWriter::new(io::stdout()))
        } else {
            // Packets are for nobody else.
            let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
            Box::new(BufWriter::new(file.with_context(|| format!("{}: cannot be written", path.display()))?))
        };
        Ok(Self::File(pcapng::Writer::new(to)?))
    }

    fn packet(&mut self, packet: &SeenPacket, row: &str) -> io::Result<()> {
        match self {
            Self::Lines => print(&line(packet)),
            Self::Json => print(&format!("{row}\n")),
            Self::File(writer) => writer.packet(packet)?,
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Self::File(writer) = self { writer.flush() } else { Ok(()) }
    }

    fn end(self, counts: &[CaptureCounts]) -> io::Result<()> {
        match self {
            Self::Lines => Ok(()),
            Self::Json => {
                print(&(serde_json::to_string(&CaptureRow::Counts { interfaces: counts.to_vec() })? + "\n"));
                Ok(())
            }
            Self::File(writer) => writer.end(counts),
        }
    }
}

/// A packet in a line.
fn line(packet: &SeenPacket) -> String {
    let headers = Headers::of(packet.is_ethernet, &decode::bytes(&packet.data)).line();
    let what = match packet.verdict.as_str() {
        "dropped" => format!(" dropped by {} :: {}: {}", packet.element, packet.class, packet.reason),
        "punted" => format!(" punted by {} :: {}", packet.element, packet.class),
        verdict if verdict.ends_with("Linux") => format!(" {verdict}"),
        _ => String::new(),
    };
    let SeenPacket { time_ns, interface, direction, length, .. } = packet;
    let space = if direction.is_empty() { "" } else { " " };
    format!("{} {interface}{space}{direction:<3} {headers}, {length} bytes{what}\n", decode::time(*time_ns))
}

pub(crate) fn capture(arguments: &CaptureArguments) -> Result<ExitCode> {
    let (what, filter) = arguments.words.split_first().unzip();
    let filter = filter::compile(&filter.map_or_else(String::new, |words| words.join(" ")))?;
    let query = CaptureQuery {
        what: what.cloned(),
        count: arguments.count,
        bytes: arguments.snaplen,
        filter,
        sample: None,
    };
    let sink = || match &arguments.write {
        Some(path) => Sink::file(path),
        None => Ok(if arguments.json { Sink::Json } else { Sink::Lines }),
    };
    receive(&arguments.socket, query, sink)
}

/// Asks for packets and writes them until the end, the operator's or the router's.
fn receive(socket: &Socket, query: CaptureQuery, sink: impl FnOnce() -> Result<Sink>) -> Result<ExitCode> {
    let mut client = match find(socket, true)? {
        Ok(client) => client,
        Err(code) => return Ok(code),
    };
    let is_interrupted = interrupted()?;
    // Nothing is written where the router refuses.
    let answer = client.ask(&Request::Show(Show::Capture(query)))?;
    let mut sink = sink()?;
    graph::note!("brickway: capturing; Ctrl-C ends it");
    let (mut counts, mut problem) = (Vec::new(), None);
    let mut packets: HashMap<String, u64> = HashMap::new();
    for row in answer {
        let received = row.map_err(anyhow::Error::from).and_then(|row| {
            let parsed = serde_json::from_str(&row).context("the router's answer cannot be read")?;
            Ok((row, parsed))
        });
        let written = match received {
            Ok((row, CaptureRow::Packet(packet))) => {
                *packets.entry(packet.interface.clone()).or_default() += 1;
                sink.packet(&packet, &row)
            }
            Ok((_, CaptureRow::Counts { interfaces })) => {
                counts = interfaces;
                sink.flush()
            }
            Ok((_, CaptureRow::End { reason })) => {
                problem = Some(format!("the capture has ended: {reason}"));
                Ok(())
            }
            Err(error) => {
                problem = Some(format!("{error:#}"));
                Ok(())
            }
        };
        match written {
            Ok(()) => {}
            // Who reads it has gone, as `head` does.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            Err(error) => {
                let seen = thousands(packets.values().sum());
                return Err(error).context(format!("packets cannot be written, after {seen} of them"));
            }
        }
        if is_interrupted.load(Ordering::SeqCst) {
            break;
        }
    }
    // Some may be on their way that are not waited for.
    for count in &mut counts {
        count.captured = packets.get(&count.interface).copied().unwrap_or(0);
    }
    match sink.end(&counts) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        other => other.context("packets cannot be written")?,
    }
    let sum = |number: fn(&CaptureCounts) -> u64| counts.iter().map(number).sum::<u64>();
    let (captured, lost) = (sum(|count| count.captured), sum(|count| count.lost));
    graph::note!("brickway: {captured} packets captured, {lost} lost because the reader was too slow");
    for count in counts.iter().filter(|count| count.left_to_linux + count.sent_by_linux > 0) {
        let because = if count.left_because.is_empty() { "" } else { &format!(" ({})", count.left_because) };
        graph::note!(
            "brickway: {0}: not captured, as Linux has them: {1} packets that came in meanwhile{because}, {2} that Linux sent; \
             `tcpdump -i {0}` sees such packets",
            count.interface,
            count.left_to_linux,
            count.sent_by_linux
        );
    }
    let Some(problem) = problem else { return Ok(ExitCode::SUCCESS) };
    graph::note!("brickway: {problem}");
    Ok(ExitCode::FAILURE)
}

/// Becomes true at Ctrl-C. Rows with counts come often, so nobody waits long until it is seen.
pub(crate) fn interrupted() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::<AtomicBool>::default();
    let set = interrupted.clone();
    on_interrupt(move || set.store(true, Ordering::SeqCst)).context("cannot catch signals")?;
    Ok(interrupted)
}

/// What a capture of all ports with a filter that selects nothing does to one copy of a graph, for benches.
///
/// # Errors
/// The configuration has no ports.
pub fn idle_capture(config: &FlatConfig) -> Result<(Watched, Box<dyn Observer>), String> {
    let places = Arc::new(places::Places::of(config, None)?);
    let filter = filter::compile("ether proto 0x88b5").map_err(|error| error.to_string())?;
    let filter = filter.as_ref().map(recorder::Filter::new).transpose()?;
    let (recorder, _) = recorder::Records::new(2_048, &recorder::counts(&places));
    Ok((places.watched(), Box::new(recorder::Camera { places, sampler: None, filter, recorder })))
}

/// What samples for collectors do to one copy of a graph, for benches: one packet of `rate` that comes in. Nobody takes them, so the rings
/// run full; a sample that finds no room is not copied.
///
/// # Errors
/// The configuration has no ports.
pub fn idle_samples(config: &FlatConfig, rate: u32) -> Result<(Watched, Box<dyn Observer>), String> {
    let places = Arc::new(places::Places::of(config, Some(places::INPUTS))?);
    let sampler = Some(sampler::Sampler::new(rate, places.spots.len()));
    let (recorder, _) = recorder::Records::new(128, &recorder::counts(&places));
    Ok((places.watched(), Box::new(recorder::Camera { places, sampler, filter: None, recorder })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_where_and_what_became_of_it() {
        let packet = SeenPacket {
            interface: "eth1".into(),
            direction: "in".into(),
            element: "ttl".into(),
            class: "DecIPTTL".into(),
            verdict: "passed".into(),
            length: 84,
            data: "450000540000400001010000".to_owned() + "0a000102" + "0a000202" + "0800f7ff00050001",
            ..SeenPacket::default()
        };
        let text = "10.0.1.2 > 10.0.2.2 ICMP echo request id 5 seq 1 ttl 1, 84 bytes";
        assert_eq!(line(&packet), format!("00:00:00.000000000 eth1 in  {text}\n"));
        let dropped = SeenPacket {
            interface: "drops".into(),
            direction: String::new(),
            verdict: "dropped".into(),
            reason: "TTL expired".into(),
            ..packet
        };
        let end = "dropped by ttl :: DecIPTTL: TTL expired";
        assert_eq!(line(&dropped), format!("00:00:00.000000000 drops    {text} {end}\n"));
    }
}
