//! `brickway trace`: what each element does to some packets.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use control::api::{CaptureRow, Request, SeenPacket, Show, TraceQuery};
use serde::Serialize;

use super::decode::{self, Headers};
use super::places::HOST;
use super::{filter, interrupted};
use crate::output::print;
use crate::show::{Socket, find};

/// Follows packets through the graph of a running router and prints what each element did to them: what changed, which output they
/// took, where they ended.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway trace 1                              the next packet that comes in
  brickway trace 3 icmp --from eth1             three pings that come in by eth1
  brickway trace 1 'host 10.0.2.2' --json | jq '.element, .changes'

A filter is one of tcpdump's (man pcap-filter) and selects packets where they come in. All elements work one by one meanwhile, so the
router is slower, and ports that forward in the kernel hand their packets to the workers. Copies of a packet (Tee, ICMP errors) are
not followed. Only root and the group that may change the router may trace: [control] write_group.

Exit codes: 0 done, 1 the router refuses, or ended the trace, 2 wrong usage, 4 no router answers at the socket.")]
pub(crate) struct TraceArguments {
    /// How many packets, 1 to 256
    #[arg(value_name = "N", value_parser = count)]
    count: u32,
    /// Those that this selects
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
    /// Those that come in by this port
    #[arg(long, value_name = "PORT", add = ArgValueCandidates::new(crate::completion::ports))]
    from: Option<String>,
    /// Print one JSON object for each place that a packet passes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: Socket,
}

/// Reads a number of packets.
fn count(text: &str) -> Result<u32, String> {
    let count = text.parse().ok().filter(|count| (1..=TraceQuery::MOST).contains(count));
    let most = TraceQuery::MOST;
    count.ok_or_else(|| {
        format!("expected a number of packets, 1 to {most}, before the filter: brickway trace 1 icmp")
    })
}

/// A packet that is followed.
#[derive(Default)]
struct Way {
    /// What has come too early.
    waiting: BTreeMap<u32, SeenPacket>,
    /// How many places are printed.
    steps: u32,
    last: Option<SeenPacket>,
    text: String,
}

/// A place, and what changed since the one before.
#[derive(Serialize)]
struct Step<'a> {
    #[serde(flatten)]
    packet: &'a SeenPacket,
    changes: &'a [String],
}

impl Way {
    /// Takes a place of the packet's way; whether it is the last one.
    fn add(&mut self, packet: SeenPacket, as_json: bool) -> bool {
        self.waiting.insert(packet.step, packet);
        let mut is_over = false;
        while let Some(packet) = self.waiting.remove(&self.steps) {
            is_over |= self.go_on(packet, as_json);
        }
        is_over
    }

    fn go_on(&mut self, packet: SeenPacket, as_json: bool) -> bool {
        self.steps = packet.step + 1;
        let changes = self.last.as_ref().map_or_else(Vec::new, |last| changes(last, &packet));
        if as_json {
            let step = Step { packet: &packet, changes: &changes };
            // A packet has names for keys, and nothing else can fail.
            let text = serde_json::to_string(&step).unwrap_or_default();
            self.text += &(text + "\n");
        } else {
            self.describe(&packet, &changes);
        }
        let is_over = matches!(packet.verdict.as_str(), "dropped" | "sent" | "ended");
        self.last = Some(packet);
        is_over
    }

    fn describe(&mut self, packet: &SeenPacket, changes: &[String]) {
        let SeenPacket { number, element, class, length, .. } = packet;
        // Writing to a string does not fail.
        if self.last.is_none() {
            let headers = Headers::of(packet.is_ethernet, &decode::bytes(&packet.data)).line();
            let time = decode::time(packet.time_ns);
            let _ = writeln!(self.text, "packet {number}: {headers}, {length} bytes, {time}");
        }
        let output = packet.output.map_or(String::new(), |output| format!("[{output}]"));
        let thread = match &self.last {
            Some(last) if last.worker != packet.worker => format!(" (thread {})", packet.worker),
            None => format!(" (thread {})", packet.worker),
            Some(_) => String::new(),
        };
        let place = format!("{element} :: {class} {output}{thread}");
        let line = format!("  {:<48} {}", place.trim_end(), changes.join(", "));
        self.text += line.trim_end();
        self.text += "\n";
        let next = packet.next.as_deref().unwrap_or_default();
        match packet.verdict.as_str() {
            "dropped" => {
                let _ = writeln!(self.text, "  dropped by {element}: {}", packet.reason);
            }
            "sent" if packet.interface.starts_with(HOST) => {
                let _ = writeln!(self.text, "  handed to Linux by {next}");
            }
            "sent" => {
                let _ = writeln!(self.text, "  sent by {}", packet.interface);
            }
            "ended" => {
                let _ = writeln!(self.text, "  ended in {next}");
            }
            "punted" => {
                let _ = writeln!(self.text, "  punted: {next} hands it to the slow thread");
            }
            _ => {}
        }
    }

    /// What was said of the packet, when nothing more comes.
    fn end(mut self, as_json: bool) -> String {
        // Places that were lost leave a gap.
        for packet in std::mem::take(&mut self.waiting).into_values() {
            self.go_on(packet, as_json);
        }
        let last = self.last.as_ref().filter(|last| matches!(last.verdict.as_str(), "passed" | "punted"));
        if let Some(next) = last.and_then(|last| last.next.as_ref()).filter(|_| !as_json) {
            let _ = writeln!(self.text, "  in {next}, which has not sent it on: it keeps it, or used it up");
        }
        self.text
    }
}

/// What one element did to a packet, in words.
fn changes(before: &SeenPacket, after: &SeenPacket) -> Vec<String> {
    let mut changes = Vec::new();
    let [old, new] = [before, after].map(|packet| decode::bytes(&packet.data));
    let stripped = i64::from(after.offset) - i64::from(before.offset);
    match stripped {
        0 => {}
        1.. => changes.push(format!("{stripped} bytes stripped")),
        _ => changes.push(format!("{} bytes put in front", -stripped)),
    }
    let end = |packet: &SeenPacket| i64::from(packet.offset) + i64::from(packet.length);
    match end(after) - end(before) {
        0 => {}
        more @ 1.. => changes.push(format!("{more} bytes longer at the end")),
        less => changes.push(format!("{} bytes shorter at the end", -less)),
    }
    let [old_headers, new_headers] =
        [(before, &old), (after, &new)].map(|(packet, data)| Headers::of(packet.is_ethernet, data));
    let mut headers = new_headers.changes(&old_headers);
    if before.is_ethernet != after.is_ethernet {
        // Stripping a header does not change it.
        headers.retain(|change| !change.starts_with("no "));
    }
    let changed =
        (after.offset.max(before.offset)..).zip(bytes_from(&old, before, after)).filter(|(_, (a, b))| a != b);
    let changed = changed.count();
    if headers.is_empty() && changed > 0 {
        headers.push(format!("{changed} bytes changed"));
    }
    changes.extend(headers);
    changes.extend(annotations(&decode::bytes(&before.annotations), &decode::bytes(&after.annotations)));
    changes
}

/// The bytes that both have, in pairs.
fn bytes_from(old: &[u8], before: &SeenPacket, after: &SeenPacket) -> Vec<(u8, u8)> {
    let new = decode::bytes(&after.data);
    let begin = before.offset.max(after.offset);
    let from = |data: &[u8], packet: &SeenPacket| {
        data.get((begin - packet.offset) as usize..).unwrap_or_default().to_vec()
    };
    from(old, before).into_iter().zip(from(&new, after)).collect()
}

/// What annotations became others. Those that elements share have names; the others have their place.
fn annotations(before: &[u8], after: &[u8]) -> Vec<String> {
    let mut changes = Vec::new();
    let part = |bytes: &[u8], at: usize, length: usize| bytes.get(at..at + length).map(<[u8]>::to_vec);
    let mut compare = |at: usize, length: usize, say: &dyn Fn(&[u8]) -> String| {
        let (old, new) = (part(before, at, length), part(after, at, length));
        if let (Some(_), Some(new)) = (old.as_ref().filter(|old| Some(*old) != new.as_ref()), &new) {
            changes.push(say(new));
        }
    };
    compare(0, 16, &|new| match (new.first_chunk::<4>(), new.first_chunk::<16>()) {
        (Some(_), Some(&all)) if all[4..].iter().any(|&byte| byte != 0) => {
            format!("to be sent to {}", Ipv6Addr::from(all))
        }
        (Some(&first), _) => format!("to be sent to {}", Ipv4Addr::from(first)),
        (None, _) => String::new(),
    });
    compare(16, 1, &|new| format!("paint {}", new[0]));
    let plain = |at: usize| {
        move |new: &[u8]| {
            format!("annotation {at}: {}", new.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        }
    };
    compare(17, 3, &plain(17));
    for at in (20..48).step_by(4) {
        compare(at, 4, &plain(at));
    }
    changes
}

pub(crate) fn trace(arguments: &TraceArguments) -> Result<ExitCode> {
    let filter = filter::compile(&arguments.filter.join(" "))?;
    let query = TraceQuery { count: arguments.count, from: arguments.from.clone(), filter };
    let mut client = match find(&arguments.socket, true)? {
        Ok(client) => client,
        Err(code) => return Ok(code),
    };
    let is_interrupted = interrupted()?;
    let mut ways: BTreeMap<u64, Way> = BTreeMap::new();
    let mut problem = None;
    let answer = client.ask(&Request::Show(Show::Trace(query)))?;
    graph::note!("brickway: waiting for packets; Ctrl-C ends it");
    for row in answer {
        let row = row.map_err(anyhow::Error::from);
        let parsed =
            row.and_then(|row| serde_json::from_str(&row).context("the router's answer cannot be read"));
        match parsed {
            Ok(CaptureRow::Packet(packet)) => {
                let number = packet.number;
                if ways.entry(number).or_default().add(*packet, arguments.json)
                    && let Some(way) = ways.remove(&number)
                {
                    print(&way.end(arguments.json));
                }
            }
            Ok(CaptureRow::Counts { .. }) => {}
            Ok(CaptureRow::End { reason }) => problem = Some(format!("the trace has ended: {reason}")),
            Err(error) => problem = Some(format!("{error:#}")),
        }
        if is_interrupted.load(Ordering::SeqCst) {
            break;
        }
    }
    ways.into_values().for_each(|way| print(&way.end(arguments.json)));
    let Some(problem) = problem else { return Ok(ExitCode::SUCCESS) };
    graph::note!("brickway: {problem}");
    Ok(ExitCode::FAILURE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IP: &str = "450000540000400040010000";
    const REST: &str = "0a0001020a0002020800f7ff00050001";

    fn packet(step: u32, element: &str, next: &str, data: &str, offset: u32) -> SeenPacket {
        SeenPacket {
            number: 1,
            step,
            element: element.into(),
            class: "Class".into(),
            output: Some(0),
            next: Some(next.into()),
            verdict: "passed".into(),
            offset,
            length: (data.len() / 2) as u32,
            data: data.into(),
            annotations: "00".repeat(48),
            ..SeenPacket::default()
        }
    }

    #[test]
    fn what_an_element_did_is_said_in_words() {
        let ethernet = format!("0200000001010200000001020800{IP}{REST}");
        let whole = SeenPacket { is_ethernet: true, ..packet(0, "in", "strip", &ethernet, 256) };
        let stripped = packet(1, "strip", "ttl", &format!("{IP}{REST}"), 270);
        assert_eq!(changes(&whole, &stripped), ["14 bytes stripped"]);
        let less =
            packet(2, "ttl", "out", &format!("4500005400004000 3f01 0100{REST}").replace(' ', ""), 270);
        assert_eq!(changes(&stripped, &less), ["TTL 64 -> 63"]);
        let framed = SeenPacket { is_ethernet: true, ..packet(3, "encap", "out", &ethernet, 256) };
        let expected = ["14 bytes put in front", "to 02:00:00:00:01:01", "from 02:00:00:00:01:02"];
        assert_eq!(changes(&stripped, &framed), expected);
        let painted = SeenPacket {
            annotations: format!(
                "0a000202{}07{}0a0b0c0d{}",
                "00".repeat(12),
                "00".repeat(3),
                "00".repeat(24)
            ),
            ..stripped.clone()
        };
        let expected = ["to be sent to 10.0.2.2", "paint 7", "annotation 20: 0a0b0c0d"];
        assert_eq!(changes(&stripped, &painted), expected);
        let odd = packet(2, "x", "y", &format!("4500005400014000{}{REST}", "40010000"), 270);
        assert_eq!(changes(&stripped, &odd), ["1 bytes changed"]);
    }

    #[test]
    fn places_that_come_in_another_order_are_printed_in_that_of_the_way() {
        let data = format!("{IP}{REST}");
        let mut way = Way::default();
        let sent = SeenPacket {
            verdict: "sent".into(),
            interface: "eth2".into(),
            ..packet(2, "c", "out", &data, 270)
        };
        assert!(!way.add(packet(1, "b", "c", &data, 270), false));
        assert!(!way.add(packet(0, "a", "b", &data, 270), false));
        assert!(way.add(sent, false));
        let text = way.end(false);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert!(lines[0].starts_with("packet 1: 10.0.1.2 > 10.0.2.2 ICMP echo request"), "{text}");
        assert!(lines[1].starts_with("a :: Class [0]") && lines[2].starts_with("b ::"), "{text}");
        assert_eq!(lines[4..], ["sent by eth2"], "{text}");
    }

    #[test]
    fn a_packet_that_does_not_come_out_is_said_to_be_there() {
        let mut way = Way::default();
        way.add(packet(0, "a", "queue", &format!("{IP}{REST}"), 270), false);
        assert!(way.end(false).contains("in queue, which has not sent it on"));
    }
}
