//! =c
//! RecordTimestamp(I<keywords> N, OFFSET)
//!
//! =s timestamps
//! remembers when packets passed
//!
//! =d
//! Remembers the time at which each packet passes, under the number that NumberPacket wrote OFFSET bytes into it (40 by default);
//! TimestampDiff asks for it further on. The last N numbers are remembered, 65536 by default. With an OFFSET of -1 packets need
//! no number: they count as 0, 1, 2 and so on. Packets of one batch have one time.
//!
//! A packet that is too short for its number passes, and nothing is remembered.
//!
//! From FastClick.
//!
//! =e
//!   ... -> NumberPacket(42) -> RecordTimestamp(OFFSET 42) -> ToDevice(eth0);
//!   FromDevice(eth1) -> t :: TimestampDiff(OFFSET 42) -> Discard;
//!
//! =a TimestampDiff, NumberPacket, SetTimestamp

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use graph::{Arguments, Class, ConfigError, Context, Element, Setup};
use packet::{Batch, Packet};

pub(crate) static CLASS: Class =
    Class { name: "RecordTimestamp", manual: graph::manual!("record_timestamp.rs"), make, ..Class::DEFAULT };

/// Where NumberPacket writes unless told otherwise.
pub(super) const DEFAULT_OFFSET: usize = 40;

/// The times of the last so many packets, in nanoseconds; 0 is none.
pub(super) struct Times {
    times_ns: Box<[AtomicU64]>,
    next: AtomicU64,
}

impl Times {
    fn slot(&self, number: u64) -> Option<&AtomicU64> {
        self.times_ns.get((number % self.times_ns.len() as u64) as usize)
    }

    /// The time of a packet, which is forgotten.
    #[inline]
    pub(super) fn take(&self, number: u64) -> Option<u64> {
        self.slot(number).map(|slot| slot.swap(0, Relaxed)).filter(|&time| time != 0)
    }
}

/// The number that a packet has.
#[inline]
pub(super) fn number_in(packet: &Packet, offset: usize) -> Option<u64> {
    let bytes = packet.data().get(offset..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*bytes))
}

fn arguments(arguments: &mut Arguments) -> Result<(usize, Option<usize>), ConfigError> {
    // A word of one letter is not a keyword for other elements.
    arguments.rewrite_positional(|text| Some(text.strip_prefix("N ")?.trim().to_owned()));
    let count: u32 = arguments.optional("N")?.unwrap_or(65_536);
    let offset: i32 = arguments.keyword_or("OFFSET", DEFAULT_OFFSET as i32)?;
    arguments.finish()?;
    if !(1..=1 << 26).contains(&count) {
        return Err(format!("N: expected 1 to 67108864 packets, got {count}").into());
    }
    Ok((count as usize, usize::try_from(offset).ok()))
}

/// The times that the RecordTimestamp called `name` remembers; it may not have been made yet.
pub(super) fn times_of(setup: &Setup<'_>, name: &str, config: &str) -> Result<Arc<Times>, ConfigError> {
    let mistakes = |_| ConfigError::new(format!("'{name}' has mistakes in its arguments"));
    let (count, _) = arguments(&mut Arguments::new(config)).map_err(mistakes)?;
    setup.shared().get_or_make(&format!("element:{name}"), || {
        let times_ns = (0..count).map(|_| AtomicU64::new(0)).collect();
        Ok(Times { times_ns, next: AtomicU64::new(0) })
    })
}

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let (_, offset) = arguments(&mut setup.arguments)?;
    let times = times_of(setup, setup.name(), setup.config())?;
    Ok(Box::new(RecordTimestamp { offset, times }))
}

struct RecordTimestamp {
    /// `None`: packets count as they come.
    offset: Option<usize>,
    times: Arc<Times>,
}

impl Element for RecordTimestamp {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let now = cx.update_now_ns();
        let first = match self.offset {
            None => self.times.next.fetch_add(batch.len() as u64, Relaxed),
            Some(_) => 0,
        };
        for (packet, count) in batch.packets().iter().zip(first..) {
            let number = match self.offset {
                Some(offset) => number_in(packet, offset),
                None => Some(count),
            };
            if let Some(slot) = number.and_then(|number| self.times.slot(number)) {
                slot.store(now, Relaxed);
            }
        }
    }
}
