//! An association: what protects the packets of a tunnel in both directions.
//!
//! # Numbers that begin again
//!
//! Behind the last number, 2^32 - 1, Click's sender goes on with the first (REPLAY), and so does a gateway that starts again. So
//! Click's receiver takes the first number as the beginning of a new window. Here the window counts in 64 bits: the numbers of each
//! beginning are those from `base` on, which is beyond all that the window knows.

use std::sync::atomic::{AtomicU64, Ordering};

use aes::Aes128;
use aes::cipher::KeyInit;
use aws_lc_rs::hmac;
use ipsec::Fault;
use ipsec::window::Window;
use zeroize::Zeroizing;

/// Bytes of both keys.
pub(super) const KEY_BYTES: usize = 16;

/// A key, which is zeroed when it goes.
pub(super) type Key = Zeroizing<[u8; KEY_BYTES]>;

/// What a route says of its association. Not to be printed: it has the keys.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Settings {
    /// Security parameters index, not 0.
    pub(super) spi: u32,
    pub(super) encryption: Key,
    pub(super) authentication: Key,
    /// The first sequence number, not 0.
    pub(super) first: u32,
    /// How many numbers up to the highest one may come in any order.
    pub(super) window: u8,
}

/// An association, shared by all workers.
pub(super) struct Association {
    pub(super) settings: Settings,
    pub(super) cipher: Aes128,
    pub(super) auth: hmac::Key,
    /// Packets that were given a number.
    sent: AtomicU64,
    window: Window,
    /// The number in the window that the first sequence number stands for.
    base: AtomicU64,
}

impl Association {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            cipher: Aes128::new((&*settings.encryption).into()),
            auth: hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &*settings.authentication),
            sent: AtomicU64::new(0),
            // A window of none would accept all; Click's then accepts rising numbers only, as one of 1 does.
            window: Window::new(u32::from(settings.window.max(1)), 0),
            base: AtomicU64::new(1),
            settings,
        }
    }

    /// Returns the sequence number of the next packet to be sent.
    pub(super) fn next(&self) -> u32 {
        let first = self.settings.first;
        let sent = self.sent.fetch_add(1, Ordering::Relaxed);
        first + (sent % (u64::from(u32::MAX - first) + 1)) as u32
    }

    /// Accepts the sequence number of a packet, once.
    pub(super) fn accept(&self, sequence: u32) -> Result<(), Fault> {
        let Some(offset) = sequence.checked_sub(self.settings.first) else { return Err(Fault::TooOld) };
        let base = self.base.load(Ordering::Relaxed);
        let highest = self.window.highest();
        let number = if offset == 0 && highest > base {
            let next = highest + u64::from(self.window.width()) + 1;
            // Of two workers one begins the new window, and the other's packet is a repetition.
            if self.base.compare_exchange(base, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                return Err(Fault::Replayed);
            }
            next
        } else {
            base + u64::from(offset)
        };
        self.window.accept(number)?;
        self.window.advance(number);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn association(first: u32, window: u8) -> Association {
        let key = || Zeroizing::new([7; KEY_BYTES]);
        Association::new(Settings { spi: 234, encryption: key(), authentication: key(), first, window })
    }

    #[test]
    fn numbers_begin_with_the_first_and_begin_again() {
        let association = association(u32::MAX - 1, 32);
        let numbers: Vec<u32> = (0..5).map(|_| association.next()).collect();
        assert_eq!(numbers, [u32::MAX - 1, u32::MAX, u32::MAX - 1, u32::MAX, u32::MAX - 1]);
    }

    #[test]
    fn each_number_is_accepted_once_and_within_the_window() {
        let association = association(300, 4);
        let accepts = |number| association.accept(number);
        assert_eq!(accepts(300), Ok(()));
        assert_eq!(accepts(300), Err(Fault::Replayed));
        assert_eq!(accepts(305), Ok(()));
        assert_eq!(accepts(303), Ok(()));
        assert_eq!(accepts(303), Err(Fault::Replayed));
        assert_eq!(accepts(301), Err(Fault::TooOld));
        assert_eq!([accepts(299), accepts(0)], [Err(Fault::TooOld); 2]);
        // As in Click the first number begins a new window.
        assert_eq!([accepts(300), accepts(301), accepts(305)], [Ok(()); 3]);
        assert_eq!([accepts(301), accepts(305)], [Err(Fault::TooOld), Err(Fault::Replayed)]);
    }

    #[test]
    fn without_a_window_numbers_rise() {
        let association = association(1, 0);
        let accepted = [1, 2, 2, 4, 3].map(|number| association.accept(number).is_ok());
        assert_eq!(accepted, [true, true, false, true, false]);
    }
}
