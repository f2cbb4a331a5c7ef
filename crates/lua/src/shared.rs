//! What a script and its element share: numbers and a batch in memory that both see, and what the script asks for during a call.

use std::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use packet::{Batch, MAX_BATCH, Packet};

/// Outputs from here on stand for a reason to drop a packet.
pub(crate) const DROPPED: u16 = 0x8000;
/// Most packets that a call may make.
const MOST_TRANSMITTED: usize = 256;
/// Most lines that are kept of a call.
const MOST_LINES: usize = 16;

/// `struct bw_shared` of `prelude.lua`. Scripts read and write it while the element waits for them, hence atomics.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Shared {
    /// Packets of the batch; 0 while no batch is there.
    count: AtomicU32,
    /// Another number for each batch.
    generation: AtomicU32,
    input: AtomicU32,
    outputs: AtomicU32,
    is_sorted: AtomicU32,
    _routed: AtomicU32,
    now_ns: AtomicU64,
    /// `Packet` is a pointer to `packet::Metadata`, of which the prelude knows the members.
    packets: AtomicPtr<Packet>,
    output: [AtomicU16; MAX_BATCH],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Packet>() == size_of::<*const ()>());
    assert!(
        offset_of!(Shared, now_ns) == 24
            && offset_of!(Shared, packets) == 32
            && offset_of!(Shared, output) == 40
    );
};

impl Shared {
    pub(crate) fn new() -> Self {
        Self {
            count: AtomicU32::new(0),
            generation: AtomicU32::new(1),
            input: AtomicU32::new(0),
            outputs: AtomicU32::new(0),
            is_sorted: AtomicU32::new(0),
            _routed: AtomicU32::new(0),
            now_ns: AtomicU64::new(0),
            packets: AtomicPtr::new(std::ptr::null_mut()),
            output: [const { AtomicU16::new(0) }; MAX_BATCH],
        }
    }

    /// Says what time it is and how many outputs there are.
    pub(crate) fn begin(&self, now_ns: u64, outputs: usize) {
        self.now_ns.store(now_ns, Relaxed);
        self.outputs.store(u32::try_from(outputs).unwrap_or(u32::MAX).min(u32::from(DROPPED)), Relaxed);
    }

    /// Shows a batch, which stays where it is until [`Shared::hide`].
    pub(crate) fn show(&self, input: usize, batch: &mut Batch) {
        for output in &self.output[..batch.len()] {
            output.store(0, Relaxed);
        }
        self.is_sorted.store(0, Relaxed);
        self.input.store(input as u32, Relaxed);
        self.packets.store(batch.packets_mut().as_mut_ptr(), Relaxed);
        self.count.store(batch.len() as u32, Relaxed);
    }

    /// Ends all access to the batch: packets that a script has kept are of an earlier generation now.
    pub(crate) fn hide(&self) {
        self.count.store(0, Relaxed);
        self.generation.store(self.generation.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Whether the script chose outputs.
    pub(crate) fn is_sorted(&self) -> bool {
        self.is_sorted.load(Relaxed) != 0
    }

    /// The output of a packet, or the reason why it is dropped.
    pub(crate) fn output(&self, number: usize) -> Result<usize, &'static str> {
        match self.output[number].load(Relaxed) {
            output @ ..DROPPED => Ok(usize::from(output)),
            reason => Err(reason_of(reason - DROPPED)),
        }
    }
}

/// What a script asked for during a call.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    /// Keys of timers, and in how many nanoseconds.
    pub(crate) timers: Vec<(u32, u64)>,
    /// New packets and their outputs.
    pub(crate) packets: Vec<(Vec<u8>, usize)>,
    /// Lines of the log, and how many there were.
    pub(crate) lines: Vec<String>,
    pub(crate) line_count: usize,
}

impl Wishes {
    /// Keeps a packet to send.
    pub(crate) fn transmit(&mut self, bytes: Vec<u8>, output: usize) -> Result<(), String> {
        if self.packets.len() == MOST_TRANSMITTED {
            return Err(format!("more than {MOST_TRANSMITTED} packets in one call"));
        }
        self.packets.push((bytes, output));
        Ok(())
    }

    /// Keeps a line of the log.
    pub(crate) fn log(&mut self, line: String) {
        self.line_count += 1;
        if self.lines.len() < MOST_LINES {
            self.lines.push(line);
        }
    }
}

/// The reasons that scripts of this process named: they are counted under names that live as long as the program.
static REASONS: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
const MOST_REASONS: usize = 256;
const LONGEST_REASON: usize = 64;

/// The number of a reason to drop packets.
pub(crate) fn reason_number(reason: &str) -> Result<u16, String> {
    let mut reasons = REASONS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(number) = reasons.iter().position(|known| *known == reason) {
        return Ok(number as u16);
    }
    if reason.is_empty() || reason.len() > LONGEST_REASON || reason.chars().any(char::is_control) {
        return Err(format!(
            "drop reason '{}': expected 1 to {LONGEST_REASON} characters",
            reason.escape_debug()
        ));
    }
    if reasons.len() == MOST_REASONS {
        return Err(format!("more than {MOST_REASONS} different drop reasons"));
    }
    reasons.push(reason.to_owned().leak());
    Ok(reasons.len() as u16 - 1)
}

#[cold]
fn reason_of(number: u16) -> &'static str {
    let reasons = REASONS.lock().unwrap_or_else(PoisonError::into_inner);
    reasons.get(usize::from(number)).copied().unwrap_or("dropped by the script")
}
