//! Numbers and a batch in memory that a script and its element both see, and the reasons for which scripts drop packets.

use std::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use packet::{Batch, MAX_BATCH, Mask, Packet};

use crate::queues::MOST_QUEUES;

/// The output of packets of which nothing was said.
const UNDECIDED: u16 = 0x7fff;
/// Masks of a batch.
pub(crate) const MASKS: usize = 64;
/// Outputs from here on stand for a queue that the script has made.
pub(crate) const QUEUED: u16 = 0x7000;
/// Outputs from here on stand for a reason to drop a packet.
pub(crate) const DROPPED: u16 = 0x8000;
/// From here on these are reasons of our own steps.
const OWN: u16 = 0xc000;
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
    /// Masks that the script has used of this batch.
    masks_used: AtomicU32,
    now_ns: AtomicU64,
    /// `Packet` is a pointer to `packet::Metadata`, of which the prelude knows the members.
    packets: AtomicPtr<Packet>,
    output: [AtomicU16; MAX_BATCH],
    /// In halves, which are in order on a little-endian machine, for the prelude.
    masks: [[AtomicU64; MAX_BATCH / 64]; MASKS],
    /// Whether the main loop runs, and waits for batches on its own stack.
    is_serving: AtomicU32,
    /// Packets in each queue that the script has made.
    lengths: [AtomicU32; MOST_QUEUES],
    /// Whether the script takes merged packets whole.
    takes_merged: AtomicU32,
    /// Packets of the last batch, for ourselves.
    last_count: AtomicU32,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Packet>() == size_of::<*const ()>() && MAX_BATCH == 256);
    assert!(offset_of!(Shared, now_ns) == 24 && offset_of!(Shared, packets) == 32);
    assert!(offset_of!(Shared, output) == 40 && offset_of!(Shared, masks) == 40 + 2 * MAX_BATCH);
    assert!(offset_of!(Shared, is_serving) == 40 + 2 * MAX_BATCH + 4 * 8 * MASKS);
    assert!(offset_of!(Shared, takes_merged) == offset_of!(Shared, is_serving) + 4 + 4 * MOST_QUEUES);
};

impl Shared {
    pub(crate) fn new() -> Self {
        Self {
            count: AtomicU32::new(0),
            generation: AtomicU32::new(1),
            input: AtomicU32::new(0),
            outputs: AtomicU32::new(0),
            is_sorted: AtomicU32::new(0),
            masks_used: AtomicU32::new(0),
            now_ns: AtomicU64::new(0),
            packets: AtomicPtr::new(std::ptr::null_mut()),
            output: [const { AtomicU16::new(UNDECIDED) }; MAX_BATCH],
            is_serving: AtomicU32::new(0),
            takes_merged: AtomicU32::new(0),
            last_count: AtomicU32::new(0),
            lengths: [const { AtomicU32::new(0) }; MOST_QUEUES],
            masks: [const { [const { AtomicU64::new(0) }; MAX_BATCH / 64] }; MASKS],
        }
    }

    /// Says what time it is and how many outputs there are.
    pub(crate) fn begin(&self, now_ns: u64, outputs: usize) {
        self.now_ns.store(now_ns, Relaxed);
        self.outputs.store(u32::try_from(outputs).unwrap_or(u32::MAX).min(u32::from(QUEUED)), Relaxed);
    }

    /// Shows a batch, which stays where it is until [`Shared::hide`].
    pub(crate) fn show(&self, input: usize, batch: &mut Batch) {
        // If nothing was said of the last batch, nothing has to be forgotten.
        if self.is_sorted() {
            let count = self.last_count.load(Relaxed) as usize;
            self.output.iter().take(count).for_each(|output| output.store(UNDECIDED, Relaxed));
            self.is_sorted.store(0, Relaxed);
        }
        self.last_count.store(batch.len() as u32, Relaxed);
        self.masks_used.store(0, Relaxed);
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

    /// Whether the script takes merged packets whole.
    pub(crate) fn takes_merged(&self) -> bool {
        self.takes_merged.load(Relaxed) != 0
    }

    /// A mask that the script names; none if there is none of that number.
    pub(crate) fn mask(&self, number: usize) -> Mask {
        let Some(words) = self.masks.get(number) else { return Mask::NONE };
        Mask::from_words(std::array::from_fn(|word| words[word].load(Relaxed)))
    }

    /// Writes a mask.
    pub(crate) fn set_mask(&self, number: usize, mask: Mask) {
        let Some(words) = self.masks.get(number) else { return };
        words.iter().zip(mask.words()).for_each(|(word, bits)| word.store(bits, Relaxed));
    }

    /// Has the main loop go on waiting, or end at its next turn.
    pub(crate) fn serve(&self, is_serving: bool) {
        self.is_serving.store(u32::from(is_serving), Relaxed);
    }

    /// Says how long the queues are.
    pub(crate) fn show_lengths(&self, lengths: impl Iterator<Item = usize>) {
        for (shown, length) in self.lengths.iter().zip(lengths) {
            shown.store(length as u32, Relaxed);
        }
    }

    /// Has a packet leave by an output.
    pub(crate) fn send(&self, number: usize, output: u16) {
        self.output[number].store(output, Relaxed);
        self.is_sorted.store(1, Relaxed);
    }

    /// Whether nothing was said of a packet yet.
    pub(crate) fn is_undecided(&self, number: usize) -> bool {
        self.output[number].load(Relaxed) == UNDECIDED
    }

    /// The output of a packet, or the reason why it is dropped.
    #[inline(always)]
    pub(crate) fn output(&self, number: usize, reasons: &mut Reasons) -> Result<usize, &'static str> {
        match self.output[number].load(Relaxed) {
            UNDECIDED => Ok(0),
            output @ ..DROPPED => Ok(usize::from(output)),
            reason => Err(reasons.name(reason - DROPPED)),
        }
    }
}

/// A text as one line of a log: not too long, and without characters that mean something to terminals.
pub(crate) fn one_line(text: &str) -> String {
    const LONGEST: usize = 400;
    let mut line: String = text
        .chars()
        .take(LONGEST)
        .flat_map(|c| {
            let printed = (!c.is_control()).then_some(c);
            let escaped = c.is_control().then(|| c.escape_default());
            printed.into_iter().chain(escaped.into_iter().flatten())
        })
        .collect();
    if text.chars().nth(LONGEST).is_some() {
        line.push_str(" ...");
    }
    line
}

/// The reasons that scripts of this process named: they are counted under names that live as long as the program.
static REASONS: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
const MOST_REASONS: usize = 256;
const LONGEST_REASON: usize = 64;

/// The number of a reason to drop packets.
pub(crate) fn reason_number(reason: &str) -> Result<u16, String> {
    let mut reasons = REASONS.lock().unwrap_or_else(PoisonError::into_inner);
    if reasons.is_empty() {
        reasons.push("dropped by the script");
    }
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
        // Other scripts have used them up: the packet counts under the first.
        return Ok(0);
    }
    reasons.push(reason.to_owned().leak());
    Ok(reasons.len() as u16 - 1)
}

/// What one element knows of [`REASONS`], so that it asks once for each.
#[derive(Debug, Default)]
pub(crate) struct Reasons {
    names: Vec<&'static str>,
    /// Those of our own steps, of which there are few.
    own: Vec<&'static str>,
}

impl Reasons {
    /// The name of a reason.
    pub(crate) fn name(&mut self, number: u16) -> &'static str {
        if let Some(own) = number.checked_sub(OWN - DROPPED) {
            return self.own.get(usize::from(own)).copied().unwrap_or("dropped by the script");
        }
        if usize::from(number) >= self.names.len() {
            self.names.clone_from(&REASONS.lock().unwrap_or_else(PoisonError::into_inner));
        }
        self.names.get(usize::from(number)).copied().unwrap_or("dropped by the script")
    }

    /// The output that stands for a reason of our own steps.
    pub(crate) fn output(&mut self, reason: &'static str) -> u16 {
        let known = self.own.iter().position(|known| std::ptr::eq(*known, reason));
        let number = known.unwrap_or_else(|| {
            self.own.push(reason);
            self.own.len() - 1
        });
        OWN + number as u16
    }
}
