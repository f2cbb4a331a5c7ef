//! Publication: how the control thread changes what workers are reading, and no worker ever waits.
//!
//! Two equal copies of a state (*left-right*, Ramalhete and Correia 2013). Workers read the **active** one; the one
//! writer edits the **passive** one, makes it the active one, waits until the last reader has left the other, and
//! brings that in line. It costs memory twice and each edit twice; nothing is copied, allocated or freed, and a
//! reader pays two stores and a load for a visit that lasts a batch of packets.
//!
//! ```
//! let (mut writer, readers) = fib::publish::pair(vec![1], vec![1]);
//! let mut reader = readers.register(); // one for each worker
//! {
//!     let state = reader.enter(); // once for a batch
//!     assert_eq!(state[0], 1);
//! }
//! writer.both().0[0] = 2; // nobody reads this copy
//! writer.publish(); // now they do, and nobody reads the other
//! assert_eq!(reader.enter()[0], 2);
//! let (passive, active) = writer.both();
//! passive[0] = active[0];
//! ```
//!
//! # The protocol
//!
//! `generation` counts flips; its lowest bit says which copy is active. A reader's *slot*, written by it alone, counts
//! its entries and its exits: odd inside, even outside, every visit a number of its own.
//!
//! | reader | | writer | |
//! | --- | --- | --- | --- |
//! | announce: `slot = 2k - 1` | Release | flip: `generation += 1` | Release |
//! | **barrier** | | **barrier** | |
//! | look: `generation` | Acquire | scan: remember each odd `slot` | Acquire |
//! | read that copy | | wait until each of these has *changed* | Acquire |
//! | leave: `slot = 2k` | Release | edit the passive copy | |
//!
//! A reader announces *before* it looks. The other way round it could look, be descheduled, and come back into a copy
//! that the writer found empty meanwhile.
//!
//! # Why nobody is inside the passive copy once `publish` has returned
//!
//! Take one visit and one flip.
//!
//! 1. **The two barriers** make it impossible that the reader's look misses the flip *and* the writer's scan misses
//!    the announcement (store, barrier, load on both sides: Dekker's handshake). So either the visit is in the new
//!    copy, or the scan reads its announcement or a later value of that slot.
//! 2. **A later value** means that the visit is over. Each store to a slot is a Release and each load of it by the
//!    writer an Acquire, so all that the visit read was read before the edit. This is why the announcement is a
//!    Release too: the writer may see the next visit's announcement and never this one's exit.
//! 3. **The announcement itself** is remembered, and the writer waits until that slot holds anything else: case 2. It
//!    waits for this visit, not for the slot to be even, so a reader that leaves and is back at once, as a busy worker
//!    is, cannot starve it (liburcu flips twice for the same end). A visit that began after the flip and before the
//!    scan is waited for needlessly, once.
//! 4. **Flips before this one** need no scan of their own: a look that missed an earlier flip missed this one too.
//! 5. **The new copy** is complete for a reader that looks at it: the look is an Acquire of the flip's Release.
//! 6. **Readers that come**: the list of slots is in a mutex, and a reader registers before its first visit. Either
//!    the scan came later and finds the slot; or the scan came first, and then the reader's lock follows the writer's
//!    unlock and hence the flip, so its looks see it.
//! 7. **Readers that go**: a guard borrows its reader, so a reader without a guard is outside. A guard that was
//!    forgotten (`mem::forget`) leaves its slot odd; nobody can read through it any more, and the slot's next value,
//!    at the next visit or when the reader is dropped, differs from it. A thread that panics inside leaves by drop.
//!
//! # Barriers that cost readers nothing
//!
//! A fence between announcement and look would drain the store buffer for every batch. Instead the writer asks the
//! kernel to make every running thread of the process execute one (`membarrier(2)`, private expedited, Linux 4.14);
//! threads that are not running passed one when they were switched out. The reader's side is then a barrier for the
//! compiler alone. Why this does what two fences do: the kernel's fence hits the reader somewhere in its program.
//! Before its look: then the look sees the flip, which the writer made before the call. After its look: then its
//! announcement, earlier still, is visible to the scan, which the writer makes after the call. There is no third place.
//!
//! Where membarrier is refused (older kernels, other systems, seccomp) both sides use real fences; this is decided
//! once, in [`pair`]. The price of membarrier is that each publication interrupts each running worker once, for some
//! microseconds in a virtual machine: publish a flood of route changes in groups. `examples/publish.rs` measures it.
//! It said, on two virtual CPUs of an AMD EPYC (Zen 5, 2.6 GHz time-stamp counter):
//!
//! | | membarrier | fences |
//! | --- | --- | --- |
//! | enter and leave, cycles | 1.9 | 16 |
//! | publish, no reader inside, microseconds | 0.3 | 0.04 |
//! | publish, one busy reader on another CPU, microseconds | 9 | 0.1 |
//! | taken from that reader by each publication, microseconds | 6 | 0.1 |
//!
//! The model checker (loom) knows no membarrier; there both sides fence, which by the argument above is the same:
//! `make loom`.
//!
//! # Readers elsewhere
//!
//! A program in the kernel can read the same copies, if they lie in memory that it sees ([`Elsewhere`]). It follows the
//! same protocol with words of its own: a slot for each CPU, and a word that says which copy is active. The writer writes
//! that word at each flip, before its barrier and the scan, which reads these slots too. The argument above holds for such
//! a visit with four additions.
//!
//! 1. **Its barriers are its own.** Membarrier does not reach a program in the kernel. The program announces itself by an
//!    atomic compare-and-exchange and leaves by an atomic addition, both of which return a value. That makes them full
//!    barriers (Documentation/atomic_t.txt of the kernel; in BPF on powerpc since Linux 6.10). So the first is the barrier
//!    between announcement and look, and the second the Release of the exit. The writer's side fences as well: the
//!    kernel's membarrier does nothing in a process of one thread.
//! 2. **Its look** is a plain load, for BPF had no Acquire before Linux 6.15. Whatever the visit reads stands at an
//!    address that is computed from the word that it saw. Processors that run BPF keep such loads in order (address
//!    dependency), and so all of them come after the flip that made the copy complete. The compiler must load that word
//!    once: the load is volatile.
//! 3. **A slot has one visit at a time.** Where softirqs do not nest, as on most kernels, that is so by itself. With
//!    PREEMPT_RT one program may be preempted by another on the same CPU (Linux 6.18, without
//!    CONFIG_PREEMPT_RT_NEEDS_BH_LOCK); by two additions the slot would be even then, with two visits under way. The
//!    exchange takes a slot that is even, or fails, and then the program leaves its packet to the workers.
//! 4. **Readers that are exchanged** ([`Writer::exchange_elsewhere`]) go on in the copy that was active, by their own
//!    word. A CPU may have taken the old program and not announced itself yet, and no slot knows of it. So `exchange` waits
//!    for a grace period of RCU after the old program is gone; installing another one does not do that by itself.
//!    `membarrier(MEMBARRIER_CMD_GLOBAL)` is one, and so is an update of a map of maps. Then nobody enters any more, and
//!    the scan finds those who have. The new readers see the new copy from their first look on.

mod barrier;
#[cfg(test)]
mod tests;

use barrier::Barrier;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

#[cfg(all(test, loom))]
use loom::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};
#[cfg(not(all(test, loom)))]
use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};

/// Two cache lines of its own: the adjacent-line prefetcher of x86 fetches lines in pairs.
#[repr(align(128))]
struct Apart<T>(T);

/// A reader's count of entries and exits: odd inside, even outside.
type Slot = Apart<AtomicU64>;

/// What writer and readers have in common; the states die with the last of them.
struct Shared<T> {
    /// Flips so far. Bit 0 is the index of the active copy.
    generation: Apart<AtomicU64>,
    copies: [Apart<UnsafeCell<T>>; 2],
    slots: Mutex<Vec<Arc<Slot>>>,
    barrier: Barrier,
}

// SAFETY: the protocol above gives `&T` of the active copy to many threads (T: Sync) and `&mut T` of the passive copy
// to one, and either copy may be dropped by any thread (T: Send). The other fields are Sync.
#[allow(unsafe_code, reason = "UnsafeCell is not Sync; the protocol of this file makes it so")]
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn copy(&self, generation: u64) -> NonNull<T> {
        NonNull::from(&self.copies[(generation & 1) as usize].0).cast()
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Arc<Slot>>> {
        self.slots.lock().expect("nothing panics while it holds the list of slots")
    }
}

/// Readers outside this process that read the same two copies; see the top of this file.
pub trait Elsewhere: Send + Sync {
    /// Makes the copy of this generation the active one, by a store that releases what was written before.
    fn flip(&self, generation: u64);

    /// Returns how many slots there are.
    fn slots(&self) -> usize;

    /// Returns the value of a slot, odd while its reader is inside, by a load that acquires.
    fn visit(&self, slot: usize) -> u64;
}

/// Where a reader announces itself.
enum Seat {
    Here(Arc<Slot>),
    Elsewhere(std::sync::Arc<dyn Elsewhere>, usize),
}

impl Seat {
    fn visit(&self) -> u64 {
        match self {
            Seat::Here(slot) => slot.0.load(Ordering::Acquire),
            Seat::Elsewhere(elsewhere, slot) => elsewhere.visit(*slot),
        }
    }
}

/// Publishes a state in two copies, `left` and `right`, which must be equal; readers begin with `left`.
///
/// The first call in a process registers it for membarrier, which the kernel may take some milliseconds for.
pub fn pair<T: Send + Sync>(left: T, right: T) -> (Writer<T>, Readers<T>) {
    pair_with(left, right, Barrier::cheapest_for_readers())
}

/// [`pair`] without membarrier: readers execute a fence in each visit, and publishing interrupts nobody.
pub fn pair_with_fences<T: Send + Sync>(left: T, right: T) -> (Writer<T>, Readers<T>) {
    pair_with(left, right, Barrier::Fence)
}

fn pair_with<T: Send + Sync>(left: T, right: T, barrier: Barrier) -> (Writer<T>, Readers<T>) {
    let shared = Arc::new(Shared {
        generation: Apart(AtomicU64::new(0)),
        copies: [Apart(UnsafeCell::new(left)), Apart(UnsafeCell::new(right))],
        slots: Mutex::new(Vec::new()),
        barrier,
    });
    let (inside, elsewhere) = (Vec::new(), None);
    let writer = Writer { shared: shared.clone(), generation: 0, unscanned: false, inside, elsewhere };
    (writer, Readers { shared })
}

/// The one who edits: has the passive copy to itself and decides when it becomes the active one.
pub struct Writer<T> {
    shared: Arc<Shared<T>>,
    generation: u64,
    /// Flipped, and not looked yet who is inside.
    unscanned: bool,
    /// Slots found odd by the last scan, and not seen to change since.
    inside: Vec<(Seat, u64)>,
    elsewhere: Option<std::sync::Arc<dyn Elsewhere>>,
}

impl<T: Send + Sync> Writer<T> {
    /// The passive copy, to edit, and the active one, to compare or copy from. Waits first, as [`Writer::settle`] does,
    /// if readers may still be inside the passive one.
    ///
    /// An edit that panics half-way leaves the passive copy as it is then; readers do not see it until it is published.
    #[allow(unsafe_code, reason = "the passive copy is the writer's")]
    pub fn both(&mut self) -> (&mut T, &T) {
        self.settle();
        // SAFETY: the passive copy: since `settle` nobody is inside (see the top of this file), and nobody enters it
        // before the next flip, which needs this `&mut self`. The active copy: only shared references exist until it
        // is the passive one, which needs `&mut self` too.
        unsafe {
            (self.shared.copy(self.generation + 1).as_mut(), self.shared.copy(self.generation).as_ref())
        }
    }

    /// The active copy: what readers who enter now see.
    #[allow(unsafe_code, reason = "the active copy is read by all")]
    pub fn active(&self) -> &T {
        // SAFETY: nobody has a `&mut` to the active copy; it becomes the passive one by a flip, which needs
        // `&mut self`.
        unsafe { self.shared.copy(self.generation).as_ref() }
    }

    /// Makes the passive copy the active one. When it returns, no reader is inside the copy that was active before.
    ///
    /// [`Writer::flip`] and [`Writer::settle`] in one. Readers are not delayed; they delay this call while they are
    /// inside, a batch of packets as a rule, or until a reader that was descheduled inside runs again. A thread must
    /// not publish while it holds a [`Guard`] of the same state: it would wait for itself.
    pub fn publish(&mut self) {
        self.flip();
        self.settle();
    }

    /// Makes the passive copy the active one and waits for nobody: readers who enter from now on see it, those inside
    /// stay where they are. Follow it by [`Writer::settle_within`] between other work, or by [`Writer::both`].
    pub fn flip(&mut self) {
        self.flip_here();
        if let Some(elsewhere) = &self.elsewhere {
            elsewhere.flip(self.generation);
        }
    }

    fn flip_here(&mut self) {
        self.unscanned = true;
        self.generation += 1;
        self.shared.generation.0.store(self.generation, Ordering::Release);
    }

    /// Publishes, and exchanges the readers elsewhere for others, or none. When it returns, no reader is inside the copy
    /// that was active before.
    ///
    /// Those that are there now keep reading the copy that was active. `exchange` has them replaced, and returns when
    /// none of them can enter any more: for programs in the kernel, after a grace period of RCU.
    pub fn exchange_elsewhere(
        &mut self,
        new: Option<std::sync::Arc<dyn Elsewhere>>,
        exchange: impl FnOnce(),
    ) {
        self.flip_here();
        if let Some(new) = &new {
            new.flip(self.generation);
        }
        exchange();
        self.settle();
        self.elsewhere = new;
    }

    /// Waits until no reader is inside the passive copy. At once if that is known already.
    pub fn settle(&mut self) {
        self.settle_before(None);
    }

    /// Waits until no reader is inside the passive copy, `limit` at most (or up to a tenth of a millisecond longer).
    /// Returns whether it is so; if not, ask again later. With a limit of zero it looks once.
    pub fn settle_within(&mut self, limit: Duration) -> bool {
        self.settle_before(Instant::now().checked_add(limit))
    }

    /// Flips so far.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether readers are spared their fence by membarrier; if not, both sides fence.
    pub fn uses_membarrier(&self) -> bool {
        self.shared.barrier == Barrier::Membarrier
    }

    fn settle_before(&mut self, deadline: Option<Instant>) -> bool {
        if self.unscanned {
            self.scan();
            self.unscanned = false;
        }
        for look in 0_u32.. {
            self.inside.retain(|(seat, announced)| seat.visit() == *announced);
            if self.inside.is_empty() {
                break;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            // A reader that hangs is another thread's fault.
            packet::pulse::beat();
            pause(look);
        }
        true
    }

    /// Lists who is inside. The lock is not held while waiting: readers come and go meanwhile.
    fn scan(&mut self) {
        self.inside.clear();
        self.shared.barrier.writer();
        for slot in self.shared.slots().iter() {
            let visit = slot.0.load(Ordering::Acquire);
            if visit % 2 == 1 {
                self.inside.push((Seat::Here(slot.clone()), visit));
            }
        }
        if let Some(elsewhere) = &self.elsewhere {
            for slot in 0..elsewhere.slots() {
                let visit = elsewhere.visit(slot);
                if visit % 2 == 1 {
                    self.inside.push((Seat::Elsewhere(elsewhere.clone(), slot), visit));
                }
            }
        }
    }
}

/// What the writer does between two looks at the slots. A batch takes microseconds: spin for about as long. Then the
/// reader is likely not running, perhaps for want of this CPU: yield it. Then it may be long: sleep.
#[cfg(not(all(test, loom)))]
fn pause(look: u32) {
    match look {
        0..128 => std::hint::spin_loop(),
        128..192 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(50)),
    }
}

#[cfg(all(test, loom))]
fn pause(_look: u32) {
    loom::thread::yield_now();
}

/// Where readers come from: any number, made and dropped at any time by any thread.
pub struct Readers<T> {
    shared: Arc<Shared<T>>,
}

impl<T: Send + Sync> Readers<T> {
    /// A new reader. Allocates and takes a lock (never one that is held while somebody waits): not for a packet's way.
    pub fn register(&self) -> Reader<T> {
        let slot = Arc::new(Apart(AtomicU64::new(0)));
        self.shared.slots().push(slot.clone());
        Reader { shared: self.shared.clone(), slot, barrier: self.shared.barrier, visits: 0 }
    }
}

impl<T> Clone for Readers<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

/// A worker's access to the active copy.
pub struct Reader<T> {
    shared: Arc<Shared<T>>,
    slot: Arc<Slot>,
    /// A copy of what `shared` says, where the reader's other fields are.
    barrier: Barrier,
    /// Twice the number of visits so far, which is what the slot holds after the last of them.
    visits: u64,
}

impl<T: Send + Sync> Reader<T> {
    /// Enters the active copy and stays until the guard is dropped. Never waits. A few cycles.
    ///
    /// The guard keeps seeing the same copy, whatever is published meanwhile; the writer waits for its end, so it
    /// should not outlive a batch.
    ///
    /// ```compile_fail,E0499
    /// let (_writer, readers) = fib::publish::pair(1, 1);
    /// let mut reader = readers.register();
    /// let first = reader.enter();
    /// let second = reader.enter(); // a reader is in one copy at a time
    /// assert_eq!(*first, *second);
    /// ```
    #[inline]
    pub fn enter(&mut self) -> Guard<'_, T> {
        self.visits += 2;
        self.slot.0.store(self.visits - 1, Ordering::Release);
        self.barrier.reader();
        let generation = self.shared.generation.0.load(Ordering::Acquire);
        let state = self.shared.copy(generation);
        Guard { state, generation, slot: &self.slot, exit: self.visits, reader: PhantomData }
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        // Even if the last guard was forgotten: the writer may be waiting for it.
        self.slot.0.store(self.visits, Ordering::Release);
        self.shared.slots().retain(|slot| !Arc::ptr_eq(slot, &self.slot));
    }
}

/// A reader inside the state; dropping it leaves.
pub struct Guard<'a, T> {
    // Not a reference: one in an argument of `drop` would have to stay valid until that returns, which is after the
    // store that lets the writer edit.
    state: NonNull<T>,
    generation: u64,
    slot: &'a Slot,
    exit: u64,
    reader: PhantomData<&'a mut Reader<T>>,
}

impl<T> Guard<'_, T> {
    /// The flips before this copy became the active one; the same number, the same state.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    #[allow(unsafe_code, reason = "the active copy is read by all")]
    fn deref(&self) -> &T {
        // SAFETY: the copy lives in `Shared`, which the borrowed reader keeps alive. It was entered as the active one,
        // and the writer makes no `&mut` to it before the store in `drop` (see the top of this file).
        unsafe { self.state.as_ref() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.slot.0.store(self.exit, Ordering::Release);
    }
}
