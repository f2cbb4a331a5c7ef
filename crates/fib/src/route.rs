//! What a route is: a prefix and the number of a next hop.

use packet::Family;

/// The number of a next hop, 0 to [`NextHopIndex::MAX`]. What stands behind the number (port, rewrite, group) is
/// kept elsewhere, so that a failed next hop can be changed in one place for every route that uses it.
///
/// The numbers have 15 bits because the IPv4 tables need the sixteenth of their entries for themselves; a router
/// with 500 neighbours has some thousand next hops. Give the busiest next hops the numbers below 255: [`crate::Byte24`]
/// finds those soonest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct NextHopIndex(u16);

impl NextHopIndex {
    /// No route. It is number 0, so that zeroed memory is an empty table and the fast path can use slot 0 of its
    /// next-hop array as the place where packets without a route go.
    ///
    /// A route may point to it: it then hides shorter routes, as a null route does.
    pub const NONE: NextHopIndex = NextHopIndex(0);

    /// The largest number, 32,767.
    pub const MAX: NextHopIndex = NextHopIndex(0x7fff);

    /// The next hop of this number, or `None` if it is beyond [`NextHopIndex::MAX`].
    #[inline]
    pub const fn new(number: u16) -> Option<NextHopIndex> {
        if number <= Self::MAX.0 { Some(NextHopIndex(number)) } else { None }
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The number as an index into an array of next hops.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Whether this is any next hop but [`NextHopIndex::NONE`].
    #[inline]
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }

    /// The next hop in an entry of a compiled table; the sixteenth bit is the table's own and must be clear.
    #[inline]
    pub(crate) const fn from_entry(entry: u16) -> NextHopIndex {
        debug_assert!(entry <= Self::MAX.0);
        NextHopIndex(entry)
    }
}

/// A prefix and the way that packets for it take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route<A: Family> {
    /// The addresses it is for; no host bits.
    pub prefix: A::Net,
    /// Where packets go.
    pub next_hop: NextHopIndex,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_next_hop_has_fifteen_bits() {
        assert_eq!(NextHopIndex::new(0), Some(NextHopIndex::NONE));
        assert_eq!(NextHopIndex::new(0x7fff), Some(NextHopIndex::MAX));
        assert_eq!(NextHopIndex::new(0x8000), None);
        assert!(!NextHopIndex::NONE.is_some());
    }
}
