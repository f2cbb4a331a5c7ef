//! The 20 bytes of an IPv4 header without options, in three registers.
//!
//! The fast path looks at most of a header's fields, and adds all of it up. Taken as single bytes (or as an array that the
//! compiler takes apart) that is twenty loads; here it is three, and fields are shifts.

use crate::wire::ipv4::{MIN_HEADER_LEN as LENGTH, WITHOUT_OPTIONS};

/// An IPv4 header without options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainHeader {
    /// Bytes 0 to 7, 8 to 15 and 16 to 19 as little-endian numbers.
    first: u64,
    second: u64,
    third: u32,
}

impl PlainHeader {
    /// The header at `offset`; `None` if it does not lie within `bytes`.
    #[inline(always)]
    pub fn at(bytes: &[u8], offset: usize) -> Option<Self> {
        bytes.get(offset..).and_then(|bytes| bytes.first_chunk()).map(Self::new)
    }

    /// The header in these bytes.
    #[inline(always)]
    pub fn new(bytes: &[u8; LENGTH]) -> Self {
        let word = |at: usize| {
            let word: Option<&[u8; 8]> = bytes.get(at..).and_then(|rest| rest.first_chunk());
            word.map_or(0, |word| u64::from_le_bytes(*word))
        };
        // The last load is of four bytes that were loaded before and the four that were not.
        Self { first: word(0), second: word(8), third: (word(12) >> 32) as u32 }
    }

    /// Whether it has no options and all is right that it says of itself: [`check_header`](crate::wire::ipv4::check_header)
    /// finds nothing wrong with it in a packet of at least [its total length](Self::total_length).
    #[inline(always)]
    pub fn is_good(self, checksum: bool) -> bool {
        self.is_plain() && (!checksum || self.checksum_is_right()) && self.total_length() >= LENGTH
    }

    /// Whether version and length say that it is IPv4 and has no options.
    #[inline(always)]
    pub fn is_plain(self) -> bool {
        self.first as u8 == WITHOUT_OPTIONS
    }

    /// The total length in bytes.
    #[inline(always)]
    pub fn total_length(self) -> usize {
        usize::from(((self.first >> 16) as u16).swap_bytes())
    }

    /// The time to live.
    #[inline(always)]
    pub fn time_to_live(self) -> u8 {
        self.second as u8
    }

    /// The source address, in host order.
    #[inline(always)]
    pub fn source(self) -> u32 {
        ((self.second >> 32) as u32).swap_bytes()
    }

    /// The destination address, in host order.
    #[inline(always)]
    pub fn destination(self) -> u32 {
        self.third.swap_bytes()
    }

    /// Whether the checksum is right.
    ///
    /// A ones-complement sum is `0xffff` if and only if the sum of wider words is a multiple of 65535 and not zero, in
    /// whatever byte order, and that takes one multiplication instead of folding: with
    /// `R = 0x0001_0001_0001_0001`, `65535 * R` is -1 (modulo 2^64), so the product of the `n`-th multiple and `R` is
    /// `-n`. There are `R` multiples from 1 on, and all else has other products, as `R` is odd.
    #[inline(always)]
    pub fn checksum_is_right(self) -> bool {
        const R: u64 = 0x0001_0001_0001_0001;
        let (sum, carry) = self.first.overflowing_add(self.second);
        // After an add that carried the sum is at most 2^64 - 2, so adding the carry cannot overflow.
        let (sum, carry) = (sum + u64::from(carry)).overflowing_add(u64::from(self.third));
        (sum + u64::from(carry)).wrapping_mul(R) >= R.wrapping_neg()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum;
    use crate::wire::ipv4;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fields_and_checksum(header in any::<[u8; 20]>(), ones in any::<[bool; 20]>(), right in any::<bool>(), skip in 0usize..4) {
            let mut header = header;
            // Runs of 0xff drive every carry.
            for (byte, one) in header.iter_mut().zip(ones) {
                if one { *byte = 0xff; }
            }
            if right {
                let check = checksum::ipv4_header_compute(&header);
                header[10..12].copy_from_slice(&check.to_be_bytes());
            }
            let mut bytes = vec![0; skip];
            bytes.extend(header);
            let plain = PlainHeader::at(&bytes, skip).expect("it is all there");
            prop_assert_eq!(PlainHeader::at(&bytes, skip + 1), None);
            prop_assert_eq!(plain.is_plain(), header[0] == 0x45);
            prop_assert_eq!(plain.total_length(), usize::from(header[2]) * 256 + usize::from(header[3]));
            prop_assert_eq!(plain.time_to_live(), header[8]);
            prop_assert_eq!(plain.source().to_be_bytes(), [header[12], header[13], header[14], header[15]]);
            prop_assert_eq!(plain.destination().to_be_bytes(), [header[16], header[17], header[18], header[19]]);
            prop_assert_eq!(plain.checksum_is_right(), checksum::ipv4_header_sum_20(&header) == 0xffff);
        }
    }

    proptest! {
        #[test]
        fn a_good_header_is_one_that_the_checks_accept(
            header in any::<[u8; 20]>(), total in 0u16..64, mistake in 0usize..20, is_flawed in any::<bool>(),
            length in 0usize..64, with_checksum in any::<bool>(),
        ) {
            let mut packet = vec![0; length];
            let mut header = header;
            header[0] = WITHOUT_OPTIONS;
            header[2..4].copy_from_slice(&total.to_be_bytes());
            let check = checksum::ipv4_header_compute(&header);
            header[10..12].copy_from_slice(&check.to_be_bytes());
            if is_flawed {
                header[mistake] ^= 1 << (total % 8);
            }
            let kept = length.min(20);
            packet[..kept].copy_from_slice(&header[..kept]);
            let quick = PlainHeader::at(&packet, 0)
                .is_some_and(|plain| plain.is_good(with_checksum) && plain.total_length() <= length);
            let slow = ipv4::check_header(&packet, with_checksum);
            prop_assert_eq!(quick, slow == Ok(20));
        }
    }

    #[test]
    fn all_zero_is_not_right() {
        assert!(!PlainHeader::new(&[0; 20]).checksum_is_right());
        assert!(PlainHeader::new(&[0xff; 20]).checksum_is_right());
    }
}
