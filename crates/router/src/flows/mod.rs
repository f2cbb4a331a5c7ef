//! `brickway flows`: which flows fill a link.
//!
//! | file | what lives there |
//! | --- | --- |
//! | this one | the command line, and the table |
//! | `key` | which flow a packet belongs to |
//! | `tally` | samples added up by flow |
//!
//! The router only samples headers, by the captures' taps and rings; all else is done here. The rate of the ports decides how many
//! packets a sample stands for, so the cost is bounded whatever the link moves.

pub(crate) mod key;
pub(crate) mod tally;

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use control::api::{CaptureQuery, CaptureRow, Client, PortFilter, PortRow, Request, Show};
use serde_json::json;

use crate::capture::places::INPUTS;
use crate::capture::recorder::Filter;
use crate::capture::{decode, filter, interrupted};
use crate::output::print;
use crate::show::{Socket, find};
use crate::table::{Align, Table, scaled};
use tally::{Tally, Way};

/// Samples a second: few enough for the router, enough for shares within a percent of a link in five seconds.
const SAMPLES: f64 = 5_000.0;
/// Bytes of each packet: its headers, of IPv6 with some extensions and tags too.
pub(crate) const HEADER_BYTES: u32 = 128;
/// The exit code of wrong usage, clap's.
const USAGE: u8 = 2;
/// How wide the table is.
const WIDTH: usize = 100;

/// Shows which flows fill a link: samples packets for some seconds and adds them up by addresses, protocol and ports.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway flows                            what comes in by all ports, for five seconds
  brickway flows eth1                       what comes in and leaves by eth1
  brickway flows eth1 dst net 10.2.0.0/16   the same of flows that tcpdump's filter selects
  brickway flows eth1 --for 30s -n 50       a longer look, more of them
  brickway flows --json | jq -r '.destination'

share is the flow's part of the bits of its port and direction, whatever the filter selects. One packet of so many is sampled, at random,
about 5,000 a second; the last line has how many. A share p of n samples is off by sqrt(p (1 - p) / n) as a rule.
Where the workers forward (show ports), packets to the router itself, and others that its driver leaves to Linux, are not seen.

Exit codes: 0 done, 1 the router refuses, or ended it, 2 wrong usage, 4 no router answers at the socket.")]
pub(crate) struct FlowsArguments {
    /// A port, else what comes in by all of them; and a filter (man pcap-filter)
    #[arg(value_name = "PORT [FILTER]", add = ArgValueCandidates::new(crate::completion::ports))]
    words: Vec<String>,
    /// How long to look, 1s to 3600s
    #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = time)]
    duration: Duration,
    /// Flows that are printed
    #[arg(short = 'n', long = "count", value_name = "N", default_value = "10")]
    count: usize,
    /// Print one JSON object a flow, and one with the sums at the end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: Socket,
}

fn time(text: &str) -> Result<Duration, String> {
    let seconds = text.strip_suffix('s').unwrap_or(text).parse().ok();
    let seconds = seconds.filter(|seconds| (1.0..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "not a time; expected 1s to 3600s".to_owned())
}

pub(crate) fn flows(arguments: &FlowsArguments) -> Result<ExitCode> {
    let (port, filter) = arguments.words.split_first().unzip();
    let filter = filter::compile(&filter.map_or_else(String::new, |words| words.join(" ")))?;
    let filter = filter.as_ref().map(Filter::new).transpose().map_err(anyhow::Error::msg)?;
    let mut client = match find(&arguments.socket, true)? {
        Ok(client) => client,
        Err(code) => return Ok(code),
    };
    let one_in = match rate(&mut client, port)? {
        Ok(rate) => one_in(rate),
        Err(problem) => {
            graph::note!("brickway: {problem}");
            return Ok(ExitCode::from(USAGE));
        }
    };
    let query = CaptureQuery {
        what: Some(port.map_or(INPUTS, String::as_str).to_owned()),
        bytes: Some(HEADER_BYTES),
        sample: Some(one_in),
        ..CaptureQuery::default()
    };
    let is_interrupted = interrupted()?;
    let answer = client.ask(&Request::Show(Show::Capture(query)))?;
    let begin = Instant::now();
    graph::note!("brickway: sampling for {} s; Ctrl-C ends it", arguments.duration.as_secs_f64());
    let (mut tally, mut lost, mut problem) = (Tally::default(), 0, None);
    for row in answer {
        let row = row.map_err(anyhow::Error::from);
        match row.and_then(|row| serde_json::from_str(&row).context("the router's answer cannot be read")) {
            Ok(CaptureRow::Packet(packet)) => {
                tally.add(&packet, &decode::bytes(&packet.data), filter.as_ref())
            }
            Ok(CaptureRow::Counts { interfaces }) => lost = interfaces.iter().map(|count| count.lost).sum(),
            Ok(CaptureRow::End { reason }) => problem = Some(format!("sampling has ended: {reason}")),
            Err(error) => problem = Some(format!("{error:#}")),
        }
        if begin.elapsed() >= arguments.duration || is_interrupted.load(Ordering::SeqCst) {
            break;
        }
    }
    let look = Look { tally, seconds: begin.elapsed().as_secs_f64(), one_in, lost, count: arguments.count };
    print(&if arguments.json { look.json() } else { look.table(port.map(String::as_str)) });
    let Some(problem) = problem else { return Ok(ExitCode::SUCCESS) };
    graph::note!("brickway: {problem}");
    Ok(ExitCode::FAILURE)
}

/// Returns the rate of samples, one packet of so many, where so many packets a second pass.
pub(crate) fn one_in(packets_per_second: f64) -> u32 {
    (packets_per_second / SAMPLES).ceil().max(1.0) as u32
}

/// Returns the packets a second that the ports move now. A port that the router lacks is a problem in words.
fn rate(client: &mut Client, port: Option<&String>) -> Result<Result<f64, String>> {
    let rows = client.ask(&Request::Show(Show::Ports(PortFilter::default())))?;
    let rows = rows.map(|row| serde_json::from_str(&row?).context("the router's answer cannot be read"));
    let rows: Vec<PortRow> = rows.collect::<Result<_>>()?;
    if let Some(port) = port.filter(|&port| rows.iter().all(|row| row.name != *port)) {
        let names: Vec<String> = rows.into_iter().map(|row| row.name).collect();
        let expected = names.join(", ");
        return Ok(Err(format!(
            "flows: no port '{port}'; expected one of {expected}, and a filter behind it"
        )));
    }
    let rate_of = |row: PortRow| match port {
        None => row.rx.packets_per_second,
        Some(port) if *port == row.name => row.rx.packets_per_second + row.tx.packets_per_second,
        Some(_) => 0.0,
    };
    Ok(Ok(rows.into_iter().map(rate_of).sum()))
}

/// What was seen.
struct Look {
    tally: Tally,
    seconds: f64,
    one_in: u32,
    lost: u64,
    /// Flows that are printed.
    count: usize,
}

impl Look {
    fn table(&self, port: Option<&str>) -> String {
        let mut text = String::new();
        if self.tally.samples() == 0 {
            let whose = port.map_or_else(|| "the ports".to_owned(), |port| format!("port {port}"));
            return format!("{whose}: no packet passed in {:.1} s\n", self.seconds);
        }
        let columns = [
            ("share", Align::Right),
            ("bit/s", Align::Right),
            ("packets/s", Align::Right),
            ("port", Align::Left),
            ("flow", Align::Left),
        ];
        let mut table = Table::new(&columns).folded(Some(WIDTH));
        let mut row = |way: &Way, bytes: f64, packets: f64, flow: String| {
            let rates = [bytes * 8.0, packets].map(|number| scaled(number / self.seconds));
            let [bits, packets] = rates.map(|rate| rate.trim_end().to_owned());
            let of_all = 100.0 * bytes / self.tally.bytes(way);
            table.row([format!("{of_all:.1}%"), bits, packets, way.to_string(), flow]);
        };
        let top = self.tally.top(self.count);
        for flow in &top {
            row(
                &flow.way,
                flow.bytes,
                flow.packets,
                flow.flow.map_or_else(String::new, |flow| flow.to_string()),
            );
        }
        for (way, rest) in self.tally.beyond(&top) {
            let plural = if rest.flows == 1 { "" } else { "s" };
            row(&way, rest.bytes, rest.packets, format!("{} more flow{plural}", rest.flows));
        }
        text += &table.render();
        let sums = self.tally.ways().map(|way| {
            let [bits, packets] =
                [self.tally.bytes(way) * 8.0, self.tally.packets(way)].map(|sum| scaled(sum / self.seconds));
            format!("{way} {bits}bit/s, {packets}packets/s")
        });
        text += &format!("\nin all: {}\n", sums.collect::<Vec<_>>().join("; "));
        // The router samples less often where too much comes.
        let packets: f64 = self.tally.ways().map(|way| self.tally.packets(way)).sum();
        let which = match self.one_in.max((packets / self.tally.samples() as f64).round() as u32) {
            1 => "all of them".to_owned(),
            many => format!("one of {many} at random"),
        };
        text += &format!("{} packets looked at in {:.1} s, {which}", self.tally.samples(), self.seconds);
        match self.lost {
            0 => text + "\n",
            lost => text + &format!("; {lost} samples lost: they came too fast, so shares are less exact\n"),
        }
    }

    fn json(&self) -> String {
        let mut text = String::new();
        for row in self.tally.rows(self.count, self.seconds) {
            text += &format!("{}\n", json!(row));
        }
        let sums = json!({ "samples": self.tally.samples(), "seconds": self.seconds, "one_in": self.one_in, "lost": self.lost });
        text + &format!("{sums}\n")
    }
}
