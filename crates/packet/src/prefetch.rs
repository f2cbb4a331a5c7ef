//! Asking the CPU for memory before it is needed.
//!
//! A batch that looks something up for each of its packets asks for all of it first: a prefetch leaves the CPU's window at once,
//! a load that misses stays there until it is done, and what comes behind the window waits.

/// Asks the CPU to bring the cache line of `place` into its first-level cache.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    prefetch_address(std::ptr::from_ref(place).cast());
}

/// The same for any address: a prefetch reads nothing that the program can see, and never faults.
#[inline(always)]
pub fn prefetch_address(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code, reason = "the intrinsic for PREFETCHT0")]
    // SAFETY: a prefetch is a hint; it never faults, whatever the address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
