//! What differs between IPv4 and IPv6 in access control.

use fib::IntervalKey;
use packet::{Family, Packet};
use ports::KernelRules;

use super::facts::{self, Judged};
use super::intervals::Intervals;

/// What rules look at in packets of a family, and how its addresses are searched.
pub(super) trait AclFamily: Family {
    /// What is searched first: an IPv4 address, the upper half of an IPv6 address.
    type Upper: IntervalKey;

    fn upper(self) -> Self::Upper;

    /// The rest of the address.
    fn lower(self) -> u64;

    /// The next upper part, if there is one.
    fn upper_after(upper: Self::Upper) -> Option<Self::Upper>;

    /// Gives intervals to the program in the kernel.
    fn tell_intervals(rules: &mut KernelRules, column: usize, intervals: &Intervals<Self>);

    /// What rules look at; `None` when the header is not all there.
    fn facts(packet: &Packet) -> Option<Judged<Self>>;
}

impl AclFamily for u32 {
    type Upper = u32;

    #[inline(always)]
    fn upper(self) -> u32 {
        self
    }

    #[inline(always)]
    fn lower(self) -> u64 {
        0
    }

    fn upper_after(upper: u32) -> Option<u32> {
        upper.checked_add(1)
    }

    fn tell_intervals(rules: &mut KernelRules, column: usize, intervals: &Intervals<u32>) {
        rules.intervals(column, u32::BITS, intervals.upper.iter());
    }

    #[inline(always)]
    fn facts(packet: &Packet) -> Option<Judged<u32>> {
        facts::of_ipv4(packet)
    }
}

impl AclFamily for u128 {
    type Upper = u64;

    #[inline(always)]
    fn upper(self) -> u64 {
        (self >> 64) as u64
    }

    #[inline(always)]
    fn lower(self) -> u64 {
        self as u64
    }

    fn upper_after(upper: u64) -> Option<u64> {
        upper.checked_add(1)
    }

    fn tell_intervals(rules: &mut KernelRules, column: usize, intervals: &Intervals<u128>) {
        rules.wide_intervals(
            column,
            intervals.upper.iter(),
            intervals.lower.iter().map(fib::Intervals::iter),
        );
    }

    #[inline(always)]
    fn facts(packet: &Packet) -> Option<Judged<u128>> {
        facts::of_ipv6(packet)
    }
}
