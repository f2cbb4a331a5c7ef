//! Eight IP packets in Ethernet frames at a time, with AVX2: are they plain, and where do they go?
//!
//! One by one an IPv4 header takes some 65 instructions ([`PlainHeader`](crate::PlainHeader)). Here the headers of eight packets
//! are turned into columns, and each test is one for all eight: some 27 instructions a packet. A group with a
//! packet that is not plain is left to the caller, who looks at its packets one by one.

use crate::frame::Packet;
use crate::vectors::Vectors;
use crate::wire::IpProtocol;
use crate::wire::ethernet::HEADER_LEN as IN_FRAME;
use crate::wire::ipv4::MIN_HEADER_LEN as IP_HEADER;
use crate::wire::ipv6::HEADER_LEN as IP6_HEADER;

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
    /// IPv6 extension headers.
    extensions: Octets,
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
    /// sources have neither a first nor a last octet of these two sets. `None` without AVX2, of this processor or in
    /// `vectors`.
    pub fn new(
        (mask, value): (u128, u128),
        type_bits: u8,
        octets: &[[bool; 256]; 2],
        vectors: Vectors,
    ) -> Option<Self> {
        let suspect = [Octets::new(&octets[0]), Octets::new(&octets[1])];
        let is_extension = |number| IpProtocol(number as u8).is_ipv6_extension();
        let extensions = Octets::new(&std::array::from_fn(is_extension));
        let has_avx2 = vectors != Vectors::None && Vectors::all_here().any(|here| here == vectors);
        has_avx2.then_some(Self { mask, value, type_bits, suspect, extensions })
    }

    /// Looks at packets from the first on. Stops at the first group with a packet that is not plain, and before a last group of
    /// fewer than three. A plain one is an IPv4 packet without options, as long as its header says or longer, whose checksum
    /// is right and whose time to live is at least 2. Destinations go into `destinations`, which is as long as `packets`, rounded up
    /// to a multiple of [`GROUP`].
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

    /// The same of IPv6. A plain packet has no extension header, as many bytes as its header says or more, plain addresses
    /// ([`has_plain_addresses`](crate::PlainIpv6Header::has_plain_addresses)) that may leave their link, and a hop limit of at
    /// least 2.
    ///
    /// # Panics
    ///
    /// `destinations` is shorter.
    #[inline]
    #[allow(unsafe_code, reason = "a function that needs processor features")]
    pub fn look6(&self, packets: &[Packet], destinations: &mut [u128]) -> Seen {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: one is only made on a processor that has AVX2.
        return unsafe { self.look6_by_avx2(packets, destinations) };
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

    impl PlainFrames {
        /// # Safety
        /// The processor has AVX2.
        #[target_feature(enable = "avx2")]
        pub(super) unsafe fn look_by_avx2(&self, packets: &[Packet], destinations: &mut [u32]) -> Seen {
            self.look_at_groups::<IP_HEADER, _>(packets, destinations, |group, frames, place| {
                // SAFETY: frames have an Ethernet and an IPv4 header.
                unsafe { self.look_at_ipv4(group, frames, place) }
            })
        }

        /// # Safety
        /// The processor has AVX2.
        #[target_feature(enable = "avx2")]
        pub(super) unsafe fn look6_by_avx2(&self, packets: &[Packet], destinations: &mut [u128]) -> Seen {
            self.look_at_groups::<IP6_HEADER, _>(packets, destinations, |group, frames, place| {
                // SAFETY: frames have an Ethernet and an IPv6 header.
                unsafe { self.look_at_ipv6(group, frames, place) }
            })
        }

        /// Looks at group after group, by what is common to all frames and then by `look_at`. It gets frames that are long enough
        /// for an Ethernet header and `HEADER` bytes, and their lengths. It gives the total lengths of packets, or `None` if
        /// one is not plain.
        #[target_feature(enable = "avx2")]
        #[inline]
        fn look_at_groups<const HEADER: usize, A>(
            &self,
            packets: &[Packet],
            destinations: &mut [A],
            look_at: impl Fn([&Packet; GROUP], __m256i, &mut [A; GROUP]) -> Option<__m256i>,
        ) -> Seen {
            let (groups, rest) = packets.as_chunks::<GROUP>();
            let places = destinations.as_chunks_mut::<GROUP>().0;
            let groups_of_rest = usize::from(rest.len() >= LEAST_REST);
            assert!(places.len() >= groups.len() + groups_of_rest, "room for all destinations");
            let (mut count, mut longest, mut padding) = (0, _mm256_setzero_si256(), _mm256_setzero_si256());
            let mut take = |group: [&Packet; GROUP], place: &mut [A; GROUP]| {
                // Data offset and length, as they lie in the metadata.
                let frames = _mm256_srli_epi32(column(|number| group[number].place()), 16);
                let short = _mm256_cmpgt_epi32(_mm256_set1_epi32((IN_FRAME + HEADER) as i32), frames);
                // SAFETY: they were found to be long enough first.
                if _mm256_testz_si256(short, short) == 0 || !unsafe { self.are_alike(group) } {
                    return false;
                }
                let Some(totals) = look_at(group, frames, place) else { return false };
                longest = _mm256_max_epi32(longest, totals);
                let ends = _mm256_add_epi32(totals, _mm256_set1_epi32(IN_FRAME as i32));
                padding = _mm256_or_si256(padding, _mm256_xor_si256(ends, frames));
                true
            };
            for (group, place) in groups.iter().zip(&mut *places) {
                if !take(std::array::from_fn(|number| &group[number]), place) {
                    break;
                }
                count += GROUP;
            }
            if groups_of_rest > 0 && count == groups.len() * GROUP {
                // The last packet stands for those that a group lacks.
                let last = rest.len() - 1;
                if take(std::array::from_fn(|number| &rest[number.min(last)]), &mut places[groups.len()]) {
                    count += rest.len();
                }
            }
            let mut totals = [0_u32; GROUP];
            // SAFETY: the array is as long as a vector.
            unsafe { _mm256_storeu_si256(totals.as_mut_ptr().cast(), longest) };
            let longest = totals.iter().fold(0, |longest, &total| longest.max(total)) as usize;
            Seen { count, longest, is_padded: _mm256_testz_si256(padding, padding) == 0 }
        }

        /// Whether frames have the first bytes and the marks that they must have.
        ///
        /// # Safety
        /// The frames are at least 16 bytes long.
        #[target_feature(enable = "avx2")]
        #[inline]
        unsafe fn are_alike(&self, group: [&Packet; GROUP]) -> bool {
            let value = of_bytes(self.value.to_le_bytes());
            let (mut differs, mut marks) = (_mm_setzero_si128(), 0);
            for packet in group {
                // SAFETY: the caller's.
                let first = unsafe { _mm_loadu_si128(packet.data().as_ptr().cast()) };
                differs = _mm_or_si128(differs, _mm_xor_si128(first, value));
                let is_marked = packet.annotations().fix_source();
                marks |= packet.packet_type() as u8 & self.type_bits | u8::from(is_marked);
            }
            _mm_testz_si128(differs, of_bytes(self.mask.to_le_bytes())) != 0 && marks == 0
        }

        /// # Safety
        /// The frames are long enough for both headers.
        #[target_feature(enable = "avx2")]
        #[inline]
        unsafe fn look_at_ipv4(
            &self,
            group: [&Packet; GROUP],
            frames: __m256i,
            destinations: &mut [u32; GROUP],
        ) -> Option<__m256i> {
            // SAFETY: the caller's; the place is as long as a vector.
            let (word, row, write) = unsafe {
                (
                    |number: usize| word_at(group[number], 0),
                    |number: usize| two_at(group[number], group[number + 4], 4),
                    |to: &mut [u32; GROUP], from| _mm256_storeu_si256(to.as_mut_ptr().cast(), from),
                )
            };
            // Columns of the header's 32-bit words: what they have in common is tested at once.
            let head = column(word);
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
            let mut odd = _mm256_cmpeq_epi32(left, _mm256_setzero_si256());
            let totals = _mm256_shuffle_epi8(head, each_word([3, 2, 0x80, 0x80]));
            odd = _mm256_or_si256(odd, _mm256_cmpgt_epi32(_mm256_set1_epi32(IP_HEADER as i32), totals));
            odd = _mm256_or_si256(odd, are_beyond(totals, frames));
            odd = _mm256_or_si256(odd, self.suspects(sources));
            if _mm256_testz_si256(odd, odd) == 0 || _mm256_testc_si256(is_right, _mm256_set1_epi32(-1)) == 0 {
                return None;
            }
            write(destinations, _mm256_shuffle_epi8(targets, each_word([3, 2, 1, 0])));
            Some(totals)
        }

        /// # Safety
        /// The frames are long enough for both headers.
        #[target_feature(enable = "avx2")]
        #[inline]
        unsafe fn look_at_ipv6(
            &self,
            group: [&Packet; GROUP],
            frames: __m256i,
            destinations: &mut [u128; GROUP],
        ) -> Option<__m256i> {
            // SAFETY: the caller's.
            let of_header = |offset| column(|number| unsafe { word_at(group[number], offset) });
            let (head, source, target) = (of_header(4), of_header(8), of_header(24));
            let first_octets = _mm256_set1_epi32(0xff);
            let ends = _mm256_or_si256(
                _mm256_and_si256(source, first_octets),
                _mm256_andnot_si256(first_octets, of_header(20)),
            );
            // As `PlainIpv6Header::has_plain_addresses` and `may_leave_link` have it (RFC 4291, 2.5.2, 2.5.6 and 2.7), by the
            // first 16 bits.
            let is_odd_address = |address| {
                let first = _mm256_shuffle_epi8(address, each_word([1, 0, 0x80, 0x80]));
                let shifted = _mm256_and_si256(
                    _mm256_add_epi32(first, _mm256_set1_epi32(0x100)),
                    _mm256_set1_epi32(0xffff),
                );
                let is_not_plain = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x101), shifted);
                let is_link_local = _mm256_cmpeq_epi32(
                    _mm256_and_si256(first, _mm256_set1_epi32(0xffc0)),
                    _mm256_set1_epi32(0xfe80),
                );
                _mm256_or_si256(is_not_plain, is_link_local)
            };
            let mut odd = _mm256_or_si256(is_odd_address(source), is_odd_address(target));
            // RFC 8200, 3: a packet whose hop limit is 0 or 1 is not forwarded.
            let left = _mm256_and_si256(head, _mm256_set1_epi32(0xfe << 24));
            odd = _mm256_or_si256(odd, _mm256_cmpeq_epi32(left, _mm256_setzero_si256()));
            let next = _mm256_and_si256(members(&self.extensions, head), _mm256_set1_epi32(0xff << 16));
            odd = _mm256_or_si256(odd, next);
            let payloads = _mm256_shuffle_epi8(head, each_word([1, 0, 0x80, 0x80]));
            let totals = _mm256_add_epi32(payloads, _mm256_set1_epi32(IP6_HEADER as i32));
            odd = _mm256_or_si256(odd, are_beyond(totals, frames));
            odd = _mm256_or_si256(odd, self.suspects(ends));
            if _mm256_testz_si256(odd, odd) == 0 {
                return None;
            }
            let reversed = of_bytes(std::array::from_fn(|place| 15 - place as u8));
            for (packet, destination) in group.into_iter().zip(destinations) {
                // SAFETY: the caller's; the destination is as long as a vector.
                unsafe {
                    let address = packet.data().as_ptr().add(IN_FRAME + 24).cast();
                    let address = _mm_shuffle_epi8(_mm_loadu_si128(address), reversed);
                    _mm_storeu_si128((&raw mut *destination).cast(), address);
                }
            }
            Some(totals)
        }

        /// Nonzero for source addresses whose first or last octet is in a set.
        #[target_feature(enable = "avx2")]
        #[inline]
        fn suspects(&self, sources: __m256i) -> __m256i {
            let [first, last] = [&self.suspect[0], &self.suspect[1]].map(|octets| members(octets, sources));
            _mm256_or_si256(
                _mm256_and_si256(first, _mm256_set1_epi32(0xff)),
                _mm256_and_si256(last, _mm256_set1_epi32(0xff << 24)),
            )
        }
    }

    /// A bit in each octet that is in the set.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn members(set: &Octets, octets: __m256i) -> __m256i {
        let nibble = _mm256_set1_epi8(15);
        let low = _mm256_and_si256(octets, nibble);
        let high = _mm256_and_si256(_mm256_srli_epi16(octets, 4), nibble);
        let bit =
            _mm256_shuffle_epi8(twice([1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128]), high);
        let [below, above] = set.halves.map(|half| _mm256_shuffle_epi8(twice(half), low));
        // An octet's highest bit chooses the half.
        _mm256_and_si256(_mm256_blendv_epi8(below, above, octets), bit)
    }

    /// All ones for packets that are longer than what their frames hold.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn are_beyond(totals: __m256i, frames: __m256i) -> __m256i {
        _mm256_cmpgt_epi32(_mm256_add_epi32(totals, _mm256_set1_epi32(IN_FRAME as i32)), frames)
    }

    /// Four bytes of the IP header, from `offset` on.
    ///
    /// # Safety
    /// The frame is that long.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn word_at(packet: &Packet, offset: usize) -> u32 {
        // SAFETY: the caller's.
        unsafe { packet.data().as_ptr().add(IN_FRAME + offset).cast::<u32>().read_unaligned() }
    }

    /// Sixteen bytes of the IP headers of two packets, from `offset` on.
    ///
    /// # Safety
    /// The frames are that long.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn two_at(first: &Packet, second: &Packet, offset: usize) -> __m256i {
        // SAFETY: the caller's.
        let at = |packet: &Packet| unsafe {
            _mm_loadu_si128(packet.data().as_ptr().add(IN_FRAME + offset).cast())
        };
        _mm256_inserti128_si256(_mm256_castsi128_si256(at(first)), at(second), 1)
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
    use crate::plain_ipv6_header::PlainIpv6Header;
    use crate::pool::{Pool, PoolOptions};
    use crate::wire::ipv4::WITHOUT_OPTIONS;

    const ETHER_TYPE: (u128, u128) = (0xff_ffff << 96, 0x45_0008 << 96);
    const ETHER_TYPE_6: (u128, u128) = (0xf0_ffff << 96, 0x60_dd86 << 96);

    /// Octets of sources that need a closer look: some, and always some that the frames below do not have.
    fn suspects(kinds: [u8; 4]) -> [[bool; 256]; 2] {
        let mut octets = [[false; 256]; 2];
        for kind in kinds {
            octets[0][usize::from(kind | 0x80)] = kind % 3 == 0;
            octets[1][usize::from(kind | 0x10)] = kind % 2 == 0;
        }
        octets[0][..32].fill(true);
        octets[1][200..].fill(true);
        octets
    }

    /// What a plain header says: total length, destination, first and last octet of the source.
    type Said<A> = (usize, A, u8, u8);
    type OfHeader<A> = fn(&[u8]) -> Option<Said<A>>;

    /// Total length and destination of a plain packet, packet by packet.
    fn plain<A>(
        packet: &Packet,
        octets: &[[bool; 256]; 2],
        type_bits: u8,
        of_header: OfHeader<A>,
    ) -> Option<(usize, A)> {
        let (total, destination, first, last) = of_header(packet.data())?;
        let is_plain = IN_FRAME + total <= packet.len()
            && packet.packet_type() as u8 & type_bits == 0
            && !packet.annotations().fix_source()
            && !octets[0][usize::from(first)]
            && !octets[1][usize::from(last)];
        is_plain.then_some((total, destination))
    }

    fn of_ipv4(frame: &[u8]) -> Option<Said<u32>> {
        let header = PlainHeader::at(frame, IN_FRAME)?;
        let is_plain = frame[12..15] == [8, 0, WITHOUT_OPTIONS] && header.is_good(true);
        let source = header.source().to_be_bytes();
        (is_plain && header.time_to_live() >= 2).then_some((
            header.total_length(),
            header.destination(),
            source[0],
            source[3],
        ))
    }

    fn of_ipv6(frame: &[u8]) -> Option<Said<u128>> {
        let header = PlainIpv6Header::at(frame, IN_FRAME)?;
        let is_plain = frame[12..14] == [0x86, 0xdd]
            && header.is_ipv6()
            && header.has_plain_addresses()
            && header.may_leave_link()
            && !header.next_header().is_ipv6_extension()
            && header.hop_limit() >= 2;
        let source = header.source().to_be_bytes();
        is_plain.then_some((header.total_length(), header.destination(), source[0], source[15]))
    }

    /// Compares what is found in frames with what is found packet by packet. One frame may have a mark.
    fn compare<A: Copy + Default + PartialEq + std::fmt::Debug>(
        frames: &[Vec<u8>],
        marked: Option<(usize, u8)>,
        (expected_bytes, octets): ((u128, u128), &[[bool; 256]; 2]),
        of_header: OfHeader<A>,
        look: fn(&PlainFrames, &[Packet], &mut [A]) -> Seen,
    ) -> Result<(), TestCaseError> {
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
                let Some(frames) = PlainFrames::new(expected_bytes, type_bits, octets, vectors) else {
                    continue;
                };
                let mut found = [A::default(); 64];
                let seen = look(&frames, &packets, &mut found);
                let plain = packets.iter().map_while(|packet| plain(packet, octets, type_bits, of_header));
                let plain: Vec<(usize, A)> = plain.collect();
                let whole = plain.len() / GROUP * GROUP;
                let all = plain.len() == packets.len() && plain.len() - whole >= LEAST_REST;
                let mut expected = Seen::default();
                for ((total, _), packet) in
                    plain.iter().zip(&packets).take(if all { plain.len() } else { whole })
                {
                    expected.add(*total, packet.len());
                }
                prop_assert_eq!(seen, expected);
                prop_assert!(
                    found.iter().zip(&plain).take(seen.count).all(|(found, (_, plain))| found == plain)
                );
            }
        }
        packets.into_iter().for_each(|packet| pool.free_packet(packet));
        Ok(())
    }

    fn frame(seed: [u8; 20], payload: u8, padding: u8) -> Vec<u8> {
        let mut header = seed;
        header[0] = WITHOUT_OPTIONS;
        header[2..4].copy_from_slice(&(20 + u16::from(payload)).to_be_bytes());
        header[8] = header[8].max(2);
        header[12] = 32 + header[12] % 90;
        header[15] %= 200;
        let mut frame = vec![1; 12];
        frame.extend([8, 0]);
        frame.extend(header);
        frame.resize(frame.len() + usize::from(payload) + usize::from(padding), 7);
        sum(&mut frame);
        frame
    }

    fn sum(frame: &mut [u8]) {
        let header: &mut [u8; 20] = frame[IN_FRAME..].first_chunk_mut().unwrap();
        let sum = checksum::ipv4_header_compute(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }

    fn frame6(seed: [u8; 40], payload: u8, padding: u8) -> Vec<u8> {
        let mut header = seed;
        header[0] = 0x60 | header[0] & 15;
        header[4..6].copy_from_slice(&u16::from(payload).to_be_bytes());
        header[6] = 6 + header[6] % 30;
        header[7] = header[7].max(2);
        (header[8], header[23], header[24]) = (32 + header[8] % 90, header[23] % 200, header[24] | 1);
        if header[24] >= 0xfe {
            header[24] = 0x20;
        }
        let mut frame = vec![1; 12];
        frame.extend([0x86, 0xdd]);
        frame.extend(header);
        frame.resize(frame.len() + usize::from(payload) + usize::from(padding), 7);
        frame
    }

    proptest! {
        #[test]
        fn as_packet_by_packet(
            seeds in proptest::collection::vec((any::<[u8; 20]>(), any::<u8>(), 0u8..3), 1..40),
            mistake in proptest::option::of((0usize..40, 0usize..46, any::<u8>(), any::<bool>())),
            short in proptest::option::of((0usize..40, 0usize..40)),
            marked in proptest::option::of((0usize..40, 0u8..6)),
            kinds in any::<[u8; 4]>(),
        ) {
            let mut frames: Vec<Vec<u8>> = seeds.iter().map(|&(seed, length, padding)| frame(seed, length, padding)).collect();
            if let Some((at, byte, bits, is_summed)) = mistake {
                let frame = &mut frames[at % seeds.len()];
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
                    sum(frame);
                }
            }
            if let Some((at, length)) = short && let Some(frame) = frames.get_mut(at) {
                frame.truncate(length);
            }
            compare(&frames, marked, (ETHER_TYPE, &suspects(kinds)), of_ipv4, PlainFrames::look)?;
        }

        #[test]
        fn as_packet_by_packet_in_ipv6(
            seeds in proptest::collection::vec((any::<[u8; 40]>(), any::<u8>(), 0u8..3), 1..40),
            mistake in proptest::option::of((0usize..40, 0usize..60, any::<u8>(), any::<bool>())),
            short in proptest::option::of((0usize..40, 0usize..60)),
            marked in proptest::option::of((0usize..40, 0u8..6)),
            kinds in any::<[u8; 4]>(),
        ) {
            let mut frames: Vec<Vec<u8>> = seeds.iter().map(|&(seed, length, padding)| frame6(seed, length, padding)).collect();
            if let Some((at, byte, bits, is_special)) = mistake {
                let frame = &mut frames[at % seeds.len()];
                let payload = frame.len() - IN_FRAME - IP6_HEADER;
                match byte.checked_sub(IN_FRAME) {
                    // Values at the limits are rare otherwise.
                    Some(5) if is_special => {
                        let payload = payload + usize::from(bits % 3) - 1 + usize::from(payload == 0);
                        frame[byte - 1..=byte].copy_from_slice(&(payload as u16).to_be_bytes());
                    }
                    Some(6) if is_special => frame[byte] = [0, 43, 44, 60, 51, 50, 58, 17][usize::from(bits % 8)],
                    Some(7) if is_special => frame[byte] = bits % 4,
                    Some(8 | 24) if is_special => {
                        let heads = [[0, 0], [0, 1], [0xfe, 0x80], [0xfe, 0xbf], [0xfe, 0xc0], [0xff, 2], [0xfe, 0x7f], [1, 0]];
                        frame[byte..byte + 2].copy_from_slice(&heads[usize::from(bits % 8)]);
                    }
                    _ => frame.get_mut(byte).into_iter().for_each(|place| *place ^= bits),
                }
            }
            if let Some((at, length)) = short && let Some(frame) = frames.get_mut(at) {
                frame.truncate(length);
            }
            compare(&frames, marked, (ETHER_TYPE_6, &suspects(kinds)), of_ipv6, PlainFrames::look6)?;
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
