//! A cache line of sorted keys compared with another key at once: how many of them are below it.
//!
//! Loops over a burst are compiled three times, for AVX-512, for AVX2 and for any processor; [`Vectors::best`](packet::Vectors::best) says
//! once, when a table is made, which of them to call.

/// Unsigned keys, of which a cache line holds [`Key::LINE`].
#[allow(unsafe_code, reason = "a function that needs processor features")]
pub trait Key: Copy + Ord + private::Sealed {
    /// The highest key.
    const HIGHEST: Self;
    /// Keys of a cache line.
    const LINE: usize;
    /// A cache line of keys, ascending.
    type Line: Copy + AsRef<[Self]> + AsMut<[Self]>;

    /// A line of the highest key.
    fn highest_line() -> Self::Line;

    /// The key before this one, which is not the lowest.
    fn before(self) -> Self;

    /// How many keys of `line` are below `key`.
    fn below(line: &Self::Line, key: Self) -> usize;

    /// The same with AVX-512.
    ///
    /// # Safety
    /// The processor has AVX-512F and AVX-512BW.
    #[cfg(target_arch = "x86_64")]
    unsafe fn below_avx512(line: &Self::Line, key: Self) -> usize;
}

mod private {
    /// Keys are what is here.
    pub trait Sealed {}
    impl Sealed for u16 {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
}

#[allow(unsafe_code, reason = "vectors: loads and comparisons")]
impl Key for u16 {
    const HIGHEST: u16 = u16::MAX;
    const LINE: usize = 32;
    type Line = [u16; 32];

    fn highest_line() -> [u16; 32] {
        [u16::MAX; 32]
    }

    fn before(self) -> u16 {
        self - 1
    }

    #[inline(always)]
    fn below(line: &[u16; 32], key: u16) -> usize {
        line.iter().map(|&below| u16::from(below < key)).sum::<u16>() as usize
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn below_avx512(line: &[u16; 32], key: u16) -> usize {
        use std::arch::x86_64::{_mm512_cmplt_epu16_mask, _mm512_loadu_si512, _mm512_set1_epi16};
        // SAFETY: an array of 32 words of 16 bits has the 64 bytes that are loaded; the caller has the features.
        unsafe {
            let line = _mm512_loadu_si512(line.as_ptr().cast());
            _mm512_cmplt_epu16_mask(line, _mm512_set1_epi16(key as i16)).count_ones() as usize
        }
    }
}

#[allow(unsafe_code, reason = "vectors: loads and comparisons")]
impl Key for u32 {
    const HIGHEST: u32 = u32::MAX;
    const LINE: usize = 16;
    type Line = [u32; 16];

    fn highest_line() -> [u32; 16] {
        [u32::MAX; 16]
    }

    fn before(self) -> u32 {
        self - 1
    }

    #[inline(always)]
    fn below(line: &[u32; 16], key: u32) -> usize {
        line.iter().map(|&below| u32::from(below < key)).sum::<u32>() as usize
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn below_avx512(line: &[u32; 16], key: u32) -> usize {
        use std::arch::x86_64::{_mm512_cmplt_epu32_mask, _mm512_loadu_si512, _mm512_set1_epi32};
        // SAFETY: an array of 16 words of 32 bits has the 64 bytes that are loaded; the caller has the features.
        unsafe {
            let line = _mm512_loadu_si512(line.as_ptr().cast());
            _mm512_cmplt_epu32_mask(line, _mm512_set1_epi32(key as i32)).count_ones() as usize
        }
    }
}

#[allow(unsafe_code, reason = "vectors: loads and comparisons")]
impl Key for u64 {
    const HIGHEST: u64 = u64::MAX;
    const LINE: usize = 8;
    type Line = [u64; 8];

    fn highest_line() -> [u64; 8] {
        [u64::MAX; 8]
    }

    fn before(self) -> u64 {
        self - 1
    }

    #[inline(always)]
    fn below(line: &[u64; 8], key: u64) -> usize {
        line.iter().map(|&below| u64::from(below < key)).sum::<u64>() as usize
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn below_avx512(line: &[u64; 8], key: u64) -> usize {
        use std::arch::x86_64::{_mm512_cmplt_epu64_mask, _mm512_loadu_si512, _mm512_set1_epi64};
        // SAFETY: an array of 8 words of 64 bits has the 64 bytes that are loaded; the caller has the features.
        unsafe {
            let line = _mm512_loadu_si512(line.as_ptr().cast());
            _mm512_cmplt_epu64_mask(line, _mm512_set1_epi64(key as i64)).count_ones() as usize
        }
    }
}
