//! Transport checksums that a sender left to its card: the field has the sum of the pseudo-header (CHECKSUM_PARTIAL,
//! linux/skbuff.h). What comes over a veth or from a virtual machine has met no card.

use packet::checksum;

const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
/// IEEE 802.1Q and 802.1ad.
const TYPES_OF_TAGS: [u16; 2] = [0x8100, 0x88a8];
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;

/// Completes a checksum as a card would: the field at `start + offset` holds the sum of the pseudo-header, and the sum
/// runs from `start` to the end of the packet (not of the frame's padding: the sender's kernel does not pad).
/// Positions that make no sense change nothing; the checks of the packet's receiver catch the rest.
pub(crate) fn complete(frame: &mut [u8], start: usize, offset: usize) {
    let Some(covered) = frame.get_mut(start..) else { return };
    // A result of 0 is sent as 0xffff, which is the same number and, for UDP, does not mean "no checksum" (RFC 768).
    let sum = checksum::finish_udp(checksum::sum(covered));
    if let Some(field) = covered.get_mut(offset..offset + 2) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
}

/// Completes the checksum of TCP or UDP in a frame if its sender left it to a card, as far as the frame shows that
/// (`is_unfinished` of `bpf/decide.h`). One complete checksum in 65,536 looks the same, and stays what it is if it is right.
#[inline]
pub(crate) fn complete_if_unfinished(frame: &mut [u8]) {
    if let Some((start, end, offset)) = unfinished(frame) {
        complete(&mut frame[..end], start, offset);
    }
}

/// Returns where the transport header begins, where the packet ends, and where in the header the checksum is, if it is
/// unfinished.
#[inline]
fn unfinished(frame: &[u8]) -> Option<(usize, usize, usize)> {
    let number = |at: usize| frame.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let mut network = 14;
    let mut kind = number(12)?;
    if TYPES_OF_TAGS.contains(&kind) {
        (network, kind) = (18, number(16)?);
    }
    let (start, end, protocol, addresses) = match kind {
        TYPE_IPV4 => {
            let header = frame.get(network..network + IPV4_BYTES)?;
            // Options are rare. Fragments have complete checksums.
            if header[0] != 0x45 || number(network + 6)? & 0x3fff != 0 {
                return None;
            }
            let end = network + usize::from(number(network + 2)?);
            (network + IPV4_BYTES, end, header[9], &header[12..])
        }
        TYPE_IPV6 => {
            let header = frame.get(network..network + IPV6_BYTES)?;
            let start = network + IPV6_BYTES;
            (start, start + usize::from(number(network + 4)?), header[6], &header[8..])
        }
        _ => return None,
    };
    let offset = match protocol {
        6 => 16,
        17 => 6,
        _ => return None,
    };
    let length = end.checked_sub(start)?;
    let rest = checksum::combine(u16::from(protocol), u16::try_from(length).ok()?);
    let pseudo = checksum::combine(checksum::sum(addresses), rest);
    let is_whole = end <= frame.len() && start + offset + 2 <= end;
    (is_whole && number(start + offset)? == pseudo).then_some((start, end, offset))
}

#[cfg(test)]
mod tests {
    use packet::random::SplitMix64;
    use proptest::prelude::*;

    use super::*;

    /// A packet of this family and protocol with the sum of the pseudo-header in its checksum, and its correct checksum.
    fn packet(
        random: &mut SplitMix64,
        is_ipv6: bool,
        protocol: u8,
        tag: &[u8],
        length: usize,
    ) -> (Vec<u8>, u16) {
        let mut transport: Vec<u8> = (0..length).map(|_| random.next_u64() as u8).collect();
        let addresses: Vec<u8> = (0..if is_ipv6 { 32 } else { 8 }).map(|_| random.next_u64() as u8).collect();
        let mut header = match is_ipv6 {
            true => vec![0x60, 0, 0, 0, (length >> 8) as u8, length as u8, protocol, 64],
            false => {
                let total = length + 20;
                vec![0x45, 0, (total >> 8) as u8, total as u8, 0, 0, 0x40, 0, 64, protocol, 0, 0]
            }
        };
        header.extend(&addresses);
        let pseudo = [&addresses[..], &[0, protocol], &(length as u16).to_be_bytes()].concat();
        let offset = if protocol == 6 { 16 } else { 6 };
        transport[offset..offset + 2].fill(0);
        // RFC 1071 over all of it, the slow way.
        let mut sum: u64 = 0;
        for word in [&pseudo[..], &transport].concat().chunks(2) {
            sum += u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or(0));
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let right = if sum == 0xffff { 0xffff } else { !(sum as u16) };
        transport[offset..offset + 2].copy_from_slice(&checksum::sum(&pseudo).to_be_bytes());
        let kind: &[u8] = if is_ipv6 { &[0x86, 0xdd] } else { &[8, 0] };
        ([&[2; 12][..], tag, kind, &header, &transport].concat(), right)
    }

    #[test]
    fn what_is_unfinished_is_completed_and_nothing_else() {
        let mut random = SplitMix64::new(1);
        for round in 0..2_000 {
            let (is_ipv6, protocol) = (round % 2 == 0, if round % 4 < 2 { 6 } else { 17 });
            let tag: &[u8] = [&[][..], &[0x81, 0, 0x60, 5], &[0x88, 0xa8, 0, 0]][round % 3];
            let (frame, right) = packet(&mut random, is_ipv6, protocol, tag, 20 + round % 100);
            let mut padded = frame.clone();
            padded.extend([9; 7]);
            complete_if_unfinished(&mut padded);
            let offset = if protocol == 6 { 16 } else { 6 };
            let at = 14 + tag.len() + if is_ipv6 { 40 } else { 20 } + offset;
            let mut expected = [&frame[..], &[9; 7]].concat();
            expected[at..at + 2].copy_from_slice(&right.to_be_bytes());
            assert_eq!(padded, expected, "{round}");
            // A complete one stays, be it right or wrong; so do fragments and what is cut off.
            complete_if_unfinished(&mut padded);
            assert_eq!(padded, expected, "{round}");
            let mut wrong = frame.clone();
            wrong[at] ^= 1;
            let mut cut = frame[..frame.len() - 1].to_vec();
            let mut others = vec![wrong, std::mem::take(&mut cut)];
            if !is_ipv6 {
                let mut fragment = frame.clone();
                fragment[14 + tag.len() + 6] = 0x20;
                others.push(fragment);
            }
            for other in others {
                let mut now = other.clone();
                complete_if_unfinished(&mut now);
                assert_eq!(now, other, "{round}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_completed_checksum_is_valid(
            mut frame in prop::collection::vec(any::<u8>(), 40..200),
            start in 0usize..30,
            offset in (0usize..5).prop_map(|half| half * 2),
        ) {
            // With a pseudo-header sum of `p` in the field, the finished packet plus `p` sums to zero.
            let pseudo = u16::from_be_bytes([frame[start + offset], frame[start + offset + 1]]);
            complete(&mut frame, start, offset);
            let total = checksum::combine(checksum::sum(&frame[start..]), pseudo);
            prop_assert_eq!(total, 0xffff);
        }

        #[test]
        fn wild_bytes_and_positions_do_not_panic(
            mut frame in prop::collection::vec(any::<u8>(), 0..100),
            start in 0usize..70_000,
            offset in 0usize..70_000,
        ) {
            complete(&mut frame, start, offset);
            if let Some(kind) = frame.get_mut(12..14) {
                kind.copy_from_slice(if start % 2 == 0 { &[8, 0] } else { &[0x86, 0xdd] });
            }
            complete_if_unfinished(&mut frame);
        }
    }
}
