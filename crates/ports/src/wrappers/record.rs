//! The wrapper under capture and trace: it hands a copy of each packet to a recorder thread.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use packet::{Batch, Pool};

use crate::recorder::{Direction, Recorder, RecorderInput, now_ns};
use crate::{Event, HostSteering, Port, PortError, PortInfo, QueueStats, RxQueue, Steering, TxQueue};

/// A port whose packets are recorded.
pub(crate) struct RecordedPort {
    inner: Box<dyn Port>,
    recorder: Arc<Recorder>,
}

impl RecordedPort {
    pub(crate) fn new(inner: Box<dyn Port>, recorder: Arc<Recorder>) -> Self {
        Self { inner, recorder }
    }
}

impl Port for RecordedPort {
    fn info(&self) -> PortInfo {
        self.inner.info()
    }

    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
        let inner = self.inner.take_rx(queue)?;
        let input = self.recorder.input(Direction::Receive, queue);
        Ok(Box::new(RecordedRx { inner, input, missed: 0 }))
    }

    fn set_carrier(&mut self, is_plugged: bool) -> Result<(), PortError> {
        self.inner.set_carrier(is_plugged)
    }

    fn has_link(&self) -> Option<bool> {
        self.inner.has_link()
    }

    fn steering(&mut self) -> Option<&mut dyn Steering> {
        self.inner.steering()
    }

    fn host(&mut self) -> Option<&mut dyn HostSteering> {
        self.inner.host()
    }

    fn open_anew(&mut self, tries: usize) -> Result<&'static str, PortError> {
        self.inner.open_anew(tries)
    }

    fn mode(&self) -> &'static str {
        self.inner.mode()
    }

    fn details(&self) -> String {
        self.inner.details()
    }

    fn set_promiscuous(&mut self) -> Result<(), PortError> {
        self.inner.set_promiscuous()
    }

    fn keep_from_linux(&mut self) -> Result<(), PortError> {
        self.inner.keep_from_linux()
    }

    fn take_tx(&mut self, queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
        let inner = self.inner.take_tx(queue)?;
        let input = self.recorder.input(Direction::Transmit, queue);
        Ok(Box::new(RecordedTx { inner, input, copies: Batch::new(), missed: 0 }))
    }
}

struct RecordedRx {
    inner: Box<dyn RxQueue>,
    input: RecorderInput,
    missed: u64,
}

impl RxQueue for RecordedRx {
    fn prepare(&mut self, pool: &mut Pool) -> Result<(), PortError> {
        self.inner.prepare(pool)
    }

    fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, max: usize) -> usize {
        let first = batch.len();
        let count = self.inner.receive(pool, batch, max);
        if count == 0 {
            return 0;
        }
        let now_ns = now_ns();
        for packet in &batch.packets()[first..] {
            let copy = if self.input.room() > 0 { pool.copy(packet) } else { None };
            match copy {
                Some(copy) => self.missed += u64::from(!self.input.put(copy, now_ns)),
                None => self.missed += 1,
            }
        }
        count
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }

    fn due_in_ns(&self) -> Option<u64> {
        self.inner.due_in_ns()
    }

    fn waits(&self) -> bool {
        self.inner.waits()
    }

    fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }

    fn stats(&self) -> QueueStats {
        let mut stats = self.inner.stats();
        stats.add(Event::NotRecorded, self.missed);
        stats
    }
}

struct RecordedTx {
    inner: Box<dyn TxQueue>,
    input: RecorderInput,
    /// Copies made before sending frees the packets; empty between calls.
    copies: Batch,
    missed: u64,
}

impl TxQueue for RecordedTx {
    fn prepare(&mut self, pool: &mut Pool) -> Result<(), PortError> {
        self.inner.prepare(pool)
    }

    fn send(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let room = self.input.room();
        for packet in batch.packets().iter().take(room) {
            let Some(copy) = pool.copy(packet) else { break };
            self.copies.push(copy);
        }
        let sent = self.inner.send(pool, batch);
        let now_ns = now_ns();
        let mut recorded = 0;
        for mut copy in self.copies.drain().take(sent) {
            // When it was received is another story.
            copy.set_timestamp_ns(now_ns);
            recorded += usize::from(self.input.put(copy, now_ns));
        }
        self.missed += (sent - recorded) as u64;
        sent
    }

    fn flush(&mut self, pool: &mut Pool) {
        self.inner.flush(pool);
    }

    fn due_in_ns(&self) -> Option<u64> {
        self.inner.due_in_ns()
    }

    fn stats(&self) -> QueueStats {
        let mut stats = self.inner.stats();
        stats.add(Event::NotRecorded, self.missed);
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{batch_of, numbered_frame, pool, temporary_file};
    use crate::{OpenOptions, PcapReader};

    #[test]
    fn both_directions_are_captured_in_order_and_once() {
        let path = temporary_file("capture.pcap");
        let options = OpenOptions::default();
        let mut port = crate::open(&format!("memory:captured?ring=4&capture={path}"), &options).unwrap();
        let mut far = crate::open("memory:captured?end=1", &options).unwrap();
        let (mut rx, mut tx) = (port.take_rx(0).unwrap(), port.take_tx(0).unwrap());
        let (mut far_rx, mut far_tx) = (far.take_rx(0).unwrap(), far.take_tx(0).unwrap());
        let mut pool = pool(64);
        let sent: Vec<Vec<u8>> = (0..6).map(|number| numbered_frame(number, 60)).collect();
        let mut batch = batch_of(&mut pool, &sent);
        // The ring takes four; the other two are sent, and recorded, later.
        assert_eq!(tx.send(&mut pool, &mut batch), 4);
        let mut received = Batch::new();
        assert_eq!(far_rx.receive(&mut pool, &mut received, 32), 4);
        assert_eq!(tx.send(&mut pool, &mut batch), 2);
        pool.free(&mut received);
        let mut batch = batch_of(&mut pool, &[numbered_frame(100, 90)]);
        far_tx.send(&mut pool, &mut batch);
        assert_eq!(rx.receive(&mut pool, &mut received, 32), 1);
        assert_eq!(rx.stats().count(Event::NotRecorded) + tx.stats().count(Event::NotRecorded), 0);
        drop((rx, tx, port));
        let mut reader = PcapReader::open(&path).unwrap();
        let mut frames = Vec::new();
        while let Some(record) = reader.next() {
            frames.push(record.unwrap().data.to_vec());
        }
        // The recorder may see the queues in any order.
        let (received, transmitted): (Vec<_>, Vec<_>) =
            frames.into_iter().partition(|frame| frame.len() == 90);
        assert_eq!(transmitted, sent);
        assert_eq!(received, [numbered_frame(100, 90)]);
    }

    #[test]
    fn a_trace_has_a_line_a_packet() {
        let path = temporary_file("trace.txt");
        let mut port = crate::open(&format!("null:?trace={path}"), &OpenOptions::default()).unwrap();
        let mut pool = pool(64);
        let mut batch = batch_of(&mut pool, &[numbered_frame(0, 60), numbered_frame(1, 61)]);
        port.take_tx(0).unwrap().send(&mut pool, &mut batch);
        drop(port);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[1].ends_with(" null tx0 61 02-00-00-00-00-01 > 02-00-00-00-00-02 0x88b5"), "{text}");
    }
}
