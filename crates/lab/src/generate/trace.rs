//! The frames of a capture file that are sent again. The file is read from start to end once to know it, and once more each time that
//! it is sent, so memory holds its flows but not its frames.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use packet::wire::ethernet;
use ports::{ETHERNET, PcapReader};

use super::slot::{self, FlowKey};
use super::values::FCS_BYTES;

/// Which traces can be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The port's MTU.
    pub(crate) mtu: usize,
    /// The room for a frame in memory.
    pub(crate) data_bytes: usize,
    /// Flows of which there is a count each.
    pub(crate) flows: u32,
}

/// What a pass through a trace found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Frames that can be sent.
    pub(crate) frames: u64,
    /// Those among them that the capture cut; zeros stand for what is missing.
    pub(crate) padded: u64,
    /// Frames that are longer than the port's MTU.
    pub(crate) too_long: u64,
    /// Frames without a whole Ethernet header.
    pub(crate) too_short: u64,
    /// Times that are before that of the frame before.
    pub(crate) backward_times: u64,
    /// From the first frame to the last.
    pub(crate) duration_ns: u64,
    /// Why the end of the file cannot be read, if it cannot.
    pub(crate) broken_end: Option<String>,
}

/// A pass through a trace.
pub(crate) struct Pass {
    reader: PcapReader,
    limits: Limits,
    last_stamp_ns: Option<u64>,
    pub(crate) tally: Tally,
}

impl Pass {
    pub(crate) fn open(path: &Path, limits: Limits) -> Result<Self> {
        let reader = PcapReader::open(path)?;
        check_link_type(path, reader.link_type().unwrap_or(ETHERNET))?;
        Ok(Self { reader, limits, last_stamp_ns: None, tally: Tally::default() })
    }

    /// Reads the next frame that can be sent into `frame`; its time since the first one of the file, or `None` at the end.
    pub(crate) fn next(&mut self, path: &Path, frame: &mut Vec<u8>) -> Result<Option<u64>> {
        loop {
            let record = match self.reader.next() {
                None => return Ok(None),
                Some(Ok(record)) => record,
                Some(Err(error)) => {
                    self.tally.broken_end = Some(error.to_string());
                    return Ok(None);
                }
            };
            check_link_type(path, record.link_type)?;
            let stamp_ns = record.timestamp_ns;
            match stamp_ns.checked_sub(self.last_stamp_ns.unwrap_or(stamp_ns)) {
                Some(gap_ns) => self.tally.duration_ns = self.tally.duration_ns.saturating_add(gap_ns),
                None => self.tally.backward_times += 1,
            }
            self.last_stamp_ns = Some(stamp_ns);
            let length = (record.original_length as usize).max(record.data.len());
            let Ok(payload) = ethernet::payload_type(record.data) else {
                self.tally.too_short += 1;
                continue;
            };
            if length > (payload.offset + self.limits.mtu).min(self.limits.data_bytes) {
                self.tally.too_long += 1;
                continue;
            }
            self.tally.frames += 1;
            self.tally.padded += u64::from(length > record.data.len());
            frame.clear();
            frame.extend_from_slice(record.data);
            frame.resize(length, 0);
            return Ok(Some(self.tally.duration_ns));
        }
    }
}

fn check_link_type(path: &Path, link_type: u32) -> Result<()> {
    if link_type != ETHERNET {
        bail!("trace '{}': its link type is {link_type}; expected Ethernet (1)", path.display());
    }
    Ok(())
}

/// A trace that can be sent.
pub(crate) struct Trace {
    pub(crate) path: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) tally: Tally,
    /// Frames that have room for a signature.
    pub(crate) judged: u64,
    /// The flows of these, numbered.
    pub(crate) flows: HashMap<FlowKey, u32>,
    /// The largest frame, FCS counted.
    pub(crate) largest: u16,
}

impl Trace {
    /// Reads a trace to know it.
    pub(crate) fn survey(path: &Path, limits: Limits, interrupted: &AtomicBool) -> Result<Self> {
        let shown = path.display();
        if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            bail!("trace '{shown}': it cannot be read twice; expected a file");
        }
        let mut pass = Pass::open(path, limits)?;
        let mut flows = HashMap::new();
        let (mut judged, mut largest, mut frame) = (0, 0, Vec::new());
        while pass.next(path, &mut frame)?.is_some() {
            if interrupted.load(Ordering::Relaxed) {
                bail!("interrupted while reading the trace '{shown}'");
            }
            largest = largest.max(frame.len());
            let Some((_, key)) = slot::find(&frame) else { continue };
            judged += 1;
            let number = flows.len() as u32;
            if let Entry::Vacant(entry) = flows.entry(key) {
                if number == limits.flows {
                    bail!("trace '{shown}': it has more than {number} flows; expected a shorter trace");
                }
                entry.insert(number);
            }
        }
        let tally = pass.tally;
        if tally.frames == 0 {
            let reason = match &tally {
                Tally { broken_end: Some(error), .. } => error.clone(),
                Tally { too_long: 0, too_short: 0, .. } => "it is empty".to_owned(),
                Tally { too_long, too_short, .. } => {
                    format!("{too_long} frames are longer than the port's MTU and {too_short} are not whole")
                }
            };
            bail!(
                "trace '{shown}': no frame can be sent: {reason}; expected Ethernet frames of at most the port's MTU"
            );
        }
        let largest = u16::try_from(largest + FCS_BYTES).unwrap_or(u16::MAX);
        Ok(Self { path: path.to_owned(), limits, tally, judged, flows, largest })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::source::Source;
    use super::super::traffic::{Kind, Traffic, TrafficOptions};
    use super::super::values::FrameSize;
    use super::*;
    use packet::{Pool, PoolOptions};
    use ports::{PcapWriter, Precision};
    use tempfile::NamedTempFile;

    pub(crate) const LIMITS: Limits = Limits { mtu: 1_500, data_bytes: 1_856, flows: 100 };

    /// Time in nanoseconds, length on the wire, bytes in the file.
    pub(crate) type Record = (u64, usize, Vec<u8>);

    /// A frame of `size` bytes (FCS counted) of one of `flows` flows.
    pub(crate) fn frame(kind: Kind, flows: u32, number: u64, size: u16) -> Vec<u8> {
        let mut options = TrafficOptions::for_tests(kind, flows);
        options.size = FrameSize::Fixed(size);
        let mut pool = Pool::new(PoolOptions { frames: 1, data_bytes: 10_000 }).unwrap();
        let mut packet = pool.allocate().unwrap();
        assert!(Traffic::new(&options, 1).write(number, 0, &mut packet));
        packet.data().to_vec()
    }

    pub(crate) fn written(precision: Precision, link_type: u32, records: &[Record]) -> NamedTempFile {
        let file = NamedTempFile::new().unwrap();
        let mut writer = PcapWriter::with_link_type(file.reopen().unwrap(), precision, link_type).unwrap();
        for (time_ns, length, bytes) in records {
            writer.write(*time_ns, *length as u32, bytes).unwrap();
        }
        drop(writer);
        file
    }

    fn whole(time_ns: u64, bytes: Vec<u8>) -> Record {
        (time_ns, bytes.len(), bytes)
    }

    pub(crate) fn surveyed(path: &Path, limits: Limits) -> Result<Trace, String> {
        Trace::survey(path, limits, &AtomicBool::new(false)).map_err(|error| error.to_string())
    }

    fn error(path: &Path) -> String {
        surveyed(path, LIMITS).err().unwrap()
    }

    #[test]
    fn what_is_wrong_with_frames_is_counted() {
        let udp = |number, size| frame(Kind::UDP, 3, number, size);
        let records = [
            whole(1_000, udp(0, 200)),
            (3_000, 196, udp(1, 200)[..60].to_vec()),
            // A frame of the MTU, and one of a byte more; one of the MTU with a tag.
            whole(4_000, udp(2, 1_518)),
            whole(5_000, udp(2, 1_519)),
            whole(6_000, {
                let mut tagged = udp(2, 1_518);
                tagged.splice(12..12, [0x81, 0, 0, 5]);
                tagged
            }),
            (6_000, 10, vec![7; 10]),
            // Goes back, and on from there.
            whole(2_000, frame(Kind::UDP, 3, 0, 64)[..50].to_vec()),
            whole(2_500, vec![9; 60]),
        ];
        for precision in [Precision::Nanoseconds, Precision::Microseconds] {
            let file = written(precision, ETHERNET, &records);
            let trace = surveyed(file.path(), LIMITS).unwrap();
            let duration_ns = if precision == Precision::Nanoseconds { 5_500 } else { 5_000 };
            let expected = Tally {
                frames: 6,
                padded: 1,
                too_long: 1,
                too_short: 1,
                backward_times: 1,
                duration_ns,
                broken_end: None,
            };
            assert_eq!(trace.tally, expected);
            // Cut packets are whole again.
            assert_eq!((trace.judged, trace.flows.len(), trace.largest), (4, 3, 1_522));
        }
        let tiny = Limits { data_bytes: 100, ..LIMITS };
        let file = written(Precision::Nanoseconds, ETHERNET, &records[..1]);
        assert!(surveyed(file.path(), tiny).err().unwrap().contains("1 frames are longer"));
    }

    #[test]
    fn pcapng_is_read_too() {
        use pcap_file::pcapng::PcapNgWriter;
        use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
        use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;
        use std::borrow::Cow;
        use std::time::Duration;
        let file = NamedTempFile::new().unwrap();
        let mut writer = PcapNgWriter::new(file.reopen().unwrap()).unwrap();
        let interface = InterfaceDescriptionBlock {
            linktype: pcap_file::DataLink::ETHERNET,
            snaplen: 0,
            options: Vec::new(),
        };
        writer.write_pcapng_block(interface).unwrap();
        for number in 0..3 {
            let bytes = frame(Kind::UDP, 1, number, 100);
            let packet = EnhancedPacketBlock {
                interface_id: 0,
                timestamp: Duration::from_nanos(number),
                original_len: bytes.len() as u32,
                data: Cow::Owned(bytes),
                options: Vec::new(),
            };
            writer.write_pcapng_block(packet).unwrap();
        }
        drop(writer);
        let trace = surveyed(file.path(), LIMITS).unwrap();
        assert_eq!((trace.tally.frames, trace.judged, trace.flows.len()), (3, 3, 1));
    }

    #[test]
    fn files_that_cannot_be_sent_have_clear_errors() {
        let empty = written(Precision::Nanoseconds, ETHERNET, &[]);
        assert!(error(empty.path()).ends_with(
            "no frame can be sent: it is empty; expected Ethernet frames of at most the port's MTU"
        ));
        let raw = written(Precision::Nanoseconds, 101, &[whole(1, vec![0x45; 60])]);
        assert!(error(raw.path()).ends_with("its link type is 101; expected Ethernet (1)"));
        let long = written(
            Precision::Nanoseconds,
            ETHERNET,
            &[whole(1, frame(Kind::UDP, 1, 0, 2_000)), (2, 5, vec![1; 5])],
        );
        let message = error(long.path());
        assert!(message.contains("1 frames are longer than the port's MTU and 1 are not whole"), "{message}");
        std::fs::write(empty.path(), "no capture").unwrap();
        assert!(error(empty.path()).ends_with("it is neither a pcap nor a pcapng file"));
        assert!(error(Path::new("/none/x")).starts_with("cannot read `/none/x`: No such file"));
        assert!(error(Path::new("/tmp")).ends_with("it cannot be read twice; expected a file"));
    }

    #[test]
    fn more_flows_than_there_is_room_for_are_an_error() {
        let records: Vec<Record> =
            (0..20).map(|number| whole(number, frame(Kind::UDP, 10, number, 100))).collect();
        let file = written(Precision::Nanoseconds, ETHERNET, &records);
        let limits = |flows| Limits { flows, ..LIMITS };
        assert_eq!(surveyed(file.path(), limits(10)).unwrap().flows.len(), 10);
        let message = surveyed(file.path(), limits(9)).err().unwrap();
        assert!(message.ends_with("it has more than 9 flows; expected a shorter trace"), "{message}");
    }

    #[test]
    fn a_file_that_breaks_off_has_the_frames_before() {
        let records = [whole(1, frame(Kind::UDP, 1, 0, 100)), whole(2, frame(Kind::UDP, 1, 1, 100))];
        let file = written(Precision::Nanoseconds, ETHERNET, &records);
        let bytes = std::fs::read(file.path()).unwrap();
        std::fs::write(file.path(), &bytes[..bytes.len() - 1]).unwrap();
        let trace = surveyed(file.path(), LIMITS).unwrap();
        assert_eq!((trace.tally.frames, trace.judged), (1, 1));
        assert!(trace.tally.broken_end.unwrap().ends_with("it ends in the middle of a packet"));
        std::fs::write(file.path(), &bytes[..60]).unwrap();
        assert!(error(file.path()).contains("it ends in the middle of a packet"));
    }
}
