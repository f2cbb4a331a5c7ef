//! Eight IPv4 packets in Ethernet frames at a time, with AVX2: are they plain, and where do they go?
//!
//! One by one a header takes some 65 instructions ([`PlainHeader`](crate::PlainHeader)). Here the headers of eight packets
//! are turned into columns, and each test is one for all eight: some 20 instructions a packet. A group with a
//! packet that is not plain is left to the caller, who looks at its packets one by one.

use crate::frame::Packet;
use crate::vectors::Vectors;
use crate::wire::ethernet::HEADER_LEN as IN_FRAME;
use crate::wire::ipv4::MIN_HEADER_LEN as IP_HEADER;

/// Packets in a group.
pub const GROUP: usize = 8;
/// Fewest packets behind the last whole group that are worth one of their own.
const LEAST_REST: usize = 3;

/// What a batch's frames must have.
#[derive(Clone, Debug)]
pub struct PlainFrames {
    /// Which bits of a frame's first bytes count, and what they are.
    mask: u128,
    value: u128,
    /// The bits of the packet type that must be 0.
    type_bits: u8,
    /// First and last octets of sources that need a closer look.
    suspect: [Octets; 2],
}

/// What was seen of a batch's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How many were looked at and are plain, from the first on.
    pub count: usize,
    /// The longest of their total lengths, in bytes.
    pub longest: usize,
    /// Whether one of them has bytes behind its total length.
    pub is_padded: bool,
}

impl Seen {
    /// Takes in a plain packet of this total length in a frame of this length, in bytes.
    #[inline(always)]
    pub fn add(&mut self, total: usize, frame: usize) {
        self.count += 1;
        self.longest = self.longest.max(total);
        self.is_padded |= IN_FRAME + total != frame;
    }
}

impl Seen {
    /// Takes in what was seen of the packets behind.
    #[inline(always)]
    pub fn join(&mut self, behind: Self) {
        self.count += behind.count;
        self.longest = self.longest.max(behind.longest);
        self.is_padded |= behind.is_padded;
    }
}

impl PlainFrames {
    /// Frames of which the first bytes are `value` where `mask` has a one, which includes the first byte of the IP
    /// header ([`WITHOUT_OPTIONS`](crate::wire::ipv4::WITHOUT_OPTIONS)); whose packet type has none of these bits; and whose
    /// sources have neither a first nor a last octet of these two sets. `None` on a processor without AVX2.
    pub fn new(
        (mask, value): (u128, u128),
        type_bits: u8,
        octets: &[[bool; 256]; 2],
        vectors: Vectors,
    ) -> Option<Self> {
        let suspect = [Octets::new(&octets[0]), Octets::new(&octets[1])];
        (vectors != Vectors::None).then_some(Self { mask, value, type_bits, suspect })
    }

    /// Looks at packets from the first on, up to a group of which one is not plain, or too few. A plain one is an
    /// IPv4 packet without options, as long as its header says or longer, whose checksum is right and whose time to live is
    /// at least 2. Its destination goes into `destinations`, which is at least as long as `packets` up to a whole group.
    ///
    /// # Panics
    ///
    /// `destinations` is shorter.
    #[inline]
    #[allow(unsafe_code, reason = "a function that needs processor features")]
    pub fn look(&self, packets: &[Packet], destinations: &mut [u32]) -> Seen {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: one is only made on a processor that has AVX2.
        return unsafe { self.look_by_avx2(packets, destinations) };
        #[cfg(not(target_arch = "x86_64"))]
        Seen::default()
    }
}

/// A set of octets as a bit each: bit `h % 8` of byte `l` of half `h / 8`, for octet `16 h + l`.
#[derive(Clone, Copy, Debug)]
struct Octets {
    halves: [[u8; 16]; 2],
}

impl Octets {
    fn new(set: &[bool; 256]) -> Self {
        let mut halves = [[0; 16]; 2];
        for octet in (0..256).filter(|&octet| set[octet]) {
            halves[octet >> 7][octet & 15] |= 1 << (octet >> 4 & 7);
        }
        Self { halves }
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "loads from packets")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::*;

    /// What was found out about a group.
    struct Found {
        destinations: __m256i,
        totals: __m256i,
        frames: __m256i,
    }

    impl PlainFrames {
        /// # Safety
        /// The processor has AVX2.
        #[target_feature(enable = "avx2")]
        pub(super) unsafe fn look_by_avx2(&self, packets: &[Packet], destinations: &mut [u32]) -> Seen {
            let (groups, rest) = packets.as_chunks::<GROUP>();
            let places = destinations.as_chunks_mut::<GROUP>().0;
            let groups_of_rest = usize::from(rest.len() >= LEAST_REST);
            assert!(places.len() >= groups.len() + groups_of_rest, "room for all destinations");
            let (mut count, mut longest, mut padding) = (0, _mm256_setzero_si256(), _mm256_setzero_si256());
            let mut take = |found: Found, place: &mut [u32; GROUP]| {
                // SAFETY: the place is as long as a vector.
                unsafe { _mm256_storeu_si256(place.as_mut_ptr().cast(), found.destinations) };
                longest = _mm256_max_epi32(longest, found.totals);
                let ends = _mm256_add_epi32(found.totals, _mm256_set1_epi32(IN_FRAME as i32));
                padding = _mm256_or_si256(padding, _mm256_xor_si256(ends, found.frames));
            };
            let mut whole = groups.iter().zip(&mut *places);
            let all = whole.all(|(group, place)| {
                let found = self.look_at(|number| &group[number]);
                found.is_some_and(|found| {
                    take(found, place);
                    count += GROUP;
                    true
                })
            });
            if all && groups_of_rest > 0 {
                // The last packet stands for those that a group lacks.
                let last = rest.len() - 1;
                if let Some(found) = self.look_at(|number| &rest[number.min(last)]) {
                    take(found, &mut places[groups.len()]);
                    count += rest.len();
                }
            }
            let mut totals = [0_u32; GROUP];
            // SAFETY: the array is as long as a vector.
            unsafe { _mm256_storeu_si256(totals.as_mut_ptr().cast(), longest) };
            let longest = totals.iter().fold(0, |longest, &total| longest.max(total)) as usize;
            Seen { count, longest, is_padded: _mm256_testz_si256(padding, padding) == 0 }
        }

        /// Looks at eight packets; `None` if one is not plain.
        #[target_feature(enable = "avx2")]
        #[inline]
        fn look_at<'a>(&self, packet: impl Fn(usize) -> &'a Packet) -> Option<Found> {
            // Data offset and length, as they lie in the metadata.
            let places = column(|number| packet(number).place());
            let frames = _mm256_srli_epi32(places, 16);
            let least = _mm256_set1_epi32((IN_FRAME + IP_HEADER) as i32);
            let mut odd = _mm256_cmpgt_epi32(least, frames);
            if _mm256_testz_si256(odd, odd) == 0 {
                return None;
            }
            let start = |number: usize| packet(number).data().as_ptr();
            // SAFETY: a frame has at least 34 bytes, and these loads end at byte 16, 18 and 34.
            let first = |number| unsafe { _mm_loadu_si128(start(number).cast()) };
            // SAFETY: as above.
            let word = |number| unsafe { start(number).add(IN_FRAME).cast::<u32>().read_unaligned() };
            // SAFETY: as above.
            let rest = |number| unsafe { _mm_loadu_si128(start(number).add(IN_FRAME + 4).cast()) };

            // The first 16 bytes, with version and header length in the last two.
            let value = of_bytes(self.value.to_le_bytes());
            let mut differs = _mm_setzero_si128();
            let mut marks = 0;
            for number in 0..GROUP {
                differs = _mm_or_si128(differs, _mm_xor_si128(first(number), value));
                let packet = packet(number);
                marks |=
                    packet.packet_type() as u8 & self.type_bits | u8::from(packet.annotations().fix_source());
            }
            if _mm_testz_si128(differs, of_bytes(self.mask.to_le_bytes())) == 0 || marks != 0 {
                return None;
            }

            // Columns of the header's 32-bit words: what they have in common is tested at once.
            let head = column(word);
            let row =
                |number| _mm256_inserti128_si256(_mm256_castsi128_si256(rest(number)), rest(number + 4), 1);
            let (row0, row1, row2, row3) = (row(0), row(1), row(2), row(3));
            let (low01, low23) = (_mm256_unpacklo_epi32(row0, row1), _mm256_unpacklo_epi32(row2, row3));
            let (high01, high23) = (_mm256_unpackhi_epi32(row0, row1), _mm256_unpackhi_epi32(row2, row3));
            let fragments = _mm256_unpacklo_epi64(low01, low23);
            let lives = _mm256_unpackhi_epi64(low01, low23);
            let sources = _mm256_unpacklo_epi64(high01, high23);
            let targets = _mm256_unpackhi_epi64(high01, high23);

            // RFC 1071: the ones-complement sum of the ten words is 0xffff. Pairs of words are added as signed numbers, so each
            // is 2^15 too small. The sum is at most 10 * 0xffff, and one folding leaves 0xffff of its multiples.
            let pair = |words| {
                _mm256_madd_epi16(_mm256_xor_si256(words, _mm256_set1_epi16(i16::MIN)), _mm256_set1_epi16(1))
            };
            let sum = _mm256_add_epi32(
                _mm256_add_epi32(_mm256_add_epi32(pair(head), pair(fragments)), pair(lives)),
                _mm256_add_epi32(pair(sources), pair(targets)),
            );
            let sum = _mm256_add_epi32(sum, _mm256_set1_epi32(10 << 15));
            let all_ones = _mm256_set1_epi32(0xffff);
            let folded = _mm256_add_epi32(_mm256_and_si256(sum, all_ones), _mm256_srli_epi32(sum, 16));
            let is_right = _mm256_cmpeq_epi32(folded, all_ones);

            // RFC 1812, 5.3.1: a packet whose time to live is 0 or 1 is not forwarded.
            let left = _mm256_and_si256(lives, _mm256_set1_epi32(0xfe));
            odd = _mm256_cmpeq_epi32(left, _mm256_setzero_si256());
            let totals = _mm256_shuffle_epi8(head, each_word([3, 2, 0x80, 0x80]));
            odd = _mm256_or_si256(odd, _mm256_cmpgt_epi32(_mm256_set1_epi32(IP_HEADER as i32), totals));
            let ends = _mm256_add_epi32(totals, _mm256_set1_epi32(IN_FRAME as i32));
            odd = _mm256_or_si256(odd, _mm256_cmpgt_epi32(ends, frames));
            odd = _mm256_or_si256(odd, self.suspects(sources));
            if _mm256_testz_si256(odd, odd) == 0 || _mm256_testc_si256(is_right, _mm256_set1_epi32(-1)) == 0 {
                return None;
            }
            let destinations = _mm256_shuffle_epi8(targets, each_word([3, 2, 1, 0]));
            Some(Found { destinations, totals, frames })
        }

        /// Nonzero for source addresses whose first or last octet is in a set.
        #[target_feature(enable = "avx2")]
        #[inline]
        fn suspects(&self, sources: __m256i) -> __m256i {
            let nibble = _mm256_set1_epi8(15);
            let low = _mm256_and_si256(sources, nibble);
            let high = _mm256_and_si256(_mm256_srli_epi16(sources, 4), nibble);
            let bit =
                _mm256_shuffle_epi8(twice([1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128]), high);
            let row = |octets: &Octets| {
                let [below, above] = octets.halves.map(|half| _mm256_shuffle_epi8(twice(half), low));
                // An octet's highest bit chooses the half.
                _mm256_blendv_epi8(below, above, sources)
            };
            let [first, last] = [row(&self.suspect[0]), row(&self.suspect[1])];
            let rows = _mm256_or_si256(
                _mm256_and_si256(first, _mm256_set1_epi32(0xff)),
                _mm256_and_si256(last, _mm256_set1_epi32(0xff << 24)),
            );
            _mm256_and_si256(rows, bit)
        }
    }

    /// A vector of a number for each packet.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn column(number: impl Fn(usize) -> u32) -> __m256i {
        let at = |place| number(place) as i32;
        _mm256_setr_epi32(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7))
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn of_bytes(bytes: [u8; 16]) -> __m128i {
        // SAFETY: the array is as long as a vector.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn twice(bytes: [u8; 16]) -> __m256i {
        _mm256_broadcastsi128_si256(of_bytes(bytes))
    }

    /// Which byte of its 32 bits each byte of a shuffled number is; 0x80 makes it zero.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn each_word(bytes: [u8; 4]) -> __m256i {
        twice(std::array::from_fn(|place| bytes[place % 4] + (place as u8 & !3) % 0x80))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::checksum;
    use crate::frame::PacketType;
    use crate::plain_header::PlainHeader;
    use crate::pool::{Pool, PoolOptions};
    use crate::wire::ipv4::WITHOUT_OPTIONS;

    const ETHER_TYPE: (u128, u128) = (0xff_ffff << 96, 0x45_0008 << 96);

    /// The same, packet by packet.
    fn naive(packets: &[Packet], octets: &[[bool; 256]; 2], type_bits: u8) -> (Seen, Vec<u32>) {
        let (mut seen, mut destinations) = (Seen::default(), Vec::new());
        for packet in packets {
            let Some(header) = PlainHeader::at(packet.data(), IN_FRAME) else { break };
            let source = header.source().to_be_bytes();
            let is_plain = packet.data()[12..15] == [8, 0, WITHOUT_OPTIONS]
                && header.is_good(true)
                && header.time_to_live() >= 2
                && IN_FRAME + header.total_length() <= packet.len()
                && packet.packet_type() as u8 & type_bits == 0
                && !packet.annotations().fix_source()
                && !octets[0][usize::from(source[0])]
                && !octets[1][usize::from(source[3])];
            if !is_plain {
                break;
            }
            seen.add(header.total_length(), packet.len());
            destinations.push(header.destination());
        }
        (seen, destinations)
    }

    fn frame(seed: [u8; 20], payload: u8, padding: u8) -> Vec<u8> {
        let mut header = seed;
        header[0] = WITHOUT_OPTIONS;
        header[2..4].copy_from_slice(&(20 + u16::from(payload)).to_be_bytes());
        header[8] = header[8].max(2);
        header[12] = 100 + header[12] % 100;
        header[15] %= 200;
        let sum = checksum::ipv4_header_compute(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        let mut frame = vec![1; 12];
        frame.extend([8, 0]);
        frame.extend(header);
        frame.resize(frame.len() + usize::from(payload) + usize::from(padding), 7);
        frame
    }

    proptest! {
        #[test]
        fn as_packet_by_packet(
            seeds in proptest::collection::vec((any::<[u8; 20]>(), any::<u8>(), 0u8..3), 0..40),
            mistake in proptest::option::of((0usize..40, 0usize..46, any::<u8>(), any::<bool>())),
            short in proptest::option::of((0usize..40, 0usize..40)),
            marked in proptest::option::of((0usize..40, 0u8..6)),
            kinds in any::<[u8; 4]>(),
        ) {
            let mut octets = [[false; 256]; 2];
            for kind in kinds {
                octets[0][usize::from(kind | 0x80)] = kind % 3 == 0;
                octets[1][usize::from(kind | 0x10)] = kind % 2 == 0;
            }
            for range in [0..100, 200..256] {
                octets[0][range].fill(true);
            }
            octets[1][200..].fill(true);
            let mut frames: Vec<Vec<u8>> = seeds.iter().map(|&(seed, length, padding)| frame(seed, length, padding)).collect();
            if let Some((at, byte, bits, is_summed)) = mistake && let Some(frame) = frames.get_mut(at % seeds.len().max(1)) {
                let around = [IP_HEADER - 1, IP_HEADER, frame.len() - IN_FRAME, frame.len() - IN_FRAME + 1];
                match byte.checked_sub(IN_FRAME) {
                    // Values at the limits are rare otherwise.
                    Some(3) if is_summed => {
                        let total = around[usize::from(bits % 4)] as u16;
                        frame[byte - 1..=byte].copy_from_slice(&total.to_be_bytes());
                    }
                    Some(8) if is_summed => frame[byte] = bits % 4,
                    _ => frame.get_mut(byte).into_iter().for_each(|place| *place ^= bits),
                }
                if is_summed {
                    let header: &mut [u8; 20] = frame[IN_FRAME..].first_chunk_mut().unwrap();
                    let sum = checksum::ipv4_header_compute(header);
                    header[10..12].copy_from_slice(&sum.to_be_bytes());
                }
            }
            if let Some((at, length)) = short && let Some(frame) = frames.get_mut(at) {
                frame.truncate(length);
            }
            let mut pool = Pool::new(PoolOptions { frames: 64, data_bytes: 512 }).unwrap();
            let mut packets = Vec::new();
            for (number, frame) in frames.iter().enumerate() {
                let mut packet = pool.allocate().unwrap();
                prop_assert!(packet.set_data(frame));
                match marked {
                    Some((at, 0)) if at == number => packet.annotations_mut().set_fix_source(true),
                    Some((at, 1)) if at == number => packet.set_packet_type(PacketType::Multicast),
                    Some((at, 2)) if at == number => packet.set_packet_type(PacketType::Outgoing),
                    _ => {}
                }
                packets.push(packet);
            }
            for vectors in Vectors::all_here() {
                for type_bits in [0, 0xff] {
                    let Some(plain) = PlainFrames::new(ETHER_TYPE, type_bits, &octets, vectors) else { continue };
                    let mut found = [0; 64];
                    let seen = plain.look(&packets, &mut found);
                    let (expected, destinations) = naive(&packets, &octets, type_bits);
                    if expected.count == packets.len() {
                        let last = packets.len() / GROUP * GROUP;
                        let all = if packets.len() - last < LEAST_REST { last } else { packets.len() };
                        prop_assert_eq!(seen.count, all);
                        let (seen_then, _) = naive(&packets[..all], &octets, type_bits);
                        prop_assert_eq!(seen, seen_then);
                    } else {
                        let groups = expected.count / GROUP * GROUP;
                        let (seen_then, _) = naive(&packets[..groups], &octets, type_bits);
                        prop_assert_eq!(seen, seen_then);
                    }
                    prop_assert_eq!(&found[..seen.count], &destinations[..seen.count]);
                }
            }
            for packet in packets {
                pool.free_packet(packet);
            }
        }
    }

    #[test]
    fn checksums_of_all_ones_and_zeros() {
        // A header that adds up to zero is all zeros, and not IPv4; one that adds up to 0xffff in several ways is right.
        let mut pool = Pool::new(PoolOptions { frames: 8, data_bytes: 512 }).unwrap();
        let octets = [[false; 256]; 2];
        let Some(plain) = PlainFrames::new((0, 0), 0, &octets, Vectors::best()) else { return };
        for (header, is_right) in [([0xff; 20], true), ([0; 20], false)] {
            let mut bytes = vec![0; IN_FRAME];
            bytes.extend(header);
            bytes.resize(65_000, 0);
            bytes[IN_FRAME + 2..IN_FRAME + 4].copy_from_slice(&if is_right { [1, 0] } else { [0, 20] });
            bytes.truncate(400);
            if is_right {
                let header: &mut [u8; 20] = (&mut bytes[IN_FRAME..IN_FRAME + 20]).try_into().unwrap();
                header[10..12].fill(0);
                let sum = checksum::ipv4_header_compute(header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            let packets: Vec<Packet> = (0..8)
                .map(|_| {
                    let mut packet = pool.allocate().unwrap();
                    assert!(packet.set_data(&bytes));
                    packet
                })
                .collect();
            assert_eq!(plain.look(&packets, &mut [0; 8]).count, if is_right { 8 } else { 0 });
            packets.into_iter().for_each(|packet| pool.free_packet(packet));
        }
    }
}
