//! The recorder: a thread that writes packets to a file (or lines to standard error) for threads that must not.
//!
//! Each queue that is recorded has its own lock-free ring to the recorder, through which packets move with a note of
//! where and when they were seen. The thread looks at all rings in turn and sleeps a little when all are empty. When
//! the last [`Recorder`] handle and all [`RecorderInput`]s are gone it writes what is left, and the drop of the handle
//! waits for that: a file is complete when its port is gone.

use packet::sync::lock;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use packet::Packet;
use rtrb::{Consumer, Producer, RingBuffer};

/// Packets that a queue may be ahead of the recorder.
const RING: usize = 1_024;
/// How long the recorder sleeps when nothing came: twenty times shorter than the ring fills at 50,000 packets a second.
const PAUSE: Duration = Duration::from_millis(1);

/// Which way a packet went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the line to us.
    Receive,
    /// From us to the line.
    Transmit,
}

/// A packet and where it was seen.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) packet: Packet,
    /// Nanoseconds since 1970.
    pub(crate) timestamp_ns: u64,
    pub(crate) direction: Direction,
    pub(crate) queue: u16,
}

/// Where the recorder writes to.
pub(crate) trait Sink: Send + 'static {
    /// Writes one record.
    fn write(&mut self, record: &Record) -> io::Result<()>;

    /// Writes what is buffered.
    fn flush(&mut self) -> io::Result<()>;
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    failed: AtomicU64,
    arrivals: Mutex<Vec<Consumer<Record>>>,
}

/// The handle on the thread; the inputs share it.
#[derive(Debug)]
pub(crate) struct Recorder {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Starts the thread. `what` names the file in the warning when it cannot be written.
    pub(crate) fn start(mut sink: impl Sink, what: String, warn: fn(&str)) -> io::Result<Arc<Self>> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("recorder".to_owned()).spawn(move || {
            record(&theirs, &mut sink, &what, warn);
        })?;
        Ok(Arc::new(Self { shared, thread: Some(thread) }))
    }

    /// A new ring to the recorder.
    pub(crate) fn input(self: &Arc<Self>, direction: Direction, queue: usize) -> RecorderInput {
        let (ring, consumer) = RingBuffer::new(RING);
        lock(&self.shared.arrivals).push(consumer);
        RecorderInput { ring, direction, queue: queue as u16, recorder: Arc::clone(self) }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the recorder was reported by its own thread.
            let _ = thread.join();
        }
    }
}

/// One queue's ring to the recorder.
#[derive(Debug)]
pub(crate) struct RecorderInput {
    ring: Producer<Record>,
    direction: Direction,
    queue: u16,
    recorder: Arc<Recorder>,
}

impl RecorderInput {
    /// How many packets can be given now.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.ring.slots()
    }

    /// Gives a packet, seen at its own time stamp, or at `now_ns` when it has none. False (and the packet is freed)
    /// without [`RecorderInput::room`].
    #[inline]
    pub(crate) fn put(&mut self, packet: Packet, now_ns: u64) -> bool {
        let timestamp_ns = match packet.timestamp_ns() {
            0 => now_ns,
            stamp => stamp,
        };
        self.ring.push(Record { packet, timestamp_ns, direction: self.direction, queue: self.queue }).is_ok()
    }

    /// Records that could not be written, of all inputs.
    pub(crate) fn failed(&self) -> u64 {
        self.recorder.shared.failed.load(Ordering::Relaxed)
    }
}

/// Nanoseconds since 1970.
#[inline]
pub(crate) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

fn record(shared: &Shared, sink: &mut impl Sink, what: &str, warn: fn(&str)) {
    let mut rings: Vec<Consumer<Record>> = Vec::new();
    let mut failed = false;
    let mut report = |result: io::Result<()>, records: u64| {
        if let Err(error) = result {
            shared.failed.fetch_add(records, Ordering::Relaxed);
            if !failed {
                warn(&format!("cannot write {what}: {error}; what follows is lost"));
            }
            failed = true;
        }
    };
    loop {
        // Before looking: what was put into a ring before the handle was dropped is seen below.
        let last_round = shared.stop.load(Ordering::Acquire);
        rings.append(&mut lock(&shared.arrivals));
        let mut written = 0;
        for ring in &mut rings {
            // At most a ring at a time, so that a busy queue does not keep the others waiting.
            for _ in 0..RING {
                let Ok(record) = ring.pop() else { break };
                report(sink.write(&record), 1);
                written += 1;
            }
        }
        rings.retain(|ring| !(ring.is_abandoned() && ring.is_empty()));
        if written == 0 {
            report(sink.flush(), 0);
            if last_round {
                return;
            }
            std::thread::park_timeout(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pool;

    #[derive(Default)]
    struct Numbers(Arc<Mutex<Vec<u8>>>, bool);

    impl Sink for Numbers {
        fn write(&mut self, record: &Record) -> io::Result<()> {
            if self.1 {
                return Err(io::Error::other("full"));
            }
            self.0.lock().unwrap().push(record.packet.data()[0]);
            Ok(())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn everything_is_written_before_the_drop_returns() {
        let (mut pool, written) = (pool(2_000), Arc::new(Mutex::new(Vec::new())));
        let recorder = Recorder::start(Numbers(written.clone(), false), "test".into(), |_| ()).unwrap();
        let mut input = recorder.input(Direction::Receive, 0);
        drop(recorder);
        for number in 0..RING {
            let mut packet = pool.allocate().unwrap();
            packet.set_data(&[number as u8]);
            assert!(input.put(packet, 1));
        }
        drop(input);
        assert_eq!(*written.lock().unwrap(), (0..RING).map(|number| number as u8).collect::<Vec<_>>());
        pool.refill();
        assert_eq!(pool.stats().free, 2_000);
    }

    #[test]
    fn failures_are_counted() {
        let mut pool = pool(4);
        let recorder = Recorder::start(Numbers(Arc::default(), true), "test".into(), |_| ()).unwrap();
        let mut input = recorder.input(Direction::Transmit, 0);
        input.put(pool.allocate().unwrap(), 1);
        input.put(pool.allocate().unwrap(), 1);
        while input.failed() < 2 {
            std::thread::yield_now();
        }
    }
}
