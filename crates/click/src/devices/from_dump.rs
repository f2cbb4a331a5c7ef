//! =c
//! FromDump(FILENAME, [TIMING, I<keywords> STOP, END_CALL, ACTIVE, SAMPLE, START_AFTER, END_AFTER])
//!
//! =s devices
//! reads packets from a capture file
//!
//! =d
//! Reads packets from a file that tcpdump or Wireshark wrote (pcap or pcapng) and sends them on, each with its
//! time stamp. The packets are as they stand in the file; most files hold Ethernet frames.
//!
//! In a push path it sends by itself; in a pull path it gives packets when asked. With several workers only
//! the first reads the file.
//!
//! Arguments are:
//!
//! TIMING: boolean. Whether to keep the distances in time between the packets. False by default: as fast as
//! the graph takes them. Pulled packets are never held back.
//!
//! STOP: boolean. Whether to stop the router at the end of the file. False by default.
//!
//! END_CALL: a write handler and what is written to it at the end of the file, instead of STOP.
//!
//! ACTIVE: boolean. Whether to send at all; see the handler. True by default.
//!
//! SAMPLE: number from 0 to 1. Send each packet with this probability. 1 by default.
//!
//! START_AFTER, END_AFTER: time. Leave out the packets of the first so many seconds; stop at the first packet
//! this long after the file's first.
//!
//! Packets longer than a frame are dropped as "longer than a frame"; a damaged rest of a file ends it with a
//! message. FORCE_IP and absolute times are not supported.
//!
//! =e
//!   FromDump(trace.pcap, STOP true) -> Strip(14) -> CheckIPHeader -> IPPrint -> Discard
//!
//! =a ToDump, FromDevice

use elements::devices::Unopened;
use graph::arguments::Interval;
use graph::{
    Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup, TaskStatus,
};
use packet::{Batch, Packet};
use ports::PcapReader;

use crate::sources::end::End;

pub(crate) static CLASS: Class = Class {
    name: "FromDump",
    ports: "0/1",
    handlers: &[
        Handler::read_write(
            "active",
            Combine::First,
            "Whether it sends.",
            &Get(|e: &mut FromDump| e.active.to_string()),
            &Put(|e: &mut FromDump, cx, value| e.set_active(cx, value)),
        ),
        Handler::read("count", Combine::Sum, "Packets sent.", &Get(|e: &mut FromDump| e.count.to_string())),
        Handler::read("filename", Combine::First, "The file.", &Get(|e: &mut FromDump| e.filename.clone())),
    ],
    manual: graph::manual!("from_dump.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let filename: String = setup.arguments.required("FILENAME")?;
    let timing = setup.arguments.optional("TIMING")?.unwrap_or(false);
    let end = End::read(&mut setup.arguments)?;
    let active = setup.arguments.keyword_or("ACTIVE", true)?;
    let sample: f64 = setup.arguments.keyword_or("SAMPLE", 1.0)?;
    let start_after: Option<Interval> = setup.arguments.keyword("START_AFTER")?;
    let end_after: Option<Interval> = setup.arguments.keyword("END_AFTER")?;
    setup.arguments.finish()?;
    if !(0.0..=1.0).contains(&sample) {
        return Err(format!("SAMPLE: expected a probability from 0 to 1, got {sample}").into());
    }
    if setup.is_check() {
        return Ok(Box::new(Unopened));
    }
    let reader = if setup.works_here() {
        Some(PcapReader::open(&filename).map_err(|error| error.to_string())?)
    } else {
        None
    };
    Ok(Box::new(FromDump {
        filename,
        reader,
        timing,
        end,
        active,
        sample: (sample * f64::from(u32::MAX)) as u32,
        start_after_ns: start_after.map_or(0, |interval| interval.ns),
        end_after_ns: end_after.map_or(u64::MAX, |interval| interval.ns),
        pulled: setup.output_is_pull(0),
        first_ns: None,
        offset_ns: None,
        next: None,
        count: 0,
    }))
}

struct FromDump {
    filename: String,
    /// `None` at the end of the file, and in every copy but one.
    reader: Option<PcapReader>,
    timing: bool,
    end: End,
    active: bool,
    /// A random number up to this one lets a packet pass.
    sample: u32,
    start_after_ns: u64,
    end_after_ns: u64,
    pulled: bool,
    /// Time of the file's first packet.
    first_ns: Option<u64>,
    /// What to add to a time of the file to get the router's.
    offset_ns: Option<i128>,
    /// The next packet, read ahead.
    next: Option<Packet>,
    count: u64,
}

impl FromDump {
    /// Reads on to the next packet that is to be sent; false at the end of the file or without a frame.
    fn read_ahead(&mut self, cx: &mut Context) -> bool {
        while self.next.is_none() {
            let Some(reader) = &mut self.reader else { return false };
            let Some(mut packet) = cx.allocate() else { return false };
            let (fits, time) = match reader.next() {
                Some(Ok(record)) => (packet.set_data(record.data), record.timestamp_ns),
                Some(Err(error)) => {
                    cx.message(&format!("FromDump: {error}"));
                    self.finish(cx, packet);
                    return false;
                }
                None => {
                    self.finish(cx, packet);
                    return false;
                }
            };
            let since_first = time.saturating_sub(*self.first_ns.get_or_insert(time));
            if since_first >= self.end_after_ns {
                self.finish(cx, packet);
                return false;
            }
            if !fits {
                cx.drop(packet, "longer than a frame");
            } else if since_first < self.start_after_ns
                || (self.sample < u32::MAX && cx.random() > self.sample)
            {
                cx.pool().free_packet(packet);
            } else {
                packet.set_timestamp_ns(time);
                self.next = Some(packet);
            }
        }
        true
    }

    fn finish(&mut self, cx: &mut Context, unused: Packet) {
        cx.pool().free_packet(unused);
        self.reader = None;
        self.end.reached(cx);
    }

    /// Sends or pauses.
    fn set_active(&mut self, cx: &mut Context, value: &str) -> Result<(), String> {
        self.active = bool::from_argument(value)
            .ok_or_else(|| format!("active: expected true or false, got '{value}'"))?;
        if self.active && self.reader.is_some() && !self.pulled {
            cx.wake();
        }
        Ok(())
    }
}

impl Element for FromDump {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        if self.reader.is_some() && self.active && !self.pulled {
            cx.wake();
        }
        Ok(())
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        if !self.active {
            return TaskStatus::Asleep;
        }
        for _ in 0..cx.burst() {
            if !self.read_ahead(cx) {
                return if self.reader.is_some() { TaskStatus::Idle } else { TaskStatus::Asleep };
            }
            let Some(packet) = self.next.take() else { break };
            if self.timing {
                let time = i128::from(packet.timestamp_ns());
                let offset = *self.offset_ns.get_or_insert(i128::from(cx.now_ns()) - time);
                let due = u64::try_from(time + offset).unwrap_or(0);
                if due > cx.now_ns() {
                    self.next = Some(packet);
                    cx.set_timer(0, due);
                    return TaskStatus::Asleep;
                }
            }
            self.count += 1;
            cx.emit(0, packet);
        }
        TaskStatus::Busy
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        cx.wake();
    }

    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        while self.active && batch.len() < max && self.read_ahead(cx) {
            if let Some(packet) = self.next.take() {
                self.count += 1;
                batch.push(packet);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;
    use graph::testing::{Bench, configure};
    use testbed::Folder;

    fn file(folder: &Folder) -> String {
        let path = folder.file("in.pcap");
        let mut writer = ports::PcapWriter::create(&path, ports::Precision::Nanoseconds).unwrap();
        for number in 0..4u8 {
            writer.write(1_000_000_000 + u64::from(number) * 1_000_000, 60, &[number; 60]).unwrap();
        }
        writer.flush().unwrap();
        path
    }

    fn numbers(packets: &[Vec<u8>]) -> Vec<u8> {
        packets.iter().map(|bytes| bytes[0]).collect()
    }

    #[test]
    fn packets_come_as_they_stand_in_the_file() {
        let folder = Folder::new();
        let config = format!("d :: FromDump({}, STOP true) -> out :: TestOutput", file(&folder));
        let mut bench = Bench::new(&registry(), &config);
        bench.run(10);
        let packets = bench.taken_packets("out");
        assert_eq!(packets.iter().map(|packet| packet.data()[0]).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(packets[3].timestamp_ns(), 1_003_000_000);
        assert_eq!(bench.read("d.count"), "4");
    }

    #[test]
    fn timing_keeps_the_distances() {
        let folder = Folder::new();
        let config = format!("d :: FromDump({}, true) -> out :: TestOutput", file(&folder));
        let mut bench = Bench::new(&registry(), &config);
        bench.run(10);
        assert_eq!(numbers(&bench.taken("out")), [0]);
        bench.advance_ns(2_000_000);
        assert_eq!(numbers(&bench.taken("out")), [1, 2]);
        bench.advance_ns(999_999);
        assert!(bench.taken("out").is_empty());
        bench.advance_ns(1);
        assert_eq!(numbers(&bench.taken("out")), [3]);
    }

    #[test]
    fn a_window_of_time_and_the_active_handler() {
        let folder = Folder::new();
        let config = format!(
            "d :: FromDump({}, ACTIVE false, START_AFTER 1ms, END_AFTER 3ms) -> out :: TestOutput",
            file(&folder)
        );
        let mut bench = Bench::new(&registry(), &config);
        bench.run(10);
        assert!(bench.taken("out").is_empty());
        bench.write("d.active", "true").unwrap();
        bench.run(10);
        assert_eq!(numbers(&bench.taken("out")), [1, 2]);
        assert!(bench.write("d.active", "perhaps").is_err());
    }

    #[test]
    fn it_can_be_pulled() {
        let folder = Folder::new();
        let config = format!("FromDump({}) -> Unqueue -> out :: TestOutput", file(&folder));
        let mut bench = Bench::new(&registry(), &config);
        bench.run(10);
        assert_eq!(numbers(&bench.taken("out")), [0, 1, 2, 3]);
    }

    #[test]
    fn mistakes() {
        assert!(configure(&CLASS, "/no/such/file.pcap").unwrap_err()[0].contains("/no/such/file.pcap"));
        assert!(configure(&CLASS, "x, SAMPLE 2").unwrap_err()[0].contains("SAMPLE"));
        assert!(configure(&CLASS, "x, FORCE_IP true").unwrap_err()[0].contains("FORCE_IP"));
    }
}
