//! Packets from one worker to another: bounded rings, one for each pair of workers, and a count of what the other
//! worker has done with them.
//!
//! A lane is a ring of packets with one end on each of two workers. The far worker also says how many packets of the
//! lane have left it ([`Progress`]): a change of who gets which packets waits until what came before it is through, so
//! no flow overtakes itself.

use packet::sync::lock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use graph::Setup;
use graph::router::Waker;
use packet::{Batch, Packet};
use rtrb::{Consumer, Producer, RingBuffer};

/// Why packets are dropped that a lane did not take.
pub const SURPLUS: &str = "hand-over ring full";

/// Packets that a lane holds.
pub const CAPACITY: usize = 1024;

/// How many packets of one source have left a worker for good; counted by that worker, read by the source. In a cache
/// line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Progress(AtomicU64);

impl Progress {
    /// Packets on their way.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    #[inline]
    fn publish(&self, count: u64) {
        self.0.store(count, Ordering::Release);
    }
}

/// What went into a `ToDevice` of one copy, and what has left it, in this order. Only that copy's thread writes it.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Account {
    entered: AtomicU64,
    left: AtomicU64,
    /// Where another worker sends: what has left that one.
    far: Option<Arc<Progress>>,
}

impl Account {
    #[inline]
    /// So many packets are on their way.
    pub fn enter(&self, count: usize) {
        self.entered.store(self.entered.load(Ordering::Relaxed) + count as u64, Ordering::Relaxed);
    }

    #[inline]
    /// So many have arrived.
    pub fn leave(&self, count: usize) {
        self.left.store(self.left.load(Ordering::Relaxed) + count as u64, Ordering::Relaxed);
    }

    fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed) + self.far.as_ref().map_or(0, |far| far.count())
    }
}

/// The accounts of all `ToDevice`s of one copy.
#[derive(Debug, Default)]
pub struct Accounts(Mutex<Vec<Arc<Account>>>);

impl Accounts {
    /// Those of the copy that `setup` belongs to.
    pub fn of(setup: &Setup<'_>) -> Arc<Self> {
        let key = format!("accounts of copy {}", setup.copy().index);
        match setup.shared().get_or_make(&key, || Ok::<_, std::convert::Infallible>(Self::default())) {
            Ok(accounts) => accounts,
            Err(never) => match never {},
        }
    }

    /// A new account; `lane` if packets go on to another worker.
    pub fn open(&self, lane: Option<&Outgoing>) -> Arc<Account> {
        let far = lane.map(|lane| lane.progress.clone());
        let account = Arc::new(Account { far, ..Account::default() });
        lock(&self.0).push(account.clone());
        account
    }

    /// All accounts; complete once all elements are made.
    pub fn all(&self) -> Vec<Arc<Account>> {
        lock(&self.0).clone()
    }
}

/// Says when packets that a worker was given have left it: when an element runs again, what it emitted before has been
/// worked off, so it has gone into a `ToDevice` or ended otherwise; and what has left the `ToDevice`s is in their
/// accounts.
#[derive(Debug)]
pub struct Drain {
    progress: Arc<Progress>,
    accounts: Vec<Arc<Account>>,
    count: u64,
    /// A count that was reached, and what had entered each `ToDevice` then.
    pending: Option<u64>,
    entered: Vec<u64>,
}

impl Drain {
    /// The end of a lane that packets go into.
    pub fn new(progress: Arc<Progress>) -> Self {
        Self { progress, accounts: Vec::new(), count: 0, pending: None, entered: Vec::new() }
    }

    /// Names the ways out of this copy; called once, when all elements are made.
    pub fn watch(&mut self, accounts: Vec<Arc<Account>>) {
        self.entered = vec![0; accounts.len()];
        self.accounts = accounts;
    }

    /// Counts packets that the worker begins with in this turn.
    #[inline]
    pub fn add(&mut self, count: u64) {
        self.count += count;
    }

    /// Packets begun with so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Called once a turn, before anything is begun in it.
    #[inline]
    pub fn turn(&mut self) {
        if self.pending.is_none() && self.progress.0.load(Ordering::Relaxed) != self.count {
            self.pending = Some(self.count);
            for (entered, account) in self.entered.iter_mut().zip(&self.accounts) {
                *entered = account.entered.load(Ordering::Relaxed);
            }
        }
        if let Some(count) = self.pending
            && self.entered.iter().zip(&self.accounts).all(|(entered, account)| account.left() >= *entered)
        {
            self.progress.publish(count);
            self.pending = None;
        }
    }
}

/// All lanes of an element, shared by its copies; each end is taken once.
#[derive(Debug, Default)]
pub struct Lanes {
    ends: Mutex<HashMap<(usize, usize), Ends>>,
}

/// Both ends of a lane, until they are taken.
#[derive(Debug)]
struct Ends {
    producer: Option<Producer<Packet>>,
    consumer: Option<Consumer<Packet>>,
    progress: Arc<Progress>,
}

impl Ends {
    fn new(capacity: usize) -> Self {
        let (producer, consumer) = RingBuffer::new(capacity);
        Self { producer: Some(producer), consumer: Some(consumer), progress: Arc::default() }
    }
}

impl Lanes {
    /// The lanes of the element called `what` (a key for this kind of lanes).
    pub fn of(setup: &Setup<'_>, what: &str) -> Arc<Self> {
        let key = format!("{what} lanes of {}", setup.name());
        match setup.shared().get_or_make(&key, || Ok::<_, std::convert::Infallible>(Self::default())) {
            Ok(lanes) => lanes,
            Err(never) => match never {},
        }
    }

    /// The near end of the lane from the worker `from` to the worker `to`.
    pub fn outgoing(&self, setup: &Setup<'_>, from: usize, to: usize) -> Option<Outgoing> {
        self.outgoing_with(setup, from, to, CAPACITY)
    }

    /// The same of a lane that holds so many packets.
    pub fn outgoing_with(
        &self,
        setup: &Setup<'_>,
        from: usize,
        to: usize,
        capacity: usize,
    ) -> Option<Outgoing> {
        let mut ends = lock(&self.ends);
        let ends = ends.entry((from, to)).or_insert_with(|| Ends::new(capacity));
        let waker = setup.shared().get::<Waker>(&Waker::key(to));
        Some(Outgoing::new(ends.producer.take()?, ends.progress.clone(), waker))
    }

    /// The far end of the lane from the worker `from` to the worker `to`.
    pub fn incoming(&self, from: usize, to: usize) -> Option<Incoming> {
        self.incoming_with(from, to, CAPACITY)
    }

    /// The same of a lane that holds so many packets.
    pub fn incoming_with(&self, from: usize, to: usize, capacity: usize) -> Option<Incoming> {
        let mut ends = lock(&self.ends);
        let ends = ends.entry((from, to)).or_insert_with(|| Ends::new(capacity));
        Some(Incoming { ring: ends.consumer.take()?, drain: Drain::new(ends.progress.clone()) })
    }
}

/// The end of a lane on the worker that hands over.
pub struct Outgoing {
    ring: Producer<Packet>,
    progress: Arc<Progress>,
    handed: u64,
    passing: Batch,
    waker: Option<Arc<Waker>>,
}

impl Outgoing {
    fn new(ring: Producer<Packet>, progress: Arc<Progress>, waker: Option<Arc<Waker>>) -> Self {
        Self { ring, progress, handed: 0, passing: Batch::new(), waker }
    }

    /// Hands packets over from the front of `batch`, as far as there is room, and wakes the other worker if it sleeps.
    #[inline]
    pub fn send(&mut self, batch: &mut Batch) {
        let count = batch.len().min(self.ring.slots());
        if count == 0 {
            return;
        }
        batch.move_front(&mut self.passing, count);
        if let Ok(chunk) = self.ring.write_chunk_uninit(count) {
            self.handed += chunk.fill_from_iter(self.passing.drain()) as u64;
        }
        if let Some(waker) = &self.waker {
            waker.wake_if_asleep();
        }
    }

    /// Packets that fit now.
    #[inline]
    pub fn room(&self) -> usize {
        self.ring.slots()
    }

    /// What has to pass before all that was handed over so far has left the other worker.
    pub fn barrier(&self) -> Barrier {
        Barrier { progress: self.progress.clone(), count: self.handed }
    }
}

/// The end of a lane on the worker that gets the packets.
pub struct Incoming {
    ring: Consumer<Packet>,
    drain: Drain,
}

impl Incoming {
    /// Names the ways out of the far worker's copy; called once, when all elements are made.
    pub fn watch(&mut self, accounts: Vec<Arc<Account>>) {
        self.drain.watch(accounts);
    }

    /// Called once a turn, before anything is taken in it.
    #[inline]
    pub fn turn(&mut self) {
        self.drain.turn();
    }

    /// Adds up to `max` packets to the end of `batch`; returns how many.
    #[inline]
    pub fn take(&mut self, batch: &mut Batch, max: usize) -> usize {
        let count = self.ring.slots().min(max).min(batch.room());
        if count > 0
            && let Ok(chunk) = self.ring.read_chunk(count)
        {
            chunk.into_iter().for_each(|packet| batch.push(packet));
            self.drain.add(count as u64);
        }
        count
    }
}

/// A point that a worker has passed when enough packets of a source have left it.
#[derive(Clone, Debug)]
pub struct Barrier {
    progress: Arc<Progress>,
    count: u64,
}

impl Barrier {
    /// Remembers how far the drain is.
    pub fn new(drain: &Drain) -> Self {
        Self { progress: drain.progress.clone(), count: drain.count() }
    }

    /// Returns whether all that was on the drain then has passed.
    pub fn is_passed(&self) -> bool {
        self.progress.count() >= self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{Pool, PoolOptions};

    #[test]
    fn a_trail_says_what_has_left() {
        let progress = Arc::new(Progress::default());
        let mut drain = Drain::new(progress.clone());
        let account = Arc::new(Account::default());
        drain.watch(vec![account.clone()]);
        drain.turn();
        drain.add(5);
        let barrier = Barrier::new(&drain);
        // One was dropped on the way; four go in, three out.
        account.enter(4);
        account.leave(3);
        drain.turn();
        assert!(!barrier.is_passed(), "one still waits in a ToDevice");
        drain.add(3);
        account.enter(3);
        account.leave(1);
        drain.turn();
        assert_eq!(progress.count(), 5);
        assert!(barrier.is_passed());
        account.leave(3);
        drain.turn();
        assert_eq!(progress.count(), 8);
    }

    #[test]
    fn what_another_worker_sends_has_left_when_it_left_that_one() {
        let far = Arc::new(Progress::default());
        let account = Arc::new(Account { far: Some(far.clone()), ..Account::default() });
        let progress = Arc::new(Progress::default());
        let mut drain = Drain::new(progress.clone());
        drain.watch(vec![account.clone()]);
        drain.add(2);
        account.enter(2);
        drain.turn();
        assert_eq!(progress.count(), 0);
        far.publish(2);
        drain.turn();
        assert_eq!(progress.count(), 2);
    }

    #[test]
    fn a_full_lane_takes_what_fits_in_order() {
        let lanes = Lanes::default();
        let (producer, progress) = {
            let mut ends = lanes.ends.lock().unwrap();
            let ends = ends.entry((0, 1)).or_insert_with(|| Ends::new(CAPACITY));
            (ends.producer.take().unwrap(), ends.progress.clone())
        };
        let mut out = Outgoing::new(producer, progress, None);
        let mut far = lanes.incoming(0, 1).unwrap();
        assert!(lanes.incoming(0, 1).is_none(), "an end is taken once");
        let mut pool = Pool::new(PoolOptions { frames: 2048, data_bytes: 64 }).unwrap();
        let mut sent = 0u32;
        let mut batch = Batch::new();
        while batch.is_empty() {
            pool.allocate_batch(&mut batch, 200);
            for packet in batch.iter_mut() {
                packet.set_data(&sent.to_be_bytes());
                sent += 1;
            }
            out.send(&mut batch);
        }
        assert_eq!((batch.len() as u32, out.room()), (sent - CAPACITY as u32, 0));
        assert_eq!(batch.packets()[0].data(), (CAPACITY as u32).to_be_bytes());
        pool.free(&mut batch);
        let mut next = 0u32;
        while far.take(&mut batch, 100) > 0 {
            for packet in batch.iter() {
                assert_eq!(packet.data(), next.to_be_bytes());
                next += 1;
            }
            pool.free(&mut batch);
        }
        assert_eq!(next, CAPACITY as u32);
        assert!(!out.barrier().is_passed());
        far.turn();
        assert!(out.barrier().is_passed());
    }
}
