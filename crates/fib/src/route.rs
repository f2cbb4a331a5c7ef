//! What a route is: a prefix, the number of a next hop, and where it was learnt.

use packet::Family;
use std::fmt;

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

/// Who told us of a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Source {
    /// The configuration.
    #[default]
    Static = 0,
    /// The kernel of the host, over netlink.
    Netlink = 1,
    /// A routing daemon, over FRR's forwarding plane manager protocol.
    Fpm = 2,
    /// A program or a person, over the router's own interface.
    Api = 3,
    /// The router itself: a neighbour on a network that it is connected to.
    Neighbour = 4,
}

impl Source {
    pub(crate) const fn from_number(number: u8) -> Source {
        match number {
            0 => Source::Static,
            1 => Source::Netlink,
            2 => Source::Fpm,
            3 => Source::Api,
            _ => Source::Neighbour,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Source::Static => "static",
            Source::Netlink => "netlink",
            Source::Fpm => "fpm",
            Source::Api => "api",
            Source::Neighbour => "neighbour",
        })
    }
}

/// A way to a prefix. Of several, the one with the lowest distance is in force; of those, the one with the lowest
/// metric; of those, the one of the first [`Source`].
///
/// As in the Linux kernel, two ways of one source to one prefix are told apart by their metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where packets go.
    pub next_hop: NextHopIndex,
    /// Who told us.
    pub source: Source,
    /// How far the source is trusted, 0 (most) to 255: the administrative distance of routing daemons.
    pub distance: u8,
    /// The source's own measure; lower is better.
    pub metric: u32,
}

impl Route {
    /// A route of the configuration: static, distance 1 as is usual for these, metric 0.
    pub const fn to(next_hop: NextHopIndex) -> Route {
        Route { next_hop, source: Source::Static, distance: 1, metric: 0 }
    }

    /// What makes this route better than another: the lower the better.
    pub(crate) fn preference(&self) -> (u8, u32, Source) {
        (self.distance, self.metric, self.source)
    }
}

/// A prefix and the way that packets for it take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixRoute<A: Family> {
    /// The addresses it is for; no host bits.
    pub prefix: A::Net,
    /// The way there.
    pub route: Route,
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

    #[test]
    fn sources_are_their_numbers() {
        for source in [Source::Static, Source::Netlink, Source::Fpm, Source::Api, Source::Neighbour] {
            assert_eq!(Source::from_number(source as u8), source);
        }
    }
}
