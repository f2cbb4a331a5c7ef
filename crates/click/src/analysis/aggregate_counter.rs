//! =c
//! AggregateCounter(I<keywords> BYTES, IP_BYTES, MULTIPACKET, EXTRA_LENGTH, BANNER, AGGREGATE_STOP, AGGREGATE_FREEZE, AGGREGATE_CALL, COUNT_STOP, COUNT_FREEZE, COUNT_CALL)
//!
//! =s aggregates
//! counts packets by their aggregate annotation
//!
//! =d
//! Each value of the aggregate annotation has a count of its own. A frozen AggregateCounter goes on
//! with the counts that there are and begins no new ones. Packets that come in by input 1 are
//! always treated so. Pushed packets that were not counted leave by output 1 if that is connected.
//!
//! Keyword arguments are:
//!
//! =over 8
//!
//! =item BYTES
//!
//! Boolean. Counts bytes instead of packets. False by default.
//!
//! =item IP_BYTES
//!
//! Boolean. With BYTES, leaves out the bytes before the network header. False by default.
//!
//! =item MULTIPACKET
//!
//! Boolean. Counts a packet that stands for several as these. True by default.
//!
//! =item EXTRA_LENGTH
//!
//! Boolean. With BYTES, counts bytes that belong to a packet and are not there. True by default.
//!
//! =item BANNER
//!
//! The first line of the files that it writes.
//!
//! =item AGGREGATE_STOP, AGGREGATE_FREEZE, AGGREGATE_CALL
//!
//! When as many values have counts already and another one comes, the router stops, the counter
//! freezes, or a handler is written (C<AGGREGATE_CALL 100 s.run>). At most one of them.
//!
//! =item COUNT_STOP, COUNT_FREEZE, COUNT_CALL
//!
//! The same when all counts together reach this number. At most one of them.
//!
//! =back
//!
//! With several workers each counts for itself, and stops, freezes and calls by its own counts; files have all together.
//!
//! =e
//!   FromIPSummaryDump(-, STOP true) -> ac :: AggregateCounter -> Discard;
//!   DriverManager(pause, write ac.write_text_file -);
//!
//! =a AggregateIPFlows, FromIPSummaryDump

use packet::sync::lock;
use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, Mutex};

use graph::arguments::HandlerCall;
use graph::lang::{next_word, unquote};
use graph::messages::Output;
use graph::{
    Arguments, Class, Combine, ConfigError, Context, Element, Field, FromArgument, Get, Handler, Put, Setup,
};
use packet::{Annotations, Batch, Packet};

use crate::marking::truncate::EXTRA_LENGTH;

pub(crate) static CLASS: Class = Class {
    name: "AggregateCounter",
    capabilities: &[graph::KEEPS_ALL],
    ports: "1-2/1-2",
    handlers: HANDLERS,
    manual: graph::manual!("aggregate_counter.rs"),
    make,
    ..Class::DEFAULT
};

/// Counts by value.
type Counts = HashMap<u32, u32>;

/// What the copies that write a file together have left so far.
#[derive(Default)]
struct Gathered {
    counts: Counts,
    copies: usize,
}

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let arguments = &mut setup.arguments;
    let bytes = arguments.keyword_or("BYTES", false)?;
    let ip_bytes = arguments.keyword_or("IP_BYTES", false)?;
    let multipacket = arguments.keyword_or("MULTIPACKET", true)?;
    let extra_length = arguments.keyword_or("EXTRA_LENGTH", true)?;
    let banner = arguments.keyword_or("BANNER", String::new())?;
    let by_values = Limit::read(arguments, ["AGGREGATE_STOP", "AGGREGATE_FREEZE", "AGGREGATE_CALL"])?;
    let by_count = Limit::read(arguments, ["COUNT_STOP", "COUNT_FREEZE", "COUNT_CALL"])?;
    arguments.finish()?;
    Ok(Box::new(AggregateCounter {
        bytes,
        ip_bytes,
        multipacket,
        extra_length,
        banner,
        counts: Counts::new(),
        count: 0,
        frozen: false,
        active: true,
        by_values,
        by_count,
        gathered: setup.shared_by_copies(|| Ok::<_, ConfigError>(Mutex::default()))?,
        copies: setup.copy().count(),
    }))
}

/// What happens at a number.
#[derive(Clone, Debug)]
struct Limit {
    at: u64,
    act: Act,
}

#[derive(Clone, Debug)]
enum Act {
    Stop,
    Freeze,
    Call(HandlerCall),
}

impl FromArgument for Limit {
    const EXPECTED: &'static str = "number and handler to write, as in '100 stop'";
    fn from_argument(text: &str) -> Option<Self> {
        let (number, call) = next_word(text);
        Some(Self { at: u64::from_argument(number)?, act: Act::Call(HandlerCall::from_argument(call)?) })
    }
}

impl Limit {
    fn read(arguments: &mut Arguments, names: [&'static str; 3]) -> Result<Option<Self>, ConfigError> {
        let stop = arguments.keyword::<u64>(names[0])?.map(|at| Self { at, act: Act::Stop });
        let freeze = arguments.keyword::<u64>(names[1])?.map(|at| Self { at, act: Act::Freeze });
        let call = arguments.keyword::<Self>(names[2])?;
        let mut said: Vec<Self> = [stop, freeze, call].into_iter().flatten().collect();
        if said.len() > 1 {
            return Err(format!("{} are mutually exclusive", names.join(", ")).into());
        }
        Ok(said.pop())
    }

    fn text(limit: &Option<Self>) -> String {
        match limit {
            Some(Self { at, act: Act::Call(call) }) => format!("{at} {call}"),
            _ => String::new(),
        }
    }

    /// Takes another one for the handler `name`; an empty text is none.
    fn set(limit: &mut Option<Self>, name: &str, value: &str) -> Result<(), String> {
        *limit = match value.trim() {
            "" => None,
            text => Some(
                Self::from_argument(text)
                    .ok_or_else(|| format!("{name}: expected {}, got '{text}'", Self::EXPECTED))?,
            ),
        };
        Ok(())
    }
}

const HANDLERS: &[Handler] = &[
    Handler::write(
        "write_text_file",
        "Writes the counts to a file, or to standard output for -: lines with a value and its count, in the \
         values' order.",
        &WRITE_TEXT_FILE,
    ),
    Handler::write("write_ascii_file", "As write_text_file.", &WRITE_TEXT_FILE),
    Handler::write(
        "write_file",
        "Writes the counts to a file, as pairs of 32-bit numbers in this machine's byte order, after a few \
         lines of text.",
        &Put(|e: &mut AggregateCounter, _, value| e.write_file(value, false)),
    ),
    Handler::read(
        "count",
        Combine::Sum,
        "All counts together.",
        &Get(|e: &mut AggregateCounter| e.count.to_string()),
    ),
    Handler::read(
        "nagg",
        Combine::Sum,
        "Number of values that have counts.",
        &Get(|e: &mut AggregateCounter| e.counts.len().to_string()),
    ),
    Handler::field("freeze", "Whether it is frozen.", &Field(|e: &mut AggregateCounter| &mut e.frozen)),
    Handler::field("active", "Whether it counts at all.", &Field(|e: &mut AggregateCounter| &mut e.active)),
    Handler::write(
        "stop",
        "Stops counting, and the router.",
        &Put(|e: &mut AggregateCounter, cx, _| {
            e.act(cx, Act::Stop);
            Ok(())
        }),
    ),
    Handler::write(
        "reaggregate_counts",
        "Makes the counts the values: each then has as its count how many values had it before.",
        &REAGGREGATE,
    ),
    Handler::write("counts_pdf", "As reaggregate_counts.", &REAGGREGATE),
    Handler::write(
        "clear",
        "Forgets all counts.",
        &Put(|e: &mut AggregateCounter, _, _| {
            e.counts.clear();
            e.count = 0;
            Ok(())
        }),
    ),
    Handler::read_write(
        "banner",
        Combine::First,
        "The BANNER argument.",
        &Get(|e: &mut AggregateCounter| e.banner.clone()),
        &Put(|e: &mut AggregateCounter, _, value| {
            value.clone_into(&mut e.banner);
            Ok(())
        }),
    ),
    Handler::read_write(
        "aggregate_call",
        Combine::First,
        "The AGGREGATE_CALL argument.",
        &Get(|e: &mut AggregateCounter| Limit::text(&e.by_values)),
        &Put(|e: &mut AggregateCounter, _, value| Limit::set(&mut e.by_values, "aggregate_call", value)),
    ),
    Handler::read_write(
        "count_call",
        Combine::First,
        "The COUNT_CALL argument.",
        &Get(|e: &mut AggregateCounter| Limit::text(&e.by_count)),
        &Put(|e: &mut AggregateCounter, _, value| Limit::set(&mut e.by_count, "count_call", value)),
    ),
];

const WRITE_TEXT_FILE: Put<AggregateCounter> = Put(|e, _, value| e.write_file(value, true));
const REAGGREGATE: Put<AggregateCounter> = Put(|e, _, _| {
    e.reaggregate();
    Ok(())
});

struct AggregateCounter {
    bytes: bool,
    ip_bytes: bool,
    multipacket: bool,
    extra_length: bool,
    banner: String,
    counts: Counts,
    count: u64,
    frozen: bool,
    active: bool,
    by_values: Option<Limit>,
    by_count: Option<Limit>,
    gathered: Arc<Mutex<Gathered>>,
    copies: usize,
}

impl AggregateCounter {
    fn amount(&self, packet: &Packet) -> u32 {
        let annotation = |at: usize| packet.annotations().u32_at(at).unwrap_or(0);
        if !self.bytes {
            return 1 + if self.multipacket { annotation(Annotations::EXTRA_PACKETS) } else { 0 };
        }
        let mut length = packet.len() as u32;
        if self.ip_bytes {
            length = packet.network().map_or(length, |network| network.len() as u32);
        }
        length + if self.extra_length { annotation(EXTRA_LENGTH) } else { 0 }
    }

    /// Counts a packet; whether it was counted.
    fn update(&mut self, cx: &mut Context, packet: &Packet, frozen: bool) -> bool {
        if !self.active {
            return false;
        }
        let value = packet.annotations().u32_at(Annotations::AGGREGATE).unwrap_or(0);
        let amount = self.amount(packet);
        match self.counts.get_mut(&value) {
            Some(count) => *count = count.wrapping_add(amount),
            None if frozen || self.frozen => return false,
            None => {
                if amount == 0 {
                    return true;
                }
                let is_full = |limit: &mut Limit| self.counts.len() as u64 >= limit.at;
                if let Some(limit) = self.by_values.take_if(is_full) {
                    self.act(cx, limit.act);
                    // What was done may have changed what becomes of this packet.
                    return self.update(cx, packet, frozen);
                }
                self.counts.insert(value, amount);
            }
        }
        self.count += u64::from(amount);
        if let Some(limit) = self.by_count.take_if(|limit| self.count >= limit.at) {
            self.act(cx, limit.act);
        }
        true
    }

    fn act(&mut self, cx: &mut Context, act: Act) {
        match act {
            Act::Stop => {
                self.active = false;
                cx.stop();
            }
            Act::Freeze => self.frozen = true,
            Act::Call(call) => {
                let (result, own) = cx.call_write_hearing(&call.name, &call.value);
                if let Err(problem) = result {
                    cx.message(&format!("While calling '{call}':\n  {problem}"));
                }
                super::write_heard(&CLASS, self, cx, &own);
            }
        }
    }

    /// Leaves this copy's counts for a file; the last copy writes it.
    fn write_file(&self, value: &str, is_text: bool) -> Result<(), String> {
        let filename = unquote(value.trim());
        if filename.is_empty() {
            return Err("argument should be filename".to_owned());
        }
        let mut gathered = lock(&self.gathered);
        for (&value, &count) in &self.counts {
            let sum = gathered.counts.entry(value).or_default();
            *sum = sum.wrapping_add(count);
        }
        gathered.copies += 1;
        if gathered.copies < self.copies {
            return Ok(());
        }
        let Gathered { counts, .. } = std::mem::take(&mut *gathered);
        drop(gathered);
        let mut lines: Vec<(u32, u32)> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
        lines.sort_unstable();
        let mut text = Vec::new();
        if !self.banner.is_empty() {
            text.extend_from_slice(format!("{}\n", self.banner.trim_end_matches('\n')).as_bytes());
        }
        text.extend_from_slice(format!("!num_nonzero {}\n", lines.len()).as_bytes());
        if is_text {
            lines.iter().for_each(|(value, count)| text.extend(format!("{value} {count}\n").bytes()));
        } else {
            text.extend_from_slice(if cfg!(target_endian = "little") {
                b"!packed_le\n"
            } else {
                b"!packed_be\n"
            });
            for (value, count) in lines {
                text.extend_from_slice(&value.to_ne_bytes());
                text.extend_from_slice(&count.to_ne_bytes());
            }
        }
        let written = match filename.as_str() {
            "-" => Output.write_all(&text).and_then(|()| Output.flush()),
            _ => std::fs::write(&filename, &text),
        };
        written.map_err(|error| format!("{filename}: {error}"))
    }

    fn reaggregate(&mut self) {
        let before = std::mem::take(&mut self.counts);
        self.count = 0;
        for count in before.into_values() {
            *self.counts.entry(count).or_default() += 1;
            self.count += 1;
        }
    }
}

impl Element for AggregateCounter {
    fn push(&mut self, cx: &mut Context, input: usize, batch: &mut Batch) {
        let has_other = cx.outputs() > 1;
        let mut packets = std::mem::replace(batch, cx.spare_batch());
        for packet in packets.drain() {
            let counted = self.update(cx, &packet, input == 1);
            if counted || !has_other { batch.push(packet) } else { cx.emit(1, packet) }
        }
        cx.recycle(packets);
    }

    fn pull(&mut self, cx: &mut Context, output: usize, batch: &mut Batch, max: usize) {
        let input = output.min(cx.inputs().saturating_sub(1));
        cx.pull(input, batch, max);
        for packet in batch.packets() {
            self.update(cx, packet, input == 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};
    use testbed::Folder;

    fn push(bench: &mut Bench, input: &str, values: &[u32]) {
        let packets = values.iter().map(|&value| {
            let mut packet = bench.packet(b"abcd");
            packet.annotations_mut().set_u32_at(Annotations::AGGREGATE, value);
            packet
        });
        let packets: Vec<_> = packets.collect();
        bench.push_packets(input, packets);
    }

    #[test]
    fn it_counts_by_value_and_writes_files() {
        let folder = Folder::new();
        let path = folder.file("counts");
        let mut bench = Bench::element(&crate::registry(), "AggregateCounter(BANNER hello)", 1, 1);
        push(&mut bench, "in0", &[7, 3, 7, 7]);
        bench.write("e.write_text_file", &path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "hello\n!num_nonzero 2\n3 1\n7 3\n");
        bench.write("e.banner", "").unwrap();
        bench.write("e.reaggregate_counts", "").unwrap();
        assert_eq!((bench.read("e.count"), bench.read("e.nagg")), ("2".into(), "2".into()));
        bench.write("e.write_file", &path).unwrap();
        let mut expected = b"!num_nonzero 2\n!packed_le\n".to_vec();
        [1_u32, 1, 3, 1].iter().for_each(|number| expected.extend(number.to_le_bytes()));
        assert_eq!(std::fs::read(&path).unwrap(), expected);
        assert!(bench.write("e.write_file", "/no/such/folder").unwrap_err().contains("/no/such/folder"));
    }

    #[test]
    fn frozen_and_full() {
        let mut bench =
            Bench::element(&crate::registry(), "AggregateCounter(BYTES true, AGGREGATE_FREEZE 2)", 2, 2);
        push(&mut bench, "in1", &[1]);
        assert_eq!((bench.taken("out0").len(), bench.taken("out1").len()), (0, 1));
        push(&mut bench, "in0", &[1, 2, 3, 2]);
        assert_eq!((bench.taken("out0").len(), bench.taken("out1").len()), (3, 1));
        assert_eq!((bench.read("e.count"), bench.read("e.freeze")), ("12".into(), "true".into()));
    }

    #[test]
    fn what_is_called_may_clear_it() {
        let text = "in0 :: TestInput -> e :: AggregateCounter(COUNT_CALL 3 e.clear) -> out0 :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), text);
        push(&mut bench, "in0", &[1, 2, 3, 4]);
        assert_eq!((bench.read("e.count"), bench.messages().len()), ("1".into(), 0));
        let error = configure(&CLASS, "COUNT_STOP 1, COUNT_FREEZE 2").unwrap_err();
        assert!(error[0].contains("mutually exclusive"));
    }
}
