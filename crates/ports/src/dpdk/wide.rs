//! Mbufs to packets by whole lines: with AVX-512 one load of an mbuf's first line tells whether it is a usual one, and a
//! permutation of its 16-bit words is the first line of our metadata but for constants; with AVX2 the line is tested by a
//! load of 16 bytes and one of 8, and written by three stores.
//!
//! The loop without them (`Intake::take`) has twice the instructions.

use std::mem::MaybeUninit;

use packet::{DriverFrames, Packet, Vectors};

use crate::dpdk::mbufs::Intake;
use crate::dpdk::shim::{Mbuf, Mempool};

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the feature `dpdk` is written for x86-64");

use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_load_si128, _mm_loadu_si128, _mm_set_epi64x, _mm_setzero_si128, _mm_store_si128, _mm_testz_si128,
    _mm_xor_si128, _mm256_castsi256_si128, _mm256_load_si256, _mm256_store_si256, _mm512_add_epi16, _mm512_load_si512,
    _mm512_loadu_si512, _mm512_mask_cmpneq_epi16_mask, _mm512_maskz_permutexvar_epi16, _mm512_store_si512,
};

use packet::PacketType;
use packet::frame::{FRESH_BYTES, FreshLine, METADATA_BYTES};

use crate::dpdk::mbufs::{ALONE, Line};
use crate::dpdk::shim::MBUF_BYTES;

/// The 16-bit words of an mbuf that metadata starts with: data_off (at byte 16) for the place of the data, data_len (at
/// byte 40), data_off again for the link header.
const WORDS: [u16; 32] = {
    let mut words = [0; 32];
    (words[0], words[1], words[2]) = (16 / 2, 40 / 2, 16 / 2);
    words
};

/// The 16-bit words of an mbuf that tell whether it is a usual one: refcnt (at byte 18) and nb_segs (20), the highest of
/// ol_flags (30; it says whether the data lies elsewhere, and no flag of a received packet is there), the pool (56 to 63).
const LOOKED_AT: u32 = 1 << 9 | 1 << 10 | 1 << 15 | 0b1111 << 28;

/// The bits of rearm_data and ol_flags that `LOOKED_AT` means, and data_off.
const BITS_LOOKED_AT: [u64; 2] = [0xffff_ffff_ffff, 0xffff << 48];

/// The constants of the loop, in the order of an mbuf's or metadata's line.
#[derive(Debug)]
pub(super) struct Wide {
    /// What a usual mbuf has in the words of `LOOKED_AT`.
    usual: [u64; 8],
    /// Metadata of an empty frame at data_off 0.
    fresh: FreshLine,
    has_avx512: bool,
}

impl Wide {
    /// `None` on a CPU without the instructions.
    pub(super) fn new(
        frames: DriverFrames,
        pool: *mut Mempool,
        chunk_bytes: u16,
        vectors: Vectors,
    ) -> Option<Self> {
        if vectors == Vectors::None {
            return None;
        }
        let start = METADATA_BYTES as u16;
        let fresh = frames.fresh_line(chunk_bytes, (start, 0), PacketType::Host);
        let (data_off, length) = (100, 1_000);
        let expected = frames.fresh_line(chunk_bytes, (start + data_off, length), PacketType::Host);
        let [off, length] = [u64::from(data_off), u64::from(length)];
        assert_eq!(
            fresh.places() + (off | length << 16 | off << 32),
            expected.places(),
            "the layout of metadata"
        );
        // As in `Mbuf`: rearm_data is the third, the pool the last.
        let mut usual = [0; 8];
        (usual[2], usual[7]) = (ALONE, pool as u64);
        Some(Self { usual, fresh, has_avx512: vectors == Vectors::Avx512 })
    }

    /// As `Intake::take`.
    ///
    /// # Safety
    /// The mbufs are the caller's.
    #[inline(always)]
    #[allow(unsafe_code, reason = "calling functions that need processor features")]
    pub(super) unsafe fn take(
        &self,
        intake: &Intake,
        mbufs: &[*mut Mbuf],
        slots: &mut [MaybeUninit<Packet>],
    ) -> (usize, u64) {
        // SAFETY: where a `Wide` is the CPU has AVX2, and AVX-512 where it says so; the mbufs are the caller's.
        unsafe {
            if self.has_avx512 {
                self.take_by_avx512(intake, mbufs, slots)
            } else {
                self.take_by_avx2(intake, mbufs, slots)
            }
        }
    }

    /// # Safety
    /// The CPU has AVX2, and the mbufs are the caller's.
    #[allow(unsafe_code, reason = "mbufs become packets")]
    unsafe fn take_by_avx2(
        &self,
        intake: &Intake,
        mbufs: &[*mut Mbuf],
        slots: &mut [MaybeUninit<Packet>],
    ) -> (usize, u64) {
        let slots = &mut slots[..mbufs.len()];
        let (mut taken, mut count, mut bytes) = (0, 0, 0);
        loop {
            // SAFETY: the caller's; each mbuf is taken once.
            let (usual, more) = unsafe { self.take_usual(intake, &mbufs[taken..], &mut slots[count..]) };
            (taken, count, bytes) = (taken + usual, count + usual, bytes + more);
            let Some(odd) = mbufs.get(taken..=taken) else { return (count, bytes) };
            // SAFETY: as above.
            let (packets, more) = unsafe { intake.take(odd, &mut slots[count..]) };
            (taken, count, bytes) = (taken + 1, count + packets, bytes + more);
        }
    }

    /// Takes mbufs up to one that is not usual, or has its data elsewhere than the first; how many, and their bytes.
    ///
    /// # Safety
    /// As [`Wide::take_by_avx2`].
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    #[allow(unsafe_code, reason = "mbufs become packets")]
    unsafe fn take_usual(
        &self,
        intake: &Intake,
        mbufs: &[*mut Mbuf],
        slots: &mut [MaybeUninit<Packet>],
    ) -> (usize, u64) {
        let Some(&first) = mbufs.first() else { return (0, 0) };
        // SAFETY: as in `take_by_avx512`; the first half of a fresh line, and all that is behind it, are written before the
        // place of the data, which is the first eight bytes. A usual mbuf has its data where the first has it.
        unsafe {
            let data_off = u64::from((*first).rearm_data as u16);
            let usual = _mm_set_epi64x(self.usual[3] as i64, (self.usual[2] | data_off) as i64);
            let looked_at = _mm_loadu_si128(BITS_LOOKED_AT.as_ptr().cast::<__m128i>());
            // The second half is zeros, which the compiler must not see: of stores of zeros it makes one across two lines.
            let fresh = _mm256_load_si256((&raw const self.fresh).cast::<__m256i>());
            let zeros = _mm256_load_si256((&raw const self.fresh).cast::<__m256i>().add(1));
            let places = self.fresh.places() + (data_off | data_off << 32);
            let (line, data_off) = (intake.line, data_off as usize);
            let mut bytes = 0;
            for (count, (&mbuf, slot)) in mbufs.iter().zip(slots).enumerate() {
                let flags = _mm_load_si128((&raw const (*mbuf).rearm_data).cast::<__m128i>());
                let is_usual = _mm_testz_si128(_mm_xor_si128(flags, usual), looked_at) != 0;
                if !is_usual || (*mbuf).pool != intake.pool {
                    return (count, bytes);
                }
                let chunk = mbuf.cast::<u8>().add(MBUF_BYTES);
                let length = u64::from((*mbuf).data_len);
                let first = chunk.add(METADATA_BYTES + data_off).cast::<u64>().read_unaligned();
                _mm256_store_si256(chunk.cast(), fresh);
                _mm256_store_si256(chunk.add(32).cast(), zeros);
                _mm_store_si128(chunk.add(FRESH_BYTES - 16).cast(), _mm256_castsi256_si128(zeros));
                chunk.cast::<u64>().write(places + (length << 16));
                let mut packet = intake.frames.written(std::ptr::NonNull::new_unchecked(chunk));
                if !line.is_to_us(first) {
                    packet.set_packet_type(Line::other_type(first));
                }
                bytes += length;
                slot.write(packet);
            }
            (mbufs.len(), bytes)
        }
    }

    /// # Safety
    /// The CPU has AVX-512 F and BW, and the mbufs are the caller's.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[allow(unsafe_code, reason = "mbufs become packets")]
    unsafe fn take_by_avx512(
        &self,
        intake: &Intake,
        mbufs: &[*mut Mbuf],
        slots: &mut [MaybeUninit<Packet>],
    ) -> (usize, u64) {
        let slots = &mut slots[..mbufs.len()];
        // SAFETY: the arrays are a line long; a line of mbuf and metadata is 64 bytes, aligned so. A usual mbuf is ours
        // alone, in one segment, direct, of the intake's pool: see `Intake::packet` for what is read, and the chunk's
        // metadata are written whole before it becomes a packet.
        unsafe {
            let usual = _mm512_loadu_si512(self.usual.as_ptr().cast());
            let fresh = _mm512_load_si512((&raw const self.fresh).cast());
            let words = _mm512_loadu_si512(WORDS.as_ptr().cast());
            let line = intake.line;
            let (mut count, mut bytes) = (0, 0);
            for &mbuf in mbufs {
                let fields: __m512i = _mm512_load_si512(mbuf.cast());
                if _mm512_mask_cmpneq_epi16_mask(LOOKED_AT, fields, usual) != 0 {
                    if let Some(packet) = intake.unusual(mbuf) {
                        bytes += packet.len() as u64;
                        slots.get_unchecked_mut(count).write(packet);
                        count += 1;
                    }
                    continue;
                }
                let chunk = mbuf.cast::<u8>().add(MBUF_BYTES);
                let place = _mm512_maskz_permutexvar_epi16(0b111, words, fields);
                _mm512_store_si512(chunk.cast(), _mm512_add_epi16(place, fresh));
                _mm_store_si128(chunk.add(FRESH_BYTES - 16).cast(), _mm_setzero_si128());
                // Volatile: taken from memory again, not out of the vector, which takes longer.
                let data_off = usize::from((&raw const (*mbuf).rearm_data).cast::<u16>().read_volatile());
                let first = chunk.add(METADATA_BYTES + data_off).cast::<u64>().read_unaligned();
                let mut packet = intake.frames.written(std::ptr::NonNull::new_unchecked(chunk));
                if !line.is_to_us(first) {
                    packet.set_packet_type(Line::other_type(first));
                }
                bytes += u64::from((&raw const (*mbuf).data_len).read_volatile());
                slots.get_unchecked_mut(count).write(packet);
                count += 1;
            }
            (count, bytes)
        }
    }
}
