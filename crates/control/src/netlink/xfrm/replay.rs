//! Sequence numbers and the replay window of an SA, as the kernel keeps them.
//!
//! **Two forms.** An SA without extended sequence numbers and with a window of up to 32 has `struct xfrm_replay_state`: bit *n* of its
//! word is the number *n* below the highest. All others have `struct xfrm_replay_state_esn`, a ring of bits: the highest number stands at
//! its own value less one, modulo the window, and lower ones before it.

use super::message::{Fields, attribute};
use crate::netlink::DecodeError;

/// Sequence numbers of an SA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// How the kernel keeps it.
    pub form: ReplayForm,
    /// The last number that was sent; 0 before the first. With extended numbers it has 64 bits, else 32.
    pub sent: u64,
    /// The highest number that was received; 0 before the first.
    pub received: u64,
    /// How many numbers the window has, the highest included; 0 turns protection off.
    pub window: u32,
    bitmap: Vec<u32>,
}

/// How the kernel keeps sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayForm {
    /// `struct xfrm_replay_state`: numbers of 32 bits, a window of up to 32.
    Short,
    /// `struct xfrm_replay_state_esn`: numbers of 64 bits, a window of up to 4096. Not all such SAs have extended sequence numbers.
    Long,
}

impl Replay {
    /// The state before the first packet, without a window.
    pub(super) fn none(window: u8) -> Replay {
        Replay { form: ReplayForm::Short, sent: 0, received: 0, window: window.into(), bitmap: vec![0] }
    }

    /// A long one of this window, which is a multiple of 32.
    #[cfg(test)]
    pub(super) fn long_for_test(window: u32) -> Replay {
        let bitmap = vec![0; window as usize / 32];
        Replay { form: ReplayForm::Long, sent: 0, received: 0, window, bitmap }
    }

    /// Returns whether the window says that this number was received. Numbers above the highest were not. Those below the window count
    /// as received, which without a window are all.
    pub fn was_received(&self, number: u64) -> bool {
        if number > self.received || number == 0 {
            return false;
        }
        let below = self.received - number;
        if below >= u64::from(self.window) {
            return true;
        }
        let bit = self.bit(below as u32);
        self.bitmap.get(bit / 32).is_some_and(|word| word >> (bit % 32) & 1 == 1)
    }

    /// Returns what the kernel should have of this SA after more packets: the last number sent, the highest received, and which
    /// numbers of the window were received. Form and window stay, as the kernel takes no others.
    pub fn advanced(&self, sent: u64, received: u64, was_received: impl Fn(u64) -> bool) -> Replay {
        let mut next = Replay { sent, received, bitmap: vec![0; self.bitmap.len()], ..*self };
        for below in (0..next.window).take_while(|&below| u64::from(below) < received) {
            let bit = next.bit(below);
            if let Some(word) = next.bitmap.get_mut(bit / 32) {
                *word |= u32::from(was_received(received - u64::from(below))) << (bit % 32);
            }
        }
        next
    }

    /// The place of the number so many below the highest; `below` is less than the window.
    fn bit(&self, below: u32) -> usize {
        let bit = match self.form {
            ReplayForm::Short => below,
            ReplayForm::Long => {
                let highest = (self.received as u32).wrapping_sub(1) % self.window;
                if highest >= below { highest - below } else { self.window - (below - highest) }
            }
        };
        bit as usize
    }

    /// `struct xfrm_replay_state`. The window stands elsewhere in the message.
    pub(super) fn short(mut fields: Fields<'_>, window: u8) -> Result<Replay, DecodeError> {
        let [sent, received, bits] = [fields.u32()?, fields.u32()?, fields.u32()?];
        Ok(Replay {
            sent: sent.into(),
            received: received.into(),
            bitmap: vec![bits],
            ..Replay::none(window)
        })
    }

    /// `struct xfrm_replay_state_esn`.
    pub(super) fn long(mut fields: Fields<'_>) -> Result<Replay, DecodeError> {
        let words = fields.u32()? as usize;
        let [sent, received, sent_high, received_high, window] =
            [fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?];
        if fields.remaining() / 4 < words || window as usize > words * 32 {
            return Err(DecodeError::AttributeLength);
        }
        let bitmap = (0..words).map(|_| fields.u32()).collect::<Result<_, _>>()?;
        let long = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        Ok(Replay {
            form: ReplayForm::Long,
            sent: long(sent_high, sent),
            received: long(received_high, received),
            window,
            bitmap,
        })
    }

    /// The attribute that has the structure.
    pub(super) fn attribute(&self) -> u16 {
        match self.form {
            ReplayForm::Short => attribute::REPLAY_VAL,
            ReplayForm::Long => attribute::REPLAY_ESN_VAL,
        }
    }

    /// The bytes of the structure that [`Replay::form`] says.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let (sent, received) = (self.sent as u32, self.received as u32);
        let [sent_high, received_high] = [self.sent, self.received].map(|number| (number >> 32) as u32);
        let fixed = match self.form {
            ReplayForm::Short => vec![sent, received],
            ReplayForm::Long => {
                vec![self.bitmap.len() as u32, sent, received, sent_high, received_high, self.window]
            }
        };
        fixed.iter().chain(&self.bitmap).flat_map(|word| word.to_ne_bytes()).collect()
    }
}
