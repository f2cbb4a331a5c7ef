//! The frames of a trace as what a trial sends: with the times of the trace or at a rate, once or several times.
//!
//! A few frames beyond those that were sent are read ahead, and kept until the port has taken them.

use std::collections::VecDeque;
use std::ops::Range;

use anyhow::{Context, Result, bail};
use packet::Packet;
use packet::wire::ethernet::MacAddr;

use super::signature::{Mark, Signature, TIMESTAMP_MASK};
use super::slot::{self, Slot};
use super::source::Source;
use super::trace::{Pass, Trace};
use super::values::FCS_BYTES;

/// How a trace is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplayOptions {
    /// How many times.
    pub(crate) passes: u64,
    /// How much faster than it was captured; `None` if a rate says when frames leave.
    pub(crate) speed: Option<f64>,
    pub(crate) source_mac: Option<MacAddr>,
    pub(crate) destination_mac: Option<MacAddr>,
}

/// A frame that was read.
struct Frame {
    data: Vec<u8>,
    due_ns: u64,
    /// Where the signature goes, and flow and sequence number.
    judged: Option<(Slot, u32, u64)>,
}

/// A trace that is being sent.
pub(crate) struct Replay<'a> {
    trace: &'a Trace,
    options: ReplayOptions,
    generator: u16,
    pass: Pass,
    /// When the pass began, in nanoseconds of the trace.
    pass_begun_ns: u64,
    /// Frames that were read and not sent; the first has this number.
    ahead: VecDeque<Frame>,
    first: u64,
    /// Memory of frames that were sent.
    spare: Vec<Vec<u8>>,
    /// Frames of each flow that were read, and that were sent.
    read_of_flow: Vec<u64>,
    sent_of_flow: Vec<u64>,
    judged: u64,
    /// When the last frame that was sent was due.
    pub(crate) last_due_ns: u64,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(trace: &'a Trace, options: ReplayOptions, generator: u16) -> Result<Self> {
        let flows = trace.flows.len();
        Ok(Self {
            trace,
            options,
            generator,
            pass: Pass::open(&trace.path, trace.limits)?,
            pass_begun_ns: 0,
            ahead: VecDeque::new(),
            first: 0,
            spare: Vec::new(),
            read_of_flow: vec![0; flows],
            sent_of_flow: vec![0; flows],
            judged: 0,
            last_due_ns: 0,
        })
    }

    /// Reads the next frame, from the start again at the end of the file.
    fn read(&mut self) -> Result<Frame> {
        let trace = self.trace;
        let changed = || format!("trace '{}': it changed while it was read", trace.path.display());
        let mut data = self.spare.pop().unwrap_or_default();
        let at_ns = match self.pass.next(&trace.path, &mut data)? {
            Some(at_ns) => at_ns,
            None => {
                if self.pass.tally != trace.tally {
                    bail!(changed());
                }
                // Between two passes is the mean of the times between frames.
                let gaps = (trace.tally.frames - 1).max(1);
                let pass_ns = trace.tally.duration_ns.saturating_add(trace.tally.duration_ns / gaps);
                self.pass_begun_ns = self.pass_begun_ns.saturating_add(pass_ns);
                self.pass = Pass::open(&trace.path, trace.limits)?;
                self.pass.next(&trace.path, &mut data)?.with_context(changed)?
            }
        };
        if let Some(mac) = self.options.destination_mac {
            data[..6].copy_from_slice(&mac.0);
        }
        if let Some(mac) = self.options.source_mac {
            data[6..12].copy_from_slice(&mac.0);
        }
        let judged = match slot::find(&data) {
            None => None,
            Some((slot, key)) => {
                let flow = *trace.flows.get(&key).with_context(changed)?;
                slot::mend_ipv4_checksum(&mut data);
                let count = &mut self.read_of_flow[flow as usize];
                *count += 1;
                Some((slot, flow, *count - 1))
            }
        };
        let speed = self.options.speed.unwrap_or(1.0);
        let due_ns = (self.pass_begun_ns.saturating_add(at_ns) as f64 / speed) as u64;
        Ok(Frame { data, due_ns, judged })
    }

    fn frame(&self, number: u64) -> &Frame {
        &self.ahead[(number - self.first) as usize]
    }
}

impl Source for Replay<'_> {
    fn mark(&self) -> Mark {
        Mark { generator: self.generator, is_at_end: true }
    }

    fn flows(&self) -> usize {
        self.read_of_flow.len()
    }

    fn count(&self) -> Option<u64> {
        Some(self.trace.tally.frames.saturating_mul(self.options.passes))
    }

    fn largest(&self) -> u16 {
        self.trace.largest
    }

    fn prepare(&mut self, numbers: Range<u64>) -> Result<()> {
        while self.first + (self.ahead.len() as u64) < numbers.end {
            let frame = self.read()?;
            self.ahead.push_back(frame);
        }
        Ok(())
    }

    fn due_ns(&self, number: u64) -> Option<u64> {
        self.options.speed.map(|_| self.frame(number).due_ns)
    }

    fn size(&self, number: u64) -> u16 {
        (self.frame(number).data.len() + FCS_BYTES) as u16
    }

    fn write(&self, number: u64, now_ns: u64, packet: &mut Packet) -> bool {
        let frame = self.frame(number);
        if !packet.set_data(&frame.data) {
            return false;
        }
        if let Some((slot, flow, sequence)) = frame.judged {
            let (generator, sequence) = (self.generator, sequence as u32);
            let signature = Signature { generator, flow, sequence, sent_ns: now_ns & TIMESTAMP_MASK };
            slot.sign(packet.data_mut(), &signature);
        }
        packet.set_link_header(0);
        true
    }

    fn note_sent(&mut self, numbers: Range<u64>) {
        for _ in numbers {
            let Some(frame) = self.ahead.pop_front() else { return };
            self.first += 1;
            self.last_due_ns = frame.due_ns;
            if let Some((_, flow, _)) = frame.judged {
                self.sent_of_flow[flow as usize] += 1;
                self.judged += 1;
            }
            self.spare.push(frame.data);
        }
    }

    fn sent_of_flow(&self, flow: u32, _count: u64) -> u64 {
        self.sent_of_flow[flow as usize]
    }

    fn judged(&self, _count: u64) -> u64 {
        self.judged
    }
}

#[cfg(test)]
mod tests {
    use super::super::signature::{Verdict, judge};
    use super::super::trace::tests::{LIMITS, Record, frame, surveyed, written};
    use super::super::traffic::Kind;
    use super::*;
    use packet::{Pool, PoolOptions};
    use ports::{ETHERNET, Precision};
    use tempfile::NamedTempFile;

    const OPTIONS: ReplayOptions =
        ReplayOptions { passes: 2, speed: Some(2.0), source_mac: None, destination_mac: None };

    fn records() -> Vec<Record> {
        let whole = |time_ns, bytes: Vec<u8>| (time_ns, bytes.len(), bytes);
        vec![
            whole(5_000, frame(Kind::ALL[1], 2, 0, 300)),
            // Two frames of another flow, of which the first is cut; one without room.
            (6_000, 496, frame(Kind::UDP, 2, 1, 500)[..60].to_vec()),
            whole(6_000, frame(Kind::UDP, 2, 3, 500)),
            whole(8_000, vec![8; 60]),
        ]
    }

    fn file() -> NamedTempFile {
        written(Precision::Nanoseconds, ETHERNET, &records())
    }

    #[test]
    fn times_are_those_of_the_file_and_go_on_in_the_next_pass() {
        let file = file();
        let trace = surveyed(file.path(), LIMITS).unwrap();
        let mut replay = Replay::new(&trace, OPTIONS, 7).unwrap();
        assert_eq!(replay.count(), Some(8));
        replay.prepare(0..8).unwrap();
        // 3,000 ns in three gaps: a pass takes 4,000.
        let expected = [0, 500, 500, 1_500, 2_000, 2_500, 2_500, 3_500];
        assert_eq!(std::array::from_fn(|number| replay.due_ns(number as u64).unwrap()), expected);
        let at_a_rate = ReplayOptions { speed: None, ..OPTIONS };
        let mut replay = Replay::new(&trace, at_a_rate, 7).unwrap();
        replay.prepare(0..1).unwrap();
        assert_eq!(replay.due_ns(0), None);
    }

    #[test]
    fn frames_are_those_of_the_file_with_signatures_and_link_addresses() {
        let file = file();
        let trace = surveyed(file.path(), LIMITS).unwrap();
        let (source_mac, destination_mac) = (MacAddr([2, 0, 0, 0, 0, 8]), MacAddr([2, 0, 0, 0, 0, 9]));
        let options =
            ReplayOptions { source_mac: Some(source_mac), destination_mac: Some(destination_mac), ..OPTIONS };
        let mut replay = Replay::new(&trace, options, 7).unwrap();
        let mut pool = Pool::new(PoolOptions { frames: 1, ..PoolOptions::default() }).unwrap();
        let mut packet = pool.allocate().unwrap();
        for number in 0..8 {
            // Read ahead, and written again as often as the port wants.
            replay.prepare(number..(number + 3).min(8)).unwrap();
            for _ in 0..2 {
                assert!(replay.write(number, number, &mut packet));
            }
            let (_, length, mut expected) = records()[number as usize % 4].clone();
            expected.resize(length, 0);
            expected[..6].copy_from_slice(&destination_mac.0);
            expected[6..12].copy_from_slice(&source_mac.0);
            let sent = packet.data();
            assert_eq!((sent.len(), replay.size(number)), (length, length as u16 + 4));
            let pass = number as u32 / 4;
            let (flow, sequence) = [(0, pass), (1, pass * 2), (1, pass * 2 + 1), (9, 9)][number as usize % 4];
            let verdict = judge(sent, replay.mark());
            if number % 4 == 3 {
                assert_eq!((sent, verdict), (&expected[..], Verdict::Foreign));
            } else {
                let signature = Signature { generator: 7, flow, sequence, sent_ns: number };
                assert_eq!(verdict, Verdict::Ours(signature));
                assert_eq!(sent[..34], expected[..34]);
                assert_eq!(sent[54..length - 18], expected[54..length - 18]);
            }
            replay.note_sent(number..number + 1);
        }
        let counts = [replay.sent_of_flow(0, 8), replay.sent_of_flow(1, 8), replay.judged(8)];
        assert_eq!((counts, replay.last_due_ns), ([2, 4, 6], 3_500));
        assert!(replay.ahead.is_empty() && replay.spare.len() <= 3);
    }

    #[test]
    fn a_file_that_changes_is_an_error() {
        let file = file();
        let trace = surveyed(file.path(), LIMITS).unwrap();
        let mut replay = Replay::new(&trace, OPTIONS, 7).unwrap();
        replay.prepare(0..1).unwrap();
        let other = written(Precision::Nanoseconds, ETHERNET, &records()[1..]);
        std::fs::copy(other.path(), file.path()).unwrap();
        let mut replay = Replay::new(&trace, OPTIONS, 7).unwrap();
        assert!(replay.prepare(0..8).unwrap_err().to_string().ends_with("it changed while it was read"));
    }
}
