//! The Internet checksum: RFC 1071 sums over bytes, pseudo-header sums, and RFC 1624 incremental updates.
//!
//! # Words used here
//!
//! A **sum** is a ones-complement sum folded to 16 bits, *not* inverted, as the number that the big-endian
//! 16-bit words add up to. A **check** is what stands in a header's checksum field, as that field reads in
//! host order: the inverse of a sum. Sums combine ([`combine`]), checks do not; [`finish`] turns the one into
//! the other.
//!
//! # The two zeros
//!
//! Ones-complement arithmetic has two zeros, `0x0000` and `0xffff`, that are equal as numbers but not as
//! bits:
//!
//! - A sum is `0x0000` only if every byte is zero; any other data that adds up to zero gives `0xffff`. So
//!   data with a correct checksum sums to `0xffff`, and that is what the `*_valid` functions test. All-zero
//!   data is *not* valid, as in every common host.
//! - An IPv4 header is never all zero, so its check is never `0xffff`. The updates use RFC 1624's equation 3,
//!   which keeps this; RFC 1141's equation does not, and yields headers that other routers reject.
//! - In UDP a check of `0x0000` means "none computed" (RFC 768), and a computed zero is sent as `0xffff`. Use
//!   [`finish_udp`], [`update_udp_u16`] and [`update_udp_u32`] there: they leave "none" alone and never
//!   create it. Nothing else may use them: ICMP, ICMPv6 and TCP send a computed zero as it is.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Folds a wide sum of native-endian words to 16 bits and turns it into the big-endian reading.
///
/// The sum does not depend on byte order except for a final swap (RFC 1071, section 2 (B)), so the loops load
/// native words and only this function swaps.
#[inline]
const fn fold(sum: u64) -> u16 {
    // Each step adds the halves with the end-around carry, so a sum that is not zero stays not zero.
    let (half, carry) = (sum as u32).overflowing_add((sum >> 32) as u32);
    let word = half + carry as u32;
    let (quarter, carry) = (word as u16).overflowing_add((word >> 16) as u16);
    u16::from_be(quarter + carry as u16)
}

/// The sum over `bytes`; an odd last byte counts as the high half of a word (RFC 1071, section 4.1).
///
/// An empty slice sums to 0.
#[inline]
pub fn sum(bytes: &[u8]) -> u16 {
    // Adding the 32-bit halves of 8-byte words into 64 bits leaves room for 2^31 words, so no carry is looked
    // at inside the loop and the compiler can use vector registers.
    let (words, tail) = bytes.as_chunks::<8>();
    let mut total = 0u64;
    for word in words {
        let word = u64::from_ne_bytes(*word);
        total += (word & 0xffff_ffff) + (word >> 32);
    }
    let mut last = [0u8; 8];
    last[..tail.len()].copy_from_slice(tail);
    let word = u64::from_ne_bytes(last);
    fold(total + (word & 0xffff_ffff) + (word >> 32))
}

/// The ones-complement sum of two sums.
///
/// `second` must cover bytes that start at an even distance from the start of the first part. Where the first
/// part has an odd length, pass `second.swap_bytes()` (RFC 1071, section 2 (B)).
#[inline]
pub const fn combine(first: u16, second: u16) -> u16 {
    let (sum, carry) = first.overflowing_add(second);
    sum + carry as u16
}

/// The check for a sum: its inverse. For UDP use [`finish_udp`].
#[inline]
pub const fn finish(sum: u16) -> u16 {
    !sum
}

/// The UDP check for a sum: its inverse, or `0xffff` where that is zero (RFC 768).
#[inline]
pub const fn finish_udp(sum: u16) -> u16 {
    if sum == 0xffff { 0xffff } else { !sum }
}

/// The check over `bytes`, whose checksum field must hold zero.
#[inline]
pub fn compute(bytes: &[u8]) -> u16 {
    finish(sum(bytes))
}

/// Whether `bytes`, which include their checksum field, sum to `0xffff`.
#[inline]
pub fn is_valid(bytes: &[u8]) -> bool {
    sum(bytes) == 0xffff
}

/// The sum over an IPv4 header without options, checksum field included; `0xffff` where the checksum is
/// right.
///
/// This is the fast path's form of [`sum`]: two 8-byte loads and one of 4, added with carry, folded once.
#[inline]
pub const fn ipv4_header_sum_20(header: &[u8; 20]) -> u16 {
    let [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3] = *header;
    let a = u64::from_ne_bytes([a0, a1, a2, a3, a4, a5, a6, a7]);
    let b = u64::from_ne_bytes([b0, b1, b2, b3, b4, b5, b6, b7]);
    let c = u32::from_ne_bytes([c0, c1, c2, c3]) as u64;
    // After an add that carried the low word is at most 2^64 - 2, so adding the carry cannot overflow.
    let (ab, carry) = a.overflowing_add(b);
    let (abc, carry) = (ab + carry as u64).overflowing_add(c);
    fold(abc + carry as u64)
}

/// Takes one off the time to live, which must not be 0, of an IPv4 header that begins with these bytes, and
/// updates its checksum. Returns what bytes 8 to 11, which it changes, were.
///
/// RFC 1624, equation 3: `HC' = ~(~HC + ~m + m')`. The word `m` holds the time to live in its high half, so `m'` is
/// `m - 0x0100`, and `~m + m'` is `0xfeff` whatever `m` is. Seen with its bytes swapped, which ones-complement sums
/// allow, that is `0xfffe`, and the check goes up by 1, or by 2 from `0xfffe` on, where a carry comes in.
#[inline(always)]
pub fn decrement_ttl(header: &mut [u8; 12]) -> [u8; 4] {
    let Some(bytes) = header.last_chunk_mut::<4>() else { return [0; 4] };
    let before = *bytes;
    // In little-endian order the time to live is the lowest byte and the swapped check the upper half.
    let word = u32::from_le_bytes(before);
    let carry = u32::from(word >= 0xfffe_0000);
    *bytes = word.wrapping_add(0xffff + (carry << 16)).to_le_bytes();
    before
}

/// Whether the checksum of an IPv4 header (20 to 60 bytes, options included) is right (RFC 1812, section
/// 5.2.2, check 2). Fewer than 20 bytes are not valid.
#[inline]
pub fn ipv4_header_valid(header: &[u8]) -> bool {
    if let Ok(plain) = <&[u8; 20]>::try_from(header) {
        return ipv4_header_sum_20(plain) == 0xffff;
    }
    header.len() >= 20 && is_valid(header)
}

/// The check that belongs into an IPv4 header (20 to 60 bytes, options included), whatever its checksum field
/// (bytes 10 and 11) holds now.
#[inline]
pub fn ipv4_header_compute(header: &[u8]) -> u16 {
    let before = header.get(..10).unwrap_or(header);
    let after = header.get(12..).unwrap_or(&[]);
    finish(combine(sum(before), sum(after)))
}

/// The sum over the IPv4 pseudo-header of UDP (RFC 768) and TCP (RFC 9293, section 3.1). `length` is that of
/// the transport header and its data, in bytes.
#[inline]
pub fn pseudo_v4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, length: u16) -> u16 {
    let (source, destination) = (u64::from(source.to_bits()), u64::from(destination.to_bits()));
    fold_host(source + destination + u64::from(protocol) + u64::from(length))
}

/// The sum over the IPv6 pseudo-header (RFC 8200, section 8.1). `length` is that of the upper-layer header
/// and its data, in bytes, and `next_header` the upper-layer protocol, whatever extension headers stand
/// before it.
#[inline]
pub fn pseudo_v6(source: Ipv6Addr, destination: Ipv6Addr, next_header: u8, length: u32) -> u16 {
    let addresses = combine(sum(&source.octets()), sum(&destination.octets()));
    combine(addresses, fold_host(u64::from(next_header) + u64::from(length)))
}

/// Folds a wide sum of words that are already in host order.
#[inline]
const fn fold_host(sum: u64) -> u16 {
    u16::from_be(fold(sum))
}

/// The check after a 16-bit word of the covered data changed from `old` to `new`: RFC 1624, equation 3,
/// `HC' = ~(~HC + ~m + m')`.
///
/// The word must be aligned to 16 bits within the covered data.
#[inline]
pub const fn update_u16(check: u16, old: u16, new: u16) -> u16 {
    !combine(combine(!check, !old), new)
}

/// The check after an aligned 32-bit field of the covered data, such as an address, changed from `old` to
/// `new`.
#[inline]
pub const fn update_u32(check: u16, old: u32, new: u32) -> u16 {
    let sum = !check as u64 + !old as u64 + new as u64;
    !fold_host(sum)
}

/// [`update_u16`] for a UDP check: zero ("none computed") stays zero, and no other check becomes zero.
#[inline]
pub const fn update_udp_u16(check: u16, old: u16, new: u16) -> u16 {
    if check == 0 { 0 } else { finish_udp(!update_u16(check, old, new)) }
}

/// [`update_u32`] for a UDP check: zero ("none computed") stays zero, and no other check becomes zero.
#[inline]
pub const fn update_udp_u32(check: u16, old: u32, new: u32) -> u16 {
    if check == 0 { 0 } else { finish_udp(!update_u32(check, old, new)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 as written: add big-endian words one at a time.
    fn naive_sum(bytes: &[u8]) -> u16 {
        let mut total = 0u32;
        for pair in bytes.chunks(2) {
            total += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
            if total > 0xffff {
                total -= 0xffff;
            }
        }
        total as u16
    }

    #[test]
    fn the_example_of_rfc_1071() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624() {
        // Section 4: equation 3 gives 0x0000 where RFC 1141's equation gives 0xffff.
        assert_eq!(update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn zeros() {
        assert_eq!(sum(&[]), 0);
        assert_eq!(sum(&[0; 20]), 0);
        assert_eq!(sum(&[0xff; 20]), 0xffff);
        assert!(!is_valid(&[0; 20]));
        assert!(!ipv4_header_valid(&[0; 20]));
        assert!(!ipv4_header_valid(&[0xff; 4]));
        assert_eq!(finish(0xffff), 0);
        assert_eq!(finish_udp(0xffff), 0xffff);
        assert_eq!(finish_udp(0x1234), 0xedcb);
        assert_eq!(update_udp_u16(0, 1, 2), 0);
        assert_eq!(update_udp_u32(0, 1, 2), 0);
        assert_eq!(update_udp_u16(0xdd2f, 0x5555, 0x3285), 0xffff);
    }

    proptest! {
        #[test]
        fn sum_equals_the_naive_loop(bytes in proptest::collection::vec(any::<u8>(), 0..300), skip in 0usize..9) {
            let bytes = bytes.get(skip..).unwrap_or(&[]);
            prop_assert_eq!(sum(bytes), naive_sum(bytes));
            prop_assert_eq!(compute(bytes), !naive_sum(bytes));
        }

        #[test]
        fn combine_joins_any_two_parts(bytes in proptest::collection::vec(any::<u8>(), 0..100), cut in 0usize..100) {
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            let second_sum = if first.len() % 2 == 1 { sum(second).swap_bytes() } else { sum(second) };
            prop_assert_eq!(combine(sum(first), second_sum), sum(&bytes));
        }

        #[test]
        fn plain_header_equals_the_naive_loop(header in any::<[u8; 20]>(), ones in any::<[bool; 20]>()) {
            let mut header = header;
            // Runs of 0xff drive every carry.
            for (byte, one) in header.iter_mut().zip(ones) {
                if one { *byte = 0xff; }
            }
            prop_assert_eq!(ipv4_header_sum_20(&header), naive_sum(&header));
        }

        #[test]
        fn header_check_makes_a_valid_header(
            words in 5usize..16, bytes in any::<[u8; 60]>(), flip in 0usize..20, bit in 0u32..8,
        ) {
            let mut header = bytes[..words * 4].to_vec();
            header[0] = 0x40 | words as u8;
            let check = ipv4_header_compute(&header);
            header[10..12].copy_from_slice(&check.to_be_bytes());
            prop_assert!(ipv4_header_valid(&header));
            prop_assert_ne!(check, 0xffff);
            header[flip] ^= 1 << bit;
            prop_assert!(!ipv4_header_valid(&header));
        }

        /// Checks at both ends of the range too, where the carry is.
        #[test]
        fn less_time_to_live_equals_recomputation(header in any::<[u8; 20]>(), ttl in 1u8.., near in 0u16..5, end in any::<bool>()) {
            let mut header = header;
            (header[0], header[8]) = (0x45, ttl);
            if end {
                // The identification makes the check what we want.
                header[4..6].fill(0);
                let wanted = near.wrapping_sub(3);
                let rest = !ipv4_header_compute(&header);
                header[4..6].copy_from_slice(&combine(!wanted, !rest).to_be_bytes());
            }
            let check = ipv4_header_compute(&header);
            header[10..12].copy_from_slice(&check.to_be_bytes());
            prop_assert!(ipv4_header_valid(&header));
            decrement_ttl(header.first_chunk_mut().expect("20 are more than 12"));
            prop_assert_eq!(header[8], ttl - 1);
            prop_assert_eq!(u16::from_be_bytes([header[10], header[11]]), ipv4_header_compute(&header));
        }

        #[test]
        fn updates_equal_recomputation(header in any::<[u8; 20]>(), at in 1usize..9, new in any::<u32>()) {
            let mut header = header;
            header[0] = 0x45;
            let at = at * 2;
            prop_assume!(!(8..12).contains(&at));
            let check = ipv4_header_compute(&header);

            let mut word = header;
            let old = u16::from_be_bytes([word[at], word[at + 1]]);
            word[at..at + 2].copy_from_slice(&(new as u16).to_be_bytes());
            prop_assert_eq!(update_u16(check, old, new as u16), ipv4_header_compute(&word));

            let mut long = header;
            let old = u32::from_be_bytes([long[at], long[at + 1], long[at + 2], long[at + 3]]);
            long[at..at + 4].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(update_u32(check, old, new), ipv4_header_compute(&long));
        }

        #[test]
        fn udp_updates_never_make_none(check in 1u16.., old in any::<u32>(), new in any::<u32>()) {
            prop_assert_ne!(update_udp_u16(check, old as u16, new as u16), 0);
            prop_assert_ne!(update_udp_u32(check, old, new), 0);
        }

        #[test]
        fn pseudo_headers_equal_their_bytes(
            source in any::<[u8; 16]>(), destination in any::<[u8; 16]>(), protocol in any::<u8>(), length in any::<u32>(),
        ) {
            let mut v6 = Vec::new();
            v6.extend(source);
            v6.extend(destination);
            v6.extend(length.to_be_bytes());
            v6.extend([0, 0, 0, protocol]);
            prop_assert_eq!(pseudo_v6(source.into(), destination.into(), protocol, length), naive_sum(&v6));

            let source4 = Ipv4Addr::new(source[0], source[1], source[2], source[3]);
            let destination4 = Ipv4Addr::new(destination[0], destination[1], destination[2], destination[3]);
            let mut v4 = Vec::new();
            v4.extend(source4.octets());
            v4.extend(destination4.octets());
            v4.extend([0, protocol]);
            v4.extend((length as u16).to_be_bytes());
            prop_assert_eq!(pseudo_v4(source4, destination4, protocol, length as u16), naive_sum(&v4));
        }
    }
}
