//! =c
//! ToDump(FILENAME, [SNAPLEN, ENCAP, I<keywords> UNBUFFERED])
//!
//! =s devices
//! writes packets to a capture file
//!
//! =d
//! Writes the packets to a file that tcpdump, Wireshark and FromDump read. With an output it passes them on;
//! without one they end here. In a pull path without an output it pulls by itself. A packet without a time stamp
//! gets the current time.
//!
//! Arguments are:
//!
//! SNAPLEN: write at most this many bytes of each packet. 2,000 by default; 0 means all.
//!
//! ENCAP: what the packets begin with, ETHER (the default) or IP.
//!
//! UNBUFFERED: boolean. Write every batch to the file at once. False by default.
//!
//! All workers write to one file, one batch after the other, so this element is for looking, not for full
//! speed. Packets that cannot be written are counted by the handler `errors` and go on.
//!
//! =e
//!   ... -> ToDump(seen.pcap) -> ...
//!
//! =a FromDump, ToDevice

use packet::sync::lock;
use std::fs::File;
use std::sync::{Arc, Mutex};

use elements::devices::Unopened;
use graph::{Class, Combine, ConfigError, Context, Element, Get, Handler, Put, Setup, TaskStatus};
use packet::Batch;
use ports::{PcapWriter, Precision};

pub(crate) static CLASS: Class = Class {
    name: "ToDump",
    ports: "1/0-1",
    handlers: &[
        Handler::read("count", Combine::Sum, "Packets written.", &Get(|e: &mut ToDump| e.count.to_string())),
        Handler::read(
            "errors",
            Combine::Sum,
            "Packets that could not be written.",
            &Get(|e: &mut ToDump| e.errors.to_string()),
        ),
        Handler::read("filename", Combine::First, "The file.", &Get(|e: &mut ToDump| e.filename.clone())),
        Handler::write("flush", "Writes out what is buffered.", &Put(|e: &mut ToDump, _, _| e.flush())),
    ],
    manual: graph::manual!("to_dump.rs"),
    make,
    ..Class::DEFAULT
};

/// Link type of Ethernet frames in capture files.
const LINKTYPE_ETHERNET: u32 = 1;
/// Link type of packets that begin with an IP header.
const LINKTYPE_RAW: u32 = 101;

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let filename: String = setup.arguments.required("FILENAME")?;
    let snap_length = setup.arguments.optional("SNAPLEN")?.unwrap_or(2000usize);
    let encapsulation: String = setup.arguments.optional("ENCAP")?.unwrap_or_else(|| "ETHER".into());
    let unbuffered = setup.arguments.keyword_or("UNBUFFERED", false)?;
    setup.arguments.finish()?;
    let link_type = match encapsulation.as_str() {
        "ETHER" => LINKTYPE_ETHERNET,
        "IP" => LINKTYPE_RAW,
        other => return Err(format!("ENCAP: expected ETHER or IP, got '{other}'").into()),
    };
    if setup.is_check() {
        return Ok(Box::new(Unopened));
    }
    let snap_length = if snap_length == 0 { usize::MAX } else { snap_length };
    let file = setup.shared_by_copies(|| {
        let cannot = |error| ConfigError::new(format!("cannot write the file '{filename}': {error}"));
        let file = File::create(&filename).map_err(cannot)?;
        let writer = PcapWriter::with_link_type(file, Precision::Nanoseconds, link_type).map_err(cannot)?;
        Ok::<_, ConfigError>(Mutex::new(writer))
    })?;
    Ok(Box::new(ToDump {
        filename,
        file,
        snap_length,
        unbuffered,
        pulls: setup.input_is_pull(0),
        outputs: setup.outputs(),
        count: 0,
        errors: 0,
    }))
}

struct ToDump {
    filename: String,
    file: Arc<Mutex<PcapWriter<File>>>,
    snap_length: usize,
    unbuffered: bool,
    pulls: bool,
    outputs: usize,
    count: u64,
    errors: u64,
}

impl ToDump {
    fn write_batch(&mut self, cx: &Context, batch: &Batch) {
        let mut file = lock(&self.file);
        for packet in batch.iter() {
            let time = match packet.timestamp_ns() {
                0 => cx.now_ns(),
                time => time,
            };
            let data = packet.data();
            match file.write(time, data.len() as u32, &data[..data.len().min(self.snap_length)]) {
                Ok(()) => self.count += 1,
                Err(_) => self.errors += 1,
            }
        }
        if self.unbuffered && file.flush().is_err() {
            self.errors += batch.len() as u64;
        }
    }

    /// Writes out what is buffered.
    fn flush(&mut self) -> Result<(), String> {
        let mut file = lock(&self.file);
        file.flush().map_err(|error| format!("cannot write the file '{}': {error}", self.filename))
    }
}

impl Element for ToDump {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        if self.pulls && self.outputs == 0 {
            cx.wake();
        }
        Ok(())
    }

    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        self.write_batch(cx, batch);
        if self.outputs == 0 {
            cx.free(batch);
        }
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        let mut batch = cx.spare_batch();
        let burst = cx.burst();
        cx.pull(0, &mut batch, burst);
        let count = batch.len();
        self.write_batch(cx, &batch);
        cx.recycle(batch);
        match (count, cx.upstream_active()) {
            (0, false) => TaskStatus::Asleep,
            (0, true) => TaskStatus::Idle,
            _ => TaskStatus::Busy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;
    use graph::testing::{Bench, configure};
    use ports::PcapReader;
    use testbed::Folder;

    fn lengths(path: &str) -> Vec<(u32, usize)> {
        let mut reader = PcapReader::open(path).unwrap();
        let mut lengths = Vec::new();
        while let Some(record) = reader.next() {
            let record = record.unwrap();
            lengths.push((record.original_length, record.data.len()));
        }
        lengths
    }

    #[test]
    fn what_passes_is_written() {
        let folder = Folder::new();
        let path = folder.file("out.pcap");
        let mut bench = Bench::element(&registry(), &format!("ToDump({path}, 20)"), 1, 1);
        bench.push("in0", &[&[1; 60], &[2; 10]]);
        assert_eq!(bench.taken("out0").len(), 2);
        bench.write("e.flush", "").unwrap();
        assert_eq!(lengths(&path), [(60, 20), (10, 10)]);
        assert_eq!(bench.read("e.count"), "2");
    }

    #[test]
    fn it_pulls_by_itself_without_an_output() {
        let folder = Folder::new();
        let path = folder.file("out.pcap");
        let config = format!("in :: TestInput -> Queue -> d :: ToDump({path}, UNBUFFERED true)");
        let mut bench = Bench::new(&registry(), &config);
        bench.push("in", &[&[1; 60], &[2; 61]]);
        bench.run(10);
        assert_eq!(lengths(&path), [(60, 60), (61, 61)]);
        assert!(!bench.graph().context().has_awake_tasks());
    }

    #[test]
    fn mistakes() {
        assert!(configure(&CLASS, "/no/such/folder/x.pcap").unwrap_err()[0].contains("/no/such/folder"));
        assert!(configure(&CLASS, "x, 20, FDDI").unwrap_err()[0].contains("ETHER or IP"));
    }
}
